#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The wall clock is set while a daemon works (moved_clock.c, preloaded into it and its workers):
what lasts so many seconds (leases, deadlines, quotas, uploads, aside) goes by the monotonic clock.
Usage: clock.py --hlod BIN --worker BIN --preload SO [NAME...]"""
import argparse, datetime, mmap, os, struct, sys, tempfile, threading, time
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
from harness import FOREVER_MS, PATIENCE, Daemon, Results, chosen, in_thread, metric, until
from sim import good, program, put, run

YEAR = 365 * 86400
STEPS = YEAR, -YEAR, 3600, -3600, 10 * YEAR, -20 * YEAR, 0

class Clock:
    """Of a daemon: step(s) sets it so many seconds before or behind ours."""
    def __init__(self, folder):
        self.path = os.path.join(folder, "clock")
        with open(self.path, "wb") as f:
            f.write(bytes(8))
        with open(self.path, "r+b") as f:
            self.page = mmap.mmap(f.fileno(), 8)
    def step(self, seconds):
        struct.pack_into("<q", self.page, 0, seconds * 10**9)

def year_of_last_run(d):
    return int(d.json("GET", "/v1/runs?limit=1")[1]["runs"][0]["started"][:4])

def held(d, clock):
    """Buffers, uploads and names stay, and runs go on and are right."""
    vector = {"name": "x", "dtype": "f32", "shape": [2], "data": [1, 2]}
    model, now = put(d), datetime.datetime.now(datetime.timezone.utc)
    status, r = d.json("POST", "/v1/buffers", {"inputs": [vector], "leaseMs": FOREVER_MS})
    assert status == 200, r
    buffer = r["buffers"][0]["handle"]
    upload = d.json("POST", "/v1/uploads", {"size": 8})[1]["upload"]
    assert d.json("POST", "/v1/models", {"name": "named", "model": model})[0] == 200
    over, wrong, right = threading.Event(), [], []
    def ask():
        while not over.is_set():
            reply = run(d, model, timeout_ms=FOREVER_MS)
            (right if reply[0] == 200 else wrong).append(reply)
    clients = [in_thread(ask)[0] for _ in range(2)]
    try:
        for seconds in STEPS:
            clock.step(seconds)
            until("runs go on", PATIENCE, lambda n=len(right): len(right) > n + 20)
            there = (now + datetime.timedelta(seconds=seconds)).year
            assert abs(year_of_last_run(d) - there) <= 1, (seconds, year_of_last_run(d))
            assert d.json("GET", f"/v1/buffers/{buffer}")[0] == 200, seconds
            assert d.json("GET", f"/v1/uploads/{upload}")[0] == 200, seconds
            good(run(d, "named"))
    finally:
        over.set()
        for t in clients:
            t.join()
    assert not wrong, wrong[:2]
held.args = ("--device", "sim")

def expire(d, clock):
    """Deadlines pass, and leases end, when the clock stands behind what they began at; a quota is
    neither given back nor kept by a step."""
    slow, vector = put(d, 2), {"name": "x", "dtype": "f32", "shape": [2], "data": [1, 2]}
    def compiles():
        for k in range(20):
            status, r = d.json("POST", "/v1/executables", program(k + 10),
                               {"Content-Type": "text/x-hlo"})
            if status != 200:
                return status, r["reason"]
        return status, ""
    assert compiles() == (429, "COMPILE_RATE"), compiles()
    begun = time.monotonic()
    for seconds in STEPS:
        t, out = in_thread(run, d, slow, timeout_ms=500)
        handle = d.json("POST", "/v1/buffers", {"inputs": [vector], "leaseMs": 500})[1][
            "buffers"][0]["handle"]
        clock.step(seconds)
        t.join()
        assert (out[0][0], out[0][1]["reason"]) == (504, "DEADLINE"), (seconds, out)
        until("its lease ends", PATIENCE,  # of which a list is no use
              lambda h=handle: h not in str(d.json("GET", "/v1/buffers")[1]))
        assert compiles() == (429, "COMPILE_RATE"), seconds
    made, passed = metric(d, "hlod_compiles_total"), time.monotonic() - begun
    assert made <= 5 + passed / 15, (made, passed)  # four a minute
expire.args = ("--device", "sim:latency_us=60000000", "--compile-rate", "4")

def main():
    a = argparse.ArgumentParser()
    for name in "hlod", "worker", "preload":
        a.add_argument("--" + name, required=True)
    a.add_argument("names", nargs="*")
    o, results = a.parse_args(), Results()
    for s in chosen(o, [held, expire]):
        with tempfile.TemporaryDirectory() as folder:
            clock = Clock(folder)
            env = dict(os.environ, LD_PRELOAD=o.preload, MOVED_CLOCK=clock.path)
            results.scenario(f"clock {s.__name__}",
                             Daemon(o.hlod, o.worker, args=s.args, env=env), s, clock)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
