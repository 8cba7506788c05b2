// SPDX-License-Identifier: Apache-2.0
// lapack_solve: tridiagonal systems, for T = double or double complex (included behind
// lapack_body.h, with its macros).
#ifndef NAME // alone
#include "compiler/ops/linalg/lapack_body.h"
#endif

// dl, d, du: three diagonals; b: n x columns, becomes the solution. Rows are exchanged where the
// subdiagonal is larger, as LAPACK's gtsv does; the diagonals become those of U. Gives the number
// of a zero pivot, or 0.
int NAME(tridiagonal_solve)(int64_t n, int64_t columns, T *dl, T *d, T *du, T *b) {
    for (int64_t k = 0; k + 1 < n; k++) {
        if (SIZE(d[k]) >= SIZE(dl[k])) {
            if (d[k] == 0) return (int)k + 1;
            T f = dl[k] / d[k];
            d[k + 1] -= f * du[k];
            for (int64_t j = 0; j < columns; j++)
                b[j * n + k + 1] -= f * b[j * n + k];
            dl[k] = 0;
        } else {
            T f = d[k] / dl[k], t = d[k + 1];
            d[k] = dl[k];
            d[k + 1] = du[k] - f * t;
            dl[k] = k + 2 < n ? du[k + 1] : 0;
            if (k + 2 < n) du[k + 1] = -f * dl[k];
            du[k] = t;
            for (int64_t j = 0; j < columns; j++) {
                t = b[j * n + k];
                b[j * n + k] = b[j * n + k + 1];
                b[j * n + k + 1] = t - f * b[j * n + k + 1];
            }
        }
    }

    if (n && d[n - 1] == 0) return (int)n;

    for (int64_t j = 0; j < columns; j++)
        for (int64_t k = n; k-- > 0;) {
            T s = b[j * n + k];
            if (k + 1 < n) s -= du[k] * b[j * n + k + 1];
            if (k + 2 < n) s -= dl[k] * b[j * n + k + 2];
            b[j * n + k] = s / d[k];
        }
    return 0;
}
