#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A cache of executables at a prefix (--cache-remote https://HOST/PATH), with scripted workers:
what comes from it and goes to it; and one that is slow, down, full or lying: a bounded time, the
compile happens here, the answer is right, and it is counted. Standard library only.
Usage: remote.py --hlod BIN --worker BIN [NAME...]"""
import json, os, shutil, socket, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import Cache, Site, compile, compiles, free_ports, model, secret, stats
from harness import Daemon, Results, chosen, in_thread, options, until

class Prefix(Site):
    """a cache at a prefix, and its key"""
    def __init__(self, o, **more):
        super().__init__(o, "remote")
        self.cache, self.key = Cache(**more), secret(self.folder)
    def daemon(self, *args, remote=None, key=None, env=None):
        return self.start("--cache-key", key or self.key, "--cache-remote",
                          remote or self.cache.url, *args, env=env)
    def close(self):
        self.cache.close()
        super().close()

def filled(site, name, **more):
    """a model whose executable another daemon has put into the cache; (bytes, key)"""
    d = site.daemon()
    status, r = compile(d, model(name, **more))
    assert status == 200, r
    until("it is put", 5, lambda: any(p.endswith(r["digest"]) for p in site.cache.store))
    assert d.stop_keep() == 0
    return model(name, **more), r["digest"]

def found_and_brought(o):
    """put after a compile, signed; found by another daemon, and said where it is from"""
    with Prefix(o) as site:
        a, b = site.daemon(), site.daemon()
        status, r = compile(a, model("one"))
        assert status == 200 and not r.get("cacheHit") and not r.get("remote"), r
        assert [x["outcome"] for x in r["executable"]["remotes"]] == ["miss"], r
        until("it is put", 5, lambda: site.cache.bundles())
        path, = site.cache.bundles()
        key = r["digest"]
        assert path == f"/cache/executables/{key[:2]}/{key}", path
        status, r = compile(b, model("one"))
        assert status == 200 and r["cacheHit"] and r["remote"] == site.cache.url, r
        assert r["digest"] == key and compiles(b) == 0
        assert "fetch" in [t["name"] for t in r["timings"]], r
        status, r = b.json("POST", "/v1/run",
                           {"model": r["sourceDigest"],
                            "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                        "data": [1, 2, 3, 4]}]})
        assert status == 200 and r["outputs"][0]["data"] == [2, 3, 4, 5] and r["cacheHit"], r
        assert not r.get("remote"), r  # by then it was here
        # what it is, and where it came from
        status, r = b.json("GET", f"/v1/cache/explain?a={key}")
        x = r["executable"]
        assert (x["origin"], x["signedBy"], x["bindings"]) == (site.cache.url, "hmac", ["N=1"]), r
        # the model that asked for it has its names there
        assert x["signature"]["inputs"][0]["name"] == "x" and x["sourceDigest"], x
        status, r = b.json("GET", f"/v1/executables/{key}")
        assert r["signature"]["inputs"][0]["name"] == "x", r
        assert (stats(a)["puts"], stats(a)["misses"]) == (1, 1), stats(a)
        assert (stats(b)["hits"], stats(b).get("misses", 0)) == (1, 0), stats(b)
        assert stats(b)["bytesIn"] == len(site.cache.store[path])
        text = b.call("GET", "/metrics")[2].decode()
        assert f'hlod_remote_hits_total{{remote="{site.cache.url}"}} 1' in text, text
        # what is taken from there is not brought there
        assert not stats(b).get("puts"), stats(b)
        # after a restart it is here
        assert b.stop_keep() == 0
        b = site.daemon("--data", os.path.join(b.dir, "data"))
        n = len(site.cache.asked)
        status, r = compile(b, model("one"))
        assert r["cacheHit"] and not r.get("remote") and len(site.cache.asked) == n, r

def told_in_streams(o):
    with Prefix(o) as site:
        body, key = filled(site, "stream")
        d = site.daemon()
        path = "/v1/executables?shape=x=1x4&stream=1"
        text = d.call("POST", path, body, {"Content-Type": "application/octet-stream"})[2]
        events = [json.loads(l) for l in text.splitlines()]
        answer = [e["remote"] for e in events if "remote" in e]
        assert len(answer) == 1 and answer[0]["digest"] == key, events
        assert answer[0]["answer"]["outcome"] == "hit" and answer[0]["answer"]["bytes"] > 100
        assert not [e for e in events if "compiling" in e], events

def no_compile(o):
    """a run that must not compile takes what a remote has, and fails where none has it"""
    with Prefix(o) as site:
        body, key = filled(site, "nc")
        d = site.daemon()
        run = lambda m: d.json("POST", "/v1/run", {
            "model": m, "options": {"noCompile": True},
            "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})
        def uploaded(b):
            status, r = d.json("PUT", "/v1/blobs", b, {"Content-Type": "application/octet-stream"})
            assert status == 200, r
            return r["digest"]
        assert run(uploaded(body))[0] == 200
        status, r = run(uploaded(model("nobody has it")))
        assert status == 400 and r["reason"] == "WOULD_COMPILE", r

def order(o):
    """remotes are asked in their order, until one has it; a read-only one gets nothing"""
    with Prefix(o) as site:
        body, key = filled(site, "order")
        first = Cache()
        try:
            d = site.daemon(remote=f"{first.url},{site.cache.url} readonly")
            n = len(site.cache.asked)
            status, r = compile(d, body)
            assert r["remote"] == site.cache.url, r
            assert [a[0] for a in first.asked] == ["GET"], first.asked
            status, r = compile(d, model("another"))
            assert [x["outcome"] for x in r["executable"]["remotes"]] == ["miss", "miss"], r
            until("it is put", 5, lambda: first.bundles())
            time.sleep(0.2)
            assert [a[0] for a in site.cache.asked[n:]] == ["GET", "GET"], site.cache.asked[n:]
        finally:
            first.close()

def ends_when_put(o):
    """a daemon that is told to end brings what it has compiled first: for CI"""
    def slow(verb, path):
        if verb == "PUT":
            time.sleep(1)
    with Prefix(o, behave=slow) as site:
        d = site.daemon()
        assert compile(d, model("last"))[0] == 200
        assert d.stop_keep() == 0
        assert len(site.cache.bundles()) == 1

# ---- what does not hold

def refused(site, body, key, why, spoil, outcome="refused"):
    """spoil: the bundle's bytes -> what the cache gives instead"""
    d = site.daemon()
    path = f"/cache/executables/{key[:2]}/{key}"
    whole = site.cache.store[path]
    site.cache.store[path] = spoil(whole)
    status, r = compile(d, body)
    site.cache.store[path] = whole
    assert status == 200 and not r.get("cacheHit") and r["digest"] == key, r
    said = r["executable"]["remotes"][0]
    assert said["outcome"] == outcome and why in said["why"], (why, said)
    assert compiles(d) == 1 and stats(d)["refused"] == 1, stats(d)
    assert "ev=remote.refused" in d.logs()
    status, r = d.json("POST", "/v1/run",
                       {"model": r["sourceDigest"],
                        "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                    "data": [1, 2, 3, 4]}]})
    assert status == 200 and r["outputs"][0]["data"] == [2, 3, 4, 5], r
    assert d.stop_keep() == 0

def changed_byte(o):
    """one byte changed, anywhere: refused, compiled here, counted"""
    with Prefix(o) as site:
        body, key = filled(site, "byte")
        n = len(site.cache.store[f"/cache/executables/{key[:2]}/{key}"])
        def flip(at):
            return lambda b: b[:at] + bytes([b[at] ^ 1]) + b[at + 1:]
        for at in (0, n // 3, n // 2, n - 70, n - 1):
            refused(site, body, key, "", flip(at))
        refused(site, body, key, "no bundle", lambda b: b[:n // 2])
        refused(site, body, key, "not whole", lambda b: b"")
        refused(site, body, key, "", lambda b: b"<html>not here</html>")

def wrong_signature(o):
    with Prefix(o) as site:
        body, key = filled(site, "sig")
        mine = site.key
        # another's secret; none
        site.key = secret(site.folder, "other.key", "ad" * 32)
        refused(site, body, key, "not by a key that this server trusts", lambda b: b)
        site.key = mine
        def without(b):  # the signature is the last field, 4, of 32 bytes
            assert b[-34:-32] == b"\x22\x20"
            return b[:-34]
        refused(site, body, key, "no signature", without)
        d = Daemon(o.hlod, o.worker, args=["--insecure-cache-unsigned", "--cache-remote",
                                           site.cache.url])
        site.all.append(d)
        status, r = compile(d, model("by nobody"))
        until("it is put", 5, lambda: any(p.endswith(r["digest"]) for p in site.cache.store))
        refused(site, model("by nobody"), r["digest"], "no signature", lambda b: b)

def another_executable(o):
    """a bundle that holds, but is of another key, build or target"""
    with Prefix(o) as site:
        body, key = filled(site, "mine")
        _, other = filled(site, "theirs", compile_ms=1)
        there = lambda k: site.cache.store[f"/cache/executables/{k[:2]}/{k}"]
        refused(site, body, key, "another executable than was asked for", lambda b: there(other))
        for variable in "FAKE_WORKER_BUILD", "FAKE_WORKER_TARGET":
            d = site.daemon(env={**os.environ, variable: "old:1"})
            status, r = compile(d, body)
            assert r["digest"] != key
            until("it is put", 5, lambda: any(p.endswith(r["digest"]) for p in site.cache.store))
            refused(site, body, key, "another executable than was asked for",
                    lambda b: there(r["digest"]))

def of_another_tenant(o):
    """with --isolate tenant a key is of one tenant: what another's gives is not its own"""
    with Prefix(o) as site:
        hlo = os.path.join(os.path.dirname(o.hlod), "hlo")
        file = os.path.join(site.folder, "tokens")
        who = {}
        for t in "ab":
            text = subprocess.run([hlo, "-q", "tokens", "add", t, "--tenant", t, "--file", file,
                                   "--scopes", "read,run,compile"], check=True,
                                  capture_output=True, text=True).stdout.strip()
            who[t] = {"Authorization": "Bearer " + text}
        d = site.daemon("--tokens", file, "--isolate", "tenant")
        keys = [compile(d, model("iso"), **who[t])[1]["digest"] for t in "ab"]
        assert keys[0] != keys[1]
        until("both are put", 5, lambda: len(site.cache.bundles()) == 2)
        e = site.daemon("--tokens", file, "--isolate", "tenant")
        path = lambda k: f"/cache/executables/{k[:2]}/{k}"
        site.cache.store[path(keys[0])] = site.cache.store[path(keys[1])]
        status, r = compile(e, model("iso"), **who["a"])
        assert status == 200 and r["executable"]["remotes"][0]["outcome"] == "refused", r
        status, r = compile(e, model("iso"), **who["b"])
        assert status == 200 and r["remote"], r

# ---- remotes that are not well

def costs(site, name, outcome, *args, remote=None, key=None):
    """a compile beside such a remote; (daemon, what it says of the remote)"""
    d = site.daemon(*args, remote=remote)
    status, r = compile(d, model(name))
    assert status == 200 and r["executable"]["remotes"], r
    said = r["executable"]["remotes"][0]
    assert said["outcome"] == outcome, said
    return d, said

def down(o):
    """nobody listens: refused at once; after three failures it is not asked, and found again"""
    port, = free_ports(1)
    with Prefix(o) as site:
        url = f"http://127.0.0.1:{port}/cache"
        d, said = costs(site, "down0", "error", remote=url)
        outcomes = [compile(d, model(f"down{k}"))[1]["executable"]["remotes"][0]["outcome"]
                    for k in range(1, 5)]  # what is to be put there fails too, and counts
        assert outcomes[2:] == ["skipped"] * 2, outcomes
        s = stats(d)
        assert s["state"] == "down" and s["errors"] in (1, 2, 3) and s["skipped"] >= 2, s
        assert "ev=remote.down" in d.logs()
        back = Cache()
        back.server.socket.close()
        back.server.socket = socket.create_server(("127.0.0.1", port))
        try:
            until("it is up again", 10, lambda: stats(d)["state"] == "up")
            status, r = compile(d, model("up"))
            assert r["executable"]["remotes"][0]["outcome"] == "miss", r
            until("it is put", 5, lambda: back.bundles())
        finally:
            back.close()

def hangs(o):
    """takes the connection and says nothing: the bound, and no more once it is known"""
    with socket.create_server(("127.0.0.1", 0)) as s, Prefix(o) as site:
        url = f"http://127.0.0.1:{s.getsockname()[1]}/cache"
        d, said = costs(site, "hang0", "error", "--cache-remote-ms", "700", remote=url)
        assert 600 < said["ms"] < 4500, said  # 5000 without the option
        for k in (1, 2):
            compile(d, model(f"hang{k}"))
        status, r = compile(d, model("hang3"))
        assert r["executable"]["remotes"][0]["outcome"] == "skipped", r

def unreachable(o):
    """no connection is taken: the bound of the connection"""
    with socket.socket() as s, Prefix(o) as site:
        s.bind(("127.0.0.1", 0))
        s.listen(0)
        full = [socket.socket() for _ in range(8)]
        for c in full:  # the queue of connections is full
            c.setblocking(False)
            c.connect_ex(s.getsockname())
        url = f"http://127.0.0.1:{s.getsockname()[1]}/cache"
        d, said = costs(site, "far", "error", "--cache-remote-connect-ms", "2000",
                        "--cache-remote-ms", "600000", remote=url)
        assert 1900 < said["ms"] < 60000, said  # 1000 without the option
        for c in full:
            c.close()

def drip(handler):
    handler.send_response(200)
    handler.send_header("Content-Length", "100000000")
    handler.end_headers()
    try:
        while True:
            handler.wfile.write(b"x")
            time.sleep(0.02)
    except OSError:
        pass

def slow(o):
    """a body that comes drop by drop"""
    with Prefix(o, behave=lambda verb, path: drip if verb == "GET" else None) as site:
        d, said = costs(site, "slow", "error", "--cache-remote-ms", "800")
        assert 700 < said["ms"] < 4500, said  # 5000 without the option

def endless(o):
    """a body without end, announced or not, in chunks: memory stays, it ends at the bound"""
    def forever(chunked):
        def answer(handler):
            handler.send_response(200)
            if chunked:
                handler.send_header("Transfer-Encoding", "chunked")
            else:
                handler.send_header("Connection", "close")
            handler.end_headers()
            block = b"x" * (1 << 20)
            try:
                while True:
                    handler.wfile.write(b"100000\r\n" + block + b"\r\n" if chunked else block)
            except OSError:
                pass
        return answer
    def announced(handler):
        handler.send_response(200)
        handler.send_header("Content-Length", str(1 << 50))
        handler.end_headers()
    for answer in forever(True), forever(False), announced:
        with Prefix(o, behave=lambda verb, path: answer if verb == "GET" else None) as site:
            d, said = costs(site, "endless", "error", "--max-message-bytes", "16M")
            assert "more than" in said["why"], said
            with open(f"/proc/{d.p.pid}/status") as f:
                peak = [int(l.split()[1]) for l in f if l.startswith("VmHWM")][0]
            assert peak < 400 << 10, peak

def answers(o):
    """what else a server may answer: none of it is followed, none fails a request"""
    other = Cache()
    def answer(code, body=b"", **headers):
        return lambda h: h.reply(code, body, **headers)
    def raw(text):
        def write(h):
            h.wfile.write(text)
            h.close_connection = True
        return write
    cases = {"moved": (answer(302, Location=other.url + "/x"), "redirects"),
             "elsewhere": (answer(307, Location="http://169.254.169.254/latest"), "redirects"),
             "login": (answer(401), "401"), "forbidden": (answer(403, b"no"), "403"),
             "broken": (answer(500, b"\x1b[31mred\r\nev=forged"), "500"),
             "busy": (answer(503, Retry_After="3600"), "503"),
             "long": (answer(500, b"e" * (1 << 20)), "500"),
             "no http": (raw(b"SSH-2.0-OpenSSH\r\n"), ""),
             "half": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf"), ""),
             "headers": (raw(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200000), "")}
    try:
        for name, (how, why) in cases.items():
            with Prefix(o, behave=lambda verb, path: how if verb == "GET" else None) as site:
                d, said = costs(site, name, "error")
                assert why in said["why"], (name, said)
                assert "\x1b" not in d.logs() and "\nev=forged" not in d.logs(), d.logs()
        assert not other.asked, other.asked
    finally:
        other.close()

def full(o):
    """it takes no more: counted, nothing else happens"""
    with Prefix(o, behave=lambda verb, path: (lambda h: h.reply(507, b"full"))
              if verb == "PUT" else None) as site:
        d = site.daemon()
        for k in range(4):
            assert compile(d, model(f"full{k}"))[0] == 200
        until("it is counted", 5, lambda: stats(d).get("putErrors", 0) >= 3)
        assert compile(d, model("full9"))[0] == 200

def many(o):
    """30 clients beside a remote that hangs: each waits once, none twice, others are served"""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as s, Prefix(o) as site:
        url = f"http://127.0.0.1:{s.getsockname()[1]}/cache"
        d = site.daemon("--cache-remote-ms", "4000", remote=url)
        begun = time.monotonic()
        threads = [in_thread(compile, d, model(f"many{k}")) for k in range(30)]
        time.sleep(0.3)
        assert d.call("GET", "/healthz")[0] == 200  # the loop goes on
        status, r = d.json("PUT", "/v1/blobs", b"bytes",
                           {"Content-Type": "application/octet-stream"})
        assert status == 200, r  # and so does the pool
        assert all(t.is_alive() for t, _ in threads), "they waited for the remote"
        for t, out in threads:
            t.join()
            assert out[0][0] == 200, out
        assert time.monotonic() - begun < 60, "one after the other"  # 120 s, each its 4

def tokens_stay(o):
    """a prefix's token goes to it alone, and into no log"""
    with Prefix(o) as site:
        other = Cache(behave=lambda verb, path: None)
        token = secret(site.folder, "token", "hush-hush-4711")
        try:
            d = site.daemon("--log", "debug",
                            remote=f"{site.cache.url} token={token},{other.url}")
            assert compile(d, model("tok"))[0] == 200
            until("both have it", 5, lambda: site.cache.bundles() and other.bundles())
            assert all(h.get("Authorization") == "Bearer hush-hush-4711"
                       for _, _, h in site.cache.asked), site.cache.asked
            assert not any("Authorization" in h for _, _, h in other.asked)
            assert "hush" not in d.logs()
        finally:
            other.close()

def check_config(o):
    """each option's mistakes are named, with what would do"""
    folder = tempfile.mkdtemp(prefix="hlod-remote-")
    key = secret(folder)
    loose = secret(folder, "loose", mode=0o644)
    ok = ["--cache-key", key]
    cases = [(["--cache-remote", "http://h:1/p"], "--cache-verify"),
             (ok + ["--cache-remote", "ftp://h/p"], "cache_remote: 'ftp://h/p': expected"),
             (ok + ["--cache-remote", "https://u:p@h/p"], "no credentials"),
             (ok + ["--cache-remote", "https://h/a/../b"], "a path has"),
             (ok + ["--cache-remote", "https://h/a?b=c"], "a path has"),
             (ok + ["--cache-remote", "https://h/a%2e%2e"], "a path has"),
             (ok + ["--cache-remote", "http://h"], "a peer is http://HOST:PORT"),
             (ok + ["--cache-remote", "dns:h"], "expected dns:NAME:PORT"),
             (ok + ["--cache-remote", "s3://B"], "expected s3://BUCKET/PREFIX"),
             (ok + ["--cache-remote", "s3://bu/../x"], "expected s3://BUCKET/PREFIX"),
             (ok + ["--cache-remote", "https://h/p,https://h/p"], "twice"),
             (ok + ["--cache-remote", "https://h/p readwrite"], "no word 'readwrite'"),
             (ok + ["--cache-remote", "http://h:1 token=/x"], "--peer-token"),
             (ok + ["--cache-remote", "http://10.0.0.1/p token=/x"], "unencrypted"),
             (ok + ["--cache-remote", f"https://h/p token={loose}"], "is a secret"),
             (ok + ["--cache-remote", "https://h/p token=/none"], "No such file"),
             (ok + ["--cache-remote", f"https://h/p ca={key}"], "expected PEM"),
             (ok + ["--cache-remote", "s3://bucket/p"], "AWS_ACCESS_KEY_ID"),
             (ok + ["--peer-token", key], "cache_remote names none"),
             (ok + ["--cache-remote", "http://h:1", "--peer-cert", key], "go together"),
             (ok + ["--cache-remote", "http://h:1", "--peer-token", loose], "is a secret"),
             (ok + ["--insecure-cache-unsigned"], "contradicts"),
             (["--node", "a b"], "node 'a b'"),
             (["--cache-verify", key], "cache_verify:"), (["--cache-sign", key], "cache_sign:")]
    env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
    try:
        for args, text in cases:
            p = subprocess.run([o.hlod, "--check-config", "--data", folder, *args],
                               capture_output=True, text=True, timeout=20,
                               env={**env, "HOME": folder})
            assert p.returncode != 0 and text in p.stderr, (args, p.returncode, p.stderr)
            assert "5e5e" not in p.stderr, p.stderr
    finally:
        shutil.rmtree(folder)

def main():
    o, results = options("hlod", "worker"), Results()
    for s in chosen(o, [found_and_brought, told_in_streams, no_compile, order, ends_when_put,
                        changed_byte, wrong_signature, another_executable, of_another_tenant, down,
                        hangs, unreachable, slow, endless, answers, full, many, tokens_stay,
                        check_config]):
        results.case(s.__name__, s, o)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
