#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of docs/targets.md from the lists that the tests hold each target to.

    targets_table.py docs/targets.md           writes the table into it
    targets_table.py --check docs/targets.md   is it current?"""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LISTS = (("opencl", "tests/conform/opencl/fallback.txt", "evaluator"),
         ("gl", "tests/conform/gl/fallback.txt", "evaluator"),
         ("web", "tests/web/refused.txt", "refused"),
         ("pjrt", "tests/conform/pjrt/not_here.txt", "refused"))
BEGIN, END = "<!-- made by tests/meta/targets_table.py -->\n", "<!-- end -->\n"


def table():
    names, words = {}, []
    for kind, path, _ in LISTS:
        with open(os.path.join(ROOT, path)) as f:
            names[kind] = {line.split()[0] for line in f if line.strip() and line[0] != "#"}
    for op in sorted(set.union(*names.values())):
        words.append("| %s | %s |" % (op, " | ".join(
            word if op in names[kind] else "" for kind, _, word in LISTS)))
    head = "| operation | %s |\n|---|%s\n" % (" | ".join(k for k, _, _ in LISTS),
                                             "---|" * len(LISTS))
    return head + "\n".join(words) + "\n"


def main():
    check, path = sys.argv[1] == "--check", sys.argv[-1]
    with open(path) as f:
        text = f.read()
    new = re.sub(re.escape(BEGIN) + ".*" + re.escape(END), lambda _: BEGIN + table() + END, text,
                 flags=re.S)
    if check:
        word = "PASS" if new == text else "FAIL"
        print(word + " docs/targets.md has what the tests' lists have")
        return new != text
    with open(path, "w") as f:
        f.write(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
