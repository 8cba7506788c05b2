# SPDX-License-Identifier: Apache-2.0
"""JAX functions that call LAPACK on a CPU for what HLO has operations for (Cholesky, triangular solves) against XLA:CPU: all types, stacks, matrices that are not positive definite.

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
from products import values  # noqa: E402
from random_modules import run_text  # noqa: E402


def cases():
    rng = np.random.default_rng(4)
    for t in (np.float32, np.float64, np.complex64, np.complex128):
        x = values(rng, t, (3, 7, 7))
        good = x @ x.conj().swapaxes(1, 2) + np.eye(7, dtype=t)
        good[1] = -good[1]
        yield "cholesky", lambda x: jnp.linalg.cholesky(x), [good]
        yield "cholesky, upper", lambda x: lax.linalg.cholesky(x.swapaxes(1, 2).conj(), symmetrize_input=False), [good[:1]]
        for n in range(4):
            left, lower, unit, trans = (bool(rng.integers(2)) for _ in range(4))
            a = values(rng, t, (2, 6, 6)) + 6 * np.eye(6, dtype=t)
            b = values(rng, t, (2, 6, 3) if left else (2, 3, 6))
            yield "triangular solve", lambda a, b, o=(left, lower, unit, trans): lax.linalg.triangular_solve(
                a, b, left_side=o[0], lower=o[1], unit_diagonal=o[2], transpose_a=o[3], conjugate_a=o[3]), [a, b]
    a = values(rng, np.float64, (9, 9))
    yield "cho_solve", lambda a, b: jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a @ a.T + jnp.eye(9)), True), b), [a, values(rng, np.float64, (9, 2))]


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
                # The result may lie in the columns that LAPACK likes: the layout that the program asks for.
                same = lambda w: np.allclose(got, w, rtol=0, atol=2e-5 * np.nanmax(np.abs(want)), equal_nan=True)  # noqa: B023,E731
                if got is None or not (same(want.ravel()) or same(want.swapaxes(-1, -2).ravel())):
                    failed += 1
                    print("FAIL lapack: %s %s %s: %s" % (name, want.dtype, impl, p.stderr if got is None else "values differ"))
    print("%s lapack: %d programs, %d differ" % ("FAIL" if failed else "PASS", count, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
