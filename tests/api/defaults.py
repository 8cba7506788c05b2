#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ONNX initializers that are inputs too are defaults since IR version 4: a run may bring other
values, over /v1/run and the Open Inference Protocol, as ONNX Runtime takes them.
Usage: defaults.py BUILD"""
import os, re, subprocess, sys
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

DEFAULTS = {"w": np.array([[2, 3, 4, 5]], np.float32), "b": np.arange(4, dtype=np.float32),
            "table": np.linspace(-1, 1, 1200, dtype=np.float32).reshape(300, 4),
            "shape": np.array([2, -1], np.int64)}  # the last decides a shape
OTHERS = {"w": np.array([[-1, 0.5, 2, 8]], np.float32), "b": np.full(4, 7, np.float32),
          "table": np.ones((300, 4), np.float32), "shape": np.array([3, 4], np.int64)}
LARGER = {"w": np.array([[1], [2], [-1]], np.float32), "table": np.ones((7, 4), np.float32),
          "b": np.full(1, 0.5, np.float32)}
CHOSEN = [(), ("w",), ("b",), ("table",), ("b", "w"), ("shape",), ("table", "shape", "w", "b")]


def model(ir_version):
    value = helper.make_tensor_value_info
    inputs = [value("x", TensorProto.FLOAT, ["n", 4])]
    inputs += [value(k, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.ndim)
               for k, v in DEFAULTS.items()]
    nodes = [helper.make_node("Mul", ["x", "w"], ["t"]), helper.make_node("Add", ["t", "b"], ["u"]),
             helper.make_node("ReduceSum", ["table", "axis"], ["s"]),
             helper.make_node("Add", ["u", "s"], ["v"]),
             helper.make_node("Reshape", ["v", "shape"], ["y"])]
    values = [numpy_helper.from_array(v, k) for k, v in DEFAULTS.items()]
    values.append(numpy_helper.from_array(np.array([0], np.int64), "axis"))
    graph = helper.make_graph(nodes, "g", inputs, [value("y", TensorProto.FLOAT, None)], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)],
                             ir_version=ir_version).SerializeToString()


def tensors(feeds):
    return [{"name": k, "datatype": "INT64" if v.dtype == np.int64 else "FP32",
             "shape": list(v.shape), "data": v.ravel().tolist()} for k, v in feeds.items()]


def ask(d, path, feeds, **more):
    return d.json("POST", path, {**more, "inputs": tensors(feeds)})


def check_values(d, source, digest):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(source, options)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for path, more in (("/v1/run", {"model": digest}), ("/v2/models/d/infer", {})):
        for names, other in [(names, OTHERS) for names in CHOSEN] + [(tuple(LARGER), LARGER)]:
            feeds = {"x": x, **{k: other[k] for k in names}}
            want = session.run(None, feeds)[0]
            status, got = ask(d, path, feeds, **more)
            out = got["outputs"][0] if status == 200 else {}
            sizes = " of other sizes" if other is LARGER else ""
            result(f"{path}, {', '.join(names) or 'all defaults'}{sizes}",
                   out.get("shape") == list(want.shape)
                   and np.allclose(out["data"], want.ravel(), rtol=1e-5), got)


def check_refusals(d, digest):
    x = np.zeros((1, 4), np.float32)
    for what, feeds in (("a shape that does not fit", {"x": x, "b": np.zeros(5, np.float32)}),
                        ("another rank", {"x": x, "b": np.zeros((1, 4), np.float32)}),
                        ("another type", {"x": x, "b": np.zeros(4, np.int64)}),
                        ("without the input", {"b": OTHERS["b"]}),
                        ("of no such name", {"x": x, "axis": np.zeros(1, np.int64)})):
        status, got = ask(d, "/v1/run", feeds, model=digest)
        result(f"refused: {what}", status == 400 and (
            "table f32[?,?]" in got["message"] or what != "of no such name"), got)
    shown = subprocess.run([sys.argv[1] + "/hlo", "--addr", "%s:%d" % d.addr, "show", digest],
                           stdout=subprocess.PIPE, universal_newlines=True).stdout
    result("hlo show tells them",
           re.search(r"\ndefaults +w f32\[\?,\?\]  usually 1x4\n +b f32\[\?\]  usually 4", shown),
           shown)
    made = d.json("POST", f"/v1/executables?model={digest}&shape=x=1x4")[1]["digest"]
    result("an executable, all defaults", ask(d, "/v1/run", {"x": x}, model=made)[0] == 200)
    status, got = ask(d, "/v1/run", {"x": x, "w": OTHERS["w"]}, model=made)
    result("an executable that was made for the defaults",
           status == 400 and got["reason"] == "MISSING_INPUT", got)


def check_names(d):
    """Two models of one program: an executable that replaces a default, or that takes tensors of a
    sequence, is shown with the names of the model that asks, not of the one it was made for."""
    def of(x, w, s, y):
        value = helper.make_tensor_value_info
        inputs = [value(x, TensorProto.FLOAT, [2, 4]), value(w, TensorProto.FLOAT, [1, 4]),
                  helper.make_tensor_sequence_value_info(s, TensorProto.FLOAT, [2, 4])]
        nodes = [helper.make_node("Mul", [x, w], ["t"]),
                 helper.make_node("ConcatFromSequence", [s], ["u"], axis=0),
                 helper.make_node("Concat", ["t", "u"], [y], axis=0)]
        graph = helper.make_graph(nodes, "g", inputs, [value(y, TensorProto.FLOAT, None)],
                                  [numpy_helper.from_array(DEFAULTS["w"], w)])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)],
                                 ir_version=8).SerializeToString()
    made = []
    for names in (("mine", "own", "list", "first"), ("yours", "other", "some", "second")):
        shapes = {names[0]: "2x4", names[1]: "1x4", names[2] + "%5B0%5D": "2x4"}
        query = "".join(f"&shape={k}={v}" for k, v in shapes.items())
        source = d.json("POST", "/v1/executables?" + query[1:], of(*names))[1]
        made.append(source["digest"])
        sig = source["executable"]["signature"]
        want = [names[0], names[2] + "[0]", names[1]], [names[3]]
        result(f"an executable is shown with the names of its model: {names[0]}",
               ([t["name"] for t in sig["inputs"]], [t["name"] for t in sig["outputs"]]) == want,
               sig)
    result("it is one executable", made[0] == made[1], made)


result = Results()
d = Daemon(sys.argv[1] + "/hlod", sys.argv[1] + "/hlod-worker")
try:
    source = model(8)
    status, made = d.json("POST", "/v1/executables", source)
    result("the model compiles", status == 200, made)
    result("its signature tells the defaults",
           [t["name"] for t in made["modelSignature"].get("defaults", [])] == list(DEFAULTS)
           and [t["name"] for t in made["modelSignature"]["inputs"]] == ["x"], made)
    d.json("POST", "/v1/models", {"name": "d", "model": made["sourceDigest"]})
    check_values(d, source, made["sourceDigest"])
    check_refusals(d, made["sourceDigest"])
    check_names(d)
    twice = onnx.load_model_from_string(model(8))
    twice.graph.input.append(twice.graph.input[1])
    made = d.json("POST", "/v1/executables", twice.SerializeToString())[1]
    result("a default that is listed twice is one",
           [t["name"] for t in made["modelSignature"]["defaults"]] == list(DEFAULTS), made)
    made = d.json("POST", "/v1/executables", model(3))[1]
    result("IR version 3 lists all initializers: no defaults",
           not made["modelSignature"].get("defaults"), made)
    status, got = ask(d, "/v1/run", {"x": np.zeros((1, 4), np.float32), "w": OTHERS["w"]},
                      model=made["sourceDigest"])
    result("IR version 3: refused, as ONNX Runtime", got.get("reason") == "UNKNOWN_INPUT", got)
finally:
    result("the daemon ends cleanly", d.stop() == 0)
sys.exit(result.code())
