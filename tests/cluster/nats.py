# SPDX-License-Identifier: Apache-2.0
"""What the tests of clusters share: a NATS server, a plain client of it that publishes whatever is
asked, messages by hand, nodes. Standard library only."""
import argparse
import hashlib, hmac, http.server, os, re, shutil, socket, struct, subprocess, sys, tempfile
import threading, time
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, ".."), os.path.join(HERE, "..", "fleet")]
from common import SECRET, Site, free_ports, secret
from harness import Daemon, Results, chosen, until

BEAT_MS = 200

class Nats:
    """a server on a port that stays the same when it is started again"""
    def __init__(self, program, port, *args):
        self.program, self.port, self.args = program, port, args
        self.url = f"nats://127.0.0.1:{port}"
        self.dir = tempfile.mkdtemp(prefix="hlod-nats-")
        self.start()

    def start(self):
        self.log = open(os.path.join(self.dir, "log"), "ab")
        self.p = subprocess.Popen([self.program, "-a", "127.0.0.1", "-p", str(self.port), "-sd",
                                   self.dir, *self.args], stdout=self.log, stderr=self.log)
        def there():
            assert self.p.poll() is None, open(self.log.name).read()
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return True
            except OSError:
                return False
        until("NATS listens", 20, there)

    def kill(self):
        self.p.kill()
        self.p.wait(timeout=10)
        self.log.close()

    def close(self):
        if self.p.poll() is None:
            self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)

class Raw:
    """a client that says what no library would"""
    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.s.recv(65536)
        self.s.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        self.pong()
    def pong(self):
        got = b""
        while b"PONG" not in got:
            more = self.s.recv(65536)
            assert more, got
            got += more
    def publish(self, payload, subject="hlod.v1.nodes"):
        self.s.sendall(f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\n")
    def flush(self):
        self.s.sendall(b"PING\r\n")
        self.pong()
    def close(self):
        self.s.close()

# ---- protobuf by hand

def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)
def text(field, s):
    b = s if isinstance(s, bytes) else s.encode()
    return varint(field << 3 | 2) + varint(len(b)) + b
def number(field, n):
    return varint(field << 3) + varint(n)

def beat(node="stranger", life="life", address="http://127.0.0.1:9", version="1", state="serving",
         targets=((b"cpu", b"build"),), devices=1, up=1, places=1, jobs=0, queued=0, max_queue=9,
         uptime=5, beat_ms=60000, kinds=(), more=b""):
    all = b"".join(text(6, text(1, t) + text(2, b)) for t, b in targets)
    return (text(1, node) + text(2, life) + text(3, address) + text(4, version) + text(5, state) +
            all + number(7, devices) + number(8, up) + number(9, places) + number(10, jobs) +
            number(11, queued) + number(12, max_queue) + number(13, uptime) + number(14, beat_ms) +
            b"".join(text(17, k) for k in kinds) + more)

# ---- sealed, as those do who have the secret (proto/formats/cluster.proto)

def mac(kind, body, key=SECRET, name="hlod"):
    return hmac.new(key.encode(), kind.encode() + b"\0" + name.encode() + b"\0" + body,
                    hashlib.sha256).digest()
def sealed(what, key=SECRET, name="hlod", late_ms=0, protocol=1, least=0):
    """a message: field 2 of Body is a beat, field 3 names"""
    body = (number(1, int(time.time() * 1000) - late_ms) + what + number(8, protocol) +
            number(9, least))
    return text(30, body) + text(31, mac("hlod cluster message 1", body, key, name))
def sealed_beat(**named):
    seal = {k: named.pop(k) for k in ("key", "name", "late_ms", "protocol", "least") if k in named}
    return sealed(text(2, beat(**named)), **seal)
def record(name="m", version=1, source=b"\1" * 32, tenant="default", revision=None, writer="x",
           removed=0, more=b""):
    us = int(time.time() * 1e6) if revision is None else revision
    return (text(1, name) + number(2, version) + text(3, source) + text(9, tenant) +
            number(10, us) + text(11, writer) + number(12, removed) + more)
def sealed_names(*records, whole=0, sum=0, **seal):
    return sealed(text(3, b"".join(text(1, r) for r in records) + number(2, whole) +
                       varint(3 << 3 | 1) + struct.pack("<Q", sum)), **seal)

# ---- nodes

def cluster(d, **headers):
    status, r = d.json("GET", "/v1/nodes", headers=headers)
    assert status == 200, r
    return r

def states(d):
    """{name: state} of all it knows, itself too"""
    return {n["node"]: n["state"] for n in cluster(d).get("nodes", [])}

def value(d, name, label=""):
    pattern = re.escape(name + label) + r" (\S+)"
    found = re.search("^" + pattern + "$", d.call("GET", "/metrics")[2].decode(), re.M)
    assert found, name + label
    return float(found.group(1))

class Nodes(Site):
    """n daemons of a cluster; shared: they have a secret; each: a list of options a node, which
    say `--cluster` where url does not"""
    def __init__(self, o, n, url, *options, shared=False, each=(), beat_ms=BEAT_MS):
        super().__init__(o, "nodes")
        self.d = self.all
        if shared:
            options += ("--cluster-secret", secret(self.folder, "cluster.secret"))
        self.args = [["--node", f"n{k}", "--cluster-beat-ms", str(beat_ms),
                      *(["--cluster", url] if url else []), *options,
                      *(each[k] if each else ())] for k in range(n)]
        try:
            for args in self.args:
                self.start(*args)
        except BaseException as e:
            self.__exit__(type(e))
            raise

    def meet(self):
        want = {f"n{k}": "serving" for k in range(len(self.d))}
        for d in self.d:
            until("all nodes are known", 15, lambda: states(d) == want)

    def restart(self, k):
        self.d[k] = Daemon(self.o.hlod, self.o.worker, data=self.d[k].dir, args=self.args[k])
        self.d[k].own = True

def tenants_tokens(o, site, **scopes):
    """a file of tokens, one of tenant t-NAME with those scopes for each name, and their headers"""
    file, auth = site.path("tokens"), {}
    for who, may in scopes.items():
        p = subprocess.run([o.hlo, "-q", "tokens", "add", who, "--file", file, "--tenant",
                            f"t-{who}", "--scopes", may], check=True, text=True,
                           capture_output=True, timeout=20)
        auth[who] = {"Authorization": "Bearer " + p.stdout.strip()}
    return file, auth

class Server:
    def __init__(self, o, *args):
        self.nats = Nats(o.nats, free_ports(1)[0], *args)
    def __enter__(self):
        return self.nats
    def __exit__(self, *rest):
        self.nats.close()

def model(name, more=""):
    return f"FAKE {name}\nin x f32 N,4\nout y f32 N,4\nweight 4\nartifact 1\n{more}".encode()

def upload(d, body, **headers):
    status, r = d.json("POST", "/v1/executables?shape=x=1x4", body,
                       {"Content-Type": "application/octet-stream", **headers})
    assert status == 200, r
    return r["sourceDigest"]

def name(d, what, digest, version=0, headers={}, **more):
    status, r = d.json("POST", "/v1/models", {"name": what, "model": digest, "version": version,
                                              **more}, headers)
    assert status == 200, r
    return r

def names(d, headers={}):
    """{(name, version): model} of all that are loaded"""
    r = d.json("GET", "/v1/models", headers=headers)[1].get("models", [])
    return {(m["name"], int(m["version"])): m["model"] for m in r if m.get("loaded")}

def agree(nodes, want, seconds=15):
    for d in nodes:
        until("all nodes know the same names", seconds, lambda: names(d) == want)

class Liar(http.server.ThreadingHTTPServer):
    """a node that answers as it is told, and keeps the passes it is shown"""
    daemon_threads = True
    def __init__(self):
        self.seen, self.answer = [], b""
        self.speaks = threading.Event()  # cleared: it takes requests, and is silent
        self.speaks.set()
        liar = self
        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 20
            def do_POST(self):
                liar.seen.append(self.headers.get("Authorization"))
                self.rfile.read(int(self.headers["Content-Length"]))
                liar.speaks.wait(60)
                self.send_response(200)
                self.send_header("Content-Length", str(len(liar.answer)))
                try:
                    self.end_headers()
                    self.wfile.write(liar.answer)
                except OSError:
                    pass  # more than it takes
            def log_message(self, *rest):
                pass
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()
    def __enter__(self):
        return self
    def __exit__(self, *rest):
        self.speaks.set()
        self.shutdown()
        self.server_close()
        self.thread.join(10)

def scenarios(prefix, short, every):
    """what the command line chooses of them: the exit code"""
    a, results = argparse.ArgumentParser(), Results()
    for p in ("hlod", "hlo", "worker", "nats"):
        a.add_argument("--" + p, required=True)
    a.add_argument("--short", action="store_true")
    a.add_argument("names", nargs="*")
    o = a.parse_args()
    for s in chosen(o, short if o.short else every):
        results.case(prefix + s.__name__, s, o)
    return results.code()
