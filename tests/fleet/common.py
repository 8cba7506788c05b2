# SPDX-License-Identifier: Apache-2.0
"""What the tests of fleets share: several daemons that know each other, models with a settable
compile time, and a server that stands for a cache of executables and can misbehave in every way.
Standard library only."""
import http.server, os, random, shutil, socket, sys, tempfile, threading
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, ended, until

SECRET = "5e" * 32

def model(name, compile_ms=0, more=""):
    """a model of the scripted worker, whose artefacts others can check"""
    return (f"FAKE {name}\nin x f32 N,4\nout y f32 N,4\nweight 4\nartifact 1\n"
            f"compile_ms {compile_ms}\n{more}").encode()

def free_ports(n):
    """that nobody has now, for daemons that must know each other's before they start; below those
    that the system gives to who asks for any"""
    held = []
    while len(held) < n:
        try:
            held.append(socket.create_server(("127.0.0.1", random.randrange(20000, 32000))))
        except OSError:
            pass
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports

def secret(folder, name="cache.key", text=SECRET, mode=0o600):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text + "\n")
    os.chmod(path, mode)
    return path

def compile(d, body, **headers):
    """(status, reply) of a compile for one row"""
    return d.json("POST", "/v1/executables?shape=x=1x4", body,
                  {"Content-Type": "application/octet-stream", **headers})

def stats(d, remote=None, auth={}):
    """what /v1/cache says of a remote, the only one by default"""
    all = d.json("GET", "/v1/cache", headers=auth)[1].get("remotes", [])
    return [x for x in all if remote in (None, x["remote"])][0]

def compiles(d):
    for line in d.call("GET", "/metrics")[2].decode().split("\n"):
        if line.startswith("hlod_compiles_total "):
            return int(float(line.split()[1]))

class Site:
    """a folder of keys and the like, and daemons that end in good order with it"""
    def __init__(self, o, name):
        self.o, self.all = o, []
        self.folder = tempfile.mkdtemp(prefix=f"hlod-{name}-")
    def path(self, name):
        return os.path.join(self.folder, name)
    def start(self, *args, **more):
        d = Daemon(self.o.hlod, self.o.worker, args=list(args), **more)
        self.all.append(d)
        return d
    def judge(self, log):
        """of each daemon that has ended"""
    def close(self):
        shutil.rmtree(self.folder)
    def __enter__(self):
        return self
    def __exit__(self, kind, *rest):
        try:
            for d in self.all:
                if kind is None:
                    self.judge(ended(d))
        finally:
            for d in self.all:
                if d.p.poll() is None:
                    d.kill()
                d.clean()
            self.close()

class Fleet:
    """Daemons that are each other's peers, on ports of 127.0.0.1."""
    def __init__(self, hlod, worker, n, *options, env=None, envs=None, auth={}):
        self.folder = tempfile.mkdtemp(prefix="hlod-fleet-")
        self.ports = free_ports(n)
        self.peers = ",".join(f"http://127.0.0.1:{p}" for p in self.ports)
        self.hlod, self.worker, self.auth = hlod, worker, auth
        key = secret(self.folder)
        self.args = [["--http", f"127.0.0.1:{p}", "--node", f"n{k}", "--cache-key", key,
                      "--cache-remote", self.peers, *options] for k, p in enumerate(self.ports)]
        self.envs = envs or [env] * n
        self.d = []
        try:
            for a, e in zip(self.args, self.envs):
                self.d.append(Daemon(hlod, worker, args=a, env=e))
            for d in self.d:
                self.wait_up(d, n - 1)
        except BaseException:
            self.clean()
            raise

    def wait_up(self, d, n):
        until("peers are up", 15,
              lambda: sum(p["state"] == "up"
                          for p in stats(d, "peers", self.auth).get("peers", [])) == n)

    def restart(self, k):
        """after kill() or stop_keep(): another process over the same data, on the same port"""
        self.d[k] = Daemon(self.hlod, self.worker, data=self.d[k].dir, args=self.args[k],
                           env=self.envs[k])
        self.d[k].own = True

    def stop(self):
        for d in self.d:
            ended(d)
        self.clean()

    def clean(self):
        for d in self.d:
            if d.p.poll() is None:
                d.kill()
            d.clean()
        shutil.rmtree(self.folder, ignore_errors=True)

class Cache:
    """A prefix of bundles over HTTP. `behave` (verb, path) -> None, or a function of the handler
    that answers instead."""
    def __init__(self, behave=lambda verb, path: None):
        self.store, self.asked, self.behave = {}, [], behave
        cache = self
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            def log_message(self, *a):
                pass
            def answer(self, verb):
                cache.asked.append((verb, self.path, dict(self.headers)))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                other = cache.behave(verb, self.path)
                if other:
                    return other(self)
                if verb == "PUT":
                    cache.store[self.path] = body
                    return self.reply(200, b"")
                found = cache.store.get(self.path)
                self.reply(404 if found is None else 200, found or b"")
            def reply(self, code, body, **headers):
                self.send_response(code)
                self.send_header("Content-Length", str(len(body)))
                for k, v in headers.items():
                    self.send_header(k.replace("_", "-"), v)
                self.end_headers()
                self.wfile.write(body)
            def do_GET(self):
                self.answer("GET")
            def do_PUT(self):
                self.answer("PUT")
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *a: None  # who breaks off is meant to
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/cache"

    def bundles(self):
        return {p: b for p, b in self.store.items() if "/executables/" in p}

    def close(self):
        self.server.shutdown()
        self.server.server_close()
