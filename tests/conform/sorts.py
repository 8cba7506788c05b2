# SPDX-License-Identifier: Apache-2.0
"""Random sorts, argsorts and top-k against XLA:CPU, bit for bit: all types, one key or several, any
dimension, NaN of both signs, both zeros, ties.

    sorts.py BUILD [--n N] [--seed S]
"""
import os
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"
import jax  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from random_modules import main, run_text  # noqa: E402

TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int16, np.int32,
         np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]
LENGTHS = [1, 2, 3, 20, 48, 49, 200, 1500, 5000, 70000]


def values(rng, t, shape):
    kind = np.dtype(t).kind
    if kind in "iub":
        most = ({"b": 2, "i": 100, "u": 200}[kind] if rng.integers(2)
                else {"b": 2}.get(kind, 2 ** (8 * np.dtype(t).itemsize - 1) - 1))
        x = rng.integers(0, most, shape)
        return (x - most // 2 if kind == "i" else x).astype(t)
    x = rng.standard_normal(shape).astype(np.float32)
    if rng.integers(2):
        x = np.round(x * 4) / 4 * np.float32(1)  # ties
        for special in (np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf):
            x = np.where(rng.random(shape) < 0.03, np.float32(special), x)
    return x.astype(t)


def case(rng):
    n = int(rng.choice(LENGTHS))
    shape = [n] if n > 2000 else [[n], [3, n], [n, 3], [2, n, 2]][rng.integers(4)]
    pick = lambda: TYPES[rng.integers(len(TYPES))]  # noqa: E731
    if rng.integers(4) == 0:
        x = values(rng, pick(), [shape[0], n] if len(shape) > 1 else [n])
        k = int(rng.integers(1, min(x.shape[-1], 40) + 1))
        return lambda x: lax.top_k(x, k), [x]
    count = int(rng.integers(1, 4))
    keys = int(rng.integers(1, count + 1))
    operands = [values(rng, pick(), shape) for _ in range(count)]
    if rng.integers(3) == 0:  # only the beginning is read, in places as computed values
        dim, most = shape.index(n), int(rng.integers(1, max(n // 6, 1) + 1))
        first = lambda x, k: lax.slice_in_dim(x, 0, k, axis=dim)  # noqa: E731
        keys = 1 if rng.integers(4) else keys

        def beginning(*v):
            s = lax.sort(v, dimension=dim, num_keys=keys, is_stable=True)
            return [first(x, most) for x in s[:-1]] + [-first(s[-1], 1 + most // 2).astype(int)]
        return beginning, operands
    return lambda *v: lax.sort(v, dimension=shape.index(n), num_keys=keys, is_stable=True), operands


def check(build, number, rng):
    f, inputs = case(rng)
    want = b"".join(np.asarray(w).tobytes() for w in jax.tree.leaves(jax.jit(f)(*inputs)))
    text = jax.jit(f).lower(*inputs).as_text(dialect="hlo")
    with tempfile.TemporaryDirectory() as folder:
        p, got = run_text(build, folder, text, inputs)
    return text, p.stderr if p.returncode else None if got == want else "values differ"


if __name__ == "__main__":
    sys.exit(main("sorts", check, 30))
