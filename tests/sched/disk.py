#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A disk that changes what it was given, under load: clients run models, compile, put and get
blobs, upload in pieces, submit batch jobs and change names, while at random bits of files of the
data folder flip, files change places, are cut short, removed or replaced by older versions, the
disk is full, and the daemon is killed or restarted between. What must hold: no wrong answer with
200, no accepted job without a result, nothing but honest errors, each damage named in the log or by
`cache verify` (unless what was damaged is whole again: sent again, written back, or bytes that held
nothing), the daemon never ends by itself; and once the disk behaves and what was lost was sent
again, everything is served and `cache verify` finds nothing. Each
database lies there twice: one of the two is damaged at a time, until a look or a restart has mended
it. Needs numpy and onnx.
Usage: disk.py --build DIR [--seconds N] [--seed N] [--pace S] [--kills P]"""
import argparse, collections, hashlib, http.client, json, os, random, re
import shutil, sqlite3, subprocess, sys, tempfile, threading, time, traceback
import numpy as np
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), HERE]
from batching import graph
from harness import Daemon, until
from jobs import floats
from sim import program

HONEST = {"DATA_LOSS", "NOT_FOUND", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED",
          "CANCELLED", "ABORTED", "FAILED_PRECONDITION"}
HASHED = ("blobs", "programs", "executables")
K, N = 96, 8

class Wrong(AssertionError):
    pass

def weights(k):
    return np.random.default_rng(1000 + k).integers(-8, 8, (K, N)).astype(np.float32)

def model(k):
    """ONNX with weights of its own, bound when it is loaded."""
    return graph([("MatMul", "x w", "a", {}), ("Relu", "a", "y", {})], {"x": [1, K]}, {"y": [1, N]},
                 [("w", weights(k))])

def answer(k, x):
    return np.maximum(x @ weights(k), 0)

class World:
    def __init__(self, o):
        self.o, self.stop = o, threading.Event()
        self.dir = tempfile.mkdtemp(prefix="hlod-disk-")
        self.data = os.path.join(self.dir, "data")
        os.mkdir(self.data)
        self.megabytes = 160
        self.mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.megabytes}m",
                                       "none", self.data], capture_output=True).returncode == 0
        self.models = {k: model(k) for k in range(6)}
        self.digests = {k: hashlib.sha256(m).hexdigest() for k, m in self.models.items()}
        self.up = threading.Event()
        self.suites, self.lock = {}, threading.Lock()
        self.told = set()  # digests of what was taken with 200
        self.kinds = collections.Counter()
        self.start()

    def start(self):
        self.d = Daemon(self.o.build + "/hlod", self.o.build + "/hlod-worker", data=self.dir,
                        args=("--device", "cpu*2", "--compile-rate", "0", "--cache-bytes", "8M",
                              "--max-shapes", "8", "--upload-keep-s", "600"))
        self.up.set()

    def end(self, how):
        self.up.clear()
        time.sleep(0.05)
        self.d.kill() if how == "kill" else self.d.stop_keep()

    def room(self):
        """Five minutes of load fill any disk (uploads are kept, what is damaged is put aside): it
        is full when Disk.full says so, not before."""
        s = os.statvfs(self.data)
        while self.mounted and s.f_bavail * s.f_frsize < 48 << 20 and self.megabytes < 1200:
            self.megabytes += 80
            subprocess.run(["mount", "-o", f"remount,size={self.megabytes}m", self.data],
                           check=True)
            s = os.statvfs(self.data)

    def sizes(self):
        """MB by folder"""
        out = collections.Counter()
        for folder, _, names in os.walk(self.data):
            top = os.path.relpath(folder, self.data).split(os.sep)[0]
            for n in names:
                try:
                    out["put aside" if ".damaged" in n else top if top != "."
                        else n.split("-")[0]] += os.lstat(os.path.join(folder, n)).st_size
                except OSError:
                    pass
        return ", ".join(f"{k} {v / 1e6:.0f}" for k, v in out.most_common(8))

    def clean(self):
        if self.mounted:
            subprocess.run(["umount", "-l", self.data])
        shutil.rmtree(self.dir, ignore_errors=True)

    def verify(self):
        """Findings as text"""
        status, r = self.d.json("POST", "/v1/cache/verify", {})
        return [f"{f['digest']} {f['state']} {f.get('message', '')}"
                for f in r.get("findings", [])] if status == 200 else None

class Client(threading.Thread):
    def __init__(self, w, k):
        super().__init__(daemon=True)
        self.w, self.k, self.rng, self.np = w, k, random.Random(
            w.o.seed * 100 + k), np.random.default_rng(w.o.seed * 100 + k)
        self.seen, self.trouble, self.named = collections.Counter(), [], None
        self.sets = []  # of the name: model, answer, version

    def judge(self, what, status, r):
        """True: an answer to look at; False: an honest error."""
        if status == 200:
            self.seen[what + " OK"] += 1
            return True
        code = r.get("code")
        if code not in HONEST:
            raise Wrong(f"{what}: {status} {r}")
        self.seen[f"{what} {code}"] += 1
        return False

    def run_by(self, what, name, k):
        x = self.np.integers(-4, 4, (1, K)).astype(np.float32)
        status, r = self.w.d.json("POST", "/v1/run",
                                  {"model": name,
                                   "inputs": [{"name": "x", "dtype": "f32", "shape": [1, K],
                                               "data": x.ravel().tolist()}]})
        if self.judge(what, status, r):
            got = np.array(r["outputs"][0]["data"], np.float32)
            if not np.array_equal(got, answer(k, x).ravel()):
                found = [q for q in self.w.models if np.array_equal(got, answer(q, x).ravel())]
                raise Wrong(f"{what}: wrong answer: {got}, of model {found}, for {answer(k, x)} of "
                            f"{k}; the last sets: {self.sets[-6:]}")
            return True
        if r["code"] in ("DATA_LOSS", "NOT_FOUND"):
            self.upload(k)
        return False

    def upload(self, k):
        status, r = self.w.d.json("POST", "/v1/executables", self.w.models[k])
        if self.judge("upload", status, r):
            self.w.told.add(r["sourceDigest"])
            if r["sourceDigest"] != self.w.digests[k]:
                raise Wrong("upload: another digest")
        return status == 200

    def run_model(self):
        k = self.rng.randrange(len(self.w.models))
        self.run_by("run", self.w.digests[k], k)

    def compile(self):
        add = self.rng.randrange(1, 60)
        status, r = self.w.d.json("POST", "/v1/executables", program(add),
                                  {"Content-Type": "text/x-hlo"})
        if self.judge("compile", status, r):
            status, r = self.w.d.json(
                "POST", "/v1/run",
                {"model": r["executable"]["digest"],
                 "inputs": [{"name": "x", "dtype": "f32", "shape": [4], "data": [0, 1, 2, 3]}]})
            if (self.judge("compiled", status, r)
                and r["outputs"][0]["data"] != [add, add + 1, add + 2, add + 3]):
                raise Wrong(f"compiled: {r['outputs']}, not + {add}")

    def blob(self):
        data = self.rng.randbytes(self.rng.choice([10, 5000, 60000]))
        digest = hashlib.sha256(data).hexdigest()
        status, r = self.w.d.json("PUT", "/v1/blobs/" + digest, data)
        if not self.judge("blob", status, r):
            return
        self.w.told.add(digest)
        time.sleep(self.rng.random() * 0.3)
        status, _, got = self.w.d.call("GET", "/v1/blobs/" + digest)
        if status == 200 and got != data:
            raise Wrong("blob: other bytes")
        status != 200 and self.judge("blob got", status, json.loads(got))

    def pieces(self):
        """An upload in pieces, across restarts; its state is asked after each break."""
        data = self.rng.randbytes(200000)
        status, r = self.w.d.json("POST", "/v1/uploads",
                                  {"size": len(data), "digest": hashlib.sha256(data).hexdigest()})
        if not self.judge("pieces", status, r):
            return
        path, at, tries = "/v1/uploads/" + r["upload"], 0, 0
        while at < len(data) and tries < 40:
            tries += 1
            try:
                status, r = self.w.d.json("PUT", f"{path}?offset={at}", data[at:at + 40000])
                if status != 200:
                    status, r = self.w.d.json("GET", path)
                if not self.judge("piece", status, r):
                    if r["code"] in ("NOT_FOUND", "DATA_LOSS"):
                        return
                    time.sleep(0.05)
                    continue
                at = int(r.get("offset", 0))
            except (OSError, http.client.HTTPException):
                self.w.up.wait(20)
        status, r = self.w.d.json("POST", path + "/finish")
        if self.judge("pieces end", status, r):
            self.w.told.add(r["digest"])
            if r["digest"] != hashlib.sha256(data).hexdigest():
                raise Wrong("pieces: another digest")

    def name(self):
        """A name of this client's own: once it is set, it means that, through everything."""
        mine = f"name-{self.k}"
        if self.named is None or self.rng.random() < 0.5:
            k = self.rng.randrange(len(self.w.models))
            was, self.named = self.named, None  # until it is answered it may be either
            status, r = self.w.d.json("POST", "/v1/models",
                                      {"name": mine, "model": self.w.digests[k]})
            if self.judge("name", status, r):
                self.named = k
            elif r["code"] in ("DATA_LOSS", "NOT_FOUND"):
                self.upload(k)
            self.sets.append((k, status, r.get("code"), r.get("version")))
        if self.named is not None:
            self.run_by("by name", mine, self.named)

    def submit(self):
        k = self.rng.randrange(len(self.w.models))
        x = self.np.integers(-4, 4, (1, K)).astype(np.float32)
        blobs = []
        for v in (x, answer(k, x)):
            status, r = self.w.d.json("PUT", "/v1/blobs", floats(*v.ravel()))
            if not self.judge("job blob", status, r):
                return
            self.w.told.add(r["digest"])
            blobs.append(r["digest"])
        tensor = lambda n, b, shape: {"name": n, "dtype": "f32", "shape": shape, "blob": b}
        key = f"{self.k}-{self.seen.total()}"
        body = {"models": [{"model": self.w.digests[k]}],
                "inputs": [{"name": "a", "inputs": [tensor("x", blobs[0], [1, K])],
                            "expect": [tensor("y", blobs[1], [1, N])]}],
                "retry": {"maxAttempts": 5, "backoffMs": 50}, "idempotencyKey": key}
        status, r = self.w.d.json("POST", "/v1/jobs", body)
        if self.judge("job", status, r):
            with self.w.lock:
                self.w.suites[r["suite"]] = r["jobs"]
        elif r["code"] in ("DATA_LOSS", "NOT_FOUND"):
            self.upload(k)

    def run(self):
        acts = ([self.run_model] * 6 + [self.compile] * 2 + [self.blob] * 2
                + [self.pieces, self.name, self.name, self.submit, self.submit])
        while not self.w.stop.is_set():
            if not self.w.up.wait(1):
                continue
            act = self.rng.choice(acts)
            try:
                act()
            except (OSError, http.client.HTTPException) as e:
                self.seen["broken connection"] += 1  # the daemon was ended under it
                if self.w.up.is_set() and self.w.d.p.poll() is not None:
                    time.sleep(0.2)
                    if self.w.up.is_set() and self.w.d.p.poll() is not None:
                        self.trouble.append(f"the daemon ended by itself: {self.w.d.p.returncode}")
                        return
            except Wrong as e:
                self.trouble.append(str(e))
            except Exception:
                self.trouble.append(traceback.format_exc())
            time.sleep(0.01)

# ---- what happens to files

class Disk:
    def __init__(self, w):
        self.w, self.rng = w, random.Random(w.o.seed)
        self.old = collections.defaultdict(list)  # older versions of the databases
        self.open = []  # damage that must be named: (name, what, log position)
        self.hurt = set()  # databases one of whose two files is damaged
        self.done, self.healed, self.silent = collections.Counter(), 0, collections.Counter()

    def files(self):
        out = []
        for folder, _, names in os.walk(self.w.data):
            top = os.path.relpath(folder, self.w.data).split(os.sep)[0]
            if top in ("quarantine", "tmp"):
                continue
            out += [os.path.join(folder, n) for n in names
                    if n not in ("lock", "filler") and ".damaged" not in n
                    and not n.endswith(".new")]
        return out

    def pair(self, path):
        m = re.match(r"(journal|jobs)(\.copy)?\.db", os.path.basename(path))
        return m and m.group(1)

    def keep_old(self):
        for path in self.files():
            if self.pair(path) and path.endswith(".db") and self.rng.random() < 0.3:
                try:
                    with open(path, "rb") as f:
                        self.old[path] = (self.old[path] + [f.read()])[-4:]
                except OSError:
                    pass

    def note(self, path, what):
        self.done[what] += 1
        self.open.append((path, what, self.since))

    def flip(self, path):
        t = os.stat(path)
        with open(path, "r+b") as f:
            at = self.rng.randrange(max(1, t.st_size))
            f.seek(at)
            b = f.read(1)
            if not b:
                return
            f.seek(at)
            f.write(bytes([b[0] ^ (1 << self.rng.randrange(8))]))
        os.utime(path, ns=(t.st_atime_ns, t.st_mtime_ns))
        self.note(path, "flip")

    def cut(self, path):
        size = os.stat(path).st_size
        os.truncate(path, self.rng.choice([0, size // 2, max(0, size - 1)]))
        self.note(path, "cut")

    def remove(self, path):
        os.remove(path)
        self.note(path, "remove")

    def swap(self, path):
        other = self.rng.choice([p for p in self.files() if p != path and not self.pair(p)]
                                or [path])
        if other == path or self.pair(path):
            return
        os.rename(path, path + ".swap")
        os.rename(other, path)
        os.rename(path + ".swap", other)
        self.note(path, "swap")
        self.note(other, "swap")

    def older(self, path):
        if not self.old[path]:
            return
        try:
            with open(path + ".was", "wb") as f:
                f.write(self.rng.choice(self.old[path]))
        except OSError:  # the disk is full
            os.remove(path + ".was")
            return
        os.rename(path + ".was", path)
        self.note(path, "older")

    def full(self):
        """The disk is full for a while; or files may not grow."""
        filler = os.path.join(self.w.data, "filler")
        if self.w.mounted:
            with open(filler, "ab", buffering=0) as f:
                try:
                    while True:
                        f.write(bytes(65536))
                except OSError:
                    pass
        else:
            subprocess.run(["prlimit", "--fsize=4096:", "--pid", str(self.w.d.p.pid)], check=True)
        self.done["full"] += 1
        time.sleep(self.rng.random() * 1.5)
        if self.rng.random() < 0.3:
            self.restart("kill")
        if self.w.mounted:
            os.remove(filler)
        elif self.w.d.p.poll() is None:
            subprocess.run(["prlimit", "--fsize=unlimited:", "--pid", str(self.w.d.p.pid)],
                           check=True)

    def one(self):
        files = self.files()
        path = self.rng.choice([p for p in files if self.pair(p)] if self.rng.random() < 0.2
                               else files)
        what = self.rng.choice([self.flip, self.flip, self.cut, self.remove, self.swap, self.older])
        pair = self.pair(path)
        if pair in self.hurt:
            return
        try:
            n, self.since = len(self.open), len(self.w.d.logs())  # it may be noticed at once
            what(path)
            if pair and len(self.open) > n:
                self.hurt.add(pair)
        except OSError:
            pass  # it went meanwhile; or the disk is full

    def restart(self, how):
        self.done[how] += 1
        self.w.end(how)
        if self.rng.random() < 0.5:  # while it is down
            for _ in range(3):
                self.one()
        self.w.start()
        self.look()

    def whole(self, path):
        """Is what stands there what should? (sent again, written back, never more than a piece)"""
        top = os.path.relpath(path, self.w.data).split(os.sep)[0]
        try:
            with open(path, "rb") as f:
                data = f.read()
        except OSError:
            return top == "uploads" or path.endswith("-wal")
        if top == "uploads" or top.startswith("VERSION"):
            return True  # looked at when the upload goes on, and at the next start
        if top == "names.log":  # made again from the journal, or nothing was in it
            return all(hashlib.sha256(l[65:]).hexdigest() == l[:64].decode("latin-1")
                       for l in data.splitlines())
        if top == "blobs":
            return hashlib.sha256(data).hexdigest() == os.path.basename(path)
        if data[:8] == b"HLODENT2":
            return (hashlib.sha256(bytes.fromhex(os.path.basename(path)) + data[48:]).digest()
                    == data[16:48]
                    and int.from_bytes(data[8:16], "little") == len(data) - 48)
        return False

    def covered(self, path):
        """Is a database with its log sound, though its file was cut? (What was cut lies in the log
        too.)"""
        folder = tempfile.mkdtemp(prefix="hlod-disk-db-")
        try:
            for _ in range(5):  # the daemon may be writing it
                for end in "", "-wal":
                    if os.path.exists(path + end):
                        shutil.copy(path + end, os.path.join(folder, "x.db" + end))
                db = sqlite3.connect(os.path.join(folder, "x.db"))
                try:
                    if (db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                        and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]):
                        return True
                except sqlite3.DatabaseError:
                    pass
                finally:
                    db.close()
                time.sleep(.05)
            return False
        finally:
            shutil.rmtree(folder)

    def rows(self, digest):
        """In what of the databases the digest stands"""
        if not re.fullmatch("[0-9a-f]{64}", digest):
            return []
        out, raw = [], bytes.fromhex(digest)
        folder = tempfile.mkdtemp(prefix="hlod-disk-db-")
        for k in "journal", "journal.copy", "jobs", "jobs.copy":
            try:
                for end in "", "-wal":
                    if os.path.exists(f"{self.w.data}/{k}.db{end}"):
                        shutil.copy(f"{self.w.data}/{k}.db{end}",
                                    os.path.join(folder, f"{k}.db{end}"))
                db = sqlite3.connect(os.path.join(folder, k + ".db"))
                for table, in db.execute(
                    "SELECT name FROM sqlite_master WHERE type='table'").fetchall():
                    for row in db.execute(f"SELECT * FROM {table}"):
                        if any(isinstance(v, bytes) and (raw in v or digest.encode() in v)
                               or isinstance(v, str) and digest in v
                               for v in row):
                            out.append(f"{k}.{table} " + " ".join(str(v)[:40] for v in row))
                db.close()
            except (OSError, sqlite3.DatabaseError) as e:
                out.append(f"{k}: {e}")
        shutil.rmtree(folder)
        return out

    def look(self):
        """After each damage there is a look: is it named?"""
        found = self.w.verify()
        if found is None:
            return  # not now: the disk is full
        log = self.w.d.logs()
        for path, what, since in self.open:
            name = os.path.basename(path)
            said = [
                l for l in log[since:].split("\n") if name in l and re.search(
                    r"ev=(journal\.(damaged|behind)|store\.damaged|(blob|cache)\.\w+|upload\.\w+)",
                    l)]
            if said or any(name in f for f in found):
                self.w.kinds["named"] += 1
            elif self.pair(path) and (what in ("flip", "older") or path.endswith("-wal")):
                # older: its log may bring it up to now
                self.silent[f"{what} of bytes of a database that hold nothing"] += 1
            elif self.whole(path) or (what == "cut" and self.pair(path) and self.covered(path)):
                self.healed += 1
            elif not os.path.exists(path) and any(x[0] == path and x[1] == "remove"
                                                  for x in self.open) and "/executables/" in path:
                self.healed += 1  # evicted meanwhile
            elif (not os.path.exists(path) and "/blobs/" in path and name not in self.w.told
                  and not self.rows(name)):
                self.silent[
                    f"{what} of a blob that nobody was told of (its row was not written)"] += 1
            else:
                raise Wrong(f"{what} of {os.path.relpath(path, self.w.data)} is named nowhere "
                            f"(told: {name in self.w.told}, rows: {self.rows(name)}); found "
                            f"{[f[:30] for f in found][:20]}")
        self.open.clear()
        # What was found is mended now, unless there is no room: the next look tells.
        self.hurt &= {self.pair(f.split(" ")[0]) for f in found}

    def run(self):
        end = time.monotonic() + self.w.o.seconds
        looked = time.monotonic()
        while time.monotonic() < end:
            assert self.w.d.p.poll() is None, f"the daemon died: {self.w.d.p.returncode}"
            self.keep_old()
            self.w.room()
            r = self.rng.random()
            if r < self.w.o.kills:
                self.restart("kill")
            elif r < self.w.o.kills + 0.02:
                self.restart("stop")
            elif r < self.w.o.kills + 0.04:
                self.full()
            else:
                self.one()
            if time.monotonic() - looked > 2:
                self.look()
                looked = time.monotonic()
            time.sleep(self.rng.random() * 2 * self.w.o.pace)

# ---- the end

def afterwards(w, disk, clients):
    """The disk behaves again: what was lost is sent again, then all is well."""
    w.room()
    disk.look()
    w.end("kill")
    w.start()
    disk.look()
    c = Client(w, 99)
    for k in w.models:
        assert c.upload(k), "a model is not taken"
    for k in w.models:
        assert c.run_by("afterwards", w.digests[k], k), "a model is not served"
    for x in clients:
        if x.named is not None:
            assert c.run_by("afterwards by name", f"name-{x.k}", x.named), "a name is not served"
    ended = {"passed", "failed", "error", "cancelled"}
    states = collections.Counter()
    def over():
        states.clear()
        for suite, n in w.suites.items():
            jobs = w.d.json("GET", f"/v1/jobs?suite={suite}")[1].get("jobs", [])
            assert len(jobs) == int(n), f"suite {suite}: {len(jobs)} of {n} jobs are there"
            states.update(j["state"] for j in jobs)
        return set(states) <= ended
    until("accepted jobs end", 60, over)
    assert not states["failed"], f"jobs whose outputs differ: {states}"
    for suite, n in w.suites.items():
        status, r = w.d.json("GET", f"/v1/jobs/{suite}.1/result")
        assert status == 200, r
    w.verify()  # tells once more of what it forgets then
    gone = [f for f in w.verify() if " missing blob" not in f and " forgotten " not in f]
    assert not gone, f"still found: {gone}"
    return states

def without_the_journal(w, clients):
    """Both files of the journal are lost at once: names are known all the same, and say what they
    said."""
    w.end("kill")
    for name in "journal.db", "journal.copy.db":
        with open(os.path.join(w.data, name), "wb") as f:
            f.write(b"no database" * 1000)
    w.start()
    assert "ev=journal.salvaged" in w.d.logs(), "both files were lost, and nothing says so"
    c = Client(w, 97)
    for x in clients:
        if x.named is not None:
            assert c.run_by("by name without a journal", f"name-{x.k}",
                            x.named), f"a name is lost with the journal: {c.seen}"

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--seconds", type=float, default=300)
    a.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    a.add_argument("--pace", type=float, default=0.15)
    a.add_argument("--kills", type=float, default=0.04,
                   help="kill -9 instead of a damage, how often")
    o = a.parse_args()
    print(f"soak-disk: seed {o.seed}, {o.seconds:g} s", flush=True)
    w, bad, clients = World(o), [], []
    if not w.mounted:
        print("SKIP a disk of its own that is full (no mount here): files may not grow instead")
    try:
        first = Client(w, 98)
        for k in w.models:
            first.upload(k)
        clients = [Client(w, k) for k in range(5)]
        for c in clients:
            c.start()
        disk = Disk(w)
        try:
            disk.run()
        finally:
            w.stop.set()
            for c in clients:
                c.join(60)
        bad += [t for c in clients for t in c.trouble]
        states = afterwards(w, disk, clients)
        without_the_journal(w, clients)
        assert w.d.stop_keep() == 0, "the daemon did not end cleanly"
        total = sum((c.seen for c in clients), collections.Counter())
        for what in sorted(total):
            print(f"  {total[what]:8} {what}")
        print(f"  disk: {w.megabytes} MB; of them {w.sizes()}")
        print("  damage:", ", ".join(f"{n} {k}" for k, n in sorted(disk.done.items())))
        print(f"  {w.kinds['named']} named, {disk.healed} whole again before a look, "
              f"{dict(disk.silent)}; {len(w.suites)} accepted suites: {dict(states)}")
        for what in "run OK", "compile OK", "blob OK", "pieces end OK", "by name OK", "job OK":
            assert o.seconds < 15 or total[what], f"never happened: {what}"
    except (Exception, SystemExit) as e:
        print(f"  disk: {w.megabytes} MB; of them {w.sizes()}")
        bad.append(f"{e!r}\n{traceback.format_exc()}")
        print("\n".join(l for l in w.d.logs().split("\n")
                        if "its file was removed" not in l)[-6000:])
    assert not re.search(r"(Thread|Address|Leak)Sanitizer|runtime error",
                         w.d.logs()), "a sanitizer complains"
    w.d.p.poll() is None and w.d.kill()
    for t, n in collections.Counter(bad).most_common(20):
        print(f"  {n} x {t}")
    print("FAIL soak-disk" if bad else "PASS soak-disk", flush=True)
    w.clean()
    return 1 if bad else 0

if __name__ == "__main__":
    sys.exit(main())
