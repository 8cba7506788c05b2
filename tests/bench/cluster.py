#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What several nodes gain and what they cost each other. Clusters of one, two and three nodes over
one NATS, each node with a simulated device whose runs take a fixed time, so that a machine of two
cores can show how they scale; clients by `hlo bench`, some for each node, or all at one node that
sends on what it has no place for. Then what a forwarded run takes longer than the same run asked
for where it is done (one client, no service time); 1,000 connections held on three nodes, with one
run on each at once; and the processor time of a node and of NATS for each message, from which the
last table reckons clusters that are not here. All ways take turns in each round, whose order
changes; figures are medians over rounds, ratios medians of the rounds' ratios.
Usage: cluster.py BUILD [--rounds N] [--seconds S] [--service-us US] [--runs N] [--connections N]
[--strict]
--strict: status 1 where three nodes do less than 2.7 times what one does, a forwarded run takes
0.5 ms more at the median, or a connection is lost."""
import argparse, contextlib, json, os, selectors, socket, statistics, subprocess, sys
import threading, time
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "cluster")]
from nats import Nodes, Raw, Server, cluster, sealed_beat, states, value
from harness import until
from serve import ADD, rss_kb
from traces import processor_s

CLIENTS, PER_S = 8, 400  # of a node; messages a second, below what a node takes (bus.c)

def started(o, nats, stack, label, n, device, *options, each=()):
    """a cluster of its own on that NATS, whose nodes all know the model m"""
    c = stack.enter_context(Nodes(o, n, nats.url, "--cluster-name", label, *options, shared=True,
                                  each=each or [["--device", device]] * n, beat_ms=2000))
    c.meet()
    model = c.path("m.hlo")
    with open(model, "w") as f:
        f.write(ADD.format(n=4))
    subprocess.run([o.hlo, "--addr", "%s:%d" % c.d[0].addr, "models", "set", "m", model],
                   check=True, stdout=subprocess.DEVNULL, timeout=60)
    for d in c.d:
        until("the model is known", 30, lambda: Door(d).run()[0] == 200)
    return c

class Door:
    """a kept connection to a node, and the bytes of a run of m"""
    def __init__(self, d, device=""):
        self.s = socket.create_connection(d.addr, timeout=60)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = json.dumps({"model": "m", "options": {"device": device} if device else {},
                           "inputs": [{"name": "x", "dtype": "f32", "shape": [4],
                                       "data": [0, 1, 2, 3]}]})
        self.text = (f"POST /v1/run HTTP/1.1\r\nHost: localhost\r\n"
                     f"Content-Type: application/json\r\nAccept: application/json\r\n"
                     f"Content-Length: {len(body)}\r\n\r\n{body}").encode()
    def ask(self):
        self.s.sendall(self.text)
    def answer(self):
        got, size = b"", None
        while size is None or len(got) < size:
            more = self.s.recv(65536)
            assert more, "the connection was closed"
            got += more
            head = got.find(b"\r\n\r\n")
            if size is None and head >= 0:
                at = got.lower().index(b"content-length:") + 15
                size = head + 4 + int(got[at:got.index(b"\r", at)])
        return int(got.split(b" ", 2)[1]), got[head + 4:]
    def run(self):
        self.ask()
        return self.answer()
    def close(self):
        self.s.close()

def right(answer):
    status, body = answer
    assert status == 200 and json.loads(body)["outputs"][0]["data"] == [1, 2, 3, 4], answer
    return json.loads(body)

# ---- how they scale

def rate(o, doors, clients):
    """requests/s and p50 of `hlo bench` at each of these nodes at once"""
    all = [subprocess.Popen([o.hlo, "bench", "m", "--addr", "%s:%d" % d.addr, "-i", "x=0,1,2,3",
                             "--protocol", "http", "--body", "json", "--concurrency", str(clients),
                             "--duration", f"{o.seconds * 1e3:.0f}ms", "--json"], text=True,
                            stdout=subprocess.PIPE) for d in doors]
    runs = []
    for p in all:
        out, _ = p.communicate(timeout=60 + 3 * o.seconds)
        assert p.returncode == 0, "hlo bench failed"
        runs.append(json.loads(out)["runs"][0])
    assert all_right(runs), runs
    return sum(r["requestsPerS"] for r in runs), statistics.median(r["p50Ms"] for r in runs)

def all_right(runs):
    return all(r["requests"] > 0 and not r.get("errors") for r in runs)

def in_turn(o, ways):
    """{name: [what it gave, round by round]}; the first round is not counted"""
    rows, names = {n: [] for n in ways}, list(ways)
    for round in range(-1, o.rounds):
        at = round % len(names)
        for n in names[at:] + names[:at]:
            got = ways[n]()
            if round >= 0:
                rows[n].append(got)
    return rows

def scaling(o, nats):
    device = f"sim:latency_us={o.service_us}"
    with contextlib.ExitStack() as stack:
        c = {n: started(o, nats, stack, f"of{n}", n, device) for n in (1, 2, 3)}
        small = started(o, nats, stack, "small", 3, device, "--max-queue", str(CLIENTS))
        ways = {"one node": lambda: rate(o, c[1].d, CLIENTS),
                "two": lambda: rate(o, c[2].d, CLIENTS),
                "three": lambda: rate(o, c[3].d, CLIENTS),
                "three, all at one": lambda: rate(o, small.d[:1], 3 * CLIENTS)}
        rows = in_turn(o, ways)
        one = [r for r, _ in rows["one node"]]
        print(f"## {o.service_us / 1e3:g} ms a run, {CLIENTS} clients a node\n"
              "| nodes | requests/s | times one | p50 ms |\n|---|---|---|---|")
        times = {}
        for name, row in rows.items():
            times[name] = statistics.median(r / first for (r, _), first in zip(row, one))
            print(f"| {name} | {statistics.median(r for r, _ in row):.1f} | {times[name]:.2f} | "
                  f"{statistics.median(p for _, p in row):.1f} |")
        lost = held(o, c[3])
    return ([f"three nodes: {times['three']:.2f} times one"] if times["three"] < 2.7 else []) + lost

# ---- many connections

def held(o, c):
    """connections that stay, each with runs: what they take, and what they leave to others"""
    def memory():
        return sum(rss_kb(d.p.pid) for d in c.d)
    free, before = rate(o, c.d, CLIENTS)[0], memory()
    doors = []
    for k in range(o.connections):
        doors.append(Door(c.d[k % len(c.d)]))
        doors[-1].ask()
    for d in doors:
        right(d.answer())
    ratio = rate(o, c.d, CLIENTS)[0] / free
    used, began = memory() - before, time.monotonic()
    for d in doors:
        d.ask()
    answers = [d.answer() for d in doors]
    took = time.monotonic() - began
    good = sum(status == 200 and json.loads(body)["outputs"][0]["data"] == [1, 2, 3, 4]
               for status, body in answers)
    for d in doors:
        d.close()
    print(f"\n## {o.connections} connections on three nodes\n{good} of {o.connections} runs at "
          f"once right in {took:.2f} s (the devices alone: "
          f"{o.connections * o.service_us / 1e6 / 3:.2f} s); {used / o.connections:.1f} KB each; "
          f"other clients' requests/s beside them {ratio:.3f} times those without")
    return [] if good == o.connections else [f"{o.connections - good} of the connections failed"]

# ---- a run that is forwarded

def p50_ms(door, runs):
    took = []
    for _ in range(runs):
        began = time.perf_counter()
        status, _ = door.run()
        took.append((time.perf_counter() - began) * 1e3)
        assert status == 200
    return statistics.median(took)

def forwarded(o, nats):
    with contextlib.ExitStack() as stack:
        c = started(o, nats, stack, "forward", 2, "", each=[["--device", "cpu"],
                                                            ["--device", "sim"]])
        there, by = Door(c.d[1], "sim"), Door(c.d[0], "sim")
        assert "node" not in right(there.run()) and right(by.run())["node"] == "n1"
        rows = in_turn(o, {"there": lambda: p50_ms(there, o.runs),
                           "by way of another": lambda: p50_ms(by, o.runs)})
        for d in there, by:
            d.close()
    added = statistics.median(b - a for a, b in zip(rows["there"], rows["by way of another"]))
    print("\n## A forwarded run, one client, no service time\n| asked | p50 ms |\n|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {statistics.median(row):.3f} |")
    print(f"| added | {added:.3f} |")
    return [] if added < 0.5 else [f"a forwarded run takes {added:.2f} ms more"]

# ---- a message

class Listeners:
    """subscribers that read and forget"""
    def __init__(self, port, n, subject):
        self.all, self.over = [Raw(port) for _ in range(n)], False
        self.select = selectors.DefaultSelector()
        for r in self.all:
            r.s.sendall(f"SUB {subject} 1\r\n".encode())
            r.flush()
            self.select.register(r.s, selectors.EVENT_READ)
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
    def read(self):
        while not self.over:
            for key, _ in self.select.select(0.1):
                key.fileobj.recv(1 << 20)
    def close(self):
        self.over = True
        self.thread.join(10)
        for r in self.all:
            r.close()

def cost(o, d, nats, messages, subject, counts):
    """processor time in us of the node and of NATS for each message, less what they take idle"""
    pids, per_s = (d.p.pid, nats.p.pid), PER_S
    n = int(o.seconds * per_s)
    def used():
        return [processor_s(p) for p in pids]
    before, raw = used(), Raw(nats.port)
    time.sleep(o.seconds)
    idle = [x - y for x, y in zip(used(), before)]
    heard, before, began = value(d, counts), used(), time.monotonic()
    for k in range(n):
        raw.publish(messages[k % len(messages)](), subject)
        if k % 8 == 7:
            time.sleep(max(0, began + k / per_s - time.monotonic()))
    raw.flush()
    until("all are heard", 20, lambda: value(d, counts) >= heard + n)
    took = time.monotonic() - began
    raw.close()
    return [(x - y - i * took / o.seconds) * 1e6 / n for x, y, i in zip(used(), before, idle)]

def each_message(o, nats):
    others, more = 99, 32
    rows = {"beat": [], "fan": []}
    with contextlib.ExitStack() as stack:
        c = started(o, nats, stack, "one", 1, "cpu")
        d, subject = c.d[0], "one.v1.nodes"
        targets = [(t["targetId"], t["buildId"]) for t in cluster(d)["nodes"][0]["targets"]]
        def beat_of(k):
            return lambda: sealed_beat(node=f"node-{k}", life=f"{k:016x}", name="one",
                                       address=f"http://10.0.0.{k + 1}:8000", kinds=("cpu",),
                                       targets=targets)
        beats = [beat_of(k) for k in range(others)]
        size = len(beats[0]())
        for _ in range(o.rounds):
            rows["beat"].append(cost(o, d, nats, beats, subject, "hlod_cluster_beats_total"))
            wide = Listeners(nats.port, more, subject)
            rows["fan"].append(cost(o, d, nats, beats, subject, "hlod_cluster_beats_total"))
            wide.close()
        assert len(states(d)) == others + 1
        node = statistics.median(a for a, _ in rows["beat"])
        once = statistics.median(b for _, b in rows["beat"])
        fan = statistics.median((b - a) / more for (_, a), (_, b) in zip(rows["beat"], rows["fan"]))
        began = time.perf_counter()
        for _ in range(100):
            d.call("GET", "/v1/nodes")
        listed = (time.perf_counter() - began) * 10
    print(f"\n## A beat of {size} bytes, signed\na node takes {node:.1f} us of processor time to "
          f"hear one, NATS {once - fan:.1f} us and {fan:.2f} us for each node that it goes to; "
          f"`GET /v1/nodes` with {others + 1} nodes: {listed:.2f} ms\n\n"
          "| nodes, a beat each 2 s | a node hears a second | share of a core | bytes/s in | "
          "NATS delivers a second | share of a core | bytes/s out |\n|---|---|---|---|---|---|---|")
    for n in 3, 10, 100, 1000:
        a, b = n / 2, n * n / 2
        print(f"| {n} | {a:.1f} | {a * node / 1e4:.3f} % | {a * size:.0f} | {b:.0f} | "
              f"{(a * (once - fan) + b * fan) / 1e4:.3f} % | {b * size:.0f} |")
    return []

def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--nats", default="build/venv/bin/nats-server")
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--seconds", type=float, default=2)
    a.add_argument("--service-us", type=int, default=10000)
    a.add_argument("--runs", type=int, default=500, help="forwarded, a round")
    a.add_argument("--connections", type=int, default=1000)
    a.add_argument("--strict", action="store_true")
    o = a.parse_args()
    o.hlod, o.hlo, o.worker = (f"{o.build}/{x}" for x in ("hlod", "hlo", "hlod-worker"))
    missed = []
    with Server(o) as nats:
        for part in scaling, forwarded, each_message:
            missed += part(o, nats)
    print("\n" + ("\n".join(f"MISSED {m}" for m in missed) or "met"))
    return 1 if missed and o.strict else 0

if __name__ == "__main__":
    sys.exit(main())
