# SPDX-License-Identifier: Apache-2.0
"""What the attacks share: bodies, programs, requests on raw connections. Standard library only."""
import gzip, json, socket

JSON, PROTO = {"Content-Type": "application/json"}, {"Content-Type": "application/x-protobuf"}
MB = 1 << 20

def zipped(piece, times, head=b"", tail=b""):
    return gzip.compress(head + piece * times + tail, 9)

def refused(reply, *statuses, reason=None):
    status, _, text = reply
    assert status in statuses and (reason is None or json.loads(text).get("reason") == reason), (
        status, text[:300])

def address(d):
    host, port = d.grpc.rsplit(":", 1)
    return host, int(port)

def filled(d, who, n):
    """a program whose result is one value n times"""
    status, r = d.by(who, "POST", "/v1/executables",
                     f"HloModule filled{n}\nENTRY e {{\n  x = f32[] parameter(0)\n  ROOT y = "
                     f"f32[{n}] broadcast(x), dimensions={{}}\n}}\n".encode())
    assert status == 200, r
    return r["sourceDigest"]

def ask(d, who, model, accept, path="/v1/run", **more):
    """a request for its result on a connection of its own, of which nothing is read yet"""
    s = socket.create_connection(d.addr)
    body = json.dumps(
        {"model": model,
         "inputs": [{"name": "x", "dtype": "f32", "datatype": "FP32", "shape": [], "data": [1.5]}],
         **more}
        if path == "/v1/run"
        else {"inputs": [{"name": "x", "datatype": "FP32", "shape": [], "data": [1.5]}]}).encode()
    s.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: "
              b"application/json\r\nAccept: %s\r\nContent-Length: %d\r\n\r\n"
              % (path.encode(), d.tokens[who].encode(), accept.encode(), len(body))
              + body)
    return s

def run_message(model, *values):
    """RunRequest of hlod.v1 with one f32 input x; no values: a scalar 1.5"""
    import struct
    field = lambda n, b: bytes([n << 3 | 2, len(b)]) + b
    shape = field(3, bytes([1, len(values)])) if values else b""
    return field(1, model.encode()) + field(
        3, field(1, b"x") + field(2, b"f32") + shape
           + field(4, struct.pack(f"{len(values) or 1}f", *(values or [1.5]))))
