# SPDX-License-Identifier: Apache-2.0
"""The zoo's generated networks: one function a family, each in f32, f16, bf16 and int8, written as
exporters write them; random weights.

rows(small) gives (name, numbers, make); make(folder) writes the file where it is not there yet and
gives (path, rules of its inputs, twin or None). The twin of an f16 or bf16 network is the same in
f32 with the same weights. int8 are ONNX Runtime's own quantisers: `qdq` static with seeded
calibration, `dyn` dynamic.
"""
import hashlib
import logging
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import builder  # noqa: E402
import networks  # noqa: E402

# part of the files' names
VERSION = hashlib.sha256(b"".join(open(m.__file__, "rb").read()
                                  for m in (builder, networks))).hexdigest()[:8]
SMALL = {("mlp", "f32"), ("yolo_neck", "f32"), ("decoder_kv", "f32"), ("decoder_kv", "f16"),
         ("decoder_fixed", "f32"), ("gru", "f32"), ("swin", "f32"), ("diffusion", "f16"),
         ("gan", "f32"), ("wavenet", "f32"), ("vit", "qdq"), ("vit", "dyn"), ("convnext", "bf16"),
         ("crnn", "f32"), ("trees", "f32"), ("srnet", "qdq"), ("detector", "f32")}


def network(name, numbers, tiny, rounded=""):
    net = builder.Net(name, numbers, tiny, rounded,
                      opset=22 if numbers == "bf16" else getattr(networks, name).opset)
    getattr(networks, name)(net)
    return net


class Calibration:
    """Seeded inputs by the rules; what quantize_static asks."""

    def __init__(self, net):
        import models  # here: it imports this module
        r = {i.name: models.fill(Declared(i), net.rules[i.name], 77) for i in net.ins}
        self.left = [r] + [{n: (a * s).astype(a.dtype) if a.dtype == np.float32 else a
                            for n, a in r.items()}
                           for s in (0.5, 1.1)]

    def get_next(self):
        return self.left.pop() if self.left else None


class Declared:
    """A value info as ONNX Runtime's sessions describe inputs."""

    def __init__(self, info):
        t = info.type.tensor_type
        self.name, self.type = info.name, "tensor(%s)" % {
            TensorProto.FLOAT: "float", TensorProto.INT64: "int64", TensorProto.INT32: "int32",
            TensorProto.BOOL: "bool"}[t.elem_type]
        self.shape = [d.dim_value for d in t.shape.dim]


def quantised(net, path, how):
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    logging.disable(logging.WARNING)
    plain = path + ".f32"
    onnx.save(net.model(), plain)
    if how == "dyn":
        quantize_dynamic(plain, path, weight_type=QuantType.QInt8, per_channel=True)
    else:
        quantize_static(plain, path, Calibration(net), quant_format=QuantFormat.QDQ,
                        per_channel=True, activation_type=QuantType.QUInt8,
                        weight_type=QuantType.QInt8)
    os.remove(plain)


def row(name, kind, tiny):
    def make(folder):
        base = os.path.join(folder, "%s%s-%s" % (name, "-tiny" if tiny else "", VERSION))
        path, twin = "%s-%s.onnx" % (base, kind), "%s-%s-twin.onnx" % (base, kind) if kind in (
            "f16", "bf16") else None
        os.makedirs(folder, exist_ok=True)
        net = network(name, "f32" if kind in ("qdq", "dyn") else kind, tiny)
        if not os.path.exists(path):
            new = path + ".%d" % os.getpid()
            if kind in ("qdq", "dyn"):
                quantised(net, new, kind)
            else:
                onnx.save(net.model(), new)
            os.rename(new, path)
        if twin and not os.path.exists(twin):
            onnx.save(network(name, "f32", tiny, rounded=kind).model(), twin)
        return path, net.rules, twin
    return "%s-%s" % (name, kind), "int8" if kind in ("qdq", "dyn") else kind, make


def rows(small=False):
    for f in networks.ALL:
        for kind in f.kinds:
            if not small or (f.__name__, kind) in SMALL:
                yield row(f.__name__, kind, small)
