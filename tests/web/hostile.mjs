// SPDX-License-Identifier: Apache-2.0
// What a runtime must not trust: manifests that are damaged or made with ill will, chunks that are not
// what they should be, inputs that do not fit. Each is refused with an HlodError that says what is
// wrong; manifests changed at random are refused, or run within their memory.
//     node hostile.mjs PACKAGE [N [SEED]]
import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [from, count = "300", seed = "1"] = process.argv.slice(2);
const { load, HlodError } = await import(pathToFileURL(resolve(from, "runtime/hlod.js")));
const { mockGpu } = await import(new URL("mock_gpu.mjs", import.meta.url));
const { mockGl } = await import(new URL("mock_gl.mjs", import.meta.url));
const text = readFileSync(join(from, "model/manifest.json"), "utf8");
let failed = 0, passed = 0;

const files = new Map();
function file(name) {
  if (!existsSync(join(from, "model", name))) throw new HlodError(`there is no ${name}`);
  if (!files.has(name)) files.set(name, new Uint8Array(readFileSync(join(from, "model", name))));
  return files.get(name);
}
const reader = (manifest, change = (name, bytes) => bytes) => async (name) =>
  name === null ? new TextEncoder().encode(manifest) : change(name, file(name));
const zeros = (model) => Object.fromEntries(model.manifest.inputs.map((v) =>
  [v.name, Array(v.shape.reduce((a, b) => a * b, 1)).fill(0)]));
function tell(name, why) {
  if (why) failed++, console.log(`FAIL ${name}: ${why}`);
  else passed++;
}
async function refuses(name, words, work) {
  try {
    await work();
  } catch (e) {
    tell(name, !(e instanceof HlodError) ? `${e.stack}` : e.message.includes(words) ? null
      : `says "${e.message}", not "${words}"`);
    return;
  }
  tell(name, "was taken");
}
const changed = (f) => {
  const m = JSON.parse(text);
  f(m);
  return reader(JSON.stringify(m));
};

const model = await load(reader(text));
await model.run(zeros(model));

// ---- manifests
const manifests = {
  "another format": [(m) => { m.format = "x"; }, "no manifest of hlod"],
  "a later version": [(m) => { m.version = 5; }, "reads versions 1 to 4"],
  "a table in an earlier version": [(m) => { m.version = 3; m.weights.tensors[0] = [0, 8, "table32"]; },
    "table32 before version 4"],
  "a table between elements": [(m) => { m.version = 4; m.weights.tensors[0] = [2, 8, "table32"]; }, "a weight of table32"],
  "a form by another's name": [(m) => { m.weights.tensors[0] = [0, 8, "toString"]; }, "place, bytes and form"],
  "a cut in an earlier version": [(m) => { m.outputs[0].cut = [[0, 64]]; }, "version 3 does it"],
  "a cut of no dimension": [(m) => { m.version = 3; m.outputs[0].cut = [[9, 64]]; }, "what is cut"],
  "a cut of one number": [(m) => { m.version = 3; m.outputs[0].cut = [[0]]; }, "a cut"],
  "a size outside": [(m) => { m.version = 3; m.outputs[0].cut = [[0, m.memory.bytes - 4]]; }, "outside of memory"],
  "a size between": [(m) => { m.version = 3; m.outputs[0].cut = [[0, 68]]; }, "no multiple of 8"],
  "too many cuts": [(m) => { m.version = 3; m.outputs[0].cut = Array(65).fill([0, 64]); }, "version 3 does it"],
  "no memory": [(m) => { delete m.memory; }, "memory is missing"],
  "more than 4 GiB": [(m) => { m.memory.bytes = 2 ** 32; }, "memory.bytes"],
  "a negative place": [(m) => { m.memory.scratch = -1; }, "memory.scratch"],
  "a fraction": [(m) => { m.memory.frames = 0.5; }, "memory.frames"],
  "frames at the end": [(m) => { m.memory.frames = m.memory.bytes; }, "do not fit its memory"],
  "code of another folder": [(m) => { m.code.file = "../x.wasm"; }, "not a file beside it"],
  "code by a URL": [(m) => { m.code.file = "http://x/y"; }, "not a file beside it"],
  "code without a digest": [(m) => { m.code.sha256 = "0"; }, "no digest"],
  "code of another digest": [(m) => { m.code.sha256 = "0".repeat(64); }, "is damaged"],
  "an unknown type": [(m) => { m.inputs[0].dtype = "f31"; }, "unknown type f31"],
  "a type of every object": [(m) => { m.inputs[0].dtype = "constructor"; }, "unknown type"],
  "a value outside": [(m) => { m.inputs[0].at = m.memory.bytes - 4; }, "outside of memory"],
  "a value askew": [(m) => { m.outputs[0].at += 1; }, "multiple of its elements"],
  "a size that is not the shape's": [(m) => { m.inputs[0].bytes += 4; }, "as large as its shape"],
  "a shape that overflows": [(m) => { m.inputs[0].shape = [2 ** 31, 2 ** 31, 2 ** 31]; },
    "as large as its shape"],
  "a kernel that is not there": [(m) => { m.kernels[0][0] = "stack"; }, "no kernel stack"],
  "a kernel's extent": [(m) => { m.kernels[0][1] = 2 ** 40; }, "a kernel's extent"],
  "a kernel's size": [(m) => { m.kernels[0][3] = ["1"]; }, "a kernel's size"],
  "a step of no kind": [(m) => { m.program.push(["jump", 0, 0]); }, "no known kind"],
  "a step of every object": [(m) => { m.program.push(["toString", 0, 0]); }, "no known kind"],
  "a step's kernel": [(m) => { m.program.push(["run", m.kernels.length, []]); }, "step's kernel"],
  "too few buffers": [(m) => { m.program.push(["run", 0, []]); }, "has 0 buffers"],
  "a copy outside": [(m) => { m.program.push(["copy", 0, m.memory.bytes, 1]); }, "outside"],
  "a condition outside": [(m) => { m.program.push(["if", m.memory.bytes, [[], []]]); }, "outside"],
  "a loop of three parts": [(m) => { m.program.push(["while", 0, [[], [], []]]); }, "parts"],
  "loops too deep": [(m) => {
    let p = [];
    for (let k = 0; k < 100; k++) p = [["if", 0, [p, []]]];
    m.program = p;
  }, "too deep"],
  "a weight outside": [(m) => { m.weights.tensors[0][0] = m.memory.bytes; }, "outside of memory"],
  "chunks that are short": [(m) => { m.weights.chunks.pop(); }, "as large as the weights"],
  "an input twice as long": [(m) => { m.inputs.length = 0; m.image = { input: "x" }; }, "image"],
  "a program that is a number": [(m) => { m.program = 7; }, "no list"],
  "a GPU in version 1": [(m) => { m.version = 1; }, "has no gpu"],
  "no GPU in version 2": [(m) => { delete m.gpu; }, "gpu is missing"],
  "WGSL of another folder": [(m) => { m.gpu.wgsl.code.file = "a/b"; }, "not a file beside it"],
  "WGSL of another digest": [(m) => { m.gpu.wgsl.code.sha256 = "0".repeat(64); }, "is damaged"],
  "GLSL without a digest": [(m) => { delete m.gpu.glsl.code.sha256; }, "no digest"],
  "fewer WGSL kernels": [(m) => { m.gpu.wgsl.kernels.pop(); }, "as long as kernels"],
  "fewer GLSL kernels": [(m) => { m.gpu.glsl.kernels.pop(); }, "as long as kernels"],
  "GLSL that is no object": [(m) => { m.gpu.glsl = null; }, "gpu.glsl is missing"],
  "fewer lists of sizes": [(m) => { m.gpu.buffers.pop(); }, "as long as kernels"],
  "a WGSL kernel that is not there": [(m) => { wgsl(m)[0] = "g9999"; }, "no kernel g9999"],
  "a WGSL kernel's name": [(m) => { wgsl(m)[0] = "a b"; }, "no list of four"],
  "a WGSL kernel's extent": [(m) => { wgsl(m)[1] = 2 ** 31; }, "wgsl: its extent"],
  "a WGSL kernel's scratch": [(m) => { wgsl(m)[2] = 2 ** 31; }, "wgsl: its scratch"],
  "scratch of half a word": [(m) => { wgsl(m)[2] = 2; }, "its scratch is no words"],
  "a table outside": [(m) => { wgsl(m)[3] = [m.memory.bytes, 4]; }, "outside of memory"],
  "more tables than buffers": [(m) => { wgsl(m)[3] = Array(122).fill(0); }, "wgsl: its buffers"],
  "a GLSL kernel's name": [(m) => { glsl(m)[0] = "a\n#define b"; }, "no list of four"],
  "a GLSL kernel's extent": [(m) => { glsl(m)[1] = -1; }, "glsl: its extent"],
  "a GLSL kernel of no results": [(m) => { glsl(m)[2] = []; }, "glsl: its results"],
  "a result of three bytes": [(m) => { glsl(m)[2] = glsl(m)[2].map(() => 3); }, "its results"],
  "a result larger than its buffer": [(m) => { glsl(m)[1] = 2 ** 31 - 1; }, "its results"],
  "a table of GLSL outside": [(m) => { glsl(m)[3] = [m.memory.bytes, 4]; }, "outside of memory"],
  "sums of no units": [(m) => { glsl(m)[4] = [0, 16]; }, "units of its sums"],
  "seventeen sums a unit": [(m) => { glsl(m)[4] = [1, 17]; }, "sums of a unit"],
  "sums that are a number": [(m) => { glsl(m)[4] = 16; }, "glsl: its sums"],
  "sums of WGSL": [(m) => { wgsl(m)[4] = [1, 16]; }, "wgsl: its sums"],
  "a kernel of six": [(m) => { glsl(m)[4] = [1, 16]; glsl(m)[5] = 0; }, "no list of four"],
  "a buffer larger than memory": [(m) => { m.gpu.buffers[0][2][0] = m.memory.bytes + 1; }, "outside"],
  "a kernel that reads more": [(m) => { m.gpu.buffers[0][0] = 99; }, "what a kernel reads"],
  "a backend of no name": [(m) => { m.gpu.backend = "x"; }, "gpu.backend"],
};
function wgsl(m) {
  return m.gpu.wgsl.kernels.find((k) => k);
}
function glsl(m) {
  return m.gpu.glsl.kernels.find((k) => k);
}
const mock = () => ({ gpu: mockGpu(), backend: "webgpu" });
for (const [name, [change, words]] of Object.entries(manifests))
  await refuses(name, words, () => load(changed(change), mock()));
await refuses("text that is no JSON", "damaged manifest", () => load(reader(text.slice(0, -9))));
await refuses("null", "missing", () => load(reader("null")));
const weights = JSON.parse(text).weights.chunks[0].file;
await refuses("a chunk that is short", "has", () => load(reader(text, (name, bytes) =>
  name === weights ? bytes.subarray(1) : bytes)));
await refuses("a chunk with a flipped bit", "is damaged", () => load(reader(text, (name, bytes) => {
  const copy = bytes.slice();
  copy[copy.length >> 1] ^= name === weights ? 1 : 0;
  return copy;
})));
await refuses("code that is no module", "do not run here", async () => {
  const m = JSON.parse(text), code = new Uint8Array(8), { sha256 } =
    await import(pathToFileURL(resolve(from, "runtime/sha256.js")));
  m.code.bytes = code.length;
  m.code.sha256 = await sha256(code);
  await load(reader(JSON.stringify(m), (name, bytes) => name === m.code.file ? code : bytes));
});

// ---- GPUs that are none, too small or lost: WebAssembly runs the model, and says why
const said = console.warn;
console.warn = () => {};
const without = {
  "no adapter": [{ gpu: mockGpu({ none: true }), backend: "webgpu" }, "no GPU"],
  "a CPU as GPU": [{ gpu: mockGpu({ fallback: true }), backend: "auto" }, "a CPU stands in"],
  "a CPU as GPU of WebGL2": [{ gl: mockGl({ renderer: "ANGLE (SwiftShader)" }), backend: "auto" },
    "a CPU stands in for the GPU of WebGL2"],
  "no WebGL2": [{ backend: "webgl" }, "no WebGL2"],
  "a small GPU": [{ gpu: mockGpu({ limits: 1024 }), backend: "webgpu" }, "more than the GPU gives"],
  "small textures": [{ gl: mockGl({ side: 16 }), backend: "webgl" }, "more than WebGL2 gives"],
  "nobody wants it": [{ gpu: mockGpu(), backend: "wasm" }, "was asked for"],
};
for (const [name, [options, words]] of Object.entries(without)) {
  const other = await load(reader(text), options), { backend, backendNote } = other;
  await other.run(zeros(other));
  tell(name, backend === "wasm" && backendNote.includes(words) ? null : `${backend}: ${backendNote}`);
}
const gpu = mockGpu(), gl = mockGl(), four = mockGl({ four: true });
const chosen = [
  ["WebGPU first", { gpu, gl, backend: "auto" }, "webgpu"],
  ["WebGL2 where there is no WebGPU", { gl, backend: "auto" }, "webgl"],
  ["WebGL2 where a CPU stands in for WebGPU", { gpu: mockGpu({ fallback: true }), gl, backend: "auto" },
    "webgl"],
  ["WebGL2 on a CPU, asked for", { gl: mockGl({ renderer: "llvmpipe" }), backend: "webgl" }, "webgl"],
];
for (const [name, options, want] of chosen) {
  const { backend, backendNote } = await load(reader(text), options);
  tell(name, backend === want ? null : `${backend}: ${backendNote}`);
}
// Sums are drawn to so many layers before the results that read them.
for (const sums of [[1, 4], [5000, 16], [2048, 8], [2049, 12]]) {
  const own = mockGl(), summed = await load(changed((m) => { glsl(m)[4] = sums; }),
    { gl: own, backend: "webgl" });
  await summed.run(zeros(summed));
  tell(`${sums[0]} units of ${sums[1]} sums`, summed.backend === "webgl" && own.log.sums > 0 ? null
    : `${summed.backend}, ${own.log.sums} draws: ${summed.backendNote}`);
}
const wide = mockGl({ side: 2048 }), summed = await load(changed((m) => { glsl(m)[4] = [2 ** 27, 16]; }),
  { gl: wide, backend: "webgl" });
await summed.run(zeros(summed));
tell("more sums than a texture", wide.log.sums === 0 && summed.backend === "webgl" ? null
  : `${summed.backend}, ${wide.log.sums} draws`);
const picky = await load(reader(text), { gl: mockGl({ links: 1 }), backend: "webgl" });
await picky.run(zeros(picky));
tell("kernels that do not link", picky.backendNote.includes("does not take") ? null : picky.backendNote);

const want = await model.run(zeros(model));
const lose = { webgpu: () => gpu.log.device.destroy(),
  webgl: () => gl.getExtension("WEBGL_lose_context").loseContext() };
for (const [name, options, work] of [["webgpu", { gpu }, () => gpu.log.dispatches],
  ["webgl", { gl: four }, () => four.log.draws], ["webgl", { gl }, () => gl.log.draws]]) {
  const other = await load(reader(text), { ...options, backend: name });
  await other.run(zeros(other));
  tell(`${name}: kernels are dispatched`, other.backend === name && work() > 0 ? null : other.backendNote);
  if (options.gl === four) continue;
  const lost = other.run(zeros(other));
  lose[name]();
  await refuses(`${name}: a device is lost`, "the GPU is lost", () => lost);
  const got = await other.run(zeros(other)), first = model.outputs[0].name;
  tell(`${name}: the next run is served`, other.backend === "wasm" &&
    String(want[first]) === String(got[first]) ? null : other.backend);
}
await refuses("a backend of no name", "no backend 'x'", () => load(reader(text), { backend: "x" }));

// ---- inputs
const [first] = model.inputs, good = zeros(model);
const inputs = {
  "no inputs": [undefined, "is missing"],
  "a name of no input": [{ ...good, other: [1] }, "no input 'other'"],
  "too few elements": [{ ...good, [first.name]: good[first.name].slice(1) }, "elements"],
  "a text": [{ ...good, [first.name]: "x" }, "no array"],
  "null": [{ ...good, [first.name]: null }, "no array"],
  "what becomes no number": [{ ...good, [first.name]: [...good[first.name]].fill(Symbol("x"), 1) },
    "element 1 is no"],
};
for (const [name, [value, words]] of Object.entries(inputs))
  await refuses("input: " + name, words, () => model.run(value));

// ---- digests without the browser's help
const { plainSha256 } = await import(pathToFileURL(resolve(from, "runtime/sha256.js")));
const bytes = Uint8Array.from({ length: 300 }, (_, k) => k * 7);
for (let n = 0; n <= bytes.length; n++) {
  const part = bytes.subarray(0, n), want = createHash("sha256").update(part).digest("hex");
  if (plainSha256(part) !== want) tell(`SHA-256 of ${n} bytes`, plainSha256(part));
}

// ---- at random
let state = BigInt(seed);
const random = (n) => {
  state = BigInt.asUintN(64, state * 6364136223846793005n + 1442695040888963407n);
  return Number(state >> 33n) % n;
};
const odd = [0, -1, 0.5, 2 ** 31, 2 ** 32, 2 ** 53, NaN, null, "", "x", [], {}, true, 1e300];
function mutate(node) {
  for (;;) {
    const keys = Object.keys(node), key = keys[random(keys.length)], value = node[key];
    if (value !== null && typeof value === "object" && Object.keys(value).length && random(5)) {
      node = value;
      continue;
    }
    if (random(4) === 0) delete node[key];
    else if (typeof value === "number" && random(2)) node[key] = value + random(129) - 64;
    else node[key] = odd[random(odd.length)];
    return;
  }
}
let taken = 0;
for (let k = 0; k < Number(count); k++) {
  const m = JSON.parse(text);
  for (let n = 1 + random(2); n > 0; n--) mutate(m);
  if (!(m.memory?.bytes < 2 ** 28)) continue; // memory that would only be slow
  try {
    const other = await load(reader(JSON.stringify(m)),
      [{}, mock(), { gl: mockGl(), backend: "webgl" }][k % 3]);
    await other.run(zeros(other));
    taken++;
  } catch (e) {
    if (!(e instanceof HlodError)) tell(`at random ${k}`, e.stack);
  }
}
console.warn = said;
tell("some changes do no harm", taken > 0 && taken < Number(count) ? null : `${taken} taken`);
console.log(`${passed} passed, ${failed} failed; ${taken} of ${count} changed manifests ran`);
process.exit(failed ? 1 : 0);
