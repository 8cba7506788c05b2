#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels and the cases of tests/ops in headless Chromium, as WebAssembly, by WebGPU and by WebGL2
(over the CPU): web_kernels and web_cases write requests as files, a page runs each by frames.mjs
and sends the answers back, the two programs read and judge them. Needs chromium-driver (sh
deploy/setup.sh dashboard).

    browser_cases.py BUILD [wasm|webgpu|webgl] CASES...
"""
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "dashboard")]
import browser  # noqa: E402
from harness import Results  # noqa: E402

RUNTIME = os.path.join(HERE, "..", "..", "compiler", "web", "runtime")
LISTS = {"webgpu": ("--wgsl", os.path.join(HERE, "in_wasm.txt")),
         "webgl": ("--glsl", os.path.join(HERE, "in_wasm_webgl.txt"))}
TILED = [os.path.join(HERE, "..", "ops", n + ".hlo") for n in ("dot", "convolution")]
PAGE = b"""<!doctype html><meta charset="utf-8"><script type="module">
import { load } from "/runtime/hlod.js";
import { arrayOf } from "/runtime/dtypes.js";
import { handle } from "/frames.mjs";
// Making a device for each model would take most of the time.
let device = null;
async function oneDevice() {
  const adapter = await navigator.gpu.requestAdapter(), { info, limits } = adapter;
  return { info, limits, requestDevice: async () => {
    device ??= await adapter.requestDevice({ requiredLimits: {
      maxBufferSize: limits.maxBufferSize,
      maxStorageBufferBindingSize: limits.maxStorageBufferBindingSize } });
    device.destroy = () => {};
    return device;
  } };
}
try {
  const options = await (await fetch("/options")).json();
  if (navigator.gpu) options.gpu = { requestAdapter: oneDevice };
  if (options.backend === "webgl") options.gl = new OffscreenCanvas(1, 1).getContext("webgl2");
  const numbers = await (await fetch("/numbers")).json();
  for (const n of numbers) {
    const request = new Uint8Array(await (await fetch(`/request/${n}`)).arrayBuffer());
    const body = await handle(request, load, arrayOf, options);
    if (!(await fetch(`/reply/${n}`, { method: "POST", body })).ok) throw new Error(`reply ${n}`);
    document.title = `at ${n}`;
  }
  document.title = "ended";
} catch (e) {
  document.title = `failed: ${e}`;
}
</script>"""


class Requests(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    folder, backend = None, "wasm"

    def log_message(self, *args):
        pass

    def reply(self, body, kind, status=200):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        numbers = sorted(int(n[:-4]) for n in os.listdir(self.folder) if n.endswith(".req"))
        first, _, rest = self.path[1:].partition("/")
        if not first:
            self.reply(PAGE, "text/html")
        elif first == "options":
            self.reply(json.dumps({"backend": self.backend}).encode(), "application/json")
        elif first == "numbers":
            self.reply(str(numbers).encode(), "application/json")
        elif first == "request" and rest.isdigit():
            self.file(self.folder, rest + ".req", "application/octet-stream")
        elif first == "runtime" and rest in os.listdir(RUNTIME):
            self.file(RUNTIME, rest, "text/javascript")
        elif first == "frames.mjs":
            self.file(HERE, first, "text/javascript")
        else:
            self.reply(b"", "text/plain", 404)

    def file(self, folder, name, kind):
        with open(os.path.join(folder, name), "rb") as f:
            self.reply(f.read(), kind)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(os.path.join(self.folder, str(int(self.path.rpartition("/")[2])) + ".rep"),
                  "wb") as f:
            f.write(body)
        self.reply(b"", "text/plain")


def check(b, build, backend, cases, result, tiles=False):
    serve = os.path.join(HERE, "serve.mjs")
    lists = ["--refused", os.path.join(HERE, "refused.txt"), *LISTS.get(backend, ())]
    for name, argv, more in (("kernels", [build + "/web_kernels"], []),
                             ("cases of tests/ops", [build + "/web_cases", *lists], cases),
                             ("contractions always in tiles",
                              [build + "/web_cases", *lists, "--tiles", "always"], TILED)):
        if tiles != (more is TILED):
            continue
        with tempfile.TemporaryDirectory(prefix="hlod-web-") as folder:
            def call(how):
                return subprocess.run([*argv, "--backend", backend, how, folder, RUNTIME, serve,
                                       *more], capture_output=True, text=True, timeout=600)
            written = call("--write")
            Requests.folder, Requests.backend = folder, backend
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Requests)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            b.go("http://127.0.0.1:%d/" % server.server_port)
            title = b.wait("return document.title.startsWith('at') ? '' : document.title",
                           seconds=600)
            server.shutdown()
            server.server_close()
            read = call("--read")
            said = (written.stdout + written.stderr + read.stdout + read.stderr).strip()
            result("%s in Chromium, %s" % (name, backend), written.returncode == 0 and
                   title == "ended" and read.returncode == 0, "%s: %s" % (title, said[-3000:]))
            print(read.stdout.strip().rpartition("\n")[2], flush=True)


def main():
    if not shutil.which("chromedriver"):
        print("SKIP cases in a browser: no chromedriver (sh deploy/setup.sh dashboard)")
        return 0
    build, cases, result = sys.argv[1], sys.argv[2:], Results()
    backends = {"wasm": ("--disable-gpu",), "webgpu": browser.WEBGPU, "webgl": browser.WEBGL}
    if cases[0] in backends:
        backends = {cases[0]: backends[cases.pop(0)]}
    for backend, flags in backends.items():
        b = browser.Browser(flags=flags)
        try:
            check(b, build, backend, cases, result)
            if backend != "wasm":
                check(b, build, backend, cases, result, tiles=True)
        finally:
            b.stop()
    return result.code()


if __name__ == "__main__":
    sys.exit(main())
