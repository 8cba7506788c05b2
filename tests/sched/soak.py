#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Soak: many clients over HTTP and gRPC, mixed models (joined in batches, large, slow, streamed),
random cancels, disconnects, deadlines and half-sent bodies, batch jobs, trainings, and a worker
killed every few seconds. Every answer is checked; every failure must be UNAVAILABLE, CANCELLED or
DEADLINE_EXCEEDED; at the end nothing may be left: no job, memory or place held, descriptor,
process. Needs numpy, onnx, grpcio.
Usage: soak.py --build DIR [--seconds N] [--clients N] [--kill-every S] [--seed N] [--relief-ms
N]"""
import argparse, collections, http.client, json, os, random, re
import signal, socket, struct, sys, threading, time
import grpc
import numpy as np
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "grpc"),
                os.path.join(HERE, "..", "models"), HERE]
import digits
from client import Api, Hlod
from harness import PATIENCE, Daemon, devices, metric, until
from batching import DENSE, dense, rows, run as run_arrays
from jobs import floats
from sim import program

FAILURES = {"UNAVAILABLE", "CANCELLED", "DEADLINE_EXCEEDED"}
BIG = 100000  # 400 KB each way: through memory of its own

class Client(threading.Thread):
    def __init__(self, world, k):
        super().__init__()
        self.w, self.rng = world, random.Random(world.seed * 1000 + k)
        self.np = np.random.default_rng(world.seed * 1000 + k)
        self.seen, self.trouble = collections.Counter(), []

    def note(self, what, outcome):
        self.seen[f"{what} {outcome}"] += 1

    def judge(self, what, status, r, right):
        """One answer: right, or a failure that may be."""
        if status == 200:
            assert right(), f"{what}: wrong answer"
            self.note(what, "OK")
            return
        code = r.get("code") or {503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED",
                                 499: "CANCELLED"}.get(status, str(status))
        assert code in FAILURES, f"{what}: {status} {r}"
        self.note(what, code)

    # What clients do. Each is one request.

    def small(self, **options):
        add = self.rng.randrange(1, 5)
        status, r = self.w.d.json("POST", "/v1/run",
                                  {"model": self.w.adds[add],
                                   "inputs": [{"name": "x", "dtype": "f32", "shape": [4],
                                               "data": [0, 1, 2, 3]}], "options": options},
                                  {"Hlod-Tenant": self.rng.choice("abc"),
                                   "Hlod-Priority": str(self.rng.randrange(-3, 4))})
        self.judge("small", status, r,
                   lambda: r["outputs"][0]["data"] == [add, add + 1, add + 2, add + 3])

    def slow(self):
        self.small(device=self.rng.choice(["sim", "sim:0", "sim:1"]))

    def deadline(self):
        self.small(device="sim", timeout_ms=self.rng.randrange(1, 25))

    def large(self):
        x = self.np.standard_normal(BIG).astype(np.float32)
        status, r, out = run_arrays(self.w.d, x, self.w.big)
        self.judge("large", status, r, lambda: np.array_equal(out[0], x + np.float32(1)))

    def batched(self):
        x = rows(self.np, self.rng.randrange(1, 5))
        status, r, out = run_arrays(self.w.d, x, "m",
                                    **({"options": {"timeout_ms": self.rng.randrange(1, 30)}}
                                       if self.rng.random() < 0.3 else {}))
        self.judge("batched", status, r,
                   lambda: all(np.allclose(a, b, rtol=1e-4, atol=1e-5)
                               for a, b in zip(out, dense(x))))

    def oip(self):
        x = rows(self.np, self.rng.randrange(1, 4))
        status, r = self.w.d.json("POST", "/v2/models/m/infer",
                                  {"inputs": [{"name": "x", "datatype": "FP32",
                                               "shape": list(x.shape), "data": x.ravel().tolist()}],
                                   "parameters": {"timeout": self.rng.randrange(5000, 2000000),
                                                  "priority": self.rng.randrange(3)}})
        self.judge("oip", status, r,
                   lambda: np.allclose(np.array(r["outputs"][0]["data"]).reshape(-1, 3),
                                       dense(x)[0], rtol=1e-4, atol=1e-5))

    def compile(self):
        status, r = self.w.d.json("POST", "/v1/executables",
                                  program(self.rng.randrange(1, 40), self.rng.randrange(4, 9)),
                                  {"Content-Type": "text/x-hlo"})
        self.judge("compile", status, r, lambda: len(r["digest"]) == 64)

    def leave(self):
        """Sends a request, whole or in part, and goes."""
        body = json.dumps({"model": self.rng.choice([self.w.adds[1], "m"]),
                           "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                       "data": [0] * 4}], "options": {}}).encode()
        text = (
            b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n"
            % (self.rng.choice([b"application/json", b"application/x-ndjson"]), len(body))
            + body)
        with socket.create_connection(self.w.d.addr) as s:
            s.sendall(text[:self.rng.choice([len(text), self.rng.randrange(len(text))])])
            time.sleep(self.rng.random() * 0.01)
            if self.rng.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.note("leave", "OK")

    def stream(self):
        """A stream of events: read to its end, or left in the middle."""
        c = http.client.HTTPConnection(*self.w.d.addr, timeout=60)
        try:
            c.request("POST", "/v1/run",
                      json.dumps({"model": self.w.adds[2],
                                  "inputs": [{"name": "x", "dtype": "f32", "shape": [4],
                                              "data": [0] * 4}]}),
                      {"Accept": "application/x-ndjson"})
            r = c.getresponse()
            if self.rng.random() < 0.5:
                r.read(20)
                self.note("stream", "left")
                return
            lines = [json.loads(l) for l in r.read().split(b"\n") if l.strip()]
            assert "done" in lines[-1], lines
            code, results = lines[-1]["done"]["code"], [l["result"] for l in lines if "result" in l]
            self.judge("stream", 200 if code == "OK" else 503, {"code": code},
                       lambda: results[0]["outputs"][0]["data"] == [2] * 4)
        finally:
            c.close()

    def rpc(self):
        """Over gRPC: with a deadline, cancelled, or neither."""
        how, add = self.rng.randrange(3), self.rng.randrange(1, 5)
        x = np.arange(4, dtype=np.float32)
        call = self.w.hlod.RunUnary
        message = call.request(model=self.w.adds[add],
                               inputs=[{"name": "x", "dtype": "f32", "shape": [4],
                                        "raw": x.tobytes()}])
        future = call.raw.future(message, timeout=self.rng.random() * 0.02 if how == 0 else 60)
        try:
            if how == 1:
                time.sleep(self.rng.random() * 0.005)
                future.cancel()
            r = future.result()
            assert np.array_equal(np.frombuffer(r.outputs[0].raw, np.float32),
                                  x + add), "rpc: wrong answer"
            self.note("rpc", "OK")
        except grpc.FutureCancelledError:
            self.note("rpc", "CANCELLED")
        except grpc.RpcError as e:
            assert e.code().name in FAILURES, f"rpc: {e.code()} {e.details()}"
            self.note("rpc", e.code().name)

    def run(self):
        acts = ([self.small] * 4 + [self.slow] * 3 + [self.batched] * 5 + [self.oip] * 2
                + [self.deadline] * 2 + [self.rpc] * 4
                + [self.large, self.leave, self.stream, self.compile])
        while not self.w.stop.is_set():
            act = self.rng.choice(acts)
            try:
                act()
            except (ConnectionError, http.client.HTTPException) as e:
                # a failure has an answer
                self.trouble.append(f"{act.__name__}: the connection broke: {e!r}")
            except Exception as e:
                self.trouble.append(f"{act.__name__}: {e!r}")

class World:
    def __init__(self, d, seed, build):
        self.d, self.seed, self.stop, self.digits = d, seed, threading.Event(), None
        self.adds = {k: self.put(program(k)) for k in range(1, 5)}
        self.big = self.put(program(1, BIG))
        status, r = d.json("POST", "/v1/executables?shape=x=1x4", DENSE)
        assert status == 200, r
        self.dense = r["sourceDigest"]
        status, r = d.json("POST", "/v1/models",
                           {"name": "m", "model": self.dense,
                            "batching": {"max": 16, "delayUs": 2000}})
        assert status == 200, r
        self.channel = grpc.insecure_channel(d.grpc)
        self.hlod = Hlod(Api(build), self.channel)

    def put(self, text):
        status, r = self.d.json("POST", "/v1/executables", text, {"Content-Type": "text/x-hlo"})
        assert status == 200, r
        return r["sourceDigest"]

    def submit(self, k):
        """A batch job that must pass in the end, whatever dies meanwhile."""
        x = [k, k + 1, k + 2, k + 3]
        blobs = [self.d.json("PUT", "/v1/blobs", floats(*v))[1]["digest"]
                 for v in (x, [a + 1 for a in x])]
        tensor = lambda n, b: {"name": n, "dtype": "f32", "shape": [4], "blob": b}
        status, r = self.d.json("POST", "/v1/jobs",
                                {"models": [{"model": self.adds[1]}],
                                 "inputs": [{"name": "a", "inputs": [tensor("x", blobs[0])],
                                             "expect": [tensor("", blobs[1])]}],
                                 "retry": {"maxAttempts": 20}})
        assert status == 200, r
        return r["suite"]

    def blob(self, data):
        status, r = self.d.json("PUT", "/v1/blobs", data)
        assert status == 200, r
        return r["digest"]

    def train(self):
        """A training that must end with the same weights, whatever dies meanwhile."""
        if not self.digits:
            digits.write(self.d.dir)
            self.digits = {"model": self.blob(self.file("digits.onnx")), "data": [
                {"name": n, "dtype": t, "shape": list(x.shape), "blob": self.blob(x.tobytes())}
                for n, t, x in ((n, t, np.ascontiguousarray(np.load(
                    os.path.join(self.d.dir, n + ".npy"))))
                                for n, t in (("image", "f32"), ("label", "s64")))]}
        status, r = self.d.json("POST", "/v1/train", {
            **self.digits, "train": {"loss": "softmax-cross-entropy", "optimizer": "adam",
                                     "batch": 64, "steps": 300, "seed": 3, "checkpoint_steps": 20},
            "retry": {"max_attempts": 100, "backoff_ms": 50}})
        assert status == 200, r
        return r["suite"]

    def file(self, name):
        with open(os.path.join(self.d.dir, name), "rb") as f:
            return f.read()

def ended(d, suite):
    """All of its jobs have passed; none came to another end."""
    jobs = d.json("GET", f"/v1/jobs?suite={suite}")[1]["jobs"]
    bad = [j for j in jobs if j["state"] not in ("queued", "waiting", "running", "passed")]
    assert not bad, bad
    return all(j["state"] == "passed" for j in jobs)

def pids(d):
    """The present process of each worker, from the log."""
    return {int(w): int(p)
            for w, p in re.findall(r"ev=worker\.ready worker=(\d+) role=\w+ pid=(\d+)", d.logs())}

def descriptors(d):
    """Names of what the daemon holds open; memory it keeps for tensors apart, with its bytes."""
    names, kept = collections.Counter(), 0
    for fd in os.listdir(f"/proc/{d.p.pid}/fd"):
        try:
            name = os.readlink(f"/proc/{d.p.pid}/fd/{fd}")
            if "hlod-tensors" in name:
                kept += os.stat(f"/proc/{d.p.pid}/fd/{fd}").st_size
            else:
                names[re.sub(r"\d+", "N", name)] += 1
        except FileNotFoundError:
            pass
    return names, kept

def of_processes(n):
    """What the daemon holds open for so many processes more than before: a relief that long waits
    have called stays for minutes (docs/decisions/0021)."""
    return collections.Counter({"pipe:[N]": max(n, 0), "socket:[N]": max(n, 0)})

def children(d):
    return [int(p) for t in os.listdir(f"/proc/{d.p.pid}/task")
            for p in open(f"/proc/{d.p.pid}/task/{t}/children").read().split()]

def rss_mb(d):
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{d.p.pid}/status").read()).group(1)) / 1024

def quiet(d):
    return (metric(d, "hlod_jobs_active") == 0 and metric(d, "hlod_jobs_queued") == 0
            and all(x["state"] == "ready" for x in devices(d)))

def nothing_is_left(d, before, processes, keep_bytes):
    until("no job is left", 30, lambda: quiet(d))
    held = [x for x in devices(d) if x.get("runs") or x.get("plannedBytes") or x.get("flightBytes")]
    assert not held, f"places or memory still held: {held}"
    tenants = [t for t in d.json("GET", "/v1/tenants")[1]["tenants"]
               if t.get("jobs") or t.get("waiting") or t.get("places")]
    assert not tenants, f"tenants still hold: {tenants}"
    assert metric(d, "hlod_receive_bytes") == 0
    # One that sent half of its headers and left may stand until --idle-s.
    until("connections are closed", 30, lambda: metric(d, "hlod_connections") <= 1)
    end = time.monotonic() + PATIENCE
    while True:  # the last sockets close in their own time
        names, kept = descriptors(d)
        more = names - before - of_processes(len(children(d)) - processes)
        if not more or time.monotonic() > end:
            break
        time.sleep(0.2)
    assert not more, f"descriptors left: {more}"
    assert kept <= keep_bytes, f"{kept} bytes of tensor memory kept"
    until("processes", 10, lambda: len(children(d)) == len(set(pids(d))))
    states = [open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[0] for p in children(d)]
    assert "Z" not in states, states

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--seconds", type=float, default=300)
    a.add_argument("--clients", type=int, default=32)
    a.add_argument("--kill-every", type=float, default=10)
    a.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    a.add_argument("--relief-ms", type=int, default=50)
    o = a.parse_args()
    print(f"soak: seed {o.seed}, {o.seconds:g} s, {o.clients} clients", flush=True)
    d = Daemon(o.build + "/hlod", o.build + "/hlod-worker",
               args=("--device", "cpu*2,sim*2:latency_us=3000", "--trust-tenant-header",
                     "--compile-rate=0", f"--relief-ms={o.relief_ms}", "--idle-s=5",
                     "--tenants=a:weight=2,b:places=2"))
    bad, kills, suites, trainings = [], 0, [], []
    try:
        w = World(d, o.seed, o.build)
        warm = Client(w, 999)
        for act in (warm.small, warm.slow, warm.large, warm.batched, warm.oip, warm.rpc,
                    warm.stream, warm.leave, warm.compile):
            act()
        until("quiet", 20, lambda: quiet(d))
        time.sleep(0.5)
        before, processes = descriptors(d)[0], len(children(d))
        small = rss_mb(d)
        clients = [Client(w, k) for k in range(o.clients)]
        for c in clients:
            c.start()
        rng, end = random.Random(o.seed), time.monotonic() + o.seconds
        while (left := end - time.monotonic()) > 0:
            suites.append(w.submit(kills))
            if len(trainings) < 3:
                trainings.append(w.train())
            time.sleep(min(o.kill_every, left))
            pid = rng.choice(sorted(pids(d).values()))
            try:
                os.kill(pid, signal.SIGKILL)
                kills += 1
            except ProcessLookupError:
                pass  # not back yet
        w.stop.set()
        for c in clients:
            c.join()
        bad += [t for c in clients for t in c.trouble]
        assert d.p.poll() is None, f"the daemon died: {d.p.returncode}"
        for suite in suites + trainings:
            until("batch jobs and trainings", 120,
                  lambda: ended(d, suite))
        models = {d.json("GET", f"/v1/jobs/{t}.1/result")[1]["model"] for t in trainings}
        assert len(models) == 1, f"trainings differ: {models}"
        w.channel.close()
        nothing_is_left(d, before, processes, keep_bytes=8 * (64 << 20))
        total = sum((c.seen for c in clients), collections.Counter())
        for what in sorted(total):
            print(f"  {total[what]:8} {what}")
        wanted = {"small OK", "slow OK", "batched OK", "oip OK", "rpc OK", "large OK", "stream OK",
                  "compile OK", "leave OK"} - {"slow OK"}
        assert wanted <= set(total), f"never happened: {wanted - set(total)}"
        assert kills >= 1 and metric(d, "hlod_worker_deaths_total") >= kills
        assert metric(d, "hlod_batch_rows_total") > metric(d, "hlod_batches_total") > 0
        large = rss_mb(d)
        assert large < small + 100, f"the daemon grew from {small:.0f} MB to {large:.0f} MB"
        print(f"  {small:.0f} MB at the start, {large:.0f} MB at the end; {kills} workers killed, "
              f"{len(suites)} batch jobs, {len(trainings)} trainings, "
              f"{int(metric(d, 'hlod_batches_total'))} batches of "
              f"{metric(d, 'hlod_batch_rows_total') / metric(d, 'hlod_batches_total'):.1f} rows")
        assert d.stop_keep() == 0, "the daemon did not end cleanly"
    except (Exception, SystemExit) as e:
        import traceback
        bad.append(f"{e!r}\n{traceback.format_exc()}")
        print(d.logs()[-3000:])
        d.p.poll() is None and d.kill()
    assert not re.search(r"(Thread|Address|Leak)Sanitizer|runtime error",
                         d.logs()), "a sanitizer complains"
    for t, n in collections.Counter(bad).most_common(20):
        print(f"  {n} x {t}")
    print("FAIL soak" if bad else "PASS soak", flush=True)
    d.clean()
    return 1 if bad else 0

if __name__ == "__main__":
    sys.exit(main())
