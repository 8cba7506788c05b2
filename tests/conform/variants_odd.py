# SPDX-License-Identifier: Apache-2.0
"""Variants (onnx_variants.py) whose inputs hold infinities and NaN: activations behind products of few rows, labels of scores that are no numbers; and tensors without elements."""
import numpy as np

R = np.random.default_rng(17)
ODD = np.array([[1, 2, 3, np.inf], [1, 2, -np.inf, 1], [1, 2, 3, 4], [np.nan, 1, 1, 1], [1e30, 1, -1, 1]], np.float32)


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def behind_products(add):
    low, high = np.array(-1, np.float32), np.array(2, np.float32)
    steps = {"Sigmoid": [("Sigmoid", {})], "Tanh": [("Tanh", {})], "Clip": [("Clip", {}, "i2", "i3")], "HardSwish": [("HardSwish", {})], "Exp": [("Exp", {})],
             "LeakyRelu": [("LeakyRelu", {"alpha": 0.1})]}
    for name, after in steps.items():
        for rows in (1, 4, 5):
            for cols in (1, 3, 40):
                bounds = [low, high] if name == "Clip" else []
                add("odd %s of %dx4 by 4x%d" % (name, rows, cols), [("MatMul", {}, "i1")] + after, [ODD[:rows], f32(4, cols)] + bounds, constant=(1, 2, 3)[:1 + len(bounds)])


def labels(add):
    for k in (2, 3, 4):
        for post in ("NONE", "LOGISTIC"):
            add("odd LinearClassifier %d %s" % (k, post), "ai.onnx.ml.LinearClassifier", [ODD], dict(
                coefficients=f32(4 * k).tolist(), intercepts=f32(k).tolist(), classlabels_ints=list(range(5, 5 + k)), post_transform=post), 2)


def empty(add):
    none, x = np.zeros((0, 5), np.float32), f32(0, 3, 4, 4)
    add("odd Gather of nothing", "Gather", [none, np.zeros((0, 2), np.int64)])
    add("odd GatherElements of nothing", "GatherElements", [none, np.zeros((0, 5), np.int64)])
    add("odd GatherND of nothing", "GatherND", [none, np.zeros((0, 1), np.int64)])
    add("odd Resize of nothing", "Resize", [x, None, None, np.array([0, 3, 7, 6])], {"mode": "linear"}, constant=(3,), opset=18)


def families(add):
    for family in (behind_products, labels, empty):
        family(add)
