# SPDX-License-Identifier: Apache-2.0
"""JAX functions that call LAPACK on a CPU against XLA:CPU: all types, stacks, matrices that are
singular or not positive definite; of vectors whose sign (phase) is free, what does not depend on
it.

    lapack.py BUILD
"""
import os
import sys
import tempfile

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_ENABLE_X64"] = "1"
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax._src.lax import linalg as inner  # noqa: E402  (geqrf and ormqr have no other name)
from products import values  # noqa: E402
from random_modules import run_text  # noqa: E402


def cases():
    rng = np.random.default_rng(4)
    for t in (np.float32, np.float64, np.complex64, np.complex128):
        x = values(rng, t, (3, 7, 7))
        good = x @ x.conj().swapaxes(1, 2) + np.eye(7, dtype=t)
        good[1] = -good[1]
        yield "cholesky", lambda x: jnp.linalg.cholesky(x), [good]
        yield "cholesky, upper", lambda x: lax.linalg.cholesky(
            x.swapaxes(1, 2).conj(), symmetrize_input=False), [good[:1]]
        for n in range(4):
            left, lower, unit, trans = (bool(rng.integers(2)) for _ in range(4))
            a = values(rng, t, (2, 6, 6)) + 6 * np.eye(6, dtype=t)
            b = values(rng, t, (2, 6, 3) if left else (2, 3, 6))
            yield "triangular solve", lambda a, b, o=(
                left, lower, unit, trans): lax.linalg.triangular_solve(
                a, b, left_side=o[0], lower=o[1], unit_diagonal=o[2], transpose_a=o[3],
                conjugate_a=o[3]), [a, b]
        yield from by_library(rng, t)
        if t in (np.float32, np.complex128):
            yield from decompositions(rng, t)
    a = values(rng, np.float64, (9, 9))
    yield "cho_solve", lambda a, b: jax.scipy.linalg.cho_solve(
        (jnp.linalg.cholesky(a @ a.T + jnp.eye(9)), True), b), [a, values(rng, np.float64, (9, 2))]


def by_library(rng, t):
    """Matrices large enough for OpenBLAS, where it is installed: each side, triangle and form, one
    that is not positive definite, NaN in either triangle."""
    n, nan = 37, np.asarray(np.nan, t)
    factor = lambda x: lax.linalg.cholesky(x, symmetrize_input=False)  # noqa: E731
    x = values(rng, t, (3, n, n))
    good = x @ x.conj().swapaxes(1, 2) / n + np.eye(n, dtype=t)
    good[1] = -good[1]
    good[2, 4, 20] = nan
    bad = good.copy()
    bad[2, 20, 4] = nan
    yield "cholesky of NaN", lambda x: jnp.isnan(factor(x)[:, -1, -1]), [bad]
    yield "cholesky of 37", factor, [good]
    yield "cholesky of 37, adjoint", lambda x: factor(x.swapaxes(1, 2).conj()), [good[:2]]
    a = (values(rng, t, (2, n, n)) / n + 2 * np.eye(n)).astype(t)
    for k in range(24):
        left, lower, unit, trans = bool(k & 1), bool(k & 2), bool(k & 4), k // 8
        triangle = np.tri(n, dtype=bool)
        other = np.where(triangle if lower else triangle.T, a, nan)
        b = values(rng, t, (2, n, 5) if left else (2, 5, n))
        yield "triangular solve of 37", lambda a, b, o=(
            left, lower, unit, trans): lax.linalg.triangular_solve(
            a, b, left_side=o[0], lower=o[1], unit_diagonal=o[2], transpose_a=o[3] > 0,
            conjugate_a=o[3] > 1), [other, b]
    yield "triangular solve of 37, one side", lambda a, b: jax.scipy.linalg.solve_triangular(
        a[0], b, lower=True), [a, values(rng, t, n)]


def decompositions(rng, t):
    la, one = jnp.linalg, np.eye(7, dtype=t)
    x, tall, b = values(rng, t, (2, 7, 7)), values(rng, t, (2, 40, 9)), values(rng, t, (2, 7, 3))
    hermitian = x + x.conj().swapaxes(1, 2)
    size = lambda v: jnp.abs(v)  # noqa: E731
    yield "lu", lambda x: lax.linalg.lu(x)[0], [x]
    yield "lu of a wide stack", lambda x: lax.linalg.lu(x)[2], [tall.swapaxes(1, 2)]
    yield "lu, singular", lambda x: lax.linalg.lu(x)[0], [np.stack([x[0] * 0, one])]
    yield "solve", la.solve, [x + 4 * one, b]
    yield "inv", la.inv, [x + 4 * one]
    yield "det", la.det, [x]
    yield "qr, q", lambda x: la.qr(x)[0], [tall]
    yield "qr, r", lambda x: la.qr(x)[1], [tall.swapaxes(1, 2)]
    yield "qr, complete", lambda x: la.qr(x, mode="complete")[0], [tall]
    yield "qr with pivots", lambda x: jax.scipy.linalg.qr(x[0], pivoting=True,
                                                          mode="economic")[1], [tall]
    yield "q times", lambda a, c: inner.ormqr(*inner.geqrf(a), c, left=True, transpose=True), [x, b]
    yield "c times q", lambda a, c: inner.ormqr(*inner.geqrf(a), c, left=False,
                                                transpose=False), [x, b.swapaxes(1, 2)]
    for lower in (True, False):
        yield "eigh, values", lambda x, o=lower: la.eigh(x, UPLO="L" if o else "U",
                                                         symmetrize_input=False)[0], [hermitian]
    yield "eigh, vectors", lambda x: size(la.eigh(x)[1]), [hermitian]
    yield "eigh, together", lambda x: (
        lambda w, v: (v * w[:, None]) @ v.conj().swapaxes(1, 2))(*la.eigh(x)), [hermitian]
    yield "eigh of the unit", lambda x: la.eigh(x)[0], [np.stack([one, 0 * one])]
    for a in (tall, tall.swapaxes(1, 2), x):
        for full in (False, True):
            yield "svd, values", lambda x, f=full: la.svd(x, full_matrices=f)[1], [a]
        yield "svd, values alone", lambda x: la.svd(x, compute_uv=False), [a]
        yield "svd, u", lambda x: size(la.svd(x, full_matrices=False)[0]), [a]
        yield "svd, v", lambda x: size(la.svd(x, full_matrices=False)[2]), [a]
        yield "svd, together", lambda x: (lambda u, s, v: (u[..., : s.shape[-1]] * s[:, None]) @ v[
                                              :, : s.shape[-1]])(*la.svd(x)), [a]
    yield "pinv", la.pinv, [tall]
    yield "svd of zeros", lambda x: la.svd(x, full_matrices=False)[1], [0 * tall]
    yield "eig, values", lambda x: jnp.sort(size(la.eigvals(x)), -1), [x]
    yield "eig, vectors", lambda x: (
        lambda w, v: jnp.max(size(x @ v - v * w[:, None, :])) < 1e-4)(*la.eig(x)), [x]
    yield "eig, left", lambda x: (
        lambda w, v: jnp.max(
            size(v.conj().swapaxes(1, 2) @ x - w[:, :, None] * v.conj().swapaxes(1, 2))) < 1e-4)(
        *lax.linalg.eig(x, compute_left_eigenvectors=True, compute_right_eigenvectors=False)), [x]
    yield "hessenberg", lambda x: lax.linalg.hessenberg(x)[0], [x]
    yield "tridiagonal", lambda x: lax.linalg.tridiagonal(x)[1], [hermitian]
    if np.dtype(t).kind == "c":
        yield "schur", lambda x: (
            lambda t, q: q @ t @ q.conj().swapaxes(1, 2))(*lax.linalg.schur(x)), [x]
    d = values(rng, t, (3, 8))
    yield "tridiagonal solve", lambda d, b: lax.linalg.tridiagonal_solve(d[0], d[1], d[2], b), [
        d, values(rng, t, (8, 2))]
    yield "norm 2 and rank", lambda x: la.norm(x[0], 2) + la.matrix_rank(x[0]), [x]
    yield "expm", lambda x: jax.scipy.linalg.expm(0.3 * x), [x]


def main():
    failed = count = 0
    for name, f, inputs in cases():
        count += 1
        want = np.asarray(jax.jit(f)(*inputs))
        with tempfile.TemporaryDirectory() as folder:
            text = jax.jit(f).lower(*inputs).as_text(dialect="hlo")
            for impl in ([], ["--impl", "reference"]):
                p, raw = run_text(sys.argv[1], folder, text, inputs, "", impl)
                got = None if p.returncode else np.frombuffer(raw, want.dtype)
                # The result may lie in the columns that LAPACK likes: the layout that the program
                # asks for.
                same = lambda w: np.allclose(got, w, rtol=0, atol=2e-5 * np.nanmax(np.abs(want)),
                                             equal_nan=True)  # noqa: B023,E731
                if got is None or not (same(want.ravel()) or same(want.swapaxes(-1, -2).ravel())):
                    failed += 1
                    print("FAIL lapack: %s %s %s: %s"
                          % (name, want.dtype, impl, p.stderr if got is None else "values differ"))
    print("%s lapack: %d programs, %d differ" % ("FAIL" if failed else "PASS", count, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
