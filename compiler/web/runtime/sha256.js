// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4) of bytes as hexadecimal text: the browser's own where it has one, which pages
// of plain http from another machine have not, else in JavaScript.

const primes = [];
for (let n = 2; primes.length < 64; n++) if (primes.every((p) => n % p)) primes.push(n);
const fraction = (x) => (x - Math.floor(x)) * 2 ** 32 | 0;
const rounds = Int32Array.from(primes, (p) => fraction(Math.cbrt(p)));
const start = Int32Array.from(primes.slice(0, 8), (p) => fraction(Math.sqrt(p)));

function block(h, w, bytes, at) {
  for (let t = 0; t < 16; t++, at += 4)
    w[t] = bytes[at] << 24 | bytes[at + 1] << 16 | bytes[at + 2] << 8 | bytes[at + 3];
  for (let t = 16; t < 64; t++) {
    const x = w[t - 15], y = w[t - 2];
    const s0 = (x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3;
    const s1 = (y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1 | 0;
  }
  let [a, b, c, d, e, f, g, i] = h;
  for (let t = 0; t < 64; t++) {
    const s1 = (e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7);
    const t1 = i + s1 + (e & f ^ ~e & g) + rounds[t] + w[t] | 0;
    const s0 = (a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10);
    const t2 = s0 + (a & b ^ a & c ^ b & c) | 0;
    i = g, g = f, f = e, e = d + t1 | 0, d = c, c = b, b = a, a = t1 + t2 | 0;
  }
  h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += i;
}

const hexOf = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

/** The digest without the browser's help. */
export function plainSha256(bytes) {
  const h = Int32Array.from(start), w = new Int32Array(64), whole = bytes.length & ~63;
  for (let at = 0; at < whole; at += 64) block(h, w, bytes, at);
  const rest = bytes.length - whole, tail = new Uint8Array(rest < 56 ? 64 : 128);
  tail.set(bytes.subarray(whole));
  tail[rest] = 0x80;
  const view = new DataView(tail.buffer), bits = bytes.length * 8;
  view.setUint32(tail.length - 8, Math.floor(bits / 2 ** 32));
  view.setUint32(tail.length - 4, bits >>> 0);
  for (let at = 0; at < tail.length; at += 64) block(h, w, tail, at);
  const out = new DataView(new ArrayBuffer(32));
  h.forEach((v, k) => out.setInt32(k * 4, v));
  return hexOf(new Uint8Array(out.buffer));
}

/** The digest of bytes (Uint8Array) as 64 hexadecimal digits. */
export async function sha256(bytes) {
  const subtle = globalThis.crypto?.subtle;
  if (!subtle) return plainSha256(bytes);
  return hexOf(new Uint8Array(await subtle.digest("SHA-256", bytes)));
}
