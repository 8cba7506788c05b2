#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/compose.yaml without a container engine: its services' commands and environment, started
as processes, with loopback ports in the place of the services' names and files in the place of the
mounted ones. The nodes know each other, and one runs what was named on another.
Usage: compose.py --hlod BIN --hlo BIN --worker BIN --nats BIN"""
import os, re, subprocess, sys, yaml
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from nats import Nats, model
from common import free_ports, secret, Site
from harness import Results, ended, options, until

ROOT = os.path.join(HERE, "..", "..")
IMAGE = dict(x.split("=", 1) for x in re.search(
    r"^ENV (.*)$", open(os.path.join(ROOT, "Dockerfile")).read(), re.M).group(1).split())

class Node:
    """a service of the image, as a process; what harness.Daemon's callers need of it"""
    def __init__(self, o, site, name, env, replace):
        self.dir, self.name = site.path(name), name
        os.makedirs(self.dir)
        all = {**IMAGE, **env, "HLOD_DATA": os.path.join(self.dir, "data")}
        all["HLOD_GRPC"] = "127.0.0.1:0"
        all["HLOD_HTTP"] = replace(f"{name}:8000")
        all = {k: replace(v) for k, v in all.items()}
        self.log = open(os.path.join(self.dir, "log"), "a")
        self.addr = all["HLOD_HTTP"]
        self.p = subprocess.Popen([o.hlod, "--worker", o.worker], env={**os.environ, **all},
                                  stderr=self.log)
    def logs(self):
        return open(self.log.name, errors="replace").read()
    def stop_keep(self):
        self.p.terminate()
        return self.p.wait(timeout=40)
    def kill(self):
        self.p.kill()
        self.p.wait(timeout=10)
    def clean(self):
        pass

def composed(o):
    """as it stands"""
    with open(os.path.join(ROOT, "deploy", "compose.yaml")) as f:
        file = yaml.safe_load(f)
    services = {k: v for k, v in file["services"].items() if v["image"] == "hlod"}
    assert len(services) == 3 and set(file["services"]) - set(services) == {"nats"}
    for s in services.values():
        assert set(s["secrets"]) <= set(file["secrets"]), s
        volume, at = s["volumes"][0].split(":")
        assert volume in file["volumes"] and at == IMAGE["HLOD_DATA"], s
        assert s["ports"][0].endswith(":" + IMAGE["HLOD_HTTP"].split(":")[1]), s
    ports = free_ports(4)
    where = {"nats:4222": f"127.0.0.1:{ports[3]}"}
    where.update({f"{k}:8000": f"127.0.0.1:{p}" for k, p in zip(services, ports)})
    with Site(o, "compose") as site:
        def token(name, scopes):
            p = subprocess.run([o.hlo, "-q", "tokens", "add", name, "--file", site.path("tokens"),
                                "--scopes", scopes], check=True, capture_output=True, text=True,
                               timeout=20)
            return p.stdout.strip()
        env = {**os.environ, "HLOD_TOKEN": token("admin", "admin")}
        secret(site.folder, "peer.token", token("peer", "peer"))
        secret(site.folder, "cluster.secret")
        secret(site.folder, "cache.key", "6f" * 32)
        def replace(text):
            for name, port in where.items():
                text = text.replace(name, port)
            return text.replace("/run/secrets", site.folder)
        command = file["services"]["nats"]["command"]
        assert command == ["-js", "-a", "0.0.0.0", "-p", "4222"], command  # else: what Nats starts
        nats = Nats(o.nats, ports[3], "-js")
        try:
            for name, s in services.items():
                site.all.append(Node(o, site, name, s["environment"], replace))
            def hlo(node, *words):
                return subprocess.run([o.hlo, "--addr", node.addr, *words],
                                      text=True, capture_output=True, timeout=30, env=env)
            for d in site.all:
                until("it serves", 20, lambda: hlo(d, "health").returncode == 0)
                until("all nodes are known", 20,
                      lambda: hlo(d, "nodes").stdout.count(" serving ") == 3)
            with open(site.path("m.onnx"), "wb") as f:
                f.write(model("m"))
            a, _, c = site.all
            p = hlo(a, "models", "set", "m", site.path("m.onnx"))
            assert p.returncode == 0, p
            until("it is known", 10, lambda: "m" in hlo(c, "models").stdout.split())
            p = hlo(c, "run", "m", "-i", "x=1,2,3,4")
            assert p.returncode == 0 and "model.pulled" in c.logs(), (p, c.logs())
            assert all(ended(d) for d in site.all)
        finally:
            nats.close()

def main():
    o, results = options("hlod", "hlo", "worker", "nats"), Results()
    results.case("compose.yaml", composed, o)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
