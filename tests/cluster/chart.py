#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/helm/hlod without a Kubernetes: `helm lint` and `helm template` over many values, what
they give against Kubernetes's own schemas, strictly; values that are wrong or contradict themselves
are refused. Then the pods of a rendered chart as processes: command, variables, files of ConfigMap
and Secrets with their modes, probes, on loopback addresses of their own (127.x.y.1 to 3, with the
chart's ports); an upgrade replaces them one by one as a StatefulSet does, under load, and no
request fails. A chart `nats` of no contents stands in for NATS's own, nats-server for its pods.
Needs pyyaml, kubernetes_validate (`deploy/setup.sh helm`).
Usage: chart.py --hlod BIN --hlo BIN --worker BIN --nats BIN --helm BIN [NAME...]"""
import contextlib, http.client, itertools, json, os, random, re, shutil, subprocess, sys
import threading, time, yaml
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import kubernetes_validate
from nats import Nats, model
from common import Site, free_ports
from compose import IMAGE, ROOT
from harness import Results, ended, options, until

NS, RELEASE, VERSIONS = "models", "r", ("1.27.0", "1.37.0")
LEAVE_S, LAG_S, PROBE_S = 1, 0.4, 0.1  # LAG_S: until all know that a pod goes
LEAST = {"secrets.existing": "keys", "nats.enabled": "true"}
ALL = {**LEAST, "tls.existing": "certificate", "tls.hasCa": "true", "tls.clientCa": "true",
       "cluster.credentials": "true", "networkPolicy.from[0].podSelector.matchLabels.app": "web",
       "networkPolicy.egress[0].ports[0].port": "443", "cache.remotes[0]": "s3://builds/hlod",
       "env[0].name": "AWS_REGION", "env[0].value": "eu", "priorityClassName": "high",
       "image.tag": "v7", "imagePullSecrets[0].name": "pull", "nodeSelector.disk": "ssd",
       "tolerations[0].operator": "Exists", "podAnnotations.a": "b", "podLabels.c": "d",
       "service.type": "LoadBalancer", "service.annotations.x": "y", "config.log": "debug",
       "config.max_queue": "5", "config.worker_filter": "true", "config.device[0]": "cpu*2",
       "resources.limits.memory": "8Gi", "persistence.storageClass": "fast",
       "podDisruptionBudget.maxUnavailable": "25%", "volumes[0].name": "v",
       "volumes[0].emptyDir.medium": "Memory", "volumeMounts[0].name": "v",
       "volumeMounts[0].mountPath": "/v", "topologySpreadConstraints[0].maxSkew": "1",
       "topologySpreadConstraints[0].topologyKey": "zone",
       "topologySpreadConstraints[0].whenUnsatisfiable": "ScheduleAnyway"}
INLINE = {"secrets.tokens": "t", "secrets.clusterSecret": "c", "secrets.cacheKey": "k",
          "secrets.peerToken": "p", "cluster.nats[0]": "tls://nats.example:4333",
          "tls.cert": "a\nb", "tls.key": "k", "tls.ca": "c"}
ONE = {"secrets.existing": "keys", "cluster.enabled": "false", "cache.peers": "false",
       "replicas": "1", "persistence.enabled": "false", "networkPolicy.enabled": "false",
       "podDisruptionBudget.enabled": "false"}
REFUSED = [({}, "secrets.existing or secrets.tokens"), ({**LEAST, "replica": "2"}, "replica"),
           ({**LEAST, "replicas": "0"}, "replicas"), ({**LEAST, "replicas": "many"}, "replicas"),
           ({**LEAST, "nats.enabled": "false"}, "cluster needs NATS"),
           ({**LEAST, "cluster.enabled": "false"}, "more than one need cluster.enabled"),
           ({**LEAST, "cluster.nats[0]": "http://a:1"}, "nats"),
           ({**LEAST, "config.http": "0.0.0.0:1"}, "the chart says that itself"),
           ({**LEAST, "config.max-queue": "1"}, "max-queue"),
           ({**LEAST, "tls.existing": "a", "tls.cert": "b"}, "one of them"),
           ({**LEAST, "tls.cert": "b"}, "belong together"),
           ({**LEAST, "tls.existing": "a", "tls.clientCa": "true"}, "of which CA"),
           ({**LEAST, "persistence.size": "much"}, "size"),
           ({**LEAST, "service.type": "Any"}, "type"), ({**LEAST, "image.pull": "x"}, "pull")] + [
           ({k: v for k, v in INLINE.items() if k != "secrets." + left}, left)
           for left in ("clusterSecret", "cacheKey", "peerToken")]

class Chart:
    """a copy of it, with a chart `nats` of no contents beside"""
    def __init__(self, o, site):
        self.o, self.path, self.home = o, site.path("chart"), site.path("helm")
        shutil.copytree(os.path.join(ROOT, "deploy", "helm", "hlod"), self.path)
        os.makedirs(os.path.join(self.path, "charts", "nats"))
        with open(os.path.join(self.path, "charts", "nats", "Chart.yaml"), "w") as f:
            f.write("apiVersion: v2\nname: nats\nversion: 2.0.0\n")
    def helm(self, *words, values={}, files={}):
        sets = [x for k, v in values.items() for x in ("--set", f"{k}={v}".replace(",", "\\,"))]
        sets += [x for k, v in files.items() for x in ("--set-file", f"{k}={v}")]
        env = {"PATH": os.environ["PATH"], "HOME": self.home}
        return subprocess.run([self.o.helm, *words, *sets], text=True, capture_output=True,
                              timeout=60, env=env)
    def template(self, values, files={}, version=VERSIONS[-1]):
        return self.helm("template", RELEASE, self.path, "-n", NS, "--kube-version", version,
                         values=values, files=files)
    def rendered(self, *args, **named):
        p = self.template(*args, **named)
        assert p.returncode == 0, p.stderr
        return [x for x in yaml.safe_load_all(p.stdout) if x]

def of(docs, kind, ends=""):
    return [d for d in docs if d["kind"] == kind and d["metadata"]["name"].endswith(ends)][0]

# ---- as text

def lints(o):
    """no complaint about the chart"""
    with Site(o, "chart") as site:
        chart = Chart(o, site)
        for values in LEAST, ALL, INLINE, ONE:
            p = chart.helm("lint", "--strict", chart.path, values=values)
            assert p.returncode == 0, p.stdout + p.stderr

def names_fit(docs):
    """what refers to another object finds it"""
    pod = of(docs, "StatefulSet")["spec"]["template"]
    there = {(d["kind"], d["metadata"]["name"]) for d in docs}
    for v in pod["spec"]["volumes"]:
        assert "configMap" not in v or ("ConfigMap", v["configMap"]["name"]) in there, v
        assert "secret" not in v or v["secret"]["secretName"] in ("keys", "certificate") or (
            ("Secret", v["secret"]["secretName"]) in there), v
    assert ("Service", of(docs, "StatefulSet")["spec"]["serviceName"]) in there
    assert ("ServiceAccount", pod["spec"]["serviceAccountName"]) in there
    for d in docs:
        s = d.get("spec", {})
        select = s.get("selector") or s.get("podSelector") or {}
        for k, v in select.get("matchLabels", select).items():
            assert pod["metadata"]["labels"].get(k) == v, (d["kind"], k)

def valid(o):
    """what it gives is what Kubernetes takes, no field of it unknown, in every version it is for"""
    with Site(o, "chart") as site:
        chart = Chart(o, site)
        for values, version in itertools.product((LEAST, ALL, INLINE, ONE), VERSIONS):
            docs = chart.rendered(values, version=version)
            for d in docs:
                kubernetes_validate.validate(d, version, strict=True)
            names_fit(docs)
            kinds = {d["kind"] for d in docs}
            assert ("NetworkPolicy" in kinds) == ("PodDisruptionBudget" in kinds) == (
                values is not ONE), kinds
            assert ("Secret" in kinds) == (values is INLINE), kinds
            pod = of(docs, "StatefulSet")["spec"]["template"]["spec"]
            modes = {v["secret"]["defaultMode"] for v in pod["volumes"] if "secret" in v}
            assert modes == {0o440} and pod["securityContext"]["fsGroup"] == 65532
            drain = int(re.search(r"drain_ms = (\d+)", of(docs, "ConfigMap")["data"]["hlod.toml"])
                        .group(1))
            assert pod["terminationGracePeriodSeconds"] * 1000 > drain + 5000
        p = chart.template(LEAST, version="1.26.0")
        assert p.returncode and "kubeVersion" in p.stderr, p

def refused(o):
    """values that are wrong, unknown or contradict themselves, with what is wrong"""
    with Site(o, "chart") as site:
        chart = Chart(o, site)
        for values, why in REFUSED:
            p = chart.template(values)
            assert p.returncode and why in p.stderr, (values, why, p.stderr)

def options_are_known(o):
    """the file of options is one that hlod takes: as a process reads it"""
    with Site(o, "chart") as site:
        chart = Chart(o, site)
        for values in LEAST, ALL, INLINE, ONE:
            toml = of(chart.rendered(values), "ConfigMap")["data"]["hlod.toml"]
            with open(site.path("hlod.toml"), "w") as f:
                f.write(toml)
            p = subprocess.run([o.hlod, "--config", site.path("hlod.toml"), "--check-config"],
                               text=True, capture_output=True, timeout=20)
            assert "unknown" not in p.stderr and "/etc/hlod/" in p.stderr, p.stderr  # no such file

# ---- as processes

class Pod:
    """an ordinal of the StatefulSet; what harness.Daemon's callers need of it"""
    def __init__(self, k8s, k):
        self.k8s, self.k, self.name = k8s, k, f"{k8s.set['metadata']['name']}-{k}"
        self.root, self.ip = k8s.site.path(self.name), k8s.ips[k]
        os.makedirs(self.root + "/var/lib/hlod", exist_ok=True)
        self.log = open(self.root + "/log", "a")
    def replace(self, text):
        for a, b in self.k8s.where + [("0.0.0.0", self.ip)]:
            text = text.replace(a, b)
        return re.sub("/(etc|var/lib)/hlod", lambda m: self.root + m.group(0), text)
    def file(self, path, text, mode):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)
    def mount(self, m, v):
        at = self.root + m["mountPath"]
        if "configMap" in v:
            text = of(self.k8s.docs, "ConfigMap")["data"][m["subPath"]]
            self.file(at, self.replace(text), 0o644)
        elif "secret" in v:
            for name, text in of(self.k8s.docs, "Secret")["stringData"].items():
                self.file(f"{at}/{name}", text, v["secret"]["defaultMode"])
    def start(self):
        spec = self.k8s.set["spec"]["template"]["spec"]
        self.c, volumes = spec["containers"][0], {v["name"]: v for v in spec["volumes"]}
        self.grace_s = spec["terminationGracePeriodSeconds"]
        for m in self.c["volumeMounts"]:
            if m["name"] != "data":
                self.mount(m, volumes[m["name"]])
        fields = {"metadata.name": self.name, "metadata.namespace": NS}
        env = dict(IMAGE)
        for e in self.c["env"]:
            said = e.get("value") or fields[e["valueFrom"]["fieldRef"]["fieldPath"]]
            env[e["name"]] = re.sub(r"\$\((\w+)\)", lambda m: env[m.group(1)], said)
        env = {"PATH": os.environ["PATH"], **{k: self.replace(v) for k, v in env.items()}}
        assert self.c["command"] == ["/usr/bin/hlod"]
        o = self.k8s.o
        args = [*map(self.replace, self.c["args"]), "--worker", o.worker]
        self.p = subprocess.Popen([o.hlod, *args], env=env, stderr=self.log, cwd=self.root)
    def probe(self, which):
        get = self.c[which]["httpGet"]
        port = [p["containerPort"] for p in self.c["ports"] if p["name"] == get["port"]][0]
        c = http.client.HTTPConnection(self.ip, port, timeout=2)
        try:
            c.request("GET", get["path"])
            return c.getresponse().status == 200
        except OSError:
            return False
        finally:
            c.close()
    def logs(self):
        return open(self.log.name, errors="replace").read()
    def stop_keep(self):
        self.p.terminate()
        return self.p.wait(timeout=self.grace_s)
    def kill(self):
        self.p.kill()
        self.p.wait(timeout=10)
    def clean(self):
        self.log.close()

class K8s:
    """what of Kubernetes the chart needs: pods of a StatefulSet, and a Service's list of those that
    are ready, which all others learn a moment later"""
    def __init__(self, o, site, docs, nats):
        self.o, self.site, self.nats = o, site, nats
        x, y = random.randrange(2, 250), random.randrange(250)
        self.ips = [f"127.{x}.{y}.{k + 1}" for k in range(3)]
        self.use(docs)
        headless = self.set["spec"]["serviceName"]
        peers = '", "'.join(f"http://{ip}:8000" for ip in self.ips)
        self.where = [(f"dns:{headless}.{NS}.svc:8000", peers), (f"nats://{RELEASE}-nats:4222",
                                                                nats.url)]
        self.where += [(f"{self.set['metadata']['name']}-{k}.{headless}.{NS}.svc", ip)
                       for k, ip in enumerate(self.ips)]
        self.pods, self.going, self.endpoints, self.over = [], set(), [], False
        for k in range(self.set["spec"]["replicas"]):
            self.pods.append(Pod(self, k))
            self.pods[-1].start()
            site.all.append(self.pods[-1])
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
    def use(self, docs):
        self.docs, self.set = docs, of(docs, "StatefulSet")
    def watch(self):
        """changes reach those who ask LAG_S late"""
        late = []
        while not self.over:
            ready = [p for p in self.pods if p not in self.going and p.probe("readinessProbe")]
            late.append((time.monotonic() + LAG_S, ready))
            while late and late[0][0] < time.monotonic():
                self.endpoints = late.pop(0)[1]
            time.sleep(PROBE_S)
    def ready(self):
        until("all are ready", 30, lambda: len(self.endpoints) == len(self.pods))
    def roll(self):
        """from the last to the first, each once the one before is ready"""
        for p in reversed(self.pods):
            self.going.add(p)
            assert p.stop_keep() == 0, p.logs()[-2000:]
            p.start()
            until("it starts", 30, lambda: p.probe("startupProbe"))
            self.going.discard(p)
            until("it is ready", 30, lambda: p in self.endpoints)
            assert p.probe("livenessProbe")
    def close(self):
        self.over = True
        self.thread.join(10)

class Load(threading.Thread):
    """runs of a model by the Service: each on a connection of its own, or all on one that is kept
    while it lasts"""
    def __init__(self, k8s, token, what, keeps=False):
        super().__init__()
        self.k8s, self.keeps, self.stop = k8s, keeps, threading.Event()
        self.done, self.again, self.bad, self.c = 0, 0, [], None
        self.headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
        self.body = json.dumps({"model": what, "inputs": [{"name": "x", "dtype": "f32",
                                                          "shape": [1, 4], "data": [1, 2, 3, 4]}]})
    def ask(self):
        if not self.c:
            p = random.choice(self.k8s.endpoints)
            self.c = http.client.HTTPConnection(p.ip, 8000, timeout=30)
        kept = self.c.sock is not None
        try:
            self.c.request("POST", "/v1/run", self.body, self.headers)
            r = self.c.getresponse()
            status, text = r.status, r.read()
        except (ConnectionError, http.client.RemoteDisconnected):
            self.c.close()
            self.c = None
            if not kept:
                raise
            self.again += 1  # closed while it rested: every client tries that again
            return
        assert status == 200 and json.loads(text)["outputs"][0]["data"] == [2, 3, 4, 5], (
            status, text)
        self.done += 1
        if not self.keeps or r.will_close:
            self.c.close()
            self.c = None
    def run(self):
        while not self.stop.is_set():
            try:
                self.ask()
            except Exception as e:
                self.bad.append(repr(e))
                self.c = None

def upgraded(o):
    """the rendered pods serve, know each other, and are replaced under load: no request fails"""
    with Site(o, "chart") as site:
        chart, nats = Chart(o, site), Nats(o.nats, free_ports(1)[0])
        def token(name, scopes):
            p = subprocess.run([o.hlo, "-q", "tokens", "add", name, "--file", site.path("tokens"),
                                "--scopes", scopes], check=True, capture_output=True, text=True,
                               timeout=20)
            return p.stdout.strip()
        admin, peer = token("admin", "admin"), token("peer", "peer")
        values = {"nats.enabled": "true", "secrets.clusterSecret": "5e" * 32,
                  "secrets.cacheKey": "6f" * 32, "secrets.peerToken": peer,
                  "leaveSeconds": LEAVE_S, "config.device[0]": "cpu*2"}
        files = {"secrets.tokens": site.path("tokens")}
        before = chart.rendered(values, files)
        after = chart.rendered({**values, "config.max_queue": "512"}, files)
        sums = {of(d, "StatefulSet")["spec"]["template"]["metadata"]["annotations"][
            "checksum/config"] for d in (before, after)}
        assert len(sums) == 2, "a change of options replaces the pods"
        k8s, loads = None, []
        try:
            k8s = K8s(o, site, before, nats)
            k8s.ready()
            def hlo(pod, *words):
                p = subprocess.run([o.hlo, "--addr", f"{pod.ip}:8000", "--token", admin, *words],
                                   text=True, capture_output=True, timeout=30)
                assert p.returncode == 0, p
                return p.stdout
            for p in k8s.pods:
                until("all are known", 20, lambda: hlo(p, "nodes").count(" serving ") == 3)
            for what, more in ("quick", ""), ("long", "run_ms 400\n"):
                with open(site.path(what), "wb") as f:
                    f.write(model(what, more))
                hlo(k8s.pods[0], "models", "set", what, site.path(what))
                for p in k8s.pods:
                    until("it is known", 10, lambda: what in hlo(p, "models").split())
                    hlo(p, "run", what, "-i", "x=1,2,3,4")
            until("peers are met", 30, lambda: all("peer.up" in p.logs() for p in k8s.pods))
            loads = [Load(k8s, admin, "quick"), Load(k8s, admin, "quick", True),
                     Load(k8s, admin, "long"), Load(k8s, admin, "long")]
            for x in loads:
                x.start()
            time.sleep(1)
            k8s.use(after)
            k8s.roll()
            time.sleep(1)
        finally:
            for x in loads:
                x.stop.set()
            for x in loads:
                x.join(40)
            k8s and k8s.close()
            nats.close()
        bad = [b for x in loads for b in x.bad]
        assert not bad, (len(bad), bad[:3], [x.done for x in loads])
        assert all(x.done > 10 for x in loads), [x.done for x in loads]
        for p in k8s.pods:
            assert "max_queue = 512" in open(p.root + "/etc/hlod/hlod.toml").read()
            ended(p)

def main():
    o, results = options("hlod", "hlo", "worker", "nats", "helm"), Results()
    for case in lints, valid, refused, options_are_known, upgraded:
        if not o.names or case.__name__ in o.names:
            results.case("chart " + case.__name__, case, o)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
