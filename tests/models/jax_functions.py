# SPDX-License-Identifier: Apache-2.0
"""The functions that JAX tests its own lowering with (jax._src.internal_test_util.test_harnesses in
jax's wheel: every primitive in its settings and types), serialized by jax.export and run through
the daemon over HTTP, against JAX on the CPU with the same numbers. What JAX does not lower or
compile for a CPU is left out and counted.
    jax_functions.py BUILD [PART OF A NAME]... [--each N] [--share K/N] [--list]
--each: at most N of a group, one for each type of element first. --share K/N: each Nth from
K on."""
import argparse
import os
import sys
import time
import warnings
import zlib
from collections import Counter, defaultdict

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")
warnings.filterwarnings("ignore")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "client", "python")]
import daemon  # noqa: E402
import hlod  # noqa: E402
import jax  # noqa: E402
from jax import export  # noqa: E402
from jax._src.internal_test_util import test_harnesses  # noqa: E402

# Columns of these are only fixed up to a factor of length one.
VECTORS = {"eig", "eigh", "svd"}
# Times a rounding of the result's type, of the largest value of the result.
ROUNDINGS = defaultdict(lambda: 64, {g: 2048 for g in (
    "cholesky", "eig", "eigh", "lu", "qr", "svd", "triangular_solve", "custom_linear_solve",
    "tridiagonal_solve", "fft", "cumprod", "cumlogsumexp", "reduce_prod", "integer_pow", "pow",
    "igamma", "igammac", "regularized_incomplete_beta", "random_gamma", "lgamma", "digamma")})


def chosen(names, each):
    """Harnesses that JAX says it has for a CPU: those of a name, at most `each` of a group, one for
    each type first."""
    groups = defaultdict(list)
    for h in test_harnesses.all_harnesses:
        if h.filter("cpu") and (not names or any(n in h.fullname for n in names)):
            groups[h.group_name].append(h)
    for group in groups.values():
        types = Counter()
        rank = []
        for k, h in enumerate(group):
            rank.append((types[str(h.dtype)], k))
            types[str(h.dtype)] += 1
        yield from [group[k] for _, k in sorted(rank)][:each or None]


def one_phase(a):
    """Matrices with each column turned so that its largest element is positive."""
    top = np.take_along_axis(a, np.abs(a).argmax(-2, keepdims=True), -2)
    return a * (np.conj(top) / np.where(top == 0, 1, np.abs(top)))


def what_counts(h, results, args):
    """The results without what is not said of them: which of equal elements comes first, and what
    lies above the diagonal of a lower triangular matrix."""
    if h.group_name == "approx_top_k":
        return [results[0], np.take_along_axis(args[0], results[1], -1)]
    if h.group_name == "cholesky":
        return [np.tril(results[0])]
    if h.params.get("is_stable") is False and results[0].ndim == 1:
        order = np.lexsort(results[::-1])
        return [r[order] for r in results]
    return results


def same(group, got, want):
    """'' or what is different."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return "%s%s for %s%s" % (got.dtype, got.shape, want.dtype, want.shape)
    kind = "c" if want.dtype.kind == "c" else "f" if jax.numpy.issubdtype(
        want.dtype, jax.numpy.floating) else "i"
    if kind == "i":
        wrong = int((got != want).sum())
        return "%d of %d elements" % (wrong, want.size) if wrong else ""
    step = float(jax.numpy.finfo(want.dtype).eps)
    a, b = (x.astype(np.complex128 if kind == "c" else np.float64) for x in (got, want))
    if group in VECTORS and a.ndim > 1 and a.size:
        a, b = one_phase(a), one_phase(b)
    ok = np.isfinite(b)
    if not np.array_equal(a[~ok], b[~ok], equal_nan=True) or not np.isfinite(a[ok]).all():
        return "other infinities or NaN"
    error = float(np.abs(a[ok] - b[ok]).max(initial=0)) / max(
        float(np.abs(b[ok]).max(initial=0)), 1e-30)
    return "error %.1e, %.0f roundings" % (error, error / step) if (
        error > ROUNDINGS[group] * step) else ""


def by_jax(h):
    """(model's bytes, its arguments, results), or the reason for which JAX has none."""
    args = h.dyn_args_maker(np.random.RandomState(zlib.crc32(h.fullname.encode())))
    f = jax.jit(h.dyn_fun)
    try:
        want = f(*args)
        e = export.export(f, platforms=["cpu"], disabled_checks=[
            export.DisabledSafetyCheck.custom_call(c) for c in CALLS])(*args)
    except Exception as err:
        return "%s: %s" % (type(err).__name__, str(err).split("\n")[0][:160])
    leaves = [np.asarray(raw(x)) for x in jax.tree.leaves(args)]
    kept = [np.asarray(leaves[k], e.in_avals[k].dtype) for k in e.module_kept_var_idx]
    return bytes(e.serialize()), kept, [np.asarray(raw(x)) for x in jax.tree.leaves(want)]


def raw(x):
    return jax.random.key_data(x) if hasattr(x, "dtype") and jax.dtypes.issubdtype(
        x.dtype, jax.dtypes.prng_key) else x


CALLS = ["ApproxTopK"]


def try_one(client, h):
    """(ok, differs, refused or left out; why)."""
    made = by_jax(h)
    if isinstance(made, str):
        return "left out", made
    model, args, want = made
    try:
        exe = client.compile(model)
        got = list(exe.run(args).outputs.values())
    except hlod.HlodError as e:
        return "refused", str(e)[:300]
    if len(got) != len(want):
        return "differs", "%d results for %d" % (len(got), len(want))
    got, want = (what_counts(h, r, args) for r in (got, want))
    wrong = [w for w in (same(h.group_name, np.asarray(g), w) for g, w in zip(got, want)) if w]
    return ("differs", ", ".join(wrong)) if wrong else ("ok", "")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("names", nargs="*")
    p.add_argument("--each", type=int, default=0)
    p.add_argument("--share", default="0/1")
    p.add_argument("--list", action="store_true", help="what is equal and left out too")
    a = p.parse_args()
    k, n = map(int, a.share.split("/"))
    begin = time.monotonic()
    count, groups = Counter(), defaultdict(Counter)
    with daemon.Daemon(a.build) as d, hlod.connect("http://%s:%d" % d.addr) as client:
        for h in list(chosen(a.names, a.each))[k::n]:
            what, why = try_one(client, h)
            count[what] += 1
            groups[h.group_name][what] += 1
            if a.list or what in ("refused", "differs"):
                print("%-8s %s %s" % (what, h.fullname, why), flush=True)
    for g, c in groups.items():
        bad = c["differs"] + c["refused"]
        print("%s %s: %s" % ("FAIL" if bad else "PASS", g,
                             ", ".join("%d %s" % (v, w) for w, v in sorted(c.items()))))
    print("functions of jax: %d groups, %s; %.0f s" % (
        len(groups), ", ".join("%d %s" % (v, w) for w, v in sorted(count.items())),
        time.monotonic() - begin))
    return count["differs"] + count["refused"] > 0


sys.exit(main())
