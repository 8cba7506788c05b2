# SPDX-License-Identifier: Apache-2.0
"""Random dots and convolutions of the types that hlod multiplies itself (f64, complex, integers of
32 and 64 bits, of 8 and 16 into 32; f32 filters of many taps and convolutions of groups of images),
products of many small matrices, of matrices and vectors, of few rows, and gradients of filters
against XLA:CPU.

    products.py BUILD [--n N] [--seed S]

Any batch and contracting dims, labels, strides, dilations of both sides, padding of any sign,
groups of features or of images; sizes around those of tiles and blocks. Each module runs as hlod
chooses, on `--impl gemm` and there without AVX-512; small products and gradients on `--impl
kernel`, those of few rows on `--impl thin`.
"""
import os
import sys
import tempfile

import numpy as np

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"
import jax  # noqa: E402
from jax import lax  # noqa: E402
from random_modules import main, run_text  # noqa: E402

TYPES = {np.float64: 1e-12, np.complex64: 2e-5, np.complex128: 1e-12, np.int32: 0, np.uint32: 0,
         np.int64: 0, np.float32: 2e-5, np.int8: 0, np.uint8: 0, np.int16: 0}
SHORT = (np.int8, np.uint8, np.int16)  # into s32
SIZES = [1, 2, 3, 5, 8, 13, 17, 24, 31, 49, 97, 130]


def wide(t):
    return np.int32 if t in SHORT else None


def values(rng, t, shape):
    if t in SHORT:
        return rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)
    if np.dtype(t).kind in "iu":
        return rng.integers(-5 if np.dtype(t).kind == "i" else 0, 6, shape).astype(t)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(t).kind == "c" else x).astype(t)


def dot(rng, t):
    nb, nc, fx, fy = rng.integers(0, 3), rng.integers(1, 3), rng.integers(0, 3), rng.integers(0, 3)
    size = lambda most: int(rng.choice([s for s in SIZES if s <= most]))  # noqa: E731
    batch, contract = [size(3)
                       for _ in range(nb)], [size(300 if nc == 1 else 17) for _ in range(nc)]
    sides = []
    for n in (fx, fy):
        dims = ([("b", k, s) for k, s in enumerate(batch)]
                + [("c", k, s) for k, s in enumerate(contract)]
                + [("f", k, size(130 if n == 1 else 8)) for k in range(n)])
        order = rng.permutation(len(dims))
        sides.append([dims[k] for k in order])
    where = [[[k for k, d in enumerate(side) if d[:2] == (kind, j)][0] for j in range(len(group))]
             for kind, group in (("c", contract), ("b", batch)) for side in sides]
    x, y = (values(rng, t, [d[2] for d in side]) for side in sides)
    return lambda x, y: lax.dot_general(x, y, ((where[0], where[1]), (where[2], where[3])),
                                        preferred_element_type=wide(t)), x, y


def conv(rng, t):
    n, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 3]))
    parts = int(rng.choice([1, 1, 2, 3])) if groups == 1 else 1
    most = {1: 60, 2: 14, 3: 7}[n]
    spatial = [int(rng.integers(4, most)) for _ in range(n)]
    kernel = [int(rng.integers(1, 4)) for _ in range(n)]
    i, o = (int(rng.choice([1, 3, 8, 17])) for _ in range(2))
    strides, base, dilate = ([int(rng.choice([1, 1, 2, 3])) for _ in range(n)] for _ in range(3))
    pads = [(int(rng.integers(0, 4)), int(rng.integers(0, 3))) for _ in range(n)]
    pads = [(a if (s - 1) * b + 1 + a + c >= (k - 1) * d + 1 else (k - 1) * d, c)
            for (a, c), s, b, k, d in zip(pads, spatial, base, kernel, dilate)]
    letters = "DHW"[:n]
    labels = [["N", "C", *letters], ["O", "I", *letters], ["N", "C", *letters]]
    labels = ["".join(np.array(q)[rng.permutation(n + 2)]) for q in labels]
    size = {"N": parts * int(rng.integers(1, 4)), "C": i * groups, "O": o * groups * parts,
            "I": i}
    x = values(rng, t, [size[c] if c in size else spatial[letters.index(c)] for c in labels[0]])
    w = values(rng, t, [size[c] if c in size else kernel[letters.index(c)] for c in labels[1]])
    return lambda x, w: lax.conv_general_dilated(x, w, strides, pads, base, dilate, tuple(labels),
                                                 groups, parts,
                                                 preferred_element_type=wide(t)), x, w


def taps(rng, t):
    n = int(rng.integers(1, 3))
    kernel = ([int(rng.integers(130, 400))] if n == 1
              else [int(rng.integers(12, 20)) for _ in range(2)])
    spatial = [int(rng.integers(k, k + (3000 if n == 1 else 40))) for k in kernel]
    strides = [int(rng.choice([1, 1, 3])) for _ in range(n)]
    pads = [(int(rng.integers(0, k)), int(rng.integers(0, k))) for k in kernel]
    i, o, batch = (int(rng.integers(1, 3)) for _ in range(3))
    return lambda x, w: lax.conv_general_dilated(x, w, strides, pads), values(
        rng, t, [batch, i, *spatial]), values(rng, t, [o, i, *kernel])


def small(rng, t):
    m, k, n = (int(rng.integers(1, (33, 9, 129)[rng.integers(3)])) for _ in range(3))
    batch = [int(rng.integers(2, 9)) for _ in range(rng.integers(1, 3))]
    columns, turned, nb = *(int(c) for c in rng.integers(2, size=2)), len(batch)
    where = ((nb + 1 - columns,), (nb + turned,)), (tuple(range(nb)),) * 2
    return (lambda x, y: lax.dot_general(x, y, where),
            values(rng, t, batch + ([m, k], [k, m])[columns]),
            values(rng, t, batch + ([k, n], [n, k])[turned]))


def vector(rng, t):
    m, k, batch = (int(rng.integers(16, most)) for most in (300, 300, 20))
    batch = [batch - 15] if rng.integers(2) else []
    nb, turned = len(batch), int(rng.integers(2))
    a, x = values(rng, t, batch + [[m, k], [k, m]][turned]), values(rng, t, batch + [k])
    sides, where = [(a, nb + 1 - turned), (x, nb)], (tuple(range(nb)),) * 2
    (left, kl), (right, kr) = sides[::(1, -1)[rng.integers(2)]]
    return (lambda x, y: lax.dot_general(x, y, (((kl,), (kr,)), where))), left, right


def few(rng, t):
    """A few rows and a matrix, of which some do not stay in a cache from one run to the next."""
    rows, far, turned = int(rng.integers(1, 17)), rng.integers(2), int(rng.integers(2))
    k, n = (int(rng.integers(1, (80, 300)[rng.integers(2)])) for _ in range(2))
    if far:
        k = int(rng.integers(900, 5000))
        n = 10 * 2**18 // k + int(rng.integers(1, 70))
    a, w = values(rng, t, [rows, k]), values(rng, t, [n, k] if turned else [k, n])
    return lambda a, w: jax.nn.relu(lax.dot_general(a, w, (((1,), (turned,)), ((), ())))), a, w


def gradient(rng, t):
    n = int(rng.integers(1, 3))
    spatial = [int(rng.integers(9, 70 if n == 1 else 20)) for _ in range(n)]
    kernel = [int(rng.integers(1, 8 if n == 1 else 5)) for _ in range(n)]
    i, o, batch = int(rng.integers(1, 13)), int(rng.integers(3, 40)), int(rng.integers(1, 7))
    stride, dilate = (([int(rng.choice([1, 1, 2]))] * n) for _ in range(2))
    forward = lambda x, w: lax.conv_general_dilated(  # noqa: E731
        x, w, stride, "SAME", rhs_dilation=dilate)
    x, w = values(rng, t, [batch, i, *spatial]), values(rng, t, [o, i, *kernel])
    out = jax.eval_shape(forward, x, w).shape
    return lambda x, g: jax.vjp(lambda w: forward(x, w), w)[1](g)[0], x, values(rng, t, out)


def check(build, number, rng):
    t = list(TYPES)[number % len(TYPES)]
    others = number // len(TYPES) % 2
    kinds = (((few,), (taps, conv, small, gradient))[others] if t == np.float32 else
             (dot, conv, vector) if np.dtype(t).kind == "c" else
             (dot, conv) if t in SHORT else (dot, conv, small))
    kind = kinds[rng.integers(len(kinds))]
    f, x, y = kind(rng, t)
    want = np.asarray(jax.jit(f)(x, y))
    text = jax.jit(f).lower(x, y).as_text(dialect="hlo")
    with tempfile.TemporaryDirectory() as folder:
        forced = ["--impl", {small: "kernel", gradient: "kernel", few: "thin"}.get(kind, "gemm")]
        for impl, isa in (([], ""), (forced, ""), (forced, "avx2")):
            p, raw = run_text(build, folder, text, (x, y), isa, impl)
            if p.returncode:
                return text, "%s: %s" % (impl, p.stderr)
            got = np.frombuffer(raw, want.dtype).reshape(want.shape)
            error = (np.abs(got.astype(np.complex128) - want).max(initial=0)
                     / max(np.abs(want.astype(np.complex128)).max(initial=0), 1e-30))
            if not error <= TYPES[t]:
                return text, "%s %s: error %.2g, shape %s" % (impl, isa, error, want.shape)
    return text, None


if __name__ == "__main__":
    sys.exit(main("products", check, 36))
