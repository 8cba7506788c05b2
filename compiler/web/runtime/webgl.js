// SPDX-License-Identifier: Apache-2.0
// The engine of WebGL2: kernels in GLSL as fragment shaders. Memory is a texture of words in rows
// (R32UI: what WebGL2 draws to without an extension, and what keeps bits as they are). A shader reads it
// and draws a result, a word a fragment, into a second texture; from there it is copied to its place.
// Tiles of a contraction draw their sums before that, to four words in each of up to four layers of a
// third, which the results' shader reads. So no kernel reads what it writes, wherever the plan lets buffers share memory.
import { GpuEngine } from "./gpu.js";

const LEAST_BITS = 11, SMALL = 4096, LAYERS = 4;
const A_CPU = /swiftshader|llvmpipe|softpipe|swrast|lavapipe|software|basic render/i;
const VERTEX = `#version 300 es
void main() {
  gl_Position = vec4(gl_VertexID == 1 ? 3.0 : -1.0, gl_VertexID == 2 ? 3.0 : -1.0, 0.0, 1.0);
}`;
const COPIES = "uint hlod_copy(int begin, int at) { return hlod_w(hlod_p[0] + at); }\n";

const pause = () => new Promise((done) => { setTimeout(done, 0); });

function newContext(always) {
  const canvas = globalThis.OffscreenCanvas ? new OffscreenCanvas(1, 1)
    : globalThis.document?.createElement("canvas");
  return canvas?.getContext("webgl2", { alpha: false, antialias: false, depth: false,
    powerPreference: "high-performance", failIfMajorPerformanceCaveat: !always });
}
function give(gl) {
  gl.getExtension("WEBGL_lose_context")?.loseContext();
}

/**
 * A context for a model, {gl, bits, own}, whose rows have 2 ** bits words; or {note} says why there is
 * none. given: one to take instead of a new one; always: also one that a CPU stands in for.
 */
function glContext(manifest, given, always) {
  const gl = given ?? newContext(always), own = !given;
  if (!gl) return { note: "there is no WebGL2 of a GPU here" };
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const renderer = gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER);
  const most = sideOf(gl), { bytes } = manifest.memory;
  let bits = Math.min(LEAST_BITS, Math.floor(Math.log2(most || 1))), note;
  while (bytes / 4 > most * 2 ** bits && 2 ** (bits + 1) <= most) bits++;
  if (!always && A_CPU.test(renderer)) note = "a CPU stands in for the GPU of WebGL2";
  else if (bytes / 4 > most * 2 ** bits)
    note = `the model takes ${bytes} bytes, more than WebGL2 gives at a time`;
  if (note && own) give(gl);
  return note ? { note } : { gl, bits, close: () => own && give(gl) };
}
const sideOf = (gl) => Math.min(gl.getParameter(gl.MAX_TEXTURE_SIZE) ?? 0,
  ...gl.getParameter(gl.MAX_VIEWPORT_DIMS) ?? []);

class WebGlEngine extends GpuEngine {
  name = "webgl";
  /** As a GpuEngine; got: of glContext, and the engine's. */
  constructor(manifest, wasm, text, got) {
    super(manifest, wasm, manifest.gpu.glsl.kernels, text, /^uint (\w+)\(int begin, int at\) \{/gm);
    Object.assign(this, got);
    this.most = sideOf(got.gl);
    this.words = new Uint32Array(wasm.bytes.buffer);
    this.owned = [];
  }
  get lost() {
    return this.gl.isContextLost() ? "its context was taken away" : null;
  }

  /** Makes all that runs need. Throws what the GPU refuses. */
  async make() {
    const { gl } = this;
    gl.activeTexture(gl.TEXTURE0);
    while (gl.getError() && !this.lost);
    await this.programs();
    this.rows = 1;
    this.sumRows = 0;
    this.layOut();
    const [copier] = this.made.get(null);
    this.eachStep((s) => {
      s.words &&= copier.good;
      if (s.words) s.gpu = this.copyOf(s, copier);
    });
    const inRow = 4 * 2 ** this.bits;
    [this.memory, this.readFrom] = this.texture(Math.ceil(this.m.memory.bytes / inRow));
    [, this.drawTo] = this.texture(this.rows);
    if (this.sumRows) this.sumTexture(this.sumRows);
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.readFrom);
    this.plain = gl.getParameter(gl.IMPLEMENTATION_COLOR_READ_FORMAT) === gl.RED_INTEGER &&
      gl.getParameter(gl.IMPLEMENTATION_COLOR_READ_TYPE) === gl.UNSIGNED_INT;
    this.whole();
    this.check();
  }
  check() {
    const wrong = this.lost ?? this.gl.getError();
    if (wrong) throw new Error(`WebGL2 refuses: ${wrong}`);
  }
  // What is drawn to is a texture of words here.
  whole() {
    const { gl } = this;
    if (gl.checkFramebufferStatus(gl.FRAMEBUFFER) !== gl.FRAMEBUFFER_COMPLETE)
      throw new Error("WebGL2 does not draw integers here");
  }
  // The texture of sums, and sumsTo[n], which draws to n + 1 of its layers.
  sumTexture(rows) {
    const { gl } = this, kind = gl.TEXTURE_2D_ARRAY;
    this.sums = gl.createTexture();
    this.owned.push(() => gl.deleteTexture(this.sums));
    gl.activeTexture(gl.TEXTURE1);
    gl.bindTexture(kind, this.sums);
    for (const how of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER])
      gl.texParameteri(kind, how, gl.NEAREST);
    gl.texStorage3D(kind, 1, gl.RGBA32UI, 2 ** this.bits, rows, LAYERS);
    gl.activeTexture(gl.TEXTURE0);
    this.sumsTo = Array.from({ length: LAYERS }, (_, last) => {
      const frame = gl.createFramebuffer(), at = [];
      this.owned.push(() => gl.deleteFramebuffer(frame));
      gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
      for (let k = 0; k <= last; k++) {
        at.push(gl.COLOR_ATTACHMENT0 + k);
        gl.framebufferTextureLayer(gl.FRAMEBUFFER, at[k], this.sums, 0, k);
      }
      gl.drawBuffers(at);
      this.whole();
      return frame;
    });
  }
  // A texture of so many rows, and what draws to it.
  texture(rows) {
    const { gl } = this, texture = gl.createTexture(), frame = gl.createFramebuffer();
    this.owned.push(() => gl.deleteTexture(texture), () => gl.deleteFramebuffer(frame));
    gl.bindTexture(gl.TEXTURE_2D, texture);
    for (const how of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER])
      gl.texParameteri(gl.TEXTURE_2D, how, gl.NEAREST);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.R32UI, 2 ** this.bits, rows);
    gl.bindFramebuffer(gl.FRAMEBUFFER, frame);
    gl.framebufferTexture2D(gl.FRAMEBUFFER, gl.COLOR_ATTACHMENT0, gl.TEXTURE_2D, texture, 0);
    return [texture, frame];
  }
  /** Gives all of the GPU back. */
  dispose() {
    for (const drop of this.owned) drop();
    this.close();
    this.wasm = this.words = this.owned = null;
  }

  // Of each text and result one.
  async programs() {
    const { gl } = this, made = new Map(), all = [];
    this.vertex = this.shader(gl.VERTEX_SHADER, VERTEX);
    const add = (name, code, defines) => {
      const program = this.program(code, { KERNEL: name, WIDTH: this.bits, ...defines });
      all.push(program);
      return { program, name };
    };
    const result = (name, code, n, bytes) => add(name, code,
      { RESULT: n, PACK: bytes < 4 ? 4 / bytes : 1, PARTS: bytes > 4 ? bytes / 4 : 1 });
    const sums = this.sumsOf = new Map();
    for (const k of this.kernels) {
      if (!k || made.has(k[0])) continue;
      const code = this.codes.get(k[0]);
      made.set(k[0], k[2].map((bytes, n) => result(k[0], code, n, bytes)));
      if (k[4]) sums.set(k[0], add(`${k[0]}_sums`, code, { SUMS: Math.ceil(k[4][1] / 4) }));
    }
    made.set(null, [result("hlod_copy", COPIES, 0, 4)]);

    const later = gl.getExtension("KHR_parallel_shader_compile");
    while (later && !this.lost &&
      !all.every((p) => gl.getProgramParameter(p, later.COMPLETION_STATUS_KHR))) await pause();
    for (const list of made.values()) list.forEach((of) => this.find(of));
    for (const of of sums.values()) this.find(of);
    this.made = made;
    gl.deleteShader(this.vertex);
  }
  shader(kind, text) {
    const { gl } = this, made = gl.createShader(kind);
    gl.shaderSource(made, text);
    gl.compileShader(made);
    return made;
  }
  program(code, defines) {
    const { gl } = this, program = gl.createProgram();
    const first = Object.entries(defines).map(([name, to]) => `#define HLOD_${name} ${to}\n`);
    const fragment = this.shader(gl.FRAGMENT_SHADER,
      `#version 300 es\n${first.join("")}${this.head}${code}`);
    gl.attachShader(program, this.vertex);
    gl.attachShader(program, fragment);
    gl.linkProgram(program);
    gl.deleteShader(fragment);
    this.owned.push(() => gl.deleteProgram(program));
    return program;
  }
  find(of) {
    const { gl } = this;
    of.good = gl.getProgramParameter(of.program, gl.LINK_STATUS);
    of.places = gl.getUniformLocation(of.program, "hlod_p");
    of.what = gl.getUniformLocation(of.program, "hlod_q");
    const sums = of.good && gl.getUniformLocation(of.program, "hlod_s");
    if (sums) {
      gl.useProgram(of.program);
      gl.uniform1i(sums, 1);
    }
    if (of.good || this.lost) return;
    const shaders = gl.getAttachedShaders(of.program) ?? [];
    const logs = shaders.map((s) => gl.getShaderInfoLog(s));
    this.refuses(of.name, logs.join("") + gl.getProgramInfoLog(of.program));
  }

  // Rectangles of the words from `word` on: a part of a row, whole rows, a part of a row.
  pieces(word, n) {
    const out = [], width = 2 ** this.bits;
    for (let at = word, left = n; left > 0;) {
      const x = at % width, y = (at - x) / width;
      const h = x === 0 && left >= width ? Math.floor(left / width) : 1;
      const w = h > 1 ? width : Math.min(left, width - x);
      out.push([x, y, w, h, at]);
      at += w * h;
      left -= w * h;
    }
    return out;
  }
  // What draws a result to rows from `base` on.
  drawing(of, place, words, elements, base) {
    const width = 2 ** this.bits, word = place / 4, row = Math.floor(word / width);
    const rows = Math.floor((word + words - 1) / width) - row + 1, one = rows === 1;
    return { of, elements, words, rows, move: base - row, shift: (row - base) * width - word,
      x: one ? word % width : 0, y: base, w: one ? words : width, pieces: this.pieces(word, words) };
  }
  dispatches(s, [name, extent, unitBytes, , sums], places) {
    const [first, , sizes] = this.m.gpu.buffers[s.kernel], draws = [], width = 2 ** this.bits;
    const before = sums ? { of: this.sumsOf.get(name), units: sums[0],
      w: Math.min(sums[0], width), rows: Math.ceil(sums[0] / width),
      to: Math.ceil(sums[1] / 4) - 1 } : null;
    if (before && (!before.of.good || before.rows > this.most)) return null;
    let base = 0;
    for (const [k, of] of this.made.get(name).entries()) {
      const all = extent * unitBytes[k], elements = all / Math.min(unitBytes[k], 4);
      if (!of.good || (all % 4 && this.parts.shares)) return null;
      if (!all || all > sizes[first + k]) continue;
      draws.push(this.drawing(of, places[first + k], Math.ceil(all / 4), elements, base));
      base += draws.at(-1).rows;
    }
    if (base > this.most) return null;
    this.rows = Math.max(this.rows, base);
    this.sumRows = Math.max(this.sumRows, before?.rows ?? 0);
    return { before, draws, places: Int32Array.from(places, (at) => at / 4) };
  }
  copyOf(s, copier) {
    const words = s.n / 4;
    if (!words) return { draws: [], places: new Int32Array(1) };
    const draw = this.drawing(copier, s.to, words, words, 0);
    this.rows = Math.max(this.rows, draw.rows);
    return { draws: [draw], places: Int32Array.of(s.from / 4) };
  }

  begun() {
    const { gl } = this;
    if (this.sums) {
      gl.activeTexture(gl.TEXTURE1);
      gl.bindTexture(gl.TEXTURE_2D_ARRAY, this.sums);
    }
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.memory);
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.drawTo);
  }
  ended() {
    this.check();
  }
  hear() {}
  async settled() {
    const { gl } = this, sync = gl.fenceSync(gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    gl.flush();
    do await pause(); while (sync && gl.clientWaitSync(sync, 0, 0) === gl.TIMEOUT_EXPIRED);
    gl.deleteSync(sync);
  }

  // All results are drawn before one is kept: it may lie where an input does.
  dispatch(s) {
    const { gl } = this, { before, draws, places } = s.gpu;
    if (before) {
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.sumsTo[before.to]);
      gl.useProgram(before.of.program);
      gl.uniform1iv(before.of.places, places);
      gl.uniform3i(before.of.what, 0, before.units, 0);
      gl.viewport(0, 0, before.w, before.rows);
      gl.drawArrays(gl.TRIANGLES, 0, 3);
      gl.bindFramebuffer(gl.FRAMEBUFFER, this.drawTo);
    }
    for (const d of draws) {
      gl.useProgram(d.of.program);
      gl.uniform1iv(d.of.places, places);
      gl.uniform3i(d.of.what, d.shift, d.words, d.elements);
      gl.viewport(d.x, d.y, d.w, d.rows);
      gl.drawArrays(gl.TRIANGLES, 0, 3);
    }
    for (const d of draws)
      for (const [x, y, w, h] of d.pieces)
        gl.copyTexSubImage2D(gl.TEXTURE_2D, 0, x, y, x, y + d.move, w, h);
  }
  copy(s) {
    this.dispatch(s);
  }
  upload(runs) {
    const { gl, words } = this;
    for (const [from, to] of runs)
      for (const [x, y, w, h, at] of this.pieces(from / 4, (to - from) / 4))
        gl.texSubImage2D(gl.TEXTURE_2D, 0, x, y, w, h, gl.RED_INTEGER, gl.UNSIGNED_INT, words, at);
  }
  // Reading stops the page until the GPU is done, so it is waited for; but a loop's condition and the
  // like are quicker read at once.
  async download(runs, last) {
    const { gl } = this, bytes = runs.reduce((n, [from, to]) => n + to - from, 0);
    if (last || bytes > SMALL) await this.settled();
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.readFrom);
    for (const [from, to] of runs)
      for (const piece of this.pieces(from / 4, (to - from) / 4)) this.read(...piece);
    gl.bindFramebuffer(gl.FRAMEBUFFER, this.drawTo);
    if (this.lost) throw new Error(this.lost);
  }
  read(x, y, w, h, at) {
    const { gl, words } = this;
    if (this.plain) {
      gl.readPixels(x, y, w, h, gl.RED_INTEGER, gl.UNSIGNED_INT, words, at);
      return;
    }
    const four = new Uint32Array(4 * w * h);
    gl.readPixels(x, y, w, h, gl.RGBA_INTEGER, gl.UNSIGNED_INT, four, 0);
    for (let k = 0; k < w * h; k++) words[at + k] = four[4 * k];
  }
}

export const byWebGl = { language: "glsl", Engine: WebGlEngine,
  open: (manifest, options, always) => glContext(manifest, options.gl, always) };
