#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes float_tables.h: what NumPy and ml_dtypes say of the small float types. Decoding: the value
of every code of the types of at most 8 bits, and one hash over all 65,536 codes of f16 and bf16.
Encoding: one hash over many values, rounded once. A NaN counts as one value whatever its bits.
Usage: make_float_tables.py > tests/unit/compiler/float_tables.h, then clang-format-19 -i."""
import ml_dtypes
import numpy as np

# of at most 8 bits
F8 = ["f8e3m4", "f8e4m3", "f8e4m3fn", "f8e4m3b11fnuz", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz",
      "f4e2m1fn", "f8e8m0fnu"]
TYPES = {n: getattr(ml_dtypes, "float%s_%s" % (n[1], n[2:]))
         for n in F8} | {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def fnv(words):
    h = 0xCBF29CE484222325
    for w in words.tolist():
        h = ((h ^ w) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def decode(name):
    """f32 bits of every code, NaN as 0x7fc00000."""
    t = TYPES[name]
    size = np.dtype(t).itemsize
    codes = np.arange(1 << 8 * size, dtype=np.uint8 if size == 1 else np.uint16)
    v = (codes & 15 if name[1] == "4" else codes).view(t).astype(np.float32)
    bits = v.view(np.uint32).copy()
    bits[np.isnan(v)] = 0x7FC00000
    return bits


def encode(name, values):
    """Codes of values, NaN as all ones."""
    with np.errstate(all="ignore"):
        c = values.astype(TYPES[name])
    codes = c.view(np.uint8 if c.itemsize == 1 else np.uint16).astype(np.uint32)
    codes[np.isnan(c.astype(np.float32))] = 0xFFFF
    if name[1] == "4":  # which has none: -0 here, of the sign that is not the NaN's there
        codes[np.isnan(values.astype(np.float32))] = 8
    # between 2^-127 and 2^-126 ml_dtypes rounds up; here as elsewhere to the nearest
    if name == "f8e8m0fnu":
        v = values.astype(np.float64)
        codes[(v > 0) & (v < 2.0 ** -126)] = (
            v[(v > 0) & (v < 2.0 ** -126)] >= 1.5 * 2.0 ** -127).astype(np.uint32)
    return codes


def main():
    f16 = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    f32 = (np.arange(1 << 20, dtype=np.uint64) * 4093 % (1 << 32)).astype(np.uint32).view(
        np.float32)
    print("// Made by make_float_tables.py from NumPy %s and ml_dtypes %s. Do not edit.\n#pragma "
          "once\n#include <stdint.h>" % (np.__version__, ml_dtypes.__version__))
    print("// f32 bits of the 256 codes; NaN is 0x7fc00000.\nstatic const uint32_t f8_bits[9][256] "
          "= {")
    for n in F8:
        b = decode(n)
        print("    { // " + n)
        for k in range(0, 256, 6):
            print("        " + ", ".join("0x%08x" % x for x in b[k:k + 6]) + ",")
        print("    },")
    print("};\n// Hashes: decoding all codes of f16 and bf16; encoding the 65,536 f16 values; "
          "encoding 2^20 f32\n// values.")
    print("static const uint64_t decode_hash[2] = {%s};"
          % ", ".join("0x%xu" % fnv(decode(n)) for n in ("f16", "bf16")))
    for what, values in (("f16", f16), ("f32", f32)):
        print("static const uint64_t encode_%s_hash[11] = {" % what)
        for n in F8 + ["f16", "bf16"]:
            print("    0x%xu, // %s" % (fnv(encode(n, values)), n))
        print("};")


main()
