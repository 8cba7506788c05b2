#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HLO in and out, over the modules of XLA's own parser and evaluator tests (../shared/data/hlo),
against XLA.
For each module: parsed and verified; printed and parsed again to the same text; the same through
HloModuleProto; XLA reads our text and our proto as the module that it reads from the source; we
read XLA's proto as the module that we read from the source; evaluated on random inputs with the
result of XLA:CPU. What we print of tests/golden, as it is and optimised, XLA reads too. XLA runs in
a child process, because it aborts on some input. Prints what failed, the counts, and one PASS or
FAIL
line each. Usage: hlo_corpus.py BUILD [--quick] (quick: no evaluation)"""
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "ops"))
sys.path.insert(0, HERE)
import child
import hlo_eval_vs_xla as evaluation
import oracle

CORPUS = os.path.join("..", "shared", "data", "hlo")

# Modules that XLA parses and its own verifier would refuse; what we say of them.
REFUSED = {
    # an asynchronous call declares no result, its computation has one
    "08ab9e17e01d80d8": r"shape \(\) given",
    "5f715a6e6b9c1947": r"has 2 parameters, expected 0",
    "8250c82a9f6f68ab": r"has 2 parameters, expected 0",
    "97540784584f07ee": r"f32\[128,128,128,128\] inferred",  # a dot that contracts nothing
}
# No proto: the value of the constant is not in the text.
NO_PROTO = {"b93fef052bbeeba1": "left out of the text"}
# Text of ours that XLA reads as another module, with the reason.
XLA_DIFFERS = {
    "98a3d54925523ba2": "a copy that changes the type is written as a convert",
    "84966dfb22ecc460": "a reduction that rounds its result is written as a reduction and a "
                        "convert",
    "b93fef052bbeeba1": "the value of the constant is not in the text",
    "ee20e3483500e71e": "origin_recovery_table, a module of its own in quotes, has no fields here",
    "f01d96b2600a9a8b": "origin_recovery_table, a module of its own in quotes, has no fields here",
    "f92bbe15d2d10e69": "unused instructions stand in another order",
    "7c103229419910be": "labels with unknown dimensions ('?') have no fields here",}


def hlo_opt(build, *args, data=None):
    """(stdout or None, message)"""
    p = subprocess.run([os.path.join(build, "hlo-opt"), *args], input=data, capture_output=True,
                       timeout=60)
    return (p.stdout if p.returncode == 0 else None), p.stderr.decode(errors="replace").strip()


# ---- in the child: XLA

def fingerprint(module):
    """XLA's print with names by order, and values."""
    from jaxlib import _hlo
    options = _hlo.HloPrintOptions.fingerprint()
    options.print_large_constants = options.print_metadata = True
    return module.to_string(options)


def xla_text(text):
    from jaxlib import _hlo
    return fingerprint(_hlo.hlo_module_from_text(text))


def xla_proto(text):
    from jaxlib import _hlo
    return _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()


def xla_from_proto(data):
    from jaxlib import _hlo
    return fingerprint(_hlo.HloModule.from_serialized_hlo_module_proto(data))


def xla_own_proto(text):
    return xla_from_proto(xla_proto(text))


def plain(s):
    """XLA's print without what the formats do not carry alike: frontend attributes (ours hold kept
    text), where values came from, and properties of the module that its proto has no field for."""
    s = re.sub(r", origin_recovery_table=\{.*?\n\}\n", "\n", s, flags=re.S)
    s = re.sub(
        r", frontend_attributes=\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\"|\{(?:[^{}]|\{[^{}]*\})*\})*\}",
        "", s)
    s = re.sub(
        r", (?:replica_count|num_partitions|alias_passthrough_params|allow_spmd\w*|is_scheduled)"
        r"=(?:\{[^{}]*\}|[\w.]+)",
        "", s)
    s = re.sub(r", origin=\{(?:[^{}]|\{[^{}]*\})*\}", "", s)
    return s.strip()


def same_module(a, b):
    return plain(a) == plain(b)


class Counts:
    def __init__(self):
        self.n = {}
        self.bad = {}

    def add(self, what, ok, name="", why=""):
        self.n[what] = self.n.get(what, 0) + bool(ok)
        self.bad.setdefault(what, 0)
        if not ok:
            self.bad[what] += 1
            print(f"{what}: {name}: {why}", flush=True)


def check_xla(xla, c, build, name, text, ours, proto):
    theirs = xla.call(xla_text, text)
    if not isinstance(theirs, str):
        print(f"XLA does not print {name}: {theirs}", flush=True)
        return
    again = xla.call(xla_text, ours.decode())
    skip = name in XLA_DIFFERS
    c.add("XLA reads our text", skip or (isinstance(again, str) and same_module(theirs, again)),
          name, again if not isinstance(again, str) else diff(theirs, again))
    # not what XLA cannot read of its own
    if proto is not None and isinstance(xla.call(xla_own_proto, text), str):
        back = xla.call(xla_from_proto, proto)
        c.add("XLA reads our proto", skip or (isinstance(back, str) and same_module(theirs, back)),
              name, back if not isinstance(back, str) else diff(theirs, back))
    data = xla.call(xla_proto, text)
    if isinstance(data, bytes):
        got, why = hlo_opt(build, "-", data=data)
        back = xla.call(xla_text, got.decode()) if got is not None else why
        c.add("we read XLA's proto",
              skip or (isinstance(back, str) and got is not None and same_module(theirs, back)),
              name, diff(theirs, back) if got is not None and isinstance(back, str) else back)
        wrapped, why = hlo_opt(build, "-", data=b"\x0a" + varint(len(data)) + data)
        c.add("we read hlo_with_config", wrapped == got, name, why)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def diff(a, b):
    a, b = plain(a), plain(b)
    for x, y in zip(a.split("\n"), b.split("\n")):
        if x != y:
            return f"\n  {x[:300]}\n  {y[:300]}"
    return "lengths differ"


def check_module(xla, c, build, path):
    name = os.path.basename(path)[:-4]
    text = open(path, errors="replace").read()
    ours, why = hlo_opt(build, path)
    if name in REFUSED:
        return c.add("refused with the reason", ours is None and re.search(REFUSED[name], why),
                     name, why)
    c.add("parsed and verified", ours is not None, name, why)
    if ours is None:
        return
    again, why = hlo_opt(build, "-", data=ours)
    c.add("text to text", again == ours, name, why or "another text")
    proto, why = hlo_opt(build, "--to=proto", path)
    if name in NO_PROTO:
        c.add("refused with the reason", proto is None and NO_PROTO[name] in why, name, why)
    else:
        back, more = hlo_opt(build, "-", data=proto) if proto is not None else (None, why)
        c.add("text to proto to text", back == ours, name, more or "another text")
    check_xla(xla, c, build, name, text, ours, proto)


def check_goldens(xla, c, build):
    """What we print of our own goldens, before and after all passes, XLA reads."""
    for path in sorted(glob.glob("tests/golden/*/*.hlo")):
        for passes in ([], ["--passes=@whole,@main", "--target=cpu-avx512"]):
            ours, _ = hlo_opt(build, *passes, path)
            if ours is not None:  # some are there to be refused
                back = xla.call(xla_text, ours.decode())
                c.add("XLA reads our goldens", isinstance(back, str), path, back)


# Names in XLA's enumeration that are not the text's with capitals for words.
OPCODES = {"Clz": "count-leading-zeros", "Cos": "cosine", "Exp": "exponential",
           "Expm1": "exponential-minus-one", "Log1p": "log-plus-one",
           "OptimizationBarrier": "opt-barrier", "PopulationCount": "popcnt", "Sin": "sine",
           "TopK": "topk"}


def xla_opcodes():
    from jaxlib import _hlo
    return [x[1:] for x in dir(_hlo.HloOpcode) if re.match(r"k[A-Z]", x)]


def check_opcodes(xla, c):
    """Every opcode that XLA names has a row."""
    rows = set(re.findall(r'^OP\(\w+, *"([\w-]+)"', open("compiler/ir/ops.def").read(), re.M))
    names = xla.call(xla_opcodes)
    for name in names if isinstance(names, list) else []:
        text = OPCODES.get(name) or re.sub(r"(?<!^)([A-Z])", r"-\1", name).lower()
        c.add("opcodes of XLA", text in rows, text, "no row in ops.def")


def main(argv):
    build = argv[1]
    paths = sorted(glob.glob(os.path.join(CORPUS, "*", "*.hlo")))
    if not paths:
        print("SKIP hlo corpus: ../shared is not here")
        return 0
    xla, c = child.Child(), Counts()
    check_opcodes(xla, c)
    check_goldens(xla, c, build)
    for path in paths:
        check_module(xla, c, build, path)
    xla.close()
    if "--quick" not in argv:
        xla, tally = oracle.Xla(), {}
        for path in paths:
            try:
                verdict, detail = evaluation.one(xla, os.path.join(build, "hlo-opt"), path)
            except subprocess.TimeoutExpired:
                verdict, detail = "refused", "takes too long"
            tally[verdict] = tally.get(verdict, 0) + 1
            if verdict in ("differs", "crashed"):
                c.add("evaluated as XLA:CPU does", False, path, detail)
            elif verdict == "same":
                c.add("evaluated as XLA:CPU does", True)
        xla.close()
        print("evaluation: " + ", ".join(f"{v} {k}" for k, v in sorted(tally.items())))
    for what in c.n:
        print(f"{c.n[what]} {what}" + (f", {c.bad[what]} not" if c.bad[what] else ""))
        print(f"{'FAIL' if c.bad[what] or not c.n[what] else 'PASS'} hlo corpus: {what}")
    return 1 if any(c.bad.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
