#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs that a node has no place for, done by another: a device that is not there, a full queue;
streams, errors, cancels, deadlines and traces; nodes that die or lie; whose the run is. Standard
library only.
Usage: forward.py --hlod BIN --hlo BIN --worker BIN --nats BIN [--short] [NAME...]"""
import json, os, struct, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nats import (Liar, Nodes, Raw, Server, agree, beat, cluster, model, name, number, sealed_beat,
                  scenarios, states, tenants_tokens, text, upload, value)
from harness import in_thread, until

SIM = [["--device", "cpu"], ["--device", "sim"]]

def request(what, n=4, **options):
    return {"model": what, "inputs": [{"name": "x", "dtype": "f32", "shape": [n // 4, 4],
                                       "data": list(range(n))}], "options": options}
def run(d, what, headers={}, n=4, **options):
    return d.json("POST", "/v1/run", request(what, n, **options), headers)

def jobs(d, other):
    return [x for x in cluster(d)["nodes"] if x["node"] == other][0].get("jobs", 0)

def forwards(d, outcome="ok"):
    return value(d, "hlod_cluster_forwards_total", f'{{outcome="{outcome}"}}')

def prepare(n, more="", what="a", on=0):
    """a model that all nodes know, once n1 says that it has its device"""
    n.meet()
    digest = upload(n.d[on], model(what, more))
    name(n.d[on], what, digest)
    agree(n.d, {("a", 1): digest} if what == "a" else {("a", 1): digest, (what, 1): digest})

# ---- where to

def no_device(o):
    """a run for a device that only another node has, in every form; what is refused there is
    refused here; forwarded once"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True, each=SIM) as n:
        prepare(n)
        a, b = n.d
        status, r = run(a, "a", device="sim")
        assert status == 200 and r["outputs"][0]["data"] == [1, 2, 3, 4], r
        assert r["node"] == "n1" and len(r["executable"]) == 64, r
        assert any(t["name"] == "forward" for t in r["timings"]), r
        assert "node" not in run(a, "a")[1]
        assert "node" not in run(b, "a", device="sim")[1]

        status, _, body = a.call("POST", "/v1/run?stream=1",
                                 json.dumps(request("a", device="sim", profile=True)))
        lines = [json.loads(x) for x in body.splitlines()]
        kinds = [k for x in lines for k in x if k != "tMs"]
        assert status == 200 and "running" in kinds and kinds[-2:] == ["result", "done"], kinds
        assert lines[-2]["result"]["outputs"][0]["data"] == [1, 2, 3, 4], lines
        status, h, body = a.call("POST", "/v1/run", json.dumps(request("a", device="sim")),
                                 {"Accept": "application/octet-stream"})
        assert status == 200 and body.endswith(struct.pack("<4f", 1, 2, 3, 4)), (h, body)
        many = 400000  # in a memfd, both ways
        status, r = run(a, "a", n=many, device="sim")
        assert status == 200 and r["outputs"][0]["data"] == [x + 1 for x in range(many)]
        assert r["outputs"][0]["shape"] == [many // 4, 4] and r["node"] == "n1"

        status, r = run(a, "a", {"Hlod-Forwarded": "n9"}, device="sim")
        assert status == 404 and r["reason"] == "NO_WORKER", r
        until("nobody has it", 5, lambda: run(a, "a", device="tpu")[0] == 404)
        assert run(a, "a", device="tpu")[1]["reason"] == "NO_WORKER"
        status, r = run(a, "a", n=8, device="sim", repeat=2000)
        assert status == 400, r
        before = forwards(a, "failed")
        bad = upload(b, model("bad", "fail run\n"))
        name(b, "bad", bad)
        until("it is known", 10, lambda: run(a, "bad", device="sim")[0] != 404)
        status, r = run(a, "bad", device="sim")
        assert status == 400 and "node n1" in r["message"], r
        assert forwards(a, "failed") > before and forwards(b) == 0
        # Known to n1 alone, by its digest: found there.
        status, r = run(a, upload(b, model("own")), device="sim")
        assert status == 200 and r["node"] == "n1", r
        status, r = run(a, "5" * 64, device="sim")
        assert status == 404 and r["reason"] == "MODEL_NOT_FOUND", r

def between_beats(o):
    """runs that have ended take no room, however long the next beat takes: more go than fit at a
    time"""
    with Server(o) as nats, Nodes(o, 2, nats.url, "--max-queue", "2", shared=True, each=SIM,
                                  beat_ms=20000) as n:
        prepare(n)
        for k in range(30):
            status, r = run(n.d[0], "a", device="sim")
            assert status == 200 and r["node"] == "n1", (k, r)

def comes_back(o):
    """a device of a node that is not there now, or not known yet, is UNAVAILABLE, not NOT_FOUND"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True, each=SIM) as n:
        prepare(n)
        assert run(n.d[0], "a", device="sim")[0] == 200
        def away(d, device):
            status, r = run(d, "a", device=device)
            assert status == 503 and r["reason"] == "NO_WORKER" and "nodes" in r["message"], r
        n.d[1].stop_keep()
        until("it is gone", 5, lambda: states(n.d[0])["n1"] == "gone")
        away(n.d[0], "sim")
        n.restart(1)
        until("it is back", 10, lambda: run(n.d[0], "a", device="sim")[0] == 200)
        n.d[1].kill()
        until("it is lost", 5, lambda: states(n.d[0])["n1"] == "lost")
        away(n.d[0], "sim")
        nats.kill()
        n.restart(1)
        away(n.d[1], "cpu")
        assert run(n.d[1], "a", {"Hlod-Forwarded": "x"}, device="cpu")[0] == 404

def full_queue(o):
    """with its queue full a node sends what comes to the one with most room, from the Open
    Inference Protocol too; with all full it is refused"""
    # Beats of a second: on a busy machine a node must not be taken for lost.
    with Server(o) as nats, Nodes(o, 3, nats.url, "--max-queue", "1", "--device-calls", "1",
                                  shared=True, beat_ms=1000) as n:
        prepare(n, "run_ms 700\n")
        for d in n.d:
            assert run(d, "a")[0] == 200
        def infer(d):
            return d.json("POST", "/v2/models/a/infer", {"inputs": [
                {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [0, 1, 2, 3]}]})
        at_once = [in_thread(run if k % 2 else infer, n.d[0], *(["a"] if k % 2 else []))
                   for k in range(4)]  # of the six places: what is known of others is old
        for t, _ in at_once:
            t.join(30)
        got = [out[0] for _, out in at_once]
        assert [s for s, _ in got] == [200] * 4, got
        for _, r in got:
            assert r["outputs"][0]["data"] == [1, 2, 3, 4], r
        assert forwards(n.d[0]) >= 2, forwards(n.d[0])
        at_once = [in_thread(run, n.d[0], "a") for k in range(20)]
        for t, _ in at_once:
            t.join(30)
        codes = sorted(out[0][0] for _, out in at_once)
        assert set(codes) == {200, 503} and codes.count(200) >= 4, codes
        refused = [out[0][1] for _, out in at_once if out[0][0] == 503]
        assert all(r.get("reason") == "QUEUE_FULL" for r in refused), refused

# ---- while it is there

def cancels(o):
    """who leaves, or whose time is over, ends the run on the other node too"""
    with Server(o) as nats, Nodes(o, 2, nats.url, "--cancel-grace-ms", "60000", shared=True,
                                  each=SIM) as n:  # else a worker that is slow to end is lost
        prepare(n, "run_ms 8000\n")
        c = n.d[0].connect(30)
        c.request("POST", "/v1/run", json.dumps(request("a", device="sim")))
        until("it runs there", 10, lambda: jobs(n.d[0], "n1") == 1)
        c.close()
        until("it is cancelled", 5, lambda: jobs(n.d[0], "n1") == 0)
        began = time.monotonic()
        status, r = run(n.d[0], "a", device="sim", timeoutMs=400)
        assert status == 504 and time.monotonic() - began < 3, r
        until("it is cancelled", 5, lambda: jobs(n.d[0], "n1") == 0)
        for ms in range(20, 80, 2):  # whichever of the two nodes is first
            status, r = run(n.d[0], "a", {"Hlod-Timeout-Ms": str(ms)}, device="sim")
            assert status == 504, (ms, r)

def slow_to_stop(o):
    """a device whose cancelled run has not stopped yet is there all the same: what comes waits"""
    with Server(o) as nats, Nodes(o, 2, nats.url, "--cancel-grace-ms", "60000", shared=True,
                                  each=SIM) as n:
        prepare(n, "hang run\n")
        for k in range(6):
            status, r = run(n.d[0], "a", device="sim", timeoutMs=300)
            assert status == 504, (k, r)
            time.sleep(0.3)  # a beat and a half

def dies(o):
    """a node that dies or hangs under a forwarded run costs that run UNAVAILABLE, no more; without
    NATS runs are forwarded to who is known; the one that forwards may be ended meanwhile"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True, each=SIM) as n:
        prepare(n, "run_ms 2000\n")
        assert run(n.d[0], "a", device="sim")[0] == 200
        for how in "kill", "stop":
            t, out = in_thread(run, n.d[0], "a", device="sim")
            until("it runs there", 10, lambda: jobs(n.d[0], "n1") == 1)
            time.sleep(0.5)
            if how == "kill":
                n.d[1].kill()
            else:
                os.kill(n.d[1].p.pid, 19)
            t.join(20)
            if how == "stop":
                os.kill(n.d[1].p.pid, 18)
                n.d[1].kill()
            assert out[0][0] == 503 and "n1" in out[0][1]["message"], out
            status, r = run(n.d[0], "a")
            assert status == 200
            n.restart(1)
            n.meet()
        nats.kill()
        until("it notices", 10, lambda: cluster(n.d[0])["state"] == "connecting")
        status, r = run(n.d[0], "a", device="sim")
        assert status == 200 and r["node"] == "n1", r
        t, out = in_thread(run, n.d[0], "a", device="sim")
        time.sleep(0.5)
        n.d[0].stop_keep()
        t.join(20)
        assert out[0][0] in (200, 503), out

def traced(o):
    """one trace: the other node's run is a part of the request here"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True, each=SIM) as n:
        prepare(n)
        trace = "0af7651916cd43dd8448eb211c80319c"
        status, r = run(n.d[0], "a", {"traceparent": f"00-{trace}-b7ad6b7169203331-01"},
                        device="sim")
        assert status == 200
        until("it is told", 5, lambda: f"trace={trace}" in n.d[1].logs())

def tenants(o):
    """the run is the caller's there too: its names, its account"""
    with Server(o) as nats, Nodes(o, 0, nats.url) as site:
        file, auth = tenants_tokens(o, site, a="read,run,compile,load", b="read,run", all="admin")
        with Nodes(o, 2, nats.url, "--tokens", file, shared=True, each=SIM) as n:
            for d in n.d:
                until("all are known", 15, lambda: len(cluster(d, **auth["all"])["nodes"]) == 2)
            digest = upload(n.d[0], model("a"), **auth["a"])
            name(n.d[0], "a", digest, headers=auth["a"])
            until("it is run", 10, lambda: run(n.d[0], "a", auth["a"], device="sim")[0] == 200)
            assert run(n.d[0], "a", auth["b"], device="sim")[0] == 404
            status, r = run(n.d[0], "a", auth["all"], device="sim")
            assert status == 200 and r["node"] == "n1", r
            runs = n.d[1].json("GET", "/v1/runs", headers=auth["all"])[1]["runs"]
            done = {x["tenant"] for x in runs if x["kind"] == "run" and x["code"] == "OK"}
            assert done == {"t-a", "t-all"}, runs

# ---- who lies

def frame(event):
    return struct.pack("<I", len(event)) + event
def result(outputs, digest="0" * 64):
    return frame(text(9, text(1, "a") + text(2, digest) + b"".join(text(3, x) for x in outputs)))
def tensor(dtype="f32", shape=(1, 4), raw=b"\0" * 16, name="y", more=b""):
    return (text(1, name) + text(2, dtype) + b"".join(number(3, d) for d in shape) +
            text(4, raw) + more)

def liars(o):
    """a node that answers with what is no run costs one failed run each; one without the secret is
    not called"""
    with Server(o) as nats, Nodes(o, 1, nats.url, shared=True) as n, Liar() as liar:
        d, raw = n.d[0], Raw(nats.port)
        digest = upload(d, model("a"))
        name(d, "a", digest)
        raw.publish(beat(node="plain", address=liar.url, kinds=["sim"], places=9))
        raw.flush()
        until("nobody has it", 5, lambda: run(d, "a", device="sim")[0] == 404)
        assert not liar.seen
        raw.publish(sealed_beat(node="liar", life="x", address=liar.url, kinds=["sim"],
                                places=1 << 20))
        raw.flush()
        until("it is known", 10, lambda: "liar" in states(d))
        good = result([tensor()])
        for answer in (b"", b"\xff" * 3, b"\xff" * 4, b"\xff" * 5000, frame(b"\xff\xff"),
                       good[:-1], good[4:], frame(b""), result([tensor("nope")]),
                       result([tensor(raw=b"\0" * 15)]), result([tensor(shape=(1 << 40, 1 << 40))]),
                       result([tensor(shape=(-1, 4))]), result([tensor(more=text(20, "h"))]),
                       frame(text(12, text(1, "NONSENSE") + text(2, "\x1b[2J"))),
                       frame(text(12, text(1, "OK"))), frame(text(8, b"")) + good[:9],
                       frame(text(11, b"\xff"))):
            liar.answer, seen = answer, len(liar.seen)
            status, r = run(d, "a", device="sim")
            assert status in (500, 503) and len(liar.seen) == seen + 1, (answer[:60], status, r)
            assert "\x1b" not in json.dumps(r, ensure_ascii=False)
        liar.answer = good + good
        status, r = run(d, "a", device="sim")
        assert status == 200 and r["node"] == "liar" and r["outputs"][0]["data"] == [0] * 4, r
        assert run(d, "a")[0] == 200
        raw.close()

SHORT = [no_device]
ALL = SHORT + [between_beats, comes_back, full_queue, cancels, slow_to_stop, dies, traced,
               tenants, liars]

if __name__ == "__main__":
    sys.exit(scenarios("cluster forward ", SHORT, ALL))
