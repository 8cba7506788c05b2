// SPDX-License-Identifier: Apache-2.0
// attrs: the attribute records of attrs.def and the value kinds they are made of. Records are
// immutable, arena-owned and shareable; struct, parse, print, equality, hash and clone are all
// expanded from the rows.
#pragma once
#include "compiler/ir/shape.h"

// ORDER enums.def: enumerators below stand in the order of the rows of enums.def (attrs.c asserts
// it).
enum cmp_direction { CMP_EQ, CMP_NE, CMP_GE, CMP_GT, CMP_LE, CMP_LT };
enum cmp_type { CMPT_DEFAULT, CMPT_FLOAT, CMPT_TOTALORDER, CMPT_SIGNED, CMPT_UNSIGNED };
enum fusion_kind { FUSION_LOOP, FUSION_INPUT, FUSION_OUTPUT, FUSION_CUSTOM };
enum rng_distribution { RNG_INVALID, RNG_UNIFORM, RNG_NORMAL };
enum rng_algorithm { RNG_DEFAULT, RNG_THREE_FRY, RNG_PHILOX };
enum fft_type { FFT_FFT, FFT_IFFT, FFT_RFFT, FFT_IRFFT };
enum custom_api {
    CUSTOM_UNSPECIFIED,
    CUSTOM_ORIGINAL,
    CUSTOM_STATUS,
    CUSTOM_STATUS_UNIFIED,
    CUSTOM_TYPED_FFI
};
enum transpose_a { TRI_NO_TRANSPOSE, TRI_TRANSPOSE, TRI_ADJOINT };

struct i64s {
    int64_t *v;
    int32_t n;
};
struct window_dim {
    int64_t size, stride, pad_low, pad_high, base_dilation, window_dilation;
    bool reversal;
};
struct window {
    struct window_dim *v;
    int32_t n;
}; // n = 0: none given
// Convolution dimension numbers: position of each role in the operand's dims. Spatial arrays have
// n_spatial entries.
struct labels {
    int32_t n_spatial;
    int32_t in_batch, in_feature, in_spatial[HLO_MAX_RANK];
    int32_t k_in, k_out, k_spatial[HLO_MAX_RANK];
    int32_t out_batch, out_feature, out_spatial[HLO_MAX_RANK];
};
// bf01_oi01->bf01 in as many dimensions as there are, the form of conv-canon; with k_out = 1
// bf01_io01->bf01.
bool labels_in_order(const struct labels *l, int k_out);
struct pad_dim {
    int64_t low, high, interior;
};
struct padding {
    struct pad_dim *v;
    int32_t n;
};
struct range {
    int64_t start, limit, stride;
};
struct ranges {
    struct range *v;
    int32_t n;
};

#define HLO_FIELD_TYPE_i64              int64_t
#define HLO_FIELD_TYPE_f32              float
#define HLO_FIELD_TYPE_flag             bool
#define HLO_FIELD_TYPE_i64s             struct i64s
#define HLO_FIELD_TYPE_str              struct str
#define HLO_FIELD_TYPE_window           struct window
#define HLO_FIELD_TYPE_labels           struct labels
#define HLO_FIELD_TYPE_padding          struct padding
#define HLO_FIELD_TYPE_ranges           struct ranges
#define HLO_FIELD_TYPE_cmp_direction    enum cmp_direction
#define HLO_FIELD_TYPE_cmp_type         enum cmp_type
#define HLO_FIELD_TYPE_fusion_kind      enum fusion_kind
#define HLO_FIELD_TYPE_rng_distribution enum rng_distribution
#define HLO_FIELD_TYPE_rng_algorithm    enum rng_algorithm
#define HLO_FIELD_TYPE_fft_type         enum fft_type
#define HLO_FIELD_TYPE_custom_api       enum custom_api
#define HLO_FIELD_TYPE_transpose_a      enum transpose_a

#define F(kind, name, def, ...) HLO_FIELD_TYPE_##kind name;
#define ATTR(record, fields)                                                                       \
    struct hlo_attr_##record {                                                                     \
        fields char unused_;                                                                       \
    };
#include "compiler/ir/attrs.def"
#undef ATTR
#undef F

enum hlo_attr_kind {
#define ATTR(record, fields) ATTR_##record,
#include "compiler/ir/attrs.def"
#undef ATTR
    ATTR_KIND_COUNT
};

void *attr_clone(struct arena *a, enum hlo_attr_kind k,
                 const void *attr); // deep; NULL gives defaults
bool attr_equal(enum hlo_attr_kind k, const void *a, const void *b);
uint64_t attr_hash(enum hlo_attr_kind k, const void *attr);
bool attr_has_field(enum hlo_attr_kind k, struct str name); // is it a field of record k?
void attr_print(struct strbuf *b, enum hlo_attr_kind k,
                const void *attr); // ", name=value" for each field that must be printed

// A string between quotes; quotes, backslashes and control characters escaped as C does.
void hlo_quote(struct strbuf *b, struct str s);
// Helpers for building records in place.
struct i64s i64s_of(struct arena *a, const int64_t *v, int n);
bool i64s_eq(struct i64s a, struct i64s b);
bool i64s_has(struct i64s a, int64_t x);
