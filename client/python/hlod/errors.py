# SPDX-License-Identifier: Apache-2.0
"""What a call can end with: HlodError, and one class for each canonical code. Each is also the
built-in exception that Python programs expect for such a case."""
from __future__ import annotations

import functools
import re
from typing import Any, Dict, Sequence, Type


class HlodError(Exception):
    """A call that failed.

    code canonical name, "INVALID_ARGUMENT" (docs/errors.md says which are worth another try) reason
    stable cause, finer than the code, "SHAPE_MISMATCH"; empty if there is none message for people
    details         further lines: all unsupported nodes, ...
    retry_after_ms  how long the server asks to wait; 0 if it does not
    hint            what to do, where this package knows; empty if not
    """

    code = "UNKNOWN"

    def __init__(self, message: str, *, code: str = "", reason: str = "",
                 details: Sequence[str] = (), retry_after_ms: int = 0, hint: str = "") -> None:
        self.code = code or self.code
        self.reason, self.message, self.details = reason, message, list(details)
        self.retry_after_ms = retry_after_ms
        self.hint = (hint or (_type_hint(message) if reason == "DTYPE_MISMATCH" else "")
                     or _HINTS.get(reason, ""))
        head = f"{self.code} {reason}: {message}" if reason else f"{self.code}: {message}"
        super().__init__("\n".join([head, *self.details,
                                    *(["hint: " + self.hint] if self.hint else [])]))

    def __reduce__(self) -> Any:  # to other processes whole
        rest: Dict[str, Any] = {"code": self.code, "reason": self.reason, "details": self.details,
                                "retry_after_ms": self.retry_after_ms, "hint": self.hint}
        return functools.partial(type(self), self.message, **rest), ()


class InvalidArgument(HlodError, ValueError):
    """The request is wrong whatever the server's state."""
    code = "INVALID_ARGUMENT"


class DeadlineExceeded(HlodError, TimeoutError):
    """`timeout` passed before the work was done."""
    code = "DEADLINE_EXCEEDED"


class NotFound(HlodError, LookupError):
    """No such model, executable, buffer, ..."""
    code = "NOT_FOUND"


class AlreadyExists(HlodError):
    code = "ALREADY_EXISTS"


class PermissionDenied(HlodError, PermissionError):
    """The caller is known and may not do this."""
    code = "PERMISSION_DENIED"


class ResourceExhausted(HlodError):
    """A quota, a queue or memory is used up; less or later may work."""
    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(HlodError):
    """The state must change first."""
    code = "FAILED_PRECONDITION"


class Aborted(HlodError):
    code = "ABORTED"


class OutOfRange(HlodError, IndexError):
    code = "OUT_OF_RANGE"


class Unimplemented(HlodError, NotImplementedError):
    code = "UNIMPLEMENTED"


class Internal(HlodError):
    """A bug of the server's."""
    code = "INTERNAL"


class Unavailable(HlodError, ConnectionError):
    """The server, or the worker that had the job, is gone for now: the same request may be sent
    again."""
    code = "UNAVAILABLE"


class DataLoss(HlodError):
    code = "DATA_LOSS"


class Unauthenticated(HlodError, PermissionError):
    """No valid token or certificate."""
    code = "UNAUTHENTICATED"


class Cancelled(HlodError):
    code = "CANCELLED"


_CLASSES: Dict[str, Type[HlodError]] = {c.code: c for c in HlodError.__subclasses__()}
_HINTS = {"UNBOUND_DIM": "give the shape: shapes={'NAME': (1, 3, 224, 224)}",
          "UNBOUND_VALUE": "compile with the input's elements, values={'NAME': [...]}, or run the "
                           "model itself",
          "DTYPE_MISMATCH": "array.astype(...) of the type that the message expects",
          "NO_CREDENTIALS": "hlod.connect(..., token=...), or HLOD_TOKEN in the environment",
          "BODY_TOO_LARGE": "hlod --max-message-bytes, or smaller pieces",
          "BUFFER_LOST": "its worker died: put it again",}


def _type_hint(message: str) -> str:
    """array.astype(...) for "expected f32, found f64", where NumPy has such a type of its own."""
    from . import dtypes

    found = re.search(r"expected (\w+), found \w+", message)
    if not found or found[1] == "string":
        return ""
    try:
        known = dtypes.to_numpy(found[1])
    except HlodError:  # no such type, or ml_dtypes is not installed
        return ""
    return f"array.astype({'numpy' if dtypes.is_numpys(found[1]) else 'ml_dtypes'}.{known})"


def make(code: str, message: str, **rest: object) -> HlodError:
    """The exception of a code by its name."""
    return _CLASSES.get(code, HlodError)(message, code=code, **rest)  # type: ignore[arg-type]
