// SPDX-License-Identifier: Apache-2.0
// cpu_windows_lines: the lines of a window as one in scratch, then windows along that. Included by
// cpu_windows_body.h for each instruction set.
#ifdef WIN

// `vecs` vectors of results from column x on; the last one ends at n, so some may be made twice.
INLINE void WIN(columns)(enum windows_kind kind, const float *const *line, int lines, int vecs,
                         int64_t x, int64_t n, WIDE begin, float *to) {
    WIDE a[4];
    int64_t last = x + vecs * LANES > n ? n - LANES : x + (vecs - 1) * LANES;
    UNROLL
    for (int v = 0; v < vecs; v++)
        a[v] = begin;
    UNROLL
    for (int k = 0; k < lines; k++)
        UNROLL
    for (int v = 0; v < vecs; v++)
        a[v] = WIN(put)(kind, a[v], WIN(load)(line[k] + (v == vecs - 1 ? last : x + v * LANES)));
    UNROLL
    for (int v = 0; v < vecs; v++)
        WIN(store)(to + (v == vecs - 1 ? last : x + v * LANES), a[v]);
}
INLINE void WIN(down_some)(enum windows_kind kind, const float *const *line, int lines, int64_t n,
                           float first, float *to) {
    const WIDE begin = WIN(all)(first);
    int64_t x = 0;
    if (n < LANES) {
        WIDE a = begin;
        for (int k = 0; k < lines; k++)
            a = WIN(put)(kind, a, WIN_LOAD(line[k], n, begin));
        WIN(store)(to, a);
        return;
    }
    for (; x + 4 * LANES <= n; x += 4 * LANES)
        WIN(columns)(kind, line, lines, 4, x, n, begin, to);
    int64_t rest = n - x;
    if (rest > 3 * LANES)
        WIN(columns)(kind, line, lines, 4, x, n, begin, to);
    else if (rest > 2 * LANES)
        WIN(columns)(kind, line, lines, 3, x, n, begin, to);
    else if (rest > LANES)
        WIN(columns)(kind, line, lines, 2, x, n, begin, to);
    else if (rest > 0)
        WIN(columns)(kind, line, lines, 1, x, n, begin, to);
}
// n columns of the lines at `line`, one result each, to[n]. Behind to[n] there is room for a
// vector; lines end there.
INLINE void WIN(down)(enum windows_kind kind, const float *const *line, int lines, int64_t n,
                      float first, float *to) {
    if (n <= 0) return;
    switch (lines) {
    case 1:
        WIN(down_some)(kind, line, 1, n, first, to);
        break;
    case 2:
        WIN(down_some)(kind, line, 2, n, first, to);
        break;
    case 3:
        WIN(down_some)(kind, line, 3, n, first, to);
        break;
    default:
        WIN(down_some)(kind, line, lines, n, first, to);
    }
}
INLINE WIDE WIN(load_some)(const float *p, int64_t n) {
    if (n >= LANES) return WIN(load)(p);
    return n > 0 ? (WIDE)WIN_LOAD(p, n, (WIDE){0}) : (WIDE){0};
}
// The same for windows of stride 2: results of even columns in even[k], of odd ones in odd[k].
INLINE void WIN(two_apart)(enum windows_kind kind, const float *const *line, int lines, int64_t x,
                           int64_t n, float first, float *even, float *odd) {
    WIDE a = WIN(all)(first), b = a;
    UNROLL
    for (int k = 0; k < lines; k++) {
        a = WIN(put)(kind, a, WIN(load_some)(line[k] + x, n - x));
        b = WIN(put)(kind, b, WIN(load_some)(line[k] + x + LANES, n - x - LANES));
    }
    WIN(store)(even + x / 2, __builtin_shufflevector(a, b, WIN_OF(EVEN)));
    WIN(store)(odd + x / 2, __builtin_shufflevector(a, b, WIN_OF(ODD)));
}
INLINE void WIN(lines_apart)(enum windows_kind kind, const float *const *line, int lines, int64_t n,
                             float first, float *even, float *odd) {
    int64_t x = 0;
    for (; x + 2 * LANES <= n; x += 2 * LANES)
        WIN(two_apart)(kind, line, lines, x, x + 2 * LANES, first, even, odd);
    if (x < n) WIN(two_apart)(kind, line, lines, x, n, first, even, odd);
}
INLINE void WIN(down_apart)(enum windows_kind kind, const float *const *line, int lines, int64_t n,
                            float first, float *even, float *odd) {
    switch (lines) {
    case 2:
        WIN(lines_apart)(kind, line, 2, n, first, even, odd);
        break;
    case 3:
        WIN(lines_apart)(kind, line, 3, n, first, even, odd);
        break;
    default:
        WIN(lines_apart)(kind, line, lines, n, first, even, odd);
    }
}
// Windows twice as long again and again: x[k] becomes the result of `size` places from k on.
INLINE int64_t WIN(doubled)(enum windows_kind kind, float *x, int64_t n, int64_t size,
                            int64_t step) {
    int64_t have = 1;
    for (; 2 * have <= size; have *= 2)
        for (int64_t k = 0, end = n + (size - 2 * have) * step; k < end; k += LANES)
            WIN(store)(x + k, WIN(put)(kind, WIN(load)(x + k), WIN(load)(x + k + have * step)));
    return have;
}
// n results of windows of `size` places: of x, or of what `apart` made of it, `half` apart.
INLINE void WIN(taken)(enum windows_kind kind, const float *x, int64_t half, bool apart,
                       int64_t size, int64_t step, int64_t n, float *to) {
    int64_t k = 0;
    for (; k < n; k += LANES) {
        if (k + LANES > n && n >= LANES) k = n - LANES;
        WIDE a = WIN(load)(x + k);
        UNROLL
        for (int64_t t = 1; t < size; t++) {
            int64_t at = t * step;
            a = WIN(put)(kind, a, WIN(load)(x + k + (apart ? (at & 1) * half + (at >> 1) : at)));
        }
        if (n >= LANES)
            WIN(store)(to + k, a);
        else
            WIN_STORE(to, n, a);
    }
}
// n results along a line in scratch, of which element 0 is the first window's first.
INLINE void WIN(across)(enum windows_kind kind, const struct windows *w, float *x, int64_t n,
                        float *to) {
    enum { LAST = WINDOWS_DIMS - 1 };
    int64_t size = w->size[LAST], stride = w->stride[LAST], step = w->step[LAST];
    int64_t half = w->half;
    if (stride == 1 && size >= WINDOWS_LONG && kind != WINDOWS_ADD) {
        int64_t have = WIN(doubled)(kind, x, n, size, step);
        WIN(taken)(kind, x, 0, false, 2, step * (size - have), n, to);
    } else if (stride == 1 && size == 2) {
        WIN(taken)(kind, x, 0, false, 2, step, n, to);
    } else if (stride == 1 && size == 3) {
        WIN(taken)(kind, x, 0, false, 3, step, n, to);
    } else if (stride == 1) {
        WIN(taken)(kind, x, 0, false, size, step, n, to);
    } else if (stride == 2 && step == 1 && size == 2) {
        WIN(taken)(kind, x, half, true, 2, 1, n, to);
    } else if (stride == 2 && step == 1 && size == 3) {
        WIN(taken)(kind, x, half, true, 3, 1, n, to);
    } else {
        WIN(taken)(kind, x, half, true, size, step, n, to);
    }
}
#endif
