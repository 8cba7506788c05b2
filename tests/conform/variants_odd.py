# SPDX-License-Identifier: Apache-2.0
"""Variants (onnx_variants.py) whose inputs hold infinities and NaN: activations behind products and
convolutions, labels of scores that are no numbers; tensors without elements; images of many
channels that are sampled at computed places."""
import numpy as np

R = np.random.default_rng(17)
ODD = np.array([[1, 2, 3, np.inf], [1, 2, -np.inf, 1], [1, 2, 3, 4], [np.nan, 1, 1, 1],
                [1e30, 1, -1, 1]], np.float32)


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def behind_products(add):
    low, high = np.array(-1, np.float32), np.array(2, np.float32)
    steps = {"Sigmoid": [("Sigmoid", {})], "Tanh": [("Tanh", {})],
             "Clip": [("Clip", {}, "i2", "i3")], "HardSwish": [("HardSwish", {})],
             "Exp": [("Exp", {})], "LeakyRelu": [("LeakyRelu", {"alpha": 0.1})]}
    for name, after in steps.items():
        for rows in (1, 4, 5):
            for cols in (1, 3, 40):
                bounds = [low, high] if name == "Clip" else []
                add("odd %s of %dx4 by 4x%d" % (name, rows, cols), [("MatMul", {}, "i1")] + after,
                    [ODD[:rows], f32(4, cols)] + bounds, constant=(1, 2, 3)[:1 + len(bounds)])


def odd_image(*dims):
    """NaN and infinities in some places of some images, none in the last."""
    x = f32(*dims)
    x[(0,) + tuple(d // 2 for d in dims[1:])] = np.nan
    x[(1,) + tuple(d // 3 for d in dims[1:])] = np.inf
    x[(1,) + tuple(d - 1 for d in dims[1:])] = -np.inf
    return x


def behind_convolutions(add):
    """What the library's Relu and Clip lose, in each of its forms, and steps behind them."""
    low, high, one = np.array(-0.5, np.float32), np.array(1.5, np.float32), np.array(1, np.float32)
    for name, dims, channels, kernel in (
        ("blocks", (3, 32, 9, 9), 32, (3, 3)), ("filled blocks", (3, 16, 9, 9), 20, (3, 3)),
        ("rows", (3, 3, 12, 12), 16, (3, 3)), ("1x1", (3, 24, 7, 7), 40, (1, 1)),
        ("line", (3, 16, 40), 32, (5,)), ("depthwise", (3, 32, 9, 9), 32, (3, 3))):
        group = 32 if name == "depthwise" else 1
        w, b, x = f32(channels, dims[1] // group, *kernel) * 0.2, f32(channels), odd_image(*dims)
        conv = ("Conv", {"group": group, "pads": [k // 2 for k in kernel] * 2}, "i1", "i2")
        y = f32(3, channels, *dims[2:])
        add("odd Conv, Relu, %s" % name, [conv, ("Relu", {})], [x, w, b], constant=(1, 2))
        add("odd Conv, Clip, %s" % name, [conv, ("Clip", {}, "i3", "i4")], [x, w, b, low, high],
            constant=(1, 2, 3, 4))
        add("odd Conv, Relu, Add, Sigmoid, %s" % name,
            [conv, ("Relu", {}), ("Add", {}, "i3"), ("Sigmoid", {})], [x, w, b, y], constant=(1, 2))
        y[2, 1] = np.nan
        add("odd Conv, Add, Relu, %s" % name, [conv, ("Add", {}, "i3"), ("Relu", {})], [x, w, b, y],
            constant=(1, 2))
        add("odd Div, Conv, Relu, Relu6, %s" % name,
            [("Div", {}, "i3"), conv, ("Relu", {}), ("Add", {}, "i4"),
             conv[:1] + ({"group": group, "pads": [k // 2 for k in kernel] * 2}, "i5"),
             ("Clip", {}, "i6", "i7")],
            [np.abs(f32(*dims)), w, b, np.where(f32(*dims) > 2.5, 0, 1).astype(np.float32), one,
             f32(8, channels // group, *kernel) if group == 1 else w, low, high],
            constant=(1, 2, 4, 5, 6, 7))
    x, w = odd_image(40, 48), f32(48, 64)
    add("odd MatMul, Add, Relu of 40 rows", [("MatMul", {}, "i1"), ("Add", {}, "i2"), ("Relu", {})],
        [x, w, f32(64)], constant=(1, 2))
    add("odd MatMul of two inputs, Clip", [("MatMul", {}, "i1"), ("Clip", {}, "i2", "i3")],
        [f32(40, 48), odd_image(48, 64), low, high], constant=(2, 3))


def bounds(add):
    """Clip with a bound left out, or an infinite one; classes that count from the last."""
    far = np.array([[-np.inf, np.inf, np.nan, -3e38, 3e38, 0.25]], np.float32)
    for t in np.float32, np.float64:
        for low in None, -1, np.inf, -np.inf:
            for high in None, 1, np.inf, -np.inf:
                x = [far.astype(t)] + [v if v is None else np.array(v, t) for v in (low, high)]
                add("odd Clip %s %s %s" % (low, high, t.__name__), "Clip", x)
    add("odd Clip 6", "Clip", [far], opset=6)
    add("odd Clip 6 min", "Clip", [far], {"min": -1.0}, opset=6)
    for op in "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss":
        for how in "none", "sum", "mean":
            for ignored in None, -1, 2:
                attrs = {"reduction": how}
                if ignored is not None:
                    attrs["ignore_index"] = ignored
                x = [f32(4, 5), np.array([-1, 2, 4, -5]), np.abs(f32(5))]
                add("%s %s, classes from the last, %s" % (op, how, ignored), op, x, attrs, opset=13)
                add("%s %s, classes from the last, %s, no weights" % (op, how, ignored), op, x[:2],
                    attrs, opset=13)


def labels(add):
    for k in (2, 3, 4):
        for post in ("NONE", "LOGISTIC"):
            add("odd LinearClassifier %d %s" % (k, post), "ai.onnx.ml.LinearClassifier", [ODD],
                dict(coefficients=f32(4 * k).tolist(), intercepts=f32(k).tolist(),
                     classlabels_ints=list(range(5, 5 + k)), post_transform=post), 2)


def empty(add):
    none, x = np.zeros((0, 5), np.float32), f32(0, 3, 4, 4)
    add("odd Gather of nothing", "Gather", [none, np.zeros((0, 2), np.int64)])
    add("odd GatherElements of nothing", "GatherElements", [none, np.zeros((0, 5), np.int64)])
    add("odd GatherND of nothing", "GatherND", [none, np.zeros((0, 1), np.int64)])
    add("odd Resize of nothing", "Resize", [x, None, None, np.array([0, 3, 7, 6])],
        {"mode": "linear"}, constant=(3,), opset=18)
    for images, channels in ((0, 3), (0, 0), (2, 0)):
        where = "%d images of %d channels" % (images, channels)
        add("odd GridSample of %s" % where, "GridSample",
            [f32(images, channels, 4, 4), f32(images, 2, 3, 2)], opset=16)
        for ratio in (0, 2):
            add("odd RoiAlign %d of %s" % (ratio, where), "RoiAlign",
                [f32(images, channels, 6, 6), f32(0, 4), np.zeros(0, np.int64)],
                {"output_height": 2, "output_width": 2, "sampling_ratio": ratio}, opset=16)
    add("odd Det of no rows", "Det", [f32(2, 0, 0)])
    add("odd Det of one matrix of no rows", "Det", [f32(0, 0)])


def sampled(add):
    """Channels that are neighbours while samples are taken, in groups and alone."""
    for channels in (8, 20):
        x, many = f32(2, channels, 6, 7), "%d channels" % channels
        grid = (R.random((2, 5, 4, 2)) * 2.6 - 1.3).astype(np.float32)
        for mode in ("linear", "nearest", "cubic"):
            add("GridSample %s, %s" % (mode, many), "GridSample", [x, grid],
                {"mode": mode, "padding_mode": "border"}, opset=20)
        volume = (R.random((1, 2, 3, 4, 3)) * 2.6 - 1.3).astype(np.float32)
        add("GridSample of a volume, %s" % many, "GridSample", [f32(1, channels, 4, 5, 6), volume],
            opset=20)
        rois = np.array([[0, 0, 4, 4], [1.5, 2, 8, 6.5], [-1, -1, 3, 9], [5, 5, 5, 5]], np.float32)
        for mode in ("avg", "max"):
            for ratio in (0, 1, 2):
                add("RoiAlign %s %d, %s" % (mode, ratio, many), "RoiAlign",
                    [x, rois, np.array([0, 1, 1, 0])],
                    {"mode": mode, "output_height": 3, "output_width": 2, "sampling_ratio": ratio,
                     "spatial_scale": 0.9}, opset=16)
        add("CropAndResize, %s" % many, "com.microsoft.CropAndResize",
            [x, rois / 8, np.array([0, 1, 1, 0], np.int32), np.array((5, 4), np.int32)],
            {"extrapolation_value": 2.5}, constant=(3,))
    few = (R.random((1, 1, 3, 2)) * 2 - 1).astype(np.float32)  # of many pixels: they stay in place
    add("GridSample at few points", "GridSample", [f32(1, 16, 30, 30), few], opset=20)
    for channels, group, offsets in ((6, 1, 1), (16, 1, 1), (16, 2, 1), (16, 2, 2), (16, 1, 2),
                                     (8, 4, 2), (32, 2, 4)):
        for mask in (True, False):
            off = f32(2, offsets * 12, 4, 6)
            scale = [R.random((2, offsets * 6, 4, 6)).astype(np.float32)] if mask else []
            add("DeformConv of %d channels in %d and %d groups%s"
                % (channels, group, offsets, ", mask" if mask else ""), "DeformConv",
                [f32(2, channels, 7, 6), f32(4, channels // group, 2, 3), off, f32(4)] + scale,
                {"group": group, "offset_group": offsets, "kernel_shape": [2, 3],
                 "pads": [1, 1, 0, 1], "strides": [2, 1]}, opset=19)


def powers(add):
    """Exponents that the compiler has shorter ways for."""
    x = np.array([-np.inf, np.inf, -0.0, 0, np.nan, -1, 4, 1e-40, 3e38], np.float32)
    for dtype in (np.float32, np.float64):
        for y in (0.5, -0.5, 0, 1, -1, 2, 3, -2, 1 / 3, 1.5):
            add("odd Pow %s by %.3g" % (np.dtype(dtype).name, y), "Pow",
                [x.astype(dtype), np.array(y, dtype)], constant=(1,))


    whole = np.array([3, -3, 7, 2, -2, 65537, 10, 0], np.int64)
    up = np.array([31, 31, 17, 62, 61, 1, 15, 3])
    for dtype in (np.float16, np.float32, np.float64):
        add("odd Pow of integers by %s" % np.dtype(dtype).name, "Pow", [whole, up.astype(dtype)])


def flags(add):
    """Attributes that are 0 or 1: ONNX Runtime takes another number as 0."""
    x, few = f32(2, 3, 7, 7), np.array([3, 1, 3, 2, 1], np.float32)
    for k in (-1, 2, 2 ** 40):
        add("keepdims %d of ReduceSum" % k, "ReduceSum", [x, np.array([1])], {"keepdims": k},
            constant=(1,))
        add("keepdims %d of ArgMax" % k, "ArgMax", [x], {"axis": 1, "keepdims": k})
        add("noop_with_empty_axes %d" % k, "ReduceSum", [x], {"noop_with_empty_axes": k})
        add("ceil_mode %d" % k, "AveragePool", [x],
            {"ceil_mode": k, "kernel_shape": [2, 2], "strides": [2, 2]})
        add("sorted %d of Unique" % k, "Unique", [few], {"sorted": k}, 4)


def masks(add):
    for opset in (7, 10, 11, 12, 13):
        add("Dropout's mask, opset %d" % opset, "Dropout", [f32(3, 4)], outputs=2, opset=opset)


def many_outputs(add):
    add("Split into 1500", "Split", [f32(1500, 2)], {"num_outputs": 1500}, 1500)


def families(add):
    for family in (behind_products, behind_convolutions, bounds, labels, empty, powers, flags,
                   masks, many_outputs):
        family(add)
    sampled(add)
