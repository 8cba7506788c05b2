#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ops/<op>.hlo: modules and inputs from the tables below, without expected values
(make_expected.py adds those). Usage: make_cases.py [OP...]"""
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from oracle import DTYPES, literal_text

rng = np.random.default_rng(7)
FILES = {}
FLOATS = ["f32", "f64", "f16", "bf16"]
INTS = ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"]
ADD = "add { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"
MAX = ADD.replace("add", "maximum")
RTOL = {"f16": 2e-3, "bf16": 1.6e-2, "f32": 2e-6, "f64": 1e-12, "c64": 5e-6, "c128": 1e-12}


def shape(a):
    names = {np.dtype(v): k for k, v in DTYPES.items()}
    return names[a.dtype] + str(list(a.shape)).replace(" ", "")


def case(op, root, ins=(), before="", body="", tol=None, rtol=None, note=None, hand=None):
    """One case: parameters p0, p1, ... hold `ins`; `body` are lines before the root; `root` is
    "SHAPE op(...)"; `hand`: expected values where XLA:CPU has none."""
    ins = [np.asarray(a) for a in ins]
    lines = []
    if note:
        lines.append(f"// {note}")
    lines.append("HloModule m")
    if before:
        lines.append(before.rstrip("\n"))
    lines.append("ENTRY main {")
    lines += [f"  p{k} = {shape(a)} parameter({k})" for k, a in enumerate(ins)]
    lines += ["  " + x for x in body.split("\n") if x.strip()]
    lines.append(f"  ROOT r = {root}")
    lines.append("}")
    lines += [f"// IN: {literal_text(a)}" for a in ins]
    if tol is not None:
        lines.append(f"// TOL: {tol}")
    if rtol is not None:
        lines.append(f"// RTOL: {rtol}")
    if hand is not None:
        lines.append("// ORACLE: hand")
        lines += [f"// OUT: {literal_text(a)}" for a in hand]
    FILES.setdefault(op, []).append("\n".join(lines) + "\n")


def arr(v, t):
    with np.errstate(all="ignore"):
        return np.array(v).astype(DTYPES[t])


def uniform(dims, t="f32", lo=-2.0, hi=2.0):
    if t[0] == "c":
        return (rng.uniform(lo, hi, dims) + 1j * rng.uniform(lo, hi, dims)).astype(DTYPES[t])
    if t == "pred":
        return rng.integers(0, 2, dims).astype(bool)
    if t[0] in "su":
        return rng.integers(0 if t[0] == "u" else -9, 10, dims).astype(DTYPES[t])
    return np.round(rng.uniform(lo, hi, dims), 3).astype(DTYPES[t])


SPECIAL = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, -7.75, 3.1415927, 20, -20, 88, -80,
           1e-4, np.inf, -np.inf, np.nan]
CPLX = [0, 1, -1, 1j, -1j, 0.5 + 0.25j, -2.5 + 1.5j, 3 - 4j, -0.1 - 0.2j]


def int_values(t):
    i = np.iinfo(DTYPES[t])
    v = [i.min, i.min + 1, i.max, i.max - 1, 0, 1, 2, 3, 7, i.bits - 1, i.bits]
    if i.min < 0:
        v += [-1, -2, -7]
    return np.array(v, DTYPES[t])


def unary(op, values=SPECIAL, floats=FLOATS, cplx=False, ints=(), pred=False, exact=False):
    for t in floats:
        x = arr(values, t)
        case(op, f"{shape(x)} {op}(p0)", [x], rtol=None if exact else RTOL[t],
             tol=0 if exact else None)
    for t in ["c64", "c128"] if cplx else []:
        x = arr(CPLX, t)
        case(op, f"{shape(x)} {op}(p0)", [x], tol=RTOL[t])
    for t in ints:
        x = int_values(t)
        case(op, f"{shape(x)} {op}(p0)", [x])
    if pred:
        case(op, f"pred[2] {op}(p0)", [arr([0, 1], "pred")])


def elementwise():
    unary("abs", exact=True, ints=["s8", "s16", "s32", "s64"])
    for t, r in (("c64", "f32"), ("c128", "f64")):
        x = arr(CPLX, t)
        case("abs", f"{r}[9] abs(p0)", [x], rtol=RTOL[t])
        for op in ("real", "imag"):
            case(op, f"{r}[9] {op}(p0)", [x], tol=0)
    for op in ("real", "imag"):
        case(op, f"f32[3] {op}(p0)", [arr([1.5, -2, 0], "f32")], tol=0)
    unary("cbrt")
    unary("ceil", exact=True)
    unary("floor", exact=True)
    unary("round-nearest-afz",
          [0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3.2, -3.7, np.inf, np.nan, 8388609], exact=True)
    unary("round-nearest-even",
          [0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 3.2, -3.7, np.inf, np.nan, 8388609], exact=True)
    unary("count-leading-zeros", floats=[], ints=INTS)
    unary("popcnt", floats=[], ints=INTS)
    unary("not", floats=[], ints=INTS, pred=True)
    for op in ("cosine", "sine", "exponential", "exponential-minus-one", "log", "log-plus-one",
               "logistic", "rsqrt", "sqrt", "tanh", "tan"):
        values = SPECIAL
        if op in ("cosine", "sine", "tan"):
            values = [v for v in SPECIAL if v != 3.1415927]
        if op == "log-plus-one":
            values = [v for v in SPECIAL if v != -1] + [-0.75]
        unary(op, values, cplx=False)
        x = arr([0.5 + 0.25j, -2.5 + 1.5j, 3 - 4j, -0.1 - 0.2j], "c64")
        case(op, f"c64[4] {op}(p0)", [x], tol=1e-5)
    unary("erf")
    unary("negate", exact=True, ints=INTS, cplx=True)
    unary("sign", exact=True, ints=["s8", "s16", "s32", "s64"])
    case("sign", "c64[9] sign(p0)", [arr(CPLX, "c64")], tol=1e-6)
    for t in FLOATS:
        x = arr(SPECIAL, t)
        case("is-finite", f"pred[{len(x)}] is-finite(p0)", [x])
    for op in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "power",
               "atan2"):
        for t in FLOATS:
            v = [0.0, -0.0, 1, -1, 0.5, -2.5, 3, 100, np.inf, -np.inf, np.nan]
            x, y = (arr(a.ravel(), t) for a in np.meshgrid(v, v))
            rtol = None if op not in ("power", "atan2") else RTOL[t]
            case(op, f"{shape(x)} {op}(p0, p1)", [x, y], tol=None if rtol else 0, rtol=rtol)
        if op != "atan2":
            for t in INTS:
                v = int_values(t)
                w = v
                # XLA:CPU stops after a few squarings, and loops on negative exponents
                if op == "power":
                    w = np.array([0, 1, 2, 3, 7, 13], DTYPES[t])
                x, y = (a.ravel() for a in np.meshgrid(v, w))
                case(op, f"{shape(x)} {op}(p0, p1)", [x, y])
        if op in ("add", "subtract", "multiply", "divide", "power"):
            for t in ("c64", "c128"):
                c = [x for x in CPLX if x != 0]
                x, y = (arr(a.ravel(), t) for a in np.meshgrid(c, c))
                case(op, f"{shape(x)} {op}(p0, p1)", [x, y], tol=1e-5 if t == "c64" else 1e-12)
    for op in ("and", "or", "xor"):
        for t in INTS:
            v = int_values(t)
            x, y = (a.ravel() for a in np.meshgrid(v, v))
            case(op, f"{shape(x)} {op}(p0, p1)", [x, y])
    for op in ("and", "or", "xor", "add", "multiply", "maximum", "minimum"):
        case(op, f"pred[4] {op}(p0, p1)", [arr([0, 0, 1, 1], "pred"), arr([0, 1, 0, 1], "pred")])
    for op in ("shift-left", "shift-right-arithmetic", "shift-right-logical"):
        for t in INTS:
            v = int_values(t)
            x, y = (a.ravel() for a in np.meshgrid(v, v))
            case(op, f"{shape(x)} {op}(p0, p1)", [x, y])
    case("complex", "c64[3] complex(p0, p1)", [arr([1, -2, 0], "f32"), arr([0.5, 4, -0.0], "f32")],
         tol=0)
    case("complex", "c128[2] complex(p0, p1)", [arr([1, -2], "f64"), arr([0.5, 4], "f64")], tol=0)
    compare_and_select()


def compare_and_select():
    for d in ("EQ", "NE", "GE", "GT", "LE", "LT"):
        for t in ("f32", "bf16", "f64"):
            v = [0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan]
            x, y = (arr(a.ravel(), t) for a in np.meshgrid(v, v))
            case("compare", f"pred[49] compare(p0, p1), direction={d}", [x, y])
        case("compare", f"pred[49] compare(p0, p1), direction={d}, type=TOTALORDER",
             [arr(a.ravel(), "f32") for a in np.meshgrid(v, v)])
        for t in ("s8", "u8", "s64", "u64"):
            x, y = (a.ravel() for a in np.meshgrid(int_values(t), int_values(t)))
            case("compare", f"pred[{len(x)}] compare(p0, p1), direction={d}", [x, y])
        case("compare", f"pred[4] compare(p0, p1), direction={d}",
             [arr([0, 0, 1, 1], "pred"), arr([0, 1, 0, 1], "pred")])
    for d in ("EQ", "NE"):
        case("compare", f"pred[4] compare(p0, p1), direction={d}",
             [arr([1, 1j, 2, np.nan], "c64"), arr([1, 1, 2 + 1j, np.nan], "c64")])
    for t in FLOATS:
        x = arr([-3, -1, 0, 0.5, 1, 9, np.inf, -np.inf, np.nan], t)
        case("clamp", f"{t}[9] clamp(p0, p1, p2)", [arr(-1, t), x, arr(1, t)], tol=0)
        case("clamp", f"{t}[9] clamp(p0, p1, p2)",
             [np.full(9, -2).astype(DTYPES[t]), x, np.arange(9).astype(DTYPES[t])], tol=0)
    for t in INTS:
        case("clamp", f"{shape(int_values(t))} clamp(p0, p1, p2)",
             [arr(2, t), int_values(t), arr(100, t)])
    for t in ("f32", "s64", "pred", "c64", "bf16"):
        case("select", f"{t}[4] select(p0, p1, p2)",
             [arr([0, 1, 1, 0], "pred"), uniform(4, t), uniform(4, t)], tol=0)
        case("select", f"{t}[2,2] select(p0, p1, p2)",
             [arr(1, "pred"), uniform((2, 2), t), uniform((2, 2), t)], tol=0)


def converts():
    f = [0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 7.49, 127, 128, 255.9, 256, 300, -129, 448, 464,
         480, 65504, 65520, 3e9, -3e9, 1e-3, 0.0625, 1e20, -1e20, np.inf, -np.inf, np.nan]
    for a in FLOATS:
        x = arr(f, a)
        for b in FLOATS + INTS + ["pred", "c64", "f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4",
                                  "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz"]:
            if b == a:
                continue
            x = arr(f, a) if not b.startswith("f8") else arr([v for v in f if v == v], a)
            case("convert", f"{b}{str(list(x.shape))} convert(p0)", [x], tol=0)
    for a in INTS:
        for b in INTS + ["f32", "f64", "bf16", "f16", "pred", "c128"]:
            if a != b:
                case("convert", f"{b}[{len(int_values(a))}] convert(p0)", [int_values(a)], tol=0)
    for b in ("f32", "s32", "u8", "bf16"):
        case("convert", f"{b}[2] convert(p0)", [arr([0, 1], "pred")], tol=0)
    case("convert", "c128[9] convert(p0)", [arr(CPLX, "c64")], tol=0)
    for a, b in (("f32", "s32"), ("s32", "f32"), ("f32", "u32"), ("f16", "s16"), ("bf16", "u16"),
                 ("f64", "s64"), ("s8", "u8")):
        x = arr([0, 1, -1, 2.5, 100], a)
        case("bitcast-convert", f"{b}[5] bitcast-convert(p0)", [x], tol=0)
    case("bitcast-convert", "u8[2,4] bitcast-convert(p0)", [arr([1.0, -2.5], "f32")])
    case("bitcast-convert", "f32[2] bitcast-convert(p0)",
         [np.arange(8, dtype=np.uint8).reshape(2, 4) + 60], tol=0)
    for e, m in ((5, 10), (8, 7), (4, 3), (8, 23), (5, 2), (2, 1)):
        x = arr([0, -0.0, 1, 1.0009, 3.14159, -2.71828, 65504, 65520, 1e5, 1e-5, 6e-8, 1e38, np.inf,
                 -np.inf, np.nan, 0.3, 240, 250], "f32")
        case("reduce-precision",
             f"f32[18] reduce-precision(p0), exponent_bits={e}, mantissa_bits={m}", [x], tol=0)
    case("reduce-precision", "f64[3] reduce-precision(p0), exponent_bits=5, mantissa_bits=10",
         [arr([1 / 3, 1e6, -1e-9], "f64")], tol=0)
    case("reduce-precision", "bf16[3] reduce-precision(p0), exponent_bits=5, mantissa_bits=3",
         [arr([1 / 3, 1e6, -1e-9], "bf16")], tol=0)


def movement():
    kinds = ("f32", "s32", "pred", "bf16", "c64", "s8", "f64")
    for t in kinds:
        x = uniform((2, 3, 4), t)
        case("copy", f"{t}[2,3,4] copy(p0)", [x], tol=0)
        case("reshape", f"{t}[4,6] reshape(p0)", [x], tol=0)
        case("transpose", f"{t}[4,2,3] transpose(p0), dimensions={{2,0,1}}", [x], tol=0)
        case("reverse", f"{t}[2,3,4] reverse(p0), dimensions={{0,2}}", [x], tol=0)
        case("slice", f"{t}[1,2,2] slice(p0), slice={{[1:2], [0:3:2], [1:4:2]}}", [x], tol=0)
        case("broadcast", f"{t}[5,2,3,4] broadcast(p0), dimensions={{1,2,3}}", [x], tol=0)
        case("broadcast", f"{t}[3,2] broadcast(p0), dimensions={{}}", [uniform((), t)], tol=0)
        case("pad", f"{t}[3,6,9] pad(p0, p1), padding=1_0x2_1x-1_1_1".replace("x-1_1_1", "x1_1_1"),
             [x, uniform((), t)], tol=0)
        case("pad", f"{t}[1,5,3] pad(p0, p1), padding=-1_0x1_1x-1_0", [x, uniform((), t)], tol=0)
        case("concatenate", f"{t}[2,5,4] concatenate(p0, p1), dimensions={{1}}",
             [x, uniform((2, 2, 4), t)], tol=0)
        case("concatenate", f"{t}[7] concatenate(p0, p1, p2), dimensions={{0}}",
             [uniform(3, t), uniform(0, t), uniform(4, t)], tol=0)
    for i in (0, 1, -5, 9):
        starts = [np.int32(i), np.int32(1), np.int32(2 * i)]
        for t in ("f32", "s8", "c64"):
            x = uniform((4, 3, 5), t)
            case("dynamic-slice",
                 f"{t}[2,2,2] dynamic-slice(p0, p1, p2, p3), dynamic_slice_sizes={{2,2,2}}",
                 [x] + starts, tol=0)
            case("dynamic-update-slice", f"{t}[4,3,5] dynamic-update-slice(p0, p1, p2, p3, p4)",
                 [x, uniform((2, 2, 2), t)] + starts, tol=0)
    case("dynamic-slice", "f32[2] dynamic-slice(p0, p1), dynamic_slice_sizes={2}",
         [uniform(5), np.uint64(2**63 + 1)], tol=0)
    case("dynamic-slice", "f32[2] dynamic-slice(p0, p1), dynamic_slice_sizes={2}",
         [uniform(5), np.uint8(200)], tol=0)
    case("iota", "s32[3,4] iota(), iota_dimension=1")
    case("iota", "f32[3,4] iota(), iota_dimension=0", tol=0)
    case("iota", "c64[3] iota(), iota_dimension=0", tol=0)
    case("iota", "u8[3] iota(), iota_dimension=0")
    case("iota", "bf16[300] iota(), iota_dimension=0", tol=0)
    case("constant", "f32[2,2] constant({{1, 2.5}, {-inf, 1e-3}})", tol=0)
    case("constant", "pred[3] constant({true, false, true})")
    case("constant", "s64[2] constant({-9223372036854775808, 9223372036854775807})")
    case("constant", "c64[2] constant({(1, 2), (-0.5, 3)})", tol=0)
    case("constant", "bf16[] constant(3.14159)", tol=0)
    case("parameter", "(f32[2], f32[3], f32[2]) tuple(p0, p1, p0)", [uniform(2), uniform(3)], tol=0)
    case("tuple", "(f32[2], s32[]) tuple(p0, p1)", [uniform(2), np.int32(5)], tol=0)
    case("get-tuple-element", "f32[3] get-tuple-element(t), index=1", [uniform(2), uniform(3)],
         body="t = (f32[2], f32[3]) tuple(p0, p1)", tol=0)
    case("get-tuple-element", "s32[] get-tuple-element(v), index=1", [uniform(2), np.int32(3)],
         body="u = (f32[2], s32[]) tuple(p0, p1)\nt = ((f32[2], s32[]), f32[2]) tuple(u, p0)\nv = "
              "(f32[2], s32[]) get-tuple-element(t), index=0")
    case("opt-barrier", "f32[2] get-tuple-element(b), index=0", [uniform(2), uniform(3)],
         body="t = (f32[2], f32[3]) tuple(p0, p1)\nb = (f32[2], f32[3]) opt-barrier(t)", tol=0)
    case("after-all", "f32[2] add(p0, p0)", [uniform(2)], body="t = token[] after-all()", tol=0)
    x = uniform(2)
    case("add-dependency", "f32[2] add-dependency(p0, t)", [x], body="t = token[] after-all()",
         tol=0, hand=[x], note="the value is the first operand")
    case("replica-id", "u32[] replica-id()")
    case("partition-id", "u32[] partition-id()", hand=[np.uint32(0)],
         note="one partition: number 0")
    case("get-dimension-size", "s32[] get-dimension-size(p0), dimensions={1}", [uniform((2, 3))],
         hand=[np.int32(3)], note="the size of dimension 1")
    case("bitcast", "f32[3,2] bitcast(p0)", [x := uniform((2, 3))], tol=0, hand=[x.reshape(3, 2)],
         note="the same buffer")
    case("bitcast", "f32[3,2]{0,1} bitcast(p0)", [x], tol=0, hand=[x.T],
         note="the same buffer read column-major is the transpose")
    case("domain",
         "f32[2] domain(p0), domain={kind=\"sharding\", entry={maximal device=0}, exit={}}",
         [uniform(2)], tol=0) if False else None


def dots():
    for t in ("f32", "f64", "bf16", "f16", "s32", "s8", "u8", "c64", "c128"):
        tol = {"f32": 1e-5, "bf16": 2e-2, "f16": 2e-3, "c64": 1e-5, "f64": 1e-12,
               "c128": 1e-12}.get(t)
        case("dot", f"{t}[3,5] dot(p0, p1), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
             [uniform((3, 4), t), uniform((4, 5), t)], tol=tol)
        case("dot", f"{t}[2,3,5] dot(p0, p1), lhs_batch_dims={{1}}, rhs_batch_dims={{0}}, "
                    f"lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}",
             [uniform((3, 2, 4), t), uniform((2, 5, 4), t)], tol=tol)
    case("dot", "f32[] dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
         [uniform(7), uniform(7)], tol=1e-5)
    case("dot", "f32[2,3] dot(p0, p1), lhs_contracting_dims={}, rhs_contracting_dims={}",
         [uniform(2), uniform(3)], tol=1e-5)
    case("dot", "f32[2,5] dot(p0, p1), lhs_contracting_dims={1,2}, rhs_contracting_dims={2,0}",
         [uniform((2, 3, 4)), uniform((4, 5, 3))], tol=1e-5)
    case("dot", "f32[2,3] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
         [uniform((2, 0)), uniform((0, 3))], tol=0)
    case("dot", "f32[3,3] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
         [uniform((3, 4), "bf16"), uniform((4, 3), "bf16")], tol=1e-5)
    case("dot", "s32[3,3] dot(p0, p1), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
         [uniform((3, 40), "s8"), uniform((40, 3), "s8")])


def convs():
    def conv(x, k, out, window, labels, extra="", t="f32", tol=1e-5):
        case("convolution",
             f"{t}{out} convolution(p0, p1), window={{{window}}}, dim_labels={labels}{extra}",
             [uniform(x, t), uniform(k, t)], tol=tol)
    conv((1, 6, 6, 2), (3, 3, 2, 4), "[1,4,4,4]", "size=3x3", "b01f_01io->b01f")
    conv((2, 2, 6, 5), (4, 2, 3, 2), "[2,4,3,5]", "size=3x2 stride=2x1 pad=1_1x0_1",
         "bf01_oi01->bf01")
    conv((1, 4, 5), (6, 2, 3), "[1,6,5]", "size=3 pad=1_1", "bf0_oi0->bf0",
         ", feature_group_count=2")
    conv((1, 4, 5), (4, 1, 3), "[1,4,5]", "size=3 pad=1_1", "bf0_oi0->bf0",
         ", feature_group_count=4")
    conv((4, 3, 5), (6, 3, 3), "[2,6,3]", "size=3", "bf0_oi0->bf0", ", batch_group_count=2")
    conv((1, 2, 4), (3, 2, 2), "[1,3,8]", "size=2 pad=1_1 lhs_dilate=2", "bf0_oi0->bf0")
    conv((1, 2, 9), (3, 2, 3), "[1,3,5]", "size=3 rhs_dilate=2", "bf0_oi0->bf0")
    conv((1, 2, 9), (3, 2, 3), "[1,3,7]", "size=3 rhs_reversal=1", "bf0_oi0->bf0")
    conv((1, 2, 6), (3, 2, 3), "[1,3,2]", "size=3 pad=-1_-1", "bf0_oi0->bf0")
    conv((6, 2, 1, 5), (2, 3, 3, 3), "[3,1,4,3]", "size=3x3",
         "0fb1_i01o->1b0f".replace("1b0f", "f b".replace(" ", "") + "01")) if False else None
    conv((6, 2, 1, 5), (2, 3, 3, 3), "[4,3,1,3]", "size=3x3",
         "0fb1_i01o->0fb1".replace("->0fb1", "->01bf"),) if False else None
    conv((6, 2, 1, 5), (2, 3, 3, 3), "[4,3,1,3]", "size=3x3", "0fb1_i01o->0fb1")
    conv((2, 3), (4, 3), "[2,4]", "", "bf_oi->bf")
    conv((1, 4, 4, 4, 2), (2, 2, 2, 2, 3), "[1,3,3,3,3]", "size=2x2x2", "b012f_012io->b012f")
    conv((1, 6, 6, 2), (3, 3, 2, 4), "[1,3,7,4]",
         "size=3x3 stride=2x1 pad=0_1x2_2 rhs_dilate=1x2 rhs_reversal=0x1 "
         "lhs_dilate=1x1".replace("pad=0_1x2_2", "pad=0_1x2_3"), "b01f_01io->b01f")
    for t in ("f64", "s32", "bf16", "f16", "c64"):
        conv((1, 6, 6, 2), (3, 3, 2, 4), "[1,4,4,4]", "size=3x3", "b01f_01io->b01f", t=t,
             tol={"bf16": 2e-2, "f16": 2e-3, "s32": None}.get(t, 1e-5))


def comp(op, t, name="f"):
    return (f"{name} {{ a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT s = {t}[] {op}(a, "
            f"b)\n}}\n")


ARGMAX = """argmax { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  v = f32[] select(c, a, b)
  k = s32[] select(c, i, j)
  ROOT r = (f32[], s32[]) tuple(v, k)
}
"""


def reductions():
    for t, ops in (("f32", "add multiply maximum minimum"), ("f64", "add maximum"),
                   ("bf16", "maximum minimum"), ("s32", "add multiply maximum minimum and or xor"),
                   ("u8", "add maximum"), ("s64", "add minimum"), ("pred", "and or xor"),
                   ("c64", "add multiply")):
        for op in ops.split():
            for dims, out in (("1", "[2,4]"), ("0,2", "[3]"), ("0,1,2", "[]")):
                case("reduce", f"{t}{out} reduce(p0, p1), dimensions={{{dims}}}, to_apply=f",
                     [uniform((2, 3, 4), t), uniform((), t)], before=comp(op, t),
                     tol=1e-5 if t[0] in "fbc" else None)
    case("reduce", "(f32[3], s32[3]) reduce(p0, p1, p2, p3), dimensions={1}, to_apply=argmax",
         [uniform((3, 7)), np.tile(np.arange(7, dtype=np.int32), (3, 1)), np.float32(-np.inf),
          np.int32(0)], before=ARGMAX, tol=0)
    case("reduce", "f32[2] reduce(p0, p1), dimensions={1}, to_apply=f",
         [uniform((2, 0)), np.float32(3)], before=comp("add", "f32"), tol=0)
    case("reduce", "f32[] reduce(p0, p1), dimensions={0}, to_apply=f",
         [arr([1, np.nan, 3], "f32"), np.float32(-np.inf)], before=comp("maximum", "f32"), tol=0)
    case("reduce", "f32[2] reduce(p0, p1), dimensions={1}, to_apply=f",
         [uniform((2, 5)), np.float32(0)], tol=1e-5,
         before="f { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  q = f32[] multiply(b, b)\n"
                "  ROOT s = f32[] add(a, q)\n}\n", note="not a single operation")

    def window(x, out, w, op="add", t="f32", init=0):
        case("reduce-window", f"{t}{out} reduce-window(p0, p1), window={{{w}}}, to_apply=f",
             [uniform(x, t), arr(init, t)], before=comp(op, t), tol=1e-5 if t[0] in "fb" else None)
    window((1, 6, 6, 2), "[1,3,3,2]", "size=1x2x2x1 stride=1x2x2x1", "maximum", init=-np.inf)
    window((1, 5, 5, 2), "[1,3,3,2]", "size=1x3x3x1 stride=1x2x2x1 pad=0_0x1_1x1_1x0_0", "add")
    window((1, 5, 5, 2), "[1,3,3,2]", "size=1x3x3x1 stride=1x2x2x1 pad=0_0x1_1x1_1x0_0", "minimum",
           "f64", init=np.inf)
    window((7,), "[3]", "size=3 rhs_dilate=2", "add")
    window((4,), "[6]", "size=2 lhs_dilate=2", "add")
    window((8,), "[8]", "size=8 pad=7_0", "add", "s32")
    window((8,), "[8]", "size=8 pad=0_7", "multiply", "s32", init=1)
    window((2, 3), "[2,2]", "size=1x2", "maximum", "bf16", init=-9)
    window((6,), "[2]", "size=3 pad=-1_-1", "add")
    case("reduce-window", "(f32[3], s32[3]) reduce-window(p0, p1, p2, p3), window={size=2 "
                          "stride=2}, to_apply=argmax",
         [uniform(6), np.arange(6, dtype=np.int32), np.float32(-np.inf), np.int32(0)],
         before=ARGMAX, tol=0)
    # windows that all reach to one end
    window((20,), "[20]", "size=20 pad=19_0", "add")
    window((20,), "[20]", "size=20 pad=0_19", "multiply", init=1)
    window((3, 17), "[3,17]", "size=1x17 pad=0_0x16_0", "maximum", init=-np.inf)
    window((18, 5), "[18,5]", "size=18x1 pad=0_17x0_0", "add", "f64")
    window((2, 17, 2, 3), "[2,17,2,3]", "size=1x17x1x1 pad=0_0x16_0x0_0x0_0", "add")
    window((17, 2), "[17,2]", "size=30x1 pad=29_0x0_0", "maximum", "bf16", init=-9)
    window((17, 3), "[17,3]", "size=17x1 pad=16_0x0_0", "multiply", "s32", init=1)
    window((18,), "[18]", "size=18 pad=0_17", "add", "c64")
    case("reduce-window", "(f32[20], s32[20]) reduce-window(p0, p1, p2, p3), window={size=20 "
                          "pad=19_0}, to_apply=argmax",
         [uniform(20), np.arange(20, dtype=np.int32), np.float32(-np.inf), np.int32(0)],
         before=ARGMAX, tol=0)
    # the same without the element itself
    for x, t, w, op, init in (((20,), "f32", "size=20 pad=20_-1", "add", 0),
                              ((20,), "f32", "size=20 pad=-1_20", "multiply", 1),
                              ((3, 17), "f32", "size=1x17 pad=0_0x17_-1", "maximum", -9),
                              ((18, 5), "f64", "size=18x1 pad=-1_18x0_0", "add", 3),
                              ((17, 2), "bf16", "size=30x1 pad=30_-1x0_0", "maximum", -9),
                              ((17, 3), "s32", "size=17x1 pad=17_-1x0_0", "add", 2)):
        case("reduce-window", f"{t}{str(list(x)).replace(' ', '')} reduce-window(p0, p1), "
                              f"window={{{w}}}, to_apply=f",
             [arr((np.sin(np.arange(np.prod(x)) * 2.5) * 2.75).reshape(x), t), arr(init, t)],
             before=comp(op, t), tol=1e-5 if t[0] in "fb" else None)
    ge = ("sel { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, "
          "b), direction=GE\n}\n")
    for x, s, w in (((1, 4, 6, 1), (1, 2, 3, 1), "size=1x2x2x1 stride=1x2x2x1"),
                    ((6, 6), (3, 3), "size=3x3 stride=2x2 pad=0_1x0_1"), ((5,), (3,), "size=3"),
                    ((4,), (5,), "size=2 pad=1_1")):
        case("select-and-scatter", f"f32{str(list(x)).replace(' ', '')} select-and-scatter(p0, p1, "
                                   f"p2), window={{{w}}}, select=sel, scatter=f",
             [rng.permutation(int(np.prod(x))).astype(np.float32).reshape(x), uniform(s),
              np.float32(0.5)], before=ge + comp("add", "f32"), tol=1e-6)


def indexing():
    x = uniform((5, 4))
    i = np.array([0, 3, 9, -2], np.int32)
    case("gather", "f32[4,4] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, "
                   "start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}", [x, i], tol=0)
    case("gather", "f32[4,2,3] gather(p0, p1), offset_dims={1,2}, collapsed_slice_dims={}, "
                   "start_index_map={0,1}, index_vector_dim=1, slice_sizes={2,3}",
         [x, np.array([[0, 0], [3, 1], [9, 9], [-1, 1]], np.int32)], tol=0)
    case("gather", "f32[4] gather(p0, p1), offset_dims={}, collapsed_slice_dims={0,1}, "
                   "start_index_map={1,0}, index_vector_dim=0, slice_sizes={1,1}",
         [x, np.array([[0, 3, 1, 2], [4, 1, 0, 2]], np.int64)], tol=0)
    case("gather", "f32[2,3,2] gather(p0, p1), offset_dims={0}, collapsed_slice_dims={0}, "
                   "start_index_map={0}, index_vector_dim=2, slice_sizes={1,2}",
         [x, np.array([[[0], [1]], [[2], [3]], [[4], [0]]], np.int32)], tol=0)
    case("gather", "s32[2,3] gather(p0, p1), offset_dims={}, collapsed_slice_dims={1}, "
                   "start_index_map={1}, operand_batching_dims={0}, "
                   "start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={1,1}",
         [uniform((2, 4), "s32"), np.array([[[0], [3], [1]], [[2], [2], [0]]], np.int32)])
    case("gather",
         "f32[3,4] gather(p0, p1), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
         "index_vector_dim=1, slice_sizes={1,4}, indices_are_sorted=true",
         [x, np.array([0, 2, 4], np.uint32)], tol=0)
    for op, t in (("add", "f32"), ("maximum", "s32"), ("multiply", "f64"), ("add", "c64")):
        case("scatter",
             f"{t}[5,4] scatter(p0, p1, p2), update_window_dims={{1}}, inserted_window_dims={{0}}, "
             f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f",
             [uniform((5, 4), t), np.array([0, 3, 3, 9, -1], np.int32), uniform((5, 4), t)],
             before=comp(op, t), tol=1e-5 if t[0] in "fc" else None)
    over = "f { a = f32[] parameter(0)\n  ROOT b = f32[] parameter(1)\n}\n"
    case("scatter",
         "f32[5,4] scatter(p0, p1, p2), update_window_dims={1,2}, inserted_window_dims={}, "
         "scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=f",
         [uniform((5, 4)), np.array([[0, 0], [3, 2], [4, 3]], np.int32), uniform((3, 2, 2))],
         before=over, tol=0, note="the last update does not fit: skipped whole")
    case("scatter",
         "f32[5,4] scatter(p0, p1, p2), update_window_dims={}, inserted_window_dims={0,1}, "
         "scatter_dims_to_operand_dims={1,0}, index_vector_dim=0, to_apply=f",
         [uniform((5, 4)), np.array([[0, 3, 3], [4, 1, 1]], np.int64), uniform(3)],
         before=comp("add", "f32"), tol=1e-6)
    case("scatter",
         "f32[2,4] scatter(p0, p1, p2), update_window_dims={}, inserted_window_dims={1}, "
         "scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
         "scatter_indices_batching_dims={0}, index_vector_dim=2, to_apply=f",
         [uniform((2, 4)), np.array([[[0], [3], [0]], [[2], [2], [7]]], np.int32), uniform((2, 3))],
         before=comp("add", "f32"), tol=1e-6)
    two = ("f { a = f32[] parameter(0)\n  b = s32[] parameter(1)\n  c = f32[] parameter(2)\n  d = "
           "s32[] parameter(3)\n  e = f32[] add(a, c)\n  g = s32[] maximum(b, d)\n  ROOT r = "
           "(f32[], s32[]) tuple(e, g)\n}\n")
    case("scatter", "(f32[5], s32[5]) scatter(p0, p1, p2, p3, p4), update_window_dims={}, "
                    "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
                    "index_vector_dim=1, to_apply=f",
         [uniform(5), uniform(5, "s32"), np.array([1, 4, 1], np.int32), uniform(3),
          uniform(3, "s32")], before=two, tol=1e-6)
    for t in ("f32", "s32", "u8", "f64", "bf16"):
        for d in ("LT", "GT"):
            c = (f"f {{ a = {t}[] parameter(0)\n  b = {t}[] parameter(1)\n  ROOT c = pred[] "
                 f"compare(a, b), direction={d}\n}}\n")
            case("sort", f"{t}[3,9] sort(p0), dimensions={{1}}, to_apply=f", [uniform((3, 9), t)],
                 before=c, tol=0)
            case("sort", f"{t}[9,2] sort(p0), dimensions={{0}}, is_stable=true, to_apply=f",
                 [uniform((9, 2), t)], before=c, tol=0)
    two = ("f { a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  c = s32[] parameter(2)\n  d = "
           "s32[] parameter(3)\n  ROOT e = pred[] compare(a, b), direction=LT\n}\n")
    case("sort", "(s32[40], s32[40]) sort(p0, p1), dimensions={0}, is_stable=true, to_apply=f",
         [rng.integers(0, 5, 40).astype(np.int32), np.arange(40, dtype=np.int32)], before=two,
         note="stable: equal keys keep their order")
    total = ("f { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, "
             "b), direction=LT, type=TOTALORDER\n}\n")
    case("sort", "f32[7] sort(p0), dimensions={0}, is_stable=true, to_apply=f",
         [arr([np.nan, 1, -np.inf, 0.0, -0.0, np.inf, -3], "f32")], before=total, tol=0)
    case("topk", "(f32[2,3], s32[2,3]) topk(p0), k=3, largest=true", [uniform((2, 9))], tol=0)
    case("topk", "(s32[4], s32[4]) topk(p0), k=4, largest=true",
         [np.array([3, 9, 3, 9, 1, 3], np.int32)])
    case("topk", "(f32[2], s32[2]) topk(p0), k=2, largest=false", [uniform(6)], tol=0)
    for t, n, k, largest in (("f32", 100, 5, "true"), ("f64", 70, 5, "false"),
                             ("s32", 100, 16, "true"), ("u8", 100, 7, "true"),
                             ("bf16", 70, 1, "true"), ("f32", 300, 40, "true"),
                             ("s64", 260, 17, "false")):
        # integers: with equal ones
        line = np.sin(np.arange(2 * n) * 2.5).reshape(2, n) * 20 + (30 if t == "u8" else 0)
        case("topk-ties" if t[0] in "su" else "topk",
             f"({t}[2,{k}], s32[2,{k}]) topk(p0), k={k}, largest={largest}", [arr(line, t)], tol=0)


def control():
    case("call", "f32[3] call(p0, p1), to_apply=f", [uniform(3), uniform(3)],
         before=comp("subtract", "f32").replace("f32[]", "f32[3]"), tol=1e-6)
    case("fusion", "f32[3] fusion(p0, p1), kind=kLoop, calls=f", [uniform(3), uniform(3)],
         before=comp("multiply", "f32").replace("f32[]", "f32[3]"), tol=1e-6)
    case("map", "f32[2,3] map(p0, p1), dimensions={0,1}, to_apply=f",
         [uniform((2, 3)), uniform((2, 3))], before=comp("subtract", "f32"), tol=1e-6)
    case("map", "pred[4] map(p0), dimensions={0}, to_apply=f", [uniform(4)],
         before="f { a = f32[] parameter(0)\n  z = f32[] constant(0)\n  ROOT c = pred[] compare(a, "
                "z), direction=GT\n}\n")
    branches = "".join(f"b{k} {{ a = f32[2] parameter(0)\n  ROOT r = f32[2] {op}(a)\n}}\n"
                       for k, op in enumerate(("negate", "abs", "floor")))
    for v in (True, False):
        case("conditional",
             "f32[2] conditional(p0, p1, p2), true_computation=b0, false_computation=b1",
             [np.bool_(v), uniform(2), uniform(2)], before=branches, tol=0)
    for v in (0, 1, 2, -1, 7):
        case("conditional", "f32[2] conditional(p0, p1, p1, p1), branch_computations={b0, b1, b2}",
             [np.int32(v), arr([-1.5, 2.5], "f32")], before=branches, tol=0)
    loop = """cond { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(%d)
  ROOT c = pred[] compare(i, n), direction=LT
}
body { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[2] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[2] add(x, x)
  ROOT t = (s32[], f32[2]) tuple(j, y)
}
"""
    for n in (0, 1, 5, 100):
        case("while", "(s32[], f32[2]) while(t), condition=cond, body=body",
             [np.int32(0), uniform(2)], body="t = (s32[], f32[2]) tuple(p0, p1)", before=loop % n,
             tol=1e-6)


def inverse_functions():
    """No StableHLO form, so XLA:CPU does not take them: expected values by NumPy in f64."""
    inside, above, any_ = [0, -0.0, 0.5, -0.25, 0.999, 1, -1, 2, np.nan], [
        1, 1.0001, 2, 10, 1e20, np.inf, 0.5,
        np.nan], [0, -0.0, 0.5, -3, 20, np.inf, -np.inf, np.nan]
    for op, values in (("acos", inside), ("asin", inside), ("atanh", inside), ("acosh", above),
                       ("asinh", any_), ("cosh", any_), ("sinh", any_)):
        f = getattr(np, {"acos": "arccos", "asin": "arcsin", "atanh": "arctanh", "acosh": "arccosh",
                         "asinh": "arcsinh"}.get(op, op))
        for t in ("f32", "f64", "f16"):
            x = arr([v for v in values if v != 1e20 or t != "f16"], t)
            with np.errstate(all="ignore"):
                want = f(x.astype(np.float64)).astype(x.dtype)
            case(op, f"{shape(x)} {op}(p0)", [x], rtol=RTOL[t], hand=[want],
                 note="expected values by NumPy in f64")
    for t in INTS:
        info = np.iinfo(DTYPES[t])
        x, y = arr([info.max, info.min, 7, info.max // 3, 100],
                   t), arr([info.max, info.max, 9, 5, 100], t)
        want = np.array([(int(a) * int(b)) >> info.bits for a, b in zip(x, y)]).astype(x.dtype)
        case("mulhi", f"{shape(x)} mulhi(p0, p1)", [x, y], hand=[want],
             note="expected values by Python's integers")


def collectives():
    """On one participant: the definition with a group of one."""
    x, y = uniform((2, 3)), uniform(4)
    add, note = comp("add", "f32"), "one participant"
    for op, more in (("all-reduce", ", to_apply=f"), ("all-reduce-start", ", to_apply=f"),
                     ("collective-broadcast", "")):
        for groups in ("{}", "{{0}}", "[1,1]<=[1]"):
            done = op.endswith("start")
            case(op,
                 "f32[2,3] all-reduce-done(s)" if done else f"f32[2,3] {op}(p0), "
                                                            f"replica_groups={groups}{more}", [x],
                 before=add if more else "",
                 body=f"s = f32[2,3] {op}(p0), replica_groups={groups}{more}" if done else "",
                 hand=[x], note=note)
    FILES["all-reduce-done"] = list(FILES["all-reduce-start"])
    case("all-reduce", "(f32[2,3], f32[4]) all-reduce(p0, p1), replica_groups={}, to_apply=f",
         [x, y], before=add, hand=[x, y], note=note)
    case("all-gather", "f32[2,3] all-gather(p0), replica_groups={}, dimensions={1}", [x], hand=[x],
         note=note)
    case("reduce-scatter",
         "f32[2,3] reduce-scatter(p0), replica_groups={}, dimensions={1}, to_apply=f", [x],
         before=add, hand=[x], note=note)
    case("all-to-all", "(f32[2,3]) all-to-all(p0), replica_groups={}", [x], hand=[x], note=note)
    case("all-to-all", "f32[2,3] all-to-all(p0), replica_groups={{0}}, dimensions={0}", [x],
         hand=[x], note=note)
    for op in ("all-gather-start", "all-gather-done"):
        case(op, "f32[2,3] all-gather-done(s)", [x], hand=[x], note=note,
             body="s = (f32[2,3], f32[2,3]) all-gather-start(p0), replica_groups={}, "
                  "dimensions={1}")
    for pairs, want in (("{{0,0}}", x), ("{{0,1},{1,2}}", x * 0), ("{{1,0}}", x * 0),
                        ("{}", x * 0)):
        case("collective-permute", f"f32[2,3] collective-permute(p0), source_target_pairs={pairs}",
             [x], hand=[want], note=note)
        for op in ("collective-permute-start", "collective-permute-done"):
            case(op, "f32[2,3] collective-permute-done(s)", [x], hand=[want], note=note,
                 body="s = (f32[2,3], f32[2,3], u32[], u32[]) collective-permute-start(p0), "
                      f"source_target_pairs={pairs}")
    rows, zeros = uniform((5, 2)), uniform((4, 2))
    want = zeros.copy()
    want[1:3] = rows[2:4]
    offsets = [arr([v], "s32") for v in (2, 2, 1, 2)]
    case("ragged-all-to-all",
         "f32[4,2] ragged-all-to-all(p0, p1, p2, p3, p4, p5), replica_groups={{0}}",
         [rows, zeros] + offsets, hand=[want], note=note)


def scans():
    body = ("f { x = %s parameter(0)\n  c = %s parameter(1)\n  s = %s add(x, c)\n  p = %s "
            "multiply(x, s)\n  ROOT t = (%s, %s) tuple(p, s)\n}\n")
    for more in ("", ", is_reverse=true"):
        f = body % (("f32[]",) * 6)
        case("scan",
             "(f32[5], f32[]) scan(p0, p1), dimensions={0}, num_carries=1, to_apply=f" + more,
             [uniform(5), uniform(())], before=f, tol=1e-6)
        for d in (0, 1, 2):
            x, c = uniform((2, 3, 4)), uniform(tuple(n for k, n in enumerate((2, 3, 4)) if k != d))
            f = body % ((shape(c),) * 6)
            case("scan", f"({shape(x)}, {shape(c)}) scan(p0, p1), dimensions={{{d}}}, "
                         "num_carries=1, to_apply=f" + more, [x, c], before=f, tol=1e-6)


def linalg():
    for t in ("f32", "f64", "c64"):
        tol = 1e-5 if t != "f64" else 1e-12
        m = uniform((2, 4, 4), t)
        spd = (m @ np.conj(np.swapaxes(m, 1, 2)) + 4 * np.eye(4)).astype(DTYPES[t])
        half = np.tril if True else None
        case("cholesky", f"{t}[2,4,4] select(b, c, z)", [spd], tol=tol,
             note="compared on the lower triangle",
             body=f"c = {t}[2,4,4] cholesky(p0), lower=true\ni = s32[2,4,4] iota(), "
                  "iota_dimension=1\nj = s32[2,4,4] iota(), iota_dimension=2\nb = pred[2,4,4] "
                  f"compare(i, j), direction=GE\nzero = {t}[] constant("
             + ("(0, 0)" if t[0] == "c" else "0")
             + f")\nz = {t}[2,4,4] broadcast(zero), dimensions={{}}")
        case("cholesky", f"{t}[2,4,4] select(b, c, z)", [spd], tol=tol,
             note="compared on the upper triangle",
             body=f"c = {t}[2,4,4] cholesky(p0), lower=false\ni = s32[2,4,4] iota(), "
                  "iota_dimension=1\nj = s32[2,4,4] iota(), iota_dimension=2\nb = pred[2,4,4] "
                  f"compare(i, j), direction=LE\nzero = {t}[] constant("
             + ("(0, 0)" if t[0] == "c" else "0")
             + f")\nz = {t}[2,4,4] broadcast(zero), dimensions={{}}")
        a = (np.tril(m) + 3 * np.eye(4)).astype(DTYPES[t])
        for left in ("true", "false"):
            for lower in ("true", "false"):
                for tr in ("NO_TRANSPOSE", "TRANSPOSE") + (("ADJOINT",) if t == "c64" else ()):
                    b = uniform((2, 4, 3) if left == "true" else (2, 3, 4), t)
                    full = a if lower == "true" else np.swapaxes(a, 1, 2)
                    case("triangular-solve",
                         f"{shape(b)} triangular-solve(p0, p1), left_side={left}, lower={lower}, "
                         f"transpose_a={tr}", [full, b], tol=tol)
        case("triangular-solve", f"{t}[2,4,3] triangular-solve(p0, p1), left_side=true, "
                                 "lower=true, unit_diagonal=true, transpose_a=NO_TRANSPOSE",
             [a, uniform((2, 4, 3), t)], tol=tol)
    for n in (1, 2, 5, 8, 12):
        case("fft", f"c64[2,{n}] fft(p0), fft_type=FFT, fft_length={{{n}}}",
             [uniform((2, n), "c64")], tol=1e-5)
        case("fft", f"c64[2,{n}] fft(p0), fft_type=IFFT, fft_length={{{n}}}",
             [uniform((2, n), "c64")], tol=1e-5)
        case("fft", f"c64[2,{n // 2 + 1}] fft(p0), fft_type=RFFT, fft_length={{{n}}}",
             [uniform((2, n))], tol=1e-5)
        case("fft", f"f32[2,{n}] fft(p0), fft_type=IRFFT, fft_length={{{n}}}",
             [uniform((2, n // 2 + 1), "c64")], tol=1e-5)
    case("fft", "c128[3,4,5] fft(p0), fft_type=FFT, fft_length={3,4,5}",
         [uniform((3, 4, 5), "c128")], tol=1e-10)
    case("fft", "c64[2,4,4] fft(p0), fft_type=RFFT, fft_length={4,6}", [uniform((2, 4, 6))],
         tol=1e-5)
    case("fft", "f32[2,4,6] fft(p0), fft_type=IRFFT, fft_length={4,6}", [uniform((2, 4, 4), "c64")],
         tol=1e-5)


def batch_norms():
    for t in ("f32", "f64"):
        tol = 1e-4 if t == "f32" else 1e-6
        x, f = uniform((2, 3, 4), t), lambda n=3: uniform(n, t)
        pos = lambda: uniform(3, t, 0.5, 2)
        case("batch-norm-inference",
             f"{t}[2,3,4] batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0.001, feature_index=1",
             [x, f(), f(), f(), pos()], tol=tol)
        case("batch-norm-training", f"({t}[2,3,4], {t}[3], {t}[3]) batch-norm-training(p0, p1, "
                                    "p2), epsilon=0.001, feature_index=1", [x, f(), f()], tol=tol)
        case("batch-norm-grad", f"({t}[2,3,4], {t}[3], {t}[3]) batch-norm-grad(p0, p1, p2, p3, "
                                "p4), epsilon=0.001, feature_index=1",
             [x, f(), f(), pos(), uniform((2, 3, 4), t)], tol=tol)
        case("batch-norm-inference",
             f"{t}[3,2] batch-norm-inference(p0, p1, p2, p3, p4), epsilon=0.1, feature_index=0",
             [uniform((3, 2), t), f(), f(), f(), pos()], tol=tol)


def random():
    for alg, state in (("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3),
                       ("rng_default", 3)):
        s = np.array([0x123456789ABCDEF0, 0xFFFFFFFFFFFFFFFE, 42][:state], np.uint64)
        for t, dims in (("u32", "[7]"), ("u32", "[2,3]"), ("u64", "[5]"), ("u8", "[9]"),
                        ("u16", "[4]"), ("u32", "[3,5]"), ("u32", "[]"), ("u64", "[2,2]"),
                        ("u32", "[1]")):
            case("rng-bit-generator",
                 f"(u64[{state}], {t}{dims}) rng-bit-generator(p0), algorithm={alg}", [s])
    inside = ("lo = f32[1000] broadcast(p0), dimensions={}\nhi = f32[1000] broadcast(p1), "
              "dimensions={}\nx = f32[1000] rng(p0, p1), distribution=rng_uniform\ng = pred[1000] "
              "compare(x, lo), direction=GE\nl = pred[1000] compare(x, hi), direction=LT\nb = "
              "pred[1000] and(g, l)\nt = pred[] constant(true)")
    case("rng", "pred[] reduce(b, t), dimensions={0}, to_apply=f", [np.float32(-3), np.float32(5)],
         body=inside, before=comp("and", "pred"), note="values are free: they lie in [a, b)")
    mean = ("x = f32[20000] rng(p0, p1), distribution=rng_normal\nz = f32[] constant(0)\ns = f32[] "
            "reduce(x, z), dimensions={0}, to_apply=f\nn = f32[] constant(20000)\nm = f32[] "
            "divide(s, n)\nlo = f32[] constant(2.9)\nhi = f32[] constant(3.1)\ng = pred[] "
            "compare(m, lo), direction=GT\nh = pred[] compare(m, hi), direction=LT")
    case("rng", "pred[] and(g, h)", [np.float32(3), np.float32(2)], body=mean,
         before=comp("add", "f32"), note="the mean of a normal sample is near mu")
    ints = ("x = s32[1000] rng(p0, p1), distribution=rng_uniform\nlo = s32[1000] broadcast(p0), "
            "dimensions={}\nhi = s32[1000] broadcast(p1), dimensions={}\ng = pred[1000] compare(x, "
            "lo), direction=GE\nl = pred[1000] compare(x, hi), direction=LT\nb = pred[1000] and(g, "
            "l)\nt = pred[] constant(true)")
    case("rng", "pred[] reduce(b, t), dimensions={0}, to_apply=f", [np.int32(-2), np.int32(3)],
         body=ints, before=comp("and", "pred"), note="integers too")
    case("rng-get-and-update-state",
         "pred[] reduce(d, f), dimensions={0}, to_apply=f".replace("reduce(d, f)", "reduce(d, no)"),
         body="a = u64[2] rng-get-and-update-state(), delta=3\nb = u64[2] "
              "rng-get-and-update-state(), delta=1\nd = pred[2] compare(a, b), direction=NE\nno = "
              "pred[] constant(false)", before=comp("or", "pred"), hand=[np.bool_(True)],
         note="the second state differs from the first")
    case("stochastic-convert", "s8[4] stochastic-convert(p0, p1)",
         [arr([1.25, 1.25, -3.5, 7], "f32"),
          np.array([0, 0xFFFFFFFF, 0x10, 0xFFFFFFFF], np.uint32)],
         hand=[np.array([2, 1, -4, 7], np.int8)],
         note="rounds away from zero where the random number is below the fraction, else toward "
              "zero")


def four_bits():
    case("convert", "s4[9] convert(p0)", [arr([-9, -8, -7.6, -0.5, 0, 0.99, 6.5, 7, 8], "f32")])
    case("convert", "u4[6] convert(p0)", [np.array([-1, 0, 7, 15, 16, 250], np.int32)])
    case("convert", "bf16[4] convert(p0)", [arr([-8, -1, 0, 7], "s4")])
    case("add", "s4[5] add(p0, p1)", [arr([-8, 7, 3, -4, 0], "s4"), arr([-1, 1, 4, 4, 0], "s4")])
    case("multiply", "u4[5] multiply(p0, p1)",
         [arr([15, 7, 3, 4, 0], "u4"), arr([15, 2, 5, 4, 9], "u4")])


def rows_and_tiles():
    """What is moved by rows of memory: tiles of transpositions, whole rows of pads and
    concatenations."""
    for t in ("f32", "u8", "s8", "f16", "bf16", "s16"):
        x = uniform((19, 37), t)
        case("transpose", f"{t}[37,19] transpose(p0), dimensions={{1,0}}", [x], tol=0)
        case("transpose", f"{t}[6,3,20] transpose(p0), dimensions={{2,1,0}}",
             [uniform((20, 3, 6), t)], tol=0)
    for t in ("f32", "u8", "f16", "c64"):
        x = uniform((3, 9, 12), t)
        case("pad", f"{t}[3,11,12] pad(p0, p1), padding=0_0x1_1x0_0", [x, uniform((), t)], tol=0)
        case("pad", f"{t}[5,9,17] pad(p0, p1), padding=1_1x0_0x2_3", [x, uniform((), t)], tol=0)
        case("pad", f"{t}[9,14,5] pad(t, p1), padding=0_0x1_1x1_1", [x, uniform((), t)],
             body=f"t = {t}[9,12,3] transpose(p0), dimensions={{1,2,0}}", tol=0)
        case("concatenate", f"{t}[9,41] concatenate(t, p1, p2), dimensions={{1}}",
             [uniform((17, 9), t), uniform((9, 16), t), uniform((9, 8), t)],
             body=f"t = {t}[9,17] transpose(p0), dimensions={{1,0}}", tol=0)
        case("concatenate", f"{t}[40,10] concatenate(p0, p1, p2), dimensions={{1}}",
             [uniform((40, 1), t), uniform((40, 8), t), uniform((40, 1), t)], tol=0)


def near():
    """Elements a few apart, and turned: vectors that are whole, and what is left beside them. The
    matrix lies within the buffer to its last element."""
    for t in ("f32", "f64", "u32"):
        for stride in (2, 3, 5, 8, 9):
            n, columns = (21 if t == "f32" else 13), 20 * stride + 1
            last = (n - 1) * stride + 1
            x = np.arange(2 * columns).reshape(2, columns) % 241
            case("slice", f"{t}[2,{n}] add(s, s)", [arr(x[:, columns - last:], t)], tol=0,
                 body=f"s = {t}[2,{n}] slice(p0), slice={{[0:2], [0:{last}:{stride}]}}")
        x = np.arange(3 * 37).reshape(3, 37)
        for n in (37, 32, 5):
            case("reverse", f"{t}[3,{n}] add(s, s)", [arr(x[:, :n], t)], tol=0,
                 body=f"s = {t}[3,{n}] reverse(p0), dimensions={{1}}")
        case("reverse", f"{t}[3,18] add(s, u)", [arr(x, t)], tol=0,
             body=f"x = {t}[3,37] reverse(p0), dimensions={{1}}\n"
             f"s = {t}[3,18] slice(x), slice={{[0:3], [0:36:2]}}\n"
             f"u = {t}[3,18] slice(x), slice={{[0:3], [1:37:2]}}")


def main(argv):
    for f in (elementwise, converts, movement, dots, convs, reductions, indexing, control, linalg,
              batch_norms, random, inverse_functions, collectives, scans, four_bits,
              rows_and_tiles, near):
        f()
    for op, cases in FILES.items():
        if argv and op not in argv:
            continue
        with open(os.path.join(HERE, op + ".hlo"), "w") as out:
            out.write("// SPDX-License-Identifier: Apache-2.0\n" + "// ----\n".join(cases))
    print(f"{len(FILES)} files, {sum(map(len, FILES.values()))} cases")


main(sys.argv[1:])
