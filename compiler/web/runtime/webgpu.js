// SPDX-License-Identifier: Apache-2.0
// The engine of WebGPU: kernels in WGSL over a buffer that mirrors WebAssembly's memory place by
// place. What WGSL cannot say runs in WebAssembly. Of each part of memory it is known on which side
// its value is; it is moved when the other side reads it, and weights so but once.
import { refuse } from "./errors.js";
import { COPY, RUN, WHILE } from "./wasm.js";

const SLOT = 256, GROUP = 64, MOST_GROUPS = 65535, MOST_SLOTS = 1 << 16, MOST_DISPATCHES = 256;
const SCRATCH = 1 << 26, BATCH = 128, PIECE = 1 << 26;
const ON_CPU = 1, ON_GPU = 2;
const STORAGE = 0x80, UNIFORM = 0x40, COPY_FROM = 4, COPY_TO = 8, MAP_READ = 1, COMPUTE = 4;

const wordsOf = (at, bytes) => [at - at % 4, Math.ceil((at + bytes) / 4) * 4];

// Memory in parts, none of which is an argument of any step but as a whole.
class Parts {
  constructor(extents) {
    const ends = new Set([0]);
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

/**
 * A device for a model, {device}; or {note} says why there is none. always: also one that a CPU stands
 * in for.
 */
export async function gpuDevice(manifest, gpu, always) {
  if (!gpu) return { note: "there is no WebGPU here" };
  const need = memoryOf(manifest);
  try {
    const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
    if (!adapter) return { note: "there is no GPU" };
    if (!always && (adapter.info?.isFallbackAdapter ?? adapter.isFallbackAdapter))
      return { note: "a CPU stands in for the GPU" };
    const { maxBufferSize, maxStorageBufferBindingSize } = adapter.limits;
    if (need > Math.min(maxBufferSize, maxStorageBufferBindingSize))
      return { note: `the model takes ${need} bytes, more than the GPU gives at a time` };
    return { device: await adapter.requestDevice({
      requiredLimits: { maxBufferSize: Math.max(need, 2 ** 28),
        maxStorageBufferBindingSize: Math.max(need, 2 ** 27) } }) };
  } catch (e) {
    return { note: e.message };
  }
}
const memoryOf = (manifest) => Math.ceil(manifest.memory.bytes / 16) * 16;

export class GpuEngine {
  /**
   * manifest: one that is checked; wasm: its engine, loaded and filled; text: its kernels in WGSL. The
   * device is the engine's.
   */
  constructor(manifest, wasm, text, device) {
    const [head, ...bodies] = text.split(/^(?=@compute )/m);
    this.m = manifest;
    this.wasm = wasm;
    this.device = device;
    this.codes = new Map(bodies.map((b) => [/ fn (\w+)\(/.exec(b)?.[1], head + b]));
    for (const k of manifest.gpu.kernels)
      if (k && !this.codes.has(k[0])) refuse(`there is no kernel ${k[0]} in the WGSL`);
    this.owned = [];
    this.lost = null;
    device.lost.then((info) => { this.lost = info.message || info.reason; });
  }

  /** Makes all that runs need. Throws what the GPU refuses. */
  async make() {
    const { device } = this;
    device.pushErrorScope("validation");
    device.pushErrorScope("out-of-memory");
    this.memory = this.buffer(memoryOf(this.m), STORAGE | COPY_FROM | COPY_TO);
    await this.pipelines();
    this.layOut();
    for (const wrong of [await device.popErrorScope(), await device.popErrorScope()])
      if (wrong) throw new Error(`the GPU refuses the model: ${wrong.message}`);
    this.encoder = this.pass = this.staging = null;
    this.commands = 0;
  }

  buffer(size, usage) {
    const made = this.device.createBuffer({ size, usage });
    this.owned.push(made);
    return made;
  }
  /** Gives all of the GPU back. */
  dispose() {
    for (const made of this.owned) made.destroy();
    this.device.destroy();
    this.wasm = this.owned = null; // what hears of a lost device may live as long as that
  }

  // Of each text one; a kernel that the browser does not take runs in WebAssembly.
  async pipelines() {
    const { device, codes } = this, made = new Map();
    const entry = (binding, type, hasDynamicOffset) =>
      ({ binding, visibility: COMPUTE, buffer: { type, hasDynamicOffset } });
    this.groupLayout = device.createBindGroupLayout({ entries: [
      entry(0, "storage", false), entry(1, "storage", false), entry(2, "uniform", true)] });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [this.groupLayout] });
    const make = async (name) => {
      device.pushErrorScope("validation");
      const module = device.createShaderModule({ code: codes.get(name) });
      const pipeline = device.createComputePipelineAsync(
        { layout, compute: { module, entryPoint: name } }).catch((e) => {
        console.warn(`hlod: kernel ${name} runs in WebAssembly: ${e.message}`);
        return null;
      });
      await device.popErrorScope();
      return pipeline;
    };
    for (const k of this.m.gpu.kernels) if (k && !made.has(k[0])) made.set(k[0], make(k[0]));
    this.made = new Map();
    for (const [name, pipeline] of made) this.made.set(name, await pipeline);
  }

  // What each step reads and writes, and what it takes to dispatch it.
  layOut() {
    const { gpu, inputs, outputs } = this.m, extents = [], slots = [];
    const each = (steps, f) => {
      for (const s of steps) {
        f(s);
        if (s.parts) for (const part of s.parts) each(part, f);
      }
    };
    let scratch = 16, room = 16;
    each(this.wasm.program, (s) => {
      if (s.kind === RUN) s.at.forEach((at, k) => extents.push([at, gpu.buffers[s.kernel][2][k]]));
      else if (s.kind === COPY) extents.push([s.from, s.n], [s.to, s.n]);
      else extents.push([s.at, 4]);
    });
    for (const v of [...inputs, ...outputs]) extents.push([v.at, v.bytes]);
    for (const k of gpu.kernels) if (k) for (const t of tablesOf(k)) extents.push(t);
    const parts = this.parts = new Parts(extents);

    each(this.wasm.program, (s) => {
      if (s.kind === RUN) {
        const [n, updates, bytes] = gpu.buffers[s.kernel];
        const ranges = s.at.map((at, k) => parts.range(at, bytes[k]));
        s.reads = updates ? ranges : ranges.slice(0, n);
        s.writes = ranges.slice(n);
        s.gpu = this.dispatches(s, slots);
        if (s.gpu) scratch = Math.max(scratch, s.gpu.scratch);
      } else if (s.kind === COPY) {
        s.reads = [parts.range(s.from, s.n)];
        s.writes = [parts.range(s.to, s.n)];
        s.words = (s.from | s.to | s.n) % 4 === 0;
        if (s.words) room = Math.max(room, s.n);
      } else {
        s.reads = [parts.range(s.at, s.kind === WHILE || s.pred ? 1 : 4)];
      }
    });
    this.ins = inputs.map((v) => parts.range(v.at, v.bytes));
    this.outs = outputs.map((v) => parts.range(v.at, v.bytes));
    this.buffers(slots, scratch, room);
  }
  dispatches(s, slots) {
    const kernel = this.m.gpu.kernels[s.kernel], pipeline = kernel && this.made.get(kernel[0]);
    if (!pipeline) return null;
    const [, extent, perUnit] = kernel, tables = tablesOf(kernel), list = [];
    const most = perUnit ? Math.floor(SCRATCH / perUnit) : extent;
    const places = [...s.at, ...tables.map(([at]) => at)];
    const slow = extent > most * MOST_DISPATCHES || slots.length > MOST_SLOTS;
    if (slow || places.some((at) => at % 4)) return null;
    for (let from = 0; from < extent; from += most) {
      const n = Math.min(most, extent - from), groups = Math.ceil(n / GROUP);
      const x = Math.min(groups, MOST_GROUPS);
      list.push({ slot: slots.length * SLOT, x, y: Math.ceil(groups / x) });
      slots.push([from, from + n, 0, 0, ...places.map((at) => at / 4)]);
    }
    s.reads.push(...tables.map(([at, bytes]) => this.parts.range(at, bytes)));
    return { pipeline, list, scratch: Math.min(extent, most) * perUnit };
  }
  buffers(slots, scratch, room) {
    const { device } = this, data = new Uint32Array(Math.max(1, slots.length) * SLOT / 4);
    slots.forEach((words, k) => data.set(words, k * SLOT / 4));
    const uniforms = this.buffer(data.byteLength, UNIFORM | COPY_TO);
    device.queue.writeBuffer(uniforms, 0, data);
    this.between = this.buffer(room, COPY_FROM | COPY_TO);
    const entry = (binding, buffer, size) => ({ binding, resource: { buffer, size } });
    this.group = device.createBindGroup({ layout: this.groupLayout, entries: [
      entry(0, this.memory), entry(1, this.buffer(Math.ceil(scratch / 4) * 4, STORAGE)),
      entry(2, uniforms, SLOT)] });
  }

  /** Runs the program once, of inputs in WebAssembly's memory; its outputs are there at the end. */
  async run(times) {
    const { device, parts } = this;
    if (this.lost) throw new Error(`the GPU is lost: ${this.lost}`);
    device.pushErrorScope("validation");
    try {
      parts.wrote(this.ins, ON_CPU);
      await this.walk(this.wasm.program, times);
      await this.toCpu(this.outs);
      this.flush();
      const wrong = await device.popErrorScope();
      if (wrong) throw new Error(`the GPU refuses: ${wrong.message}`);
    } catch (e) {
      // Of a lost device what fails first says something else.
      await Promise.race([device.lost, new Promise((done) => { setTimeout(done, 100); })]);
      throw this.lost ? new Error(`the GPU is lost: ${this.lost}`) : e;
    }
  }
  async walk(steps, times) {
    for (const s of steps) {
      if (s.kind === RUN) {
        const start = times ? performance.now() : 0;
        if (s.gpu) this.dispatch(s);
        else await this.onCpu(s, () => this.wasm.call(s));
        if (!times) continue;
        this.flush();
        await this.device.queue.onSubmittedWorkDone();
        times.push([s.label, performance.now() - start]);
      } else if (s.kind === COPY) {
        if (s.words && this.parts.all(s.reads, ON_GPU)) this.copy(s);
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

  dispatch(s) {
    this.toGpu(s.reads);
    this.begin();
    this.pass ??= this.encoder.beginComputePass();
    this.pass.setPipeline(s.gpu.pipeline);
    for (const d of s.gpu.list) {
      this.pass.setBindGroup(0, this.group, [d.slot]);
      this.pass.dispatchWorkgroups(d.x, d.y);
    }
    this.parts.wrote(s.writes, ON_GPU);
    this.ended(s.gpu.list.length);
  }
  // A buffer is not copied to itself.
  copy(s) {
    this.begin();
    this.pass?.end();
    this.pass = null;
    this.encoder.copyBufferToBuffer(this.memory, s.from, this.between, 0, s.n);
    this.encoder.copyBufferToBuffer(this.between, 0, this.memory, s.to, s.n);
    this.parts.wrote(s.writes, ON_GPU);
    this.ended(1);
  }
  async onCpu(s, what) {
    await this.toCpu(s.reads);
    what();
    this.parts.wrote(s.writes, ON_CPU);
  }

  begin() {
    this.encoder ??= this.device.createCommandEncoder();
  }
  ended(n) {
    this.commands += n;
    if (this.commands >= BATCH) this.flush();
  }
  flush() {
    if (!this.encoder) return;
    this.pass?.end();
    this.device.queue.submit([this.encoder.finish()]);
    this.encoder = this.pass = null;
    this.commands = 0;
  }
  // What is queued may still read what was there: it goes first.
  toGpu(ranges) {
    const runs = this.parts.claim(ranges, ON_GPU);
    if (!runs.length) return;
    this.flush();
    for (const [from, to] of runs)
      for (let at = from; at < to; at += PIECE)
        this.device.queue.writeBuffer(this.memory, at, this.wasm.bytes.buffer, at,
          Math.min(PIECE, to - at));
  }
  async toCpu(ranges) {
    const runs = this.parts.claim(ranges, ON_CPU), { device, wasm } = this;
    const all = runs.reduce((n, [from, to]) => n + to - from, 0);
    if (!all) return;
    if (!this.staging || this.staging.size < all) {
      this.staging?.destroy();
      this.staging = this.buffer(all, MAP_READ | COPY_TO);
    }
    this.begin();
    this.pass?.end();
    this.pass = null;
    let at = 0;
    for (const [from, to] of runs) {
      this.encoder.copyBufferToBuffer(this.memory, from, this.staging, at, to - from);
      at += to - from;
    }
    this.flush();
    await this.staging.mapAsync(MAP_READ, 0, all);
    const bytes = new Uint8Array(this.staging.getMappedRange(0, all));
    at = 0;
    for (const [from, to] of runs) wasm.bytes.set(bytes.subarray(at, at += to - from), from);
    this.staging.unmap();
  }
}

// [place, bytes] of each table of a kernel.
function tablesOf(kernel) {
  const out = [];
  for (let k = 0; k < kernel[3].length; k += 2) out.push([kernel[3][k], kernel[3][k + 1]]);
  return out;
}
