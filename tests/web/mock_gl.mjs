// SPDX-License-Identifier: Apache-2.0
// A stand-in for a context of WebGL2 that has the parts which the runtime uses, and draws nothing: it
// moves words between textures and memory, counts what is drawn and throws where WebGL would refuse.
// For tests in Node.
const check = (good, what) => {
  if (!good) throw new Error(`WebGL refuses: ${what}`);
};
const NAMES = ["VERTEX_SHADER", "FRAGMENT_SHADER", "LINK_STATUS", "TEXTURE_2D", "TEXTURE_MIN_FILTER",
  "TEXTURE_MAG_FILTER", "NEAREST", "R32UI", "FRAMEBUFFER", "COLOR_ATTACHMENT0", "RED_INTEGER",
  "RGBA_INTEGER", "UNSIGNED_INT", "FRAMEBUFFER_COMPLETE", "IMPLEMENTATION_COLOR_READ_FORMAT",
  "IMPLEMENTATION_COLOR_READ_TYPE", "MAX_TEXTURE_SIZE", "MAX_VIEWPORT_DIMS", "RENDERER", "TRIANGLES",
  "SYNC_GPU_COMMANDS_COMPLETE", "TIMEOUT_EXPIRED", "ALREADY_SIGNALED", "TEXTURE_2D_ARRAY", "RGBA32UI",
  "TEXTURE0", "TEXTURE1"];

/**
 * side: of the largest texture; renderer: what the GPU calls itself; four: pixels are read as four
 * words; links: how many programs link before none does.
 */
export function mockGl({ side = 4096, renderer = "a GPU", four = false, links = Infinity } = {}) {
  const log = { draws: 0, copies: 0, sums: 0 };
  let lost = false, bound = null, array = null, unit = null, frame = null, program = null, view = null;
  const inside = (x, y, w, h, t) => [x, y, w, h].every(Number.isInteger) && x >= 0 && y >= 0 &&
    w > 0 && h > 0 && x + w <= t.width && y + h <= t.rows;
  const rowsOf = (t, x, y, w, h, f) => {
    for (let k = 0; k < h; k++) f(t.words.subarray((y + k) * t.width + x, (y + k) * t.width + x + w), k * w);
  };
  const gl = {
    log,
    isContextLost: () => lost,
    getError: () => 0,
    getExtension: (name) => name === "WEBGL_lose_context" ? { loseContext() { lost = true; } } : null,
    getParameter: (what) => lost ? null : what === gl.MAX_TEXTURE_SIZE ? side
      : what === gl.MAX_VIEWPORT_DIMS ? [side, side] : what === gl.RENDERER ? renderer
      : what === gl.IMPLEMENTATION_COLOR_READ_TYPE ? gl.UNSIGNED_INT
      : four ? gl.RGBA_INTEGER : gl.RED_INTEGER,
    createShader: (kind) => ({ kind }),
    shaderSource(shader, text) {
      check(text.startsWith("#version 300 es\n"), "a shader without a version");
      check(shader.kind === gl.VERTEX_SHADER || / HLOD_KERNEL \w+\n/.test(text), "a shader of no kernel");
    },
    getShaderInfoLog: () => "no",
    createProgram: () => ({ links: links-- > 0 }),
    getProgramParameter: (p) => p.links,
    getProgramInfoLog: () => "",
    getAttachedShaders: () => [{}],
    getUniformLocation: (p, name) => ({ p, name }),
    createTexture: () => ({}),
    createFramebuffer: () => ({}),
    activeTexture(to) { unit = to; },
    bindTexture(kind, texture) {
      check(unit === (kind === gl.TEXTURE_2D_ARRAY ? gl.TEXTURE1 : gl.TEXTURE0), "a unit of textures");
      if (kind === gl.TEXTURE_2D_ARRAY) array = texture;
      else bound = texture;
    },
    texStorage3D(_, levels, kind, width, rows, layers) {
      check(levels === 1 && kind === gl.RGBA32UI && width <= side && rows > 0 && rows <= side &&
        layers === 4, "a texture of layers");
      Object.assign(array, { width, rows });
    },
    framebufferTextureLayer(_, at, texture, level, layer) {
      check(at === gl.COLOR_ATTACHMENT0 + layer && layer < 4, "a layer");
      Object.assign(frame, { sums: texture, layers: layer + 1 });
    },
    drawBuffers(list) {
      check(list.length === frame.layers, "buffers that are drawn to");
    },
    uniform1i(at, value) {
      check(at.p === program && at.name === "hlod_s" && value === 1, "a unit of a texture");
    },
    texStorage2D(_, levels, kind, width, rows) {
      check(levels === 1 && kind === gl.R32UI && width <= side && rows > 0 && rows <= side, "a texture");
      Object.assign(bound, { width, rows, words: new Uint32Array(width * rows) });
    },
    bindFramebuffer(_, of) { frame = of; },
    framebufferTexture2D(_, __, ___, texture) { frame.texture = texture; },
    checkFramebufferStatus: () => gl.FRAMEBUFFER_COMPLETE,
    useProgram(p) { program = p; },
    uniform1iv(at, values) {
      check(at.p === program && values.length <= 60, "places");
    },
    uniform3i(at, shift, words, elements) {
      check(at.p === program && [shift, words, elements].every(Number.isInteger), "what to draw");
    },
    viewport(...to) { view = to; },
    drawArrays() {
      if (frame.sums) {
        check(lost || program.links && inside(...view, frame.sums), "a draw of sums");
        log.sums++;
        return;
      }
      check(frame.texture !== bound, "to read what is drawn");
      check(lost || program.links && inside(...view, frame.texture), "a draw");
      log.draws++;
    },
    copyTexSubImage2D(_, level, x, y, fromX, fromY, w, h) {
      check(frame.texture !== bound && inside(x, y, w, h, bound) &&
        inside(fromX, fromY, w, h, frame.texture), "a copy");
      rowsOf(frame.texture, fromX, fromY, w, h, (row, k) => bound.words.set(row, (y + k / w) * bound.width + x));
      log.copies++;
    },
    texSubImage2D(_, level, x, y, w, h, format, type, words, at) {
      check(inside(x, y, w, h, bound) && at >= 0 && at + w * h <= words.length, "to write");
      rowsOf(bound, x, y, w, h, (row, k) => row.set(words.subarray(at + k, at + k + w)));
    },
    readPixels(x, y, w, h, format, type, to, at) {
      const size = format === gl.RGBA_INTEGER ? 4 : 1;
      check(size === (four ? 4 : 1) && inside(x, y, w, h, frame.texture) &&
        at + size * w * h <= to.length, "to read");
      if (lost) return;
      rowsOf(frame.texture, x, y, w, h, (row, k) => row.forEach((v, n) => { to[at + size * (k + n)] = v; }));
    },
    fenceSync: () => lost ? null : {},
    clientWaitSync: () => gl.ALREADY_SIGNALED,
  };
  for (const name of ["compileShader", "attachShader", "linkProgram", "deleteShader", "deleteProgram",
    "deleteTexture", "deleteFramebuffer", "deleteSync", "texParameteri", "flush"]) gl[name] = () => {};
  NAMES.forEach((name, k) => { gl[name] = k + 1; });
  return gl;
}
