# SPDX-License-Identifier: Apache-2.0
"""Floods of the gRPC port, from another address than the honest client's, by clients that show no
token and by some that do. By itself: floods.py HOST PORT NAME SECONDS [TOKEN MODEL] sends one.
Standard library only."""
import os, socket, ssl, struct, subprocess, sys, time
from common import MB, address, run_message
from h2 import DATA, H2, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, literal

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0)
PRIORITY, CONTINUATION, CHECK = 2, 9, "/grpc.health.v1.Health/Check"
STRANGER = "127.0.0.2"
EMPTY = b"\0\0\0\0\0"

def head(path=CHECK, *more):
    return b"".join(literal(*h) for h in ((":method", "POST"), (":scheme", "http"), (":path", path),
                                          (":authority", "x"), ("content-type", "application/grpc"),
                                          ("te", "trailers"), *more))

def calls(n, path=CHECK, behind=lambda stream: b""):
    return b"".join(frame(HEADERS, 4, 1 + 2 * i, head(path)) + behind(1 + 2 * i) for i in range(n))

def indexed(n):
    """n calls of sixteen bytes each: their headers lie in the table of names and values"""
    kept = ((":path", CHECK), (":authority", "x"), ("content-type", "application/grpc"),
            ("te", "trailers"))
    first = b"\x83\x86" + b"".join(b"\x40" + literal(*h)[1:] for h in kept)
    return frame(HEADERS, 4, 1, first) + b"".join(
        frame(HEADERS, 4, 3 + 2 * i, b"\x83\x86\xc1\xc0\xbf\xbe") for i in range(n - 1))

def large_headers(n):
    """n calls whose headers come to 16 MB each: one of 4 KB, four thousand times"""
    big = b"\x40\x01a\x7f\xa1\x1e" + b"v" * 4000
    return (frame(HEADERS, 4, 1, head() + big)
            + b"".join(frame(HEADERS, 4, 3 + 2 * i, head() + b"\xbe" * 4000) for i in range(n - 1)))

message = lambda stream: frame(DATA, 1, stream, EMPTY)
reset = lambda stream: frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
open_one = frame(HEADERS, 4, 1, head())
FLOODS = {
            # bytes, connections at a time, seconds for which they stay
            "gone": (PREFACE + calls(300), 1, 0),
            "gone_indexed": (PREFACE + indexed(4000), 1, 0),
            "open": (PREFACE + calls(300), 50, .3),
            "open_indexed": (PREFACE + indexed(4000), 50, .3),
            "answered": (PREFACE + calls(300, behind=message), 30, .3),
            "unadmitted": (PREFACE + calls(300, "/hlod.v1.Hlod/RunUnary"), 30, .3),
            "unknown": (PREFACE + calls(300, "/no/such"), 30, .3),
            "reset": (PREFACE + calls(300, behind=reset), 30, .3),
            "watches": (PREFACE + calls(100, "/grpc.health.v1.Health/Watch", message), 50, 2),
            "unread": (PREFACE + frame(SETTINGS, 0, 0,
                                       struct.pack(">HI", 4, 0)) + calls(300, behind=message), 30,
                       1),
            "large_headers": (PREFACE + large_headers(60), 10, .1),
            "endless_headers": (PREFACE + frame(HEADERS, 0, 1, head()) + frame(
                                    CONTINUATION, 0, 1, literal("x" * 100, "y" * 120) * 60) * 200,
                                20, .3),
            "empty_continuations": (
                PREFACE + frame(HEADERS, 0, 1, head()) + frame(CONTINUATION, 0, 1) * 20000, 20, .3),
            "settings": (PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 5000, 20,
                         .3),
            "pings": (PREFACE + frame(PING, 0, 0, b"12345678") * 5000, 20, .3),
            "empty_data": (PREFACE + open_one + frame(DATA, 0, 1) * 5000, 20, .3),
            "priorities": (PREFACE + frame(PRIORITY, 0, 3, struct.pack(">IB", 1, 1)) * 5000, 20,
                           .3),
            "windows": (PREFACE + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)) * 5000, 20, .3),
            "unknown_frames": (PREFACE + frame(77, 0, 0, b"z" * 200) * 500, 20, .3),
            "http1": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 100, 20, .1),
            "handshakes": (b"\x16\x03\x01\x02\x00\x01\x00", 200, .5),
            "half": (PREFACE + frame(HEADERS, 0, 1, head()), 1000, 2),
            "silent": (b"", 1000, 2),
}

RUN, STREAM = "/hlod.v1.Hlod/RunUnary", "/inference.GRPCInferenceService/ModelStreamInfer"

def with_token(name, token, model):
    """(bytes, connections at a time, seconds) of a flood whose connections first run the model with
    a token"""
    auth, run = ("authorization", "Bearer " + token), run_message(model, 1, 2, 3, 4)
    whole = lambda m: lambda stream: frame(DATA, 1, stream, b"\0" + struct.pack(">I", len(m)) + m)
    begun = lambda path: b"".join(frame(HEADERS, 4, 3 + 2 * i, head(path, auth))
                                  for i in range(3000))
    kept = ((":path", RUN), (":authority", "x"), ("content-type", "application/grpc"),
            ("te", "trailers"), auth)
    table = b"\x83\x86" + b"".join(b"\x40" + literal(*h)[1:] for h in kept)
    indexed = frame(HEADERS, 4, 3, table) + b"".join(
        frame(HEADERS, 4, 5 + 2 * i, b"\x83\x86\xc2\xc1\xc0\xbf\xbe") for i in range(6000))
    first = PREFACE + frame(HEADERS, 4, 1, head(RUN, auth)) + whole(run)(1)
    return first, {
        "unfinished": (begun(RUN), 5, .05),
        "unfinished_indexed": (indexed, 5, .05),
        "unfinished_stay": (begun(RUN), 30, 1),
        "streams": (b"".join(frame(HEADERS, 4, 3 + 2 * i, head(STREAM, auth))
                             + frame(DATA, 0, 3 + 2 * i, EMPTY)
                             for i in range(3000)), 10, .3),
        "whole_unread": (frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)) + b"".join(
                             frame(HEADERS, 4, 3 + 2 * i, head(RUN, auth)) + whole(run)(3 + 2 * i)
                             for i in range(2000)), 10, .3),}[name]
TOKEN_FLOODS = "unfinished", "unfinished_indexed", "unfinished_stay", "streams", "whole_unread"

def flood_with_token(host, port, name, seconds, token, model):
    first, (data, n, stay) = with_token(name, token, model)
    until, connections = time.monotonic() + float(seconds), 0
    while time.monotonic() < until:
        sockets = []
        for _ in range(n):
            try:
                s = socket.create_connection((host, int(port)), timeout=.5,
                                             source_address=(STRANGER, 0))
                sockets.append(s)
                s.settimeout(.3)
                s.sendall(first)
                s.recv(1000)
                time.sleep(.02)
                s.sendall(data)
            except OSError:
                pass
            if time.monotonic() > until:
                break
        time.sleep(min(stay, max(0, until - time.monotonic())))
        connections += len(sockets)
        for s in sockets:
            s.close()
    print(connections)

def flood(host, port, name, seconds):
    data, n, stay = FLOODS[name]
    until, connections = time.monotonic() + float(seconds), 0
    while time.monotonic() < until:
        sockets = []
        for _ in range(n):
            try:
                s = socket.create_connection((host, int(port)), timeout=.5,
                                             source_address=(STRANGER, 0))
                s.settimeout(.2)
                sockets.append(s)
                s.sendall(data)
            except OSError:
                pass
            if time.monotonic() > until:
                break
        time.sleep(min(stay, max(0, until - time.monotonic())))
        connections += len(sockets)
        for s in sockets:
            s.close()
    print(connections)

FLOOD_S = 60  # longer than the honest client calls; it is killed

def honest_calls(d, seconds):
    """Runs over gRPC with a token, on a connection that stays and on new ones in turn: so long, and
    five at least."""
    times, kept, end = [], None, time.monotonic() + seconds
    while time.monotonic() < end or len(times) < 5:
        begun, s = time.monotonic(), kept or H2(address(d), MB)
        stream = s.call("/hlod.v1.Hlod/RunUnary", ("authorization", "Bearer " + d.tokens["a"]))
        s.whole(stream, run_message(d.model, 1, 2, 3, 4))
        with s.lock:
            while stream not in s.ended and not s.over:
                assert s.lock.wait(FLOOD_S), "no answer"
            assert s.ended.get(stream) == HEADERS, (
                f"the honest client was cut off: {s.ended}, {s.over}, after "
                f"{time.monotonic() - begun:.3f} s, new {not kept}")
        times.append(time.monotonic() - begun)
        if kept:
            kept.close()
        kept = None if kept else s
        time.sleep(.01)
    return times

def beside(d, names, seconds=2, *token):
    for name in names:
        p = [subprocess.Popen([sys.executable, os.path.abspath(__file__), *map(str, address(d)),
                               name, str(FLOOD_S), *token], stdout=subprocess.DEVNULL)
             for _ in range(2)]
        try:
            honest_calls(d, seconds)
            assert all(x.poll() is None for x in p), f"{name}: served when the flood was over"
        finally:
            for x in p:
                x.kill()
                x.wait()
        assert d.p.poll() is None and d.memory()[1] < d.idle[1] + 256 * MB, (
            name, d.memory()[1] >> 20)

def calls_of_gone_clients(d):
    """gRPC calls without a token, by the hundred on a connection that closes at once, over and
    over: what nobody waits for is not read."""
    beside(d, ("gone", "gone_indexed"), 3)

def calls_without_end(d):
    """gRPC calls without a token, by the hundred on connections that stay: without a message,
    answered, refused, reset, unknown, watched, their answers not read."""
    beside(d, ("open", "open_indexed", "answered", "unadmitted", "unknown", "reset", "watches",
               "unread"))

def frames_without_end(d):
    """HTTP/2 frames that cost the sender nothing, in masses: large and endless headers, settings,
    pings, empty data, priorities, windows, unknown ones; HTTP/1.1."""
    beside(d, [n for n in FLOODS
               if n in ("large_headers", "endless_headers", "empty_continuations", "settings",
                        "pings", "empty_data", "priorities", "windows", "unknown_frames", "http1")],
           1.5)

def endless_head(d, *more):
    """Bytes that are taken of a call's head that goes on and on, behind these calls."""
    begin = PREFACE + b"".join(frame(HEADERS, 4, 1 + 2 * k, head(RUN, x))
                               for k, x in enumerate(more))
    part, read = frame(CONTINUATION, 0, 9, literal("x", "y" * 120)) * 4096, 0
    with socket.create_connection(address(d), timeout=5, source_address=(STRANGER, 0)) as s:
        if d.tls:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_alpn_protocols(["h2"])
            s = context.wrap_socket(s)
        try:
            s.sendall(begin)
            time.sleep(.5)  # the calls are taken
            s.sendall(frame(HEADERS, 0, 9, head()))
            while read < 400 * MB:
                s.sendall(part)
                read += len(part)
        except OSError:
            pass
    return read

def head_without_end(d):
    """A gRPC call's head that goes on and on, without a token and behind a call with one: the
    library would keep all of it."""
    for more in (), (("authorization", "Bearer " + d.tokens["b"]),):
        read = endless_head(d, *more)
        assert read < 16 * MB, f"{read >> 20} MB of one head were read, behind {len(more)} calls"

def head_without_end_tls(d):
    """The same over TLS."""
    head_without_end(d)
head_without_end_tls.tls = True

def connections_without_end(d):
    """Thousands of gRPC connections that say nothing, half a handshake or half a request, more than
    there may be: others find a place."""
    beside(d, ("silent", "half", "handshakes"), 3)
connections_without_end.options = ["--max-connections", "1500"]

def calls_with_token(d):
    """gRPC calls with a token, by the thousand on connections that ran something before: without a
    message, in tables, left or kept open, streams, their answers not read: what they take is
    bounded as if they had none."""
    beside(d, TOKEN_FLOODS, 3, d.tokens["b"], d.model)

if __name__ == "__main__":
    (flood if len(sys.argv) < 6 else flood_with_token)(*sys.argv[1:])
