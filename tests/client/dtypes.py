#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Element types that NumPy has not, through `hlo run`, beside ml_dtypes: files and numbers in,
shaped files out. Needs numpy and ml_dtypes (jax brings it).
Usage: dtypes.py BUILD"""
import json
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

build = sys.argv[1]
result = Results()
TYPES = {"bf16": ml_dtypes.bfloat16, "f8e3m4": ml_dtypes.float8_e3m4,
         "f8e4m3": ml_dtypes.float8_e4m3, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
         "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
         "f8e5m2": ml_dtypes.float8_e5m2, "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
         "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4}
work = tempfile.mkdtemp(prefix="hlod-types-")
d = Daemon(build + "/hlod", build + "/hlod-worker")
env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}
rng = np.random.default_rng(3)


def module(hlo, n):
    path = os.path.join(work, "%s-%d.hlo" % (hlo, n))
    with open(path, "w") as f:
        f.write("HloModule m\nENTRY e {\n x = %s[2,%d] parameter(0)\n ROOT y = %s[2,%d] copy(x)\n"
                "}\n" % (hlo, n, hlo, n))
    return path


def run(hlo, n, word):
    out = os.path.join(work, "y.npy")
    p = subprocess.run([build + "/hlo", "run", module(hlo, n), "-i", word, "-o", out], env=env,
                       capture_output=True, text=True, timeout=60)
    return p, np.load(out) if p.returncode == 0 else None


def check(name, hlo, want, word):
    """What comes back is `want` (of ml_dtypes' type) in its shape, bit for bit but for the bits
    that a type of four has not."""
    p, got = run(hlo, want.shape[1], word)
    mask = 15 if hlo in ("s4", "u4") else 255
    good = got is not None and got.shape == want.shape and got.dtype.kind == "V" and (
        (np.frombuffer(got.tobytes(), np.uint8) ^ np.frombuffer(want.tobytes(), np.uint8)) & mask
        == 0).all()
    result("%s: %s" % (hlo, name), good, p.stderr + repr(got))


def codes(hlo, sent, want):
    """Bytes whose other bits are not the type's, as ml_dtypes has them: -8 of s4 is 0x08."""
    n = len(sent)
    model = ("HloModule m\nENTRY e {\n x = %s[%d] parameter(0)\n"
             " ROOT y = f32[%d] convert(x)\n}" % (hlo, n, n)).encode()
    digest = json.loads(d.call("POST", "/v1/executables", model)[2])["sourceDigest"]
    x = {"name": "x", "dtype": hlo, "shape": [n], "parameters": {"binary_data_size": n}}
    head = json.dumps({"model": digest, "inputs": [x]}).encode()
    code, _, reply = d.call("POST", "/v1/run", head + bytes(sent), {
        "Inference-Header-Content-Length": str(len(head)), "Accept": "application/json",
        "Content-Type": "application/octet-stream"})
    got = json.loads(reply).get("outputs", [{}])[0].get("data")
    result("%s: bits beyond the type's" % hlo, got == want, "%r %r" % (code, reply[:300]))


try:
    codes("s4", [0x08, 0x0F, 0x07, 0xF8, 0x79], [-8, -1, 7, -8, -7])
    codes("u4", [0x08, 0x0F, 0x07, 0xF8, 0x79], [8, 15, 7, 8, 9])
    codes("s2", [0x02, 0x01, 0xFE, 0x7F], [-2, 1, -2, -1])
    codes("f4e2m1fn", [0x01, 0x0F, 0xF7, 0x19], [0.5, -6, 6, -0.5])
    codes("pred", [0, 1, 2, 255], [0, 1, 1, 1])
    for hlo, t in TYPES.items():
        integer = hlo in ("s4", "u4")
        low, high = (-8 if hlo == "s4" else 0, 8 if hlo == "s4" else 16) if integer else (-14, 14)
        x = (rng.integers(low, high, (2, 64)).astype(np.float32) if integer
             else (rng.uniform(low, high, (2, 64)) * 2.0 ** rng.integers(-9, 0, (2, 64))).astype(
                 np.float32))
        if not integer:
            # halfway between two codes: to even
            step = np.float32(np.unique(np.abs(x).astype(t).astype(np.float32))[:2])
            x[0, 0], x[0, 1] = (step[0] + step[1]) / 2, 0
        want = x.astype(t)
        np.save(work + "/f.npy", x)
        np.save(work + "/t.npy", want)
        check("a file of its own type", hlo, want, "x=%s=@%s/t.npy" % (hlo, work))
        check("a file of f32, rounded", hlo, want, "x=%s=@%s/f.npy" % (hlo, work))
        check("numbers", hlo, want,
              "x=2x64x%s=%s" % (hlo, ",".join(repr(float(v)) for v in x.flatten())))
    p, got = run("bf16", 64, "x=@%s/t.npy" % work)
    result("one byte without a name: says what to do",
           p.returncode != 0 and "-i x=f8e4m3fn=@FILE" in p.stderr, p.stderr)
    np.save(work + "/t.npy", np.ones((2, 4), ml_dtypes.bfloat16))
    check("two bytes without a name", "bf16", np.ones((2, 4), ml_dtypes.bfloat16),
          "x=@%s/t.npy" % work)
    for hlo, value in (("s4", "8"), ("u4", "-1"), ("f8e4m3fn", "500"), ("f8e4m3fn", "Infinity"),
                       ("bf16", "1e39")):
        p, got = run(hlo, 1, "x=2x1x%s=0,%s" % (hlo, value))
        result("%s: %s is refused" % (hlo, value), p.returncode != 0 and "element 1" in p.stderr,
               p.stderr)
finally:
    d.stop()
sys.exit(result.code())
