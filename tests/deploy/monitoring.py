#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/monitoring against a running daemon: every metric that the Grafana dashboard and the
Prometheus rules name is in /metrics, with the labels they use; the label `model` has its bound.
monitoring.py BUILD (build/venv/bin/python)"""
import json, os, re, subprocess, sys
import yaml
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                    "deploy", "monitoring"))
HLO = "HloModule m\n\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT y = f32[2] add(x, x)\n}\n"
result = Results()

def names(expr):
    """Metrics of an expression, and the labels that it groups or matches by."""
    metrics = set(re.findall(r"\b((?:hlod|process)_\w+)", expr))
    labels = {x.strip() for group in re.findall(r"by \(([^)]*)\)", expr)
              for x in group.split(",")} | set(re.findall(r"[{,]\s*(\w+)=", expr))
    return metrics, labels - {"instance", "job", "le"}

def main():
    build = sys.argv[1]
    d = Daemon(build + "/hlod", build + "/hlod-worker")
    try:
        digest = d.json("POST", "/v1/executables", HLO,
                        {"Content-Type": "text/x-hlo"})[1]["sourceDigest"]
        for k in range(70):
            assert d.json("POST", "/v1/models", {"name": f"m{k:02d}", "model": digest})[0] == 200
        for name in ("m00", "m00", "m69"):
            assert d.json("POST", f"/v2/models/{name}/infer",
                          {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2],
                                       "data": [1, 2]}]})[0] == 200
        text = d.call("GET", "/metrics")[2].decode()
        there = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
        there |= {t + s for t, kind in re.findall(r"^# TYPE (\w+) (\w+)", text, re.M)
                  if kind == "histogram" for s in ("_bucket", "_sum", "_count")}
        labels = set(re.findall(r"[{,](\w+)=\"", text))
        board = json.load(open(os.path.join(ROOT, "grafana.json")))
        rules = yaml.safe_load(open(os.path.join(ROOT, "alerts.yml")))["groups"][0]["rules"]
        exprs = [(p["title"], t["expr"]) for p in board["panels"]
                 for t in p["targets"]] + [(r["alert"], r["expr"]) for r in rules]
        for title, expr in exprs:
            used, by = names(expr)
            result(f"{title}: {' '.join(sorted(used))}",
                   used <= there and by <= labels and (used or "up{" in expr),
                   (used - there, by - labels))
        result("every rule says what is wrong",
               all(r["annotations"]["summary"] and r["labels"]["severity"] for r in rules))
        result("panels do not lie on each other",
               len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]})
               == len(board["panels"]))
        rows = dict(re.findall(r'^hlod_model_requests_total\{model="(\w+)",version="\d*"\} (\d+)',
                               text, re.M))
        result("model: at most 64 names, the rest together",
               len(rows) == 65 and rows["m00"] == "2" and rows["other"] == "1", rows)
    finally:
        d.stop()
    tokens = os.path.join(os.path.dirname(d.dir), "hlod-tokens-monitoring")
    said = subprocess.run([build + "/hlo", "tokens", "add", "all", "--scopes",
                           "read,load,compile,run", "--file", tokens], capture_output=True,
                          text=True)
    token = {"Authorization": "Bearer " + re.search(r"\S{20,}", said.stdout).group()}
    d = Daemon(build + "/hlod", build + "/hlod-worker", args=("--tokens", tokens))
    try:
        digest = d.json("POST", "/v1/executables", HLO,
                        {"Content-Type": "text/x-hlo", **token})[1]["sourceDigest"]
        assert d.json("POST", "/v1/models", {"name": "secret", "model": digest}, token)[0] == 200
        text = d.call("GET", "/metrics", headers=token)[2].decode()
        result("with tokens no name of a model is told",
               "secret" not in text and 'hlod_model_requests_total{model="other"' in text)
    finally:
        d.stop()
        os.remove(tokens)
    return result.code()

sys.exit(main())
