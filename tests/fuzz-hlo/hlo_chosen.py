# SPDX-License-Identifier: Apache-2.0
"""Families in which a value meets a copy of itself: positions of extremes of computed rows,
comparisons of a value with its own reduction, order statistics, cumulative operations, reductions
of several operands over computed rows. What they give does not hang on a last bit, but on both
copies
being the same: either the extremes of the inputs stand far enough apart that any right computation
finds them at the same place, or the result is a truth that holds for every value (some element
equals the maximum; none is above it)."""
import math

from hlo_families import (FLOATS, PREC, f_binary, f_layer_norm, f_reduce, f_softmax, f_unary_smooth,
                          ints, row_reduce, window_text)
from hlo_gen import DTYPES, Builder, Reject, shape_text, size


def without(dims, d):
    return tuple(n for k, n in enumerate(dims) if k != d)


def spread(b, x, name, d, t=None):
    """`name`, one value a row of x along d, over the whole rows."""
    return b.put(shape_text(t or x.t, x.dims),
                 f"broadcast({name}), dimensions={ints(k for k in range(len(x.dims)) if k != d)}")


# ---- rows whose extremes stand apart

def parted(b):
    """Rows along dimension d of numbers in [-2, 2] with one 3 and one -3 each; (value, d)"""
    t = b.r.choice(["f32"] * 6 + FLOATS)
    dims = b.dims(b.r.randint(1, 4), 1)
    d = b.r.choice([len(dims) - 1, len(dims) - 1, b.r.randrange(len(dims))])
    if dims[d] < 2:
        dims = dims[:d] + (b.r.choice([2, 3, 5, 10, 17, 33]),) + dims[d + 1:]
    if size(dims) > b.m.cap * 2:
        raise Reject
    g = b.m.np
    v = g.uniform(-2, 2, dims)
    rows = v.swapaxes(d, -1).reshape(-1, dims[d])
    for row in rows:
        row[g.permutation(dims[d])[:2]] = 3, -3
    v = rows.reshape(v.swapaxes(d, -1).shape).swapaxes(d, -1)
    given = (v.astype(DTYPES[t]), -3.0, 3.0, None, False)
    return (b.param(t, dims, given=given) if b.entry else b.const(t, dims, given=given)), d


def splat(b, x, value):
    return b.splat(b.scalar(x.t, value), x.dims).name


def softmax(b, x, n, d, log=False):
    _, top = row_reduce(b, x, n, d, "maximum")
    shifted = b.put(x.text, f"subtract({n}, {top})")
    e = b.put(x.text, f"exponential({shifted})")
    s, total = row_reduce(b, x, e, d, "add")
    if not log:
        return b.put(x.text, f"divide({e}, {total})")
    s = b.put(shape_text(x.t, without(x.dims, d)), f"log({s})")
    return b.put(x.text, f"subtract({shifted}, {spread(b, x, s, d)})")


def layer_norm(b, x, n, d):
    count = splat(b, x, x.dims[d])
    mean = b.put(x.text, f"divide({row_reduce(b, x, n, d, 'add')[1]}, {count})")
    c = b.put(x.text, f"subtract({n}, {mean})")
    var = b.put(
        x.text,
        f"divide({row_reduce(b, x, b.put(x.text, f'multiply({c}, {c})'), d, 'add')[1]}, {count})")
    r = b.put(x.text, f"rsqrt({b.put(x.text, f'add({var}, {splat(b, x, 0.125)})')})")
    return b.put(x.text, f"multiply({c}, {r})")


def affine(b, x, n, d):
    """a * x + c, which may be rounded once or twice, by constants or one value a row."""
    if b.r.random() < 0.5:
        return b.put(
            x.text,
            f"add({b.put(x.text, f'multiply({n}, {splat(b, x, b.r.choice([1.25, 0.7, 3]))})')}, "
            f"{splat(b, x, b.r.choice([0.5, -0.3]))})")
    a, c = (b.new(x.t, without(x.dims, d), "positive") for _ in range(2))
    a, c = spread(b, x, a.name, d), spread(b, x, c.name, d)
    return b.put(x.text,
                 f"{b.r.choice(['add', 'subtract'])}({b.put(x.text, f'multiply({a}, {n})')}, {c})")


def narrow(b, x, n, _):
    t = b.r.choice(["f16", "bf16"])
    return b.put(x.text, f"convert({b.put(shape_text(t, x.dims), f'convert({n})')})")


def quantise(b, x, n, _):
    """Rounded to multiples of 1/32, as int8 networks do; the extremes stay apart."""
    y = b.put(x.text, f"round-nearest-even({b.put(x.text, f'multiply({n}, {splat(b, x, 32)})')})")
    y = b.put(x.text, f"clamp({b.scalar(x.t, -128).name}, {y}, {b.scalar(x.t, 127).name})")
    y = b.put(shape_text("s8", x.dims), f"convert({y})")
    return b.put(x.text, f"multiply({b.put(x.text, f'convert({y})')}, {splat(b, x, 0.03125)})")


def unary(op):
    return lambda b, x, n, _: b.put(x.text, f"{op}({n})")


STEPS = [softmax, softmax, lambda *a: softmax(*a, log=True), layer_norm, affine, affine,
         unary("exponential"),
         lambda b, x, n, d: b.put(x.text, f"divide({n}, {splat(b, x, 3)})")]
# Of numbers above some 6 the largest are all 1, or not, by the last bit: of x itself alone.
LEVEL = [unary("logistic"), unary("tanh"), unary("erf")]


def computed(b):
    """(rows of x's shape whose extremes are where x has them, name of the rows, x, d): increasing
    functions of x one after another."""
    x, d = parted(b)
    n = x.name
    for k in range(b.r.randint(1, 3) if x.t in ("f32", "f64") else 1):
        steps = STEPS if x.t in ("f32", "f64") else STEPS[:-1] + [quantise]
        n = b.r.choice(steps + ([] if k else LEVEL))(b, x, n, d)
    if x.t == "f32" and k == 0 and b.r.random() < 0.3:
        n = narrow(b, x, n, d)
    return x, n, d


# ---- where the extreme is

def by_equality(b, x, n, d, op):
    best = row_reduce(b, x, n, d, op)[1]
    if b.r.random() < 0.5:
        n, best = best, n
    eq = b.put(shape_text("pred", x.dims), f"compare({n}, {best}), direction=EQ")
    i = b.put(shape_text("s32", x.dims), f"iota(), iota_dimension={d}")
    far = b.splat(b.scalar("s32", x.dims[d]), x.dims).name
    at = b.put(shape_text("s32", x.dims), f"select({eq}, {i}, {far})")
    return (f"reduce({at}, {b.scalar('s32', 2**31 - 1).name}), dimensions={{{d}}}, "
            f"to_apply={b.scalar_fn('minimum', 's32')}")


def by_pairs(b, x, n, d, op, with_sum=False):
    """(value, position) reduced together, as JAX writes argmax; the text of the tuple's shape and
    its name."""
    c = Builder(b.m)
    types = [x.t, "s32"] + [x.t] * with_sum
    p = [c.put(f"{t}[]", f"parameter({k})") for k, t in enumerate(types + types)]
    v, i, w, j = p[0], p[1], p[len(types)], p[len(types) + 1]
    better = c.put("pred[]", f"compare({v}, {w}), direction={'GT' if op == 'maximum' else 'LT'}")
    tie = c.put("pred[]", f"and({c.put('pred[]', f'compare({v}, {w}), direction=EQ')}, "
                          f"{c.put('pred[]', f'compare({i}, {j}), direction=LT')})")
    keep = c.put("pred[]", f"or({better}, {tie})")
    out = [c.put(f"{x.t}[]", f"select({keep}, {v}, {w})"),
           c.put("s32[]", f"select({keep}, {i}, {j})")]
    if with_sum:
        out.append(c.put(f"{x.t}[]", f"add({p[2]}, {p[5]})"))
    fn = c.close(c.put("(" + ", ".join(f"{t}[]" for t in types) + ")", f"tuple({', '.join(out)})"),
                 "arg")
    k = b.put(shape_text("s32", x.dims), f"iota(), iota_dimension={d}")
    least = b.scalar(x.t, -math.inf if op == "maximum" else math.inf).name
    init = [least, b.scalar("s32", 2**31 - 1).name] + [b.scalar(x.t, 0).name] * with_sum
    text = "(" + ", ".join(shape_text(t, without(x.dims, d)) for t in types) + ")"
    return b.put(text, f"reduce({', '.join([n, k] + [n] * with_sum + init)}), dimensions={{{d}}}, "
                       f"to_apply={fn}")


def by_sort(b, x, n, d, op):
    c = Builder(b.m)
    p = [c.put(f"{t}[]", f"parameter({k})") for k, t in enumerate((x.t, x.t, "s32", "s32"))]
    fn = c.close(c.put("pred[]",
                       f"compare({p[0]}, {p[1]}), direction={'GT' if op == 'maximum' else 'LT'}"),
                 "before")
    i = b.put(shape_text("s32", x.dims), f"iota(), iota_dimension={d}")
    s = b.put(f"({x.text}, {shape_text('s32', x.dims)})",
              f"sort({n}, {i}), dimensions={{{d}}}, is_stable=true, to_apply={fn}")
    return first_along(b, x, b.put(shape_text("s32", x.dims), f"get-tuple-element({s}), index=1"),
                       d, "s32")


def first_along(b, x, n, d, t):
    """The text of the first element along d, without d."""
    dims = x.dims[:d] + (1,) + x.dims[d + 1:]
    bounds = ", ".join(f"[0:{1 if k == d else m}]" for k, m in enumerate(x.dims))
    return f"reshape({b.put(shape_text(t, dims), f'slice({n}), slice={{{bounds}}}')})"


def f_place(b):
    """The position of the largest or smallest element of computed rows, in the ways that frameworks
    write it."""
    x, n, d = computed(b)
    for op in b.r.choice([["maximum"], ["minimum"], ["maximum", "minimum"]]):
        way = b.r.choice(["equality", "equality", "pairs", "sort", "topk", "sum"])
        if (way == "topk"
            and (d != len(x.dims) - 1 or x.t not in ("f32", "bf16") or op == "minimum")):
            way = "equality"
        if way == "equality":
            rest = by_equality(b, x, n, d, op)
        elif way == "pairs":
            rest = f"get-tuple-element({by_pairs(b, x, n, d, op, b.r.random() < 0.3)}), index=1"
        elif way == "sort":
            rest = by_sort(b, x, n, d, op)
        elif way == "topk":
            k = b.r.randint(1, x.dims[-1])
            y = Builder.same(b, x, f"copy({x.name})")  # for its shape alone
            b.pool.pop(), b.lines.pop()
            y.dims = x.dims[:-1] + (k,)
            pair = b.put(f"({y.text}, {shape_text('s32', y.dims)})",
                         f"topk({n}), k={k}, largest=true")
            rest = first_along(b, y, b.put(shape_text("s32", y.dims),
                                           f"get-tuple-element({pair}), index=1"), d, "s32")
        else:  # only one element is the extreme: the sum of the positions where it stands
            best = row_reduce(b, x, n, d, op)[1]
            eq = b.put(shape_text("s32", x.dims), f"convert({compare(b, best, n, 'EQ', x.dims)})")
            i = b.put(shape_text("s32", x.dims), f"iota(), iota_dimension={d}")
            at = b.put(shape_text("s32", x.dims), f"multiply({eq}, {i})")
            rest = (f"reduce({at}, {b.scalar('s32', 0).name}), dimensions={{{d}}}, "
                    f"to_apply={b.scalar_fn('add', 's32')}")
        b.emit("s32", without(x.dims, d), rest, 0, x.dims[d] - 1)


# ---- truths about any value

def any_row(b):
    """(x, name, d) of floats that may be inexact: from the pool, or computed here."""
    ok = lambda v: (v.t in FLOATS and not v.special and v.dims  # noqa: E731
                    and 0 not in v.dims and v.elems is None)
    if b.r.random() < 0.4:
        return computed(b)
    x = b.pick(ok, lambda: b.new(b.r.choice(["f32", "f32", "f64", "bf16"]),
                                 b.dims(b.r.randint(1, 4), 1), "real"))
    if b.r.random() < 0.4:
        return x, affine(b, x, x.name, d := b.r.randrange(len(x.dims))), d
    return x, x.name, b.r.choice([len(x.dims) - 1, b.r.randrange(len(x.dims))])


def compare(b, x, y, how, dims):
    return b.put(shape_text("pred", dims), f"compare({x}, {y}), direction={how}")


def some(b, x, p, d, op, truth):
    """The result: `or` or `and` of p along d, which must be `truth`."""
    b.emit("pred", without(x.dims, d), f"reduce({p}, {b.scalar('pred', op == 'and').name}), "
                                       f"dimensions={{{d}}}, to_apply={b.scalar_fn(op, 'pred')}",
           truth, truth)


def f_own_extreme(b):
    """Some element equals the extreme of its row, none is beyond it."""
    x, n, d = any_row(b)
    op = b.r.choice(["maximum", "minimum"])
    best, wide = extreme(b, x, n, d, op)
    how = b.r.choice(["EQ", "EQ", "LE" if op == "minimum" else "GE",
                      "GT" if op == "maximum" else "LT", "NE", "clamp"])
    if how == "clamp":
        other = extreme(b, x, n, d, "minimum" if op == "maximum" else "maximum")[1]
        lo, hi = (other, wide) if op == "maximum" else (wide, other)
        p = compare(b, b.put(x.text, f"clamp({lo}, {n}, {hi})"), n, "EQ", x.dims)
        return some(b, x, p, d, "and", 1)
    p = compare(b, n, wide, how, x.dims)
    if how == "NE":
        return some(b, x, p, d, "and", 0)
    some(b, x, p, d, "or", how not in ("GT", "LT"))


def extreme(b, x, n, d, op):
    """(one value a row, spread over the row) of the extreme along d, found in one of several
    ways."""
    way = b.r.choice(["reduce", "reduce", "reduce", "pairs", "window", "sort", "reversed"])
    rest = without(x.dims, d)
    if way == "pairs":
        r = b.put(shape_text(x.t, rest), f"get-tuple-element({by_pairs(b, x, n, d, op)}), index=0")
    elif way == "sort":
        fn = b.scalar_fn("compare", x.t, "before",
                         f", direction={'GT' if op == 'maximum' else 'LT'}")
        r = b.put(shape_text(x.t, rest),
                  first_along(b, x, b.put(x.text, f"sort({n}), dimensions={{{d}}}, to_apply={fn}"),
                              d, x.t))
    elif way == "window":
        w = [(x.dims[d], 1, 0, x.dims[d] - 1, 1, 1, False, m) if k == d
             else (1, 1, 0, 0, 1, 1, False, m)
             for k, m in enumerate(x.dims)]
        init = b.scalar(x.t, -math.inf if op == "maximum" else math.inf).name
        y = b.put(x.text, f"reduce-window({n}, {init}), window={window_text(w)}, "
                          f"to_apply={b.scalar_fn(op, x.t)}")
        r = b.put(shape_text(x.t, rest), first_along(b, x, y, d, x.t))
    else:
        if way == "reversed":
            n = b.put(x.text, f"reverse({n}), dimensions={{{d}}}")
        init = b.scalar(x.t, -math.inf if op == "maximum" else math.inf).name
        r = b.put(shape_text(x.t, rest),
                  f"reduce({n}, {init}), dimensions={{{d}}}, to_apply={b.scalar_fn(op, x.t)}")
    return r, spread(b, x, r, d)


def f_taken_back(b):
    """What stands at the position of the extreme is the extreme."""
    x, n, d = any_row(b)
    op = b.r.choice(["maximum", "minimum"])
    t = by_pairs(b, x, n, d, op)
    rest = without(x.dims, d)
    i = spread(b, x, b.put(shape_text("s32", rest), f"get-tuple-element({t}), index=1"), d, "s32")
    here = compare(b, i, b.put(shape_text("s32", x.dims), f"iota(), iota_dimension={d}"), "EQ",
                   x.dims)
    nothing = -math.inf if op == "maximum" else math.inf
    chosen = b.put(x.text, f"select({here}, {n}, {splat(b, x, nothing)})")
    a = b.put(shape_text(x.t, rest), f"reduce({chosen}, {b.scalar(x.t, nothing).name}), "
                                     f"dimensions={{{d}}}, to_apply={b.scalar_fn(op, x.t)}")
    e = b.r.choice([extreme(b, x, n, d, op)[0],
                    b.put(shape_text(x.t, rest), f"get-tuple-element({t}), index=0")])
    b.emit("pred", rest, f"compare({a}, {e}), direction=EQ", 1, 1)


def f_moved_twice(b):
    """Two ways of moving the elements of one computed value to the same places give the same
    elements."""
    x, n, d = any_row(b)
    m = x.dims[d]
    if b.r.random() < 0.5 and len(x.dims) > 1:  # of a reduction's result
        e = b.r.choice([k for k in range(len(x.dims)) if k != d])
        d, y = d - (e < d), type(x)("", x.t, without(x.dims, e), 0, 0)
        n = b.put(y.text, f"reduce({n}, {b.scalar(x.t, 0).name}), dimensions={{{e}}}, "
                          f"to_apply={b.scalar_fn('add', x.t)}")
        n, x = affine(b, y, n, d) if b.r.random() < 0.6 else unary("logistic")(b, y, n, d), y
    full = [f"[0:{k}]" for k in x.dims]
                                # noqa: E731
    part = lambda lo, hi: b.put(
        shape_text(x.t, x.dims[:d] + (hi - lo,) + x.dims[d + 1:]),
        f"slice({n}), " f"slice={{{', '.join(full[:d] + [f'[{lo}:{hi}]'] + full[d + 1:])}}}")
    cut = b.r.randint(0, m)
    turned = b.put(x.text, f"concatenate({part(cut, m)}, {part(0, cut)}), dimensions={{{d}}}")
    way = b.r.choice(["pad", "wide", "select"])
    if way == "wide":
        dims = x.dims[:d] + (2 * m,) + x.dims[d + 1:]
        two = b.put(shape_text(x.t, dims), f"concatenate({n}, {n}), dimensions={{{d}}}")
        other = b.put(x.text,
                      f"slice({two}), "
                      f"slice={{{', '.join(full[:d] + [f'[{cut}:{cut + m}]'] + full[d + 1:])}}}")
    else:
        zero = b.scalar(x.t, 0).name
        at = lambda y, lo, hi: b.put(
            x.text, f"pad({y}, {zero}), padding="
                    + "x".join(f"{lo}_{hi}" if k == d else "0_0" for k in range(len(x.dims))))
        head, tail = at(n, -cut, cut), at(n, m - cut, cut - m)
        if way == "pad":
            other = b.put(x.text, f"add({head}, {tail})")
        else:
            i = b.put(shape_text("s32", x.dims), f"iota(), iota_dimension={d}")
            early = compare(b, i, b.splat(b.scalar("s32", m - cut), x.dims).name, "LT", x.dims)
            other = b.put(x.text, f"select({early}, {head}, {tail})")
    some(b, x, compare(b, turned, other, "EQ", x.dims), d, "and", 1)


# ---- values in order, running reductions: each is as near as the operand

def inexact(b, types=FLOATS):
    return b.pick(
        lambda v: v.t in types and not v.special and v.dims and 0 not in v.dims and v.elems is None,
        lambda: b.new(b.r.choice(types), b.dims(b.r.randint(1, 4), 1), "real"))


def f_in_order(b):
    """Sorted values and the k largest, of values that may be inexact."""
    x = inexact(b)
    if x.special:
        raise Reject
    if x.t in ("f32", "bf16") and b.r.random() < 0.5:
        k = b.r.randint(1, x.dims[-1])
        dims = x.dims[:-1] + (k,)
        t = b.put(f"({shape_text(x.t, dims)}, {shape_text('s32', dims)})",
                  f"topk({x.name}), k={k}, largest=true")
        return b.same(x, f"get-tuple-element({t}), index=0", dims)
    d = b.r.randrange(len(x.dims))
    b.same(
        x,
        f"sort({x.name}), dimensions={{{d}}}, to_apply="
        + b.scalar_fn('compare', x.t, 'before', ', direction=' + b.r.choice(['LT', 'GT'])))


def f_running(b):
    """Running sums, maxima and minima of values that may be inexact, forwards or backwards, with or
    without the element itself."""
    x = inexact(b)
    if x.special:
        raise Reject
    d, op = b.r.randrange(len(x.dims)), b.r.choice(["add", "add", "maximum", "minimum"])
    # an extreme of nothing is infinite
    m, own = x.dims[d], 1 if op != "add" or b.r.random() < 0.7 else 0
    pads = [m - own, own - 1]
    if b.r.random() < 0.4:
        pads.reverse()
    w = [(m, 1, *pads, 1, 1, False, k) if e == d else (1, 1, 0, 0, 1, 1, False, k)
         for e, k in enumerate(x.dims)]
    init = {"add": 0, "maximum": -math.inf, "minimum": math.inf}[op]
    lo, hi, q, e = x.lo, x.hi, x.q, x.err
    if op == "add":
        a = (m + 1) * x.m
        exact = q is not None and a * 2.0**q <= 2.0**PREC[x.t]
        lo, hi, q, e = -a, a, q if exact else None, 0.0 if exact else m * e + (m + 2) * 2.0**(
            1 - PREC[x.t]) * a
    b.emit(x.t, x.dims, f"reduce-window({x.name}, {b.scalar(x.t, init).name}), "
                        f"window={window_text(w)}, to_apply={b.scalar_fn(op, x.t)}", lo, hi, q, e,
           rounds=False)


FAMILIES = [(f_place, 6), (f_own_extreme, 5), (f_taken_back, 2), (f_moved_twice, 3),
            (f_in_order, 1.5), (f_running, 1.5), (f_softmax, 2), (f_layer_norm, 1), (f_reduce, 0.5),
            (f_binary, 1), (f_unary_smooth, 1.5)]
