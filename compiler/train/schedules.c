// SPDX-License-Identifier: Apache-2.0
// Schedules of the rate. During the first `warmup` steps it grows from 0 in a line, then the row's
// factor applies, from its step 0 on.
#include "compiler/train/parts.h"

#include <math.h>

const char *const schedule_names[TRAIN_SCHEDULE_COUNT] = {
#define SCHEDULE(id, text) text,
#include "compiler/train/schedules.def"
#undef SCHEDULE
};

static hv schedule_constant(struct hb *b, UNUSED const struct train_spec *s, hv t) {
    return part_like(b, t, 1);
}
static hv schedule_step(struct hb *b, const struct train_spec *s, hv t) {
    hv n = hb_unary(b, HLO_FLOOR, part_mul(b, t, 1 / (double)s->every));
    return hb_binary(b, HLO_POWER, part_like(b, t, s->factor), n);
}
// How much of `steps` behind the warm-up is made, 0 to 1.
static hv progress(struct hb *b, const struct train_spec *s, hv t) {
    int64_t n = s->steps - s->warmup;
    return hb_min(b, part_mul(b, t, 1 / (double)(n > 0 ? n : 1)), part_like(b, t, 1));
}
static hv schedule_linear(struct hb *b, const struct train_spec *s, hv t) {
    return part_add(b, part_mul(b, progress(b, s, t), s->end - 1), 1);
}
static hv schedule_cosine(struct hb *b, const struct train_spec *s, hv t) {
    hv c = hb_unary(b, HLO_COS, part_mul(b, progress(b, s, t), M_PI));
    return part_add(b, part_mul(b, part_add(b, c, 1), (1 - s->end) / 2), s->end);
}

hv schedule_rate(struct hb *b, const struct train_spec *s, hv step) {
    static hv (*const rules[TRAIN_SCHEDULE_COUNT])(struct hb *, const struct train_spec *, hv) = {
#define SCHEDULE(id, text) schedule_##id,
#include "compiler/train/schedules.def"
#undef SCHEDULE
    };
    hv t = hb_convert(b, step, DT_F32);
    hv from = hb_max(b, part_add(b, t, -(double)s->warmup), part_like(b, t, 0));
    hv factor = rules[s->schedule](b, s, from);
    if (s->warmup > 0) {
        hv grown = part_mul(b, t, 1 / (double)s->warmup);
        hv early = hb_compare(b, t, part_like(b, t, (double)s->warmup), CMP_LT);
        factor = hb_select(b, early, grown, factor);
    }
    return part_mul(b, factor, s->hyper.rate);
}
