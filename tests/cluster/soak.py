#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three nodes, one NATS and a mixed load, while anything dies, hangs or is cut off: nodes and their
workers by kill -9, NATS (once with its data gone), nodes stopped for seconds, a node's way to
NATS and the others' way to it broken or silent. Clients run models by name on all nodes, by
device where only others have it, with short deadlines; names are set, models pulled and batch
jobs submitted meanwhile, to each node, which others run, and, with --replicas, take where it is
lost. Every answer is right, or UNAVAILABLE, CANCELLED or DEADLINE_EXCEEDED; what was
acknowledged holds on all nodes in the end, each job with one result; nothing is left behind:
processes, and of n0, which is never killed, descriptors and memory. Real workers. Needs numpy,
grpcio (sched/soak.py).
Usage: soak.py --hlod BIN --worker BIN --nats BIN [--n EVENTS] [--clients N] [--seed N]
               [--replicas 0|1]"""
import argparse, base64, collections, contextlib, http.client, json, os, random, shutil, signal, sys
import tempfile, threading, time, traceback
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "sched"), HERE]
# of sched, and first: numpy wants the library's `secrets`, not that of tests/fleet
from soak import FAILURES, children, descriptors, nothing_is_left, quiet, rss_mb
from nats import Nodes, Server, cluster, free_ports, name, names, states
from batch import floats, listed, once_each, result, shares
from link import Link
from common import secret
from harness import no_complaint, until
from sim import program

DEVICES = ["cpu", "sim:latency_us=2000", "cpu,sim:latency_us=2000"]
JOBS, SUITE = 10, 10     # jobs for each event, of a suite
STABLE, KNOWN_S = 4, 20  # names that are there from the start; how long a new one may need
BROKEN = (ConnectionError, http.client.HTTPException)

class Site3(Nodes):
    """the nodes, each behind a link that others call it by, and with one of its own to NATS"""
    def __init__(self, o, nats):
        at, ways, self.ups = free_ports(3), free_ports(6), []
        self.inward = [Link(ways[k], at[k]) for k in range(3)]
        self.outward = [Link(ways[3 + k], nats.port) for k in range(3)]
        self.gone = set()  # workers of daemons that were killed
        peers = [",".join(f"http://127.0.0.1:{ways[p]}" for p in range(3) if p != k)
                 for k in range(3)]
        self.keys = tempfile.mkdtemp(prefix="hlod-soak-")
        key = secret(self.keys, "cache.key", "6f" * 32)
        super().__init__(o, 3, "", "--max-queue", "6", "--idle-s", "5", "--compile-rate", "0",
                         "--job-parallel", "2", "--tenants", "*:runs=100000000:places=1000",
                         "--cache-key", key, "--cache-remote-wait-ms", "3000",
                         "--jobs-replicas", str(o.replicas), "--jobs-lease-ms", "1500",
                         shared=True, each=[
            ["--device", DEVICES[k], "--http", f"127.0.0.1:{at[k]}", "--cache-remote", peers[k],
             "--cluster", f"nats://127.0.0.1:{ways[3 + k]}",
             "--cluster-address", f"http://127.0.0.1:{ways[k]}"] for k in range(3)])
        self.life = [0, 0, 0]  # counts the ends of each
    def kill(self, k):
        self.gone |= set(children(self.d[k]))
        self.life[k] += 1
        self.d[k].kill()
    def __exit__(self, *error):
        super().__exit__(*error)
        for x in self.inward + self.outward:
            x.close()
        shutil.rmtree(self.keys)

# ---- clients

class Client(threading.Thread):
    def __init__(self, world, k):
        super().__init__()
        self.w, self.rng = world, random.Random(f"{world.seed} {k}")
        self.seen, self.trouble = collections.Counter(), []

    def ask(self, what, k, model, adds, late=False, **options):
        """a run on node k, whose answer must be by one of `adds`, or a failure that may be"""
        w, life = self.w, self.w.n.life[k]
        body = {"model": model, "options": options,
                "inputs": [{"name": "x", "dtype": "f32", "shape": [4], "data": [0, 1, 2, 3]}]}
        try:
            status, r = w.n.d[k].json("POST", "/v1/run", body)
        except BROKEN as e:
            if w.n.life[k] == life and k == 0:
                raise
            self.seen[f"{what} broken"] += 1
            return None
        if status == 200:
            got = r["outputs"][0]["data"]
            assert got in [[x + a for x in range(4)] for a in adds()], (what, k, model, got)
            self.seen[f"{what} " + ("forwarded" if r.get("node") else "OK")] += 1
            return True
        if late and r.get("reason") == "MODEL_NOT_FOUND":
            self.seen[f"{what} not yet"] += 1
            return False
        assert r.get("code") in FAILURES, (what, k, model, options, status, r)
        self.seen[f"{what} {r['code']}"] += 1
        return None

    def stable(self, **options):
        a = self.rng.randrange(1, STABLE + 1)
        self.ask("named", self.rng.randrange(3), f"s{a}", lambda: [a], **options)
    def device(self):
        self.stable(device=self.rng.choice(["sim", "cpu"]))
    def deadline(self):
        self.stable(timeoutMs=self.rng.randrange(1, 30), device=self.rng.choice(["", "sim"]))
    def latest(self):
        self.ask("latest", self.rng.randrange(3), "live", lambda: list(self.w.adds))
    def pulled(self):
        """a model that one node has been given by another"""
        with self.w.lock:
            some = list(self.w.pulls.items())
        if some:
            model, (add, since) = self.rng.choice(some)
            self.ask("pulled", self.rng.randrange(3), model, lambda: [add],
                     late=time.monotonic() - since < KNOWN_S or self.w.parted)
    def listed(self):
        with contextlib.suppress(*BROKEN):
            for path in "/metrics", "/v1/nodes", "/readyz":
                self.w.n.d[self.rng.randrange(3)].call("GET", path)
    def leave(self):
        with contextlib.suppress(*BROKEN):
            c = self.w.n.d[self.rng.randrange(3)].connect(30)
            c.request("POST", "/v1/run", json.dumps(
                {"model": "s1", "options": {"device": "sim"},
                 "inputs": [{"name": "x", "dtype": "f32", "shape": [4], "data": [0] * 4}]}))
            time.sleep(self.rng.random() * 0.01)
            c.close()

    def run(self):
        acts = ([self.stable] * 5 + [self.device] * 4 + [self.latest] * 2 + [self.pulled] * 2 +
                [self.deadline, self.listed, self.leave])
        while not self.w.stop.is_set():
            act = self.rng.choice(acts)
            try:
                act()
            except Exception as e:
                self.trouble.append(f"{act.__name__}: {e!r}")
                time.sleep(0.1)

class Setter(Client):
    """sets names: the next version of `live`, and names of models that nobody else has"""
    def run(self):
        count = 0
        while not self.w.stop.wait(0.2):
            count += 1
            try:
                self.live(count) if count % 2 else self.pull(count)
            except BROKEN:
                self.seen["set broken"] += 1
            except Exception as e:
                self.trouble.append(f"set: {e!r}")
    def set(self, what, add, version):
        """the digest once it is acknowledged, else None"""
        d = self.w.n.d[self.rng.randrange(3)]
        status, r = d.json("POST", "/v1/executables", program(add), {"Content-Type": "text/x-hlo"})
        if status == 200:
            digest = r["sourceDigest"]
            status, r = d.json("POST", "/v1/models", {"name": what, "model": digest,
                                                      "version": version})
            if status == 200:
                self.seen["set OK"] += 1
                return digest
        assert r.get("code") in FAILURES, (what, status, r)
        self.seen[f"set {r['code']}"] += 1
        return None
    def live(self, count):
        add = 5 + count % 40
        self.w.adds.add(add)  # from now on it may be seen
        digest = self.set("live", add, count)
        if digest:
            self.w.kept["live", count] = digest
    def pull(self, count):
        what, add = f"p{count}", 100 + count
        digest = self.set(what, add, 1)
        if digest:
            self.w.kept[what, 1] = digest
            with self.w.lock:
                self.w.pulls[what] = (add, time.monotonic())

class Submitter(Client):
    """suites of jobs, to each node in turn, until there are so many"""
    def __init__(self, world, k, jobs):
        super().__init__(world, k)
        self.jobs, self.suites = jobs, []  # (node, suite)
    def run(self):
        k = 0
        while self.jobs > 0 and not self.w.stop.is_set():
            k += 1
            try:
                if self.submit(k % 3, f"soak-{k}"):
                    self.jobs -= SUITE
                self.w.stop.wait(0.8)
            except Exception as e:
                self.trouble.append(f"submit: {e!r}")
    def submit(self, k, key):
        """True: it is acknowledged; sent again until somebody says so"""
        device = self.rng.choice(["", "sim", "cpu"])
        v = self.rng.randrange(1000)
        def one(i):
            t = lambda name, x: {"name": name, "dtype": "f32", "shape": [4],
                                 "raw": base64.b64encode(floats(*[x] * 4)).decode()}
            return {"name": str(i), "inputs": [t("x", v + i)], "expect": [t("", v + i + 3)]}
        for _ in range(60):
            try:
                d = self.w.n.d[k]
                status, r = d.json("PUT", "/v1/blobs", program(3))
                if status == 200:
                    status, r = d.json("POST", "/v1/jobs", {
                        "models": [{"model": r["digest"]}],
                        "inputs": [one(i) for i in range(SUITE)],
                        "targets": [{"device": device}] if device else [], "repeat": 100,
                        "idempotency_key": key, "retry": {"max_attempts": 9, "backoff_ms": 100}})
                if status == 200:
                    self.seen["suite OK"] += 1
                    self.suites.append((k, r["suite"]))
                    return True
                assert r.get("code") in FAILURES, r
            except BROKEN:
                pass
            self.seen["suite again"] += 1
            if self.w.stop.wait(0.3):
                return False
        raise AssertionError(f"node {k} takes no suite")
    def all_ended(self):
        """each acknowledged job has one result, the right one or why there is none"""
        total = collections.Counter()
        for k, suite in self.suites:
            d = self.w.n.d[k]
            def ended():
                status, r = d.json("GET", f"/v1/jobs?suite={suite}&limit=1000")
                assert status == 200 or r["code"] == "UNAVAILABLE", r
                return status == 200 and all(j.get("finished") for j in r["jobs"])
            until(f"suite {suite} of n{k} ends", 120, ended)
            jobs = listed(d, suite)
            assert len(jobs) == SUITE, jobs
            once_each(d, suite, SUITE, killed=True)
            for j in jobs:
                assert j["state"] == "passed" or j["error"]["code"] in FAILURES, j
                r = result(d, j["id"])
                assert r["state"] == j["state"], (j, r)
                total["jobs " + j["state"]] += 1
            total.update({f"jobs by {x or 'their home'}": c for x, c in shares(jobs).items()})
        self.seen += total
        return total

class World:
    def __init__(self, n, nats, seed):
        self.n, self.nats, self.seed, self.stop = n, nats, seed, threading.Event()
        self.lock, self.adds, self.pulls, self.kept = threading.Lock(), {5}, {}, {}
        self.parted = False
        for a in range(1, STABLE + 1):
            self.put(f"s{a}", a)
        self.put("live", 5)
        for d in n.d:
            until("the names are known", 20, lambda: set(self.kept) <= set(names(d)))
            for what, _ in self.kept:
                until("it runs", 20, lambda: self.run(d, what)[0] == 200)
        self.before, self.processes = descriptors(n.d[0])[0], len(children(n.d[0]))
        self.small = rss_mb(n.d[0])
    def put(self, what, add):
        d = self.n.d[1]
        status, r = d.json("POST", "/v1/executables", program(add), {"Content-Type": "text/x-hlo"})
        assert status == 200, r
        name(d, what, r["sourceDigest"], 1)
        self.kept[what, 1] = r["sourceDigest"]
    def run(self, d, what):
        return d.json("POST", "/v1/run", {"model": what, "inputs": [
            {"name": "x", "dtype": "f32", "shape": [4], "data": [0, 1, 2, 3]}]})

# ---- what happens

def a_node(w, rng):
    k = rng.randrange(1, 3)
    w.n.kill(k)
    time.sleep(rng.random() * 1.5)
    w.n.restart(k)
def a_worker(w, rng):
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(rng.choice(children(w.n.d[rng.randrange(3)])), signal.SIGKILL)
def nats(w, rng, wiped=False):
    w.nats.kill()
    if wiped:
        shutil.rmtree(w.nats.dir)
        os.mkdir(w.nats.dir)
    time.sleep(rng.random() * 2)
    w.nats.start()
def nats_wiped(w, rng):
    nats(w, rng, True)
def hangs(w, rng):
    p = w.n.d[rng.randrange(3)].p
    p.send_signal(signal.SIGSTOP)
    time.sleep(rng.random() * 2)
    p.send_signal(signal.SIGCONT)
def partition(w, rng):
    k, how = rng.randrange(3), rng.randrange(3)
    links = [x[k] for i, x in enumerate((w.n.inward, w.n.outward)) if how != i]
    silent, w.parted = rng.random() < 0.5, True
    for x in links:
        x.part(silent)
    time.sleep(rng.random() * 3)
    for x in links:
        x.heal()
EVENTS = [a_node] * 3 + [a_worker] * 4 + [nats] * 2 + [hangs, partition, partition]

def happen(w, n, rng):
    seen = collections.Counter()
    for k in range(n):
        time.sleep(0.3 + rng.random())
        event = nats_wiped if k == n // 2 else rng.choice(EVENTS)
        seen[event.__name__] += 1
        event(w, rng)
        w.parted = False
        dead = [x for x in w.n.d if x.p.poll() is not None]
        assert not dead, f"{event.__name__}: a daemon died\n" + dead[0].logs()[-3000:]
    return seen

# ---- the end

def everything_holds(w):
    """what was acknowledged is known on all nodes, and each runs it"""
    for d in w.n.d:
        until("quiet", 40, lambda: quiet(d))
        until("all nodes serve", 20, lambda: list(states(d).values()) == ["serving"] * 3)
    sums = lambda: [{x["node"]: x.get("namesSum") for x in cluster(d)["nodes"]} for d in w.n.d]
    until("all nodes know the same names", 60,
          lambda: len({v for x in sums() for v in x.values()}) == 1)
    for d in w.n.d:
        known = names(d)
        lost = {k: v for k, v in w.kept.items() if known.get(k) != v}
        assert not lost, f"acknowledged, and lost: {lost}"
    last = max(v for what, v in w.kept if what == "live")
    for d in w.n.d:
        for what, (add, _) in [*w.pulls.items(), (f"live:{last}", (5 + last % 40, 0))]:
            status, r = w.run(d, what)
            assert status == 200 and r["outputs"][0]["data"] == [x + add for x in range(4)], (
                what, status, r)

def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False

def left(w):
    until("the workers of killed nodes end", 20, lambda: not [p for p in w.n.gone if alive(p)])
    for d in w.n.d[1:]:
        d.stop_keep()
    n0 = w.n.d[0]
    slack = collections.Counter({"socket:[N]": 8})  # kept connections to peers that ended
    nothing_is_left(n0, w.before + slack, w.processes, keep_bytes=8 * (64 << 20))
    most = 400 if "address" in n0.hlod else 60  # MB; AddressSanitizer keeps 256 of what was freed
    assert rss_mb(n0) < w.small + most, f"n0 grew from {w.small:.0f} MB to {rss_mb(n0):.0f} MB"
    return rss_mb(n0)

def soak(o):
    bad, rng = [], random.Random(o.seed)
    with Server(o, "-js") as server, Site3(o, server) as n:
        n.meet()
        w = World(n, server, o.seed)
        jobs = Submitter(w, "jobs", JOBS * o.n)
        clients = [Client(w, k) for k in range(o.clients)] + [Setter(w, "setter"), jobs]
        for c in clients:
            c.start()
        try:
            events = happen(w, o.n, rng)
            jobs.join(120)
        finally:
            w.stop.set()
            for c in clients:
                c.join(90)
        bad += [t for c in clients for t in c.trouble]
        ran = jobs.all_ended()
        total = sum((c.seen for c in clients), collections.Counter())
        print("  " + ", ".join(f"{events[k]} {k}" for k in sorted(events)))
        print("  " + ", ".join(f"{total[k]} {k}" for k in sorted(total)))
        everything_holds(w)
        large = left(w)
        print(f"  {len(w.kept)} names; n0 {w.small:.0f} MB at the start, {large:.0f} at the end")
        moved = sum(x.logs().count("ev=suite.taken") for x in n.d)
        print(f"  {moved} times a suite moved, as the logs of the last processes say")
        assert ran["jobs passed"] > 0.9 * JOBS * o.n // SUITE * SUITE, ran
        assert sum(ran[f"jobs by n{k}"] for k in range(3)), ran
        assert total["named OK"] and total["named forwarded"] and total["set OK"], total
        if bad:
            for d in n.d:
                no_complaint(d)
    return bad

def main():
    a = argparse.ArgumentParser()
    for p in "hlod", "worker", "nats":
        a.add_argument("--" + p, required=True)
    a.add_argument("--n", type=int, default=50)
    a.add_argument("--clients", type=int, default=8)
    a.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    a.add_argument("--replicas", type=int)
    o = a.parse_args()
    if o.replicas is None:
        o.replicas = o.seed % 2  # half of the time each
    print(f"soak-cluster: seed {o.seed}, {o.n} events, {o.clients} clients, jobs kept by "
          f"{o.replicas} more", flush=True)
    began = time.monotonic()
    try:
        bad = soak(o)
    except (Exception, SystemExit):
        bad = [traceback.format_exc()[-6000:]]
    for t, n in collections.Counter(bad).most_common(20):
        print(f"  {n} x {t}")
    took = time.monotonic() - began
    print(f"{'FAIL' if bad else 'PASS'} soak-cluster ({took:.0f} s)", flush=True)
    return 1 if bad else 0

if __name__ == "__main__":
    sys.exit(main())
