#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages docs/from-*.md, docs/train-by-hand.md and docs/training.md as written: each block that
says sh, in one folder for each page, over a daemon; other blocks must say in the line above them
why they are not run. A page whose Python packages are not installed is skipped aloud.
pages.py BUILD (build/venv/bin/python)"""
import glob, importlib.util, os, re, subprocess, sys
import numpy as np
import onnx
from onnx import TensorProto as T, helper as oh, numpy_helper as nh
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
PAGES = [*sorted(glob.glob(os.path.join(ROOT, "docs", "from-*.md"))),
         os.path.join(ROOT, "docs", "train-by-hand.md"), os.path.join(ROOT, "docs", "training.md")]
NEEDS = {"jax": ["jax"], "train-by-hand": ["jax"], "triton": ["tritonclient"]}
WANTED = {"pytorch": [r"inputs +image f32\[N,3,8,8\]", r"image 1x3x8x8, made up", r"\(4, 5\) cpu:0",
                      r"concurrency"],
          "jax": [r"params\['w'\] f32\[3,4\]", r"result f32\[2,4\]", "fusions, as JAX's",
                  r"^\(8, 4\) as JAX's for three batches", r"arg0 f32\[b,16\]"],
          "tensorflow": [r"arg0 f32\[\?,4\]", r"3x2|3,2"],
          "triton": [r"^net version 1", r"True \[.*'image'", r"\(2, 5\)"],
          "train-by-hand": [r"^\d+ instructions", r"^step 199: loss 0\.\d+$",
                            "parameters as JAX trains them",
                            r"200 steps in one executable: loss 2\.\d+ to 0\."],
          "training": [r"held back: loss 0\.\d+, accuracy (0\.9|1\.0)", r"^scores f32\[512,5\]",
                       r"'event': 'step', 'step': 1, 'loss'", r"^the same weights$",
                       r"passed +model.onnx, rows .* step 200 of 200, loss \d",
                       r'^{"state":"passed","step":40,"loss":0',
                       r"entry=\d+ total=\d+", r"^instructions before: entry \d+"],
          "tvm": [r"^executable", r"scores f32\[1,5\]", r"longest steps"]}
result = Results()

def model(path):
    w = np.random.default_rng(0).normal(size=(192, 5)).astype(np.float32)
    nodes = [oh.make_node("Flatten", ["image"], ["flat"]),
             oh.make_node("MatMul", ["flat", "w"], ["logits"]),
             oh.make_node("Softmax", ["logits"], ["scores"])]
    g = oh.make_graph(nodes, "g", [oh.make_tensor_value_info("image", T.FLOAT, ("N", 3, 8, 8))],
                      [oh.make_tensor_value_info("scores", T.FLOAT, ("N", 5))],
                      [nh.from_array(w, "w")])
    onnx.save(oh.make_model(g, opset_imports=[oh.make_opsetid("", 17)], ir_version=8), path)

def main():
    build = os.path.abspath(sys.argv[1])
    for page in PAGES:
        name = os.path.basename(page).removeprefix("from-")[:-3]
        text = open(page).read()
        # The paragraph before each block that is no script.
        others = re.findall(r"((?:[^\n`#][^\n]*\n)*)```(?!sh\n)(\w+)\n", text)
        result(f"{name}: what is not run says why",
               all("ot run by the tests" in before for before, _ in others), others)
        lacks = [p for p in NEEDS.get(name, []) if not importlib.util.find_spec(p)]
        if lacks:
            print(f"SKIP docs/{os.path.basename(page)}: {lacks} not installed")
            continue
        d = Daemon(build + "/hlod", build + "/hlod-worker")
        work = os.path.join(d.dir, "page")
        os.mkdir(work)
        model(os.path.join(work, "model.onnx"))
        env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr,
               "PATH": f"{build}:{ROOT}/build/venv/bin:" + os.environ["PATH"],
               "PYTHONPATH": ROOT + "/client/python", "JAX_PLATFORMS": "cpu"}
        script = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.S))
        try:
            p = subprocess.run(["sh", "-e"], input=script, cwd=work, env=env, capture_output=True,
                               text=True, timeout=300)
            lacks = [w for w in WANTED[name] if not re.search(w, p.stdout + p.stderr, re.M)]
            result("docs/" + os.path.basename(page), p.returncode == 0 and not lacks,
                   f"status {p.returncode}, lacks {lacks}\n{p.stdout[-2000:]}\n{p.stderr[-1500:]}")
        finally:
            d.stop()
    return result.code()

sys.exit(main())
