# SPDX-License-Identifier: Apache-2.0
"""Derivatives by hlo-opt --gradient and --jvp, compiled and run on the CPU, against jax.vjp and
jax.jvp of the same function in double precision: arithmetic, contractions, windows, indexing,
sorting, linear algebra, transforms, branches and loops.
   jax_gradient.py BUILD [NAME]..."""
import os
import subprocess
import sys
import tempfile

import numpy as np

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

jax.config.update("jax_enable_x64", True)
R = np.random.RandomState(5)
TOL = 1e-10


def r(*shape):
    return R.randn(*shape)


def z(*shape):
    return R.randn(*shape) + 1j * R.randn(*shape)


def near_one(*shape):
    return 1.1 + 0.8 * R.rand(*shape)


I = np.array([1, 5, 2, 5])
SPD = (lambda m: m @ np.swapaxes(m, -1, -2) + 4 * np.eye(4))(r(2, 4, 4))
TRI = np.tril(r(2, 4, 4)) + 4 * np.eye(4)


def conv(x, w, strides=(1, 1), padding="SAME", dims=("NCHW", "OIHW", "NCHW"), **kw):
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=dims, **kw)


def attention(x, q, k, v):
    s = jax.nn.softmax((x @ q) @ jnp.swapaxes(x @ k, -1, -2) / 3)
    return s @ (x @ v)


def layer_norm(x, g, b):
    n = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    return n * g + b


def lstm(x, w, u):
    def cell(s, x):
        h, c = s
        i, f, g, o = jnp.split(x @ w + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h
    n = jnp.zeros((x.shape[1], u.shape[0]))
    return lax.scan(cell, (n, n), x)


def nested(x, w):
    def outer(s, row):
        return lax.fori_loop(0, 3, lambda k, s: jnp.sin(s @ w) + row, s), (s * row).sum()
    return lax.scan(outer, jnp.zeros(x.shape[1]), x)


def branching(x, w):
    def turn(s, row):
        s = lax.cond(row.sum() > 0, lambda s: jnp.tanh(s @ w), lambda s: s * row, s)
        return s, lax.switch((jnp.abs(row[0]) * 3).astype(int), [jnp.sin, jnp.cos, jnp.exp], s)
    return lax.scan(turn, jnp.ones(x.shape[1]), x)


def pool(x, how, init, size, strides, padding="VALID", **kw):
    return lax.reduce_window(x, init, how, size, strides, padding, **kw)


def batch_norm(x, g, b):
    m, v = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
    return (x - m) / jnp.sqrt(v + 1e-5) * g[:, None, None] + b[:, None, None]


class Twin:
    """A function that jax.vjp has no rule for, beside one of the same values that it has."""

    def __init__(self, f, twin):
        self.f, self.twin = f, twin


def windows(x, size, strides, dilation=(1, 1)):
    """The elements of each window of the last two dimensions, in two more behind them."""
    at = [np.arange(0, n - (k - 1) * d, s)[:, None] + np.arange(k) * d
          for n, k, s, d in zip(x.shape[-2:], size, strides, dilation)]
    return x[..., at[0][:, None, :, None], at[1][None, :, None, :]]


def spread(x, low, value):
    """Rows of x two apart, with `low` columns of `value` before, and one row on each side."""
    wide = jnp.full((x.shape[0], 2 * x.shape[1] + 1, x.shape[2] + low), value)
    return wide.at[:, 1::2, low:].set(x)


def log_add_exp(x, y):
    return jnp.maximum(x, y) + jnp.log1p(jnp.exp(-jnp.abs(x - y)))


def complex_product(a, b):
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def scatter_product(x, u):
    f = jnp.ones_like(x).at[1].set(u[0]).at[5].set(u[1] * u[3]).at[2].set(u[2])
    return (x * f) ** 2 + x * f


FUNCTIONS = {
    "polynomial": (lambda x, y: x ** 3 * y - x / y + 2 * y, near_one(5), near_one(5)),
    "exp log": (lambda x: jnp.exp(x) * jnp.log(x) + jnp.log1p(x) - jnp.expm1(x), near_one(7)),
    "trigonometry": (lambda x: jnp.sin(x) * jnp.cos(x) + jnp.tan(x / 3) - jnp.sinh(x), r(6)),
    "inverses": (lambda x: jnp.arcsin(x) + jnp.arccos(x) * jnp.arctanh(x) + jnp.arctan(x),
                 r(6) / 9),
    "inverse hyperbolic": (lambda x: jnp.arcsinh(x) * jnp.arccosh(x), near_one(6)),
    "sigmoid tanh erf": (lambda x: jax.nn.sigmoid(x) * jnp.tanh(x) + lax.erf(x), r(8)),
    "roots": (lambda x: jnp.sqrt(x) + lax.rsqrt(x) + jnp.cbrt(x), near_one(5)),
    "power": (lambda x, y: x ** y, near_one(4, 3), r(4, 3)),
    "atan2": (lambda x, y: jnp.arctan2(x, y), r(9), r(9)),
    "remainder": (lambda x, y: lax.rem(x, y), 5 * near_one(6), near_one(6)),
    "maximum": (lambda x, y: jnp.maximum(x, y) * jnp.minimum(x, 2 * y), r(9), r(9)),
    "clamp": (lambda lo, x, hi: lax.clamp(lo, x, hi), -0.5 - r(20) ** 2, r(20), 0.5 + r(20) ** 2),
    "where abs": (lambda x, y: jnp.where(x > y, jnp.abs(x), y * y), r(9), r(9)),
    "complex product": (lambda x, y: x * y / (x + 3), z(5), z(5)),
    "complex parts": (lambda x: jnp.abs(x) * jnp.real(x) - jnp.imag(x * x), z(6)),
    "complex functions": (lambda x: jnp.exp(x) * jnp.sin(x) + jnp.log(x) * jnp.sqrt(x), z(6)),
    "real to complex": (lambda x, y: lax.complex(x, y * y) ** 2, r(5), r(5)),
    "moves": (lambda x: jnp.flip(x, 0).T.reshape(3, 8)[1:, ::3] * 2, r(4, 6)),
    "pad": (lambda x, v: lax.pad(x, v, ((1, 2, 1), (-1, 0, 2))), r(3, 4), np.array(0.5)),
    "concatenate": (lambda x, y: jnp.concatenate([x, y, x]) ** 2, r(2, 3), r(1, 3)),
    "broadcast": (lambda x, y: x[:, None] * y[None, :, None] + x[0], r(3, 2), r(4)),
    "dynamic slice": (lambda x: lax.dynamic_slice(x, (jnp.argmax(x[:, 0]), 1), (2, 3)) ** 2,
                      r(5, 6)),
    "dynamic update": (lambda x, u: lax.dynamic_update_slice(x, u, (2, 3)) ** 2, r(5, 6), r(2, 2)),
    "matmul": (lambda x, y: jnp.tanh(x @ y), r(3, 4), r(4, 5)),
    "batched matmul": (lambda x, y: x @ y, r(2, 3, 4), r(2, 4, 5)),
    "dot general": (lambda x, y: lax.dot_general(x, y, (((1, 3), (2, 0)), ((2,), (1,)))),
                    r(2, 3, 4, 5), r(5, 4, 3, 2)),
    "einsum": (lambda x, y, w: jnp.einsum("bij,bjk,lk->bli", x, y, w), r(2, 3, 4), r(2, 4, 5),
               r(6, 5)),
    "complex matmul": (lambda x, y: x @ y, z(3, 4), z(4, 2)),
    "conv": (conv, r(2, 3, 8, 8), r(4, 3, 3, 3)),
    "conv stride": (lambda x, w: conv(x, w, (2, 3), ((1, 2), (0, 1))), r(2, 3, 9, 8),
                    r(4, 3, 3, 2)),
    "conv dilated": (lambda x, w: conv(x, w, (2, 1), "VALID", rhs_dilation=(2, 3)), r(2, 2, 9, 9),
                     r(3, 2, 3, 2)),
    "conv transposed": (lambda x, w: conv(x, w, padding=((2, 1), (1, 2)), lhs_dilation=(2, 3)),
                        r(2, 2, 5, 4), r(3, 2, 3, 3)),
    "conv groups": (lambda x, w: conv(x, w, (2, 2), feature_group_count=3), r(2, 6, 7, 7),
                    r(9, 2, 3, 3)),
    "conv depthwise": (lambda x, w: conv(x, w, feature_group_count=4), r(2, 4, 6, 6),
                       r(4, 1, 3, 3)),
    "conv batch groups": (lambda x, w: conv(x, w, batch_group_count=2), r(4, 3, 5, 5),
                          r(6, 3, 2, 2)),
    "conv NHWC": (lambda x, w: conv(x, w, (2, 2), dims=("NHWC", "HWIO", "NHWC")), r(2, 7, 7, 3),
                  r(3, 3, 3, 5)),
    "conv 1d": (lambda x, w: lax.conv_general_dilated(x, w, (2,), "SAME"), r(2, 3, 9), r(4, 3, 3)),
    "conv 3d": (lambda x, w: lax.conv_general_dilated(x, w, (1, 2, 1), "SAME"), r(1, 2, 4, 5, 4),
                r(3, 2, 2, 3, 2)),
    "conv cropped": (lambda x, w: conv(x, w, padding=((-1, 0), (0, -2))), r(1, 2, 6, 7),
                     r(2, 2, 2, 2)),
    "sums": (lambda x: x.sum(1) * x.mean() + x.var(0)[0], r(3, 4)),
    "max min": (lambda x: x.max(0) * x.min(1)[:, None], r(3, 4)),
    "max of equals": (lambda x: x.max(1), np.array([[1., 3, 3, 2], [5, 5, 5, 5]])),
    "product": (lambda x: jnp.prod(x, 1), r(3, 4)),
    "product with zeros": (lambda x: jnp.prod(x, 1), np.array([[1., 0, 3], [0, 0, 2], [2, 3, 4]])),
    "softmax": (lambda x: jax.nn.softmax(x, 0) * jax.nn.log_softmax(x, 1), r(3, 4)),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, 1), r(3, 4)),
    "max pool": (lambda x: pool(x, lax.max, -jnp.inf, (1, 1, 3, 3), (1, 1, 2, 2), "SAME"),
                 r(2, 3, 8, 8)),
    "max pool overlapping": (lambda x: pool(x, lax.max, -jnp.inf, (1, 3, 2, 1), (1, 1, 1, 1)),
                             r(2, 6, 7, 2)),
    "min pool": (lambda x: pool(x, lax.min, jnp.inf, (1, 2), (1, 2)), r(3, 8)),
    "average pool": (lambda x: pool(x, lax.add, 0., (1, 1, 3, 3), (1, 1, 2, 2), "SAME") / 9,
                     r(2, 3, 7, 7)),
    "window sum dilated": (lambda x: pool(x, lax.add, 0., (2, 3), (2, 1), ((1, 0), (2, 1)),
                                          base_dilation=(2, 1), window_dilation=(1, 2)), r(5, 8)),
    "max pool dilated": (Twin(
        lambda x: pool(x, lax.max, -jnp.inf, (1, 3, 2), (1, 2, 1), window_dilation=(1, 2, 3)),
        lambda x: windows(x, (3, 2), (2, 1), (2, 3)).max((-1, -2))), r(4, 9, 8)),
    "max pool of spread rows": (Twin(
        lambda x: pool(x, lax.max, -jnp.inf, (1, 3, 2), (1, 2, 1), ((0, 0), (1, 1), (1, 0)),
                       base_dilation=(1, 2, 1)),
        lambda x: windows(spread(x, 1, -9.), (3, 2), (2, 1)).max((-1, -2))), r(4, 5, 6)),
    "min pool of equals": (Twin(
        lambda x: pool(x, lax.min, jnp.inf, (1, 2, 2), (1, 2, 1), window_dilation=(1, 2, 3)),
        lambda x: jnp.take_along_axis(
            (w := windows(x, (2, 2), (2, 1), (2, 3)).reshape(2, 2, 3, 4)),
            jnp.argmin(w, -1, keepdims=True), -1)[..., 0]),
        R.randint(0, 3, (2, 5, 6)).astype(float)),
    "window product": (Twin(
        lambda x: pool(x, lax.mul, 1., (1, 3, 2), (1, 2, 1), ((0, 0), (1, 1), (1, 0)),
                       base_dilation=(1, 2, 1)),
        lambda x: windows(spread(x, 1, 1.), (3, 2), (2, 1)).prod((-1, -2))), r(4, 5, 6)),
    "window of a function": (Twin(
        lambda x: lax.reduce_window(x, -1e9, log_add_exp, (1, 3), (1, 2), ((0, 0), (1, 1))),
        lambda x: jax.nn.logsumexp(windows(jnp.pad(x, ((0, 0), (1, 1)), constant_values=-1e9),
                                           (1, 3), (1, 2)), (-1, -2))), r(3, 5)),
    "reduction by a function": (lambda x: lax.reduce(x, -1e9, log_add_exp, (1,)), r(3, 7, 2)),
    "reduction of pairs": (Twin(
        lambda x, y: lax.reduce((x, y), (1., 0.), complex_product, (0,)),
        lambda x, y: (lambda p: (p.real, p.imag))(jnp.prod(x + 1j * y, 0))), r(5, 3), r(5, 3)),
    "second derivative of max pool": (lambda x: jax.grad(lambda x: (pool(
        x, lax.max, -jnp.inf, (1, 3, 3), (1, 2, 2), "SAME") ** 3).sum())(x), r(2, 7, 7)),
    "cumsum": (lambda x: jnp.cumsum(x, 1) ** 2, r(3, 6)),
    "cummax cummin": (lambda x: lax.cummax(x, 1) + lax.cummin(x, 0), r(3, 6)),
    "take": (lambda x: x[I] ** 2, r(7, 3)),
    "take outside": (lambda x: jnp.take(x, np.array([1, 99, -1]), 0, mode="clip"), r(7, 3)),
    "take points": (lambda x: x[I, I[::-1] % 3], r(7, 3)),
    "take along": (lambda x: jnp.take_along_axis(x, np.array([[1, 2], [0, 0], [3, 1]]), 1),
                   r(3, 4)),
    "embedding": (lambda x, w: jnp.tanh(x[I] @ w), r(9, 4), r(4, 4)),
    "scatter add": (lambda x, u: x.at[I].add(u) ** 2, r(7, 3), r(4, 3)),
    "scatter set": (lambda x, u: x.at[np.array([1, 5, 2])].set(u) ** 2, r(7, 3), r(3, 3)),
    "scatter outside": (lambda x, u: x.at[np.array([1, 9])].add(u, mode="drop") ** 2, r(7, 3),
                        r(2, 3)),
    "scatter subtract": (lambda x, u: x.at[I].subtract(u) ** 2, r(7, 3), r(4, 3)),
    "scatter max min": (lambda x, u: x.at[I].max(u) ** 2 + x.at[I].min(u), r(7, 3), r(4, 3)),
    "scatter max of equals": (lambda x, u: x.at[I].max(u) * (x + 2), np.ones((7, 2)),
                              np.array([[1., 2], [3, 1], [0, 0], [3, 1]])),
    "scatter product": (Twin(lambda x, u: x.at[I].multiply(u) ** 2 + x.at[I].multiply(u),
                             scatter_product), r(7, 3), r(4, 3)),
    "scatter product with zeros": (Twin(
        lambda x, u: x.at[I].multiply(u) ** 2 + x.at[I].multiply(u), scatter_product),
        np.array([[1., 0, 3]] * 7), np.array([[2., 3, 0], [0, 0, 2], [1, 2, 3], [0, 4, 5]])),
    "segment sum": (lambda x: jax.ops.segment_sum(x, I, 6) ** 2, r(4, 3)),
    "sort": (lambda x: jnp.sort(x, 0) * jnp.arange(5)[:, None], r(5, 3)),
    "sort two": (lambda x, y: lax.sort((x, y), dimension=1, num_keys=1)[1] ** 2, r(3, 5), r(3, 5)),
    "argsort": (lambda x, y: jnp.take_along_axis(y, jnp.argsort(x, 1), 1) ** 2, r(3, 5), r(3, 5)),
    "top k": (lambda x: lax.top_k(x, 3)[0] ** 2, r(4, 9)),
    "median": (lambda x: jnp.median(x, 1), r(4, 7)),
    "cholesky": (lambda x: lax.linalg.cholesky((x + jnp.swapaxes(x, 1, 2)) / 2), SPD),
    "triangular solve": (lambda a, b: lax.linalg.triangular_solve(a, b, left_side=True,
                                                                  lower=True), TRI, r(2, 4, 3)),
    "triangular solve right": (lambda a, b: lax.linalg.triangular_solve(
        a, b, left_side=False, lower=True, transpose_a=True), TRI, r(2, 3, 4)),
    "triangular solve unit": (lambda a, b: lax.linalg.triangular_solve(
        a, b, left_side=True, lower=True, unit_diagonal=True), TRI / 3, r(2, 4, 3)),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x, axis=1)), z(3, 6)),
    "ifft 2d": (lambda x: jnp.fft.ifft2(x) ** 2, z(2, 4, 6)),
    "rfft": (lambda x: jnp.abs(jnp.fft.rfft(x)), r(3, 7)),
    "irfft": (lambda x: jnp.fft.irfft(x, 8) ** 2, z(3, 5)),
    "attention": (attention, r(2, 5, 4), r(4, 6), r(4, 6), r(4, 3)),
    "layer norm": (layer_norm, r(3, 6), r(6), r(6)),
    "batch norm": (batch_norm, r(4, 3, 5, 5), r(3), r(3)),
    "gelu silu relu": (lambda x: jax.nn.gelu(x) + jax.nn.silu(x) + jax.nn.relu(x + 0.1), r(9)),
    "cross entropy": (lambda x: -jax.nn.log_softmax(x)[jnp.arange(4), I % 3], r(4, 3)),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, lambda x: x ** 3, x), r(4)),
    "switch": (lambda x, y: lax.switch(2, [lambda x, y: x, lambda x, y: y,
                                           lambda x, y: x * y], x, y), r(4), r(4)),
    "fori loop": (lambda x: lax.fori_loop(0, 5, lambda k, s: jnp.sin(s) * (k + 1), x), r(4)),
    "scan": (lambda x, w: lax.scan(lambda s, row: (jnp.tanh(s @ w + row), s * row),
                                   jnp.zeros(4), x), r(6, 4), r(4, 4)),
    "scan backward": (lambda x: lax.scan(lambda s, row: (s * 0.9 + row, s ** 2), jnp.ones(4), x,
                                         reverse=True), r(6, 4)),
    "lstm": (lstm, r(5, 2, 3), r(3, 16), r(4, 16)),
    "nested loops": (nested, r(4, 3), r(3, 3)),
    "branches in a loop": (branching, r(5, 3), r(3, 3)),
    "associative scan": (lambda x: lax.associative_scan(jnp.multiply, x), near_one(7)),
    "vmap": (lambda x, y: jax.vmap(lambda x: jnp.dot(x, y) ** 2)(x), r(4, 3), r(3)),
    "second derivative": (lambda x: jax.grad(lambda x: (jnp.sin(x) * x ** 3).sum())(x), r(5)),
    "hessian of a network": (lambda x, w: jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), r(3, 4),
                             r(4, 2)),
}  # yapf: disable


def run(build, option, text, ins, want):
    """The largest error, relative to the largest derivative."""
    with tempfile.TemporaryDirectory() as folder:
        p = subprocess.run([build + "/hlo-opt", option, "-"], input=text.encode(),
                           capture_output=True, timeout=60)
        if p.returncode:
            raise ValueError(p.stderr.decode()[-300:])
        with open(folder + "/m.hlo", "wb") as f:
            f.write(p.stdout)
        args = []
        for k, v in enumerate(ins):
            np.ascontiguousarray(v).tofile("%s/%d" % (folder, k))
            args += ["--in", "%s/%d" % (folder, k)]
        p = subprocess.run([build + "/hlo-run", *args, "--out", folder + "/out",
                            folder + "/m.hlo"], capture_output=True, timeout=120)
        if p.returncode:
            raise ValueError(p.stderr.decode()[-300:])
        with open(folder + "/out", "rb") as f:
            got = f.read()
    worst, at = 0.0, 0
    for w in want:
        g = np.frombuffer(got, w.dtype, w.size, at).reshape(w.shape)
        at += w.nbytes
        worst = max(worst, float(np.abs(g - w).max() / max(1, np.abs(w).max())))
    if at != len(got):
        raise ValueError("%d bytes of derivatives, expected %d" % (len(got), at))
    return worst


def drawn(leaves):
    """Seeds or directions: arrays like those of numbers, and all of them as JAX takes them."""
    own = [z(*v.shape) if np.iscomplexobj(v) else
           r(*v.shape) if np.issubdtype(v.dtype, np.floating) else None for v in leaves]
    given = [np.zeros(v.shape, jax.dtypes.float0) if s is None else jnp.asarray(s, v.dtype)
             for s, v in zip(own, leaves)]
    return [np.asarray(s) for s in own if s is not None], given


def check(build, f, args):
    """The largest errors of --gradient and of --jvp."""
    twin = f.twin if isinstance(f, Twin) else f
    f = f.f if isinstance(f, Twin) else f
    args = [jnp.asarray(a) for a in args]
    text = jax.jit(f, keep_unused=True).lower(*args).compiler_ir("hlo").as_hlo_text()
    y, back = jax.vjp(twin, *args)
    leaves, tree = jax.tree.flatten(y)
    seeds, given = drawn(leaves)
    want = [np.asarray(w) for w in back(jax.tree.unflatten(tree, given))]
    reverse = run(build, "--gradient", text, args + seeds, want)

    directions, given = drawn(args)
    _, along = jax.jvp(twin, args, given)
    want = [np.asarray(w) for w in jax.tree.leaves(along) if w.dtype != jax.dtypes.float0]
    return reverse, run(build, "--jvp", text, args + directions, want)


def main():
    build, names = sys.argv[1], sys.argv[2:]
    failed = 0
    for name, (f, *args) in FUNCTIONS.items():
        if names and name not in names:
            continue
        try:
            e = check(build, f, args)
            why = "" if max(e) <= TOL else "errors %.1e and %.1e" % e
        except (ValueError, subprocess.TimeoutExpired) as e:
            why = str(e)
        failed += bool(why)
        print("%s %s%s" % ("FAIL" if why else "PASS", name, why and ": " + why), flush=True)
    return failed != 0


sys.exit(main())
