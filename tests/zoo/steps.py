# SPDX-License-Identifier: Apache-2.0
"""A decoder step by step over resident buffers: its caches stay on the device, each step donates
the last one's and keeps the new ones; every step's result against ONNX Runtime."""
import base64
import json

import models
import numpy as np

STEPS = 6
JSON = {"Content-Type": "application/json", "Accept": "application/json"}
DTYPE = {"float32": "f32", "float16": "f16", "int64": "s64"}


def tensor(name, a):
    return {"name": name, "dtype": DTYPE[str(a.dtype)], "shape": list(a.shape),
            "raw": base64.b64encode(a.tobytes()).decode()}


def next_inputs(inputs, want, step):
    """Of step + 1, in ONNX Runtime's run."""
    new = {n: want["new" + n[5:]] if n.startswith("cache") else a for n, a in inputs.items()}
    return dict(new, at=inputs["at"] + 1, x=np.roll(inputs["x"], step + 1))


def check(h, m):
    """(PASS or FAIL, text). m: a decoder_fixed in f32 or f16."""
    inputs, session = m.inputs(), models.session(m.path)
    names = [o.name for o in session.get_outputs()]
    caches = [n for n in inputs if n.startswith("cache")]
    digest = h.upload(m.path)
    put = h.ask(h.d.json, "POST", "/v1/buffers",
                json.dumps({"inputs": [tensor(n, inputs[n]) for n in caches]}), JSON)
    handles, worst = {b["name"]: b["handle"] for b in put["buffers"]}, 0.0
    count = min(STEPS, inputs[caches[0]].shape[2] - int(inputs["at"][0]))
    for step in range(count):
        body = {"model": digest, "keep": [n for n in names if n != "y"],
                "inputs": [tensor(n, inputs[n]) for n in ("x", "at")]
                + [{"name": n, "handle": handles[n], "donate": True} for n in caches]}
        reply = h.ask(h.d.json, "POST", "/v1/run", json.dumps(body), JSON)
        outputs = {o["name"]: o for o in reply["outputs"]}
        want = dict(zip(names, session.run(None, inputs)))
        got = np.array(outputs["y"]["data"], want["y"].dtype).reshape(
            want["y"].shape) if "data" in outputs["y"] else np.frombuffer(
            base64.b64decode(outputs["y"]["raw"]), want["y"].dtype).reshape(want["y"].shape)
        worst = max(worst, models.difference(got, want["y"]))
        handles = {n: outputs["new" + n[5:]]["handle"] for n in caches}
        inputs = next_inputs(inputs, want, step)
    bound = models.BOUNDS[m.numbers] * 2  # rounding adds up in the caches
    return (("PASS" if worst <= bound else "FAIL"),
            "%d steps over resident caches, error %.2g (bound %.2g)" % (count, worst, bound))
