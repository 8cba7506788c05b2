#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Infinities and NaN in images and weights of convolutions whose weights the model holds: random
networks of one convolution with steps behind it, or of one product with weights of few bits,
against sums in f64 as they are written.

    not_finite.py BUILD [--n N] [--seed S]

A result that an infinity or NaN does not reach is as if it were not there; one that it reaches is
what IEEE-754's products and sums make of it (a zero weight times an infinity is NaN; padding is not
multiplied). Windows of 3 are Winograd's tiles where these pay, whose transforms would spread it.
Finite results are within 1e-5 of the largest sum of magnitudes. Each network with the CPU's
instructions and with AVX2.
"""
import os
import sys
import tempfile

import numpy as np
from onnx import TensorProto, helper, numpy_helper
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "conform")]
from random_modules import main, run  # noqa: E402

BOUND = 1e-5
VALUES = (np.inf, -np.inf, np.nan)


def sums(x, w):
    """Of the window's products within the image, in f64."""
    n, _, height, width = x.shape
    k = w.shape[2]
    out = np.zeros((n, w.shape[0], height, width))
    for i in range(k):
        for j in range(k):
            dy, dx = i - k // 2, j - k // 2
            to_y, to_x = (slice(max(0, -d), size - max(0, d)) for d, size in ((dy, height),
                                                                             (dx, width)))
            y, z = (slice(max(0, d), size - max(0, -d)) for d, size in ((dy, height), (dx, width)))
            out[:, :, to_y, to_x] += (x[:, None, :, y, z] * w[None, :, :, i, j, None, None]).sum(2)
    return out


def network(rng):
    """Its description, nodes, initializers, the input and the results that are wanted."""
    n, size = int(rng.choice([1, 1, 2])), int(rng.choice([3, 3, 3, 1, 5]))
    c, f = (int(rng.choice([8, 20, 64, 96, 128])) for _ in range(2))
    height, width = (int(v) for v in rng.choice([5, 7, 14, 28, 31], 2))
    x = rng.standard_normal((n, c, height, width)).astype(np.float32)
    w = rng.standard_normal((f, c, size, size)).astype(np.float32)
    w[rng.random(w.shape) < 0.1] = 0
    for _ in range(int(rng.integers(0, 4))):
        x[tuple(rng.integers(0, d) for d in x.shape)] = VALUES[rng.integers(0, 3)]
    odd_weights = rng.random() < 0.25
    if odd_weights:
        w[tuple(rng.integers(0, d) for d in w.shape)] = VALUES[rng.integers(0, 3)]
    init = {"w": w, "b": rng.standard_normal(f).astype(np.float32)}
    pad = [size // 2] * 4
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["v"], kernel_shape=[size] * 2, pads=pad)]
    scale = sums(*(abs(np.where(np.isfinite(v), v, 0).astype(float)) for v in (x, w))).max()
    with np.errstate(invalid="ignore"):
        y = sums(x.astype(float), w.astype(float)) + init["b"][:, None, None]
    # Relu and Clip of the library look for NaN in images alone (devices/cpu/onednn/cpu_nan.c).
    among = ("residual",) if odd_weights else ("residual", "relu", "clip")
    at, steps = "v", [s for s in among if rng.random() < 0.5]
    for s in steps:
        if s == "residual":
            init["r"] = rng.standard_normal(y.shape).astype(np.float32)
            nodes.append(helper.make_node("Add", [at, "r"], [s]))
            y = y + init["r"]
        elif s == "relu":
            nodes.append(helper.make_node("Relu", [at], [s]))
            y = np.maximum(y, 0)
        else:
            init.update(low=np.float32(-20), high=np.float32(20))
            nodes.append(helper.make_node("Clip", [at, "low", "high"], [s]))
            y = np.clip(y, -20, 20)
        at = s
    said = "%s by %s, then %s" % (x.shape, w.shape, steps)
    return said, nodes, init, at, x, y, scale


def few_bits(rng):
    """The same of one MatMulNBits, of as few rows and more as the CPU has ways for; where its
    accuracy_level lets rows be rounded to 8 bits, within what that may change."""
    bits, block = int(rng.choice([2, 4, 8])), int(rng.choice([16, 32, 64]))
    rows, k, n = (int(rng.integers(1, most)) for most in (24, 200, 150))
    blocks = -(-k // block)
    x = rng.standard_normal((rows, k)).astype(np.float32)
    for _ in range(int(rng.integers(1, 4))):
        x[rng.integers(0, rows), rng.integers(0, k)] = VALUES[rng.integers(0, 3)]
    q = rng.integers(0, 1 << bits, (n, blocks, block))
    packed = sum(q[..., i::8 // bits] << bits * i for i in range(8 // bits)).astype(np.uint8)
    s = rng.standard_normal((n, blocks)).astype(np.float32)
    w = ((q - 2.0 ** (bits - 1)) * s[..., None]).reshape(n, -1)[:, :k]
    with np.errstate(invalid="ignore"):
        y = np.stack([(x.astype(float) * row).sum(1) for row in w], 1)
    scale = (abs(np.where(np.isfinite(x), x, 0)) @ abs(w).T).max()
    level = int(rng.choice([0, 4]))
    if level == 4:
        most = abs(x[np.isfinite(x)]).max(initial=0)
        scale += abs(w).sum(1).max() * most / 254 / BOUND
    node = helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], domain="com.microsoft", K=k, N=n,
                            bits=bits, block_size=block, accuracy_level=level)
    said = "%d bits in blocks of %d, %s by %d, level %d" % (bits, block, x.shape, n, level)
    return said, [node], {"q": packed, "s": s}, "y", x, y, scale


def check(build, _, rng):
    said, nodes, init, last, x, want, scale = (few_bits if rng.random() < 0.3 else network)(rng)
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s)
            for name, s in (("x", x.shape), (last, want.shape))]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:],
                              [numpy_helper.from_array(np.asarray(a), k) for k, a in init.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17),
                                                    helper.make_opsetid("com.microsoft", 1)])
    model.ir_version = 8
    for isa in ("", "avx2"):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "m.onnx"), "wb") as file:
                file.write(model.SerializeToString())
            p, bytes_ = run(build, folder, [x], isa, module="m.onnx")
        if p.returncode:
            return said, p.stderr
        got = np.frombuffer(bytes_, np.float32).reshape(want.shape).astype(float)
        with np.errstate(invalid="ignore"):
            same = np.where(np.isfinite(want), abs(got - want) <= BOUND * scale,
                            (got == want) | (np.isnan(got) & np.isnan(want)))
        if not same.all():
            at = np.unravel_index(same.argmin(), same.shape)
            return said, "%s: %d of %d differ, at %s %g for %g" % (
                isa or "as it is", (~same).sum(), same.size, at, got[at], want[at])
    return said, None


if __name__ == "__main__":
    sys.exit(main("not finite", check, 40))
