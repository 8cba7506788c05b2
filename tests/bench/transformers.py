# SPDX-License-Identifier: Apache-2.0
"""Transformers of many makes beside ONNX Runtime: values and latency, one process each, asked in
turn.

    transformers.py BUILD [NAME ...] [--threads N] [--rounds N] [--keep DIR]

NAME: only families whose name holds it. Every family is a small network with random weights,
written as the exporters write it (torch's traces, T5's and LLaMA's norms, decoders whose cache is
an input and a result, ONNX Runtime's dynamic quantisation). A row: milliseconds of both, ratio
(above 1: hlod is ahead), largest difference over the largest magnitude of any result. Integers with
dynamic ranges differ by whole steps of quantisation.
"""
import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOATS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.int64): TensorProto.INT64,
          np.dtype(bool): TensorProto.BOOL}


class Graph:
    """Nodes, weights and inputs of one model; op() gives the name of its result."""

    def __init__(self, opset=17):
        self.nodes, self.weights, self.inputs, self.outputs, self.n, self.opset = (
            [], [], [], [], 0, opset)
        self.feeds, self.r = {}, np.random.default_rng(3)

    def name(self, hint="v"):
        self.n += 1
        return "%s%d" % (hint, self.n)

    def op(self, kind, *inputs, outputs=1, domain="", **attrs):
        names = [self.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attrs))
        return names[0] if outputs == 1 else names

    def const(self, value, dtype=np.float32):
        name = self.name("c")
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weight(self, *dims, scale=None):
        return self.const(self.r.standard_normal(dims) * (scale or 1 / math.sqrt(dims[0])))

    def input(self, name, value):
        self.feeds[name] = value
        self.inputs.append(helper.make_tensor_value_info(name, FLOATS[value.dtype], value.shape))
        return name

    def noise(self, name, *dims):
        return self.input(name, self.r.standard_normal(dims).astype(np.float32))

    def output(self, name):
        self.outputs.append(name)

    def save(self, path):
        outs = [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in self.outputs]
        g = helper.make_graph(self.nodes, "family", self.inputs, outs, self.weights)
        m = helper.make_model(g, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(m), path)


def linear(g, x, n_in, n_out, bias=True):
    y = g.op("MatMul", x, g.weight(n_in, n_out))
    return g.op("Add", g.weight(n_out, scale=0.1), y) if bias else y


def shape(g, x, *dims):
    return g.op("Reshape", x, g.const(dims, np.int64))


def norm(g, x, d):
    return g.op("LayerNormalization", x, g.weight(d, scale=1), g.weight(d, scale=0.1), axis=-1,
                epsilon=1e-5)


def old_norm(g, x, d):
    """As opset 11 to 16 spell it."""
    c = g.op("Sub", x, g.op("ReduceMean", x, axes=[-1]))
    v = g.op("ReduceMean", g.op("Pow", c, g.const(2.0)), axes=[-1])
    y = g.op("Div", c, g.op("Sqrt", g.op("Add", v, g.const(1e-12))))
    return g.op("Add", g.op("Mul", y, g.weight(d, scale=1)), g.weight(d, scale=0.1))


def rms_norm(g, x, d):
    v = g.op("ReduceMean", g.op("Pow", x, g.const(2.0)), axes=[-1])
    y = g.op("Mul", x, g.op("Div", g.const(1.0), g.op("Sqrt", g.op("Add", v, g.const(1e-6)))))
    return g.op("Mul", g.weight(d, scale=1), y)


def gelu_erf(g, x):
    e = g.op("Erf", g.op("Div", x, g.const(math.sqrt(2))))
    return g.op("Mul", g.op("Mul", x, g.op("Add", e, g.const(1.0))), g.const(0.5))


def gelu_tanh(g, x):
    cube = g.op("Pow", x, g.const(3.0))
    t = g.op("Tanh", g.op("Mul", g.op("Add", x, g.op("Mul", cube, g.const(0.044715))),
                          g.const(math.sqrt(2 / math.pi))))
    return g.op("Mul", g.op("Mul", x, g.const(0.5)), g.op("Add", t, g.const(1.0)))


def silu(g, x):
    return g.op("Mul", x, g.op("Sigmoid", x))


def heads(g, x, b, s, h, d):
    return g.op("Transpose", shape(g, x, b, s, h, d), perm=[0, 2, 1, 3])


def scores(g, q, k, scale, mask):
    """softmax(q k' * scale + mask)"""
    x = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    if scale:
        x = g.op("Div", x, g.const(math.sqrt(scale)))
    if mask:
        x = g.op("Add", x, mask)
    return g.op("Softmax", x, axis=-1)


def merge(g, x, b, s, d):
    return shape(g, g.op("Transpose", x, perm=[0, 2, 1, 3]), b, s, d)


def key_mask(g, b, t):
    """As BERT: ones and zeros of the request become 0 and the least float."""
    ones = np.ones((b, t), np.int64)
    ones[:, t - t // 5:] = 0
    m = g.op("Cast", g.input("mask", ones), to=TensorProto.FLOAT)
    m = g.op("Unsqueeze", g.op("Unsqueeze", m, g.const([1], np.int64)), g.const([2], np.int64))
    return g.op("Mul", g.op("Sub", g.const(1.0), m), g.const(np.finfo(np.float32).min))


def encoder(g, b, s, d, h, layers, act=gelu_erf, ln=norm, first=False, mask=True, ff=4):
    x, m = g.noise("x", b, s, d), key_mask(g, b, s) if mask else None
    for _ in range(layers):
        y = ln(g, x, d) if first else x
        q, k, v = (heads(g, linear(g, y, d, d), b, s, h, d // h) for _ in range(3))
        a = linear(g, merge(g, g.op("MatMul", scores(g, q, k, d // h, m), v), b, s, d), d, d)
        x = g.op("Add", a, x)
        x = x if first else ln(g, x, d)
        y = ln(g, x, d) if first else x
        y = linear(g, act(g, linear(g, y, d, ff * d)), ff * d, d)
        x = g.op("Add", y, x)
        x = x if first else ln(g, x, d)
    g.output(x)


def split_qkv(g, x, b, s, h, d):
    """One product for the three, cut apart: GPT-2 and ViT."""
    q, k, v = g.op("Split", linear(g, x, h * d, 3 * h * d), axis=2, outputs=3)
    return [heads(g, y, b, s, h, d) for y in (q, k, v)]


def gpt_layers(g, x, b, past, s, d, h, layers):
    t = past + s
    m = (np.triu(np.full((s, t), np.finfo(np.float32).min, np.float32), 1 + past)[None, None]
         if s > 1 else None)
    for n in range(layers):
        q, k, v = split_qkv(g, norm(g, x, d), b, s, h, d // h)
        if past:
            k = g.op("Concat", g.noise("past_k%d" % n, b, h, past, d // h), k, axis=2)
            v = g.op("Concat", g.noise("past_v%d" % n, b, h, past, d // h), v, axis=2)
            g.output(k)
            g.output(v)
        a = g.op("MatMul", scores(g, q, k, d // h, g.const(m) if m is not None else None), v)
        x = g.op("Add", x, linear(g, merge(g, a, b, s, d), d, d))
        x = g.op("Add", x, linear(g, gelu_tanh(g, linear(g, norm(g, x, d), d, 4 * d)), 4 * d, d))
    return norm(g, x, d)


def gpt(g, b, past, s, d, h, layers, vocab):
    """A step of a decoder whose cache is an input and a result."""
    x = gpt_layers(g, g.noise("x", b, s, d), b, past, s, d, h, layers)
    g.output(linear(g, x, d, vocab, bias=False))


def rotate(g, x, cos, sin, d):
    lo = g.op("Slice", x, g.const([0], np.int64), g.const([d // 2], np.int64),
              g.const([3], np.int64))
    hi = g.op("Slice", x, g.const([d // 2], np.int64), g.const([d], np.int64),
              g.const([3], np.int64))
    turned = g.op("Concat", g.op("Neg", hi), lo, axis=3)
    return g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))


def repeat(g, x, b, kv, t, d, times):
    x = g.op("Unsqueeze", x, g.const([2], np.int64))
    return shape(g, g.op("Expand", x, g.const([b, kv, times, t, d], np.int64)), b, kv * times, t, d)


def llama(g, b, past, s, d, h, kv, layers, vocab, ff):
    x, t, n = g.noise("x", b, s, d), past + s, d // h
    angle = np.outer(np.arange(past, t), 10000.0 ** (-np.arange(0, n, 2) / n))
    angle = np.concatenate([angle, angle], 1)[None, None]
    cos, sin = g.const(np.cos(angle)), g.const(np.sin(angle))
    m = g.const(np.triu(np.full((s, t), np.finfo(np.float32).min), 1 + past)[None, None])
    for k in range(layers):
        y = rms_norm(g, x, d)
        q = rotate(g, heads(g, linear(g, y, d, d, False), b, s, h, n), cos, sin, n)
        key = rotate(g, heads(g, linear(g, y, d, kv * n, False), b, s, kv, n), cos, sin, n)
        v = heads(g, linear(g, y, d, kv * n, False), b, s, kv, n)
        if past:
            key = g.op("Concat", g.noise("past_k%d" % k, b, kv, past, n), key, axis=2)
            v = g.op("Concat", g.noise("past_v%d" % k, b, kv, past, n), v, axis=2)
            g.output(key)
            g.output(v)
        a = scores(g, q, repeat(g, key, b, kv, t, n, h // kv), n, m)
        a = g.op("MatMul", a, repeat(g, v, b, kv, t, n, h // kv))
        x = g.op("Add", x, linear(g, merge(g, a, b, s, d), d, d, False))
        y = rms_norm(g, x, d)
        y = g.op("Mul", silu(g, linear(g, y, d, ff, False)), linear(g, y, d, ff, False))
        x = g.op("Add", x, linear(g, y, ff, d, False))
    g.output(linear(g, rms_norm(g, x, d), d, vocab, False))


def t5(g, b, past, src, d, h, layers, vocab):
    """A decoder's step: position bias, cached keys, cross attention to keys that never change."""
    x, t, n = g.noise("x", b, 1, d), past + 1, d // h
    bias = g.noise("bias", 1, h, 1, t)
    m = key_mask(g, b, src)
    for k in range(layers):
        y = rms_norm(g, x, d)
        q, key, v = (heads(g, linear(g, y, d, d, False), b, 1, h, n) for _ in range(3))
        key = g.op("Concat", g.noise("past_k%d" % k, b, h, past, n), key, axis=2)
        v = g.op("Concat", g.noise("past_v%d" % k, b, h, past, n), v, axis=2)
        g.output(key)
        g.output(v)
        a = g.op("MatMul", scores(g, q, key, None, bias), v)
        x = g.op("Add", x, linear(g, merge(g, a, b, 1, d), d, d, False))
        q = heads(g, linear(g, rms_norm(g, x, d), d, d, False), b, 1, h, n)
        a = scores(g, q, g.noise("cross_k%d" % k, b, h, src, n), None, m)
        a = g.op("MatMul", a, g.noise("cross_v%d" % k, b, h, src, n))
        x = g.op("Add", x, linear(g, merge(g, a, b, 1, d), d, d, False))
        y = g.op("Relu", linear(g, rms_norm(g, x, d), d, 4 * d, False))
        x = g.op("Add", x, linear(g, y, 4 * d, d, False))
    g.output(linear(g, g.op("Mul", rms_norm(g, x, d), g.const(d ** -0.5)), d, vocab, False))


def swin(g, windows, side, d, h, blocks):
    """Attention in windows with a bias of its own for every pair, shifted ones masked."""
    s, x = side * side, g.noise("x", windows, side * side, d)
    for k in range(blocks):
        q, key, v = split_qkv(g, norm(g, x, d), windows, s, h, d // h)
        bias = g.const(g.r.standard_normal((1, h, s, s)))
        a = g.op("Add", g.op("MatMul", g.op("Mul", q, g.const((d // h) ** -0.5)),
                             g.op("Transpose", key, perm=[0, 1, 3, 2])), bias)
        if k % 2:
            cut = np.where(g.r.random((1, windows, 1, s, s)) < 0.2, -100, 0)
            a = shape(g, g.op("Add", shape(g, a, 1, windows, h, s, s), g.const(cut)), windows, h, s,
                      s)
        a = g.op("MatMul", g.op("Softmax", a, axis=-1), v)
        x = g.op("Add", x, linear(g, merge(g, a, windows, s, d), d, d))
        x = g.op("Add", x, linear(g, gelu_erf(g, linear(g, norm(g, x, d), d, 4 * d)), 4 * d, d))
    g.output(x)


def sizes(prefix, build, rows):
    return {"%s %s" % (prefix, " ".join(str(v) for v in row)): (lambda g, row=row: build(g, *row))
            for row in rows}


FAMILIES = {
    **sizes("encoder", lambda g, b, s, d, h: encoder(g, b, s, d, h, 3),
            [(1, 1, 384, 12), (1, 8, 384, 12), (1, 16, 384, 12), (1, 128, 384, 12),
             (1, 512, 384, 12), (8, 16, 384, 12), (8, 128, 384, 12), (1, 37, 128, 2),
             (1, 64, 768, 12), (2, 197, 192, 3)]),
    **sizes("encoder-old-norm", lambda g, b, s, d, h: encoder(g, b, s, d, h, 3, ln=old_norm),
            [(1, 16, 312, 12), (4, 64, 312, 12)]),
    **sizes("vit",
            lambda g, b, s, d, h: encoder(g, b, s, d, h, 3, first=True, mask=False, act=gelu_tanh),
            [(1, 197, 192, 3), (1, 50, 384, 6)]),
    **sizes("gpt", gpt,
            [(1, 0, 16, 256, 8, 3, 5000), (1, 64, 1, 256, 8, 3, 5000), (1, 511, 1, 512, 8, 2, 8000),
             (4, 100, 1, 256, 8, 3, 5000), (1, 0, 256, 256, 8, 3, 1000)]),
    **sizes("llama", llama,
            [(1, 0, 32, 256, 8, 2, 3, 4000, 688), (1, 127, 1, 256, 8, 2, 3, 4000, 688),
             (1, 1023, 1, 512, 8, 8, 2, 4000, 1376)]),
    **sizes("t5", t5, [(1, 15, 32, 512, 8, 3, 8000), (4, 30, 64, 256, 4, 3, 4000)]),
    **sizes("swin", swin, [(16, 7, 96, 3, 4), (4, 7, 192, 6, 4)]),}


def quantised(src, dst, kind):
    import logging
    from onnxruntime.quantization import QuantType, quantize_dynamic
    logging.getLogger().setLevel(logging.ERROR)
    u8 = "u8" in kind
    quantize_dynamic(src, dst, weight_type=QuantType.QUInt8 if u8 else QuantType.QInt8,
                     per_channel="channel" in kind, reduce_range="reduce" in kind)


KINDS = ["f32", "int8 s8", "int8 s8 channel", "int8 u8", "int8 u8 channel reduce"]


class Peer:
    """A process that answers a number of runs with their times in ms."""

    def __init__(self, command, threads):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads))
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, env=env)
        self.times = []

    def ask(self, n):
        self.p.stdin.write("%d\n" % n)
        self.p.stdin.flush()
        for line in self.p.stdout:
            if line.strip() and line[0].isdigit():
                self.times.append(min(float(t) for t in line.split()))
                return True
        return False

    def close(self):
        self.p.stdin.close()
        self.p.wait(30)


def difference(raw, outs):
    worst, at = 0.0, 0
    for a in outs:
        got = np.frombuffer(raw[at:at + a.nbytes], a.dtype).reshape(a.shape).astype(np.float64)
        at += a.nbytes
        worst = max(worst, float(np.abs(got - a).max() / max(1e-9, np.abs(a).max())))
    return worst if at == len(raw) else float("nan")


def compare(o, name, path, g, folder):
    import onnxruntime as ort
    so = ort.SessionOptions()
    so.intra_op_num_threads = o.threads
    so.log_severity_level = 3
    s = ort.InferenceSession(path, so, providers=["CPUExecutionProvider"])
    command, out = [os.path.join(o.build, "hlo-run")], os.path.join(folder, "out")
    for k, i in enumerate(s.get_inputs()):
        g.feeds[i.name].tofile(os.path.join(folder, "in%d" % k))
        command += ["--in", os.path.join(folder, "in%d" % k)]
    done = subprocess.run(command + ["--out", out, path], capture_output=True, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS=str(o.threads)))
    if done.returncode:
        print("%-50s refused: %s" % (name, done.stderr.strip()[-120:]), flush=True)
        return None
    outs = s.run(None, g.feeds)
    differs = difference(open(out, "rb").read(), outs)
    ours, theirs = Peer(command + [path, "--loop"], o.threads), []
    ours.ask(2)
    t = time.perf_counter()
    s.run(None, g.feeds)
    runs = max(1, min(30, int(0.03 / (time.perf_counter() - t))))
    ours.times = []
    for _ in range(o.rounds):
        if not ours.ask(runs):
            return None
        each = []
        for _ in range(runs):
            t = time.perf_counter()
            s.run(None, g.feeds)
            each.append((time.perf_counter() - t) * 1e3)
        theirs.append(min(each))
    ours.close()
    a, b = statistics.median(ours.times), statistics.median(theirs)
    print("%-50s %9.3f %9.3f  x%.2f  %.1e" % (name, a, b, b / a, differs), flush=True)
    return b / a


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("names", nargs="*")
    a.add_argument("--threads", type=int, default=1)
    a.add_argument("--rounds", type=int, default=7)
    a.add_argument("--kinds", default=",".join(KINDS))
    a.add_argument("--keep", help="leave the models in this folder")
    o = a.parse_args()
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for name, build in FAMILIES.items():
            for kind in o.kinds.split(","):
                title = name + (", " + kind if kind != "f32" else "")
                if o.names and not any(n in title for n in o.names):
                    continue
                g = Graph()
                build(g)
                path = os.path.join(o.keep or folder,
                                    title.replace(" ", "_").replace(",", "") + ".onnx")
                g.save(path)
                if kind != "f32":
                    quantised(path, path + ".q", kind)
                    os.replace(path + ".q", path)
                r = compare(o, title, path, g, folder)
                ratios += [r] if r else []
    if ratios:
        print("%d models, geometric mean x%.2f, least x%.2f"
              % (len(ratios), math.exp(sum(map(math.log, ratios)) / len(ratios)), min(ratios)))


if __name__ == "__main__":
    sys.exit(main())
