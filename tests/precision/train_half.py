# SPDX-License-Identifier: Apache-2.0
"""Networks of bf16, f16, and of f32 weights that compute in either, trained by a program of ours
and by jax.grad on the same batches: losses and how the weights change.
   train_half.py BUILD [NAME]..."""
import os
import re
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models"))
import train  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import ml_dtypes  # noqa: E402
import optax  # noqa: E402
from jax import lax  # noqa: E402

train.TYPES["bf16"] = ml_dtypes.bfloat16
R = np.random.default_rng(3)
BATCH, ROWS, STEPS = 8, 24, 12


def f(*shape, scale=0.3):
    return (R.standard_normal(shape) * scale).astype(np.float32)


def conv(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME")


def vgg(p, x):
    for k in range(3):
        x = jax.nn.relu(conv(jax.nn.relu(conv(x, p["c%da" % k])), p["c%db" % k]))
        x = lax.reduce_window(x, np.array(-np.inf, x.dtype), lax.max, (1, 1, 2, 2), (1, 1, 2, 2),
                              "VALID")
    return jax.nn.relu(x.reshape(x.shape[0], -1) @ p["d1"] + p["b1"]) @ p["d2"]


def norm(x):
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True)
                                                       + x.dtype.type(1e-3))


def attention(p, x):
    y = norm(x) * p["g"]
    q, k, v = y @ p["q"], y @ p["k"], y @ p["v"]
    s = jax.nn.softmax(jnp.einsum("bid,bjd->bij", q, k) / 4, -1)
    x = x + jnp.einsum("bij,bjd->bid", s, v) @ p["o"]
    return (x + jax.nn.silu(norm(x) @ p["u"]) @ p["w"]).mean(1) @ p["h"]


def recurrent(p, x):
    def step(h, x):
        z = jax.nn.sigmoid(x @ p["xz"] + h @ p["hz"])
        return z * h + (1 - z) * jnp.tanh(x @ p["xn"] + h @ p["hn"]), None
    start = jnp.zeros((x.shape[0], 12), x.dtype)
    return lax.scan(step, start, jnp.swapaxes(x, 0, 1))[0] @ p["o"]


NETS = {
    "vgg": (vgg, {"c0a": f(8, 3, 3, 3, scale=.2), "c0b": f(8, 8, 3, 3, scale=.15),
                  "c1a": f(16, 8, 3, 3, scale=.15), "c1b": f(16, 16, 3, 3, scale=.1),
                  "c2a": f(16, 16, 3, 3, scale=.1), "c2b": f(16, 16, 3, 3, scale=.1),
                  "d1": f(64, 32, scale=.2), "b1": f(32, scale=.1), "d2": f(32, 4)}, (3, 16, 16)),
    "attention": (attention, {"g": f(16) * 0 + 1, "q": f(16, 16), "k": f(16, 16), "v": f(16, 16),
                              "o": f(16, 16), "u": f(16, 32), "w": f(32, 16), "h": f(16, 4)},
                  (6, 16)),
    "recurrent": (recurrent, {"xz": f(5, 12), "hz": f(12, 12), "xn": f(5, 12), "hn": f(12, 12),
                              "o": f(12, 4)}, (7, 5)),
}
# Type of weights and rows, of what is computed; how far losses and changes of weights may be apart.
KINDS = {
    "f32": (np.float32, np.float32, 1e-5, 1e-4),
    "bf16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, 3e-2, 0.2),
    "f16": (np.float16, np.float16, 2e-2, 0.2),
    "f32 computed in bf16": (np.float32, ml_dtypes.bfloat16, 3e-2, 0.2),
    "f32 computed in f16": (np.float32, np.float16, 2e-2, 0.2),
}


def program(forward, weights, x):
    """The program, and the names of the weights in it."""
    text = jax.jit(forward, keep_unused=True).lower(weights, x[:BATCH]).as_text(dialect="hlo")
    entry = text[text.index("ENTRY"):]
    at = {int(m[2]): m[1] for m in re.finditer(r"(\S+) = \S+ parameter\((\d+)\)", entry)}
    names = {name: at[k] for k, name in enumerate(sorted(weights))}
    spec = "loss=mse;optimizer=sgd:rate=2e-2;trainable=%s;batch=%d;rows=%d;shuffle=0;slice=%d" % (
        ",".join(names.values()), BATCH, ROWS, STEPS)
    return train.Program(text, spec, ".hlo"), names, at[len(names)]


def theirs(forward, weights, x, label, kept):
    """Losses and weights of optax on f32 weights that the model reads in its type."""
    def loss(m, x, t):
        y = forward({k: v.astype(kept) for k, v in m.items()}, x)
        return jnp.mean((y.astype(jnp.float32) - t) ** 2)
    m = {k: jnp.asarray(v, jnp.float32) for k, v in weights.items()}
    tx, losses = optax.sgd(2e-2), []
    state, step = tx.init(m), jax.jit(jax.value_and_grad(loss))
    for k in range(STEPS):
        rows = slice(k % 3 * BATCH, (k % 3 + 1) * BATCH)
        value, g = step(m, x[rows], label[rows])
        u, state = tx.update(g, state, m)
        m = optax.apply_updates(m, u)
        losses.append(float(value))
    return np.array(losses), m


def one(net, kind):
    apply, given, shape = NETS[net]
    kept, computed, near, change = KINDS[kind]

    def forward(p, x):
        y = apply({k: v.astype(computed) for k, v in p.items()}, x.astype(computed))
        return y.astype(kept)
    weights = {k: v.astype(kept) for k, v in given.items()}
    x, label = f(ROWS, *shape, scale=1).astype(kept), f(ROWS, 4, scale=.5)
    p, names, rows = program(forward, weights, x)
    v = p.start({names[k]: w for k, w in weights.items()}, {rows: x}, label)
    losses, _ = p.run(v, STEPS)
    want, after = theirs(forward, weights, x, label, kept)
    train.differs(losses[:STEPS], want, near * want.max())
    ends = {leaf["of"]: v[leaf["name"]] for leaf in p.leaves if leaf["role"] == "weight"}
    apart = moved = 0.0
    for k, w in weights.items():
        end = np.asarray(after[k], np.float64)
        apart += np.sum((ends[names[k]] - end) ** 2)
        moved += np.sum((end - w.astype(np.float64)) ** 2)
    if not apart < change ** 2 * moved:
        raise ValueError("weights lie %.3g of their change apart" % np.sqrt(apart / moved))
    if "-v" in sys.argv:
        print(net, kind, np.abs(losses[:STEPS] - want).max() / want.max(), np.sqrt(apart / moved))


def main():
    failed = 0
    for name in NETS:
        for kind in KINDS:
            why = ""
            try:
                one(name, kind)
            except ValueError as e:
                why = ": %s" % e
            failed += bool(why)
            print("%s %s of %s%s" % ("FAIL" if why else "PASS", name, kind, why), flush=True)
    return failed != 0


sys.exit(main())
