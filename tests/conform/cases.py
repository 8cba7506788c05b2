# SPDX-License-Identifier: Apache-2.0
"""The onnx wheel's backend cases as data: where they are, what family they belong to, their tensors
as plain values, and when an answer is right.

A value is a Tensor, a list of values (sequence) or None (an absent optional). A Tensor keeps the
bytes as the wire has them, one element a byte below 8 bits, so that element types NumPy lacks
travel unchanged.
"""
import os

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

RTOL, ATOL = 1e-3, 1e-7  # onnx.backend.test's own
DATA = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
SUITES = {"node": "node", "simple": "simple", "light": "light", "converted": "pytorch-converted",
          "operator": "pytorch-operator"}

# onnx element type -> (HLO's name, NumPy type of the stored element)
# named by later releases of onnx
TYPES = {TensorProto.FLOAT: ("f32", "<f4"), TensorProto.UINT8: ("u8", "u1"),
         TensorProto.INT8: ("s8", "i1"), TensorProto.UINT16: ("u16", "<u2"),
         TensorProto.INT16: ("s16", "<i2"), TensorProto.INT32: ("s32", "<i4"),
         TensorProto.INT64: ("s64", "<i8"), TensorProto.BOOL: ("pred", "u1"),
         TensorProto.FLOAT16: ("f16", "<f2"), TensorProto.DOUBLE: ("f64", "<f8"),
         TensorProto.UINT32: ("u32", "<u4"), TensorProto.UINT64: ("u64", "<u8"),
         TensorProto.COMPLEX64: ("c64", "<c8"), TensorProto.COMPLEX128: ("c128", "<c16"),
         TensorProto.BFLOAT16: ("bf16", "<u2"), TensorProto.FLOAT8E4M3FN: ("f8e4m3fn", "u1"),
         TensorProto.FLOAT8E4M3FNUZ: ("f8e4m3fnuz", "u1"), TensorProto.FLOAT8E5M2: ("f8e5m2", "u1"),
         TensorProto.FLOAT8E5M2FNUZ: ("f8e5m2fnuz", "u1"), TensorProto.UINT4: ("u4", "u1"),
         TensorProto.INT4: ("s4", "i1"), TensorProto.FLOAT4E2M1: ("f4e2m1fn", "u1"),
         24: ("f8e8m0fnu", "u1"), 25: ("u2", "u1"), 26: ("s2", "i1")}
EXOTIC = {"bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz",
          "f8e5m2": "float8_e5m2", "f8e5m2fnuz": "float8_e5m2fnuz", "f4e2m1fn": "float4_e2m1fn",
          "f8e8m0fnu": "float8_e8m0fnu"}
PACKED = {"u2": 2, "s2": 2, "u4": 4, "s4": 4, "f4e2m1fn": 4}  # bits of an element
BY_NAME = {name: t for name, t in TYPES.values()}
NUMPY = {"float32": "f32", "float64": "f64", "float16": "f16", "int64": "s64", "int32": "s32",
         "int16": "s16", "int8": "s8", "uint8": "u8", "uint16": "u16", "uint32": "u32",
         "uint64": "u64", "bool": "pred", "complex64": "c64", "complex128": "c128",
         "object": "string", "int2": "s2", "uint2": "u2", "int4": "s4", "uint4": "u4"}


class Tensor:
    """dtype (HLO's name, or "string"), array: the stored elements."""

    def __init__(self, dtype, array):
        self.dtype, self.array, self.as_bits = dtype, array, False

    def wire(self):
        """The bytes that travel: a text as its length and its UTF-8."""
        if self.dtype == "string":
            texts = [x if isinstance(x, bytes) else x.encode() for x in self.array.reshape(-1)]
            return b"".join(len(t).to_bytes(4, "little") + t for t in texts)
        return np.ascontiguousarray(self.array).tobytes()

    @staticmethod
    def from_wire(dtype, shape, data):
        if dtype != "string":
            return Tensor(dtype, np.frombuffer(data, BY_NAME[dtype]).reshape(shape))
        texts, at = [], 0
        while at < len(data):
            n = int.from_bytes(data[at:at + 4], "little")
            texts.append(data[at + 4:at + 4 + n].decode())
            at += 4 + n
        a = np.empty(len(texts), object)
        a[:] = texts
        return Tensor(dtype, a.reshape(shape))

    def numbers(self, as_bits=False):
        """The elements as numbers NumPy can compare."""
        if self.dtype in EXOTIC and not (as_bits or self.as_bits):
            import ml_dtypes
            return self.array.view(getattr(ml_dtypes, EXOTIC[self.dtype])).astype(np.float64)
        return self.array

    def __repr__(self):
        return "%s%s" % (self.dtype, list(self.array.shape))


def unpack(raw, count, bits, signed):
    b = np.frombuffer(raw, np.uint8)
    v = np.stack([b >> k & (1 << bits) - 1 for k in range(0, 8, bits)], -1).reshape(-1)[:count]
    return (np.where(v >= 1 << bits - 1, v.astype(np.int16) - (1 << bits), v).astype(np.int8)
            if signed else v)


def from_proto(t):
    """TensorProto -> Tensor."""
    shape = tuple(t.dims)
    if t.data_type == TensorProto.STRING:
        a = np.empty(len(t.string_data), object)
        a[:] = [s.decode() for s in t.string_data]
        return Tensor("string", a.reshape(shape))
    name, stored = TYPES[t.data_type]
    if name in PACKED:
        raw = t.raw_data if t.HasField("raw_data") else bytes(v & 255 for v in t.int32_data)
        return Tensor(name,
                      unpack(raw, int(np.prod(shape)), PACKED[name], name[0] == "s").reshape(shape))
    if name in EXOTIC:
        a = (np.frombuffer(t.raw_data, stored) if t.HasField("raw_data")
             else np.array(t.int32_data, np.int64).astype(stored))
        return Tensor(name, a.reshape(shape))
    return Tensor(name,
                  np.ascontiguousarray(numpy_helper.to_array(t)).astype(stored).reshape(shape))


def from_sequence(s):
    kind = s.elem_type
    if kind == onnx.SequenceProto.SEQUENCE:
        return [from_sequence(x) for x in s.sequence_values]
    if kind == onnx.SequenceProto.OPTIONAL:
        return [from_optional(x) for x in s.optional_values]
    return [from_proto(x) for x in s.tensor_values]


def from_optional(o):
    if o.elem_type == onnx.OptionalProto.TENSOR:
        return from_proto(o.tensor_value)
    if o.elem_type == onnx.OptionalProto.SEQUENCE:
        return from_sequence(o.sequence_value)
    if o.elem_type == onnx.OptionalProto.OPTIONAL:
        return from_optional(o.optional_value)
    return None


def declared(t, type_proto):
    """bf16 travels as u16 in some cases' files: what the graph declares counts. onnx compares those
    as integers (its expected values are truncated)."""
    want = TYPES.get(type_proto.tensor_type.elem_type, ("",))[0]
    if isinstance(t, Tensor) and t.dtype == "u16" and want == "bf16":
        t.dtype, t.as_bits = want, True
    return t


def load_value(path, type_proto):
    with open(path, "rb") as f:
        data = f.read()
    kind = type_proto.WhichOneof("value")
    if kind == "sequence_type":
        s = onnx.SequenceProto()
        s.ParseFromString(data)
        return from_sequence(s)
    if kind == "optional_type":
        o = onnx.OptionalProto()
        o.ParseFromString(data)
        return from_optional(o)
    t = TensorProto()
    t.ParseFromString(data)
    return declared(from_proto(t), type_proto)


class Case:
    """One model with the data sets it is run on."""

    def __init__(self, suite, name, path):
        self.suite, self.name, self.path = suite, name, path
        self._model = None

    def __repr__(self):
        return "%s/%s" % (self.suite, self.name)

    @property
    def model(self):
        if self._model is None:
            self._model = onnx.load(self.path)
        return self._model

    def forget(self):
        self._model = None

    def inputs(self):
        inits = {i.name for i in self.model.graph.initializer}
        return [i for i in self.model.graph.input if i.name not in inits]

    def sets(self):
        """[(input name -> value, [expected value per output])]."""
        if self.suite == "light":
            return [self._light()]
        found, folder = [], os.path.dirname(self.path)
        for d in sorted(x for x in os.listdir(folder) if x.startswith("test_data_set_")):
            d = os.path.join(folder, d)
            ins = {v.name: load_value(os.path.join(d, "input_%d.pb" % k), v.type)
                   for k, v in enumerate(self.model.graph.input)
                   if os.path.exists(os.path.join(d, "input_%d.pb" % k))}
            outs = [load_value(os.path.join(d, "output_%d.pb" % k), v.type)
                    for k, v in enumerate(self.model.graph.output)]
            found.append((ins, outs))
        return found

    def _light(self):
        """As onnx.backend.test does: input k is arange over its elements, divided by their number;
        one expected output beside the model."""
        ins = {}
        for v in self.inputs():
            shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
            n = int(np.prod(shape))
            ins[v.name] = Tensor("f32", (np.arange(n) / n).astype(np.float32).reshape(shape))
        with open(self.path[:-5] + "_output_0.pb", "rb") as f:
            t = TensorProto()
            t.ParseFromString(f.read())
        return ins, [from_proto(t)]

    def family(self):
        if self.suite != "node":
            return self.suite
        nodes = ([n for n in self.model.graph.node if n.op_type != "Constant"]
                 or list(self.model.graph.node))
        if "_expanded" in self.name:
            return "expanded functions"
        domains = {n.domain for n in nodes} - {"", "ai.onnx"}
        if domains:
            return sorted(domains)[0]
        ops = [n.op_type for n in nodes]
        for family, members in FAMILIES:
            if any(o in members for o in ops):
                return family
        return "other"


FAMILIES = [
    (f, frozenset(ops.split()))
    for f, ops in (
        ("control flow", "If Loop Scan SequenceMap"),
        ("sequence, optional",
         "SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
         "SplitToSequence ConcatFromSequence Optional " "OptionalGetElement OptionalHasElement"),
        ("string",
         "StringConcat StringNormalizer StringSplit RegexFullMatch TfIdfVectorizer LabelEncoder"),
        ("recurrent", "RNN GRU LSTM"),
        ("quantised", "QuantizeLinear DequantizeLinear DynamicQuantizeLinear MatMulInteger "
                      "QLinearMatMul ConvInteger QLinearConv"),
        ("data-dependent shape", "NonZero Unique Compress NonMaxSuppression"),
        ("attention", "Attention RotaryEmbedding"),
        ("loss", "SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss"),
        ("image", "Resize Upsample GridSample AffineGrid RoiAlign MaxRoiPool CenterCropPad Col2Im "
                  "DepthToSpace SpaceToDepth ImageDecoder DeformConv"),
        ("signal", "DFT STFT MelWeightMatrix HannWindow HammingWindow BlackmanWindow"),
        ("convolution, pool", "Conv ConvTranspose MaxPool AveragePool LpPool GlobalMaxPool "
                              "GlobalAveragePool GlobalLpPool MaxUnpool LRN"),
        ("matmul", "MatMul Gemm Einsum Det"),
        ("norm", "BatchNormalization LayerNormalization InstanceNormalization GroupNormalization "
                 "RMSNormalization LpNormalization MeanVarianceNormalization Softmax "
                 "LogSoftmax Hardmax"),
        ("reduce, order", "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 "
                          "ReduceLogSum ReduceLogSumExp ReduceSumSquare ArgMax ArgMin CumSum TopK"),
        ("random", "Bernoulli RandomNormal RandomUniform RandomNormalLike RandomUniformLike "
                   "Multinomial Dropout"),
        ("gather, scatter",
         "Gather GatherElements GatherND Scatter ScatterElements ScatterND OneHot TensorScatter"),
        ("cast", "Cast CastLike BitCast"),
        ("shape",
         "Reshape Transpose Concat Split Slice Squeeze Unsqueeze Expand Tile Pad Flatten Shape "
         "Size Identity Constant ConstantOfShape Range EyeLike Trilu " "ReverseSequence Where"),
        ("elementwise",
         "Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr "
         "BitwiseXor Ceil Celu Clip Cos Cosh Div Elu Equal Erf Exp "
         "Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish IsInf IsNaN LeakyRelu Less "
         "LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow "
         "Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum "
         "Swish Tan Tanh ThresholdedRelu Xor"),)]


def find(suites):
    found = []
    for s in suites:
        folder = os.path.join(DATA, SUITES[s])
        for n in sorted(os.listdir(folder)):
            if s == "light":
                if n.endswith(".onnx"):
                    found.append(Case(s, n[:-5], os.path.join(folder, n)))
            elif os.path.exists(os.path.join(folder, n, "model.onnx")):
                found.append(Case(s, n, os.path.join(folder, n, "model.onnx")))
    return found


# ---- when an answer is right

RANDOM = {"Bernoulli", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike",
          "Multinomial"}


def is_random(case):
    """Drawn numbers are checked by type, shape and distribution: nothing fixes the generator."""
    if case.name.startswith("test_training_dropout") and "zero_ratio" not in case.name:
        return True
    return any(n.op_type in RANDOM for n in case.model.graph.node) or "test_bernoulli" in case.name


def compare(got, want, random=False):
    """None, or why it is wrong."""
    if want is None:
        return None if got is None else "a value where none is expected"
    if isinstance(want, list):
        if not isinstance(got, list):
            return "not a sequence"
        if len(got) != len(want):
            return "a sequence of %d, expected %d" % (len(got), len(want))
        for k, (g, w) in enumerate(zip(got, want)):
            why = compare(g, w, random)
            if why:
                return "element %d: %s" % (k, why)
        return None
    if not isinstance(got, Tensor):
        return "not a tensor"
    if got.dtype != want.dtype:
        return "type %s, expected %s" % (got.dtype, want.dtype)
    if got.array.shape != want.array.shape:
        return "shape %s, expected %s" % (list(got.array.shape), list(want.array.shape))
    g, w = got.numbers(want.as_bits), want.numbers()
    if want.dtype == "string":
        return (None if (g == w).all()
                else "texts differ: %s, expected %s" % (g.tolist(), w.tolist()))
    if random:
        gm, wm = np.mean(g.astype(np.float64)), np.mean(w.astype(np.float64))
        if w.dtype.kind in "biu" and not set(np.unique(g)) <= set(np.unique(w)):
            return "values outside %s" % np.unique(w)
        spread = np.std(w.astype(np.float64)) / max(1, w.size) ** 0.5
        return (None if abs(gm - wm) <= 8 * spread + 1e-3
                else "mean %g, expected about %g" % (gm, wm))
    if np.issubdtype(w.dtype, np.inexact):
        with np.errstate(all="ignore"):
            close = np.isclose(g, w, rtol=RTOL, atol=ATOL, equal_nan=True)
            # both nothing but rounding beside the largest element
            if want.dtype == "f32" and not close.all():
                noise = 2.0 ** -23 * np.abs(w[np.isfinite(w)]).max(initial=0)
                close |= (np.abs(g) <= noise) & (np.abs(w) <= noise)
    else:
        close = g == w
        # onnx compares integers with the same tolerance
        if not close.all() and want.dtype not in ("pred",):
            close = np.isclose(g.astype(np.float64), w.astype(np.float64), rtol=RTOL, atol=ATOL)
    if np.all(close):
        return None
    bad = np.argwhere(~np.atleast_1d(close))
    at = tuple(bad[0])
    return ("%d of %d elements differ; first at %s: %s, expected %s"
            % (len(bad), w.size, list(map(int, at)), np.atleast_1d(g)[at], np.atleast_1d(w)[at]))
