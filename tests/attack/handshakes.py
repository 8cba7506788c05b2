# SPDX-License-Identifier: Apache-2.0
"""Floods of TLS handshakes, from another address than the honest client's. By itself: handshakes.py
HOST PORT NAME SECONDS sends one. Standard library only."""
import os, socket, ssl, subprocess, sys, time
from common import MB, address

def certificate(folder):
    """(certificate, key) of one's own, with an RSA key: the dearest handshakes"""
    paths = [os.path.join(folder, n) for n in ("tls.pem", "tls.key")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-out",
                    paths[0], "-keyout", paths[1]], check=True, capture_output=True)
    return paths

def client_hello():
    out = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    try:
        context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return out.read()

HELLO = client_hello()
FLOOD_S = 60  # longer than those beside it ask; it is killed
FLOODS = {"hellos": HELLO, "half_hellos": HELLO[:len(HELLO) // 2],
          "records": HELLO[:5] + b"\0" * 500, "silent": b""}

def flood(host, port, name, seconds):
    """1000 connections at once that send this and no more, and go after a second, over and over"""
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        sockets = []
        for _ in range(1000):
            try:
                s = socket.create_connection((host, int(port)), timeout=.2,
                                             source_address=("127.0.0.2", 0))
                sockets.append(s)
                s.send(FLOODS[name])
            except OSError:
                pass
            if time.monotonic() > until:
                break
        time.sleep(max(0, min(1, until - time.monotonic())))
        for s in sockets:
            s.close()

def beside(d, where, names):
    for name in names:
        p = [subprocess.Popen([sys.executable, os.path.abspath(__file__), *map(str, where), name,
                               str(FLOOD_S)])
             for _ in range(2)]
        begun = time.monotonic()
        try:
            n = 0
            while n < 10 or time.monotonic() < begun + 3:
                assert d.call("GET", "/healthz", timeout=FLOOD_S)[0] == 200
                n += 1
            assert all(x.poll() is None for x in p), f"{name}: served when the flood was over"
        finally:
            for x in p:
                x.kill()
                x.wait()
        assert d.p.poll() is None and d.memory()[1] < d.idle[1] + 256 * MB, (
            name, d.memory()[1] >> 20)

def handshakes_at_once(d):
    """TLS handshakes by the thousand at a time on the HTTP port, never finished, half begun, of
    wrong bytes: who comes meanwhile is served between them."""
    beside(d, d.addr, FLOODS)
    with socket.create_connection(d.addr) as s:  # half a handshake costs nothing while it lasts
        s.send(FLOODS["half_hellos"])
        used = lambda: sum(map(int, open(f"/proc/{d.p.pid}/stat").read().rsplit(")", 1)[1].split()[
                                   11:13])) / os.sysconf("SC_CLK_TCK")
        time.sleep(.1)
        before = used()
        time.sleep(2)
        assert used() - before < 1.2, used() - before
handshakes_at_once.tls = True
# the honest client connects anew for each request: it waits behind a thousand who came before it
handshakes_at_once.p99 = .25

def handshakes_at_once_grpc(d):
    """The same on the gRPC port, beside requests over HTTP."""
    beside(d, address(d), FLOODS)
handshakes_at_once_grpc.tls = True

if __name__ == "__main__":
    flood(*sys.argv[1:])
