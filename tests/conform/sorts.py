# SPDX-License-Identifier: Apache-2.0
"""Random sorts, argsorts and top-k against XLA:CPU, bit for bit: all types, one key or several, any dimension, NaN of both signs, both zeros, ties.

    sorts.py BUILD [--n N] [--seed S]
"""
import argparse
import os
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"
import jax  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from products import run  # noqa: E402

TYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]
LENGTHS = [1, 2, 3, 20, 48, 49, 200, 1500, 5000, 70000]


def values(rng, t, shape):
    kind = np.dtype(t).kind
    if kind in "iub":
        most = {"b": 2, "i": 100, "u": 200}[kind] if rng.integers(2) else {"b": 2}.get(kind, 2 ** (8 * np.dtype(t).itemsize - 1) - 1)
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
    return lambda *v: lax.sort(v, dimension=shape.index(n), num_keys=keys, is_stable=True), operands


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--n", type=int, default=30)
    p.add_argument("--seed", type=int, default=1)
    args = p.parse_args()
    failed = 0
    for number in range(args.n):
        f, inputs = case(np.random.default_rng([args.seed, number]))
        want = b"".join(np.asarray(w).tobytes() for w in jax.tree.leaves(jax.jit(f)(*inputs)))
        text = jax.jit(f).lower(*inputs).as_text(dialect="hlo")
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "m.hlo"), "w") as file:
                file.write(text)
            got = run(args.build, folder, inputs, [], "")
        if got != want:
            failed += 1
            print("FAIL sorts %d of seed %d: %s\n%s" % (number, args.seed, got if isinstance(got, str) else "values differ", text))
    print("%s sorts: %d modules, %d differ" % ("FAIL" if failed else "PASS", args.n, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
