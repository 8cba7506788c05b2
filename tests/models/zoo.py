# SPDX-License-Identifier: Apache-2.0
"""The architectures the tests and benchmarks use, as ONNX files with seeded random weights; no
torch, no download.

    python tests/models/zoo.py OUTDIR [NAME ...] [--batch N]

Each model is deterministic: the same NumPy bit generator and seed give the same bytes. Weights
follow He's scaling and batch-norm statistics stay near (0, 1), so that activations keep the size
they have in trained networks and a relative error means something.
"""
import argparse
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Net:
    """Collects nodes and initializers of one graph."""

    def __init__(self, name, seed):
        self.name, self.rng = name, np.random.Generator(np.random.PCG64(seed))
        self.nodes, self.inits, self.count = [], [], 0

    def weight(self, array, name=None):
        self.count += 1
        name = name or "w%d" % self.count
        self.inits.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def op(self, kind, inputs, n_out=1, **attrs):
        self.count += 1
        outs = ["%s_%d%s" % (kind.lower(), self.count, "_%d" % k if k else "")
                for k in range(n_out)]
        self.nodes.append(helper.make_node(kind, inputs, outs, name="%s_%d" % (kind, self.count),
                                           **attrs))
        return outs[0] if n_out == 1 else outs

    def normal(self, shape, scale):
        return (self.rng.standard_normal(shape, dtype=np.float32) * np.float32(scale))

    def conv(self, x, cin, cout, k, stride=1, pad=None, groups=1, bias=False):
        fan = cin // groups * k * k
        ins = [x, self.weight(self.normal((cout, cin // groups, k, k), (2.0 / fan) ** 0.5))]
        if bias:
            ins.append(self.weight(self.normal((cout,), 0.05)))
        p = (k - 1) // 2 if pad is None else pad
        return self.op("Conv", ins, kernel_shape=[k, k], strides=[stride] * 2, pads=[p] * 4,
                       group=groups)

    def bn(self, x, c):
        r = self.rng
        params = [1 + self.normal((c,), 0.1), self.normal((c,), 0.1), self.normal((c,), 0.1),
                  (0.8 + 0.4 * r.random(c)).astype(np.float32)]
        return self.op("BatchNormalization", [x] + [self.weight(p) for p in params], epsilon=1e-5)

    def linear(self, x, cin, cout, scale=None):
        w = self.normal((cout, cin), scale or (2.0 / cin) ** 0.5)
        return self.op("Gemm", [x, self.weight(w), self.weight(self.normal((cout,), 0.05))],
                       transB=1)

    def save(self, path, inputs, outputs):
        graph = helper.make_graph(self.nodes, self.name, inputs, outputs, self.inits)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)],
                                  ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, path)


def image_io(batch, classes=1000, size=224):
    return ([helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, size, size])],
            [helper.make_tensor_value_info("output", TensorProto.FLOAT, [batch, classes])])


def finish(net, y, path, batch, classes=1000):
    net.nodes.append(helper.make_node("Identity", [y], ["output"], name="output"))
    net.save(path, *image_io(batch, classes))


def vgg19(path, batch):
    n, x, cin = Net("vgg19", 19), "image", 3
    for block in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(block[1]):
            x = n.op("Relu", [n.conv(x, cin, block[0], 3, bias=True)])
            cin = block[0]
        x = n.op("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = n.op("Flatten", [x], axis=1)
    x = n.op("Relu", [n.linear(x, 25088, 4096)])
    x = n.op("Relu", [n.linear(x, 4096, 4096)])
    finish(n, n.op("Softmax", [n.linear(x, 4096, 1000, 0.02)], axis=1), path, batch)


def resnet(path, batch, depth):
    n = Net("resnet%d" % depth, depth)
    x = n.op("Relu", [n.bn(n.conv("image", 3, 64, 7, 2, 3), 64)])
    x = n.op("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    bottleneck, repeats = depth >= 50, {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]
    cin = 64
    for stage, reps in enumerate(repeats):
        width = 64 << stage
        cout = width * (4 if bottleneck else 1)
        for r in range(reps):
            stride = 2 if r == 0 and stage else 1
            y = x
            if bottleneck:
                y = n.op("Relu", [n.bn(n.conv(y, cin, width, 1), width)])
                y = n.op("Relu", [n.bn(n.conv(y, width, width, 3, stride), width)])
                y = n.bn(n.conv(y, width, cout, 1), cout)
            else:
                y = n.op("Relu", [n.bn(n.conv(y, cin, width, 3, stride), width)])
                y = n.bn(n.conv(y, width, width, 3), width)
            if stride != 1 or cin != cout:
                x = n.bn(n.conv(x, cin, cout, 1, stride, 0), cout)
            x, cin = n.op("Relu", [n.op("Add", [y, x])]), cout
    x = n.op("Flatten", [n.op("GlobalAveragePool", [x])], axis=1)
    finish(n, n.linear(x, cin, 1000), path, batch)


def mobilenet_v2(path, batch):
    n = Net("mobilenet_v2", 2)
    lo, hi = n.weight(np.float32(0), "zero"), n.weight(np.float32(6), "six")

    def relu6(x):
        return n.op("Clip", [x, lo, hi])

    x, cin = relu6(n.bn(n.conv("image", 3, 32, 3, 2), 32)), 32
    for expand, cout, reps, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                       (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for r in range(reps):
            s, mid, y = (stride if r == 0 else 1), cin * expand, x
            if expand != 1:
                y = relu6(n.bn(n.conv(y, cin, mid, 1), mid))
            y = relu6(n.bn(n.conv(y, mid, mid, 3, s, groups=mid), mid))
            y = n.bn(n.conv(y, mid, cout, 1), cout)
            x, cin = (n.op("Add", [x, y]) if s == 1 and cin == cout else y), cout
    x = relu6(n.bn(n.conv(x, cin, 1280, 1), 1280))
    x = n.op("Flatten", [n.op("GlobalAveragePool", [x])], axis=1)
    finish(n, n.linear(x, 1280, 1000), path, batch)


def mlp(path, batch):
    n = Net("mlp", 7)
    x = n.op("Relu", [n.linear("x", 784, 128)])
    y = n.linear(x, 128, 10)
    n.nodes.append(helper.make_node("Softmax", [y], ["output"], name="output", axis=1))
    dim = batch if batch > 1 else "N"
    n.save(path, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [dim, 784])],
           [helper.make_tensor_value_info("output", TensorProto.FLOAT, [dim, 10])])


def bert_base(path, batch, layers=12, hidden=768, heads=12, seq=128, vocab=30522):
    """As exporters below opset 17 write it: layer norm and gelu in pieces."""
    n, dh = Net("bert_base", 12), hidden // heads
    f32 = lambda v: n.weight(np.float32(v))
    two, half, one, eps = f32(2), f32(0.5), f32(1), f32(1e-12)
    root2, scale, big = f32(2.0 ** 0.5), f32(dh ** 0.5), f32(-10000.0)

    def norm(x):
        d = n.op("Sub", [x, n.op("ReduceMean", [x], axes=[-1])])
        v = n.op("ReduceMean", [n.op("Pow", [d, two])], axes=[-1])
        y = n.op("Div", [d, n.op("Sqrt", [n.op("Add", [v, eps])])])
        g, b = n.weight(1 + n.normal((hidden,), 0.1)), n.weight(n.normal((hidden,), 0.1))
        return n.op("Add", [n.op("Mul", [y, g]), b])

    def dense(x, cin, cout):
        w, b = n.weight(n.normal((cin, cout),
                                 (1.0 / cin) ** 0.5)), n.weight(n.normal((cout,), 0.02))
        return n.op("Add", [b, n.op("MatMul", [x, w])])

    split = n.weight(np.array([batch, seq, heads, dh], np.int64))
    merge = n.weight(np.array([batch, seq, hidden], np.int64))
    emb = [n.op("Gather", [n.weight(n.normal((rows, hidden), 0.05)), ids])
           for rows, ids in ((vocab, "input_ids"), (2, "token_type_ids"))]
    pos = n.weight(n.normal((1, seq, hidden), 0.05))
    x = norm(n.op("Add", [n.op("Add", emb), pos]))
    m = n.op("Unsqueeze", ["attention_mask", n.weight(np.array([1, 2], np.int64))])
    mask = n.op("Mul", [n.op("Sub", [one, n.op("Cast", [m], to=TensorProto.FLOAT)]), big])
    for _ in range(layers):
        q, k, v = (n.op("Reshape", [dense(x, hidden, hidden), split]) for _ in range(3))
        q, v = (n.op("Transpose", [t], perm=[0, 2, 1, 3]) for t in (q, v))
        k = n.op("Transpose", [k], perm=[0, 2, 3, 1])
        s = n.op("Add", [n.op("Div", [n.op("MatMul", [q, k]), scale]), mask])
        c = n.op("MatMul", [n.op("Softmax", [s], axis=-1), v])
        c = n.op("Reshape", [n.op("Transpose", [c], perm=[0, 2, 1, 3]), merge])
        x = norm(n.op("Add", [dense(c, hidden, hidden), x]))
        h = dense(x, hidden, 4 * hidden)
        g = n.op("Mul",
                 [n.op("Mul", [h, n.op("Add", [n.op("Erf", [n.op("Div", [h, root2])]), one])]),
                  half])
        x = norm(n.op("Add", [dense(g, 4 * hidden, hidden), x]))
    n.nodes.append(helper.make_node("Identity", [x], ["last_hidden_state"],
                                    name="last_hidden_state"))
    first = n.op("Gather", [x, n.weight(np.array(0, np.int64))], axis=1)
    pooled = n.op("Tanh", [n.linear(first, hidden, hidden, (1.0 / hidden) ** 0.5)])
    n.nodes.append(helper.make_node("Identity", [pooled], ["pooler_output"], name="pooler_output"))
    ids = [helper.make_tensor_value_info(i, TensorProto.INT64, [batch, seq])
           for i in ("input_ids", "attention_mask", "token_type_ids")]
    n.save(path, ids,
           [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT,
                                          [batch, seq, hidden]),
            helper.make_tensor_value_info("pooler_output", TensorProto.FLOAT, [batch, hidden])])


MODELS = {"mlp": mlp, "resnet18": lambda p, b: resnet(p, b, 18),
          "resnet50": lambda p, b: resnet(p, b, 50), "mobilenet_v2": mobilenet_v2, "vgg19": vgg19,
          "bert_base": bert_base,}


def sample_inputs(name, batch, seed=0):
    """Inputs for a model of this file, by input name."""
    r = np.random.Generator(np.random.PCG64(seed))
    if name == "mlp":
        return {"x": r.random((batch, 784), dtype=np.float32)}
    if name == "bert_base":
        mask = np.ones((batch, 128), np.int64)
        mask[:, 100:] = 0
        return {"input_ids": r.integers(0, 30522, (batch, 128)), "attention_mask": mask,
                "token_type_ids": np.repeat((np.arange(128) > 60).astype(np.int64)[None], batch, 0)}
    return {"image": r.standard_normal((batch, 3, 224, 224), dtype=np.float32)}


def ensure(outdir, name, batch=1):
    """Path of the model file, made if it is not there."""
    os.makedirs(outdir, exist_ok=True)
    path = os.path.join(outdir, name + ("" if batch == 1 else "_b%d" % batch) + ".onnx")
    if not os.path.exists(path):
        MODELS[name](path + ".tmp", batch)
        os.replace(path + ".tmp", path)
    return path


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("outdir")
    p.add_argument("names", nargs="*", default=sorted(MODELS))
    p.add_argument("--batch", type=int, default=1)
    a = p.parse_args()
    for model in a.names:
        if model not in MODELS:
            sys.exit("unknown model %s; one of %s" % (model, " ".join(sorted(MODELS))))
        print(ensure(a.outdir, model, a.batch))
