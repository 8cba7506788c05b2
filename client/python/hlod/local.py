# SPDX-License-Identifier: Apache-2.0
"""Programs and libhlod that came with this package (its wheel for Linux x86-64 has them;
docs/install.md), and a server for as long as a `with` lasts."""
from __future__ import annotations

import os
import platform
import shutil
import subprocess
import tempfile
import time
from importlib import metadata
from typing import Any, Optional, Sequence

from .client import Client, connect
from .errors import HlodError, NotFound, Unavailable


def _installed(name: str) -> Optional[str]:
    """A file of this package's installation, by the end of its path."""
    try:
        for f in metadata.files("hlod") or ():
            if f.name == name:
                path = os.path.realpath(str(f.locate()))
                if os.path.exists(path):
                    return path
    except metadata.PackageNotFoundError:
        pass
    return None


def program(name: str) -> str:
    """Path of hlod, hlo or hlod-worker: this package's, else the one on PATH. NotFound if there is
    none."""
    found = _installed(name) or shutil.which(name)
    if not found:
        raise NotFound(f"no program {name} is here",
                       hint="the wheel for Linux x86-64 has it; docs/install.md tells other ways")
    return found


def libhlod() -> str:
    """Path of libhlod.so.0, the C client library, for ctypes and the like. Unlike the programs it
    uses the C library of the process it is loaded into: HlodError where that is too old."""
    path = _installed("libhlod.so.0")
    if not path:
        raise NotFound("libhlod did not come with this installation",
                       hint="the wheel for Linux x86-64 has it; docs/install.md tells other ways")
    needs = open(os.path.join(os.path.dirname(path), "libhlod.glibc"),
                 encoding="ascii").read().strip()
    name, has = platform.libc_ver()
    if name != "glibc" or [int(x) for x in has.split(".")] < [int(x) for x in needs.split(".")]:
        raise HlodError(f"libhlod needs glibc {needs} or later, this process has "
                        f"{name or 'no glibc'} {has}".rstrip(), code="FAILED_PRECONDITION",
                        hint="hlod.connect() and the programs need none of it")
    return path


class Server:
    """`with hlod.serve() as h:`: a server of one's own on free ports, and its Client."""

    def __init__(self, data: Optional[str] = None, args: Sequence[str] = (),
                 timeout: Optional[float] = None) -> None:
        self._temporary = tempfile.mkdtemp(prefix="hlod-")
        self._log = os.path.join(self._temporary, "log")
        port = os.path.join(self._temporary, "port")
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen([program("hlod"), "--http", "127.0.0.1:0", "--grpc",
                                             "127.0.0.1:0", "--port-file", port, "--data",
                                             data or os.path.join(self._temporary, "data"), *args],
                                            stdin=subprocess.DEVNULL, stderr=log)
        try:
            self.client = self._ready(port, time.monotonic() + 30, timeout)
        except BaseException:
            self.stop()
            raise

    def _ready(self, port: str, end: float, timeout: Optional[float]) -> Client:
        client: Optional[Client] = None
        while self.process.poll() is None and time.monotonic() < end:
            if client is None and os.path.exists(port):
                with open(port, encoding="ascii") as f:
                    self.address = f.read().strip()
                client = connect("http://" + self.address, timeout=timeout)
            if client and client.ready():
                return client
            time.sleep(0.01)
        raise Unavailable("hlod did not start:\n" + self.log())

    def log(self) -> str:
        """What it has written so far."""
        with open(self._log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def stop(self) -> None:
        """Ends it in good order."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self._temporary, ignore_errors=True)

    def __enter__(self) -> Client:
        return self.client

    def __exit__(self, *exc: Any) -> None:
        self.client.close()
        self.stop()


def serve(data: Optional[str] = None, *, args: Sequence[str] = (),
          timeout: Optional[float] = None) -> Server:
    """Starts hlod and waits until it can compile and run. data: its folder, which stays (default:
    one that goes with it); args: further options; timeout: of each call, seconds."""
    return Server(data, args, timeout)
