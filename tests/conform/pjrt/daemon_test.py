# SPDX-License-Identifier: Apache-2.0
"""The daemon over a PJRT plugin: a model from ONNX to answer, again in a new daemon without a compile, and plugins that misbehave.

    daemon_test.py BUILD PLUGIN
"""
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models"))
import daemon  # noqa: E402
import zoo  # noqa: E402

build, plugin = sys.argv[1:3]


def report(ok, name, text=""):
    print("%s pjrt %s %s" % ("PASS" if ok else "FAIL", name, text), flush=True)


def model(data):
    path = zoo.ensure("build/models", "mlp")
    x = np.random.default_rng(3).standard_normal((4, 784)).astype(np.float32)
    want = ort.InferenceSession(path).run(None, {"x": x})[0]
    for start in ("first start", "new process, warm cache"):
        with daemon.Daemon(build, data, args=["--device=pjrt", "--pjrt-plugin=" + plugin]) as d:
            c = d.compile(path, {"x": x.shape})
            got, info = d.run(c["sourceDigest"], {"x": x})
            y = next(iter(got.values()))
            err = float(np.abs(y - want).max() / np.abs(want).max())
            cached = bool(c.get("cacheHit"))
            report(err < 1e-5 and cached == (start != "first start"), start, "error %.2g, %s" % (err, "cached" if cached else "compiled"))


def misbehave(so):
    hlo = os.path.join(os.path.dirname(so), "one.hlo")
    with open(hlo, "w") as f:
        f.write("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }\n")
    for how, rc, text in (("null", 5, "gives a table of 0 bytes"), ("size", 5, "gives a table of 24 bytes"), ("version", 5, "speaks version 0.12"),
                          ("slots", 5, "has no Client_Create"), ("error", 5, "no device on this machine"), ("abort", -6, "")):
        p = subprocess.run([build + "/hlo-run", "--device", "pjrt", hlo], capture_output=True, text=True, env=dict(os.environ, HLOD_PJRT_PLUGIN=so, BAD_PLUGIN=how))
        report(p.returncode == rc and text in p.stderr, "plugin that says " + how, "" if text in p.stderr else p.stderr)
    # In the daemon it costs its own worker: the CPU beside it answers.
    for how in ("abort", "hang", "slots"):
        env = dict(os.environ, BAD_PLUGIN=how)
        with tempfile.TemporaryDirectory() as data, daemon.Daemon(build, data, args=["--device=cpu,pjrt", "--pjrt-plugin=" + so], env=env, ready=False) as d:
            end, status = time.time() + 20, 0
            while time.time() < end and status != 200:
                status = d.raw("POST", "/v1/executables?device=cpu", open(hlo, "rb").read(), {"Content-Type": "text/x-hlo"})[0]
                if status != 200:
                    time.sleep(0.2)
            report(status == 200, "daemon beside a plugin that says " + how, "HTTP %d" % status)


with tempfile.TemporaryDirectory() as t:
    model(os.path.join(t, "data"))
    so = os.path.join(t, "bad.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-I.", "-o", so, os.path.join(os.path.dirname(os.path.abspath(__file__)), "bad_plugin.c")], check=True)
    misbehave(so)
