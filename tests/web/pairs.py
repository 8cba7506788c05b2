#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random products of quantised values as WebAssembly, against NumPy: convolutions and dots of s8
and u8 less zero points at either end of their range, scales of all or of each channel, extreme
values, results of f32 and s32; the s32 ones exactly. Writes cases for web_cases, which compiles
them as packages for WebAssembly alone are.

    pairs.py BUILD [--n 40] [--seed 1]"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BITS = {"s8": np.int8, "u8": np.uint8}


def text(a):
    return ("{" + ", ".join(map(text, a)) + "}" if a.ndim else
            "%.9g" % a if a.dtype == np.float32 else str(int(a)))


def shape(t, dims):
    return "%s[%s]" % (t, ",".join(map(str, dims)))


class Case:
    def __init__(self, r):
        self.r, self.lines, self.inputs = r, [], []

    def put(self, name, kind, what):
        self.lines.append("  %s = %s %s" % (name, kind, what))
        return name

    def parameter(self, t, a):
        n = len(self.inputs)
        self.inputs.append(a)
        return self.put("p%d" % n, shape(t, a.shape), "parameter(%d)" % n)

    def operand(self, name, dims, wide, channel=None):
        """(name of its f32 or s32 value, the difference exactly, scale)"""
        r = self.r
        t = str(r.choice(["s8", "u8"]))
        least, most = np.iinfo(BITS[t]).min, np.iinfo(BITS[t]).max
        q = r.integers(least, most + 1, dims).astype(BITS[t])
        if r.random() < 0.3:
            q = r.choice(np.array([least, most], BITS[t]), dims)
        of = [channel] if channel is not None and r.random() < 0.5 else []
        along = ",".join(map(str, of))
        zero = r.choice(np.array([least, most, 0, 3], BITS[t]), [dims[d] for d in of])
        z = self.put(name + "z", shape("s32", zero.shape),
                     "convert(%s)" % self.parameter(t, zero))
        x = self.put(name + "w", shape("s32", dims), "convert(%s)" % self.parameter(t, q))
        z = self.put(name + "b", shape("s32", dims), "broadcast(%s), dimensions={%s}" % (z, along))
        x = self.put(name + "d", shape("s32", dims), "subtract(%s, %s)" % (x, z))
        around = [1] * len(dims)
        for d in of:
            around[d] = dims[d]
        exact = q.astype(np.int64) - zero.astype(np.int64).reshape(around)
        if not wide:
            return x, exact, np.ones(around)
        scale = r.uniform(0.01, 0.1, [dims[d] for d in of]).astype(np.float32)
        x = self.put(name + "f", shape("f32", dims), "convert(%s)" % x)
        s = self.put(name + "s", shape("f32", dims), "broadcast(%s), dimensions={%s}" % (
            self.parameter("f32", scale), along))
        return (self.put(name + "m", shape("f32", dims), "multiply(%s, %s)" % (x, s)), exact,
                scale.astype(np.float64).reshape(around))

    def dot(self, wide):
        r = self.r
        m, k, n = int(r.choice([1, 5, 16, 40])), int(r.choice([2, 7, 64, 300])), int(
            r.choice([3, 16, 33]))
        x, a, sa = self.operand("a", (m, k), wide)
        turned = r.random() < 0.5
        w, b, sb = self.operand("c", (n, k) if turned else (k, n), wide, 0 if turned else 1)
        if turned:
            b, sb = b.T, sb.T if sb.size > 1 else sb
        want = (a @ b) * (sa.reshape(-1)[0] * sb)
        return want, "dot(%s, %s), lhs_contracting_dims={1}, rhs_contracting_dims={%d}" % (
            x, w, turned)

    def convolution(self, wide):
        r = self.r
        groups, each = int(r.choice([1, 1, 1, 2, 3])), int(r.choice([1, 2, 3, 4, 8, 20]))
        out, size = groups * int(r.choice([1, 4, 10])), int(r.choice([1, 3]))
        high, pad, stride = int(r.choice([5, 12])), int(r.choice([0, 1])), int(r.choice([1, 2]))
        x, a, sa = self.operand("a", (2, groups * each, high, high), wide)
        w, b, sb = self.operand("c", (out, each, size, size), wide, 0)
        a = np.pad(a, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(a, (size, size), (2, 3))
        windows = windows[:, :, ::stride, ::stride]
        parts = [np.einsum("nchwij,ocij->nohw", windows[:, g * each:(g + 1) * each],
                           b[g * out // groups:(g + 1) * out // groups]) for g in range(groups)]
        want = np.concatenate(parts, 1) * (sa.reshape(-1)[0] * sb.reshape(1, -1, 1, 1))
        return want, ("convolution(%s, %s), window={size=%dx%d stride=%dx%d pad=%d_%dx%d_%d}, "
                      "dim_labels=bf01_oi01->bf01, feature_group_count=%d" % (
                          x, w, size, size, stride, stride, pad, pad, pad, pad, groups))

    def whole(self):
        wide = self.r.random() < 0.6
        want, what = (self.dot if self.r.random() < 0.4 else self.convolution)(wide)
        t = "f32" if wide else "s32"
        self.put("ROOT y", shape(t, want.shape), what)
        out = want.astype(np.float32) if wide else np.rint(want).astype(np.int64)
        return "\n".join(["HloModule m", "ENTRY main {", *self.lines, "}",
                          *("// IN: " + text(a) for a in self.inputs), "// TOL: 2e-6" * wide,
                          "// OUT: " + text(out)]).replace("}\n\n", "}\n").replace("\n\n", "\n")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--n", type=int, default=40)
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    r = np.random.default_rng(o.seed)
    cases = [Case(r).whole() for _ in range(o.n)]
    with tempfile.TemporaryDirectory(prefix="hlod-pairs-") as folder:
        path = os.path.join(folder, "pairs.hlo")
        with open(path, "w") as f:
            f.write("// SPDX-License-Identifier: Apache-2.0\n" + "\n// ----\n".join(cases) + "\n")
        done = subprocess.run([o.build + "/web_cases", "compiler/web/runtime",
                               os.path.join(HERE, "serve.mjs"), path], capture_output=True,
                              text=True, cwd=ROOT)
    print(done.stdout[-4000:] + done.stderr[-2000:], end="")
    ok = done.returncode == 0 and "%d cases, 0 failed, 0 refused" % o.n in done.stdout
    print("%s quantised products as WebAssembly, seed %d" % ("PASS" if ok else "FAIL", o.seed))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
