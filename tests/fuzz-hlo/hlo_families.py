# SPDX-License-Identifier: Apache-2.0
"""The operation families of the generator: each f_* picks operands from the builder's pool (or
makes them), emits one operation (or the few that belong together) and states the interval and error
of the result. hlo_gen.py has the vocabulary."""
import itertools
import math

import numpy as np

from hlo_gen import (COMPLEX, DTYPES, FLOATS, INTS, PREC, SMALL_FLOATS, Builder, Reject, bits,
                     int_range, is_complex, is_float, is_int, size)


def ints(v):
    return "{" + ",".join(map(str, v)) + "}"


def no_negative_zero(v):
    """Implementations disagree on the sign of some zeros: sign, maximum, sums. Inputs keep
    theirs."""
    return v.lo > 0 or v.hi < 0 or v.name.startswith("p.")


# ---- elementwise

def f_unary_smooth(b):
    """Functions with a bounded slope on the operand's interval, or on an exact operand."""
    op = b.r.choice(["exponential", "exponential-minus-one", "tanh", "logistic", "sine", "cosine",
                     "log", "log-plus-one", "sqrt", "rsqrt", "cbrt", "erf", "tan"])
    x = b.float_val(small=b.r.random() < 0.05)
    lo, hi, e, m = x.lo, x.hi, x.err, x.m
    slope = 1.0
    if op in ("exponential", "exponential-minus-one"):
        if hi > 20:
            raise Reject
        shift = 1 if op != "exponential" else 0
        out, slope, acc = (math.exp(max(lo, -50)) * 0 - shift, math.exp(hi)), math.exp(hi), 1 + m
    elif op in ("tanh", "erf"):
        out, slope, acc = (-1, 1), 1.2, 1
    elif op == "logistic":
        out, slope, acc = (0, 1), 0.25, 1
    elif op in ("sine", "cosine"):
        if m > 30:
            raise Reject
        out, slope, acc = (-1, 1), 1, 1 + m
    elif op == "tan":
        if m > 1.2:
            raise Reject
        out, slope, acc = (-2.6, 2.6), 8, 4
    elif op == "log":
        if lo < 0.05:
            raise Reject
        a = max(abs(math.log(lo)), abs(math.log(max(hi, lo))))
        out, slope, acc = (-a, a), 1 / lo, 1
    elif op == "log-plus-one":
        if lo < -0.9:
            raise Reject
        a = max(abs(math.log1p(lo)), abs(math.log1p(max(hi, lo))))
        out, slope, acc = (-a, a), 1 / (1 + lo), 1
    elif op in ("sqrt", "rsqrt", "cbrt"):
        if lo < (0.05 if e or op == "rsqrt" else 0) and not (op == "cbrt" and e == 0):
            raise Reject
        least = max(lo, 1e-3)
        out = {"sqrt": (0, math.sqrt(max(hi, 0))), "rsqrt": (0, 1 / math.sqrt(least)),
               "cbrt": (-(m ** (1 / 3)), m ** (1 / 3))}[op]
        slope, acc = (0.5 * least**-1.5 if op == "rsqrt" else 1 / math.sqrt(least)) + 1, 1
    mag = max(abs(out[0]), abs(out[1]))
    b.emit(x.t, x.dims, f"{op}({x.name})", out[0], out[1], None,
           slope * e + 8 * acc * 2.0**(1 - min(PREC[x.t], 24 if x.t != "f64" else 48)) * mag)


def f_unary_exact(b):
    op = b.r.choice(["abs", "negate", "ceil", "floor", "round-nearest-afz", "round-nearest-even",
                     "sign", "is-finite", "not", "popcnt", "count-leading-zeros", "abs", "negate"])
    if op in ("not", "popcnt", "count-leading-zeros"):
        x = b.pick(lambda v: is_int(v.t) or (v.t == "pred" and op == "not"),
                   lambda: b.new(b.r.choice(INTS + ["pred", "s4", "u4"] if op == "not" else INTS)))
        if op == "count-leading-zeros" and x.lo < 0:
            raise Reject  # XLA's constant folder gives -32 for negative numbers
        if op == "popcnt" and x.t == "s4":
            raise Reject  # XLA:CPU counts the eight bits that it keeps the number in
        lo, hi = int_range(x.t) if op == "not" else (0, bits(x.t))
        return b.emit(x.t, x.dims, f"{op}({x.name})", lo, hi)
    if op == "is-finite":
        x = b.float_val(special=True, small=True)
        return b.emit("pred", x.dims, f"is-finite({x.name})", 0, 1)
    if op in ("abs", "negate", "sign") and b.r.random() < 0.35:
        x = b.pick(lambda v: is_int(v.t) and (op == "negate" or v.t[0] == "s"),
                   lambda: b.new(b.r.choice(INTS[:4])))
        m = max(abs(x.lo), abs(x.hi))
        lo, hi = (0, m) if op == "abs" else (-m, m) if op == "negate" else (-1, 1)
        return b.emit(x.t, x.dims, f"{op}({x.name})", lo, hi)
    if op in ("abs", "negate"):
        x = b.float_val(special=True, small=True)
        lo, hi = (0, x.m) if op == "abs" else (-x.hi, -x.lo)
        return b.emit(x.t, x.dims, f"{op}({x.name})", lo, hi, x.q, x.err, x.special, rounds=False)
    x = b.float_val(exact=True, special=True, small=True)
    lo, hi = (-1, 1) if op == "sign" else (math.floor(x.lo) - 1, math.ceil(x.hi) + 1)
    b.emit(x.t, x.dims, f"{op}({x.name})", lo, hi, 0, 0.0, x.special)


def combine(op, x, y):
    """(lo, hi, q, err) of an exact x op y."""
    q = max(x.q, y.q) if x.q is not None and y.q is not None else None
    if op == "add":
        return x.lo + y.lo, x.hi + y.hi, q, x.err + y.err
    if op == "subtract":
        return x.lo - y.hi, x.hi - y.lo, q, x.err + y.err
    if op == "multiply":
        c = [x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi]
        return min(c), max(
            c), None if q is None else x.q + y.q, x.err * y.m + y.err * x.m + x.err * y.err
    if op == "maximum":
        return max(x.lo, y.lo), max(x.hi, y.hi), q, max(x.err, y.err)
    return min(x.lo, y.lo), min(x.hi, y.hi), q, max(x.err, y.err)


def f_binary(b):
    op = b.r.choice(["add", "subtract", "multiply", "maximum", "minimum"])
    x = b.pick(lambda v: v.t != "pred" and not is_complex(v.t),
               lambda: b.new(b.r.choice(FLOATS + INTS + SMALL_FLOATS + ["f32"] * 6 + ["s4"])))
    y = b.like(x)
    if b.r.random() < 0.5:
        x, y = y, x
    lo, hi, q, e = combine(op, x, y)
    if x.t == "s4" and (lo < -8 or hi > 7) or x.t == "u4" and (lo < 0 or hi > 15):
        # XLA:CPU computes in bytes and wraps where a value is stored, so not before a convert
        raise Reject
    b.emit(x.t, x.dims, f"{op}({x.name}, {y.name})", lo, hi, q, e, x.special or y.special,
           rounds=op not in ("maximum", "minimum"))


def f_divide(b):
    if b.r.random() < 0.35:
        x = b.pick(lambda v: is_int(v.t), lambda: b.new(b.r.choice(INTS)))
        y = b.like(x)
        m = max(abs(x.lo), abs(x.hi), 1)
        if b.r.random() < 0.5:
            lo, hi = (0, int_range(x.t)[1]) if x.t[0] == "u" else (-m, m)
            return b.emit(x.t, x.dims, f"divide({x.name}, {y.name})", lo, hi)
        return b.emit(x.t, x.dims, f"remainder({x.name}, {y.name})", 0 if x.t[0] == "u" else -m, m)
    if b.r.random() < 0.25:  # exact in every implementation
        x = b.float_val(exact=True)
        y = b.like(x, lambda v: v.err == 0)
        if y.err or y.special or x.m > 1e3:
            raise Reject
        q = max(x.q, y.q) if x.q is not None and y.q is not None else None
        return b.emit(x.t, x.dims, f"remainder({x.name}, {y.name})", -x.m, x.m, q, 0.0, True,
                      rounds=False)
    x = b.float_val()
    y = b.like(x, lambda v: v.lo > 0.05 or v.hi < -0.05)
    least = min(abs(y.lo), abs(y.hi))
    if y.special or y.lo * y.hi <= 0 or least < 0.05:
        raise Reject
    m = x.m / least
    b.emit(x.t, x.dims, f"divide({x.name}, {y.name})", -m, m, None,
           x.err / least + x.m * y.err / least**2)


def f_power(b):
    if b.r.random() < 0.3:
        x = b.pick(lambda v: is_int(v.t), lambda: b.new(b.r.choice(INTS)))
        k = b.r.randrange(4)
        y = b.splat(b.scalar(x.t, k), x.dims)
        m = max(abs(x.lo), abs(x.hi), 1)**k
        return b.emit(x.t, x.dims, f"power({x.name}, {y.name})", -m if x.t[0] == "s" else 0, m)
    x = b.float_val()
    if b.r.random() < 0.5:
        k = b.r.choice([2, 1, 0.5, 3, -1, 0])
        if (k in (0.5, -1) and x.lo < 0.05) or (k == 3 and x.lo < 0):
            raise Reject
        y, m = b.splat(b.scalar(x.t, k), x.dims), x.m**abs(k) if k > 0 else 25.0
        slope = max(abs(k) * x.m**(k - 1), 25) if k else 0
        if k in (0.5, -1):
            slope = 400.0
        return b.emit(x.t, x.dims, f"power({x.name}, {y.name})", -m if k == 1 else 0, max(m, 1),
                      None, slope * x.err + 8 * 2.0**(1 - min(PREC[x.t], 48)) * max(m, 1))
    y = b.like(x)
    if x.lo < 0.05 or y.special or y.m > 4 or x.m > 50:
        raise Reject
    a = y.m * max(abs(math.log(x.lo)), abs(math.log(max(x.hi, x.lo))))
    m = math.exp(a)
    e = m * (y.m / x.lo * x.err + max(abs(math.log(x.lo)), abs(math.log(max(x.hi, x.lo)))) * y.err
             + 8 * (1 + a) * 2.0**(1 - min(PREC[x.t], 48)))
    b.emit(x.t, x.dims, f"power({x.name}, {y.name})", 0, m, None, e)


def f_atan2(b):
    x = b.float_val(exact=True, t=b.r.choice(["f32", "f32", "f64", "bf16", "f16"]))
    y = b.like(x, lambda v: v.err == 0)
    if y.err or y.special or not (no_negative_zero(x) and (no_negative_zero(y) or x.lo * x.hi > 0)):
        raise Reject
    b.emit(x.t, x.dims, f"atan2({x.name}, {y.name})", -3.2, 3.2, None,
           16 * 2.0**(1 - min(PREC[x.t], 48)))


def f_bits(b):
    op = b.r.choice(["and", "or", "xor", "shift-left", "shift-right-arithmetic",
                     "shift-right-logical"])
    x = b.pick(lambda v: is_int(v.t) or (v.t == "pred" and op[0] != "s"),
               lambda: b.new(b.r.choice(INTS + ([] if op[0] == "s" else ["pred"]))))
    y = b.like(x)
    lo, hi = int_range(x.t)
    b.emit(x.t, x.dims, f"{op}({x.name}, {y.name})", lo, hi)


def f_compare(b):
    x = b.pick(lambda v: v.err == 0, lambda: b.new())
    y = b.like(x, lambda v: v.err == 0)
    if y.err:
        raise Reject
    d = b.r.choice(["EQ", "NE"] + ([] if is_complex(x.t) else ["GE", "GT", "LE", "LT"]))
    total = (is_float(x.t) and x.t not in SMALL_FLOATS and no_negative_zero(x)
             and no_negative_zero(y) and b.r.random() < 0.15)
    b.emit("pred", x.dims,
           f"compare({x.name}, {y.name}), direction={d}" + (", type=TOTALORDER" if total else ""),
           0, 1)


def f_select(b):
    x = b.pick(lambda v: True, b.new)
    y = b.like(x)
    scalar = b.r.random() < 0.2
    want = () if scalar else x.dims
    p = b.pick(lambda v: v.t == "pred" and v.dims == want, lambda: b.new("pred", want), 0.7)
    q = max(x.q, y.q) if x.q is not None and y.q is not None else None
    b.emit(x.t, x.dims, f"select({p.name}, {x.name}, {y.name})", min(x.lo, y.lo), max(x.hi, y.hi),
           q, max(x.err, y.err), x.special or y.special, rounds=False)


def f_clamp(b):
    x = b.pick(lambda v: (is_float(v.t) and v.t not in SMALL_FLOATS) or is_int(v.t),
               lambda: b.new(b.r.choice(FLOATS + INTS)))
    if b.r.random() < 0.7:
        lo, hi = sorted(b.r.sample([-4, -2, -1, 0, 1, 2, 3, 6] if x.t[0] != "u" else range(8), 2))
        l, h = b.scalar(x.t, lo), b.scalar(x.t, hi)
        if b.r.random() < 0.3:
            l, h = b.splat(l, x.dims), b.splat(h, x.dims)
    else:
        l, h = b.like(x), b.like(x)
    qs = [v.q for v in (l, x, h)]
    b.emit(x.t, x.dims, f"clamp({l.name}, {x.name}, {h.name})", min(l.lo, h.lo, x.lo),
           max(l.hi, h.hi, x.hi) if l.dims else max(min(x.hi, h.hi), l.hi),
           None if None in qs else max(qs), max(l.err, x.err, h.err),
           l.special or x.special or h.special, rounds=False)


def f_convert(b):
    x = b.pick(lambda v: True, b.new)
    if is_complex(x.t):
        to = "c128" if x.t == "c64" else "c64"
        return b.emit(to, x.dims, f"convert({x.name})", x.lo, x.hi, x.q, x.err)
    to = b.r.choice(FLOATS + INTS + ["pred", "f32", "s32"]
                    + (COMPLEX if x.t in FLOATS and not x.special else [])
                    + (SMALL_FLOATS if b.r.random() < 0.2 and x.t != "pred" else []))
    if x.t in PREC and (to not in PREC):
        if x.err:
            raise Reject
        if to == "pred":
            return b.emit("pred", x.dims, f"convert({x.name})", 0, 1)
        if x.t in SMALL_FLOATS and to[0] == "u":
            raise Reject
        lo, hi = int_range(to)  # out of range: the nearest end; NaN: 0
        return b.emit(to, x.dims, f"convert({x.name})",
                      lo if x.special else max(math.floor(x.lo), lo),
                      hi if x.special else min(math.ceil(x.hi), hi))
    if to in PREC:
        return b.emit(to, x.dims, f"convert({x.name})", float(x.lo), float(x.hi), x.q, x.err,
                      x.special)
    b.emit(to, x.dims, f"convert({x.name})", *((0, 1) if to == "pred" else (x.lo, x.hi)))


def f_bitcast_convert(b):
    x = b.pick(lambda v: v.err == 0 and not v.special and v.t not in (
                   "pred", "s4", "u4", "f8e5m2", "f8e4m3fn") and not is_complex(v.t) and (
                   is_int(v.t) or no_negative_zero(v)), lambda: b.new(b.r.choice(INTS + FLOATS)))
    to = b.r.choice(INTS)
    n, k = bits(x.t), bits(to)
    lo, hi = int_range(to)
    if n == k:
        dims = x.dims
    elif n > k:
        dims = x.dims + (n // k,)
    else:
        if not x.dims or x.dims[-1] != k // n:
            raise Reject
        dims = x.dims[:-1]
    if len(dims) > 7:
        raise Reject
    b.emit(to, dims, f"bitcast-convert({x.name})", lo, hi)


def f_reduce_precision(b):
    x = b.float_val(exact=True, t=b.r.choice(["f32", "f32", "f64", "bf16", "f16"]))
    e, m = b.r.choice([(8, 7), (5, 10), (5, 2), (8, 3), (4, 3)])
    if x.m > (2.0**7 if e == 4 else 2.0**15):
        raise Reject
    b.emit(x.t, x.dims, f"reduce-precision({x.name}), exponent_bits={e}, mantissa_bits={m}",
           x.lo * 1.5, x.hi * 1.5, x.q, 0.0, rounds=False)


def f_complex(b):
    kind = b.r.choice(["make", "real", "imag", "abs", "arith", "arith", "negate", "exp"])
    if kind == "make":
        x = b.float_val(t=b.r.choice(["f32", "f32", "f64"]))
        y = b.like(x, lambda v: not v.special)
        if y.special:
            raise Reject
        q = max(x.q, y.q) if x.q is not None and y.q is not None else None
        m = max(x.m, y.m)
        return b.emit("c64" if x.t == "f32" else "c128", x.dims, f"complex({x.name}, {y.name})", -m,
                      m, q, max(x.err, y.err), rounds=False)
    x = b.pick(lambda v: is_complex(v.t), lambda: b.new(b.r.choice(COMPLEX)))
    real = "f32" if x.t == "c64" else "f64"
    if kind in ("real", "imag"):
        return b.emit(real, x.dims, f"{kind}({x.name})", -x.m, x.m, x.q, x.err, rounds=False)
    if kind == "abs":
        return b.emit(real, x.dims, f"abs({x.name})", 0, 1.5 * x.m, None,
                      1.5 * x.err + 8 * 2.0**(1 - PREC[x.t]) * x.m)
    if kind == "negate":
        return b.emit(x.t, x.dims, f"negate({x.name})", -x.m, x.m, x.q, x.err)
    if kind == "exp":
        if x.m > 8:
            raise Reject
        m = math.exp(x.m)
        return b.emit(x.t, x.dims, f"exponential({x.name})", -m, m, None,
                      m * (2 * x.err + 16 * (1 + x.m) * 2.0**(1 - PREC[x.t])))
    y = b.like(x)
    op = b.r.choice(["add", "subtract", "multiply"])
    m = 2 * x.m * y.m if op == "multiply" else x.m + y.m
    e = 2 * (x.m * y.err + y.m * x.err + x.err * y.err) if op == "multiply" else x.err + y.err
    q = None if x.q is None or y.q is None else x.q + y.q if op == "multiply" else max(x.q, y.q)
    b.emit(x.t, x.dims, f"{op}({x.name}, {y.name})", -m, m, q, e)


def f_complex_function(b):
    """On numbers with a positive real part, where no branch cut is near."""
    t = b.r.choice(["f32", "f32", "f64"])
    x = (b.new(t, None, "positive") if b.entry
         else b.splat(b.scalar(t, b.r.choice([0.5, 1, 2])), b.dims()))
    if x.lo < 0.4 or x.m > 4 or x.special:
        raise Reject
    y = b.like(x, lambda v: v.err == 0 and v.m <= 4 and not v.special)
    if y.err or y.m > 4 or y.special:
        raise Reject
    ct, eps = ("c64" if t == "f32" else "c128"), 2.0**(1 - PREC[t])
    z = b.emit(ct, x.dims, f"complex({x.name}, {y.name})", -4, 4, None, 0.0, rounds=False)
    op = b.r.choice(["log", "sqrt", "rsqrt", "tanh", "sine", "cosine", "divide", "power",
                     "exponential", "log-plus-one", "exponential-minus-one", "is-finite", "sign",
                     "atan2", "cbrt", "logistic"])
    if op in ("is-finite", "sign", "atan2", "cbrt", "logistic"):
        op = "abs"
    if op == "abs":
        return b.emit(t, x.dims, f"abs({z.name})", 0, 6, None, 32 * eps * 6)
    if op in ("divide", "power"):
        w = b.splat(b.scalar(ct, b.r.choice([2, 0.5, 1])), x.dims) if op == "power" else z
        num = b.like(z) if op == "divide" else z
        if num.m > 100:
            raise Reject
        m = 64.0 if op == "power" else 4 * num.m + 1
        return b.emit(ct, x.dims, f"{op}({num.name}, {w.name})", -m, m, None,
                      8 * num.err + 128 * eps * m)
    m = {"log": 4, "sqrt": 4, "rsqrt": 4, "tanh": 4, "exponential": 60, "exponential-minus-one": 60,
         "log-plus-one": 4}.get(op, 64)
    b.emit(ct, x.dims, f"{op}({z.name})", -m, m, None, 256 * eps * m)


# ---- shapes

def f_reshape(b):
    x = b.pick(lambda v: True, b.new)
    n, dims = size(x.dims), []
    if n == 0:
        dims = list(x.dims)
        b.r.shuffle(dims)
    else:
        factors = [p for d in x.dims for p in factor(d)]
        b.r.shuffle(factors)
        rank = b.r.randint(1, min(len(factors) + 1, 6))
        dims = [1] * rank
        for p in factors:
            dims[b.r.randrange(rank)] *= p
        if n == 1 and b.r.random() < 0.4:
            dims = []
    b.same(x, f"reshape({x.name})", tuple(dims))


def factor(n):
    out, p = [], 2
    while n > 1:
        while n % p == 0:
            out.append(p)
            n //= p
        p += 1
    return out


def f_broadcast(b):
    x = b.pick(lambda v: size(v.dims) <= 400, b.new)
    rank = len(x.dims) + b.r.choice([0, 1, 1, 2])
    if rank > 6:
        raise Reject
    where = sorted(b.r.sample(range(rank), len(x.dims)))
    room = b.m.cap // max(size(x.dims), 1)
    dims = [0] * rank
    for d in range(rank):
        if d in where:
            dims[d] = x.dims[where.index(d)]
        else:
            dims[d] = b.r.choice([n for n in (1, 2, 3, 5, 8, 17) if n <= max(room, 1)])
            room //= dims[d]
    b.same(x, f"broadcast({x.name}), dimensions={ints(where)}", tuple(dims))


def f_transpose(b):
    x = b.pick(lambda v: len(v.dims) >= 1, lambda: b.new(dims=b.dims(b.r.randint(1, 5))))
    p = list(range(len(x.dims)))
    b.r.shuffle(p)
    b.same(x, f"transpose({x.name}), dimensions={ints(p)}", tuple(x.dims[k] for k in p))


def f_reverse(b):
    x = b.pick(lambda v: len(v.dims) >= 1, lambda: b.new(dims=b.dims(b.r.randint(1, 4))))
    d = sorted(b.r.sample(range(len(x.dims)), b.r.randint(1, len(x.dims))))
    b.same(x, f"reverse({x.name}), dimensions={ints(d)}")


def f_copy(b):
    x = b.pick(lambda v: True, b.new)
    if b.r.random() < 0.5 or len(x.dims) < 2:
        return b.same(x, f"copy({x.name})")
    p = list(range(len(x.dims)))
    b.r.shuffle(p)
    name = b.m.name("v")
    b.lines.append(f"  {name} = {x.text}{ints(p)} copy({x.name})")
    v = type(x)(name, x.t, x.dims, x.lo, x.hi, x.q, x.err, x.special)
    b.pool.append(v)


def f_slice(b):
    x = b.pick(lambda v: len(v.dims) >= 1, lambda: b.new(dims=b.dims(b.r.randint(1, 4))))
    parts, dims = [], []
    for n in x.dims:
        lo = b.r.choice([0, 0, b.r.randint(0, n)])
        hi = b.r.choice([n, n, b.r.randint(lo, n)])
        step = b.r.choice([1, 1, 1, 2, 3])
        parts.append(f"[{lo}:{hi}" + (f":{step}" if step > 1 else "") + "]")
        dims.append((hi - lo + step - 1) // step)
    b.same(x, f"slice({x.name}), slice={{{', '.join(parts)}}}", tuple(dims))


def f_concatenate(b):
    x = b.pick(lambda v: len(v.dims) >= 1, lambda: b.new(dims=b.dims(b.r.randint(1, 4))))
    d, xs = b.r.randrange(len(x.dims)), [x]
    for _ in range(b.r.choice([0, 1, 1, 2, 3])):
        if b.r.random() < 0.3:
            xs.append(x)
            continue
        n = b.r.choice([0, 1, 2, 3, x.dims[d]])
        dims = x.dims[:d] + (n,) + x.dims[d + 1:]
        xs.append(b.pick(lambda v: v.t == x.t and v.dims[:d] == dims[:d] and v.dims[
                             d + 1:] == dims[d + 1:] and len(v.dims) == len(dims),
                         lambda: b.new(x.t, dims), 0.4))
    qs = [v.q for v in xs]
    b.emit(x.t, x.dims[:d] + (sum(v.dims[d] for v in xs),) + x.dims[d + 1:],
           f"concatenate({', '.join(v.name for v in xs)}), dimensions={{{d}}}",
           min(v.lo for v in xs), max(v.hi for v in xs), None if None in qs else max(qs),
           max(v.err for v in xs), any(v.special for v in xs), rounds=False)


def f_pad(b):
    x = b.pick(lambda v: len(v.dims) >= 1, lambda: b.new(dims=b.dims(b.r.randint(1, 4))))
    v = (b.scalar(x.t, b.r.choice([0, 0, 1, 3])) if b.r.random() < 0.8
         else b.pick(lambda v: v.t == x.t and not v.dims, lambda: b.new(x.t, ())))
    parts, dims = [], []
    for n in x.dims:
        lo, hi = b.r.choice([0, 0, 1, 2, -1]), b.r.choice([0, 0, 1, 3, -1])
        inner = b.r.choice([0, 0, 0, 1, 2])
        to = lo + hi + (n + (n - 1) * inner if n else 0)
        if to < 0:
            raise Reject
        parts.append(f"{lo}_{hi}" + (f"_{inner}" if inner else ""))
        dims.append(to)
    q = None if x.q is None or v.q is None else max(x.q, v.q)
    b.emit(x.t, tuple(dims), f"pad({x.name}, {v.name}), padding={'x'.join(parts)}", min(x.lo, v.lo),
           max(x.hi, v.hi), q, max(x.err, v.err), x.special or v.special, rounds=False)


def index_scalars(b, n):
    """n scalar start indices of one integer type; now and then outside.

    Where XLA knows an unsigned start it takes it as a signed one: none that may be less than zero
    or beyond the signed numbers is picked."""
    t = b.r.choice(["s32", "s32", "s64", "u32", "s8"])

    def fits(v):
        return v.t == t and not v.dims and (t[0] == "s" or 0 <= v.lo and v.hi < 2**31)
    return [b.pick(fits, lambda: b.new(t, ()), 0.5)
            if b.r.random() < 0.4
            else b.scalar(t, b.r.choice([0, 0, 1, 2, 3, 7, 100] + ([-1] if t[0] == "s" else [])))
            for _ in range(n)]


def f_dynamic_slice(b):
    # XLA adds the starts of a slice of a slice without clamping the outer one.
    x = b.pick(lambda v: len(v.dims) >= 1 and v.name not in b.m.sliced,
               lambda: b.new(dims=b.dims(b.r.randint(1, 4))))
    sizes = [b.r.randint(min(n, 1), n) for n in x.dims]
    at = index_scalars(b, len(sizes))
    b.m.sliced.add(b.same(x, f"dynamic-slice({', '.join([x.name] + [v.name for v in at])}), "
                             f"dynamic_slice_sizes={ints(sizes)}", tuple(sizes)).name)


def f_dynamic_update_slice(b):
    x = b.pick(lambda v: len(v.dims) >= 1, lambda: b.new(dims=b.dims(b.r.randint(1, 4))))
    dims = tuple(b.r.randint(min(n, 1), n) for n in x.dims)
    u = b.pick(lambda v: v.t == x.t and v.dims == dims, lambda: b.new(x.t, dims), 0.5)
    at = index_scalars(b, len(dims))
    q = None if x.q is None or u.q is None else max(x.q, u.q)
    b.emit(x.t, x.dims,
           f"dynamic-update-slice({', '.join([x.name, u.name] + [v.name for v in at])})",
           min(x.lo, u.lo), max(x.hi, u.hi), q, max(x.err, u.err), x.special or u.special,
           rounds=False)


def f_iota(b):
    t = b.r.choice(INTS + FLOATS + COMPLEX)
    dims = b.dims(b.r.randint(1, 4))
    d = b.r.randrange(len(dims))
    n = max(dims[d] - 1, 0)
    b.emit(t, dims, f"iota(), iota_dimension={d}", -n if is_complex(t) else 0, n, 0)


def f_dimension_size(b):
    x = b.pick(lambda v: len(v.dims) >= 1, b.new)
    if not x.dims:
        raise Reject
    d = b.r.randrange(len(x.dims))
    b.emit("s32", (), f"get-dimension-size({x.name}), dimensions={{{d}}}", x.dims[d], x.dims[d])


# ---- contractions

def summed(x, y, n, acc=None):
    """(m, q, err) of a sum of n products in any order, rounded at each step in the worst case."""
    m = n * x.m * y.m
    if (x.q is not None and y.q is not None and x.q + y.q <= 40
        and m * 2.0**(x.q + y.q) <= 2.0**PREC[x.t]):
        return m, x.q + y.q, 0.0
    return m, None, n * (x.err * y.m + y.err * x.m + x.err * y.err) + (n + 2) * 2.0**(
        1 - PREC[x.t]) * m


def small_enough(v):
    return v.m <= 64 or v.err == 0 and v.m <= 1000


def contraction_type(b):
    return b.real(b.r.choices(["f32", "f64", "bf16", "f16", "s32", "s8", "u8", "c64"],
                              [10, 2, 1, 1, 1.5, 0.5, 0.5, 0.5])[0])


def f_dot(b):
    t = contraction_type(b)
    nb, nc, nl, nr = b.r.choice([0, 0, 1, 2]), b.r.choice(
        [0, 1, 1, 1, 2]), b.r.choice([0, 1, 1, 2]), b.r.choice([0, 1, 1, 2])
    big = (1, 2, 3, 5, 7, 8, 16, 17, 31, 64) if b.m.cap > 1000 else (1, 2, 3, 5, 7, 8)
    pool = [(0 if b.r.random() < 0.01 else b.r.choice(big)) for _ in range(nb + nc + nl + nr)]
    B, C, L, R = pool[:nb], pool[nb:nb + nc], pool[nb + nc:nb + nc + nl], pool[nb + nc + nl:]

    def side(free):
        roles = ([("b", k) for k in range(nb)] + [("c", k) for k in range(nc)]
                 + [("f", k) for k in range(len(free))])
        if b.r.random() < 0.5:
            b.r.shuffle(roles)
        f = [d for d, (r, _) in enumerate(roles) if r == "f"]
        dims, order = [0] * len(roles), 0
        for d, (r, k) in enumerate(roles):
            if r == "f":
                dims[d], order = free[order], order + 1
            else:
                dims[d] = (B if r == "b" else C)[k]
        return tuple(dims), [roles.index(("b", k))
                             for k in range(nb)], [roles.index(("c", k)) for k in range(nc)], f

    xd, xb, xc, _ = side(L)
    yd, yb, yc, _ = side(R)
    if size(xd) > 20000 or size(yd) > 20000 or size(B + L + R) > 4 * b.m.cap:
        raise Reject
    ok = lambda v: small_enough(v) and not v.special and v.t == t  # noqa: E731
    x = b.pick(lambda v: ok(v) and v.dims == xd,
               lambda: b.new(t, xd, "dyadic" if is_float(t) else None), 0.6)
    y = b.pick(lambda v: ok(v) and v.dims == yd,
               lambda: b.new(t, yd, "dyadic" if is_float(t) else None), 0.6)
    n = size(C)
    if is_int(t):
        return b.emit(t, B + L + R, f"dot({x.name}, {y.name}), lhs_batch_dims={ints(xb)}, "
                                    f"lhs_contracting_dims={ints(xc)}, rhs_batch_dims={ints(yb)}, "
                                    f"rhs_contracting_dims={ints(yc)}", *int_range(t))
    m, q, e = summed(x, y, n * (2 if is_complex(t) else 1))
    b.emit(t, tuple(B + L + R),
           f"dot({x.name}, {y.name}), lhs_batch_dims={ints(xb)}, lhs_contracting_dims={ints(xc)}, "
           f"rhs_batch_dims={ints(yb)}, rhs_contracting_dims={ints(yc)}", -m, m, q, e)


def window_of(b, n, reversal=False, dilate=True, most=3, negative=True):
    """One dimension of a window on n elements: (size, stride, lo, hi, base dilation, window
    dilation, reversed, result size)"""
    r = b.r
    for _ in range(20):
        k, s = r.randint(1, most), r.choice([1, 1, 1, 2, 3])
        lo, hi = r.choice([0, 0, 1, 2]), r.choice([0, 0, 1, 2])
        bd, wd = (r.choice([1, 1, 1, 2]), r.choice([1, 1, 1, 2])) if dilate else (1, 1)
        if negative and r.random() < 0.04:
            lo = -1
        base = (n - 1) * bd + 1 if n else 0
        room = base + lo + hi - ((k - 1) * wd + 1)
        if room >= 0 and base + lo > 0:
            return k, s, lo, hi, bd, wd, reversal and r.random() < 0.15, room // s + 1
    return 1, 1, 0, 0, 1, 1, False, n


def window_text(w):
    t = "size=" + "x".join(str(v[0]) for v in w)
    if any(v[1] != 1 for v in w):
        t += " stride=" + "x".join(str(v[1]) for v in w)
    if any(v[2] or v[3] for v in w):
        t += " pad=" + "x".join(f"{v[2]}_{v[3]}" for v in w)
    if any(v[4] != 1 for v in w):
        t += " lhs_dilate=" + "x".join(str(v[4]) for v in w)
    if any(v[5] != 1 for v in w):
        t += " rhs_dilate=" + "x".join(str(v[5]) for v in w)
    if any(v[6] for v in w):
        t += " rhs_reversal=" + "x".join(str(int(v[6])) for v in w)
    return "{" + t + "}"


def f_convolution(b):
    r = b.r
    t = b.real(r.choices(["f32", "f64", "bf16", "f16", "s32"], [10, 1, 1, 1, 1])[0])
    n = r.choices([0, 1, 2, 3], [0.3, 2, 5, 1])[0]
    groups = r.choice([1, 1, 1, 2, 3])
    kind = (r.choice(["plain", "feature", "feature", "batch", "depthwise"]) if groups > 1
            else "plain")
    wide = b.m.cap > 1000 and r.random() < 0.6
    ci, co, batch = r.choice([8, 16, 17, 32] if wide else [1, 2, 3, 4, 8, 16]), r.choice(
        [16, 23, 32] if wide else [1, 2, 3, 5, 8, 16]), r.choice([1, 1, 2, 3])
    if kind == "feature":
        ci, co = ci * groups, co * groups
    elif kind == "depthwise":
        groups = ci = r.choice([2, 3, 8, 16])
        co = ci * r.choice([1, 1, 2])
    elif kind == "batch":
        batch, co = batch * groups, co * groups
    spatial = [r.choice([4, 5, 7, 9, 14] if n < 3 else [3, 4, 5]) for _ in range(n)]
    plain = r.random() < 0.5
    # XLA:CPU reads past the end with negative padding
    w = [window_of(b, s, True, not plain, negative=False) for s in spatial]
    fg, bg = (groups if kind in ("feature", "depthwise") else 1), (groups if kind == "batch" else 1)

    def lay(letters, sizes):
        order = list(letters)
        if r.random() < 0.4:
            r.shuffle(order)
        return "".join(order), tuple(sizes[c] for c in order)

    dig = "".join(map(str, range(n)))
    xl, xd = lay("bf" + dig if r.random() < 0.5 else "b" + dig + "f",
                 {"b": batch, "f": ci, **{str(k): s for k, s in enumerate(spatial)}})
    kl, kd = lay("oi" + dig if r.random() < 0.5 else dig + "io",
                 {"o": co, "i": ci // fg, **{str(k): w[k][0] for k in range(n)}})
    ol, od = lay("bf" + dig if r.random() < 0.5 else "b" + dig + "f",
                 {"b": batch // bg, "f": co, **{str(k): w[k][7] for k in range(n)}})
    if size(od) > 5 * b.m.cap or size(xd) > 20000 or size(kd) > 20000:
        raise Reject
    ok = lambda v: v.t == t and small_enough(v) and not v.special  # noqa: E731
    x = b.pick(lambda v: ok(v) and v.dims == xd,
               lambda: b.new(t, xd, "dyadic" if t[0] != "s" else None), 0.7)
    k = b.pick(lambda v: ok(v) and v.dims == kd,
               lambda: b.new(t, kd, "dyadic" if t[0] != "s" else None), 0.5)
    text = f"convolution({x.name}, {k.name})" + (f", window={window_text(w)}" if n
                                                 else "") + f", dim_labels={xl}_{kl}->{ol}"
    text += (f", feature_group_count={fg}" if fg > 1
             else "") + (f", batch_group_count={bg}" if bg > 1 else "")
    if is_int(t):
        return b.emit(t, od, text, *int_range(t))
    taps = size([v[0] for v in w]) * (ci // fg)
    m, q, e = summed(x, k, taps)
    if t in ("f32", "f16", "bf16"):  # Winograd adds and subtracts neighbours first
        e, q = e + 60 * 2.0**-23 * m, None
    y = b.emit(t, od, text, -m, m, q, e)
    # what the library fuses and the weights take in
    if r.random() < 0.6 and t in ("f32", b.m.half):
        for op in r.sample(["add", "multiply", "maximum", "clamp", "sum"], r.randint(1, 3)):
            y = epilogue(b, y, ol.index("f"), op)


def epilogue(b, y, feature, op):
    if op == "maximum":
        z = b.splat(b.scalar(y.t, 0), y.dims)
        return b.emit(y.t, y.dims, f"maximum({y.name}, {z.name})", max(y.lo, 0), max(y.hi, 0), y.q,
                      y.err, rounds=False)
    if op == "clamp":
        lo, hi = b.scalar(y.t, 0), b.scalar(y.t, 6)
        return b.emit(y.t, y.dims, f"clamp({lo.name}, {y.name}, {hi.name})", 0, 6, y.q, y.err,
                      rounds=False)
    c = b.new(y.t, y.dims if op == "sum" else (y.dims[feature],), "dyadic")
    s = c if op == "sum" else b.same(c, f"broadcast({c.name}), dimensions={{{feature}}}", y.dims)
    op = "add" if op == "sum" else op
    lo, hi, q, e = combine(op, y, s)
    return b.emit(y.t, y.dims, f"{op}({y.name}, {s.name})", lo, hi, q, e)


# ---- reductions and windows

def reducer(b, t):
    """(computation, identity, op)"""
    if t == "pred":
        op = b.r.choice(["and", "or", "xor"])
        return b.scalar_fn(op, t), op == "and", op
    ops = ["add", "add", "maximum", "minimum"] if not is_complex(t) else ["add"]
    if is_int(t):
        ops += ["and", "or", "xor", "multiply"]
    op = b.r.choice(ops)
    if is_int(t):
        lo, hi = int_range(t)
    else:
        lo, hi = -math.inf, math.inf
    if t == "f8e4m3fn":
        lo, hi = -448, 448
    return b.scalar_fn(op, t), {"add": 0, "maximum": lo, "minimum": hi,
                                "and": -1 if t[0] == "s" else hi, "or": 0, "xor": 0,
                                "multiply": 1}[op], op


def reduced(b, x, op, n):
    """(lo, hi, q, err) of n elements of x and an initial value in reach."""
    if op in ("maximum", "minimum"):
        return x.lo, x.hi, x.q, x.err
    if x.t not in PREC:
        return int_range(x.t) + (0, 0.0)
    m = (n + 1) * x.m
    if x.q is not None and m * 2.0**x.q <= 2.0**PREC[x.t]:
        return -m, m, x.q, 0.0
    return -m, m, None, n * x.err + (n + 2) * 2.0**(1 - PREC[x.t]) * m


def initial(b, x, op, identity, allow):
    if allow and b.r.random() < 0.25 and op not in ("maximum", "minimum") and x.t not in ("pred",):
        return b.scalar(x.t, b.r.choice([0, 1, 2]) if x.m >= 2 else 0)
    return b.scalar(x.t, identity)


def f_reduce(b):
    if b.r.random() < 0.12:
        return argmax(b)
    x = b.pick(lambda v: v.t not in SMALL_FLOATS + ["s4", "u4"],
               lambda: b.new(b.r.choice(FLOATS + INTS + ["f32", "f32", "pred", "c64"])))
    d = (sorted(b.r.sample(range(len(x.dims)), b.r.randint(min(1, len(x.dims)), len(x.dims))))
         if x.dims else [])
    fn, identity, op = reducer(b, x.t)
    n = size([x.dims[k] for k in d])
    lo, hi, q, e = reduced(b, x, op, n)
    empty = 0 in x.dims
    # XLA drops the value when there is one element, or the three are Philox's new state, and takes
    # it more than once when there are many
    philox = x.t == "u64" and tuple(x.dims) == (3,)
    i = initial(b, x, op, identity, 1 < n < 16 and not philox)
    special = x.special or (empty and op in ("maximum", "minimum") and x.t in PREC)
    rest = tuple(v for k, v in enumerate(x.dims) if k not in d)
    b.emit(x.t, rest, f"reduce({x.name}, {i.name}), dimensions={ints(d)}, to_apply={fn}",
           min(lo, 0), max(hi, 0), q, e, special, rounds=False)


def argmax(b):
    x = b.pick(lambda v: v.err == 0 and not v.special and v.dims and (v.t in FLOATS or is_int(v.t)),
               lambda: b.new(b.r.choice(["f32", "s32"]), b.dims(b.r.randint(1, 3), 1)))
    d, n = b.r.randrange(len(x.dims)), max(x.dims)
    less = b.r.random() < 0.5
    c = Builder(b.m)
    v, i, w, j = (c.put(f"{t}[]", f"parameter({k})")
                  for k, t in enumerate((x.t, "s32", x.t, "s32")))
    better = c.put("pred[]", f"compare({v}, {w}), direction={'LT' if less else 'GT'}")
    equal = c.put("pred[]", f"compare({v}, {w}), direction=EQ")
    first = c.put("pred[]", f"compare({i}, {j}), direction=LT")
    tie = c.put("pred[]", f"and({equal}, {first})")
    keep = c.put("pred[]", f"or({better}, {tie})")
    sv, si = c.put(f"{x.t}[]",
                   f"select({keep}, {v}, {w})"), c.put("s32[]", f"select({keep}, {i}, {j})")
    fn = c.close(c.put(f"({x.t}[], s32[])", f"tuple({sv}, {si})"), "arg")
    k = b.emit("s32", x.dims, f"iota(), iota_dimension={d}", 0, n)
    a, z = int_range(x.t) if is_int(x.t) else (-math.inf, math.inf)
    first_v, first_i = b.scalar(x.t, z if less else a), b.scalar("s32", 2**31 - 1)
    rest = tuple(v for e, v in enumerate(x.dims) if e != d)
    s = (f"{x.t}[{','.join(map(str, rest))}]", f"s32[{','.join(map(str, rest))}]")
    t = b.put(f"({s[0]}, {s[1]})", f"reduce({x.name}, {k.name}, {first_v.name}, {first_i.name}), "
                                   f"dimensions={{{d}}}, to_apply={fn}")
    b.emit(x.t, rest, f"get-tuple-element({t}), index=0", x.lo, x.hi, x.q, x.err, 0 in x.dims,
           rounds=False)
    b.emit("s32", rest, f"get-tuple-element({t}), index=1", *int_range("s32"))


def f_reduce_window(b):
    x = b.pick(lambda v: len(v.dims) >= 1 and 0 not in v.dims and v.t not in SMALL_FLOATS + [
                   "s4", "u4", "pred"] and not is_complex(v.t) and v.name not in b.m.cut,
               lambda: b.new(b.r.choice(["f32", "f32", "f64", "s32", "bf16"]),
                             b.dims(b.r.randint(1, 4), 1)))
    pool = len(x.dims) == 4 and b.r.random() < 0.5
    w = [(1, 1, 0, 0, 1, 1, False, n) if (pool and k < 2) or b.r.random() < 0.2
         else window_of(b, n, False, not pool)
         for k, n in enumerate(x.dims)]
    if b.r.random() < 0.1:  # a running sum
        d = b.r.randrange(len(w))
        n = x.dims[d]
        w = [(1, 1, 0, 0, 1, 1, False, v) for v in x.dims]
        w[d] = ((n, 1, n - 1, 0, 1, 1, False, n) if b.r.random() < 0.5
                else (n, 1, 0, n - 1, 1, 1, False, n))
    fn, identity, op = reducer(b, x.t)
    if op in ("and", "or", "xor", "multiply"):
        fn, identity, op = b.scalar_fn("add", x.t), 0, "add"
    taps = size([v[0] for v in w])
    lo, hi, q, e = reduced(b, x, op, taps)
    i = initial(b, x, op, identity, 1 < taps < 16)
    padded = any(v[2] > 0 or v[3] > 0 or v[4] > 1 for v in w)
    special = x.special or (padded and op in ("maximum", "minimum") and x.t in PREC)
    y = b.emit(x.t, tuple(v[7] for v in w),
               f"reduce-window({x.name}, {i.name}), window={window_text(w)}, to_apply={fn}",
               min(lo, 0), max(hi, 0), q, e, special, rounds=False)
    if any(v[2] < 0 for v in w):
        b.m.cut.add(y.name)


def distinct(b):
    t, dims = b.r.choice(["f32", "s32"]), b.dims(b.r.randint(1, 4), 1)
    n = size(dims)
    given = (b.m.np.permutation(n).reshape(dims).astype(DTYPES[t]), 0, n - 1, 0, False)
    return b.param(t, dims, given=given) if b.entry else b.const(t, dims, given=given)


def f_select_and_scatter(b):
    # Of equal elements XLA:CPU keeps the first in memory, whichever layout it chose: no two are
    # equal unless there is one order only.
    x = b.pick(lambda v: v.t in ("f32", "f64", "s32") and v.err == 0 and not v.special and len(
                   v.dims) == 1 and 0 not in v.dims, lambda: distinct(b), 0.3)
    w = [window_of(b, n, False, False) for n in x.dims]
    if any(v[2] >= v[0] or v[3] >= v[0] or v[2] < 0 for v in w):  # every window touches the operand
        raise Reject
    dims = tuple(v[7] for v in w)
    s = b.pick(lambda v: v.t == x.t and v.dims == dims and not v.special,
               lambda: b.new(x.t, dims, "dyadic" if x.t != "s32" else None), 0.4)
    if s.special:
        raise Reject
    i = b.scalar(x.t, 0)
    lo, hi, q, e = reduced(b, s, "add", size([v[0] for v in w]))
    ge, add = b.scalar_fn("compare", x.t, "sel", ", direction=GE"), b.scalar_fn("add", x.t)
    b.emit(x.t, x.dims, f"select-and-scatter({x.name}, {s.name}, {i.name}), "
                        f"window={window_text(w)}, select={ge}, scatter={add}", lo, hi, q, e,
           rounds=False)


# ---- indexing

def index_array(b, dims, most):
    t = b.r.choice(["s32", "s32", "s64", "u32"])
    v = b.m.np.integers(-1 if t[0] == "s" else 0, most + 2, dims).astype(DTYPES[t])
    given = (v, -1 if t[0] == "s" else 0, most + 1, 0, False)
    return b.param(t, dims, given=given) if b.entry else b.const(t, dims, given=given)


def f_gather(b):
    x = b.pick(lambda v: len(v.dims) >= 1 and 0 not in v.dims and v.name not in b.m.sliced,
               lambda: b.new(dims=b.dims(b.r.randint(1, 4), 1)))
    rank = len(x.dims)
    mapped = b.r.sample(range(rank), b.r.randint(1, rank))
    batch = b.dims(b.r.choice([0, 1, 1, 2]), 1, 24)
    sizes = [b.r.choice([1, b.r.randint(1, n), n]) for n in x.dims]
    collapsed = sorted(d for d in range(rank) if sizes[d] == 1 and b.r.random() < 0.7)
    kept = [d for d in range(rank) if d not in collapsed]
    if len(batch) + len(kept) > 6:
        raise Reject
    ivd = b.r.randint(0, len(batch))
    if len(mapped) == 1 and b.r.random() < 0.4:
        ivd, idims = len(batch), batch
    else:
        idims = batch[:ivd] + (len(mapped),) + batch[ivd:]
    i = index_array(b, idims, max(x.dims))
    total = len(batch) + len(kept)
    offsets = sorted(b.r.sample(range(total), len(kept)))
    dims, bi, ki = [], iter(batch), iter(kept)
    for d in range(total):
        dims.append(sizes[next(ki)] if d in offsets else next(bi))
    y = b.same(
        x,
        f"gather({x.name}, {i.name}), offset_dims={ints(offsets)}, "
        f"collapsed_slice_dims={ints(collapsed)}, start_index_map={ints(mapped)}, "
        f"index_vector_dim={ivd}, slice_sizes={ints(sizes)}",
        tuple(dims))
    b.m.sliced.add(y.name)  # with one index vector it becomes a dynamic-slice


def f_scatter(b):
               # XLA's scatter slices its operand
    x = b.pick(lambda v: len(v.dims) >= 1 and 0 not in v.dims and v.t not in SMALL_FLOATS + [
                   "pred", "s4", "u4"] and v.name not in b.m.sliced,
               lambda: b.new(b.r.choice(["f32", "s32", "f64", "u8"]),
                             b.dims(b.r.randint(1, 3), 1)))
    rank = len(x.dims)
    mapped = b.r.sample(range(rank), b.r.randint(1, rank))
    batch = b.dims(b.r.choice([0, 1, 1, 2]), 1, 24)
    inserted = sorted(d for d in range(rank) if b.r.random() < 0.6)
    kept = [d for d in range(rank) if d not in inserted]
    wsize = [b.r.choice([1, b.r.randint(1, x.dims[d]), x.dims[d]]) for d in kept]
    if len(batch) + len(kept) > 6:
        raise Reject
    ivd = b.r.randint(0, len(batch))
    idims = batch[:ivd] + (len(mapped),) + batch[ivd:]
    i = index_array(b, idims, max(x.dims))
    total = len(batch) + len(kept)
    windows = sorted(b.r.sample(range(total), len(kept)))
    udims, bi, ki = [], iter(batch), iter(wsize)
    for d in range(total):
        udims.append(next(ki) if d in windows else next(bi))
    u = b.pick(lambda v: v.t == x.t and v.dims == tuple(udims), lambda: b.new(x.t, tuple(udims)),
               0.4)
    op = b.r.choice(["add", "maximum", "minimum"]) if not is_complex(x.t) else "add"
    if op == "add":
        n = size(batch)
        lo, hi, q, e = reduced(b, u, "add", n)
        lo, hi, e = x.lo + lo, x.hi + hi, x.err + e
        q = None if q is None or x.q is None else max(q, x.q)
        if x.t in PREC and q is None:
            e += n * 2.0**(1 - PREC[x.t]) * max(abs(lo), abs(hi))
    else:
        lo, hi, q, e = combine(op, x, u)
        lo, hi = min(lo, x.lo), max(hi, x.hi)
    b.emit(
        x.t, x.dims,
        f"scatter({x.name}, {i.name}, {u.name}), update_window_dims={ints(windows)}, "
        f"inserted_window_dims={ints(inserted)}, " f"scatter_dims_to_operand_dims={ints(mapped)}, "
                                                   f"index_vector_dim={ivd}, "
                                                   f"to_apply={b.scalar_fn(op, x.t)}", lo, hi, q, e,
        x.special or u.special)


def f_batched_index(b):
    """gather and scatter along a batching dimension."""
    t = b.r.choice(["f32", "s32", "bf16", "u8"])
    n, m, k, w = b.r.choice([1, 2, 5]), b.r.choice([1, 3, 8]), b.r.choice([1, 2, 7]), b.r.choice(
        [1, 4])
    x = b.pick(lambda v: v.t == t and v.dims == (n, m, w), lambda: b.new(t, (n, m, w)), 0.5)
    i = index_array(b, (n, k, 1), m)
    if b.r.random() < 0.5:
        return b.same(x, f"gather({x.name}, {i.name}), offset_dims={{2}}, "
                         f"collapsed_slice_dims={{1}}, start_index_map={{1}}, "
                         f"operand_batching_dims={{0}}, " f"start_indices_batching_dims={{0}}, "
                                                          "index_vector_dim=2, "
                                                          f"slice_sizes={{1,1,{w}}}", (n, k, w))
    u = b.new(t, (n, k, w))
    lo, hi, q, e = combine("maximum", x, u)
    b.emit(t, x.dims,
           f"scatter({x.name}, {i.name}, {u.name}), update_window_dims={{2}}, "
           f"inserted_window_dims={{1}}, scatter_dims_to_operand_dims={{1}}, "
           f"input_batching_dims={{0}}, " f"scatter_indices_batching_dims={{0}}, "
                                          "index_vector_dim=2, "
                                          f"to_apply={b.scalar_fn('maximum', t)}", min(lo, x.lo),
           max(hi, x.hi), q, e, x.special or u.special, rounds=False)


def f_several(b):
    """reduce, reduce-window and scatter of two operands at once: a sum and a maximum."""
    dims = b.dims(b.r.randint(1, 3), 1)
    x = b.pick(lambda v: v.t == "s32" and v.dims == dims, lambda: b.new("s32", dims), 0.5)
    y = b.pick(lambda v: v.t == "f32" and v.dims == dims and not v.special,
               lambda: b.new("f32", dims, "dyadic"), 0.5)
    if y.special:
        raise Reject
    c = Builder(b.m)
    p = [c.put(f"{t}[]", f"parameter({k})") for k, t in enumerate(("s32", "f32", "s32", "f32"))]
    total, top = c.put("s32[]", f"add({p[0]}, {p[2]})"), c.put("f32[]", f"maximum({p[1]}, {p[3]})")
    fn = c.close(c.put("(s32[], f32[])", f"tuple({total}, {top})"), "both")
    zero, low = b.scalar("s32", 0), b.scalar("f32", -math.inf)
    kind = b.r.choice(["reduce", "reduce", "window", "scatter"])
    special = False
    if kind == "reduce":
        over = sorted(b.r.sample(range(len(dims)), b.r.randint(1, len(dims))))
        out = tuple(v for k, v in enumerate(dims) if k not in over)
        text = (f"reduce({x.name}, {y.name}, {zero.name}, {low.name}), dimensions={ints(over)}, "
                f"to_apply={fn}")
    elif kind == "window":
        w = [window_of(b, n) for n in dims]
        out, special = tuple(v[7] for v in w), True
        text = (f"reduce-window({x.name}, {y.name}, {zero.name}, {low.name}), "
                f"window={window_text(w)}, to_apply={fn}")
    else:
        k = b.r.choice([1, 3, 9])
        i, u, v = index_array(b, (k, 1), dims[0]), b.new("s32", (k,) + dims[1:]), b.new(
            "f32", (k,) + dims[1:], "dyadic") if b.entry else b.const("f32", (k,) + dims[1:])
        if v.special:
            raise Reject
        out = dims
        text = (f"scatter({x.name}, {y.name}, {i.name}, {u.name}, {v.name}), "
                f"update_window_dims={ints(range(1, len(dims)))}, inserted_window_dims={{0}}, "
                f"scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply={fn}")
        y = type(y)(y.name, y.t, y.dims, min(y.lo, v.lo), max(y.hi, v.hi),
                    None if None in (y.q, v.q) else max(y.q, v.q), max(y.err, v.err))
    d = ",".join(map(str, out))
    t = b.put(f"(s32[{d}], f32[{d}])", text)
    b.emit("s32", out, f"get-tuple-element({t}), index=0", *int_range("s32"))
    b.emit("f32", out, f"get-tuple-element({t}), index=1", y.lo, y.hi, y.q, y.err, special,
           rounds=False)


def f_sort(b):
    x = b.pick(lambda v: len(v.dims) >= 1 and v.err == 0 and (
                   v.t in FLOATS or is_int(v.t)) and v.t not in ("s4", "u4"),
               lambda: b.new(b.r.choice(FLOATS + INTS), b.dims(b.r.randint(1, 3))))
    d = b.r.randrange(len(x.dims))
    direction = b.r.choice(["LT", "GT"])
    total = x.t in FLOATS and (x.special or b.r.random() < 0.3)
    if total and not no_negative_zero(x):
        raise Reject
    rest = f", direction={direction}" + (", type=TOTALORDER" if total else "")
    if b.r.random() < 0.6:
        fn = b.scalar_fn("compare", x.t, "less", rest)
        return b.same(x, f"sort({x.name}), dimensions={{{d}}}, "
                         f"is_stable={b.r.choice(['true', 'false']) if not total else 'true'}, "
                         f"to_apply={fn}")
    y = b.pick(lambda v: v.dims == x.dims and v is not x, lambda: b.new(None, x.dims), 0.6)
    c = Builder(b.m)
    names = [c.put(f"{t}[]", f"parameter({k})") for k, t in enumerate((x.t, x.t, y.t, y.t))]
    fn = c.close(c.put("pred[]", f"compare({names[0]}, {names[1]}){rest}"), "less")
    t = b.put(f"({x.text}, {y.text})",
              f"sort({x.name}, {y.name}), dimensions={{{d}}}, is_stable=true, to_apply={fn}")
    for k, v in enumerate((x, y)):
        b.same(v, f"get-tuple-element({t}), index={k}")


def f_topk(b):
    x = b.pick(lambda v: len(v.dims) >= 1 and v.err == 0 and not v.special and v.t in (
                   "f32", "s32", "bf16"),
               lambda: b.new(b.r.choice(["f32", "s32"]), b.dims(b.r.randint(1, 3), 1)))
    k = b.r.randint(min(1, x.dims[-1]), x.dims[-1])
    dims = x.dims[:-1] + (k,)
    text = ",".join(map(str, dims))
    t = b.put(f"({x.t}[{text}], s32[{text}])", f"topk({x.name}), k={k}, largest=true")
    b.same(x, f"get-tuple-element({t}), index=0", dims)
    b.emit("s32", dims, f"get-tuple-element({t}), index=1", 0, max(x.dims[-1], 1))


# ---- linear algebra, normalisation, random

def f_fft(b):
    kind, n = b.r.choice(["FFT", "IFFT", "RFFT", "IRFFT"]), b.r.choice([1, 1, 2, 3])
    wide = b.r.random() < 0.2
    lengths = [b.r.choice([1, 2, 3, 4, 5, 7, 8, 12]) for _ in range(n)]
    lead = b.dims(b.r.choice([0, 1]), 1, 4)
    real, comp = ("f64", "c128") if wide else ("f32", "c64")
    t = real if kind == "RFFT" else comp
    inner = list(lengths)
    if kind == "IRFFT":
        inner[-1] = lengths[-1] // 2 + 1
    out = list(lengths)
    if kind == "RFFT":
        out[-1] = lengths[-1] // 2 + 1
    dims = lead + tuple(inner)
    x = b.pick(lambda v: v.t == t and v.dims == dims and not v.special,
               lambda: b.new(t, dims, "dyadic" if t == real else None), 0.5)
    if x.special:
        raise Reject
    total = size(lengths)
    m = 2 * x.m * (1 if kind in ("IFFT", "IRFFT") else total)
    e = 2 * x.err * (1 if kind in ("IFFT", "IRFFT") else total) + 16 * 2.0**(1 - PREC[x.t]) * m
    b.emit(real if kind == "IRFFT" else comp, lead + tuple(out),
           f"fft({x.name}), fft_type={kind}, fft_length={ints(lengths)}", -m, m, None, e)


def matrices(b, t, n, lead, spd):
    g = b.m.np
    a = g.integers(-8, 9, lead + (n, n)) / 8.0
    a = (a @ np.swapaxes(a, -1, -2) / n + 2 * np.eye(n) if spd
         else np.tril(a) / max(n, 1) + np.triu(a, 1) / max(n, 1) + 2 * np.eye(n))
    v = a.astype(DTYPES[t])
    given = (v, -4.0, 4.0, None, False)
    return (b.param(t, lead + (n, n), given=given) if b.entry
            else b.const(t, lead + (n, n), given=given))


def f_cholesky(b):
    t, n, lead = b.r.choice(["f32", "f64"]), b.r.choice([1, 2, 3, 5]), b.dims(
        b.r.choice([0, 1]), 1, 3)
    a = matrices(b, t, n, lead, True)
    lower = b.r.random() < 0.5
    y = b.emit(t, a.dims, f"cholesky({a.name}), lower={'true' if lower else 'false'}", -4, 4, None,
               200 * 2.0**(1 - PREC[t]))
    # the other triangle is free: cut it off
    b.pool.remove(y)
    i, j = b.emit("s32", a.dims, f"iota(), iota_dimension={len(a.dims) - 2}", 0, n), b.emit(
        "s32", a.dims, f"iota(), iota_dimension={len(a.dims) - 1}", 0, n)
    p = b.emit("pred", a.dims, f"compare({i.name}, {j.name}), direction={'GE' if lower else 'LE'}",
               0, 1)
    z = b.splat(b.scalar(t, 0), a.dims)
    b.emit(t, a.dims, f"select({p.name}, {y.name}, {z.name})", -4, 4, None, y.err, rounds=False)


def f_triangular_solve(b):
    t, n, k, lead = b.r.choice(["f32", "f64"]), b.r.choice(
        [1, 2, 3, 5]), b.r.choice([1, 2, 4]), b.dims(b.r.choice([0, 1]), 1, 3)
    a = matrices(b, t, n, lead, False)
    left, lower, unit = b.r.random() < 0.5, b.r.random() < 0.5, b.r.random() < 0.25
    dims = lead + ((n, k) if left else (k, n))
    x = b.new(t, dims, "dyadic") if b.entry else b.const(t, dims)
    if x.special:
        raise Reject
    m = 16 * max(x.m, 1)
    f = lambda v: "true" if v else "false"  # noqa: E731
    b.emit(t, dims, f"triangular-solve({a.name}, {x.name}), left_side={f(left)}, "
                    f"lower={f(lower)}, unit_diagonal={f(unit)}, "
                    f"transpose_a={b.r.choice(['NO_TRANSPOSE', 'TRANSPOSE', 'ADJOINT'])}",
           -m, m, None, 100 * 2.0**(1 - PREC[t]) * m)


def f_batch_norm(b):
    x = b.pick(lambda v: v.t in ("f32", "f64") and len(
                   v.dims) >= 2 and 0 not in v.dims and not v.special and v.m <= 20,
               lambda: b.new("f32", b.dims(b.r.randint(2, 4), 1), "dyadic"))
    if x.special or x.m > 20:
        raise Reject
    f = b.r.randrange(len(x.dims))
    n = (x.dims[f],)
    attrs = f", epsilon={b.r.choice([0.5, 0.25])}, feature_index={f}"
    vec = lambda kind="dyadic": b.new(x.t, n, kind) if b.entry else b.const(x.t, n)  # noqa: E731
    scale, eps = vec(), 2.0**(1 - PREC[x.t])
    if scale.special or scale.m > 20:
        raise Reject
    kind = b.r.choice(["inference", "inference", "training", "grad"])
    if kind == "inference":
        offset, mean, var = vec(), vec(), vec("positive")
        if var.lo < 0 or any(v.special or v.m > 20 for v in (offset, mean, var)):
            raise Reject
        m = scale.m * (x.m + mean.m) * 2 + offset.m
        return b.emit(x.t, x.dims, f"batch-norm-inference({x.name}, {scale.name}, {offset.name}, "
                                   f"{mean.name}, {var.name}){attrs}", -m, m, None,
                      2 * scale.m * x.err + 32 * eps * m)
    count = size(x.dims) / n[0]
    if kind == "training":
        offset = vec()
        if offset.special or offset.m > 20:
            raise Reject
        m = scale.m * 2 * x.m * 2 + offset.m
        t = b.put(f"({x.text}, {x.t}[{n[0]}], {x.t}[{n[0]}])",
                  f"batch-norm-training({x.name}, {scale.name}, {offset.name}){attrs}")
        b.emit(x.t, x.dims, f"get-tuple-element({t}), index=0", -m, m, None,
               scale.m * (2 + 8 * x.m**2) * x.err * 4 + 16 * (count + 8) * (1 + x.m**2) * eps * m)
        b.emit(x.t, n, f"get-tuple-element({t}), index=1", -x.m, x.m, None,
               x.err + (count + 4) * eps * x.m)
        return b.emit(x.t, n, f"get-tuple-element({t}), index=2", 0, 4 * x.m**2, None,
                      8 * x.m * x.err + 4 * (count + 4) * eps * max(x.m**2, 1))
    mean, var, dy = vec(), vec("positive"), b.new(x.t, x.dims,
                                                  "dyadic") if b.entry else b.const(x.t, x.dims)
    if var.lo < 0 or any(v.special or v.m > 20 for v in (mean, var, dy)):
        raise Reject
    d = x.m + mean.m
    ms = [scale.m * 2 * dy.m * (2 + 4 * d * d), 2 * count * dy.m * d, count * dy.m]
    t = b.put(f"({x.text}, {x.t}[{n[0]}], {x.t}[{n[0]}])",
              f"batch-norm-grad({x.name}, {scale.name}, {mean.name}, {var.name}, {dy.name}){attrs}")
    for k, m in enumerate(ms):
        b.emit(x.t, x.dims if k == 0 else n, f"get-tuple-element({t}), index={k}", -m, m, None,
               (m / d if d else 1) * 4 * x.err * count + 16 * (count + 8) * eps * m)


def f_rng_bits(b):
    algorithm = b.r.choice(["rng_three_fry", "rng_philox"])
    words = b.r.choice([2, 3]) if algorithm == "rng_philox" else 2
    v = np.array([b.r.getrandbits(64) for _ in range(words)], np.uint64)
    given = (v, *int_range("u64"), 0, False)
    s = b.param("u64", (words,), given=given) if b.entry else b.const("u64", (words,), given=given)
    t, dims = b.r.choice(["u32", "u64", "u32", "u16", "u8"]), b.dims(b.r.randint(0, 3))
    text = ",".join(map(str, dims))
    r = b.put(f"(u64[{words}], {t}[{text}])", f"rng-bit-generator({s.name}), algorithm={algorithm}")
    b.emit("u64", (words,), f"get-tuple-element({r}), index=0", *int_range("u64"))
    b.emit(t, dims, f"get-tuple-element({r}), index=1", *int_range(t))


# ---- what rewrite rules and fusion look for

def row_reduce(b, x, name, d, op):
    """Untracked: (shape text, name) of a reduction of `name` (x's shape) over dim d, broadcast back
    to x's shape."""
    rest = tuple(n for k, n in enumerate(x.dims) if k != d)
    init = b.scalar(x.t, -math.inf if op == "maximum" else 0)
    r = b.put(f"{x.t}[{','.join(map(str, rest))}]",
              f"reduce({name}, {init.name}), dimensions={{{d}}}, to_apply={b.scalar_fn(op, x.t)}")
    return r, b.put(x.text,
                    f"broadcast({r}), dimensions={ints(k for k in range(len(x.dims)) if k != d)}")


def f_softmax(b):
    x = b.pick(
        lambda v: v.t in ("f32", "f64",
                          "bf16") and not v.special and v.dims and 0 not in v.dims and v.m <= 20,
        lambda: b.new("f32", b.dims(b.r.randint(1, 4), 1), "dyadic"))
    if x.special or x.m > 20:
        raise Reject
    d, eps = b.r.choice([len(x.dims) - 1,
                         b.r.randrange(len(x.dims))]), 2.0**(1 - min(PREC[x.t], 48))
    _, top = row_reduce(b, x, x.name, d, "maximum")
    shifted = b.put(x.text, f"subtract({x.name}, {top})")
    e = b.put(x.text, f"exponential({shifted})")
    _, total = row_reduce(b, x, e, d, "add")
    n = x.dims[d]
    b.emit(x.t, x.dims, f"divide({e}, {total})", 0, 1, None,
           4 * x.err + (2 * n + 2 * x.m + 16) * eps)


def f_layer_norm(b):
    x = b.pick(
        lambda v: v.t in (
            "f32",
            "f64") and v.err == 0 and not v.special and v.dims and 0 not in v.dims and v.m <= 16,
        lambda: b.new("f32", b.dims(b.r.randint(1, 3), 1), "dyadic"))
    if x.special or x.m > 16:
        raise Reject
    d, eps = len(x.dims) - 1, 2.0**(1 - PREC[x.t])
    n = b.splat(b.scalar(x.t, x.dims[d]), x.dims)
    _, total = row_reduce(b, x, x.name, d, "add")
    mean = b.put(x.text, f"divide({total}, {n.name})")
    c = b.put(x.text, f"subtract({x.name}, {mean})")
    _, squares = row_reduce(b, x, b.put(x.text, f"multiply({c}, {c})"), d, "add")
    var = b.put(x.text, f"divide({squares}, {n.name})")
    v = b.put(x.text, f"add({var}, {b.splat(b.scalar(x.t, 0.5), x.dims).name})")
    r = b.put(x.text, f"rsqrt({v})")
    m = 3 * max(x.m, 1)
    b.emit(x.t, x.dims, f"multiply({c}, {r})", -m, m, None,
           16 * (x.dims[d] + 16) * (1 + x.m**2) * eps * m)


def f_activation(b):
    x = b.pick(lambda v: v.t == "f32" and not v.special and v.m <= 20,
               lambda: b.new("f32", None, "dyadic"))
    if x.special or x.m > 20:
        raise Reject
    one, half = b.splat(b.scalar("f32", 1), x.dims).name, b.splat(b.scalar("f32", 0.5), x.dims).name
    kind, do = (b.r.choice(["logistic", "swish", "gelu", "tanh-gelu", "hard"]),
                lambda op, *args: b.put(x.text, f"{op}({', '.join(args)})"))
    e = 4 * x.err + 64 * 2.0**-23 * (1 + x.m)
    splat = lambda v: b.splat(b.scalar("f32", v), x.dims).name  # noqa: E731
    if kind == "logistic":
        d = do("add", one, do("exponential", do("negate", x.name)))
        return b.emit("f32", x.dims, f"divide({one}, {d})", 0, 1, None, e)
    if kind == "swish":
        return b.emit("f32", x.dims, f"multiply({x.name}, {do('logistic', x.name)})", -1,
                      max(x.m, 1), None, e)
    if kind == "gelu":
        y = do("add", do("erf", do("multiply", x.name, splat(0.70710677))), one)
        return b.emit("f32", x.dims, f"multiply({do('multiply', x.name, half)}, {y})", -1,
                      max(x.m, 1), None, e)
    if kind == "tanh-gelu":
        u = do("multiply", splat(0.7978846),
               do("add", x.name, do("multiply", splat(0.044715), do("power", x.name, splat(3)))))
        y = do("multiply", half, do("add", one, do("tanh", u)))
        return b.emit("f32", x.dims, f"multiply({x.name}, {y})", -1, max(x.m, 1), None,
                      (4 + x.m**3) * x.err + 256 * 2.0**-23 * (1 + x.m**3))
    y = do("clamp", b.scalar("f32", 0).name, do("add", do("multiply", x.name, half), half),
           b.scalar("f32", 1).name)
    return b.emit("f32", x.dims, f"multiply({x.name}, {y})", -x.m, x.m, None, e)


def f_twice(b):
    """An operation and what undoes or repeats it."""
    kind = b.r.choice(["reverse", "transpose", "slices", "concat", "pad", "not", "negate", "pred",
                       "complex", "elements", "broadcast-reduce", "convert", "unsigned",
                       "constants"])
    x = b.pick(lambda v: True, b.new)
    n = len(x.dims)
    if kind == "reverse" and n:
        d = ints(sorted(b.r.sample(range(n), b.r.randint(1, n))))
        y = b.same(x, f"reverse({x.name}), dimensions={d}")
        return b.same(x, f"reverse({y.name}), dimensions={d if b.r.random() < 0.7 else '{0}'}")
    if kind == "transpose" and n > 1:
        p = b.r.sample(range(n), n)
        y = b.same(x, f"transpose({x.name}), dimensions={ints(p)}", tuple(x.dims[k] for k in p))
        q = [p.index(k) for k in range(n)] if b.r.random() < 0.6 else b.r.sample(range(n), n)
        return b.same(x, f"transpose({y.name}), dimensions={ints(q)}", tuple(y.dims[k] for k in q))
    if kind == "slices" and n:
        d = b.r.randrange(n)
        cut = b.r.randint(0, x.dims[d])
        full = [f"[0:{v}]" for v in x.dims]
        a, z = list(full), list(full)
        a[d], z[d] = f"[0:{cut}]", f"[{cut}:{x.dims[d]}]"
        p = b.same(x, f"slice({x.name}), slice={{{', '.join(a)}}}",
                   x.dims[:d] + (cut,) + x.dims[d + 1:])
        q = b.same(x, f"slice({x.name}), slice={{{', '.join(z)}}}",
                   x.dims[:d] + (x.dims[d] - cut,) + x.dims[d + 1:])
        if b.r.random() < 0.3:
            p, q = q, p
        return b.same(x, f"concatenate({p.name}, {q.name}), dimensions={{{d}}}")
    if kind == "concat" and n:
        d = b.r.randrange(n)
        y = b.same(x, f"concatenate({x.name}, {x.name}), dimensions={{{d}}}",
                   x.dims[:d] + (2 * x.dims[d],) + x.dims[d + 1:])
        lo = b.r.randint(0, y.dims[d])
        hi = b.r.randint(lo, y.dims[d])
        parts = [f"[0:{v}]" for v in y.dims]
        parts[d] = f"[{lo}:{hi}]"
        return b.same(x, f"slice({y.name}), slice={{{', '.join(parts)}}}",
                      x.dims[:d] + (hi - lo,) + x.dims[d + 1:])
    if kind == "pad" and n:
        v = b.scalar(x.t, 0)
        y = x
        for _ in range(2):
            p = [(b.r.choice([0, 1, -1]), b.r.choice([0, 2, -1]), b.r.choice([0, 0, 1]))
                 for _ in y.dims]
            dims = tuple(lo + hi + (s + (s - 1) * i if s else 0)
                         for s, (lo, hi, i) in zip(y.dims, p))
            if min(dims) < 0:
                raise Reject
            y = b.emit(x.t, dims,
                       f"pad({y.name}, {v.name}), padding={'x'.join('%d_%d_%d' % v for v in p)}",
                       min(x.lo, 0), max(x.hi, 0), x.q, x.err, x.special, rounds=False)
        return y
    if kind == "not" and x.err == 0:
        y = b.like(x, lambda v: v.err == 0)
        if y.err:
            raise Reject
        d = b.r.choice(["EQ", "NE", "LT", "GE"] if not is_complex(x.t) else ["EQ", "NE"])
        p = b.emit("pred", x.dims, f"compare({x.name}, {y.name}), direction={d}", 0, 1)
        return b.emit("pred", x.dims, f"not({p.name})", 0, 1)
    if kind == "negate" and x.t != "pred" and x.t not in SMALL_FLOATS:
        y = b.like(x)
        z = b.emit(x.t, x.dims, f"negate({y.name})", -y.hi, -y.lo, y.q, y.err, y.special,
                   rounds=False)
        op = b.r.choice(["add", "subtract", "multiply"])
        if is_complex(x.t):
            raise Reject
        lo, hi, q, e = combine(op, x, z)
        return b.emit(x.t, x.dims, f"{op}({x.name}, {z.name})", lo, hi, q, e,
                      x.special or z.special)
    if kind == "pred":
        p = b.pick(lambda v: v.t == "pred", lambda: b.new("pred"))
        t, f = (b.splat(b.scalar("pred", k), p.dims) for k in b.r.sample([0, 1], 2))
        y = b.emit("pred", p.dims, f"select({p.name}, {t.name}, {f.name})", 0, 1)
        return b.emit("pred", p.dims,
                      f"{b.r.choice(['and', 'or', 'xor'])}({y.name}, {b.r.choice([t, f, p]).name})",
                      0, 1)
    if kind == "complex" and x.t in ("f32", "f64") and not x.special:
        y = b.like(x, lambda v: not v.special)
        if y.special:
            raise Reject
        c = b.put(f"{'c64' if x.t == 'f32' else 'c128'}[{','.join(map(str, x.dims))}]",
                  f"complex({x.name}, {y.name})")
        b.same(x, f"real({c})")
        return b.same(y, f"imag({c})")
    if kind == "elements":
        y = b.pick(lambda v: True, b.new)
        text = f"({x.text}, {y.text})"
        t = b.put(text, f"tuple({x.name}, {y.name})")
        a, z = b.put(x.text, f"get-tuple-element({t}), index=0"), b.put(
            y.text, f"get-tuple-element({t}), index=1")
        u = b.put(text, f"tuple({a}, {z})")
        return b.same(y, f"get-tuple-element({u}), index=1")
    if kind == "broadcast-reduce" and x.t in FLOATS + INTS + ["pred"] and not x.special and n < 5:
        d, k = b.r.randint(0, n), b.r.choice([1, 2, 3, 8])
        y = b.same(x, f"broadcast({x.name}), dimensions={ints(v for v in range(n + 1) if v != d)}",
                   x.dims[:d] + (k,) + x.dims[d:])
        fn, identity, op = reducer(b, x.t)
        over = sorted({d} | ({b.r.randrange(n + 1)} if b.r.random() < 0.4 else set()))
        lo, hi, q, e = reduced(b, y, op, size([y.dims[v] for v in over]))
        return b.emit(x.t, tuple(v for i, v in enumerate(y.dims) if i not in over),
                      f"reduce({y.name}, {b.scalar(x.t, identity).name}), dimensions={ints(over)}, "
                      f"to_apply={fn}", min(lo, 0), max(hi, 0), q, e,
                      0 in x.dims and op in ("maximum", "minimum") and x.t in PREC, rounds=False)
    if kind == "convert" and (is_int(x.t) or x.t in ("f32", "bf16", "f16")):
        wide = b.r.choice(["s64", "s32", "f64"]) if is_int(x.t) else b.r.choice(["f64", "f32"])
        if x.t in ("s64", "u64") and wide == "f64":
            raise Reject
        y = b.emit(wide, x.dims, f"convert({x.name})",
                   *((x.lo, x.hi) if wide[0] != "f"
                     else (float(x.lo), float(x.hi), x.q, x.err, x.special)))
        to = b.r.choice(["f32", "f64"] if not is_int(x.t) else ["s8", "u16", "f32"])
        if wide[0] == "f" and to[0] != "f":
            raise Reject
        return b.emit(to, x.dims, f"convert({y.name})",
                      *((y.lo, y.hi) if to[0] != "f"
                        else (float(y.lo), float(y.hi), y.q, y.err, y.special)))
    if kind == "unsigned":
        y = b.pick(lambda v: v.t in ("u8", "u16", "u32", "u64"),
                   lambda: b.new(b.r.choice(["u8", "u16", "u32", "u64"])))
        c = b.splat(b.scalar(y.t, 2**b.r.randrange(8)), y.dims)
        return b.emit(y.t, y.dims, f"{b.r.choice(['divide', 'remainder'])}({y.name}, {c.name})", 0,
                      y.hi)
    if kind == "constants" and x.t in FLOATS + INTS:
        op = b.r.choice(["add", "multiply", "maximum", "minimum"])
        y = x
        for _ in range(2):
            c = b.splat(b.scalar(x.t, b.r.choice([0, 1, 2, 3])), x.dims)
            lo, hi, q, e = combine(op, y, c)
            a, z = (y, c) if b.r.random() < 0.5 else (c, y)
            y = b.emit(x.t, x.dims, f"{op}({a.name}, {z.name})", lo, hi, q, e, y.special,
                       rounds=op in ("add", "multiply"))
        return y
    raise Reject


def f_inverse(b):
    """acos and its family: NaN outside their domain."""
    op = b.r.choice(["acos", "asin", "acosh", "asinh", "atanh", "cosh", "sinh"])
    x = b.float_val(exact=True, t=b.r.choice(["f32", "f32", "f64", "bf16", "f16"]))
    if (x.m > (8 if op in ("cosh", "sinh") else 64)
        or op in ("acos", "asin", "atanh") and b.r.random() < 0.5 and x.m > 1):
        raise Reject
    m = math.exp(x.m) if op in ("cosh", "sinh") else 8
    b.emit(x.t, x.dims, f"{op}({x.name})", -m, m, None, 64 * 2.0**(1 - min(PREC[x.t], 48)) * m,
           op in ("acos", "asin", "acosh", "atanh"))


# ---- networks: convolutions with what stands between them, so that layouts, pooling, epilogues and
# folded weights meet

def weight_of(b, dims, scale):
    """Small numbers, so that several layers stay in range."""
    v = (b.m.np.integers(-4, 5, dims) * scale).astype(np.float32)
    return (b.param("f32", dims, given=(v, -4 * scale, 4 * scale, None, False)) if b.entry
            else b.const("f32", dims, given=(v, -4 * scale, 4 * scale, None, False)))


def layer_conv(b, x):
    n, c, h, w = x.dims
    kind = b.r.choice(["1x1", "3x3", "3x3", "depthwise", "grouped", "strided"])
    o = b.r.choice([8, 16, 16, 32, 5])
    g = c if kind == "depthwise" else 2 if kind == "grouped" and c % 2 == 0 else 1
    o = c if kind == "depthwise" else o + o % g
    k = 1 if kind == "1x1" else 3
    s, p = (2 if kind == "strided" else 1), b.r.choice([0, 1]) if k == 3 else 0
    oh, ow = (h + 2 * p - k) // s + 1, (w + 2 * p - k) // s + 1
    if min(h + 2 * p - k, w + 2 * p - k) < 0:
        raise Reject
    f = weight_of(b, (o, c // g, k, k), 2.0**-b.r.choice([3, 4, 5]))
    m = k * k * (c // g) * x.m * f.m
    e = k * k * (c // g) * x.err * f.m + (k * k * c // g + 60) * 2.0**-23 * m
    text = (
        f"convolution({x.name}, {f.name}), window={{size={k}x{k}"
        f"{f' stride={s}x{s}' if s > 1 else ''}{f' pad={p}_{p}x{p}_{p}' if p else ''}}}, "
        f"dim_labels=bf01_oi01->bf01")
    return b.emit("f32", (n, o, oh, ow), text + (f", feature_group_count={g}" if g > 1 else ""), -m,
                  m, None, e)


def layer_pool(b, x):
    n, c, h, w = x.dims
    k, s = b.r.choice([(2, 2), (3, 2), (3, 1), (2, 1)])
    p = b.r.choice([0, 1]) if k == 3 else 0
    if min(h, w) + 2 * p < k:
        raise Reject
    dims = (n, c, (h + 2 * p - k) // s + 1, (w + 2 * p - k) // s + 1)
    window = (f"window={{size=1x1x{k}x{k} "
              f"stride=1x1x{s}x{s}{f' pad=0_0x0_0x{p}_{p}x{p}_{p}' if p else ''}}}")
    if b.r.random() < 0.6:
        return b.emit("f32", dims, f"reduce-window({x.name}, {b.scalar('f32', -math.inf).name}), "
                                   f"{window}, to_apply={b.scalar_fn('maximum', 'f32')}", x.lo,
                      x.hi, None, x.err, rounds=False)
    y = b.emit("f32", dims, f"reduce-window({x.name}, {b.scalar('f32', 0).name}), {window}, "
                            f"to_apply={b.scalar_fn('add', 'f32')}", -k * k * x.m, k * k * x.m,
               None, k * k * x.err + k * k * 2.0**-23 * k * k * x.m)
    d = b.splat(b.scalar("f32", k * k), dims)
    return b.emit("f32", dims, f"divide({y.name}, {d.name})", -x.m, x.m, None, y.err / k / k)


def layer_between(b, x, seen):
    kind = b.r.choice(["bias", "scale", "relu", "relu", "relu6", "sigmoid", "swish", "residual",
                       "concat", "norm", "pad", "nhwc", "tanh", "slice"])
    n, c, h, w = x.dims
    if kind in ("bias", "scale"):
        v = weight_of(b, (c,), 0.25)
        s = b.same(v, f"broadcast({v.name}), dimensions={{1}}", x.dims)
        op = "add" if kind == "bias" else "multiply"
        return b.emit("f32", x.dims, f"{op}({x.name}, {s.name})", *combine(op, x, s))
    if kind == "relu":
        return epilogue(b, x, 1, "maximum")
    if kind == "relu6":
        return epilogue(b, x, 1, "clamp")
    if kind in ("sigmoid", "swish", "tanh"):
        if x.m > 1e4:
            raise Reject
        y = b.emit("f32", x.dims, f"{'tanh' if kind == 'tanh' else 'logistic'}({x.name})", -1, 1,
                   None, 1.2 * x.err + 64 * 2.0**-23)
        return y if kind != "swish" else b.emit("f32", x.dims, f"multiply({x.name}, {y.name})",
                                                -x.m, x.m, None, x.err + x.m * y.err)
    if kind in ("residual", "concat"):
        y = next((v for v in reversed(seen[:-1])
                  if (v.dims == x.dims if kind == "residual"
                      else v.dims[2:] == x.dims[2:] and v.dims[0] == n)), None)
        if y is None:
            raise Reject
        if kind == "residual":
            return b.emit("f32", x.dims, f"add({x.name}, {y.name})", *combine("add", x, y))
        return b.emit("f32", (n, c + y.dims[1], h, w),
                      f"concatenate({x.name}, {y.name}), dimensions={{1}}", min(x.lo, y.lo),
                      max(x.hi, y.hi), None, max(x.err, y.err), rounds=False)
    if kind == "norm":
        scale, offset, mean = (weight_of(b, (c,), 0.25) for _ in range(3))
        v = b.m.np.integers(1, 8, (c,)).astype(np.float32)
        var = (b.param("f32", (c,), given=(v, 1.0, 8.0, None, False)) if b.entry
               else b.const("f32", (c,), given=(v, 1.0, 8.0, None, False)))
        m = (x.m + 1) * 1.0 + 1
        return b.emit("f32", x.dims, f"batch-norm-inference({x.name}, {scale.name}, {offset.name}, "
                                     f"{mean.name}, {var.name}), epsilon=0.001, feature_index=1",
                      -m, m, None, x.err + 32 * 2.0**-23 * m)
    if kind == "pad":
        return b.emit("f32", (n, c, h + 1, w + 2),
                      f"pad({x.name}, {b.scalar('f32', 0).name}), padding=0_0x0_0x0_1x1_1",
                      min(x.lo, 0), max(x.hi, 0), None, x.err, rounds=False)
    if kind == "slice" and c > 8:
        return b.same(x, f"slice({x.name}), slice={{[0:{n}], [{c // 2}:{c}], [0:{h}], [0:{w}]}}",
                      (n, c - c // 2, h, w))
    if kind == "nhwc":  # there and back, with something in between
        y = b.same(x, f"transpose({x.name}), dimensions={{0,2,3,1}}", (n, h, w, c))
        y = b.emit("f32", y.dims, f"abs({y.name})", 0, x.m, None, x.err, rounds=False)
        return b.same(y, f"transpose({y.name}), dimensions={{0,3,1,2}}", x.dims)
    raise Reject


def f_net(b):
    x = b.new("f32", (b.r.choice([1, 1, 2]), b.r.choice([3, 8, 16, 16, 32]),
                      b.r.choice([5, 7, 8, 12]), b.r.choice([5, 7, 8, 12])), "dyadic")
    seen = [x]
    for _ in range(b.r.randint(3, 10)):
        mark = len(b.lines), len(b.pool), len(b.m.inputs)
        try:
            f = b.r.choices(["conv", "pool", "between"], [4, 1.5, 6])[0]
            y = (layer_conv(b, seen[-1]) if f == "conv" else layer_pool(b, seen[-1]) if f == "pool"
                 else layer_between(b, seen[-1], seen))
            seen.append(y)
        except Reject:
            if len(b.m.inputs) == mark[2]:
                del b.lines[mark[0]:], b.pool[mark[1]:]
    x = seen[-1]
    n, c, h, w = x.dims
    if b.r.random() < 0.5:  # the head
        y = b.emit("f32", (n, c), f"reduce({x.name}, {b.scalar('f32', 0).name}), "
                                  f"dimensions={{2,3}}, to_apply={b.scalar_fn('add', 'f32')}",
                   -h * w * x.m, h * w * x.m, None, h * w * x.err + h * w * 2.0**-23 * h * w * x.m)
    elif size(x.dims) < 4000:
        y = b.same(x, f"reshape({x.name})", (n, c * h * w))
    else:
        return
    o = b.r.choice([1, 10, 16])
    f = weight_of(b, (o, y.dims[1]) if b.r.random() < 0.5 else (y.dims[1], o), 0.125)
    m = y.dims[1] * y.m * f.m
    rc = 1 if f.dims[0] == o and f.dims[1] == y.dims[1] else 0
    b.emit("f32", (n, o),
           f"dot({y.name}, {f.name}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{rc}}}",
           -m, m, None, y.dims[1] * (y.err * f.m + 2.0**-22 * y.m * f.m))


# ---- structure

def f_tuple(b):
    xs = [b.pick(lambda v: True, b.new) for _ in range(b.r.randint(1, 3))]
    text = "(" + ", ".join(x.text for x in xs) + ")"
    t = b.put(text, f"tuple({', '.join(x.name for x in xs)})")
    if b.r.random() < 0.4:
        t = b.put(text, f"opt-barrier({t})")
    for k, x in enumerate(xs):
        b.same(x, f"get-tuple-element({t}), index={k}")


PLAIN = [(f_unary_smooth, 3), (f_unary_exact, 2), (f_binary, 5), (f_divide, 1), (f_bits, 1),
         (f_compare, 0.7), (f_select, 1), (f_clamp, 1), (f_convert, 1), (f_reverse, 0.5),
         (f_slice, 0.7), (f_pad, 0.5), (f_concatenate, 0.5), (f_broadcast, 0.7), (f_reshape, 0.7),
         (f_transpose, 0.7), (f_reduce, 1), (f_dot, 0.4), (f_dynamic_slice, 0.4),
         (f_dynamic_update_slice, 0.3), (f_gather, 0.2), (f_tuple, 0.2)]


def f_call(b):
    """call and fusion-like bodies of any family."""
    if b.depth > 2:
        raise Reject
    xs = [b.pick(lambda v: True, b.new) for _ in range(b.r.randint(1, 3))]
    s, _ = b.sub(xs)
    for _ in range(b.r.randint(1, 4)):
        s.step(PLAIN)
    root = next((v for v in reversed(s.pool) if v.elems is None and v.used == 0), s.pool[-1])
    fn = s.close(root.name, "callee")
    b.same(root, f"call({', '.join(x.name for x in xs)}), to_apply={fn}")


def f_map(b):
    x = b.pick(lambda v: v.t in FLOATS + INTS and len(v.dims) >= 1 and not v.special,
               lambda: b.new(b.r.choice(["f32", "s32", "f64", "u8"]), b.dims(b.r.randint(1, 3))))
    y = b.like(x, lambda v: not v.special)
    if y.special:
        raise Reject
    s, (p, q) = b.sub([Scalar(x), Scalar(y)])
    for _ in range(b.r.randint(1, 3)):
        s.step([(f_unary_smooth, 2), (f_binary, 4), (f_unary_exact, 1), (f_select, 1),
                (f_compare, 1), (f_convert, 1)])
    root = next(v for v in reversed(s.pool) if not v.dims)
    fn = s.close(root.name, "mapped")
    b.same(root, f"map({x.name}, {y.name}), dimensions={ints(range(len(x.dims)))}, to_apply={fn}",
           x.dims)


def Scalar(v):
    return type(v)(v.name, v.t, (), v.lo, v.hi, v.q, v.err, v.special)


KEEP = [(f_binary, 4), (f_unary_smooth, 2), (f_unary_exact, 2), (f_select, 1), (f_clamp, 1),
        (f_reverse, 1), (f_bits, 0.5)]


def same_shape_body(s, x, families=KEEP):
    """A few operations on x inside computation s; the last value of x's type and dims."""
    for _ in range(s.r.randint(1, 4)):
        s.step(families)
    c = [v for v in s.pool if v.t == x.t and v.dims == x.dims and v.elems is None]
    return s.r.choice(c[-3:])


def f_conditional(b):
    if b.depth > 2:
        raise Reject
    n = b.r.choice([2, 2, 3, 4])
    by_pred = n == 2 and b.r.random() < 0.6
    p = b.pick(lambda v: not v.dims and v.t == ("pred" if by_pred else "s32"),
               lambda: b.new("pred" if by_pred else "s32", ()), 0.7)
    target = b.pick(lambda v: True, b.new)
    args, fns, outs = [], [], []
    for k in range(n):
        xs = [target] + [b.pick(lambda v: True, b.new) for _ in range(b.r.randint(0, 2))]
        if len(xs) == 1:
            args.append(target.name)
            s, _ = b.sub(xs)
        else:
            args.append(b.put("(" + ", ".join(x.text for x in xs) + ")",
                              f"tuple({', '.join(x.name for x in xs)})"))
            s = unpack(b, xs)
        if b.r.random() < 0.3:
            s.step([(f_conditional, 1), (f_while, 1)])
        root = same_shape_body(s, target)
        outs.append(root)
        fns.append(s.close(root.name, "branch"))
    which = (f"true_computation={fns[0]}, false_computation={fns[1]}" if by_pred
             else f"branch_computations={{{', '.join(fns)}}}")
    qs = [v.q for v in outs]
    b.emit(target.t, target.dims, f"conditional({', '.join([p.name] + args)}), {which}",
           min(v.lo for v in outs), max(v.hi for v in outs), None if None in qs else max(qs),
           max(v.err for v in outs), any(v.special for v in outs), rounds=False)


def unpack(b, xs):
    """A builder whose one parameter is a tuple of `xs`, taken apart."""
    s = Builder(b.m, False, b.depth + 1)
    t = s.put("(" + ", ".join(x.text for x in xs) + ")", "parameter(0)")
    for k, x in enumerate(xs):
        s.same(x, f"get-tuple-element({t}), index={k}")
    return s


def turn(s, x, counter):
    """x after one more turn of a loop: exact, and inside x's interval."""
    r = s.r
    move = r.choice(["negate", "reverse", "roll", "update", "row", "row", "maxc", "select", "keep",
                     "inner", "branch", "sum"])
    if move == "negate" and x.t != "pred" and x.t[0] not in "u" and not is_complex(x.t):
        y = s.same(x, f"negate({x.name})")
        y.lo, y.hi = -x.m, x.m
        return y
    if move == "reverse" and x.dims:
        return s.same(x, f"reverse({x.name}), dimensions={{{r.randrange(len(x.dims))}}}")
    if move == "roll" and x.dims and x.dims[0] > 1:
        full = "".join(f", [0:{n}]" for n in x.dims[1:])
        n = x.dims[0]
        a = s.same(x, f"slice({x.name}), slice={{[1:{n}]{full}}}", (n - 1,) + x.dims[1:])
        z = s.same(x, f"slice({x.name}), slice={{[0:1]{full}}}", (1,) + x.dims[1:])
        return s.same(x, f"concatenate({a.name}, {z.name}), dimensions={{0}}")
    if move == "update" and x.dims and 0 not in x.dims:
        one = (1,) + x.dims[1:]
        zero = s.scalar("s32", 0)
        rest = "".join(f", {zero.name}" for _ in x.dims[1:])
        p = s.same(x, f"dynamic-slice({x.name}, {counter.name}{rest}), "
                      f"dynamic_slice_sizes={ints(one)}", one)
        return s.same(x, f"dynamic-update-slice({x.name}, {p.name}, {zero.name}{rest})")
    # a table filled row by row, its old value still in use
    if (move == "row" and x.dims and 0 not in x.dims and x.t not in ("pred",)
        and not is_complex(x.t)):
        one = (1,) + x.dims[1:]
        zero = s.scalar("s32", 0)
        rest = "".join(f", {zero.name}" for _ in x.dims[1:])
        at = counter
        for _ in range(r.choice([0, 0, 1])):
            at = s.emit("s32", (),
                        f"add({counter.name}, {s.scalar('s32', r.choice([1, -1])).name})", -1, 100)
        p = s.same(x, f"dynamic-slice({x.name}, {at.name}{rest}), dynamic_slice_sizes={ints(one)}",
                   one)
        q = s.same(x, f"slice({x.name}), "
                      f"slice={{{', '.join(['[0:1]'] + [f'[0:{n}]' for n in x.dims[1:]])}}}", one)
        u = s.same(x, f"{r.choice(['maximum', 'minimum'])}({p.name}, {q.name})", one)
        y = s.same(x, f"dynamic-update-slice({x.name}, {u.name}, {counter.name}{rest})")
        if r.random() < 0.3:
            y = s.same(x, f"dynamic-update-slice({y.name}, {p.name}, {zero.name}{rest})")
        return (s.same(x, f"{r.choice(['maximum', 'minimum'])}({r.choice([x, y]).name}, {y.name})")
                if r.random() < 0.5 else y)
    # x + c, brought back inside
    if move in ("sum", "maxc") and x.t in ("f32", "f64", "s32", "s64"):
        c = s.splat(s.scalar(x.t, 1), x.dims)
        y = s.same(x, f"add({x.name}, {c.name})")
        lo, hi = s.scalar(x.t, math.ceil(x.lo) if x.lo > -1e9 else -9), s.scalar(
            x.t, math.floor(x.hi) if x.hi < 1e9 else 9)
        return s.same(x, f"clamp({lo.name}, {y.name}, {hi.name})")
    if move == "select":
        two = s.scalar("s32", 2)
        rem = s.emit("s32", (), f"remainder({counter.name}, {two.name})", 0, 1)
        zero = s.scalar("s32", 0)
        p = s.emit("pred", (), f"compare({rem.name}, {zero.name}), direction=EQ", 0, 1)
        y = (s.same(x, f"reverse({x.name}), dimensions={{{r.randrange(len(x.dims))}}}") if x.dims
             else x)
        pp = s.splat(p, x.dims)
        return s.same(x, f"select({pp.name}, {x.name}, {y.name})")
    if move == "branch" and s.depth < 3:
        b2, b3 = s.sub([x])[0], s.sub([x])[0]
        fns = []
        for q in (b2, b3):
            y = turn(q, q.pool[0], q.scalar("s32", 1))
            fns.append(q.close(y.name, "branch"))
        two = s.scalar("s32", 2)
        rem = s.emit("s32", (), f"remainder({counter.name}, {two.name})", 0, 1)
        y = s.same(x, f"conditional({rem.name}, {x.name}, {x.name}), "
                      f"branch_computations={{{', '.join(fns)}}}")
        y.lo, y.hi = -x.m if x.t in PREC or x.t[0] == "s" else 0, x.m
        return y
    if move == "inner" and s.depth < 3:
        return loop(s, [x], r.randint(0, 2))[0]
    return x


def loop(b, xs, trips):
    """A while over (counter, xs...): values after `trips` turns. State that is exact stays exact
    and in its interval."""
    for x in xs:
        if x.err:
            raise Reject
    zero = b.scalar("s32", 0)
    state = [Val_like(zero, 0, trips)] + [
        Val_like(x, -x.m if x.t in PREC or (x.t[0] == "s" and x.lo > -x.m) else x.lo,
                 x.m if x.t in PREC or x.t[0] == "s" else x.hi)
        for x in xs]
    text = "(" + ", ".join(x.text for x in state) + ")"
    init = b.put(text, f"tuple({', '.join(x.name for x in [zero] + xs)})")
    c = unpack(b, state)
    n = c.scalar("s32", trips)
    cond = c.close(c.put("pred[]", f"compare({c.pool[0].name}, {n.name}), direction=LT"), "cond")
    s = unpack(b, state)
    counter = s.pool[0]
    values = list(s.pool[:len(state)])
    one = s.scalar("s32", 1)
    outs = [s.put("s32[]", f"add({counter.name}, {one.name})")]
    for v in values[1:]:
        outs.append(turn(s, v, counter).name)
    by_text = {}
    for k, v in enumerate(values[1:], 1):  # one state's next value from another's, old or new
        other = by_text.setdefault(v.text, k)
        if (other != k and b.r.random() < 0.5 and v.t not in ("pred",) and not is_complex(v.t)
            and (v.t in PREC or v.t[0] == "s")):
            outs[k] = s.put(v.text, f"{b.r.choice(['maximum', 'minimum'])}({outs[k]}, "
                                    f"{b.r.choice([values[other].name, outs[other]])})")
            for i in (k, other):
                m = max(state[k].m, state[other].m)
                state[i].lo, state[i].hi = -m, m
                state[i].q = (None if None in (state[k].q, state[other].q)
                              else max(state[k].q, state[other].q))
                state[i].special = state[k].special or state[other].special
    if len(values) > 2 and b.r.random() < 0.3:  # swap two of one type
        for i, j in itertools.combinations(range(1, len(values)), 2):
            if values[i].text == values[j].text:
                m = max(values[i].m, values[j].m)
                outs[i], outs[j] = outs[j], outs[i]
                for k in (i, j):
                    state[k].lo, state[
                        k].hi = (-m, m) if state[k].t in PREC or state[k].t[0] == "s" else (0, m)
                    state[k].q = (None if None in (values[i].q, values[j].q)
                                  else max(values[i].q, values[j].q))
                    state[k].special = values[i].special or values[j].special
                break
    body = s.close(s.put(text, f"tuple({', '.join(outs)})"), "body")
    w = b.put(text, f"while({init}), condition={cond}, body={body}")
    return [b.same(x, f"get-tuple-element({w}), index={k}") for k, x in enumerate(state)][1:]


def Val_like(x, lo, hi):
    v = type(x)(x.name, x.t, x.dims, lo, hi, x.q, 0.0, x.special)
    return v


def f_while(b):
    if b.depth > 2:
        raise Reject
    ok = lambda v: v.err == 0 and v.t not in SMALL_FLOATS + ["s4", "u4"]  # noqa: E731
    xs = [b.pick(ok, lambda: b.new(b.r.choice(["f32", "s32", "f64", "u8", "pred"]), None, "dyadic"))
          for _ in range(b.r.randint(1, 3))]
    if b.r.random() < 0.4:
        xs.append(b.like(xs[0], ok) if b.r.random() < 0.7 else xs[0])
        if not ok(xs[-1]):
            xs.pop()
    loop(b, xs, b.r.choice([0, 1, 2, 3, 5, 17]))


THEMES = {"elementwise": [(f_unary_smooth, 4), (f_unary_exact, 3), (f_binary, 8), (f_divide, 2),
                          (f_power, 2), (f_atan2, 0.5), (f_bits, 2), (f_compare, 2), (f_select, 2),
                          (f_clamp, 2), (f_convert, 3), (f_bitcast_convert, 1),
                          (f_reduce_precision, 1), (f_complex, 1.5), (f_complex_function, 0.7),
                          (f_broadcast, 1), (f_map, 0.5)],
          "shape": [(f_reshape, 3), (f_broadcast, 3), (f_transpose, 3), (f_reverse, 2), (f_copy, 1),
                    (f_slice, 3), (f_concatenate, 3), (f_pad, 3), (f_dynamic_slice, 2),
                    (f_dynamic_update_slice, 2), (f_iota, 1), (f_binary, 3),
                    (f_dimension_size, 0.3), (f_gather, 1), (f_tuple, 1)],
          "contraction": [(f_dot, 4), (f_convolution, 3), (f_binary, 2), (f_transpose, 1),
                          (f_reshape, 1), (f_unary_smooth, 1), (f_pad, 0.7), (f_broadcast, 1)],
          "reduction": [(f_several, 1), (f_reduce, 5), (f_reduce_window, 4),
                        (f_select_and_scatter, 1), (f_binary, 2), (f_unary_smooth, 1),
                        (f_broadcast, 2), (f_transpose, 1), (f_clamp, 0.5)],
          "index": [(f_batched_index, 1), (f_several, 0.7), (f_gather, 3), (f_scatter, 3),
                    (f_sort, 3), (f_topk, 1), (f_dynamic_slice, 2), (f_dynamic_update_slice, 2),
                    (f_iota, 1), (f_binary, 2), (f_reshape, 1)],
          "control": [(f_while, 3), (f_conditional, 3), (f_call, 3), (f_map, 1), (f_binary, 2),
                      (f_tuple, 1), (f_unary_exact, 1), (f_compare, 1)],
          "rules": [(f_twice, 8), (f_softmax, 1), (f_layer_norm, 1), (f_activation, 2),
                    (f_binary, 2), (f_reshape, 1), (f_broadcast, 1.5), (f_transpose, 1),
                    (f_reduce, 2), (f_unary_smooth, 1), (f_power, 1), (f_divide, 1), (f_dot, 1),
                    (f_slice, 1), (f_pad, 0.5), (f_reduce_window, 1), (f_select, 0.5),
                    (f_copy, 0.3), (f_convolution, 0.5), (f_net, 0.2), (f_dynamic_slice, 0.5),
                    (f_dynamic_update_slice, 0.3), (f_batch_norm, 0.5)],
          "net": [(f_net, 8), (f_binary, 1), (f_dot, 1)],
          "numeric": [(f_fft, 2), (f_inverse, 1), (f_cholesky, 1), (f_triangular_solve, 1),
                      (f_batch_norm, 2), (f_rng_bits, 1.5), (f_complex, 1), (f_binary, 1),
                      (f_convert, 1)],}
# Values of f16 or of bf16 where others have f32: what runs in f32, moves narrow, is seen rounded.
THEMES["halves"] = [
    (f_dot, 3), (f_convolution, 2), (f_binary, 5), (f_unary_smooth, 3), (f_unary_exact, 1),
    (f_divide, 1), (f_power, 1), (f_clamp, 1), (f_select, 1), (f_compare, 1), (f_reduce, 3),
    (f_reduce_window, 2), (f_convert, 2), (f_concatenate, 2), (f_pad, 1),
    (f_dynamic_update_slice, 1.5), (f_dynamic_slice, 1), (f_gather, 1.5), (f_scatter, 1),
    (f_broadcast, 2), (f_transpose, 1), (f_reshape, 1), (f_slice, 1), (f_softmax, 1), (f_sort, 0.7),
    (f_while, 1), (f_conditional, 1), (f_call, 0.5), (f_batch_norm, 0.5), (f_twice, 2)]
THEMES["mixed"] = [(f, w) for t in ("elementwise", "shape", "contraction", "reduction", "index",
                                    "control", "numeric", "rules") for f, w in THEMES[t]]
WEIGHTS = {"elementwise": 3, "shape": 3, "contraction": 3, "reduction": 3, "index": 2, "control": 3,
           "numeric": 1, "rules": 6, "net": 2.5, "mixed": 6, "edges": 5, "halves": 4, "chosen": 6,
           "nonfinite": 4}


def theme(r):
    return THEMES[r.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]]
