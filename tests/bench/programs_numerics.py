# SPDX-License-Identifier: Apache-2.0
"""More of programs.py: linear algebra by LAPACK's calls, loops of small steps, transforms of odd
lengths."""
import jax
import jax.numpy as jnp
import jax.scipy.signal
from jax import lax


def define(program, f32, below):
    la, n = jnp.linalg, 200
    spd = lambda a: a @ a.T / a.shape[0] + jnp.eye(a.shape[0])  # noqa: E731
    program("solve 200", f32(n, n), f32(n, 4))(lambda a, b: la.solve(a + 5 * jnp.eye(n), b))
    program("inverse 200", f32(n, n))(lambda a: la.inv(a + 5 * jnp.eye(n)))
    program("log determinants, 8 of 50", f32(8, 50, 50))(la.slogdet)
    program("qr 200x100", f32(n, 100))(lambda a: la.qr(a))
    program("eigenvalues, symmetric 100", f32(100, 100))(lambda a: la.eigh(spd(a))[0])
    program("singular values 200x50", f32(n, 50))(lambda a: la.svd(a, full_matrices=False)[1])
    program("least squares 60x10", f32(60, 10), f32(60))(lambda a, b: la.lstsq(a, b)[0])
    program("expm 64", f32(64, 64))(lambda a: jax.scipy.linalg.expm(a * 0.2))
    program("fftconvolve 20000 with 501", f32(20000), f32(501))(
        lambda x, k: jax.scipy.signal.fftconvolve(x, k, mode="same"))
    program("recursive filter of 8000 steps", f32(8000))(
        lambda x: lax.scan(lambda s, u: ((u - 0.5 * s[0] + 0.2 * s[1], s[0]),
                                         u - 0.5 * s[0] + 0.2 * s[1] + s[1]), (0.0, 0.0), x)[1])
    program("longest common subsequence 60", below(4, 60), below(4, 60))(
        lambda a, b: lax.fori_loop(0, 60, lambda i, d: lax.fori_loop(
                                       0, 60, lambda j, d: d.at[i + 1, j + 1].set(
                                           jnp.where(a[i] == b[j], d[i, j] + 1,
                                                     jnp.maximum(d[i, j + 1], d[i + 1, j]))), d),
                                   jnp.zeros((61, 61), jnp.int32))[-1, -1])
    program("conditional in a scan of 1000", f32(1000))(
        lambda x: lax.scan(lambda s, v: (lambda r: (r, r))(
                               lax.cond(v > 0, lambda s: s * 0.9 + v, lambda s: s - 1, s)), 0.0,
                           x)[1])
    program("dilated windows", f32(2, 64, 64, 8))(
        lambda x: lax.reduce_window(x, 0., lax.add, (1, 3, 3, 1), (1, 2, 1, 1), "VALID",
                                    (1, 2, 2, 1), (1, 2, 3, 1)))
