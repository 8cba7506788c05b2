// SPDX-License-Identifier: Apache-2.0
// Both libraries report errors by longjmp: each decoder keeps all its state in a struct, so that
// nothing lives in registers across it.
//
// Resizing is two passes of one-dimensional filters, across and then down, rounded to 8 bits in
// between. The filter is Catmull-Rom's cubic (a = -0.5), widened by the scale when shrinking so
// that no pixel is skipped, cut at the border and normalised there.
#include "client/files/image.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h> // needs stdio
#include <png.h>

enum { MAX_SIDE = 32768, MAX_PIXELS = 1 << 27 };

static status_t bad(const char *what, const char *why) MUST_CHECK;
static status_t bad(const char *what, const char *why) {
    return st_new(ST_INVALID_ARGUMENT, "%s: %s", what, why);
}

static status_t make(struct arena *a, const char *what, uint64_t width, uint64_t height,
                     struct image *out) {
    if (!width || !height || width > MAX_SIDE || height > MAX_SIDE || width * height > MAX_PIXELS)
        return st_new(ST_INVALID_ARGUMENT, "%s: %llux%llu pixels are too many", what,
                      (unsigned long long)width, (unsigned long long)height);
    *out = (struct image){(int32_t)width, (int32_t)height,
                          arena_alloc(a, (size_t)(width * height * 3))};
    return ST_OK;
}

// ---- PNG

struct png_state {
    png_structp png;
    png_infop info;
    struct span left;
    char why[128];
    status_t st;
    png_bytep *rows;
    struct image image;
};
static void png_take(png_structp png, png_bytep out, size_t n) {
    struct png_state *s = png_get_io_ptr(png);
    if (n > s->left.n) png_error(png, "the file ends too early");
    memcpy(out, s->left.p, n);
    s->left.p += n;
    s->left.n -= n;
}
static void png_failed(png_structp png, png_const_charp why) {
    struct png_state *s = png_get_error_ptr(png);
    snprintf(s->why, sizeof s->why, "PNG: %s", why);
    longjmp(png_jmpbuf(png), 1);
}
static void png_quiet(png_structp png, png_const_charp why) {
    (void)png, (void)why;
}

static status_t read_png(struct arena *a, struct png_state *s, const char *what) {
    if (setjmp(png_jmpbuf(s->png))) return bad(what, s->why);
    png_set_read_fn(s->png, s, png_take);
    png_set_user_limits(s->png, MAX_SIDE, MAX_SIDE);
    png_set_chunk_malloc_max(s->png, 1 << 24);
    png_read_info(s->png, s->info);
    s->st = make(a, what, png_get_image_width(s->png, s->info),
                 png_get_image_height(s->png, s->info), &s->image);
    if (s->st) return s->st;
    png_set_expand(s->png);
    png_set_strip_16(s->png);
    png_set_gray_to_rgb(s->png);
    png_set_strip_alpha(s->png);
    png_set_interlace_handling(s->png);
    png_read_update_info(s->png, s->info);
    size_t row = (size_t)s->image.width * 3;
    if (png_get_rowbytes(s->png, s->info) != row) return bad(what, "PNG: not reducible to RGB");
    s->rows = arena_array(a, png_bytep, s->image.height);
    for (int32_t y = 0; y < s->image.height; y++)
        s->rows[y] = s->image.rgb + row * (size_t)y;
    png_read_image(s->png, s->rows);
    png_read_end(s->png, NULL);
    return ST_OK;
}

static status_t decode_png(struct arena *a, struct span bytes, const char *what,
                           struct image *out) {
    struct png_state s = {.left = bytes};
    s.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, png_failed, png_quiet);
    s.info = s.png ? png_create_info_struct(s.png) : NULL;
    status_t st = s.info ? read_png(a, &s, what) : st_oom();
    png_destroy_read_struct(&s.png, &s.info, NULL);
    if (!st) *out = s.image;
    return st;
}

// ---- JPEG

struct jpeg_state {
    struct jpeg_decompress_struct j;
    struct jpeg_error_mgr errors;
    jmp_buf out;
    char why[JMSG_LENGTH_MAX];
    status_t st;
    struct image image;
};
static void jpeg_failed(j_common_ptr c) {
    struct jpeg_state *s = c->client_data;
    c->err->format_message(c, s->why);
    longjmp(s->out, 1);
}
static void jpeg_quiet(j_common_ptr c, int level) {
    // Damaged data is only a warning there; half a picture is no input.
    if (level < 0) jpeg_failed(c);
}

static status_t read_jpeg(struct arena *a, struct jpeg_state *s, struct span bytes,
                          const char *what) {
    if (setjmp(s->out)) return st_new(ST_INVALID_ARGUMENT, "%s: JPEG: %s", what, s->why);
    jpeg_mem_src(&s->j, bytes.p, bytes.n);
    jpeg_read_header(&s->j, TRUE);
    s->st = make(a, what, s->j.image_width, s->j.image_height, &s->image);
    if (s->st) return s->st;
    s->j.out_color_space = JCS_RGB;
    jpeg_start_decompress(&s->j);
    while (s->j.output_scanline < s->j.output_height) {
        JSAMPROW row = s->image.rgb + (size_t)s->j.output_scanline * (size_t)s->image.width * 3;
        jpeg_read_scanlines(&s->j, &row, 1);
    }
    jpeg_finish_decompress(&s->j);
    return ST_OK;
}

static status_t decode_jpeg(struct arena *a, struct span bytes, const char *what,
                            struct image *out) {
    struct jpeg_state *s = arena_new_of(a, struct jpeg_state);
    s->j.err = jpeg_std_error(&s->errors);
    s->errors.error_exit = jpeg_failed;
    s->errors.emit_message = jpeg_quiet;
    s->j.client_data = s;
    jpeg_create_decompress(&s->j);
    status_t st = read_jpeg(a, s, bytes, what);
    jpeg_destroy_decompress(&s->j);
    if (!st) *out = s->image;
    return st;
}

static bool begins(struct span bytes, const char *magic, size_t n) {
    return bytes.n >= n && !memcmp(bytes.p, magic, n);
}
bool image_sniff(struct span bytes) {
    return begins(bytes, "\x89PNG\r\n\x1a\n", 8) || begins(bytes, "\xff\xd8\xff", 3);
}
status_t image_decode(struct arena *a, struct span bytes, const char *what, struct image *out) {
    if (begins(bytes, "\x89PNG", 4)) return decode_png(a, bytes, what, out);
    if (begins(bytes, "\xff\xd8\xff", 3)) return decode_jpeg(a, bytes, what, out);
    return bad(what, "neither a PNG nor a JPEG file");
}

// ---- geometry

void image_crop(struct arena *a, struct image in, double part, struct image *out) {
    int32_t shorter = in.width < in.height ? in.width : in.height;
    int32_t side = (int32_t)((double)shorter * part + 1e-9);
    if (side < 1) side = 1;
    int32_t x = (in.width - side) / 2, y = (in.height - side) / 2;
    *out = (struct image){side, side, arena_alloc(a, (size_t)side * (size_t)side * 3)};
    for (int32_t k = 0; k < side; k++)
        memcpy(out->rgb + (size_t)k * (size_t)side * 3,
               in.rgb + ((size_t)(y + k) * (size_t)in.width + (size_t)x) * 3, (size_t)side * 3);
}

static double cubic(double x) {
    x = fabs(x);
    if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
    if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
    return 0;
}

// One line of n_in samples, `step` apart, to n_out.
struct taps { // of one output sample
    int32_t first, n;
    double *weight;
};
static struct taps *filter(struct arena *a, int32_t n_in, int32_t n_out) {
    double scale = (double)n_in / n_out, widen = scale > 1 ? scale : 1, reach = 2 * widen;
    struct taps *t = arena_array(a, struct taps, n_out);
    for (int32_t k = 0; k < n_out; k++) {
        double centre = (k + 0.5) * scale, sum = 0;
        int32_t from = (int32_t)(centre - reach + 0.5), to = (int32_t)(centre + reach + 0.5);
        if (from < 0) from = 0;
        if (to > n_in) to = n_in;
        t[k] = (struct taps){from, to - from, arena_array(a, double, to - from + 1)};
        for (int32_t i = from; i < to; i++)
            sum += t[k].weight[i - from] = cubic((i + 0.5 - centre) / widen);
        for (int32_t i = 0; i < t[k].n; i++)
            t[k].weight[i] /= sum;
    }
    return t;
}
static void line(const uint8_t *in, const struct taps *t, int32_t n_out, size_t step,
                 uint8_t *out) {
    for (int32_t k = 0; k < n_out; k++) {
        double sum = 0.5;
        for (int32_t i = 0; i < t[k].n; i++)
            sum += t[k].weight[i] * in[(size_t)(t[k].first + i) * step];
        out[(size_t)k * step] = sum <= 0 ? 0 : sum >= 255 ? 255 : (uint8_t)sum;
    }
}

void image_resize(struct arena *a, struct image in, int32_t width, int32_t height,
                  struct image *out) {
    *out = in;
    if (in.width != width) {
        struct taps *t = filter(a, in.width, width);
        *out =
            (struct image){width, in.height, arena_alloc(a, (size_t)width * (size_t)in.height * 3)};
        for (int32_t y = 0; y < in.height; y++)
            for (size_t c = 0; c < 3; c++)
                line(in.rgb + (size_t)y * (size_t)in.width * 3 + c, t, width, 3,
                     out->rgb + (size_t)y * (size_t)width * 3 + c);
    }
    if (in.height != height) {
        struct image across = *out;
        struct taps *t = filter(a, across.height, height);
        *out = (struct image){width, height, arena_alloc(a, (size_t)width * (size_t)height * 3)};
        for (size_t x = 0; x < (size_t)width * 3; x++)
            line(across.rgb + x, t, height, (size_t)width * 3, out->rgb + x);
    }
}

status_t image_tensor(struct arena *a, struct span bytes, const char *what,
                      const struct image_options *o, struct npy *out) {
    struct image m;
    RETURN_IF_ERR(image_decode(a, bytes, what, &m));
    if (o->crop > 0) image_crop(a, m, o->crop, &m);
    if (o->width > MAX_SIDE || o->height > MAX_SIDE)
        return bad(what, "the size asked is too large");
    if (o->width) image_resize(a, m, o->width, o->height, &m);
    size_t plane = (size_t)m.width * (size_t)m.height;
    float *v = arena_array(a, float, plane * 3);
    for (size_t i = 0; i < plane; i++)
        for (size_t c = 0; c < 3; c++)
            v[o->nhwc ? i * 3 + c : c * plane + i] =
                (float)((m.rgb[i * 3 + c] - o->mean[c]) / o->std[c]);
    *out = (struct npy){.descr = "<f4", .rank = 4, .data = v, .size_bytes = plane * 12};
    int64_t dims[2][4] = {{1, 3, m.height, m.width}, {1, m.height, m.width, 3}};
    memcpy(out->dims, dims[o->nhwc], sizeof dims[0]);
    return ST_OK;
}
