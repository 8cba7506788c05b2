#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`hlo doctor MODEL`: steps beside what they need, with inputs of its own making; what runs by a last resort is named.
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
    return subprocess.run([build + "/hlo", *words], env={**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}, capture_output=True, text=True, timeout=60)


d = Daemon(build + "/hlod", build + "/hlod-worker")
try:
    result.command("inputs of its own making", doctor(d, "doctor", model), 0, r"^model +\w{64} on cpu:0\nsteps +2, .*\n(.*\n)*time by implementation\n(.*\n)*longest steps(.*\n)*.* sine|fusion")
    result.command("inputs that are given", doctor(d, "doctor", model, "-i", "x=256x512xf32=random", "-i", "w=512x512xf32=random"), 0, r"steps +2")
    rows = json.loads(doctor(d, "--json", "doctor", model).stdout)["rows"]
    result("as JSON", len(rows) == 2, rows)
    result.command("an input of another shape", doctor(d, "doctor", model, "-i", "x=2x512xf32=random"), 3, "", "hlo: ")
    result.command("no such model", doctor(d, "doctor", "0" * 64), 3, "", "hlo: ")
    with open(model, "w") as f:
        f.write("HloModule m\nENTRY e {\n  l = f32[] parameter(0)\n  h = f32[] parameter(1)\n  ROOT r = f32[64,1024] rng(l, h), distribution=rng_uniform\n}\n")
    result.command("the reference evaluator is named", doctor(d, "doctor", model), 0, r"worth a report(.*\n)*.*no kernel takes it: the reference evaluator runs it")
    result.command("the server itself", doctor(d, "doctor"), 0, r"all well")
finally:
    d.stop()
sys.exit(result.code())
