#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bounds of docs/precision.md: random dots and convolutions of every type and precision
against sums in a wider type, each element within its own bound.

    bounds.py BUILD [--n N] [--seed S]

With u the unit roundoff of the type that sums and K the terms of a sum, a sum in any order is in
(K + 2) u of the sum of its terms' magnitudes (Higham, "Accuracy and Stability of Numerical
Algorithms", 2002, section 3.1); results of half precision are rounded once more, operands rounded
to bf16 (precision fast) add 2^-7 + 2^-16 times these magnitudes. Winograd's convolutions (f32,
default, 3x3) hold no bound by element: WINOGRAD u of the largest sum of magnitudes in the image.
Operands span eight binary orders of magnitude. Where the CPU has no bf16, fast is emulated
(HLOD_CPU_BF16).
"""
import os
import sys
import tempfile

import ml_dtypes
import numpy as np
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "conform")]
from harness import multiplies_bf16  # noqa: E402
from random_modules import main, run_text  # noqa: E402

TYPES = {"f64": np.float64, "f32": np.float32, "c64": np.complex64, "c128": np.complex128,
         "f16": np.float16, "bf16": ml_dtypes.bfloat16, "s8": np.int8, "u8": np.uint8,
         "s32": np.int32}
U = {"f64": 2.0 ** -53, "c128": 2.0 ** -53, "f32": 2.0 ** -24, "c64": 2.0 ** -24,
     "f16": 2.0 ** -24, "bf16": 2.0 ** -24}  # of the sums
RESULT = {"f16": 2.0 ** -11, "bf16": 2.0 ** -8}
LEAST = {"f16": 2.0 ** -25}  # half of the smallest subnormal number
FAST = 2.0 ** -7 + 2.0 ** -16
WINOGRAD = 256


def values(rng, dtype, shape):
    if dtype in ("s8", "u8", "s32"):
        lo, hi = {"s8": (-128, 128), "u8": (0, 256), "s32": (-2 ** 31, 2 ** 31)}[dtype]
        return rng.integers(lo, hi, shape).astype(TYPES[dtype])
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-4, 5, shape)
    if dtype in ("c64", "c128"):
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(TYPES[dtype])


def wide(x):
    if x.dtype.kind == "c":
        return x.astype(np.clongdouble)
    return x.astype(np.int64 if x.dtype.kind in "iu" else np.longdouble)


def sums(x, y, how):
    """Of products, and of their magnitudes: of both parts of a complex number together."""
    x, y = wide(x), wide(y)
    if x.dtype.kind != "c":
        return how(x, y), how(abs(x), abs(y))
    return how(x, y), how(abs(x.real) + abs(x.imag), abs(y.real) + abs(y.imag))


def dot(rng, dtype):
    m, k, n = (int(v) for v in rng.choice([1, 2, 7, 16, 33, 64, 100, 257], 3))
    b = int(rng.choice([0, 0, 3]))
    x, y = values(rng, dtype, (b, m, k) if b else (m, k)), values(rng, dtype,
                                                                  (b, k, n) if b else (k, n))
    out = (b, m, n) if b else (m, n)
    batch = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if b else ""
    attr = batch + "lhs_contracting_dims={%d}, rhs_contracting_dims={%d}" % (2 if b else 1,
                                                                             1 if b else 0)
    return "dot", x, y, out, attr, k, np.matmul, False


def windows(x, size, stride):
    """[n, c, taps, places] of an image, padded."""
    n, c, h, w = x.shape
    p = size // 2
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    oh, ow = (h - 1) // stride + 1, (w - 1) // stride + 1
    taps = [x[:, :, i:i + (oh - 1) * stride + 1:stride, j:j + (ow - 1) * stride + 1:stride]
            for i in range(size) for j in range(size)]
    return np.stack(taps, 2).reshape(n, c, size * size, oh * ow), (oh, ow)


def convolution(rng, dtype):
    n, c, o = int(rng.choice([1, 2])), int(rng.choice([3, 8, 16, 32])), int(rng.choice([8, 16, 33]))
    h, w, size = (int(v) for v in (rng.choice([7, 14, 28]), rng.choice([7, 14, 28]),
                                   rng.choice([1, 3, 3, 5])))
    stride = int(rng.choice([1, 1, 2]))
    x, y = values(rng, dtype, (n, c, h, w)), values(rng, dtype, (o, c, size, size))
    shape = windows(x[:, :1], size, stride)[1]

    def how(x, y):
        v = windows(x, size, stride)[0].reshape(n, c * size * size, -1)
        return np.matmul(y.reshape(o, -1), v).reshape(n, o, *shape)
    attr = ("window={size=%dx%d stride=%dx%d pad=%d_%dx%d_%d}, dim_labels=bf01_oi01->bf01"
            % (size, size, stride, stride, *[size // 2] * 4))
    return ("convolution", x, y, (n, o, *shape), attr, c * size * size, how,
            size == 3 and stride == 1)


def text_of(op, dtype, result, x, y, out, attr):
    dims = lambda s: ",".join(map(str, s))
    return ("HloModule m\nENTRY e {\n  x = %s[%s] parameter(0)\n  y = %s[%s] parameter(1)\n"
            "  ROOT r = %s[%s] %s(x, y), %s\n}\n" % (dtype, dims(x.shape), dtype, dims(y.shape),
                                                      result, dims(out), op, attr))


def wrong(got, dtype, precision, x, y, how, terms, winograd):
    """What is out of its bound, or None."""
    want, size = sums(x, y, how)
    if dtype in ("s8", "u8", "s32"):
        want = want.astype(np.int32)
        return None if (got == want).all() else "%d elements differ" % (got != want).sum()
    terms *= 2 if dtype in ("c64", "c128") else 1
    bound = (terms + 2) * U[dtype] * size + RESULT.get(dtype, 0) * abs(want)
    bound += LEAST.get(dtype, 1e-40)
    if precision == "fast":
        bound += FAST * size
    if winograd and precision != "strict" and dtype in ("f32", "f16", "bf16"):
        bound += WINOGRAD * U[dtype] * size.max()
    error = abs(wide(got) - want)
    if (error <= bound).all():
        return None
    at = np.unravel_index((error / bound).argmax(), error.shape)
    return "at %s an error of %g, its bound is %g" % (at, error[at], bound[at])


def check(build, number, rng):
    dtype = list(TYPES)[number % len(TYPES)]
    op, x, y, out, attr, terms, how, winograd = (dot, convolution)[number // len(TYPES) % 2](rng,
                                                                                            dtype)
    result = "s32" if dtype in ("s8", "u8") else dtype
    text = text_of(op, dtype, result, x, y, out, attr)
    for precision in ("default", "strict") + (("fast",) if dtype == "f32" else ()):
        for isa in ("", "avx2"):
            os.environ["HLOD_CPU_BF16"] = "" if multiplies_bf16() and not isa else "emulated"
            with tempfile.TemporaryDirectory() as folder:
                p, bytes_ = run_text(build, folder, text, (x, y), isa, ("--precision", precision))
            if p.returncode:
                return text, p.stderr
            got = np.frombuffer(bytes_, TYPES[result]).reshape(out)
            why = wrong(got, dtype, precision, x, y, how, terms, winograd)
            if why:
                return text, "%s %s: %s" % (precision, isa, why)
    return text, None


if __name__ == "__main__":
    sys.exit(main("bounds", check, 54))
