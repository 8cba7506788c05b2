# SPDX-License-Identifier: Apache-2.0
"""More of programs.py: random numbers and what is made of them, special functions, integers and
bits, images, small types, complex numbers."""
import jax
import jax.numpy as jnp
import jax.scipy.special
import jax.scipy.stats
import ml_dtypes
import numpy as np
from jax import lax

KEY = ("key", np.uint32, (2,))


def define(program, f32, below, of):
    draws(program, f32)
    special(program, f32, of)
    bits(program, below, of)
    small(program, f32, of)
    complexes(program, f32, of)


def draws(program, f32):
    def drawn(name, *inputs):
        return lambda f: program(name, KEY, *inputs)(
            lambda k, *a: f(jax.random.wrap_key_data(k), *a))
    r = jax.random
    drawn("uniform(1000000)")(lambda k: r.uniform(k, (1000000,)))
    drawn("bits(1000000)")(lambda k: r.bits(k, (1000000,)))
    drawn("randint(100000)")(lambda k: r.randint(k, (100000,), 0, 37))
    drawn("bernoulli and dropout of 1000x500", f32(1000, 500))(
        lambda k, x: jnp.where(r.bernoulli(k, 0.9, x.shape), x / 0.9, 0))
    drawn("poisson(10000)", f32(10000))(lambda k, x: r.poisson(k, jnp.abs(x) * 10))
    drawn("beta(10000)")(lambda k: r.beta(k, 2.0, 3.0, (10000,)))
    drawn("dirichlet(1000) of 8")(lambda k: r.dirichlet(k, jnp.arange(1.0, 9.0), (1000,)))
    drawn("choice without replacement, 1000 of 20000", f32(20000))(
        lambda k, x: r.choice(k, x, (1000,), replace=False))
    drawn("choice by weights, 20000 of 1000", f32(1000))(
        lambda k, x: r.choice(k, 1000, (20000,), p=jax.nn.softmax(x)))
    drawn("truncated normal, Laplace, Gumbel, Cauchy of 100000")(
        lambda k: [f(q, (100000,)) for f, q in zip(
            (lambda k, s: r.truncated_normal(k, -2, 2, s), r.laplace, r.gumbel, r.cauchy),
            r.split(k, 4))])
    drawn("multivariate normal, 2000 of 10", f32(10, 10))(
        lambda k, a: r.multivariate_normal(k, jnp.zeros(10), a @ a.T + jnp.eye(10), (2000,)))
    drawn("shuffle of 5000 rows of 16", f32(5000, 16))(lambda k, x: r.permutation(k, x))
    drawn("pi by 1000000 points")(
        lambda k: 4 * jnp.mean(jnp.sum(r.uniform(k, (1000000, 2)) ** 2, 1) < 1))
    drawn("option price, 10000 paths of 64 steps")(
        lambda k: jnp.mean(jnp.maximum(100 * jnp.exp(jnp.cumsum(
            r.normal(k, (10000, 64)) * 0.02, 1)).mean(1) - 100, 0)))
    drawn("Ising by Metropolis, 64x64, 50 sweeps", f32(64, 64))(ising)
    drawn("Hamiltonian Monte Carlo, 100 steps of 20", f32(20))(hamiltonian)
    drawn("random walk in a scan, 1000 steps of keys")(
        lambda k: lax.scan(lambda x, q: (x + r.normal(q),) * 2, 0.0, r.split(k, 1000))[1])
    drawn("genetic algorithm, 100 of 32 bits, 30 turns")(genetic)


def ising(k, x):
    i, j = jnp.meshgrid(jnp.arange(64), jnp.arange(64))

    def sweep(s, k):
        for colour, q in enumerate(jax.random.split(k)):
            n = sum(jnp.roll(s, d, a) for d in (1, -1) for a in (0, 1))
            flip = jax.random.uniform(q, s.shape) < jnp.exp(-0.8 * s * n)
            s = jnp.where(flip & ((i + j) % 2 == colour), -s, s)
        return s, s.mean()
    return lax.scan(sweep, jnp.where(x > 0, 1.0, -1.0), jax.random.split(k, 50))[1]


def hamiltonian(k, x):
    energy = lambda x: jnp.sum(x ** 2 / 2 + 0.1 * x ** 4)  # noqa: E731

    def step(x, k):
        a, b = jax.random.split(k)
        p = jax.random.normal(a, x.shape)
        y, q = lax.fori_loop(0, 10, lambda _, s: (
            lambda q: (s[0] + 0.1 * q, q))(s[1] - 0.1 * jax.grad(energy)(s[0])), (x, p))
        d = energy(x) + jnp.sum(p * p) / 2 - energy(y) - jnp.sum(q * q) / 2
        return jnp.where(jnp.log(jax.random.uniform(b)) < d, y, x), d
    return lax.scan(step, x, jax.random.split(k, 100))[1]


def genetic(k):
    r = jax.random
    a, k = r.split(k)

    def turn(p, k):
        a, b, c = r.split(k, 3)
        fit = p.sum(1)
        i, j = r.randint(a, (2, 2, 100), 0, 100)
        parents = jnp.where(fit[i] > fit[j], i, j)
        cross = jnp.where(r.bernoulli(b, 0.5, p.shape), p[parents[0]], p[parents[1]])
        return cross ^ r.bernoulli(c, 0.01, p.shape), fit.max()
    return lax.scan(turn, r.bernoulli(a, 0.5, (100, 32)), r.split(k, 30))[1]


def special(program, f32, of):
    s = jax.scipy.special
    one = lambda f: lambda x: f(jnp.abs(x) + 0.5)  # noqa: E731
    for name, f in (
            ("gammaln", one(s.gammaln)), ("digamma", one(s.digamma)), ("erfc", s.erfc),
            ("erfinv", lambda x: s.erfinv(jnp.tanh(x))), ("i0e and i1e", lambda x: s.i0e(x)
                                                          + s.i1e(x)),
            ("betainc", lambda x: s.betainc(jnp.abs(x) + 0.5, 2.0, jax.nn.sigmoid(x))),
            ("gammainc", lambda x: s.gammainc(jnp.abs(x) + 0.5, jnp.abs(x) + 1)),
            ("zeta", lambda x: s.zeta(jnp.abs(x) + 1.5, 1.0)),
            ("polygamma(1)", one(lambda x: s.polygamma(1, x))),
            ("ndtri", lambda x: s.ndtri(jax.nn.sigmoid(x))),
            ("bessel_jn(v=3)", lambda x: s.bessel_jn(2 * jnp.abs(x) + 8, v=3)),
            ("expi", one(s.expi)), ("spence", one(s.spence)), ("xlogy and entr", one(
                lambda x: s.xlogy(x, x) + s.entr(x))), ("logit and log_ndtr", lambda x: s.logit(
                    jax.nn.sigmoid(x)) + s.log_ndtr(x)),
            ("tan, asin, atanh, sinh, cbrt", lambda x: jnp.tan(x) + jnp.arcsin(jnp.tanh(x))
             + jnp.arctanh(jnp.tanh(x) * 0.9) + jnp.sinh(x) + jnp.cbrt(x)),
            ("acosh, asinh, atan2, hypot", lambda x: jnp.arccosh(1.5 + x * x) + jnp.arcsinh(x)
             + jnp.arctan2(x, 1 - x) + jnp.hypot(x, 2.0)),
            ("log1p, expm1, exp2, log2", lambda x: jnp.log1p(jnp.abs(x)) + jnp.expm1(x)
             + jnp.exp2(x) + jnp.log2(jnp.abs(x) + 1)),
            ("power, mod, floor_divide", lambda x: (jnp.abs(x) + 0.1) ** (x + 0.3)
             + jnp.mod(x, 0.7) + jnp.floor_divide(x, 0.3)),
            ("sinc and Legendre's P3", lambda x: jnp.sinc(x) + 2.5 * x ** 3 - 1.5 * x)):
        program("%s of 50000" % name, f32(50000))(f)
    program("gammaln, erf, tan, pow of 50000, f64", of(np.float64, 50000))(
        lambda x: s.gammaln(jnp.abs(x) + 1) + s.erf(x) + jnp.tan(x) + (jnp.abs(x) + 1) ** x)
    program("log of a binomial's and a t's density, 100000", f32(100000))(
        lambda x: jax.scipy.stats.t.logpdf(x, 5.0) + jax.scipy.stats.beta.logpdf(
            jax.nn.sigmoid(x), 2.0, 3.0) + jax.scipy.stats.norm.logcdf(x))
    program("gradient of gammaln and betaln, 50000", f32(50000))(
        jax.grad(lambda x: jnp.sum(s.gammaln(jnp.abs(x) + 1) + s.betaln(jnp.abs(x) + 1, 2.0))))


def bits(program, below, of):
    u32 = of(np.uint32, 100000)
    program("xorshift, 100000 of 50 steps", u32)(
        lambda x: lax.fori_loop(0, 50, lambda _, x: (lambda x: (lambda x: x ^ (x << 5))(
            x ^ (x >> 17)))(x ^ (x << 13)), x))
    program("popcount, clz and reversed bits, 1000000", of(np.uint32, 1000000))(
        lambda x: lax.population_count(x) + lax.clz(x) + (((x >> 1) & 0x55555555)
                                                          | ((x & 0x55555555) << 1)))
    program("CRC-32 of 4096 bytes by table", below(256, 4096))(crc)
    program("FNV hash of 10000 rows of 16", of(np.uint32, 10000, 16))(
        lambda x: lax.scan(lambda h, b: ((h ^ b) * jnp.uint32(16777619), None),
                           jnp.full(10000, 2166136261, jnp.uint32), x.T)[0])
    program("murmur's mixing of 1000000, u64", of(np.uint64, 1000000), of(np.float64, 1))(
        lambda x, _: mix64(x))
    program("Morton codes of 200000", below(65536, 200000), below(65536, 200000))(
        lambda x, y: spread(x.astype(jnp.uint32)) | (spread(y.astype(jnp.uint32)) << 1))
    program("greatest common divisors of 100000", below(10000, 100000), below(10000, 100000))(
        jnp.gcd)
    program("powers modulo a prime, 20000", below(10007, 20000))(
        lambda x: lax.fori_loop(0, 14, lambda i, s: (jnp.where((9973 >> i) & 1, s[0] * s[1] % 10007,
                                                               s[0]), s[1] * s[1] % 10007),
                                (jnp.ones_like(x), x))[0])
    program("division and remainder by 7 and by another, 500000", below(100000, 500000),
            below(1000, 500000))(lambda x, y: x // 7 + x % 7 + x // (y + 1) + x % (y + 1))
    program("packbits and unpackbits of 1000x1000", of(np.float32, 1000, 1000))(
        lambda x: jnp.unpackbits(jnp.packbits(x > 0, axis=1), axis=1).sum(1, dtype=jnp.int32))
    program("Sobol points, 16384 in 4", below(2, 1))(sobol)
    program("SHA-256's rounds of 1000 blocks", of(np.uint32, 1000, 16))(sha256)


def mix64(x):
    x = (x ^ (x >> 33)) * np.uint64(0xff51afd7ed558ccd)
    x = (x ^ (x >> 33)) * np.uint64(0xc4ceb9fe1a85ec53)
    return x ^ (x >> 33)


def spread(x):
    for n, m in ((8, 0x00ff00ff), (4, 0x0f0f0f0f), (2, 0x33333333), (1, 0x55555555)):
        x = (x | (x << n)) & m
    return x


def crc(data):
    table = jnp.arange(256, dtype=jnp.uint32)
    for _ in range(8):
        table = jnp.where(table & 1, (table >> 1) ^ jnp.uint32(0xedb88320), table >> 1)
    return ~lax.scan(lambda c, b: (table[(c ^ b) & 255] ^ (c >> 8), None), jnp.uint32(0xffffffff),
                     data.astype(jnp.uint32))[0]


def sobol(x):
    v = jnp.array([[1 << (31 - i) for i in range(14)],
                   [(0xffffffff << (31 - i)) & 0xffffffff ^ (i * 0x01234567) for i in range(14)],
                   [(0xc0000000 >> i) for i in range(14)],
                   [(0xa0000000 >> i) for i in range(14)]], jnp.uint32)
    n = jnp.arange(16384, dtype=jnp.uint32) + x[0].astype(jnp.uint32)
    gray = n ^ (n >> 1)
    on = (gray[:, None] >> jnp.arange(14, dtype=jnp.uint32)) & 1
    return lax.reduce(on[:, None] * v, np.uint32(0), lax.bitwise_xor, (2,)) / 4294967296.0


def sha256(w):
    k = jnp.arange(64, dtype=jnp.uint32) * jnp.uint32(0x9e3779b9)
    rot = lambda x, n: (x >> n) | (x << (32 - n))  # noqa: E731

    def expand(w, _):
        a, b = w[1], w[14]
        n = (w[0] + (rot(a, 7) ^ rot(a, 18) ^ (a >> 3)) + w[9]
             + (rot(b, 17) ^ rot(b, 19) ^ (b >> 10)))
        return jnp.concatenate([w[1:], n[None]]), w[0]

    def turn(s, x):
        a, b, c, d, e, f, g, h = s
        t = (h + (rot(e, 6) ^ rot(e, 11) ^ rot(e, 25)) + ((e & f) ^ (~e & g)) + x[0] + x[1])
        u = (rot(a, 2) ^ rot(a, 13) ^ rot(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        return (t + u, a, b, c, d + t, e, f, g), None
    words = lax.scan(expand, w.T, None, 64)[1]
    start = tuple(jnp.full(w.shape[0], 0x6a09e667 + i, jnp.uint32) for i in range(8))
    return jnp.stack(lax.scan(turn, start, (k, words))[0])


def small(program, f32, of):
    bf16, f16 = ml_dtypes.bfloat16, np.float16
    image = of(np.uint8, 512, 512, 3)
    program("grey, threshold and inverse of a picture, u8", image)(
        lambda x: jnp.where((x @ jnp.array([77, 150, 29])) >> 8 > 128, 255, 0).astype(jnp.uint8))
    program("alpha blending of pictures, u8", image, image)(
        lambda x, y: ((x.astype(jnp.uint16) * 77 + y.astype(jnp.uint16) * 179) >> 8).astype(
            jnp.uint8))
    program("gamma correction by table, u8", image)(
        lambda x: jnp.asarray((np.arange(256) / 255) ** 0.45 * 255, jnp.uint8)[x])
    program("histogram equalisation, u8", of(np.uint8, 512, 512))(
        lambda x: (lambda c: ((c - c[0]) * 255 // jnp.maximum(c[-1] - c[0], 1)).astype(
            jnp.uint8)[x])(jnp.cumsum(jnp.zeros(256, jnp.int32).at[x].add(1))))
    program("Sobel's edges, u8 512x512", of(np.uint8, 512, 512))(sobel)
    program("median filter 3x3 of 256x256", f32(256, 256))(
        lambda x: jnp.median(jnp.stack([jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1)
                                        for j in (-1, 0, 1)]), 0))
    program("erosion and dilation, u8 512x512", of(np.uint8, 512, 512))(
        lambda x: lax.reduce_window(x, np.uint8(0), lax.max, (5, 5), (1, 1), "SAME")
        - lax.reduce_window(x, np.uint8(255), lax.min, (5, 5), (1, 1), "SAME"))
    program("resizing 256x256x3 to 400x300, bilinear", f32(256, 256, 3))(
        lambda x: jax.image.resize(x, (400, 300, 3), "bilinear"))
    program("resizing 128x128 to 300x300, cubic", f32(128, 128))(
        lambda x: jax.image.resize(x, (300, 300), "cubic"))
    program("rotation by map_coordinates, 256x256", f32(256, 256))(rotate)
    program("bilateral filter 5x5, 128x128", f32(128, 128))(bilateral)
    for name, t in (("bf16", bf16), ("f16", f16)):
        program("gelu and layer norm, %s 512x768" % name, of(t, 512, 768))(
            lambda x: (lambda y: (y - y.mean(1, keepdims=True)) * lax.rsqrt(
                y.var(1, keepdims=True) + 1e-5))(jax.nn.gelu(x)))
        program("softmax of rows, %s 1000x1000" % name, of(t, 1000, 1000))(
            lambda x: jax.nn.softmax(x, -1))
        program("polynomial and clip, %s 1000000" % name, of(t, 1000000))(
            lambda x: jnp.clip(((x * 0.5 + 1) * x - 2) * x + 0.25, -1, 1))
    program("int8 dot with scales, 64x256 by 256x128", of(np.int8, 64, 256), of(np.int8, 256, 128),
            f32(64), f32(128))(
        lambda x, y, a, b: lax.dot(x, y, preferred_element_type=jnp.int32) * a[:, None] * b)
    program("quantisation of rows to int8, 1000x512", f32(1000, 512))(
        lambda x: (lambda s: (jnp.round(x / s).astype(jnp.int8), s))(
            jnp.max(jnp.abs(x), 1, keepdims=True) / 127))


def sobel(x):
    x = jnp.pad(x.astype(jnp.int32), 1, mode="edge")
    a = x[:-2] + 2 * x[1:-1] + x[2:]
    b = x[:, :-2] + 2 * x[:, 1:-1] + x[:, 2:]
    return jnp.clip(jnp.abs(a[:, 2:] - a[:, :-2]) + jnp.abs(b[2:] - b[:-2]), 0, 255).astype(
        jnp.uint8)


def rotate(x):
    i, j = jnp.meshgrid(jnp.arange(256.0) - 128, jnp.arange(256.0) - 128, indexing="ij")
    c, s = np.cos(0.3), np.sin(0.3)
    return jax.scipy.ndimage.map_coordinates(
        x, [c * i - s * j + 128, s * i + c * j + 128], order=1, mode="nearest")


def bilateral(x):
    p = jnp.pad(x, 2, mode="reflect")
    total, weight = jnp.zeros_like(x), jnp.zeros_like(x)
    for i in range(5):
        for j in range(5):
            y = p[i:i + 128, j:j + 128]
            w = jnp.exp(-((i - 2) ** 2 + (j - 2) ** 2) / 8.0 - (x - y) ** 2 * 2)
            total, weight = total + w * y, weight + w
    return total / weight


def complexes(program, f32, of):
    c64 = np.complex64
    program("Julia set 200x200, 50 steps", f32(200), f32(200))(
        lambda a, b: lax.fori_loop(
            0, 50, lambda _, s: (lambda z: (z, s[1] + (jnp.real(z * jnp.conj(z)) < 4)))(
                jnp.where(jnp.real(s[0] * jnp.conj(s[0])) < 4, s[0] * s[0] + (-0.4 + 0.6j), s[0])),
            (lax.complex(a[None] + 0 * b[:, None], b[:, None] + 0 * a[None]),
             jnp.zeros((200, 200), jnp.int32)))[1])
    program("Newton's fractal 100x100, 20 steps", f32(100), f32(100))(
        lambda a, b: jnp.angle(lax.fori_loop(
            0, 20, lambda _, z: z - (z ** 3 - 1) / (3 * z * z),
            lax.complex(a[None] + 0 * b[:, None], b[:, None] + 0 * a[None]))))
    program("exp, log, sqrt, sin and power, c64 50000", of(c64, 50000))(
        lambda z: jnp.exp(z * 0.1) + jnp.log(z) + jnp.sqrt(z) + jnp.sin(z * 0.1) + z ** 1.5)
    program("rotation by phases and magnitudes, c64 500000", of(c64, 500000), f32(500000))(
        lambda z, t: (jnp.abs(z * jnp.exp(1j * t)), jnp.angle(z)))
    program("quantum circuit, 12 qubits, 24 gates", f32(24))(circuit)
    program("matrix product and inverse, c64 100", of(c64, 100, 100))(
        lambda a: jnp.linalg.inv(a @ a.conj().T + 10 * jnp.eye(100)))
    program("discrete Hilbert transform, 64x1000", f32(64, 1000))(
        lambda x: jnp.fft.ifft(jnp.fft.fft(x) * jnp.where(jnp.arange(1000) < 500, 2.0, 0.0)))


def circuit(angles):
    state = jnp.zeros(1 << 12, jnp.complex64).at[0].set(1)
    for n in range(24):
        q = n % 12
        c, s = jnp.cos(angles[n]), -1j * jnp.sin(angles[n])
        gate = jnp.array([[c, s], [s, c]])
        x = state.reshape(1 << q, 2, 1 << (11 - q))
        state = jnp.einsum("ab,ibj->iaj", gate, x).reshape(-1)
        k = jnp.arange(1 << 12)
        state = state * jnp.where((k >> q) & (k >> (q // 2)) & 1, -1, 1)
    return jnp.abs(state) ** 2
