#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nodes of two versions in one cluster, as while it is upgraded: names, models, forwarded runs,
batch jobs and suites that move, both ways; then one node after the other is started again as the
new version under load. Standard library only.
Usage: mixed.py --hlod BIN --hlo BIN --worker BIN --nats BIN --old DIR [NAME...]"""
import argparse, os, subprocess, sys, threading
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nats import Nodes, Server, agree, cluster, model, name, states, upload, value
from batch import blob, inputs, listed, once_each, ready, shares, submit, wait
from moves import OPTIONS, moved_to, outcomes, some_ended
from forward import run
from harness import Daemon, Results, until

SLOW = "run_ms 150\n"

class Mixed(Nodes):
    """n nodes, of which those in `old` are of the old version; upgrade(k) makes one new"""
    def __init__(self, o, n, old, nats, *options, each=()):
        self.old = set(old)
        super().__init__(o, n, nats.url, *options, shared=True, each=each)
    def program(self, k):
        if k in self.old:
            return self.o.old + "/hlod", self.o.old + "/tests/fake_worker"
        return self.o.hlod, self.o.worker
    def start(self, *args, **more):
        hlod, worker = self.program(len(self.all))
        d = Daemon(hlod, worker, args=list(args), **more)
        self.all.append(d)
        return d
    def restart(self, k):
        hlod, worker = self.program(k)
        self.d[k] = Daemon(hlod, worker, data=self.d[k].dir, args=self.args[k])
        self.d[k].own = True
    def upgrade(self, k):
        self.d[k].stop_keep()
        self.old.discard(k)
        self.restart(k)

SIM = [["--device", "cpu"], ["--device", "sim"]]

def runs(o):
    """names set on one are run on the other, which fetches the model; a run for a device that the
    other has goes there"""
    with Server(o) as nats:
        for old in [0], [1]:
            with Mixed(o, 2, old, nats, each=SIM) as n:
                n.meet()
                for k, d in enumerate(n.d):
                    digest = upload(d, model(f"m{k}"))
                    name(d, f"m{k}", digest)
                for d in n.d:
                    for k in range(2):
                        until("it is known", 20, lambda: run(d, f"m{k}")[0] == 200)
                agree(n.d, {("m0", 1): upload(n.d[0], model("m0")),
                            ("m1", 1): upload(n.d[0], model("m1"))})
                for k, device in (0, "sim"), (1, "cpu"):
                    status, r = run(n.d[k], "m0", device=device)
                    assert status == 200 and r["node"] == f"n{1 - k}", r
                    assert r["outputs"][0]["data"] == [1, 2, 3, 4], r
                for d in n.d:
                    assert all(x["proved"] for x in cluster(d)["nodes"])
                n.d[0].json("DELETE", "/v1/models/m1")
                until("it is removed", 20, lambda: run(n.d[1], "m1")[0] == 404)

def buffers(o):
    """an old node's buffers are its own, as they were; a new one's are known to the new ones"""
    with Server(o) as nats, Mixed(o, 3, [1], nats, "--buffer-bytes",
                                         "1M") as n:
        n.meet()
        def put(d):
            status, r = d.json("POST", "/v1/buffers", {"inputs": [
                {"name": "x", "dtype": "f32", "shape": [1, 4], "data": [1, 2, 3, 4]}]})
            assert status == 200, r
            return r["buffers"][0]["handle"]
        new, old = put(n.d[0]), put(n.d[1])
        want = {(0, new): 200, (1, new): 404, (2, new): 200, (0, old): 404, (1, old): 200,
                (2, old): 404}
        for (k, h), status in want.items():
            got, r = n.d[k].json("GET", f"/v1/buffers/{h}")
            assert got == status, (k, h, r)
        r = n.d[0].json("GET", "/v1/buffers")[1]
        assert {b["handle"] for b in r["buffers"]} == {new, old} and not r["missing"], r

def jobs(o):
    """a suite at a node of each version runs on both"""
    with Server(o, "-js") as nats, Mixed(o, 2, [1], nats, "--job-parallel", "2") as n:
        ready(n)
        for d in n.d:
            suite = submit(d, blob(d, model("slow", SLOW)), inputs(24, stored=d))
            got = shares(wait(d, suite))
            assert len(got) == 2 and min(got.values()) >= 3, got
            once_each(d, suite, 24)

def moves(o):
    """a suite whose home is lost moves to a node of the other version, and back; where the old one
    knows of that"""
    if not o.moves:
        return
    with Server(o, "-js") as nats:
        for old in [0], [1]:
            with Mixed(o, 2, old, nats, *OPTIONS, "--jobs-lease-ms", "1500") as n:
                ready(n)
                a, b = n.d
                for d in n.d:
                    until("it keeps records", 20, lambda: value(
                        d, "hlod_cluster_records_total", '{outcome="ok"}') > 0)
                suite = submit(a, blob(a, model("slow", SLOW)), inputs(24, stored=a))
                told = some_ended(a, suite)
                a.kill()
                assert moved_to([b], suite) is b
                now = outcomes(b, wait(b, suite))
                assert len(now) == 24 and {k: now[k] for k in told} == told
                n.restart(0)
                def told_now():  # UNAVAILABLE until it knows whose it is; then by the other
                    got = {k: n.d[0].json("GET", f"/v1/jobs/{k}/result") for k in now}
                    return {k: r for k, (status, r) in got.items() if status == 200}
                until("it has handed over", 60, lambda: told_now() == now)

def upgrade(o):
    """three nodes with suites and runs, one after the other ended in good order and started as the
    new version: no run fails that a client sends again, each job has one result"""
    with Server(o, "-js") as nats, Mixed(o, 3, [0, 1, 2], nats, *(
            (*OPTIONS, "--jobs-lease-ms", "60000") if o.moves else ())) as n:
        ready(n)
        for d in n.d:
            until("it keeps records", 20, lambda: not o.moves or value(
                d, "hlod_cluster_records_total", '{outcome="ok"}') > 0)
        digest = upload(n.d[0], model("a"))
        name(n.d[0], "a", digest)
        agree(n.d, {("a", 1): digest})
        suites = [(submit(d, blob(d, model("slow", SLOW)), inputs(40, stored=d)), k)
                  for k, d in enumerate(n.d)]
        over, wrong, good = threading.Event(), [], [0]
        def load():
            k = 0
            while not over.is_set():
                k += 1
                try:
                    status, r = run(n.d[k % 3], "a")
                except OSError:
                    continue  # the next node
                except Exception as e:  # a connection that ends
                    if type(e).__module__ != "http.client":
                        wrong.append(e)
                    continue
                if status == 200 and r["outputs"][0]["data"] == [1, 2, 3, 4]:
                    good[0] += 1
                elif status != 503:
                    wrong.append(r)
        t = threading.Thread(target=load)
        t.start()
        try:
            for k in range(3):
                n.upgrade(k)
                for d in n.d:
                    until("all serve", 30, lambda: set(states(d).values()) == {"serving"} and
                          len(states(d)) == 3)
                before = good[0]
                until("runs go on", 30, lambda: good[0] > before + 20)
        finally:
            over.set()
            t.join()
        assert not wrong, wrong[:3]
        for suite, k in suites:
            assert len(wait(n.d[k], suite)) == 40
            all = [outcomes(d, listed(d, suite)) for d in (n.d if o.moves else [n.d[k]])]
            assert all == all[:1] * len(all) and len(all[0]) == 40

ALL = [runs, buffers, jobs, moves, upgrade]

if __name__ == "__main__":
    a, results = argparse.ArgumentParser(), Results()
    for p in ("hlod", "hlo", "worker", "nats", "old"):
        a.add_argument("--" + p, required=True)
    a.add_argument("names", nargs="*")
    o = a.parse_args()
    known = subprocess.run([o.old + "/hlod", "--help"], capture_output=True, text=True, timeout=20)
    o.moves = "--jobs-replicas" in known.stdout
    for s in ALL:
        if not o.names or s.__name__ in o.names:
            results.case("cluster mixed " + s.__name__, s, o)
    sys.exit(results.code())
