# SPDX-License-Identifier: Apache-2.0
"""What the tests of random modules share (attention, products, sorts, transforms): hlo-run on files
of inputs, and the command `NAME.py BUILD [--n N] [--seed S]`."""
import argparse
import os
import subprocess

import numpy as np


def run(build, folder, inputs, isa="", options=(), module="m.hlo"):
    """The finished process of hlo-run on `module` in `folder`, and what it wrote: bytes of all
    results. `isa`: HLOD_CPU_ISA."""
    files = []
    for k, x in enumerate(inputs):
        path = os.path.join(folder, "in%d" % k)
        np.ascontiguousarray(x).tofile(path)
        files += ["--in", path]
    out = os.path.join(folder, "out")
    p = subprocess.run([os.path.join(build, "hlo-run"), *options, *files, "--out", out,
                        os.path.join(folder, module)], capture_output=True, text=True,
                       env=dict(os.environ, HLOD_CPU_ISA=isa))
    if p.returncode:
        return p, b""
    with open(out, "rb") as file:
        return p, file.read()


def run_text(build, folder, text, *rest):
    """`run` of a module as text."""
    with open(os.path.join(folder, "m.hlo"), "w") as file:
        file.write(text)
    return run(build, folder, *rest)


def main(name, check, count):
    """Exit code of the command. `check(build, number, rng)`: what was tried, and what is wrong with
    it or None; modules are the same for one seed and number."""
    p = argparse.ArgumentParser()
    p.add_argument("build")
    p.add_argument("--n", type=int, default=count)
    p.add_argument("--seed", type=int, default=1)
    o = p.parse_args()
    failed = 0
    for number in range(o.n):
        said, why = check(os.path.abspath(o.build), number, np.random.default_rng([o.seed, number]))
        if why:
            failed += 1
            print("FAIL %s %d of seed %d: %s\n%s" % (name, number, o.seed, why, said), flush=True)
    print("%s %s: %d modules, %d differ" % ("FAIL" if failed else "PASS", name, o.n, failed))
    return 1 if failed else 0
