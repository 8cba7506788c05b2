# SPDX-License-Identifier: Apache-2.0
"""Writes hlod/_schema.py: fields and types of the messages of proto/hlod.proto (and two of the Open
Inference Protocol) as a table that hlod/_wire.py walks, so that the package needs neither protoc
nor a protobuf runtime. Run by `make docs`; a test compares. Usage: make_schema.py OUT (in the
repository's root; needs protoc and protobuf)"""
import subprocess, sys, tempfile

from google.protobuf import descriptor_pb2

KINDS = {1: "d", 2: "f", 3: "i", 4: "u", 5: "i", 8: "?", 9: "s", 12: "b", 13: "u", 14: "e", 11: "m"}
# of inference.proto, in front of their names: oip.
OTHERS = {"ModelMetadataRequest", "ModelMetadataResponse"}


def messages(file, prefix, only=None):
    for m in file.message_type:
        yield from walk(m, prefix, m.name, only)


def walk(m, prefix, name, only):
    if only is None or name.split(".")[0] in only:
        yield prefix + name, m
        for n in m.nested_type:
            yield from walk(n, prefix, f"{name}.{n.name}", only)


def row(f, package, prefix):
    kind = KINDS[f.type]
    target = f.type_name[len(package) + 2:] if kind in "em" else ""
    return f.number, (f.name, kind + ("*" if f.label == 3 else ""),
                      prefix + target if kind == "m" else target)


def main():
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run(["protoc", "-I.", f"--descriptor_set_out={out.name}", "proto/hlod.proto",
                        "proto/formats/inference.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(out.read()).file
    lines = ['# SPDX-License-Identifier: Apache-2.0',
             '"""Made by make_schema.py from proto/hlod.proto: do not edit."""',
             "from typing import Dict, Tuple", "",
             "# message -> field number -> (name, kind, message or enum); kinds: _wire.py",
             "MESSAGES: Dict[str, Dict[int, Tuple[str, str, str]]] = {"]
    enums = {}
    for file in files:
        ours = file.package == "hlod.v1"
        prefix = "" if ours else "oip."
        for name, m in messages(file, prefix, None if ours else OTHERS):
            lines.append(f"    {name!r}: {{")
            lines += [f"        {number}: {cell!r},"
                      for number, cell in (row(f, file.package, prefix) for f in m.field)]
            lines.append("    },")
        if ours:
            enums.update({e.name: {v.number: v.name for v in e.value} for e in file.enum_type})
            methods = {m.name: (m.input_type.split(".")[-1], m.output_type.split(".")[-1])
                       for s in file.service for m in s.method}
    lines += ["}", "# enum -> number -> name", "ENUMS: Dict[str, Dict[int, str]] = {"]
    for name, values in enums.items():
        lines += [f"    {name!r}: {{"] + [f"        {k}: {v!r},"
                                          for k, v in values.items()] + ["    },"]
    lines += ["}", "# method -> request, reply", "METHODS: Dict[str, Tuple[str, str]] = {"]
    lines += [f"    {k!r}: {v!r}," for k, v in methods.items()] + ["}"]
    with open(sys.argv[1], "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


main()
