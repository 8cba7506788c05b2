// SPDX-License-Identifier: Apache-2.0
// Memory: one texture of words, in which a value is a range; it grows by being copied to a larger
// one, so places stay. A second texture is what kernels draw to.
#include <stdlib.h>

#include "devices/gl/gl_device.h"
#include "proto/hlod.pb-c.h"

enum { LEAST_ROWS = 64, BOUNCE_WORDS = 1 << 20 };

static struct gl_device *own(struct queue_device *d) {
    return (struct gl_device *)d;
}
static int64_t width(const struct gl_device *d) {
    return INT64_C(1) << d->bits;
}

// ---- rectangles

int64_t gl_rows(const struct gl_device *d, int64_t word, int64_t n) {
    return n ? ((word + n - 1) >> d->bits) - (word >> d->bits) + 1 : 0;
}
int gl_pieces(const struct gl_device *d, int64_t word, int64_t n,
              struct gl_piece out[GL_MOST_PIECES]) {
    int k = 0;
    for (int64_t at = 0; at < n; k++) {
        int64_t x = (word + at) & (width(d) - 1), left = n - at;
        int64_t h = x == 0 && left >= width(d) ? left >> d->bits : 1;
        int64_t room = width(d) - x, w = left < room ? left : room;
        out[k] = (struct gl_piece){(int32_t)x, (int32_t)((word + at) >> d->bits), (int32_t)w,
                                   (int32_t)h, at};
        at += w * h;
    }
    return k;
}

// ---- textures

static void drop(struct gl_device *d, struct gl_texture *t) {
    if (t->frame) d->gl->DeleteFramebuffers(1, &t->frame);
    if (t->texture) d->gl->DeleteTextures(1, &t->texture);
    *t = (struct gl_texture){0};
}
static void drop_sums(struct gl_device *d, struct gl_sums *s) {
    d->gl->DeleteFramebuffers(SHADER_SUM_LAYERS, s->frame);
    if (s->texture) d->gl->DeleteTextures(1, &s->texture);
    *s = (struct gl_sums){0};
}
void gl_drop_textures(struct gl_device *d) {
    drop(d, &d->memory);
    drop(d, &d->drawn);
    drop_sums(d, &d->sums);
}
static status_t make(struct gl_device *d, int64_t rows, struct gl_texture *out) {
    const struct gl_api *gl = d->gl;
    struct gl_texture t = {.rows = rows};
    gl->GenTextures(1, &t.texture);
    gl->GenFramebuffers(1, &t.frame);
    gl->BindTexture(GL_TEXTURE_2D, t.texture);
    gl->TexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    gl->TexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    gl->TexStorage2D(GL_TEXTURE_2D, 1, GL_R32UI, (int32_t)width(d), (int32_t)rows);

    gl->BindFramebuffer(GL_FRAMEBUFFER, t.frame);
    gl->FramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, t.texture, 0);
    status_t st = gl_check(d, "glTexStorage2D");
    if (!st && gl->CheckFramebufferStatus(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE)
        st = st_exhausted("OpenGL does not draw words to a texture of %lld x %lld",
                          (long long)width(d), (long long)rows);
    if (st)
        drop(d, &t);
    else
        *out = t;
    return st;
}
// Memory is read and `drawn` is drawn to, but in what puts this back.
static void bind(struct gl_device *d) {
    d->gl->ActiveTexture(GL_TEXTURE0 + 1);
    d->gl->BindTexture(GL_TEXTURE_2D_ARRAY, d->sums.texture);
    d->gl->ActiveTexture(GL_TEXTURE0);
    d->gl->BindTexture(GL_TEXTURE_2D, d->memory.texture);
    d->gl->BindFramebuffer(GL_FRAMEBUFFER, d->drawn.frame);
}
// How words of it are read: one number each where the driver has that.
static void find_format(struct gl_device *d) {
    int32_t format = 0, type = 0;
    d->gl->BindFramebuffer(GL_FRAMEBUFFER, d->memory.frame);
    d->gl->GetIntegerv(GL_IMPLEMENTATION_COLOR_READ_FORMAT, &format);
    d->gl->GetIntegerv(GL_IMPLEMENTATION_COLOR_READ_TYPE, &type);
    d->reads_one = format == GL_RED_INTEGER && type == GL_UNSIGNED_INT;
}
static status_t grow(struct gl_device *d, int64_t bytes) {
    int64_t rows = ceil_div(bytes, 4 * width(d)), wanted = 2 * d->memory.rows;
    struct gl_texture larger = {0};
    if (rows <= d->memory.rows) return ST_OK;
    if (rows > d->most_rows) return st_exhausted("the largest texture is full");
    if (wanted < LEAST_ROWS) wanted = LEAST_ROWS;
    if (wanted < rows) wanted = rows;
    if (wanted > d->most_rows) wanted = d->most_rows;

    status_t st = make(d, wanted, &larger);
    if (st_code(st) == ST_RESOURCE_EXHAUSTED && wanted > rows) {
        st_drop(st);
        st = make(d, rows, &larger);
    }
    if (!st && d->memory.rows) {
        d->gl->BindTexture(GL_TEXTURE_2D, larger.texture);
        d->gl->BindFramebuffer(GL_FRAMEBUFFER, d->memory.frame);
        d->gl->CopyTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, 0, 0, (int32_t)width(d),
                                 (int32_t)d->memory.rows);
        st = gl_check(d, "glCopyTexSubImage2D");
    }
    if (st) {
        drop(d, &larger);
    } else {
        drop(d, &d->memory);
        d->memory = larger;
        find_format(d);
    }
    bind(d);
    return st;
}
status_t gl_drawn_rows(struct gl_device *d, int64_t rows) {
    struct gl_texture larger = {0};
    if (rows < LEAST_ROWS) rows = LEAST_ROWS;
    if (rows > d->most_rows) rows = d->most_rows;
    if (rows <= d->drawn.rows) return ST_OK;
    status_t st = make(d, rows, &larger);
    if (!st) {
        drop(d, &d->drawn);
        d->drawn = larger;
    }
    bind(d);
    if (st_code(st) != ST_RESOURCE_EXHAUSTED) return st;
    return st_reason(st_note(st, "no device memory for what kernels draw"),
                     HLOD__V1__REASON__REASON_DEVICE_MEMORY);
}

static status_t make_sums(struct gl_device *d, int64_t rows, struct gl_sums *out) {
    const struct gl_api *gl = d->gl;
    struct gl_sums s = {.rows = rows};
    uint32_t at[SHADER_SUM_LAYERS];
    bool whole = true;
    gl->GenTextures(1, &s.texture);
    gl->GenFramebuffers(SHADER_SUM_LAYERS, s.frame);
    gl->ActiveTexture(GL_TEXTURE0 + 1);
    gl->BindTexture(GL_TEXTURE_2D_ARRAY, s.texture);
    gl->TexParameteri(GL_TEXTURE_2D_ARRAY, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    gl->TexParameteri(GL_TEXTURE_2D_ARRAY, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    gl->TexStorage3D(GL_TEXTURE_2D_ARRAY, 1, GL_RGBA32UI, (int32_t)width(d), (int32_t)rows,
                     SHADER_SUM_LAYERS);
    gl->ActiveTexture(GL_TEXTURE0);

    for (uint32_t n = 0; n < SHADER_SUM_LAYERS; n++) {
        gl->BindFramebuffer(GL_FRAMEBUFFER, s.frame[n]);
        at[n] = GL_COLOR_ATTACHMENT0 + n;
        for (uint32_t k = 0; k <= n; k++)
            gl->FramebufferTextureLayer(GL_FRAMEBUFFER, at[k], s.texture, 0, (int32_t)k);
        gl->DrawBuffers((int32_t)n + 1, at);
        whole &= gl->CheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE;
    }
    status_t st = gl_check(d, "glTexStorage3D");
    if (!st && !whole)
        st = st_exhausted("OpenGL does not draw sums to a texture of %lld x %lld x %d",
                          (long long)width(d), (long long)rows, (int)SHADER_SUM_LAYERS);
    if (st)
        drop_sums(d, &s);
    else
        *out = s;
    return st;
}
status_t gl_sums_rows(struct gl_device *d, int64_t rows) {
    struct gl_sums larger = {0};
    if (rows <= d->sums.rows) return ST_OK;
    status_t st = make_sums(d, rows, &larger);
    if (!st) {
        drop_sums(d, &d->sums);
        d->sums = larger;
    }
    bind(d);
    if (st_code(st) != ST_RESOURCE_EXHAUSTED) return st;
    return st_reason(st_note(st, "no device memory for what kernels sum"),
                     HLOD__V1__REASON__REASON_DEVICE_MEMORY);
}

// ---- ranges

status_t gl_take(struct queue_device *base, int64_t n, struct queue_memory *out) {
    struct gl_device *d = own(base);
    int64_t bytes = queue_aligned(n), at = 0;
    size_t k = 0;
    for (; k < d->ranges.n && d->ranges.v[k].at - at < bytes; k++)
        at = d->ranges.v[k].at + d->ranges.v[k].bytes;
    RETURN_IF_ERR(grow(d, at + bytes));

    vec_push(&d->ranges, ((struct gl_range){0}));
    memmove(&d->ranges.v[k + 1], &d->ranges.v[k], (d->ranges.n - 1 - k) * sizeof *d->ranges.v);
    d->ranges.v[k] = (struct gl_range){at, bytes};
    *out = (struct queue_memory){{d, at}, bytes};
    return ST_OK;
}
void gl_give(struct queue_device *base, const struct queue_memory *m) {
    struct gl_device *d = own(base);
    size_t low = 0, high = d->ranges.n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (d->ranges.v[mid].at < m->place.at)
            low = mid + 1;
        else
            high = mid;
    }
    d->ranges.n--;
    memmove(&d->ranges.v[low], &d->ranges.v[low + 1], (d->ranges.n - low) * sizeof *d->ranges.v);
}

// ---- transfers

static void put_words(struct gl_device *d, int64_t word, const uint8_t *from, int64_t n) {
    struct gl_piece p[GL_MOST_PIECES];
    for (int k = 0, m = gl_pieces(d, word, n, p); k < m; k++)
        d->gl->TexSubImage2D(GL_TEXTURE_2D, 0, p[k].x, p[k].y, p[k].w, p[k].h, GL_RED_INTEGER,
                             GL_UNSIGNED_INT, from + 4 * p[k].at);
}
status_t gl_write(struct queue_device *base, struct queue_place to, const void *from, int64_t bytes,
                  UNUSED bool wait) {
    struct gl_device *d = own(base);
    const uint8_t *p = from;
    bool aligned = (uintptr_t)from % 4 == 0;
    int64_t word = to.at / 4, n = bytes / 4, step = aligned ? n : BOUNCE_WORDS;
    uint32_t *bounce = aligned ? NULL : malloc(BOUNCE_WORDS * sizeof *bounce), last = 0;
    if (!aligned && !bounce) return st_oom();

    for (int64_t at = 0; at < n; at += step) {
        int64_t m = n - at < step ? n - at : step;
        if (!aligned) memcpy(bounce, p + 4 * at, (size_t)(4 * m));
        put_words(d, word + at, aligned ? p + 4 * at : (const uint8_t *)bounce, m);
    }
    memcpy(&last, p + 4 * n, (size_t)(bytes % 4));
    if (bytes % 4) put_words(d, word + n, (const uint8_t *)&last, 1);
    free(bounce);
    return gl_check(d, "glTexSubImage2D");
}
// Words of `memory` to four-byte aligned memory; four: room for four numbers a word, or NULL.
static void get_words(struct gl_device *d, int64_t word, uint32_t *to, int64_t n, uint32_t *four) {
    struct gl_piece p[GL_MOST_PIECES];
    for (int k = 0, m = gl_pieces(d, word, n, p); k < m; k++) {
        d->gl->ReadPixels(p[k].x, p[k].y, p[k].w, p[k].h, four ? GL_RGBA_INTEGER : GL_RED_INTEGER,
                          GL_UNSIGNED_INT, four ? four : to + p[k].at);
        for (int64_t e = 0; four && e < (int64_t)p[k].w * p[k].h; e++)
            to[p[k].at + e] = four[4 * e];
    }
}
static void read_by_parts(struct gl_device *d, uint8_t *to, int64_t at, int64_t bytes,
                          uint32_t *words, uint32_t *four) {
    while (bytes) {
        int64_t lead = at % 4, n = ceil_div(lead + bytes, 4);
        if (n > BOUNCE_WORDS) n = BOUNCE_WORDS;
        int64_t got = 4 * n - lead < bytes ? 4 * n - lead : bytes;
        get_words(d, at / 4, words, n, four);
        memcpy(to, (const uint8_t *)words + lead, (size_t)got);
        to += got;
        at += got;
        bytes -= got;
    }
}
status_t gl_read(struct queue_device *base, void *to, struct queue_place from, int64_t bytes,
                 UNUSED bool wait) {
    struct gl_device *d = own(base);
    bool plain = d->reads_one && (uintptr_t)to % 4 == 0 && from.at % 4 == 0 && bytes % 4 == 0;
    size_t most = bytes / 4 + 2 < BOUNCE_WORDS ? (size_t)bytes / 4 + 2 : BOUNCE_WORDS,
           room = d->reads_one ? 1 : 5; // numbers of a word
    uint32_t *words = plain ? NULL : malloc(most * room * sizeof *words);
    if (!plain && !words) return st_oom();

    d->gl->BindFramebuffer(GL_FRAMEBUFFER, d->memory.frame);
    if (plain)
        get_words(d, from.at / 4, to, bytes / 4, NULL);
    else
        read_by_parts(d, to, from.at, bytes, words, d->reads_one ? NULL : words + most);
    bind(d);
    free(words);
    return gl_check(d, "glReadPixels");
}
