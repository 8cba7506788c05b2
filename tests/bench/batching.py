#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Throughput and latency of single-row requests with and without dynamic batching, by concurrency;
a model that is small against a request's own cost, and one that is not.
Usage: batching.py BUILD [--seconds N]"""
import argparse, json, os, subprocess, sys
import numpy as np
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "sched")]
from batching import graph, name, upload
from harness import Daemon

def mlp(rng, sizes):
    nodes, weights, at = [], [], "x"
    for k, (a, b) in enumerate(zip(sizes, sizes[1:])):
        weights.append((f"w{k}", (rng.standard_normal((a, b)) / np.sqrt(a)).astype(np.float32)))
        nodes += [("MatMul", f"{at} w{k}", f"m{k}", {}), ("Relu", f"m{k}", f"r{k}", {})]
        at = f"r{k}"
    return graph(nodes, {"x": ["N", sizes[0]]}, {at: ["N", sizes[-1]]}, weights)

def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--seconds", type=float, default=3)
    o = a.parse_args()
    rng = np.random.default_rng(0)
    print("| layers | batching | clients | requests/s | p50 ms | p99 ms |\n"
          "|---|---|---|---|---|---|")
    for sizes in (784, 128, 10), (1024, 2048, 2048, 2048, 1000):
        d = Daemon(o.build + "/hlod", o.build + "/hlod-worker")
        try:
            digest = upload(d, mlp(rng, sizes), f"x=1x{sizes[0]}")
            x = os.path.join(d.dir, "x.npy")
            np.save(x, rng.standard_normal((1, sizes[0])).astype(np.float32))
            for how, batching in ("none", {}), ("32, 0 us", {"max": 32}), (
                "32, 1000 us", {"max": 32, "delayUs": 1000}):
                assert name(d, digest, **batching)[0] == 200
                p = subprocess.run([o.build + "/hlo", "--addr", "%s:%d" % d.addr, "bench", "m",
                                    "--concurrency", "1,8,32", "--duration", f"{o.seconds:g}s",
                                    "--warmup", "100", "-i", "x=@" + x, "--json"],
                                   capture_output=True, text=True)
                assert p.returncode == 0, p.stderr
                for r in json.loads(p.stdout)["runs"]:
                    assert r["errors"] == 0, r
                    print(f"| {'-'.join(map(str, sizes))} | {how} | {r['concurrency']} | "
                          f"{r['requestsPerS']:.0f} | {r['p50Ms']:.2f} | {r['p99Ms']:.2f} |",
                          flush=True)
        finally:
            d.stop()

if __name__ == "__main__":
    main()
