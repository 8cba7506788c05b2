#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The container image's tree as an engine runs it, without an engine: hlod as process 1 of
namespaces of its own, on a root that is read-only but for the data folder, as the image's user and
as another (`--user`). Its health check, its answers, how it ends by SIGTERM, and what it says of a
data folder that its user may not write.

Limits of memory are tests/unit's (base/limits): they need a control group of the test's own. Usage:
contained.py ROOT (root; a tree that has /usr/bin/hlod)"""
import json, os, re, signal, subprocess, sys, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Results

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
HEALTH = json.loads(re.search(r"^HEALTHCHECK .*CMD (\[.*\])$",
                              open(os.path.join(ROOT, "Dockerfile")).read(), re.M).group(1))
IMAGE_USER, OTHER = 65532, 12345
LOOPBACK = "import sys; sys.path.insert(0, sys.argv[1]); import harness; harness.loopback_up()"
DOUBLE = ("HloModule double\n\nENTRY main {\n  x = f32[2,3] parameter(0)\n  ROOT y = f32[2,3] "
          "add(x, x)\n}\n")
ENV = {"PATH": os.environ["PATH"], "HLOD_DATA": "/var/lib/hlod", "HLOD_HTTP": "0.0.0.0:8000",
       "HLOD_GRPC": "0.0.0.0:8001"}


class Contained:
    """hlod in namespaces of its own. owner: of the data folder."""

    def __init__(self, root, user, owner, **env):
        data, tests = os.path.join(root, "var/lib/hlod"), os.path.join(ROOT, "tests")
        script = (
            f'''mount --make-rprivate / && mount --bind "{root}" "{root}" && mount -o remount,bind,ro "{root}" && mount -t proc proc "{root}/proc" && mount --rbind /dev "{root}/dev" &&
mount -t tmpfs -o uid={owner},gid={owner},mode=700 tmpfs "{data}" && "{sys.executable}" -c "{LOOPBACK}" "{tests}" && exec chroot --userspec={user}:{user} "{root}" /usr/bin/hlod''')
        self.user = user
        self.p = subprocess.Popen(["unshare", "-mnpf", "--kill-child", "sh", "-c", script],
                                  env={**ENV, **env}, stderr=subprocess.PIPE, text=True)

    def pid(self):
        """Process 1 once it is hlod; 0 before."""
        with open(f"/proc/{self.p.pid}/task/{self.p.pid}/children") as f:
            pid = int((f.read().split() or ["0"])[0])
        if not pid:
            return 0
        with open(f"/proc/{pid}/comm") as f:
            return pid if f.read() == "hlod\n" else 0

    def inside(self, *words):
        """As an engine's `exec`: in the same namespaces, on the same root, as the same user."""
        return subprocess.run(["nsenter", "-t", str(self.pid()), "-m", "-n", "-p", "-r", "-w", "-S",
                               str(self.user), "-G", str(self.user), *words], env=ENV,
                              capture_output=True, text=True, timeout=60)

    def healthy(self):
        end = time.monotonic() + 60
        while self.p.poll() is None and time.monotonic() < end:
            if self.pid() and self.inside(*HEALTH).returncode == 0:
                return True
            time.sleep(0.2)
        return False

    def end(self):
        """(status, seconds, what it said) after SIGTERM to process 1, as `stop` does it."""
        begin = time.monotonic()
        if self.p.poll() is None:
            os.kill(self.pid(), signal.SIGTERM)
        said = self.p.communicate(timeout=60)[1]
        return self.p.returncode, time.monotonic() - begin, said


def identities(pid):
    """User ids of a process and all below it."""
    with open(f"/proc/{pid}/status") as f:
        out = set(re.search(r"^Uid:(.*)$", f.read(), re.M).group(1).split())
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        for child in f.read().split():
            out |= identities(int(child))
    return out


def runs(results, root, name, user):
    c = Contained(root, user, user, HLOD_INSECURE_ALLOW_ANONYMOUS="true")
    healthy = c.healthy()
    results(f"{name}: on a root that is read-only it becomes healthy, by the image's own check",
            healthy)
    if healthy:
        results(f"{name}: it and its workers are nobody else", identities(c.pid()) == {str(user)},
                identities(c.pid()))
        p = c.inside("/usr/bin/hlo", "run", "/double.hlo", "-i", "x=2x3xf32=1,2,3,4,5,6")
        results(f"{name}: a model runs",
                p.returncode == 0 and re.search(r"2\b.*4\b.*12\b", p.stdout, re.S),
                p.stdout + p.stderr)
    status, seconds, said = c.end()
    results(f"{name}: as process 1 it ends by SIGTERM, status 0", status == 0 and seconds < 20,
            (status, seconds, said[-900:]))


def main():
    root, results = os.path.abspath(sys.argv[1]), Results()
    for folder in ("proc", "dev", "var/lib/hlod"):
        os.makedirs(os.path.join(root, folder), exist_ok=True)
    with open(os.path.join(root, "double.hlo"), "w") as f:
        f.write(DOUBLE)
    runs(results, root, "the image's user", IMAGE_USER)
    runs(results, root, "--user", OTHER)
    c = Contained(root, OTHER, IMAGE_USER, HLOD_INSECURE_ALLOW_ANONYMOUS="true")
    status, _, said = (c.p.wait(60), 0, c.p.stderr.read()) if not c.healthy() else c.end()
    results("--user, a data folder of another user: refused, the folder and why named",
            status not in (0, None) and "/var/lib/hlod" in said and "ermission denied" in said,
            (status, said[-900:]))
    return results.code()


sys.exit(main())
