#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scenarios on simulated devices (devices/sim): the real daemon, real workers, real programs; only
time, memory and misfortune are made up. Each is a function whose docstring begins with the devices
it wants; it fails by AssertionError. Standard library only.
Usage: sim.py --hlod BIN --worker BIN [NAME...]"""
import os, re, signal, sys, threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import (PATIENCE, Stopped, at_work, device, devices, expires_at_work, in_thread,
                     metric, restarts, scenarios, until)

def program(add, n=4):
    """x + add, elementwise: a program of its own for each `add`."""
    return (f"HloModule m\nENTRY e {{\n  x = f32[{n}] parameter(0)\n  c = f32[] constant({add})\n  "
            f"b = f32[{n}] broadcast(c), dimensions={{}}\n  ROOT r = f32[{n}] add(x, b)\n}}\n")

def put(d, add=1, n=4):
    status, r = d.json("POST", "/v1/executables", program(add, n), {"Content-Type": "text/x-hlo"})
    assert status == 200, r
    return r["sourceDigest"]

def request(digest, n=4, **options):
    return {"model": digest,
            "inputs": [{"name": "x", "dtype": "f32", "shape": [n], "data": list(range(n))}],
            "options": options}

def run(d, digest, n=4, **options):
    return d.json("POST", "/v1/run", request(digest, n, **options))

def good(reply, add=1, n=4):
    status, r = reply
    assert status == 200 and r["outputs"][0]["data"] == [k + add for k in range(n)], reply
    return r

def bad(reply, status, reason):
    assert reply[0] == status and reply[1].get("reason") == reason, reply
    return reply[1]

# ---- scenarios

def answers(d):
    """sim
    What a simulated device computes is right, and it says how."""
    m = put(d, 3)
    r = good(run(d, m, profile=True), 3)
    rows = r["profile"]["rows"]
    assert [x["impl"] for x in rows] == ["reference"], rows
    x = device(d, "sim:0")
    assert (x["kind"], x["targetId"], x["state"]) == ("sim", "sim:1", "ready"), x

def virtual_time(d):
    """sim:latency_us=3600000000:clock=virtual
    An hour of the device's time takes none of ours and stands in the profile."""
    r = good(run(d, put(d), profile=True))  # the answer is not waited for so long
    assert r["profile"]["rows"][0]["ms"] == 3600e3, r["profile"]

def third_run_kills(d):
    """sim:crash=run@3
    The run that dies is UNAVAILABLE; the next is served by a new process, which began at once and
    was given the executable again."""
    m = put(d)
    good(run(d, m))
    good(run(d, m))
    first = device(d, "sim:0")["workerPid"]
    bad(run(d, m), 503, "WORKER_LOST")
    good(run(d, m))
    x = device(d, "sim:0")
    assert x["workerPid"] != first and x["restarts"] == 1 and restarts(d) == [0], x

def backoff(d):
    """sim:crash=run
    A device that dies at work is started again at once; one that dies with nothing to do at once
    the first time, then with a delay that doubles."""
    m = put(d)
    for _ in range(5):
        bad(run(d, m), 503, "WORKER_LOST")
    for _ in range(4):
        until("back", 3, lambda: device(d, "sim:0")["state"] == "ready")
        pid = device(d, "sim:0")["workerPid"]
        os.kill(pid, signal.SIGKILL)
        until("gone", 3, lambda: device(d, "sim:0")["state"] != "ready" or device(d, "sim:0")[
                  "workerPid"] != pid)
    assert restarts(d) == [0] * 5 + [0, 100, 200, 400], restarts(d)
    until("back", 3, lambda: device(d, "sim:0")["state"] == "ready")
    assert d.call("GET", "/readyz")[0] == 200

def never_starts(d):
    """sim:crash=open
    A device that cannot be opened is given up; the daemon lives, is not ready, and says why."""
    m = None
    def refused():
        nonlocal m
        status, m = d.json("POST", "/v1/executables", program(1), {"Content-Type": "text/x-hlo"})
        return status == 503 and m["reason"] == "NO_WORKER"
    until("refusal", 15, refused)
    assert d.call("GET", "/readyz")[0] == 503
    assert d.call("GET", "/healthz")[0] == 200

def hang(d):
    """sim:hang=run@2
    A run that hangs ends at its deadline; the process is killed after the grace, and the next run
    is served."""
    m = put(d)
    good(run(d, m))
    first = device(d, "sim:0")["workerPid"]
    expires_at_work(d, request(m))
    good(run(d, m))
    assert device(d, "sim:0")["workerPid"] != first

def stuck_in(d, word):
    """One request is in that step for ever, until its deadline; who comes meanwhile is served, by
    the old process only if it comes before the step, and later ones by a new process, in which the
    others' executables are again."""
    honest = put(d, 1)
    good(run(d, honest))
    first = device(d, "sim:0")["workerPid"]
    stuck = in_thread(run, d, put(d, 2), timeout_ms=3000)
    at_work(d, "sim:0")
    good(run(d, honest))
    stuck[0].join()
    bad(stuck[1][0], 504, "DEADLINE")
    until("a new process", PATIENCE,
          lambda: device(d, "sim:0").get("workerPid") not in (None, first))
    good(run(d, honest))
    assert restarts(d) == [0]
    until("the reason in the log", 3, lambda: word in d.logs())

def hang_in_prepare(d):
    """sim:hang=prepare@2
    A PREPARE that hangs ends at its request's deadline; the process is killed after the grace."""
    stuck_in(d, "a cancelled call did not end")

def hang_in_load(d):
    """sim:hang=load@2
    So does a LOAD."""
    stuck_in(d, "a cancelled call did not end")

def slow_step_is_stopped(d):
    """Preparing, or loading, that nobody waits for any more stops; the process is kept, and
    free."""
    m = put(d)
    pid = device(d, "sim:0")["workerPid"]
    for _ in range(2):
        bad(run(d, m, timeout_ms=1000), 504, "DEADLINE")
        status, r = d.json("POST", "/v1/buffers",
                           {"inputs": [{"name": "x", "dtype": "f32", "shape": [4],
                                        "data": [0, 1, 2, 3]}]})
        assert status == 200, r
    x = device(d, "sim:0")
    assert x["workerPid"] == pid and not x.get("plannedBytes"), x

def slow_prepare(d):
    """sim:prepare_us=600000000 --cancel-grace-ms=60000"""
    slow_step_is_stopped(d)
def slow_load(d):
    """sim:load_us=600000000 --cancel-grace-ms=60000"""
    slow_step_is_stopped(d)

def client_leaves_prepare(d):
    """sim:prepare_us=600000000 --cancel-grace-ms=60000
    A client that goes while weights are prepared for it takes the work with it; one of two that
    wait for the same does not."""
    m = put(d)
    gone = d.connect(30)
    gone.request(
        "POST", "/v1/run",
        '{"model":"%s","inputs":[{"name":"x","dtype":"f32","shape":[4],"data":[0,1,2,3]}]}' % m,
        {"Content-Type": "application/json"})
    at_work(d, "sim:0", 1)
    second = in_thread(run, d, m, timeout_ms=4000)
    at_work(d, "sim:0", 2)
    gone.sock.close()
    at_work(d, "sim:0", 1)
    second[0].join()
    bad(second[1][0], 504, "DEADLINE")
    assert d.json("POST", "/v1/buffers",
                  {"inputs": [{"name": "x", "dtype": "f32", "shape": [4],
                               "data": [0, 1, 2, 3]}]})[0] == 200
    at_work(d, "sim:0", 0)
    assert not device(d, "sim:0").get("restarts")

def cancelled_in_the_queue(d):
    """sim:latency_us=7000000 --cancel-grace-ms=4000
    A call whose deadline passes while it waits in the worker behind another's run is answered there
    at once: the run before it is not killed for it."""
    m = put(d)
    long = in_thread(run, d, m)
    at_work(d, "sim:0")
    bad(run(d, m, timeout_ms=300), 504, "DEADLINE")
    assert long[0].is_alive(), "it waited for the run before it"
    long[0].join()
    good(long[1][0])
    assert not device(d, "sim:0").get("restarts")

def slow_is_not_hung(d):
    """sim:latency_us=1500000 --cancel-grace-ms=60000
    A slow run that is cancelled by its deadline stops by itself: the process is kept, and nothing
    is loaded again."""
    m = put(d)
    good(run(d, m))
    first = device(d, "sim:0")["workerPid"]
    expires_at_work(d, request(m), 1500)
    good(run(d, m))
    x = device(d, "sim:0")
    assert x["workerPid"] == first and not x.get("restarts"), x

def out_of_memory_once(d):
    """sim:oom=run@2
    Device memory that runs out is the request's error, not the worker's end."""
    m = put(d)
    good(run(d, m))
    first = device(d, "sim:0")["workerPid"]
    r = bad(run(d, m), 429, "DEVICE_MEMORY")
    assert "memory" in r["message"]
    good(run(d, m))
    assert device(d, "sim:0")["workerPid"] == first

def memory_is_shared_out(d):
    """sim:memory=112K
    Programs that do not fit together take turns: the one used longest ago makes room. One that can
    never fit is refused, and the others still run."""
    n = 8000  # 32 KB resident (one buffer, sorted in place) and 64 KB in and out: one at a time
    def heavy(add):
        text = (
            f"HloModule m\nlt {{\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT l = "
            f"pred[] compare(a, b), direction=LT\n}}\nENTRY e {{\n  x = f32[{n}] parameter(0)\n"
            f"  s = f32[{n}] sort(x), dimensions={{0}}, to_apply=lt\n  c = f32[] constant({add})\n "
            f" b = f32[{n}] broadcast(c), dimensions={{}}\n  ROOT r = f32[{n}] add(s, b)\n}}\n")
        status, r = d.json("POST", "/v1/executables", text, {"Content-Type": "text/x-hlo"})
        assert status == 200, r
        return r["sourceDigest"]
    one, two = heavy(1), heavy(2)
    for _ in range(3):
        good(run(d, one, n), 1, n)
        good(run(d, two, n), 2, n)
    until("one resident", 3, lambda: device(d, "sim:0").get("residentExecutables") == 1)
    huge = put(d, 5, 20000)
    bad(run(d, huge, 20000), 429, "DEVICE_MEMORY")
    good(run(d, one, n), 1, n)

def log_by_a_pipe(d):
    """sim:lose=run@1
    What a worker says reaches the log, with which it was; the log's own descriptor it does not
    have."""
    for pid in {x["workerPid"] for x in devices(d)}:
        assert os.readlink(f"/proc/{pid}/fd/2").startswith("pipe:")
    bad(run(d, put(d)), 503, "WORKER_LOST")
    until("its last words", 5, lambda: re.search(r"ev=worker\.end .* worker=0\n", d.logs()))

def device_lost(d):
    """sim:lose=run@3
    A lost device costs its worker, in good order: the run is UNAVAILABLE, a new process opens the
    device anew."""
    m = put(d)
    good(run(d, m))
    good(run(d, m))
    r = bad(run(d, m), 503, "WORKER_LOST")
    assert "lost" in r["message"], r
    good(run(d, m))
    assert device(d, "sim:0")["restarts"] == 1

def prepare_and_load_fail(d):
    """sim:oom=load@1:crash=prepare@2
    Faults before the run: an error of this request, a death, then service."""
    m = put(d)
    bad(run(d, m), 429, "DEVICE_MEMORY")
    good(run(d, m))
    other = put(d, 7)
    bad(run(d, other), 503, "WORKER_LOST")
    # The next life has its own first load and first prepare.
    bad(run(d, other), 429, "DEVICE_MEMORY")
    good(run(d, other), 7)
    bad(run(d, m), 503, "WORKER_LOST")

def two_devices(d):
    """sim:latency_us=5000,sim:latency_us=5000
    Runs spread over two devices of a kind; one can be named; when one dies the other serves on."""
    m = put(d)
    good(run(d, m))
    assert sorted(x["name"] for x in devices(d)) == ["sim:0", "sim:1"]
    for name in "sim:0", "sim:1":
        assert good(run(d, m, device=name))["device"] == name
    with Stopped(*[x["workerPid"] for x in devices(d)]):
        work = [in_thread(run, d, m) for _ in range(4)]
        for name in "sim:0", "sim:1":
            until("each has some", PATIENCE, lambda: device(d, name).get("runs"))
    used = {(t.join(), good(out[0]))[1]["device"] for t, out in work}
    assert used == {"sim:0", "sim:1"}, used
    os.kill(device(d, "sim:0")["workerPid"], signal.SIGKILL)
    good(run(d, m))

def kinds_side_by_side(d):
    """sim,cpu
    A program for each kind under its own key; both give the same answer."""
    m = put(d)
    a, b = good(run(d, m, device="sim")), good(run(d, m, device="cpu"))
    assert a["executable"] != b["executable"] and a["outputs"] == b["outputs"]
    assert (a["device"], b["device"]) == ("sim:0", "cpu:0")

def killed_under_load(d):
    """sim:latency_us=20000,sim:latency_us=20000
    Workers are killed while many clients run: every request is answered, well or UNAVAILABLE, and
    in the end all is well."""
    m, stop, seen = put(d), threading.Event(), []
    good(run(d, m))
    def client():
        while not stop.is_set():
            seen.append(run(d, m))
    clients = [threading.Thread(target=client) for _ in range(8)]
    for c in clients:
        c.start()
    def some_more():
        n = sum(r[0] == 200 for r in seen) + 10
        until("some are served", PATIENCE, lambda: sum(r[0] == 200 for r in seen) >= n)
    for turn in range(4):
        some_more()
        pid = devices(d)[turn & 1]["workerPid"]
        if pid:
            os.kill(pid, signal.SIGKILL)
    some_more()
    stop.set()
    for c in clients:
        c.join()
    lost = [r for r in seen if r[0] != 200]
    assert all(s == 503 and r["reason"] == "WORKER_LOST" for s, r in lost), lost[:3]
    for r in seen:
        if r[0] == 200:
            good(r)
    until("both back", 5, lambda: all(x["state"] in ("ready", "busy") for x in devices(d)))
    good(run(d, m))

def kept(d, n):
    """Inodes of the tensor memory that the daemon keeps: n of them, when it has let go of what the
    last request had."""
    until(f"{n} kept", PATIENCE, lambda: len(open_memory(d)) == n)
    return open_memory(d)

def open_memory(d):
    out, folder = set(), f"/proc/{d.p.pid}/fd"
    for fd in os.listdir(folder):
        try:
            if "hlod-tensors" in os.readlink(f"{folder}/{fd}"):
                out.add(os.stat(f"{folder}/{fd}").st_ino)
        except FileNotFoundError:
            pass
    return out

def memory_is_kept(d):
    """sim:crash=run@4
    Tensor memory goes back and forth between requests; none that a worker held outlives it."""
    n = 100000
    m = put(d, 1, n)
    good(run(d, m, n), 1, n)
    first = kept(d, 2)  # inputs, results
    good(run(d, m, n), 1, n)
    good(run(d, put(d, 2, n), n), 2, n)
    assert kept(d, 2) == first, first
    bad(run(d, m, n), 503, "WORKER_LOST")
    kept(d, 0)
    good(run(d, m, n), 1, n)

def memory_is_not_shared(d):
    """sim,sim
    With two devices inputs are received before one is chosen: that memory is not kept, results are,
    each worker's its own."""
    n = 100000
    m = put(d, 1, n)
    for name in "sim:0", "sim:1":
        good(run(d, m, n, device=name), 1, n)
    both = kept(d, 2)
    for name in "sim:1", "sim:0":
        good(run(d, m, n, device=name), 1, n)
    assert kept(d, 2) == both

def keeps_nothing(d):
    """sim --keep-bytes=0
    Turned off, every request has fresh memory and gives it back."""
    n = 100000
    m = put(d, 1, n)
    good(run(d, m, n), 1, n)
    kept(d, 0)

def flight(d):
    """sim:latency_us=5000 --flight-bytes=500000 --alone-us=0
    A device worker gets no second run while its tensors in flight are beyond the bound; small runs
    go two at a time."""
    n = 100000  # 400 KB in, 400 KB out
    big, small = put(d, 1, n), put(d, 1)
    for m, k in (big, n), (small, 4):
        good(run(d, m, k), 1, k)
        with Stopped(device(d, "sim:0")["workerPid"]):
            work = [in_thread(run, d, m, k) for _ in range(2)]
            until("both are there", PATIENCE, lambda: metric(d, "hlod_jobs_active") == 2)
            if m == big:
                until("one waits", PATIENCE, lambda: metric(d, "hlod_jobs_queued") == 1)
            at_work(d, "sim:0", 1 if m == big else 2)
        for t, out in work:
            t.join()
            good(out[0], 1, k)

def kernel_filter(pid):
    with open(f"/proc/{pid}/status") as f:
        return [line.split()[1] for line in f if line.startswith("Seccomp:")][0]

def workers(d):
    """Process ids by role, from the log."""
    return {role: int(p)
            for role, p in re.findall(r"ev=worker\.ready worker=\d+ role=(\w+) pid=(\d+)",
                                      d.logs())}

def no_escape(d):
    """sim:escape=run@2
    A worker cannot open a file: the run fails with the system call's name, the daemon logs it, and
    the next run is served by the same process."""
    m = put(d)
    good(run(d, m))
    if d.json("GET", "/v1/devices")[1]["workerFilter"] != "on":
        assert "anitizer" in d.json("GET", "/v1/devices")[1]["workerFilter"]
        return
    assert ({kernel_filter(p) for p in workers(d).values()} == {"2"}
            and len(workers(d)) == 2), workers(d)
    first = device(d, "sim:0")["workerPid"]
    status, r = run(d, m)
    assert status == 403 and "openat" in r["message"] and "filter" in r["message"], r
    good(run(d, m))
    assert device(d, "sim:0")["workerPid"] == first
    until("in the log", 3, lambda: re.search(r"ev=worker\.refused .*last=openat", d.logs()))

def filter_off(d):
    """sim:escape=run --worker-filter=false
    Without the filter the same device opens its file, and everybody is told that it is off."""
    good(run(d, put(d)))
    assert {kernel_filter(p) for p in workers(d).values()} == {"0"}
    assert d.json("GET", "/v1/devices")[1]["workerFilter"].startswith("off: by option")
    assert "lvl=warn ev=server.filter" in d.logs()

def auto_picks(d):
    """sim:latency_us=500000,cpu --log=debug:place
    Work that may run anywhere goes to the first device until it is known there, is tried on the
    other once, and then stays where it was faster; other work follows from the start."""
    m = put(d)
    where = [good(run(d, m, device="auto"))["device"] for _ in range(8)]
    assert where == ["sim:0"] * 3 + ["cpu:0"] * 5, where
    assert (good(run(d, m, device="sim"))["device"] == "sim:0"
            and good(run(d, m))["device"] == "sim:0")
    other = put(d, 2)
    good(run(d, other, device="cpu"), 2)
    where = [good(run(d, other, device="auto"), 2)["device"] for _ in range(3)]
    assert where == ["cpu:0"] * 3, where
    third = put(d, 5, n=64)
    good(run(d, third, n=64, device="sim"), 5, n=64)  # measured there alone: planned for the other
    assert good(run(d, third, n=64, device="auto"), 5, n=64)["device"] == "cpu:0"
    until("in the log", 3, lambda: re.search(r"ev=place\.auto .*device=cpu why=tried of=2",
                                             d.logs()) and re.search(r"why=planned", d.logs()))

def drained(d):
    """sim:crash=run,cpu
    A device whose processes die one after another is drained: it says so, and work that may run
    elsewhere does."""
    m = put(d)
    assert good(run(d, m, device="cpu"))["device"] == "cpu:0"
    for _ in range(3):
        until("up again", 5, lambda: device(d, "sim:0")["state"] == "ready")
        bad(run(d, m, device="sim"), 503, "WORKER_LOST")
    x = device(d, "sim:0")
    assert x["drained"] and "ended" in x["why"], x
    assert (good(run(d, m))["device"] == "cpu:0"
            and good(run(d, m, device="auto"))["device"] == "cpu:0")
    assert d.json("POST", "/v1/executables", program(1),
                  {"Content-Type": "text/x-hlo"})[1]["executable"]["deviceKind"] == "cpu"
    until("in the log", 3,
          lambda: re.search(r"lvl=error ev=device\.drained .*device=sim:0", d.logs()))

never_starts.ready = False
SCENARIOS = [answers, virtual_time, third_run_kills, backoff, never_starts, hang, hang_in_prepare,
             hang_in_load, slow_prepare, slow_load, client_leaves_prepare, cancelled_in_the_queue,
             slow_is_not_hung, out_of_memory_once, memory_is_shared_out, device_lost, log_by_a_pipe,
             prepare_and_load_fail, two_devices, kinds_side_by_side, killed_under_load,
             memory_is_kept, memory_is_not_shared, keeps_nothing, flight, no_escape, filter_off,
             auto_picks, drained]

if __name__ == "__main__":
    sys.exit(scenarios("sched on sim", SCENARIOS,
                       lambda s: ["--device", *s.__doc__.split("\n")[0].split()]))
