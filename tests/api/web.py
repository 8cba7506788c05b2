# SPDX-License-Identifier: Apache-2.0
"""Models as packages for browsers over the API (ExportWeb), with real workers: by curl and the
Python client, over HTTP and gRPC, the bytes that `hlo export` writes; and what is refused, other
tenants, clients that leave or do not read.

    web.py --build DIR [scenario...]
"""
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time

import numpy as np
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "..", "client", "python")]
import hlod  # noqa: E402
from harness import (ENDS, Daemon, Results, Stopped, chosen, metric, options,  # noqa: E402
                     until)

MB = 1 << 20


def net(weights=3, texts=0):
    """Pictures of any number to 8 * weights numbers; and so many results of texts, which no page
    can have."""
    w = np.random.default_rng(1).standard_normal((8 * weights, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["image", "w"], ["c"], pads=[1] * 4, strides=[2, 2]),
             helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("GlobalAveragePool", ["r"], ["y"])]
    outs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    for k in range(texts):
        nodes.append(helper.make_node("Cast", ["r"], ["e%d" % k], to=TensorProto.STRING))
        outs.append(helper.make_tensor_value_info("e%d" % k, TensorProto.STRING, None))
    g = helper.make_graph(nodes, "net", [
        helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, 16, 16])], outs,
        [numpy_helper.from_array(w, "w")])
    return helper.make_model(
        g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def heavy(mb):
    """A matrix of so many megabytes, which cannot be made small."""
    w = np.random.default_rng(2).standard_normal((256, mb * 1024)).astype(np.float32)
    g = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], "heavy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")])
    return helper.make_model(
        g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


class Here(Daemon):
    """A daemon with real workers, as a scenario wants it, and a folder beside it."""

    def __init__(self, build, scenario):
        self.build, args = build, list(getattr(scenario, "args", ()))
        self.scratch = tempfile.mkdtemp(prefix="hlod-web-")
        if getattr(scenario, "tokens", False):
            file = os.path.join(self.scratch, "tokens")
            self.tokens = {name: self.token(file, name, scopes) for name, scopes in (
                ("a", "read,run,compile,load"), ("b", "read,run,compile,load"),
                ("a-reads", "read,run"), ("all", "cache"))}
            args += ["--tokens", file]
        self.args = args
        super().__init__(build + "/hlod", build + "/hlod-worker", args=args)
        self.url = "http://%s:%d" % self.addr

    def again(self):
        """Ends it and starts it anew on the same folder."""
        assert self.stop_keep() == 0
        super().__init__(self.hlod, self.worker, data=self.dir, args=self.args)
        self.own = True
        self.url = "http://%s:%d" % self.addr

    def token(self, file, name, scopes):
        done = subprocess.run([self.build + "/hlo", "-q", "tokens", "add", name, "--file", file,
                               "--tenant", name[0], "--scopes", scopes], check=True,
                              capture_output=True, text=True, timeout=30)
        return {"Authorization": "Bearer " + done.stdout.strip()}

    def clean(self):
        super().clean()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def upload(self, data, headers={}):
        status, reply = self.json("POST", "/v1/executables", data,
                                  {"Content-Type": "application/octet-stream", **headers})
        assert status == 200, reply
        return reply["sourceDigest"]

    def by_hlo(self, data, *options):
        """The files that hlo export writes: {path: digest}."""
        path, to = (os.path.join(self.scratch, x) for x in ("net.onnx", "by-hlo"))
        shutil.rmtree(to, ignore_errors=True)
        with open(path, "wb") as f:
            f.write(data)
        done = subprocess.run([self.build + "/hlo", "export", path, "--web", to, *options],
                              capture_output=True, text=True, timeout=120)
        assert not done.returncode, done.stderr
        return files_of(to)

    def curl(self, model, body="{}", to="out", *options):
        out = os.path.join(self.scratch, to)
        data = ["-d", body] if body else ["-X", "POST"]
        done = subprocess.run(["curl", "-sS", "-m", "60", "-o", out, "-w", "%{http_code}", *data,
                               *options, self.url + "/v1/models/%s/web" % model],
                              capture_output=True, text=True, timeout=90)
        assert not done.returncode, done.stderr
        return int(done.stdout), out

    def held(self):
        """Bytes of packages that the daemon has descriptors of."""
        n = 0
        for f in os.listdir("/proc/%d/fd" % self.p.pid):
            at = "/proc/%d/fd/%s" % (self.p.pid, f)
            try:
                if re.search("memfd:hlod-(package|entry)", os.readlink(at)):
                    n += os.stat(at).st_size
            except FileNotFoundError:
                pass
        return n


def files_of(folder):
    return {os.path.relpath(os.path.join(at, f), folder): hashlib.sha256(
        open(os.path.join(at, f), "rb").read()).hexdigest()
        for at, _, names in os.walk(folder) for f in names}


def same_bytes(d):
    """By curl, and by the client over HTTP and gRPC: what hlo export writes."""
    data = net()
    model = d.upload(data)
    cases = [
        (["--name", "net"], {}),
        (["--name", "A Net!", "--single-file"], {"single_file": True}),
        (["--name", "net", "--weights", "f16", "--backend", "wasm", "--bind", "N=3"],
         {"weights": "f16", "backend": "wasm", "shapes": {"image": (3, 3, 16, 16)}}),
        (["--name", "net", "--labels", "L", "--crop", "0.875", "--mean", "127", "--std", "128",
          "--single-file"],
         {"single_file": True, "labels": ["cat", "dog <b>"],
          "image": {"crop": 0.875, "mean": [127], "std": [128]}})]
    labels = os.path.join(d.scratch, "labels")
    with open(labels, "w") as f:
        f.write("cat\ndog <b>")
    clients = [hlod.connect(d.url), hlod.connect("grpc://" + d.grpc)]
    for options, named in cases:
        want = d.by_hlo(data, *[labels if x == "L" else x for x in options])
        for k, h in enumerate(clients):
            to = os.path.join(d.scratch, "by-client")
            shutil.rmtree(to, ignore_errors=True)
            got = h.export_web(model, to, name=options[1], **named)
            assert sorted(got) == sorted(want) and files_of(to) == want, (options, k)

    want = d.by_hlo(data, *cases[0][0])
    with open(os.path.join(d.scratch, "by-hlo", "model", "manifest.json")) as f:
        m = json.load(f)
    for f in [m["code"], m["gpu"]["wgsl"]["code"], m["gpu"]["glsl"]["code"],
              *m["weights"]["chunks"]]:  # as the runtime will look
        assert want["model/" + f["file"]] == f["sha256"], f
    status, out = d.curl(model, json.dumps({"name": "net"}), "out.tar")
    assert status == 200
    to = os.path.join(d.scratch, "by-tar")
    os.mkdir(to)
    subprocess.run(["tar", "xf", out, "-C", to, "--strip-components=1"], check=True, timeout=60)
    assert files_of(to) == want
    with tarfile.open(out) as tar:  # whole, without a time, an owner or a way out
        members = tar.getmembers()
    assert all(m.isfile() and m.mtime == m.uid == 0 and m.mode == 0o644
               and m.name.startswith("package/") for m in members)
    assert {m.name[8:] for m in members} == set(want)
    again = d.curl(model, json.dumps({"name": "net"}), "again.tar")[1]
    assert open(out, "rb").read() == open(again, "rb").read()

    single = d.by_hlo(data, "--name", "net", "--single-file")
    status, page = d.curl(model, "", "page.html", "-G", "--data-urlencode",
                          "single_file=true", "--data-urlencode", "name=net")
    assert status == 200 and hashlib.sha256(
        open(page, "rb").read()).hexdigest() == single["index.html"]

    d.json("POST", "/v1/models", {"name": "pictures", "model": model})
    by_name = d.curl("pictures", "{}", "named.tar")[1]
    assert b'"name":"pictures"' in open(by_name, "rb").read()  # as it was asked for
    status, m = d.json("POST", "/v1/models/pictures/web", {"singleFile": True})
    assert status == 200 and m["fileName"] == "pictures.html", m
    assert len(base64.b64decode(m["data"])) == m["bytes"] and m["assumed"][0]["input"] == "image"


def refused(d):
    """One clear error, at once; the next request is served."""
    model = d.upload(net())
    for body, status, words in (
            ({"backend": "webgl9"}, 400, "backend 'webgl9': expected auto, webgpu"),
            ({"weights": "f8"}, 400, "weights 'f8': expected f32 or f16"),
            ({"labels": "a\n" + "b" * 4097}, 400, "line 2: a label has at most 4096 bytes"),
            ({"image": {"std": [0]}}, 400, "std is not 0"),
            ({"image": {"mean": [1, 2]}}, 400, "found 2"),
            ({"image": {"height": 7}}, 400, "pictures of 7x0"),
            ({"image": {"height": 2 ** 31 - 1, "width": 1}}, 400, "at most 32768"),
            ({"image": {"crop": 1e300}}, 400, "part to crop"),
            ({"image": {"input": "zzz"}}, 400, "no input 'zzz'"),
            ({"image": {"layout": "x" * 999}}, 400, "expected nchw or nhwc"),
            ({"image": {"height": 8, "width": 8}}, 400, "a picture of 8x8 becomes"),
            ({"shapes": [{"input": "image", "dims": [2 ** 31, 3, 16, 16]}]}, 429, "4 GiB"),
            ({"shapes": [{"input": "image", "dims": [2 ** 62, 3, 16, 16]}]}, 400, ""),
            ({"shapes": [{"input": "image", "dims": [1, 3, 17, 16]}]}, 400, "17"),
            ({"shapes": [{"input": "picture", "dims": [1]}]}, 400, "picture"),
            ({"shapes": [{"input": "image", "dims": [-4, 3, 16, 16]}]}, 400, ""),
            ({"unheard": 1}, 400, "unheard"), ({"priority": 999}, 400, "priority"),
            ({"name": 7}, 400, "name")):
        got, reply = d.json("POST", "/v1/models/%s/web" % model, body)
        assert got == status and words in json.dumps(reply), (body, got, reply)
    for path, status in (("0" * 64, 404), ("nobody", 404), ("%2e%2e%2f", 404)):
        assert d.json("POST", "/v1/models/%s/web" % path, {})[0] == status, path
    assert d.call("GET", "/v1/models/%s/web" % model)[0] in (400, 404, 405)

    lacks = d.upload(net(texts=2))
    got, reply = d.json("POST", "/v1/models/%s/web" % lacks, {})
    assert got in (400, 412) and reply["reason"] == "UNSUPPORTED_OP", reply
    assert {"output 'e%d': a tensor of texts" % k for k in (0, 1)} < set(reply["details"]), reply
    got, reply = d.json("POST", "/v1/models/%s/web" % d.upload(b"""HloModule m
ENTRY main {
  a = u64[1] rng-get-and-update-state(), delta=1
  b = u64[1] rng-get-and-update-state(), delta=2
  ROOT c = (u64[1], u64[1]) tuple(a, b)
}
"""), {})
    said = json.dumps(reply)
    assert reply["reason"] == "UNSUPPORTED_OP" and "'a'" in said and "'b'" in said, reply
    got, reply = d.json("POST", "/v1/models/%s/web" % d.upload(ENDS), {})
    ends = [w for w in reply["details"] if "a branch that ends a run: instruction 'raise'" in w]
    assert len(ends) == 1 and "calls back into the Python process" in ends[0], reply
    assert d.curl(model)[0] == 200


def fields_of_all_kinds(d):
    """Fields of the path and the query in a message that came as protobuf: each is freed with what
    it was made with. (A request of that kind ended the daemon.)"""
    model = d.upload(net())
    exe = d.json("GET", "/v1/executables")[1]["executables"][0]["digest"]
    kind = {"Content-Type": "application/x-protobuf"}
    text = lambda field, s: bytes([field << 3 | 2, len(s)]) + s.encode()
    wide = text(1, model) + text(3, "onnx") + bytes([5 << 3 | 2, 8]) + text(1, "strict")
    for _ in range(3):
        assert d.call("POST", "/v1/models/%s/web?name=b&weights=f16&crop=0.5" % model,
                      text(1, "x" * 40) + text(6, "a" * 60), kind)[0] == 200
        assert d.call("POST", "/v1/executables/%s/tune?timeout_ms=9000" % exe,
                      text(1, "y" * 60) + bytes([2 << 3, 1]), kind)[0] in (200, 412)
        assert d.call("POST", "/v1/executables?precision=default&shape=image=1x3x16x16", wide,
                      kind)[0] == 200
        assert d.call("POST", "/v1/run?no_compile=1&precision=strict", text(1, model),
                      kind)[0] == 400
    assert d.p.poll() is None


def kept(d):
    """The same export again is not compiled again, after a restart too; another option, size, model
    or tenant is another; what is damaged is made anew; what is collected is gone."""
    def ask(model, who="a", **q):
        status, m = d.json("POST", "/v1/models/%s/web" % model, q, d.tokens[who])
        assert status == 200, m
        return m.get("cacheHit", False), base64.b64decode(m["data"]), m

    def files():
        at = os.path.join(d.dir, "data", "packages")
        return [os.path.join(p, f) for p, _, fs in os.walk(at) for f in fs]
    model = d.upload(net(), d.tokens["a"])
    hit, first, whole = ask(model)
    assert not hit and len(files()) == 1
    hit, again, m = ask(model, backend="auto", weights="f32", timeoutMs=9000)
    assert hit and again == first
    assert {**m, "cacheHit": False} == {**whole, "cacheHit": False}
    assert d.call("POST", "/v1/models/%s/web" % model, "{}", d.tokens["a"])[0] == 200
    shape = [{"input": "image", "dims": [2, 3, 16, 16]}]
    others = [{"weights": "f16"}, {"backend": "wasm"}, {"singleFile": True}, {"name": "other"},
              {"labels": "a"}, {"image": {"std": [2]}}, {"shapes": shape}]
    for q in others:
        hit, other, _ = ask(model, **q)
        assert not hit and other != first, q
    for q in others:
        assert ask(model, **q)[0], q
    assert len(files()) == 1 + len(others)
    another = d.upload(net(weights=4), d.tokens["a"])
    assert not ask(another)[0] and ask(another)[0]

    d.upload(net(), d.tokens["b"])  # the same bytes; what a exported b does not see
    hit, theirs, _ = ask(model, "b")
    assert not hit and theirs == first and ask(model, "b")[0]

    d.again()
    hit, later, m = ask(model)
    assert hit and later == first and {**m, "cacheHit": False} == {**whole, "cacheHit": False}
    assert ask(model, "b")[0] and ask(another)[0] and all(ask(model, **q)[0] for q in others)

    n = len(files())
    for path in files():
        with open(path, "r+b") as f:
            f.seek(-20, os.SEEK_END)
            old = f.read(1)
            f.seek(-20, os.SEEK_END)
            f.write(bytes([old[0] ^ 1]))
    hit, mended, _ = ask(model)
    assert not hit and mended == first
    assert "cache.quarantined" in d.logs() and ask(model)[0] and len(files()) == n

    def collect(**q):
        status, m = d.json("POST", "/v1/cache/gc", q, d.tokens["all"])
        assert status == 200, m
        return m.get("packages", []), int(m.get("freedBytes", 0)), int(m.get("keptBytes", 0))
    assert d.json("POST", "/v1/cache/gc", {"unusedS": 1}, d.tokens["a"])[0] == 403
    assert collect(unusedS=3600)[0] == [] and len(files()) == n
    names = {os.path.basename(f) for f in files()}
    size = {os.path.basename(f): os.stat(f).st_size for f in files()}
    last = max(files(), key=lambda f: os.stat(f).st_mtime_ns)  # by max bytes the least used go
    told, freed, left = collect(maxBytes=1, dryRun=True)
    assert set(told) == names and freed >= sum(size.values()) and len(files()) == n
    gone, freed, left = collect(maxBytes=freed + left - 1)
    assert freed and last in files() and {os.path.basename(f) for f in files()} == names - set(gone)
    time.sleep(1.1)
    gone, freed, left = collect(unusedS=1)
    assert os.path.basename(last) in gone and freed >= sum(size[f] for f in gone) and not files()
    hit, mended, _ = ask(model)
    assert not hit and mended == first and ask(model)[0]
kept.tokens = True


def tenants(d):
    """Another's model is not there; a token needs the scope."""
    a, b, reader = (d.tokens[n] for n in ("a", "b", "a-reads"))
    model = d.upload(net(), a)
    d.json("POST", "/v1/models", {"name": "mine", "model": model}, a)
    exe = d.json("GET", "/v1/executables", None, a)[1]["executables"][0]["digest"]
    for name in (model, "mine", exe):
        path = "/v1/models/%s/web" % name
        assert d.call("POST", path, "{}", a)[0] == 200
        missing = d.json("POST", "/v1/models/%s/web" % ("f" * 64), {}, b)
        got = d.json("POST", path, {}, b)
        assert got[0] == 404 and got[1]["reason"] == missing[1]["reason"], got
        assert d.json("POST", path, {}, reader)[0] == 403
        assert d.call("POST", path, "{}")[0] == 401
    d.upload(net(), b)  # the same bytes are b's then, and not by a's name
    assert d.call("POST", "/v1/models/%s/web" % model, "{}", b)[0] == 200
    assert d.call("POST", "/v1/models/mine/web", "{}", b)[0] == 404
tenants.tokens = True


def compilers(d):
    """The processes of compilers that are there."""
    last = {w: int(pid) for w, pid in
            re.findall(r"worker.ready worker=(\d+) role=compile pid=(\d+)", d.logs())}
    return list(last.values())


def leaving(d):
    """Clients that leave while it is made or sent, or that do not read: nothing is left of it."""
    model = d.upload(heavy(24))
    path = "/v1/models/%s/web" % model

    def ask():
        c = d.connect(60)
        c.request("POST", path, "{}", {"Content-Type": "application/json"})
        return c
    before = d.logs().count("job.cancelled")
    with Stopped(*compilers(d)):  # it is not made before the client goes
        c = ask()
        until("the job is there", 20, lambda: metric(d, "hlod_jobs_active") == 1)
        c.close()
        until("the job is cancelled", 20, lambda: d.logs().count("job.cancelled") > before)
    c = ask()  # in the middle of the answer
    r = c.getresponse()
    assert r.status == 200 and int(r.getheader("Content-Length")) > 24 * MB
    assert len(r.read(MB)) == MB and d.held() > 24 * MB
    r.close()
    c.close()
    until("its memory is free", 20, lambda: d.held() == 0)

    slow = [ask() for _ in range(6)]  # who does not read holds so much and no more
    until("packages wait", 60, lambda: d.held() > 48 * MB)
    time.sleep(1)
    assert d.held() < 240 * MB, d.held()
    whole = refusals = 0
    for c in slow:
        r = c.getresponse()
        n = len(r.read())
        whole += r.status == 200 and n > 24 * MB
        refusals += r.status == 429
        c.close()
    assert whole + refusals == len(slow) and whole >= 1, (whole, refusals)
    until("its memory is free", 20, lambda: d.held() == 0)

    c = ask()
    time.sleep(0.1)
    lost, pids = d.logs().count("ev=worker.lost "), compilers(d)
    for pid in pids:
        os.kill(pid, 9)
    until("they are lost", 20, lambda: d.logs().count("ev=worker.lost ") >= lost + len(pids))
    r = c.getresponse()
    text = r.read()
    assert r.status == 200 or (r.status == 503 and b"WORKER_LOST" in text), (r.status, text)
    c.close()
    assert d.call("POST", path, "{}", timeout=60)[0] == 200
leaving.args = ["--reply-bytes", "80M", "--compile-workers", "2"]


if __name__ == "__main__":
    options, results = options("build"), Results()
    for scenario in chosen(options, [same_bytes, refused, fields_of_all_kinds, kept, tenants,
                                     leaving]):
        results.scenario(scenario.__name__, Here(options.build, scenario), scenario)
    print("packages for browsers: %d scenarios, %d failures" % (results.n, results.bad))
    sys.exit(results.code())
