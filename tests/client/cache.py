#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cache of a daemon and its exchange with another one, by `hlo cache` over real workers: pins,
collection, verification (also by a new compile), push and pull, what is refused.
Standard library only.  Usage: cache.py --build DIR"""
import argparse, glob, json, os, subprocess, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results, metric

MODEL = """HloModule m
ENTRY main {
  x = f32[4,8] parameter(0)
  c = f32[] constant(%s)
  b = f32[4,8] broadcast(c), dimensions={}
  e = f32[4,8] exponential(x)
  ROOT y = f32[4,8] multiply(e, b)
}
"""
expect = Results()
check = expect.command

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    o = a.parse_args()
    def daemon(*options, **more):
        return Daemon(o.build + "/hlod", o.build + "/hlod-worker", args=options, **more)
    one, two = daemon(), daemon("--allow-cache-import")
    def addr(d):
        return "%s:%d" % d.addr
    def hlo(d, *words):
        return subprocess.run([o.build + "/hlo", "--addr", addr(d), *words], capture_output=True,
                              text=True, timeout=120)
    def model(k):
        path = os.path.join(one.dir, f"m{k}.hlo")
        with open(path, "w") as f:
            f.write(MODEL % k)
        return path
    def compile(d, k):
        return json.loads(hlo(d, "compile", model(k), "--json").stdout)["digest"]
    def listed(d):
        return {x["digest"]: x.get("pinned", False)
                for x in json.loads(hlo(d, "cache", "ls", "--json").stdout).get("executables", [])}
    def file_of(d, digest):
        return os.path.join(d.dir, "data", "executables", digest[:2], digest)
    try:
        keys = [compile(one, k) for k in range(4)]
        # Verification.
        check("verify all", hlo(one, "cache", "verify"), 0, r"^4 checked, [\d.]+ kB$")
        check("verify one by a new compile", hlo(one, "cache", "verify", keys[0], "--recompile"), 0,
              "1 checked.*; a new compile is the same")
        check("recompile needs a digest", hlo(one, "cache", "verify", "--recompile"), 3,
              err="name an executable")
        check("verify what is not there", hlo(one, "cache", "verify", "0" * 64), 3, err="NOT_FOUND")
        with open(file_of(one, keys[3]), "r+b") as f:
            f.seek(-1, os.SEEK_END)
            last = f.read(1)
            f.seek(-1, os.SEEK_END)
            f.write(bytes([last[0] ^ 1]))
        check("verify finds a flipped bit", hlo(one, "cache", "verify"), 1, f"damaged +{keys[3]}")
        expect("and puts it into quarantine",
               not os.path.exists(file_of(one, keys[3]))
               and len(glob.glob(os.path.join(one.dir, "data", "quarantine", "*"))) == 1)
        check("after which the cache is sound", hlo(one, "cache", "verify"), 0, "^3 checked")
        # A stored artefact that is whole but not what the compiler makes: its own digest fits.
        swap(one, file_of(one, keys[2]))
        check("the digest does not show another program", hlo(one, "cache", "verify", keys[2]), 0,
              "^1 checked")
        check("a new compile does", hlo(one, "cache", "verify", keys[2], "--recompile"), 1,
              f"differs +{keys[2]}.*'main'")
        check("rm", hlo(one, "cache", "rm", keys[2]), 0)
        # Pins.
        check("pin", hlo(one, "cache", "pin", keys[0]), 0)
        expect("it is shown", listed(one) == {keys[0]: True, keys[1]: False}, listed(one))
        check("a pinned one is not removed", hlo(one, "cache", "rm", keys[0]), 3, err="is pinned")
        check("pin of nothing", hlo(one, "cache", "pin", "0" * 64), 3, err="EXECUTABLE_NOT_FOUND")
        check("gc tells first", hlo(one, "cache", "gc", "--max", "1", "--dry-run"), 0,
              f"^{keys[1]}\n1 would go")
        check("gc", hlo(one, "cache", "gc", "--max", "1"), 0, f"^{keys[1]}\n1 removed")
        expect("the pinned one stays", listed(one) == {keys[0]: True}, listed(one))
        one.stop_keep()
        again = daemon(data=one.dir)
        expect("also after a restart", listed(again) == {keys[0]: True}, listed(again))
        check("unpin", hlo(again, "cache", "unpin", keys[0]), 0)
        check("gc by age keeps what was used lately", hlo(again, "cache", "gc", "--unused", "1h"),
              0, "^0 removed")
        os.utime(file_of(again, keys[0]), (1, 1))
        check("and removes what was not", hlo(again, "cache", "gc", "--unused", "30d"), 0,
              f"^{keys[0]}\n1 removed")
        check("gc needs a bound", hlo(again, "cache", "gc"), 2, err="--max")
        # Exchange.
        key = compile(again, 7)
        check("push", hlo(again, "cache", "push", key, "--to", addr(two)), 0, f"^{key}")
        check("push again", hlo(again, "cache", "push", key, "--to", addr(two)), 0, "was there")
        before = metric(two, "hlod_compiles_total")
        p = check("the other one need not compile",
                  hlo(two, "run", model(7), "-i", "x=4x8xf32=" + ",".join(["0"] * 32)), 0, r"7 7 7",
                  "cached")
        expect("nor did it", metric(two, "hlod_compiles_total") == before == 0)
        check("push to one that does not take any",
              hlo(two, "cache", "push", key, "--to", addr(again)), 77,
              err="IMPORT_REFUSED.*--allow-cache-import")
        check("pull of nothing", hlo(two, "cache", "pull", "0" * 64, "--from", addr(again)), 3,
              err="EXECUTABLE_NOT_FOUND")
        check("pull without trust needs the model",
              hlo(two, "cache", "pull", compile(again, 8), "--from", addr(again), "--recompile"), 3,
              err="NOT_FOUND")
        compile(two, 9)
        key = compile(again, 9)
        check("pull without trust",
              hlo(two, "cache", "pull", key, "--from", addr(again), "--recompile"), 0,
              f"^{key}  was there")
        hlo(two, "cache", "rm", key)
        check("pull without trust compiles",
              hlo(two, "cache", "pull", key, "--from", addr(again), "--recompile"), 0,
              f"^{key}  compiled")
        hlo(two, "cache", "rm", key)
        check("pull", hlo(two, "cache", "pull", key, "--from", addr(again)), 0, f"^{key}")
        # What is refused of a bundle.
        hlo(two, "cache", "rm", key)
        status, bundle = again.json("GET", f"/v1/executables/{key}/bundle")
        def sent(change):
            b = json.loads(json.dumps(bundle))
            change(b)
            status, r = two.json("POST", "/v1/cache/import", b)
            return status, r
        changes = {"another target in the record": lambda b: b["info"].update(
                       targetId=b["info"]["targetId"] + "x"),
                   "another program": lambda b: b["info"].update(programDigest="1" * 64),
                   "another digest": lambda b: b["info"].update(digest="2" * 64),
                   "a changed artefact": lambda b: b.update(artifact="AAAA" + b["artifact"][4:]),
                   "options that the key does not have": lambda b: b["info"].update(
                       options="precision=strict"), "no artefact": lambda b: b.update(artifact=""),
                   "another build": lambda b: b["info"].update(buildId="elsewhere")}
        for name, change in changes.items():
            status, r = sent(change)
            expect("refused: " + name, status == 400 and r["reason"] == "IMPORT_REFUSED",
                   (status, r))
        expect("nothing of it came in", key not in listed(two), listed(two))
        status, r = sent(lambda b: None)
        expect("as it is, it comes in", (status, r) == (200, {"digest": key}), (status, r))
        signatures(o, daemon, hlo, addr, compile, again)
        expect("the daemons end well", (again.stop_keep(), two.stop()) == (0, 0))
    finally:
        for d in one, two:
            if d.p.poll() is None:
                d.kill()
            d.clean()
    return expect.code()

def signatures(o, daemon, hlo, addr, compile, plain):
    """Daemons that share a cache key, one that has another, and `plain`, which has none."""
    folder = plain.dir
    def keys(name, *lines, mode=0o600):
        path = os.path.join(folder, name)
        with open(path, "w") as f:
            f.write("".join(l + "\n" for l in lines))
        os.chmod(path, mode)
        return path
    first, second, other = "1f" * 32, "2e" * 32, "3d" * 32
    options = lambda path: ("--allow-cache-import", "--cache-key", path)
    for name, path, text in (("a short key", keys("short", "secret"),
                              "short:1: a key has at least 32"),
                             ("a key that all may read", keys("open", first, mode=0o644),
                              "is a secret"), ("no key", keys("none", "# nothing"), "has no key"),
                             ("no file", os.path.join(folder, "nothing"), "No such file")):
        p = subprocess.run([o.build + "/hlod", "--check-config", "--data", folder, "--cache-key",
                            path], capture_output=True, text=True, timeout=20)
        expect("hlod does not start with " + name,
               p.returncode != 0 and text in p.stderr and first not in p.stderr, p.stderr)
    ci, server, stranger = (daemon("--cache-key", keys("ci", first)),
                            daemon(*options(keys("server", "# new, then old", second, first))),
                            daemon(*options(keys("stranger", other))))
    trusting = daemon("--allow-cache-import")
    try:
        key = compile(ci, 21)
        check("signed: push", hlo(ci, "cache", "push", key, "--to", addr(server)), 0, f"^{key}")
        check("signed: it runs there", hlo(server, "run", os.path.join(plain.dir, "m21.hlo"), "-i",
                                           "x=4x8xf32=" + ",".join(["0"] * 32)), 0, "21 21 21",
              "cached")
        check("signed by another key: refused",
              hlo(ci, "cache", "push", key, "--to", addr(stranger)), 77,
              err="IMPORT_REFUSED.*not by a key that this server trusts")
        check("one that vouches passes it on, by its own first key",
              hlo(server, "cache", "push", key, "--to", addr(trusting)), 0, f"^{key}")
        unsigned = compile(plain, 22)
        check("unsigned: refused", hlo(server, "cache", "pull", unsigned, "--from", addr(plain)),
              77, err="IMPORT_REFUSED.*no signature")
        # Taken without a key, then the daemon gets one: it does not vouch for what it does not
        # know.
        check("unsigned: taken where nobody asks",
              hlo(trusting, "cache", "pull", unsigned, "--from", addr(plain)), 0, f"^{unsigned}")
        own = compile(trusting, 23)
        trusting.stop_keep()
        later = daemon(*options(keys("later", first)), data=trusting.dir)
        check("taken unsigned: not signed afterwards",
              hlo(later, "cache", "push", unsigned, "--to", addr(server)), 77, err="no signature")
        check("signed by a key that the other has not got yet: refused",
              hlo(server, "cache", "push", key, "--to", addr(later)), 77,
              err="not by a key that this server trusts")
        check("compiled there: signed", hlo(later, "cache", "push", own, "--to", addr(server)), 0,
              f"^{own}")
        # A signed bundle, changed.
        bundle_key = compile(ci, 24)
        status, bundle = ci.json("GET", f"/v1/executables/{bundle_key}/bundle")
        expect("a bundle has its signature", status == 200 and len(bundle["hmac"]) == 44,
               bundle.get("hmac"))
        def sent(change):
            b = json.loads(json.dumps(bundle))
            change(b)
            return server.json("POST", "/v1/cache/import", b)
        swapped = lambda text: ("B" if text[0] != "B" else "C") + text[1:]
        for name, change in {"its record": lambda b: b["info"].update(peakBytes="1"),
                             "its signature": lambda b: b.update(hmac=swapped(b["hmac"])),
                             "a signature cut short": lambda b: b.update(hmac=b["hmac"][:40]),
                             "no signature": lambda b: b.pop("hmac"),
                             "another's signature": lambda b: b.update(
                                 hmac=ci.json("GET", f"/v1/executables/{compile(ci, 25)}/bundle")[
                                     1]["hmac"])}.items():
            status, r = sent(change)
            expect("refused, changed: " + name, status == 403 and r["reason"] == "IMPORT_REFUSED",
                   (status, r))
        status, r = sent(lambda b: None)
        expect("as it is, also as JSON, it comes in", status == 200, (status, r))
        expect("keys are in no log", all(k not in d.logs() for d in (ci, server, stranger, later)
                                         for k in (first, second, other)))
        expect("these daemons end well",
               (ci.stop(), server.stop(), stranger.stop(), later.stop_keep()) == (0, 0, 0, 0))
    finally:
        for d in ci, server, stranger, trusting:
            if d.p.poll() is None:
                d.kill()
            d.clean()

def swap(d, path):
    """Replaces the artefact's program by another of the same length, with a header that fits."""
    import hashlib
    data = open(path, "rb").read()
    payload = data[48:]
    assert b"constant(2" in payload or b"broadcast" in payload
    at = payload.index(b"exponential")
    payload = payload[:at] + b"exponentiaX" + payload[at + 11:]
    with open(path, "wb") as f:
        # covers the key
        f.write(data[:16]
                + hashlib.sha256(bytes.fromhex(os.path.basename(f.name)) + payload).digest()
                + payload)

if __name__ == "__main__":
    sys.exit(main())
