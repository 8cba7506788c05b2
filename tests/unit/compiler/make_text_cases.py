# SPDX-License-Identifier: Apache-2.0
"""Prints string_cases.def from Python's Unicode data: python3 make_text_cases.py >
compiler/ops/string/string_cases.def"""
import unicodedata


def rows(change):
    """Runs (first, last, step, by) of code points beyond ASCII that another single one stands for
    in the other case."""
    found = []
    for c in range(0x80, 0x110000):
        to = "" if 0xd800 <= c < 0xe000 else change(chr(c))
        if len(to) != 1 or ord(to) == c:
            continue
        by = ord(to) - c
        if found:
            first, last, step, before = found[-1]
            if before == by and (c - last == step or (step == 0 and c - last in (1, 2))):
                found[-1] = (first, c, c - last, by)
                continue
        found.append((c, c, 0, by))
    return [(a, b, step or 1, by) for a, b, step, by in found]


print("/* Letters' cases beyond ASCII by Unicode %s, where one code point becomes one: "
      "code points\n * first to last in steps of `step` move by `by`. In order. Made by\n"
      " * tests/unit/compiler/make_text_cases.py; do not edit." % unicodedata.unidata_version)
print(" *    first   last    step by */")
for name, change in (("LOWER", str.lower), ("UPPER", str.upper)):
    for a, b, step, by in rows(change):
        print("%s(0x%04x, 0x%04x, %d, %d)" % (name, a, b, step, by))
