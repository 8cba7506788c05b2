# SPDX-License-Identifier: Apache-2.0
"""Client of hlod, the compiler daemon for model graphs.

    import hlod
    with hlod.connect() as h:
        result = h.run("model.onnx", {"image": array})
        print(result["scores"], result.device)
"""
from .client import Buffer, Client, Executable, connect
from .errors import (Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded,
                     FailedPrecondition, HlodError, Internal, InvalidArgument, NotFound, OutOfRange,
                     PermissionDenied, ResourceExhausted, Unauthenticated, Unavailable,
                     Unimplemented)
from .local import libhlod, program, serve
from .results import Event, Profile, ProfileRow, Result, TensorSpec
from .training import Progress, Trained, Training


def __getattr__(name: str) -> object:
    """hlod.aio without an import of its own; asyncio is loaded with it only."""
    if name != "aio":
        raise AttributeError(f"module 'hlod' has no attribute {name!r}")
    import importlib

    return importlib.import_module("hlod.aio")


__version__ = "0.1.0"
__all__ = ["Aborted", "AlreadyExists", "Buffer", "Cancelled", "Client", "DataLoss",
           "DeadlineExceeded", "Event", "Executable", "FailedPrecondition", "HlodError",
           "Internal", "InvalidArgument", "NotFound", "OutOfRange", "PermissionDenied", "Profile",
           "ProfileRow", "Progress", "ResourceExhausted", "Result", "TensorSpec", "Trained",
           "Training", "Unauthenticated", "Unavailable", "Unimplemented", "connect", "libhlod",
           "program", "serve"]
