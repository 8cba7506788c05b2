# SPDX-License-Identifier: Apache-2.0
"""StableHLO programs that carry their expected results: functions with check.expect_* operations,
as the project's interpreter tests and test programs have. Each is run by hlo-run with its checks
made results, and compared here.
   stablehlo.py BUILD FOLDER|FILE...   [--list] [--quick N] [--xla]
--xla: XLA:CPU runs the same programs, in a process of its own that may die; counts by family."""
import argparse
import os
import pickle
import re
import select
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import ml_dtypes
import numpy as np

TYPES = {"i1": np.bool_, "i2": np.int8, "i4": np.int8, "i8": np.int8, "i16": np.int16,
         "i32": np.int32, "i64": np.int64, "ui2": np.uint8, "ui4": np.uint8, "ui8": np.uint8,
         "ui16": np.uint16, "ui32": np.uint32, "ui64": np.uint64, "f16": np.float16,
         "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "complex<f32>": np.complex64, "complex<f64>": np.complex128,
         "f8E4M3FN": ml_dtypes.float8_e4m3fn, "f8E5M2": ml_dtypes.float8_e5m2,
         "f8E4M3": ml_dtypes.float8_e4m3, "f8E3M4": ml_dtypes.float8_e3m4,
         "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
         "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz, "f8E8M0FNU": ml_dtypes.float8_e8m0fnu,
         "f4E2M1FN": ml_dtypes.float4_e2m1fn}
# A program's family, by what its file's name holds; the first that fits.
FAMILIES = [(name, re.compile(r"(?:^|_)(?:%s)" % pattern)) for name, pattern in (
    ("collectives", "all_|collective|partition_id|replica_id|reduce_scatter|send|infeed|outfeed"),
    ("quantised", "quant|.*_qi8|.*uniform_"),
    ("convolution and dot", "conv_|convolution|dot|einsum|ragged|dynamic_conv"),
    ("scatter", "scatter|select_and_scatter"),
    ("gather and slices", "gather|.*slice|take|select_and_gather|dynamic_update"),
    ("reductions and windows", "reduce_(?!precision)|reduce\\b|reduce$|arg|cum|map"),
    ("sort and top k", "sort|top_k|approx"),
    ("linear algebra and fft", "cholesky|triangular|fft|qr|svd|eig|lu|schur|house|tridiag"),
    ("random", "random|rng"),
    ("control flow and calls", "while|if|case|call|composite|cond|scan|custom|tuple|after|optim|"
     "stop|check|probe|print|api|reissue|device_put"),
    ("shapes", "reshape|broadcast|concat|pad|transpose|squeeze|rev|iota|expand|constant|eye|arange|"
     "dynamic|get_dim|renew|redim"),
    ("conversion and bits", "convert|bitcast|reduce_precision|population|popcnt|shift|and|or|xor|"
     "not|count|clz|mulhi"),
    ("comparison and choice", "eq|ne|lt|le|gt|ge|compare|select|clamp|max|min|is_finite|sign"),
    ("arithmetic and functions", ""))]
FUNC = re.compile(r"func\.func\s+(?:public\s+|private\s+)?@(\w+)\s*\(")


def balanced(text, at, opening, closing):
    """Place behind the bracket that closes the one at `at`; strings are passed over."""
    depth = 0
    while at < len(text):
        c = text[at]
        if c == '"':
            at = text.index('"', at + 1)
        elif c == opening:
            depth += 1
        elif c == closing and not (c == ">" and text[at - 1] == "-"):
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    raise ValueError("no end")


def functions(text):
    """(name, parameters, whole text, where it stands) of each function with a body."""
    for m in FUNC.finditer(text):
        end = balanced(text, m.end() - 1, "(", ")")
        brace = text.index("{", end)
        line = text[end:brace]
        while line.count("(") > line.count(")"):  # attributes of results
            brace = text.index("{", balanced(text, brace, "{", "}"))
            line = text[end:brace]
        stop = balanced(text, brace, "{", "}")
        yield m[1], text[m.end():end - 1].strip(), m.start(), brace, stop


def rewrite(text):
    """The function that checks as @main, with both sides of each check as its results. None: it
    has none."""
    for name, params, start, brace, stop in functions(text):
        body = text[brace:stop]
        if "check.expect" not in body and "@check." not in body or params:
            continue
        yield name, checked(text, start, brace, stop)


CHECK = re.compile(r"check\.(expect_\w+)\s+|(?:%\w+ = )?stablehlo\.custom_call @check\.(\w+)\s*\(|"
                   r"\"check\.(expect_\w+)\"\(")


def tensor_type(body, at):
    """The tensor type that comes next, and the place behind it."""
    start = body.index("tensor<", at)
    end = balanced(body, start + 6, "<", ">")
    return body[start:end], end


def take_checks(body):
    """Removes check operations; what they compare, as (how, value, value, type, tolerance).
    check.expect_* %a, %b : t      check.expect_*_const %a, dense<..> : t
    custom_call @check.*(%a, %b) : (t, t) -> ..      "check.expect_*"(..) <{value = ..}> : ..
    What a probe has written is compared with itself."""
    out, checks, at = [], [], 0
    while m := CHECK.search(body, at):
        how = m[1] or m[2] or m[3]
        out.append(body[at:m.start()])
        close = body.index(":" if m[1] else ")", m.end())
        operands = [x.strip() for x in body[m.end():close].split(",")]
        a, b = operands[0], operands[-1]
        if how.endswith("_const"):
            dense = body.index("dense<", m.end())
            end = balanced(body, dense + 5, "<", ">")
            type_, at = tensor_type(body, end)
            b, how = f"%checked{len(checks)}", how[:-6]
            out.append(f"{b} = stablehlo.constant {body[dense:end]} : {type_}")
        else:
            b = a if how == "expect_serialized_eq" else operands[1]
            type_, at = tensor_type(body, close)
        at = body.index("\n", at)
        tolerance = re.search(r"tolerance = ([\d.e-]+)", body[m.start():at])
        checks.append((how, a, b, type_, float(tolerance[1]) if tolerance else None))
    return "".join(out) + body[at:], checks


def checked(text, start, brace, stop):
    body, checks = take_checks(text[brace:stop])
    end = max(body.rfind("func.return"), body.rfind("\n    return"), body.rfind("\n  return"))
    values = ", ".join(f"{a}, {b}" for _, a, b, *_ in checks)
    types = ", ".join(f"{t}, {t}" for *_, t, _ in checks)
    body = body[:end] + f"\n  func.return {values} : {types}\n}}"
    main = f"func.func public @main() -> ({types}) {body}"
    before, behind = take_checks(text[:start])[0], take_checks(text[stop:])[0]
    rest = re.sub(r"func\.func\s+public\s+@", "func.func private @", before)
    after = re.sub(r"func\.func\s+public\s+@", "func.func private @", behind)
    after = after.replace("func.func @", "func.func private @")
    return rest.replace("func.func @", "func.func private @") + main + after, checks


def parse_type(t):
    inner = t[7:-1]
    dims = []
    while (m := re.match(r"(\d+)x", inner)):
        dims.append(int(m[1]))
        inner = inner[m.end():]
    return dims, inner


def same(how, got, want, tolerance):
    if how in ("expect_eq", "eq"):
        return got.tobytes() == want.tobytes() or np.array_equal(got, want, equal_nan=False) or (
            got.dtype.kind in "fcV" and np.array_equal(got.astype(np.complex128),
                                                       want.astype(np.complex128), equal_nan=True))
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    x, y = got.astype(wide), want.astype(wide)
    small = got.dtype.itemsize <= 2 and got.dtype.kind != "i"
    tol = tolerance if tolerance else 1e-2 if small else 1e-3 if how == "expect_almost_eq" else 1e-4
    return np.allclose(x, y, rtol=tol, atol=tol * 1e-2 if how == "expect_close" else tol,
                       equal_nan=True)


def compare(checks, value):
    """value(k, dtype): result k, or a text where it has none that can be compared."""
    for k, (how, a, b, t, tolerance) in enumerate(checks):
        element = parse_type(t)[1]
        if element not in TYPES:
            return "skipped", element
        got, want = (value(2 * k + j, t) for j in range(2))
        if not same(how, got, want, tolerance):
            return "differs", f"{a}: got {got[:6]}, expected {want[:6]}"
    return "ok", ""


def run(build, text, checks, device):
    with tempfile.TemporaryDirectory() as tmp:
        src, out = Path(tmp, "p.mlir"), Path(tmp, "out")
        src.write_text(text)
        p = subprocess.run([f"{build}/hlo-run", "--device", device, "--precision", "strict",
                            "--out", out, src],
                           capture_output=True, text=True, timeout=120)
        if p.returncode:
            why = (p.stderr.strip() or p.stdout.strip()).split("p.mlir: ")[-1]
            return "refused" if p.returncode == 3 else "failed", " ".join(why.split())[:300]
        raw = out.read_bytes()
    places = [0]
    for *_, t, _ in checks:
        n = np.dtype(TYPES.get(parse_type(t)[1], np.int8)).itemsize
        for _ in range(2):
            places.append(places[-1] + n * int(np.prod(parse_type(t)[0], dtype=np.int64)))
    return compare(checks, lambda k, t: np.frombuffer(raw[places[k]:places[k + 1]],
                                                      TYPES[parse_type(t)[1]]))


# ---- XLA:CPU

def child():
    """Modules on stdin, each behind its length; (results, why there are none) on stdout."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    from jax._src import xla_bridge
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jaxlib.mlir import ir
    jax.config.update("jax_enable_x64", True)
    backend = xla_bridge.get_backend("cpu")
    to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while len(head := sys.stdin.buffer.read(4)) == 4:
        text = sys.stdin.buffer.read(struct.unpack("<I", head)[0]).decode()
        try:
            with mlir.make_ir_context(), ir.Location.unknown():
                module = str(ir.Module.parse(text))
            exe = backend.compile_and_load(module, _jax.DeviceList((backend.local_devices()[0],)),
                                           xla_client.CompileOptions())
            answer = [np.ascontiguousarray(np.asarray(o)) for o in exe.execute([])], ""
        except Exception as e:
            answer = None, " ".join(str(e).split())[:300]
        raw = pickle.dumps(answer)
        to.write(struct.pack("<I", len(raw)) + raw)
        to.flush()


class Xla:
    """The child; it is started again when it died, or takes longer than a minute."""
    process = None

    def run(self, text, checks):
        if self.process is None:
            self.process = subprocess.Popen([sys.executable, __file__, "--child"],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                            stderr=subprocess.DEVNULL)
        raw, out = text.encode(), self.process.stdout
        try:
            self.process.stdin.write(struct.pack("<I", len(raw)) + raw)
            self.process.stdin.flush()
            head = out.read(4) if select.select([out], [], [], 60)[0] else b""
            results, why = pickle.loads(out.read(struct.unpack("<I", head)[0]))
        except (OSError, struct.error, EOFError, pickle.UnpicklingError):
            self.close()
            return "failed", "the process ended, or took too long"
        if results is None:
            return "refused", why
        if len(results) != 2 * len(checks):
            return "failed", "%d results" % len(results)
        return compare(checks, lambda k, t: results[k].ravel().astype(TYPES[parse_type(t)[1]]))

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
        self.process = None


def family(path):
    stem = path.stem.removeprefix("vmap_")
    return next(name for name, pattern in FAMILIES if pattern.search(stem))


def print_table(table):
    kinds = ("ok", "differs", "refused", "failed", "skipped")
    print("%-26s %9s   %-39s XLA:CPU" % ("family", "programs", "hlod"))
    print("%-36s   %s%s" % ("", *["".join("%-8s" % k for k in kinds)] * 2))
    whole = (Counter(), Counter())
    for name in [n for n, _ in FAMILIES if n in table] + ["all"]:
        ours, theirs = whole if name == "all" else table[name]
        print("%-26s %9d   %s%s" % (name, ours.total(), "".join("%-8d" % ours[k] for k in kinds),
                                    "".join("%-8d" % theirs[k] for k in kinds)))
        if name != "all":
            whole[0].update(ours)
            whole[1].update(theirs)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("paths", nargs="+", type=Path)
    p.add_argument("--device", default="cpu")
    p.add_argument("--quick", type=int, default=1, help="every Nth file")
    p.add_argument("--list", action="store_true")
    p.add_argument("--xla", action="store_true")
    a = p.parse_args()
    count, xla, table = Counter(), Xla(), {}
    files = [f for q in a.paths for f in (sorted(q.glob("*.mlir")) if q.is_dir() else [q])]
    for f in files[::a.quick]:
        before = count.copy()
        for part in re.split(r"^// -----.*$", f.read_text(), flags=re.M):
            try:
                cases = list(rewrite(part))
            except ValueError as e:
                count["unread"] += 1
                print(f"{f.name}: {e}")
                continue
            for name, (text, checks) in cases:
                what, why = run(a.build, text, checks, a.device)
                count[what] += 1
                if a.xla:
                    both = table.setdefault(family(f), (Counter(), Counter()))
                    theirs, said = xla.run(text, checks)
                    both[0][what] += 1
                    both[1][theirs] += 1
                    if a.list and theirs != "ok":
                        print(f"XLA: {theirs:8} {f.name} @{name}: {said}", flush=True)
                if what not in ("ok", "skipped") or a.list:
                    print(f"{what:8} {f.name} @{name}: {why}", flush=True)
        new = count - before
        if new["ok"] and new["ok"] == new.total():
            print(f"PASS {f.name}: {new['ok']} functions")
    xla.close()
    if a.xla:
        print_table(table)
    print(dict(count))
    return 1 if count["differs"] or count["failed"] else 0


if sys.argv[1:] == ["--child"]:
    sys.exit(child())
sys.exit(main())
