# SPDX-License-Identifier: Apache-2.0
"""Attacks by large results as protobuf: over gRPC and over HTTP."""
import json, os, struct, time
from common import JSON, MB, address, ask, filled, run_message
from h2 import H2
from harness import until

def anonymous(d):
    """bytes of the daemon's own memory: results themselves lie in a worker's"""
    return sum(int(l.split()[1]) << 10 for l in open(f"/proc/{d.p.pid}/status")
               if l.startswith("RssAnon"))

def quick(d, seconds=1.5):
    """The loop answers while something else goes on; the longest that took, less the time in which
    other processes kept the loop's thread or this one from the processors, as long as they like."""
    def kept_off():
        return sum(int(open(f"/proc/{pid}/schedstat").read().split()[1])
                   for pid in (d.p.pid, os.getpid())) / 1e9
    worst, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        t, before = time.monotonic(), kept_off()
        assert d.call("GET", "/healthz")[0] == 200
        worst = max(worst, time.monotonic() - t - (kept_off() - before))
        time.sleep(.01)
    return worst

def calls(d, s, model, path="/hlod.v1.Hlod/RunUnary"):
    stream = s.call(path, ("authorization", "Bearer " + d.tokens["b"]))
    s.whole(stream, run_message(model))
    return stream

def no_copies(d, before, turns, what):
    """Others are answered meanwhile, and the daemon's memory stays where it was."""
    worst, most = 0, 0
    for _ in range(turns):
        worst, most = max(worst, quick(d, .1)), max(most, anonymous(d) - before)
    assert most < 32 * MB, f"{what}: {most >> 20} MiB of copies"
    assert worst < 1, worst

def packed_answers(d):
    """Results of 64 MB over gRPC that nobody reads, six at a time: they are sent from where they
    lie, without a copy in the daemon, and count against --reply-bytes; who reads has them whole."""
    m = filled(d, "b", 16 << 20)
    before = anonymous(d)
    idle = [H2(address(d)) for _ in range(6)]
    for k, s in enumerate(idle):
        calls(d, s, m, "/hlod.v1.Hlod/Run" if k % 2 else "/hlod.v1.Hlod/RunUnary")
    no_copies(d, before, 20, "gRPC")
    for s in idle:
        s.close()
    n = 5_000_001
    m = filled(d, "b", n)
    s = H2(address(d), 1 << 30)
    s.s.settimeout(60)
    for path in "/hlod.v1.Hlod/RunUnary", "/hlod.v1.Hlod/Run":
        stream = calls(d, s, m, path)
        until("a result is read", 60, lambda: stream in s.ended)
        got = bytes(s.data[stream])
        assert got.count(struct.pack("<f", 1.5) * n) == 1, (path, len(got))
        at = 0
        while at < len(got):  # messages end where they say
            at += 5 + int.from_bytes(got[at + 1:at + 5], "big")
        assert at == len(got), (at, len(got))
    d.left = H2(address(d))  # the daemon ends while an answer waits, after --drain-ms
    calls(d, d.left, filled(d, "b", 16 << 20))
    time.sleep(1)
packed_answers.credentials = packed_answers.real = packed_answers.own = True
packed_answers.options = ["--drain-ms", "2000"]

def frames_of_large_results(d):
    """Results of 64 MB over HTTP as protobuf and as a stream of it, read slowly or not: the
    same."""
    m = filled(d, "b", 16 << 20)
    for accept in "application/x-protobuf", "application/x-protobuf-stream":
        before = anonymous(d)
        sockets = [ask(d, "b", m, accept) for _ in range(4)]
        no_copies(d, before, 15, accept)
        for s in sockets:
            s.close()
    n = 3_000_001
    m = filled(d, "b", n)
    for accept in "application/x-protobuf", "application/x-protobuf-stream":
        status, headers, body = d.call(
            "POST", "/v1/run",
            json.dumps({"model": m,
                        "inputs": [{"name": "x", "dtype": "f32", "shape": [], "data": [1.5]}]}),
            {**JSON, "Authorization": "Bearer " + d.tokens["b"], "Accept": accept})
        assert status == 200 and body.count(struct.pack("<f", 1.5) * n) == 1, (
            accept, status, len(body))
        at = 0
        while accept.endswith("stream") and at < len(body):
            at += 4 + int.from_bytes(body[at:at + 4], "little")
        assert accept.endswith("protobuf") or at == len(body), (at, len(body))
frames_of_large_results.credentials = frames_of_large_results.real = frames_of_large_results.own = (
    True)
