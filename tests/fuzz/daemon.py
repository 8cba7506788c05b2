#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the daemon hears from outside, made at random with structure, by seed: http (requests from
openapi.json with values, headers and bodies that do not fit, cut or broken off anywhere), grpc
(random messages of every method, random bytes, HTTP/2 frames behind a valid preface), worker
(replies and frames of a worker gone wrong: fake_worker with FAKE_WORKER_SEED). The daemon must
answer what is whole, never with INTERNAL or UNKNOWN, serve afterwards, hold no more descriptors
than before, and end in good order; under a sanitizer it must also have nothing to say. Usage:
daemon.py --build DIR [--seconds N] [--seed K] [http|grpc|worker ...]"""
import argparse, base64, gzip, json, os, random, socket, struct, sys, time, traceback
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "grpc")]
import grpc
from google.protobuf.descriptor import FieldDescriptor as F
from client import Api
from harness import Daemon, until

MODEL = b"HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}\n"
FAKE = "FAKE\nin x f32 N,4\nout y f32 N,4\nweight 8\n"
LEAST = 25 # answers of each kind of hostile peer, however long they take
INTS = [0, 1, 2, 3, 7, -1, 63, 64, 65, 255, 256, 4096, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32,
        2**53, 2**62, 2**63 - 1, -2**31, -2**63]
TEXTS = ["", "x", "m", "f32", "FP32", "BYTES", "string", "1", "-1", "18446744073709551616", "..",
         "../../etc/passwd", "/", "%00", "%", "%zz", "a b", "é\u2028\U0001f600", "\x00", "\n", "{",
         "null", "0" * 64, "f" * 64, "A" * 300, "n" * 5000]

class Random(random.Random):
    def __init__(self, seed, known):
        super().__init__(seed)
        self.known = known  # digests and names that stand for something

    def text(self):
        return self.choice(self.known if self.random() < .5 else TEXTS)
    def junk(self, most=400):
        return self.randbytes(self.randrange(most))
    def value(self, depth=0):
        """a JSON value"""
        k = self.randrange(9 if depth < 4 else 6)
        return [self.text, lambda: self.choice(INTS),
                lambda: self.choice([1.5, -0.0, 1e308, 1e-320]), lambda: None,
                lambda: self.random() < .5, lambda: [],
                lambda: [self.value(depth + 1) for _ in range(self.randrange(4))],
                lambda: {self.text(): self.value(depth + 1) for _ in range(self.randrange(4))},
                lambda: [self.choice(INTS)] * self.randrange(1000)][k]()
    def bent(self, v, depth=0):
        """the same with some of it replaced, left out, or twice"""
        if self.random() < .06:
            return self.value(depth)
        if isinstance(v, dict):
            return {k: self.bent(x, depth + 1) for k, x in v.items() if self.random() > .05}
        if isinstance(v, list):
            return [self.bent(x, depth + 1) for x in v
                    for _ in range(self.choice([1] * 18 + [0, 2]))]
        return v
    def cut(self, b):
        """sometimes shorter, longer, or with other bytes"""
        k = self.randrange(8)
        if k == 0:
            return b[:self.randrange(len(b) + 1)]
        if k == 1:
            return b + self.junk()
        if k == 2 and b:
            b = bytearray(b)
            for _ in range(self.randrange(1, 6)):
                b[self.randrange(len(b))] = self.randrange(256)
            return bytes(b)
        return b

def on(end, counts):
    """Until `end`, and then until LEAST answers came: a slow host gives few of them a second."""
    return time.monotonic() < end or sum(counts.values()) < LEAST

def descriptors(d):
    return len(os.listdir(f"/proc/{d.p.pid}/fd"))

def settled(d, before):
    """All connections gone, those that ended within a request's head after --idle (the library
    reads on only when more comes): no descriptor more than before but for pooled tensor memory."""
    try:
        until("descriptors as before", 10, lambda: descriptors(d) <= before + 12)
    except AssertionError:
        raise AssertionError("descriptors: %d before" % before
                             + "".join(sorted("\n" + os.readlink(f"/proc/{d.p.pid}/fd/{f}")
                                              for f in os.listdir(f"/proc/{d.p.pid}/fd"))))

def bodies(digest, handle):
    x = {"name": "x", "dtype": "f32", "shape": [2], "data": [1, 2]}
    return [{"model": "m", "inputs": [x]},
            {"model": digest, "inputs": [x], "options": {"profile": True, "repeat": 3}},
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}],
             "parameters": {"binary_data_output": True}},
            {"model": "m", "inputs": [{"name": "x", "handle": handle}], "keep": ["y"]},
            {"name": "m", "model": digest, "batching": {"maxRows": 4, "delayUs": 10}},
            {"inputs": [x, x], "tuple": True, "leaseMs": "1000"}, {"elements": [handle, handle]},
            {"steps": [{"name": "a", "model": "m", "inputs": [{"input": "x"}]},
                       {"name": "b", "model": "m", "inputs": [{"step": "a"}]}], "inputs": [x],
             "outputs": [{"step": "b"}]},
            {"name": "s", "models": [{"name": "m", "model": digest}], "targets": [{"name": "cpu"}],
             "inputs": [{"name": "c", "inputs": [{"name": "x", "dtype": "f32", "shape": [2],
                                                  "raw": "AACAPwAAAEA="}]}]}, {"leaseMs": "1000"},
            {"maxBytes": "1", "olderThanMs": "1"}, {}]

# ---- HTTP

def request_of(r, api, samples):
    """(bytes of a request, whether they are whole)"""
    path, verbs = r.choice(list(api["paths"].items()))
    verb = (r.choice([v.upper() for v in verbs]) if r.random() < .85
            else r.choice(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"]))
    out = "/".join(p if not p.startswith("{") else r.text().replace(" ", "%20")
                   for p in path.split("/"))
    if r.random() < .1:
        out = r.choice(["", "/"]) + out + r.choice(["/", "//", "?", "#", "/.."])
    known = [p["name"] for op in verbs.values() for p in op["parameters"]
             if p["in"] == "query"] + ["stream", "shape", "format", "options"]
    if r.random() < .5:
        out += "?" + "&".join(r.choice(known) + r.choice(["=", "=", "", "=="])
                              + r.choice([r.text(), str(r.choice(INTS)), "x=1x2", "true"])
                              for _ in range(r.randrange(1, 4)))
    out = "".join(c for c in out if c > " " and c != "\x7f") or "/"
    head = {"Host": "h" if r.random() < .02 else "localhost",
            "Connection": r.choice(["close", "keep-alive"])}
    body, whole = b"", True
    if verb in ("POST", "PUT", "PATCH") or r.random() < .1:
        kind = r.choice(["application/json"] * 5
                        + ["application/octet-stream", "application/onnx", "application/x-protobuf",
                           "text/plain", "", "application/json; charset=latin-1"])
        head["Content-Type"] = kind
        body = r.choice([lambda: r.cut(json.dumps(r.bent(r.choice(samples))).encode()),
                         lambda: r.cut(json.dumps(r.bent(r.choice(samples))).encode()),
                         lambda: json.dumps(r.value()).encode(), lambda: r.cut(MODEL), r.junk])()
        if r.random() < .2: # JSON, then raw bytes
            head["Inference-Header-Content-Length"] = str(
                r.choice([len(body), len(body), len(body) - 1, 0, 1] + INTS))
            body += r.junk(64)
        if r.random() < .15:
            head["Content-Encoding"] = r.choice(["gzip", "deflate", "zstd", "identity",
                                                 "gzip, gzip"])
            if r.random() < .7:
                body = r.cut(gzip.compress(body * r.choice([1, 1, 2000])))
    if r.random() < .6:
        head["Accept"] = r.choice(["application/json", "application/x-ndjson",
                                   "application/octet-stream", "application/x-protobuf",
                                   "application/x-protobuf-stream", "text/event-stream", "*/*",
                                   "image/png", ";;", "a/b;q=9"])
    for name in ("traceparent", "X-Hlod-Timeout-Ms", "Accept-Encoding", "Authorization", "Expect",
                 "Range", "X-" + "y" * r.randrange(50)):
        if r.random() < .06:
            head[name] = r.choice(["00-" + "a" * 32 + "-" + "b" * 16 + "-01", "gzip", "Bearer x",
                                   "100-continue", "1", "-1", "bytes=0-", "z" * r.randrange(2000)])
    if r.random() < .2:
        head["Transfer-Encoding"] = "chunked"
        chunks, at = b"", 0
        while at < len(body):
            n = r.randrange(1, len(body) - at + 1)
            chunks += b"%x\r\n" % n + body[at:at + n] + b"\r\n"
            at += n
        whole = r.random() < .9
        body = chunks + (b"0\r\n\r\n" if whole else r.junk(20))
    elif body or r.random() < .5:
        head["Content-Length"] = str(len(body))
    text = f"{verb} {out} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n"
    return text.encode() + body, whole

def answer(s, patience):
    """Status of the first answer, or None. Reads what comes within patience."""
    got, end = b"", time.monotonic() + patience
    while b"\r\n" not in got and time.monotonic() < end:
        s.settimeout(max(end - time.monotonic(), .01))
        try:
            part = s.recv(65536)
        except OSError:
            return None
        if not part:
            break
        got += part
        if got.startswith(b"HTTP/1.1 100") and b"\r\n\r\n" in got:
            got = got.split(b"\r\n\r\n", 1)[1]
    return int(got.split()[1]) if got.startswith(b"HTTP/1.1 ") else None

def http(o):
    d = Daemon(o.build + "/hlod", o.build + "/hlod-worker",
               args=("--device", "sim", "--allow-model-load", "--allow-shared-memory", "--idle-s",
                     "2"))
    status, made = d.json("POST", "/v1/executables", MODEL)
    assert status == 200, made
    assert d.json("POST", "/v1/models", {"name": "m", "model": made["sourceDigest"]})[0] == 200
    status, put = d.json("POST", "/v1/buffers",
                         {"inputs": [{"name": "x", "dtype": "f32", "shape": [2], "data": [1, 2]}]})
    assert status == 200, put
    handle = put["buffers"][0]["handle"]
    api = d.json("GET", "/v1/openapi.json")[1]
    r = Random(o.seed, ["m", made["sourceDigest"], made["digest"], handle, "x", "1"])
    samples, before, counts, end = bodies(made["sourceDigest"],
                                          handle), descriptors(d), {}, time.monotonic() + o.seconds
    while on(end, counts):
        q, whole = request_of(r, api, samples)
        s = socket.create_connection(d.addr)
        left = not whole or r.random() < .3 # goes away in the middle
        try:
            s.sendall(q[:r.randrange(len(q))] if left else q)
            if left and r.random() < .5: # at once, by a reset
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif left:
                s.shutdown(socket.SHUT_WR)
            code = answer(s, .05 if left else 20)
        except OSError:
            code = None
        finally:
            s.close()
        assert d.p.poll() is None, ("the daemon died", d.p.returncode, q[:3000])
        what = "left" if left else code or "closed"
        counts[what] = counts.get(what, 0) + 1
        assert left or code is None or code < 500 or code in (501, 503, 504), (code, q[:3000])
    d.json("POST", "/v1/models",
           {"name": "m", "model": d.json("POST", "/v1/executables", MODEL)[1]["sourceDigest"]})
    status, reply = d.json(
        "POST", "/v1/run",
        {"model": "m", "inputs": [{"name": "x", "dtype": "f32", "shape": [2], "data": [1, 2]}]})
    assert status == 200 and reply["outputs"][0]["data"] == [2, 4], (status, reply)
    settled(d, before)
    return d, counts

# ---- gRPC

def message(r, api, name, depth=0):
    m = api.type(name)()
    for f in m.DESCRIPTOR.fields:
        if r.random() < .35:
            continue
        many = f.is_repeated
        for _ in range(r.choice([1, 1, 2, 5]) if many else 1):
            if f.message_type and f.message_type.GetOptions().map_entry:
                continue # parameters: values of their own below
            if f.message_type:
                if depth < 5:
                    sub = message(r, api, f.message_type.full_name, depth + 1)
                    getattr(m, f.name).append(sub) if many else getattr(m, f.name).CopyFrom(sub)
                continue
            v = {F.CPPTYPE_STRING: lambda: r.junk(100) if f.type == F.TYPE_BYTES else r.text(),
                 F.CPPTYPE_BOOL: lambda: r.random() < .5,
                 F.CPPTYPE_ENUM: lambda: r.choice([0, 1, 2, 99]),
                 F.CPPTYPE_DOUBLE: lambda: r.choice([0.0, -1.0, 1e308, float("nan")]),
                 F.CPPTYPE_FLOAT: lambda: r.choice([0.0, -1.0, float("inf")])}.get(f.cpp_type)
            if not v:
                bits, signed = (64 if f.cpp_type in (F.CPPTYPE_INT64, F.CPPTYPE_UINT64)
                                else 32), f.cpp_type in (F.CPPTYPE_INT64, F.CPPTYPE_INT32)
                n = r.choice(INTS) % 2**bits
                v = lambda: n - 2**bits if signed and n >= 2**(bits - 1) else n
            getattr(m, f.name).append(v()) if many else setattr(m, f.name, v())
    return m

def frames(r):
    """HTTP/2 behind a valid preface"""
    out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    for _ in range(r.randrange(1, 12)):
        body = r.junk(60)
        n = len(body) if r.random() < .9 else r.choice([0, 1, 16384, 16385, 2**24 - 1])
        out += n.to_bytes(3, "big") + bytes([r.choice(list(range(10)) + [255]),
                                             r.choice([0, 1, 4, 5, 8, 32, 255])]) + (
            r.choice([0, 1, 1, 3, 5, 2, 2**31 - 1])
            | r.choice([0, 0, 2**31])).to_bytes(4, "big") + body
    return out

def grpc_(o):
    d = Daemon(o.build + "/hlod", o.build + "/hlod-worker",
               args=("--device", "sim", "--allow-model-load", "--idle-s", "2"))
    api = Api(o.build)
    made = d.json("POST", "/v1/executables", MODEL)[1]
    d.json("POST", "/v1/models", {"name": "m", "model": made["sourceDigest"]})
    r = Random(o.seed, ["m", "x", "f32", "FP32", made["sourceDigest"], made["digest"], "1"])
    host, port = d.grpc.rsplit(":", 1)
    before, counts, end = descriptors(d), {}, time.monotonic() + o.seconds
    channel = grpc.insecure_channel(d.grpc,
                                    options=[("grpc.max_reconnect_backoff_ms", 100),
                                             ("grpc.initial_reconnect_backoff_ms", 50)])
    paths = [p for p in api.streams if "Watch" not in p]
    while on(end, counts):
        if r.random() < .15:
            with socket.create_connection((host, int(port))) as s:
                s.sendall(frames(r))
                s.settimeout(.02)
                try:
                    s.recv(4096)
                except OSError:
                    pass
            code = "frames"
        else:
            path = r.choice(paths)
            up, down, q, _ = api.streams[path]
            whole = message(r, api, q).SerializeToString()
            q_bytes = whole if r.random() < .7 else r.cut(whole) if r.random() < .7 else r.junk()
            fn = getattr(channel, ("stream" if up else "unary") + "_"
                                  + ("stream" if down else "unary"))(path)
            try:
                got = fn(iter([q_bytes] * r.randrange(3)) if up else q_bytes, timeout=10)
                if down:
                    for k, _ in enumerate(got):
                        if k > r.randrange(20):
                            got.cancel()
                code = "OK"
            except grpc.RpcError as e:
                code = e.code().name
                assert code not in ("INTERNAL", "UNKNOWN") and (
                    code != "DEADLINE_EXCEEDED"
                    or "the deadline of" in e.details()), (path, code, e.details(), q_bytes[:2000])
        assert d.p.poll() is None, ("the daemon died", d.p.returncode)
        counts[code] = counts.get(code, 0) + 1
    channel.close()
    status, reply = d.json("POST", "/v1/run",
                           {"model": d.json("POST", "/v1/executables", MODEL)[1]["sourceDigest"],
                            "inputs": [{"name": "x", "dtype": "f32", "shape": [2],
                                        "data": [1, 2]}]})
    assert status == 200 and reply["outputs"][0]["data"] == [2, 4], (status, reply)
    settled(d, before)
    return d, counts

# ---- workers

def worker(o):
    """Some of what it says is good: how else would it be asked for more. Whatever comes, the daemon
    answers, in time or with the deadline's code."""
    d = Daemon(o.build + "/hlod", o.build + "/tests/fake_worker",
               args=("--compile-workers", "2", "--timeout-ms", "1000"),
               env={**os.environ, "FAKE_WORKER_SEED": str(o.seed)}, ready=False)
    r, counts, end, n, before = Random(o.seed,
                                       []), {}, time.monotonic() + o.seconds, 0, descriptors(d)
    x = [{"name": "x", "dtype": "f32", "shape": [1, 4], "data": [1, 2, 3, 4]}]
    source, trainings = "", []
    while on(end, counts):
        n += 1
        if n % 5 == 0 and source:
            row = {"dtype": "f32", "shape": [1, 4], "raw": base64.b64encode(bytes(16)).decode()}
            status, sent = d.json("POST", "/v1/train", {
                "model": source, "data": [{"name": "x", **row}, {"name": "label", **row}],
                "train": {"loss": "mse", "steps": 3, "checkpoint_steps": 1},
                "retry": {"max_attempts": 2, "backoff_ms": 1}})
            if n % 3:
                trainings.append(sent.get("suite"))
            if len(trainings) > 3:
                d.call("DELETE", "/v1/jobs/%s" % trainings.pop(0))
        elif n % 5 == 1 or not source:
            status, reply = d.json("POST", "/v1/executables?shape=x%3D1x4&timeout_ms=300",
                                   FAKE + f"# {n}\n")
            source = reply.get("sourceDigest") or source
        elif n % 5 == 2:
            status, _, _ = d.call("GET", "/v1/devices")
        elif n % 5 == 3:
            status, put = d.json("POST", "/v1/buffers", {"inputs": x})
            for b in put.get("buffers", []):
                d.call("GET", "/v1/buffers/" + b["handle"], timeout=60)
                d.call("DELETE", "/v1/buffers/" + b["handle"], timeout=60)
        else:
            status, _ = d.json("POST", "/v1/run",
                               {"model": source, "inputs": x,
                                "options": {"timeoutMs": 300, "profile": n % 2 == 0}})
        assert d.p.poll() is None, ("the daemon died", d.p.returncode)
        counts[status] = counts.get(status, 0) + 1
    assert d.call("GET", "/healthz")[0] == 200
    settled(d, before + 40) # blobs and memory of results that stay
    return d, counts

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--seconds", type=float, default=5)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("which", nargs="*")
    o = a.parse_args()
    bad = 0
    for name, fn in (("http", http), ("grpc", grpc_), ("worker", worker)):
        if o.which and name not in o.which:
            continue
        try:
            d, counts = fn(o)
            code = d.stop_keep()
            found = [l for l in d.logs().split("\n") if "Sanitizer" in l or "runtime error" in l]
            assert code == 0 and not found, (code, found[:3])
            print(f"PASS hostile {name}, seed {o.seed}: " + ", ".join(
                      f"{n} {k}" for k, n in sorted(counts.items(), key=str)), flush=True)
            d.clean()
        except Exception as e:
            bad += 1
            print(f"FAIL hostile {name}, seed {o.seed}: {str(e)[:4000]}\n"
                  f"{traceback.format_exc()[-2000:]}", flush=True)
    return 1 if bad else 0

sys.exit(main())
