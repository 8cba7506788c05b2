# SPDX-License-Identifier: Apache-2.0
"""Collects nodes and weights of one generated network, in any of the zoo's number formats. Weights
are seeded by the network's name, so that a file is the same each time.

Sizes of random weights follow the fan-in, so that activations keep their size through deep stacks
and a relative error means something.
"""
import zlib

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper

TYPE = {"f32": TensorProto.FLOAT, "f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16,
        "f64": TensorProto.DOUBLE}
NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f64": np.float64}


class Net:
    """`tiny`: sizes for `make check`. `rounded`: f32 with weights rounded to f16 or bf16, the twin
    of such a network. bf16 networks take and give f32 and cast at their ends, since NumPy has no
    bf16."""

    def __init__(self, name, numbers="f32", tiny=False, rounded="", opset=17):
        self.name, self.numbers, self.tiny, self.rounded, self.opset = (
            name, numbers, tiny, rounded, opset)
        self.rng = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
        self.nodes, self.inits, self.ins, self.outs, self.count, self.rules, self.domains = (
            [], [], [], [], 0, {}, set())

    def pick(self, full, tiny):
        return tiny if self.tiny else full

    def fresh(self, kind):
        self.count += 1
        return "%s_%d" % (kind.lower(), self.count)

    # ---- ends
    def input(self, name, shape, rule="", kind=None):
        """kind: a TensorProto type; none: floats of this network. Shapes may hold names; the rule
        (table.py) then says the sizes."""
        floats = kind is None
        kind = TYPE[self.numbers] if floats else kind
        cast = kind == TensorProto.BFLOAT16
        self.ins.append(helper.make_tensor_value_info(name, TensorProto.FLOAT if cast else kind,
                                                      shape))
        self.rules[name] = (rule if "," in rule or rule[:1].isdigit() or rule[:1] == "-"
                            else "%s %s" % (",".join(map(str, shape)) or "-", rule))
        return self.op("Cast", [name], to=kind) if cast else name

    def output(self, value, name, kind=None):
        if kind is None and self.numbers == "bf16":
            value, kind = self.op("Cast", [value], to=TensorProto.FLOAT), TensorProto.FLOAT
        self.nodes.append(helper.make_node("Identity", [value], [name], name="out_" + name))
        self.outs.append(helper.make_tensor_value_info(name, kind or TYPE[self.numbers], None))

    def op(self, kind, inputs, n_out=1, domain="", **attrs):
        outs = [self.fresh(kind) for _ in range(n_out)]
        if domain:
            self.domains.add(domain)
        self.nodes.append(helper.make_node(kind, inputs, outs, name=kind + "_" + outs[0],
                                           domain=domain,
                                           **{k: v for k, v in attrs.items() if v is not None}))
        return outs[0] if n_out == 1 else outs

    # ---- constants
    def const(self, array):
        """As it is: shapes, indices."""
        name = self.fresh("c")
        self.inits.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def ints(self, *values):
        return self.const(np.array(values, np.int64))

    def floats(self, array):
        """In the network's numbers."""
        a = np.asarray(array, np.float32)
        if self.rounded:
            a = a.astype(NUMPY[self.rounded]).astype(np.float32)
        if self.numbers != "bf16":
            return self.const(a.astype(NUMPY[self.numbers]))
        a = a.astype(ml_dtypes.bfloat16)
        name = self.fresh("c")
        self.inits.append(helper.make_tensor(name, TensorProto.BFLOAT16, a.shape, a.tobytes(),
                                             raw=True))
        return name

    def normal(self, *shape, scale=None):
        fan = np.prod(shape[1:]) if len(shape) > 1 else 1
        scale = scale if scale is not None else fan ** -0.5 if len(shape) > 1 else 0.05
        return self.floats(self.rng.standard_normal(shape, dtype=np.float32) * scale)

    # ---- layers; shapes are the caller's to know
    def conv(self, x, cin, cout, k, stride=1, pad=None, groups=1, bias=True, dilation=1, dims=2,
             gain=1.4):
        fan = cin // groups * k ** dims
        ins = ([x, self.normal(cout, cin // groups, *[k] * dims, scale=gain * fan ** -0.5)]
               + ([self.normal(cout)] if bias else []))
        p = dilation * (k - 1) // 2 if pad is None else pad
        pads = list(p) if isinstance(p, (list, tuple)) else [p] * (2 * dims)
        return self.op("Conv", ins, kernel_shape=[k] * dims, strides=[stride] * dims, pads=pads,
                       group=groups, dilations=[dilation] * dims)

    def deconv(self, x, cin, cout, k, stride, pad=0, dims=2):
        w = self.normal(cin, cout, *[k] * dims, scale=1.4 * (cin * (k / stride) ** dims) ** -0.5)
        return self.op("ConvTranspose", [x, w, self.normal(cout)], kernel_shape=[k] * dims,
                       strides=[stride] * dims, pads=[pad] * (2 * dims))

    def batch_norm(self, x, c):
        r = self.rng
        scale, shift, mean = (self.floats(f + 0.1 * r.standard_normal(c)) for f in (1, 0, 0))
        return self.op("BatchNormalization",
                       [x, scale, shift, mean, self.floats(0.8 + 0.4 * r.random(c))], epsilon=1e-5)

    def linear(self, x, cin, cout, bias=True, gain=1.0):
        y = self.op("MatMul", [x, self.normal(cin, cout, scale=gain * cin ** -0.5)])
        return self.op("Add", [y, self.normal(cout)]) if bias else y

    def layer_norm(self, x, c):
        return self.op("LayerNormalization",
                       [x, self.floats(1 + 0.1 * self.rng.standard_normal(c)), self.normal(c)],
                       axis=-1, epsilon=1e-5)

    def rms_norm(self, x, c):
        """As exporters write it: power, mean, root."""
        square = self.op("Mul", [x, x])
        root = self.op("Sqrt",
                       [self.op("Add", [self.reduce("ReduceMean", square, -1), self.floats(1e-5)])])
        return self.op(
            "Mul", [self.op("Div", [x, root]), self.floats(1 + 0.1 * self.rng.standard_normal(c))])

    def group_norm(self, x, c, groups, shape):
        """As exporters write it: InstanceNormalization over reshaped groups, then scale and
        shift."""
        y = self.op("Reshape", [x, self.ints(0, groups, -1)])
        y = self.op("InstanceNormalization",
                    [y, self.floats(np.ones(groups)), self.floats(np.zeros(groups))], epsilon=1e-5)
        y = self.op("Reshape", [y, self.ints(*shape)])
        y = self.op("Mul", [y, self.floats(1 + 0.1 * self.rng.standard_normal((c, 1, 1)))])
        return self.op("Add", [y, self.normal(c, 1, 1, scale=0.05)])

    def reduce(self, kind, x, *axes, keep=1):
        if self.opset >= 18 or kind == "ReduceSum":
            return self.op(kind, [x, self.ints(*axes)], keepdims=keep)
        return self.op(kind, [x], axes=list(axes), keepdims=keep)

    def silu(self, x):
        return self.op("Mul", [x, self.op("Sigmoid", [x])])

    def gelu(self, x):
        """As exporters write it: by Erf."""
        y = self.op("Erf", [self.op("Div", [x, self.floats(2 ** 0.5)])])
        return self.op("Mul",
                       [self.op("Mul", [x, self.op("Add", [y, self.floats(1)])]), self.floats(0.5)])

    def gelu_tanh(self, x):
        cube = self.op("Mul", [self.op("Pow", [x, self.floats(3)]), self.floats(0.044715)])
        y = self.op("Tanh",
                    [self.op("Mul", [self.op("Add", [x, cube]), self.floats((2 / np.pi) ** 0.5)])])
        return self.op("Mul",
                       [self.op("Mul", [x, self.op("Add", [y, self.floats(1)])]), self.floats(0.5)])

    def heads(self, x, batch, n, h, d):
        """[batch, n, h*d] to [batch, h, n, d]"""
        return self.op("Transpose", [self.op("Reshape", [x, self.ints(batch, n, h, d)])],
                       perm=[0, 2, 1, 3])

    def attend(self, q, k, v, d, batch, n, h, bias=None):
        """q, k, v: [batch, h, n, d]; gives [batch, n, h*d]."""
        s = self.op("MatMul", [q, self.op("Transpose", [k], perm=[0, 1, 3, 2])])
        s = self.op("Mul", [s, self.floats(d ** -0.5)])
        s = self.op("Add", [s, bias]) if bias else s
        y = self.op("MatMul", [self.op("Softmax", [s], axis=-1), v])
        return self.op("Reshape",
                       [self.op("Transpose", [y], perm=[0, 2, 1, 3]), self.ints(batch, n, h * d)])

    def attention(self, x, c, h, batch, n, context=None, cc=None, m=None, bias=None):
        """Self attention, or over context [batch, m, cc]."""
        q = self.heads(self.linear(x, c, c), batch, n, h, c // h)
        k, v = (self.heads(self.linear(context or x, cc or c, c), batch, m or n, h, c // h)
                for _ in "kv")
        return self.linear(self.attend(q, k, v, c // h, batch, n, h, bias), c, c)

    def block(self, x, c, h, batch, n, bias=None, act=None):
        """A transformer's block, norms first."""
        x = self.op("Add", [x, self.attention(self.layer_norm(x, c), c, h, batch, n, bias=bias)])
        y = self.linear((act or self.gelu)(self.linear(self.layer_norm(x, c), c, 4 * c)), 4 * c, c)
        return self.op("Add", [x, y])

    def model(self):
        graph = helper.make_graph(self.nodes, self.name, self.ins, self.outs, self.inits)
        opsets = [helper.make_opsetid("", self.opset)] + [
            helper.make_opsetid(d, 3 if d == "ai.onnx.ml" else 1) for d in sorted(self.domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8,
                                 producer_name="hlod-zoo")
