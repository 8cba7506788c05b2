# SPDX-License-Identifier: Apache-2.0
"""Messages of hlod.v1 as dicts with the field names of proto/hlod.proto, to and from protocol
buffers (encode, decode) and proto3's JSON (from_json).

The wire format (varint, length-delimited, 64- and 32-bit groups of the protocol buffers encoding
specification) is walked by the table of _schema.py. Fields at their default value are left out on
both sides; unknown fields are skipped. Bytes may be anything with a buffer, and come back as
memoryview: nothing is copied but by the final join."""
from __future__ import annotations

import base64
import operator
import struct
from typing import Any, Dict, List, Mapping

from ._schema import ENUMS, MESSAGES
from .errors import InvalidArgument

Message = Dict[str, Any]
_MASK = (1 << 64) - 1
_BY_NAME = {m: {row[0]: (number,) + row[1:] for number, row in rows.items()}
            for m, rows in MESSAGES.items()}


def _varint(n: int) -> bytes:
    n &= _MASK
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _scalar(kind: str, target: str, v: Any) -> bytes:
    if kind == "d":
        return struct.pack("<d", v)
    if kind == "f":
        return struct.pack("<f", v)
    if kind == "e" and isinstance(v, str):
        v = next(k for k, name in ENUMS[target].items() if name == v)
    if kind == "?":
        if isinstance(v, (str, bytes)):
            raise TypeError("a text")
        return _varint(1 if v else 0)
    n = operator.index(v)
    if not -(1 << 63) <= n < 1 << 64:
        raise OverflowError("more than 64 bits")
    return _varint(n)


_WIRE_TYPE = {"d": 1, "f": 5, "s": 2, "b": 2, "m": 2}  # others: 0, varint


class WrongField(InvalidArgument, TypeError):
    """A message's field that is not there, or a value that is not of its type."""


class _Parts(List[Any]):
    """Pieces of an encoded message and their length together."""

    size = 0

    def add(self, piece: Any) -> None:
        self.append(piece)
        self.size += len(piece)


def _put(parts: _Parts, number: int, kind: str, target: str, v: Any) -> None:
    if kind in "sbm":
        parts.add(_varint(number << 3 | 2))
        if kind == "m":
            inner = _encode(target, v)
            parts.add(_varint(inner.size))
            parts.extend(inner)
            parts.size += inner.size
        else:
            data = v.encode() if isinstance(v, str) else memoryview(v).cast("B")
            parts.add(_varint(len(data)))
            parts.add(data)
    else:
        parts.add(_varint(number << 3 | _WIRE_TYPE.get(kind, 0)))
        parts.add(_scalar(kind, target, v))


def _field(parts: _Parts, number: int, kind: str, target: str, v: Any) -> None:
    if not kind.endswith("*"):
        if kind == "m" or kind == "b" or v:  # an empty message says that it is there
            _put(parts, number, kind, target, v)
        return
    if isinstance(v, (str, Mapping)):
        raise TypeError("no list")
    if kind[0] in "sbm":
        for x in v:
            _put(parts, number, kind[0], target, x)
    elif len(v):  # packed
        body = b"".join(_scalar(kind[0], target, x) for x in v)
        parts.add(_varint(number << 3 | 2))
        parts.add(_varint(len(body)))
        parts.add(body)


_KINDS = {"d": "a number", "f": "a number", "?": "True or False", "s": "a text", "b": "bytes",
          "i": "a whole number", "u": "a whole number"}


def _expected(kind: str, target: str) -> str:
    if kind[0] == "e":
        names = list(ENUMS[target].values())
        one = f"one of {', '.join(names[:12])}{', ...' if len(names) > 12 else ''}"
    else:
        one = _KINDS.get(kind[0]) or f"a dict of {target}"
    return f"a list, each {one}" if kind.endswith("*") else one


def _found(v: Any) -> str:
    text = repr(v)
    return f"{type(v).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def _encode(message: str, fields: Mapping[str, Any]) -> _Parts:
    parts = _Parts()
    table = _BY_NAME[message]
    for name, v in fields.items():
        if name not in table:
            raise WrongField(f"{message} has no field {name!r}: it has {', '.join(table)}")
        number, kind, target = table[name]
        if v is None:
            continue
        try:
            _field(parts, number, kind, target, v)
        except WrongField:  # of a message within: named already
            raise
        except (TypeError, ValueError, OverflowError, AttributeError, StopIteration, struct.error):
            raise WrongField(f"{message}.{name}: expected {_expected(kind, target)}, found "
                             f"{_found(v)}") from None
    return parts


def encode(message: str, fields: Mapping[str, Any]) -> bytes:
    """The message's bytes. WrongField names a field that it has not, or whose value is of another
    type."""
    return b"".join(_encode(message, fields))


class DecodeError(ValueError):
    """Bytes that are not the message they should be."""


def _read_varint(data: memoryview, at: int) -> "tuple[int, int]":
    n = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise DecodeError("a number of the message does not end")
        byte = data[at]
        at += 1
        n |= (byte & 0x7F) << shift
        if byte < 0x80:
            return n & _MASK, at
        shift += 7


def _number(kind: str, target: str, n: int) -> Any:
    if kind == "?":
        return bool(n)
    if kind == "e":
        return ENUMS[target].get(n, n)
    return n - (1 << 64) if kind == "i" and n >> 63 else n


def _value(kind: str, target: str, data: memoryview) -> Any:
    if kind == "m":
        return decode(target, data)
    if kind == "s":
        return str(data, "utf-8", "replace")
    return data


def _fixed(kind: str, data: memoryview) -> List[float]:
    return [x for x, in struct.iter_unpack("<d" if kind == "d" else "<f", data)]


def _packed(kind: str, target: str, data: memoryview) -> List[Any]:
    if kind in "df":
        return _fixed(kind, data)
    out, at = [], 0
    while at < len(data):
        n, at = _read_varint(data, at)
        out.append(_number(kind, target, n))
    return out


def decode(message: str, data: Any) -> Message:
    """The fields that the bytes have. DecodeError when they are cut short or of another message."""
    data = memoryview(data)
    table, at = MESSAGES[message], 0
    out: Message = {}
    while at < len(data):
        tag, at = _read_varint(data, at)
        wire, end = tag & 7, at
        if wire == 0:
            number, end = _read_varint(data, at)
        elif wire == 2:
            n, at = _read_varint(data, at)
            end = at + n
        elif wire in (1, 5):
            end = at + (8 if wire == 1 else 4)
        else:
            raise DecodeError(f"wire type {wire} in {message}")
        if end > len(data):
            raise DecodeError(f"{message} is cut short")
        row, at, piece = table.get(tag >> 3), end, data[at:end]
        if row is None:
            continue
        name, kind, target = row
        scalar, many = kind[0] not in "sbm", kind.endswith("*")
        value: Any
        if scalar and wire == 2:
            out.setdefault(name, []).extend(_packed(kind[0], target, piece))
            continue
        value = (_value(kind[0], target, piece) if not scalar else _fixed(kind[0], piece)[0]
                 if wire in (1, 5) else _number(kind[0], target, number))
        if many:
            out.setdefault(name, []).append(value)
        else:
            out[name] = value
    return out


def _json_name(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(x[:1].upper() + x[1:] for x in rest)


# Both spellings, as the rules of proto3's JSON say for parsers.
_BY_JSON = {m: {name: row for row in rows.values() for name in (row[0], _json_name(row[0]))}
            for m, rows in MESSAGES.items()}


def from_json(message: str, fields: Mapping[str, Any]) -> Message:
    """Proto3's JSON of a message, as a dict like decode's."""
    def one(kind: str, target: str, v: Any) -> Any:
        if kind == "m":
            return from_json(target, v)
        if kind in "df":
            return float(v)
        if kind in "iu":
            return int(v)
        return memoryview(base64.b64decode(v)) if kind == "b" else v

    out: Message = {}
    for key, v in fields.items():
        row = _BY_JSON[message].get(key)
        if row and v is not None:
            name, kind, target = row
            out[name] = ([one(kind[0], target, x) for x in v] if kind.endswith("*")
                         else one(kind, target, v))
    return out
