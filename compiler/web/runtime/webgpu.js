// SPDX-License-Identifier: Apache-2.0
// The engine of WebGPU: kernels in WGSL over a buffer that mirrors WebAssembly's memory.
import { GpuEngine } from "./gpu.js";

const SLOT = 256, GROUP = 64, MOST_GROUPS = 65535, MOST_SLOTS = 1 << 16, MOST_DISPATCHES = 256;
const SCRATCH = 1 << 26, BATCH = 128, PIECE = 1 << 26;
const STORAGE = 0x80, UNIFORM = 0x40, COPY_FROM = 4, COPY_TO = 8, MAP_READ = 1, COMPUTE = 4;

/**
 * A device for a model, {device, close}; or {note} says why there is none. always: also one that a CPU stands
 * in for.
 */
async function gpuDevice(manifest, gpu, always) {
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
    const device = await adapter.requestDevice({
      requiredLimits: { maxBufferSize: Math.max(need, 2 ** 28),
        maxStorageBufferBindingSize: Math.max(need, 2 ** 27) } });
    return { device, close: () => device.destroy() };
  } catch (e) {
    return { note: e.message };
  }
}
const memoryOf = (manifest) => Math.ceil(manifest.memory.bytes / 16) * 16;

class WebGpuEngine extends GpuEngine {
  name = "webgpu";
  lost = null;
  /** As a GpuEngine; the device, of gpuDevice, is the engine's. */
  constructor(manifest, wasm, text, { device }) {
    super(manifest, wasm, manifest.gpu.wgsl.kernels, text, /^@compute .* fn (\w+)\(/gm);
    this.device = device;
    this.owned = [];
    device.lost.then((info) => { this.lost = info.message || info.reason; });
  }

  /** Makes all that runs need. Throws what the GPU refuses. */
  async make() {
    const { device } = this;
    device.pushErrorScope("validation");
    device.pushErrorScope("out-of-memory");
    this.memory = this.buffer(memoryOf(this.m), STORAGE | COPY_FROM | COPY_TO);
    await this.pipelines();
    this.slots = [];
    this.layOut();
    this.buffers();
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

  // Of each text one.
  async pipelines() {
    const { device, head, codes } = this, made = new Map();
    const entry = (binding, type, hasDynamicOffset) =>
      ({ binding, visibility: COMPUTE, buffer: { type, hasDynamicOffset } });
    this.groupLayout = device.createBindGroupLayout({ entries: [
      entry(0, "storage", false), entry(1, "storage", false), entry(2, "uniform", true)] });
    const layout = device.createPipelineLayout({ bindGroupLayouts: [this.groupLayout] });
    const make = async (name) => {
      device.pushErrorScope("validation");
      const module = device.createShaderModule({ code: head + codes.get(name) });
      const pipeline = device.createComputePipelineAsync(
        { layout, compute: { module, entryPoint: name } }).catch((e) => {
        this.refuses(name, e.message);
        return null;
      });
      await device.popErrorScope();
      return pipeline;
    };
    for (const k of this.kernels) if (k && !made.has(k[0])) made.set(k[0], make(k[0]));
    this.made = new Map();
    for (const [name, pipeline] of made) this.made.set(name, await pipeline);
  }

  dispatches(s, [name, extent, perUnit], places) {
    const pipeline = this.made.get(name), list = [], { slots } = this;
    const most = perUnit ? Math.floor(SCRATCH / perUnit) : extent;
    if (!pipeline || extent > most * MOST_DISPATCHES || slots.length > MOST_SLOTS) return null;
    for (let from = 0; from < extent; from += most) {
      const n = Math.min(most, extent - from), groups = Math.ceil(n / GROUP);
      const x = Math.min(groups, MOST_GROUPS);
      list.push({ slot: slots.length * SLOT, x, y: Math.ceil(groups / x) });
      slots.push([from, from + n, 0, 0, ...places.map((at) => at / 4)]);
    }
    return { pipeline, list, scratch: Math.min(extent, most) * perUnit };
  }
  buffers() {
    const { device, slots } = this, data = new Uint32Array(Math.max(1, slots.length) * SLOT / 4);
    let scratch = 16, room = 16;
    this.eachStep((s) => {
      scratch = Math.max(scratch, s.gpu?.scratch ?? 0);
      if (s.words) room = Math.max(room, s.n);
    });
    slots.forEach((words, k) => data.set(words, k * SLOT / 4));
    this.slots = null;
    const uniforms = this.buffer(data.byteLength, UNIFORM | COPY_TO);
    device.queue.writeBuffer(uniforms, 0, data);
    this.between = this.buffer(room, COPY_FROM | COPY_TO);
    const entry = (binding, buffer, size) => ({ binding, resource: { buffer, size } });
    this.group = device.createBindGroup({ layout: this.groupLayout, entries: [
      entry(0, this.memory), entry(1, this.buffer(Math.ceil(scratch / 4) * 4, STORAGE)),
      entry(2, uniforms, SLOT)] });
  }

  begun() {
    this.device.pushErrorScope("validation");
  }
  async ended() {
    this.flush();
    const wrong = await this.device.popErrorScope();
    if (wrong) throw new Error(`the GPU refuses: ${wrong.message}`);
  }
  hear() {
    return Promise.race([this.device.lost, new Promise((done) => { setTimeout(done, 2000); })]);
  }
  async settled() {
    this.flush();
    await this.device.queue.onSubmittedWorkDone();
  }

  dispatch(s) {
    this.begin();
    this.pass ??= this.encoder.beginComputePass();
    this.pass.setPipeline(s.gpu.pipeline);
    for (const d of s.gpu.list) {
      this.pass.setBindGroup(0, this.group, [d.slot]);
      this.pass.dispatchWorkgroups(d.x, d.y);
    }
    this.count(s.gpu.list.length);
  }
  // A buffer is not copied to itself.
  copy(s) {
    this.begin();
    this.pass?.end();
    this.pass = null;
    this.encoder.copyBufferToBuffer(this.memory, s.from, this.between, 0, s.n);
    this.encoder.copyBufferToBuffer(this.between, 0, this.memory, s.to, s.n);
    this.count(1);
  }
  begin() {
    this.encoder ??= this.device.createCommandEncoder();
  }
  count(n) {
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
  upload(runs) {
    this.flush();
    for (const [from, to] of runs)
      for (let at = from; at < to; at += PIECE)
        this.device.queue.writeBuffer(this.memory, at, this.wasm.bytes.buffer, at,
          Math.min(PIECE, to - at));
  }
  async download(runs) {
    const { wasm } = this, all = runs.reduce((n, [from, to]) => n + to - from, 0);
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

export const byWebGpu = { language: "wgsl", Engine: WebGpuEngine,
  open: (manifest, options, always) => gpuDevice(manifest, options.gpu ?? globalThis.navigator?.gpu, always) };
