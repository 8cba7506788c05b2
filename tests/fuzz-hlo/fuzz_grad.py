#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""N random modules (hlo_gen.py) in double precision: hlo-opt --check-gradient compares their
derivatives with central differences. What differs is written to build/fuzz-grad.
Usage: fuzz_grad.py --opt build/release/hlo-opt [--n 1000] [--seed 1|clock] [--first 0]"""
import argparse
import collections
import concurrent.futures
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "ops")]
import numpy as np

import hlo_gen
import oracle

WIDE = {np.dtype(np.float32): np.float64, np.dtype(np.float16): np.float64,
        np.dtype(np.complex64): np.complex128}


def doubled(case):
    """The module and its inputs as a case, f16, bf16 and f32 as f64."""
    text = re.sub(r"\b(f32|f16|bf16)\[", "f64[", case["text"])
    text = re.sub(r"\bc64\[", "c128[", text)
    ins = []
    for v, _ in case["inputs"]:
        v = np.asarray(v)
        wide = WIDE.get(v.dtype, np.float64 if oracle.NAMES[v.dtype] == "bf16" else v.dtype)
        ins.append("// IN: %s\n" % oracle.literal_text(v.astype(wide)))
    return text.rstrip("\n") + "\n" + "".join(ins)


def check(args, index):
    case = hlo_gen.generate(args.seed, index, None)
    # roundings to fewer bits let the derivative through, which differences do not
    if re.search(r"\breduce-precision\b|\bf8e|\bf4e|stochastic-convert", case["text"]):
        return "rounded", case, ""
    text = doubled(case)
    try:
        p = subprocess.run([args.opt, "--check-gradient", "-"], input=text.encode(),
                           capture_output=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "too long", case, text
    out = p.stdout.decode() + p.stderr.decode()
    if p.returncode == 1:
        # a root of a constant zero: its slope is infinite, and infinity times the tangent 0 is NaN
        # (jax.jvp gives it too), while nothing changes
        steep = (re.search(r"\b(cbrt|sqrt)\(", text)
                 and re.search(r"derivative [-+.e0-9]+, forward -?nan, differences [-+.e0-9]+$",
                               out.strip().splitlines()[0]))
        return "steep" if steep else "differs", text, out
    if p.returncode == 3:
        return "not read", text, out
    if p.returncode:
        return "crashed", text, out
    last = out.strip().splitlines()[-1]
    for what, word in (("equal", "equal"), ("refused", "refused"), ("no smooth point", "without a"),
                       ("no numbers", "without numbers")):
        if int(re.search(r"(\d+) " + word, last)[1]):
            return what, text, out
    return "no numbers", text, out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--opt", default="build/release/hlo-opt")
    p.add_argument("--n", type=int, default=1000)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--seed", default="1")
    p.add_argument("--out", default="build/fuzz-grad")
    args = p.parse_args()
    args.seed = int(time.time()) if args.seed == "clock" else int(args.seed)
    counts, why = collections.Counter(), collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        jobs = pool.map(lambda k: (k, check(args, k)), range(args.first, args.first + args.n))
        for k, (what, text, out) in jobs:
            counts[what] += 1
            if what == "refused":
                why[re.sub(r"%?\b[a-z_]+\.?\d+\b", "_", re.search("refused: (.*)", out)[1])] += 1
            if what == "not read":
                why[re.sub(r"[0-9]+", "0", out.strip().splitlines()[-1])[-100:]] += 1
            if what in ("differs", "crashed"):
                os.makedirs(args.out, exist_ok=True)
                path = "%s/%d-%d.hlo" % (args.out, args.seed, k)
                with open(path, "w") as f:
                    f.write(text)
                print("%s: %s" % (path, out.strip().splitlines()[0]), flush=True)
    for reason, n in why.most_common(20):
        print("%5d %s" % (n, reason))
    print("seed %d: %s" % (args.seed, ", ".join("%d %s" % (n, w) for w, n in counts.most_common())))
    bad = counts["differs"] + counts["crashed"]
    enough = counts["equal"] * 5 >= args.n
    print("%s fuzz-grad seed %d" % ("PASS" if enough and not bad else "FAIL", args.seed))
    return bad > 0 or not enough


if __name__ == "__main__":
    sys.exit(main())
