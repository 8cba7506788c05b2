#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that others wrote, as deploy/setup.sh provides them, over a daemon with real workers:
grpcurl by both versions of reflection, ghz and wrk under load. Under load every reply must be good,
and the right one where the client can look; how fast is not asked. What is not installed is skipped
with a line.
Usage: real_clients.py --hlod BIN --worker BIN [NAME...]"""
import base64, json, os, shutil, struct, subprocess, sys, tempfile, threading
HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path.insert(0, os.path.join(HERE, ".."))
from harness import metric, scenarios, until

MODEL = (b"HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  c = f32[] constant(1)\n  b = "
         b"f32[4] broadcast(c), dimensions={}\n  ROOT r = f32[4] add(x, b)\n}\n")
X, Y = struct.pack("<4f", 1, 2, 3, 4), struct.pack("<4f", 2, 3, 4, 5)
SECONDS = 2

def tool(name):
    path = os.path.join(ROOT, "build", "tools", name)
    return path if os.path.exists(path) else shutil.which(name)

def load(d):
    """MODEL as the model `plus`."""
    status, r = d.json("POST", "/v1/executables", MODEL)
    assert status == 200, r
    assert d.json("POST", "/v1/models", {"name": "plus", "model": r["sourceDigest"]})[0] == 200
    return r

def nothing_left(d):
    until("no job and no bytes left", 5,
          lambda: metric(d, "hlod_jobs_active") == 0 and metric(d, "hlod_receive_bytes") == 0)

# ---- grpcurl

def grpcurl_with(d, path):
    def sh(*words, rc=0, data=None):
        p = subprocess.run([path, "-plaintext",
                            *(["-d", json.dumps(data)] if data is not None else []), d.grpc,
                            *words], capture_output=True, text=True, timeout=30)
        assert p.returncode == rc, (words, p.returncode, p.stdout, p.stderr)
        return p.stdout if rc == 0 else p.stderr
    r = load(d)
    services = sh("list").split()
    assert {"hlod.v1.Hlod", "inference.GRPCInferenceService", "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection"} == set(services), services
    for s in services:
        methods = sh("list", s).split()
        assert methods and all(m.startswith(s + ".") for m in methods), methods
        assert f"{s} is a service" in sh("describe", s)
        for m in methods:
            assert "rpc " + m.split(".")[-1] in sh("describe", m), m
    assert "returns ( stream .hlod.v1.Event )" in sh("describe", "hlod.v1.Hlod.Run")
    assert "string model = " in sh("describe", "hlod.v1.RunRequest")
    assert json.loads(sh("hlod.v1.Hlod/Version", data={}))["api"] == "hlod.v1"
    assert (
        json.loads(sh("grpc.health.v1.Health/Check", data={"service": ""}))["status"] == "SERVING")
    tensor = {"name": "x", "dtype": "f32", "shape": [4], "raw": base64.b64encode(X).decode()}
    reply = json.loads(sh("hlod.v1.Hlod/RunUnary", data={"model": "plus", "inputs": [tensor]}))
    assert (base64.b64decode(reply["outputs"][0]["raw"]) == Y
            and reply["executable"] == r["digest"]), reply
    # a stream: one JSON after the other
    events = sh("hlod.v1.Hlod/Run", data={"model": "plus", "inputs": [tensor]})
    assert events.index('"queued":') < events.index('"result":') < events.index('"done":'), events
    reply = json.loads(sh("inference.GRPCInferenceService/ModelInfer",
                          data={"model_name": "plus",
                                "inputs": [{"name": "x", "datatype": "FP32", "shape": [4],
                                            "contents": {"fp32_contents": [1, 2, 3, 4]}}]}))
    assert base64.b64decode(reply["rawOutputContents"][0]) == Y, reply
    assert json.loads(sh("inference.GRPCInferenceService/ModelMetadata",
                         data={"name": "plus"}))["inputs"][0]["datatype"] == "FP32"
    # grpcurl's exit code: 64 + the status
    text = sh("hlod.v1.Hlod/RunUnary", data={"model": "0" * 64}, rc=64 + 5)
    assert "Code: NotFound" in text, text
    assert "does not include a method" in sh("hlod.v1.Hlod/Nonsense", data={}, rc=1)

def grpcurl(d):
    """The one that asks for reflection v1, and falls back."""
    grpcurl_with(d, tool("grpcurl"))

def grpcurl_v1alpha(d):
    """A release that knows v1alpha only."""
    grpcurl_with(d, tool("grpcurl-v1alpha"))

# ---- ghz

def ghz_with(d, path, method, data, *words):
    p = subprocess.run([path, "--insecure", "--call", method, "-d", json.dumps(data), "-c", "8",
                        "--connections", "2", "-z", f"{SECONDS}s", "--duration-stop", "wait", "-O",
                        "json", *words, d.grpc], capture_output=True, text=True, timeout=60)
    assert p.returncode == 0, p.stderr
    r = json.loads(p.stdout)
    assert (r["count"] > 0 and r["statusCodeDistribution"] == {"OK": r["count"]}
            and not r.get("errorDistribution")), (method, r["count"], r["statusCodeDistribution"],
                                                  r.get("errorDistribution"))
    return r["count"]

def ghz(d):
    path = tool("ghz")
    load(d)
    raw = base64.b64encode(X).decode()
    run = {"model": "plus", "inputs": [{"name": "x", "dtype": "f32", "shape": [4], "raw": raw}]}
    infer = {"model_name": "plus", "inputs": [{"name": "x", "datatype": "FP32", "shape": [4]}],
             "raw_input_contents": [raw]}
    n = ghz_with(d, path, "hlod.v1.Hlod.RunUnary", run)
    n += ghz_with(d, path, "hlod.v1.Hlod.Run", run)
    n += ghz_with(d, path, "inference.GRPCInferenceService.ModelInfer", infer)
    n += ghz_with(d, path, "inference.GRPCInferenceService.ModelStreamInfer", infer)
    ghz_with(d, path, "grpc.health.v1.Health.Check", {})
    assert metric(d, "hlod_runs_total") >= n, (metric(d, "hlod_runs_total"), n)
    # What fails is told as a failure: the count above could be otherwise.
    p = subprocess.run([path, "--insecure", "--call", "hlod.v1.Hlod.RunUnary", "-d",
                        json.dumps({"model": "0" * 64}), "-n", "20", "-O", "json", d.grpc],
                       capture_output=True, text=True, timeout=60)
    assert json.loads(p.stdout)["statusCodeDistribution"] == {"NotFound": 20}, p.stdout
    nothing_left(d)

# ---- wrk

WRK = """
wrk.method = "POST"
wrk.body = [==[%s]==]
wrk.headers["Content-Type"] = "application/json"
wrong = 0
local threads = {}
function setup(t) table.insert(threads, t) end
function response(status, headers, body)
    if status ~= 200 or not string.find(body, [==[%s]==], 1, true) then wrong = wrong + 1 end
end
function done(s, latency, requests)
    local n = 0
    for _, t in ipairs(threads) do n = n + t:get("wrong") end
    io.write(string.format('{"requests": %%d, "wrong": %%d, "status": %%d, "connect": %%d, "read": %%d, "write": %%d, "timeout": %%d}\\n',
        s.requests, n, s.errors.status, s.errors.connect, s.errors.read, s.errors.write, s.errors.timeout))
end
"""
def wrk_with(d, path, where, body, expect):
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as f:
        f.write(WRK % (body, expect))
        f.flush()
        p = subprocess.run([path, "-t", "2", "-c", "16", "-d", f"{SECONDS}s", "-s", f.name,
                            "http://%s:%d%s" % (*d.addr, where)], capture_output=True, text=True,
                           timeout=60)
    assert p.returncode == 0, p.stderr
    return json.loads(p.stdout.strip().split("\n")[-1])

def wrk(d):
    path = tool("wrk")
    load(d)
    body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [4], "data": [1, 2, 3, 4]}]}
    for where, body, expect in (("/v2/models/plus/infer", body, '"data":[2,3,4,5]'),
                                ("/v1/run", {**body, "model": "plus"}, '"outputs":[')):
        r = wrk_with(d, path, where, json.dumps(body), expect)
        assert r.pop("requests") > 0 and not any(r.values()), (where, r)
    # a failure is counted as one
    r = wrk_with(d, path, "/v2/models/nothing/infer", json.dumps(body), "outputs")
    assert r["requests"] > 0 and r["wrong"] == r["status"] >= r["requests"], r
    nothing_left(d)

def wrk_and_ghz(d):
    """Both ports at once."""
    load(d)
    got = []
    body = {"model_name": "plus", "inputs": [{"name": "x", "datatype": "FP32", "shape": [4],
                                              "contents": {"fp32_contents": [1, 2, 3, 4]}}]}
    t = threading.Thread(
        target=lambda: got.append(ghz_with(d, tool("ghz"),
                                           "inference.GRPCInferenceService.ModelInfer", body)))
    t.start()
    r = wrk_with(d, tool("wrk"), "/v2/models/plus/infer",
                 json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [4],
                                         "data": [1, 2, 3, 4]}]}), '"data":[2,3,4,5]')
    t.join()
    assert got and r.pop("requests") > 0 and not any(r.values()), (got, r)
    nothing_left(d)

# and the programs each needs
SCENARIOS = {grpcurl: ["grpcurl"], grpcurl_v1alpha: ["grpcurl-v1alpha"], ghz: ["ghz"], wrk: ["wrk"],
             wrk_and_ghz: ["wrk", "ghz"]}

def main():
    there = []
    for s, needs in SCENARIOS.items():
        missing = [n for n in needs if not tool(n)]
        if missing:
            print(f"SKIP {s.__name__}: {' and '.join(missing)} not installed (deploy/setup.sh)")
        else:
            there.append(s)
    return scenarios("real clients", there, lambda s: ()) if there else 0

if __name__ == "__main__":
    sys.exit(main())
