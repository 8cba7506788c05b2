// SPDX-License-Identifier: Apache-2.0
// The dashboard: reads the public API and nothing else. Pages are by the part behind '#'; each has a function that fills <main>, and may ask to be called again
// every two seconds while it is in view. Everything from the server goes in as text, never as markup. Needs no storage but the choice of colours and, for this tab, a token.
"use strict";

// ---- small things

// Texts come from models and other clients: what moves its neighbours or is not seen is shown by number, as base/text.h has it.
const unseen = /(?![\n\t ])[\p{Cc}\p{Bidi_Control}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\u2800\ufff9-\ufffb]/gu;
const shown = x => String(x).replace(unseen, c => "\\u{" + c.codePointAt(0).toString(16) + "}");
const SVG = "http://www.w3.org/2000/svg";
function make(create, tag, attrs, children) {
  const e = create(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v === null || v === undefined || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "text") e.textContent = shown(v);
    else if (k === "width%") e.style.width = v + "%";
    else e.setAttribute(k, v === true ? "" : v);
  }
  for (const c of children.flat(4)) if (c !== null && c !== undefined && c !== false) e.append(typeof c === "string" ? shown(c) : c);
  return e;
}
const h = (tag, attrs, ...children) => make(t => document.createElement(t), tag, attrs, children);
const s = (tag, attrs, ...children) => make(t => document.createElementNS(SVG, t), tag, attrs, children);
const fill = (e, ...children) => { e.replaceChildren(); return make(() => e, "", null, children); };
const $ = id => document.getElementById(id);

const number = v => Number(v || 0);
const count = v => number(v).toLocaleString("en");
const short = d => (d || "").slice(0, 12);
function bytes(v) {
  v = number(v);
  for (const u of ["B", "kB", "MB", "GB"]) { if (v < 999.5 || u === "GB") return (v < 10 && u !== "B" ? v.toFixed(1) : v.toFixed(0)) + " " + u; v /= 1000; }
}
const ms = v => { v = number(v); return v === 0 ? "0 ms" : v < 0.1 ? (v * 1000).toFixed(1) + " µs" : v < 10 ? v.toFixed(2) + " ms" : v < 1000 ? v.toFixed(1) + " ms" : (v / 1000).toFixed(2) + " s"; };
function ago(text) {
  const t = (Date.now() - Date.parse(text)) / 1000;
  return !text ? "" : t < 2 ? "now" : t < 90 ? Math.round(t) + " s ago" : t < 5400 ? Math.round(t / 60) + " min ago" : t < 130000 ? Math.round(t / 3600) + " h ago" : text.slice(0, 10);
}
function duration(t) {
  t = number(t);
  return t < 90 ? Math.round(t) + " s" : t < 5400 ? Math.round(t / 60) + " min" : t < 130000 ? (t / 3600).toFixed(1) + " h" : (t / 86400).toFixed(1) + " days";
}
const shapeText = t => t.dtype + "[" + (t.unknownRank ? "?" : (t.dims || []).map(d => d.symbol || number(d.size)).join(",")) + "]";
// What runs a step, as one of five kinds; also in words, so that colour is never alone.
const KINDS = { library: "library", kernel: "generated kernel", reference: "reference evaluator", control: "control flow", other: "other" };
function kindOf(impl) {
  return !impl ? "other" : /^(onednn|library)/.test(impl) ? "library" : /^(kernel|update)/.test(impl) ? "kernel" : /^reference/.test(impl) ? "reference" : /^control/.test(impl) ? "control" : "other";
}
const legend = kinds => h("div", { class: "legend" }, kinds.map(k => h("span", null, h("i", { class: "k-" + k }), KINDS[k] || k)));

// ---- the API

class Refused extends Error {
  constructor(code, text) { super(text); this.code = code; }
}
let token = sessionStorage.getItem("hlod-token") || "";
async function api(path, options = {}) {
  const headers = { Accept: options.accept || "application/json", ...(options.headers || {}) };
  if (token) headers.Authorization = "Bearer " + token;
  const r = await fetch(path, { method: options.method || "GET", headers, body: options.body, cache: "no-store" });
  if (r.status === 401) { askToken(token ? "The server does not know this token." : ""); throw new Refused(401, "a token is needed"); }
  if (!r.ok) {
    let text = r.statusText;
    try { const j = await r.json(); text = j.message || j.error || text; } catch { /* not JSON */ }
    throw new Refused(r.status, text);
  }
  return options.raw ? r : options.accept ? r.text() : r.json();
}
function askToken(why) {
  $("login-error").textContent = why;
  if (!$("login").open) $("login").showModal();
}
$("login-form").addEventListener("submit", () => {
  token = $("token").value.trim();
  sessionStorage.setItem("hlod-token", token);
  $("token").value = "";
  route();
});

// Counters and gauges of /metrics by name; histograms as name_sum and name_count.
function parseMetrics(text) {
  const out = {};
  for (const line of text.split("\n")) {
    const m = /^([a-z_]+)(?:\{[^}]*\})? ([0-9.eE+-]+)$/.exec(line);
    if (m && !m[1].endsWith("_bucket")) out[m[1]] = (out[m[1]] || 0) + Number(m[2]);
  }
  return out;
}

// ---- parts

function card(title, aside, ...body) {
  return h("section", { class: "card", "aria-label": typeof title === "string" ? title : null }, h("div", { class: "head" }, h("h2", null, title), h("span", { class: "grow" }), aside), ...body);
}
// columns: [title, cell(row) -> node or text, class]
function table(label, columns, rows, options = {}) {
  if (!rows.length) return h("p", { class: "empty" }, options.empty || "Nothing yet.");
  const open = row => { if (options.href) location.hash = options.href(row); };
  return h("div", { class: "scroll" }, h("table", null, h("caption", { class: "hidden" }, label),
    h("thead", null, h("tr", null, columns.map(c => h("th", { scope: "col", class: c[2] }, c[0])))),
    h("tbody", null, rows.map(row => h("tr", { "data-href": !!options.href, onclick: e => { if (!e.target.closest("a,button")) open(row); } }, columns.map(c => h("td", { class: c[2] }, c[1](row))))))));
}
const state = (text, good, warn) => h("span", { class: "state " + (good ? "good" : warn ? "warn" : "bad") }, String(text).split("_").map((part, k, all) => k + 1 < all.length ? [part + "_", h("wbr")] : part));
const meter = (part, cls) => h("span", { class: "meter " + (cls || ""), "aria-hidden": "true" }, h("i", { "width%": Math.max(0, Math.min(100, part * 100)).toFixed(1) }));
const link = (href, text, cls) => h("a", { href, class: cls }, text);

const history = {}; // tile -> last two minutes
function tile(label, value, unit, key, sample) {
  const v = history[key] = [...(history[key] || []), sample].slice(-60);
  const top = Math.max(...v, 1e-9), points = v.map((x, k) => `${(k + 60 - v.length) * 2},${27 - x / top * 23}`);
  return h("div", { class: "card tile" }, h("span", { class: "label" }, label), h("span", { class: "value" }, value, unit && h("small", null, unit)),
    s("svg", { viewBox: "0 0 118 30", preserveAspectRatio: "none", "aria-hidden": "true" },
      s("path", { d: `M${points.join("L")}L118,30L${(60 - v.length) * 2},30Z`, fill: "var(--accent)", "fill-opacity": ".12" }),
      s("polyline", { points: points.join(" "), fill: "none", stroke: "var(--accent)", "stroke-width": "1.5", "vector-effect": "non-scaling-stroke" })));
}

const modelNames = {}; // digest of a model -> its names
// A name for the cell of a table: the middle of a long one is left out, the whole is its title.
function nameCell(names) {
  const all = names.join(", "), chars = [...all], whole = chars.length <= 40;
  return h("b", { title: whole ? null : all }, whole ? all : chars.slice(0, 24).join("") + "…" + chars.slice(-14).join(""));
}
async function loadModels() {
  const list = (await api("/v1/models")).models || [];
  for (const d in modelNames) delete modelNames[d];
  for (const m of list) (modelNames[m.model] = modelNames[m.model] || []).push(m.name);
  return list;
}

const total = run => number(((run.timings || []).find(t => t.name === "total") || {}).ms);
const runColumns = [
  ["Run", r => link("#/runs/" + r.job, "#" + r.job)],
  ["Kind", r => [r.kind, r.compiled && h("span", { class: "dim extra" }, " · compiled"), r.profiled && h("span", { class: "dim extra" }, " · profiled")], "nowrap"],
  ["Model", r => modelNames[r.model] ? nameCell(modelNames[r.model]) : h("code", null, short(r.model))],
  ["Result", r => h("span", { title: r.message }, state(r.code, r.code === "OK"))],
  ["Message", r => r.message && h("span", { class: "clamp dim", title: r.message }, r.message), "wide"],
  ["Executable", r => r.executable ? link("#/executables/" + r.executable, short(r.executable), "mono") : "", "wide"],
  ["Device", r => r.device || "", "wide"],
  ["Time", r => ms(total(r)), "num"],
  ["Started", r => h("span", { title: r.started }, ago(r.started)), "num nowrap late"],
];

// ---- overview

// Whose processes may make any system call: devices that are shown, else those that compile.
function filterText(all) {
  if (all.workerFilter === "on") return "system call filter on";
  const open = (all.devices || []).filter(d => d.filter && d.filter !== "on").map(d => d.name);
  return (open.length ? "no system call filter in " + open.join(", ") : "no system call filter in a compile worker") + " (" + all.workerFilter.replace("off: ", "") + ")";
}
let before = null;
async function overview() {
  const [devices, health, cache, runs, models, text, tenants, cluster] = await Promise.all([api("/v1/devices"), api("/v1/health"), api("/v1/cache"), api("/v1/runs?limit=12"), loadModels(), api("/metrics", { accept: "text/plain" }), api("/v1/tenants"), api("/v1/nodes")]);
  const m = parseMetrics(text), now = performance.now(), b = before && now > before.at ? before : null;
  const rate = name => b ? Math.max(0, ((m[name] || 0) - (b.m[name] || 0)) / (now - b.at) * 1000) : 0;
  const mean = name => { const n = (m[name + "_count"] || 0) - (b ? b.m[name + "_count"] || 0 : 0), t = (m[name + "_sum"] || 0) - (b ? b.m[name + "_sum"] || 0 : 0); return n > 0 ? t / n * 1000 : 0; };
  const requests = rate("hlod_requests_total"), runRate = rate("hlod_runs_total"), runMs = mean("hlod_run_seconds");
  before = { m, at: now };
  const hits = number(cache.hits), looked = hits + number(cache.misses);
  return [h("h1", { class: "hidden" }, "Overview"),
    h("div", { class: "tiles" },
      tile("Requests", requests.toFixed(requests < 10 ? 1 : 0), "/s", "requests", requests),
      tile("Runs", runRate.toFixed(runRate < 10 ? 1 : 0), "/s", "runs", runRate),
      tile("Mean run", runMs ? ms(runMs).split(" ")[0] : "–", runMs ? ms(runMs).split(" ")[1] : "", "run", runMs),
      tile("Active jobs", count(m.hlod_jobs_active), "", "active", m.hlod_jobs_active || 0),
      tile("Queued", count(m.hlod_jobs_queued), "", "queued", m.hlod_jobs_queued || 0),
      tile("Executable cache", looked ? Math.round(hits / looked * 100) + "%" : "–", looked ? "hits of " + count(looked) : "", "hits", looked ? hits / looked : 0)),
    card("Devices", h("span", { class: "dim" }, filterText(devices)),
      table("Devices", [
        ["Device", d => h("b", null, d.name)],
        ["State", d => state(d.state, d.state === "ready" || d.state === "busy", d.state === "starting" || d.state === "waiting")],
        ["Target", d => h("code", { class: "target" }, d.targetId || ""), "wide"],
        ["Threads", d => count(d.threads), "num wide"],
        ["Worker memory", d => h("div", { class: "pair" }, h("span", null, bytes(d.workerRssBytes), h("span", { class: "dim" }, " of " + bytes(d.memoryBytes))), meter(number(d.workerRssBytes) / (number(d.memoryBytes) || 1)))],
        ["Weights", d => bytes(d.preparedBytes), "num wide"],
        ["Executables", d => count(d.residentExecutables), "num"],
        ["Restarts", d => count(d.restarts), "num late"],
        ["Process", d => d.workerPid || "", "num wide"],
      ], devices.devices || [])),
    cluster.cluster && card("Nodes", h("span", { class: "dim" }, cluster.state === "connected" ? "cluster " + cluster.cluster : "NATS is not reached: " + (cluster.why || "")),
      table("Nodes", [
        ["Node", n => [h("b", null, n.node), n.self && h("span", { class: "dim" }, " this one")]],
        ["State", n => state(n.state, n.state === "serving", n.state === "starting" || n.state === "draining")],
        ["Devices", n => `${count(n.devicesUp)} of ${count(n.devices)}`, "num"],
        ["Room", n => count(n.places), "num"],
        ["Jobs", n => count(n.jobs), "num late"],
        ["Queued", n => `${count(n.queued)} of ${count(n.maxQueue)}`, "num"],
        ["Targets", n => h("code", { class: "target" }, [...new Set((n.targets || []).map(t => t.targetId))].join(", ")), "wide"],
        ["Address", n => h("code", null, n.address || ""), "wide"],
        ["Version", n => n.version || "", "late"],
        ["Heard", n => n.self ? "" : duration(n.seconds), "num late"],
      ], cluster.nodes || [])),
    h("div", { class: "cols" },
      card("Last runs", link("#/runs", "all"), table("Last runs", runColumns.filter(c => c[2] !== "wide"), runs.runs || [], { href: r => "#/runs/" + r.job, empty: "Nothing has run yet." })),
      h("div", { class: "stack" },
        card("Models", null, table("Models", [
          ["Name", x => h("b", null, x.name + ":" + number(x.version))],
          ["Model", x => h("code", null, short(x.model))],
          ["State", x => x.loaded ? state("loaded", true) : state(x.reason || "not loaded", false, true)],
          ["Inferences", x => count(x.inferences), "num"],
        ], models, { empty: "No model has a name. hlo models set NAME model.onnx gives one." })),
        card("Queue by tenant", null, table("Queue by tenant", [
          ["Tenant", t => [h("b", null, t.name), number(t.weight) > 1 && h("span", { class: "dim" }, " weight " + t.weight)]],
          ["Waiting", t => count(t.waiting), "num"], ["On workers", t => count(t.places), "num late"], ["Jobs", t => count(t.totalJobs), "num"],
          ["Refused", t => number(t.refused) ? h("span", { class: "bad" }, count(t.refused)) : "0", "num late"], ["Device time", t => ms(t.deviceMs), "num"],
        ], tenants.tenants || [], { empty: "Nobody has asked for anything yet." })),
        card("Server", null, h("div", { class: "body" }, h("dl", { class: "facts" },
          h("dt", null, "Up"), h("dd", null, duration(health.uptimeS)),
          h("dt", null, "Daemon memory"), h("dd", null, health.rssBytes ? bytes(health.rssBytes) : "not shown"),
          h("dt", null, "Cache"), h("dd", null, `${bytes(cache.bytes)} of ${bytes(cache.budgetBytes)}, ${count(cache.executables)} ${number(cache.executables) === 1 ? "executable" : "executables"}, ${count(cache.models)} ${number(cache.models) === 1 ? "model" : "models"}`),
          h("dt", null, "Compiles"), h("dd", null, `${count(cache.compiles)}, ${count(cache.joins)} joined`),
          h("dt", null, "Workers lost"), h("dd", null, count(m.hlod_worker_deaths_total)),
          h("dt", null, "Requests refused"), h("dd", null, `${count(m.hlod_request_errors_total)} of ${count(m.hlod_requests_total)}`)))))),
  ];
}

// ---- executables

// Of the code that runs: as a plugin's compiler left it, else as ours did.
const countsOf = e => e.optimized && number(e.optimized.entry) ? e.optimized : e.after || {};
async function executables() {
  const [list] = await Promise.all([api("/v1/executables?limit=500"), loadModels()]), names = modelNames;
  const most = Math.max(1, ...(list.executables || []).map(e => number((e.before || {}).entry)));
  return [h("div", { class: "head" }, h("h1", null, "Executables"), h("span", { class: "dim" }, count((list.executables || []).length))),
    h("section", { class: "card" }, table("Executables", [
      ["Executable", e => [link("#/executables/" + e.digest, short(e.digest), "mono"), names[e.sourceDigest] && [" ", nameCell(names[e.sourceDigest])]]],
      ["Inputs", e => h("code", null, ((e.signature || {}).inputs || []).map(shapeText).slice(0, 2).join(" ") + (((e.signature || {}).inputs || []).length > 2 ? " …" : "")), "wide"],
      ["Instructions", e => h("div", { class: "pair" }, h("span", { class: "nowrap" }, h("span", { class: "dim" }, count((e.before || {}).entry) + " → "), h("b", null, count(countsOf(e).entry))), meter(number((e.before || {}).entry) / most, "before"), meter(number(countsOf(e).entry) / most))],
      ["Fusions", e => count(countsOf(e).fusions), "num"],
      ["Kernels", e => count(e.kernels), "num wide"],
      ["Reference", e => number(e.referenceSteps) ? state(count(e.referenceSteps), false, true) : "0", "num wide"],
      ["Working memory", e => bytes(e.peakBytes), "num wide"],
      ["Compiled in", e => ms(e.compileMs), "num"],
      ["Device", e => e.deviceKind, "wide"],
      ["Made", e => h("span", { title: e.created }, ago(e.created)), "num nowrap wide"],
    ], list.executables || [], { href: e => "#/executables/" + e.digest, empty: "Nothing is compiled. hlo compile model.onnx makes one." }))];
}

function countsCard(e) {
  const after = countsOf(e), b = number((e.before || {}).entry), a = number(after.entry), p = number((e.prepare || {}).entry), most = Math.max(a, b, p, 1);
  const row = (label, v, cls) => h("div", { class: "row" }, h("span", { class: "dim" }, label), meter(v / most, cls), h("span", null, count(v)));
  return card("Instructions", h("span", { class: "dim" }, "of the entry computation"), h("div", { class: "body counts" }, row("before", b, "before"), row("after", a), row("prepare", p, "before"),
    h("p", { class: "dim" }, `In all computations ${count((e.before || {}).total)} before, ${count(after.total)} after${after === e.optimized ? " the plugin's compiler" : ""}; ${count(after.fusions)} fusions. Prepare runs once for a set of weights.`)));
}

function passesCard(e) {
  const list = e.passes || [], most = Math.max(...list.map(p => number(p.ms)), 1e-9), took = list.reduce((t, p) => t + number(p.ms), 0);
  const shown = list.filter(p => p.changed || number(p.ms) > took / 100);
  return card("Compile", h("span", { class: "dim" }, `${ms(e.compileMs)} · ${list.length} passes, those that changed something`),
    h("div", { class: "passes" }, table("Passes", [
      ["Pass", p => h("code", null, p.name)], ["Time", p => [ms(p.ms), " ", h("span", { class: "share" }, meter(number(p.ms) / most))], "num"],
      ["Instructions", p => number(p.before) === number(p.after) ? count(p.after) : [h("span", { class: "dim" }, count(p.before) + " → "), count(p.after)], "num"],
    ], shown)));
}

// Which implementation each step has, out of the text of the plan.
function implementations(plan) {
  const out = {}, at = plan.indexOf("implementations:");
  if (at >= 0) for (const line of plan.slice(at).split("\n").slice(1)) { const m = /^\s+(\S+)\s+(\S+)\s*$/.exec(line); if (m) out[m[1]] = m[2]; }
  return out;
}

function stepsText(plan) {
  const by = {};
  for (const impl of Object.values(implementations(plan))) by[kindOf(impl)] = (by[kindOf(impl)] || 0) + 1;
  return Object.entries(by).sort((a, b) => b[1] - a[1]).map(([k, n]) => `${n} ${KINDS[k]}`).join(", ") || "not known";
}

function graphCard(text, plan, profile) {
  const module = parseHlo(text), impl = implementations(plan), times = {};
  let steps = 0;
  for (const r of (profile || {}).rows || []) { times[r.name] = (times[r.name] || 0) + number(r.ms); if (!r.depth) steps += number(r.ms); }
  const side = h("div", { class: "side", "aria-live": "polite" }), canvas = h("div", { class: "canvas", tabindex: "0", role: "group", "aria-label": "Graph of the entry computation. Arrow keys move between instructions." });
  const computations = [...module.computations.values()];
  const choice = h("select", { "aria-label": "Computation" }, computations.filter(c => c.entry || c.instructions.some(i => !QUIET_OPS.has(i.op))).sort((a, b) => b.entry - a.entry).map(c => h("option", { value: c.name }, c.entry ? c.name + " (entry)" : c.name)));
  const everything = h("input", { type: "checkbox" });
  const tell = i => {
    const inner = i.calls.map(c => module.computations.get(c)).filter(Boolean), nodes = new Set([i.node, ...inner.flatMap(c => c.instructions.filter(x => x.op !== "constant" && x.op !== "parameter").map(x => x.node))].filter(Boolean));
    fill(side, h("h3", { class: "mono" }, i.name), h("p", { class: "dim" }, i.op, " → ", h("code", null, i.shape)),
      h("dl", { class: "facts" }, impl[i.name] && [h("dt", null, "Run by"), h("dd", null, impl[i.name])],
        times[i.name] !== undefined && [h("dt", null, "Time"), h("dd", null, `${ms(times[i.name])}, ${(times[i.name] / (steps || 1) * 100).toFixed(1)}%`)],
        nodes.size > 0 && [h("dt", null, "Nodes"), h("dd", null, [...nodes].join(", "))]),
      inner.map(c => h("pre", null, c.instructions.map(x => x.text.replace(/, metadata=\{.*$/, "")).join("\n"))),
      !inner.length && h("pre", null, i.text));
  };
  const draw = () => {
    const c = module.computations.get(choice.value) || { instructions: [] }, graph = graphOf(c, everything.checked);
    const MOST = 1500;
    if (graph.nodes.length > MOST) { canvas.replaceChildren(h("p", { class: "empty" }, `${count(graph.nodes.length)} instructions are too many to draw; the text below has them.`)); return; }
    if (!graph.nodes.length) { canvas.replaceChildren(h("p", { class: "empty" }, "Nothing is computed here.")); return; }
    const words = i => { const inner = i.calls.map(n => module.computations.get(n)).filter(Boolean).flatMap(x => x.instructions).map(x => x.op).filter(o => !QUIET_OPS.has(o) && o !== "broadcast"); return i.op === "fusion" ? [...new Set(inner)].join(" ") || "broadcast" : i.op; };
    const label = i => { const w = words(i); return w.length > 30 ? w.slice(0, 29) + "…" : w; };
    const sub = i => { const t = i.shape.replace(/\{.*/, ""); return (t.length > 24 ? t.slice(0, 23) + "…" : t) + "  " + i.name; };
    const { place, width, height } = layout(graph, i => ({ w: Math.max(108, 22 + Math.max(label(i).length * 7, sub(i).length * 6)), h: 47 }));
    const links = graph.edges.map(([a, b]) => {
      const p = place.get(a), q = place.get(b), x1 = p.x + p.w / 2, y1 = p.y + p.h, x2 = q.x + q.w / 2, y2 = q.y, mid = (y1 + y2) / 2;
      return { a, b, e: s("path", { class: "link", d: `M${x1},${y1}C${x1},${mid} ${x2},${mid} ${x2},${y2}`, "marker-end": "url(#arrow)" }) };
    });
    const heat = Math.max(...Object.values(times), 1e-9), nodes = new Map();
    const choose = (i, focus) => {
      for (const [name, e] of nodes) { e.setAttribute("aria-pressed", name === i.name); e.setAttribute("tabindex", name === i.name ? "0" : "-1"); }
      for (const l of links) l.e.classList.toggle("on", l.a === i.name || l.b === i.name);
      tell(i);
      if (focus) { const e = nodes.get(i.name); e.focus({ preventScroll: true }); e.scrollIntoView({ block: "nearest", inline: "nearest" }); }
    };
    const move = (e, i) => {
      const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[e.key], k = graph.nodes.indexOf(i);
      if (e.key === "Enter" || e.key === " ") choose(i, true);
      else if (e.key === "Home" || e.key === "End") choose(graph.nodes.at(e.key === "Home" ? 0 : -1), true);
      else if (step && graph.nodes[k + step]) choose(graph.nodes[k + step], true);
      else return;
      e.preventDefault();
    };
    for (const i of graph.nodes) {
      const p = place.get(i.name), kind = kindOf(impl[i.name] || (i.op === "while" || i.op === "conditional" || i.op === "call" ? "control" : ""));
      nodes.set(i.name, s("g", { class: "node k-" + kind, transform: `translate(${p.x},${p.y})`, role: "button", tabindex: "-1", "aria-pressed": "false", "aria-label": `${i.name}, ${words(i)}, ${i.shape}${impl[i.name] ? ", run by " + impl[i.name] : ""}`, onclick: () => choose(i, true), onkeydown: e => move(e, i) },
        s("rect", { class: "box", width: p.w, height: p.h, rx: 7 }), s("rect", { class: "edge-bar", x: 0, y: 8, width: 3.5, height: p.h - 16, rx: 1.7 }),
        times[i.name] && s("rect", { class: "heat", x: 11, y: p.h - 5, height: 2.6, rx: 1.3, width: Math.max(2, (p.w - 22) * times[i.name] / heat) }),
        s("text", { x: 12, y: 19 }, label(i)), s("text", { class: "sub", x: 12, y: 34 }, sub(i))));
    }
    canvas.replaceChildren(s("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, s("defs", null, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7.5, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, s("path", { d: "M0,1L8,4L0,7Z", fill: "var(--dim)" }))),
      links.map(l => l.e), [...nodes.values()]));
    const first = graph.nodes.find(i => i.op === "fusion") || graph.nodes[0];
    choose(first);
    canvas.scrollLeft = Math.max(0, place.get(first.name).x - canvas.clientWidth / 2 + 60);
  };
  choice.addEventListener("change", draw);
  everything.addEventListener("change", draw);
  canvas.addEventListener("keydown", e => { if (e.target === canvas && e.key.startsWith("Arrow")) { canvas.querySelector('[tabindex="0"]')?.focus(); e.preventDefault(); } });
  requestAnimationFrame(draw);
  const kinds = [...new Set(Object.values(impl).map(kindOf))];
  return card("Fusion graph", h("div", { class: "head" }, legend(kinds), profile && h("span", { class: "dim" }, "bars: time in run #" + profile.job), h("label", { class: "check" }, everything, "parameters and constants"), choice), h("div", { class: "graph" }, canvas, side));
}

// HLO with its parts coloured; very long texts stay plain behind the first lines.
function highlight(text) {
  const LINES = 2500, lines = text.split("\n"), out = document.createDocumentFragment();
  for (const line of lines.slice(0, LINES)) {
    const m = /^(\s+)(ROOT )?(%?\S+)( = )(\(.*?\)|\S+) ([\w-]+)(\(.*)$/.exec(line);
    if (!m) { out.append(/^(ENTRY|HloModule|%\S+ \()/.test(line) ? h("span", { class: "t-head" }, line) : line, "\n"); continue; }
    const at = m[7].search(/, metadata=\{/), tail = at < 0 ? [m[7], ""] : [m[7].slice(0, at), m[7].slice(at)];
    out.append(m[1], m[2] || "", h("span", { class: "t-name" }, m[3]), m[4], h("span", { class: "t-shape" }, m[5]), " ", h("span", { class: "t-op" }, m[6]), tail[0], h("span", { class: "t-meta" }, tail[1]), "\n");
  }
  if (lines.length > LINES) out.append(lines.slice(LINES).join("\n"));
  return out;
}
function stagePane(digest, first, given) {
  const pre = h("pre", { class: "code", tabindex: "0", role: "region", "aria-label": first }), size = h("span", { class: "dim" });
  const choice = h("select", { "aria-label": "Stage" }, ["hlo-before", "hlo-after", "prepare", "plan", "kir", "llvm"].map(x => h("option", { value: x, selected: x === first }, x)));
  const show = (text, name) => { pre.replaceChildren(/^(hlo|prepare)/.test(name) ? highlight(text) : text); pre.setAttribute("aria-label", name); size.textContent = count(text.split("\n").length) + " lines"; pre.scrollTop = 0; };
  choice.addEventListener("change", async () => {
    pre.textContent = "…";
    try { show(await api(`/v1/executables/${digest}/stage/${choice.value}`, { accept: "text/plain" }), choice.value); } catch (e) { pre.textContent = e.message; }
  });
  show(given, first);
  return h("div", null, h("div", { class: "head" }, choice, size), pre);
}

// A run with inputs of zeros, profiled: for looking at steps, not at results.
async function profileRun(e, button) {
  const inputs = ((e.signature || {}).inputs || []), tensors = [], parts = [];
  button.disabled = true;
  try {
    for (const t of inputs) {
      const shape = (t.dims || []).map(d => number(d.size)), wide = /64$/.test(t.dtype) && !t.dtype.startsWith("c") ? 8 : t.dtype === "c64" ? 8 : t.dtype === "c128" ? 16 : /32$/.test(t.dtype) ? 4 : /16$/.test(t.dtype) ? 2 : 1;
      const n = shape.reduce((a, b) => a * b, 1) * wide;
      tensors.push({ name: t.name, dtype: t.dtype, shape, parameters: { binary_data_size: n } });
      parts.push(new Uint8Array(n));
    }
    const head = new TextEncoder().encode(JSON.stringify({ model: e.digest, inputs: tensors, options: { profile: true, repeat: 3 } }));
    const r = await api("/v1/run", { method: "POST", raw: true, body: new Blob([head, ...parts]), accept: "application/octet-stream", headers: { "Content-Type": "application/octet-stream", "Inference-Header-Content-Length": String(head.length) } });
    const body = new Uint8Array(await r.arrayBuffer()), n = Number(r.headers.get("Inference-Header-Content-Length") || body.length);
    location.hash = "#/runs/" + JSON.parse(new TextDecoder().decode(body.subarray(0, n))).job;
  } catch (x) {
    button.disabled = false;
    button.after(h("span", { class: "error", role: "alert" }, " " + x.message));
  }
}

async function lastProfile(digest) {
  const runs = ((await api("/v1/runs?limit=320")).runs || []).find(r => r.profiled && r.executable === digest);
  if (!runs) return null;
  const trace = await api(`/v1/runs/${runs.job}/trace`);
  return { job: runs.job, rows: stepsOf(trace).map(e => ({ name: e.name, ms: e.dur / 1000, depth: e.depth })) };
}

async function executable(digest) {
  const text = stage => api(`/v1/executables/${digest}/stage/${stage}`, { accept: "text/plain" }).catch(() => "");
  const [e, after, first, plan, profile] = await Promise.all([api("/v1/executables/" + digest), text("hlo-after"), text("hlo-before"), text("plan"), lastProfile(digest).catch(() => null), loadModels()]);
  const list = v => h("dd", null, (v || []).map((t, k) => [k ? ", " : "", t.name + " ", h("code", null, shapeText(t))]));
  return [h("div", { class: "head" }, h("h1", null, "Executable ", h("span", { class: "mono", title: digest }, short(digest))), h("b", { class: "dim" }, (modelNames[e.sourceDigest] || []).join(", ")), h("span", { class: "grow" }),
      h("button", { type: "button", class: "primary", title: "Runs it with zeros as inputs and shows the steps", onclick: ev => profileRun(e, ev.currentTarget) }, "Profile a run")),
    h("div", { class: "cols" },
      h("div", { class: "stack" }, countsCard(e),
        card("About", null, h("div", { class: "body" }, h("dl", { class: "facts" },
          h("dt", null, "Inputs"), list((e.signature || {}).inputs), h("dt", null, "Outputs"), list((e.signature || {}).outputs),
          h("dt", null, "Steps"), h("dd", null, stepsText(plan), `, ${count(e.inPlace)} results in place`),
          h("dt", null, "Working memory"), h("dd", null, `${bytes(e.peakBytes)}; without reuse ${bytes(e.valuesBytes)}`),
          h("dt", null, "Weights"), h("dd", null, bytes(e.weightsBytes)), h("dt", null, "Artefact"), h("dd", null, bytes(e.artifactBytes)),
          h("dt", null, "Target"), h("dd", null, h("code", null, e.targetId)), e.options && [h("dt", null, "Options"), h("dd", null, h("code", null, e.options))],
          (e.bindings || []).length > 0 && [h("dt", null, "Bound"), h("dd", null, e.bindings.join(", "))],
          h("dt", null, "Model"), h("dd", null, h("code", null, e.sourceDigest)))))),
      passesCard(e)),
    after ? graphCard(after, plan, profile) : null,
    h("section", { class: "card", "aria-label": "Program text" }, h("div", { class: "head" }, h("h2", null, "Program"), h("span", { class: "dim" }, "any two stages side by side")), h("div", { class: "hlo" }, stagePane(digest, "hlo-before", first), stagePane(digest, "hlo-after", after)))];
}

// ---- runs

async function runs() {
  const list = (await Promise.all([api("/v1/runs?limit=320"), loadModels()]))[0].runs || [];
  return [h("div", { class: "head" }, h("h1", null, "Runs"), h("span", { class: "dim" }, "the last 256, and the last 64 that compiled or were profiled")),
    h("section", { class: "card" }, table("Runs", runColumns, list, { href: r => "#/runs/" + r.job, empty: "Nothing has run yet." }))];
}

// The steps of a trace, with how deep each lies (spans of a thread nest).
function stepsOf(trace) {
  const out = [], open = [];
  const spans = (trace.traceEvents || []).filter(e => e.cat === "step").sort((a, b) => a.ts - b.ts || b.dur - a.dur);
  for (const e of spans) {
    while (open.length && open.at(-1) <= e.ts + 0.05) open.pop();
    out.push({ ...e, depth: open.length });
    open.push(e.ts + e.dur);
  }
  return out;
}

// Values that lie in the processor's caches come faster than memory gives them.
const cached = a => a.ofPeak > 1 && a.bound === "memory";
function timeline(trace) {
  const spans = trace.traceEvents.filter(e => e.ph === "X"), names = {};
  for (const e of trace.traceEvents) if (e.ph === "M" && e.name === "process_name") names[e.pid] = e.args.name;
  const steps = new Map(stepsOf(trace).map(e => [e.ts + "/" + e.name, e.depth]));
  const lanes = [];
  const whole = spans.find(e => e.pid === 1 && e.ts === 0) || { dur: Math.max(...spans.map(e => e.ts + e.dur)) };
  for (const e of spans) {
    const depth = e.cat === "step" ? 1 + (steps.get(e.ts + "/" + e.name) || 0) : e.pid === 1 ? (e.name === "transfer" ? 2 : e === whole ? 0 : 1) : 0;
    lanes.push({ e, pid: e.pid, depth: Math.min(depth, 4) });
  }
  const device = spans.find(e => e.pid === 3 && e.cat === "request");
  const views = [["Whole request", 0, whole.dur]];
  const compile = spans.find(e => e.pid === 1 && e.name === "compile");
  if (compile) views.push(["Compile", compile.ts, compile.dur]);
  if (device) views.push(["Run on the device", device.ts, device.dur]);
  let [, from, width] = views.at(-1), pixels = 1;
  const host = h("div", { class: "timeline", tabindex: "0", role: "group", "aria-label": "Timeline. The table below has the same steps." }), detail = h("div", { class: "detail dim", "aria-live": "polite" }, "Select a bar to see its details.");
  const tell = e => {
    const a = e.args || {};
    detail.classList.remove("dim");
    fill(detail, h("b", { class: "mono" }, e.name), ` · ${ms(e.dur / 1000)}`, a.impl && ` · ${a.impl}`, a.flops && ` · ${(a.flops / e.dur / 1e3).toFixed(1)} GFLOP/s`, a.bytes && ` · ${(a.bytes / e.dur / 1e3).toFixed(1)} GB/s`, a.ofPeak && (cached(a) ? " · from the caches, faster than memory" : ` · ${(a.ofPeak * 100).toFixed(0)}% of the ${a.bound} peak`),
      e.cat === "pass" && ` · ${count(a.before)} → ${count(a.after)} instructions`, (a.nodes || []).length > 0 && h("div", { class: "dim" }, "nodes: " + a.nodes.join(", ")), (a.hlo || []).length > 0 && h("div", { class: "dim mono" }, a.hlo.join(" ")));
  };
  const draw = () => {
    const left = 92, w = Math.max(560, (host.clientWidth || 900) * pixels), rowH = 24, scale = (w - left - 16) / width;
    let y = 30;
    const rows = [], labels = [];
    for (const pid of [...new Set(lanes.map(l => l.pid))].sort()) {
      const mine = lanes.filter(l => l.pid === pid && l.e.ts + l.e.dur >= from && l.e.ts <= from + width);
      if (!mine.length) continue;
      labels.push(s("text", { class: "lane", x: 14, y: y + 16 }, names[pid] || pid));
      for (const l of mine) {
        const x = left + Math.max(0, (l.e.ts - from) * scale), x2 = left + Math.min(width, l.e.ts + l.e.dur - from) * scale, px = Math.max(1.2, x2 - x - (x2 - x > 3 ? 0.8 : 0));
        const kind = l.e.cat === "step" ? kindOf(l.e.args.impl) : l.e.cat === "pass" ? "pass" : "request";
        rows.push(s("g", { class: "span k-" + kind, tabindex: px > 3 ? "0" : null, role: "img", "aria-label": `${l.e.name}, ${ms(l.e.dur / 1000)}`, onclick: () => tell(l.e), onfocus: () => tell(l.e), onmouseenter: () => tell(l.e) },
          s("rect", { x, y: y + l.depth * rowH, width: px, height: rowH - 4, rx: 3 }), px > 7.2 * l.e.name.length + 8 && s("text", { x: x + 5, y: y + l.depth * rowH + 14 }, l.e.name)));
      }
      y += (Math.max(...mine.map(l => l.depth)) + 1) * rowH + 14;
    }
    const ticks = [], unit = 10 ** Math.floor(Math.log10(width / 5)), step = [1, 2, 5, 10].map(k => k * unit).find(k => width / k <= (w > 800 ? 10 : 5));
    for (let t = 0; t <= width; t += step) ticks.push(s("line", { class: "grid", x1: left + t * scale, x2: left + t * scale, y1: 22, y2: y }), s("text", { class: "tick", y: 16, ...left + t * scale + 60 > w ? { x: left + t * scale - 4, "text-anchor": "end" } : { x: left + t * scale + 4 } }, t ? ms(t / 1000) : "0"));
    host.replaceChildren(s("svg", { width: w, height: y + 4 }, ticks, labels, rows));
  };
  const zoom = f => { pixels = Math.min(64, Math.max(1, pixels * f)); const mid = (host.scrollLeft + host.clientWidth / 2) / host.scrollWidth; draw(); host.scrollLeft = mid * host.scrollWidth - host.clientWidth / 2; };
  host.addEventListener("keydown", e => { if (e.key === "+" || e.key === "=") zoom(2); else if (e.key === "-") zoom(0.5); });
  addEventListener("resize", () => host.isConnected && draw(), { passive: true });
  requestAnimationFrame(draw);
  const choice = h("select", { "aria-label": "What to show", onchange: ev => { [, from, width] = views[ev.target.value]; pixels = 1; draw(); } }, views.map((v, k) => h("option", { value: k, selected: k === views.length - 1 }, v[0])));
  const kinds = [...new Set(spans.map(e => e.cat === "step" ? kindOf(e.args.impl) : e.cat))];
  return card("Timeline", h("div", { class: "head" }, legend(kinds), choice, h("span", { class: "together" }, h("button", { type: "button", onclick: () => zoom(2), "aria-label": "Zoom in" }, "+"), h("button", { type: "button", onclick: () => zoom(0.5), "aria-label": "Zoom out" }, "−"))), host, detail);
}

async function run(job) {
  const trace = await api(`/v1/runs/${job}/trace`), r = trace.otherData, steps = stepsOf(trace).filter(e => !e.depth).sort((a, b) => b.dur - a.dur), sum = steps.reduce((t, e) => t + e.dur, 0);
  const save = () => {
    const url = URL.createObjectURL(new Blob([JSON.stringify(trace)], { type: "application/json" })), a = h("a", { href: url, download: `hlod-run-${job}.json` });
    a.click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  };
  return [h("div", { class: "head" }, h("h1", null, `${r.kind} #${job}`), state(r.code, r.code === "OK"), h("span", { class: "dim" }, `${ms(total(r))}, ${ago(r.started)}`), h("span", { class: "grow" }), h("button", { type: "button", title: "For ui.perfetto.dev or chrome://tracing", onclick: save }, "Save the trace")),
    h("section", { class: "card" }, h("div", { class: "body" }, h("dl", { class: "facts" },
      r.message && [h("dt", null, "Message"), h("dd", { id: "why" }, r.message)],
      r.executable && [h("dt", null, "Executable"), h("dd", null, link("#/executables/" + r.executable, r.executable, "mono"))], r.device && [h("dt", null, "Device"), h("dd", null, r.device)],
      r.traceId && [h("dt", null, "Trace"), h("dd", { class: "mono" }, r.traceId)],
      h("dt", null, "Time went to"), h("dd", null, (r.timings || []).filter(t => t.name !== "total").map(t => `${t.name} ${ms(t.ms)}`).join(" · ") || "nothing: it was refused before any work")))),
    timeline(trace),
    steps.length ? card("Steps by time", h("span", { class: "dim" }, `${steps.length} steps, ${ms(sum / 1000)}`), table("Steps by time", [
      ["Step", e => h("code", null, e.name)], ["Time", e => [ms(e.dur / 1000), h("span", { class: "share" }, meter(e.dur / steps[0].dur))], "num nowrap"], ["Share", e => (e.dur / sum * 100).toFixed(1) + "%", "num"],
      ["Run by", e => h("span", { class: "legend" }, h("span", null, h("i", { class: "k-" + kindOf(e.args.impl) }), e.args.impl || ""))],
      ["GFLOP/s", e => e.args.flops ? (e.args.flops / e.dur / 1e3).toFixed(1) : "", "num wide"], ["GB/s", e => e.args.bytes ? (e.args.bytes / e.dur / 1e3).toFixed(1) : "", "num wide"],
      ["Of peak", e => !e.args.ofPeak ? "" : cached(e.args) ? "from caches" : `${(e.args.ofPeak * 100).toFixed(0)}% ${e.args.bound}`, "num wide"], ["From", e => (e.args.nodes || []).join(", "), "wide"],
    ], steps)) : r.kind === "run" ? h("p", { class: "notice" }, "This run was not profiled: its steps were not timed. A run with options.profile, hlo run --profile, or \"Profile a run\" at its executable times them.") : null];
}

// ---- jobs

const jobState = j => state(j.state, j.state === "passed", /queued|running|waiting/.test(j.state));
async function jobs() {
  const list = (await api("/v1/jobs?limit=1000")).jobs || [], suites = new Map();
  for (const j of list) {
    if (!suites.has(j.suite)) suites.set(j.suite, { id: j.suite, name: j.suiteName, created: j.created, jobs: [] });
    suites.get(j.suite).jobs.push(j);
  }
  const how = (x, ...states) => x.jobs.filter(j => states.includes(j.state)).length;
  return [h("div", { class: "head" }, h("h1", null, "Jobs"), h("span", { class: "dim" }, `${count(list.length)} in ${count(suites.size)} suites`)),
    card("Suites", null, table("Suites", [
      ["Suite", x => [h("b", null, x.name || "suite " + x.id), h("span", { class: "dim" }, " " + x.id)]],
      ["Ended", x => h("div", { class: "pair" }, h("span", null, `${count(x.jobs.length - how(x, "queued", "running", "waiting"))} of ${count(x.jobs.length)}`), meter(1 - how(x, "queued", "running", "waiting") / x.jobs.length))],
      ["Passed", x => count(how(x, "passed")), "num"], ["Failed", x => how(x, "failed", "error") ? h("b", { class: "bad" }, count(how(x, "failed", "error"))) : "0", "num"], ["Cancelled", x => count(how(x, "cancelled")), "num wide"],
      ["Submitted", x => h("span", { title: x.created }, ago(x.created)), "num nowrap"],
    ], [...suites.values()], { empty: "No batch job. hlo submit suite.yaml makes some." })),
    list.length ? card("Jobs", null, table("Jobs", [
      ["Job", j => link("#/jobs/" + j.id, j.id)], ["State", jobState], ["Model", j => h("b", null, j.model)], ["Target", j => j.target || "", "wide"], ["Input", j => j.input || "", "wide"],
      ["Attempts", j => count(j.attempts), "num wide"], ["Run", j => j.train && number(j.train.steps) ? [`${count(j.train.step)} of ${count(j.train.steps)} `, meter(number(j.train.step) / number(j.train.steps))] : number(j.runMs) ? ms(j.runMs) : "", "num"],
      ["Why", j => j.error ? h("span", { class: "dim" }, `${j.error.reason || j.error.code}: ${j.error.message}`.slice(0, 90)) : "", "wide"],
    ], list, { href: j => "#/jobs/" + j.id })) : null];
}

// Of a training: how far it is, and its loss over the steps.
const four = x => number(x).toPrecision(4);
function lossCurve(points) {
  const W = 860, H = 240, L = 56, B = 22, last = number(points[points.length - 1].step), ok = points.filter(p => Number.isFinite(Number(p.loss || 0)));
  if (ok.length < 2) return null;
  const top = Math.max(...ok.map(p => number(p.loss))) || 1, low = Math.min(0, ...ok.map(p => number(p.loss)));
  const x = p => L + (W - L - 8) * number(p.step) / last, y = v => 8 + (H - B - 8) * (1 - (v - low) / (top - low));
  const line = (key, height) => ok.map(p => `${x(p).toFixed(1)},${height(number(p[key])).toFixed(1)}`).join(" ");
  const grid = [0, .25, .5, .75, 1].map(k => [s("line", { class: "grid", x1: L, x2: W - 8, y1: y(low + k * (top - low)), y2: y(low + k * (top - low)) }), s("text", { class: "tick", x: L - 6, y: y(low + k * (top - low)) + 4, "text-anchor": "end" }, (low + k * (top - low)).toPrecision(3))]);
  return h("div", { class: "timeline curve" }, s("svg", { viewBox: `0 0 ${W} ${H}`, width: "100%", role: "img", "aria-label": `Loss over ${count(last)} steps: from ${four(ok[0].loss)} to ${four(ok[ok.length - 1].loss)}` }, grid,
    ok.some(p => p.accuracy) && s("polyline", { points: line("accuracy", v => 8 + (H - B - 8) * (1 - v)), fill: "none", stroke: "var(--kernel)", "stroke-width": 1.2, "stroke-dasharray": "4 3" }),
    s("polyline", { points: line("loss", y), fill: "none", stroke: "var(--accent)", "stroke-width": 1.8 }),
    s("text", { class: "tick", x: L, y: H - 5 }, "step 1"), s("text", { class: "tick", x: W - 8, y: H - 5, "text-anchor": "end" }, "step " + count(last))));
}
function training(t, out) {
  const curve = t.curve || [], accuracy = curve.some(p => p.accuracy);
  return card("Training", h("span", { class: "dim" }, accuracy ? "loss; dashed: accuracy, 0 to 1" : "loss"), h("div", { class: "body" }, h("dl", { class: "facts" },
    h("dt", null, "Steps"), h("dd", null, h("div", { class: "pair" }, h("span", null, `${count(t.step)} of ${count(t.steps)}`), meter(number(t.step) / (number(t.steps) || 1)))),
    number(t.step) > 0 && [h("dt", null, "Loss"), h("dd", null, four(t.loss) + (accuracy ? `, accuracy ${four(t.accuracy)}` : ""))],
    number(t.validationStep) > 0 && [h("dt", null, "Held back"), h("dd", null, `loss ${four(t.validationLoss)}` + (accuracy ? `, accuracy ${four(t.validationAccuracy)}` : "") + `, after step ${count(t.validationStep)}`)],
    number(t.stepMs) > 0 && [h("dt", null, "Speed"), h("dd", null, `${ms(t.stepMs)} a step, ${count(Math.round(number(t.examplesPerS)))} examples/s`)],
    t.checkpoint && [h("dt", null, "Checkpoint"), h("dd", null, h("code", null, t.checkpoint), ` of step ${count(t.checkpointStep)}`)],
    out && out.model && [h("dt", null, "Trained model"), h("dd", null, h("code", null, out.model))])), curve.length > 1 ? lossCurve(curve) : null);
}

async function job(id) {
  const [j, log] = await Promise.all([api("/v1/jobs/" + id), api(`/v1/jobs/${id}/logs`)]), out = await api(`/v1/jobs/${id}/result`).catch(() => null);
  return [h("div", { class: "head" }, h("h1", null, "Job " + id), jobState(j), h("span", { class: "dim" }, [j.suiteName, j.model, j.target, j.input].filter(Boolean).join(" · "))),
    h("section", { class: "card", "aria-label": "About" }, h("div", { class: "body" }, h("dl", { class: "facts" },
      h("dt", null, "Submitted"), h("dd", null, j.created), j.finished && [h("dt", null, "Ended"), h("dd", null, j.finished)], h("dt", null, "Attempts"), h("dd", null, count(j.attempts)),
      j.error && [h("dt", null, "Why"), h("dd", { class: "bad" }, `${j.error.code} ${j.error.reason || ""}: ${j.error.message}`)],
      out && out.executable && [h("dt", null, "Executable"), h("dd", null, link("#/executables/" + out.executable, out.executable, "mono"))],
      out && (out.runMs || []).length > 0 && [h("dt", null, "Runs"), h("dd", null, out.runMs.map(ms).join(", "))],
      out && (out.overBudget || []).length > 0 && [h("dt", null, "Over budget"), h("dd", { class: "bad" }, out.overBudget.join("; "))]))),
    j.train ? training(out && out.train || j.train, out) : null,
    out && (out.comparisons || []).length ? card("Comparisons", null, table("Comparisons", [
      ["Output", c => h("b", null, c.output)], ["", c => state(c.ok ? "same" : "differs", c.ok)], ["Elements", c => count(c.elements), "num"], ["Mismatches", c => count(c.mismatches), "num"],
      ["Largest difference", c => number(c.maxAbs).toPrecision(3), "num wide"], ["First", c => c.mismatches ? `[${number(c.first)}] ${c.found}, expected ${c.expected}` : c.message || "", "wide"]], out.comparisons)) : null,
    card("Log", null, h("pre", { class: "code log", tabindex: "0", role: "region", "aria-label": "Log" }, log.text || "nothing yet"))];
}

// ---- pages

const PAGES = [[/^#?\/?$/, "overview", overview, true, "Overview"], [/^#\/executables$/, "executables", executables, true, "Executables"], [/^#\/executables\/([0-9a-f]+)$/, "executables", executable, false, "Executable"],
  [/^#\/runs$/, "runs", runs, true, "Runs"], [/^#\/runs\/(\d+)$/, "runs", run, false, "Run"], [/^#\/try$/, "try", tryPage, false, "Try a model"], [/^#\/jobs$/, "jobs", jobs, true, "Jobs"], [/^#\/jobs\/([\d.]+)$/, "jobs", job, true, "Job"]];
let turn = 0, timer = 0;

async function show(page, args, mine, first) {
  const main = $("main");
  try {
    const parts = await page[2](...args);
    if (mine !== turn) return;
    const scrolled = [...main.querySelectorAll(".scroll")].map(e => e.scrollLeft), focused = document.activeElement && main.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    main.replaceChildren(...parts.filter(Boolean));
    main.querySelectorAll(".scroll").forEach((e, k) => { e.scrollLeft = scrolled[k] || 0; });
    if (focused) main.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true }); // a redraw must not take the focus away
    if (first) { $("announce").textContent = page[4]; document.title = page[4] + " · hlod"; }
    main.dataset.ready = location.hash || "#/";
  } catch (e) {
    if (mine !== turn) return;
    if (first || e.code === 404) main.replaceChildren(h("section", { class: "card" }, h("p", { class: "empty", role: "alert" }, e instanceof Refused ? `The server refused: ${e.message}` : "The server does not answer.")));
    main.dataset.ready = location.hash || "#/";
  }
  if (mine === turn && page[3]) timer = setTimeout(() => document.hidden ? again(page, args, mine) : show(page, args, mine, false), 2000);
}
function again(page, args, mine) {
  document.addEventListener("visibilitychange", () => mine === turn && show(page, args, mine, false), { once: true });
}
function route() {
  const hash = location.hash, mine = ++turn;
  clearTimeout(timer);
  const page = PAGES.find(p => p[0].test(hash)) || PAGES[0], args = (page[0].exec(hash) || []).slice(1);
  for (const a of document.querySelectorAll("nav a")) a.toggleAttribute("aria-current", false), a.dataset.tab === page[1] && a.setAttribute("aria-current", "page");
  show(page, args, mine, true);
  scrollTo(0, 0);
}
addEventListener("hashchange", () => { route(); $("main").focus({ preventScroll: true }); });

// What stands on the page while nobody answers is old: it says so and fades, and is drawn anew when there is an answer.
let lostSince = null;
function lost(is) {
  if (is === (lostSince !== null)) return;
  lostSince = is ? new Date() : null;
  document.body.classList.toggle("stale", is);
  $("lost").hidden = !is;
  $("lost").textContent = is ? `No answer from ${location.host} since ${lostSince.toLocaleTimeString()}. What is shown below is older; it is drawn anew when the server answers.` : "";
  if (!is) route();
}
async function pulse() {
  const e = $("health");
  try {
    const [v, x] = await Promise.all([fetch("/v1/version").then(r => r.json()), fetch("/v1/health").then(r => r.json())]);
    $("version").textContent = v.version;
    e.className = "pill " + (x.ready ? "good" : "warn");
    if (e.textContent !== x.message) e.textContent = x.message;
    lost(false);
  } catch {
    e.className = "pill bad";
    if (e.textContent !== "no answer") e.textContent = "no answer";
    lost(true);
  }
  setTimeout(pulse, 5000);
}

// Colours: as the system, light, dark.
const THEMES = [["", "◐", "Colours: as the system"], ["light", "☀", "Colours: light"], ["dark", "☾", "Colours: dark"]];
function theme(name) {
  const t = THEMES.find(x => x[0] === name) || THEMES[0];
  if (t[0]) document.documentElement.dataset.theme = t[0]; else delete document.documentElement.dataset.theme;
  $("theme").textContent = t[1];
  $("theme").setAttribute("aria-label", t[2]);
  $("theme").title = t[2];
  localStorage.setItem("hlod-theme", t[0]);
}
$("theme").addEventListener("click", () => theme(THEMES[(THEMES.findIndex(t => t[0] === (document.documentElement.dataset.theme || "")) + 1) % 3][0]));
theme(localStorage.getItem("hlod-theme") || "");
pulse();
route();
