# SPDX-License-Identifier: Apache-2.0
"""Families in which NaN and infinities meet windows, contractions and movements: what pads,
dilates, tiles or fills up with zeros must not multiply these with what is not finite.

Weights are finite where there is padding: XLA:CPU multiplies them by the padding's zeros for some
shapes and not for others (an infinite one gives NaN then). Zeros among weights are numbers: zero
times infinity is NaN. Results are classes and small numbers (hlo_edges.classed)."""
import math

from hlo_edges import EDGES, classed, numbers
from hlo_families import ints, size, window_text
from hlo_gen import FLOATS, Reject

FEW = [math.nan, math.inf, -math.inf]
FINITE = [1.0, -1.0, 2.0, 0.5, 3.0, -2.0, 0.0]


def mostly(b, t, dims):
    """Numbers of which few are not finite."""
    rare = b.r.sample(FEW, b.r.randint(1, 3))
    return numbers(b, t, FINITE[:-1] * 12 + rare * b.r.choice([1, 3]), dims)


def wide_window(b, n):
    """As hlo_families.window_of, with larger kernels, dilations and strides."""
    r = b.r
    for _ in range(30):
        k, s = r.randint(1, 5), r.choice([1, 1, 1, 2, 3])
        bd, wd = r.choice([1, 2, 2, 3, 4, 5]), r.choice([1, 1, 1, 2, 3, 4])
        lo, hi = r.choice([0, 0, 1, 2, 4]), r.choice([0, 0, 1, 2, 5])
        room = (n - 1) * bd + 1 + lo + hi - ((k - 1) * wd + 1)
        if room >= 0:
            return k, s, lo, hi, bd, wd, r.random() < 0.15, room // s + 1
    return 1, 1, 0, 0, 1, 1, False, n


def f_convolution(b):
    r = b.r
    t = r.choices(["f32", "f64", "bf16", "f16"], [8, 2, 1, 1])[0]
    n, groups = r.choices([1, 2, 3], [3, 5, 1])[0], r.choice([1, 1, 1, 2, 3])
    if t != "f32":
        groups = 1  # of which XLA:CPU makes one, with zeros in the other groups' places
    inner, outer = r.choice([1, 1, 2, 3, 8, 16]), r.choice([1, 1, 2, 3, 8, 16, 17])
    spatial = [r.choice([2, 3, 4, 5, 7, 9] if n < 3 else [2, 3]) for _ in range(n)]
    w = [wide_window(b, s) for s in spatial]
    if r.random() < 0.3:  # a plain one
        w = [(k, 1, k // 2, k // 2, 1, 1, False, s) for s, k in ((s, r.choice([1, 3, 5]))
                                                                 for s in spatial)]
    out = (r.choice([1, 1, 2]), outer * groups, *(v[7] for v in w))
    taps = inner * size([v[0] for v in w])
    if size(out) > 6000 or size(out) * taps > 400000:
        raise Reject
    x = mostly(b, t, (out[0], inner * groups, *spatial))
    k = numbers(b, t, FINITE if r.random() < 0.3 else FINITE[:-1],
                (outer * groups, inner, *(v[0] for v in w)))
    dig = "012"[:n]
    shape = f"{t}[{','.join(map(str, out))}]"
    y = b.put(shape, f"convolution({x.name}, {k.name}), window={window_text(w)}, "
              f"dim_labels=bf{dig}_oi{dig}->bf{dig}"
              + (f", feature_group_count={groups}" if groups > 1 else ""))
    if r.random() < 0.5:
        bias = b.splat(b.scalar(t, 1), out).name
        y = b.put(shape, f"add({y}, {bias})")
    if r.random() < 0.4:
        y = b.put(shape, f"maximum({y}, {b.splat(b.scalar(t, 0), out).name})")
    classed(b, t, out, y, ulps=1024)


def f_dot(b):
    r = b.r
    t = r.choices(["f32", "f64", "bf16", "f16"], [6, 2, 1, 1])[0]
    m, k, n = (r.choice([1, 2, 3, 5, 8, 16, 17, 33]) for _ in range(3))
    lead = (r.choice([2, 3]),) if r.random() < 0.3 else ()
    x = mostly(b, t, (*lead, m, k))
    y = mostly(b, t, (*lead, k, n)) if r.random() < 0.5 else numbers(b, t, FINITE, (*lead, k, n))
    d = len(lead)
    batch = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if d else ""
    out = (*lead, m, n)
    v = b.put(f"{t}[{','.join(map(str, out))}]",
              f"dot({x.name}, {y.name}), {batch}lhs_contracting_dims={{{d + 1}}}, "
              f"rhs_contracting_dims={{{d}}}")
    classed(b, t, out, v, ulps=1024)


def f_window(b):
    r = b.r
    t, op = r.choice(FLOATS), r.choice(["add", "maximum", "minimum", "multiply"])
    dims = tuple(r.choice([1, 2, 3, 5, 8, 17]) for _ in range(r.randint(1, 3)))
    if size(dims) > 400:
        raise Reject
    w = [wide_window(b, n) for n in dims]
    w = [(*v[:6], False, v[7]) for v in w]
    out = tuple(v[7] for v in w)
    if size(out) > 4000 or op == "multiply" and size([v[0] for v in w]) > 8:
        raise Reject
    x = mostly(b, t, dims)
    one = {"add": 0, "multiply": 1, "maximum": -math.inf, "minimum": math.inf}[op]
    first = b.scalar(t, one)
    fn = b.scalar_fn(op, t)
    y = b.put(f"{t}[{','.join(map(str, out))}]",
              f"reduce-window({x.name}, {first.name}), window={window_text(w)}, to_apply={fn}")
    classed(b, t, out, y, ulps=512)


def f_moves(b):
    """Pads of any sign, slices, reversals and transpositions of such numbers, one behind the
    other, and a look at what became of them by an operation that is the same for many elements."""
    r = b.r
    t = r.choice(FLOATS)
    x = numbers(b, t, EDGES, tuple(r.choice([1, 2, 3, 5, 8, 17, 20]) for _ in range(
        r.randint(1, 3))))
    if size(x.dims) > 2000:
        raise Reject
    name, dims = x.name, list(x.dims)
    for _ in range(r.randint(1, 4)):
        kind = r.choice(["pad", "slice", "reverse", "transpose", "broadcast"])
        if kind == "pad":
            p = []
            for d, n in enumerate(dims):
                lo, hi, inside = r.choice([0, 0, 1, 2, -1]), r.choice([0, 0, 1, 3, -1]), r.choice(
                    [0, 0, 1, 2])
                new = n + max(n - 1, 0) * inside + lo + hi
                if new < 1:
                    lo = hi = inside = 0
                    new = n
                p.append(f"{lo}_{hi}_{inside}")
                dims[d] = new
            with_ = b.scalar(t, r.choice([0.0, 1.0, math.inf, math.nan, -0.0])).name
            rest = f"pad({name}, {with_}), padding={'x'.join(p)}"
        elif kind == "slice":
            cut = []
            for d, n in enumerate(dims):
                start, step = r.randrange(n), r.choice([1, 1, 2, 3])
                cut.append(f"[{start}:{n}:{step}]")
                dims[d] = -(-(n - start) // step)
            rest = f"slice({name}), slice={{{', '.join(cut)}}}"
        elif kind == "reverse":
            rest = f"reverse({name}), dimensions={ints([r.randrange(len(dims))])}"
        elif kind == "transpose":
            order = r.sample(range(len(dims)), len(dims))
            dims = [dims[d] for d in order]
            rest = f"transpose({name}), dimensions={ints(order)}"
        else:
            rest = f"broadcast({name}), dimensions={ints(range(1, len(dims) + 1))}"
            dims = [r.choice([2, 17, 20])] + dims
        if size(dims) > 6000:
            raise Reject
        name = b.put(f"{t}[{','.join(map(str, dims))}]", rest)
    classed(b, t, tuple(dims), name)


FAMILIES = [(f_convolution, 6), (f_dot, 2), (f_window, 4), (f_moves, 3)]
