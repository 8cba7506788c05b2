# SPDX-License-Identifier: Apache-2.0
"""Models with other weights (hlo-opt --with-weights) and safetensors files, against onnx and the
safetensors package: every way in which ONNX keeps an initializer, what stays as it is, what is
refused; files of either side read by the other, damaged ones by neither.
   new_weights.py BUILD"""
import json
import os
import random
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
import safetensors
import safetensors.numpy

BUILD = sys.argv[1]
DIR = tempfile.TemporaryDirectory()
R = np.random.RandomState(3)
F32 = R.randn(7, 5).astype(np.float32)
HALF = R.randn(4, 3).astype(np.float16)
F64 = R.randn(2, 6)
BRAIN = R.randn(9, 2).astype(ml_dtypes.bfloat16)
MANY = R.randn(400).astype(np.float32)


def at(name):
    return os.path.join(DIR.name, name)


def opt(*args):
    return subprocess.run([BUILD + "/hlo-opt", *args], capture_output=True, timeout=60)


def write(name, data):
    with open(at(name), "wb") as f:
        f.write(data)
    return at(name)


def typed(name, dtype, x):  # in float_data, int32_data or double_data
    return helper.make_tensor(name, dtype, x.shape, x.flatten())


def loose(name, x):  # float_data as one field for each number
    packed = onnx.TensorProto(name=name, data_type=TensorProto.FLOAT, dims=x.shape)
    data = b"".join(b"\x25" + v.tobytes() for v in x.flatten())
    return TensorProto.FromString(packed.SerializeToString() + data), data


def raw(name, dtype, x):
    return helper.make_tensor(name, dtype, x.shape, x.tobytes(), raw=True)


def model():
    """All forms: no two initializers have the same. Texts, annotations and what is no weight stand
    between them."""
    inits = [raw("raw", TensorProto.FLOAT, F32), typed("typed", TensorProto.FLOAT, F32),
             typed("half", TensorProto.FLOAT16, HALF), raw("raw half", TensorProto.FLOAT16, HALF),
             typed("double", TensorProto.DOUBLE, F64), raw("brain", TensorProto.BFLOAT16, BRAIN),
             typed("typed brain", TensorProto.BFLOAT16, BRAIN),
             numpy_helper.from_array(np.float32(3).reshape(1), "scalar"),
             numpy_helper.from_array(np.array([2, 3]), "numbers"),
             numpy_helper.from_array(MANY, "many")]
    inits[0].doc_string = "what it is"
    inner = helper.make_graph([helper.make_node("Identity", ["in"], ["z"])], "g", [],
                              [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
                              [numpy_helper.from_array(MANY + 1, "in")])
    c = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(MANY + 2))
    names = [t.name for t in inits] + ["c"]
    nodes = [c] + [helper.make_node("Shape", [n], ["s" + n]) for n in names]
    nodes += [helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner)]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.BOOL, [])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [400])] +
                          [helper.make_tensor_value_info("s" + n, TensorProto.INT64, None)
                           for n in names], inits, doc_string="of the graph")
    g.quantization_annotation.add().tensor_name = "raw"
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)])
    m.metadata_props.add(key="k", value="v")
    return m


def changed(name, code, new, source=None):
    """A model with one tensor of a safetensors file in the place of its own."""
    m = source or model()
    # A field of a later version, behind everything.
    source = m.SerializeToString() + b"\xfa\x3f\x03new"
    one = {"dtype": code, "shape": list(new.shape), "data_offsets": [0, new.nbytes]}
    head = json.dumps({name: one}).encode()
    file = len(head).to_bytes(8, "little") + head + new.tobytes()
    p = opt("--with-weights=" + write("w.safetensors", file), write("m.onnx", source))
    if p.returncode:
        raise ValueError(p.stderr.decode().strip())
    return m, onnx.ModelProto.FromString(p.stdout)


def keeps(name, code, new, source=None):
    """The one initializer has the new values, all else is as it was."""
    old, got = changed(name, code, new, source)
    place = [t.name for t in old.graph.initializer].index(name)
    was, now = old.graph.initializer[place], got.graph.initializer[place]
    if numpy_helper.to_array(now).tobytes() != new.tobytes():
        raise ValueError("the values are others")
    for t in (was, now):
        for field in ("raw_data", "float_data", "int32_data", "double_data"):
            t.ClearField(field)
    if b"\xfa\x3f\x03new" not in got.SerializeToString():
        raise ValueError("a field of a later version is lost")
    got.DiscardUnknownFields()
    if old != got:
        raise ValueError("something else has changed")


def long_lengths():
    """The initializer's, graph's and model's lengths get other sizes: varints of more bytes."""
    t, data = loose("loose", MANY[:25])
    m = model()
    m.graph.initializer.append(TensorProto.FromString(t.SerializeToString()))
    if len(data) != 5 * 25:
        raise ValueError("not one field for each")
    keeps("loose", "F32", MANY[25:50], m)


def refused(why, name, code, new):
    try:
        changed(name, code, new)
    except ValueError as e:
        if why not in str(e):
            raise ValueError("not for '%s': %s" % (why, e)) from e
        return
    raise ValueError("was taken")


def few_bits():
    m = model()
    x = R.randint(-8, 8, 4096).astype(np.int8)
    m.graph.initializer.append(helper.make_tensor("few", TensorProto.INT4, [64, 64], x))
    m.graph.node.append(helper.make_node("Cast", ["few"], ["y few"], to=TensorProto.FLOAT))
    m.graph.output.append(helper.make_tensor_value_info("y few", TensorProto.FLOAT, [64, 64]))
    m.opset_import[0].version = 21
    try:
        _, got = changed("few", "I8", x.reshape(64, 64), m)
    except ValueError as e:
        if "s4" not in str(e):
            raise
        return
    t = got.graph.initializer[-1]
    if len(t.raw_data) != 2048 or (numpy_helper.to_array(t) != x.reshape(64, 64)).any():
        raise ValueError("other values in %d bytes" % len(t.raw_data))


# ---- safetensors


def perceptron():
    w = {"w": R.randn(6, 4).astype(np.float32), "b": R.randn(4).astype(np.float32)}
    g = helper.make_graph([helper.make_node("Gemm", ["x", "w", "b"], ["y"])], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 6])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
                          [numpy_helper.from_array(v, k) for k, v in w.items()])
    return w, helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)])


def written():
    """What hlo-opt writes the package reads."""
    w, m = perceptron()
    p = opt("--train=loss=mse;optimizer=adam;batch=4", "--train-state=" + at("s.safetensors"),
            write("m.onnx", m.SerializeToString()))
    if p.returncode:
        raise ValueError(p.stderr.decode())
    got = safetensors.numpy.load_file(at("s.safetensors"))
    for k, v in w.items():
        if not np.array_equal(got[k], v) or got[k].dtype != v.dtype:
            raise ValueError("%s has other values" % k)
    slots = [k for k in got if k not in w]
    if len(slots) < 4 or not all(k.startswith("hlod.") for k in slots):
        raise ValueError("state: %s" % slots)


def reads(data):
    """None, or why hlo-opt does not read that file of the perceptron's weights."""
    _, m = perceptron()
    p = opt("--with-weights=" + write("r.safetensors", data),
            write("m.onnx", m.SerializeToString()))
    if p.returncode not in (0, 3):
        raise ValueError("exit %d: %s" % (p.returncode, p.stderr.decode()))
    return p.stderr.decode() if p.returncode else None


def package_reads(data):
    try:
        safetensors.deserialize(data)
        return True
    except safetensors.SafetensorError:
        return False


def of_the_package():
    """What the package writes hlo-opt reads: all types, names, empty tensors, texts."""
    w, _ = perceptron()
    other = {"hlod.%s \u00e9\"\\\n\U0001f600 %d" % (t, rank): np.zeros(shape, t)
             for t in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?")
             for rank, shape in enumerate([(), (3,), (2, 0), (1, 2, 3)])}
    why = reads(safetensors.numpy.save({**w, **other}, {"a": "\u00e9", "": "x"}))
    if why:
        raise ValueError(why)


def damaged():
    """Files with bytes of the header changed: what the package refuses is refused. What only
    hlo-opt refuses it says so; it may, for names that the model has not."""
    w, _ = perceptron()
    whole = safetensors.numpy.save({**w, "hlod.e": np.zeros((2, 0), np.float32)}, {"a": "b"})
    n = 8 + int.from_bytes(whole[:8], "little")
    r, both = random.Random(5), 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(r.randint(1, 2)):
            if r.random() < 0.5:
                data[r.randrange(n)] = r.choice(b"0123456789[]{},:\"\\ FIU-.\x00\xff")
            else:
                k = r.randrange(8, n)
                data[k:k + r.randint(0, 3)] = data[k + 1:k + r.randint(1, 5)]
        if r.random() < 0.1:
            data = data[:r.randrange(len(data))]
        ours, theirs = reads(bytes(data)), package_reads(bytes(data))
        if not theirs and ours is None:
            raise ValueError("only the package refuses %s" % bytes(data[:n]))
        both += not theirs
    if both < 50:
        raise ValueError("only %d of the files were damaged" % both)


TESTS = {"plain bytes": lambda: keeps("raw", "F32", F32 + 1),
         "typed numbers": lambda: keeps("typed", "F32", F32 + 1),
         "half precision in numbers": lambda: keeps("half", "F16", HALF + 1),
         "half precision": lambda: keeps("raw half", "F16", HALF + 1),
         "doubles in numbers": lambda: keeps("double", "F64", F64 + 1),
         "bfloat16": lambda: keeps("brain", "BF16", BRAIN + BRAIN),
         "bfloat16 in numbers": lambda: keeps("typed brain", "BF16", BRAIN + BRAIN),
         "more than a kilobyte": lambda: keeps("many", "F32", MANY + 1),
         "one field for each number": long_lengths,
         "elements of four bits": few_bits,
         "refused: no such weight": lambda: refused("no weight 'of'", "of", "F32", F32),
         "refused: another shape": lambda: refused("f32[7,5]", "raw", "F32", F32[:5]),
         "a single number": lambda: keeps("scalar", "F32", F32[:1, 0]),
         "a state as the package reads it": written,
         "files of the package": of_the_package,
         "damaged files": damaged}


def main():
    failed = 0
    for name, test in TESTS.items():
        why = ""
        try:
            test()
        except (ValueError, KeyError, subprocess.TimeoutExpired) as e:
            why = ": %s" % e
        failed += bool(why)
        print("%s %s%s" % ("FAIL" if why else "PASS", name, why), flush=True)
    return failed != 0


sys.exit(main())
