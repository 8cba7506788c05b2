# SPDX-License-Identifier: Apache-2.0
"""HLO through the running daemon: text, HloModuleProto and HloProto of one module are one
executable, found by their bytes alone; XLA's own proto too; results are right; damaged and
unsupported modules are refused in words and the next request is served. Usage: hlo_formats.py
BUILD"""
import os
import subprocess
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "conform"))
import child  # noqa: E402
import daemon  # noqa: E402

TEXT = b"""HloModule softmax, entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] add(a, b) }
ENTRY main {
  x = f32[4,8] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[4] reduce(x, low), dimensions={1}, to_apply=max
  mb = f32[4,8] broadcast(m), dimensions={0}
  d = f32[4,8] subtract(x, mb)
  e = f32[4,8] exponential(d)
  s = f32[4] reduce(e, zero), dimensions={1}, to_apply=add
  sb = f32[4,8] broadcast(s), dimensions={0}
  ROOT r = f32[4,8] divide(e, sb)
}
"""
BAD = [("custom call", b'HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT c = f32[2] '
                       b'custom-call(p), custom_call_target="cudnn$conv" }', "cudnn$conv",
        "UNSUPPORTED_OP"),
       ("infeed",
        b"HloModule m\nENTRY e { t = token[] after-all()\n ROOT i = (f32[2], token[]) infeed(t) }",
        "infeed", "UNSUPPORTED_OP"),
       ("token as a result", b"HloModule m\nENTRY e { x = f32[2] parameter(0)\n t = token[] "
                             b"after-all()\n ROOT r = (f32[2], token[]) tuple(x, t) }",
        "output 'result1' is no tensor", "MALFORMED_MODEL"),
       ("token as an input",
        b"HloModule m\nENTRY e { x = f32[2] parameter(0)\n t = token[] parameter(1)\n ROOT r = "
        b"f32[2] add(x, x) }", "input 't' is no tensor", "MALFORMED_MODEL"),
       ("dimension without a bound", b"HloModule m\nENTRY e { ROOT p = f32[?] parameter(0) }",
        "no bound", "MALFORMED_MODEL"),
       ("elided constant", b"HloModule m\nENTRY e { ROOT p = f32[100] constant({...}) }",
        "left out", "MALFORMED_MODEL"),
       ("wrong shape",
        b"HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT n = f32[3] negate(p) }", "f32[3]",
        "MALFORMED_MODEL"),]


def xla_proto(text):
    from jaxlib import _hlo
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def say(ok, name, why=""):
    print(f"{'PASS' if ok else 'FAIL'} hlo over http: {name}" + ("" if ok else f": {why}"),
          flush=True)


def post(d, body):
    return d.json("POST", "/v1/executables", body, {"Content-Type": "application/octet-stream"})


def refused(d, name, body, want, reason):
    try:
        post(d, body)
        say(False, name, "accepted")
    except daemon.Refused as e:
        text = str(e.body)
        say(400 <= e.code < 500 and want in text and reason in text, name, f"{e.code} {text[:300]}")


def snapshot(module):
    """Of the program alone: HloSnapshot.hlo, an HloProto, and the platform's name."""
    hlo = b"\x0a" + varint(len(module)) + module
    return b"\x0a" + varint(len(hlo)) + hlo + b"\x22\x03cpu"


def main(build):
    proto = subprocess.run([os.path.join(build, "hlo-opt"), "--to=proto", "-"], input=TEXT,
                           capture_output=True, check=True).stdout
    xla = child.Child()
    theirs = xla.call(xla_proto, TEXT.decode())
    xla.close()
    forms = {"text": TEXT, "HloModuleProto": proto,
             "HloProto": b"\x0a" + varint(len(proto)) + proto, "XLA's HloModuleProto": theirs,
             "XLA's HloProto": b"\x0a" + varint(len(theirs)) + theirs,
             "HloSnapshot": snapshot(theirs)}
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    want = np.exp(x - x.max(1, keepdims=True))
    want /= want.sum(1, keepdims=True)
    with daemon.Daemon(build) as d:
        digests = set()
        for name, body in forms.items():
            try:
                r = post(d, body)
                digests.add(r["digest"])
                out, _ = d.run(r["sourceDigest"], {r["modelSignature"]["inputs"][0]["name"]: x})
                worst = max(float(np.abs(v - want).max()) for v in out.values())
                say(worst < 1e-6, name, f"error {worst}")
            except (daemon.Refused, KeyError) as e:
                say(False, name, e)
        say(len(digests) == 1, "one executable for all forms", digests)
        for case in BAD:
            refused(d, *case)
        # a cut proto is refused, or is a module that fails to verify
        for cut in range(1, len(proto), max(1, len(proto) // 40)):
            code, _, text = d.raw("POST", "/v1/executables", proto[:cut],
                                  {"Content-Type": "application/octet-stream"})
            if not 400 <= code < 500:
                say(False, f"cut at {cut}", f"{code} {text[:200]}")
                break
        else:
            say(True, "cut protos are refused")
        nested = b"\x10\x0d"  # element_type TUPLE
        for _ in range(20000):
            nested = b"\x10\x0d\x22" + varint(len(nested)) + nested
            if len(nested) > 200000:
                break
        instr = b"\x0a\x01p\x12\x09parameter\x1a" + varint(len(nested)) + nested
        comp = b"\x0a\x01e\x12" + varint(len(instr)) + instr
        refused(d, "nested shapes", b"\x0a\x04deep\x1a" + varint(len(comp)) + comp, "deeper",
                "MALFORMED_MODEL")
        say(bool(post(d, TEXT)["digest"]), "still served")


if __name__ == "__main__":
    main(sys.argv[1])
