#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tenants' quotas and shares as those of the whole cluster: runs, bytes and places of three nodes
together, forwarded runs counted once, nodes that come new or lose NATS, whose batch jobs a free
place gets; what is forged counts for nothing. Standard library only.
Usage: quotas.py --hlod BIN --hlo BIN --worker BIN --nats BIN [--short] [NAME...]"""
import json, os, subprocess, sys, threading, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nats import (Nodes, Raw, Server, agree, cluster, model, name, number, scenarios, sealed, text,
                  tenants_tokens, upload, value)
from batch import blob, inputs, listed, ready, shares, submit, wait
from harness import in_thread, until

RUN = json.dumps({"model": "a", "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                            "data": [1, 2, 3, 4]}]})

def run(d, headers={}, **options):
    body = json.dumps({**json.loads(RUN), "options": options}) if options else RUN
    status, r = d.json("POST", "/v1/run", body, headers)
    assert status == 200 or (status == 429 and r["reason"] == "TENANT_QUOTA"), (status, r)
    return status == 200

def tenant(d, who="default", headers={}):
    all = d.json("GET", "/v1/tenants", headers=headers)[1].get("tenants", [])
    return {k: float(v) for t in all if t["name"] == who for k, v in t.items() if k != "name"}
def left(d, what="runsLeft"):
    return tenant(d).get(what, 0)

def site(o, nats, rules, *options, n=3, beat_ms=500, more="", each=()):
    s = Nodes(o, n, nats.url, "--tenants", rules, *options, shared=True, each=each,
              beat_ms=beat_ms)
    try:
        s.meet()
        digest = upload(s.d[-1], model("a", more))
        name(s.d[-1], "a", digest)
        agree(s.d, {("a", 1): digest})
        for d in s.d:  # each has the model
            until("it runs", 20, lambda: run(d))
    except BaseException as e:
        s.__exit__(type(e))
        raise
    return s

def drain(nodes, refusals=60):
    """runs at all of them at the same time until each was refused so often: (of each, seconds)"""
    got, begun = [0] * len(nodes), time.monotonic()
    def work(k):
        refused = 0
        while refused < refusals:
            if run(nodes[k]):
                got[k] += 1
            else:
                refused += 1
                time.sleep(0.02)
    all = [threading.Thread(target=work, args=(k,)) for k in range(len(nodes))]
    for t in all:
        t.start()
    for t in all:
        t.join()
    return got, time.monotonic() - begun

# ---- runs and bytes a minute

def together(o):
    """three nodes give what one would: a minute's worth, what is refilled, and at worst as much
    again that is owed then; each gives some"""
    with Server(o) as nats, site(o, nats, "*:runs=300") as n:
        until("all is there", 60, lambda: min(left(d) for d in n.d) > 290)
        got, seconds = drain(n.d, 150)
        assert min(got) > 20, got
        assert 240 < sum(got) <= 300 * 2 + 5 * seconds + 3, (got, seconds)
        # All know of it, and of what is owed, if any is.
        until("all know", 20, lambda: max(left(d) for d in n.d) < 150)
        assert value(n.d[0], "hlod_cluster_use_total", '{what="heard"}') > 0
        shown = subprocess.run([o.hlo, "--addr", "%s:%d" % n.d[0].addr, "tenants"], text=True,
                               capture_output=True, timeout=20).stdout
        assert " 300 runs/min, " in shown and " left" in shown, shown

def one_node(o):
    """one node that is asked alone gets all of it, and the others know"""
    with Server(o) as nats, site(o, nats, "*:runs=60:bytes=100000") as n:
        a, b, c = n.d
        until("all is there", 90, lambda: min(left(d) for d in n.d) >= 59)
        total, begun = 0, time.monotonic()
        while total < 60:
            total += run(a)
            assert time.monotonic() - begun < 120, total
        until("they know", 20, lambda: left(b) < 45 and left(c) < 45)
        assert max(left(d, "bytesLeft") for d in (a, b, c)) <= 100000
        # Who starts anew is told what is used up.
        while run(a):
            pass
        n.d[2].stop_keep()
        n.restart(2)
        n.meet()
        until("it is told", 20, lambda: 0 < left(n.d[2]) < 50 or left(n.d[2]) < 0)

def forwarded(o):
    """a run that another node does is counted by the one that was asked, once"""
    sim = [["--device", "cpu"], ["--device", "sim"]]
    with Server(o) as nats, Nodes(o, 2, nats.url, "--tenants", "*:runs=60", shared=True,
                                  each=sim) as n:
        a, b = n.d
        n.meet()
        digest = upload(b, model("a"))
        name(b, "a", digest)
        agree(n.d, {("a", 1): digest})
        until("it runs there", 20, lambda: run(a, device="sim"))
        until("all is there", 90, lambda: left(a) == left(b) == 60)
        nats.kill()  # so each counts its own alone, out of its half
        until("it notices", 15, lambda: left(a) == left(b) == 30)
        for k in range(10):
            assert run(a, device="sim")
        assert tenant(b)["totalJobs"] >= 10 and left(b) == 30 and left(a) < 30
        assert run(b, {"Hlod-Forwarded": "n0"}, device="sim")  # who only says so is counted
        assert left(b) < 30

def without_nats(o):
    """who hears of no other has its part: together they give what one would"""
    with Server(o) as nats, site(o, nats, "*:runs=300") as n:
        until("all is there", 60, lambda: min(left(d) for d in n.d) > 290)
        nats.kill()
        for d in n.d:
            until("it notices", 15, lambda: cluster(d)["state"] == "connecting")
            assert left(d) <= 100, left(d)
        got, seconds = drain(n.d)
        assert max(got) <= 100 + 5 / 3 * seconds + 1 and min(got) >= 90, (got, seconds)
        nats.start()
        n.meet()
        got, seconds = drain(n.d)
        assert sum(got) <= 300 + 5 * seconds + 3, (got, seconds)

# ---- places

def taken(nodes):
    return [tenant(d).get("places", 0) for d in nodes]

def places(o):
    """places are divided by who wants them; one node that is asked alone gets all"""
    with Server(o) as nats, site(o, nats, "*:places=3", "--device-calls", "4",
                                 more="run_ms 1500\n") as n:
        until("parts are known", 20, lambda: [tenant(d).get("placesHere") for d in n.d] == [1] * 3)
        def ask(d):
            return d.json("POST", "/v1/run", RUN)[0]
        at_once = [in_thread(ask, d) for d in n.d for k in range(3)]
        seen = []
        while any(t.is_alive() for t, _ in at_once):
            seen.append(taken(n.d))
            time.sleep(0.05)
        assert [out for _, out in at_once] == [[200]] * 9
        assert max(map(max, seen)) >= 1 and max(map(sum, seen)) <= 5, seen
        until("nothing runs", 20, lambda: sum(taken(n.d)) == 0)
        at_once = [in_thread(ask, n.d[0]) for k in range(12)]
        most = []
        def all_of_them():
            most.append(taken(n.d)[0])
            return most[-1] == 3
        until("it has all", 30, all_of_them)
        for t, out in at_once:
            t.join(60)
            assert out == [200], out
            most.append(taken(n.d)[0])
        assert max(most) <= 3, most

# ---- batch jobs

def jobs(o):
    """a free place is given to the tenant with least for its weight, whichever node took its jobs
    and however many tickets wait before its own"""
    with Server(o, "-js") as nats, Nodes(o, 0, nats.url) as keys:
        file, auth = tenants_tokens(o, keys, a="read,jobs", b="read,jobs", all="admin")
        with Nodes(o, 3, nats.url, "--tokens", file, "--job-parallel", "2", shared=True) as n:
            for d in n.d:
                until("all are known", 15, lambda: len(cluster(d, **auth["all"])["nodes"]) == 3)
            a, b, c = n.d
            def suite(d, who, count):
                m = blob(d, model("s", "run_ms 100\n"), auth[who])
                return submit(d, m, inputs(count), auth[who])
            def by_c(d, s, who):
                return sum(j.get("node") == "n2" for j in listed(d, s, auth[who])
                           if j["state"] in ("running", "passed"))
            first = suite(a, "a", 240)
            until("its jobs run there", 30, lambda: by_c(a, first, "a") >= 4)
            second = suite(b, "b", 60)
            until("the other's run there", 30, lambda: by_c(b, second, "b") >= 8)
            others = [j for j in listed(a, first, auth["a"])
                      if j["state"] in ("queued", "waiting")]
            assert others, "the first had ended before"
            for d, s, who in (a, first, "a"), (b, second, "b"):
                status, r = d.json("DELETE", f"/v1/jobs/{s}", headers=auth[who])
                assert status == 200, r

def jobs_wait(o):
    """batch jobs beyond their tenant's quota wait for it, at home and elsewhere, and still go to
    other nodes then; none is handed about meanwhile"""
    with Server(o, "-js") as nats, Nodes(o, 2, nats.url, "--tenants", "*:runs=60", shared=True,
                                         each=[["--job-parallel", "1"],
                                               ["--job-parallel", "6"]]) as n:
        ready(n)
        a = n.d[0]
        suite = submit(a, blob(a, model("s", "run_ms 100\n")), inputs(70))
        all = wait(a, suite, 120)
        assert {j["attempts"] for j in all} == {1} and shares(all)["n1"], all
        logs = [a.json("GET", f"/v1/jobs/{j['id']}/logs")[1]["text"] for j in all]
        assert any("TENANT_QUOTA" in x or "a minute; the next" in x for x in logs), logs[-1]
        assert not [x for x in logs if "no attempt" in x], [x for x in logs if "no attempt" in x][0]

# ---- who lies

def forged(o):
    """what does not prove the secret, or is no such message, takes nothing from anybody; who has
    it can take ten minutes"""
    with Server(o) as nats, site(o, nats, "*:runs=60", n=2) as n:
        a = n.d[0]
        until("all is there", 90, lambda: left(a) == 60)
        lives = {x["node"]: x["life"] for x in cluster(a)["nodes"]}
        def one(who="default", runs=50, more=b""):
            return text(3, text(1, who) + number(2, runs) + more)
        def use(*tenants, node="n1", life=None, count=1 << 40, **seal):
            return sealed(text(7, text(1, node) + text(2, life or lives["n1"]) +
                               b"".join(tenants or [one()]) + number(4, count)), **seal)
        raw = Raw(nats.port)
        for bad in (use(key="00" * 32), use(name="other"), use(late_ms=120000), use()[:-1],
                    text(7, one()), use(node="n9"), use(life="ff" * 8), use(node="../x"),
                    use(one(), one()), use(one(runs=1 << 62)), use(one(who="a\nb")),
                    use(one(more=number(8, -1))), use(one(more=number(10, -5))),
                    use(*[one(f"t{k:04}") for k in range(257)]), use(count=0), b"\xff" * 60):
            raw.publish(bad)
        raw.flush()
        for d in n.d:
            assert run(d)
        time.sleep(1)
        assert left(a) >= 50, left(a)
        assert value(a, "hlod_cluster_refused_total") >= 12
        raw.publish(use(one(runs=1 << 55)))
        until("it counts", 10, lambda: left(a) < 0)
        assert left(a) >= -600, left(a)
        assert not run(a)
        raw.close()

SHORT = [together]
ALL = SHORT + [one_node, forwarded, without_nats, places, jobs, jobs_wait, forged]

if __name__ == "__main__":
    sys.exit(scenarios("cluster quotas ", SHORT, ALL))
