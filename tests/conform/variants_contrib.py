# SPDX-License-Identifier: Apache-2.0
"""Variants (onnx_variants.py) of com.microsoft's operators: what ONNX Runtime's optimizer, its
quantizer and exporters for it write."""
import os
import sys

import ml_dtypes
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import harness  # noqa: E402

R = np.random.default_rng(11)
MS = "com.microsoft."


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def fused(add):
    x, h = f32(2, 5, 16), f32(16)
    add("BiasGelu", MS + "BiasGelu", [x, h])
    add("ms Gelu", MS + "Gelu", [x])
    add("FastGelu", MS + "FastGelu", [x])
    add("FastGelu with bias", MS + "FastGelu", [x, h])
    add("QuickGelu", MS + "QuickGelu", [x], {"alpha": 1.5})
    for ta in (0, 1):
        for tb in (0, 1):
            add("FusedMatMul %d %d" % (ta, tb), MS + "FusedMatMul",
                [f32(2, 3, 4, 5) if not ta else f32(2, 3, 5, 4),
                 f32(2, 3, 6, 5) if tb else f32(2, 3, 5, 6)],
                {"transA": ta, "transB": tb, "alpha": 0.7})
    add("FusedMatMul batches", MS + "FusedMatMul", [f32(4, 2, 3, 5), f32(5, 2, 3, 6)],
        {"transBatchA": 1, "transBatchB": 1})
    add("FusedMatMul batches, transposed", MS + "FusedMatMul", [f32(5, 2, 3, 4), f32(6, 2, 3, 5)],
        {"transBatchA": 1, "transBatchB": 1, "transA": 1, "transB": 1})
    add("TransposeMatMul", MS + "TransposeMatMul", [f32(3, 5, 4), f32(3, 5, 6)], {"transA": 1})
    for act, kw in (("Relu", {}), ("Tanh", {}), ("Sigmoid", {}),
                    ("LeakyRelu", {"activation_params": [0.2]}),
                    ("Clip", {"activation_params": [-0.5, 0.8]}),
                    ("HardSigmoid", {"activation_params": [0.3, 0.4]})):
        add("FusedConv " + act, MS + "FusedConv", [f32(2, 3, 7, 7), f32(4, 3, 3, 3), f32(4)],
            dict(kw, activation=act, kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    add("FusedConv with a sum", MS + "FusedConv",
        [f32(2, 3, 7, 7), f32(4, 3, 3, 3), f32(4), f32(2, 4, 7, 7)],
        {"activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})
    add("FusedGemm", MS + "FusedGemm", [f32(3, 4), f32(5, 4), f32(5)],
        {"transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.1})
    for act, kw in (("Selu", {"activation_alpha": 1.6, "activation_gamma": 1.05}),
                    ("Elu", {"activation_alpha": 0.7}), ("Celu", {"activation_alpha": 1.5}),
                    ("Softplus", {}), ("ThresholdedRelu", {"activation_alpha": 0.6}),
                    ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
                    ("Softsign", {})):
        add("FusedGemm " + act, MS + "FusedGemm", [f32(3, 4), f32(4, 5), f32(5)],
            dict(kw, activation=act))
    add("FusedGemm Relu", MS + "FusedGemm", [f32(3, 4), f32(4, 5), f32(5)], {"activation": "Relu"})
    add("MatMulInteger16", MS + "MatMulInteger16",
        [R.integers(-900, 900, (3, 4)).astype(np.int16),
         R.integers(-900, 900, (4, 5)).astype(np.int16)])
    for x in (R.integers(-2**31, 2**31, (2, 3)).astype(np.int32), R.integers(-2**62, 2**62, (2, 3)),
              f32(7), R.standard_normal((4, 1)), R.integers(0, 2**32, 5).astype(np.uint32)):
        add("MurmurHash3 %s" % x.dtype, MS + "MurmurHash3", [x], {"seed": 7} if x.ndim == 2 else {})
    add("MurmurHash3 signed", MS + "MurmurHash3", [R.integers(0, 99, 9)], {"positive": 0})
    for n, length, words in (3, 24, 4), (1, 5, 9), (2, 40, 6), (4, 3, 5):
        add("NGramRepeatBlock %d of %d" % (n, length), MS + "NGramRepeatBlock",
            [R.integers(0, words, (3, length)), f32(3, words)], {"ngram_size": n})
    add("UnfoldTensor", MS + "UnfoldTensor", [f32(2, 9, 3)], {"dim": 1, "size": 4, "step": 2})
    add("ExpandDims", MS + "ExpandDims", [f32(2, 3), np.array(-1, np.int32)], constant=(1,))
    add("ms Pad", MS + "Pad", [f32(2, 3), np.array([1, 0, 0, 2]), np.array([1.5], np.float32)],
        constant=(1,))
    add("ms Range", MS + "Range", [np.array(2, np.int64), np.array(9, np.int64)], constant=(0, 1))
    add("ms Trilu", MS + "Trilu", [f32(2, 4, 4), np.array(1)], {"upper": 0}, constant=(1,))
    add("ms GatherND", MS + "GatherND", [f32(3, 4, 5), np.array([[0, 1], [2, 3]])])
    for op, attrs in (("Affine", {"alpha": 2.0, "beta": 0.5}), ("Scale", {"scale": 3.0}),
                      ("ScaledTanh", {"alpha": 1.5, "beta": 0.6}),
                      ("ParametricSoftplus", {"alpha": 1.2, "beta": 0.7})):
        add(op, op, [f32(4, 5)], attrs, opset=9)
    add("ImageScaler", "ImageScaler", [f32(2, 3, 4, 4)], {"scale": 0.5, "bias": [0.1, 0.2, 0.3]},
        opset=9)


def norms(add):
    x, s = f32(2, 5, 16), f32(2, 5, 16)
    g, b, bias = f32(16), f32(16), f32(16)
    add("SkipLayerNormalization", MS + "SkipLayerNormalization", [x, s, g, b, bias],
        {"epsilon": 1e-5})
    add("SkipLayerNormalization, no beta", MS + "SkipLayerNormalization", [x, f32(5, 16), g],
        {"epsilon": 1e-5})
    add("SkipLayerNormalization sum", MS + "SkipLayerNormalization", [x, s, g, b], {},
        ("o0", "", "", "o3"))
    add("SkipSimplifiedLayerNormalization", MS + "SkipSimplifiedLayerNormalization",
        [x, s, g, bias], {"epsilon": 1e-5}, ("o0", "", "", "o3"))
    add("SkipSimplifiedLayerNormalization rows", MS + "SkipSimplifiedLayerNormalization",
        [f32(7, 16), f32(7, 16), g])
    add("SimplifiedLayerNormalization", "SimplifiedLayerNormalization", [x, g],
        {"epsilon": 1e-5, "axis": -1})
    ids, seg = R.integers(0, 20, (2, 5)).astype(np.int32), R.integers(0, 2, (2, 5)).astype(np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    add("EmbedLayerNormalization", MS + "EmbedLayerNormalization",
        [ids, seg, f32(20, 16), f32(8, 16), f32(2, 16), g, b, mask], {"epsilon": 1e-5}, 2)
    table = lambda *dims: R.integers(0, 256, dims).astype(np.uint8)
    scales = [np.array(k, np.float32) for k in (0.02, 0.03, 0.01, 0.05, 0.04)]
    zeros = [np.array(k, np.uint8) for k in (128, 120, 3, 130, 99)]
    tables = [table(20, 16), table(8, 16), table(2, 16), table(16), table(16)]
    for name, with_seg, m in (("", True, mask), (", no segments", False, None)):
        drop = lambda v: v if with_seg else [v[0], v[1], None, v[3], v[4]]
        add("QEmbedLayerNormalization" + name, MS + "QEmbedLayerNormalization",
            [ids, seg if with_seg else None, *drop(tables), m, *drop(scales), *drop(zeros)],
            {"epsilon": 1e-5}, 2)
    add("EmbedLayerNormalization, the first segment", MS + "EmbedLayerNormalization",
        [ids % 10, None, x.reshape(10, 16), s[0], s[1, :2], g, b], {"epsilon": 1e-5}, 2)
    add("EmbedLayerNormalization, no segments", MS + "EmbedLayerNormalization",
        [ids, None, f32(20, 16), f32(8, 16), None, g, b, None,
         R.integers(0, 8, (2, 5)).astype(np.int32)], {}, ("o0", "o1", "o2"))


def attention(add):
    x, w, bias = f32(2, 5, 12), f32(12, 48), f32(48)
    masks = (("no mask", None), ("lengths", np.array([3, 5], np.int32)),
             ("starts", np.array([4, 5, 1, 0], np.int32)),
             ("raw", np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]], np.int32)),
             ("3-D", R.integers(0, 2, (2, 5, 5)).astype(np.int32)))
    for name, mask in masks:
        for causal in (0, 1):
            add("Attention, %s %d" % (name, causal), MS + "Attention", [x, w, bias, mask],
                {"num_heads": 4, "unidirectional": causal})
    add("Attention past", MS + "Attention", [x, w, bias, None, f32(2, 2, 4, 3, 4)],
        {"num_heads": 4, "unidirectional": 1}, 2)
    add("Attention bias", MS + "Attention", [x, w, bias, None, None, f32(2, 4, 5, 5)],
        {"num_heads": 4, "scale": 0.3})
    add("Attention sizes", MS + "Attention", [x, f32(12, 16 + 16 + 24), f32(56)],
        {"num_heads": 4, "qkv_hidden_sizes": [16, 16, 24]})
    q, k, v = f32(2, 5, 16), f32(2, 7, 16), f32(2, 7, 24)
    mha = MS + "MultiHeadAttention"
    add("MultiHeadAttention", mha, [q, k, v], {"num_heads": 4})
    add("MultiHeadAttention bias", mha, [q, k, v, f32(56)], {"num_heads": 4})
    add("MultiHeadAttention lengths", mha, [q, k, v, None, np.array([3, 7], np.int32)],
        {"num_heads": 4})
    add("MultiHeadAttention padding", mha,
        [q, k, v, None, R.integers(0, 2, (2, 7)).astype(np.int32)], {"num_heads": 4})
    add("MultiHeadAttention added", mha, [q, k, v, None, None, f32(1, 4, 5, 7)],
        {"num_heads": 4, "scale": 0.2})
    add("MultiHeadAttention 4-D", mha, [q, f32(2, 4, 7, 4), f32(2, 4, 7, 4)], {"num_heads": 4})
    add("MultiHeadAttention past", mha,
        [q, f32(2, 5, 16), f32(2, 5, 16), None, None, None, f32(2, 4, 3, 4), f32(2, 4, 3, 4)],
        {"num_heads": 4, "unidirectional": 1}, 3)
    add("MultiHeadAttention self, unidirectional", mha, [q, f32(2, 5, 16), f32(2, 5, 16)],
        {"num_heads": 4, "unidirectional": 1}, 3)
    for size in (3, 7):  # keys of an encoder: counted from the first
        add("MultiHeadAttention of %d keys, unidirectional" % size, mha,
            [q, f32(2, size, 16), f32(2, size, 16)], {"num_heads": 4, "unidirectional": 1}, 3)
        add("MultiHeadAttention of %d keys and a past, unidirectional" % size, mha,
            [q, f32(2, size, 16), f32(2, size, 16), None, None, None, f32(2, 4, 3, 4),
             f32(2, 4, 3, 4)], {"num_heads": 4, "unidirectional": 1}, 3)
    for inter in (0, 1):
        add("RotaryEmbedding ms %d" % inter, MS + "RotaryEmbedding",
            [f32(2, 5, 16), np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]]), f32(9, 4), f32(9, 4)],
            {"interleaved": inter})
    add("RotaryEmbedding ms from", MS + "RotaryEmbedding",
        [f32(2, 4, 3, 8), np.array([2]), f32(9, 4), f32(9, 4)])
    add("RotaryEmbedding ms part", MS + "RotaryEmbedding",
        [f32(2, 3, 32), np.array([2]), f32(9, 2), f32(9, 2)],
        {"num_heads": 4, "rotary_embedding_dim": 4})
    groups(add)


def groups(add):
    def gqa(name, s, past, lens, attrs, extra=(), heads=4, kv=2, size=16, buffer=0, outputs=3,
            bound=1e-4):
        total = past + s
        rows = max(buffer, past)
        x = [f32(2, s, heads * size), f32(2, s, kv * size), f32(2, s, kv * size),
             f32(2, kv, rows, size) if rows else None, f32(2, kv, rows, size) if rows else None,
             np.array(lens, np.int32), np.array(total, np.int32)]
        add("GroupQueryAttention " + name, MS + "GroupQueryAttention", x + list(extra),
            dict(attrs, num_heads=heads, kv_num_heads=kv), outputs, (6,), bound=bound)

    cos, sin = f32(32, 8), f32(32, 8)
    gqa("prompt", 5, 0, [4, 4], {})
    gqa("one token", 1, 6, [6, 6], {})
    gqa("one token, rotary", 1, 6, [6, 6], {"do_rotary": 1}, (cos, sin))
    gqa("prompt, rotary", 5, 0, [4, 4], {"do_rotary": 1, "rotary_interleaved": 1}, (cos, sin))
    add("GroupQueryAttention more tokens", MS + "GroupQueryAttention",
        [f32(1, 3, 64), f32(1, 3, 32), f32(1, 3, 32), f32(1, 2, 4, 16), f32(1, 2, 4, 16),
         np.array([6], np.int32), np.array(7, np.int32), cos, sin],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, 3, (6,))
    gqa("window, softcap", 5, 0, [4, 4], {"local_window_size": 2, "softcap": 3.0})
    gqa("window later", 1, 6, [6, 6], {"local_window_size": 3})
    gqa("smooth", 5, 0, [4, 4], {"smooth_softmax": 1})
    gqa("added", 1, 6, [6, 6], {}, (None, None, None, f32(1, 4, 1, 7)))
    gqa("sink", 5, 0, [4, 4], {}, (None, None, None, None, f32(4)))
    gqa("positions", 1, 6, [6, 6], {"do_rotary": 1}, (cos, sin, np.array([[6], [3]])))
    sliding(add, cos, sin)
    x = f32(2, 5, (4 + 2 * 2) * 16)
    add("GroupQueryAttention packed", MS + "GroupQueryAttention",
        [x, None, None, None, None, np.array([4, 4], np.int32), np.array(5, np.int32), cos, sin],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}, 3, (6,))


def sliding(add, cos, sin):
    """Caches of a window's size; keys that have been there so that every row of the result is
    specified: a cache that is full."""
    for name, batch, s, rows, window, keys, bias in (
        ("one token", 2, 1, 4, 4, [9, 7], False), ("prompt", 2, 9, 6, 4, [9, 9], False),
        ("room beyond the window", 2, 1, 6, 4, [9, 6], False),
        ("more tokens than rows", 1, 7, 6, 4, [12], False), ("added", 1, 3, 6, 4, [9], True),
        ("prompt, added", 1, 6, 6, 4, [6], True)):
        x = [f32(batch, s, 64), f32(batch, s, 32), f32(batch, s, 32), f32(batch, 2, rows, 16),
             f32(batch, 2, rows, 16), np.array(keys, np.int32) - 1, np.array(max(keys), np.int32),
             cos, sin]
        if bias:
            x += [None, f32(batch, 4, s, max(keys))]
        add("GroupQueryAttention sliding cache, " + name, MS + "GroupQueryAttention", x,
            {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "local_window_size": window,
             "sliding_window_cache": 1}, 3, (6,))


def u8(*dims):
    return R.integers(0, 256, dims).astype(np.uint8)


def s8(*dims):
    return R.integers(-128, 128, dims).astype(np.int8)


def scale(v):
    return np.array(v, np.float32)


def quantised(add):
    """Results of 8 bits may differ by one where a value lies between two (near)."""
    for t, make, z in (("u8", u8, np.array(120, np.uint8)), ("s8", s8, np.array(-7, np.int8))):
        for op, rest in (("Add", [scale(0.03), z]), ("Mul", [scale(0.02), z])):
            add("QLinear%s %s" % (op, t), MS + "QLinear" + op,
                [make(3, 4, 5), scale(0.02), z, make(4, 1), scale(0.01), z] + rest, near=1)
        add("QLinearSigmoid " + t, MS + "QLinearSigmoid",
            [make(3, 40), scale(0.04), z, scale(1 / 256), np.array(0, z.dtype)], near=1,
            constant=(1, 2, 3, 4))
        add("QLinearLeakyRelu " + t, MS + "QLinearLeakyRelu",
            [make(3, 40), scale(0.04), z, scale(0.03), z], {"alpha": 0.1}, near=1,
            constant=(1, 2, 3, 4))
        for last in (0, 1):
            x = make(2, 7, 6, 4) if last else make(2, 4, 7, 6)
            add("QLinearAveragePool %s %d" % (t, last), MS + "QLinearAveragePool",
                [x, scale(0.04), z, scale(0.03), z],
                {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0],
                 "channels_last": last}, near=1)
            add("QLinearGlobalAveragePool %s %d" % (t, last), MS + "QLinearGlobalAveragePool",
                [x, scale(0.04), z, scale(0.03), z], {"channels_last": last}, near=1)
        add("QLinearSoftmax " + t, MS + "QLinearSoftmax",
            [make(3, 10), scale(0.02), z, scale(1 / 256),
             np.array(0 if t == "u8" else -128, z.dtype)], {"axis": -1, "opset": 13}, near=1,
            constant=(1, 2, 3, 4))
        add("QLinearConcat " + t, MS + "QLinearConcat",
            [scale(0.03), z, make(2, 3), scale(0.02), z, make(2, 5), scale(0.05), z], {"axis": 1},
            near=1, constant=(0, 1, 3, 4, 6, 7))
        add("QLinearWhere " + t, MS + "QLinearWhere",
            [R.integers(0, 2, (3, 4)).astype(bool), make(3, 4), scale(0.03), z, make(1, 4),
             scale(0.02), z, scale(0.04), z], near=1)
        add("NhwcMaxPool " + t, MS + "NhwcMaxPool", [make(2, 7, 6, 4)],
            {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]})
    x, w, b = u8(3, 8), s8(8, 6), R.integers(-900, 900, 6).astype(np.int32)
    a = [x, scale(0.02), np.array(128, np.uint8), w, scale(0.01), np.array(0, np.int8), b]
    add("QGemm", MS + "QGemm", a + [scale(0.05), np.array(100, np.uint8)], near=1)
    add("QGemm to floats", MS + "QGemm", a, {"alpha": 1.0})
    add("QGemm by columns", MS + "QGemm",
        [x, scale(0.02), np.array(128, np.uint8), s8(6, 8), f32(6) ** 2 + 0.01, s8(6) // 16, b,
         scale(0.3), np.array(100, np.uint8)], {"transB": 1}, near=1, constant=(3, 4, 5))
    add("MatMulIntegerToFloat", MS + "MatMulIntegerToFloat",
        [u8(2, 3, 8), w, scale(0.02), f32(6) ** 2 + 0.01, np.array(130, np.uint8), s8(6) // 16,
         f32(6)])
    add("MatMulIntegerToFloat plain", MS + "MatMulIntegerToFloat",
        [u8(3, 8), u8(8, 6), scale(0.02), scale(0.01)])
    add("DynamicQuantizeMatMul", MS + "DynamicQuantizeMatMul",
        [f32(3, 8), w, f32(6) ** 2 + 0.01, s8(6) // 16, f32(6)], bound=2e-3)
    add("DynamicQuantizeMatMul plain", MS + "DynamicQuantizeMatMul",
        [f32(2, 3, 8), u8(8, 6), scale(0.01), np.array(127, np.uint8)], bound=2e-3)
    add("QAttention", MS + "QAttention",
        [u8(2, 5, 12), s8(12, 48), f32(48), scale(0.01), scale(0.01), None, np.array(120, np.uint8),
         np.array(0, np.int8)], {"num_heads": 4}, constant=(1,))
    add("QAttention, mask, past", MS + "QAttention",
        [u8(2, 5, 12), s8(12, 48), f32(48), scale(0.01), f32(48) ** 2 * 0.01 + 0.01,
         np.array([4, 5], np.int32), np.array(120, np.uint8), np.array(0, np.int8)],
        {"num_heads": 4, "unidirectional": 1}, constant=(1,))
    for t in (np.uint16, np.int16, np.uint8):
        z = np.array(7, t)
        add("ms QuantizeLinear %s" % t.__name__, MS + "QuantizeLinear", [f32(3, 4), scale(0.02), z])
        add("ms DequantizeLinear %s" % t.__name__, MS + "DequantizeLinear",
            [R.integers(0, 100, (3, 4)).astype(t), scale(0.02), z])
    add("ms DequantizeLinear axis", MS + "DequantizeLinear", [u8(3, 4), f32(3), u8(3)], {"axis": 0})
    for bits in (2, 4, 8):
        for k, block in ((64, 32), (40, 16)):
            n, blocks = 6, -(-k // block)
            q, s = u8(n, blocks, block * bits // 8), f32(n, blocks)
            args = {"K": k, "N": n, "bits": bits, "block_size": block}
            add("MatMulNBits %d %d" % (bits, k), MS + "MatMulNBits", [f32(2, 3, k), q, s], args,
                constant=(1, 2), bound=2e-4)
            add("MatMulNBits %d %d zero points" % (bits, k), MS + "MatMulNBits",
                [f32(3, k), q, s, u8(n, -(-blocks * bits // 8))], args, constant=(1, 2, 3),
                bound=2e-4)
        n, k, blocks = 70, 600, 38  # rows that are worth unpacking for, columns of two panels
        add("MatMulNBits %d many rows" % bits, MS + "MatMulNBits",
            [f32(19, k), u8(n, blocks, 2 * bits), f32(n, blocks), u8(n, -(-blocks * bits // 8))],
            {"K": k, "N": n, "bits": bits, "block_size": 16}, constant=(1, 2, 3), bound=2e-4)
    # accuracy_level 4: ONNX Runtime rounds the rows to 8 bits, as hlod does on a CPU with VNNI
    for bits, block, rows, t in ((2, 32, 3, np.float32), (4, 16, 1, np.float32),
                                 (4, 32, 19, np.float32), (4, 128, 5, np.float16),
                                 (8, 64, 2, np.float32)):
        for zeros in (False, True):
            n, k = 70, 200
            blocks = -(-k // block)
            x = f32(rows, k)
            if rows == 19:
                x[4], x[5, :40], x[6] = x[4] * 1e-38, 0, x[6] * 1e30
            operands = [x.astype(t), u8(n, blocks, block * bits // 8),
                        f32(n, blocks).astype(t)]
            operands += [u8(n, -(-blocks * bits // 8))] * zeros
            add("MatMulNBits level 4, %d bits, %d rows%s" % (bits, rows, ", zeros" * zeros),
                MS + "MatMulNBits", operands,
                {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 4},
                constant=tuple(range(1, len(operands))),
                bound=2e-2 if not harness.cpu_has("avx512_vnni")
                else 2e-5 if t == np.float32 else 2e-3)
    add("MatMulNBits bias", MS + "MatMulNBits",
        [f32(3, 64), u8(6, 2, 16), f32(6, 2), None, None, f32(6)],
        {"K": 64, "N": 6, "bits": 4, "block_size": 32}, constant=(1, 2, 5), bound=2e-4)
    for kind in (0, 1):
        add("MatMulBnb4 %d" % kind, MS + "MatMulBnb4", [f32(3, 40), u8(6 * 40 // 2), f32(15) ** 2],
            {"K": 40, "N": 6, "block_size": 16, "quant_type": kind}, constant=(1, 2))
    add("GatherBlockQuantized", MS + "GatherBlockQuantized",
        [u8(9, 32), np.array([[1, 5], [8, 0]]), f32(9, 4)],
        {"bits": 4, "block_size": 16, "quantize_axis": 1, "gather_axis": 0}, constant=(0, 2))
    add("GatherBlockQuantized zero points", MS + "GatherBlockQuantized",
        [u8(9, 64), np.array([1, -2]), f32(9, 4), u8(9, 4)],
        {"bits": 8, "block_size": 16, "quantize_axis": 1}, constant=(0, 2, 3))
    for gather, blocks in ((0, 1), (1, 0), (0, 2), (2, 1)):
        dims = [6, 8, 32]
        dims[blocks] = -(-dims[blocks] // 16)
        add("GatherBlockQuantized along %d, blocks of %d" % (gather, blocks),
            MS + "GatherBlockQuantized",
            [(u8(6, 8, 32) % 16).astype(ml_dtypes.uint4), np.array([[1, 5, 0], [2, 4, -3]]),
             f32(*dims), (u8(*dims) % 16).astype(ml_dtypes.uint4)],
            {"gather_axis": gather, "quantize_axis": blocks, "block_size": 16},
            constant=(0, 2, 3))
    # weights of 7 bits: ONNX Runtime's sums saturate here where the CPU has no VNNI
    add("QLinearConv channels last", MS + "QLinearConv",
        [u8(1, 6, 6, 2), scale(0.01), np.array(130, np.uint8), s8(4, 2, 3, 3) // 2,
         np.full(4, 0.02, np.float32), np.zeros(4, np.int8), scale(0.08), np.array(128, np.uint8),
         np.arange(4, dtype=np.int32)], {"pads": [1, 1, 1, 1], "channels_last": 1}, near=1,
        constant=(3, 4, 5, 8))


def matrices(add):
    for dims, t in (((3, 3), "f32"), ((1, 1), "f32"), ((2, 3, 5, 5), "f32"), ((4, 2, 2), "f64"),
                    ((2, 40, 40), "f64"), ((17, 17), "f32"), ((2, 4, 4), "f16"),
                    ((0, 3, 3), "f32")):
        x = f32(*dims).astype({"f32": np.float32, "f64": np.float64, "f16": np.float16}[t])
        add("Inverse %s %s" % (dims, t), MS + "Inverse", [x],
            bound={"f32": 2e-4, "f64": 1e-9, "f16": 5e-2}[t])
    x = f32(3, 4, 4)
    x[0] = np.eye(4)[[2, 0, 3, 1]]  # every pivot elsewhere
    x[1, 0, 0], x[2, :, 1] = 0, 0
    add("Inverse pivots", MS + "Inverse", [x[:2]])
    for dims in ((5, 5), (40, 17, 17), (65, 65), (2, 3, 70, 70), (130, 130)):  # by LU
        x = (f32(*dims) / np.sqrt(dims[-1])).astype(np.float64)
        x[..., 0] *= 100
        add("Det %s" % (dims,), "Det", [x.astype(np.float32)], bound=1e-3)
    for dims in ((40, 3, 3), (3, 70, 70)):
        add("Inverse %s" % (dims,), MS + "Inverse", [np.linalg.qr(f32(*dims))[0]], bound=1e-4)
    x = f32(2, 70, 70)
    x[0, :, 5] = 0  # singular
    add("Det singular", "Det", [x / 8], bound=1e-3)
    x[1, 3, 4] = np.nan
    add("Det NaN", "Det", [x / 8], bound=1e-3)
    singular = np.array([[[0, 0], [0, 0]], [[1, 2], [2, 4]], [[0, 1], [0, 2]], [[2, 1], [1, 1]]],
                        np.float32)
    add("Inverse singular", MS + "Inverse", [singular])


def crops(add):
    x, which = f32(2, 3, 7, 9), np.array([0, 1, 1, 0], np.int32)
    boxes = np.array([[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [-0.3, 0.5, 1.2, 0.25],
                      [0.9, 0.8, 0.1, 1.5]], np.float32)
    for mode in ("bilinear", "nearest"):
        for size in ((5, 4), (1, 6), (3, 1), (1, 1), (7, 9)):
            add("CropAndResize %s %s" % (mode, size), MS + "CropAndResize",
                [x, boxes, which, np.array(size, np.int32)],
                {"mode": mode, "extrapolation_value": 2.5}, constant=(3,))
    add("CropAndResize defaults", MS + "CropAndResize",
        [x[:, :, :1], boxes, which, np.array([2, 3], np.int32)], constant=(3,))


def experts(add):
    """Not in f16: there ONNX Runtime 1.31 multiplies by weights that it takes for transposed."""
    def moe(name, rows, n, attrs, bias=True, scores=None, shape=None, bound=1e-4):
        h, i = 8, 12
        wide = 2 * i if attrs.get("activation_type") == "swiglu" else i
        x = [f32(rows, h).reshape(shape or (rows, h)), f32(rows, n) if scores is None else scores,
             f32(n, wide, h), f32(n, wide) if bias else None, f32(n, h, i),
             f32(n, h) if bias else None]
        add("MoE " + name, MS + "MoE", [v if v is None else v.astype(np.float32) for v in x], attrs,
            constant=(2, 3, 4, 5) if bias else (2, 4), bound=bound)

    # all experts, or the chosen
    for rows, n, k in ((5, 4, 2), (1, 8, 2), (2, 9, 3), (3, 1, 1), (7, 4, 4)):
        for act in ("relu", "gelu", "silu", "identity"):
            moe("%s %d rows %d of %d" % (act, rows, k, n), rows, n,
                {"k": k, "activation_type": act, "normalize_routing_weights": rows % 2})
        moe("swiglu %d rows %d of %d" % (rows, k, n), rows, n,
            {"k": k, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.3,
             "activation_beta": 0.7, "swiglu_limit": 0.4})
    moe("swiglu plain", 5, 4, {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1})
    moe("defaults, no bias", 6, 4, {}, bias=False, shape=(2, 3, 8))
    moe("no bias, one row", 1, 4, {"k": 2}, bias=False)
    moe("equal scores", 5, 4, {"k": 2}, scores=np.zeros((5, 4)))
    moe("equal scores, one row", 1, 4, {"k": 2}, scores=np.zeros((1, 4)))
    moe("far scores", 3, 4, {"k": 3, "normalize_routing_weights": 1},
        scores=np.array([[0, -300, 5, 1], [-1e4, 1e4, 0, 0], [1, 2, 3, 4]]))
    moe("sparse mixer", 5, 4, {"k": 2, "use_sparse_mixer": 1})


def packed_experts(add):
    """By blocks of 8 bits ONNX Runtime rounds the rows to integers of 8 bits: a wider bound."""
    def qmoe(name, rows, n, bits, block, attrs, zeros=False, weights=None, scores=None, h=32):
        i = 48
        wide = 2 * i if attrs.get("activation_type") == "swiglu" else i
        x = [f32(rows, h), f32(rows, n) if scores is None else scores]
        for out, into in ((wide, h), (h, i)):
            x += [u8(n, out, into * bits // 8),
                  np.abs(f32(n, out, -(-into // block)) if block else f32(n, out)) * 0.02 + 0.01,
                  f32(n, out)]
        x += [None] * 3
        if zeros:
            x += [u8(n, out, -(-(-(-into // block)) * bits // 8)) if block
                  else u8(n, out * bits // 8)
                  for out, into in ((wide, h), (h, i))]
        if weights is not None:
            x += [None] * (14 - len(x)) + [weights]
        attrs = dict(attrs, k=attrs.get("k", 2), expert_weight_bits=bits,
                     **({"block_size": block} if block else {}))
        add("QMoE " + name, MS + "QMoE", x, attrs,
            constant=tuple(k for k, v in enumerate(x) if v is not None and k not in (0, 1, 14)),
            bound=2e-2 if bits == 8 and block else 2e-4)

    for bits in (2, 4, 8):
        for block in (0, 16):
            for zeros in (False, True):
                qmoe("%d bits by %d%s" % (bits, block, ", zero points" if zeros else ""), 5, 4,
                     bits, block, {"activation_type": "silu"}, zeros)
                qmoe("%d bits by %d%s, one row" % (bits, block, ", zero points" if zeros else ""),
                     1, 8, bits, block, {"activation_type": "gelu"}, zeros)
    qmoe("swiglu", 3, 4, 4, 16,
         {"activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.3,
          "activation_beta": 0.7, "swiglu_limit": 0.4})
    for norm in (0, 1):
        qmoe("router_weights %d" % norm, 5, 4, 4, 0, {"normalize_routing_weights": norm},
             weights=np.abs(f32(5, 4)))
    qmoe("router_weights below 0", 5, 4, 4, 0, {}, weights=f32(5, 4))
    qmoe("part of a block", 3, 4, 4, 16, {}, True, h=40)
    qmoe("equal scores", 3, 4, 4, 0, {"k": 3}, scores=np.zeros((3, 4), np.float32))


def gates(add):
    x, y = f32(2, 5, 16), f32(2, 5, 16)
    add("GatedAdd", MS + "GatedAdd", [x, y, f32(2, 5, 1)])
    add("ScaledSiLU alpha", MS + "ScaledSiLU", [x], {"alpha": 0.7})
    add("ScaledSiLU scale", MS + "ScaledSiLU", [x, scale(1.3)])
    for act in ("silu", "swish", "sigmoid"):
        add("GatedRMSNorm " + act, MS + "GatedRMSNorm", [x, f32(8), y],
            {"activation": act, "epsilon": 1e-3})
    add("GatedRMSNorm one group", MS + "GatedRMSNorm", [x, f32(16), y])
    add("GatedRMSNorm f16", MS + "GatedRMSNorm", [v.astype(np.float16) for v in (x, f32(8), y)],
        bound=3e-3)
    add("LinearAttentionGate", MS + "LinearAttentionGate",
        [f32(2, 5, 4), f32(4), f32(4), f32(2, 5, 4)], {}, 2)
    add("LinearAttentionGate, decay alone", MS + "LinearAttentionGate",
        [f32(2, 5, 4) * 30, f32(4), f32(4)])
    for name, dims, attrs, s in (
        ("grouped", (2, 3, 4, 8), {}, (8,)), ("grouped, each", (2, 3, 4, 8), {}, (4, 8)),
        ("flat", (2, 3, 32), {"num_branches": 4}, (32,)),
        ("flat, one scale", (2, 3, 32), {"num_branches": 4, "epsilon": 1e-2}, (8,)),
        ("no scale", (3, 32), {"num_branches": 2}, None)):
        add("BranchwiseRMSNorm " + name, MS + "BranchwiseRMSNorm",
            [f32(*dims)] + ([f32(*s)] if s else []), attrs)
    for metric in ("euclidean", "sqeuclidean"):
        for t in (np.float32, np.float64):
            add("CDist %s %s" % (metric, t.__name__), MS + "CDist",
                [f32(5, 8).astype(t), f32(7, 8).astype(t)], {"metric": metric})


def older(add):
    """Operators of ONNX Runtime's first exporters, and of its tools for generation."""
    x = f32(2, 3, 6, 7)
    full, one = R.integers(0, 2, (2, 3, 6, 7)).astype(np.int32), R.integers(0, 2, (
        1, 1, 6, 7)).astype(np.int32)
    ones = np.ones_like(full)
    for name, attrs in (("", {}), (", pads", {"pads": [1, 2, 1, 0], "strides": [2, 1]}),
                        (", same", {"auto_pad": "SAME_UPPER", "strides": [2, 2]})):
        for what, mask in (("a mask for all", one), ("nothing hidden", ones),
                           ("all hidden", ones[:1, :1] * 0)):
            add("MaxpoolWithMask, %s%s" % (what, name), MS + "MaxpoolWithMask", [x, mask],
                dict(attrs, kernel_shape=[3, 3]))
    add("MaxpoolWithMask 1-D", MS + "MaxpoolWithMask",
        [f32(2, 3, 9), np.array([[[0, 1, 1, 1, 0, 1, 1, 0, 1]]], np.int32)],
        {"kernel_shape": [3], "pads": [1, 1]})
    add("MaxpoolWithMask 3-D", MS + "MaxpoolWithMask",
        [f32(1, 2, 4, 5, 6), R.integers(0, 2, (1, 1, 4, 5, 6)).astype(np.int32)],
        {"kernel_shape": [2, 2, 3], "strides": [1, 2, 2]})
    words = np.array([[3, 4, 5, 0, 0, 0], [7, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6],
                      [2, 9, 9, 9, 0, 0]], np.int32)
    for k in (1, 3, 6):
        add("WordConvEmbedding of %d" % k, MS + "WordConvEmbedding",
            [words, f32(5, 1, k, 4), f32(5), f32(10, 4)])
    v = np.array([3, 1, 1, -2, 3, 7, 1], np.float32)
    add("ms Unique", MS + "Unique", [v], {}, 3)
    add("ms Unique of nothing", MS + "Unique", [v[:0]], {}, 3)
    for axis, dims in (None, (0,)), (0, (0, 5)), (1, (0, 3)), (1, (3, 0)):
        add("Unique of nothing, %s of %s" % (axis, dims), "Unique", [np.zeros(dims, np.float32)],
            {} if axis is None else {"axis": axis}, 4, opset=11)
    for group in (1, 2):
        add("ConvTransposeWithDynamicPads %d" % group, MS + "ConvTransposeWithDynamicPads",
            [f32(1, 4, 5, 6), f32(4, 3, 3, 3), np.array([1, 0, 1, 2]), f32(3 * group)],
            {"strides": [2, 2], "group": group, "kernel_shape": [3, 3]}, constant=(2,))
    masked, heads = MS + "DecoderMaskedMultiHeadAttention", {"num_heads": 2}
    shared = dict(heads, past_present_share_buffer=1)
    q, k, v = f32(3, 1, 8), f32(3, 1, 8), f32(3, 1, 8)
    cache, at = [f32(3, 2, 9, 4), f32(3, 2, 9, 4)], np.array([5], np.int32)
    mask = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1]], np.int32)
    add("DecoderMaskedMultiHeadAttention of an encoder", masked,
        [q, f32(3, 2, 7, 4), f32(3, 2, 7, 4)], heads)
    add("DecoderMaskedMultiHeadAttention of an encoder, mask, bias, qk", masked,
        [q, f32(3, 2, 6, 4), f32(3, 2, 6, 4), mask] + [None] * 6 + [f32(24)],
        dict(heads, output_qk=1, scale=0.3), ("o0", "", "", "o3"))
    for what, m, more, bias in (("", None, None, None), (", mask", mask, None, None),
                                (", bias", None, None, f32(24)),
                                (", mask, added", mask, f32(3, 2, 1, 6), f32(24))):
        add("DecoderMaskedMultiHeadAttention" + what, masked,
            [q, k, v, m, more, *cache, at, None, None, bias], shared, 3)
    add("DecoderMaskedMultiHeadAttention, none before", masked,
        [q, k, v, None, None, *cache, at * 0], shared, 3)
    for steps, causal in ((1, 0), (1, 1), (3, 0), (3, 1)):
        add("MultiHeadAttention, shared past, %d steps, causal %d" % (steps, causal),
            MS + "MultiHeadAttention",
            [f32(3, steps, 8), f32(3, steps, 8), f32(3, steps, 8), f32(24), None, None, *cache, at],
            dict(heads, unidirectional=causal), 3)
    tables = [f32(20, 4), f32(20, 4)]
    where = R.integers(0, 20, (3, 2, 5))
    for layout in (0, 1):
        for name, x, more in (("4-D", f32(2, 3, 5, 8), {}),
                              ("3-D, interleaved", f32(2, 5, 24),
                               {"interleaved": 1, "num_heads": 3, "rotary_embedding_dim": 8}),
                              ("part of a head", f32(2, 3, 5, 12),
                               {"num_heads": 3, "rotary_embedding_dim": 8})):
            add("MRotaryEmbedding %d %s" % (layout, name), MS + "MRotaryEmbedding",
                [x, where, *tables],
                dict(more, mrope_section=[2, 1, 1], mrope_layout=layout))


def families(add):
    for family in (fused, norms, attention, older, quantised, matrices, crops, experts,
                   packed_experts, gates):
        family(add)
