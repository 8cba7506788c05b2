#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests of libhlod against a library built under a sanitizer, which is theirs too; the daemon
is the usual one. Over HTTP and gRPC.
Usage: san.py --build DIR --worker BIN --lib LIBHLOD.a --flags "-fsanitize=..." --libs "..." """
import argparse, os, re, shutil, subprocess, sys
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from harness import Daemon

def main():
    a = argparse.ArgumentParser()
    for o in "--build", "--worker", "--lib", "--flags", "--libs":
        a.add_argument(o, required=True)
    o = a.parse_args()
    d = Daemon(o.build + "/hlod", o.worker)
    bad = 0
    try:
        env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1", "UBSAN_OPTIONS": "halt_on_error=1",
               "TSAN_OPTIONS": f"suppressions={HERE}/../tsan.supp ignore_noninstrumented_modules=1 "
                               "halt_on_error=0 exitcode=66"}
        for name in "async_test", "client_test", "jobs_test":
            program = os.path.join(d.dir, name)
            subprocess.run(f"cc -std=c11 -g -O1 -D_GNU_SOURCE {o.flags} -I{HERE}/../../client -o "
                           f"{program} {HERE}/{name}.c {o.lib} {o.libs}", shell=True, check=True)
            for at in "%s:%d" % d.addr, "grpc://" + d.grpc:
                model = os.path.join(d.dir, "model")
                with open(model, "a") as f:
                    f.write(f"FAKE\nin x f32 N,4\nout y f32 N,4\nweight 8\n" if f.tell() == 0
                            else f"# for {name} {at}\n")
                p = subprocess.run([program, at, model], env=env, capture_output=True, text=True,
                                   timeout=300)
                found = re.search("Sanitizer|runtime error", p.stderr)
                lines = [l for l in p.stdout.splitlines() if re.match("PASS|FAIL", l)]
                for l in lines:
                    print(l + f" ({o.flags}, {at.split(':')[0]})", flush=True)
                if found or p.returncode or len(lines) != 6:
                    bad += 1
                    print(f"FAIL {name} {o.flags}: status {p.returncode}\n"
                          f"{p.stdout[-2000:]}{p.stderr[-4000:]}", flush=True)
    finally:
        d.stop()
        shutil.rmtree(d.dir, ignore_errors=True)
    return 1 if bad else 0

sys.exit(main())
