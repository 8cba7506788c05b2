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
        yield from edges(rng, t)
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


def together(*fs):
    """What several functions of one input give, as one vector of real numbers."""
    def parts(v):
        return [jnp.real(v), jnp.imag(v)] if jnp.iscomplexobj(v) else [v]
    return lambda x: jnp.concatenate([
        p.ravel().astype(jnp.finfo(x.dtype).dtype)
        for f in fs for v in jax.tree.leaves(f(x)) for p in parts(v)])


def edges(rng, t):
    """Every routine for every type: sizes 0 and 1, blocks, tall and wide, singular, NaN and
    infinities."""
    la, lx, size = jnp.linalg, lax.linalg, jnp.abs
    adjoint = lambda v: v.conj().swapaxes(-1, -2)  # noqa: E731
    around = lambda t, q: q @ t @ adjoint(q)  # noqa: E731
    hermitian = lambda x: x + adjoint(x)  # noqa: E731
    schur = lambda x: lx.schur(x)  # noqa: E731
    residue = lambda x, w, v: size(x @ v - v * w[..., None, :])  # noqa: E731
    x = values(rng, t, (2, 40, 40))
    one, unit = values(rng, t, (3, 1, 1)), np.eye(40, dtype=t)
    yield "sizes of 1", together(
        la.inv, la.det, la.qr, lambda x: la.eigh(x)[0], la.eigvals, lambda x: size(la.svd(x)[0]),
        lambda x: la.solve(x, x), lambda x: schur(x)[0], lambda x: la.cholesky(x @ adjoint(x)),
        lambda x: jax.scipy.linalg.expm(x), lambda x: lx.hessenberg(x)[0],
        lambda x: lx.tridiagonal(x)[1:3]), [one]
    for shape in ((0, 0), (0, 3, 3), (2, 0, 0)):
        yield "sizes of 0", together(la.inv, lambda x: la.det(x) + 1, lambda x: la.qr(x)[1],
                                     lambda x: la.eigh(x)[0], la.eigvals, lambda x: jnp.ones(3)), [
            np.zeros(shape, t)]
    yield "sizes of 0, svd", together(lambda x: la.svd(x), lambda x: la.qr(x, mode="complete"),
                                      lambda x: jnp.ones(3)), [np.zeros((2, 0, 3), t)]
    yield "blocks", together(
        lambda x: la.inv(x + 9 * unit), lambda x: la.solve(x + 9 * unit, x), la.qr,
        lambda x: la.eigh(hermitian(x))[0], lambda x: size(la.eigh(hermitian(x))[1]),
        lambda x: la.svd(x, compute_uv=False), lambda x: size(la.svd(x)[2]),
        lambda x: lx.svd(x, algorithm=lx.SvdAlgorithm.QR, compute_uv=False),
        lambda x: jnp.sort(size(la.eigvals(x))), lambda x: residue(x, *la.eig(x)),
        lambda x: around(*schur(x)), lambda x: jnp.sort(size(jnp.diagonal(
            around(*schur(x)), axis1=-1, axis2=-2))), lambda x: lx.hessenberg(x)[0],
        lambda x: lx.tridiagonal(hermitian(x), lower=True)[1:3],
        lambda x: lx.tridiagonal(hermitian(x), lower=False),
        lambda x: jax.scipy.linalg.expm(0.1 * x)), [x]
    yield "the triangle of schur", together(
        lambda x: size(jnp.tril(schur(x)[0], -2)), lambda x: schur(x)[1] @ adjoint(schur(x)[1])), [
        x]
    yield "one that is not read", together(
        lambda x: la.svd(x)[1], lambda x: la.eigvalsh(hermitian(x))), [x]
    for wide in (values(rng, t, (2, 5, 33)), values(rng, t, (33, 5))):
        yield "tall and wide", together(
            la.qr, lambda x: la.qr(x, mode="complete")[1], lambda x: la.svd(x)[1],
            lambda x: size(la.svd(x, full_matrices=False)[2]),
            lambda x: lx.svd(x, algorithm=lx.SvdAlgorithm.QR, full_matrices=False)[1],
            lambda x: lx.lu(x), la.pinv), [wide]
    spread = lambda f: lambda x: (lambda v: jnp.max(size(v - v[:1])))(f(x))  # noqa: E731
    # Differences of results: none.
    yield "equal matrices on all threads", together(*map(spread, (
        lambda x: lx.lu(x)[0], lambda x: la.cholesky(x @ adjoint(x) + unit),
        lambda x: la.eigvalsh(hermitian(x)), lambda x: la.eigh(hermitian(x))[1],
        lambda x: la.svd(x)[0]))), [np.repeat(x[:1], 300, 0)]
    singular = np.stack([0 * x[0], np.ones_like(x[0]), unit])
    yield "singular", together(
        lambda x: ~jnp.isfinite(la.inv(x[:1])), lambda x: la.det(x) / 40, lambda x: la.eigh(x)[0],
        lambda x: la.svd(x)[1], lambda x: la.qr(x)[1], lambda x: la.matrix_rank(x)), [singular]
    for bad in (np.nan, np.inf):
        y = x[:, :9, :9].copy()
        y[1, 4, 2] = y[1, 2, 4] = bad
        nan = lambda f: lambda x: jnp.isnan(f(x))  # noqa: E731
        yield "not finite, %s" % bad, together(*map(nan, (
            lambda x: la.eigh(x)[0], lambda x: la.eigh(x)[1], lambda x: la.svd(x)[1],
            lambda x: la.svd(x, compute_uv=False), la.eigvals, lambda x: la.eig(x)[1]))), [y]
        yield "not finite, factors, %s" % bad, together(*map(nan, (
            la.inv, la.det, lambda x: la.qr(x)[1], lambda x: la.solve(x, x)))), [y]


def main():
    failed = count = 0
    for name, f, inputs in cases():
        count += 1
        # (jaxlib's calls of long stacks may wait for each other for ever)
        shape = jax.eval_shape(f, *inputs)
        want = np.zeros(shape.shape, shape.dtype) if name.startswith("equal") else np.asarray(
            jax.jit(f)(*inputs))
        with tempfile.TemporaryDirectory() as folder:
            text = jax.jit(f).lower(*inputs).as_text(dialect="hlo")
            for impl in ([], ["--impl", "reference"]):
                p, raw = run_text(sys.argv[1], folder, text, inputs, "", impl)
                got = None if p.returncode else np.frombuffer(raw, want.dtype)
                # The result may lie in the columns that LAPACK likes: the layout that the program
                # asks for.
                unit = 2e-5 if want.dtype in (np.float32, np.complex64) else 1e-9
                size = np.abs(want[np.isfinite(want)]).max(initial=0)
                same = lambda w: np.allclose(got, w.ravel(), rtol=0, atol=unit * size,  # noqa: B023
                                             equal_nan=True)  # noqa: E731
                if got is None or not (
                        same(want) or want.ndim > 1 and same(want.swapaxes(-1, -2))):
                    failed += 1
                    print("FAIL lapack: %s %s %s: %s"
                          % (name, want.dtype, impl, p.stderr if got is None else "values differ"))
    print("%s lapack: %d programs, %d differ" % ("FAIL" if failed else "PASS", count, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
