# SPDX-License-Identifier: Apache-2.0
"""make conform-zoo: the values that hlod gives for every model of the zoo, against ONNX Runtime on
the same file and inputs.

    conform.py BUILD [--models REGEX] [--which all|packages|families|small] [--limit SECONDS]

A line for each model, PASS, FAIL or REFUSED, and `N passed, N failed, N refused` last; what ONNX
Runtime does not run is left out aloud. Exit code 1 where anything failed or was refused.
"""
import argparse
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import models  # noqa: E402
import side  # noqa: E402
import steps  # noqa: E402

STEPWISE = ("decoder_fixed-f32", "decoder_fixed-f16")


def check(h, m):
    """(PASS, FAIL or REFUSED, text)"""
    inputs = m.inputs()
    try:
        want, others = models.expected(m, inputs)
    except Exception as e:
        return "SKIP", "ONNX Runtime: %s" % str(e).replace("\n", " ")[:200]
    start = time.monotonic()
    try:
        got, info = h.run(m.path, inputs)
    except side.Stuck as e:
        return "FAIL", str(e)
    except side.daemon.Refused as e:
        crash = e.code == 0 or e.body.get("code") in ("INTERNAL", "UNAVAILABLE")
        return "FAIL" if crash else "REFUSED", "%d %s %s" % (
            e.code, e.body.get("message", ""), " ".join(e.body.get("details", [])))
    ok, error, bound = models.verdict(m, got, want, others)
    return ("PASS" if ok else "FAIL",
            "error %.2g (bound %.2g), %.2f s to the first answer, run %.2f ms"
            % (error, bound, time.monotonic() - start, info["runMs"][-1]))


def stepwise(h, m):
    try:
        return steps.check(h, m)
    except side.Stuck as e:
        return "FAIL", str(e)
    except side.daemon.Refused as e:
        return "FAIL", "%d %s" % (e.code, e.body.get("message", ""))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--models", default=".", help="regular expression over names and packages")
    a.add_argument("--which", default="all", choices=["all", "packages", "families", "small"])
    a.add_argument("--limit", type=float, default=300, help="seconds for one model")
    o = a.parse_args()
    counts = {"PASS": 0, "FAIL": 0, "REFUSED": 0, "SKIP": 0}
    with side.Hlod(o.build, o.limit) as h:
        for m in models.chosen(o.models, o.which):
            for name, f in (
                [(m.name, check)] + [(m.name + " by steps", stepwise)] * (m.name in STEPWISE)):
                status, text = f(h, m)
                counts[status] += 1
                print("%s %s: %s" % (status, name, text), flush=True)
            if h.d and counts["PASS"] % 8 == 7:
                h.end()  # its memory goes
    print("%d passed, %d failed, %d refused" % (counts["PASS"], counts["FAIL"], counts["REFUSED"]))
    return 1 if counts["FAIL"] or counts["REFUSED"] or not counts["PASS"] else 0


if __name__ == "__main__":
    sys.exit(main())
