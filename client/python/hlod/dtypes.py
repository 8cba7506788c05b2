# SPDX-License-Identifier: Apache-2.0
"""Between hlod's element types and NumPy's. Types that NumPy has not (bf16, 8-bit and 4-bit floats,
s4, u4, ...) are those of the package ml_dtypes, if it is installed."""
from __future__ import annotations

import math
import struct
from typing import Any, Dict, List

import numpy as np

from .errors import DataLoss, InvalidArgument

_NUMPY = {"pred": np.bool_, "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
          "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "f16": np.float16,
          "f32": np.float32, "f64": np.float64, "c64": np.complex64, "c128": np.complex128}
_ML = {"bf16": "bfloat16", "s4": "int4", "u4": "uint4", "s2": "int2", "u2": "uint2",
       "f4e2m1fn": "float4_e2m1fn", "f8e3m4": "float8_e3m4", "f8e4m3": "float8_e4m3",
       "f8e4m3b11fnuz": "float8_e4m3b11fnuz", "f8e4m3fn": "float8_e4m3fn",
       "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2": "float8_e5m2", "f8e5m2fnuz": "float8_e5m2fnuz",
       "f8e8m0fnu": "float8_e8m0fnu"}
OIP = {"BOOL": "pred", "INT8": "s8", "INT16": "s16", "INT32": "s32", "INT64": "s64", "UINT8": "u8",
       "UINT16": "u16", "UINT32": "u32", "UINT64": "u64", "FP16": "f16", "FP32": "f32",
       "FP64": "f64", "BF16": "bf16", "BYTES": "string"}
_NAMES: Dict[np.dtype, str] = {np.dtype(v): k for k, v in _NUMPY.items()}


def from_oip(datatype: str) -> str:
    """hlod's type of the Open Inference Protocol's, which has no names for the smaller ones: they
    keep hlod's. "" for others."""
    return OIP.get(datatype, datatype if datatype in _NUMPY or datatype in _ML else "")


def is_numpys(name: str) -> bool:
    """Has NumPy itself a type for hlod's?"""
    return name in _NUMPY


def to_numpy(name: str) -> np.dtype:
    """NumPy's type of hlod's. InvalidArgument where none is known: install ml_dtypes."""
    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name == "string":
        return np.dtype(object)
    try:
        import ml_dtypes
        dtype: np.dtype = np.dtype(getattr(ml_dtypes, _ML[name]))
        return dtype
    except (ImportError, AttributeError, KeyError):
        raise InvalidArgument(f"NumPy has no type for elements of {name}",
                              hint="pip install ml_dtypes" if name in _ML else "") from None


def from_numpy(dtype: np.dtype) -> str:
    """hlod's type of NumPy's."""
    name = _NAMES.get(dtype.newbyteorder("="))
    if name:
        return name
    if dtype.kind in "OUS":
        return "string"
    name = next((k for k, v in _ML.items() if v == dtype.name), None)
    if not name:
        raise InvalidArgument(f"hlod has no element type for NumPy's {dtype}")
    return name


def array(v: Any, dtype: str) -> np.ndarray:
    """What NumPy makes of v. dtype: type that Python's numbers (NumPy's scalars too) are to become,
    "" for none in particular (floating-point numbers are f32 then). InvalidArgument for what is no
    array of numbers or texts, and for numbers that the type does not have."""
    if isinstance(v, np.ma.MaskedArray):
        raise InvalidArgument("a masked array: hlod knows no masks", hint="array.filled(VALUE)")
    plain = not hasattr(v, "dtype") or isinstance(v, np.generic)
    try:
        a = np.asarray(v)
    except (ValueError, TypeError) as e:
        raise InvalidArgument(f"NumPy makes no array of it: {e}") from None
    if a.dtype.kind == "O":
        others = [t for t in a.reshape(-1).tolist() if not isinstance(t, (str, bytes))]
        odd = [t for t in others if not isinstance(t, (bool, int, float, complex))]
        if odd:
            raise InvalidArgument(
                f"an array of Python objects: {type(odd[0]).__name__} is no number and no text")
        if others:
            raise InvalidArgument(
                "an array of Python objects: numbers beyond 64 bits, or numbers beside texts")
    if not plain or a.dtype.kind not in "biufc":
        return a
    if dtype == "string" and not a.size:
        return np.empty(a.shape, object)
    if not dtype or dtype == "string":
        return a.astype(np.float32) if a.dtype == np.float64 else a
    to = to_numpy(dtype)
    with np.errstate(all="ignore"):
        b = a.astype(to)
        wrong = (a.size and a.dtype.kind in "biuf" and dtype[:1] in "su"
                 and not np.array_equal(b.astype(np.float64), a.astype(np.float64)))
    if wrong:
        at = np.flatnonzero(b.astype(np.float64).reshape(-1) != a.astype(np.float64).reshape(-1))[0]
        raise InvalidArgument(f"{a.reshape(-1)[at]} is no value of {dtype}")
    return b


def pack(a: np.ndarray) -> "tuple[str, memoryview | bytes]":
    """Type and bytes of an array: little-endian, row-major; its own memory where it lies so
    already."""
    name = from_numpy(a.dtype)
    if name == "string":
        return name, b"".join(struct.pack("<I", len(x)) + x
                              for x in (t.encode() if isinstance(t, str) else bytes(t)
                                        for t in a.reshape(-1).tolist()))
    a = np.ascontiguousarray(a, a.dtype.newbyteorder("<")
                                if a.dtype.byteorder in "<>=" and a.dtype.kind != "V" else a.dtype)
    return name, a.reshape(-1).view(np.uint8).data if a.size else b""


def unpack(name: str, shape: List[int], raw: Any) -> np.ndarray:
    """An array that may be written to: over the bytes if these may, else a copy. Texts become str,
    or bytes where they are not UTF-8."""
    if name != "string":
        data = memoryview(raw)
        dtype = to_numpy(name)
        if len(data) != dtype.itemsize * math.prod(shape):
            raise DataLoss(f"{len(data)} bytes came for {name}{list(shape)}")
        if not len(data):
            return np.zeros(shape, dtype)
        a = np.frombuffer(data, dtype).reshape(shape)
        return a.copy() if data.readonly else a
    text_bytes, at, out = bytes(raw), 0, []
    while at < len(text_bytes):
        n, = struct.unpack_from("<I", text_bytes, at)
        text = text_bytes[at + 4:at + 4 + n]
        at += 4 + n
        try:
            out.append(text.decode())
        except UnicodeDecodeError:
            out.append(text)  # type: ignore[arg-type]
    texts = np.empty(len(out), object)
    texts[:] = out
    return texts.reshape(shape)
