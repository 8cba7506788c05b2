# SPDX-License-Identifier: Apache-2.0
"""Latency of a run beside ONNX Runtime, OpenVINO and JAX on this CPU: two threads, f32, interleaved
in one session, medians.

    bench.py BUILD [MODEL[@BATCH] ...] [--rounds N] [--precision fast]

Each runtime lives in a process of its own and is asked in turn for a few runs; what is compared is
one run, without transport. hlod's side is hlo-run, which is the device without the daemon. JAX runs
the same graph as XLA compiles it: our unoptimised HLO text through XLA:CPU. With --precision fast,
hlod's first column is that, OpenVINO takes the precision it likes best, and hlod's f32 is a column
more. Peers that are not installed are left out aloud (`deploy/setup.sh bench` installs them).
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
# NAME@BATCH
MODELS = ["resnet18", "resnet50", "vgg19", "mobilenet_v2", "efficientnet_lite0", "bert_base",
          "gpt2", "vgg19@100"]
TOKENS = 64 # of gpt2


def serve(run):
    """Worker side: a line with a number of runs in, their times in ms out."""
    run()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            t = time.perf_counter()
            run()
            times.append((time.perf_counter() - t) * 1e3)
        print(" ".join("%.4f" % t for t in times), flush=True)


def split(spec):
    name, _, batch = spec.partition("@")
    return name, int(batch or 1)


def gpt2(path, s=TOKENS, d=768, vocab=50257):
    """GPT-2's sizes, random weights; the head is the embedding, transposed."""
    import numpy as np
    from transformers import Graph, gpt_layers
    g = Graph()
    table = g.weight(vocab, d, scale=0.02)
    x = g.op("Gather", table, g.input("ids", np.zeros((1, s), np.int64)))
    x = g.op("Add", x, g.weight(s, d, scale=0.02))
    x = gpt_layers(g, x, 1, 0, s, d, 12, 12)
    g.output(g.op("MatMul", x, g.op("Transpose", table, perm=[1, 0])))
    g.save(path)


def model(spec):
    import zoo
    name, batch = split(spec)
    if name == "efficientnet_lite0":
        import efficientnet
        path = os.path.join("build/models", name + ".onnx")
        if not os.path.exists(path):
            efficientnet.main("build/models")
        return path
    if name == "gpt2":
        path = os.path.join("build/models", name + ".onnx")
        if not os.path.exists(path):
            gpt2(path + ".tmp")
            os.replace(path + ".tmp", path)
        return path
    return zoo.ensure("build/models", name, batch)


def worker(kind, build, spec, precision):
    import numpy as np
    import zoo
    name, batch = split(spec)
    path = model(spec)
    if name == "efficientnet_lite0":
        inputs = {"image": np.random.default_rng(1).standard_normal(
                      (batch, 3, 224, 224), dtype=np.float32)}
    elif name == "gpt2":
        inputs = {"ids": np.random.default_rng(1).integers(0, 50257, (1, TOKENS))}
    else:
        inputs = zoo.sample_inputs(name, batch)
    if kind == "onnxruntime":
        import onnxruntime as ort
        o = ort.SessionOptions()
        o.intra_op_num_threads = 2
        s = ort.InferenceSession(path, o)
        serve(lambda: s.run(None, inputs))
    if kind == "openvino":
        import openvino as ov
        m = ov.Core().compile_model(path, "CPU",
                                    dict({"INFERENCE_NUM_THREADS": 2,
                                          "PERFORMANCE_HINT": "LATENCY"},
                                         **({} if precision else
                                            {"INFERENCE_PRECISION_HINT": "f32"})))
        r = m.create_infer_request()
        serve(lambda: r.infer(inputs))
    if kind == "jax":
        import onnx
        from jax._src import xla_bridge
        from jax._src.lib import _jax, xla_client as xc
        from jaxlib import _hlo
        import jax
        text = subprocess.run([os.path.join(build, "hlo-opt"), "--bind", "N=%d" % batch, path],
                              check=True, capture_output=True, text=True).stdout
        b = xla_bridge.get_backend("cpu")
        stable = _jax.mlir.hlo_to_stablehlo(
            _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
        exe = b.compile_and_load(stable, _jax.DeviceList(tuple(b.local_devices()[:1])),
                                 xc.CompileOptions())
        weights = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
        args = []
        for p in [l for l in text.split("ENTRY")[1].splitlines() if " parameter(" in l]:
            number = int(p.split(" parameter(")[1].split(")")[0])
            name = p.split("%")[1].split(" ")[0]
            if name not in inputs and name not in weights:
                name = name[:-1]  # a node was named the same: the parameter's got a line behind
            args.append((number, inputs[name] if name in inputs else weights[name]))
        bufs = [jax.device_put(np.asarray(a), b.local_devices()[0])
                for _, a in sorted(args, key=lambda x: x[0])]
        serve(lambda: [o.block_until_ready() for o in exe.execute(bufs)])


class Peer:
    def __init__(self, command, threads=2):
        env = dict(os.environ, OMP_NUM_THREADS=str(threads), JAX_PLATFORMS="cpu",
                   JAX_ENABLE_X64="1", XLA_FLAGS="--xla_cpu_multi_thread_eigen=true",
                   TF_CPP_MIN_LOG_LEVEL="3")
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, text=True, env=env)
        self.times = []

    def ask(self, n):
        try:
            self.p.stdin.write("%d\n" % n)
            self.p.stdin.flush()
        except BrokenPipeError:  # it ended before it was asked
            return False
        while True:
            line = self.p.stdout.readline()
            if not line:
                return False
            if line.strip() and line[0].isdigit():
                self.times += [float(t) for t in line.split()]
                return True

    def close(self):
        try:
            self.p.stdin.close()
        except BrokenPipeError:
            pass
        self.p.wait(30)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("models", nargs="*", default=MODELS)
    a.add_argument("--rounds", type=int, default=7)
    a.add_argument("--peers", default="onnxruntime,openvino,jax",
                   help="which (all live at once: a large batch needs memory for each)")
    a.add_argument("--precision", default="", choices=["", "fast"])
    a.add_argument("--worker")
    o = a.parse_args()
    if o.worker:
        return worker(o.worker, o.build, o.models[0], o.precision)
    kinds = ["hlod"] + ["hlod f32"] * (o.precision != "") + [k for k in o.peers.split(",") if k]
    print("%-14s" % "model" + "".join("%22s" % k for k in kinds)
          + "    (median ms, ratio to hlod; %d rounds)" % o.rounds)
    for name in o.models:
        path, batch = model(name), split(name)[1]
        ours = [os.path.join(o.build, "hlo-run"), "--bind", "N=%d" % batch, path, "--loop"]
        peers = {"hlod": Peer(ours + ["--precision", o.precision or "default"])}
        for k in kinds[1:]:
            peers[k] = Peer(ours if k == "hlod f32" else
                            [sys.executable, os.path.abspath(__file__), o.build, name, "--worker",
                             k, "--precision", o.precision])
        alive = {k: p.ask(1) for k, p in peers.items()}
        for p in peers.values():
            p.times = []
        rounds, runs = (o.rounds, 5) if batch < 16 else (min(o.rounds, 3), 1)
        for _ in range(rounds):
            for k, p in peers.items():
                # threads of the one before may still spin, waiting for work: not the next one's
                # cost
                time.sleep(0.05)
                alive[k] = alive[k] and p.ask(runs)
        ours = statistics.median(peers["hlod"].times) if peers["hlod"].times else float("nan")
        row = "%-14s" % name
        for k in kinds:
            t = peers[k].times
            row += "%22s" % ("%.2f (x%.2f)" % (statistics.median(t), statistics.median(t) / ours)
                             if t else "not here")
        print(row, flush=True)
        for p in peers.values():
            p.close()


if __name__ == "__main__":
    sys.exit(main())
