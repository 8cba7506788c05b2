#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Differential fuzzing: N random modules (hlo_gen.py) through XLA:CPU and through hlo-diff (every
implementation, every pass off in turn).
Usage: fuzz_hlo.py --diff build/release/tests/hlo-diff [--n 1000] [--seed 1|clock] [--first 0]
[--out build/fuzz-hlo] [--no-xla] [--show INDEX] [--theme NAME] Prints each mismatch with the
reduced module's file, then a summary; exit code 1 when something differs. XLA runs in a child
process that may die; hlo-diff is started again after a crash, behind the module that caused it."""
import argparse
import collections
import importlib.util
import os
import queue
import resource
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "ops")]
import numpy as np

import hlo_gen
import oracle
from hlo_reduce import reduce_case

CHUNK = 50


def raw(a):
    a = np.ascontiguousarray(a)
    if oracle.NAMES[a.dtype] in ("s4", "u4"):  # one byte each, sign-extended
        a = a.astype(np.int8 if oracle.NAMES[a.dtype] == "s4" else np.uint8)
    return a.tobytes()


def write_batch(path, cases):
    with open(path, "wb") as f:
        for c in cases:
            text, outs = c["text"].encode(), c.get("want")
            f.write(f"CASE {c['name']} {int(outs is not None)} {len(text)} {len(c['inputs'])} "
                    f"{len(c['atol'])}\n".encode() + text)
            for v, _ in c["inputs"]:
                b = raw(v)
                f.write(struct.pack("<Q", len(b)) + b)
            for k, tol in enumerate(c["atol"]):
                b = raw(outs[k]) if outs is not None else b""
                f.write(struct.pack("<Qd", len(b), tol) + b)


class Diff:
    """Runs hlo-diff over batches. run() gives {name: [complaint...]} of those that complain, and
    counts."""

    def __init__(self, program, jobs=2):
        self.program, self.env = program, dict(os.environ, OMP_NUM_THREADS=str(jobs))
        shadow = "address" in program or "thread" in program  # a sanitizer reserves address space
        self.bound = (None if shadow
                      else lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30)))

    def run(self, cases, totals=None, only_eval=False):
        found, skip = collections.defaultdict(list), 0
        with tempfile.NamedTemporaryFile(suffix=".batch") as f:
            write_batch(f.name, cases)
            while skip < len(cases):
                p = subprocess.run([self.program, f.name,
                                    str(skip)] + (["--eval"] if only_eval else []),
                                   capture_output=True, env=self.env, preexec_fn=self.bound)
                running = None
                for line in p.stdout.decode(errors="replace").split("\n"):
                    word, _, rest = line.partition(" ")
                    if word == "BEGIN":
                        running = rest
                    elif word == "DONE":
                        running = None
                        skip += 1
                        if totals is not None:
                            for part in rest.split()[1:]:
                                k, _, v = part.partition("=")
                                totals[k] += int(v)
                    elif word in ("DIFFERS", "FAILED", "REFUSED"):
                        name, _, what = rest.partition(" ")
                        if word == "REFUSED" and totals is not None:
                            totals["refused"] += 1
                            totals["REFUSED " + what.partition(": ")[2][:90]] += 1
                        if word != "REFUSED":
                            found[name].append(f"{word} {what}")
                if running is None and p.returncode == 0:
                    break
                if running is None:
                    raise RuntimeError(f"hlo-diff: exit code {p.returncode}: "
                                       f"{p.stderr.decode(errors='replace')[-300:]}")
                found[running].append(f"CRASHED signal {-p.returncode}"
                                      + (" (takes too long)" if p.returncode == -14 else "") + ": "
                                      + p.stderr.decode(errors="replace").strip()[-200:])
                skip += 1
        return found


def ask_xla(xla, case):
    """Fills case["want"]; the reason when XLA does not run it."""
    got = xla.run(case["text"], [v for v, _ in case["inputs"]], 60)
    if isinstance(got, str):
        return got
    if len(got) != len(case["atol"]):
        return "XLA gives another number of results"
    # XLA may compute a value twice, in two fusions by two orders, and then find it unlike itself.
    case["want"] = [g if t is None else np.full_like(g, t) for g, t in zip(got, case["truths"])]
    return None


def chunks(args, xla, totals, out):
    """Producer: chunks of cases with XLA's values; what goes wrong here is handed over too."""
    try:
        make_chunks(args, xla, totals, out)
    except Exception as e:
        out.put(e)


def make_chunks(args, xla, totals, out):
    done = 0
    while done < args.n:
        cases = []
        for k in range(args.first + done, args.first + min(done + CHUNK, args.n)):
            case = hlo_gen.generate(args.seed, k, args.theme)
            why = "not asked" if args.no_xla else ask_xla(xla, case)
            totals["XLA: " + why[:70] if why else "with XLA"] += 1
            cases.append(case)
        out.put(cases)
        done += len(cases)
    out.put(None)


def report(args, xla, diff, case, why):
    path = os.path.join(args.out, case["name"] + ".hlo")
    print(f"{case['name']}: {why[0]}" + (f" (and {len(why) - 1} more)" if len(why) > 1 else ""),
          flush=True)
    with open(os.path.join(args.out, case["name"] + ".full.hlo"), "w") as f:
        f.write(case["text"])
    text, what = reduce_case(xla, diff, case, why)
    with open(path, "w") as f:
        f.write("".join(f"// {w}\n" for w in what) + text)
    print(f"  reduced to {path}: {what[0]}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--diff", default="build/release/tests/hlo-diff")
    p.add_argument("--n", type=int, default=1000)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--seed", default="1")
    p.add_argument("--out", default="build/fuzz-hlo")
    p.add_argument("--no-xla", action="store_true")
    p.add_argument("--show", type=int)
    p.add_argument("--device", default="", help="this device beside the evaluator, instead of all "
                   "that the CPU has")
    p.add_argument("--theme", help="one of hlo_families.THEMES for all modules")
    p.add_argument("--reduce", type=int, default=10, help="how many to reduce")
    args = p.parse_args()
    os.environ["HLOD_DIFF_DEVICE"] = args.device
    args.seed = int(time.time()) if args.seed == "clock" else int(args.seed)
    if args.show is not None:
        print(hlo_gen.generate(args.seed, args.show, args.theme)["text"])
        return 0
    if not args.no_xla and not importlib.util.find_spec("jax"):
        print("without XLA:CPU: jax is not installed (sh deploy/setup.sh bench); the evaluator is "
              "the measure")
        args.no_xla = True
    os.makedirs(args.out, exist_ok=True)
    xla, diff = oracle.Xla(), Diff(args.diff)
    totals, ready, start, bad = collections.Counter(), queue.Queue(2), time.time(), []
    thread = threading.Thread(target=chunks, args=(args, xla, totals, ready), daemon=True)
    thread.start()
    done = 0
    while (cases := ready.get()) is not None:
        if isinstance(cases, Exception):
            raise cases
        found = diff.run(cases, totals)
        done += len(cases)
        if sys.stderr.isatty():
            print(f"{done} of {args.n}", end="\r", file=sys.stderr, flush=True)
        for c in cases:
            if found.get(c["name"]):
                bad.append((c, found[c["name"]]))
                print(f"{c['name']}: {found[c['name']][0]}", flush=True)
    thread.join()
    for case, why in bad[:args.reduce]:
        report(args, xla, diff, case, why)
    xla.close()
    print(f"seed {args.seed}: {args.n} modules, {totals['with XLA']} with XLA:CPU's values, "
          f"{totals['ways']} runs, steps: {totals['kernel']} kernels, "
          f"{totals['reference']} evaluator; {len(bad)} modules differ; {time.time() - start:.0f} "
          "s")
    for k, v in totals.most_common():
        if k.startswith(("XLA: ", "REFUSED ")):
            print(f"  {v:5} {k}")
    device = f" {args.device}" if args.device else ""
    print(f"{'PASS' if not bad else 'FAIL'} fuzz-hlo{device} seed {args.seed}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
