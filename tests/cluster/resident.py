#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resident buffers and uploads in pieces by way of any node: who asks need not know where they
are. Over HTTP and gRPC, with the real worker's simulated device; nodes that end, hang or lie;
whose they are. by_grpc needs grpcio and protobuf.
Usage: resident.py --hlod BIN --hlo BIN --worker BIN --nats BIN [--short] [NAME...]"""
import hashlib, json, os, signal, struct, subprocess, sys
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "sched")]
from nats import (Liar, Nodes, Raw, Server, cluster, name, number, scenarios, sealed_beat, states,
                  tenants_tokens, text, value)
from harness import until
from sim import bad, program

BYTES = {"Accept": "application/octet-stream"}

def site(o, nats, *options, n=2, device="sim", shared=True):
    """nodes with the worker that computes, beside the scripted one"""
    o.worker = os.path.join(os.path.dirname(o.hlod), "hlod-worker")
    return Nodes(o, n, nats.url, "--device", device, *options, shared=shared)
def compiled(d, body, headers={}):
    status, r = d.json("POST", "/v1/executables", body, {"Content-Type": "text/x-hlo", **headers})
    assert status == 200, r
    return r["sourceDigest"]
def named(n, what="m", body=None, headers={}):
    """a model that all nodes know by name"""
    digest = compiled(n.d[0], body or program(3), headers)
    name(n.d[0], what, digest, headers=headers)
    for d in n.d:
        until("it is known", 15, lambda: any(
            m["name"] == what for m in
            d.json("GET", "/v1/models", headers=headers)[1].get("models", [])))

def tensor(values):
    return {"name": "x", "dtype": "f32", "shape": [len(values)], "data": list(values)}
def place(d, values=(1, 2, 3, 4), headers={}, **more):
    status, r = d.json("POST", "/v1/buffers", {"inputs": [tensor(values)], **more}, headers)
    assert status == 200, r
    return r["buffers"][0]["handle"]
def fetch(d, handle, headers={}):
    status, r = d.json("GET", f"/v1/buffers/{handle}", headers=headers)
    assert status == 200, r
    return r["outputs"][0]["data"]
def run(d, handle, headers={}, model="m", **more):
    return d.json("POST", "/v1/run", {"model": model, "inputs": [
        {"name": "x", "handle": handle, "donate": more.pop("donate", False)}], **more}, headers)
def relays(d, outcome="ok"):
    return value(d, "hlod_cluster_relays_total", f'{{outcome="{outcome}"}}')
def jobs(d):
    return cluster(d)["nodes"][0].get("jobs", 0)

# ---- buffers

def anywhere(o):
    """a buffer of one node is read, used, renewed, donated, joined and freed by way of another"""
    with Server(o) as nats, site(o, nats) as n:
        n.meet()
        named(n)
        a, b = n.d
        h = place(a)
        assert h.startswith("n0:b"), h
        before = relays(b)
        status, r = b.json("GET", f"/v1/buffers/{h}")
        assert status == 200 and r["outputs"][0]["data"] == [1, 2, 3, 4], r
        assert r["buffer"]["node"] == "n0" and r["buffer"]["handle"] == h, r
        assert relays(b) == before + 1 and relays(a) == 0
        raw = struct.pack("<4f", 1, 2, 3, 4)
        for ask, want, where in ((None, raw, None), ("bytes=4-7", raw[4:8], "4-7"),
                                 ("bytes=8-", raw[8:], "8-15"), ("bytes=-4", raw[12:], "12-15"),
                                 ("nonsense", raw, None)):
            for d in n.d:  # the same answer
                status, head, part = d.call("GET", f"/v1/buffers/{h}", headers={
                    **BYTES, **({"Range": ask} if ask else {})})
                assert (status, part, head["hlod-tensor"], head["accept-ranges"]) == (
                    206 if where else 200, want, "f32[4]", "bytes"), (ask, status, head)
                assert head.get("content-range") == (f"bytes {where}/16" if where else None), head
        assert b.call("GET", f"/v1/buffers/{h}", headers={**BYTES, "Range": "bytes=16-"})[0] == 416
        status, r = b.json("GET", f"/v1/buffers/{h}?offset=4&length=8")
        assert status == 200 and r["part"] and not r["outputs"], r
        for query, range, want in (("offset=4&length=8", "", raw[4:12]),
                                   ("offset=12", "", raw[12:]),
                                   ("length=8", "nonsense", raw[:8]),
                                   ("offset=99", "bytes=4-7", raw[4:8])):
            for d in n.d:
                status, head, part = d.call("GET", f"/v1/buffers/{h}?{query}", headers={
                    **BYTES, **({"Range": range} if range else {})})
                assert (status, part, head["hlod-tensor"]) == (
                    206 if "=" in range else 200, want, "f32[4]"), (query, range, status, part)
        bad(b.json("GET", f"/v1/buffers/{h}?offset=99", headers=BYTES), 400, None)

        status, r = run(b, h)
        assert status == 200 and r["outputs"][0]["data"] == [4, 5, 6, 7] and r["node"] == "n0", r
        assert r["timings"] and r["model"] == "m", r
        status, _, body = b.call("POST", "/v1/run?stream=1", json.dumps(
            {"model": "m", "inputs": [{"name": "x", "handle": h}], "options": {"profile": True}}))
        lines = [json.loads(x) for x in body.splitlines()]
        kinds = [k for x in lines for k in x if k != "tMs"]
        assert status == 200 and kinds[-2:] == ["result", "done"] and "running" in kinds, kinds
        assert lines[-2]["result"]["outputs"][0]["data"] == [4, 5, 6, 7], lines
        status, head, body = b.call("POST", "/v1/run", json.dumps(
            {"model": "m", "inputs": [{"name": "x", "handle": h}]}), BYTES)
        assert status == 200 and body.endswith(struct.pack("<4f", 4, 5, 6, 7)), (head, body)

        status, r = b.json("POST", f"/v1/buffers/{h}/lease", {"leaseMs": 70000})
        assert status == 200 and r["leaseMs"] == 70000, r
        status, r = run(b, h, donate=True, keep=["*"])
        kept = r["outputs"][0]["handle"]
        assert status == 200 and kept.startswith("n0:b") and fetch(b, kept) == [4, 5, 6, 7], r
        bad(b.json("GET", f"/v1/buffers/{h}"), 400, "BUFFER_DONATED")
        status, r = b.json("POST", "/v1/tuples", {"elements": [kept, kept]})
        pair = r["handle"]
        assert status == 200 and pair.startswith("n0:b") and fetch(b, pair + ".1") == [4, 5, 6, 7]
        assert b.call("GET", f"/v1/buffers/{pair}", headers=BYTES)[0] == 400
        assert b.json("DELETE", f"/v1/buffers/{pair}")[0] == 200
        assert b.json("DELETE", f"/v1/buffers/{kept}")[0] == 200
        for d in n.d:
            bad(d.json("GET", f"/v1/buffers/{kept}"), 404, "BUFFER_NOT_FOUND")
        bad(b.json("GET", f"/v1/buffers/{h}", headers={"Hlod-Forwarded": "x"}), 404,
            "BUFFER_NOT_FOUND")  # once

WEIGHTED = """HloModule w
ENTRY e {
  x = f32[SIZE] parameter(0)
  w = f32[SIZE] parameter(1)
  ROOT r = f32[SIZE] add(x, w)
}
"""

def large(o):
    """tensors in a memfd beside a handle, over HTTP and gRPC, in runs and plans; handles of two
    nodes in one call are refused"""
    with Server(o) as nats, site(o, nats, n=3) as n:
        n.meet()
        size = 100000
        named(n, body=WEIGHTED.replace("SIZE", str(size)))
        h, other = place(n.d[1], range(size)), place(n.d[2], range(size))
        inputs = [tensor(range(size)), {"name": "w", "handle": h}]
        want = [2 * k for k in range(size)]
        status, r = n.d[0].json("POST", "/v1/run", {"model": "m", "inputs": inputs})
        assert status == 200 and r["outputs"][0]["data"] == want and r["node"] == "n1"
        plan = {"inputs": [tensor(range(size))],
                "steps": [{"name": "s", "model": "m", "inputs": [{"name": "x", "input": "x"},
                                                                 {"name": "w", "handle": h}]}],
                "outputs": [{"step": "s"}]}
        status, r = n.d[0].json("POST", "/v1/plan", plan)
        assert status == 200 and r["outputs"][0]["data"] == want and r["node"] == "n1"
        for d in n.d:
            both = [{"name": "x", "handle": h}, {"name": "w", "handle": other}]
            bad(d.json("POST", "/v1/run", {"model": "m", "inputs": both}), 400, "BUFFERS_APART")
            bad(d.json("POST", "/v1/tuples", {"elements": [h, other]}), 400, "BUFFERS_APART")
            plan["steps"][0]["inputs"][0] = {"name": "x", "handle": other}
            bad(d.json("POST", "/v1/plan", {**plan, "inputs": []}), 400, "BUFFERS_APART")
        assert fetch(n.d[0], other) == list(range(size))

def by_grpc(o):
    """the same over gRPC: unary calls, a stream, large messages, errors with their reasons"""
    import grpc
    sys.path.insert(0, os.path.join(HERE, "..", "grpc"))
    from client import OPTIONS, Api, Hlod, refused
    api = Api(os.path.dirname(o.hlod))
    with Server(o) as nats, site(o, nats, n=3) as n:
        n.meet()
        size = 100000
        named(n, body=WEIGHTED.replace("SIZE", str(size)))
        ask = [Hlod(api, grpc.insecure_channel(d.grpc, OPTIONS)) for d in n.d]
        raw, twice = (struct.pack(f"<{size}f", *(k * x for x in range(size))) for k in (1, 2))
        x = {"name": "x", "dtype": "f32", "shape": [size], "raw": raw}
        h = ask[1].PutBuffer(inputs=[x]).buffers[0].handle
        assert ask[0].GetBuffer(handle=h).outputs[0].raw == raw
        assert ask[0].GetBuffer(handle=h, offset=4, length=8).part == raw[4:12]
        both = [x, {"name": "w", "handle": h}]
        r = ask[2].RunUnary(model="m", inputs=both)
        assert r.outputs[0].raw == twice and r.node == "n1"
        events = list(ask[0].Run(model="m", inputs=both))
        kinds = [e.WhichOneof("kind") for e in events]
        assert kinds[-2:] == ["result", "done"] and "running" in kinds, kinds
        assert events[-2].result.outputs[0].raw == twice
        r = ask[2].RunUnary(model="m", inputs=[x, {"name": "w", "handle": h, "donate": True}],
                            keep=["*"])
        kept = r.outputs[0].handle
        assert kept.startswith("n1:b") and not r.outputs[0].raw
        assert [b.handle for b in ask[0].ListBuffers().buffers] == [kept]
        refused(grpc.StatusCode.FAILED_PRECONDITION, lambda: ask[0].GetBuffer(handle=h),
                "BUFFER_DONATED")
        assert ask[0].RenewBuffer(handle=kept, lease_ms=-1).left_ms == -1
        assert ask[2].FreeBuffer(handle=kept).bytes == 4 * size
        refused(grpc.StatusCode.NOT_FOUND, lambda: ask[0].FreeBuffer(handle=kept),
                "BUFFER_NOT_FOUND")
        u = ask[0].StartUpload(size=len(raw)).upload
        half = len(raw) // 2
        assert ask[1].AppendUpload(upload=u, offset=0, data=raw[:half]).offset == half
        refused(grpc.StatusCode.FAILED_PRECONDITION,
                lambda: ask[2].AppendUpload(upload=u, offset=0, data=raw[:half]), "UPLOAD_OFFSET")
        assert ask[2].AppendUpload(upload=u, offset=half, data=raw[half:]).offset == len(raw)
        assert ask[1].FinishUpload(upload=u).digest == hashlib.sha256(raw).hexdigest()
        n.d[1].kill()
        refused(grpc.StatusCode.UNAVAILABLE, lambda: ask[0].GetBuffer(handle=kept))

def listed(o):
    """the list has the buffers of all nodes, and names those that do not answer"""
    with Server(o) as nats, site(o, nats, n=3) as n:
        n.meet()
        all = sorted(place(d) for d in n.d)
        for d in n.d:
            r = d.json("GET", "/v1/buffers")[1]
            assert sorted(b["handle"] for b in r["buffers"]) == all and not r["missing"], r
            assert sorted(u["node"] for u in r["use"]) == ["n0", "n1", "n2"], r
            assert all == sorted(f"{b['node']}:{b['handle'].split(':')[1]}" for b in r["buffers"])
        shown = subprocess.run([o.hlo, "--addr", "%s:%d" % n.d[2].addr, "buffers"], text=True,
                               capture_output=True, timeout=60)
        assert shown.returncode == 0 and not [h for h in all if h not in shown.stdout], shown
        assert "n1 sim:0: 16 B" in shown.stderr and "did not answer" not in shown.stderr, shown
        n.d[1].kill()
        r = n.d[0].json("GET", "/v1/buffers")[1]
        assert r["missing"] == ["n1"] and len(r["buffers"]) == 2, r
        shown = subprocess.run([o.hlo, "--addr", "%s:%d" % n.d[2].addr, "buffers"], text=True,
                               capture_output=True, timeout=60)
        assert shown.returncode == 0 and "node n1 did not answer" in shown.stderr, shown
        n.d[2].stop_keep()  # what lay there is gone with it: nothing is missing
        until("it is gone", 10, lambda: states(n.d[0])["n2"] == "gone")
        r = n.d[0].json("GET", "/v1/buffers")[1]
        assert r["missing"] == ["n1"] and [b["node"] for b in r["buffers"]] == ["n0"], r

def home_ends(o):
    """of a node that is lost or has ended the answer is UNAVAILABLE and says so; of one that is
    back without it, or never was, NOT_FOUND; without NATS nodes that are known are asked"""
    with Server(o) as nats, site(o, nats) as n:
        n.meet()
        named(n)
        a, b = n.d
        h = place(a)
        assert run(b, h)[0] == 200
        def never_was(h):
            return run(b, h)[1].get("reason") == "BUFFER_NOT_FOUND"
        until("all that are there were heard", 10, lambda: never_was("n7:b1"))
        for never in "n7:b0123456789abcdef", "n7:", ":" + h.split(":")[1] + "0", (
                "x" * 3000 + ":b1"), "n0:n1:b1", "n0:b1:b1", "../n0:b1", "n0\\:b1", "n0%3Ab1%00":
            status, r = b.json("POST", "/v1/run", {"model": "m", "inputs": [
                {"name": "x", "handle": never}]})
            assert status == 404 and r["reason"] == "BUFFER_NOT_FOUND", (never, status, r)
            assert len(r["message"]) < 400, r
        until("both know", 10, lambda: cluster(b)["state"] == "connected")
        nats.kill()
        until("it notices", 10, lambda: cluster(b)["state"] == "connecting")
        assert run(b, h)[0] == 200
        r = bad(b.json("GET", "/v1/buffers/n7:b0123456789abcdef"), 503, None)
        assert "not heard yet" in r["message"], r
        for never in "x" * 3000 + ":b1", "n0\\:b1", "n7%0A:b1":  # no names of nodes
            r = bad(b.json("GET", f"/v1/buffers/{never}"), 404, "BUFFER_NOT_FOUND")
            assert len(r["message"]) < 400, r
        nats.start()
        for d in n.d:
            until("it is back", 15, lambda: cluster(d)["state"] == "connected")

        os.kill(a.p.pid, signal.SIGSTOP)
        r = bad(run(b, h), 503, None)  # once it is found lost
        assert "n0" in r["message"], r
        until("it is lost", 10, lambda: states(b)["n0"] == "lost")
        r = bad(b.json("GET", f"/v1/buffers/{h}"), 503, None)
        assert "node n0, which has it, is lost" in r["message"], r
        assert relays(b, "away") >= 1
        os.kill(a.p.pid, signal.SIGCONT)
        until("it is found again", 10, lambda: states(b)["n0"] == "serving")
        assert run(b, h)[0] == 200
        a.stop_keep()
        until("it is gone", 10, lambda: states(b)["n0"] == "gone")
        bad(run(b, h), 503, "BUFFER_LOST")
        n.restart(0)
        until("it is back", 10, lambda: states(b)["n0"] == "serving")
        bad(run(b, h), 404, "BUFFER_NOT_FOUND")

def cancels(o):
    """who leaves, or whose time is over, ends the run at the buffer's node"""
    with Server(o) as nats, site(o, nats, device="sim:latency_us=600000000") as n:
        n.meet()
        named(n)
        a, b = n.d
        h = place(a)
        c = b.connect(60)
        c.request("POST", "/v1/run", json.dumps({"model": "m", "inputs": [
            {"name": "x", "handle": h}]}))
        until("it runs there", 20, lambda: jobs(a) > 0)
        c.close()
        until("it is cancelled", 20, lambda: jobs(a) == 0)
        r = bad(run(b, h, {"Hlod-Timeout-Ms": "500"}), 504, "DEADLINE")
        r = bad(run(b, h, options={"timeoutMs": 500}), 504, "DEADLINE")
        assert fetch(b, h) == [1, 2, 3, 4]  # as it was

def tenants(o):
    """whose a buffer or an upload is its node says, by whichever way it is asked; a run is counted
    in its tenant's quota where it is done, once"""
    with Server(o) as nats, Nodes(o, 0, nats.url) as keys:
        file, auth = tenants_tokens(o, keys, a="read,run,compile,load", b="read,run,compile")
        with site(o, nats, "--tokens", file, "--tenants", "t-a:runs=4") as n:
            for d in n.d:
                until("all are known", 15,
                      lambda: len(cluster(d, **auth["a"]).get("nodes", [])) == 2)
            named(n, headers=auth["a"])
            h = place(n.d[0], headers=auth["a"])
            assert fetch(n.d[1], h, auth["a"]) == [1, 2, 3, 4]
            for d in n.d:
                for verb, path in ("GET", h), ("DELETE", h), ("GET", h.split(":")[1]):
                    bad(d.json(verb, f"/v1/buffers/{path}", headers=auth["b"]), 404,
                        "BUFFER_NOT_FOUND")
                bad(d.json("GET", "/v1/buffers/n1:" + h.split(":")[1], headers=auth["b"]), 404,
                    "BUFFER_NOT_FOUND")
                assert not d.json("GET", "/v1/buffers", headers=auth["b"])[1].get("buffers")
                assert len(d.json("GET", "/v1/buffers", headers=auth["a"])[1]["buffers"]) == 1
                bad(d.json("GET", f"/v1/buffers/{h}"), 401, "NO_CREDENTIALS")
            own = compiled(n.d[0], program(7), auth["a"])
            for d in n.d + n.d[::-1]:
                bad(d.json("POST", f"/v1/executables?model={own}", headers=auth["b"]), 404,
                    "MODEL_NOT_FOUND")
                status, r = d.json("POST", f"/v1/executables?model={own}", headers=auth["a"])
                assert status == 200 and r["sourceDigest"] == own, r
                bad(d.json("POST", "/v1/executables?model=" + "5" * 64, headers=auth["a"]), 404,
                    "MODEL_NOT_FOUND")
            status, r = n.d[0].json("POST", "/v1/uploads", {"size": 4}, auth["a"])
            u = r["upload"]
            for d in n.d:
                for verb in "GET", "DELETE":
                    bad(d.json(verb, f"/v1/uploads/{u}", headers=auth["b"]), 404,
                        "UPLOAD_NOT_FOUND")
            assert n.d[1].json("GET", f"/v1/uploads/{u}", headers=auth["a"])[0] == 200
            left = []
            for k in range(5):  # the put was the first of four
                left.append(run(n.d[1], h, auth["a"])[0])
            assert left[0] == 200 and left[-1] == 429, left
            assert fetch(n.d[1], h, auth["a"]) == [1, 2, 3, 4]

def liars(o):
    """a node that answers with what is no answer costs an error each; nothing of it is believed
    that cannot be"""
    with Server(o) as nats, site(o, nats, "--max-message-bytes", "1M", n=1) as n, Liar() as liar:
        d, raw = n.d[0], Raw(nats.port)
        def heard(): # again: it may not have subscribed yet
            raw.publish(sealed_beat(node="liar", life="x", address=liar.url, places=9))
            raw.flush()
            return "liar" in states(d)
        until("it is known", 10, heard)
        def tensor(dtype="f32", shape=(4,), raw=b"\0" * 16, more=b""):
            return (text(1, "x") + text(2, dtype) + b"".join(number(3, k) for k in shape) +
                    text(4, raw) + more)
        def got(*outputs, buffer=text(1, "h") + text(3, "f32") + number(4, 4) + number(5, 16),
                more=b""):
            return text(1, buffer) + b"".join(text(2, x) for x in outputs) + more
        for answer in (b"", b"\xff" * 9, got(tensor("nope")), got(tensor(raw=b"\0" * 15)),
                       got(tensor(shape=(1 << 40, 1 << 40))), got(tensor(shape=(-1,))),
                       got(tensor("string", (1 << 30,)))):
            for head in {}, BYTES, {**BYTES, "Range": "bytes=0-3"}, {
                    "Accept": "application/x-protobuf"}:
                liar.answer = answer
                status, _, body = d.call("GET", "/v1/buffers/liar:b1", headers=head)
                assert status in (416, 500, 503) or (status == 200 and not answer), (
                    answer[:40], head, status, body)
        liar.answer = got(tensor())
        assert fetch(d, "liar:b1") == [0] * 4
        assert d.call("GET", "/v1/buffers/liar:b1", headers=BYTES)[2] == b"\0" * 16
        liar.answer = got(tensor(), buffer=text(1, "h") + text(3, "f32") + number(5, 99))
        assert d.call("GET", "/v1/buffers/liar:b1", headers=BYTES)[0] == 503
        for answer in b"", b"\xff" * 7, struct.pack("<I", 1 << 31), (
                struct.pack("<I", 6) + b"\x4a\x04" + text(3, text(2, "u"))):
            liar.answer = answer
            for path in "/v1/run", "/v1/run?stream=1":
                status, _, body = d.call("POST", path, json.dumps(
                    {"model": "m", "inputs": [{"name": "x", "handle": "liar:b1"}]}))
                assert status in (200, 500, 503), (answer, path, status, body)
                assert status != 200 or "stream" in path or not answer, (answer, path, body)
        liar.answer = b"\0" * (3 << 20)
        status, r = d.json("GET", "/v1/buffers/liar:b1")
        assert r["code"] == "RESOURCE_EXHAUSTED" and "sends more than" in r["message"], r
        liar.answer = b"\xff"
        assert d.json("GET", "/v1/buffers")[1]["missing"] == ["liar"]
        status, r = d.json("PUT", "/v1/uploads/liar:0?offset=0", b"x" * 100000)
        assert status == 503 and "liar" in r["message"], r
        assert d.json("GET", "/v1/health")[0] == 200
        raw.close()

# ---- uploads

def pieces(o):
    """an upload that was begun at one node goes on, is finished and cancelled by way of others,
    also when its node was started again meanwhile"""
    with Server(o) as nats, site(o, nats, n=3) as n:
        n.meet()
        body = program(3).encode()
        status, r = n.d[0].json("POST", "/v1/uploads", {"size": len(body)})
        u = r["upload"]
        assert status == 200 and u.startswith("n0:"), r
        cut = len(body) // 3
        def put(d, at, end):
            return d.json("PUT", f"/v1/uploads/{u}?offset={at}", body[at:end])
        for k in range(2):
            status, r = put(n.d[k + 1], k * cut, k * cut + cut)
            assert status == 200 and int(r["offset"]) == k * cut + cut and r["upload"] == u, r
        bad(put(n.d[1], 0, cut), 400, "UPLOAD_OFFSET")
        bad(n.d[2].json("POST", f"/v1/uploads/{u}/finish"), 400, "UPLOAD_OFFSET")
        assert int(n.d[2].json("GET", f"/v1/uploads/{u}")[1]["offset"]) == 2 * cut
        n.d[0].stop_keep()
        until("it is gone", 10, lambda: states(n.d[1])["n0"] == "gone")
        r = bad(put(n.d[1], 2 * cut, len(body)), 503, None)
        assert "node n0" in r["message"], r
        n.restart(0)
        for d in n.d:
            until("it is back", 10, lambda: states(d).get("n0") == "serving")
        assert put(n.d[1], 2 * cut, len(body))[0] == 200
        for d in n.d[1:] + n.d:
            status, r = d.json("POST", f"/v1/uploads/{u}/finish")
            assert status == 200 and r["digest"] == hashlib.sha256(body).hexdigest(), r
        digest = r["digest"]
        for d in n.d[1:] + n.d:  # wherever it lies
            status, r = d.json("POST", "/v1/run", {"model": digest, "inputs": [tensor(range(4))]})
            assert status == 200 and r["outputs"][0]["data"] == [3, 4, 5, 6], r
        other = compiled(n.d[0], program(8))
        name(n.d[1], "other", other)
        status, r = n.d[2].json("POST", "/v1/uploads", {"size": 4 << 20})
        u, big = r["upload"], os.urandom(4 << 20)
        assert n.d[0].json("PUT", f"/v1/uploads/{u}?offset=0", big)[0] == 200
        status, r = n.d[1].json("POST", f"/v1/uploads/{u}/finish")
        assert status == 200 and r["digest"] == hashlib.sha256(big).hexdigest(), r
        status, r = n.d[2].json("POST", "/v1/uploads", {"size": 4})
        assert n.d[0].json("DELETE", f"/v1/uploads/{r['upload']}")[0] == 200
        for d in n.d:
            bad(d.json("GET", f"/v1/uploads/{r['upload']}"), 404, "UPLOAD_NOT_FOUND")

def renamed(o):
    """a node that got another name on its folder still has the uploads that it had"""
    with Server(o) as nats, site(o, nats) as n:
        n.meet()
        u = n.d[0].json("POST", "/v1/uploads", {"size": 4})[1]["upload"]
        n.d[0].stop_keep()
        n.args[0][1] = "m0"
        n.restart(0)
        until("all is known", 20, lambda: "m0" in states(n.d[1]) and "n1" in states(n.d[0]))
        until("n0 is nobody", 20, lambda: n.d[0].json("GET", f"/v1/uploads/{u}")[0] == 200)
        status, r = n.d[0].json("PUT", f"/v1/uploads/{u}?offset=0", b"abcd")
        assert status == 200 and r["upload"].startswith("m0:"), r
        assert n.d[1].json("POST", f"/v1/uploads/{r['upload']}/finish")[0] == 200

def plain(o):
    """nodes without a secret do not call each other: handles name no node, errors do"""
    with Server(o) as nats, site(o, nats, shared=False) as n:
        n.meet()
        h = place(n.d[0])
        assert h.startswith("b") and fetch(n.d[0], h) == [1, 2, 3, 4]
        u = n.d[0].json("POST", "/v1/uploads", {"size": 4})[1]["upload"]
        assert ":" not in u
        for path in f"buffers/{h}", f"uploads/{u}":
            status, r = n.d[1].json("GET", f"/v1/{path}")
            assert status == 404 and "on node n1 " in r["message"], r

SHORT = [anywhere]
ALL = SHORT + [large, by_grpc, listed, home_ends, cancels, tenants, liars, pieces, renamed, plain]

if __name__ == "__main__":
    sys.exit(scenarios("cluster resident ", SHORT, ALL))
