# SPDX-License-Identifier: Apache-2.0
"""hlod's side of the zoo: a daemon that runs models by path, times and profiles them; started again
when it is stuck."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import daemon  # noqa: E402


class Stuck(Exception):
    """No answer within the limit."""


class Hlod:
    """One daemon at a time. `limit`: seconds for any one request; what takes longer ends the daemon
    (Stuck)."""

    def __init__(self, build, limit=120, threads=2):
        self.build, self.limit, self.threads, self.d, self.sent = build, limit, threads, None, {}

    def __enter__(self):
        return self

    def __exit__(self, *a):
        self.end()

    def end(self):
        if self.d:
            self.d.kill() if self.d.p.poll() is None else None
            for pid in self.workers:
                try:
                    os.kill(pid, 9)
                except ProcessLookupError:
                    pass
            self.d.log.close()
            self.d.clean()
        self.d, self.sent = None, {}

    def start(self):
        if not self.d or self.d.p.poll() is not None:
            self.end()
            env = dict(os.environ, OMP_NUM_THREADS=str(self.threads))
            self.d = daemon.Daemon(self.build, env=env)
            self.d.raw = lambda verb, path, body=None, headers=None: self.d.call(
                verb, path, body, headers or {}, timeout=self.limit)
            self.workers = children(self.d.p.pid)
        return self.d

    def upload(self, model):
        """model: a path, or bytes. Gives the digest."""
        d = self.start()
        if isinstance(model, str) and model in self.sent:
            return self.sent[model]
        body, headers = model, {"Content-Type": "application/octet-stream"}
        if isinstance(model, str):
            with open(model, "rb") as f:
                body = f.read()
        digest = self.ask(d.json, "PUT", "/v1/blobs", body, headers)["digest"]
        if isinstance(model, str):
            self.sent[model] = digest
        return digest

    def run(self, model, inputs, **options):
        """(outputs, reply). Raises daemon.Refused, Stuck; a dead worker or daemon is Refused
        too."""
        digest = self.upload(model)
        return self.ask(self.d.run, digest, inputs, **options)

    def ask(self, f, *args, **named):
        try:
            return f(*args, **named)
        except TimeoutError:
            self.end()
            raise Stuck("no answer within %g s" % self.limit) from None
        except (ConnectionError, OSError) as e:
            self.end()
            raise daemon.Refused(
                0, {"message": "the daemon is gone: %s" % e, "reason": "CRASH"}) from None

    def memory(self):
        """Peak resident bytes of the workers together."""
        return sum(peak(p) for p in children(self.d.p.pid))


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            direct = [int(x) for x in f.read().split()]
    except OSError:
        return []
    return direct + [g for c in direct for g in children(c)]


def peak(pid="self"):
    try:
        with open("/proc/%s/status" % pid) as f:
            return next((int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM")), 0)
    except OSError:
        return 0
