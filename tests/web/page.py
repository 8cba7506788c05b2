#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The exported page in headless Chromium: opened by file:// as one file it runs EfficientNet-lite0
on a photograph and names the classes that ONNX Runtime does, without a request; over http from a
folder too, and nothing else is asked for; by WebGPU and by WebGL2 (over the CPU) it names the same
classes, and when the GPU is lost the next run is WebAssembly's. A manifest that is damaged is said
on the page. Screenshots go to build/web, for a person to look at. Needs chromium-driver (sh
deploy/setup.sh dashboard). Usage: page.py BUILD"""
import functools
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "models"),
                os.path.join(HERE, "..", "dashboard"), os.path.join(HERE, "..", "zoo")]
import numpy as np  # noqa: E402

import browser  # noqa: E402
import efficientnet  # noqa: E402
import models  # noqa: E402
from harness import Results  # noqa: E402

build, out, result = sys.argv[1], "build/web", Results()
os.makedirs(out, exist_ok=True)
PHOTO = efficientnet.package_file("skimage/data/chelsea.png")
REQUESTS = """return performance.getEntriesByType('resource').map(e => e.name)
  .concat(performance.getEntriesByType('navigation').map(e => e.name))"""


def export(model, to, *options):
    done = subprocess.run([build + "/hlo", "export", model, "--web", to, "--name", "cat", "--size",
                           "224x224", "--crop", "0.875", "--mean", "127", "--std", "128",
                           *options], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit("hlo export: " + done.stderr)


def classify(b, want, name):
    """Gives the page the photograph; what it shows against want's five classes."""
    b.wait("return document.getElementById('state').innerText.startsWith('ready')", seconds=60)
    element = b.send("POST", "/element", {"using": "css selector", "value": "#file"})
    b.send("POST", "/element/%s/value" % list(element.values())[0],
           {"text": os.path.abspath(PHOTO)})
    b.wait("return document.querySelectorAll('#results tr').length >= 5", seconds=180)
    rows = b.js("return [...document.querySelectorAll('#results tr')].map(r => "
                "[...r.cells].map(c => c.innerText))")
    same = len(rows) == 5 and all(
        r[0] == label and abs(float(r[1]) - score) < 1e-3 for r, (label, score) in zip(rows, want))
    result(name + ": five classes", same, "%s, not %s" % (rows, want))
    b.shot(out + "/" + name)
    state = b.js("return document.getElementById('state').innerText")
    result(name + ": time is shown", state.endswith(" ms"), state)


def timed(b, name):
    """Mean of 100 runs by the page's button."""
    b.js("document.getElementById('time').click()")
    text = b.wait("const t = document.getElementById('state').innerText; "
                  "return t.startsWith('mean') ? t : ''", seconds=120)
    print("%s: %s" % (name, text))
    result(name + ": mean", "100 runs" in text, text)


class Quiet(http.server.SimpleHTTPRequestHandler):
    asked = []

    def log_message(self, *args):
        pass

    def do_GET(self):
        self.asked.append(self.path)
        super().do_GET()


# A device that can be lost: a run in the middle of which it is, and the one after.
LOSE = """globalThis.lost = null; (async () => {
  const { load } = await import('/runtime/hlod.js');
  let lose;
  const gpu = { requestAdapter: async (o) => {
    const adapter = await navigator.gpu.requestAdapter(o);
    return { info: adapter.info, limits: adapter.limits, requestDevice: async (d) => {
      const device = await adapter.requestDevice(d);
      lose = () => device.destroy();
      return device;
    } };
  } };
  const options = { gpu };
  if (hlodPage.model.backend === 'webgl') {
    options.gl = new OffscreenCanvas(1, 1).getContext('webgl2');
    lose = () => options.gl.getExtension('WEBGL_lose_context').loseContext();
  }
  const model = await load(new URL('/model/manifest.json', location.href), options);
  const image = new Float32Array(3 * 224 * 224), before = model.backend;
  const run = model.run({ image }).then(() => 'ran', (e) => `${e.name}: ${e.message}`);
  setTimeout(() => lose(), 200);
  const said = await run, { prob } = await model.run({ image });
  globalThis.lost = [before, said, model.backend, prob.length];
})().catch((e) => { globalThis.lost = [String(e)]; });"""


def by_gpu(folder, want, name, flags):
    handler = functools.partial(Quiet, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    b = browser.Browser(size=(900, 1000), flags=flags)
    try:
        b.go("http://127.0.0.1:%d/index.html" % server.server_port)
        classify(b, want, name)
        backend = b.js("return [hlodPage.model.backend, hlodPage.model.backendNote]")
        result(name + ": it was that", backend == [name, ""], backend)
        b.js("globalThis.other = null; import('/runtime/hlod.js').then(h => h.load("
             "new URL('/model/manifest.json', location.href), { backend: 'auto' }))"
             ".then(m => { globalThis.other = [m.backend, m.backendNote]; })")
        other = b.wait("return globalThis.other", seconds=60)
        result(name + ": not chosen where a CPU stands in", other[0] == "wasm", other)
        b.js(LOSE)
        lost = b.wait("return globalThis.lost", seconds=120)
        result(name + ": a GPU is lost, the next run is served",
               lost[0] == name and "the GPU is lost" in lost[1] and lost[2:] == ["wasm", 1000],
               lost)
    finally:
        b.stop()
        server.shutdown()


def main():
    with tempfile.TemporaryDirectory(prefix="hlod-page-") as folder:
        model, labels = folder + "/efficientnet_lite0.onnx", folder + "/labels.txt"
        efficientnet.build(model)
        names = list(efficientnet.labels().values())
        with open(labels, "w") as f:
            f.write("\n".join(names) + "\n")
        prob = models.session(model).run(None, {"image": efficientnet.picture(PHOTO)})[0][0]
        want = [(names[k], float(prob[k])) for k in np.argsort(-prob)[:5]]

        export(model, folder + "/one", "--single-file", "--labels", labels)
        export(model, folder + "/many", "--labels", labels, "--weights", "f16")
        for name, flags in (("webgpu", browser.WEBGPU), ("webgl", browser.WEBGL)):
            export(model, folder + "/" + name, "--labels", labels, "--backend", name)
            by_gpu(folder + "/" + name, want, name, flags)
        b = browser.Browser(size=(900, 1000))
        try:
            b.go("file://" + folder + "/one/index.html")
            classify(b, want, "single")
            timed(b, "single")
            # The picture that is shown is a blob of the page's own.
            asked = [u for u in b.js(REQUESTS) if not u.startswith(("file://", "blob:"))]
            result("single: no request", asked == [], asked)
            b.js("fetch('http://127.0.0.1:9/').catch(() => { window.blocked = true; })")
            result("single: the policy lets nothing be fetched",
                         b.wait("return window.blocked"))
            log = [line for line in b.log()
                   if "127.0.0.1:9" not in line and "No available adapters" not in line]
            result("single: nothing in the log but that", not log, log)

            handler = functools.partial(Quiet, directory=folder + "/many")
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
            threading.Thread(target=server.serve_forever, daemon=True).start()
            b.go("http://127.0.0.1:%d/index.html" % server.server_port)
            b.wait("return document.getElementById('state').innerText.startsWith('ready')",
                   seconds=60)
            rows = b.js("return hlodPage.model.inputs.map(v => v.name + v.shape)")
            result("folder: the model's facts", rows == ["image1,3,224,224"], rows)
            timed(b, "folder")
            b.shot(out + "/folder")
            known = [p for p in Quiet.asked if not p.startswith(("/index.html", "/runtime/",
                                                                 "/model/", "/favicon.ico"))]
            result("folder: only its own files", known == [], known)

            path = folder + "/many/model/manifest.json"
            with open(path) as f:
                manifest = json.load(f)
            manifest["memory"]["bytes"] = 64
            with open(path, "w") as f:
                json.dump(manifest, f)
            b.go("http://127.0.0.1:%d/index.html?2" % server.server_port)
            text = b.wait("const t = document.getElementById('state').innerText; "
                          "return t.startsWith('HlodError') ? t : ''")
            result("folder: a damaged manifest is said", "damaged manifest" in text, text)
            b.shot(out + "/damaged")
            server.shutdown()
        finally:
            b.stop()
    return result.code()


sys.exit(main())
