#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How a daemon ends whose work does not (docs/operations.md, Drain): scripted workers
(tests/api/fake_worker.c), HTTP. Each scenario is a function; it fails by AssertionError. Standard
library only. Usage: ends.py --hlod BIN --worker BIN [NAME...]"""
import os, re, signal, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import FOREVER_MS, PATIENCE, in_thread, metric, running, scenarios, until
from faults import model, put, request

def active(d, n):
    until(f"{n} jobs are there", PATIENCE, lambda: metric(d, "hlod_jobs_active") == n)

def ends(d):
    d.p.send_signal(signal.SIGTERM)
    assert d.p.wait(PATIENCE) == 0

def told(replies):
    for t, out in replies:
        t.join()
        assert (out[0][0], out[0][1]["reason"]) == (503, "SHUTTING_DOWN"), out

def cut_off(d):
    """What still runs when drain_ms has passed is told so: replies, and streams to their last
    event."""
    slow, _ = put(d, f"run_ms {FOREVER_MS}")
    stream = running(d, request(slow))
    replies = [in_thread(d.json, "POST", "/v1/run", request(slow)) for _ in range(3)]
    active(d, 4)
    ends(d)
    told(replies)
    events = stream()
    assert (events[-2]["error"]["reason"] == "SHUTTING_DOWN"
            and events[-1]["done"]["code"] == "UNAVAILABLE"), events[-2:]

def cut_off_steps(d):
    replies = [in_thread(d.json, "POST", "/v1/executables?shape=x=1x4",
                         model(f"{step}_ms {FOREVER_MS}")) for step in ("ingest", "compile")]
    active(d, 2)
    ends(d)
    told(replies)

def stuck(d, role):
    """A worker that a signal does not end (stopped, or in a driver's hands) does not keep the
    daemon: it is killed after the grace."""
    source, _ = put(d, "run_ms 1")
    pid = int(re.search(rf"ev=worker\.ready .*role={role} pid=(\d+)", d.logs())[1])
    os.kill(pid, signal.SIGSTOP)
    reply = (in_thread(d.json, "POST", "/v1/run", request(source)) if role == "device" else
             in_thread(d.json, "POST", "/v1/executables?shape=x=1x4", model("# another")))
    active(d, 1)
    ends(d)
    told([reply])
    assert not os.path.exists(f"/proc/{pid}"), "the worker is left behind"

def stuck_device(d):
    stuck(d, "device")

def stuck_compiler(d):
    stuck(d, "compile")

def impatient(d):
    """Signals that come while it ends, to its last moment, do not kill it."""
    pid = int(re.search(r"ev=worker\.ready .*role=device pid=(\d+)", d.logs())[1])
    os.kill(pid, signal.SIGSTOP)
    def again():
        d.p.send_signal(signal.SIGTERM)
        d.p.send_signal(signal.SIGHUP)
        return d.p.poll() is not None
    until("it ends", PATIENCE, again)
    assert d.p.returncode == 0, d.p.returncode
    assert not os.path.exists(f"/proc/{pid}"), "the worker is left behind"

SCENARIOS = [cut_off, cut_off_steps, stuck_device, stuck_compiler, impatient]
for s in SCENARIOS:
    s.ends = True
    s.args = ("--drain-ms", "300", "--cancel-grace-ms", "300")

if __name__ == "__main__":
    sys.exit(scenarios("ends", SCENARIOS, lambda s: s.args))
