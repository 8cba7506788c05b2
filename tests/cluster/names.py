#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of models on all nodes of a cluster: set, changed, unloaded, removed on one, run on
another, which fetches the bytes; nodes that join, were away, wrote at the same time; tenants; who
publishes without the secret, and who has it and lies. Standard library only.
Usage: names.py --hlod BIN --hlo BIN --worker BIN --nats BIN [--short] [NAME...]"""
import hashlib, os, signal, subprocess, sys, threading, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nats import (SECRET, Liar, Nodes, Raw, Server, agree, beat, cluster, mac, model, name, names,
                  number, record, sealed, sealed_beat, sealed_names, scenarios, states, text,
                  upload, value)
from harness import in_thread, until

def run(d, what, headers={}):
    return d.json("POST", "/v1/run", {"model": what, "inputs": [
        {"name": "x", "dtype": "f32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}, headers)

def runs(d, what, headers={}):
    status, r = run(d, what, headers)
    assert status == 200 and r["outputs"][0]["data"] == [2, 3, 4, 5], r

def pulls(d, outcome="ok"):
    return value(d, "hlod_cluster_pulls_total", f'{{outcome="{outcome}"}}')

# ---- names

def everywhere(o):
    """a name that is set on one node is run by the others, which fetch the model once each"""
    with Server(o) as nats, Nodes(o, 3, nats.url, shared=True) as n:
        n.meet()
        digest = upload(n.d[0], model("a"))
        name(n.d[0], "a", digest)
        name(n.d[0], "many", digest, 7, batching={"max": 4, "delayUs": 100, "unchecked": True})
        agree(n.d, {("a", 1): digest, ("many", 7): digest})
        m = n.d[2].json("GET", "/v1/models")[1]["models"][1]
        assert m["batching"]["max"] == 4 and m["tenant"] == "default", m
        assert n.d[2].json("DELETE", "/v1/models/many")[0] == 200
        agree(n.d, {("a", 1): digest})
        assert run(n.d[1], "no-such")[0] == 404
        for d in n.d:
            runs(d, "a")
            runs(d, "a:1")
        assert [pulls(d) for d in n.d] == [0, 1, 1]
        assert value(n.d[1], "hlod_cluster_pulled_bytes_total") == len(model("a"))

        second = upload(n.d[1], model("b"))
        assert name(n.d[1], "a", second)["version"] in (2, "2")
        agree(n.d, {("a", 1): digest, ("a", 2): second})
        runs(n.d[0], "a")
        assert n.d[2].call("POST", "/v2/repository/models/a/unload", b"{}")[0] == 200
        agree(n.d, {})
        assert len(n.d[0].json("GET", "/v1/models")[1]["models"]) == 2
        assert n.d[0].json("DELETE", "/v1/models/a")[0] == 200
        for d in n.d:
            until("removed", 10, lambda: not d.json("GET", "/v1/models")[1].get("models"))
        assert all(x["proved"] for x in cluster(n.d[0])["nodes"])

def large(o):
    """a model of several pieces, at the same time by many, and from a node that has it second-hand
    where its writer has died"""
    with Server(o) as nats, Nodes(o, 3, nats.url, shared=True) as n:
        n.meet()
        body = model("big") + b"# " + os.urandom(5 << 20).hex().encode() + b"\n"
        digest = upload(n.d[0], body)
        name(n.d[0], "big", digest)
        agree(n.d, {("big", 1): digest})
        all = [threading.Thread(target=runs, args=(n.d[1], "big")) for _ in range(8)]
        for t in all:
            t.start()
        for t in all:
            t.join(60)
        assert pulls(n.d[1]) == 1 and value(n.d[1], "hlod_cluster_pulled_bytes_total") == len(body)
        n.d[0].kill()
        until("it is lost", 10, lambda: states(n.d[2])["n0"] == "lost")
        runs(n.d[2], "big")
        assert pulls(n.d[2]) == 1

def away(o):
    """a node that joins late, or was away, catches up; what was removed meanwhile stays removed;
    without NATS each goes on with what it knows"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True) as n:
        n.meet()
        digest = upload(n.d[0], model("a"))
        for k in range(200):
            name(n.d[0], f"m{k}", digest)
        want = {(f"m{k}", 1): digest for k in range(200)}
        agree(n.d, want)
        n.d[1].stop_keep()
        for k in range(100):
            assert n.d[0].json("DELETE", f"/v1/models/m{k}")[0] == 200
        name(n.d[0], "later", digest)
        want = {(f"m{k}", 1): digest for k in range(100, 200)}
        want["later", 1] = digest
        n.restart(1)
        n.meet()
        agree(n.d, want)

        nats.kill()
        for d in n.d:
            until("it notices", 10, lambda: cluster(d)["state"] == "connecting")
        runs(n.d[1], "m150")  # fetched without NATS
        name(n.d[1], "alone", digest)
        runs(n.d[1], "alone")
        assert run(n.d[0], "alone")[0] == 404
        nats.start()
        want["alone", 1] = digest
        agree(n.d, want, 30)
        runs(n.d[0], "alone")

def conflicts(o):
    """two nodes that write the same version apart from each other: the later one holds, also
    against a removal, also after all were restarted"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True) as n:
        n.meet()
        a, b = (upload(d, model(x)) for d, x in zip(n.d, "ab"))
        name(n.d[0], "gone", a)
        name(n.d[0], "kept", a)
        agree(n.d, {("gone", 1): a, ("kept", 1): a})
        nats.kill()
        for d in n.d:
            until("it notices", 10, lambda: cluster(d)["state"] == "connecting")
        name(n.d[0], "x", a, 1)
        name(n.d[1], "x", b, 1)
        name(n.d[1], "y", b, 1)
        name(n.d[0], "y", a, 1)
        name(n.d[1], "gone", b, 1)
        n.d[0].json("DELETE", "/v1/models/gone")
        n.d[0].json("DELETE", "/v1/models/kept")
        name(n.d[1], "kept", b, 1)
        nats.start()
        want = {("x", 1): b, ("y", 1): a, ("kept", 1): b}
        agree(n.d, want, 30)
        for what in "x", "y", "kept":
            for d in n.d:
                runs(d, what)
        for k in range(2):
            n.d[k].stop_keep()
        for k in range(2):
            n.restart(k)
        n.meet()
        agree(n.d, want)
        assert name(n.d[1], "gone", b)["model"] == b
        agree(n.d, {**want, ("gone", 1): b})

def tenants(o):
    """a tenant's names are its own on every node"""
    with Server(o) as nats:
        with Nodes(o, 0, nats.url) as site:
            file, auth = site.path("tokens"), {}
            for who in "ab":
                p = subprocess.run([o.hlo, "-q", "tokens", "add", who, "--file", file, "--tenant",
                                    f"t-{who}", "--scopes", "read,run,compile,load"], check=True,
                                   capture_output=True, text=True, timeout=20)
                auth[who] = {"Authorization": "Bearer " + p.stdout.strip()}
            p = subprocess.run([o.hlo, "-q", "tokens", "add", "all", "--file", file, "--scopes",
                                "admin"], check=True, capture_output=True, text=True, timeout=20)
            admin = {"Authorization": "Bearer " + p.stdout.strip()}
            with Nodes(o, 2, nats.url, "--tokens", file, shared=True) as n:
                for d in n.d:
                    until("all are known", 15, lambda: len(cluster(d, **admin)["nodes"]) == 2)
                a = upload(n.d[0], model("a"), **auth["a"])
                name(n.d[0], "m", a, headers=auth["a"])
                until("it knows", 10, lambda: names(n.d[1], auth["a"]) == {("m", 1): a})
                assert names(n.d[1], auth["b"]) == {}
                assert run(n.d[1], "m", auth["b"])[0] == 404
                assert run(n.d[1], a, auth["b"])[0] == 404
                runs(n.d[1], "m", auth["a"])
                assert run(n.d[1], a, auth["b"])[0] == 404  # though its bytes are here now
                b = upload(n.d[1], model("b"), **auth["b"])
                name(n.d[1], "m", b, headers=auth["b"])
                until("it knows", 10, lambda: names(n.d[0], auth["b"]) == {("m", 1): b})
                assert names(n.d[0], auth["a"]) == {("m", 1): a}
                runs(n.d[0], "m", auth["b"])

# ---- who publishes what it likes

def hostile_messages():
    """messages that must all be refused"""
    good = sealed_names(record())
    yield beat()
    yield beat(node="n1")
    for n in range(0, len(good), 3):
        yield good[:n]
    for k in range(0, len(good), 2):
        yield good[:k] + bytes([good[k] ^ 1]) + good[k + 1:]
    yield sealed_beat(key="x" * 64)
    yield sealed_beat(name="other")
    yield sealed_beat(late_ms=200000)
    yield sealed_beat(late_ms=-200000)
    yield sealed_beat(node="a b")
    yield sealed(b"")
    yield sealed(text(2, beat()) + text(3, text(1, record())))
    yield sealed(text(3, text(1, b"\xff\xff")))
    for bad in (dict(name=""), dict(name="a/b"), dict(name="x" * 201), dict(name="a\u202eb"),
                dict(version=0), dict(version=-1), dict(source=b""), dict(source=b"x" * 31),
                dict(tenant=""), dict(tenant="a\nb"), dict(tenant="x" * 201), dict(writer=""),
                dict(writer="a b"), dict(writer="w" * 61), dict(revision=0), dict(revision=-5),
                dict(revision=1 << 62), dict(more=number(5, -1)), dict(more=number(6, -1)),
                dict(more=text(8, text(1, "o")) * 300)):
        yield sealed_names(record(**bad))
        yield sealed_names(record(name="good"), record(**bad))
    yield sealed_names(*[record(name=f"x{k}") for k in range(5000)])
    yield sealed_names(record(more=text(8, text(2, b"l" * 700000))))

def hostile(o):
    """what does not prove the secret, or holds no names, is refused, counted, and changes
    nothing"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True) as n:
        n.meet()
        raw, sent = Raw(nats.port), 0
        for m in hostile_messages():
            raw.publish(m)
            sent += 1
            if sent % 50 == 0:
                raw.flush()
                time.sleep(0.05)
        raw.flush()
        until("all are counted", 10,
              lambda: value(n.d[0], "hlod_cluster_refused_total") == sent)
        assert states(n.d[0]) == {"n0": "serving", "n1": "serving"}
        assert names(n.d[0]) == names(n.d[1]) == {}
        raw.publish(sealed_names(record(name="guest", writer="stranger")))
        raw.flush()
        agree(n.d, {("guest", 1): "01" * 32})  # who has the secret is believed
        status, r = run(n.d[0], "guest")
        assert status == 503 and "none of its nodes gave it" in str(r), r
        raw.close()

def blob(digest, data, bytes=None, offset=0):
    return (text(1, digest) + number(2, len(data) if bytes is None else bytes) +
            number(3, offset) + text(4, data))

def liars(o):
    """a node that gives other bytes, other parts, too much or nothing costs one refused run; a
    pass is of no use at another node; a node without the secret is not called"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True) as n, Liar() as liar:
        n.meet()
        raw = Raw(nats.port)
        right = model("right")
        digest = hashlib.sha256(right).hexdigest()
        raw.publish(beat(node="plain", address=liar.url))  # without the secret
        raw.publish(sealed_names(record(name="m", source=bytes.fromhex(digest), writer="plain")))
        raw.flush()
        agree(n.d, {("m", 1): digest})
        assert run(n.d[0], "m")[0] == 503 and not liar.seen
        raw.publish(sealed_beat(node="liar", life="liarlife", address=liar.url))
        raw.flush()
        until("it is known", 10, lambda: "liar" in states(n.d[0]))
        for answer in (b"", b"\xff" * 100, os.urandom(1000), blob("00" * 32, right),
                       blob(digest, right, bytes=1 << 62), blob(digest, right, offset=5),
                       blob(digest, right, bytes=-1), blob(digest, b"", bytes=9),
                       blob(digest, right, bytes=3), b"x" * (6 << 20)):
            liar.answer, seen = answer, len(liar.seen)
            status, r = run(n.d[0], "m")
            assert status == 503 and len(liar.seen) == seen + 1, (answer[:80], r)
        liar.answer = blob(digest, b"other bytes")
        assert run(n.d[0], "m")[0] == 503 and pulls(n.d[0], "lied") == 1
        assert digest not in str(os.listdir(n.d[0].dir))
        liar.answer = blob(digest, right)
        runs(n.d[0], "m")
        assert pulls(n.d[0]) == 1 and all(x.startswith("Hlod-Node ") for x in liar.seen)
        raw.close()

def digests(o):
    """a model that no name stands for, by its digest: one that was sent to a node right after
    another had not found it is found; how often one that nobody has is looked for; a node that
    drains, hangs or is slow to answer holds up nobody"""
    with Server(o) as nats, Nodes(o, 2, nats.url, shared=True) as n, Liar() as liar:
        n.meet()
        a, b = n.d
        def since(when):
            return time.monotonic() - when
        own = hashlib.sha256(model("own")).hexdigest()
        assert run(b, own)[0] == 404  # then it is sent, to whichever node
        assert upload(a, model("own")) == own
        runs(b, own)
        got = [b.call("POST", "/v1/executables?model=" + "5" * 64) for _ in range(12)]
        assert [status for status, *_ in got] == [404] * 8 + [503] * 4, got
        assert 1 <= int(got[-1][1]["retry-after"]) <= 3, got[-1]
        until("it is looked for again", 10, lambda: run(b, "5" * 64)[0] == 404)

        raw = Raw(nats.port)
        raw.publish(sealed_beat(node="slow", life="slow", address=liar.url))
        raw.flush()
        until("it is known", 10, lambda: "slow" in states(b))
        liar.speaks.clear()
        named = upload(a, model("named"))
        made_up = [in_thread(run, b, f"{k:064x}") for k in range(6)]
        until("it is asked", 10, lambda: liar.seen)
        name(a, "m", named)
        agree(n.d, {("m", 1): named})
        start = time.monotonic()
        runs(b, "m")
        assert since(start) < 10
        raw.publish(sealed_beat(node="slow", life="slow", address=liar.url, state="draining"))
        raw.flush()
        liar.speaks.set()
        for t, got in made_up:
            t.join(60)
            assert got[0][0] in (404, 503), got
        until("it drains", 10, lambda: states(b)["slow"] == "draining")
        seen = len(liar.seen)
        assert run(b, "6" * 64)[0] == 404 and len(liar.seen) == seen  # as if it were not there

        name(a, "late", upload(a, model("late")))
        agree(n.d, {("m", 1): named, ("late", 1): hashlib.sha256(model("late")).hexdigest()})
        os.kill(a.p.pid, signal.SIGSTOP)
        start = time.monotonic()
        assert run(b, "late")[0] == 503 and since(start) < 10  # once it is found lost
        os.kill(a.p.pid, signal.SIGCONT)
        until("it is found again", 10, lambda: states(b)["n0"] == "serving")
        runs(b, "late")
        raw.close()

def versions(o):
    """a node whose version does not work with this one is shown as that, and nothing goes there or
    is taken from it; one that is later and does is a node as others, as is one before numbers"""
    with Server(o) as nats, Nodes(o, 1, nats.url, shared=True) as n, Liar() as liar:
        d, raw = n.d[0], Raw(nats.port)
        def beats(name, protocol, least, is_now):
            def heard(): # again: it may not have subscribed yet
                raw.publish(sealed_beat(node=name, life=name, address=liar.url, kinds=["sim"],
                                        protocol=protocol, least=least, version="77"))
                raw.flush()
                return states(d).get(name) == is_now
            until(f"{name} is known", 10, heard)
        beats("later", 9, 1, "serving")
        beats("before", 0, 0, "serving")
        beats("too-late", 9, 2, "incompatible")
        want = {"n0": "serving", "later": "serving", "before": "serving",
                "too-late": "incompatible"}
        assert states(d) == want
        told = [x for x in d.logs().splitlines() if "ev=node.incompatible" in x]
        assert len(told) == 1 and "node=too-late" in told[0] and "version=77" in told[0], told
        proved = {x["node"] for x in cluster(d)["nodes"] if x.get("proved")}
        assert proved == {"n0", "later", "before"}, proved
        assert value(d, "hlod_cluster_nodes", '{state="incompatible"}') == 1
        refused = value(d, "hlod_cluster_refused_total")
        raw.publish(sealed_names(record("taken"), protocol=9, least=1))
        raw.publish(sealed_names(record("refused"), protocol=9, least=2))
        raw.flush()
        until("one is taken", 10, lambda: ("taken", 1) in names(d))
        until("one is refused", 10, lambda: value(d, "hlod_cluster_refused_total") == refused + 1)
        assert set(names(d)) == {("taken", 1)}
        status, r = d.json("GET", "/v1/buffers/too-late:b1")
        assert status == 503 and "incompatible" in r["message"] and not liar.seen, r
        beats("too-late", 9, 1, "serving")  # it was started as another version
        raw.close()

def passes(o):
    """a pass holds for the process it was made for, while it lasts, and says for whom"""
    with Server(o) as nats, Nodes(o, 0, nats.url) as site:
        file = site.path("tokens")
        p = subprocess.run([o.hlo, "-q", "tokens", "add", "all", "--file", file, "--scopes",
                            "admin"], check=True, capture_output=True, text=True, timeout=20)
        admin = {"Authorization": "Bearer " + p.stdout.strip()}
        with Nodes(o, 1, nats.url, "--tokens", file, shared=True) as n:
            d = n.d[0]
            life = cluster(d, **admin)["nodes"][0]["life"]
            def call(to=life, ms=20000, tenant="t", scopes=1, key=SECRET, cut=0, sender="n9",
                     path="/v1/models"):
                body = (text(1, sender) + text(2, to) + number(3, int(time.time() * 1000) + ms) +
                        text(4, tenant) + (number(5, scopes) if scopes else b""))
                p = (body + text(6, mac("hlod cluster pass 1", body, key))).hex()
                return d.call("GET", path, headers={"Authorization": "Hlod-Node " +
                                                    p[:len(p) - cut]})[0]
            assert call() == 200
            assert call(scopes=2) == 403
            assert call(path="/v1/blobs/" + "0" * 64, scopes=16) == 404
            for bad in (dict(to="other"), dict(key="y" * 64), dict(cut=2), dict(cut=1),
                        dict(ms=-200000), dict(ms=500000), dict(sender="a b"), dict(tenant="")):
                assert call(**bad) == 401, bad
            for junk in ("", "zz", "00", "f" * 5000):
                assert d.call("GET", "/v1/models",
                              headers={"Authorization": "Hlod-Node " + junk})[0] == 401

SHORT = [everywhere, hostile]
ALL = SHORT + [large, away, conflicts, tenants, liars, digests, versions, passes]

if __name__ == "__main__":
    sys.exit(scenarios("cluster ", SHORT, ALL))
