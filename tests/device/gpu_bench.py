# SPDX-License-Identifier: Apache-2.0
"""The benches of gpu.py: one execution on the device (arguments there already) and a whole run with
transfers, beside the same graph in JAX and the same network in PyTorch, where they are."""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# NAME@BATCH, as tests/bench/bench.py
NETS = ("vgg19@100", "vgg19", "resnet18", "resnet50", "resnet50@32", "mobilenet_v2",
        "efficientnet_lite0", "bert_base", "gpt2")
TORCH = {"vgg19", "resnet18", "resnet50", "mobilenet_v2"}


def model(m, spec):
    """The file of a network; EfficientNet's comes with the kit, others are written here."""
    import bench
    name = spec.split("@")[0]
    os.makedirs(m.out + "/build/models", exist_ok=True)
    path = m.out + "/build/models/efficientnet_lite0.onnx"
    if not os.path.exists(path):
        os.symlink(m.kit + "/models/efficientnet_lite0.onnx", path)
    if name == "efficientnet_lite0":
        return path
    os.chdir(m.out)
    return os.path.join(m.out, bench.model(spec))


def bound(spec):
    """The size of the batch, where the network leaves it open."""
    return "--bind", "N=" + (spec.split("@") + ["1"])[1]


def write_models(m):
    """A process that writes the networks that are asked for, as far as this Python can."""
    nets = ["resnet18"] + [n for n in m.nets if n != "resnet18"]
    return subprocess.Popen([sys.executable, os.path.abspath(__file__), "models", m.kit, m.out,
                             ",".join(nets), ""], stdout=subprocess.DEVNULL,
                            stderr=subprocess.DEVNULL)


def ours(m, path, *more, device="pjrt", runs=20, env=None):
    """(ms of an execution, ms of a run with transfers), or what went wrong."""
    code, text = m.call("hlo-run", "--device", device, "--time", str(runs), "--profile", *more,
                        path, most=240, log="bench.log", env=env)
    run = re.search(r"run ms: median ([\d.]+)", text)
    main = re.search(r"^ *([\d.]+) ms .* pjrt:execute", text, re.M)
    if code != 0 or not run:
        return None, text.strip()[-300:]
    return float(main.group(1)) if main else None, float(run.group(1))


def peer(m, kind, spec, precision):
    """ms of an execution, or None."""
    try:
        p = subprocess.run([sys.executable, os.path.abspath(__file__), kind, m.kit, m.out, spec,
                            precision], capture_output=True, text=True, timeout=m.left(150),
                           env=dict(os.environ, XLA_PYTHON_CLIENT_PREALLOCATE="false"))
    except subprocess.TimeoutExpired:
        return None
    with open(m.out + "/peers.log", "a") as f:
        f.write("== %s %s %s\n%s\n%s\n" % (kind, spec, precision, p.stdout, p.stderr[-3000:]))
    lines = p.stdout.strip().splitlines()
    return float(lines[-1]) if p.returncode == 0 and lines else None


def text(ms):
    return "" if ms is None else "%.3f" % ms if ms < 10 else "%.1f" % ms


def bench(m):
    for precision in m.precisions:
        for spec in m.nets:
            if m.left(1000) < 60:
                print("SKIP gpu bench %s %s: no time is left" % (spec, precision), flush=True)
                continue
            try:
                path = model(m, spec)
            except ImportError as e:
                print("SKIP gpu bench %s: %s" % (spec, e), flush=True)
                continue
            execute, run = ours(m, path, "--precision", precision, *bound(spec))
            if not isinstance(run, float):
                print("FAIL gpu bench %s %s" % (spec, run), flush=True)
                continue
            jax = peer(m, "jax", spec, precision)
            torch = peer(m, "torch", spec, precision) if spec.split("@")[0] in TORCH else None
            row = ("%s, %s" % (spec, precision), text(run), text(execute), text(jax), text(torch))
            m.rows.append(row)
            print("  %-28s run %s, execution %s, JAX %s, PyTorch %s ms" % row, flush=True)


def trainings(m):
    for precision in m.precisions:
        training(m, precision)


def cpu(m):
    """The CPU device in f32 and in bf16 beside ONNX Runtime, two threads (tests/bench/bench.py)."""
    p = subprocess.run([sys.executable, os.path.join(HERE, "..", "bench", "bench.py"), m.bin,
                        "resnet18", "resnet50", "mobilenet_v2", "efficientnet_lite0", "bert_base",
                        "--peers", "onnxruntime", "--precision", "fast", "--rounds", "3"],
                       capture_output=True, text=True, timeout=m.left(200), cwd=m.out)
    print(p.stdout + p.stderr[-500:], flush=True)


def training(m, precision):
    """VGG19, batch 100, four steps of forward, backward, update in one execution."""
    if m.left(1000) < 100:
        return print("SKIP gpu training: no time is left", flush=True)
    source, to = model(m, "vgg19"), m.out + "/training.pb"
    spec = "loss=cross-entropy;optimizer=momentum;batch=100;rows=400"
    with open(to, "wb") as f:
        p = subprocess.run([m.bin + "/hlo-opt", "--to=proto", "--train=" + spec, source], stdout=f,
                           stderr=subprocess.PIPE, text=True, timeout=m.left(100))
    if p.returncode:
        return print("FAIL gpu training: " + p.stderr[-300:], flush=True)
    execute, run = ours(m, to, "--precision", precision, runs=3)
    row = ("VGG19 training, batch 100, 4 steps, " + precision,
           text(run) if isinstance(run, float) else run, text(execute), "", "")
    m.rows.append(row)
    print("  %-28s run %s, execution %s ms" % row[:3], flush=True)


def drawn(m, device, env, report):
    for spec in ("resnet18", "efficientnet_lite0"):
        _, run = ours(m, model(m, spec), *bound(spec), device=device, runs=5, env=env)
        if not isinstance(run, float):
            report(False, device + " " + spec, run)
            continue
        m.rows.append(("%s, %s, kernels of ours" % (spec, device), text(run), "", "", ""))


def table(rows):
    head = ("ms, medians", "hlod, with transfers", "hlod, execution", "JAX", "PyTorch")
    return ["| %s |" % " | ".join(r) for r in (head, ("---",) * 5, *rows)]


# ---- peers, in processes of their own

class At:
    def __init__(self, kit, out):
        self.kit, self.out, self.bin = kit, out, kit + "/bin"


def jax_peer(m, spec, precision):
    """The graph as we lower it, compiled by JAX's XLA for the GPU; all arguments on the device."""
    import time
    import jax
    import numpy as np
    import onnx
    import bench
    import zoo
    from jax._src.lib import xla_client as xc
    name, batch = bench.split(spec)
    path = model(m, spec)
    hlo = subprocess.run([m.bin + "/hlo-opt", "--bind", "N=%d" % batch, path], check=True,
                         capture_output=True, text=True).stdout
    if precision != "fast":
        hlo = re.sub(r"^(.* (?:dot|convolution)\(.*f32|.* (?:dot|convolution)\(.*)$",
                     r"\1, operand_precision={highest,highest}", hlo, flags=re.M)
    inputs = ({"image": np.random.default_rng(1).standard_normal((1, 3, 224, 224), np.float32)}
              if name == "efficientnet_lite0" else
              {"ids": np.random.default_rng(1).integers(0, 50257, (1, bench.TOKENS))}
              if name == "gpt2" else zoo.sample_inputs(name, batch))
    weights = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
    args = []
    for p in [x for x in hlo.split("ENTRY")[1].splitlines() if " parameter(" in x]:
        number, n = int(p.split(" parameter(")[1].split(")")[0]), p.split("%")[1].split(" ")[0]
        if n not in inputs and n not in weights:
            n = n[:-1]  # the name of a node was the same, and the parameter's got a line behind
        args.append((number, inputs[n] if n in inputs else weights[n]))
    try:
        from jaxlib import _hlo
        proto = _hlo.hlo_module_from_text(hlo).as_serialized_hlo_module_proto()
    except ImportError:
        proto = xc._xla.hlo_module_from_text(hlo).as_serialized_hlo_module_proto()
    from jax._src.lib import _jax
    device = jax.devices("gpu")[0]
    stable = _jax.mlir.hlo_to_stablehlo(proto)
    exe = device.client.compile_and_load(stable, _jax.DeviceList((device,)), xc.CompileOptions())
    jax.config.update("jax_enable_x64", True)
    bufs = [jax.device_put(np.asarray(a), device) for _, a in sorted(args, key=lambda x: x[0])]

    def run():
        t = time.perf_counter()
        for o in exe.execute(bufs):
            o.block_until_ready()
        return (time.perf_counter() - t) * 1e3
    return run


def torch_peer(m, spec, precision):
    """torchvision's network, eager, random weights, channels last under `fast` as cuDNN likes."""
    import time
    import torch
    import torchvision
    import bench
    name, batch = bench.split(spec)
    fast = precision == "fast"
    torch.backends.cuda.matmul.allow_tf32 = fast
    torch.backends.cudnn.allow_tf32 = fast
    torch.backends.cudnn.benchmark = True
    net = getattr(torchvision.models, name)(weights=None).eval().cuda()
    x = torch.randn(batch, 3, 224, 224, device="cuda")

    @torch.inference_mode()
    def run():
        t = time.perf_counter()
        net(x)
        torch.cuda.synchronize()
        return (time.perf_counter() - t) * 1e3
    return run


def main():
    import statistics
    kind, kit, out, spec, precision = sys.argv[1:]
    sys.path[:0] = [os.path.join(HERE, "..", "models"), os.path.join(HERE, "..", "bench")]
    if kind == "models":
        for n in spec.split(","):
            model(At(kit, out), n)
        return
    run = (jax_peer if kind == "jax" else torch_peer)(At(kit, out), spec, precision)
    for _ in range(3):
        run()
    print("%.4f" % statistics.median(run() for _ in range(20)))


if __name__ == "__main__":
    main()
