# SPDX-License-Identifier: Apache-2.0
"""More of programs.py: indices, sorts, histograms, scans, windows and filters, transforms, sparse
and batched products, gradients of all kinds, decompositions of other types."""
import jax
import jax.experimental.sparse
import jax.numpy as jnp
import jax.scipy.fft
import jax.scipy.linalg
import jax.scipy.ndimage
import jax.scipy.signal
import numpy as np
from jax import lax


def define(program, f32, below, of):
    indices(program, f32, below)
    sorts(program, f32, below)
    signals(program, f32, of)
    products(program, f32, below, of)
    gradients(program, f32, below)
    matrices(program, f32, of)


def indices(program, f32, below):
    program("take_along_axis of an argsort, 1000x500", f32(1000, 500))(
        lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1))
    program("histogram of 100000 in 50 bins", f32(100000))(lambda x: jnp.histogram(x, 50)[0])
    program("histogram2d of 50000 in 20x20", f32(50000), f32(50000))(
        lambda x, y: jnp.histogram2d(x, y, 20)[0])
    program("digitize 100000 in 30", f32(100000))(
        lambda x: jnp.digitize(x, jnp.linspace(-3.0, 3.0, 30)))
    program("bincount of 100000, weighted", below(1000, 100000), f32(100000))(
        lambda i, w: jnp.bincount(i, w, length=1000))
    program("unique with counts, 20000 of 500", below(500, 20000))(
        lambda x: jnp.unique(x, return_counts=True, return_inverse=True, size=500))
    program("segment max and min, 100000 in 500", f32(100000), below(500, 100000))(
        lambda x, s: (jax.ops.segment_max(x, s, 500), jax.ops.segment_min(x, s, 500)))
    program("segment softmax over 5000 of 50000 edges", f32(50000), below(5000, 50000))(
        lambda x, s: (lambda e: e / jax.ops.segment_sum(e, s, 5000)[s])(
            jnp.exp(x - jax.ops.segment_max(x, s, 5000)[s])))
    program("graph convolution, 5000 nodes of 32, 40000 edges", f32(5000, 32), f32(32, 32),
            below(5000, 40000), below(5000, 40000))(
        lambda x, w, a, b: jax.nn.relu(jax.ops.segment_sum((x @ w)[a], b, 5000)))
    program("scatter of duplicates: add, max, multiply", f32(1000), below(1000, 50000), f32(50000))(
        lambda x, i, u: (x.at[i].add(u), x.at[i].max(u), x.at[i].mul(1 + u * 1e-3)))
    program("scatter of boxes, 64 of 8x8 in 256x256", f32(256, 256), below(248, 64, 2),
            f32(64, 8, 8))(
        lambda x, i, u: lax.fori_loop(0, 64, lambda k, x: lax.dynamic_update_slice(
            x, u[k], (i[k, 0], i[k, 1])), x))
    program("crops by vmap of dynamic_slice, 256 of 16x16", f32(256, 256), below(240, 256, 2))(
        lambda x, i: jax.vmap(lambda i: lax.dynamic_slice(x, (i[0], i[1]), (16, 16)))(i))
    program("vmap of cond, 10000", f32(10000), f32(10000))(
        jax.vmap(lambda x, y: lax.cond(x > 0, lambda y: jnp.sin(y), lambda y: y * y, y)))
    program("switch of five by vmap, 20000", below(5, 20000), f32(20000))(
        jax.vmap(lambda k, x: lax.switch(k, [jnp.sin, jnp.exp, jnp.tanh, lambda x: x * x,
                                             lambda x: -x], x)))
    program("select of ten ranges, 200000", f32(200000))(
        lambda x: jnp.select([x < -2 + 0.4 * k for k in range(10)],
                             [x ** 2 * k + k for k in range(10)], jnp.sin(x)))
    program("piecewise and where chain, 500000", f32(500000))(
        lambda x: jnp.piecewise(x, [x < -1, x > 1], [lambda x: -x, jnp.sqrt, lambda x: x ** 3]))
    program("nonzero with size, 100000", f32(100000))(lambda x: jnp.nonzero(x > 1, size=20000)[0])
    program("compaction by cumsum, 200000", f32(200000))(
        lambda x: jnp.zeros_like(x).at[jnp.where(x > 0, jnp.cumsum(x > 0) - 1, 200000)].set(
            x, mode="drop"))
    program("repeat with lengths, 5000 to 50000", f32(5000), below(20, 5000))(
        lambda x, n: jnp.repeat(x, n, total_repeat_length=50000))
    program("tile, flip, roll and concatenate, 500x500", f32(500, 500))(
        lambda x: jnp.concatenate([jnp.tile(x[::-1], (1, 2)), jnp.roll(jnp.tile(x, (1, 2)), 37, 1)],
                                  0))
    program("transposes of five dimensions, 16x12x20x18x14", f32(16, 12, 20, 18, 14))(
        lambda x: (x.transpose(4, 2, 0, 3, 1), x.transpose(1, 0, 4, 3, 2)))
    program("block of windows, im2col 3x3 of 64 at 32", f32(4, 64, 32, 32))(
        lambda x: lax.conv_general_dilated_patches(x, (3, 3), (1, 1), "SAME"))
    program("triangular halves, diagonal and trace of 1000", f32(1000, 1000))(
        lambda x: (jnp.tril(x), jnp.triu(x, 3), jnp.diag(x), jnp.trace(x)))
    program("Kronecker product and outer sums, 40", f32(40, 40), f32(40, 40))(
        lambda x, y: (jnp.kron(x, y), x[:, :, None] + y[None]))


def sorts(program, f32, below):
    program("lexsort of three keys, 50000", below(10, 50000), below(10, 50000), f32(50000))(
        lambda a, b, c: jnp.lexsort((c, b, a)))
    program("sort of two keys and a value, 100000", below(100, 100000), below(100, 100000),
            f32(100000))(lambda a, b, c: lax.sort((a, b, c), num_keys=2))
    program("sort of columns, 1000x100", f32(1000, 100))(lambda x: jnp.sort(x, 0))
    program("sort, descending, s32 100000", below(1000000, 100000))(
        lambda x: jnp.sort(x, descending=True))
    program("quantiles of 100000", f32(100000))(
        lambda x: jnp.quantile(x, jnp.array([0.1, 0.25, 0.5, 0.9])))
    program("ranks of columns, 500x200", f32(500, 200))(
        lambda x: jnp.argsort(jnp.argsort(x, 0), 0))
    program("top-k 5 of rows, 1000x1000", f32(1000, 1000))(lambda x: lax.top_k(x, 5))
    program("top-p sampling's filter, 32x32000", f32(32, 32000))(
        lambda x: (lambda s: jnp.where(jnp.cumsum(jax.nn.softmax(s, -1), -1) < 0.9, s, -jnp.inf))(
            -jnp.sort(-x, -1)))
    program("nearest neighbours, 5 of 2000 for 500", f32(500, 16), f32(2000, 16))(
        lambda q, x: lax.top_k(2 * q @ x.T - jnp.sum(x * x, 1), 5))
    program("intersection by sorted search, 20000", below(100000, 20000), below(100000, 20000))(
        lambda a, b: (lambda s: s[jnp.clip(jnp.searchsorted(s, a), 0, 19999)] == a)(jnp.sort(b)))
    program("mode and bincount of rows, 200x500", below(20, 200, 500))(
        lambda x: jnp.argmax(jax.vmap(lambda r: jnp.bincount(r, length=20))(x), 1))


def signals(program, f32, of):
    program("convolve2d 256x256 with 7x7", f32(256, 256), f32(7, 7))(
        lambda x, k: jax.scipy.signal.convolve2d(x, k, mode="same"))
    program("correlate 20000 with 64", f32(20000), f32(64))(
        lambda x, k: jnp.correlate(x, k, mode="valid"))
    program("separable Gaussian blur, 512x512, 11", f32(512, 512))(blur)
    program("fft2 and ifft2, 256x256", f32(256, 256))(
        lambda x: jnp.real(jnp.fft.ifft2(jnp.fft.fft2(x) * 0.5)))
    program("fftn 32x32x32, c64", of(np.complex64, 32, 32, 32))(jnp.fft.fftn)
    program("fft of prime length, 64x509", of(np.complex64, 64, 509))(jnp.fft.fft)
    program("rfft f64, 100x1000", of(np.float64, 100, 1000))(
        lambda x: jnp.abs(jnp.fft.rfft(x)))
    program("DCT and its inverse, 64x512", f32(64, 512))(
        lambda x: jax.scipy.fft.idct(jax.scipy.fft.dct(x, norm="ortho") * 0.9, norm="ortho"))
    program("DCT of blocks 8x8, 256x256", f32(256, 256))(
        lambda x: jax.scipy.fft.dctn(x.reshape(32, 8, 32, 8).transpose(0, 2, 1, 3), axes=(2, 3),
                                     norm="ortho"))
    program("STFT of 16000, frames of 400", f32(16000))(
        lambda x: jax.scipy.signal.stft(x, nperseg=400, noverlap=240)[2])
    program("STFT and its inverse, 16000", f32(16000))(
        lambda x: jax.scipy.signal.istft(jax.scipy.signal.stft(x, nperseg=256)[2], nperseg=256)[1])
    program("log-mel spectrogram, 16000", f32(16000), f32(201, 40))(mel)
    program("Welch's spectrum of 50000", f32(50000))(
        lambda x: jax.scipy.signal.welch(x, nperseg=512)[1])
    program("power spectrum Poisson solver, 128x128", f32(128, 128))(poisson)
    program("autocorrelation by FFT, 32x2000", f32(32, 2000))(
        lambda x: jnp.fft.irfft(jnp.abs(jnp.fft.rfft(x, 4096)) ** 2, 4096)[:, :2000])
    program("detrend and window of 100x1000", f32(100, 1000))(
        lambda x: jax.scipy.signal.detrend(x) * jnp.hanning(1000))
    program("cumulative sum, product, max of 1000x500", f32(1000, 500))(
        lambda x: (jnp.cumsum(x, 1), jnp.cumprod(1 + x * 0.01, 1), lax.cummax(x, axis=0)))
    program("differences, gradient and trapezoid, 1000x1000", f32(1000, 1000))(
        lambda x: (jnp.diff(x, axis=1), jnp.gradient(x, axis=0), jnp.trapezoid(x, axis=1)))
    program("polyfit and polyval, degree 5 of 1000", f32(1000))(
        lambda y: jnp.polyval(jnp.polyfit(jnp.linspace(-1.0, 1.0, 1000), y, 5),
                              jnp.linspace(-1.0, 1.0, 1000)))
    program("natural cubic spline by a tridiagonal solve, 500", f32(500))(spline)
    program("max and mean pools of 5x5, stride 3, NHWC", f32(4, 64, 64, 32))(
        lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (1, 5, 5, 1), (1, 3, 3, 1), "SAME"),
                   lax.reduce_window(x, 0., lax.add, (1, 5, 5, 1), (1, 3, 3, 1), "SAME") / 25))
    program("integral image and box sums, 512x512", f32(512, 512))(
        lambda x: (lambda s: s[16:, 16:] - s[:-16, 16:] - s[16:, :-16] + s[:-16, :-16])(
            jnp.cumsum(jnp.cumsum(x, 0), 1)))


def blur(x):
    k = jnp.exp(-jnp.arange(-5.0, 6.0) ** 2 / 8)
    k = k / k.sum()
    rows = jax.vmap(lambda r: jnp.convolve(r, k, mode="same"))
    return rows(rows(x).T).T


def mel(x, bank):
    frames = jnp.stack([x[i:i + 400] for i in range(0, 15600, 160)]) * jnp.hanning(400)
    return jnp.log(jnp.abs(jnp.fft.rfft(frames)) ** 2 @ jnp.abs(bank) + 1e-6)


def poisson(f):
    k = jnp.fft.fftfreq(128) * 2 * np.pi
    s = k[:, None] ** 2 + k[None, :] ** 2
    return jnp.real(jnp.fft.ifft2(jnp.fft.fft2(f) / jnp.where(s == 0, 1, s)))


def spline(y):
    n = y.shape[0]
    one = jnp.ones(n)
    d = 6 * jnp.pad(y[2:] - 2 * y[1:-1] + y[:-2], 1)
    return lax.linalg.tridiagonal_solve(one.at[0].set(0), 4 * one, one.at[-1].set(0), d[:, None])


def products(program, f32, below, of):
    program("einsum of odd labels, bij,bkj,bk->bi", f32(32, 40, 50), f32(32, 60, 50), f32(32, 60))(
        lambda x, y, z: jnp.einsum("bij,bkj,bk->bi", x, y, z))
    program("einsum abc,cd,bde->ae", f32(20, 24, 28), f32(28, 12), f32(24, 12, 30))(
        lambda x, y, z: jnp.einsum("abc,cd,bde->ae", x, y, z))
    program("einsum with a diagonal, iij,jk->ik", f32(60, 60, 50), f32(50, 40))(
        lambda x, y: jnp.einsum("iij,jk->ik", x, y))
    program("batched small products, 10000 of 4x4", f32(10000, 4, 4), f32(10000, 4, 4))(
        lambda x, y: x @ y)
    program("batched small products, 2000 of 9x7 by 7x5, f64", of(np.float64, 2000, 9, 7),
            of(np.float64, 2000, 7, 5))(lambda x, y: x @ y)
    program("quaternion products, 100000", f32(100000, 4), f32(100000, 4))(quaternion)
    program("rotation of points by axis and angle, 20000", f32(20000, 3), f32(20000, 3))(
        lambda p, w: p + jnp.cross(w, p) + 0.5 * jnp.cross(w, jnp.cross(w, p)))
    program("pairwise distances 500x500 in 32", f32(500, 32), f32(500, 32))(
        lambda x, y: jnp.sqrt(jnp.sum((x[:, None] - y[None]) ** 2, -1)))
    program("Gaussian kernel regression, 1000 for 500", f32(500, 4), f32(1000, 4), f32(1000))(
        lambda q, x, y: jax.nn.softmax(-jnp.sum((q[:, None] - x) ** 2, -1)) @ y)
    program("sparse matrix by vector, BCOO of 50000 in 5000x5000", below(5000, 50000, 2),
            f32(50000), f32(5000))(
        lambda i, v, x: jax.experimental.sparse.BCOO((v, i), shape=(5000, 5000)) @ x)
    program("sparse matrix by matrix, BCOO of 20000, 2000x2000 by 32", below(2000, 20000, 2),
            f32(20000), f32(2000, 32))(
        lambda i, v, x: jax.experimental.sparse.BCOO((v, i), shape=(2000, 2000)) @ x)
    program("power of a matrix, 64 to the 13th", f32(64, 64))(
        lambda a: jnp.linalg.matrix_power(a * 0.1, 13))
    program("chain of five small products", *[f32(40, 40)] * 5)(
        lambda *m: jnp.linalg.multi_dot(m))
    program("bilinear forms, 500 of 20", f32(500, 20), f32(20, 20))(
        lambda x, a: jax.vmap(lambda x: x @ a @ x)(x))
    program("rotary embedding and attention scores, 8x64x64", f32(8, 64, 64), f32(8, 64, 64))(
        rotary)


def quaternion(p, q):
    a, b, c, d = jnp.moveaxis(p, -1, 0)
    e, f, g, h = jnp.moveaxis(q, -1, 0)
    return jnp.stack([a * e - b * f - c * g - d * h, a * f + b * e + c * h - d * g,
                      a * g - b * h + c * e + d * f, a * h + b * g - c * f + d * e], -1)


def rotary(q, k):
    t = jnp.arange(64.0)[:, None] / 10000 ** (jnp.arange(0, 64, 2) / 64)

    def turn(x):
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack([a * jnp.cos(t) - b * jnp.sin(t), a * jnp.sin(t) + b * jnp.cos(t)],
                         -1).reshape(x.shape)
    s = jnp.einsum("htd,hsd->hts", turn(q), turn(k)) / 8
    return jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((64, 64), bool)), s, -1e30))


def gradients(program, f32, below):
    @jax.custom_vjp
    def clipped(x):
        return jnp.exp(x)
    clipped.defvjp(lambda x: (jnp.exp(x), jnp.exp(x)), lambda e, g: (jnp.clip(e * g, -1, 1),))
    program("custom_vjp with clipping, 200000", f32(200000))(
        jax.grad(lambda x: jnp.sum(clipped(jnp.sin(x)) ** 2)))
    tiny = lambda w, x: jnp.tanh(jnp.tanh(x @ w[:16].reshape(4, 4)) @ w[16:])  # noqa: E731
    program("jacfwd of a small network, 64 inputs", f32(20), f32(64, 4))(
        lambda w, x: jax.vmap(jax.jacfwd(tiny), (None, 0))(w, x))
    program("Hessian of a small network's loss", f32(20), f32(64, 4))(
        lambda w, x: jax.hessian(lambda w: jnp.mean(jax.vmap(tiny, (None, 0))(w, x) ** 2))(w))
    program("gradients per example, 256 of 32x16", f32(32, 16), f32(256, 32), f32(256, 16))(
        lambda w, x, y: jax.vmap(jax.grad(lambda w, x, y: jnp.sum((jnp.tanh(x @ w) - y) ** 2)),
                                 (None, 0, 0))(w, x, y))
    program("Hessian-vector products by jvp of grad, 1000", f32(1000), f32(1000))(
        lambda x, v: jax.jvp(jax.grad(lambda x: jnp.sum(jnp.sin(x) * jnp.cumsum(x))), (x,),
                             (v,))[1])
    program("gradient through a sort and a cumsum, 10000", f32(10000))(
        jax.grad(lambda x: jnp.sum(jnp.cumsum(jnp.sort(x)) ** 2) * 1e-6))
    program("gradient through a while of fixed turns, 1000", f32(1000))(
        jax.grad(lambda x: jnp.sum(lax.scan(
            lambda s, _: (jnp.sin(s) + x, None), x, None, 20)[0])))
    program("gradient through remat of a deep chain, 128x128", f32(128, 128), f32(128, 128))(
        jax.grad(lambda w, x: jnp.sum(lax.scan(
            jax.checkpoint(lambda h, _: (jnp.tanh(h @ w * 0.1), None)), x, None, 10)[0])))
    program("gradient of interpolation in a grid, 20000", f32(64, 64), f32(20000, 2))(
        jax.grad(lambda g, p: jnp.sum(jax.scipy.ndimage.map_coordinates(
            g, [jnp.abs(p[:, 0]) * 10, jnp.abs(p[:, 1]) * 10], order=1) ** 2)))
    program("gradient of a loss by CTC, 8 of 50 steps", f32(8, 50, 20), below(19, 8, 10))(ctc)
    program("physics-informed second derivatives, 500 points", f32(500), f32(32), f32(32))(
        lambda x, a, b: jax.vmap(jax.grad(jax.grad(lambda x: jnp.tanh(x * a) @ b)))(x))
    program("gradient of log_softmax over 32000 classes, 64 rows", f32(64, 32000),
            below(32000, 64))(
        jax.grad(lambda x, y: -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None],
                                                            1))))


def ctc(logits, labels):
    def loss(logits):
        lp = jax.nn.log_softmax(logits)
        ext = jnp.zeros((8, 21), jnp.int32).at[:, 1::2].set(labels + 1)
        emit = jnp.take_along_axis(lp, jnp.broadcast_to(ext[:, None], (8, 50, 21)), 2)
        skip = jnp.concatenate([jnp.zeros((8, 2), bool), (ext[:, 2:] != ext[:, :-2])
                                & (ext[:, 2:] > 0)], 1)

        def step(a, e):
            one = jnp.pad(a, ((0, 0), (1, 0)), constant_values=-1e30)[:, :-1]
            two = jnp.where(skip, jnp.pad(a, ((0, 0), (2, 0)), constant_values=-1e30)[:, :-2],
                            -1e30)
            return jnp.logaddexp(jnp.logaddexp(a, one), two) + e, None
        start = jnp.full((8, 21), -1e30).at[:, 0].set(0)
        return -jnp.sum(lax.scan(step, start, emit.transpose(1, 0, 2))[0][:, -2:].max(1))
    return jax.grad(loss)(logits)


def matrices(program, f32, of):
    la, sl, f64, c64 = jnp.linalg, jax.scipy.linalg, np.float64, np.complex64
    spd = lambda a: (a @ a.mT.conj() / a.shape[-1]  # noqa: E731
                     + jnp.eye(a.shape[-1], dtype=a.dtype))
    program("PCA of 2000x64 by svd", f32(2000, 64))(
        lambda x: (lambda c: jnp.abs(c @ la.svd(c, full_matrices=False)[2][:3].T))(x - x.mean(0)))
    program("eigh of 200, f64", of(f64, 200, 200))(lambda a: la.eigh(spd(a))[0])
    program("eigh with vectors, 64 of 8", f32(64, 8, 8))(
        lambda a: (lambda w, v: (v * w[..., None, :]) @ v.mT)(*la.eigh(spd(a))))
    program("eigenvalues of a general matrix, 60, f64", of(f64, 60, 60))(
        lambda a: jnp.sort(jnp.abs(la.eigvals(a))))
    program("roots of a polynomial of degree 20", f32(20))(
        lambda p: jnp.sort(jnp.abs(jnp.roots(jnp.concatenate([jnp.ones(1), p]),
                                             strip_zeros=False))))
    program("pseudo-inverse 80x50", f32(80, 50))(la.pinv)
    program("determinants, 1000 of 4x4", f32(1000, 4, 4))(la.det)
    program("inverses, 1000 of 3x3", f32(1000, 3, 3))(lambda a: la.inv(a + 3 * jnp.eye(3)))
    program("solve of 500 systems of 6", f32(500, 6, 6), f32(500, 6))(
        lambda a, b: la.solve(a + 6 * jnp.eye(6), b[..., None])[..., 0])
    program("Cholesky and two solves of 150, f64", of(f64, 150, 150), of(f64, 150))(
        lambda a, b: sl.cho_solve(sl.cho_factor(spd(a)), b))
    program("Cholesky's gradient, 64", f32(64, 64))(
        jax.grad(lambda a: jnp.sum(jnp.log(jnp.diag(la.cholesky(spd(a)))))))
    program("Gaussian process, 200 points", f32(200, 2), f32(200), f32(100, 2))(process)
    program("qr solve 100x40, c64", of(c64, 100, 40), of(c64, 100))(
        lambda a, b: (lambda q, r: sl.solve_triangular(r, q.conj().T @ b))(*la.qr(a)))
    program("solve 100, c64", of(c64, 100, 100), of(c64, 100))(
        lambda a, b: la.solve(a + 10 * jnp.eye(100), b))
    program("eigh of 60, c64", of(c64, 60, 60))(lambda a: la.eigh(spd(a))[0])
    program("LU of 150 and its determinant, f64", of(f64, 150, 150))(
        lambda a: (sl.lu(a)[1:], la.slogdet(a)))
    program("Schur form of 40, absolute diagonal", f32(40, 40))(
        lambda a: jnp.sum(jnp.abs(sl.schur(spd(a))[0])))
    program("polar form of 50x30", f32(50, 30))(lambda a: sl.polar(a)[0])
    program("square root and sign of a matrix, 30", f32(30, 30))(
        lambda a: jnp.real(sl.sqrtm(spd(a))))
    program("Toeplitz system by its matrix, 100", f32(100))(
        lambda c: la.solve(sl.toeplitz(c) + 20 * jnp.eye(100), c))
    program("condition, rank and norms of 100", f32(100, 100))(
        lambda a: (la.cond(a), la.matrix_rank(a), la.norm(a, "nuc"), la.norm(a, 1)))
    program("Lyapunov by Kronecker, 8", f32(8, 8))(
        lambda a: la.solve(jnp.kron(a - 5 * jnp.eye(8), jnp.eye(8)) + jnp.kron(
            jnp.eye(8), a - 5 * jnp.eye(8)), -jnp.eye(8).reshape(-1)))
    program("randomized SVD, 1000x200 to 10", f32(1000, 200), f32(200, 15))(
        lambda a, g: la.svd(la.qr(a @ g)[0].T @ a, full_matrices=False)[1][:10])
    program("Kabsch's rotation, 200 clouds of 50", f32(200, 50, 3), f32(200, 50, 3))(kabsch)
    program("Lanczos of 300, 30 steps", f32(300, 300), f32(300))(lanczos)


def process(x, y, q):
    k = lambda a, b: jnp.exp(-0.5 * jnp.sum((a[:, None] - b) ** 2, -1))  # noqa: E731
    c = jax.scipy.linalg.cho_factor(k(x, x) + 0.1 * jnp.eye(200))
    s = k(q, x)
    return s @ jax.scipy.linalg.cho_solve(c, y), 1 - jnp.sum(
        s * jax.scipy.linalg.cho_solve(c, s.T).T, 1)


def kabsch(p, q):
    u, _, v = jnp.linalg.svd(jnp.einsum("bni,bnj->bij", p, q))
    d = jnp.sign(jnp.linalg.det(u @ v))
    return (u * jnp.stack([jnp.ones_like(d), jnp.ones_like(d), d], -1)[:, None]) @ v


def lanczos(a, v):
    a = (a + a.T) / 2

    def step(s, _):
        v, w, b = s
        u = a @ v - b * w
        t = u @ v
        u = u - t * v
        n = jnp.linalg.norm(u)
        return (u / n, v, n), (t, n)
    return lax.scan(step, (v / jnp.linalg.norm(v), jnp.zeros(300), 0.0), None, 30)[1]
