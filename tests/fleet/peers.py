#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons that are each other's peers, with scripted workers: one compile in the fleet for a cold
model that all get at once; a node that dies while it compiles, or fails, or hangs; a node of
another build or target; who may ask. Standard library only.
Usage: peers.py --hlod BIN --worker BIN [NAME...]"""
import http.server, json, os, shutil, subprocess, sys, tempfile, threading, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import Fleet, compile, compiles, free_ports, model, secret, stats
from harness import PATIENCE, Daemon, Results, chosen, in_thread, options, until

def fleet(o, n=3, *more, **named):
    return Fleet(o.hlod, o.worker, n, *more, **named)

def compiling(d, body):
    """A compile with which that node has begun: (thread, list that gets its (status, last events)),
    as in_thread."""
    c = d.connect(2 * PATIENCE)
    c.request("POST", "/v1/executables?shape=x=1x4&stream=1", body,
              {"Content-Type": "application/octet-stream"})
    r = c.getresponse()
    while b'"compiling"' not in (line := r.readline()):
        assert line, "it never compiled"
    return in_thread(lambda: (r.status, r.read()))

def one_compile(o):
    """a cold model sent to all nodes at once by 30 clients: one compile in the fleet"""
    f = fleet(o)
    try:
        for round in range(3):
            body = model(f"cold{round}", 400)
            threads = [in_thread(compile, f.d[k % 3], body) for k in range(30)]
            for t, out in threads:
                t.join()
                assert out and out[0][0] == 200, out
            keys = {out[0][1]["digest"] for t, out in threads}
            assert len(keys) == 1, keys
            made = sum(compiles(d) for d in f.d)
            assert made == round + 1, (round, [compiles(d) for d in f.d])
            # each node has it now, and runs it
            for d in f.d:
                status, r = d.json("POST", "/v1/run",
                                   {"model": out[0][1]["sourceDigest"],
                                    "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                                "data": [1, 2, 3, 4]}]})
                assert status == 200 and r["outputs"][0]["data"] == [2, 3, 4, 5], r
                assert r["cacheHit"], r
        assert sum(compiles(d) for d in f.d) == 3
        f.stop()
    finally:
        f.clean()

def asked_later(o):
    """what one node compiled the others get, whoever keeps the key in mind"""
    f = fleet(o)
    try:
        for k in range(12):
            first, then = f.d[k % 3], f.d[(k + 1) % 3]
            body = model(f"later{k}")
            status, r = compile(first, body)
            assert status == 200 and not r.get("cacheHit"), r
            # the one that keeps it in mind has it a moment later; who asks before waits for that
            status, r = compile(then, body)
            assert status == 200 and r["cacheHit"], r
            assert r["executable"]["origin"] == "peers" and r["executable"]["signedBy"] == "hmac", r
        assert sum(compiles(d) for d in f.d) == 12
        f.stop()
    finally:
        f.clean()

def told(o):
    """the stream tells that another compiles it, and who gave it"""
    f = fleet(o, 2)
    try:
        body = model("told", 2600)
        t, out = compiling(f.d[0], body)
        status, _, text = f.d[1].call("POST", "/v1/executables?shape=x=1x4&stream=1", body,
                                      {"Content-Type": "application/octet-stream"})
        t.join()
        events = [json.loads(l)["remote"]["answer"] for l in text.splitlines()
                  if "remote" in json.loads(l)]
        assert [(e["remote"], e["outcome"]) for e in events] == [("peers", "waits"),
                                                                 ("peers", "hit")], text
        assert events[0]["why"] == "n0" and events[1]["bytes"] > 100, events
        assert [compiles(d) for d in f.d] == [1, 0]
        f.stop()
    finally:
        f.clean()

def node_dies(o):
    """kill -9 of the node that compiles: another does it instead, and nobody waits for the bound"""
    f = fleet(o, 3, "--cache-remote-wait-ms", "3600000")
    try:
        body = model("dies", 4000)
        t0, out0 = compiling(f.d[0], body)
        others = [in_thread(compile, d, body) for d in f.d[1:]]
        time.sleep(0.4)  # they wait for it by now, or find it dead
        f.d[0].kill()
        t0.join()
        for t, out in others:
            t.join()
            assert out[0][0] == 200, out
        assert 1 <= sum(compiles(d) for d in f.d[1:]) <= 2
        # it comes back, and gets it from them
        f.restart(0)
        f.wait_up(f.d[0], 2)
        status, r = compile(f.d[0], body)
        assert status == 200 and r["remote"] == "peers", r
        f.stop()
    finally:
        f.clean()

def compile_fails(o):
    """a model that cannot be compiled: each node says so itself, none waits out the bound"""
    f = fleet(o, 3, "--cache-remote-wait-ms", "3600000")
    try:
        body = model("bad", 200, "fail compile\n")
        threads = [in_thread(compile, f.d[k % 3], body) for k in range(9)]
        for t, out in threads:
            t.join()
            assert out[0][0] == 400 and out[0][1]["reason"] == "UNSUPPORTED_OP", out
        f.stop()
    finally:
        f.clean()

def client_leaves(o):
    """the only client of the node that compiles goes away: the others are served"""
    f = fleet(o, 3, "--cache-remote-wait-ms", "3600000")
    try:
        body = model("leaves", 3000)
        c = f.d[0].connect(30)
        c.request("POST", "/v1/executables?shape=x=1x4", body,
                  {"Content-Type": "application/octet-stream"})
        time.sleep(0.4)
        t, out = in_thread(compile, f.d[1], body)
        time.sleep(0.3)
        c.sock.close()
        t.join()
        assert out[0][0] == 200, out
        f.stop()
    finally:
        f.clean()

def bound_on_waiting(o):
    """a node that does not come to an end: the others compile when the bound is over"""
    f = fleet(o, 2, "--cache-remote-wait-ms", "1200")
    try:
        body = model("long", 6000)
        t0, out0 = compiling(f.d[0], body)
        begun = time.monotonic()
        status, r = compile(f.d[1], body)
        took = time.monotonic() - begun
        assert status == 200 and not r.get("cacheHit"), r
        assert took >= 7, took  # 1.2 s of waiting, 6 s of compiling
        said = [a["outcome"] for a in r["executable"]["remotes"]]
        assert said == ["waited"], r["executable"]["remotes"]
        t0.join()
        assert b'"OK"' in out0[0][1].splitlines()[-1], out0
        f.stop()
    finally:
        f.clean()

def another_build(o):
    """nodes of another build, or target, share nothing with the others and are not asked"""
    envs = [{**os.environ, "FAKE_WORKER_BUILD": b, "FAKE_WORKER_TARGET": t}
            for b, t in (("old", "fake:1"), ("new", "fake:1"), ("new", "fake:2"))]
    f = fleet(o, 3, envs=envs)
    try:
        body = model("mixed", 100)
        replies = [compile(d, body)[1] for d in f.d]
        assert len({r["digest"] for r in replies}) == 3, replies
        assert [compiles(d) for d in f.d] == [1, 1, 1]
        # an executable of another build that is offered all the same
        status, b = f.d[0].json("GET", f"/v1/executables/{replies[0]['digest']}/bundle")
        status, r = f.d[1].json("POST", "/v1/peer/executables", b)
        assert status == 400 and r["reason"] == "IMPORT_REFUSED", r
        f.stop()
    finally:
        f.clean()

def tokens(o):
    """peers call each other with a token; other tokens reach nothing of this"""
    hlo = os.path.join(os.path.dirname(o.hlod), "hlo")
    folder = tempfile.mkdtemp(prefix="hlod-peers-")
    file = os.path.join(folder, "tokens")
    def add(name, *w):
        return subprocess.run([hlo, "-q", "tokens", "add", name, "--file", file, *w], check=True,
                              capture_output=True, text=True).stdout.strip()
    try:
        user = add("u", "--tenant", "a", "--scopes", "read,run,compile,load,jobs,cache")
        peer = secret(folder, "peer.token", add("n", "--tenant", "nodes", "--scopes", "peer"))
        auth = {"Authorization": "Bearer " + user}
        f = fleet(o, 2, "--tokens", file, "--peer-token", peer, auth=auth)
    except BaseException:
        shutil.rmtree(folder)
        raise
    try:
        body = model("tok", 100)
        status, r = compile(f.d[0], body, **auth)
        assert status == 200, r
        status, r = compile(f.d[1], body, **auth)
        assert status == 200 and r["cacheHit"] and r["executable"]["origin"] == "peers", r
        key = r["digest"]
        for path in ("/v1/peer", f"/v1/peer/executables/{key}"):
            status, r = f.d[0].json("GET", path, headers=auth)
            assert status == 403 and r["reason"] == "MISSING_SCOPE", (path, r)
            assert f.d[0].json("GET", path)[0] == 401
        # a peer's token is no user's
        with open(peer) as p:
            node = {"Authorization": "Bearer " + p.read().strip()}
        assert f.d[0].json("GET", f"/v1/peer/executables/{key}", headers=node)[0] == 200
        assert f.d[0].json("GET", "/v1/executables", headers=node)[0] == 403
        text = f.d[0].logs() + f.d[1].logs()
        assert user not in text and open(peer).read().strip() not in text
        f.stop()
    finally:
        f.clean()
        shutil.rmtree(folder)

def wrong_token(o):
    """a peer that refuses our token is down, says why, and costs requests nothing"""
    hlo = os.path.join(os.path.dirname(o.hlod), "hlo")
    ports = free_ports(2)
    import tempfile, shutil
    folder = tempfile.mkdtemp(prefix="hlod-peers-")
    file = os.path.join(folder, "tokens")
    subprocess.run([hlo, "-q", "tokens", "add", "x", "--file", file], check=True,
                   capture_output=True)
    a = Daemon(o.hlod, o.worker, args=["--http", f"127.0.0.1:{ports[0]}", "--tokens", file],
               ready=False)
    b = Daemon(o.hlod, o.worker,
               args=["--cache-key", secret(folder), "--cache-remote",
                     f"http://127.0.0.1:{ports[0]}", "--cache-remote-wait-ms", "3600000"])
    try:
        until("it is down", 5, lambda: stats(b)["peers"][0]["state"] == "down")
        assert "401" in stats(b)["peers"][0]["why"], stats(b)
        status, r = compile(b, model("w"))
        assert status == 200, r
    finally:
        for d in a, b:
            assert d.stop() == 0
        shutil.rmtree(folder)

class Odd(http.server.BaseHTTPRequestHandler):
    """a peer that names itself as it likes, by its server"""
    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        node = self.server.node.encode()
        body = b"\x0a" + bytes([len(node)]) + node + b"\x12\x02L1"
        self.send_response(200)
        self.send_header("Content-Type", "application/x-protobuf")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass

def odd_names(o):
    """a peer's name goes to logs and listings: one with blanks, quotes or lines is none"""
    folder = tempfile.mkdtemp(prefix="hlod-peers-")
    for k, node in enumerate(['n1" ev=forged', "n1\nlvl=error ev=forged", "n" * 61, "n1"]):
        s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd)
        s.node, s.daemon_threads = node, True
        threading.Thread(target=s.serve_forever, daemon=True).start()
        d = Daemon(o.hlod, o.worker, args=["--cache-key", secret(folder), "--cache-remote",
                                           f"http://127.0.0.1:{s.server_address[1]}"])
        try:
            state = "up" if node == "n1" else "down"
            until("it is asked", 5, lambda: stats(d)["peers"][0]["state"] == state)
            peer = stats(d)["peers"][0]
            assert peer.get("node", "") == ("n1" if node == "n1" else ""), peer
            assert node == "n1" or "does not say who it is" in peer["why"], peer
            assert d.stop_keep() == 0 and "forged" not in d.logs(), d.logs()
        finally:
            if d.p.poll() is None:
                d.kill()
            d.clean()
            s.shutdown()
            s.server_close()
    shutil.rmtree(folder)

def drained(o):
    """a node that drains lets go of who waits at it"""
    f = fleet(o, 2)
    try:
        body = model("drain", 2500)
        t0, out0 = compiling(f.d[0], body)
        t1, out1 = in_thread(compile, f.d[1], body)
        time.sleep(0.4)
        assert f.d[0].stop_keep() == 0
        t0.join()
        t1.join()
        assert b'"OK"' in out0[0][1].splitlines()[-1] and out1[0][0] == 200, (out0, out1)
        f.stop()
    finally:
        f.clean()

def by_name(o):
    """dns:NAME:PORT: all addresses of the name; our own is known as ourselves"""
    port = free_ports(1)[0]
    import tempfile, shutil
    folder = tempfile.mkdtemp(prefix="hlod-peers-")
    d = Daemon(o.hlod, o.worker,
               args=["--http", f"127.0.0.1:{port}", "--cache-key", secret(folder), "--cache-remote",
                     f"dns:localhost:{port}"])
    try:
        until("it knows itself", 10,
              lambda: any(p["state"] == "self" for p in stats(d).get("peers", [])))
        assert compile(d, model("alone"))[0] == 200
    finally:
        assert d.stop() == 0
        shutil.rmtree(folder)

def one_sided(o):
    """a peer that has no peers of its own keeps nothing in mind: it is asked once, not until the
    bound on waiting"""
    folder = tempfile.mkdtemp(prefix="hlod-peers-")
    key = secret(folder)
    all = [Daemon(o.hlod, o.worker, args=["--cache-key", key])]
    try:
        address = "http://%s:%d" % all[0].addr
        all.append(Daemon(o.hlod, o.worker, args=["--cache-key", key, "--cache-remote", address,
                                                  "--cache-remote-wait-ms", "3600000"]))
        until("the peer is up", 10, lambda: any(p["state"] == "up" for p in stats(
            all[1], "peers").get("peers", [])))
        for k in range(4):  # some of them rank the peer first
            # the answer is not waited for as long as it would for a peer that promised it
            status, r = compile(all[1], model(f"cold{k}"))
            assert status == 200 and not r.get("cacheHit"), r
        assert compiles(all[1]) == 4 and compiles(all[0]) == 0
        for d in all:
            assert d.stop_keep() == 0, d.logs()
    finally:
        for d in all:
            if d.p.poll() is None:
                d.kill()
            d.clean()
        shutil.rmtree(folder)

def main():
    o, results = options("hlod", "worker"), Results()
    for s in chosen(o, [one_compile, asked_later, told, node_dies, compile_fails, client_leaves,
                        bound_on_waiting, another_build, tokens, wrong_token, odd_names, drained,
                        by_name, one_sided]):
        results.case(s.__name__, s, o)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
