// SPDX-License-Identifier: Apache-2.0
// hlod: runs a model that `hlo export --web` wrote, in a browser or in Node, without dependencies.
//     import * as hlod from "./runtime/hlod.js";
//     const model = await hlod.load(new URL("./model/manifest.json", import.meta.url));
//     const { prob } = await model.run({ image: file });
import { onGpu } from "./backends.js";
import { arrayOf, fromHalf, partsOf, toBrain, toHalf } from "./dtypes.js";
import { HlodError, refuse } from "./errors.js";
import { isPicture, pixelsOf, tensorOf } from "./image.js";
import { checkManifest } from "./manifest.js";
import { sha256 } from "./sha256.js";
import { WasmEngine } from "./wasm.js";

export { HlodError, fromHalf, toHalf };

// Files beside a manifest at `url`: fetched, or in Node of file: URLs, read.
function filesAt(url) {
  const base = new URL(url, globalThis.location?.href);
  return async (name) => {
    const from = name === null ? base : new URL(name, base);
    let reply;
    try {
      if (from.protocol === "file:" && globalThis.process?.versions?.node) {
        const { readFile } = await import("node:fs/promises");
        return new Uint8Array(await readFile(from));
      }
      reply = await fetch(from);
      if (reply.ok) return new Uint8Array(await reply.arrayBuffer());
    } catch (e) {
      refuse(`${from}: ${e.message}`);
    }
    refuse(`${from}: ${reply.status} ${reply.statusText}`);
  };
}

async function checked(read, file) {
  const bytes = await read(file.file);
  if (bytes.length !== file.bytes)
    refuse(`${file.file} has ${bytes.length} bytes, not ${file.bytes}`);
  if (await sha256(bytes) !== file.sha256) refuse(`${file.file} is damaged: its digest differs`);
  return bytes;
}

/**
 * Loads a model. source: the URL of its manifest.json, or a function that gives the bytes of a file by
 * name (null: the manifest's). options.progress(done, all) is told bytes of weights; options.backend
 * is "auto", "webgpu", "webgl" or "wasm", options.gpu stands in for navigator.gpu, options.gl for a
 * new context (hlod.d.ts).
 */
export async function load(source, options = {}) {
  const read = typeof source === "function" ? source : filesAt(source);
  let manifest;
  try {
    manifest = JSON.parse(new TextDecoder().decode(await read(null)));
  } catch (e) {
    if (e instanceof SyntaxError) refuse(`damaged manifest: ${e.message}`);
    throw e;
  }
  checkManifest(manifest);
  const engine = new WasmEngine(manifest), { chunks } = manifest.weights;
  const all = chunks.reduce((n, c) => n + c.bytes, 0);
  let done = 0, k = 0;
  await engine.load(await checked(read, manifest.code));
  await engine.fill(async () => {
    const file = chunks[k++], bytes = await checked(read, file);
    options.progress?.(done += file.bytes, all);
    return bytes;
  });
  return new Model(manifest, engine, await gpuOf(manifest, engine, read, options));
}

// What runs kernels on a GPU, {engine}; or {note} says why nothing does.
async function gpuOf(manifest, wasm, read, options) {
  const { backend = manifest.gpu?.backend ?? "auto" } = options, notes = [];
  if (!["auto", "wasm", "webgpu", "webgl"].includes(backend))
    refuse(`there is no backend '${backend}'`);
  if (backend === "wasm") return { note: "WebAssembly was asked for" };
  for (const [name, by] of Object.entries(onGpu)) {
    if (backend !== "auto" && backend !== name) continue;
    const got = await engineBy(by, manifest, wasm, read, options, backend === name);
    if (got.engine) return got;
    notes.push(got.note);
  }
  const note = notes.join("; ") || "the package was made without it";
  if (backend !== "auto") console.warn(`hlod: runs in WebAssembly: ${note}`);
  return { note };
}
async function engineBy({ language, Engine, open }, manifest, wasm, read, options, always) {
  const of = manifest.gpu?.[language];
  if (!of) return { note: `the model has no kernels in ${language.toUpperCase()}` };
  const got = await open(manifest, options, always);
  if (got.note) return got;
  let engine;
  try {
    const text = new TextDecoder().decode(await checked(read, of.code));
    engine = new Engine(manifest, wasm, text, got);
    await engine.make();
    return { engine };
  } catch (e) {
    if (engine) engine.dispose();
    else got.close();
    if (e.name === "HlodError") throw e;
    return { note: e.message };
  }
}

// What counts of an output, and its shape: sizes are [dimension, how much of it].
function cutTo(values, v, sizes) {
  const shape = [...v.shape];
  for (const [dim, size] of sizes) {
    const bound = shape[dim], n = Number(size < 0n ? 0n : size > BigInt(bound) ? BigInt(bound) : size);
    const inner = shape.slice(dim + 1).reduce((a, b) => a * b, partsOf(v.dtype));
    const outer = shape.slice(0, dim).reduce((a, b) => a * b, 1);
    for (let k = 1; k < outer && n < bound; k++)
      values.copyWithin(k * n * inner, k * bound * inner, (k * bound + n) * inner);
    values = values.subarray(0, outer * n * inner);
    shape[dim] = n;
  }
  return [values.slice(), shape];
}

const shapeText = (v) => `${v.dtype}[${v.shape}]`;

/** A model in memory. Runs come one after the other. */
export class Model {
  #engine;
  #gpu;
  #last = Promise.resolve();
  constructor(manifest, engine, gpu = {}) {
    const facts = (v) => Object.freeze({ name: v.name, dtype: v.dtype, shape: [...v.shape],
      ...(v.cut ? { open: v.cut.map(([dim]) => dim) } : {}) });
    this.name = manifest.name;
    this.inputs = manifest.inputs.map(facts);
    this.outputs = manifest.outputs.map(facts);
    this.labels = manifest.labels ?? [];
    this.image = manifest.image ?? null;
    this.manifest = manifest;
    this.#engine = engine;
    this.#gpu = gpu.engine ?? null;
    this.backend = this.#gpu?.name ?? "wasm";
    this.backendNote = gpu.note ??
      (this.#gpu?.refused ? `the browser does not take ${this.#gpu.refused} kernels, which run in WebAssembly` : "");
  }

  /**
   * Runs the model once. inputs: for each name an array of its type, or of numbers, in row-major order;
   * for the input that pictures become, also a picture. Gives the outputs by name. options.profile:
   * a list that gets [what, milliseconds] of each kernel; options.shapes: an object that gets the shape
   * of each output, where a size of it is open until the run.
   */
  async run(inputs, options = {}) {
    const known = new Set(this.inputs.map((v) => v.name));
    for (const name of Object.keys(inputs ?? {}))
      if (!known.has(name))
        refuse(`there is no input '${name}'; there are ${[...known].join(", ")}`);
    const values = [];
    for (const v of this.manifest.inputs) values.push(await this.#value(v, inputs?.[v.name]));
    const before = this.#last, run = before.then(() => this.#once(values, options));
    this.#last = run.catch(() => {});
    return run;
  }
  async #once(values, { profile: times = null, shapes = {} }) {
    this.manifest.inputs.forEach((v, k) => this.#put(v, values[k]));
    try {
      if (this.#gpu) await this.#gpu.run(times);
      else this.#engine.run(times);
    } catch (e) {
      this.#leaveGpu(e);
      refuse(`the run failed: ${e.message}`);
    }
    const out = {};
    for (const v of this.manifest.outputs) {
      const type = arrayOf(v.dtype);
      const all = this.#engine.array(type, v.at, v.bytes / type.BYTES_PER_ELEMENT).slice();
      const sizes = (v.cut ?? []).map(([dim, at]) => [dim, this.#engine.array(BigInt64Array, at, 1)[0]]);
      const [values, shape] = v.cut ? cutTo(all, v, sizes) : [all, [...v.shape]];
      for (const [to, x] of [[out, values], [shapes, shape]])
        Object.defineProperty(to, v.name, { value: x, enumerable: true, writable: true, configurable: true });
    }
    return out;
  }

  // A GPU that failed once is not asked again: all that WebAssembly needs is in its memory.
  #leaveGpu(e) {
    if (!this.#gpu) return;
    this.#gpu.dispose();
    this.#gpu = null;
    this.backend = "wasm";
    this.backendNote = e.message;
    console.warn(`hlod: goes on in WebAssembly: ${e.message}`);
  }

  /** Gives the GPU's memory back; later runs are WebAssembly's. */
  dispose() {
    this.#gpu?.dispose();
    this.backendNote ||= "the model was disposed of";
    this.backend = "wasm";
    this.#gpu = null;
  }

  /** The k largest of an output's numbers as [{index, label, score}], the first output's if none. */
  top(output, k = 5) {
    const scores = Array.from(output, Number), { labels } = this;
    return scores.map((score, index) => ({ index, label: labels[index] ?? String(index), score }))
      .sort((a, b) => b.score - a.score || a.index - b.index).slice(0, k);
  }

  async #value(v, x) {
    if (x === undefined) refuse(`input '${v.name}' is missing: ${shapeText(v)}`);
    const { image } = this;
    if (image?.input === v.name && isPicture(x)) return tensorOf(await pixelsOf(x), image);
    return x;
  }

  #put(v, x) {
    const type = arrayOf(v.dtype), n = v.bytes / type.BYTES_PER_ELEMENT;
    const view = this.#engine.array(type, v.at, n);
    const flat = Array.isArray(x) ? x.flat(Infinity) : x;
    if (typeof x === "number" || typeof x === "bigint" || typeof x === "boolean") return this.#put(v, [x]);
    if (!Array.isArray(flat) && !ArrayBuffer.isView(flat))
      refuse(`input '${v.name}' is no array: expected ${shapeText(v)}`);
    if (flat.length !== n)
      refuse(`input '${v.name}' has ${flat.length} elements, ${shapeText(v)} has ${n}` +
        (partsOf(v.dtype) > 1 ? ", two for each complex number" : ""));
    if (flat instanceof type && flat.constructor === type) return view.set(flat);
    const big = type === BigInt64Array || type === BigUint64Array;
    const one = big ? BigInt : v.dtype === "f16" ? toHalf : v.dtype === "bf16" ? toBrain :
      v.dtype === "pred" ? (x) => (x ? 1 : 0) : Number;
    for (let k = 0; k < n; k++) {
      try {
        view[k] = one(flat[k]);
      } catch (e) {
        refuse(`input '${v.name}': element ${k} is no ${v.dtype}: ${e.message}`);
      }
    }
  }
}
