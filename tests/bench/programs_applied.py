# SPDX-License-Identifier: Apache-2.0
"""More of programs.py: programs as their authors write them. Finance, filters of states, graphs and
texts, physics on grids and of particles, geometry, codes and bits, transforms, pictures, models of
sequences, statistics, linear algebra by iteration."""
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax import lax

F64, U8, U32, BF16 = np.float64, np.uint8, np.uint32, ml_dtypes.bfloat16
KEY = ("key", np.uint32, (2,))


def define(program, f32, below, of):
    finance(program, f32, of)
    states(program, f32, below, of)
    tables(program, f32, below)
    fields(program, f32, of)
    particles(program, f32, of)
    codes(program, below, of)
    transforms(program, f32, of)
    pictures(program, f32, of)
    sequences(program, f32, below, of)
    choices(program, f32, below)
    iterations(program, f32, of)


def normal_cdf(x):
    return 0.5 * (1 + lax.erf(x / np.sqrt(2)))


def call_price(s, k, t, sigma):
    d = (jnp.log(s / k) + 0.5 * sigma ** 2 * t) / (sigma * jnp.sqrt(t))
    return s * normal_cdf(d) - k * normal_cdf(d - sigma * jnp.sqrt(t))


def sobol(n, dims):
    """The first n points of a Sobol sequence from Gray codes (Bratley and Fox, 1988)."""
    polynomials = [(0, [1]), (1, [1]), (1, [1, 3]), (2, [1, 3, 1])][:dims]
    i = jnp.arange(n, dtype=jnp.uint32)
    gray, out = i ^ (i >> 1), []
    for d, (a, m) in enumerate(polynomials):
        m = list(m)
        for k in range(len(m), 32):
            s = max(len(polynomials[d][1]), 1)
            v = m[k - s] ^ (m[k - s] << s)
            for j in range(1, s):
                v ^= ((a >> (s - 1 - j)) & 1) * (m[k - j] << j)
            m.append(v)
        x = jnp.zeros(n, jnp.uint32)
        for k in range(32):
            v = np.uint32((m[k] << (31 - k)) & 0xffffffff) if d else np.uint32(1 << (31 - k))
            x = x ^ jnp.where((gray >> k) & 1 == 1, v, np.uint32(0))
        out.append(x)
    return jnp.stack(out, -1).astype(jnp.float32) * np.float32(2.0 ** -32)


def finance(program, f32, of):
    def bisect(k, t):
        price = call_price(1.0, 1 + 0.1 * jnp.tanh(k), 0.5 + jnp.abs(t), 0.2 + 0.1 * jnp.tanh(t))

        def step(_, s):
            lo, hi = s
            mid = 0.5 * (lo + hi)
            low = call_price(1.0, 1 + 0.1 * jnp.tanh(k), 0.5 + jnp.abs(t), mid) < price
            return jnp.where(low, mid, lo), jnp.where(low, hi, mid)
        return lax.fori_loop(0, 40, step, (jnp.full_like(k, 1e-3), jnp.full_like(k, 2.0)))[0]
    program("implied volatility by bisection, 5000", f32(5000), f32(5000))(bisect)

    def newton(k, t):
        strike, years = 1 + 0.1 * jnp.tanh(k), 0.5 + jnp.abs(t)
        price = call_price(1.0, strike, years, 0.2 + 0.1 * jnp.tanh(t))
        value = jax.vmap(jax.value_and_grad(lambda v, k, t: call_price(1.0, k, t, v)))

        def step(_, v):
            p, vega = value(v, strike, years)
            return jnp.clip(v - (p - price) / jnp.maximum(vega, 1e-8), 1e-3, 2.0)
        return lax.fori_loop(0, 6, step, jnp.full_like(k, 0.3))
    program("implied volatility by Newton, f64 5000", of(F64, 5000), of(F64, 5000))(newton)

    def binomial(k):
        up, p, n = np.exp(0.2 / np.sqrt(200)), 0.4965, 200
        s = up ** (2 * jnp.arange(n + 1.0) - n)
        strike = (1 + 0.1 * k)[:, None]

        def step(j, v):
            early = strike - s * up ** j
            return jnp.maximum(0.999 * (p * jnp.roll(v, -1, 1) + (1 - p) * v), early)
        return lax.fori_loop(0, n, step, jnp.maximum(strike - s, 0.0))[:, 0]
    program("American options by a binomial tree, 64 of 200 steps", f32(64))(binomial)

    def sobol_asian(sigma):
        u = sobol(16384, 4)
        z = jnp.sqrt(2.0) * lax.erf_inv(2 * jnp.clip(u, 1e-6, 1 - 1e-6) - 1)
        path = jnp.exp(jnp.cumsum(0.1 * jnp.abs(sigma) * z - 0.005 * sigma ** 2, 1))
        return jnp.mean(jnp.maximum(path.mean(1) - 1, 0))
    program("Asian option by Sobol numbers, 16384 of 4", f32())(sobol_asian)

    def heston(key, v0):
        z = jax.random.normal(jax.random.wrap_key_data(key), (32, 2, 4096))

        def step(s, z):
            x, v = s
            w = jnp.sqrt(jnp.maximum(v, 0.0))
            x = x - 0.5 * jnp.maximum(v, 0.0) / 32 + w * z[0] / np.sqrt(32)
            v = v + (0.04 - v) / 32 + 0.3 * w * (0.8 * z[1] - 0.6 * z[0]) / np.sqrt(32)
            return (x, v), None
        s0 = (jnp.zeros(4096), jnp.full(4096, 0.04) + 0 * v0)
        return jnp.mean(jnp.maximum(jnp.exp(lax.scan(step, s0, z)[0][0]) - 1, 0))
    program("Heston's paths, 4096 of 32 steps", KEY, f32())(heston)


def states(program, f32, below, of):
    def kalman(ys):
        a = jnp.eye(4, dtype=ys.dtype) + 0.1 * jnp.eye(4, k=2, dtype=ys.dtype)
        h, q = jnp.eye(2, 4, dtype=ys.dtype), 0.01 * jnp.eye(4, dtype=ys.dtype)
        r = 0.5 * jnp.eye(2, dtype=ys.dtype)

        def step(s, y):
            x, p = s
            x, p = a @ x, a @ p @ a.T + q
            c = h @ p @ h.T + r
            det = c[0, 0] * c[1, 1] - c[0, 1] * c[1, 0]
            inv = jnp.array([[c[1, 1], -c[0, 1]], [-c[1, 0], c[0, 0]]]) / det
            k = p @ h.T @ inv
            x = x + k @ (y - h @ x)
            p = (jnp.eye(4, dtype=ys.dtype) - k @ h) @ p
            return (x, p), x
        return lax.scan(step, (jnp.zeros(4, ys.dtype), jnp.eye(4, dtype=ys.dtype)), ys)[1]
    program("Kalman filter of 500 steps, 4 states", f32(500, 2))(kalman)
    program("Kalman filters, 64 of 100 steps, f64", of(F64, 64, 100, 2))(jax.vmap(kalman))

    def viterbi(logp, trans):
        def step(d, e):
            s = d[:, None] + trans
            return jnp.max(s, 0) + e, jnp.argmax(s, 0)
        last, back = lax.scan(step, logp[0], logp[1:])

        def walk(k, b):
            return b[k], k
        end = jnp.argmax(last)
        first, path = lax.scan(walk, end, back, reverse=True)
        return jnp.concatenate([first[None], path]), jnp.max(last)
    program("Viterbi, 32 states, 300 steps", f32(300, 32), f32(32, 32))(viterbi)

    def forward_backward(e, t):
        t = jax.nn.softmax(t, 1)
        e = jax.nn.softmax(e, 1)

        def forward(a, e):
            a = (a @ t) * e
            n = a.sum()
            return a / n, (a / n, jnp.log(n))
        def backward(b, e):
            b = t @ (e * b)
            return b / b.sum(), b
        a = lax.scan(forward, jnp.full(16, 1 / 16), e)[1]
        b = lax.scan(backward, jnp.ones(16), e, reverse=True)[1]
        return a[0] * b, a[1].sum()
    program("forward and backward of an HMM, 16 states, 400", f32(400, 16), f32(16, 16))(
        forward_backward)

    def particle(key, ys):
        def step(s, y):
            x, key = s
            key, a, b = jax.random.split(key, 3)
            x = 0.9 * x + jax.random.normal(a, x.shape, x.dtype)
            w = jax.nn.softmax(-0.5 * (y - x) ** 2)
            u = (jnp.arange(1000) + jax.random.uniform(b)) / 1000
            x = x[jnp.clip(jnp.searchsorted(jnp.cumsum(w), u), 0, 999)]
            return (x, key), x.mean()
        key = jax.random.wrap_key_data(key)
        return lax.scan(step, (jnp.zeros(1000, ys.dtype), key), ys)[1]
    program("particle filter, 1000 of 50 steps, f64", KEY, of(F64, 50))(particle)

    def hmc(key, x):
        energy = lambda q: jnp.sum(0.5 * q ** 2 + 0.1 * q ** 4, -1)  # noqa: E731
        force = jax.grad(lambda q: energy(q).sum())

        def leap(_, s):
            q, p = s
            p = p - 0.05 * force(q)
            q = q + 0.1 * p
            return q, p - 0.05 * force(q)

        def step(s, _):
            q, key = s
            key, a, b = jax.random.split(key, 3)
            p = jax.random.normal(a, q.shape)
            q2, p2 = lax.fori_loop(0, 10, leap, (q, p))
            h = energy(q) + 0.5 * jnp.sum(p ** 2, -1) - energy(q2) - 0.5 * jnp.sum(p2 ** 2, -1)
            take = jnp.log(jax.random.uniform(b, h.shape)) < h
            return (jnp.where(take[:, None], q2, q), key), jnp.mean(take)
        return lax.scan(step, (x, jax.random.wrap_key_data(key)), None, 20)
    program("Hamiltonian Monte Carlo, 64 chains of 10, 20 draws", KEY, f32(64, 10))(
        lambda k, x: hmc(k, x)[1])


def tables(program, f32, below):
    def smith_waterman(a, b):
        match = jnp.where(a[:, None] == b[None], 3.0, -3.0)

        def row(h, m):
            def cell(left, x):
                diag, up, m = x
                v = jnp.maximum(jnp.maximum(diag + m, 0.0), jnp.maximum(up, left) - 2.0)
                return v, v
            new = lax.scan(cell, 0.0, (jnp.concatenate([jnp.zeros(1), h[:-1]]), h, m))[1]
            return new, new.max()
        return lax.scan(row, jnp.zeros(b.shape[0]), match)[1].max()
    program("Smith-Waterman, 120 by 150", below(4, 120), below(4, 150))(smith_waterman)

    def edit(a, b):  # by anti-diagonals, batched
        n, m = a.shape[1], b.shape[1]
        i = jnp.arange(n + 1)

        def step(s, d):
            two, one = s
            j = d - i
            at = jnp.clip(j - 1, 0, m - 1)
            same = jnp.pad(a, ((0, 0), (1, 0))) == b[:, at]
            up, left = jnp.roll(one, 1, 1), one
            v = jnp.minimum(jnp.minimum(up, left) + 1, jnp.roll(two, 1, 1) + (~same))
            v = jnp.where(i == 0, d, jnp.where(j == 0, d, v))
            return (one, v), v[:, n]
        z = jnp.zeros((a.shape[0], n + 1), jnp.int32)
        return lax.scan(step, (z, jnp.where(i < 2, 1, 0) + z), jnp.arange(2, n + m + 1))[1][-1]
    program("edit distances, 64 of 40 by 50", below(4, 64, 40), below(4, 64, 50))(edit)

    def bellman_ford(w, src, dst):
        d = jnp.full(1000, jnp.inf).at[0].set(0.0)
        return lax.fori_loop(0, 30, lambda _, d: d.at[dst].min(d[src] + jnp.abs(w)), d)
    program("Bellman-Ford, 1000 nodes, 8000 edges, 30 rounds", f32(8000), below(1000, 8000),
            below(1000, 8000))(bellman_ford)
    program("Floyd-Warshall of 96", f32(96, 96))(
        lambda w: lax.fori_loop(0, 96, lambda k, d: jnp.minimum(d, d[:, k, None] + d[None, k]),
                                jnp.abs(w)))

    def page_rank(src, dst):
        deg = jnp.zeros(2000).at[src].add(1.0)
        return lax.fori_loop(0, 20, lambda _, r: 0.15 / 2000 + 0.85 * jnp.zeros(2000).at[dst].add(
            (r / jnp.maximum(deg, 1))[src]), jnp.full(2000, 1 / 2000))
    program("PageRank, 2000 nodes, 20000 edges", below(2000, 20000), below(2000, 20000))(page_rank)

    def components(x):
        mask = x > -0.5
        label = jnp.where(mask, jnp.arange(4096).reshape(64, 64), -1)

        def grow(s):
            lab, _ = s
            p = jnp.pad(lab, 1, constant_values=-1)
            m = jnp.maximum(jnp.maximum(p[2:, 1:-1], p[:-2, 1:-1]),
                            jnp.maximum(p[1:-1, 2:], p[1:-1, :-2]))
            new = jnp.where(mask, jnp.maximum(lab, m), -1)
            return new, jnp.any(new != lab)
        return lax.while_loop(lambda s: s[1], grow, (label, True))[0]
    program("connected components, 64x64", f32(64, 64))(components)

    def hash_table(keys, values):
        size = 8192
        h = (keys.astype(jnp.uint32) * np.uint32(2654435761) >> 19).astype(jnp.int32)

        def probe(_, s):
            table, where, done = s
            slot = (h + where) % size
            free = table[slot] == -1
            table = table.at[jnp.where(~done & free, slot, size)].set(keys, mode="drop")
            mine = table[slot] == keys
            return table, jnp.where(mine | done, where, where + 1), done | mine
        n = keys.shape[0]
        table, where, _ = lax.fori_loop(0, 8, probe, (
            jnp.full(size, -1), jnp.zeros(n, jnp.int32), jnp.zeros(n, bool)))
        return jnp.zeros(size).at[(h + where) % size].add(values)
    program("hash table of 4000 keys by scatter", below(3000, 4000), f32(4000))(hash_table)

    def run_lengths(x):
        start = jnp.concatenate([jnp.ones(1, bool), x[1:] != x[:-1]])
        run = jnp.cumsum(start) - 1
        return (jnp.zeros_like(x).at[run].set(x),
                jnp.zeros(x.shape, jnp.int32).at[run].add(1), run[-1] + 1)
    program("run-length encoding of 100000", below(3, 100000))(run_lengths)

    def radix_sort(x):
        def bit(k, x):
            b = (x >> k) & 1
            zeros = jnp.cumsum(1 - b) - 1
            ones = jnp.cumsum(b) - 1 + zeros[-1] + 1
            return jnp.zeros_like(x).at[jnp.where(b == 1, ones, zeros)].set(x)
        return lax.fori_loop(0, 16, bit, x)
    program("radix sort by scans, 16 bits of 20000", below(65536, 20000))(radix_sort)


def fields(program, f32, of):
    def boltzmann(x):
        c = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
        w = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)

        def step(_, f):
            f = jnp.stack([jnp.roll(f[k], tuple(c[k]), (0, 1)) for k in range(9)])
            rho = f.sum(0)
            u = jnp.einsum("kij,kd->dij", f, c.astype(np.float32)) / rho
            cu = jnp.einsum("kd,dij->kij", c.astype(np.float32), u)
            eq = w[:, None, None] * rho * (1 + 3 * cu + 4.5 * cu ** 2 - 1.5 * (u ** 2).sum(0))
            return f + 0.6 * (eq - f)
        f = w[:, None, None] * (1 + 0.01 * jnp.tanh(x))
        return lax.fori_loop(0, 20, step, f)
    program("lattice Boltzmann, 64x64, 20 steps", f32(64, 64))(boltzmann)

    def level_set(x):
        def step(_, p):
            dx, dy = jnp.roll(p, -1, 1) - p, jnp.roll(p, -1, 0) - p
            bx, by = p - jnp.roll(p, 1, 1), p - jnp.roll(p, 1, 0)
            g = jnp.sqrt(jnp.maximum(bx, 0) ** 2 + jnp.minimum(dx, 0) ** 2
                         + jnp.maximum(by, 0) ** 2 + jnp.minimum(dy, 0) ** 2)
            return p - 0.3 * (g - 1) * jnp.sign(x)
        return lax.fori_loop(0, 30, step, x)
    program("level set, 128x128, 30 steps", f32(128, 128))(level_set)

    def v_cycle(f):
        def smooth(u, f, h, n):
            for _ in range(n):
                p = jnp.pad(u, 1)
                u = u + 0.8 * (0.25 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]
                                       + h * h * f) - u)
            return u

        def cycle(u, f, h):
            u = smooth(u, f, h, 2)
            if f.shape[0] <= 4:
                return smooth(u, f, h, 8)
            p = jnp.pad(u, 1)
            r = f - (4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]) / (h * h)
            r = r.reshape(r.shape[0] // 2, 2, -1, 2).mean((1, 3))
            e = cycle(jnp.zeros_like(r), r, 2 * h)
            return smooth(u + jnp.repeat(jnp.repeat(e, 2, 0), 2, 1), f, h, 2)
        return cycle(jnp.zeros_like(f), f, 1 / f.shape[0])
    program("multigrid V-cycle, 128x128, f64", of(F64, 128, 128))(v_cycle)

    def march(x):
        o = jnp.tanh(x)
        y, z = jnp.meshgrid(jnp.linspace(-1.0, 1.0, 96), jnp.linspace(-1.0, 1.0, 96))
        d = jnp.stack([y, z, jnp.full_like(y, 1.5)], -1)
        d = d / jnp.linalg.norm(d, axis=-1, keepdims=True)

        def scene(p):
            length = lambda v: jnp.sqrt(jnp.sum(v * v, -1) + 1e-6)  # noqa: E731
            ball = length(p - jnp.array([0.0, 0.0, 3.0])) - 1
            box = jnp.abs(p - jnp.array([0.8, 0.0, 2.5])) - 0.4
            box = length(jnp.maximum(box, 0)) + jnp.minimum(box.max(-1), 0)
            return jnp.minimum(jnp.minimum(ball, box), p[..., 1] + 1)
        t = lax.fori_loop(0, 32, lambda _, t: t + scene(o + d * t[..., None]),
                          jnp.zeros((96, 96)))
        p = o + d * t[..., None]
        n = jax.grad(lambda p: scene(p).sum())(p)
        light = jnp.array([0.5, 0.7, -0.5])
        return jnp.where(t < 20, jnp.maximum((n * light).sum(-1), 0), 0)
    program("ray marching of a scene, 96x96, 32 steps", f32(3))(march)

    program("B-spline surface of 20000 points", f32(8, 8), f32(20000, 2))(spline_surface)


def spline_surface(control, at):
    def basis(t):
        one = 1 - t
        return jnp.stack([one ** 3, 3 * t ** 3 - 6 * t ** 2 + 4,
                          -3 * t ** 3 + 3 * t ** 2 + 3 * t + 1, t ** 3], -1) / 6
    x = (jnp.tanh(at) + 1) * 2.4999
    k = jnp.floor(x).astype(jnp.int32)
    b = basis(x - k)
    i = k[..., None] + jnp.arange(4)
    return jnp.einsum("ni,nj,nij->n", b[:, 0], b[:, 1],
                      control[i[:, 0, :, None], i[:, 1, None, :]])


def particles(program, f32, of):
    def sph(p, v):
        r = p[:, None] - p[None]
        q = jnp.sum(r * r, -1)
        near = jnp.maximum(1.0 - q, 0.0)
        rho = jnp.sum(near ** 3, 1)
        press = 0.5 * (rho - 1)
        w = near ** 2 * (press[:, None] + press[None]) / (rho[:, None] * rho[None])
        drag = near[..., None] * (v[None] - v[:, None])
        return (w[..., None] * r).sum(1) + 0.1 * drag.sum(1)
    program("smoothed particles' forces, 400", f32(400, 3), f32(400, 3))(sph)

    def lennard(p):
        def energy(p):
            r = p[:, None] - p[None]
            q = jnp.sum(r * r, -1) + jnp.eye(p.shape[0], dtype=p.dtype)
            s = 1 / (q + 0.5) ** 3
            return jnp.sum(jnp.where(jnp.eye(p.shape[0], dtype=bool), 0, s * s - s)) / 2

        def step(s, _):
            p, v = s
            v = v - 0.001 * jax.grad(energy)(p)
            return (p + 0.001 * v, v), energy(p)
        return lax.scan(step, (p * 3, jnp.zeros_like(p)), None, 10)[1]
    program("Lennard-Jones by gradient, 128, 10 steps, f64", of(F64, 128, 3))(lennard)

    def cloth(x):
        def pull(p, axis):
            d = jnp.diff(p, axis=axis)
            n = jnp.linalg.norm(d, axis=-1, keepdims=True)
            f = 0.3 * d * (1 - 0.1 / jnp.maximum(n, 1e-6))
            pad = [(0, 0)] * 3
            a, b = list(pad), list(pad)
            a[axis], b[axis] = (0, 1), (1, 0)
            return jnp.pad(f, a) - jnp.pad(f, b)

        def step(s, _):
            p, old = s
            new = p + 0.99 * (p - old) + jnp.array([0, -1e-4, 0])
            for _ in range(3):
                new = new + 0.5 * (pull(new, 0) + pull(new, 1))
            new = new.at[0].set(x[0])
            return (new, p), None
        return lax.scan(step, (x, x), None, 10)[0][0]
    program("cloth of 32x32 points, 10 steps", f32(32, 32, 3))(cloth)


def codes(program, below, of):
    box = np.random.default_rng(7).permutation(256).astype(np.uint8)

    def times2(x):
        return (x << 1) ^ jnp.where(x & 0x80, np.uint8(0x1b), np.uint8(0))

    def rounds(x, key):
        def one(_, s):
            s = jnp.asarray(box)[s]
            s = jnp.stack([jnp.roll(s[:, r], -r, 1) for r in range(4)], 1)
            t = s[:, 0] ^ s[:, 1] ^ s[:, 2] ^ s[:, 3]
            s = jnp.stack([s[:, r] ^ t ^ times2(s[:, r] ^ s[:, (r + 1) % 4]) for r in range(4)], 1)
            return s ^ key
        return lax.fori_loop(0, 10, one, x)
    program("rounds of a block cipher by tables, u8 4000x4x4", of(U8, 4000, 4, 4), of(U8, 4, 4))(
        rounds)

    def crc(x):
        table = np.arange(256, dtype=np.uint32)
        for _ in range(8):
            table = np.where(table & 1, (table >> 1) ^ np.uint32(0xedb88320), table >> 1)
        t = jnp.asarray(table)
        return lax.fori_loop(0, 256, lambda k, c: (c >> 8) ^ t[(c ^ x[:, k]) & 0xff],
                             jnp.full(x.shape[0], 0xffffffff, jnp.uint32))
    program("CRC-32 of 500 rows of 256", of(U8, 500, 256))(lambda x: crc(x.astype(jnp.uint32)))

    def cordic(a):
        angles = np.round(np.arctan(2.0 ** -np.arange(16)) * 65536).astype(np.int32)
        x, y = jnp.full_like(a, 39797), jnp.zeros_like(a)
        for k in range(16):
            s = jnp.where(a >= 0, 1, -1)
            x, y, a = x - s * (y >> k), y + s * (x >> k), a - s * angles[k]
        return x, y
    program("CORDIC's sine and cosine of 50000, s32", below(100000, 50000))(cordic)

    def queens(_):
        n, full = 7, (1 << 7) - 1

        def step(s):
            cols, left, right, row, top, count = s
            free = row[top]
            bit = free & -free
            row = row.at[top].set(free & ~bit)
            c, l, r = cols[top] | bit, (left[top] | bit) << 1, (right[top] | bit) >> 1
            new = full & ~(c | l | r)
            found = (bit > 0) & (top == n - 1)
            deeper = (bit > 0) & (top < n - 1)
            at = jnp.minimum(top + 1, n - 1)
            put = lambda a, v: a.at[at].set(jnp.where(deeper, v, a[at]))  # noqa: E731
            return (put(cols, c), put(left, l), put(right, r), put(row, new),
                    jnp.where(deeper, top + 1, jnp.where(bit > 0, top, top - 1)),
                    count + found)
        z = jnp.zeros(n, jnp.int32)
        return lax.while_loop(lambda s: s[4] >= 0, step, (
            z, z, z, z.at[0].set(full), jnp.int32(0), jnp.int32(0)))[5]
    program("7 queens by bits", below(2, 1))(queens)

    def hamming(x):
        d = [(x >> k) & 1 for k in range(4)]
        p = [d[0] ^ d[1] ^ d[3], d[0] ^ d[2] ^ d[3], d[1] ^ d[2] ^ d[3]]
        w = p[0] | p[1] << 1 | d[0] << 2 | p[2] << 3 | d[1] << 4 | d[2] << 5 | d[3] << 6
        w = w ^ (np.uint8(1) << (x & 7) % 7)
        b = [(w >> k) & 1 for k in range(7)]
        s = (b[0] ^ b[2] ^ b[4] ^ b[6]) | (b[1] ^ b[2] ^ b[5] ^ b[6]) << 1 \
            | (b[3] ^ b[4] ^ b[5] ^ b[6]) << 2
        w = jnp.where(s > 0, w ^ (np.uint8(1) << (s - 1)), w)
        return ((w >> 2) & 1) | ((w >> 4) & 7) << 1
    program("Hamming code there and back, u8 500000", of(U8, 500000))(hamming)


def transforms(program, f32, of):
    def hadamard(x):
        n = x.shape[-1]
        for k in range(n.bit_length() - 1):
            h = x.reshape(x.shape[0], -1, 2, 1 << k)
            x = jnp.stack([h[:, :, 0] + h[:, :, 1], h[:, :, 0] - h[:, :, 1]], 2).reshape(-1, n)
        return x
    program("Walsh-Hadamard transform, 128x1024", f32(128, 1024))(hadamard)
    program("Walsh-Hadamard transform, f64 16x256", of(F64, 16, 256))(hadamard)

    def haar(x):
        out = []
        for _ in range(5):
            a, b = x[:, ::2], x[:, 1::2]
            out.append((a - b) * 0.70710678)
            x = (a + b) * 0.70710678
        return jnp.concatenate([x] + out[::-1], 1)
    program("Haar wavelets of five levels, 64x4096", f32(64, 4096))(haar)

    def lifting(x):  # Cohen-Daubechies-Feauveau 5/3, rows then columns
        def rows(x):
            e, o = x[:, ::2], x[:, 1::2]
            o = o - 0.5 * (e + jnp.roll(e, -1, 1))
            e = e + 0.25 * (o + jnp.roll(o, 1, 1))
            return jnp.concatenate([e, o], 1)
        return rows(rows(x).T).T
    program("wavelets by lifting, 512x512", f32(512, 512))(lifting)

    def chebyshev(c, x):
        x = jnp.tanh(x)

        def step(s, c):
            b1, b2 = s
            return (2 * x * b1 - b2 + c, b1), None
        b1, b2 = lax.scan(step, (jnp.zeros_like(x), jnp.zeros_like(x)), c[:0:-1])[0]
        return c[0] + x * b1 - b2
    program("Chebyshev series of 32 at 20000", f32(32), f32(20000))(chebyshev)

    def jpeg(x):
        k = np.arange(8)
        d = (np.sqrt(np.where(k, 2, 1) / 8)[:, None]
             * np.cos(np.pi * (2 * k + 1) * k[:, None] / 16)).astype(np.float32)
        q = jnp.asarray(8.0 + 3 * (k[:, None] + k))
        b = (x * 50).reshape(32, 8, 32, 8).transpose(0, 2, 1, 3)
        y = jnp.round(d @ b @ d.T / q) * q
        return (d.T @ y @ d).transpose(0, 2, 1, 3).reshape(256, 256)
    program("block DCT, quantisation and back, 256x256", f32(256, 256))(jpeg)
    program("DST of 100x255 by FFT", f32(100, 255))(
        lambda x: -jnp.fft.rfft(jnp.concatenate([jnp.zeros((100, 1)), x, jnp.zeros((100, 1)),
                                                 -x[:, ::-1]], 1)).imag[:, 1:-1])
    program("chirp z-transform of 4096, c64", of(np.complex64, 4096))(
        lambda x: (lambda w: jnp.fft.ifft(jnp.fft.fft(x * w, 16384) * jnp.fft.fft(
            jnp.concatenate([1 / w, jnp.zeros(8193), (1 / w)[:0:-1]])))[:4096] * w)(
                jnp.exp(-0.7j * np.pi * (jnp.arange(4096.0) ** 2 / 4096)).astype(jnp.complex64)))


def pictures(program, f32, of):
    def morphology(x):
        grow = lambda x: lax.reduce_window(x, np.uint8(0), lax.max, (5, 5), (1, 1), "SAME")
        shrink = lambda x: lax.reduce_window(x, np.uint8(255), lax.min, (5, 5), (1, 1), "SAME")
        return grow(shrink(x)), shrink(grow(x)), grow(x) - shrink(x)
    program("opening, closing and gradient of a picture, u8 512x512", of(U8, 512, 512))(morphology)

    def equalise(x):
        h = jnp.zeros(256, jnp.int32).at[x].add(1)
        c = jnp.cumsum(h)
        low = c[jnp.argmax(h > 0)]
        return jnp.round((c - low) * 255 / (x.size - low)).astype(jnp.uint8)[x]
    program("histogram equalisation, u8 512x512", of(U8, 512, 512))(
        lambda x: equalise(x.astype(jnp.int32).reshape(-1)))

    def hough(x):
        angle = jnp.arange(90) * (np.pi / 90)
        i, j = jnp.nonzero(x > 2, size=400, fill_value=0)
        r = i[:, None] * jnp.cos(angle) + j[:, None] * jnp.sin(angle)
        k = jnp.round(r).astype(jnp.int32) + 128
        return jnp.zeros((90, 310), jnp.int32).at[jnp.arange(90), k].add(1)
    program("Hough transform, 128x128 at 90 angles", f32(128, 128))(hough)

    def canny(x):
        k = np.array([1, 4, 6, 4, 1], np.float32) / 16
        for axis in (0, 1):
            x = sum(w * jnp.roll(x, s - 2, axis) for s, w in enumerate(k))
        gx, gy = jnp.roll(x, -1, 1) - jnp.roll(x, 1, 1), jnp.roll(x, -1, 0) - jnp.roll(x, 1, 0)
        m, a = jnp.hypot(gx, gy), jnp.arctan2(gy, gx)
        d = jnp.round(a / (np.pi / 4)).astype(jnp.int32) % 4
        ahead = jnp.select([d == 0, d == 1, d == 2], [
            jnp.roll(m, -1, 1), jnp.roll(m, (-1, -1), (0, 1)), jnp.roll(m, -1, 0)],
            jnp.roll(m, (-1, 1), (0, 1)))
        behind = jnp.select([d == 0, d == 1, d == 2], [
            jnp.roll(m, 1, 1), jnp.roll(m, (1, 1), (0, 1)), jnp.roll(m, 1, 0)],
            jnp.roll(m, (1, -1), (0, 1)))
        return jnp.where((m >= ahead) & (m >= behind), m, 0)
    program("edges by Canny's thinning, 256x256", f32(256, 256))(canny)

    def yuv(x):
        r, g, b = (x[..., k].astype(jnp.float32) for k in range(3))
        y = 0.299 * r + 0.587 * g + 0.114 * b
        u, v = 0.564 * (b - y) + 128, 0.713 * (r - y) + 128
        half = lambda c: c.reshape(128, 2, 128, 2).mean((1, 3))  # noqa: E731
        return [jnp.clip(jnp.round(c), 0, 255).astype(jnp.uint8) for c in (y, half(u), half(v))]
    program("colours to luma and halved chroma, u8 256x256x3", of(U8, 256, 256, 3))(yuv)

    def distance(x):
        seed = jnp.where(x > 2, 0.0, 1e6)
        i = jnp.arange(128.0)
        cost = (i[:, None] - i) ** 2
        rows = jnp.min(seed[:, None, :] + cost, -1)
        return jnp.sqrt(jnp.min(rows.T[:, None, :] + cost, -1).T)
    program("distance transform, 128x128", f32(128, 128))(distance)


def sequences(program, f32, below, of):
    def decode(tokens, emb, wqkv, wo, w1, w2):
        layers, heads, d, size = 2, 4, 64, 48

        def norm(x):
            return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

        def step(s, t):
            token, cache = s
            x = emb[token]
            for k in range(layers):
                q, key, value = jnp.split(norm(x) @ wqkv[k] * 0.1, 3, 1)
                new = jnp.stack([key, value]).reshape(2, -1, 1, heads, d // heads)
                cache = lax.dynamic_update_slice(cache, new[None], (k, 0, 0, t, 0, 0))
                q = q.reshape(-1, heads, d // heads)
                a = jnp.einsum("bhd,bthd->bht", q, cache[k, 0]) / 4
                a = jax.nn.softmax(jnp.where(jnp.arange(size) <= t, a, -1e30))
                o = jnp.einsum("bht,bthd->bhd", a, cache[k, 1]).reshape(-1, d)
                x = x + o @ wo[k] * 0.1
                x = x + jax.nn.gelu(norm(x) @ w1[k] * 0.1) @ w2[k] * 0.1
            token = jnp.argmax(norm(x) @ emb.T, -1)
            return (token, cache), token
        cache = jnp.zeros((layers, 2, tokens.shape[0], size, heads, d // heads))
        return lax.scan(step, (tokens, cache), jnp.arange(size))[1]
    program("decoder with a cache, 2 layers of 64, 48 tokens", below(500, 4), f32(500, 64),
            f32(2, 64, 192), f32(2, 64, 64), f32(2, 64, 256), f32(2, 256, 64))(decode)

    def mamba(x, a, b, c, dt):
        dt = jax.nn.softplus(dt)
        decay = jnp.exp(-dt[..., None] * jnp.exp(a))
        inp = (dt * x)[..., None] * b[:, None, :]
        h = lax.associative_scan(lambda p, q: (q[0] * p[0], q[0] * p[1] + q[1]), (decay, inp))[1]
        return jnp.einsum("tds,ts->td", h, c)
    program("selective state spaces by associative scan, 256x64x16", f32(256, 64), f32(64, 16),
            f32(256, 16), f32(256, 16), f32(256, 64))(mamba)

    def experts(x, gate, w1, w2):
        p, k = lax.top_k(jax.nn.softmax(x @ gate), 2)
        p = p / p.sum(-1, keepdims=True)
        mask = jax.nn.one_hot(k, 8)
        place = jnp.cumsum(mask.reshape(-1, 8), 0).reshape(mask.shape) * mask - 1
        room = jax.nn.one_hot(jnp.where(place < 64, place, -1), 64)
        send = jnp.einsum("tkec->tec", room)
        y = jax.nn.relu(jnp.einsum("tec,td->ecd", send, x) @ w1) @ w2
        return jnp.einsum("tkec,tk,ecd->td", room, p, y)
    program("mixture of 8 experts, 200 tokens of 64", f32(200, 64), f32(64, 8), f32(8, 64, 128),
            f32(8, 128, 64))(experts)

    def beam(logits, trans):
        def step(s, e):
            score, last = s
            all_ = score[:, None] + jax.nn.log_softmax(e + trans[last])
            best, at = lax.top_k(all_.reshape(-1), 8)
            return (best, at % 200), (at // 200, at % 200)
        score = jnp.array([0.0] + [-1e30] * 7)
        return lax.scan(step, (score, jnp.zeros(8, jnp.int32)), logits)[1]
    program("beam search, 8 of 200 in 50 steps", f32(50, 200), f32(200, 200))(beam)

    def rotary(q, k, v):
        t = jnp.arange(128.0)[:, None] * 10000 ** (-jnp.arange(16) / 16)
        c, s = jnp.cos(t), jnp.sin(t)

        def turn(x):
            a, b = jnp.split(x.astype(jnp.float32), 2, -1)
            return jnp.concatenate([a * c - b * s, b * c + a * s], -1).astype(x.dtype)
        a = jnp.einsum("hqd,hkd->hqk", turn(q), turn(k)).astype(jnp.float32) / 5.6
        a = jax.nn.softmax(jnp.where(jnp.tri(128, dtype=bool), a, -1e30)).astype(BF16)
        return jnp.einsum("hqk,hkd->hqd", a, v)
    program("causal attention with turned heads, bf16 8x128x32", of(BF16, 8, 128, 32),
            of(BF16, 8, 128, 32), of(BF16, 8, 128, 32))(rotary)

    def lora(x, w, a, b):
        return jax.grad(lambda ab: jnp.mean((x @ w + (x @ ab[0]) @ ab[1]) ** 2))((a, b))
    program("gradient of low-rank adapters, 256x256, rank 8", f32(64, 256), f32(256, 256),
            f32(256, 8), f32(8, 256))(lora)

    def ctc(logits, labels):
        lp = jax.nn.log_softmax(logits)
        ext = jnp.zeros((16, 25), jnp.int32).at[:, 1::2].set(labels + 1)
        skip = jnp.pad((ext[:, 2:] != ext[:, :-2]) & (ext[:, 2:] > 0), ((0, 0), (2, 0)))
        e = jnp.take_along_axis(lp, jnp.broadcast_to(ext[:, None], (16, 60, 25)), 2)

        def step(a, e):
            one = jnp.pad(a, ((0, 0), (1, 0)), constant_values=-1e30)[:, :-1]
            two = jnp.where(skip, jnp.pad(a, ((0, 0), (2, 0)), constant_values=-1e30)[:, :-2],
                            -1e30)
            return jax.nn.logsumexp(jnp.stack([a, one, two]), 0) + e, None
        a = jnp.full((16, 25), -1e30).at[:, 0].set(e[:, 0, 0]).at[:, 1].set(e[:, 0, 1])
        a = lax.scan(step, a, e[:, 1:].transpose(1, 0, 2))[0]
        return -jnp.logaddexp(a[:, -1], a[:, -2])
    program("CTC's loss by logsumexp, 16 of 60 steps", f32(16, 60, 30), below(29, 16, 12))(ctc)


def choices(program, f32, below):
    def suppress(boxes, scores):
        xy, wh = boxes[:, :2] * 20, jnp.abs(boxes[:, 2:]) * 10 + 1
        order = jnp.argsort(-scores)
        lo, hi = (xy - wh / 2)[order], (xy + wh / 2)[order]
        inter = jnp.prod(jnp.maximum(jnp.minimum(hi[:, None], hi) - jnp.maximum(lo[:, None], lo),
                                     0), -1)
        area = jnp.prod(hi - lo, -1)
        over = inter / (area[:, None] + area - inter) > 0.3
        keep = lax.fori_loop(0, 300, lambda i, k: k & ~(over[i] & k[i] & (jnp.arange(300) > i)),
                             jnp.ones(300, bool))
        return order, keep
    program("suppression of overlapping boxes by a loop, 300", f32(300, 4), f32(300))(suppress)

    def forest(x, feature, threshold):
        def walk(_, at):
            f = feature[jnp.arange(20)[:, None], at]
            right = x[jnp.arange(1000), f] > threshold[jnp.arange(20)[:, None], at]
            return 2 * at + 1 + right
        leaf = lax.fori_loop(0, 6, walk, jnp.zeros((20, 1000), jnp.int32)) - 63
        return jnp.sum(jnp.sin(leaf.astype(jnp.float32)), 0)
    program("forest of 20 trees of depth 6 by gathers, 1000", f32(1000, 12), below(12, 20, 63),
            f32(20, 63))(forest)

    def gumbel(key, logits):
        g = jax.random.gumbel(jax.random.wrap_key_data(key), logits.shape)
        y = jax.nn.softmax((logits + g) / 0.5)
        hard = jax.nn.one_hot(jnp.argmax(y, -1), y.shape[-1])
        return hard - lax.stop_gradient(y) + y
    program("Gumbel softmax, straight through, 2000x50", KEY, f32(2000, 50))(gumbel)

    def evolve(key, x):
        def step(s, _):
            x, key = s
            key, a, b, c = jax.random.split(key, 4)
            p = jax.random.randint(a, (3, 64), 0, 64)
            v = x[p[0]] + 0.7 * (x[p[1]] - x[p[2]])
            y = jnp.where(jax.random.uniform(b, x.shape) < 0.8, v, x)
            cost = lambda x: jnp.sum(x ** 2 - 10 * jnp.cos(2 * np.pi * x), 1)  # noqa: E731
            return (jnp.where((cost(y) < cost(x))[:, None], y, x), key), cost(x).min()
        return lax.scan(step, (x, jax.random.wrap_key_data(key)), None, 50)[1]
    program("differential evolution, 64 of 8, 50 steps", KEY, f32(64, 8))(evolve)


def iterations(program, f32, of):
    def process(x, y, q):
        k = lambda a, b: jnp.exp(-0.5 * jnp.sum((a[:, None] - b) ** 2, -1))  # noqa: E731
        c = jax.scipy.linalg.cho_factor(k(x, x) + 0.1 * jnp.eye(x.shape[0], dtype=x.dtype))
        return k(q, x) @ jax.scipy.linalg.cho_solve(c, y)
    program("Gaussian process' mean, 100 points, f64", of(F64, 100, 3), of(F64, 100),
            of(F64, 50, 3))(process)

    def gradients(b):
        def lap(u):
            p = jnp.pad(u, 1)
            return 4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

        def step(_, s):
            x, r, p, rr = s
            q = lap(p)
            a = rr / jnp.vdot(p, q)
            r = r - a * q
            new = jnp.vdot(r, r)
            return x + a * p, r, r + new / rr * p, new
        return lax.fori_loop(0, 30, step, (jnp.zeros_like(b), b, b, jnp.vdot(b, b)))[0]
    program("conjugate gradients of a Laplacian, 64x64, 30 turns", f32(64, 64))(gradients)

    def orthogonal(a):
        x = a / jnp.linalg.norm(a)
        return lax.fori_loop(0, 10, lambda _, x: 1.5 * x - 0.5 * x @ (x.T @ x), x)
    program("Newton-Schulz of 96x64", f32(96, 64))(orthogonal)

    def sinkhorn(x, y):
        c = jnp.sum((x[:, None] - y) ** 2, -1)
        k = jnp.exp(-c / 2)

        def step(_, s):
            u, v = s
            u = 1 / (150 * (k @ v))
            return u, 1 / (150 * (k.T @ u))
        u, v = lax.fori_loop(0, 50, step, (jnp.ones(150), jnp.ones(150)))
        return jnp.sum(u[:, None] * k * v * c)
    program("Sinkhorn's transport, 150 to 150, 50 turns", f32(150, 4), f32(150, 4))(sinkhorn)

    def lasso(a, b):
        n = jnp.sum(a * a)

        def step(_, s):
            x, z, t = s
            new = z - a.T @ (a @ z - b) / n
            new = jnp.sign(new) * jnp.maximum(jnp.abs(new) - 0.1 / n, 0)
            t2 = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
            return new, new + (t - 1) / t2 * (new - x), t2
        z = jnp.zeros(a.shape[1], a.dtype)
        return lax.fori_loop(0, 50, step, (z, z, jnp.ones((), a.dtype)))[0]
    program("lasso by FISTA, 200x80, 50 turns", f32(200, 80), f32(200))(lasso)

    def jacobi(a):  # eigenvalues of many small symmetric matrices by rotations
        a = a + a.mT

        def rotate(a, p, q):
            t = 0.5 * jnp.arctan2(2 * a[:, p, q], a[:, q, q] - a[:, p, p])
            c, s = jnp.cos(t)[:, None], jnp.sin(t)[:, None]
            ap, aq = a[:, p], a[:, q]
            a = a.at[:, p].set(c * ap - s * aq).at[:, q].set(s * ap + c * aq)
            ap, aq = a[:, :, p], a[:, :, q]
            return a.at[:, :, p].set(c * ap - s * aq).at[:, :, q].set(s * ap + c * aq)
        for _ in range(4):
            for p, q in ((0, 1), (0, 2), (1, 2)):
                a = rotate(a, p, q)
        return jnp.sort(jnp.diagonal(a, axis1=1, axis2=2), 1)
    program("eigenvalues by Jacobi's rotations, 5000 of 3x3", f32(5000, 3, 3))(jacobi)

    def newton(x):
        f = lambda z: jnp.stack([z[0] ** 2 + z[1] ** 2 - 4, jnp.exp(z[0]) + z[1] - 1])
        return jax.vmap(lambda z: lax.fori_loop(
            0, 8, lambda _, z: z - jnp.linalg.solve(jax.jacfwd(f)(z) + 1e-3 * jnp.eye(2), f(z)),
            z))(x)
    program("Newton's method for two equations, 1000 starts", f32(1000, 2))(newton)
