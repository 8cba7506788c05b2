# SPDX-License-Identifier: Apache-2.0
"""Attacks by small models that are long to compile. Models are written by hand in protobuf's wire
form (tests/api/bad_models.py)."""
import os, re, struct, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
from bad_models import FLOAT, INT64, X, Y, model, node, num, sub, tensor, value
from common import MB

ONNX = {"Content-Type": "application/onnx"}
BOOL, STRING = 9, 8

def nested_loops(levels, name):
    """Loops in loops of 1000 turns each over a constant: the compile computes them until its budget
    ends."""
    scalar = lambda field, name, dtype: sub(field, sub(1, name),
                                            sub(2, sub(1, num(1, dtype), sub(2))))
    free = lambda field, name: sub(field, sub(1, name), sub(2, sub(1, num(1, FLOAT))))
    def body(k):
        inner = node("Cos", [f"v{k}"], [f"w{k}"]) if k == levels else loop(f"v{k}", f"w{k}", k + 1)
        return sub(6, node("Identity", [f"c{k}"], [f"d{k}"]), inner, sub(2, "b"),
                   scalar(11, f"i{k}", INT64), scalar(11, f"c{k}", BOOL), free(11, f"v{k}"),
                   scalar(12, f"d{k}", BOOL), free(12, f"w{k}"))
    def loop(a, b, k):
        return node("Loop", ["turns", "", a], [b], sub(5, sub(1, "body"), body(k), num(20, 5)))
    return model(loop("k", "l", 0), node("Add", ["x", "l"], ["y"], name=name),
                 tensor("turns", [], struct.pack("q", 1000), INT64),
                 tensor("k", [1], struct.pack("f", .5)), X, Y, opset=18)

def work_made_ahead(d):
    """Small models whose compile takes long, with a deadline that is short: what the worker makes
    before it is asked for belongs to no request, and others' compiles wait for none of it."""
    for k in range(4):
        status, r = d.by("b", "POST", "/v1/executables", nested_loops(2, f"n{k}"),
                         {**ONNX, "Hlod-Timeout-Ms": "300"})
        assert status == 504, (status, r)
        t = time.monotonic()
        status, r = d.by("a", "POST", "/v1/executables",
                         model(node("Relu", ["x"], ["y"], name=f"n{k}"), X, Y), ONNX)
        assert status == 200 and time.monotonic() - t < 20, (time.monotonic() - t, r)
work_made_ahead.credentials = work_made_ahead.real = work_made_ahead.unsanitized = True

def texts_made_by_the_compile(d):
    """A constant text that doubles forty times: what a compile makes of texts stays small, and the
    run is told that there is no room."""
    field = lambda f, name: value(f, name, [1], STRING)
    text = sub(5, num(1, 1), num(2, STRING), sub(8, "a0"), sub(6, "hello world"))
    status, r = d.by("b", "POST", "/v1/executables",
                     model(*[node("StringConcat", [f"a{k}", f"a{k}"], [f"a{k + 1}"])
                             for k in range(40)], text, field(12, "a40"), opset=20), ONNX)
    assert status == 200, r
    size = os.stat(os.path.join(d.dir, "data", "executables", r["executable"]["digest"][:2],
                                r["executable"]["digest"])).st_size
    assert size < 20 * MB, size
    status, r = d.by("b", "POST", "/v1/run", {"model": r["sourceDigest"], "inputs": []})
    assert status == 429, r
texts_made_by_the_compile.credentials = texts_made_by_the_compile.real = True

def calls_of_calls(d):
    """Thirty levels that each call the level above twice, as branches and as calls: refused before
    anything is made of them."""
    pred = "s = f32[1] slice(p), slice={[0:1]}\n q = f32[] reshape(s)\n " \
        "b = pred[] compare(q, q), direction=EQ\n"
    ways = {"branches": lambda c: f"{pred} ROOT r = f32[4] conditional(b, p, p), "
            f"true_computation={c}, false_computation={c}",
            "calls": lambda c: f"d = f32[4] call(p), to_apply={c}\n ROOT r = f32[4] call(d), "
            f"to_apply={c}"}
    for name, level in ways.items():
        text = f"HloModule {name}\nc0 {{ p = f32[4] parameter(0)\n ROOT r = f32[4] sine(p) }}\n"
        for k in range(1, 31):
            text += "%s c%d { p = f32[4] parameter(0)\n %s }\n" % (
                "ENTRY" if k == 30 else "", k, level("c%d" % (k - 1)))
        status, r = d.by("b", "POST", "/v1/executables", text, {"Content-Type": "text/x-hlo"})
        assert status == 429 and "each call for itself" in str(r), (status, r)
calls_of_calls.credentials = calls_of_calls.real = True

def programs_of_many_parts(d):
    """Programs of tens of thousands of parts: a chain of branches is refused before anything
    follows it, a loop over as many values and conversions of one value compile in seconds."""
    head, n = "HloModule m\n", 30000
    each = lambda f, k: "".join(f(i) for i in range(k))
    branches = head + "c0 { p = f32[4] parameter(0)\n ROOT r = f32[4] sine(p) }\n" + each(
        lambda k: f"c{k + 1} {{ p = f32[4] parameter(0)\n s = f32[1] slice(p), slice={{[0:1]}}\n "
        "q = f32[] reshape(s)\n b = pred[] compare(q, q), direction=LT\n ROOT r = f32[4] "
        f"conditional(b, p, p), true_computation=c{k}, false_computation=c0 }}\n", n)
    branches += "ENTRY e { p = f32[4] parameter(0)\n " \
        f"ROOT r = f32[4] call(p), to_apply=c{n} }}\n"
    n = 10000
    state = "(s32[]" + ", f32[8]" * n + ")"
    wide = head + f"d {{ p = {state} parameter(0)\n i = s32[] get-tuple-element(p), index=0\n " \
        "c = s32[] constant(9)\n ROOT r = pred[] compare(i, c), direction=LT }\n" + \
        f"b {{ p = {state} parameter(0)\n i = s32[] get-tuple-element(p), index=0\n " + each(
            lambda k: f"g{k} = f32[8] get-tuple-element(p), index={k + 1}\n y{k} = f32[8] "
            f"sine(g{k})\n ", n) + f"ROOT r = {state} tuple(i" + each(lambda k: f", y{k}", n) + \
        ") }\nENTRY e { i = s32[] constant(0)\n x = f32[8] parameter(0)\n p = " + state + \
        " tuple(i" + ", x" * n + f")\n ROOT r = {state} while(p), condition=d, body=b }}\n"
    n = 60000
    converts = head + "ENTRY e { p = bf16[4] parameter(0)\n x = bf16[4] add(p, p)\n " \
        "m0 = f32[4] convert(p)\n " + each(
            lambda k: f"c{k} = f32[4] convert(x)\n m{k + 1} = f32[4] add(m{k}, c{k})\n ", n) + \
        f"ROOT r = f32[4] negate(m{n}) }}\n"
    for text, expected in (branches, 429), (wide, 200), (converts, 200):
        t = time.monotonic()
        status, r = d.by("b", "POST", "/v1/executables", text,
                         {"Content-Type": "text/x-hlo", "Hlod-Timeout-Ms": "60000"})
        assert status == expected, (status, str(r)[:300])
        assert status == 200 or "nest deeper than" in r["message"], r
        assert time.monotonic() - t < 40, time.monotonic() - t
programs_of_many_parts.credentials = programs_of_many_parts.real = True
programs_of_many_parts.unsanitized = True

def compiles_of_others(d):
    """One tenant compiles until it is refused: as many of --compile-rate as it took are left to
    others, and it goes on at the rate; where others then take theirs, it is told how long it waits
    for as much to be left again."""
    start = time.monotonic()

    def compiled(who, size, body):
        return d.by(who, "POST", f"/v1/executables?shape=x={size}x4", body)
    mine = d.bytes.replace(b"weight 4", b"weight 8")
    assert compiled("b", 1, mine)[0] == 200
    taken = 0
    while (r := compiled("a", taken + 2, d.bytes))[0] == 200:
        taken += 1
        assert taken < 60, "nothing was left to others"
    assert taken >= 20 and r[0] == 429 and r[1]["reason"] == "COMPILE_RATE", (taken, r)
    for k in range(12):
        status, r = compiled("b", k + 2, mine)
        assert status == 200, (k, r)
    status, r = compiled("a", taken + 2, d.bytes)
    left = 60 - taken - 13
    least = (taken - left) / 2 - (time.monotonic() - start)  # what flowed in counts on both sides
    assert least <= 0 or status == 429, (status, r)
    wait = float(re.search(r"begin in ([0-9.]+) s", r["message"])[1]) if status == 429 else 0
    assert wait >= least, (wait, least)
compiles_of_others.credentials = True
compiles_of_others.options = ["--compile-rate", "60"]

def shapes_of_others(d):
    """One tenant compiles ever new shapes of the graph that another has, too: what goes is its own,
    and the other's are still there, also those that it has itself by now."""
    def compiled(who, size):
        status, r = d.by(who, "POST", f"/v1/executables?shape=x={size}x4", d.bytes)
        assert status == 200, (who, size, r)
        return r.get("cacheHit", False)
    for size in (2, 3):
        compiled("b", size)
    assert compiled("a", 3)
    for size in range(10, 40):
        assert not compiled("a", size)
    assert compiled("b", 2) and compiled("b", 3), "pushed out"
    assert compiled("a", 39) and not compiled("a", 10)
shapes_of_others.credentials = True
shapes_of_others.options = ["--max-shapes", "8"]
