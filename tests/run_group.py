# SPDX-License-Identifier: Apache-2.0
"""Runs one group of tests under a time limit.

    run_group.py SECONDS COMMAND

Exits as the shell's COMMAND does. When the limit is over it prints what the group's processes are
and where they wait, ends them, and exits with 124. It stays in the caller's process group, so that
Ctrl-C reaches the tests too, and adopts what the tests leave behind, so that nothing outlives a
group that hung.
"""
import ctypes
import os
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36


def read(pid, name):
    try:
        with open("/proc/%d/%s" % (pid, name), "rb") as f:
            return f.read().decode(errors="replace")
    except OSError:
        return ""


def below(root):
    """(pid, depth) of each descendant of root, parents first."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read(int(name), "stat").rpartition(")")[2].split()
            if len(stat) > 1:
                children.setdefault(int(stat[1]), []).append(int(name))
    todo, out = [(p, 0) for p in children.get(root, [])], []
    while todo:
        pid, depth = todo.pop()
        out.append((pid, depth))
        todo += [(p, depth + 1) for p in children.get(pid, [])]
    return out


def show(pid, depth):
    """A line: the command, and of each thread its state, processor time and what it waits in."""
    tick, threads = os.sysconf("SC_CLK_TCK"), []
    try:
        tasks = os.listdir("/proc/%d/task" % pid)
    except OSError:
        return
    for task in tasks:
        stat = read(pid, "task/%s/stat" % task).rpartition(")")[2].split()
        if len(stat) > 12:
            threads.append("%s %.1fs %s" % (stat[0], (int(stat[11]) + int(stat[12])) / tick,
                                            read(pid, "task/%s/wchan" % task) or "?"))
    command = read(pid, "cmdline").replace("\0", " ").strip() or read(pid, "comm").strip()
    print("%s%d %s [%s]" % ("  " * depth, pid, command[:300], "; ".join(threads[:8])))


def late(*_):
    raise TimeoutError


def main():
    limit, command = float(sys.argv[1]), sys.argv[2]
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    group = subprocess.Popen(["sh", "-c", command])
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        while True:  # orphans of the tests are reaped here as well
            pid, status = os.waitpid(-1, 0)
            if pid == group.pid:
                signal.setitimer(signal.ITIMER_REAL, 0)
                rc = os.waitstatus_to_exitcode(status)
                return rc if rc >= 0 else 128 - rc
    except TimeoutError:
        pass
    print("FAIL the group did not end within %g s; its processes, state and time of threads:"
          % limit)
    for pid, depth in below(os.getpid()):
        show(pid, depth)
    sys.stdout.flush()
    for sig in (signal.SIGTERM, signal.SIGKILL):
        for pid, _ in below(os.getpid()):
            try:
                os.kill(pid, sig)
            except OSError:
                pass
        time.sleep(2)
    return 124


if __name__ == "__main__":
    sys.exit(main())
