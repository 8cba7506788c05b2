#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executables signed with Ed25519: a machine that compiles ahead has the private key, those that
serve have public ones; keys made, executables signed, moved and refused by `hlo cache`, and by the
cache at a prefix. Scripted workers; standard library and openssl.
Usage: signing.py --hlod BIN --worker BIN [NAME...]"""
import json, os, subprocess, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import Cache, Site, compile, compiles, model, secret, stats
from harness import Results, chosen, options, until

class Keys(Site):
    """and a cache at a prefix"""
    def __init__(self, o):
        super().__init__(o, "signing")
        self.cache = Cache()
    def hlo(self, *words, addr=None, rc=0):
        p = subprocess.run([os.path.join(os.path.dirname(self.o.hlod), "hlo"),
                            *(["--addr", "%s:%d" % addr.addr] if addr else []), *words],
                           capture_output=True, text=True, timeout=60)
        assert p.returncode == rc, (words, p.returncode, p.stdout, p.stderr)
        return p
    def keygen(self, name):
        """(private, public, id)"""
        j = json.loads(self.hlo("--json", "-q", "cache", "keygen", self.path(name)).stdout)
        return j["private"], j["public"], j["id"]
    def daemon(self, *args, remote=True):
        return self.start(*args, *(["--cache-remote", self.cache.url] if remote else []))
    def close(self):
        self.cache.close()
        super().close()

def put(site, d, body):
    status, r = compile(d, body)
    assert status == 200, r
    until("it is put", 5, lambda: any(p.endswith(r["digest"]) for p in site.cache.store))
    return r["digest"]

def keys(o):
    """what keygen makes, openssl reads; nothing is overwritten, a loose private key is refused"""
    with Keys(o) as site:
        private, public, id = site.keygen("ci")
        assert os.stat(private).st_mode & 0o777 == 0o600
        text = subprocess.run(["openssl", "pkey", "-in", private, "-text", "-noout"],
                              capture_output=True, text=True, check=True).stdout
        assert "ED25519 Private-Key" in text, text
        out = subprocess.run(["openssl", "pkey", "-in", private, "-pubout"], capture_output=True,
                             text=True, check=True).stdout
        assert out == open(public).read()
        assert "is there" in site.hlo("cache", "keygen", private, rc=2).stderr
        site.hlo("cache", "keygen", public[:-4] + "2", rc=0)
        os.chmod(private, 0o644)
        p = subprocess.run([o.hlod, "--check-config", "--data", site.folder, "--cache-sign",
                            private], capture_output=True, text=True)
        assert p.returncode and "is a secret" in p.stderr, p.stderr
        # keys of another kind, with a password, and none
        for name, how in (("rsa", ["genrsa", "2048"]), ("ec", ["genpkey", "-algorithm", "X25519"]),
                          ("locked", ["genpkey", "-algorithm", "ed25519", "-aes256", "-pass",
                                      "pass:geheim"])):
            text = subprocess.run(["openssl", *how], capture_output=True, text=True).stdout
            path = secret(site.folder, name, text)
            p = subprocess.run([o.hlod, "--check-config", "--data", site.folder, "--cache-sign",
                                path], capture_output=True, text=True, stdin=subprocess.DEVNULL)
            assert p.returncode and "cache_sign:" in p.stderr and "Ed25519" in p.stderr, p.stderr
            assert "PRIVATE" not in p.stderr

def ci_and_serving(o):
    """CI signs what it puts; a server with the public key takes it, and cannot sign itself"""
    with Keys(o) as site:
        private, public, id = site.keygen("ci")
        ci = site.daemon("--cache-sign", private)
        body = model("signed")
        key = put(site, ci, body)
        server = site.daemon("--cache-verify", public)
        status, r = compile(server, body)
        assert status == 200 and r["remote"] == site.cache.url, r
        assert r["executable"]["signedBy"] == id, r
        # what it compiles itself is put nowhere: nobody would take it
        n = len(site.cache.store)
        assert compile(server, model("own"))[0] == 200
        # CI itself takes what it signed
        again = site.daemon("--cache-sign", private)
        status, r = compile(again, body)
        assert r["remote"] and r["executable"]["signedBy"] == id, r
        assert len(site.cache.store) == n
        # it goes on with its signature, to one that has the public key only
        third = site.daemon("--cache-verify", public, "--allow-cache-import", remote=False)
        site.hlo("cache", "push", key, "--to", "%s:%d" % third.addr, addr=server)
        x = third.json("GET", f"/v1/cache/explain?a={key}")[1]["executable"]
        assert (x["origin"], x["signedBy"]) == ("import", id), x
        text = site.hlo("cache", "explain", key, addr=third).stdout
        assert f"import, signed by {id}" in text, text

def refused(o):
    """unsigned, by another's key, changed: refused, compiled here, counted"""
    with Keys(o) as site:
        private, public, id = site.keygen("ci")
        other, other_public, _ = site.keygen("other")
        ci, stranger = site.daemon("--cache-sign", private), site.daemon("--cache-sign", other)
        nobody = site.daemon("--insecure-cache-unsigned")
        bodies = [model(f"r{k}") for k in range(4)]
        put(site, stranger, bodies[0])
        put(site, nobody, bodies[1])
        key = put(site, ci, bodies[2])
        path = [p for p in site.cache.store if p.endswith(key)][0]
        whole = site.cache.store[path]
        at = whole.index(b"\x2a\x40") + 20  # the signature: field 5, 64 bytes
        site.cache.store[path] = whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:]
        server = site.daemon("--cache-verify", public)
        for k, why in ((0, "not by a key that this server trusts"), (1, "no signature"),
                       (2, "not by a key that this server trusts")):
            status, r = compile(server, bodies[k])
            said = r["executable"]["remotes"][0]
            assert said["outcome"] == "refused" and why in said["why"], said
        assert compiles(server) == 3 and stats(server)["refused"] == 3
        out = site.hlo("cache", "remotes", addr=server).stdout
        assert site.cache.url in out and "trusts" in out, out

def rotation(o):
    """several public keys in the file: the old one and the new one; then the new one alone"""
    with Keys(o) as site:
        old, old_public, old_id = site.keygen("old")
        new, new_public, new_id = site.keygen("new")
        both = site.path("both.pub")
        with open(both, "w") as f:
            f.write("# the old one\n" + open(old_public).read() + "\n" + open(new_public).read())
        put(site, site.daemon("--cache-sign", old), model("by old"))
        put(site, site.daemon("--cache-sign", new), model("by new"))
        server = site.daemon("--cache-verify", both)
        assert compile(server, model("by old"))[1]["executable"]["signedBy"] == old_id
        assert compile(server, model("by new"))[1]["executable"]["signedBy"] == new_id
        server = site.daemon("--cache-verify", new_public)
        r = compile(server, model("by old"))[1]
        assert r["executable"]["remotes"][0]["outcome"] == "refused", r
        assert compile(server, model("by new"))[1]["remote"]

def beside_hmac(o):
    """a secret and public keys: what either vouches for is taken"""
    with Keys(o) as site:
        private, public, id = site.keygen("ci")
        shared = secret(site.folder)
        put(site, site.daemon("--cache-sign", private), model("by key"))
        put(site, site.daemon("--cache-key", shared), model("by secret"))
        server = site.daemon("--cache-key", shared, "--cache-verify", public)
        assert compile(server, model("by key"))[1]["executable"]["signedBy"] == id
        assert compile(server, model("by secret"))[1]["executable"]["signedBy"] == "hmac"

def by_hand(o):
    """executables as files: exported, signed, imported; a folder of them is a remote's"""
    with Keys(o) as site:
        private, public, id = site.keygen("ci")
        ci = site.daemon(remote=False)
        key = compile(ci, model("file"))[1]["digest"]
        folder = site.path("out")
        path = site.hlo("cache", "export", key, "-o", folder, addr=ci).stdout.strip()
        assert path == f"{folder}/executables/{key[:2]}/{key}", path
        server = site.daemon("--cache-verify", public, "--allow-cache-import")
        p = site.hlo("cache", "import", path, addr=server, rc=77)
        assert "no signature" in p.stderr, p.stderr
        site.hlo("cache", "sign", path, "--sign-key", private)
        assert site.hlo("cache", "import", path, addr=server).stdout.strip() == key
        assert "was there" in site.hlo("cache", "import", path, addr=server).stdout
        # the same as a remote
        site.cache.store[f"/cache/executables/{key[:2]}/{key}"] = open(path, "rb").read()
        other = site.daemon("--cache-verify", public)
        r = compile(other, model("file"))[1]
        assert r["remote"] == site.cache.url and r["executable"]["signedBy"] == id, r
        # signed on its way
        key = compile(ci, model("pushed"))[1]["digest"]
        site.hlo("cache", "push", key, "--to", "%s:%d" % server.addr, "--sign-key", private,
                 addr=ci)
        site.hlo("cache", "export", key, "-o", folder, "--sign-key", private, addr=ci)
        site.hlo("cache", "sign", site.path("ci.pub"), "--sign-key", private, rc=2)
        site.hlo("cache", "sign", path, rc=2)
        with open(private) as f:
            body = f.read().split("\n")[1]
        assert all(body not in d.logs() for d in site.all)

def output(o):
    """what hlo compile and hlo cache explain say"""
    with Keys(o) as site:
        shared = secret(site.folder)
        a, b = site.daemon("--cache-key", shared), site.daemon("--cache-key", shared)
        path = site.path("m.fake")
        with open(path, "wb") as f:
            f.write(model("told"))
        out = site.hlo("compile", path, "--shape", "x=1x4", addr=a).stdout
        assert "cache        miss, compiled\n" in out, out
        assert f"  remote     {site.cache.url}: miss\n" in out, out
        until("it is put", 5, lambda: site.cache.store)
        out = site.hlo("compile", path, "--shape", "x=1x4", addr=b).stdout
        assert f"cache        hit, not compiled: from {site.cache.url}\n" in out, out
        out = site.hlo("compile", path, "--shape", "x=1x4", addr=b).stdout
        assert "cache        hit, not compiled\n" in out, out
        key = out.split()[1]
        out = site.hlo("cache", "explain", key, addr=b).stdout
        assert f"origin     {site.cache.url}, signed by hmac" in out, out
        assert "bindings   N=1" in out, out
        out = site.hlo("cache", "explain", key, addr=a).stdout
        assert "origin     compiled here" in out, out
        assert f"before     {site.cache.url}: miss" in out, out
        out = site.hlo("cache", "remotes", addr=b).stdout
        assert out.split()[:2] == ["up", "1"], out

def main():
    o, results = options("hlod", "worker"), Results()
    for s in chosen(o, [keys, ci_and_serving, refused, rotation, beside_hmac, by_hand, output]):
        results.case(s.__name__, s, o)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
