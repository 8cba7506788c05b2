#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fault scenarios against a real daemon with scripted workers (tests/api/fake_worker.c): crash,
hang, cancel, deadline, overload, restart, damage, hostile framing, memory. Each scenario is a
function; it fails by AssertionError. Standard library only. Usage: faults.py --hlod BIN --worker
BIN [NAME...]"""
import glob, hashlib, http.client, json, os, re, resource, shutil
import signal, socket, struct, subprocess, sys, threading, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import (FOREVER_MS, PATIENCE, Daemon, Stopped, at_work, devices, expires_at_work,
                     in_thread, metric, restarts, running, scenarios, until)

def model(*lines):
    return (
        "\n".join(["FAKE", "in x f32 N,4", "out y f32 N,4", "weight 4", *lines]) + "\n").encode()

def request(digest, n=1, **options):
    return {"model": digest,
            "inputs": [{"name": "x", "dtype": "f32", "shape": [n, 4], "data": [1.0] * (4 * n)}],
            "options": options}

def put(d, *lines):
    status, r = d.json("POST", "/v1/executables?shape=x=1x4", model(*lines))
    assert status == 200, r
    return r["sourceDigest"], r["digest"]

def run_ok(d, digest, n=1):
    status, r = d.json("POST", "/v1/run", request(digest, n))
    assert status == 200 and r["outputs"][0]["data"] == [2.0] * (4 * n), r
    return r

def pid(d):
    """Of the device's process; None: there is none now."""
    return devices(d)[0].get("workerPid")

def crash_in_run(d):
    good, _ = put(d)
    bad, _ = put(d, "run_ms 20", "crash run")
    run_ok(d, good)
    status, r = d.json("POST", "/v1/run", request(bad))
    assert (status, r["reason"]) == (503, "WORKER_LOST"), r
    run_ok(d, good)
    assert restarts(d) == [0], d.logs()

def kill_in_run(d):
    slow, _ = put(d, f"run_ms {FOREVER_MS}")
    rest = running(d, request(slow))
    os.kill(pid(d), signal.SIGKILL)
    good, _ = put(d)
    run_ok(d, good)
    assert restarts(d) == [0], d.logs()
    assert "WORKER_LOST" in str(out := rest()), out
    assert 'why="its process was ended by signal 9 (Killed)' in d.logs(), d.logs()

def crash_in_compile(d):
    for step in "ingest", "compile":
        status, r = d.json("POST", "/v1/executables?shape=x=1x4", model("crash " + step))
        assert (status, r["reason"]) == (503, "WORKER_LOST"), r
        put(d)

def work_beyond_bounds(d):
    """What a worker says of an executable's work is no number of operations: the account does
    without."""
    for n in -2**63, -1, 2**63 - 1:
        digest, _ = put(d, f"work {n}")
        run_ok(d, digest)
        run_ok(d, digest)

def crash_in_prepare(d):
    bad, _ = put(d, "crash prepare")
    assert d.json("POST", "/v1/run", request(bad))[0] == 503
    run_ok(d, put(d)[0])

def expected(d):
    """What a device was told to expect: it may die of it, refuse it, hang in it; the compile may
    fail behind its draft. The run's answer is that of the run."""
    def run(*lines, timeout_ms=20000):
        status, r = d.json("PUT", "/v1/blobs", model("draft 1", *lines))
        assert status in (200, 201), r
        return d.json("POST", "/v1/run", request(r["digest"], timeout_ms=timeout_ms))
    good = lambda r: r[0] == 200 and r[1]["outputs"][0]["data"] == [2.0] * 4
    assert (good(run()) and good(run("expect_ms 100"))
            and good(run("expect_ms 100", "compile_ms 200")) and good(run("fail expect")))
    assert good(run("draft 40"))
    first = pid(d)
    r = run("crash expect", "compile_ms 300")
    assert good(r) and pid(d) != first, r
    assert run("fail compile")[0] == 400
    assert run("crash compile")[1]["reason"] == "WORKER_LOST"
    assert good(run("# behind them"))
    first = pid(d)
    r = run("hang expect", timeout_ms=2000)
    assert r[0] == 504, r
    until("the worker that hung is replaced", 9, lambda: pid(d) not in (None, first))
    assert good(run("# after it"))

def crash_storm(d):
    """A worker that dies at every request: each is answered, the daemon lives, and a good request
    is served in the end."""
    bad, _ = put(d, "crash run")
    for _ in range(4):
        assert d.json("POST", "/v1/run", request(bad))[0] == 503
    run_ok(d, put(d)[0])

def put_aside(d):
    """Work that ended its worker twice is refused, to its tenant alone; others' is served at once
    all the while; an operator sees it and lifts it."""
    def of(tenant):
        def ask(verb, path, body=None):
            return d.json(verb, path, body, {"Hlod-Tenant": tenant})
        return ask
    a, b = of("a"), of("b")
    compile = lambda who, *lines: who("POST", "/v1/executables?shape=x=1x4", model(*lines))
    honest = compile(b)[1]["sourceDigest"]
    def others_go_on(k):
        status, r = b("POST", "/v1/run", request(honest))
        assert status == 200 and compile(b, f"# honest {k}")[0] == 200, r
    def dies_twice(step, ask):
        for k in range(2):
            status, r = ask(a)
            assert (status, r["reason"]) == (503, "WORKER_LOST"), (step, r)
            others_go_on(f"{step} {k}")
        deaths = metric(d, "hlod_worker_deaths_total")
        status, r = ask(a)
        assert ((status, r["reason"]) == (400, "PUT_ASIDE")
                and "ended its worker 2 times" in r["message"]), (step, r)
        assert metric(d, "hlod_worker_deaths_total") == deaths
    for step in "ingest", "compile":
        dies_twice(step, lambda who: compile(who, "fault " + step))
    for step in "prepare", "run":
        bad = compile(a, "fault " + step)[1]["sourceDigest"]
        dies_twice("run", lambda who: who("POST", "/v1/run", request(bad)))
    assert (compile(b, "fault run")[0] == 200
            and b("POST", "/v1/run", request(bad))[1]["reason"] == "WORKER_LOST"), "it is another's"
    rows = a("GET", "/v1/aside")[1]["aside"]
    assert [(x["tenant"], x["step"], x["deaths"]) for x in rows] == [
        ("a", s, 2) for s in ("ingest", "compile", "run", "run")], rows
    assert all(0 < x["seconds"] <= 60 and "its process" in x["why"] for x in rows), rows
    assert (a("DELETE", "/v1/aside/" + rows[3]["digest"])[1]["lifted"] == 1
            and a("POST", "/v1/run", request(bad))[1]["reason"] == "WORKER_LOST")
    assert a("DELETE", "/v1/aside")[1]["lifted"] == 3 and not a("GET", "/v1/aside")[1].get("aside")
    assert (set(restarts(d)) == {0}  # others did not wait
            and metric(d, "hlod_work_aside_total") == 4)
put_aside.args = ("--trust-tenant-header",)

def single_flight(d):
    before = metric(d, "hlod_compiles_total")
    body = model("compile_ms 300", "# single flight")
    compiler = int(re.search(r"ev=worker\.ready .*role=compile pid=(\d+)", d.logs())[1])
    with Stopped(compiler):
        work = [in_thread(d.json, "POST", "/v1/executables?shape=x=1x4", body) for _ in range(8)]
        until("all are there", PATIENCE, lambda: metric(d, "hlod_jobs_active") == 8)
    replies = [(t.join(), out[0])[1] for t, out in work]
    assert all(s == 200 for s, _ in replies), replies
    assert len({r["digest"] for _, r in replies}) == 1
    assert sum(bool(r.get("joined")) for _, r in replies) == 7
    assert metric(d, "hlod_compiles_total") == before + 1

def long_compiles(d):
    """Who comes while a compile, or the reading of a model, takes long is served by a relief; of
    two that are long the second begins again where the first was, and ends."""
    for step in "compile", "ingest":
        compile = lambda *lines: d.json("POST", "/v1/executables?shape=x=1x4", model(*lines))
        first = d.connect(2 * PATIENCE)
        first.request("POST", "/v1/executables?shape=x=1x4", model(f"{step}_ms {FOREVER_MS}"))
        until("it is there", PATIENCE, lambda: metric(d, "hlod_jobs_active") == 1)
        second, out = in_thread(compile, f"{step}_ms 5000")
        until("so is the second", PATIENCE, lambda: metric(d, "hlod_jobs_active") == 2)
        for k in range(2):
            assert compile(f"# brief {step} {k}")[0] == 200
            assert metric(d, "hlod_jobs_active") == 2 and second.is_alive(), "it waited"
        first.sock.close()
        second.join()
        assert out[0][0] == 200, out
    assert metric(d, "hlod_compiles_moved_total") == 2 and metric(
        d, "hlod_worker_reliefs_total") == 1 and metric(d, "hlod_worker_deaths_total") == 0
    run_ok(d, put(d)[0])
long_compiles.args = ("--compile-relief-ms", "150")

def deadline(d):
    slow, _ = put(d, f"run_ms {FOREVER_MS}")
    status, r = d.json("POST", "/v1/run", request(slow, timeout_ms=200))
    assert (status, r["code"]) == (504, "DEADLINE_EXCEEDED"), r
    run_ok(d, put(d)[0])

def hang_is_killed(d):
    hung, _ = put(d, "hang run")
    first = pid(d)
    expires_at_work(d, request(hung))
    good, _ = put(d)
    until("the hung worker is killed", PATIENCE, lambda: pid(d) not in (None, first))
    run_ok(d, good)

def kills_are_no_failures(d):
    """Runs that must be killed, one after another: the next process starts at once each time, and
    the device is not drained."""
    good, hung = put(d)[0], put(d, "hang run")[0]
    for _ in range(5):
        first = pid(d)
        expires_at_work(d, request(hung))
        until("another process", PATIENCE, lambda: pid(d) not in (None, first))
        run_ok(d, good)
    assert (restarts(d) == [0] * 5
            and not devices(d)[0].get("drained")), d.logs()[-3000:]

def grace_is_an_option(d):
    """--cancel-grace-ms, also by SIGHUP: what hangs is killed so long after its deadline, no
    sooner."""
    good, hung = put(d)[0], put(d, "hang run")[0]
    first, start = pid(d), time.monotonic()
    expires_at_work(d, request(hung))
    until("killed", PATIENCE, lambda: pid(d) not in (None, first))
    assert time.monotonic() - start >= 2.2  # the deadline and the grace
    run_ok(d, good)
    with open(d.config, "w") as f:
        f.write(f"cancel_grace_ms = {FOREVER_MS}\n")
    d.p.send_signal(signal.SIGHUP)
    until("reloaded", 5, lambda: "ev=server.reload what=options" in d.logs())
    first = pid(d)
    expires_at_work(d, request(hung))
    time.sleep(3)
    assert pid(d) == first, "killed after the old grace"
    os.kill(first, signal.SIGKILL)
    until("another process", PATIENCE, lambda: pid(d) not in (None, first))
grace_is_an_option.args = ("--config", "{config}")

def leave(d, digest, stream, reset):
    """A client that goes away in mid-run: the job must be cancelled."""
    before = metric(d, "hlod_cancels_total")
    body = json.dumps(request(digest)).encode()
    s = socket.create_connection(d.addr)
    s.sendall(
        b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n" % (
            b"application/x-ndjson" if stream else b"application/json", len(body)) + body)
    at_work(d)
    if reset:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif stream:
        s.recv(1 << 16)
    s.close()
    until(f"cancelled (stream={stream}, reset={reset})", PATIENCE,
          lambda: metric(d, "hlod_cancels_total") == before + 1)
    at_work(d, runs=0)

def client_leaves(d):
    slow, _ = put(d, f"run_ms {FOREVER_MS}")
    for stream in False, True:
        for reset in False, True:
            leave(d, slow, stream, reset)
    run_ok(d, put(d)[0])

def half_close(d):
    """A client that shuts down its sending side and still reads gets its answer."""
    slow, _ = put(d, "run_ms 400")
    body = json.dumps(request(slow)).encode()
    s = socket.create_connection(d.addr)
    s.sendall(b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"
              b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    s.shutdown(socket.SHUT_WR)
    text = b""
    s.settimeout(PATIENCE)
    while piece := s.recv(1 << 16):
        text += piece
    assert b"HTTP/1.1 200" in text and b'"outputs"' in text, text[:300]

def warm_restart(d):
    source, exe = put(d)
    run_ok(d, source)
    home = d.dir
    assert d.stop_keep() == 0
    again = Daemon(d.hlod, d.worker, data=home)
    try:
        r = run_ok(again, source)
        assert (r.get("cacheHit") and metric(again, "hlod_compiles_total") == 0
                and metric(again, "hlod_ingests_total") == 0)
        status, r = again.json("POST", "/v1/executables?shape=x=1x4", model())
        assert r.get("ingestHit") and r.get("cacheHit") and r["digest"] == exe, r
        assert again.stop_keep() == 0
        files = [p for p in glob.glob(home + "/data/**/*" + exe[2:] + "*", recursive=True)
                 if os.path.isfile(p)]
        assert len(files) == 1, files
        with open(files[0], "r+b") as f:
            f.seek(-1, 2)
            last = f.read(1)
            f.seek(-1, 2)
            f.write(bytes([last[0] ^ 1]))
        third = Daemon(d.hlod, d.worker, data=home)
        run_ok(third, source)
        assert (metric(third, "hlod_cache_quarantined_total") == 1
                and metric(third, "hlod_compiles_total") == 1)
        run_ok(third, exe)
        third.stop_keep()
    finally:
        again.p.poll() is None and again.kill()

def changed_while_read(d):
    """Bytes that the disk changes under the worker that reads them: what it makes of them, a model
    or a complaint, is nobody's model and nobody's mistake."""
    def changed(n, ms, script):
        """(model, reply), or None where this machine stalled until the worker had read."""
        begun, text = time.monotonic(), model(f"ingest_ms {ms}", f"seed {n}", *script)
        t, out = in_thread(d.json, "POST", "/v1/executables?shape=x=1x4", text)
        path = glob.escape(d.dir) + f"/data/blobs/*/{hashlib.sha256(text).hexdigest()}"
        until("the model is on the disk", 5, lambda: glob.glob(path))
        time.sleep(0.2)
        with open(glob.glob(path)[0], "r+b") as f:
            f.seek(len(text) - 2)
            f.write(b"?")
        late = time.monotonic() - begun > ms / 1000
        t.join()
        return None if late else (text, out)
    for n, script in enumerate((["fail ingest"], [])):
        text, out = changed(n, 1500, script) or changed(n, 20000, script)
        assert out[0][0] != 200 and out[0][1]["code"] == "DATA_LOSS", out
        status, r = d.json("POST", "/v1/executables?shape=x=1x4", text)
        assert status == (400 if script else 200), r

def no_package(d):
    """A worker that answers an export with a package of no descriptor, or of no bytes: an error,
    and nothing of it is kept."""
    at = os.path.join(glob.escape(d.dir), "data", "packages", "*", "*")
    for what in ("nowhere", "empty"):
        source, _ = put(d, "package " + what)
        for _ in range(2):
            status, r = d.json("POST", f"/v1/models/{source}/web", {"shapes": [
                {"input": "x", "dims": [1, 4]}]})
            assert status == 500 and "package" in r["message"], (what, status, r)
            assert not glob.glob(at), what
    source, _ = put(d)
    status, r = d.json("POST", f"/v1/models/{source}/web", {"shapes": [
        {"input": "x", "dims": [1, 4]}]})
    assert status == 200 and len(glob.glob(at)) == 1, r

def refused_start(d, data, *args):
    p = subprocess.run([d.hlod, "--http", "127.0.0.1:0", "--grpc", "", "--data",
                        os.path.join(d.dir, data), "--worker", d.worker, *args],
                       capture_output=True, text=True, timeout=PATIENCE)
    assert p.returncode in (1, 2) and p.stderr.count("\n") == 1, (p.returncode, p.stderr)
    return p.stderr

def two_daemons(d):
    assert "in use by another process" in refused_start(d, "data")

def bad_starts(d):
    """Each says why, in one line, and does not go on."""
    assert "no kind is called 'cpuu'" in refused_start(d, "other", "--device", "cpu,cpuu*2")
    assert f"cannot listen on {d.grpc}" in refused_start(d, "other", "--grpc", d.grpc)
    assert "Address already in use" in refused_start(d, "other", "--http", "%s:%d" % d.addr)
    assert "Not a directory" in refused_start(d, "hlod.toml")

def full_disk(d):
    """A limit of the size of files stands for a disk without room: what needs room is refused, says
    so, and the rest goes on."""
    good, _ = put(d)
    big = model() + b"weight 8\n" * 100000
    before = resource.prlimit(d.p.pid, resource.RLIMIT_FSIZE,
                              (200000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    status, r = d.json("POST", "/v1/executables?shape=x=1x4", big)
    assert (status, r["code"], r["reason"]) == (507, "RESOURCE_EXHAUSTED", "STORE_FULL"), r
    run_ok(d, good)
    assert d.logs().count("ev=store.full") == 1 and d.call("GET", "/readyz")[0] == 200
    resource.prlimit(d.p.pid, resource.RLIMIT_FSIZE, (1, before[1]))  # nor for a name
    status, r = d.json("POST", "/v1/models", {"name": "kept", "model": good})
    # SQLite takes the limit for a failing disk
    assert status >= 500 and "could not be written" in r["message"], (status, r)
    resource.prlimit(d.p.pid, resource.RLIMIT_FSIZE, before)
    status, r = d.json("POST", "/v1/executables?shape=x=1x4", big)
    assert status != 507, r
    assert d.json("POST", "/v1/models", {"name": "kept", "model": good})[0] == 200
    # what was answered is on disk, as a kill leaves it
    shutil.copytree(d.dir + "/data", d.dir + "/copy/data")
    again = Daemon(d.hlod, d.worker, data=d.dir + "/copy")
    assert [m["name"] for m in again.json("GET", "/v1/models")[1]["models"]] == ["kept"]
    assert again.stop_keep() == 0

def few_files(d):
    """Connections never take the descriptors that the daemon needs for its own work."""
    script = os.path.join(d.dir, "few.sh")
    with open(script, "w") as f:
        f.write(f'#!/bin/sh\nulimit -n 80\nexec {d.hlod} "$@"\n')
    os.chmod(script, 0o755)
    few = Daemon(script, d.worker)
    held = []
    try:
        assert "ev=server.files limit=80 max_connections=10" in few.logs(), few.logs()
        p = subprocess.run(["sh", "-c", f'ulimit -n 40; exec {d.hlod} --data {d.dir}/none'],
                           capture_output=True, text=True)
        assert p.returncode == 2 and "the limit of open files is 40: at least 64" in p.stderr, p
        good, _ = put(few)
        held = [socket.create_connection(few.addr) for _ in range(100)]
        time.sleep(0.3)
        assert len(os.listdir(f"/proc/{few.p.pid}/fd")) < 80 - 16
        for s in held:
            s.close()
        run_ok(few, good)
    finally:
        assert few.stop() == 0

def no_file_left(d):
    """Where descriptors run out all the same, clients are turned away and nothing that is stored is
    taken for damaged; when there are some again, all is as before."""
    good, _ = put(d)
    hard = resource.prlimit(d.p.pid, resource.RLIMIT_NOFILE)[1]
    def leave(n):
        open_now = len(os.listdir(f"/proc/{d.p.pid}/fd"))
        resource.prlimit(d.p.pid, resource.RLIMIT_NOFILE, (open_now + n, hard))
    kept = d.connect(PATIENCE)
    def ask(verb, path, body=None):
        kept.request(verb, path, body)
        r = kept.getresponse()
        return r.status, r.read()
    assert ask("GET", "/healthz")[0] == 200
    for n in range(8):
        leave(n)
        status, body = ask("POST", f"/v1/executables?shape=x={n + 2}x4", model())
        assert status in (200, 503) and b"DAMAGED" not in body, (n, status, body)
    def turn_away(what):
        leave(3)
        held = [socket.create_connection(d.addr) for _ in range(20)]
        until(what, PATIENCE, lambda: d.call("GET", "/healthz")[0] == 503)
        for s in held:
            s.close()
        until("others are let in", PATIENCE, lambda: d.call("GET", "/healthz")[0] == 200)
    turn_away("one is turned away")
    def come(n):
        found = []
        for _ in range(n):
            found.append(socket.socket())
            found[-1].setblocking(False)
            found[-1].connect_ex(d.addr)
        return found
    # Nor the one that is put aside for such times: it is put aside again when there are some.
    resource.prlimit(d.p.pid, resource.RLIMIT_NOFILE, (3, hard))
    waiting = come(4)
    time.sleep(0.3)
    assert ask("GET", "/healthz")[0] == 200
    resource.prlimit(d.p.pid, resource.RLIMIT_NOFILE, (hard, hard))
    until("who waited is let in", PATIENCE, lambda: d.call("GET", "/healthz")[0] == 200)
    for s in waiting:
        s.close()
    turn_away("one is turned away again")
    resource.prlimit(d.p.pid, resource.RLIMIT_NOFILE, (hard, hard))
    assert put(d, "run_ms 1") and run_ok(d, good, 3)

def drain(d):
    slow, _ = put(d, "run_ms 700")
    t, out = in_thread(d.json, "POST", "/v1/run", request(slow))
    at_work(d)
    d.p.send_signal(signal.SIGTERM)
    t.join()
    assert out[0][0] == 200, out
    assert d.p.wait(PATIENCE) == 0

def lame(d):
    """For leave_ms an ending daemon is not ready, serves on old and new connections and ends each
    with its reply; a second signal ends it at once."""
    source, _ = put(d, "run_ms 1")
    body, headers = json.dumps(request(source)), {"Content-Type": "application/json"}
    kept = d.connect(PATIENCE)
    def ask(c):
        c.request("POST", "/v1/run", body, headers)
        r = c.getresponse()
        assert r.status == 200 and r.read(), r.status
        return r.will_close
    assert not ask(kept)
    probes = ["/readyz", "/v2/health/ready", f"/v2/models/{source}/ready"]
    def ready():
        return [d.call("GET", p)[0] == 200 for p in probes] + [
            metric(d, "hlod_ready") == 1, d.call("OPTIONS", "/")[0] == 204]
    assert all(ready()), ready()
    d.p.send_signal(signal.SIGTERM)
    until("it is not ready", 5, lambda: d.call("GET", "/readyz")[0] == 503)
    assert not any(ready()) and d.call("GET", "/v2/health/live")[0] == 200, ready()
    assert ask(kept) and d.call("GET", "/healthz")[0] == 200
    assert ask(d.connect(PATIENCE))
    d.p.send_signal(signal.SIGTERM)
    assert d.p.wait(PATIENCE) == 0

def raw(d, text, timeout=PATIENCE):
    s = socket.create_connection(d.addr)
    s.settimeout(timeout)
    try:
        s.sendall(text)
    except OSError:
        pass
    got = b""
    try:
        while piece := s.recv(1 << 16):
            got += piece
            if b"\r\n\r\n" in got:
                break
    except OSError:
        pass
    s.close()
    return int(got.split()[1]) if got.startswith(b"HTTP/1.1 ") else None

def half_headers(d):
    """Two hundred connections that take all places and never finish their headers: they are closed
    in time, a good client is served, and one that is kept idle stays."""
    head, half = b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n", []
    kept = http.client.HTTPConnection(*d.addr, timeout=PATIENCE)
    kept.request("GET", "/healthz")
    assert kept.getresponse().read() == b"ok\n"
    for i in range(199):
        s = socket.create_connection(d.addr, timeout=PATIENCE)
        s.sendall([b"", b"GET /v1/ver", head, head + b"X-A: 1\r\nX-B"][i % 4])
        half.append(s)
    stop = threading.Event()
    def drip():
        """Never idle: a byte each 50 ms into every fourth."""
        while not stop.wait(0.05):
            for s in half[3::4]:
                try:
                    s.send(b"b")
                except OSError:
                    pass
    t, _ = in_thread(drip)
    try:
        good, out = in_thread(d.call, "GET", "/v1/version")
        good.join(PATIENCE)
        assert out and out[0][0] == 200, f"a good client is not served: {out}"
        said = [b"".join(iter(lambda s=s: patient(s), b"")) for s in half]
    finally:
        stop.set()
        t.join()
    for i, text in enumerate(said):
        assert (text.startswith(b"HTTP/1.1 408") and b"header_s" in text if i % 4 >= 2
                else text == b""), (i, text)
    assert metric(d, "hlod_connections_late_total") == 199
    kept.request("GET", "/healthz")  # waits for its next request, not for half of one
    assert kept.getresponse().read() == b"ok\n"
    kept.sock.sendall(head)
    kept.sock.settimeout(PATIENCE)
    assert b" 408 " in kept.sock.recv(1 << 16)
    # the gRPC port: no preface
    with socket.create_connection(d.grpc.rsplit(":", 1), timeout=PATIENCE) as silent:
        silent.sendall(b"PRI * HTTP/2.0")
        while silent.recv(1 << 16):
            pass
half_headers.args = ("--max-connections", "200", "--header-s", "1")

def patient(s):
    try:
        return s.recv(1 << 16)
    except ConnectionResetError:  # it was dripping when its place went
        return b""

def ended_headers(d):
    """Connections that send half their headers and end their side are let go of at once, not when
    header_s is over; one that asked before it ended its side is answered."""
    fds = lambda: len(os.listdir(f"/proc/{d.p.pid}/fd"))
    before, half = fds(), []
    for i in range(100):
        s = socket.create_connection(d.addr, timeout=10)
        s.sendall([b"GET /v1/ver", b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\n", b""][i % 3])
        s.shutdown(socket.SHUT_WR)
        half.append(s)
    whole = socket.create_connection(d.addr, timeout=10)
    whole.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    whole.shutdown(socket.SHUT_WR)
    assert whole.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
    until("they are gone", 4, lambda: fds() <= before + 2)
    for s in [*half, whole]:
        s.close()
ended_headers.args = ("--header-s", "600")

def stalled_bodies(d):
    """One address holds all places with bodies that stall or drip, far within idle_s; clients of
    that address and of another are served all the same, and what is at work, or comes fast enough,
    stays."""
    m, _ = put(d)
    head = (b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n")
    body = json.dumps({"model": m, "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                               "data": [1, 2, 3, 4]}]}).encode()
    steady = socket.create_connection(d.addr, timeout=20, source_address=("127.0.0.3", 0))
    steady.sendall(head % (len(body) + 1_500_000))
    bodies, stop = [], threading.Event()
    for _ in range(64):
        s = socket.create_connection(d.addr, timeout=20, source_address=("127.0.0.2", 0))
        s.sendall(head % 10000 + b"{")
        bodies.append(s)
    def drip():
        """All drip, one sends 150 kB/s."""
        left = b" " * 1_500_000
        while not stop.wait(0.1):
            for s in bodies:
                try:
                    s.send(b" ")
                except OSError:
                    pass
            steady.sendall(left[:15000])
            left = left[15000:]
        steady.sendall(left + body)
    t, _ = in_thread(drip)
    try:
        for source in "127.0.0.1", "127.0.0.2":
            for _ in range(5):
                s = socket.create_connection(d.addr, timeout=20, source_address=(source, 0))
                s.sendall(
                    b"GET /v1/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                assert s.recv(1 << 16).startswith(b"HTTP/1.1 200 OK"), source
                s.close()
    finally:
        stop.set()
        t.join()
    text = steady.recv(1 << 16)
    assert text.startswith(b"HTTP/1.1 200 OK"), text
    for s in [*bodies, steady]:
        s.close()
stalled_bodies.args = ("--max-connections", "64")

def per_address(d):
    """One address has so many places and no more; another (127.0.0.2) has its own."""
    def open_one(source="127.0.0.1"):
        s = socket.create_connection(d.addr, timeout=PATIENCE, source_address=(source, 0))
        try:
            s.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return s, s.recv(1 << 16)[:15]
        except OSError:
            return s, b""
    mine = []
    def eight():
        for s, _ in mine:
            s.close()
        mine[:] = [open_one() for _ in range(8)]
        return all(text == b"HTTP/1.1 200 OK" for _, text in mine)
    until("those that asked whether it is ready are gone", PATIENCE, eight)
    assert open_one()[1] == b""
    assert open_one("127.0.0.2")[1] == b"HTTP/1.1 200 OK"
    mine[0][0].close()
    until("a place", 3, lambda: open_one()[1] == b"HTTP/1.1 200 OK")
per_address.args = ("--max-per-address", "8")

def hostile_framing(d):
    head = b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\n"
    assert raw(d, head + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
                         b"\r\n") == 400
    assert raw(d, head + b"X: " + b"a" * 300000 + b"\r\n\r\n") == 431
    assert raw(d, head + b"Content-Length: 99999999999\r\n\r\n") == 413
    assert raw(d, head + b"Content-Length: -1\r\n\r\n") in (400, 413)
    assert raw(d, b"\x00\x01\x02\r\n\r\n") in (400, None)
    assert raw(d, b"POST /v1/executables HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                  b"99999999999999\r\n\r\n") == 413
    s = socket.create_connection(d.addr)  # an upload that stops half way and leaves
    s.sendall(b"POST /v1/executables HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n"
              + b"x" * 3000000)
    s.close()
    run_ok(d, put(d)[0])

def compressed_bodies(d):
    import gzip, zlib
    source, _ = put(d)
    def send(body, coding, **headers):
        status, _, text = d.call("POST", "/v1/run", body,
                                 {"Accept": "application/json", "Content-Encoding": coding,
                                  **headers})
        return status, json.loads(text)
    body = json.dumps(request(source, 3)).encode()
    for coding, pack in ("gzip", gzip.compress), ("deflate", zlib.compress):
        status, r = send(pack(body), coding)
        assert status == 200 and r["outputs"][0]["data"] == [2.0] * 12, r
        packed = pack(body)
        for bad in packed[:-5], packed[:20], packed + b"x", b"garbage", b"", packed[
            :12] + b"\xff" + packed[13:]:
            status, r = send(bad, coding)
            assert status == 400, (coding, bad, r)
    head = json.dumps({"model": source,
                       "inputs": [{"name": "x", "dtype": "f32", "shape": [100, 4],
                                   "parameters": {"binary_data_size": 1600}}]}).encode()
    for tail, want in (struct.pack("<f", 1) * 400, 200), (b"x" * 1599, 400), (b"x" * 1601, 400):
        status, r = send(gzip.compress(head + tail), "gzip",
                         **{"Inference-Header-Content-Length": str(len(head))})
        assert status == want, r
    status, r = send(gzip.compress(head), "gzip",
                     **{"Inference-Header-Content-Length": str(len(head) + 1)})
    assert status == 400 and r["reason"] == "BAD_FRAMING", r
    status, r = send(gzip.compress(b" " * (40 << 20)), "gzip")  # 40 KB that become 40 MB
    assert status == 413 and r["reason"] == "BODY_TOO_LARGE", r
    assert send(b"x", "br")[0] == 415
    assert d.call("POST", "/v1/executables", gzip.compress(model()),
                  {"Content-Encoding": "gzip"})[0] == 415
    run_ok(d, source)

def big_tensors(d):
    source, _ = put(d)
    n = 1 << 18  # 4 MiB: through memfds both ways
    head = json.dumps({"model": source,
                       "inputs": [{"name": "x", "dtype": "f32", "shape": [n, 4],
                                   "parameters": {"binary_data_size": n * 16}}]}).encode()
    status, headers, body = d.call("POST", "/v1/run", head + struct.pack("<f", 1.5) * (n * 4),
                                   {"Inference-Header-Content-Length": str(len(head)),
                                    "Accept": "application/octet-stream"})
    assert status == 200, body[:300]
    k = int(headers["inference-header-content-length"])
    assert json.loads(body[:k])["outputs"][0]["parameters"]["binary_data_size"] == n * 16
    assert body[k:] == struct.pack("<f", 2.5) * (n * 4)
    status, r = d.json("POST", "/v1/run", request(source, 20000))
    assert (status == 200 and len(r["outputs"][0]["data"]) == 80000
            and set(r["outputs"][0]["data"]) == {2.0})

def upload_memory(d):
    """600 MB of model: the daemon stays below 64 MB."""
    size, peak, done = 600 << 20, [0], [False]
    head = model()
    def watch():
        while not done[0]:
            with open(f"/proc/{d.p.pid}/status") as f:
                peak[0] = max(peak[0], int([l for l in f if l.startswith("VmRSS")][0].split()[1]))
            time.sleep(0.02)
    t = threading.Thread(target=watch)
    t.start()
    try:
        s = socket.create_connection(d.addr)
        s.settimeout(120)
        s.sendall(b"POST /v1/executables?shape=x=1x4 HTTP/1.1\r\nHost: localhost\r\nConnection: "
                  b"close\r\nContent-Length: %d\r\n\r\n" % size + head)
        piece, left, sha = b"#" * (1 << 20), size - len(head), hashlib.sha256(head)
        while left:
            n = min(left, len(piece))
            s.sendall(piece[:n])
            sha.update(piece[:n])
            left -= n
        text = b""
        while more := s.recv(1 << 16):
            text += more
    finally:
        done[0] = True
        t.join()
    assert b" 200 OK" in text and sha.hexdigest().encode() in text, text[:500]
    assert peak[0] < 64 * 1024, f"peak RSS {peak[0]} KiB"

def bodies(source):
    """(begin a body of 12 of 16 MiB, finish it, read its answer, bytes of one)"""
    n = 12 << 20
    head = json.dumps({"model": source,
                       "inputs": [{"name": "x", "dtype": "f32", "shape": [n // 16, 4],
                                   "parameters": {"binary_data_size": n}}]}).encode()
    start = (b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: "
             b"application/octet-stream\r\nInference-Header-Content-Length: %d\r\nContent-Length: "
             b"%d\r\n\r\n" % (len(head), len(head) + n))
    few, most = 1 << 20, n - (1 << 20)
    def begin(d, sent=few):
        s = socket.create_connection(d.addr)
        s.settimeout(PATIENCE)
        s.sendall(start + head + bytes(sent))
        return s
    def finish(s, sent=few):
        s.sendall(bytes(n - sent))
        return answer(s)
    def answer(s):
        text = b""
        while piece := s.recv(1 << 20):
            text += piece
        return int(text.split()[1]), text
    # one that sent little would lose its place to those that wait
    return begin, finish, most, n + len(head)

def receive_budget(d):
    """Bodies of all clients together stay within --receive-bytes: who finds no room is refused
    after --receive-wait-ms."""
    source, _ = put(d)
    begin, finish, most, size = bodies(source)
    first = begin(d, most)
    until("it has its room", PATIENCE, lambda: metric(d, "hlod_receive_bytes") == size)
    began = time.monotonic()
    status, text = finish(begin(d))  # its bytes are dropped
    assert status == 503 and b"RECEIVE_BUDGET" in text and b"Retry-After: 1" in text, text[:500]
    assert time.monotonic() - began >= 1
    assert finish(first, most)[0] == 200
    run_ok(d, source)
receive_budget.args = ("--receive-bytes", "16M", "--receive-wait-ms", "1000")

def receive_waits(d):
    """Who finds no room waits for those before; who leaves, holding or waiting, takes nothing with
    it."""
    source, _ = put(d)
    begin, finish, most, size = bodies(source)
    first = begin(d, most)
    until("it has its room", PATIENCE, lambda: metric(d, "hlod_receive_bytes") == size)
    t, out = in_thread(finish, begin(d))
    time.sleep(0.2)
    assert not out and metric(d, "hlod_receive_bytes") == size
    assert finish(first, most)[0] == 200
    t.join()
    assert out[0][0] == 200
    waits = begin(d), begin(d)
    for s in waits:  # leaves while it holds, leaves while it waits
        s.close()
    until("reservations are given back", PATIENCE, lambda: not metric(d, "hlod_receive_bytes"))
    run_ok(d, source)
receive_waits.args = ("--receive-bytes", "16M", "--receive-wait-ms", str(FOREVER_MS))

def many_clients(d):
    source, _ = put(d, "run_ms 1")
    run_ok(d, source)
    work = [in_thread(lambda: [run_ok(d, source) for _ in range(10)]) for _ in range(32)]
    for t, out in work:
        t.join()
        assert out

def store_is_measured(d):
    """hlod_store_bytes is what lies there, also behind the last of many compiles."""
    for k in range(40):
        put(d, f"# measured {k}")
    def lies_there():
        kinds = "blobs", "programs", "executables", "tunings", "packages"
        return sum(os.path.getsize(f) for kind in kinds
                   for f in glob.glob(os.path.join(d.dir, "data", kind, "*", "*")))
    assert lies_there() > 0
    until("it is measured", PATIENCE, lambda: metric(d, "hlod_store_bytes") == lies_there())

warm_restart.ends = drain.ends = lame.ends = True
lame.args = ("--leave-ms", "60000")
kills_are_no_failures.args = ("--cancel-grace-ms", "100")
SCENARIOS = [crash_in_run, kill_in_run, crash_in_compile, crash_in_prepare, work_beyond_bounds,
             changed_while_read, expected, crash_storm, put_aside, single_flight, long_compiles,
             deadline, hang_is_killed, kills_are_no_failures, grace_is_an_option, client_leaves,
             half_close, half_headers, ended_headers, stalled_bodies, per_address, warm_restart,
             two_daemons, bad_starts, no_package, full_disk, few_files,
             no_file_left, drain, lame,
             hostile_framing, compressed_bodies, big_tensors, upload_memory, receive_budget,
             receive_waits, many_clients, store_is_measured]

if __name__ == "__main__":
    sys.exit(scenarios("sched", SCENARIOS, lambda s: getattr(s, "args", ())))
