#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gRPC against a real daemon with scripted workers, by python grpcio: every method, streams,
errors, deadlines, cancel, limits, health, reflection, load, shutdown. Each scenario is a function;
it fails by AssertionError. Usage: grpc_test.py --build DIR --worker BIN [NAME...]"""
import collections, os, signal, struct, subprocess, sys, threading, time
import grpc
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
from client import OPTIONS, Api, Hlod, refused
from harness import (FOREVER_MS, PATIENCE, Daemon, Results, Stopped, at_work, chosen, metric,
                     options, until)

def model(*lines):
    return (
        "\n".join(["FAKE", "in x f32 N,4", "out y f32 N,4", "weight 4", *lines]) + "\n").encode()
def shape(n=1):
    return [{"input": "x", "dims": [n, 4]}]
def tensor(n=1, value=1.0):
    return [{"name": "x", "dtype": "f32", "shape": [n, 4],
             "raw": struct.pack("<f", value) * (4 * n)}]
def put(d, *lines):
    return d.hlod.Compile(source=model(*lines), shapes=shape()).source_digest
def run_ok(d, digest, n=1):
    r = d.hlod.RunUnary(model=digest, inputs=tensor(n))
    assert len(r.outputs) == 1 and r.outputs[0].raw == struct.pack("<f", 2.0) * (4 * n), r

def unary(d):
    r = d.hlod.Compile(source=model(), shapes=shape(2))
    assert (len(r.digest) == 64 and r.executable.after.entry == 7
            and r.executable.bindings == ["N=2"] and not r.cache_hit)
    again = d.hlod.Compile(model=r.source_digest, shapes=shape(2))
    assert again.cache_hit and again.digest == r.digest
    run = d.hlod.RunUnary(model=r.source_digest, inputs=tensor(2, 2.5))
    assert (run.outputs[0].name == "y" and list(run.outputs[0].shape) == [2, 4]
            and run.outputs[0].raw == struct.pack("<f", 3.5) * 8)
    assert run.executable == r.digest and [t.name for t in run.timings][-1] == "total"
    assert d.hlod.Inspect(digest=r.digest, stage="hlo-after").text.startswith("stage hlo-after")
    assert d.hlod.GetExecutable(digest=r.digest).signature.inputs[0].name == "x"
    assert [e.digest for e in d.hlod.ListExecutables().executables] == [r.digest]
    other = d.hlod.Compile(model=r.source_digest, shapes=shape(3))
    diff = d.hlod.ExplainCache(a=r.digest, b=other.digest)
    assert (diff.component, diff.a, diff.b) == ("bindings", "N=2", "N=3")
    assert d.hlod.CacheStats().executables == 2
    assert d.hlod.ListDevices().devices[0].name == "cpu:0"
    assert d.hlod.Health().ready and d.hlod.Version().api == "hlod.v1"
    assert d.hlod.RemoveExecutable(digest=r.digest).digest == r.digest
    refused(grpc.StatusCode.NOT_FOUND, lambda: d.hlod.GetExecutable(digest=r.digest),
            "EXECUTABLE_NOT_FOUND")

def streams(d):
    events = list(d.hlod.CompileStream(source=model(), shapes=shape()))
    kinds = [e.WhichOneof("kind") for e in events]
    assert kinds == ["ingest", "compiling", "pass", "pass", "pass", "pass", "compiled",
                     "compile_result", "done"], kinds
    digest = events[-2].compile_result.source_digest
    events = list(d.hlod.Run(model=digest, inputs=tensor()))
    kinds = [e.WhichOneof("kind") for e in events]
    assert kinds == ["ingest", "compiled", "queued", "prepared", "running", "result", "done"], kinds
    assert (events[-2].result.outputs[0].raw == struct.pack("<f", 2.0) * 4
            and events[-1].done.code == "OK")
    assert all(a.t_ms <= b.t_ms for a, b in zip(events, events[1:]))

def events_come_as_they_happen(d):
    slow = put(d, "run_ms 3000")
    stream = d.hlod.Run(model=slow, inputs=tensor())
    for e in stream:
        if e.WhichOneof("kind") == "running":
            assert metric(d, "hlod_jobs_active") == 1, "it came when the run had ended"
            break
    else:
        raise AssertionError("no running event")
    assert [e.WhichOneof("kind") for e in stream] == ["result", "done"]

def errors(d):
    e = refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: d.hlod.Compile(source=b"garbage"),
                "UNSUPPORTED_FORMAT")
    e = refused(grpc.StatusCode.INVALID_ARGUMENT,
                lambda: d.hlod.Compile(source=model("fail compile"), shapes=shape()),
                "UNSUPPORTED_OP")
    assert "op Bar" in e.details(), e.details()
    refused(grpc.StatusCode.INVALID_ARGUMENT,
            lambda: d.hlod.CompileStream(source=model("fail compile"), shapes=shape()),
            "UNSUPPORTED_OP")
    refused(grpc.StatusCode.NOT_FOUND, lambda: d.hlod.RunUnary(model="0" * 64), "MODEL_NOT_FOUND")
    refused(grpc.StatusCode.NOT_FOUND, lambda: d.hlod.RunUnary(model="xyz"), "MODEL_NOT_FOUND")
    digest = put(d)
    bad = tensor()
    bad[0]["raw"] += b"x"
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: d.hlod.RunUnary(model=digest, inputs=bad),
            "BAD_TENSOR_DATA")
    refused(grpc.StatusCode.UNAVAILABLE,
            lambda: d.hlod.Compile(source=model("crash compile"), shapes=shape()), "WORKER_LOST")
    for path in "/hlod.v1.Hlod/Nonsense", "/other.Service/Method", "/", "//":
        refused(grpc.StatusCode.UNIMPLEMENTED, lambda: d.channel.unary_unary(path)(b"", timeout=5))
    refused(grpc.StatusCode.INVALID_ARGUMENT,
            lambda: d.channel.unary_unary("/hlod.v1.Hlod/RunUnary")(b"\xff\xff\xff", timeout=5),
            "BAD_JSON")
    # no message at all
    refused(grpc.StatusCode.INVALID_ARGUMENT,
            lambda: d.channel.stream_unary("/hlod.v1.Hlod/RunUnary")(iter(()), timeout=5))
    # too many
    assert d.channel.stream_unary("/hlod.v1.Hlod/Version")(iter((b"", b"", b"")), timeout=5)
    run_ok(d, digest)

def deadline(d):
    slow = put(d, f"run_ms {FOREVER_MS}")
    refused(grpc.StatusCode.DEADLINE_EXCEEDED,
            lambda: d.hlod.RunUnary(model=slow, inputs=tensor(), timeout=0.2))
    refused(grpc.StatusCode.DEADLINE_EXCEEDED,
            lambda: d.hlod.RunUnary(model=slow, inputs=tensor(), options={"timeout_ms": 200}),
            "DEADLINE")
    run_ok(d, put(d))

def cancel(d):
    slow = put(d, f"run_ms {FOREVER_MS}")
    for n in range(3):
        before = metric(d, "hlod_cancels_total")
        if n == 0:
            stream = d.hlod.Run(model=slow, inputs=tensor())
            next(stream)
            stream.cancel()
        elif n == 1:
            f = d.hlod.RunUnary.raw.future(d.hlod.RunUnary.request(model=slow, inputs=tensor()))
            at_work(d)
            f.cancel()
        else:  # the connection goes
            c = grpc.insecure_channel(d.grpc, options=[("grpc.use_local_subchannel_pool", 1)])
            stream = Hlod(d.api, c).Run(model=slow, inputs=tensor())
            next(stream)
            c.close()
        until(f"case {n}: cancelled", PATIENCE, lambda: metric(d, "hlod_cancels_total") > before)
        at_work(d, runs=0)
    until("no job is left", PATIENCE, lambda: not metric(d, "hlod_jobs_active"))
    run_ok(d, put(d))

def big_tensors(d):
    digest = put(d)
    # 64 KiB: the border between small and large; 16 MiB
    for n in 4095, 4096, 4097, 1 << 18, 1 << 20:
        raw = bytes(range(256)) * (n * 16 // 256 + 1)
        raw = struct.pack("<%df" % (n * 4), *range(n * 4))
        r = d.hlod.RunUnary(model=digest, inputs=[{"dtype": "f32", "shape": [n, 4], "raw": raw}])
        assert r.outputs[0].raw == struct.pack("<%df" % (n * 4), *range(1, n * 4 + 1)), n
    two = [{"name": "x", "dtype": "f32", "shape": [8192, 4], "raw": b"\0" * 131072},
           {"name": "x", "dtype": "f32", "shape": [1, 4], "raw": b"\0" * 16}]
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: d.hlod.RunUnary(model=digest, inputs=two),
            "UNKNOWN_INPUT")
    two[0]["raw"] = b"\0" * 131076
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: d.hlod.RunUnary(model=digest, inputs=two),
            "BAD_TENSOR_DATA")
    until("reservations are given back", PATIENCE, lambda: not metric(d, "hlod_receive_bytes"))

def limits(d):
    digest = put(d)
    n = 1 << 18
    # 4 MiB of 1 MiB
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED,
            lambda: d.hlod.RunUnary(model=digest, inputs=tensor(n)))
    run_ok(d, digest)
    for k in range(2, 5):
        d.hlod.Compile(model=digest, shapes=shape(k))
    e = refused(grpc.StatusCode.RESOURCE_EXHAUSTED,
                lambda: d.hlod.Compile(model=digest, shapes=shape(9)), "COMPILE_RATE")
    assert int(dict(e.trailing_metadata())["hlod-retry-after-ms"]) > 1000
limits.args = ("--max-message-bytes", "1M", "--compile-rate", "4")

def long_metadata(d):
    """Of a call: as much as a head over HTTP may have, such as a long token; more is refused in a
    status that says so."""
    health = d.channel.unary_unary("/hlod.v1.Hlod/Health")
    for n in 9000, 20000, 30000:
        assert health(b"", metadata=[("x-long", "a" * n)], timeout=PATIENCE)
    refused(grpc.StatusCode.RESOURCE_EXHAUSTED,
            lambda: health(b"", metadata=[("x-long", "a" * 40000)], timeout=PATIENCE))

def typed_contents(d):
    digest = put(d)
    infer, q = d.api.method(d.channel, "/inference.GRPCInferenceService/ModelInfer")
    def ask(datatype="FP32", shape=(1, 4), raw=None, **contents):
        m = q(model_name=digest,
              inputs=[{"name": "x", "datatype": datatype, "shape": shape, "contents": contents}])
        if raw is not None:
            m.raw_input_contents.extend(raw)
        return infer(m, timeout=5)
    assert ask(fp32_contents=[1, 2, 3, 4]).raw_output_contents[0] == struct.pack("<4f", 2, 3, 4, 5)
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: ask(fp32_contents=[1, 2, 3]),
            "BAD_TENSOR_DATA")
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: ask(), "BAD_TENSOR_DATA")
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: ask("FP16", fp32_contents=[1, 2, 3, 4]),
            "BAD_TENSOR_DATA")
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: ask(raw=[b"\0" * 16] * 2), "BAD_TENSOR_DATA")
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: ask(raw=[b"\0" * 12]), "BAD_TENSOR_DATA")
    refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: ask("BYTES", bytes_contents=[b"x"] * 4),
            "DTYPE_MISMATCH")
    # The values of one type in one list, and none beside raw contents.
    for datatype, words, contents in (
            ("FP32", "into fp32_contents, there are some in int_contents",
             {"int_contents": [1] * 4}),
            ("FP32", "into fp32_contents, there are some in bool_contents",
             {"fp32_contents": [1] * 4, "bool_contents": [True]}),
            ("BYTES", "into bytes_contents, there are some in fp64_contents",
             {"fp64_contents": [1] * 4, "bytes_contents": [b""] * 4}),
            ("FP32", "fp32_contents, and raw_input_contents as well",
             {"fp32_contents": [1] * 4, "raw": [b"\0" * 16]}),
            ("INT8", "element 1: value does not fit", {"int_contents": [127, 128, 0, 0]}),
            ("INT8", "element 2: value does not fit", {"int_contents": [0, -128, -129, 0]}),
            ("INT16", "element 0: value does not fit", {"int_contents": [32768, 0, 0, 0]}),
            ("INT16", "element 3: value does not fit", {"int_contents": [0, 0, -32768, -32769]}),
            ("UINT8", "element 1: value does not fit", {"uint_contents": [255, 256, 0, 0]}),
            ("UINT16", "element 1: value does not fit", {"uint_contents": [65535, 65536, 0, 0]}),
            ("s4", "element 1: value does not fit", {"int_contents": [-8, 8, 0, 0]}),
            ("u4", "element 1: value does not fit", {"uint_contents": [15, 16, 0, 0]})):
        got = refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: ask(datatype, **contents),
                      "BAD_TENSOR_DATA").details()
        assert words in got, (words, got)
    # The fake model adds one to each 32 bits as a float: the bytes that arrive are seen in what
    # leaves.
    for datatype, field, values, pack in (("INT32", "int_contents", [0, 0, 0, 0], "<4i"),
                                          ("UINT32", "uint_contents", [0, 0, 0, 0], "<4I")):
        refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: ask(datatype, **{field: values}),
                "DTYPE_MISMATCH")
    narrow = d.hlod.Compile(source=b"FAKE\nin x s8 8\nout y s8 8\n").source_digest
    m = q(model_name=narrow,
          inputs=[{"name": "x", "datatype": "INT8", "shape": [8],
                   "contents": {"int_contents": list(struct.pack("<2f", 1.0, 6.5)[k]
                                                     - 256 * (struct.pack("<2f", 1.0, 6.5)[k] > 127)
                                                     for k in range(8))}}])
    assert infer(m, timeout=5).raw_output_contents[0] == struct.pack("<2f", 2.0, 7.5)

def health(d):
    check, q = d.api.method(d.channel, "/grpc.health.v1.Health/Check")
    for name in "", "hlod.v1.Hlod":
        assert check(q(service=name), timeout=5).status == 1
    refused(grpc.StatusCode.NOT_FOUND, lambda: check(q(service="nothing"), timeout=5))
    every, lq = d.api.method(d.channel, "/grpc.health.v1.Health/List")
    assert every(lq(), timeout=5).statuses["hlod.v1.Hlod"].status == 1
    watch, _ = d.api.method(d.channel, "/grpc.health.v1.Health/Watch")
    assert next(watch(q(service="nothing"), timeout=5)).status == 3
    w = watch(q(service=""), timeout=20)
    assert next(w).status == 1
    w.cancel()
    idle = watch(q(service=""))
    assert next(idle).status == 1
    d.p.send_signal(signal.SIGTERM)  # an open watch does not hold up the shutdown, and hears of it
    got = []
    try:
        got += [m.status for m in idle]
    except grpc.RpcError as e:
        assert e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED), e.code()
    assert d.p.wait(10) == 0
    assert got in ([2], []), got
health.ends = True

def reflection(d):
    sys.path.insert(0, HERE)
    for version in "v1", "v1alpha":
        fn, q = d.api.method(d.channel,
                             f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
        def ask(**kw):
            return next(fn(iter([q(**kw)]), timeout=5))
        names = [s.name for s in ask(list_services="").list_services_response.service]
        assert {"hlod.v1.Hlod", "inference.GRPCInferenceService", "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection"} <= set(names), names
        from google.protobuf import descriptor_pb2
        def files(r):
            return [descriptor_pb2.FileDescriptorProto.FromString(b).name
                    for b in r.file_descriptor_response.file_descriptor_proto]
        for symbol in "hlod.v1.Hlod", "hlod.v1.Hlod.Run", "hlod.v1.Event", "hlod.v1.Reason":
            assert files(ask(file_containing_symbol=symbol)) == ["proto/hlod.proto"], symbol
        assert (
            files(ask(file_containing_symbol="grpc.health.v1.HealthCheckResponse.ServingStatus"))
            == ["proto/formats/health.proto"])
        assert files(ask(file_by_filename="proto/hlod.proto")) == ["proto/hlod.proto"]
        for symbol in "hlod.v1.Nothing", "hlod.v1", "x", "":
            assert ask(file_containing_symbol=symbol).error_response.error_code == 5, symbol
        r = list(fn(iter([q(list_services=""), q(file_by_filename="nope"), q()]), timeout=5))
        assert [m.WhichOneof("message_response") for m in r] == [
            "list_services_response", "error_response", "error_response"]

def many_clients(d):
    digest = put(d, "run_ms 1")
    bad = []
    def work(k):
        try:
            c = grpc.insecure_channel(d.grpc,
                                      options=OPTIONS + [("grpc.use_local_subchannel_pool", 1)])
            h = Hlod(d.api, c)
            for i in range(20):
                n = 1 if i % 4 else 6000
                r = h.RunUnary(model=digest, inputs=tensor(n, k))
                assert r.outputs[0].raw == struct.pack("<f", k + 1) * (4 * n)
                if i % 5 == 0:
                    s = h.Run(model=digest, inputs=tensor(1, k))
                    next(s)
                    s.cancel()
            c.close()
        except Exception as e:
            bad.append(repr(e))
    threads = [threading.Thread(target=work, args=(k,)) for k in range(16)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not bad, bad[:3]

def hostile(d):
    """Bytes that are no gRPC, half a preface, a flood of pings, headers without end: the next call
    is served."""
    import socket
    digest = put(d)
    host, port = d.grpc.rsplit(":", 1)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    frame = lambda kind, flags, stream, body: struct.pack(">I", len(body))[
        1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body
    settings = frame(4, 0, 0, b"")
    attacks = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", preface[:10], preface + b"\xff" * 4000,
               b"\0" * 100000, preface + settings + frame(6, 0, 0, b"\0" * 8) * 2000,
               preface + settings + frame(1, 4, 1, b"\x82" * 20),
               preface + settings + frame(1, 0, 1,
                                          b"\x40" + b"\x0aaaaaaaaaaa\x0abbbbbbbbbb" * 1500) + frame(
                   9, 0, 1, b"\x40\x0aaaaaaaaaaa\x0abbbbbbbbbb" * 600) * 20,
               preface + settings + frame(0, 0, 1, b"x" * 16000) * 10,
               preface + settings
               + b"".join(frame(1, 5, 2 * k + 1, b"\x83") + frame(3, 0, 2 * k + 1, b"\0\0\0\x08")
                          for k in range(2000))]
    for a in attacks:
        s = socket.create_connection((host, int(port)))
        s.settimeout(2)
        try:
            s.sendall(a)
            s.recv(1 << 16)
        except OSError:
            pass
        s.close()
        run_ok(d, digest)

def slow_reader(d):
    """A client that does not read its answers: the daemon keeps them, and gives them back when the
    client leaves."""
    digest = put(d)
    n = 1 << 20  # 16 MiB each
    c = grpc.insecure_channel(d.grpc, options=[("grpc.max_receive_message_length", -1),
                                               ("grpc.use_local_subchannel_pool", 1)])
    streams = [Hlod(d.api, c).Run(model=digest, inputs=tensor(n)) for _ in range(3)]
    time.sleep(1)
    run_ok(d, digest)
    c.close()
    until("what they held is given back", PATIENCE,
          lambda: not metric(d, "hlod_receive_bytes") and not metric(d, "hlod_jobs_active"))
    del streams
    run_ok(d, digest)

def drain(d):
    slow = put(d, "run_ms 700")
    f = d.hlod.RunUnary.raw.future(d.hlod.RunUnary.request(model=slow, inputs=tensor()))
    stream = d.hlod.Run(model=slow, inputs=tensor())
    next(stream)
    until("both are there", PATIENCE, lambda: metric(d, "hlod_jobs_active") == 2)
    d.p.send_signal(signal.SIGTERM)
    assert f.result(timeout=PATIENCE).outputs[0].name == "y"
    assert [e.WhichOneof("kind") for e in stream][-2:] == ["result", "done"]
    assert d.p.wait(PATIENCE) == 0
drain.ends = True

def drain_under_load(d):
    """Calls that come as it ends have answers or UNAVAILABLE, which is worth another try: CANCELLED
    is not. They lie in its sockets when it hears the signal."""
    digest, codes = put(d), collections.Counter()
    q = d.hlod.RunUnary.request(model=digest, inputs=tensor())
    channels = [grpc.insecure_channel(d.grpc, options=OPTIONS) for _ in range(8)]
    calls = [Hlod(d.hlod.api, c).RunUnary.raw for c in channels]
    for _ in range(3):  # all are connected, and known
        for f in [call.future(q, timeout=PATIENCE) for call in calls]:
            f.result()
    with Stopped(d.p.pid):
        futures = [call.future(q, timeout=PATIENCE) for call in calls for _ in range(64)]
        d.p.send_signal(signal.SIGTERM)
        time.sleep(0.2)
    assert d.p.wait(PATIENCE) == 0
    codes.update(f.code() for f in futures)
    for c in channels:
        c.close()
    assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, codes
drain_under_load.ends = True

def streams_at_the_end(d):
    """Streams asked for as it ends have an end too, also those that it never reads: the library of
    their clients loses what it tries again by itself, and does not see its deadline either."""
    digest, channels = put(d, "run_ms 20"), [
        grpc.insecure_channel(d.grpc, options=OPTIONS) for _ in range(8)]
    runs = [Hlod(d.hlod.api, c).Run for c in channels]
    codes, ended = collections.Counter(), collections.Counter()
    def work(run):
        while ended[run] < 3:
            try:
                list(run(model=digest, inputs=tensor(), timeout=PATIENCE))
            except grpc.RpcError as e:
                codes[e.code()] += 1
                ended[run] += 1
    threads = [threading.Thread(target=work, args=(r,), daemon=True) for r in runs]
    for t in threads:
        t.start()
    at_work(d)
    d.p.send_signal(signal.SIGTERM)
    assert d.p.wait(PATIENCE) == 0
    for t in threads:
        t.join(PATIENCE)
        assert not t.is_alive(), codes
    for c in channels:
        c.close()
    assert set(codes) == {grpc.StatusCode.UNAVAILABLE}, codes
streams_at_the_end.ends, streams_at_the_end.args = True, ("--drain-ms", "0")

def stop_now(d):
    """Two signals: what is under way is cut off, the process still ends cleanly."""
    slow = put(d, f"run_ms {FOREVER_MS}")
    f = d.hlod.RunUnary.raw.future(d.hlod.RunUnary.request(model=slow, inputs=tensor()))
    at_work(d)
    d.p.send_signal(signal.SIGTERM)
    until("it has heard it", PATIENCE, lambda: "ev=server.stop " in d.logs())
    d.p.send_signal(signal.SIGTERM)
    refused(grpc.StatusCode.UNAVAILABLE, lambda: f.result(timeout=PATIENCE))
    assert d.p.wait(PATIENCE) == 0
stop_now.ends = True

def taken_port(d):
    p = subprocess.run([d.hlod_path, "--http", "127.0.0.1:0", "--grpc", d.grpc, "--data",
                        d.dir + "/other", "--worker", d.worker], capture_output=True, text=True,
                       timeout=20)
    assert p.returncode != 0 and "gRPC cannot listen" in p.stderr, p.stderr

SCENARIOS = [unary, streams, events_come_as_they_happen, errors, deadline, cancel, big_tensors,
             limits, long_metadata, typed_contents, health, reflection, many_clients, hostile,
             slow_reader, drain, drain_under_load, streams_at_the_end, stop_now, taken_port]

def main():
    o, results = options("build", "worker"), Results()
    api = Api(o.build)
    for s in chosen(o, SCENARIOS):
        d = Daemon(o.build + "/hlod", o.worker, args=getattr(s, "args", ()))
        d.hlod_path, d.api = o.build + "/hlod", api
        with grpc.insecure_channel(d.grpc, OPTIONS) as d.channel:
            d.hlod = Hlod(api, d.channel)
            results.scenario(s.__name__, d, s)
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
