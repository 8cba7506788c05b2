// SPDX-License-Identifier: Apache-2.0
// The engine of WebAssembly: one memory in which everything has its place, kernels as functions over
// it, and the walk of the plan. Loops and choices run here.
import { fromHalf } from "./dtypes.js";
import { refuse } from "./errors.js";
import { libm } from "./libm.js";

const PAGE = 65536;
export const RUN = 0, COPY = 1, WHILE = 2, CASE = 3;

// Every f16 as the bits of an f32.
let wide = null;
function allHalves() {
  return wide ??= new Uint32Array(Float32Array.from({ length: 65536 }, (_, h) => fromHalf(h)).buffer);
}

export class WasmEngine {
  constructor(manifest) {
    this.m = manifest;
    const pages = Math.max(1, Math.ceil(manifest.memory.bytes / PAGE));
    try {
      this.memory = new WebAssembly.Memory({ initial: pages, maximum: pages });
    } catch {
      refuse(`no memory: the model takes ${manifest.memory.bytes} bytes`);
    }
    this.bytes = new Uint8Array(this.memory.buffer);
  }

  /** Compiles the kernels and lays out the program. */
  async load(code) {
    let instance;
    try {
      const module = await WebAssembly.compile(code);
      const missing = WebAssembly.Module.imports(module)
        .filter((i) => i.kind === "function" && !Object.hasOwn(libm, i.name));
      if (missing.length) refuse(`the kernels want ${missing[0].name}, which is not known here`);
      instance = await WebAssembly.instantiate(module, { env: { ...libm, memory: this.memory } });
    } catch (e) {
      if (e.name === "HlodError") throw e;
      refuse(`the kernels do not run here: ${e.message}`);
    }
    const { stack } = instance.exports;
    if (stack) stack.value = this.m.memory.stack;
    this.layOut(instance.exports);
  }

  // Lists of places, which kernels read, and sizes are written once.
  layOut(functions) {
    const { memory, kernels } = this.m, view = new DataView(this.memory.buffer);
    let at = memory.frames;
    const room = (n) => {
      if (at + n > memory.bytes) refuse("damaged manifest: its lists do not fit its memory");
      return (at += n) - n;
    };
    const table = kernels.map(([name, extent, buffers, sizes, label]) => {
      if (typeof functions[name] !== "function") refuse(`there is no kernel ${name} in the code`);
      const from = room(sizes.length * 8);
      sizes.forEach((n, k) => view.setBigInt64(from + k * 8, BigInt(n), true));
      return { f: functions[name], extent, buffers, sizes: from, label };
    });
    const compile = (steps) => steps.map((s) => {
      if (s[0] === "copy") return { kind: COPY, to: s[1], from: s[2], n: s[3] };
      if (s[0] !== "run") return { kind: s[0] === "while" ? WHILE : CASE, at: s[1],
        pred: s[0] !== "case", parts: s[2].map(compile) };
      const k = table[s[1]], frame = room(k.buffers * 4);
      s[2].forEach((place, n) => view.setUint32(frame + n * 4, place, true));
      return { kind: RUN, f: k.f, frame, extent: k.extent, sizes: k.sizes, label: k.label,
        kernel: s[1], at: s[2] };
    });
    this.program = compile(this.m.program);
    this.view = view;
  }

  /** What is in memory before the first run, from chunks that `next` gives in order. */
  async fill(next) {
    let chunk = new Uint8Array(0), at = 0;
    const take = async (n, put) => {
      for (let done = 0; done < n;) {
        if (at === chunk.length) chunk = await next(), at = 0;
        const some = Math.min(n - done, chunk.length - at);
        put(chunk.subarray(at, at + some), done);
        at += some, done += some;
      }
    };
    for (const [to, bytes, form] of this.m.weights.tensors) {
      const Table = { table16: Uint16Array, table32: Uint32Array }[form];
      if (Table) {
        const table = new Table(256), raw = new Uint8Array(table.buffer), n = bytes / Table.BYTES_PER_ELEMENT;
        const values = new Table(this.memory.buffer, to, n);
        await take(raw.length, (part, done) => raw.set(part, done));
        await take(n, (part, done) => part.forEach((x, k) => { values[done + k] = table[x]; }));
        await take(-n & 3, () => {});
        continue;
      }
      const brain = form === "bf16", halves = form === "f16" || brain;
      const stored = halves ? bytes / 2 : bytes;
      const words = halves ? new Uint32Array(this.memory.buffer, to, bytes / 4) : null;
      await take(stored, (part, done) => {
        if (words) widen(part, words, done / 2, brain);
        else this.bytes.set(part, to + done);
      });
      await take(-stored & 3, () => {});
    }
  }

  /** A view of memory, of an array type. */
  array(type, at, n) {
    return new type(this.memory.buffer, at, n);
  }

  /** Runs the program once. times: null, or a list that gets [label, milliseconds] of each kernel. */
  run(times) {
    this.walk(this.program, times);
  }
  call(s) {
    s.f(s.frame, 0, s.extent, this.m.memory.scratch, s.sizes);
  }
  copy(s) {
    this.bytes.copyWithin(s.to, s.from, s.from + s.n);
  }
  /** Which part of a choice is next. */
  choice(s) {
    const last = s.parts.length - 1;
    const k = s.pred ? (this.bytes[s.at] ? 0 : 1) : this.view.getInt32(s.at, true);
    return k < 0 || k > last ? last : k;
  }
  walk(steps, times) {
    for (const s of steps) {
      if (s.kind === RUN) {
        const start = times ? performance.now() : 0;
        this.call(s);
        if (times) times.push([s.label, performance.now() - start]);
      } else if (s.kind === COPY) {
        this.copy(s);
      } else if (s.kind === WHILE) {
        for (;;) {
          this.walk(s.parts[0], times);
          if (!this.bytes[s.at]) break;
          this.walk(s.parts[1], times);
        }
      } else {
        this.walk(s.parts[this.choice(s)], times);
      }
    }
  }
}

// Bytes of halves into bits of floats, from element `at` on.
function widen(part, words, at, brain) {
  const table = brain ? null : allHalves();
  for (let k = 0; k + 1 < part.length; k += 2) {
    const half = part[k] | part[k + 1] << 8;
    words[at++] = brain ? half << 16 : table[half];
  }
}
