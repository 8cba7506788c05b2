#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executables of one model, one for each shape, on the CPU: they share prepared weights
(docs/decisions/0075) and count together when some must go (0071). Values against NumPy. Needs numpy
and onnx. Usage: shapes.py --hlod BIN --worker BIN [NAME...]"""
import contextlib, os, random, signal, sys, time
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # the clients are threads
import numpy as np
from onnx import TensorProto, helper, numpy_helper
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import device, in_thread, metric, scenarios, until
from batching import graph, run, upload

CLIENTS, TURNS = 8, 12

class Network:
    """Two dense layers over any number of rows; the graph is the same for each seed."""
    def __init__(self, d, seed, activation="Relu"):
        rng = np.random.default_rng(seed)
        self.weights = [(rng.standard_normal(s) / np.sqrt(s[0])).astype(np.float32)
                        for s in ((64, 300), (300, 96))]
        self.activation = activation
        self.model = upload(d, graph([("MatMul", "x v", "a", {}), (activation, "a", "b", {}),
                                      ("MatMul", "b w", "y", {})],
                                     {"x": ["N", 64]}, {"y": ["N", 96]},
                                     list(zip("vw", self.weights))), "x=1x64")
    def gives(self, x, y):
        a = x @ self.weights[0]
        a = np.maximum(a, 0) if self.activation == "Relu" else np.tanh(a)
        return np.allclose(y, a @ self.weights[1], rtol=1e-3, atol=1e-4)

def rows(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 64)).astype(np.float32)

def right(d, network, n, seed=0):
    x = rows(n, seed)
    status, r, out = run(d, x, model=network.model)
    assert status == 200 and network.gives(x, out[0]), (n, r)

def at_once(d, networks, between, name=None):
    """CLIENTS ask for many shapes of each network at the same time, by digest, or some by `name`,
    which may be any of them; `between` is called meanwhile with a number until they are done."""
    def client(k):
        rng = random.Random(k)
        for t in range(TURNS):
            of, x = rng.randrange(len(networks)), rows(rng.randrange(1, 40), 100 * k + t)
            by_name = name and rng.random() < 0.3
            status, r, out = run(d, x, model=name if by_name else networks[of].model)
            if status == 503 and "WORKER_LOST" in str(r):
                continue
            assert status == 200, r
            assert any(n.gives(x, out[0]) for n in (networks if by_name else [networks[of]])), x
        return "done"
    threads = [in_thread(client, k) for k in range(CLIENTS)]
    k = 0
    while any(t.is_alive() for t, _ in threads):
        between(k)
        k += 1
        time.sleep(0.02)
    for t, out in threads:
        t.join()
        assert out == ["done"], out

# ---- scenarios

def growing_beside_another(d):
    """A model with ever new shapes pushes out no other, and its own are there for the next pass."""
    growing, other = Network(d, 1), Network(d, 2, "Tanh")
    right(d, other, 3)
    for n in range(1, 101):
        right(d, growing, n)
    before = metric(d, "hlod_prepares_total"), metric(d, "hlod_compiles_total")
    right(d, other, 3)
    for n in range(1, 101):
        right(d, growing, n, seed=1)
    assert (metric(d, "hlod_prepares_total"), metric(d, "hlod_compiles_total")) == before
    until("all are resident", 5, lambda: device(d, "cpu:0").get("residentExecutables") == 101)

def shapes_at_once(d):
    """Two versions and another model, executables evicted all the time, a name that changes."""
    networks = [Network(d, 1), Network(d, 2), Network(d, 3, "Tanh")]
    def rename(k):
        status, r = d.json("POST", "/v1/models", {"name": "m", "model": networks[k % 3].model})
        assert status == 200, r
    rename(0)
    at_once(d, networks, rename, name="m")
    assert metric(d, "hlod_shapes_evicted_total") > 0
    assert not device(d, "cpu:0").get("restarts")

def worker_is_killed(d):
    networks = [Network(d, 1), Network(d, 2)]
    def kill(k):
        pid = device(d, "cpu:0").get("workerPid")
        if k in (2, 12) and pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    at_once(d, networks, kill)
    until("ready", 20, lambda: device(d, "cpu:0")["state"] == "ready")
    for n in networks:
        right(d, n, 7)

def memory_of_a_device(d):
    """Where memory is short a model's own shapes make room for the next, a few at a time."""
    growing, other = Network(d, 1), Network(d, 2, "Tanh")
    right(d, other, 3)
    for n in range(1, 41):  # some 200 kB each: this device shares nothing
        right(d, growing, n)
    before = metric(d, "hlod_prepares_total")
    right(d, other, 3)
    right(d, growing, 40)
    assert metric(d, "hlod_prepares_total") == before
    until("some are resident", 5,
          lambda: 2 < device(d, "sim:0").get("residentExecutables", 0) < 12)
    right(d, growing, 1)

def part_of_the_given_memory(d):
    """What a model keeps beside its last shape is bounded by --device-memory, too, not by what the
    machine has alone; those that run again are there anew."""
    growing = Network(d, 1)
    for n in range(1, 101):
        right(d, growing, n)
    until("some went", 5, lambda: 2 < device(d, "cpu:0").get("residentExecutables", 0) < 80)
    for n in (1, 50, 100):
        right(d, growing, n)

def large_weights(d):
    """Two shapes of a model, each with weights of its own that are more than an eighth of the
    device's memory, are both there for the next run: the memory has room for them."""
    weight = np.random.default_rng(1).standard_normal((5000, 5000)).astype(np.float32)
    model = upload(d, graph([("MatMul", "x w", "y", {})], {"x": ["N", 5000]}, {"y": ["N", 5000]},
                            [("w", weight)]), "x=1x5000")
    def turn(n):
        x = np.random.default_rng(n).standard_normal((n, 5000)).astype(np.float32)
        status, r, out = run(d, x, model=model)
        assert status == 200 and np.allclose(out[0], x @ weight, rtol=1e-3, atol=1e-2), r
    turn(1), turn(2)
    before = metric(d, "hlod_prepares_total")
    for n in (1, 2, 1, 2):
        turn(n)
    assert metric(d, "hlod_prepares_total") == before

def part_of_the_cache(d):
    """Executables of one program may take a quarter of the cache, each by its own size: a large one
    among small ones pushes out none while all of them fit, and some once they do not."""
    branch = lambda *nodes: helper.make_graph(
        list(nodes), "b", [], [helper.make_tensor_value_info("o", TensorProto.FLOAT, ["N"])])
    steps = [helper.make_node("Sin" if k % 2 else "Exp", ["x" if not k else f"s{k}"], [f"s{k + 1}"])
             for k in range(150)]
    large = branch(*steps, helper.make_node("Neg", ["s150"], ["o"]))
    g = helper.make_graph(
        [helper.make_node("Size", ["x"], ["n"]), helper.make_node("Greater", ["n", "k"], ["c"]),
         helper.make_node("If", ["c"], ["y"], then_branch=large,
                          else_branch=branch(helper.make_node("Neg", ["x"], ["o"])))], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])],
        [numpy_helper.from_array(np.array(1000), "k")])
    model = helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)],
                              ir_version=8).SerializeToString()
    for n in range(1, 41):
        upload(d, model, f"x={n}")
    upload(d, model, "x=1001")
    assert metric(d, "hlod_shapes_evicted_total") == 0
    compiles = metric(d, "hlod_compiles_total")
    for n in range(1, 41):
        upload(d, model, f"x={n}")
    assert metric(d, "hlod_compiles_total") == compiles
    for n in range(1002, 1008):
        upload(d, model, f"x={n}")
    assert metric(d, "hlod_shapes_evicted_total") > 0

CPU = ["--device", "cpu:threads=1:streams=2", "--compile-rate", "0"]
OPTIONS = {shapes_at_once: [*CPU, "--max-shapes", "6"],
           memory_of_a_device: ["--device", "sim:memory=2M", "--compile-rate", "0"],
           part_of_the_cache: [*CPU, "--cache-bytes", "2M"],
           part_of_the_given_memory: [*CPU, "--device-memory", "8M"],
           large_weights: ["--device", "sim:memory=600M"]}
SCENARIOS = [growing_beside_another, shapes_at_once, worker_is_killed, memory_of_a_device,
             part_of_the_given_memory, large_weights, part_of_the_cache]

if __name__ == "__main__":
    sys.exit(scenarios("shapes", SCENARIOS, lambda s: OPTIONS.get(s, CPU)))
