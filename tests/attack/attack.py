#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attacks on a daemon, each with what it must come to: requests that grow when they are parsed or
inflated, and so on. Each runs against a daemon of its own, whose address space is bounded, while an
honest client asks on; the daemon lives, and its memory stays within the attack's bound: 256 MiB
above idle for who shows no token, the budget of the options for others. --table adds the peak of
memory and the honest client's latencies, alone and meanwhile, and fails where p99 is more than
three times that of the same client alone on a machine as busy (a loop that does nothing on each
processor stands for the processor time that attackers take).

Usage: attack.py --hlod BIN --worker BIN [--table] [NAME...]"""
import argparse, hashlib, http.client, json, os, re, shutil, socket
import ssl, struct, subprocess, sys, tempfile, threading, time, zlib
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]
from compiles import (calls_of_calls, compiles_of_others, programs_of_many_parts, shapes_of_others,
                      texts_made_by_the_compile, work_made_ahead)
from common import JSON, MB, PROTO, address, ask, filled, refused, zipped
from floods import (calls_of_gone_clients, calls_with_token, calls_without_end,
                    connections_without_end, frames_without_end, head_without_end,
                    head_without_end_tls)
from h2 import H2
from handshakes import certificate, handshakes_at_once, handshakes_at_once_grpc
from names import names_flood, names_unseen
from others import others_unnamed, others_unnumbered, others_unseen
from readers import (blob_changed_while_sent, clients_of_all_places, handles_flood,
                     readers_of_all_places, readers_of_results, readers_without_token)
from replies import frames_of_large_results, packed_answers
from harness import Daemon, Results, chosen, in_thread, until

MODEL = b"FAKE\nin x f32 N,4\nout y f32 N,4\nweight 4\n"
HLO = (b"HloModule secret\n\nENTRY e {\n  x = f32[1,4] parameter(0)\n  one = f32[] constant(1)\n  "
       b"b = f32[1,4] broadcast(one), dimensions={}\n  ROOT y = f32[1,4] add(x, b)\n}\n")
SPACE = 2 << 30  # of the daemon's addresses

def connection(host, port, timeout, tls):
    if not tls:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    return http.client.HTTPSConnection(host, port, timeout=timeout,
                                       context=ssl._create_unverified_context())

class Target(Daemon):
    """A daemon with tokens of tenants a and b, an operator's, and a model of a's."""
    def __init__(self, o, attack):
        self.folder = tempfile.mkdtemp(prefix="hlod-attack-")
        tokens = os.path.join(self.folder, "tokens")
        add = lambda name, *w: subprocess.run(
            [os.path.join(os.path.dirname(o.hlod), "hlo"), "-q", "tokens", "add", name, "--file",
             tokens, *w], check=True, capture_output=True, text=True).stdout.strip()
        self.tokens = {n: add(n, "--tenant", n, "--scopes", "read,run,compile,load,jobs")
                       for n in "ab"}
        self.tokens["boss"] = add("boss", "--tenant", "boss", "--scopes", "admin")
        worker = (os.path.join(os.path.dirname(o.hlod), "hlod-worker")
                  if getattr(attack, "real", False) else o.worker)
        self.args = ["--tokens", tokens, *getattr(attack, "options", [])]
        self.tls = getattr(attack, "tls", False)
        if self.tls:
            cert, key = certificate(self.folder)
            self.args += ["--tls-cert", cert, "--tls-key", key]
        super().__init__(o.hlod, worker, args=self.args)
        self.bytes = HLO if getattr(attack, "real", False) else MODEL
        maps = open(f"/proc/{self.p.pid}/maps").read()
        if not any(x in maps for x in ("Sanitizer", "libasan", "libtsan")):
            subprocess.run(["prlimit", f"--as={SPACE}", "--pid", str(self.p.pid)], check=True)
        status, r = self.by("a", "POST", "/v1/executables?shape=x=1x4", self.bytes)
        assert status == 200, r
        self.model, self.exe = r["sourceDigest"], r["executable"]["digest"]
        assert self.run("a")[0] == 200
        self.idle = self.memory()

    def connect(self, timeout):
        return connection(*self.addr, timeout, self.tls)

    def addr_text(self):
        return [self.addr[0], str(self.addr[1])]

    def by(self, who, verb, path, body=None, headers={}):
        return self.json(verb, path, body,
                         {**({"Authorization": "Bearer " + self.tokens[who]} if who else {}),
                          **headers})

    def run(self, who, model=None, **more):
        return self.by(who, "POST", "/v1/run",
                       {"model": model or self.model,
                        "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                    "data": [1, 2, 3, 4]}], **more})

    def memory(self):
        """(now, peak) in bytes"""
        text = open(f"/proc/{self.p.pid}/status").read()
        return tuple(int(re.search(k + r":\s*(\d+)", text).group(1)) << 10
                     for k in ("VmRSS", "VmHWM"))

    def restart(self):
        """After kill(): another process over the same data."""
        tokens, folder = self.tokens, self.folder
        super().__init__(self.hlod, self.worker, self.dir, self.args)
        self.tokens, self.folder, self.own = tokens, folder, True

    def clean(self):
        super().clean()
        shutil.rmtree(self.folder, ignore_errors=True)

class Honest:
    """A client of tenant a, a process of its own, that runs a small model, over and over."""
    def __init__(self, d):
        body = json.dumps({"model": d.model,
                           "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                       "data": [1, 2, 3, 4]}]})
        self.p = subprocess.Popen([sys.executable, __file__, "--honest", *d.addr_text(),
                                   d.tokens["a"], body, *["tls"] * d.tls], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        assert self.p.stdout.readline() == "\n"  # it has begun
    def stop(self):
        """p99 of its latencies in seconds"""
        times, self.wrong = json.loads(self.p.communicate("\n", timeout=90)[0])
        v = sorted(times)
        return v[min(len(v) - 1, int(len(v) * .99))]

def honest(host, port, token, body, tls=""):
    times, wrong = [], []
    print(flush=True)
    threading.Thread(target=lambda: (sys.stdin.readline(), wrong.append(None)), daemon=True).start()
    while None not in wrong or not times:
        t = time.monotonic()
        try:
            c = connection(host, int(port), 60, tls)
            c.request("POST", "/v1/run", body,
                      {"Authorization": "Bearer " + token, "Content-Type": "application/json",
                       "Accept": "application/json"})
            r = c.getresponse()
            text = r.read()
            c.close()
            if r.status != 200 or json.loads(text)["outputs"][0]["data"] != [2, 3, 4, 5]:
                wrong.append(text.decode()[:300])
        except (OSError, ValueError, http.client.HTTPException) as e:
            wrong.append(repr(e))
        times.append(time.monotonic() - t)
        time.sleep(0.005)
    json.dump([times, [x for x in wrong if x]], sys.stdout)

# ---- bodies that grow

def json_without_token(d):
    """33 MB of `{},` as 32 KB of gzip to a method that asks for no scope, eight at a time."""
    body = zipped(b"{},", 11_000_000, b"[", b"{}]")
    threads = [in_thread(d.call, "POST", "/hlod.v1.Hlod/" + m, body,
                         {**JSON, "Content-Encoding": "gzip"})
               for m in ("Version", "Health") * 4]
    for t, out in threads:
        t.join()
        refused(out[0], 413, reason="BODY_TOO_LARGE")
    for kind in JSON, PROTO:
        refused(d.call("POST", "/hlod.v1.Hlod/Version", b" " * 5000, kind), 413,
                reason="BODY_TOO_LARGE")
    assert d.call("POST", "/hlod.v1.Hlod/Version", b"{}", JSON)[0] == 200

def grown(d, path, body, headers=JSON, statuses=(413,)):
    refused(d.call("POST", path, body, {**headers, "Authorization": "Bearer " + d.tokens["b"]}),
            *statuses)

def json_with_token(d):
    """Objects by the million where a list is: inputs, jobs, infer, load, settings; plain and
    compressed."""
    many = b"{}," * 5_000_000 + b"{}]}"
    for path, head in ("/v1/run", b'{"model":"x","inputs":['), (
        "/v1/jobs", b'{"name":"x","inputs":['), ("/v2/models/x/infer", b'{"inputs":['), (
        "/v1/buffers", b'{"inputs":['), ("/v1/plan", b'{"steps":['):
        grown(d, path, head + many)
    grown(d, "/v1/jobs", zipped(b"{},", 11_000_000, b'{"name":"x","inputs":[', b"{}]}"),
          {**JSON, "Content-Encoding": "gzip"})
    grown(d, "/v2/repository/models/x/load",
          b'{"parameters":{' + b",".join(b'"%d":1' % i for i in range(2_000_000)) + b"}}")
json_with_token.credentials = True

def protobuf_with_token(d):
    """Empty messages and unknown fields by the million, over HTTP."""
    for field in b"\x1a\0", b"\xfa\x7f\0":
        grown(d, "/v1/run", field * 10_000_000, PROTO)
    grown(d, "/v1/jobs", b"\x12\0" * 10_000_000, PROTO)
protobuf_with_token.credentials = True

def bombs_at_once(d):
    """Sixteen compressed bodies at the limit of JSON at a time: each has its room before it is
    inflated, or waits for it."""
    body = zipped(b" ", 33_000_000, b"{", b"}")
    threads = [in_thread(d.call, "POST", "/v1/run", body,
                         {**JSON, "Content-Encoding": "gzip",
                          "Authorization": "Bearer " + d.tokens["b"]})
               for _ in range(16)]
    for t, out in threads:
        t.join()
        refused(out[0], 400, 404, 503)
bombs_at_once.credentials, bombs_at_once.options = True, ["--receive-bytes", "64M"]

def no_memory(d):
    """Bodies larger together than what the process may have: refused, each, and the daemon goes
    on."""
    size = int(re.search(r"VmSize:\s*(\d+)", open(f"/proc/{d.p.pid}/status").read()).group(1)) << 10
    subprocess.run(["prlimit", f"--as={size + 200 * MB}", "--pid", str(d.p.pid)], check=True)
    body = (
        b'{"model":"x","inputs":[' + b",".join([b'{"name":"' + b"n" * 400 + b'"}'] * 60000) + b"]}")
    threads = [in_thread(d.call, "POST", "/v1/run", body,
                         {**JSON, "Authorization": "Bearer " + d.tokens["b"]})
               for _ in range(24)]
    for t, out in threads:
        t.join()
        if not isinstance(out[0], Exception):
            refused(out[0], 400, 404, 413, 429, 503, 507)
    def serves():
        try:
            return d.run("a")[0] == 200
        except (OSError, http.client.HTTPException):
            assert d.p.poll() is None, "the daemon died"
    until("it serves", 10, serves)
no_memory.credentials, no_memory.options, no_memory.harms = True, ["--receive-bytes", "64G"], True

# ---- gRPC

def grpc_bomb(d):
    """8 MB of gzip that come to 8 GiB, without a token, to methods that ask for one and that do
    not."""
    c = zlib.compressobj(9, zlib.DEFLATED, 31)
    block = bytes(16 * MB)
    # 1 GiB: enough for SPACE, and quick to make
    bomb = b"".join(c.compress(block) for _ in range(64)) + c.flush()
    def once(path):
        s = H2(address(d))
        stream = s.call(path, ("grpc-encoding", "gzip"))
        at = 0
        head = b"\1" + len(bomb).to_bytes(4, "big")
        for p in [head] + [bomb[i:i + 16000] for i in range(0, len(bomb), 16000)]:
            with s.lock:
                while (min(s.window, s.windows[stream]) < len(p) and stream not in s.ended
                       and not s.over):
                    if not s.lock.wait(5):
                        break
                if stream in s.ended or s.over:
                    break
                s.window -= len(p)
                s.windows[stream] -= len(p)
            s.s.sendall(
                b"" + len(p).to_bytes(3, "big") + bytes([0, 0]) + stream.to_bytes(4, "big") + p)
            at += len(p)
        time.sleep(.3)
        s.close()
    threads = [in_thread(once, p) for p in (
                   "/grpc.health.v1.Health/Check", "/hlod.v1.Hlod/Version", "/hlod.v1.Hlod/Run",
                   "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")]
    for t, _ in threads:
        t.join()

def grpc_large(d):
    """Messages of a gigabyte to a method that anybody may call; the library would take them
    whole."""
    def once():
        s = H2(address(d))
        sent = s.send(s.call("/grpc.health.v1.Health/Check"), 1 << 30)
        s.close()
        return sent
    threads = [in_thread(once) for _ in range(4)]
    for t, out in threads:
        t.join()
        assert isinstance(out[0], Exception) or out[0] < 1 << 30, out

def grpc_large_beside(d):
    """The same beside somebody with a token whose run is under way, over gRPC: the room stays that
    of those without one."""
    slow = d.by("b", "POST", "/v1/executables?shape=x=1x4",
                d.bytes + b"run_ms 600000\n")[1]["sourceDigest"]
    field = lambda n, b: bytes([n << 3 | 2, len(b)]) + b
    run = field(1, slow.encode()) + field(3, field(1, b"x") + field(2, b"f32") + field(3, b"\1\4")
                                             + field(4, struct.pack("4f", 1, 2, 3, 4)))
    s = H2(address(d))
    stream = s.call("/hlod.v1.Hlod/RunUnary", ("authorization", "Bearer " + d.tokens["b"]))
    s.whole(stream, run)
    until("it is under way", 60,
          lambda: any(x.get("runs") for x in d.by("boss", "GET", "/v1/devices")[1]["devices"]))
    grpc_large(d)
    assert stream not in s.ended, "the run was not under way all the time"
    assert d.memory()[1] < d.idle[1] + 200 * MB, d.memory()[1] >> 20
    s.close()
grpc_large_beside.options = ["--device", "cpu*2"]

# ---- answers that are large, or not read

def answers_as_text(d):
    """Results of four million values as JSON, in each form of it: others are answered meanwhile,
    and memory does not grow by the text."""
    m = filled(d, "b", 4 << 20)
    for accept, path in ("application/json", "/v1/run"), ("application/x-ndjson", "/v1/run"), (
        "application/json", f"/v2/models/{m}/infer"):
        sockets = [ask(d, "b", m, accept, path) for _ in range(4)]
        time.sleep(.3)
        for _ in range(20):
            t = time.monotonic()
            assert d.call("GET", "/healthz")[0] == 200 and time.monotonic() - t < 10, (
                accept, time.monotonic() - t)
            time.sleep(.05)
        for s in sockets:
            s.settimeout(20)
            assert s.recv(12) == b"HTTP/1.1 200", accept
            s.close()
    assert d.memory()[1] < d.idle[1] + 100 * MB, d.memory()[1] >> 20
    small = filled(d, "b", 300_001)  # beyond what is made in one go
    for accept, path in ("application/json", "/v1/run"), ("application/x-ndjson", "/v1/run"), (
        "application/json", f"/v2/models/{small}/infer"):
        with ask(d, "b", small, accept, path) as s:
            text = b""
            while (not text.endswith(b"0\r\n\r\n")
                   and not re.search(rb"0\r\nServer-Timing:[^\r]*\r\n\r\n$", text[-300:])):
                piece = s.recv(1 << 16)
                assert piece, text[-300:]
                text += piece
        body, at = b"", text.index(b"\r\n\r\n") + 4
        while n := int(text[at:text.index(b"\r\n", at)], 16):
            at = text.index(b"\r\n", at) + 2
            body, at = body + text[at:at + n], at + n + 2
        results = [x for line in body.decode().split("\n") if line.strip()
                   for x in [json.loads(line)] if "result" in x or "outputs" in x]
        assert len(results) == 1 and results[0].get("result", results[0])["outputs"][0]["data"] == [
            1.5] * 300_001, (accept, path)
answers_as_text.credentials = answers_as_text.real = True

def unread_answers(d):
    """Results of 64 MB each that nobody reads, over HTTP: a tenant's wait for its own to be taken;
    others get theirs."""
    m, mine = filled(d, "b", 16 << 20), filled(d, "a", 4 << 20)
    sockets = [ask(d, "b", m, "application/octet-stream") for _ in range(10)]
    def held():
        return sum(os.stat(f"/proc/{d.p.pid}/fd/{f}").st_size
                   for f in os.listdir(f"/proc/{d.p.pid}/fd")
                   if "memfd:hlod" in (os.readlink(f"/proc/{d.p.pid}/fd/{f}")
                                       if os.path.islink(f"/proc/{d.p.pid}/fd/{f}") else ""))
    until("results wait", 30, lambda: held() > 128 * MB)
    time.sleep(2)
    for _ in range(5):
        assert d.run("a")[0] == 200 and len(
            d.call("POST", "/v1/run",
                   json.dumps({"model": mine, "inputs": [
                                   {"name": "x", "dtype": "f32", "shape": [], "data": [1]}]}),
                   {**JSON, "Authorization": "Bearer " + d.tokens["a"],
                    "Accept": "application/octet-stream"})[2]) > 16 * MB
        assert held() < 512 * MB, held() >> 20
    for s in sockets[:4]:
        s.close()
    for s in sockets[4:]:  # who reads is served, all in turn
        s.settimeout(30)
        n = 0
        while n < 64 * MB and (piece := s.recv(1 << 20)):
            n += len(piece)
        assert n >= 64 * MB, n
        s.close()
# its runs take the device's time
unread_answers.credentials = unread_answers.real = unread_answers.own = True
unread_answers.options = ["--reply-bytes", "256M"]

# ---- other tenants

def same(*replies):
    """What is told of another's is what is told of nobody's: the status, and the words but for the
    digest."""
    words = [(status, re.sub("[0-9a-f]{64}", "D", json.dumps(r))) for status, r in replies]
    assert len(set(words)) == 1 and words[0][0] == 404, words

def digests_of_others(d):
    """Tenant b knows the digests of a's model and executable, and names them wherever a digest
    goes."""
    nobody = "0" * 64
    for verb, path in ("GET", "/v1/executables/%s"), (
        "GET", "/v1/executables/%s/stage/hlo-before"), ("GET", "/v1/blobs/%s"), (
        "GET", "/v1/blobs/%s/info"), ("GET", "/v2/models/%s"), ("GET", "/v2/models/%s/config"):
        for digest in d.model, d.exe:
            same(d.by("b", verb, path % digest), d.by("b", verb, path % nobody))
    for digest in d.model, d.exe:
        same(d.run("b", digest), d.run("b", nobody))
        same(d.by("b", "POST", "/v1/executables?model=" + digest),
             d.by("b", "POST", "/v1/executables?model=" + nobody))
        same(d.by("b", "POST", "/v1/models", {"name": "mine", "model": digest}),
             d.by("b", "POST", "/v1/models", {"name": "mine", "model": nobody}))
        x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
        same(d.by("b", "POST", f"/v2/models/{digest}/infer", {"inputs": [x]}),
             d.by("b", "POST", f"/v2/models/{nobody}/infer", {"inputs": [x]}))
        step = lambda m: {"steps": [{"name": "s", "model": m, "inputs": [{"input": "x"}]}],
                          "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                      "data": [1, 2, 3, 4]}], "outputs": [{"step": "s"}]}
        same(d.by("b", "POST", "/v1/plan", step(digest)),
             d.by("b", "POST", "/v1/plan", step(nobody)))
        job = lambda m: {"name": "s", "models": [{"name": "m", "model": m}],
                         "targets": [{"name": "cpu"}]}
        same(d.by("b", "POST", "/v1/jobs", job(digest)), d.by("b", "POST", "/v1/jobs", job(nobody)))
        same(d.by("b", "GET", f"/v1/cache/explain?a={digest}&b={digest}"),
             d.by("b", "GET", f"/v1/cache/explain?a={nobody}&b={nobody}"))
    assert all(r["tenant"] == "b" and r["code"] == "NOT_FOUND"
               for r in d.by("b", "GET", "/v1/runs")[1]["runs"])
    text = json.dumps([d.by("b", "GET", p)
                       for p in ("/v1/executables", "/v1/models", "/v1/devices", "/v1/tenants",
                                 "/v1/cache", "/v2/models/stats")])
    assert d.model not in text and d.exe not in text, text
    # weights of another's model with an executable of one's own
    status, r = d.by("b", "POST", "/v1/executables?shape=x=1x4",
                     d.bytes.replace(b"secret", b"public"))
    assert status == 200, r
    own = r["executable"]["digest"]
    same(d.by("b", "POST", "/v1/run",
              {"model": own, "weights": d.model, "inputs": [x | {"dtype": "f32"}]}),
         d.by("b", "POST", "/v1/run",
              {"model": own, "weights": nobody, "inputs": [x | {"dtype": "f32"}]}))
    # who brings the bytes has them; an operator sees everything
    assert (d.by("b", "POST", "/v1/executables?shape=x=1x4", d.bytes)[0] == 200
            and d.run("b")[0] == 200 and d.run("b", d.exe)[0] == 200)
    assert d.by("b", "GET", "/v1/executables/" + d.exe)[0] == 200 and d.by(
        "boss", "GET", "/v1/executables/" + d.exe)[0] == 200 and d.run("boss")[0] == 200
    for path in "/v1/executables", "/v1/runs":
        assert (d.exe in json.dumps(d.by("boss", "GET", path))
                and d.exe in json.dumps(d.by("a", "GET", path))), path
digests_of_others.credentials = digests_of_others.real = True

def first_compiled_by_another(d):
    """One graph, two tenants' weights: the executable's digest runs each with its own, and shows
    each its own source."""
    sources, exes = {}, {}
    for who in "ab":  # the same but for names, which are no part of the graph
        status, r = d.by(who, "POST", "/v1/executables?shape=x=1x4",
                         f"FAKE\nin x f32 N,4\nout {who}s f32 N,4\nweight 8\n".encode())
        assert status == 200, r
        sources[who], exes[who] = r["sourceDigest"], r["executable"]["digest"]
    assert exes["a"] == exes["b"] and sources["a"] != sources["b"], (exes, sources)
    for _ in range(2):
        for who in "ab":
            shown = d.by(who, "GET", "/v1/executables/" + exes[who])[1]
            assert (shown["sourceDigest"] == sources[who]
                    and shown["signature"]["outputs"][0]["name"] == who + "s"), (shown, sources)
            assert [x["sourceDigest"] for x in d.by(who, "GET", "/v1/executables")[1]["executables"]
                    if x["digest"] == exes[who]] == [sources[who]]
            status, r = d.run(who, exes[who])
            assert status == 200 and r["outputs"][0]["name"] == who + "s", (r, who)
        d.kill()
        d.restart()
first_compiled_by_another.credentials = first_compiled_by_another.restarts = True

def names_of_others(d):
    """Names of models are each tenant's own: to list, run, load, unload, remove, statistics."""
    assert d.by("a", "POST", "/v1/models", {"name": "theirs", "model": d.model})[0] == 200
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    for verb, path, body in ("GET", "/v2/models/%s", None), (
        "POST", "/v2/models/%s/infer", {"inputs": [x]}), ("DELETE", "/v1/models/%s", None), (
        "GET", "/v2/models/%s/stats", None), ("GET", "/v2/models/%s/ready", None):
        text = lambda n: (lambda r: (r[0], json.dumps(r[1]).replace(n, "NAME")))(
            d.by("b", verb, path % n, body))
        assert text("theirs") == text("nobody") and text("theirs")[0] == 404, (
            path, text("theirs"), text("nobody"))
    same(d.run("b", "theirs"),
         (lambda r: (r[0], json.loads(json.dumps(r[1]).replace("nobody", "theirs"))))(
             d.run("b", "nobody")))
    for verb in "load", "unload":
        assert d.by("b", "POST", f"/v2/repository/models/theirs/{verb}", {})[0] == 400
    assert (d.by("b", "GET", "/v1/models")[1].get("models", []) == []
            and d.by("b", "POST", "/v2/repository/index", {})[1] == [])
    other = d.by("b", "POST", "/v1/executables?shape=x=1x4",
                 MODEL + b"run_ms 1\n")[1]["sourceDigest"]
    assert d.by("b", "POST", "/v1/models", {"name": "theirs", "model": other})[0] == 200
    for who, model in ("a", d.model), ("b", other):
        assert (d.run(who, "theirs")[0] == 200
                and d.by(who, "GET", "/v1/runs")[1]["runs"][0]["model"] == model), who
    assert sorted(m["tenant"] for m in d.by("boss", "GET", "/v1/models")[1]["models"]) == ["a", "b"]
    assert d.by("b", "DELETE", "/v1/models/theirs")[0] == 200 and d.run("a", "theirs")[0] == 200
    d.kill()
    d.restart()
    assert (d.run("a", "theirs")[0] == 200 and d.run("b", "theirs")[0] == 404
            and d.run("b", d.model)[0] == 404)
names_of_others.credentials = names_of_others.restarts = True

def wrong_format(d):
    """A wrong format, by another tenant or beside the owner's right request, or mistyped by the
    owner: nobody's blob goes, nobody else's request fails."""
    secret = HLO.replace(b"secret", b"other")
    digest = hashlib.sha256(secret).hexdigest()
    assert d.by("a", "PUT", "/v1/blobs", secret)[0] == 200
    for who in "a", "b":
        for format in "onnx", "hlo-proto", "nonsense":
            assert d.by(who, "POST",
                        f"/v1/executables?model={digest}&format={format}")[0] in (400, 404), format
    assert d.by("a", "GET", f"/v1/blobs/{digest}/info")[0] == 200
    many = [in_thread(d.by, "a", "POST", f"/v1/executables?model={digest}&format={f}")
            for f in ["onnx", "hlo-text", ""] * 4]
    for (t, out), f in zip(many, ["onnx", "hlo-text", ""] * 4):
        t.join()
        assert out[0][0] == (400 if f == "onnx" else 200), (f, out)
    # a body that another has: not its writer's to remove; a body of nobody's goes again
    for headers in {"Content-Type": "application/onnx"}, {}:
        status, r = d.by("b", "POST", "/v1/executables", secret, headers)
        assert status == (400 if headers else 200), r
    assert d.by("a", "GET", f"/v1/blobs/{digest}/info")[0] == 200 and d.run("a", digest)[0] == 200
    junk = b"nothing that a reader takes"
    assert d.by("b", "POST", "/v1/executables", junk)[0] == 400
    path = os.path.join(d.dir, "data", "blobs", hashlib.sha256(junk).hexdigest()[:2],
                        hashlib.sha256(junk).hexdigest())
    until("gone", 5, lambda: not os.path.exists(path))
wrong_format.credentials = wrong_format.real = True

def regions_of_others(d):
    """Shared memory: tenant b does not see, use, unregister or register a's; unregistering all is
    unregistering one's own."""
    name = f"hlod-attack-{os.getpid()}"
    path = "/dev/shm/" + name
    with open(path, "wb") as f:
        f.write(struct.pack("4f", 1, 2, 3, 4) + bytes(48))
    try:
        def of(who, verb, path, body=None):
            status, _, text = d.call(verb, "/v2/systemsharedmemory" + path,
                                     json.dumps(body or {}) if verb == "POST" else None,
                                     {"Authorization": "Bearer " + d.tokens[who], **JSON})
            return status, json.loads(text or "null")
        where = {"key": "/" + name, "offset": 0, "byte_size": 64}
        x = lambda region, at=0: {"name": "x", "datatype": "FP32", "shape": [1, 4],
                                  "parameters": {"shared_memory_region": region,
                                                 "shared_memory_offset": at,
                                                 "shared_memory_byte_size": 16}}
        infer = lambda who, region: d.by(who, "POST", f"/v2/models/{d.model}/infer",
                                         {"inputs": [x(region)]})
        assert of("a", "POST", "/region/r/register", where)[0] == 200
        status, r = infer("a", "r")
        assert status == 200 and r["outputs"][0]["data"] == [2, 3, 4, 5], r
        # b has the model, not the region
        assert d.by("b", "POST", "/v1/executables?shape=x=1x4", d.bytes)[0] == 200
        assert infer("b", "r")[0] == 400 and of("b", "GET", "/region/r/status")[0] == 400
        assert (of("b", "GET", "/status") == (200, [])
                and [e["name"] for e in of("a", "GET", "/status")[1]] == ["r"])
        refused_words = [of("b", "POST", "/region/mine/register", w)[1]["error"]
                         for w in (where, {**where, "key": "/no-such-object"})]
        assert refused_words[0] == refused_words[1], refused_words
        for path_ in "/region/r/unregister", "/unregister":
            assert of("b", "POST", path_)[0] == 200
        assert infer("a", "r")[0] == 200
        assert of("a", "POST", "/unregister")[0] == 200 and infer("a", "r")[0] == 400
        assert (of("b", "POST", "/region/r/register", where)[0] == 200 and infer("b", "r")[0] == 200
                and infer("a", "r")[0] == 400)
    finally:
        os.remove(path)
regions_of_others.credentials = regions_of_others.real = True
regions_of_others.options = ["--allow-shared-memory"]

# ---- bodies that do not come

def announce(d, who, n, length, send=b"x"):
    """n requests with bodies of so many bytes announced; their sockets."""
    out = []
    for _ in range(n):
        s = socket.create_connection(d.addr)
        s.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"
                  b"Content-Type: application/x-protobuf\r\nContent-Length: %d\r\n"
                  b"\r\n" % (d.tokens[who].encode(), length) + send)
        out.append(s)
    return out

def announced_and_dripped(d):
    """One tenant announces bodies of the whole budget and drips them; others' runs, small and
    large, do not wait for it."""
    sockets = announce(d, "b", 8, 250 << 20)
    large = json.dumps({"model": d.model,
                        "inputs": [{"name": "x", "dtype": "f32", "shape": [10000, 4],
                                    "data": [1] * 40000}]})
    for _ in range(10):
        for s in sockets:
            try:
                s.sendall(b"x")
            except OSError:
                pass
        assert d.by("a", "POST", "/v1/run", large)[0] == 200
        time.sleep(.2)
    for s in sockets:
        s.close()
announced_and_dripped.credentials = True

def slow_share(d):
    """Of one tenant too: bodies that announced all its share and send little give it back to those
    that send."""
    sockets = announce(d, "a", 3, 20 << 20, b"x" * 1000)
    body = {"model": d.model,
            "inputs": [{"name": "x", "dtype": "f32", "shape": [500000, 4], "data": [1] * 2000000}]}
    time.sleep(.7)
    assert d.by("a", "POST", "/v1/run", body)[0] == 200
    for s in sockets:
        s.close()
slow_share.credentials = slow_share.own = True  # the honest client is of this tenant
slow_share.options = ["--receive-bytes", "64M"]

# ---- work without end

def chain(n, count, start="iota"):
    """count products of n x n matrices one behind the other, of values that no input decides, the
    largest of the last added to x: all of each is needed"""
    head = {"iota": f"  i = f32[{n},{n}] iota(), iota_dimension=0\n  m0 = f32[{n},{n}] sine(i)\n"}[
        start]
    dots = "".join(f"  m{k + 1} = f32[{n},{n}] dot(m{k}, m0), lhs_contracting_dims={{1}}, "
                   f"rhs_contracting_dims={{0}}\n"
                   for k in range(count))
    return f"""HloModule c{n}x{count}
larger {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}}
ENTRY e {{
  x = f32[1,4] parameter(0)
{head}{dots}  z = f32[] constant(0)
  s = f32[] reduce(m{count}, z), dimensions={{0,1}}, to_apply=larger
  p = f32[1,4] broadcast(s), dimensions={{}}
  ROOT r = f32[1,4] add(x, p)
}}
""".encode()

def turns(n):
    """a loop of n turns that no input decides"""
    return f"""HloModule t
b {{ s = (s64[], f32[64]) parameter(0)
  k = s64[] get-tuple-element(s), index=0
  v = f32[64] get-tuple-element(s), index=1
  one = s64[] constant(1)
  ROOT t = (s64[], f32[64]) tuple(s64[] add(k, one), f32[64] cosine(v)) }}
c {{ s = (s64[], f32[64]) parameter(0)
  k = s64[] get-tuple-element(s), index=0
  n = s64[] constant({n})
  ROOT l = pred[] compare(k, n), direction=LT }}
ENTRY e {{
  x = f32[1,4] parameter(0)
  z = s64[] constant(0)
  i = f32[64] iota(), iota_dimension=0
  t = (s64[], f32[64]) tuple(z, i)
  w = (s64[], f32[64]) while(t), condition=c, body=b
  v = f32[64] get-tuple-element(w), index=1
  p = f32[4] slice(v), slice={{[0:4]}}
  q = f32[1,4] reshape(p)
  ROOT r = f32[1,4] add(x, q)
}}
""".encode()

def many(n):
    """n instructions that nothing folds: minutes of compiling"""
    lines = "".join(
        f"  s{k + 1} = f32[1,4] {('add', 'multiply', 'maximum', 'atan2')[k % 4]}(s{k}, s{k // 2})\n"
        for k in range(n))
    return (f"HloModule n{n}\nENTRY e {{\n  s0 = f32[1,4] parameter(0)\n{lines}  ROOT r = f32[1,4] "
            f"negate(s{n})\n}}\n".encode())

def pages(d):
    """bytes that the workers hold together"""
    pids = subprocess.run(["pgrep", "-P", str(d.p.pid)], capture_output=True,
                          text=True).stdout.split()
    total = 0
    for p in pids:
        try:
            total += int(open(f"/proc/{p}/statm").read().split()[1]) * 4096
        except OSError:
            pass
    return total

def endless_work(d):
    """Programs whose ingest, compile, load, weights or run take minutes, each with a deadline of a
    second: at it, and a grace and a restart later, compiler and device are free again, and what
    others had loaded is there."""
    fine = d.bytes
    for name, program in ("chain of 8192", chain(8192, 400)), ("chain of 1024", chain(1024, 240)), (
        "turns", turns(10 ** 12)), ("turns within a budget", turns(10 ** 6)), ("many", many(60000)):
        start, status, r = time.monotonic(), *d.by("b", "POST", "/v1/executables", program,
                                                   {"Hlod-Timeout-Ms": "1000"})
        assert status in (200, 504), (name, r)
        assert time.monotonic() - start < 30, (name, "the compile", time.monotonic() - start)
        if status == 200:
            start = time.monotonic()
            status, r = d.run("b", r["sourceDigest"], options={"timeout_ms": 1000})
            assert status in (200, 504), (name, r)
            assert time.monotonic() - start < 30, (name, "the run")
        start = time.monotonic()
        assert d.run("a")[0] == 200 and time.monotonic() - start < 30, (
            name, "a run behind it", time.monotonic() - start)
        fine = fine.replace(b"secret", b"secret0")
        status, r = d.by("a", "POST", "/v1/executables", fine)
        assert status == 200 and time.monotonic() - start < 30, (
            name, "a compile behind it", time.monotonic() - start, r)
        assert pages(d) < 3 << 30, (name, pages(d) >> 20)
endless_work.credentials = endless_work.real = True

def endless_work_two_workers(d):
    """The same where the processor has two workers."""
    endless_work(d)
endless_work_two_workers.credentials = endless_work_two_workers.real = True
endless_work_two_workers.options = ["--device", "cpu*2"]

def endless_work_isolated(d):
    """The same where each tenant has processes of its own."""
    endless_work(d)
endless_work_isolated.credentials = endless_work_isolated.real = True
endless_work_isolated.options = ["--isolate", "tenant"]

def hungry_compile(d):
    """A program that takes more to compile than a compiler may have: the compile fails and says
    why, the next one goes well."""
    status, r = d.by("b", "POST", "/v1/executables", many(150000))
    assert status == 503 and "compile_memory = 125829120 bytes" in r["message"], (status, r)
    for text in d.bytes, d.bytes.replace(b"constant(1)", b"constant(3)"):
        status, r = d.by("a", "POST", "/v1/executables", text)
        assert status == 200, r
hungry_compile.credentials = hungry_compile.real = hungry_compile.unsanitized = True
hungry_compile.options = ["--compile-memory", "120M"]

def planned_memory(d):
    """What weights take while they are prepared is planned as a run's memory is: too much for the
    device is refused, at once."""
    status, r = d.by("b", "POST", "/v1/executables", chain(1024, 3))
    assert status == 200, r
    x = r["executable"]
    assert int(x["prepareBytes"]) >= 2 * 4 << 20 and int(x["boundBytes"]) == 4, x
    status, r = d.run("b", r["sourceDigest"])
    assert (status == 429 and r["reason"] == "DEVICE_MEMORY"
            and "to prepare weights" in r["message"]), r
planned_memory.credentials = planned_memory.real = True
planned_memory.options = ["--device-memory", "4M"]

# ---- a disk that changes what it was given

def stored(d, kind, digest):
    return os.path.join(d.dir, "data", kind, digest[:2], digest)

def flip(path):
    """One bit in the middle, the times as before."""
    t = os.stat(path)
    with open(path, "r+b") as f:
        f.seek(t.st_size // 2)
        b = f.read(1)
        f.seek(t.st_size // 2)
        f.write(bytes([b[0] ^ 4]))
    os.utime(path, ns=(t.st_atime_ns, t.st_mtime_ns))

def flipped_weights(d):
    """A bit of a model's blob flips, while the daemon is down and while it is up: the next load
    says so, nothing is served from it, `cache verify` finds it; sent again, it serves."""
    flip(stored(d, "blobs", d.model))
    stored_again = lambda: d.by("a", "POST", "/v1/executables?shape=x=1x4", d.bytes)
    d.kill()
    d.restart()
    status, r = d.run("a")
    assert status == 500 and r["code"] == "DATA_LOSS" and "ev=blob.quarantined" in d.logs(), r
    assert d.run("a")[0] in (404, 500)
    assert stored_again()[0] == 200 and d.run("a")[0] == 200
    flip(stored(d, "blobs", d.model))
    assert d.by("a", "GET", f"/v1/blobs/{d.model}")[0] == 500
    assert stored_again()[0] == 200 and d.run("a")[0] == 200
    flip(stored(d, "blobs", d.model))
    found = d.by("boss", "POST", "/v1/cache/verify", {})[1]
    assert ([f["digest"] for f in found["findings"] if f["state"] == "damaged"] == [d.model]
            and found["blobs"] >= 2), found
    assert (stored_again()[0] == 200
            and d.by("boss", "POST", "/v1/cache/verify", {})[1].get("findings", []) == [])
flipped_weights.credentials = flipped_weights.restarts = True

def swapped_executables(d):
    """The files of two executables change places: neither runs as the other."""
    two = d.bytes.replace(b"constant(1)", b"constant(2)")
    r = d.by("a", "POST", "/v1/executables", two)[1]
    other, exe = r["sourceDigest"], r["executable"]["digest"]
    for files in ((d.exe, exe),):
        a, b = (stored(d, "executables", x) for x in files)
        d.kill()
        os.rename(a, a + "x"), os.rename(b, a), os.rename(a + "x", b)
        d.restart()
    for model, want in (d.model, [2, 3, 4, 5]), (other, [3, 4, 5, 6]), (d.exe, [2, 3, 4, 5]), (
        exe, [3, 4, 5, 6]):
        status, r = d.run("a", model)
        assert status == 200 and r["outputs"][0]["data"] == want, (status, r, want)
    assert len(os.listdir(os.path.join(d.dir, "data", "quarantine"))) == 2
swapped_executables.credentials = swapped_executables.restarts = swapped_executables.real = True

def killed_on_a_full_disk(d):
    """The disk is full to the last block, and the daemon dies by SIGKILL or ends: it starts again,
    serves what it has, and says what it cannot."""
    data = os.path.join(d.dir, "data")
    assert d.by("a", "POST", "/v1/models", {"name": "kept", "model": d.model})[0] == 200
    d.stop_keep()
    copy = data + ".copy"
    os.rename(data, copy)
    os.mkdir(data)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "none", data],
                      capture_output=True).returncode:
        os.rmdir(data)
        os.rename(copy, data)
        d.restart()
        print("SKIP killed_on_a_full_disk: no mount here")
        return
    try:
        subprocess.run(["cp", "-a", copy + "/.", data], check=True)
        d.restart()
        for end in d.kill, d.stop_keep, d.kill:
            with open(os.path.join(data, "filler"), "ab", buffering=0) as f:
                try:
                    while True:
                        f.write(bytes(4096))
                except OSError:
                    pass
            end()
            d.restart()
            assert d.run("a")[0] == 200 and d.run("a", "kept")[0] == 200
            status, _, text = d.call("GET", "/readyz")
            assert status == 200 and b"disk is full" in text and "ev=server.disk" in d.logs(), (
                status, text)
            status, r = d.by("a", "POST", "/v1/executables",
                             b"FAKE\nin x f32 N,4\nout y f32 N,4\n" + bytes(100000))
            assert status == 507, r
        os.remove(os.path.join(data, "filler"))
        assert d.call("GET", "/readyz")[2] == b"ok\n"
        assert d.by("a", "POST", "/v1/models", {"name": "more", "model": d.model})[0] == 200
        d.stop_keep()
    finally:
        d.kill()
        subprocess.run(["umount", "-l", data])
    os.rmdir(data)
    os.rename(copy, data)
    d.restart()
killed_on_a_full_disk.credentials = killed_on_a_full_disk.restarts = True

# ---- HTTP that two readers understand differently

def sent(d, data, seconds=5):
    """What comes back on a connection of its own for these bytes, until it closes or a reply that
    keeps it is whole."""
    s = socket.create_connection(d.addr)
    s.settimeout(seconds)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        for piece in data if isinstance(data, list) else [data]:
            s.sendall(piece)
            time.sleep(.001 if isinstance(data, list) else 0)
    except OSError:
        pass  # refused already
    text = b""
    try:
        while piece := s.recv(65536):
            text += piece
            if b"\r\n\r\n" in text and b"Connection: close" not in text:
                break
    except OSError as e:
        text += repr(e).encode()
    s.close()
    return text

def requests_of_two_minds():
    """(bytes, status): heads and bodies that two readers take differently, or that this one does
    not take."""
    get, host, post = (b"GET /healthz HTTP/1.1\r\n", b"Host: localhost\r\n",
                       b"POST /hlod.v1.Hlod/Version HTTP/1.1\r\nHost: localhost\r\n")
    chunked = post + b"Transfer-Encoding: chunked\r\n\r\n"
    smuggled = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for length in (
        b"Content-Length: 2\r\nContent-Length: 3", b"Content-Length: 2\r\nContent-Length: 2",
        b"Content-Length: 2, 2", b"Content-Length: +2", b"Content-Length: 2 ",
        b"Content-Length: 0x2", b"Content-Length: ", b"Content-Length: -1",
        b"Content-Length: " + b"9" * 30, b"Content-Length : 2", b"Content-Length\0: 2",
        b"Content-Length: 2\0", b"Content-Length:\r\n 2", b"\0Content-Length: 2",
        b"Transfer-Encoding: gzip, chunked",
        b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: identity",
        b"Transfer-Encoding: chunked\r\nContent-Length: 2", b"Transfer-Encoding:\x0bchunked",
        b"Transfer-Encoding: chunked ", b"Transfer-Encoding:\r\n chunked",
        b"Transfer-Encoding\t: chunked", b"X: y\nTransfer-Encoding: chunked",
        b"X: y\rTransfer-Encoding: chunked", b": chunked", b"Expect: wonders\r\nContent-Length: 2"):
        yield post + length + b"\r\n\r\n2\r\n{}\r\n0\r\n\r\n" + smuggled, 400
    for head in (
        get + b"\r\n", get + host + b"Host: evil\r\n\r\n", get + host + b"host: localhost\r\n\r\n",
        b"GET /healthz%00/x HTTP/1.1\r\n" + host + b"\r\n",
        b"GET /v1/models%00 HTTP/1.1\r\n" + host + b"\r\n", get + host + b"X: a\rb\r\n\r\n",
        get + b" X: folded\r\n" + host + b"\r\n", get + host + b"X: a\r\n folded\r\n\r\n",
        get + host + b"X: a\r\n\tfolded\r\n\r\n", b"G\1T /healthz HTTP/1.1\r\n" + host + b"\r\n",
        b"GET /heal thz HTTP/1.1\r\n" + host + b"\r\n", get + host + b"X: \x7f\r\n\r\n",
        get + host + b"X: a\0\r\n\r\n", get + host + b"X: \0a\r\n\r\n",
        get + host + b": empty\r\n\r\n", get + host + b"no colon\r\n\r\n",
        b"GET /healthz HTTP/1.1\n" + host + b"\r\n", get + b"Host: localhost\n\r\n",
        get + host + b"\n", b"GET  /healthz HTTP/1.1\r\n" + host + b"\r\n", b"GET /healthz\r\n\r\n",
        b"GET /healthz http/1.1\r\n" + host + b"\r\n", b"\n\n" + get + host + b"\r\n",
        b"\x16\3\1\2\0\1\0", b"\r\n" * 9 + get):
        yield head + smuggled, 400
    for once in b"Authorization: Bearer a", b"Content-Type: text/plain", b"Origin: http://a":
        yield get + host + once + b"\r\nX: y\r\n" + once + b"\r\n\r\n" + smuggled, 400
    twice = b"Content-Encoding: gzip\r\nContent-Encoding: identity\r\n"
    yield post + twice + b"Content-Length: 2\r\n\r\n{}" + smuggled, 400
    for body in (b"\r\n", b"2 \r\n{}\r\n0\r\n\r\n", b"0x2\r\n{}\r\n0\r\n\r\n", b"2\n{}\n0\n\n",
                 b"2\r\n{}0\r\n\r\n", b"2\r\n{}\n0\r\n\r\n", b"2;a\n{}\r\n0\r\n\r\n",
                 b"2;" + b"a" * 300 + b"\r\n{}\r\n0\r\n\r\n", b"-2\r\n", b"fffffffffffffffff\r\n",
                 b"0\r\n: x\r\n\r\n", b"0\r\nContent-Length: 7\r\n\r\n", b"0\r\n\n"):
        yield chunked + body + smuggled, 400
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505
    yield b"GET /" + b"x" * 40000 + b" HTTP/1.1\r\n" + host + b"\r\n", 414
    yield get + host + b"X: " + b"y" * 40000 + b"\r\n\r\n", 431
    yield get + host + b"X: y\r\n" * 200 + b"\r\n", 431
    for query in b"a=1&" * 1000, b"&" * 30000:
        yield b"GET /v1/models?" + query + b" HTTP/1.1\r\n" + host + b"\r\n", 414
    yield get + host + b"Cookie: " + b"a=b; " * 4000 + b"\r\n\r\n", 431

# As much of each as is taken: the library has room for it.
LARGEST_HEAD = (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nCookie: "
                + b"; ".join(b"%d=%s" % (i, b"v" * 220) for i in range(125)) + b"\r\n"
                + b"".join(b"X%d: y\r\n" % i for i in range(120)) + b"\r\n")

def ambiguous_http(d):
    """Two lengths, no Host or two, folded lines, lines without CR, NULs, spaces and control
    characters where none belong, codings and wishes that are not taken, bad chunks: refused, at
    once, in our words, and nothing behind them is read."""
    before = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for data, status in requests_of_two_minds():
        for way in data, [data[:len(data) // 3], data[len(data) // 3:]], [
            data[i:i + 1] for i in range(len(data))] if len(data) < 120 else data:
            text = sent(d, way)
            head, _, body = text.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d" % status), (data[:300], text)
            assert (json.loads(body)["reason"] == "BAD_FRAMING"
                    and b"Content-Type: application/json" in head
                    and b"evil" not in text), (data[:300], text)
        # behind a request that is right, in one piece: that one is answered first
        text = sent(d, before + data)
        assert text.startswith(b"HTTP/1.1 200") and (
            text.count(b"HTTP/1.1 ") == 1 or b"HTTP/1.1 %d" % status in text), (data[:300], text)
    post, chunked = (b"POST /hlod.v1.Hlod/Version HTTP/1.1\r\nHost: localhost\r\n",
                     b"transfer-encoding: Chunked\r\n\r\n")
    for data in (post + b"Content-Length: 2\r\n\r\n{}", post + chunked + b"2\r\n{}\r\n0\r\n\r\n",
                 post + chunked + b"1;a=b\r\n{\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n",
                 b"GET /healthz HTTP/1.0\r\n\r\n", b"\r\n" + before, before + before):
        assert (b" 200 " in sent(d, data)[:20]
                and b" 200 " in sent(d, [data[i:i + 1] for i in range(len(data))])[:20]), data
    assert b" 200 " in sent(d, LARGEST_HEAD)[:20]

ATTACKS = [handshakes_at_once, handshakes_at_once_grpc, blob_changed_while_sent,
           readers_of_all_places, clients_of_all_places, readers_without_token, readers_of_results,
           handles_flood, calls_of_gone_clients, calls_without_end, calls_with_token,
           frames_without_end, head_without_end, head_without_end_tls, connections_without_end,
           work_made_ahead, texts_made_by_the_compile, calls_of_calls, compiles_of_others,
           shapes_of_others, programs_of_many_parts, others_unseen, others_unnamed,
           others_unnumbered,
           names_flood, names_unseen, answers_as_text, unread_answers, packed_answers,
           frames_of_large_results,
           regions_of_others, killed_on_a_full_disk, endless_work, endless_work_two_workers,
           endless_work_isolated, hungry_compile, planned_memory, ambiguous_http, flipped_weights,
           swapped_executables, announced_and_dripped, slow_share, digests_of_others,
           first_compiled_by_another, names_of_others, wrong_format, json_without_token,
           json_with_token, protobuf_with_token, bombs_at_once, no_memory, grpc_bomb, grpc_large,
           grpc_large_beside]

# ---- one after the other

def bound(attack, d):
    receive = 1 << 30
    for k, v in zip(getattr(attack, "options", []), getattr(attack, "options", [])[1:]):
        if k == "--receive-bytes":
            receive = int(v[:-1]) * {"M": MB, "G": 1 << 30}[v[-1]]
    return d.idle[1] + 256 * MB + (min(receive, SPACE) if getattr(attack, "credentials", False)
                                   else 0)

def alone(d, seconds=2):
    """p99 of an honest client's latencies while nobody else asks"""
    h = Honest(d)
    time.sleep(seconds)
    return h.stop()

def alone_busy(d):
    """The same while each processor is busy with something else, as attackers of this machine keep
    them"""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
             for _ in range(os.cpu_count())]
    try:
        return alone(d, 4)
    finally:
        for p in loops:
            p.kill()
            p.wait()

def one(o, attack):
    """(seconds, peak, p99 alone, p99 alone on a busy machine, p99 meanwhile); fails by an
    exception"""
    d, honest = Target(o, attack), None
    try:
        quiet, busy = (alone(d), alone_busy(d)) if o.table else (0, 0)
        honest, start, p99 = None if getattr(attack, "restarts",
                                             False) else Honest(d), time.monotonic(), 0
        attack(d)
        seconds = time.monotonic() - start
        if honest:
            p99 = honest.stop()
        assert d.p.poll() is None, f"the daemon died: {d.p.returncode}"
        peak = d.memory()[1]
        if honest and not getattr(attack, "harms", False):
            assert not honest.wrong, honest.wrong[:2]
        assert peak < bound(attack, d), f"peak {peak >> 20} MiB, bound {bound(attack, d) >> 20} MiB"
        if (o.table and honest and not getattr(attack, "harms", False)
            and not getattr(attack, "own", False)):
            assert p99 < max(3 * busy, getattr(attack, "p99", 0)), (
                f"p99 {p99 * 1000:.1f} ms, alone {quiet * 1000:.1f} ms, on a busy machine "
                f"{busy * 1000:.1f} ms")
        assert d.run("a")[0] == 200
        assert d.stop_keep() == 0, "the daemon did not end cleanly"
        assert not re.search(r"(Thread|Address|Leak)Sanitizer|runtime error",
                             d.logs()), "a sanitizer complains"
        return seconds, peak, quiet, busy, p99
    except BaseException:
        print(d.logs()[-2000:], file=sys.stderr)
        raise
    finally:
        if honest:
            honest.p.kill()
        if d.p.poll() is None:
            d.kill()
        d.clean()

def main():
    if sys.argv[1:2] == ["--honest"]:
        return honest(*sys.argv[2:])
    a = argparse.ArgumentParser()
    a.add_argument("--hlod", required=True)
    a.add_argument("--worker", required=True)
    a.add_argument("--table", action="store_true")
    a.add_argument("names", nargs="*")
    o, results, rows = a.parse_args(), Results(), []
    # their shadow is larger than any bound
    sanitized = any(s in os.path.abspath(o.hlod) for s in ("address", "thread"))
    for attack in chosen(o, ATTACKS):
        if sanitized and getattr(attack, "unsanitized", False):
            continue
        got = []
        results.case("attack " + attack.__name__, lambda: got.extend(one(o, attack)))
        rows.append((attack, got))
    if o.table:
        print("\n| attack | held | s | peak MiB | honest p99 alone ms | on a busy machine | "
              "meanwhile | |\n|---|---|---|---|---|---|---|---|")
        for attack, got in rows:
            figures = "%.1f | %d | %.1f | %.1f | %.1f" % (
                got[0], got[1] >> 20, *(x * 1000 for x in got[2:])) if got else "| | | |"
            print(f"| `{attack.__name__}` | {'yes' if got else 'NO'} | {figures} | "
                  f"{' '.join(attack.__doc__.split())} |")
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
