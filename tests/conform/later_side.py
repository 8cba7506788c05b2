# SPDX-License-Identifier: Apache-2.0
"""What a later release of onnx says about a case on which we differ from the pinned one: its
reference evaluator runs the case's own model on the case's own inputs. Reads "SUITE NAME FILE"
lines (FILE: our results, pickled), answers one JSON line each: {"same": do we agree, "why": where
not}.

    later_side.py FOLDER        where that release lies (deploy/setup.sh: build/onnx-later)
"""
import json
import os
import pickle
import sys
import warnings

sys.path[0] = os.path.dirname(os.path.abspath(__file__))
PINNED = os.path.join(next(p for p in sys.path
                           if os.path.isdir(os.path.join(p, "onnx", "backend"))), "onnx", "backend",
                      "test", "data")
sys.path.insert(0, sys.argv[1])
import cases as K  # noqa: E402
import numpy as np  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

K.DATA = PINNED


def to_numpy(v):
    if isinstance(v, list):
        return [to_numpy(x) for x in v]
    if v is None or v.dtype in K.EXOTIC:
        raise ValueError("inputs of this kind are not passed on")
    return v.array.astype(bool) if v.dtype == "pred" else v.array


def from_numpy(x):
    if isinstance(x, list):
        return [from_numpy(y) for y in x]
    x = np.asarray(x)
    return K.Tensor(K.NUMPY[str(x.dtype)], x.astype(np.uint8) if x.dtype == bool else x)


def disagreement(case, ours):
    run = ReferenceEvaluator(case.path)
    for (ins, _), mine in zip(case.sets(), ours):
        for k, w in enumerate(run.run(None, {n: to_numpy(v) for n, v in ins.items()})):
            why = K.compare(mine[k], from_numpy(w))
            if why:
                return "output %d: %s" % (k, why)
    return None


def main():
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        suite, name, file = line.split()
        with open(file, "rb") as f:
            ours = pickle.load(f)
        case = next(c for c in K.find([suite]) if c.name == name)
        try:
            why = disagreement(case, ours)
        except Exception as e:  # noqa: BLE001 - then it says nothing about us
            why = "%s: %s" % (type(e).__name__, str(e)[:200])
        print(json.dumps({"same": why is None, "why": why}), flush=True)


if __name__ == "__main__":
    main()
