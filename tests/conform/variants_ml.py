# SPDX-License-Identifier: Apache-2.0
"""Variants (onnx_variants.py) of ai.onnx.ml's models: support vectors, and two classes scored by
one weight."""
import numpy as np

R = np.random.default_rng(13)
ML = "ai.onnx.ml."


def f32(*dims):
    return R.standard_normal(dims).astype(np.float32)


def svm(add):
    x = f32(6, 3)

    def params(n):
        return dict(kernel_params=[0.5, 0.1, 3.0], support_vectors=f32(n * 3).tolist())

    for kernel in ("LINEAR", "RBF", "POLY", "SIGMOID"):
        add("SVMRegressor " + kernel, ML + "SVMRegressor", [x],
            dict(params(5), kernel_type=kernel, n_supports=5, coefficients=f32(5).tolist(),
                 rho=[0.3]))
        for per in ([2, 3], [2, 3, 2], [2, 1, 3, 2]):
            k, n = len(per), sum(per)
            for proba in (False, True):
                attrs = dict(params(n), kernel_type=kernel, vectors_per_class=per,
                             coefficients=f32((k - 1) * n).tolist(),
                             rho=(f32(k * (k - 1) // 2) * 0.3).tolist(),
                             classlabels_ints=[10 * i + 7 for i in range(k)])
                if proba:
                    attrs.update(prob_a=(-np.abs(f32(k * (k - 1) // 2)) - 0.5).tolist(),
                                 prob_b=(f32(k * (k - 1) // 2) * 0.1).tolist())
                add("SVMClassifier %s %d%s" % (kernel, k, " chances" if proba else ""),
                    ML + "SVMClassifier", [x], attrs, 2)
    add("SVMRegressor one class", ML + "SVMRegressor", [x],
        dict(params(5), kernel_type="RBF", n_supports=5, coefficients=f32(5).tolist(), rho=[-0.1],
             one_class=1))
    add("SVMRegressor linear machine", ML + "SVMRegressor", [x],
        dict(kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0], coefficients=f32(3).tolist(),
             rho=[0.2]))
    for k in (3, 4):  # of two classes ONNX Runtime does not take the larger score
        add("SVMClassifier linear machine %d" % k, ML + "SVMClassifier", [x],
            dict(kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0],
                 coefficients=f32(3 * k).tolist(), rho=[0.2], classlabels_ints=list(range(k))), 2)
    for post in ("LOGISTIC", "SOFTMAX"):
        for k in (2, 3):
            add("SVMClassifier %d %s" % (k, post), ML + "SVMClassifier", [x],
                dict(params(2 * k), kernel_type="RBF", vectors_per_class=[2] * k,
                     coefficients=f32(2 * k * (k - 1)).tolist(), rho=f32(k * (k - 1) // 2).tolist(),
                     classlabels_ints=list(range(k)), post_transform=post), 2)


def one_weight(add):
    x = f32(9, 2)
    for name, w in (("chances", [0.2, 0.6, 0.4]), ("mixed", [-0.7, 0.4, 0.1]),
                    ("positive", [0.5, 1.5, 0.1])):
        for post in ("NONE", "LOGISTIC", "SOFTMAX"):
            for base in (None, [0.1]):
                for which in (0, 1) if base is None else (0,):
                    attrs = dict(nodes_treeids=[0] * 5, nodes_nodeids=[0, 1, 2, 3, 4],
                                 nodes_featureids=[0, 0, 1, 0, 0],
                                 nodes_modes=["BRANCH_LEQ", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
                                 nodes_values=[0.0, 0.0, 0.3, 0.0, 0.0],
                                 nodes_truenodeids=[1, 0, 3, 0, 0],
                                 nodes_falsenodeids=[2, 0, 4, 0, 0], class_treeids=[0] * 3,
                                 class_nodeids=[1, 3, 4], class_ids=[which] * 3, class_weights=w,
                                 classlabels_int64s=[10, 20], post_transform=post)
                    if base:
                        attrs["base_values"] = base
                    add("TreeEnsembleClassifier, one weight: %s %s %s "
                        "%d" % (name, post, base, which), ML + "TreeEnsembleClassifier", [x], attrs,
                        2)
    for post in ("NONE", "LOGISTIC", "SOFTMAX"):
        add("LinearClassifier, one row: " + post, ML + "LinearClassifier", [x],
            dict(coefficients=[1.0, -2.0], intercepts=[0.5], classlabels_ints=[10, 20],
                 post_transform=post), 2)


def one_class(add):
    x = f32(9, 2)
    tree = dict(nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2], nodes_featureids=[0] * 3,
                nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.0] * 3,
                nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0])
    for w in ([0.5, 0.7], [-0.5, 0.4], [-1.0, -2.0]):
        for post in ("NONE", "LOGISTIC", "SOFTMAX"):
            add("TreeEnsembleClassifier of one class %s %s" % (w, post),
                ML + "TreeEnsembleClassifier", [x],
                dict(tree, class_treeids=[0] * 2, class_nodeids=[1, 2], class_ids=[0] * 2,
                     class_weights=w, classlabels_int64s=[5], post_transform=post), 2)
    chances = dict(target_treeids=[0] * 2, target_nodeids=[1, 2], target_ids=[0] * 2, n_targets=1,
                   post_transform="PROBIT")
    for w in ([0.2, 0.9], [0.5, 1.5]):
        add("TreeEnsembleRegressor PROBIT %s" % w, ML + "TreeEnsembleRegressor", [x],
            dict(tree, target_weights=w, **chances))
    add("TreeEnsembleClassifier PROBIT", ML + "TreeEnsembleClassifier", [x],
        dict(tree, class_treeids=[0] * 4, class_nodeids=[1, 2, 1, 2], class_ids=[0, 1, 2, 0],
             class_weights=[0.2, 0.7, 0.6, 0.1], classlabels_int64s=[5, 6, 7],
             post_transform="PROBIT"), 2)


def single_target(add):
    """Post transforms of one target, which ONNX Runtime passes over but for PROBIT."""
    x = f32(9, 2)
    tree = dict(nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2], nodes_featureids=[0] * 3,
                nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.0] * 3,
                nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], n_targets=1,
                target_treeids=[0] * 2, target_nodeids=[1, 2], target_ids=[0] * 2,
                target_weights=[0.3, -0.6])
    for post in ("LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        add("TreeEnsembleRegressor, one target, " + post, ML + "TreeEnsembleRegressor", [x],
            dict(tree, post_transform=post))
        for targets in (1, 2):
            add("LinearRegressor, %d targets, %s" % (targets, post), ML + "LinearRegressor", [x],
                dict(coefficients=[0.5, -1.0, 2.0, 0.1][:2 * targets], targets=targets,
                     intercepts=[0.3, 0.2][:targets], post_transform=post))
    for post in ("LOGISTIC", "SOFTMAX", "PROBIT"):
        add("SVMRegressor " + post, ML + "SVMRegressor", [x],
            dict(kernel_type="RBF", kernel_params=[0.5, 0.0, 3.0], coefficients=[0.5, 0.2],
                 support_vectors=[1.0, 2.0, 0.1, 0.2], n_supports=2, rho=[0.1],
                 post_transform=post))


def unreached(add):
    """Classes that a row comes to no weight of: not chosen where there are no base values."""
    x = f32(9, 2)
    tree = dict(nodes_treeids=[0] * 3, nodes_nodeids=[0, 1, 2], nodes_featureids=[0] * 3,
                nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"], nodes_values=[0.0] * 3,
                nodes_truenodeids=[1, 0, 0], nodes_falsenodeids=[2, 0, 0], class_treeids=[0] * 3,
                class_nodeids=[1, 2, 2], class_weights=[-0.5, -0.7, -0.2],
                classlabels_int64s=[7, 8, 9])
    for ids in ([1, 2, 0], [0, 0, 1]):
        for base in ({}, {"base_values": [0.1, 0.2, 0.3]}):
            add("TreeEnsembleClassifier unreached %s %d" % (ids, len(base)),
                ML + "TreeEnsembleClassifier", [x], dict(tree, class_ids=ids, **base), 2)


def families(add):
    for family in (svm, one_weight, one_class, single_target, unreached):
        family(add)
