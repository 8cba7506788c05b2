# SPDX-License-Identifier: Apache-2.0
"""A daemon for tests: started on a free port with a data folder of its own, stopped by its pid.
Standard library and NumPy."""
import json
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness

NAMES = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "int64": "INT64",
         "int32": "INT32", "int16": "INT16", "int8": "INT8", "uint8": "UINT8", "uint16": "UINT16",
         "uint32": "UINT32", "uint64": "UINT64", "bool": "BOOL", "object": "BYTES"}
DTYPES = {v: np.dtype(k) for k, v in NAMES.items()}


def to_wire(a):
    """Texts, in an array of objects, travel as their lengths and their UTF-8."""
    if a.dtype != object:
        return a.tobytes()
    return b"".join(len(t).to_bytes(4, "little") + t for t in (x.encode() for x in a.reshape(-1)))


def from_wire(datatype, data, shape):
    if datatype != "BYTES":
        return np.frombuffer(data, DTYPES[datatype]).reshape(shape)
    texts, at = [], 0
    while at < len(data):
        n = int.from_bytes(data[at:at + 4], "little")
        texts.append(data[at + 4:at + 4 + n].decode())
        at += 4 + n
    a = np.empty(len(texts), object)
    a[:] = texts
    return a.reshape(shape)


class Refused(Exception):
    """An HTTP error: .code, .body (parsed)."""

    def __init__(self, code, body):
        super().__init__("%d %s" % (code, body.get("message", body)))
        self.code, self.body = code, body


class Daemon(harness.Daemon):
    """`data`: the daemon's data folder, where it is to outlive it."""

    def __init__(self, build, data=None, args=(), env=None, ready=True):
        more = ["--data", data] if data else []
        super().__init__(os.path.join(build, "hlod"), os.path.join(build, "hlod-worker"),
                         args=[*args, *more], ready=ready, env=env)
        self.data = data or os.path.join(self.dir, "data")

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.stop()

    def stop(self):
        if self.p.poll() is None:
            self.stop_keep()
        self.log.close()
        self.clean()

    def raw(self, method, path, body=None, headers=None):
        return self.call(method, path, body, headers or {}, timeout=600)

    def json(self, method, path, body=None, headers=None):
        code, _, text = self.raw(method, path, body, headers)
        try:
            value = json.loads(text)
        except ValueError:
            value = {"message": text[:200].decode("latin1")}
        if code >= 300:
            raise Refused(code, value)
        return value

    def compile(self, model, shapes, **query):
        """model: path or bytes."""
        q = ["shape=%s=%s" % (n, "x".join(map(str, s)))
             for n, s in shapes.items()] + ["%s=%s" % kv for kv in query.items()]
        body = open(model, "rb") if isinstance(model, str) else model
        headers = {"Content-Type": "application/onnx"}
        if isinstance(model, str):
            headers["Content-Length"] = str(os.path.getsize(model))
        try:
            return self.json("POST", "/v1/executables?" + "&".join(q), body, headers)
        finally:
            if isinstance(model, str):
                body.close()

    def run(self, model, inputs, **options):
        """inputs: name -> array. Gives (name -> array, reply)."""
        arrays = {n: np.asarray(a, order="C") for n, a in inputs.items()}
        head = json.dumps({"model": model, "options": options,
                           "inputs": [{"name": n, "datatype": NAMES[str(a.dtype)],
                                       "shape": list(a.shape),
                                       "parameters": {"binary_data_size": len(to_wire(a))}}
                                      for n, a in arrays.items()]}).encode()
        body = head + b"".join(to_wire(a) for a in arrays.values())
        code, h, reply = self.raw("POST", "/v1/run", body,
                                  {"Inference-Header-Content-Length": str(len(head)),
                                   "Content-Type": "application/octet-stream",
                                   "Accept": "application/octet-stream"})
        if code >= 300:
            raise Refused(code, json.loads(reply))
        n = int(h["inference-header-content-length"])
        info, at, out = json.loads(reply[:n]), n, {}
        for o in info["outputs"]:
            size = o["parameters"]["binary_data_size"]
            out[o["name"]] = from_wire(o["datatype"], reply[at:at + size], o["shape"])
            at += size
        return out, info
