#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays tests/api/*.http transcripts against a fresh daemon. Standard library only.

A first line `# args --flag value ...` gives the daemon options. A transcript is a list of
exchanges:
    ### what it shows
    POST /v1/run?x=1
    Name: value headers; body after a blank line, {{name}} replaced, {{file:PATH}} = a file's text,
    up to `HTTP`
                                    a body line `repeat N TEXT` is TEXT N times; the header value
                                    FIRST-LINE is the length of the body's first line
    HTTP 200                        then expectations, one a line:
    header Name: REGEX
    body REGEX                      found somewhere in the body
    json a.b.0 = VALUE              JSON value at the path, of the whole body
    line KIND an ndjson line with this key; `line KIND a.b = VALUE` checks inside save name a.b
    keeps a JSON value for {{name}}
Usage: run.py --hlod BIN --worker BIN FILE...
"""
import argparse, json, os, re, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon

def at(value, path):
    for part in path.split(".") if path else []:
        value = value[int(part)] if isinstance(value, list) else value[part]
    return value

def parse(text):
    """[(line number, title, verb, target, headers, body lines, expectations)]"""
    out, state = [], None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("### "):
            out.append([number, line[4:], None, None, {}, [], []])
            state = "request"
        elif state == "request" and line.strip():
            out[-1][2], out[-1][3] = line.split(" ", 1)
            state = "headers"
        elif line.startswith("HTTP ") and state in ("headers", "body"):
            out[-1][6].append((number, line))
            state = "expect"
        elif state == "headers" and not line.strip():
            state = "body"
        elif state == "headers":
            name, value = line.split(":", 1)
            out[-1][4][name.strip()] = value.strip()
        elif state == "body":
            out[-1][5].append(line)
        elif state == "expect" and line.strip():
            out[-1][6].append((number, line.strip()))
    return out

def play(daemon, path, saved):
    bad = 0
    exchanges = parse(open(path).read())
    if not exchanges:
        print(f"{path}: no exchanges")
        return 1, 0
    def fill(s):
        s = re.sub(r"\{\{file:([^}]+)\}\}", lambda m: open(m.group(1)).read(), s)
        return re.sub(r"\{\{(\w+)\}\}", lambda m: str(saved[m.group(1)]), s)
    for number, title, verb, target, headers, lines, expect in exchanges:
        try:
            while lines and not lines[-1]:
                lines.pop()
            body = "\n".join(fill(l) for l in lines)
            body = re.sub(r"^repeat (\d+) (.*)$", lambda m: m.group(2) * int(m.group(1)), body,
                          flags=re.M)
            if headers.get("Inference-Header-Content-Length") == "FIRST-LINE":
                headers["Inference-Header-Content-Length"] = str(body.index("\n") + 1)
            status, got, text = daemon.call(verb, fill(target), body.encode() if lines else None,
                                            {k: fill(v) for k, v in headers.items()})
            text = text.decode(errors="replace")
            for n, e in expect:
                e = fill(e)
                ok, why = True, ""
                if e.startswith("HTTP "):
                    ok, why = status == int(e[5:]), f"status {status}: {text[:300]}"
                elif e.startswith("header "):
                    name, pattern = e[7:].split(":", 1)
                    ok, why = (re.search(pattern.strip(), got.get(name.lower(), "")) is not None,
                               f"header is '{got.get(name.lower())}'")
                elif e.startswith("body "):
                    ok, why = re.search(e[5:], text) is not None, text[:400]
                elif e.startswith("json "):
                    where, want = e[5:].split(" = ", 1)
                    value = at(json.loads(text), where)
                    ok, why = value == json.loads(want), f"value is {json.dumps(value)}"
                elif e.startswith("line "):
                    part = e[5:].split(" ", 1)
                    rows = [json.loads(l)[part[0]] for l in text.split("\n")
                            if l.strip() and part[0] in json.loads(l)]
                    ok, why = bool(rows), text[:600]
                    if ok and len(part) > 1:
                        where, want = part[1].split(" = ", 1)
                        ok, why = any(at(r, where) == json.loads(want)
                                      for r in rows), json.dumps(rows)[:400]
                elif e.startswith("save "):
                    _, name, where = e.split(" ")
                    saved[name] = at(json.loads(text), where)
                else:
                    ok, why = False, "no such expectation"
                if not ok:
                    bad += 1
                    print(f"{path}:{n}: {title}: expected `{e}`; {why}")
        except Exception as x:
            bad += 1
            print(f"{path}:{number}: {title}: {type(x).__name__}: {x}")
    return bad, len(exchanges)

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--hlod", required=True)
    a.add_argument("--worker", required=True)
    a.add_argument("files", nargs="+")
    o = a.parse_args()
    bad = total = 0
    for path in o.files:
        first = open(path).readline()
        d = Daemon(o.hlod, o.worker, args=first[7:].split() if first.startswith("# args ") else ())
        b, n = play(d, path, {})
        if d.p.poll() is not None:
            print(f"{path}: the daemon died ({d.p.returncode})")
            b += 1
        elif d.stop() != 0:
            print(f"{path}: the daemon did not end cleanly")
            b += 1
        bad, total = bad + b, total + n
    print(f"api: {total} exchanges, {bad} failures")
    return 1 if bad or not total else 0

if __name__ == "__main__":
    sys.exit(main())
