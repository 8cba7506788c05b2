#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Profiles with the real workers: every step of a run is an instruction of the optimised module,
made of instructions of that module, from nodes of the model; times add up; the trace has the form
of the Trace Event Format; a traceparent comes back and is in the log. Needs numpy, onnx, grpcio.
Usage: profile.py BUILD"""
import json, os, re, socket, subprocess, sys, tempfile
import grpc
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from harness import Daemon, Results

build = sys.argv[1]
result = Results()

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "00-" + TRACE + "-b7ad6b7169203331-01"
rng = np.random.default_rng(3)
work = tempfile.mkdtemp(prefix="hlod-profile-")
def info(name, shape, t=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, t, shape)
def weight(name, *shape):
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

def convolutions():
    """Two convolutions with batch normalisation, a pool, a sum, a product of matrices: named
    nodes."""
    node, init, n = helper.make_node, [], []
    c_in, x = 3, "x"
    for k, c in enumerate((16, 32)):
        init += [weight(f"w{k}", c, c_in, 3, 3), weight(f"s{k}", c), weight(f"b{k}", c),
                 weight(f"m{k}", c), numpy_helper.from_array(np.ones(c, np.float32), f"v{k}")]
        n += [node("Conv", [x, f"w{k}"], [f"c{k}"], name=f"conv_{k}", pads=[1, 1, 1, 1]),
              node("BatchNormalization", [f"c{k}", f"s{k}", f"b{k}", f"m{k}", f"v{k}"], [f"n{k}"],
                   name=f"norm_{k}"),
              node("Relu", [f"n{k}"], [f"r{k}"], name=f"relu_{k}")]
        x, c_in = f"r{k}", c
    init += [weight("fc", 32, 10)]
    n += [node("GlobalAveragePool", [x], ["p"], name="pool"),
          node("Flatten", ["p"], ["f"], name="flat"),
          node("MatMul", ["f", "fc"], ["g"], name="dense"),
          node("Softmax", ["g"], ["y"], name="soft")]
    return helper.make_model(helper.make_graph(n, "g", [info("x", [1, 3, 64, 64])],
                                               [info("y", [1, 10])], init),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

def loop():
    """x @ W fifty times: a loop that stays one, of products too large to be a function with it."""
    body = helper.make_graph([helper.make_node("MatMul", ["a", "W"], ["t"], name="turn"),
                              helper.make_node("Tanh", ["t"], ["b"], name="squash"),
                              helper.make_node("Identity", ["go"], ["on"], name="again")], "body",
                             [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL),
                              info("a", [32, 128])],
                             [info("on", [], TensorProto.BOOL), info("b", [32, 128])])
    n = [helper.make_node("Loop", ["n", "true", "x"], ["y"], name="fifty", body=body)]
    init = [weight("W", 128, 128), numpy_helper.from_array(np.array(50, np.int64), "n"),
            numpy_helper.from_array(np.array(True), "true")]
    graph = helper.make_graph(n, "g", [info("x", [32, 128])], [info("y", [32, 128])], init)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

def run(model, x, headers={}, **options):
    body = {"model": model, "inputs": [{"name": "x", "datatype": "FP32", "shape": list(x.shape),
                                        "data": x.ravel().tolist()}], "options": options}
    status, got = d.json("POST", "/v1/run", body, headers)
    assert status == 200, got
    return got

def check_steps(name, got, model):
    profile, rows = got["profile"], got["profile"]["rows"]
    text = d.call("GET", f"/v1/executables/{got['executable']}/stage/hlo-after")[2].decode()
    known = set(re.findall(r"^\s*(?:ROOT )?%(\S+) = ", text, re.M))
    nodes = {n.name for n in model.graph.node} | {n.name for g in model.graph.node
                                                  for a in g.attribute for n in a.g.node}
    strange = [x for r in rows for x in [r["name"], *r.get("hlo", [])] if x not in known]
    result(f"{name}: steps and what they were fused from are instructions of the optimised module",
           rows and not strange, strange)
    strange = [x for r in rows for x in r.get("nodes", []) if x not in nodes]
    result(f"{name}: nodes are nodes of the model",
           any(r.get("nodes") for r in rows) and not strange, (strange, rows))
    fused = [r for r in rows if r.get("hlo") and len(r["hlo"]) > 1]
    result(f"{name}: a fusion says what it was made of",
           fused and all(r["name"].startswith(("fusion", "convert", "while")) or r["hlo"]
                         for r in fused), rows)
    top = sum(r["ms"] for r in rows if not r.get("depth"))
    result(f"{name}: steps add up to the run",
           abs(top - profile["stepsMs"]) < 1e-6 and 0.5 * profile["totalMs"] <= top <= profile[
               "totalMs"] * 1.0001, profile)
    result(f"{name}: the peak is known and said how",
           profile["peakGflops"] > 0.5 and profile["peakGbytes"] > 0.1 and "measured" in profile[
               "peakSource"], profile)
    rated = [r for r in rows if r.get("ofPeak")]
    def right(r):
        need = max(r.get("flops", 0) / profile["peakGflops"],
                   r.get("bytes", 0) / profile["peakGbytes"]) / 1e6
        return (abs(need / r["ms"] - r["ofPeak"]) < 1e-3 * r["ofPeak"] + 1e-6
                and r["bound"] in ("compute", "memory"))
    result(f"{name}: each step says how near it came", rated and all(map(right, rated)), rated)

def check_trace(name, job, want_cats):
    status, t = d.json("GET", f"/v1/runs/{job}/trace")
    events = t.get("traceEvents", [])
    # Trace Event Format: every event has ph, pid, tid, name; "X" has ts and dur in microseconds;
    # "M" names processes and threads.
    form = status == 200 and t["displayTimeUnit"] in ("ms", "ns") and events and all(
        isinstance(e["name"], str) and isinstance(e["pid"], int) and isinstance(e["tid"], int)
        and (e["ph"] == "M" and e["name"] in ("process_name", "thread_name")
             and isinstance(e["args"]["name"], str)
             or e["ph"] == "X" and e["ts"] >= 0 and e["dur"] >= 0 and isinstance(e["cat"], str))
        for e in events)
    result(f"{name}: the trace has the form of the Trace Event Format", form, t)
    spans = [e for e in events if e["ph"] == "X"]
    result(f"{name}: it has {', '.join(sorted(want_cats))}", want_cats <= {e["cat"] for e in spans},
           {e["cat"] for e in spans})
    whole = next(e for e in spans if e["name"] == "request" and e["pid"] == 1)
    out = [e for e in spans if e["ts"] + e["dur"] > whole["dur"] * 1.02 + 500]
    result(f"{name}: every span lies in the request", not out, (whole, out))
    by_thread = {}
    for e in spans: # spans of one thread nest or follow one another
        by_thread.setdefault((e["pid"], e["tid"]),
                             []).append((e["ts"], e["ts"] + e["dur"], e["name"]))
    crossed = []
    for key, v in by_thread.items():
        v.sort(key=lambda s: (s[0], -s[1]))
        open_ = []
        for s in v:
            while open_ and open_[-1][1] <= s[0] + 1:
                open_.pop()
            if open_ and s[1] > open_[-1][1] + 1:
                crossed.append((key, open_[-1], s))
            open_.append(s)
    result(f"{name}: spans of a thread nest", not crossed, crossed[:3])
    return t

d = Daemon(build + "/hlod", build + "/hlod-worker")
env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}
try:
    for name, model, shape, in (("convolutions", convolutions(), (1, 3, 64, 64)),
                                ("loop", loop(), (32, 128))):
        path = f"{work}/{name}.onnx"
        onnx.save(model, path)
        status, c = d.json("POST", "/v1/executables", open(path, "rb").read(),
                           {"Content-Type": "application/onnx"})
        assert status == 200, c
        t = check_trace(name + ", compile", c["job"], {"request", "pass"})
        passes = [e["name"] for e in t["traceEvents"] if e.get("cat") == "pass"]
        result(f"{name}: the passes are those of the executable",
               passes == [p["name"] for p in c["executable"]["passes"]], passes)
        x = rng.standard_normal(shape).astype(np.float32)
        run(c["sourceDigest"], x) # warm
        # a process of elsewhere may come between two steps of a run of microseconds
        for _ in range(3):
            got = run(c["sourceDigest"], x, profile=True, repeat=3)
            if got["profile"]["stepsMs"] > 0.5 * got["profile"]["totalMs"]:
                break
        check_steps(name, got, model)
        check_trace(name + ", run", got["job"], {"request", "step"})
        if name == "loop":
            rows = got["profile"]["rows"]
            deep, outer = [r for r in rows if r.get("depth", 0) > 0], [
                r for r in rows if not r.get("depth") and "while" in r["name"]]
            result("loop: the steps of its turns lie inside its own",
                   len(deep) >= 50 and len(outer) == 1 and all(
                       r.get("startMs", 0) >= outer[0].get("startMs", 0) - 1e-6
                       and r.get("startMs", 0) + r["ms"]
                       <= outer[0].get("startMs", 0) + outer[0]["ms"] + 1e-6
                       for r in deep), (outer, deep[:2]))
        named = {t["name"] for t in got["timings"]}
        result(f"{name}: timings have queue, run, transfer, total",
               {"queue", "run", "transfer", "total"} <= named, got["timings"])

    # The same graph under other names is the same executable: its steps do not tell the names of
    # the model that it was first compiled from.
    twin = loop()
    for n in [*twin.graph.node, *twin.graph.node[0].attribute[0].g.node,
              *(n for a in twin.graph.node[0].attribute for n in a.g.node)]:
        n.name = "other_" + n.name if not n.name.startswith("other_") else n.name
    twin.graph.initializer[0].CopyFrom(model.graph.initializer[0])
    status, other = d.json("POST", "/v1/executables", twin.SerializeToString(),
                           {"Content-Type": "application/onnx"})
    got = run(other["sourceDigest"], x, profile=True)
    told = {n for r in got["profile"]["rows"] for n in [r.get("op", ""), *r.get("nodes", [])]}
    result("the names of another's model stay out",
           other["digest"] == c["digest"] and other["sourceDigest"] != c[
               "sourceDigest"] and not told & {"fifty", "turn", "squash",
                                               "again"} and "dot" in str(got["profile"]["rows"]),
           (other.get("digest"), c["digest"], told))

    # The command: table and file.
    np.save(work + "/x.npy", x)
    p = subprocess.run([build + "/hlo", "run", path, "-i", f"x=@{work}/x.npy", "--profile",
                        "--trace", work + "/t.json"], env=env, capture_output=True, text=True,
                       timeout=60)
    t = json.load(open(work + "/t.json")) if p.returncode == 0 else {}
    result("hlo run --profile --trace",
           p.returncode == 0 and "of peak" in p.stdout and "while" in p.stdout and any(
               e.get("cat") == "step" for e in t["traceEvents"]), p.stdout + p.stderr)
    p = subprocess.run([build + "/hlo", "compile", path, "--trace", work + "/c.json"], env=env,
                       capture_output=True, text=True, timeout=60)
    result("hlo compile --trace",
           p.returncode == 0 and json.load(open(work + "/c.json"))["traceEvents"], p.stderr)
    p = subprocess.run([build + "/hlo", "runs", "--json"], env=env, capture_output=True, text=True,
                       timeout=60)
    runs = json.loads(p.stdout)["runs"]
    jobs = [r["job"] for r in runs]
    result("hlo runs: the newest first, no steps in the list",
           jobs == sorted(jobs, reverse=True) and len(jobs) >= 6 and any(
               r.get("profiled") for r in runs) and not any("profile" in r for r in runs), runs)
    status, e = d.json("POST", "/v1/run",
                       {"model": c["sourceDigest"],
                        "inputs": [{"name": "a\u202eb" + "\u00e9" * 400, "dtype": "f32",
                                    "shape": [1], "data": [1]}]})
    failed = d.json("GET", "/v1/runs?limit=1")[1]["runs"][0]
    result("a failed run's message is kept with it",
           status >= 400 and failed["code"] == e["code"] != "OK" and failed["message"].startswith(
               e["message"].split("\u202e")[0] + "\\u202eb\u00e9") and failed["message"].endswith(
               "\u00e9 ...") and 490 < len(failed["message"].encode()) < 515, (e, failed))
    result("those that went well have none",
           not any(r.get("message") for r in d.json("GET", "/v1/runs")[1]["runs"]
                   if r["code"] == "OK"))
    p = subprocess.run([build + "/hlo", "runs"], env=env, capture_output=True, text=True,
                       timeout=60)
    result("and in hlo runs", failed["message"] in p.stdout.splitlines()[0], p.stdout)
    p = subprocess.run([build + "/hlo", "top", "--once", "--interval", "0.05"], env=env,
                       capture_output=True, text=True, timeout=60)
    result("and in hlo top", failed["message"] in p.stdout, p.stdout)
    p = subprocess.run([build + "/hlo", "runs", "trace", "123456"], env=env, capture_output=True,
                       text=True, timeout=60)
    result("hlo runs trace: no such run", p.returncode == 3 and "123456" in p.stderr, p.stderr)

    # traceparent: HTTP.
    body = json.dumps({"model": c["sourceDigest"],
                       "inputs": [{"name": "x", "datatype": "FP32", "shape": list(x.shape),
                                   "data": x.ravel().tolist()}]})
    status, headers, text = d.call("POST", "/v1/run", body,
                                   {"traceparent": PARENT, "Accept": "application/json"})
    job = json.loads(text)["job"]
    result("traceparent comes back, with a span of the server's own",
           headers.get("traceparent") == PARENT and re.fullmatch(
               f"00-{TRACE}-[0-9a-f]{{16}}-01",
               headers.get("traceresponse", "")) and headers["traceresponse"] != PARENT, headers)
    log = [l for l in d.logs().splitlines() if f"job={job} " in l]
    result("the trace id is in the log", log and f"trace={TRACE}" in log[0], log)
    result("and in the run's record",
           d.json("GET", f"/v1/runs/{job}/trace")[1]["otherData"]["traceId"] == TRACE)
    status, headers, _ = d.call("GET", "/v1/executables/nonsense", headers={"traceparent": PARENT})
    result("also with an error", status == 400 and headers.get("traceparent") == PARENT, headers)
    _, headers, _ = d.call("GET", "/v1/version",
                           headers={"traceparent": PARENT.replace("0af", "0AF")})
    result("a malformed one is as none", "traceparent" not in headers, headers)

    status, _, text = d.call("POST", "/v1/run",
                             json.dumps({**json.loads(body), "options": {"profile": True}}),
                             {"Accept": "application/x-ndjson", "Content-Type": "application/json"})
    lines = [json.loads(l) for l in text.decode().splitlines() if l.strip()]
    kinds = [next(k for k in l if k != "tMs") for l in lines]
    streamed = next((l["profile"] for l in lines if "profile" in l), {})
    result("a stream has the steps before the result",
           status == 200 and "profile" in kinds and kinds.index("profile") < kinds.index(
               "result") < kinds.index("done") and len(streamed["rows"]) > 50, kinds)

    # Server-Timing behind the last chunk of a stream.
    s = socket.create_connection(d.addr)
    s.sendall("POST /v1/run HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/x-ndjson\r\n"
              "Connection: close\r\nContent-Type: application/json\r\nContent-Length: "
              f"{len(body)}\r\n\r\n{body}".encode())
    raw = b""
    while piece := s.recv(65536):
        raw += piece
    head, rest = raw.split(b"\r\n\r\n", 1)
    result("a stream has Server-Timing as a trailer",
           b"Trailer: Server-Timing" in head and re.search(
               rb"\r\n0\r\nServer-Timing: .*run;dur=[0-9.]+.*\r\n\r\n$", rest), rest[-300:])

    # gRPC: metadata both ways.
    with grpc.insecure_channel(d.grpc) as channel:
        same = lambda b: b
        message = lambda field, value: bytes([field << 3 | 2]) + bytes([len(value)]) + value
        call = channel.unary_unary("/hlod.v1.Hlod/GetExecutable", same, same)
        reply, how = call.with_call(message(1, got["executable"].encode()),
                                    metadata=(("traceparent", PARENT),))
        head = dict(how.initial_metadata())
        result("gRPC: traceparent comes back",
               head.get("traceparent") == PARENT and head.get("traceresponse", "").startswith(
                   "00-" + TRACE), head)
        call = channel.unary_unary("/hlod.v1.Hlod/Compile", same, same)
        reply, how = call.with_call(message(1, c["sourceDigest"].encode()),
                                    metadata=(("traceparent", PARENT),))
        result("gRPC: server-timing in the trailing metadata",
               "total;dur=" in dict(how.trailing_metadata()).get("server-timing", ""),
               how.trailing_metadata())
        result("gRPC: in the log", d.logs().count("trace=" + TRACE) == 2, d.logs()[-800:])
finally:
    d.stop()
sys.exit(result.code())
