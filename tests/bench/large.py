# SPDX-License-Identifier: Apache-2.0
"""A large file that jax.export wrote: what reading, storing and compiling it takes.

    large.py BUILD [--mb 500]

The model is a stack of products with closed-over matrices of f32, made here twice with other
numbers (a retrained one), each as portable bytecode and as jax.export's file. Printed are MiB of
anonymous memory and of mapped files at their most (looked at every 5 ms) and seconds: of hlo-opt,
which reads and lowers; of `hlo-run --compile 1`; and of a daemon that is sent the file, compiles it
and runs it once: the daemon itself (before, most, after), its compile worker and its device worker.
Status 1 where a promise is broken: a reader or the daemon holds more anonymous memory than a
sixteenth of the file, the folder of the daemon more than one copy of it and a sixteenth, or the
retrained file is compiled again.
"""
import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "models")]
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import memory

MAKE = """
import sys, numpy as np, jax, jax.numpy as jnp
from jax import export
seed, width, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
r = np.random.default_rng(seed)
w = [r.standard_normal((width, width), dtype=np.float32) / width ** 0.5 for _ in range(8)]
def f(x):
    for m in w:
        x = jnp.tanh(x @ m)
    return x
e = export.export(jax.jit(f))(jax.ShapeDtypeStruct((8, width), np.float32))
open(path + ".jax", "wb").write(e.serialize())
open(path + ".bc", "wb").write(e.mlir_module_serialized)
"""


def processes(pid):
    """A process and what it started: pid -> role."""
    found = {pid: "daemon"}
    try:
        for thread in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, thread)) as f:
                for child in f.read().split():
                    with open("/proc/%s/cmdline" % child) as c:
                        words = c.read().split("\0")
                    role = [w[7:] for w in words if w.startswith("--role=")]
                    found[int(child)] = (role or ["other"])[0]
    except OSError:
        pass  # it has ended
    return found


class Watch(threading.Thread):
    """The most anonymous and mapped memory of a process and its children, by role."""

    def __init__(self, pid):
        super().__init__()
        self.pid, self.most, self.over = pid, {}, False
        self.start()

    def run(self):
        while not self.over:
            for pid, role in processes(self.pid).items():
                most = self.most.setdefault(role, [0, 0])
                for k, name in enumerate(("RssAnon", "RssFile")):
                    most[k] = max(most[k], memory.status(pid, name))
            time.sleep(0.005)

    def end(self):
        self.over = True
        self.join()
        return self.most


def tool(command):
    """(seconds, anonymous, mapped)"""
    t = time.perf_counter()
    p = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    w = Watch(p.pid)
    ok = p.wait() == 0
    t, most = time.perf_counter() - t, w.end()["daemon"]
    return (t, *most) if ok else None


def folder(path):
    """MiB of all files below."""
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(path)
               for f in fs) / 2**20


def row(what, seconds, most):
    print("%-34s%8.1f%12.0f%10.0f" % (what, seconds, *most), flush=True)


def tools(build, path, size):
    bad = 0
    for name, words in (("hlo-opt", []), ("hlo-run", ["--compile", "1"])):
        found = tool([os.path.join(build, name), *words, path])
        bad += not found or found[1] > 16 + size / 16
        row("%s %s" % (name, " ".join(words)), *((found[0], found[1:]) if found else (0, (0, 0))))
    return bad


def sent(d, path):
    """(reply, seconds, most memory by role)"""
    w, t = Watch(d.p.pid), time.perf_counter()
    with open(path, "rb") as f:
        made = d.json("POST", "/v1/executables", f,
                      {"Content-Length": str(os.path.getsize(path)),
                       "Content-Type": "application/octet-stream"})
    return made, time.perf_counter() - t, w.end()


def daemon_rows(build, path, other, size, width):
    import daemon
    import numpy as np
    bad = 0
    with daemon.Daemon(build) as d:
        anon = lambda: memory.status(d.p.pid, "Anonymous", "smaps_rollup")
        before = anon()
        made, t, most = sent(d, path)
        row("upload and compile: compile worker", t, most["compile"])
        peak, stored = most["daemon"][0], folder(d.data)
        bad += most["compile"][0] > 16 + size / 16

        w, t = Watch(d.p.pid), time.perf_counter()
        name = made["modelSignature"]["inputs"][0]["name"]
        d.run(made["sourceDigest"], {name: np.ones((8, width), np.float32)})
        t, most = time.perf_counter() - t, w.end()
        row("load and first run: device worker", t, most["device"])
        peak = max(peak, most["daemon"][0])

        again, t, most = sent(d, other)
        hit = again.get("cacheHit") is True
        row("retrained: %s" % ("cache hit" if hit else "COMPILED"), t, most["compile"])
        peak = max(peak, most["daemon"][0])
        print("daemon, anonymous: before %.1f, most %.1f, after %.1f; folder %.0f for one file, "
              "%.0f for two" % (before, peak, anon(), stored, folder(d.data)))
        bad += not hit or peak > before + size / 16 or stored > size * 17 / 16
    return bad


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--mb", type=int, default=500)
    o = a.parse_args()
    width, bad = int((o.mb * 2**20 / 32) ** 0.5), 0
    with tempfile.TemporaryDirectory(prefix="hlod-large-") as tmp:
        one, two = os.path.join(tmp, "one"), os.path.join(tmp, "two")
        for seed, path in enumerate((one, two)):
            subprocess.run([sys.executable, "-c", MAKE, str(seed), str(width), path], check=True)
        for form in (".bc", ".jax"):
            size = os.path.getsize(one + form) / 2**20
            print("%-34s%8s%12s%10s   (seconds; MiB at their most)" % (
                "%s of %.0f MiB" % ("bytecode" if form == ".bc" else "jax.export", size), "s",
                "anonymous", "files"))
            bad += tools(o.build, one + form, size)
            bad += daemon_rows(o.build, one + form, two + form, size, width)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
