# SPDX-License-Identifier: Apache-2.0
"""Whole programs serialized by jax.export, through the daemon over HTTP, against JAX on the same
numbers: a residual network with its weights inside, at three batch sizes; a decoder's step whose
cache stays on the device and is given away to each run, which writes into it; a run that is stopped
while it writes; an LSTM; a training
run whose loop, forward and backward pass and update are one executable, with its counts of
instructions.
    jax_models.py BUILD [NAME]..."""
import os
import sys

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "client", "python")]
import daemon  # noqa: E402
import hlod  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402

R = np.random.RandomState(5)


def f32(*shape):
    return R.randn(*shape).astype(np.float32)


def error(got, want):
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype or not np.isfinite(got).all():
        return np.inf
    return float(np.abs(got - want).max(initial=0) / max(np.abs(want).max(initial=0), 1e-30))


def exported(f, *args, donate=()):
    return export.export(jax.jit(f, donate_argnums=donate))(*args)


# ---- a residual network

def conv(x, w, stride=1):
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


def norm(x, p):
    mean, var, scale, bias = p
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale + bias


def kernel(*shape):
    return f32(*shape) / np.sqrt(np.prod(shape[:-1])).astype(np.float32)


def norm_of(n):
    return f32(n) * 0.1, np.abs(f32(n)) + 0.5, f32(n) * 0.1 + 1, f32(n) * 0.1


def resnet_params(widths=(16, 32, 64, 128), classes=10):
    blocks, before = [], widths[0]
    for k, n in enumerate(widths):
        for j in range(2):
            stride = 2 if k and not j else 1
            blocks.append((stride, kernel(3, 3, before, n), norm_of(n), kernel(3, 3, n, n),
                           norm_of(n), kernel(1, 1, before, n) if before != n else None))
            before = n
    return kernel(7, 7, 3, widths[0]), norm_of(widths[0]), blocks, kernel(before, classes)


def resnet(params, x):
    stem, first, blocks, head = params
    x = jax.nn.relu(norm(conv(x, stem, 2), first))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stride, w1, n1, w2, n2, short in blocks:
        y = norm(conv(jax.nn.relu(norm(conv(x, w1, stride), n1)), w2), n2)
        x = jax.nn.relu(y + (x if short is None else conv(x, short, stride)))
    return jax.nn.softmax(x.mean((1, 2)) @ head)


def test_resnet(h):
    """One export for all batches; its weights are found in the file."""
    params = resnet_params()
    b, = export.symbolic_shape("b")
    e = exported(lambda x: resnet(params, x), jax.ShapeDtypeStruct((b, 64, 64, 3), np.float32))
    worst = 0.0
    for batch in (1, 3, 8):
        x = f32(batch, 64, 64, 3)
        exe = h.compile(e, {"arg0": x.shape})
        worst = max(worst, error(exe(x), e.call(x)))
    weights = exe.weights_bytes
    return worst < 2e-5 and weights > 1 << 20, "error %.1e at batches 1, 3, 8; weights of %d KB" % (
        worst, weights >> 10)


# ---- a decoder's step

LAYERS, HEADS, DEPTH, MOST, WORDS = 2, 4, 16, 512, 50
WIDTH = HEADS * DEPTH


def decoder_params():
    layer = lambda: (kernel(WIDTH, 3 * WIDTH), kernel(WIDTH, WIDTH), kernel(WIDTH, 4 * WIDTH),
                     kernel(4 * WIDTH, WIDTH))
    return f32(WORDS, WIDTH) * 0.1, [layer() for _ in range(LAYERS)]


def rms(x):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6)


def decode(params, caches, token, at):
    """The next word's scores; caches with this word's keys and values at `at`."""
    embedding, layers = params
    x, made = jnp.asarray(embedding)[token], []
    for (qkv, out, up, down), (keys, values) in zip(layers, caches):
        q, k, v = jnp.split((rms(x) @ qkv).reshape(-1, 3 * HEADS, DEPTH), 3, 1)
        keys = lax.dynamic_update_slice(keys, k[:, None], (0, at, 0, 0))
        values = lax.dynamic_update_slice(values, v[:, None], (0, at, 0, 0))
        scores = jnp.einsum("bhd,bthd->bht", q, keys) / np.sqrt(DEPTH)
        scores = jnp.where(jnp.arange(MOST) <= at, scores, -jnp.inf)
        mixed = jnp.einsum("bht,bthd->bhd", jax.nn.softmax(scores), values)
        x = x + mixed.reshape(x.shape) @ out
        x = x + jax.nn.gelu(rms(x) @ up) @ down
        made.append((keys, values))
    return rms(x) @ embedding.T, made


def test_decoder(h):
    """Eight words, each the likeliest after the one before. The plan writes each cache over the
    parameter it comes in as; a run that keeps its cache gets a copy."""
    params = decoder_params()
    caches = [tuple(np.zeros((1, MOST, HEADS, DEPTH), np.float32) for _ in range(2))
              for _ in range(LAYERS)]
    step = lambda caches, token, at: decode(params, caches, token, at)
    e = exported(step, caches, np.array([1], np.int32), np.int32(0), donate=(0,))
    exe = h.compile(e)
    n = 2 * LAYERS
    root = exe.inspect("plan").rsplit("root ", 1)[1].split("\n")[0]
    over = root.count("param ")
    first = h.put(*jax.tree.leaves(caches))
    stays = [t.name for t in exe.outputs[1:]]
    begin = [np.array([1], np.int32), np.int32(0)]
    kept = exe.run(first + begin, keep=stays)  # not given away
    untouched = not any(b.get().any() for b in first)
    state, token, worst, want = first, begin[0], 0.0, caches
    for at in range(8):
        r = exe.run([b.donate() for b in state] + [token, np.int32(at)], keep=stays)
        scores, *state = r.outputs.values()
        expected, want = e.call(want, token, np.int32(at))
        worst = max(worst, error(scores, expected))
        token = np.asarray(expected).argmax(-1).astype(np.int32)
    worst = max([worst] + [error(b.get(), w) for b, w in zip(state, jax.tree.leaves(want))])
    gone = 0
    for b in first:
        try:
            b.get()
        except hlod.HlodError:
            gone += 1
    same = error(list(kept.outputs.values())[0], e.call(caches, *begin)[0]) < 2e-5
    return worst < 2e-5 and over == n and untouched and gone == n and same, (
        "error %.1e, %d of %d caches written in place, %d given away" % (worst, over, n, gone))


def test_stopped(h):
    """A run that is stopped has taken what was written in place, and says so; what comes next
    runs."""
    def f(x, n):
        return lax.fori_loop(0, n, lambda k, x: jnp.sin(x + k), x), x.shape[0] * 2
    x = f32(4096)
    exe = h.compile(exported(f, x, np.int32(3), donate=(0,)))
    stays = [exe.outputs[0].name]
    b = h.put(x)
    try:
        exe.run([b.donate(), np.int32(1 << 30)], keep=stays, timeout=0.3)
        return False, "a loop of 2^30 turns ended in time"
    except hlod.HlodError as e:
        stopped = e.code
    try:
        b.get()
        after = "still there"
    except hlod.HlodError as e:
        after = e.reason
    r = exe.run([h.put(x).donate(), np.int32(3)], keep=stays)
    wrong = error(r.outputs[stays[0]].get(), jax.jit(lambda x: f(x, 3)[0])(x))
    return stopped == "DEADLINE_EXCEEDED" and after == "BUFFER_DONATED" and wrong < 2e-5, (
        "%s, then %s; the next run: error %.1e" % (stopped, after, wrong))


# ---- an LSTM, and a training run

def lstm(params, x):
    """Two layers over [time, batch, features]."""
    for w, u, b in params:
        def cell(s, x, w=w, u=u, b=b):
            i, f, g, o = jnp.split(x @ w + s[0] @ u + b, 4, -1)
            c = jax.nn.sigmoid(f) * s[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
            hidden = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (hidden, c), hidden
        zero = jnp.zeros((x.shape[1], u.shape[0]))
        x = lax.scan(cell, (zero, zero), x)[1]
    return x


def test_lstm(h):
    params = [(kernel(12, 128), kernel(32, 128), f32(128) * 0.1),
              (kernel(32, 128), kernel(32, 128), f32(128) * 0.1)]
    x = f32(20, 3, 12)
    e = exported(lambda x: lstm(params, x), x)
    wrong = error(h.compile(e)(x), e.call(x))
    return wrong < 2e-5, "error %.1e" % wrong


def train(params, x, y):
    """Fifty steps of momentum on a network of two convolutions and a product."""
    def loss(p):
        z = jax.nn.relu(conv(x, p[0], 2))
        z = jax.nn.relu(conv(z, p[1], 2))
        scores = z.reshape(z.shape[0], -1) @ p[2]
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), y[:, None], 1).mean()

    def step(k, s):
        p, m, losses = s
        value, g = jax.value_and_grad(loss)(p)
        m = jax.tree.map(lambda m, g: 0.9 * m + g, m, g)
        return jax.tree.map(lambda p, m: p - 0.02 * m, p, m), m, losses.at[k].set(value)
    return lax.fori_loop(0, 50, step, (params, jax.tree.map(jnp.zeros_like, params),
                                       jnp.zeros(50)))


def test_training(h):
    params = (kernel(3, 3, 1, 8), kernel(3, 3, 8, 16), kernel(4 * 4 * 16, 10))
    x, y = f32(16, 16, 16, 1), R.randint(0, 10, 16).astype(np.int32)
    e = exported(train, params, x, y)
    exe = h.compile(e)
    got, want = exe(params, x, y), e.call(params, x, y)
    wrong = max(error(a, b) for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want)))
    info = exe.message["executable"]
    count = lambda c: "entry %d, total %d" % (c.get("entry", 0), c.get("total", 0))
    return wrong < 1e-3 and got[2][-1] < 0.5 * got[2][0], (
        "error %.1e, loss %.2f to %.2f; instructions before: %s; after: %s" % (
            wrong, got[2][0], got[2][-1], count(info["before"]),
            count(info.get("optimized") or info["after"])))


def bench_models():
    """What tests/bench/compile.py compiles: name -> export."""
    x, y = f32(16, 16, 16, 1), R.randint(0, 10, 16).astype(np.int32)
    start = (kernel(3, 3, 1, 8), kernel(3, 3, 8, 16), kernel(4 * 4 * 16, 10))
    caches = [(f32(1, MOST, HEADS, DEPTH),) * 2 for _ in range(LAYERS)]
    net, words = resnet_params(), decoder_params()
    return {"jax_resnet": exported(lambda x: resnet(net, x), f32(8, 64, 64, 3)),
            "jax_decoder": exported(lambda c, t, at: decode(words, c, t, at), caches,
                                    np.array([1], np.int32), np.int32(0), donate=(0,)),
            "jax_training": exported(train, start, x, y)}


def test_twice(h):
    """One buffer as two arguments, one given away: the other is still read."""
    def f(a, b):
        made = jnp.tanh(a) * 2
        return made, made @ b  # reads b when a's memory holds the first result
    x = f32(256, 256)
    e = exported(f, x, x, donate=(0,))
    exe = h.compile(e)
    want, worst = [np.asarray(w) for w in e.call(x, x)], 0.0
    for both in (True, False):
        b = h.put(x)
        r = exe.run([b.donate(), b.donate() if both else b], keep=[exe.outputs[0].name])
        for got, w in zip(r.outputs.values(), want):
            got = got if isinstance(got, np.ndarray) else got.get()
            worst = max(worst, error(got, w))
    return worst < 2e-5, "error %.1e" % worst


TESTS = {"resnet, any batch": test_resnet, "decoder, donated cache": test_decoder,
         "donated, then stopped": test_stopped, "one buffer twice": test_twice,
         "lstm": test_lstm, "training run": test_training}


def main():
    build, names = sys.argv[1], sys.argv[2:]
    failures = 0
    with daemon.Daemon(build) as d, hlod.connect("http://%s:%d" % d.addr) as h:
        for name, test in TESTS.items():
            if names and not any(n in name for n in names):
                continue
            try:
                ok, why = test(h)
            except hlod.HlodError as e:
                ok, why = False, str(e)[:500]
            failures += not ok
            print("%s %s: %s" % ("PASS" if ok else "FAIL", name, why), flush=True)
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
