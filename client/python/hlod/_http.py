# SPDX-License-Identifier: Apache-2.0
"""The transport over HTTP: the standard library and nothing else.

Calls are `POST /hlod.v1.Hlod/METHOD` with protobuf both ways; those with tensors are JSON with the
tensors' bytes behind it (docs/api.md, "Binary tensors"), sent from the arrays' own memory and read
into that of the results. Streams come as frames: a length in 32 bits, little-endian, and an Event.
Connections are kept, one for each call that is under way at once, so a client may be used by any
number of threads."""
from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from typing import Any, Dict, Iterator, List, Optional
from urllib.parse import quote

from . import _wire
from ._schema import METHODS
from ._where import Where
from .errors import FailedPrecondition, HlodError, InvalidArgument, Unavailable, make

_TENSORS = {"Run": "/v1/run", "RunUnary": "/v1/run", "RunPlan": "/v1/plan",
            "RunPlanUnary": "/v1/plan", "PutBuffer": "/v1/buffers"}
_CONNECT_S, _GRACE_S = 5.0, 5.0


_OIP_CODES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED",
              404: "NOT_FOUND", 409: "ABORTED", 429: "RESOURCE_EXHAUSTED", 504: "DEADLINE_EXCEEDED"}


def _refusal(status: int, headers: Any, body: bytes) -> HlodError:
    try:
        said = json.loads(body)
        # the Open Inference Protocol's form
        if set(said) == {"error"} and isinstance(said["error"], str):
            return make(_OIP_CODES.get(status,
                                       "UNAVAILABLE" if status >= 500 else "INVALID_ARGUMENT"),
                        said["error"])
        e = _wire.from_json("Error", said)
        e["code"]
    except (ValueError, KeyError, TypeError, AttributeError):
        # not ours: the HTTP library's own, or another server
        text = "".join(x if x.isprintable() else " " for x in body[:200].decode("utf-8", "replace"))
        return make("UNAVAILABLE" if status >= 500 else "INVALID_ARGUMENT",
                    f"HTTP status {status}, not in hlod's words: {text}".rstrip(": "),
                    hint="is that hlod's address? Proxies answer so too")
    retry = e.get("retry_after_ms", 0)
    if not retry and str(headers.get("Retry-After", "")).isdigit():
        retry = 1000 * int(headers["Retry-After"])
    return make(e["code"], e.get("message", ""), reason=e.get("reason", ""),
                details=e.get("details", ()), retry_after_ms=retry)


class HttpTransport:
    """One server. Made by hlod.connect."""

    name = "http"

    def __init__(self, where: Where) -> None:
        self._where = where
        self.address = (where.text if "://" in where.text
                        else f"{'https' if where.tls else 'http'}://{where.host}:{where.port}")
        self._context: Optional[ssl.SSLContext] = None
        if where.tls:
            try:
                self._context = ssl.create_default_context(cafile=where.ca)
            except OSError as e:
                raise InvalidArgument(f"ca {where.ca!r}: {e.strerror or e}",
                                      hint="a file of certificates in PEM") from None
            try:
                if where.cert:
                    self._context.load_cert_chain(where.cert, where.key)
            except OSError as e:
                raise InvalidArgument(
                    f"cert {where.cert!r}, key {where.key or where.cert!r}: {e.strerror or e}",
                    hint="files in PEM, the key that of the certificate") from None
        self._idle: List[http.client.HTTPConnection] = []
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for c in idle:
            c.close()

    # ---- one exchange

    def _connect(self) -> http.client.HTTPConnection:
        w = self._where
        c = (http.client.HTTPSConnection(w.host, w.port, timeout=_CONNECT_S, context=self._context)
             if self._context else http.client.HTTPConnection(w.host, w.port, timeout=_CONNECT_S))
        try:
            c.connect()
        except ssl.SSLCertVerificationError as e:
            raise Unavailable(
                f"the certificate of {w.text} is not trusted: {e.verify_message}",
                hint="ca='CA.pem' of the one that signed it, or HLOD_CACERT") from None
        except ssl.SSLError as e:
            raise Unavailable(f"no TLS with {w.text}: {e.reason or e}",
                              hint="a server without TLS is http://HOST:PORT") from None
        except OSError as e:
            raise Unavailable(f"cannot reach hlod at {w.text}: {e}",
                              hint="start it: hlod &" if w.loopback else "") from None
        c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return c

    def _send(self, c: http.client.HTTPConnection, verb: str, path: str, headers: Dict[str, str],
              parts: List[Any], timeout: Optional[float]) -> http.client.HTTPResponse:
        c.sock.settimeout(None if timeout is None else timeout + _GRACE_S)
        c.putrequest(verb, path, skip_accept_encoding=True)
        for k, v in headers.items():
            c.putheader(k, v)
        if self._where.token:
            c.putheader("Authorization", "Bearer " + self._where.token)
        c.putheader("Content-Length", str(sum(len(p) for p in parts)))
        c.endheaders(parts[0] if len(parts) == 1 and len(parts[0]) < 1 << 16 else None)
        if not (len(parts) == 1 and len(parts[0]) < 1 << 16):
            try:
                for p in parts:
                    c.send(p)
            except ConnectionError:
                refused = self._refused_early(c)
                if refused is None:
                    raise
                return refused
        return c.getresponse()

    @staticmethod
    def _refused_early(c: http.client.HTTPConnection) -> Optional[http.client.HTTPResponse]:
        """What the server answered before it closed on a body that it does not want (too large, no
        token); None: nothing."""
        try:
            r = c.getresponse()
        except (OSError, http.client.HTTPException):
            return None
        return r if r.status >= 400 else None

    def _exchange(self, verb: str, path: str, headers: Dict[str, str], parts: List[Any],
                  timeout: Optional[float],
                  again: bool) -> "tuple[http.client.HTTPConnection, http.client.HTTPResponse]":
        """The reply's headers have come. A kept connection that turns out to be closed is replaced
        once, where sending again does no harm."""
        with self._lock:
            if self._closed:
                raise FailedPrecondition("this client is closed")
            c = self._idle.pop() if self._idle else None
        kept = c is not None
        while True:
            c = c or self._connect()
            try:
                return c, self._send(c, verb, path, headers, parts, timeout)
            except socket.timeout:
                c.close()
                raise make("DEADLINE_EXCEEDED",
                           f"no answer from {self._where.text} within {timeout} s") from None
            except (OSError, http.client.HTTPException) as e:
                c.close()
                c = None
                if (kept and again
                    and isinstance(e, (ConnectionError, http.client.RemoteDisconnected))):
                    kept = False
                    continue
                raise self._broken(e) from None

    def _broken(self, e: Exception) -> HlodError:
        if (isinstance(e, http.client.BadStatusLine)
            and not isinstance(e, http.client.RemoteDisconnected)):
            return Unavailable(
                f"{self._where.text} does not speak HTTP",
                hint="the gRPC port is grpc://HOST:PORT; a server with TLS is https://HOST:PORT")
        hint = ("" if self._where.tls or not isinstance(e, ConnectionError)
                else "a server with TLS is https://HOST:PORT")
        return Unavailable(f"the connection to {self._where.text} broke: {e or type(e).__name__}",
                           hint=hint)

    def _keep(self, c: http.client.HTTPConnection, r: http.client.HTTPResponse) -> None:
        if r.will_close or not r.isclosed():
            c.close()
            return
        with self._lock:
            if not self._closed:
                self._idle.append(c)
                return
        c.close()

    def _whole(self, verb: str, path: str, headers: Dict[str, str], parts: List[Any],
               timeout: Optional[float], again: bool) -> "tuple[Any, bytearray]":
        c, r = self._exchange(verb, path, headers, parts, timeout, again)
        try:
            body = self._read(r)
        except (OSError, http.client.HTTPException) as e:
            c.close()
            raise self._broken(e) from None
        self._keep(c, r)
        if r.status >= 300:
            raise _refusal(r.status, r.headers, bytes(body))
        return r.headers, body

    @staticmethod
    def _read(r: http.client.HTTPResponse) -> bytearray:
        if r.length is None:
            return bytearray(r.read())
        body = bytearray(r.length)
        view, at = memoryview(body), 0
        while at < len(body):
            n = r.readinto(view[at:])
            if not n:
                raise http.client.IncompleteRead(bytes(body[:at]), len(body) - at)
            at += n
        r.read()
        return body

    # ---- calls

    @staticmethod
    def _tensor_parts(request: Dict[str, Any]) -> "tuple[Dict[str, str], List[Any]]":
        """JSON, and the bytes of its tensors."""
        inputs, raw = [], []
        for t in request.get("inputs", ()):
            if "raw" in t:
                raw.append(t["raw"])
                t = {**{k: v for k, v in t.items() if k != "raw"},
                     "parameters": {"binary_data_size": len(t["raw"])}}
            inputs.append(t)
        head = json.dumps({**request, "inputs": inputs}).encode()
        return {"Inference-Header-Content-Length": str(len(head)),
                "Content-Type": "application/octet-stream"}, [head, *[x for x in raw if len(x)]]

    def call(self, method: str, request: Dict[str, Any], timeout: Optional[float] = None,
             again: bool = True) -> Dict[str, Any]:
        """A call with one reply. again: it may be sent twice when a kept connection turns out to be
        closed."""
        asked, replied = METHODS[method]
        if method not in _TENSORS:
            message = _wire.encode(asked, request)
            kind = "application/x-protobuf"
            return _wire.decode(replied,
                                self._whole("POST", "/hlod.v1.Hlod/" + method,
                                            {"Content-Type": kind, "Accept": kind}, [message],
                                            timeout, again)[1])
        headers, parts = self._tensor_parts(request)
        headers["Accept"] = ("application/octet-stream" if replied == "RunReply"
                             else "application/json")
        got, body = self._whole("POST", _TENSORS[method], headers, parts, timeout, again)
        head = int(got.get("Inference-Header-Content-Length", len(body)))
        view = memoryview(body)
        reply = _wire.from_json(replied, json.loads(bytes(view[:head])))
        for t in reply.get("outputs", ()):
            n = t.get("parameters", {}).get("binary_data_size")
            if n is not None:
                t["raw"], head = view[head:head + n], head + n
        return reply

    def stream(self, method: str, request: Dict[str, Any], timeout: Optional[float] = None,
               again: bool = True) -> Iterator[Dict[str, Any]]:
        """Its events. Leaving the loop early cancels the call."""
        if method in _TENSORS:
            path, (headers, parts) = _TENSORS[method] + "?stream=1", self._tensor_parts(request)
        else:
            path, headers, parts = ("/hlod.v1.Hlod/" + method,
                                    {"Content-Type": "application/x-protobuf"},
                                    [_wire.encode(METHODS[method][0], request)])
        c, r = self._exchange("POST", path, {**headers, "Accept": "application/x-protobuf-stream"},
                              parts, timeout, again)
        if r.status >= 300:
            text = r.read()
            self._keep(c, r)
            raise _refusal(r.status, r.headers, text)
        whole = False
        try:
            while True:
                head = r.read(4)
                if not head:
                    whole = True
                    return
                n = int.from_bytes(head, "little")
                piece = r.read(n) if n else b""
                if len(head) < 4 or len(piece) < n:
                    raise http.client.IncompleteRead(piece, n - len(piece))
                if n:
                    yield _wire.decode("Event", piece)
        except socket.timeout:
            raise make("DEADLINE_EXCEEDED",
                       f"no answer from {self._where.text} within {timeout} s") from None
        except (OSError, http.client.HTTPException) as e:
            raise self._broken(e) from None
        finally:
            if whole:
                self._keep(c, r)
            else:
                c.close()

    def package(self, request: Dict[str, Any], timeout: Optional[float] = None) -> bytearray:
        """The bytes of ExportWeb, however many."""
        model = request.get("model", "")
        if not model:
            raise InvalidArgument("which model?")
        return self._whole("POST", f"/v1/models/{quote(model, safe='')}/web",
                           {"Content-Type": "application/x-protobuf",
                            "Accept": "application/octet-stream"},
                           [_wire.encode("ExportWebRequest", request)], timeout, True)[1]

    def metadata(self, model: str, version: str) -> Dict[str, Any]:
        """ModelMetadata of the Open Inference Protocol."""
        path = "/v2/models/" + quote(model, safe="") + (f"/versions/{version}" if version else "")
        reply: Dict[str, Any] = json.loads(
            self._whole("GET", path, {"Accept": "application/json"}, [b""], None, True)[1])
        return reply
