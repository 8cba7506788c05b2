// SPDX-License-Identifier: Apache-2.0
// The check of a manifest (docs/web.md). A page may be fed a manifest that nobody of good will
// wrote: every number is a place or a size within the memory it asks for, every index is in range, and
// nesting is bounded, before anything is made of it.
import { arrayOf, partsOf } from "./dtypes.js";
import { refuse } from "./errors.js";

const MOST_MEMORY = 2 ** 32 - 65536, MOST_STEPS = 1 << 20, DEEPEST = 64;
// Bytes of an element in memory, as sent, and of the table before all of them.
const FORMS = { raw: [1, 1, 0], f16: [4, 2, 0], bf16: [4, 2, 0], table16: [2, 1, 512], table32: [4, 1, 1024] };
const KINDS = { run: 3, copy: 4, while: 3, if: 3, case: 3 };

const isWhole = (x, most) => Number.isInteger(x) && x >= 0 && x <= most;
const isArray = (x, most = MOST_STEPS) => Array.isArray(x) && x.length <= most;

function whole(x, most, what) {
  if (!isWhole(x, most)) refuse(`damaged manifest: ${what} is not a number up to ${most}`);
  return x;
}
function text(x, what) {
  if (typeof x !== "string" || x.length > 4096) refuse(`damaged manifest: ${what} is no text`);
  return x;
}
function list(x, what) {
  if (!isArray(x)) refuse(`damaged manifest: ${what} is no list`);
  return x;
}
function object(x, what) {
  if (x === null || typeof x !== "object") refuse(`damaged manifest: ${what} is missing`);
  return x;
}

class Checker {
  constructor(manifest) {
    this.m = manifest;
    this.steps = 0;
  }
  // A place of so many bytes.
  place(at, bytes, what) {
    whole(at, this.m.memory.bytes, what);
    if (at + whole(bytes, MOST_MEMORY, what) > this.m.memory.bytes)
      refuse(`damaged manifest: ${what} lies outside of memory`);
  }
  memory() {
    const m = object(this.m.memory, "memory");
    whole(m.bytes, MOST_MEMORY, "memory.bytes");
    for (const name of ["stack", "frames", "scratch"]) whole(m[name], m.bytes, "memory." + name);
  }
  file(f, what) {
    text(object(f, what).file, what);
    whole(f.bytes, MOST_MEMORY, what + "'s size");
    if (!/^[0-9a-f]{64}$/.test(f.sha256)) refuse(`damaged manifest: ${what} has no digest`);
    if (!/^[A-Za-z0-9_][A-Za-z0-9_.-]*$/.test(f.file))
      refuse(`damaged manifest: ${what} is not a file beside it`);
  }
  value(v, what) {
    text(object(v, what).name, what);
    if (!arrayOf(text(v.dtype, what + "'s type")))
      refuse(`damaged manifest: ${what} has the unknown type ${v.dtype}`);
    let elements = 1;
    for (const n of list(v.shape, what + "'s shape"))
      elements *= whole(n, MOST_MEMORY, what + "'s shape");
    const unit = arrayOf(v.dtype).BYTES_PER_ELEMENT;
    if (v.bytes !== elements * unit * partsOf(v.dtype))
      refuse(`damaged manifest: ${what} is not as large as its shape`);
    this.place(v.at, v.bytes, what);
    if (v.cut !== undefined) this.cut(v, what);
    if (v.at % unit) refuse(`damaged manifest: ${what} does not lie at a multiple of its elements`);
  }
  // Dimensions of which only a run knows how much counts, and where it says so.
  cut(v, what) {
    if (this.m.version < 3 || !isArray(v.cut, 64))
      refuse(`damaged manifest: ${what} is cut otherwise than version 3 does it`);
    for (const c of v.cut) {
      if (!isArray(c, 2) || c.length !== 2) refuse(`damaged manifest: ${what}: a cut`);
      whole(c[0], v.shape.length - 1, `${what}: what is cut`);
      this.place(c[1], 8, `${what}: its size`);
      if (c[1] % 8) refuse(`damaged manifest: ${what}: its size lies at no multiple of 8`);
    }
  }
  kernel(k) {
    if (!isArray(k) || k.length !== 5) refuse("damaged manifest: a kernel is no list of five");
    text(k[0], "a kernel's name");
    whole(k[1], 2 ** 31 - 1, "a kernel's extent");
    whole(k[2], 1024, "a kernel's buffers");
    for (const n of list(k[3], "a kernel's sizes"))
      if (!Number.isSafeInteger(n)) refuse("damaged manifest: a kernel's size is no number");
    text(k[4], "what a kernel computes");
  }
  step(s, depth) {
    if (++this.steps > MOST_STEPS) refuse("damaged manifest: too many steps");
    const n = Array.isArray(s) && Object.hasOwn(KINDS, s[0]) ? KINDS[s[0]] : 0;
    if (!n || s.length !== n) refuse("damaged manifest: a step of no known kind");
    if (s[0] === "run") {
      const k = this.m.kernels[whole(s[1], this.m.kernels.length - 1, "a step's kernel")];
      if (list(s[2], "a step's buffers").length !== k[2])
        refuse(`damaged manifest: a step of ${k[0]} has ${s[2].length} buffers, not ${k[2]}`);
      const sizes = this.m.gpu?.buffers[s[1]][2];
      s[2].forEach((at, n) => this.place(at, sizes ? sizes[n] : 0, "a step's buffer"));
    } else if (s[0] === "copy") {
      this.place(s[1], s[3], "a copy");
      this.place(s[2], s[3], "a copy");
    } else {
      this.place(s[1], s[0] === "case" ? 4 : 1, "a condition");
      const parts = list(s[2], "a step's parts");
      if (s[0] === "while" ? parts.length !== 2 : parts.length < 1 || parts.length > 4096)
        refuse("damaged manifest: a step has not as many parts as its kind");
      for (const part of parts) this.program(part, depth + 1);
    }
  }
  program(steps, depth) {
    if (depth > DEEPEST) refuse("damaged manifest: loops too deep");
    for (const s of list(steps, "the program")) this.step(s, depth);
  }
  weights() {
    const w = object(this.m.weights, "weights");
    list(w.chunks, "weights.chunks").forEach((f, k) => this.file(f, `chunk ${k}`));
    let stored = 0;
    for (const t of list(w.tensors, "weights.tensors")) {
      if (!isArray(t) || t.length !== 3 || !Object.hasOwn(FORMS, t[2]))
        refuse("damaged manifest: a weight is no list of place, bytes and form");
      this.place(t[0], t[1], "a weight");
      const [unit, sent, before] = FORMS[t[2]];
      if (t[0] % unit || t[1] % unit) refuse(`damaged manifest: a weight of ${t[2]}`);
      if (unit > 1 && t[2] !== "f16" && this.m.version !== 4)
        refuse(`damaged manifest: ${t[2]} before version 4`);
      const bytes = before + t[1] / unit * sent;
      stored += bytes + (-bytes & 3);
    }
    if (w.chunks.reduce((n, c) => n + c.bytes, 0) !== stored)
      refuse("damaged manifest: the chunks are not as large as the weights");
    if (w.chunks.some((c, k) => c.bytes % 4 && k < w.chunks.length - 1))
      refuse("damaged manifest: a chunk ends within an element");
  }
  // What GPUs need: sizes of all that steps read and write, and some kernels in a language of theirs.
  gpu() {
    const g = object(this.m.gpu, "gpu"), { kernels } = this.m;
    if (!["auto", "webgpu", "webgl"].includes(g.backend)) refuse("damaged manifest: gpu.backend");
    const asKernels = (x, what) => {
      if (list(x, what).length !== kernels.length)
        refuse(`damaged manifest: ${what} is not as long as kernels`);
    };
    asKernels(g.buffers, "gpu.buffers");
    g.buffers.forEach((b, k) => {
      if (!isArray(b, 3) || b.length !== 3) refuse("damaged manifest: gpu.buffers");
      whole(b[0], kernels[k][2], "what a kernel reads");
      whole(b[1], 1, "whether a kernel updates");
      if (list(b[2], "sizes of buffers").length !== kernels[k][2])
        refuse("damaged manifest: sizes of buffers are not as many");
      for (const n of b[2]) whole(n, MOST_MEMORY, "a buffer's size");
    });
    for (const language of ["wgsl", "glsl"]) {
      if (g[language] === undefined) continue;
      const of = object(g[language], `gpu.${language}`);
      this.file(of.code, `gpu.${language}.code`);
      asKernels(of.kernels, `gpu.${language}.kernels`);
      of.kernels.forEach((k, n) => k === null || this.onGpu(k, n, language));
    }
  }
  onGpu(k, n, language) {
    const [reads, , sizes] = this.m.gpu.buffers[n], what = `a kernel of ${language}`;
    if (!isArray(k, 5) || k.length < 4 || !/^\w{1,64}$/.test(k[0]))
      refuse(`damaged manifest: ${what} is no list of four or five`);
    whole(k[1], 2 ** 31 - 1, `${what}: its extent`);
    if (language === "wgsl" && whole(k[2], 2 ** 26, `${what}: its scratch`) % 4)
      refuse(`damaged manifest: ${what}: its scratch is no words`);
    if (language === "glsl") {
      if (list(k[2], `${what}: its results`).length !== sizes.length - reads ||
        k[2].some((b, r) => ![1, 2, 4, 8].includes(b) || b * k[1] > sizes[reads + r]))
        refuse(`damaged manifest: ${what}: its results`);
    }
    if (k.length > 4) {
      if (language !== "glsl" || !isArray(k[4], 2) || k[4].length !== 2)
        refuse(`damaged manifest: ${what}: its sums`);
      whole(k[4][0] - 1, 2 ** 27, `${what}: units of its sums`);
      whole(k[4][1] - 1, 15, `${what}: sums of a unit`);
    }
    const tables = list(k[3], `${what}: its tables`);
    if (tables.length % 2 || sizes.length + tables.length / 2 > 60)
      refuse(`damaged manifest: ${what}: its buffers`);
    for (let t = 0; t < tables.length; t += 2)
      this.place(tables[t], tables[t + 1], `${what}: a table`);
  }
  image() {
    const i = this.m.image;
    if (i === undefined) return;
    const input = this.m.inputs.find((v) => v.name === object(i, "image").input);
    whole(i.width, 32768, "image.width");
    whole(i.height, 32768, "image.height");
    const three = (x) => isArray(x, 3) && x.length === 3 && x.every(Number.isFinite);
    if (!three(i.mean) || !three(i.std) || !Number.isFinite(i.crop) || i.crop < 0 || i.crop > 1 ||
      (i.layout !== "nchw" && i.layout !== "nhwc") || !input || input.dtype !== "f32" ||
      input.bytes !== i.width * i.height * 12)
      refuse("damaged manifest: image does not fit an input");
  }
}

/** Throws HlodError where the manifest is not one that this runtime can trust; gives it back. */
export function checkManifest(m) {
  if (object(m, "the manifest").format !== "hlod-web") refuse("this is no manifest of hlod");
  if (![1, 2, 3, 4].includes(m.version))
    refuse(`manifest version ${m.version}: this runtime reads versions 1 to 4`);
  const c = new Checker(m);
  text(m.name, "name");
  c.memory();
  c.file(m.code, "code");
  for (const side of ["inputs", "outputs"])
    list(m[side], side).forEach((v, k) => c.value(v, `${side} ${k}`));
  list(m.kernels, "kernels").forEach((k) => c.kernel(k));
  if (m.version === 2 || (m.version > 2 && m.gpu !== undefined)) c.gpu();
  else if (m.gpu !== undefined) refuse("damaged manifest: version 1 has no gpu");
  c.weights();
  c.image();
  if (m.labels !== undefined) list(m.labels, "labels").forEach((l) => text(l, "a label"));
  c.program(m.program, 0);
  return m;
}
