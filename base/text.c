// SPDX-License-Identifier: Apache-2.0
// The ranges are those of Unicode's Default_Ignorable_Code_Point, Bidi_Control, White_Space and
// general categories Cc and Zl, Zp, with the interlinear and musical format characters and the
// blank of Braille.
#include "base/text.h"

#include <string.h>

#include "base/str.h"

static const struct {
    uint32_t from, to;
} unseen[] = {
    {0x00, 0x1f},       {0x7f, 0xa0},       {0xad, 0xad},       {0x34f, 0x34f},
    {0x61c, 0x61c},     {0x115f, 0x1160},   {0x1680, 0x1680},   {0x17b4, 0x17b5},
    {0x180b, 0x180f},   {0x2000, 0x200f},   {0x2028, 0x202f},   {0x205f, 0x206f},
    {0x2800, 0x2800},   {0x3000, 0x3000},   {0x3164, 0x3164},   {0xfe00, 0xfe0f},
    {0xfeff, 0xfeff},   {0xffa0, 0xffa0},   {0xfff0, 0xfffb},   {0xfffe, 0xffff},
    {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff}, {0x10fffe, 0xffffffff},
};
bool text_seen(uint32_t code) {
    if (code >= ' ' && code < 0x7f) return true;
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen; i++)
        if (code <= unseen[i].to) return code < unseen[i].from;
    return true;
}

size_t text_first(struct str s, uint32_t *code) {
    const uint8_t *p = (const uint8_t *)s.p;
    size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
    *code = UINT32_MAX;
    if (n > s.n || (p[0] >= 0x80 && p[0] < 0xc2) || p[0] > 0xf4) return 1;
    uint32_t u = n == 1 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80) return 1;
        u = u << 6 | (p[i] & 0x3f);
    }
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (u < least[n] || u > 0x10ffff || (u >= 0xd800 && u < 0xe000)) return 1;
    *code = u;
    return n;
}

bool text_is_name(struct str s, size_t most) {
    if (s.n == 0 || s.n > most) return false;
    for (uint32_t code; s.n;) {
        size_t n = text_first(s, &code);
        if (!text_seen(code)) return false;
        s = (struct str){s.p + n, s.n - n};
    }
    return true;
}

void text_show(struct strbuf *b, struct str s, const char *quoted) {
    for (uint32_t code; s.n;) {
        size_t n = text_first(s, &code);
        if (code == UINT32_MAX)
            strbuf_printf(b, "\\x%02x", (uint8_t)s.p[0]);
        else if (!text_seen(code))
            strbuf_printf(b, code > 0xffff ? "\\U%08x" : "\\u%04x", code);
        else {
            if (n == 1 && strchr(quoted, s.p[0])) strbuf_putc(b, '\\');
            strbuf_add(b, s.p, n);
        }
        s = (struct str){s.p + n, s.n - n};
    }
}
