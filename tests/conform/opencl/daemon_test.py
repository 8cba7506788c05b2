# SPDX-License-Identifier: Apache-2.0
"""The daemon over an OpenCL device: a network with its weights against ONNX Runtime, a worker that
is killed, a driver that fails.

    daemon_test.py BUILD WORKDIR
"""
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onnxruntime as ort

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "models"))
import daemon  # noqa: E402
import efficientnet  # noqa: E402
import harness  # noqa: E402

build, work = sys.argv[1:3]
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


def report(ok, name, text=""):
    print("%s opencl %s %s" % ("PASS" if ok else "FAIL", name, text), flush=True)


def network(d):
    path = os.path.join(work, "net.onnx")
    efficientnet.build(path)
    x = efficientnet.picture(efficientnet.package_file("skimage/data/chelsea.png"))
    session = ort.InferenceSession(path)
    name = session.get_inputs()[0].name
    want = session.run(None, {name: x})[0]
    c = d.compile(path, {name: x.shape}, device="opencl")
    got, _ = d.run(c["sourceDigest"], {name: x})
    y = next(iter(got.values()))
    err = float(np.abs(y - want).max() / np.abs(want).max())
    same = np.array_equal(np.argsort(-y[0])[:5], np.argsort(-want[0])[:5])
    report(err < 1e-4 and same, "efficientnet-lite0 through the daemon", "error %.2g" % err)


def compile_count(d):
    return d.json("POST", "/v1/executables?device=opencl", COUNT,
                  {"Content-Type": "text/x-hlo"})["digest"]


def count(d, digest, n):
    try:
        got, _ = d.run(digest, {"n": np.array(n, np.int32)}, timeoutMs=60000)
        return int(next(iter(got.values())))
    except daemon.Refused as e:
        return e


def killed(d):
    """kill -9 of the device's worker: its call fails, the next is served by a new process."""
    digest = compile_count(d)
    report(count(d, digest, 5) == 5, "a loop on the device")
    device = next(x for x in d.json("GET", "/v1/devices")["devices"] if x["kind"] == "opencl")
    said = []
    t = threading.Thread(target=lambda: said.append(count(d, digest, 1 << 30)), daemon=True)
    t.start()
    time.sleep(1)
    os.kill(int(device["workerPid"]), signal.SIGKILL)
    t.join(30)
    code = getattr(said[0], "code", said[0]) if said else None
    report(code == 503, "a killed worker's call is UNAVAILABLE", "HTTP %s" % code)
    report(count(d, digest, 7) == 7, "and the next one runs")


def cache(d):
    """What the driver keeps lies in the data folder, nothing in the user's."""
    made = [p for p, _, files in os.walk(os.path.join(d.data, "devices")) if files]
    pocl = "PoCL" in str(d.json("GET", "/v1/devices"))
    strayed = os.path.exists(os.path.join(work, "home", ".cache", "pocl"))
    report(not strayed and (made or not pocl), "the driver's files are in the data folder")


def fails():
    """Codes of a driver's calls as statuses."""
    so = os.path.join(work, "faults.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-D_GNU_SOURCE", "-o", so,
                    os.path.join(HERE, "faults.c"), "-Wl,--no-as-needed", "-l:libOpenCL.so.1"],
                   check=True, timeout=60)

    def says(spec, fault, text):
        p = subprocess.run([build + "/hlo-run", "--device", spec, os.path.join(HERE, "twice.hlo")],
                           capture_output=True, text=True, timeout=100,
                           env=dict(os.environ, OCL_FAULT=fault))
        report(p.returncode and text in p.stderr, "a driver that gives " + (fault or spec),
               "" if text in p.stderr else p.stderr)

    with_so = "opencl:library=" + so
    says(with_so, "clGetPlatformIDs=-1001", "no OpenCL device is here")
    says(with_so, "clBuildProgram=-11", "clBuildProgram gave BUILD_PROGRAM_FAILURE (-11)")
    says(with_so, "clCreateBuffer=-4", "RESOURCE_EXHAUSTED: no device memory for")
    says(with_so, "clEnqueueNDRangeKernel=-5", "gave OUT_OF_RESOURCES (-5)")
    says(with_so, "clEnqueueNDRangeKernel=-2", "UNAVAILABLE: the OpenCL device is lost")
    says(with_so, "clFinish=-14", "clFinish gave EXEC_STATUS_ERROR (-14)")
    says("opencl:library=/nonexistent.so", "", "OpenCL is not installed here")
    says("opencl:device=99", "", "there is no OpenCL device of platform=0:device=99")
    with daemon.Daemon(build, args=["--device=cpu,opencl:library=" + so],
                       env=dict(os.environ, OCL_FAULT="clFinish=-14@12")) as d:
        digest = compile_count(d)
        codes = []
        while len(codes) < 30 and 503 not in codes:
            codes.append(getattr(count(d, digest, 2), "code", 200))
        report(503 in codes, "a lost device is UNAVAILABLE", str(codes))
        end, served = time.time() + 30, False
        while time.time() < end and not served:
            served = count(d, digest, 2) == 2
        report(served and harness.metric(d, "hlod_worker_deaths_total") >= 1,
               "and costs its worker alone")


env = {k: v for k, v in os.environ.items() if k != "POCL_CACHE_DIR"}
env["HOME"] = os.path.join(work, "home")
os.makedirs(env["HOME"])
with daemon.Daemon(build, args=["--device=cpu,opencl"], env=env) as server:
    network(server)
    killed(server)
    cache(server)
fails()
