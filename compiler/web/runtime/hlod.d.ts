// SPDX-License-Identifier: Apache-2.0
/** Something is wrong with a model's files, an input, or what the browser can do. */
export class HlodError extends Error {}

/** Element types, as HLO names them. Complex values are pairs; types below a byte take one each. */
export type DType = "pred" | "s2" | "s4" | "s8" | "s16" | "s32" | "s64" | "u2" | "u4" | "u8" | "u16"
  | "u32" | "u64" | "f16" | "bf16" | "f32" | "f64" | "c64" | "c128" | string;
export interface TensorInfo {
  readonly name: string;
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Dimensions whose size only a run knows; `shape` has the largest it can be. */
  readonly open?: readonly number[];
}
export type TypedArray = Int8Array | Uint8Array | Int16Array | Uint16Array | Int32Array | Uint32Array
  | BigInt64Array | BigUint64Array | Float32Array | Float64Array;
/** Pixels of three or four bytes each, in rows. */
export interface Pixels {
  width: number;
  height: number;
  data: Uint8Array | Uint8ClampedArray;
}
/** A file (Blob), an element, a bitmap or pixels: for the input that pictures become. */
export type Picture = Blob | ImageBitmap | ImageData | HTMLImageElement | HTMLCanvasElement
  | HTMLVideoElement | OffscreenCanvas | Pixels;
export type NestedNumbers = number | bigint | boolean | readonly NestedNumbers[];
export type Input = TypedArray | NestedNumbers | Picture;
export interface ImageOptions {
  readonly input: string;
  readonly width: number;
  readonly height: number;
  /** Of the short side; 0: none. */
  readonly crop: number;
  readonly mean: readonly [number, number, number];
  readonly std: readonly [number, number, number];
  readonly layout: "nchw" | "nhwc";
}
export interface RunOptions {
  /** Gets [what was computed, milliseconds] of each kernel. */
  profile?: [string, number][];
  /** Gets the shape of each output by name: where `open` names dimensions, what they are in this run. */
  shapes?: Record<string, number[]>;
}
export interface Score {
  index: number;
  label: string;
  score: number;
}
export class Model {
  readonly name: string;
  readonly inputs: readonly TensorInfo[];
  readonly outputs: readonly TensorInfo[];
  /** Of classes; may be empty. */
  readonly labels: readonly string[];
  /** How a picture becomes an input; null: none does. */
  readonly image: ImageOptions | null;
  /** What runs it: a GPU, with WebAssembly for what its language cannot say; or WebAssembly alone. */
  readonly backend: "webgpu" | "webgl" | "wasm";
  /** Why it is no GPU; "" where it is. */
  readonly backendNote: string;
  /**
   * Runs the model once. For each input an array of its type, or of numbers, in row-major order. Gives
   * an array for each output, which is the caller's. Throws HlodError where an input does not fit,
   * and where the GPU is lost: the next run is WebAssembly's. Runs come one after the other.
   */
  run(inputs: Record<string, Input>, options?: RunOptions): Promise<Record<string, TypedArray>>;
  /** Gives the GPU's memory back; later runs are WebAssembly's. */
  dispose(): void;
  /** The k largest numbers of an output, with their labels. */
  top(output: ArrayLike<number | bigint>, k?: number): Score[];
}
export interface LoadOptions {
  /** Told of weights that have come, in bytes. */
  progress?: (done: number, all: number) => void;
  /**
   * auto: WebGPU, or else WebGL2, if the machine has a GPU. webgpu, webgl: also where a CPU stands in for
   * one. Without it, as the model was exported. Where there is none, WebAssembly runs the model.
   */
  backend?: "auto" | "webgpu" | "webgl" | "wasm";
  /** In place of navigator.gpu: in Node that of npm's package webgpu, say. */
  gpu?: unknown;
  /** In place of a new context of WebGL2; for this model alone until it is disposed of. */
  gl?: WebGL2RenderingContext;
}
/**
 * Loads a model: by the URL of its manifest.json, or by a function that gives the bytes of a file by
 * name (null: the manifest). Every file's SHA-256 is checked.
 */
export function load(source: string | URL | ((file: string | null) => Promise<Uint8Array>),
  options?: LoadOptions): Promise<Model>;
/** An f16, given as its bits, as a number. */
export function fromHalf(bits: number): number;
/** A number as the bits of an f16, to nearest even. */
export function toHalf(x: number): number;
