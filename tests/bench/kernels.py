# SPDX-License-Identifier: Apache-2.0
"""Contractions one by one: our generated kernels, oneDNN, the default list and XLA:CPU,
interleaved, medians, one line each.

    kernels.py BUILD [--threads N] [--rounds N] [--limit S] [--list] [--strict] [NAME...]

NAME: only rows whose name holds it. Columns: ms of HLOD_CPU_IMPL=kernel, of HLOD_CPU_IMPL=onednn
where oneDNN takes the whole row, of the default list with the implementation that takes the
contraction, of XLA; the share of the measured peak of multiply-adds (f32 of the machine, half of it
for f64) of each; "library" = oneDNN's time / the kernel's and / the default's; "XLA" = XLA's time /
the default's. A kernel's run that does not end within the limit counts as the limit. Values of the
default list are compared with XLA's: the exit status is 1 where one differs by more than its type's
bound or a program is refused, with --strict also where a goal is missed (kernels 0.7 of oneDNN's
f32 in the mean and 0.3 at least; XLA's speed on every other row).
"""
import argparse
import contextlib
import math
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np

import programs

# Largest difference over the largest value: sums of up to 25,088 terms in the result's type, f16
# and bf16 rounded once; integers are equal.
BOUNDS = {"f32": 1e-5, "f64": 1e-13, "f16": 2e-3, "bf16": 1.6e-2, "c64": 1e-5, "s32": 0, "s8": 0}
GRADIENTS = ("forward", "input", "weights")
ROWS = {}


def add(name, dtype, function, flops, *shapes):
    ROWS["%s %s" % (dtype, name)] = (dtype, function, flops, shapes)


def dot(name, dtypes, a, b, contract=None, batch=0):
    """a: [batch..., m, k], b: [batch..., k, n] unless CONTRACT says which."""
    from jax import lax
    import jax.numpy as jnp
    contract = contract or ((len(a) - 1,), (batch,))
    dims = (contract, (tuple(range(batch)),) * 2)
    depth = math.prod(a[d] for d in contract[0])
    flops = 2 * math.prod(a) * math.prod(b) / depth / math.prod(a[:batch])
    for t in dtypes.split():
        kind = jnp.int32 if t == "s8" else None
        add("dot " + name, t, lambda x, y, kind=kind: lax.dot_general(
            x, y, dims, preferred_element_type=kind), flops * (4 if t == "c64" else 1), a, b)


def conv(name, dtypes, x, w, stride=1, ways="forward", dilation=1, groups=1):
    """x: [n, c, spatial...], w: [o, c / groups, spatial...], padded to keep the size."""
    import jax
    import jax.numpy as jnp
    from jax import lax
    n = len(x) - 2

    def forward(x, w, kind=None):
        return lax.conv_general_dilated(x, w, (stride,) * n, "SAME", rhs_dilation=(dilation,) * n,
                                        feature_group_count=groups, preferred_element_type=kind)
    y = (x[0], w[0], *(-(-d // stride) for d in x[2:]))
    flops = 2 * math.prod(y) * math.prod(w[1:])
    for t in dtypes.split():
        kind = jnp.int32 if t == "s8" else None
        for way in GRADIENTS:
            if way not in ways.split():
                continue
            f, shapes = lambda x, w, kind=kind: forward(x, w, kind), (x, w)
            if way == "input":
                def f(g, w):
                    return jax.linear_transpose(lambda v: forward(v, w),
                                                jax.ShapeDtypeStruct(x, g.dtype))(g)[0]
                shapes = (y, w)
            elif way == "weights":
                def f(x, g):
                    return jax.linear_transpose(lambda v: forward(x, v),
                                                jax.ShapeDtypeStruct(w, g.dtype))(g)[0]
                shapes = (x, y)
            add("conv %s, %s" % (name, way), t, f, flops * (4 if t == "c64" else 1), *shapes)


def transposed(name, dtypes, x, w, stride):
    """x: [n, spatial..., c], w: [spatial..., c, o]."""
    from jax import lax
    n = len(x) - 2
    flops = 2 * math.prod(x) * math.prod(w[:n]) * w[-1]
    for t in dtypes.split():
        add("conv_transpose " + name, t,
            lambda x, w: lax.conv_transpose(x, w, (stride,) * n, "SAME"), flops, x, w)


def define():
    every, all_ways = "f32 f64 bf16 f16 c64 s8 s32", " ".join(GRADIENTS)
    dot("512", every, (512, 512), (512, 512))
    dot("BERT 128x768 by 768", "f32 bf16 f16 s8", (128, 768), (768, 768))
    dot("BERT 128x768 by 3072", "f32 f64", (128, 768), (768, 3072))
    dot("BERT 128x3072 by 768", "f32", (128, 3072), (3072, 768))
    dot("BERT scores, 12 of 128x64", "f32 f64", (12, 128, 64), (12, 128, 64), ((2,), (2,)), 1)
    dot("BERT context, 12 of 128x128 by 64", "f32 c64", (12, 128, 128), (12, 128, 64), batch=1)
    dot("BERT weights' gradient", "f32 bf16", (128, 768), (128, 768), ((0,), (0,)))
    dot("GPT-2 one token by 3072", "f32 bf16", (1, 768), (768, 3072))
    dot("VGG classifier 8x4096 by 1000", "f32", (8, 4096), (4096, 1000))
    dot("odd 127x131 by 113", every, (127, 131), (131, 113))
    dot("tall 20000x16 by 32", "f32 f64", (20000, 16), (16, 32))
    dot("flat 16x20000 by 32", "f32 f64 c64", (16, 20000), (20000, 32))
    conv("ResNet 3x3, 64 at 56", "f32 f64 bf16 f16 s8", (1, 64, 56, 56), (64, 64, 3, 3))
    conv("ResNet 3x3, 128 at 28", "f32", (2, 128, 28, 28), (128, 128, 3, 3), 1, all_ways)
    conv("ResNet 3x3 stride 2, 64 at 28", "f32 f64", (2, 64, 28, 28), (64, 64, 3, 3), 2, all_ways)
    conv("ResNet 7x7 stride 2, stem at 112", "f32", (1, 3, 112, 112), (64, 3, 7, 7), 2, all_ways)
    conv("ResNet 1x1, 256 to 64 at 28", "f32 bf16", (2, 256, 28, 28), (64, 256, 1, 1))
    conv("VGG 3x3, 512 at 14", "f32", (1, 512, 14, 14), (512, 512, 3, 3))
    conv("MobileNet depthwise 3x3, 96 at 56", "f32 f64", (1, 96, 56, 56), (96, 1, 3, 3), 1,
         all_ways, groups=96)
    conv("MobileNet 1x1, 96 to 24 at 56", "f32", (1, 96, 56, 56), (24, 96, 1, 1))
    conv("ResNeXt 3x3 of 8 groups, 64 at 28", "f32", (1, 64, 28, 28), (64, 8, 3, 3), 1, all_ways,
         groups=8)
    conv("dilated 3x3 by 2, 32 at 28", "f32 f64 bf16 c64 s32", (1, 32, 28, 28), (32, 32, 3, 3),
         dilation=2)
    conv("odd 5x3, 17 to 13 at 29", "f32 f16", (1, 17, 29, 31), (13, 17, 5, 3), 1, all_ways)
    conv("few outputs 3x3, 32 to 2 at 64", "f32", (1, 32, 64, 64), (2, 32, 3, 3))
    conv("1-D of 5, 64 at 2000", "f32 f64", (1, 64, 2000), (64, 64, 5), 1, all_ways)
    conv("3-D 3x3x3, 16 at 12", "f32 f64", (1, 16, 12, 12, 12), (16, 16, 3, 3, 3), 1, all_ways)
    transposed("4x4 stride 2, 64 to 32 at 14", "f32 bf16", (1, 14, 14, 64), (4, 4, 64, 32), 2)


class Named(programs.Ours):
    """A run that keeps one implementation, or the default list."""

    def __init__(self, impl, *args):
        super().__init__(*args)
        if impl:
            self.env["HLOD_CPU_IMPL"] = impl

    def explained(self):
        """Who takes the step that should take longest, who takes any, and the peak in flops/s."""
        p = subprocess.run([self.tool, "--explain", *self.files, self.path], capture_output=True,
                           text=True, env=self.env, timeout=60)
        peak = re.search(r"threads? of ([0-9.]+) GFLOP", p.stdout)
        rows = re.findall(r"^ *([0-9.]+) +[0-9.]+%  \S+ +\S+ +(\S+)", p.stdout, re.M)
        by = max(rows, key=lambda r: float(r[0]))[1] if rows else "?"
        return by, [r[1] for r in rows], float(peak[1]) * 1e9 if peak else math.nan


def inputs_of(dtype, shapes):
    import ml_dtypes
    types = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
             "c64": np.complex64, "s8": np.int8, "s32": np.int32}
    rng = np.random.default_rng(1)
    return [programs.make("normal", types[dtype], s, rng) for s in shapes]


def turns(run, limit):
    """How many runs make a round of about 50 ms; 0: one does not end within the limit."""
    try:
        return max(1, min(20, int(50 / max(run.times(1, limit)[-1], 0.01))))
    except (TimeoutError, ValueError, IndexError):
        run.end()
        return 0


def measure(name, args):
    import jax
    dtype, f, _, shapes = ROWS[name]
    jax.config.update("jax_enable_x64", dtype == "f64")
    inputs = inputs_of(dtype, shapes)
    jitted, on_device = jax.jit(f), [jax.device_put(x) for x in inputs]
    want, ms = [jax.block_until_ready(jitted(*inputs))], {}
    text, ours = programs.text_of(f, inputs), {}
    with contextlib.ExitStack() as ends:
        for key, impl in (("kernel", "kernel"), ("library", "onednn"), ("default", None)):
            folder = ends.enter_context(tempfile.TemporaryDirectory())
            ours[key] = Named(impl, args.build, folder, text, inputs, args.threads)
            ends.callback(ours[key].end)
        error = programs.error_of(ours["default"].values(args.limit), want)
        by, _, peak = ours["default"].explained()
        if not all(r.startswith("onednn") for r in ours["library"].explained()[1]):
            del ours["library"]
        n = {k: turns(run, args.limit) for k, run in ours.items()}
        ms = {k: [] for k in (*ours, "xla")}
        for _ in range(args.rounds):
            for k, run in ours.items():
                ms[k] += run.times(n[k], args.limit) if n[k] else []
            for _ in range(n["default"]):
                start = time.perf_counter()
                jax.block_until_ready(jitted(*on_device))
                ms["xla"].append((time.perf_counter() - start) * 1e3)
    ms = {k: float(np.median(v)) if v else args.limit * 1e3 for k, v in ms.items()}
    return ms, error, by, peak


def line(name, args, ratios):
    """Measures a row and prints it; False: its values differ."""
    dtype, _, flops, _ = ROWS[name]
    ms, error, by, peak = measure(name, args)
    peak /= 2 if dtype == "f64" else 1
    good, text = error <= BOUNDS[dtype], ""
    for k, title in (("kernel", "kernel"), ("library", "oneDNN"), ("default", "default"),
                     ("xla", "XLA")):
        text += "  %s %9.3f ms %3.0f%%" % (title, ms[k], 100 * flops / (ms[k] * 1e-3) / peak) \
            if k in ms else "  %s         -        " % title
    text += "  library "
    if "library" in ms:
        of = {k: ms["library"] / ms[k] for k in ("kernel", "default")}
        if dtype == "f32":
            ratios["library"][name], ratios["list"][name] = of["kernel"], of["default"]
        text += "%5.2f %5.2f" % (of["kernel"], of["default"])
    else:
        text += "    -     -"
    ratios["XLA"][name] = ms["xla"] / ms["default"]
    if not by.startswith("onednn"):
        ratios["other"][name] = ratios["XLA"][name]
    print("%-52s%s  XLA %6.2f  %-28s error %.1e%s" % (
        name, text, ratios["XLA"][name], by, error, "" if good else " TOO LARGE"), flush=True)
    return good


def report(ratios, strict):
    texts = {"library": "kernel / library, f32", "list": "default / library, f32",
             "XLA": "default / XLA",
             "other": "default / XLA where it is not the library"}
    missed = False
    for kind, rows in ratios.items():
        if not rows:
            continue
        mean = math.exp(sum(math.log(r) for r in rows.values()) / len(rows))
        worst = min(rows, key=rows.get)
        print("%-42s geometric mean of speed %.2f over %d rows, least %.2f (%s), %d below 1" % (
            texts[kind], mean, len(rows), rows[worst], worst, sum(r < 1 for r in rows.values())))
        if kind != "list":
            missed |= (mean < 0.7 or rows[worst] < 0.3) if kind == "library" else rows[worst] < 1
    return missed and strict


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("names", nargs="*", default=[])
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--limit", type=float, default=5, help="seconds for one run of hlod's")
    p.add_argument("--list", action="store_true")
    p.add_argument("--strict", action="store_true", help="fail where a goal is missed")
    args = p.parse_intermixed_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    if args.threads == 1:
        os.environ[
            "XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    define()
    ratios, wrong = {"library": {}, "list": {}, "XLA": {}, "other": {}}, 0
    for name in ROWS:
        if args.names and not any(n in name for n in args.names):
            continue
        if args.list:
            print(name)
            continue
        try:
            wrong += not line(name, args, ratios)
        except (RuntimeError, TimeoutError, subprocess.TimeoutExpired) as e:
            print("%-52s refused: %s" % (name, str(e)[:200]), flush=True)
            wrong += 1
    missed = report(ratios, args.strict)
    return 1 if wrong or missed else 0


if __name__ == "__main__":
    sys.exit(main())
