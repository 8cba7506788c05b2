# SPDX-License-Identifier: Apache-2.0
"""Families for the edges of what an operation is defined on: NaN, infinities, signed zeros and the
ends of every type, conversions between all types, contractions whose result has another type,
comparators and reducers of several steps, indices far outside, nested tuples, one replica's
collectives.

A function's value at an edge may be anything from NaN to 1e38, so a bound on its absolute error
says nothing. Such results are turned into what can be compared exactly (`classed`): is it NaN,
finite, above zero; and the value itself where it is small."""
import math

import numpy as np

from hlo_families import KEEP, index_array, ints, same_shape_body, size, window_of, window_text
from hlo_gen import (COMPLEX, DTYPES, FLOATS, INTS, PREC, Builder, Reject, bits, int_range,
                     is_complex, is_float, is_int)

F8 = ["f8e5m2", "f8e4m3fn", "f8e4m3", "f8e3m4", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz"]
# 80 and not more: exp(-100) is subnormal in f32, and XLA:CPU flushes it to zero.
EDGES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5,
         80.0, -80.0]
# Not for libm's accuracy but for its rules: large arguments whose results are far from every
# threshold.
LARGE = {"f64": [1e300, -1e300], "f32": [3e38, -3e38], "bf16": [3e38, -3e38], "f16": [6e4, -6e4]}


def numbers(b, t, values, dims=None):
    """An array of numbers drawn from `values`, as a parameter or a constant."""
    dims = b.dims(b.r.randint(0, 3), 1, 40) if dims is None else dims
    v = np.array([b.r.choice(values) for _ in range(size(dims))]).astype(DTYPES[t]).reshape(dims)
    given = (v, -4.0, 4.0, None, True)
    return b.param(t, dims, given=given) if b.entry else b.const(t, dims, given=given)


def done(b, text, t, dims):
    return b.emit(t, dims, text, 0 if t == "pred" else int_range(t)[0],
                  1 if t == "pred" else int_range(t)[1])


def classed(b, t, dims, name, ulps=64, zeros=False):
    """Results from value `name` of float type t: its class as s32 and, where it is below 1000,
    itself. zeros: the sign of a zero counts."""
    shape = f"[{','.join(map(str, dims))}]"
    put = lambda kind, rest: b.put(kind + shape, rest)  # noqa: E731
    zero, top = b.splat(b.scalar(t, 0), dims).name, b.splat(b.scalar(t, 64), dims).name
    nan, finite = put("pred",
                      f"compare({name}, {name}), direction=NE"), put("pred", f"is-finite({name})")
    marks = [nan, finite, put("pred", f"compare({name}, {zero}), direction=GT"),
             put("pred", f"compare({name}, {zero}), direction=LT")]
    if zeros:  # below +0 in total order and not NaN
        below = put("pred", f"compare({name}, {zero}), direction=LT, type=TOTALORDER")
        marks.append(put("pred", f"and({below}, {put('pred', f'not({nan})')})"))
    total = b.splat(b.scalar("s32", 0), dims).name
    for k, m in enumerate(marks):
        bit = b.splat(b.scalar("s32", 1 << k), dims).name
        none = b.splat(b.scalar("s32", 0), dims).name
        total = put("s32", f"or({total}, {put('s32', f'select({m}, {bit}, {none})')})")
    b.same(b.pool[-1], f"copy({total})", dims, "s32")
    last = b.pool[-1]
    last.lo, last.hi, last.q, last.err, last.special = 0, 31, 0, 0.0, False
    small = put("pred", f"compare({put(t, f'abs({name})')}, {top}), direction=LT")
    b.emit(t, dims, f"select({small}, {name}, {zero})", -64, 64, None,
           ulps * 2.0**(1 - min(PREC.get(t, 3), 48)) * 64 / 16)


EXACT = ["abs", "negate", "ceil", "floor", "round-nearest-afz", "round-nearest-even", "sign",
         "sqrt"]
SMOOTH = ["exponential", "exponential-minus-one", "log", "log-plus-one", "tanh", "logistic",
          "rsqrt", "cbrt", "erf", "acosh", "asinh", "atanh", "acos", "asin", "sinh", "cosh", "sine",
          "cosine", "tan"]


def f_special_unary(b):
    t, op = b.r.choice(FLOATS), b.r.choice(EXACT + SMOOTH)
    trig = op in ("sine", "cosine", "tan")
    x = numbers(b, t, EDGES + ([] if trig else LARGE[t]))
    y = b.put(x.text, f"{op}({x.name})")
    classed(b, t, x.dims, y, zeros=op in EXACT and op != "sign")


def f_special_binary(b):
    t, op = b.r.choice(FLOATS), b.r.choice(["add", "subtract", "multiply", "divide", "remainder",
                                            "power", "atan2", "maximum", "minimum"])
    # of large numbers they give subnormal ones, which XLA:CPU flushes to zero
    small = op in ("divide", "power", "atan2")
    x = numbers(b, t, EDGES + ([] if small else LARGE[t]))
    edges = [v for v in EDGES if op != "power" or v != -80]  # 3^-80 is subnormal, too
    y = numbers(b, t, edges + ([] if small or op == "remainder" else LARGE[t]), x.dims)
    if op == "atan2":
        return classed(b, t, x.dims, b.put(x.text, f"atan2({x.name}, {y.name})"))
    classed(b, t, x.dims, b.put(x.text, f"{op}({x.name}, {y.name})"),
            zeros=op in ("multiply", "divide"))


def f_special_compare(b):
    t = b.r.choice(FLOATS + F8[:2])
    x = numbers(b, t, EDGES)
    y = numbers(b, t, EDGES, x.dims)
    kind = b.r.random()
    if kind < 0.6:
        d = b.r.choice(["EQ", "NE", "GE", "GT", "LE", "LT"])
        return done(b, f"compare({x.name}, {y.name}), direction={d}" + (
                        ", type=TOTALORDER" if b.r.random() < 0.4 and t in FLOATS else ""), "pred",
                    x.dims)
    if t not in FLOATS:
        raise Reject
    z = numbers(b, t, EDGES, x.dims)
    classed(b, t, x.dims, b.put(x.text, f"clamp({x.name}, {y.name}, {z.name})"))


def f_special_reduce(b):
    """NaN and infinities through reductions and windows."""
    t, op = b.r.choice(FLOATS), b.r.choice(["add", "maximum", "minimum", "multiply"])
    x = numbers(b, t, b.r.choice([EDGES, [math.inf, 1.0, 2.0], [-math.inf, 0.0], [math.nan, 1.0]]),
                b.dims(b.r.randint(1, 3), 1, 40))
    first = b.scalar(t, {"add": 0, "multiply": 1, "maximum": -math.inf, "minimum": math.inf}[op])
    fn = b.scalar_fn(op, t)
    if b.r.random() < 0.5:
        d = sorted(b.r.sample(range(len(x.dims)), b.r.randint(1, len(x.dims))))
        out = tuple(n for k, n in enumerate(x.dims) if k not in d)
        if t != "f64" and op == "multiply" and size(x.dims) > 8:
            raise Reject
        text = f"reduce({x.name}, {first.name}), dimensions={ints(d)}, to_apply={fn}"
    else:
        w = [window_of(b, n) for n in x.dims]
        out = tuple(v[7] for v in w)
        text = f"reduce-window({x.name}, {first.name}), window={window_text(w)}, to_apply={fn}"
    y = b.put(f"{t}[{','.join(map(str, out))}]", text)
    classed(b, t, out, y, ulps=512)


def ends(t):
    if t == "pred":
        return [0, 1]
    lo, hi = int_range(t)
    return sorted({v for v in (lo, lo + 1, -2, -1, 0, 1, 2, 3, bits(t) - 1, bits(t), bits(t) + 1,
                               hi // 2, hi - 1, hi) if lo <= v <= hi})


def end_numbers(b, t, dims=None):
    dims = b.dims(b.r.randint(0, 3), 1, 60) if dims is None else dims
    choices = ends(t)
    v = np.array([b.r.choice(choices) for _ in range(size(dims))], dtype=object)
    v = (v.astype(np.uint64) if t[0] == "u" else v.astype(np.int64)).astype(DTYPES[t]).reshape(dims)
    given = (v, *int_range(t), 0, False)
    return b.param(t, dims, given=given) if b.entry else b.const(t, dims, given=given)


def f_int_ends(b):
    """Division by zero, the smallest number by -1, shifts beyond the width, sums that wrap."""
    unary = ["popcnt", "negate", "abs", "sign"]
    op = b.r.choice(["add", "subtract", "multiply", "divide", "divide", "remainder", "remainder",
                     "maximum", "minimum", "and", "or", "xor", "shift-left",
                     "shift-right-arithmetic", "shift-right-logical", "compare", "clamp", "power"]
                    + unary)
    t = b.r.choice(INTS[:4] if op in ("abs", "sign")
                   else INTS + (["s4", "u4"] if op not in ("power", "popcnt", "clamp") else []))
    x = end_numbers(b, t)
    if op in unary:
        return done(b, f"{op}({x.name})", t, x.dims)
    y = end_numbers(b, t, x.dims)
    if op == "power":
        y = b.splat(b.scalar(t, b.r.choice([0, 1, 2, 3] + ([-2] if t[0] == "s" else []))), x.dims)
    if op == "compare":
        return done(b, f"compare({x.name}, {y.name}), "
                       f"direction={b.r.choice(['EQ', 'NE', 'GE', 'GT', 'LE', 'LT'])}", "pred",
                    x.dims)
    if op == "clamp":
        return done(b, f"clamp({x.name}, {y.name}, {end_numbers(b, t, x.dims).name})", t, x.dims)
    done(b, f"{op}({x.name}, {y.name})", t, x.dims)


def f_convert_any(b):
    """Every type to every type, at the edges of both."""
    source, to = (b.r.choice(FLOATS + INTS + F8 + ["pred", "s4", "u4"]) for _ in range(2))
    if source in PREC or source in F8:
        x = numbers(b, source,
                    EDGES
                    + [7.5, 8.5, -8.5, 15.5, 127.5, 128.5, -128.5, 255.5, 256.5, 240.0, 448.0,
                       464.0, 479.0, 480.0, 1e-3, 2.0**-9, 2.0**-10]
                    + ([65519.0, 65520.0, 2147483648.0, -2147483904.0, 4294967296.0, 1e19, -1e19]
                       if source in ("f32", "f64", "bf16") else []))
    else:
        x = end_numbers(b, source)
    if to in PREC or to in F8:
        t = to if to in FLOATS else "f32"
        y = b.put(f"{to}[{','.join(map(str, x.dims))}]", f"convert({x.name})")
        if to in F8:
            y = b.put(f"f32[{','.join(map(str, x.dims))}]", f"convert({y})")
        return classed(b, t, x.dims, y, 4)
    done(b, f"convert({x.name})", to, x.dims)


def f_mixed(b):
    """Dots and convolutions whose result is wider than the operands."""
    r = b.r
    x_t, out = r.choice([("s8", "s32"), ("u8", "s32"), ("s16", "s32"), ("bf16", "f32"),
                         ("f16", "f32"), ("s8", "f32"), ("f8e5m2", "f32"), ("f8e4m3fn", "f32"),
                         ("s4", "s32"), ("bf16", "f64"), ("f32", "f64"), ("s32", "s64"),
                         ("u8", "u32")])
    new = lambda t, d: b.new(t, d, "dyadic" if t in PREC else None)  # noqa: E731
    if r.random() < 0.6:
        n, k, m = (r.choice([1, 2, 3, 8, 17]) for _ in range(3))
        lead = (r.choice([2, 3]),) if r.random() < 0.3 else ()
        x, y = new(x_t, lead + (n, k)), new(x_t, lead + ((k, m) if r.random() < 0.5 else (m, k)))
        c = len(lead) if y.dims[-1] == m and y.dims[-2] == k else len(lead) + 1
        text = (f"dot({x.name}, {y.name}), lhs_contracting_dims={{{len(lead) + 1}}}, "
                f"rhs_contracting_dims={{{c}}}"
                + (", lhs_batch_dims={0}, rhs_batch_dims={0}" if lead else ""))
        dims, taps = lead + (n, m), k
    else:
        ci, co, h = r.choice([1, 3, 8]), r.choice([1, 4, 16]), r.choice([4, 7])
        w = window_of(b, h, True, True, negative=False)
        x, y = new(x_t, (2, ci, h)), new(x_t, (co, ci, w[0]))
        text = (
            f"convolution({x.name}, {y.name}), window={window_text([w])}, dim_labels=bf0_oi0->bf0")
        dims, taps = (2, co, w[7]), ci * w[0]
    m = taps * x.m * y.m
    if is_int(out):
        return b.emit(out, dims, text, *(int_range(out)))
    q = (x.q or 0) + (y.q or 0) if None not in (x.q, y.q) else None
    q = q if q is not None and m * 2.0**q <= 2.0**PREC[out] else None
    b.emit(out, dims, text, -m, m, q,
           0.0 if q is not None else (taps + 2) * 2.0**(1 - min(PREC.get(x_t, 24), PREC[out])) * m)


def f_sort_more(b):
    """Three operands and comparators of several steps: two keys, magnitudes, keys that a constant
    changes."""
    dims = b.dims(b.r.randint(1, 3), 1)
    d = b.r.randrange(len(dims))
    kt, t2, t3 = b.r.choice(["s32", "f32", "u8", "f16", "s64"]), b.r.choice(
        ["s32", "f32", "u16", "bf16"]), b.r.choice(["s32", "pred", "f64", "c64", "s4"])
    key = b.new(kt, dims, "dyadic")
    second, third = b.new(t2, dims, "dyadic"), b.new(t3, dims)
    if key.special or second.special or key.err or second.err or third.special:
        raise Reject
    n = b.r.choice([2, 3])
    types = (kt, t2, t3)[:n]
    c = Builder(b.m)
    p = [c.put(f"{t}[]", f"parameter({2 * k + e})") for k, t in enumerate(types) for e in (0, 1)]
    x, y, kind = p[0], p[1], b.r.choice(["keys", "magnitude", "xor", "bias", "not", "wide"])
    if kind == "magnitude" and kt[0] != "u":
        x, y = c.put(f"{kt}[]", f"abs({x})"), c.put(f"{kt}[]", f"abs({y})")
    elif kind == "xor" and is_int(kt):
        k = c.put(f"{kt}[]", "constant(5)")
        x, y = c.put(f"{kt}[]", f"xor({x}, {k})"), c.put(f"{kt}[]", f"xor({y}, {k})")
    elif kind == "bias" and kt == "f32":
        k = c.put(f"{kt}[]", "constant(-2)")
        x, y = c.put(f"{kt}[]", f"multiply({x}, {k})"), c.put(f"{kt}[]", f"multiply({y}, {k})")
    elif kind == "wide" and kt == "f16":
        x, y = c.put("f32[]", f"convert({x})"), c.put("f32[]", f"convert({y})")
    less = c.put("pred[]", f"compare({x}, {y}), direction={b.r.choice(['LT', 'GT'])}")
    if kind == "keys":
        same = c.put("pred[]", f"compare({x}, {y}), direction=EQ")
        then = c.put("pred[]", f"compare({p[2]}, {p[3]}), direction={b.r.choice(['LT', 'GT'])}")
        less = c.put("pred[]", f"or({less}, {c.put('pred[]', f'and({same}, {then})')})")
    elif kind == "not":
        more = c.put("pred[]", f"compare({x}, {y}), direction=LE")
        less = c.put("pred[]", f"not({more})")
    fn = c.close(less, "less")
    vs = [key, second, third][:n]
    t = b.put(
        "(" + ", ".join(v.text for v in vs) + ")",
        f"sort({', '.join(v.name for v in vs)}), dimensions={{{d}}}, is_stable=true, to_apply={fn}")
    for k, v in enumerate(vs):
        b.same(v, f"get-tuple-element({t}), index={k}")


def f_reduce_more(b):
    """Reducers of several steps whose order does not matter."""
    kind = b.r.choice(["compare-select", "convert", "de-morgan", "three", "norm", "any"])
    dims = b.dims(b.r.randint(1, 4), 1)
    d = sorted(b.r.sample(range(len(dims)), b.r.randint(1, len(dims))))
    rest = tuple(n for k, n in enumerate(dims) if k not in d)
    c = Builder(b.m)
    if kind in ("compare-select", "norm"):
        x = b.new(b.r.choice(["s32", "f32", "u8", "s64"]), dims, "dyadic")
        p, q = (c.put(f"{x.t}[]", f"parameter({k})") for k in (0, 1))
        if kind == "norm" and x.t[0] != "u" and x.lo > -1e9:
            a, z = c.put(f"{x.t}[]", f"abs({p})"), c.put(f"{x.t}[]", f"abs({q})")
            fn, first = c.close(c.put(f"{x.t}[]", f"maximum({a}, {z})"), "norm"), b.scalar(x.t, 0)
        else:
            g = c.put("pred[]", f"compare({p}, {q}), direction={b.r.choice(['GT', 'GE'])}")
            fn, first = c.close(c.put(f"{x.t}[]", f"select({g}, {p}, {q})"), "pick"), b.scalar(
                x.t, int_range(x.t)[0] if is_int(x.t) else -math.inf)
        if kind == "norm" and size([dims[k] for k in d]) == 1:
            raise Reject  # XLA drops a reduction of one element
        return b.emit(x.t, rest,
                      f"reduce({x.name}, {first.name}), dimensions={ints(d)}, to_apply={fn}",
                      min(x.lo, -x.m), x.m, x.q, x.err, rounds=False)
    if kind == "convert":  # summed in f32, kept in bf16: exact for small whole numbers
        v = b.m.np.integers(-1, 2, dims).astype(DTYPES["bf16"])
        if size([dims[k] for k in d]) > 200:
            raise Reject
        given = (v, -1.0, 1.0, 0, False)
        x = b.param("bf16", dims, given=given) if b.entry else b.const("bf16", dims, given=given)
        p, q = (c.put("f32[]", f"convert({c.put('bf16[]', f'parameter({k})')})") for k in (0, 1))
        fn = c.close(c.put("bf16[]", f"convert({c.put('f32[]', f'add({p}, {q})')})"), "sum")
        n = size([dims[k] for k in d])
        return b.emit("bf16", rest, f"reduce({x.name}, {b.scalar('bf16', 0).name}), "
                                    f"dimensions={ints(d)}, to_apply={fn}", -n, n, 0, 0.0,
                      rounds=False)
    if kind in ("de-morgan", "any"):
        x = b.new("pred", dims)
        p, q = (c.put("pred[]", f"parameter({k})") for k in (0, 1))
        a, z = c.put("pred[]", f"not({p})"), c.put("pred[]", f"not({q})")
        if kind == "any":
            fn, first = c.close(c.put("pred[]", f"select({p}, {p}, {q})"),
                                "any"), b.scalar("pred", 0)
        else:
            o = c.put("pred[]", f"and({a}, {z})")
            fn, first = c.close(c.put("pred[]", f"not({o})"), "or"), b.scalar("pred", 0)
        return done(b, f"reduce({x.name}, {first.name}), dimensions={ints(d)}, to_apply={fn}",
                    "pred", rest)
    xs = [b.new("s32", dims), b.new("u8", dims), b.new("f32", dims, "dyadic")]
    p = [c.put(f"{t}[]", f"parameter({k})") for k, t in enumerate(("s32", "u8", "f32") * 2)]
    outs = [c.put("s32[]", f"add({p[0]}, {p[3]})"), c.put("u8[]", f"xor({p[1]}, {p[4]})"),
            c.put("f32[]", f"minimum({p[2]}, {p[5]})")]
    fn = c.close(c.put("(s32[], u8[], f32[])", f"tuple({', '.join(outs)})"), "three")
    firsts = [b.scalar("s32", 0), b.scalar("u8", 0), b.scalar("f32", math.inf)]
    shape = f"[{','.join(map(str, rest))}]"
    t = b.put(
        f"(s32{shape}, u8{shape}, f32{shape})",
        f"reduce({', '.join(v.name for v in xs + firsts)}), dimensions={ints(d)}, to_apply={fn}")
    b.emit("s32", rest, f"get-tuple-element({t}), index=0", *int_range("s32"))
    b.emit("u8", rest, f"get-tuple-element({t}), index=1", 0, 255)
    b.emit("f32", rest, f"get-tuple-element({t}), index=2", xs[2].lo, xs[2].hi, xs[2].q, xs[2].err,
           rounds=False)


def far(b, t, dims):
    """Indices from the whole range of their type."""
    lo, hi = int_range(t)
    choices = [v for v in (lo, lo + 1, -3, -1, 0, 1, 2, 3, 5, 100, hi - 1, hi) if lo <= v <= hi]
    v = np.array([b.r.choice(choices) for _ in range(size(dims))], dtype=object)
    v = (v.astype(np.uint64) if t[0] == "u" else v.astype(np.int64)).astype(DTYPES[t]).reshape(dims)
    given = (v, lo, hi, 0, False)
    return b.param(t, dims, given=given) if b.entry else b.const(t, dims, given=given)


def f_far_index(b):
    """Indices of any integer type far outside."""
    x = b.pick(lambda v: v.dims and 0 not in v.dims and v.name not in b.m.sliced and v.t not in F8,
               lambda: b.new(dims=b.dims(b.r.randint(1, 3), 1)))
    t, kind = b.r.choice(INTS), b.r.choice(["slice", "update", "gather", "scatter"])
    if kind in ("slice", "update"):
        at = [far(b, t, ()) for _ in x.dims]
        sizes = tuple(b.r.randint(1, n) for n in x.dims)
        if kind == "slice":
            b.m.sliced.add(b.same(x,
                                  f"dynamic-slice({', '.join([x.name] + [v.name for v in at])}), "
                                  f"dynamic_slice_sizes={ints(sizes)}", sizes).name)
            return
        u = b.new(x.t, sizes, "dyadic" if is_float(x.t) else None)
        q = None if x.q is None or u.q is None else max(x.q, u.q)
        b.emit(x.t, x.dims,
               f"dynamic-update-slice({', '.join([x.name, u.name] + [v.name for v in at])})",
               min(x.lo, u.lo), max(x.hi, u.hi), q, max(x.err, u.err), x.special or u.special,
               rounds=False)
        return
    n = b.r.choice([1, 3, 6])
    i = far(b, t, (n, 1))
    if kind == "gather":
        w = b.r.randint(1, x.dims[0])
        y = b.same(x, f"gather({x.name}, {i.name}), offset_dims={ints(range(1, len(x.dims) + 1))}, "
                      f"collapsed_slice_dims={{}}, start_index_map={{0}}, "
                      "index_vector_dim=1, " f"slice_sizes={ints((w,) + x.dims[1:])}",
                   (n, w) + x.dims[1:])
        b.m.sliced.add(y.name)
        return
    if x.t == "pred" or is_complex(x.t) or x.t in ("s4", "u4"):
        raise Reject
    u = b.new(x.t, (n,) + x.dims[1:], "dyadic" if is_float(x.t) else None)
    b.emit(x.t, x.dims,
           f"scatter({x.name}, {i.name}, {u.name}), "
           f"update_window_dims={ints(range(1, len(x.dims)))}, inserted_window_dims={{0}}, "
           f"scatter_dims_to_operand_dims={{0}}, " "index_vector_dim=1, "
                                                   f"to_apply={b.scalar_fn('maximum', x.t)}",
           min(x.lo, u.lo), max(x.hi, u.hi), None if None in (x.q, u.q) else max(x.q, u.q),
           max(x.err, u.err), x.special or u.special, rounds=False)


def f_scatter_set(b):
    """Scatters that overwrite: every place is written once at most. With flags, sorted, with two
    batching dimensions."""
    n, m = b.r.choice([4, 7, 16]), b.r.choice([1, 3, 4])
    k = b.r.randint(1, m) if m > 1 else 1
    t = b.r.choice(["f32", "s32", "pred", "c64", "bf16", "u8", "f64"])
    x = b.new(t, (n, m), "dyadic")
    count = b.r.randint(1, n)
    places = b.m.np.permutation(n)[:count]
    flags = ""
    if b.r.random() < 0.4:
        places.sort()
        flags = ", indices_are_sorted=true"
    if b.r.random() < 0.5:
        flags += ", unique_indices=true"
    it = b.r.choice(["s32", "u32", "s64", "u8"])
    given = (places.reshape(count, 1).astype(DTYPES[it]), 0, n, 0, False)
    i = b.param(it, (count, 1), given=given) if b.entry else b.const(it, (count, 1), given=given)
    u = b.new(t, (count, k), "dyadic")
    c = Builder(b.m)
    c.put(f"{t}[]", "parameter(0)")
    fn = c.close(c.put(f"{t}[]", "parameter(1)"), "set")
    q = None if x.q is None or u.q is None else max(x.q, u.q)
    b.emit(t, x.dims, f"scatter({x.name}, {i.name}, {u.name}), update_window_dims={{1}}, "
                      f"inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, "
                      f"index_vector_dim=1{flags}, to_apply={fn}", min(x.lo, u.lo), max(x.hi, u.hi),
           q, max(x.err, u.err), x.special or u.special, rounds=False)


def f_batched_more(b):
    """Gathers and scatters with two batching dimensions in another order."""
    p, q, n, k, w = (b.r.choice([1, 2, 3]) for _ in range(5))
    x = b.new(b.r.choice(["f32", "s32", "u8", "f64"]), (p, q, n, w), "dyadic")
    swap = b.r.random() < 0.5
    lead = (q, p) if swap else (p, q)
    i = index_array(b, lead + (k, 1), n)
    sb = "{1,0}" if swap else "{0,1}"
    if b.r.random() < 0.5:
        return b.same(
            x,
            f"gather({x.name}, {i.name}), offset_dims={{3}}, collapsed_slice_dims={{2}}, "
            f"start_index_map={{2}}, operand_batching_dims={{0,1}}, "
            f"start_indices_batching_dims={sb}, " f"index_vector_dim=3, slice_sizes={{1,1,1,{w}}}",
            lead + (k, w))
    u = b.new(x.t, lead + (k, w), "dyadic")
    b.emit(x.t, x.dims,
           f"scatter({x.name}, {i.name}, {u.name}), update_window_dims={{3}}, "
           f"inserted_window_dims={{2}}, scatter_dims_to_operand_dims={{2}}, "
           f"input_batching_dims={{0,1}}, " f"scatter_indices_batching_dims={sb}, "
                                            "index_vector_dim=3, "
                                            f"to_apply={b.scalar_fn('minimum', x.t)}",
           min(x.lo, u.lo), max(x.hi, u.hi), None if None in (x.q, u.q) else max(x.q, u.q),
           max(x.err, u.err), x.special or u.special, rounds=False)


def f_nested(b):
    """Tuples in tuples through calls and conditionals."""
    if b.depth > 2:
        raise Reject
    xs = [b.pick(lambda v: True, b.new) for _ in range(3)]
    inner = "(" + xs[1].text + ", " + xs[2].text + ")"
    outer = f"({xs[0].text}, {inner})"
    t = b.put(outer, f"tuple({xs[0].name}, {b.put(inner, f'tuple({xs[1].name}, {xs[2].name})')})")

    def body(stem):
        s = Builder(b.m, False, b.depth + 1)
        p = s.put(outer, "parameter(0)")
        pair = s.put(inner, f"get-tuple-element({p}), index=1")
        a = s.same(xs[0], f"get-tuple-element({p}), index=0")
        y, z = s.same(xs[1], f"get-tuple-element({pair}), index=0"), s.same(
            xs[2], f"get-tuple-element({pair}), index=1")
        outs = [same_shape_body(s, v, KEEP) if s.r.random() < 0.6 else v for v in (a, y, z)]
        again = (s.put(inner, f"tuple({outs[1].name}, {outs[2].name})")
                 if outs[1] is not y or outs[2] is not z or s.r.random() < 0.5 else pair)
        return s.close(s.put(outer, f"tuple({outs[0].name}, {again})"), stem), outs

    if b.r.random() < 0.4:
        fn, outs = body("callee")
        r, both = b.put(outer, f"call({t}), to_apply={fn}"), [outs]
    else:
        p = b.pick(lambda v: not v.dims and v.t == "pred", lambda: b.new("pred", ()), 0.7)
        (f, one), (g, two) = body("branch"), body("branch")
        r, both = b.put(outer, f"conditional({p.name}, {t}, {t}), true_computation={f}, "
                               f"false_computation={g}"), [one, two]
    pair = b.put(inner, f"get-tuple-element({r}), index=1")
    for k, (src, at) in enumerate(((r, 0), (pair, 0), (pair, 1))):
        vs = [o[k] for o in both]
        qs = [v.q for v in vs]
        b.emit(vs[0].t, vs[0].dims, f"get-tuple-element({src}), index={at}", min(v.lo for v in vs),
               max(v.hi for v in vs), None if None in qs else max(qs), max(v.err for v in vs),
               any(v.special for v in vs), rounds=False)


def f_one_replica(b):
    """Collectives among one participant."""
    x = b.pick(lambda v: v.t in ("f32", "s32", "f64", "u8") and not v.special,
               lambda: b.new(b.r.choice(["f32", "s32"]), None, "dyadic"))
    if x.special:
        raise Reject
    kind = b.r.choice(["all-reduce", "all-gather", "all-to-all", "collective-permute",
                       "reduce-scatter", "id"])
    g = "replica_groups={{0}}"
    if kind == "id":
        return b.emit("u32", (), f"{b.r.choice(['replica-id', 'partition-id'])}()", 0, 0)
    if kind == "all-reduce":
        return b.same(x, f"all-reduce({x.name}), {b.r.choice([g, 'replica_groups={}'])}, "
                         f"to_apply={b.scalar_fn('add', x.t)}")
    if kind == "collective-permute":
        return b.same(x, f"collective-permute({x.name}), source_target_pairs={{{{0,0}}}}")
    if not x.dims:
        raise Reject
    d = b.r.randrange(len(x.dims))
    if kind == "reduce-scatter":
        return b.same(x, f"reduce-scatter({x.name}), {g}, dimensions={{{d}}}, "
                         f"to_apply={b.scalar_fn('add', x.t)}")
    b.same(x, f"{kind}({x.name}), {g}, dimensions={{{d}}}")


def f_solve_complex(b):
    """Triangular systems of complex numbers, transposed and conjugated."""
    n, k = b.r.choice([1, 2, 3, 4]), b.r.choice([1, 3])
    left, f = b.r.random() < 0.5, lambda v: "true" if v else "false"  # noqa: E731
    g = b.m.np
    a = (g.integers(-8, 9, (n, n)) + 1j * g.integers(-8, 9, (n, n))) / 16.0 / n + 2 * np.eye(n)
    t = b.r.choice(COMPLEX)
    given = (a.astype(DTYPES[t]), -4.0, 4.0, None, False)
    a = b.param(t, (n, n), given=given) if b.entry else b.const(t, (n, n), given=given)
    x = b.new(t, (n, k) if left else (k, n))
    if x.m > 8:
        raise Reject
    m = 16 * max(x.m, 1)
    b.emit(
        t, x.dims,
        f"triangular-solve({a.name}, {x.name}), left_side={f(left)}, "
        f"lower={f(b.r.random() < 0.5)}, unit_diagonal={f(b.r.random() < 0.25)}, "
        f"transpose_a={b.r.choice(['NO_TRANSPOSE', 'TRANSPOSE', 'ADJOINT'])}",
        -m, m, None, 100 * 2.0**(1 - PREC[t]) * m)


def f_precision_edges(b):
    e, m = b.r.choice([(8, 23), (5, 10), (8, 7), (4, 3), (5, 2), (2, 1), (3, 0), (11, 52)])
    # without mantissa bits NaN is infinity by XLA's definition, NaN by XLA:CPU
    values = [v for v in EDGES if m or v == v]
    x = numbers(b, b.r.choice(FLOATS), values + [1.75, 6.0, 7.0, 240.0, 65504.0 / 2])
    if x.t in ("f16", "bf16") and (e > 8 or m > 10) or x.t == "f32" and e > 8:
        raise Reject
    classed(b, x.t, x.dims,
            b.put(x.text, f"reduce-precision({x.name}), exponent_bits={e}, mantissa_bits={m}"), 2)


FAMILIES = [(f_special_unary, 3), (f_special_binary, 3), (f_special_compare, 1.5),
            (f_special_reduce, 1.5), (f_int_ends, 4), (f_convert_any, 4), (f_mixed, 3),
            (f_sort_more, 2), (f_reduce_more, 2), (f_far_index, 3), (f_scatter_set, 1),
            (f_batched_more, 1), (f_nested, 1.5), (f_one_replica, 0.7), (f_solve_complex, 0.5),
            (f_precision_edges, 0.5)]
