#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The five-minute starts of README.md for users of REST and of docs/client.md for the gRPC client
library, run as written: each block by sh -e in one folder that looks like a checkout, with HOME
elsewhere and a daemon on the default ports. The ports are ours because all of it happens in a
network namespace of its own; where that is not allowed, free ports take their place in the text.
--flags: the library is under a sanitizer, which the programs must bring. Usage: readme.py --build
DIR [--flags=-fsanitize=...]"""
import argparse, os, re, shutil, subprocess, sys
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from harness import Daemon, Results, loopback_up
STARTS = {"REST from any language": [r"\[2(\.0)?,4(\.0)?,6(\.0)?,8(\.0)?,10(\.0)?,12(\.0)?\]",
                                     r'"queued"', r'"result"',
                                     r"\[2(\.0)?, 4(\.0)?, 6(\.0)?, 8(\.0)?, 10(\.0)?, 13(\.0)?\]"],
          "The gRPC client library": [r"result: 1 1 1 1\n", r"ran on cpu:0 in",
                                      r"[1-9]\d* instructions before",
                                      r"\(2\.0, 4\.0, 6\.0, 8\.0, 10\.0, 12\.0\) on cpu:0"]}

def block(title):
    text = "".join(open(os.path.join(ROOT, f)).read() for f in ("README.md", "docs/client.md"))
    part = text.split(f"### {title}\n")[1]
    return part.split("```")[1].removeprefix("sh").lstrip("\n")

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--flags", default="")
    a.add_argument("--own", action="store_true", help="already in a namespace of its own")
    o = a.parse_args()
    if (not o.own
        and subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0):
        return subprocess.run(["unshare", "-rn", sys.executable, __file__, "--build", o.build,
                               "--own", f"--flags={o.flags}"]).returncode
    if o.own:
        loopback_up()
    build = os.path.abspath(o.build)
    d = Daemon(build + "/hlod", build + "/hlod-worker",
               args=("--http", "127.0.0.1:8000", "--grpc", "127.0.0.1:8001") if o.own else ())
    work, results = os.path.join(d.dir, "checkout"), Results()
    os.mkdir(work)
    for name in os.listdir(ROOT):
        os.symlink(os.path.join(ROOT, name), os.path.join(work, name))
    env = {k: v for k, v in os.environ.items()
           if not k.startswith("HLOD_") and k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")}
    env.update(HOME=d.dir, PATH=f"{build}:{ROOT}/build/venv/bin:" + os.environ["PATH"])
    if o.flags: # the README's `cc` finds them; make's compiling is its own
        cc = os.path.join(d.dir, "cc")
        with open(cc, "w") as f:
            f.write(f'#!/bin/sh\ncase " $* " in *" -c "*) ;; *) set -- {o.flags} "$@" ;; esac\n'
                    f'exec {shutil.which("cc")} "$@"\n')
        os.chmod(cc, 0o755)
        env["PATH"] = d.dir + ":" + env["PATH"]
    try:
        for title, wanted in STARTS.items():
            text = block(title)
            if not o.own:
                text = text.replace("127.0.0.1:8000",
                                    "%s:%d" % d.addr).replace("127.0.0.1:8001", d.grpc)
            p = subprocess.run(["sh", "-e"], input=text, cwd=work, env=env, capture_output=True,
                               text=True, timeout=300)
            lacks = [w for w in wanted if not re.search(w, p.stdout)]
            results(f"README: {title}", p.returncode == 0 and not lacks,
                    f"status {p.returncode}, lacks {lacks}\n{p.stdout[-2000:]}\n{p.stderr[-900:]}")
    finally:
        d.stop()
        shutil.rmtree(d.dir, ignore_errors=True)
    return results.code()

sys.exit(main())
