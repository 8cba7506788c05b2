# SPDX-License-Identifier: Apache-2.0
"""Memory beside ONNX Runtime and OpenVINO: each loads a model in a process of its own and runs it
five times on two threads, f32.

    memory.py BUILD [MODEL[@BATCH] ...] [--peers onnxruntime,openvino] [--strict]

What is compared is the peak of the resident set (VmHWM): all pages of the process, those of mapped
files too, which the kernel could take back. Beside it, in brackets, the most anonymous memory that
was seen (looked at every 2 ms: a lower bound) and the proportional set size (PSS) after the runs,
where pages that processes share count in part. hlod is `hlo-run`, compiler and device in one
process (bench-zoo measures the daemon's workers); the peers' processes hold Python and NumPy, some
30 MB. The ratio is to hlod's peak. --strict: status 1 where hlod takes more than ONNX Runtime.
"""
import argparse
import os
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "models")]
import bench

MODELS = ["mlp", "mobilenet_v2", "efficientnet_lite0", "resnet18", "resnet50", "vgg19",
          "bert_base", "gpt2"]
RUNS = 5


def made(shapes, batch):
    """Random arrays for (name, element type, dims)."""
    import numpy as np
    r = np.random.default_rng(1)
    full = {n: (t, [d if isinstance(d, int) else batch for d in dims]) for n, t, dims in shapes}
    return {n: np.ones(dims, np.int64) if "64" in t else r.standard_normal(dims, dtype=np.float32)
            for n, (t, dims) in full.items()}


def peer(kind, path, batch):
    """In its own process (bench.serve)."""
    if kind == "onnxruntime":
        import onnxruntime as ort
        o = ort.SessionOptions()
        o.intra_op_num_threads = 2
        s = ort.InferenceSession(path, o)
        inputs = made([(i.name, i.type, i.shape) for i in s.get_inputs()], batch)
        bench.serve(lambda: s.run(None, inputs))
    import openvino as ov
    m = ov.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 2,
                                              "PERFORMANCE_HINT": "LATENCY",
                                              "INFERENCE_PRECISION_HINT": "f32"})
    inputs = made([(i.any_name, i.element_type.get_type_name(),
                    [d.get_length() if d.is_static else None for d in i.partial_shape])
                   for i in m.inputs], batch)
    r = m.create_infer_request()
    bench.serve(lambda: r.infer(inputs))


def status(pid, name, file="status"):
    """MB."""
    try:
        with open("/proc/%d/%s" % (pid, file)) as f:
            return next((int(x.split()[1]) / 1024 for x in f if x.startswith(name + ":")), 0)
    except OSError:
        return 0


class Watch:
    """The most anonymous memory of a process."""

    def __init__(self, pid):
        self.pid, self.anon, self.over = pid, 0, False
        self.t = threading.Thread(target=self.look)
        self.t.start()

    def look(self):
        while not self.over:
            self.anon = max(self.anon, status(self.pid, "RssAnon"))
            time.sleep(0.002)

    def end(self):
        """(peak, anonymous, PSS)"""
        self.over = True
        self.t.join()
        return (status(self.pid, "VmHWM"), self.anon,
                status(self.pid, "Pss", "smaps_rollup"))


def measured(command):
    p = bench.Peer(command)
    watch = Watch(p.p.pid)
    ok = p.ask(1) and p.ask(RUNS - 1)
    found = watch.end()
    p.close()
    return found if ok else None


def cell(found, ours):
    if not found:
        return "%34s" % "not here"
    return "%34s" % ("%.0f (%.0f, %.0f) x%.2f" % (*found, found[0] / ours))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("models", nargs="*", default=MODELS)
    a.add_argument("--peers", default="onnxruntime,openvino")
    a.add_argument("--strict", action="store_true")
    a.add_argument("--worker")
    o = a.parse_args()
    if o.worker:
        return peer(o.worker, o.models[0], int(o.models[1]))
    kinds = [k for k in o.peers.split(",") if k]
    print("%-20s" % "model" + "".join("%34s" % k for k in ["hlod"] + kinds) +
          "    (MB: peak (anonymous, PSS), ratio)")
    more = []  # models
    for spec in o.models:
        path, batch = bench.model(spec), bench.split(spec)[1]
        ours = measured([o.build + "/hlo-run", "--bind", "N=%d" % batch, path, "--loop"])
        row = "%-20s" % spec + cell(ours, ours[0] if ours else 1)
        for k in kinds:
            found = measured([sys.executable, os.path.abspath(__file__), o.build, path, str(batch),
                              "--worker", k])
            row += cell(found, ours[0] if ours else float("nan"))
            if k == "onnxruntime" and found and (not ours or ours[0] > found[0]):
                more.append(spec)
        print(row, flush=True)
    if more:
        print("more than ONNX Runtime takes: " + " ".join(more))
    return o.strict and bool(more)


if __name__ == "__main__":
    sys.exit(main())
