#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hlo buffers, hlo plan and the options of hlo run about resident buffers, over a daemon with a
real worker on a simulated device. Standard library only.
Usage: buffers.py --build DIR"""
import argparse, json, os, re, subprocess, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    build = os.path.abspath(a.parse_args().build)
    d = Daemon(build + "/hlod", build + "/hlod-worker", args=["--device", "sim"])
    env, results = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}, Results()
    def hlo(name, *words, rc=0, out="", err=""):
        p = subprocess.run([build + "/hlo", *words], env=env, capture_output=True, text=True,
                           timeout=60, cwd=d.dir)
        return results.command("hlo " + name, p, rc, out, err).stdout.strip()
    try:
        for name, k in ("one", 1), ("ten", 10):
            with open(os.path.join(d.dir, name + ".hlo"), "w") as f:
                f.write(f"HloModule m\nENTRY e {{\n  x = f32[4] parameter(0)\n  c = f32[] "
                        f"constant({k})\n  b = f32[4] broadcast(c), dimensions={{}}\n  ROOT r = "
                        f"f32[4] add(x, b)\n}}\n")
        h = hlo("buffers put", "buffers", "put", "-i", "x=4xf32=1,2,3,4", "--lease", "10m",
                out=r"^b[0-9a-f]{16}\n$")
        hlo("buffers ls", "buffers", out=rf"{h} +x +sim:0 +ready +16 B +(600|599) s left +f32\[4\]",
            err=r"in 1 buffers")
        hlo("run with a handle", "run", "one.hlo", "--input-handle", f"x={h}",
            out=r"result f32\[4\] 2 3 4 5")
        kept = re.search(r"stays as (b\w+)",
                         hlo("run that keeps", "run", "one.hlo", "--donate", f"x={h}",
                             "--keep-output", "all",
                             out=r"result f32\[4\] stays as b[0-9a-f]{16}$")).group(1)
        hlo("a dead handle", "run", "one.hlo", "--input-handle", f"x={h}", rc=3,
            err=rf"BUFFER_DONATED: buffer {h} was donated")
        hlo("buffers get", "buffers", "get", kept, out=r"result f32\[4\] 2 3 4 5")
        hlo("buffers get to a file", "buffers", "get", kept, "-o", "kept.npy")
        hlo("an input from that file", "run", "one.hlo", "-i", "x=@kept.npy", out=r"3 4 5 6")
        t = hlo("buffers tuple", "buffers", "tuple", kept, out=r"^b[0-9a-f]{16}\n$")
        hlo("buffers renew", "buffers", "renew", t, "--lease", "forever", out=r"no end +tuple of 1")
        with open(os.path.join(d.dir, "plan.json"), "w") as f:
            json.dump({"steps": [{"name": "a", "model": "one.hlo", "inputs": [{"input": "x"}]},
                                 {"name": "b", "model": "ten.hlo", "inputs": [{"step": "a"}]}],
                       "outputs": [{"step": "b", "name": "y"},
                                   {"step": "a", "name": "half", "keep": True}]}, f)
        hlo("plan", "plan", "plan.json", "-i", "x=4xf32=1,2,3,4",
            out=r"y f32\[4\] 12 13 14 15\nhalf f32\[4\] stays as b\w+", err=r"a +\d.*\nb +\d")
        hlo("plan refused", "plan", "plan.json", "-i", "z=4xf32=1,2,3,4", rc=3,
            err=r"BAD_PLAN: step 'a'.*no input 'x'")
        hlo("plan without a file", "plan", rc=2)
        hlo("buffers free", "buffers", "free", kept, t)
        hlo("buffers get what is gone", "buffers", "get", kept, rc=3,
            err=r"BUFFER_NOT_FOUND.*was freed")
        hlo("buffers, a word it does not know", "buffers", "sell", rc=2, err="buffers takes")
        hlo("a lease that is none", "buffers", "put", "-i", "x=1", "--lease", "soon", rc=2)
    finally:
        results("the daemon of hlo buffers ends cleanly", d.stop() == 0)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
