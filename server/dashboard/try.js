// SPDX-License-Identifier: Apache-2.0
// Try a model: choose or upload one, give inputs as numbers or a picture, see outputs and times. Tensors travel as JSON numbers, so every element type works alike. What was typed stays while
// the page is open; nothing is kept.
"use strict";

const SCALES = { "0 to 1": [0, 255, 0, 255, 0, 255], "-1 to 1": [127.5, 127.5, 127.5, 127.5, 127.5, 127.5], "ImageNet": [123.675, 58.395, 116.28, 57.12, 103.53, 57.375], "0 to 255": [0, 1, 0, 1, 0, 1] };
const elements = shape => shape.reduce((a, b) => a * b, 1);
const isText = t => t.dtype === "string", isFloat = t => /^(b?f|c)/.test(t.dtype);

// Rank 4 with 1, 3 or 4 channels, first or last behind the batch: what a picture fills.
function pictureOf(shape) {
  if (shape.length !== 4 || shape[0] !== 1) return null;
  if ([1, 3].includes(shape[1])) return { c: shape[1], hh: shape[2], w: shape[3], last: false };
  return [1, 3].includes(shape[3]) ? { c: shape[3], hh: shape[1], w: shape[2], last: true } : null;
}
async function pictureData(file, shape, scale) {
  const p = pictureOf(shape), image = await createImageBitmap(file), canvas = document.createElement("canvas"), side = Math.min(image.width, image.height), k = SCALES[scale];
  canvas.width = p.w; canvas.height = p.hh;
  const g = canvas.getContext("2d");
  g.imageSmoothingQuality = "high";
  g.drawImage(image, (image.width - side) / 2, (image.height - side) / 2, side, side, 0, 0, p.w, p.hh); // the middle square
  const rgba = g.getImageData(0, 0, p.w, p.hh).data, out = new Array(p.c * p.w * p.hh);
  for (let i = 0; i < p.w * p.hh; i++)
    for (let c = 0; c < p.c; c++) {
      const v = p.c === 1 ? 0.299 * rgba[i * 4] + 0.587 * rgba[i * 4 + 1] + 0.114 * rgba[i * 4 + 2] : rgba[i * 4 + c];
      out[p.last ? i * p.c + c : c * p.w * p.hh + i] = (v - k[c * 2]) / k[c * 2 + 1];
    }
  return out;
}
// "1, 2, 3", one number for all elements, "random", "zeros"; texts a line each.
function typedData(text, t, n) {
  text = text.trim();
  if (isText(t)) { const lines = text.split("\n"); return Array.from({ length: n }, (_, k) => lines[k % lines.length]); }
  if (text === "random") return Array.from({ length: n }, () => isFloat(t) ? Number(Math.random().toFixed(4)) : t.dtype === "pred" ? Number(Math.random() < 0.5) : Math.floor(Math.random() * 100));
  if (text === "zeros" || text === "") return new Array(n).fill(0);
  const v = text.split(/[\s,]+/).filter(Boolean).map(Number);
  if (v.some(Number.isNaN)) throw new Error(`${t.name}: numbers, "random" or "zeros"`);
  if (v.length !== 1 && v.length !== n) throw new Error(`${t.name}: ${n} numbers are needed, ${v.length} were given`);
  return v.length === 1 ? new Array(n).fill(v[0]) : v;
}

function inputRow(t) {
  const dims = (t.dims || []).map(d => number(d.size)), id = "try-" + Math.random().toString(36).slice(2);
  const shape = h("input", { id: id + "s", value: dims.join("x"), "aria-label": "Shape of " + t.name, size: "14" });
  const text = h("textarea", { id, rows: "2", "aria-label": "Values of " + t.name }, isText(t) ? "text" : "random");
  const file = pictureOf(dims) && h("input", { type: "file", accept: "image/*", "aria-label": "Picture for " + t.name }), scale = file && h("select", { "aria-label": "Scale of the picture for " + t.name }, Object.keys(SCALES).map(k => h("option", { value: k }, k)));
  const node = h("div", { class: "try-input" }, h("label", { for: id }, h("b", null, t.name), " ", h("code", null, t.dtype)), shape, text, file && h("span", { class: "dim" }, "or a picture"), file, scale);
  return { node, read: async () => {
    const s = shape.value.trim() ? shape.value.trim().split("x").map(Number) : [];
    if (s.some(v => !Number.isInteger(v) || v < 0)) throw new Error(`${t.name}: a shape is written 1x3x224x224`);
    const picture = file && file.files[0];
    if (picture && !pictureOf(s)) throw new Error(`${t.name}: a picture needs a shape like 1x3x224x224`);
    return { name: t.name, dtype: t.dtype, shape: s, data: picture ? await pictureData(picture, s, scale.value) : typedData(text.value, t, elements(s)) };
  } };
}

function outputCard(o) {
  const v = (o.data || []).flat(Infinity), numbers = v.length && typeof v[0] === "number", text = x => typeof x === "number" ? String(Number(x.toPrecision(6))) : String(x);
  const best = numbers && v.length > 4 && v.length <= 100000 ? v.map((x, k) => [x, k]).sort((a, b) => b[0] - a[0]).slice(0, 5) : [];
  return h("div", { class: "try-output" }, h("p", null, h("b", null, o.name), " ", h("code", null, `${o.dtype}[${(o.shape || []).map(Number).join(",")}]`)), h("p", { class: "mono" }, v.slice(0, 24).map(text).join("  ") + (v.length > 24 ? " …" : "")),
    best.length ? table("Largest of " + o.name, [["Index", b => count(b[1]), "num"], ["Value", b => text(b[0]), "num"]], best) : null);
}

async function tryPage() {
  const list = await loadModels(), file = h("input", { type: "file", "aria-label": "Model file", id: "try-file" });
  const choice = h("select", { id: "try-model", "aria-label": "Model" }, h("option", { value: "" }, list.length ? "choose a model" : "no model has a name"), list.map(m => h("option", { value: m.name + ":" + number(m.version) }, m.name + ":" + number(m.version))));
  const about = h("div", { class: "try-about" }), inputs = h("div", null, h("p", { class: "dim" }, "Choose a model to see its inputs.")), outputs = h("div", { "aria-live": "polite" }, h("p", { class: "dim" }, "Nothing has run yet.")), error = h("p", { class: "error", role: "alert", id: "try-error" });
  const beside = h("p", { id: "try-here", class: "dim", "aria-live": "polite" });
  let rows = [], model = "", last = null; // the last run's inputs and reply
  const go = h("button", { type: "button", class: "primary", id: "try-run", disabled: true }, "Run");
  const here = h("button", { type: "button", id: "try-browser", disabled: true, title: "After a run on the server: the same model and inputs, by this browser" }, "Run in this browser too");
  const say = x => { error.textContent = x ? x.message || String(x) : ""; };
  const load = async (path, body) => {
    say(null); fill(about, h("p", { class: "dim" }, "compiling …")); fill(outputs); fill(beside); go.disabled = here.disabled = true;
    try {
      const c = await api(path, { method: "POST", body, headers: { "Content-Type": "application/octet-stream" } }), e = c.executable, again = (c.assumed || []).length > 0;
      model = c.sourceDigest;
      rows = ((e.signature || {}).inputs || []).map(inputRow);
      fill(about, h("p", null, link("#/executables/" + c.digest, short(c.digest), "mono"), ` ${count((e.before || {}).entry)} → ${count(countsOf(e).entry)} instructions, ${count(countsOf(e).fusions)} fusions, ${c.cacheHit ? "from the cache" : "compiled in " + ms(e.compileMs)}`),
        again && h("p", { class: "dim" }, "Open dimensions have their usual sizes; change a shape below for others."));
      fill(inputs, rows.map(r => r.node));
      go.disabled = false;
    } catch (x) { fill(about); fill(inputs); say(x); }
  };
  // Only one of the two is what is shown.
  choice.addEventListener("change", () => { file.value = ""; if (choice.value) load("/v1/executables?model=" + encodeURIComponent(choice.value)); });
  file.addEventListener("change", () => { choice.value = ""; if (file.files[0]) load("/v1/executables", file.files[0]); });
  go.addEventListener("click", async () => {
    say(null); fill(beside); go.disabled = here.disabled = true; last = null;
    try {
      const at = performance.now(), inputs = await Promise.all(rows.map(r => r.read())), body = JSON.stringify({ model, inputs });
      const r = await api("/v1/run", { method: "POST", body, headers: { "Content-Type": "application/json" } });
      fill(outputs, h("p", { id: "try-times" }, `on ${r.device}: `, (r.timings || []).map(t => `${t.name} ${ms(t.ms)}`).join(" · "), ` · seen from here ${ms(performance.now() - at)} `, r.job && link("#/runs/" + r.job, "run #" + r.job)), (r.outputs || []).map(outputCard));
      last = { inputs, reply: r };
    } catch (x) { say(x); }
    go.disabled = false;
    here.disabled = !last;
  });
  here.addEventListener("click", async () => {
    say(null); here.disabled = go.disabled = true; fill(beside, "the server packs the model …");
    try { fill(beside, await runHere(model, last.inputs, last.reply)); } catch (x) { fill(beside); say(x); }
    here.disabled = go.disabled = false;
  });
  return [h("div", { class: "head" }, h("h1", null, "Try a model")),
    card("Model", null, h("div", { class: "body try" }, choice, h("label", { for: "try-file" }, "or a file: ONNX or HLO"), file, about)),
    card("Inputs", go, h("div", { class: "body try" }, inputs, error)), card("Outputs", here, h("div", { class: "body try" }, outputs, beside))];
}
