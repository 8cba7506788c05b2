// SPDX-License-Identifier: Apache-2.0
// Requests of web_runner.c on stdin, answers on stdout; before each its length. Usage:
// node serve.mjs RUNTIME, the folder of the runtime. HLOD_DAWN: the folder of npm's package webgpu, by
// which models then run as WebGPU.
import { readSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const runtime = pathToFileURL(process.argv[2] + "/");
const { load } = await import(new URL("hlod.js", runtime));
const { arrayOf } = await import(new URL("dtypes.js", runtime));
const dawn = process.env.HLOD_DAWN;
const options = !dawn ? { backend: "wasm" } : { backend: "webgpu",
  gpu: (await import(pathToFileURL(dawn + "/index.js"))).create([]) };
const { handle } = await import(new URL("./frames.mjs", import.meta.url));

function read(n) {
  const out = new Uint8Array(n);
  for (let at = 0; at < n;) {
    const got = readSync(0, out, at, n - at);
    if (got === 0) return null;
    at += got;
  }
  return out;
}
function write(bytes) {
  for (let at = 0; at < bytes.length;) at += writeSync(1, bytes, at);
}

for (let head; (head = read(4));) {
  const request = read(new DataView(head.buffer).getUint32(0, true));
  const reply = await handle(request, load, arrayOf, options), length = new Uint8Array(4);
  new DataView(length.buffer).setUint32(0, reply.length, true);
  write(length);
  write(reply);
}
