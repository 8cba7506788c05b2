#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pages as devices, by hand: who may join, what a page is worth that breaks the protocol, answers
wrongly or not at all, that it serves its own tenant alone, that it is gone when it leaves, and that
without the device `web` there is nothing of it. Standard library and NumPy.
Usage: worker.py BUILD"""
import os
import resource
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "models")]
import daemon  # noqa: E402
import harness  # noqa: E402
import tabs  # noqa: E402

build, result = sys.argv[1], harness.Results()
TWICE = (b"HloModule twice\nENTRY e { x = f32[4] parameter(0)\n"
         b"p = pred[4] compare(x, x), direction=EQ\ns = f32[4] add(x, x)\n"
         b"ROOT r = (f32[4], pred[4]) tuple(s, p) }\n")
X = np.array([1, -2, 3.5, 0], np.float32)
WEB = ("--device", "cpu,web", "--join-rate", "0")


def devices(d):
    return d.json("GET", "/v1/devices")["devices"]


def ready(d, n=1):
    harness.until("a page as a device", 20, lambda: n == sum(
        x["kind"] == "web" and x["state"] in ("ready", "busy") for x in devices(d)))


def free(d):
    ready(d, 0)


def ask(d, model, headers=None, **options):
    """(status, body) of a run on the device web; a body that is an array is the first result."""
    try:
        out, _ = d.run(model, {"x": X}, device="web", timeoutMs=15000, **options)
        return 200, list(out.values())[0]
    except daemon.Refused as e:
        return e.code, e.body


def upload(d, **query):
    q = "?" + "&".join("%s=%s" % kv for kv in query.items()) if query else ""
    return d.json("POST", "/v1/executables" + q, TWICE,
                  {"Content-Type": "text/x-hlo"})["sourceDigest"]


def right(run, x=X):
    return tabs.result(run, [("f32", [4], (x + x).tobytes()), ("pred", [4], b"\1\1\1\1")])


# ---- who may join

def status_of(d, **how):
    try:
        tabs.Page(d.addr, **how).close()
        return 101
    except tabs.Refused as e:
        return e.args[0]


def off():
    with daemon.Daemon(build) as d:
        said = [d.call("GET", p)[0] for p in ("/v1/workers", "/worker", "/worker/tab.js",
                                              "/worker/runtime/hlod.js")]
        result("off: nothing is there", said == [404] * 4 and status_of(d) == 404, said)
        try:
            d.run(upload(d), {"x": X}, device="web")
            result("off: no such device", False)
        except daemon.Refused as e:
            result("off: no such device", e.code == 404, e)


def handshakes(d):
    host = "%s:%d" % d.addr
    cases = [("foreign Origin", 403, {"Origin": "http://example.org"}),
             ("Origin null", 403, {"Origin": "null"}),
             ("Origin of another port", 403, {"Origin": "http://127.0.0.1:1"}),
             ("a name that was pointed at us", 403, {"Host": "evil.example", "Origin": None}),
             ("no version", 400, {"Sec-WebSocket-Version": None}),
             ("another version", 400, {"Sec-WebSocket-Version": "8"}),
             ("no key", 400, {"Sec-WebSocket-Key": None}),
             ("a short key", 400, {"Sec-WebSocket-Key": "YQ=="}),
             ("a key that is no base64", 400, {"Sec-WebSocket-Key": "?" * 22 + "=="}),
             ("no protocol", 400, {"Sec-WebSocket-Protocol": None}),
             ("another protocol", 400, {"Sec-WebSocket-Protocol": "chat"}),
             ("a body", 400, {"Content-Length": "0"}),
             ("no Upgrade: a question", 200, {"Upgrade": None}),
             ("no Connection: a question", 200, {"Connection": "keep-alive"})]
    for name, want, headers in cases:
        got = status_of(d, headers=headers)
        result("handshake, %s: %d" % (name, want), got == want, got)
    got = status_of(d, verb="POST", headers={"Content-Length": "0"})
    result("handshake, POST: 405", got == 405, got)
    page = tabs.Page(d.addr)
    ready(d)
    got = status_of(d)
    result("handshake, no device is free: 503", got == 503, got)
    what = [x for x in devices(d) if x["name"] == "web:0"][0]["description"]
    result("its words are shown as text alone", what == "a page: a test ?<b>", what)
    page.close()
    free(d)
    with socket.create_connection(d.addr, timeout=20) as s:  # frames before the answer
        s.sendall(("GET /v1/workers HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: "
                   "Upgrade\r\nSec-WebSocket-Key: %s\r\nSec-WebSocket-Version: 13\r\n"
                   "Sec-WebSocket-Protocol: hlod.worker.v1\r\n\r\n" %
                   (host, "A" * 22 + "==")).encode() + tabs.frame(tabs.message(tabs.HELLO, 1)))
        ended = True
        try:
            while s.recv(4096):
                pass
        except socket.timeout:
            ended = False
        except OSError:
            pass
    result("handshake, frames before its answer: closed", ended)


# ---- hostile pages

def masked(n):
    return tabs.frame(b"\0" * n)


HOSTILE = {  # what a page does when it should have said that a model is loaded, or answered a run
    "text": lambda p, run: p.raw(tabs.frame(b"hello", tabs.TEXT)),
    "no mask": lambda p, run: p.raw(tabs.frame(right(run), masked=False)),
    "a reserved bit": lambda p, run: p.raw(tabs.frame(right(run), rsv=4)),
    "an opcode that is none": lambda p, run: p.raw(tabs.frame(right(run), 3)),
    "a fragment of nothing": lambda p, run: p.raw(tabs.frame(right(run), 0)),
    "a message within one": lambda p, run: p.raw(
        tabs.frame(right(run)[:8], fin=False) + tabs.frame(right(run)[8:])),
    "a long ping": lambda p, run: p.raw(tabs.frame(b"x" * 126, tabs.PING)),
    "a ping in fragments": lambda p, run: p.raw(tabs.frame(b"x", tabs.PING, fin=False)),
    "a flood of pings": lambda p, run: p.raw(tabs.frame(b"", tabs.PING) * 1000),
    "a flood of empty fragments": lambda p, run: p.raw(
        tabs.frame(b"", fin=False) + tabs.frame(b"", 0, fin=False) * 100),
    "a frame of 2^63 bytes": lambda p, run: p.raw(tabs.frame(b"", length=1 << 63)),
    "a frame of 8 GiB": lambda p, run: p.raw(tabs.frame(b"", length=8 << 30)),
    "fragments that grow": lambda p, run: p.raw(
        tabs.frame(b"\0" * 4096, fin=False) + tabs.frame(b"\0" * 4096, 0, fin=False) * 64),
    "a length that could be shorter": lambda p, run: p.raw(
        b"\x82\xfe\x00\x08" + b"\0" * 4 + right(run)[:8]),
    "a message without a head": lambda p, run: p.send(b"abc"),
    "an empty message": lambda p, run: p.send(b""),
    "results of another run": lambda p, run: p.send(right(run + 1)),
    "LOADED instead": lambda p, run: p.send(tabs.message(tabs.LOADED, run)),
    "a type that is none": lambda p, run: p.send(tabs.message(77, run)),
    "HELLO again": lambda p, run: p.send(tabs.message(tabs.HELLO, 1)),
    "too few results": lambda p, run: p.send(
        tabs.result(run, [("f32", [4], X.tobytes())])),
    "too many results": lambda p, run: p.send(
        tabs.result(run, [("f32", [4], X.tobytes()), ("pred", [4], b"\1" * 4)] * 2)),
    "another shape of as many bytes": lambda p, run: p.send(
        tabs.result(run, [("f32", [2, 2], X.tobytes()), ("pred", [4], b"\1" * 4)])),
    "another type of as many bytes": lambda p, run: p.send(
        tabs.result(run, [("s32", [4], X.tobytes()), ("pred", [4], b"\1" * 4)])),
    "a size that is not the shape's": lambda p, run: p.send(
        tabs.result(run, [("f32", [4], X.tobytes()[:8]), ("pred", [4], b"\1" * 4)])),
    "bytes that are missing": lambda p, run: p.send(right(run)[:-8]),
    "bytes too many": lambda p, run: p.send(right(run) + b"\0" * 8),
    "truth values of 7": lambda p, run: p.send(
        tabs.result(run, [("f32", [4], X.tobytes()), ("pred", [4], b"\7" * 4)])),
    "a leave": lambda p, run: p.raw(tabs.frame(struct.pack(">H", 1000), tabs.CLOSE)),
    "a result, and one that nobody asked for": lambda p, run: p.raw(
        tabs.frame(tabs.message(tabs.LOADED, run)) + tabs.frame(right(run))),
    "a hang-up": lambda p, run: p.s.shutdown(socket.SHUT_RDWR),
    "a hang-up in mid-answer": lambda p, run: (
        p.raw(tabs.frame(right(run))[:-3]), p.s.shutdown(socket.SHUT_RDWR)),
}


def hostile(d, model):
    """Each costs its own run and its connection; the worker's process ends by itself, and the page
    after it is served."""
    for name, act in HOSTILE.items():
        page = tabs.Page(d.addr)
        ready(d)
        thread, got = harness.in_thread(ask, d, model)
        try:
            run, _ = page.until_run()
            act(page, run)
        except EOFError:
            pass
        closed = page.closed()
        thread.join(30)
        page.close()
        ok = closed and got and got[0][0] == 503
        result("hostile page, %s: closed, UNAVAILABLE" % name, ok, (closed, got))
        free(d)
    for name, first in (("text first", tabs.frame(b"hi", tabs.TEXT)),
                        ("a result first", tabs.frame(right(1))),
                        ("another version", tabs.frame(tabs.message(tabs.HELLO, 2))),
                        ("a HELLO of a MiB", tabs.frame(
                            tabs.message(tabs.HELLO, 1, b"x" * (1 << 20)))),
                        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")):
        page = tabs.Page(d.addr, hello=False)
        try:
            page.raw(first)
        except OSError:
            pass
        result("hostile page, %s: closed" % name, page.closed(25))
        page.close()
        free(d)


# ---- honest ones

def serve(page, n=1):
    inputs = []
    for _ in range(n):
        run, body = page.until_run()
        x = np.frombuffer(body[:16], np.float32)
        page.send(right(run, x))
        inputs.append(x)
    return inputs


def honest(d, model):
    page = tabs.Page(d.addr)
    ready(d)
    thread, got = harness.in_thread(ask, d, model)
    inputs = serve(page)
    thread.join(20)
    ok = got and got[0][0] == 200 and np.array_equal(got[0][1], X + X) and (inputs[0] == X).all()
    result("a page serves a run", ok, got)

    thread, got = harness.in_thread(ask, d, model)
    run, _ = page.until_run()
    page.raw(tabs.frame(b"are you there", tabs.PING))
    parts = right(run)
    page.raw(b"".join(tabs.frame(parts[k:k + 5], 2 if k == 0 else 0, fin=k + 5 >= len(parts))
                      for k in range(0, len(parts), 5)))
    thread.join(20)
    pong = page.next_frame()
    result("fragments and a ping", got and got[0][0] == 200 and
           pong == (tabs.PONG, b"are you there"), (got, pong))

    thread, got = harness.in_thread(ask, d, model)
    run, _ = page.until_run()
    page.send(tabs.message(tabs.FAILED, run, b"no \x1b[31mmemory"))
    thread.join(20)
    result("a page that fails a run says so, and stays", got and got[0][0] == 409 and
           "the page says: no ?[31mmemory" in got[0][1]["message"], got)

    with_cpu, _ = d.run(model, {"x": X})
    result("without being asked for it takes nothing", np.array_equal(
        list(with_cpu.values())[0], X + X))
    out, _ = d.run(model, {"x": X}, device="auto")
    result("nor where the device is chosen", np.array_equal(list(out.values())[0], X + X))

    # A run that is given up: the page is reset, gets its models again, and serves on.
    thread, got = harness.in_thread(timed, d, model)
    page.until_run()
    kind, turn, _ = page.next()
    page.send(tabs.message(tabs.DONE, turn))
    thread.join(20)
    result("a run's deadline: the page is reset", got and got[0] == 504 and kind == tabs.RESET,
           (got, kind))
    thread, got = harness.in_thread(ask, d, model)
    serve(page)
    thread.join(20)
    result("and serves the next run", got and got[0][0] == 200, got)

    for name, said in (("a leave", tabs.frame(struct.pack(">H", 1000), tabs.CLOSE)),
                       ("words that nobody asked for", tabs.frame(right(1)))):
        page.raw(said)
        result("between runs, %s: closed" % name, page.closed())
        free(d)
        page = tabs.Page(d.addr)
        ready(d)
    thread, got = harness.in_thread(timed, d, model)  # never answers again
    page.until_run()
    thread.join(20)
    result("a page that never answers: the run's deadline", got and got[0] == 504, got)
    result("and it is closed", page.closed())
    page.close()
    free(d)
    code, body = ask(d, model)
    result("without a page: UNAVAILABLE, and how one joins", code == 503 and
           "no page has joined (/worker)" in body["message"], (code, body))
    page = tabs.Page(d.addr)
    ready(d)
    thread, got = harness.in_thread(ask, d, model)
    serve(page)
    thread.join(20)
    result("the next page serves", got and got[0][0] == 200, got)
    return page


def timed(d, model):
    try:
        d.run(model, {"x": X}, device="web", timeoutMs=700)
        return 200
    except daemon.Refused as e:
        return e.code


# ---- tokens, tenants, TLS, the end

def tokens(folder):
    path, out = os.path.join(folder, "tokens"), {}
    for name, tenant, scopes in (("a", "one", "read,run,compile,worker"),
                                 ("b", "two", "read,run,compile"), ("w", "one", "worker")):
        done = subprocess.run([build + "/hlo", "tokens", "add", name, "--file", path, "--tenant",
                               tenant, "--scopes", scopes], capture_output=True, text=True,
                              check=True, timeout=30)
        out[name] = [w for w in (done.stdout + done.stderr).split() if w.startswith("hlod_")][0]
    return path, out


class As(daemon.Daemon):
    """The same daemon with a token."""
    def __init__(self, of, token):
        self.__dict__.update(of.__dict__)
        self.token = token

    def call(self, verb, path, body=None, headers={}, timeout=30):
        return super().call(verb, path, body, {"Authorization": "Bearer " + self.token, **headers},
                            timeout)

    def told(self, path):
        """(status, body, Retry-After)"""
        c = self.connect(20)
        c.request("GET", path, headers={"Authorization": "Bearer " + self.token})
        reply = c.getresponse()
        return reply.status, reply.read(), reply.headers.get("Retry-After", "0")


def tenants():
    with tempfile.TemporaryDirectory(prefix="hlod-worker-") as folder:
        path, token = tokens(folder)
        with daemon.Daemon(build, args=(*WEB, "--tokens", path), ready=False) as d:
            a, b = As(d, token["a"]), As(d, token["b"])
            harness.until("ready", 20, lambda: d.call("GET", "/readyz")[0] == 200)
            wrong = "hlod_" + "0" * 16 + "_" + "0" * 64
            for name, how, want in (("none", None, 401), ("wrong", wrong, 401),
                                    ("without the scope", token["b"], 403)):
                got = status_of(d, token=how)
                result("token, %s: %d" % (name, want), got == want, got)
            page = tabs.Page(d.addr, token=token["w"])
            ready(a)
            thread, got = harness.in_thread(ask, b, upload(b))
            thread.join(20)
            result("a page of another tenant serves nothing", got and got[0][0] == 503, got)
            thread, got = harness.in_thread(ask, a, upload(a))
            serve(page)
            thread.join(20)
            result("that of its own it serves", got and got[0][0] == 200, got)
            page.close()


def counted(d, name):
    lines = d.told("/metrics")[1].decode().split("\n")
    return int(float(next(x.split()[1] for x in lines if x.startswith(name + " "))))


def rates():
    with tempfile.TemporaryDirectory(prefix="hlod-worker-") as folder:
        path, token = tokens(folder)
        with daemon.Daemon(build, args=("--device", "cpu,web", "--join-rate", "1", "--tokens",
                                        path), ready=False) as d:
            a = As(d, token["a"])
            harness.until("ready", 20, lambda: d.call("GET", "/readyz")[0] == 200)
            asked = [status_of(d, token=token["w"], headers={"Upgrade": None}) for _ in range(4)]
            page = tabs.Page(d.addr, token=token["w"])
            ready(a)
            page.close()
            free(a)
            got = [status_of(d, token=token["w"]), status_of(d, token=token["w"],
                                                             headers={"Upgrade": None})]
            result("one join a minute: the next is refused, questions count for nothing",
                   asked == [200] * 4 and got == [429, 429], (asked, got))
            code, body, after = As(d, token["w"]).told("/v1/workers")
            result("and told when", code == 429 and b"JOIN_RATE" in body and 1 <= int(after) <= 60,
                   (code, body, after))
            page = tabs.Page(d.addr, token=token["a"])
            ready(a)
            page.close()
            result("another holder joins", True)
            got = [counted(a, "hlod_worker_joins_%stotal" % k) for k in ("", "refused_")]
            result("both are counted", got == [2, 1], got)


def over_tls():
    with tempfile.TemporaryDirectory(prefix="hlod-worker-") as folder:
        cert, key = folder + "/cert.pem", folder + "/key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-days",
                        "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
                       check=True, capture_output=True, timeout=30)
        context = ssl.create_default_context(cafile=cert)

        class Secure(daemon.Daemon):
            def connect(self, timeout):
                import http.client
                return http.client.HTTPSConnection(*self.addr, timeout=timeout, context=context)

        with Secure(build, args=(*WEB, "--tls-cert", cert, "--tls-key", key)) as d:
            page = tabs.Page(d.addr, tls=context)
            ready(d)
            model = upload(d)
            thread, got = harness.in_thread(ask, d, model)
            serve(page)
            thread.join(20)
            result("over TLS a page serves", got and got[0][0] == 200, got)
            thread, got = harness.in_thread(ask, d, model)
            page.until_run()
            page.close()
            thread.join(20)
            result("over TLS it leaves in mid-run: UNAVAILABLE", got and got[0][0] == 503, got)
            free(d)
            page = tabs.Page(d.addr, tls=context)
            ready(d)
            code = d.stop_keep()
            result("over TLS the daemon ends with a page there", code == 0 and page.closed(), code)


# ---- many sockets

REQUEST = ("GET /v1/workers HTTP/1.1\r\nHost: %s\r\nOrigin: http://%s\r\nUpgrade: websocket\r\n"
           "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: "
           "hlod.worker.v1\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n")


def resident(d):
    with open("/proc/%d/status" % d.p.pid) as f:
        return int(next(x.split()[1] for x in f if x.startswith("VmRSS"))) << 10


def crowd_of(d, n):
    """So many sockets of another address: that say nothing, stop in the handshake, or end it and
    leave the answer unread."""
    host = "%s:%d" % d.addr
    whole = (REQUEST % (host, host) + "\r\n").encode()
    said, held = [b"", whole[:-20], whole, whole + tabs.frame(b"x" * 100)[:50]], []
    for k in range(n):
        s = socket.socket()
        s.settimeout(20)
        s.bind(("127.0.0.2", 0))
        try:
            s.connect(d.addr)
            s.sendall(said[k % len(said)])
        except OSError:
            pass  # the server may have closed it
        held.append(s)
    return held


def crowd():
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    n = min(3000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    with daemon.Daemon(build, args=WEB) as d:
        model = upload(d)
        d.run(model, {"x": X})
        before = resident(d)
        held = crowd_of(d, n)
        out, _ = d.run(model, {"x": X})
        result("%d sockets that go no further: runs are served" % n,
               np.array_equal(list(out.values())[0], X + X))
        grown = resident(d) - before
        result("and memory is bounded", grown < 128 << 20, "%d MiB more" % (grown >> 20))
        for s in held:
            s.close()
        free(d)
        page = tabs.Page(d.addr)
        ready(d)
        thread, got = harness.in_thread(ask, d, model)
        serve(page)
        thread.join(20)
        result("they go: a page joins and serves", got and got[0][0] == 200, got)
        page.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))


def slow_reader():
    """A page that is sent a model and reads nothing of it: its run ends by its deadline, the page
    is let go, and the next page serves."""
    text = (b"HloModule big\nENTRY e { x = f32[4] parameter(0)\n w = f32[4194304] parameter(1)\n"
            b"f = f32[4] slice(w), slice={[0:4]}\n s = f32[4] add(x, f)\n ROOT r = (f32[4]) "
            b"tuple(s) }\n")
    with daemon.Daemon(build, args=WEB) as d:
        model = d.json("POST", "/v1/executables", text,
                       {"Content-Type": "text/x-hlo"})["sourceDigest"]
        page = tabs.Page(d.addr)
        page.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        ready(d)
        before, begun = resident(d), time.monotonic()
        w = np.zeros(4194304, np.float32)
        try:
            d.run(model, {"x": X, "w": w}, device="web", timeoutMs=3000)
            code = 200
        except daemon.Refused as e:
            code = e.code
        result("a page that reads nothing: the run ends by its deadline",
               code in (503, 504) and time.monotonic() - begun < 20, code)
        result("and memory is bounded", resident(d) - before < 256 << 20, resident(d) - before)
        free(d)
        model = upload(d)
        page.close()
        page = tabs.Page(d.addr)
        ready(d)
        thread, got = harness.in_thread(ask, d, model)
        serve(page)
        thread.join(20)
        result("the next page serves", got and got[0][0] == 200, got)
        page.close()


def main():
    off()
    with daemon.Daemon(build, args=WEB) as d:
        handshakes(d)
        model = upload(d)
        hostile(d, model)
        page = honest(d, model)
        begun = time.monotonic()
        code = d.stop_keep()
        result("the daemon ends with a page there", code == 0 and page.closed() and
               time.monotonic() - begun < 15, code)
        log = d.logs()
        result("no worker crashed", "worker.lost" not in log, log)
    tenants()
    rates()
    crowd()
    slow_reader()
    over_tls()
    return result.code()


sys.exit(main())
