# SPDX-License-Identifier: Apache-2.0
"""Random Fourier transforms against NumPy in double precision: all four kinds, one to three
dimensions, short, long and odd lengths; in vectors of every width.

    transforms.py BUILD [--n N] [--seed S]
"""
import sys
import tempfile

import numpy as np
from random_modules import main, run_text

LENGTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 30, 31, 37, 49, 64, 67, 74, 96, 100, 106, 121,
           122, 128, 134, 164, 210, 509, 999, 1000, 1018, 1024, 4096, 4099, 5040, 7198, 8192,
           10000, 20500, 65536, 131072]


LONG_PRIME = 1000003  # as a sum it would be 10^12 products: the first module


def case(rng, number):
    kind = ["FFT", "IFFT", "RFFT", "IRFFT"][rng.integers(4)]
    rank, budget, length = int(rng.integers(1, 4)), 150000, []
    for _ in range(rank):
        length.append(int(rng.choice([n for n in LENGTHS if n <= budget])))
        budget //= length[-1]
    if not number:
        kind, rank, budget, length = "FFT", 1, 1, [LONG_PRIME]
    if kind[0] == "R" or kind == "IRFFT":
        length[-1] = min(length[-1], 131072)
    batch = [int(rng.integers(1, 20))] if budget > 20 and rng.integers(3) else []
    wide = bool(rng.integers(2))
    half = length[:-1] + [length[-1] // 2 + 1]
    c, r = ("c128", "f64") if wide else ("c64", "f32")
    from_type, to_type = (r if kind == "RFFT" else c), (r if kind == "IRFFT" else c)
    from_shape, to_shape = batch + (half if kind == "IRFFT"
                                    else length), batch + (half if kind == "RFFT" else length)
    x = rng.standard_normal(from_shape)
    if from_type[0] == "c":
        x = x + 1j * rng.standard_normal(from_shape)
    x = x.astype({"f32": np.float32, "f64": np.float64, "c64": np.complex64,
                  "c128": np.complex128}[from_type])
    axes = list(range(len(batch), len(batch) + rank))
    with np.errstate(all="ignore"):
        y = x.astype(np.complex128 if from_type[0] == "c" else np.float64)
        want = {"FFT": np.fft.fftn, "IFFT": np.fft.ifftn, "RFFT": np.fft.rfftn}.get(
            kind, lambda v, axes: np.fft.irfftn(v, s=length, axes=axes))(y, axes=axes)
    shape = lambda t, s: "%s[%s]" % (t, ",".join(map(str, s)))  # noqa: E731
    text = ("HloModule m\nENTRY main {\n  x = %s parameter(0)\n  ROOT r = %s fft(x), fft_type=%s, "
            "fft_length={%s}\n}\n" % (shape(from_type, from_shape), shape(to_type, to_shape), kind,
                                      ",".join(map(str, length))))
    return text, x, want, 1e-13 if wide else 2e-6


def check(build, number, rng):
    text, x, want, bound = case(rng, number)
    with tempfile.TemporaryDirectory() as folder:
        p, raw = run_text(build, folder, text, [x], ["", "avx2"][number % 2])
    if p.returncode:
        return text, p.stderr
    narrow = {"c": np.complex64, "f": np.float32}[want.dtype.kind]
    got = np.frombuffer(raw, want.dtype if x.dtype.itemsize >= {"c": 16, "f": 8}[x.dtype.kind]
                             else narrow).reshape(want.shape)
    error = np.abs(got - want).max() / np.abs(want).max()
    return text, None if error <= bound else "error %.2g" % error


if __name__ == "__main__":
    sys.exit(main("transforms", check, 40))
