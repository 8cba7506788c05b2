# SPDX-License-Identifier: Apache-2.0
"""What tests of exported models have in common."""
import json
import os
import subprocess

import ml_dtypes
import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))

# Arrays as packages take and give them.
TYPES = {"pred": np.bool_, "bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32,
         "f64": np.float64, **{k + str(n): np.dtype("%s%d" % ("int" if k == "s" else "uint", n))
                               for k in "su" for n in (8, 16, 32, 64)}}


def bindings(path, inputs):
    """--bind of every symbolic size, from the shapes of the inputs."""
    sizes = {}
    for v in onnx.load(path, load_external_data=False).graph.input:
        for d, n in zip(v.type.tensor_type.shape.dim, np.shape(inputs.get(v.name, ()))):
            if d.dim_param:
                sizes[d.dim_param] = n
    return ["--bind", ",".join("%s=%d" % s for s in sizes.items())] if sizes else []


class Refused(Exception):
    pass


def command(*argv):
    """Its end. Node may hang when it exits while WebAssembly is still compiled in the background
    (nodejs/node#54918): it gets a second try."""
    for last in (False, True):
        try:
            return subprocess.run(argv, capture_output=True, text=True, timeout=240)
        except subprocess.TimeoutExpired as e:
            if last or argv[0] != "node":
                return subprocess.CompletedProcess(argv, 124, "", str(e))
            print("once more: %s" % e, flush=True)


class Node:
    """Exports of one model, and their runs."""

    def __init__(self, build, path, folder, options=()):
        self.folder, self.package = folder, os.path.join(folder, "package")
        done = command(os.path.join(build, "hlo"), "export", path, "--web", self.package, *options)
        if "UNIMPLEMENTED" in done.stderr:
            raise Refused(done.stderr.strip())
        if done.returncode:
            raise RuntimeError("hlo export: %d: %s" % (done.returncode, done.stderr.strip()))
        self.sizes = dict(w.split("=") for w in done.stdout.split())

    def run(self, runs=0):
        done = command("node", os.path.join(HERE, "package.mjs"), self.package, self.folder,
                       str(runs))
        if done.returncode:
            raise RuntimeError("node: " + done.stderr.strip()[-600:])
        info = json.loads(done.stdout)
        out = {}
        for k, v in enumerate(info["outputs"]):
            with open(os.path.join(self.folder, "out%d.bin" % k), "rb") as f:
                out[v["name"]] = np.frombuffer(f.read(), TYPES[v["dtype"]]).reshape(v["shape"])
        return out, info

    def tensors(self, arrays):
        for k, a in enumerate(arrays):
            np.ascontiguousarray(a).tofile(os.path.join(self.folder, "in%d.bin" % k))
