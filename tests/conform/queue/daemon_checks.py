# SPDX-License-Identifier: Apache-2.0
"""A daemon over a device of a driver's queue (opencl, gl): a network with its weights against ONNX
Runtime, a worker that is killed, a driver that fails. Read by the daemon_test.py of each."""
import os
import signal
import subprocess
import sys
import time

import numpy as np
import onnxruntime as ort

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "models"))
import daemon  # noqa: E402
import efficientnet  # noqa: E402
import harness  # noqa: E402

TWICE = os.path.join(HERE, "twice.hlo")
# Counts to n.
COUNT = b"""HloModule count
cond {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  ROOT l = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  j = s32[] add(i, s32[] constant(1))
  ROOT r = (s32[], s32[]) tuple(j, n)
}
ENTRY e {
  n = s32[] parameter(0)
  t = (s32[], s32[]) tuple(s32[] constant(0), n)
  w = (s32[], s32[]) while(t), condition=cond, body=body
  ROOT o = s32[] get-tuple-element(w), index=0
}
"""


class Checks:
    """kind: of the device; build: of hlod; work: a folder of the test's own."""

    def __init__(self, kind, build, work):
        self.kind, self.build, self.work = kind, build, work

    def report(self, ok, name, text=""):
        print("%s %s %s %s" % ("PASS" if ok else "FAIL", self.kind, name, text), flush=True)

    def network(self, d):
        path = os.path.join(self.work, "net.onnx")
        efficientnet.build(path)
        x = efficientnet.picture(efficientnet.package_file("skimage/data/chelsea.png"))
        session = ort.InferenceSession(path)
        name = session.get_inputs()[0].name
        want = session.run(None, {name: x})[0]
        c = d.compile(path, {name: x.shape}, device=self.kind)
        got, _ = d.run(c["sourceDigest"], {name: x})
        y = next(iter(got.values()))
        err = float(np.abs(y - want).max() / np.abs(want).max())
        same = np.array_equal(np.argsort(-y[0])[:5], np.argsort(-want[0])[:5])
        self.report(err < 1e-4 and same, "efficientnet-lite0 through the daemon",
                    "error %.2g" % err)

    def compile_count(self, d):
        return d.json("POST", "/v1/executables?device=" + self.kind, COUNT,
                      {"Content-Type": "text/x-hlo"})["digest"]

    def count(self, d, digest, n):
        try:
            got, _ = d.run(digest, {"n": np.array(n, np.int32)}, timeoutMs=60000)
            return int(next(iter(got.values())))
        except daemon.Refused as e:
            return e

    def explained(self, d):
        """Compile workers have no driver: they say what runs each step all the same."""
        digest = self.compile_count(d)
        text = d.call("GET", "/v1/executables/%s/stage/plan" % digest)[2].decode()
        self.report("kernel k" in text, "the plan of an executable",
                    "" if "kernel k" in text else text)
        rows = {t["name"]: t for t in d.json("GET", "/v1/targets")["targets"]}
        self.report(rows.get(self.kind, {}).get("compiles") and rows[self.kind].get("executes"),
                    "is among the targets")

    def killed(self, d):
        """kill -9 of the device's worker: its call fails, the next is served by a new process."""
        digest = self.compile_count(d)
        self.report(self.count(d, digest, 5) == 5, "a loop on the device")
        device = next(x for x in d.json("GET", "/v1/devices")["devices"] if x["kind"] == self.kind)
        rest = harness.running(d, {"model": digest, "inputs": [
            {"name": "n", "dtype": "s32", "shape": [], "data": [1 << 30]}]})
        os.kill(int(device["workerPid"]), signal.SIGKILL)
        said = rest()
        self.report("WORKER_LOST" in str(said[-2:]), "a killed worker's call is UNAVAILABLE",
                    str(said))
        self.report(self.count(d, digest, 7) == 7, "and the next one runs")

    def cache(self, d, driver, folder):
        """What the driver (a part of its name) keeps lies in the data folder, nothing in the user's
        folder."""
        made = [p for p, _, files in os.walk(os.path.join(d.data, "devices")) if files]
        named = driver in str(d.json("GET", "/v1/devices"))
        strayed = os.path.exists(os.path.join(self.work, "home", ".cache", folder))
        self.report(not strayed and (made or not named),
                    "the driver's files are in the data folder")

    def faulty(self, source, library):
        """The library that fails on demand, in front of the real one."""
        so = os.path.join(self.work, "faults.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-D_GNU_SOURCE", "-o", so, source,
                        "-Wl,--no-as-needed", "-l:" + library], check=True, timeout=60)
        return so

    def says(self, spec, fault, text, args=(TWICE,), **env):
        """hlo-run fails on the device `spec` and says the text. fault: NAME=VALUE, or ""."""
        name, _, value = fault.partition("=")
        if fault:
            env[name] = value
        p = subprocess.run([self.build + "/hlo-run", "--device", spec, *args],
                           capture_output=True, text=True, timeout=100, env=dict(os.environ, **env))
        ok = p.returncode > 0 and text in p.stderr
        self.report(ok, "a driver that gives " + (value or spec), "" if ok else p.stderr)

    def loses(self, spec, **env):
        """A daemon whose device is lost in a run: that is UNAVAILABLE, later ones are served."""
        with daemon.Daemon(self.build, args=["--device=cpu," + spec],
                           env=dict(os.environ, **env)) as d:
            digest = self.compile_count(d)
            codes = []
            while len(codes) < 30 and 503 not in codes:
                codes.append(getattr(self.count(d, digest, 2), "code", 200))
            self.report(503 in codes, "a lost device is UNAVAILABLE", str(codes))
            end, served = time.time() + 30, False
            while time.time() < end and not served:
                served = self.count(d, digest, 2) == 2
            self.report(served and harness.metric(d, "hlod_worker_deaths_total") >= 1,
                        "and costs its worker alone")

    def daemon(self, without):
        """A daemon over the device, with a home of its own; without: a variable that it must not
        have."""
        env = {k: v for k, v in os.environ.items() if k != without}
        env["HOME"] = os.path.join(self.work, "home")
        os.makedirs(env["HOME"])
        return daemon.Daemon(self.build, args=["--device=cpu," + self.kind], env=env)
