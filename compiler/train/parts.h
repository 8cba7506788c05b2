// SPDX-License-Identifier: Apache-2.0
// parts: what the files of train share. Values are built in b's computation, the body of the loop.
#pragma once
#include "compiler/ir/build.h"
#include "compiler/train/train.h"

// ---- losses.c
enum loss_target { LOSS_CLASSES, LOSS_VALUES, LOSS_NONE };
struct loss_row {
    const char *name;
    enum loss_target target;
    bool likelihood;
};
extern const struct loss_row loss_rows[TRAIN_LOSS_COUNT];
// What labels look like for scores y; NULL: the loss takes none. INVALID_ARGUMENT: y does not fit.
status_t loss_label_shape(struct arena *a, const struct train_spec *s, const struct shape *y,
                          const struct shape **out) MUST_CHECK;
struct loss {
    hv each;    // f32, a loss an example (or pixel, ...); a scalar for `output`
    hv correct; // f32, 1 where the largest score is that of the class; or NULL
};
// NaN where a class is out of range.
struct loss loss_of(struct hb *b, const struct train_spec *s, hv y, hv label);

// ---- optimizers.c, schedules.c
struct optimizer_row {
    const char *name;
    int slots;
    double initial;
    bool decoupled;
    struct train_hyper usual; // 0: it has no such setting; all have weight decay
};
extern const struct optimizer_row optimizer_rows[TRAIN_OPTIMIZER_COUNT];
struct update {
    struct hb *b;
    const struct train_spec *s;
    hv weight, gradient;  // f32 or f64, of one shape
    hv slots[2], next[2]; // before; after
    hv mean, next_mean;   // the running mean, where one is kept
    hv rate, step;        // scalars; step counts from 1
    hv good;              // pred[]: does the step count? NULL: it does
    bool decays;
};
hv optimizer_step(struct update *u); // the weight afterwards; sets next and next_mean
// The rate at step s32[] (counted from 0), f32.
extern const char *const schedule_names[TRAIN_SCHEDULE_COUNT];
hv schedule_rate(struct hb *b, const struct train_spec *s, hv step);

// ---- batches.c: seed, epoch, step are s32[]
hv batch_order(struct hb *b, hv seed, hv epoch, int64_t rows); // s32[rows]: a permutation
// Rows [at * batch, ...) of x in this order (NULL: as they lie).
hv batch_rows(struct hb *b, hv x, hv order, hv at, int64_t batch);
// Random numbers of the model (rng) become a function of seed, step and place in the model.
void batch_seed_rng(struct hb *b, hv seed, hv step);

// ---- remat.c
// b's computation up to `last` is a forward pass, behind it stands the backward pass: most of what
// the second reads of the first is computed again there, a segment at a time, of the first `most`
// segments (INT32_MAX: all). Returns how many there are, without the last, which is always kept.
int32_t remat_segments(struct hb *b, hv last, int32_t most);

// ---- formulas
static inline hv part_like(struct hb *b, hv x, double k) {
    return hb_splat(b, x->shape, k);
}
static inline hv part_add(struct hb *b, hv x, double k) {
    return hb_add(b, x, part_like(b, x, k));
}
static inline hv part_mul(struct hb *b, hv x, double k) {
    return hb_mul(b, x, part_like(b, x, k));
}
static inline hv part_wide(struct hb *b, hv scalar, hv like) {
    const struct shape *s = like->shape;
    return s->rank ? hb_broadcast(b, hb_convert(b, scalar, s->dtype), s->dims, s->rank, NULL)
                   : hb_convert(b, scalar, s->dtype);
}
hv part_sum(struct hb *b, hv x); // of all elements
