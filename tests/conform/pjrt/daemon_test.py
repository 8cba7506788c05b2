# SPDX-License-Identifier: Apache-2.0
"""The daemon over a PJRT plugin: a model from ONNX to answer, again in a new daemon without a
compile, and plugins that misbehave.

    daemon_test.py BUILD PLUGIN
"""
import json
import os
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime as ort

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models"))
import daemon  # noqa: E402
import harness  # noqa: E402
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
            report(err < 1e-5 and cached == (start != "first start"), start,
                   "error %.2g, %s" % (err, "cached" if cached else "compiled"))


# n steps of 0.9999999 x + 1.
COUNT = b"""HloModule count, input_output_alias={ {0}: (0, {}, may-alias) }
cond {
  p = (s64[], f32[1000], s64[]) parameter(0)
  i = s64[] get-tuple-element(p), index=0
  n = s64[] get-tuple-element(p), index=2
  ROOT l = pred[] compare(i, n), direction=LT
}
body {
  p = (s64[], f32[1000], s64[]) parameter(0)
  i = s64[] get-tuple-element(p), index=0
  x = f32[1000] get-tuple-element(p), index=1
  n = s64[] get-tuple-element(p), index=2
  j = s64[] add(i, s64[] constant(1))
  f = f32[1000] broadcast(f32[] constant(0.9999999)), dimensions={}
  g = f32[1000] broadcast(f32[] constant(1)), dimensions={}
  y = f32[1000] multiply(x, f)
  z = f32[1000] add(y, g)
  ROOT r = (s64[], f32[1000], s64[]) tuple(j, z, n)
}
ENTRY e {
  x = f32[1000] parameter(0)
  n = s64[] parameter(1)
  t = (s64[], f32[1000], s64[]) tuple(s64[] constant(0), x, n)
  w = (s64[], f32[1000], s64[]) while(t), condition=cond, body=body
  y = f32[1000] get-tuple-element(w), index=1
  ROOT o = (f32[1000]) tuple(y)
}
"""


def counting(d, digest):
    zero = np.zeros(1000, np.float32)

    def count(n, **more):
        got, info = d.run(digest, {"x": zero, "n": np.int64(n)}, **more)
        return next(iter(got.values()))

    def late(n, within_ms, x=None, **more):
        """A run that takes so long at least, whose deadline passes while the device has it."""
        x = x or {"dtype": "f32", "shape": [1000], "data": [0] * 1000}
        harness.expires_at_work(d, {"model": digest, **more, "inputs": [
            {"name": "x", **x}, {"name": "n", "dtype": "s64", "shape": [], "data": [n]}]},
                                within_ms)

    return count, late


def expired():
    """A run past its deadline costs the worker nothing: drain_ms is far beyond what is left of it,
    however slow this machine becomes."""
    with daemon.Daemon(build,
                       args=["--device=xla", "--plugins", "xla=%s:drain_ms=120000" % plugin]) as d:
        c = d.json("POST", "/v1/executables", COUNT, {"Content-Type": "text/x-hlo"})
        count, late = counting(d, c["digest"])
        report(np.array_equal(count(3), [3] * 1000) or abs(count(3)[0] - 3) < 1e-5,
               "a loop on the device")
        times = []  # the least: one of them may have waited for other work of this machine
        for _ in range(4):
            start = time.time()
            count(100000)
            times.append(time.time() - start)
        second = int(100000 / min(times))
        start = time.time()
        late(4 * second, 4000)
        answered = time.time()
        y = count(3)  # waits for what is left of the one before
        left = time.time() - answered
        report(left > 0.05, "a run past its deadline",
               "after %.2f s, %.2f s before its end" % (answered - start, left))
        report(abs(y[0] - 3) < 1e-5 and harness.metric(d, "hlod_worker_deaths_total") == 0,
               "costs no worker")
        handle = d.json("POST", "/v1/buffers",
                        json.dumps({"inputs": [{"name": "x", "dtype": "f32", "shape": [1000],
                                                "data": [0] * 1000}]}))["buffers"][0]["handle"]

        def donated(n, **more):
            body = {"model": c["digest"], "keep": ["*"],
                    "inputs": [{"name": "x", "handle": handle, "donate": True},
                               {"name": "n", "dtype": "s64", "shape": [], "data": [n]}],
                    "options": more}
            status, _, text = d.raw("POST", "/v1/run", json.dumps(body),
                                    {"Accept": "application/json",
                                     "Content-Type": "application/json"})
            return status, json.loads(text)

        late(4 * second, 4000, {"handle": handle, "donate": True}, keep=["*"])
        again, why = donated(3)
        report(again == 400 and why.get("reason") == "BUFFER_DONATED",
               "a donated buffer that an expired run took is dead", "HTTP %s %s" % (again, why))
        report(abs(count(3)[0] - 3) < 1e-5, "and the next one runs")
    endless()


def endless():
    """A run past its deadline that never ends costs the worker, after drain_ms."""
    with daemon.Daemon(build,
                       args=["--device=xla", "--plugins", "xla=%s:drain_ms=1000" % plugin]) as d:
        c = d.json("POST", "/v1/executables", COUNT, {"Content-Type": "text/x-hlo"})
        count, late = counting(d, c["digest"])
        late(1 << 60, harness.FOREVER_MS)
        end = time.time() + 120
        while harness.metric(d, "hlod_worker_deaths_total") == 0 and time.time() < end:
            time.sleep(0.1)
        report(harness.metric(d, "hlod_worker_deaths_total") == 1,
               "what never ends costs the worker, with nobody asking")
        report(abs(count(3)[0] - 3) < 1e-5, "and the one after it runs")


def misbehave(so):
    hlo = os.path.join(os.path.dirname(so), "one.hlo")
    with open(hlo, "w") as f:
        f.write("HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }\n")
    for how, rc, text in (
        ("null", 5, "gives a table of 0 bytes"), ("size", 5, "gives a table of 24 bytes"),
        ("version", 5, "speaks version 0.12"), ("slots", 5, "has no Client_Create"),
        ("error", 5, "no device on this machine"), ("abort", -6, "")):
        p = subprocess.run([build + "/hlo-run", "--device", "pjrt", hlo], capture_output=True,
                           text=True, env=dict(os.environ, HLOD_PJRT_PLUGIN=so, BAD_PLUGIN=how))
        report(p.returncode == rc and text in p.stderr, "plugin that says " + how,
               "" if text in p.stderr else p.stderr)
    # In the daemon it costs its own worker: the CPU beside it answers.
    for how in ("abort", "hang", "slots"):
        env = dict(os.environ, BAD_PLUGIN=how)
        with tempfile.TemporaryDirectory() as data, daemon.Daemon(
            build, data, args=["--device=cpu,pjrt", "--pjrt-plugin=" + so], env=env,
            ready=False) as d:
            end, status = time.time() + harness.PATIENCE, 0
            while time.time() < end and status != 200:
                status = d.raw("POST", "/v1/executables?device=cpu", open(hlo, "rb").read(),
                               {"Content-Type": "text/x-hlo"})[0]
                if status != 200:
                    time.sleep(0.2)
            report(status == 200, "daemon beside a plugin that says " + how, "HTTP %d" % status)


with tempfile.TemporaryDirectory() as t:
    model(os.path.join(t, "data"))
    expired()
    so = os.path.join(t, "bad.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-I.", "-o", so,
                    os.path.join(os.path.dirname(os.path.abspath(__file__)), "bad_plugin.c")],
                   check=True)
    misbehave(so)
