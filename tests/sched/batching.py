#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dynamic batching: runs of one named model joined along dimension 0, against NumPy. A worker is
stopped (SIGSTOP) while requests gather. Needs numpy and onnx.
Usage: batching.py --hlod BIN --worker BIN [NAME...]"""
import json, os, signal, socket, sys, time
import numpy as np
from onnx import TensorProto, helper, numpy_helper
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, device, in_thread, metric, scenarios, until

WEIGHT = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)

def graph(nodes, inputs, outputs, weights=()):
    """ONNX bytes. inputs, outputs: name -> dims."""
    value = lambda n, dims: helper.make_tensor_value_info(n, TensorProto.FLOAT, dims)
    g = helper.make_graph([helper.make_node(op, i.split(), o.split(), **a)
                           for op, i, o, a in nodes], "g", [value(*x) for x in inputs.items()],
                          [value(*x) for x in outputs.items()],
                          [numpy_helper.from_array(w, n) for n, w in weights])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)],
                             ir_version=8).SerializeToString()

DENSE = graph([("MatMul", "x w", "a", {}), ("Relu", "a", "y", {}), ("Neg", "a", "z", {})],
              {"x": ["N", 4]}, {"y": ["N", 3], "z": ["N", 3]}, [("w", WEIGHT)])
def dense(x):
    return np.maximum(x @ WEIGHT, 0), -(x @ WEIGHT)
WIDE = graph([("Mul", "x x", "y", {})], {"x": ["N", "T"]}, {"y": ["N", "T"]})

def upload(d, model, shape):
    status, r = d.json("POST", f"/v1/executables?shape={shape}", model)
    assert status == 200, r
    return r["sourceDigest"]

def name(d, digest, **batching):
    return d.json("POST", "/v1/models", {"name": "m", "model": digest, "batching": batching})

def named(d, model=DENSE, shape="x=1x4", **batching):
    digest = upload(d, model, shape)
    status, r = name(d, digest, **batching)
    assert status == 200 and r["batching"] == {k: v for k, v in batching.items() if v}, r
    return digest

def run(d, x, model="m", **more):
    """By the binary form: (status, reply, [arrays])"""
    head = json.dumps({"model": model,
                       "inputs": [{"name": "x", "dtype": "f32", "shape": list(x.shape),
                                   "parameters": {"binary_data_size": x.nbytes}}], **more}).encode()
    status, h, body = d.call("POST", "/v1/run", head + x.tobytes(),
                             {"Inference-Header-Content-Length": str(len(head)),
                              "Accept": "application/octet-stream"})
    if status != 200:
        return status, json.loads(body), None
    n = int(h["inference-header-content-length"])
    r, at, out = json.loads(body[:n]), n, []
    for o in r["outputs"]:
        size = o["parameters"]["binary_data_size"]
        out.append(np.frombuffer(body[at:at + size], np.float32).reshape(o["shape"]))
        at += size
    return status, r, out

def rows(rng, n, width=4):
    return rng.standard_normal((n, width)).astype(np.float32)

def gathered(d, inputs, go=True, model="m"):
    """Runs that wait together, their replies: the only worker stands still meanwhile, a run of no
    name in it."""
    pid = device(d, "sim:0")["workerPid"]
    os.kill(pid, signal.SIGSTOP)
    held = in_thread(run, d, np.zeros((1, 4), np.float32), model=d.digest)
    until("held", 5, lambda: device(d, "sim:0")["state"] == "busy")
    active = metric(d, "hlod_jobs_active")
    threads = [in_thread(run, d, x, model=model) for x in inputs]
    until("gathered", 5, lambda: metric(d, "hlod_jobs_active") == active + len(inputs))
    time.sleep(0.05)  # past the delay
    def finish():
        os.kill(pid, signal.SIGCONT)
        held[0].join()
        return [(t.join(), o[0])[1] for t, o in threads]
    return finish() if go else (finish, threads)

def right(replies, inputs, want=dense):
    for (status, r, out), x in zip(replies, inputs):
        assert status == 200, r
        for got, expected in zip(out, want(x) if isinstance(want(x), tuple) else (want(x),)):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)

def stats(d):
    return d.json("GET", "/v2/models/m/stats")[1]["model_stats"][0]

SIM = "sim:latency_us=5000"
rng = np.random.default_rng(2)

# ---- scenarios

def together(d):
    """sim:latency_us=5000 --device-calls=1
    What waits together runs together, each gets its own rows, and the statistics say so."""
    d.digest = named(d, max=16, delayUs=1000)
    inputs = [rows(rng, n) for n in (1, 3, 2, 1, 4)]
    before = metric(d, "hlod_runs_total")
    replies = gathered(d, inputs)
    right(replies, inputs)
    assert [r["batchRows"] for _, r, _ in replies] == [11] * 5, [
        r["batchRows"] for _, r, _ in replies]
    assert (metric(d, "hlod_runs_total") == before + 2 and metric(d, "hlod_batches_total") == 1
            and metric(d, "hlod_batch_rows_total") == 11)
    s = stats(d)
    assert ((s["inference_count"], s["execution_count"]) == (11, 1)
            and [b["batch_size"] for b in s["batch_stats"]] == [11]
            and s["batch_stats"][0]["compute_infer"]["ns"] > 0), s
    status, r = d.json("POST", "/v2/models/m/infer",
                       {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 4],
                                    "data": [1] * 8}], "outputs": [{"name": "z"}]})
    assert (status == 200 and [o["name"] for o in r["outputs"]] == ["z"]
            and r["outputs"][0]["shape"] == [2, 3]), r
    np.testing.assert_allclose(r["outputs"][0]["data"], -np.tile(WEIGHT.sum(0), 2), rtol=1e-5)
    config = d.json("GET", "/v2/models/m/config")[1]
    assert config["max_batch_size"] == 16 and config["dynamic_batching"] == {
        "preferred_batch_size": [1, 2, 4, 8, 16], "max_queue_delay_microseconds": 1000}, config
    assert config["input"][0]["dims"] == [4] and config["output"][0]["dims"] == [3], config
    assert d.json("GET", "/v2/models/m")[1]["inputs"][0]["shape"] == [-1, 4]

def neighbours_do_not_matter(d):
    """cpu
    A row's result is the same, bit for bit, whoever it runs with, in whatever place; and near what
    it is alone."""
    d.digest = named(d, max=8, delayUs=10000000)
    x, seen = rows(rng, 1), set()
    for at in range(8):
        inputs = [x if k == at else rows(rng, 1) * 1e3 for k in range(8)]
        threads = []
        for k, v in enumerate(inputs):
            threads.append(in_thread(run, d, v))
            until("joined", 5, lambda: metric(d, "hlod_jobs_active") == k + 1 or k == 7)
        replies = [(t.join(), o[0])[1] for t, o in threads]
        right([replies[at]], [x])
        assert replies[at][1]["batchRows"] == 8
        seen.add(b"".join(o.tobytes() for o in replies[at][2]))
    assert len(seen) == 1
    nan = [rows(rng, 1) * np.float32("nan") for _ in range(7)] + [x]
    threads = [in_thread(run, d, v) for v in nan]
    replies = [(t.join(), o[0])[1] for t, o in threads]
    right(replies[7:], [x])

def compiled_ahead(d):
    """sim
    Setting the name compiles every bucket; running compiles nothing."""
    d.digest = named(d, max=6, delayUs=0)
    sizes = sorted(int(e["bindings"][0][2:])
                   for e in d.json("GET", "/v1/executables")[1]["executables"])
    assert sizes == [1, 2, 4, 6], sizes
    compiles = metric(d, "hlod_compiles_total")
    for n in range(1, 7):
        x = rows(rng, n)
        right([run(d, x)], [x])
    assert metric(d, "hlod_compiles_total") == compiles
    x = rows(rng, 7)  # more than a batch holds: by itself, as any other shape
    status, r, out = run(d, x)
    right([(status, r, out)], [x])
    assert not r.get("batchRows") and metric(d, "hlod_compiles_total") == compiles + 1

def full_goes_at_once(d):
    """sim
    A batch that is full does not wait for its delay."""
    d.digest = named(d, max=4, delayUs=10000000)
    inputs = [rows(rng, 2) for _ in range(4)]
    replies = [(t.join(), o[0])[1] for t, o in [in_thread(run, d, x) for x in inputs]]
    right(replies, inputs)
    assert {r["batchRows"] for _, r, _ in replies} == {4}
    waits = [t["ms"] for _, r, _ in replies for t in r["timings"] if t["name"] == "queue"]
    assert len(waits) == 4 and max(waits) < 9000, waits

def short_delays(d):
    """cpu
    Delays below a millisecond count: a run alone waits so long, and no millisecond where nothing
    else holds it up."""
    x = rows(rng, 1)
    def waits(**batching):
        d.digest = named(d, **batching)
        took, enough = [], batching["delayUs"] / 1000 + 0.3
        while len(took) < 41 or min(took) >= enough and len(took) < 2000:
            status, r, _ = run(d, x)
            assert status == 200 and r["batchRows"] == (1 if batching["max"] > 1 else 0), r
            took.append({t["name"]: t["ms"] for t in r["timings"]}["queue"])
        return sorted(took)
    for us in 100, 300, 700:
        took = waits(max=8, delayUs=us)
        # the machine may have other work, also between arrival, from which the delay counts, and
        # queue
        assert took[0] < us / 1000 + 0.3 and took[len(took) * 3 // 4] >= 0.8 * us / 1000, (
            us, took)

def auto_joins(d):
    """sim:latency_us=500000,cpu --device-calls=1 --log=debug:place
    Runs that may go anywhere are joined, and a batch goes where its size was fastest: to the first
    device until it is known, tried on the other once, then there."""
    d.digest = named(d, max=4, delayUs=2000000)
    def batch():
        inputs = [rows(rng, 2) for _ in range(2)]
        replies = [(t.join(), o[0])[1]
                   for t, o in [in_thread(run, d, x, options={"device": "auto"}) for x in inputs]]
        right(replies, inputs)
        assert [r["batchRows"] for _, r, _ in replies] == [4, 4], replies
        where = {r["device"] for _, r, _ in replies}
        assert len(where) == 1
        return where.pop()
    where = [batch() for _ in range(6)]
    assert where == ["sim:0"] * 3 + ["cpu:0"] * 3, where
    apart = [(t.join(), o[0])[1]
             for t, o in [in_thread(run, d, rows(rng, 2), options={"device": x})
                          for x in ("auto", "sim")]]
    assert ([r["batchRows"] for _, r, _ in apart] == [2, 2]
            and apart[1][1]["device"] == "sim:0"), apart

def only_equals_join(d):
    """sim:latency_us=5000 --device-calls=1
    Runs of different widths, devices, options or priorities are not joined; nor are profiles of
    several runs."""
    d.digest = named(d, WIDE, "x=1x4", max=16, delayUs=1000, unchecked=True)
    inputs = [rows(rng, 1, w) for w in (4, 5, 4, 5, 4)]
    replies = gathered(d, inputs)
    right(replies, inputs, lambda x: x * x)
    assert [r["batchRows"] for _, r, _ in replies] == [3, 2, 3, 2, 3]
    threads = [in_thread(run, d, inputs[0], options=o)
               for o in ({}, {"priority": 3}, {"device": "sim:0"},
                         {"compile": {"precision": "strict"}}, {"repeat": 2})]
    replies = [(t.join(), o[0])[1] for t, o in threads]
    right(replies, [inputs[0]] * 5, lambda x: x * x)
    assert [r.get("batchRows") for _, r, _ in replies] == [1, 1, 1, 1, None]

def sizes_of_rows(d):
    """sim:latency_us=5000 --device-calls=1
    Rows travel inside the frame, through one memory for all, or in each request's own: the results
    are the same."""
    # 0.5 KB in all, 136 KB of small ones, 160 KB each, more than a frame has descriptors
    for width, n in (16, 8), (1700, 20), (40000, 5), (40000, 64):
        digest = upload(d, WIDE, f"x=1x{width}")
        d.digest = digest
        status, r = name(d, digest, max=64, delayUs=1000, unchecked=True)
        assert status == 200, r
        inputs = [rows(rng, 1, width) for _ in range(n)]
        pid = device(d, "sim:0")["workerPid"]
        os.kill(pid, signal.SIGSTOP)
        threads = [in_thread(run, d, x) for x in inputs]
        until("all there", 10, lambda: metric(d, "hlod_jobs_active") >= n)
        os.kill(pid, signal.SIGCONT)
        replies = [(t.join(), o[0])[1] for t, o in threads]
        right(replies, inputs, lambda x: x * x)
        assert max(r["batchRows"] for _, r, _ in replies) > 1

def some_leave(d):
    """sim:latency_us=5000 --device-calls=1
    Members that leave, by deadline or by closing, take nothing from the others; when all have left
    nothing is run."""
    d.digest = named(d, max=16, delayUs=1000)
    inputs = [rows(rng, n) for n in (2, 1, 3)]
    finish, threads = gathered(d, inputs, go=False)
    late = in_thread(run, d, rows(rng, 4), options={"timeout_ms": 150})
    body = json.dumps({"model": "m", "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                                 "data": [0] * 4}]}).encode()
    late[0].join()
    assert late[1][0][0] == 504 and late[1][0][1]["reason"] == "DEADLINE", late[1]
    active = metric(d, "hlod_jobs_active")
    c = socket.create_connection(d.addr)
    c.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
              + body)
    until("joined", 5, lambda: metric(d, "hlod_jobs_active") == active + 1)
    c.close()
    until("left", 5, lambda: metric(d, "hlod_jobs_active") == active)
    replies = finish()
    right(replies, inputs)
    assert [r["batchRows"] for _, r, _ in replies] == [6] * 3
    batches = metric(d, "hlod_batches_total")
    pid = device(d, "sim:0")["workerPid"]
    os.kill(pid, signal.SIGSTOP)
    # cancelled inside the worker
    gone = [in_thread(run, d, x, options={"timeout_ms": 300}) for x in inputs]
    assert all((t.join(), o[0][0])[1] == 504 for t, o in gone)
    os.kill(pid, signal.SIGCONT)
    until("idle", 5,
          lambda: metric(d, "hlod_jobs_active") == 0 and device(d, "sim:0")["state"] == "ready")
    assert metric(d, "hlod_batches_total") == batches
    right([run(d, inputs[0])], inputs[:1])

def worker_dies(d):
    """sim:crash=run@2 --device-calls=1
    A batch whose worker dies while it runs is UNAVAILABLE for each; the one that waited behind it
    is served by the next life."""
    d.digest = named(d, max=16, delayUs=1000)
    inputs = [rows(rng, 1) for _ in range(4)]
    finish, threads = gathered(d, inputs, go=False)  # behind the first run of the process
    queued, other = metric(d, "hlod_jobs_queued"), rows(rng, 2)
    behind = in_thread(run, d, other, options={"priority": -1})  # joins no run of another priority
    until("it waits too", 5, lambda: metric(d, "hlod_jobs_queued") > queued)
    replies = finish()
    assert all(s == 503 and r["reason"] == "WORKER_LOST" for s, r, _ in replies), replies
    behind[0].join()
    right(behind[1], [other])

def named_otherwise(d):
    """sim
    One batch dimension that each tensor names differently, or an output not at all, as exporters
    write it: the compiler shows the rows, so the name is taken."""
    two = graph([("Relu", "x", "y", {}), ("Add", "v w", "u", {})],
                {"x": ["N", 4], "v": ["unk__7", 4]}, {"y": ["unk__8", 4], "u": ["M", 4]},
                [("w", np.ones(4, np.float32))])
    for model, shape in (two, "x=1x4&shape=v=1x4"), (
        graph([("Relu", "x", "y", {})], {"x": ["N", 4]}, {"y": ["Relu_dim_0", 4]}), "x=1x4"):
        status, r = name(d, upload(d, model, shape), max=4)
        assert status == 200, r

def refused(d):
    """sim
    What cannot be joined is refused when it is named, and says why; what is wrong with a run is
    said as without batching."""
    ends = {"x": ["N", 4]}
    relu = [("Relu", "x", "y", {})]
    for model, shape, *how, why in (
        graph([("ReduceSum", "x", "y", {"keepdims": 1})], ends, {"y": [1, 1]}), "x=2x4",
        "cannot be batched"), (graph(relu, {"x": [2, 4]}, {"y": [2, 4]}), "x=2x4",
                               "input 'x' has no symbolic dimension 0"), (
        graph([*relu, ("Relu", "v", "u", {})], {"x": ["N", 4], "v": ["M", 4]},
              {"y": ["N", 4], "u": ["M", 4]}), "x=2x4&shape=v=2x4", {"unchecked": True},
        "another dimension 0"), (graph([("Transpose", "x", "y", {"perm": [1, 0]})], ends,
                                       {"y": [4, "N"]}), "x=2x4", "cannot be batched"), (
        graph(relu, {"x": ["N", "N"]}, {"y": ["N", "N"]}), "x=2x2", "elsewhere"):
        digest = upload(d, model, shape)
        status, r = name(d, digest, max=4, **(how[0] if how else {}))
        assert status == 400 and why in r["message"], (why, r)
    digest = upload(d, DENSE, "x=1x4")
    for batching in {"max": 5000}, {"max": 4, "delayUs": 90000000}:
        assert name(d, digest, **batching)[0] == 400
    assert d.json("GET", "/v1/models")[1].get("models", []) == []
    assert name(d, digest, max=4)[0] == 200
    for x, reason in (np.zeros((1, 5), np.float32),
                      "SHAPE_MISMATCH"), (np.zeros((4,), np.float32), "SHAPE_MISMATCH"):
        status, r, _ = run(d, x)
        assert status == 400 and r["reason"] == reason, r
    status, r, _ = run(d, np.zeros((1, 4), np.float32), outputs=["nope"])
    assert status == 400 and r["reason"] == "UNKNOWN_OUTPUT", r

SHOWN = {
           # graphs whose rows the compiler must show to be independent
           "convolutions": graph(
               [("Conv", "x k", "a", {"pads": [1, 1, 1, 1]}), ("Relu", "a", "b", {}),
                ("MaxPool", "b", "c", {"kernel_shape": [2, 2], "strides": [2, 2]}),
                ("Flatten", "c", "f", {}), ("Gemm", "f w", "g", {}),
                ("Softmax", "g", "y", {"axis": 1})], {"x": ["N", 3, 8, 8]}, {"y": ["N", 5]},
               [("k", rng.standard_normal((4, 3, 3, 3)).astype(np.float32)),
                ("w", rng.standard_normal((64, 5)).astype(np.float32))]),
           "attention": graph(
               [("MatMul", "x q", "a", {}), ("Reshape", "a s", "b", {}),
                ("Transpose", "b", "c", {"perm": [0, 2, 1, 3]}),
                ("Transpose", "b", "e", {"perm": [0, 2, 3, 1]}), ("MatMul", "c e", "f", {}),
                ("Softmax", "f", "g", {"axis": -1}), ("MatMul", "g c", "h", {}),
                ("Transpose", "h", "i", {"perm": [0, 2, 1, 3]}), ("Reshape", "i t", "j", {}),
                ("Add", "j x", "k", {}), ("LayerNormalization", "k n o", "y", {})],
               {"x": ["N", 5, 8]}, {"y": ["N", 5, 8]},
               [("q", rng.standard_normal((8, 8)).astype(np.float32)),
                ("s", np.array([0, 5, 2, 4])), ("t", np.array([0, 5, 8])),
                ("n", np.ones(8, np.float32)), ("o", np.zeros(8, np.float32))]),
           "table": graph([("Cast", "x", "i", {"to": TensorProto.INT64}),
                           ("Gather", "w i", "e", {}),
                           ("ReduceMean", "e", "y", {"axes": [1], "keepdims": 0})], {"x": ["N", 3]},
                          {"y": ["N", 3]}, [("w", WEIGHT)]),
           "top": graph([("TopK", "x k", "y i", {"axis": 1})], {"x": ["N", 6]}, {"y": ["N", 2]},
                        [("k", np.array([2]))]),
}
JOINED = {
            # not to be told from outside: dimension 0 is N everywhere
            "softmax of a column": graph([("Softmax", "x", "y", {"axis": 0})], {"x": ["N", 4]},
                                         {"y": ["N", 4]}),
            "statistics of the batch": graph(
                [("ReduceMean", "x", "m", {"axes": [0], "keepdims": 1}), ("Sub", "x m", "y", {})],
                {"x": ["N", 4]}, {"y": ["N", 4]}),
            "the number of rows": graph([("Shape", "x", "s", {"start": 0, "end": 1}),
                                         ("Cast", "s", "c", {"to": TensorProto.FLOAT}),
                                         ("Div", "x c", "y", {})], {"x": ["N", 4]},
                                        {"y": ["N", 4]}),
            "sums along rows": graph([("CumSum", "x a", "y", {})], {"x": ["N", 4]}, {"y": ["N", 4]},
                                     [("a", np.array(0))]),
            "each with each": graph([("Transpose", "x", "t", {"perm": [1, 0]}),
                                     ("MatMul", "x t", "g", {}), ("MatMul", "g x", "y", {})],
                                    {"x": ["N", 4]}, {"y": ["N", 4]}),
}

def independence_is_shown(d):
    """cpu
    The compiler shows that rows do not depend on each other, or the name is refused and says where
    they meet; unless who names it takes that on himself."""
    for what, model in SHOWN.items():
        shape = {"convolutions": "x=2x3x8x8", "attention": "x=2x5x8", "table": "x=2x3",
                 "top": "x=2x6"}[what]
        digest = upload(d, model, shape)
        for size in 2, 3, 8:
            status, r = name(d, digest, max=size, delayUs=0)
            assert status == 200, (what, size, r)
        alone, together = [], []
        dims = [int(k) for k in shape[2:].split("x")][1:]
        inputs = [np.abs(rng.standard_normal((1, *dims))).astype(np.float32) for _ in range(3)]
        for x in inputs:
            status, r, out = run(d, x, model=digest)
            assert status == 200, (what, r)
            alone.append(out[0])
        status, r, out = run(d, np.concatenate(inputs))
        assert status == 200 and r["batchRows"] == 3, (what, r)  # in the bucket of 4, padded
        np.testing.assert_allclose(out[0], np.concatenate(alone), rtol=1e-4, atol=1e-5,
                                   err_msg=what)
    for what, model in JOINED.items():
        digest = upload(d, model, "x=2x4")
        for size in 2, 8:
            status, r = name(d, digest, max=size)
            assert (status == 400 and "cannot be batched" in r["message"]
                    and "unchecked" in r["message"]), (what, size, r)
        assert name(d, digest, max=8, unchecked=True)[0] == 200, what

def kept(d):
    """sim
    How a name is batched survives the daemon; naming again without it ends it."""
    digest = named(d, max=4, delayUs=2000)
    d.stop_keep()
    again = Daemon(d.hlod, d.worker, data=d.dir, args=("--device", "sim"))
    try:
        assert again.json("GET",
                          "/v1/models")[1]["models"][0]["batching"] == {"max": 4, "delayUs": 2000}
        x = rows(rng, 3)
        reply = run(again, x)
        right([reply], [x])
        assert reply[1]["batchRows"] == 3
        assert again.json("POST", "/v1/models",
                          {"name": "m", "model": digest, "version": 1})[0] == 200
        assert "batchRows" not in run(again, x)[1]
    finally:
        again.stop_keep()
kept.ends = True

def config_of_a_load(d):
    """sim:latency_us=5000 --device-calls=1
    A load of a name that is there, with a configuration and no files, says how its runs are joined;
    one whose rows depend on each other is refused and stays as it was."""
    digest = upload(d, DENSE, "x=1x4")
    assert name(d, digest)[0] == 200
    d.digest, inputs = digest, [rows(rng, n) for n in (2, 3)]
    def load(name="m", **config):
        return d.call("POST", f"/v2/repository/models/{name}/load",
                      json.dumps({"parameters": {"config": json.dumps({"name": name, **config})}}))
    assert "dynamic_batching" not in d.json("GET", "/v2/models/m/config")[1]
    joins = {"max_batch_size": 8, "dynamic_batching": {"max_queue_delay_microseconds": 1000}}
    assert d.call("POST", "/v2/repository/models/m/unload")[0] == 200
    status, _, text = load(**joins)
    assert status == 200, text
    config = d.json("GET", "/v2/models/m/config")[1]
    assert config["max_batch_size"] == 8, config
    right(gathered(d, inputs), inputs)
    assert metric(d, "hlod_batches_total") == 1 and d.json(
        "GET", "/v1/models")[1]["models"][0]["model"] == digest

    assert load(backend="hlod")[0] == 200  # says nothing about it
    assert d.json("GET", "/v2/models/m/config")[1]["max_batch_size"] == 8
    assert load(max_batch_size=0, dynamic_batching={})[0] == 200
    assert "dynamic_batching" not in d.json("GET", "/v2/models/m/config")[1]

    ranks = upload(d, graph([("Softmax", "x", "y", {"axis": 0})], {"x": ["N", 4]},
                            {"y": ["N", 4]}), "x=1x4")
    assert d.json("POST", "/v1/models", {"name": "ranks", "model": ranks})[0] == 200
    status, _, text = load("ranks", **joins)
    assert status == 400 and b"cannot be batched" in text, (status, text)
    assert "dynamic_batching" not in d.json("GET", "/v2/models/ranks/config")[1]
    assert load("nobody", **joins)[0] == 400

SCENARIOS = [together, neighbours_do_not_matter, compiled_ahead, full_goes_at_once, short_delays,
             auto_joins, only_equals_join, sizes_of_rows, some_leave, worker_dies, named_otherwise,
             refused, independence_is_shown, config_of_a_load, kept]

if __name__ == "__main__":
    sys.exit(scenarios("batching", SCENARIOS,
                       lambda s: ["--device", *s.__doc__.split("\n")[0].split()]))
