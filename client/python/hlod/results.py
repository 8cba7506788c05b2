# SPDX-License-Identifier: Apache-2.0
"""What calls return: Result with its Profile, TensorSpec, Event. All times are milliseconds, all
sizes bytes."""
from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Union

import numpy as np

from . import dtypes

Message = Dict[str, Any]


@dataclass(frozen=True)
class TensorSpec:
    """An input or output. shape: sizes; where a dimension is open its name, or -1 if it has none.
    None: not even the rank is known. sequence: any number of such tensors."""
    name: str
    dtype: str
    shape: Optional[Tuple[Union[int, str], ...]]
    sequence: bool = False

    @staticmethod
    def of(m: Message) -> "TensorSpec":
        dims = tuple(d.get("symbol") or -1 if d.get("size", 0) < 0 else d.get("size", 0)
                     for d in m.get("dims", ()))
        return TensorSpec(m.get("name", ""), m.get("dtype", ""),
                          None if m.get("unknown_rank") else dims, bool(m.get("sequence")))

    def __str__(self) -> str:
        return (f"{self.name}: "
                f"{self.dtype}[{'...' if self.shape is None else ', '.join(map(str, self.shape))}]")


@dataclass(frozen=True)
class ProfileRow:
    """One step of a run. name: instruction of the optimised program; op: the model's node; impl:
    what computed it (onednn:..., kernel, reference); of_peak: part of the machine's peak that was
    reached, 0 if that is not known; bound: "compute" or "memory"; depth: above 0 a step inside the
    loop or call that a row covers."""
    name: str = ""
    op: str = ""
    impl: str = ""
    start_ms: float = 0.0
    ms: float = 0.0
    flops: int = 0
    bytes: int = 0
    hlo: List[str] = field(default_factory=list)
    nodes: List[str] = field(default_factory=list)
    depth: int = 0
    of_peak: float = 0.0
    bound: str = ""


_ROW = {f.name for f in fields(ProfileRow)}


@dataclass(frozen=True)
class Profile:
    """The steps of a run, in order; print it for a table. pandas.DataFrame(profile.records()) has
    it all."""
    rows: List[ProfileRow]
    total_ms: float = 0.0
    peak_gflops: float = 0.0
    peak_gbytes: float = 0.0

    @staticmethod
    def of(m: Message) -> "Profile":
        rows = [ProfileRow(**{k: v for k, v in r.items() if k in _ROW}) for r in m.get("rows", ())]
        return Profile(rows, m.get("total_ms", 0.0), m.get("peak_gflops", 0.0),
                       m.get("peak_gbytes", 0.0))

    def records(self) -> List[Dict[str, Any]]:
        return [asdict(r) for r in self.rows]

    def table(self, top: int = 0) -> str:
        """The steps by time, the slowest first; top: only so many."""
        rows = sorted((r for r in self.rows if not r.depth), key=lambda r: -r.ms)
        total = sum(r.ms for r in rows) or 1.0
        lines = [f"{'ms':>9}  {'%':>5}  {'of peak':>7}  {'impl':<24} step"]
        for r in rows[:top or None]:
            peak = f"{100 * r.of_peak:.0f}%" if r.of_peak else ""
            lines.append(f"{r.ms:9.3f}  {100 * r.ms / total:5.1f}  {peak:>7}  {r.impl[:24]:<24} "
                         f"{r.name}{f' ({r.op})' if r.op and r.op != r.name else ''}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()


def type_counts(m: Message) -> Dict[str, int]:
    return {t.get("type", ""): t.get("count", 0) for t in m.get("computed_in", ())}


class Result(Mapping[str, Any]):
    """Outputs by name, in the model's order: NumPy arrays, or Buffer for those that were kept on
    the device. result[0] goes by place, result.output is the only one.

    executable  digest of what ran             device          where
    cache_hit   nothing was compiled           run_ms          time of each run (`repeat`)
    timings     name -> ms: queue, run, ...    profile         Profile, with profile=True
    peak_bytes  working memory of the run      prepared_bytes  weights on the device
    computed_in, precision_note                as Executable's, with a precision
    """

    def __init__(self, reply: Message, outputs: Dict[str, Any]) -> None:
        self.outputs = outputs
        self.executable: str = reply.get("executable", "")
        self.device: str = reply.get("device", "")
        self.cache_hit: bool = reply.get("cache_hit", False)
        self.run_ms: List[float] = reply.get("run_ms", [])
        self.timings: Dict[str, float] = {t.get("name", ""): t.get("ms", 0.0)
                                          for t in reply.get("timings", ())}
        self.profile: Optional[Profile] = (Profile.of(reply["profile"]) if reply.get("profile")
                                           else None)
        self.peak_bytes: int = reply.get("peak_bytes", 0)
        self.prepared_bytes: int = reply.get("prepared_bytes", 0)
        self.computed_in = type_counts(reply)
        self.precision_note: str = reply.get("precision_note", "")
        self.steps: List[Message] = reply.get("steps", [])
        self.message = reply

    def __getitem__(self, key: Union[str, int]) -> Any:
        return self.outputs[key] if isinstance(key, str) else list(self.outputs.values())[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)

    @property
    def output(self) -> Any:
        """The only output. ValueError when there are several."""
        if len(self.outputs) != 1:
            raise ValueError(f"there are {len(self.outputs)} outputs: {', '.join(self.outputs)}")
        return next(iter(self.outputs.values()))

    def __repr__(self) -> str:
        parts = [f"{k}: {dtypes.from_numpy(v.dtype)}{list(v.shape)}" if isinstance(v, np.ndarray)
                 else f"{k}: {v!r}"
                 for k, v in self.outputs.items()]
        return (f"<hlod.Result {', '.join(parts)}; {min(self.run_ms):.3f} ms on {self.device}>"
                if self.run_ms else f"<hlod.Result {', '.join(parts)}>")


@dataclass(frozen=True)
class Event:
    """A step of a call as it happens. kind: queued, ingest, compiling, pass, compiled, prepared,
    running, plan_step, result, compile_result, job, done. t_ms: since the server took up
    the request. data: the fields of the event's message in proto/hlod.proto. value: of the result
    what run() or compile() would return. step: in a plan, which."""
    kind: str
    t_ms: float
    data: Message
    value: Any = None
    step: str = ""

    def __str__(self) -> str:
        shown = " ".join(f"{k}={v:.6g}" if isinstance(v, float) else f"{k}={v}"
                         for k, v in self.data.items() if isinstance(v, (str, int, float)))
        return f"{self.t_ms:9.2f} ms  {self.kind} {shown}".rstrip()
