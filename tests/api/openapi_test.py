#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""openapi.json validates, and schemathesis plays requests made from it against the daemon with real
workers: no 5xx, and every reply has the media type and the shape that the document says. Names and
digests of a model that is there are put among the values, so that requests reach past the first
check.
Usage: openapi_test.py BUILD [--examples N] [--at-least N]"""
import argparse, json, os, re, subprocess, sys, tempfile
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon
from openapi_spec_validator import validate

MODEL = b"HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}\n"
# after these the model may be gone: they come last
MORTAL = "^Remove|Unload|Unregister|LogSettings"

def prepare(d, api):
    """A model, an executable, a name; their digests among the values of path parameters, requests
    that succeed as examples."""
    status, r = d.json("POST", "/v1/executables", MODEL)
    assert status == 200, r
    assert d.json("POST", "/v1/models", {"name": "m", "model": r["sourceDigest"]})[0] == 200
    given = {"digest": r["digest"], "name": "m", "model_name": "m", "version": "1",
             "model_version": "1", "stage": "hlo-after"}
    v1 = {"inputs": [{"name": "x", "dtype": "f32", "shape": [2], "data": [1, 2]}]}
    oip = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
    bodies = {"Run": {"model": "m", **v1}, "RunUnary": {"model": r["digest"], **v1},
              "ModelInfer": {"model_name": "m", **oip}, "Compile": {"model": "m"},
              "Inspect": {"digest": r["digest"], "stage": "kir"},
              "GetExecutable": {"digest": r["digest"]},
              "ExplainCache": {"a": r["digest"], "b": r["digest"]}}
    for path, verbs in api["paths"].items():
        for op in verbs.values():
            name = re.sub(r"(Rpc|\d+)$", "", op["operationId"])
            for p in op["parameters"]:
                if p["in"] == "path" and p["name"] in given:
                    p["schema"] = {"type": "string", "enum": [given[p["name"]], "0" * 64, "other"]}
                    p["example"] = given[p["name"]]
            content = op.get("requestBody", {}).get("content", {}).get("application/json")
            if content and name in bodies:
                content["example"] = {"x": [1, 2]} if "generate" in path else bodies[name]

def play(d, api, o, at_least, *which):
    with tempfile.TemporaryDirectory() as folder:  # schemathesis leaves files where it runs
        with open(os.path.join(folder, "api.json"), "w") as f:
            json.dump(api, f)
        p = subprocess.run(
            [os.path.join(os.path.dirname(os.path.abspath(sys.executable)), "st"), "run",
             "api.json", "--url", "http://%s:%d" % d.addr, "--phases",
             "examples,coverage,fuzzing" if at_least else "examples,fuzzing", "--checks",
             "not_a_server_error,content_type_conformance,response_schema_conformance",
             "--max-examples", str(o.examples), "--continue-on-failure", "--seed", "1",
             "--suppress-health-check", "all", "--warnings", "off", "--no-color", *which],
            cwd=folder, capture_output=True, text=True, timeout=1200)
    count = re.search(r"(\d+) generated", p.stdout)
    n = int(count.group(1)) if count else 0
    ok = p.returncode == 0 and n > max(at_least, 10) and d.p.poll() is None
    print(("PASS" if ok else "FAIL") + " schemathesis: %d requests (%s)" % (n, " ".join(which)),
          flush=True)
    if not ok:
        print(p.stdout[-8000:], p.stderr[-2000:], d.logs()[-2000:], sep="\n")
    return ok

def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--examples", type=int, default=2)
    a.add_argument("--at-least", type=int, default=0)
    o = a.parse_args()
    d = Daemon(o.build + "/hlod", o.build + "/hlod-worker",
               args=("--allow-model-load", "--allow-shared-memory"))
    try:
        status, api = d.json("GET", "/v1/openapi.json")
        assert status == 200
        validate(api)
        print("PASS openapi.json validates: %d paths" % len(api["paths"]), flush=True)
        prepare(d, api)
        ok = play(d, api, o, o.at_least, "--exclude-operation-id-regex", MORTAL)
        status, r = d.json("POST", "/v2/models/m/infer",
                           {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2],
                                        "data": [1, 2]}]})
        served = status == 200 and r["outputs"][0]["data"] == [2, 4]
        ok = play(d, api, o, 0, "--include-operation-id-regex", MORTAL) and ok
        alive = served and d.stop_keep() == 0
        print(("PASS" if alive else "FAIL") + " the daemon serves and ends in good order after it",
              *([] if alive else [status, r]), flush=True)
        return 0 if ok and alive else 1
    finally:
        if d.p.poll() is None:
            d.kill()
        d.clean()

if __name__ == "__main__":
    sys.exit(main())
