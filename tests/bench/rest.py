# SPDX-License-Identifier: Apache-2.0
"""The first run after a pause: hlod (hlo-run, the device without the daemon) and ONNX Runtime in
turn, two threads each, f32.

    rest.py BUILD [MODEL[@BATCH] ...] [--before BUILD] [--rounds N] [--busy N] [--first]

A round is ten runs, 50 ms of rest and one run more, by each. steady: the median of the ten; first:
the one behind the rest; ratio: of the two. All are medians over rounds. --before: another build in
the same turns. --busy: so many loops beside them, the first on processor 1. --first: what is
measured comes before the rest of the machine (autogroups at -20, as docs/decisions/0020 has it), so
that others' work hardly counts; needs root.
"""
import argparse
import os
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import bench  # noqa: E402

MODELS = ["mlp", "mobilenet_v2", "resnet18"]
RUNS, REST_S = 10, 0.05
OWN = "HLOD_BENCH_OWN_SESSION"


def peers(o, spec):
    path, batch = bench.model(spec), bench.split(spec)[1]
    builds = {"hlod": o.build, **({"before": o.before} if o.before else {})}
    found = {name: bench.Peer([build + "/hlo-run", "--bind", "N=%d" % batch, path, "--loop"])
             for name, build in builds.items()}
    found["ONNX Runtime"] = bench.Peer([sys.executable, os.path.join(HERE, "bench.py"), o.build,
                                        spec, "--worker", "onnxruntime"])
    return found


def one_round(p):
    """(steady, first, ratio), or None where it does not answer."""
    p.times = []
    time.sleep(REST_S)  # threads of the one before may still look for work
    if not p.ask(RUNS):
        return None
    time.sleep(REST_S)
    if not p.ask(1):
        return None
    steady, first = statistics.median(p.times[:RUNS]), p.times[RUNS]
    return steady, first, first / steady


def measure(o, spec):
    all_of = peers(o, spec)
    rows = {name: [] for name in all_of}
    try:
        for p in all_of.values():
            p.ask(RUNS)
        for _ in range(o.rounds):
            for name, p in all_of.items():
                got = one_round(p)
                if not got:
                    raise SystemExit("%s, %s: no answer" % (spec, name))
                rows[name].append(got)
    finally:
        for p in all_of.values():
            p.close()
    for name, r in rows.items():
        print("| %s | %s | %.3f | %.3f | %.2f |" % (
            spec, name, *(statistics.median(x) for x in zip(*r))), flush=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("models", nargs="*", default=MODELS)
    a.add_argument("--before")
    a.add_argument("--rounds", type=int, default=40)
    a.add_argument("--busy", type=int, default=0)
    a.add_argument("--first", action="store_true")
    o = a.parse_args()
    if o.first and not os.environ.get(OWN):  # an autogroup is a session's
        os.environ[OWN] = "1"
        os.execvp("setsid", ["setsid", "-w", sys.executable, *sys.argv])
    if o.first:
        with open("/proc/self/autogroup", "w") as f:
            f.write("-20")

    loop = ("echo -20 > /proc/self/autogroup; " if o.first else "") + "while :; do :; done"
    loops = [subprocess.Popen(["taskset", "-c", str(1 - k % 2), "sh", "-c", loop],
                              start_new_session=True) for k in range(o.busy)]
    print("| model | | steady ms | first ms | ratio |\n|---|---|---|---|---|", flush=True)
    try:
        for spec in o.models:
            measure(o, spec)
    finally:
        for p in loops:
            p.kill()
            p.wait()


if __name__ == "__main__":
    sys.exit(main())
