#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `make install` leaves: programs that say one version, manual pages and completion and a
sample file that have every option, a unit that systemd takes, and a daemon that tells its service
manager how it is. Standard library. Usage: deploy.py BUILD VERSION MAKE"""
import os, re, shutil, signal, socket, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Results

build, version, make = sys.argv[1:4]
result = Results()
def out(*command, **more):
    p = subprocess.run(command, capture_output=True, text=True, timeout=120, **more)
    return p.returncode, p.stdout, p.stderr

work = tempfile.mkdtemp(prefix="hlod-deploy-")
root = work + "/root"
rc, text, err = out(*make.split(), "-s", "install", "DESTDIR=" + root, "PREFIX=/usr")
assert rc == 0, err
have = {os.path.relpath(os.path.join(d, f), root + "/usr") for d, _, files in os.walk(root + "/usr")
        for f in files}
want = {"bin/hlod", "bin/hlod-worker", "bin/hlo", "bin/hlo-opt", "bin/hlo-run", "lib/libhlod.a",
        "lib/libhlod.so", "lib/libhlod.so.0", f"lib/libhlod.so.{version}", "lib/pkgconfig/hlod.pc",
        "include/hlod.h", "include/hlod_admin.h", "lib/systemd/system/hlod.service",
        "share/man/man1/hlo.1", "share/man/man8/hlod.8", "share/man/man5/hlod.toml.5",
        "share/hlod/hlod.toml", "share/hlod/hlod.proto", "share/bash-completion/completions/hlod",
        "share/bash-completion/completions/hlo", "share/zsh/site-functions/_hlod",
        "share/zsh/site-functions/_hlo",
        *("share/doc/hlod/" + f
          for f in ("README.md", "LICENSE", "CHANGELOG.md",
                    *(d + ".md" for d in "api buffers ci client config errors jobs oip operations "
                                         "security tpu".split())))}
result("make install leaves what it says, all of it below PREFIX",
       want <= have and os.listdir(root) == ["usr"], (want - have, os.listdir(root)))
result("nothing tells where it was built",
       not [f for f in have
            if f.startswith(("share/", "lib/systemd", "lib/pkgconfig"))
            and root.encode() in open(f"{root}/usr/{f}", "rb").read()])
usr = root + "/usr"
read = lambda f: open(f"{usr}/{f}").read()
for p in ("hlod", "hlod-worker", "hlo", "hlo-opt", "hlo-run"):
    rc, text, err = out(f"{usr}/bin/{p}", "--version")
    result(f"{p} --version", rc == 0 and text.strip() == f"{p} {version}", (rc, text, err))

# Every option in every document.
_, help_text, _ = out(usr + "/bin/hlod", "--help")
options = sorted(set(re.findall(r"^  --([a-z-]+)", help_text, re.M)))
result("options are found", len(options) > 30 and "max-queue" in options)
for f in ("share/man/man8/hlod.8", "share/bash-completion/completions/hlod",
          "share/zsh/site-functions/_hlod"):
    missing = [o for o in options if "--" + o not in read(f).replace("\\-", "-")]
    result(f"{f}: every option", not missing, missing)
keys = [o.replace("-", "_") for o in options
        if o not in ("config", "check-config", "version", "help")]
missing = [k for k in keys
           if f"\n#{k} = " not in read("share/hlod/hlod.toml")
           or f"\\fB{k}\\fR" not in read("share/man/man5/hlod.toml.5")]
result("the sample file and hlod.toml(5): every key", not missing, missing)
rc, text, err = out(usr + "/bin/hlod", "--config", usr + "/share/hlod/hlod.toml", "--check-config",
                    "--data", work + "/none")
result("the sample file is read", rc == 0, err)
open(work + "/all.toml", "w").write(re.sub(r"^#([a-z_]+ = )", r"\1", read("share/hlod/hlod.toml"),
                                           flags=re.M))
rc, text, err = out(usr + "/bin/hlod", "--config", work + "/all.toml", "--check-config", "--data",
                    work + "/none")
result("also with every line in force: its defaults are the program's",
       rc == 0 and not os.path.exists(work + "/none"), err)
_, hlo_help, _ = out(usr + "/bin/hlo", "--help")
commands = re.findall(r"^(?:[A-Z][a-z]+)? +([a-z]+)  +\S", hlo_help, re.M)
missing = [c for c in commands
           if f"\\fB{c}\\fR" not in read("share/man/man1/hlo.1")
           or not re.search(rf"^    {c}\)", read("share/bash-completion/completions/hlo"), re.M)
           or f"'{c}:" not in read("share/zsh/site-functions/_hlo")]
result("hlo(1) and its completion: every command", len(commands) > 8 and not missing,
       (commands, missing))
usage_options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*",
                               re.sub(r"\(hlod [^)]*\)", "", hlo_help)))
missing = [o for o in usage_options
           if o not in read("share/bash-completion/completions/hlo")
           or o.replace("-", "\\-") not in read("share/man/man1/hlo.1")]
result("and every option", not missing, missing)

# Completion as a shell uses it.
def complete(program, *words):
    script = (f'source {usr}/share/bash-completion/completions/{program}; compopt() {{ :; }}; '
              f'COMP_WORDS=({program} {" ".join(words)} ); COMP_CWORD={len(words)}; _{program}; '
              f'echo "${{COMPREPLY[@]}}"')
    words = list(words)
    return out("bash", "-c", script.replace('""', "''"))[1].split()
result("bash: commands",
       complete("hlo", "ins") == ["inspect"] and {"compile", "run"} <= set(complete("hlo", "''")),
       complete("hlo", "''"))
result("bash: options and words of a command",
       complete("hlo", "run", "--pro") == ["--profile"] and {"set", "rm", "ls"} <= set(
           complete("hlo", "models", "''")), complete("hlo", "models", "''"))
result("bash: values of an option",
       sorted(complete("hlo", "inspect", "--stage", "hlo-")) == ["hlo-after", "hlo-before"],
       complete("hlo", "inspect", "--stage", "hlo-"))
result("bash: behind global options", complete("hlo", "--addr", "x:1", "doc") == ["doctor"])
result("bash: hlod",
       complete("hlod", "--max-q") == ["--max-queue"] and complete("hlod", "--log", "de") == [
           "debug"], complete("hlod", "--max-q"))
if shutil.which("zsh"):
    for p in ("hlo", "hlod"):
        rc, text, err = out("zsh", "-n", f"{usr}/share/zsh/site-functions/_{p}")
        result(f"zsh reads _{p}", rc == 0, err)
if shutil.which("groff"):
    for page in ("man1/hlo.1", "man8/hlod.8", "man5/hlod.toml.5"):
        rc, text, err = out("groff", "-man", "-ww", "-Tutf8", f"{usr}/share/man/{page}")
        result(f"{page}: no word from groff",
               rc == 0 and not err and "SEE ALSO" in re.sub(r"\x1b\[[0-9;]*m|.\x08", "", text), err)

# The unit.
unit = read("lib/systemd/system/hlod.service")
result("the unit names installed programs",
       "ExecStart=/usr/bin/hlod " in unit and "@" not in re.sub(
           r"@system-service|@privileged|@resources|@obsolete", "", unit), unit)
if shutil.which("systemd-analyze"):
    open(work + "/hlod.service", "w").write(
        unit.replace("/usr/bin/hlod", usr + "/bin/hlod").replace("/usr/share", usr + "/share"))
    rc, text, err = out("systemd-analyze", "verify", "--man=no", work + "/hlod.service")
    result("systemd-analyze verify", rc == 0 and "hlod.service" not in err, err)
    rc, text, err = out("systemd-analyze", "security", "--offline=yes", "--threshold=20",
                        "--no-pager", work + "/hlod.service")
    result("systemd-analyze security: exposure of 2.0 at most", rc == 0, text[-400:])

# The service manager's side of sd_notify.
class Manager:
    def __init__(self, path, **env):
        self.s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.s.bind(path)
        self.s.settimeout(60)
        shown = "@" + path[1:] if path[0] == "\0" else path
        self.port = tempfile.mktemp(dir=work)
        self.p = subprocess.Popen([usr + "/bin/hlod", "--http", "127.0.0.1:0", "--grpc", "",
                                   "--port-file", self.port, "--data", tempfile.mkdtemp(dir=work)],
                                  env={**os.environ, "NOTIFY_SOCKET": shown, **env},
                                  stderr=open(work + "/log", "a"))
    def until(self, word):
        seen = []
        while True:
            seen.append(self.s.recv(4096).decode())
            if word in seen[-1]:
                return seen

def ready(port_file):
    try:
        host, port = open(port_file).read().strip().rsplit(":", 1)
        c = socket.create_connection((host, int(port)), 5)
        c.sendall(b"GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        return b" 200 " in c.recv(4096)
    except OSError:
        return False

m = Manager(work + "/notify", WATCHDOG_USEC="2000000")
seen = m.until("READY=1")
result("it says ready when it is, and not before",
       "STATUS=" in seen[0] and "READY" not in seen[0] and ready(m.port), seen)
m.until("WATCHDOG=1")
took = []
while len(took) < 2 or min(took) >= 2 and len(took) < 10:  # this machine may stall for one
    start = time.monotonic()
    m.until("WATCHDOG=1")
    took.append(time.monotonic() - start)
result("the watchdog is fed in time", min(took) < 2, took)
workers = [p for p in os.listdir("/proc")
           if p.isdigit() and os.path.exists(f"/proc/{p}/stat")
           and open(f"/proc/{p}/stat").read().rsplit(")", 1)[1].split()[1] == str(m.p.pid)]
asked = [p for p in workers if b"NOTIFY_SOCKET" in open(f"/proc/{p}/environ", "rb").read()]
result("workers do not hear of it", len(workers) >= 2 and not asked, (workers, asked))
m.p.send_signal(signal.SIGHUP)
seen = m.until("RELOADING=1")
result("a reload says so", "MONOTONIC_USEC=" in seen[-1], seen[-1])
m.until("READY=1")
m.p.send_signal(signal.SIGSTOP) # a loop that hangs
m.s.setblocking(False)
time.sleep(0.05)
try:
    while True:
        m.s.recv(4096)
except BlockingIOError:
    pass
m.s.settimeout(2.5)
try:
    fed = m.s.recv(4096)
except TimeoutError:
    fed = b""
result("a loop that hangs does not feed it", not fed, fed)
m.p.send_signal(signal.SIGCONT)
m.s.settimeout(20)
m.p.send_signal(signal.SIGTERM)
m.until("STOPPING=1")
result("it says that it stops, and does", m.p.wait(40) == 0)
m = Manager("\0hlod-test-%d" % os.getpid(), WATCHDOG_USEC="300000", WATCHDOG_PID="1")
m.until("READY=1")
m.s.settimeout(0.5)
try:
    fed = m.until("WATCHDOG")
except TimeoutError:
    fed = None
result("an abstract socket; a watchdog that is another's is not fed", fed is None, fed)
m.p.terminate()
m.p.wait(40)
shutil.rmtree(work, ignore_errors=True)
sys.exit(result.code())
