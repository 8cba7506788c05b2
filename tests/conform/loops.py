# SPDX-License-Identifier: Apache-2.0
"""Loops of elementwise steps, which fuse-while makes one kernel of, beside JAX on XLA:CPU: carried
arrays of every type, values that all lanes share, results of each turn kept forwards and backwards
and read again, states of a few elements, and loops near these that must stay loops.

    loops.py BUILD    PASS or FAIL a program: values, and whether it is a kernel
"""
import os
import subprocess
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
import numpy as np  # noqa: E402

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "bench"))
from programs import error_of  # noqa: E402

CASES = []


def case(name, *inputs, kernel=True, tol=2e-6):
    def add(f):
        CASES.append((name, f, inputs, kernel, tol))
        return f
    return add


def of(dtype, *shape):
    rng = np.random.default_rng(len(CASES) + sum(shape))
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 100, shape).astype(dtype)
    if np.dtype(dtype) == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def define():
    repeat = lambda n, f: lambda *x: lax.fori_loop(0, n, lambda i, s: f(i, *s), x)
    for n in (1, 7, 33, 50, 1000, 4097):
        case("logistic map of %d" % n, of(np.float32, n), kernel=n <= 8 or n >= 32, tol=1e-4)(
            lambda x: lax.fori_loop(0, 9, lambda _, x: 3.1 * x * (1 - x), jax.nn.sigmoid(x)))
    for t in ("float64", "bfloat16", "float16", "int8", "uint8", "int16", "uint32", "int64"):
        t = jnp.dtype(t)
        kind = t.kind in "iu"
        case("steps of %s" % t, of(t, 300), of(t, 300), tol=0 if kind else
             1e-12 if t == np.float64 else 2e-2)(
            repeat(11, (lambda i, x, y: (y * 3 + x, x ^ y)) if kind else
                   (lambda i, x, y: (jnp.sin(y) * 0.5 + x * 0.25, jnp.tanh(x - y)))))
    case("Mandelbrot", of(np.float32, 40), of(np.float32, 30))(
        lambda a, b: lax.fori_loop(
            0, 30, lambda _, s: (lambda z: (z, s[1] + (jnp.abs(z) < 2)))(
                jnp.where(jnp.abs(s[0]) < 2, s[0] * s[0] + s[2], s[0])) + (s[2],),
            (jnp.zeros((30, 40), jnp.complex64), jnp.zeros((30, 40), jnp.int32),
             lax.complex(a[None] + 0 * b[:, None], b[:, None] + 0 * a[None])))[1])
    case("complex of 128 bits", of(np.complex128, 70), tol=1e-12)(
        lambda z: lax.fori_loop(0, 6, lambda _, z: z - (z ** 3 - 1) / (3 * z * z), z))
    case("predicates", of(np.bool_, 500), of(np.float32, 500))(
        repeat(5, lambda i, p, x: (p ^ (x > 0.1 * i), jnp.where(p, x - 0.3, x + 0.2))))
    case("values that lanes share", of(np.float32, 2, 600), of(np.float32, 3))(
        lambda x, w: lax.fori_loop(
            0, 13, lambda i, s: (s[0] * s[1][0] + s[1][2] * i, jnp.roll(s[1], 1) * 0.5),
            (x, jnp.tanh(w))))
    case("the shared value alone is read", of(np.float32, 64))(
        lambda x: lax.fori_loop(0, 40, lambda i, s: (s[0] + 1, s[1] * 0.5 + i), (x, 1.0))[1])
    case("kept and read again", of(np.float32, 20, 300), of(np.float32, 300))(
        lambda xs, s: lax.scan(lambda s, x: ((s * 0.9 + x), s * x), s, xs))
    case("kept backwards", of(np.float32, 20, 300), of(np.float32, 300))(
        lambda xs, s: lax.scan(lambda s, x: ((s * 0.9 + x), s * x), s, xs, reverse=True))
    case("three values a lane, kept", of(np.float32, 17, 100, 3), of(np.float32, 100, 3))(
        lambda xs, s: lax.scan(
            lambda s, x: (jnp.stack([s[:, 1], s[:, 2] * 0.5, s[:, 0] + x[:, 1]], 1),
                          s.sum(1, keepdims=True) + x), s, xs))
    case("gradient of a scan", of(np.float32, 12, 200), of(np.float32, 200))(
        jax.grad(lambda xs, s: jnp.sum(lax.scan(lambda s, x: (jnp.tanh(s * 0.9 + x), s * x),
                                                s, xs)[1] ** 2), (0, 1)))
    case("three scalars", of(np.float32, 3), tol=1e-4)(
        lambda s: lax.scan(lambda s, _: (s + 0.01 * jnp.stack(
            [10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]]), s),
            s, None, 200))
    case("rotations by a matrix of 2x2", of(np.float32, 2), of(np.float32, 2, 2))(
        lambda x, m: lax.fori_loop(0, 30, lambda _, x: (m * 0.4) @ x, x))
    case("a Kalman filter of one value", of(np.float32, 100))(
        lambda zs: lax.scan(lambda s, z: (lambda k: ((s[0] + k * (z - s[0]), (1 - k) * s[1] + 0.1),
                                                     s[0]))(s[1] / (s[1] + 1)), (0.0, 1.0), zs))
    case("a turn of everything", of(np.float32, 31, 31, 2), of(np.int32, 31, 31, 2))(
        repeat(7, lambda i, x, n: (jnp.where(n % 2 == 0, x * 0.5, x + 1 / (1 + n)),
                                   lax.select(n > 50, n // 2, n * 3 + i))))
    case("turns downwards", of(np.float32, 128))(
        lambda x: lax.while_loop(lambda s: s[0] > 3, lambda s: (s[0] - 2, s[1] * 0.5 + s[0]),
                                 (20, x)))
    case("twenty arrays", *[of(np.float32, 200)] * 20)(
        repeat(9, lambda i, *x: tuple(a * 0.5 + b for a, b in zip(x, x[1:] + x[:1]))))
    case("neighbours stay a loop", of(np.float32, 100), kernel=False)(
        lambda x: lax.fori_loop(0, 10, lambda _, x: jnp.roll(x, 1) * 0.5 + x, x))
    case("a sum over lanes stays a loop", of(np.float32, 100), kernel=False)(
        lambda x: lax.fori_loop(0, 10, lambda _, x: x - x.mean(), x))
    case("turns by value stay a loop", of(np.float32, 100), kernel=False)(
        lambda x: lax.while_loop(lambda x: jnp.max(jnp.abs(x)) > 0.1, lambda x: x * 0.5, x))
    case("lanes read at a turn stay a loop", of(np.float32, 100), kernel=False)(
        lambda x: lax.fori_loop(0, 10, lambda i, x: x * 0.5 + x[i], x))
    case("a stack that is read stays a loop", of(np.float32, 40), kernel=False)(
        lambda x: lax.fori_loop(1, 10, lambda i, s: s.at[i].set(s[i - 1] * 0.5 + x),
                                jnp.zeros((10, 40)) + x))


def hlo(folder, build, f, inputs):
    path, out = os.path.join(folder, "m.hlo"), os.path.join(folder, "out")
    with open(path, "w") as file:
        file.write(jax.jit(f, keep_unused=True).lower(*inputs).as_text(dialect="hlo"))
    files = []
    for k, x in enumerate(inputs):
        np.asarray(x).tofile(os.path.join(folder, "in%d" % k))
        files += ["--in", os.path.join(folder, "in%d" % k)]
    p = subprocess.run([os.path.join(build, "hlo-run"), *files, "--out", out, "--explain", path],
                       capture_output=True, text=True, timeout=120)
    if p.returncode:
        return None, p.stderr.strip() or p.stdout.strip()
    return open(out, "rb").read(), p.stdout + p.stderr


def worst(raw, want):
    whole = sum(np.asarray(w).nbytes for w in want) == len(raw)
    return error_of(raw, want) if whole else float("inf")


def main():
    build = sys.argv[1]
    jax.config.update("jax_enable_x64", True)
    define()
    for name, f, inputs, kernel, tol in CASES:
        with tempfile.TemporaryDirectory() as folder:
            raw, said = hlo(folder, build, f, inputs)
        if raw is None:
            print("FAIL", name, said)
            continue
        error = worst(raw, jax.tree.leaves(jax.jit(f)(*inputs)))
        made = " while" in said and "fused:" in said
        ok = error <= tol and made == kernel and " 0 reference steps" in said
        print("PASS" if ok else "FAIL", name,
              "" if ok else "error %.3g, kernel %s\n%s" % (error, made, said))


main()
