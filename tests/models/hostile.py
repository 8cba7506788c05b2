# SPDX-License-Identifier: Apache-2.0
"""Bad input through the daemon: each is refused with a 4xx that names the place, and the next
request is served.

    hostile.py BUILD
"""
import os
import signal
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import daemon  # noqa: E402
import zoo  # noqa: E402

failures = 0


def report(ok, name, text=""):
    global failures
    failures += not ok
    print("%s %s: %s" % ("PASS" if ok else "FAIL", name, str(text)[:160]), flush=True)


def varint(n):
    out = b""
    while n >= 128:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def refused(d, name, body, words=(), path="/v1/executables", **kw):
    try:
        d.json("POST", path, body, {"Content-Type": "application/onnx"})
        report(False, name, "accepted")
    except daemon.Refused as e:
        message = " ".join([e.body.get("message", "")] + e.body.get("details", []))
        report(400 <= e.code < 500 and all(w in message for w in words), name,
               "%d %s" % (e.code, message))


def graph(nodes, inputs=None, outputs=None, inits=()):
    v = helper.make_tensor_value_info
    g = helper.make_graph(nodes, "g", inputs or [v("x", TensorProto.FLOAT, [2, 3])],
                          outputs or [v("y", TensorProto.FLOAT, None)], list(inits))
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)],
                             ir_version=8).SerializeToString()


def main():
    node = helper.make_node
    with daemon.Daemon(sys.argv[1]) as d:
        small = zoo.ensure("build/models", "mlp")
        with open(small, "rb") as f:
            raw = f.read()
        bad = 0
        cuts = list(range(1, 64)) + list(range(64, len(raw), max(1024, len(raw) // 60)))
        for n in cuts:
            try:
                d.json("POST", "/v1/executables?shape=x=1x784", raw[:n],
                       {"Content-Type": "application/onnx"})
                bad += 1
            except daemon.Refused as e:
                bad += not 400 <= e.code < 500 or not e.body.get("message")
        report(bad == 0, "truncation at %d places" % len(cuts), "%d not refused well" % bad)
        nest = b""
        for _ in range(2000):
            nest = b"\x32" + varint(len(nest)) + nest if len(nest) < 100000 else nest
        deep = b"\x08\x08\x3a" + varint(len(nest)) + nest
        refused(d, "deep nesting", deep)
        refused(d, "length field of 2.2 GB", b"\x08\x08\x3a" + varint(2200000000) + b"x" * 100,
                ["byte"])
        big = onnx.TensorProto(name="w", data_type=1, dims=[2**40, 2**40])
        refused(d, "dimension product overflows",
                graph([node("Add", ["x", "w"], ["y"])], inits=[big]), ["w"])
        refused(d, "unknown operators, all of them",
                graph([node("Frobnicate", ["x"], ["a"], name="first"),
                       node("Twiddle", ["a"], ["y"], name="second")]),
                ["first", "second", "2 unsupported"])
        refused(d, "cycle",
                graph([node("Relu", ["b"], ["a"], name="n1"), node("Relu", ["a"], ["b"], name="n2"),
                       node("Add", ["x", "a"], ["y"])]), ["cycle"])
        refused(d, "undefined input", graph([node("Relu", ["nowhere"], ["y"], name="n1")]),
                ["n1", "nowhere"])
        refused(d, "shapes that do not fit", graph([node("MatMul", ["x", "x"], ["y"], name="mm")]),
                ["mm"])
        four = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 4, 4])
        for op in ("DepthToSpace", "SpaceToDepth"):
            for size in (0, -1, 1 << 32, 1 << 33, 1 << 62):
                refused(d, "%s by %d" % (op, size),
                        graph([node(op, ["x"], ["y"], blocksize=size)], [four]), ["blocksize"])
        line = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 4])
        refused(d, "padding beyond all sizes, with positions",
                graph([node("MaxPool", ["x"], ["y", "at"], kernel_shape=[2], pads=[1 << 62, 0])],
                      [line]), ["pad"])
        refused(d, "not a model", b"hello world, this is no model at all")
        c = d.compile(small, {"x": (1, 784)})
        for name, arrays, words in (("wrong rank", {"x": np.zeros((784,), np.float32)}, ["rank"]),
                                    ("wrong dtype", {"x": np.zeros((1, 784), np.float64)}, ["x"]),
                                    ("missing input", {}, []),
                                    ("unknown input", {"z": np.zeros((1, 784), np.float32)}, [])):
            try:
                d.run(c["sourceDigest"], arrays)
                report(False, name, "accepted")
            except daemon.Refused as e:
                report(e.code == 400 and all(w in e.body["message"] for w in words), name, e)
        code, headers, _ = d.raw("PUT", "/v1/run")
        report(code == 405 and "allow" in headers, "wrong method", code)
        code, _, _ = d.raw("GET", "/healthz", headers={"X-Large": "x" * 200000})
        report(code in (400, 413, 431), "huge header", code)
        code, _, _ = d.raw("POST", "/v1/run", b"0\r\n\r\n",
                           {"Content-Length": "5", "Transfer-Encoding": "chunked"})
        report(code == 400, "Content-Length with Transfer-Encoding", code)
        inputs = zoo.sample_inputs("mlp", 1)
        d.run(c["sourceDigest"], inputs)
        pid = d.json("GET", "/v1/devices")["devices"][0]["workerPid"]
        os.kill(pid, signal.SIGKILL)
        end, served = time.monotonic() + 60, False
        while not served and time.monotonic() < end:
            try:
                d.run(c["sourceDigest"], inputs)
                served = True
            except daemon.Refused as e:
                if e.code != 503:
                    break
                time.sleep(0.02)
        report(served, "a killed worker is replaced", "not served again")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
