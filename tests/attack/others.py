# SPDX-License-Identifier: Apache-2.0
"""What a tenant learns of another's things: nothing, not even whether they are there."""
import hashlib, json, re
from harness import until

def things(d):
    """by what a path calls it: one of a's, and one of the same form that nobody has"""
    def of(status, r):
        assert status in (200, 201, 202), (status, r)
        return r
    of(*d.by("a", "POST", "/v1/models", {"name": "mine", "model": d.model}))
    tensor = {"name": "x", "dtype": "f32", "shape": [1], "data": [1]}
    buffer = of(*d.by("a", "POST", "/v1/buffers", {"inputs": [tensor]}))
    suite = of(*d.by("a", "POST", "/v1/jobs", {"name": "j", "models": [{"model": d.model}]}))
    blob = hashlib.sha256(b"secret").hexdigest()
    of(*d.by("a", "PUT", "/v1/blobs/" + blob, b"secret",
             {"Content-Type": "application/octet-stream"}))
    upload = of(*d.by("a", "POST", "/v1/uploads", {"size": 6, "digest": blob}))
    turned = lambda s: s[0] + "".join("0123456789abcdef"[15 - int(c, 16)] if c in
                                      "0123456789abcdef" else c for c in s[1:])
    handle = next(h for h in re.findall(r"b[0-9a-f]{16}", json.dumps(buffer)))
    return {"model": (d.model, turned(d.model)), "digest": (d.exe, turned(d.exe)),
            "name": ("mine", "none"), "handle": (handle, turned(handle)),
            "job": (suite["suite"] + ".1", suite["suite"] + "7.1"), "blob": (blob, turned(blob)),
            "upload": (upload["upload"], turned(upload["upload"]))}

def others_unseen(d):
    """Every path of the API that names a thing, as another tenant: what a has and what nobody has
    get the same answer, but for the name itself; and a's things are there afterwards."""
    own, asked = things(d), 0
    paths = json.loads(d.call("GET", "/v1/openapi.json")[2])["paths"]
    kinds = {"/executables/": "digest", "/buffers/": "handle", "/jobs/": "job", "/blobs/": "blob",
             "/uploads/": "upload", "/models/": "name"}
    for path, verbs in sorted(paths.items()):
        kind = next((k for part, k in kinds.items() if part + "{" in path), None)
        if not kind:
            continue
        for verb in verbs:
            texts = []
            for thing in own[kind]:
                at = re.sub(r"\{version\w*\}|\{model_version\}", "1", path)
                at = re.sub(r"\{\w+\}", thing, at)
                reply = d.call(verb.upper(), at, b"{}" if verb in ("post", "put") else None,
                               {"Authorization": "Bearer " + d.tokens["b"],
                                "Content-Type": "application/json"})
                texts.append((reply[0], reply[2].decode(errors="replace").replace(thing, "*")))
            asked += 1
            same = re.sub(r'"(requestId|request_id|trace\w*)": ?"[^"]*"', "", str(texts[0])) == \
                re.sub(r'"(requestId|request_id|trace\w*)": ?"[^"]*"', "", str(texts[1]))
            assert same, (verb, path, texts)
    assert asked > 30, asked
    for model in own["model"]:
        status, r = d.run("b", model)
        assert status == 404, (model, status, r)
    assert d.run("a")[0] == 200 and d.run("a", "mine")[0] == 200
    assert d.by("a", "GET", "/v1/blobs/" + own["blob"][0] + "/stat")[0] in (200, 404)
    assert d.by("a", "GET", "/v1/buffers/" + own["handle"][0])[0] == 200
others_unseen.credentials = others_unseen.real = True

NAMED = """HloModule %s

ENTRY %s.main {
  %s.x = f32[5] parameter(0)
  %s.y = f32[5] exponential(%s.x), metadata={op_name="%s/exp"}
  ROOT %s.z = f32[5] add(%s.y, %s.x), metadata={op_name="%s/add"}
}
"""

def others_unnamed(d):
    """Two tenants' programs that differ in names alone: what is told of an executable, compiled, in
    a profile and as text, has none of the other's."""
    digests = {}
    for who in "a", "b":
        text = NAMED.replace("%s", "of_" + who).encode()
        status, r = d.by(who, "POST", "/v1/executables", text, {"Content-Type": "text/x-hlo"})
        assert status == 200, r
        digests[who] = r["sourceDigest"], r["digest"]
    for who, other in ("a", "b"), ("b", "a"):
        model, exe = digests[who]
        run = {"model": model, "options": {"profile": True}, "inputs": [
            {"name": "of_" + who + ".x", "dtype": "f32", "shape": [5], "data": [1, 2, 3, 4, 5]}]}
        asked = [("POST", "/v1/run", json.dumps(run)), ("GET", "/v1/executables/" + exe, None)]
        asked += [("GET", "/v1/executables/%s/stage/%s" % (exe, stage), None)
                  for stage in ("hlo-before", "hlo-after", "plan", "kir", "explain")]
        head = {"Authorization": "Bearer " + d.tokens[who], "Content-Type": "application/json",
                "Accept": "application/json, text/plain"}
        said = ""
        for verb, path, body in asked:
            status, _, text = d.call(verb, path, body, head)
            assert status == 200, (path, text)
            assert b"of_" + other.encode() not in text, (path, text)
            said += text.decode()
        assert "of_" + who in said, "names are told to their owner"
others_unnamed.credentials = others_unnamed.real = True

def others_unnumbered(d):
    """What one tenant does changes no number that another reads of the cache and of devices; who
    sees all sees it, and each its own."""
    def seen(who):
        return [d.by(who, "GET", p) for p in ("/v1/cache", "/v1/devices")]
    another = lambda k: d.bytes.replace(b"constant(1)", b"constant(%d)" % k)
    mine = d.by("b", "POST", "/v1/executables", another(7))[1]["sourceDigest"]
    assert d.run("b", mine)[0] == 200
    before, all_before = seen("b"), seen("boss")
    cache = before[0][1]
    assert (cache["models"], cache["executables"]) == (1, 1) and cache["bytes"] > 0, cache
    for k in range(3):
        status, r = d.by("a", "POST", "/v1/executables", another(k + 8))
        assert status == 200 and d.run("a", r["sourceDigest"])[0] == 200
    tensor = {"name": "x", "dtype": "f32", "shape": [1], "data": [1]}
    assert d.by("a", "POST", "/v1/buffers", {"inputs": [tensor]})[0] == 200
    assert seen("b") == before, (before, seen("b"))
    whole = seen("boss")
    assert whole[0][1]["models"] == all_before[0][1]["models"] + 3, (all_before, whole)
    until("the device tells of it", 10,
          lambda: seen("boss")[1][1]["devices"][0].get("bufferBytes") == 4)
    assert seen("a")[1][1]["devices"][0]["bufferBytes"] == 4, seen("a")[1]
others_unnumbered.credentials = others_unnumbered.real = True
