# SPDX-License-Identifier: Apache-2.0
"""A child process that calls functions for us: what aborts or hangs there is a message here."""
import multiprocessing


class Failed(Exception):
    """Why a call gave no value."""


def _serve(pipe):
    while True:
        f, args = pipe.recv()
        try:
            pipe.send(f(*args))
        except Exception as e:
            pipe.send(Failed(str(e).strip().split("\n")[0][:300]))


class Child:
    def __init__(self):
        self.p = None

    def call(self, f, *args, seconds=60):
        """f(*args), or a Failed."""
        if self.p is None:
            self.pipe, there = multiprocessing.get_context("spawn").Pipe()
            self.p = multiprocessing.get_context("spawn").Process(
                target=_serve, args=(there,), daemon=True)
            self.p.start()
            there.close()
        try:
            self.pipe.send((f, args))
            if self.pipe.poll(seconds):
                return self.pipe.recv()
            why = "takes too long"
        except (EOFError, ConnectionError):
            why = "the process died"
        self.close()
        return Failed(why)

    def close(self):
        if self.p is not None:
            self.p.kill()
            self.p.join()
            self.p = None
