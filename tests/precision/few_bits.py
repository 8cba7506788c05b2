# SPDX-License-Identifier: Apache-2.0
"""Products with weights of 2, 4 and 8 bits, as decoders written in JAX hold them, against XLA:CPU.

    few_bits.py BUILD [--n N] [--seed S]

Weights [k, n] and [n, k] on either side of a dot, symmetric or with zeros, one scale for all, for
each column or for blocks of k; k that fills no word of 32 bits; activations of f32, bf16 and f16,
now and then with an infinity; in the entry, in a loop whose turns only a run knows, in a scan, in a
loop in a loop, and of stacks by a scan over layers in a loop. Each of a few rows must have run on
the packed weights.
"""
import argparse
import os
import subprocess
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402

RANGES = {"int8": (-128, 128), "uint8": (0, 256), "int4": (-8, 8), "uint4": (0, 16),
          "int2": (-2, 2), "uint2": (0, 4)}


class Case:
    def __init__(self, rng):
        def pick(*of):
            return of[int(rng.integers(len(of)))]
        self.k, self.n = pick(256, 512, 260, 300, 331, 777, 1025), pick(257, 300, 513, 1024)
        if self.k * self.n < 1 << 16:
            self.n = 1024
        self.dtype, self.k_first = pick(*RANGES), pick(True, False)
        self.rows = pick((), (1,), (3,), (2, 4), (17,))
        self.block = pick(16, 32, 64)
        if self.k % self.block:
            self.block = self.k
        self.scale = pick("none", "tensor", "column", "block")
        self.zero = pick("none", "none", "tensor", "column", "block")
        self.x_dtype = pick(jnp.float32, jnp.float32, jnp.bfloat16, jnp.float16)
        self.left = pick(True, False)
        self.where = pick("entry", "loop", "scan", "nested", "layers")
        low, high = RANGES[self.dtype]
        shape = (self.k, self.n) if self.k_first else (self.n, self.k)
        self.q = rng.integers(low, high, shape).astype(getattr(ml_dtypes, self.dtype, self.dtype))
        self.s = rng.random(self.sizes(self.scale), dtype=np.float32) * .02 + np.float32(.001)
        self.z = rng.integers(low, high, self.sizes(self.zero)).astype(np.int32)
        self.x = (rng.standard_normal(self.rows + (self.k,)) / self.k ** .5).astype(np.float32)
        if rng.random() < .1:
            self.x.reshape(-1)[int(rng.integers(self.x.size))] = pick(np.inf, -np.inf, np.nan)

    def sizes(self, kind):
        blocks = self.k // self.block
        by_block = (blocks, self.n) if self.k_first else (self.n, blocks)
        return {"none": (), "tensor": (), "column": (self.n,), "block": by_block}[kind]

    def spread(self, a, kind):
        shape, blocks = self.q.shape, self.k // self.block
        if kind == "column":
            a = a[None, :] if self.k_first else a[:, None]
        if kind == "block" and self.k_first:
            a = jnp.broadcast_to(a[:, None, :], (blocks, self.block, self.n)).reshape(shape)
        elif kind == "block":
            a = jnp.broadcast_to(a[:, :, None], (self.n, blocks, self.block)).reshape(shape)
        return jnp.broadcast_to(a, shape)

    def dot(self, x, q=None, s=None):
        w = jnp.asarray(self.q if q is None else q)
        w = w.astype(jnp.float32 if self.zero == "none" else jnp.int32)
        if self.zero != "none":
            w = (w - self.spread(jnp.asarray(self.z), self.zero)).astype(jnp.float32)
        if self.scale != "none":
            w = w * self.spread(jnp.asarray(self.s if s is None else s), self.scale)
        of_x, of_w = x.ndim - 1, 0 if self.k_first else 1
        w, x = w.astype(self.x_dtype), x.astype(self.x_dtype)
        sides = ((w, x), (of_w, of_x)) if self.left else ((x, w), (of_x, of_w))
        return lax.dot_general(*sides[0], (((sides[1][0],), (sides[1][1],)), ((), ())),
                               preferred_element_type=jnp.float32)

    def program(self, x, turns):
        if self.where == "entry":
            return self.dot(x) * turns.astype(jnp.float32)
        start = jnp.zeros(jax.eval_shape(self.dot, x).shape, jnp.float32)

        def turn(i, sums):
            return sums * .5 + self.dot(x * (1 + jnp.asarray(i, jnp.float32) * .25))
        if self.where == "loop":
            return lax.fori_loop(0, turns, turn, start)
        if self.where == "scan":
            return lax.scan(lambda s, i: (turn(i, s), None), start, jnp.arange(9.))[0] * turns
        if self.where == "layers":
            stacks = (np.stack([self.q, self.q[::-1], self.q[:, ::-1]]),
                      np.stack([self.s, self.s * 2, self.s / 4]))

            def layer(sums, of):
                return sums * .5 + self.dot(x, *of), None
            return lax.fori_loop(0, turns, lambda _, s: lax.scan(layer, s, stacks)[0], start)
        return lax.fori_loop(0, turns, lambda _, s: lax.fori_loop(0, 9 + 0 * turns, turn, s), start)


def check(build, folder, case, name):
    turns = np.int32(3)
    lowered = jax.jit(case.program).lower(case.x, turns)
    want = np.asarray(lowered.compile()(case.x, turns))
    paths = [os.path.join(folder, f) for f in ("x", "turns", "m.hlo", "out")]
    case.x.tofile(paths[0])
    turns.tofile(paths[1])
    with open(paths[2], "w", encoding="utf-8") as f:
        f.write(lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True))
    r = subprocess.run([build + "/hlo-run", "--in", paths[0], "--in", paths[1], "--out", paths[3],
                        "--time", "1", "--plan", paths[2]],
                       capture_output=True, text=True, timeout=120)
    if r.returncode:
        return "%s: exit code %d: %s" % (name, r.returncode, r.stderr[-300:])
    got = np.fromfile(paths[3], np.float32).reshape(want.shape)
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True):
        return name + ": what is not finite differs"
    bound = (3e-5 if case.x_dtype == jnp.float32 else 2e-2) * np.abs(want[finite]).max(initial=0)
    if not (np.abs(got - want)[finite] <= bound).all():
        return "%s: %g from XLA's, %g allowed" % (name, np.abs(got - want)[finite].max(), bound)
    if case.rows != (17,) and "bits" not in r.stdout + r.stderr:
        return name + ": was not run on packed weights"
    return None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--n", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for k in range(a.n):
            case = Case(np.random.default_rng([a.seed, k]))
            name = "few-bits %d (%s, %s of %s, k %d, n %d, rows %s)" % (
                k, case.where, case.dtype, np.dtype(case.x_dtype).name, case.k, case.n, case.rows)
            wrong = check(a.build, folder, case, name)
            failed += wrong is not None
            print("FAIL " + wrong if wrong else "PASS " + name)
            jax.clear_caches()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
