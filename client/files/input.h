// SPDX-License-Identifier: Apache-2.0
// input: the words behind `hlo run -i` as arrays. NAME=VALUE or NAME=1x3x224x224xf32=VALUE, where
// VALUE is numbers (1,2,3; [[1,2],[3,4]]), the word random, @file.npy, @file.npz
// (the member of that name), @file.png, @file.jpg, or, with dims and type in front, @file of raw
// little-endian bytes; with a type alone in front @file.npy, whose numbers become that type. Also
// the element types' three names: NumPy's, the Open Inference Protocol's, HLO's.
#pragma once
#include "client/files/image.h"

status_t input_parse(struct arena *a, const char *word, const struct image_options *o,
                     struct npy *out) MUST_CHECK; // out->name is set
// Does the word leave the type to the model: NAME=1,2,3, NAME=[[1,2],[3,4]], NAME=2x2=1,2,3,4,
// NAME=random? out: its name alone. input_parse takes f32 for such words.
bool input_untyped(struct arena *a, const char *word, struct npy *out);
// Such a word for an input of the model: its numbers, or texts between commas, as elements of
// dtype. A flat list takes the input's shape where its count says how: sizes of -1 are open, one of
// them follows from the count, and of two the first, a batch, is 1. shape NULL: of any rank. out
// has its name already. INVALID_ARGUMENT says what does not fit.
status_t input_fit(struct arena *a, const char *word, const char *dtype, const struct npy *shape,
                   struct npy *out) MUST_CHECK;
// The bytes of a file that the user named, or of a pipe.
status_t input_file(struct arena *a, const char *path, struct span *out) MUST_CHECK;
// "224x224" (height x width), "127" or "123.7,116.3,103.5": options of pictures.
status_t input_size(const char *text, struct image_options *o) MUST_CHECK;
// --mean and --std below 1 are torchvision's, of values from 0 to 1: brought to those of pixels,
// *out_scaled. INVALID_ARGUMENT where one says this and the other that.
status_t input_scale(struct image_options *o, bool *out_scaled) MUST_CHECK;
status_t input_channels(const char *text, double out[3]) MUST_CHECK;
// Fills x->data with numbers in [0, 1) of six digits, or small integers; the same each time.
void input_random(struct arena *a, struct npy *x);
const char *input_datatype(const char *descr); // "<f4" -> "FP32"; NULL if it cannot be sent
const char *input_type(const struct npy *x);   // of an array; NULL if it is not known
bool input_set_type(struct npy *x, const char *datatype); // and back; false if there is no such
status_t input_sendable(const struct npy *x) MUST_CHECK;  // else says what to do
