# SPDX-License-Identifier: Apache-2.0
"""On a machine with an NVIDIA GPU: the device contract, the operator cases, networks, the daemon
and benches through XLA's CUDA plugin, the OpenCL and OpenGL devices over the driver, and the CPU.

    gpu.py KIT [--out DIR] [--plugin FILE] [--seconds N] [--only SECTION,...] [--nets NAME,...]
           [--precision NAME,...]

KIT: an unpacked kit (bin, lib, src, models). The plugin is that of this Python's JAX unless named.
Prints PASS, FAIL and SKIP lines, and a table at the end (DIR/table.md). A part that the time does
not allow is left out aloud.
"""
import argparse
import concurrent.futures
import glob
import importlib.util
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "models"), os.path.join(HERE, "..", "bench"),
                os.path.join(HERE, "..")]
import gpu_bench  # noqa: E402

STATE = {"pass": 0, "fail": 0}
# Operators whose cases the CUDA plugin does not run, and why.
NOT_HERE = os.path.join(HERE, "gpu_not_here.txt")


def report(ok, name, text=""):
    STATE["pass" if ok else "fail"] += 1
    print("%s gpu %s %s" % ("PASS" if ok else "FAIL", name, text), flush=True)


def skip(name, why):
    print("SKIP gpu %s: %s" % (name, why), flush=True)


class Machine:
    def __init__(self, a):
        self.kit, self.out = os.path.abspath(a.kit), os.path.abspath(a.out)
        self.bin, self.src = self.kit + "/bin", self.kit + "/src"
        self.end = time.monotonic() + a.seconds
        self.plugin = a.plugin or os.environ.get("HLOD_PJRT_PLUGIN") or self.find_plugin()
        self.env = dict(os.environ, HLOD_PJRT_PLUGIN=self.plugin or "", TF_CPP_MIN_LOG_LEVEL="2")
        self.rows, self.nets = [], a.nets.split(",")
        self.precisions = a.precision.split(",")

    @staticmethod
    def find_plugin():
        spec = importlib.util.find_spec("jax_plugins")
        for folder in spec.submodule_search_locations if spec else []:
            for f in sorted(glob.glob(folder + "/xla_cuda*/xla_cuda_plugin.so")):
                return f
        return None

    def left(self, most):
        return max(1, min(most, self.end - time.monotonic()))

    def call(self, *args, most=300, log=None, env=None):
        """(exit code, output); the code is None where the time was up."""
        try:
            p = subprocess.run([self.bin + "/" + args[0], *args[1:]], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace", cwd=self.src,
                               env=env or self.env, timeout=self.left(most))
            code, text = p.returncode, p.stdout
        except subprocess.TimeoutExpired as e:
            code, text = None, (e.stdout or b"").decode(errors="replace")
        if log:
            with open(os.path.join(self.out, log), "a") as f:
                f.write("== %s: %s\n%s\n" % (" ".join(args), code, text))
        return code, text


def machine(m):
    def first(*args):
        try:
            return subprocess.run(args, capture_output=True, text=True, timeout=20).stdout.strip()
        except OSError:
            return ""
    gpu = first("nvidia-smi", "--query-gpu=name,memory.total,driver_version,compute_cap",
                "--format=csv,noheader")
    cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    print("machine: %s | %s, %d processors | %s | %s" % (
        gpu or "no nvidia-smi", cpu.group(1) if cpu else platform.machine(), os.cpu_count(),
        " ".join(platform.libc_ver()), m.plugin or "no plugin"), flush=True)
    flags = [w for w in ("avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16")
             if w in open("/proc/cpuinfo").read()]
    print("processor: " + " ".join(flags), flush=True)


def contract(m):
    code, text = m.call("device_test", "pjrt", most=240, log="contract.log")
    done = len(re.findall(r"\[       OK \]", text))
    bad = sorted(set(re.findall(r"\[  FAILED  \] (\w+)", text)))
    report(code == 0 and done > 20, "device contract",
           "%d tests ended well" % done + ("; not: %s (exit %s)" % (", ".join(bad), code)
                                           if code else ""))


def ops(m, device="pjrt", not_here=NOT_HERE, env=None, only=None, what="operator cases"):
    left_out = {line.split()[0] for line in open(not_here)
                if line.strip() and line[0] != "#"} if not_here else set()
    files = [f for f in sorted(glob.glob(m.src + "/tests/ops/*.hlo"))
             if os.path.basename(f)[:-4] not in left_out and
             (not only or os.path.basename(f)[:-4] in only)]

    def one(f):
        return f, m.call("hlo-run", "--cases", "--device", device, f, most=240, env=env,
                         log="ops_%s.log" % device)
    good = 0
    with concurrent.futures.ThreadPoolExecutor(max(1, (os.cpu_count() or 2) * 3 // 4)) as pool:
        for f, (code, text) in pool.map(one, files):
            good += code == 0
            if code != 0:
                lines = text.strip().splitlines() or ["nothing was printed"]
                report(False, "%s cases of %s (exit %s)" % (device, os.path.basename(f), code),
                       " | ".join(line[:160] for line in lines[-3:]))
    report(good == len(files), "%s: files of %s" % (device, what),
           "%d of %d (%d left out by list)" % (good, len(files), len(left_out)))


def outputs(m, model, device, *more):
    path = "%s/%s_%s.raw" % (m.out, os.path.basename(model), device)
    code, text = m.call("hlo-run", "--device", device, "--out", path, *more, model,
                        log="models.log")
    if code != 0:
        return None, text.strip()[-300:]
    value = np.fromfile(path, np.float32)
    os.remove(path)
    return value, text


def models(m):
    """Each network on the GPU beside hlod's CPU device, the same seeded inputs."""
    for name in ("efficientnet_lite0", "resnet18", "mobilenet_v2", "bert_base", "gpt2"):
        try:
            model = gpu_bench.model(m, name)
        except ImportError as e:
            skip(name, str(e))
            continue
        more = [*gpu_bench.bound(name)]
        if name == "efficientnet_lite0":  # the photograph
            cat = np.load(m.kit + "/models/cat.npy").astype(np.float32)
            cat.tofile(m.out + "/cat.raw")
            more += ["--in", m.out + "/cat.raw"]
        want, _ = outputs(m, model, "cpu", *more)
        for precision, bound in (("default", 2e-5), ("fast", 2e-2)):
            got, text = outputs(m, model, "pjrt", "--precision", precision, *more)
            if want is None or got is None or want.size != got.size:
                report(False, "%s, %s" % (name, precision), text)
                continue
            err = float(np.abs(got - want).max() / np.abs(want).max())
            same = "" if name != "efficientnet_lite0" else ", best classes %s" % (
                list(map(int, np.argsort(-got)[:5])) == list(map(int, np.argsort(-want)[:5])))
            report(err < bound and "False" not in same,
                   "%s, %s, beside the CPU" % (name, precision),
                   "error %.1e of the largest%s" % (err, same))


def devices(d):
    return d.json("GET", "/v1/devices")["devices"]


def served(m):
    """The daemon: a model to its answer, profile, the same from the cache, a killed worker."""
    import daemon
    import harness
    cuda = "cuda" in os.path.basename(m.plugin)  # else XLA:CPU's plugin, to try this test
    kind, name = ("gpu", "cuda") if cuda else ("xla_cpu", "cpu")
    data = os.path.join(m.out, "data")
    model = m.kit + "/models/efficientnet_lite0.onnx"
    cat = np.load(m.kit + "/models/cat.npy").astype(np.float32)
    args = ["--device=%s,cpu" % kind, "--plugins", "%s=%s" % (name, m.plugin), "--timeout-ms",
            "240000"]
    for start in ("compiled", "from the cache"):
        with daemon.Daemon(m.bin, data, args=args, env=m.env) as d:
            try:
                harness.until("the GPU's worker", 120, lambda: all(
                    x["state"] == "ready" for x in devices(d)))
                t = time.monotonic()
                c = d.compile(model, {"image": cat.shape}, device=kind)
                took = time.monotonic() - t
                got, info = d.run(c["sourceDigest"], {"image": cat}, device=kind, profile=True)
                want, _ = d.run(c["sourceDigest"], {"image": cat}, device="cpu")
                a, b = next(iter(got.values())), next(iter(want.values()))
                err = float(np.abs(a - b).max() / np.abs(b).max())
                report(err < 2e-5 and bool(c.get("cacheHit")) == (start != "compiled"),
                       "daemon, " + start, "%.1f s, error %.1e beside its CPU" % (took, err))
                profile = json.dumps(info.get("profile"))
                with open(m.out + "/profile.json", "w") as f:
                    f.write(profile)
                if start != "compiled":
                    lost(m, d, c["sourceDigest"], cat, harness, kind)
            except Exception as e:  # whatever it is, the log says more
                report(False, "daemon, " + start, "%r\n%s" % (e, d.logs()[-3000:]))
            with open(m.out + "/daemon.log", "a") as f:
                f.write(d.logs())


def lost(m, d, source, cat, harness, kind):
    def worker():
        """The process that the log names last as this device's."""
        return int(re.findall(r"role=device pid=(\d+) device=%s:" % kind, d.logs())[-1])
    first = worker()
    before = d.run(source, {"image": cat}, device=kind)[0]
    os.kill(first, 9)
    harness.until("a new worker", 120, lambda: worker() != first and all(
        x["state"] == "ready" for x in devices(d)))
    after = d.run(source, {"image": cat}, device=kind)[0]
    same = all((before[k] == after[k]).all() for k in before)
    report(same, "daemon, after kill -9 of the GPU's worker the same bytes")
    times = []
    for _ in range(30):
        t = time.monotonic()
        d.run(source, {"image": cat}, device=kind)
        times.append((time.monotonic() - t) * 1e3)
    m.rows.append(("EfficientNet-lite0 over REST, new connection", "%.2f" %
                   statistics.median(times), "", "", ""))


def drawn(m, device, env):
    """A device with kernels of ours that the GPU's driver compiles: opencl, gl."""
    code, text = m.call("hlo-run", "--device", device, "--time", "1",
                        glob.glob(m.src + "/tests/conform/*/twice.hlo")[0], most=60, env=env,
                        log=device + ".log")
    if code != 0:
        return skip(device, text.strip()[-300:])
    code, text = m.call("device_test", device, most=120, env=env, log=device + ".log")
    report(code == 0, device + ": device contract", "" if code == 0 else text[-600:])
    ops(m, device, None, env)
    ops(m, device, None, dict(env, HLOD_OPENCL_FORM="tiles", HLOD_GL_FORM="tiles"),
        ("convolution", "dot"), "contractions in tiles")
    gpu_bench.drawn(m, device, env, report)


def opencl(m):
    """Over the driver's OpenCL, where it has one: that one, whatever else is installed."""
    env = dict(m.env)
    found = glob.glob("/usr/local/nvidia/lib*/libnvidia-opencl.so.1") + glob.glob(
        "/usr/lib/x86_64-linux-gnu/libnvidia-opencl.so.1")
    if found:
        os.makedirs(m.out + "/vendors", exist_ok=True)
        with open(m.out + "/vendors/nvidia.icd", "w") as f:
            f.write(found[0] + "\n")
        env["OCL_ICD_VENDORS"] = m.out + "/vendors"
    drawn(m, "opencl", env)


def gl(m):
    """Over the driver's OpenGL ES; the kit brings libglvnd, which finds it, where there is none."""
    env = dict(m.env)
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    if "libEGL.so.1 " not in known:
        env["LD_LIBRARY_PATH"] = m.kit + "/lib/glvnd:" + env.get("LD_LIBRARY_PATH", "")
    found = glob.glob("/usr/share/glvnd/egl_vendor.d/*nvidia.json") + glob.glob(
        "/usr/local/nvidia/share/glvnd/egl_vendor.d/*nvidia.json")
    if found:
        env["__EGL_VENDOR_LIBRARY_FILENAMES"] = found[0]
    drawn(m, "gl", env)


def cpu(m):
    """The CPU device: its processor may be another kind than those that the tests ran on."""
    code, text = m.call("device_test", "cpu", most=120, log="cpu.log")
    report(code == 0, "CPU device contract", "" if code == 0 else text[-600:])
    ops(m, "cpu", None)


# Those joined by + run side by side.
SECTIONS = {"contract": contract, "models": models, "served": served, "bench": gpu_bench.bench,
            "training": gpu_bench.trainings, "ops": ops, "opencl": opencl, "gl": gl, "cpu": cpu,
            "cpu-bench": gpu_bench.cpu}
ORDER = "served,models,contract+ops+opencl+gl+cpu,bench,training,cpu-bench"


def main():
    a = argparse.ArgumentParser()
    a.add_argument("kit")
    a.add_argument("--only", default=ORDER,
                   help="sections by commas; those joined by + side by side")
    a.add_argument("--out", default="gpu-out")
    a.add_argument("--plugin")
    a.add_argument("--nets", default=",".join(gpu_bench.NETS), help="of the bench, NAME[@BATCH]")
    a.add_argument("--precision", default="default,fast", help="of the bench")
    a.add_argument("--seconds", type=float, default=560)
    a = a.parse_args()
    os.makedirs(a.out, exist_ok=True)
    m = Machine(a)
    machine(m)
    if not m.plugin:
        skip("all", "no CUDA plugin of PJRT: pip install jax[cuda13], or --plugin FILE")
        return 0
    written = gpu_bench.write_models(m)  # meanwhile
    for names in a.only.split(","):
        if m.end - time.monotonic() < 10:
            skip(names, "no time is left")
            continue
        t = time.monotonic()
        if any(n in names for n in ("models", "bench", "training", "opencl", "gl")):
            written.wait()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(lambda n: SECTIONS[n](m), names.split("+")))
        print("-- %s: %.0f s" % (names, time.monotonic() - t), flush=True)
    written.kill()
    lines = gpu_bench.table(m.rows)
    print("\n".join(lines), flush=True)
    with open(os.path.join(m.out, "table.md"), "w") as f:
        f.write("\n".join(lines) + "\n")
    print("%d passed, %d failed" % (STATE["pass"], STATE["fail"]), flush=True)
    return STATE["fail"] > 0


if __name__ == "__main__":
    sys.exit(main())
