# SPDX-License-Identifier: Apache-2.0
"""Random tree ensembles of ai.onnx.ml against ONNX Runtime.

    trees.py BUILD          prints PASS and FAIL lines
    trees.py --write FILE TREES DEPTH FEATURES ROWS     a regressor, for benchmarks

Modes, NaN that tracks true, aggregates, targets, base values, transforms, thresholds in double,
classifiers of two classes by one weight.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, save

R = np.random.default_rng(5)
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


def forest(trees, depth, features, targets=1, modes=("BRANCH_LEQ",), missing=False, per_leaf=1,
           one_target=None, positive=False, coarse=False):
    """Attributes of the operators of version 1 to 3, role 'target'; leaves of uneven depth."""
    a = {k: [] for k in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                         "falsenodeids", "missing_value_tracks_true")}
    w = {k: [] for k in ("treeids", "nodeids", "ids", "weights")}

    def put(tree, level, count):
        me = count[0]
        count[0] += 1
        leaf = level == depth or (level > 1 and R.random() < 0.15)
        at = len(a["treeids"])
        a["treeids"].append(tree)
        a["nodeids"].append(me)
        a["featureids"].append(0 if leaf else int(R.integers(features)))
        a["values"].append(0.0 if leaf
                           else float(np.float32(R.integers(-2, 3) if coarse
                                                 else R.standard_normal())))
        a["modes"].append("LEAF" if leaf else str(R.choice(modes)))
        a["missing_value_tracks_true"].append(int(missing and R.random() < 0.5))
        a["truenodeids"].append(0)
        a["falsenodeids"].append(0)
        if leaf:
            for t in R.permutation(targets)[:per_leaf] if one_target is None else [one_target]:
                w["treeids"].append(tree)
                w["nodeids"].append(me)
                w["ids"].append(int(t))
                v = R.standard_normal() / trees
                w["weights"].append(float(np.float32(abs(v) if positive else v)))
        else:
            a["truenodeids"][at] = put(tree, level + 1, count)
            a["falsenodeids"][at] = put(tree, level + 1, count)
        return me

    for tree in range(trees):
        put(tree, 0, [0])
    return {"nodes_" + k: v for k, v in a.items()}, w


def as_double(attrs, names):
    for n in names:
        v = attrs.pop(n)
        attrs[n + "_as_tensor"] = helper.make_tensor(n, TensorProto.DOUBLE, [len(v)], v)


def repeated(f):
    """Each leaf has further weights for its targets, which are others."""
    nodes, w = f
    for _ in range(2):
        for k in range(len(w["ids"])):
            for name in ("treeids", "nodeids", "ids"):
                w[name].append(w[name][k])
            w["weights"].append(float(np.float32(R.standard_normal())))
    return nodes, w


def regressor(nodes, w, targets, **attrs):
    return helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml",
                            n_targets=targets, **nodes, **{"target_" + k: v for k, v in w.items()},
                            **attrs)


def classifier(nodes, w, labels, **attrs):
    attrs["classlabels_int64s" if isinstance(labels[0], int) else "classlabels_strings"] = labels
    return helper.make_node("TreeEnsembleClassifier", ["x"], ["l", "y"], domain="ai.onnx.ml",
                            **nodes, **{"class_" + k: v for k, v in w.items()}, **attrs)


def model(node, x, version, kind=None):
    t = helper.np_dtype_to_tensor_dtype(x.dtype)
    outs = []
    for o in node.output:
        label = o == "l"
        outs.append(helper.make_tensor_value_info(
                        o, TensorProto.INT64 if label else kind or TensorProto.FLOAT,
                        [x.shape[0]] if label else None))
    g = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", t, x.shape)], outs)
    return helper.make_model(
        g, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", version)],
        ir_version=8)


def check(build, name, m, x, bound=2e-6):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        save(m, path)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        want = ort.InferenceSession(path, options,
                                    providers=["CPUExecutionProvider"]).run(None, {"x": x})
        x.tofile(os.path.join(folder, "x"))
        why = None
        for impl in ([], ["--impl", "reference"]) if x.shape[0] < 100 else ([],):
            r = subprocess.run(
                [os.path.join(build, "hlo-run"), path, "--in", os.path.join(folder, "x"), "--out",
                 os.path.join(folder, "out")] + impl, capture_output=True, text=True, timeout=300)
            if r.returncode:
                why = r.stderr.strip().splitlines()[-1]
                break
            data, at = open(os.path.join(folder, "out"), "rb").read(), 0
            for k, w in enumerate(want):
                g = (np.frombuffer(data[at:at + w.nbytes], w.dtype).reshape(w.shape)
                     if len(data) >= at + w.nbytes else np.full(w.shape, 7777, w.dtype))
                at += w.nbytes
                if w.dtype.kind == "i" and (g != w).any():
                    why = "%d of %d labels differ" % ((g != w).sum(), w.size)
                elif (w.dtype.kind == "f"
                      and not np.abs(g - w).max() <= bound * max(np.abs(w).max(), 1e-2)):
                    why = "error %.2g of %.2g" % (np.abs(g - w).max(), np.abs(w).max())
                if why:
                    why += " (%s)" % (impl or "trees")
                    break
            if why:
                break
        print("FAIL %s: %s" % (name, why) if why else "PASS %s" % name, flush=True)
        return why is not None


def rows(n, features, dtype=np.float32, missing=False, coarse=False):
    x = (R.integers(-2, 3, (n, features)).astype(dtype) if coarse
         else R.standard_normal((n, features)).astype(dtype))
    if missing:
        x[R.random(x.shape) < 0.1] = np.nan
    return x


def regressors(build):
    failed = 0
    for n in (1, 3, 8, 13, 200):
        failed += check(build, "regressor, %d rows" % n,
                        model(regressor(*forest(30, 6, 5), 1), x := rows(n, 5), 3), x)
    for mode in MODES + ("mixed",):
        for missing in (False, True):
            f = forest(9, 5, 4, modes=MODES if mode == "mixed" else (mode,), missing=missing,
                       coarse=True)
            x = rows(33, 4, missing=missing, coarse=True)
            failed += check(build, "regressor %s%s" % (mode, ", NaN" if missing else ""),
                            model(regressor(*f, 1), x, 3), x)
    for how in ("SUM", "AVERAGE", "MIN", "MAX"):
        for targets, base in ((1, [0.25]), (3, [0.5, -1.0, 2.0]), (3, None)):
            x = rows(21, 4)
            attrs = {"base_values": base} if base else {}
            failed += check(build,
                            "regressor %s, %d targets%s" % (how, targets, ", base" if base else ""),
                            model(regressor(*forest(11, 4, 4, targets, per_leaf=targets), targets,
                                            aggregate_function=how, **attrs), x, 3), x)
        # Targets that a row comes to no weight of: ONNX Runtime gives 0 and adds no base value.
        failed += check(build, "regressor %s, targets without weights" % how,
                        model(regressor(*forest(2, 3, 4, 3, per_leaf=1), 3, aggregate_function=how,
                                        base_values=[0.5, -1.0, 2.0]), x, 3), x)
        for targets in (1, 3):
            x = rows(12, 4)
            f = repeated(forest(5, 3, 4, targets, per_leaf=targets))
            failed += check(build, "regressor %s, %d targets, several weights of one in a leaf" % (
                                how, targets),
                            model(regressor(*f, targets, aggregate_function=how), x, 3), x)
    for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        x = rows(10, 3)
        failed += check(build, "regressor " + post,
                        model(regressor(*forest(7, 3, 3, 3, per_leaf=2), 3, post_transform=post), x,
                              3), x)
    nodes, w = forest(12, 6, 5)
    as_double(nodes, ("nodes_values",))
    attrs = {"target_" + k: v for k, v in w.items()}
    as_double(attrs, ("target_weights",))
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1,
                            **nodes, **attrs)
    x = rows(40, 5, np.float64)
    return failed + check(build, "regressor, double", model(node, x, 3), x)


def classifiers(build):
    failed = 0
    for post in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        # Of two classes with weights of their own ONNX Runtime gives the label 1 wherever the
        # second score is above 0; the standard's is the largest score's.
        for labels in ([3, 5, 9], [1, 0, 2, 7, 9]):
            x = rows(20, 4)
            f = forest(15, 4, 4, len(labels), per_leaf=len(labels))
            failed += check(build, "classifier %s, %d classes %s" % (post, len(labels), labels),
                            model(classifier(*f, labels, post_transform=post), x, 3), x)
        x = rows(20, 4)
        f = forest(2, 3, 4, 4, per_leaf=1)
        failed += check(build, "classifier %s, classes without weights" % post,
                        model(classifier(*f, [1, 0, 2, 7], post_transform=post,
                                         base_values=[0.5, -1.0, 2.0, 0.1]), x, 3), x)
        for labels in ([3, 5, 9], [4]):
            x = rows(20, 4)
            f = repeated(forest(3, 3, 4, len(labels), per_leaf=len(labels)))
            failed += check(build, "classifier %s, %d classes, several weights of one in a leaf" % (
                                post, len(labels)),
                            model(classifier(*f, labels, post_transform=post), x, 3), x)
        for one in (0, 1):
            for positive in (False, True):
                for base in (None, [0.3], [0.2, -0.1]):
                    x = rows(40, 4)
                    f = forest(6, 4, 4, 2, one_target=one, positive=positive)
                    if positive:
                        f[1]["weights"] = [float(np.float32(4 * v)) for v in f[1]["weights"]]
                    attrs = {"base_values": base} if base else {}
                    failed += check(build, "classifier %s, one weight for class %d, %s, base %s" % (
                                        post, one, "positive" if positive else "signed", base),
                                    model(classifier(*f, [7, 2], post_transform=post, **attrs), x,
                                          3), x)
    return failed


def ensembles(build):  # TreeEnsemble of version 5
    failed = 0
    for kind, np_kind in ((TensorProto.FLOAT, np.float32), (TensorProto.DOUBLE, np.float64)):
        for member in (False, True):
            for how in range(4):
                trees, n, leaves = 5, [], []
                split, mode, yes, no, yes_leaf, no_leaf, sets, roots = (
                    [], [], [], [], [], [], [], [])
                for _ in range(trees):
                    roots.append(len(split))
                    for k in range(3):
                        n.append(int(R.integers(3)))
                        in_set = member and R.random() < 0.5
                        mode.append(6 if in_set else int(R.integers(6)))
                        split.append(float(R.integers(-2, 3)))
                        if in_set:
                            sets += [float(v) for v in R.permutation(5)[:2] - 2] + [float("nan")]
                        first = k == 0
                        for which, leaf in ((yes, yes_leaf), (no, no_leaf)):
                            leaf.append(0 if first else 1)
                            which.append(len(split) + (0 if which is yes else 1) if first
                                         else len(leaves))
                            if not first:
                                leaves.append(float(np.float32(R.standard_normal())))
                t = lambda name, v: helper.make_tensor(name, kind, [len(v)], v)
                node = helper.make_node(
                    "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2,
                    aggregate_function=how, post_transform=0, tree_roots=roots, nodes_featureids=n,
                    nodes_splits=t("s", split),
                    nodes_modes=helper.make_tensor("m", TensorProto.UINT8, [len(mode)], mode),
                    nodes_truenodeids=yes, nodes_falsenodeids=no, nodes_trueleafs=yes_leaf,
                    nodes_falseleafs=no_leaf, leaf_targetids=[k % 2 for k in range(len(leaves))],
                    leaf_weights=t("w", leaves),
                    **({"membership_values": t("v", sets)} if sets else {}))
                x = rows(30, 3, np_kind, coarse=True)
                failed += check(build, "TreeEnsemble %s%s, aggregate %d" % (
                                    np_kind.__name__, ", sets" if member else "", how),
                                model(node, x, 5, kind), x)
    return failed


def shared_nodes(build):
    """A chain of nodes whose both branches lead to the same next node: 2^400 paths. ONNX Runtime
    refuses it; here nothing may walk each path."""
    n, x = 400, np.ones((4, 1), np.float32)
    following = [k + 1 for k in range(n)] + [0]
    nodes = {"nodes_treeids": [0] * (n + 1), "nodes_nodeids": list(range(n + 1)),
             "nodes_featureids": [0] * (n + 1), "nodes_values": [0.0] * (n + 1),
             "nodes_modes": ["BRANCH_LEQ"] * n + ["LEAF"], "nodes_truenodeids": following,
             "nodes_falsenodeids": following}
    weights = {"treeids": [0, 0], "nodeids": [n, n], "ids": [0, 1], "weights": [1.5, 2.5]}
    why = None
    with tempfile.TemporaryDirectory() as folder:
        path, given, out = (os.path.join(folder, f) for f in ("m.onnx", "x", "out"))
        save(model(regressor(nodes, weights, 2), x, 3), path)
        x.tofile(given)
        try:
            r = subprocess.run([os.path.join(build, "hlo-run"), path, "--in", given, "--out", out],
                               capture_output=True, text=True, timeout=60)
            why = r.stderr.strip()[-300:] if r.returncode else None
            if not why and np.fromfile(out, np.float32).tolist() != [1.5, 2.5] * 4:
                why = "got %s" % np.fromfile(out, np.float32)
        except subprocess.TimeoutExpired:
            why = "no answer within a minute"
    print("FAIL shared nodes: %s" % why if why else "PASS shared nodes", flush=True)
    return why is not None


def many_texts(build):
    """A list of 3.3 million modes, as an ensemble of so many nodes has, is read: texts of a list
    are paid for by the file's size. No ensemble of that size is made here."""
    node = helper.make_node("OneHotEncoder", ["x"], ["y"], domain="ai.onnx.ml",
                            cats_strings=[b"LEAF"], cats_int64s=[1])
    node.attribute[-1].strings.extend([b"LEAF"] * 3300000)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        save(model(node, np.zeros((2, 3), np.float32), 3), path)
        r = subprocess.run([os.path.join(build, "hlo-run"), path], capture_output=True, text=True,
                           timeout=300)
    print("PASS many texts" if r.returncode == 0 else "FAIL many texts: " + r.stderr.strip()[-300:],
          flush=True)
    return r.returncode != 0


def main():
    if sys.argv[1] == "--write":
        path, trees, depth, features, n = sys.argv[2], *map(int, sys.argv[3:7])
        save(model(regressor(*forest(trees, depth, features), 1), rows(n, features), 3), path)
        return 0
    build = sys.argv[1]
    return 1 if regressors(build) + classifiers(build) + ensembles(
        build) + shared_nodes(build) + many_texts(build) else 0


if __name__ == "__main__":
    sys.exit(main())
