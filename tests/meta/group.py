# SPDX-License-Identifier: Apache-2.0
"""run_group.py: the command's exit code comes through, a group that hangs is shown and ended with
all that it started, orphans are reaped."""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def group(limit, command):
    done = subprocess.run([sys.executable, os.path.join(HERE, "..", "run_group.py"), str(limit),
                           command], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout


def main():
    failed = 0
    with tempfile.TemporaryDirectory(prefix="hlod-group-") as folder:
        pid = os.path.join(folder, "pid")
        hangs = "(sleep 61 & echo $! >%s); sleep 62 | cat" % pid
        rc, text = group(1, hangs)
        with open(pid) as f:
            orphan = int(f.read())
        state = open("/proc/%d/stat" % orphan).read() if os.path.exists("/proc/%d" % orphan) else ""
        checks = [
            ("a hung group ends", rc == 124 and text.startswith("FAIL ")),
            ("its processes are shown", all(w in text for w in ("sleep 61", "sleep 62", " cat ["))),
            ("its orphans end too", not state or state.rpartition(")")[2].split()[0] == "Z"),
            ("exit codes", [group(20, c)[0] for c in ("exit 0", "exit 7", "kill -9 $$")] ==
             [0, 7, 137]),
            ("orphans are reaped", group(20, "(sleep 0.1 & echo $! >%s); sleep 0.5; "
                                         "! kill -0 $(cat %s)" % (pid, pid))[0] == 0),
        ]
    for name, good in checks:
        print("%s %s" % ("PASS" if good else "FAIL", name))
        failed += not good
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
