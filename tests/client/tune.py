#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hlo tune over real workers, by given times (HLOD_CPU_TUNE): what is kept, where it is shown, that
a restart, a new compile and a damaged record do what they should, and what is refused.
Standard library only.  Usage: tune.py --build DIR"""
import argparse, glob, json, os, re, shutil, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results, in_thread, metric

MODEL = """HloModule m
ENTRY main {
  x = f32[16,32] parameter(0)
  y = f32[32,24] parameter(1)
  ROOT a = f32[16,24] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
IGNORED = "hlod_tunings_ignored_total"
expect = Results()
check = expect.command

class Life:
    """Daemons one after the other on one folder. A script gives the workers their words."""
    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.dir = tempfile.mkdtemp(prefix="hlod-tune-")
        self.worker, self.model = (os.path.join(self.dir, n) for n in ("worker", "m.hlo"))
        with open(self.model, "w") as f:
            f.write(MODEL)
        self.start({})

    def start(self, env):
        words = " ".join("%s=%s" % v for v in {"HLOD_CPU_TUNE": "none=1", **env}.items())
        with open(self.worker, "w") as f:
            f.write(f"#!/bin/sh\n{words} exec {self.build}/hlod-worker \"$@\"\n")
        os.chmod(self.worker, 0o755)
        self.d = Daemon(self.build + "/hlod", self.worker, data=self.dir)

    def again(self, **env):
        self.d.stop_keep()
        self.start(env)

    def hlo(self, *words):
        return subprocess.run([self.build + "/hlo", "--addr", "%s:%d" % self.d.addr, *words],
                              capture_output=True, text=True, timeout=120)

    def tune(self):
        return json.loads(self.hlo("tune", self.model, "--json").stdout)

    def plan(self, key):
        return self.hlo("inspect", key, "--stage", "plan").stdout

    def result(self, key):
        body = {"model": key, "inputs": [
            {"name": n, "dtype": "f32", "shape": s,
             "data": [(k % 17) / 8 - 1 for k in range(s[0] * s[1])]}
            for n, s in (("x", [16, 32]), ("y", [32, 24]))]}
        status, reply = self.d.json("POST", "/v1/run", body)
        assert status == 200, reply
        return reply["outputs"][0]["data"]

    def file(self, kind, key):
        return os.path.join(self.dir, "data", kind, key[:2], key)

def kept(life):
    """Tunes for another implementation than the usual one; gives key, step and name."""
    steps = life.tune()["tuning"]["steps"]
    expect("all take the same: nothing changes", all(s["kept"] == s["usual"] for s in steps), steps)
    other = [c["implementation"] for c in steps[0]["candidates"][1:]
             if "differ" not in c.get("why", "")][0]
    life.again(HLOD_CPU_TUNE=other + "=500")
    reply = life.tune()
    step = reply["tuning"]["steps"][0]
    expect("the faster one is kept", step["kept"] == other != step["usual"], reply)
    expect("and its time", (step["usualMs"], step["keptMs"]) == (.001, .0005), step)
    expect("all were measured", reply["tuning"]["complete"], reply)
    check("a table for people", life.hlo("tune", life.model, "--seconds", "5"), 0,
          rf"1 of \d kinds? of steps changed(.|\n)* {step['usual']} 1\.0 us +{other} "
          r"0\.5 us +2\.00")
    return reply["digest"], step, other

def shown(life, key, name, say):
    expect(say + ": the plan says where the choice came from",
           re.search(rf"tuned: 0\.0005 ms, \S+ 0\.0010", life.plan(key)), life.plan(key))
    x = life.d.json("GET", "/v1/executables/" + key)[1]
    expect(say + ": the executable tells of it", x["tuning"]["steps"][0]["kept"] == name, x)
    expect(say + ": nothing is left aside", metric(life.d, IGNORED) == 0)

def refused(life, key):
    def tune(digest, **q):
        return life.d.json("POST", f"/v1/executables/{digest}/tune", q)
    expect("no such executable", tune("0" * 64)[0] == 404)
    expect("no digest", tune("abc")[0] == 400)
    source = life.d.json("GET", "/v1/executables/" + key)[1]["sourceDigest"]
    status, reply = tune(source)
    expect("a model is no executable", status == 404 and "executable" in reply["message"], reply)
    expect("a budget without end", tune(key, budgetMs=4294967295)[0] == 400)
    expect("a budget below nothing", tune(key, budgetMs=-1)[0] == 400)
    expect("a priority out of bounds", tune(key, priority=1000)[0] == 400)
    both = [in_thread(tune, key, budgetMs=1000) for _ in range(2)]
    for t, _ in both:
        t.join(60)
    expect("two at once", [out[0][0] for _, out in both] == [200, 200], both)
    check("a time out of bounds", life.hlo("tune", life.model, "--seconds", "301"), 2,
          err="1 to 300")
    check("no model", life.hlo("tune"), 2, err="needs a model")

def flip(path):
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last[0] ^ 1]))

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    life = Life(a.parse_args().build)
    try:
        key = life.tune()["digest"]
        usual = life.result(key)
        _, _, name = kept(life)
        near = lambda: all(abs(x - y) < 1e-4 for x, y in zip(life.result(key), usual))
        expect("the same values", near())
        shown(life, key, name, "at once")
        life.again()
        expect("the same values after a restart", near())
        shown(life, key, name, "after a restart")
        os.remove(life.file("executables", key))
        life.again()
        life.hlo("compile", life.model)
        expect("the same values after a new compile", near())
        shown(life, key, name, "after a new compile")
        refused(life, key)  # tunes again, by other times
        life.again(HLOD_CPU_TUNE=name + "=500")
        life.tune()
        life.again(HLOD_CPU_CODEGEN="llvm")
        other = json.loads(life.hlo("compile", life.model, "--json").stdout)["digest"]
        if other != key:  # where code is made without LLVM
            expect("another target is not tuned", "tuned:" not in life.plan(other))
            expect("nor is that a failure", metric(life.d, IGNORED) == 0)
        life.again()
        flip(life.file("tunings", key))
        expect("a damaged record is no failure", near())
        expect("it is left aside", metric(life.d, IGNORED) >= 1 and "tuned:" not in life.plan(key))
        expect("in quarantine",
               glob.glob(os.path.join(life.dir, "data", "quarantine", "tunings-" + key)))
        life.tune()
        check("rm takes the record along", life.hlo("cache", "rm", key), 0)
        expect("no record", not os.path.exists(life.file("tunings", key)))
    finally:
        life.d.stop()
        shutil.rmtree(life.dir, ignore_errors=True)
    sys.exit(expect.code())

if __name__ == "__main__":
    main()
