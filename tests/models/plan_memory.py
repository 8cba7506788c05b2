# SPDX-License-Identifier: Apache-2.0
"""What the plan says a process takes is what it takes: `hlo-run --profile` of two networks, the
peak of the process from the load on against weights, states of steps and working memory.

    plan_memory.py BUILD

MARGIN is for what no plan counts: code that is generated and the library's own, the allocator's
gaps, inputs and results, pages of the model's file that are being read (they are given back weight
by weight; the largest weight of the two is 9.4 MB).
"""
import os
import re
import subprocess
import sys

import zoo

MARGIN = 40.0  # MB


def main():
    failed = 0
    for name in ("mobilenet_v2", "resnet18"):
        path = zoo.ensure("build/models", name)
        out = subprocess.run([os.path.join(sys.argv[1], "hlo-run"), "--bind", "N=1", "--profile",
                              path], capture_output=True, text=True)
        m = re.search(r"^memory, MB: planned ([0-9.]+) .* since the load (-?[0-9.]+)", out.stdout,
                      re.M)
        planned, measured = (float(m[1]), float(m[2])) if m else (0, 0)
        # so that a peak that is not measured does not pass
        ok = planned > 0 and planned / 2 < measured <= planned + MARGIN
        print("%s %s: planned %.1f MB, measured %.1f" % ("PASS" if ok else "FAIL", name, planned,
                                                         measured))
        failed += not ok
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
