# SPDX-License-Identifier: Apache-2.0
"""XLA:CPU as an independent oracle: runs HLO text in a child process, because the parser and the
compiler abort on some input. Also literals as HLO text, both ways."""
import multiprocessing
import re
import sys

import ml_dtypes
import numpy as np

DTYPES = {
    "pred": np.bool_, "s4": ml_dtypes.int4, "s8": np.int8, "s16": np.int16, "s32": np.int32,
    "s64": np.int64, "u4": ml_dtypes.uint4, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32,
    "u64": np.uint64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "c64": np.complex64, "c128": np.complex128,
    "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "f8e4m3": ml_dtypes.float8_e4m3, "f8e3m4": ml_dtypes.float8_e3m4,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz, "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
}
NAMES = {np.dtype(v): k for k, v in DTYPES.items()}


def _serve(pipe):
    import resource
    # some modules ask for a whole machine
    resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
    import jax
    jax.config.update("jax_enable_x64", True)
    from jax._src import xla_bridge
    from jax._src.lib import _jax, xla_client
    from jaxlib import _hlo
    backend = xla_bridge.get_backend("cpu")
    device = backend.local_devices()[0]
    while True:
        text, args = pipe.recv()
        try:
            proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
            exe = backend.compile_and_load(_jax.mlir.hlo_to_stablehlo(proto),
                                           _jax.DeviceList((device,)), xla_client.CompileOptions())
            outs = exe.execute([jax.device_put(np.asarray(a), device) for a in args])
            pipe.send([np.asarray(o) for o in outs])
        except Exception as e:  # the message is the result
            pipe.send(str(e).split("\n")[0][:300])


class Xla:
    """run() gives a list of arrays, or a string: why XLA could not run the module."""

    def __init__(self):
        self.child = None

    def run(self, text, args, seconds=60):
        if self.child is None:
            self.pipe, there = multiprocessing.get_context("spawn").Pipe()
            self.child = multiprocessing.get_context("spawn").Process(
                target=_serve, args=(there,), daemon=True)
            self.child.start()
            there.close()
        try:
            self.pipe.send((text, args))
            if self.pipe.poll(seconds):
                return self.pipe.recv()
            why = "XLA takes too long"
        except (EOFError, ConnectionError):
            why = "XLA crashed"
        self.child.kill()
        self.child.join()
        self.child = None
        return why

    def close(self):
        if self.child is not None:
            self.child.kill()
            self.child.join()


def _number(v, name):
    if name == "pred":
        return "true" if v else "false"
    if name[0] in "su":
        return str(int(v))
    if name[0] == "c":
        part = "f32" if name == "c64" else "f64"
        return f"({_number(v.real, part)}, {_number(v.imag, part)})"
    v = float(v)
    if v != v:
        return "nan"
    if v in (float("inf"), float("-inf")):
        return "inf" if v > 0 else "-inf"
    return f"{v:.17g}" if name == "f64" else f"{v:.9g}"


def literal_text(a):
    """HLO text of an array."""
    a = np.asarray(a)
    name = NAMES[a.dtype]
    if a.ndim == 0:
        return _number(a[()], name)
    if a.size == 0:
        return "{}"
    return "{" + ", ".join(literal_text(x) for x in a) + "}"


def parse_literal(text, name, dims):
    """The array of an HLO literal."""
    text = text.strip()
    t = DTYPES[name]
    if name[0] == "c":
        v = [complex(float(a), float(b)) for a, b in re.findall(r"\(([^,]*),([^)]*)\)", text)]
    else:
        v = re.findall(r"[^\s{},]+", text)
        if name == "pred":
            v = [x in ("true", "1") for x in v]
        elif name[0] in "su":
            return np.array([int(x) for x in v], t).reshape(dims)
        else:
            v = [float(x) for x in v]
    return np.array(v).astype(t).reshape(dims) if v else np.zeros(dims, t)


def parameters(text):
    """[(type name, dims)] of the entry computation; None where a parameter is a tuple."""
    entry = re.search(r"^\s*ENTRY\b.*?^\s*\}", text, re.S | re.M)
    found = {}
    for line in entry.group(0).split("\n"):
        m = re.search(r"= *(.*?) parameter\((\d+)\)", line)
        if m:
            s = re.match(r"([a-z0-9]+)\[([\d,<= ]*)\]", m.group(1))
            found[int(m.group(2))] = (s.group(1),
                                      [int(d.strip().lstrip("<=")) for d in s.group(2).split(",")
                                       if d]) if s else None
    return [found[k] for k in sorted(found)]


def flags(text):
    """Value of comment lines `// NAME: value`."""
    return [(k, v.strip()) for k, v in re.findall(r"^// ([A-Z]+):(.*)$", text, re.M)]


def die(message):
    print(message, file=sys.stderr)
    sys.exit(1)
