#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hlo command over a daemon with scripted workers: what each command prints, where, and its
exit code. Standard library only.
Usage: cli.py --build DIR --worker BIN"""
import argparse, json, os, pty, re, shutil, subprocess, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

result = Results()
check = result.command

def on_terminal(env, *words):
    """What a command writes to a terminal as its stderr."""
    leader, follower = pty.openpty()
    env = {k: v for k, v in {**env, "TERM": "xterm"}.items()
           if k != "CI" and (k != "NO_COLOR" or v)}
    p = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    out = b""
    try:
        while piece := os.read(leader, 4096):
            out += piece
    except OSError:  # the other side is closed
        pass
    os.close(leader)
    p.wait(timeout=60)
    return out

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--worker", required=True)
    o = a.parse_args()
    d = Daemon(o.build + "/hlod", o.worker, args=("--compile-rate", "9"))
    env = {**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}
    def hlo(*words):
        return subprocess.run([o.build + "/hlo", *words], env=env, capture_output=True, text=True,
                              timeout=60)
    def model(name, *lines):
        path = os.path.join(d.dir, name)
        with open(path, "w") as f:
            f.write("\n".join(["FAKE", "in x f32 N,4", "out y f32 N,4", "weight 8", *lines]) + "\n")
        return path
    try:
        good = model("good")
        check("version", hlo("--version"), 0, r"^hlo \d")
        p = check("help", hlo("--help"), 0, r"compile +compile a model")
        lines, rows = p.stdout.splitlines(), open(
            os.path.join(os.path.dirname(os.path.abspath(__file__)),
                         "../../client/cli/commands.def")).read()
        result("help fits a screen", len(lines) <= 28 and max(map(len, lines)) <= 80,
               (len(lines), max(map(len, lines))))
        commands = re.findall(r"^COMMAND\((\w+),", rows, re.M)
        result("help has every command once",
               sorted(re.findall(r"^(?:\w+ +| {11})(\w+) ", p.stdout, re.M)[0:]) == sorted(
                   commands), commands)
        for name, usage in re.findall(r'^COMMAND\((\w+), +"(.*?)",$', rows, re.M):
            text = hlo(name, "--help").stdout
            bare = [o for o in set(re.findall(r"(?<![\w=|-])--?[a-z][a-z-]*", usage))
                    if not re.search(rf"^  {o}( \S+)?(\n {{20,}}|  +)\S", text, re.M)]
            result(f"help of {name}: each option is explained, no line beyond 100 columns",
                   not bare and max(map(len, text.split("\n"))) <= 100, (bare, text))
        page = re.findall(r"^\| (\d+) \| ([^|]*) \|",
                          open(os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                            "../../docs/ci.md")).read(), re.M)
        check("exit codes, as docs/ci.md has them", hlo("help", "exit-codes"), 0,
              "^" + re.escape("".join(f"{c} {text}\n" for c, text in page)) + "$")
        check("no command", hlo(), 2, err="usage: hlo")
        check("an unknown command", hlo("frobnicate"), 2, err="no command is called 'frobnicate'")
        check("help of one command", hlo("cache", "--help"), 0,
              r"^cache: .*\n\n  hlo cache ls\n  hlo cache stats\n(?!(.*\n)*.*hlo run)")
        check("an option without its value", hlo("run", good, "-i"), 2,
              err="^hlo: -i needs a value;.*\n$")
        check("an option before the command without its value", hlo("--addr"), 2,
              err="^hlo: there is no option --addr, or.*\n$")
        check("two models", hlo("compile", good, good), 2, err="one word too many")
        p = check("compile", hlo("compile", good, "--shape", "x=1x4"), 0,
                  r"cache +miss, compiled\ninstructions before: entry 7")
        one, source = re.search(r"executable +(\w{64})\nmodel +(\w{64})", p.stdout).groups()
        p = check("compile again", hlo("compile", good, "--shape", "x=1x4", "--json"), 0)
        assert json.loads(p.stdout)["cacheHit"] and json.loads(p.stdout)["digest"] == one
        two = json.loads(hlo("compile", good, "--shape", "x=2x4", "--json").stdout)["digest"]
        check("cache ls", hlo("cache", "ls"), 0, one)
        check("cache explain: bindings", hlo("cache", "explain", one, two), 0,
              r"^bindings differs\n  A  N=1\n  B  N=2\n$")
        check("cache explain: digests by their first digits",
              hlo("cache", "explain", one[:12], two[:16]), 0, r"^bindings differs")
        check("inspect: the same", hlo("inspect", one[:12], "--stage", "hlo-after"), 0,
              "^stage hlo-after")
        check("first digits of nothing", hlo("cache", "pin", "0" * 12), 3,
              err="digests of 0 executables begin with '000000000000'")
        check("cache explain: the same", hlo("cache", "explain", one, one), 0, "^same key\n$")
        three = json.loads(hlo("compile", good, "--shape", "x=2x4", "--precision", "strict",
                               "--json").stdout)["digest"]
        check("cache explain: options", hlo("cache", "explain", two, three), 0,
              r"^options differs\n  A  \(default\)\n  B  precision=strict\n$")
        check("cache explain of nothing", hlo("cache", "explain", one, "0" * 64), 3,
              err="EXECUTABLE_NOT_FOUND")
        check("cache stats", hlo("cache", "stats"), 0, '"compiles": 3')
        check("run a file", hlo("run", good, "-i", "x=1x4xf32=1,2,3,4"), 0,
              r"^y f32\[1,4\] 2 3 4 5\n$", r"cached")
        check("run a digest", hlo("run", one, "-i", "x=1x4xf32=0,0,0,0.5"), 0, r"1\.5\n$")
        check("run with a wrong shape", hlo("run", one, "-i", "x=1x3xf32=0,0,0"), 3,
              err="SHAPE_MISMATCH")
        check("run without an input: it is made up", hlo("run", one), 0, r"^y f32\[1,4\]",
              r"input x 1x4, made up")
        check("a batch of one where nothing says it", hlo("compile", good), 0,
              r"shapes +x=1x4  \(assumed; to choose: --shape x=1x4\)")
        check("run: how often", hlo("run", one, "-i", "x=1x4xf32=0,0,0,0", "--repeat", "often"), 2,
              err="--repeat: expected a number from 1")
        check("run: an output of no known format",
              hlo("run", one, "-i", "x=1x4xf32=0,0,0,0", "-o", "y.txt"), 2,
              err="ends in .npz or .npy")
        check("run with a word that is no input", hlo("run", one, "-i", "x"), 2, err="NAME=VALUE")
        check("inspect", hlo("inspect", one, "--stage", "hlo-after"), 0, "^stage hlo-after")
        check("inspect a stage that is not", hlo("inspect", one, "--stage", "nonsense"), 3,
              err="NO_SUCH_STAGE")
        check("a model that is refused: each line of why",
              hlo("compile", model("refused", "fail compile"), "--shape", "x=1x4"), 3,
              err="UNSUPPORTED_OP(.*\n)*.*op Bar")
        open(os.path.join(d.dir, "empty"), "w").close()
        check("an empty model", hlo("compile", os.path.join(d.dir, "empty")), 2,
              err="empty: the file is empty")
        check("a folder as model", hlo("compile", d.dir), 2, err="Is a directory")
        check("a model that needs a shape", hlo("compile", model("open", "in z f32 4,M")), 3,
              err=r"UNBOUND_DIM: 1 symbolic dimension without a size:\n.*input 'z', dimension 1 "
                  r"\('M'\)\n.*--shape z=4x128\n")
        check("no such file", hlo("compile", "/nonexistent/model"), 2, err="No such file")
        check("beyond a budget",
              hlo("compile", good, "--shape", "x=1x4", "--budget", "instructions=1"), 7,
              "over budget +instructions")
        p = hlo("-q", "run", one, "-i", "x=1x4xf32=1,2,3,4", "--json")
        check("run --json: the numbers too", p,
              0 if json.loads(p.stdout)["outputs"][0]["data"] == [2, 3, 4, 5] and not p.stderr
              else -1)
        p = hlo("run", one, "-i", "x=1x4xf32=1,2,3,4", "--json", "-o", os.path.join(d.dir, "y.npy"))
        check("run --json -o: the rest", p,
              0 if json.loads(p.stdout)["runMs"] and os.path.exists(os.path.join(d.dir, "y.npy"))
              else -1)
        for words, code, reason in ((("run", "nope"), 3, "MODEL_NOT_FOUND"),
                                    (("frobnicate",), 2, None),
                                    (("compile", "/nonexistent/model"), 2, None)):
            p = hlo("--json", *words)
            check("an error as JSON: " + words[0], p,
                  code if json.loads(p.stderr).get("reason") == reason and json.loads(p.stderr)[
                      "message"] and not p.stdout else -1)
        with open("/dev/full", "w") as full:
            p = subprocess.run([o.build + "/hlo", "devices"], env=env, stdout=full,
                               stderr=subprocess.PIPE, text=True)
        p.stdout = ""
        check("standard output that is full", p, 2, err="standard output cannot be written")
        check("models set", hlo("models", "set", "cats", good, "--shape", "x=1x4"), 0,
              f"^cats version 1 is {source}")
        check("models set of a model whose shapes requests bring",
              hlo("models", "set", "later", os.path.join(d.dir, "open")), 0, "^later version 1 is ",
              err="not compiled yet")
        check("models rm of it", hlo("models", "rm", "later"), 0)
        check("models set of what is nothing", hlo("models", "set", "cats", "no-such.onnx"), 2,
              err="no-such.onnx: No such file")
        check("models set of what is no name", hlo("models", "set", "cats", "no-such"), 3,
              err="no model is called 'no-such'")
        check("models set of a name much like one", hlo("models", "set", "dogs", "catz"), 3,
              err=r"no model is called 'catz' \(did you mean 'cats'\?\)")
        check("models set of a version that is not there", hlo("models", "set", "dogs", "cats:9"),
              3, err=r"no model is called 'cats:9' \(there is version 1 of that name\)")
        check("models set: another name of the same", hlo("models", "set", "felines", "cats:1"), 0,
              f"^felines version 1 is {source}")
        check("compile a name", hlo("compile", "cats", "--shape", "x=1x4"), 0,
              f"\nmodel +{source}\ncache +hit")
        check("compile a name into a file", hlo("compile", "cats", "-o", "x.hlox"), 2,
              err="-o takes a model's file")
        check("models rm of a name much like one", hlo("models", "rm", "felinez"), 3,
              err="did you mean 'felines'")
        check("models rm of no name at all", hlo("models", "rm", "a b\n"), 3,
              err="no model is called")
        check("models rm", hlo("models", "rm", "felines"), 0)
        check("models set a digest", hlo("models", "set", "cats", source, "--version", "7"), 0,
              "version 7")
        check("models ls", hlo("models"), 0, r"^cats +7 .*loaded\ncats +1 ")
        check("run a name", hlo("run", "cats:7", "-i", "x=1x4xf32=1,1,1,1"), 0, "2 2 2 2")
        check("models that the compiler does not vouch for",
              hlo("models", "set", "dogs", source, "--batch", "4"), 3, err="batching.unchecked")
        check("models in batches", hlo("models", "set", "dogs", source, "--batch", "4",
                                       "--batch-delay-us", "500", "--batch-unchecked"), 0,
              "^dogs version 1")
        check("models ls shows batches", hlo("models"), 0,
              r"dogs +1 .*loaded  batches of 4, 500 us")
        check("a batch of one", hlo("models", "set", "dogs", source, "--batch", "1"), 2)
        check("models rm", hlo("models", "rm", "dogs"), 0)
        check("models rm", hlo("models", "rm", "cats", "--version", "7"), 0)
        check("a name that went", hlo("run", "cats:7", "-i", "x=1"), 3,
              err="no model is called 'cats:7'")
        check("models rm of nothing", hlo("models", "rm", "dogs"), 3,
              err="no model is called 'dogs'")
        check("cache rm", hlo("cache", "rm", one), 0)
        check("devices", hlo("devices"), 0, "^cpu:0 +ready")
        check("tenants", hlo("tenants"), 0, r"^default +weight 1  jobs \d+ \(0 wait\)  device ")
        check("tenants takes no words", hlo("tenants", "x"), 2)
        check("doctor", hlo("doctor"), 0, "all well")
        j = json.loads(check("doctor --json", hlo("doctor", "--json"), 0).stdout)
        result("doctor --json: verdict, versions, devices", j["verdict"] == "all well" and j[
                   "hlo"] == j["server"]["version"] and j["devices"][0]["name"] == "cpu:0", j)
        check("health --wait", hlo("health", "--wait", "10s"), 0, "^ready")
        check("health --wait of nobody", hlo("--addr", "127.0.0.1:1", "health", "--wait", "1s"), 69,
              err="cannot reach hlod")
        check("health --wait for how long?", hlo("health", "--wait", "soon"), 2,
              err="--wait: as in 30s")
        hlo("models", "set", "adder", good, "--shape", "x=1x4")
        env["HLOD_GRPC_ADDR"] = d.grpc
        for protocol in "http", "grpc", "oip", "oip-grpc":
            p = check(f"bench over {protocol}",
                      hlo("bench", "adder", "--protocol", protocol, "--concurrency", "1,4",
                          "--requests", "60", "--json"), 0)
            r = json.loads(p.stdout)["runs"]
            check(f"bench over {protocol}: what it says", p,
                  0 if [(x["concurrency"], x["requests"], x["errors"]) for x in r] == [
                      (1, 60, 0), (4, 60, 0)] and all(0 < x["p50Ms"] <= x["p99Ms"] <= x["maxMs"]
                                                      and x["server"]["totalMs"] > 0
                                                      for x in r) else -1)
        check("bench in words", hlo("bench", "adder", "-i", "x=1x4xf32=random", "--body", "json",
                                    "--protocol", "oip", "--duration", "100ms"), 0,
              r"concurrency +requests.*\n +1 +\d+ +0 .*\n +8 .*\n +64 ")
        check("bench of errors", hlo("bench", "nobody", "-i", "x=2xf32=1,2", "--requests", "5"), 5,
              err="5 of 5 requests failed, the first with: HTTP status 404")
        check("bench of nothing", hlo("bench", "adder", "--concurrency", "0"), 2,
              err="expected numbers")
        check("top --once", hlo("top", "--once", "--interval", "0.1"), 0,
              r"^hlod .*ready.*\nrequests \d.*\n(.*\n)*cpu:0 +ready +0 ")
        j = json.loads(check("top --once --json",
                             hlo("top", "--once", "--interval", "0.1", "--json"), 0).stdout)
        check("top counts", p, 0 if j["requestsPerS"] > 0 and j["devices"][0][
                  "name"] == "cpu:0" and j["cache"]["executables"] > 1 and j["runs"] else -1)
        slow = model("slow", "compile_ms 2500")
        shown = on_terminal(env, o.build + "/hlo", "compile", slow, "--shape", "x=1x4")
        result("passes are shown on a terminal",
               re.search(rb"compiling for [\d.]+ s: \d passes done, the last was \S+, [\d.]+ ms",
                         shown), shown)
        slow = model("slower", "compile_ms 1500")
        shown = on_terminal(env, o.build + "/hlo", "--quiet", "compile", slow, "--shape", "x=1x4")
        result("and not with --quiet", shown == b"", shown)
        shown = on_terminal({**env, "NO_COLOR": "1"}, o.build + "/hlo", "compile",
                            model("slowest", "compile_ms 1501"), "--shape", "x=1x4")
        result("nor with NO_COLOR", shown == b"", shown)
        for k in range(3, 9):
            p = hlo("compile", good, "--shape", f"x={k}x4")
        check("too many compiles", p, 75, err="COMPILE_RATE")
        env["HLOD_ADDR"] = d.grpc
        check("the gRPC port", hlo("devices"), 69, err="the gRPC port?")
        env["HLOD_ADDR"] = "127.0.0.1:1"
        check("nobody there", hlo("devices"), 69, err="cannot reach hlod")
        env["HLOD_ADDR"] = "nonsense:port"
        check("no address", hlo("devices"), 2, err="HOST:PORT")
        env["HLOD_ADDR"] = "http://%s:%d/" % d.addr
        check("an address as a browser has it", hlo("health"), 0)
        env["HLOD_ADDR"] = "no-such-host.invalid"
        check("an address without a port, of nobody", hlo("devices"), 69,
              err="cannot reach hlod at no-such-host.invalid:8000: .*resolve.*HLOD_ADDR")
        env["HLOD_ADDR"] = "https://%s:%d" % d.addr
        check("no file of authorities", hlo("devices", "--cacert", "/no/such.pem"), 2,
              err="^hlo: /no/such.pem: expected a PEM file")
    finally:
        d.stop()
        shutil.rmtree(d.dir, ignore_errors=True)
    return result.code()

sys.exit(main())
