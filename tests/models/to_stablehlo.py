# SPDX-License-Identifier: Apache-2.0
"""HLO and ONNX written as StableHLO: jaxlib parses and verifies the text; read again it computes
what tests/ops expects; XLA:CPU computes from it what hlo-run computes from the ONNX model.
Usage: to_stablehlo.py BUILD [--all] [FILE.hlo...]: without FILES the first modules of each of
tests/ops (--all: all of them), those of tests/golden/stablehlo, and the models."""
import argparse
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

import zoo

os.environ["JAX_PLATFORMS"] = "cpu"
import jax  # noqa: E402
from jax._src.interpreters import mlir  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402

FIRST = 2  # modules of each file
# ONNX models, sizes of their dimensions, inputs' shapes
MODELS = (("mlp", "N=3", [(3, 784)]), ("mobilenet_v2", "N=1", [(1, 3, 224, 224)]))


class Failure(Exception):
    pass


def opt(build, args, text):
    return subprocess.run([build + "/hlo-opt", *args, "-"], input=text.encode(),
                          capture_output=True, timeout=60)


def parsed(context, text):
    try:
        with context, ir.Location.unknown():
            module = ir.Module.parse(text)
            module.operation.verify()
            return module
    except ir.MLIRError as e:
        raise Failure("jaxlib: " + re.sub(r"\s+", " ", str(e))[:300]) from e


def result_as(text, is_tuple):
    """What is read has a tuple of its results; a module with one array as its root has that."""
    text = re.sub(r", entry_computation_layout=.*", "", text)
    root = re.search(r"ROOT %tuple\S* = \((.*)\) tuple\((%[^,)]*)\)(, metadata=.*)?\n}\s*$", text)
    if is_tuple or not root:
        return text
    return "%sROOT %%only = %s copy(%s)\n}\n" % (text[:root.start()], root.group(1), root.group(2))


def again(build, context, part):
    """"refused" or "equal" for one module of tests/ops."""
    lines = part.splitlines()
    code = "\n".join(x for x in lines if not x.startswith("//"))
    says = [x for x in lines if re.match(r"// (IN|OUT|TOL|NAN|LIKE)", x)]
    if "ENTRY" not in code:
        return None
    p = opt(build, ["--to=stablehlo"], code)
    if p.returncode:
        why = p.stderr.decode()
        if "what StableHLO cannot say" in why:
            return "refused"
        raise Failure(why[-300:])
    parsed(context, p.stdout.decode())
    p = opt(build, [], p.stdout.decode())
    if p.returncode:
        why = p.stderr.decode()
        unfit = ("decides a shape", "cannot run", "are not bound", "cannot be run")
        if any(x in why for x in unfit):  # as StableHLO it needs more than a module of HLO does
            return "not taken"
        raise Failure("read again: " + why[-300:])
    entry = code[code.index("ENTRY"):]
    flat = not re.search(r"= \([^=]*parameter\(", entry)  # no tuple that OUT's text would have
    if not flat or not any(x.startswith("// OUT") for x in says):
        return "read"
    is_tuple = re.search(r"ROOT\s+\S+\s*=\s*\(", entry) is not None
    text = result_as(p.stdout.decode(), is_tuple) + "\n" + "\n".join(says)
    p = opt(build, ["--eval"], text)
    if p.returncode:
        raise Failure("values: " + (p.stdout + p.stderr).decode()[-300:])
    return "equal"


def model(build, context, name, sizes, shapes):
    """An ONNX model: XLA:CPU from the text against hlo-run from the file."""
    path = zoo.ensure("build/models", name)
    p = subprocess.run([build + "/hlo-opt", "--bind", sizes, "--to=stablehlo", path],
                       capture_output=True, timeout=120)
    if p.returncode:
        raise Failure(p.stderr.decode()[-300:])
    module = parsed(context, p.stdout.decode())
    rng = np.random.default_rng(7)
    x = [rng.random(s, np.float32) for s in shapes]
    with tempfile.TemporaryDirectory() as folder:
        args = []
        for k, v in enumerate(x):
            v.tofile("%s/%d" % (folder, k))
            args += ["--in", "%s/%d" % (folder, k)]
        subprocess.run([build + "/hlo-run", "--bind", sizes, *args, "--out", folder + "/out", path],
                       check=True, capture_output=True, timeout=120)
        got = np.fromfile(folder + "/out", np.float32)
    want = xla(module, x + weights(path, p.stdout.decode()))
    error = float(np.abs(got - np.concatenate([np.ravel(w) for w in want])).max())
    if got.size == 0 or error > 1e-4 * max(1.0, float(np.abs(got).max())):
        raise Failure("%s: error %.1e" % (name, error))


def converted(build):
    """hlo convert: one program through all three forms, and the model's values."""
    path = zoo.ensure("build/models", "mlp")
    with tempfile.TemporaryDirectory() as folder:
        last, hashes, outs = path, set(), []
        np.random.default_rng(3).random((2, 784), np.float32).tofile(folder + "/x")
        for name in ("a.mlir", "b.pb", "c.hlo"):
            to = folder + "/" + name
            p = subprocess.run([build + "/hlo", "convert", last, to, "--bind", "N=2"],
                               capture_output=True, timeout=60)
            if p.returncode:
                raise Failure("convert: " + p.stderr.decode()[-300:])
            hashes.add(subprocess.check_output([build + "/hlo-opt", "--weights", "--hash", to]))
            last = to
        for model in (path, folder + "/a.mlir", last):
            subprocess.run([build + "/hlo-run", "--bind", "N=2", "--in", folder + "/x", "--out",
                            folder + "/out", model], check=True, capture_output=True, timeout=60)
            outs.append(np.fromfile(folder + "/out", np.float32))
        p = subprocess.run([build + "/hlo", "convert", path, folder + "/d.zip"],
                           capture_output=True, timeout=60)
        if p.returncode != 2 or os.path.exists(folder + "/d.zip"):
            raise Failure("convert to .zip: %s" % p)
        if len(hashes) != 1 or not all(np.allclose(o, outs[0], atol=1e-6) for o in outs):
            raise Failure("convert: %d programs" % len(hashes))


def weights(path, text):
    """The initializers that the text takes as arguments, in its order."""
    import onnx
    from onnx import numpy_helper
    graph = onnx.load(path).graph
    held = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    names = re.findall(r'hlod\.name = "([^"]*)"', text.split("{\n", 1)[1].split("\n", 1)[0])
    return [held[n] for n in names if n in held]


def xla(module, args):
    from jax._src import xla_bridge
    from jax._src.lib import _jax, xla_client
    backend = xla_bridge.get_backend("cpu")
    device = backend.local_devices()[0]
    exe = backend.compile_and_load(str(module), _jax.DeviceList((device,)),
                                   xla_client.CompileOptions())
    return [np.asarray(o) for o in exe.execute([jax.device_put(a, device) for a in args])]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--all", action="store_true")
    p.add_argument("files", nargs="*")
    a = p.parse_args()
    context = mlir.make_ir_context()
    counts, failures = collections.Counter(), 0
    own = glob.glob("tests/ops/*.hlo") + glob.glob("tests/golden/stablehlo/out*.hlo")
    for path in a.files or sorted(own):
        with open(path) as f:
            parts = re.split(r"^// ----$", f.read(), flags=re.M)
        for k, part in enumerate(parts if a.all or a.files else parts[:FIRST]):
            try:
                counts[again(a.build, context, part)] += 1
            except Failure as e:
                failures += 1
                print("FAIL %s, module %d: %s" % (path, k + 1, e))
    for name, sizes, shapes in () if a.files else MODELS:
        try:
            model(a.build, context, name, sizes, shapes)
            print("PASS", name, "by XLA:CPU from StableHLO")
        except Failure as e:
            failures += 1
            print("FAIL", e)
    if not a.files:
        try:
            converted(a.build)
            print("PASS hlo convert")
        except Failure as e:
            failures += 1
            print("FAIL", e)
    print(", ".join("%d %s" % (n, k) for k, n in sorted(counts.items(), key=str) if k))
    good = counts["equal"] >= (100 if not a.files else 0)
    print("%s modules as StableHLO" % ("PASS" if good and not failures else "FAIL"))
    return failures > 0 or not good


sys.exit(main())
