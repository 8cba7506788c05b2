#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models as others write them, by `hlo show`, `hlo compile` and `hlo run` with no option: which
sizes are taken for symbolic dimensions, that it is said, and what is asked for where no size fits.
The real ones are in the zoo (tests/zoo), these are small and made here. untold.py BUILD"""
import json, os, re, subprocess, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as oh, numpy_helper as nh
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

result = Results()
rng = np.random.default_rng(3)

def normal(*shape):
    return (rng.standard_normal(shape) / 4).astype(np.float32)

def model(nodes, inputs, outputs, weights={}, opset=17):
    """nodes: (op, inputs, outputs, attributes); inputs, outputs: name -> (type, dims), outputs'
    dims may be None."""
    g = oh.make_graph([oh.make_node(op, i.split(), o.split(), **a) for op, i, o, a in nodes], "g",
                      [oh.make_tensor_value_info(n, t, d) for n, (t, d) in inputs.items()],
                      [oh.make_tensor_value_info(n, t, d) for n, (t, d) in outputs.items()],
                      [nh.from_array(np.asarray(v), n) for n, v in weights.items()])
    m = oh.make_model(g, opset_imports=[oh.make_opsetid("", opset)], producer_name="untold",
                      producer_version="1")
    m.ir_version = 8
    return m

F, I = T.FLOAT, T.INT64
CONV = ("Conv", "x k", "c", {"pads": [1, 1, 1, 1]})
POOL = ("GlobalAveragePool", "c", "y", {})
K = {"k": normal(4, 3, 3, 3)}
# name: (model, what is assumed)
MODELS = {
    "batch of a picture": (model([CONV, POOL], {"x": (F, ["N", 3, 32, 32])},
                                 {"y": (F, ["M", 4, 1, 1])}, K), "x=1x3x32x32"),
    "picture of any size": (model([CONV, POOL], {"x": (F, ["?", 3, "height", "width"])},
                                  {"y": (F, None)}, K), "x=1x3x224x224"),
    "channels last": (model([("Transpose", "x", "t", {"perm": [0, 3, 1, 2]}),
                             ("Conv", "t k", "c", {}), POOL], {"x": (F, ["b", "h", "w", 3])},
                            {"y": (F, None)}, K), "x=1x224x224x3"),
    # a line of text: its rows are pooled by a fixed factor and the rest is squeezed away
    "line of text": (model([("MaxPool", "x", "p", {"kernel_shape": [48, 4], "strides": [48, 4]}),
                            ("Squeeze", "p two", "s", {}),
                            ("Transpose", "s", "y", {"perm": [0, 2, 1]})],
                           {"x": (F, ["d0", 3, "d1", "d2"])}, {"y": (F, ["d3", "d4", 3])},
                           {"two": np.array([2])}), "x=1x3x48x320"),
    "as wide as its output says": (
        model([("MaxPool", "x", "y", {"kernel_shape": [32, 4], "strides": [32, 4]})],
              {"x": (F, [-1, 3, -1, -1])}, {"y": (F, [-1, 3, 1, 25])}), "x=1x3x32x100"),
    "tokens": (model([("Gather", "e ids", "g", {}), ("Unsqueeze", "mask last", "m", {}),
                      ("Cast", "m", "f", {"to": F}), ("Mul", "g f", "y", {})],
                     {"ids": (I, ["batch", "seq"]), "mask": (I, ["batch", "seq"])},
                     {"y": (F, ["batch", "seq", 8])}, {"e": normal(50, 8), "last": np.array([2])}),
               "ids=1x128 mask=1x128"),
    # learned positions: no more than 32 of them
    "at most 32 positions": (
        model([("Gather", "e ids", "g", {}), ("Shape", "ids", "s", {"start": 1, "end": 2}),
               ("Slice", "p zero s zero", "q", {}), ("Add", "g q", "y", {})],
              {"ids": (I, ["batch", "seq"])}, {"y": (F, None)},
              {"e": normal(50, 8), "p": normal(32, 8), "zero": np.array([0])}), "ids=1x32"),
    "state of a recurrent layer": (model([("GRU", "x w r b l h", "y yh", {"hidden_size": 4})],
                                         {"x": (F, ["time", "n", 3]), "h": (F, [1, "n", 4]),
                                          "l": (T.INT32, ["n"])}, {"yh": (F, None)},
                                         {"w": normal(1, 12, 3), "r": normal(1, 12, 4),
                                          "b": normal(1, 24)}), "x=1x1x3 h=1x1x4 l=1"),
    "two halves, one unnamed": (model([("Transpose", "s", "t", {"perm": [1, 0, 2]}),
                                       ("ReduceSum", "t two", "u", {"keepdims": 0}),
                                       ("Concat", "x u", "c", {"axis": 1}), ("Relu", "c", "y", {})],
                                      {"x": (F, ["?", "?"]), "s": (F, [2, "?", 6])},
                                      {"y": (F, None)}, {"two": np.array([2])}), "x=1x128 s=2x1x6"),
    "past and present": (model([("Concat", "past now", "all", {"axis": 1}),
                                ("Unsqueeze", "mask last", "m", {}), ("Mul", "all m", "y", {})],
                               {"now": (F, ["batch", "seq", 4]), "past": (F, ["batch", "past", 4]),
                                "mask": (F, ["batch", "past + seq"])}, {"y": (F, None)},
                               {"last": np.array([2])}), "now=1x128x4 past=1x128x4 mask=1x256"),
    "a wave of at least 400": (
        model([("Unsqueeze", "x one", "u", {}), ("Conv", "u k", "c", {"strides": [160]}),
               ("Relu", "c", "y", {})], {"x": (F, ["batch", "samples"])}, {"y": (F, None)},
              {"k": normal(2, 1, 400), "one": np.array([1])}), "x=1x512"),
    "as many features as the weight has": (model([("MatMul", "x w", "y", {})],
                                                 {"x": (F, ["N", "features"])}, {"y": (F, None)},
                                                 {"w": normal(300, 5)}), "x=1x300"),
    "grey pictures": (model([("Conv", "x k", "c", {}), POOL], {"x": (F, ["N", "c", "h", "w"])},
                            {"y": (F, None)}, {"k": normal(300, 1, 3, 3)}), "x=1x1x224x224"),
    "nothing open": (model([("Relu", "x", "y", {})], {"x": (F, [2, 3])}, {"y": (F, [2, 3])}), ""),
    "texts": (model([("Concat", "x x", "y", {"axis": 0})], {"x": (T.STRING, ["N"])},
                    {"y": (T.STRING, None)}), "x=1"),
    "values that decide shapes": (model([("Reshape", "x s", "y", {})],
                                        {"x": (F, ["N"]), "s": (I, [2])}, {"y": (F, None)}), None),
    "an optional one left out": (model([("Relu", "x", "y", {})], {"x": (F, ["N", 2])},
                                       {"y": (F, None)}), "x=1x2"),
}
HLO = "HloModule m\n\nENTRY e {\n  x = f32[2,3] parameter(0)\n  ROOT y = f32[2,3] add(x, x)\n}\n"
# No size of the tables fits: two inputs of which one is three longer than the other.
NEVER = model([("Slice", "a three end one", "c", {}), ("Concat", "c b", "y", {"axis": 0})],
              {"a": (F, ["N", "n"]), "b": (F, ["N", "m"])}, {"y": (F, None)},
              {"three": np.array([3]), "end": np.array([1 << 40]), "one": np.array([1])})

# -i words that leave the type, or the shape too, to the model; what comes back (a regular
# expression) or what is said.
TYPES = model([("Identity", i, o, {}) for i, o in ("nr", "st", "bu", "mv")],
              {"n": (I, ["batch", "seq"]), "s": (F, []), "b": (T.BOOL, [2]), "m": (F, [2, 3])},
              {o: (t, None) for o, t in (("r", I), ("t", F), ("u", T.BOOL), ("v", F))})
GOOD = {"n": "1,2,9007199254740993", "s": "2.5", "b": "true,false", "m": "1,2,3,4,5,6"}
WORDS = [({}, r"^r s64\[1,3\] 1 2 9007199254740993\nt f32\[\] 2\.5\nu pred\[2\] 1 0\nv f32\[2,3\] "
              r"1 2 3 4 5 6\n$"), ({"n": "[[1,2],[3,4]]"}, r"^r s64\[2,2\] 1 2 3 4\n"),
         ({"n": "3x1=1,2,3"}, r"^r s64\[3,1\] 1 2 3\n"),
         ({"m": "[[1,2,3],[4,5,6]]"}, r"v f32\[2,3\] 1 2 3 4 5 6\n"),
         ({"m": "[1,2,3,4,5,6]"}, r"v f32\[2,3\] 1 2"), ({"m": "random"}, r"v f32\[2,3\] "),
         ({"n": "random"}, r"^r s64\[1,128\] "), ({"b": "2xpred=0,1"}, r"u pred\[2\] 0 1")]
REFUSED = [
    ({"m": "1,2,3"}, "input 'm': 3 values were given, its shape is 2x3\n"),
    ({"m": "[[1,2],[3,4,5,6]]"}, "input 'm': the lists in it are not all of one length and depth"),
    ({"m": "[[1,2,3],[4,5,6]"}, "input 'm': the lists"),
    ({"m": "[[1],[2],3,[4],[5],[6]]"}, "input 'm': the lists"),
    ({"n": "1,2.5"}, "input 'n': .*element 1 .*does not fit the type"),
    ({"s": "1,2"}, "input 's': 2 values were given, its shape is that of a scalar"),
    ({"q": "1"}, "no input 'q'"), ({"n": "abc=1"}, "expected dims, type or both as in 1x3xf32")]

def numbers(hlo, path):
    hlo("models", "set", "types", path)
    def words(change):
        return [w for n, v in {**GOOD, **change}.items() for w in ("-i", f"{n}={v}")]
    for of in (path, "types"):
        for change, wanted in WORDS:
            result.command(f"numbers without a type for {os.path.basename(of)}: {change}",
                           hlo("run", of, *words(change)), 0, wanted)
    for change, wanted in REFUSED:
        p = hlo("run", path, *words(change))
        result(f"numbers that do not fit: {change}",
               p.returncode in (2, 3) and re.search(wanted, p.stderr), p.stdout + p.stderr)

def own_sizes(hlo, d, save):
    """Two inputs whose dimensions have one name come with sizes of their own."""
    pairs = save(model([("MatMul", "x z", "y", {})], {"x": (F, ["s", 2]), "z": (F, [2, "s"])},
                       {"y": (F, ["s", "s"])}), "pairs.onnx")
    x, z = normal(3, 2), normal(2, 4)
    where = []
    for name, v in (("x", x), ("z", z)):
        np.save(os.path.join(d.dir, name), v)
        where += ["-i", f"{name}=@{d.dir}/{name}.npy"]
    got = os.path.join(d.dir, "pairs.npy")
    p = hlo("run", pairs, *where, "-o", got)
    result("one name, two sizes", p.returncode == 0 and np.allclose(np.load(got), x @ z, 1e-5),
           p.stdout + p.stderr)
    shapes = [{"input": "x", "dims": [3, 2]}, {"input": "z", "dims": [2, 4]}]
    p = hlo("compile", pairs, "--json", *(w for s in shapes for w in (
        "--shape", "%s=%s" % (s["input"], "x".join(map(str, s["dims"]))))))
    exe = json.loads(p.stdout)
    result("compiled for both sizes",
           exe["cacheHit"] and exe["executable"]["bindings"] == ["*1.1=4", "s=3"], exe)
    hlo("models", "set", "pairs", pairs)
    body = {"inputs": [{"name": n, "datatype": "FP32", "shape": v.shape, "data": v.tolist()}
                       for n, v in (("z", z), ("x", x))]}
    status, _, text = d.call("POST", "/v2/models/pairs/infer", json.dumps(body))
    out = json.loads(text).get("outputs", [{}])[0]
    result("one name, two sizes by the Open Inference Protocol",
           status == 200 and out["shape"] == [3, 4]
           and np.allclose(np.reshape(out["data"], (3, 4)), x @ z, 1e-5), text)
    body["inputs"][0].update(shape=[1, 8], data=[z.ravel().tolist()])
    status, _, text = d.call("POST", "/v2/models/pairs/infer", json.dumps(body))
    result("a size that is declared stays so", status == 400 and b"expected 2, found 1" in text,
           text)
    sums = save(model([("Add", "x z", "y", {})], {"x": (F, ["s"]), "z": (F, ["s"])},
                      {"y": (F, ["s"])}), "sums.onnx")
    result.command("sizes that do not go together",
                   hlo("run", sums, "-i", "x=1,2,3", "-i", "z=1,2"), 3,
                   err=r"SHAPE_MISMATCH: with 2 for dimension 0 \('s'\) of input 'z' and 3 for "
                       r"others of that name: node #0 \(Add\)")
    result.command("joined runs have one number of rows",
                   hlo("models", "set", "sums", sums, "--batch", "4"), 0)
    result.command("and say so", hlo("run", "sums", "-i", "x=1,2,3", "-i", "z=1,2"), 3,
                   err=r"SHAPE_MISMATCH: input 'z', dimension 0 \('s'\): expected 3, as elsewhere")

# Names that are bound for something else: a dimension's own size, a replaced value, ...
ODD_NAMES = ("*1.0", "*1.0=5;s", "~0", "=0[000]", "#0", "@0[0]", "n" * 400)

def names_in_other_places(hlo, save):
    """Models of one graph whose dimensions have names that stand elsewhere, or odd ones, are not
    each other's executables."""
    def run(x, z, nx, nz):
        path = save(model([("Concat", "x z", "c", {"axis": 0}), ("Shape", "x", "n", {}),
                           ("Cast", "n", "f", {"to": F}), ("Add", "c f", "y", {})],
                          {"x": (F, [x]), "z": (F, [z])}, {"y": (F, [None])}), "names.onnx")
        numbers = {"x": range(nx), "z": range(nz)}
        p = hlo("run", path, *(w for k, v in numbers.items()
                               for w in ("-i", f"{k}=" + ",".join(map(str, v)))))
        want = " ".join(str(v + nx) for v in [*numbers["x"], *numbers["z"]])
        result(f"x[{x[:9]}] of {nx}, z[{z[:9]}] of {nz}",
               re.search(rf"^y f32\[{nx + nz}\] {want}$", p.stdout, re.M), p.stdout + p.stderr)
    run("s", "t", 3, 5)
    run("t", "s", 5, 3)
    run("same", "same", 3, 5)
    for name in ODD_NAMES:
        run(name, name, 3, 3)
        run(name, name, 3, 4)
        run(name, "t", 3, 5)

def main():
    build = sys.argv[1]
    d = Daemon(build + "/hlod", build + "/hlod-worker")
    env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}
    def hlo(*words):
        return subprocess.run([build + "/hlo", *words], env=env, capture_output=True, text=True,
                              timeout=120)
    def save(m, name="m.onnx"):
        path = os.path.join(d.dir, name)
        onnx.save(m, path)
        return path
    try:
        for name, (m, want) in MODELS.items():
            path = save(m)
            show, compiled, run = hlo("show", path), hlo("compile", path), hlo("run", path)
            said = re.search(r"^shapes +(.*?)  \(assumed", compiled.stdout, re.M)
            ok = show.returncode == run.returncode == 0 and re.search(r"^y\w* ", run.stdout, re.M)
            if want is not None:
                ok = ok and compiled.returncode == 0 and (said.group(1) if said else "") == want
            else:
                ok = (ok and compiled.returncode == 3
                      and "decides shapes by its values" in compiled.stderr)
            result(f"untold: {name}", ok,
                   "\n".join(x.stdout + x.stderr for x in (show, compiled, run)))
        path = save(MODELS["tokens"][0], "tokens.onnx")
        show = result.command("show in words", hlo("show", path), 0,
                              r"^model +\w{64}\nformat +onnx, opset 17, written by untold 1\nbytes "
                              r"+\S+ kB\nparameters +400 in \S+ \S+\n"
                              r"inputs +ids s64\[batch,seq\]  usually 1x128\n +mask "
                              r"s64\[batch,seq\]  usually 1x128\noutputs +y f32\[batch,seq,8\]\n"
                              r"nodes +4\noperators +Cast 1, Gather 1, Mul 1, Unsqueeze 1\n$")
        small = save(MODELS["batch of a picture"][0], "small.onnx")
        result.command("show counts weights that become constants", hlo("show", small), 0,
                       r"\nparameters +108 in 432 B\n")
        j = json.loads(hlo("show", path, "--json").stdout)
        result("show in JSON", j["signature"]["inputs"][0]["dims"][1] == {
                   "size": -1, "symbol": "seq",
                   "usual": 128} and j["operators"][0] == {"name": "Cast", "count": 1}, j)
        reply = json.loads(hlo("compile", path, "--json").stdout)
        result("the reply says the shapes",
               reply["assumed"] == [{"input": n, "dims": [1, 128]} for n in ("ids", "mask")],
               reply.get("assumed"))
        reply = json.loads(hlo("compile", path, "--json", "--shape", "ids=2x7").stdout)
        result("and none where one input's shape says them all", "assumed" not in reply,
               reply.get("assumed"))
        result.command("show of an executable", hlo("show", reply["digest"][:12]), 0,
                       "^model +" + reply["sourceDigest"])
        hlo("models", "set", "tokens", path)
        result.command("show of a name", hlo("show", "tokens"), 0,
                       "^model +" + reply["sourceDigest"])
        result.command("run of a name, inputs made up", hlo("run", "tokens"), 0,
                       r"^y f32\[1,128,8\]", r"input ids 1x128, made up")
        result.command("show of nothing", hlo("show", "nobody"), 3,
                       err="no model is called 'nobody'")
        result.command("a file that is not there", hlo("run", "nobody.onnx"), 2,
                       err=r"^hlo: nobody\.onnx: No such file")
        hlo_path = os.path.join(d.dir, "m.hlo")
        open(hlo_path, "w").write(HLO)
        result.command("show of HLO", hlo("show", hlo_path), 0,
                       r"format +hlo-text\n(.*\n)*inputs +x f32\[2,3\]\noutputs +result "
                       r"f32\[2,3\]\n(.*\n)*operators +add 1, parameter 1\n")
        result.command("HLO by default", hlo("run", hlo_path), 0, r"^result f32\[2,3\]")
        never = save(NEVER, "never.onnx")
        p = result.command("sizes that have to be said", hlo("compile", never), 3,
                           err=r"UNBOUND_DIM: 2 symbolic dimensions without a size:\n +input 'a', "
                               r"dimension 1 \('n'\)\n +input 'b', dimension 1 \('m'\)\n"
                           r" +for example: hlo compile MODEL --shape a=1x128 --shape b=1x128\n "
                           r"+or by HTTP: POST /v1/executables\?shape=a=1x128&shape=b=1x128\n")
        result.command("said as it proposes",
                       hlo("compile", never, "--shape", "a=1x131", "--shape", "b=1x128"), 0)
        result.command("a run without inputs of it", hlo("run", never), 3,
                       err="2 symbolic dimensions without a size")
        numbers(hlo, save(TYPES, "types.onnx"))
        texts = save(MODELS["texts"][0], "texts.onnx")
        result.command("texts without a type", hlo("run", texts, "-i", "x=how,are you"), 0,
                       r'^y string\[4\] "how" "are you" "how" "are you"')
        result.command("numbers of a file with its executable",
                       hlo("compile", hlo_path, "-o", os.path.join(d.dir, "m.hlox")), 0)
        result.command("numbers for an executable's file",
                       hlo("run", os.path.join(d.dir, "m.hlox"), "-i", "x=1,2,3,4,5,6"), 0,
                       r"^result f32\[2,3\] 2 4 6 8 10 12\n$")
        result.command("numbers for bench",
                       hlo("bench", hlo_path, "-i", "x=1,2,3,4,5,6", "--requests", "3", "--warmup",
                           "1", "--concurrency", "1"), 0)
        own_sizes(hlo, d, save)
        names_in_other_places(hlo, save)
        batch = save(MODELS["batch of a picture"][0])
        result.command("models set in batches, symbolic batch",
                       hlo("models", "set", "pictures", batch, "--batch", "8"), 0,
                       r"^pictures version 1", r"shapes +x=1x3x32x32")
    finally:
        d.stop()
    return result.code()

sys.exit(main())
