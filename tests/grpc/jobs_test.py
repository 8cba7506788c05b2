#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Batch jobs, blobs and the cache over gRPC, by python grpcio; and whose they are, with tokens,
over both transports. Each scenario is a function; it fails by AssertionError.
Usage: jobs_test.py --build DIR --worker BIN [NAME...]"""
import hashlib, os, shutil, struct, subprocess, sys, tempfile, threading
import grpc
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
from client import OPTIONS, Api, Hlod, refused
from harness import Daemon, Results, chosen, options

def floats(*v):
    return struct.pack("<%df" % len(v), *v)
def model(*lines):
    return (
        "\n".join(["FAKE", "in x f32 N,4", "out y f32 N,4", "weight 4", *lines]) + "\n").encode()
def blob(h, data):
    r = h.PutBlob(data=data)
    assert r.digest == hashlib.sha256(data).hexdigest() and r.bytes == len(data), r
    return r.digest
def suite(h, *lines, n=1, **more):
    x, y = blob(h, floats(1, 2, 3, 4)), floats(2, 3, 4, 5)
    ins = [{"name": f"i{k}", "inputs": [{"name": "x", "dtype": "f32", "shape": [1, 4], "blob": x}],
            "expect": [{"name": "y", "dtype": "f32", "shape": [1, 4], "raw": y}]}
           for k in range(n)]
    return h.SubmitJobs(models=[{"name": "m", "model": blob(h, model(*lines))}], inputs=ins, **more)

def jobs(d):
    r = suite(d.hlod, n=5, keep_outputs=True)
    assert r.jobs == 5 and not r.existed
    events = list(d.hlod.WatchJob(job=r.suite))
    kinds = [e.WhichOneof("kind") for e in events]
    assert kinds[-1] == "done" and set(kinds[:-1]) == {"job"}, kinds
    ended = {e.job.id: e.job for e in events[:-1] if e.job.finished}
    assert (len(ended) == 5
            and all(j.state == "passed" and j.attempts == 1 for j in ended.values())), ended
    result = d.hlod.JobResult(job=r.suite + ".2")
    assert (result.state == "passed" and len(result.run_ms) >= 1 and result.comparisons[0].ok
            and result.counts.entry == 7)
    assert d.hlod.GetBlob(digest=result.outputs[0].blob).data == floats(2, 3, 4, 5)
    page = d.hlod.ListJobs(suite=r.suite, limit=3)
    rest = d.hlod.ListJobs(suite=r.suite, limit=3, page_token=page.next_page_token)
    assert ([j.id for j in [*page.jobs, *rest.jobs]] == [f"{r.suite}.{k}" for k in range(1, 6)]
            and not rest.next_page_token)
    log = d.hlod.JobLogs(job=r.suite + ".1")
    assert (log.ended and log.text.endswith("passed\n")
            and d.hlod.JobLogs(job=r.suite + ".1", offset=log.next_offset).text == "")
    refused(grpc.StatusCode.NOT_FOUND, lambda: d.hlod.GetJob(job="999.1"), "JOB_NOT_FOUND")
    refused(grpc.StatusCode.NOT_FOUND, lambda: d.hlod.WatchJob(job="999"), "JOB_NOT_FOUND")
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: d.hlod.SubmitJobs(), "BAD_OPTION")

def cancel(d):
    r = suite(d.hlod, "run_ms 5000", n=6)
    stream = d.hlod.WatchJob(job=r.suite)
    first = next(iter(stream))
    assert first.job.state in ("queued", "running")
    refused(grpc.StatusCode.FAILED_PRECONDITION, lambda: d.hlod.JobResult(job=r.suite + ".1"),
            "JOB_NOT_ENDED")
    assert d.hlod.CancelJob(job=r.suite).cancelled == 6
    assert [e for e in stream if e.WhichOneof("kind") == "job"][-1].job.state == "cancelled"

def watchers(d):
    """Many watchers, some of which leave: the others hear everything, the daemon goes on."""
    r = suite(d.hlod, "run_ms 60", n=12)
    out = []
    def watch(leave):
        s = d.hlod.WatchJob(job=r.suite)
        n = 0
        for e in s:
            n += e.WhichOneof("kind") == "job" and bool(e.job.finished)
            if leave and n == 2:
                s.cancel()
                return
        out.append(n)
    threads = [threading.Thread(target=watch, args=(k % 2,)) for k in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert out == [12] * 8, out

def blobs(d):
    data = os.urandom(3 << 20)
    digest = blob(d.hlod, data)
    got, at = b"", 0
    while at < len(data): # in pieces, as after a broken download
        piece = d.hlod.GetBlob(digest=digest, offset=at, length=1 << 20)
        assert piece.bytes == len(data) and piece.offset == at
        got, at = got + piece.data, at + len(piece.data)
    assert got == data and d.hlod.StatBlob(digest=digest).bytes == len(data)
    assert blob(d.hlod, b"") == hashlib.sha256(b"").hexdigest()
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: d.hlod.PutBlob(digest=digest, data=b"else"),
            "BLOB_MISMATCH")
    refused(grpc.StatusCode.OUT_OF_RANGE,
            lambda: d.hlod.GetBlob(digest=digest, offset=len(data) + 1), "BAD_RANGE")
    refused(grpc.StatusCode.NOT_FOUND, lambda: d.hlod.StatBlob(digest="0" * 64), "BLOB_NOT_FOUND")

def cache(d):
    key = d.hlod.Compile(source=model("# cache"), shapes=[{"input": "x", "dims": [1, 4]}]).digest
    assert d.hlod.PinExecutable(digest=key).pinned and d.hlod.GetExecutable(digest=key).pinned
    assert d.hlod.VerifyCache().checked >= 1 and not d.hlod.VerifyCache(digest=key).findings
    assert key not in d.hlod.CollectCache(max_bytes=1, dry_run=True).removed
    assert not d.hlod.UnpinExecutable(digest=key).pinned
    assert key in d.hlod.CollectCache(max_bytes=1).removed
    refused(grpc.StatusCode.NOT_FOUND, lambda: d.hlod.ExportExecutable(digest=key),
            "EXECUTABLE_NOT_FOUND")
    refused(grpc.StatusCode.PERMISSION_DENIED, lambda: d.hlod.ImportExecutable(), "IMPORT_REFUSED")

def tenants(d):
    """With tokens: a tenant sees its own jobs and blobs, an admin all jobs; without the scope
    nothing."""
    t = d.tokens
    one, two, boss, reader = (Hlod(d.api, grpc.intercept_channel(d.channel, Bearer(t[name])))
                              for name in ("one", "two", "boss", "reader"))
    r = suite(one, n=2)
    list(one.WatchJob(job=r.suite))
    assert one.GetJob(job=r.suite + ".1").tenant == "a"
    for fn in two.GetJob, two.JobResult, two.JobLogs, two.WatchJob:
        refused(grpc.StatusCode.NOT_FOUND, lambda: fn(job=r.suite + ".1"), "JOB_NOT_FOUND")
    refused(grpc.StatusCode.NOT_FOUND, lambda: two.CancelJob(job=r.suite), "JOB_NOT_FOUND")
    assert (not two.ListJobs().jobs and len(one.ListJobs().jobs) == 2
            and len(boss.ListJobs().jobs) == 2)
    assert boss.GetJob(job=r.suite + ".1").state == "passed"
    for fn in reader.ListJobs, lambda: reader.GetJob(job=r.suite + ".1"), lambda: reader.PutBlob(
        data=b"x"), reader.VerifyCache, lambda: one.CollectCache(max_bytes=1):
        refused(grpc.StatusCode.PERMISSION_DENIED, fn, "MISSING_SCOPE")
    mine = blob(one, b"only mine")
    refused(grpc.StatusCode.NOT_FOUND, lambda: two.GetBlob(digest=mine), "BLOB_NOT_FOUND")
    status, _, _ = d.call("GET", "/v1/blobs/" + mine,
                          headers={"Authorization": "Bearer " + t["two"]})
    assert status == 404
    status, _, body = d.call("GET", "/v1/blobs/" + mine,
                             headers={"Authorization": "Bearer " + t["one"]})
    assert (status, body) == (200, b"only mine")
    # Nor by way of a job: its tensors must be the tenant's own blobs.
    sixteen = blob(one, b"sixteen bytes, k")
    refused(grpc.StatusCode.NOT_FOUND,
            lambda: two.SubmitJobs(models=[{"model": blob(two, model())}],
                                   inputs=[{"inputs": [{"name": "x", "dtype": "f32",
                                                        "shape": [1, 4], "blob": sixteen}]}],
                                   keep_outputs=True), "BLOB_NOT_FOUND")
    assert (blob(two, b"only mine") == mine
            and two.GetBlob(digest=mine).data == b"only mine"), "who has the bytes may put them too"
    # The same key of two tenants is two suites.
    a, b = suite(one, idempotency_key="k"), suite(two, idempotency_key="k")
    assert a.suite != b.suite and not b.existed and suite(one, idempotency_key="k").existed

class Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, token):
        self.token = token
    def add(self, call, details, request):
        details = details._replace(metadata=[*(details.metadata or ()),
                                             ("authorization", "Bearer " + self.token)])
        return call(details, request)
    intercept_unary_unary = intercept_unary_stream = add

def main():
    o, results = options("build", "worker"), Results()
    api, folder, tokens = Api(o.build), tempfile.mkdtemp(prefix="hlod-tokens-"), {}
    for name, tenant, scopes in ("one", "a", "jobs"), (
        "two", "b", "jobs"), ("boss", "c", "admin"), ("reader", "a", "read"):
        p = subprocess.run([o.build + "/hlo", "tokens", "add", name, "--tenant", tenant, "--scopes",
                            scopes, "--file", folder + "/tokens"], capture_output=True, text=True)
        assert p.returncode == 0, p.stderr
        tokens[name] = p.stdout.strip()
    for scenario in chosen(o, (jobs, cancel, watchers, blobs, cache, tenants)):
        d = Daemon(o.build + "/hlod", o.worker,
                   args=("--tokens", folder + "/tokens") if scenario is tenants else ())
        d.api, d.tokens = api, tokens
        with grpc.insecure_channel(d.grpc, OPTIONS) as d.channel:
            d.hlod = Hlod(api, d.channel)
            results.scenario("jobs over gRPC: " + scenario.__name__, d, scenario)
    shutil.rmtree(folder)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
