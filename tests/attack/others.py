# SPDX-License-Identifier: Apache-2.0
"""What a tenant learns of another's things: nothing, not even whether they are there."""
import hashlib, json, re

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
