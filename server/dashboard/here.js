// SPDX-License-Identifier: Apache-2.0
// The tried model in the visitor's browser: the server exports it (docs/web.md), the runtime of exported models, served beside this page, runs it on the same inputs.
"use strict";

const TAR_BLOCK = 512, TAR_NAME = 100, TAR_SIZE = [124, 136], HERE_RUNS = 5, HERE_SLOW_MS = 1000;
// The files of a tar archive (ustar) by name.
function untar(bytes) {
  const files = new Map(), text = (from, to) => new TextDecoder().decode(bytes.subarray(from, to)).replace(/\0.*$/s, "");
  for (let at = 0; at + TAR_BLOCK <= bytes.length && bytes[at];) {
    const size = parseInt(text(at + TAR_SIZE[0], at + TAR_SIZE[1]), 8);
    files.set(text(at, at + TAR_NAME), bytes.subarray(at + TAR_BLOCK, at + TAR_BLOCK + size));
    at += TAR_BLOCK + Math.ceil(size / TAR_BLOCK) * TAR_BLOCK;
  }
  return files;
}
async function exported(model, inputs) {
  const shapes = inputs.filter(t => t.shape.length).map(t => "shape=" + encodeURIComponent(t.name + "=" + t.shape.join("x")));
  const reply = await api(`/v1/models/${encodeURIComponent(model)}/web?${shapes.join("&")}`, { method: "POST", raw: true, accept: "application/x-tar" });
  return untar(new Uint8Array(await reply.arrayBuffer()));
}
// Elements as the API has them; null: not told apart here (bf16, complex numbers, narrow floats).
function asNumbers(runtime, dtype, v) {
  if (dtype === "f16") return Array.from(v, runtime.fromHalf);
  return /^(f32|f64|pred|[su]\d+)$/.test(dtype) ? Array.from(v, Number) : null;
}
// The largest difference between the two sets of outputs; NaN equals NaN.
function apart(runtime, outputs, theirs, mine) {
  let most = 0;
  for (const [k, o] of outputs.entries()) {
    const a = (theirs[k].data || []).flat(Infinity).map(Number), b = asNumbers(runtime, o.dtype, mine[o.name]);
    if (!b || a.length !== b.length) return null;
    a.forEach((x, i) => { if (!Object.is(x, b[i]) && x !== b[i]) most = Math.max(most, Number.isNaN(Math.abs(x - b[i])) ? Infinity : Math.abs(x - b[i])); });
  }
  return most;
}
const median = v => [...v].sort((a, b) => a - b)[v.length >> 1];

// Gives what is to be shown: both times and how far the results are from each other. reply: of the same inputs' run on the server.
async function runHere(model, inputs, reply) {
  const runtime = await import("/runtime/hlod.js"), files = await exported(model, inputs), begun = performance.now();
  const own = await runtime.load(async name => {
    const file = files.get("package/model/" + (name === null ? "manifest.json" : name));
    if (!file) throw new Error("the package has no file " + name);
    return file;
  });
  const loaded = performance.now() - begun, values = Object.fromEntries(inputs.map(t => [t.name, t.data])), times = [];
  let mine;
  try {
    while (times.length < HERE_RUNS && !(times[0] > HERE_SLOW_MS)) {
      const at = performance.now();
      mine = await own.run(values);
      times.push(performance.now() - at);
    }
    const most = apart(runtime, own.outputs, reply.outputs || [], mine), theirs = (reply.timings || []).find(t => t.name === "run");
    return [`here by ${own.backend}: run ${ms(median(times))} (median of ${times.length}), loaded in ${ms(loaded)}`, theirs ? ` · on ${reply.device}: run ${ms(theirs.ms)}` : "",
      most === null ? " · results are not compared" : ` · results differ by ${most === 0 ? "nothing" : most.toPrecision(2) + " at most"}`].join("");
  } finally { own.dispose(); }
}
