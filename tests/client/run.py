#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libhlod as a user has it: `make install`, then pkg-config, header and library only; linked shared
and static. Compiles the header's own example and client_test.c, also as C++, and looks at what the
library exports. Standard library only. Usage: run.py --build DIR --worker BIN [--make "make
ARGS"]"""
import argparse, os, re, shlex, shutil, subprocess, sys, tempfile
HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "..", "..", "client", "examples")
sys.path.insert(0, os.path.join(HERE, ".."))
from harness import Daemon, Results

result = Results()

def sh(command, **kw):
    p = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, **kw)
    return p.returncode, p.stdout + p.stderr

LINE = """
import sys, numpy as np, onnx
from onnx import helper as h, numpy_helper as n
v = h.make_tensor_value_info
w, b = (n.from_array(np.zeros(s, np.float32), x) for x, s in (("w", (4, 1)), ("b", (1,))))
g = h.make_graph([h.make_node("Gemm", ["x", "w", "b"], ["y"])], "g", [v("x", 1, ("N", 4))],
                 [v("y", 1, ("N", 1))], [w, b])
onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 17)], ir_version=8), sys.argv[1])
"""


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--worker", required=True)
    a.add_argument("--make", default="make")
    a.add_argument("--flags", default="")
    o = a.parse_args()
    work = tempfile.mkdtemp(prefix="hlod-client-")
    try:
        prefix = os.path.join(work, "prefix")
        rc, text = sh(f"{o.make} -s install-client PREFIX={shlex.quote(prefix)}")
        result("install", rc == 0, text)
        env = {**os.environ, "PKG_CONFIG_PATH": prefix + "/lib/pkgconfig",
               "LD_LIBRARY_PATH": prefix + "/lib"}
        sh_env = lambda c: sh(c, env=env, cwd=work)
        rc, text = sh_env("pkg-config --modversion hlod")
        result("pkg-config", rc == 0, text)
        rc, text = sh_env(f"nm -D --defined-only {prefix}/lib/libhlod.so | awk '{{print $3}}' | "
                          "grep -v '^hlod_[a-z_]*$'")
        result("the library exports hlod_* only", text.strip() == "" or bool(o.flags), text)
        header = open(prefix + "/include/hlod.h").read()
        example = header[header.index("//     #include <hlod.h>"):header.index("#pragma once")]
        example = "\n".join(l[7:] for l in example.splitlines())
        open(work + "/example.c", "w").write(example + "\n")
        open(work + "/cxx.cc", "w").write('#include <hlod.h>\n#include <hlod_admin.h>\n#include '
                                          '<hlod_async.h>\n#include <hlod_buffers.h>\n#include '
                                          '<hlod_jobs.h>\n#include <hlod_train.h>\n'
                                          'int main() { hlod_close(nullptr); return '
                                          'hlod_code_name(HLOD_OK)[0] != \'O\'; }\n')
        warn = "-Wall -Wextra -Werror " + o.flags
        builds = {"example, shared": f"cc -std=c11 {warn} -o example example.c $(pkg-config "
                                     "--cflags --libs hlod)",
                  "client_test, shared": f"cc -std=c11 {warn} -o test_shared {HERE}/client_test.c "
                                         "$(pkg-config --cflags --libs hlod)",
                  "client_test, static": f"cc -std=c11 {warn} -o test_static {HERE}/client_test.c "
                                         f"$(pkg-config --cflags hlod) {prefix}/lib/libhlod.a "
                                         "$(pkg-config --libs --static hlod | sed 's/-lhlod//')",
                  "async_test": f"cc -std=c11 {warn} -D_GNU_SOURCE -o async_test "
                                f"{HERE}/async_test.c $(pkg-config --cflags --libs hlod) -lpthread",
                  "buffers_test": f"cc -std=c11 {warn} -o buffers_test {HERE}/buffers_test.c "
                                  "$(pkg-config --cflags --libs hlod)",
                  "jobs_test": f"cc -std=c11 {warn} -D_GNU_SOURCE -o jobs_test {HERE}/jobs_test.c "
                               "$(pkg-config --cflags --libs hlod)",
                  **{f"examples/{n}": f"cc -std=c11 {warn} -o {n} {EXAMPLES}/{n}.c $(pkg-config "
                                      "--cflags --libs hlod)"
                     for n in ("run", "stream_compile", "async", "jobs", "train")},
                  "C++": f"c++ -std=c++11 {warn} -o cxx cxx.cc $(pkg-config --cflags --libs hlod) "
                         "&& ./cxx"}
        for name, command in builds.items():
            rc, text = sh_env(command)
            result("build " + name, rc == 0, text)
        model = work + "/model"
        open(model, "w").write("FAKE\nin x f32 N,4\nout y f32 N,4\nweight 8\n")
        d = Daemon(o.build + "/hlod", o.worker)
        address = "%s:%d" % d.addr
        rc, text = sh(f"./example {model}", env={**env, "HLOD_ADDR": address}, cwd=work)
        result("the header's example", rc == 0 and text == "y: 2\n", text)
        grpc = "grpc://" + d.grpc
        for program, at, n in (("test_shared", address, 7), ("test_static", "http://" + address, 7),
                               ("test_shared", grpc, 7), ("async_test", address, 6),
                               ("async_test", grpc, 6), ("jobs_test", address, 6),
                               ("jobs_test", grpc, 6)):
            with open(model, "a") as f:
                f.write("# another model, not in the cache\n")
            rc, text = sh_env(f"./{program} {at} {model}")
            lines = [l for l in text.splitlines() if re.match("PASS|FAIL", l)]
            for l in lines:
                result(f"{program} {at.split(':')[0]}: {l[5:]}", l.startswith("PASS"), text)
            if len(lines) != n or rc:
                result(program, rc == 0 and len(lines) == n, f"status {rc}\n{text}")
        sim = Daemon(o.build + "/hlod", o.build + "/hlod-worker", args=["--device", "sim"])
        plus = work + "/plus.hlo"
        open(plus, "w").write("HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  c = f32[] "
                              "constant(1)\n  b = f32[4] broadcast(c), dimensions={}\n  ROOT r = "
                              "f32[4] add(x, b)\n}\n")
        for at in "%s:%d" % sim.addr, "grpc://" + sim.grpc:
            rc, text = sh_env(f"./buffers_test {at} {plus}")
            result(f"buffers_test {at[:4]}", rc == 0 and "all is well" in text, text)
        result("the daemon of buffers_test ends", sim.stop() == 0, "")
        line = work + "/line.onnx"
        sh(f"build/venv/bin/python -c {shlex.quote(LINE)} {line}")
        cpu = Daemon(o.build + "/hlod", o.build + "/hlod-worker")
        for at in "%s:%d" % cpu.addr, "grpc://" + cpu.grpc:
            rc, text = sh_env(f"./train {line} trained.onnx {at}")
            found = re.search(r"job \d+\.1: passed, loss 0\.0", text)
            same = os.path.exists(work + "/trained.onnx") and \
                os.path.getsize(work + "/trained.onnx") == os.path.getsize(line)
            result(f"examples/train {at[:4]}", rc == 0 and bool(found) and same
                   and "step 480 of 480: loss" in text, text)
        result("the daemon that trained ends", cpu.stop() == 0, "")
        fixed = work + "/fixed"
        open(fixed, "w").write("FAKE\nin x f32 1,4\nout y f32 1,4\nweight 8\n")
        for at in address, grpc:
            rc, text = sh_env(f"./run {fixed} {at}")
            result(f"examples/run {at[:4]}", rc == 0 and "y: 1.5 1.5 1.5 1.5\n" in text, text)
            open(model, "a").write("# once more\n")
            rc, text = sh_env(f"./stream_compile {model} x=3x4 --addr {at}")
            result(f"examples/stream_compile {at[:4]}",
                   rc == 0 and text.count(" pass ") == 4 and "4 passes" in text, text)
            d.json("POST", "/v1/models",
                   {"name": "adder", "model": d.json(
                        "POST", "/v1/executables", open(fixed, "rb").read(),
                        {"Content-Type": "application/octet-stream"})[1]["sourceDigest"]})
            rc, text = sh_env(f"./async adder 100 16 {at}")
            result(f"examples/async {at[:4]}",
                   rc == 0 and text == "100 runs, 0 failed, sum of first outputs 5050\n", text)
            key = "key-" + at[:4]
            for state in "is new", "exists":
                rc, text = sh_env(f"./jobs {fixed} {key} {at}")
                want = [f"suite {state}", ": passed", ": failed",
                        "passed: y differs in 0 of 4 elements, by at most 0",
                        "failed: y differs in 1 of 4 elements, by at most 1"]
                result(f"examples/jobs {at[:4]}: the suite {state}",
                       rc == 0 and all(w in text for w in want), text)
        result("the daemon ends cleanly", d.stop() == 0)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return result.code()

sys.exit(main())
