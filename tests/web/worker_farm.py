#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The device kind `web` against headless Chromium without a daemon: a page keeps several
connections open, by server/workers/link.js, and programs get their sockets: the contract of
devices/device.h (device_test), and all cases of tests/ops (hlo-run), as WebAssembly, by WebGPU and
by WebGL2 over the CPU. What is not run must be in refused.txt, which may only become shorter. With
--fuzz instead: so many random modules (tests/fuzz-hlo), beside the evaluator and XLA:CPU. Needs
chromium-driver (sh deploy/setup.sh dashboard).

    worker_farm.py BUILD [--fuzz N [--seed S] [--theme NAME]] [wasm|webgpu|webgl] [CASES...]
"""
import argparse
import array
import base64
import hashlib
import http.server
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [HERE, os.path.join(HERE, ".."), os.path.join(HERE, "..", "dashboard")]
import browser  # noqa: E402
import tabs  # noqa: E402
from harness import Results  # noqa: E402

BACKENDS = ["wasm", "webgpu", "webgl"]
PAGE = b"""<!doctype html><meta charset="utf-8"><title>farm</title><script type="module">
import { Link } from "/worker/link.js";
const backend = new URLSearchParams(location.search).get("backend");
const url = location.href.replace(/^http/, "ws").replace(/\\/page.*/, "/v1/workers");
globalThis.said = [], globalThis.by = [];
function open() {
  new Link(url, ["hlod.worker.v1"], backend, ({ what, error, backend }) => {
    if (backend && !by.includes(backend)) by.push(backend);
    if (error) said.push(`${what}: ${error}`);
    if (what === "close") open();
  });
}
for (let k = 0; k < 4; k++) open();
</script>"""


class Farm(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sockets = None

    def log_message(self, *args):
        pass

    def reply(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/v1/workers":
            self.join()
        elif path == "/page":
            self.reply(PAGE, "text/html")
        else:
            match = re.fullmatch(r"/worker/(runtime/)?([a-z0-9]+\.js)", path)
            folder = "compiler/web/runtime" if match and match[1] else "server/workers"
            if not match:
                self.send_error(404)
                return
            with open(os.path.join(ROOT, folder, match[2]), "rb") as f:
                self.reply(f.read(), "text/javascript")

    def join(self):
        key = self.headers["Sec-WebSocket-Key"]
        accept = base64.b64encode(hashlib.sha1((key + tabs.GUID).encode()).digest()).decode()
        self.connection.sendall(("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                                 "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
                                 "Sec-WebSocket-Protocol: hlod.worker.v1\r\n\r\n" %
                                 accept).encode())
        self.close_connection = True
        mine = socket.socket(fileno=os.dup(self.connection.fileno()))
        self.sockets.put(mine)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):  # a browser resets what it does not need
        pass

    def shutdown_request(self, request):  # what it has of a page's socket is a copy
        self.close_request(request)


def give_out(listener, sockets):
    """A socket of a page to whoever connects."""
    while True:
        try:
            c, _ = listener.accept()
        except OSError:
            return
        with c:
            try:
                mine = sockets.get(timeout=60)
            except queue.Empty:
                continue
            c.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                array.array("i", [mine.fileno()]))])
            mine.close()


def refused(path):
    with open(path) as f:
        return {line.strip() for line in f if line.strip() and not line.startswith("#")}


def cases(build, backend, files, sockets, result):
    """Each file by a socket of its own, so that what one leaves behind is no other's trouble."""
    not_run = set()
    for path in files:
        name = os.path.basename(path)[:-4]
        mine = sockets.get(timeout=60)
        fd = mine.fileno()
        os.set_inheritable(fd, True)
        done = subprocess.run([build + "/hlo-run", "--cases", "--device", "web:fd=%d" % fd, path],
                              capture_output=True, text=True, timeout=300, pass_fds=[fd])
        mine.close()
        # A case that is to be refused may be so for another reason.
        bad = re.findall(r"^case at line \d+: (?!not run|the web target cannot run).*", done.stdout,
                         re.M)
        if ": not run: " in done.stdout:
            not_run.add(name)
        ended = re.search(r"\d+ cases, \d+ failed, \d+ not run", done.stdout)
        result("%s %s" % (backend, name), ended and not bad, done.stdout + done.stderr)
    return not_run


def contract(build, backend, path, result):
    env = {**os.environ, "HLOD_WEB_TABS": path}
    done = subprocess.run([build + "/device_test", "web"], capture_output=True, text=True,
                          timeout=600, env=env)
    result("%s: the device contract" % backend, done.returncode == 0, done.stdout + done.stderr)


def fuzz(build, backend, path, o, result):
    env = {**os.environ, "HLOD_WEB_TABS": path, "HLO_DIFF": build + "/tests/hlo-diff"}
    theme = ["--theme", o.theme] if o.theme else []
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tests/fuzz-hlo/fuzz_hlo.py"),
                           "--diff", os.path.join(HERE, "page_diff.py"), "--device", "web", "--n",
                           str(o.fuzz), "--seed", str(o.seed), "--out",
                           os.path.join(ROOT, "build/fuzz-web"), *theme],
                          capture_output=True, text=True, env=env)
    print(done.stdout[-3000:], flush=True)
    result("%s: %d random modules" % (backend, o.fuzz), done.returncode == 0, done.stderr[-3000:])


def run(build, backend, o, files, result):
    flags = {"wasm": ("--disable-gpu",), "webgpu": browser.WEBGPU, "webgl": browser.WEBGL}[backend]
    sockets = queue.Queue()
    handler = type("Handler", (Farm,), {"sockets": sockets})
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    work = tempfile.mkdtemp(prefix="hlod-farm-")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(work + "/tabs")
    listener.listen(8)
    b = browser.Browser(flags=flags)
    try:
        b.go("http://127.0.0.1:%d/page?backend=%s" % (server.server_port, backend))
        if not o.fuzz:
            not_run = cases(build, backend, files, sockets, result)
            known = refused(os.path.join(HERE, "refused.txt"))
            result("%s: not run is what the target refuses" % backend, not_run <= known,
                   sorted(not_run - known))
            if not o.cases:
                result("%s: refused.txt is no longer than that" % backend, known <= not_run,
                       sorted(known - not_run))
        threading.Thread(target=give_out, args=(listener, sockets), daemon=True).start()
        if o.fuzz:
            fuzz(build, backend, work + "/tabs", o, result)
        else:
            contract(build, backend, work + "/tabs", result)
        by = b.js("return globalThis.by")
        result("%s: it was that" % backend, backend in by, (by, b.js("return said.slice(-5)")))
    finally:
        b.stop()
        server.shutdown()
        listener.close()
        shutil.rmtree(work, ignore_errors=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("build")
    a.add_argument("--fuzz", type=int, default=0)
    a.add_argument("--seed", default="1")
    a.add_argument("--theme", default="")
    a.add_argument("cases", nargs="*")
    o = a.parse_intermixed_args()
    backends = [o.cases.pop(0)] if o.cases and o.cases[0] in BACKENDS else BACKENDS
    every = sorted(os.path.join(ROOT, "tests/ops", n) for n in os.listdir(
        os.path.join(ROOT, "tests/ops")) if n.endswith(".hlo"))
    if not shutil.which("chromedriver"):
        print("SKIP pages as devices: no chromedriver")
        return 0
    result = Results()
    for backend in backends:
        run(o.build, backend, o, o.cases or every, result)
    return result.code()


sys.exit(main())
