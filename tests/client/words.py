#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `hlo` says to somebody new: who is not there, TLS on one side only, one reason once, what a
suite measured, pictures on either scale, names where digests go. words.py BUILD"""
import os, shutil, struct, subprocess, sys, zlib
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
result = Results()
HLO = """HloModule picture

ENTRY main {
  x = f32[1,3,2,2] parameter(0)
  ROOT y = f32[1,3,2,2] add(x, x)
}
"""

def png(path):
    """2x2 pixels of one colour."""
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    rows = (b"\0" + bytes([51, 102, 204]) * 2) * 2
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0))
                + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

def columns(n):
    """A table with an input of open size for each of its columns."""
    types = ["tensor<?x1xf32>"] * n
    args = ", ".join("%%arg%d: %s" % (k, t) for k, t in enumerate(types))
    names = ", ".join("%%arg%d" % k for k in range(n))
    return f"""func.func public @main({args}) -> tensor<?x{n}xf32> {{
  %0 = stablehlo.concatenate {names}, dim = 1 : ({", ".join(types)}) -> tensor<?x{n}xf32>
  return %0 : tensor<?x{n}xf32>
}}
"""

def many_inputs(d, hlo, n=300):
    """More than a path's parameters."""
    table = os.path.join(d.dir, "table.mlir")
    open(table, "w").write(columns(n))
    given = [w for k in range(n) for w in ("-i", "arg%d=3x1=1,2,3" % k)]
    shapes = [w for k in range(n) for w in ("--shape", "arg%d=5x1" % k)]
    result.command("%d inputs: run" % n, hlo("run", table, *given), 0, r"f32\[3,%d\]" % n)
    result.command("%d inputs: made up" % n, hlo("run", table), 0, r"f32\[1,%d\]" % n)
    result.command("%d inputs: compile" % n, hlo("compile", table, *shapes), 0, "^executable ")
    result.command("%d inputs: bench" % n,
                   hlo("bench", table, "--requests", "3", "--warmup", "0", *given), 0)

def main():
    build = os.path.abspath(sys.argv[1])
    d = Daemon(build + "/hlod", build + "/hlod-worker")
    env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}
    def hlo(*words, **more):
        return subprocess.run([build + "/hlo", *words], env={**env, **more}, capture_output=True,
                              text=True, timeout=120)
    model, picture = os.path.join(d.dir, "picture.hlo"), os.path.join(d.dir, "x.png")
    open(model, "w").write(HLO)
    png(picture)
    try:
        result.command("nobody there: how to start one", hlo("devices", HLOD_ADDR="127.0.0.1:1"),
                       69, err="start one with `hlod &`.*--addr")
        p = result.command("a reason that several targets share stands once", hlo("targets"), 0,
                           r"tpu:v5e\S+ +compile no .*\(\d\)\n")
        result("and not in each line",
               p.stdout.count(f"`hlo plugins install tpu --data {d.dir}") == 1, p.stdout)
        for words, err in (
            (("runn", model), r"'runn' \(did you mean run\?\)"),
            (("run", model, "--profle"), r"no option --profle \(did you mean --profile\?\)"),
            (("run", model, "--zebra"), r"no option --zebra;"),
            (("--addr", "grpc://127.0.0.1:8001", "devices"), "of the server's HTTP port")):
            result.command("slips: " + " ".join(words[-2:]), hlo(*words), 2, err=err)
        slip = subprocess.run([build + "/hlod", "--grpc-prt-file", "x"], capture_output=True,
                              text=True, env={})
        result("slips: hlod",
               slip.returncode == 2 and "did you mean --grpc-port-file?" in slip.stderr,
               slip.stderr)
        suite = os.path.join(ROOT, "deploy/ci/example/suite.yaml")
        result.command("a suite's jobs: time and counts", hlo("submit", suite, "--wait"), 0,
                       r"1\.1 +passed +softplus on cpu, around zero +[1-9\d.]+ \S+  \d+ "
                       r"instructions, \d+ fusions\n(.*\n)*suite 1: 2 jobs, 2 passed")
        result.command("jobs ls: the same", hlo("jobs"), 0, r"1\.1 +passed .* instructions, ")
        result.command("models set", hlo("models", "set", "picture", model), 0)
        result.command("inspect a name", hlo("inspect", "picture", "--stage", "hlo-before"), 0,
                       "^HloModule picture", r"^executable \w{64}")
        result.command("inspect a file", hlo("inspect", model, "--stage", "hlo-after"), 0,
                       "^HloModule picture")
        strange = os.path.join(d.dir, "strange")
        for first, err in (
            (b"\x18\0\0\0TFL3", "TensorFlow Lite.*tf2onnx"), (b"\x18\0\0\0ORTM", "an ORT file"),
            (b"PK\3\4", "torch.onnx.export"), (b"module @jit_f {", "line 1: "),
            (b"ML\xefR\x0dx\0", r"byte \d+: "), (b"\x50\0\0\0\0\0\0\0{\"w\"", "safetensors"),
            (b"\x1f\x8b\x08", "compressed by gzip"),
            (b"version https://git-lfs.github.com", "git lfs pull"),
            (b"\x08\x01\x12\x03abc", "there is no graph .*SavedModel"),
            (b"?", "in no known format .onnx, hlo-text, stablehlo, stablehlo-bytecode, ")):
            open(strange, "wb").write(first + b" " * 64 * (first[0] != 8))
            result.command("another tool's file, %r" % first[:8], hlo("run", strange), 3, err=err)
        result.command("inspect a name that is none", hlo("inspect", "nobody", "--stage", "plan"),
                       3, err="no model is called 'nobody'")
        many_inputs(d, hlo)
        outputs = []
        for scale in ("--mean", "0.4,0.5,0.6", "--std",
                      "0.2"), ("--mean", "102,127.5,153", "--std", "51"):
            p = result.command("a picture, " + " ".join(scale),
                               hlo("run", "picture", "-i", f"x=@{picture}", *scale), 0,
                               r"^y\w* |^result ", "from 0 to 1" if scale[1][0] == "0" else "run ")
            outputs.append(p.stdout)
        result("both scales give the same", outputs[0] == outputs[1] and " -2 " in outputs[0],
               outputs)
        result.command("a picture, mixed scales",
                       hlo("run", "picture", "-i", f"x=@{picture}", "--mean", "0.5", "--std",
                           "128"), 2, err="one is of values from 0 to 1, the other of 0 to 255")
        if not shutil.which("openssl"):
            print("SKIP TLS: no openssl here")
            return result.code()
        cert, key = os.path.join(d.dir, "c.pem"), os.path.join(d.dir, "k.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key,
                        "-out", cert, "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        os.chmod(key, 0o600)
        plain = "%s:%d" % d.addr
        result.command("TLS spoken to a plain port", hlo("devices", HLOD_ADDR="https://" + plain),
                       69, err="does it serve TLS\\? Else say http://")
        tls = Daemon(build + "/hlod", build + "/hlod-worker",
                     args=("--tls-cert", cert, "--tls-key", key), ready=False)
        try:
            at = "%s:%d" % tls.addr
            result.command("plain HTTP spoken to a TLS port", hlo("devices", HLOD_ADDR=at), 69,
                           err="if it serves TLS, say https://")
            result.command("an unknown authority", hlo("devices", HLOD_ADDR="https://" + at), 69,
                           err="--cacert FILE")
            result.command("a known one",
                           hlo("devices", HLOD_ADDR="https://" + at, HLOD_CACERT=cert), 0)
        finally:
            tls.stop()
    finally:
        d.stop()
    return result.code()

sys.exit(main())
