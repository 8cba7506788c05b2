#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hlo submit and hlo jobs as a user and CI have them: suites with .npy and .pb files against ONNX
Runtime's values, exit codes, JUnit, GitHub's annotations and summary, an interrupted and a resumed
wait, the CI examples and the commands of README and docs/jobs.md as they are written. Runs in
build/venv. Usage: submit.py --build DIR --worker BIN"""
import argparse, json, os, re, shutil, signal, subprocess, sys, tarfile, tempfile, time
import xml.etree.ElementTree as xml
import numpy as np, onnx, onnxruntime, yaml
from onnx import helper, numpy_helper
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, ".."))
sys.path.append(os.path.join(HERE, "..", "fleet"))  # behind: it has a secrets.py of its own
from common import free_ports
from harness import Daemon, Results, until

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
expect = Results()
check = expect.command

def make_files(folder):
    """Two models, inputs, and what ONNX Runtime gives for them."""
    rng = np.random.default_rng(7)
    for name, width in ("wide", 64), ("narrow", 8):
        w = rng.standard_normal((16, width)).astype("f4")
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]),
                 helper.make_node("Tanh", ["h"], ["y"])]
        graph = helper.make_graph(nodes, name, [helper.make_tensor_value_info("x", 1, ["N", 16])],
                                  [helper.make_tensor_value_info("y", 1, ["N", width])],
                                  [numpy_helper.from_array(w, "w")])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)],
                                    ir_version=8), f"{folder}/{name}.onnx")
        session = onnxruntime.InferenceSession(f"{folder}/{name}.onnx")
        for n in 1, 40:
            x = rng.standard_normal((n, 16)).astype("f4")
            y = session.run(None, {"x": x})[0]
            np.save(f"{folder}/{name}_x{n}.npy", x)
            np.save(f"{folder}/{name}_y{n}.npy", y)
            os.makedirs(f"{folder}/{name}_data_{n}", exist_ok=True)
            for kind, value in ("input_0", x), ("output_0", y):
                t = (numpy_helper.from_array(value) if n == 40
                     else helper.make_tensor("", 1, value.shape, value.ravel().tolist()))
                with open(f"{folder}/{name}_data_{n}/{kind}.pb", "wb") as f:
                    f.write(t.SerializeToString())

def suite(folder, name, text):
    with open(f"{folder}/{name}.yaml", "w") as f:
        f.write(text)
    return f"{folder}/{name}.yaml"

GOOD = """suite: good
models:
  - wide.onnx
  - {name: small one, model: narrow.onnx, precision: strict}
targets: [cpu, {name: first, device: "cpu:0"}]
inputs:
  - {name: one, models: wide, values: {x: "@wide_x1.npy"}, expect: {y: "@wide_y1.npy"}}
  - {name: many, models: [small one], values: {x: "@narrow_x40.npy"}, expect: {y: "@narrow_y40.npy"}}
  - {data: wide_data_40, models: wide}
  - {data: narrow_data_1, models: small one}
rtol: 1e-4
atol: 1e-5
budget: {peak_bytes: 16M, instructions: 1000}
"""
BAD = """models: [wide.onnx, {name: broken, model: broken.onnx}]
inputs:
  - name: wrong & <odd>, 100%
    models: wide
    values: {x: "@wide_x1.npy"}
    expect: {y: "@wide_y40.npy"}
  - name: differs
    models: wide
    values: {x: "@wide_x1.npy"}
    expect: {y: "@wide_zero.npy"}
  - name: right
    models: wide
    values: {x: "@wide_x1.npy"}
    expect: {y: "@wide_y1.npy"}
    atol: 1e-5
    rtol: 1e-4
  - {name: never, models: broken, values: {x: "1,2"}}
"""

def junit(path):
    """Parsed, with its counts compared with its cases."""
    root = xml.parse(path).getroot()
    assert root.tag == "testsuites" and [s.tag for s in root] == ["testsuite"]
    cases = root.findall("testsuite/testcase")
    for where in root, root[0]:
        assert int(where.get("tests")) == len(cases) and float(where.get("time")) >= 0
        for attribute, tag in ("failures", "failure"), ("errors", "error"), ("skipped", "skipped"):
            assert int(where.get(attribute)) == sum(c.find(tag) is not None for c in cases), (
                attribute)
    for c in cases:
        assert (c.get("classname") and c.get("name") and float(c.get("time")) >= 0
                and int(c.get("line")) > 0
                and len(c.findall("failure") + c.findall("error") + c.findall("skipped")) <= 1)
    assert len({(c.get("classname"), c.get("name")) for c in cases}) == len(cases)
    return cases

def with_models(o, folder):
    d = Daemon(o.build + "/hlod", o.build + "/hlod-worker")
    env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr,
           "PATH": os.path.abspath(o.build) + ":" + os.environ["PATH"]}
    for k in list(env):
        if k.startswith(("GITHUB_", "CI")):
            del env[k]
    def hlo(*words, **more):
        return subprocess.run([o.build + "/hlo", *words], env={**env, **more}, capture_output=True,
                              text=True, timeout=120)
    try:
        good, report = suite(folder, "good", GOOD), folder + "/report.xml"
        check("a suite with .npy and .pb files, two models, two targets",
              hlo("submit", good, "--wait", "--junit", report), 0, r"8 jobs, 8 passed",
              r"suite \d+: 8 jobs$")
        cases = junit(report)
        expect("JUnit of it", {(c.get("classname"), c.get("name")) for c in cases} == {
                   (m, f"{i} [{t}]")
                   for m, i in (("wide", "one"), ("small one", "many"), ("wide", "wide_data_40"),
                                ("small one", "narrow_data_1"))
                   for t in ("cpu", "first")}, [c.attrib for c in cases])
        p = check("submit alone prints the number", hlo("submit", good), 0, r"^\d+\n$")
        check("jobs watch follows it to its end", hlo("jobs", "watch", p.stdout.strip()), 0,
              "passed")
        expect(
            "jobs ls by state",
            len(hlo("jobs", "ls", p.stdout.strip(), "--state", "passed").stdout.split("\n")) == 9)
        text = hlo("jobs", "result", p.stdout.strip() + ".1").stdout
        one, written = json.loads(text), re.findall(r": (-?\d[\d.e+-]*)", text)
        expect("numbers are as short as they may be",
               len(written) > 5 and all(len(w) <= len(repr(float(w))) for w in written), written)
        expect("jobs result",
               one["state"] == "passed" and one["comparisons"][0]["output"] == "y" and len(
                   one["executable"]) == 64, one)
        check("jobs logs", hlo("jobs", "logs", p.stdout.strip() + ".1"), 0,
              r"attempt 1\n(.*\n)*.* passed\n$")
        (check("the same key attaches", hlo("submit", good, "--wait", "--idempotency-key", "k"), 0)
         and check("again", hlo("submit", good, "--wait", "--idempotency-key", "k"), 0, "8 passed",
                   "submitted before"))
        check("the key of a workflow run does too",
              hlo("submit", good, "--wait", GITHUB_RUN_ID="77", GITHUB_RUN_ATTEMPT="1"), 0)
        check("on a retry of the client",
              hlo("submit", good, "--wait", GITHUB_RUN_ID="77", GITHUB_RUN_ATTEMPT="1"), 0,
              err="submitted before")
        p = hlo("submit", good, "--wait", GITHUB_RUN_ID="77", GITHUB_RUN_ATTEMPT="2")
        expect("but not when it is run again", "submitted before" not in p.stderr, p.stderr)
        check("another suite under the key",
              hlo("submit", suite(folder, "other", GOOD + "repeat: 2\n"), "--idempotency-key", "k"),
              3, err="KEY_REUSED")

        np.save(folder + "/wide_zero.npy", np.zeros((1, 64), "f4"))
        with open(folder + "/broken.onnx", "wb") as f:
            f.write(b"this is no model")
        summary, wrong = folder + "/summary.md", suite(folder, "bad", BAD)
        p = check("what fails decides the exit code",
                  hlo("submit", wrong, "--junit", report, "--github", GITHUB_STEP_SUMMARY=summary),
                  5, r"4 jobs, 1 passed, 2 failed, 1 errors")
        cases = {c.get("name"): c for c in junit(report)}
        expect("JUnit says why", cases["differs"].find("failure").get(
                   "type") == "OUTPUT_DIFFERS" and "of 64 elements" in cases["differs"].find(
                   "failure").get("message") and cases["never"].find("error").get("type") in (
                   "UNSUPPORTED_FORMAT", "MALFORMED_MODEL") and cases["wrong & <odd>, 100%"].find(
                   "failure") is not None and "attempt 1" in cases["differs"].find(
                   "system-out").text, [xml.tostring(c) for c in cases.values()])
        errors = [line for line in p.stdout.split("\n") if line.startswith("::error ")]
        expect("annotations at the lines of the suite", len(errors) == 3 and all(
                   re.match(r"::error file=[^,:]*bad.yaml,line=\d+,title=[^,:]*::.+", e)
                   for e in errors) and "line=3,title=wide%2C wrong & <odd>%2C 100%25::" in errors[
                   0] and ",line=7," in errors[1] and ",line=17," in errors[2], errors)
        text = open(summary).read()
        expect("the step's summary",
               "4 jobs" in text and text.count("| failed |") == 2 and text.count(
                   "| error |") == 1 and "wrong & \\<odd>" in text, text)
        both = BAD.replace(", {name: broken, model: broken.onnx}", "").replace(
            "  - {name: never, models: broken, values: {x: \"1,2\"}}\n", "")
        check("only differences: 1", hlo("submit", suite(folder, "differs", both), "--wait"), 1)
        tight = ("models: [wide.onnx]\ninputs:\n  - {name: a, values: {x: '@wide_x1.npy'}}\n"
                 "budget: {instructions: 1}\n")
        check("only a budget: 7", hlo("submit", suite(folder, "tight", tight), "--wait"), 7,
              "over budget: .* instructions, budget 1")
        compiled = "models:\n  - {model: wide.onnx, shapes: {x: 5x16}}\n"
        check("without inputs it compiles",
              hlo("submit", suite(folder, "compiled", compiled), "--wait"), 0, "1 passed")
        os.mkfifo(folder + "/pipe.onnx")
        os.makedirs(folder + "/odd")
        os.symlink("/dev/zero", folder + "/odd/input_0.pb")
        value = "models: [wide.onnx]\ninputs:\n  - {name: a, values: {x: '%s'}}\n"
        for name, text, where in (
            ("a device as model", "models: [/dev/zero]\n", "yaml:1: '/dev/zero' is no file with"),
            ("a pipe as model", "models:\n  - model: pipe.onnx\n", "pipe.onnx' is no file with"),
            ("a device as value", value % "@/dev/zero", "yaml:3: '/dev/zero' is no file"),
            ("a pipe as raw value", value % "8xf32=@pipe.onnx", "pipe.onnx' is no file with"),
            ("a link to a device", "models: [wide.onnx]\ninputs:\n  - {data: odd}\n",
             "input_0.pb' is no file with"),
            ("a key that is not", "models: [wide.onnx]\ninput: []\n",
             r"a key that is not.yaml:1: no key 'input' here"),
            ("no file", "models: [nothing.onnx]\n", "nothing.onnx"),
            ("an alias", "models: &a [wide.onnx]\ninputs: *a\n", "anchors"),
            ("twice", "models: [wide.onnx]\nmodels: [wide.onnx]\n",
             r":2:\d+: this key stands here twice"),
            ("no YAML", "models: [wide.onnx\n", r"no YAML.yaml:\d+:\d+: "),
            ("a tensor that is none", "models: [wide.onnx]\ninputs:\n  - {data: .}\n",
             "no input_0.pb"),
            ("a number that is none", "models: [wide.onnx]\nrepeat: many\n", "whole number"),
            ("nothing", "", "nothing"), ("deep", "models: " + "[" * 100 + "]" * 100, "deep")):
            check("refused: " + name, hlo("submit", suite(folder, name, text)), 2, err=where)
        check("refused by the server",
              hlo("submit", suite(folder, "s", "models: [wide.onnx]\nrepeat: 2000\n")), 3,
              err="at most 1000")
        check("no such suite", hlo("submit", folder + "/none.yaml"), 2, err="none.yaml")
        check("nobody there", hlo("--addr", "127.0.0.1:1", "submit", good), 69)
        check("a job that is not", hlo("jobs", "get", "999.1"), 3, err="JOB_NOT_FOUND")

        ci(o, folder, env)
        blocks(env)
        expect("the daemon ends well", d.stop() == 0)
    finally:
        if d.p.poll() is None:
            d.kill()
        d.clean()

def sh(name, lines, folder, env, session=None):
    """session: gets the process group, where the lines leave something running."""
    p = subprocess.Popen(["sh", "-ec", lines], cwd=folder, env=env, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, start_new_session=session is not None)
    p.stdout, p.stderr = p.communicate(timeout=180)
    if session is not None:
        session.append(p.pid)
    expect(name, p.returncode == 0, f"status {p.returncode}\n{p.stdout}\n{p.stderr}")
    return p

def free_port():
    return "127.0.0.1:%d" % free_ports(1)[0]

def ci(o, folder, env):
    """The examples: YAML of the right form, and their script lines run, with the tarball that they
    fetch: the programs of this build in the layout of `make dist`."""
    work = folder + "/checkout"
    shutil.copytree(ROOT + "/deploy/ci/example", work + "/models")
    tarball = folder + "/hlod.tar.gz"
    with tarfile.open(tarball, "w:gz", compresslevel=1) as t:
        for name in "hlod", "hlod-worker", "hlo":
            t.add(f"{o.build}/{name}", f"hlod-0/bin/{name}")
    clean = {k: v for k, v in env.items() if not k.startswith("HLOD_")}
    clean.update(HLO_TARBALL="file://" + tarball, HLOD_ADDR=free_port(), HLOD_GRPC="127.0.0.1:0",
                 HOME=folder, CI="true")
    left = []
    try:
        github = yaml.safe_load(open(ROOT + "/deploy/ci/github.yml"))
        job = github["jobs"]["models"]
        steps = [s["run"] for s in job["steps"] if "run" in s]
        expect("github.yml: form", set(job["env"]) == {"HLO_TARBALL", "HLOD_ADDR"} and github[
                   True] == ["push", "pull_request"] and job["runs-on"] == "ubuntu-latest" and all(
                   set(s) <= {"name", "run", "uses", "if", "with"}
                   for s in job["steps"]) and len(steps) == 4, job)
        path = work + "/path"
        open(path, "w").close()
        for k, step in enumerate(steps):
            here = {**clean, "GITHUB_STEP_SUMMARY": work + "/summary.md", "GITHUB_RUN_ID": "1",
                    "GITHUB_PATH": path, "RUNNER_TEMP": work,
                    "PATH": ":".join([*open(path).read().split(), os.environ["PATH"]])}
            sh(f"github.yml: step {k + 1}", step, work, here, left)
        expect("its report and summary", len(junit(work + "/report.xml")) == 2
                                         and "2 passed" in open(work + "/summary.md").read())
        gitlab = yaml.safe_load(open(ROOT + "/deploy/ci/gitlab.yml"))["models"]
        os.remove(work + "/report.xml")
        sh("gitlab.yml: script", "\n".join(gitlab["script"]), work,
           {**clean, "HLOD_ADDR": free_port(), "CI_JOB_ID": "5"}, left)
        expect("its report",
               len(junit(os.path.join(work, gitlab["artifacts"]["reports"]["junit"]))) == 2)
    finally:
        for pid in left:
            try:
                os.killpg(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass

def blocks(env):
    """Commands of the documents, as they are written."""
    readme = open(ROOT + "/README.md").read()
    part = readme.split("### Batch jobs from CI", 1)[1]
    lines = re.search(r"```sh\n(.*?)```", part, re.S).group(1)
    p = sh("README: batch jobs from CI", lines, ROOT, env)
    expect("with the results it speaks of",
           p.stdout.count("2 passed") == 1 and "passed" in p.stdout.split("2 passed")[1], p.stdout)
    os.remove(ROOT + "/report.xml")
    text = open(ROOT + "/docs/jobs.md").read()
    found = re.findall(r"```sh\n(.*?)```", text, re.S)
    expect("docs/jobs.md has its blocks", len(found) == 3, len(found))
    folder = tempfile.mkdtemp(prefix="hlod-docs-")
    shutil.copytree(ROOT + "/deploy/ci/example", folder, dirs_exist_ok=True)
    for k, block in enumerate(found):
        p = sh(f"docs/jobs.md: block {k + 1}", block, folder, env)
    expect("softplus of 0 and 1, kept and read by range",
           [round(float(v), 5) for v in p.stdout.split("\n")[-2].split()] == [0.69315, 1.31326],
           p.stdout[-200:])
    shutil.rmtree(folder)

def with_slow_jobs(o, folder):
    """Over scripted workers, whose runs take as long as we like."""
    d = Daemon(o.build + "/hlod", o.worker)
    env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}
    model = ["FAKE", "in x f32 N,4", "out y f32 N,4", "weight 4"]
    for name, ms in ("slow", 30000), ("short", 150):
        with open(f"{folder}/{name}.fake", "w") as f:
            f.write("\n".join([*model, f"run_ms {ms}"]) + "\n")
    inputs = "\n".join(
        "  - {name: i%d, values: {x: '1x4xf32=1,2,3,4'}, expect: {y: '1x4xf32=2,3,4,5'}}" % k
        for k in range(12))
    slow, short = (suite(folder, n, f"models: [{n}.fake]\ninputs:\n{inputs}\n")
                   for n in ("slow", "short"))
    def start(*words):
        return subprocess.Popen([o.build + "/hlo", "submit", *words], env=env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    def states(number):
        return {j["state"] for j in d.json("GET", f"/v1/jobs?suite={number}")[1].get("jobs", [])}
    try:
        for number, sig in (1, signal.SIGTERM), (2, signal.SIGINT):
            p = start(slow, "--junit", folder + "/report.xml")
            until("it runs", 10, lambda: "running" in states(number))
            time.sleep(0.2)
            p.send_signal(sig)
            out, err = p.communicate(timeout=20)
            expect(f"interrupted by {sig.name}",
                   p.returncode == 130 and "is cancelled" in err and "12 cancelled" in out,
                   (p.returncode, out, err))
            expect("its jobs are cancelled", states(number) == {"cancelled"}, states(number))
            expect("the report says skipped",
                   len([c for c in junit(folder + "/report.xml") if c.find("skipped") is not None])
                   == 12)
        p = start(slow, "--timeout", "1s")
        out, err = p.communicate(timeout=20)
        expect("out of time",
               p.returncode == 124 and "out of time" in err and states(3) == {"cancelled"},
               (p.returncode, out, err))
        p = start(short, "--wait")
        until("some ended", 10, lambda: "passed" in states(4))
        d.kill()
        time.sleep(1.5)
        again = Daemon(o.build + "/hlod", o.worker, data=d.dir, args=("--http", "%s:%d" % d.addr))
        out, err = p.communicate(timeout=60)
        expect("the wait survives kill -9 of the daemon",
               p.returncode == 0 and "12 jobs, 12 passed" in out, (p.returncode, out, err))
        again.stop()
    finally:
        if d.p.poll() is None:
            d.kill()
        d.clean()

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--worker", required=True)
    o = a.parse_args()
    o.build = os.path.abspath(o.build)
    folder = tempfile.mkdtemp(prefix="hlod-submit-")
    make_files(folder)
    with_models(o, folder)
    with_slow_jobs(o, folder)
    shutil.rmtree(folder)
    return expect.code()

if __name__ == "__main__":
    sys.exit(main())
