# SPDX-License-Identifier: Apache-2.0
"""A TCP connection that can be cut: what comes to a port goes to another one and back, until it is
told to break all connections and take none, or to pass nothing on and say nothing. Standard library
only."""
import contextlib, socket, threading

class Link:
    def __init__(self, port, to):
        self.to, self.all, self.lock = to, set(), threading.Lock()
        self.flows = threading.Event()
        self.flows.set()
        self.cut = self.over = False
        self.listener = socket.create_server(("127.0.0.1", port))
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while not self.over:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.join, args=(near,), daemon=True).start()

    def join(self, near):
        with near:
            self.flows.wait(60)
            if self.cut:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to), timeout=5)
            except OSError:
                return
            far.settimeout(None)
            with far:
                with self.lock:
                    self.all |= {near, far}
                back = threading.Thread(target=self.pump, args=(far, near), daemon=True)
                back.start()
                self.pump(near, far)
                back.join(60)
                with self.lock:
                    self.all -= {near, far}

    def pump(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                self.flows.wait(60)
                b.sendall(data)
        for s in a, b:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def part(self, silent):
        """breaks it; silent: connections stay, nothing comes through"""
        self.cut = not silent
        if silent:
            self.flows.clear()
            return
        with self.lock:
            for s in self.all:
                with contextlib.suppress(OSError):
                    s.shutdown(socket.SHUT_RDWR)

    def heal(self):
        self.cut = False
        self.flows.set()

    def close(self):
        self.over = True
        self.part(False)
        self.flows.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(10)
