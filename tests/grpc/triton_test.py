#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Open Inference Protocol judged by an unmodified tritonclient, over HTTP and gRPC: health,
metadata, config, infer (binary, JSON, async, stream), statistics, index, load with file override,
unload, errors. Usage: triton_test.py --build DIR --worker BIN [NAME...]"""
import gzip, json, os, queue, signal, sys, zlib
import numpy as np
import tritonclient.grpc as tg
import tritonclient.http as th
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
from harness import FOREVER_MS, PATIENCE, Daemon, Results, at_work, chosen, metric, options, until

MODEL = b"FAKE\nin x f32 N,4\nout y f32 N,4\nweight 4\n"
def refused(text, fn):
    try:
        fn()
    except InferenceServerException as e:
        assert text in e.message(), e.message()
        return e
    raise AssertionError("not refused: " + text)

def x_of(lib, n, binary=None):
    x = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    i = lib.InferInput("x", [n, 4], "FP32")
    i.set_data_from_numpy(x, *([binary] if binary is not None else []))
    return x, i

def setup(d):
    status, r = d.json("POST", "/v1/executables?shape=x=1x4", MODEL)
    assert status == 200, r
    d.digest = r["sourceDigest"]
    status, r = d.json("POST", "/v1/models", {"name": "plus", "model": d.digest})
    assert status == 200 and r["version"] == 1, r

def health(d, c, lib):
    assert (c.is_server_live() and c.is_server_ready() and c.is_model_ready("plus")
            and c.is_model_ready("plus", "1"))
    assert c.is_model_ready(d.digest)
    # false and no error, as Triton answers
    for name, version in (("nothing", ""), ("plus", "7"), ("0" * 64, "")):
        assert not c.is_model_ready(name, version), name

def metadata(d, c, lib):
    kw = {} if lib is th else {"as_json": True}
    m = c.get_server_metadata(**kw)
    assert m["name"] == "hlod" and "binary_tensor_data" in m["extensions"], m
    m = c.get_model_metadata("plus", **kw)
    assert m["name"] == "plus" and m["versions"] == ["1"], m
    assert m["inputs"] == [{"name": "x", "datatype": "FP32",
                            "shape": [-1, 4] if lib is th else ["-1", "4"]}], m
    assert m["outputs"][0]["name"] == "y"
    k = c.get_model_config("plus", **kw)
    k = k if lib is th else k["config"]
    assert (k["name"] == "plus" and k["input"][0]["data_type"] == "TYPE_FP32"
            and k["backend"] == "hlod"), k
    refused("unknown model", lambda: c.get_model_metadata("nothing"))
    refused("unknown model", lambda: c.get_model_metadata("plus", "7"))
    refused("unknown model", lambda: c.get_model_config("nothing"))

def infer(d, c, lib):
    for n in 1, 3, 5000, 100000:  # inline; 80 KB and 1.6 MB: through memory descriptors
        x, i = x_of(lib, n)
        r = c.infer("plus", [i])
        assert np.array_equal(r.as_numpy("y"), x + 1), n
    r = c.infer("plus", [i], outputs=[lib.InferRequestedOutput("y")], request_id="abc",
                model_version="1", timeout=5000000, priority=1)
    assert np.array_equal(r.as_numpy("y"), x + 1)
    response = r.get_response()
    get = (lambda k: response[k]) if lib is th else (lambda k: getattr(response, k))
    assert get("id") == "abc" and get("model_name") == "plus" and get("model_version") == "1"
    r = c.infer("plus", [i], parameters={"hlod_timing": True})
    got = (r.get_response()["parameters"]["hlod_timing"] if lib is th
           else r.get_response().parameters["hlod_timing"].string_param)
    assert got.startswith("queue=") and "run=" in got and "total=" in got, got
    x, i = x_of(lib, 2)
    r = c.infer(d.digest, [i])  # a digest is a name
    assert np.array_equal(r.as_numpy("y"), x + 1)
    if lib is th:
        for binary_in in True, False:
            for binary_out in True, False:
                x, i = x_of(lib, 3, binary_in)
                r = c.infer("plus", [i],
                            outputs=[th.InferRequestedOutput("y", binary_data=binary_out)])
                assert np.array_equal(r.as_numpy("y"), x + 1), (binary_in, binary_out)
                assert ("data" in r.get_output("y")) == (not binary_out), r.get_output("y")
        for how in "gzip", "deflate":
            for n in 2, 20000:
                for binary in True, False:
                    x, i = x_of(th, n, binary)
                    r = c.infer("plus", [i], request_compression_algorithm=how,
                                response_compression_algorithm=how)
                    assert np.array_equal(r.as_numpy("y"), x + 1), (how, n, binary)

def coded_replies(d, c, lib):
    """Replies are compressed for those who ask, and say so; small ones are not."""
    for how, opener in ("gzip", lambda b: gzip.decompress(b)), ("deflate", zlib.decompress):
        for n in 1, 500, 30000:  # as it is; on the loop; on the pool
            x, _ = x_of(th, n)
            for binary in False, True:
                q = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [n, 4],
                                 "data": x.ravel().tolist()}],
                     "parameters": {"binary_data_output": binary}}
                status, headers, body = d.call("POST", "/v2/models/plus/infer", json.dumps(q),
                                               {"Accept-Encoding": "br, %s;q=0.5" % how})
                assert status == 200 and ("content-encoding" in headers) == (n > 1), (n, headers)
                if n > 1:
                    assert (headers["content-encoding"] == how and "server-timing" in headers
                            and headers["vary"] == "Accept-Encoding"), headers
                    body = opener(body)
                split = int(headers.get("inference-header-content-length", len(body)))
                out = json.loads(body[:split])["outputs"][0]
                y = (np.frombuffer(body[split:], np.float32) if binary
                     else np.array(out["data"], np.float32))
                assert np.array_equal(y.reshape(n, 4), x + 1), (how, n, binary)
    status, headers, body = d.call("POST", "/v2/models/plus/infer", json.dumps(q),
                                   {"Accept-Encoding": "gzip;q=0"})
    assert status == 200 and "content-encoding" not in headers

def extensions(d, c, lib):
    x = np.array([[1, 9, 3, 4], [8, 8, 0.5, 7]], np.float32)
    i = lib.InferInput("x", [2, 4], "FP32")
    i.set_data_from_numpy(x)
    for binary in (True, False) if lib is th else (True,):
        o = lib.InferRequestedOutput("y", class_count=2,
                                     **({"binary_data": binary} if lib is th else {}))
        got = c.infer("plus", [i], outputs=[o]).as_numpy("y")
        assert got.shape == (2, 2) and [str(v, "ascii") if isinstance(v, bytes) else v
                                        for v in got.ravel()] == ["10:1", "5:3", "9:0", "9:1"], got
    refused("sequences are not supported",
            lambda: c.infer("plus", [i], sequence_id=5, sequence_start=True))
    if lib is th:  # a path that is not there, whose answer the client reads
        refused("nothing at '/v2/models/a/b'", lambda: c.get_model_metadata("a/b"))
    kw = {} if lib is th else {"as_json": True}
    extensions = c.get_server_metadata(**kw)["extensions"]
    assert ("system_shared_memory" in extensions and "cuda_shared_memory" not in extensions
            and "classification" in extensions), extensions
    log = c.get_log_settings(**kw)
    assert log["log_info"] if lib is th else log["settings"]["log_info"]["bool_param"], log
    log = c.update_log_settings({"log_verbose_level": 1}, **kw)
    c.update_log_settings({"log_verbose_level": 0})
    refused("standard error", lambda: c.update_log_settings({"log_file": "/tmp/x"}))
    trace = c.get_trace_settings(**kw)
    assert (trace if lib is th else {k: v["value"] for k, v in trace["settings"].items()})[
        "trace_level"] == ["OFF"], trace
    assert c.get_trace_settings(model_name="plus", **kw) == trace
    refused("unknown model", lambda: c.get_trace_settings(model_name="nothing"))
    refused("profile", lambda: c.update_trace_settings(settings={"trace_level": ["TIMESTAMPS"]}))
    refused("CUDA shared memory is not offered",
            lambda: c.register_cuda_shared_memory("r", b"AAAA", 0, 16))
    assert not c.get_cuda_shared_memory_status(**kw)

def shared_memory(d, c, lib):
    kw = {} if lib is th else {"as_json": True}
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    key = "/hlod-test-%d" % os.getpid()
    region = shm.create_shared_memory_region("data", key, 96)
    try:
        shm.set_shared_memory_region(region, [x], offset=16)
        refused("cannot open", lambda: c.register_system_shared_memory("none", key + "-not", 64))
        refused("a key is the name",
                lambda: c.register_system_shared_memory("none", "/../../etc/passwd", 64))
        refused("beyond its object", lambda: c.register_system_shared_memory("data", key, 1 << 20))
        c.register_system_shared_memory("data", key, 96)
        refused("registered already", lambda: c.register_system_shared_memory("data", key, 96))
        status = c.get_system_shared_memory_status(**kw)
        row = status[0] if lib is th else status["regions"]["data"]
        assert row["name"] == "data" and row["key"] == key and int(row["byte_size"]) == 96, status
        i = lib.InferInput("x", [2, 4], "FP32")
        i.set_shared_memory("data", 32, offset=16)
        o = lib.InferRequestedOutput("y")
        o.set_shared_memory("data", 32, offset=48)
        r = c.infer("plus", [i], outputs=[o])
        assert np.array_equal(shm.get_contents_as_numpy(region, np.float32, [2, 4], offset=48),
                              x + 1)
        if lib is th:
            out = r.get_output("y")
            assert "data" not in out and out["parameters"] == {
                "shared_memory_region": "data", "shared_memory_byte_size": 32,
                "shared_memory_offset": 48}, out
        else:
            out = r.get_response().outputs[0]
            assert (out.parameters["shared_memory_region"].string_param == "data"
                    and r.get_response().raw_output_contents == [b""]), out
        r = c.infer("plus", [i])  # in from there, out over the wire
        assert np.array_equal(r.as_numpy("y"), x + 1)
        direct = lib.InferInput("x", [2, 4], "FP32")
        direct.set_data_from_numpy(x * 2)
        c.infer("plus", [direct], outputs=[o])
        assert np.array_equal(shm.get_contents_as_numpy(region, np.float32, [2, 4], offset=48),
                              x * 2 + 1)
        i.set_shared_memory("data", 32, offset=80)
        refused("goes beyond it", lambda: c.infer("plus", [i]))
        i.set_shared_memory("data", 16)
        refused("", lambda: c.infer("plus", [i]))
        i.set_shared_memory("nothing", 32)
        refused("is not registered", lambda: c.infer("plus", [i]))
        i.set_shared_memory("data", 32, offset=16)
        os.truncate("/dev/shm" + key, 20)  # by the client, behind our back
        refused("was made shorter", lambda: c.infer("plus", [i]))
        refused("was made shorter", lambda: c.infer("plus", [direct], outputs=[o]))
        c.unregister_system_shared_memory("data")
        assert not c.get_system_shared_memory_status(**kw)
        refused("is not registered", lambda: c.infer("plus", [i]))
        assert c.is_server_live()
    finally:
        shm.destroy_shared_memory_region(region)

def asynchronous(d, c, lib):
    x, i = x_of(lib, 2)
    if lib is th:
        futures = [c.async_infer("plus", [i]) for _ in range(8)]
        results = [f.get_result() for f in futures]
    else:
        done = queue.Queue()
        for _ in range(8):
            c.async_infer("plus", [i], lambda result, error: done.put((result, error)))
        got = [done.get(timeout=PATIENCE) for _ in range(8)]
        assert not [e for _, e in got if e], got
        results = [r for r, _ in got]
    assert all(np.array_equal(r.as_numpy("y"), x + 1) for r in results)

def stream(d, c, lib):
    if lib is th:
        return
    done = queue.Queue()
    c.start_stream(lambda result, error: done.put((result, error)))
    sizes = [1, 2, 30000, 3, 5000, 4]
    for k, n in enumerate(sizes):
        x, i = x_of(lib, n)
        c.async_stream_infer("plus", [i], request_id=str(k))
    for k, n in enumerate(sizes):  # in order
        result, error = done.get(timeout=PATIENCE)
        assert error is None and result.get_response().id == str(k), (error, k)
        assert result.get_response().parameters["triton_final_response"].bool_param
        assert np.array_equal(result.as_numpy("y"), x_of(lib, n)[0] + 1)
    _, i = x_of(lib, 1)
    c.async_stream_infer("nothing", [i])  # an error does not end the stream
    result, error = done.get(timeout=PATIENCE)
    assert "unknown model" in str(error), error
    c.async_stream_infer("plus", [i])
    result, error = done.get(timeout=PATIENCE)
    assert error is None and np.array_equal(result.as_numpy("y"), x_of(lib, 1)[0] + 1)
    c.stop_stream()
    c.start_stream(lambda result, error: done.put((result, error)),
                   headers={"triton_grpc_error": "true"})
    c.async_stream_infer("nothing", [i])
    result, error = done.get(timeout=PATIENCE)
    assert "unknown model" in str(error), error
    c.stop_stream()
    slow = d.json("POST", "/v1/executables?shape=x=1x4",
                  MODEL + b"run_ms %d\n" % FOREVER_MS)[1]["sourceDigest"]
    c.start_stream(lambda result, error: done.put((result, error)))
    c.async_stream_infer(slow, [i])
    at_work(d)
    c.stop_stream(cancel_requests=True)
    until("cancelled", PATIENCE, lambda: not metric(d, "hlod_jobs_active"))

def drain(d, c, lib):
    """A stream that its client keeps open does not keep a daemon that ends: what is under way in it
    is answered, then it ends by UNAVAILABLE."""
    slow = d.json("POST", "/v1/executables?shape=x=1x4", MODEL + b"run_ms 700\n")[1]["sourceDigest"]
    done, idle, x = queue.Queue(), queue.Queue(), x_of(lib, 1)[0]
    c.start_stream(lambda result, error: done.put((result, error)))
    other = client(d, lib)
    other.start_stream(lambda result, error: idle.put((result, error)))
    other.async_stream_infer("plus", [x_of(lib, 1)[1]])
    assert idle.get(timeout=PATIENCE)[1] is None
    c.async_stream_infer(slow, [x_of(lib, 1)[1]])
    at_work(d)
    d.p.send_signal(signal.SIGTERM)
    assert d.p.wait(PATIENCE) == 0
    result, error = done.get(timeout=PATIENCE)
    assert error is None and np.array_equal(result.as_numpy("y"), x + 1), error
    for answers in done, idle:
        error = answers.get(timeout=PATIENCE)[1]
        assert error.status() == "StatusCode.UNAVAILABLE" and "shutting down" in str(error), error
    other.close()
drain.ends = True

def errors(d, c, lib):
    x, i = x_of(lib, 2)
    refused("unknown model", lambda: c.infer("nothing", [i]))
    wrong = lib.InferInput("z", [2, 4], "FP32")
    wrong.set_data_from_numpy(x)
    refused("no input 'z'", lambda: c.infer("plus", [wrong]))
    wrong = lib.InferInput("x", [2, 4], "INT32")
    wrong.set_data_from_numpy(x.astype(np.int32))
    refused("expected f32", lambda: c.infer("plus", [wrong]))
    wrong = lib.InferInput("x", [2, 3], "FP32")
    wrong.set_data_from_numpy(x[:, :3].copy())
    refused("expected 4, found 3", lambda: c.infer("plus", [wrong]))
    refused("no output 'w'", lambda: c.infer("plus", [i], outputs=[lib.InferRequestedOutput("w")]))
    text = lib.InferInput("x", [2], "BYTES")
    text.set_data_from_numpy(np.array([b"a", b"b"], dtype=object))
    refused("found string", lambda: c.infer("plus", [text]))
    assert np.array_equal(c.infer("plus", [i]).as_numpy("y"), x + 1)

def repository(d, c, lib):
    kw = {} if lib is th else {"as_json": True}
    def index():
        r = c.get_model_repository_index(**kw)
        return {(m["name"], m["version"]): m["state"]
                for m in (r if lib is th else r.get("models", []))}
    label = "http" if lib is th else "grpc"
    name = "loaded_" + label
    assert index()["plus", "1"] == "READY"
    refused("no such model", lambda: c.load_model("nothing"))
    other = MODEL.replace(b"weight 4", b"weight 8")
    c.load_model(name, config=json.dumps({"backend": "hlod"}), files={"file:3/model.onnx": other})
    assert c.is_model_ready(name) and index()[name, "3"] == "READY"
    x, i = x_of(lib, 2)
    assert np.array_equal(c.infer(name, [i]).as_numpy("y"), x + 1)
    c.unload_model(name)
    assert index()[name, "3"] == "UNAVAILABLE"
    refused("not loaded", lambda: c.infer(name, [i]))
    assert not c.is_model_ready(name)
    c.load_model(name)
    assert np.array_equal(c.infer(name, [i], model_version="3").as_numpy("y"), x + 1)
    refused("", lambda: c.load_model("bad", config="{}", files={"file:1/model.onnx": b"garbage"}))
    assert ("bad", "1") not in index()
    refused("failed to unload", lambda: c.unload_model("nothing"))
    # compiled by the load
    c.load_model("fixed", config="{}", files={
                     "file:1/model.onnx": MODEL.replace(b"N,4", b"2,4") + b"# " + label.encode()})
    status, r = d.json("POST", "/v1/run",
                       {"model": "fixed",
                        "inputs": [{"dtype": "f32", "shape": [2, 4], "data": [0] * 8}],
                        "options": {"noCompile": True}})
    assert status == 200 and r.get("cacheHit"), r
    refused("2 nodes are not supported", lambda: c.load_model(
                "fails", config="{}",
                files={"file:1/model.onnx": MODEL.replace(b"N,4", b"2,4") + b"fail compile\n"}))
    assert ("fails", "1") not in index()

def statistics(d, c, lib):
    x, i = x_of(lib, 2)
    def stats():
        r = c.get_inference_statistics("plus", **({} if lib is th else {"as_json": True}))
        return r["model_stats"][0]
    before = stats()
    count = lambda s: int(s.get("inference_count", 0))
    c.infer("plus", [i])
    after = stats()
    assert (count(after) == count(before) + 1
            and int(after["inference_stats"]["success"]["ns"]) > 0), after
    assert (int(after["inference_stats"]["compute_infer"]["count"]) >= 1
            and int(after["last_inference"]) > 1.6e12)
    all_models = c.get_inference_statistics(**({} if lib is th
                                               else {"as_json": True}))["model_stats"]
    assert "plus" in [m["name"] for m in all_models]
    refused("unknown model", lambda: c.get_inference_statistics("nothing"))

def restart(d, c, lib):
    """Names survive a restart; a daemon without --allow-model-load refuses files."""
    d.p.send_signal(signal.SIGTERM)
    assert d.p.wait(20) == 0
    again = Daemon(d.hlod, d.worker, data=d.dir)
    try:
        c = client(again, lib)
        x, i = x_of(lib, 2)
        assert np.array_equal(c.infer("plus", [i]).as_numpy("y"), x + 1)
        refused("--allow-model-load",
                lambda: c.load_model("new", config="{}", files={"file:1/model.onnx": MODEL}))
        assert again.json("DELETE", "/v1/models/plus")[0] == 200
        refused("unknown model", lambda: c.infer("plus", [i]))
        assert again.json("DELETE", "/v1/models/plus")[0] == 404
        c.close()
    finally:
        again.p.send_signal(signal.SIGTERM)
        assert again.p.wait(20) == 0
restart.ends = True

def client(d, lib):
    return (th.InferenceServerClient("%s:%d" % d.addr, concurrency=8) if lib is th
            else tg.InferenceServerClient(d.grpc))

SCENARIOS = [health, metadata, infer, coded_replies, extensions, shared_memory, asynchronous,
             stream, drain, errors, repository, statistics, restart]
ONLY = {stream: tg, drain: tg, coded_replies: th}

def main():
    o, results = options("build", "worker"), Results()
    for lib, label in (th, "http"), (tg, "grpc"):
        for s in [s for s in chosen(o, SCENARIOS) if ONLY.get(s, lib) is lib]:
            d = Daemon(o.build + "/hlod", o.worker,
                       args=("--allow-model-load", "--allow-shared-memory",
                                                "--drain-ms", str(FOREVER_MS)))
            setup(d)
            c = client(d, lib)
            results.scenario(f"triton {label} {s.__name__}", d, s, c, lib)
            c.close()
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
