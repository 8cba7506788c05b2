// SPDX-License-Identifier: Apache-2.0
// The page: loads the model that lies beside it, or in it, takes a picture or random numbers, and shows
// what comes out and how long it took.
import { arrayOf } from "./dtypes.js";
import { load } from "./hlod.js";

const WARM = 3, TIMED = 100;
const $ = (id) => document.getElementById(id);
const say = (text) => { $("state").textContent = text; };

// Bytes of a file that is embedded in the page as base64; null: the page has none.
function embedded() {
  if (!$("manifest.json")) return null;
  return async (name) => {
    const element = $(name ?? "manifest.json");
    if (!element) throw new Error(`the page has no ${name}`);
    const text = atob(element.textContent.trim()), bytes = new Uint8Array(text.length);
    for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
    element.remove();
    return bytes;
  };
}

function row(cells) {
  const tr = document.createElement("tr");
  for (const c of cells) tr.appendChild(document.createElement("td")).textContent = c;
  return tr;
}

function show(model, outputs, shapes, ms) {
  const rows = [];
  for (const v of model.outputs) {
    const scores = outputs[v.name], many = model.labels.length === scores.length;
    if (many) for (const t of model.top(scores)) rows.push(row([t.label, t.score.toFixed(4)]));
    else rows.push(row([`${v.name} ${v.dtype}[${shapes[v.name]}]`, Array.from(scores.slice(0, 8)).join(", ")]));
  }
  $("results").replaceChildren(...rows);
  say(`${ms.toFixed(1)} ms`);
}

function randomInputs(model) {
  const inputs = {};
  for (const v of model.inputs) {
    const n = v.shape.reduce((a, b) => a * b, 1), type = arrayOf(v.dtype);
    const big = type === BigInt64Array || type === BigUint64Array;
    inputs[v.name] = Array.from({ length: v.dtype.startsWith("c") ? 2 * n : n },
      () => big ? 0n : v.dtype[0] === "f" || v.dtype === "bf16" ? Math.random() : 0);
  }
  return inputs;
}

async function once(model, inputs) {
  const shapes = {}, start = performance.now(), outputs = await model.run(inputs, { shapes });
  show(model, outputs, shapes, performance.now() - start);
  return outputs;
}

// Mean of many runs of the model alone.
async function time(model, inputs) {
  const times = [];
  for (let k = 0; k < WARM + TIMED; k++) {
    const start = performance.now();
    await model.run(inputs);
    if (k >= WARM) times.push(performance.now() - start);
    if (k % 10 === 0) {
      say(`run ${k} of ${WARM + TIMED}`);
      await new Promise((done) => { setTimeout(done, 0); });
    }
  }
  const mean = times.reduce((a, b) => a + b, 0) / times.length;
  say(`mean ${mean.toFixed(1)} ms, least ${Math.min(...times).toFixed(1)} ms of ${TIMED} runs`);
  return { mean, times };
}

async function begin() {
  say("loading");
  const began = performance.now();
  const model = await load(embedded() ?? new URL("./model/manifest.json", location.href), {
    progress: (done, all) => say(`loading: ${Math.round(done / all * 100)} %`),
  });
  const input = model.image?.input;
  let last = null;
  $("name").textContent = document.title = model.name;
  $("facts").textContent = [...model.inputs.map((v) => `${v.name}: ${v.dtype}[${v.shape}]`),
    ...model.outputs.map((v) => `-> ${v.name}: ${v.dtype}[${v.shape}]`),
    "by " + { webgpu: "WebGPU", webgl: "WebGL2", wasm: "WebAssembly" }[model.backend]].join("  ");
  $("file").hidden = !input;
  $("file").addEventListener("change", async (e) => {
    const [file] = e.target.files;
    if (!file) return;
    const img = $("picture");
    if (img.src) URL.revokeObjectURL(img.src);
    img.src = URL.createObjectURL(file);
    img.hidden = false;
    last = { ...randomInputs(model), [input]: file };
    await once(model, last).catch((x) => say(x.message));
  });
  $("random").addEventListener("click", () => {
    last = randomInputs(model);
    once(model, last).catch((x) => say(x.message));
  });
  $("time").addEventListener("click", () => {
    time(model, last ?? randomInputs(model)).catch((x) => say(x.message));
  });
  for (const id of ["file", "random", "time"]) $(id).disabled = false;
  say(`ready in ${(performance.now() - began).toFixed(0)} ms`);
  globalThis.hlodPage = { model, run: (inputs) => once(model, inputs),
    time: (inputs) => time(model, inputs ?? randomInputs(model)) };
}

begin().catch((e) => say(`${e.name}: ${e.message}`));
