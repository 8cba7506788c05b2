// SPDX-License-Identifier: Apache-2.0
// train_program: a model as the program that trains it, as hlo-opt --train makes and tells it.
#pragma once
#include <jansson.h>

#include "client/files/npy.h"
#include "proto/safetensors.h"

struct hlo;
struct train_leaf { // a parameter of the program, in order
    const char *name, *role, *of, *key, *dtype;
    bool still; // a weight that the loss does not depend on
    int rank;
    int64_t dims[NPY_MAX_RANK];
    const void *data; // what it begins with, once it is known
    size_t size_bytes;
};
struct train_program {
    const char *path; // HloModuleProto, in a folder of its own
    struct train_leaf *leaves;
    int n_leaves, n_state;
    bool accuracy;
    int64_t steps_per_epoch, classes, slice;
};
// Makes it in folder `dir` under `stem`, for arrays of these shapes ("x:1000x3;label:1000"); the
// state gets its first values. 0, or an exit code already reported.
int train_program_make(struct hlo *h, const char *model, const char *spec, const char *shapes,
                       const char *dir, const char *stem, struct train_program *out);
// The first values of the parameters that `file` has under their keys. INVALID_ARGUMENT: a leaf of
// the state or a frozen one is missing, or has another type or shape.
status_t train_program_take(struct arena *a, struct train_program *p, const char *file) MUST_CHECK;
// An array as leaf l's value: numbers become its type where all of them fit. INVALID_ARGUMENT names
// the place; labels are checked against the number of classes.
status_t train_program_give(struct arena *a, const struct train_program *p, struct train_leaf *l,
                            const struct npy *x) MUST_CHECK;
