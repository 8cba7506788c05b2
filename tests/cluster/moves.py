#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suites whose home is lost (--jobs-replicas): they move to a node that keeps what they need, with
one result a job, and are found from any node; homes that die, are cut off while they live, stand
still, and come back; JetStream that is away, loses all, or keeps what is forged.
Standard library only.
Usage: moves.py --hlod BIN --hlo BIN --worker BIN --nats BIN [--short] [NAME...]"""
import contextlib, os, signal, subprocess, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nats import (Nats, Nodes, Raw, Server, free_ports, model, scenarios, sealed, states,
                  tenants_tokens, text, value)
from batch import asked, blob, inputs, listed, ready, once_each, result, submit, wait
from link import Link
from harness import in_thread, until

SLOW = "run_ms 150\n"
OPTIONS = ("--jobs-replicas", "1", "--job-parallel", "2")

def site(o, nats, *options, n=3, lease_ms=1500, each=()):
    return Nodes(o, n, nats.url if nats else "", *OPTIONS, "--jobs-lease-ms", str(lease_ms),
                 *options, shared=True, each=each)
def met(n):
    ready(n)
    for d in n.d:
        until("it keeps records", 15, lambda: value(d, "hlod_cluster_records_total",
                                                     '{outcome="ok"}') > 0)
def outcomes(d, all):
    return {j["id"]: result(d, j["id"]) for j in all}
def moved_to(nodes, suite, lost=()):
    """who says that it took it"""
    def who():
        return [d for d in nodes if d not in lost and f"ev=suite.taken suite={suite} " in d.logs()]
    until("it moves", 30, who)
    return who()[-1]
def ends(d, suite):
    return [x.split("job=")[1].split()[0] for x in d.logs().splitlines()
            if f"ev=batch.job job={suite}." in x]
def some_ended(d, suite, n=6):
    until("some ended", 30, lambda: [j["state"] for j in listed(d, suite)].count("passed") >= n)
    return outcomes(d, [j for j in listed(d, suite) if j["state"] == "passed"])

def home_dies(o):
    """kill -9: its suite moves, is found from each node, and is there when the home is back; what
    was told of ended jobs holds, each job has one result"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        met(n)
        a = n.d[0]
        slow = blob(a, model("slow", SLOW))
        suite = submit(a, slow, inputs(40, stored=a), idempotency_key="k", keep_outputs=True)
        assert int(suite) >= 1 << 52, suite
        assert len(listed(n.d[1], suite)) == 40 and len(listed(n.d[2], suite)) == 40
        told = some_ended(a, suite)
        a.kill()
        new = moved_to(n.d[1:], suite)
        other = [d for d in n.d[1:] if d is not new][0]
        all = wait(other, suite)
        assert len(all) == 40
        now = outcomes(other, all)
        assert {k: now[k] for k in told} == told
        assert now == outcomes(new, all)
        twice = sorted(ends(new, suite) + ends(other, suite))
        assert len(set(twice)) == len(twice) and not set(twice) & set(told), twice
        n.restart(0)
        a = n.d[0]
        until("it hands over", 30, lambda: f"ev=suite.moved suite={suite} " in a.logs())
        assert outcomes(a, listed(a, suite)) == now
        # Where it is now the key still says which suite it was.
        assert submit(new, slow, inputs(40, stored=new), idempotency_key="k",
                      keep_outputs=True) == suite

def moves_on(o):
    """a suite that moves from home to home: the second dies, the third stands still until the
    first, back on its folder, has it again; then all are there: what was told at each time holds,
    each job has one result, and all nodes say the same"""
    with Server(o, "-js") as nats, site(o, nats, "--jobs-replicas", "2") as n:
        met(n)
        slow = blob(n.d[0], model("slow", "run_ms 500\n"))
        suite = submit(n.d[0], slow, inputs(40, stored=n.d[0]))
        told, homes = {}, [n.d[0]]
        def more(d):
            count = len(told) + 3
            def some():
                status, r = d.json("GET", f"/v1/jobs?suite={suite}&limit=1000")
                return status == 200 and [j["state"] for j in r["jobs"]].count("passed") >= count
            until("more ended", 60, some)
            got = outcomes(d, [j for j in listed(d, suite) if j["state"] == "passed"])
            assert {k: got[k] for k in told} == told
            told.update(got)
        more(homes[0])
        homes[0].kill()
        homes.append(moved_to(n.d[1:], suite))
        more(homes[1])
        homes[1].kill()
        homes.append(moved_to([d for d in n.d if d not in homes], suite))
        more(homes[2])
        n.restart(0)
        until("they know each other", 30, lambda: states(n.d[0]).get(
            f"n{n.d.index(homes[2])}") == "serving" and states(homes[2])["n0"] == "serving")
        assert len(told) < 40
        homes[2].p.send_signal(signal.SIGSTOP)
        try:
            moved_to([n.d[0]], suite)
            more(n.d[0])
        finally:
            homes[2].p.send_signal(signal.SIGCONT)
        n.restart(n.d.index(homes[1]))
        now = outcomes(n.d[0], wait(n.d[0], suite, 120))
        assert len(now) == 40 and {k: now[k] for k in told} == told
        for d in n.d:
            until("all say the same", 60, lambda: {
                k: d.json("GET", f"/v1/jobs/{k}/result")[1] for k in now} == now)

def cut_off(o):
    """the home lives, and reaches neither NATS nor is reached: its suite moves; it records nothing
    meanwhile, does not say whose it is, and hands over when it is back: one result each"""
    with Server(o, "-js") as nats:
        port, way = free_ports(2)
        out = free_ports(1)[0]
        inward, outward = Link(way, port), Link(out, nats.port)
        try:
            with site(o, None, each=[["--http", f"127.0.0.1:{port}", "--cluster",
                                      f"nats://127.0.0.1:{out}", "--cluster-address",
                                      f"http://127.0.0.1:{way}"],
                                     ["--cluster", nats.url], ["--cluster", nats.url]]) as n:
                met(n)
                a = n.d[0]
                suite = submit(a, blob(a, model("slow", SLOW)), inputs(40))
                told = some_ended(a, suite)
                inward.part(True)
                outward.part(True)
                cancel, answer = in_thread(a.json, "DELETE", f"/v1/jobs/{suite}")
                new = moved_to(n.d[1:], suite)
                until("it says that it does not know", 20, lambda: a.json(
                    "GET", f"/v1/jobs/{suite}.1")[1].get("code") == "UNAVAILABLE")
                assert a.json("DELETE", f"/v1/jobs/{suite}")[1]["code"] == "UNAVAILABLE"
                before = set(ends(a, suite))
                all = wait(new, suite)
                assert set(ends(a, suite)) == before
                now = outcomes(new, all)
                assert {k: now[k] for k in told} == told and len(now) == 40
                inward.heal()
                outward.heal()
                until("it hands over", 30, lambda: f"ev=suite.moved suite={suite} " in a.logs())
                cancel.join(60) # it could not be recorded before the suite was another's
                assert answer[0][0] == 503, answer
                assert outcomes(a, listed(a, suite)) == now
                assert set(ends(a, suite)) == before
        finally:
            inward.close()
            outward.close()

def stands_still(o):
    """SIGSTOP for longer than the lease: what ran there ends after another node recorded it"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        met(n)
        a = n.d[0]
        suite = submit(a, blob(a, model("slow", "run_ms 400\n")), inputs(24))
        told = some_ended(a, suite, 2)
        a.p.send_signal(signal.SIGSTOP)
        try:
            new = moved_to(n.d[1:], suite)
            all = wait(new, suite)
        finally:
            a.p.send_signal(signal.SIGCONT)
        now = outcomes(new, all)
        assert {k: now[k] for k in told} == told
        until("it hands over", 30, lambda: f"ev=suite.moved suite={suite} " in a.logs())
        assert outcomes(a, listed(a, suite)) == now and len(now) == 24

def asked_elsewhere(o):
    """a job's state, log, result, watch and cancel at nodes that do not have the suite; tenants'
    suites stay theirs; what is no suite is none"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        met(n)
        a, b = n.d[0], n.d[1]
        suite = submit(a, blob(a, model("slow", SLOW)), inputs(12))
        status, _, body = b.call("GET", f"/v1/jobs/{suite}/watch")
        assert status == 200 and body.count(b'"passed"') == 12, body[-300:]
        all = wait(b, suite)
        assert outcomes(b, all) == outcomes(a, all)
        log = b.json("GET", f"/v1/jobs/{suite}.1/logs")[1]
        assert log["ended"] and log == a.json("GET", f"/v1/jobs/{suite}.1/logs")[1]
        long = submit(a, blob(a, model("long", "run_ms 30000\n")), inputs(6))
        until("it runs", 20, lambda: b.json("GET", f"/v1/jobs/{long}.1")[1]["state"] == "running")
        status, r = n.d[2].json("DELETE", f"/v1/jobs/{long}")
        assert status == 200 and r["cancelled"] == 6, r
        wait(b, long, state="cancelled")
        # What another node sent here is not sent on: whose it is is said, not that it is none.
        for path in (f"/v1/jobs/{suite}.1", f"/v1/jobs/{suite}.1/logs", f"/v1/jobs/{suite}/watch",
                     f"/v1/jobs?suite={suite}"):
            status, r = b.json("GET", path, headers={"Hlod-Forwarded": "n2"})
            assert status == 503 and "n0" in r["message"], (path, status, r)
        for none in (1 << 52) + 5, int(suite) + 1, 7:
            for path in f"/v1/jobs/{none}.1", f"/v1/jobs/{none}.1/result", f"/v1/jobs/{none}/watch":
                # In a stream that is new what it lacks may be another node's to put there again.
                until(f"{path} is none", 60, lambda: b.json("GET", path)[0] == 404)
        status, r = b.json("POST", "/v1/peer/blobs", {"home": "n0"})
        assert status == 403, r

def tenants(o):
    """with tokens a suite is its tenant's on every node, also where it moves"""
    with Server(o, "-js") as nats, site(o, nats, n=0) as n:
        file, auth = tenants_tokens(o, n, one="run,jobs,compile,read", two="run,jobs,compile,read")
        n.args = [["--node", f"n{k}", "--cluster-beat-ms", "200", "--cluster", nats.url, *OPTIONS,
                   "--jobs-lease-ms", "1500", "--cluster-secret", n.path("cluster.secret"),
                   "--tokens", file] for k in range(3)]
        for args in n.args:
            n.start(*args)
        for d in n.d:
            until("all are there", 20, lambda: list(
                {x["node"]: x["state"] for x in d.json("GET", "/v1/nodes", headers=auth["one"])[1][
                    "nodes"]}.values()) == ["serving"] * 3)
        a = n.d[0]
        slow = blob(a, model("slow", SLOW), auth["one"])
        def accepted():
            return a.json("POST", "/v1/jobs", {"models": [{"model": slow}], "inputs": inputs(30)},
                          auth["one"])
        until("it is accepted", 20, lambda: accepted()[0] == 200)
        suite = accepted()[1]["suite"]
        for d in n.d:
            assert len(listed(d, suite, auth["one"])) == 30
            assert not listed(d, suite, auth["two"])
            for path in f"/v1/jobs/{suite}.1", f"/v1/jobs/{suite}.1/logs":
                assert asked(d, "GET", path, auth["two"])[0] == 404
            assert asked(d, "DELETE", f"/v1/jobs/{suite}", auth["two"])[0] == 404
        a.kill()
        new = moved_to(n.d[1:], suite)
        for d in n.d[1:]:
            assert len(wait(d, suite, headers=auth["one"])) == 30
            assert asked(d, "GET", f"/v1/jobs/{suite}.1/result", auth["two"])[0] == 404
        r = asked(new, "GET", f"/v1/jobs/{suite}.1/result", auth["one"])[1]
        assert r["state"] == "passed", r

def same_key(o):
    """a key that two nodes have of one client: the suite that is taken over goes on without it; one
    that is used for two requests at a time is one suite, once; with the shortest lease"""
    with Server(o, "-js") as nats, site(o, nats, n=2, lease_ms=1000) as n:
        met(n)
        a, b = n.d
        slow = blob(a, model("slow", SLOW))
        one, two = (submit(d, blob(d, model("slow", SLOW)), inputs(20), idempotency_key="k")
                    for d in (a, b))
        assert one != two
        def ask(key, k):
            return b.json("POST", "/v1/jobs", {"models": [{"model": slow}], "inputs": inputs(1 + k),
                                               "idempotencyKey": key})
        for pair in range(6):
            asked = [in_thread(ask, f"p{pair}", k) for k in range(2)]
            for t, _ in asked:
                t.join(30)
            answers = [got[0] for _, got in asked]
            assert sorted(status for status, _ in answers) == [200, 409], answers
            k = [status for status, _ in answers].index(200)
            status, again = ask(f"p{pair}", k)
            assert status == 200 and again["existed"], again
            assert again["suite"] == answers[k][1]["suite"], (again, answers)
            wait(b, again["suite"])
            once_each(b, again["suite"], 1 + k)
        a.kill()
        assert moved_to([b], one) is b
        assert len(wait(b, one)) == 20 and len(wait(b, two)) == 20
        once_each(b, two, 20)
        assert submit(b, slow, inputs(20), idempotency_key="k") == two

def nats_wiped(o):
    """JetStream loses everything while a suite is under way: its home puts it again, and it moves
    when that dies. While JetStream is away no suite is accepted, and none is ended"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        met(n)
        a = n.d[0]
        slow = blob(a, model("slow", "run_ms 250\n"))
        suite = submit(a, slow, inputs(60))
        told = some_ended(a, suite)
        nats.kill()
        status, r = a.json("POST", "/v1/jobs", {"models": [{"model": slow}], "inputs": inputs(1)})
        assert status == 503, (status, r)
        subprocess.run(["rm", "-r", nats.dir + "/jetstream"], check=True, timeout=20)
        nats.start()
        until("it is put again", 30, lambda: f"ev=suite.again suite={suite} why=\"JetStream had "
              in a.logs())
        a.kill()
        new = moved_to(n.d[1:], suite)
        all = wait(new, suite, 90)
        now = outcomes(new, all)
        assert {k: now[k] for k in told} == told and len(now) == 60

def wipe(nats):
    nats.kill()
    subprocess.run(["rm", "-r", nats.dir + "/jetstream"], check=True, timeout=20)
    nats.start()
def never_none(d, suite, n):
    """asked until it answers: the whole list, or that it cannot be known now; never that there is
    no such suite, or fewer jobs"""
    def whole():
        status, r = d.json("GET", f"/v1/jobs?suite={suite}&limit=1000")
        one, job = d.json("GET", f"/v1/jobs/{suite}.1/result")
        assert status in (200, 503) and one in (200, 503), (status, r, one, job)
        assert status == 503 or len(r.get("jobs", [])) == n, r
        return status == one == 200
    until("it is known", 60, whole)
    return outcomes(d, listed(d, suite))

def ended_and_wiped(o):
    """JetStream loses all after suites ended, one of them where it moved to: each node says how
    they ended, or that it cannot know now, and the node that took it has the results itself"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        met(n)
        a = n.d[0]
        first = submit(a, blob(a, model("slow", SLOW)), inputs(4))
        before = outcomes(a, wait(a, first))
        suite = submit(a, blob(a, model("slow", SLOW)), inputs(20))
        some_ended(a, suite, 2)
        a.kill()
        own = ends(a, suite)
        new = moved_to(n.d[1:], suite)
        now = outcomes(new, wait(new, suite))
        wipe(nats)
        n.restart(0)
        for d in n.d:
            assert never_none(d, suite, 20) == now
            assert never_none(d, first, 4) == before
        a = n.d[0]
        until("it has the results itself", 60,
              lambda: f"ev=suite.copied suite={suite} " in a.logs())
        assert ends(a, suite) == own
        new.kill()
        nats.kill()
        assert outcomes(a, listed(a, suite)) == now and len(now) == 20
        assert a.json("GET", f"/v1/jobs/{suite}.1/logs")[1]["ended"]

def purge(nats, suite):
    """its head goes, as ten minutes after its end"""
    raw = Raw(nats.port)
    raw.publish(b'{"filter":"hlod.v1.suites.head.%s"}' % suite.encode(),
                "$JS.API.STREAM.PURGE.hlod-suites")
    raw.flush()
    raw.close()
def forgotten(o):
    """a home that handed a suite over is away until nobody's record says whose it is: it neither
    begins it nor puts it again, whether suites still move or not, says who had it last, and has the
    results once that node is back"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        met(n)
        a = n.d[0]
        names = [{"model": blob(a, model("short", SLOW))},
                 {"model": blob(a, model("long", "run_ms 9000\n"))}]
        status, r = a.json("POST", "/v1/jobs", {"models": names, "inputs": inputs(2)})
        assert status == 200, r
        suite = r["suite"]
        told = some_ended(a, suite, 2)
        a.p.send_signal(signal.SIGSTOP)
        try:
            new = moved_to(n.d[1:], suite)
        finally:
            a.p.send_signal(signal.SIGCONT)
        until("it hands over", 30, lambda: f"ev=suite.moved suite={suite} " in a.logs())
        until("it is in no list of all", 20, lambda: not a.json("GET", "/v1/jobs")[1].get("jobs"))
        assert f"ev=suite.copied suite={suite} " not in a.logs(), "it ended too early to tell"
        assert len(listed(a, suite)) == 4
        a.kill()
        own = ends(a, suite)
        now = outcomes(new, wait(new, suite))
        assert {k: now[k] for k in told} == told and len(now) == 4
        new.kill()
        purge(nats, suite)

        def waits(a, why):
            for path in f"/v1/jobs/{suite}.4", f"/v1/jobs?suite={suite}", f"/v1/jobs/{suite}/watch":
                status, r = a.json("GET", path)
                assert status == 503 and why in r["message"], (path, status, r)
            status, r = a.json("DELETE", f"/v1/jobs/{suite}")
            assert status == 503 and why in r["message"], (status, r)
            assert ends(a, suite) == own and f"ev=suite.again suite={suite}" not in a.logs()
            assert {k: result(a, k) for k in told} == told
            assert not [j for j in a.json("GET", "/v1/jobs")[1].get("jobs", [])
                        if j["suite"] == suite]
        n.restart(0)
        a = n.d[0]
        until("it knows who had it", 60, lambda: "is lost" in a.json(
            "GET", f"/v1/jobs/{suite}.4")[1].get("message", ""))
        m = blob(a, model("m"))
        def accepted():
            return a.json("POST", "/v1/jobs", {"models": [{"model": m}], "inputs": inputs(1)})
        got = []
        def taken():
            got[:] = accepted()
            return got[0] == 200
        until("another one is accepted", 60, taken)
        wait(a, got[1]["suite"])
        waits(a, "which had suite")
        # Behind the last page there is nothing, as the rows say.
        page = f"/v1/jobs?suite={suite}&page_token={suite}.4"
        status, r = a.json("GET", page)
        assert status == 200 and not r.get("jobs"), (status, r)
        a.kill()
        args = n.args[0]
        n.args[0] = [*args, "--jobs-replicas", "0"]
        n.restart(0)
        a = n.d[0]
        n.args[0] = args
        m = blob(a, model("m"))
        wait(a, submit(a, m, inputs(1)))
        waits(a, "cannot be looked at")
        a.kill()
        n.restart(0)
        a = n.d[0]
        n.restart(n.d.index(new))
        assert never_none(a, suite, 4) == now
        assert ends(a, suite) == own
        # A node without its rows cannot know of a page where it cannot ask.
        third = [d for d in n.d[1:] if f"suite={suite} " not in d.logs()][0]
        nats.kill()
        assert third.json("GET", page)[0] == 503
        assert a.json("GET", page)[0] == 200

def three_servers(o):
    """NATS as a cluster of three, each of which keeps all (--cluster-replicas 3): one is killed
    under load, then the home of a suite, too: nothing is lost, and what was ended stays so"""
    ports, routes = free_ports(3), free_ports(3)
    ways = ",".join(f"nats://127.0.0.1:{p}" for p in routes)
    with contextlib.ExitStack() as stack:
        servers = []
        for k in range(3):
            servers.append(Nats(o.nats, ports[k], "-js", "-n", f"s{k}", "-cluster_name", "three",
                                "-cluster", f"nats://127.0.0.1:{routes[k]}", "-routes", ways))
            stack.callback(servers[k].close)
        order = lambda k: ",".join(servers[(k + i) % 3].url for i in range(3))
        n = stack.enter_context(site(o, None, "--cluster-replicas", "3", lease_ms=8000, each=[
            ["--cluster", order(k)] for k in range(3)]))
        until("all are ready", 60, lambda: all(
            value(d, "hlod_cluster_jobs_ready") == 1 and
            value(d, "hlod_cluster_records_total", '{outcome="ok"}') > 0 for d in n.d))
        a = n.d[0]
        slow = blob(a, model("slow", "run_ms 200\n"))
        suite = submit(a, slow, inputs(60))
        told = some_ended(a, suite)
        servers[0].kill()  # which n0 uses, and may lead
        until("n0 is at another one", 30, lambda: value(a, "hlod_cluster_connects_total") >= 2)
        until("more end", 40, lambda: [j["state"] for j in listed(a, suite)].count("passed")
              > len(told) + 4)
        told = some_ended(a, suite)
        a.kill()
        new = moved_to(n.d[1:], suite)
        all_jobs = wait(new, suite, 90)
        now = outcomes(new, all_jobs)
        assert {k: now[k] for k in told} == told and len(now) == 60
        assert "ev=suite.again" not in new.logs()

def nobody_keeps(o):
    """where too few nodes are there a suite is not accepted, and says why; it is once they are"""
    with Server(o, "-js") as nats, site(o, nats, n=1) as n:
        until("it keeps records", 15, lambda: value(n.d[0], "hlod_cluster_records_total",
                                                     '{outcome="ok"}') > 0)
        a = n.d[0]
        m = blob(a, model("m"))
        status, r = a.json("POST", "/v1/jobs", {"models": [{"model": m}], "inputs": inputs(1)})
        assert status == 503 and "0 of 1 nodes" in r["message"], (status, r)
        assert not a.json("GET", "/v1/jobs")[1].get("jobs")
        b = n.start("--node", "n1", "--cluster-beat-ms", "200", "--cluster", nats.url, *OPTIONS,
                "--cluster-secret", n.path("cluster.secret"))
        for d in a, b:
            until("they know each other", 15,
                  lambda: list(states(d).values()) == ["serving", "serving"])
        wait(a, submit(a, m, inputs(3)))

def forged(o):
    """what others put where records are is nobody's: no suite comes of it, and a result in a job's
    place does not hold its own up"""
    with Server(o, "-js") as nats, site(o, nats) as n:
        met(n)
        a, raw = n.d[0], Raw(nats.port)
        suite = submit(a, blob(a, model("slow", SLOW)), inputs(30))
        for k, bad in enumerate((b"", b"x", b"\xff" * 99, sealed(text(1, "n1")),
                                 text(30, b"\n\2n1"))):
            raw.publish(bad, f"hlod.v1.suites.head.{(1 << 52) + k}")
            raw.publish(bad, f"hlod.v1.suites.result.{suite}.{30 - k}")
            raw.publish(bad, f"hlod.v1.suites.result.{suite}.{k * 1000 + 77}")
        raw.publish(b"x", "hlod.v1.suites.head.zz")
        raw.publish(b"x", f"hlod.v1.suites.result.{suite}.zz")
        raw.publish(b"x", f"hlod.v1.suites.result.{suite}.a$b")
        raw.publish(b"x", "hlod.v1.suites.head.a$b")
        raw.flush()
        raw.close()
        some_ended(a, suite)
        a.kill()
        new = moved_to(n.d[1:], suite)
        all = wait(new, suite)
        assert len(outcomes(new, all)) == 30
        assert value(new, "hlod_cluster_records_total", '{outcome="bad"}') > 0
        for k in range(5):
            assert new.json("GET", f"/v1/jobs/{(1 << 52) + k}.1")[0] in (404, 503)

def full(o):
    """as many suites as their list takes: it is read, whole, and no more are accepted"""
    with Server(o, "-js") as nats, site(o, nats, n=2) as n:
        met(n)
        a, raw = n.d[0], Raw(nats.port)
        m = blob(a, model("m"))
        wait(a, submit(a, m, inputs(1)))
        for k in range(8000):
            raw.publish(b"x", f"hlod.v1.suites.head.{(1 << 52) + k}")
            if k % 500 == 499:
                raw.flush()
        raw.close()
        got = []
        def refused():
            got[:] = a.json("POST", "/v1/jobs", {"models": [{"model": m}], "inputs": inputs(1)})
            return got[0] not in (200, 503)  # 503: a node that was held up is taken for lost
        until("it is refused", 60, refused)
        assert got[0] == 429 and got[1]["message"].startswith("8000 suites"), got

SHORT = [home_dies]
ALL = SHORT + [forged, cut_off, stands_still, asked_elsewhere, tenants, same_key, nats_wiped,
               ended_and_wiped, forgotten,
               nobody_keeps, full]

if __name__ == "__main__":
    # Those that take their time, with `make soak-cluster` alone.
    LONG = [three_servers, moves_on]
    asked_for = {s.__name__ for s in LONG} & set(sys.argv)
    sys.exit(scenarios("cluster moves ", SHORT, LONG if asked_for else ALL))
