# SPDX-License-Identifier: Apache-2.0
"""Compiling for TPUs and GPUs that are not here, through the plugins that `hlo plugins install`
fetches (some 400 MB, once, into build/aot). Prints PASS and FAIL lines, and a table of what the
compilers made.

    aot_test.py BUILD [--nightly] --nightly: VGG19 with batch 100 instead (minutes; beside Fischer &
    Saba's 181 instructions)
"""
import hashlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "models"))
import daemon  # noqa: E402
import numpy as np  # noqa: E402
import zoo  # noqa: E402

build, nightly = sys.argv[1], "--nightly" in sys.argv
PJRT = os.path.join(HERE, "..", "pjrt")
KEPT = "build/aot/data"
TPUS, GPUS = ["tpu:v5e:1x1", "tpu:v6e:1x1"], ["gpu:a100", "gpu:h100"]
rows = []


def report(ok, name, text=""):
    print("%s aot %s %s" % ("PASS" if ok else "FAIL", name, text), flush=True)
    return ok


def install(name):
    p = subprocess.run([build + "/hlo", "plugins", "--json", "--data", KEPT], capture_output=True,
                       text=True)
    if {r["name"]: r["installed"] for r in json.loads(p.stdout)}[name]:
        return
    p = subprocess.run([build + "/hlo", "plugins", "install", name, "--yes", "--data", KEPT],
                       capture_output=True, text=True,
                       env=dict(os.environ, HLO_PYTHON="build/venv/bin/python"))
    report(p.returncode == 0 and "icense" in p.stderr, "hlo plugins install " + name,
           p.stderr[-300:] if p.returncode else "")


def start(folder):
    """A daemon with a data folder of its own and the plugins that were fetched."""
    os.makedirs(folder)
    os.symlink(os.path.abspath(KEPT + "/plugins"), folder + "/plugins")
    return daemon.Daemon(build, folder, args=["--timeout-ms", "3600000"])


def post(d, path, shapes, **query):
    q = "&".join(["shape=%s=%s" % (n, "x".join(map(str, s))) for n, s in shapes.items()]
                 + ["%s=%s" % kv for kv in query.items()])
    with open(path, "rb") as f:
        return d.json(
            "POST", "/v1/executables?" + q, f,
            {"Content-Type": "application/onnx" if path.endswith(".onnx") else "text/x-hlo",
             "Content-Length": str(os.path.getsize(path))})


def compile_one(d, name, path, shapes, target):
    """Compiles, checks what every reply must have, notes a row. The executable, or None."""
    try:
        c = post(d, path, shapes, target=target, budget="hbm=200G")
    except daemon.Refused as e:
        report(False, "%s for %s" % (name, target), str(e))
        return None
    e = c["executable"]
    n, m = e["optimized"], e["memory"]
    tpu = target.startswith("tpu")
    ok = (n["entry"] > 0 and n["total"] >= n["entry"] and m["needed"] >= m["arguments"] > 0
          and m["limit"] > 1 << 33 and m.get("fits") and e["flops"] > 0 and e["bytesAccessed"] > 0)
    ok = (ok and not c.get("overBudget") and (not tpu or m["code"] > 0)
          and e["compilePeakRss"] > 1 << 26)
    rows.append((name, target, e["before"]["entry"], e["after"]["entry"], n["entry"], n["total"],
                 n.get("fusions", 0), e["artifactBytes"], m["needed"], e["flops"],
                 e["compileMs"] / 1e3, e["compilePeakRss"]))
    report(ok, "%s for %s" % (name, target),
           "entry %d -> %d -> %d, needs %.1f MB"
           % (e["before"]["entry"], e["after"]["entry"], n["entry"], m["needed"] / 1e6))
    return c


def training(model):
    """The program that trains it: forward, backward, update and the loop over steps."""
    spec = "loss=softmax-cross-entropy;optimizer=momentum;batch=1;rows=8"
    p = subprocess.run([build + "/hlo-opt", "--to=proto", "--train=" + spec, model],
                       capture_output=True, check=True)
    path = "build/aot/training.pb"
    open(path, "wb").write(p.stdout)
    return path


def models():
    if nightly:
        return [("vgg19 batch 100", zoo.ensure("build/models", "vgg19", 100), {}),
                ("vgg19 training", training(zoo.ensure("build/models", "vgg19")), {})]
    return [("conv+bias+relu", os.path.join(PJRT, "conv_bias_relu.hlo"), {}),
            ("mlp", zoo.ensure("build/models", "mlp"), {"x": (4, 784)}),
            ("resnet18", zoo.ensure("build/models", "resnet18"), {}),
            ("while+conditional", os.path.join(PJRT, "while_conditional.hlo"), {})]


def proto_twice(name, path):
    """What a plugin gets is the same from two processes."""
    def once():
        return subprocess.run([build + "/hlo-opt", "--passes=@whole,@portable", "--to=proto", path],
                              capture_output=True).stdout
    a, b = once(), once()
    report(len(a) > 100 and a == b, "HloModuleProto of %s from two processes" % name,
           "%d bytes, sha256 %s" % (len(a), hashlib.sha256(a).hexdigest()[:16]))


def reproducible(folder, name, path, shapes, target):
    """Two fresh daemons make the same. (libtpu numbers what a process compiles, and the number is
    in its code: the same holds for equal places in a process's life.)"""
    made = []
    for k in range(2):
        with start("%s/%s%d" % (folder, name[0] + target[-6:].replace(":", ""), k)) as d:
            made.append(post(d, path, shapes, target=target)["executable"]["contentDigest"])
    report(made[0] == made[1], "%s for %s is the same from two processes" % (name, target),
           made[0][:16])


def details(d, first):
    """Names, ids and texts, on an executable that is there."""
    digest, target_id = first["digest"], first["executable"]["targetId"]
    by_id = post(d, os.path.join(PJRT, "conv_bias_relu.hlo"), {},
                 target="tpu:" + ":".join(target_id.split(":")[2:4]))
    report(by_id["digest"] == digest and by_id.get("cacheHit"),
           "the id's own name of the devices is the same target", target_id)
    for target in ("tpu", "tpu:", "tpu:v5e", "tpu:v5e-4", "tpu:v5e:", "tpu:v5e:x", "tpu:v5e:2x",
                   "tpu:v5e:0x2", "tpu:v5e:2x2x2x2", "tpu:v5litepod-4", "tpu::2x2",
                   "tpu:v5e:9999x9999", "tpu:v99:2x2", "tpu:v5e:2x3", "gpu", "gpu:", "gpu:h999",
                   "gpu:h100:0"):
        try:
            post(d, os.path.join(PJRT, "conv_bias_relu.hlo"), {}, target=target)
            report(False, "'%s' is refused" % target)
        except daemon.Refused as e:
            report(e.code == 400, "'%s' is refused" % target, str(e)[:110])
    report(b"\nhlod_worker_deaths_total 0\n" in d.raw("GET", "/metrics")[2],
           "no worker was lost over them")
    status, _, text = d.raw("GET", "/v1/executables/%s/stage/optimized" % digest, None,
                            {"Accept": "text/plain"})
    report(status == 200 and b"T(8,128)" in text and b"fusion(" in text,
           "the TPU compiler's module as text")
    got = {t["name"]: t for t in d.json("GET", "/v1/targets")["targets"]}
    report(got["tpu:v5e:2x2"].get("compiles") and not got[
               "tpu:v5e:2x2"].get("executes") and got["gpu:h100"].get("compiles"), "targets",
           got["tpu:v5e:2x2"]["executesWhy"])
    c = post(d, os.path.join(HERE, "sums.hlo"), {}, target="tpu:v5e:1x2", replicas=2)
    text = d.raw("GET", "/v1/executables/%s/stage/optimized" % c["digest"], None,
                 {"Accept": "text/plain"})[2]
    report(b"all-reduce" in text and c["executable"]["replicas"] == 2,
           "two replicas with an all-reduce for tpu:v5e:1x2")
    try:
        d.run(c["sourceDigest"], {"": np.zeros((8, 128), np.float32)}, device="tpu")
        report(False, "a run on a TPU that is not here")
    except daemon.Refused as e:
        report("no device worker for tpu" in str(e), "a run on a TPU that is not here",
               str(e)[:100])


def main():
    for name in ("tpu", "cuda"):
        install(name)
    with tempfile.TemporaryDirectory(dir="build/aot") as t, start(t + "/one") as one:
        for name, path, shapes in models():
            if not shapes:
                proto_twice(name, path)
            for target in (TPUS[:1] if nightly else TPUS) + GPUS:
                c = compile_one(one, name, path, shapes, target)
                if c and name == "conv+bias+relu" and target == TPUS[0]:
                    details(one, c)
        if not nightly:
            (conv, conv_path, _), (mlp, mlp_path, shapes) = models()[:2]
            reproducible(t, conv, conv_path, {}, TPUS[1])
            for target in TPUS[:1] + GPUS:
                reproducible(t, mlp, mlp_path, shapes, target)
    print("\n%-18s %-12s %28s %7s %8s %9s %11s %9s %7s %8s"
          % ("model", "target", "entry: before, ours, device", "total", "fusions", "artefact",
             "needs", "Gflop", "s", "peak RSS"))
    for r in rows:
        print("%-18s %-12s %14d %6d %6d %7d %8d %6.0f kB %8.1f MB %9.3f %7.1f %5.0f MB"
              % (*r[:7], r[7] / 1e3, r[8] / 1e6, r[9] / 1e9, r[10], r[11] / 1e6))


if __name__ == "__main__":
    main()
