# SPDX-License-Identifier: Apache-2.0
"""The handwritten digits that scikit-learn brings (1,797 pictures of 8x8, UCI "Optical Recognition
of Handwritten Digits") as rows for training and rows held back, and an ONNX network of two
convolutions that has learnt nothing yet. Writes image.npy, label.npy, held_image.npy,
held_label.npy and digits.onnx.
   digits.py FOLDER"""
import glob
import gzip
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HELD = 360


def rows():
    """Pictures f32[n,1,8,8] in [0, 1] and labels, shuffled once."""
    path, = glob.glob(os.path.join(sys.prefix, "lib", "python3*", "site-packages", "sklearn",
                                   "datasets", "data", "digits.csv.gz"))
    all_of = np.loadtxt(gzip.open(path), delimiter=",", dtype=np.float32)
    all_of = all_of[np.random.RandomState(0).permutation(len(all_of))]
    return (all_of[:, :-1] / 16).reshape(-1, 1, 8, 8), all_of[:, -1].astype(np.int64)


def weights():
    r = np.random.RandomState(1)

    def he(*shape):
        return (r.randn(*shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

    return {"conv1.weight": he(32, 1, 3, 3), "conv1.bias": np.zeros(32, np.float32),
            "conv2.weight": he(64, 32, 3, 3), "conv2.bias": np.zeros(64, np.float32),
            "hidden.weight": he(128, 1024), "hidden.bias": np.zeros(128, np.float32),
            "scores.weight": he(10, 128), "scores.bias": np.zeros(10, np.float32)}


def model():
    def node(op, ins, out, **attrs):
        return helper.make_node(op, ins.split(), [out], **attrs)
    pads = dict(kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    nodes = [node("Conv", "image conv1.weight conv1.bias", "a", **pads), node("Relu", "a", "b"),
             node("Conv", "b conv2.weight conv2.bias", "c", **pads), node("Relu", "c", "d"),
             node("MaxPool", "d", "e", kernel_shape=[2, 2], strides=[2, 2]),
             node("Flatten", "e", "f"),
             node("Gemm", "f hidden.weight hidden.bias", "g", transB=1), node("Relu", "g", "h"),
             node("Gemm", "h scores.weight scores.bias", "scores", transB=1)]
    value = helper.make_tensor_value_info
    g = helper.make_graph(nodes, "digits", [value("image", TensorProto.FLOAT, ["N", 1, 8, 8])],
                          [value("scores", TensorProto.FLOAT, ["N", 10])],
                          [numpy_helper.from_array(w, n) for n, w in weights().items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write(folder):
    x, y = rows()
    for name, v in (("image", x[:-HELD]), ("label", y[:-HELD]), ("held_image", x[-HELD:]),
                    ("held_label", y[-HELD:])):
        np.save(os.path.join(folder, name + ".npy"), v)
    onnx.save(model(), os.path.join(folder, "digits.onnx"))


if __name__ == "__main__":
    write(sys.argv[1])
