# SPDX-License-Identifier: Apache-2.0
"""An OpenTelemetry collector for tests, over gRPC and HTTP: keeps what it gets, as
opentelemetry-proto's messages read it, and misbehaves as it is told. Needs grpcio,
opentelemetry-proto."""
import gzip, threading, time
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import socket, ssl
import grpc
from google.protobuf import any_pb2, duration_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

SERVICES = {"opentelemetry.proto.collector.trace.v1.TraceService": traces.ExportTraceServiceRequest,
            "opentelemetry.proto.collector.metrics.v1.MetricsService":
            metrics.ExportMetricsServiceRequest}
PATHS = {"/v1/traces": traces.ExportTraceServiceRequest,
         "/v1/metrics": metrics.ExportMetricsServiceRequest}

def field(number, data):
    """A length-delimited field of a protobuf message, as bytes."""
    n, size = len(data), b""
    while n >= 0x80:
        size, n = size + bytes([n & 0x7f | 0x80]), n >> 7
    return bytes([number << 3 | 2]) + size + bytes([n]) + data
def retry_info(seconds):
    """A google.rpc.Status that says when to come again."""
    info = field(1, duration_pb2.Duration(seconds=int(seconds), nanos=int(
        seconds % 1 * 1e9)).SerializeToString())
    detail = any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=info)
    return b"\x08\x0e" + field(2, b"busy") + field(3, detail.SerializeToString())

class Collector:
    """mode: ok, hang, busy (comes again after .retry seconds), refuse, partial, flood; over HTTP
    also redirect (to .elsewhere), garbage (no HTTP), page (a text), headers (without an end)."""
    def __init__(self, tls=None, protocol="grpc", port=0):
        self.mode, self.retry, self.got, self.headers = "ok", 0.2, [], []
        self.calls, self.times, self.released = 0, [], threading.Event()
        self.protocol, self.down, self.elsewhere = protocol, False, ""
        if tls == "x":  # nobody is there
            self.port, self.down = 1, True
        else:
            (self.serve_grpc if protocol == "grpc" else self.serve_http)(tls, port)
        self.url = f"http{'s' if tls else ''}://localhost:{self.port}"

    def serve_grpc(self, tls, port):
        self.grpc = grpc.server(futures.ThreadPoolExecutor(8))
        for name, kind in SERVICES.items():
            method = grpc.unary_unary_rpc_method_handler(
                lambda data, c, kind=kind: self.on_grpc(kind, data, c))
            self.grpc.add_generic_rpc_handlers(
                [grpc.method_handlers_generic_handler(name, {"Export": method})])
        at = f"localhost:{port}"
        self.port = self.grpc.add_secure_port(at, grpc.ssl_server_credentials(
            [(open(tls[1], "rb").read(), open(tls[0], "rb").read())])) if tls else (
                self.grpc.add_insecure_port(at))
        self.grpc.start()
        self.end = lambda: self.grpc.stop(0).wait()

    def serve_http(self, tls, port):
        outer, open_now = self, []
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            def setup(self):
                open_now.append(self.request)
                super().setup()
            def do_POST(self):
                outer.on_http(self)
            def log_message(self, *_):
                pass
        s = ThreadingHTTPServer(("localhost", port), Handler)
        s.daemon_threads = True
        if tls:
            c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            c.load_cert_chain(*tls)
            s.socket = c.wrap_socket(s.socket, server_side=True)
        self.port = s.server_address[1]
        threading.Thread(target=s.serve_forever, daemon=True).start()
        def end():
            s.shutdown()
            s.server_close()
            for x in open_now:  # or those that are kept would go on
                try:
                    x.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.end = end

    def stop(self):
        self.released.set()
        if not self.down:
            self.end()
        self.down = True

    def take(self, kind, data, headers):
        self.calls += 1
        self.times.append(time.monotonic())
        self.headers.append(headers)
        if self.mode in ("ok", "partial", "flood", "page"):
            self.got.append(kind.FromString(data))

    def on_grpc(self, kind, data, c):
        self.take(kind, data, dict(c.invocation_metadata()))
        if self.mode == "hang":
            self.released.wait(60)
        elif self.mode == "busy":
            c.set_trailing_metadata((("grpc-status-details-bin", retry_info(self.retry)),))
            c.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        elif self.mode == "refuse":
            c.abort(grpc.StatusCode.INVALID_ARGUMENT, "no such thing")
        return self.answer()

    def answer(self):
        partial = b"\x08\x03" + field(2, b"three were too old")
        return {"partial": field(1, partial), "flood": b"\x0a" * (1 << 22)}.get(self.mode, b"")

    def on_http(self, h):
        data = h.rfile.read(int(h.headers["Content-Length"]))
        if h.headers.get("Content-Encoding") == "gzip":
            data = gzip.decompress(data)
        if h.path not in PATHS:
            h.send_error(404)
            return
        self.take(PATHS[h.path], data, {k.lower(): v for k, v in h.headers.items()})
        if self.mode == "hang":
            self.released.wait(60)
        if self.mode in ("garbage", "headers"):
            self.write_badly(h)
            return
        body = b"<html>fine</html>" if self.mode == "page" else self.answer()
        h.send_response({"busy": 503, "refuse": 400, "redirect": 307}.get(self.mode, 200))
        if self.mode == "busy":
            h.send_header("Retry-After", str(max(1, round(self.retry))))
        if self.mode == "redirect":
            h.send_header("Location", self.elsewhere + h.path)
        h.send_header("Content-Type", "application/x-protobuf")
        h.send_header("Content-Length", str(len(body)))
        try:
            h.end_headers()
            h.wfile.write(body)
        except OSError:
            pass

    def write_badly(self, h):
        h.close_connection = True
        try:
            if self.mode == "garbage":
                h.wfile.write(b"\x00\xff\x15garbage\r\n\r\n" * 50)
            else:
                h.wfile.write(b"HTTP/1.1 200 OK\r\n")
                while not self.released.is_set():
                    h.wfile.write(b"x-more: " + b"y" * 1000 + b"\r\n")
        except OSError:
            pass

    # What came.
    def spans(self):
        return [s for m in list(self.got) if isinstance(m, traces.ExportTraceServiceRequest)
                for r in m.resource_spans for x in r.scope_spans for s in x.spans]
    def resources(self):
        return [r.resource for m in list(self.got) for r in (
            m.resource_spans if isinstance(m, traces.ExportTraceServiceRequest)
            else m.resource_metrics)]
    def metrics(self):
        """The last ones, by name."""
        for m in reversed(list(self.got)):
            if isinstance(m, metrics.ExportMetricsServiceRequest):
                return {x.name: x for r in m.resource_metrics for s in r.scope_metrics
                        for x in s.metrics}
        return {}

def attributes(x):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in x.attributes}
