# SPDX-License-Identifier: Apache-2.0
"""Client of hlod, the compiler daemon for model graphs.

    import hlod
    with hlod.connect() as h:
        result = h.run("model.onnx", {"image": array})
        print(result["scores"], result.device)
"""
from .client import Buffer, Client, Executable, connect
from .errors import (Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, FailedPrecondition, HlodError, Internal, InvalidArgument, NotFound, OutOfRange, PermissionDenied,
                     ResourceExhausted, Unauthenticated, Unavailable, Unimplemented)
from .local import libhlod, program, serve
from .results import Event, Profile, ProfileRow, Result, TensorSpec

__version__ = "0.1.0"
__all__ = ["Aborted", "AlreadyExists", "Buffer", "Cancelled", "Client", "DataLoss", "DeadlineExceeded", "Event", "Executable", "FailedPrecondition", "HlodError", "Internal", "InvalidArgument",
           "NotFound", "OutOfRange", "PermissionDenied", "Profile", "ProfileRow", "ResourceExhausted", "Result", "TensorSpec", "Unauthenticated", "Unavailable", "Unimplemented",
           "connect", "libhlod", "program", "serve"]
