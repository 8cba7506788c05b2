#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Resident buffers and plans on simulated and real devices: the real daemon over HTTP (one scenario
by curl). As sim.py: each scenario's docstring begins with the devices.
Usage: buffers.py --hlod BIN --worker BIN [NAME...]"""
import http.client, json, os, random, signal, struct, subprocess, sys, threading, time
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
from harness import PATIENCE, Stopped, at_work, device, in_thread, metric, scenarios, until
from sim import bad, good, program, put, run

def tensor(values, name="x", dtype="f32"):
    return {"name": name, "dtype": dtype, "shape": [len(values)], "data": list(values)}

def place(d, values, **more):
    """The handle of a vector put on the device."""
    status, r = d.json("POST", "/v1/buffers", {"inputs": [tensor(values)], **more})
    assert status == 200, r
    return r["buffers"][0]["handle"]

def fetch(d, handle):
    status, r = d.json("GET", f"/v1/buffers/{handle}")
    assert status == 200, r
    return ([o["data"] for o in r["outputs"]] if r["buffer"].get("tuple")
            else r["outputs"][0]["data"])

def listed(d):
    status, r = d.json("GET", "/v1/buffers")
    assert status == 200, r
    return r

def states(d):
    return {b["handle"]: b["state"] for b in listed(d)["buffers"]}

def step(d, model, inputs, status=200, **more):
    got, r = d.json("POST", "/v1/run", {"model": model, "inputs": inputs, **more})
    assert got == status, r
    return r

def free(d, handle):
    return d.json("DELETE", f"/v1/buffers/{handle}")

def compiled(d, text):
    status, r = d.json("POST", "/v1/executables", text, {"Content-Type": "text/x-hlo"})
    assert status == 200, r
    return r["sourceDigest"]

def compiled_text(n, k):
    """y = W x + k: W an input, so that it can stay on the device."""
    return (f"HloModule m{k}\nENTRY e {{\n  x = f32[{n}] parameter(0)\n  w = f32[{n},{n}] "
            f"parameter(1)\n  d = f32[{n}] dot(w, x), lhs_contracting_dims={{1}}, "
            f"rhs_contracting_dims={{0}}\n"
            f"  c = f32[] constant({k})\n  b = f32[{n}] broadcast(c), dimensions={{}}\n  ROOT r = "
            f"f32[{n}] add(d, b)\n}}\n")

# ---- buffers

def life(d):
    """sim
    Put, get whole and in part, run with it, list, renew, free; every later use says what became of
    it."""
    m = put(d, 3)
    h = place(d, [1, 2, 3, 4], lease_ms=60000)
    assert fetch(d, h) == [1, 2, 3, 4]
    b = listed(d)["buffers"][0]
    assert (b["handle"], b["name"], b["dtype"], b["shape"], b["bytes"], b["device"], b["state"],
            b["leaseMs"]) == (h, "x", "f32", [4], 16, "sim:0", "ready", 60000), b
    status, head, raw = d.call("GET", f"/v1/buffers/{h}",
                               headers={"Accept": "application/octet-stream"})
    assert (status, raw, head["hlod-tensor"], head["accept-ranges"]) == (
        200, struct.pack("<4f", 1, 2, 3, 4), "f32[4]", "bytes"), head
    for ask, want, where in ("bytes=4-7", raw[4:8], "4-7"), ("bytes=8-", raw[8:], "8-15"), (
        "bytes=-4", raw[12:], "12-15"):
        status, head, part = d.call("GET", f"/v1/buffers/{h}",
                                    headers={"Accept": "application/octet-stream", "Range": ask})
        assert (status, part, head["content-range"]) == (206, want, f"bytes {where}/16"), (
            ask, status, head)
    assert d.call("GET", f"/v1/buffers/{h}",
                  headers={"Accept": "application/octet-stream", "Range": "bytes=16-"})[0] == 416
    assert step(d, m, [{"name": "x", "handle": h}])["outputs"][0]["data"] == [4, 5, 6, 7]
    assert fetch(d, h) == [1, 2, 3, 4]
    status, r = d.json("POST", f"/v1/buffers/{h}/lease", {"lease_ms": -1})
    assert (status, r["leaseMs"], r["leftMs"]) == (200, -1, -1), r
    assert listed(d)["use"] == [{"device": "sim:0", "bytes": 16, "quotaBytes": 8 << 30,
                                 "buffers": 1}], listed(d)["use"]
    assert free(d, h) == (200, {"handle": h, "bytes": 16})
    for reply in (free(d, h), d.json("GET", f"/v1/buffers/{h}"),
                  d.json("POST", "/v1/run", {"model": m, "inputs": [{"name": "x", "handle": h}]})):
        r = bad(reply, 404, "BUFFER_NOT_FOUND")
        assert h in r["message"] and "freed" in r["message"], r
    bad(d.json("GET", "/v1/buffers/b0123"), 404, "BUFFER_NOT_FOUND")
    assert listed(d)["buffers"] == []
    until("the worker's own count", 3, lambda: not device(d, "sim:0").get("buffers"))

def refused_requests(d):
    """sim
    What cannot be meant is refused with its name."""
    m = put(d)
    h = place(d, [1, 2, 3])
    r = bad(d.json("POST", "/v1/run", {"model": m, "inputs": [{"name": "x", "handle": h}]}), 400,
            "SHAPE_MISMATCH")
    assert "'x'" in r["message"] and "expected 4, found 3" in r["message"], r
    bad(d.json("POST", "/v1/run", {"model": m, "inputs": [{"name": "y", "handle": h}]}), 400,
        "UNKNOWN_INPUT")
    bad(d.json("POST", "/v1/run",
               {"model": m, "inputs": [{"name": "x", "handle": h, "dtype": "f32", "shape": [4],
                                        "data": [1, 2, 3, 4]}]}), 400, "BAD_TENSOR_DATA")
    bad(d.json("POST", "/v1/run",
               {"model": m, "inputs": [dict(tensor([1, 2, 3, 4]), donate=True)]}), 400,
        "BAD_TENSOR_DATA")
    bad(d.json("POST", "/v1/buffers", {"inputs": [{"name": "x", "handle": h}]}), 400,
        "BAD_TENSOR_DATA")
    assert d.json("POST", "/v1/buffers", {"inputs": []})[0] == 400
    four = place(d, [1, 2, 3, 4])
    bad(d.json("POST", "/v1/run",
               {"model": m, "inputs": [{"name": "x", "handle": four}], "keep": ["nothing"]}), 400,
        "UNKNOWN_OUTPUT")
    bad(d.json("POST", "/v1/run",
               {"model": m, "inputs": [{"name": "x", "handle": four, "donate": True}],
                "options": {"repeat": 3}}), 400, "BAD_OPTION")
    assert fetch(d, four) == [1, 2, 3, 4] and states(d) == {h: "ready", four: "ready"}

def training(d):
    """sim:memory=400K
    A state of 100 KB is donated in a loop of 100 steps: it lies on the device all the time, whose
    memory (room for the working set and one state more) stays flat."""
    n = 25000
    m = put(d, 1, n)
    state = place(d, [0.0] * n)
    sent = metric(d, "hlod_device_in_bytes_total")
    for turn in range(100):
        r = step(d, m, [{"name": "x", "handle": state, "donate": True}], keep=["*"])
        dead, state = state, r["outputs"][0]["handle"]
        assert "data" not in r["outputs"][0] and metric(d, "hlod_buffer_bytes") == 4 * n, turn
        if turn in (0, 50, 99):
            bad(d.json("GET", f"/v1/buffers/{dead}"), 400, "BUFFER_DONATED")
    assert metric(d, "hlod_device_in_bytes_total") == sent  # nothing was carried
    until("one buffer in the worker", 3,
          lambda: (device(d, "sim:0").get("buffers"),
                   device(d, "sim:0").get("bufferBytes")) == (1, 4 * n))
    assert fetch(d, state) == [100.0] * n
    assert list(states(d)) == [state] and metric(d, "hlod_buffers") == 1

def training_on_cpu(d):
    """cpu
    The same on the CPU: the worker's memory does not grow with the steps."""
    n = 500000
    m = put(d, 1, n)
    state = place(d, [0.0] * n)
    def steps(k):
        nonlocal state
        for _ in range(k):
            state = step(d, m, [{"name": "x", "handle": state, "donate": True}],
                         keep=["*"])["outputs"][0]["handle"]
    def rss():
        with open(f"/proc/{device(d, 'cpu:0')['workerPid']}/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    steps(10)
    before = rss()
    steps(90)
    assert rss() - before < 4 * n, (before, rss())
    assert fetch(d, state)[:3] == [100.0] * 3

def donation_is_taken_back(d):
    """sim:latency_us=5000
    While a run has it, a donated buffer is nobody's; a run that fails gives it back; whoever shares
    its memory keeps theirs."""
    m = put(d)
    h = place(d, [1, 2, 3, 4])
    good(run(d, m))
    with Stopped(device(d, "sim:0")["workerPid"]):
        t, out = in_thread(lambda: d.json("POST", "/v1/run",
                                          {"model": m,
                                           "inputs": [{"name": "x", "handle": h, "donate": True}],
                                           "options": {"timeout_ms": 3000}}))
        until("under way", PATIENCE, lambda: states(d)[h] == "busy")
        r = bad(d.json("POST", "/v1/run", {"model": m, "inputs": [{"name": "x", "handle": h}]}),
                400, "BUFFER_DONATED")
        assert "under way" in r["message"], r
        bad(free(d, h), 400, "BUFFER_DONATED")
        t.join()
        bad(out[0], 504, "DEADLINE")
    until("given back", 3, lambda: states(d)[h] == "ready")
    assert fetch(d, h) == [1, 2, 3, 4]
    status, both = d.json("POST", "/v1/tuples", {"elements": [h]})
    assert status == 200, both
    assert step(d, m,
                [{"name": "x", "handle": h, "donate": True}])["outputs"][0]["data"] == [2, 3, 4, 5]
    bad(d.json("GET", f"/v1/buffers/{h}"), 400, "BUFFER_DONATED")
    assert fetch(d, both["handle"]) == [[1, 2, 3, 4]]

def leases(d):
    """sim --buffer-lease-ms=2500
    A buffer that nobody uses is freed when its lease ends; use begins it anew; -1 has no end."""
    m = put(d)
    idle, used, ever = place(d, [1, 2, 3, 4]), place(d, [5, 6, 7, 8]), place(
        d, [9, 9, 9, 9], lease_ms=-1)
    while idle in states(d):
        step(d, m, [{"name": "x", "handle": used}])
        time.sleep(0.1)
    assert states(d) == {used: "ready", ever: "ready"}, states(d)
    r = bad(d.json("GET", f"/v1/buffers/{idle}"), 404, "BUFFER_NOT_FOUND")
    assert "lease of 2500 ms" in r["message"], r
    until("expired", 2, lambda: states(d) == {ever: "ready"})
    until("freed in the worker", 3, lambda: device(d, "sim:0").get("buffers") == 1)
    assert metric(d, "hlod_buffers_expired_total") == 2 and metric(d, "hlod_buffers") == 1

def quota(d):
    """sim:memory=1M --buffer-bytes=1000
    A tenant's buffers on a device stay within its quota: puts and kept results beyond are refused,
    donation makes room."""
    m = put(d, 1, 100)
    a = place(d, [0.0] * 100)
    b = place(d, [0.0] * 100)
    r = bad(d.json("POST", "/v1/buffers", {"inputs": [tensor([0.0] * 100)]}), 429, "BUFFER_QUOTA")
    assert "800 of 1000" in r["message"], r
    bad(d.json("POST", "/v1/run",
               {"model": m, "inputs": [{"name": "x", "handle": a}], "keep": ["*"]}), 429,
        "BUFFER_QUOTA")
    assert states(d) == {a: "ready", b: "ready"} and metric(d, "hlod_buffer_bytes") == 800
    c = step(d, m, [{"name": "x", "handle": a, "donate": True}], keep=["*"])["outputs"][0]["handle"]
    assert fetch(d, c) == [1.0] * 100
    free(d, b)
    place(d, [0.0] * 100)

def device_memory(d):
    """sim:memory=100K --buffer-bytes=1000000
    What the device has no memory for is refused, and nothing is left behind."""
    place(d, [0.0] * 20000)
    bad(d.json("POST", "/v1/buffers", {"inputs": [tensor([0.0] * 20000)]}), 429, "DEVICE_MEMORY")
    assert metric(d, "hlod_buffers") == 1 and metric(d, "hlod_buffer_bytes") == 80000

def tenants(d):
    """sim --trust-tenant-header
    A handle is its tenant's alone: to others it does not exist."""
    status, r = d.json("POST", "/v1/buffers", {"inputs": [tensor([1, 2, 3, 4])]},
                       {"Hlod-Tenant": "a"})
    h = r["buffers"][0]["handle"]
    m = put(d)
    for tenant in "b", None:
        head = {"Hlod-Tenant": tenant} if tenant else {}
        bad(d.json("GET", f"/v1/buffers/{h}", headers=head), 404, "BUFFER_NOT_FOUND")
        bad(d.json("DELETE", f"/v1/buffers/{h}", headers=head), 404, "BUFFER_NOT_FOUND")
        bad(d.json("POST", "/v1/run", {"model": m, "inputs": [{"name": "x", "handle": h}]}, head),
            404, "BUFFER_NOT_FOUND")
        assert d.json("GET", "/v1/buffers", headers=head)[1]["buffers"] == []
    assert d.json("GET", f"/v1/buffers/{h}",
                  headers={"Hlod-Tenant": "a"})[1]["outputs"][0]["data"] == [1, 2, 3, 4]

def tuples(d):
    """sim
    One handle for several: put as one, read whole and by element, run with, kept as one, in part;
    donated whole."""
    status, r = d.json("POST", "/v1/buffers",
                       {"tuple": True,
                        "inputs": [tensor([1, 2], "a"), tensor([3, 4], "b"), tensor([5], "c")]})
    t = r["buffers"][0]
    assert (status == 200 and t["tuple"] and [e["name"] for e in t["elements"]] == ["a", "b", "c"]
            and t["bytes"] == 20), r
    h = t["handle"]
    assert fetch(d, h) == [[1, 2], [3, 4], [5]] and fetch(d, h + ".1") == [3, 4]
    bad(d.json("GET", f"/v1/buffers/{h}.3"), 404, "BUFFER_NOT_FOUND")
    swap = compiled(d,
                    "HloModule m\nENTRY e {\n  p = f32[2] parameter(0)\n  q = f32[2] parameter(1)\n"
                    "  s = f32[2] add(p, q)\n  ROOT r = (f32[2], f32[2]) tuple(q, s)\n}\n")
    status, pair = d.json("POST", "/v1/tuples", {"elements": [h + ".0", h + ".1"]})
    assert status == 200 and len(pair["elements"]) == 2, pair
    free(d, h)  # the pair holds its elements, the third is gone
    assert metric(d, "hlod_buffer_bytes") == 16
    state = pair["handle"]
    for turn, want in enumerate([[[3, 4], [4, 6]], [[4, 6], [7, 10]], [[7, 10], [11, 16]]]):
        r = step(d, swap, [{"handle": state, "donate": True}], keep=["*"], keep_tuple=True)
        assert [o["handle"] for o in r["outputs"]] == [r["tuple"] + ".0", r["tuple"] + ".1"], r
        bad(d.json("GET", f"/v1/buffers/{state}"), 400, "BUFFER_DONATED")
        state = r["tuple"]
        assert fetch(d, state) == want, (turn, fetch(d, state))
    assert metric(d, "hlod_buffers") == 2 and list(states(d)) == [state]

def two_devices(d):
    """sim,sim
    A run goes where its buffers lie; what lies apart cannot be run together."""
    m = put(d)
    one, two = place(d, [1, 2, 3, 4], device="sim:0"), place(d, [1, 2, 3, 4], device="sim:1")
    for h, name in (one, "sim:0"), (two, "sim:1"), (one, "sim:0"):
        assert step(d, m, [{"name": "x", "handle": h}])["device"] == name
    bad(d.json("POST", "/v1/run", {"model": m, "inputs": [{"name": "x", "handle": one}],
                                   "options": {"device": "sim:1"}}), 400, "BUFFERS_APART")
    bad(d.json("POST", "/v1/tuples", {"elements": [one, two]}), 400, "BUFFERS_APART")
    add = compiled(d, "HloModule m\nENTRY e {\n  p = f32[4] parameter(0)\n  q = f32[4] "
                      "parameter(1)\n  ROOT s = f32[4] add(p, q)\n}\n")
    r = bad(d.json("POST", "/v1/run", {"model": add, "inputs": [{"handle": one}, {"handle": two}]}),
            400, "BUFFERS_APART")
    assert "sim:0" in r["message"] and "sim:1" in r["message"], r

def worker_dies(d):
    """sim:latency_us=5000,sim
    Handles die with their worker, by name and at once, whoever waits for them included; those of
    other workers live on."""
    m = put(d)
    gone, other = place(d, [1, 2, 3, 4], device="sim:0"), place(d, [5, 6, 7, 8], device="sim:1")
    step(d, m, [{"name": "x", "handle": gone}])
    pid = device(d, "sim:0")["workerPid"]
    with Stopped(pid):
        work = [in_thread(lambda: d.json("POST", "/v1/run",
                                         {"model": m, "inputs": [{"name": "x", "handle": gone}],
                                          "keep": ["*"]}))
                for _ in range(4)]
        # each a run and the plan that it is a part of
        until("all are there", PATIENCE, lambda: metric(d, "hlod_jobs_active") == 8)
        os.kill(pid, signal.SIGKILL)
    for t, out in work:
        t.join()
        status, r = out[0]
        assert status == 503 and r["reason"] in ("WORKER_LOST", "BUFFER_LOST"), r
    for reply in d.json("GET", f"/v1/buffers/{gone}"), d.json(
        "POST", "/v1/run", {"model": m, "inputs": [{"name": "x", "handle": gone}]}):
        r = bad(reply, 503, "BUFFER_LOST")
        assert gone in r["message"] and "lost with worker sim:0" in r["message"], r
    assert states(d) == {gone: "lost", other: "ready"} and metric(d, "hlod_buffers") == 1
    assert step(d, m, [{"name": "x", "handle": other}])["outputs"][0]["data"] == [6, 7, 8, 9]
    assert free(d, gone) == (200, {"handle": gone})
    again = place(d, [1, 2, 3, 4], device="sim:0")
    assert step(d, m, [{"name": "x", "handle": again}])["device"] == "sim:0"
    assert metric(d, "hlod_buffers_lost_total") == 1

def cancelled_keeps_nothing(d):
    """sim:latency_us=5000
    A client that leaves during a run that was to keep its result leaves nothing on the device."""
    m = put(d)
    good(run(d, m))
    with Stopped(device(d, "sim:0")["workerPid"]):
        c = http.client.HTTPConnection(*d.addr)
        c.request("POST", "/v1/run",
                  json.dumps({"model": m, "inputs": [tensor([1, 2, 3, 4])], "keep": ["*"]}),
                  {"Accept": "application/json"})
        at_work(d, "sim:0")
        c.sock.close()
        until("cancelled", PATIENCE, lambda: metric(d, "hlod_cancels_total") == 1)
    until("stopped", PATIENCE, lambda: metric(d, "hlod_jobs_active") == 0)
    time.sleep(1.2)
    assert metric(d, "hlod_buffers") == 0 and not device(d, "sim:0").get("buffers")

# ---- plans

def chain(d, n=64):
    """Three layers y = W x + k whose weights stay on the device, and what they should give."""
    rng = random.Random(5)
    w = [[float(rng.randint(-2, 2)) for _ in range(n * n)] for _ in range(3)]
    models = [compiled(d, compiled_text(n, k)) for k in range(3)]
    handles = []
    for k in range(3):
        status, r = d.json("POST", "/v1/buffers",
                           {"inputs": [{"name": "w", "dtype": "f32", "shape": [n, n],
                                        "data": w[k]}]})
        assert status == 200, r
        handles.append(r["buffers"][0]["handle"])
    def want(x):
        for k in range(3):
            x = [sum(w[k][i * n + j] * x[j] for j in range(n)) + k for i in range(n)]
        return x
    steps = [{"name": f"layer{k}", "model": models[k],
              "inputs": [{"name": "x", **({"input": "x"} if k == 0 else {"step": f"layer{k - 1}"})},
                         {"name": "w", "handle": handles[k]}]}
             for k in range(3)]
    return steps, want, handles

def plan_moves_little(d):
    """sim
    Three executables with resident weights in one request: over the wire go the input and the last
    output, to the byte, and between daemon and worker too."""
    n = 64
    steps, want, handles = chain(d, n)
    x = [float(k % 5 - 2) for k in range(n)]
    body = {"inputs": [tensor(x)], "steps": steps, "outputs": [{"step": "layer2", "name": "y"}]}
    status, r = d.json("POST", "/v1/plan", body)
    assert (status == 200 and r["outputs"][0]["name"] == "y"
            and r["outputs"][0]["data"] == want(x)), r
    def moved():
        return [metric(d, f"hlod_{k}_bytes_total")
                for k in ("device_in", "device_out", "frames_sent", "frames_received")]
    before = moved()
    head = json.dumps({**body, "inputs": [{"name": "x", "dtype": "f32", "shape": [n],
                                           "parameters": {"binary_data_size": 4 * n}}]}).encode()
    status, got, raw = d.call("POST", "/v1/plan", head + struct.pack(f"<{n}f", *x),
                              {"Inference-Header-Content-Length": str(len(head)),
                               "Content-Type": "application/octet-stream",
                               "Accept": "application/octet-stream"})
    assert status == 200 and list(struct.unpack(f"<{n}f", raw[-4 * n:])) == want(x)
    after = moved()
    used = [b - a for a, b in zip(before, after)]
    assert used[:2] == [4 * n, 4 * n], used
    weights = 3 * 4 * n * n
    assert used[2] < 4 * n + 1500 and used[3] < 4 * n + 1500 and sum(used) < weights / 10, (
        used, weights)
    assert len(raw) < 4 * n + 2500
    for h in handles:
        assert len(fetch(d, h)) == n * n

def plan_on_cpu(d):
    """cpu
    The same plan on the CPU device, steps written in another order, profiled, as a stream with its
    events."""
    n = 32
    steps, want, _ = chain(d, n)
    x = [float(k % 3) for k in range(n)]
    body = {"inputs": [tensor(x)], "steps": [steps[2], steps[0], steps[1]],
            "outputs": [{"step": "layer2"}, {"step": "layer0", "name": "first"}],
            "options": {"profile": True, "repeat": 3}}
    status, r = d.json("POST", "/v1/plan", body)
    assert status == 200 and r["outputs"][0]["data"] == want(x), r
    assert ([s["name"] for s in r["steps"]] == ["layer0", "layer1", "layer2"]
            and all(s["profile"]["rows"] and len(s["runMs"]) == 3 for s in r["steps"])), r["steps"]
    assert r["outputs"][1]["name"] == "first" and len(r["outputs"][1]["data"]) == n
    lines = [json.loads(l) for l in d.call(
                 "POST", "/v1/plan", json.dumps(body),
                 {"Accept": "application/x-ndjson"})[2].split(b"\n") if l.strip()]
    assert [l["planStep"]["name"] for l in lines
            if "planStep" in l] == ["layer0", "layer1", "layer2"], lines
    assert {l.get("step") for l in lines if "compiled" in l} == {"layer0", "layer1", "layer2"}
    assert "result" in lines[-2] and lines[-1]["done"]["code"] == "OK"

def plan_compiles(d):
    """sim
    Models that were only uploaded, one with a symbolic dimension of the same kind: each step is
    compiled for the shapes that the steps before give it."""
    texts = [program(k, 6) for k in (1, 10)]
    models = [compiled(d, t) for t in texts]
    for r in d.json("GET", "/v1/executables")[1]["executables"]:
        assert d.json("DELETE", f"/v1/executables/{r['digest']}")[0] == 200
    body = {"inputs": [tensor([1, 2, 3, 4, 5, 6])],
            "steps": [{"name": "a", "model": models[0], "inputs": [{"input": "x"}]},
                      {"name": "b", "model": models[1], "inputs": [{"step": "a"}]}],
            "outputs": [{"step": "b", "keep": True}], "lease_ms": 5000}
    refused = d.json("POST", "/v1/plan", {**body, "options": {"no_compile": True}})
    assert "step 'a'" in bad(refused, 400, "WOULD_COMPILE")["message"]
    status, r = d.json("POST", "/v1/plan", body)
    assert status == 200 and not r.get("cacheHit") and "data" not in r["outputs"][0], r
    assert fetch(d, r["outputs"][0]["handle"]) == [12, 13, 14, 15, 16, 17]
    assert d.json("POST", "/v1/plan", body)[1]["cacheHit"]

def plan_refused(d):
    """sim
    A plan that cannot be meant is refused before anything runs, with the step's and the input's
    name."""
    m, wide = put(d), put(d, 1, 5)
    one = {"name": "a", "model": m, "inputs": [{"name": "x", "input": "x"}]}
    ok = {"inputs": [tensor([1, 2, 3, 4])], "steps": [one], "outputs": [{"step": "a"}]}
    assert d.json("POST", "/v1/plan", ok)[0] == 200
    def no(reason, *words, status=400, **change):
        r = bad(d.json("POST", "/v1/plan", {**ok, **change}), status, reason)
        assert all(w in r["message"] for w in words), (words, r)
    def two(**second):
        return [one, {"name": "b", "model": m, "inputs": [{"name": "x", "step": "a"}], **second}]
    no("BAD_PLAN", "1 to 32", steps=[])
    no("BAD_PLAN", "step 'a'", "input 0 'x'", "no input 'z'",
       steps=[{**one, "inputs": [{"name": "x", "input": "z"}]}])
    no("BAD_PLAN", "step 'a'", "no step 'q'",
       steps=[{**one, "inputs": [{"name": "x", "step": "q"}]}])
    no("BAD_PLAN", "two", steps=[{**one, "inputs": [{"name": "x", "step": "a", "input": "x"}]}])
    no("BAD_PLAN", "none", steps=[{**one, "inputs": [{"name": "x"}]}])
    no("BAD_PLAN", "two steps are called 'a'", steps=[one, one])
    no("BAD_PLAN", "circle", "'a'",
       steps=[{**one, "inputs": [{"name": "x", "step": "b"}]}, two()[1]], inputs=[])
    no("BAD_PLAN", "circle", steps=[{**one, "inputs": [{"name": "x", "step": "a"}]}], inputs=[])
    no("BAD_PLAN", "no step uses the input 'u'", inputs=[tensor([1, 2, 3, 4]), tensor([1], "u")])
    no("BAD_PLAN", "nothing uses what step 'b' computes", steps=two())
    no("BAD_PLAN", "outputs[0]", "no step 'q'", outputs=[{"step": "q"}])
    no("BAD_PLAN", "outputs", outputs=[])
    no("UNKNOWN_OUTPUT", "step 'a'", "'zz'", outputs=[{"step": "a", "output": "zz"}])
    no("UNKNOWN_INPUT", "step 'b'", "'v'", steps=two(inputs=[{"name": "v", "step": "a"}]),
       outputs=[{"step": "b"}])
    no("SHAPE_MISMATCH", "step 'b'", "'x'", "expected 5, found 4", steps=two(model=wide),
       outputs=[{"step": "b"}])
    no("DTYPE_MISMATCH", "step 'a'", "expected f32, found s32",
       inputs=[tensor([1, 2, 3, 4], dtype="s32")])
    no("MODEL_NOT_FOUND", "step 'b'", status=404, steps=two(model="0" * 64),
       outputs=[{"step": "b"}])
    no("BUFFER_NOT_FOUND", "b77", status=404,
       steps=[{**one, "inputs": [{"name": "x", "handle": "b77"}]}], inputs=[])
    no("BAD_PLAN", "two outputs are called", outputs=[{"step": "a"}, {"step": "a"}])
    assert d.json("POST", "/v1/plan", ok)[0] == 200 and metric(d, "hlod_buffers") == 0

def plan_under_fire(d):
    """sim:latency_us=20000,sim:latency_us=20000
    Plans while workers are killed: right answers or UNAVAILABLE, and in the end nothing is held."""
    m = [put(d, k) for k in (1, 10, 100)]
    body = {"inputs": [tensor([1, 2, 3, 4])],
            "outputs": [{"step": "c"}, {"step": "b", "name": "half", "keep": True}],
            "lease_ms": 500,
            "steps": [{"name": n, "model": m[k], "inputs": [
                           {"name": "x", **({"input": "x"} if k == 0 else {"step": "abc"[k - 1]})}]}
                      for k, n in enumerate("abc")]}
    status, r = d.json("POST", "/v1/plan", body)
    assert status == 200, r
    stop, seen = threading.Event(), []
    def client():
        while not stop.is_set():
            seen.append(d.json("POST", "/v1/plan", body))
    clients = [threading.Thread(target=client) for _ in range(6)]
    for c in clients:
        c.start()
    def some_more():
        n = sum(s == 200 for s, _ in seen) + 5
        until("some are answered", PATIENCE, lambda: sum(s == 200 for s, _ in seen) >= n)
    for turn in range(4):
        some_more()
        pid = device(d, f"sim:{turn & 1}")["workerPid"]
        if pid:
            os.kill(pid, signal.SIGKILL)
    some_more()
    stop.set()
    for c in clients:
        c.join()
    for status, r in seen:
        assert ((status == 200 and r["outputs"][0]["data"] == [112, 113, 114, 115])
                or (status == 503 and r["reason"] in ("WORKER_LOST", "BUFFER_LOST"))), r
    until("leases over", 4, lambda: metric(d, "hlod_buffers") == 0 and not listed(d)["buffers"])
    until("workers hold nothing", 5,
          lambda: not any(device(d, f"sim:{k}").get("buffers") for k in (0, 1)))
    status, r = d.json("POST", "/v1/plan", body)
    assert status == 200, r

def evicted_executables(d):
    """sim:memory=112K
    Steps whose working sets do not fit the device together are refused by it; each alone runs, one
    after the other."""
    n = 6000
    def heavy(k):
        return compiled(
            d,
            f"HloModule m\nlt {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT l = "
            f"pred[] compare(a, b), direction=LT\n}}\nENTRY e {{\n  x = f32[{n}] parameter(0)\n"
            f"  s = f32[{n}] sort(x), dimensions={{0}}, to_apply=lt\n  c = f32[] constant({k})\n  "
            f"b = f32[{n}] broadcast(c), dimensions={{}}\n  ROOT r = f32[{n}] add(s, b)\n}}\n")
    models = [heavy(k) for k in range(4)]
    h = place(d, [float(n - k) for k in range(n)])
    for k in (0, 1, 2, 3, 0):
        r = step(d, models[k], [{"name": "x", "handle": h}])
        assert r["outputs"][0]["data"][:2] == [1 + k, 2 + k]

def by_curl(d):
    """cpu
    The pages' examples by curl: put, run with, keep, raw bytes, a range, free."""
    def curl(*args):
        out = subprocess.run(["curl", "-sS", "--max-time", "20", *args], capture_output=True,
                             timeout=30)
        assert out.returncode == 0, out.stderr
        return out.stdout
    base = "http://%s:%d" % d.addr
    m = put(d, 2)
    h = json.loads(curl(f"{base}/v1/buffers", "-d",
                        json.dumps({"inputs": [tensor([1, 2, 3, 4])],
                                    "lease_ms": 60000})))["buffers"][0]["handle"]
    r = json.loads(curl(f"{base}/v1/run", "-H", "Accept: application/json", "-d",
                        json.dumps({"model": m, "inputs": [{"name": "x", "handle": h}],
                                    "keep": ["result"]})))
    kept = r["outputs"][0]["handle"]
    assert curl(f"{base}/v1/buffers/{kept}", "-H",
                "Accept: application/octet-stream") == struct.pack("<4f", 3, 4, 5, 6)
    assert curl(f"{base}/v1/buffers/{kept}", "-H", "Accept: application/octet-stream", "-r",
                "4-11") == struct.pack("<2f", 4, 5)
    assert json.loads(curl(f"{base}/v1/buffers/{kept}?offset=4&length=4"))["part"] == "AACAQA=="
    assert json.loads(curl("-X", "DELETE", f"{base}/v1/buffers/{h}"))["bytes"] == 16
    assert b"BUFFER_NOT_FOUND" in curl(f"{base}/v1/buffers/{h}")

ALL = [life, refused_requests, training, training_on_cpu, donation_is_taken_back, leases, quota,
       device_memory, tenants, tuples, two_devices, worker_dies, cancelled_keeps_nothing,
       plan_moves_little, plan_on_cpu, plan_compiles, plan_refused, plan_under_fire,
       evicted_executables, by_curl]

if __name__ == "__main__":
    sys.exit(scenarios("buffers and plans", ALL,
                       lambda s: ["--device", *s.__doc__.split("\n")[0].split()]))
