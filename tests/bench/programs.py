# SPDX-License-Identifier: Apache-2.0
"""JAX programs that are not inference networks beside XLA:CPU: values and latency, interleaved, one
line a program and the geometric mean.

    programs.py BUILD [--threads N] [--rounds N] [--limit S] [--list] [NAME...] NAME: only programs
    whose name holds it

Each program is exported as HLO text by the installed JAX when this runs, so what is measured is
what JAX emits today. hlod's side is hlo-run, the device without daemon; XLA's is the same jitted
function. Best times; a program that hlod does not finish within the limit counts as the limit.
"""
import argparse
import math
import os
import select
import subprocess
import sys
import tempfile
import time

import numpy as np

PROGRAMS = {}


def program(name, *inputs):
    def add(f):
        PROGRAMS[name] = (f, inputs)
        return f
    return add


def f32(*shape):
    return "normal", np.float32, shape


def of(dtype, *shape):
    return "normal", dtype, shape


def below(n, *shape):
    return "below%d" % n, np.int32, shape


def make(kind, dtype, shape, rng):
    if kind.startswith("below"):
        return rng.integers(0, int(kind[5:]), shape).astype(dtype)
    if kind == "key":
        return np.array([1, 2], np.uint32)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-100, 100, shape).astype(dtype)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(dtype)


def define():
    import jax
    import jax.numpy as jnp
    import ml_dtypes
    from jax import lax
    bf16 = ml_dtypes.bfloat16

    def conv(x, w, stride=1, padding="SAME"):
        return lax.conv_general_dilated(x, w, (stride, stride), padding)

    program("cumsum 2048x1024, rows", f32(2048, 1024))(lambda x: jnp.cumsum(x, 0))
    program("cumsum 2048x1024, columns", f32(2048, 1024))(lambda x: jnp.cumsum(x, 1))
    program("cumprod 100000", f32(100000))(lambda x: jnp.cumprod(1 + x * 1e-3))
    program("cummax 2048x1024", f32(2048, 1024))(lambda x: lax.cummax(x, axis=1))
    program("cumlogsumexp 256x4096", f32(256, 4096))(lambda x: lax.cumlogsumexp(x, axis=1))
    program("associative scan, linear recurrence 4096x256", f32(4096, 256), f32(4096, 256))(
        lambda a, b: lax.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]),
                                          (jnp.tanh(a), b))[1])
    program("moving average, window 256 of 100000", f32(1, 100000))(
        lambda x: lax.reduce_window(x, 0., lax.add, (1, 256), (1, 1), "VALID") / 256)
    program("weight gradient 3x3, 64 at 56, batch 8", f32(8, 64, 56, 56), f32(8, 64, 56, 56),
            f32(64, 64, 3, 3))(lambda x, g, w: jax.vjp(lambda w: conv(x, w), w)[1](g)[0])
    program("weight gradient 3x3, stride 2", f32(8, 64, 56, 56), f32(8, 64, 28, 28),
            f32(64, 64, 3, 3))(lambda x, g, w: jax.vjp(lambda w: conv(x, w, 2), w)[1](g)[0])
    program("input gradient 3x3, stride 1", f32(8, 64, 56, 56), f32(8, 64, 56, 56),
            f32(64, 64, 3, 3))(lambda x, g, w: jax.vjp(lambda x: conv(x, w), x)[1](g)[0])
    program("input gradient 3x3, stride 2", f32(8, 64, 56, 56), f32(8, 64, 28, 28),
            f32(64, 64, 3, 3))(lambda x, g, w: jax.vjp(lambda x: conv(x, w, 2), x)[1](g)[0])
    program("conv_transpose 4x4 stride 2, 64 to 64 at 28", f32(8, 28, 28, 64), f32(4, 4, 64, 64))(
        lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"))
    for name, dtype in (("f64", np.float64), ("bf16", bf16), ("f16", np.float16),
                        ("c64", np.complex64), ("s32", np.int32)):
        program("dot 1024, " + name, of(dtype, 1024, 1024),
                of(dtype, 1024, 1024))(lambda x, y: x @ y)
    program("dot 200x300x100 of 16, f64", of(np.float64, 16, 200, 300),
            of(np.float64, 16, 300, 100))(lambda x, y: x @ y)
    for name, dtype in (("bf16", bf16), ("f64", np.float64)):
        program("conv 3x3, 64 at 56, batch 8, " + name, of(dtype, 8, 64, 56, 56),
                of(dtype, 64, 64, 3, 3))(conv)
    program("sort 1M f32", f32(1000000))(jnp.sort)
    program("argsort 256x4096", f32(256, 4096))(lambda x: jnp.argsort(x, axis=1))
    program("top-k 100 of 1M", f32(1000000))(lambda x: lax.top_k(x, 100))
    program("sort by key, two values, 200000", below(1000, 200000), f32(200000),
            f32(200000))(lambda k, a, b: lax.sort((k, a, b), num_keys=1))
    program("embedding gradient 32000x128, 4096 tokens", f32(32000, 128), below(32000, 8, 512),
            f32(8, 512, 128))(lambda e, t, g: jax.vjp(lambda e: e[t], e)[1](g)[0])
    program("segment sums, 200000x16 in 1000", f32(200000, 16),
            below(1000, 200000))(lambda x, s: jax.ops.segment_sum(x, s, 1000))
    program("histogram of 1M in 256",
            below(256, 1000000))(lambda x: jnp.zeros(256, jnp.int32).at[x].add(1))
    program("max pool gradient", f32(8, 64, 56, 56), f32(8, 64, 28, 28))(
        lambda x, g: jax.vjp(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2),
                                                         (1, 1, 2, 2), "VALID"), x)[1](g)[0])

    def mandelbrot(re, im):
        c = lax.complex(re[None, :], im[:, None])

        def step(_, s):
            z, n = s
            z = jnp.where(jnp.abs(z) < 2, z * z + c, z)
            return z, n + (jnp.abs(z) < 2)
        return lax.fori_loop(0, 50, step, (jnp.zeros_like(c), jnp.zeros(c.shape, jnp.int32)))[1]
    program("Mandelbrot 300x300, 50 steps", f32(300), f32(300))(mandelbrot)
    program("n-body 512, 1 step", f32(512, 3), f32(512))(
        lambda p, m: jnp.einsum("ijk,ij->ik", p[None] - p[:, None],
                                m[None] / (jnp.sum((p[None] - p[:, None]) ** 2, -1) + 1e-2) ** 1.5))
    program("while of 20 small steps, 10000", f32(10000))(
        lambda x: lax.fori_loop(0, 20, lambda k, x: jnp.sin(x) * 0.99 + 0.01, x))
    program("rfft and irfft, 64x4096",
            f32(64, 4096))(lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 0.5))
    program("fft 1M c64", of(np.complex64, 1 << 20))(jnp.fft.fft)
    program("normal(1e6)", ("key", np.uint32, (2,)))(
        lambda k: jax.random.normal(jax.random.wrap_key_data(k), (1000000,)))

    def kmeans(x, c):
        def step(c, _):
            d = jnp.sum(x * x, 1)[:, None] - 2 * x @ c.T + jnp.sum(c * c, 1)[None]
            w = jax.nn.one_hot(jnp.argmin(d, 1), c.shape[0])
            return (w.T @ x) / jnp.maximum(w.sum(0)[:, None], 1), None
        return lax.scan(step, c, None, 5)[0]
    program("k-means 20000x16, 32 centres, 5 steps", f32(20000, 16), f32(32, 16))(kmeans)
    program("power iteration of a covariance 4096x256", f32(4096, 256), f32(256))(
        lambda x, v: lax.fori_loop(
            0, 20, lambda _, v: (lambda u: u / jnp.linalg.norm(u))(x.T @ (x @ v)), v))
    program("transpose 4096x2048", f32(4096, 2048))(lambda x: x.T + 1)

    program("argmax of rows, 20000x100", f32(20000, 100))(lambda x: jnp.argmax(x, 1))
    program("argmin of columns, 2000x1000", f32(2000, 1000))(lambda x: jnp.argmin(x, 0))
    program("median of rows, 1000x1001", f32(1000, 1001))(lambda x: jnp.median(x, 1))
    program("searchsorted 100000 in 10000", f32(10000),
            f32(100000))(lambda a, v: jnp.searchsorted(jnp.sort(a), v))
    program("interp 100000 in 1000", f32(100000), f32(1000),
            f32(1000))(lambda x, xp, fp: jnp.interp(x, jnp.sort(xp), fp))
    program("convolve 100000 with 1000", f32(100000),
            f32(1000))(lambda x, k: jnp.convolve(x, k, mode="same"))
    program("permutation of 100000", ("key", np.uint32, (2,)))(
        lambda k: jax.random.permutation(jax.random.wrap_key_data(k), 100000))
    program("categorical 1000x1000", ("key", np.uint32, (2,)), f32(1000, 1000))(
        lambda k, x: jax.random.categorical(jax.random.wrap_key_data(k), x))
    program("gamma(100000)", ("key", np.uint32, (2,)), f32(100000))(
        lambda k, a: jax.random.gamma(jax.random.wrap_key_data(k), jnp.abs(a) + 0.5))
    program("special functions of 100000", f32(100000))(
        lambda x: jax.scipy.special.gammaln(jnp.abs(x) + 1) + jax.scipy.special.digamma(
            jnp.abs(x) + 1) + jax.scipy.special.erfinv(jnp.tanh(x)))
    program("matrix times vector, f64 2000", of(np.float64, 2000, 2000),
            of(np.float64, 2000))(lambda a, x: a @ x)
    program("vector times matrix, c64 1000", of(np.complex64, 1000),
            of(np.complex64, 1000, 1000))(lambda x, a: x @ a)
    program("einsum over three, f32 64", f32(64, 64, 64),
            f32(64, 64, 64))(lambda x, y: jnp.einsum("ijk,kjl->il", x, y))
    program("sum and variance by columns, bf16 4096x1024",
            of(bf16, 4096, 1024))(lambda x: (x.sum(0), x.var(0)))
    program("gather of 100000 rows of 64", f32(50000, 64), below(50000, 100000))(lambda x, i: x[i])
    program("roll and differences, 2048x2048",
            f32(2048, 2048))(lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -1, 1) - 2 * x)
    program("stencil of 100 steps, 512x512", f32(512, 512))(
        lambda x: lax.fori_loop(
            0, 100, lambda _, x: x.at[1:-1, 1:-1].set(
                0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2])), x))
    program("triangular solve 256, 64 right sides", f32(256, 256), f32(256, 64))(
        lambda a, b: jax.scipy.linalg.solve_triangular(a + 256 * jnp.eye(256), b, lower=True))
    program("LSTM by scan, 100 steps, batch 32, 128", f32(100, 32, 128), f32(256, 512))(
        lambda x, w: lax.scan(
            lambda s, x: (
                lambda i, f, g, o: (lambda c: (((jax.nn.sigmoid(o) * jnp.tanh(c)), c), c))(
                    jax.nn.sigmoid(f) * s[1] + jax.nn.sigmoid(i) * jnp.tanh(g)))(
                *jnp.split(jnp.concatenate([x, s[0]], 1) @ w * 0.05, 4, 1)),
            (jnp.zeros((32, 128)), jnp.zeros((32, 128))), x)[1])
    program("Adam step of 1M", f32(1000000), f32(1000000), f32(1000000), f32(1000000))(
        lambda p, m, v, g: (
            p - 1e-3 * (0.9 * m + 0.1 * g) / (jnp.sqrt(jnp.abs(0.999 * v + 0.001 * g * g)) + 1e-8),
            0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g))
    program("batched matrix products, s8 64x128x128", of(np.int8, 64, 128, 128),
            of(np.int8, 64, 128, 128))(
        lambda x, y: lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,))),
                                     preferred_element_type=jnp.int32))
    program("attention and its gradient, 4x8x128x64", f32(4, 8, 128, 64), f32(4, 8, 128, 64),
            f32(4, 8, 128, 64))(
        jax.grad(lambda q, k, v: jnp.sum(
                     jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k) / 8) @ v), (0, 1, 2)))
    program("layer norm and its gradient, 4096x512", f32(4096, 512), f32(512))(
        jax.grad(lambda x, g: jnp.sum(((x - x.mean(1, keepdims=True))
                                       * lax.rsqrt(x.var(1, keepdims=True) + 1e-5) * g) ** 2),
                 (0, 1)))
    program("depthwise weight gradient, 32 at 56, batch 8", f32(8, 32, 56, 56), f32(8, 32, 56, 56),
            f32(32, 1, 3, 3))(
        lambda x, g, w: jax.vjp(lambda w: lax.conv_general_dilated(
                                    x, w, (1, 1), "SAME", feature_group_count=32), w)[1](g)[0])
    program("weight gradient of NHWC, stride 2, 7x7 of 3", f32(8, 112, 112, 3), f32(8, 56, 56, 64),
            f32(7, 7, 3, 64))(lambda x, g, w: jax.vjp(lambda w: lax.conv_general_dilated(
                                                          x, w, (2, 2), "SAME", dimension_numbers=(
                                                              "NHWC", "HWIO", "NHWC")), w)[1](g)[0])
    program("average pool gradient", f32(8, 64, 56, 56), f32(8, 64, 28, 28))(
        lambda x, g: jax.vjp(lambda x: lax.reduce_window(x, 0., lax.add, (1, 1, 2, 2), (1, 1, 2, 2),
                                                         "VALID") / 4, x)[1](g)[0])
    program("1-d convolution gradient, 64 at 4000", f32(4, 64, 4000), f32(64, 64, 5))(
        jax.grad(lambda x, w: jnp.sum(lax.conv_general_dilated(x, w, (1,), "SAME") ** 2), (0, 1)))

    def mlp_loss(p, x, y):
        for w, b in p[:-1]:
            x = jax.nn.relu(x @ w + b)
        x = x @ p[-1][0] + p[-1][1]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    def mlp_step(w1, b1, w2, b2, w3, b3, x, y):
        p = [(w1, b1), (w2, b2), (w3, b3)]
        g = jax.grad(mlp_loss)(p, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, g)
    program("MLP training step, batch 128", f32(784, 512), f32(512), f32(512, 256), f32(256),
            f32(256, 10), f32(10), f32(128, 784), below(10, 128))(mlp_step)

    def cnn_loss(p, x, y):
        for w in p[:-1]:
            x = jax.nn.relu(conv(x, w))
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        x = x.reshape(x.shape[0], -1) @ p[-1]
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))

    def cnn_step(w1, w2, w3, x, y):
        p = [w1 * 0.1, w2 * 0.1, w3 * 0.01]
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(cnn_loss)(p, x, y))
    program("CNN training step, batch 32 of 28x28", f32(32, 1, 3, 3), f32(64, 32, 3, 3),
            f32(3136, 10), f32(32, 1, 28, 28), below(10, 32))(cnn_step)

    def block(x, w1, w2, g1, g2):
        def norm(x, g):
            m = x.mean((0, 2, 3), keepdims=True)
            v = ((x - m) ** 2).mean((0, 2, 3), keepdims=True)
            return (x - m) * lax.rsqrt(v + 1e-5) * g[None, :, None, None]
        h = jax.nn.relu(norm(conv(x, w1), g1))
        return jax.nn.relu(x + norm(conv(h, w2), g2))

    def resnet_step(stem, w1, w2, w3, w4, g, x):
        def loss(p):
            stem, w1, w2, w3, w4, g = p
            h = jax.nn.relu(conv(x, stem, 2))
            h = block(block(h, w1, w2, g[0], g[1]), w3, w4, g[2], g[3])
            return jnp.mean(h.mean((2, 3)) ** 2)
        p = [stem * 0.1, w1 * 0.05, w2 * 0.05, w3 * 0.05, w4 * 0.05, g]
        return jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(loss)(p))
    program("ResNet training step, stem and two blocks, batch 8 of 112x112", f32(64, 3, 7, 7),
            *[f32(64, 64, 3, 3)] * 4, f32(4, 64), f32(8, 3, 112, 112))(resnet_step)


def text_of(f, inputs):
    import jax
    return jax.jit(f, keep_unused=True).lower(*inputs).as_text(dialect="hlo")


class Ours:
    """hlo-run --loop on a module and its inputs."""

    def __init__(self, build, folder, text, inputs, threads):
        self.path, self.files = os.path.join(folder, "m.hlo"), []
        self.env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        with open(self.path, "w") as f:
            f.write(text)
        for k, x in enumerate(inputs):
            x.tofile(os.path.join(folder, "in%d" % k))
            self.files += ["--in", os.path.join(folder, "in%d" % k)]
        self.out, self.tool, self.loop = os.path.join(folder, "out"), os.path.join(
            build, "hlo-run"), None

    def values(self, limit):
        p = subprocess.run([self.tool, *self.files, "--out", self.out, self.path],
                           capture_output=True, text=True, env=self.env, timeout=limit)
        if p.returncode:
            raise RuntimeError(p.stderr.strip() or p.stdout.strip())
        return open(self.out, "rb").read()

    def times(self, n, limit):
        if not self.loop:
            self.loop = subprocess.Popen([self.tool, "--loop", *self.files, self.path],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, env=self.env, text=True)
        print(n, file=self.loop.stdin, flush=True)
        if not select.select([self.loop.stdout], [], [], limit)[0]:
            raise TimeoutError
        return [float(t) for t in self.loop.stdout.readline().split()]

    def end(self):
        if self.loop:
            self.loop.kill()
            self.loop.wait()


def error_of(raw, want):
    worst, at = 0.0, 0
    for w in want:
        w = np.asarray(w)
        got = np.frombuffer(raw[at:at + w.nbytes], w.dtype).reshape(w.shape)
        at += w.nbytes
        kind = np.complex128 if w.dtype.kind == "c" else np.float64
        g, w = got.astype(kind), w.astype(kind)
        bad = ~((g == w) | (np.isnan(g) & np.isnan(w)))
        if bad.any():
            scale = max(float(np.abs(w[np.isfinite(w)]).max(initial=0)), 1e-30)
            worst = max(worst, float(np.nan_to_num(np.abs(g - w)[bad], nan=np.inf).max()) / scale)
    return worst


def measure(name, args):
    import jax
    f, kinds = PROGRAMS[name]
    rng = np.random.default_rng(1)
    inputs = [make(*k, rng) for k in kinds]
    jax.config.update("jax_enable_x64", any(k[1] == np.float64 for k in kinds))
    jitted = jax.jit(f)
    want = jax.tree.leaves(jax.block_until_ready(jitted(*inputs)))
    on_device = [jax.device_put(x) for x in inputs]
    ours, theirs, error = [], [], math.nan
    with tempfile.TemporaryDirectory() as folder:
        run = Ours(args.build, folder, text_of(f, inputs), inputs, args.threads)
        try:
            error = error_of(run.values(args.limit), want)
            n = max(1, min(50, int(200 / max(run.times(1, args.limit)[-1], 0.01))))
            for _ in range(args.rounds):
                ours += run.times(n, args.limit)
                for _ in range(min(n, 10)):
                    start = time.perf_counter()
                    jax.block_until_ready(jitted(*on_device))
                    theirs.append((time.perf_counter() - start) * 1e3)
        except (TimeoutError, subprocess.TimeoutExpired):
            ours.append(args.limit * 1e3)
        finally:
            run.end()
    while len(theirs) < 3:
        start = time.perf_counter()
        jax.block_until_ready(jitted(*on_device))
        theirs.append((time.perf_counter() - start) * 1e3)
    return min(ours), min(theirs), error


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("names", nargs="*", default=[])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--limit", type=float, default=20, help="seconds for one run of hlod's")
    p.add_argument("--from", dest="first", type=int, default=0, help="leave out so many programs")
    p.add_argument("--list", action="store_true")
    args = p.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    if args.threads == 1:
        os.environ[
            "XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import programs_applied  # they need jax, which reads the environment
    import programs_found
    import programs_arrays
    import programs_loops
    import programs_numerics
    import programs_random
    define()
    programs_numerics.define(program, f32, below)
    for more in (programs_loops, programs_random, programs_arrays, programs_applied,
                 programs_found):
        more.define(program, f32, below, of)
    logs, wrong = [], 0
    for name in list(PROGRAMS)[args.first:]:
        if args.names and not any(n in name for n in args.names):
            continue
        if args.list:
            print(name)
            continue
        try:
            ours, theirs, error = measure(name, args)
        except RuntimeError as e:
            print("%-62s refused: %s" % (name, str(e)[:200]), flush=True)
            wrong += 1
            continue
        logs.append(math.log(theirs / ours))
        print("%-62s hlod %10.3f ms  XLA %9.3f ms  %6.2f  error "
              "%.1e" % (name, ours, theirs, theirs / ours, error), flush=True)
    if logs:
        print("geometric mean %.2f of XLA:CPU's speed over %d programs, %d threads; refused %d"
              % (math.exp(sum(logs) / len(logs)), len(logs), args.threads, wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
