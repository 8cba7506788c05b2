# SPDX-License-Identifier: Apache-2.0
"""Variants (onnx_variants.py) of convolutions with one filter for each channel that are dilated or
in three dimensions (devices/cpu/cpu_depthwise.c): windows that reach over both ends, rows shorter
than a tile and longer than a piece, channels that do not fill a block, the steps behind them,
kernels that the program computes."""
import numpy as np

R = np.random.default_rng(23)


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def families(add):
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
