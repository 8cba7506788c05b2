# SPDX-License-Identifier: Apache-2.0
"""hlo train over a daemon: a network learns handwritten digits and serves; losses against JAX from
the same start and order; training that goes on after the daemon, a worker or hlo itself was killed
ends with the same bytes; errors that name the place.
   train.py --build DIR [--kills N]   N: only that, with N kills at random moments"""
import argparse
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "models")]
import digits  # noqa: E402
from harness import Daemon, Results  # noqa: E402

os.environ["JAX_PLATFORMS"] = "cpu"
ROWS = ["-d", "image=@image.npy", "-d", "label=@label.npy"]
LOSS = ["--loss", "softmax-cross-entropy"]


def jax_losses(steps, batch):
    """Losses of the first steps of Adam, rows in their order."""
    import jax
    import jax.numpy as jnp
    import optax
    from jax import lax
    x, y = digits.rows()

    def scores(p, x):
        for k in "12":
            x = lax.conv_general_dilated(x, p["conv%s.weight" % k], (1, 1), "SAME",
                                         dimension_numbers=("NCHW", "OIHW", "NCHW"))
            x = jax.nn.relu(x + p["conv%s.bias" % k][:, None, None])
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        x = jax.nn.relu(x.reshape(len(x), -1) @ p["hidden.weight"].T + p["hidden.bias"])
        return x @ p["scores.weight"].T + p["scores.bias"]

    @jax.jit
    def step(p, s, x, y):
        def loss(p):
            return optax.softmax_cross_entropy_with_integer_labels(scores(p, x), y).mean()
        value, g = jax.value_and_grad(loss)(p)
        u, s = tx.update(g, s, p)
        return value, optax.apply_updates(p, u), s

    tx, p, out = optax.adam(1e-3), digits.weights(), []
    s, n = tx.init(p), (len(x) - digits.HELD) // batch
    for k in range(steps):
        rows = slice(k % n * batch, (k % n + 1) * batch)
        value, p, s = step(p, s, x[rows], y[rows])
        out.append(float(value))
    return np.array(out)


class Case:
    def __init__(self, build):
        self.build, self.results = build, Results()
        self.start()
        digits.write(self.d.dir)

    def start(self, data=None):
        self.d = Daemon(self.build + "/hlod", self.build + "/hlod-worker", data=data)

    def env(self):
        return {**os.environ, "HLOD_ADDR": "%s:%d" % self.d.addr, "TMPDIR": self.d.dir}

    def hlo(self, name, *words, rc=0, out="", err=""):
        p = subprocess.run([self.build + "/hlo", *words], env=self.env(), capture_output=True,
                           text=True, timeout=300, cwd=self.d.dir)
        return self.results.command("train: " + name, p, rc, out, err).stdout

    def read(self, name):
        return open(os.path.join(self.d.dir, name), "rb").read()

    def check(self, name, ok, why=""):
        self.results("train: " + name, ok, str(why))


def learns(c):
    out = c.hlo("learns", "train", "digits.onnx", *LOSS, *ROWS, "--validate",
                "image=@held_image.npy", "--validate", "label=@held_label.npy", "--optimizer",
                "adam", "--batch", "64", "--epochs", "6", "-o", "trained.onnx", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    steps = [e for e in events if e["event"] == "step"]
    held = [e for e in events if e["event"] == "validation"]
    c.check("an event a step", [e["step"] for e in steps] == list(range(1, 133)), str(steps[-1:]))
    c.check("97% of what was held back", len(held) == 6 and held[-1]["accuracy"] >= 0.97, str(held))
    c.hlo("the result serves", "run", "trained.onnx", "-i", "image=@held_image.npy", "-o", "y.npy")
    y, t = np.load(os.path.join(c.d.dir, "y.npy")), np.load(os.path.join(c.d.dir, "held_label.npy"))
    got = float((y.argmax(1) == t).mean())
    c.check("and is as good", abs(got - held[-1]["accuracy"]) < 1e-6, str(got))
    a, b = (onnx.load(os.path.join(c.d.dir, n)) for n in ("digits.onnx", "trained.onnx"))
    differ = [not np.array_equal(numpy_helper.to_array(x), numpy_helper.to_array(y))
              for x, y in zip(a.graph.initializer, b.graph.initializer)]
    del a.graph.initializer[:], b.graph.initializer[:]
    c.check("all weights are new, all else is as it was", all(differ) and a == b, str(differ))
    left = json.loads(c.hlo("buffers", "buffers", "--json")).get("buffers")
    c.check("no buffer is left", not left, str(left))


def stops_early(c):
    """Where what is held back grows no better: there it ends, with the best weights."""
    out = c.hlo("ends early", "train", "digits.onnx", *LOSS, "-d", "image=@image.npy", "-d",
                "label=@label.npy", "--validate", "image=@held_image.npy", "--validate",
                "label=@held_label.npy", "--optimizer", "adam:rate=3e-2", "--batch", "64",
                "--epochs", "60", "--patience", "2", "-o", "best.onnx", "--json")
    held = [e["loss"] for e in map(json.loads, out.splitlines()) if e["event"] == "validation"]
    best = int(np.argmin(held))
    c.check("two epochs after the best", len(held) == best + 3 and len(held) < 60, str(held))
    c.hlo("the best", "run", "best.onnx", "-i", "image=@held_image.npy", "-o", "y.npy")
    y = np.load(os.path.join(c.d.dir, "y.npy")).astype(np.float64)
    t = np.load(os.path.join(c.d.dir, "held_label.npy"))
    y -= y.max(1, keepdims=True)
    loss = (np.log(np.exp(y).sum(1)) - y[np.arange(len(t)), t]).mean()
    c.check("is what is written", abs(loss - held[best]) < 1e-4 * max(1, held[best]), str(loss))


def in_parts(c):
    """Rows that come to the device in parts: it learns as well, and goes on from a checkpoint with
    the part that is due."""
    words = ["train", "digits.onnx", *LOSS, *ROWS, "--optimizer", "adam", "--batch", "50",
             "--window", "500", "--json"]
    held = ["--validate", "image=@held_image.npy", "--validate", "label=@held_label.npy"]
    out = c.hlo("in parts", *words, *held, "--epochs", "6", "-o", "p.onnx")
    events = [json.loads(line) for line in out.splitlines()]
    held = [e["accuracy"] for e in events if e["event"] == "validation"]
    steps = [e["step"] for e in events if e["event"] == "step"]
    c.check("three parts of ten steps an epoch", steps == list(range(1, 181)) and len(held) == 6,
            str(steps[-1:]))
    c.check("97% in parts", held[-1] >= 0.97, str(held))
    c.hlo("45 steps", *words, "--steps", "45", "-o", "whole.safetensors")
    c.hlo("26 steps", *words, "--steps", "26", "--checkpoint", "parts.safetensors")
    c.hlo("the others", *words, "--steps", "45", "--resume", "parts.safetensors", "-o",
          "rest.safetensors")
    c.check("the same bytes from parts", c.read("whole.safetensors") == c.read("rest.safetensors"))
    c.hlo("a part below a batch", *words, "--window", "20", "-o", "n.onnx", rc=3,
          err="20 rows are fewer than a batch of 50")
    out = c.hlo("in parts, by the server", *words, "--steps", "45", "-o", "job.onnx",
                "--checkpoint", "job.safetensors", "--job")
    steps = [e["step"] for e in map(json.loads, out.splitlines()) if e["event"] == "step"]
    c.check("all steps of a job are told", steps == list(range(1, 46)), str(steps))
    c.hlo("45 steps, as a model", *words, "--steps", "45", "-o", "whole.onnx")
    c.check("the server's bytes, in parts", c.read("whole.onnx") == c.read("job.onnx"))
    c.hlo("a job goes on in its part", *words, "--steps", "45", "--resume", "parts.safetensors",
          "--job", "-o", "rest.onnx")
    c.check("the server's bytes from parts", c.read("whole.onnx") == c.read("rest.onnx"))
    bad = np.load(c.d.dir + "/label.npy")
    bad[1400] = 11
    np.save(c.d.dir + "/bad.npy", bad)
    c.hlo("a label of a late part", "train", "digits.onnx", *LOSS, "-d", "image=@image.npy", "-d",
          "label=@bad.npy", "--window", "500", "--job", "-o", "n.onnx", rc=5,
          err="label: element 1400 is 11, there are classes 0 to 9")
    left = json.loads(c.hlo("buffers after parts", "buffers", "--json")).get("buffers")
    c.check("no buffer is left of them", not left, str(left))


def as_jax(c):
    out = c.hlo("in order", "train", "digits.onnx", *LOSS, *ROWS, "--optimizer", "adam", "--batch",
                "32", "--steps", "50", "--no-shuffle", "-o", "o.safetensors", "--json")
    got = np.array([e["loss"] for e in map(json.loads, out.splitlines()) if e["event"] == "step"])
    want = jax_losses(50, 32)
    worst = np.abs(got - want).max() if got.shape == want.shape else np.inf
    c.check("50 losses equal JAX's to 1e-4", worst <= 1e-4, str(worst))


def read_line(pipe):
    """As readline, with nothing taken from the pipe that is behind it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(pipe.fileno(), 1)):
        line += byte
    return line


def resumes(c, kills=0):
    """Killed at a checkpoint or two, each time another process, then to the end."""
    steps = str(max(240, 60 * kills))
    words = ["train", "digits.onnx", *LOSS, *ROWS, "--optimizer", "adamw", "--schedule",
             "cosine:steps=" + steps, "--batch", "64", "--steps", steps, "--seed", "3", "--set",
             "clip=1", "--json"]
    c.hlo("undisturbed", *words, "-o", "whole.safetensors")
    state = ["--checkpoint", "state.safetensors", "--every", "10"]
    again = []
    for victim in (["daemon", "worker", "hlo"] * max(kills, 1))[:kills or 3]:
        p = subprocess.Popen([c.build + "/hlo", *words, *state, *again], env=c.env(), cwd=c.d.dir,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # Of what it says little is read ahead: it waits for its reader, which may stand still.
        fcntl.fcntl(p.stdout, fcntl.F_SETPIPE_SZ, 4096)
        seen, late = 0, time.monotonic() + random.random() * 0.6
        for line in iter(lambda: read_line(p.stdout), b""):
            seen += json.loads(line)["event"] == "checkpoint"
            if seen >= 3 and not kills or kills and seen and time.monotonic() > late:
                break
        if victim == "hlo":
            p.kill()
        elif victim == "daemon":
            c.d.kill()
        else:
            pids = subprocess.run(["pgrep", "-P", str(c.d.p.pid)], capture_output=True, text=True)
            for pid in pids.stdout.split():
                os.kill(int(pid), signal.SIGKILL)
        p.communicate(timeout=60)
        c.check("a killed %s is told" % victim, p.returncode not in (0, None), str(p.returncode))
        if victim == "daemon":
            c.start(data=c.d.dir)
        again = ["--resume", "state.safetensors"]
    c.hlo("goes on", *words, *state, *again, "-o", "parts.safetensors")
    c.check("the same bytes", c.read("whole.safetensors") == c.read("parts.safetensors"))


def ends_in_order(c):
    """Ended by a signal: what it has is written, its folder removed."""
    for k, sig in enumerate((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)):
        temporary, out = os.path.join(c.d.dir, "tmp%d" % k), "ended%d.onnx" % k
        os.mkdir(temporary)
        p = subprocess.Popen([c.build + "/hlo", "train", "digits.onnx", *LOSS, *ROWS, "--batch",
                              "64", "--steps", "1000000", "--json", "-o", out],
                             env={**c.env(), "TMPDIR": temporary}, cwd=c.d.dir, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))
        p.stdout.readline()
        p.send_signal(sig)
        p.communicate(timeout=60)
        c.check("ended by %s" % sig.name, p.returncode == 130 and not os.listdir(temporary) and
                os.path.getsize(os.path.join(c.d.dir, out)) > 1000,
                "%s %s" % (p.returncode, os.listdir(temporary)))


def as_a_job(c):
    """The server trains: the same bytes, the same lines; who waits may go and come back."""
    words = ["train", "digits.onnx", *LOSS, *ROWS, "--optimizer", "adam", "--batch", "64",
             "--validate", "image=@held_image.npy", "--validate", "label=@held_label.npy"]
    by_hlo = c.hlo("by hlo", *words, "--epochs", "2", "-o", "hlo.onnx", "--json")
    by_job = c.hlo("by the server", *words, "--epochs", "2", "-o", "job.onnx", "--checkpoint",
                   "job.safetensors", "--job", "--json")
    c.check("the server's bytes", c.read("hlo.onnx") == c.read("job.onnx"))

    def told(text, event):
        return [{k: v for k, v in e.items() if k not in ("ms", "examples_per_s")}
                for e in map(json.loads, text.splitlines()) if e["event"] == event]
    for event in "step", "validation":
        c.check("the server's %ss" % event, told(by_hlo, event) == told(by_job, event),
                told(by_job, event)[:2])
    c.check("its checkpoint", told(by_job, "checkpoint")[-1]["step"] == 44)
    c.hlo("a job's state, taken up here", *words, "--epochs", "3", "--resume", "job.safetensors",
          "-o", "a.onnx")
    c.hlo("and there", *words, "--epochs", "3", "--resume", "job.safetensors", "--job", "-o",
          "b.onnx")
    c.check("both go on alike", c.read("a.onnx") == c.read("b.onnx"))

    job = c.hlo("left alone", *words, "--steps", "3000", "--detach", out=r"^\d+\.1\n$").strip()
    p = subprocess.Popen([c.build + "/hlo", "train", "--attach", job, "-o", "c.onnx", "--json"],
                         env=c.env(), cwd=c.d.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                         text=True)
    for line in p.stdout:
        if json.loads(line)["event"] == "step":
            break
    p.send_signal(signal.SIGINT)
    _, err = p.communicate(timeout=30)
    c.check("interrupted, it says how to come back", p.returncode == 130 and
            "hlo train --attach %s" % job in err, (p.returncode, err))
    c.hlo("it goes on", "jobs", "get", job, out=r"running .*step \d+ of 3000")
    c.hlo("until it is ended", "jobs", "cancel", job)
    c.hlo("which is told", "train", "--attach", job, "-o", "c.onnx", rc=5, err="cancelled")
    c.hlo("a job's error", "train", "digits.onnx", "--loss", "hinge", *ROWS, "--job", "-o",
          "n.onnx", rc=5, err="no loss is called 'hinge'")
    c.hlo("a job gives a model", *words, "--job", "-o", "n.safetensors", rc=2, err="gives a model")
    c.hlo("detached, with a file", *words, "--detach", "-o", "n.onnx", rc=2, err="only starts")
    for _ in range(40):  # until the run that was cancelled has ended
        left = json.loads(c.hlo("buffers after jobs", "buffers", "--json")).get("buffers", [])
        left = [b for b in left if b["leaseMs"] == 3600000]  # not of an hlo that was killed
        if not left:
            break
        time.sleep(0.5)
    c.check("no buffer is left of jobs", not left, str(left))


def in_a_suite(c):
    """hlo submit: two ways to train one model, of which one fails by its words."""
    suite = """suite: two
models: [digits.onnx]
inputs:
  - name: all
    values: {image: "@image.npy", label: "@label.npy"}
train:
  loss: softmax-cross-entropy
  optimizer: adam
  batch: 64
  epochs: 2
  settings: [clip=1]
  validation: {image: "@held_image.npy", label: "@held_label.npy"}
"""
    path = c.d.dir + "/suite.yaml"
    open(path, "w").write(suite)
    c.hlo("a suite", "submit", "suite.yaml", "--wait", out="1 jobs, 1 passed")
    jobs = json.loads(c.hlo("its job", "jobs", "ls", "--json"))["jobs"]
    job = next(j for j in jobs if j["suiteName"] == "two")
    c.hlo("its model", "train", "--attach", job["id"], "-o", "suite.onnx")
    c.hlo("the same by hlo", "train", "digits.onnx", *LOSS, *ROWS, "--optimizer", "adam",
          "--batch", "64", "--epochs", "2", "--set", "clip=1", "-o", "alone.onnx")
    c.check("a suite: the same bytes", c.read("suite.onnx") == c.read("alone.onnx"))
    open(path, "w").write(suite.replace("batch:", "bach:"))
    c.hlo("a word that is none", "submit", "suite.yaml", rc=2, err=r"suite.yaml:\d+: no key 'bach'")
    open(path, "w").write(suite.replace("clip=1", "batch=1"))
    c.hlo("a setting that has a key", "submit", "suite.yaml", rc=3, err="setting 'batch=1'")


def attention(path, batch):
    """Two heads over rows of six: with a batch by name, or of one, in its shapes too."""
    r = np.random.default_rng(5)
    shapes = ([[0, 6, 2, 4], [-1, 6, 4], [-1, 2, 6, 4], [0, -1]] if batch == "N" else
              [[1, 6, 2, 4], [2, 6, 4], [1, 2, 6, 4], [1, -1]])
    node = onnx.helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["q"]), node("Reshape", ["q", "s0"], ["heads"]),
             node("Transpose", ["heads"], ["front"], perm=[0, 2, 1, 3]),
             node("Reshape", ["front", "s1"], ["merged"]),
             node("Transpose", ["merged"], ["turned"], perm=[0, 2, 1]),
             node("MatMul", ["merged", "turned"], ["a"]), node("Softmax", ["a"], ["p"], axis=-1),
             node("MatMul", ["p", "merged"], ["v"]), node("Reshape", ["v", "s2"], ["apart"]),
             node("Reshape", ["apart", "s3"], ["flat"]), node("MatMul", ["flat", "u"], ["y"])]
    inits = [numpy_helper.from_array(r.normal(size=(8, 8)).astype(np.float32), "w"),
             numpy_helper.from_array(r.normal(size=(48, 3)).astype(np.float32), "u")]
    inits += [numpy_helper.from_array(np.array(s), "s%d" % k) for k, s in enumerate(shapes)]
    value = onnx.helper.make_tensor_value_info
    g = onnx.helper.make_graph(nodes, "g", [value("x", 1, (batch, 6, 8))],
                               [value("y", 1, (batch, 3))], inits)
    onnx.save(onnx.helper.make_model(g, opset_imports=[onnx.helper.make_opsetid("", 17)],
                                     ir_version=8), path)


def fixed_batch(c):
    """A model that was exported for one row learns from batches, as the same with a free size."""
    r = np.random.default_rng(6)
    np.save(c.d.dir + "/x.npy", r.normal(size=(64, 6, 8)).astype(np.float32))
    np.save(c.d.dir + "/t.npy", r.integers(0, 3, 64))
    for name, batch in ("free", "N"), ("fixed", 1):
        attention(c.d.dir + "/%s.onnx" % name, batch)
        for job in [], ["--job"]:
            c.hlo("a %s batch%s" % (name, " in a job" * bool(job)), "train", name + ".onnx", *LOSS,
                  "-d", "x=@x.npy", "-d", "label=@t.npy", "--optimizer", "adam", "--batch", "16",
                  "--epochs", "3", "-o", "%s%d.onnx" % (name, bool(job)), *job)
    w = [numpy_helper.to_array(i).tobytes() for n in ("free0", "free1", "fixed0", "fixed1")
         for i in onnx.load(c.d.dir + "/%s.onnx" % n).graph.initializer[:2]]
    c.check("a fixed batch: the same weights", w[:2] == w[2:4] == w[4:6] == w[6:])
    c.hlo("a fixed batch: it serves as it was", "run", "fixed1.onnx", "-i", "x=random",
          out=r"y f32\[1,3\]")


def small(c, name, nodes, inputs, weights, dtype=1, **save):
    """A model with input sizes by name where they are texts; y has three classes."""
    value = onnx.helper.make_tensor_value_info
    g = onnx.helper.make_graph(
        [onnx.helper.make_node(op, i.split(), [o], **(a[0] if a else {}))
         for op, i, o, *a in nodes], "g",
        [value(n, dtype, s) for n, s in inputs], [value("y", dtype, None)],
        [numpy_helper.from_array(w, n) for n, w in weights.items()])
    onnx.save(onnx.helper.make_model(g, opset_imports=[onnx.helper.make_opsetid("", 13)],
                                     ir_version=8), c.d.dir + "/" + name, **save)


def other_forms(c):
    """Sizes by name that the rows tell, weights in files beside, rows of other types than the
    model's, inputs that are the same for all rows, rows that hold no numbers."""
    r = np.random.default_rng(7)
    w = r.normal(size=(6, 3)).astype(np.float32)
    x, t = r.normal(size=(64, 5, 6)), r.integers(0, 3, 64)
    odd = x.astype(np.float32)
    odd[40, 2, 3] = np.nan
    for name, v in (("x", x), ("odd", odd), ("t", t.astype(np.uint8)),
                    ("shift", r.normal(size=(1, 5, 3)).astype(np.float32))):
        np.save(c.d.dir + "/%s.npy" % name, v)
    mean = ("ReduceMean", "a", "y", {"axes": [1], "keepdims": 0})
    nodes = [("MatMul", "x w", "a"), mean]
    small(c, "sizes.onnx", nodes, [("x", ["N", "S", 6])], {"w": w})
    small(c, "beside.onnx", nodes, [("x", ["N", 5, 6])], {"w": w}, save_as_external_data=True,
          location="w.bin", size_threshold=0)
    small(c, "half.onnx", nodes, [("x", ["N", 5, 6])], {"w": w.astype(np.float16)}, 10)
    shifted = [("MatMul", "x w", "b"), ("Add", "b shift", "s"), ("Mul", "s times", "a"), mean]
    given = [("x", ["N", 5, 6]), ("shift", [1, 5, 3]), ("times", [])]
    small(c, "whole.onnx", shifted, given, {"w": w})
    small(c, "one.onnx", shifted, [("x", [1, 5, 6])] + given[1:], {"w": w})

    rows, files = ["-d", "x=@x.npy", "-d", "label=@t.npy"], {}
    both = ["--whole", "shift=@shift.npy", "--whole", "times=0.5"]
    for name in "sizes", "beside", "half", "whole", "one":
        for job in [], ["--job"]:
            out = "%s-%d.onnx" % (name, bool(job))
            c.hlo("%s%s" % (name, " in a job" * bool(job)), "train", name + ".onnx", *LOSS, *rows,
                  *(both if name in ("whole", "one") else []), "--optimizer", "adam", "--batch",
                  "16", "--epochs", "2", "-o", out, *job)
            files[out] = [numpy_helper.to_array(i).tobytes() for i in onnx.load(
                c.d.dir + "/" + out).graph.initializer]
        c.check(name + ": the same weights from both",
                files[name + "-0.onnx"] == files[name + "-1.onnx"])
    c.check("sizes by name or not: the same", files["sizes-0.onnx"] == files["beside-0.onnx"])
    c.check("a fixed batch beside what is whole", files["whole-0.onnx"] == files["one-0.onnx"])
    for job, rc in ([], 2), (["--job"], 5):
        words = ["train", "whole.onnx", *LOSS, *rows, "--batch", "16", "-o", "n.onnx", *job]
        c.hlo("nothing said of what is whole", *words, "--whole", "shift=@shift.npy", rc=rc,
              err="no value for input 'times', which has no rows")
        c.hlo("what is whole, as rows", *words, *both[2:], "-d", "shift=@shift.npy", rc=2,
              err="'shift' has 1 rows, 'x' 64; what all rows share is given")
        c.hlo("no numbers in the rows", "train", "sizes.onnx", *LOSS, "-d", "x=@odd.npy", "-d",
              "label=@t.npy", "--no-shuffle", "-o", "n.onnx", *job, rc=5,
              err="the loss of step 2, .* is nan.*'x': element 1215 is nan")


def refuses(c):
    x = np.load(os.path.join(c.d.dir, "image.npy"))
    y = np.load(os.path.join(c.d.dir, "label.npy"))
    bad = y.copy()
    bad[7] = 10
    for name, v in (("bad", bad), ("short", x[:20]), ("few", y[:20]), ("flat", x.reshape(-1, 64)),
                    ("column", y[:, None].astype(np.float64)), ("half", y + 0.5)):
        np.save(os.path.join(c.d.dir, name + ".npy"), v)

    def fails(name, err, *words, rc=2):
        c.hlo(name, "train", "digits.onnx", "-o", "n.onnx", *words, rc=rc, err=err)
    image, label = ROWS[:2], ROWS[2:]
    fails("a label out of range", r"label: element 7 is 10, there are classes 0 to 9", *LOSS,
          *image, "-d", "label=@bad.npy")
    fails("labels that are no integers", r"'label': element 0, \S+, is no s32", *LOSS, *image, "-d",
          "label=@half.npy")
    fails("fewer labels", r"'label' has 20 rows, 'image' 1437", *LOSS, *image, "-d",
          "label=@few.npy")
    fails("fewer rows than a batch", r"20 rows are fewer than a batch of 64", *LOSS, "-d",
          "image=@short.npy", "-d", "label=@few.npy", "--batch", "64", rc=3)
    fails("rows of another shape", r"'image' must be f32 1437x1x8x8, not 1437x64", *LOSS, "-d",
          "image=@flat.npy", *label)
    fails("no labels", r"no rows for the target 'label'", *LOSS, *image)
    fails("an input that is none", r"has no input 'imago'", *LOSS, *ROWS, "-d", "imago=@image.npy")
    fails("a loss that is none", r"no loss is called 'hinge'", "--loss", "hinge", *ROWS, rc=3)
    fails("a loss of another shape", r"is f32\[32,10\], not one number", "--loss", "output", *image,
          rc=3)
    fails("nothing to train", r"nothing to train", *LOSS, *ROWS, "--set", "trainable=nothing*",
          rc=3)
    fails("no number",
          r"loss of step \d+, or the norm of its gradients, is nan: nothing was updated", *LOSS,
          *ROWS, "--optimizer", "sgd:rate=1e30", rc=5)
    fails("overflow that nobody minds", r"leaves out steps that overflow: nan is stop or skip",
          *LOSS, *ROWS, "--set", "loss_scale=dynamic", "--set", "nan=ignore", rc=3)
    fails("another training's checkpoint", r"o.safetensors has no 'hlod.conv1.weight.slot0'",
          *LOSS, *ROWS, "--optimizer", "rmsprop", "--resume", "o.safetensors")
    fails("no loss", r"train needs --loss", *ROWS, rc=2)
    fails("patience without rows", r"--patience needs --validate", *LOSS, *ROWS, "--patience", "2")
    c.hlo("labels as one column of doubles", "train", "digits.onnx", *LOSS, *image, "-d",
          "label=@column.npy", "--steps", "2", "-o", "n.onnx")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--kills", type=int, default=0)
    args = a.parse_args()
    c = Case(os.path.abspath(args.build))
    try:
        if args.kills:
            resumes(c, args.kills)
        for test in (learns, stops_early, in_parts, as_jax, resumes, ends_in_order, as_a_job,
                     in_a_suite, fixed_batch, other_forms, refuses):
            if not args.kills:
                test(c)
    finally:
        c.d.stop()
    return c.results.code()


sys.exit(main())
