#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Uploads in pieces over HTTP and gRPC: what is stored, offsets and sizes that lie, whose they are,
expiry, cancel, a full disk; and hlo with a large model through a proxy that cuts.
Usage: uploads.py --build DIR --worker BIN [NAME...]"""
import hashlib, os, random, socket, subprocess, sys, tempfile, time
import grpc
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "grpc"), os.path.join(HERE, "..")]
from client import OPTIONS, Api, Hlod, refused
from harness import Daemon, Results, chosen, in_thread, options, until

def model(size=0):
    """A model of the scripted worker with a tail that it passes over."""
    head = b"FAKE\nin x f32 N,4\nout y f32 N,4\nweight 4\n"
    return head + b"# " + random.Random(size).randbytes(
        max(0, size - len(head) - 2)).replace(b"\n", b".").replace(b"\0", b".")
def start(d, size, **more):
    code, r = d.json("POST", "/v1/uploads", {"size": size, **more}, d.as_a)
    assert (code == 200 and int(r.get("offset", 0)) == 0 and int(r["size"]) == size
            and int(r["pieceBytes"]) > 0), r
    return r["upload"]
def append(d, u, offset, data, who=None):
    return d.json("PUT", f"/v1/uploads/{u}?offset={offset}", data, who or d.as_a)
def said(got, code, reason, text=""):
    assert got[0] == code and got[1]["reason"] == reason and text in got[1]["message"], got
def held(d, u):
    return int(d.json("GET", "/v1/uploads/" + u, None, d.as_a)[1].get("offset", 0))
def files(d):
    return (os.listdir(os.path.join(d.dir, "data", "uploads"))
            + os.listdir(os.path.join(d.dir, "data", "tmp")))

def stored(d):
    """In pieces over HTTP; what was stored compiles by its digest, and is a blob of the
    tenant's."""
    data = model(300000)
    digest = hashlib.sha256(data).hexdigest()
    u = start(d, len(data), digest=digest)
    for at in range(0, len(data), 70000):
        code, r = append(d, u, at, data[at:at + 70000])
        assert code == 200 and int(r["offset"]) == min(at + 70000, len(data)) == held(d, u), r
    code, r = d.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a)
    assert code == 200 and r["digest"] == digest and int(r["bytes"]) == len(data), r
    assert d.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a) == (code, r), "asked again"
    said(append(d, u, len(data), b"x"), 400, "UPLOAD_OFFSET", "finished")
    assert files(d) == []
    code, r = d.json("POST", f"/v1/executables?model={digest}&shape=x=1x4", None, d.as_a)
    assert code == 200 and r["sourceDigest"] == digest, r
    assert d.call("GET", "/v1/blobs/" + digest, headers=d.as_a)[2] == data

def over_grpc(d):
    data = model(200000)
    r = d.hlod.StartUpload(size=len(data))
    while r.offset < r.size:
        r = d.hlod.AppendUpload(upload=r.upload, offset=r.offset,
                                data=data[r.offset:r.offset + 65536])
    refused(grpc.StatusCode.FAILED_PRECONDITION,
            lambda: d.hlod.AppendUpload(upload=r.upload, offset=0, data=data[:9]), "UPLOAD_OFFSET")
    done = d.hlod.FinishUpload(upload=r.upload)
    assert done.digest == hashlib.sha256(data).hexdigest() and done.bytes == len(data)
    assert d.hlod.Compile(model=done.digest,
                          shapes=[{"input": "x", "dims": [1, 4]}]).source_digest == done.digest
    r = d.hlod.StartUpload(size=9)
    d.hlod.CancelUpload(upload=r.upload)
    refused(grpc.StatusCode.NOT_FOUND, lambda: d.hlod.GetUpload(upload=r.upload),
            "UPLOAD_NOT_FOUND")

def hostile(d):
    """Offsets and sizes that are not so leave what is held as it was."""
    for size in (0, -1, -2**63):
        said(d.json("POST", "/v1/uploads", {"size": size}, d.as_a), 400, "BAD_OPTION")
    for size in (2**20 + 1, 2**63 - 1):
        said(d.json("POST", "/v1/uploads", {"size": size}, d.as_a), 413, "BODY_TOO_LARGE")
    said(d.json("POST", "/v1/uploads", {"size": 9, "digest": "00"}, d.as_a), 400, "BAD_DIGEST")
    u = start(d, 1000)
    assert append(d, u, 0, b"a" * 600)[0] == 200
    for offset in (0, 599, 601, 1000, -1, 2**63 - 1, -2**63):
        said(append(d, u, offset, b"b" * 100), 400, "UPLOAD_OFFSET", "600 of 1000 bytes are held")
    said(append(d, u, 600, b"b" * 401), 416, "BAD_RANGE")
    assert append(d, u, 2**63, b"b")[0] == 400
    said(d.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a), 400, "UPLOAD_OFFSET")
    said(append(d, u, 600, b"b" * (2**16 + 1)), 413, "BODY_TOO_LARGE")
    assert (held(d, u) == 600 and append(d, u, 600, b"")[0] == 200
            and append(d, u, 600, b"b" * 400)[0] == 200)
    code, r = d.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a)
    assert code == 200 and r["digest"] == hashlib.sha256(b"a" * 600 + b"b" * 400).hexdigest(), r
    u = start(d, 4, digest="0" * 64)
    append(d, u, 0, b"abcd")
    said(d.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a), 400, "BLOB_MISMATCH")
    said(d.json("GET", "/v1/uploads/" + u, None, d.as_a), 404, "UPLOAD_NOT_FOUND")
    for u in ("0" * 32, "x" * 4000, ".."):
        assert d.json("GET", "/v1/uploads/" + u, None, d.as_a)[0] == 404
    assert d.call("GET", "/v1/uploads/%00", None, d.as_a)[0] == 400
hostile.args = ("--max-model-bytes", "1M", "--max-message-bytes", "64K", "--max-json-bytes", "64K")

def tenants(d):
    """An upload is its tenant's; so many are open at a time, and those that are finished give
    way."""
    other = {"Hlod-Tenant": "b"}
    u = start(d, 10)
    for verb, path in (("GET", ""), ("PUT", "?offset=0"), ("POST", "/finish"), ("DELETE", "")):
        said(d.json(verb, f"/v1/uploads/{u}{path}", None, other), 404, "UPLOAD_NOT_FOUND")
    assert held(d, u) == 0
    second = start(d, 10)
    said(d.json("POST", "/v1/uploads", {"size": 10}, d.as_a), 429, "UPLOADS_FULL")
    assert d.json("POST", "/v1/uploads", {"size": 10}, other)[0] == 200
    append(d, u, 0, b"0123456789")
    assert d.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a)[0] == 200
    third = start(d, 10)
    assert (len({u, second, third}) == 3
            and d.json("GET", "/v1/uploads/" + u, None, d.as_a)[0] == 404)
    said(d.json("POST", "/v1/uploads", {"size": 10}, d.as_a), 429, "UPLOADS_FULL")
tenants.args = ("--max-uploads", "2")

def ends(d):
    """Cancel and time remove the file; each piece begins the time anew, and a restart does not."""
    u = start(d, 100)
    append(d, u, 0, b"x" * 10)
    assert len(files(d)) == 1
    assert d.json("DELETE", "/v1/uploads/" + u, None, d.as_a)[0] == 200
    until("the file to go", 5, lambda: files(d) == [])
    def pieces():
        """An upload of four, each in the time that the one before gave it; None: this machine
        stalled for so long."""
        u, at = start(d, 100), time.monotonic()
        for k in range(4):
            code, r = append(d, u, k, b"x")
            if code != 200 and time.monotonic() - at > 2.9:
                return None
            assert code == 200, (k, r)
            at = time.monotonic()
            time.sleep(1.2)
        return u
    u = pieces() or pieces() or pieces()
    assert u, "this machine stalled three times"
    until("the upload to expire", 5,
          lambda: d.json("GET", "/v1/uploads/" + u, None, d.as_a)[0] == 404)
    until("its file to go", 5, lambda: files(d) == [])
    u = start(d, 100)
    append(d, u, 0, b"x" * 10)
    d.kill()
    assert len(files(d)) == 1
    open(os.path.join(d.dir, "data", "uploads", "0" * 32), "w").write("of no upload")
    time.sleep(2)
    again = Daemon(d.hlod_path, d.worker, data=d.dir, args=d.more)
    assert "0" * 32 not in files(d)
    until("what was left to expire", 2,
          lambda: again.json("GET", "/v1/uploads/" + u, None, d.as_a)[0] == 404)
    until("its file to go", 2, lambda: files(d) == [])
    code = again.stop_keep()
    assert code == 0
ends.args = ("--upload-keep-s", "3")
ends.ends = True

def full(d):
    """No room: 507, and the upload goes on from where it was. The disk is a limit on the size of
    files."""
    data = random.Random(1).randbytes(3 << 20)
    u = start(d, len(data))
    assert append(d, u, 0, data[:1 << 20])[0] == 200
    subprocess.run(["prlimit", f"--pid={d.p.pid}", "--fsize=1500000:unlimited"], check=True)
    said(append(d, u, 1 << 20, data[1 << 20:]), 507, "STORE_FULL")
    assert held(d, u) == 1 << 20
    subprocess.run(["prlimit", f"--pid={d.p.pid}", "--fsize=unlimited:unlimited"], check=True)
    assert append(d, u, 1 << 20, data[1 << 20:])[0] == 200
    code, r = d.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a)
    assert code == 200 and r["digest"] == hashlib.sha256(data).hexdigest(), r

def left(d):
    """A client that leaves in the middle of a piece changes nothing."""
    data = model(3 << 20)
    u = start(d, len(data))
    for n in (0, 1, 100000, len(data) - 1):
        with socket.create_connection(d.addr) as s:
            s.sendall(b"PUT /v1/uploads/%s?offset=0 HTTP/1.1\r\nHost: localhost\r\nHlod-Tenant: "
                      b"a\r\nContent-Length: %d\r\n\r\n" % (u.encode(), len(data)) + data[:n])
    time.sleep(0.2)
    assert held(d, u) == 0
    with socket.create_connection(d.addr) as s:  # the whole, and gone before the reply
        s.sendall(b"PUT /v1/uploads/%s?offset=0 HTTP/1.1\r\nHost: localhost\r\nHlod-Tenant: a\r\n"
                  b"Content-Length: %d\r\n\r\n" % (u.encode(), len(data)) + data)
    time.sleep(0.5)
    if held(d, u) == 0:
        append(d, u, 0, data)
    code, r = d.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a)
    assert code == 200 and r["digest"] == hashlib.sha256(data).hexdigest(), r

def restarts(d):
    """kill -9 and ends in good order between pieces and in the middle of them: an upload goes on
    from what is held, is its tenant's still, counts, and is what was sent; finished ones answer as
    before. What the disk did to one meanwhile is told, not stored."""
    data, other, daemon = model(400000), {"Hlod-Tenant": "b"}, d
    digest = hashlib.sha256(data).hexdigest()
    def again(how):
        nonlocal daemon
        daemon.kill() if how == "kill" else daemon.stop_keep()
        daemon = Daemon(d.hlod_path, d.worker, data=d.dir, args=d.more)
        daemon.as_a = d.as_a
    for given in {"digest": digest}, {}:
        u, at, n = start(daemon, len(data), **given), 0, 0
        while at < len(data):
            if n % 2:  # in the middle of a piece: nothing of it is held, or all
                s = socket.create_connection(daemon.addr)
                s.sendall(b"PUT /v1/uploads/%s?offset=%d HTTP/1.1\r\nHost: localhost\r\n"
                          b"Hlod-Tenant: a\r\nContent-Length: 70000\r\n\r\n" % (u.encode(), at)
                          + data[at:at + 70000][:69999 + n % 4 // 2])
                time.sleep(0.05)
            else:
                code, r = append(daemon, u, at, data[at:at + 70000])
                assert code == 200, r
                at = int(r["offset"])
            again("kill" if n % 3 else "stop")
            n += 1
            code, r = daemon.json("GET", "/v1/uploads/" + u, None, d.as_a)
            got = int(r.get("offset", 0))
            assert code == 200 and (
                got == at or (n % 2 == 0 and got == min(at + 70000, len(data)))), (r, at, n)
            assert daemon.call("HEAD", "/v1/uploads/" + u, headers=d.as_a)[0] == 200
            said(daemon.json("GET", "/v1/uploads/" + u, None, other), 404, "UPLOAD_NOT_FOUND")
            at = got
        for _ in range(2):
            code, r = daemon.json("POST", f"/v1/uploads/{u}/finish", None, d.as_a)
            assert code == 200 and r["digest"] == digest and int(r["bytes"]) == len(data), r
            again("kill")
        assert daemon.call("GET", "/v1/blobs/" + digest, headers=d.as_a)[2] == data
        assert daemon.json("DELETE", "/v1/uploads/" + u, None, d.as_a)[0] == 200
    lots = [start(daemon, 10) for _ in range(3)]
    again("kill")
    said(daemon.json("POST", "/v1/uploads", {"size": 10}, d.as_a), 429, "UPLOADS_FULL")
    for u in lots[1:]:
        assert daemon.json("DELETE", "/v1/uploads/" + u, None, d.as_a)[0] == 200
    again("kill")
    assert daemon.json("GET", "/v1/uploads/" + lots[1], None, d.as_a)[0] == 404
    u = start(daemon, len(data))
    append(daemon, u, 0, data[:100000])
    daemon.kill()
    with open(os.path.join(d.dir, "data", "uploads", u), "r+b") as f:
        f.seek(50000)
        f.write(b"!")
    again("kill")
    said(append(daemon, u, 100000, data[100000:]), 500, "CACHE_DAMAGED")
    assert "ev=upload.damaged id=" + u in daemon.logs()
    said(daemon.json("GET", "/v1/uploads/" + u, None, d.as_a), 404, "UPLOAD_NOT_FOUND")
    assert daemon.stop_keep() == 0
restarts.args = ("--max-uploads", "3")
restarts.ends = True

class Proxy:
    """Between hlo and the daemon; breaks every connection off when so many bytes in all have gone
    to the daemon, once for each of `cuts`."""
    def __init__(self, addr, cuts):
        self.addr, self.cuts, self.sent, self.lines = addr, list(cuts), 0, []
        self.listen = socket.create_server(("127.0.0.1", 0))
        self.port = self.listen.getsockname()[1]
        in_thread(self.accept)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.listen.shutdown(socket.SHUT_RDWR)  # ends accept
    def accept(self):
        while True:
            client, _ = self.listen.accept()
            try:
                server = socket.create_connection(self.addr)
            except OSError:  # it is down just now
                client.close()
                continue
            in_thread(self.up, client, server)
            in_thread(self.down, server, client)
            del client, server  # closed when both threads are done with them
    def up(self, client, server):
        try:
            while piece := client.recv(1 << 16):
                if piece.split(b" ")[0] in (b"PUT", b"GET", b"POST"):
                    self.lines.append(piece.split(b"\r\n")[0].decode())
                self.sent += len(piece)
                if self.cuts and self.sent >= self.cuts[0]:
                    self.cuts.pop(0)
                    return
                server.sendall(piece)
        finally:
            self.end(client, server)
    def down(self, server, client):
        try:
            while piece := server.recv(1 << 16):
                client.sendall(piece)
        finally:
            self.end(client, server)
    def end(self, *sockets):
        for s in sockets:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:  # the other thread was first
                pass
            s.close()  # else what hlo still sends is taken in and never refused

def by_hlo(d):
    """hlo sends a large model in pieces; three broken connections cost three pieces. A connection
    that always breaks is given up."""
    MIB = 1 << 20
    def hlo(proxy, *words):
        return subprocess.run([d.build + "/hlo", *words],
                              env={**os.environ, "HLOD_ADDR": f"127.0.0.1:{proxy.port}",
                                   "XDG_CACHE_HOME": tempfile.mkdtemp(dir=d.dir)},
                              capture_output=True, text=True, timeout=100)
    data = model(80 * MIB)
    big, small = os.path.join(d.dir, "big"), os.path.join(d.dir, "small")
    open(big, "wb").write(data)
    open(small, "wb").write(model(MIB))
    with Proxy(d.addr, (20 * MIB, 45 * MIB, 80 * MIB)) as proxy:
        r = hlo(proxy, "compile", big, "--shape", "x=1x4", "--json")
        assert r.returncode == 0 and not proxy.cuts, (r, proxy.cuts)
        assert f'"sourceDigest": "{hashlib.sha256(data).hexdigest()}"' in r.stdout, r.stdout
        assert len(data) < proxy.sent < len(data) + 3 * 9 * MIB, proxy.sent
        assert any(x.startswith("GET /v1/uploads/") for x in proxy.lines), proxy.lines
    with Proxy(d.addr, ()) as proxy:
        r = hlo(proxy, "models", "set", "little", small, "--shape", "x=1x4")
        assert r.returncode == 0 and not any("uploads" in x for x in proxy.lines), (r, proxy.lines)
        r = hlo(proxy, "models", "set", "large", big, "--shape", "x=1x4")
        assert r.returncode == 0 and any("uploads" in x for x in proxy.lines), (r, proxy.lines)
        r = hlo(proxy, "run", "large", "-i", "x=1x4xf32=1,2,3,4")
        assert r.returncode == 0, r
    with Proxy(d.addr, [k * MIB for k in range(10, 100)]) as proxy:
        r = hlo(proxy, "compile", big, "--shape", "x=1x4")
        puts = [x for x in proxy.lines if x.startswith("PUT")]  # libcurl itself tries each twice
        assert r.returncode == 69 and len(puts) <= 1 + 2 * 6, (r, proxy.lines)

def hlo_across_restarts(d):
    """hlo goes on with an upload while the daemon is killed and comes back."""
    data, daemon = model(80 << 20), d
    big = os.path.join(d.dir, "big")
    open(big, "wb").write(data)
    with Proxy(d.addr, ()) as proxy:
        t, out = in_thread(
            subprocess.run, [d.build + "/hlo", "compile", big, "--shape", "x=1x4", "--json"],
            env={**os.environ, "HLOD_ADDR": f"127.0.0.1:{proxy.port}", "XDG_CACHE_HOME": d.dir},
            capture_output=True, text=True, timeout=100)
        for at in 20, 50:  # MiB
            until(f"{at} MiB to be sent", 30, lambda: proxy.sent > at << 20 or out)
            assert not out, out
            daemon.kill()
            daemon = Daemon(d.hlod_path, d.worker, data=d.dir, args=d.more)
            proxy.addr = daemon.addr
        t.join()
        r = out[0]
    assert r.returncode == 0 and hashlib.sha256(data).hexdigest() in r.stdout, r
    assert proxy.sent < len(data) + (40 << 20), proxy.sent
    assert daemon.stop_keep() == 0
hlo_across_restarts.ends = True

SCENARIOS = [stored, over_grpc, hostile, tenants, ends, restarts, full, left, by_hlo,
             hlo_across_restarts]
def main():
    o, results = options("build", "worker"), Results()
    api = Api(o.build)
    for s in chosen(o, SCENARIOS):
        more = ("--trust-tenant-header", *getattr(s, "args", ()))
        d = Daemon(o.build + "/hlod", o.worker, args=more)
        d.more = more
        d.as_a, d.build, d.hlod_path = {"Hlod-Tenant": "a"}, o.build, o.build + "/hlod"
        with grpc.insecure_channel(d.grpc, OPTIONS) as channel:
            d.hlod = Hlod(api, channel)
            results.scenario(s.__name__, d, s)
    return results.code()
if __name__ == "__main__":
    sys.exit(main())
