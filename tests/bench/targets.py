# SPDX-License-Identifier: Apache-2.0
"""Networks on every target, beside onnxruntime-web: means of 100 runs after a first, and what a
page is sent beside weights.

    targets.py BUILD [MODEL ...] [--rounds N] [--runs N] [--gpu-runs N] [--only REGEX] [--strict]
                     [--zoo REGEX]

In headless Chromium, in one page, by turns: hlod and onnxruntime-web as WebAssembly, one thread;
then by WebGPU and by WebGL2, over the CPU (SwiftShader), fewer runs. Beside it, by turns too: the
CPU device as it is, its kernels alone, OpenCL's kernels through PoCL and OpenGL's through Mesa's
llvmpipe (fewer runs), one thread each. --only: rows whose name matches. --strict fails where a goal
is not reached: at least the peer's speed in WebAssembly, a twentieth of its bytes, 400 KB for
ResNet18. --zoo: generated models of tests/zoo by name. Values are compared with the peer's.

Needs Chromium (sh deploy/setup.sh targets, which puts onnxruntime-web into build/npm too); what is
not here is left out aloud.
"""
import argparse
import http.server
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, *(os.path.join(HERE, "..", n) for n in ("models", "dashboard", "web"))]
import bench  # noqa: E402
import browser  # noqa: E402
import packages  # noqa: E402
import zoo  # noqa: E402

MODELS = ["resnet18", "efficientnet_lite0"]
ORT = "build/npm/node_modules/onnxruntime-web"
# What a page of the peer is sent: its script, and what that fetches.
ORT_FILES = {"wasm": ["ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs",
                      "ort-wasm-simd-threaded.wasm"],
             "webgpu": ["ort.webgpu.min.mjs", "ort-wasm-simd-threaded.asyncify.mjs",
                        "ort-wasm-simd-threaded.asyncify.wasm"]}
TYPES = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript",
         ".wasm": "application/wasm", ".json": "application/json"}


class Files(http.server.BaseHTTPRequestHandler):
    """/page, /inputs/N, /model, /ort/... (the peer), /web/... and /wasm/... (exported packages)."""
    protocol_version = "HTTP/1.1"
    roots = {}

    def log_message(self, *args):
        pass

    def do_GET(self):
        first, _, rest = self.path.split("?")[0][1:].partition("/")
        at = self.roots.get(first, "")
        path = os.path.normpath(os.path.join(at, rest)) if rest else at
        found = at and path.startswith(at) and os.path.isfile(path)
        body = open(path, "rb").read() if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", TYPES.get(os.path.splitext(path)[1],
                                                   "application/octet-stream"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def export(build, path, to, backend, bind):
    """Sizes that hlo export tells."""
    done = subprocess.run([build + "/hlo", "export", path, "--web", to, "--backend", backend,
                           *bind], capture_output=True, text=True, check=True)
    return {k: int(v) for k, v in (w.split("=") for w in done.stdout.split())}


def promise(b, code, seconds):
    """What a promise in the page comes to."""
    b.js("globalThis.got = null; (%s).then((v) => { globalThis.got = [v]; });" % code)
    return b.wait("return document.title.startsWith('failed') ? [document.title] : globalThis.got",
                  seconds=seconds)[0]


def in_chromium(o, url, inputs, only):
    """{row: [milliseconds]}, {row: output}, of both in turn."""
    times, outputs = {}, {}
    for flags, backends in ((browser.WEBGPU, ("wasm", "webgpu")), (browser.WEBGL, ("webgl",))):
        b = browser.Browser(flags=flags)
        try:
            for backend in backends:
                in_page(o, b, url, inputs, backend, only, times, outputs)
        finally:
            b.stop()
    return times, outputs


def in_page(o, b, url, inputs, backend, only, times, outputs):
    named = {}
    if only("hlod, " + backend):
        at = url + ("/wasm" if backend == "wasm" else "/web")
        named["hlod, " + backend] = {"at": at, "backend": backend}
    if backend in ORT_FILES and os.path.isdir(ORT) and only("onnxruntime-web, " + backend):
        named["onnxruntime-web, " + backend] = {
            "at": url + "/model", "backend": backend, "module": ORT_FILES[backend][0]}
    if not named:
        return
    b.go(url + "/page")
    b.wait("return document.title === 'ready'")
    made = promise(b, "begin(%s, %s)" % (json.dumps(named), json.dumps(inputs)), 900)
    for name, m in made.items():
        if "why" in m:
            print("%s: not here: %s" % (name, m["why"].split("\n")[0][:200]), flush=True)
        else:
            times[name], outputs[name] = [], np.array(m["out"], np.float32)
    rounds, runs = (o.rounds, -(-o.runs // o.rounds)) if backend == "wasm" else (o.gpu_runs, 1)
    for _ in range(rounds):
        got = promise(b, "measure(%d)" % runs, 1800)
        for name, t in got.items():
            times[name] += t


def native(o, path, bind, only):
    """The same on this machine without a browser, one thread."""
    os.environ["POCL_MAX_PTHREAD_COUNT"] = "1"
    os.environ["LP_NUM_THREADS"] = "0"
    rows = {"cpu": [], "cpu, kernels": ["--impl", "kernel"], "opencl": ["--device", "opencl"],
            "gl": ["--device", "gl"]}
    peers = {name: bench.Peer([o.build + "/hlo-run", *bind, path, "--loop", *more], 1)
             for name, more in rows.items() if only(name)}
    alive = {name: p.ask(1) for name, p in peers.items()}
    for p in peers.values():
        p.times = []
    for n in range(max(o.rounds, o.gpu_runs)):
        for name, p in peers.items():
            rounds, runs = (o.gpu_runs, 1) if name == "gl" else (
                o.rounds, -(-o.runs // o.rounds))
            if n < rounds:
                alive[name] = alive[name] and p.ask(runs)
    for p in peers.values():
        p.close()
    return {name: p.times for name, p in peers.items() if alive[name]}


def report(times, base):
    for name, t in times.items():
        if t:
            mean = statistics.mean(t)
            of = "" if not times.get(base) else "%.2f" % (mean / statistics.mean(times[base]))
            print("| %s | %.1f | %.1f | %.1f | %d | %s |" % (
                name, mean, statistics.median(t), min(t), len(t), of), flush=True)


def bytes_sent(alone, auto):
    """Of a page beside weights: ours, the peer's; by backend."""
    sizes = {"wasm": alone, "webgpu": auto, "webgl": auto}
    ours = {b: s["runtime"] + s["kernels"] + s["plan"] + s[{"webgpu": "wgsl"}.get(b, "glsl")] * (
        b != "wasm") for b, s in sizes.items()}
    peers = {b: sum(os.path.getsize(os.path.join(ORT, "dist", f)) for f in files)
             for b, files in ORT_FILES.items()} if os.path.isdir(ORT) else {}
    for b, n in ours.items():
        print("%s: %.1f KB sent beside weights (%s)%s" % (
            b, n / 1e3, " ".join("%s %.1f" % (k, v / 1e3) for k, v in sizes[b].items()),
            ", onnxruntime-web %.1f KB: %.0f times" % (peers[b] / 1e3, peers[b] / n)
            if b in peers else ""))
    return ours, peers


def written(inputs, folder):
    """As files 0, 1, ...; what they are."""
    for k, v in enumerate(inputs.values()):
        v.tofile(os.path.join(folder, str(k)))
    return [{"name": n, "dtype": str(v.dtype), "shape": v.shape} for n, v in inputs.items()]


def chosen(o):
    """(name, path, inputs, --bind of its open sizes) of each model."""
    for name in o.models:
        like = "resnet18" if name == "efficientnet_lite0" else name  # the same shape
        yield name, bench.model(name), zoo.sample_inputs(like, 1), ["--bind", "N=1"]
    if o.zoo:
        sys.path[:0] = [os.path.join(HERE, "..", "zoo")]
        import models
        for m in models.generated(o.zoo):
            inputs = m.inputs()
            yield m.name, m.path, inputs, packages.bindings(m.path, inputs)


def bench_model(o, name, path, inputs, bind, only):
    """Goals that were missed."""
    path, missed = os.path.abspath(path), []
    with tempfile.TemporaryDirectory(prefix="hlod-targets-") as folder:
        inputs = written(inputs, folder)
        auto = export(o.build, path, folder + "/web", "auto", bind)
        alone = export(o.build, path, folder + "/wasm", "wasm", bind)
        Files.roots = {"web": folder + "/web", "wasm": folder + "/wasm", "inputs": folder,
                       "ort": os.path.abspath(ORT + "/dist"), "model": path,
                       "page": os.path.join(HERE, "targets_page.html")}
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print("\n### %s\n\n| | mean ms | median | least | runs | of onnxruntime-web, wasm |\n"
              "|---|---|---|---|---|---|" % name, flush=True)
        times = native(o, path, bind, only)
        found, outputs = in_chromium(o, "http://127.0.0.1:%d" % server.server_port, inputs,
                                     only)
        server.shutdown()
    times.update(found)
    peer = "onnxruntime-web, wasm"
    report(times, peer)
    want = outputs.get(peer)
    bound = 1e-3 if name in MODELS else 0.2  # of 8-bit integers
    for k, v in outputs.items():
        error = np.abs(v - want).max() / np.abs(want).max() if want is not None else 0
        if want is not None and not error <= bound:
            missed.append("%s: values differ by %.2g" % (k, error))

    ours, peers = bytes_sent(alone, auto)
    if name == "resnet18" and alone["runtime"] + alone["kernels"] > 400e3:
        missed.append("more than 400 KB of runtime and kernels")
    if peers and peers["wasm"] < 20 * ours["wasm"]:
        missed.append("not a twentieth of onnxruntime-web's bytes")
    if times.get(peer) and times.get("hlod, wasm") and (
            statistics.mean(times["hlod, wasm"]) > statistics.mean(times[peer])):
        missed.append("slower than onnxruntime-web as WebAssembly")
    return ["%s: %s" % (name, m) for m in missed]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("models", nargs="*")
    a.add_argument("--rounds", type=int, default=10)
    a.add_argument("--runs", type=int, default=100)
    a.add_argument("--gpu-runs", type=int, default=3)
    a.add_argument("--only", default=".")
    a.add_argument("--strict", action="store_true")
    a.add_argument("--zoo")
    o = a.parse_args()
    o.models = o.models or ([] if o.zoo else MODELS)
    if not os.path.isdir(ORT):
        print("onnxruntime-web is not in build/npm (sh deploy/setup.sh targets): left out")
    missed = []
    for row in chosen(o):
        missed += bench_model(o, *row, lambda row: re.search(o.only, row))
    print("\n" + ("\n".join(missed) if missed else "all goals are reached"))
    return 1 if missed and o.strict else 0


if __name__ == "__main__":
    sys.exit(main())
