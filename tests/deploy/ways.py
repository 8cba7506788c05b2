#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `make wheel` and `make dist` made, as somebody gets it: installed into a fresh Debian or
Ubuntu without build tools (debootstrap; older and later ones than the wheel was built on), where
the README's five minutes and client/python's examples run as written, each within two minutes from
the first command. And without any Debian: a root that has nothing but the tree, so no C library and
no shell. Usage: ways.py --build DIR [--wheel FILE] [--dist FILE] [--suites bullseye,jammy,...]
(root and debootstrap; --empty TREE needs neither)"""
import argparse, ctypes, os, re, shutil, subprocess, sys, tempfile, time
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from harness import Results
# Headings of README.md whose blocks need nothing but the programs and what stands in them; each
# ends with status 0 and prints what is wanted.
FIVE = "Five minutes"  # starts a daemon of its own
STARTS = {"REST from any language": r"\[2(\.0)?, 4(\.0)?, 6(\.0)?, 8(\.0)?, 10(\.0)?, 13(\.0)?\]"}
PACKAGES = "ca-certificates,curl,jq,python3-venv"
# Suites of Ubuntu, whose archive is the default of debootstrap's scripts for it. Debian has no key
# of that archive, so its signature is not checked: these roots are for tests and thrown away.
UBUNTU = ("--no-check-gpg", "--components=main,universe")
SUITES = {"bullseye": (), "bookworm": (), "trixie": (), "bionic": UBUNTU, "focal": UBUNTU,
          "jammy": UBUNTU, "noble": UBUNTU}
OLD_PYTHON = {"bionic", "focal"}  # older than the wheel asks for: the tarball alone
LOOPBACK = ("import fcntl, socket, struct; s = socket.socket(); f = struct.unpack('16sh', "
            "fcntl.ioctl(s, 0x8913, struct.pack('16sh', b'lo', 0)))[1]; fcntl.ioctl(s, 0x8914, "
            "struct.pack('16sh', b'lo', f | 1))")
FILES = """
from PIL import Image
from onnx import TensorProto, helper, numpy_helper, save
import numpy as np
def model(path, side):
    w = np.random.default_rng(0).normal(size=(3 * side * side, 5)).astype(np.float32) / side
    nodes = [helper.make_node("Flatten", ["image"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["logits"]), helper.make_node("Softmax", ["logits"], ["scores"])]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("image", 1, ("N", 3, side, side))], [helper.make_tensor_value_info("scores", 1, ("N", 5))], [numpy_helper.from_array(w, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
model("model.onnx", 224)
model("small.onnx", 8)
image = np.random.default_rng(1).normal(size=(1, 3, 224, 224)).astype(np.float32)
np.save("cat.npy", image)
Image.fromarray((image[0].transpose(1, 2, 0) * 40 + 128).clip(0, 255).astype(np.uint8)).save("cat.jpg")
"""
# libhlod as a program of the system uses it, every reference bound at once: a model compiled and
# run, over HTTP and gRPC.
LIBHLOD = """
import ctypes as C, os, sys
try:
    import hlod
    path = hlod.libhlod()
except ImportError:
    path = sys.argv[1]
lib = C.CDLL(path, os.RTLD_NOW)
class Tensor(C.Structure):
    _fields_ = [("name", C.c_char_p), ("dtype", C.c_char_p), ("rank", C.c_int32), ("dims", C.POINTER(C.c_int64)), ("data", C.c_void_p), ("size", C.c_size_t)]
class First(C.Structure):  # of an executable its digest, of a result its outputs
    _fields_ = [("p", C.c_void_p)]
model = open("double.hlo", "rb").read()
for address in (b"127.0.0.1:8000", b"grpc://127.0.0.1:8001"):
    h, e, r = C.c_void_p(), C.POINTER(First)(), C.POINTER(First)()
    x, dims = (C.c_float * 6)(1, 2, 3, 4, 5, 6), (C.c_int64 * 2)(2, 3)
    t = Tensor(b"x", b"f32", 2, dims, C.cast(x, C.c_void_p), 24)
    codes = lib.hlod_open(address, C.byref(h)), lib.hlod_compile(h, model, C.c_size_t(len(model)), None, C.byref(e))
    codes += lib.hlod_run(h, C.cast(e.contents.p, C.c_char_p), C.byref(t), C.c_size_t(1), None, C.byref(r)),
    out = C.cast(r.contents.p, C.POINTER(Tensor)).contents.data
    print("libhlod", codes, list(C.cast(out, C.POINTER(C.c_float))[:6]))
    lib.hlod_result_free(r), lib.hlod_executable_free(e), lib.hlod_close(h)
"""
DOUBLE = ("HloModule double\n\nENTRY main {\n  x = f32[2,3] parameter(0)\n  ROOT y = f32[2,3] "
          "add(x, x)\n}\n")


def block(title, page="README.md"):
    return re.search(f"^##+ {re.escape(title)}\n.*?^```sh\n(.*?)^```",
                     open(os.path.join(ROOT, page)).read(), re.M | re.S).group(1)


def base(suite, dir):
    """A minimal Debian or Ubuntu, kept between runs. None: it is an Ubuntu and its archive cannot
    be reached from here."""
    root = os.path.join(dir, suite)
    def unmount():  # debootstrap may leave them
        for d in ("proc", "sys"):
            subprocess.run(["umount", "-q", os.path.join(root, d)], stderr=subprocess.DEVNULL)
    if not os.path.exists(root + ".done"):
        unmount()
        shutil.rmtree(root, ignore_errors=True)
        with open(root + ".log", "w") as log:
            # all later Ubuntus are made by this script; "": its archive
            more = ["", "gutsy"] if SUITES[suite] else []
            p = subprocess.run(["debootstrap", *SUITES[suite], "--variant=minbase",
                                "--include=" + PACKAGES, suite, root, *more], stdout=log,
                               stderr=log)
        unmount()
        if p.returncode:
            said = open(root + ".log").read()
            if SUITES[suite] and "Failed getting release file" in said:
                return None
            raise SystemExit(f"debootstrap {suite}: {said[-1500:]}")
        open(root + ".done", "w").close()
    # as this machine reaches the package index
    for f in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if os.path.exists(f):
            shutil.copy(f, root + f)
    return root


def inside(root, script, net, env=()):
    """sh -e in the root, with mounts of its own (and, without net, a network of its own: the
    default ports are free)."""
    with open(os.path.join(root, "ways", "step.sh"), "w") as f:
        f.write(script)
    pip = {k: v for k, v in os.environ.items()
           if k.startswith("PIP_") and k != "PIP_FIND_LINKS" or k.lower().endswith("_proxy")}
    mounts = (f'mount -t proc proc "{root}/proc" && mount --rbind /dev "{root}/dev" && exec chroot '
              f'"{root}" sh -ec "cd /ways && . ./step.sh"')
    return subprocess.run(
        ["unshare", "-mpf" if net else "-mnpf", "--kill-child", "sh", "-c", mounts],
        env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
             "HOME": "/root", **pip, **dict(env)}, capture_output=True, text=True, timeout=600)


def five_minutes(results, name, root, way, python, path):
    """way: the heading of docs/install.md whose commands install; what follows `hlod &` there needs
    no network."""
    install, rest = re.match(r"(.*?)^(hlod &.*)", block(way, "docs/install.md"),
                             re.M | re.S).groups()
    start = time.monotonic()
    p = inside(root, install, True)
    results(f"{name}: docs/install.md, {way}: it installs", p.returncode == 0, p.stdout + p.stderr)
    env = {"PATH": f"{path}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
    lo = f"{python or 'python3'} -c \"{LOOPBACK}\"\n"
    wait = "for k in $(seq 100); do ! hlo health >/dev/null 2>&1 || break; sleep 0.1; done\n"
    up = lo + "hlod 2>log & pid=$!\n" + wait
    p = inside(root, lo + rest + "\n" + wait + "hlo health\nkill $!\nwait $!\n", False, env.items())
    results(f"{name}: docs/install.md, {way}: what follows",
            p.returncode == 0 and ("cpu" in p.stdout or not python),
            p.stdout[-1500:] + p.stderr[-1500:])
    p = inside(root, lo + block(FIVE) + "kill $!\nwait $!\n", False, env.items())
    results(f"{name}: README, {FIVE}",
            p.returncode == 0 and re.search(r"scores.*?executable", p.stdout, re.S),
            p.stdout[-1500:] + p.stderr[-1500:])
    for title, wanted in STARTS.items():
        p = inside(root, up + "(\n" + block(title) + "\n)\nkill $pid\nwait $pid\n", False,
                   env.items())
        results(f"{name}: README, {title}", p.returncode == 0 and re.search(wanted, p.stdout),
                p.stdout[-1500:] + p.stderr[-1500:])
    p = inside(root, up + "hlo doctor\nhlo bench double.hlo --requests 20 --warmup 1 --concurrency "
                          "1\nkill $pid\nwait $pid\n", False, env.items())
    results(f"{name}: hlo doctor, bench", p.returncode == 0 and "requests/s" in p.stdout,
            p.stdout[-1500:] + p.stderr[-1500:])
    if python:
        page = open(os.path.join(ROOT, "client", "python", "README.md")).read()
        with open(os.path.join(root, "ways", "page.py"), "w") as f:
            f.write("\n".join(re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)))
        with open(os.path.join(root, "ways", "serve.py"), "w") as f:
            f.write("import hlod, platform\nwith hlod.serve() as h:\n    "
                    "print(h.run(open('double.hlo', 'rb').read(), [[1, 2, 3], [4, 5, "
                    "6]]).output.tolist())\n" "print(platform.libc_ver())\n")
        p = inside(root, up + f"mkdir page\ncp small.onnx page/model.onnx\ncd page\n/ways/{python} "
                              f"../page.py\ncd ..\nkill $pid\nwait $pid\n{python} serve.py\n",
                   False, env.items())
        results(f"{name}: client/python/README.md and hlod.serve()",
                p.returncode == 0 and "[[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]" in p.stdout,
                p.stdout[-1500:] + p.stderr[-1500:])
    with open(os.path.join(root, "ways", "libhlod.py"), "w") as f:
        f.write(LIBHLOD)
    p = inside(root, up + f"{python or 'python3'} libhlod.py "
                          f"{os.path.dirname(path)}/lib/libhlod.so.0\nkill $pid\nwait $pid\n",
               False, env.items())
    results(f"{name}: libhlod in a program of the system", p.returncode == 0 and p.stdout.count(
                "libhlod (0, 0, 0) [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]") == 2,
            p.stdout[-1500:] + p.stderr[-1500:])
    took = time.monotonic() - start
    results(f"{name}: {took:.0f} s from the first command, at most 120", took <= 120)


def fresh(o, results, suite, files):
    root = base(suite, os.path.join(ROOT, "build", "roots"))
    if not root:
        print(f"skipped: {suite}: its archive cannot be reached from here")
        return
    ways = os.path.join(root, "ways")
    for kind, file in (("wheel", o.wheel), ("tarball", o.dist)):
        if not file or kind == "wheel" and suite in OLD_PYTHON:
            continue
        shutil.rmtree(ways, ignore_errors=True)
        os.mkdir(ways)
        for f in (file, *(os.path.join(files, f) for f in os.listdir(files))):
            shutil.copy(f, ways)
        with open(os.path.join(ways, "double.hlo"), "w") as f:
            f.write(DOUBLE)
        what = os.path.basename(file)
        if kind == "wheel":
            five_minutes(results, f"{suite}, {kind}", root, "The wheel", "v/bin/python",
                         "/ways/v/bin")
        else:
            five_minutes(results, f"{suite}, {kind}", root, "The tarball", None,
                         f"/ways/{what.split('-linux')[0]}/bin")
        shutil.rmtree(ways, ignore_errors=True)


def elf(path):
    """What the dynamic loader reads of a file: its interpreter, the libraries it needs, the symbol
    versions it asks of each, those it has, and those that it does without if need be."""
    text = subprocess.run(["objdump", "-p", path], capture_output=True, text=True, check=True,
                          env={**os.environ, "LC_ALL": "C"}).stdout
    asks = {lib: set(re.findall(r"^ +0x\w+ 0x\w+ \d+ (\S+)$", rest, re.M))
            for lib, rest in re.findall(r"^  required from (\S+):\n((?:    .*\n)*)", text, re.M)}
    return ("INTERP" in text, set(re.findall(r"NEEDED +(\S+)", text)), asks,
            set(re.findall(r"^\d+ 0x\w+ 0x\w+ (\S+)$", text, re.M)),
            set(re.findall(r"^ +0x\w+ 0x02 \d+ (\S+)$", text, re.M)))


def closed(results, tree):
    """Whichever C library a system has, or none: the programs ask for no loader of it, and
    everything that they load, with the symbol versions asked of it, is in the tree. Only libhlod is
    for the C library of its process, and the oldest that will do is written beside it."""
    lib = os.path.join(tree, "lib", "hlod")
    here = {f: elf(os.path.join(folder, f)) for folder in (lib, os.path.join(lib, "c"))
            for f in os.listdir(folder) if ".so" in f}
    programs = {f: elf(os.path.join(tree, "bin", f)) for f in os.listdir(os.path.join(tree, "bin"))}
    results("programs ask for no loader of the system",
            programs and not any(p[0] for p in programs.values()),
            [f for f, p in programs.items() if p[0]])
    missing = [(f, n) for f, x in {**here, **programs}.items() for n in x[1] if n not in here]
    missing += [(f, n, v) for f, x in {**here, **programs}.items() for n, versions in x[2].items()
                for v in versions - here.get(n, ((), (), (), set()))[3]]
    results("every library and symbol version that is asked for is in the tree",
            len(here) > 10 and not missing, missing)
    used, c = {"libhlod.so.0"}, set(os.listdir(os.path.join(lib, "c")))
    for _ in here:
        used |= {n for f in used for n in here[f][1]} - c
    glibc = max((int(v) for f in used for n, versions in here[f][2].items() if n in c
                 for v in re.findall(r"GLIBC_2\.(\d+)", " ".join(versions - here[f][4]))),
                default=0)
    said = open(os.path.join(lib, "libhlod.glibc")).read().strip()
    results(f"libhlod.glibc says the oldest C library for libhlod: {said}, at most 2.28",
            said == f"2.{glibc}" and glibc <= 28, glibc)


def older(results, tree):
    """deploy/bundle/older.c beside what it stands for, in this process."""
    lib, libc, here = (ctypes.CDLL(os.path.join(tree, "lib", "hlod", "libhlod_older.so.0")),
                       ctypes.CDLL(None), os.path.abspath(__file__).encode())
    buffer = lambda: ctypes.create_string_buffer(144)  # struct stat
    with open(here, "rb") as f:
        for name, first in (("stat", here), ("lstat", here), ("fstat", f.fileno()),
                            ("fstat64", f.fileno())):
            a, b = buffer(), buffer()
            same = (getattr(lib, name)(first, a) == 0 and getattr(libc, name)(first, b) == 0
                    and a.raw == b.raw)
            results(f"older: {name}", same and lib.stat(b"/nowhere", a) == -1)
        results("older: fcntl64", lib.fcntl64(f.fileno(), 3) == libc.fcntl(f.fileno(), 3)
                                  and lib.fcntl64(-1, 3) == -1)
    results("older: arc4random", len({lib.arc4random() for _ in range(8)}) == 8)
    class Found(ctypes.Structure):
        _fields_ = [("flags", ctypes.c_ulonglong), ("start", ctypes.c_void_p),
                    ("end", ctypes.c_void_p), ("map", ctypes.c_void_p),
                    ("eh_frame", ctypes.c_void_p), ("reserved", ctypes.c_ulonglong * 7)]
    a, b = Found(), Found()
    pc = ctypes.cast(libc.fcntl, ctypes.c_void_p)
    found = (lib._dl_find_object(pc, ctypes.byref(a)) == 0
             and getattr(libc, "_dl_find_object", lib._dl_find_object)(pc, ctypes.byref(b)) == 0)
    results("older: _dl_find_object",
            found and a.eh_frame == b.eh_frame and a.start <= pc.value < a.end
            and lib._dl_find_object(None, ctypes.byref(a)) == -1)
    results("older: __libc_single_threaded",
            ctypes.c_char.in_dll(lib, "__libc_single_threaded").value == b"\0")


def empty(results, tree):
    """A root with the tree, /proc, /dev and a folder to write to: whose libraries could it use but
    its own?"""
    work = tempfile.mkdtemp()
    try:
        shutil.copytree(tree, os.path.join(work, "hlod"), symlinks=True)
        for d in ("proc", "dev", "tmp"):
            os.mkdir(os.path.join(work, d))
        with open(os.path.join(work, "tmp", "double.hlo"), "w") as f:
            f.write(DOUBLE)
        chroot = (f'mount -t proc proc "{work}/proc" && mount --rbind /dev "{work}/dev"; run() {{ '
                  f'chroot "{work}" "$@"; }}; ')
        chroot += (f'"{sys.executable}" -c "{LOOPBACK}"; chroot "{work}" /hlod/bin/hlod --data '
                   f'/tmp/data 2>"{work}/log" & pid=$!; '
                   f'for k in $(seq 100); do ! run /hlod/bin/hlo health >/dev/null 2>&1 || break; '
                   'sleep 0.1; done; ' 'run /hlod/bin/hlo --version; run /hlod/bin/hlo run '
                                       '/tmp/double.hlo -i x=2x3xf32=1,2,3,4,5,6; run '
                                       '/hlod/bin/hlo devices; kill $pid; wait $pid; echo ended $?')
        p = subprocess.run(["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-mnpf", "sh", "-c",
                            chroot], capture_output=True, text=True, timeout=60,
                           env={"PATH": os.environ["PATH"], "HOME": "/tmp"})
        if "unshare" in p.stderr and "hlod" not in p.stdout:
            print("skipped: no namespaces here: " + p.stderr.strip())
            return
        log = open(os.path.join(work, "log")).read()
        os.mkdir(os.path.join(work, "alone"))
        shutil.copy(os.path.join(tree, "bin", "hlo"), os.path.join(work, "alone"))
        q = subprocess.run([os.path.join(work, "alone", "hlo"), "--version"], capture_output=True,
                           text=True)
        results("a program without its libraries says so",
                q.returncode == 127 and "lib/hlod/c/ld-linux-x86-64.so.2 is not there" in q.stderr,
                q.stderr)
        results("a root without a C library: daemon, worker and hlo run",
                all(w in p.stdout for w in ("hlo ", "12", "cpu:0", "ended 0")),
                p.stdout + p.stderr + log)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("--wheel")
    a.add_argument("--dist")
    a.add_argument("--empty")
    a.add_argument("--suites", default=",".join(SUITES))
    o = a.parse_args()
    results = Results()
    if o.empty:
        closed(results, os.path.abspath(o.empty))
        older(results, os.path.abspath(o.empty))
        empty(results, os.path.abspath(o.empty))
    if o.wheel or o.dist:
        os.makedirs(os.path.join(ROOT, "build", "roots"), exist_ok=True)
        with tempfile.TemporaryDirectory() as dir:
            subprocess.run([os.path.join(ROOT, "build", "venv", "bin", "python"), "-c", FILES],
                           check=True, cwd=dir)
            for suite in o.suites.split(","):
                fresh(o, results, suite, dir)
    return results.code()


sys.exit(main())
