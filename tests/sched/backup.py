#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The databases of a running daemon backed up (SIGUSR1), brought back, and what is left where both
files of one are damaged. Usage: backup.py --build DIR --worker BIN"""
import argparse, os, re, shutil, signal, sys, tempfile, threading
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]
from harness import Daemon, Results, until

MODEL = b"FAKE\nin x f32 N,4\nout y f32 N,4\nweight 4\n"

def model(d, name):
    status, r = d.json("POST", "/v1/executables?shape=x=1x4", MODEL)
    assert status == 200, r
    status, r = d.json("POST", "/v1/models", {"name": name, "model": r["sourceDigest"]})
    assert status == 200, r

def run(d, name):
    return d.json("POST", "/v1/run",
                  {"model": name, "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                              "data": [1, 2, 3, 4]}]})[0]

def backed_up(d):
    n = d.logs().count("ev=server.backup folder=")
    d.p.send_signal(signal.SIGUSR1)
    until("backed up", 20, lambda: d.logs().count("ev=server.backup folder=") > n)

def restored(o):
    """Names and jobs of the moment of the backup, on another machine's folder; what came after is
    not there."""
    d, folder = Daemon(o.build + "/hlod", o.worker), tempfile.mkdtemp(prefix="hlod-backup-")
    try:
        model(d, "before")
        status, job = d.json("POST", "/v1/jobs",
                             {"models": [{"model": "before"}],
                              "inputs": [{"name": "i",
                                          "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4],
                                                      "raw": "AACAPwAAAEAAAEBAAACAQA=="}]}]})
        assert status == 200, job
        until("the job ended", 20,
              lambda: d.json("GET", f"/v1/jobs?suite={job['suite']}")[1]["jobs"][0]["state"] in (
                  "passed", "error", "failed"))
        state = d.json("GET", f"/v1/jobs?suite={job['suite']}")[1]["jobs"][0]["state"]
        stop = threading.Event()
        def names():  # while others write
            k = 0
            while not stop.is_set():
                d.json("POST", "/v1/models", {"name": f"during{k}", "model": "before"})
                k += 1
        t = threading.Thread(target=names)
        t.start()
        backed_up(d)
        backed_up(d)  # another in its place
        stop.set()
        t.join()
        model(d, "after")
        data = os.path.join(d.dir, "data")
        shutil.copytree(data, os.path.join(folder, "data"), ignore=lambda at, names: [
                            n for n in names
                            if at == data and (".db" in n or n in ("lock", "tmp", "backup"))])
        for n in "journal.db", "jobs.db":
            shutil.copy(os.path.join(data, "backup", n), os.path.join(folder, "data", n))
        d.kill()
        d2 = Daemon(o.build + "/hlod", o.worker, data=folder)
        # from names.log, which is newer
        assert run(d2, "before") == 200 and run(d2, "after") == 200
        assert re.search(r"ev=journal\.names restored=\d+ ", d2.logs())
        got = d2.json("GET", f"/v1/jobs?suite={job['suite']}")[1]["jobs"]
        assert len(got) == 1 and got[0]["state"] == state, got
        bad = [f for f in d2.json("POST", "/v1/cache/verify", {})[1].get("findings", [])
               if f["state"] != "forgotten"]
        assert not bad, bad
        assert os.path.exists(os.path.join(folder, "data",
                                           "journal.copy.db")), "the second file was not made"
        assert d2.stop_keep() == 0
    finally:
        d.p.poll() is None and d.kill()
        d.clean()
        shutil.rmtree(folder, ignore_errors=True)

def both_damaged(o):
    """Both files of a database are no databases: the daemon starts, says so, has the names still,
    and takes models again; a backup that is put there does as well."""
    d = Daemon(o.build + "/hlod", o.worker)
    try:
        model(d, "kept")
        backed_up(d)
        d.kill()
        data = os.path.join(d.dir, "data")
        for n in "journal.db", "journal.copy.db":
            with open(os.path.join(data, n), "r+b") as f:
                f.write(os.urandom(os.path.getsize(os.path.join(data, n))))
            if os.path.exists(os.path.join(data, n + "-wal")):
                os.remove(os.path.join(data, n + "-wal"))
        d2 = Daemon(o.build + "/hlod", o.worker, data=d.dir)
        assert "ev=journal.salvaged" in d2.logs() and 'lost="' in d2.logs()
        assert run(d2, "kept") == 200, "a name is in names.log too"
        model(d2, "again")
        assert run(d2, "again") == 200
        assert d2.stop_keep() == 0
        for n in "journal.db", "journal.copy.db":
            for end in "", "-wal":
                if os.path.exists(os.path.join(data, n + end)):
                    os.remove(os.path.join(data, n + end))
        os.remove(os.path.join(data, "names.log"))
        shutil.copy(os.path.join(data, "backup", "journal.db"), data)
        d3 = Daemon(o.build + "/hlod", o.worker, data=d.dir)
        assert run(d3, "kept") == 200 and run(d3, "again") == 404
        assert d3.stop_keep() == 0
    finally:
        d.p.poll() is None and d.kill()
        d.clean()

def nowhere(o):
    """A backup that cannot be written is an error in the log; the daemon goes on."""
    d = Daemon(o.build + "/hlod", o.worker)
    try:
        model(d, "kept")
        open(os.path.join(d.dir, "data", "backup"), "w").close()
        d.p.send_signal(signal.SIGUSR1)
        until("refused", 20, lambda: "lvl=error ev=server.backup" in d.logs())
        assert run(d, "kept") == 200 and d.stop_keep() == 0
    finally:
        d.p.poll() is None and d.kill()
        d.clean()

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--worker", required=True)
    o, results = a.parse_args(), Results()
    for case in restored, both_damaged, nowhere:
        results.case("backup " + case.__name__, lambda: case(o))
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
