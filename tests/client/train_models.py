# SPDX-License-Identifier: Apache-2.0
"""Networks of many families (tests/models/nets.py) through `hlo train` and `hlo train --job`:
losses of the first steps against JAX from the same start and order, the same weights from both
ways, from a model of a free batch, of one for a single row, and with weights in Constant nodes.
   train_models.py --build DIR [--all] [NAME]...   all, those, or a few"""
import argparse
import json
import os
import subprocess
import sys

import numpy as np
import onnx
from onnx import numpy_helper

os.environ["JAX_PLATFORMS"] = "cpu"
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "models")]
import jax  # noqa: E402
import optax  # noqa: E402
from harness import Daemon, Results  # noqa: E402
from nets import NETS, ROWS  # noqa: E402

BATCH, STEPS = 16, 8
FEW = ["U-Net, nearest", "vision transformer", "GRU, reset behind"]


def jax_losses(net):
    p = {k: v for k, v in net.w.items() if k not in net.fixed and v.size > 1}
    tx = optax.adam(1e-2)
    s, out = tx.init(p), []

    @jax.jit
    def step(p, s, x, t):
        value, g = jax.value_and_grad(lambda p: net.twin(net.apply(p, x), t))(p)
        u, s = tx.update(g, s, p)
        return value, optax.apply_updates(p, u), s
    for k in range(STEPS):
        rows = slice(k * BATCH % ROWS, k * BATCH % ROWS + BATCH)
        label = None if net.label is None else net.label[rows]
        value, p, s = step(p, s, {n: x[rows] for n, x in net.rows.items()}, label)
        out.append(float(value))
    return np.array(out)


def weights(path):
    """All numbers of the trained model, in the order of their names."""
    g = onnx.load(path).graph
    v = {t.name: t for t in g.initializer}
    v.update({n.output[0]: n.attribute[0].t for n in g.node if n.op_type == "Constant"})
    return [numpy_helper.to_array(v[k]).tobytes() for k in sorted(v)]


class Case:
    def __init__(self, build):
        self.build, self.results = build, Results()
        self.d = Daemon(build + "/hlod", build + "/hlod-worker")
        self.env = {**os.environ, "HLOD_ADDR": "%s:%d" % self.d.addr}

    def check(self, name, ok, why=""):
        self.results("train: " + name, ok, str(why))

    def at(self, name):
        return os.path.join(self.d.dir, name)

    def hlo(self, *words):
        return subprocess.run([self.build + "/hlo", *words], env=self.env, cwd=self.d.dir,
                              capture_output=True, text=True, timeout=300)

    def train(self, net, model, out, *words):
        """Losses of the steps, or what hlo says."""
        onnx.save(model, self.at("m.onnx"))
        rows = [w for n in net.rows for w in ("-d", "%s=@%s.npy" % (n, n))]
        if net.label is not None:
            rows += ["-d", "label=@label.npy"]
        more = [w for s in net.words for w in ("--set", s)]
        p = self.hlo("train", "m.onnx", "--loss", net.loss, *rows, *more, "--optimizer",
                     "adam:rate=1e-2", "--no-shuffle", "--batch", str(BATCH), "--steps", str(STEPS),
                     "--json", "-o", out, *words)
        if p.returncode:
            return p.stderr
        events = [json.loads(line) for line in p.stdout.splitlines()]
        return np.array([e["loss"] for e in events if e["event"] == "step"])

    def net(self, name):
        net = NETS[name]()
        want = jax_losses(net)
        for n, x in {**net.rows, "label": net.label}.items():
            if x is not None:
                np.save(self.at(n + ".npy"), x)
        forms = [("free", net.model(), []), ("job", net.model(), ["--job"]),
                 ("one row", net.model(batch=1), []),
                 ("constants", net.model(constants=True), ["--job"])]
        files = {}
        for form, model, words in forms:
            got = self.train(net, model, form + ".onnx", *words)
            ok = not isinstance(got, str) and got.shape == want.shape
            close = ok and np.abs(got - want).max() <= 1e-4 * max(1, np.abs(want).max())
            self.check("%s, %s: losses equal JAX's" % (name, form), close, (got, want))
            if ok:
                files[form] = weights(self.at(form + ".onnx"))
        self.check("%s: the same weights" % name,
                   len(files) == 4 and len(set(map(tuple, files.values()))) == 1, files.keys())
        for n, x in net.rows.items():
            np.save(self.at(n + ".npy"), x[:1])
        p = self.hlo("run", "constants.onnx", *[w for n in net.rows for w in (
            "-i", "%s=@%s.npy" % (n, n))])
        self.check("%s: it serves" % name, p.returncode == 0, p.stderr)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--all", action="store_true")
    a.add_argument("names", nargs="*")
    args = a.parse_args()
    c = Case(os.path.abspath(args.build))
    try:
        for name in args.names or (NETS if args.all else FEW):
            c.net(name)
    finally:
        c.d.stop()
    return c.results.code()


sys.exit(main())
