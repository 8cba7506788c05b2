#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The zoo's networks in headless Chromium by WebGPU and by WebGL2 (over the CPU), against ONNX
Runtime on the same file and inputs. Needs chromium-driver (sh deploy/setup.sh dashboard).

    gpu_models.py BUILD [--models REGEX] [--which small|families|packages|all] [--backend NAME]

A line for each, PASS, FAIL, REFUSED or SKIP."""
import argparse
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "zoo"),
                os.path.join(HERE, "..", "dashboard")]
import browser  # noqa: E402
import models  # noqa: E402
from packages import TYPES, bindings  # noqa: E402

PAGE = b"""<!doctype html><meta charset="utf-8"><script type="module">
import { load } from "/package/runtime/hlod.js";
import { arrayOf } from "/package/runtime/dtypes.js";
try {
  const backend = location.hash.slice(1);
  const model = await load(new URL("/package/model/manifest.json", location.href), { backend });
  const inputs = {};
  for (const [k, v] of model.inputs.entries()) {
    const bytes = await (await fetch(`/in${k}.bin`)).arrayBuffer();
    inputs[v.name] = new (arrayOf(v.dtype))(bytes);
  }
  const before = [model.backend, model.backendNote], start = performance.now();
  const shapes = {}, out = await model.run(inputs, { shapes }), ms = performance.now() - start;
  for (const [k, v] of model.outputs.entries())
    await fetch(`/out${k}.bin`, { method: "POST", body: out[v.name] });
  globalThis.ended = { before, after: model.backend, ms,
    outputs: model.outputs.map((v) => ({ ...v, shape: shapes[v.name] })),
    gpu: Object.keys(model.manifest.gpu ?? {}) };
  model.dispose();
} catch (e) {
  globalThis.ended = { error: `${e.name}: ${e.message}` };
}
</script>"""


class Files(http.server.SimpleHTTPRequestHandler):
    folder = None

    def log_message(self, *args):
        pass

    def translate_path(self, path):
        return os.path.join(self.folder, path.partition("?")[0].lstrip("/"))

    def do_GET(self):
        if self.path.partition("?")[0] != "/":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def end_headers(self):
        # The next model's files have the same names, and may have times of the same second.
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def do_POST(self):
        with open(self.translate_path(self.path), "wb") as f:
            f.write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()


def one(b, url, build, m, backend, folder):
    inputs, package = m.inputs(), os.path.join(folder, "package")
    try:
        want, others = models.expected(m, inputs)
    except Exception as e:
        return "SKIP", "ONNX Runtime: %s" % str(e).replace("\n", " ")[:200]
    done = subprocess.run([build + "/hlo", "export", m.path, "--web", package, "--backend", backend,
                           *bindings(m.path, inputs)], capture_output=True, text=True, timeout=240)
    if done.returncode:
        return "REFUSED" if "UNIMPLEMENTED" in done.stderr else "FAIL", done.stderr[-300:]
    with open(package + "/model/manifest.json") as f:
        manifest = json.load(f)
    for k, v in enumerate(manifest["inputs"]):
        np.ascontiguousarray(inputs[v["name"]]).tofile(os.path.join(folder, "in%d.bin" % k))

    b.go("%s?%s#%s" % (url, m.name, backend))
    got = b.wait("return globalThis.ended", seconds=240)
    if "error" in got:
        return "FAIL", got["error"]
    language = {"webgpu": "wgsl", "webgl": "glsl"}[backend]
    runs = [backend, ""] if language in got["gpu"] else got["before"]
    if got["before"] != runs or got["after"] != runs[0]:
        return "FAIL", "runs by %s, %s" % (got["before"], got["after"])
    out = {v["name"]: np.fromfile(os.path.join(folder, "out%d.bin" % k), TYPES[v["dtype"]])
           .reshape(v["shape"]) for k, v in enumerate(got["outputs"])}
    ok, error, bound = models.verdict(m, out if isinstance(want, dict) else list(out.values()),
                                      want, others)
    on_gpu = manifest.get("gpu", {}).get(language, {"kernels": []})["kernels"]
    return "PASS" if ok else "FAIL", "error %.2g (bound %.2g), %d of %d kernels, %.0f ms" % (
        error, bound, sum(k is not None for k in on_gpu), len(manifest["kernels"]), got["ms"])


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--models", default=".", help="regular expression over names and packages")
    a.add_argument("--which", default="small")
    a.add_argument("--backend", default="webgpu,webgl")
    o = a.parse_args()
    if not shutil.which("chromedriver"):
        print("SKIP networks in a browser: no chromedriver (sh deploy/setup.sh dashboard)")
        return 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    failed = 0
    for backend in o.backend.split(","):
        b = browser.Browser(flags={"webgpu": browser.WEBGPU, "webgl": browser.WEBGL}[backend])
        try:
            for m in models.chosen(o.models, o.which):
                with tempfile.TemporaryDirectory(prefix="hlod-web-") as folder:
                    Files.folder = folder
                    status, text = one(b, "http://127.0.0.1:%d/" % server.server_port, o.build, m,
                                       backend, folder)
                print("%s %s, %s: %s" % (status, m.name, backend, text), flush=True)
                failed += status == "FAIL"
        finally:
            b.stop()
    server.shutdown()
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
