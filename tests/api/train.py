# SPDX-License-Identifier: Apache-2.0
"""Train over HTTP: the daemon trains alone, tells its steps, is killed and goes on, and ends with
the bytes that `hlo train` gives; cancelled, out of time, stopped in good order; errors that name
the place.
   train.py --build DIR [--kills N]   N: only that, with N kills at random moments"""
import argparse
import glob
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "models")]
import digits  # noqa: E402
from harness import Daemon, Results  # noqa: E402

LOSS = "softmax-cross-entropy"
DTYPES = {"float32": "f32", "float64": "f64", "int64": "s64", "int32": "s32"}
LONG = {"steps": 100000, "optimizer": "adam", "batch": 64}


class Case:
    def __init__(self, build):
        self.build, self.results = build, Results()
        self.start()
        digits.write(self.d.dir)
        self.model = self.blob(self.read("digits.onnx"))
        self.rows = {n: np.load(os.path.join(self.d.dir, n + ".npy"))
                     for n in ("image", "label", "held_image", "held_label")}

    def start(self, data=None, args=()):
        self.d = Daemon(self.build + "/hlod", self.build + "/hlod-worker", data=data, args=args)

    def check(self, name, ok, why=""):
        self.results("train: " + name, ok, str(why))

    def read(self, name):
        return open(os.path.join(self.d.dir, name), "rb").read()

    def blob(self, data):
        status, _, body = self.d.call("PUT", "/v1/blobs", data)
        assert status == 200, body
        return json.loads(body)["digest"]

    def tensor(self, name, x):
        return {"name": name, "dtype": DTYPES[str(x.dtype)], "shape": list(x.shape),
                "blob": self.blob(np.ascontiguousarray(x).tobytes())}

    def data(self, image="image", label="label"):
        pick = {**self.rows}
        a, b = (pick[k] if isinstance(k, str) else k for k in (image, label))
        return [self.tensor("image", a), self.tensor("label", b)]

    def request(self, data=None, **train):
        top = {k: train.pop(k) for k in ("timeout_ms", "priority", "retry", "model", "options")
               if k in train}
        return {"model": self.model, "data": self.data() if data is None else data,
                "train": {"loss": LOSS, **train}, **top}

    def submit(self, *args, **train):
        status, m = self.d.json("POST", "/v1/train", self.request(*args, **train))
        assert status == 200, m
        return m["suite"] + ".1"

    def watch(self, job):
        """Each message of the stream, as it comes."""
        c = self.d.connect(120)
        c.request("GET", "/v1/jobs/%s/watch" % job)
        r = c.getresponse()
        try:
            for line in r:
                event = json.loads(line)
                if "job" in event:
                    yield event["job"]
        finally:
            c.close()

    def end(self, job):
        for last in self.watch(job):
            pass
        status, m = self.d.json("GET", "/v1/jobs/%s/result" % job)
        assert status == 200, m
        return m

    def fails(self, name, err, *args, state="error", **train):
        status, m = self.d.json("POST", "/v1/train", self.request(*args, **train))
        if status == 200:
            m = self.end(m["suite"] + ".1")
            self.check(name + ": state", m["state"] == state, m)
        text = json.dumps(m)
        self.check(name, err in text, text[:400])

    def none_left(self, name):
        for _ in range(100):
            status, m = self.d.json("GET", "/v1/buffers")
            if not m.get("buffers"):
                break
            time.sleep(0.05)
        self.check(name + ": no buffer is left", not m.get("buffers"), m)

    def hlo(self, *words):
        env = {**os.environ, "HLOD_ADDR": "%s:%d" % self.d.addr}
        p = subprocess.run([self.build + "/hlo", *words], env=env, capture_output=True, text=True,
                           timeout=300, cwd=self.d.dir)
        assert p.returncode == 0, p.stderr
        return p.stdout


def learns(c):
    held = [c.tensor("image", c.rows["held_image"]), c.tensor("label", c.rows["held_label"])]
    job = c.submit(optimizer="adam", batch=64, epochs=6, validation=held)
    steps, losses, seen = [], [], []
    for m in c.watch(job):
        t = m.get("train", {})
        new = t.get("losses", [])
        steps += range(t.get("step", 0) - len(new) + 1, t.get("step", 0) + 1) if new else []
        losses += new
        if t.get("validationStep") and t["validationStep"] not in [s for s, _ in seen]:
            seen.append((t["validationStep"], t["validationAccuracy"]))
    c.check("a loss a step", steps == list(range(1, 133)) and losses[-1] < 0.3 < losses[0],
            "%s %s" % (steps[:3], losses[-1:]))
    c.check("six validations", [s for s, _ in seen] == [22, 44, 66, 88, 110, 132], seen)
    c.check("97% of what was held back", seen and seen[-1][1] >= 0.97, seen)
    r = c.end(job)
    c.check("it passed", r["state"] == "passed" and r["train"]["step"] == 132, r)
    c.check("a curve", r["train"]["curve"][-1]["step"] == 132 and
            len(r["train"]["curve"]) == 132, len(r["train"].get("curve", [])))
    _, _, model = c.d.call("GET", "/v1/blobs/" + r["model"])
    c.check("its digest", hashlib.sha256(model).hexdigest() == r["model"])
    c.hlo("train", "digits.onnx", "--loss", LOSS, "-d", "image=@image.npy", "-d",
          "label=@label.npy", "--optimizer", "adam", "--batch", "64", "--epochs", "6", "-o",
          "t.onnx")
    c.check("the bytes of hlo train", c.read("t.onnx") == model)
    status, m = c.d.json("POST", "/v1/models", {"name": "digits", "model": r["model"]})
    c.check("it takes a name", status == 200, m)
    x = c.rows["held_image"]
    body = {"inputs": [{"name": "image", "dtype": "f32", "shape": list(x.shape),
                        "data": x.ravel().tolist()}]}
    status, before = c.d.json("POST", "/v1/run", {"model": c.model, **body})
    status, m = c.d.json("POST", "/v1/run", {"model": "digits", **body})
    c.check("serving it compiles nothing", m.get("cacheHit") and
            m["executable"] == before["executable"], {k: m.get(k) for k in m if k != "outputs"})
    got = np.array(m["outputs"][0]["data"]).reshape(len(x), -1).argmax(1)
    c.check("and serves", abs((got == c.rows["held_label"]).mean() - seen[-1][1]) < 1e-6, seen[-1])
    status, m = c.d.json("GET", "/v1/jobs/%s/logs" % job)
    c.check("its log", "the trained model is " + r["model"] in m["text"] and
            "one executable of" in m["text"], m)
    c.none_left("learns")


def best_of(c):
    held = [c.tensor("image", c.rows["held_image"]), c.tensor("label", c.rows["held_label"])]
    r = c.end(c.submit(optimizer="adam:rate=3e-2", batch=64, epochs=60, validation=held,
                       patience=2))
    t = r["train"]
    c.check("ends early", r["state"] == "passed" and t["step"] < 60 * 22 and t["worse"] == 2, t)
    c.hlo("models", "set", "best", r["model"])
    status, m = c.d.json("POST", "/v1/run", {"model": "best", "inputs": [
        {"name": "image", "dtype": "f32", "shape": list(c.rows["held_image"].shape),
         "data": c.rows["held_image"].ravel().tolist()}]})
    y = np.array(m["outputs"][0]["data"], np.float64).reshape(-1, 10)
    y -= y.max(1, keepdims=True)
    label = c.rows["held_label"]
    loss = (np.log(np.exp(y).sum(1)) - y[np.arange(len(label)), label]).mean()
    c.check("with the best weights", abs(loss - t["bestLoss"]) < 1e-4 * max(1, loss), (loss, t))


def goes_on(c, kills=0):
    """Killed at some moment, each time another process; nobody asks for it again."""
    steps = max(400, 150 * kills)
    how = dict(optimizer="adamw", schedule="cosine:steps=%d" % steps, batch=64, steps=steps, seed=3,
               settings=["clip=1"], checkpoint_steps=10, retry={"max_attempts": 100,
                                                                  "backoff_ms": 50})
    whole = c.end(c.submit(**how))
    c.check("undisturbed", whole["state"] == "passed", whole)
    job = c.submit(**how)
    for victim in (["daemon", "worker"] * max(kills, 1))[:kills or 2]:
        time.sleep(0.1 + random.random() * 0.5)
        if victim == "daemon":
            c.d.kill()
            c.start(data=c.d.dir)
        else:
            pids = subprocess.run(["pgrep", "-P", str(c.d.p.pid), "-f", "role=device"],
                                  capture_output=True, text=True).stdout.split()
            for pid in pids:
                os.kill(int(pid), signal.SIGKILL)
    r = c.end(job)
    c.check("passed after kills", r["state"] == "passed", r)
    c.check("the same bytes", r.get("model") == whole["model"], (r.get("model"), whole["model"]))
    points = [p["step"] for p in r["train"]["curve"]]
    c.check("the curve goes up to the end", points == sorted(set(points)) and
            points[-1] == steps, points)
    status, m = c.d.json("GET", "/v1/jobs/%s/logs" % job)
    c.check("from a checkpoint", "begins at step" in m["text"].split("started again")[-1],
            m["text"])


def begins_anew(c):
    """Its checkpoint is gone from the disk: it begins at the beginning."""
    how = dict(optimizer="adam", batch=64, steps=2000, checkpoint_steps=20, seed=6)
    begun = time.time() - 1  # of the disk's clock, which goes in ticks
    job = c.submit(**how)
    for m in c.watch(job):
        if m.get("train", {}).get("checkpointStep", 0) >= 40:
            break
    c.d.kill()
    gone = m["train"]["checkpoint"]
    for path in glob.glob(c.d.dir + "/data/**/" + "?" * 64, recursive=True):
        if os.path.getmtime(path) > begun and os.path.getsize(path) > 1 << 20:
            os.remove(path)
    c.start(data=c.d.dir)
    r = c.end(job)
    _, log = c.d.json("GET", "/v1/jobs/%s/logs" % job)
    c.check("without its checkpoint it begins anew", r["state"] == "passed" and
            "begins at step 0 of" in log["text"].split("started again")[-1], (gone, log["text"]))
    same = c.end(c.submit(**{**how, "checkpoint_steps": 0}))
    c.check("and ends alike", r["model"] == same["model"], (r, same))


def stops_in_order(c):
    """SIGTERM: the state of the step that it had reached is kept; the next daemon goes on there."""
    job = c.submit(**{**LONG, "steps": 3000})
    for m in c.watch(job):
        if m.get("train", {}).get("step", 0) > 100:
            break
    at = m["train"]["step"]
    c.check("stopped in good order", c.d.stop_keep() == 0)
    c.start(data=c.d.dir)
    for m in c.watch(job):
        if m.get("train", {}).get("losses"):
            break
    first = m["train"]["step"] - len(m["train"]["losses"])
    c.check("no step is lost", first >= at, (first, at))
    c.d.json("DELETE", "/v1/jobs/" + job)
    c.none_left("cancelled")
    r = c.end(job)
    c.check("cancelled", r["state"] == "cancelled", r)


def resumes(c):
    """From a checkpoint of another training, with more steps."""
    a = c.end(c.submit(optimizer="adam", batch=64, steps=60))
    b = c.end(c.submit(optimizer="adam", batch=64, steps=25))
    r = c.end(c.submit(optimizer="adam", batch=64, steps=60, resume=b["train"]["checkpoint"]))
    c.check("resumed: the same bytes", r["model"] == a["model"], (r, a))
    r = c.end(c.submit(optimizer="adam", batch=64, steps=20, resume=b["train"]["checkpoint"]))
    c.check("resumed behind its end: as it is", r.get("model") == b["model"], r)
    c.fails("another training's checkpoint", "slot1' is not of this training",
            optimizer="rmsprop", batch=64, steps=60, resume=b["train"]["checkpoint"])
    c.fails("a checkpoint that is none", "no blob", optimizer="adam", resume="0" * 64)


def frozen(c):
    """Only the last layer is trained; the others stay, also over a checkpoint."""
    how = dict(optimizer="adam", batch=64, settings=["trainable=scores.*"])
    r = c.end(c.submit(**how, steps=20))
    half = c.end(c.submit(**how, steps=9))
    r2 = c.end(c.submit(**how, steps=20, resume=half["train"]["checkpoint"]))
    c.check("frozen: the same bytes", r.get("model") == r2.get("model"), (r, r2))
    new, old = (onnx.load_from_string(b) for b in
                (c.d.call("GET", "/v1/blobs/" + r["model"])[2], c.read("digits.onnx")))
    differ = [a.name for a, b in zip(new.graph.initializer, old.graph.initializer) if a != b]
    c.check("frozen: the others stay", differ and all("scores" in n for n in differ), differ)


def limits(c):
    for ms in 700, 5000, 20000:  # where this machine stalls it may pass before the first step
        r = c.end(c.submit(**LONG, timeout_ms=ms))
        if r.get("train", {}).get("step"):
            break
    c.check("out of time", r["state"] == "error" and r["error"]["code"] == "DEADLINE_EXCEEDED", r)
    c.check("its state is kept", r["train"]["checkpointStep"] == r["train"]["step"] > 0, r["train"])
    c.check("kept where it is said", c.d.call("GET", "/v1/blobs/" +
                                              r["train"]["checkpoint"])[0] == 200)
    c.none_left("out of time")
    first = c.submit(**LONG)
    for m in c.watch(first):
        if m.get("train", {}).get("step"):
            break
    t, x = [], np.zeros((1, 1, 8, 8), np.float32)
    body = {"model": c.model, "inputs": [{"name": "image", "dtype": "f32", "shape": [1, 1, 8, 8],
                                          "data": x.ravel().tolist()}]}
    for _ in range(10):
        begin = time.monotonic()
        status, m = c.d.json("POST", "/v1/run", body)
        t.append(time.monotonic() - begin)
    c.check("others run beside it", status == 200, m)
    second = c.end(c.submit(optimizer="adam", batch=64, steps=30))
    c.check("a second training beside it", second["state"] == "passed", second)
    c.d.json("DELETE", "/v1/jobs/" + first)
    c.none_left("beside")


def in_parts(c):
    """Rows that come to the device in parts: the same model after kills, all steps once; labels of
    all parts are looked at first; inputs that are the same for all rows."""
    how = {"optimizer": "adam", "batch": 50, "steps": 180, "window": 500, "checkpoint_steps": 20}
    whole = c.end(c.submit(**how))
    c.check("in parts", whole["state"] == "passed" and
            whole["train"]["stepsPerEpoch"] == 30, whole)
    job = c.submit(**how)
    for m in c.watch(job):
        if m.get("train", {}).get("checkpointStep", 0) >= 40:
            break
    c.d.kill()
    c.start(data=c.d.dir)
    r = c.end(job)
    c.check("in parts: the same after a kill", r.get("model") == whole["model"], (r, whole))
    bad = c.rows["label"].copy()
    bad[1430] = -1
    c.fails("a label of the last part", "label: element 1430 is -1", c.data(label=bad), window=500)
    c.fails("a part below a batch", "20 rows are fewer than a batch of 50", batch=50, window=20)
    c.fails("a whole input that is none", "the model has no input 'imago'",
            whole=[c.tensor("imago", c.rows["image"][:1])])
    c.fails("a whole input's name", "a name with", whole=[c.tensor("a;b", c.rows["image"][:1])])
    c.fails("a setting that whole has", "setting 'whole=image'", settings=["whole=image"])
    c.none_left("in parts")


def refuses(c):
    image, label = c.rows["image"], c.rows["label"]
    bad = label.copy()
    bad[7] = 10
    c.fails("a label out of range", "label: element 7 is 10, there are classes 0 to 9",
            c.data(label=bad))
    c.fails("labels that are no integers", "'label': element 0, ", c.data(label=label + 0.5))
    c.fails("fewer labels", "'label' has 20 rows, 'image' 1437", c.data(label=label[:20]))
    c.fails("fewer rows than a batch", "20 rows are fewer than a batch of 64",
            c.data(image[:20], label[:20]), batch=64)
    c.fails("rows of another shape", "'image' must be f32 1437x1x8x8, not 1437x64",
            c.data(image.reshape(-1, 64)))
    c.fails("no labels", "no rows for the target 'label'", c.data()[:1])
    c.fails("an input that is none", "the model has no input 'imago'",
            c.data() + [c.tensor("imago", image)])
    c.fails("a loss that is none", "no loss is called 'hinge'", loss="hinge")
    c.fails("a loss of another shape", "is f32[32,10], not one number", c.data()[:1], loss="output")
    c.fails("nothing to train", "nothing to train", settings=["trainable=nothing*"])
    c.fails("a setting that is none", "'colour'", settings=["colour=1"])
    c.fails("less memory than a step can do with", "computed again", settings=["remat=1K"])
    c.fails("a setting with a field of its own", "setting 'batch=3'", settings=["batch=3"])
    c.fails("two settings in one", "setting 'clip=1;batch=3'", settings=["clip=1;batch=3"])
    c.fails("no loss", "there is no loss", loss="")
    c.fails("epochs and steps", "both epochs and steps", epochs=1, steps=1)
    c.fails("patience alone", "patience without validation", patience=1)
    c.fails("no number", "nothing was updated by it", optimizer="sgd:rate=1e30")
    c.fails("no model", "no model", model="0" * 64)
    status, m = c.d.json("POST", "/v1/train", {"model": c.model, "data": c.data()})
    c.check("how is missing", status == 400 and "how it is trained" in json.dumps(m), m)
    status, m = c.d.json("POST", "/v1/jobs", {"models": [{"model": c.model}],
                                              "train": {"loss": LOSS}})
    c.check("a suite without rows", status == 400 and "needs rows" in json.dumps(m), m)
    c.none_left("refuses")


def a_suite(c):
    """Two data sets, two models' names: four trainings of one submit."""
    half = len(c.rows["image"]) // 2
    q = {"models": [{"name": "a", "model": c.model}, {"name": "b", "model": c.model}],
         "inputs": [{"name": "first", "inputs": c.data(c.rows["image"][:half],
                                                       c.rows["label"][:half])},
                    {"name": "second", "inputs": c.data(c.rows["image"][half:],
                                                        c.rows["label"][half:])}],
         "train": {"loss": LOSS, "optimizer": "adam", "batch": 32, "steps": 10}}
    status, m = c.d.json("POST", "/v1/jobs", q)
    c.check("a suite of four", status == 200 and m["jobs"] == 4, m)
    ends = [c.end("%s.%d" % (m["suite"], k)) for k in (1, 2, 3, 4)]
    models = [e.get("model") for e in ends]
    c.check("each trained", all(models) and models[0] == models[2] and models[1] == models[3] and
            models[0] != models[1], models)


def on_one_kind(c):
    """Nobody says which device, and there are two kinds, of which the first is compiled for:
    trainings at once stay on it, also while others would be free."""
    c.check("stopped", c.d.stop_keep() == 0)
    c.start(data=c.d.dir, args=("--device", "cpu,sim*3"))
    how = dict(optimizer="adam", batch=64, steps=40, seed=3)
    jobs = [c.submit(**how) for _ in range(6)]
    ends = [c.end(job) for job in jobs]
    c.check("all passed, alike",
            all(e["state"] == "passed" for e in ends) and len({e["model"] for e in ends}) == 1,
            ends)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--kills", type=int, default=0)
    args = a.parse_args()
    c = Case(os.path.abspath(args.build))
    try:
        if args.kills:
            goes_on(c, args.kills)
        for test in (learns, best_of, goes_on, begins_anew, stops_in_order, resumes, frozen,
                     limits, in_parts, refuses, a_suite, on_one_kind):
            if not args.kills:
                test(c)
    finally:
        c.d.stop()
    return c.results.code()


sys.exit(main())
