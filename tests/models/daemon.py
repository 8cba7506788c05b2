# SPDX-License-Identifier: Apache-2.0
"""A daemon for tests: started on a free port with a data folder of its own, stopped by its pid. Standard library and NumPy."""
import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time

import numpy as np

NAMES = {"float32": "FP32", "float64": "FP64", "float16": "FP16", "int64": "INT64", "int32": "INT32", "int16": "INT16", "int8": "INT8",
         "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "bool": "BOOL"}
DTYPES = {v: np.dtype(k) for k, v in NAMES.items()}


class Refused(Exception):
    """An HTTP error: .code, .body (parsed)."""

    def __init__(self, code, body):
        super().__init__("%d %s" % (code, body.get("message", body)))
        self.code, self.body = code, body


class Daemon:
    def __init__(self, build, data=None, args=(), env=None, ready=True):
        self.dir = tempfile.mkdtemp(prefix="hlod-models-")
        self.data = data or os.path.join(self.dir, "data")
        port_file = os.path.join(self.dir, "port")
        self.log = open(os.path.join(self.dir, "log"), "w")
        self.p = subprocess.Popen([os.path.join(build, "hlod"), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--port-file", port_file, "--data", self.data, *args], stderr=self.log, env=env)
        end = time.monotonic() + 20
        while not (os.path.exists(port_file) and os.path.getsize(port_file)):
            if self.p.poll() is not None or time.monotonic() > end:
                raise SystemExit("the daemon did not start: " + open(self.log.name).read())
            time.sleep(0.02)
        host, port = open(port_file).read().strip().rsplit(":", 1)
        self.addr = (host, int(port))
        while ready and self.raw("GET", "/readyz")[0] != 200:
            time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.stop()

    def stop(self):
        if self.p.poll() is None:
            self.p.terminate()
            self.p.wait(20)
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def raw(self, method, path, body=None, headers=None):
        c = http.client.HTTPConnection(*self.addr, timeout=600)
        try:
            c.request(method, path, body, headers or {})
            r = c.getresponse()
            return r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read()
        finally:
            c.close()

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
        q = ["shape=%s=%s" % (n, "x".join(map(str, s))) for n, s in shapes.items()] + ["%s=%s" % kv for kv in query.items()]
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
        head = json.dumps({"model": model, "options": options, "inputs": [
            {"name": n, "datatype": NAMES[str(a.dtype)], "shape": list(a.shape), "parameters": {"binary_data_size": a.nbytes}} for n, a in arrays.items()]}).encode()
        body = head + b"".join(a.tobytes() for a in arrays.values())
        code, h, reply = self.raw("POST", "/v1/run", body, {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream", "Accept": "application/octet-stream"})
        if code >= 300:
            raise Refused(code, json.loads(reply))
        n = int(h["inference-header-content-length"])
        info, at, out = json.loads(reply[:n]), n, {}
        for o in info["outputs"]:
            size = o["parameters"]["binary_data_size"]
            out[o["name"]] = np.frombuffer(reply[at:at + size], DTYPES[o["datatype"]]).reshape(o["shape"])
            at += size
        return out, info
