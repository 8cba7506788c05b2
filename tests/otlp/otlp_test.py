#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Traces and metrics to a real collector (collector.py): who is whose parent, times against
Server-Timing, errors, sampling, batches and batch jobs, what an option or OTEL_* variable changes;
and what a collector that hangs, refuses, floods or is gone costs. Needs grpcio, numpy, onnx,
opentelemetry-proto. Usage: otlp_test.py --build DIR --worker FAKE_WORKER [NAME...]"""
import base64, json, os, re, signal, struct, sys, tempfile, time
import grpc
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, x) for x in ("..", "../grpc")]
from client import Api, Hlod, refused
from collector import Collector, attributes
from harness import (FOREVER_MS, Daemon, Results, Stopped, chosen, device, in_thread, metric,
                     no_complaint, options, until)
from secure_test import Pki

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT, SILENT = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
INTERNAL, SERVER = 1, 2
UNSET, ERROR = 0, 2
FAKE = b"FAKE\nin x f32 4\nout y f32 4\n"
HLO = b"""HloModule m
ENTRY e { x = f32[3,4] parameter(0)  ROOT y = f32[3,4] tanh(x) }
"""
FLOATS = {"name": "x", "dtype": "f32", "shape": [4], "data": [1, 2, 3, 4]}
RAW = {"name": "x", "dtype": "f32", "shape": [4],
       "raw": base64.b64encode(struct.pack("<4f", 1, 2, 3, 4)).decode()}
FLUSH = {"OTEL_BSP_SCHEDULE_DELAY": "50"}

o = options("build", "worker")
result, daemons = Results(), []
SANITIZED = "release-" in os.path.realpath(o.build + "/hlod")

def start(c, *args, worker=None, env=None, ready=True):
    """A daemon that exports to the collector."""
    args = ("--otlp-endpoint", c.url, "--otlp-protocol", c.protocol, *args) if c else args
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    d = Daemon(o.build + "/hlod", worker or o.worker, args=args, ready=ready,
               env={**clean, **(env or {})})
    daemons.append(d)
    return d
def ended(d):
    """It ends in good order: then all has been exported. Gives its log."""
    assert d.stop_keep() == 0, d.logs()
    log = no_complaint(d)
    d.clean()
    return log

def model(d, data=FAKE, headers={}):
    status, _, text = d.call("POST", "/v1/executables", data,
                             {"Content-Type": "application/octet-stream", **headers})
    assert status == 200, text
    return json.loads(text)["sourceDigest"]
def run(d, digest, headers={}, **more):
    status, h, text = d.call("POST", "/v1/run",
                             json.dumps({"model": digest, "inputs": [FLOATS], **more}),
                             {"Accept": "application/json", **headers})
    return status, h, json.loads(text)

class Spans:
    """Those of one trace, or all, with their children."""
    def __init__(self, c, trace=None):
        self.all = [s for s in c.spans() if trace is None or s.trace_id.hex() == trace]
        self.by_id = {s.span_id: s for s in self.all}
        assert len(self.by_id) == len(self.all), "two spans have one id"
        for s in self.all:
            assert len(s.trace_id) == 16 and len(s.span_id) == 8 and s.name, s
            assert s.start_time_unix_nano <= s.end_time_unix_nano, s
            assert s.flags & 0x100, s
    def named(self, name, n=1):
        found = [s for s in self.all if s.name == name]
        assert len(found) == n, (name, [s.name for s in self.all])
        return found[0] if n == 1 else found
    def children(self, s):
        return {x.name: x for x in self.all if x.parent_span_id == s.span_id}
    def inside(self, s, slack_ms=1.0):
        """Each part lies in what it is a part of; but passes, which may be done ahead."""
        for x in self.all:
            if x.parent_span_id == s.span_id and s.name != "compile":
                assert (x.start_time_unix_nano >= s.start_time_unix_nano - slack_ms * 1e6
                        and x.end_time_unix_nano <= s.end_time_unix_nano + slack_ms * 1e6), (x, s)
                self.inside(x, slack_ms)
def ms(s):
    return (s.end_time_unix_nano - s.start_time_unix_nano) / 1e6
def timings(header):
    return {n: float(v) for n, v in re.findall(r"([a-z]+);dur=([0-9.]+)", header)}

# ---- scenarios: of a collector that is well

def one_trace(make):
    """A traced client's requests over HTTP: one trace, its span the parent, ours the one that was
    told; phases as Server-Timing has them, passes below the compile, steps below the run."""
    c = make()
    before = time.time_ns()
    d = start(c, "--otlp-detail=steps", worker=o.build + "/hlod-worker")
    status, h, text = d.call("POST", "/v1/executables", HLO,
                             {"traceparent": PARENT, "Accept": "application/json"})
    assert status == 200, text
    compiled = h["traceresponse"]
    digest = json.loads(text)["digest"]
    x = {"name": "x", "dtype": "f32", "shape": [3, 4], "data": [1] * 12}
    status, h, text = d.call("POST", "/v1/run", json.dumps(
        {"model": digest, "inputs": [x], "options": {"profile": True}}),
                             {"traceparent": PARENT, "tracestate": "a=1,b@c=2",
                              "Accept": "application/json"})
    assert status == 200 and h["traceparent"] == PARENT, text
    port = d.addr[1]
    ended(d)
    after, s = time.time_ns(), Spans(c, TRACE)
    for name, told in (("POST /v1/executables", compiled), ("POST /v1/run", h["traceresponse"])):
        x = s.named(name)
        assert told == f"00-{TRACE}-{x.span_id.hex()}-01", (told, x)
        assert x.parent_span_id.hex() == SPAN and x.kind == SERVER and x.flags == 0x301, x
        assert before < x.start_time_unix_nano < x.end_time_unix_nano < after, x
        assert x.status.code == UNSET, x
        s.inside(x)
    x = s.named("POST /v1/run")
    a = attributes(x)
    want = {"http.request.method": "POST", "http.route": "/v1/run", "url.path": "/v1/run",
            "url.scheme": "http", "http.response.status_code": 200, "hlod.cache_hit": True,
            "server.address": "127.0.0.1", "server.port": port, "hlod.executable": digest,
            "hlod.job": json.loads(text)["job"]}
    assert {k: a.get(k) for k in want} == want and x.trace_state == "a=1,b@c=2", x
    told, parts = timings(h["server-timing"]), s.children(x)
    assert {"queue", "load", "run"} <= set(parts), parts
    parts = {**parts, **s.children(parts["run"])}
    for name, t in told.items():
        if name != "total":
            assert abs(ms(parts[name]) - t) < 1, (name, t, parts[name])
    device_run = s.children(parts["run"])["run on the device"]
    steps = s.children(device_run)
    assert len(steps) == 1 and attributes(*steps.values())["hlod.impl"], steps
    passes = s.children(s.children(s.named("POST /v1/executables"))["compile"])
    assert {"lower", "layout", "codegen"} <= set(passes), passes
    assert all(x.kind == INTERNAL and x.trace_id.hex() == TRACE and not x.status.code
               for x in s.all if x.kind != SERVER)
    r = attributes(c.resources()[0])
    assert r["service.name"] == "hlod" and r["service.version"] and len(
        r["service.instance.id"]) == 36, r

def over_grpc(make):
    """The same over gRPC, streams and the Open Inference Protocol; failures by the conventions."""
    c = make()
    d = start(c)
    ch = grpc.insecure_channel(d.grpc)
    h = Hlod(Api(o.build), ch)
    digest = model(d)
    slow = model(d, FAKE + b"run_ms %d\n" % FOREVER_MS)
    dead = model(d, FAKE + b"crash run\n")
    inputs = [dict(name="x", dtype="f32", shape=[4], raw=struct.pack("<4f", 1, 2, 3, 4))]
    meta = (("traceparent", PARENT), ("tracestate", "v=1"))
    q = h.RunUnary.request(model=digest, inputs=inputs)
    _, call = h.RunUnary.raw.with_call(q, metadata=meta)
    told = dict(call.initial_metadata())["traceresponse"]
    server_timing = timings(dict(call.trailing_metadata())["server-timing"])
    list(h.Run(model=digest, inputs=inputs, metadata=meta))
    refused(grpc.StatusCode.INVALID_ARGUMENT,
            lambda: h.RunUnary(model=digest, inputs=[], metadata=meta))
    refused(grpc.StatusCode.UNAVAILABLE,
            lambda: h.RunUnary(model=dead, inputs=inputs, metadata=meta))
    refused(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: h.RunUnary(
        model=slow, inputs=inputs, options=dict(timeout_ms=1000), metadata=meta))
    left = h.RunUnary.raw.future(h.RunUnary.request(model=slow, inputs=inputs), metadata=meta)
    until("runs", 5, lambda: metric(d, "hlod_jobs_active") == 1)
    left.cancel()
    until("cancelled", 10, lambda: metric(d, "hlod_jobs_active") == 0)
    ended(d)
    s = Spans(c, TRACE)
    runs = s.named("hlod.v1.Hlod/RunUnary", 5)
    x = s.by_id[bytes.fromhex(told[36:52])]
    assert x == runs[0] and x.kind == SERVER and x.parent_span_id.hex() == SPAN, x
    assert x.trace_state == "v=1" and all(p.trace_state == "v=1" for p in s.children(x).values())
    a = attributes(x)
    assert (a["rpc.system"], a["rpc.service"], a["rpc.method"], a["rpc.grpc.status_code"]) == (
        "grpc", "hlod.v1.Hlod", "RunUnary", 0), a
    assert a["server.port"] == int(d.grpc.rsplit(":")[-1]), a
    for name, part in s.children(x).items():
        # what a request took to come (on a busy machine) is no part of its job
        assert name == "receive" or abs(ms(part) - server_timing[name]) < 1, (name, part,
                                                                              server_timing)
    found = {attributes(x)["rpc.grpc.status_code"]: x for x in runs}
    codes = {n: (x.status.code, attributes(x).get("error.type")) for n, x in found.items()}
    assert codes == {0: (UNSET, None), 3: (UNSET, None), 14: (ERROR, "UNAVAILABLE"),
                     4: (ERROR, "DEADLINE_EXCEEDED"), 1: (UNSET, None)}, codes
    assert attributes(found[14])["hlod.reason"] == "WORKER_LOST", found[14]
    assert s.named("hlod.v1.Hlod/Run").status.code == UNSET

def failures_over_http(make):
    """404 and 400 are the client's, 503 is ours, in a stream too; who is refused before a handler
    has a span; paths that hold names are not told."""
    c = make()
    d = start(c)
    dead = model(d, FAKE + b"crash run\n")
    h = {"traceparent": PARENT}
    assert d.call("GET", "/nowhere", headers=h)[0] == 404
    assert d.call("GET", "/v1/executables/x", headers=h)[0] == 400
    assert d.call("BREW", "/v1/run", headers=h)[0] == 405
    assert run(d, dead, h)[0] == 503
    status, _, text = d.call("POST", "/v1/run?stream=1", json.dumps(
        {"model": dead, "inputs": [FLOATS]}), h)
    assert status == 200 and b"UNAVAILABLE" in text, text
    assert d.call("GET", "/v2/models/secret-name", headers=h)[0] == 404
    ended(d)
    s = Spans(c, TRACE)
    def told(name, n=1):
        x = s.named(name, n)
        return [(x.status.code, attributes(x).get("http.response.status_code"),
                 attributes(x).get("error.type"), attributes(x).get("hlod.code"))
                for x in ([x] if n == 1 else x)]
    assert told("GET") == [(UNSET, 404, None, "NOT_FOUND")]
    assert told("HTTP") == [(UNSET, 405, None, "INVALID_ARGUMENT")]
    assert told("GET /v1/executables/{digest}") == [(UNSET, 400, None, "INVALID_ARGUMENT")]
    assert told("POST /v1/run", 2) == [(ERROR, 503, "503", "UNAVAILABLE"),
                                       (ERROR, 200, "UNAVAILABLE", "UNAVAILABLE")]
    x = s.named("GET /v2/models/{name}")
    assert "url.path" not in attributes(x) and "secret-name" not in str(c.got), x

def sampling(make):
    """sampled=0 gives nothing; roots where no header came, by ratio; what a caller asks for is
    told also at ratio 0; a reload changes the ratio."""
    c = make()
    d = start(c, "--config", "{config}", env={"OTEL_TRACES_SAMPLER": "traceidratio"})
    digest = model(d)
    n = len(c.spans())
    for _ in range(3):
        assert run(d, digest, {"traceparent": SILENT})[1]["traceresponse"].endswith("-01")
    ended(d)
    assert len([s for s in c.spans() if s.trace_id.hex() == TRACE and s.kind == SERVER]) == 3, n

    c.got.clear()
    d = start(c, "--config", "{config}", "--otlp-detail=request")
    digest = model(d)
    status, h, r = run(d, digest)
    assert "traceresponse" not in h and len(
        d.json("GET", "/v1/runs?limit=1")[1]["runs"][0]["traceId"]) == 32
    _, h, _ = run(d, digest, {"traceparent": SILENT})
    assert h["traceresponse"].endswith("-00"), h
    open(d.config, "w").write('otlp_sample = "0.2"\n')
    d.p.send_signal(signal.SIGHUP)
    until("reload", 5, lambda: "name=otlp_sample" in d.logs())
    for _ in range(300):
        assert run(d, digest)[0] == 200
    open(d.config, "w").write('otlp_sample = "0"\n')
    d.p.send_signal(signal.SIGHUP)
    until("reload", 5, lambda: d.logs().count("name=otlp_sample") == 2)
    for _ in range(20):
        assert run(d, digest)[0] == 200
    run(d, digest, {"traceparent": PARENT})
    ended(d)
    s = Spans(c)
    mine = [x for x in s.all if x.trace_id.hex() == TRACE]
    roots = [x for x in s.all if x.name == "POST /v1/run" and not x.parent_span_id]
    assert len(mine) == 1 and mine[0].parent_span_id.hex() == SPAN, mine
    assert 1 + 30 <= len(roots) <= 1 + 95, len(roots)  # 60 expected, five sigma
    assert len({x.trace_id for x in roots}) == len(roots) and all(
        x.flags == 0x101 for x in roots)
    assert all(x.kind == SERVER for x in s.all), "--otlp-detail=request"

def names(make):
    """Names of models and tenants, and messages, only by option."""
    def told(*args):
        c = make()
        d = start(c, "--trust-tenant-header", *args)
        digest = model(d)
        h = {"Hlod-Tenant": "acme-corp"}
        assert d.json("POST", "/v1/models", {"name": "cats-v1", "model": digest}, h)[0] == 200
        assert run(d, "cats-v1", h)[0] == 200
        assert d.call("GET", "/v1/jobs/cats-v1-job", headers=h)[0] == 400
        dead = model(d, FAKE + b"crash run\n")
        assert run(d, dead, h)[0] == 503
        ended(d)
        return c, str(c.got)
    _, text = told()
    assert "acme" not in text and "cats" not in text and "died" not in text
    c, text = told("--otlp-names")
    a = [attributes(s) for s in c.spans() if s.name == "POST /v1/run"]
    assert a[0]["hlod.tenant"] == "acme-corp" and a[0]["hlod.model.name"] == "cats-v1", a
    failed = [s for s in c.spans() if s.status.code == ERROR]
    assert failed and all(s.status.message for s in failed), failed

def left_by_its_client(make):
    """A client that goes away: its span says so, without a status."""
    c = make()
    d = start(c)
    slow = model(d, FAKE + b"run_ms 5000\n")
    t, _ = in_thread(d.call, "POST", "/v1/run", json.dumps({"model": slow, "inputs": [FLOATS]}),
                     {"traceparent": PARENT}, 0.5)
    t.join()
    until("cancelled", 10, lambda: metric(d, "hlod_cancels_total") == 1)
    ended(d)
    x = Spans(c, TRACE).named("POST /v1/run")
    a = attributes(x)
    assert a["hlod.code"] == "CANCELLED" and "http.response.status_code" not in a, x
    assert x.status.code == UNSET

def batches(make):
    """Runs that are joined: the run of all is a trace of its own, linked both ways."""
    c = make()
    sys.argv = [sys.argv[0]]
    sys.path.insert(0, os.path.join(HERE, "../sched"))
    import batching
    d = start(c, "--device", "sim:latency_us=5000", "--device-calls=1",
              worker=o.build + "/hlod-worker")
    d.digest = batching.named(d, max=16, delayUs=1000)
    import numpy as np
    ids = [f"{k:032x}" for k in range(1, 4)]
    own = d.call
    todo = list(ids)
    def call(verb, path, body=None, headers={}, timeout=30):
        if path == "/v1/run" and b'"m"' in body[:200]:
            headers = {**headers, "traceparent": f"00-{todo.pop()}-{SPAN}-01"}
        return own(verb, path, body, headers, timeout)
    d.call = call
    inputs = [np.ones((n, 4), np.float32) for n in (1, 2, 3)]
    batching.right(batching.gathered(d, inputs), inputs)
    d.call = own
    ended(d)
    batch = Spans(c).named("batch")
    whole = Spans(c, batch.trace_id.hex())
    assert not batch.parent_span_id and batch.kind == INTERNAL and attributes(
        batch)["hlod.batch.rows"] == 6, batch
    assert {"run"} <= set(whole.children(batch)), whole.all
    assert sorted(x.trace_id.hex() for x in batch.links) == ids, batch
    for k in ids:
        s = Spans(c, k)
        x = s.named("POST /v1/run")
        assert x.parent_span_id.hex() == SPAN and attributes(x)["hlod.batch.rows"] == 6, x
        link = [y for y in batch.links if y.trace_id.hex() == k][0]
        assert link.span_id == x.span_id, (link, x)
        ran = s.children(x)["run"]
        link, = ran.links
        assert (link.trace_id, link.span_id) == (batch.trace_id, batch.span_id), ran
        assert not any(y.links for y in s.all if y is not ran)

def batch_jobs(make):
    """Jobs of a suite are parts of the submit's trace, each attempt; a daemon that starts again
    goes on with it; who asked may be gone."""
    c = make()
    d = start(c, env=FLUSH)
    def submit(m, **more):
        status, h, text = d.call("POST", "/v1/jobs", json.dumps(
            {"models": [{"model": m}], "inputs": [{"inputs": [RAW]}], **more}),
                                 {"traceparent": PARENT, "tracestate": "k=v",
                                  "Accept": "application/json"})
        assert status == 200, text
        return json.loads(text)["suite"], h["traceresponse"][36:52]
    def state(suite):
        return d.json("GET", f"/v1/jobs/{suite}.1")[1]
    good = model(d)
    dead = model(d, FAKE + b"crash run\n")
    suite, span = submit(good)
    until("passed", 10, lambda: state(suite)["state"] == "passed")
    assert state(suite)["traceparent"] == f"00-{TRACE}-{span}-01", state(suite)
    twice, failing = submit(dead, retry={"maxAttempts": 2, "backoffMs": 10})
    until("failed", 20, lambda: state(twice)["state"] == "error")
    slow = model(d, FAKE + b"run_ms 600\n")
    with Stopped(device(d, "cpu:0")["workerPid"]):  # it has not ended when the daemon is killed
        last, survivor = submit(slow)
        until("running", 10, lambda: state(last)["state"] == "running")
        until("exported", 10, lambda: [s for s in c.spans() if s.span_id.hex() == survivor])
        d.kill()
    d = Daemon(o.build + "/hlod", o.worker, data=d.dir,
               args=("--otlp-endpoint", c.url, "--otlp-protocol", c.protocol))
    until("passed", 20, lambda: state(last)["state"] == "passed")
    ended(d)
    s = Spans(c, TRACE)
    jobs = s.named("batch job", 4)
    def of(parent):
        return [x for x in jobs if x.parent_span_id.hex() == parent]
    x, = of(span)
    a = attributes(x)
    assert a["hlod.batch_job"] == suite + ".1" and a["hlod.attempt"] == 1, a
    assert x.status.code == UNSET and x.trace_state == "k=v" and x.flags == 0x101, x
    assert {"queue", "run"} <= set(s.children(x)), s.children(x)
    s.inside(x)
    tries = of(failing)
    assert sorted(attributes(x)["hlod.attempt"] for x in tries) == [1, 2] and all(
        x.status.code == ERROR and attributes(x)["error.type"] == "UNAVAILABLE"
        for x in tries), tries
    x, = of(survivor)
    assert ms(x) > 500 and s.by_id[x.parent_span_id].name == "POST /v1/jobs", x

def training(make):
    """A training's attempt is one span below the request's, what was made for it below that; of
    its many short runs none is told."""
    sys.path.insert(0, os.path.join(HERE, "../models"))
    import digits
    import numpy as np
    c = make()
    d = start(c, worker=o.build + "/hlod-worker")
    digits.write(d.dir)
    def put(data):
        return json.loads(d.call("PUT", "/v1/blobs", data)[2])["digest"]
    def rows(name, dtype):
        x = np.load(os.path.join(d.dir, name + ".npy"))
        return {"name": name, "dtype": dtype, "shape": list(x.shape),
                "blob": put(np.ascontiguousarray(x).tobytes())}
    digest = put(open(os.path.join(d.dir, "digits.onnx"), "rb").read())
    image = np.load(os.path.join(d.dir, "image.npy")).dtype
    label = np.load(os.path.join(d.dir, "label.npy")).dtype
    short = {"float32": "f32", "int32": "s32", "int64": "s64", "float64": "f64"}
    status, h, text = d.call("POST", "/v1/train", json.dumps(
        {"model": digest, "data": [rows("image", short[str(image)]),
                                   rows("label", short[str(label)])],
         "train": {"loss": "softmax-cross-entropy", "steps": 60}}),
                             {"traceparent": PARENT, "Accept": "application/json"})
    assert status == 200, text
    job = json.loads(text)["suite"] + ".1"
    until("trained", 60, lambda: d.json("GET", "/v1/jobs/" + job)[1]["state"] == "passed")
    ended(d)
    s = Spans(c, TRACE)
    x = s.named("training")
    assert x.parent_span_id == s.named("POST /v1/train").span_id and x.status.code == UNSET, x
    assert attributes(x)["hlod.batch_job"] == job, x
    parts = s.children(x)
    assert {"train", "compile", "put", "get"} == set(parts), parts
    assert {"compile"} <= set(s.children(parts["compile"])), s.all
    s.inside(x)

def metrics(make):
    """metrics.def by OTLP, as /metrics has it, under names that Prometheus's are made of again."""
    c = make()
    d = start(c, "--otlp-signals=metrics", "--otlp-metrics-s=1")
    digest = model(d)
    for _ in range(7):
        assert run(d, digest)[0] == 200
    until("metrics", 10, lambda: c.metrics())
    text = d.call("GET", "/metrics")[2].decode()
    begun = time.time_ns()
    ended(d)
    assert not c.spans()
    m = c.metrics()
    for name in re.findall(r"# TYPE (hlod_\w+) counter", text):
        x = next((x for x in m.values() if (x.name.replace(".", "_") + {"By": "_bytes"}.get(
            x.unit, "") + "_total") == name), None)
        if x is None:
            assert re.match("hlod_(device|model|tenant|cache_remote)", name), name
            continue
        p, = x.sum.data_points
        assert x.sum.is_monotonic and x.sum.aggregation_temporality == 2 and x.description, x
        shown = float(re.search(rf"^{name} (\S+)$", text, re.M)[1])
        assert p.as_int >= shown and begun - 60e9 < p.start_time_unix_nano < begun, (x, shown)
    p, = m["hlod.run"].histogram.data_points
    bounds = [float(x) for x in re.findall(r'hlod_run_seconds_bucket\{le="([0-9.e+-]+)"', text)]
    assert p.count == sum(p.bucket_counts) == 7 and p.sum > 0, p
    assert len(p.explicit_bounds) == len(bounds) == len(p.bucket_counts) - 1, p
    assert all(abs(a / b - 1) < 1e-5 for a, b in zip(p.explicit_bounds, bounds)), p
    assert m["hlod.run"].unit == "s" and m["hlod.jobs_active"].WhichOneof("data") == "gauge"

# ---- the way there

def secured(make):
    """TLS with a CA of its own; headers from a file that nobody else may read, and from the
    variable; attributes and a name for the service; compressed."""
    with tempfile.TemporaryDirectory() as folder:
        pki = Pki(folder)
        cert = pki.issue("server", "localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        c = make(tls=cert)
        secret = pki.path("headers")
        open(secret, "w").write("# key\nAuthorization = Bearer s3cret=\n")
        os.chmod(secret, 0o600)
        d = start(c, "--otlp-cacert", pki.ca, "--otlp-headers-file", secret,
                  env={"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"})
        run(d, model(d), {"traceparent": PARENT})
        log = ended(d)
        Spans(c, TRACE).named("POST /v1/run")
        assert c.headers[0]["authorization"] == "Bearer s3cret=", c.headers
        assert "hlod" in c.headers[0]["user-agent"] and "s3cret" not in log, c.headers

        c.got.clear()
        d = start(None, env={
            "OTEL_EXPORTER_OTLP_ENDPOINT": c.url, "OTEL_EXPORTER_OTLP_PROTOCOL": c.protocol,
            "OTEL_EXPORTER_OTLP_CERTIFICATE": pki.ca, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20b",
            "OTEL_SERVICE_NAME": "gateway", "OTEL_METRICS_EXPORTER": "none",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=t%C3%A9st",
            "OTEL_TRACES_SAMPLER": "nonsense"})
        run(d, model(d))
        log = ended(d)
        assert "OTEL_TRACES_SAMPLER" in log and "lvl=warn ev=otlp.config" in log, log
        r = attributes(c.resources()[0])
        assert r["service.name"] == "gateway" and r["deployment.environment.name"] == "t\u00e9st", r
        assert c.headers[-1]["x-key"] == "a b" and not c.metrics(), c.headers

        # A certificate of somebody else: nothing goes there, and requests go on.
        c.got.clear()
        d = start(c, env={"OTEL_EXPORTER_OTLP_TIMEOUT": "500"})
        assert run(d, model(d))[0] == 200
        log = ended(d)
        assert not c.got and "ev=otlp.export" in log, log

def switched_off(make):
    """OTEL_SDK_DISABLED; no endpoint at all; options that are wrong."""
    c = make()
    d = start(c, env={"OTEL_SDK_DISABLED": "true"})
    run(d, model(d), {"traceparent": PARENT})
    ended(d)
    d = start(None)
    _, h, _ = run(d, model(d), {"traceparent": PARENT})
    assert h["traceresponse"].startswith(f"00-{TRACE}-")
    ended(d)
    assert not c.calls
    for args, says in ((("--otlp-sample=2",), "otlp_sample"),
                       (("--otlp-detail=all",), "otlp_detail"),
                       (("--otlp-cacert=/nowhere",), "/nowhere")):
        try:
            start(make(tls="x") if "cacert" in args[0] else c, *args)
        except SystemExit as e:
            assert says in str(e), e
        else:
            raise AssertionError(args)

# ---- a collector that misbehaves

def busy(make):
    """Says when to come again: not before; then everything, once."""
    c = make()
    c.mode, c.retry = "busy", 2
    d = start(c, "--otlp-signals=traces", env=FLUSH)
    digest = model(d)
    assert run(d, digest, {"traceparent": PARENT})[0] == 200
    until("asked", 10, lambda: c.calls)
    until("logged", 5, lambda: "result=later" in d.logs())
    c.mode = "ok"
    until("came again", 10, lambda: c.spans())
    assert c.times[1] - c.times[0] > 1.9, c.times
    assert metric(d, "hlod_otlp_failures_total") == 1
    assert metric(d, "hlod_otlp_spans_dropped_total") == 0
    assert "result=ok" in ended(d)
    Spans(c, TRACE).named("POST /v1/run")

def refusing(make):
    """A refusal is not tried again; what is refused, wholly or in part, is counted."""
    c = make()
    c.mode = "refuse"
    d = start(c, "--otlp-signals=traces", "--otlp-detail=request", env=FLUSH)
    digest = model(d)
    run(d, digest)
    until("dropped", 10, lambda: metric(d, "hlod_otlp_spans_dropped_total") == 2)
    calls = c.calls
    c.mode = "partial"
    for _ in range(5):
        run(d, digest)
    until("dropped in part", 10, lambda: metric(d, "hlod_otlp_spans_total") + metric(
        d, "hlod_otlp_spans_dropped_total") == 7)
    assert metric(d, "hlod_otlp_failures_total") == calls
    log = ended(d)
    assert "result=refused" in log and (c.protocol != "grpc" or "no such thing" in log), log
    assert "three were too old" in log, log

def hung(make):
    """Answers nothing: requests go on; memory is bounded, what finds no room is counted; the end
    does not wait for an answer."""
    c = make()
    c.mode = "hang"
    d = start(c, "--otlp-queue-bytes=64K", "--otlp-detail=request", env=FLUSH)
    digest = model(d)
    for _ in range(10):
        run(d, digest)
    rss = metric(d, "process_resident_memory_bytes")
    for _ in range(600):
        assert run(d, digest)[0] == 200
    assert metric(d, "hlod_otlp_spans_dropped_total") > 300
    assert metric(d, "process_resident_memory_bytes") - rss < 16 << 20 or SANITIZED
    ended(d)

def gone_and_back(make):
    """Not there at the start, there later, dies, comes back: nothing that fits is lost."""
    c = make()
    port = c.port
    c.stop()
    d = start(c, "--otlp-signals=traces", "--otlp-detail=request", env=FLUSH)
    digest = model(d)
    for _ in range(20):
        assert run(d, digest)[0] == 200
    until("tried", 10, lambda: metric(d, "hlod_otlp_failures_total") >= 1)
    c = make(port=port)
    ids = lambda: {x.span_id for x in c.spans()}
    until("came", 40, lambda: len(ids()) == 21)
    c.stop()
    before = ids()  # whose answer may not have reached the daemon: it sends those again
    for _ in range(20):
        assert run(d, digest)[0] == 200
    tried = metric(d, "hlod_otlp_failures_total")
    until("tried again", 10, lambda: metric(d, "hlod_otlp_failures_total") > tried)
    c = make(port=port)
    until("came again", 40, lambda: len(ids() - before) == 20)
    assert metric(d, "hlod_otlp_spans_dropped_total") == 0
    ended(d)

def flooding(make):
    """Answers with megabytes: not read; requests go on."""
    c = make()
    c.mode = "flood"
    d = start(c, "--otlp-detail=request", env=FLUSH)
    digest = model(d)
    for _ in range(3):
        run(d, digest)
        time.sleep(0.2)
    until("answered", 10, lambda: c.calls >= 2)
    rss = metric(d, "process_resident_memory_bytes")
    for _ in range(50):
        assert run(d, digest)[0] == 200
        time.sleep(0.01)
    assert metric(d, "process_resident_memory_bytes") - rss < 16 << 20 or SANITIZED
    ended(d)

def elsewhere(make):
    """HTTP alone. A redirect is not followed, so that nothing goes where no option says: refused.
    A page instead of an answer is one; what is no HTTP may pass, and headers without an end too."""
    c, other = make(), make()
    c.elsewhere = other.url
    d = start(c, "--otlp-signals=traces", "--otlp-detail=request", env=FLUSH)
    digest = model(d)
    until("came", 10, lambda: metric(d, "hlod_otlp_spans_total") == 1)
    for mode, dropped in (("redirect", 1), ("page", 1)):
        c.mode = mode
        run(d, digest)
        until(mode, 10, lambda: metric(d, "hlod_otlp_spans_dropped_total") == dropped and metric(
            d, "hlod_otlp_spans_total") == c.calls - 1)
    assert not other.calls and "HTTP 307" in d.logs(), d.logs()
    for mode in "garbage", "headers":
        rss, failed = (metric(d, x) for x in ("process_resident_memory_bytes",
                                              "hlod_otlp_failures_total"))
        c.mode = mode
        run(d, digest)
        until(mode, 15, lambda: metric(d, "hlod_otlp_failures_total") > failed)
        assert metric(d, "process_resident_memory_bytes") - rss < 16 << 20 or SANITIZED
        c.mode = "ok"
        until("came again", 15, lambda: metric(d, "hlod_otlp_spans_total") == 3 + (
            mode == "headers"))
    assert metric(d, "hlod_otlp_spans_dropped_total") == 1
    ended(d)

def each_its_own(make):
    """Over HTTP: the signals' own variables: address as it stands, headers, protocol."""
    c, other = make(), Collector(protocol="grpc")
    try:
        d = start(None, env={
            **FLUSH, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": c.url + "/v1/traces",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-key=t,x-empty=",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": other.url,
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc", "OTEL_METRIC_EXPORT_INTERVAL": "100"})
        run(d, model(d), {"traceparent": PARENT})
        until("came", 10, lambda: other.metrics() and c.spans())
        ended(d)
        Spans(c, TRACE).named("POST /v1/run")
        assert not c.metrics() and not other.spans()
        assert c.headers[0]["x-key"] == "t" and c.headers[0]["x-empty"] == "", c.headers[0]
        assert c.headers[0]["content-type"] == "application/x-protobuf", c.headers[0]
    finally:
        other.stop()

def in_batches(make):
    """So many spans a request, not more, without waiting for the time."""
    c = make()
    d = start(c, "--otlp-signals=traces", env={"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "20",
                                               "OTEL_BSP_SCHEDULE_DELAY": "600000"})
    digest = model(d)
    for _ in range(50):
        run(d, digest)
    until("came", 10, lambda: len(c.spans()) >= 120)
    assert all(len(r.scope_spans[0].spans) == 20 for m in c.got for r in m.resource_spans), c.calls
    ended(d)
    Spans(c)

SCENARIOS = [one_trace, over_grpc, failures_over_http, sampling, names, left_by_its_client, batches,
             batch_jobs, training, metrics, secured, switched_off, busy, refusing, hung,
             gone_and_back, flooding, in_batches, elsewhere, each_its_own]
BOTH = {one_trace, metrics, secured, switched_off, busy, refusing, hung, gone_and_back, flooding}
HTTP_ONLY = {elsewhere, each_its_own}

def main():
    for protocol in ("grpc", "http/protobuf"):
        for s in chosen(o, SCENARIOS):
            if s in HTTP_ONLY if protocol == "grpc" else s not in BOTH | HTTP_ONLY:
                continue
            made = []
            def make(**how):
                c = Collector(protocol=protocol, **how)
                made.append(c)
                return c
            begin = time.monotonic()
            result.case(f"otlp by {protocol}: {s.__name__}", s, make)
            print(f"  {time.monotonic() - begin:.1f} s", file=sys.stderr)
            for c in made:
                c.stop()
            while daemons:  # left by one that failed
                d = daemons.pop()
                if d.p.poll() is None:
                    d.kill()
    sys.exit(result.code())

if __name__ == "__main__":
    main()
