#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/ops.md from the tables. ops_table.py --opt build/release/hlo-opt > docs/ops.md
--check FILE: is it current? Compares every column but the last with the tables, and the ONNX
operators named with onnx_ops.def.

The ONNX column is what lowering really makes: every model of onnx's backend cases goes through
hlo-opt, whose text names the operator that an instruction comes from. Without the onnx package the
column of the existing file is kept."""
import argparse
import collections
import concurrent.futures
import glob
import importlib.util
import os
import re
import subprocess
import sys

from wrap import wrap

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


def read(path):
    with open(os.path.join(ROOT, path)) as f:
        return f.read()


def ops():
    """[(enum, text, infer, eval, lower, gradient, comment of the group)]"""
    rows, group = [], ""
    for line in read("compiler/ir/ops.def").split("\n"):
        m = re.match(r'OP\((\w+), *"([^"]+)", *(-?\d+), *([^,]+), *(\w+), *(\w+), *(\w), *(\w),'
                     r'.* (\w+)\)', line)
        if m:
            rows.append((m.group(1), m.group(2), m.group(6), m.group(7), m.group(8),
                         m.group(9), group))
        elif line.startswith("/* ") and rows or line.startswith("/* elementwise"):
            group = re.sub(r" */?\*/?|:.*", "", line).strip()
    return rows


def library():
    """{enum: what the CPU's library does with it}, as passes/library.c reads calls and cpu_onednn.c
    takes them."""
    text, out = read("compiler/passes/fusion/library.c"), {}
    hero = re.search(r"static bool is_hero\(.*?\n}", text, re.S).group(0)
    for e in re.findall(r"HLO_(\w+)", hero):
        out[e] = "call"
    step = re.search(r"static bool one_user\(.*?\n}", text, re.S).group(0)
    for e in re.findall(r"case HLO_(\w+)", step):
        out[e] = "in a call"
    if "lib_pool" in text:
        out["REDUCE_WINDOW"] = "max pooling"
    if re.search(r"op == HLO_COPY",
                 "".join(read(os.path.relpath(f, ROOT))
                         for f in glob.glob(os.path.join(ROOT, "devices/cpu/onednn/*.c")))):
        out["COPY"] = "layouts"
    return out


def onnx_names():
    return re.findall(r'ONNX_OP\("(\w+)"', read("compiler/frontend/onnx/onnx_ops.def"))


def reach(opt):
    """{hlo text: set of ONNX operators}"""
    found = collections.defaultdict(set)
    data = os.path.join(importlib.util.find_spec("onnx").submodule_search_locations[0],
                        "backend/test/data")
    models = sorted(glob.glob(os.path.join(data, "*/*/model.onnx")))

    def one(path):
        p = subprocess.run([opt, path], capture_output=True)
        return p.stdout.decode(errors="replace") if p.returncode == 0 else ""

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for text in pool.map(one, models):
            for op, source in re.findall(
                r" = \(?[a-z0-9]+\[.*? ([a-z][a-z0-9-]*)\(.*op_type=\"(\w+)\"", text):
                found[op].add(source)
    return found


# Operators that ONNX or ONNX Runtime's CPU provider has and onnx_ops.def lacks, by reason. A row
# that the table gets leaves this list by itself.
REFUSED = (("ImageDecoder", "it decodes image files: send pixels"),
           ("ai.onnx.ml.CastMap", "its input is a map: send tensors"),
           ("com.microsoft.BeamSearch com.microsoft.GreedySearch com.microsoft.Sampling "
            "com.microsoft.WhisperBeamSearch",
            "a whole generation in one node, with a decoder inside: run the decoder step by step "
            "over resident buffers (docs/buffers.md)"),
           ("com.microsoft.Tokenizer com.microsoft.NGramHashMapping "
            "com.microsoft.VarlenNGramHashMapping", "they look inside texts or hash them"),
           ("com.microsoft.SparseAttention com.microsoft.EngramGate "
            "com.microsoft.HyperConnectionPreMix com.microsoft.HyperConnectionPostMix",
            "parts of recent language models that no model seen here has; they can be written with "
            "operators that run"),
           ("com.microsoft.MatMulFpQ4 com.microsoft.SparseToDenseMatMul",
            "weights in a packing that is not described, or sparse"),
           ("com.microsoft.BifurcationDetector com.microsoft.DynamicTimeWarping "
            "com.microsoft.NGramRepeatBlock",
            "steps between the runs of a decoder, on lists of tokens: do them in the client"),
           ("Crop DynamicSlice", "experiments that ONNX dropped in 1.5: Slice does the same"),
           ("com.microsoft.SampleOp", "an example in ONNX Runtime's sources: use Identity"),
           ("com.microsoft.AttnLSTM",
            "no model seen here has it; it can be written with operators that run"),
           ("com.microsoft.nchwc.Conv com.microsoft.nchwc.MaxPool com.microsoft.nchwc.AveragePool "
            "com.microsoft.nchwc.GlobalMaxPool com.microsoft.nchwc.GlobalAveragePool "
            "com.microsoft.nchwc.Upsample " "com.microsoft.nchwc.ReorderInput "
                                            "com.microsoft.nchwc.ReorderOutput",
            "ONNX Runtime's own layouts for the machine it ran on: save the optimised model at its "
            "level \"extended\", not \"all\""),
           ("MemcpyFromHost MemcpyToHost", "copies between devices inside ONNX Runtime"),)


# Graphs of operators that run, which are refused all the same: what, why, instead.
GRAPHS = (
    ("A size computed from values inside the body of a `Scan`, or of a `Loop` of more than 1024 "
     "turns; a `Loop` whose body changes shapes and whose condition depends on data for more than "
     "63 turns", "a program whose sizes a run finds is cut between nodes of the main graph and of "
                 "graphs opened for it, at most 63 times (docs/decisions/0022)",
     "a `Loop` that keeps its shapes: a buffer of the largest size"),
    ("`Loop` of no turns whose stacked results have rows that neither the body nor a declaration "
     "tells the shape of", "the shape of a row that is never made", "declare the body's results"),
    ("`com.microsoft.nchwc` (a model that ONNX Runtime saved at its level \"all\") with weights "
     "that do not fit the blocks of this machine, or for another target than a CPU",
     "weights lie in blocks of 16 channels (AVX-512) or of 8, as the processor that wrote them has "
     "them, and the model does not say which. **Where they fit by chance, results are wrong "
     "without a sign**, here as in ONNX Runtime: use such a file only on processors of the kind "
     "that wrote it, and in a cluster only where all are of one kind",
     "save the model at ONNX Runtime's level \"extended\" (`ORT_ENABLE_EXTENDED`), which is right "
     "everywhere; hlod lays out channels itself"),)


def graphs():
    return ["", "## ONNX graphs that are refused", "",
            "The error names the node and the dimension or the branch.", "",
            "| graph | why | instead |",
            "|---|---|---|"] + ["| %s | %s | %s |" % row for row in GRAPHS]


def refused():
    have = set(re.findall(r'ONNX_OP\("([^"]+)"', read("compiler/frontend/onnx/onnx_ops.def")))
    rows = ["| %s | %s |" % (", ".join("`%s`" % n for n in names.split() if n not in have), why)
            for names, why in REFUSED if set(names.split()) - have]
    return ["", "## ONNX operators that are refused", "",
            "Operators of ONNX and of ONNX Runtime's CPU provider without a row in "
            "compiler/frontend/onnx/onnx_ops.def; the error of such a model names the node.", "",
            "| operators | why |", "|---|---|"] + rows


def kept(path):
    """The ONNX column of a file."""
    found = collections.defaultdict(set)
    for line in open(path):
        c = [x.strip() for x in line.split("|")]
        if len(c) > 8 and c[1].startswith("`"):
            found[c[1].strip("`")] = set(c[8].split(", ")) - {"", "–"}
    return found


def table(found):
    lib, out, group = library(), [], None
    rows = ops()
    for enum, text, infer, evals, lowers, grad, g in rows:
        if g != group:
            group = g
            out += ["", f"## {g[:1].upper() + g[1:]}", "",
                    "| op | parse | verify | eval | kir | oneDNN | gradient | ONNX operators that "
                    "reach it |", "|---|---|---|---|---|---|---|---|"]
        e = "argument" if enum == "PARAMETER" else "yes" if evals in "YE" else "refused"
        v = "declared" if infer == "declared" else "yes"
        d = {"NONE": "refused", "zero": "0"}.get(grad, "yes")
        out.append(f"| `{text}` | yes | {v} | {e} | {'yes' if lowers in 'YEW' else '–'} | "
                   f"{lib.get(enum, '–')} | {d} | "
                   f"{', '.join(sorted(found.get(text, ()))) or '–'} |")
    named = set().union(*found.values()) if found else set()
    rest = sorted(set(onnx_names()) - named)
    head = ["# Operations", "",
            "Generated by `make docs` from compiler/ir/ops.def, compiler/passes/fusion/library.c "
            "and compiler/frontend/onnx/onnx_ops.def (tests/meta/ops_table.py).", "",
            f"{len(rows)} opcodes, {sum(r[3] in 'YE' for r in rows)} with an evaluation rule, "
            f"{sum(r[4] in 'YEW' for r in rows)} with a lowering to kernels, "
            f"{sum(r[5] not in ('NONE', 'zero') for r in rows)} with a gradient rule.", "",
            "- verify: `yes` = the result shape is inferred and the declared one compared; "
            "`declared` = operands and attributes are checked, the shape is what the module says.",
            "- eval: the reference evaluator, which is also the last implementation of the CPU "
            "device. `refused` = UNIMPLEMENTED with the reason, before anything runs.",
            "- kir: generated kernels. Control flow runs as steps of the plan and needs none; "
            "set-dimension-size and dynamic-reshape are gone after the pass dynamic-padder.",
            "- oneDNN: `call` = a primitive of its own, `in a call` = fused behind one.",
            "- gradient: `hlo-opt --gradient` and ONNX's Gradient (compiler/gradient). `0` = "
            "constant between steps, or no real or complex numbers; `refused` = UNIMPLEMENTED.",
            "- ONNX: by lowering every model of onnx's backend cases and reading which operator "
            "each instruction comes from."]
    tail = ["", "## ONNX operators that leave no instruction of their own", "",
            "Evaluated while the graph is lowered, in need of input values, or not in the backend "
            "cases: " + (", ".join(rest) or "none") + "."]
    return wrap("\n".join(head + out + tail + refused() + graphs()) + "\n")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--opt", default="build/release/hlo-opt")
    p.add_argument("--check")
    args = p.parse_args()
    path = args.check or os.path.join(ROOT, "docs/ops.md")
    if args.check:
        text = open(path).read()
        named, missing = set(re.findall(r"\w+", text)), []
        if table(kept(path)) != text:
            missing.append("columns made from the tables differ")
        missing += [f"ONNX operator {n} is not named" for n in onnx_names() if n not in named]
        for m in missing[:5]:
            print(f"{path}: {m}: run `make docs`")
        print(f"{'FAIL' if missing else 'PASS'} docs/ops.md is current")
        return 1 if missing else 0
    sys.stdout.write(table(reach(args.opt) if importlib.util.find_spec("onnx") else kept(path)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
