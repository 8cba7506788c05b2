# SPDX-License-Identifier: Apache-2.0
"""ONNX's backend cases over the network: every model POSTed to one running hlod, run on the case's
inputs, compared with the expected outputs.

    run_onnx.py BUILD [--suites node,simple,light] [--family F] [--filter REGEX] [--list FILE]
    [--list-failed] [--json FILE] [--jobs 2] [--no-ort]

passed: every data set gives the expected outputs (onnx's tolerances, rtol 1e-3, atol 1e-7; drawn
numbers by type, shape and mean).
corrected: the values differ from the case's expected ones, but a later release of onnx, on the same
model and inputs, gives ours: the expected ones were wrong (later_side.py; Attention's split of 3-D
inputs, order of grouped heads and place of the softcap; QLinearMatMul's saturation; casts out of
the range of a 4-bit integer; Adam's epsilon, which its case forgot). An element that is nothing but
rounding beside the largest of its tensor equals another that is, too.
refused: a 4xx or 501 with a reason.   failed: a wrong result otherwise, a 5xx, a lost connection.
ONNX Runtime's column is counted in the same run by direct InferenceSession (ort_side.py), on the
same cases with the same comparison.
--pick N prints N of the cases that passed, spread over families by a fixed rule: how
tests/conform/onnx_cases.txt is made.
--list FILE: only the cases named in FILE, one "suite/name" a line, all of which must pass; prints
PASS and FAIL lines (this is what `make check` runs).
"""
import argparse
import collections
import hashlib
import http.client
import json
import os
import pickle
import queue
import re
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[0] = HERE
sys.path.insert(1, os.path.join(HERE, "..", "models"))
import cases as K  # noqa: E402
import daemon  # noqa: E402

LATER = {"UNBOUND_DIM", "UNBOUND_VALUE"}  # the run will say the rest


class Client(threading.local):
    """One connection per thread, kept open."""

    def __init__(self, addr):
        self.addr, self.c = addr, None

    def call(self, method, path, body, headers):
        for again in (True, False):
            if self.c is None:
                self.c = http.client.HTTPConnection(*self.addr, timeout=600)
            try:
                self.c.request(method, path, body, headers)
                r = self.c.getresponse()
                return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # an idle connection may have been closed; one that failed twice is a failure
                self.c = None
                if not again:
                    raise
            except Exception:
                self.c = None
                raise


class Outcome(Exception):
    def __init__(self, kind, why):
        super().__init__(why)
        self.kind, self.why = kind, why


def refusal(status, body):
    try:
        e = json.loads(body)
    except ValueError:
        e = {"message": body[:200].decode("latin1")}
    reason, text = e.get("reason", ""), "%d %s: %s" % (
        status, e.get("reason", ""),
        e.get("message", "")) + "".join("\n    " + d for d in e.get("details", [])[:6])
    if 400 <= status < 500 and status not in (408, 429, 499) or status == 501:
        return Outcome("refused" if e.get("message") else "failed", text), reason
    return Outcome("failed", text), reason


def flatten(name, v):
    """A sequence travels as its elements: x[0], x[1], ..."""
    if isinstance(v, list):
        return [t for k, x in enumerate(v) for t in flatten("%s[%d]" % (name, k), x)]
    return [] if v is None else [(name, v)]


def gather(name, want, got):
    """The value of output `name` from the flat names of the reply."""
    if name in got:
        return got[name]
    parts = []
    while ("%s[%d]" % (name, len(parts)) in got
           or any(k.startswith("%s[%d]" % (name, len(parts))) for k in got)):
        parts.append(gather("%s[%d]" % (name, len(parts)), None, got))
    if parts or isinstance(want, list):
        return parts
    return None


def run_one(client, case):
    """None, or raises Outcome."""
    with open(case.path, "rb") as f:
        model = f.read()
    digest = hashlib.sha256(model).hexdigest()
    first, wrong, results = True, None, []
    for ins, want in case.sets():
        flat = [t for n, v in ins.items() for t in flatten(n, v)]
        if first:
            q = "&".join("shape=%s=%s" % (re.sub(r"[^A-Za-z0-9_.-]", lambda m: "%%%02X" % ord(m[0]),
                                                 n), "x".join(map(str, v.array.shape)))
                         for n, v in flat)
            status, _, body = client.call("POST", "/v1/executables?" + q, model,
                                          {"Content-Type": "application/onnx"})
            if status >= 300:
                e, reason = refusal(status, body)
                if reason not in LATER:
                    raise e
            first = False
        data = [v.wire() for _, v in flat]
        head = json.dumps({"model": digest,
                           "inputs": [{"name": n, "dtype": v.dtype, "shape": list(v.array.shape),
                                       "parameters": {"binary_data_size": len(b)}}
                                      for (n, v), b in zip(flat, data)]}).encode()
        body = head + b"".join(data)
        status, h, reply = client.call("POST", "/v1/run", body,
                                       {"Inference-Header-Content-Length": str(len(head)),
                                        "Content-Type": "application/octet-stream",
                                        "Accept": "application/octet-stream"})
        if status >= 300:
            raise refusal(status, reply)[0]
        n = int(h["inference-header-content-length"])
        info, at, got = json.loads(reply[:n]), n, {}
        for o in info["outputs"]:
            size = o["parameters"]["binary_data_size"]
            dtype = (o.get("dtype")
                     or {v: K.NUMPY[k] for k, v in daemon.NAMES.items()}[o["datatype"]])
            got[o["name"]] = K.Tensor.from_wire(dtype, o["shape"], reply[at:at + size])
            at += size
        names = [o.name for o in case.model.graph.output]
        results.append([gather(name, w, got) for name, w in zip(names, want)])
        for name, w, g in zip(names, want, results[-1]):
            why = K.compare(g, w, K.is_random(case))
            wrong = wrong or why and "output '%s': %s" % (name, why)
    if wrong:
        case.results = results
        raise Outcome("failed", wrong)


def network(build, todo, jobs, args=()):
    """case -> (kind, why)."""
    os.environ.setdefault("HLOD_COMPILE_RATE", "0")
    results, work = {}, queue.Queue()
    for c in todo:
        work.put(c)
    with daemon.Daemon(build, args=args) as d:
        client = Client(d.addr)

        def serve():
            while True:
                try:
                    case = work.get_nowait()
                except queue.Empty:
                    return
                t = time.monotonic()
                try:
                    run_one(client, case)
                    results[case] = ("passed", "")
                except Outcome as e:
                    results[case] = (e.kind, e.why)
                # a lost connection, a reply that cannot be read
                except Exception as e:  # noqa: BLE001
                    results[case] = ("failed", "%s: %s" % (type(e).__name__, e))
                case.seconds = time.monotonic() - t
                case.family_name = case.family()
                case.forget()

        threads = [threading.Thread(target=serve) for _ in range(jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if d.p.poll() is not None:
            print("the daemon ended with %d during the run" % d.p.returncode)
    return results


def corrected(ours, folder):
    """Of what failed, what a later onnx says as we do becomes "corrected"."""
    todo = [c for c in ours if ours[c][0] == "failed" and getattr(c, "results", None)]
    if not todo:
        return
    if not os.path.isdir(folder):
        print("%s is not there (sh deploy/setup.sh): what later releases of onnx corrected counts "
              "as failed" % folder)
        return
    with tempfile.NamedTemporaryFile() as f:
        child = subprocess.Popen([sys.executable, os.path.join(HERE, "later_side.py"), folder],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for c in todo:
            f.seek(0)
            f.truncate()
            pickle.dump(c.results, f)
            f.flush()
            child.stdin.write("%s %s %s\n" % (c.suite, c.name, f.name))
            child.stdin.flush()
            answer = json.loads(child.stdout.readline()
                                or '{"same": false, "why": "the process died"}')
            ours[c] = (("corrected", ours[c][1]) if answer["same"]
                       else ("failed", "%s; later onnx: %s" % (ours[c][1], answer["why"])))
        child.stdin.close()
        child.wait()


def onnxruntime(todo, ours):
    """case -> (passed?, why), from a child process that is started again where it dies."""
    results, child = {}, None
    for c in todo:
        if child is None:
            child = subprocess.Popen([sys.executable, os.path.join(HERE, "ort_side.py")],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.DEVNULL, text=True)
        try:
            child.stdin.write("%s %s\n" % (c.suite, c.name))
            child.stdin.flush()
            line = child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            child.wait()
            results[c], child = (False, "the process died"), None
            continue
        a = json.loads(line)
        results[c] = (a["ok"], a["why"])
    if child:
        child.stdin.close()
        child.wait()
    return results


def table(ours, theirs):
    rows = collections.OrderedDict()
    for c in sorted(ours, key=lambda c: (c.suite, c.family_name)):
        key = c.family_name if c.suite == "node" else c.suite + "/"
        r = rows.setdefault(key, collections.Counter())
        r["cases"] += 1
        r[ours[c][0]] += 1
        r["ort"] += bool(theirs and theirs[c][0])
    total = collections.Counter()
    for r in rows.values():
        total.update(r)
    head = "%-24s %6s %7s %9s %7s %7s" % ("family", "cases", "passed", "corrected", "failed",
                                          "refused") + (" %12s" % "ONNX Runtime" if theirs else "")
    lines = [head, "-" * len(head)]
    for name, r in list(rows.items()) + [("total", total)]:
        lines.append("%-24s %6d %7d %9d %7d %7d"
                     % (name, r["cases"], r["passed"], r["corrected"], r["failed"], r["refused"])
                     + (" %12d" % r["ort"] if theirs else ""))
    return "\n".join(lines)


def pick(ours, count):
    """About `count` names of cases that passed quickly: every family gets its share, evenly spaced
    in the order of names."""
    families = collections.defaultdict(list)
    for c in sorted(ours, key=repr):
        if ours[c][0] == "passed" and c.suite in ("node", "simple"):
            families[c.family_name].append(repr(c))
    share, rest, left = {}, count, len(families)
    for f, names in sorted(families.items(), key=lambda x: (len(x[1]), x[0])):
        share[f] = min(len(names), rest // left)
        rest, left = rest - share[f], left - 1
    return sorted(families[f][k * len(families[f]) // n] for f, n in share.items()
                  for k in range(n))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("build")
    p.add_argument("--data", metavar="FOLDER", help="backend/test/data of another release of onnx")
    p.add_argument("--later", default="build/onnx-later", help="a later release of onnx")
    p.add_argument("--suites", default="node,simple,light", help="of " + ", ".join(K.SUITES))
    p.add_argument("--family")
    p.add_argument("--filter", help="regular expression over case names")
    p.add_argument("--list", help="file of cases that must pass")
    p.add_argument("--list-failed", action="store_true",
                   help="each case that did not pass, with why")
    p.add_argument("--json")
    p.add_argument("--pick", type=int, metavar="N")
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--no-ort", action="store_true")
    p.add_argument("--daemon", default="", help="further options of hlod, with spaces between")
    p.add_argument("--every", type=int, default=1, metavar="N",
                   help="of the cases of --list, each N-th")
    a = p.parse_args()
    K.DATA = a.data or K.DATA
    todo = K.find(a.suites.split(",") if not a.list else list(K.SUITES))
    if a.list:
        with open(a.list) as f:
            want = set(sorted({x.split("#")[0].strip() for x in f} - {""})[::a.every])
        todo = [c for c in todo if repr(c) in want]
        for missing in sorted(want - {repr(c) for c in todo}):
            print("FAIL %s: there is no such case" % missing)
    if a.filter:
        todo = [c for c in todo if re.search(a.filter, c.name)]
    if a.family:
        todo = [c for c in todo if a.family in c.family()]
    start = time.monotonic()
    ours = network(a.build, todo, a.jobs, a.daemon.split())
    took = time.monotonic() - start
    corrected(ours, a.later)
    if a.list:
        for c in todo:
            print("PASS %s" % c if ours[c][0] == "passed"
                  else "FAIL %s: %s: %s" % (c, ours[c][0], ours[c][1]))
        return 0 if all(k == "passed" for k, _ in ours.values()) else 1
    theirs = None if a.no_ort else onnxruntime(todo, ours)
    if a.list_failed:
        for c in todo:
            if ours[c][0] != "passed":
                print("%-8s %s%s: %s"
                      % (ours[c][0], c, "" if not theirs else " (ONNX Runtime %s)" % (
                             "passes" if theirs[c][0] else "does not pass"), ours[c][1]))
        print()
    if a.pick:
        print("\n".join(pick(ours, a.pick)))
        return 0
    if a.json:
        with open(a.json, "w") as f:
            json.dump([{"case": repr(c), "family": c.family_name, "result": ours[c][0],
                        "why": ours[c][1], "seconds": round(c.seconds, 4),
                        "ort": theirs and theirs[c][0], "ort_why": theirs and theirs[c][1]}
                       for c in todo], f, indent=1)
    print(table(ours, theirs))
    print("%d cases over HTTP in %.1f s" % (len(todo), took))
    return 1 if any(k == "failed" for k, _ in ours.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
