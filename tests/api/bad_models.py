#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bad models against the real worker over HTTP: each must be answered with a 4xx that says where,
no worker may die, and the next request must be served. Models are written by hand in protobuf's
wire form (fields of onnx.proto). Standard library only. Usage: bad_models.py --hlod BIN --worker
BIN"""
import argparse, os, struct, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon

def varint(v):
    out = b""
    while v > 127:
        out, v = out + bytes([v & 127 | 128]), v >> 7
    return out + bytes([v])
def num(field, v): return varint(field << 3) + varint(v & (1 << 64) - 1)
def sub(field, *parts):
    body = b"".join(p.encode() if isinstance(p, str) else p for p in parts)
    return varint(field << 3 | 2) + varint(len(body)) + body

FLOAT, INT64 = 1, 7
def node(op, ins, outs, *attrs, name="n", domain=b""):
    return sub(1, *[sub(1, i) for i in ins], *[sub(2, o) for o in outs], sub(3, name), sub(4, op),
               *attrs, domain)
def ints(name, *v):  # an attribute
    return sub(5, sub(1, name), *(num(8, k) for k in v), num(20, 7))
def num_attr(name, v): return sub(5, sub(1, name), num(3, v), num(20, 2))
def tensor(name, dims, raw, dtype=FLOAT):
    return sub(5, *[num(1, d) for d in dims], num(2, dtype), sub(8, name), sub(9, raw))
def value(field, name, dims, dtype=FLOAT):
    return sub(field, sub(1, name),
               sub(2, sub(1, num(1, dtype), sub(2, *[sub(1, num(1, d)) for d in dims]))))
def model(*graph, opset=16): return num(1, 8) + sub(8, num(2, opset)) + sub(7, *graph, sub(2, "g"))

X, Y = value(11, "x", [2, 3]), value(12, "y", [2, 3])
GOOD = model(node("Relu", ["x"], ["y"]), X, Y)

def nest(levels):
    """A node whose attribute holds a graph whose node ...: only tags and lengths, written from the
    inside out."""
    heads, size = [], 0
    for _ in range(levels):
        for field in 6, 5, 1:
            head = varint(field << 3 | 2) + varint(size)
            heads.append(head)
            size += len(head)
    return model(b"".join(reversed(heads)), X, Y)

def cases():
    for cut in range(1, len(GOOD)):
        yield f"cut at byte {cut}", GOOD[:cut], None
    for levels in 200, 2000, 100000:
        yield f"nested {levels} deep", nest(levels), None
    yield "unknown op", model(node("Zorble", ["x"], ["a"], name="first"),
                              node("Blarg", ["a"], ["y"], name="second"), X,
                              Y), ["first", "second", "Zorble", "Blarg"]
    yield "cycle", model(node("Add", ["x", "b"], ["a"], name="p"),
                         node("Relu", ["a"], ["b"], name="q"), node("Relu", ["b"], ["y"]), X,
                         Y), None
    yield "input from nowhere", model(node("Add", ["x", "ghost"], ["y"]), X, Y), ["ghost"]
    yield "dims overflow", model(node("Add", ["x", "w"], ["y"]),
                                 tensor("w", [1 << 40, 1 << 40], b"\0" * 24), X, Y), ["w"]
    yield "negative dim", model(node("Add", ["x", "w"], ["y"]), tensor("w", [-5], b"\0" * 24), X,
                                Y), ["negative"]
    yield "too little data", model(node("Add", ["x", "w"], ["y"]), tensor("w", [2, 3], b"\0" * 20),
                                   X, Y), ["w"]
    yield "wrong rank", model(node("MatMul", ["x", "w"], ["y"]), tensor("w", [7, 5], b"\0" * 140),
                              X, Y), None
    yield "wrong dtype", model(node("Add", ["x", "w"], ["y"]),
                               tensor("w", [2, 3], b"\0" * 48, INT64), X, Y), None
    for dtype, field, name in ((FLOAT, 7, "int64_data"), (FLOAT, 5, "int32_data"),
                               (6, 4, "float_data")):
        raw = struct.pack("<2f", 1, 2) if field == 4 else b"\1\2"
        yield (f"numbers of type {dtype} in {name}",
               model(node("Identity", ["w"], ["y"]),
                     sub(5, num(1, 2), num(2, dtype), sub(8, "w"), sub(field, raw)), X,
                     value(12, "y", [2], dtype)), ["'w'", name])
    four = lambda name, f: value(f, name, [1, 1, 4, 4])  # noqa: E731
    for what in "strides", "dilations", "pads":
        for op, more in (("MaxPool", ints("kernel_shape", 2, 2)), ("Conv", b"")):
            n = 4 if what == "pads" else 2
            yield (f"{op} with {what} of 2^63 - 1",
                   model(node(op, ["x", "w"][:1 + (op == "Conv")], ["y"], more,
                              ints(what, *[(1 << 63) - 1] * n), num_attr("ceil_mode", 1)
                              if op == "MaxPool" else b""), four("x", 11), four("y", 12),
                         tensor("w", [1, 1, 2, 2], b"\0" * 16)), ["window"])
    two = ints("kernel_shape", 2, 2)
    for op, more, words in (("MaxPool", two + ints("pads", 2, 0, 0, 0), "pads"),
                            ("AveragePool", two + ints("pads", 0, 0, 0, 2), "pads"),
                            ("Conv", ints("kernel_shape", 5, 5), "kernel_shape")):
        yield (f"{op} with {words} that do not fit",
               model(node(op, ["x", "w"][:1 + (op == "Conv")], ["y"], more), four("x", 11),
                     four("y", 12), tensor("w", [1, 1, 2, 2], b"\0" * 16)), [op, words])
    yield "2.2 GB length field", num(1, 8) + varint(7 << 3 | 2) + varint(2200 << 20) + b"abc", None
    yield "length of 2^63", num(1, 8) + varint(7 << 3 | 2) + varint(1 << 63) + b"abc", None
    yield "opset from the future", model(node("Relu", ["x"], ["y"]), X, Y, opset=9999), None
    yield "no graph", num(1, 8), None
    yield "text", b"hello, world\n" * 10, None
    yield "zeros", b"\0" * 1000, None
    yield ("HLO text cut short",
           b"HloModule m\n\nENTRY e {\n  a = f32[2]{0} parameter(0)\n  ROOT b = f32[2]{0} add(a, ",
           None)
    # Data in other files, wherever a tensor may stand; "weight:0" is our own mark of cut weights.
    for at in "weight:0", "weight:-1", "/etc/passwd":
        away = (num(1, 3), num(2, FLOAT), sub(8, "w"), sub(13, sub(1, "location"), sub(2, at)),
                num(14, 1))
        constant = node("Constant", [], ["w"], sub(5, sub(1, "value"), sub(5, *away), num(20, 4)))
        add = node("Add", ["x", "w"], ["y"])
        branch = lambda name, *g: sub(5, sub(1, name), sub(6, *g, sub(2, "b"), Y),  # noqa: E731
                                      num(20, 5))
        for where, graph, more in (
                ("an initializer", (add, sub(5, *away)), b""), ("a Constant", (constant, add), b""),
                ("a branch's Constant",
                 (node("If", ["c"], ["y"], branch("then_branch", constant, add),
                       branch("else_branch", node("Neg", ["x"], ["y"]))), value(11, "c", [], 9)),
                 b""),
                ("a branch's initializer",
                 (node("If", ["c"], ["y"], branch("then_branch", add, sub(5, *away)),
                       branch("else_branch", node("Neg", ["x"], ["y"]))), value(11, "c", [], 9)),
                 b""),
                ("a function", (node("F", ["x"], ["y"], domain=sub(7, "f")),),
                 sub(8, sub(1, "f"), num(2, 1)) +
                 sub(25, sub(1, "F"), sub(4, "x"), sub(5, "y"), sub(10, "f"),
                     constant.replace(b"\x0a", b"\x3a", 1), add.replace(b"\x0a", b"\x3a", 1)))):
            yield f"data at {at} of {where}", model(*graph, X, Y) + more, [at, "another file"]
    yield "output nobody makes", model(node("Relu", ["x"], ["z"]), X, Y), ["y"]

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--hlod", required=True)
    a.add_argument("--worker", required=True)
    o = a.parse_args()
    d, bad, n = Daemon(o.hlod, o.worker), 0, 0
    head = {"Content-Type": "application/onnx"}
    status, r = d.json("POST", "/v1/executables", GOOD, head)
    if status != 200:
        print("the good model was refused:", r)
        bad += 1
    for name, body, words in cases():
        n += 1
        status, r = d.json("POST", "/v1/executables", body,
                           {} if body.startswith(b"HloModule") else head)
        text = str(r.get("message")) + " ".join(r.get("details", []))
        if (not 400 <= status < 500 or not r.get("message")
            or any(w not in text for w in words or [])):
            bad += 1
            print(f"{name}: {status} {str(r)[:300]}")
    status, r = d.json("POST", "/v1/run",
                       {"model": r0(d, GOOD, head),
                        "inputs": [{"name": "x", "dtype": "f32", "shape": [2, 3],
                                    "data": [-1, 2, -3, 4, -5, 6]}]})
    if status != 200 or r["outputs"][0]["data"] != [0, 2, 0, 4, 0, 6]:
        bad += 1
        print("the good model does not run any more:", r)
    deaths = [l for l in d.call("GET", "/metrics")[2].decode().split("\n")
              if l.startswith("hlod_worker_deaths_total ")]
    if deaths != ["hlod_worker_deaths_total 0"]:
        bad += 1
        print("workers died:", deaths)
    if d.stop() != 0:
        bad += 1
    print(f"bad models: {n} cases, {bad} failures")
    return 1 if bad else 0

def r0(d, body, head): return d.json("POST", "/v1/executables", body, head)[1]["sourceDigest"]

if __name__ == "__main__":
    sys.exit(main())
