# SPDX-License-Identifier: Apache-2.0
"""ONNX operators in settings that ONNX's own cases leave out, against ONNX Runtime on the same
one-node model and seeded input.

    onnx_variants.py BUILD [NAME...]      NAME: only variants whose name holds it

Prints PASS and FAIL lines. A variant is a name, an operator, its attributes, input arrays (None =
left out) and the number of outputs; inputs named in `constant` become initializers, because they
decide shapes. Instead of an operator a variant may name a chain: a list of (operator, attributes),
each on the result of the one before; further operands of a step are names of inputs.
Outputs may be a list of names, an empty one left out. Operators of other domains are named
"domain.Operator" (variants_contrib.py, variants_ml.py); values that are not finite are in
variants_odd.py, convolutions of each channel alone in variants_depthwise.py.
"""
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import variants_contrib  # noqa: E402
import variants_ml  # noqa: E402
import variants_depthwise  # noqa: E402
import variants_odd  # noqa: E402

R = np.random.default_rng(7)
VARIANTS = []


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def add(name, op, inputs, attrs=None, outputs=1, constant=(), opset=21, bound=1e-4, near=0):
    VARIANTS.append((name, op, inputs, attrs or {}, outputs, constant, opset, bound, near))


def rnn():
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for direction, n in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
            for steps, lens in ((5, True), (5, False), (40, True), (40, False)):
                b, i, h = 3, 4, 6
                x = [f32(steps, b, i), f32(n, gates * h, i), f32(n, gates * h, h),
                     f32(n, 2 * gates * h)]
                x += [np.array([steps, 2, 4], np.int32) if lens else None, f32(n, b, h)]
                attrs = {"hidden_size": h, "direction": direction}
                if op == "LSTM":
                    x += [f32(n, b, h), f32(n, 3 * h)]
                if op == "GRU" and lens:
                    attrs["linear_before_reset"] = 1
                add("%s %s, %d steps%s" % (op, direction, steps, ", lengths" if lens else ""), op,
                    x, attrs, 3 if op == "LSTM" else 2, opset=14)
    for op, gates in (("RNN", 1), ("GRU", 3), ("LSTM", 4)):
        for steps in (5, 40):
            x = [f32(steps, 3, 4), f32(2, gates * 6, 4), f32(2, gates * 6, 6), None,
                 np.array([0, steps, 0], np.int32), f32(2, 3, 6)]
            add("%s of sequences without a step, %d" % (op, steps), op,
                x + [f32(2, 3, 6)] * (op == "LSTM"),
                {"hidden_size": 6, "direction": "bidirectional"}, 3 if op == "LSTM" else 2,
                opset=14)
    x = [f32(6, 2, 3), f32(1, 20, 3), f32(1, 20, 5), f32(1, 40)]
    add("LSTM clip, activations", "LSTM", x,
        {"hidden_size": 5, "clip": 0.4, "activations": ["HardSigmoid", "Softsign", "Elu"],
         "activation_alpha": [0.3, 0.7], "activation_beta": [0.4]}, 3, opset=14)
    add("LSTM activations in other letters", "LSTM", x,
        {"hidden_size": 5, "activations": ["HARDSIGMOID", "tanh", "sOFTSIGN"],
         "activation_alpha": [0.3], "activation_beta": [0.4]}, 3, opset=14)
    add("GRU activations in other letters", "GRU", [x[0]] + [v[:, :n] for v, n in
                                                            zip(x[1:], (15, 15, 30))],
        {"hidden_size": 5, "activations": ["sigmoid", "TANH"]}, 2, opset=14)
    add("LSTM input_forget", "LSTM", x, {"hidden_size": 5, "input_forget": 1}, 3, opset=14)


def image():
    x = f32(2, 3, 7, 9)
    for mode in ("nearest", "linear", "cubic"):
        for way in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            # With align_corners, smaller sizes that are not whole are where ONNX and ONNX Runtime
            # part ways.
            for scale in (((1, 1, 1.7, 2.3), (1, 1, 2, 3), (1, 1, 3 / 7, 1 / 3))
                          if way == "align_corners"
                          else ((1, 1, 1.7, 2.3), (1, 1, 0.6, 0.45))):
                attrs = {"mode": mode, "coordinate_transformation_mode": way}
                if mode == "nearest":
                    attrs["nearest_mode"] = "floor"
                add("Resize %s %s %.2f %.2f" % ((mode, way) + scale[2:]), "Resize",
                    [x, None, np.array(scale, np.float32)], attrs, constant=(2,), opset=18)
        for scale in ((1.7, 2.3), (0.6, 0.45), (2, 1 / 3)):
            add("Resize %s of a region by %.2f %.2f" % ((mode,) + scale), "Resize",
                [x, np.array((0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9), np.float32),
                 np.array((1, 1) + scale, np.float32)],
                {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize",
                 "nearest_mode": "floor"}, constant=(1, 2), opset=18)
    for mode in ("linear", "cubic"):  # whole factors: the same taps for each element
        for way in ("half_pixel", "asymmetric", "pytorch_half_pixel"):
            add("Resize %s %s by 2 and 4" % (mode, way), "Resize",
                [x, None, np.array((1, 1, 2, 4), np.float32)],
                {"mode": mode, "coordinate_transformation_mode": way}, constant=(2,), opset=18)
        add("Resize %s by 3 and 8 from one" % mode, "Resize",
            [f32(2, 3, 5, 1), None, np.array((1, 1, 3, 8), np.float32)], {"mode": mode},
            constant=(2,), opset=18)
    add("Resize cubic by 16, outside excluded", "Resize",
        [f32(2, 3, 2, 5), None, np.array((1, 1, 16, 2), np.float32)],
        {"mode": "cubic", "exclude_outside": 1}, constant=(2,), opset=18)
    add("Resize linear by 2 beside infinity", "Resize",
        [np.array([[[[1, 2, np.inf, 3, 4], [5, 6, 7, 8, 9]]]], np.float32), None,
         np.array((1, 1, 2, 2), np.float32)], {"mode": "linear"}, constant=(2,), opset=18)
    for mode in ("linear", "cubic"):
        add("Resize %s, antialias" % mode, "Resize", [x, None, None, np.array([2, 3, 4, 4])],
            {"mode": mode, "antialias": 1, "exclude_outside": 1}, constant=(3,), opset=18)
        # Rounded after each axis; of sizes without sums halfway between two integers, which ONNX
        # Runtime's weights of 22 bits put on either side.
        for dtype in (np.uint8, np.int32):
            for size in ((9, 13),) if mode == "linear" else ((3, 4), (12, 5)):
                whole = (np.abs(f32(2, 3, 7, 9)) * 90).clip(0, 255).astype(dtype)
                add("Resize %s, antialias, %s to %dx%d" % ((mode, np.dtype(dtype).name) + size),
                    "Resize", [whole, None, None, np.array((2, 3) + size)],
                    {"mode": mode, "antialias": 1}, constant=(3,), opset=18)
    add("Resize axes, ratio kept", "Resize", [x, None, None, np.array([9, 9])],
        {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}, constant=(3,),
        opset=18)
    for scale in ((1, 1, 0.6, 0.6), (1, 1, 0.7, 2), (1, 1, 1.5, 0.3)):
        add("Resize nearest of opset 10, %g and %g" % scale[2:], "Resize",
            [x, np.array(scale, np.float32)], {"mode": "nearest"}, constant=(1,), opset=10)
    add("Resize cubic to one", "Resize", [x, None, None, np.array([2, 3, 1, 4])],
        {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}, constant=(3,),
        opset=19)
    grid = (R.random((2, 5, 4, 2)).astype(np.float32) * 2.6 - 1.3).astype(np.float32)
    for mode in ("linear", "nearest", "cubic"):
        for pad in ("zeros", "border", "reflection"):
            for corners in (0, 1):
                add("GridSample %s %s %d" % (mode, pad, corners), "GridSample", [x, grid],
                    {"mode": mode, "padding_mode": pad, "align_corners": corners}, opset=20)
    rois = np.array([[0, 0, 4, 4], [1.5, 2, 8, 6.5], [-1, -1, 3, 9]], np.float32)
    for mode in "AVG", "Max":
        add("RoiAlign %s in other letters" % mode, "RoiAlign", [x, rois, np.array([0, 1, 1])],
            {"mode": mode, "output_height": 3, "output_width": 2, "sampling_ratio": 2}, opset=16)
    for mode, word in ("linear", ""), ("linear", "nothing"), ("cubic", "FLOOR"), ("nearest", ""):
        for scale in (1, 1, 1.7, 2.3), (1, 1, 0.6, 0.4):
            add("Resize %s rounds by '%s', %s" % (mode, word, scale), "Resize",
                [x, None, np.array(scale, np.float32)], {"mode": mode, "nearest_mode": word},
                constant=(2,), opset=13)
    for mode in ("avg", "max"):
        for way in ("half_pixel", "output_half_pixel"):
            add("RoiAlign %s %s" % (mode, way), "RoiAlign", [x, rois, np.array([0, 1, 1])],
                {"mode": mode, "coordinate_transformation_mode": way, "output_height": 3,
                 "output_width": 2, "sampling_ratio": 2, "spatial_scale": 0.9}, opset=16)
            # ratio 0: samples by the region's size, none of an empty one
            far = np.array([[0, 0, 30, 4], [5, 5, 5, 5], [7, 9, 3, 8], [-4, 2, 9, 60]], np.float32)
            wide = np.array([[-3000, 2, 9000, 4], [-507, -400, 603, 700], [1, 2, 3, 4000],
                             [-2000, -2000, -3, -3], [20, 1, 4000, 5]], np.float32)
            add("RoiAlign beyond the image %s %s" % (mode, way), "RoiAlign",
                [x, wide, np.array([0, 1, 1, 0, 1])],
                {"mode": mode, "coordinate_transformation_mode": way, "output_height": 3,
                 "output_width": 2, "spatial_scale": 0.3}, opset=16)
            add("RoiAlign by size %s %s" % (mode, way), "RoiAlign",
                [x, far, np.array([0, 1, 1, 0])],
                {"mode": mode, "coordinate_transformation_mode": way, "output_height": 3,
                 "output_width": 2, "spatial_scale": 0.9}, opset=16)
    corners = R.random((2, 8, 2)).astype(np.float32)
    boxes, scores = np.concatenate([corners, corners + R.random((2, 8, 2)).astype(np.float32)],
                                   2), R.random((2, 2, 8)).astype(np.float32)
    for center, most, over, least in ((0, 3, 0.3, 0.4), (1, 10, 0.5, 0.0), (0, 0, 0.5, 0.2)):
        add("NonMaxSuppression %d %d %g %g" % (center, most, over, least), "NonMaxSuppression",
            [boxes, scores, np.array([most]), np.array([over], np.float32),
             np.array([least], np.float32)], {"center_point_box": center}, constant=(2, 3, 4),
            opset=11)
    # many ties, NaN and infinite scores, swapped corners, negative widths, more picked than a
    # vector holds
    corners = (R.random((3, 100, 2)) * 4).astype(np.float32)
    boxes = np.concatenate([corners, corners + R.random((3, 100, 2)).astype(np.float32) - 0.2], 2)
    scores = (np.round(R.random((3, 4, 100)) * 20) / 20).astype(np.float32)
    scores[0, 0, ::7], scores[1, 2, 5], scores[2, 1, 3] = np.nan, np.inf, -np.inf
    for center, most, over, least in ((0, 40, 0.2, 0.3), (1, 60, 0.1, 0.0), (0, 5, 0.0, 0.9),
                                      (1, 100, 0.6, 2.0)):
        add("NonMaxSuppression, ties %d %d %g %g" % (center, most, over, least),
            "NonMaxSuppression", [boxes, scores, np.array([most]), np.array([over], np.float32),
                                  np.array([least], np.float32)], {"center_point_box": center},
            constant=(2, 3, 4), opset=11)
    # bins of whole sizes, which a rounded reciprocal makes a little larger
    big = f32(1, 2, 64, 64)
    for out in 7, 14, 15:
        whole = np.array([[0, 0, out * k, out * k] for k in range(1, 12)], np.float32)
        add("RoiAlign, %d bins of whole sizes" % out, "RoiAlign",
            [big, whole, np.zeros(11, np.int64)],
            {"coordinate_transformation_mode": "output_half_pixel", "output_height": out,
             "output_width": out}, opset=16)
        add("MaxRoiPool, %d bins of whole sizes" % out, "MaxRoiPool",
            [big, np.concatenate([np.zeros((11, 1), np.float32), whole - [0, 0, 1, 1]],
                                 1).astype(np.float32)], {"pooled_shape": [out, out]}, opset=16)
    add("MaxRoiPool", "MaxRoiPool", [x, np.array([[0, 0, 0, 5, 5], [1, 1, 2, 8, 6]], np.float32)],
        {"pooled_shape": [2, 3]}, opset=16)


def pools():
    x = f32(2, 3, 9, 8)
    for name, attrs in (("plain", {}), ("pads", {"pads": [1, 1, 1, 0]}),
                        ("ceil", {"strides": [2, 3], "ceil_mode": 1}),
                        ("dilated", {"dilations": [2, 1], "pads": [1, 1, 1, 1]}),
                        ("same", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
                        ("lower", {"auto_pad": "SAME_LOWER", "strides": [2, 2]})):
        a = dict(attrs, kernel_shape=[3, 2])
        add("MaxPool with indices, " + name, "MaxPool", [x], a, 2, opset=19)
        if name != "dilated":
            for inside in (0, 1):
                add("AveragePool %s %d" % (name, inside), "AveragePool", [x],
                    dict(a, count_include_pad=inside), opset=19)
            add("LpPool " + name, "LpPool", [x], dict(a, p=3), opset=18)
    volume = f32(2, 3, 7, 9, 8)
    for kernel, attrs in (([2, 3, 3], {"strides": [2, 2, 2]}), ([3, 3, 3], {"pads": [1] * 6}),
                          ([2, 2, 3], {"strides": [2, 3, 1], "dilations": [2, 1, 2],
                                       "ceil_mode": 1}), ([3, 1, 1], {"strides": [2, 1, 1]}),
                          ([1, 2, 2], {"auto_pad": "SAME_UPPER", "strides": [1, 2, 2]})):
        add("MaxPool of volumes %s %s" % (kernel, sorted(attrs)), "MaxPool", [volume],
            dict(attrs, kernel_shape=kernel), opset=19)
    for name, kernel, attrs in (("window wider by less than a stride", [10, 3],
                                 {"strides": [2, 1]}),
                                ("VALID", [4, 3], {"auto_pad": "VALID", "strides": [3, 3]}),
                                ("VALID and wider", [10, 3],
                                 {"auto_pad": "VALID", "strides": [2, 2]}),
                                ("a stride beyond the input", [2, 2],
                                 {"strides": [2**31 - 1] * 2})):
        for op in ("MaxPool", "AveragePool", "LpPool"):
            add("%s, ceil, %s" % (op, name), op, [x],
                dict(attrs, kernel_shape=kernel, ceil_mode=1), opset=18 if op == "LpPool" else 19)
    for pooled, kernel, attrs in (((1, 2), [2, 2], {"strides": [2, 2]}),
                                  ((1, 1), [3, 3], {"strides": [2, 2], "pads": [1, 1, 0, 1]}),
                                  ((2, 3), [3, 2], {"strides": [3, 2]})):
        n = int(np.prod(pooled))
        add("MaxUnpool of %dx%d" % pooled, "MaxUnpool",
            [f32(1, 1, *pooled), np.arange(n).reshape(1, 1, *pooled)],
            dict(attrs, kernel_shape=kernel), opset=11)
    short = f32(2, 3, 1, 7)  # windows longer than the input
    for name, kernel, attrs in (("by less than a stride", [3, 2], {"strides": [3, 2]}),
                                ("by a stride", [3, 2], {"strides": [2, 2]}),
                                ("padded", [4, 2], {"strides": [3, 1], "pads": [1, 0, 0, 1]}),
                                ("dilated", [2, 3], {"strides": [3, 4], "dilations": [3, 3]}),
                                ("VALID", [3, 2], {"auto_pad": "VALID", "strides": [3, 2]})):
        for op, outputs, more in (("MaxPool", 1, {}), ("MaxPool", 2, {}), ("AveragePool", 1, {}),
                                  ("AveragePool", 1, {"count_include_pad": 1}),
                                  ("LpPool", 1, {})):
            add("%s of a short input, %s %s %d" % (op, name, sorted(more), outputs), op, [short],
                dict(attrs, **more, kernel_shape=kernel), outputs,
                opset=18 if op == "LpPool" else 19)
        if "dilations" not in attrs:
            add("AveragePool of a short input before opset 19, %s" % name, "AveragePool", [short],
                dict(attrs, count_include_pad=1, kernel_shape=kernel), opset=12)
    for name, attrs in (("plain", {}), ("stride", {"strides": [2, 3]}),
                        ("pads",
                         {"pads": [1, 0, 1, 1], "strides": [2, 2], "output_padding": [1, 0]}),
                        ("dilated", {"dilations": [2, 2]}),
                        ("shape", {"output_shape": [19, 18], "strides": [2, 2]}),
                        ("same", {"auto_pad": "SAME_UPPER", "strides": [2, 2]})):
        add("ConvTranspose " + name, "ConvTranspose", [x, f32(3, 4, 3, 3), f32(4)], attrs, opset=11)
        add("ConvTranspose groups, " + name, "ConvTranspose", [x, f32(3, 2, 3, 3)],
            dict(attrs, group=3), opset=11)
    add("ConvTranspose 1-D", "ConvTranspose", [f32(1, 2, 7), f32(2, 3, 4)], {"strides": [3]},
        opset=11)
    add("GlobalLpPool", "GlobalLpPool", [x], {"p": 1})
    add("LRN", "LRN", [x], {"size": 3, "alpha": 0.3})


def algebra():
    add("Einsum trace of a product", "Einsum", [f32(3, 4), f32(4, 3)], {"equation": "ij,ji->"},
        opset=12)
    add("Einsum three operands", "Einsum", [f32(2, 3), f32(3, 4), f32(4, 5)],
        {"equation": "ab,bc,cd->da"}, opset=12)
    add("Einsum ellipsis", "Einsum", [f32(2, 5, 3, 4), f32(2, 5, 4, 6)],
        {"equation": "...ij,...jk->...ik"}, opset=12)
    add("Einsum diagonal kept", "Einsum", [f32(4, 4, 3)], {"equation": "iik->ki"}, opset=12)
    add("Einsum implicit", "Einsum", [f32(2, 3), f32(3, 2)], {"equation": "bc,ca"}, opset=12)
    m = f32(3, 6, 6)
    m[1, 0, 0] = 0
    m[2, 3] = m[2, 1]  # singular
    add("Det", "Det", [m], bound=1e-4)
    x = f32(3, 7, 5)
    for axis in (0, 1, 2):
        for largest in (0, 1):
            add("TopK %d %d" % (axis, largest), "TopK", [x, np.array([3])],
                {"axis": axis, "largest": largest}, 2, constant=(1,), opset=11)
    i = R.integers(-3, 3, (3, 4, 5))
    add("GatherElements", "GatherElements", [x, R.integers(-7, 7, (3, 4, 5))], {"axis": 1},
        opset=13)
    for how in ("none", "add", "mul", "max", "min"):
        idx = np.stack([R.permutation(7)[:4] for _ in range(10)], -1).reshape(4, 2, 5).transpose(
            1, 0, 2).copy() if how == "none" else R.integers(-7, 7, (2, 4, 5))
        add("ScatterElements " + how, "ScatterElements", [x, idx, f32(2, 4, 5)],
            {"axis": 1, "reduction": how}, opset=18)
        nd = np.array([[[0, 1], [2, 6]], [[1, -1], [-1, 0]]])
        add("ScatterND " + how, "ScatterND", [x, nd, f32(2, 2, 5)], {"reduction": how}, opset=18)
    add("GatherND batch", "GatherND", [x, R.integers(-5, 5, (3, 2, 1))], {"batch_dims": 1},
        opset=13)
    add("OneHot", "OneHot", [i, np.array(5), np.array([-1, 2], np.float32)], {"axis": 1},
        constant=(1,), opset=11)
    add("CumSum", "CumSum", [x, np.array(-2)], {"exclusive": 1, "reverse": 1}, constant=(1,),
        opset=14)
    add("ReverseSequence", "ReverseSequence", [f32(5, 3, 2), np.array([2, 5, 1])],
        {"batch_axis": 1, "time_axis": 0}, opset=10)
    for start, end, step in ((-100, -9, -1), (-100, -100, -2), (100, -100, -3), (-1, 0, -1),
                             (6, 6, -1), (2**31 - 1, -2**31, -1)):
        add("Slice %d:%d:%d" % (start, end, step), "Slice",
            [x, np.array([start]), np.array([end]), np.array([-2]), np.array([step])],
            constant=(1, 2, 3, 4), opset=13)
    for mode in ("edge", "reflect", "wrap"):
        add("Pad " + mode, "Pad", [x, np.array([1, 2, 0, 2, 3, 1])], {"mode": mode}, constant=(1,),
            opset=19)
        add("Pad %s, negative" % mode, "Pad", [x, np.array([1, -2, 0, -1, 3, -1])], {"mode": mode},
            constant=(1,), opset=19)
        add("Pad %s, negative, axes" % mode, "Pad", [x, np.array([-3, -2]), None, np.array([-2])],
            {"mode": mode}, constant=(1, 3), opset=19)
    add("Mod of floats", "Mod", [f32(9), f32(9)], {"fmod": 1}, opset=13)
    add("Mod of integers", "Mod", [np.array([7, -7, 7, -7, 6]), np.array([3, 3, -3, -3, -3])],
        opset=13)


def more():
    add("Concat of long rows, by several threads", "Concat",
        [f32(3, 7), f32(3, 70001), f32(3, 40003)], {"axis": 1})
    x = f32(4, 6)
    for op, a in (("Acosh", np.abs(x) * 3 + 1), ("Asinh", x * 1e3), ("Atanh", np.tanh(x)),
                  ("Sinh", x * 4), ("Cosh", x * 4), ("Asin", np.tanh(x)), ("Atan", x * 9)):
        add(op, op, [a.astype(np.float32)])
    add("PRelu whose slope is the larger", "PRelu", [f32(3, 1, 4), f32(2, 1)], opset=16)
    for value in 5, 0:
        add("NonZero of the scalar %d" % value, "NonZero", [np.array(value, np.int32)], opset=13)
    add("Trilu", "Trilu", [x, np.array(-1)], {"upper": 0}, opset=14)
    pooled, where = np.array([[[[5, 7], [13, 15]]]], np.float32), np.array([[[[5, 7], [13, 15]]]])
    add("MaxUnpool", "MaxUnpool", [pooled, where], {"kernel_shape": [2, 2], "strides": [2, 2]},
        opset=11)
    words = R.integers(0, 4, (3, 12)).astype(np.int64)
    for mode in ("TF", "IDF", "TFIDF"):
        add("TfIdfVectorizer " + mode, "TfIdfVectorizer", [words],
            {"mode": mode, "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 2,
             "ngram_counts": [0, 3], "ngram_indexes": [0, 3, 1, 4, 2],
             "pool_int64s": [0, 1, 3, 1, 2, 3, 0], "weights": [0.5, 2.0, 1.0, 3.0, 0.25]}, opset=9)
    for what, pool in (("near", [3, 900, 7, 3, 7, 7, 900]), ("one apart", [0, 2, 1, 0, 0, 0, 1]),
                       ("far", [-5, 10**9, 7, -5, 7, 7, 10**9])):
        words = np.array([pool[k % 3] for k in R.integers(0, 3, 40)] + [-1, 10**12, 4, -2**63],
                         np.int64)
        add("TfIdfVectorizer, words that lie %s" % what, "TfIdfVectorizer",
            [R.permutation(words).reshape(4, 11)],
            {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 1,
             "ngram_counts": [0, 3], "ngram_indexes": [0, 1, 2, 3, 4], "pool_int64s": pool},
            opset=9)
    for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
               "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"):
        for name, x in (("f32", f32(3, 4)), ("s32", R.integers(1, 9, (3, 4)).astype(np.int32))):
            if name == "f32" or op != "ReduceLogSumExp":  # there ONNX Runtime rounds each step
                add("%s along no axis, %s" % (op, name), op, [x], {"noop_with_empty_axes": 1},
                    opset=18)
                add("%s of %s" % (op, name), op, [x, np.array([1])], constant=(1,), opset=18)
    add("LayerNormalization f64, mean and deviation", "LayerNormalization",
        [R.standard_normal((3, 5)), np.ones(5)], outputs=3, opset=17, bound=1e-6)
    for op in ("ReduceSum", "ReduceMax", "ReduceLogSumExp"):
        add(op + ", an axis twice", op, [f32(2, 3, 4), np.array([1, -2, 1])], constant=(1,),
            opset=18)
    add("Squeeze, an axis twice", "Squeeze", [f32(2, 1, 4), np.array([1, -2])], constant=(1,))
    for op in ("ReduceMean", "ReduceSum", "ReduceProd", "ReduceL2"):
        add("%s of none" % op, op, [np.zeros((0, 3), np.float32), np.array([0])], {"keepdims": 0},
            constant=(1,), opset=18)


def signal():
    add("DFT", "DFT", [f32(2, 10, 1), np.array(16)], {"axis": 1, "onesided": 1}, constant=(1,),
        opset=17)
    add("DFT inverse", "DFT", [f32(2, 12, 2)], {"axis": 1, "inverse": 1}, opset=17)
    for n in 64, 128, 240, 256, 337, 500, 512:
        for parts in 1, 2:
            for inverse in (0, 1)[:parts]:
                add("DFT of %d, %d parts, inverse %d" % (n, parts, inverse), "DFT",
                    [f32(3, n, 2, parts)], {"axis": 1, "inverse": inverse}, opset=17,
                    bound=5e-4)  # ONNX Runtime adds up one by one where n is no power of two
        add("DFT of %d, one-sided" % n, "DFT", [f32(5, n, 1)], {"axis": 1, "onesided": 1},
            opset=17, bound=5e-4)
    add("DFT long", "DFT", [f32(1, 2048, 2)], {"axis": 1}, opset=17)
    add("STFT", "STFT",
        [f32(2, 64, 1), np.array(8), np.hanning(16).astype(np.float32), np.array(16)],
        constant=(1, 3), opset=17)
    for op in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        add(op, op, [np.array(11)], {"periodic": 0}, constant=(0,), opset=17)


def quantised():
    x, s = f32(3, 4, 5) * 3, np.array(0.02, np.float32)
    for t in (np.uint8, np.int8, np.uint16, np.int16):
        z = np.array(np.iinfo(t).max // 2, t)
        add("QuantizeLinear %s" % t.__name__, "QuantizeLinear", [x, s, z], opset=21)
        add("DequantizeLinear %s" % t.__name__, "DequantizeLinear",
            [R.integers(0, 100, (3, 4, 5)).astype(t), s, z], opset=21)
    add("QuantizeLinear axis", "QuantizeLinear",
        [x, f32(4) ** 2 + 0.01, np.arange(4, dtype=np.int8)], {"axis": 1}, opset=13)
    add("QuantizeLinear blocks", "QuantizeLinear", [x, f32(3, 2, 5) ** 2 + 0.01],
        {"axis": 1, "block_size": 2, "output_dtype": 3}, opset=21)
    for n in 4, 5:
        add("QuantizeLinear blocks of a vector of %d" % n, "QuantizeLinear",
            [x[0, 0, :n], x[1, 0, :-(-n // 2)] ** 2 + 0.01, np.arange(-(-n // 2), dtype=np.int8)],
            {"axis": 0, "block_size": 2}, opset=21)
        add("DequantizeLinear blocks of a vector of %d" % n, "DequantizeLinear",
            [np.arange(n, dtype=np.int8), x[1, 0, :-(-n // 2)],
             np.arange(-(-n // 2), dtype=np.int8)],
            {"axis": -1, "block_size": 2}, opset=21)
    a, b = R.integers(0, 255, (2, 3, 8)).astype(np.uint8), R.integers(0, 255, (8, 6)).astype(
        np.uint8)
    add("MatMulInteger", "MatMulInteger",
        [a, b, np.array(120, np.uint8), np.arange(6, dtype=np.uint8)], opset=10)
    for xt, wt, zx, zw in ((np.uint8, np.uint8, 131, 97), (np.uint8, np.uint8, 7, 128),
                           (np.uint8, np.int8, 131, 9), (np.uint8, np.int8, 0, 0)):
        for rows, k, n in ((5, 64, 33), (1, 1100, 40), (40, 300, 7)):
            high = k > 1000  # sums beyond what a float holds
            w = R.integers(np.iinfo(wt).max - 20 if high else np.iinfo(wt).min,
                           np.iinfo(wt).max + 1, (k, n)).astype(wt)
            xs = R.integers(200 if high else 0, 256, (2, rows, k)).astype(xt)
            ends = [np.array(zx, xt), np.array(zw, wt)]
            add("MatMulInteger %s %s, zero points %d and %d, %d of "
                "%d" % (xt.__name__, wt.__name__, zx, zw, rows, k), "MatMulInteger", [xs, w] + ends,
                constant=(1, 3), opset=10)
        columns = R.integers(0, 100, 7).astype(wt)
        add("MatMulInteger %s %s, zero point a column" % (xt.__name__, wt.__name__),
            "MatMulInteger", [xs, w, ends[0], columns], constant=(1, 3), opset=10)
        for group, c in ((1, 20), (20, 20)):
            kernel = R.integers(np.iinfo(wt).min, np.iinfo(wt).max + 1,
                                (20, c // group, 3, 3)).astype(wt)
            xs = R.integers(0, 256, (1, c, 9, 8)).astype(xt)
            add("ConvInteger %s %s, zero points %d and %d, %d "
                "groups" % (xt.__name__, wt.__name__, zx, zw, group), "ConvInteger",
                [xs, kernel] + ends, {"pads": [1, 1, 0, 1], "group": group}, constant=(1, 2, 3),
                opset=10)
    add("QLinearMatMul", "QLinearMatMul",
        [a, np.array(0.01, np.float32), np.array(127, np.uint8), b, np.array(0.02, np.float32),
         np.array(128, np.uint8), np.array(0.05, np.float32), np.array(100, np.uint8)], opset=10)
    img, w = R.integers(0, 255, (1, 2, 6, 6)).astype(
        np.uint8), R.integers(-90, 90, (4, 2, 3, 3)).astype(np.int8)
    add("QLinearConv", "QLinearConv",
        [img, np.array(0.01, np.float32), np.array(130, np.uint8), w, np.full(4, 0.02, np.float32),
         np.zeros(4, np.int8), np.array(0.08, np.float32), np.array(128, np.uint8),
         np.arange(4, dtype=np.int32)], {"pads": [1, 1, 1, 1]}, opset=10)


def later():
    """Operators of opset 24 and later."""
    x = f32(3, 4)
    for name, axis, attrs in (("", 0, {}), (" exclusive", 1, {"exclusive": 1}),
                              (" reverse", -1, {"reverse": 1}),
                              (" both", 0, {"exclusive": 1, "reverse": 1})):
        add("CumProd" + name, "CumProd", [x, np.array(axis)], attrs, constant=(1,), opset=26)
    add("CumProd s64", "CumProd", [R.integers(-4, 5, (5, 3)), np.array(0)], constant=(1,), opset=26)
    for a, to in ((x, 6), (x, 12), (x.astype(np.float16), 4), (x.astype(np.float64), 7),
                  (R.integers(-128, 127, (5,)).astype(np.int8), 2)):
        add("BitCast %s to %d" % (a.dtype, to), "BitCast", [a], {"to": to}, opset=26)
    for mode, at in (("linear", [1, 5, 0]), ("circular", [6, 3, 7])):
        add("TensorScatter " + mode, "TensorScatter",
            [f32(3, 2, 8, 4), f32(3, 2, 3, 4), np.array(at)], {"mode": mode}, opset=24)
        add("TensorScatter %s, axis 1" % mode, "TensorScatter",
            [f32(3, 8, 4), f32(3, 3, 4), np.array(at)], {"mode": mode, "axis": 1}, opset=24)
    add("TensorScatter, batch of 20", "TensorScatter",
        [f32(20, 8, 4), f32(20, 3, 4), R.integers(0, 6, 20)], opset=24)
    add("TensorScatter at the front", "TensorScatter", [f32(2, 8, 4), f32(2, 3, 4)], opset=24)
    add("Einsum of scalars", "Einsum", [f32(), f32(3)], {"equation": ",i->i"}, opset=12)
    add("Einsum to itself", "Einsum", [f32()], {"equation": "->"}, opset=12)
    wide = np.array([300, -1, -300.7, 7.5, 127.9, 128, -129, 255, 256, 70000.5, -70000.5],
                    np.float32)
    for a in (wide, wide[:9].astype(np.float16), wide.astype(np.float64)):
        for to in (2, 3, 4, 5):
            add("Cast %s out of range to %d" % (a.dtype, to), "Cast", [a], {"to": to})


def chosen():
    # Where the extreme element stands, of values that the same kernel computes: by position, so
    # that one wrong bit in a copy of the value shows.
    softmax, last = ("Softmax", {"axis": -1}), {"axis": -1, "keepdims": 0}
    norm, quantise = ("LayerNormalization", {"axis": -1}, "i1",
                      "i2"), ("QuantizeLinear", {}, "i1", "i2")
    cast = lambda t: ("Cast", {"to": t})
    chains = {"softmax": [softmax], "log softmax": [("LogSoftmax", {"axis": -1})],
              "sigmoid": [("Sigmoid", {})], "exp of softmax": [softmax, ("Exp", {})],
              "tanh, softmax": [("Tanh", {}), softmax], "f16": [cast(TensorProto.FLOAT16), softmax],
              "softplus": [("Softplus", {})], "layer norm": [norm],
              "layer norm, softmax": [norm, softmax],
              "quantised": [quantise, ("DequantizeLinear", {}, "i1", "i2"), softmax]}
    for what, steps in chains.items():
        for dims in ((8, 10), (2, 3, 33)):
            more = [f32(dims[-1]), f32(dims[-1])] if norm in steps else [
                np.array(0.03, np.float32), np.array(7, np.int8)] if quantise in steps else []
            x = [f32(*dims) * 2] + more
            for op in ("ArgMax", "ArgMin"):
                # ties that rounding makes
                if not (op == "ArgMin" and (quantise in steps or what == "f16")):
                    add("%s of %s %s" % (op, what, dims), steps + [(op, last)], x, opset=18)
            add("TopK of %s %s" % (what, dims), steps + [("TopK", last_axis(), "k")],
                x + [np.array([3])], outputs=2, constant=(len(x),), opset=18,
                bound=2e-3 if what == "f16" else 1e-4)
            add("is maximum of %s %s" % (what, dims),
                steps + [("ReduceMax", {"keepdims": 1}, "axes"), ("Equal", {}, "before"),
                         cast(TensorProto.INT32)], x + [np.array([-1])], constant=(len(x),),
                opset=18)
    x = np.array([[1, 5, 5, -3, 5, -3], [0, -0.0, 0, 0, -0.0, 0]], np.float32)
    for t in (np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8):
        y = np.abs(x).astype(t) if t == np.uint8 else x.astype(t)
        for op in ("ArgMax", "ArgMin"):
            for axis in (0, 1):
                for at_end in (0, 1):
                    if not (at_end and t in (np.uint8, np.int8, np.int64)):  # ONNX Runtime has none
                        add("%s %s ties %d %d" % (op, t.__name__, axis, at_end), op, [y],
                            {"axis": axis, "select_last_index": at_end}, opset=13)
    add("Hardmax ties", "Hardmax", [x], {"axis": 1}, opset=13)
    add("Hardmax flat", "Hardmax", [f32(2, 3, 4)], {"axis": 1}, opset=11)


def f16(*dims, scale=1.0):
    return (R.standard_normal(dims) * scale).astype(np.float16)


def halves():
    """f16, which is computed in f32 and rounded where the model can see it: overflow, whole
    numbers, masks and what lies below the smallest normal number among it.
    Not here: a Cast of what overflowed to f32, which ONNX Runtime leaves finite
    (tests/fuzz-hlo/found/half-seen.hlo)."""
    def half(name, op, inputs, attrs=None, **more):
        add("f16 " + name, op, inputs, attrs, bound=more.pop("bound", 2e-3), **more)
    x, image, far = f16(4, 24), f16(1, 8, 9, 9), np.array(
        [[300, -300, 2, 6e-8, 0, -0.0, 65504, np.inf, -np.inf, np.nan]], np.float16)
    to = lambda t: ("Cast", {"to": t})  # noqa: E731
    square, sums = ("Mul", {}, "i0"), f16(3, 700)
    for k, groups in ((3, 1), (3, 8), (1, 1), (5, 2)):
        w = f16(8, 8 // groups, k, k, scale=0.2)
        same = {"pads": [k // 2] * 4, "group": groups}
        half("Conv %d in %d groups, bias, Relu" % (k, groups),
             [("Conv", same, "i1", "i2"), ("Relu", {})], [image, w, f16(8)])
        half("Conv %d in %d groups, LeakyRelu, sum" % (k, groups),
             [("Conv", same, "i1"), ("LeakyRelu", {"alpha": 0.1}), ("Add", {}, "i0")], [image, w])
    half("ConvTranspose, Sigmoid", [("ConvTranspose", {"strides": [2, 2]}, "i1"), ("Sigmoid", {})],
         [image, f16(8, 4, 2, 2, scale=0.3)])
    half("MaxPool of Conv", [("Conv", {}, "i1"), ("MaxPool", {"kernel_shape": [2, 2]})],
         [image, f16(4, 8, 1, 1)])
    half("AveragePool", "AveragePool", [image], {"kernel_shape": [3, 3]})
    half("Gemm, Gelu", [("Gemm", {"transB": 1}, "i1", "i2"), ("Gelu", {})],
         [x, f16(16, 24, scale=0.3), f16(16)], opset=20)
    half("MatMul of batches", "MatMul", [f16(2, 3, 7, 16), f16(3, 16, 5)])
    # few rows read weights as they are
    for rows, k, n in ((1, 64, 100), (2, 301, 70), (3, 65, 33), (5, 128, 257), (17, 96, 40)):
        half("MatMul of weights, %d rows" % rows,
             [("MatMul", {}, "i1"), ("Add", {}, "i2"), ("Tanh", {})],
             [f16(rows, k), f16(k, n, scale=0.2), f16(n)], constant=(1, 2))
    half("Gemm of weights", "Gemm", [f16(1, 200), f16(90, 200), f16(90)],
         {"transB": 1, "alpha": 0.5}, constant=(1, 2))
    half("MatMul beyond the range", "MatMul",
         [np.full((2, 64), 200, np.float16), np.array([[100, 1], [-100, 1]] * 32, np.float16)])
    half("MatMul to inf", "MatMul",
         [np.full((2, 64), 200, np.float16), np.full((64, 3), 200, np.float16)])
    for low in (-65504, -np.inf):
        mask = np.where(np.tril(np.ones((6, 6))), 0, low).astype(np.float16)
        half("masked Softmax %g" % low, [("MatMul", {}, "i1"), ("Add", {}, "i2"),
                                         ("Softmax", {"axis": -1}), ("MatMul", {}, "i3")],
             [f16(2, 6, 8), f16(2, 8, 6), mask, f16(2, 6, 8)])
    half("LayerNormalization", "LayerNormalization", [x, f16(24), f16(24)], opset=17)
    half("square to inf", [square], [far])
    # ONNX Runtime casts the square of f32: where rounding it to f16 reaches the next whole number
    # it differs from NumPy and us
    three, wide = x * 3, (x * 3).astype(np.float32)
    half("square, whole", [square, to(7)],
         [np.where(np.trunc(wide * wide) == np.trunc(three * three), three, np.float16(2.5))])
    half("twice, floor, less", [("Add", {}, "i0"), ("Floor", {}), ("Sub", {}, "i0")],
         [np.array([0.75, 2.25, -1.5, 1000.5, 3], np.float16)])
    half("half of the least", [("Mul", {}, "i1"), ("Mul", {}, "i2")],
         [far[:, :6], np.array(0.5, np.float16), np.array(2, np.float16)], bound=1e-2)
    half("Clip", [("Mul", {}, "i1"), ("Clip", {}, "i2", "i1")],
         [x, np.array(4, np.float16), np.array(-1.5, np.float16)])
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"):
        half(op, op, [sums, np.array([1])], constant=(1,), opset=18)
    half("ReduceMean of large", "ReduceMean", [np.full((2, 64), 60000, np.float16), np.array([1])],
         constant=(1,), opset=18)
    half("ReduceSum to inf", "ReduceSum", [np.full((2, 64), 60000, np.float16), np.array([1])],
         constant=(1,), opset=13)
    half("CumSum", "CumSum", [x, np.array(1)], constant=(1,))
    half("Gather, Mul", [("Gather", {}, "i1"), ("Mul", {}, "i2")],
         [f16(50, 6), np.array([3, 49, 0]), f16(6)])
    half("Concat with what is new",
         [("Mul", {}, "i1"), ("Concat", {"axis": 0}, "i2"), ("MatMul", {}, "i3")],
         [f16(1, 8), f16(8), f16(9, 8), f16(8, 3)])
    half("Sub, PRelu", [("Sub", {}, "i1"), ("PRelu", {}, "i2")], [x, f16(24), f16(24)])
    half("Elu of Conv", [("Conv", {}, "i1"), ("Elu", {"alpha": 0.7})],
         [image, f16(4, 8, 3, 3, scale=0.2)])
    half("Pow", "Pow", [np.abs(x), np.array(2.5, np.float16)])
    half("Greater", [("Mul", {}, "i1"), ("Greater", {}, "i2"), to(6)],
         [x, np.array(3, np.float16), np.array(0.5, np.float16)])
    half("InstanceNormalization", "InstanceNormalization", [image, f16(8), f16(8)])
    half("Resize", "Resize", [image, None, np.array([1, 1, 2, 2], np.float32)], {"mode": "linear"},
         constant=(2,), opset=18)
    for op, gates in (("GRU", 3), ("LSTM", 4)):
        half(op, op, [f16(9, 2, 4), f16(1, gates * 6, 4), f16(1, gates * 6, 6), f16(1, 12 * gates)],
             {"hidden_size": 6}, outputs=2, opset=14)
        half(op + " of weights", op,
             [f16(9, 1, 40), f16(1, gates * 64, 40, scale=0.2), f16(1, gates * 64, 64, scale=0.2)],
             {"hidden_size": 64}, outputs=2, opset=14, constant=(1, 2))


def last_axis():
    return {"axis": -1, "largest": 1, "sorted": 1}


def nodes_of(op, names, out, attrs):
    """The nodes of one operator, or of a chain; "k" and "axes" are the last input, "before" what
    the step before the last one took."""
    if isinstance(op, str):
        domain, _, short = op.rpartition(".")
        return [helper.make_node(short, names, out, domain=domain, **attrs)]
    nodes, x, before = [], names[0], None
    for k, (kind, how, *more) in enumerate(op):
        more = [names[-1] if m in ("k", "axes") else before if m == "before" else m for m in more]
        y = out if k + 1 == len(op) else ["t%d" % k]
        nodes.append(helper.make_node(kind, [x] + more, y, **how))
        before, x = x, y[0]
    return nodes


def theirs(model, inputs):
    """ONNX Runtime's results. Where the CPU has no VNNI its sums of u8 by s8 saturate, unless it
    may turn weights of s8 into u8: so those are constants here."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")
    model, bound = onnx.ModelProto.FromString(model.SerializeToString()), {}
    for value in [v for v in model.graph.input if inputs[v.name].dtype == np.int8]:
        model.graph.input.remove(value)
        model.graph.initializer.append(numpy_helper.from_array(inputs[value.name], value.name))
        bound[value.name] = True
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    return session.run(None, {n: a for n, a in inputs.items() if n not in bound})


def initializer(a, name):
    if a.dtype != ml_dtypes.uint4:
        return numpy_helper.from_array(a, name)
    return helper.make_tensor(name, TensorProto.UINT4, a.shape, a.astype(np.uint8).reshape(-1))


def run(build, variant, folder):
    name, op, arrays, attrs, outputs, constant, opset, bound, near = variant
    names = ["" if a is None else "i%d" % k for k, a in enumerate(arrays)]
    out = ["o%d" % k for k in range(outputs)] if isinstance(outputs, int) else list(outputs)
    free = [(n, a) for k, (n, a) in enumerate(zip(names, arrays))
            if a is not None and k not in constant]
    values = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
              for n, a in free]
    inits = [initializer(arrays[k], names[k]) for k in constant]
    domain = op.rpartition(".")[0] if isinstance(op, str) else ""
    # of the types that ONNX Runtime finds
    results = [onnx.ValueInfoProto(name=o) for o in out if o]
    if attrs.get("output_qk"):  # whose type it does not find
        results[-1] = helper.make_tensor_value_info(results[-1].name, TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes_of(op, names, out, attrs), "g", values, results, inits)
    sets = ([helper.make_opsetid("", opset)]
            + [helper.make_opsetid(domain, 3 if domain == "ai.onnx.ml" else 1)] * bool(domain))
    model = helper.make_model(graph, opset_imports=sets, ir_version=10)
    path = os.path.join(folder, "m.onnx")
    want = theirs(model, dict(free))
    for o, w in zip(model.graph.output, want):
        o.CopyFrom(helper.make_tensor_value_info(o.name, helper.np_dtype_to_tensor_dtype(w.dtype),
                                                 None))
    onnx.save(model, path)
    cmd = [os.path.join(build, "hlo-run"), path, "--out", os.path.join(folder, "out")]
    for k, (_, a) in enumerate(free):
        p = os.path.join(folder, "in%d" % k)
        a.tofile(p)
        cmd += ["--in", p]
    r = subprocess.run(cmd, capture_output=True, text=True, timeout=120)
    if r.returncode:
        return "exit %d: %s" % (r.returncode, r.stderr.strip().splitlines()[-1])
    data, at, worst = open(os.path.join(folder, "out"), "rb").read(), 0, 0.0
    if len(data) != sum(w.nbytes for w in want):
        return "%d bytes of results, expected %d" % (len(data), sum(w.nbytes for w in want))
    for w in want:
        g = np.frombuffer(data[at:at + w.nbytes], w.dtype).reshape(w.shape)
        at += w.nbytes
        if w.dtype.kind in "iub" and (np.abs(g.astype(np.int64) - w.astype(np.int64)) > near).any():
            return "integers differ: %d of %d" % ((g != w).sum(), w.size)
        if w.dtype.kind in "iub":
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        bad = ~((g == w) | (np.isnan(g) & np.isnan(w)))
        scale = max(np.abs(w[np.isfinite(w)]).max(initial=0), 1e-6)
        with np.errstate(invalid="ignore"):
            apart = np.where(bad, np.nan_to_num(np.abs(g - w), nan=np.inf, posinf=np.inf), 0)
        worst = max(worst, float(apart.max(initial=0)) / scale)
    return None if worst <= bound else "error %.2g, bound %g" % (worst, bound)


def main():
    build, only, failed = sys.argv[1], sys.argv[2:], 0
    for family in (rnn, image, pools, algebra, more, signal, quantised, later, chosen):
        family()
    variants_contrib.families(add)
    variants_ml.families(add)
    variants_odd.families(add)
    variants_depthwise.families(add)
    halves()
    for v in VARIANTS:
        if only and not any(o in v[0] for o in only):
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                why = run(build, v, folder)
            except Exception as e:  # ONNX Runtime's own refusals among them
                why = "%s: %s" % (type(e).__name__, str(e)[:300])
        print("FAIL %s: %s" % (v[0], why) if why else "PASS %s" % v[0], flush=True)
        failed += why is not None
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
