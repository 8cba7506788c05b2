#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The dashboard in headless Chromium, by WebDriver: what it shows against what the API says,
keyboard, names and contrast for screen readers and eyes, the policy, tokens. Screenshots in light
and dark, wide and narrow go to build/dashboard, for a person to look at. Needs chromium-driver (sh
deploy/setup.sh dashboard). Usage: dashboard.py BUILD"""
import base64, os, re, struct, subprocess, sys, tempfile, time
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..")]
from browser import Browser
from harness import Daemon, Results

build = sys.argv[1]
out = "build/dashboard"
os.makedirs(out, exist_ok=True)
result = Results()

def train(d):
    """A small network on digits, 60 steps: the job's id, once it has a curve."""
    subprocess.run(["build/venv/bin/python", "-c",
                    "import sys; sys.path.insert(0, 'tests/models'); import digits; "
                    "digits.write(sys.argv[1])", d.dir], check=True)
    p = subprocess.run([build + "/hlo", "train", d.dir + "/digits.onnx", "--loss",
                        "softmax-cross-entropy", "-d", f"image=@{d.dir}/image.npy", "-d",
                        f"label=@{d.dir}/label.npy", "--validate",
                        f"image=@{d.dir}/held_image.npy", "--validate",
                        f"label=@{d.dir}/held_label.npy", "--optimizer", "adam", "--batch", "64",
                        "--steps", "60", "--job", "--detach"], capture_output=True, text=True,
                       env={**os.environ, "HLOD_ADDR": "%s:%d" % d.addr}, check=True)
    return p.stdout.strip()

TAB, DOWN, ENTER, END = "\ue004", "\ue015", "\ue007", "\ue010"

# Every control has a name; every picture is named or hidden; headings do not skip; ids are unique;
# table heads have a scope.
ACCESSIBLE = """
const seen = e => { const r = e.getBoundingClientRect(); return r.width > 0 && r.height > 0 && !e.closest('[aria-hidden=true]'); };
const name = e => (e.getAttribute('aria-label') || (e.getAttribute('aria-labelledby') || '').split(' ').map(i => document.getElementById(i)?.textContent || '').join('') || e.labels?.[0]?.textContent || e.textContent || e.title || '').trim();
const out = [];
for (const e of document.querySelectorAll('a,button,input,select,[role=button],[role=region],[role=group],section,nav,dialog')) if (seen(e) && !name(e)) out.push('no name: ' + e.outerHTML.slice(0, 120));
for (const e of document.querySelectorAll('svg')) if (seen(e) && !e.closest('[role]') && !e.querySelector('[role]')) out.push('a picture without a name: ' + e.outerHTML.slice(0, 80));
const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
for (const i of new Set(ids)) if (ids.filter(x => x === i).length > 1) out.push('id twice: ' + i);
for (const e of document.querySelectorAll('th')) if (!e.scope) out.push('th without scope');
for (const e of document.querySelectorAll('table')) if (!e.caption || !e.caption.textContent) out.push('table without caption');
if (document.querySelectorAll('h1').length !== 1) out.push('h1: ' + document.querySelectorAll('h1').length);
let level = 1;
for (const e of document.querySelectorAll('h1,h2,h3')) { const l = Number(e.tagName[1]); if (l > level + 1) out.push('heading skips: ' + e.textContent); level = l; }
if (document.documentElement.lang !== 'en' || !document.querySelector('main') || !document.title) out.push('lang, main, title');
return out;"""
# Contrast of every text against what is behind it (WCAG 2.2 AA: 4.5, large text 3).
CONTRAST = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = c => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
const lum = c => { const [r, g, b] = c.map(x => { x /= 255; return x <= .04045 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4; }); return .2126 * r + .7152 * g + .0722 * b; };
const behind = e => { const stack = []; for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor); if (c[3]) stack.push(c); if (c[3] === 255) break; } let under = [255, 255, 255]; for (const c of stack.reverse()) under = under.map((v, k) => c[k] * c[3] / 255 + v * (1 - c[3] / 255)); return under; };
const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
let n = 0;
while (walk.nextNode()) {
  const e = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
  if (!text || e.closest('svg,script,noscript,.hidden,option,button:disabled') || !e.getClientRects().length) continue;
  const style = getComputedStyle(e), a = lum(rgba(style.color).slice(0, 3)), b = lum(behind(e)), ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
  n++;
  if (ratio < (parseFloat(style.fontSize) >= 24 ? 3 : 4.5)) out.push(ratio.toFixed(2) + ' ' + text.slice(0, 40) + ' ' + style.color);
}
return n < 10 ? ['only ' + n + ' texts'] : [...new Set(out)];"""
# Text in boxes of the graph stays in them; nothing makes the page wider than the window.
FITS = """
const out = [];
for (const g of document.querySelectorAll('.node')) { const box = g.querySelector('rect.box').getBBox(); for (const t of g.querySelectorAll('text')) if (t.getBBox().x + t.getBBox().width > box.width - 1) out.push(t.textContent); }
if (document.documentElement.scrollWidth > innerWidth) out.push('page: ' + document.documentElement.scrollWidth + ' > ' + innerWidth);
return out;"""

# Nothing is cut: every box of text lies in the window and in its card, no table is wider than its
# card, no word of letters is broken in two.
CUT_OFF = """
const out = [], shown = e => { const r = e.getBoundingClientRect(); return r.width > 1 && r.height > 1 && !e.closest('.hidden,.skip,.canvas,.timeline,pre,svg,dialog'); };
for (const e of document.querySelectorAll('.scroll')) if (shown(e) && e.scrollWidth > e.clientWidth + 1) out.push('table ' + e.innerText.slice(0, 50) + ': ' + e.scrollWidth + ' > ' + e.clientWidth);
for (const e of document.querySelectorAll('th,td,.state,.pill,button,select,input,textarea,h1,h2,h3,a,dt,dd,p,.label,.value,.legend span')) {
  if (!shown(e)) continue;
  const r = e.getBoundingClientRect(), card = e.closest('.card')?.getBoundingClientRect() || { left: 0, right: innerWidth };
  if (r.left < Math.max(0, card.left) - 1 || r.right > Math.min(innerWidth, card.right) + 1) out.push(e.tagName + ' ' + e.textContent.slice(0, 30) + ': ' + Math.round(r.left) + '..' + Math.round(r.right));
  if (getComputedStyle(e).overflow !== 'visible' && e.tagName !== 'SELECT' && e.scrollWidth > e.clientWidth + 1 && !/INPUT|TEXTAREA/.test(e.tagName)) out.push('inside ' + e.textContent.slice(0, 30));
}
const walk = document.createTreeWalker(document.getElementById('main'), NodeFilter.SHOW_TEXT), range = document.createRange();
while (walk.nextNode()) {
  const n = walk.currentNode;
  if (!shown(n.parentElement)) continue;
  for (const m of n.textContent.matchAll(/[A-Za-z]{2,14}/g)) {
    range.setStart(n, m.index); range.setEnd(n, m.index + m[0].length);
    const lines = new Set([...range.getClientRects()].filter(r => r.width > 0.5).map(r => Math.round(r.top)));
    if (lines.size > 1 && !n.parentElement.closest('code,.mono,b,dd')) out.push('word in two: ' + m[0]);
  }
}
if (document.documentElement.scrollWidth > innerWidth) out.push('page: ' + document.documentElement.scrollWidth + ' > ' + innerWidth);
return [...new Set(out)].slice(0, 12);"""

MODEL = """HloModule two
act {
  a = f32[64] parameter(0)
  e = f32[64] exponential(a)
  ROOT t = f32[64] tanh(e)
}
ENTRY main {
  x = f32[32,64] parameter(0)
  w = f32[64,64] parameter(1)
  d = f32[32,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[32,64] tanh(d), metadata={op_name="<img src=x onerror=alert(1)>"}
  s = f32[32,64] sine(d)
  m = f32[32,64] multiply(t, s)
  z = f32[] constant(0)
  u = f32[32,64] subtract(m, x)
  d2 = f32[32,64] dot(u, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[32,64], f32[32,64]) tuple(d2, m)
}
"""

d = Daemon(build + "/hlod", build + "/hlod-worker")
url = "http://%s:%d/" % d.addr
b = Browser()
try:
    status, c = d.json("POST", "/v1/executables", MODEL, {"Content-Type": "text/x-hlo"})
    assert status == 200, c
    digest = c["digest"]
    d.json("POST", "/v1/models", {"name": "two", "model": c["sourceDigest"]})
    b.go(url)
    b.page("#/")
    text = b.js("return document.getElementById('main').innerText")
    device = d.json("GET", "/v1/devices")[1]["devices"][0]
    result("overview: devices, runs and models are those of the API",
           device["name"] in text and device[
               "targetId"] in text and "compile" in text and "two:1" in text, text)
    b.wait("return document.querySelectorAll('.tile polyline')[0].getAttribute('points').split(' "
           "').length >= 2")
    result("overview is live", True)

    b.page("#/executables")
    row = b.js("return document.querySelector('tbody tr').innerText")
    result("executables: counts before and after",
           str(c["executable"]["before"]["entry"]) in row and str(
               c["executable"]["after"]["entry"]) in row, row)

    b.page("#/executables/" + digest)
    b.wait("return document.querySelectorAll('.node').length")
    after = d.call("GET", f"/v1/executables/{digest}/stage/hlo-after")[2].decode()
    entry = re.findall(r"^  (?:ROOT )?%(\S+) = (?:\([^)]*\)|\S+) ([\w-]+)\(",
                       after[after.index("ENTRY"):], re.M)
    want = [n for n, op in entry
            if op not in ("parameter", "constant", "get-tuple-element", "tuple")]
    got = b.js("return [...document.querySelectorAll('.node')].map(e => "
               "e.getAttribute('aria-label').split(',')[0])")
    result("the graph has the entry computation's instructions",
           sorted(got) == sorted(want) and want, (got, want))
    parsed = b.js("const m = parseHlo(arguments[0]); return [m.entry, "
                  "[...m.computations.values()].map(c => [c.name, c.instructions.map(i => "
                  "i.name)])]", after)
    every = re.findall(r"^\s+(?:ROOT )?%(\S+) = ", after, re.M)
    result("the page reads every instruction of the text",
           [i for _, v in parsed[1] for i in v] == every, parsed)
    result("an edge for every operand shown",
           b.js("return document.querySelectorAll('.link').length") >= len(want) - 1)
    result("graph and page fit", b.js(FITS) == [], b.js(FITS))
    b.js("document.querySelector('.canvas').focus()")
    b.keys(DOWN)
    chosen = b.js("return document.activeElement.getAttribute('aria-label')")
    b.keys(END)
    last = b.js("return [document.activeElement.getAttribute('aria-label'), "
                "document.querySelectorAll('.node[aria-pressed=true]').length, "
                "document.querySelector('.side h3').textContent]")
    result("the graph by keyboard",
           chosen and last[0].split(",")[0] == want[-1] == last[2] and last[1] == 1,
           (chosen, last, want))
    shown = b.js("return [...document.querySelectorAll('pre.code')].map(e => e.textContent)")
    before = d.call("GET", f"/v1/executables/{digest}/stage/hlo-before")[2].decode()
    result("HLO before and after, as the API has it",
           shown[0].strip() == before.strip() and shown[1].strip() == after.strip())
    b.js("const s = document.querySelectorAll('.hlo select')[0]; s.value = 'kir'; "
         "s.dispatchEvent(new Event('change'))")
    b.wait("return document.querySelector('pre.code').textContent.length > 5")
    b.js("document.querySelector('.canvas').focus()"); b.keys(END)
    result("what a model says goes in as text, not as markup",
           b.js("return document.querySelectorAll('main img').length") == 0
           and "<img src=x" in b.js("return document.body.textContent"))
    result("another stage",
           b.js("return document.querySelector('pre.code').textContent").strip()
           == d.call("GET", f"/v1/executables/{digest}/stage/kir")[2].decode().strip())
    result("executable: for screen readers", b.js(ACCESSIBLE) == [], b.js(ACCESSIBLE))
    result("executable: contrast", b.js(CONTRAST) == [], b.js(CONTRAST))
    b.resize(1400, 2200)
    b.page("#/executables/" + digest)
    b.wait("return document.querySelectorAll('.node').length")
    b.shot(out + "/executable-light")

    b.js("document.getElementById('main').dataset.ready = ''; "
         "[...document.querySelectorAll('button')].find(x => x.textContent === 'Profile a "
         "run').click()")
    b.wait("return /^#\\/runs\\/\\d+$/.test(document.getElementById('main').dataset.ready) && "
           "document.querySelectorAll('.span').length")
    job = b.js("return location.hash").rsplit("/", 1)[1]
    trace = d.json("GET", f"/v1/runs/{job}/trace")[1]
    steps = [e["name"] for e in trace["traceEvents"] if e.get("cat") == "step"]
    rows = b.js(
        "return [...document.querySelectorAll('tbody tr td:first-child')].map(e => e.textContent)")
    result("a profiled run: its timeline and steps", steps and sorted(rows) == sorted(
               steps) and b.js("return document.querySelectorAll('.span').length") >= len(steps),
           (steps, rows))
    b.js("document.querySelector('.span.k-library, .span.k-kernel').dispatchEvent(new "
         "Event('click'))")
    result("a span tells about itself",
           "nodes:" in b.js("return document.querySelector('.detail').innerText") or "GB/s" in b.js(
               "return document.querySelector('.detail').innerText"),
           b.js("return document.querySelector('.detail').innerText"))
    result("run: for screen readers", b.js(ACCESSIBLE) == [], b.js(ACCESSIBLE))
    b.resize(1400, 1000); b.shot(out + "/run-light")
    for zoom in range(4):
        b.js("document.querySelector('button[aria-label=\"Zoom in\"]').click()")
        cut = b.js("const e = "
                   "document.querySelector('.tick').closest('svg').getBoundingClientRect(); return "
                   "[...document.querySelectorAll('.tick')].filter(t => "
                   "t.getBoundingClientRect().right > e.right + .5).map(t => t.textContent)")
        result(f"no time of the axis is cut, zoom {zoom + 1}", not cut, cut)

    d.json("POST", "/v1/run",
           {"model": "two",
            "inputs": [{"name": "<img src=y>", "dtype": "f32", "shape": [1], "data": [1]}]})
    failed = d.json("GET", "/v1/runs?limit=1")[1]["runs"][0]
    b.page(f"#/runs/{failed['job']}")
    why = b.js("return (document.getElementById('why') || {}).textContent")
    result("a failed run's page says why, as text",
           failed["message"] == why and "<img src=y>" in why and not b.js(
               "return document.querySelectorAll('main img').length"), (failed, why))
    b.page("#/runs")
    result("and the page of runs",
           b.js("return [...document.querySelectorAll('td .clamp')].map(e => e.textContent)")[:1]
           == [why])
    for page in ("#/", "#/executables", "#/runs", "#/jobs"):
        b.page(page)
        result(f"{page}: for screen readers", b.js(ACCESSIBLE) == [], b.js(ACCESSIBLE))
        result(f"{page}: contrast in light", b.js(CONTRAST) == [], b.js(CONTRAST))
    b.page("#/")
    b.shot(out + "/overview-light")
    b.go("about:blank"); b.go(url)
    b.wait("return document.getElementById('main').dataset.ready")
    b.keys(TAB)
    skip = b.js("return document.activeElement.className")
    stops = []
    for _ in range(8):
        b.keys(TAB)
        stops.append(b.js("return document.activeElement.textContent.trim().slice(0, 12)"))
    result("Tab goes through header and page",
           skip == "skip" and stops[1:5] == ["Overview", "Executables", "Runs",
                                             "Jobs"] and "◐" in stops, (skip, stops))
    status, s = d.json(
        "POST", "/v1/jobs",
        {"name": "nightly", "models": [{"name": "two", "model": "two"}], "inputs": [
             {"name": "ones", "inputs": [
                  {"name": n, "dtype": "f32", "shape": list(sh), "raw": base64.b64encode(
                       struct.pack(f"<{sh[0] * sh[1]}f", *[0.01] * (sh[0] * sh[1]))).decode()}
                  for n, sh in (("x", (32, 64)), ("w", (64, 64)))],
              "expect": [{"name": c["executable"]["signature"]["outputs"][1]["name"],
                          "dtype": "f32", "shape": [32, 64], "raw": base64.b64encode(
                              struct.pack("<2048f", *[7.0] * 2048)).decode()}]}]})
    assert status == 200, s
    b.page("#/jobs")
    b.wait("return /failed/.test(document.querySelector('main').innerText) || (route(), false)")
    result("jobs: the suite and its job",
           "nightly" in b.js("return document.querySelector('main').innerText")
           and s["suite"] + ".1" in b.js("return document.querySelector('main').innerText"))
    result("jobs: for screen readers", b.js(ACCESSIBLE) == [], b.js(ACCESSIBLE))
    b.shot(out + "/jobs-light")
    b.page("#/jobs/" + s["suite"] + ".1")
    result("a job: its comparison and log",
           "differs" in b.js("return document.querySelector('main').innerText") and len(
               b.js("return document.querySelector('pre.log').textContent")) > 20,
           b.js("return document.querySelector('main').innerText"))
    result("job: contrast", b.js(CONTRAST) == [], b.js(CONTRAST))
    b.shot(out + "/job-light")
    training = train(d)
    b.page("#/jobs/" + training)
    b.wait("return /passed/.test(document.querySelector('.head .state').textContent) || (route(), "
           "false)")
    text = b.js("return document.querySelector('main').innerText")
    result("a training: steps, checkpoint, model", "60 of 60" in text and "Trained model" in text
           and "examples/s" in text, text)
    label = b.js("return document.querySelector('.curve svg').getAttribute('aria-label')")
    drawn = b.js("return document.querySelector('.curve polyline:last-of-type')"
                 ".getAttribute('points').split(' ').length")
    result("a training: its curve", label.startswith("Loss over 60 steps") and drawn == 60,
           (label, drawn))
    result("a training: contrast", b.js(CONTRAST) == [], b.js(CONTRAST))
    result("a training: for screen readers", b.js(ACCESSIBLE) == [], b.js(ACCESSIBLE))
    b.shot(out + "/training-light")
    b.js("document.querySelector('nav a[data-tab=runs]').focus()")
    b.keys(ENTER)
    b.wait("return document.getElementById('main').dataset.ready === '#/runs'")
    result("Enter follows, and says where one is",
           b.js("return document.querySelector('nav a[aria-current=page]').dataset.tab") == "runs"
           and b.js("return document.getElementById('announce').textContent") == "Runs")
    b.page("#/runs/999999")
    result("a run that is not there",
           "no run has the number"
           in b.js("return document.querySelector('main [role=alert]').textContent"))
    b.js("document.getElementById('theme').click(); document.getElementById('theme').click()")
    for page in ("#/", "#/executables/" + digest, "#/runs/" + job):
        b.page(page)
        result(f"{page[:14]}: contrast in dark",
               b.js("return document.documentElement.dataset.theme") == "dark" and b.js(
                   CONTRAST) == [], b.js(CONTRAST))
    b.shot(out + "/run-dark")
    b.resize(500, 900)
    for page, name in (("#/", "overview"), ("#/executables/" + digest, "executable"),
                       ("#/runs/" + job, "run")):
        b.page(page)
        time.sleep(0.2)
        result(f"{name}: fits a narrow window", b.js(FITS) == [], b.js(FITS))
        b.shot(f"{out}/{name}-dark-narrow")
    d.json("POST", "/v1/run", {"model": "two", "inputs": []})
    d.json("POST", "/v1/executables?model=" + "0" * 64)
    pages = (("#/", "overview"), ("#/executables", "executables"),
             ("#/executables/" + digest, "executable"), ("#/runs", "runs"),
             ("#/runs/" + job, "run"), ("#/jobs", "jobs"), ("#/jobs/" + s["suite"] + ".1", "job"),
             ("#/jobs/" + training, "training"), ("#/try", "try"))
    for colours in "dark", "light":
        b.js("theme(arguments[0])", colours)
        for width in 400, 800, 1280, 1920:
            b.send("POST", "/goog/cdp/execute",
                   {"cmd": "Emulation.setDeviceMetricsOverride",
                    "params": {"width": width, "height": 1000, "deviceScaleFactor": 1,
                               "mobile": False}})
            for page, name in pages:
                b.page(page)
                time.sleep(0.1)
                got = b.js(CUT_OFF)
                result(f"{name}, {width} px, {colours}: nothing is cut", got == [], got)
                if name in ("overview", "run", "try"):
                    b.shot(f"{out}/{name}-{colours}-{width}")
    b.send("POST", "/goog/cdp/execute",
           {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})
    # Try: a named model by numbers, a file with a picture.
    b.resize(1200, 1000)
    b.page("#/try")
    b.js("const e = document.getElementById('try-model'); e.value = 'two:1'; e.dispatchEvent(new "
         "Event('change'))")
    b.wait("return !document.getElementById('try-run').disabled")
    result("try: the model's inputs, with shapes",
           b.js("return [...document.querySelectorAll('.try-input')].map(e => "
                "[e.querySelector('b').textContent, e.querySelector('input').value])")
           == [["x", "32x64"], ["w", "64x64"]])
    b.js("for (const e of document.querySelectorAll('.try-input textarea')) e.value = '0.01'; "
         "document.getElementById('try-run').click()")
    b.wait("return document.querySelectorAll('.try-output').length === 2")
    want = d.json("POST", "/v1/run",
                  {"model": "two",
                   "inputs": [{"name": n, "dtype": "f32", "shape": list(sh),
                               "data": [0.01] * (sh[0] * sh[1])}
                              for n, sh in (("x", (32, 64)), ("w", (64, 64)))]})[1]["outputs"]
    first = b.js("return [...document.querySelectorAll('.try-output .mono')].map(e => "
                 "Number(e.textContent.split(/ +/)[0]))")
    result("try: outputs as the API gives them",
           all(abs(f - o["data"][0]) < 1e-5 * max(1, abs(o["data"][0]))
               for f, o in zip(first, want)), (first, [o["data"][0] for o in want]))
    result("try: times", re.search(r"cpu:0: .*run [\d.]+ .*total [\d.]+ .*seen from here",
                                   b.js("return document.getElementById('try-times').textContent")),
           b.js("return document.getElementById('try-times').textContent"))
    b.wait("return !document.getElementById('try-browser').disabled")
    b.js("document.getElementById('try-browser').click()")
    here = b.wait("const t = document.getElementById('try-here').textContent + document."
                  "getElementById('try-error').textContent; return t.startsWith('the server') ? '' "
                  ": t", seconds=60)
    same = re.match(r"here by wasm: run [\d.]+ \S+ \(median of 5\), loaded in .* · on cpu:0: run "
                    r"[\d.]+ \S+ · results differ by (nothing|[\d.e-]+ at most)$", here)
    result("try: in this browser too, with both times and how far apart",
           same and (same[1] == "nothing" or float(same[1].split()[0]) < 1e-4), here)
    b.js("document.querySelector('.try-input textarea').value = '1, 2'; "
         "document.getElementById('try-run').click()")
    b.wait("return document.getElementById('try-error').textContent")
    result("try: what is wrong with an input is said",
           "2048 numbers are needed, 2 were given"
           in b.js("return document.getElementById('try-error').textContent"))
    picture = os.path.join(d.dir, "mean.hlo")
    open(picture, "w").write("HloModule red\nENTRY e {\n  x = f32[1,3,4,4] parameter(0)\n  s = "
                             "f32[1,1,1,1] slice(x), slice={[0:1], [0:1], [0:1], [0:1]}\n  ROOT r "
                             "= f32[1] reshape(s)\n}\n")
    import zlib
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(
        ">I", zlib.crc32(kind + data))
    open(os.path.join(d.dir, "x.png"), "wb").write(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress((b"\0" + bytes([51, 102, 204]) * 4) * 4))
        + chunk(b"IEND", b""))
    def give(selector, path):
        e = list(b.send("POST", "/element", {"using": "css selector", "value": selector}).values())[
            0]
        b.send("POST", f"/element/{e}/value", {"text": path})
    give("#try-file", picture)
    b.wait("return document.querySelectorAll('.try-input input[type=file]').length === 1")
    give(".try-input input[type=file]", os.path.join(d.dir, "x.png"))
    b.js("document.getElementById('try-run').click()")
    b.wait("return document.querySelectorAll('.try-output').length === 1")
    got = b.js("return document.querySelector('.try-output .mono').textContent")
    result("try: an uploaded model on a picture", abs(float(got) - 0.2) < 0.005, got)
    result("try: a file takes the place of the chosen name",
           b.js("return document.getElementById('try-model').value") == "")
    result("try: for screen readers", b.js(ACCESSIBLE) == [], b.js(ACCESSIBLE))
    result("try: contrast", b.js(CONTRAST) == [], b.js(CONTRAST))
    b.shot(out + "/try-light")
    b.js("theme('dark')")
    b.resize(500, 900)
    long = "n" * 180
    assert d.json("POST", "/v1/models", {"name": long, "model": c["sourceDigest"]})[0] == 200
    CUT = ("return [...document.querySelectorAll('main table')].filter(t => t.offsetWidth > "
           "t.parentElement.clientWidth + 1 && t.innerText.includes(arguments[0])).length")
    for page in ("#/", "#/executables", "#/executables/" + digest):
        b.page(page)
        got = long in b.js("return document.querySelector('main').innerText + "
                           "[...document.querySelectorAll('main [title]')].map(e => "
                           "e.title)"), b.js(FITS), b.js(CUT, long)
        result(f"{page[:14]}: a long name is broken or has its middle left out, and pushes nothing "
               "out", got[0] and got[1:] == ([], 0), got)
    assert d.call("DELETE", "/v1/models/" + long)[0] == 200
    hosts = b.js("return [...new Set(performance.getEntriesByType('resource').map(e => new "
                 "URL(e.name).host))]")
    result("it speaks to its own server only", hosts == ["%s:%d" % d.addr], hosts)
    noise = [x for x in b.log() if "999999/trace" not in x and "/result" not in x and
             "No available adapters" not in x]  # that a browser has no GPU
    result("nothing in the console: no error, no breach of the policy", not noise, noise)
    # A daemon that ends: the page says that what it shows is old, and comes back by itself.
    e = Daemon(build + "/hlod", build + "/hlod-worker", args=())
    here = "%s:%d" % e.addr
    b.go(f"http://{here}/")
    b.wait("return document.getElementById('main').dataset.ready && "
           "document.getElementById('lost').hidden")
    e.stop_keep()
    b.wait("return !document.getElementById('lost').hidden && "
           "document.body.classList.contains('stale')")
    result("a daemon that ended: the page says so",
           here in b.js("return document.getElementById('lost').textContent"))
    b.shot(out + "/lost")
    again = Daemon(build + "/hlod", build + "/hlod-worker", data=e.dir, args=("--http", here))
    b.wait("return document.getElementById('lost').hidden && "
           "!document.body.classList.contains('stale') && "
           "/Devices/.test(document.getElementById('main').innerText)")
    result("and comes back with it", True)
    again.stop_keep()
    e.clean()
    # A server that asks who one is: the page comes, and asks for a token; a wrong one is told so.
    tokens = tempfile.mkdtemp(prefix="hlod-tokens-") + "/tokens"
    said = subprocess.run([build + "/hlo", "tokens", "add", "viewer", "--scopes", "read,jobs",
                           "--file", tokens], capture_output=True, text=True)
    token = re.search(r"\S{20,}", said.stdout).group()
    g = Daemon(build + "/hlod", build + "/hlod-worker", args=("--tokens", tokens))
    try:
        b.resize(1000, 800)
        b.go("http://%s:%d/" % g.addr)
        b.wait("return document.getElementById('login').open")
        result("with tokens: the page asks for one",
               "Last runs" not in b.js("return document.getElementById('main').innerText")
               and b.js("return document.activeElement.id") == "token")
        result("with tokens: contrast of the question",
               b.js(CONTRAST.replace("n < 10", "n < 5")) == [],
               b.js(CONTRAST.replace("n < 10", "n < 5")))
        b.shot(out + "/login")
        b.keys("nonsense" + ENTER)
        b.wait("return document.getElementById('login').open && "
               "document.getElementById('login-error').textContent")
        b.keys(token + ENTER)
        b.wait("return !document.getElementById('login').open && /Last "
               "runs/.test(document.getElementById('main').innerText)")
        result("with tokens: a right one opens it", True)
    finally:
        g.stop()
finally:
    b.stop()
    d.stop()
sys.exit(result.code())
