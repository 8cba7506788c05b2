// SPDX-License-Identifier: Apache-2.0
// Element types: how each lies in memory, and which array JavaScript has for it. f16 and bf16 are
// given and taken as their bits (Uint16Array) or, of inputs, as numbers (Float32Array), which are
// rounded. Complex numbers are pairs, real part first. Types below a byte have a byte an element.

const arrays = {
  pred: Uint8Array, s2: Int8Array, s4: Int8Array, s8: Int8Array, u2: Uint8Array, u4: Uint8Array,
  u8: Uint8Array, s16: Int16Array, u16: Uint16Array, s32: Int32Array, u32: Uint32Array,
  s64: BigInt64Array, u64: BigUint64Array, f16: Uint16Array, bf16: Uint16Array,
  f32: Float32Array, f64: Float64Array, c64: Float32Array, c128: Float64Array,
};

/** The array of a type; null: there is no such type. */
export function arrayOf(dtype) {
  if (Object.hasOwn(arrays, dtype)) return arrays[dtype];
  return /^f8e[0-9a-z]+$|^f4e2m1fn$/.test(dtype) ? Uint8Array : null;
}

/** Elements of that array for one element of the type. */
export function partsOf(dtype) {
  return dtype === "c64" || dtype === "c128" ? 2 : 1;
}

const float = new Float32Array(1), bits = new Uint32Array(float.buffer);

/** An f16 as a number. */
export function fromHalf(h) {
  const e = h >> 10 & 31, m = h & 1023, sign = h & 0x8000 ? -1 : 1;
  if (e === 31) return m ? NaN : sign * Infinity;
  return sign * (e ? (m + 1024) * 2 ** (e - 25) : m * 2 ** -24);
}

/** A number as f16, to nearest even. */
export function toHalf(x) {
  float[0] = x;
  const u = bits[0], sign = u >>> 16 & 0x8000, a = u & 0x7fffffff;
  if (a > 0x7f800000) return sign | 0x7e00;
  if (a >= 0x47800000) return sign | 0x7c00;
  if (a >= 0x38800000) return sign | (a - 0x38000000 + 0xfff + (a >>> 13 & 1)) >>> 13;
  bits[0] = a;
  float[0] += 0.5; // the last bit of the sum is that of a subnormal half
  return sign | bits[0] - 0x3f000000;
}

/** A number as bf16, to nearest even. */
export function toBrain(x) {
  float[0] = x;
  const u = bits[0];
  if ((u & 0x7fffffff) > 0x7f800000) return u >>> 16 | 0x40;
  return (u + 0x7fff + (u >>> 16 & 1)) >>> 16 & 0xffff;
}
