// SPDX-License-Identifier: Apache-2.0
// amx_emulator: runs the instructions of AMX that devices/cpu/amx uses on CPUs that do not have
// them, so that the very code that a CPU with AMX runs is tested on any. They raise SIGILL, whose
// handler decodes the one at hand, does what the manual says (Intel 64 and IA-32 Architectures
// Software Developer's Manual, chapter "Intel AMX"), and steps over it. A library for LD_PRELOAD;
// a tile's registers are each thread's. What the manual faults (tiles that are not configured,
// sizes past a tile's, row bytes that do not fit) ends the process, as it would there.
//     cc -D_GNU_SOURCE -shared -fPIC -O1 -o amx_emulator.so amx_emulator.c
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { TILES = 8, ROWS = 16, ROW_BYTES = 64 };
struct config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
static _Thread_local struct config config;
static _Thread_local uint8_t tile[TILES][ROWS][ROW_BYTES];

// What is decoded: VEX with three bytes, map 0F38.
struct instruction {
    int prefix; // pp: 0 none, 1 66, 2 F3, 3 F2
    int opcode;
    int mod, reg, rm, vvvv;
    uint64_t base;  // address, or where rows begin
    int64_t stride; // index register: bytes from row to row
    int length;
};

static void refuse(const char *why) {
    fprintf(stderr, "amx_emulator: %s\n", why);
    abort();
}
static uint64_t value(const ucontext_t *u, int number) {
    static const int names[] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                REG_R12, REG_R13, REG_R14, REG_R15};
    return (uint64_t)u->uc_mcontext.gregs[names[number]];
}
static int decode(const ucontext_t *u, const uint8_t *p, struct instruction *i) {
    const uint8_t *begin = p;
    if (p[0] != 0xc4 || (p[1] & 0x1f) != 2) return 0;
    int x = !(p[1] & 0x40) << 3, b = !(p[1] & 0x20) << 3;
    i->vvvv = ~(p[2] >> 3) & 15;
    i->prefix = p[2] & 3;
    i->opcode = p[3];
    i->mod = p[4] >> 6, i->reg = p[4] >> 3 & 7, i->rm = p[4] & 7;
    p += 5;
    if (i->mod != 3) {
        int base = i->rm | b;
        i->stride = 0;
        uint8_t sib = 0;
        if (i->rm == 4) {
            sib = *p++;
            int index = (sib >> 3 & 7) | x;
            base = (sib & 7) | b;
            if (index != 4) i->stride = (int64_t)value(u, index) << (sib >> 6);
        }
        if (i->mod == 0 && (base & 7) == 5) refuse("no base register");
        i->base = value(u, base);
        if (i->mod == 1) i->base += (uint64_t)(int64_t)(int8_t)*p++;
        if (i->mod == 2) {
            int32_t far;
            memcpy(&far, p, sizeof far);
            i->base += (uint64_t)(int64_t)far;
            p += sizeof far;
        }
    }
    i->length = (int)(p - begin);
    return 1;
}

static void load_config(const struct instruction *i) {
    memcpy(&config, (const void *)(uintptr_t)i->base, sizeof config);
    for (int t = 0; t < TILES; t++)
        if (config.palette != 1 || config.row_bytes[t] > ROW_BYTES || config.rows[t] > ROWS ||
            (config.rows[t] == 0) != (config.row_bytes[t] == 0))
            refuse("a configuration that is none");
    for (int t = TILES; t < 16; t++)
        if (config.row_bytes[t] || config.rows[t]) refuse("more tiles than there are");
    for (int k = 0; k < 14; k++)
        if (config.reserved[k]) refuse("reserved bytes of the configuration are not 0");
    memset(tile, 0, sizeof tile);
}
static void known(int t) {
    if (config.palette != 1 || !config.rows[t]) refuse("a tile that is not configured");
}
static void move(const struct instruction *i, int store) {
    int t = i->reg;
    known(t);
    for (int r = 0; r < config.rows[t]; r++) {
        uint8_t *at = (uint8_t *)(uintptr_t)(i->base + (uint64_t)(r * i->stride));
        if (store)
            memcpy(at, tile[t][r], config.row_bytes[t]);
        else {
            memset(tile[t][r], 0, ROW_BYTES);
            memcpy(tile[t][r], at, config.row_bytes[t]);
        }
    }
    for (int r = config.rows[t]; !store && r < ROWS; r++)
        memset(tile[t][r], 0, ROW_BYTES);
}
// Subnormal numbers are zero, in and out.
static float number(uint32_t bits) {
    float f;
    if (!(bits & 0x7f800000)) bits &= 0x80000000;
    memcpy(&f, &bits, sizeof f);
    return f;
}
static float flushed(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return number(bits);
}
static void multiply(int to, int left, int right) {
    known(to), known(left), known(right);
    if (to == left || to == right || left == right) refuse("one tile twice");
    if (config.rows[to] != config.rows[left] || config.row_bytes[to] != config.row_bytes[right] ||
        config.rows[right] * 4 != config.row_bytes[left])
        refuse("tiles that do not fit");
    for (int m = 0; m < config.rows[to]; m++)
        for (int n = 0; n < config.row_bytes[to] / 4; n++) {
            float sum, pair[2] = {0}; // of the pairs' first terms, and of their second ones
            for (int k = 0; k < config.rows[right]; k++)
                for (int e = 0; e < 2; e++) {
                    uint16_t x, y;
                    memcpy(&x, &tile[left][m][4 * k + 2 * e], sizeof x);
                    memcpy(&y, &tile[right][k][4 * n + 2 * e], sizeof y);
                    pair[e] = flushed(__builtin_fmaf(number((uint32_t)x << 16),
                                                     number((uint32_t)y << 16), pair[e]));
                }
            memcpy(&sum, &tile[to][m][4 * n], sizeof sum);
            sum = flushed(flushed(sum) + flushed(pair[0] + pair[1]));
            memcpy(&tile[to][m][4 * n], &sum, sizeof sum);
        }
    for (int m = config.rows[to]; m < ROWS; m++)
        memset(tile[to][m], 0, ROW_BYTES);
}

static void run(int signal_number, siginfo_t *info, void *context) {
    (void)signal_number, (void)info;
    ucontext_t *u = context;
    struct instruction i;
    enum { NONE, P66, F3, F2 };
    if (!decode(u, (const uint8_t *)(uintptr_t)u->uc_mcontext.gregs[REG_RIP], &i))
        refuse("an instruction that is none of AMX's");
    if (i.opcode == 0x49 && i.mod != 3 && i.prefix == NONE)
        load_config(&i);
    else if (i.opcode == 0x49 && i.mod == 3 && i.prefix == NONE && !i.reg && !i.rm)
        memset(&config, 0, sizeof config), memset(tile, 0, sizeof tile);
    else if (i.opcode == 0x49 && i.mod == 3 && i.prefix == F2 && !i.rm)
        known(i.reg), memset(tile[i.reg], 0, sizeof tile[i.reg]);
    else if (i.opcode == 0x4b && i.mod != 3 && i.rm == 4 && i.prefix == F2)
        move(&i, 0);
    else if (i.opcode == 0x4b && i.mod != 3 && i.rm == 4 && i.prefix == F3)
        move(&i, 1);
    else if (i.opcode == 0x5c && i.mod == 3 && i.prefix == F3)
        multiply(i.reg, i.rm, i.vvvv);
    else
        refuse("an instruction of AMX that it does not know");
    u->uc_mcontext.gregs[REG_RIP] += i.length;
}
__attribute__((constructor)) static void begin(void) {
    struct sigaction a = {.sa_flags = SA_SIGINFO | SA_NODEFER};
    a.sa_sigaction = run;
    if (sigaction(SIGILL, &a, NULL)) refuse("no handler");
}
