#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens, TLS and client certificates, judged by curl, hlo, grpcio and an unmodified tritonclient
(HTTP and gRPC): who is let in, who is refused and how, what a SIGHUP changes, where hlod will not
listen. Certificates are made here by openssl. Usage: secure_test.py --build DIR --worker BIN"""
import http.client, json, os, re, shutil, signal, socket, ssl, subprocess, sys, tempfile, time
import grpc
import numpy as np
import tritonclient.grpc as tg
import tritonclient.http as th
from tritonclient.utils import InferenceServerException
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..")]
from client import Api, Hlod
from harness import Daemon, Results, chosen, options, until

MODEL = b"FAKE\nin x f32 N,4\nout y f32 N,4\nweight 4\n"
X = np.arange(8, dtype=np.float32).reshape(2, 4)

class Pki:
    """A CA of our own, in a folder."""
    def __init__(self, folder):
        self.dir = folder
        self.ssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                 "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj",
                 "/CN=test-ca")
        self.ca = self.path("ca.pem")

    def path(self, name):
        return os.path.join(self.dir, name)

    def ssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.dir, check=True, capture_output=True)

    def issue(self, name, cn, extension, ca="ca", days="2"):
        with open(self.path("ext"), "w") as f:
            f.write(extension + "\n")
        self.ssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-keyout", name + ".key", "-out", name + ".csr", "-subj", "/CN=" + cn)
        self.ssl("x509", "-req", "-in", name + ".csr", "-CA", ca + ".pem", "-CAkey", ca + ".key",
                 "-CAcreateserial", "-days", days, "-extfile", "ext", "-out", name + ".pem")
        return self.path(name + ".pem"), self.path(name + ".key")

class SecureDaemon(Daemon):
    context, cert = None, None

    def connect(self, timeout):
        return http.client.HTTPSConnection("localhost", self.addr[1], timeout=timeout,
                                           context=self.context)

def bearer(token):
    return {"Authorization": "Bearer " + token}

def refused(code, fn):
    try:
        fn()
    except grpc.RpcError as e:
        assert e.code() == code, (e.code(), e.details())
        return e
    except InferenceServerException as e:
        assert str(code) in str(e.status()), (code, e.status(), e.message())
        return e
    raise AssertionError("not refused")

class Suite:
    def __init__(self, o, tls):
        self.o, self.tls = o, tls
        self.dir = tempfile.mkdtemp(prefix="hlod-secure-")
        self.pki = Pki(self.dir)
        self.server = self.pki.issue("server", "localhost",
                                     "subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.robot = self.pki.issue("robot", "robot", "extendedKeyUsage=clientAuth")
        self.stranger = self.pki.issue("stranger", "stranger", "extendedKeyUsage=clientAuth")
        self.wrong_use = self.pki.issue("wrong", "robot", "extendedKeyUsage=serverAuth")
        self.other_ca = Pki(tempfile.mkdtemp(dir=self.dir)).ca
        self.tokens = self.pki.path("tokens")
        self.all, self.reader, self.runner = (
            self.add(*w)
            for w in (("boss", "--scopes", "admin"), ("reader", "--scopes", "read"), ("runner",)))
        self.add("robot", "--subject", "robot", "--scopes", "read,run")
        args = ["--tokens", self.tokens]
        if tls:
            args += ["--tls-cert", self.server[0], "--tls-key", self.server[1], "--tls-client-ca",
                     self.pki.ca]
            SecureDaemon.context = ssl.create_default_context(cafile=self.pki.ca)
        self.d = (SecureDaemon if tls else Daemon)(o.build + "/hlod", o.worker, args=args)
        self.url = ("https" if tls else "http") + "://localhost:%d" % self.d.addr[1]
        status, r = self.d.json("POST", "/v1/executables?shape=x=1x4", MODEL, bearer(self.all))
        assert status == 200, r
        self.digest = r["sourceDigest"]
        assert self.d.json("POST", "/v1/models", {"name": "plus", "model": self.digest},
                           bearer(self.all))[0] == 200

    def hlo(self, *words, env={}):
        return subprocess.run([self.o.build + "/hlo", *words], env={**os.environ, **env},
                              capture_output=True, text=True, timeout=60)

    def add(self, name, *words):
        p = self.hlo("tokens", "add", name, "--file", self.tokens, *words)
        assert p.returncode == 0, p.stderr
        return p.stdout.strip()

    def curl(self, path, *words):
        """(status, headers, body)"""
        trust = ["--cacert", self.pki.ca] if self.tls else []
        p = subprocess.run(["curl", "-s", "-i", *trust, *words, self.url + path],
                           capture_output=True, text=True, timeout=30)
        assert p.returncode == 0, (p.returncode, p.stderr)
        head, _, body = p.stdout.replace("\r", "").partition("\n\n")
        lines = head.split("\n")
        return int(lines[0].split()[1]), {k.lower(): v
                                          for k, v in (l.split(": ", 1) for l in lines[1:])}, body

    def channel(self, cert=None):
        options = [("grpc.use_local_subchannel_pool", 1)]
        if not self.tls:
            return grpc.insecure_channel(self.d.grpc, options=options)
        read = lambda p: open(p, "rb").read()
        c = grpc.ssl_channel_credentials(read(self.pki.ca),
                                         *([read(cert[1]), read(cert[0])] if cert else []))
        return grpc.secure_channel("localhost:" + self.d.grpc.rsplit(":", 1)[1], c, options=options)

    def hup(self, *expect):
        before = self.d.logs().count("ev=server.reload")
        said = [self.d.logs().count(text) for text in expect]
        self.d.p.send_signal(signal.SIGHUP)
        until("reloaded", 10,
              lambda: self.d.logs().count("ev=server.reload") >= before + (2 if self.tls else 1))
        for text, n in zip(expect, said):  # files are read on the pool: their lines come after that
            until(text, 10, lambda: self.d.logs().count(text) > n)

    def close(self):
        code, log = self.d.stop_keep(), self.d.logs()
        self.d.clean()
        shutil.rmtree(self.dir)
        assert code == 0 and "Sanitizer" not in log and "runtime error" not in log, log[-6000:]

# ---- HTTP

def probes(s):
    for path in ("/healthz", "/readyz", "/v1/health", "/v1/version", "/v2/health/live",
                 "/v2/health/ready", "/v2", "/v1/openapi.json", "/"):
        assert s.curl(path)[0] == 200, path

def http_tokens(s):
    status, headers, body = s.curl("/v1/models")
    assert (status == 401 and headers["www-authenticate"] == 'Bearer realm="hlod"'
            and json.loads(body)["reason"] == "NO_CREDENTIALS"), (status, headers, body)
    assert (s.curl("/metrics")[0] == 401
            and s.curl("/metrics", "-H", "Authorization: Bearer " + s.reader)[0] == 200)
    for who, sees in (s.all, True), (s.reader, False), (None, False):  # what all do, together
        words = ["-H", "Authorization: Bearer " + who] if who else []
        health = json.loads(s.curl("/v1/health", *words)[2])
        assert health["ready"] and ("rssBytes" in health) == sees, (health, who)
    status, headers, body = s.curl("/v1/models", "-H", "Authorization: Bearer " + s.reader[:-1]
                                                       + ("0" if s.reader[-1] != "0" else "1"))
    assert (status == 401 and 'error="invalid_token"' in headers["www-authenticate"]
            and json.loads(body)["reason"] == "BAD_CREDENTIALS"), (status, headers, body)
    for header in "Basic dTpw", "Bearer", "Bearer x", s.reader:
        assert s.curl("/v1/models", "-H", "Authorization: " + header)[0] == 401, header
    # what is shown must be right
    assert s.curl("/v1/health", "-H", "Authorization: Bearer x")[0] == 401
    for scheme in "Bearer", "bearer":
        status, _, body = s.curl("/v1/models", "-H", f"Authorization: {scheme} {s.reader}")
        assert status == 200 and json.loads(body)["models"][0]["name"] == "plus", body
    status, headers, body = s.curl("/v1/run", "-H", "Authorization: Bearer " + s.reader, "-d", "{}")
    assert (status == 403 and 'error="insufficient_scope"' in headers["www-authenticate"]
            and "'run'" in json.loads(body)["message"]), (status, headers, body)
    assert s.curl("/v2/models/plus/infer", "-d", "{}")[0] == 401
    assert int(re.search(r"^hlod_auth_refused_total (\d+)",
                         s.curl("/metrics", "-H", "Authorization: Bearer " + s.reader)[2],
                         re.M).group(1)) >= 8
    status, _, body = s.curl("/v2/models/plus/infer", "-H", "Authorization: Bearer " + s.reader,
                             "-d", "{}")
    assert status == 403 and "scope 'run'" in json.loads(body)["error"], body
    status, _, body = s.curl("/v1/executables?shape=x=1x4", "-H",
                             "Authorization: Bearer " + s.runner, "--data-binary", MODEL.decode())
    assert status == 403 and "'compile'" in body, body
    for path in "/v2/repository/models/plus/unload", "/v2/repository/models/plus/load":
        assert s.curl(path, "-X", "POST", "-H", "Authorization: Bearer " + s.runner)[0] == 403

def uploads_are_refused_early(s):
    """The body of one who may not upload is not read: nothing reaches the store."""
    status, _, body = s.curl("/v1/executables", "-H", "Expect:", "-H",
                             "Authorization: Bearer " + s.reader, "-H",
                             "Content-Length: 100000000000", "-X", "POST")
    assert status == 403, (status, body)
    for folder in "tmp", "uploads":
        assert not os.listdir(os.path.join(s.d.dir, "data", folder)), folder

def pages_of_elsewhere(s):
    for origin, want in (s.url, 200), ("https://evil.example", 403), ("null", 403):
        status, _, body = s.curl("/v1/models", "-H", "Authorization: Bearer " + s.reader, "-H",
                                 "Origin: " + origin)
        assert status == want, (origin, status, body)

def command(s):
    env = {"HLOD_ADDR": s.url, **({"HLOD_CACERT": s.pki.ca} if s.tls else {})}
    p = s.hlo("models", env=env)
    assert p.returncode == 77 and "NO_CREDENTIALS" in p.stderr, (p.returncode, p.stderr)
    p = s.hlo("--token", s.reader, "models", env=env)
    assert p.returncode == 0 and p.stdout.startswith("plus"), (p.returncode, p.stdout, p.stderr)
    with open(s.pki.path("token"), "w") as f:
        f.write(s.runner + "\n")
    p = s.hlo("run", "plus", "-i", "x=1x4xf32=1,2,3,4",
              env={**env, "HLOD_TOKEN_FILE": s.pki.path("token")})
    assert p.returncode == 0 and "2 3 4 5" in p.stdout, (p.returncode, p.stdout, p.stderr)
    p = s.hlo("--token", s.runner, "models", "rm", "plus", env=env)
    assert p.returncode == 77 and "'load'" in p.stderr, (p.returncode, p.stderr)
    p = s.hlo("--token", s.runner, "--addr", "hlod.example:8000", "models")
    assert p.returncode == 2 and "unencrypted" in p.stderr, (p.returncode, p.stderr)
    if not s.tls:
        return
    p = s.hlo("--cert", s.robot[0], "--key", s.robot[1], "models", env=env)
    assert p.returncode == 0, (p.returncode, p.stderr)
    p = s.hlo("--token", s.reader, "--addr", s.url, "models")  # a CA the system does not know
    assert (p.returncode == 69 and "certificate is not trusted" in p.stderr
            and "--cacert" in p.stderr), (p.returncode, p.stderr)

def bench(s):
    """The load generator, in its four protocols, with tokens, TLS and client certificates."""
    grpc_url = ("grpcs" if s.tls else "grpc") + "://localhost:" + s.d.grpc.rsplit(":", 1)[1]
    words = lambda protocol, requests=40: ("bench", "plus", "-i", "x=2x4xf32=random", "--protocol",
                                           protocol, "--grpc", grpc_url, "--concurrency", "1,4",
                                           "--requests", str(requests), "--warmup", "4", "--json")
    env = {"HLOD_ADDR": s.url, **({"HLOD_CACERT": s.pki.ca} if s.tls else {})}
    for protocol in "http", "oip", "grpc", "oip-grpc":
        p = s.hlo("--token", s.runner, *words(protocol), env=env)
        assert p.returncode == 0, (protocol, p.returncode, p.stderr)
        assert [(r["concurrency"], r["requests"], r["errors"])
                for r in json.loads(p.stdout)["runs"]] == [(1, 40, 0), (4, 40, 0)], p.stdout
        p = s.hlo("--token", s.reader, *words(protocol, 5), env=env)  # may not run
        assert p.returncode != 0 and ("403" in p.stderr or "status 7" in p.stderr), (
            protocol, p.returncode, p.stderr)
    big = s.hlo("--token", s.runner, "bench", "plus", "-i", "x=100000x4xf32=random",
                "--concurrency", "2", "--requests", "8", "--warmup", "0", "--json", env=env)
    assert big.returncode == 0 and json.loads(big.stdout)["runs"][0]["errors"] == 0, (
        big.returncode, big.stderr)
    p = s.hlo("--token", s.runner, "bench", "plus", "-i", "x=2x4xf32=random", "--protocol", "grpc",
              "--grpc", "hlod.example:8001", env={**env, "HLOD_CACERT": ""})
    assert p.returncode == 2 and "unencrypted: say grpcs://hlod.example" in p.stderr, (
        p.returncode, p.stderr)
    if not s.tls:
        return
    for protocol in "http", "grpc":
        p = s.hlo("--cert", s.robot[0], "--key", s.robot[1], *words(protocol), env=env)
        assert p.returncode == 0, (protocol, p.returncode, p.stderr)
        # not a CA that we trust
        p = s.hlo("--token", s.runner, *words(protocol), env={**env, "HLOD_CACERT": s.other_ca})
        assert p.returncode == 69 and json.loads(p.stdout)["runs"] == [], (
            protocol, p.returncode, p.stdout, p.stderr)
    # A certificate for another name.
    p = s.hlo("--token", s.runner, "--addr", s.url.replace("localhost", "127.0.0.2"),
              *words("http"), env=env)
    assert p.returncode == 69 and "127.0.0.2" in p.stderr, (p.returncode, p.stderr)

# ---- tritonclient

def triton_http(s):
    url = s.url.split("//")[1]
    kw = dict(ssl=True, ssl_options={"ca_certs": s.pki.ca}) if s.tls else {}
    c = th.InferenceServerClient(url, **kw)
    i = th.InferInput("x", [2, 4], "FP32")
    i.set_data_from_numpy(X)
    assert c.is_server_live() and c.is_server_ready()
    refused(401, lambda: c.infer("plus", [i]))
    refused(403, lambda: c.infer("plus", [i], headers=bearer(s.reader)))
    assert np.array_equal(c.infer("plus", [i], headers=bearer(s.runner)).as_numpy("y"), X + 1)
    big = np.arange(400000, dtype=np.float32).reshape(-1, 4)
    i = th.InferInput("x", list(big.shape), "FP32")
    i.set_data_from_numpy(big)
    assert np.array_equal(c.infer("plus", [i], headers=bearer(s.runner)).as_numpy("y"), big + 1)
    refused(403, lambda: c.unload_model("plus", headers=bearer(s.runner)))
    assert c.get_model_repository_index(headers=bearer(s.reader))[0]["state"] == "READY"
    # A file override: with the scope `load` there is no need of --allow-model-load.
    c.load_model("new", headers=bearer(s.all), config="{}", files={"file:1/model.onnx": MODEL})
    refused(403, lambda: c.load_model("new", headers=bearer(s.runner), config="{}",
                                      files={"file:1/model.onnx": MODEL}))
    c.close()

def triton_grpc(s):
    port = s.d.grpc.rsplit(":", 1)[1]
    kw = dict(ssl=True, root_certificates=s.pki.ca) if s.tls else {}
    c = tg.InferenceServerClient("localhost:" + port, **kw)
    i = tg.InferInput("x", [2, 4], "FP32")
    i.set_data_from_numpy(X)
    who = lambda t: {"authorization": "Bearer " + t}
    assert c.is_server_live() and c.is_server_ready()
    refused("UNAUTHENTICATED", lambda: c.infer("plus", [i]))
    refused("UNAUTHENTICATED", lambda: c.infer("plus", [i], headers=who("x")))
    refused("PERMISSION_DENIED", lambda: c.infer("plus", [i], headers=who(s.reader)))
    assert np.array_equal(c.infer("plus", [i], headers=who(s.runner)).as_numpy("y"), X + 1)
    refused("PERMISSION_DENIED",
            lambda: c.load_model("new", headers=who(s.runner), config="{}",
                                 files={"file:1/model.onnx": MODEL}))
    got = []
    c.start_stream(lambda result, error: got.append((result, error)), headers=who(s.runner))
    c.async_stream_infer("plus", [i])
    until("an answer", 10, lambda: got)
    c.stop_stream()
    assert got and got[0][1] is None and np.array_equal(got[0][0].as_numpy("y"), X + 1), got
    c.close()

def grpc_calls(s):
    with s.channel() as ch:
        h = Hlod(Api(s.o.build), ch)
        e = refused(grpc.StatusCode.UNAUTHENTICATED, lambda: h.ListModels())
        assert ("hlod-reason", "NO_CREDENTIALS") in [(k, v) for k, v in e.trailing_metadata()], (
            e.trailing_metadata())
        e = refused(grpc.StatusCode.PERMISSION_DENIED,
                    lambda: h.RemoveExecutable(metadata=[("authorization", "Bearer " + s.reader)],
                                               digest="0" * 64))
        assert "'admin'" in e.details()
        assert h.ListModels(metadata=[("authorization", "bearer " + s.reader)]).models[
            -1].name == "plus"
        assert h.Version().api == "hlod.v1" and h.Health().live
        # Two tokens, or two wishes: a proxy and this server would each take another one.
        mine = ("authorization", "Bearer " + s.reader)
        for twice in ([mine, ("authorization", "Bearer other")], [mine, mine],
                      [mine, ("hlod-priority", "1"), ("hlod-priority", "2")],
                      [mine, ("hlod-timeout-ms", "5000"), ("hlod-timeout-ms", "6000")]):
            e = refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: h.ListModels(metadata=twice))
            assert ("hlod-reason", "BAD_FRAMING") in [(k, v) for k, v in e.trailing_metadata()], e
        # A stream that may not begin ends before it takes a message.
        stream, request = h.api.method(ch, "/inference.GRPCInferenceService/ModelStreamInfer")
        refused(grpc.StatusCode.UNAUTHENTICATED,
                lambda: list(stream(iter([request(model_name="plus")]), timeout=10)))

def large(s):
    """Bodies that are held back on their way in: a model of 24 MiB, tensors of 16 MB both ways."""
    status, r = s.d.json("POST", "/v1/executables?shape=x=1x4",
                         MODEL + b"# " + b"x" * (24 << 20) + b"\n", bearer(s.all))
    assert status == 200, r
    x = np.arange(4000000, dtype=np.float32).reshape(-1, 4)
    with th.InferenceServerClient(s.url.split("//")[1],
                                  **(dict(ssl=True, ssl_options={"ca_certs": s.pki.ca}) if s.tls
                                     else {})) as c:
        i = th.InferInput("x", list(x.shape), "FP32")
        i.set_data_from_numpy(x)
        assert np.array_equal(c.infer("plus", [i], headers=bearer(s.runner)).as_numpy("y"), x + 1)

# ---- client certificates

def certificates(s):
    use = lambda c: ("--cert", c[0], "--key", c[1])
    assert s.curl("/v1/models", *use(s.robot))[0] == 200
    status, _, body = s.curl("/v2/repository/models/plus/unload", "-X", "POST", *use(s.robot))
    assert status == 403 and "'robot' lacks" in body, (status, body)
    status, _, body = s.curl("/v1/models", *use(s.stranger))
    assert status == 401 and "no entry for the certificate of 'stranger'" in body, (status, body)
    # robot by name, but no client's certificate
    status, _, body = s.curl("/v1/models", *use(s.wrong_use))
    assert status == 401 and "refused" in body, (status, body)
    other = Pki(tempfile.mkdtemp(dir=s.dir))
    status, _, body = s.curl("/v1/models",
                             *use(other.issue("robot", "robot", "extendedKeyUsage=clientAuth")))
    assert status == 401 and "refused" in body, (status, body)
    with s.channel(s.robot) as ch:
        h = Hlod(Api(s.o.build), ch)
        assert h.ListModels().models[-1].name == "plus"
        refused(grpc.StatusCode.PERMISSION_DENIED, lambda: h.RemoveModel(name="plus"))
        # A token goes before a certificate.
        refused(grpc.StatusCode.PERMISSION_DENIED,
                lambda: h.RunUnary(model="plus",
                                   metadata=[("authorization", "Bearer " + s.reader)]))
    with s.channel(s.stranger) as ch:
        refused(grpc.StatusCode.UNAUTHENTICATED, lambda: Hlod(Api(s.o.build), ch).ListModels())

def plain_is_refused(s):
    c = http.client.HTTPConnection(*s.d.addr, timeout=5)
    try:
        c.request("GET", "/healthz")
        raise AssertionError(c.getresponse().status)
    except (http.client.HTTPException, OSError):
        pass
    old = ssl.create_default_context(cafile=s.pki.ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.minimum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(s.d.addr) as raw:
        with old.wrap_socket(raw, server_hostname="localhost") as w:
            assert w.version() == "TLSv1.2"

def disconnects(s):
    """A client that leaves while its run is under way, over this transport, cancels the job."""
    status, r = s.d.json("POST", "/v1/executables?shape=x=1x4", MODEL + b"hang run\n",
                         bearer(s.all))
    assert status == 200, r
    body = {"model": r["sourceDigest"],
            "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}
    try:
        s.d.call("POST", "/v1/run", json.dumps(body),
                 {**bearer(s.all), "Accept": "application/json"}, timeout=0.5)
        raise AssertionError("did not hang")
    except OSError:
        pass
    until("the job is cancelled", 10,
          lambda: not s.d.json("GET", "/v1/health", headers=bearer(s.all))[1].get("jobsActive"))

def framing(s):
    """What two readers take differently is refused in our words, over TLS too, behind a request
    that was right too."""
    right = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for wrong in (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded\r\n\r\n",
                  b"GET /healthz HTTP/1.1\nHost: localhost\n\n",
                  b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
                  + s.all.encode() + b"\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\n0\n\n"):
        for before in b"", right:
            c = socket.create_connection(s.d.addr, timeout=10)
            if s.tls:
                c = s.d.context.wrap_socket(c, server_hostname="localhost")
            c.sendall(before + wrong)
            text = b""
            try:
                while piece := c.recv(65536):
                    text += piece
            except ssl.SSLEOFError:
                pass  # no goodbye
            c.close()
            assert (text.count(b"\r\n\r\n") == (2 if before else 1)
                    and text.startswith(b"HTTP/1.1 200" if before else b"HTTP/1.1 400")
                    and b'"reason":"BAD_FRAMING"' in text), (wrong, text)

# ---- tokens that expire

def expiry(s):
    """A token is refused from its moment on, over both transports and on a kept connection, without
    a reload; who has not its secret is told nothing."""
    far = s.add("long", "--expires", "90d")
    c = (http.client.HTTPSConnection("localhost", s.d.addr[1], timeout=10, context=s.d.context)
         if s.tls else http.client.HTTPConnection(*s.d.addr, timeout=10))
    def kept(token):
        c.request("GET", "/v1/models", headers=bearer(token))
        r = c.getresponse()
        return r.status, r.read()
    for seconds in 8, 60:  # where this machine stalls it is over before it is shown
        end = int(time.time()) + seconds
        soon = s.add("brief", "--tenant", "b", "--expires",
                     time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end)))
        s.hup("what=tokens")
        status = kept(soon)[0]
        if time.time() < end:
            break
        assert s.hlo("tokens", "remove", "brief", "--file", s.tokens).returncode == 0
    assert status == kept(far)[0] == 200
    until("expired", end - time.time() + 10, lambda: kept(soon)[0] == 401)
    assert time.time() >= end, "expired before its time"
    status, headers, body = s.curl("/v1/models", "-H", "Authorization: Bearer " + soon)
    r = json.loads(body)
    assert ((status, r["code"], r["reason"]) == (401, "UNAUTHENTICATED", "EXPIRED_CREDENTIALS")
            and "'brief' expired at 20" in r["message"]), (status, body)
    assert (headers["www-authenticate"]
            == 'Bearer realm="hlod", error="invalid_token", error_description="expired"'), headers
    wrong = soon[:-1] + ("0" if soon[-1] != "0" else "1")
    status, headers, body = s.curl("/v1/models", "-H", "Authorization: Bearer " + wrong)
    assert (status == 401 and json.loads(body)["reason"] == "BAD_CREDENTIALS"
            and "brief" not in body), body
    with s.channel() as channel:
        e = refused(grpc.StatusCode.UNAUTHENTICATED,
                    lambda: Hlod(Api(s.o.build), channel).ListModels(
                        metadata=[("authorization", "Bearer " + soon)]))
        assert "expired at" in e.details(), e
    p = s.hlo("--token", soon, "models",
              env={"HLOD_ADDR": s.url, **({"HLOD_CACERT": s.pki.ca} if s.tls else {})})
    assert p.returncode == 77 and "expired" in p.stderr, (p.returncode, p.stderr)
    assert kept(far)[0] == 200
    c.close()
    p = s.hlo("tokens", "list", "--file", s.tokens)
    lines = {l.split()[0]: l for l in p.stdout.splitlines()}
    assert ("EXPIRED 20" in lines["brief"] and " expires 20" in lines["long"]
            and "expire" not in lines["boss"].lower()), p.stdout
    rows = {x["name"]: x
            for x in json.loads(s.hlo("--json", "tokens", "ls", "--file", s.tokens).stdout)}
    assert (rows["brief"]["expired"] is True and rows["long"]["expired"] is False
            and "expires" not in rows["boss"]), rows
    p = s.hlo("tokens", "add", "gone", "--expires", "2020-01-01", "--file", s.tokens)
    assert p.returncode and "over" in p.stderr and "gone" not in open(s.tokens).read(), (
        p.returncode, p.stderr)
    assert s.hlo("tokens", "remove", "brief", "--file", s.tokens).returncode == 0
    s.hup("expired=0")
    log = s.d.logs()
    for secret in (soon, far):
        assert secret[22:] not in log, "a token is in the log"

# ---- SIGHUP

def reload(s):
    again = s.add("late")
    assert s.curl("/v1/models", "-H", "Authorization: Bearer " + again)[0] == 401
    assert s.hlo("tokens", "rm", "runner", "--file", s.tokens).returncode == 0
    s.hup("what=tokens")
    assert s.curl("/v1/models", "-H", "Authorization: Bearer " + again)[0] == 200
    assert s.curl("/v1/models", "-H", "Authorization: Bearer " + s.runner)[0] == 401
    text = open(s.tokens).read()
    with open(s.tokens, "w") as f:
        f.write("nonsense\n")
    s.hup("what was before stays")
    assert s.curl("/v1/models", "-H", "Authorization: Bearer " + again)[0] == 200
    with open(s.tokens, "w") as f:
        f.write(text)
    if not s.tls:
        return
    def serial(port):
        with socket.create_connection(("localhost", int(port))) as raw:
            c = ssl.create_default_context(cafile=s.pki.ca)
            c.set_alpn_protocols(["h2", "http/1.1"])
            with c.wrap_socket(raw, server_hostname="localhost") as w:
                return w.getpeercert()["serialNumber"]
    ports = s.d.addr[1], s.d.grpc.rsplit(":", 1)[1]
    before = [serial(p) for p in ports]
    assert before[0] == before[1]
    s.pki.issue("server", "localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    s.hup("what=certificates")
    after = [serial(p) for p in ports]
    assert after[0] == after[1] != before[0], (before, after)
    shutil.copy(s.robot[1], s.server[1])  # a key of another certificate: the pair before stays
    s.hup("is not the key of the certificate")
    assert [serial(p) for p in ports] == after

# ---- where hlod does not start

def starts(o, folder):
    pki = Pki(folder)
    cert, key = pki.issue("server", "localhost", "subjectAltName=DNS:localhost")
    tokens = pki.path("tokens")
    subprocess.run([o.build + "/hlo", "-q", "tokens", "add", "x", "--file", tokens], check=True,
                   capture_output=True)
    def check(rc, text, *args):
        p = subprocess.run([o.build + "/hlod", "--check-config", "--data", folder, *args],
                           capture_output=True, text=True, timeout=20)
        assert p.returncode == rc and text in p.stderr, (args, p.returncode, p.stderr)
    check(0, "")
    check(1, "not a loopback address", "--http", "0.0.0.0:0")
    check(1, "not a loopback address", "--grpc", "0.0.0.0:0")
    check(0, "", "--http", "0.0.0.0:0", "--insecure-allow-anonymous")
    check(0, "", "--http", "0.0.0.0:0", "--tokens", tokens)
    check(1, "--allow-model-load is for loopback", "--http", "0.0.0.0:0",
          "--insecure-allow-anonymous", "--allow-model-load")
    check(2, "contradict", "--tokens", tokens, "--insecure-allow-anonymous")
    check(2, "go together", "--tls-cert", cert)
    check(2, "--tls-client-ca needs", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca",
          pki.ca)
    check(2, "is not the key", "--tls-cert", cert, "--tls-key", pki.path("ca.key"))
    check(2, "no certificate chain", "--tls-cert", key, "--tls-key", key)
    check(1, "No such file", "--tokens", "/nonexistent")
    check(2, "'weight=a' of tenant 'x'", "--tenants", "x:weight=a")
    check(1, "worker program: /nonexistent: No such file", "--worker", "/nonexistent")
    check(2, "is no folder", "--data", tokens)
    check(0, "", "--data", folder + "/new/inside")
    os.chmod(tokens, 0o666)
    check(1, "may be written by others", "--tokens", tokens)

def checks(o, folder):
    """--check-config tries the devices too, by the worker program; what a file holds is shown,
    never sent to the terminal."""
    def check(rc, text, *args, **env):
        p = subprocess.run([o.build + "/hlod", "--check-config", "--data", folder + "/new",
                            "--http", "127.0.0.1:0", "--grpc=", *args], capture_output=True,
                           timeout=20, env={**os.environ, **env})
        assert p.returncode == rc and text in p.stderr.decode() and not any(
            c < 32 and c != 10 or c > 126 for c in p.stderr), (args, p.returncode, p.stderr)
    check(0, "", "--device", "cpu,sim*2:latency_us=5")
    check(0, "", "--device", "sim,cpu:threads=1:streams=1")
    check(2, "option threads cannot be 'x': 1 to 256", "--device", "sim,cpu:threads=x")
    check(2, "no option bogus=1; there are threads, streams", "--device", "sim,cpu:bogus=1")
    check(2, "no option bogus=1; there are latency_us", "--device", "sim:bogus=1")
    check(2, "latency_us cannot be 'x'", "--device", "sim*3:latency_us=x")
    check(1, "/nonexistent.so: No such file", "--device", "pjrt", "--pjrt-plugin",
          "/nonexistent.so")
    check(1, "/nonexistent.so: No such file", "--device", "cpu,pjrt:plugin=/nonexistent.so")
    check(2, "no plugin is named: --pjrt-plugin", "--device", "pjrt", HLOD_PJRT_PLUGIN="")
    # may be installed later
    check(0, "device.absent", "--device", "foo", "--plugins", "foo=/nonexistent.so")
    config = folder + "/hlod.toml"
    for line, words in (b"co\x1b[31ml\xff = 1", r"hlod.toml:1: no option 'co\u001b[31ml\xff'"), (
        b'log = "a\x1b\xff"',
        r"log: 'a\u001b\xff' is no level"), (b"max_queue = \"\xe2\x80\xae1\"", r"found '\u202e1'"):
        open(config, "wb").write(line + b"\n")
        check(2, words, "--config", config)

def start_messages(o, folder):
    """What stops a start names the option and the file or port."""
    def fails(*args, words):
        p = subprocess.run([o.build + "/hlod", "--http", "127.0.0.1:0", "--grpc=", "--data",
                            folder + "/data", *args], capture_output=True, text=True, timeout=20)
        assert p.returncode and all(w in p.stderr for w in words), (args, p.returncode, p.stderr)
    d = Daemon(o.build + "/hlod", o.worker)
    try:
        port = "127.0.0.1:%d" % d.addr[1]
        fails("--http", port, words=("--http: 127.0.0.1 port", "in use"))
        fails("--grpc", port, words=("--grpc: gRPC cannot listen on " + port, "in use"))
        fails("--data", os.path.join(d.dir, "data"),
              words=("(--data)", "in use by another process"))
    finally:
        assert d.stop() == 0
    fails("--http", "127.0.0.1:99999", words=("--http: address '127.0.0.1:99999'",))
    fails("--grpc", "127.0.0.1", words=("--grpc: address '127.0.0.1'",))
    fails("--port-file", "/nonexistent/p", words=("--port-file: /nonexistent/p",))
    fails("--data", "/proc/x", words=("data folder /proc/x (--data): ",))

def log_is_cut(o, folder):
    """Log rotation by copytruncate, of a log that was opened without O_APPEND: the next lines stand
    at the front, behind no hole."""
    path, port = folder + "/log", folder + "/port"
    with open(path, "wb") as log:
        p = subprocess.Popen([o.build + "/hlod", "--http", "127.0.0.1:0", "--grpc=", "--port-file",
                              port, "--worker", o.worker, "--data", folder + "/data"], stderr=log)
    try:
        until("started", 10, lambda: os.path.exists(port))
        assert b"ev=server.listen" in open(path, "rb").read()
        os.truncate(path, 0)
        p.send_signal(signal.SIGHUP)
        until("reloaded", 5, lambda: b"ev=server.reload" in open(path, "rb").read())
        assert b"\0" not in open(path, "rb").read()
    finally:
        p.terminate()
        assert p.wait(20) == 0

def reload_tells(o, folder):
    """A file that is damaged at SIGHUP: what was before stays in force, the log names file and
    line, and hlod_reload_ok is 0 until it is mended."""
    tokens, config = folder + "/tokens_read_again", folder + "/hlod.toml"
    token = subprocess.run([o.build + "/hlo", "-q", "tokens", "add", "x", "--file", tokens,
                            "--scopes", "read,run,admin"], check=True, capture_output=True,
                           text=True).stdout.strip()
    good = open(tokens).read()
    open(config, "w").write("max_queue = 5\n")
    d = Daemon(o.build + "/hlod", o.worker, args=("--tokens", tokens, "--config", config))
    try:
        def hup(ok, words):
            n = d.logs().count("ev=server.tokens")
            d.p.send_signal(signal.SIGHUP)
            until("reloaded", 5, lambda: d.logs().count("ev=server.tokens") > n)
            assert words in d.logs(), (words, d.logs())
            assert f"hlod_reload_ok {ok}\n" in d.call("GET", "/metrics",
                                                      headers=bearer(token))[2].decode()
        hup(1, "what=tokens")
        open(tokens, "a").write("rubbish\n")
        hup(0, "tokens_read_again:3: expected NAME")
        open(tokens, "w").write(good)
        open(config, "a").write("colour = 1\n")
        hup(0, "hlod.toml:2: no option 'colour'")
        os.remove(config)
        hup(0, "hlod.toml: No such file")
        open(config, "w").write("max_queue = 5\n")
        hup(1, "what=options")
        open(tokens, "w").write("")
        d.p.send_signal(signal.SIGHUP)
        until("said", 5, lambda: "lvl=warn ev=server.tokens entries=0" in d.logs())
    finally:
        d.stop()

def team(o, folder):
    """The command of docs/security.md for a team, as written: tokens, a certificate, no client CA,
    gRPC on."""
    row = next(l for l in open(os.path.join(HERE, "..", "..", "docs", "security.md"))
               if l.startswith("| for others |"))
    words = re.search(r"`(.*?)`", row).group(1)
    pki = Pki(folder)
    cert, key = pki.issue("server", "localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    tokens = pki.path("tokens")
    token = subprocess.run([o.build + "/hlo", "-q", "tokens", "add", "x", "--file", tokens],
                           check=True, capture_output=True, text=True).stdout.strip()
    for name, value in (("FILE", tokens), ("--tls-cert PEM", "--tls-cert " + cert),
                        ("--tls-key PEM", "--tls-key " + key), ("0.0.0.0:8000", "127.0.0.1:0"),
                        ("0.0.0.0:8001", "127.0.0.1:0")):
        assert name in words, words
        words = words.replace(name, value)
    words = words.split()
    p = subprocess.run([o.build + "/hlod", "--check-config", "--data", folder + "/no", *words],
                       capture_output=True, text=True, timeout=20)
    assert p.returncode == 0 and not p.stderr and not os.path.exists(folder + "/no"), (
        p.returncode, p.stderr)
    SecureDaemon.context = ssl.create_default_context(cafile=pki.ca)
    d = SecureDaemon(o.build + "/hlod", o.worker, args=words)
    try:
        assert (d.json("GET", "/v1/models", headers=bearer(token))[0] == 200
                and d.json("GET", "/v1/models")[0] == 401)
        with grpc.secure_channel(
            "localhost:" + d.grpc.rsplit(":", 1)[1],
            grpc.ssl_channel_credentials(open(pki.ca, "rb").read())) as channel:
            api = Hlod(Api(o.build), channel)
            assert api.ListModels(metadata=[("authorization", "Bearer " + token)]) is not None
            refused(grpc.StatusCode.UNAUTHENTICATED, lambda: api.ListModels())
        taken = subprocess.run([o.build + "/hlod", "--check-config", "--data", folder, *words,
                                "--http", "127.0.0.1:%d" % d.addr[1], "--grpc", d.grpc],
                               capture_output=True, text=True, timeout=20)
        assert taken.returncode == 0 and taken.stderr.count("in use") == 2, (
            taken.returncode, taken.stderr)
        elsewhere = subprocess.run([o.build + "/hlod", "--check-config", "--data", folder, *words,
                                    "--grpc", "192.0.2.1:0"], capture_output=True, text=True,
                                   timeout=20)
        assert elsewhere.returncode == 1 and "192.0.2.1" in elsewhere.stderr, (
            elsewhere.returncode, elsewhere.stderr)
    finally:
        assert d.stop() == 0

def last_words(o):
    """What ends the daemon leaves a line that says so."""
    d = Daemon(o.build + "/hlod", o.worker)
    try:
        d.p.send_signal(signal.SIGABRT)
        assert d.p.wait(10) == -signal.SIGABRT
        log = d.logs()
        assert "ev=server.died signal=6" in log or "Sanitizer" in log, log
    finally:
        d.clean()

def foreign_host(o):
    """Without tokens, a request by a name that is not ours is refused: a web page whose name was
    pointed at 127.0.0.1."""
    d = Daemon(o.build + "/hlod", o.worker)
    try:
        for host, want in ("localhost:1", 200), ("127.0.0.1", 200), ("evil.example", 403):
            assert d.call("GET", "/v1/models", headers={"Host": host})[0] == want, host
        assert d.call("POST", "/v1/models", b"{}",
                      {"Origin": "https://evil.example", "Content-Type": "text/plain"})[0] == 403
    finally:
        assert d.stop() == 0

CASES = (probes, http_tokens, uploads_are_refused_early, pages_of_elsewhere, command, bench,
         triton_http, triton_grpc, grpc_calls, large, disconnects, framing, expiry, reload)
OVER_TLS = certificates, plain_is_refused

def main():
    o, results = options("build", "worker"), Results()
    for tls, name in (False, "secure plain "), (True, "secure tls "):
        s = Suite(o, tls)
        for case in chosen(o, (OVER_TLS if tls else ()) + CASES):
            results.case(name + case.__name__, case, s)
        results.case(name + "stop", s.close)
    folder = tempfile.mkdtemp(prefix="hlod-secure-")
    results.case("secure starts", starts, o, folder)
    results.case("secure check-config", checks, o, folder)
    results.case("secure start_messages", start_messages, o, folder)
    results.case("secure reload_tells", reload_tells, o, folder)
    results.case("secure log_is_cut", log_is_cut, o, folder)
    shutil.rmtree(folder)
    folder = tempfile.mkdtemp(prefix="hlod-secure-")
    results.case("secure team", team, o, folder)
    shutil.rmtree(folder)
    results.case("secure last_words", last_words, o)
    results.case("secure foreign_host", foreign_host, o)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
