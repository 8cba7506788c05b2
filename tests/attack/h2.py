# SPDX-License-Identifier: Apache-2.0
"""An HTTP/2 client that says what it likes: gRPC calls whose message is announced with any length
and flags, and sent as far as the windows let it. Standard library only."""
import socket, struct, threading

def frame(kind, flags, stream, payload=b""):
    return (struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream)
            + payload)

def literal(name, value):
    name, value = name.encode(), value.encode()
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8

class H2:
    def __init__(self, address, window=None):
        """window: what each call may be sent before it is read; such data is kept. None: HTTP/2's
        64 KiB, never raised"""
        self.s = socket.create_connection(address)
        self.s.settimeout(20)
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                       + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window) if window else b"")
                       + (frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", window - 65535)) if window
                          else b""))
        self.data = {} if window else None
        self.window = self.initial = 65535
        self.windows, self.ended, self.over = {}, {}, False
        self.buffer, self.next = b"", 1
        self.lock = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def close(self):
        self.s.close()

    def get(self, n):
        while len(self.buffer) < n:
            b = self.s.recv(65536)
            if not b:
                raise OSError("closed")
            self.buffer += b
        r, self.buffer = self.buffer[:n], self.buffer[n:]
        return r

    def take(self, kind, flags, stream, p):
        if kind == SETTINGS and not flags & 1:
            for i in range(0, len(p), 6):
                key, value = struct.unpack(">HI", p[i:i + 6])
                if key == 4:
                    for x in self.windows:
                        self.windows[x] += value - self.initial
                    self.initial = value
            self.s.sendall(frame(SETTINGS, 1, 0))
        elif kind == WINDOW_UPDATE and stream:
            self.windows[stream] = self.windows.get(stream, self.initial) + int.from_bytes(p, "big")
        elif kind == WINDOW_UPDATE:
            self.window += int.from_bytes(p, "big")
        elif kind == DATA and self.data is not None:
            self.data.setdefault(stream, bytearray()).extend(p)
        elif kind == PING and not flags & 1:
            self.s.sendall(frame(PING, 1, 0, p))
        elif kind == RST_STREAM or (kind == HEADERS and flags & 1):
            self.ended[stream] = kind
        elif kind == GOAWAY:
            self.over = True

    def read(self):
        try:
            while True:
                h = self.get(9)
                p = self.get(int.from_bytes(h[:3], "big"))
                with self.lock:
                    self.take(h[3], h[4], int.from_bytes(h[5:], "big"), p)
                    self.lock.notify_all()
        except OSError:
            with self.lock:
                self.over = True
                self.lock.notify_all()

    def call(self, path, *headers):
        """Begins a call; gives its stream."""
        stream, self.next = self.next, self.next + 2
        all_of = ((":method", "POST"), (":scheme", "http"), (":path", path),
                  (":authority", "localhost"), ("content-type", "application/grpc"),
                  ("te", "trailers"), *headers)
        with self.lock:
            self.windows[stream] = self.initial
            self.s.sendall(frame(HEADERS, 4, stream, b"".join(literal(*h) for h in all_of)))
        return stream

    def send(self, stream, total, flag=0, length=None):
        """The head of a message of `length`, then `total` zeros, until the stream ends; gives how
        many were sent."""
        rest, sent = bytes([flag]) + struct.pack(">I", total if length is None else length), 0
        while sent < total or rest:
            with self.lock:
                while (not self.over and stream not in self.ended
                       and min(self.window, self.windows[stream]) <= 0):
                    if not self.lock.wait(5):
                        return sent
                if self.over or stream in self.ended:
                    return sent
                n = min(self.window, self.windows[stream], 16384)
                p = (rest + bytes(min(n - len(rest), total - sent)))[:n]
                sent += max(0, len(p) - len(rest))
                rest = rest[len(p):]
                self.window -= len(p)
                self.windows[stream] -= len(p)
                try:
                    self.s.sendall(frame(DATA, 0, stream, p))
                except OSError:
                    return sent
        return sent

    def whole(self, stream, message):
        """One message, and the end of the request."""
        with self.lock:
            self.s.sendall(frame(DATA, 1, stream,
                                 b"\0" + struct.pack(">I", len(message)) + message))
