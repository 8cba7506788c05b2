# SPDX-License-Identifier: Apache-2.0
"""Programs that run in parts because values of the run decide sizes (docs/decisions/0022), from
outside: what a reply says, what is kept, every door, and what is refused: sizes that are negative,
huge or no numbers, a size of a size of a size without end, batches, plans, a part by itself, a
deadline between two parts.

    parts.py BUILD [NAME ...]

Prints PASS and FAIL lines.
"""
import hashlib
import json
import os
import re
import sys

import numpy as np
import onnx
import onnx.parser

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import daemon  # noqa: E402
import harness  # noqa: E402

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
# As many rows as the sum of x says.
COUNTED = HEAD + """g (float[K] x) => (float[N] y, float[1] s)
{
  zero = Constant <value_int = 0> ()
  s = ReduceSum <keepdims = 1> (x)
  n = Cast <to = 7> (s)
  ones = ConstantOfShape <value = float[1] {1}> (n)
  y = CumSum (ones, zero)
}"""


def model(text):
    data = onnx.parser.parse_model(text).SerializeToString()
    return data, hashlib.sha256(data).hexdigest()


def x(*values):
    return {"x": np.array(values, np.float32)}


def refused(d, *args, **named):
    """(status, reason, message) of a run that is refused."""
    try:
        d.run(*args, **named)
    except daemon.Refused as e:
        return e.code, e.body.get("reason"), " ".join(
            [e.body.get("message", "")] + e.body.get("details", []))
    return 200, None, "ran"


def kept(d):
    return d.json("GET", "/v1/executables?limit=1000")["executables"]


def reply(d):
    """Parts as steps, both with their profiles and times; a size seen before compiles nothing."""
    data, digest = model(COUNTED)
    part = d.compile(data, {"x": (2,)})["executable"]["part"]
    if part != {"sizes": 1}:
        return "the first part is %s" % part
    seen = {}
    for values in ((3, 4), (5, 2), (1, 1), (6, 1)):
        got, info = d.run(digest, x(*values), profile=True, repeat=3)
        n = int(sum(values))
        steps, hit = info["steps"], n in seen
        if got["y"].tolist() != list(range(1, n + 1)) or got["s"].tolist() != [n]:
            return "%s gives %s" % (values, got)
        if ([s["name"] for s in steps] != ["part 1", "part 2"]
            or bool(steps[1].get("cacheHit")) != hit or not steps[0].get("cacheHit")):
            return "steps %s" % steps
        if (not all(s["profile"]["rows"] for s in steps[:1]) or len(info["runMs"]) != 3
            or len(steps[0]["runMs"]) != 1):
            return "profile or times: %s" % info
        if (min(info["runMs"]) < steps[0]["runMs"][0]
            or seen.setdefault(n, info["executable"]) != info["executable"]):
            return "run_ms %s, executable %s" % (info["runMs"], info["executable"])
    info = next(e for e in kept(d) if e["digest"] == seen[7])
    if info["part"] != {"index": 1, "carried": 1} and info["part"] != {"index": 1, "carried": 2}:
        return "the last part is %s" % info["part"]
    return None if "@0[0000]=7" in info["bindings"] else "bindings %s" % info["bindings"]


def alone(d):
    """The first part by its digest runs the whole; a later one by its digest goes on with
    nothing."""
    data, digest = model(COUNTED)
    first = d.compile(data, {"x": (2,)})["digest"]
    got, info = d.run(first, x(2, 2))
    if got["y"].tolist() != [1, 2, 3, 4]:
        return "the first part by itself gives %s" % got
    why = refused(d, info["executable"], x(2, 2))
    return (None if why[0] == 400 and "earlier part" in why[2]
            else "a later part by itself: %s" % (why,))


def hostile(d):
    """Sizes that no run has room for, and those that are none: an error that names the node and
    says what was found; the daemon goes on."""
    data, digest = model(COUNTED)
    d.compile(data, {"x": (1,)})
    for value in (-1.0, -1e30, 1e30, float(2 ** 40), float("inf"), float(2 ** 31)):
        why = refused(d, digest, x(value))
        if (why[0] not in (400, 413, 429, 507)
            or ("ConstantOfShape" not in why[2] and "memory" not in why[2])):
            return "%g: %s" % (value, why)
    for value in (0, float("nan")):  # a whole number that is none is 0, as in HLO
        got, _ = d.run(digest, x(value))
        if got["y"].size:
            return "%g gives %s" % (value, got)
    return None


def endless(d):
    """Sizes that depend on sizes: so many parts, and no more."""
    def chain(n):
        lines, last = ["  lead = Constant <value_ints = [0]> ()",
                       "  next = Constant <value_ints = [1]> ()",
                       "  first = Slice (x, lead, next)"], "x"
        for k in range(n):
            lines += ["  s%d = ReduceSum <keepdims = 1> (%s)" % (k, last),
                      "  n%d = Cast <to = 7> (s%d)" % (k, k),
                      "  y%d = Expand (first, n%d)" % (k, k)]
            last = "y%d" % k
        return HEAD + "g (float[2] x) => (float[N] %s)\n{\n%s\n}" % (last, "\n".join(lines))
    data, digest = model(chain(12))
    d.compile(data, {})
    got, info = d.run(digest, x(1, 2))
    if got["y11"].tolist() != [1, 1, 1] or len(info["steps"]) != 13:
        return "12 sizes give %s, %d parts" % (got, len(info["steps"]))
    data, digest = model(chain(80))
    d.compile(data, {})
    why = refused(d, digest, x(1, 2))
    return None if why[0] == 429 and "depend on sizes" in why[2] else "80 sizes: %s" % (why,)


KEPT = 128  # executables of a program


def many(d):
    """Hundreds of sizes of one program: the daemon keeps as many executables as of other shapes,
    and a sixteenth more until it counts again."""
    data, digest = model(COUNTED)
    d.compile(data, {"x": (1,)})
    for n in range(300):
        got, _ = d.run(digest, x(n))
        if got["y"].size != n:
            return "%d gives %s" % (n, got)
    mine = [e for e in kept(d) if e["sourceDigest"] == digest]
    return None if KEPT // 2 < len(mine) <= KEPT + KEPT // 16 + 1 else \
        "%d executables are kept" % len(mine)


def doors(d):
    """The Open Inference Protocol, and a stream of events; a compile is not wanted: refused before
    the second part."""
    data, digest = model(COUNTED)
    d.compile(data, {"x": (2,)})
    code, _, text = d.raw("POST", "/v1/models", json.dumps({"name": "counted", "model": digest}),
                          {"Content-Type": "application/json"})
    if code >= 300:
        return "naming: %d %s" % (code, text[:200])
    ask = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [2, 3]}]}
    r = d.json("POST", "/v2/models/counted/infer", json.dumps(ask),
               {"Content-Type": "application/json"})
    if [o["data"] for o in r["outputs"] if o["name"] == "y"] != [[1, 2, 3, 4, 5]]:
        return "infer gives %s" % r
    why = refused(d, digest, x(17, 0), no_compile=True)
    if why[1] != "WOULD_COMPILE":
        return "no_compile: %s" % (why,)
    code, _, text = d.raw(
        "POST", "/v1/run",
        json.dumps({"model": digest,
                    "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [9, 2]}]}),
        {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
    kinds = [next(iter(set(json.loads(line)) - {"tMs", "t_ms"})) for line in text.splitlines()
             if line.strip()]
    return None if kinds.count("compiled") == 2 and kinds.count("running") == 2 and kinds.count(
        "result") == 1 else "events %s" % kinds


def with_others(d):
    """What parts do not go with says so: batches, plans."""
    data, digest = model(
        COUNTED.replace("float[K] x", "float[N, 2] x").replace(
            "(float[N] y, float[1] s)", "(float[N] y)").replace("(x)", "(flat)").replace(
            "  s =",
            "  minus = Constant <value_ints = [-1]> ()\n  flat = Reshape (x, minus)\n  s ="))
    d.compile(data, {"x": (1, 2)})
    code, _, text = d.raw("POST", "/v1/models",
                          json.dumps({"name": "joined", "model": digest,
                                      "batching": {"max": 4, "unchecked": True}}),
                          {"Content-Type": "application/json"})
    if code != 400 or b"only a run has" not in text:
        return "batching: %d %s" % (code, text[:300])
    data, digest = model(COUNTED)
    plan = {"steps": [{"name": "a", "model": digest, "inputs": [{"name": "x", "input": "x"}]}],
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [2, 3]}],
            "outputs": [{"step": "a", "output": "y"}]}
    code, _, text = d.raw("POST", "/v1/plan", json.dumps(plan),
                          {"Content-Type": "application/json"})
    return (None if code == 400 and b"only a run has" in text
            else "a plan: %d %s" % (code, text[:300]))


def deadline(d):
    """One deadline for all parts."""
    data, digest = model(COUNTED)
    d.compile(data, {"x": (2,)})
    why = refused(d, digest, x(1000003, 1), timeout_ms=1)
    return None if why[0] == 504 else "%s" % (why,)


def chance(d):
    """Random numbers that decide a size and are used behind the cut are the same on both sides, in
    every run others."""
    data, digest = model(HEAD + """g (float[16] x) => (float[N] y, float[16] u)
{
  r = RandomUniformLike (x)
  k = Constant <value = float {9}> ()
  r9 = Mul (r, k)
  u = Ceil (r9)
  s = ReduceSum <keepdims = 1> (u)
  n = Cast <to = 7> (s)
  y = ConstantOfShape <value = float[1] {1}> (n)
}""")
    d.compile(data, {})
    sizes = set()
    for _ in range(6):
        got, _ = d.run(digest, x(*[0] * 16))
        if got["y"].size != int(got["u"].sum()):
            return "%d ones, the numbers say %g" % (got["y"].size, got["u"].sum())
        sizes.add(got["y"].size)
    return None if len(sizes) > 1 else "always %s" % sizes


def merged(d):
    """Decoders for the first token and for those behind it, merged by an input's truth: one part
    each, not two."""
    data, digest = model(HEAD + """g (bool[1] behind, float[B, T] x, float[B, P] past) => (float[B, Q] y)
{
  y = If (behind) <
    then_branch = t () => (float[B, Q] both) { both = Concat <axis = 1> (past, x) },
    else_branch = e () => (float[B, T] first) { first = Neg (x) }
  >
}""")
    d.json("PUT", "/v1/blobs", data, {"Content-Type": "application/octet-stream"})
    now, past = np.ones((1, 2), np.float32), np.full((1, 3), 2, np.float32)
    for behind, want in ((False, [-1, -1]), (True, [2, 2, 2, 1, 1])):
        got, info = d.run(digest, {"behind": np.array([behind]), "x": now, "past": past})
        if got["y"].tolist() != [want] or info.get("steps"):
            return "%s gives %s in %d parts" % (behind, got["y"].tolist(),
                                                len(info.get("steps", [])))
    return None


def text(d):
    """Text that is computed before a cut and used behind it."""
    data, digest = model(HEAD + """g (string[N] s, float[K] x) => (string[M] y, string[N] u)
{
  bang = Constant <value_strings = ["!"]> ()
  at = Constant <value_ints = [0]> ()
  one = Constant <value_ints = [1]> ()
  none = Constant <value = float {0}> ()
  up = Greater (x, none)
  b = Where (up, s, bang)
  sum = ReduceSum <keepdims = 1> (x)
  n = Cast <to = 7> (sum)
  first = Slice (b, at, one)
  y = Expand (first, n)
  u = Where (up, bang, b)
}""")
    d.compile(data, {"s": (2,), "x": (2,)})
    for s, v, y, u in ((["a", "\u00fc"], (3, 0), ["a"] * 3, ["!", "!"]),
                       (["", "b"], (-1, 2), ["!"], ["!", "!"]),
                       (["a", "b"], (0, 0), [], ["!", "!"])):
        got, info = d.run(digest, {"s": np.array(s, object), "x": np.array(v, np.float32)})
        if [list(got["y"]), list(got["u"])] != [y, u] or len(info["steps"]) != 2:
            return "%s, %s gives %s" % (s, v, got)
    return None


def main():
    results = harness.Results()
    with daemon.Daemon(sys.argv[1], args=["--max-shapes", str(KEPT)]) as d:
        title = lambda f: " ".join(re.split("[:;]", f.__doc__)[0].split()).rstrip(".")
        parts = (reply, alone, hostile, endless, many, doors, with_others, deadline, chance, merged,
                 text)
        results.each([(title(f), lambda f=f: f(d)) for f in parts], sys.argv[2:])
    return results.code()


if __name__ == "__main__":
    sys.exit(main())
