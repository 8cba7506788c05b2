#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Evaluates HLO modules on random inputs with the reference evaluator and with XLA:CPU, and
compares.
Usage: hlo_eval_vs_xla.py [--opt build/release/hlo-opt] [-v] FILE-OR-FOLDER...
Prints one line a module that differs or that we refuse and XLA runs, then a summary. Exit code 1
when a module differs.
Modules that XLA cannot run are counted as skipped."""
import collections
import os
import re
import resource
import subprocess
import sys
import zlib

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "ops"))
import oracle


def random_input(rng, name, dims):
    t = oracle.DTYPES[name]
    if name == "pred":
        return rng.integers(0, 2, dims).astype(bool)
    if name[0] in "su":  # small numbers: they are often indices or loop counts
        return np.asarray(rng.integers(0, 4, dims)).astype(t)
    v = rng.uniform(0.1, 2, dims)
    return np.asarray(v + 1j * rng.uniform(-1, 1, dims) if name[0] == "c" else v).astype(t)


def split_shape(s):
    """The parts of a tuple shape's text, or None for an array."""
    s = re.sub(r"/\*.*?\*/", "", s).strip()
    if not s.startswith("("):
        return None
    parts, depth, start = [], 0, 1
    for k, c in enumerate(s):
        depth += (c in "([{") - (c in ")]}")
        if (c == "," and depth == 1) or (k == len(s) - 1 and s[1:-1].strip()):
            parts.append(s[start:k].strip())
            start = k + 1
    return parts


def flatten_parameters(text):
    """The module with each tuple parameter of the entry computation replaced by parameters for its
    leaves and tuple instructions, because neither side's test interface takes tuples."""
    entry = re.search(r"^\s*ENTRY\b.*?^\s*\}", text, re.S | re.M)
    found = {}
    for m in re.finditer(r"^.*?(\bROOT )?%?([\w.-]+) = (.*?) parameter\((\d+)\).*$", entry.group(0),
                         re.M):
        found[int(m.group(4))] = m
    if not any(split_shape(m.group(3)) is not None for m in found.values()):
        return text
    body, count = entry.group(0), 0

    def emit(name, shape, root=""):
        nonlocal count
        parts = split_shape(shape)
        if parts is None:
            count += 1
            return f"  {root}{name} = {shape} parameter({count - 1})\n"
        lines = "".join(emit(f"{name}.part{k}", p) for k, p in enumerate(parts))
        return (lines + f"  {root}{name} = {shape} "
                        f"tuple({', '.join(f'{name}.part{k}' for k in range(len(parts)))})\n")

    for number in sorted(found):
        m = found[number]
        body = body.replace(m.group(0), emit(m.group(2), m.group(3), m.group(1) or "").rstrip("\n"))
    body = re.sub(r"^(\s*ENTRY %?[\w.-]+) *\(.*?\) -> .*?\{$", r"\1 {", body, count=1, flags=re.M)
    text = text.replace(entry.group(0), body)
    return re.sub(r", *entry_computation_layout=\{\(.*?\)->.*?\}(?=,|$| )", "", text, count=1,
                  flags=re.M)


# Where XLA:CPU's answer is not the definition's: skipped, with the reason.
FREE = [(r"fft_length=\{0\}", "XLA leaves the result of a transform to no points unset"),
        (r" rng\(| rng-get-and-update-state\(", "random numbers are free"),
        (r"bitcast\(.*\{0,1\}|\{0,1\}.*bitcast\(|\{0,1\} parameter",
         "StableHLO drops parameter layouts, bitcast reads them"),
        (r"^HloModule reduce_window_scalar|ENTRY %?R4UnitWindowScalar",
         "initial value is not the identity"),]


def tolerance(outs):
    worst = 1e-5
    for o in outs:
        name = oracle.NAMES.get(o.dtype, "")
        worst = max(worst,
                    {"f16": 5e-3, "bf16": 4e-2}.get(name, 0.25 if name.startswith("f8") else 0))
    return worst


def one(xla, opt, path):
    """(verdict, detail)"""
    text = open(path, errors="replace").read()
    try:
        text = flatten_parameters(text)
        shapes = oracle.parameters(text)
    except (AttributeError, KeyError):
        return "skipped", "no entry computation that this script reads"
    if any(s is None or s[0] not in oracle.DTYPES for s in shapes):
        return "skipped", "token parameter"
    for pattern, why in FREE:
        if re.search(pattern, text, re.M):
            return "skipped", why
    if sum(int(np.prod(d)) for _, d in shapes) > 1 << 20:
        return "skipped", "large inputs"
    rng = np.random.default_rng(zlib.crc32(os.path.basename(path).encode()))
    args = [random_input(rng, *s) for s in shapes]
    want = xla.run(text, args, 15)
    case = re.sub(r"^\s*// (IN|OUT|TOL|RTOL|ORACLE|----).*\n", "", text,
                  flags=re.M).rstrip("\n") + "\n"
    case += "".join(f"// IN: {oracle.literal_text(a)}\n" for a in args)
    if not isinstance(want, str):
        case += (f"// TOL: {tolerance(want)}\n"
                 + "".join(f"// OUT: {oracle.literal_text(o)}\n" for o in want))
    p = subprocess.run(
        [opt, "--eval" if not isinstance(want, str) else "--no-output", "-"], input=case.encode(),
        capture_output=True, timeout=30,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)))
    said = (p.stdout + p.stderr).decode(errors="replace").strip().split("\n")
    detail = next((s for s in said if s.startswith("case at")), said[0])
    if p.returncode < 0:
        return "crashed", f"signal {-p.returncode}"
    if isinstance(want, str):
        return "skipped", "XLA: " + want[:120]
    if p.returncode == 0:
        return "same", ""
    return ("differs" if p.returncode == 1 and "element" in detail else "refused"), detail


def main(argv):
    opt, verbose = "build/release/hlo-opt", "-v" in argv
    if "--opt" in argv:
        k = argv.index("--opt")
        opt = argv[k + 1]
        del argv[k:k + 2]
    paths = []
    for a in argv:
        if os.path.isdir(a):
            paths += sorted(os.path.join(a, f) for f in os.listdir(a) if f.endswith(".hlo"))
        elif not a.startswith("-"):
            paths.append(a)
    xla, counts = oracle.Xla(), collections.Counter()
    for path in paths:
        try:
            verdict, detail = one(xla, opt, path)
        except subprocess.TimeoutExpired:
            verdict, detail = "refused", "takes too long"
        counts[verdict] += 1
        if verdict not in ("same", "skipped") or verbose:
            print(f"{verdict}: {path}: {detail}", flush=True)
    xla.close()
    print(", ".join(f"{v} {k}" for k, v in sorted(counts.items())))
    return 1 if counts["differs"] + counts["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
