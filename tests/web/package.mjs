// SPDX-License-Identifier: Apache-2.0
// Runs an exported package as its users do, by its index.js:
//     node package.mjs PACKAGE FOLDER [RUNS]
// FOLDER has in0.bin, in1.bin, ... in the order of the model's inputs, or for a picture pixels.bin of
// three bytes each with pixels.json {width, height}; it gets out0.bin, ... On stdout, as JSON: inputs,
// outputs, labels, the median milliseconds of RUNS runs, the five largest of the first output.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [from, folder, runs] = process.argv.slice(2), at = (name) => join(folder, name);
const hlod = await import(pathToFileURL(resolve(from, "index.js")));
const { arrayOf } = await import(pathToFileURL(resolve(from, "runtime/dtypes.js")));
const dawn = process.env.HLOD_DAWN;
const options = !dawn ? {} : { backend: "webgpu",
  gpu: (await import(pathToFileURL(dawn + "/index.js"))).create([]) };
const began = performance.now(), model = await hlod.load(undefined, options), loaded = performance.now() - began;

const inputs = {};
model.inputs.forEach((v, k) => {
  if (model.image?.input === v.name && existsSync(at("pixels.bin"))) {
    const size = JSON.parse(readFileSync(at("pixels.json"), "utf8"));
    inputs[v.name] = { ...size, data: new Uint8Array(readFileSync(at("pixels.bin"))) };
    return;
  }
  const bytes = new Uint8Array(readFileSync(at(`in${k}.bin`))), type = arrayOf(v.dtype);
  inputs[v.name] = new type(bytes.buffer, 0, bytes.length / type.BYTES_PER_ELEMENT);
});
await model.run(inputs); // nothing of a run is left for the next
const shapes = {};
let outputs = await model.run(inputs, { shapes });
const times = [];
for (let k = 0; k < Number(runs ?? 0); k++) {
  const start = performance.now();
  outputs = await model.run(inputs);
  times.push(performance.now() - start);
}
model.outputs.forEach((v, k) => writeFileSync(at(`out${k}.bin`), outputs[v.name]));
times.sort((a, b) => a - b);
console.log(JSON.stringify({ inputs: model.inputs, loaded,
  outputs: model.outputs.map((v) => ({ ...v, shape: shapes[v.name] })),
  backend: model.backend,
  ms: times[times.length >> 1] ?? null,
  top: model.outputs[0].dtype === "f32" ? model.top(outputs[model.outputs[0].name], 5) : [] }));
model.dispose();
