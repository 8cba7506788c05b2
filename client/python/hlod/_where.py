# SPDX-License-Identifier: Apache-2.0
"""Which server, and how to show who we are: what hlod.connect was told, and what the environment
says (HLOD_ADDR, HLOD_TOKEN, HLOD_TOKEN_FILE, HLOD_CACERT, HLOD_CERT, HLOD_KEY)."""
from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Optional

from .errors import InvalidArgument

PORTS = {"http": 8000, "https": 8000, "grpc": 8001, "grpcs": 8001}


@dataclass(frozen=True)
class Where:
    """An address taken apart. scheme: http, https, grpc, grpcs, or empty where none was given."""
    text: str
    scheme: str
    host: str
    port: int
    tls: bool
    token: Optional[str] = None
    ca: Optional[str] = None
    cert: Optional[str] = None
    key: Optional[str] = None
    port_given: bool = True

    @property
    def loopback(self) -> bool:
        return self.host.startswith("127.") or self.host in ("localhost", "::1")


def _token_file() -> Optional[str]:
    path = os.environ.get("HLOD_TOKEN_FILE")
    if not path:
        return None
    with open(path, encoding="ascii") as f:
        return f.read().strip() or None


def where(address: Optional[str], token: Optional[str], ca: Optional[str], cert: Optional[str],
          key: Optional[str]) -> Where:
    """InvalidArgument where it is no address, or where a token would cross the network unencrypted
    without an http:// that allows it."""
    env = os.environ.get
    text = address or env("HLOD_ADDR") or "127.0.0.1"
    token = token or env("HLOD_TOKEN") or _token_file()
    ca, cert, key = ca or env("HLOD_CACERT") or None, cert or env("HLOD_CERT") or None, key or env(
        "HLOD_KEY") or None
    scheme, rest = text.split("://", 1) if "://" in text else ("", text)
    rest = rest.rstrip("/")
    host, _, port = (rest.rpartition(":") if not rest.endswith("]") and ":" in rest
                     else (rest, "", ""))
    if (scheme and scheme not in PORTS or not host or (port and not port.isdigit())
        or set(rest) & set("/@?# ")):
        raise InvalidArgument(f"address {text!r}: expected HOST:PORT, http://, https://, grpc:// "
                              "or grpcs://HOST:PORT")
    tls = scheme in ("https", "grpcs") or (not scheme and bool(ca or cert))
    w = Where(text, scheme, host.strip("[]"), int(port or PORTS[scheme or "http"]), tls, token, ca,
              cert, key, bool(port))
    if token and ("\n" in token or "\r" in token):
        raise InvalidArgument("the token has more than one line")
    if token and not tls and not scheme and not w.loopback:
        raise InvalidArgument(f"the token would cross the network unencrypted: say https://{rest}, "
                              f"or http://{rest} to allow it")
    return w
