# SPDX-License-Identifier: Apache-2.0
"""Training as a job of the server (docs/training.md): Client.train starts it, Training watches it,
Trained is what came of it. It goes on without the client, and after a restart of the server."""
from __future__ import annotations

import hashlib
import os
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import dtypes
from ._model import source
from .errors import InvalidArgument, NotFound, Unavailable, make
from .results import Message

_INLINE, _PIECE, _PATIENCE = 1 << 20, 8 << 20, 300.0
Settings = Union[Mapping[str, Any], Sequence[str]]


class Progress:
    """A training as it is. losses, accuracies: of each step since the last Progress, up to `step`.
    validation_loss, validation_accuracy: of the rows held back after `validation_step` (0: not
    yet)."""

    def __init__(self, job: Message) -> None:
        t: Message = job.get("train", {})
        self.state: str = job.get("state", "")
        self.step: int = t.get("step", 0)
        self.steps: int = t.get("steps", 0)
        self.losses: List[float] = list(t.get("losses", ()))
        self.accuracies: List[float] = list(t.get("accuracies", ()))
        self.loss: float = t.get("loss", 0.0)
        self.accuracy: float = t.get("accuracy", 0.0)
        self.examples_per_s: float = t.get("examples_per_s", 0.0)
        self.checkpoint: str = t.get("checkpoint", "")
        self.validation_step: int = t.get("validation_step", 0)
        self.validation_loss: float = t.get("validation_loss", 0.0)
        self.validation_accuracy: float = t.get("validation_accuracy", 0.0)

    def __repr__(self) -> str:
        return f"<hlod.Progress {self.state}, step {self.step} of {self.steps}, loss {self.loss:g}>"


class Trained:
    """The end of a training. model: digest of the model with its new weights, which every method
    takes; checkpoint: of its last state; curve: (step, loss, accuracy), means over the steps
    between."""

    def __init__(self, client: Any, m: Message) -> None:
        t: Message = m.get("train", {})
        self._client = client
        self.model: str = m.get("model", "")
        self.executable: str = m.get("executable", "")
        self.device: str = m.get("device", "")
        self.progress = Progress({"state": m.get("state", ""), "train": t})
        self.checkpoint: str = t.get("checkpoint", "")
        self.curve: List[Tuple[int, float, float]] = [
            (p.get("step", 0), p.get("loss", 0.0), p.get("accuracy", 0.0))
            for p in t.get("curve", ())]

    def save(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the model to a file."""
        _fetch(self._client, self.model, path)

    def save_state(self, path: "Union[str, os.PathLike[str]]") -> None:
        """Writes the last state to a safetensors file: weights by their names, and what the
        optimizer keeps."""
        _fetch(self._client, self.checkpoint, path)

    def __repr__(self) -> str:
        return f"<hlod.Trained {self.model[:12]}, loss {self.progress.loss:g}>"


class Training:
    """A training of the server's, by its job."""

    def __init__(self, client: Any, job: str) -> None:
        self._client = client
        self.job = job

    def watch(self) -> Iterator[Progress]:
        """Each change until it has ended, about four a second. A lost connection is made anew."""
        reached = time.monotonic()
        while True:
            try:
                for e in self._client._events("WatchJob", {"job": self.job}, None):
                    reached = time.monotonic()
                    if e.kind == "job":
                        yield Progress(e.data)
                return
            except Unavailable:
                if time.monotonic() - reached > _PATIENCE:
                    raise
                time.sleep(1)

    def wait(self) -> Trained:
        """Until it has ended. Raises what ended it otherwise."""
        for _ in self.watch():
            pass
        m = self._client.call("JobResult", {"job": self.job})
        if m.get("state") != "passed":
            e: Message = m.get("error", {})
            raise make(e.get("code", "CANCELLED"),
                       e.get("message", f"job {self.job} was cancelled"),
                       reason=e.get("reason", ""))
        return Trained(self._client, m)

    def cancel(self) -> None:
        self._client.call("CancelJob", {"job": self.job})

    def __repr__(self) -> str:
        return f"<hlod.Training {self.job}>"


def _fetch(client: Any, digest: str, path: "Union[str, os.PathLike[str]]") -> None:
    part = f"{os.fspath(path)}.part"
    at, total = 0, 1
    with open(part, "wb") as f:
        while at < total:
            m = client.call("GetBlob", {"digest": digest, "offset": at, "length": _PIECE})
            data = m.get("data", b"")
            total = m.get("bytes", 0)
            if not data:
                break
            f.write(data)
            at += len(data)
    os.replace(part, path)


def _blob(client: Any, data: bytes) -> str:
    """The bytes' digest; they are sent if the server does not have them."""
    digest = hashlib.sha256(data).hexdigest()
    try:
        client.call("StatBlob", {"digest": digest})
    except NotFound:
        if len(data) > _INLINE:
            client._send(source(data))
        else:
            client.call("PutBlob", {"digest": digest, "data": data})
    return digest


def rows(client: Any, given: Mapping[str, Any]) -> List[Message]:
    """Arrays as tensors of a job; their bytes go to the server as blobs."""
    out: List[Message] = []
    for name, v in given.items():
        dtype, raw = dtypes.pack(dtypes.array(v, ""))
        if dtype == "string":
            raise InvalidArgument(f"rows '{name}': expected numbers")
        out.append({"name": name, "dtype": dtype, "shape": list(np.shape(v)),
                    "blob": _blob(client, bytes(raw))})
    return out


def request(client: Any, model: str, data: Mapping[str, Any], loss: str, *, optimizer: str = "",
            schedule: str = "", batch: int = 0, epochs: int = 0, steps: int = 0, seed: int = 0,
            shuffle: bool = True, settings: Settings = (),
            validation: Optional[Mapping[str, Any]] = None, patience: int = 0,
            checkpoint_steps: int = 0, checkpoint_s: int = 0, resume: str = "",
            window: int = 0, whole: Optional[Mapping[str, Any]] = None,
            precision: str = "", device: str = "", priority: int = 0, name: str = "",
            key: str = "") -> Message:
    words = ([f"{k}={v}" for k, v in settings.items()] if isinstance(settings, Mapping)
             else list(settings))
    train: Dict[str, Any] = {
        "loss": loss, "optimizer": optimizer, "schedule": schedule, "batch": batch,
        "epochs": epochs, "steps": steps, "seed": seed, "in_order": not shuffle,
        "settings": words, "validation": rows(client, validation or {}), "patience": patience,
        "checkpoint_steps": checkpoint_steps, "checkpoint_s": checkpoint_s, "resume": resume,
        "window": window, "whole": rows(client, whole or {})}
    return {"model": model, "data": rows(client, data), "train": train, "device": device,
            "options": {"precision": precision}, "priority": priority, "name": name,
            "idempotency_key": key}
