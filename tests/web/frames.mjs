// SPDX-License-Identifier: Apache-2.0
// A request of web_runner.c: files of a package and inputs, each with a name; the answer: outputs, or
// what was thrown. Numbers are u32, little endian. Used in Node and in a page.

function parse(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length), items = new Map();
  let at = 0;
  const part = () => {
    const n = view.getUint32(at, true);
    return bytes.subarray(at += 4, at += n);
  };
  while (at < bytes.length) {
    const name = new TextDecoder().decode(part());
    items.set(name, part());
  }
  return items;
}

function answer(status, parts) {
  const out = new Uint8Array(4 + parts.reduce((n, p) => n + 4 + p.length, 0));
  const view = new DataView(out.buffer);
  view.setUint32(0, status, true);
  let at = 4;
  for (const p of parts) {
    view.setUint32(at, p.length, true);
    out.set(p, at + 4);
    at += 4 + p.length;
  }
  return out;
}

/**
 * Answers a request. load, arrayOf: the runtime's; options: of load. A model that has kernels for the
 * backend that these name must run there, all of them.
 */
export async function handle(request, load, arrayOf, options = {}) {
  try {
    const items = parse(request);
    const model = await load(async (name) => {
      const file = items.get("model/" + (name ?? "manifest.json"));
      if (!file) throw new Error(`no file ${name}`);
      return file;
    }, options);
    const language = { webgpu: "wgsl", webgl: "glsl" }[options.backend];
    const gpu = model.manifest.gpu?.[language];
    if (gpu && (model.backend !== options.backend || model.backendNote))
      throw new Error(`runs by ${model.backend}: ${model.backendNote}`);
    const inputs = {};
    model.inputs.forEach((v, k) => {
      const copy = items.get("in" + k).slice(), type = arrayOf(v.dtype);
      inputs[v.name] = new type(copy.buffer, 0, copy.length / type.BYTES_PER_ELEMENT);
    });
    await model.run(inputs);
    const outputs = await model.run(inputs); // nothing is left of the run before
    if (gpu && model.backend !== options.backend)
      throw new Error(`went on by ${model.backend}: ${model.backendNote}`);
    model.dispose();
    return answer(0, model.outputs.map((v) => {
      const o = outputs[v.name];
      return new Uint8Array(o.buffer, o.byteOffset, o.byteLength);
    }));
  } catch (e) {
    return answer(1, [new TextEncoder().encode(`${e.name}: ${e.message}`)]);
  }
}
