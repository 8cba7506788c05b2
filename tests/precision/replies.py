#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What replies tell of a precision, with the real workers, on a CPU that has no instructions for
bf16 (this one, or as HLOD_CPU_ISA=avx2 makes it): that it has none, and in which types convolutions
and dots run; over HTTP, gRPC, in streams, the CLI and the Python client. Then on one
that acts as if it had them (HLOD_CPU_BF16=emulated). Needs numpy, onnx, grpcio.
Usage: replies.py BUILD"""
import json, os, subprocess, sys, tempfile
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "client", "python")]
import hlod
from harness import Daemon, Results

build = sys.argv[1]
result = Results()
NONE = "precision fast: this CPU has no instructions for bf16, all is computed in f32"
TYPES = [{"type": "f32", "count": 2}]
work = tempfile.mkdtemp(prefix="hlod-precision-")
rng = np.random.default_rng(5)
x = rng.standard_normal((1, 16, 8, 8)).astype(np.float32)

def model():
    w = numpy_helper.from_array(rng.standard_normal((16, 16, 3, 3)).astype(np.float32), "w")
    m = numpy_helper.from_array(rng.standard_normal((1024, 10)).astype(np.float32), "m")
    n = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1] * 4),
         helper.make_node("Flatten", ["c"], ["f"]), helper.make_node("MatMul", ["f", "m"], ["y"])]
    v = [helper.make_tensor_value_info(*t) for t in (("x", TensorProto.FLOAT, x.shape),
                                                     ("y", TensorProto.FLOAT, [1, 10]))]
    graph = helper.make_graph(n, "g", v[:1], v[1:], [w, m])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

path = os.path.join(work, "m.onnx")
onnx.save(model(), path)
tensor = {"name": "x", "dtype": "f32", "shape": list(x.shape), "data": x.ravel().tolist()}

def start(**env):
    """The daemon takes no such words for its workers: a script gives them."""
    worker = os.path.join(work, "worker")
    with open(worker, "w") as f:
        f.write("#!/bin/sh\n%s exec %s \"$@\"\n" % (
            " ".join("%s=%s" % v for v in env.items()), os.path.abspath(build + "/hlod-worker")))
    os.chmod(worker, 0o755)
    return Daemon(build + "/hlod", worker)

def compile_(d, precision):
    status, c = d.json("POST", "/v1/executables?precision=" + precision,
                       open(path, "rb").read(), {"Content-Type": "application/onnx"})
    assert status == 200, c
    return c

def without(d):
    hlo = lambda *words: subprocess.run([build + "/hlo", *words], capture_output=True, text=True,
                                        env={**os.environ, "HLOD_ADDR": "%s:%d" % d.addr})
    c = compile_(d, "fast")
    e = c["executable"]
    result("a compile says that there are none", e.get("precisionNote") == NONE, e)
    result("and what is computed in which type",
           e.get("computedIn") == TYPES and "bf16Contractions" not in e, e)
    again = compile_(d, "fast")
    result("a hit says so too", again["cacheHit"] and again["executable"]["precisionNote"] == NONE,
           again)
    plain = compile_(d, "default")["executable"]
    result("without a precision there is nothing to say", "precisionNote" not in plain, plain)
    strict = compile_(d, "strict")["executable"]
    result("strict is what it says", "precisionNote" not in strict, strict)

    request = {"model": c["sourceDigest"], "inputs": [tensor],
               "options": {"compile": {"precision": "fast"}}}
    status, r = d.json("POST", "/v1/run", request)
    result("a run tells both", status == 200 and r.get("precisionNote") == NONE
           and r.get("computedIn") == TYPES, r)
    fast = r["outputs"][0]["data"]
    status, r = d.json("POST", "/v1/run", {**request, "options": {}})
    result("one without a precision neither, and has the same result",
           not {"precisionNote", "computedIn"} & set(r) and r["outputs"][0]["data"] == fast, r)
    body = d.call("POST", "/v1/run", json.dumps(request), {"Accept": "application/x-ndjson"})[2]
    events = [json.loads(line) for line in body.splitlines()]
    told = [e for e in events if "compiled" in e or "result" in e]
    result("a stream tells it with the executable and with the result",
           len(told) == 2 and all((e.get("compiled") or e["result"])["precisionNote"] == NONE
                                  for e in told), events)

    got = hlo("compile", path, "--precision", "fast")
    result.command("hlo compile", got, 0,
                   r"(?m)^precision +fast: this CPU has no instructions for bf16, all is computed "
                   r"in f32\ncomputed in +f32 2$")
    for name, address in (("HTTP", "http://%s:%d" % d.addr), ("gRPC", "grpc://" + d.grpc)):
        with hlod.connect(address) as client:
            for got in (client.compile(path, precision="fast"),
                        client.run(path, {"x": x}, precision="fast")):
                result("the Python client over %s: %s" % (name, type(got).__name__),
                       (got.precision_note, got.computed_in) == (NONE, {"f32": 2}), got.message)

def emulated(d):
    e = compile_(d, "fast")["executable"]
    result("where they are emulated it is told",
           "shows the values of one with instructions for bf16" in e.get("precisionNote", ""), e)
    with hlod.connect("http://%s:%d" % d.addr) as client:
        fast, plain = (client.run(path, {"x": x}, precision=p)["y"] for p in ("fast", ""))
    error = np.abs(fast - plain).max() / np.abs(plain).max()
    result("its values are those of bf16", 1e-5 < error < 0.02, error)

for scenario, env in ((without, {"HLOD_CPU_ISA": "avx2"}),
                      (emulated, {"HLOD_CPU_ISA": "avx2", "HLOD_CPU_BF16": "emulated"})):
    d = start(**env)
    try:
        scenario(d)
    finally:
        d.stop()
sys.exit(result.code())
