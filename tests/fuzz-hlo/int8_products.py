# SPDX-License-Identifier: Apache-2.0
"""Random dots and convolutions of 8-bit integers (u8 or s8 by s8 into s32) with the steps that
quantised models have behind them, against the reference evaluator.

    int8_products.py BUILD [--n N] [--seed S]

Sizes around those of tiles and panels, groups, strides, dilations, padding, one to three
dimensions, planes and channels last; values over the whole range, weights among them for which
sums of two products do not fit 16 bits. Each module runs as hlod chooses, as without AVX-512, and
there all by `--impl pairs`.
"""
import os
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conform"))
from random_modules import main, run_text  # noqa: E402

PRODUCTS = 6  # of a module


def pick(rng, *of):
    return of[int(rng.integers(len(of)))]


def weights(rng, shape):
    kind = pick(rng, "all", "bell", "small", "most")
    if kind == "all":
        w = rng.integers(-128, 128, shape)
    elif kind == "bell":
        w = np.clip(np.round(rng.standard_normal(shape) * 35), -128, 127)
    elif kind == "small":
        w = rng.integers(-64, 65, shape)
    else:
        w = np.where(rng.random(shape) < 0.5, -128, 127)
    return w.astype(np.int8)


class Module:
    def __init__(self, rng):
        self.rng, self.lines, self.inputs, self.results, self.n = rng, [], [], [], 0

    def add(self, shape, text):
        self.lines.append("  v%d = %s %s" % (self.n, shape, text))
        self.n += 1
        return "v%d" % (self.n - 1)

    def parameter(self, x, layout=""):
        names = {np.dtype(np.uint8): "u8", np.dtype(np.int8): "s8", np.dtype(np.int32): "s32",
                 np.dtype(np.float32): "f32"}
        if layout:  # channels last: the bytes lie so
            x = np.moveaxis(x, 1, -1)
            dims = [x.shape[0], x.shape[-1], *x.shape[1:-1]]
        else:
            dims = list(x.shape)
        self.inputs.append(np.ascontiguousarray(x))
        return self.add("%s[%s]%s" % (names[x.dtype], ",".join(map(str, dims)), layout),
                        "parameter(%d)" % (len(self.inputs) - 1))

    def spread(self, shape, name, dims):
        return self.add("f32" + shape, "broadcast(%s), dimensions={%s}" % (name, dims))

    def constant(self, shape, value):
        return self.spread(shape, self.add("f32[]", "constant(%r)" % value), "")

    def steps(self, y, shape, dims, layout):
        """What follows a product of s32, as quantising tools write it, parts left out."""
        rng, channels = self.rng, dims[1]
        if rng.random() < 0.15:
            self.results.append((y, "s32" + shape))
            return
        if rng.random() < 0.5:
            b = self.parameter(rng.integers(-20000, 20000, channels).astype(np.int32))
            b = self.add("s32" + shape, "broadcast(%s), dimensions={1}" % b)
            y = self.add("s32" + shape, "add(%s, %s)" % (y, b))
        y = self.add("f32" + shape, "convert(%s)" % y)
        size = () if rng.random() < 0.4 else (channels,)
        if rng.random() < 0.8:
            s = self.parameter((rng.random(size) * 2e-3 + 1e-4).astype(np.float32))
            s = self.spread(shape, s, "1" if size else "")
            y = self.add("f32" + shape, "multiply(%s, %s)" % (y, s))
        if rng.random() < 0.4:
            b = self.parameter(rng.standard_normal(channels).astype(np.float32))
            y = self.add("f32" + shape, "add(%s, %s)" % (y, self.spread(shape, b, "1")))
        if rng.random() < 0.3:
            t = self.parameter(rng.standard_normal(dims).astype(np.float32), layout)
            y = self.add("f32" + shape, "add(%s, %s)" % (y, t))
        if rng.random() < 0.4:
            y = self.add("f32" + shape, "maximum(%s, %s)" % (y, self.constant(shape, 0.0)))
        elif rng.random() < 0.2:
            y = self.add("f32" + shape, "tanh(%s)" % y)
        if rng.random() < 0.5:
            self.results.append((y, "f32" + shape))
            return
        u8 = rng.random() < 0.5
        y = self.add("f32" + shape, "divide(%s, %s)" % (
            y, self.constant(shape, pick(rng, 0.5, 0.0473, 0.3))))
        y = self.add("f32" + shape, "round-nearest-even(%s)" % y)
        y = self.add("f32" + shape, "add(%s, %s)" % (y, self.constant(shape, pick(rng, 0.0, 3.0))))
        low, high = (self.add("f32[]", "constant(%d)" % v) for v in ((0, 255) if u8
                                                                     else (-128, 127)))
        y = self.add("f32" + shape, "clamp(%s, %s, %s)" % (low, y, high))
        kind = ("u8" if u8 else "s8") + shape
        self.results.append((self.add(kind, "convert(%s)" % y), kind))

    def bytes(self, shape, layout=""):
        low, high, t = pick(self.rng, (0, 256, np.uint8), (-128, 128, np.int8))
        return self.parameter(self.rng.integers(low, high, shape).astype(t), layout)

    def dot(self):
        rng = self.rng
        m, k = pick(rng, 1, 2, 3, 4, 5, 16, 17, 70), pick(rng, 1, 3, 4, 7, 16, 31, 64, 257)
        n = pick(rng, 1, 8, 15, 16, 17, 40, 100)
        x, turned = self.bytes((m, k)), rng.random() < 0.5
        w = self.parameter(weights(rng, (n, k) if turned else (k, n)))
        shape = "[%d,%d]" % (m, n)
        y = self.add("s32" + shape, "dot(%s, %s), lhs_contracting_dims={1}, "
                     "rhs_contracting_dims={%d}" % (x, w, turned))
        self.steps(y, shape, (m, n), "")

    def convolution(self):
        rng, n = self.rng, pick(self.rng, 1, 2, 2, 3)
        groups, i, o = 1, pick(rng, 1, 3, 4, 8, 17, 24), pick(rng, 1, 8, 16, 17, 40)
        kind = rng.random()
        if kind < 0.3:
            groups = o = i = pick(rng, 3, 8, 16, 20, 33)
        elif kind < 0.45:
            groups = 2
            i, o = 2 * pick(rng, 8, 9, 16), 2 * pick(rng, 8, 17, 32)
        size, stride, dilate = ([pick(rng, *of) for _ in range(n)]
                                for of in ((1, 2, 3, 5), (1, 1, 2), (1, 1, 2)))
        low, high = ([pick(rng, 0, 1, 2) for _ in range(n)] for _ in range(2))
        reach = [(s - 1) * d + 1 for s, d in zip(size, dilate)]
        space = [r + pick(rng, 0, 1, 2, 5, 9) for r in reach]
        out = [(s + a + b - r) // t + 1 for s, a, b, r, t in zip(space, low, high, reach, stride)]
        last = "{1,%s,0}" % ",".join(str(d) for d in range(n + 1, 1, -1))
        layout = pick(rng, last, last, "")
        x = self.bytes((pick(rng, 1, 2), i, *space), pick(rng, last, last, ""))
        batch = self.inputs[-1].shape[0]
        w = self.parameter(weights(rng, (o, i // groups, *size)))
        dims, labels = (batch, o, *out), "012"[:n]
        shape = "[%s]%s" % (",".join(map(str, dims)), layout)
        join = lambda v: "x".join(map(str, v))  # noqa: E731
        y = self.add("s32" + shape, "convolution(%s, %s), window={size=%s stride=%s pad=%s "
                     "rhs_dilate=%s}, dim_labels=bf%s_oi%s->bf%s, feature_group_count=%d" % (
                         x, w, join(size), join(stride),
                         join("%d_%d" % p for p in zip(low, high)), join(dilate), labels, labels,
                         labels, groups))
        self.steps(y, shape, dims, layout)

    def text(self):
        kinds = ", ".join(kind for _, kind in self.results)
        return "HloModule m\nENTRY e {\n%s\n  ROOT r = (%s) tuple(%s)\n}\n" % (
            "\n".join(self.lines), kinds, ", ".join(name for name, _ in self.results))


def wrong(m, p):
    """Sums are exact; a quantised value may be the next one, where libraries multiply with a
    rounded reciprocal."""
    found = re.findall(r"^result \d+: max error (\S+) of scale \S+ \((\S+)\)$", p.stdout, re.M)
    if p.returncode not in (0, 6) or len(found) != len(m.results):
        return p.stdout + p.stderr
    for (name, kind), (error, relative) in zip(m.results, found):
        bound = {"s32": 0, "f32": 1e-4}.get(kind[:3], 1)
        if not float(relative if kind[:3] == "f32" else error) <= bound:
            return "%s, %s: error %s" % (name, kind, error)
    return None


def check(build, number, rng):
    m = Module(rng)
    for _ in range(PRODUCTS):
        pick(rng, m.dot, m.convolution, m.convolution)()
    text = m.text()
    with tempfile.TemporaryDirectory() as folder:
        for isa, impl in (("", []), ("avx2", []), ("avx2", ["--impl", "pairs"])):
            p, _ = run_text(build, folder, text, m.inputs, isa, ["--compare", *impl])
            why = wrong(m, p)
            if why:
                return text, "HLOD_CPU_ISA='%s' %s: %s" % (isa, impl, why)
    return text, None


if __name__ == "__main__":
    sys.exit(main("8-bit products", check, 12))
