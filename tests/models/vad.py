# SPDX-License-Identifier: Apache-2.0
"""Silero VAD (25 nested If, LSTM, the condition on the sampling rate decided by the request) on
recorded speech, through the daemon, frame by frame with its state, beside ONNX Runtime.

    vad.py BUILD [--quick] prints PASS or FAIL; without --quick the probabilities as a picture (make
    demo-audio)

The recording is Front_Center.wav of alsa-utils (deploy/setup.sh unpacks it into build/audio): 48
kHz, taken down to 16 kHz here.
"""
import hashlib
import os
import sys
import time
import wave

import numpy as np
import onnxruntime as ort

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import daemon  # noqa: E402
import efficientnet  # noqa: E402

RATE, FRAME, CONTEXT, BOUND = 16000, 512, 64, 1e-4


def recording(path="build/audio/Front_Center.wav"):
    with wave.open(path) as w:
        x = np.frombuffer(w.readframes(w.getnframes()), np.int16).astype(np.float64) / 32768
        x, rate = x.reshape(-1, w.getnchannels()).mean(1), w.getframerate()
    step = rate // RATE
    if rate != step * RATE:
        raise SystemExit("%s has %d Hz, a multiple of %d is needed" % (path, rate, RATE))
    if step > 1:  # windowed-sinc low pass, then every step-th sample
        n = np.arange(-48, 49)
        h = np.sinc(n / step * 0.95) * np.hamming(n.size)
        x = np.convolve(x, h / h.sum(), "same")[::step]
    return x.astype(np.float32)


def frames(x):
    """[1, CONTEXT + FRAME] each: a frame with the end of the one before."""
    x = np.concatenate([np.zeros(CONTEXT, np.float32), x, np.zeros(-x.size % FRAME, np.float32)])
    return [x[None, k:k + CONTEXT + FRAME] for k in range(0, x.size - CONTEXT, FRAME)]


def drive(run, parts, rate):
    """Probabilities of all frames; run(inputs) -> (output, state)."""
    state, out = np.zeros((2, 1, 128), np.float32), []
    for p in parts:
        y, state = run({"input": p, "state": state, "sr": np.array(rate, np.int64)})
        out.append(float(y[0, 0]))
    return np.array(out), state


def picture(p):
    bars = " .:-=+*#%@"
    return "".join(bars[min(int(v * len(bars)), len(bars) - 1)] for v in p)


def main():
    quick = "--quick" in sys.argv
    if not os.path.exists("build/audio/Front_Center.wav"):
        print("SKIP vad: build/audio/Front_Center.wav is not here (sh deploy/setup.sh)")
        return 0
    path = efficientnet.package_file("silero_vad/data/silero_vad.onnx")
    session = ort.InferenceSession(path)
    x, worst = recording(), 0.0
    with daemon.Daemon(sys.argv[1]) as d:
        start = time.monotonic()
        c = d.compile(path, {"input": (1, CONTEXT + FRAME), "state": (2, 1, 128), "sr": ()})
        if not quick:
            e = c["executable"]
            print("silero_vad.onnx, %d bytes of weights: %s -> %s entry instructions (%s -> %s in "
                  "all computations), compiled in %.0f ms, %.2f s with the upload"
                  % (int(e["weightsBytes"]), e["before"]["entry"], e["after"]["entry"],
                     e["before"]["total"], e["after"]["total"], e["compileMs"],
                     time.monotonic() - start))
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()

        device_ms = []

        def ours(ins):
            got, info = d.run(digest, ins)
            device_ms.extend(info["runMs"])
            return got["output"], got["stateN"]

        cases = [(RATE, frames(x))]
        if not quick:
            # the other branch, on every second sample
            cases.append((8000, [p[:, ::2].copy() for p in frames(x)]))
        for rate, parts in cases:
            start = time.monotonic()
            got, state = drive(ours, parts, rate)
            took = (time.monotonic() - start) / len(parts)
            want, want_state = drive(lambda ins: session.run(None, ins), parts, rate)
            worst = max(worst, float(np.abs(got - want).max()),
                        float(np.abs(state - want_state).max()))
            if not quick:
                print("%5d Hz: %2d of %d frames are speech, ONNX Runtime says %d; largest "
                      "difference %.2g; a frame takes %.3f ms on the device, %.2f over HTTP"
                      % (rate, (got > 0.5).sum(), len(parts), (want > 0.5).sum(),
                         np.abs(got - want).max(), float(np.median(device_ms)), took * 1e3))
                print("          |%s|" % picture(got))
            speech = int((got > 0.5).sum())
            if speech != int((want > 0.5).sum()) or (rate == RATE and not 10 < speech < len(parts)):
                print("FAIL vad at %d Hz: %d frames of speech, ONNX Runtime %d"
                      % (rate, speech, (want > 0.5).sum()))
                return 1
    print("%s vad: largest difference from ONNX Runtime %.2g (bound %g) over probabilities and "
          "state" % ("PASS" if worst <= BOUND else "FAIL", worst, BOUND))
    return 0 if worst <= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
