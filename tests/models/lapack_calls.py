# SPDX-License-Identifier: Apache-2.0
"""JAX's calls of LAPACK through the running daemon: each routine runs in a worker behind its filter
of system calls, on numbers, zeros, NaN and none; calls whose operands, results or configuration do
not fit are refused with the routine's name, and the next request is served. Usage: lapack_calls.py
BUILD"""
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import daemon  # noqa: E402

# name by type, operands, results, configuration; T: the type, R: its real one, C: its complex one
CALLS = [
    ("getrf", "T[6,4]", "T[6,4] s32[4] s32[]", {}),
    ("geqrf", "T[6,4]", "T[6,4] T[4]", {}),
    ("geqp3", "T[6,4] s32[4]", "T[6,4] s32[4] T[4]", {}),
    ("orgqr ungqr", "T[6,4] T[4]", "T[6,4]", {}),
    ("ormqr unmqr", "T[6,4] T[4] T[6,3]", "T[6,3]", {"left": "true", "transpose": "false"}),
    ("syevd heevd", "T[5,5]", "T[5,5] R[5] s32[]", {"mode": 86, "uplo": 76}),
    ("gesdd", "T[6,4]", "T[6,4] R[4] T[6,6] T[4,4] s32[]", {"mode": 65}),
    ("gesvd", "T[4,6]", "T[4,6] R[4] T[4,4] T[4,6] s32[]", {"mode": 83}),
    ("geev", "T[5,5]", "T[5] W C[5,5] C[5,5] s32[]", {"compute_left": 86, "compute_right": 86}),
    ("gees", "T[5,5]", "T[5,5] T[5,5] T[5] W s32[] s32[]", {"mode": 86, "sort": 78}),
    ("gehrd", "T[5,5]", "T[5,5] T[4] s32[]", {"high": 5, "low": 1}),
    ("sytrd hetrd", "T[5,5]", "T[5,5] R[5] R[4] T[4] s32[]", {"uplo": 85}),
    ("gtsv", "T[6] T[6] T[6] T[6,2]", "T[6] T[6] T[6] T[6,2] s32[]", {}),
    ("potrf", "T[5,5]", "T[5,5] s32[]", {"uplo": 76}),
    ("trsm", "T[5,5] T[5,3]", "T[5,3]", {"diag": 78, "side": 76, "trans_x": 78, "uplo": 76}),
]
TYPES = {"s": ("f32", "f32", "c64"), "d": ("f64", "f64", "c128"),
         "c": ("c64", "f32", "c64"), "z": ("c128", "f64", "c128")}
NUMPY = {"f32": np.float32, "f64": np.float64, "s32": np.int32}


def shapes(text, letter):
    t, r, c = TYPES[letter]
    text = text.replace(" W", " T[5]" if t == r else "")  # imaginary parts of real eigenvalues
    return text.replace("T", t).replace("R", r).replace("C", c).split()


def module(target, operands, results, config):
    """Requests have no complex tensors: such operands are made of real ones."""
    ins = ""
    for k, s in enumerate(operands):
        real = s.replace("c64", "f32").replace("c128", "f64")
        if real == s or s[0] == "(":
            ins += "  v%d = %s parameter(%d)\n" % (k, s, k)
        else:
            ins += "  p%d = %s parameter(%d)\n  v%d = %s complex(p%d, p%d)\n" % (k, real, k, k, s,
                                                                               k, k)
    text = ", ".join("%s = %s%s" % (k, v, "" if v in ("true", "false") else " : ui8")
                     for k, v in config.items())
    one = len(results) == 1
    outs, shown, types = "", [], []
    for k, s in enumerate(results):
        if not one:
            outs += "  e%d = %s get-tuple-element(r), index=%d\n" % (k, s, k)
        name, real = "r" if one else "e%d" % k, s.replace("c64", "f32").replace("c128", "f64")
        if real != s and s[0] != "(":
            outs += "  m%d = %s abs(%s)\n" % (k, real, name)
            name, s = "m%d" % k, real
        shown.append(name)
        types.append(s)
    return ("HloModule m\nENTRY e {\n%s  r = %s custom-call(%s), custom_call_target=\"%s\", "
            "api_version=API_VERSION_TYPED_FFI, backend_config={%s}\n%s  ROOT t = (%s) "
            "tuple(%s)\n}\n"
            % (ins, results[0] if one else "(%s)" % ", ".join(results),
               ", ".join("v%d" % k for k in range(len(operands))), target, text, outs,
               ", ".join(types), ", ".join(shown))).encode()


def stack(operands, n):
    return [s.replace("[", "[%d%s" % (n, "," if s[-2] != "[" else "")) for s in operands]


def damaged(target, operands, results, config):
    """Modules that are not the call, each in one place."""
    longer = lambda s: s.replace("[", "[1", 1)  # noqa: E731  (5 becomes 15, none becomes 1)
    for k, s in enumerate(operands):
        for other in (longer(s), "(%s)" % s, "bf16" + s[s.index("["):]):
            yield target, operands[:k] + [other] + operands[k + 1:], results, config
        yield target, operands[:k] + operands[k + 1:], results, config
    for k, s in enumerate(results):
        for other in [longer(s)] + ["(%s)" % s] * (len(results) > 1):
            yield target, operands, results[:k] + [other] + results[k + 1:], config
        yield target, operands, results[:k] + results[k + 1:] or ["s32[]"], config
    yield target, operands + operands[:1], results, config
    yield target, operands, results + ["s32[]"], config
    for key in set(config) & {"uplo", "side", "diag", "trans_x"}:
        yield target, operands, results, dict(config, **{key: 1})
    if "gehrd" in target:
        yield target, operands, results, dict(config, low=2)
    if "gees" in target:
        yield target, operands, results, dict(config, sort=83)
    yield target.replace("_ffi", ""), operands, results, config
    yield target[:7] + ("d" if target[7] != "d" else "s") + target[8:], operands, results, config


def post(d, body):
    return d.json("POST", "/v1/executables", body, {"Content-Type": "application/octet-stream"})


def numbers(rng, s, kind):
    dims = [int(n) for n in s[s.index("[") + 1:-1].split(",") if n]
    t = NUMPY[s[:s.index("[")].replace("c64", "f32").replace("c128", "f64")]
    x = rng.standard_normal(dims) * (kind != "zeros")
    if kind == "nan":
        x.flat[x.size // 2] = np.nan
    return np.zeros(dims, t) if t == np.int32 else x.astype(t)


def runs(d, rng, target, operands, results, config):
    for n in (1, 3):
        r = post(d, module(target, stack(operands, n), stack(results, n), config))
        names = [i["name"] for i in r["modelSignature"]["inputs"]]
        for kind in ("numbers", "zeros", "nan"):
            values = {name: numbers(rng, s, kind)
                      for name, s in zip(names, stack(operands, n))}
            d.run(r["sourceDigest"], values)
    return ""


def refuses(d, call):
    try:
        post(d, module(*call))
        return "accepted: %s" % module(*call).decode()
    except daemon.Refused as e:
        return "" if 400 <= e.code < 500 else "%s %s" % (e.code, e.body)


def main(build):
    rng, failed = np.random.default_rng(5), 0
    with daemon.Daemon(build) as d:
        for names, ins, outs, config in CALLS:
            for letter in TYPES:
                name = names.split()[-1 if letter in "cz" else 0]
                target = "lapack_%s%s_ffi" % (letter, name)
                call = (target, shapes(ins, letter), shapes(outs, letter), config)
                try:
                    why = runs(d, rng, *call)
                except daemon.Refused as e:
                    why = "%s %s" % (e.code, e.body)
                for bad in damaged(*call) if letter in "sz" else ():
                    why = why or refuses(d, bad)
                failed += bool(why)
                print("%s lapack over http: %s%s"
                      % ("FAIL" if why else "PASS", target, ": " + why if why else ""), flush=True)
        log = d.logs()
        for word in ("worker.refused", "worker.died", "worker.crash", "signal"):
            if word in log:
                failed += 1
                print("FAIL lapack over http: the daemon's log has %s\n%s" % (word, log))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
