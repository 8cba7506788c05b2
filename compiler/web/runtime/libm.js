// SPDX-License-Identifier: Apache-2.0
// Functions of doubles that kernels import (compiler/kernel/libm.def), where WebAssembly has none:
// JavaScript's own, erf, and both parts of complex functions.

const { abs, exp, log, sqrt, sin, cos, sinh, cosh, atan2, hypot, log1p, PI } = Math;

// 2/sqrt(pi) e^(-x^2) sum of 2^n x^(2n+1) / (1 3 .. 2n+1), all of one sign; from 2.5 on 1 - erfc by
// its continued fraction.
function erf(x) {
  const a = abs(x);
  if (!(a < 6)) return a >= 6 ? Math.sign(x) : x;
  if (a < 2.5) {
    let term = x, sum = x;
    for (let n = 1; abs(term) > abs(sum) * 1e-17 && n < 200; n++)
      sum += term *= 2 * x * x / (2 * n + 1);
    return 2 / sqrt(PI) * exp(-x * x) * sum;
  }
  let f = 0;
  for (let n = 60; n > 0; n--) f = n / 2 / (a + f);
  return Math.sign(x) * (1 - exp(-a * a) / sqrt(PI) / (a + f));
}
// As C has it: 1 to any power, and -1 to an infinite one, is 1.
function pow(x, y) {
  return x === 1 || (x === -1 && abs(y) === Infinity) ? 1 : x ** y;
}

// ---- complex numbers, as [re, im]

const logOf = (re, im) => {
  const big = Math.max(abs(re), abs(im)), small = Math.min(abs(re), abs(im)), r = hypot(re, im);
  const near = big > 0.5 && big < 2; // |z| near 1: what the square lacks to 1 counts
  return [near ? log1p((big - 1) * (big + 1) + small * small) / 2 : log(r), atan2(im, re)];
};
const expOf = (re, im) => {
  if (im === 0) return [exp(re), im];
  if (re === -Infinity && !Number.isFinite(im)) return [0, 0];
  if (re === Infinity && !Number.isFinite(im)) return [Infinity, NaN];
  const far = re > 709, e = exp(far ? re - 1 : re), by = far ? Math.E : 1;
  return [e * cos(im) * by, e * sin(im) * by];
};
const sqrtOf = (re, im) => {
  if (re === 0 && im === 0) return [0, im];
  if (abs(im) === Infinity) return [Infinity, im];
  if (re === Infinity) return [re, Number.isNaN(im) ? im : im < 0 || Object.is(im, -0) ? -0 : 0];
  if (re === -Infinity)
    return [Number.isNaN(im) ? im : 0, im < 0 || Object.is(im, -0) ? -Infinity : Infinity];
  const scale = Math.max(abs(re), abs(im)) > 1e300 ? 0.25 : 1;
  const x = re * scale, y = im * scale, t = sqrt((abs(x) + hypot(x, y)) / 2), up = 1 / sqrt(scale);
  const minus = im < 0 || Object.is(im, -0);
  if (re >= 0) return [t * up, y / (2 * t) * up];
  return [abs(y) / (2 * t) * up, minus ? -t * up : t * up];
};
const divide = (a, b, c, d) => {
  if (c === 0 && d === 0) return [a / abs(c), b / abs(c)].map((v) => Object.is(c, -0) ? -v : v);
  if (abs(c) >= abs(d)) {
    const q = d / c, n = c + d * q;
    return [(a + b * q) / n, (b - a * q) / n];
  }
  const q = c / d, n = c * q + d;
  return [(a * q + b) / n, (b * q - a) / n];
};
const sinhOf = (x, y) => [y === 0 ? sinh(x) : sinh(x) * cos(y), y === 0 ? y : cosh(x) * sin(y)];
const coshOf = (x, y) => [y === 0 ? cosh(x) : cosh(x) * cos(y), x === 0 ? x * y : sinh(x) * sin(y)];
const tanhOf = (x, y) => {
  if (abs(x) > 22) return [Math.sign(x), 4 * sin(y) * cos(y) * exp(-2 * abs(x))];
  const t = Math.tan(y), beta = 1 + t * t, s = sinh(x), rho = sqrt(1 + s * s);
  if (abs(t) === Infinity) return [rho / s, 1 / t];
  const n = 1 + beta * s * s;
  return [beta * rho * s / n, t / n];
};
const minusI = ([re, im]) => [im, -re]; // -i z
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
  cexp: expOf, clog: logOf, csqrt: sqrtOf, cdiv: divide,
  csinh: sinhOf, ccosh: coshOf, ctanh: tanhOf, casin: asinOf, cacos: acosOf, catanh: atanhOf,
  csin: (re, im) => minusI(sinhOf(-im, re)),
  ccos: (re, im) => coshOf(-im, re),
  ctan: (re, im) => minusI(tanhOf(-im, re)),
  casinh: (re, im) => minusI(asinOf(-im, re)),
  cacosh: (re, im) => {
    const [x, y] = acosOf(re, im);
    return signed(1, im) < 0 ? [y, -x] : [-y, x];
  },
  cpow: (a, b, c, d) => {
    if (a === 0 && b === 0) return c === 0 && d === 0 ? [1, 0] : c > 0 ? [0, 0] : [NaN, NaN];
    const [l, angle] = logOf(a, b);
    return expOf(c * l - d * angle, c * angle + d * l);
  },
};

/** What kernels may import, by name. */
export const libm = { hlod_erf: erf, hlod_pow: pow, hlod_fmod: (x, y) => x % y };
for (const name of ["exp", "expm1", "log", "log1p", "tanh", "sin", "cos", "tan", "cbrt", "acos",
  "acosh", "asin", "asinh", "atanh", "cosh", "sinh", "hypot", "atan2"])
  libm["hlod_" + name] = Math[name];
for (const [name, f] of Object.entries(complex)) {
  libm["hlod_" + name + "_re"] = (a, b, c, d) => f(a, b, c, d)[0];
  libm["hlod_" + name + "_im"] = (a, b, c, d) => f(a, b, c, d)[1];
}
