# SPDX-License-Identifier: Apache-2.0
"""The transport over gRPC, for those who have grpcio (`pip install hlod[grpc]`): one connection for
any number of calls. Messages are written and read by _wire.py."""
from __future__ import annotations

from typing import Any, Dict, Iterator, Optional

import grpc

from . import _wire
from ._schema import METHODS
from ._where import Where
from .errors import FailedPrecondition, HlodError, InvalidArgument, make

_MESSAGE_MAX = (1 << 31) - (1 << 20)
# grpcio puts its library away with the last channel, while its threads may still be writing a
# message that the server has refused: then the process dies. This one never connects.
_KEEPS_THE_LIBRARY = grpc.insecure_channel("127.0.0.1:1")

_MEANS = [("http1.x server", "that is an HTTP port: http://HOST:PORT"),
          ("WRONG_VERSION_NUMBER", "a server without TLS is grpc://HOST:PORT"),
          ("CERTIFICATE_VERIFY_FAILED",
           "ca='CA.pem' of the one that signed the server's certificate, or HLOD_CACERT"),
          ("Socket closed", "a server with TLS is grpcs://HOST:PORT")]


def _error(e: Any, where: Where) -> HlodError:
    trailers = {k: v for k, v in (e.trailing_metadata() or ())}
    text = (e.details() or "").split("\n")
    code = e.code().name
    hint = ""
    if code == "UNAVAILABLE" and "hlod-reason" not in trailers:
        hint = next((then for words, then in _MEANS if words in text[0]), "")
        text[0] = f"cannot reach hlod at {where.text}: {text[0]}"
        if "Connection refused" in text[0]:
            hint = "start it: hlod &" if where.loopback else ""
    reason = str(trailers.get("hlod-reason", ""))
    # the server's gRPC library, before hlod sees the call: the code and reason of hlod's own
    # refusal
    if not reason and text[0].startswith("Received message larger than max"):
        code, reason = "INVALID_ARGUMENT", "BODY_TOO_LARGE"
    retry = str(trailers.get("hlod-retry-after-ms", ""))
    return make(code, text[0], reason=reason, details=[t for t in text[1:] if t],
                retry_after_ms=int(retry) if retry.isdigit() else 0, hint=hint)


def _read(path: Optional[str]) -> Optional[bytes]:
    if not path:
        return None
    with open(path, "rb") as f:
        return f.read()


class GrpcTransport:
    """One server. Made by hlod.connect."""

    name = "grpc"

    def __init__(self, where: Where) -> None:
        self._where = where
        target = (f"[{where.host}]:{where.port}" if ":" in where.host
                  else f"{where.host}:{where.port}")
        self.address = f"{'grpcs' if where.tls else 'grpc'}://{target}"
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
                   ("grpc.enable_http_proxy", 0)]
        if where.tls:
            self._channel = grpc.secure_channel(target, grpc.ssl_channel_credentials(
                                                    _read(where.ca), _read(where.key),
                                                    _read(where.cert)), options)
        else:
            self._channel = grpc.insecure_channel(target, options)
        self._metadata = [("authorization", "Bearer " + where.token)] if where.token else []

    def close(self) -> None:
        self._channel.close()

    def _encoded(self, message: str, request: Dict[str, Any]) -> bytes:
        body = _wire.encode(message, request)
        if len(body) > _MESSAGE_MAX:
            raise InvalidArgument(
                f"{len(body)} bytes are beyond one gRPC message: use http:// for them")
        return body

    def _unary(self, path: str, asked: str, replied: str, request: Dict[str, Any],
               timeout: Optional[float], again: bool = True) -> Dict[str, Any]:
        message = self._encoded(asked, request)
        while True:
            try:
                return _wire.decode(replied, self._channel.unary_unary(path)(
                                        message, timeout=timeout, metadata=self._metadata))
            except grpc.RpcError as e:
                found = _error(e, self._where)
                again = (again and found.code == "UNAVAILABLE" and not found.reason
                         and "failed to connect" not in found.message)
            except ValueError as e:  # of a channel that was closed
                raise FailedPrecondition(f"this client is closed: {e}") from None
            if not again:
                raise found
            again = False  # the server was started anew: the channel says so by the first call

    def call(self, method: str, request: Dict[str, Any], timeout: Optional[float] = None,
             again: bool = True) -> Dict[str, Any]:
        """A call with one reply. again: it may be sent twice when the connection turns out to be
        broken."""
        return self._unary("/hlod.v1.Hlod/" + method, *METHODS[method], request, timeout, again)

    def stream(self, method: str, request: Dict[str, Any], timeout: Optional[float] = None,
               again: bool = True) -> Iterator[Dict[str, Any]]:
        """Its events. Leaving the loop early cancels the call."""
        call = self._channel.unary_stream("/hlod.v1.Hlod/" + method)(
            self._encoded(METHODS[method][0], request), timeout=timeout, metadata=self._metadata)
        try:
            for message in call:
                yield _wire.decode("Event", message)
        except grpc.RpcError as e:
            raise _error(e, self._where) from None
        finally:
            call.cancel()

    def package(self, request: Dict[str, Any], timeout: Optional[float] = None) -> bytes:
        """The bytes of ExportWeb: up to 64 MiB."""
        return bytes(self.call("ExportWeb", request, timeout).get("data", b""))

    def metadata(self, model: str, version: str) -> Dict[str, Any]:
        """ModelMetadata of the Open Inference Protocol."""
        return self._unary("/inference.GRPCInferenceService/ModelMetadata",
                           "oip.ModelMetadataRequest", "oip.ModelMetadataResponse",
                           {"name": model, "version": version}, None)
