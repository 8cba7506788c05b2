# SPDX-License-Identifier: Apache-2.0
"""hlod.connect and what it returns. The server's API is docs/api.md; each method here is one or two
of its calls.

Models are given as a path, bytes, an object that becomes bytes (onnx.ModelProto; what
jax.jit(f).lower(x) returns), a name on the server, or a digest. A model's bytes go to the
server once: what it knows by its digest is not sent again. A Client may be used by any number of
threads."""
from __future__ import annotations

import difflib
import io
import os
import re
import tarfile
from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _where, dtypes
from . import training as _training
from ._http import HttpTransport
from ._model import Source, jax_leaves, jax_result, source
from ._schema import METHODS
from .errors import (FailedPrecondition, HlodError, InvalidArgument, NotFound, PermissionDenied,
                     Unavailable, make)
from .results import Event, Message, Result, type_counts, TensorSpec

Model = Any  # str, os.PathLike, bytes, onnx.ModelProto, jax.stages.Lowered
Shapes = Mapping[str, Sequence[int]]
Inputs = Union[Mapping[str, Any], Sequence[Any], Any]
OnEvent = Callable[[Event], Any]
_DIGEST = re.compile(r"[0-9a-f]{64}")
_INLINE, _PIECE = 1 << 20, 8 << 20


class Buffer:
    """A tensor (or, with `elements`, a tuple of them) that stays in a device's memory. It is an
    input like an array; `donate()` as an input gives its memory to the run. It ends when it is
    freed or donated, when it was not used for its lease, or with the worker that holds it. As a
    context manager it is freed at the end."""

    def __init__(self, client: "Client", m: Message) -> None:
        self._client = client
        self.handle: str = m.get("handle", "")
        self.name: str = m.get("name", "")
        self.dtype: str = m.get("dtype", "")
        self.shape: Tuple[int, ...] = tuple(m.get("shape", ()))
        self.bytes: int = m.get("bytes", 0)
        self.device: str = m.get("device", "")
        self.elements = [Buffer(client, e) for e in m.get("elements", ())]
        self.message = m

    def get(self) -> Any:
        """Its contents: an array; of a tuple a list of arrays."""
        reply = self._client.call("GetBuffer", {"handle": self.handle})
        arrays = [dtypes.unpack(t.get("dtype", ""), t.get("shape", []), t.get("raw", b""))
                  for t in reply.get("outputs", ())]
        return arrays if self.elements or len(arrays) != 1 else arrays[0]

    def free(self) -> None:
        self._client.call("FreeBuffer", {"handle": self.handle})

    def renew(self, lease: float) -> None:
        """A lease of so many seconds from now; -1: until it is freed."""
        self._client.call("RenewBuffer", {"handle": self.handle,
                                          "lease_ms": -1 if lease < 0 else int(1000 * lease)})

    def donate(self) -> "Donated":
        """As an input: the run may reuse its memory, after which the buffer is no more."""
        return Donated(self)

    def __enter__(self) -> "Buffer":
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.free()
        except (NotFound, FailedPrecondition):
            pass  # donated, or its lease is over

    def __repr__(self) -> str:
        return f"<hlod.Buffer {self.handle} {self.dtype}{list(self.shape)} on {self.device}>"


class Donated:
    """Buffer.donate()."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer


class Executable:
    """A compiled model: one program for one set of shapes.

    digest, model                its own digest, and that of the model's bytes
    inputs, outputs              lists of TensorSpec
    cache_hit                    nothing was compiled for this call
    compile_ms                   when it was compiled
    instructions, fusions        of the optimised program
    peak_bytes, weights_bytes    of a run; of the weights
    computed_in                  convolutions and dots by the type of what they read: {"bf16": 53}
    precision_note               what became of a precision that the device cannot give, or ""
    message                      CompileReply with everything else
    """

    def __init__(self, client: "Client", reply: Message) -> None:
        self._client = client
        info: Message = reply.get("executable", {})
        self.digest: str = reply.get("digest", "")
        self.model: str = reply.get("source_digest", "")
        signature = info.get("signature", {})
        self.inputs = [TensorSpec.of(t) for t in signature.get("inputs", ())]
        self.outputs = [TensorSpec.of(t) for t in signature.get("outputs", ())]
        self.cache_hit: bool = reply.get("cache_hit", False)
        self.compile_ms: float = info.get("compile_ms", 0.0)
        after = info.get("optimized") or info.get("after", {})
        self.instructions: int = after.get("entry", 0)
        self.fusions: int = after.get("fusions", 0)
        self.peak_bytes: int = info.get("peak_bytes", 0)
        self.weights_bytes: int = info.get("weights_bytes", 0)
        self.over_budget: List[str] = reply.get("over_budget", [])
        self.computed_in = type_counts(info)
        self.precision_note: str = info.get("precision_note", "")
        self.message = reply
        self._lowered: Any = None  # what it was compiled from, in case that is JAX's

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Of what jax.jit(f).lower(...) returned: takes f's arguments and returns what f does, any
        tree of arrays, with NumPy's in it. InvalidArgument for arguments of another form."""
        values = jax_leaves(self._lowered, args, kwargs)
        return jax_result(self._lowered, list(self.run(values).outputs.values()))

    def run(self, inputs: Inputs = (), **options: Any) -> Result:
        """Client.run of this executable, with the weights of the model it was compiled from
        here."""
        try:
            return self._client._run(self.digest, inputs, self.inputs, weights=self.model,
                                     **options)
        except InvalidArgument as e:
            if e.reason != "SHAPE_MISMATCH":
                raise
            hint = ("an executable has one shape; run() of the model, rather than of the "
                    "executable, compiles for each that the model has")
            raise InvalidArgument(e.message, reason=e.reason, details=e.details,
                                  hint=hint) from None

    def stream(self, inputs: Inputs = (), **options: Any) -> Iterator[Event]:
        return self._client._run_events(
            self._client._run_request(self.digest, inputs, self.inputs, weights=self.model,
                                      **options), options.get("timeout"))

    def inspect(self, stage: str = "hlo-after") -> str:
        return self._client.inspect(self.digest, stage)

    def tune(self, seconds: float = 0) -> Message:
        """Client.tune of this executable."""
        return self._client.tune(self.digest, seconds)

    def __repr__(self) -> str:
        return (f"<hlod.Executable {self.digest[:12]} ({', '.join(map(str, self.inputs))}) -> "
                f"({', '.join(map(str, self.outputs))})>")


class Models:
    """Names of models on the server: for /v2, for `hlo`, for people."""

    def __init__(self, client: "Client") -> None:
        self._client = client

    def set(self, name: str, model: Model, *, version: int = 0, batch: int = 0,
            delay_us: int = 0) -> Message:
        """Names a model. version 0: one after the newest. batch: runs that wait at the same time
        may be joined to so many rows."""
        q: Message = {"name": name, "model": self._client.upload(model), "version": version}
        if batch:
            q["batching"] = {"max": batch, "delay_us": delay_us}
        return self._client.call("SetModel", q)

    def list(self) -> List[Message]:
        """NamedModel messages: name, version, model (digest), loaded, ..."""
        return list(self._client.call("ListModels", {}).get("models", []))

    def remove(self, name: str, version: int = 0) -> int:
        """version 0: all of them. How many there were."""
        return int(self._client.call("RemoveModel",
                                     {"name": name, "version": version}).get("removed", 0))

    def __call__(self) -> List[Message]:
        """As list()."""
        return self.list()

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(m.get("name", "") for m in self.list()))


class Client:
    """A server. transport: "http" or "grpc". Ends with close(), or as a context manager."""

    def __init__(self, transport: Any, timeout: Optional[float] = None) -> None:
        self._t = transport
        self.transport: str = transport.name
        self.timeout = timeout
        self.models = Models(self)
        self._signatures: Dict[str, Optional[List[TensorSpec]]] = {}
        self._digests: Dict[str, Any] = {}  # of files, by their path

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._t.close()

    def __repr__(self) -> str:
        return f"<hlod.Client {self._t.address}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Client is a connection: call hlod.connect() in each process")

    def call(self, method: str, request: Optional[Message] = None,
             timeout: Optional[float] = None) -> Message:
        """Any unary method of hlod.v1.Hlod by its name, with messages as dicts that have the field
        names of proto/hlod.proto."""
        if method not in METHODS:
            like = difflib.get_close_matches(method, METHODS, 1)
            raise InvalidArgument(f"no method is called {method!r}"
                                  + (f": did you mean {like[0]!r}?" if like else ""))
        reply: Message = self._t.call(method, request or {}, self._timeout(timeout))
        return reply

    # ---- models

    def upload(self, model: Model) -> str:
        """The model's digest; its bytes are sent if the server does not have them. A name or digest
        is returned as it is."""
        m = source(model)
        if m.ref:
            return m.ref
        digest = m.digest(self._digests)
        try:
            self._t.metadata(digest, "")
        except (NotFound, PermissionDenied):  # or nobody may tell us
            self._send(m)
        return digest

    def compile(self, model: Model, shapes: Optional[Shapes] = None, *,
                values: Optional[Mapping[str, Any]] = None, device: str = "", target: str = "",
                precision: str = "", replicas: int = 0, budget: Optional[Mapping[str, int]] = None,
                timeout: Optional[float] = None, on_event: Optional[OnEvent] = None) -> Executable:
        """Compiles a model, or finds it compiled.

        shapes    of inputs with open dimensions: {"image": (1, 3, 224, 224)}
        values    elements of inputs that decide shapes
        device    kind or name of a device that is there
        target    instead of it, "tpu:v5e:2x2" and others that need not be there
        precision "strict": nothing is reassociated; "fast": convolutions and dots of f32 read bf16
        budget    instructions, bytes, hbm: the most that it may need; what is beyond is in
                  Executable.over_budget
        timeout   seconds
        on_event  called with each Event
        """
        for e in self.compile_events(model, shapes, values=values, device=device, target=target,
                                     precision=precision, replicas=replicas, budget=budget,
                                     timeout=timeout):
            if on_event:
                on_event(e)
            if e.kind == "compile_result":
                executable: Executable = e.value
                executable._lowered = model
        return executable

    def compile_events(self, model: Model, shapes: Optional[Shapes] = None, *,
                       timeout: Optional[float] = None, **options: Any) -> Iterator[Event]:
        """compile() as it happens; the event compile_result has the Executable in `value`. Leaving
        the loop early cancels it."""
        m = source(model)
        q = _compile_request(shapes, self._timeout(timeout), **options)
        if m.ref:
            return self._events("CompileStream", {**q, "model": m.ref}, timeout)
        if m.size <= _INLINE:
            return self._events("CompileStream", {**q, "source": b"".join(m.parts())}, timeout)
        return self._with_model(
            m, lambda digest: self._events("CompileStream", {**q, "model": digest}, timeout))

    def train(self, model: Model, data: Mapping[str, Any], loss: str,
              **how: Any) -> _training.Training:
        """Starts a training, which the server goes on with alone.

        data        all rows of each input, and of `label`, what the loss compares with
        loss        "softmax-cross-entropy", "mse", ... (docs/training.md has the words)
        optimizer   "adam:rate=1e-3"; schedule "cosine:steps=1000:warmup=50"
        batch       rows a step; epochs, or steps; seed; shuffle=False keeps the rows' order
        settings    {"clip": 1, "ema": 0.999, "trainable": "head.*", "nan": "skip", ...}
        validation  rows held back, looked at after each epoch; patience: ends after so many
                    epochs without a better one, with the best weights
        window      rows that lie on the device at a time, where it has no room for all
        whole       inputs that are the same for all rows
        checkpoint_steps, checkpoint_s   how often the state is kept; resume: a checkpoint's digest
        device, precision, priority, name
        """
        how.setdefault("key", os.urandom(16).hex())  # sent twice, it is one training
        q = _training.request(self, self.upload(model), data, loss, **how)
        return _training.Training(self, f"{self.call('Train', q)['suite']}.1")

    def training(self, job: str) -> _training.Training:
        """A training by its job: "12.1"."""
        return _training.Training(self, job)

    def _send(self, m: Source) -> str:
        """Sends a model in pieces. Its digest."""
        up = self.call("StartUpload", {"size": m.size})
        name = up["upload"]
        m.send(min(up.get("piece_bytes") or _PIECE, _PIECE),
               lambda at, part: int(self._t.call("AppendUpload",
                                                 {"upload": name, "offset": at, "data": part},
                                                 self.timeout, again=False).get("offset", 0)))
        return str(self.call("FinishUpload", {"upload": name}).get("digest", ""))

    def _with_model(self, m: Source, events: Callable[[str], Iterator[Event]]) -> Iterator[Event]:
        """The events of a call by a model's digest; where the server does not know it, it gets
        it."""
        digest = m.digest(self._digests)
        try:
            yield from events(digest)
        except NotFound as e:
            if e.reason not in ("MODEL_NOT_FOUND", "BLOB_NOT_FOUND", ""):
                raise
            self._send(m)
            yield from events(digest)

    # ---- runs

    def run(self, model: Model, inputs: Inputs = (), *, outputs: Sequence[str] = (),
            keep: Union[Sequence[str], bool] = (), lease: float = 0, profile: bool = False,
            repeat: int = 0, device: str = "", precision: str = "", no_compile: bool = False,
            priority: int = 0, timeout: Optional[float] = None,
            on_event: Optional[OnEvent] = None) -> Result:
        """Runs a model or an executable once; compiles it for the inputs' shapes first if that was
        not done yet.

        inputs {name: array}; a list in the model's order; one array. Arrays as NumPy makes them of
        anything; Python's numbers take the model's type; Buffer stays where it is outputs only
        these are computed and returned
        keep outputs (True: all) that stay on the device: Buffer instead of array; lease: for so
        many seconds unused, -1 without end profile Result.profile has each step's time
        repeat      runs, for measuring: Result.run_ms
        no_compile  FailedPrecondition rather than a compile
        timeout     seconds
        on_event    called with each Event
        """
        options = dict(outputs=outputs, keep=keep, lease=lease, profile=profile, repeat=repeat,
                       device=device, precision=precision, no_compile=no_compile, priority=priority)
        return self._run(model, inputs, None, timeout=timeout, on_event=on_event, **options)

    def run_events(self, model: Model, inputs: Inputs = (), *, timeout: Optional[float] = None,
                   **options: Any) -> Iterator[Event]:
        """run() as it happens; the event result has the Result in `value`. Leaving the loop early
        cancels it. Options are run()'s."""
        digest = self.upload(model)
        return self._run_events(self._run_request(digest, inputs, None, timeout=timeout, **options),
                                timeout)

    def _run(self, model: Model, inputs: Inputs, specs: Optional[List[TensorSpec]], *,
             timeout: Optional[float] = None, on_event: Optional[OnEvent] = None,
             **options: Any) -> Result:
        m = source(model)
        digest = m.ref or m.digest(self._digests)

        def once() -> Result:
            q = self._run_request(digest, inputs, specs, timeout=timeout, **options)
            if on_event:
                found: List[Result] = []
                for e in self._run_events(q, timeout):
                    on_event(e)
                    if e.kind == "result":
                        found.append(e.value)
                return found[0]
            again = not any(t.get("donate") for t in q["inputs"])
            return self._result(self._t.call("RunUnary", q, self._timeout(timeout), again=again))

        try:
            return once()
        except NotFound as e:
            if m.ref or e.reason != "MODEL_NOT_FOUND":
                raise
            self._send(m)
            self._signatures.pop(digest, None)
            return once()

    def _run_request(self, model: str, inputs: Inputs, specs: Optional[List[TensorSpec]], *,
                     weights: str = "", outputs: Sequence[str] = (),
                     keep: Union[Sequence[str], bool] = (), lease: float = 0, profile: bool = False,
                     repeat: int = 0, device: str = "", precision: str = "",
                     no_compile: bool = False, priority: int = 0, timeout: Optional[float] = None,
                     on_event: Any = None) -> Message:
        options: Message = {"profile": profile, "no_compile": no_compile, "device": device,
                            "repeat": repeat, "priority": priority,
                            "timeout_ms": _ms(self._timeout(timeout))}
        if precision:
            options["compile"] = {"precision": precision}
        q: Message = {"model": model, "inputs": self._tensors(inputs, model, specs),
                      "options": {k: v for k, v in options.items() if v}}
        kept = ["*"] if keep is True else _names(keep or ())
        rest = {"weights": weights, "outputs": _names(outputs), "keep": kept,
                "lease_ms": _ms(lease) if lease >= 0 else -1}
        return {**q, **{k: v for k, v in rest.items() if v}}

    def run_plan(self, steps: Sequence[Message], inputs: Optional[Mapping[str, Any]] = None,
                 outputs: Sequence[Message] = (), *, profile: bool = False, repeat: int = 0,
                 device: str = "", lease: float = 0, timeout: Optional[float] = None) -> Result:
        """Several executables in one request; what is between them stays on the device. steps and
        outputs as in docs/buffers.md, "Plans"; Result.steps tells of each."""
        options = {"profile": profile, "repeat": repeat, "device": device,
                   "timeout_ms": _ms(self._timeout(timeout))}
        q: Message = {"steps": list(steps), "outputs": list(outputs),
                      "inputs": [self._tensor(n, v, None) for n, v in (inputs or {}).items()],
                      "options": {k: v for k, v in options.items() if v}}
        if lease:
            q["lease_ms"] = _ms(lease) if lease > 0 else -1
        return self._result(self._t.call("RunPlanUnary", q, self._timeout(timeout), again=False))

    # ---- tensors

    def _signature(self, model: str) -> Optional[List[TensorSpec]]:
        """Inputs of a model or executable; None if they cannot be had."""
        if model not in self._signatures:
            name, _, version = model.partition(":")
            try:
                m = self._t.metadata(name, version)
                got = [TensorSpec(t.get("name", ""), dtypes.from_oip(t.get("datatype", "")),
                                  tuple(int(d) for d in t.get("shape", ())))
                       for t in m.get("inputs", ())]
                if not _DIGEST.fullmatch(name):
                    return got  # a name may mean another model tomorrow
                self._signatures[model] = got
            except NotFound:
                if not _DIGEST.fullmatch(model):
                    return None
                try:
                    info = self.call("GetExecutable", {"digest": model})
                    self._signatures[model] = [TensorSpec.of(t)
                                               for t in info.get("signature", {}).get("inputs", ())]
                except NotFound:
                    return None
        return self._signatures[model]

    def _sequences(self, model: str, specs: List[TensorSpec]) -> List[TensorSpec]:
        """Which of the inputs without a shape are sequences: the Open Inference Protocol does not
        say."""
        try:
            inputs = self.call("ShowModel", {"model": model}).get("signature", {}).get("inputs", ())
        except NotFound:  # an executable: its inputs are single tensors
            return specs
        those = {t.get("name") for t in inputs if t.get("sequence")}
        specs = [replace(s, sequence=s.name in those) for s in specs]
        if _DIGEST.fullmatch(model):
            self._signatures[model] = specs
        return specs

    def _tensors(self, inputs: Inputs, model: str,
                 specs: Optional[List[TensorSpec]]) -> List[Message]:
        named: Optional[Mapping[str, Any]] = inputs if isinstance(inputs, Mapping) else None
        values = (list(named.values()) if named is not None else list(inputs)
                  if isinstance(inputs, (list, tuple)) else [inputs])
        if specs is None and values and (named is None or not all(_typed(v) for v in values)):
            specs = self._signature(model)
            known_by_model = named is None or any(isinstance(v, (Mapping, list, tuple))
                                                  for v in values)
            if specs is None and known_by_model:  # sent now, if it is a file
                raise NotFound(f"no model {model!r} on the server", reason="MODEL_NOT_FOUND",
                               hint="" if _DIGEST.fullmatch(model)
                               else "h.models has the names there are; a file is told by its path")
        given = named if named is not None else dict(zip((s.name for s in specs or ()), values))
        if specs and any(isinstance(given.get(s.name), (list, tuple)) and not s.shape
                         and not s.sequence for s in specs):  # one array, or a sequence's
            specs = self._sequences(model, specs)
        by_name = {s.name: s for s in specs or ()}
        if named is not None:
            return [self._tensor(n, v, by_name.get(n, by_name.get(name)))
                    for name, value in named.items() for n, v in _spread(name, value, by_name)]
        if not values:
            return []
        if specs and len(specs) == 1 and isinstance(inputs, list) and not any(
            _typed(v) for v in values) and _depth(inputs) == len(specs[0].shape or ()):
            values = [inputs]  # the only input, written as lists
        if specs is None or len(values) > len(specs):
            raise InvalidArgument(f"{len(values)} inputs, the model has {len(specs or ())}: "
                                  f"{', '.join(map(str, specs or ()))}", reason="UNKNOWN_INPUT")
        return [self._tensor(n, v, by_name.get(n, s))
                for s, value in zip(specs, values) for n, v in _spread(s.name, value, by_name)]

    @staticmethod
    def _tensor(name: str, v: Any, spec: Optional[TensorSpec]) -> Message:
        if isinstance(v, Donated):
            return {"name": name, "handle": v.buffer.handle, "donate": True}
        if isinstance(v, Buffer):
            return {"name": name, "handle": v.handle}
        try:
            a = dtypes.array(v, "" if _typed(v) or not spec else spec.dtype)
            dtype, raw = dtypes.pack(a)
        except InvalidArgument as e:
            raise InvalidArgument(f"input '{name}': {e.message}", hint=e.hint) from None
        return {"name": name, "dtype": dtype, "shape": list(a.shape), "raw": raw}

    def _result(self, reply: Message) -> Result:
        outputs: Dict[str, Any] = {}
        for t in reply.get("outputs", ()):
            if t.get("handle"):
                outputs[t.get("name", "")] = Buffer(self, {**t, "device": reply.get("device", "")})
            else:
                outputs[t.get("name", "")] = dtypes.unpack(t.get("dtype", ""), t.get("shape", []),
                                                           t.pop("raw", b""))
        return Result(reply, outputs)

    # ---- buffers

    def put(self, *arrays: Any, device: str = "", lease: float = 0, **named: Any) -> Any:
        """Puts arrays into a device's memory: a Buffer, or a list of them if there are several.
        lease: seconds unused after which it is freed; 0: the server's; -1: none."""
        tensors = ([self._tensor(f"x{k}", a, None) for k, a in enumerate(arrays)]
                   + [self._tensor(n, a, None) for n, a in named.items()])
        reply = self._t.call("PutBuffer", {"device": device, "inputs": tensors,
                                           "lease_ms": _ms(lease) if lease >= 0 else -1},
                             self.timeout, again=False)
        buffers = [Buffer(self, b) for b in reply.get("buffers", ())]
        return buffers[0] if len(buffers) == 1 else buffers

    def buffers(self) -> List[Buffer]:
        return [Buffer(self, b) for b in self.call("ListBuffers").get("buffers", ())]

    # ---- looking

    def inspect(self, digest: str, stage: str = "hlo-after") -> str:
        """The text of a stage of an executable: hlo-before, hlo-after, optimized, prepare, kir,
        llvm, opencl, glsl, plan, explain, pass/NAME."""
        return str(self.call("Inspect", {"digest": digest, "stage": stage}).get("text", ""))

    def tune(self, digest: str, seconds: float = 0) -> Message:
        """Has the server measure who runs each product and convolution of an executable fastest,
        for so long (0: 10 s), and keep that: the Tuning message. FailedPrecondition where its
        device has no choice."""
        q = {"digest": digest, "budget_ms": _ms(seconds)}
        return dict(self.call("TuneExecutable", q).get("tuning", {}))

    def export_web(self, model: Model, to: Union[str, "os.PathLike[str]"],
                   shapes: Optional[Shapes] = None, *, single_file: bool = False,
                   backend: str = "", weights: str = "", name: str = "",
                   labels: Sequence[str] = (), image: Optional[Mapping[str, Any]] = None,
                   timeout: Optional[float] = None) -> List[str]:
        """A model as a package for browsers (docs/web.md), compiled by the server and written into
        the folder `to`: what `hlo export MODEL --web DIR` writes. The files' paths below it.

        shapes       of inputs with open dimensions, as for compile()
        single_file  one index.html that holds everything
        backend      "auto", "webgpu", "webgl", "wasm"; weights: "f32", "f16"
        labels       names of classes; image: an input takes pictures: {"crop": 0.875,
                     "mean": [127], "std": [128]} and the rest of WebImage
        """
        bound = _compile_request(shapes, self._timeout(timeout))
        q: Message = {"model": self.upload(model), "single_file": single_file, "backend": backend,
                      "weights": weights, "name": name, "labels": "\n".join(labels),
                      "shapes": bound["shapes"], "timeout_ms": bound["timeout_ms"]}
        if image is not None:
            q["image"] = dict(image)
        data = self._t.package({k: v for k, v in q.items() if v or k == "image"},
                               self._timeout(timeout))
        return _write_package(data, os.fspath(to), single_file)

    def executables(self, limit: int = 0) -> List[Message]:
        """ExecutableInfo messages, most recently used first."""
        return list(self.call("ListExecutables", {"limit": limit}).get("executables", []))

    def devices(self) -> List[Message]:
        return list(self.call("ListDevices").get("devices", []))

    def targets(self) -> List[Message]:
        """What can be compiled for here, what can be executed here, and why not."""
        return list(self.call("ListTargets").get("targets", []))

    def version(self) -> Message:
        return self.call("Version")

    def ready(self) -> bool:
        """Whether a compile worker and a device worker are up."""
        return bool(self.call("Health").get("ready", False))

    # ---- events

    def _timeout(self, timeout: Optional[float]) -> Optional[float]:
        seconds = self.timeout if timeout is None else timeout
        if seconds is not None and not 0 <= seconds < 1e9:
            raise InvalidArgument(f"timeout {seconds}: expected seconds")
        return seconds

    def _run_events(self, q: Message, timeout: Optional[float]) -> Iterator[Event]:
        return self._events("Run", q, timeout)

    def _events(self, method: str, q: Message, timeout: Optional[float]) -> Iterator[Event]:
        profile: Optional[Message] = None
        over = False
        for m in self._t.stream(method, q, self._timeout(timeout)):
            kind = next((k for k in m if k not in ("t_ms", "step")), "")
            data: Message = m.get(kind, {})
            if kind == "error":
                raise make(data.get("code", "UNKNOWN"), data.get("message", ""),
                           reason=data.get("reason", ""), details=data.get("details", ()),
                           retry_after_ms=data.get("retry_after_ms", 0))
            if kind == "profile":  # belongs to the result that follows
                profile = data
                continue
            value: Any = None
            if kind == "result":
                value = self._result({**data, "profile": data.get("profile") or profile})
            elif kind == "compile_result":
                value = Executable(self, data)
            over = over or kind == "done"
            yield Event(kind, m.get("t_ms", 0.0), data, value, m.get("step", ""))
        if not over:
            raise Unavailable("the server ended the stream without a result")


def _write_package(data: Any, folder: str, single_file: bool) -> List[str]:
    """An archive's files, but for its own folder; only below `folder`."""
    files: List[Tuple[str, Any]] = [("index.html", data)]
    if not single_file:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            files = [(m.name.partition("/")[2], read.read()) for m in tar
                     for read in [tar.extractfile(m)] if read]
    for path, content in files:
        if not path or os.path.isabs(path) or ".." in path.split("/"):
            raise Unavailable(f"the server sent a package with a file called {path!r}")
        at = os.path.join(folder, *path.split("/"))
        os.makedirs(os.path.dirname(at), exist_ok=True)
        with open(at, "wb") as f:
            f.write(content)
    return [path for path, _ in files]


def _typed(v: Any) -> bool:
    """Has it a type of its own? Arrays, not numbers: np.float64(2.5) is what Python's 2.5 is."""
    return isinstance(v, (Buffer, Donated)) or hasattr(v, "dtype") and not isinstance(v, np.generic)


def _depth(v: Any) -> int:
    """How deep lists nest."""
    n = 0
    while isinstance(v, (list, tuple)):
        n, v = n + 1, v[0] if v else None
    return n + np.ndim(v)


def _spread(name: str, v: Any,
            specs: Mapping[str, TensorSpec]) -> Iterator[Tuple[str, Any]]:
    """An input as the tensors that travel: none for None, an optional that is absent; those of a
    sequence for a list of arrays; a map's keys and values for a dict."""
    spec = specs.get(name)
    if v is None:
        return
    if isinstance(v, Mapping) and f"{name}.keys" in specs:
        yield f"{name}.keys", list(v.keys())
        yield f"{name}.values", list(v.values())
    elif spec and spec.sequence and isinstance(v, (list, tuple)):
        yield from ((f"{name}[{k}]", x) for k, x in enumerate(v))
    else:
        yield name, v


def _names(v: Any) -> List[str]:
    return [v] if isinstance(v, str) else list(v)


def _ms(seconds: Optional[float]) -> int:
    return max(1, int(1000 * seconds)) if seconds else 0


def _compile_request(shapes: Optional[Shapes], timeout: Optional[float],
                     values: Optional[Mapping[str, Any]] = None, device: str = "", target: str = "",
                     precision: str = "", replicas: int = 0,
                     budget: Optional[Mapping[str, int]] = None) -> Message:
    bound: Dict[str, Message] = {}
    for n, dims in (shapes or {}).items():
        try:
            bound[n] = {"input": n, "dims": [int(d) for d in dims]}
        except (TypeError, ValueError):
            raise InvalidArgument(
                f"shapes[{n!r}]: expected a sequence of integers, found {dims!r}") from None
    for n, v in (values or {}).items():
        a = np.asarray(v)
        bits = (a.astype(np.float32).view(np.int32)
                if a.dtype.kind == "f" and a.dtype.itemsize != 8 or isinstance(v, float) else a)
        bound[n] = {"input": n, "dims": list(a.shape), "values": [int(x) for x in bits.reshape(-1)]}
    options = {k: v for k, v in (("precision", precision), ("replicas", replicas)) if v}
    q: Message = {"shapes": list(bound.values()), "device": device, "target": target,
                  "timeout_ms": _ms(timeout)}
    if options:
        q["options"] = options
    if budget:
        q["budget"] = dict(budget)
    return q


def connect(address: Optional[str] = None, *, token: Optional[str] = None, ca: Optional[str] = None,
            cert: Optional[str] = None, key: Optional[str] = None,
            timeout: Optional[float] = None) -> Client:
    """A Client of the server at an address: http://, https://, grpc:// or grpcs://HOST:PORT, or
    HOST:PORT, which is HTTP. HOST alone (or nothing, for this machine): gRPC on its port 8001 if
    grpcio is installed and a server answers there, else HTTP on port 8000. What is not given is
    taken from HLOD_ADDR, HLOD_TOKEN (or HLOD_TOKEN_FILE), HLOD_CACERT, HLOD_CERT and HLOD_KEY, as
    by `hlo`.

    token who is asking (docs/security.md); not sent unencrypted beyond this machine unless the
    address says http:// ca file of the CAs to trust, PEM; cert, key: of this client
    timeout  seconds for each call that has none of its own
    """
    w = _where.where(address, token, ca, cert, key)
    if w.scheme in ("grpc", "grpcs"):
        try:
            from ._grpc import GrpcTransport
        except ImportError:
            raise InvalidArgument(
                f"{w.text} needs the package grpcio",
                hint="pip install 'hlod[grpc]', or use the server's HTTP port") from None
        return Client(GrpcTransport(w), timeout)
    if not w.scheme and not w.port_given:
        found = _by_grpc(w, timeout)
        if found:
            return found
    return Client(HttpTransport(w), timeout)


def _by_grpc(w: _where.Where, timeout: Optional[float]) -> Optional[Client]:
    from dataclasses import replace
    try:
        from ._grpc import GrpcTransport
    except ImportError:
        return None
    c = Client(GrpcTransport(replace(w, port=_where.PORTS["grpc"])), timeout)
    try:
        c.call("Version", timeout=2.0)
        return c
    except HlodError:
        c.close()
        return None
