#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resident buffers and plans by python grpcio against real workers on simulated devices.
Usage: buffers_test.py --build DIR --worker BIN"""
import os, struct, sys
import grpc
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
from client import OPTIONS, Api, Hlod, refused
from harness import Daemon, Results, chosen, options

def f32(values):
    return struct.pack(f"<{len(values)}f", *values)
def tensor(values, name="x"):
    return {"name": name, "dtype": "f32", "shape": [len(values)], "raw": f32(values)}
def source(add, n):
    return (f"HloModule m\nENTRY e {{\n  x = f32[{n}] parameter(0)\n  c = f32[] constant({add})\n  "
            f"b = f32[{n}] broadcast(c), dimensions={{}}\n  ROOT r = f32[{n}] add(x, b)\n"
            f"}}\n".encode())
def put_run_keep(h):
    m = h.Compile(source=source(1, 4)).source_digest
    b = h.PutBuffer(inputs=[tensor([1, 2, 3, 4])], lease_ms=60000).buffers[0]
    assert (
        (b.name, list(b.shape), b.bytes, b.state, b.lease_ms) == ("x", [4], 16, "ready", 60000)), b
    assert h.GetBuffer(handle=b.handle).outputs[0].raw == f32([1, 2, 3, 4])
    assert h.GetBuffer(handle=b.handle, offset=4, length=8).part == f32([2, 3])
    refused(grpc.StatusCode.OUT_OF_RANGE, lambda: h.GetBuffer(handle=b.handle, offset=12, length=8),
            None)
    r = h.RunUnary(model=m, inputs=[{"name": "x", "handle": b.handle}])
    assert r.outputs[0].raw == f32([2, 3, 4, 5]) and not r.outputs[0].handle
    r = h.RunUnary(model=m, inputs=[{"name": "x", "handle": b.handle, "donate": True}], keep=["*"])
    kept = r.outputs[0]
    assert kept.handle and not kept.raw and list(kept.shape) == [4]
    assert b.handle in refused(grpc.StatusCode.FAILED_PRECONDITION,
                               lambda: h.GetBuffer(handle=b.handle), "BUFFER_DONATED").details()
    assert [x.handle for x in h.ListBuffers().buffers] == [kept.handle]
    assert h.RenewBuffer(handle=kept.handle, lease_ms=-1).left_ms == -1
    assert h.FreeBuffer(handle=kept.handle).bytes == 16
    refused(grpc.StatusCode.NOT_FOUND, lambda: h.FreeBuffer(handle=kept.handle), "BUFFER_NOT_FOUND")

def large(h):
    n = 1 << 20  # 4 MiB: cut out of the message, memfds both ways
    values = [float(k % 1000) for k in range(n)]
    b = h.PutBuffer(inputs=[tensor(values)], tuple=True).buffers[0]
    assert b.tuple and b.elements[0].bytes == 4 * n
    assert h.GetBuffer(handle=b.handle + ".0").outputs[0].raw == f32(values)
    m = h.Compile(source=source(1, n)).source_digest
    r = h.RunUnary(model=m, inputs=[{"handle": b.handle}], keep=["*"], keep_tuple=True)
    assert r.tuple and r.outputs[0].handle == r.tuple + ".0"
    assert h.GetBuffer(handle=r.tuple).outputs[0].raw == f32([v + 1 for v in values])
    pair = h.MakeTuple(elements=[r.tuple, b.handle + ".0"])
    assert len(pair.elements) == 2
    for handle in (b.handle, r.tuple, pair.handle):
        h.FreeBuffer(handle=handle)
    assert not h.ListBuffers().buffers and h.ListBuffers().use[0].bytes == 0

def plans(h):
    m = [h.Compile(source=source(k, 4)).source_digest for k in (1, 10)]
    q = dict(inputs=[tensor([1, 2, 3, 4])], outputs=[{"step": "b", "name": "y"}],
             steps=[{"name": "a", "model": m[0], "inputs": [{"name": "x", "input": "x"}]},
                    {"name": "b", "model": m[1], "inputs": [{"name": "x", "step": "a"}]}])
    r = h.RunPlanUnary(**q)
    assert (r.outputs[0].name == "y" and r.outputs[0].raw == f32([12, 13, 14, 15])
            and [s.name for s in r.steps] == ["a", "b"]), r
    events = list(h.RunPlan(**q, options={"profile": True}))
    assert [e.plan_step.name for e in events if e.WhichOneof("kind") == "plan_step"] == ["a", "b"]
    assert {e.step for e in events if e.WhichOneof("kind") == "compiled"} == {"a", "b"}
    assert (events[-2].result.outputs[0].raw == f32([12, 13, 14, 15])
            and events[-2].result.steps[1].profile.rows and events[-1].done.code == "OK")
    bad = dict(q, steps=[q["steps"][0], {**q["steps"][1], "inputs": [{"name": "x", "step": "c"}]}])
    assert "no step 'c'" in refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: h.RunPlanUnary(**bad),
                                    "BAD_PLAN").details()
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: h.RunPlan(**bad), "BAD_PLAN")

def main():
    o, results = options("build", "worker"), Results()
    for scenario in chosen(o, (put_run_keep, large, plans)):
        d = Daemon(o.build + "/hlod", o.worker, args=["--device", "sim"])
        with grpc.insecure_channel(d.grpc, OPTIONS) as channel:
            h = Hlod(Api(o.build), channel)
            results.scenario("grpc buffers " + scenario.__name__, d, lambda d: scenario(h))
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
