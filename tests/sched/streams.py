#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs at the same time in one worker of the CPU (docs/decisions/0027): values against NumPy while
calls of other programs, clients that leave and a worker that is killed come in between. Needs numpy
and onnx. Usage: streams.py --hlod BIN --worker BIN [NAME...]"""
import json, os, signal, socket, sys
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the clients are threads
import numpy as np
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import device, in_thread, scenarios, until
from batching import graph, run, upload

STREAMS, CLIENTS = 3, 8
rng = np.random.default_rng(5)
WEIGHTS = [(rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32)
           for s in ((256, 4096), (4096, 64))]

class Network:
    """Two dense layers, some tenths of a millisecond; `sign` makes another program of it."""
    def __init__(self, d, sign="Relu"):
        self.sign = sign
        self.model = upload(d, graph([("MatMul", "x v", "a", {}), (sign, "a", "b", {}),
                                      ("MatMul", "b w", "y", {})],
                                     {"x": ["N", 256]}, {"y": ["N", 64]},
                                     list(zip("vw", WEIGHTS))), "x=1x256")
    def right(self, d, x, strict=True):
        status, r, out = run(d, x, model=self.model)
        if status != 200 and not strict:
            assert status == 503, r
            return
        assert status == 200, r
        a = x @ WEIGHTS[0]
        a = np.maximum(a, 0) if self.sign == "Relu" else np.tanh(a)
        np.testing.assert_allclose(out[0], a @ WEIGHTS[1], rtol=1e-3, atol=1e-4)

def row(seed):
    return np.random.default_rng(seed).standard_normal((1, 256)).astype(np.float32)

def under_way(d, networks, between=lambda: None, strict=True, turns=8):
    """CLIENTS ask at the same time, the networks in turn; `between` is called meanwhile."""
    def client(k):
        for t in range(turns):
            networks[(k + t) % len(networks)].right(d, row(100 * k + t), strict)
        return "done"
    threads = [in_thread(client, k) for k in range(CLIENTS)]
    between()
    for t, out in threads:
        t.join()
        assert out == ["done"], out

def threads_of(d):
    return len(os.listdir("/proc/%d/task" % device(d, "cpu:0")["workerPid"]))

# ---- scenarios

def side_by_side(d):
    n = Network(d)
    n.right(d, row(1))  # how long a run takes is known
    n.right(d, row(2))
    before = threads_of(d)
    # A stream's thread begins with the first run that finds others under way: of runs this short
    # there may be none at first.
    until("a thread for each stream", 20,
          lambda: under_way(d, [n]) or threads_of(d) == before + STREAMS)
    under_way(d, [n])
    assert threads_of(d) == before + STREAMS, (before, threads_of(d))
    assert not device(d, "cpu:0").get("restarts")

def two_programs(d):
    """And a third is compiled and loaded meanwhile."""
    both = [Network(d), Network(d, "Tanh")]
    dense = graph([("Sigmoid", "x", "y", {})], {"x": ["N", 300]}, {"y": ["N", 300]})
    def load():
        model, x = upload(d, dense, "x=1x300"), row(3).repeat(2, 1)[:, :300]
        np.testing.assert_allclose(run(d, x, model=model)[2][0], 1 / (1 + np.exp(-x)), rtol=1e-4)
    under_way(d, both, load)
    assert not device(d, "cpu:0").get("restarts")

def clients_leave(d):
    n, x = Network(d), row(4)
    head = json.dumps({"model": n.model,
                       "inputs": [{"name": "x", "dtype": "f32", "shape": list(x.shape),
                                   "parameters": {"binary_data_size": x.nbytes}}]}).encode()
    request = (b"POST /v1/run HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: %d\r\n"
               b"Content-Length: %d\r\n\r\n" % (len(head), len(head) + x.nbytes))
    def leave():
        for _ in range(30):
            with socket.create_connection(d.addr) as s:
                s.sendall(request + head + x.tobytes())
    under_way(d, [n], leave)
    until("idle", 10, lambda: not device(d, "cpu:0").get("runs"))
    n.right(d, x)
    assert not device(d, "cpu:0").get("restarts")

def worker_is_killed(d):
    n = Network(d)
    n.right(d, row(1))
    pid = device(d, "cpu:0")["workerPid"]
    under_way(d, [n], lambda: os.kill(pid, signal.SIGKILL), strict=False)
    until("ready", 20, lambda: device(d, "cpu:0")["state"] == "ready")
    under_way(d, [n])

SCENARIOS = [side_by_side, two_programs, clients_leave, worker_is_killed]

if __name__ == "__main__":
    sys.exit(scenarios("streams", SCENARIOS,
                       lambda s: ["--device", f"cpu:threads=1:streams={STREAMS}"]))
