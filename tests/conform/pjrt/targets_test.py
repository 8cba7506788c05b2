# SPDX-License-Identifier: Apache-2.0
"""Targets over a CPU plugin: compiled where no device of the kind is, loaded where one is;
replicas; what is refused; plugins that misbehave while they compile.

    targets_test.py BUILD PLUGIN
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "models"))
import daemon  # noqa: E402
import harness  # noqa: E402
import zoo  # noqa: E402

build, plugin = sys.argv[1:3]

SUMS = b"""HloModule sums
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a,b) }
ENTRY e {
  x = f32[4] parameter(0)
  id = u32[] replica-id()
  f = f32[] convert(id)
  own = f32[4] broadcast(f), dimensions={}
  y = f32[4] add(x, own)
  all = f32[4] all-reduce(y), replica_groups={}, to_apply=add
  k = f32[1] constant({3})
  kk = f32[2] all-gather(k), dimensions={0}, replica_groups={{0,1}}
  ROOT t = (f32[4], f32[4], f32[2]) tuple(all, own, kk)
}
"""


def report(ok, name, text=""):
    print("%s pjrt %s %s" % ("PASS" if ok else "FAIL", name, text), flush=True)


def hlo(d, *words, **env):
    return subprocess.run([build + "/hlo", *words], capture_output=True, text=True,
                          env=dict(os.environ, HLOD_ADDR="%s:%d" % d.addr, **env))


def refused(d, target, text, query="", program=SUMS):
    status, _, body = d.raw("POST", "/v1/executables?target=" + target + query, program,
                            {"Content-Type": "text/x-hlo"})
    said = json.loads(body).get("message", "")
    report(status == 400 and text in said, "target '%.20s' is refused" % target,
           "HTTP %d %s" % (status, said[:120]))


def ahead_of_time(data):
    path, x = zoo.ensure("build/models", "mlp"), np.random.default_rng(
        3).standard_normal((4, 784)).astype(np.float32)
    with daemon.Daemon(build, data, args=["--plugins", "xla=" + plugin]) as d:
        c = d.compile(path, {"x": x.shape}, target="cpu:plugin=xla",
                      budget="instructions=100000,hbm=4G")
        e = c["executable"]
        ok = (not c.get("cacheHit") and not c.get("overBudget") and e["optimized"]["entry"] > 0
              and e["flops"] > 2 * 4 * 784 * 10 and e["compilePeakRss"] > 1 << 20
              and e["memory"]["arguments"] > 0)
        report(ok, "a target without a device",
               "entry %s of %s, %s flops, peak %s"
               % (e["optimized"]["entry"], e["after"]["entry"], e["flops"], e["compilePeakRss"]))
        stream = d.raw("POST", "/v1/executables?target=cpu:plugin=xla", SUMS,
                       {"Content-Type": "text/x-hlo", "Accept": "application/x-ndjson"})[2]
        passes = [p for p in (json.loads(l).get("pass") for l in stream.splitlines() if l.strip())
                  if p and p["name"] == "plugin"]
        report(len(passes) == 2 and passes[0].get(
                   "begins") and not passes[1].get("begins") and passes[1]["ms"] > 0,
               "a stream says when the plugin's compiler begins", str(passes))
        over = d.compile(path, {"x": x.shape}, target="cpu:plugin=xla",
                         budget="instructions=1,bytes=1K,hbm=16").get("overBudget", [])
        report(len(over) == 3 and over[0].startswith("instructions: "), "over budget", str(over))
        p = hlo(d, "compile", path, "--shape", "x=4x784", "--target", "xla", "--budget",
                "instructions=1")
        report(p.returncode == 7 and "over budget  instructions" in p.stdout,
               "hlo compile --budget", p.stderr)
        text = d.raw("GET", "/v1/executables/%s/stage/optimized" % c["digest"], None,
                     {"Accept": "text/plain"})
        report(text[0] == 200 and b"is_scheduled=true" in text[2] and b"ENTRY" in text[2],
               "the plugin's optimised module")
        p = hlo(d, "targets", "--json")
        rows = {t["name"]: t for t in json.loads(p.stdout)["targets"]}
        report(rows["xla"].get("compiles") and not rows["xla"].get(
                   "executes") and "hlod --device" in rows["xla"]["executesWhy"] and rows[
                   "cpu"].get("executes") and not rows["tpu:v5e:2x2"].get(
                   "compiles") and "hlo plugins install tpu" in rows["tpu:v5e:2x2"]["compilesWhy"],
               "hlo targets", p.stderr)
        try:
            d.run(c["digest"], {"x": x})
            report(False, "a run where no device of the target is")
        except daemon.Refused as e:
            report("no device worker for device xla" in str(e),
                   "a run where no device of the target is", str(e))
        for target, text in (("tpu:v5e:2x2", "hlo plugins install tpu"),
                             ("xla:v5e:2x2", "compiles for its own devices only"),
                             ("nonsense", "is not a target"), (":", "is not a target"),
                             ("cpu:plugin=none", "no plugin is called 'none'"),
                             ("x" * 200, "is not a target")):
            refused(d, target, text)
        refused(d, "cpu", "name one", "&device=cpu")
        refused(d, "cpu:plugin=xla", "instruction 'raise': the run came to a branch that cannot",
                program=harness.ENDS)
        with open(os.path.join(data, "suite.yaml"), "w") as f:
            f.write("models: [{model: %s, shapes: {x: 4x784}}]\ntargets: [{target: xla}, {target: "
                    "'xla:v5e:2x2'}]\n" % c["sourceDigest"])
        p = hlo(d, "submit", os.path.join(data, "suite.yaml"), "--wait", "--junit",
                os.path.join(data, "junit.xml"))
        text = (open(os.path.join(data, "junit.xml")).read()
                if os.path.exists(os.path.join(data, "junit.xml")) else p.stderr)
        report('tests="2" failures="0" errors="1"' in text and "compiles for its own devices "
                                                               "only" in text,
               "batch jobs that compile for targets",
               "" if 'errors="1"' in text else text[:900].replace("\n", " "))
    with daemon.Daemon(build, data, args=["--plugins", "xla=" + plugin, "--device=cpu,xla"]) as d:
        again = d.compile(path, {"x": x.shape}, device="xla")
        got, info = d.run(c["sourceDigest"], {"x": x}, device="xla:0")
        want, _ = d.run(c["sourceDigest"], {"x": x}, device="cpu")
        y, z = next(iter(got.values())), next(iter(want.values()))
        report(again["digest"] == c["digest"] and bool(again.get("cacheHit")) and bool(
                   info.get("cacheHit")) and np.abs(y - z).max() < 1e-4,
               "loaded by a machine with the device, without a compile",
               "error %.2g" % np.abs(y - z).max())


DOTS = b"""HloModule dots
ENTRY e {
  a = f32[8,8] parameter(0)
  b = f32[8,8] parameter(1)
  h = bf16[8,8] convert(a)
  as_is = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  said = f32[8,8] dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={high,high}
  half = bf16[8,8] dot(h, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[8,8], f32[8,8], bf16[8,8]) tuple(as_is, said, half)
}
"""


def precisions(data):
    """A plugin may multiply f32 in less, unless told not to (docs/precision.md)."""
    with daemon.Daemon(build, data, args=["--plugins", "xla=" + plugin]) as d:
        for precision, full in (("default", 1), ("strict", 1), ("fast", 0)):
            c = d.json("POST", "/v1/executables?target=xla&precision=" + precision, DOTS,
                       {"Content-Type": "text/x-hlo"})
            text = d.raw("GET", "/v1/executables/%s/stage/hlo-after" % c["digest"], None,
                         {"Accept": "text/plain"})[2].decode()
            dots = [line for line in text.splitlines() if " dot(" in line]
            of = [sum("operand_precision={%s,%s}" % (w, w) in line for line in dots)
                  for w in ("highest", "high")]
            note = c["executable"].get("precisionNote", "")
            report(len(dots) == 3 and of == [full, 1] and ("TF32" in note) == (precision == "fast")
                   and "backend_config" not in text,
                   "precision %s, as the plugin is told" % precision, "%s %s" % (of, note))


def elsewhere(data):
    """What a daemon without the device compiled goes to one that has it, and a data folder of its
    own: it compiles nothing."""
    path, x = zoo.ensure("build/models", "mlp"), np.random.default_rng(
        3).standard_normal((4, 784)).astype(np.float32)
    with daemon.Daemon(build, data + "1", args=["--plugins", "xla=" + plugin]) as d, daemon.Daemon(
        build, data + "2",
        args=["--plugins", "xla=" + plugin, "--device=xla", "--allow-cache-import"]) as host:
        c = d.compile(path, {"x": x.shape}, target="cpu:plugin=xla")
        p = hlo(d, "cache", "push", c["digest"], "--to", "%s:%d" % host.addr)
        report(p.returncode == 0, "an executable is pushed to a machine with the device", p.stderr)
        again = host.compile(path, {"x": x.shape})
        got, info = host.run(c["sourceDigest"], {"x": x})
        compiles = harness.metric(host, "hlod_compiles_total")
        with daemon.Daemon(build, args=["--device=cpu"]) as cpu:
            want, _ = cpu.run(cpu.compile(path, {"x": x.shape})["sourceDigest"], {"x": x})
        y, z = next(iter(got.values())), next(iter(want.values()))
        report(again["digest"] == c["digest"] and bool(
                   again.get("cacheHit")) and compiles == 0 and np.abs(y - z).max() < 1e-4,
               "and runs there with no compile",
               "%d compiles, error %.2g" % (compiles, np.abs(y - z).max()))


def reproducible(data):
    """XLA numbers what a process compiles; what comes out must not depend on it. Two daemons, two
    orders. (Programs of several kernels XLA:CPU compiles in parallel, and not the same twice.)"""
    texts = {n: open(os.path.join(HERE, n + ".hlo"), "rb").read()
             for n in ("conv_bias_relu", "while_conditional")}
    made = []
    for k, order in enumerate((list(texts), list(texts)[::-1])):
        with daemon.Daemon(build, data + "r%d" % k,
                           args=["--plugins", "xla=" + plugin, "--device=xla"]) as d:
            c = {n: d.json("POST", "/v1/executables", texts[n], {"Content-Type": "text/x-hlo"})
                 for n in order}
            made.append({n: c[n]["executable"]["contentDigest"] for n in order})
            p = hlo(d, "cache", "verify", c["conv_bias_relu"]["digest"], "--recompile")
            report(p.returncode == 0 and "a new compile is the same" in p.stdout,
                   "a new compile in a daemon that began with %s is the same" % order[0],
                   p.stdout + p.stderr)
            report(harness.metric(d, "hlod_worker_deaths_total") == 0 and d.raw(
                       "GET", "/v2/health/ready")[0] == 200,
                   "a new process for each compile is no death")
    report(made[0]["conv_bias_relu"] == made[1]["conv_bias_relu"],
           "the same content from two daemons in whatever order", str(made))


def replicas(data):
    with daemon.Daemon(build, data, args=["--device=cpu,cpu:plugin=xla", "--plugins",
                                          "xla=" + plugin + ":set.cpu_device_count=2"]) as d:
        x = np.arange(8, dtype=np.float32).reshape(2, 4) + 1
        c = d.json("POST", "/v1/executables?replicas=2&device=xla", SUMS,
                   {"Content-Type": "text/x-hlo"})
        got, _ = d.run(c["digest"], {"": x})
        sums, own, gathered = got.values()
        ok = np.array_equal(sums, np.tile(x.sum(0) + 1, (2, 1))) and np.array_equal(
            own, [[0] * 4, [1] * 4]) and np.array_equal(gathered, [[3, 3], [3, 3]])
        report(ok, "two replicas and an all-reduce", "" if ok else str(got))
        rng = np.random.default_rng(5)
        path, x = zoo.ensure("build/models",
                             "mlp"), rng.standard_normal((2, 3, 784)).astype(np.float32)
        source = d.compile(path, {"x": (3, 784)}, device="xla", replicas=2)["sourceDigest"]
        got, info = d.run(source, {"x": x}, device="xla", compile={"replicas": 2})
        y = next(iter(got.values()))
        want = [next(iter(d.run(source, {"x": part}, device="cpu")[0].values())) for part in x]
        report(y.shape[0] == 2 and bool(
                   info.get("cacheHit")) and np.abs(y - np.stack(want)).max() < 1e-4,
               "weights on each of two replicas", str(y.shape))
        for device, count, shape, text in (("cpu", 2, (2, 4), "at most 1"),
                                           ("xla", 3, (3, 4), "at most 2"),
                                           ("xla", 2, (3, 4), "first dimension of 2")):
            try:
                d.run(c["sourceDigest"], {"": np.zeros(shape, np.float32)}, device=device,
                      compile={"replicas": count})
                report(False, "%d replicas on %s" % (count, device))
            except daemon.Refused as e:
                report(e.code == 400 and text in str(e),
                       "%d replicas of %s on %s are refused" % (count, shape, device), str(e))


def misbehave(so):
    for how, code, text in (
        ("abort", 503, "worker was lost"), ("hang", 504, "deadline"),
        ("error", 400, "no device on this machine"), ("slots", 400, "has no Client_Create"),
        ("size", 503, "gives a table of 24 bytes"), ("null", 503, "gives a table of 0 bytes"),
        ("version", 503, "speaks version 0.12")):
        with tempfile.TemporaryDirectory() as data, daemon.Daemon(
            build, data, args=["--plugins", "bad=" + so],
            env=dict(os.environ, BAD_PLUGIN=how)) as d:
            status, _, body = d.raw(
                "POST",
                f"/v1/executables?target=bad&timeout_ms={8000 if how != 'hang' else 1500}",
                SUMS, {"Content-Type": "text/x-hlo"})
            said = json.loads(body).get("message", "")
            one = d.raw("POST", "/v1/executables?device=cpu",
                        b"HloModule m\nENTRY e { ROOT x = f32[] parameter(0) }\n",
                        {"Content-Type": "text/x-hlo"})[0]
            devices = d.json("GET", "/v1/devices")["devices"]
            report(
                status == code and text in said and one == 200 and not devices[0].get("restarts"),
                "compiling with a plugin that says " + how, "HTTP %d %s" % (status, said[:160]))


with tempfile.TemporaryDirectory() as t:
    ahead_of_time(os.path.join(t, "data"))
    precisions(os.path.join(t, "data"))
    elsewhere(os.path.join(t, "there"))
    reproducible(os.path.join(t, "there"))
    replicas(os.path.join(t, "data"))
    so = os.path.join(t, "bad.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-I.", "-o", so, os.path.join(HERE, "bad_plugin.c")],
                   check=True)
    misbehave(so)
