# SPDX-License-Identifier: Apache-2.0
"""Large programs of one kind each: chains, fans, many results, arguments, constants, loops,
branches. Seconds that hlo-run takes to compile each at growing sizes, by what power of the size
they grow, and the phases that took longest.

    large_programs.py BUILD [--sizes 1000,4000,16000] [--elements 64] [--xla] [KIND...]

--xla: XLA:CPU's compile of the same text beside it, in a process of its own, 60 s at most.
"""
import argparse
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time

LOOP = """body{k} {{
  p = (s32[], {f}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = {f} get-tuple-element(p), index=1
  o = s32[] constant(1)
  j = s32[] add(i, o)
  y = {f} tanh(x)
  ROOT t = (s32[], {f}) tuple(j, y)
}}
cond{k} {{
  p = (s32[], {f}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  o = s32[] constant({turns})
  ROOT r = pred[] compare(i, o), direction=LT
}}
"""
BRANCHES = """yes{k} {{
  x = {f} parameter(0)
  ROOT y = {f} tanh(x)
}}
no{k} {{
  x = {f} parameter(0)
  ROOT y = {f} sine(x)
}}
"""
CALL = """c{k} {{
  x = {f} parameter(0)
  y = {f} call(x), to_apply=c{below}
  ROOT z = {f} call(y), to_apply=c{below}
}}
"""


class Program:
    """Instructions of an entry, and computations before it; `f` is the type of its arrays."""

    def __init__(self, elements):
        self.lines, self.head, self.f, self.elements = [], [], "f32[%d]" % elements, elements

    def op(self, text, shape=None):
        self.lines.append("v%d = %s %s" % (len(self.lines), shape or self.f, text))
        return "v%d" % (len(self.lines) - 1)

    def scaled(self, x, k):
        c = self.op("constant(%d.5)" % k, "f32[]")
        return self.op("power(%s, %s)" % (x, self.op("broadcast(%s), dimensions={}" % c)))

    def sum(self, v):
        while len(v) > 1:
            v = [self.op("add(%s, %s)" % (v[k], v[k + 1])) for k in range(0, len(v) - 1, 2)] + (
                v[-1:] if len(v) % 2 else [])

    def results(self, v):
        self.op("tuple(%s)" % ", ".join(v), "(" + ", ".join([self.f] * len(v)) + ")")

    def text(self):
        lines = ["  " + line for line in self.lines]
        lines[-1] = "  ROOT" + lines[-1][1:]
        return "HloModule large\n\n%s\nENTRY main {\n%s\n}\n" % ("".join(self.head),
                                                                 "\n".join(lines))


def chain(p, n, ops=("tanh({x})", "add({x}, {y})", "multiply({x}, {y})")):
    x = y = p.op("parameter(0)")
    for k in range(n):
        x = p.op(ops[k % len(ops)].format(x=x, y=y))


def sines(p, n):
    chain(p, n, ("sine({x})",))


def fan(p, n):
    x = p.op("parameter(0)")
    p.sum([p.scaled(x, k) for k in range(n // 4)])


def results_of_chain(p, n):
    v = [p.op("parameter(0)")]
    for _ in range(n):
        v.append(p.op("tanh(%s)" % v[-1]))
    p.results(v)


def results_of_one(p, n):
    x = p.op("parameter(0)")
    p.results([p.scaled(x, k) for k in range(n // 3)])


def arguments(p, n):
    p.sum([p.op("parameter(%d)" % k) for k in range(n // 2)])


def concatenation(p, n):
    v = [p.op("parameter(%d)" % k) for k in range(n)]
    p.op("concatenate(%s), dimensions={0}" % ", ".join(v), "f32[%d]" % (p.elements * n))


def slices(p, n):
    x, v = p.op("parameter(0)", "f32[%d]" % (p.elements * n)), []
    for k in range(n // 2):
        s = p.op("slice(%s), slice={[%d:%d]}" % (x, k * p.elements, (k + 1) * p.elements))
        v.append(p.op("tanh(%s)" % s))
    p.op("concatenate(%s), dimensions={0}" % ", ".join(v), "f32[%d]" % (p.elements * len(v)))


def turned(p, n):
    a, b = "f32[4,%d]" % p.elements, "f32[%d,4]" % p.elements
    x = p.op("parameter(0)", a)
    for _ in range(n // 3):
        x = p.op("reshape(%s)" % p.op("transpose(%s), dimensions={1,0}" % x, b), a)
        x = p.op("tanh(%s)" % x, a)


def constants(p, n):
    x = p.op("parameter(0)")
    for k in range(n // 2):
        c = p.op("constant({%s})" % ", ".join("%d.%d" % (k, j) for j in range(p.elements)))
        x = p.op("%s(%s, %s)" % (("add", "multiply")[k % 2], x, c))


def unrolled(p, n):
    h, w = p.op("parameter(0)", "f32[1,32]"), p.op("parameter(1)", "f32[32,32]")
    x = p.op("parameter(2)", "f32[%d,32]" % n)
    for k in range(n // 4):
        d = p.op("dot(%s, %s), lhs_contracting_dims={1}, rhs_contracting_dims={0}" % (h, w),
                 "f32[1,32]")
        s = p.op("slice(%s), slice={[%d:%d],[0:32]}" % (x, k, k + 1), "f32[1,32]")
        h = p.op("tanh(%s)" % p.op("add(%s, %s)" % (d, s), "f32[1,32]"), "f32[1,32]")


def loops(p, n):
    x, z = p.op("parameter(0)"), p.op("constant(0)", "s32[]")
    pair = "(s32[], %s)" % p.f
    for k in range(n // 12):
        p.head.append(LOOP.format(k=k, f=p.f, turns=k % 7 + 3))
        w = p.op("while(%s), condition=cond%d, body=body%d" % (p.op(
            "tuple(%s, %s)" % (z, x), pair), k, k), pair)
        x = p.op("get-tuple-element(%s), index=1" % w)


def branches(p, n):
    x, yes = p.op("parameter(0)"), p.op("parameter(1)", "pred[]")
    for k in range(n // 5):
        p.head.append(BRANCHES.format(k=k, f=p.f))
        x = p.op("conditional(%s, %s, %s), true_computation=yes%d, false_computation=no%d" % (
            yes, x, x, k, k))


def calls(p, n):
    p.head.append("c0 {\n  x = %s parameter(0)\n  ROOT y = %s sine(x)\n}\n" % (p.f, p.f))
    depth = n.bit_length() - 1
    for k in range(1, depth + 1):
        p.head.append(CALL.format(k=k, below=k - 1, f=p.f))
    p.op("call(%s), to_apply=c%d" % (p.op("parameter(0)"), depth))


KINDS = [chain, sines, fan, results_of_chain, results_of_one, arguments, concatenation, slices,
         turned, constants, unrolled, loops, branches, calls]


def ours(build, path):
    start = time.monotonic()
    r = subprocess.run([os.path.join(build, "hlo-run"), "--compile", "1", "--profile", path],
                       check=True, capture_output=True, text=True)
    seconds = time.monotonic() - start
    rows = re.findall(r"^ *([0-9.]+) ms  (\S.*)$", r.stdout, re.M)
    return seconds, sorted(((float(ms), name) for ms, name in rows), reverse=True)[:3]


def xla_worker(text, queue):
    from jax._src import xla_bridge
    from jax._src.lib import _jax, xla_client
    from jaxlib import _hlo
    cpu = xla_bridge.get_backend("cpu")
    module = _jax.mlir.hlo_to_stablehlo(
        _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto())
    start = time.monotonic()
    cpu.compile_and_load(module, _jax.DeviceList(tuple(cpu.local_devices()[:1])),
                         xla_client.CompileOptions())
    queue.put(time.monotonic() - start)


def xla(text, most=60):
    os.environ["JAX_PLATFORMS"] = "cpu"
    queue = multiprocessing.Queue()
    worker = multiprocessing.Process(target=xla_worker, args=(text, queue))
    worker.start()
    worker.join(most)
    said = "more than %d" % most if worker.is_alive() else "failed"
    if worker.exitcode == 0:
        said = "%.2f" % queue.get()
    worker.kill()
    worker.join()
    return said


def main():
    o = argparse.ArgumentParser()
    o.add_argument("build")
    o.add_argument("kind", nargs="*")
    o.add_argument("--sizes", default="1000,4000,16000")
    o.add_argument("--elements", type=int, default=64)
    o.add_argument("--xla", action="store_true")
    o = o.parse_intermixed_args()
    sizes = [int(n) for n in o.sizes.split(",")]
    for kind in KINDS:
        if o.kind and kind.__name__ not in o.kind:
            continue
        seconds, theirs = [], []
        for n in sizes:
            p = Program(o.elements)
            kind(p, n)
            with tempfile.NamedTemporaryFile("w", suffix=".hlo") as f:
                f.write(p.text())
                f.flush()
                s, longest = ours(o.build, f.name)
            seconds.append(s)
            theirs += [xla(p.text())] if o.xla else []
        power = len(sizes) > 1 and math.log(seconds[-1] / seconds[-2]) / math.log(
            sizes[-1] / sizes[-2])
        print("%-17s %s  power %.2f  %s%s" % (
            kind.__name__, " ".join("%7.3f" % s for s in seconds), power,
            ", ".join("%s %.0f ms" % (name, ms) for ms, name in longest),
            "  XLA " + " ".join(theirs) if theirs else ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
