# SPDX-License-Identifier: Apache-2.0
"""What a caller names as a model, as a reference or as bytes. An ONNX file whose weights lie in
files beside it (external data) becomes one with the weights inside: the server opens no files of
its callers. Files are mapped, not read; a file's digest is remembered for as long as its length and
time of change stay."""
from __future__ import annotations

import hashlib
import mmap
import os
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._wire import DecodeError, _read_varint, _varint
from .errors import InvalidArgument

_FILE_ENDINGS = (".onnx", ".hlo", ".pb", ".txt", ".mlir", ".mlirbc", ".jax")
# onnx.proto: message -> fields that may have tensors in them.
_ONNX: Dict[str, Dict[int, str]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Function": {7: "Node"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {},
}
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14
Files = List[Tuple[str, int, int]]


def _stat(path: str) -> Tuple[str, int, int]:
    st = os.stat(path)
    return os.path.abspath(path), st.st_mtime_ns, st.st_size


def _mapped(path: str) -> memoryview:
    with open(path, "rb") as f:
        return (memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
                if os.fstat(f.fileno()).st_size else memoryview(b""))


def _fields(data: memoryview) -> "Any":
    """(number, whole field, contents or number) of each field."""
    at = 0
    while at < len(data):
        start = at
        tag, at = _read_varint(data, at)
        wire = tag & 7
        if wire == 0:
            value, end = _read_varint(data, at)
        elif wire == 2:
            n, at = _read_varint(data, at)
            end = at + n
            value = data[at:end]  # type: ignore[assignment]
        elif wire in (1, 5):
            end, value = at + (8 if wire == 1 else 4), 0
        else:
            raise DecodeError(f"wire type {wire}")
        if end > len(data):
            raise DecodeError("cut short")
        yield tag >> 3, data[start:end], value
        at = end


class _Inliner:
    """Rewrites one model. `files`: what was opened for it."""

    def __init__(self, path: str) -> None:
        self.folder, self.maps, self.files = os.path.dirname(os.path.abspath(path)), {}, [
            _stat(path)]  # type: ignore[var-annotated]

    def _open(self, location: str) -> memoryview:
        if location not in self.maps:
            path = os.path.normpath(os.path.join(self.folder, location))
            if os.path.isabs(location) or not path.startswith(self.folder.rstrip(os.sep) + os.sep):
                raise InvalidArgument(
                    f"external data in {location!r}, which is not below the model's folder")
            self.maps[location] = _mapped(path)
            self.files.append(_stat(path))
        found: memoryview = self.maps[location]
        return found

    def _tensor(self, data: memoryview) -> Optional[List[Any]]:
        fields = list(_fields(data))
        if not any(number == _DATA_LOCATION and value == 1 for number, _, value in fields):
            return None
        entries = [{n: str(v, "utf-8") for n, _, v in _fields(value)} for number, _, value in fields
                   if number == _EXTERNAL_DATA]
        said = {e.get(1, ""): e.get(2, "") for e in entries}
        file, offset = self._open(said.get("location", "")), int(said.get("offset") or 0)
        length = int(said.get("length") or len(file) - offset)
        if offset < 0 or length < 0 or offset + length > len(file):
            raise InvalidArgument(f"external data: {said.get('location')!r} has {len(file)} bytes, "
                                  f"the model wants {length} from {offset}")
        kept = [whole for number, whole, _ in fields
                if number not in (_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION)]
        return [*kept, _varint(_RAW_DATA << 3 | 2) + _varint(length), file[offset:offset + length]]

    def parts(self, kind: str, data: memoryview) -> Optional[List[Any]]:
        """The message's pieces with all tensors inside; None where they are already."""
        if kind == "Tensor":
            return self._tensor(data)
        out: List[Any] = []
        changed = False
        for number, whole, value in _fields(data):
            inner = (self.parts(_ONNX[kind][number], value)
                     if number in _ONNX[kind] and isinstance(value, memoryview) else None)
            if inner is None:
                out.append(whole)
            else:
                changed = True
                out += [_varint(number << 3 | 2) + _varint(sum(len(p) for p in inner)), *inner]
        return out if changed else None


class Source:
    """A model: `ref` (a name or digest), or bytes, in pieces that may be large."""

    def __init__(self, ref: str = "", data: Any = None, path: str = "") -> None:
        self.ref, self.path, self.files = ref, path, []  # type: ignore[var-annotated]
        self._parts: Optional[
            List[Any]] = None if path else [memoryview(data if data is not None else b"").cast("B")]

    def parts(self) -> List[Any]:
        """OSError for a file that cannot be read, InvalidArgument for external data that cannot
        be."""
        if self._parts is None:
            data = _mapped(self.path)
            self._parts, self.files = [data], [_stat(self.path)]
            if (self.path.endswith(".onnx") and isinstance(data.obj, mmap.mmap)
                and data.obj.find(b"location") >= 0):
                inliner = _Inliner(self.path)
                try:
                    self._parts = inliner.parts("Model", data) or self._parts
                except (DecodeError, ValueError) as e:
                    if isinstance(e, InvalidArgument):
                        raise
                self.files = inliner.files
        if not any(len(p) for p in self._parts):
            raise InvalidArgument(f"{self.path or 'the model'} is empty")
        return self._parts

    @property
    def size(self) -> int:
        return sum(len(p) for p in self.parts())

    def digest(self, memo: Dict[str, Tuple[Files, str]]) -> str:
        if self.path and self.path in memo:
            files, known = memo[self.path]
            try:
                if files == [_stat(f) for f, _, _ in files]:
                    return known
            except OSError:
                pass
        h = hashlib.sha256()
        for p in self.parts():
            h.update(p)
        if self.path:
            memo[self.path] = (self.files, h.hexdigest())
        return h.hexdigest()

    def send(self, piece: int, append: Callable[[int, Any], int]) -> None:
        """append(offset, bytes) takes the next piece and says how many bytes are held."""
        at = 0
        for part in self.parts():
            start = at
            while at < start + len(part):
                at = append(at, part[at - start:at - start + piece])


def _hlo_of(lowered: Any) -> str:
    """With its metadata, which has the arguments' names as they were written; JAX before 0.4.36
    leaves them out."""
    try:
        return str(lowered.as_text("hlo", debug_info=True))
    except TypeError:
        return str(lowered.as_text("hlo"))


def jax_leaves(lowered: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> List[Any]:
    """A function's arguments as the list of arrays that its program takes. InvalidArgument."""
    if not (hasattr(lowered, "in_tree") and hasattr(lowered, "out_tree")):
        raise InvalidArgument("only what was compiled from jax.jit(f).lower(...) or "
                              "jax.export.export(...)(...) is called as a function",
                              hint="run() takes arrays by name or in the model's order")
    import jax

    leaves, tree = jax.tree_util.tree_flatten((args, kwargs))
    if tree != lowered.in_tree:
        raise InvalidArgument("the function was lowered for arguments of the form "
                              f"{lowered.in_tree}, these are {tree}",
                              hint="static arguments are fixed by lower(): leave them out")
    # JAX leaves out arguments that a function does not use, and has no other way to tell which
    inner = getattr(lowered, "_lowering", None)
    kept = (lowered.module_kept_var_idx if hasattr(lowered, "module_kept_var_idx")
            else getattr(inner, "compile_args", {}).get("kept_var_idx"))
    return leaves if kept is None else [leaves[k] for k in sorted(kept)]


def jax_result(lowered: Any, outputs: List[Any]) -> Any:
    import jax

    return jax.tree_util.tree_unflatten(lowered.out_tree, outputs)


def source(model: Any) -> Source:
    """InvalidArgument for what is no model."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Source(data=model)
    # the text of an HLO module; no path or name has lines
    if isinstance(model, str) and "\n" in model:
        return Source(data=model.encode())
    if hasattr(model, "SerializeToString"):  # onnx.ModelProto and other messages
        return Source(data=model.SerializeToString())
    if hasattr(model, "serialize") and hasattr(model, "mlir_module"):  # jax.export.Exported
        return Source(data=bytes(model.serialize()))
    if hasattr(model, "as_text") and hasattr(model, "compiler_ir"):  # jax.stages.Lowered
        return Source(data=_hlo_of(model).encode())
    if not isinstance(model, (str, os.PathLike)):
        raise InvalidArgument(f"{type(model).__name__} is no model: give a path, bytes, "
                              "onnx.ModelProto, what jax's lower() or export() returns, a name or "
                              "a digest")
    text = os.fspath(model)
    if (isinstance(model, str) and not os.path.exists(text)
        and not (os.sep in text or text.endswith(_FILE_ENDINGS))):
        return Source(ref=text)
    return Source(path=text)
