# SPDX-License-Identifier: Apache-2.0
"""make bench-zoo: every model of the zoo beside ONNX Runtime: latency of a run, compile time beside
session creation, memory.

    bench.py BUILD [--models REGEX] [--which all|packages|families|small] [--rounds N] [--limit
    SECONDS] [--json FILE] [--threads N] [--least]

Each model has a fresh daemon and a fresh process of ONNX Runtime, two threads each, that run in
turn: in a round each runs as often as fits 0.1 s (at most 100 times), and 50 ms pass in between, so
that no one pays for the other's spinning threads. hlod's times are the device's own (`runMs`:
without transport, with the copies of inputs and outputs), ONNX Runtime's those of `run` from NumPy
arrays to NumPy arrays. "ready" is what stands between the file and the first run: ingest, compile,
load and prepare against creating the session. Memory: the peak resident size of worker or process
less what it had before the model. A model below 0.8 is measured twice more at the end, and the
median of the three counts: single outliers of a noisy machine are not its speed. All three lines
are printed.

At the end: geometric means, how many are behind, the worst ten with the step of hlod's profile that
costs most, and its share. The line's ratio is ONNX Runtime's time over
ours: above 1 hlod is ahead. A step that takes more than ten times what the cost model says
(`estimateMs` of the profile, docs/performance.md) is a cliff: named, and the exit code is 1. Its
time is the median over rounds (costly): where the first profile, itself the median of several runs,
has a step beyond, CLIFF_ROUNDS more follow, and those whose steps together take more than DISTURBED
times a run without a profile are not counted, since something else took the processors; no step
counts for more than its share of such a run. It must take more than 0.05 ms or a tenth of the run.
--steps FILE: all steps, one JSON object a model.
"""
import argparse
import json
import math
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models  # noqa: E402
import side  # noqa: E402

BEHIND = 0.8  # a ratio below is a failure of the aim


def peer():
    """ONNX Runtime in a process of its own: argv model, inputs, threads. Says "ready MS BYTES";
    then a line with a number of runs in, their times in ms out."""
    path, inputs, threads = sys.argv[2:5]
    with open(inputs, "rb") as f:
        ins = pickle.load(f)
    before = side.peak()
    start = time.perf_counter()
    s = models.session(path, int(threads))
    made = (time.perf_counter() - start) * 1e3
    s.run(None, ins)
    print("ready %.3f %d" % (made, side.peak() - before), flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            t = time.perf_counter()
            s.run(None, ins)
            times.append((time.perf_counter() - t) * 1e3)
        print("times " + " ".join("%.5f" % t for t in times), flush=True)


class OnnxRuntime:
    def __init__(self, m, threads):
        path = m.twin if m.numbers == "bf16" else m.path
        self.file = tempfile.NamedTemporaryFile(suffix=".pickle")
        pickle.dump(m.inputs(), self.file)
        self.file.flush()
        self.p = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--peer", path,
                                   self.file.name, str(threads)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        words = self.line("ready")
        self.made, self.bytes = float(words[0]), int(words[1])

    def line(self, kind):
        for text in self.p.stdout:
            if text.startswith(kind + " "):
                return text.split()[1:]
        raise RuntimeError("ONNX Runtime does not run it")

    def times(self, n):
        self.p.stdin.write("%d\n" % n)
        self.p.stdin.flush()
        return [float(t) for t in self.line("times")]

    def end(self):
        self.p.stdin.close()
        self.p.wait(60)
        self.file.close()


def runs_for(ms):
    return max(1, min(100, int(100 / max(ms, 1e-3))))


CLIFF = 10  # times the estimate; ESTIMATE_CLIFF of compiler/plan/estimate.h
CLIFF_ROUNDS = 8
DISTURBED = 1.5


def top_rows(profile):
    return [r for r in profile.get("rows", []) if not r.get("depth")]


def said(r):
    return "%s %s (%s)" % (r.get("name", "?"), r.get("impl", "?"),
                           (r.get("nodes") or [r.get("op", "")])[0])


def whole(profile):
    return sum(r.get("ms", 0) for r in top_rows(profile))


def costly(profiles, run_ms):
    """(text, share) of the step that takes most, and a text for each cliff, by medians over the
    profiles. `run_ms`: what a run takes without one; where none of the profiles is near it, the
    shortest count, and a step's time is its share of `run_ms`: a profile of some microseconds finds
    colder caches than runs do, and no step takes longer than a run."""
    calm = max(DISTURBED * run_ms, min(map(whole, profiles)))
    rows, times = top_rows(profiles[0]), {}
    for p in profiles:
        if whole(p) <= calm:
            for r in top_rows(p):
                times.setdefault(r["name"], []).append(r.get("ms", 0))
    ms = {name: statistics.median(v) for name, v in times.items()}
    total = sum(ms.values()) or 1e-9
    warm = min(1, run_ms / total)
    rows = [r for r in rows if r["name"] in ms]
    if not rows:
        return "", 0.0, []
    top = max(rows, key=lambda r: ms[r["name"]])
    cliffs = ["%s: %.3f ms, estimated at %.3f" % (said(r), warm * ms[r["name"]], r["estimateMs"])
              for r in rows
              if warm * ms[r["name"]] > CLIFF * r.get("estimateMs", 0) > 0
              and ms[r["name"]] > min(0.05, 0.1 * total)]
    return said(top), ms[top["name"]] / total, cliffs


def profiled(h, m, inputs, run_ms):
    """Profiles: one, and CLIFF_ROUNDS more where that one has a cliff; apart from what ran before,
    and from each other, each behind runs that warm the caches."""
    def ask():
        time.sleep(0.05)
        h.run(m.path, inputs, repeat=max(1, runs_for(run_ms) // 10))
        return h.run(m.path, inputs, profile=True)[1].get("profile", {})
    found = [ask()]
    return found + [ask() for _ in range(CLIFF_ROUNDS)] if costly(found, run_ms)[2] else found


def measure(o, m):
    """A row of the table; "error" says what did not run."""
    row = {"model": m.name, "package": m.package, "numbers": m.numbers}
    try:
        theirs = OnnxRuntime(m, o.threads)
    except Exception as e:
        return dict(row, skip=str(e))
    inputs = m.inputs()
    try:
        with side.Hlod(o.build, o.limit, o.threads) as h:
            h.start()
            before = h.memory()
            _, first = h.run(m.path, inputs)
            step = {t["name"]: t["ms"] for t in first["timings"]}
            row.update(readyMs=sum(step.get(k, 0)
                                   for k in ("ingest", "compile", "load", "prepare")), steps=step,
                       ortReadyMs=theirs.made, ortBytes=theirs.bytes)
            ours, other = [], []
            n, k = (runs_for(statistics.median(h.run(m.path, inputs, repeat=2)[1]["runMs"])),
                    runs_for(statistics.median(theirs.times(2))))
            end = time.monotonic() + o.limit
            for _ in range(o.rounds):
                time.sleep(0.05)
                ours += h.run(m.path, inputs, repeat=n)[1]["runMs"]
                time.sleep(0.05)
                other += theirs.times(k)
                if time.monotonic() > end:
                    break
            pick = min if o.least else statistics.median
            row.update(ms=pick(ours), ortMs=pick(other), minMs=min(ours), ortMinMs=min(other),
                       bytes=h.memory() - before)
            profiles = profiled(h, m, inputs, row["ms"])
            row["top"], row["share"], row["cliffs"] = costly(profiles, row["ms"])
            if o.steps:
                with open(o.steps, "a") as f:
                    f.write(json.dumps({"model": m.name, "rows": top_rows(profiles[-1])}) + "\n")
            row["ratio"], row["readyRatio"] = row["ortMs"] / row["ms"], row["ortReadyMs"] / max(
                row["readyMs"], 1e-3)
    except side.Stuck as e:
        row["error"] = str(e)
    except side.daemon.Refused as e:
        row["error"] = "%d %s" % (e.code, e.body.get("message", ""))
    theirs.end()
    return row


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def summary(rows):
    done = [r for r in rows if "ratio" in r]
    print("\n%d models: %d measured, %d not run by hlod, %d not by ONNX Runtime"
          % (len(rows), len(done), sum("error" in r for r in rows), sum("skip" in r for r in rows)))
    if not done:
        return 0
    for numbers in ["all"] + sorted({r["numbers"] for r in done}):
        part = [r for r in done if numbers in ("all", r["numbers"])]
        print("%-5s %3d models: hlod ahead %.2f times (geometric mean), ahead of 1 on %d, below "
              "%.1f on %d; ready %.2f times as fast as a session; memory %.2f of theirs"
              % (numbers, len(part), mean([r["ratio"] for r in part]),
                 sum(r["ratio"] > 1 for r in part), BEHIND, sum(r["ratio"] < BEHIND for r in part),
                 mean([r["readyRatio"] for r in part]),
                 mean([max(r["bytes"], 1) / max(r["ortBytes"], 1) for r in part])))
    print("worst ten, with the step that costs most and its share:")
    for r in sorted(done, key=lambda r: r["ratio"])[:10]:
        print("  %-24s %6.3f  %3.0f%% %s" % (r["model"], r["ratio"], 100 * r["share"], r["top"]))
    for r in done:
        for c in r["cliffs"]:
            print("  CLIFF %s: %s" % (r["model"], c))
    return sum(len(r["cliffs"]) for r in done)


def show(r):
    if "ratio" in r:
        print("%-26s %9.3f %9.3f %7.2f   %9.1f %9.1f %7.2f  %7.1f %7.1f  %2.0f%% %s" % (
                  r["model"], r["ms"], r["ortMs"], r["ratio"], r["readyMs"], r["ortReadyMs"],
                  r["readyRatio"], r["bytes"] / 1e6, r["ortBytes"] / 1e6, 100 * r["share"],
                  r["top"]), flush=True)
    else:
        print("%-26s %s" % (r["model"], r.get("error") or "left out: " + r["skip"]), flush=True)


def again(o, m, first):
    """The median of three measurements; the first where another fails."""
    more = [measure(o, m) for _ in range(2)]
    for r in more:
        show(r)
    three = [first] + more
    return sorted(three, key=lambda r: r["ratio"])[1] if all("ratio" in r for r in three) else first


def main():
    if sys.argv[1:2] == ["--peer"]:
        return peer()
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--models", default=".", help="regular expression over names and packages")
    a.add_argument("--which", default="all", choices=["all", "packages", "families", "small"])
    a.add_argument("--rounds", type=int, default=7)
    a.add_argument("--limit", type=float, default=120,
                   help="seconds for one request, and for one model's rounds")
    a.add_argument("--threads", type=int, default=2)
    a.add_argument(
        "--least", action="store_true",
        help="compare the least times instead of the medians: on a machine with other work")
    a.add_argument("--json", help="a file for all rows")
    a.add_argument("--steps", help="a file for the steps of all profiles, to be appended to")
    o = a.parse_args()
    print("%-26s %9s %9s %7s   %9s %9s %7s  %7s %7s  %s"
          % ("model", "hlod ms", "ORT ms", "ratio", "ready ms", "session", "ratio", "MB", "ORT MB",
             "costs most"))
    rows = []
    behind = []
    for m in models.chosen(o.models, o.which):
        rows.append(measure(o, m))
        show(rows[-1])
        if rows[-1].get("ratio", 1) < BEHIND:
            behind.append((len(rows) - 1, m))
    for i, m in behind:
        rows[i] = again(o, m, rows[i])
    cliffs = summary(rows)
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"threads": o.threads, "rounds": o.rounds, "rows": rows}, f, indent=1)
    return 0 if any("ratio" in r for r in rows) and not cliffs else 1


if __name__ == "__main__":
    sys.exit(main())
