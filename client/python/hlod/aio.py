# SPDX-License-Identifier: Apache-2.0
"""The same for asyncio: `h = await hlod.aio.connect(...)`; every method of Client is awaited,
events come by `async for`; so are those of the Executable that compile() gives and of `models`.
Calls run in threads, 64 at a time, so there is no second implementation; a call that is cancelled
goes on in its thread, events that are left cancel theirs."""
from __future__ import annotations

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any, AsyncIterator, Callable, Iterator

from .client import Client, Executable, Models
from .client import connect as _connect
from .results import Event
from .training import Progress, Trained, Training

_END = object()
_THREADS = ThreadPoolExecutor(64, thread_name_prefix="hlod")  # begun as they are needed


async def _in_thread(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    got = await asyncio.get_running_loop().run_in_executor(_THREADS,
                                                           functools.partial(fn, *args, **kwargs))
    if isinstance(got, Training):
        return AsyncTraining(got)
    if isinstance(got, Trained):
        return _Awaited(got)
    return AsyncExecutable(got) if isinstance(got, Executable) else got


async def _each(make: Callable[[], Iterator[Any]]) -> AsyncIterator[Any]:
    events = await _in_thread(make)
    try:
        while True:
            e = await _in_thread(next, events, _END)
            if e is _END:
                return
            yield e
    finally:
        await _in_thread(events.close)


class _Awaited:
    """Something of client.py whose methods are awaited; the rest is as it is there."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        return functools.partial(_in_thread, found) if callable(found) else found

    def __repr__(self) -> str:
        return repr(self._of)


class AsyncExecutable(_Awaited):
    """An Executable whose methods are coroutines; `await exe(...)` where it was made from a
    function of JAX."""

    def stream(self, *args: Any, **kwargs: Any) -> AsyncIterator[Event]:
        return _each(lambda: self._of.stream(*args, **kwargs))

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return await _in_thread(self._of, *args, **kwargs)


class AsyncTraining(_Awaited):
    """A Training whose methods are coroutines; `async for p in training.watch()`."""

    def watch(self) -> AsyncIterator[Progress]:
        return _each(self._of.watch)


class AsyncClient:
    """A Client whose methods are coroutines. `client` is the Client itself."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def compile_events(self, *args: Any, **kwargs: Any) -> AsyncIterator[Event]:
        return _each(lambda: self.client.compile_events(*args, **kwargs))

    def run_events(self, *args: Any, **kwargs: Any) -> AsyncIterator[Event]:
        return _each(lambda: self.client.run_events(*args, **kwargs))

    def __getattr__(self, name: str) -> Any:
        fn = getattr(self.client, name)
        if isinstance(fn, Models):
            return _Awaited(fn)
        return functools.partial(_in_thread, fn) if callable(fn) else fn


async def connect(*args: Any, **kwargs: Any) -> AsyncClient:
    """hlod.connect, with its arguments."""
    return AsyncClient(await _in_thread(_connect, *args, **kwargs))
