# SPDX-License-Identifier: Apache-2.0
"""The browser worker's other side by hand: a WebSocket client over a plain socket, that can say
what no browser would, and a page that answers as it is told."""
import base64
import hashlib
import os
import socket
import ssl
import struct

HELLO, LOADED, RESULT, FAILED, DONE = 1, 2, 3, 4, 5
FILE, LOAD, RUN, FREE, RESET = 16, 17, 18, 19, 20
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def frame(payload, opcode=BINARY, fin=True, masked=True, rsv=0, length=None):
    mask = b"\x01\x02\x03\x04"
    n = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    bit = 0x80 if masked else 0
    if n < 126:
        head += bytes([bit | n])
    elif n < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", n)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", n)
    if not masked:
        return head + payload
    return head + mask + bytes(b ^ mask[k & 3] for k, b in enumerate(payload))


def message(kind, number, body=b""):
    return struct.pack("<II", kind, number) + body


def result(number, outputs):
    """outputs: (dtype, dims, bytes) each."""
    heads = struct.pack("<IIII", RESULT, number, len(outputs), 0)
    for dtype, dims, data in outputs:
        heads += dtype.encode().ljust(16, b"\0") + struct.pack("<IIQ", len(dims), 0, len(data))
        heads += b"".join(struct.pack("<Q", d) for d in dims)
    return heads + b"".join(data + b"\0" * (-len(data) & 7) for _, _, data in outputs)


class Refused(Exception):
    """(status, body) of a handshake's answer."""


class Page:
    """A connection to /v1/workers; `headers` replace those of the handshake, None leaves one
    out."""
    def __init__(self, addr, token=None, headers=None, verb="GET", tls=None, hello=True,
                 timeout=20):
        self.s = socket.create_connection(addr, timeout=timeout)
        if tls:
            self.s = tls.wrap_socket(self.s, server_hostname=addr[0])
        self.key = base64.b64encode(os.urandom(16)).decode()
        host, self.left = "%s:%d" % addr, b""
        all_of = {"Host": host, "Upgrade": "websocket", "Connection": "Upgrade",
                  "Origin": ("https://" if tls else "http://") + host,
                  "Sec-WebSocket-Key": self.key, "Sec-WebSocket-Version": "13",
                  "Sec-WebSocket-Protocol": "hlod.worker.v1" + (
                      ", hlod.token." + token if token else "")}
        all_of.update(headers or {})
        lines = ["%s /v1/workers HTTP/1.1" % verb] + [
            "%s: %s" % (k, v) for k, v in all_of.items() if v is not None]
        self.s.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.handshake()
        if hello:
            self.send(message(HELLO, 1, b"a test \xff<b>"))

    def handshake(self):
        while b"\r\n\r\n" not in self.left:
            more = self.s.recv(65536)
            if not more:
                raise Refused(0, self.left)
            self.left += more
        head, self.left = self.left.split(b"\r\n\r\n", 1)
        status = int(head.split()[1])
        if status != 101:
            n = int([x for x in head.lower().split(b"\r\n")
                     if x.startswith(b"content-length")][0].split(b":")[1])
            while len(self.left) < n:
                self.left += self.s.recv(65536)
            raise Refused(status, self.left.decode())
        accept = base64.b64encode(hashlib.sha1((self.key + GUID).encode()).digest())
        assert b"sec-websocket-accept: " + accept.lower() in head.lower(), head

    def raw(self, data):
        self.s.sendall(data)

    def send(self, payload):
        self.raw(frame(payload))

    def take(self, n):
        while len(self.left) < n:
            more = self.s.recv(1 << 20)
            if not more:
                raise EOFError
            self.left += more
        got, self.left = self.left[:n], self.left[n:]
        return got

    def next_frame(self):
        """(opcode, payload) as the server sends it: whole and not masked."""
        a, b = self.take(2)
        assert a & 0x80 and not b & 0x80, (a, b)
        n = b & 127
        if n == 126:
            n, = struct.unpack(">H", self.take(2))
        elif n == 127:
            n, = struct.unpack(">Q", self.take(8))
        return a & 15, self.take(n)

    def next(self):
        """(type, number, body) of the next message; pings are answered."""
        while True:
            opcode, payload = self.next_frame()
            if opcode == PING:
                self.raw(frame(payload, PONG))
            elif opcode == CLOSE:
                raise EOFError
            elif opcode == BINARY:
                return (*struct.unpack("<II", payload[:8]), payload[8:])

    def until_run(self, loads=True):
        """Takes files, says that they are loaded; (run, inputs) of the next run."""
        while True:
            kind, number, body = self.next()
            if kind == LOAD and loads:
                self.send(message(LOADED, number, b"wasm"))
            if kind == RUN:
                return number, body[8:]

    def closed(self, seconds=10):
        """Does the server end it?"""
        self.s.settimeout(seconds)
        try:
            while self.s.recv(1 << 16):
                pass
            return True
        except socket.timeout:
            return False
        except (OSError, ssl.SSLError):
            return True

    def close(self):
        self.s.close()
