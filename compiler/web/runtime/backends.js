// SPDX-License-Identifier: Apache-2.0
// What may run kernels on a GPU, in the order in which it is tried. A package for one of them, or for
// WebAssembly alone, has a file of its own in this one's place (compiler/web/web_page.c).
import { byWebGl } from "./webgl.js";
import { byWebGpu } from "./webgpu.js";

export const onGpu = { webgpu: byWebGpu, webgl: byWebGl };
