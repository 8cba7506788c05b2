// SPDX-License-Identifier: Apache-2.0
// What the engines of WebGPU and WebGL2 have in common: memory on a GPU that mirrors WebAssembly's
// place by place, and the walk over steps. What the GPU's language cannot say runs in WebAssembly. Of
// each part of memory it is known on which side its value is; it is moved when the other side reads
// it, and weights so but once.
import { refuse } from "./errors.js";
import { COPY, RUN, WHILE } from "./wasm.js";

export const ON_CPU = 1, ON_GPU = 2;

const wordsOf = (at, bytes) => [at - at % 4, Math.ceil((at + bytes) / 4) * 4];

// Memory in parts, none of which is an argument of any step but as a whole.
class Parts {
  constructor(extents) {
    const ends = new Set([0]);
    this.shares = extents.some(([at]) => at % 4); // words may have bytes of several values
    for (const [at, bytes] of extents) for (const end of wordsOf(at, bytes)) ends.add(end);
    this.begin = Float64Array.from(ends).sort();
    this.state = new Uint8Array(this.begin.length).fill(ON_CPU);
  }
  index(at) {
    let low = 0, high = this.begin.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (this.begin[mid] < at) low = mid + 1;
      else high = mid;
    }
    return low;
  }
  // The parts of a place, as a pair of indices.
  range(at, bytes) {
    const [from, to] = wordsOf(at, bytes);
    return [this.index(from), this.index(to)];
  }
  // Runs of bytes whose value is not on a side, and now will be.
  claim(ranges, side) {
    const out = [];
    for (const [first, end] of ranges)
      for (let k = first; k < end; k++) {
        if (this.state[k] & side) continue;
        this.state[k] |= side;
        const last = out.at(-1), from = this.begin[k], to = this.begin[k + 1];
        if (last && last[1] === from) last[1] = to;
        else out.push([from, to]);
      }
    return out;
  }
  wrote(ranges, side) {
    for (const [first, end] of ranges) this.state.fill(side, first, end);
  }
  all(ranges, side) {
    return ranges.every(([first, end]) => {
      for (let k = first; k < end; k++) if (!(this.state[k] & side)) return false;
      return true;
    });
  }
}

// [place, bytes] of each table of a kernel.
function tablesOf(kernel) {
  const out = [];
  for (let k = 0; k < kernel[3].length; k += 2) out.push([kernel[3][k], kernel[3][k + 1]]);
  return out;
}

/**
 * An engine has: name, of the backend; lost, null or why the GPU is lost; dispatches(s, kernel, places),
 * what it takes to run a step (null: it runs in WebAssembly); dispatch(s); copy(s); upload(runs) and
 * async download(runs, last), of pairs of places, last: of a run; async settled(), all is done; begun(),
 * async ended() around a run; async hear(), of a loss.
 */
export class GpuEngine {
  refused = 0; // kernels that the browser does not take
  /**
   * manifest: one that is checked; wasm: its engine, loaded and filled; kernels, text: the manifest's
   * and what they are; each in the text begins where `begins` matches, with its name as a group.
   */
  constructor(manifest, wasm, kernels, text, begins) {
    const at = [...text.matchAll(begins)].map((m) => [m.index, m[1]]);
    this.m = manifest;
    this.wasm = wasm;
    this.kernels = kernels;
    this.head = text.slice(0, at[0]?.[0]);
    this.codes = new Map(at.map(([from, name], k) => [name, text.slice(from, at[k + 1]?.[0])]));
    for (const k of kernels)
      if (k && !this.codes.has(k[0])) refuse(`there is no kernel ${k[0]} for the GPU`);
  }

  /** A kernel that the browser does not take runs in WebAssembly. */
  refuses(name, why) {
    this.refused++;
    console.warn(`hlod: kernel ${name} runs in WebAssembly: ${why}`);
  }

  /** What each step reads and writes, and what it takes to dispatch it. */
  layOut() {
    const { gpu, inputs, outputs } = this.m, extents = [];
    const each = (steps, f) => {
      for (const s of steps) {
        f(s);
        if (s.parts) for (const part of s.parts) each(part, f);
      }
    };
    each(this.wasm.program, (s) => {
      if (s.kind === RUN) s.at.forEach((at, k) => extents.push([at, gpu.buffers[s.kernel][2][k]]));
      else if (s.kind === COPY) extents.push([s.from, s.n], [s.to, s.n]);
      else extents.push([s.at, 4]);
    });
    const sizes = outputs.flatMap((v) => (v.cut ?? []).map(([, at]) => [at, 8]));
    for (const v of [...inputs, ...outputs]) extents.push([v.at, v.bytes]);
    extents.push(...sizes);
    for (const k of this.kernels) if (k) for (const t of tablesOf(k)) extents.push(t);
    const parts = this.parts = new Parts(extents);

    each(this.wasm.program, (s) => {
      if (s.kind === RUN) {
        const [n, updates, bytes] = gpu.buffers[s.kernel];
        const ranges = s.at.map((at, k) => parts.range(at, bytes[k]));
        s.reads = updates ? ranges : ranges.slice(0, n);
        s.writes = ranges.slice(n);
        s.gpu = this.onGpu(s);
      } else if (s.kind === COPY) {
        s.reads = [parts.range(s.from, s.n)];
        s.writes = [parts.range(s.to, s.n)];
        s.words = (s.from | s.to | s.n) % 4 === 0;
      } else {
        s.reads = [parts.range(s.at, s.kind === WHILE || s.pred ? 1 : 4)];
      }
    });
    this.ins = inputs.map((v) => parts.range(v.at, v.bytes));
    this.outs = [...outputs.map((v) => [v.at, v.bytes]), ...sizes].map((x) => parts.range(...x));
    this.eachStep = (f) => each(this.wasm.program, f);
  }
  onGpu(s) {
    const kernel = this.kernels[s.kernel];
    if (!kernel) return null;
    const tables = tablesOf(kernel), places = [...s.at, ...tables.map(([at]) => at)];
    const made = places.some((at) => at % 4) ? null : this.dispatches(s, kernel, places);
    if (made) s.reads.push(...tables.map(([at, bytes]) => this.parts.range(at, bytes)));
    return made;
  }

  /** Runs the program once, of inputs in WebAssembly's memory; its outputs are there at the end. */
  async run(times) {
    const { parts } = this;
    if (this.lost) throw new Error(`the GPU is lost: ${this.lost}`);
    this.begun();
    try {
      parts.wrote(this.ins, ON_CPU);
      await this.walk(this.wasm.program, times);
      await this.toCpu(this.outs, true);
      await this.ended();
    } catch (e) {
      await this.hear(); // of a lost device what fails first says something else
      throw this.lost ? new Error(`the GPU is lost: ${this.lost}`) : e;
    }
  }
  async walk(steps, times) {
    for (const s of steps) {
      if (s.kind === RUN) {
        const start = times ? performance.now() : 0;
        if (s.gpu) this.onSide(s);
        else await this.onCpu(s, () => this.wasm.call(s));
        if (!times) continue;
        await this.settled();
        times.push([s.label, performance.now() - start]);
      } else if (s.kind === COPY) {
        if (s.words && this.parts.all(s.reads, ON_GPU)) this.onSide(s);
        else await this.onCpu(s, () => this.wasm.copy(s));
      } else if (s.kind === WHILE) {
        for (;;) {
          await this.walk(s.parts[0], times);
          await this.toCpu(s.reads);
          if (!this.wasm.bytes[s.at]) break;
          await this.walk(s.parts[1], times);
        }
      } else {
        await this.toCpu(s.reads);
        await this.walk(s.parts[this.wasm.choice(s)], times);
      }
    }
  }
  onSide(s) {
    const runs = this.parts.claim(s.reads, ON_GPU);
    if (runs.length) this.upload(runs);
    if (s.kind === COPY) this.copy(s);
    else this.dispatch(s);
    this.parts.wrote(s.writes, ON_GPU);
  }
  async onCpu(s, what) {
    await this.toCpu(s.reads);
    what();
    this.parts.wrote(s.writes, ON_CPU);
  }
  async toCpu(ranges, last = false) {
    const runs = this.parts.claim(ranges, ON_CPU);
    if (runs.length) await this.download(runs, last);
  }
}
