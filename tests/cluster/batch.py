#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batch jobs that wait at one node and run on others, by tickets over JetStream: shares, results,
outputs, retries, priorities, cancels; nodes and NATS that die, and NATS's data gone; what is forged
is refused. Standard library only.
Usage: batch.py --hlod BIN --hlo BIN --worker BIN --nats BIN [--short] [NAME...]"""
import base64, collections, hashlib, json, os, struct, subprocess, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nats import (Liar, Nodes, Raw, Server, cluster, model, number, scenarios, sealed, sealed_beat,
                  states, tenants_tokens, text, value, varint)
from harness import PATIENCE, metric, until

ENDED = ("passed", "failed", "error", "cancelled")
SLOW = "run_ms 150\n"

def floats(*v):
    return struct.pack("<%df" % len(v), *v)
def blob(d, data, headers={}):
    status, r = d.json("PUT", "/v1/blobs", data, headers)
    assert status == 200, r
    return r["digest"]
def tensor(name, v):
    return {"name": name, "dtype": "f32", "shape": [1, 4],
            "raw": base64.b64encode(floats(*v)).decode()}
def inputs(n, stored=None):
    """n inputs of their own, whose expected outputs say which is which; stored: as blobs on it"""
    def one(k):
        x, y = tensor("x", [k] * 4), tensor("y", [k + 1] * 4)
        if stored:
            for t, v in (x, k), (y, k + 1):
                t["blob"] = blob(stored, floats(*[v] * 4))
                del t["raw"]
        return {"name": f"i{k}", "inputs": [x], "expect": [y]}
    return [one(k) for k in range(n)]
def submit(d, digest, ins, headers={}, **more):
    status, r = d.json("POST", "/v1/jobs", {"models": [{"name": "m", "model": digest}],
                                            "inputs": ins, **more}, headers)
    assert status == 200, r
    return r["suite"]
def asked(d, verb, path, headers={}):
    """the answer, other than UNAVAILABLE: what a node says that was held up for half a lease"""
    end = time.monotonic() + PATIENCE
    while True:
        status, r = d.json(verb, path, headers=headers)
        if status != 503 or time.monotonic() > end:
            return status, r
        time.sleep(0.05)
def listed(d, suite, headers={}):
    status, r = asked(d, "GET", f"/v1/jobs?suite={suite}&limit=1000", headers)
    assert status == 200, r
    return r.get("jobs", [])
def wait(d, suite, seconds=60, state="passed", headers={}):
    end = time.monotonic() + seconds
    while True:
        all = listed(d, suite, headers)
        if all and {j["state"] for j in all} <= set(ENDED):
            break
        assert time.monotonic() < end, [j for j in all if j["state"] not in ENDED]
        time.sleep(0.05)
    bad = [j for j in all if state and j["state"] != state]
    assert not bad, bad
    return all
def result(d, job):
    status, r = asked(d, "GET", f"/v1/jobs/{job}/result")
    assert status == 200, r
    return r
def shares(all):
    return collections.Counter(j.get("node", "") for j in all)
def tickets(d, what):
    return value(d, "hlod_cluster_tickets_total", f'{{what="{what}"}}')
def ready(n):
    n.meet()
    for d in n.d:
        until("JetStream is there", 15, lambda: value(d, "hlod_cluster_jobs_ready") == 1)
def once_each(d, suite, n, killed=False):
    """each job ended once, as the log says; killed: a daemon may have had no time to say it"""
    def ended():
        ends = [x for x in d.logs().splitlines() if f"ev=batch.job job={suite}." in x]
        return [x.split("job=")[1].split()[0] for x in ends]
    if not killed:  # what is on disk may be seen before it is in the log
        until("all are in the log", 20, lambda: len(ended()) >= n)
    jobs = ended()
    assert len(set(jobs)) == len(jobs), collections.Counter(jobs).most_common(3)
    assert len(jobs) == n or (killed and len(jobs) < n), (len(jobs), n)
    assert "ev=jobs.twice" not in d.logs()

def site(o, nats, *options, n=3, each=()):
    return Nodes(o, n, nats.url, "--job-parallel", "2", *options, shared=True, each=each)

# ---- the way

def spread(o):
    """a suite at one node runs on three; few jobs stay; results, times and outputs are home's"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        ready(n)
        a = n.d[0]
        slow = blob(a, model("slow", SLOW))
        few = wait(a, submit(a, slow, inputs(2)))
        assert shares(few) == {"": 2} and tickets(a, "published") == 0, shares(few)
        suite = submit(a, slow, inputs(40, stored=a), keep_outputs=True)
        until("others run some", 20, lambda: any(
            j.get("node") and j["state"] == "running" for j in listed(a, suite)))
        all = wait(a, suite)
        got = shares(all)
        assert set(got) == {"", "n1", "n2"} and min(got.values()) >= 5, got
        once_each(a, suite, 40)
        away = [j for j in all if j.get("node") == "n1"]
        r = result(a, away[0]["id"])
        assert r["node"] == "n1" and r["device"] and r["attempts"] == 1, r
        assert r["comparisons"][0]["ok"] and r["runMs"][0] > 0 and len(r["executable"]) == 64, r
        k = int(away[0]["input"][1:])
        kept = a.call("GET", f"/v1/blobs/{r['outputs'][0]['blob']}")[2]
        assert kept == floats(*[k + 1] * 4), kept
        log = a.json("GET", f"/v1/jobs/{away[0]['id']}/logs")[1]["text"]
        assert "goes to node n1" in log and "runs on" in log and log.count("passed") == 1, log
        taken = sum(tickets(d, "taken") for d in n.d[1:])
        assert taken >= got["n1"] + got["n2"] and tickets(a, "given") == got["n1"] + got["n2"]
        until("all are acknowledged", 10,
              lambda: tickets(a, "settled") == tickets(a, "given"))
        assert value(a, "hlod_cluster_attempts_total", '{outcome="ok"}') == got["n1"] + got["n2"]
        shown = subprocess.run([o.hlo, "--addr", "%s:%d" % a.addr, "jobs", "ls", suite], text=True,
                               capture_output=True, timeout=20).stdout
        assert shown.count(" by n1") == got["n1"], shown
        # What differs is found where it runs, and told here.
        wrong = inputs(12)
        for x in wrong:
            x["expect"][0] = tensor("y", [99] * 4)
        all = wait(a, submit(a, slow, wrong), state="failed")
        away = [j for j in all if j.get("node")]
        assert away and all[0]["error"]["reason"] == away[0]["error"]["reason"], away

def cancels(o):
    """a job that runs elsewhere is cancelled there too; the rest of its suite goes on"""
    with Server(o, "-js") as nats, site(o, nats, n=2) as n:
        ready(n)
        a, b = n.d
        long = blob(a, model("long", "run_ms 20000\n"))
        suite = submit(a, long, inputs(4))
        def away():
            return [j for j in listed(a, suite) if j["state"] == "running" and j.get("node")]
        until("both others run there", 15, lambda: len(away()) == 2)
        until("they run", 10, lambda: metric(b, "hlod_jobs_active") == 2)
        one, other = away()
        status, r = a.json("DELETE", f"/v1/jobs/{one['id']}")
        assert status == 200 and r["cancelled"] == 1, r
        until("it ends there", 10, lambda: metric(b, "hlod_jobs_active") == 1)
        assert [j["id"] for j in away()] == [other["id"]]
        status, r = a.json("DELETE", f"/v1/jobs/{suite}")
        assert status == 200 and r["cancelled"] == 3, r
        until("all end there", 10, lambda: metric(b, "hlod_jobs_active") == 0)
        wait(a, suite, state="cancelled")
        quick = blob(a, model("s", SLOW))  # and there is room again, once its worker is back
        until("it takes jobs", 30, lambda: shares(wait(a, submit(a, quick, inputs(12))))["n1"])

def in_order(o):
    """higher priorities go first to other nodes, too; what fails is tried again, so often"""
    with Server(o, "-js") as nats, site(o, nats, n=2) as n:
        ready(n)
        a, b = n.d
        slow = blob(a, model("slow", "run_ms 200\n"))
        low = submit(a, slow, inputs(16), priority=1)
        until("it waits", 10, lambda: tickets(a, "published") >= 8)
        high = submit(a, slow, inputs(6), priority=5)
        wait(a, high)
        left = [j for j in listed(a, low) if j["state"] in ("queued", "running")]
        assert len(left) >= 4, left
        wait(a, low)
        flaky = blob(a, model("flaky", "crash run\n"))
        all = wait(a, submit(a, flaky, inputs(4), retry={"max_attempts": 2, "backoff_ms": 50}),
                   state="error")
        assert {j["attempts"] for j in all} == {2}, all
        assert {j["error"]["code"] for j in all} == {"UNAVAILABLE"}, all

def other_device(o):
    """a job for a device that only another node has waits for it, and is no error; trainings and
    names of one device stay"""
    with Server(o, "-js") as nats, site(o, nats, n=2, each=[["--device", "cpu"],
                                                           ["--device", "sim"]]) as n:
        ready(n)
        a, b = n.d
        m = blob(a, model("m"))
        all = wait(a, submit(a, m, inputs(6), targets=[{"device": "sim"}]))
        assert shares(all) == {"n1": 6}, shares(all)
        assert shares(wait(a, submit(a, m, inputs(6)))) == {"": 6}
        all = wait(a, submit(a, m, inputs(2), targets=[{"device": "tpu"}]), state="error")
        assert {j["error"]["reason"] for j in all} == {"NO_WORKER"}, all
        b.stop_keep()
        until("it is gone", 10, lambda: states(a)["n1"] == "gone")
        suite = submit(a, m, inputs(3), targets=[{"device": "sim"}])
        time.sleep(0.5)
        assert {j["state"] for j in listed(a, suite)} == {"queued"}
        n.restart(1)
        assert shares(wait(a, suite)) == {"n1": 3}

# ---- who dies

def node_dies(o):
    """kill -9 of a node that runs jobs: they run elsewhere, with one result each"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        ready(n)
        a = n.d[0]
        suite = submit(a, blob(a, model("slow", "run_ms 400\n")), inputs(24))
        until("it runs some", 15, lambda: any(
            j["state"] == "running" and j.get("node") == "n1" for j in listed(a, suite)))
        n.d[1].kill()
        all = wait(a, suite)
        once_each(a, suite, 24)
        assert {j["attempts"] for j in all} == {1}, all
        assert value(a, "hlod_cluster_attempts_total", '{outcome="failed"}') >= 1
        n.restart(1)
        ready(n)
        assert shares(wait(a, submit(a, blob(a, model("s", SLOW)), inputs(24))))["n1"]

def home_dies(o):
    """kill -9 of the home: its jobs wait, and go on when it is back; nothing is lost, none twice"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        ready(n)
        a = n.d[0]
        suite = submit(a, blob(a, model("slow", SLOW)), inputs(40))
        until("some ended", 20, lambda: [j["state"] for j in listed(a, suite)].count("passed") > 8)
        a.kill()
        for d in n.d[1:]:
            until("what ran for it ends", 10, lambda: metric(d, "hlod_jobs_active") == 0)
        n.restart(0)
        a = n.d[0]
        until("it is ready", 20, lambda: value(a, "hlod_cluster_jobs_ready") == 1)
        all = wait(a, suite)
        assert len(all) == 40
        once_each(a, suite, 40, killed=True)
        assert set(shares(all)) & {"n1", "n2"}, shares(all)

def drains(o):
    """a home that is asked to end waits for what others run; a node that is asked to takes no
    more"""
    with Server(o, "-js") as nats, site(o, nats, n=2) as n:
        ready(n)
        a, b = n.d
        slow = blob(a, model("slow", "run_ms 400\n"))
        suite = submit(a, slow, inputs(10))
        until("it runs some", 15, lambda: metric(b, "hlod_jobs_active"))
        b.stop_keep()
        all = wait(a, suite)
        assert shares(all)["n1"] >= 1 and {j["attempts"] for j in all} == {1}, all
        n.restart(1)
        ready(n)
        suite = submit(a, slow, inputs(10))
        until("it runs some", 15, lambda: metric(n.d[1], "hlod_jobs_active"))
        a.stop_keep()
        n.restart(0)
        all = wait(n.d[0], suite)
        assert {j["attempts"] for j in all} == {1} and shares(all)["n1"], all

def nats_wiped(o):
    """NATS is killed and its data goes while jobs wait: the home makes their tickets again; while
    it is away jobs run at home; without JetStream, too"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        ready(n)
        a = n.d[0]
        slow = blob(a, model("slow", "run_ms 250\n"))
        suite = submit(a, slow, inputs(60))
        until("it waits", 10, lambda: tickets(a, "published") >= 40)
        nats.kill()
        subprocess.run(["rm", "-r", nats.dir + "/jetstream"], check=True, timeout=20)
        nats.start()
        until("tickets are made again", 20, lambda: tickets(a, "again") > 0)
        got = shares(wait(a, suite))
        once_each(a, suite, 60)
        assert got["n1"] and got["n2"], got
        nats.kill()
        until("it notices", 15, lambda: value(a, "hlod_cluster_jobs_ready") == 0)
        assert shares(wait(a, submit(a, slow, inputs(6)))) == {"": 6}
    with Server(o) as nats, site(o, nats, n=2) as n:
        n.meet()
        assert shares(wait(n.d[0], submit(n.d[0], blob(n.d[0], model("s", SLOW)), inputs(6)))) == {
            "": 6}
        until("it says so", 10, lambda: "ev=cluster.jobs" in n.d[0].logs())
        assert n.d[0].logs().count("ev=cluster.jobs") == 1

def unreachable(o):
    """a node that takes tickets but cannot be called costs no attempt; jobs it cannot do stay"""
    with Server(o, "-js") as nats, site(o, nats, n=2, each=[[], ["--cluster-address",
                                                                "http://127.0.0.1:9"]]) as n:
        ready(n)
        a = n.d[0]
        suite = submit(a, blob(a, model("slow", SLOW)), inputs(24))
        until("it was called", 15,
              lambda: value(a, "hlod_cluster_attempts_total", '{outcome="failed"}'))
        all = wait(a, suite)
        assert shares(all) == {"": 24} and {j["attempts"] for j in all} == {1}, all
        assert value(a, "hlod_cluster_attempts_total", '{outcome="failed"}') <= 3

# ---- who lies

def an_offer(node, life, id, ack="$JS.ACK.hlod-jobs.cpu.1.1.1.1.1", kind="cpu", **seal):
    return sealed(text(5, text(1, node) + text(2, life) + varint(3 << 3 | 1) +
                       struct.pack("<Q", id) + text(4, kind) + text(5, ack)), **seal)

def liars(o):
    """a node that answers with what is no outcome gets the job once, which then runs at home"""
    with Server(o, "-js") as nats, site(o, nats, n=1) as n, Liar() as liar:
        ready(n)
        a, raw = n.d[0], Raw(nats.port)
        slow = blob(a, model("slow", SLOW))
        home = cluster(a)["nodes"][0]["life"]
        outcome = lambda state, more=b"": text(1, text(2, state) + more)
        for k, answer in enumerate((b"", b"\xff" * 9, text(1, b"\xff"), outcome("cancelled"),
                                    outcome("error"), outcome("\x1b[2J"), text(2, "log"),
                                    outcome("passed")[:-1], b"\0" * (1 << 20))):
            life, liar.answer, seen = f"{k:016x}", answer, len(liar.seen)
            raw.publish(sealed_beat(node="liar", life=life, address=liar.url, kinds=["cpu"]))
            suite = submit(a, slow, inputs(5))
            def called():
                raw.publish(an_offer("liar", life, k), f"hlod.v1.inbox.{home}.offer")
                return len(liar.seen) > seen
            until("it is called", 10, called)
            all = wait(a, suite)
            assert shares(all) == {"": 5} and {j["attempts"] for j in all} == {1}, all
        # What is one counts: who has the secret is believed.
        liar.answer = outcome("passed") + text(2, "a line\n\x1b[31m\n")
        raw.publish(sealed_beat(node="liar", life="ab", address=liar.url, kinds=["cpu"]))
        suite, seen = submit(a, slow, inputs(5)), len(liar.seen)
        def called():
            raw.publish(an_offer("liar", "ab", 99), f"hlod.v1.inbox.{home}.offer")
            return len(liar.seen) > seen
        until("it is called", 10, called)
        all = wait(a, suite)
        its = [j for j in all if j.get("node") == "liar"]
        assert its, all
        log = a.json("GET", f"/v1/jobs/{its[0]['id']}/logs")[1]["text"]
        assert "a line\n?[31m" in log, log
        assert all_passes(liar.seen), liar.seen[:2]
        raw.close()
def all_passes(seen):
    return all(x.startswith("Hlod-Node ") for x in seen)

def tenants(o):
    """blobs and models are the tenant's on other nodes too, and of nobody else"""
    with Server(o, "-js") as nats, Nodes(o, 0, nats.url) as keys:
        file, auth = tenants_tokens(o, keys, a="read,jobs", b="read,jobs", all="admin")
        with site(o, nats, "--tokens", file, n=2) as n:
            for d in n.d:
                until("all are known", 15, lambda: len(cluster(d, **auth["all"])["nodes"]) == 2)
            a, b = n.d
            m = blob(a, model("s", SLOW), auth["a"])
            def away():
                all = wait(a, submit(a, m, inputs(12), auth["a"]), headers=auth["a"])
                return shares(all)["n1"]
            until("others run some", 30, away)
            status = lambda who: b.json("GET", f"/v1/blobs/{m}/info", headers=auth[who])[0]
            assert status("a") == 200 and status("b") == 404
            runs = b.json("GET", "/v1/runs", headers=auth["all"])[1]["runs"]
            assert {x["tenant"] for x in runs} == {"t-a"}, runs

def forged(o):
    """tickets, offers and jobs that do not prove the secret, or are no such message, are refused
    and do nothing"""
    with Server(o, "-js") as nats, site(o, nats, n=2) as n:
        ready(n)
        a, b = n.d
        raw = Raw(nats.port)
        lives = {x["node"]: x["life"] for x in cluster(a)["nodes"]}
        def ticket(home="n0", kind="cpu", **seal):
            return sealed(text(4, text(1, home) + text(2, kind) + text(3, "1.1")), **seal)
        def offer(node="n1", life=None, **more):
            return an_offer(node, life or lives["n1"], 5, **more)
        at = "hlod.v1.tickets.cpu"
        for bad in (b"", b"\xff" * 40, b"x" * 4000, ticket(key="00" * 32), ticket(name="other"),
                    ticket(late_ms=120000), ticket(home="nobody"), ticket(home="../x"),
                    ticket(kind="sim"), offer(), ticket()[:-1]):
            raw.publish(bad, at)
        raw.publish(b"y" * 5000, at)  # longer than the stream takes
        until("none is left", 20, lambda: sum(tickets(d, "refused") for d in n.d) >= 9)
        for k, life in lives.items():
            for bad in (b"", offer(key="00" * 32), offer(node="n9"), offer(life="ff" * 8),
                        offer(ack="hlod.v1.nodes"), offer(kind="a.b"), offer(kind="*"), ticket(),
                        b"z" * 600000):
                for box in "offer", "none", "next.cpu", "setup", "setup.cpu", "x", "next.a.b":
                    raw.publish(bad, f"hlod.v1.inbox.{life}.{box}")
        raw.flush()
        suite = json.dumps({"models": [], "inputs": []}).encode()
        def give(grant, suite=b""):
            status, _, r = b.call("POST", "/hlod.v1.Hlod/RunJob", text(1, grant) + text(2, suite),
                                  {"Content-Type": "application/x-protobuf",
                                   "Accept": "application/json"})
            return status, r
        def grant(to=None, home="n0", suite=b"", **seal):
            return sealed(text(6, varint(1 << 3 | 1) + b"12345678" + text(2, home) +
                               text(3, to or lives["n1"]) + text(4, "default") + text(5, "1.1") +
                               number(6, 1) + text(7, hashlib.sha256(suite).digest())), **seal)
        for g, s in ((b"", b""), (b"\xff", b""), (grant(key="00" * 32), b""),
                     (grant(to="ff" * 8), b""), (grant(late_ms=120000), b""), (ticket(), b""),
                     (grant(), suite)):
            status, r = give(g, s)
            assert status == 401, (status, r)
        status, r = give(grant())  # proved, but no place was offered
        assert status == 503, (status, r)
        got = shares(wait(a, submit(a, blob(a, model("s", SLOW)), inputs(16))))
        assert got["n1"], got
        assert sum(tickets(d, "refused") for d in n.d) >= 9
        raw.close()

SHORT = [spread]
ALL = SHORT + [cancels, in_order, other_device, node_dies, home_dies, drains, nats_wiped,
               unreachable, tenants, forged, liars]

if __name__ == "__main__":
    sys.exit(scenarios("cluster jobs ", SHORT, ALL))
