#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batch jobs against a real daemon with scripted workers (tests/api/fake_worker.c): results,
comparisons, budgets, retries, cancelling, paging, retention, restarts, and `kill -9` of the daemon
at random moments. Each scenario is a function; it fails by AssertionError. Standard library only.
Usage: jobs.py --hlod BIN --worker BIN [--kills N --jobs N --seed N] [NAME...]"""
import argparse, contextlib, json, os, random, re, shutil, signal
import socket, sqlite3, struct, sys, tempfile, time, traceback
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import FOREVER_MS, PATIENCE, Daemon, Stopped, device, in_thread, metric, until
from faults import model, pid

ENDED = ("passed", "failed", "error", "cancelled")
args = None

def floats(*v):
    return struct.pack("<%df" % len(v), *v)

def blob(d, data):
    status, r = d.json("PUT", "/v1/blobs", data)
    assert status == 200, r
    return r["digest"]

def put_model(d, *lines):
    return blob(d, model(*lines))

def tensor(name, digest, n=1):
    return {"name": name, "dtype": "f32", "shape": [n, 4], "blob": digest}

def one_input(d, name="a", x=(1, 2, 3, 4), expect=None):
    r = {"name": name, "inputs": [tensor("x", blob(d, floats(*x)))]}
    if expect:
        r["expect"] = [tensor("y", blob(d, floats(*expect)))]
    return r

def submit(d, models, inputs, **more):
    status, r = d.json("POST", "/v1/jobs", {"models": models, "inputs": inputs, **more})
    assert status == 200, r
    return r["suite"], r["jobs"]

def jobs_of(d, suite, **query):
    text = "&".join(f"{k}={v}" for k, v in query.items())
    status, r = d.json("GET", f"/v1/jobs?suite={suite}&limit=1000&{text}")
    assert status == 200, r
    return r.get("jobs", [])

def wait(d, suite, seconds=60):
    end = time.monotonic() + max(seconds, PATIENCE)
    while True:
        jobs = jobs_of(d, suite)
        if all(j["state"] in ENDED for j in jobs):
            return jobs
        assert time.monotonic() < end, [j for j in jobs if j["state"] not in ENDED]
        time.sleep(0.02)

def result(d, job):
    status, r = d.json("GET", f"/v1/jobs/{job}/result")
    assert status == 200, r
    return r

def watch(d, job):
    """Begins to watch; (thread, list that gets the events), as in_thread."""
    c = d.connect(2 * PATIENCE)
    c.request("GET", f"/v1/jobs/{job}/watch")
    r = c.getresponse()
    assert r.status == 200, r.read()
    def rest():
        events = [json.loads(line) for line in r.read().decode().split("\n") if line]
        for e in events: # what is told of an end is told with it, not before
            assert "job" not in e or ("finished" in e["job"]) == (e["job"]["state"] in ENDED), e
        return events
    return in_thread(rest)

def in_the_worker(d, n=1):
    """Waits until it has n runs or more."""
    until("runs in the worker", PATIENCE, lambda: device(d, "cpu:0").get("runs", 0) >= n)

# ---- one daemon

def matrix(d):
    """Models x targets x inputs; an input for one model only; names, order and number of the
    jobs."""
    a, b = put_model(d, "# a"), put_model(d, "# b")
    i, j = one_input(d, "i", expect=(2, 3, 4, 5)), one_input(d, "j", expect=(2, 3, 4, 5))
    j["models"] = ["b"]
    suite, n = submit(d, [{"name": "a", "model": a}, {"name": "b", "model": b}], [i, j],
                      targets=[{"name": "one", "device": "cpu:0"}, {"device": "cpu"}], name="m")
    assert n == 6
    jobs = wait(d, suite)
    assert [(j["model"], j["target"], j["input"]) for j in jobs] == [
        ("a", "one", "i"), ("a", "cpu", "i"), ("b", "one", "i"), ("b", "one", "j"),
        ("b", "cpu", "i"), ("b", "cpu", "j")], jobs
    assert [j["id"] for j in jobs] == [f"{suite}.{k}" for k in range(1, 7)]
    assert all(j["state"] == "passed" and j["suiteName"] == "m" for j in jobs), jobs

def comparison(d):
    """What differs is counted and shown; tolerances are the input's, else the suite's; other
    shapes, types and missing outputs are named."""
    m = [{"model": put_model(d)}]
    close = (2.001, 3, 4, 5)
    ins = [one_input(d, "exact", expect=(2, 3, 4, 5)), one_input(d, "close", expect=close),
           one_input(d, "off", expect=(2, 3, 5, 6)),
           {**one_input(d, "loose", expect=close), "atol": 0.01},
           {**one_input(d, "relative", expect=close), "rtol": 0.001}]
    ins.append({**one_input(d, "shape"),
                "expect": [{"name": "y", "dtype": "f32", "shape": [2, 2],
                            "blob": blob(d, floats(2, 3, 4, 5))}]})
    ins.append({**one_input(d, "type"),
                "expect": [{"name": "y", "dtype": "s32", "shape": [1, 4],
                            "blob": blob(d, floats(2, 3, 4, 5))}]})
    ins.append({**one_input(d, "missing"), "expect": [tensor("z", blob(d, floats(2, 3, 4, 5)))]})
    suite, _ = submit(d, m, ins)
    got = {j["input"]: j for j in wait(d, suite)}
    states = {k: j["state"] for k, j in got.items()}
    assert states == {"exact": "passed", "close": "failed", "off": "failed", "loose": "passed",
                      "relative": "passed", "shape": "failed", "type": "failed",
                      "missing": "failed"}, states
    off = result(d, got["off"]["id"])
    c = off["comparisons"][0]
    assert off["error"]["reason"] == "OUTPUT_DIFFERS" and (
        c["elements"], c["mismatches"], c["first"], c["found"],
        c["expected"]) == (4, 2, 2, "4", "5") and c["maxAbs"] == 1, off
    assert "another shape" in got["shape"]["error"]["message"] and "is f32, expected s32" in got[
        "type"]["error"]["message"] and "'z' is missing" in got["missing"]["error"]["message"], got
    suite, _ = submit(d, m, [ins[1]], atol=0.01)
    assert wait(d, suite)[0]["state"] == "passed"

def large_inputs(d):
    """Beyond what travels inline: blobs into shared memory."""
    n = 40000
    x = floats(*([1.5] * (4 * n)))
    i = {"name": "big", "inputs": [tensor("x", blob(d, x), n)],
         "expect": [tensor("y", blob(d, floats(*([2.5] * (4 * n)))), n)]}
    suite, _ = submit(d, [{"model": put_model(d)}], [i], keep_outputs=True)
    assert wait(d, suite)[0]["state"] == "passed"
    out = result(d, suite + ".1")["outputs"][0]
    status, _, data = d.call("GET", "/v1/blobs/" + out["blob"])
    assert status == 200 and data == floats(*([2.5] * (4 * n))) and out["shape"] == [n, 4]

def budgets(d):
    m = put_model(d, "run_ms 5")
    for budget, word in ({"instructions": 3}, "instructions"), ({"run_ms": 0.001}, "run "):
        suite, _ = submit(d, [{"model": m}], [one_input(d)], budget=budget)
        j = wait(d, suite)[0]
        assert (j["state"] == "failed" and j["error"]["reason"] == "BUDGET_EXCEEDED"
                and word in j["error"]["message"]), j
        assert word in result(d, j["id"])["overBudget"][0]
    suite, _ = submit(d, [{"model": m, "budget": {"instructions": 1000}}], [one_input(d)],
                      budget={"instructions": 3})
    assert wait(d, suite)[0]["state"] == "passed", "the model's budget goes before the suite's"

def compile_only(d):
    suite, _ = submit(d, [{"name": "c", "model": put_model(d, "# compile only"),
                           "shapes": [{"input": "x", "dims": [3, 4]}]}], [])
    assert wait(d, suite)[0]["state"] == "passed"
    assert len(result(d, suite + ".1")["executable"]) == 64
    suite, _ = submit(d, [{"name": "c", "model": put_model(d, "fail compile"),
                           "shapes": [{"input": "x", "dims": [3, 4]}]}], [])
    j = wait(d, suite)[0]
    assert (j["state"] == "error" and j["attempts"] == 1
            and j["error"]["reason"] == "UNSUPPORTED_OP"), j

def refused(d):
    """A submit that cannot work is refused whole, with the place."""
    m, i = put_model(d), one_input(d)
    x = i["inputs"][0]
    for body, where in (
        ({"models": []}, "models"), ({"models": [{"model": "0" * 64}]}, "models[0]"),
        ({"models": [{"model": m}], "inputs": [{"inputs": [{**x, "blob": "1" * 64}]}]},
         "inputs[0]"),
        ({"models": [{"model": m}], "inputs": [{"inputs": [{**x, "shape": [2, 4]}]}]}, "size"),
        ({"models": [{"model": m}], "inputs": [{"inputs": [{**x, "dtype": "f99"}]}]}, "dtype"),
        ({"models": [{"model": m}], "inputs": [{"inputs": [x], "models": ["other"]}]}, "model"),
        ({"models": [{"model": m}], "repeat": 1001}, "repeat"),
        ({"models": [{"model": m}] * 200, "inputs": [{"inputs": [x]}] * 100}, "10000"),
        ({"models": [{"model": m}], "rtol": -1}, "tolerance"),
        ({"models": [{"model": m}], "inputs": [{"inputs": [{**x, "shape": [1 << 62, 1 << 62]}]}]},
         "shape"), ({"models": [{"model": m}], "retry": {"maxAttempts": 1000}}, "attempts")):
        status, r = d.json("POST", "/v1/jobs", body)
        assert status in (400, 404) and where in r["message"], (status, r, where)
    for job in "x", "0", "1.0", "1.x", "999999.1":
        for path in "", "/result", "/logs", "/watch":
            status, r = d.json("GET", f"/v1/jobs/{job}{path}")
            assert status in (400, 404), (job, path, status, r)

def idempotent(d):
    m, i = put_model(d), one_input(d)
    body = {"models": [{"model": m}], "inputs": [i], "idempotencyKey": "commit-1"}
    first = d.json("POST", "/v1/jobs", body)[1]
    again = d.json("POST", "/v1/jobs", body)[1]
    assert again == {**first, "existed": True}, again
    status, r = d.json("POST", "/v1/jobs", {**body, "repeat": 2})
    assert (status, r["reason"]) == (409, "KEY_REUSED"), r
    many = [in_thread(d.json, "POST", "/v1/jobs", {**body, "idempotencyKey": "commit-2"})
            for _ in range(8)]
    for t, _ in many:
        t.join()
    assert (len({out[0][1]["suite"] for _, out in many}) == 1
            and sum(not out[0][1].get("existed") for _, out in many) == 1), many

def retries(d):
    """A lost worker is tried again, with growing pauses, until the attempts are used up; another
    refusal is not."""
    suite, _ = submit(d, [{"model": put_model(d, "crash run")}], [one_input(d)],
                      retry={"maxAttempts": 3, "backoffMs": 20})
    j = wait(d, suite)[0]
    assert j["state"] == "error" and j["attempts"] == 3 and j["error"]["reason"] == "WORKER_LOST", j
    log = d.json("GET", f"/v1/jobs/{j['id']}/logs")[1]
    assert (log["ended"] and log["text"].count("again in") == 2 and "again in 20 ms" in log["text"]
            and "again in 40 ms" in log["text"]), log
    rest = d.json("GET", f"/v1/jobs/{j['id']}/logs?offset={log['nextOffset'] - 5}")[1]
    assert rest["text"] == log["text"][-5:], rest
    suite, _ = submit(d, [{"model": put_model(d, "fail run")}], [one_input(d)])
    assert [(j["state"], j["attempts"]) for j in wait(d, suite)] == [("error", 1)]

def heals(d):
    """The worker is killed during the first attempt; the second passes."""
    suite, _ = submit(d, [{"model": put_model(d, "run_ms 2500")}],
                      [one_input(d, expect=(2, 3, 4, 5))], retry={"backoffMs": 10})
    t, out = watch(d, suite)
    until("the worker has begun", PATIENCE,
          lambda: "runs on" in d.json("GET", f"/v1/jobs/{suite}.1/logs")[1].get("text", ""))
    os.kill(pid(d), signal.SIGKILL)
    t.join()
    events = out[0]
    states = [e["job"]["state"] for e in events if "job" in e]
    assert (states[-1] == "passed" and "waiting" in states
            and events[-1]["done"]["code"] == "OK"), events
    assert result(d, suite + ".1")["attempts"] == 2

def cancel(d):
    suite, n = submit(d, [{"model": put_model(d, f"run_ms {FOREVER_MS}")}],
                      [one_input(d, str(k)) for k in range(8)])
    status, r = d.json("DELETE", f"/v1/jobs/{suite}.8")
    assert (status, r) == (200, {"cancelled": 1}), r
    assert d.json("GET", f"/v1/jobs/{suite}.8")[1]["state"] == "cancelled"
    status, r = d.json("GET", f"/v1/jobs/{suite}.1/result")
    assert (status, r["reason"]) == (400, "JOB_NOT_ENDED"), r
    assert d.json("DELETE", f"/v1/jobs/{suite}")[1] == {"cancelled": 7}
    assert {j["state"] for j in jobs_of(d, suite)} == {"cancelled"}
    assert d.json("DELETE", f"/v1/jobs/{suite}")[1] == {}, "an ended job is not cancelled again"
    suite, _ = submit(d, [{"model": put_model(d)}], [one_input(d, expect=(2, 3, 4, 5))])
    assert wait(d, suite, 20)[0]["state"] == "passed"

def pages(d):
    m = [{"model": put_model(d)}]
    suites = [submit(d, m, [one_input(d, str(k)) for k in range(5)])[0] for _ in range(3)]
    for s in suites:
        wait(d, s)
    got, token = [], ""
    while True:
        r = d.json("GET", f"/v1/jobs?limit=4&page_token={token}")[1]
        got += [j["id"] for j in r.get("jobs", [])]
        token = r.get("nextPageToken", "")
        if not token or len(got) > 1000:
            break
    want = [f"{s}.{k}" for s in sorted(suites, key=int, reverse=True) for k in range(1, 6)]
    assert got[:15] == want, got[:15]
    assert len(got) == len(set(got))
    assert (len(jobs_of(d, suites[0], state="passed")) == 5
            and not jobs_of(d, suites[0], state="failed"))

def priority(d):
    """With one job at a time (see below) the suite of higher priority goes first, and jobs of
    suites wait behind requests."""
    slow = put_model(d, "run_ms 100")
    with Stopped(pid(d)):  # until both are there
        a, _ = submit(d, [{"model": slow}], [one_input(d, str(k)) for k in range(4)], priority=-1)
        b, _ = submit(d, [{"model": slow}], [one_input(d, str(k)) for k in range(2)], priority=5)
    last_b, last_a = wait(d, b)[-1]["finished"], wait(d, a)[-1]["finished"]
    assert last_b < last_a

def queue_full_is_no_attempt(d):
    """Refusals for want of room cost no attempt: all jobs pass, though at most one may queue."""
    suite, _ = submit(d, [{"model": put_model(d, "run_ms 20")}],
                      [one_input(d, str(k)) for k in range(12)],
                      retry={"maxAttempts": 1, "backoffMs": 10})
    assert {(j["state"], j["attempts"]) for j in wait(d, suite)} == {("passed", 1)}

# ---- several daemons on one folder

class Folder:
    """A data folder whose daemon comes and goes."""
    def __init__(self, *options):
        self.dir = tempfile.mkdtemp(prefix="hlod-jobs-")
        self.options = options
        self.d = None
        self.start()
    def start(self, *more):
        self.d = Daemon(args.hlod, args.worker, data=self.dir,
                        args=("--log", "info", *self.options, *more))
        return self.d
    def sql(self, text):
        with contextlib.closing(sqlite3.connect(os.path.join(self.dir, "data", "jobs.db"))) as db:
            return db.execute(text).fetchall()
    def end(self):
        if self.d.p.poll() is None:
            self.d.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

def with_folder(*options):
    def wrap(fn):
        def run(_):
            f = Folder(*options)
            try:
                fn(f)
            finally:
                f.end()
        run.__name__, run.alone, run.__doc__ = fn.__name__, True, fn.__doc__
        return run
    return wrap

@with_folder()
def drain(f):
    """SIGTERM: what runs may end, what waits is the next daemon's; watchers are told."""
    d = f.d
    with Stopped(pid(d)):
        suite, n = submit(d, [{"model": put_model(d, "run_ms 300")}],
                          [one_input(d, str(k)) for k in range(10)])
        t, out = watch(d, suite)
        until("one is in the worker", PATIENCE, lambda: device(d, "cpu:0").get("runs"))
        d.p.send_signal(signal.SIGTERM)
    assert d.p.wait(PATIENCE) == 0
    t.join()
    events = out[0]
    assert (events[-1]["done"]["code"] == "UNAVAILABLE"
            and events[-2]["error"]["reason"] == "SHUTTING_DOWN"), events[-2:]
    before = f.sql("SELECT n, result FROM job WHERE result IS NOT NULL")
    assert 0 < len(before) < 10, len(before)
    d = f.start()
    jobs = wait(d, suite)
    assert {(j["state"], j["attempts"]) for j in jobs} == {("passed", 1)}, jobs
    d.stop()
    after = dict(f.sql("SELECT n, result FROM job"))
    assert len(after) == 10 and all(after[k] == v for k, v in before)

@with_folder("--job-keep", "20")
def retention(f):
    d = f.d
    m = [{"model": put_model(d)}]
    suites = [submit(d, m, [one_input(d, str(k)) for k in range(8)])[0] for _ in range(6)]
    for s in suites:
        wait(d, s)
    d.stop()
    d = f.start()
    until("the first goes", PATIENCE, lambda: not jobs_of(d, suites[0]))
    assert [bool(jobs_of(d, s)) for s in suites] == [False] * 4 + [True] * 2
    assert d.json("GET", f"/v1/jobs/{suites[0]}.1")[0] == 404
    newer, _ = submit(d, m, [one_input(d)])
    assert int(newer) > int(suites[-1]), "numbers of removed suites are not used again"

def reload(_):
    """SIGHUP: how many run at a time and what is kept change for what comes after."""
    folder = tempfile.mkdtemp(prefix="hlod-jobs-")
    def options(text):
        with open(folder + "/hlod.toml", "w") as f:
            f.write(text)
    options("job_parallel = 1\n")
    d = Daemon(args.hlod, args.worker, args=("--config", folder + "/hlod.toml"))
    try:
        m = [{"model": put_model(d, "run_ms 100")}]
        def most(n, at_once):
            """A suite of n jobs, of which so many are under way, and never more."""
            with Stopped(pid(d)):
                suite, _ = submit(d, m, [one_input(d, str(k)) for k in range(n)])
                until("so many", PATIENCE, lambda: metric(d, "hlod_jobs_active") >= at_once)
            while any(j["state"] not in ENDED for j in jobs_of(d, suite)):
                assert metric(d, "hlod_jobs_active") <= at_once
            return suite
        first = most(4, 1)
        options("job_parallel = 3\njob_keep = 4\n")
        d.p.send_signal(signal.SIGHUP)
        until("the reload", 10, lambda: "what=options" in d.logs())
        most(8, 3)
        d.p.send_signal(signal.SIGHUP) # looks at what is kept at once
        until("the first suite goes", 5, lambda: not jobs_of(d, first))
    finally:
        d.stop()
        shutil.rmtree(folder)
reload.alone = True

@with_folder()
def collect_uploads(f):
    """Uploads that nothing refers to are collected by age; what a name, a kept suite or memory
    holds stays."""
    d = f.d
    def old():
        for folder, _, files in os.walk(os.path.join(f.dir, "data", "blobs")):
            for name in files:
                os.utime(os.path.join(folder, name), (1, 1))
    def gc(**q):
        status, r = f.d.json("POST", "/v1/cache/gc", {"blobsUnusedS": 3600, **q})
        assert status == 200, r
        return set(r.get("blobs", []))
    loose, young = blob(d, b"nobody needs this"), blob(d, b"nor this, yet")
    lone = d.json("POST", "/v1/executables?shape=x=1x4", model("# lone"))[1]["sourceDigest"]
    named = d.json("POST", "/v1/executables?shape=x=1x4", model("# named"))[1]["sourceDigest"]
    assert d.json("POST", "/v1/models", {"name": "n", "model": named})[0] == 200
    m = put_model(d, "# of a suite")
    i = one_input(d, expect=(2, 3, 4, 5))
    suite, _ = submit(d, [{"model": m}], [i], keep_outputs=True)
    wait(d, suite)
    out = result(d, suite + ".1")["outputs"][0]["blob"]
    old()
    os.utime(os.path.join(f.dir, "data", "blobs", young[:2], young))
    assert gc(dryRun=True) == {loose}, "models in memory stay"
    d.stop()
    d = f.start()
    old()
    os.utime(os.path.join(f.dir, "data", "blobs", young[:2], young))
    assert gc(dryRun=True) == gc() == {loose, lone}
    assert gc() == set()
    assert (d.call("GET", "/v1/blobs/" + loose)[0] == 404
            and d.json("GET", f"/v1/blobs/{loose}/info")[0] == 404)
    assert d.json("POST", "/v1/run", {"model": lone, "inputs": []})[0] == 404
    for digest in young, m, out, i["inputs"][0]["blob"]:
        assert d.call("GET", "/v1/blobs/" + digest)[0] == 200, digest
    assert d.json("POST", "/v1/executables?shape=x=1x4",
                  model("# lone"))[1]["sourceDigest"] == lone, "it may come again"
    assert blob(d, b"nobody needs this") == loose
    again, _ = submit(d, [{"model": m}], [i])
    assert wait(d, again)[0]["state"] == "passed"

@with_folder()
def damaged(f):
    """jobs.db damaged, or its copy: nothing is lost, the log says so. Both: the daemon starts all
    the same, and says what was lost."""
    suite, n = submit(f.d, [{"model": put_model(f.d)}], [one_input(f.d)])
    before = wait(f.d, suite)
    path = lambda name: os.path.join(f.dir, "data", name)
    for names in ["jobs.db"], ["jobs.copy.db"], ["jobs.db", "jobs.copy.db"]:
        f.d.stop()
        for name in names:
            with open(path(name), "r+b") as db:
                db.write(b"not a database at all" * 100)
        d = f.start()
        assert jobs_of(d, suite) == (before if len(names) == 1 else []), names
        for name in names:
            assert re.search(r'ev=journal\.damaged file="[^"]*/data/%s"' % re.escape(name),
                             d.logs()) and os.path.exists(path(name + ".damaged")), name
    assert 'lost="batch jobs' in d.logs()
    again, _ = submit(d, [{"model": put_model(d)}], [one_input(d)])
    assert wait(d, again)[0]["state"] == "passed"
    verify = lambda: [x["digest"]
                      for x in d.json("POST", "/v1/cache/verify", {})[1].get("findings", [])
                      if x["state"] == "damaged"]
    for name in "VERSION", "VERSION.copy", "names.log":  # while it runs
        if os.path.exists(path(name)):
            os.remove(path(name))
        assert verify() == (["VERSION"] if name == "VERSION" else [name] if name == "names.log"
                            else []), name
        assert verify() == [] and os.path.exists(path(name)), name

@with_folder()
def changed_while_sent(f):
    """A blob's file changes between its check and its last byte (the reader is slow): what was
    checked is sent."""
    data = random.Random(1).randbytes(256 << 10)
    digest = f.d.json("PUT", "/v1/blobs", data)[1]["digest"]
    ask = f"GET /v1/blobs/{digest} HTTP/1.1\r\nHost: localhost\r\n%s\r\n"
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(f.d.addr)
        # more than sockets hold
        s.sendall((ask % "" * 59 + ask % "Connection: close\r\n").encode())
        assert s.recv(1, socket.MSG_PEEK)  # the first has been checked
        time.sleep(0.5)
        with open(os.path.join(f.dir, "data", "blobs", digest[:2], digest), "r+b") as b:
            b.write(bytes(len(data)))
        got, whole = s.makefile("rb"), 0
        while (line := got.readline()).startswith(b"HTTP/1.1"):
            length = 0
            while (head := got.readline().strip()):
                if head.lower().startswith(b"content-length:"):
                    length = int(head.split(b":")[1])
            body = got.read(length)
            if b" 200 " in line:
                assert body == data, "200 with other bytes"
                whole += 1
    assert 0 < whole < 60, whole

@with_folder("--compile-rate", "0")
def kill_9(f):
    """The daemon is killed at random moments of a batch: after restarts every job has exactly one
    recorded result, and what was told stays true."""
    rng = random.Random(args.seed)
    told, kills, d, ended_at = {}, 0, f.d, []
    names = ["quick", "slow", "crash", "wrong", "fail"]
    models = [{"name": "quick", "model": put_model(d, "run_ms 2")},
              {"name": "slow", "model": put_model(d, "run_ms 40")},
              {"name": "crash", "model": put_model(d, "crash run", "run_ms 4")},
              {"name": "wrong", "model": put_model(d, "run_ms 1", "# wrong")},
              {"name": "fail", "model": put_model(d, "fail run")}]
    right, wrong = one_input(d, "right",
                             expect=(2, 3, 4, 5)), one_input(d, "wrong", expect=(0, 0, 0, 0))
    per = args.jobs // 5
    share = {"quick": per, "slow": per * 2, "wrong": per, "fail": args.jobs - 4 * per - 2,
             "crash": 2}
    ins = [{**(wrong if m == "wrong" else right), "name": f"{m}{k}", "models": [m]} for m in names
           for k in range(share[m])]
    rng.shuffle(ins)
    body = {"models": models, "inputs": ins, "idempotencyKey": "the batch",
            "retry": {"maxAttempts": 2, "backoffMs": 20}}
    want = {"quick": "passed", "slow": "passed", "wrong": "failed", "fail": "error",
            "crash": "error"}
    suite = None
    def look():
        for j in jobs_of(f.d, suite):
            if j["state"] in ENDED:
                assert told.setdefault(j["id"], j) == j, (told[j["id"]], j)
    def some_ended(share):
        """Waits until so many jobs have ended, as the daemon tells it, and a moment more."""
        end = time.monotonic() + PATIENCE
        while len(told) < share * args.jobs and time.monotonic() < end:
            time.sleep(0.01)
            look()
        time.sleep(rng.random() * 0.03)
    while True:
        try:
            if suite is None or rng.random() < 0.3: # an impatient client that asks again
                r = f.d.json("POST", "/v1/jobs", body)[1]
                assert r["jobs"] == args.jobs and suite in (None, r["suite"]), r
                suite = r["suite"]
            look()
            if kills == args.kills:
                break
            some_ended((kills + rng.random()) / (args.kills + 2))
            look()
        finally:
            if kills < args.kills:
                f.d.kill()
        kills += 1
        ended_at.append(f.sql("SELECT sum(ended) FROM suite")[0][0])
        assert [n for (n,) in f.sql("SELECT count(*) FROM suite")] == [1]
        f.start()
    end = time.monotonic() + 120
    while len(told) < args.jobs and time.monotonic() < end:
        look()
        time.sleep(0.05)
    assert len(told) == args.jobs, len(told)
    for j in told.values():
        assert j["state"] == want[j["model"]], j
        r = result(f.d, j["id"])
        assert (r["job"] == j["id"] and r["state"] == j["state"]
                and r["finished"] == j["finished"]), (r, j)
    f.d.stop()
    rows = f.sql("SELECT n, result IS NOT NULL FROM job")
    assert sorted(rows) == [(k, 1) for k in range(1, args.jobs + 1)]
    assert f.sql("SELECT jobs, ended FROM suite") == [(args.jobs, args.jobs)]
    assert "jobs.twice" not in f.d.logs()
    within = sum(0 < n < args.jobs for n in ended_at)
    assert within >= kills * 0.6, f"too few kills fell into the batch: {ended_at}"
    print(f"     {kills} kills; jobs ended at each: {ended_at}", flush=True)

SCENARIOS = [matrix, comparison, large_inputs, budgets, compile_only, refused, idempotent, retries,
             heals, cancel, pages, priority, queue_full_is_no_attempt, drain, retention, reload,
             collect_uploads, damaged, changed_while_sent, kill_9]
OPTIONS = {"priority": ("--job-parallel", "1"),
           "queue_full_is_no_attempt": ("--max-queue", "1", "--job-parallel", "6")}

def main():
    global args
    a = argparse.ArgumentParser()
    a.add_argument("--hlod", required=True)
    a.add_argument("--worker", required=True)
    a.add_argument("--kills", type=int, default=5)
    a.add_argument("--jobs", type=int, default=60)
    a.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    a.add_argument("names", nargs="*")
    args = a.parse_args()
    bad = 0
    print(f"seed {args.seed}", flush=True)
    shared = None
    for fn in SCENARIOS:
        if args.names and fn.__name__ not in args.names:
            continue
        alone, d = getattr(fn, "alone", False), None
        t = time.monotonic()
        try:
            if fn.__name__ in OPTIONS:
                d = Daemon(args.hlod, args.worker, args=OPTIONS[fn.__name__])
            elif not alone:
                d = shared = shared or Daemon(args.hlod, args.worker)
            fn(d)
            print(f"PASS {fn.__name__} {time.monotonic() - t:.2f} s", flush=True)
        except (Exception, SystemExit):
            bad += 1
            print(f"FAIL {fn.__name__}", flush=True)
            traceback.print_exc()
            if d:
                print(d.logs()[-3000:], file=sys.stderr)
        finally:
            if d and d is not shared:
                d.stop()
    if shared and shared.stop() != 0:
        bad += 1
        print("FAIL the daemon's end", flush=True)
    return 1 if bad else 0

if __name__ == "__main__":
    sys.exit(main())
