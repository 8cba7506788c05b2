# SPDX-License-Identifier: Apache-2.0
"""Random valid HLO modules with inputs, and with the absolute error that each result may have.

Every value carries an interval, the number of fractional bits when all its elements are such dyadic
numbers (so that sums and products of them are exact in any order), and a bound on its absolute
error against exact arithmetic on the same inputs. Discontinuous operations (floor, compare, sort,
convert to integers...) are only applied to values with error 0: what is left is a module whose
results every correct implementation gives within the bound. Values that may hold NaN or infinity
are marked `special` and kept away from operations that may reorder them into something else.

generate(seed, index) is a pure function. Families are methods named f_*, see hlo_families.py,
hlo_edges.py, hlo_chosen.py and hlo_nonfinite.py."""
import math
import os
import random
import re
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ops"))
from oracle import DTYPES, literal_text

PREC = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8, "f8e5m2": 3, "f8e4m3fn": 4, "c64": 24,
        "c128": 53}
LIMIT = {"f64": 1e30, "f32": 1e10, "f16": 2e4, "bf16": 1e10, "f8e5m2": 2e4, "f8e4m3fn": 200,
         "c64": 1e10, "c128": 1e30}
MINQ = {"f16": 24, "f8e5m2": 16, "f8e4m3fn": 9}  # fractional bits of the smallest number
TINY = {"f64": 1e-300, "f32": 1e-37, "c64": 1e-37, "c128": 1e-300, "bf16": 1e-37, "f16": 2.0**-24,
        "f8e5m2": 2.0**-16, "f8e4m3fn": 2.0**-9}
FLOATS = ["f32", "f64", "f16", "bf16"]
SMALL_FLOATS = ["f8e5m2", "f8e4m3fn"]
INTS = ["s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64"]
COMPLEX = ["c64", "c128"]


class Reject(Exception):
    """This operation does not fit the values at hand."""


def is_float(t):
    return t in PREC and t[0] != "c"


def is_complex(t):
    return t[0] == "c"


def is_int(t):
    return t[0] in "su"


def bits(t):
    return int(t[1:].split("e")[0]) if t != "pred" and t[0] != "b" else (16 if t == "bf16" else 1)


def int_range(t):
    n = bits(t)
    return ((0, 1) if t == "pred" else (-(1 << n - 1), (1 << n - 1) - 1) if t[0] == "s"
            else (0, (1 << n) - 1))


def size(dims):
    return int(np.prod(dims, dtype=np.int64)) if dims else 1


def shape_text(t, dims):
    return f"{t}[{','.join(map(str, dims))}]"


class Val:
    __slots__ = ("name", "t", "dims", "lo", "hi", "q", "err", "special", "used", "elems")

    def __init__(self, name, t, dims, lo, hi, q=None, err=0.0, special=False):
        self.name, self.t, self.dims, self.lo, self.hi, self.q, self.err, self.special = (
            name, t, tuple(dims), lo, hi, q, err, special)
        self.used, self.elems = 0, None

    @property
    def m(self):
        return max(abs(self.lo), abs(self.hi))

    @property
    def text(self):
        return shape_text(self.t, self.dims)


class Module:
    """What the computations of one module share: names, parameters with their data, the random
    source."""

    def __init__(self, seed, index):
        self.r = random.Random(f"{seed}/{index}")
        self.np = np.random.default_rng([seed & 0xFFFFFFFF, index])
        self.computations, self.count, self.inputs, self.cap, self.sliced = [], 0, [], 500, set()
        self.cut = set()  # what a reduce-window with negative padding leaves
        self.half = None  # f16 or bf16: the type of what would be f32

    def name(self, stem):
        self.count += 1
        return f"{stem}.{self.count}"


class Builder:
    """One computation. `params` are the values it starts with (none for the entry, which makes its
    own)."""

    def __init__(self, module, entry=False, depth=0):
        self.m, self.r, self.entry, self.depth = module, module.r, entry, depth
        self.lines, self.pool, self.weights, self.chain = [], [], False, False

    # ---- making values

    def put(self, text, rest, name=None):
        name = name or self.m.name("v")
        self.lines.append(f"  {name} = {text} {rest}")
        return name

    def bound(self, t, lo, hi, q, err, special=False, rounds=True):
        """(lo, hi, q, err) of a float result after rounding to t; Reject when it may overflow or
        means little."""
        m = max(abs(lo), abs(hi))
        if not m <= LIMIT[t]:
            raise Reject
        if q is not None and (m * 2.0**max(q, 0) > 2.0**PREC[t] or q > MINQ.get(t, 60)):
            q = None
        if q is None and rounds:
            err += 2.0**(1 - PREC[t]) * m + TINY[t]
        if err > 0.3 * m + (0.1 if t in SMALL_FLOATS else 1e-6):
            raise Reject
        return lo - err, hi + err, q, err

    def emit(self, t, dims, rest, lo, hi, q=None, err=0.0, special=False, rounds=True):
        if size(dims) > 4 * self.m.cap:
            raise Reject
        if t in PREC:
            lo, hi, q, err = self.bound(t, lo, hi, q, err, special, rounds)
        else:
            a, b = int_range(t)
            if lo < a or hi > b:
                lo, hi = a, b
            lo, hi, q, err = int(lo), int(hi), 0, 0.0
        v = Val(self.put(shape_text(t, dims), rest), t, dims, lo, hi, q, err, special)
        self.pool.append(v)
        return v

    def same(self, x, rest, dims=None, t=None):
        """Elements of x, moved."""
        if size(dims if dims is not None else x.dims) > 4 * self.m.cap:
            raise Reject
        v = Val(self.put(shape_text(t or x.t, x.dims if dims is None else dims), rest), t or x.t,
                x.dims if dims is None else dims, x.lo, x.hi, x.q, x.err, x.special)
        if x.name in self.m.sliced:  # XLA moves what moves elements out of the way
            self.m.sliced.add(v.name)
        if x.name in self.m.cut:
            self.m.cut.add(v.name)
        self.pool.append(v)
        return v

    def data(self, t, dims, kind=None):
        """(array, lo, hi, q, special)"""
        r, g, n = self.r, self.m.np, tuple(dims)
        if t == "pred":
            return g.integers(0, 2, n).astype(bool), 0, 1, 0, False
        if is_int(t):
            a, b = int_range(t)
            wide = r.random() < 0.2
            lo, hi = (a, b) if wide or bits(t) == 4 else (max(a, -9), min(b, 9))
            v = g.integers(lo, hi, n, dtype=np.uint64 if t[0] == "u" else np.int64,
                           endpoint=True).astype(DTYPES[t])
            if wide and v.size:  # the ends themselves
                flat = v.reshape(-1)
                for e in (a, b, 0):
                    flat[r.randrange(flat.size)] = e
            return v, lo, hi, 0, False
        kind = kind or r.choices(["dyadic", "real", "positive", "special"],
                                 [6, 2, 1.5, 0.7 if self.entry else 0])[0]
        if is_complex(t):
            v = (g.integers(-16, 17, n) + 1j * g.integers(-16, 17, n)) / 8.0
            return v.astype(DTYPES[t]), -2.0, 2.0, 3, False
        if t in SMALL_FLOATS:
            v = g.integers(-6, 7, n) / 2.0
            v = np.where(np.abs(v) == 2.5, 2.0, v)
            return v.astype(DTYPES[t]), -3.0, 3.0, 1, False
        if kind == "dyadic":
            q = r.choice([0, 0, 1, 2])
            k = r.choice([4, 16])
            v = g.integers(-k, k + 1, n) / 2.0**q
            return v.astype(DTYPES[t]), -k / 2.0**q, k / 2.0**q, q, False
        if kind == "positive":
            return (g.integers(4, 32, n) / 8.0).astype(DTYPES[t]), 0.5, 4.0, 3, False
        v = np.asarray(g.uniform(-3, 3, n)).astype(DTYPES[t])
        if kind == "special" and v.size:
            v = v.copy()
            flat = v.reshape(-1)
            for e in (np.nan, np.inf, -np.inf, 0.0, -0.0):
                flat[r.randrange(flat.size)] = e
            return v, -3.0, 3.0, None, True
        return v, -3.0, 3.0, None, False

    def param(self, t, dims, kind=None, given=None):
        v, lo, hi, q, special = given or self.data(t, dims, kind)
        n = len(self.m.inputs)
        weight = self.weights and self.r.random() < 0.6
        count = sum(w for _, w in self.m.inputs)
        name = self.put(shape_text(t, dims), f"parameter({n})" + (
                            f', frontend_attributes={{hlod_param="weight:{count}"}}' if weight
                            else ""), self.m.name("p"))
        self.m.inputs.append((v, weight))
        x = Val(name, t, dims, lo, hi, q, 0.0, special)
        self.pool.append(x)
        return x

    def const(self, t, dims, given=None):
        v, lo, hi, q, special = given or self.data(t, dims, "dyadic" if is_float(t) else None)
        x = Val(self.put(shape_text(t, dims), f"constant({literal_text(v)})"), t, dims, lo, hi, q,
                0.0, special)
        self.pool.append(x)
        return x

    def scalar(self, t, value):
        """A constant; exact."""
        v = np.array(value).astype(DTYPES[t])
        value = complex(v) if is_complex(t) else float(v) if t in PREC else int(v)
        q = None
        if t in PREC and not is_complex(t) and math.isfinite(value):
            q = next((k for k in range(20) if value * 2**k == int(value * 2**k)), None)
        a = abs(value) if is_complex(t) else value
        finite = is_complex(t) or math.isfinite(value)
        x = Val(self.put(f"{t}[]", f"constant({literal_text(v)})"), t, (),
                (-a if is_complex(t) else a) if finite else 0.0, a if finite else 0.0,
                q if t in PREC else 0, 0.0, not finite)
        self.pool.append(x)
        return x

    def splat(self, x, dims):
        return self.same(x, f"broadcast({x.name}), dimensions={{}}", dims) if dims else x

    def fresh(self, t, dims, kind=None):
        p = self.r.random()
        if self.entry and p < 0.6 or kind:
            if self.entry:
                return self.param(t, dims, kind)
        if p < 0.75 and 0 < size(dims) <= 64:
            return self.const(t, dims)
        if (p < 0.8 and len(dims) and t != "pred" and not is_complex(t) and t not in SMALL_FLOATS
            and t != "s4" and t != "u4"):
            d = self.r.randrange(len(dims))
            return self.emit(t, dims, f"iota(), iota_dimension={d}", 0, max(dims[d] - 1, 0), 0)
        if t == "pred":
            return self.splat(self.scalar(t, self.r.randrange(2)), dims)
        return self.splat(
            self.scalar(t, self.r.choice([0, 1, 1, 2, 3]
                                         + ([0.5, -1, -0.0, 0.25] if t in PREC and not is_complex(t)
                                            else []))), dims)

    # ---- choosing

    def dims(self, rank=None, least=0, cap=None):
        cap = cap or self.m.cap
        rank = self.r.choices(range(7), [1, 3, 5, 4, 3, 1, 1])[0] if rank is None else rank
        d = []
        for _ in range(rank):
            room = cap // max(size(d), 1)
            choices = [n for n in (1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 31, 64, 127)
                       if least <= n <= max(room, 1)] or [1]
            d.append(0 if least == 0 and self.r.random() < 0.012 else self.r.choice(choices))
        return tuple(d)

    def dtype(self):
        r = self.r
        return r.choices([["f32"], FLOATS, INTS, ["pred"], COMPLEX, SMALL_FLOATS, ["s4", "u4"]],
                         [7, 3, 4, 1, 0.7, 0.3, 0.2])[0]

    def real(self, t):
        return self.m.half if self.m.half and t == "f32" else t

    def new(self, t=None, dims=None, kind=None):
        return self.fresh(self.real(t or self.r.choice(self.dtype())),
                          self.dims() if dims is None else dims, kind)

    def pick(self, ok=lambda v: True, make=None, old=0.85):
        # op on op on op: what rewrite rules look for
        if self.chain and self.pool and ok(self.pool[-1]) and self.r.random() < 0.75:
            self.pool[-1].used += 1
            return self.pool[-1]
        c = [v for v in self.pool[-24:] if v.elems is None and ok(v)]
        if c and self.r.random() < old:
            c.sort(key=lambda v: v.used)
            v = c[min(int(self.r.expovariate(0.5)), len(c) - 1)]
        elif make:
            v = make()
            if not ok(v):
                raise Reject
        elif c:
            v = self.r.choice(c)
        else:
            raise Reject
        v.used += 1
        return v

    def like(self, x, ok=lambda v: True):
        """Another value of x's type and dims."""
        def make():
            if self.r.random() < 0.2 and is_float(x.t):
                return self.splat(self.scalar(x.t, self.r.choice([0, 1, 2, 0.5, -1, 4])), x.dims)
            return self.fresh(x.t, x.dims)
        return self.pick(lambda v: v.t == x.t and v.dims == x.dims and v is not x and ok(v), make,
                         0.6)

    def float_val(self, exact=False, special=False, least_rank=0, t=None, small=False):
        types, t = FLOATS + (SMALL_FLOATS if small else []), self.real(t)

        def ok(v):
            return ((v.t in types if t is None else v.t == t) and (not exact or v.err == 0)
                    and (special or not v.special) and len(v.dims) >= least_rank)
        return self.pick(ok, lambda: self.new(
                             t or self.r.choice(["f32", "f32", "f32"] + FLOATS),
                             None if least_rank == 0 else self.dims(self.r.randint(least_rank, 4)),
                             None if special else self.r.choice(["dyadic", "real", "positive"])))

    # ---- computations

    def close(self, root, stem):
        name = self.m.name(stem)
        body, mark = list(self.lines), f"  {root} = "
        k = next(k for k, line in enumerate(body) if line.startswith(mark))
        body[k] = "  ROOT " + body[k][2:]
        self.m.computations.append((name, body))
        return name

    def sub(self, params):
        """A builder whose parameters mirror `params`; (builder, values)"""
        b = Builder(self.m, False, self.depth + 1)
        vals = []
        for k, p in enumerate(params):
            v = Val(b.put(p.text, f"parameter({k})"), p.t, p.dims, p.lo, p.hi, p.q, p.err,
                    p.special)
            b.pool.append(v)
            vals.append(v)
        return b, vals

    def scalar_fn(self, op, t, stem="fn", rest=""):
        """The name of a computation of two scalars."""
        b = Builder(self.m)
        x, y = b.put(f"{t}[]", "parameter(0)"), b.put(f"{t}[]", "parameter(1)")
        out = "pred" if op == "compare" else t
        return b.close(b.put(f"{out}[]", f"{op}({x}, {y}){rest}"), stem)

    def step(self, families, tries=20):
        """One operation of a family drawn by weight; False when none fits."""
        names, weights = zip(*families)
        for _ in range(tries):
            f, mark, pool = self.r.choices(names, weights)[0], len(self.lines), len(self.pool)
            inputs, done = len(self.m.inputs), len(self.m.computations)
            try:
                f(self)
                return True
            except Reject:
                if len(self.m.inputs) == inputs:  # nothing that must stay
                    del self.lines[mark:], self.pool[pool:], self.m.computations[done:]
        return False


def generate(seed, index, only=None):
    """{name, text, inputs [(array, is weight)], atol [per result leaf], truths [per result leaf:
    what its elements must be, whoever computes them; or None]}; only: the theme that every module
    has"""
    import hlo_chosen
    import hlo_edges
    import hlo_families
    import hlo_nonfinite
    for name, of in (("edges", hlo_edges), ("chosen", hlo_chosen), ("nonfinite", hlo_nonfinite)):
        hlo_families.THEMES[name] = of.FAMILIES
    m = Module(seed, index)
    m.cap = m.r.choices([60, 500, 6000, 30000], [10, 8, 2, 0.6])[0]
    b = Builder(m, entry=True)
    b.weights, b.chain = m.r.random() < 0.35, m.r.random() < 0.35
    theme = hlo_families.THEMES[only] if only else hlo_families.theme(m.r)
    if theme is hlo_families.THEMES["halves"]:
        m.half = m.r.choice(["f16", "bf16"])
    for _ in range(2 if theme is hlo_families.THEMES["net"]
                   else m.r.choices([2, 5, 10, 20, 40], [2, 4, 4, 2, 1])[0]):
        b.step(theme)
    while not any(v.elems is None for v in b.pool):
        b.new()
    live = [v for v in b.pool if v.elems is None]
    read = set(re.findall(r"[\w.]+", "\n".join(x.partition("=")[2] for x in b.lines)))
    fresh = [v for v in live if v.name not in read] or live[-1:]
    m.r.shuffle(fresh)
    outs = fresh[:5]
    if len(outs) == 1 and m.r.random() < 0.7:
        root, text = outs[0].name, None
    else:
        text = "(" + ", ".join(v.text for v in outs) + ")"
        root = b.put(text, f"tuple({', '.join(v.name for v in outs)})")
    name = b.close(root, "main")
    body = m.computations.pop()[1]
    out = [f"HloModule fuzz_{index}", ""]
    for n, lines in m.computations:
        out += [f"{n} {{", *lines, "}", ""]
    out += [f"ENTRY {name} {{", *body, "}", ""]
    tolerance = lambda v: 4 * v.err if v.t in PREC else 0.0  # noqa: E731
    truth = lambda v: bool(v.lo) if v.t == "pred" and v.lo == v.hi else None  # noqa: E731
    return {"name": f"s{seed}-{index}", "text": "\n".join(out), "inputs": m.inputs,
            "truths": [truth(v) for v in outs],
            "atol": [tolerance(v) for v in outs], "atols": {v.name: tolerance(v) for v in b.pool}}
