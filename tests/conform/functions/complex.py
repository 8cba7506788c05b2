# SPDX-License-Identifier: Apache-2.0
"""Functions that kernels compute without libm, against numpy's (libm): complex ones of both types,
at special values too, remainders of f32 (exactly) and powers of f64.

    complex.py BUILD [PART OF A NAME]...
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

TYPES = {"c64": np.complex64, "c128": np.complex128, "f32": np.float32, "f64": np.float64}
FUNCTIONS = {
    "abs": np.abs, "exponential": np.exp, "exponential-minus-one": np.expm1, "log": np.log,
    "log-plus-one": np.log1p, "logistic": lambda x: 1 / (1 + np.exp(-x)), "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": lambda x: x ** (1 / 3), "sine": np.sin,
    "cosine": np.cos, "tan": np.tan, "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh,
    "divide": np.divide, "power": np.power, "remainder": np.fmod}
# Largest error in roundings of the type, of the value's magnitude: each is a few operations in f64,
# which c128 rounds one by one; powers lose what their exponent's size takes.
BOUND = {"c64": 1, "c128": 4, "f64": 1.1}
SPECIAL_TOO = ("abs", "exponential", "log", "log-plus-one", "sqrt", "sine", "cosine", "tan", "sinh",
               "cosh", "tanh")
SPECIAL = [0.0, -0.0, 1, -1, 0.5, 2.5, -3, 30, -30, 100, -100, np.inf, -np.inf, np.nan]


def run(tool, folder, name, t, inputs, real):
    n, files = len(inputs[0]), []
    result = {"c64": "f32", "c128": "f64"}[t] if real else t
    parameters = "".join(" p%d = %s[%d] parameter(%d)\n" % (k, t, n, k) for k in range(len(inputs)))
    for k, x in enumerate(inputs):
        x.tofile(os.path.join(folder, "in%d" % k))
        files += ["--in", os.path.join(folder, "in%d" % k)]
    path, out = os.path.join(folder, "m.hlo"), os.path.join(folder, "out")
    with open(path, "w") as f:
        f.write("HloModule m\nENTRY e {\n%s ROOT r = %s[%d] %s(%s)\n}\n" % (
            parameters, result, n, name, ", ".join("p%d" % k for k in range(len(inputs)))))
    subprocess.run([tool, *files, "--out", out, path], check=True, capture_output=True,
                   env=dict(os.environ, HLOD_CPU_IMPL="kernel"))
    return np.fromfile(out, TYPES[result])


def numbers(t, rng, n=4000):
    size = np.exp(rng.standard_normal(n) * 2)
    x = rng.standard_normal(n) * size
    if t[0] == "c":
        x = x + 1j * rng.standard_normal(n) * size
        x[::8] = np.exp(1j * rng.uniform(-3, 3, n))[::8] * (1 + 1e-4 * rng.standard_normal(n // 8))
    return x.astype(TYPES[t])


def specials(t):
    a, b = np.meshgrid(SPECIAL, SPECIAL)
    x = np.empty(a.size, TYPES[t])
    x.real, x.imag = a.ravel(), b.ravel()
    return x


def error(got, want, t):
    """The largest error of finite values, in roundings of their magnitude."""
    fine = np.isfinite(want) & np.isfinite(got)
    wide = np.clongdouble if np.iscomplexobj(want) else np.longdouble
    off = np.abs(got[fine].astype(wide) - want[fine].astype(wide)) / np.maximum(
        np.abs(want[fine]), np.finfo(TYPES[t]).tiny)
    return float(off.max(initial=0) / np.finfo(TYPES[t]).eps)


def same_kind(got, want):
    """Infinite and NaN alike, part by part."""
    if np.iscomplexobj(want):
        return same_kind(got.real, want.real) & same_kind(got.imag, want.imag)
    return (np.isnan(got) == np.isnan(want)) & (np.isinf(got) == np.isinf(want))


def complex_case(tool, folder, name, t):
    rng, f = np.random.default_rng(len(name)), FUNCTIONS[name]
    two = name in ("divide", "power")
    x = [numbers(t, rng) for _ in range(1 + two)]
    if name == "power":
        x[1] = (x[1] / np.abs(x[1]) * rng.uniform(0, 4, len(x[1]))).astype(TYPES[t])
    with np.errstate(all="ignore"):
        wide = [v.astype(np.clongdouble) for v in x]
        off = error(run(tool, folder, name, t, x, name == "abs"), f(*wide), t)
        good = off <= BOUND[t] * (10 if name == "power" and t == "c128" else 1)
        if name in SPECIAL_TOO:
            s = specials(t)
            alike = same_kind(run(tool, folder, name, t, [s], name == "abs"),
                              f(s.astype(np.complex128)).astype(TYPES[t]))
            good &= bool(alike.all())
    return good, "%.2f roundings" % off


def real_case(tool, folder, name, t):
    rng = np.random.default_rng(5)
    x, y = numbers(t, rng), numbers(t, rng)
    if name == "remainder":
        x = (x * np.exp(rng.standard_normal(len(x)) * 12)).astype(TYPES[t])
    else:
        x = np.abs(x)
    a, b = (v.ravel().astype(TYPES[t]) for v in np.meshgrid(SPECIAL, SPECIAL))
    x, y = np.concatenate([x, a]), np.concatenate([y, b])
    got = run(tool, folder, name, t, [x, y], False)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](x.astype(np.longdouble), y.astype(np.longdouble)).astype(TYPES[t])
    off = error(got, want, t)
    return off <= (0 if name == "remainder" else BOUND[t]) and bool(
        same_kind(got, want).all()), "%.2f roundings" % off


def main():
    tool, names, bad = os.path.join(sys.argv[1], "hlo-run"), sys.argv[2:], 0
    cases = [(n, t, complex_case) for n in FUNCTIONS if n != "remainder" for t in ("c64", "c128")]
    cases += [("remainder", "f32", real_case), ("remainder", "f64", real_case),
              ("power", "f64", real_case)]
    with tempfile.TemporaryDirectory() as folder:
        for name, t, case in cases:
            if names and not any(n in name for n in names):
                continue
            good, what = case(tool, folder, name, t)
            bad += not good
            print("%s %s of %s: %s" % ("PASS" if good else "FAIL", name, t, what), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
