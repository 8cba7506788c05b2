// SPDX-License-Identifier: Apache-2.0
// Functions of doubles that kernels import (compiler/kernel/libm.def), where WebAssembly has none:
// the remainder, and both parts of inverse functions of complex numbers, as [re, im].

const { abs, log, sqrt, atan2, hypot, log1p, PI } = Math;

// Hull, Fairgrieve and Tang, "Implementing the complex arcsine and arccosine functions using exception
// handling", 1997: real part from b, imaginary from a.
const arcs = (re, im) => {
  const x = abs(re), y = abs(im), r = hypot(x + 1, y), s = hypot(x - 1, y), a = (r + s) / 2;
  const b = x / a;
  const less = y * y / (r + x + 1), apx = a + x;
  let d; // sqrt(a^2 - x^2)
  if (x <= 1) d = sqrt(apx * (less + (s + (1 - x))) / 2);
  else d = y * sqrt((apx / (r + x + 1) + apx / (s + (x - 1))) / 2);
  const am1 = x < 1 ? (less + y * y / (s + (1 - x))) / 2 : (less + (s + (x - 1))) / 2;
  const l = a <= 1.5 ? log1p(am1 + sqrt(am1 * (a + 1))) : log(a + sqrt(a * a - 1));
  return { asin: b <= 0.6417 ? Math.asin(b) : atan2(x, d), l,
    acos: b <= 0.6417 ? Math.acos(b) : atan2(d, x) };
};
const signed = (v, by) => by < 0 || Object.is(by, -0) ? -v : v;
const asinOf = (re, im) => {
  const v = arcs(re, im);
  return [signed(v.asin, re), signed(v.l, im)];
};
const acosOf = (re, im) => {
  const v = arcs(re, im);
  return [re < 0 || Object.is(re, -0) ? PI - v.acos : v.acos, -signed(v.l, im)];
};
const atanhOf = (re, im) => {
  const x = abs(re), y = abs(im);
  const real = log1p(4 * x / ((1 - x) * (1 - x) + y * y)) / 4;
  const imag = atan2(2 * y, (1 - x) * (1 + x) - y * y) / 2;
  return [signed(real, re), signed(imag, im)];
};

const complex = {
  casin: asinOf, cacos: acosOf, catanh: atanhOf,
  casinh: (re, im) => {
    const [x, y] = asinOf(-im, re); // -i z
    return [y, -x];
  },
  cacosh: (re, im) => {
    const [x, y] = acosOf(re, im);
    return signed(1, im) < 0 ? [y, -x] : [-y, x];
  },
};

/** What kernels may import, by name. */
export const libm = { hlod_fmod: (x, y) => x % y };
for (const [name, f] of Object.entries(complex)) {
  libm["hlod_" + name + "_re"] = (re, im) => f(re, im)[0];
  libm["hlod_" + name + "_im"] = (re, im) => f(re, im)[1];
}
