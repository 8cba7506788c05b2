# SPDX-License-Identifier: Apache-2.0
"""More of programs.py: programs that were slow when they were first tried here (docs/performance.md
says why). Gathers of rows and of places that are computed, gates on many states, dilated and causal
convolutions and their gradients, remainders, sums of exponentials, recurrences, products with a
transposed matrix in loops, halves that are joined, products of many small matrices, bodies in
space, columns that are put, weights of 4 bits, tables of few states, rotations of rows, grids
whose rows do not fill vectors, chains of few hidden states, small triangular systems with several
right sides, rotations of long rows, loops over matrices of three."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

C64 = np.complex64


def define(program, f32, below, of):
    gathers(program, f32, below)
    circuits(program, f32, of)
    convolutions(program, f32)
    colours(program, f32)
    sequences(program, f32)
    descents(program, f32, below, of)
    halves(program, f32, below, of)
    small_products(program, f32)
    spaces(program, f32, below, of)
    narrow(program, f32, below, of)
    tables(program, f32, below)
    rotations(program, f32, of)
    grids(program, below, of)
    short_chains(program, f32, of)
    long_rows(program, f32)


def perlin(x, y, table):
    """Gradient noise (Perlin, 1985): four corners' gradients from a table of permutations."""
    def gradient(h, x, y):
        return jnp.where(h & 1, -x, x) + jnp.where(h & 2, -y, y)

    def smooth(t):
        return t * t * t * (t * (t * 6 - 15) + 10)
    i, j = (jnp.floor(v).astype(jnp.int32) & 255 for v in (x, y))
    a, b = x - jnp.floor(x), y - jnp.floor(y)
    corner = lambda di, dj: gradient(table[(table[(i + di) & 255] + j + dj) & 255], a - di, b - dj)
    u, v = smooth(a), smooth(b)
    low = corner(0, 0) + u * (corner(1, 0) - corner(0, 0))
    high = corner(0, 1) + u * (corner(1, 1) - corner(0, 1))
    return low + v * (high - low)


def hash_grid(x, tables):
    """Features of points from hashed grids of several sizes (Müller et al., 2022)."""
    def level(k):
        at = jnp.floor(jnp.abs(x) * 2.0 ** k * 4).astype(jnp.int32)
        return tables[k][(at[:, 0] ^ (at[:, 1] * 2654435)) & (tables.shape[1] - 1)]
    return jnp.concatenate([level(k) for k in range(tables.shape[0])], 1)


def gathers(program, f32, below):
    def boxes(image, corners):
        grid = lambda c: jnp.meshgrid(jnp.abs(c[0]) * 10 + jnp.arange(7),
                                      jnp.abs(c[1]) * 10 + jnp.arange(7), indexing="ij")
        one = lambda c: jax.vmap(lambda plane: jax.scipy.ndimage.map_coordinates(plane, grid(c), 1),
                                 -1, -1)(image)
        return jax.vmap(one)(corners)
    program("boxes of 7x7 by map_coordinates, 50 of 64x64x32", f32(64, 64, 32), f32(50, 4))(boxes)
    program("Perlin noise, 512x512", f32(512, 512), f32(512, 512),
            below(256, 256))(lambda x, y, t: perlin(x * 10, y * 10, t))
    program("hash grid encoding, 20000 points, 8 levels", f32(20000, 2), f32(8, 4096, 2))(hash_grid)

    def voxels(points):
        at = jnp.clip((points * 5 + 16).astype(jnp.int32), 0, 31)
        return jnp.zeros(32 ** 3).at[(at[:, 0] * 32 + at[:, 1]) * 32 + at[:, 2]].add(1)
    program("voxels of 50000 points", f32(50000, 3))(voxels)


def circuits(program, f32, of):
    def turn(state, q, angle):  # a rotation about x of qubit q
        v = state.reshape(2 ** q, 2, -1)
        c, s = jnp.cos(angle), 1j * jnp.sin(angle)
        return jnp.stack([c * v[:, 0] - s * v[:, 1], c * v[:, 1] - s * v[:, 0]], 1).reshape(-1)

    def layers(state, angles):
        def layer(_, s):
            for q in range(16):
                s = turn(s, q, angles[q])
            return s
        return lax.fori_loop(0, 4, layer, state)
    program("circuit of 16 qubits, 4 layers", of(C64, 65536), f32(16))(layers)


def convolutions(program, f32):
    def dilated(x, w):
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", rhs_dilation=(2, 2),
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return jnp.sum(y ** 2)
    program("gradients of a dilated convolution, 4x32x32x32", f32(4, 32, 32, 32),
            f32(3, 3, 32, 32))(jax.grad(dilated, (0, 1)))

    def causal(x, w):
        y = lax.conv_general_dilated(x, w, (1,), ((8, 0),), rhs_dilation=(4,),
                                     dimension_numbers=("NWC", "WIO", "NWC"))
        return jnp.sum(y ** 2)
    program("gradients of a causal convolution, 8x512x32", f32(8, 512, 32),
            f32(3, 32, 32))(jax.grad(causal, (0, 1)))


def colours(program, f32):
    def hsv(rgb):
        r, g, b = (rgb[..., k] for k in range(3))
        high, low = rgb.max(-1), rgb.min(-1)
        span = high - low + 1e-6
        hue = jnp.where(high == r, (g - b) / span % 6,
                        jnp.where(high == g, (b - r) / span + 2, (r - g) / span + 4))
        return jnp.stack([hue, (high - low) / (high + 1e-6), high], -1)
    program("HSV of 512x512x3", f32(512, 512, 3))(hsv)
    program("density of 2000 points at 2000 by a kernel", f32(2000), f32(2000))(
        lambda x, at: jnp.exp(-0.5 * ((at[:, None] - x) / 0.2) ** 2).mean(1))


def sequences(program, f32):
    def rwkv(k, v, decay, first):
        """Weighted sums over the past in one pass (Peng et al., 2023), kept from overflow."""
        def step(state, kv):
            a, b, top = state
            k, v = kv
            high = jnp.maximum(top, first + k)
            p, q = jnp.exp(top - high), jnp.exp(first + k - high)
            y = (p * a + q * v) / (p * b + q)
            high = jnp.maximum(top + decay, k)
            p, q = jnp.exp(top + decay - high), jnp.exp(k - high)
            return (p * a + q * v, p * b + q, high), y
        zero = jnp.zeros(k.shape[1])
        return lax.scan(step, (zero, zero, zero - 1e30), (k, v))[1]
    program("RWKV's recurrence, 1024 steps of 512", f32(1024, 512), f32(1024, 512), f32(512),
            f32(512))(rwkv)


def descents(program, f32, below, of):
    """A'r: neighbours of the result are neighbours in the matrix's rows."""
    def squares(a, b):
        return lax.fori_loop(0, 100, lambda _, x: x - 1e-3 * (a.T @ (a @ x - b)),
                             jnp.zeros(a.shape[1], a.dtype))
    program("least squares by descent, 300x60, 100 steps", f32(300, 60), f32(300))(squares)
    program("least squares by descent, f64 300x60, 100 steps", of(np.float64, 300, 60),
            of(np.float64, 300))(squares)
    program("logistic regression, 500x30, 100 steps", f32(500, 30), below(2, 500))(
        lambda a, y: lax.fori_loop(
            0, 100, lambda _, w: w - 1e-3 * (a.T @ (jax.nn.sigmoid(a @ w) - y)), jnp.zeros(30)))
    program("value iteration, 500 states, 4 actions, 20 steps", f32(4, 500, 500), f32(4, 500))(
        lambda p, r: lax.fori_loop(
            0, 20, lambda _, v: jnp.max(r + 0.9 * jnp.einsum("asn,n->as", jax.nn.softmax(p), v), 0),
            jnp.zeros(500)))


def halves(program, f32, below, of):
    def average(x):
        def join(a, b):
            return a[0] * b[0], b[0] * a[1] + b[1]
        return lax.associative_scan(join, (jnp.full(x.shape, 0.9), x), axis=1)[1]
    program("exponential averages of rows by associative scan, 64x2000", f32(64, 2000))(average)

    def network(x):
        a, b = (x.reshape(64, 2, 512)[:, k] for k in range(2))
        return jnp.concatenate([jnp.minimum(a, b), jnp.maximum(a, b)], 1)
    program("one stage of a sorting network, 64x1024", f32(64, 1024))(
        network)

    def blend(over, under):
        wide, alpha = over[..., :3].astype(jnp.int32), over[..., 3:].astype(jnp.int32)
        return ((wide * alpha + under.astype(jnp.int32) * (255 - alpha)) // 255).astype(jnp.uint8)
    program("u8 pictures blended by alpha, 256x256", of(np.uint8, 256, 256, 4),
            of(np.uint8, 256, 256, 3))(blend)

    def topple(sand):
        over = (sand >= 4).astype(jnp.int32)
        p = jnp.pad(over, 1)
        return sand - 4 * over + p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
    program("sandpile of 64x64, 50 steps", below(6, 64, 64))(
        lambda s: lax.fori_loop(0, 50, lambda _, s: topple(s), s))


def small_products(program, f32):
    def route(votes):
        """Routing by agreement of capsules (Sabour et al., 2017)."""
        def step(_, b):
            s = jnp.einsum("bnk,bnkd->bkd", jax.nn.softmax(b, -1), votes)
            v = s / (1 + jnp.linalg.norm(s, axis=-1, keepdims=True))
            return b + jnp.einsum("bnkd,bkd->bnk", votes, v)
        return lax.fori_loop(0, 3, step, jnp.zeros(votes.shape[:3]))
    program("capsules' votes and routing, 8 of 64 to 10", f32(8, 64, 8), f32(64, 10, 8, 8))(
        lambda u, w: route(jnp.einsum("bnd,nkde->bnke", u, w)))
    program("300 products of 80x14 by 14x3", f32(300, 80, 14), f32(300, 14, 3))(
        lambda x, y: x @ y)
    program("300 products of 14x24 by 10x24, turned", f32(300, 14, 24), f32(300, 10, 24))(
        lambda x, y: x @ jnp.swapaxes(y, 1, 2))


def spaces(program, f32, below, of):
    """Vectors and quaternions in loops, as physics by vmap has them; planes of boards."""
    def turn(q, v):
        u = q[1:]
        return 2 * jnp.dot(u, v) * u + (q[0] ** 2 - jnp.dot(u, u)) * v + 2 * q[0] * jnp.cross(u, v)

    def times(p, q):
        return jnp.concatenate([(p[0] * q[0] - jnp.dot(p[1:], q[1:]))[None],
                                p[0] * q[1:] + q[0] * p[1:] + jnp.cross(p[1:], q[1:])])

    def tied(x, q, v, w, arm):
        def step(_, s):
            x, q, v, w = s
            ends = x + jax.vmap(turn)(q, arm)
            pull = 5 * (jnp.roll(ends, 1, 0) - ends) - v
            w = w + .01 * jnp.cross(ends - x, pull)
            q = q + .005 * jax.vmap(times)(jnp.pad(w, ((0, 0), (1, 0))), q)
            v = v + .01 * pull
            return x + .01 * v, q / jnp.sqrt(jax.vmap(jnp.dot)(q, q))[:, None], v, w
        return lax.fori_loop(0, 20, step, (x, q, v, w))[0]
    program("8 chains of 12 bodies tied by springs, 20 steps", f32(8, 12, 3), f32(8, 12, 4),
            f32(8, 12, 3), f32(8, 12, 3), f32(8, 12, 3))(jax.vmap(tied))
    program("2000 rotations by matrices of quaternions", f32(2000, 4), f32(2000, 3))(
        jax.vmap(lambda q, v: jax.vmap(lambda e: turn(q, e))(jnp.eye(3)).T @ v))

    def planes(boards, at):
        seen = jnp.zeros((16, 10, 10, 6), bool)
        for k in range(6):
            seen = seen.at[..., k].set(jnp.roll(boards, k, 1) == at[:, None, None] + k)
        return seen
    program("6 planes of 16 boards put one by one", below(6, 16, 10, 10), below(3, 16))(planes)
    program("rows of bf16 taken, those outside as NaN", of(jnp.bfloat16, 9523, 21),
            below(12000, 19047))(lambda x, i: jnp.take(x, i, axis=0))


def narrow(program, f32, below, of):
    """Weights of 4 bits as they are unpacked from bytes."""
    bits = lax.bitcast_convert_type
    program("weights of s4 in bytes, 16x1024 by 1024x1024", f32(16, 1024), of(np.uint8, 1024, 512),
            f32(1024))(
        lambda x, w, s: x @ (bits(w, jnp.int4).reshape(1024, 1024).astype(np.float32) * s))
    program("weights of f4 with scales, 16x1024 by 1024x512", f32(16, 1024),
            of(np.uint8, 512, 512), below(20, 512, 32))(
        lambda x, w, e: x @ (bits(w, jnp.float4_e2m1fn).reshape(512, 32, 32).astype(np.float32)
                             * bits((e + 117).astype(jnp.uint8), jnp.float8_e8m0fnu).astype(
                                 np.float32)[..., None]).reshape(512, 1024).T)


def tables(program, f32, below):
    """Dynamic programs of few states; sparse rows."""
    from jax.experimental import sparse

    def best(e, t):
        def step(c, x):
            m = c[:, None] + t
            return m.max(0) + x, jnp.argmax(m, 0)
        last, back = lax.scan(step, e[0], e[1:])
        return lax.scan(lambda s, p: (p[s], p[s]), jnp.argmax(last), back, reverse=True)[1]
    program("Viterbi of 16 rows of 50 steps, 12 states", f32(16, 50, 12), f32(12, 12))(
        lambda e, t: jax.vmap(lambda e: best(e, t))(e))
    program("maxima of 10 columns in 50 turns", f32(16, 10), f32(10, 10))(
        lambda c, t: lax.fori_loop(0, 50, lambda i, c: (c[:, :, None] + t).max(1), c))
    program("compressed rows of 2000x2000 by 16 columns", f32(20000), below(2000, 20000),
            f32(2000, 16))(
        lambda d, c, x: sparse.BCSR((d, c, jnp.arange(0, 20001, 10)), shape=(2000, 2000)) @ x)


def rotations(program, f32, of):
    """Rows that are turned, and parts of several arrays side by side."""
    for n in (9, 24, 1000):
        program("jnp.roll by two of rows of %d, f32" % n, f32(200000 // n, n))(
            lambda x: jnp.roll(x, 2, 1))
    program("halves of rows of 13 bytes change places", of(np.int8, 15384, 13))(
        lambda x: jnp.concatenate([x[:, 6:], x[:, :6]], 1))
    program("jnp.roll of pairs of f16 in rows of 16", of(np.float16, 6250, 16, 2))(
        lambda x: jnp.roll(x, 1, 1))
    program("halves of two arrays, rows of 13", f32(15384, 13), f32(15384, 13))(
        lambda x, y: jnp.concatenate([x[:, 6:], y[:, :6]], 1))
    program("fftshift of 200 images of 33x33", f32(200, 33, 33))(
        lambda x: jnp.fft.fftshift(x, (1, 2)))
    program("largest of rows of 9, f64", of(np.float64, 22222, 9))(lambda x: x.max(1))
    for n in (6, 9):
        program("logsumexp of rows of %d, f64" % n, of(np.float64, 60000 // n, n))(
            lambda x: jax.nn.logsumexp(x, 1))
    program("logarithms of softmax, rows of 12, f64", of(np.float64, 5000, 12))(
        lambda x: jax.nn.log_softmax(x, 1))
    program("log-domain updates of 200x200, 50 turns", f32(200, 200), f32(200))(
        lambda c, u: lax.fori_loop(0, 50, lambda _, u: -jax.nn.logsumexp(u - c, 1), u))
    for n in (3, 10, 32):
        program("products of 16 rows of 1000 by %d" % n, f32(16, 1000), f32(1000, n))(
            lambda x, y: x @ y)


def grids(program, below, of):
    def topple(g):
        high, g = jnp.pad(g // 4, 1), g % 4
        return g + high[2:, 1:-1] + high[:-2, 1:-1] + high[1:-1, 2:] + high[1:-1, :-2]
    program("sandpile of 64x64 until it rests", below(8, 64, 64))(
        lambda g: lax.while_loop(lambda g: (g >= 4).any(), topple, g))

    def live(_, g):
        around = jnp.pad(g, 1)
        n = sum(around[i:i + 128, j:j + 128] for i in range(3) for j in range(3)) - g
        return ((n == 3) | ((g == 1) & (n == 2))).astype(g.dtype)
    program("game of life in bytes, 128x128, 20 turns", of(np.uint8, 128, 128))(
        lambda g: lax.fori_loop(0, 20, live, g & 1))
    program("Jacobi's method on 32x32, 20 turns", of(np.float32, 32, 32))(
        lambda u: lax.fori_loop(0, 20, lambda _, u: u.at[1:-1, 1:-1].set(
            (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]) / 4), u))


def short_chains(program, f32, of):
    def forward(e, t):
        step = lambda a, x: (jax.nn.logsumexp(a[:, None] + t, 0) + x, None)
        return lax.scan(step, e[0], e[1:])[0]
    for n in (5, 7):
        program("forward algorithm, 16 chains of 100 steps, %d states" % n, f32(16, 100, n),
                f32(n, n))(jax.vmap(forward, (0, None)))
    for n in (4, 9, 13):
        program("200 triangular systems of %d with 9 right sides" % n, f32(200, n, n),
                f32(200, n, 9))(lambda a, b: lax.linalg.triangular_solve(
                    a + 8 * jnp.eye(a.shape[-1]), b, left_side=True, lower=True))


def long_rows(program, f32):
    def turn(_, a):
        return a + .1 * jnp.roll(a, -1) * jnp.roll(a, -2)
    for n in (2000, 8192):
        program("a row of %d and its rotations, 24 turns" % n, f32(n))(
            lambda a: lax.fori_loop(0, 24, turn, a * .1))
    program("a row of 400000 and its rotations, once", f32(400000))(lambda a: turn(0, a))

    def powers(a, x):
        step = lambda _, x: (lambda y: y / (jnp.linalg.norm(y) + 1e-6))(a @ x)
        return lax.fori_loop(0, 100000, step, x)
    program("direction of a matrix of 3x3, 100000 turns", f32(3, 3), f32(3))(powers)
    program("a matrix of 3x3 by another, and turned, 10000 turns", f32(3, 3), f32(3, 3))(
        lambda x, b: lax.fori_loop(0, 10000, lambda _, x: (x @ b + x.T) * .3, x))
