# SPDX-License-Identifier: Apache-2.0
"""Variants (onnx_variants.py) of convolutions with one filter for each channel that are dilated or
in three dimensions (devices/cpu/cpu_depthwise.c): windows that reach over both ends, rows shorter
than a tile and longer than a piece, channels that do not fill a block, the steps behind them,
kernels that the program computes. By square windows (panels/cpu_taps.h): rows of results that
tiles fill and do not fill, padding of half a window, of more and on one side, two strides. 1x1
convolutions (panels/cpu_pointwise.h): one to five blocks of features of which the last is full or
not, channels likewise, pixels that tiles share out unevenly, orders of the steps behind them."""
import numpy as np

R = np.random.default_rng(23)


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def square(add):
    forms = [
               # batch and channels, image, window, stride, pads
               ((1, 33), (14, 14), 3, 1, (1, 1, 1, 1)),
               ((2, 24), (16, 13), 3, 2, (0, 1, 1, 1)),
               ((1, 16), (8, 47), 3, 1, (4, 9, 3, 8)),
               ((1, 40), (10, 15), 5, 1, (2, 2, 2, 2)),
               ((1, 17), (21, 26), 5, 2, (1, 2, 2, 1)),
               ((1, 20), (5, 9), 3, 1, (1, 1, 1, 1)),
               ((1, 32), (24, 27), 7, 1, (3, 3, 3, 3)),
               ((1, 8), (30, 17), 7, 1, (0, 0, 0, 0))]
    for front, image, k, s, pads in forms:
        x, w, b = f32(*front, *image), f32(front[1], 1, k, k), f32(front[1])
        out = [(image[d] + pads[d] + pads[2 + d] - k) // s + 1 for d in range(2)]
        y, low, high = f32(*front, *out), np.array(.5, np.float32), np.array(2, np.float32)
        x[0, front[1] // 2, 1, 2] = np.nan
        conv = ("Conv", {"group": front[1], "strides": (s, s), "pads": pads}, "i1")
        name = "depthwise square %d of %dx%dx%dx%d by %d" % (k, *front, *image, s)
        add(name + ", bias, Relu, NaN", [conv + ("i2",), ("Relu", {})], [x, w, b], constant=(1, 2))
        x = f32(*front, *image)
        add(name + ", Clip from above zero", [conv, ("Clip", {}, "i2", "i3")], [x, w, low, high],
            constant=(1, 2, 3))
        add(name + ", bias, HardSwish", [conv + ("i2",), ("HardSwish", {})], [x, w, b],
            constant=(1, 2))
        add(name + ", Sigmoid, Add", [conv, ("Sigmoid", {}), ("Add", {}, "i2")], [x, w, y],
            constant=(1,))


def pointwise(add):
    forms = [(1, 24, 144, (14, 14)), (2, 17, 16, (7, 7)), (1, 40, 24, (9, 5)),
             (3, 96, 70, (5, 11)), (1, 8, 48, (31,)), (1, 33, 33, (3, 4, 5)),
             (1, 130, 300, (7, 9)), (2, 64, 5, (4, 4))]
    for n, channels, features, image in forms:
        x, b = f32(n, channels, *image), f32(features)
        w = f32(features, channels, *[1] * len(image)) / np.float32(channels ** .5)
        y, low, high = f32(n, features, *image), np.array(.5, np.float32), np.array(1, np.float32)
        same = ("Conv", {}, "i1")
        name = "pointwise %dx%d to %d of %s" % (n, channels, features, "x".join(map(str, image)))
        broken = x.copy()
        broken.reshape(n, channels, -1)[0, 0, 3] = np.nan
        add(name + ", bias, Relu, NaN", [same + ("i2",), ("Relu", {})], [broken, w, b],
            constant=(1, 2))
        add(name + ", bias, Add, Relu", [same + ("i2",), ("Add", {}, "i3"), ("Relu", {})],
            [x, w, b, y], constant=(1, 2))
        add(name + ", Clip from above zero", [same, ("Clip", {}, "i2", "i3")], [x, w, low, high],
            constant=(1, 2, 3))
        add(name + ", bias, Sigmoid, Add", [same + ("i2",), ("Sigmoid", {}), ("Add", {}, "i3")],
            [x, w, b, y], constant=(1, 2))


def families(add):
    square(add)
    pointwise(add)
    forms = [
               # batch and channels, image, kernel, strides, dilations, low and high pads
               ((1, 32), (20, 21), (3, 3), (1, 1), (2, 2), (2, 2, 2, 2)),
               ((2, 20), (17, 30), (7, 7), (1, 1), (3, 3), (9, 9, 9, 9)),
               ((1, 16), (9, 140), (5, 3), (2, 1), (1, 4), (0, 3, 5, 1)),
               ((2, 5), (12, 12), (3, 3), (2, 2), (2, 3), (1, 2, 3, 4)),
               ((1, 33), (3, 40), (1, 5), (1, 2), (1, 7), (0, 14, 0, 14)),
               ((1, 48), (6, 5), (3, 3), (1, 1), (5, 5), (5, 5, 5, 5)),
               ((1, 24), (4, 9, 10), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1, 1, 1, 1)),
               ((2, 54), (8, 7, 7), (5, 1, 1), (1, 1, 1), (1, 1, 1), (2, 0, 0, 2, 0, 0)),
               ((1, 32), (5, 12, 13), (1, 3, 3), (1, 2, 2), (1, 1, 1), (0, 1, 1, 0, 1, 1)),
               ((1, 17), (6, 8, 30), (3, 2, 4), (2, 1, 1), (1, 2, 3), (1, 0, 4, 1, 2, 5))]
    for k, (front, image, kernel, strides, dilations, pads) in enumerate(forms):
        x, w, b = f32(*front, *image), f32(front[1], 1, *kernel), f32(front[1])
        n = len(image)
        out = [(image[d] + pads[d] + pads[n + d] - dilations[d] * (kernel[d] - 1) - 1) // strides[d]
               + 1
               for d in range(n)]
        y, low, high = f32(*front, *out), np.array(-1, np.float32), np.array(2, np.float32)
        conv = ("Conv",
                {"group": front[1], "strides": strides, "dilations": dilations, "pads": pads}, "i1")
        same = ("Conv", {"group": front[1],
                         "pads": [v // 2 for v in kernel] + [v - 1 - v // 2 for v in kernel]}, "i1")
        name = "depthwise %dx%d of %s" % (front[0], front[1], "x".join(map(str, image)))
        add(name, [conv], [x, w], constant=(1,))
        add(name + ", bias, Sigmoid", [conv + ("i2",), ("Sigmoid", {})], [x, w, b], constant=(1, 2))
        add(name + ", Add, Relu", [conv, ("Add", {}, "i2"), ("Relu", {})], [x, w, y], constant=(1,))
        add(name + ", bias, Clip, same", [conv + ("i2",), ("Clip", {}, "i3", "i4"), same],
            [x, w, b, low, high], constant=(1, 2, 3, 4))
        if k % 3 == 0:
            add(name + ", computed kernel", [conv, ("HardSwish", {})], [x, w])
