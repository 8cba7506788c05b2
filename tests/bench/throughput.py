# SPDX-License-Identifier: Apache-2.0
"""Requests/s under load: hlod over HTTP (tensors as bytes by the Open Inference Protocol's binary
extension; the load is `hlo bench`, in its own process) with 1, 2, 8 and 32 in flight, beside ONNX
Runtime (a session of one thread, as many callers as processors) and OpenVINO (THROUGHPUT hint, f32)
called in process. All take turns in each round; figures are medians over rounds, ratios medians of
the rounds' ratios. p99 is over the mean. Processor time is per request.

    throughput.py BUILD [MODEL ...] [--rounds N] [--seconds S] [--device "SPEC [NAME=VALUE ...]"]...
                  [--in-flight 1,8] [--peers onnxruntime] [--strict]

--device: a daemon's device, and its environment; NAME may be BUILD, another build to compare with.
Several are measured in turn. --strict: status 1 where a target is missed: 1.1 times the better peer
from 8 in flight on, p99 at 8 at most three times the mean.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "models")]
MODELS = ["mobilenet_v2", "resnet50", "bert_base", "mlp"]
TICK = os.sysconf("SC_CLK_TCK")


def peer(kind, path, name):
    """In its own process: a line with seconds in, requests/s, mean and p99 in ms out."""
    import zoo
    inputs = zoo.sample_inputs(name, 1)
    cores = len(os.sched_getaffinity(0))
    times = []
    if kind == "onnxruntime":
        import onnxruntime as ort
        o = ort.SessionOptions()
        o.intra_op_num_threads = 1
        s = ort.InferenceSession(path, o)
        s.run(None, inputs)

        def caller(end):
            while (start := time.perf_counter()) < end:
                s.run(None, inputs)
                times.append(time.perf_counter() - start)

        def measure(end):
            callers = [threading.Thread(target=caller, args=(end,)) for _ in range(cores)]
            for c in callers:
                c.start()
            for c in callers:
                c.join()
    else:
        import openvino as ov
        m = ov.Core().compile_model(path, "CPU", {"PERFORMANCE_HINT": "THROUGHPUT",
                                                  "INFERENCE_PRECISION_HINT": "f32"})
        q = ov.AsyncInferQueue(m)
        q.set_callback(lambda _, start: times.append(time.perf_counter() - start))

        def measure(end):
            while (start := time.perf_counter()) < end:
                q.start_async(inputs, start)
            q.wait_all()
    measure(time.perf_counter() + 0.2)
    print("ready", flush=True)
    for line in sys.stdin:
        times.clear()
        start = time.perf_counter()
        measure(start + float(line))
        rate = len(times) / (time.perf_counter() - start)
        times.sort()
        print(json.dumps({"rate": rate, "mean": statistics.fmean(times) * 1e3,
                          "p99": times[len(times) * 99 // 100] * 1e3}), flush=True)


class Peer:
    def __init__(self, kind, path, name):
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "", name, "--peer",
                                   kind, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True)
        self.alive = self.p.stdout.readline() == "ready\n"

    def measure(self, seconds):
        self.p.stdin.write("%g\n" % seconds)
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())

    def stop(self):
        self.p.stdin.close()
        self.p.wait(30)


def processor_s(pid):
    fields = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Served:
    """A daemon with one model, named m."""
    def __init__(self, build, device, path, name):
        import numpy as np
        import zoo
        from harness import Daemon
        words = device.split()
        env = dict(w.split("=", 1) for w in words[1:])
        build = env.pop("BUILD", build)
        self.hlo = build + "/hlo"
        self.d = Daemon(build + "/hlod", build + "/hlod-worker", args=("--device", words[0]),
                        env={**os.environ, **env})
        self.addr = "%s:%d" % self.d.addr
        self.inputs, shapes, self.rate = [], [], None
        for key, value in zoo.sample_inputs(name, 1).items():
            file = os.path.join(self.d.dir, key + ".npy")
            np.save(file, value)
            self.inputs += ["-i", "%s=@%s" % (key, file)]
            shapes += ["--shape", "%s=%s" % (key, "x".join(map(str, value.shape)))]
        subprocess.run([self.hlo, "--addr", self.addr, "models", "set", "m", path, *shapes],
                       check=True, stdout=subprocess.DEVNULL)
        self.measure(1, 0.2)  # warm
        self.rate = self.measure(2, 0.5)["rate"]

    def processors(self):
        """Seconds of the daemon, of its workers and of ended clients."""
        pid = self.d.p.pid
        workers = open("/proc/%d/task/%d/children" % (pid, pid)).read().split()
        c = resource.getrusage(resource.RUSAGE_CHILDREN)
        return processor_s(pid), sum(processor_s(int(w)) for w in workers), c.ru_utime + c.ru_stime

    def measure(self, in_flight, seconds):
        # enough requests for a p99 to mean something
        seconds = max(seconds, 4 * in_flight / self.rate if self.rate else 0)
        before = self.processors()
        p = subprocess.run([self.hlo, "--addr", self.addr, "bench", "m", *self.inputs,
                            "--protocol", "oip", "--body", "binary", "--warmup",
                            str(in_flight), "--concurrency", str(in_flight), "--duration",
                            "%gms" % (seconds * 1e3), "--json"],
                           capture_output=True, text=True)
        if p.returncode:
            raise SystemExit(p.stderr)
        r = json.loads(p.stdout)["runs"][0]
        n = r["requests"] + in_flight
        used = [(b - a) * 1e3 / n for a, b in zip(before, self.processors())]
        # a closed loop: the mean time of a request follows from the rate
        return {"rate": r["requestsPerS"], "mean": in_flight * 1e3 / r["requestsPerS"],
                "p99": r["p99Ms"], "errors": r["errors"], "used": used}


def median(rows, field):
    return statistics.median(r[field] for r in rows)


def measure_model(name, o, missed):
    import zoo
    path = os.path.abspath(zoo.ensure("build/models", name))
    peers = {k: Peer(k, path, name) for k in o.peers.split(",") if k}
    peers = {k: p for k, p in peers.items() if p.alive}
    served = {d: Served(o.build, d, path, name) for d in o.device}
    counts = [int(c) for c in o.in_flight.split(",")]
    rows = {}
    try:
        for _ in range(o.rounds):
            for k, p in peers.items():
                time.sleep(0.1)
                rows.setdefault(k, []).append(p.measure(o.seconds))
            for c in counts:
                for d, s in served.items():
                    time.sleep(0.1)
                    rows.setdefault((d, c), []).append(s.measure(c, o.seconds))
    finally:
        for s in [*peers.values(), *(s.d for s in served.values())]:
            s.stop()

    best = [max(rows[k][n]["rate"] for k in peers) if peers else None for n in range(o.rounds)]
    for k in peers:
        print("| %s | %s | | %.1f | %.2f | %.1f | | |" % (
            name, k, median(rows[k], "rate"), median(rows[k], "mean"),
            median(rows[k], "p99") / median(rows[k], "mean")))
    for d in o.device:
        for c in counts:
            r = rows[(d, c)]
            ratio = statistics.median(a["rate"] / b for a, b in zip(r, best)) if peers else None
            late = statistics.median(a["p99"] / a["mean"] for a in r)
            used = " + ".join("%.3f" % statistics.median(a["used"][k] for a in r) for k in range(3))
            print("| %s | %s | %d | %.1f | %.2f | %.1f | %s | %s |" % (
                name, d, c, median(r, "rate"), median(r, "mean"), late, used,
                "%.2f" % ratio if peers else ""), flush=True)
            if (peers and c >= 8 and ratio < 1.1) or (c == 8 and late > 3):
                missed.append((name, d, c))
            if any(a["errors"] for a in r):
                raise SystemExit("%s, %d in flight: requests failed" % (name, c))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("models", nargs="*", default=MODELS)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--seconds", type=float, default=2)
    a.add_argument("--device", action="append")
    a.add_argument("--in-flight", default="1,2,8,32")
    a.add_argument("--peers", default="onnxruntime,openvino")
    a.add_argument("--strict", action="store_true")
    a.add_argument("--peer", nargs=2)
    o = a.parse_args()
    if o.peer:
        return peer(*o.peer, o.models[0])
    o.device = o.device or ["cpu"]
    print("| model | runtime | in flight | requests/s | mean ms | p99 / mean | processor ms: "
          "daemon + worker + client | of the better peer |\n|---|---|---|---|---|---|---|---|")
    missed = []
    for name in o.models:
        measure_model(name, o, missed)
    for m in missed:
        print("MISSED %s, %s, %d in flight" % m)
    return 1 if missed and o.strict else 0


if __name__ == "__main__":
    sys.exit(main())
