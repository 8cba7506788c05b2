# SPDX-License-Identifier: Apache-2.0
"""Wheels of client/python: hlod-VERSION-py3-none-any.whl, the client alone, and with --tree (what
`make bundle` made) one for Linux x86-64 with the programs, their libraries and libhlod.

Names, requirements and texts come from client/python/pyproject.toml. The tree lies in the wheel as
data, so it is installed as bin/ and lib/hlod/ of the environment's prefix and the programs find
their libraries where they look for them. The tag says glibc 2.28 because that is what pip can be
told; the programs use none of the system's (deploy/bundle/start.c). The same input gives the same
bytes. Usage: wheel.py --version V --out DIR [--tree DIR]"""
import argparse, base64, hashlib, os, tomllib, zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "client", "python")


class Wheel:
    """A wheel being written (the binary distribution format of the Python packaging
    specifications)."""

    def __init__(self, path, info):
        self.zip, self.info, self.record = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED,
                                                           compresslevel=6), info, []

    def add(self, name, data, mode=0o644):
        entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
        entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def add_file(self, name, path):
        with open(path, "rb") as f:
            self.add(name, f.read(), 0o755 if os.access(path, os.X_OK) else 0o644)

    def close(self):
        self.record.append(f"{self.info}/RECORD,,")
        self.zip.writestr(zipfile.ZipInfo(f"{self.info}/RECORD", (1980, 1, 1, 0, 0, 0)),
                          "\n".join(self.record) + "\n")
        self.zip.close()


def metadata(project, version):
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}",
             f"Summary: {project['description']}", f"License: {project['license']['text']}",
             f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {d}" for d in project["dependencies"]]
    for extra, needs in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}",
                  *[f'Requires-Dist: {d}; extra == "{extra}"' for d in needs]]
    with open(os.path.join(PACKAGE, project["readme"]), encoding="utf-8") as f:
        return "\n".join([*lines, "Description-Content-Type: text/markdown", "", f.read()]).encode()


def files(folder):
    for base, dirs, names in os.walk(folder):
        dirs.sort()
        for n in sorted(names):
            path = os.path.join(base, n)
            yield os.path.relpath(path, folder), path


def build(version, out, tree):
    with open(os.path.join(PACKAGE, "pyproject.toml"), "rb") as f:
        project = tomllib.load(f)["project"]
    if project["version"] != version:
        raise SystemExit(f"pyproject.toml says {project['version']}, the Makefile {version}")
    tag = "py3-none-manylinux_2_28_x86_64" if tree else "py3-none-any"
    base, path = f"hlod-{version}", os.path.join(out, f"hlod-{version}-{tag}.whl")
    w = Wheel(path + ".tmp", base + ".dist-info")
    for name, source in files(os.path.join(PACKAGE, "hlod")):
        if "__pycache__" not in name:
            w.add_file("hlod/" + name, source)
    for name, source in files(tree) if tree else ():
        top, rest = name.split(os.sep, 1)
        if top == "bin":
            w.add_file(f"{base}.data/scripts/{rest}", source)
        elif name.startswith("share/licenses/"):
            w.add_file(f"{base}.dist-info/licenses/{os.path.basename(name)}", source)
        else:
            w.add_file(f"{base}.data/data/{name}", source)
    w.add_file(f"{base}.dist-info/licenses/LICENSE", os.path.join(ROOT, "LICENSE"))
    w.add(f"{base}.dist-info/METADATA", metadata(project, version))
    w.add(f"{base}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: hlod\nRoot-Is-Purelib: "
                                     f"{'false' if tree else 'true'}\nTag: {tag}\n".encode())
    w.close()
    os.replace(path + ".tmp", path)
    print(f"{os.path.relpath(path)}  {os.path.getsize(path) / 1e6:.1f} MB")


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--version", required=True)
    a.add_argument("--out", required=True)
    a.add_argument("--tree")
    o = a.parse_args()
    os.makedirs(o.out, exist_ok=True)
    build(o.version, o.out, None)
    if o.tree:
        build(o.version, o.out, o.tree)


main()
