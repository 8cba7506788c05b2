#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fills the OUT lines of case files with what XLA:CPU computes. Usage: make_expected.py [--check]
FILE... Cases that say `// ORACLE: hand` keep theirs (XLA:CPU cannot run them; a comment in the case
says where the values come from). --check rewrites nothing and fails when a value differs."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle


def fill(xla, case):
    """The case with OUT lines; raises ValueError with the reason when XLA cannot run it."""
    marks = oracle.flags(case)
    if ("ORACLE", "hand") in marks or any(k == "REFUSED" for k, _ in marks) or not case.strip():
        return case
    shapes = oracle.parameters(case)
    ins = [v for k, v in marks if k == "IN"]
    if len(ins) != len(shapes):
        raise ValueError(f"{len(ins)} IN lines for {len(shapes)} parameters")
    got = xla.run(case, [oracle.parse_literal(v, *s) for v, s in zip(ins, shapes)])
    if isinstance(got, str):
        raise ValueError(got)
    body = re.sub(r"^// OUT:.*\n", "", case, flags=re.M).rstrip("\n") + "\n"
    return body + "".join(f"// OUT: {oracle.literal_text(o)}\n" for o in got)


def main(argv):
    check = "--check" in argv
    xla, bad = oracle.Xla(), 0
    for path in [a for a in argv if not a.startswith("--")]:
        text = open(path).read()
        cases = re.split(r"^// ----\n", text, flags=re.M)
        for k, case in enumerate(cases):
            try:
                cases[k] = fill(xla, case)
            except ValueError as e:
                bad += 1
                print(f"{path}: case {k}: {e}")
        new = "// ----\n".join(cases)
        if check and new != text:
            bad += 1
            print(f"{path}: expected values differ from XLA's")
        elif new != text:
            open(path, "w").write(new)
    xla.close()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
