# SPDX-License-Identifier: Apache-2.0
"""Exported models as WebAssembly in Node, against ONNX Runtime on the same file and inputs:
EfficientNet-lite0 with its weights (tensors, a picture, weights as f16), and the zoo's networks;
and what the runtime refuses.

    models.py BUILD [--models REGEX] [--which small|families|packages|all|none] [--runs N]

A line for each, PASS or FAIL; `N passed, N failed` last. --runs: the median of
so many runs is printed too. A refusal fails: the zoo has no network that cannot be exported.
"""
import argparse
import base64
import hashlib
import json
import os
import shutil
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "zoo"), os.path.join(HERE, "..", "models")]
import efficientnet  # noqa: E402
import models  # noqa: E402
from packages import Node, Refused, bindings, command  # noqa: E402


def zoo_model(build, m, runs, folder, options=()):
    inputs = m.inputs()
    try:
        want, others = models.expected(m, inputs)
    except Exception as e:
        return "SKIP", "ONNX Runtime: %s" % str(e).replace("\n", " ")[:200]
    try:
        node = Node(build, m.path, folder, [*bindings(m.path, inputs), *options])
    except Refused as e:
        return "FAIL", str(e).replace("\n", "; ")
    names = [v["name"] for v in json.load(open(node.package + "/model/manifest.json"))["inputs"]]
    node.tensors([inputs[n] for n in names])
    got, info = node.run(runs)
    ok, error, bound = models.verdict(m, got if isinstance(want, dict) else list(got.values()),
                                      want, others)
    return "PASS" if ok else "FAIL", "error %.2g (bound %.2g), %s%s" % (
        error, bound, " ".join("%s=%s" % (k, n) for k, n in node.sizes.items()),
        ", %.2f ms" % info["ms"] if runs else "")


def pictures(build, runs, folder):
    """EfficientNet-lite0: (name, status, text) of each setting."""
    from PIL import Image
    path = os.path.join(folder, "efficientnet_lite0.onnx")
    efficientnet.build(path)
    photo = Image.open(efficientnet.package_file("skimage/data/chelsea.png")).convert("RGB")
    tensor = efficientnet.picture(efficientnet.package_file("skimage/data/chelsea.png"))
    want = models.session(path).run(None, {"image": tensor})[0]
    five = np.argsort(-want[0])[:5].tolist()
    with open(os.path.join(folder, "pixels.bin"), "wb") as f:
        f.write(photo.tobytes())
    with open(os.path.join(folder, "pixels.json"), "w") as f:
        json.dump({"width": photo.width, "height": photo.height}, f)

    how = ["--size", "224x224", "--crop", "0.875", "--mean", "127", "--std", "128"]
    for name, options, bound in (("tensor", [], 1e-5), ("picture", how, 1e-3),
                                 ("f16 weights", ["--weights", "f16"], 2e-2)):
        node = Node(build, path, folder, options)
        node.tensors([tensor])
        got, info = node.run(runs)
        error = float(np.abs(got["prob"] - want).max() / np.abs(want).max())
        top = [t["index"] for t in info["top"]]
        ok = error <= bound and top == five
        yield "efficientnet-lite0, " + name, "PASS" if ok else "FAIL", (
            "error %.2g, classes %s, of ONNX Runtime %s; %s%s" % (
                error, top, five, " ".join("%s=%s" % s for s in node.sizes.items()),
                ", %.2f ms" % info["ms"] if runs else ""))


def single_page(build, path, folder):
    """The page that holds all: its script is one module that parses, and the policy names it."""
    done = command(os.path.join(build, "hlo"), "export", path, "--web", folder, "--single-file")
    if done.returncode:
        return "FAIL", done.stderr.strip()
    with open(os.path.join(folder, "index.html")) as f:
        page = f.read()
    script = page[page.rindex('<script type="module">') + 22:page.rindex("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    with open(os.path.join(folder, "page.mjs"), "w") as f:
        f.write(script)
    parsed = command("node", "--check", f.name)
    if parsed.returncode:
        return "FAIL", parsed.stderr.strip()[-400:]
    good = "script-src 'sha256-%s'" % digest in page and "default-src 'none'" in page
    return "PASS" if good else "FAIL", "the policy names %s" % digest


def wrong_labels(build, path, folder):
    """Labels that the runtime would not take are refused by name, and nothing is written."""
    labels, to = os.path.join(folder, "labels.txt"), os.path.join(folder, "to")
    for text, words in (("a\n" + "b" * 4097, "line 2: a label has at most 4096 bytes"),
                        ("x\n" * (2 ** 20 + 1), "more than 1048576 labels")):
        with open(labels, "w") as f:
            f.write(text)
        done = command(os.path.join(build, "hlo"), "export", path, "--web", to, "--labels", labels)
        if not done.returncode or words not in done.stderr or os.path.exists(to + "/model"):
            return "FAIL", "%d: %s" % (done.returncode, done.stderr.strip()[-400:])
    return "PASS", "both refused"


def hostile(build, path, folder):
    """Damaged manifests and inputs that do not fit, in Node (hostile.mjs)."""
    done = command(os.path.join(build, "hlo"), "export", path, "--web", folder)
    if done.returncode:
        return "FAIL", done.stderr.strip()
    done = command("node", os.path.join(HERE, "hostile.mjs"), folder, "1000")
    return "FAIL" if done.returncode else "PASS", (done.stdout + done.stderr).strip()[-1500:]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--models", default=".", help="regular expression over names and packages")
    a.add_argument("--which", default="small")
    a.add_argument("--runs", type=int, default=0)
    o = a.parse_args()
    if not shutil.which("node"):
        print("SKIP exported models: no node")
        return 0
    counts = {"PASS": 0, "FAIL": 0, "SKIP": 0}

    def tell(name, status, text):
        counts[status] += 1
        print("%s %s: %s" % (status, name, text), flush=True)

    with tempfile.TemporaryDirectory(prefix="hlod-web-") as folder:
        for row in pictures(o.build, o.runs, folder):
            tell(*row)
    small = [m for m in models.chosen("mlp-f32|crnn-f32", "small")]
    for m in small:
        for name, work in (("as one page", single_page), ("damaged", hostile),
                           ("labels", wrong_labels)):
            with tempfile.TemporaryDirectory(prefix="hlod-web-") as folder:
                tell(m.name + ", " + name, *work(o.build, m.path, folder))
    for m in [] if o.which == "none" else models.chosen(o.models, o.which):
        with tempfile.TemporaryDirectory(prefix="hlod-web-") as folder:
            try:
                tell(m.name, *zoo_model(o.build, m, o.runs, folder))
                if m.numbers == "int8":  # products of 16-bit integers
                    tell(m.name + ", WebAssembly alone",
                         *zoo_model(o.build, m, o.runs, folder, ("--backend", "wasm")))
            except RuntimeError as e:
                tell(m.name, "FAIL", str(e))
    print("%d passed, %d failed" % (counts["PASS"], counts["FAIL"]))
    return 1 if counts["FAIL"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
