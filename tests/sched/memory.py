#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Allocations of the daemon that fail at random under load (tests/sched/failing_malloc.c,
preloaded): large ones, each by itself, and now and then a small one, as where memory is short. A
request whose memory is not to be had fails and says so (RESOURCE_EXHAUSTED or UNAVAILABLE); no
answer is wrong, the daemon lives, and serves all of them afterwards.
Usage: memory.py --build DIR --shim SO [--seconds N] [--seed N]"""
import argparse, base64, collections, hashlib, http.client, json, mmap, os
import random, struct, sys, tempfile, threading, time, traceback
import grpc
import numpy as np
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "grpc"), HERE]
from client import OPTIONS, Api, Hlod
from harness import PATIENCE, Daemon, Results, until
from sim import program

FAILURES = {"RESOURCE_EXHAUSTED", "UNAVAILABLE"}
BIG = 100000
ONE_IN = 6

class Control:
    """The file that the preloaded allocator maps too: struct control."""
    def __init__(self, folder):
        self.path = os.path.join(folder, "control")
        with open(self.path, "wb") as f:
            f.write(bytes(4096))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)

    def set(self, on, seed):
        self.map[:20] = struct.pack("5I", on, 128 << 10, ONE_IN, 500, seed)

    def counts(self):
        """(process, failed large ones, failed small ones)"""
        return struct.unpack("3I", self.map[20:32])

class Client(threading.Thread):
    def __init__(self, world, k):
        super().__init__()
        self.w, self.rng = world, random.Random(world.seed * 1000 + k)
        self.seen, self.trouble, self.must, self.said = collections.Counter(), [], False, None

    def judge(self, what, code, right):
        """One answer: right, or a failure that may be."""
        assert code == "OK" or code in FAILURES and not self.must, f"{what}: {code} {self.said}"
        assert code != "OK" or right(), f"{what}: wrong answer"
        self.seen[f"{what} {code}"] += 1

    def http(self, verb, path, body=None, headers={}):
        """(canonical code, headers, body)"""
        status, head, body = self.w.d.call(verb, path, body,
                                           {"Accept": "application/json", **headers}, timeout=60)
        if status == 200:
            return "OK", head, body
        r = json.loads(body or b"{}")
        self.said = r.get("message")
        return r.get("code", str(status)), head, body

    # What clients do. Each is one request.

    def text(self):
        """Numbers as JSON, both ways."""
        add, x = self.rng.randrange(1, 3), [float(self.rng.randrange(9))] * BIG
        code, _, body = self.http(
            "POST", "/v1/run",
            json.dumps({"model": self.w.adds[add],
                        "inputs": [{"name": "x", "dtype": "f32", "shape": [BIG], "data": x}]}))
        self.judge("text", code,
                   lambda: json.loads(body)["outputs"][0]["data"] == [x[0] + add] * BIG)

    def binary(self):
        add = self.rng.randrange(1, 3)
        raw = base64.b64encode(np.ones(BIG, np.float32).tobytes()).decode()
        code, _, body = self.http(
            "POST", "/v1/run",
            json.dumps({"model": self.w.adds[add],
                        "inputs": [{"name": "x", "dtype": "f32", "shape": [BIG], "raw": raw}]}))
        self.judge("binary", code,
                   lambda: json.loads(body)["outputs"][0]["data"] == [1.0 + add] * BIG)

    def oip(self):
        """A head of JSON with raw numbers behind it."""
        x = np.full(BIG, self.rng.randrange(9), np.float32)
        head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [BIG],
                                       "parameters": {"binary_data_size": 4 * BIG}}],
                           "parameters": {"binary_data_output": True}}).encode()
        code, headers, body = self.http("POST", "/v2/models/m/infer", head + x.tobytes(),
                                        {"Inference-Header-Content-Length": str(len(head))})
        self.judge("oip", code, lambda: np.array_equal(
                       np.frombuffer(body[int(headers["inference-header-content-length"]):],
                                     np.float32), x + 1))

    def rpc(self):
        x, add = np.full(BIG, self.rng.randrange(9), np.float32), self.rng.randrange(1, 3)
        try:
            r = self.w.hlod.RunUnary(model=self.w.adds[add],
                                     inputs=[{"name": "x", "dtype": "f32", "shape": [BIG],
                                              "raw": x.tobytes()}], timeout=60)
            self.judge("rpc", "OK",
                       lambda: np.array_equal(np.frombuffer(r.outputs[0].raw, np.float32), x + add))
        except grpc.RpcError as e:
            self.judge(f"rpc ({e.details()[:60]})", e.code().name, None)

    def infer(self):
        """Numbers as typed contents."""
        x = [float(self.rng.randrange(9))] * BIG
        try:
            r = self.w.infer(
                self.w.infer_request(model_name="m",
                                     inputs=[{"name": "x", "datatype": "FP32", "shape": [BIG],
                                              "contents": {"fp32_contents": x}}]), timeout=60)
            self.judge("infer", "OK",
                       lambda: np.array_equal(np.frombuffer(r.raw_output_contents[0], np.float32),
                                              np.array(x, np.float32) + 1))
        except grpc.RpcError as e:
            self.judge(f"infer ({e.details()[:60]})", e.code().name, None)

    def compile(self):
        """A program of its own, with a comment that makes it long."""
        code, _, body = self.http("POST", "/v1/executables", program(
                                      self.rng.randrange(1, 10**6)) + "// " + "x" * 300000 + "\n",
                                  {"Content-Type": "text/x-hlo"})
        self.judge("compile", code, lambda: len(json.loads(body)["digest"]) == 64)

    def blob(self):
        data = self.rng.randbytes(self.rng.choice([1000, 300000]))
        digest = hashlib.sha256(data).hexdigest()
        code, _, _ = self.http("PUT", "/v1/blobs/" + digest, data)
        self.judge("blob", code, lambda: True)
        if code == "OK":
            code, _, body = self.http("GET", "/v1/blobs/" + digest,
                                      headers={"Accept": "application/octet-stream"})
            self.judge("blob read", code, lambda: body == data)

    def buffer(self):
        x = np.full(BIG, self.rng.randrange(9), np.float32)
        try:
            b = self.w.hlod.PutBuffer(inputs=[{"name": "x", "dtype": "f32", "shape": [BIG],
                                               "raw": x.tobytes()}], lease_ms=60000,
                                      timeout=60).buffers[0]
            r = self.w.hlod.GetBuffer(handle=b.handle, timeout=60)
            self.judge("buffer", "OK", lambda: r.outputs[0].raw == x.tobytes())
            self.w.hlod.FreeBuffer(handle=b.handle, timeout=60)
        except grpc.RpcError as e:
            self.judge(f"buffer ({e.details()[:60]})", e.code().name, None)

    def job(self):
        """A batch job of many cases, each with long names."""
        case = lambda k: {"name": f"{k}-" + "n" * 190,
                          "inputs": [{"name": "x", "dtype": "f32", "shape": [4],
                                      "raw": "AACAPwAAAEAAAEBAAACAQA=="}]}
        code, _, body = self.http("POST", "/v1/jobs",
                                  json.dumps({"models": [{"model": self.w.small}],
                                              "inputs": [case(k) for k in range(300)],
                                              "retry": {"maxAttempts": 1}}))
        self.judge("job", code, lambda: int(json.loads(body)["jobs"]) == 300)
        if code == "OK":
            suite = json.loads(body)["suite"]
            code, _, _ = self.http("GET", f"/v1/jobs/{suite}.1")
            self.judge("job read", code, lambda: True)
            self.http("DELETE", f"/v1/jobs/{suite}")

    def look(self):
        path = self.rng.choice(["/v1/executables", "/v1/models", "/v1/jobs", "/metrics",
                                "/v1/openapi.json", f"/v1/executables/{self.w.exe}/stage/hlo-after",
                                "/v1/runs"])
        code, _, _ = self.http("GET", path)
        self.judge("look", code, lambda: True)

    def acts(self):
        return [self.text, self.binary, self.oip, self.rpc, self.rpc, self.infer, self.compile,
                self.blob, self.buffer, self.look, self.look, self.job]

    def run(self):
        while not self.w.stop.is_set() and self.w.d.p.poll() is None:
            self.one(self.rng.choice(self.acts()))

    def one(self, act):
        try:
            act()
        except (OSError, http.client.HTTPException) as e:
            self.seen[f"{act.__name__} connection broke"] += 1
            if self.must:
                self.trouble.append(f"{act.__name__}: {e!r}")
        except Exception:
            self.trouble.append(f"{act.__name__}: {traceback.format_exc()[-600:]}")

class World:
    def __init__(self, d, seed, build, channel):
        self.d, self.seed, self.stop = d, seed, threading.Event()
        api = Api(build)
        self.hlod = Hlod(api, channel)
        self.infer, self.infer_request = api.method(channel,
                                                    "/inference.GRPCInferenceService/ModelInfer")
        put = lambda text: d.json("POST", "/v1/executables", text,
                                  {"Content-Type": "text/x-hlo"})[1]
        self.adds = {k: put(program(k, BIG))["sourceDigest"] for k in (1, 2)}
        small = put(program(1))
        self.small, self.exe = small["sourceDigest"], small["executable"]["digest"]
        assert d.json("POST", "/v1/models", {"name": "m", "model": self.adds[1]})[0] == 200

def load(w, seconds, control):
    control.set(1, w.seed)
    clients = [Client(w, k) for k in range(6)]
    for c in clients:
        c.start()
    end = time.monotonic() + seconds
    well = lambda: sum(n for c in clients for k, n in list(c.seen.items()) if k.endswith("OK"))
    def enough():
        return time.monotonic() > end and (min(control.counts()[1:]) > 10 and well() > 20
                                           or time.monotonic() > end + PATIENCE)
    while not enough() and w.d.p.poll() is None:
        time.sleep(0.1)
    w.stop.set()
    for c in clients:
        c.join()
    control.set(0, w.seed)
    seen = sum((c.seen for c in clients), collections.Counter())
    print(", ".join(f"{n} {k}" for k, n in sorted(seen.items())), flush=True)
    assert w.d.p.poll() is None, f"the daemon died: {w.d.p.returncode}"
    trouble = [t for c in clients for t in c.trouble]
    assert not trouble, "\n".join(trouble[:10])
    assert sum(n for k, n in seen.items() if k.endswith("OK")) > 20, seen

def serves(w):
    """Each act once more, in peace."""
    until("it serves", 10, lambda: w.d.call("GET", "/readyz")[0] == 200)
    c = Client(w, 99)
    c.must = True
    for act in c.acts():
        c.one(act)
    assert not c.trouble, "\n".join(c.trouble)

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--shim", required=True)
    a.add_argument("--seconds", type=float, default=20)
    a.add_argument("--seed", type=int, default=random.randrange(2**31))
    o, results = a.parse_args(), Results()
    print("seed", o.seed, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        control = Control(folder)
        d = Daemon(o.build + "/hlod", o.build + "/hlod-worker",
                   env={**os.environ, "LD_PRELOAD": os.path.abspath(o.shim),
                        "FAILING_MALLOC": control.path})
        with grpc.insecure_channel(d.grpc, OPTIONS) as channel:
            def scenario(d):
                w = World(d, o.seed, o.build, channel)
                assert control.counts()[0] == d.p.pid, (
                    "the daemon's allocations are not the preloaded ones")
                load(w, o.seconds, control)
                serves(w)
                print("failed: %d large, %d small" % control.counts()[1:], flush=True)
                assert min(control.counts()[1:]) > 10, control.counts()
            results.scenario("allocations that fail", d, scenario)
    return results.code()

sys.exit(main())
