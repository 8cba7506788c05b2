#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an export of traces costs: the tiny MLP over HTTP with 8 requests in flight by `hlo bench`,
all of them traced, on daemons of one build that export nothing, to a collector over gRPC and over
HTTP (bare_grpc.c, bare_http.c: it takes all and keeps nothing), and to one that never answers. A
second daemon without an export shows what is noise. All take turns in each round, whose order
changes; figures are medians over rounds, ratios medians of the rounds' ratios to the first.
Processor time, which a busy machine changes little, is the daemon's, and that of the daemon and its
workers, the whole cost of a request here: where that is what limits, requests/s are as its inverse.
`told`: of the spans of a round, those that were sent, not dropped.
Usage: traces.py BUILD [--rounds N] [--seconds S] [--in-flight N] [--strict]
--strict: status 1 where a hung collector changes a p99 by more than the second daemon without an
export does, or 10 %; or where full sampling takes more than 3 % more processor time for a request,
daemon and workers together."""
import argparse, os, socket, subprocess, sys, tempfile, time
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "models")]
from serve import Bare, Bench

def processor_s(pid):
    """by the process's own clock (clock_getcpuclockid), which counts nanoseconds, not ticks"""
    return time.clock_gettime((~pid << 3) | 2)

def workers(pid):
    return [int(p) for t in os.listdir(f"/proc/{pid}/task")
            for p in open(f"/proc/{pid}/task/{t}/children").read().split()]

class Traced:
    """A daemon with the model, named m, and what it exports."""
    def __init__(self, o, model, *args):
        from harness import Daemon
        self.args = args
        env = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
        self.d = Daemon(o.build + "/hlod", o.build + "/hlod-worker", args=args, env=env)
        self.addr = "%s:%d" % self.d.addr
        subprocess.run([o.build + "/hlo", "--addr", self.addr, "models", "set", "m", model,
                        "--shape", "x=1x784"], check=True, stdout=subprocess.DEVNULL, timeout=60)
    def spans(self):
        from harness import metric
        return [metric(self.d, f"hlod_otlp_spans{x}_total") for x in ("", "_dropped")]

def measure(b, name, t, inputs, o):
    all = [t.d.p.pid, *workers(t.d.p.pid)]
    before, sent = [processor_s(p) for p in all], t.spans()
    r = b.run(name, t.addr, "m", inputs, "http", o.in_flight, body="json")
    n = r["requests"] + o.in_flight  # the warm ones, too
    used = [(processor_s(p) - x) * 1e6 / n for p, x in zip(all, before)]
    r["cpuUs"], r["allUs"] = used[0], sum(used)
    taken, dropped = (x - y for x, y in zip(t.spans(), sent))
    r["told"] = taken / (taken + dropped) if taken + dropped else 0

def report(b, names, o):
    first = names[0]
    print("| export | requests/s | p50 ms | p99 ms | daemon us | and workers us | requests/s | "
          "p99 | daemon | and workers | told |\n" + "|---" * 11 + "|")
    for n in names:
        rate, p99, cpu, all = (b.ratio(n, first, f)
                               for f in ("requestsPerS", "p99Ms", "cpuUs", "allUs"))
        told = f"{b.median(n, 'told'):.0%}" if n not in names[:2] else "-"
        print(f"| {n} | {b.median(n, 'requestsPerS'):.0f} | {b.median(n, 'p50Ms'):.3f} | "
              f"{b.median(n, 'p99Ms'):.3f} | {b.median(n, 'cpuUs'):.1f} | "
              f"{b.median(n, 'allUs'):.1f} | {rate:.3f} | {p99:.3f} | {cpu:.3f} | {all:.3f} | "
              f"{told} |")
    noise = max(0.1, abs(b.ratio(names[1], first, "p99Ms") - 1))
    hung = b.ratio("hung", first, "p99Ms")
    missed = [] if hung <= 1 + noise else [f"hung: p99 {hung:.2f} times"]
    for n in "grpc", "http":
        more = b.ratio(n, first, "allUs") - 1
        if more > 0.03:
            missed.append(f"{n}: {more:.1%} more processor time")
    print("\n".join(f"MISSED {m}" for m in missed) or "met")
    return 1 if missed and o.strict else 0

def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--rounds", type=int, default=9)
    a.add_argument("--seconds", type=float, default=2)
    a.add_argument("--in-flight", type=int, default=8)
    a.add_argument("--strict", action="store_true")
    o = a.parse_args()
    import numpy as np
    import zoo
    model = os.path.abspath(zoo.ensure("build/models", "mlp"))
    b, ends, all = Bench(o.build + "/hlo", f"{o.seconds * 1e3:.0f}ms"), [], {}
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as hung:
        inputs = folder + "/x.npy"
        np.save(inputs, zoo.sample_inputs("mlp", 1)["x"])
        ways = {"none": (), "none again": ()}
        for name, protocol in ("grpc", "grpc"), ("http", "http/protobuf"):
            ends.append(Bare(f"{o.build}/bench/bare_{name}", 0))
            ways[name] = ("--otlp-endpoint", f"http://{ends[-1].addr}", "--otlp-protocol", protocol)
        ways["grpc, request"] = (*ways["grpc"], "--otlp-detail", "request")
        ways["hung"] = ("--otlp-protocol", "http/protobuf", "--otlp-endpoint",
                        "http://127.0.0.1:%d" % hung.getsockname()[1])
        try:
            for name, args in ways.items():
                all[name] = Traced(o, model, *args)
            for round in range(-1, o.rounds):
                names = list(ways)
                for name in names[round % len(names):] + names[:round % len(names)]:
                    measure(b, name, all[name], "x=@" + inputs, o)
                if round < 0:  # warm
                    b.rows.clear()
        finally:
            for t in all.values():
                t.d.stop()
            for e in ends:
                e.stop()
    return report(b, list(ways), o)

if __name__ == "__main__":
    sys.exit(main())
