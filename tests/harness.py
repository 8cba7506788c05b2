# SPDX-License-Identifier: Apache-2.0
"""What the tests with a daemon share: start and stop, requests, waiting, the runner of scenarios.
Standard library only.

    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    from harness import Daemon, until
"""
import argparse, contextlib, fcntl, http.client, json, os, re, shutil, signal
import socket, struct, subprocess, tempfile, threading, time, traceback

# What is waited for here comes in milliseconds, and a machine of two processors that others use may
# stand still for seconds: no wait is shorter than this. A test says what comes before what, or what
# is counted, and never how soon; what must not simply end by itself meanwhile lasts FOREVER_MS.
PATIENCE = 60
FOREVER_MS = 600_000

class Daemon:
    """A daemon on free ports with a folder of its own (or `data`, which stays); ends by stop() or
    kill()."""
    def __init__(self, hlod, worker, data=None, args=(), ready=True, env=None):
        self.hlod, self.worker = hlod, worker
        self.dir = data or tempfile.mkdtemp(prefix="hlod-test-")
        self.own = data is None
        self.config = os.path.join(self.dir, "hlod.toml")  # where an option says {config}
        open(self.config, "a").close()
        port_file = os.path.join(self.dir, "port")
        if os.path.exists(port_file):
            os.remove(port_file)
        self.log = open(os.path.join(self.dir, "log"), "a")
        self.p = subprocess.Popen([hlod, "--http", "127.0.0.1:0", "--port-file", port_file,
                                   "--grpc", "127.0.0.1:0", "--grpc-port-file", port_file + ".grpc",
                                   "--data", os.path.join(self.dir, "data"), "--worker", worker,
                                   *(x.replace("{config}", self.config) for x in args)],
                                  stderr=self.log, env=env)
        end = time.monotonic() + PATIENCE
        while not os.path.exists(port_file):
            if self.p.poll() is not None or time.monotonic() > end:
                raise SystemExit("the daemon did not start:\n" + self.logs())
            time.sleep(0.01)
        host, port = open(port_file).read().strip().rsplit(":", 1)
        self.addr = (host, int(port))
        self.grpc = open(port_file + ".grpc").read().strip()
        while ready and self.call("GET", "/readyz")[0] != 200:
            if time.monotonic() > end:
                raise SystemExit("the daemon is not ready:\n" + self.logs())
            time.sleep(0.01)

    def logs(self):
        self.log.flush()
        return open(self.log.name, errors="replace").read()

    def connect(self, timeout):
        return http.client.HTTPConnection(*self.addr, timeout=timeout)

    def call(self, verb, path, body=None, headers={}, timeout=2 * PATIENCE):
        c = self.connect(timeout)
        try:
            c.request(verb, path, body, headers)
            r = c.getresponse()
            return r.status, dict((k.lower(), v) for k, v in r.getheaders()), r.read()
        finally:
            c.close()

    def json(self, verb, path, body=None, headers={}):
        status, _, text = self.call(verb, path,
                                    json.dumps(body) if isinstance(body, (dict, list)) else body,
                                    {"Accept": "application/json", **headers})
        return status, json.loads(text)

    def stop_keep(self):
        """Ends it in good order; its folder stays."""
        self.p.send_signal(signal.SIGTERM)
        return self.p.wait(timeout=PATIENCE)

    def stop(self):
        code = self.stop_keep()
        self.clean()
        return code

    def kill(self):
        self.p.kill()
        self.p.wait()

    def clean(self):
        if self.own:
            shutil.rmtree(self.dir, ignore_errors=True)

def in_thread(fn, *args, **named):
    """(thread, list that gets the result, or the exception)"""
    out = []
    def work():
        try:
            out.append(fn(*args, **named))
        except (OSError, http.client.HTTPException) as e:
            out.append(e)
    t = threading.Thread(target=work)
    t.start()
    return t, out

def until(what, seconds, test):
    """Waits for it: so long, and PATIENCE at least."""
    seconds = max(seconds, PATIENCE)
    end = time.monotonic() + seconds
    while not test():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.02)

def metric(d, name):
    for line in d.call("GET", "/metrics")[2].decode().split("\n"):
        if line.startswith(name + " "):
            return float(line.split()[1])
    raise AssertionError(name)

def devices(d):
    return d.json("GET", "/v1/devices")[1]["devices"]

def device(d, name):
    return [x for x in devices(d) if x["name"] == name][0]

def at_work(d, name="cpu:0", runs=1):
    """Waits until that worker has so many runs, not more."""
    until(f"{name} has {runs} runs", PATIENCE, lambda: device(d, name).get("runs", 0) == runs)

def running(d, body):
    """A run, of the body of POST /v1/run, with which the worker has begun; gives a function that
    gives the rest of its events."""
    c = d.connect(2 * PATIENCE)
    c.request("POST", "/v1/run", json.dumps(body),
              {"Content-Type": "application/json", "Accept": "application/x-ndjson"})
    r = c.getresponse()
    while b'"running"' not in (line := r.readline()):
        assert line, "it never ran"
    return lambda: [json.loads(x) for x in r.read().splitlines() if x.strip()]

def expires_at_work(d, body, within_ms=FOREVER_MS):
    """A run, of the body of POST /v1/run, that takes within_ms at least and whose deadline passes
    when the worker has begun with it. Where this machine stalls the deadline may pass before: then
    it gets a later one."""
    for ms in 200, 2000, 20000:
        ms = min(ms, within_ms - 100)
        body = {**body, "options": {**body.get("options", {}), "timeout_ms": ms}}
        text = d.call("POST", "/v1/run", json.dumps(body),
                      {"Content-Type": "application/json", "Accept": "application/x-ndjson"})[2]
        events = [json.loads(line) for line in text.splitlines() if line.strip()]
        assert "DEADLINE" in str(events[-2:]), events
        if any("running" in e for e in events):
            return
    raise AssertionError("it never came to the worker")

def restarts(d):
    """The delays, in ms, after which the processes that were lost were begun again."""
    return [int(x) for x in re.findall(r"ev=worker\.lost.*restart_ms=(\d+)", d.logs())]

class Stopped:
    """The processes stand still, those that nobody kills meanwhile to the end."""
    def __init__(self, *pids):
        self.pids = pids
    def __enter__(self):
        for p in self.pids:
            os.kill(p, signal.SIGSTOP)
        return self
    def __exit__(self, *error):
        for p in self.pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(p, signal.SIGCONT)

def loopback_up():
    """In a fresh network namespace."""
    with socket.socket() as s:  # SIOCGIFFLAGS, SIOCSIFFLAGS: up
        flags = struct.unpack("16sh", fcntl.ioctl(s, 0x8913, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(s, 0x8914, struct.pack("16sh", b"lo", flags | 1))

def no_complaint(d):
    """No sanitizer wrote anything into the daemon's log; gives that log."""
    log = d.logs()
    assert not re.search(r"(Thread|Address|Leak)Sanitizer|runtime error",
                         log), "a sanitizer complains\n" + log[-3000:]
    return log

def ended(d):
    """It ends in good order, unless a test has ended it already; gives its log."""
    if d.p.poll() is None:
        d.stop_keep()
    assert d.p.returncode in (0, -signal.SIGKILL), f"it ended by {d.p.returncode}\n" + d.logs()
    return no_complaint(d)

def cpu_has(flag):
    """Whether this machine's CPU has it, as /proc/cpuinfo names it."""
    with open("/proc/cpuinfo") as f:
        return flag in next((x for x in f if x.startswith("flags")), "").split()


# Two branches that end a run, as checks which call back into Python where they fail.
ENDS = b"""HloModule ends
right {
  ROOT x.1 = f32[2] parameter(0)
}
wrong {
  x.2 = f32[2] parameter(0)
  ROOT raise = f32[2] custom-call(x.2), custom_call_target="xla_ffi_python_cpu_callback"
}
ENTRY main {
  x = f32[2] parameter(0)
  bad = s32[] parameter(1)
  worse = s32[] parameter(2)
  y = f32[2] conditional(bad, x, x), branch_computations={right, wrong}
  ROOT z = f32[2] conditional(worse, y, x), branch_computations={right, wrong}
}
"""


def multiplies_bf16():
    """Whether `fast` multiplies bf16 here: Intel's instructions for it pay with AMX alone."""
    with open("/proc/cpuinfo") as f:
        intel = "GenuineIntel" in f.read()
    return cpu_has("avx512_bf16") and (cpu_has("amx_bf16") or not intel)


class Results:
    """Lines `PASS name` and `FAIL name`, counted; what goes with a failure stands below it. At the
    end: sys.exit(results.code())."""
    def __init__(self):
        self.bad = self.n = 0

    def __call__(self, name, ok, text=""):
        self.n += 1
        self.bad += not ok
        print(f"PASS {name}" if ok else f"FAIL {name}\n{str(text)[-3000:]}", flush=True)

    def command(self, name, got, rc=0, out="", err=""):
        """A finished command (subprocess.run with text=True): its status, and regular expressions
        found in what it printed."""
        ok = got.returncode == rc and re.search(out, got.stdout) and re.search(err, got.stderr)
        self(name, ok,
             f"status {got.returncode}, expected {rc}\nstdout {got.stdout}\nstderr {got.stderr}")
        return got

    def each(self, checks, only=()):
        """checks: (name, function that gives None, or what is wrong)."""
        for name, check in checks:
            if not only or name in only:
                try:
                    why = check()
                except Exception:
                    why = traceback.format_exc()
                self(name, why is None, why)

    def case(self, name, fn, *args):
        """Runs fn(*args), which fails by an exception."""
        try:
            fn(*args)
            self(name, True)
        except Exception:
            self(name, False, traceback.format_exc())

    def scenario(self, name, d, fn, *args):
        """Runs fn(d, *args), which fails by an exception; then the daemon is there, and ends in
        good order, unless fn.ends says that it has ended it. Its folder goes."""
        start = time.monotonic()
        try:
            fn(d, *args)
            if not getattr(fn, "ends", False):
                assert d.p.poll() is None, f"the daemon died: {d.p.returncode}"
                assert d.stop_keep() == 0, "the daemon did not end cleanly"
            no_complaint(d)
            self(f"{name} ({time.monotonic() - start:.1f} s)", True)
        except Exception:
            self(name, False, traceback.format_exc() + "\n" + d.logs()[-2000:])
            if d.p.poll() is None:
                d.kill()
        d.clean()

    def code(self):
        return 1 if self.bad or not self.n else 0

def options(*paths):
    """The command line of a test: paths that must be given (options("build", "worker")), then names
    of scenarios; none: all."""
    a = argparse.ArgumentParser()
    for p in paths:
        a.add_argument("--" + p, required=True)
    a.add_argument("names", nargs="*")
    return a.parse_args()

def chosen(o, scenarios):
    return [s for s in scenarios if not o.names or s.__name__ in o.names]

def scenarios(title, all_of, args_of):
    """Runs each scenario (a function of a daemon) with a fresh daemon, whose options args_of gives.
    A scenario may have the attributes ready = False (do not wait until it serves) and ends = True
    (Results.scenario). Options: --hlod BIN --worker BIN [NAME...]. Gives the exit code."""
    o, results = options("hlod", "worker"), Results()
    for s in chosen(o, all_of):
        results.scenario(s.__name__,
                         Daemon(o.hlod, o.worker, args=args_of(s), ready=getattr(s, "ready", True)),
                         s)
    print(f"{title}: {results.n} scenarios, {results.bad} failures")
    return results.code()
