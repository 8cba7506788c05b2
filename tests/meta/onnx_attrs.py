# SPDX-License-Identifier: Apache-2.0
"""Has compiler/frontend/onnx/onnx_attrs.def every attribute that ONNX's and ONNX Runtime's schemas
give the operators of onnx_ops.def, of ONNX's own domain in those versions alone, in the order that
it is searched in? What it lacks would be refused."""
import re
import sys

import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as ort

ONNX = "compiler/frontend/onnx/"


def table():
    text = open(ONNX + "onnx_attrs.def").read()
    rows = re.findall(r'^ONNX_ATTRS\("([\w.]+)",\s*((?:"[-+\w ]*"\s*)+)\)', text, re.M)
    return {name: "".join(re.findall(r'"([-+\w ]*)"', words)).split() for name, words in rows}


def names(words, version):
    """Those of a row that are there in a version."""
    there = []
    for word in words:
        name, since, until = re.fullmatch(r"(\w+?)(?:\+(\d+))?(?:-(\d+))?", word).groups()
        if int(since or 0) <= version <= int(until or version):
            there.append(name)
    return there


def schemas():
    for s in ort.get_all_operator_schema():
        yield s.domain, s
    for s in onnx.defs.get_all_schemas_with_history():
        yield s.domain, s


def main():
    rows, bad = table(), 0
    ops = set(re.findall(r'^ONNX_OP\("([\w.]+)"', open(ONNX + "onnx_ops.def").read(), re.M))
    if list(rows) != sorted(rows):
        bad += 1
        print("FAIL: the rows of onnx_attrs.def are not in the order of their names")
    for name in sorted(ops ^ set(rows)):
        bad += 1
        print("FAIL: %s has a row in one of onnx_ops.def and onnx_attrs.def" % name)
    seen = 0
    for domain, s in schemas():
        name = domain + "." + s.name if domain else s.name
        there = names(rows.get(name, s.attributes), s.since_version)
        lacks = [a for a in s.attributes if a not in there]
        seen += name in rows
        if not domain and set(there) - set(s.attributes):
            bad += 1
            print("FAIL: %s, since version %d, has not all of %s" % (name, s.since_version, there))
        if lacks:
            bad += 1
            print("FAIL: %s, since version %d, lacks %s" % (name, s.since_version, lacks))
    if seen < len(rows):
        bad += 1
        print("FAIL: %d schemas for %d rows" % (seen, len(rows)))
    print("%s onnx-attrs: %d operators, %d schemas" % ("FAIL" if bad else "PASS", len(rows), seen))
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
