#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every block of commands in README.md and docs/*.md is run by a test, or says above it that it is
not, and why.

Blocks marked `sh` are run as written: by the tests that RUN_BY names, the others here, in the order
of the page, in a folder that has the files they name. What is changed before: host names of others
become this machine, /etc/hlod a folder of the test, `pidof hlod` its daemon, and `hlo bench` sends
20 requests. The default ports are ours because all of it happens in a network namespace of its own;
where that is not allowed nothing is run, aloud.

Usage: documents.py BUILD [PAGE...]   (build/venv/bin/python: needs numpy, onnx, Pillow)
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests"))
from harness import Daemon, Results, loopback_up, until  # noqa: E402

# Page, or page and heading of the block: the test that runs it.
RUN_BY = {
    "README.md: REST from any language": "tests/client/readme.py",
    "docs/client.md: The gRPC client library": "tests/client/readme.py",
    "README.md: Batch jobs from CI": "tests/client/submit.py",
    "docs/jobs.md": "tests/client/submit.py",
    "docs/install.md: The wheel": "tests/deploy/ways.py",
    "docs/install.md: The tarball": "tests/deploy/ways.py",
    "docs/from-": "tests/client/pages.py",
    "docs/training.md": "tests/client/pages.py",
}
COMMAND = re.compile(
    r"^(?:\$ )?\s*(?:\w+=\$?\(?|\()?(hlod?|curl|make|podman|pip|python3?|tar|kill|cc|sudo)\s", re.M)
STEP = ("HloModule step\n\nENTRY main {\n  state = f32[4] parameter(0)\n  ROOT next = f32[4] "
        "add(state, state)\n}\n")
DAEMON_BLOCK = re.compile(r"^hlod\b", re.M)  # starts a daemon of its own
TLS_BLOCK = re.compile(r"https://|/etc/hlod/tokens")  # security.md's: a server with tokens and TLS


def blocks(page):
    """(heading above, paragraph above in one line, language, text) of each fenced block."""
    heading = before = ""
    ended = True
    inside, out = None, []
    for line in open(os.path.join(ROOT, page)):
        if line.startswith("```"):
            if inside is None:
                inside, language = [], line[3:].strip()
                ended = True
            else:
                out.append((heading, before, language, "".join(inside)))
                inside = None
        elif inside is not None:
            inside.append(line)
        else:
            if line.startswith("#"):
                heading = line.lstrip("#").strip()
            if line.strip():
                before = line.strip() if ended else before + " " + line.strip()
            ended = not line.strip() or line.startswith("#")
    return out


def runner(page, heading):
    for place, test in RUN_BY.items():
        if f"{page}: {heading}" == place or ":" not in place and page.startswith(place):
            return test
    return None


def model(path, side):
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3 * side * side, 5)).astype(np.float32) / side
    nodes = [helper.make_node("Flatten", ["image"], ["flat"]),
             helper.make_node("MatMul", ["flat", "w"], ["scores"])]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(
                                           "image", TensorProto.FLOAT, ("N", 3, side, side))],
                          [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ("N", 5))],
                          [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def product(path):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (4, 4)) for n in "xwy"]
    g = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", info[:2], info[2:])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def files(page, work):
    """What the commands of a page name."""
    def put(name, value):
        np.save(os.path.join(work, name), value.astype(np.float32))
    if page == "docs/buffers.md":
        product(os.path.join(work, "model.onnx"))
        put("x.npy", np.eye(4))
        put("weights.npy", np.arange(16).reshape(4, 4))
        put("state.npy", np.arange(4))
        with open(os.path.join(work, "step.hlo"), "w") as f:
            f.write(STEP)
        return
    model(os.path.join(work, "model.onnx"), 224)
    put("cat.npy", np.random.default_rng(1).normal(size=(1, 3, 224, 224)))
    pixels = np.random.default_rng(2).integers(0, 255, (300, 320, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(os.path.join(work, "cat.jpg"))


def openssl(work, *words):
    subprocess.run(["openssl", *words], cwd=work, check=True, capture_output=True)


def certificates(work):
    openssl(work, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out",
            "ca.pem", "-days", "2", "-subj", "/CN=tests")
    for name, alias in (("server", "DNS:localhost"), ("farm", "DNS:farm.example")):
        openssl(work, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", name + ".key", "-out",
                name + ".csr", "-subj", "/CN=" + name)
        with open(os.path.join(work, "ext"), "w") as f:
            f.write("subjectAltName=" + alias + "\n")
        openssl(work, "x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-out", name + ".pem", "-days", "2", "-extfile", "ext")


def alive(group):
    try:
        os.killpg(group, 0)
        return True
    except ProcessLookupError:
        return False


class Page:
    def __init__(self, build, page):
        self.build, self.page = build, page
        self.work = tempfile.mkdtemp(prefix="hlod-test-")
        self.env = {k: v for k, v in os.environ.items()
                    if not k.startswith(("HLOD_", "MAKE", "MFLAGS"))}
        self.env.update(HOME=self.work, PATH=f"{build}:{ROOT}/build/venv/bin:" + os.environ["PATH"],
                        PYTHONPATH=ROOT + "/client/python")
        self.etc = os.path.join(self.work, "etc")
        os.mkdir(self.etc)
        with open(os.path.join(self.etc, "otlp-headers"), "w") as f:
            f.write("authorization=none\n")
        os.chmod(f.name, 0o600)
        files(page, self.work)
        self.daemon, self.left = None, []  # ours; process groups of blocks that started their own

    def adapt(self, text):
        text = text.replace("/etc/hlod", self.etc).replace("other:9000", "127.0.0.1:8000")
        text = re.sub(r"(https|grpcs)://(hlod\.example|host):", r"\1://localhost:", text)
        if self.daemon:
            text = text.replace("$(pidof hlod)", str(self.daemon.p.pid))
            # the file is read behind the signal
            said = f"$(grep -c 'ev=server.reload what=tokens' {self.daemon.log.name} || true)"
            text = re.sub(r"(kill -HUP \S+)",
                          f"{{ n={said}; \\1; until [ {said} -gt $n ]; do sleep 0.1; done; }}",
                          text)
        text = re.sub(r"--duration \S+", "", text)
        return re.sub(r"(\bhlo(?: --\w+ \S+)*) bench (\S+)",
                      r"\1 bench \2 --requests 20 --warmup 1", text)

    def start(self, text):
        """The daemon that the block speaks to: its own, on the default ports, one that a block
        before started, or one of ours."""
        if DAEMON_BLOCK.search(text) or not self.left:
            self.stop()
        if self.left or DAEMON_BLOCK.search(text):
            return
        args = []
        if TLS_BLOCK.search(text):
            certificates(self.work)
            tokens = os.path.join(self.etc, "tokens")
            if os.path.exists(tokens):
                os.remove(tokens)
            out = subprocess.run([self.build + "/hlo", "-q", "tokens", "add", "me", "--scopes",
                                  "admin", "--file", tokens], capture_output=True, text=True,
                                 check=True)
            self.env.update(CURL_CA_BUNDLE=self.work + "/ca.pem", HLOD_CACERT=self.work + "/ca.pem")
            if self.page == "docs/client.md":
                self.env["HLOD_TOKEN"] = out.stdout.strip()
            args = ["--tokens", tokens, "--tls-cert", self.work + "/server.pem", "--tls-key",
                    self.work + "/server.key", "--tls-client-ca", self.work + "/ca.pem"]
        self.env["HLOD_ADDR"] = ("https://localhost:%d" if args else "127.0.0.1:%d") % 8000
        self.daemon = Daemon(self.build + "/hlod", self.build + "/hlod-worker",
                             args=["--http", "127.0.0.1:8000", "--grpc", "127.0.0.1:8001", *args],
                             ready=not args)
        for words in (["health"], ["models", "set", "cats", "model.onnx"]):
            if words[0] == "health" or " cats" in text:
                until("hlo " + words[0], 20,
                      lambda: not subprocess.run([self.build + "/hlo", *words], env=self.env,
                                                 cwd=self.work, capture_output=True).returncode)

    def stop(self):
        if self.daemon:
            self.daemon.stop()
        for group in filter(alive, self.left):
            os.killpg(group, signal.SIGTERM)
            until("the daemon of a block ends", 20, lambda: not alive(group))
        self.daemon, self.left = None, []
        for name in ("HLOD_ADDR", "HLOD_TOKEN", "CURL_CA_BUNDLE", "HLOD_CACERT"):
            self.env.pop(name, None)

    def run(self, language, text):
        """A block by sh -e, or by python. What it leaves in the background stays until the page
        ends or a block starts a daemon."""
        self.start(text)
        script = self.adapt(text)
        command = ["sh", "-ec", script] if language == "sh" else [sys.executable, "-c", script]
        with open(os.path.join(self.work, "out"), "w+") as log:
            p = subprocess.Popen(command, cwd=self.work, env=self.env, stdout=log, stderr=log,
                                 start_new_session=True)
            try:
                code = p.wait(timeout=120)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                return p.wait(), open(log.name).read() + "\nnot within 120 s"
            if DAEMON_BLOCK.search(text):
                self.left.append(p.pid)
                until("hlod answers", 20,
                      lambda: not subprocess.run([self.build + "/hlo", "health"], env=self.env,
                                                 capture_output=True).returncode)
            log.seek(0)
            return code, log.read()

    def close(self):
        self.stop()
        shutil.rmtree(self.work, ignore_errors=True)


WANTED = {("README.md", 0): r"(?s)longest|steps.*executable", ("README.md", 1): r"dot \(scores\)",
          ("docs/buffers.md", 1): r'"handle"',
          ("docs/ci.md", 2): r"(?sm)^\[-?\d.*\]\n\d.*MODEL_NOT_FOUND\ntrue",
          ("docs/security.md", 0): r'(?s)\{"models":\[\]\}.*ci +team-a',
          ("docs/client.md", 0): r'"digest"', ("docs/client.md", 1): r"requestsPerS"}


def one(build, page, results):
    here = [(h, language, text) for h, before, language, text in blocks(page)
            if language in ("sh", "python") and not runner(page, h)]
    if not here:
        return
    p = Page(build, page)
    try:
        for k, (heading, language, text) in enumerate(here):
            name = f"{page}, {heading}, block {k + 1}"
            code, out = p.run(language, text)
            results(name, code == 0 and re.search(WANTED.get((page, k), ""), out),
                    f"status {code}\n{out}")
    finally:
        p.close()


def main():
    args = [a for a in sys.argv[1:] if a != "--own"]
    own = "--own" in sys.argv
    if not own and subprocess.run(["unshare", "-rn", "true"], capture_output=True).returncode == 0:
        return subprocess.run(["unshare", "-rn", sys.executable, __file__, *args,
                               "--own"]).returncode
    if own:
        loopback_up()
    results = Results()
    for place, test in RUN_BY.items():  # such a test takes the first block below its heading
        page, _, heading = place.partition(": ")
        if heading:
            found = [h for h, before, language, text in blocks(page)
                     if h == heading and language in ("sh", "python")]
            results(f"{place}: one block, run by {test}", len(found) == 1, len(found))
    pages = ["README.md", *sorted(os.path.relpath(p, ROOT) for p in glob.glob(ROOT + "/docs/*.md"))]
    for page in pages:
        silent = [text for h, before, language, text in blocks(page)
                  if COMMAND.search(text) and language not in ("sh", "python")
                  and "ot run by the tests" not in before]
        results(f"{page}: each command is run, or says why not", not silent, "\n".join(silent))
    if not own:
        print("SKIP the commands of the pages: no network namespace is to be had")
    for page in pages:
        if own and (not args[1:] or page in args[1:]):
            one(os.path.abspath(args[0]), page, results)
    return results.code()


if __name__ == "__main__":
    sys.exit(main())
