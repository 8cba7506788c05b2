#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ONNX external data through `hlo`: the same numbers as NumPy, whatever the layout of the data
files, also inside a node; what leaves the folder is refused.
Needs numpy and onnx.  Usage: external.py BUILD"""
import os, subprocess, sys, tempfile, time
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from harness import Daemon, Results

build = sys.argv[1]
result = Results()

def info(name, shape, t=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, t, shape)

rng = np.random.default_rng(7)
A, B, C = (rng.standard_normal(s).astype(np.float32) for s in ((64, 48), (48, 40), (40,)))

def build_model():
    """x @ A @ B + C, where C is the value of a Constant node."""
    nodes = [helper.make_node("MatMul", ["x", "A"], ["t"]),
             helper.make_node("MatMul", ["t", "B"], ["z"]),
             helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(C, "C")),
             helper.make_node("Add", ["z", "c"], ["y"])]
    graph = helper.make_graph(nodes, "external", [info("x", [3, 64])], [info("y", [3, 40])],
                              [numpy_helper.from_array(A, "A"), numpy_helper.from_array(B, "B")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

def external(t, location, offset=None, length=None):
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for k, v in (("location", location), ("offset", offset), ("length", length)):
        if v is not None:
            e = t.external_data.add()
            e.key, e.value = k, str(v)

work = tempfile.mkdtemp(prefix="hlod-external-")
d = Daemon(build + "/hlod", build + "/hlod-worker")
env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}
x = rng.standard_normal((3, 64)).astype(np.float32)
np.save(work + "/x.npy", x)
def hlo(model):
    out = work + "/y.npy"
    p = subprocess.run([build + "/hlo", "run", work + "/" + model, "-i", f"x=@{work}/x.npy", "-o",
                        out], env=env, capture_output=True, text=True, timeout=60)
    return p.returncode, p.stderr, np.load(out) if p.returncode == 0 else None
want = x @ A @ B + C
def same(name, model):
    rc, text, y = hlo(model)
    result(name, rc == 0 and np.allclose(y, want, rtol=1e-4, atol=1e-4), text)
def refused(name, change, message):
    m = build_model()
    external(m.graph.initializer[0], "all.bin", 0, A.nbytes)
    change(m.graph.initializer[0])
    onnx.save(m, work + "/bad.onnx")
    rc, text, _ = hlo("bad.onnx")
    result(name, rc != 0 and message in text and "'A'" in text, text)

try:
    onnx.save(build_model(), work + "/inline.onnx")
    same("inline", "inline.onnx")
    onnx.save(build_model(), work + "/one.onnx", save_as_external_data=True,
              all_tensors_to_one_file=True, location="one.data", size_threshold=0)
    same("one data file, as onnx writes it", "one.onnx")
    onnx.save(build_model(), work + "/many.onnx", save_as_external_data=True,
              all_tensors_to_one_file=False, size_threshold=0)
    same("a file a tensor", "many.onnx")
    os.mkdir(work + "/sub")
    with open(work + "/sub/c.bin", "wb") as f:
        f.write(b"pad" + C.tobytes())
    with open(work + "/all.bin", "wb") as f:
        f.write(A.tobytes() + b"\0" * 64 + B.tobytes())
    m = build_model()
    external(m.graph.initializer[0], "all.bin", None, A.nbytes)
    external(m.graph.initializer[1], "all.bin", A.nbytes + 64)
    external(m.graph.node[2].attribute[0].t, "sub/c.bin", 3)
    onnx.save(m, work + "/mixed.onnx")
    same("offsets, lengths left out, a Constant node", "mixed.onnx")
    def set_location(v):
        return lambda t: (t.ClearField("external_data"), external(t, v))
    refused("above the folder", set_location("../secret"), "outside")
    refused("an absolute path", set_location("/etc/hostname"), "outside")
    refused("a hidden climb", set_location("sub/../../secret"), "outside")
    refused("no such file", set_location("missing.bin"), "No such file")
    refused("beyond the end",
            lambda t: (t.ClearField("external_data"), external(t, "all.bin", 100000)),
            "beyond the end")
    refused("a length that is not the tensor's",
            lambda t: (t.ClearField("external_data"), external(t, "all.bin", 0, A.nbytes - 4)),
            "external data of %d bytes" % (A.nbytes - 4))
    refused("a bad offset", lambda t: (t.ClearField("external_data"), external(t, "all.bin", -4)),
            "unreadable")
    os.mkfifo(work + "/pipe.bin")
    refused("a pipe", set_location("pipe.bin"), "a pipe or a device")
    # Data of a node in a branch in a branch, as deep as protobuf reads (100 messages).
    g = helper.make_graph([helper.make_node("Constant", [], ["r0"], value=numpy_helper.from_array(
        C, "C"))], "b", [], [info("r0", [40])])
    external(g.node[0].attribute[0].t, "sub/c.bin", 3)
    for k in range(1, 30):
        e = helper.make_graph([helper.make_node("Identity", ["C0"], ["e%d" % k])], "e", [],
                              [info("e%d" % k, [40])])
        n = helper.make_node("If", ["on"], ["r%d" % k], then_branch=g, else_branch=e)
        g = helper.make_graph([n], "b", [], [info("r%d" % k, [40])])
    m = build_model()
    del m.graph.node[2]
    m.graph.node.insert(0, g.node[0])
    m.graph.node[-1].input[1] = "r29"
    m.graph.initializer.append(numpy_helper.from_array(np.array(True), "on"))
    m.graph.initializer.append(numpy_helper.from_array(C * 0, "C0"))
    onnx.save(m, work + "/deep.onnx")
    same("29 branches deep", "deep.onnx")
    status, r = d.json("POST", "/v1/executables", open(work + "/one.onnx", "rb").read(),
                       {"Content-Type": "application/onnx"})
    result("the server itself refuses it", status == 400 and "another file" in r["message"], r)
    W = rng.standard_normal((4500, 4000)).astype(np.float32)  # above what goes in one request
    g = helper.make_graph([helper.make_node("Gather", ["W", "x"], ["y"])], "large",
                          [info("x", [1], TensorProto.INT64)], [info("y", [1, 4000])],
                          [numpy_helper.from_array(W, "W")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
              work + "/large.onnx", save_as_external_data=True, location="large.data",
              size_threshold=0)
    def sent():
        text = d.call("GET", "/metrics")[2].decode()
        return next(float(line.split()[1]) for line in text.splitlines()
                    if line.startswith("hlod_upload_bytes_total"))
    def large():
        p = subprocess.run([build + "/hlo", "run", work + "/large.onnx", "-i", "x=1xs64=17", "-o",
                            work + "/row.npy"], env={**env, "XDG_CACHE_HOME": work + "/cache"},
                           capture_output=True, text=True, timeout=60)
        return p.returncode == 0 and (np.load(work + "/row.npy")[0] == W[17]).all(), p.stderr
    time.sleep(2.1)  # a file that is younger is not remembered
    before = sent()
    good, text = large()
    result("a large model is sent", good and sent() - before > W.nbytes, text)
    before = sent()
    good, text = large()
    result("again: nothing is sent", good and sent() == before, text)
    with open(work + "/large.data", "r+b") as f:
        f.seek(17 * 16000)
        f.write(W[3].tobytes())
    W[17] = W[3]
    good, text = large()
    result("changed: it is sent", good and sent() - before > W.nbytes, text)
    for n in range(0, 400, 7):  # damaged files are the server's to refuse; the tool does not crash
        text = open(work + "/one.onnx", "rb").read()
        open(work + "/cut.onnx", "wb").write(text[:len(text) * n // 400])
        rc, text, _ = hlo("cut.onnx")
        if rc < 0 or rc == 0 and n > 0:
            result(f"cut at {n}/400", False, f"{rc} {text}")
            break
    else:
        result("cut files", True)
finally:
    d.stop()
sys.exit(result.code())
