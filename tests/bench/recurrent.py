# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers and tree ensembles beside ONNX Runtime, interleaved, one line a model and the
geometric mean.

    recurrent.py BUILD [--threads N] [--rounds N] [NAME...] NAME: only models whose name holds it

hlod's side is hlo-run, the device without daemon. Weights and inputs are random; trees see the same
rows each time, which favours branches.
"""
import argparse
import math
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort
from onnx import save

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "conform"))
import recurrent  # noqa: E402
import trees  # noqa: E402

LAYERS = [("LSTM", 100, 1, 64, 64, "forward"), ("LSTM", 100, 1, 128, 128, "bidirectional"),
          ("LSTM", 200, 1, 256, 256, "forward"), ("LSTM", 50, 8, 128, 256, "forward"),
          ("LSTM", 50, 32, 128, 256, "forward"), ("LSTM", 64, 1, 512, 512, "forward"),
          ("LSTM", 10, 1, 16, 16, "forward"), ("GRU", 100, 1, 64, 64, "forward"),
          ("GRU", 200, 1, 256, 256, "forward"), ("GRU", 50, 8, 128, 256, "forward"),
          ("GRU", 20, 16, 64, 32, "bidirectional"), ("RNN", 100, 1, 128, 128, "forward")]
FORESTS = [(n, depth, 30, rows) for n, depth in ((20, 12), (100, 6), (500, 8))
           for rows in (1, 100, 10000)]


def models():
    for op, *sizes in LAYERS:
        m, inputs = recurrent.layers(op, *sizes)
        yield "%s %d steps, batch %d, %d to %d, %s" % (op, *sizes), m, inputs
    for n, depth, features, rows in FORESTS:
        x = trees.rows(rows, features)
        yield "%d trees of depth %d, %d rows" % (n, depth, rows), trees.model(
            trees.regressor(*trees.forest(n, depth, features), 1), x, 3), {"x": x}


class Loop:
    def __init__(self, build, path, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        self.p = subprocess.Popen([os.path.join(build, "hlo-run"), "--loop", path],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, env=env, text=True)

    def times(self, n):
        print(n, file=self.p.stdin, flush=True)
        return [float(t) for t in self.p.stdout.readline().split()]

    def end(self):
        self.p.stdin.close()
        self.p.wait()


def measure(build, path, inputs, threads, rounds):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    loop, ours, theirs = Loop(build, path, threads), [], []
    n = max(2, min(200, int(60 / max(loop.times(2)[-1], 0.01))))
    for _ in range(rounds):
        ours += loop.times(n)
        for _ in range(n):
            start = time.perf_counter()
            session.run(None, inputs)
            theirs.append((time.perf_counter() - start) * 1e3)
    loop.end()
    return float(np.median(ours)), float(np.median(theirs))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("names", nargs="*")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=6)
    args = p.parse_args()
    logs = []
    for name, m, inputs in models():
        if args.names and not any(n in name for n in args.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.onnx")
            save(m, path)
            ours, theirs = measure(args.build, path, inputs, args.threads, args.rounds)
        logs.append(math.log(ours / theirs))
        print("%-50s hlod %9.4f ms  ONNX Runtime %9.4f ms  "
              "%5.2f" % (name, ours, theirs, ours / theirs), flush=True)
    print("geometric mean %.2f of ONNX Runtime's time over %d models, %d threads"
          % (math.exp(sum(logs) / len(logs)), len(logs), args.threads))


if __name__ == "__main__":
    main()
