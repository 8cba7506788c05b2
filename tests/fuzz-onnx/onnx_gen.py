# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of the graph fuzzer: values with shape and type, a graph that grows by nodes,
weights, inputs. Blocks (onnx_blocks.py, onnx_more.py) are written in it.

A graph is a function of its seed alone. Every weight is a fan-in scaled random number and every
block keeps magnitudes near one, so that an error relative to an output's scale means something;
where a step can jump (rounding, comparing, sorting), the runner asks ONNX Runtime how far slightly
other inputs move the output.
"""
import numpy as np
from onnx import TensorProto, helper, numpy_helper

TYPE = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16, "float64": TensorProto.DOUBLE,
        "int64": TensorProto.INT64, "int32": TensorProto.INT32, "int8": TensorProto.INT8,
        "uint8": TensorProto.UINT8, "int16": TensorProto.INT16, "uint16": TensorProto.UINT16,
        "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64, "bool": TensorProto.BOOL}
FLOATS = ("float32", "float16", "float64")
LARGEST = 4096  # elements of one value; eight times that in a wide graph


class Value:
    """`small`: magnitudes stay within about [-1, 1]; `free`: an index or a mask, not to be mixed
    with floats."""

    def __init__(self, name, shape, kind, small=False):
        self.name, self.shape, self.kind, self.small = name, tuple(
            int(d) for d in shape), kind, small

    @property
    def rank(self):
        return len(self.shape)

    @property
    def size(self):
        return int(np.prod(self.shape, dtype=np.int64))


class Cannot(Exception):
    """A block does not apply to what there is."""


class Graph:
    """`kind`: the type of its floats. A body (of Loop, If, Scan) is a Graph with a parent: it sees
    the parent's values by name."""

    def __init__(self, seed, parent=None):
        self.parent, self.seed = parent, seed
        self.r = parent.r if parent else np.random.Generator(np.random.PCG64(seed))
        self.counter = parent.counter if parent else [0]
        self.nodes, self.inits, self.ins, self.values, self.data = [], [], [], [], {}
        if parent:
            self.kind, self.opset, self.wide, self.symbolic = (
                parent.kind, parent.opset, parent.wide, False)
        else:
            self.symbolic = self.chance(0.2)
            self.wide = self.chance(0.15)  # more channels, as blocked layouts and threads need them
            self.kind = self.choose("float32", "float32", "float32", "float32", "float16",
                                    "float64")
            self.opset = self.choose(13, 17, 18, 20, 21)

    @property
    def largest(self):
        return LARGEST * (8 if self.wide else 1)

    def channels(self):
        return (self.choose(16, 24, 32, 48, 64, 65) if self.wide and self.chance(0.6)
                else self.between(1, 17))

    # ---- chance
    def choose(self, *options):
        return options[int(self.r.integers(len(options)))]

    def below(self, n):
        return int(self.r.integers(n))

    def between(self, low, high):
        return int(self.r.integers(low, high + 1))

    def chance(self, p):
        return bool(self.r.random() < p)

    # ---- names, ends
    def fresh(self, what="v"):
        self.counter[0] += 1
        return "%s%d" % (what, self.counter[0])

    def keep(self, value):
        self.values.append(value)
        return value

    def input(self, shape, kind=None, low=None, high=None):
        """Floats: normal; with low and high uniform; integers in [low, high)."""
        kind = kind or self.kind
        name = self.fresh("in")
        if kind == "bool":
            a = self.r.random(shape) < 0.5
        elif kind in FLOATS:
            a = self.r.standard_normal(shape) if low is None else self.r.uniform(low, high, shape)
        else:
            a = self.r.integers(0 if low is None else low, 5 if high is None else high, shape)
        self.data[name] = np.asarray(a).astype(kind)
        # a size that only the request tells
        said = [self.fresh("D") if self.symbolic and self.chance(0.4) else d for d in shape]
        self.ins.append(helper.make_tensor_value_info(name, TYPE[kind], said))
        return self.keep(Value(name, shape, kind))

    def const(self, array, kind=None):
        a = np.asarray(array, kind)
        name = self.fresh("w")
        self.inits.append(numpy_helper.from_array(a, name))
        return Value(name, a.shape, str(a.dtype))

    def ints(self, *numbers):
        return self.const(np.array(numbers, np.int64))

    def weight(self, *shape, scale=None):
        fan = np.prod(shape[1:]) if len(shape) > 1 else 4
        return self.const((self.r.standard_normal(shape)
                           * (fan ** -0.5 if scale is None else scale)).astype(self.kind))

    def number(self, x, kind=None):
        return self.const(np.array(x, kind or self.kind))

    # ---- nodes
    def node(self, op, inputs, shapes, kinds=None, small=False, keep=True, domain="", **attrs):
        """shapes: of each result, or one shape. Gives a Value or a list."""
        many = isinstance(shapes, list)
        shapes = shapes if many else [shapes]
        for s in shapes:
            if np.prod(s, dtype=np.int64) > self.largest or any(d <= 0 for d in s):
                raise Cannot
        kinds = kinds if isinstance(kinds, list) else [
            kinds or next((i.kind for i in inputs if i is not None), self.kind)] * len(shapes)
        outs = [Value(self.fresh(), s, k, small) for s, k in zip(shapes, kinds)]
        self.nodes.append(helper.make_node(op, [i.name if i is not None else "" for i in inputs],
                                           [o.name for o in outs], domain=domain,
                                           **{k: v for k, v in attrs.items() if v is not None}))
        if keep:
            self.values.extend(outs)
        return outs if many else outs[0]

    def binary(self, op, a, b, **more):
        return self.node(op, [a, b], np.broadcast_shapes(a.shape, b.shape), **more)

    def unary(self, op, x, **more):
        return self.node(op, [x], x.shape, **more)

    def reshape(self, x, *shape):
        return self.node("Reshape", [x, self.ints(*shape)], shape)

    def transpose(self, x, *perm):
        return self.node("Transpose", [x], tuple(x.shape[p] for p in perm), perm=list(perm))

    # ---- what there is
    def floats(self, rank=None, where=lambda v: True):
        """A float value of this network, the later the likelier. Raises Cannot."""
        return self.pick(lambda v: v.kind == self.kind and v.rank >= 1 and (
                             rank is None or v.rank == rank) and where(v))

    def pick(self, where):
        found = [v for v in self.values if where(v)]
        if not found:
            raise Cannot
        n = len(found)
        return found[max(self.below(n), self.below(n))]

    def image(self, dims=2):
        """[N, C, spatial...]; a new input, or what there is."""
        try:
            if self.chance(0.85):
                return self.floats(rank=dims + 2, where=lambda v: v.size >= 2)
        except Cannot:
            pass
        if self.parent:
            raise Cannot
        n, c = self.choose(1, 1, 1, 2, 3), self.channels()
        most = max(1, int((self.largest / 2 / n / c) ** (1 / dims)))
        return self.input(
            (n, c) + tuple(self.between(1, min(most, 20 if dims > 1 else 60)) for _ in range(dims)))

    def rows(self):
        """[batch, time, channels]"""
        try:
            if self.chance(0.85):
                return self.floats(rank=3)
        except Cannot:
            pass
        if self.parent:
            raise Cannot
        return self.input((self.choose(1, 1, 2, 3), self.between(1, 12),
                           self.channels() if self.wide
                           else self.choose(1, 3, 4, 5, 6, 7, 8, 12, 15, 16, 17, 24, 32)))

    def any(self):
        try:
            if self.chance(0.9):
                return self.floats()
        except Cannot:
            pass
        if self.parent:
            raise Cannot
        return self.input(tuple(self.between(1, 9) for _ in range(self.between(1, 4))))

    def used(self):
        return {i for n in self.nodes for i in n.input}

    def outputs(self):
        """Every value that nothing reads, and some that are read."""
        used = self.used()
        made = {o for n in self.nodes for o in n.output}
        return [v for v in self.values
                if v.name in made and (v.name not in used or self.chance(0.06))]

    def proto(self, outputs, name="g"):
        infos = [helper.make_tensor_value_info(v.name, TYPE[v.kind], v.shape) for v in outputs]
        return helper.make_graph(self.nodes, name, self.ins, infos, self.inits)

    def model(self):
        """(bytes' message, inputs)"""
        m = helper.make_model(self.proto(self.outputs()),
                              opset_imports=[helper.make_opsetid("", self.opset)],
                              ir_version=8 if self.opset < 20 else 10)
        return m, self.data
