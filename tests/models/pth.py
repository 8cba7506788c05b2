# SPDX-License-Identifier: Apache-2.0
"""Reads the tensors of a PyTorch checkpoint without torch: an unpickler that admits three names and
nothing else.

Only what a state dict needs: OrderedDict, _rebuild_tensor_v2 and typed storages; any other global
in the pickle is refused. Zip checkpoints (torch >= 1.6) and the older stream of pickles are both
read.
"""
import collections
import io
import pickle
import struct
import zipfile

import numpy as np

STORAGES = {"FloatStorage": np.float32, "DoubleStorage": np.float64, "HalfStorage": np.float16,
            "LongStorage": np.int64, "IntStorage": np.int32, "ByteStorage": np.uint8}
Storage = collections.namedtuple("Storage", "dtype key count")
Tensor = collections.namedtuple("Tensor", "storage offset size stride")


class StateUnpickler(pickle.Unpickler):
    def find_class(self, module, name):
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, size, stride, *rest: Tensor(
                storage, offset, size, stride)
        if module == "torch" and name in STORAGES:
            return np.dtype(STORAGES[name])
        raise pickle.UnpicklingError("refused global %s.%s" % (module, name))

    def persistent_load(self, pid):
        return Storage(pid[1], pid[2], pid[4])


def load(path):
    """Name -> ndarray for every tensor of the state dict at `path`."""
    with open(path, "rb") as f:
        raw = f.read()
    if raw[:2] == b"PK":
        archive = zipfile.ZipFile(io.BytesIO(raw))
        index = next(n for n in archive.namelist() if n.endswith("data.pkl"))
        state = StateUnpickler(io.BytesIO(archive.read(index))).load()
        prefix = index[: -len("data.pkl")] + "data/"
        read = lambda s: np.frombuffer(archive.read(prefix + s.key), s.dtype)
    else:
        f = io.BytesIO(raw)
        for _ in range(3):  # magic number, protocol, system information
            pickle.load(f)
        state = StateUnpickler(f).load()
        dtypes = {t.storage.key: t.storage.dtype for t in state.values() if isinstance(t, Tensor)}
        storages = {}
        for key in pickle.load(f):
            (count,) = struct.unpack("<q", f.read(8))
            storages[key] = np.frombuffer(f.read(count * dtypes[key].itemsize), dtypes[key])
        read = lambda s: storages[s.key]
    out = {}
    for name, t in state.items():
        if isinstance(t, Tensor):
            flat = read(t.storage)[t.offset:]
            out[name] = np.lib.stride_tricks.as_strided(
                flat, t.size, [s * flat.itemsize for s in t.stride]).copy()
    return out
