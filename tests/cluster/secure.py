#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who a node is to NATS and to the others, in the forms that fleets use: a secret that is replaced
while all run, credentials with a key and a signed claim (.creds), client certificates, and batch
jobs over TLS. Keys are made by openssl. Standard library only.
Usage: secure.py --hlod BIN --hlo BIN --worker BIN --nats BIN [--short] [NAME...]"""
import base64, json, os, shutil, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from nats import (SECRET, Nodes, Raw, Server, agree, beat, cluster, model, name, scenarios, sealed,
                  states, text, upload, value)
from batch import SLOW, blob, inputs, ready, shares, submit, wait
from members import certificates
from common import secret
from harness import until

class Folder:
    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="hlod-cluster-")
        return self
    def __exit__(self, *rest):
        shutil.rmtree(self.path)
    def __call__(self, name):
        return os.path.join(self.path, name)
    def openssl(self, *words):
        return subprocess.run(["openssl", *words], cwd=self.path, check=True, capture_output=True,
                              timeout=60).stdout
    def write(self, name, text):
        with open(os.open(self(name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(text)
        return self(name)

def rotates(o):
    """the nodes' secret is replaced step by step while they run: none is lost, what is proved by
    the old one counts until it is dropped"""
    new = "a7" * 32
    with Server(o) as nats, Nodes(o, 2, nats.url, "--secrets-s", "1", shared=True) as n:
        n.meet()
        raw, taken = Raw(nats.port), [0]
        def step(text):
            secret(n.folder, "cluster.secret", text)
            taken[0] += 1
            for d in n.d:
                until("it is read", 20, lambda: d.logs().count("what=cluster_secret") >= taken[0])
        def heard(key):
            taken_by = f"x{int(time.monotonic() * 1e6)}"
            refused = value(n.d[0], "hlod_cluster_refused_total")
            raw.publish(sealed(text(2, beat(node=taken_by)), key))
            raw.flush()
            until("it is heard or not", 10, lambda: taken_by in states(n.d[0]) or
                  value(n.d[0], "hlod_cluster_refused_total") > refused)
            return taken_by in states(n.d[0])
        assert heard(SECRET) and not heard(new)
        step(SECRET + "\n" + new)
        assert heard(SECRET) and heard(new)
        step(new + "\n" + SECRET)
        step(new)
        assert heard(new) and not heard(SECRET)
        digest = upload(n.d[0], model("a"))
        name(n.d[0], "a", digest)
        agree(n.d, {("a", 1): digest})
        secret(n.folder, "cluster.secret", "short")  # a mistake changes nothing
        until("it is told", 20, lambda: value(n.d[0], "hlod_reload_ok") == 0)
        assert heard(new)
        for d in n.d:
            assert "ev=node.lost" not in d.logs() and new not in d.logs()
        raw.close()

# ---- NATS's own credentials: keys as it writes them, and claims that they sign

OPERATOR, ACCOUNT, USER, SEED = 14 << 3, 0, 20 << 3, 18 << 3

def key_text(head, raw):
    data, crc = bytes(head) + raw, 0
    for b in data:  # CRC-16/XMODEM
        crc ^= b << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xffff
    return base64.b32encode(data + crc.to_bytes(2, "little")).decode().rstrip("=")

class Key:
    def __init__(self, f, name, kind):
        self.f, self.name = f, name
        f.openssl("genpkey", "-algorithm", "ed25519", "-out", name + ".key")
        der = lambda *more: f.openssl("pkey", "-in", name + ".key", "-outform", "DER", *more)
        self.public = key_text([kind], der("-pubout")[-32:])
        self.seed = key_text([SEED | kind >> 5, (kind & 31) << 3], der()[-32:])
    def sign(self, about, **nats):
        part = lambda b: base64.urlsafe_b64encode(b).decode().rstrip("=")
        claim = {"jti": about.name, "iat": int(time.time()), "iss": self.public, "name": about.name,
                 "sub": about.public, "nats": {**nats, "version": 2}}
        said = ".".join(part(json.dumps(x).encode())
                        for x in ({"typ": "JWT", "alg": "ed25519-nkey"}, claim))
        self.f.write("said", said)
        return said + "." + part(self.f.openssl("pkeyutl", "-sign", "-inkey", self.name + ".key",
                                                "-rawin", "-in", "said"))

def creds(o):
    """a .creds file: who has none, or another account's, stays out; batch jobs go by it, too"""
    plain = {x: -1 for x in ("subs", "data", "payload", "imports", "exports", "conn", "leaf")}
    stream = {x: -1 for x in ("mem_storage", "disk_storage", "streams", "consumer")}
    def signed(by, x, **more):
        return by.sign(x, type="account", limits={**plain, **more, "wildcards": True},
                       default_permissions={"pub": {}, "sub": {}})
    def file(f, name, jwt, key):
        return f.write(name, f"-----BEGIN NATS USER JWT-----\n{jwt}\n"
                       "------END NATS USER JWT------\n\n-----BEGIN USER NKEY SEED-----\n"
                       f"{key.seed}\n------END USER NKEY SEED------\n")
    with Folder() as f:
        operator = Key(f, "operator", OPERATOR)
        account, stranger = Key(f, "account", ACCOUNT), Key(f, "stranger", ACCOUNT)
        user, system = Key(f, "user", USER), Key(f, "system", ACCOUNT)
        f.write("nats.conf", f"operator: {operator.sign(operator, type='operator')}\n"
                f"system_account: {system.public}\nresolver: MEMORY\nresolver_preload: {{\n"
                f"{account.public}: {signed(operator, account, **stream)}\n"
                f"{system.public}: {signed(operator, system)}\n}}\n")
        may = {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1, "type": "user"}
        good = file(f, "good.creds", account.sign(user, **may), user)
        bad = file(f, "bad.creds", stranger.sign(user, **may), user)
        with Server(o, "-js", "-c", f("nats.conf")) as nats:
            for args in [], ["--cluster-credentials", bad]:
                with Nodes(o, 1, nats.url, *args) as n:
                    until("refused", 15, lambda: "uthorization" in cluster(n.d[0]).get("why", ""))
            with Nodes(o, 2, nats.url, "--cluster-credentials", good, "--job-parallel", "2",
                       shared=True) as n:
                ready(n)
                jobs(n)
                for d in n.d:
                    assert user.seed not in d.logs()

def jobs(n):
    got = shares(wait(n.d[0], submit(n.d[0], blob(n.d[0], model("s", SLOW)), inputs(16))))
    assert got["n1"] and got[""], got

def client_certificates(o):
    """a NATS server that asks for certificates, and JetStream over TLS"""
    with Folder() as f:
        certificates(f.path)
        f.openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "node.key", "-out", "node.csr",
                  "-subj", "/CN=node")
        f.openssl("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                  "-CAcreateserial", "-out", "node.pem", "-days", "2")
        f.openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "other.key", "-out",
                  "other.pem", "-days", "2", "-subj", "/CN=node")
        ca = ("--cluster-ca", f("ca.pem"))
        shows = lambda who: ("--cluster-cert", f(who + ".pem"), "--cluster-key", f(who + ".key"))
        for x in "node.key", "other.key":
            os.chmod(f(x), 0o600)
        with Server(o, "-js", "--tlsverify", "--tlscert", f("nats.pem"), "--tlskey", f("nats.key"),
                    "--tlscacert", f("ca.pem")) as nats:
            url = f"tls://localhost:{nats.port}"
            for more in (), shows("other"):
                with Nodes(o, 1, url, *ca, *more) as n:
                    until("why", 15, lambda: cluster(n.d[0]).get("why"))
                    time.sleep(0.5)
                    assert cluster(n.d[0])["state"] == "connecting", cluster(n.d[0])
            with Nodes(o, 2, url, *ca, *shows("node"), "--job-parallel", "2", shared=True) as n:
                ready(n)
                jobs(n)

ALL = [rotates, creds, client_certificates]

if __name__ == "__main__":
    sys.exit(scenarios("cluster secure ", ALL[:1], ALL))
