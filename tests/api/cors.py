#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--cors-origin by curl, as a browser asks: preflight, replies, refusals; no cookies, no foreign
Host. cors.py BUILD"""
import os, re, subprocess, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import Daemon, Results

result = Results()
APP, OTHER = "https://app.example.org", "https://evil.example.org"

def main():
    build = sys.argv[1]
    def curl(d, *words, host=None):
        p = subprocess.run(["curl", "-s", "-i", "--max-time", "20", *words, "-H",
                            "Host: " + (host or "%s:%d" % d.addr),
                            "http://%s:%d/v1/version" % d.addr], capture_output=True, text=True)
        head = p.stdout.split("\r\n\r\n")[0]
        return int(head.split()[1]), {k.lower(): v
                                      for k, v in re.findall(r"^([\w-]+): (.*?)\r?$", head, re.M)}
    def preflight(d, origin, **more):
        return curl(d, "-X", "OPTIONS", "-H", "Origin: " + origin, "-H",
                    "Access-Control-Request-Method: POST", "-H",
                    "Access-Control-Request-Headers: authorization,content-type", **more)
    def no_cookies(head):
        return "access-control-allow-credentials" not in head
    d = Daemon(build + "/hlod", build + "/hlod-worker",
               args=("--cors-origin", APP + ",http://localhost:5173"))
    try:
        code, head = preflight(d, APP)
        result(
            "preflight of a page that is named",
            code == 204 and head.get("access-control-allow-origin") == APP and "POST" in head[
                "access-control-allow-methods"] and "Authorization" in head[
                "access-control-allow-headers"] and head.get("vary") == "Origin" and no_cookies(
                head), (code, head))
        code, head = preflight(d, OTHER)
        result("preflight of another", code != 204 and "access-control-allow-origin" not in head,
               (code, head))
        code, head = curl(d, "-H", "Origin: " + APP)
        result(
            "a reply to a page that is named", code == 200 and head.get(
                "access-control-allow-origin") == APP and "Inference-Header-Content-Length" in head[
                "access-control-expose-headers"] and no_cookies(head), (code, head))
        code, head = curl(d, "-H", "Origin: " + OTHER)
        result("another is refused", code == 403 and "access-control-allow-origin" not in head,
               (code, head))
        for near in APP + ".evil.org", APP + ":444", "http://app.example.org", "null", APP + "/":
            code, head = curl(d, "-H", "Origin: " + near)
            result("refused: " + near, code == 403 and "access-control-allow-origin" not in head,
                   (code, head))
        code, head = curl(d, "-H", "Origin: " + APP, host="rebound.example.org")
        result("a foreign Host is refused all the same", code == 403, (code, head))
        code, head = curl(d)
        result("without an Origin nothing changes",
               code == 200 and "access-control-allow-origin" not in head, (code, head))
    finally:
        d.stop()
    tokens = d.dir + "-tokens"
    token = re.search(r"\S{20,}",
                      subprocess.run([build + "/hlo", "tokens", "add", "page", "--file", tokens],
                                     capture_output=True, text=True).stdout).group()
    d = Daemon(build + "/hlod", build + "/hlod-worker",
               args=("--cors-origin", "*", "--tokens", tokens))
    try:
        code, head = preflight(d, OTHER)
        result("any page: preflight needs no token",
               code == 204 and head.get("access-control-allow-origin") == "*" and no_cookies(head),
               (code, head))
        def devices(*words):
            p = subprocess.run(["curl", "-s", "-i", *words, "-H", "Origin: " + OTHER,
                                "http://%s:%d/v1/devices" % d.addr], capture_output=True, text=True)
            return int(p.stdout.split()[1]), p.stdout.lower()
        code, text = devices()
        result("but its request does, and the page may read the refusal",
               code == 401 and "access-control-allow-origin: *" in text, (code, text))
        code, text = devices("-H", "Cookie: token=" + token)
        result("no cookie opens it", code == 401, (code, text))
        code, text = devices("-H", "Authorization: Bearer " + token)
        result("its token does", code == 200 and "access-control-allow-origin: *" in text,
               (code, text))
    finally:
        d.stop()
        os.remove(tokens)
    d = Daemon(build + "/hlod", build + "/hlod-worker")
    try:
        code, head = preflight(d, APP)
        result("without the option: no preflight, no header",
               code not in (200, 204) and not any(k.startswith("access-control") for k in head),
               (code, head))
    finally:
        d.stop()
    for bad in "app.example.org", "https://app.example.org/", "https://*.example.org":
        p = subprocess.run([build + "/hlod", "--cors-origin", bad, "--check-config", "--data",
                            d.dir], capture_output=True, text=True)
        result("not an origin: " + bad, p.returncode != 0 and "--cors-origin" in p.stderr, p.stderr)
    return result.code()

sys.exit(main())
