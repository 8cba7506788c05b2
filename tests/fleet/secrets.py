#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of tokens, certificates and keys that change while hlod runs, as mounted secrets do: no
signal comes, and what is new holds within seconds; a mistake leaves what was before in force; the
loop never waits for a file. Scripted workers; standard library and openssl.
Usage: secrets.py --hlod BIN --worker BIN [NAME...]"""
import http.client, os, shutil, signal, ssl, subprocess, sys, time
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import Cache, Site, compile, model, secret
from harness import Daemon, Results, chosen, options, until

class Secrets(Site):
    def __init__(self, o):
        super().__init__(o, "secrets")
    def daemon(self, *args, **more):
        return self.start("--secrets-s", "1", *args, **more)
    def add(self, name, file, *words):
        return subprocess.run([os.path.join(os.path.dirname(self.o.hlod), "hlo"), "-q", "tokens",
                               "add", name, "--file", file, *words], check=True,
                              capture_output=True, text=True).stdout.strip()

def auth(token):
    return {"Authorization": "Bearer " + token}

def status(d, token):
    return d.json("GET", "/v1/models", headers=auth(token))[0]

def rotated_tokens(o):
    """a token that is added opens, one that is removed does not, without a signal; in a stream that
    is open nothing breaks"""
    with Secrets(o) as site:
        file = site.path("tokens")
        first = site.add("first", file)
        d = site.daemon("--tokens", file, ready=False)
        until("ready", 10, lambda: d.call("GET", "/readyz")[0] == 200)
        assert status(d, first) == 200
        second = site.add("second", file)
        until("the new one opens", 5, lambda: status(d, second) == 200)
        assert status(d, first) == 200
        subprocess.run([os.path.join(os.path.dirname(o.hlod), "hlo"), "-q", "tokens", "rm",
                        "first", "--file", file], check=True, capture_output=True)
        until("the old one does not", 5, lambda: status(d, first) == 401)
        assert d.logs().count("ev=server.reload what=tokens") == 2, d.logs()
        # nothing changed: nothing is read
        time.sleep(2.5)
        assert d.logs().count("ev=server.reload") == 2, d.logs()

def mounted(o):
    """as Kubernetes mounts a secret: the files are links into a folder that a link names"""
    with Secrets(o) as site:
        tokens = site.path("t")
        first = site.add("first", tokens)
        def version(k):
            folder = site.path(f"..v{k}")
            os.mkdir(folder)
            shutil.copy(tokens, os.path.join(folder, "tokens"))
            os.chmod(os.path.join(folder, "tokens"), 0o440)
            os.symlink(f"..v{k}", site.path("..data.new"))
            os.rename(site.path("..data.new"), site.path("..data"))
        version(1)
        os.symlink("..data/tokens", site.path("tokens"))
        d = site.daemon("--tokens", site.path("tokens"), ready=False)
        assert status(d, first) == 200
        second = site.add("second", tokens)
        version(2)
        until("the new one opens", 5, lambda: status(d, second) == 200)

def a_mistake(o):
    """a file with a mistake, or without one: what was before stays, and the metric tells"""
    with Secrets(o) as site:
        file = site.path("tokens")
        first = site.add("first", file)
        d = site.daemon("--tokens", file, ready=False)
        ok = lambda: [l for l in d.call("GET", "/metrics", headers=auth(first))[2].decode()
                      .split("\n") if l.startswith("hlod_reload_ok ")][0][-1]
        assert ok() == "1"
        text = open(file).read()
        with open(file, "a") as f:
            f.write("half a line")
        until("it is told", 5, lambda: ok() == "0")
        assert status(d, first) == 200 and "what was before stays" in d.logs()
        os.unlink(file)
        time.sleep(1.5)
        assert status(d, first) == 200
        with open(file, "w") as f:
            f.write(text)
        os.chmod(file, 0o600)
        until("it is well again", 5, lambda: ok() == "1")
        assert status(d, first) == 200
        # and by the signal at once
        d.p.send_signal(signal.SIGHUP)
        until("the signal", 5, lambda: "ev=server.reload what=options" in d.logs())

def loop_goes_on(o):
    """a file that does not open for seconds holds up nobody but itself"""
    with Secrets(o) as site:
        file = site.path("tokens")
        first = site.add("first", file)
        d = site.daemon("--tokens", file, ready=False)
        assert status(d, first) == 200
        keep = open(file, "rb").read()
        os.unlink(file)
        os.mkfifo(file)  # to open it waits for a writer
        time.sleep(1.5)
        for _ in range(20):
            assert status(d, first) == 200  # the file never opens
            time.sleep(0.05)
        with open(file, "wb") as f:
            f.write(keep)
        os.unlink(file)
        with open(file, "wb") as f:
            f.write(keep)
        os.chmod(file, 0o600)
        second = site.add("second", file)
        until("it is read again", 8, lambda: status(d, second) == 200)

def certificate(site, name, days="30"):
    """(certificate, key) that are self-signed"""
    cert, key = site.path(name + ".pem"), site.path(name + ".key")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert, "-days",
                    days, "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"],
                   check=True, capture_output=True)
    return cert, key

def seen(d):
    """the certificate that a new connection sees"""
    return ssl.get_server_certificate(d.addr)

def certificates(o):
    """a certificate and its key are renewed, one file after the other: at no moment is a pair
    served that does not fit, and the new one is there within seconds; over gRPC too"""
    with Secrets(o) as site:
        a, b = certificate(site, "a"), certificate(site, "b")
        cert, key = site.path("tls.pem"), site.path("tls.key")
        shutil.copy(a[0], cert)
        shutil.copy(a[1], key)
        class Tls(Daemon):
            def connect(self, timeout):
                return http.client.HTTPSConnection(*self.addr, timeout=timeout,
                                                   context=ssl._create_unverified_context())
        d = Tls(o.hlod, o.worker, args=["--secrets-s", "1", "--tls-cert", cert, "--tls-key", key])
        site.all.append(d)
        old, new = open(a[0]).read(), open(b[0]).read()
        assert seen(d) == old
        shutil.copy(b[0], cert)
        until("the half is refused", 5, lambda: "is not the key of the certificate" in d.logs())
        assert seen(d) == old
        shutil.copy(b[1], key)
        until("the new one", 5, lambda: seen(d) == new)
        host, port = d.grpc.rsplit(":", 1)
        def of_grpc():
            s = ssl._create_unverified_context()
            s.set_alpn_protocols(["h2"])
            import socket
            with socket.create_connection((host, int(port))) as raw, s.wrap_socket(raw) as t:
                return ssl.DER_cert_to_PEM_cert(t.getpeercert(True))
        until("over gRPC", 5, lambda: of_grpc() == new)

def cache_keys(o):
    """a secret of the cache is rotated on one side, then the other: refused between, then taken"""
    with Secrets(o) as site:
        cache = Cache()
        try:
            old, new = "aa" * 32, "bb" * 32
            file = secret(site.folder, "server.key", old)
            ci = site.daemon("--cache-key", secret(site.folder, "ci.key", new), "--cache-remote",
                             cache.url)
            for k in range(2):
                compile(ci, model(f"k{k}"))
            until("both are put", 5, lambda: len(cache.bundles()) == 2)
            server = site.daemon("--cache-key", file, "--cache-remote", cache.url)
            r = compile(server, model("k0"))[1]
            assert r["executable"]["remotes"][0]["outcome"] == "refused", r
            with open(file, "w") as f:
                f.write(f"{new}\n{old}\n")
            until("it is read", 5, lambda: "ev=server.reload what=cache_keys" in server.logs())
            r = compile(server, model("k1"))[1]
            assert r["remote"] == cache.url, r
            assert new not in server.logs() and old not in server.logs()
        finally:
            cache.close()

def remote_tokens(o):
    """the token of a prefix is renewed: the new one is sent"""
    with Secrets(o) as site:
        cache = Cache()
        try:
            token = secret(site.folder, "token", "one")
            d = site.daemon("--cache-key", secret(site.folder), "--cache-remote",
                            f"{cache.url} token={token}")
            compile(d, model("t0"))
            with open(token, "w") as f:
                f.write("two\n")
            until("it is read", 5, lambda: "ev=server.reload what=remotes" in d.logs())
            compile(d, model("t1"))
            assert cache.asked[-1][2]["Authorization"] == "Bearer two", cache.asked[-1]
            os.chmod(token, 0o644)
            until("refused", 5, lambda: "is a secret" in d.logs())
            compile(d, model("t2"))
            assert cache.asked[-1][2]["Authorization"] == "Bearer two", cache.asked[-1]
        finally:
            cache.close()

def only_when_asked(o):
    """--secrets-s 0: on SIGHUP only"""
    with Secrets(o) as site:
        file = site.path("tokens")
        first = site.add("first", file)
        d = site.daemon("--tokens", file, "--secrets-s", "0", ready=False)
        second = site.add("second", file)
        time.sleep(2)
        assert status(d, second) == 401
        d.p.send_signal(signal.SIGHUP)
        until("it is read", 5, lambda: status(d, second) == 200)

def main():
    o, results = options("hlod", "worker"), Results()
    for s in chosen(o, [rotated_tokens, mounted, a_mistake, loop_goes_on, certificates, cache_keys,
                        remote_tokens, only_when_asked]):
        results.case(s.__name__, s, o)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
