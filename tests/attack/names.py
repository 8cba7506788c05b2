# SPDX-License-Identifier: Apache-2.0
"""Attacks by names: too many of them, and those that are shown as something else."""
import json, os, subprocess
from common import refused

def names_flood(d):
    """One tenant names models until it is refused: others still name theirs, and what one has does
    not slow their lookups; a restart keeps all."""
    def name(who, text, **more):
        return d.by(who, "POST", "/v1/models",
                    {"name": text, "model": d.model if who == "a" else mine, **more})
    mine = d.by("b", "POST", "/v1/executables?shape=x=1x4",
                d.bytes + b"run_ms 0\n")[1]["sourceDigest"]
    taken = 0
    while (r := name("b", f"n{taken}"))[0] == 200:
        taken += 1
        assert taken <= 40, "no bound"
    assert taken == 20 and r[0] == 429 and "leaves" in r[1]["message"], (taken, r)
    assert name("b", "n3", version=1)[0] == 200, "what it has it may set anew"
    assert name("b", "n3", version=7)[0] == 429
    for k in range(10):
        assert name("a", f"mine{k}")[0] == 200
    assert name("a", "mine10")[0] == 429, "as many as it leaves"
    assert (d.by("b", "DELETE", "/v1/models/n0")[0] == 200 and name("a", "mine10")[0] == 200
            and name("a", "mine11")[0] == 429), "what is given back is there for all"
    assert d.run("a", "mine9")[0] == 200
    d.kill()
    d.restart()
    assert (d.run("a", "mine9")[0] == 200 and d.run("b", "n19",)[0] == 200
            and len(d.by("b", "GET", "/v1/models")[1]["models"]) == 19)
    names = [m["name"] for m in d.by("boss", "GET", "/v1/models")[1]["models"]]
    assert names == sorted(names), names
names_flood.credentials = names_flood.restarts = True
names_flood.options = ["--max-names", "40"]

UNSEEN = {"direction": "x\u202etxt", "isolate": "\u2066x", "zero width": "a\u200bb",
          "joiner": "a\u200db", "mark": "\ufeffa", "filler": "\u3164", "escape": "a\x1b[2J",
          "C1": "a\x9b31m", "tag": "a\U000e0061", "space": "a\u00a0b", "soft hyphen": "a\u00adb"}

def names_unseen(d):
    """Names that look like others or move what stands around them: refused over HTTP, /v2 and in
    batch jobs; in the log, in JSON and in a terminal such texts are shown by number."""
    for what, text in UNSEEN.items():
        refused(d.call("POST", "/v1/models", json.dumps({"name": text, "model": d.model}),
                       {"Content-Type": "application/json",
                        "Authorization": "Bearer " + d.tokens["a"]}), 400, reason="BAD_OPTION")
        status, r = d.by("a", "POST", "/v1/jobs",
                         {"name": text, "models": [{"model": d.model}], "inputs": [{"name": "x"}]})
        assert status == 400, (what, status, r)
    for path in ".", "..":  # clients and proxies take them out of a path
        refused(d.call("POST", "/v1/models", json.dumps({"name": path, "model": d.model}),
                       {"Content-Type": "application/json",
                        "Authorization": "Bearer " + d.tokens["a"]}), 400, reason="BAD_OPTION")
    for good in "été", "模型", "два:1":
        assert d.by("a", "POST", "/v1/models", {"name": good, "model": d.model})[0] == 200, good
    # A model's own texts cannot be refused: the names of its inputs
    odd = b"FAKE\nin x\xe2\x80\xae\x1b[2Jy f32 N,4\nout y f32 N,4\nweight 4\n"
    status, r = d.by("a", "POST", "/v1/executables?shape=x=1x4", odd)
    status, _, raw = d.call(
        "POST", "/v1/run",
        json.dumps({"model": d.model, "inputs": [{"name": "x\u202e\x1b[2J", "dtype": "f32",
                                                  "shape": [1, 4], "data": [1, 2, 3, 4]}]}),
        {"Content-Type": "application/json", "Authorization": "Bearer " + d.tokens["a"]})
    assert (status == 400 and b"\x1b" not in raw and b"\xe2\x80\xae" not in raw
            and "\u202e" in json.loads(raw)["message"]), raw
    hlo = os.path.join(os.path.dirname(d.hlod), "hlo")
    p = subprocess.run([hlo, "--addr", "%s:%s" % d.addr, "--token", d.tokens["a"], "models", "set",
                        "x\u202e\x1b[2J", d.model], capture_output=True)
    assert (p.returncode and b"\xe2\x80\xae" not in p.stderr and b"\x1b" not in p.stderr
            and b"\\u202e" in p.stderr), p.stderr
    log = d.logs().encode(errors="surrogateescape")
    assert b"\x1b" not in log and b"\xe2\x80\xae" not in log
names_unseen.credentials = True
