#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""client/python against a daemon, over HTTP and over gRPC: messages beside google.protobuf, element
types, uploads, errors, events, buffers, trainings, plans, tokens and TLS, threads, asyncio; and the
examples of its README as written. Usage: python_client.py --build DIR [NAME...]
(build/venv/bin/python)"""
import argparse, asyncio, hashlib, os, pickle, random, re
import shutil, subprocess, sys, tempfile, threading, time
import numpy as np
import onnx
from onnx import TensorProto, helper
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PACKAGE = os.path.join(ROOT, "client", "python")
sys.path[:0] = [PACKAGE, os.path.join(ROOT, "tests")]
import hlod
from hlod import _schema, _wire, dtypes
from harness import Daemon, Results, until

DOUBLE = (b"HloModule double\n\nENTRY main {\n  x = f32[2,3] parameter(0)\n  ROOT y = f32[2,3] "
          b"add(x, x)\n}\n")
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def copy_of(kind, dims):
    return (f"HloModule copy\n\nENTRY main {{\n  x = {kind}[{dims}] parameter(0)\n  ROOT y = "
            f"{kind}[{dims}] copy(x)\n}}\n".encode())


def model(name="image", dims=("N", 3, 8, 8), classes=5, seed=0):
    """scores = Softmax(Flatten(image) W)"""
    w = np.random.default_rng(seed).normal(size=(int(np.prod(dims[1:])), classes)).astype(
        np.float32)
    nodes = [helper.make_node("Flatten", [name], ["flat"]),
             helper.make_node("MatMul", ["flat", "w"], ["logits"]),
             helper.make_node("Softmax", ["logits"], ["scores"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (dims[0], classes))],
        [onnx.numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), w


def raises(kind, fn, *parts):
    try:
        fn()
    except kind as e:
        assert all(p in str(e) for p in parts), str(e)
        return e
    raise AssertionError(f"{kind.__name__} expected")


# ---- without a server

def random_message(rng, name, depth=0):
    out = {}
    for number, (field, kind, target) in _schema.MESSAGES[name].items():
        if rng.random() < 0.4 or (kind[0] == "m" and depth > 3) or name + "." + field in oneof_rest:
            continue
        one = {"i": lambda: rng.choice([1, -1, rng.getrandbits(31), -rng.getrandbits(31)]),
               "u": lambda: rng.getrandbits(31), "d": lambda: rng.uniform(-9, 9), "f": lambda: 0.5,
               "?": lambda: True, "s": lambda: rng.choice(["a", "é", "x" * 200]),
               "b": lambda: rng.randbytes(5),
               "m": lambda: random_message(rng, target, depth + 1)}.get(kind[0])
        if one:
            out[field] = [one() for _ in range(rng.randint(1, 3))] if kind.endswith("*") else one()
    return out


oneof_rest = set()


def plain(v):
    return ({k: plain(x) for k, x in v.items()} if isinstance(v, dict) else [plain(x) for x in v]
            if isinstance(v, list) else bytes(v) if isinstance(v, memoryview) else v)


def wire():
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
    import json
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run(["protoc", "-I" + ROOT, f"--descriptor_set_out={f.name}",
                        "proto/hlod.proto"], check=True, cwd=ROOT)
        files = descriptor_pb2.FileDescriptorSet.FromString(f.read())
    pool = descriptor_pool.DescriptorPool()
    for x in files.file:
        pool.Add(x)
    types = message_factory.GetMessageClassesForFiles(["proto/hlod.proto"], pool)
    for m in _schema.MESSAGES:
        d = types.get("hlod.v1." + m)
        for o in d.DESCRIPTOR.oneofs if d else ():
            oneof_rest.update(f"{m}.{x.name}" for x in list(o.fields)[1:])
    rng, seen = random.Random(5), 0
    for name in [m for m in _schema.MESSAGES if "hlod.v1." + m in types] * 6:
        want = random_message(rng, name)
        theirs = types["hlod.v1." + name]()
        json_format.ParseDict({}, theirs)
        theirs.ParseFromString(_wire.encode(name, want))
        assert theirs.SerializeToString(deterministic=True) == type(theirs).FromString(
            _wire.encode(name, want)).SerializeToString(deterministic=True)
        assert plain(_wire.decode(name, theirs.SerializeToString())) == plain(want), name
        text = json.loads(json_format.MessageToJson(theirs))
        assert plain(_wire.from_json(name, text)) == plain(want), name
        data = theirs.SerializeToString()
        # cut short: refused or a shorter message, never another exception
        for n in range(0, len(data), max(1, len(data) // 20)):
            try:
                _wire.decode(name, data[:n])
            except _wire.DecodeError:
                seen += 1
    assert seen > 50
    raises(TypeError, lambda: _wire.encode("RunRequest", {"modle": "x"}), "modle", "model")
    for message, fields, words in (
        ("RunRequest", {"model": 5}, "RunRequest.model: expected a text, found int 5"),
        ("Dim", {"size": 1.5}, "Dim.size: expected a whole number, found float 1.5"),
        ("Dim", {"size": "7"}, "found str '7'"),
        ("Dim", {"size": 1 << 70}, "Dim.size: expected a whole number"),
        ("TensorSpec", {"optional": "no"}, "True or False"),
        ("TensorSpec", {"dims": [{"size": [1]}]}, "Dim.size: expected a whole number"),
        ("TensorSpec", {"dims": 3}, "expected a list, each a dict of Dim"),
        ("ShapeBinding", {"dims": "12"}, "expected a list, each a whole number"),
        ("ShapeBinding", {"dims": ["a"]}, "ShapeBinding.dims"),
        ("TensorSpec", {"dims": [5]}, "found list [5]")):
        raises(hlod.InvalidArgument, lambda: _wire.encode(message, fields), words)
    assert _wire.encode("ShapeBinding", {"dims": np.array([1, 300])}) == _wire.encode(
        "ShapeBinding", {"dims": [np.int64(1), 300]})


def schema():
    with tempfile.NamedTemporaryFile() as f:
        subprocess.run([sys.executable, os.path.join(PACKAGE, "make_schema.py"), f.name],
                       check=True, cwd=ROOT)
        assert f.read() == open(os.path.join(PACKAGE, "hlod", "_schema.py"), "rb").read(), (
            "make docs")


def versions():
    want = re.search(r"^VERSION *:= *(\S+)", open(os.path.join(ROOT, "Makefile")).read(), re.M)[1]
    project = re.search(r'^version = "(.*)"', open(os.path.join(PACKAGE, "pyproject.toml")).read(),
                        re.M)[1]
    assert want == project == hlod.__version__


def addresses():
    w = hlod._where.where
    assert (w("h:9", None, None, None, None).port, w("https://h", None, None, None, None).tls,
            w("grpc://[::1]:7", None, None, None, None).host) == (9, True, "::1")
    for bad in ("http://h:x", "ftp://h:1", "h:1/path", "http://", "a b:1"):
        raises(hlod.InvalidArgument, lambda: hlod.connect(bad), "address")
    raises(ValueError, lambda: hlod.connect("far:8000", token="t"), "unencrypted")
    raises(hlod.Unavailable, lambda: hlod.connect("127.0.0.1:1").run("name", [X]), "cannot reach")
    e = raises(ConnectionError, lambda: hlod.connect("127.0.0.1:1").version(), "cannot reach",
               "hlod &")
    assert e.code == "UNAVAILABLE"
    raises(hlod.Unavailable, lambda: hlod.connect("grpc://127.0.0.1:1").call("Version", timeout=5),
           "cannot reach")


# ---- with one, over each transport

def runs(h):
    exe = h.compile(DOUBLE)
    assert ([str(t) for t in exe.inputs] == ["x: f32[2, 3]"] and exe.instructions
            and len(exe.digest) == 64 and exe.model == hashlib.sha256(DOUBLE).hexdigest())
    assert h.compile(DOUBLE).cache_hit
    wide = np.zeros((4, 6), np.float32)
    wide[::2, ::2] = X
    for x in (X, X.astype(">f4"), np.asfortranarray(X), wide[::2, ::2], X.tolist(), [X], {"x": X},
              {"x": X.tolist()}):
        r = exe.run(x)
        assert np.array_equal(r.output, 2 * X), x
    r.output[0, 0] = 5  # writable
    assert (r.device == "cpu:0" and "run" in r.timings and len(r.run_ms) == 1 and list(r)
            and r[0] is r.output)
    assert (np.array_equal(h.run(DOUBLE, X).output, 2 * X)
            and np.array_equal(h.run(exe.digest, X).output, 2 * X)
            and np.array_equal(h.run(exe.model, X.tolist()).output, 2 * X))
    p = exe.run(X, profile=True, repeat=5)
    assert (len(p.run_ms) == 5 and p.profile.rows and "kernel" in str(p.profile)
            and p.profile.records()[0]["impl"])
    assert exe.tune(seconds=1)["complete"]  # there is nothing to choose from
    assert ("ENTRY" in exe.inspect() and h.executables() and h.devices()[0]["name"] == "cpu:0"
            and h.targets() and h.ready())
    assert h.call("CacheStats")["executables"] >= 1


def types(h):
    rng = np.random.default_rng(1)
    for name, kind in [(n, dtypes.to_numpy(n)) for n in (*dtypes._NUMPY, *dtypes._ML)
                       if n not in ("s2", "u2")]:
        x = rng.integers(0, 2, (3, 4)).astype(np.int8).astype(kind)
        try:
            y = h.run(copy_of(name, "3,4"), x).output
        except hlod.HlodError as e:
            assert e.reason in ("UNSUPPORTED_DTYPE", "MALFORMED_MODEL", "COMPILE_FAILED"), e
            print(f"  {name}: {e}")
            continue
        assert y.dtype == kind and y.tobytes() == x.tobytes(), name
    assert (h.run(copy_of("f32", ""), np.float32(3)).output.shape == ()
            and h.run(copy_of("f32", "0,4"), np.zeros((0, 4), np.float32)).output.shape == (0, 4))
    raises(hlod.InvalidArgument, lambda: h.run(copy_of("f32", "2"), np.zeros(2, "datetime64[s]")),
           "datetime")
    big = rng.normal(size=(1024, 700)).astype(np.float32)
    assert np.array_equal(h.run(copy_of("f32", "1024,700"), big).output, big)


def texts(h):
    graph = helper.make_graph([helper.make_node("Identity", ["t"], ["u"])], "g",
                              [helper.make_tensor_value_info("t", TensorProto.STRING, [2])],
                              [helper.make_tensor_value_info("u", TensorProto.STRING, [2])])
    got = h.run(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
                {"t": np.array(["one", "zwei é"])}).output
    assert got.tolist() == ["one", "zwei é"]


def onnx_models(h):
    m, w = model()
    image = np.random.default_rng(2).normal(size=(2, 3, 8, 8)).astype(np.float32)
    z = image.reshape(2, -1).astype(np.float64) @ w
    want = np.exp(z) / np.exp(z).sum(1, keepdims=True)
    with tempfile.TemporaryDirectory() as dir:
        path = os.path.join(dir, "m.onnx")
        onnx.save(m, path)
        exe = h.compile(path, {"image": (2, 3, 8, 8)})
        for r in (h.run(path, {"image": image}), h.run(m, [image]), h.run(path, image),
                  exe.run(image)):
            np.testing.assert_allclose(r["scores"], want, rtol=1e-5, atol=1e-6)
        h.models.set("named", path)
        assert "named" in list(h.models) and h.models.list()[0]["loaded"]
        for r in (h.run("named", image), h.run("named:1", {"image": image.tolist()})):
            np.testing.assert_allclose(r["scores"], want, rtol=1e-5, atol=1e-6)
        assert h.models.remove("named") >= 1 and "named" not in list(h.models)
        raises(FileNotFoundError, lambda: h.run(os.path.join(dir, "none.onnx"), image))
    raises(LookupError, lambda: h.run("named", {"image": image}), "MODEL_NOT_FOUND")
    # An executable that two models share runs with the weights of the one it was compiled from
    # here.
    other, w2 = model(seed=9)
    a, b = h.compile(m, {"image": (2, 3, 8, 8)}), h.compile(other, {"image": (2, 3, 8, 8)})
    assert a.digest == b.digest and not np.allclose(a.run(image).output, b.run(image).output)


def jax_models(h):
    """What jax.jit(f).lower(...) returns is a model; JAX's arrays are inputs."""
    import jax
    x, y = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), np.ones((3, 4), np.float32)
    lowered = jax.jit(lambda x, y: jax.numpy.tanh(x) @ y).lower(x, y)
    for r in (h.compile(lowered).run([x, y]),
              h.run(lowered, (jax.numpy.asarray(x), jax.numpy.asarray(y)))):
        np.testing.assert_allclose(r.output, np.tanh(x) @ y, rtol=1e-5, atol=1e-6)
    # Its arguments by the names they were written with, or XLA's; called as the function is, with
    # trees in and out.

    def f(params, x, unused, *rest, scale=1.0):
        hidden = jax.numpy.tanh(x @ params["w"] + params["b"])
        return {"out": hidden * scale, "m": [hidden.sum(), rest[0]]}
    params = {"w": y, "b": np.full(4, 0.5, np.float32)}
    exe = h.compile(jax.jit(f).lower(params, x, np.zeros(3, np.float32), x, scale=2.0))
    assert [s.name for s in exe.inputs] == ["params['b']", "params['w']", "x", "rest[0]",
                                            "scale"], exe.inputs
    got, want = exe(params, x, np.zeros(3, np.float32), x,
                    scale=2.0), f(params, x, None, x, scale=2.0)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), got, want)
    named = {"params['w']": y, "params__b__.1": params["b"], "x": x, "rest[0]": x, "scale.1": 2.0}
    np.testing.assert_allclose(exe.run(named)[2], want["out"], rtol=1e-5)
    raises(ValueError, lambda: exe(params, x), "of the form")
    raises(ValueError, lambda: h.compile(model()[0], {"image": (1, 3, 8, 8)})(x), "jax.jit")


def uploads(h):
    """Above a mebibyte: asked for by digest first, then sent in pieces; once."""
    m, w = model("x", ("N", 3, 64, 64), 300, seed=random.getrandbits(30))
    with tempfile.TemporaryDirectory() as dir:
        path = os.path.join(dir, "large.onnx")
        onnx.save(m, path)
        assert os.path.getsize(path) > 14 << 20
        x = np.ones((1, 3, 64, 64), np.float32)
        sent = []
        send = h._send
        h._send = lambda *a: sent.append(a) or send(*a)
        try:
            first = h.run(path, {"x": x})["scores"]
            h.run(path, {"x": x})
            h.compile(path, {"x": (1, 3, 64, 64)})
            assert np.array_equal(h.run(open(path, "rb").read(), {"x": x})["scores"], first)
            h.upload(path)
        finally:
            del h._send
        assert len(sent) == 1, sent


def external(h):
    """Weights in files beside the model go with it; what points elsewhere is refused."""
    m, w = model(seed=3)
    image = np.ones((1, 3, 8, 8), np.float32)
    want = h.run(m, {"image": image})["scores"]
    with tempfile.TemporaryDirectory() as dir:
        path = os.path.join(dir, "m.onnx")
        onnx.save(m, path, save_as_external_data=True, location="weights.bin", size_threshold=16)
        assert os.path.getsize(path) < 1000 < os.path.getsize(dir + "/weights.bin")
        assert np.array_equal(h.run(path, {"image": image})["scores"], want)
        time.sleep(0.01)
        # other weights: not the ones that were remembered
        with open(dir + "/weights.bin", "r+b") as f:
            f.write(np.full(64, 2, np.float32).tobytes())
        assert not np.array_equal(h.run(path, {"image": image})["scores"], want)
        with open(dir + "/weights.bin", "r+b") as f:
            f.truncate(100)
        raises(hlod.InvalidArgument, lambda: h.run(path, {"image": image}), "weights.bin",
               "100 bytes")
        os.remove(dir + "/weights.bin")
        raises(FileNotFoundError, lambda: h.run(path, {"image": image}))
        m.graph.initializer[0].CopyFrom(
            TensorProto(name="w", dims=w.shape, data_type=1, data_location=1, external_data=[
                            onnx.StringStringEntryProto(key="location", value="../secret")]))
        with open(path, "wb") as f:
            f.write(m.SerializeToString())
        raises(hlod.InvalidArgument, lambda: h.run(path, {"image": image}), "not below")


def errors(h):
    exe = h.compile(DOUBLE)
    e = raises(ValueError, lambda: exe.run(np.zeros((3, 3), np.float32)), "expected 2, found 3")
    assert (e.code, e.reason) == ("INVALID_ARGUMENT", "SHAPE_MISMATCH") and e.hint
    e = raises(hlod.InvalidArgument, lambda: exe.run(X.astype(np.float64)), "DTYPE_MISMATCH",
               "hint: array.astype(numpy.float32)")
    again = pickle.loads(pickle.dumps(e))
    assert (type(again) is type(e) and str(again) == str(e)
            and (again.code, again.reason, again.message, again.hint)
            == (e.code, e.reason, e.message, e.hint))
    other = pickle.loads(pickle.dumps(exe.run(X)))
    assert np.array_equal(other.output, 2 * X) and other.timings
    closed = hlod.connect(h._t.address)
    assert repr(closed) == f"<hlod.Client {h._t.address}>"
    closed.run(DOUBLE, X)
    closed.close()
    raises(hlod.FailedPrecondition, lambda: closed.run(DOUBLE, X), "closed")
    raises(hlod.InvalidArgument, lambda: exe.run({"z": X}), "UNKNOWN_INPUT",
           "no input 'z'; it has x f32[2,3]")
    raises(hlod.InvalidArgument, lambda: exe.run(X, outputs=["z"]), "UNKNOWN_OUTPUT",
           "no output 'z'; it has", "f32[2,3]")
    raises(hlod.InvalidArgument, lambda: exe.run([X, X]), "2 inputs, the model has 1",
           "x: f32[2, 3]")
    raises(hlod.InvalidArgument, lambda: exe.run(), "MISSING_INPUT", "'x' is missing (x f32[2,3])")
    assert not raises(ValueError, lambda: h.run(DOUBLE, np.zeros((3, 3), np.float32)),
                      "expected 2, found 3").hint
    raises(hlod.NotFound, lambda: h.run(DOUBLE, X, device="gpu:7"),
           "no device worker for gpu:7; there are cpu:0")
    # What is no model says so, in whatever way its inputs are given.
    raises(hlod.InvalidArgument, lambda: h.run(b"junk", X), "format")
    raises(hlod.InvalidArgument, lambda: h.run(b"", X), "empty")
    raises(hlod.InvalidArgument, lambda: h.compile(b""), "empty")
    raises(hlod.NotFound, lambda: h.run("nobody", X), "no model 'nobody' on the server", "h.models")
    raises(ValueError, lambda: h.run(DOUBLE, X, timeout=-1), "timeout -1")
    raises(TypeError, lambda: pickle.dumps(h), "in each process")
    raises(hlod.InvalidArgument, lambda: h.compile(b"junk"), "UNSUPPORTED_FORMAT")
    raises(hlod.InvalidArgument, lambda: h.compile(42), "int is no model")
    raises(hlod.NotFound, lambda: h.compile("nobody"), "nobody")
    raises(hlod.NotFound, lambda: h.inspect("0" * 64))
    raises(hlod.FailedPrecondition,
           lambda: h.run(copy_of("f32", "77"), np.zeros(77, np.float32), no_compile=True),
           "WOULD_COMPILE")
    raises(TypeError, lambda: h.call("Inspect", {"nothing": 1}), "nothing")
    graph = helper.make_graph([helper.make_node("NoSuchOp", ["x"], ["y"])], "g",
                              [helper.make_tensor_value_info("x", 1, [1])],
                              [helper.make_tensor_value_info("y", 1, [1])])
    raises(hlod.HlodError,
           lambda: h.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                               ir_version=8)), "UNSUPPORTED_OP", "NoSuchOp")


def strangers(h):
    """What newcomers write first: answered by what is meant, not by Python's insides."""
    double = "HloModule d\nENTRY m { x = bf16[4] parameter(0) ROOT y = bf16[4] add(x, x) }\n"
    assert h.run(double, {"x": [1, 2, 3, 4]}).output.tolist() == [2, 4, 6, 8], "a module's text"
    raises(hlod.InvalidArgument, lambda: h.run(double, {"x": np.ones(4, np.float32)}),
           "hint: array.astype(ml_dtypes.bfloat16)")
    raises(hlod.InvalidArgument, lambda: h.compile(double, {"x": (1, "a")}),
           "shapes['x']: expected a sequence of integers")
    raises(hlod.InvalidArgument, lambda: h.call("ListJob"), "did you mean 'ListJobs'?")
    raises(hlod.InvalidArgument, lambda: hlod.connect("https://127.0.0.1:1", ca="/no/such.pem"),
           "/no/such.pem", "No such file")
    assert h.models() == h.models.list()
    assert h.run("HloModule n\nENTRY m { ROOT y = f32[2] constant({1, 2}) }\n", []).output[1] == 2
    sequence_and_map(h)


def sequence_and_map(h):
    """A list of arrays for a sequence, None for what is not given, a dict for a map."""
    def made(node, x, y):
        graph = helper.make_graph([node], "g", [x], [y])
        ids = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
        return helper.make_model(graph, opset_imports=ids, ir_version=8)
    rows = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])
    join = made(helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0),
                helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None), rows)
    assert h.run(join, {"s": [X, X[:1]]}).output.shape == (3, 3)
    assert h.run(join, [[X, X[:1]]]).output.shape == (3, 3)
    assert h.run(join, {"s": [X, [[1, 2, 3]]]}).output.shape == (3, 3)
    for nothing in ({"s": []}, {"s": None}, [None]):
        raises(hlod.InvalidArgument, lambda: h.run(join, nothing), "the sequence is empty")
    any_rank = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    negative = made(helper.make_node("Neg", ["x"], ["y"]), any_rank, rows)
    for stacked in ({"x": [X[0], X[1]]}, [[X[0], X[1]]]):  # one array, whatever its rank
        assert h.run(negative, stacked).output.tolist() == (-X).tolist()
    kind = helper.make_map_type_proto(TensorProto.STRING,
                                      helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    words = made(helper.make_node("DictVectorizer", ["m"], ["y"], domain="ai.onnx.ml",
                                  string_vocabulary=["cat", "dog"]),
                 helper.make_value_info("m", kind), rows)
    assert h.run(words, {"m": {"dog": 2.5, "cow": 1}}).output.tolist() == [[0, 2.5]]
    assert h.run(words, {"m": {}}).output.tolist() == [[0, 0]]


def events(h):
    seen = [e.kind for e in h.compile_events(copy_of("f32", f"{random.randint(2, 10 ** 6)}"))]
    assert seen.count("pass") > 5 and seen[-2:] == ["compile_result", "done"], seen
    found = []
    r = h.run(DOUBLE, X, profile=True, on_event=found.append)
    assert (np.array_equal(r.output, 2 * X) and r.profile.rows
            and [e.kind for e in found][-1] == "done" and "result" in str(found[-2]))
    for e in h.run_events(DOUBLE, X):
        break  # the call is cancelled; the client goes on
    assert np.array_equal(h.run(DOUBLE, X).output, 2 * X)


def buffers(h):
    exe = h.compile(DOUBLE)
    with h.put(X, lease=60) as b:
        assert (b.dtype == "f32" and b.shape == (2, 3) and np.array_equal(b.get(), X)
                and b.handle in [x.handle for x in h.buffers()])
        kept = exe.run(b, keep=True).output
        assert isinstance(kept, hlod.Buffer) and np.array_equal(kept.get(), 2 * X)
        assert np.array_equal(exe.run({"x": kept.donate()}).output, 4 * X)
        raises(hlod.FailedPrecondition, kept.get, "BUFFER_DONATED")
        b.renew(-1)
    raises(hlod.NotFound, b.get, "BUFFER_NOT_FOUND")
    many = h.put(a=X, b=2 * X)
    assert [x.name for x in many] == ["a", "b"]
    for x in many:
        x.free()


def trains(h):
    proto, _ = model(seed=7)
    r = np.random.default_rng(0)
    x, label = r.normal(0, 0.2, (256, 3, 8, 8)).astype(np.float32), r.integers(0, 5, 256)
    x[np.arange(256), :, label] += 1
    rows, held = {"image": x[:192], "label": label[:192]}, {"image": x[192:], "label": label[192:]}
    how = dict(optimizer="adam:rate=1e-2", batch=64, epochs=8, settings={"clip": 1})
    t = h.train(proto, rows, "cross-entropy", validation=held, **how)
    seen = list(t.watch())
    losses = [v for p in seen for v in p.losses]
    done = t.wait()
    assert done.progress.step == 24 and done.progress.state == "passed", done.progress
    assert len(losses) <= 24 and [s for s, _, _ in done.curve] == list(range(1, 25)), done.curve
    assert done.curve[-1][1] < done.curve[0][1] and done.progress.validation_accuracy > 0.5
    with tempfile.TemporaryDirectory() as d:
        done.save(d + "/t.onnx")
        done.save_state(d + "/t.safetensors")
        with open(d + "/t.onnx", "rb") as f:
            assert hashlib.sha256(f.read()).hexdigest() == done.model
        assert os.path.getsize(d + "/t.safetensors") > 3 * 192 * 5 * 4
    got = h.run(done.model, {"image": x[192:]})["scores"].argmax(1)
    assert abs((got == label[192:]).mean() - done.progress.validation_accuracy) < 1e-6
    more = h.train(proto, rows, "cross-entropy", **{**how, "epochs": 9}, resume=done.checkpoint)
    assert more.wait().progress.step == 27 and h.training(more.job).wait().model
    bad = h.train(proto, rows, "hinge")
    raises(hlod.InvalidArgument, bad.wait, "no loss is called 'hinge'")
    raises(hlod.InvalidArgument, lambda: h.train(proto, rows, "mse", epochs=1, steps=1), "both")
    raises(hlod.InvalidArgument, lambda: h.train(proto, {"image": np.array(["a"])}, "mse"), "rows")
    long = h.train(proto, rows, "cross-entropy", steps=10**6)
    for p in long.watch():
        if p.step:
            break
    long.cancel()
    raises(hlod.HlodError, long.wait, "cancelled")

    async def later():
        a = hlod.aio.AsyncClient(h)
        t = await a.train(proto, rows, "cross-entropy", **how)
        assert [p.state async for p in t.watch()][-1] == "passed"
        assert (await t.wait()).model
    asyncio.run(later())


def plans(h):
    d = h.compile(DOUBLE).digest
    out = h.compile(DOUBLE).outputs[0].name
    r = h.run_plan([{"name": "one", "model": d, "inputs": [{"name": "x", "input": "x"}]},
                    {"name": "two", "model": d,
                     "inputs": [{"name": "x", "step": "one", "output": out}]}], {"x": X},
                   [{"step": "two", "name": "y"}])
    assert np.array_equal(r["y"], 4 * X) and len(r.steps) == 2


def threads(h):
    exe, wrong = h.compile(DOUBLE), []

    def work(k):
        for n in range(20):
            if not np.array_equal(exe.run(X + k + n).output, 2 * (X + k + n)):
                wrong.append(k)
    all = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in all:
        t.start()
    for t in all:
        t.join()
    assert not wrong


def arrays(h):
    """What is no array of the input's type says so, with the input's name; nothing wraps or is cut
    off."""
    for bad, words in ((None, "is missing"), ([[1, None, 2]] * 2, "NoneType"),
                       ({"a": 1}, "dict is no number"), ([[1, 2], [3]], "no array"),
                       (np.ma.masked_array(X, X > 1), "masked"),
                       (np.zeros((2, 3), "datetime64[s]"), "datetime64")):
        raises(hlod.InvalidArgument, lambda: h.run(DOUBLE, {"x": bad}), "input 'x'", words)
    raises(hlod.InvalidArgument, lambda: h.run(DOUBLE, [["a", "b", "c"]] * 2),
           "expected f32, found string")
    for dtype, bad in (("s8", 1000), ("u8", -1), ("s32", 1.5), ("s64", float("nan")), ("u64", -1),
                       ("s4", 8)):
        raises(hlod.InvalidArgument, lambda: h.run(copy_of(dtype, "2"), [1, bad]), "input 'x'",
               f"is no value of {dtype}")
    assert (h.run(copy_of("s8", "2"), [-128, 127.0]).output.tolist() == [-128, 127]
            and h.run(copy_of("f32", "2"), [1, 0.1]).output[1] == np.float32(0.1))
    assert h.run(copy_of("pred", "2"), [True, False]).output.tolist() == [True, False]
    wide = np.arange(24, dtype=np.float32).reshape(4, 6)
    for view in (wide[::2, ::2], wide[3:1:-1, :3], np.asfortranarray(wide[:2, :3]), wide[:3, :2].T,
                 wide[:2, :3].astype(">f4"), np.broadcast_to(np.float32(3), (2, 3))):
        assert np.array_equal(h.run(DOUBLE, view).output, 2 * view)
    for dtype, v in (("f32", np.float64(2.5)), ("s32", np.int64(7)), ("pred", np.bool_(True)),
                     ("bf16", 2.5), ("f16", np.float32(0.5)), ("s4", -3)):
        assert (h.run(copy_of(dtype, ""), {"x": v}).output == v
                and h.run(copy_of(dtype, ""), v).output == v)
    raises(hlod.InvalidArgument, lambda: h.run(copy_of("s8", ""), np.int64(300)),
           "is no value of s8")
    assert h.run(copy_of("f32", "0,3"), np.zeros((0, 3), np.float32)).output.shape == (0, 3)


def asynchronous(h):
    async def main():
        a = hlod.aio.AsyncClient(h)
        exe = await a.compile(DOUBLE)
        assert (np.array_equal((await exe.run(X)).output, 2 * X) and exe.inputs[0].name == "x"
                and "done" in [e.kind async for e in exe.stream(X)])
        await a.models.set("awaited", DOUBLE)
        assert ("awaited" in [m["name"] for m in await a.models.list()]
                and await a.models.remove("awaited") == 1)
        got = await asyncio.gather(*[a.run(DOUBLE, X + k) for k in range(5)])
        assert all(np.array_equal(r.output, 2 * (X + k)) for k, r in enumerate(got))
        assert "done" in [e.kind async for e in a.run_events(DOUBLE, X)]
        async for e in a.run_events(DOUBLE, X):
            break
        assert (await a.version())["api"] == "hlod.v1" and a.transport == h.transport
    asyncio.run(main())


def loop(n):
    """Counts to n, one addition at a time: takes as long as is wanted."""
    return f"""HloModule count
c {{
  s = (s32[], f32[512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({n})
  ROOT l = pred[] compare(i, n), direction=LT
}}
b {{
  s = (s32[], f32[512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  v = f32[512] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  w = f32[512] sine(v)
  ROOT t = (s32[], f32[512]) tuple(j, w)
}}
ENTRY main {{
  x = f32[512] parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[512]) tuple(z, x)
  w = (s32[], f32[512]) while(t), condition=c, body=b
  ROOT y = f32[512] get-tuple-element(w), index=1
}}
""".encode()


def deadlines(h):
    raises(TimeoutError, lambda: h.run(loop(2 ** 31 - 1), np.ones(512, np.float32), timeout=1.0),
           "DEADLINE_EXCEEDED")  # the whole takes hours


EACH = [runs, types, texts, onnx_models, jax_models, uploads, external, errors, strangers, events,
        buffers, trains, plans, threads, arrays, asynchronous, deadlines]

# ---- servers of their own


def too_large(build):
    """A body that the server refuses and closes on while it is sent: the refusal, not a broken
    pipe."""
    d = Daemon(build + "/hlod", build + "/hlod-worker", args=("--max-message-bytes", "1M"))
    try:
        with hlod.connect("%s:%d" % d.addr) as h:
            big = ("HloModule d\nENTRY m { x = f32[16777216] parameter(0) ROOT y = f32[16777216] "
                   "negate(x) }\n")
            raises(hlod.InvalidArgument, lambda: h.run(big, {"x": np.zeros(1 << 24, np.float32)}),
                   "BODY_TOO_LARGE", "--max-message-bytes")
        with hlod.connect("grpc://" + d.grpc) as h:
            raises(hlod.InvalidArgument, lambda: h.run(big, {"x": np.zeros(1 << 24, np.float32)}),
                   "BODY_TOO_LARGE", "--max-message-bytes")
            raises(hlod.InvalidArgument, lambda: h.call("RemoveModel", {"name": 5}),
                   "RemoveModelRequest.name: expected a text, found int 5")
    finally:
        d.stop()


def reconnects(build):
    """A kept connection that the server has closed, or a server that was started again: the next
    call does not notice."""
    data = tempfile.mkdtemp()
    d = Daemon(build + "/hlod", build + "/hlod-worker", data=data)
    h = hlod.connect("%s:%d" % d.addr)
    h.version()
    port = d.addr[1]
    d.stop_keep()
    raises(hlod.Unavailable, h.version)
    d = Daemon(build + "/hlod", build + "/hlod-worker", data=data,
               args=("--http", f"127.0.0.1:{port}"))
    assert h.version()["version"]
    kept = h._t._idle[0].sock
    kept.shutdown(2)
    assert np.array_equal(h.run(DOUBLE, X).output, 2 * X)
    # Over gRPC; and each transport at the other's port says what that is.
    g, at = hlod.connect("grpc://" + d.grpc), d.grpc
    assert np.array_equal(g.run(DOUBLE, X).output, 2 * X)
    raises(hlod.Unavailable, lambda: hlod.connect("http://" + at).version(), "does not speak HTTP",
           "grpc://")
    raises(hlod.Unavailable, lambda: hlod.connect(f"grpc://127.0.0.1:{port}").version(),
           "cannot reach", "that is an HTTP port")
    raises(hlod.Unavailable, lambda: hlod.connect("grpcs://" + at).version(),
           "without TLS is grpc://")
    d.stop_keep()
    d = Daemon(build + "/hlod", build + "/hlod-worker", data=data,
               args=("--http", f"127.0.0.1:{port}", "--grpc", at))
    assert np.array_equal(g.run(DOUBLE, X).output, 2 * X)
    g.close()
    raises(hlod.FailedPrecondition, g.version, "closed")
    d.stop()
    shutil.rmtree(data, ignore_errors=True)


def defaults(build):
    """A host alone: gRPC where it answers, else HTTP."""
    d = Daemon(build + "/hlod", build + "/hlod-worker")
    ports, kept = hlod._where.PORTS, dict(hlod._where.PORTS)
    try:
        ports.update(http=d.addr[1], grpc=int(d.grpc.rsplit(":", 1)[1]))
        assert (hlod.connect().transport == "grpc"
                and hlod.connect("127.0.0.1").version()["api"] == "hlod.v1")
        ports["grpc"] = 1
        assert hlod.connect().transport == "http" and hlod.connect("http://127.0.0.1").ready()
    finally:
        ports.update(kept)
        d.stop()


def secure(build):
    work = tempfile.mkdtemp()
    def run(*a):
        return subprocess.run(a, check=True, capture_output=True, text=True, cwd=work).stdout
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k.pem", "-out",
        "c.pem", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1")
    token = run(build + "/hlo", "tokens", "add", "py", "--scopes", "read,run", "--file",
                "tokens").split()[-1]
    d = Daemon(build + "/hlod", build + "/hlod-worker",
               args=("--tokens", work + "/tokens", "--tls-cert", work + "/c.pem", "--tls-key",
                     work + "/k.pem"), ready=False)
    try:
        address, ca = "%s:%d" % d.addr, work + "/c.pem"
        until("ready", 20, lambda: hlod.connect("https://" + address, ca=ca).ready())
        for a in ("https://" + address, "grpcs://" + d.grpc):
            h = hlod.connect(a, token=token, ca=ca)
            assert h.devices() and h.transport == a[:4]
            raises(PermissionError, lambda: h.compile(DOUBLE), "MISSING_SCOPE", "compile")
            raises(hlod.Unauthenticated, hlod.connect(a, ca=ca).devices, "NO_CREDENTIALS", "hint")
            raises(hlod.Unauthenticated, hlod.connect(a, ca=ca, token="hlod_x").devices)
            raises(hlod.Unavailable, lambda: hlod.connect(a).call("Version", timeout=5))
        raises(hlod.Unavailable, hlod.connect("https://" + address).version, "not trusted", "ca=")
        raises(hlod.Unavailable, hlod.connect("http://" + address).version)
        os.environ.update(HLOD_ADDR=address, HLOD_TOKEN=token, HLOD_CACERT=ca)
        assert hlod.connect().devices()
        for k in ("HLOD_ADDR", "HLOD_TOKEN", "HLOD_CACERT"):
            del os.environ[k]
    finally:
        d.stop()
        shutil.rmtree(work, ignore_errors=True)
    d = Daemon(build + "/hlod", build + "/hlod-worker")
    try:
        raises(hlod.Unavailable, hlod.connect("https://%s:%d" % d.addr).version, "no TLS",
               "http://")
        raises(hlod.Unavailable, hlod.connect("http://" + d.grpc).version, "hint")
    finally:
        d.stop()


def serves(build):
    """hlod.serve(): a server as long as the block lasts; where it cannot start, why."""
    path = os.environ["PATH"]
    os.environ["PATH"] = build + ":" + path
    try:
        server = hlod.serve()
        with server as h:
            assert (np.array_equal(h.run(DOUBLE, X).output, 2 * X)
                    and "server.listen" in server.log())
        assert server.process.poll() == 0 and not os.path.exists(server._temporary)
        raises(hlod.Unavailable, lambda: hlod.serve(args=["--no-such-option"]), "--no-such-option")
        os.environ["PATH"] = "/nowhere"
        raises(hlod.NotFound, hlod.serve, "no program hlod")
    finally:
        os.environ["PATH"] = path


def readme(build):
    """Its Python, one block after the other, where the server is HLOD_ADDR; the figures in comments
    are not compared."""
    text = open(os.path.join(PACKAGE, "README.md")).read()
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) >= 6
    d = Daemon(build + "/hlod", build + "/hlod-worker")
    try:
        onnx.save(model()[0], os.path.join(d.dir, "model.onnx"))
        env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr, "PYTHONPATH": PACKAGE}
        p = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=d.dir, env=env,
                           capture_output=True, text=True, timeout=60)
        assert p.returncode == 0, p.stdout + p.stderr
        for want in ("(1, 5) cpu:0", "fusions", "ingest", "done",
                     "INVALID_ARGUMENT DTYPE_MISMATCH input 'image'", "hlod.Buffer"):
            assert want in p.stdout, (want, p.stdout)
    finally:
        d.stop()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("names", nargs="*")
    o = a.parse_args()
    build, results = os.path.abspath(o.build), Results()
    for k in [k for k in os.environ if k.startswith("HLOD_")]:
        del os.environ[k]

    def case(name, fn, *args):
        if not o.names or fn.__name__ in o.names:
            results.case(name, fn, *args)

    for fn in (wire, schema, versions, addresses):
        case(f"python client: {fn.__name__}", fn)
    d = Daemon(build + "/hlod", build + "/hlod-worker")
    try:
        for address in ("%s:%d" % d.addr, "grpc://" + d.grpc):
            with hlod.connect(address) as h:
                for fn in EACH:
                    case(f"python client over {h.transport}: {fn.__name__}", fn, h)
    finally:
        d.stop()
    for fn in (too_large, reconnects, defaults, secure, serves, readme):
        case(f"python client: {fn.__name__}", fn, build)
    return results.code()


sys.exit(main())
