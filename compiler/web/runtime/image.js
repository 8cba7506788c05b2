// SPDX-License-Identifier: Apache-2.0
// Pictures as inputs, by the arithmetic of `hlo run` (client/files/image.c), so that a model sees the
// same numbers: centre crop of a part of the short side; two passes of Catmull-Rom's cubic, widened
// by the scale when shrinking, rounded to 8 bits in between; (value - mean) / std. Alpha is dropped.
import { refuse } from "./errors.js";

/** The middle of an image {width, height, rgb}, a square of `part` of the short side. */
export function crop(image, part) {
  const side = Math.max(1, Math.trunc(Math.min(image.width, image.height) * part + 1e-9));
  const x = Math.trunc((image.width - side) / 2), y = Math.trunc((image.height - side) / 2);
  const rgb = new Uint8Array(side * side * 3);
  for (let k = 0; k < side; k++) {
    const from = ((y + k) * image.width + x) * 3;
    rgb.set(image.rgb.subarray(from, from + side * 3), k * side * 3);
  }
  return { width: side, height: side, rgb };
}

function cubic(x) {
  x = Math.abs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
  return 0;
}

// For each of n_out samples: the first of those it is made of, and their weights.
function filter(nIn, nOut) {
  const scale = nIn / nOut, widen = scale > 1 ? scale : 1, reach = 2 * widen, taps = [];
  for (let k = 0; k < nOut; k++) {
    const centre = (k + 0.5) * scale;
    const from = Math.max(0, Math.trunc(centre - reach + 0.5));
    const to = Math.min(nIn, Math.trunc(centre + reach + 0.5));
    const weight = new Float64Array(to - from);
    let sum = 0;
    for (let i = from; i < to; i++) sum += weight[i - from] = cubic((i + 0.5 - centre) / widen);
    for (let i = 0; i < weight.length; i++) weight[i] /= sum;
    taps.push({ first: from, weight });
  }
  return taps;
}

function line(input, at, taps, step, output, to) {
  for (let k = 0; k < taps.length; k++) {
    const { first, weight } = taps[k];
    let sum = 0.5;
    for (let i = 0; i < weight.length; i++) sum += weight[i] * input[at + (first + i) * step];
    output[to + k * step] = sum <= 0 ? 0 : sum >= 255 ? 255 : Math.trunc(sum);
  }
}

/** The image in another size. */
export function resize(image, width, height) {
  let { rgb } = image;
  if (image.width !== width) {
    const taps = filter(image.width, width), across = new Uint8Array(width * image.height * 3);
    for (let y = 0; y < image.height; y++)
      for (let c = 0; c < 3; c++)
        line(rgb, y * image.width * 3 + c, taps, 3, across, y * width * 3 + c);
    rgb = across;
  }
  if (image.height !== height) {
    const taps = filter(image.height, height), down = new Uint8Array(width * height * 3);
    for (let x = 0; x < width * 3; x++) line(rgb, x, taps, width * 3, down, x);
    rgb = down;
  }
  return { width, height, rgb };
}

/** An image as the numbers that a model takes; `how` is the manifest's "image". */
export function tensorOf(image, how) {
  if (how.crop > 0) image = crop(image, how.crop);
  image = resize(image, how.width, how.height);
  const plane = how.width * how.height, out = new Float32Array(plane * 3);
  const last = how.layout === "nhwc";
  for (let i = 0; i < plane; i++)
    for (let c = 0; c < 3; c++)
      out[last ? i * 3 + c : c * plane + i] = (image.rgb[i * 3 + c] - how.mean[c]) / how.std[c];
  return out;
}

/** Pixels {width, height, data} of three or four bytes each, as canvases have them, without alpha. */
export function fromPixels({ width, height, data }) {
  const n = width * height, parts = data.length / n, rgb = new Uint8Array(n * 3);
  if (!(n > 0) || (parts !== 3 && parts !== 4)) refuse("an image needs width, height and pixels");
  for (let i = 0; i < n; i++)
    for (let c = 0; c < 3; c++) rgb[i * 3 + c] = data[i * parts + c];
  return { width, height, rgb };
}

/** Is this a picture that `pixelsOf` takes? */
export function isPicture(x) {
  const kinds = ["ImageData", "ImageBitmap", "HTMLImageElement", "HTMLCanvasElement",
    "OffscreenCanvas", "HTMLVideoElement", "Blob"];
  if (kinds.some((k) => globalThis[k] && x instanceof globalThis[k])) return true;
  return x !== null && typeof x === "object" && x.width > 0 && x.height > 0 && "data" in x;
}

/** Any picture as {width, height, rgb}: a file (Blob), an element, a bitmap, or its pixels. */
export async function pixelsOf(x) {
  if ("data" in x && x.width > 0) return fromPixels(x);
  if (typeof createImageBitmap !== "function") refuse("pictures can only be decoded in a browser");
  const as = { colorSpaceConversion: "none", premultiplyAlpha: "none", imageOrientation: "none" };
  let bitmap;
  try {
    bitmap = await createImageBitmap(x, as);
  } catch {
    try { // browsers that know no orientation "none"
      bitmap = await createImageBitmap(x, { ...as, imageOrientation: "from-image" });
    } catch (e) {
      refuse("this picture cannot be decoded: " + e.message);
    }
  }
  const canvas = typeof OffscreenCanvas === "function"
    ? new OffscreenCanvas(bitmap.width, bitmap.height)
    : Object.assign(document.createElement("canvas"),
      { width: bitmap.width, height: bitmap.height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  return fromPixels(context.getImageData(0, 0, bitmap.width, bitmap.height));
}
