// SPDX-License-Identifier: Apache-2.0
// What a page does for a server: messages in (devices/web/web_wire.h), answers out. Runs in a
// dedicated worker of the page, which the page ends where a run is to be given up; tests run it in
// Node. Knows no socket.
import { arrayOf } from "./runtime/dtypes.js";
import { load } from "./runtime/hlod.js";

export const VERSION = 1;
export const HELLO = 1, LOADED = 2, RESULT = 3, FAILED = 4, DONE = 5;
export const FILE = 16, LOAD = 17, RUN = 18, FREE = 19, RESET = 20;
const HEAD = 8, TEXT = 1000, NAME = 16, PAD = 8;

const padded = (n) => Math.ceil(n / PAD) * PAD;

/** A message of a type, a number, and bytes behind them. */
export function message(type, number, body = new Uint8Array(0)) {
  const out = new Uint8Array(HEAD + body.length), view = new DataView(out.buffer);
  view.setUint32(0, type, true);
  view.setUint32(4, number, true);
  out.set(body, HEAD);
  return out;
}
/** A message whose body is a text, cut to what the server takes. */
export function words(type, number, text) {
  return message(type, number, new TextEncoder().encode(text).subarray(0, TEXT));
}
/** [type, number] of a message. */
export function headOf(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, HEAD);
  return [view.getUint32(0, true), view.getUint32(4, true)];
}

function inputsOf(model, bytes) {
  const inputs = {};
  let at = 2 * HEAD;
  for (const v of model.manifest.inputs) {
    const type = arrayOf(v.dtype);
    inputs[v.name] = new type(bytes.buffer, bytes.byteOffset + at, v.bytes / type.BYTES_PER_ELEMENT);
    at += padded(v.bytes);
  }
  return inputs;
}
function resultOf(model, run, values) {
  const { outputs } = model.manifest;
  const heads = outputs.reduce((n, v) => n + NAME + 16 + 8 * v.shape.length, 2 * HEAD);
  const out = new Uint8Array(outputs.reduce((n, v) => n + padded(v.bytes), heads));
  const view = new DataView(out.buffer);
  view.setUint32(0, RESULT, true);
  view.setUint32(4, run, true);
  view.setUint32(HEAD, outputs.length, true);

  let at = 2 * HEAD, data = heads;
  for (const v of outputs) {
    out.set(new TextEncoder().encode(v.dtype), at);
    view.setUint32(at + NAME, v.shape.length, true);
    view.setBigUint64(at + NAME + 8, BigInt(v.bytes), true);
    v.shape.forEach((n, k) => view.setBigUint64(at + NAME + 16 + 8 * k, BigInt(n), true));
    at += NAME + 16 + 8 * v.shape.length;
    const { buffer, byteOffset, byteLength } = values[v.name];
    out.set(new Uint8Array(buffer, byteOffset, byteLength), data);
    data += padded(v.bytes);
  }
  return out;
}

/**
 * The models of one connection. options: as of `load`. send(bytes) takes an answer; tell(event) is
 * told what went on: {what, ms, backend, error}.
 */
export class Tab {
  #models = new Map();
  #files = new Map();
  #last = Promise.resolve();
  constructor(send, options = {}, tell = () => {}) {
    this.send = send;
    this.options = options;
    this.tell = tell;
  }

  /** Takes a message; one is done before the next begins. */
  take(bytes) {
    return (this.#last = this.#last.then(() => this.#take(bytes)));
  }
  async #take(bytes) {
    const [type, number] = headOf(bytes), start = performance.now();
    const what = type === RUN ? "run" : type === LOAD ? "load" : "";
    try {
      const event = await this.#do(type, number, bytes);
      if (what) this.tell({ what, ms: performance.now() - start, ...event });
    } catch (e) {
      if (type === FILE || type === FREE) throw e;
      this.tell({ what, error: String(e.message ?? e) });
      this.send(words(FAILED, number, String(e.message ?? e)));
    }
  }
  async #do(type, number, bytes) {
    if (type === FILE) return this.#keep(number, bytes);
    if (type === LOAD) return this.#load(number);
    if (type === RUN) return this.#run(number, bytes);
    if (type !== FREE) throw new Error(`a message of type ${type}`);
    this.#models.get(number)?.dispose();
    this.#models.delete(number);
    return {};
  }
  #keep(number, bytes) {
    const n = new DataView(bytes.buffer, bytes.byteOffset).getUint32(HEAD, true);
    const name = new TextDecoder().decode(bytes.subarray(HEAD + 4, HEAD + 4 + n));
    if (!this.#files.has(number)) this.#files.set(number, new Map());
    this.#files.get(number).set(name, bytes.subarray(HEAD + 4 + n));
    return {};
  }
  async #load(number) {
    const files = this.#files.get(number) ?? new Map();
    this.#files.delete(number);
    const model = await load(async (name) => {
      const file = files.get(name ?? "manifest.json");
      if (!file) throw new Error(`there is no file ${name}`);
      files.delete(name ?? "manifest.json");
      return file;
    }, this.options);
    this.#models.set(number, model);
    this.send(words(LOADED, number, model.backend));
    return { backend: model.backend };
  }
  async #run(number, bytes) {
    const of = new DataView(bytes.buffer, bytes.byteOffset).getUint32(HEAD, true);
    const model = this.#models.get(of);
    if (!model) throw new Error(`there is no model ${of}`);
    const values = await model.run(inputsOf(model, bytes));
    this.send(resultOf(model, number, values));
    return { backend: model.backend };
  }
}
