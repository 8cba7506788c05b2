#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The models of unseen.py and unseen_families.py against ONNX Runtime on every target: exported
and run in Node, in headless Chromium by WebGPU and WebGL2 over the CPU (where chromedriver is),
and on devices.

    unseen_models.py BUILD [--models REGEX] [--on node,webgpu,webgl]

A line for each, PASS, FAIL or SKIP; `N passed, N failed` last."""
import argparse
import http.server
import itertools
import os
import re
import shutil
import sys
import tempfile
import threading

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]
import gpu_models as pages  # noqa: E402
import packages as node  # noqa: E402
import unseen  # noqa: E402
import unseen_families  # noqa: E402

zoo = pages.models
BOUND = 2e-5, 5e-3  # of the largest magnitude: f32 and wider; f16


class Failed(Exception):
    pass


def compare(model, want, got):
    worst = 0.0
    if list(want) != list(got):
        raise Failed("outputs %s, expected %s" % (list(got), list(want)))
    for name, w in want.items():
        g = np.asarray(got[name])
        if g.dtype != w.dtype or g.shape != w.shape:
            raise Failed("%s: %s%s, expected %s%s" % (name, g.dtype, g.shape, w.dtype, w.shape))
        if w.dtype.kind != "f":
            if not (g == w).all():
                raise Failed("%s: %s, expected %s" % (name, g, w))
            continue
        error = zoo.difference(g, w)
        if error > unseen_families.BOUNDS.get(model, BOUND[w.dtype == np.float16]):
            raise Failed("%s: error %.3g" % (name, error))
        worst = max(worst, error)
    return "error %.2g" % worst


def in_node(build, path, inputs, folder):
    n = node.Node(build, path, folder, node.bindings(path, inputs))
    n.tensors(inputs.values())
    return n.run()[0]


class Browser:
    def __init__(self, backend):
        self.backend = backend
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), pages.Files)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        flags = {"webgpu": pages.browser.WEBGPU, "webgl": pages.browser.WEBGL}[backend]
        self.browser, self.n = pages.browser.Browser(flags=flags), 0

    def __call__(self, build, path, inputs, folder):
        n = node.Node(build, path, folder, ["--backend", self.backend,
                                            *node.bindings(path, inputs)])
        n.tensors(inputs.values())
        pages.Files.folder, self.n = folder, self.n + 1
        self.browser.go("http://127.0.0.1:%d/?%d#%s" % (self.server.server_port, self.n,
                                                        self.backend))
        got = self.browser.wait("return globalThis.ended", seconds=120)
        if "error" in got:
            raise Failed(got["error"])
        return {v["name"]: np.fromfile(os.path.join(folder, "out%d.bin" % k),
                                       node.TYPES[v["dtype"]]).reshape(v["shape"])
                for k, v in enumerate(got["outputs"])}

    def stop(self):
        self.browser.stop()
        self.server.shutdown()


def refusal(build, path, folder, words):
    try:
        node.Node(build, path, folder)
    except (node.Refused, RuntimeError) as e:
        if words not in str(e):
            raise Failed("not told of %r: %s" % (words, e)) from e
        return str(e)
    raise Failed("it was exported")


def one(build, run, row):
    name, model, inputs, words = row
    inputs = {k: np.asarray(v) for k, v in inputs.items()}
    with tempfile.TemporaryDirectory(prefix="hlod-unseen-") as folder:
        path = os.path.join(folder, "model.onnx")
        onnx.save(model, path)
        if words:
            return refusal(build, path, folder, words)
        s = zoo.session(path)
        read = {i.name for i in s.get_inputs()}
        want = dict(zip([o.name for o in s.get_outputs()],
                        s.run(None, {k: v for k, v in inputs.items() if k in read})))
        return compare(name, want, run(build, path, inputs, folder))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--models", default=".")
    a.add_argument("--on", default="node")
    o = a.parse_args()
    counts = {True: 0, False: 0}
    for on in o.on.split(","):
        tool = "node" if on == "node" else "chromedriver"
        if not shutil.which(tool):
            print("SKIP unseen models, %s: no %s" % (on, tool))
            continue
        run = in_node if on == "node" else Browser(on)
        for row in itertools.chain(unseen.models(), unseen_families.models()):
            if not re.search(o.models, row[0]):
                continue
            try:
                ok, text = True, one(o.build, run, row)
            except Exception as e:  # ONNX Runtime's and the browser's too
                ok, text = False, str(e)
            counts[ok] += 1
            print("%s %s, %s: %s" % ("PASS" if ok else "FAIL", row[0], on,
                                     text.replace("\n", "; ")[:600]), flush=True)
        if on != "node":
            run.stop()
    print("%d passed, %d failed" % (counts[True], counts[False]))
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main())
