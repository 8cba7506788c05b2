# SPDX-License-Identifier: Apache-2.0
"""Texts and real workers through the Open Inference Protocol, by an unmodified tritonclient (HTTP
and gRPC) and plain HTTP: BYTES in every form, raw requests, generate, classification. What must
come out is computed here with Python's strings and NumPy.

    oip_text.py BUILD        prints PASS and FAIL lines
"""
import json
import os
import sys
import traceback

import numpy as np
import onnx
import onnx.parser
import tritonclient.grpc as tg
import tritonclient.http as th
from tritonclient.utils import InferenceServerException

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon  # noqa: E402

HEAD = '<ir_version: 9, opset_import: ["" : 20, "ai.onnx.ml" : 3]>\n'
MODELS = {"join": 'g (string[N] a, string[N] b) => (string[N] c) { c = StringConcat (a, b) }',
          "shout": 'g (string[1] text) => (string[1] said) { bang = Constant <value_strings = '
                   '["!"]> ()\n said = StringConcat (text, bang) }',
          "classes": 'g (float[N, 3] x) => (float[N, 3] p) { p = Softmax <axis = 1> (x) }',
          "half": 'g (float16[N, 2] x) => (float16[N, 2] y) { y = Add (x, x) }',}
A, B = ["the", "", "über", "日本" * 40], ["-x", "y", "\n", ""]


def parsed(name):
    return onnx.parser.parse_model(HEAD + MODELS[name]).SerializeToString()


def tensor(lib, name, a, datatype, **kw):
    t = lib.InferInput(name, list(a.shape), datatype)
    t.set_data_from_numpy(a, **kw)
    return t


def objects(v):
    return np.array([x.encode() for x in v], dtype=object)


def decoded(a):
    return [x.decode() if isinstance(x, bytes) else x for x in a.ravel()]


def texts(d, c, lib):
    want = [a + b for a, b in zip(A, B)]
    for how in ({"binary_data": True}, {"binary_data": False}) if lib is th else ({},):
        ins = [tensor(lib, "a", objects(A), "BYTES", **how),
               tensor(lib, "b", objects(B), "BYTES", **how)]
        outs = [lib.InferRequestedOutput("c", **how)]
        assert decoded(c.infer("join", ins, outputs=outs).as_numpy("c")) == want
    many = [str(k) * (k % 50) for k in range(4000)]  # beyond what travels inline
    ins = [tensor(lib, "a", objects(many), "BYTES"), tensor(lib, "b", objects(many), "BYTES")]
    assert decoded(c.infer("join", ins).as_numpy("c")) == [x + x for x in many]
    kw = {} if lib is th else {"as_json": True}
    config = c.get_model_config("join", **kw)
    config = config if lib is th else config["config"]
    assert config["input"][0]["data_type"] == "TYPE_STRING", config
    meta = c.get_model_metadata("join", **kw)
    assert (meta["inputs"][0]["datatype"] == "BYTES"
            and int(meta["inputs"][0]["shape"][0]) == -1), meta


def typed_texts(d, c, lib):
    """bytes_contents, which tritonclient does not send by itself."""
    q = tg.service_pb2.ModelInferRequest(model_name="join")
    for name, v in ("a", A), ("b", B):
        t = q.inputs.add(name=name, datatype="BYTES", shape=[len(v)])
        t.contents.bytes_contents.extend(x.encode() for x in v)
    r = tg.InferResult(c._client_stub.ModelInfer(q))
    assert decoded(r.as_numpy("c")) == [a + b for a, b in zip(A, B)]


def generate(d, c, lib):
    for text in "hello", "", "\"quoted\" \\ \n", "日本":
        status, r = d.json("POST", "/v2/models/shout/generate", {"text": text, "temperature": 0.1})
        assert status == 200 and r["said"] == text + "!", r
        status, _, body = d.call("POST", "/v2/models/shout/generate_stream",
                                 json.dumps({"text": text}))
        assert (status == 200 and body.startswith(b"data: ") and body.endswith(b"\n\n")
                and json.loads(body[6:])["said"] == text + "!"), body
    status, r = d.json("POST", "/v2/models/join/generate", {"a": A, "b": B, "id": "7"})
    assert status == 200 and r["c"] == [a + b for a, b in zip(A, B)] and r["id"] == "7", r
    status, r = d.json("POST", "/v2/models/shout/generate", {"text": 5})
    assert status == 400 and "text" in r["error"], r
    status, r = d.json("POST", "/v2/models/join/generate", {"a": A})
    assert status == 400, r


def raw(d, c, lib):
    whole = {"Inference-Header-Content-Length": "0"}
    for text in b"all of it", "日本".encode() * 30000:
        status, headers, body = d.call("POST", "/v2/models/shout/infer", text, whole)
        split = int(headers["inference-header-content-length"])
        assert (status == 200
                and body[split:] == (len(text) + 1).to_bytes(4, "little") + text + b"!"), body[:200]
    x = np.random.default_rng(1).standard_normal((700, 3)).astype(np.float32)
    status, headers, body = d.call("POST", "/v2/models/classes/infer", x.tobytes(), whole)
    got = np.frombuffer(body[int(headers["inference-header-content-length"]):],
                        np.float32).reshape(-1, 3)
    want = np.exp(x - x.max(1, keepdims=True))
    assert status == 200 and np.allclose(got, want / want.sum(1, keepdims=True), atol=1e-6)
    status, headers, body = d.call("POST", "/v2/models/join/infer", b"x", whole)
    assert status == 400 and b"one input" in body, body


def classification(d, c, lib):
    x = np.array([[0, 3, 1], [5, 0, 0], [0, 0, 9]], np.float32)
    r = c.infer("classes", [tensor(lib, "x", x, "FP32")],
                outputs=[lib.InferRequestedOutput("p", class_count=2)])
    got = [t.split(":") for t in decoded(r.as_numpy("p"))]
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    assert r.as_numpy("p").shape == (3, 2) and [int(i) for _, i in got] == [1, 2, 0, 1, 2, 0], got
    want = [p[0, 1], p[0, 2], p[1, 0], p[1, 1], p[2, 2], p[2, 0]]
    assert np.allclose([float(v) for v, _ in got], want, atol=1e-6), got
    labels = "cat\nüber dog\r\nfish\n".encode()
    config = json.dumps({"name": "pets",
                         "output": [{"name": "p", "data_type": "TYPE_FP32", "dims": [3],
                                     "label_filename": "names.txt"}],
                         "version_policy": {"latest": {"num_versions": 1}}})
    c.load_model("pets", config=config,
                 files={"file:1/model.onnx": parsed("classes"), "file:names.txt": labels})
    r = c.infer("pets", [tensor(lib, "x", x, "FP32")],
                outputs=[lib.InferRequestedOutput("p", class_count=1)])
    assert [t.split(":", 1)[1]
            for t in decoded(r.as_numpy("p"))] == ["1:über dog", "0:cat", "2:fish"], r.as_numpy("p")
    for bad, why in (
        ({"config": "{"}, "config"), ({"config": json.dumps({"name": "other"})}, "another model"),
        ({"config": "{}", "files": {"file:names.txt": labels}}, ""),
        ({"config": "{}", "files": {"file:1/a.onnx": b"x", "file:1/b.onnx": b"y"}}, "one file")):
        try:
            c.load_model("bad", **{"files": {"file:1/model.onnx": parsed("classes")}, **bad})
        except InferenceServerException as e:
            assert why in e.message(), e.message()
        else:
            raise AssertionError("not refused: %s" % bad)


def batched(d, c, lib):
    """dynamic_batching of a load's configuration is taken."""
    config = json.dumps({"max_batch_size": 8,
                         "dynamic_batching": {"max_queue_delay_microseconds": 500}})
    c.load_model("many", config=config, files={"file:1/model.onnx": parsed("classes")})
    kw = {} if lib is th else {"as_json": True}
    k = c.get_model_config("many", **kw)
    k = k if lib is th else k["config"]
    assert (k["max_batch_size"] == 8
            and int(k["dynamic_batching"]["max_queue_delay_microseconds"]) == 500), k
    x = np.eye(3, dtype=np.float32)
    assert np.allclose(c.infer("many", [tensor(lib, "x", x, "FP32")]).as_numpy("p"),
                       np.exp(x) / np.exp(x).sum(1, keepdims=True), atol=1e-6)


def halves(d, c, lib):
    x = np.array([[0.5, -2], [65504, 6e-8]], np.float16)
    with np.errstate(over="ignore"):
        want = x + x
    assert np.array_equal(c.infer("half", [tensor(lib, "x", x, "FP16")]).as_numpy("y"), want)


def main():
    build, bad = sys.argv[1], 0
    d = Daemon(build + "/hlod", build + "/hlod-worker", args=("--allow-model-load",))
    try:
        for lib, label in (th, "http"), (tg, "grpc"):
            c = (th.InferenceServerClient("%s:%d" % d.addr) if lib is th
                 else tg.InferenceServerClient(d.grpc))
            if lib is th:
                for name in MODELS:
                    c.load_model(name, config="{}", files={"file:1/model.onnx": parsed(name)})
            for case in ((texts, generate, raw, classification, batched, halves) if lib is th
                         else (texts, typed_texts, classification, batched, halves)):
                try:
                    case(d, c, lib)
                    print("PASS", label, case.__name__, flush=True)
                except Exception:
                    bad += 1
                    print("FAIL", label, case.__name__, traceback.format_exc(), sep="\n",
                          flush=True)
            c.close()
        assert d.stop_keep() == 0
        again = Daemon(build + "/hlod", build + "/hlod-worker", data=d.dir)
        x = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [0, 9, 0]}],
             "outputs": [{"name": "p", "parameters": {"classification": 1}}]}
        status, r = again.json("POST", "/v2/models/pets/infer", x)
        kept = (status == 200 and r["outputs"][0]["data"][0].endswith(":1:über dog")
                and again.stop_keep() == 0)
        print("PASS" if kept else "FAIL", "labels outlive the daemon", *([] if kept else [r]),
              flush=True)
        bad += not kept
    finally:
        if d.p.poll() is None:
            d.kill()
        d.clean()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
