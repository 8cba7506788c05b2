#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole programs on the real CPU worker: a loop of a thousand iterations with conditionals inside
runs without a frame in between, and results whose size only the run knows come back in that size.
Needs numpy. Usage: programs.py BUILD"""
import os, re, subprocess, sys
import numpy as np
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

# x is doubled or halved by whether it is below 1, in a conditional in the else branch of another
# one, which every third iteration adds a half.
LOOP = """HloModule loop
half { a = f32[4] parameter(0)
 h = f32[] constant(0.5)
 hb = f32[4] broadcast(h), dimensions={}
 ROOT r = f32[4] multiply(a, hb) }
twice { b = f32[4] parameter(0)
 ROOT r = f32[4] add(b, b) }
more { c = f32[4] parameter(0)
 h = f32[] constant(0.5)
 hb = f32[4] broadcast(h), dimensions={}
 ROOT r = f32[4] add(c, hb) }
other { d = f32[4] parameter(0)
 first = f32[1] slice(d), slice={[0:1]}
 s = f32[] reshape(first)
 one = f32[] constant(1)
 small = pred[] compare(s, one), direction=LT
 ROOT r = f32[4] conditional(small, d, d), true_computation=twice, false_computation=half }
body { q = (s32[], s32[], f32[4]) parameter(0)
 i = s32[] get-tuple-element(q), index=0
 n = s32[] get-tuple-element(q), index=1
 x = f32[4] get-tuple-element(q), index=2
 three = s32[] constant(3)
 zero = s32[] constant(0)
 one = s32[] constant(1)
 m = s32[] remainder(i, three)
 third = pred[] compare(m, zero), direction=EQ
 y = f32[4] conditional(third, x, x), true_computation=more, false_computation=other
 j = s32[] add(i, one)
 ROOT r = (s32[], s32[], f32[4]) tuple(j, n, y) }
cond { p = (s32[], s32[], f32[4]) parameter(0)
 i = s32[] get-tuple-element(p), index=0
 n = s32[] get-tuple-element(p), index=1
 ROOT c = pred[] compare(i, n), direction=LT }
ENTRY main { n = s32[] parameter(0)
 x = f32[4] parameter(1)
 zero = s32[] constant(0)
 t = (s32[], s32[], f32[4]) tuple(zero, n, x)
 w = (s32[], s32[], f32[4]) while(t), condition=cond, body=body
 ROOT y = f32[4] get-tuple-element(w), index=2 }
"""
DYNAMIC = """HloModule dynamic
ENTRY main { n = s32[] parameter(0)
 x = f32[3,5] parameter(1)
 d = f32[3,<=5] set-dimension-size(x, n), dimensions={1}
 e = f32[<=3,<=5] set-dimension-size(d, n), dimensions={0}
 ROOT t = f32[<=5,<=3] transpose(e), dimensions={1,0} }
"""
# As XLA writes a computation that takes its arguments as one tuple.
TUPLE = """HloModule tuple, input_output_alias={ {0}: (0, {1, 0}, may-alias) }, \
entry_computation_layout={((f32[3]{0}, (f32[2,3]{1,0}, s32[])), f32[])->(f32[2,3]{1,0}, s32[])}
twice { p.1.0 = (f32[2,3], s32[]) parameter(0)
 a = f32[2,3] get-tuple-element(p.1.0), index=0
 n = s32[] get-tuple-element(p.1.0), index=1
 b = f32[2,3] add(a, a)
 ROOT r = (f32[2,3], s32[]) tuple(b, n) }
ENTRY main { p = (f32[3], (f32[2,3], s32[])) parameter(0)
 s = f32[] parameter(1)
 row = f32[3] get-tuple-element(p), index=0
 inner = (f32[2,3], s32[]) get-tuple-element(p), index=1
 two = (f32[2,3], s32[]) call(inner), to_apply=twice
 x = f32[2,3] get-tuple-element(two), index=0
 n = s32[] get-tuple-element(two), index=1
 rows = f32[2,3] broadcast(row), dimensions={1}
 scale = f32[2,3] broadcast(s), dimensions={}
 z = f32[2,3] multiply(x, scale)
 y = f32[2,3] add(z, rows)
 ROOT r = (f32[2,3], s32[]) tuple(y, n) }
"""

build = sys.argv[1]
result = Results()

def expected(n, x):
    x = x.copy()
    for i in range(n):
        x = x + np.float32(0.5) if i % 3 == 0 else x + x if x[0] < 1 else x * np.float32(0.5)
    return x

def frame_bytes(d):
    text = d.call("GET", "/metrics")[2].decode()
    return {w: int(re.search(rf"^hlod_frames_{w}_bytes_total (\d+)", text, re.M).group(1))
            for w in ("sent", "received")}

def run(d, model, n, x):
    body = {"model": model, "inputs": [{"name": "n", "datatype": "INT32", "shape": [], "data": [n]},
                                       {"name": "x", "datatype": "FP32", "shape": list(x.shape),
                                        "data": x.ravel().tolist()}]}
    before = frame_bytes(d)
    status, got = d.json("POST", "/v1/run", body)
    after = frame_bytes(d)
    out = got["outputs"][0] if status == 200 else None
    return out, {w: after[w] - before[w] for w in before}, got

d = Daemon(build + "/hlod", build + "/hlod-worker")
try:
    x = np.array([0.75, -1, 3, 0.1], np.float32)
    status, _, body = d.call("POST", "/v1/executables", LOOP.encode())
    result("the loop compiles into one executable", status == 200, body)
    model = d.json("POST", "/v1/executables", LOOP.encode())[1]["digest"]
    run(d, model, 1, x)
    one, bytes_one, got = run(d, model, 1, x)
    result("one iteration",
           one and np.array_equal(np.array(one["data"], np.float32), expected(1, x)), got)
    many, bytes_many, got = run(d, model, 1000, x)
    result("a thousand iterations",
           many and np.allclose(np.array(many["data"], np.float32), expected(1000, x), rtol=1e-6),
           got)
    # A frame has a header of 16 bytes; what may differ is how long numbers are in text and in
    # varints.
    result("no frame between iterations",
           all(abs(bytes_many[w] - bytes_one[w]) < 100 for w in bytes_one), (bytes_one, bytes_many))

    model = d.json("POST", "/v1/executables", DYNAMIC.encode())[1]["digest"]
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    for n in (2, 0, 3):
        out, _, got = run(d, model, n, x)
        want = x[:n, :n].T
        result(f"true sizes of a result: {n}",
               out and out["shape"] == list(want.shape) and np.array_equal(
                   np.array(out["data"], np.float32), want.ravel()), got)

    proto = subprocess.run([build + "/hlo-opt", "--passes=dce", "--to=proto", "-"],
                           input=TUPLE.encode(), stdout=subprocess.PIPE, check=True).stdout
    row, x = np.array([1, 2, 3], np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    values = {"p.0": row, "p.1.0": x, "p.1.1": np.array(7, np.int32),
              "s": np.array(0.5, np.float32)}
    inputs = [{"name": n, "datatype": "INT32" if v.dtype == np.int32 else "FP32",
               "shape": list(v.shape), "data": v.ravel().tolist()} for n, v in values.items()]
    for form, program in (("text", TUPLE.encode()), ("HloModuleProto", proto)):
        status, made = d.json("POST", "/v1/executables", program)
        result(f"a tuple of arguments, {form}: compiled", status == 200, made)
        status, got = d.json("POST", "/v1/run", {"model": made.get("digest"), "inputs": inputs})
        out = [o["data"] for o in got.get("outputs", [])]
        result(f"a tuple of arguments, {form}: each array is an input",
               status == 200 and out == [(x + row).ravel().tolist(), [7]], got)
finally:
    result("the daemon ends cleanly", d.stop() == 0)
sys.exit(result.code())
