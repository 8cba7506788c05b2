#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The page at /worker in headless Chromium, with a daemon: it asks for a token, says why it is
refused, joins, and serves: programs of several types and a small network, whose results are the
CPU's; a tab that is closed in mid-run is UNAVAILABLE, and the next one serves; a run that is given
up resets it. By WebAssembly, and with --gpu by WebGPU and WebGL2 over the CPU. Screenshots go to
build/web. Needs chromium-driver (sh deploy/setup.sh dashboard). Usage: worker_page.py BUILD [--gpu]
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "models"),
                os.path.join(HERE, "..", "dashboard")]
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import browser  # noqa: E402
import daemon  # noqa: E402
import harness  # noqa: E402
import unseen  # noqa: E402

build, result, out = sys.argv[1], harness.Results(), "build/web"
os.makedirs(out, exist_ok=True)
rng = np.random.default_rng(7)
PROGRAMS = {  # text, inputs
    "softmax": ("""HloModule softmax
mx { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }
ad { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e { x = f32[7,33] parameter(0)
m = f32[7] reduce(x, f32[] constant(-inf)), dimensions={1}, to_apply=mx
b = f32[7,33] broadcast(m), dimensions={0}
d = f32[7,33] subtract(x, b) p = f32[7,33] exponential(d)
s = f32[7] reduce(p, f32[] constant(0)), dimensions={1}, to_apply=ad
t = f32[7,33] broadcast(s), dimensions={0}
ROOT r = f32[7,33] divide(p, t) }""",
                {"x": rng.standard_normal((7, 33)).astype(np.float32)}),
    "several results": ("""HloModule several
ENTRY e { x = s64[3] parameter(0) y = f64[3] parameter(1) c = f64[3] convert(x) s = f64[3] add(c, y)
p = pred[3] compare(x, s64[3] constant({1, -5, 70000000000})), direction=LT
k = s8[3] convert(x)
ROOT r = (f64[3], pred[3], s8[3], s64[3]) tuple(s, p, k, x) }""",
                        {"x": np.array([1, -7, 70000000001]), "y": np.array([.1, .2, 1e300])}),
}
# Of unseen.py: calls as operations, results of open sizes.
STRANGE = ("a size that values decide, some", "boxes suppressed", "a forest of depth 8")
FOREVER = """HloModule count
cond { c = s32[] parameter(0) n = s32[] constant(2000000000) ROOT l = pred[] compare(c, n), direction=LT }
body { b = s32[] parameter(0) one = s32[] constant(1) ROOT s = s32[] add(b, one) }
ENTRY e { x = s32[] parameter(0) ROOT w = s32[] while(x), condition=cond, body=body }"""


def network():
    """Two convolutions with an activation each, a pool and a product, with weights."""
    def weight(name, *shape):
        a = rng.standard_normal(shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(a.astype(np.float32), name)
    node = helper.make_node
    nodes = [node("Conv", ["x", "a"], ["b"], pads=[1, 1, 1, 1]), node("Relu", ["b"], ["c"]),
             node("Conv", ["c", "d"], ["e"], pads=[1, 1, 1, 1], strides=[2, 2]),
             node("Sigmoid", ["e"], ["f"]), node("GlobalAveragePool", ["f"], ["g"]),
             node("Flatten", ["g"], ["h"]), node("MatMul", ["h", "i"], ["y"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, [1, 3, 24, 24])],
                              [info("y", TensorProto.FLOAT, [1, 10])],
                              [weight("a", 8, 3, 3, 3), weight("d", 16, 8, 3, 3),
                               weight("i", 16, 10)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


class Server(daemon.Daemon):
    """With a token in each request."""
    def __init__(self, folder):
        self.tokens = folder + "/tokens"
        self.token = self.add("all", "read,run,compile,worker,admin")
        self.run_only = self.add("run", "read,run")
        super().__init__(build, args=("--device", "cpu,web", "--tokens", self.tokens))

    def add(self, name, scopes):
        done = subprocess.run([build + "/hlo", "tokens", "add", name, "--file", self.tokens,
                               "--tenant", "one", "--scopes", scopes], capture_output=True,
                              text=True, check=True, timeout=30)
        return [w for w in (done.stdout + done.stderr).split() if w.startswith("hlod_")][0]

    def call(self, verb, path, body=None, headers={}, timeout=30):
        return super().call(verb, path, body, {"Authorization": "Bearer " + self.token, **headers},
                            timeout)

    def state(self):
        return [x["state"] for x in self.json("GET", "/v1/devices")["devices"]
                if x["kind"] == "web"][0]

    def upload(self, text):
        return self.json("POST", "/v1/executables?device=web", text.encode(),
                         {"Content-Type": "text/x-hlo"})["sourceDigest"]


def join(d, b, backend, token):
    b.go("http://%s:%d/worker?backend=%s" % (*d.addr, backend))
    b.js("document.getElementById('token').value = arguments[0];"
         "document.getElementById('join').click()", token)


def connected(d, b):
    b.wait("return document.getElementById('state').dataset.kind === 'good'", seconds=30)
    harness.until("ready", 30, lambda: d.state() == "ready")


def on(d, device, model, inputs, **options):
    got, _ = d.run(model, inputs, device=device, timeoutMs=options.pop("ms", 60000), **options)
    return list(got.values())


def same(d, name, model, inputs, backend):
    want, got = on(d, "cpu", model, inputs), on(d, "web", model, inputs)
    ok = len(want) == len(got) and all(
        a.dtype == b.dtype and a.shape == b.shape and np.allclose(a, b, 1e-5, 1e-6)
        for a, b in zip(want, got))
    result("%s: %s as on the CPU" % (backend, name), ok, (want, got))


def refused_run(d, model, ms=60000):
    try:
        on(d, "web", model, {"x": np.array(0, np.int32)}, ms=ms)
        return 200, ""
    except daemon.Refused as e:
        return e.code, e.body["message"]


def serves(d, backend, flags):
    b = browser.Browser(size=(900, 900), flags=flags)
    try:
        join(d, b, backend, d.token)
        connected(d, b)
        for name, (text, inputs) in PROGRAMS.items():
            same(d, name, d.upload(text), inputs, backend)
        model = d.compile(network(), {"x": (1, 3, 24, 24)}, device="web")["sourceDigest"]
        for _ in range(2):
            same(d, "a network", model,
                 {"x": rng.standard_normal((1, 3, 24, 24)).astype(np.float32)}, backend)
        for name, model, inputs, _ in unseen.models():
            if name in STRANGE:
                sizes = {k: np.shape(v) for k, v in inputs.items()}
                same(d, name, d.compile(model.SerializeToString(), sizes, device="web")
                     ["sourceDigest"], inputs, backend)
        shown = b.js("return ['backend', 'runs', 'models', 'errors'].map(i => "
                     "document.getElementById(i).textContent)")
        result("%s: the page shows what it did" % backend, shown == [backend, "7", "6", "0"], shown)
        b.shot(out + "/worker-" + backend)
        log = [x for x in b.log() if "runs in WebAssembly" not in x and "GL Driver" not in x]
        result("%s: nothing in the log" % backend, not log, log)
    finally:
        b.stop()


def ends(d):
    """Given up, closed in mid-run, and another tab."""
    first = PROGRAMS["softmax"]
    b = browser.Browser(size=(900, 900))
    try:
        join(d, b, "wasm", d.token)
        connected(d, b)
        forever, model = d.upload(FOREVER), d.upload(first[0])
        begun = time.monotonic()
        code, text = refused_run(d, forever, ms=1500)
        result("a run without end: its deadline", code == 504 and time.monotonic() - begun < 20,
               (code, text))
        same(d, "the next run", model, first[1], "after a reset")
        shown = b.js("return [document.getElementById('runs').textContent, "
                     "document.getElementById('log').innerText]")
        result("the page says that a run was given up", shown[0] == "1" and "given up" in shown[1],
               shown)
        thread, got = harness.in_thread(refused_run, d, forever)
        harness.until("busy", 20, lambda: d.state() == "busy")
        b.go("about:blank")
        thread.join(30)
        result("the tab is closed in mid-run: UNAVAILABLE", got and got[0][0] == 503, got)
        join(d, b, "wasm", d.token)
        connected(d, b)
        same(d, "a run", model, first[1], "the next tab")
        b.js("document.getElementById('join').click()")
        b.wait("return document.getElementById('state').textContent === 'not connected'")
        harness.until("gone", 20, lambda: d.state() == "waiting")
        result("Leave: it is no device any more", True)
        for name, token, part in (("no token", "", "no credentials"),
                                  ("a token without the scope", d.run_only, "worker")):
            join(d, b, "wasm", token)
            text = b.wait("const t = document.getElementById('state').textContent; "
                          "return t.startsWith('refused') ? t : ''")
            result("%s: the page says why" % name, part in text, text)
        b.shot(out + "/worker-refused")
        b.js("fetch('http://127.0.0.1:9/').catch(() => { window.blocked = true; })")
        result("the policy lets it ask this server alone", b.wait("return window.blocked"))
    finally:
        b.stop()


def main():
    if not shutil.which("chromedriver"):
        print("SKIP the page at /worker: no chromedriver")
        return 0
    with tempfile.TemporaryDirectory(prefix="hlod-worker-") as folder:
        with Server(folder) as d:
            serves(d, "wasm", ("--disable-gpu",))
            if "--gpu" in sys.argv:
                serves(d, "webgpu", browser.WEBGPU)
                serves(d, "webgl", browser.WEBGL)
            ends(d)
    return result.code()


sys.exit(main())
