// SPDX-License-Identifier: Apache-2.0
// A stand-in for navigator.gpu that has the parts which the runtime uses, and computes nothing: it
// counts what is dispatched and throws where WebGPU would refuse. For tests in Node.
const check = (good, what) => {
  if (!good) throw new Error(`WebGPU refuses: ${what}`);
};
const inside = (at, n, size) => at >= 0 && n >= 0 && at % 4 === 0 && n % 4 === 0 && at + n <= size;

class Buffer {
  constructor({ size, usage }) {
    check(Number.isInteger(size) && size > 0 && size <= 2 ** 30 && usage, "a buffer");
    Object.assign(this, { size, bytes: new Uint8Array(size), mapped: false });
  }
  async mapAsync(mode, at, n) {
    check(!this.mapped && inside(at, n, this.size), "to map a buffer");
    this.mapped = true;
  }
  getMappedRange(at, n) {
    check(this.mapped, "the range of a buffer that is not mapped");
    return this.bytes.buffer.slice(at, at + n);
  }
  unmap() {
    this.mapped = false;
  }
  destroy() {}
}

/** options: limits {maxBufferSize, maxStorageBufferBindingSize}; fallback: a CPU stands in; none. */
export function mockGpu({ limits = 2 ** 30, fallback = false, none = false } = {}) {
  const log = { dispatches: 0, submits: 0, device: null };
  let lose;
  const pass = {
    setPipeline: (p) => check(p, "a pipeline"),
    setBindGroup: (k, group, [slot]) => check(slot % 256 === 0 && slot + 256 <= group.room, "a slot"),
    dispatchWorkgroups(x, y) {
      check(x >= 0 && x <= 65535 && y >= 0 && y <= 65535, "a dispatch");
      log.dispatches++;
    },
    end() {},
  };
  const encoder = {
    beginComputePass: () => pass,
    copyBufferToBuffer(from, at, to, where, n) {
      check(from !== to && inside(at, n, from.size) && inside(where, n, to.size), "a copy");
      to.bytes.set(from.bytes.subarray(at, at + n), where);
    },
    finish: () => ({}),
  };
  const device = {
    lost: new Promise((done) => { lose = done; }),
    destroy: () => lose({ reason: "destroyed", message: "" }),
    pushErrorScope() {},
    popErrorScope: async () => null,
    createBuffer: (d) => new Buffer(d),
    createBindGroupLayout: () => ({}),
    createPipelineLayout: () => ({}),
    createShaderModule: () => ({}),
    createComputePipelineAsync: async () => ({}),
    createBindGroup: ({ entries }) => ({ room: entries[2].resource.buffer.size }),
    createCommandEncoder: () => encoder,
    queue: {
      writeBuffer(buffer, at, data, from = 0, n = data.byteLength) {
        const bytes = new Uint8Array(data.buffer ?? data);
        check(inside(at, n, buffer.size) && from + n <= bytes.length, "to write a buffer");
        buffer.bytes.set(bytes.subarray(from, from + n), at);
      },
      submit() {
        log.submits++;
      },
      onSubmittedWorkDone: async () => {},
    },
  };
  log.device = device;
  return { log, requestAdapter: async () => none ? null : {
    info: { isFallbackAdapter: fallback },
    limits: { maxBufferSize: limits, maxStorageBufferBindingSize: limits },
    requestDevice: async () => device,
  } };
}
