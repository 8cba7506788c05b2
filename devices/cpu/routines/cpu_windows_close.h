// SPDX-License-Identifier: Apache-2.0
// cpu_windows_close: windows of two or three places along a line, next to each other, which stay in
// registers. Included by cpu_windows_body.h for each instruction set.
#ifdef WIN

// Vector k of a line's columns; `first` where it has ended.
INLINE WIDE WIN(column)(enum windows_kind kind, const float *const *line, int lines, int64_t k,
                        int64_t n, WIDE first) {
    int64_t rest = n - k * LANES;
    WIDE a = first;
    if (rest >= LANES) {
        UNROLL
        for (int e = 0; e < lines; e++)
            a = WIN(put)(kind, a, WIN(load)(line[e] + k * LANES));
    } else if (rest > 0) {
        for (int e = 0; e < lines; e++)
            a = WIN(put)(kind, a, WIN_LOAD(line[e] + k * LANES, rest, first));
    }
    return a;
}
INLINE void WIN(keep)(float *to, int64_t k, int64_t n, WIDE v) {
    if (n - k * LANES >= LANES)
        WIN(store)(to + k * LANES, v);
    else
        WIN_STORE(to + k * LANES, n - k * LANES, v);
}
// out: results of a line; size 2 or 3, low 0 or 1.
INLINE void WIN(close_by_one)(enum windows_kind kind, const float *const *line, int lines,
                              int64_t in, int64_t out, int size, int low, WIDE first, float *to) {
    WIDE before = first, at = WIN(column)(kind, line, lines, 0, in, first);
    for (int64_t k = 0; k * LANES < out; k++) {
        WIDE next = WIN(column)(kind, line, lines, k + 1, in, first), r = at;
        if (low) r = WIN(put)(kind, r, __builtin_shufflevector(before, at, WIN_OF(BEFORE)));
        if (size - low > 1)
            r = WIN(put)(kind, r, __builtin_shufflevector(at, next, WIN_OF(BEHIND)));
        if (size - low > 2)
            r = WIN(put)(kind, r, __builtin_shufflevector(at, next, WIN_OF(SECOND)));
        WIN(keep)(to, k, out, r);
        before = at;
        at = next;
    }
}
// The same every second place.
INLINE void WIN(close_by_two)(enum windows_kind kind, const float *const *line, int lines,
                              int64_t in, int64_t out, int size, int low, WIDE first, float *to) {
    WIDE before = first, a = WIN(column)(kind, line, lines, 0, in, first),
         b = WIN(column)(kind, line, lines, 1, in, first);
    WIDE even = __builtin_shufflevector(a, b, WIN_OF(EVEN));
    for (int64_t k = 0; k * LANES < out; k++) {
        WIDE odd = __builtin_shufflevector(a, b, WIN_OF(ODD)), r = even, next = even;
        if (size - low > 2 || (k + 1) * LANES < out) {
            a = WIN(column)(kind, line, lines, 2 * k + 2, in, first);
            b = WIN(column)(kind, line, lines, 2 * k + 3, in, first);
            next = __builtin_shufflevector(a, b, WIN_OF(EVEN));
        }
        if (low) r = WIN(put)(kind, r, __builtin_shufflevector(before, odd, WIN_OF(BEFORE)));
        if (size - low > 1) r = WIN(put)(kind, r, odd);
        if (size - low > 2)
            r = WIN(put)(kind, r, __builtin_shufflevector(even, next, WIN_OF(BEHIND)));
        WIN(keep)(to, k, out, r);
        before = odd;
        even = next;
    }
}
INLINE void WIN(close_of)(enum windows_kind kind, const struct windows *w, const float *const *line,
                          int lines, int size, int low, WIDE first, float *to) {
    if (w->stride[2] == 1)
        WIN(close_by_one)(kind, line, lines, w->in[2], w->out[2], size, low, first, to);
    else
        WIN(close_by_two)(kind, line, lines, w->in[2], w->out[2], size, low, first, to);
}
INLINE void WIN(close_line)(enum windows_kind kind, const struct windows *w,
                            const float *const *line, int lines, WIDE first, float *to) {
    if (w->size[2] == 3 && w->low[2])
        WIN(close_of)(kind, w, line, lines, 3, 1, first, to);
    else if (w->size[2] == 3)
        WIN(close_of)(kind, w, line, lines, 3, 0, first, to);
    else if (w->low[2])
        WIN(close_of)(kind, w, line, lines, 2, 1, first, to);
    else
        WIN(close_of)(kind, w, line, lines, 2, 0, first, to);
}
INLINE void WIN(close)(enum windows_kind kind, const struct windows *w,
                       const struct windows_unit *u) {
    const float *line[WINDOWS_LINES];
    const WIDE first = WIN(all)(u->first);
    float *out = u->out + u->from * w->out[2];
    for (int64_t y = u->from; y < u->to; y++, out += w->out[2]) {
        int lines = WIN(lines_of)(w, u, y, 0, line);
        if (lines == 3)
            WIN(close_line)(kind, w, line, 3, first, out);
        else
            WIN(close_line)(kind, w, line, lines, first, out);
    }
}
#endif
