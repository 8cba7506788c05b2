# SPDX-License-Identifier: Apache-2.0
"""More of programs.py: loops. Differential equations, iterative solvers, filters, dynamic programs,
recurrent layers and a decoder's steps."""
import jax
import jax.numpy as jnp
import jax.scipy.optimize
import jax.scipy.sparse.linalg
import numpy as np
from jax import lax
from jax.experimental.ode import odeint


def define(program, f32, below, of):
    equations(program, f32, of)
    solvers(program, f32, of)
    tables(program, f32, below)
    recurrent(program, f32, below)


def equations(program, f32, of):
    def lorenz(s, t, sigma=10.0, rho=28.0, beta=8 / 3):
        x, y, z = s[..., 0], s[..., 1], s[..., 2]
        return jnp.stack([sigma * (y - x), x * (rho - z) - y, x * y - beta * z], -1)

    def rk4(s, h=0.01):
        a = lorenz(s, 0)
        b = lorenz(s + h / 2 * a, 0)
        c = lorenz(s + h / 2 * b, 0)
        return s + h / 6 * (a + 2 * b + 2 * c + lorenz(s + h * c, 0))
    program("Lorenz by RK4, 1000 steps", f32(3))(
        lambda s: lax.scan(lambda s, _: (rk4(s), s), s, None, 1000)[1])
    program("Lorenz by RK4, 1000 points of 200 steps", f32(1000, 3))(
        lambda s: lax.fori_loop(0, 200, lambda _, s: rk4(s), s * 0.1))
    program("odeint of Van der Pol, 50 times", f32(2))(
        lambda s: odeint(lambda s, t: jnp.array([s[1], 2 * (1 - s[0] ** 2) * s[1] - s[0]]), s,
                         jnp.linspace(0.0, 10.0, 50)))
    program("heat equation, implicit by Thomas, 50 steps of 200", of(np.float64, 200))(
        lambda u: lax.fori_loop(0, 50, lambda _, u: thomas(u), u))

    def thomas(d, r=0.5):
        n = d.shape[0]

        def down(s, d):
            c, p = s
            m = 1 + 2 * r + r * c
            return (-r / m, (d + r * p) / m), (-r / m, (d + r * p) / m)
        _, (c, p) = lax.scan(down, (jnp.zeros((), d.dtype),) * 2, d)
        _, x = lax.scan(lambda x, s: (s[1] - s[0] * x,) * 2, jnp.zeros((), d.dtype), (c, p),
                        length=n, reverse=True)
        return x

    def wave(u):
        def step(_, s):
            a, b = s
            d = (jnp.roll(b, 1, 0) + jnp.roll(b, -1, 0) + jnp.roll(b, 1, 1) + jnp.roll(b, -1, 1)
                 - 4 * b)
            return b, 2 * b - a + 0.1 * d
        return lax.fori_loop(0, 50, step, (u, u))[1]
    program("wave equation, 256x256, 50 steps", f32(256, 256))(wave)

    def life(x):
        def step(_, x):
            n = sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)
                    if i or j)
            return ((n == 3) | ((n == 2) & (x == 1))).astype(x.dtype)
        return lax.fori_loop(0, 50, step, (x > 0).astype(jnp.int32))
    program("game of life, 256x256, 50 steps", f32(256, 256))(life)
    program("Gray-Scott, 128x128, 100 steps", f32(128, 128))(gray_scott)
    program("leapfrog of 64 bodies, 50 steps", f32(64, 3), f32(64, 3))(leapfrog)
    program("Hénon map, 100000 points of 100 steps", f32(100000), f32(100000))(
        lambda x, y: lax.fori_loop(
            0, 100, lambda _, s: (1 - 1.4 * s[0] ** 2 + s[1], 0.3 * s[0]), (x * 0.1, y * 0.1)))


def gray_scott(x):
    def laplace(a):
        return lax.conv_general_dilated(
            jnp.pad(a, 1, mode="wrap")[None, None],
            jnp.array([[[[0.05, 0.2, 0.05], [0.2, -1, 0.2], [0.05, 0.2, 0.05]]]]), (1, 1),
            "VALID")[0, 0]

    def step(_, s):
        u, v = s
        w = u * v * v
        return (u + 0.16 * laplace(u) - w + 0.06 * (1 - u),
                v + 0.08 * laplace(v) + w - (0.06 + 0.062) * v)
    v = (jnp.abs(x) > 1.5).astype(jnp.float32) * 0.5
    return lax.fori_loop(0, 100, step, (1 - v, v))


def leapfrog(p, v):
    def force(p):
        d = p[None] - p[:, None]
        return jnp.sum(d / (jnp.sum(d * d, -1, keepdims=True) + 0.1) ** 1.5, 1)

    def step(s, _):
        p, v, a = s
        v = v + 0.005 * a
        p = p + 0.01 * v
        a = force(p)
        return (p, v + 0.005 * a, a), jnp.sum(v * v)
    return lax.scan(step, (p, v, force(p)), None, 50)[1]


def solvers(program, f32, of):
    spd = lambda a: a @ a.T / a.shape[0] + jnp.eye(a.shape[0], dtype=a.dtype)  # noqa: E731
    program("conjugate gradient of 300", f32(300, 300), f32(300))(
        lambda a, b: jax.scipy.sparse.linalg.cg(spd(a), b, maxiter=100)[0])
    program("GMRES of 100", f32(100, 100), f32(100))(
        lambda a, b: jax.scipy.sparse.linalg.gmres(a + 30 * jnp.eye(100), b, maxiter=5)[0])
    program("BiCGSTAB of 200", f32(200, 200), f32(200))(
        lambda a, b: jax.scipy.sparse.linalg.bicgstab(a + 50 * jnp.eye(200), b, maxiter=50)[0])

    def gauss_seidel(a, b):
        a = a + 40 * jnp.eye(100)

        def row(i, x):
            return x.at[i].set((b[i] - a[i] @ x + a[i, i] * x[i]) / a[i, i])
        return lax.fori_loop(0, 10, lambda _, x: lax.fori_loop(0, 100, row, x), jnp.zeros(100))
    program("Gauss-Seidel of 100, 10 sweeps", f32(100, 100), f32(100))(gauss_seidel)

    def rosenbrock(x):
        return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)
    program("BFGS of Rosenbrock's function in 10", f32(10))(
        lambda x: jax.scipy.optimize.minimize(rosenbrock, x * 0.1, method="BFGS",
                                              options={"maxiter": 40}).fun)
    program("Newton with Hessians, 8 of 6", f32(8, 6))(
        jax.vmap(lambda x: lax.fori_loop(
            0, 8, lambda _, x: x - jnp.linalg.solve(
                jax.hessian(rosenbrock)(x) + 10 * jnp.eye(6), jax.grad(rosenbrock)(x)), x * 0.1)))
    program("Newton's roots until they stand, 10000", f32(10000))(
        lambda a: lax.while_loop(
            lambda s: (jnp.max(jnp.abs(s[0] - s[1])) > 1e-6) & (s[2] < 50),
            lambda s: ((s[0] + (jnp.abs(a) + 1) / s[0]) / 2, s[0], s[2] + 1),
            (jnp.ones_like(a), jnp.zeros_like(a), 0)))
    program("bisection, 10000 of 40 steps", f32(10000))(
        lambda c: lax.fori_loop(
            0, 40, lambda _, s: (lambda m: (jnp.where(m ** 3 + m < c, m, s[0]),
                                            jnp.where(m ** 3 + m < c, s[1], m)))(
                (s[0] + s[1]) / 2), (jnp.full_like(c, -5), jnp.full_like(c, 5)))[0])
    program("Jacobi's method of 200, 50 steps, f64", of(np.float64, 200, 200), of(np.float64, 200))(
        lambda a, b: lax.fori_loop(
            0, 50, lambda _, x: (b - a @ x + jnp.diag(a) * x) / (jnp.diag(a) + 60),
            jnp.zeros(200)))
    program("Sinkhorn 200x200, 50 steps", f32(200, 200))(
        lambda c: lax.fori_loop(
            0, 50, lambda _, s: (lambda u: (u, -jax.nn.logsumexp(-jnp.abs(c) + u[:, None], 0)))(
                -jax.nn.logsumexp(-jnp.abs(c) + s[1][None], 1)), (jnp.zeros(200),) * 2))
    program("gradient descent of logistic regression, 100 steps", f32(1000, 20), f32(1000))(
        lambda x, y: lax.fori_loop(
            0, 100, lambda _, w: w - 0.1 * jax.grad(lambda w: jnp.mean(
                jax.nn.softplus(x @ w) - (y > 0) * (x @ w)))(w), jnp.zeros(20)))
    program("expectation maximisation, 5000 points, 4 Gaussians", f32(5000), f32(4))(mixture)


def mixture(x, m):
    def step(_, s):
        m, v, w = s
        p = jax.nn.softmax(jnp.log(w) - (x[:, None] - m) ** 2 / (2 * v) - jnp.log(v) / 2, 1)
        n = p.sum(0) + 1e-3
        m = (p * x[:, None]).sum(0) / n
        return m, (p * (x[:, None] - m) ** 2).sum(0) / n + 1e-3, n / n.sum()
    return lax.fori_loop(0, 20, step, (m, jnp.ones(4), jnp.full(4, 0.25)))


def tables(program, f32, below):
    program("dynamic time warping 150x150", f32(150), f32(150))(warping)
    program("Levenshtein distance of 200 and 180", below(4, 200), below(4, 180))(levenshtein)
    program("Floyd-Warshall of 100", f32(100, 100))(
        lambda d: lax.fori_loop(
            0, 100, lambda k, d: jnp.minimum(d, d[:, k][:, None] + d[k][None]), jnp.abs(d)))
    program("knapsack, 100 things to 1000", below(50, 100), f32(100))(
        lambda w, v: lax.scan(
            lambda b, t: (jnp.where(jnp.arange(1000) >= t[0], jnp.maximum(
                b, jnp.roll(b, t[0]) + jnp.abs(t[1])), b), None), jnp.zeros(1000), (w, v))[0])

    def forward(obs, a, e):
        a, e = jax.nn.log_softmax(a), jax.nn.log_softmax(e)
        return lax.scan(
            lambda p, o: (jax.nn.logsumexp(p[:, None] + a, 0) + e[:, o],) * 2,
            jnp.zeros(16), obs)[1]
    program("HMM forward, 500 steps, 16 states", below(8, 500), f32(16, 16), f32(16, 8))(forward)
    program("Viterbi, 500 steps, 16 states", below(8, 500), f32(16, 16), f32(16, 8))(viterbi)
    program("Kalman filter, 300 steps, 4 and 2", f32(300, 2), f32(4, 4), f32(2, 4))(kalman)
    program("PageRank, 5000 nodes, 50000 edges, 20 steps", below(5000, 50000), below(5000, 50000))(
        page_rank)
    program("breadth first search, 2000 nodes, 10000 edges", below(2000, 10000),
            below(2000, 10000))(
        lambda a, b: lax.while_loop(
            lambda s: s[1], lambda s: (lambda d: (d, jnp.any(d != s[0])))(
                s[0].at[b].min(s[0][a] + 1)),
            (jnp.full(2000, 1 << 20).at[0].set(0), True))[0])
    program("sieve to 20000", below(2, 1))(
        lambda x: lax.fori_loop(
            2, 142, lambda i, p: jnp.where(p[i] & (jnp.arange(20000) % i == 0)
                                           & (jnp.arange(20000) > i), False, p),
            jnp.full(20000, True).at[0].set(x[0] > 5)))
    program("Collatz's steps of 100000", below(100000, 100000))(
        lambda n: lax.while_loop(
            lambda s: jnp.any(s[0] > 1),
            lambda s: (jnp.where(s[0] > 1, jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[0]),
                       s[1] + (s[0] > 1)), (n.astype(jnp.uint32) % 1000, jnp.zeros_like(n)))[1])


def warping(x, y):
    def row(top, a):
        def cell(left, s):
            u, d, b = s
            v = jnp.abs(a - b) + jnp.minimum(jnp.minimum(left, u), d)
            return v, v
        out = lax.scan(cell, jnp.inf, (top[1:], top[:-1], y))[1]
        return jnp.concatenate([jnp.array([jnp.inf]), out]), None
    start = jnp.full(y.shape[0] + 1, jnp.inf).at[0].set(0)
    return lax.scan(row, start, x)[0][-1]


def levenshtein(a, b):
    n = b.shape[0]

    def row(top, ai):
        def cell(left, s):
            u, d, bj = s
            v = jnp.minimum(jnp.minimum(left, u) + 1, d + (ai != bj))
            return v, v
        first = top[0] + 1
        out = lax.scan(cell, first, (top[1:], top[:-1], b))[1]
        return jnp.concatenate([first[None], out]), None
    return lax.scan(row, jnp.arange(n + 1), a)[0][-1]


def viterbi(obs, a, e):
    a, e = jax.nn.log_softmax(a), jax.nn.log_softmax(e)

    def step(p, o):
        s = p[:, None] + a
        return s.max(0) + e[:, o], jnp.argmax(s, 0)
    p, back = lax.scan(step, jnp.zeros(16), obs)
    return lax.scan(lambda k, b: (b[k], b[k]), jnp.argmax(p), back, reverse=True)[1]


def kalman(z, f, h):
    f, q, r = f * 0.3, 0.1 * jnp.eye(4), jnp.eye(2)

    def step(s, z):
        x, p = s
        x, p = f @ x, f @ p @ f.T + q
        c = h @ p @ h.T + r
        k = jnp.linalg.solve(c, h @ p).T
        x = x + k @ (z - h @ x)
        return (x, p - k @ h @ p), x
    return lax.scan(step, (jnp.zeros(4), jnp.eye(4)), z)[1]


def page_rank(src, dst):
    n = 5000
    out = jnp.maximum(jax.ops.segment_sum(jnp.ones(src.shape), src, n), 1)
    return lax.fori_loop(
        0, 20, lambda _, r: 0.15 / n + 0.85 * jax.ops.segment_sum((r / out)[src], dst, n),
        jnp.full(n, 1 / n))


def recurrent(program, f32, below):
    def gru(h, x, w, u):
        a, b = x @ w * 0.1, h @ u * 0.1
        z = jax.nn.sigmoid(a[..., :64] + b[..., :64])
        r = jax.nn.sigmoid(a[..., 64:128] + b[..., 64:128])
        return (1 - z) * h + z * jnp.tanh(a[..., 128:] + r * b[..., 128:])
    program("GRU by scan, 100 steps, batch 8, 64", f32(100, 8, 32), f32(32, 192), f32(64, 192))(
        lambda x, w, u: lax.scan(lambda h, x: (gru(h, x, w, u),) * 2, jnp.zeros((8, 64)), x)[1])
    program("gradient of a GRU by scan, 50 steps, batch 8", f32(50, 8, 32), f32(32, 192),
            f32(64, 192))(
        jax.grad(lambda x, w, u: jnp.sum(lax.scan(
                     lambda h, x: (gru(h, x, w, u), None), jnp.zeros((8, 64)), x)[0] ** 2), (1, 2)))
    program("recurrent layer of one row, 200 steps of 128", f32(200, 128), f32(128, 128),
            f32(128, 128))(
        lambda x, w, u: lax.scan(lambda h, x: (jnp.tanh(x @ w * 0.1 + h @ u * 0.1),) * 2,
                                 jnp.zeros(128), x)[1])
    program("echo state, 500 steps of 100, f64 out", f32(500), f32(100, 100), f32(100))(
        lambda x, w, v: lax.scan(lambda s, u: (jnp.tanh(w @ s * 0.1 + v * u),) * 2, jnp.zeros(100),
                                 x)[1])
    program("decoding 32 tokens with a cache, 4 heads of 32", f32(128, 384), f32(128, 128),
            f32(1000, 128))(decode)
    program("state space layer by scan, 256 steps of 64x16", f32(256, 64), f32(64, 16),
            f32(256, 16), f32(256, 16))(
        lambda x, a, b, c: lax.scan(
            lambda h, s: (lambda h: (h, h @ s[2]))(
                jnp.exp(-jnp.abs(a)) * h + s[0][:, None] * s[1]), jnp.zeros((64, 16)),
            (x, b, c))[1])
    program("state space layer by associative scan, 256 of 64x16", f32(256, 64), f32(64, 16),
            f32(256, 16))(
        lambda x, a, b: lax.associative_scan(
            lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]),
            (jnp.broadcast_to(jnp.exp(-jnp.abs(a)), (256, 64, 16)), x[..., None] * b[:, None]))[1])


def decode(wqkv, wo, emb):
    def step(s, i):
        k, v, tok = s
        x = emb[tok]
        q, kn, vn = jnp.split(x @ wqkv * 0.1, 3)
        k = lax.dynamic_update_slice(k, kn.reshape(1, 4, 32), (i, 0, 0))
        v = lax.dynamic_update_slice(v, vn.reshape(1, 4, 32), (i, 0, 0))
        a = jnp.einsum("hd,thd->ht", q.reshape(4, 32), k) / 5.6
        a = jax.nn.softmax(jnp.where(jnp.arange(64) <= i, a, -1e30))
        y = x + jnp.einsum("ht,thd->hd", a, v).reshape(128) @ wo * 0.1
        tok = jnp.argmax(emb @ y)
        return (k, v, tok), tok
    z = jnp.zeros((64, 4, 32))
    return lax.scan(step, (z, z, 7), jnp.arange(32))[1]
