# SPDX-License-Identifier: Apache-2.0
"""Command lines of README.md, docs/*.md, client/python/README.md: each `hlo` command exists with
the options that are used, each option of `hlod` too. For those that no other test runs as written
(tests/client/readme.py, submit.py, pages.py, python_client.py and tests/deploy run the rest).
commands.py BUILD"""
import glob, re, subprocess, sys

build = sys.argv[1]
GLOBAL = {"--addr", "--token", "--cacert", "--cert", "--key", "--json", "--quiet", "--help",
          "--version"}

def options(*words):
    return set(re.findall(r"--[a-z][a-z0-9-]*",
                          subprocess.run(words, capture_output=True, text=True).stdout))

rows = open("client/cli/commands.def").read()
usage = {
    c: options(build + "/hlo", c, "--help") | GLOBAL | ({"--peer-token"} if c == "cache" else set())
    for c in re.findall(r"^COMMAND\((\w+),", rows, re.M)}
daemon = options(build + "/hlod", "--help") | {"--help", "--version", "--check-config",
                                               "--print-docs"}
bad = n = 0
for path in ["README.md", "client/python/README.md", *sorted(glob.glob("docs/*.md"))]:
    text = open(path).read()
    lines = "\n".join(re.findall(r"^```[a-z]*\n(.*?)^```", text,
                                 re.S | re.M)).replace("\\\n", " ").split("\n")
    lines += [
        x for x in re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
        if re.match(r"(hlo|hlod) ", x)]
    for line in lines:
        line = line.split(" #")[0]
        for m in re.finditer(r"(?:^|[$(|;&`] ?|\bexec )\s*(hlod?) ((?:(?!\s[|;&]|\)).)*)", line):
            words = m.group(2).split()
            used = {w.split("=")[0] for w in words if w.startswith("--")}
            command = next((w for w in words
                            if re.fullmatch(r"[a-z]+", w) and not w.startswith("-")), None)
            n += 1
            if m.group(1) == "hlod":
                wrong = sorted(o for o in used if o not in daemon and not o.startswith("--no-"))
            elif command in usage:
                wrong = sorted(used - usage[command])
            else:
                wrong = ([] if not command or command in ("help", "takes") or not used
                         else ["no command " + command])
            if wrong:
                bad += 1
                print(f"FAIL {path}: {line.strip()}: {' '.join(wrong)}")
print(f"{'FAIL' if bad or n < 60 else 'PASS'} {n} command lines of the documents name commands and "
      "options that there are")
sys.exit(1 if bad else 0)
