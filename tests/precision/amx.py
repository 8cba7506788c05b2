#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Products by AMX's tiles (devices/cpu/amx) on any CPU with AVX-512: the instructions are run by
amx_emulator.c, so that what is tested is the code that a CPU with AMX runs. Random products of bf16
with bound weights, as HLO, with steps behind them, against sums in f64 of the same bf16 values.

    amx.py BUILD [--n N] [--seed S]
"""
import argparse
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from harness import Results, cpu_has  # noqa: E402

BF16 = ml_dtypes.bfloat16
ROWS = [1, 2, 3, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100]
TERMS = [2, 4, 30, 32, 34, 62, 64, 66, 96, 100, 258]
FAR = [2048, 4096]  # rows that share a set of the first cache: copied first
COLUMNS = [8, 15, 16, 17, 31, 32, 33, 47, 64, 65, 96, 130]
KINDS = {"Relu": lambda v: np.maximum(v, 0), "Tanh": np.tanh,
         "Sigmoid": lambda v: 1 / (1 + np.exp(-v)), "Sum": None, "Clip": None, "None": None}


def values(rng, *shape):
    """That bf16 holds."""
    return rng.standard_normal(shape).astype(BF16).astype(np.float32)


def near(got, want, terms, over):
    """Sums in f32 of products that f32 holds: each addition rounds once. over: what a rounding to
    bf16 between two products, which may go either way, brings."""
    bound = (terms + 4) * 2.0 ** -24 * np.maximum(np.abs(want), np.sqrt(terms)) * 8 + 1e-6 + over
    return np.array_equal(np.isfinite(got), np.isfinite(want)) and np.all(
        (np.abs(got - want) <= bound) | ~np.isfinite(want))


def model(rng, number):
    """A product, a bias, a sum or an activation; one in four reads the result of another product,
    which the compiler keeps in bf16 between the two. The wanted result, from values in f64."""
    k = int(rng.choice(FAR if number % 9 == 8 else TERMS))
    m, n = int(rng.choice(ROWS)), int(rng.choice(COLUMNS))
    kind, turned, twice = list(KINDS)[number % 6], int(rng.integers(2)), number % 4 == 3
    inputs = {"x": values(rng, m, k)}
    if number % 4 == 1:  # what lies beside the last term meets nothing of it
        inputs["x"][rng.integers(m), rng.integers(k)] = np.nan
    w, b = values(rng, k, n), rng.standard_normal(n).astype(np.float32)
    weights = {"w": w.T.copy() if turned else w, "b": b}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["v"], transB=turned)]
    want = inputs["x"].astype(np.float64) @ w.astype(np.float64) + b
    if kind == "Sum":
        inputs["r"] = rng.standard_normal((m, n)).astype(np.float32)
        nodes.append(helper.make_node("Add", ["v", "r"], ["y"]))
        want = want + inputs["r"]
    elif kind == "Clip":
        weights["low"], weights["high"] = np.float32(-1.5), np.float32(2.25)
        nodes.append(helper.make_node("Clip", ["v", "low", "high"], ["y"]))
        want = np.clip(want, -1.5, 2.25)
    elif kind != "None":
        nodes.append(helper.make_node(kind, ["v"], ["y"]))
        want = KINDS[kind](want)
    else:
        nodes[0].output[0] = "y"
    over = 0
    if twice:
        second = weights["w2"] = values(rng, n, 16)
        nodes.append(helper.make_node("MatMul", ["y", "w2"], ["z"]))
        over = 2.0 ** -8 * np.abs(want) @ np.abs(second.astype(np.float64))
        want = want @ second.astype(np.float64)
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, v.shape) for n, v in inputs.items()],
        [helper.make_tensor_value_info("z" if twice else "y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()])
    said = "[%d,%d] x [%d,%d] %s%s%s" % (m, k, k, n, kind, " turned" * turned, " twice" * twice)
    return graph, inputs, want, k, over, said


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--n", type=int, default=60)
    a.add_argument("--seed", type=int, default=1)
    o = a.parse_args()
    results = Results()
    if not cpu_has("avx512_bf16"):
        print("SKIP amx: fast is f32 on this CPU")
        return 0
    rng = np.random.default_rng(o.seed)
    bad, ran = [], 0
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "amx_emulator.so")
        subprocess.run([os.environ.get("CC", "cc"), "-D_GNU_SOURCE", "-shared", "-fPIC", "-O1",
                        "-o", library, os.path.join(HERE, "amx_emulator.c")], check=True)
        env = dict(os.environ, LD_PRELOAD=library, HLOD_CPU_AMX="emulated")
        for number in range(o.n):
            graph, inputs, want, terms, over, said = model(rng, number)
            m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
            m.ir_version = 9
            path, out = os.path.join(folder, "m.onnx"), os.path.join(folder, "out")
            onnx.save(m, path)
            command = [os.path.join(o.build, "hlo-run"), path, "--impl", "amx", "--precision",
                       "fast", "--profile", "--time", "1", "--out", out]
            for n, v in inputs.items():
                v.tofile(os.path.join(folder, n))
                command += ["--in", os.path.join(folder, n)]
            p = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
            ran += "amx:bf16" in p.stdout
            if p.returncode:
                bad.append("%s: %s" % (said, p.stderr[:600]))
                continue
            got = np.fromfile(out, np.float32).astype(np.float64).reshape(want.shape)
            if not near(got, want, terms, over):
                bad.append("%s: other values than sums in f64" % said)
    results("%d products by emulated tiles" % ran, not bad and ran, "\n".join(bad[:5]))
    return results.code()


if __name__ == "__main__":
    sys.exit(main())
