#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hlo doctor MODEL`, `hlo compile --explain`: steps beside what the cost model expects of them,
with inputs of their own making; what runs by a fallback is named.
Usage: doctor.py BUILD"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

build = sys.argv[1]
result = Results()
work = tempfile.mkdtemp(prefix="hlod-doctor-")
model = os.path.join(work, "m.hlo")
with open(model, "w") as f:
    f.write("""HloModule m
ENTRY e {
  x = f32[256,512] parameter(0)
  w = f32[512,512] parameter(1)
  d = f32[256,512] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = f32[256,512] sine(d)
}
""")


def doctor(d, *words):
    return subprocess.run([build + "/hlo", *words],
                          env={**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}, capture_output=True,
                          text=True, timeout=60)


d = Daemon(build + "/hlod", build + "/hlod-worker")
try:
    result.command("inputs of its own making", doctor(d, "doctor", model), 0,
                   r"^model +\w{64} on cpu:0\nsteps +2, .*\n(.*\n)*time by implementation\n(.*\n"
                   r")*longest steps(.*\n)*.* sine|fusion")
    result.command("inputs that are given",
                   doctor(d, "doctor", model, "-i", "x=256x512xf32=random", "-i",
                          "w=512x512xf32=random"), 0, r"steps +2")
    rows = json.loads(doctor(d, "--json", "doctor", model).stdout)["rows"]
    result("as JSON", len(rows) == 2, rows)
    result("rows have estimates", all(r["estimateMs"] > 0 for r in rows), rows)
    off = [r["ms"] / r["estimateMs"] for r in rows if r["estimateMs"] > 0]
    result("a product and a sine are within fifty times of the model, either way",
           all(1 / 50 < x < 50 for x in off), rows)
    p = doctor(d, "compile", model, "--explain")
    result.command("compile --explain", p, 0, r"\n2 steps, estimated at [\d.]+ ms on \d+ thread")
    result.command(
        "a row for each step", p, 0,
        r" dot +(onednn|matmul)\S* (.*\n)+ .*not by: .*thin \(not a product of few rows"
        r"[^)]*\)(.*\n)+.* kernel ")
    result.command("compile --explain=measured", doctor(d, "compile", model, "--explain=measured"),
                   0, r"estimated at(.*\n)+.*longest steps: measured, share, estimated, ")
    result.command("--explain as JSON", doctor(d, "--json", "compile", model, "--explain"), 2, "",
                   "--explain is a text")
    result.command("the stage explain", doctor(d, "inspect", model, "--stage", "explain"), 0,
                   r"^2 steps, estimated")
    result.command("an input of another shape",
                   doctor(d, "doctor", model, "-i", "x=2x512xf32=random"), 3, "", "hlo: ")
    result.command("no such model", doctor(d, "doctor", "0" * 64), 3, "", "hlo: ")
    with open(model, "w") as f:
        f.write("HloModule m\ngt {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = "
                "pred[] compare(a, b), direction=GT, type=TOTALORDER\n}\nENTRY e {\n  x = "
                "f32[64,1024] parameter(0)\n"
                "  ROOT r = (f32[64,3], s32[64,3]) custom-call(x), custom_call_target=\"TopK\", "
                "called_computations={gt}\n}\n")
    result.command("the reference evaluator is named", doctor(d, "doctor", model), 0,
                   r"worth a report(.*\n)*.*no kernel takes it: the reference evaluator runs it")
    result.command("so does --explain", doctor(d, "compile", model, "--explain"), 0,
                   r" custom-call +reference (.*\n)+ .*not by: .*kernel \(no kernel was "
                   r"generated\)\n.*a fallback: the reference evaluator")
    result.command("the server itself", doctor(d, "doctor"), 0, r"all well")
finally:
    d.stop()
sys.exit(result.code())
