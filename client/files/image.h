// SPDX-License-Identifier: Apache-2.0
// image: PNG and JPEG files as input tensors: decoded to 8-bit RGB, cropped and resized as vision
// models are trained (centre crop of a part of the short side, bicubic with antialiasing), then
// (value - mean) / std in float. Alpha is dropped, 16-bit samples lose their low byte, gamma and
// EXIF orientation are ignored, as the usual Python pipelines do. Files are foreign input: sizes
// are checked before memory is taken.
#pragma once
#include <stdbool.h>

#include "base/arena.h"
#include "base/span.h"
#include "base/status.h"
#include "client/files/npy.h"

struct image {
    int32_t width, height;
    uint8_t *rgb; // height x width x 3, arena
};
struct image_options {
    int32_t width, height; // 0 = as the picture is
    double crop;           // of the short side, (0, 1]; 0 = no crop. The result is a square
    double mean[3], std[3];
    bool nhwc; // else NCHW
};
bool image_sniff(struct span bytes); // begins like a PNG or a JPEG
// INVALID_ARGUMENT says what is wrong; `what` names the file in messages.
status_t image_decode(struct arena *a, struct span bytes, const char *what,
                      struct image *out) MUST_CHECK;
// *out may be where `in` came from.
void image_crop(struct arena *a, struct image in, double part, struct image *out);
void image_resize(struct arena *a, struct image in, int32_t width, int32_t height,
                  struct image *out);
// All of it: [1,3,height,width] or [1,height,width,3] f32.
status_t image_tensor(struct arena *a, struct span bytes, const char *what,
                      const struct image_options *o, struct npy *out) MUST_CHECK;
