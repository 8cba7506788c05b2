#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An executable as a file: `hlo compile -o m.hlox` on one server, `hlo run m.hlox`, `hlo show`,
`hlo models set` on others: one that takes executables of others runs it without compiling, one that
does not compiles the model inside; damaged files are refused; models of one graph are told apart.
ahead.py BUILD"""
import os, re, subprocess, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as oh, numpy_helper as nh
TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path[:0] = [TESTS, os.path.join(TESTS, "../client/python")]
import hlod
from harness import Daemon, Results, metric

result = Results()
rng = np.random.default_rng(5)

def alike(hlo, d):
    """Models of one graph share an executable: each keeps its weights and names, as a file that was
    compiled ahead, by inputs that are made up, and in Python."""
    for k, (name, to) in enumerate((("a", "b"), ("c", "d"))):
        path = os.path.join(d.dir, name)
        g = oh.make_graph([oh.make_node("MatMul", [name, "w"], [to], name="node_" + name)], "g",
                          [oh.make_tensor_value_info(name, T.FLOAT, [1, 300])],
                          [oh.make_tensor_value_info(to, T.FLOAT, [1, 2])],
                          [nh.from_array(np.full((300, 2), k + 1, np.float32), "w")])
        onnx.save(oh.make_model(g, opset_imports=[oh.make_opsetid("", 17)], ir_version=8),
                  path + ".onnx")
        hlo(d, "compile", path + ".onnx", "-o", path + ".hlox")
    for name, to, sum in (("a", "b", 300), ("c", "d", 600)):
        path = os.path.join(d.dir, name)
        np.save(path + ".npy", np.ones((1, 300), np.float32))
        for kind in (".onnx", ".hlox"):
            result.command("%s%s: its weights and names" % (name, kind),
                           hlo(d, "run", path + kind, "-i", "%s=@%s.npy" % (name, path)), 0,
                           r"^%s f32\[1,2\] %d %d$" % (to, sum, sum))
            p = result.command("%s%s: inputs made up" % (name, kind), hlo(d, "run", path + kind),
                               0, r"^%s f32\[1,2\] " % to, "input %s 1x300, made up" % name)
            drawn = hlo(d, "run", path + kind, "-i", name + "=random")
            result("%s%s: the same inputs by name" % (name, kind), p.stdout == drawn.stdout,
                   (p.stdout, drawn.stdout))
        for kind in (".onnx", ".hlox"):
            for words in (("doctor", path + kind),
                          ("doctor", path + kind, "-i", "%s=@%s.npy" % (name, path)),
                          ("compile", path + kind, "--explain=measured")):
                p = result.command("%s %s%s: its nodes" % (words[0], name, kind), hlo(d, *words))
                said = set(re.findall("node_[ac]", p.stdout.split("longest steps")[-1]))
                result("of no other model", said <= {"node_" + name}, p.stdout)
        with hlod.connect("%s:%d" % d.addr) as h:
            y = h.compile(path + ".onnx").run({name: np.ones((1, 300), np.float32)})
            result("%s in Python" % name, list(y) == [to] and (y[to] == sum).all(), y)
    others_weights(hlo, d)


def others_weights(hlo, d):
    """Weights of another program, with other inputs, are refused as such, of a plan's step too."""
    path = os.path.join(d.dir, "sum.onnx")
    g = oh.make_graph([oh.make_node("Add", ["x", "z"], ["y"])], "g",
                      [oh.make_tensor_value_info(k, T.FLOAT, [1, 300]) for k in "xz"],
                      [oh.make_tensor_value_info("y", T.FLOAT, [1, 300])])
    onnx.save(oh.make_model(g, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), path)
    digest, other = (hlo(d, "compile", f).stdout.split()[k]
                     for f, k in ((os.path.join(d.dir, "a.onnx"), 1), (path, 3)))
    x = {"name": "a", "dtype": "f32", "shape": [1, 300], "data": [1] * 300}
    step = {"name": "s", "model": digest, "weights": other, "inputs": [{"name": "a", "input": "a"}]}
    for kind, answer in (
        ("run", d.json("POST", "/v1/run", {"model": digest, "weights": other, "inputs": [x]})),
        ("plan", d.json("POST", "/v1/plan",
                        {"inputs": [x], "steps": [step], "outputs": [{"step": "s"}]}))):
        result("a %s with the weights of another program" % kind, answer[0] == 400 and
               answer[1]["message"].endswith("the weights belong to another program"), answer)


def main():
    build = os.path.abspath(sys.argv[1])
    secret = "0123456789abcdef0123456789abcdef"
    start = lambda *args: Daemon(build + "/hlod", build + "/hlod-worker", args=args)
    here = start()
    key = os.path.join(here.dir, "key")
    with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
        f.write(secret + "\n")
    signing, taking, wary = start("--cache-key", key), start(
        "--allow-cache-import", "--cache-key", key), start()
    def hlo(d, *words):
        return subprocess.run([build + "/hlo", *words],
                              env={**os.environ, "HLOD_ADDR": "%s:%d" % d.addr},
                              capture_output=True, text=True, timeout=120)
    try:
        path, out = os.path.join(here.dir, "m.onnx"), os.path.join(here.dir, "m.hlox")
        w = rng.standard_normal((300, 7)).astype(np.float32)
        g = oh.make_graph([oh.make_node("MatMul", ["x in", "w"], ["y"])], "g",
                          [oh.make_tensor_value_info("x in", T.FLOAT, ["N", 300])],
                          [oh.make_tensor_value_info("y", T.FLOAT, ["N", 7])],
                          [nh.from_array(w, "w")])
        onnx.save(oh.make_model(g, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), path)
        p = result.command("compile to a file",
                           hlo(signing, "compile", path, "--precision", "strict", "-o", out), 0,
                           r"shapes +x in=1x300", r"written +\S+m\.hlox")
        digest = p.stdout.split()[1]
        np.save(os.path.join(here.dir, "x.npy"), np.ones((1, 300), np.float32))
        give = ("-i", "x in=@" + os.path.join(here.dir, "x.npy"))
        want = hlo(signing, "run", digest, *give).stdout
        result.command("it runs elsewhere", hlo(taking, "run", out, *give), 0, "^y f32",
                       digest + r" \(cached\)")
        result("with the same result, and nothing was compiled",
               hlo(taking, "run", out, *give).stdout == want and metric(
                   taking, "hlod_compiles_total") == 0, want)
        for more in ((), give, ("--protocol", "grpc", *give), ("--protocol", "oip"),
                     ("--protocol", "oip-grpc")): # the last two know no executables
            result.command("bench " + " ".join(more[:2]),
                           hlo(taking, "bench", out, "--requests", "3", "--warmup", "0",
                               "--concurrency", "1", "--grpc", taking.grpc, *more), 0,
                           r"\n +1 +3 +0 ")
            result("it is what ran", "oip" in " ".join(more) or
                   metric(taking, "hlod_compiles_total") == 0)
        result.command("inputs made up for it", hlo(taking, "run", out), 0, r"^y f32\[1,7\]",
                       "input x in 1x300, made up")
        result.command("a name for it", hlo(taking, "models", "set", "ahead", out), 0,
                       "^ahead version 1")
        result.command("what it is", hlo(taking, "show", out), 0, r"parameters +2100 ")
        result.command("by its name", hlo(taking, "run", "ahead", *give), 0, "^y f32")
        p = result.command(
            "a server that takes none compiles the model inside", hlo(wary, "run", out, *give), 0,
            "^y f32", r"not taken \(.*--allow-cache-import\): the model in the file is compiled")
        result("for the same shapes and options", p.stdout == want, (p.stdout, want))
        alike(hlo, wary)
        result.command("a name with a space, by its file", hlo(wary, "run", path, *give), 0,
                       "^y f32")
        result.command("other shapes than it was made for",
                       hlo(wary, "run", out, "-i", "x in=2x300xf32=random"), 3,
                       err="SHAPE_MISMATCH")
        result.command("shapes for what is compiled",
                       hlo(wary, "compile", out, "--shape", "x in=2x300"), 2,
                       err="is compiled: it has its shapes")
        data = open(out, "rb").read()
        at = data.index(b"}\n") + 2
        for what, bad, says in (("cut short", data[:-5], "cut short"),
                                ("longer", data + b"x", "longer than it says"),
                                ("a changed executable", data[:at + 9] + b"~" + data[at + 10:],
                                 "does not have its digest"),
                                ("no head", b"hlox 1\n" + b"x" * 50, "head cannot be read"),
                                ("an executable that is a path",
                                 re.sub(rb'"executable":"[0-9a-f]+"', b'"executable":"../models"',
                                        data[:at]) + data[at:], "no digest"),
                                ("head without sizes", b"hlox 1\n{}\nabc", "cut short")):
            open(os.path.join(here.dir, "bad.hlox"), "wb").write(bad)
            result.command("damaged: " + what,
                           hlo(taking, "run", os.path.join(here.dir, "bad.hlox"), *give), 2,
                           err=says)
        unsigned = os.path.join(here.dir, "u.hlox")
        result.command("to a file, unsigned",
                       hlo(here, "compile", path, "--shape", "x in=3x300", "-o", unsigned), 0)
        result.command("is not taken where a key is asked for", hlo(taking, "run", unsigned), 0,
                       r"^y f32\[3,7\]", r"not taken \(.*sign")
        result.command("to where nothing can be written",
                       hlo(here, "compile", path, "-o", "/nonexistent/m.hlox"), 2,
                       err="No such file")
    finally:
        for d in here, signing, taking, wary:
            d.stop()
    return result.code()

sys.exit(main())
