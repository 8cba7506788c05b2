// SPDX-License-Identifier: Apache-2.0
// cpu_windows: what cpu_windows.c and its loops for each instruction set share.
#pragma once
#include "devices/cpu/cpu.h"

extern const struct cpu_impl cpu_impl_windows;
bool cpu_windows_accepts(const struct hlo_instr *i);

enum { WINDOWS_DIMS = 3, WINDOWS_LINES = 512, WINDOWS_SLACK = 16, WINDOWS_LONG = 7 };
enum windows_kind { WINDOWS_MAX, WINDOWS_MIN, WINDOWS_ADD };
// In the order of memory: `outer` images of three dimensions (the first ones may be of one place).
struct windows {
    enum windows_kind kind;
    int64_t outer;
    int64_t in[WINDOWS_DIMS], out[WINDOWS_DIMS];
    int64_t size[WINDOWS_DIMS], stride[WINDOWS_DIMS], step[WINDOWS_DIMS], low[WINDOWS_DIMS];
    int64_t band, bands; // lines of results of a unit, units of a plane
    int64_t part, parts; // results of a line that are a unit's, units of a line
    int64_t block;       // results of a line that are made at a time
    int64_t lines;       // that are made at a time, in scratch of so many f32 each
    int64_t places;
    int64_t half; // of stride 2: where in these the odd places of a line begin
    bool close;   // two or three places along a line, next to each other: no scratch
    int64_t grain;
};
// Some results: of a plane of the first dimension, of lines [from, to), [begin, end) of each.
struct windows_unit {
    const float *image; // in
    float *out;         // of the whole plane
    int64_t plane, from, to, begin, end;
    float first;    // what each result begins with, and what lies around the image
    float *scratch; // [lines][places]
};
struct windows_isa {
    void (*lines)(const struct windows *w, const struct windows_unit *u);
    bool (*nan)(const float *x, int64_t n); // is one of them NaN?
};
extern const struct windows_isa windows_plain_isa, windows_avx2_isa, windows_avx512_isa;
