# SPDX-License-Identifier: Apache-2.0
"""The same for asyncio: `h = await hlod.aio.connect(...)`; every method of Client is awaited, events come by `async for`. Calls run in threads of the default executor, so there is
no second implementation; a call that is cancelled goes on in its thread, events that are left cancel theirs."""
from __future__ import annotations

import asyncio
import functools
from typing import Any, AsyncIterator, Callable, Iterator

from .client import Client
from .client import connect as _connect
from .results import Event

_END = object()


async def _in_thread(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, functools.partial(fn, *args, **kwargs))


async def _each(make: Callable[[], Iterator[Event]]) -> AsyncIterator[Event]:
    events = await _in_thread(make)
    try:
        while True:
            e = await _in_thread(next, events, _END)
            if e is _END:
                return
            yield e
    finally:
        await _in_thread(events.close)


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
        return functools.partial(_in_thread, fn) if callable(fn) else fn


async def connect(*args: Any, **kwargs: Any) -> AsyncClient:
    """hlod.connect, with its arguments."""
    return AsyncClient(await _in_thread(_connect, *args, **kwargs))
