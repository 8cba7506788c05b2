// SPDX-License-Identifier: Apache-2.0
// Pictures as inputs: PNG and JPEG written here by their libraries and read back; resizing against
// values of Pillow 13 (Image.resize, BICUBIC); damaged files are refused, never more.
#include "client/files/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>

static const uint8_t red[63] = {255, 121, 6,  168, 187, 243, 236, 164, 210, 210, 218, 114, 160,
                                79,  120, 31, 36,  69,  228, 58,  76,  104, 209, 44,  98,  21,
                                14,  50,  46, 192, 127, 194, 72,  209, 105, 213, 168, 201, 185,
                                45,  46,  31, 24,  130, 129, 34,  32,  105, 85,  231, 21,  253,
                                146, 67,  19, 230, 69,  15,  200, 252, 199, 124, 239};      // 9 x 7
static const uint8_t small[12] = {165, 123, 143, 96, 120, 129, 91, 105, 99, 102, 152, 151}; // 4 x 3
static const uint8_t large[143] = { // 13 x 11
    255, 191, 79,  0,   100, 186, 195, 237, 255, 246, 184, 191, 223, 235, 209, 141, 54,  123,
    165, 135, 182, 185, 144, 114, 130, 157, 211, 218, 195, 118, 143, 138, 82,  107, 83,  24,
    26,  44,  62,  245, 166, 84,  79,  97,  138, 178, 89,  54,  67,  26,  8,   8,   173, 94,
    41,  108, 107, 145, 220, 91,  77,  146, 65,  56,  82,  50,  39,  74,  187, 152, 144, 194,
    97,  117, 208, 119, 150, 220, 129, 145, 173, 200, 117, 64,  81,  55,  52,  77,  112, 149,
    173, 145, 158, 172, 171, 90,  50,  78,  33,  28,  69,  126, 125, 102, 43,  33,  49,  108,
    88,  126, 221, 56,  83,  244, 174, 100, 59,  11,  85,  137, 84,  42,  93,  223, 174, 183,
    231, 152, 142, 166, 4,   147, 228, 77,  8,   54,  198, 255, 250, 189, 126, 180, 255};

static struct image picture(struct arena *a, int w, int h, const uint8_t *gray) {
    struct image m = {w, h, arena_alloc(a, (size_t)w * (size_t)h * 3)};
    for (size_t i = 0; i < (size_t)w * (size_t)h; i++)
        for (size_t c = 0; c < 3; c++)
            m.rgb[i * 3 + c] = (uint8_t)(gray[i] + 40 * c);
    return m;
}

static struct span as_png(struct arena *a, const void *data, int w, int h, uint32_t format) {
    png_image p = {.version = PNG_IMAGE_VERSION,
                   .width = (uint32_t)w,
                   .height = (uint32_t)h,
                   .format = format};
    size_t n = PNG_IMAGE_PNG_SIZE_MAX(p);
    uint8_t *out = arena_alloc(a, n);
    assert_true(png_image_write_to_memory(&p, out, &n, 0, data, 0, NULL));
    return (struct span){out, n};
}

static struct span as_jpeg(struct arena *a, const struct image *m) {
    struct jpeg_compress_struct j;
    struct jpeg_error_mgr e;
    unsigned char *out = NULL;
    unsigned long n = 0;
    j.err = jpeg_std_error(&e);
    jpeg_create_compress(&j);
    jpeg_mem_dest(&j, &out, &n);
    j.image_width = (JDIMENSION)m->width;
    j.image_height = (JDIMENSION)m->height;
    j.input_components = 3;
    j.in_color_space = JCS_RGB;
    jpeg_set_defaults(&j);
    jpeg_set_quality(&j, 100, TRUE);
    j.comp_info[0].h_samp_factor = j.comp_info[0].v_samp_factor = 1;
    jpeg_start_compress(&j, TRUE);
    while (j.next_scanline < j.image_height) {
        JSAMPROW row = m->rgb + (size_t)j.next_scanline * (size_t)m->width * 3;
        jpeg_write_scanlines(&j, &row, 1);
    }
    jpeg_finish_compress(&j);
    jpeg_destroy_compress(&j);
    struct span s = {arena_dup(a, out, n), n};
    free(out);
    return s;
}

static void decodes(void **state) {
    (void)state;
    struct arena a = {0};
    struct image m = picture(&a, 9, 7, red), got;
    struct span png = as_png(&a, m.rgb, 9, 7, PNG_FORMAT_RGB), jpeg = as_jpeg(&a, &m);
    assert_true(image_sniff(png) && image_sniff(jpeg));
    assert_null(image_decode(&a, png, "t", &got));
    assert_int_equal(got.width, 9);
    assert_int_equal(got.height, 7);
    assert_memory_equal(got.rgb, m.rgb, 189);
    assert_null(image_decode(&a, jpeg, "t", &got));
    for (int i = 0; i < 189; i++)
        assert_in_range(got.rgb[i] - m.rgb[i] + 8, 0, 16);
    // Gray becomes RGB, alpha goes.
    assert_null(image_decode(&a, as_png(&a, red, 9, 7, PNG_FORMAT_GRAY), "t", &got));
    for (int i = 0; i < 189; i++)
        assert_int_equal(got.rgb[i], red[i / 3]);
    uint8_t rgba[63 * 4];
    for (int i = 0; i < 252; i++)
        rgba[i] = i % 4 == 3 ? 7 : m.rgb[i / 4 * 3 + i % 4];
    assert_null(image_decode(&a, as_png(&a, rgba, 9, 7, PNG_FORMAT_RGBA), "t", &got));
    assert_memory_equal(got.rgb, m.rgb, 189);
    arena_done(&a);
}

static void check_resize(struct arena *a, int w, int h, const uint8_t *want) {
    struct image m = {9, 7, arena_alloc(a, 189)}, got;
    for (int i = 0; i < 189; i++)
        m.rgb[i] = red[i / 3];
    image_resize(a, m, w, h, &got);
    for (int i = 0; i < w * h * 3; i++)
        assert_in_range(got.rgb[i] - want[i / 3] + 1, 0, 2);
}
static void resizes(void **state) {
    (void)state;
    struct arena a = {0};
    check_resize(&a, 4, 3, small);
    check_resize(&a, 13, 11, large);
    check_resize(&a, 9, 7, red);
    arena_done(&a);
}

static void tensors(void **state) {
    (void)state;
    struct arena a = {0};
    struct image m = picture(&a, 9, 7, red);
    struct image_options o = {.mean = {127, 100, 50}, .std = {128, 64, 2}, .crop = 0.6};
    struct npy x;
    struct span png = as_png(&a, m.rgb, 9, 7, PNG_FORMAT_RGB);
    assert_null(image_tensor(&a, png, "t", &o, &x)); // 4 x 4 from (2, 1)
    assert_int_equal(x.rank, 4);
    assert_int_equal(x.dims[1], 3);
    assert_int_equal(x.dims[2], 4);
    assert_int_equal(x.size_bytes, 4 * 4 * 3 * 4);
    const float *v = x.data;
    for (int i = 0; i < 48; i++) {
        int c = i / 16, at = ((1 + i % 16 / 4) * 9 + 2 + i % 4) * 3 + c;
        assert_true(v[i] == (float)((m.rgb[at] - o.mean[c]) / o.std[c]));
    }
    o.nhwc = true;
    struct npy y;
    assert_null(image_tensor(&a, png, "t", &o, &y));
    assert_int_equal(y.dims[3], 3);
    for (int i = 0; i < 48; i++)
        assert_true(((const float *)y.data)[i % 16 * 3 + i / 16] == v[i]);
    arena_done(&a);
}

static void hostile(void **state) {
    (void)state;
    struct arena a = {0};
    struct image m = picture(&a, 9, 7, red), got;
    struct span both[2] = {as_png(&a, m.rgb, 9, 7, PNG_FORMAT_RGB), as_jpeg(&a, &m)};
    for (int k = 0; k < 2; k++) {
        for (size_t n = 0; n < both[k].n - 1; n++) {
            status_t st = image_decode(&a, (struct span){both[k].p, n}, "t", &got);
            if (n < both[k].n * 3 / 4) assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
            st_drop(st);
        }
        for (size_t n = 0; n < both[k].n; n++) { // any outcome but a crash
            uint8_t *copy = arena_dup(&a, both[k].p, both[k].n);
            copy[n] ^= 0x55;
            st_drop(image_decode(&a, (struct span){copy, both[k].n}, "t", &got));
        }
    }
    uint8_t *huge = arena_dup(&a, both[0].p, both[0].n);
    huge[16] = huge[20] = 0x7f; // width and height; the header's checksum is wrong then too
    status_t st = image_decode(&a, (struct span){huge, both[0].n}, "t", &got);
    assert_int_equal(st_code(st), ST_INVALID_ARGUMENT);
    st_drop(st);
    arena_done(&a);
}

int main(void) {
    const struct CMUnitTest t[] = {cmocka_unit_test(decodes), cmocka_unit_test(resizes),
                                   cmocka_unit_test(tensors), cmocka_unit_test(hostile)};
    return cmocka_run_group_tests(t, NULL, NULL);
}
