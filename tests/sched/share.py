#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who runs when: tenants' shares and quotas, priorities, deadlines, memory by plan, a full queue,
several workers, reload of options. Real workers on simulated devices; a worker is stopped (SIGSTOP)
while work queues up behind it, so that what is asserted is order, not time. Standard library only.
Usage: share.py --hlod BIN --worker BIN [NAME...]"""
import json, os, re, signal, socket, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import at_work, device, devices, in_thread, metric, restarts, scenarios, until
from sim import bad, good, put

def run(d, digest, n=4, tenant="", headers={}, **options):
    return d.json("POST", "/v1/run",
                  {"model": digest,
                   "inputs": [{"name": "x", "dtype": "f32", "shape": [n], "data": list(range(n))}],
                   "options": options}, {**({"Hlod-Tenant": tenant} if tenant else {}), **headers})

def infer(d, digest, **parameters):
    return d.json("POST", f"/v2/models/{digest}/infer",
                  {"inputs": [{"name": "x", "datatype": "FP32", "shape": [4],
                               "data": [0, 1, 2, 3]}], "parameters": parameters})

class Stopped:
    """The device's process stands still, with one run (of the tenant "hold") in it."""
    def __init__(self, d, digest, name="sim:0"):
        self.d, self.digest, self.pid = d, digest, device(d, name)["workerPid"]
    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        self.held = in_thread(run, self.d, self.digest, tenant="hold")
        until("held", 5, lambda: device(self.d, "sim:0")["state"] == "busy")
        return self
    def go(self):
        os.kill(self.pid, signal.SIGCONT)
    def __exit__(self, *error):
        self.go()
        self.held[0].join()

def queued(d):
    return metric(d, "hlod_jobs_queued")

def queue_up(d, work):
    """Starts each (function, arguments, named) in its turn: the next one when the one before
    waits."""
    out = []
    for fn, args, named in work:
        n = queued(d)
        out.append(in_thread(fn, *args, **named))
        until("queued", 5, lambda: queued(d) == n + 1)
    return out

def replies(threads):
    return [(t.join(), out[0])[1] for t, out in threads]

def order(d):
    """Tenants of the finished runs, in order."""
    return [t for t in re.findall(r"ev=job\.done job=\d+ tenant=(\S+) kind=run", d.logs())
            if t != "hold"]

def in_turn(d, m, tenants, right):
    """Runs of these tenants wait together; whose come when is by the time that each has used. Where
    this machine gave one run far more of it than another they are asked for again."""
    for _ in range(4):
        before = len(order(d))
        with Stopped(d, m) as s:
            threads = queue_up(d, [(run, (d, m), {"tenant": t}) for t in tenants])
            s.go()
            for r in replies(threads):
                good(r)
        seen = order(d)[before:]
        assert sorted(seen) == sorted(tenants), seen
        if right(seen):
            return
    raise AssertionError(seen)

# ---- shares

def flood_takes_turns(d):
    """sim:latency_us=10000 --trust-tenant-header --log debug
    One tenant's flood came first; another's few runs are served in turn with it, not behind it."""
    m = put(d)
    good(run(d, m, tenant="hold"))
    def right(seen):
        at = [i for i, t in enumerate(seen) if t == "rare"]
        return all(i <= 2 * k + 2 for k, i in enumerate(at))
    in_turn(d, m, ["flood"] * 12 + ["rare"] * 4, right)

def weights_count(d):
    """sim:latency_us=10000 --trust-tenant-header --tenants=big:weight=3,small:weight=1 --log debug
    A tenant of weight 3 gets three runs for the other's one."""
    m = put(d)
    good(run(d, m, tenant="hold"))
    in_turn(d, m, ["small"] * 12 + ["big"] * 12, lambda seen: 8 <= seen[:12].count("big") <= 10)

def priority_is_the_tenants_own(d):
    """sim:latency_us=5000 --trust-tenant-header --log debug
    Among one tenant's runs the larger priority goes first, however it is given; another tenant's
    are not held up by it."""
    one, m = put(d), [put(d, k) for k in range(2, 8)]
    good(run(d, one, tenant="hold"))
    keys = {good(run(d, x, tenant="hold"), k + 2)["executable"]: k for k, x in enumerate(m)}
    with Stopped(d, one) as s:
        threads = queue_up(d, [(run, (d, m[0]), {"tenant": "a"}),
                               (run, (d, m[1]), {"tenant": "a", "priority": -3}),
                               (run, (d, m[2]), {"tenant": "a", "headers": {"Hlod-Priority": "7"}}),
                               (run, (d, m[3]), {"tenant": "a", "priority": 9}),
                               (run, (d, m[4]), {"tenant": "b"})])
        s.go()
        for k, r in enumerate(replies(threads)):
            good(r, k + 2)
    seen = [keys.get(k)
            for k in re.findall(r"ev=job\.done job=\d+ tenant=[ab] kind=run key=(\w+)", d.logs())]
    assert [k for k in seen if k != 4] == [3, 2, 0, 1] and seen.index(4) <= 1, seen
    for r in run(d, one, priority=101), run(d, one, headers={"Hlod-Priority": "high"}):
        bad(r, 400, "BAD_OPTION")

def oip_priority(d):
    """sim:latency_us=5000 --device-calls=1 --log debug
    The Open Inference Protocol counts from 1, the highest; 0 is the default and the lowest."""
    one, low, high = put(d), put(d, 2), put(d, 3)
    for x, add in (one, 1), (low, 2), (high, 3):
        key = good(run(d, x), add)["executable"]
    with Stopped(d, one) as s:
        threads = queue_up(d,
                           [(infer, (d, low), {"priority": 0}), (infer, (d, low), {"priority": 5}),
                            (infer, (d, high), {"priority": 1})])
        s.go()
        assert all(r[0] == 200 for r in replies(threads))
    keys = re.findall(r"ev=job\.done job=\d+ tenant=default kind=run key=(\w+)", d.logs())
    assert keys[-3] == key, keys[-4:]
    assert infer(d, one, priority=200)[0] == 400

# ---- quotas

def runs_a_minute(d):
    """sim --trust-tenant-header --tenants=few:runs=3,*:runs=1000
    Beyond its runs a minute a tenant is refused, and told when to come again; others are not."""
    m = put(d)
    begun = time.monotonic()
    for _ in range(3):
        good(run(d, m, tenant="few"))
    status, headers, body = d.call(
        "POST", "/v1/run",
        json.dumps({"model": m,
                    "inputs": [{"name": "x", "dtype": "f32", "shape": [4], "data": [0] * 4}]}),
        {"Hlod-Tenant": "few", "Accept": "application/json"})
    r = json.loads(body)
    assert status == 429 and r["reason"] == "TENANT_QUOTA" and "few" in r["message"], r
    passed = time.monotonic() - begun  # one comes back in 20 s
    assert 20 - passed <= int(headers["retry-after"]) <= 20, headers
    good(run(d, m, tenant="other"))

def bytes_a_minute(d):
    """sim --trust-tenant-header --tenants=few:bytes=100K
    Bytes of tensors count, in and out."""
    n = 10000  # 40 KB in, 40 KB out
    m = put(d, 1, n)
    good(run(d, m, n, tenant="few"), 1, n)
    bad(run(d, m, n, tenant="few"), 429, "TENANT_QUOTA")
    good(run(d, m, n, tenant="other"), 1, n)

def places_at_once(d):
    """sim:latency_us=5000,sim:latency_us=5000 --trust-tenant-header --tenants=one:places=1
    A tenant of one place never holds two workers; what it waits for, others do not."""
    m = put(d)
    for x in "sim:0", "sim:1":
        good(run(d, m, tenant="hold", device=x))
    pids = [device(d, f"sim:{k}")["workerPid"] for k in (0, 1)]
    for p in pids:
        os.kill(p, signal.SIGSTOP)
    threads = [in_thread(run, d, m, tenant="one") for _ in range(3)]
    until("queued", 5, lambda: queued(d) == 2)
    assert sorted(x["state"] for x in devices(d)) == ["busy", "ready"]
    threads.append(in_thread(run, d, m, tenant="other"))
    until("both busy", 5, lambda: all(x["state"] == "busy" for x in devices(d)))
    assert queued(d) == 2
    for p in pids:
        os.kill(p, signal.SIGCONT)
    for r in replies(threads):
        good(r)

def full_queue(d):
    """sim:latency_us=5000 --trust-tenant-header --max-queue=4
    A full queue refuses with 503 and Retry-After, first those who have most waiting."""
    m = put(d)
    good(run(d, m, tenant="hold"))
    with Stopped(d, m) as s:
        flood = queue_up(d, [(run, (d, m), {"tenant": "flood"})] * 4)
        status, headers, body = d.call(
            "POST", "/v1/run",
            json.dumps({"model": m,
                        "inputs": [{"name": "x", "dtype": "f32", "shape": [4], "data": [0] * 4}]}),
            {"Hlod-Tenant": "flood", "Accept": "application/json"})
        assert (status == 503 and json.loads(body)["reason"] == "QUEUE_FULL"
                and int(headers["retry-after"]) >= 1), (status, headers, body)
        assert ("4 jobs wait, of 4 that may (max_queue); 4 are of tenant 'flood'"
                in json.loads(body)["message"]), body
        rare = in_thread(run, d, m, tenant="rare")
        flood[-1][0].join()
        bad(flood.pop()[1][0], 503, "QUEUE_FULL")
        s.go()
        for r in replies([*flood, rare]):
            good(r)
    assert metric(d, "hlod_queue_refused_total") == 2

def refused_does_not_count(d):
    """sim:latency_us=5000 --trust-tenant-header --max-queue=2 \
    --tenants=few:runs=4,small:runs=3:bytes=16,*:runs=1000
    A run that a full queue refused is none of its tenant's runs a minute, nor is one that its bytes
    forbade."""
    m = put(d)
    good(run(d, m, tenant="hold"))
    with Stopped(d, m) as s:
        waiting = queue_up(d, [(run, (d, m), {"tenant": "few"})] * 2)
        for _ in range(5):
            bad(run(d, m, tenant="few"), 503, "QUEUE_FULL")
        s.go()
        for r in replies(waiting):
            good(r)
    for _ in range(2):
        good(run(d, m, tenant="few"))
    bad(run(d, m, tenant="few"), 429, "TENANT_QUOTA")
    good(run(d, m, tenant="small"))
    for _ in range(5):
        r = bad(run(d, m, tenant="small"), 429, "TENANT_QUOTA")
        assert "bytes a minute" in r["message"], r

# ---- deadlines, leaving

def expired_is_not_run(d):
    """sim:latency_us=5000 --device-calls=1
    Work whose deadline passes in the queue, and work whose client leaves it, never reaches the
    device."""
    m = put(d)
    good(run(d, m))
    with Stopped(d, m) as s:
        ran = metric(d, "hlod_runs_total")
        for late in (run, (d, m), {"timeout_ms": 1000}), (
            run, (d, m),
            {"headers": {"Hlod-Timeout-Ms": "1000"}}), (infer, (d, m), {"timeout": 1000000}):
            fn, args, named = late
            status, r = fn(*args, **named)
            assert status == 504 and s.held[0].is_alive(), r
        text = json.dumps({"model": m,
                           "inputs": [{"name": "x", "dtype": "f32", "shape": [4],
                                       "data": [0] * 4}]}).encode()
        c = socket.create_connection(d.addr)
        c.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n"
                  b"\r\n" % len(text) + text)
        until("queued", 5, lambda: queued(d) == 1)
        c.close()
        until("gone", 5, lambda: queued(d) == 0)
        s.go()
    until("the held run", 5, lambda: metric(d, "hlod_runs_total") == ran + 1)
    good(run(d, m))
    assert metric(d, "hlod_runs_total") == ran + 2

# ---- memory

def heavy(d, add, n=8000):
    """A program that by plan needs 32 KB of working memory (sorted in place) and 64 KB for its
    tensors."""
    status, r = d.json(
        "POST", "/v1/executables", f"HloModule m\nlt {{\n  a = f32[] parameter(0)\n  b = f32[] "
                                   "parameter(1)\n  ROOT l = pred[] compare(a, b), direction=LT\n"
                                   f"}}\nENTRY e {{\n" f"  x = f32[{n}] parameter(0)\n  s = "
                                                       f"f32[{n}] sort(x), dimensions={{0}}, "
                                                       f"to_apply=lt\n  c = f32[] constant({add})\n"
                                                       f"  b = f32[{n}] broadcast(c), "
                                                       f"dimensions={{}}\n" f"  ROOT r = f32[{n}] "
                                                                            f"add(s, b)\n}}\n",
        {"Content-Type": "text/x-hlo"})
    assert status == 200, r
    return r["sourceDigest"]

def memory_is_planned(d):
    """sim:memory=112K --alone-us=0
    Of two runs that do not fit together one waits in the daemon; a small one goes past it; what
    never fits is refused at once, with the sums."""
    n = 8000
    one, two, small = heavy(d, 1), heavy(d, 2), put(d)
    for m, add, k in (one, 1, n), (two, 2, n), (small, 1, 4):
        good(run(d, m, k), add, k)
    pid = device(d, "sim:0")["workerPid"]
    os.kill(pid, signal.SIGSTOP)
    threads = [in_thread(run, d, one, n)]
    until("busy", 5, lambda: device(d, "sim:0")["state"] == "busy")
    threads += queue_up(d, [(run, (d, two, n), {})])
    threads.append(in_thread(run, d, small))
    at_work(d, "sim:0", 2)
    assert queued(d) == 1  # the small one is in the worker
    r = bad(run(d, put(d, 5, 20000), 20000), 429, "DEVICE_MEMORY")
    assert "by plan" in r["message"] and " of tensors)" in r["message"], r
    os.kill(pid, signal.SIGCONT)
    for r, (add, k) in zip(replies(threads), ((1, n), (2, n), (1, 4))):
        good(r, add, k)

def memory_by_option(d):
    """sim --device-memory=100K
    The budget may be set below what the device says."""
    good(run(d, heavy(d, 1), 8000), 1, 8000)
    bad(run(d, put(d, 5, 20000), 20000), 429, "DEVICE_MEMORY")

# ---- workers, options

def workers_of_a_kind(d):
    """sim*2:latency_us=5000,cpu
    KIND*N starts N alike."""
    assert sorted(x["name"] for x in devices(d)) == ["cpu:0", "sim:0", "sim:1"]
    m = put(d)
    for x in "sim:0", "sim:1":
        assert good(run(d, m, device=x))["device"] == x

def reload(d):
    """sim --trust-tenant-header --config={config}
    SIGHUP takes over what can change while it runs, says what needs a restart, and changes nothing
    when there is a mistake."""
    def again(text):
        open(d.config, "w").write(text)
        n = d.logs().count("what=options")
        d.p.send_signal(signal.SIGHUP)
        until("reloaded", 5, lambda: d.logs().count("what=options") > n)
        return d.logs().split("\n")
    m = put(d)
    good(run(d, m, tenant="a"))
    lines = again('tenants = "a:runs=1"\nmax_queue = 77\nlog = "debug"\ncompile_workers = 5\n')
    for name, to, restart in ("tenants", "a:runs=1", 0), (
        "max_queue", "77", 0), ("log", "debug", 0), ("compile_workers", "5", 1):
        found = [l for l in lines if f"ev=server.option name={name} " in l and f'to="{to}"' in l]
        assert len(found) == 1 and ("restart" in found[0]) == bool(restart), (name, found)
    good(run(d, m, tenant="a"))
    bad(run(d, m, tenant="a"), 429, "TENANT_QUOTA")
    for text in 'tenants = "a:colour=1"\nmax_queue = 78\n', "max_queue = none\n":
        assert any("lvl=error ev=server.reload what=options" in l and "what was before stays" in l
                   for l in again(text))
    bad(run(d, m, tenant="a"), 429, "TENANT_QUOTA")
    assert not any("ev=server.option" in l and 'to="78"' in l for l in d.logs().split("\n"))
    again("")
    good(run(d, m, tenant="a"))

def tenant_header_is_not_trusted(d):
    """sim --tenants=few:runs=1
    Without --trust-tenant-header it says nothing."""
    m = put(d)
    for _ in range(3):
        good(run(d, m, tenant="few"))

def with_weights(d, scale, tenant):
    """A program whose prepared weights are what a wild store hits: x + scale * (0.5, 0.5, 0.5,
    0.5), as cosine of an iota times zero."""
    text = (f"HloModule w{scale}\nENTRY e {{\n  x = f32[4] parameter(0)\n  i = f32[4] iota(), "
            "iota_dimension=0\n  z = f32[] constant(0)\n  zs = f32[4] broadcast(z), "
            f"dimensions={{}}\n  n = f32[4] multiply(i, zs)\n"
            f"  c = f32[4] cosine(n)\n  k = f32[] constant({scale})\n  ks = f32[4] broadcast(k), "
            f"dimensions={{}}\n  m = f32[4] multiply(c, ks)\n  s = f32[4] sort(m), "
            f"dimensions={{0}}, to_apply=l\n  ROOT r = f32[4] add(x, s)\n}}\n")
    text = text.replace("ENTRY", "l { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = "
                                 "pred[] compare(a, b), direction=LT }\nENTRY")
    status, r = d.json("POST", "/v1/executables", text,
                       {"Content-Type": "text/x-hlo", "Hlod-Tenant": tenant})
    assert status == 200, r
    return r["sourceDigest"]

def answer(d, model, tenant):
    status, r = run(d, model, tenant=tenant)
    assert status == 200, r
    return r["outputs"][0]["data"]

def wild_store(d):
    """sim:wild=run@2 --trust-tenant-header
    What the next scenario's fault does where one process serves all: another tenant's answer
    changes."""
    a, b = with_weights(d, 10, "a"), with_weights(d, 20, "b")
    assert answer(d, a, "a") == [10, 11, 12, 13]
    answer(d, b, "b")
    assert answer(d, a, "a") != [10, 11, 12, 13], "the fault is none"

def isolated(d):
    """sim:wild=run@2 --trust-tenant-header --isolate tenant
    A process for each tenant: stores that go astray in one tenant's program change no other
    tenant's answer."""
    a, b = with_weights(d, 10, "a"), with_weights(d, 20, "b")
    assert answer(d, a, "a") == [10, 11, 12, 13]
    for _ in range(3):
        answer(d, b, "b")
    for _ in range(3):
        assert answer(d, a, "a") == [10, 11, 12, 13]
    pids = {x["name"]: x["workerPid"] for x in devices(d)}
    assert sorted(pids) == ["sim:0", "sim:0/1"] and len(set(pids.values())) == 2, pids

def few_processes(d):
    """sim --trust-tenant-header --isolate tenant --isolate-workers 2
    More tenants than processes: who is idle for longest loses its process, and gets another when it
    comes again, begun at once; all answers are right."""
    models = {t: with_weights(d, 10 * k, t) for k, t in enumerate("abcde", 1)}
    for turn in range(3):
        for k, t in enumerate("abcde", 1):
            assert answer(d, models[t], t) == [10 * k + n for n in range(4)]
    assert set(restarts(d)) <= {0} and len(devices(d)) <= 2, restarts(d)
    pid = {x["workerPid"] for x in devices(d)}
    for _ in range(5):  # who stays keeps its own
        answer(d, models["e"], "e")
    assert {x["workerPid"] for x in devices(d)} == pid
    many = [in_thread(answer, d, models[t], t) for t in "abcde" * 4]
    for (t, out), k in zip(many, [1, 2, 3, 4, 5] * 4):
        t.join()
        assert out and out[0] == [10 * k + n for n in range(4)], out
    assert "worker.lost" not in d.logs()

def own_records(d):
    """sim --trust-tenant-header --isolate tenant
    What one tenant's worker found in a model, or made of it, is not another's: the same bytes are
    read and compiled in the other's own process."""
    text = "HloModule m\nENTRY e {\n  x = f32[4] parameter(0)\n  ROOT r = f32[4] negate(x)\n}\n"
    got = [d.json("POST", "/v1/executables", text,
                  {"Content-Type": "text/x-hlo", "Hlod-Tenant": t})[1]
           for t in "aba"]
    assert (got[0]["sourceDigest"] == got[1]["sourceDigest"]
            and got[0]["digest"] == got[2]["digest"] != got[1]["digest"]), got
    assert (not got[1].get("cacheHit") and not got[1].get("ingestHit") and got[2]["cacheHit"]
            and got[2]["ingestHit"]), got
    for t in "ab":
        assert answer(d, got[0]["sourceDigest"], t) == [0, -1, -2, -3]
    status, r = d.json("POST", "/v1/buffers",
                       {"inputs": [{"name": "x", "dtype": "f32", "shape": [4],
                                    "data": [0, 1, 2, 3]}]}, {"Hlod-Tenant": "a"})
    assert status == 200, r

SCENARIOS = [wild_store, isolated, few_processes, own_records, flood_takes_turns, weights_count,
             priority_is_the_tenants_own, oip_priority, runs_a_minute, bytes_a_minute,
             places_at_once, full_queue, refused_does_not_count, expired_is_not_run,
             memory_is_planned, memory_by_option, workers_of_a_kind, reload,
             tenant_header_is_not_trusted]

if __name__ == "__main__":
    sys.exit(scenarios("sharing", SCENARIOS,
                       lambda s: ["--device", *s.__doc__.split("\n")[0].split()]))
