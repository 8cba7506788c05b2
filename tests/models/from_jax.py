# SPDX-License-Identifier: Apache-2.0
"""Functions that JAX lowers to StableHLO (jax.jit(f).lower(...).as_text()) through the running
daemon over HTTP, against JAX on the same numbers: arithmetic, control flow, calls, gradients,
linear algebra, random numbers, constants as weights, dimensions bound at the request.
   from_jax.py BUILD [NAME]..."""
import os
import sys

import numpy as np

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402
from jax.scipy import linalg, special  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import daemon  # noqa: E402

R = np.random.RandomState(7)


def f32(*shape):
    return R.randn(*shape).astype(np.float32)


X, W, KEY = f32(8, 16), f32(16, 16), np.array([1, 2], np.uint32)
I3 = np.array([1, 5, 7], np.int32)
BIG = f32(64, 64) * 0.1


def key(k):
    return jax.random.wrap_key_data(k)


def train(x, y, w):
    """A training run: forward, backward, momentum, in one loop."""
    def loss(w):
        return ((jnp.tanh(x @ w) - y) ** 2).mean()

    def step(_, s):
        w, v = s
        v = 0.9 * v + jax.grad(loss)(w)
        return w - 0.1 * v, v
    return lax.fori_loop(0, 20, step, (w, jnp.zeros_like(w)))


def lstm(x, w):
    def cell(s, x):
        h, c = s
        i, f, g, o = jnp.split(x @ w + h @ w[:, :], 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), o
    z = jnp.zeros((x.shape[1], 4))
    return lax.scan(lambda s, x: cell((s[0], s[1]), x), (z, z), x)


def block(x, q, k, v, o):
    """Attention with a mask, a norm and a residual."""
    n = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    s = (n @ q) @ (n @ k).T / 4
    s = jnp.where(jnp.tril(jnp.ones(s.shape, bool)), s, -jnp.inf)
    return x + jax.nn.softmax(s) @ (n @ v) @ o


def norm(x):
    return lax.conv_general_dilated(x, CONV, (2, 2), "SAME")


CONV = f32(8, 3, 3, 3)
PART = jax.sharding.PartitionSpec
MESH = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("d",))
SHARDED = jax.sharding.NamedSharding(MESH, PART("d"))
IMAGE = f32(2, 3, 17, 17)
CASES = {
    "mlp": (lambda x, w: jax.nn.relu(x @ w).sum(1), X, W),
    "gradient": (jax.grad(lambda w, x: jnp.tanh(x @ w).sum()), W, X),
    "checkpoint": (jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), X),
    "scan": (lambda c, xs: lax.scan(lambda c, x: (c * 0.9 + x, c.sum()), c, xs), X[0], X),
    "while": (lambda n: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 1.5),
                                       (0, 1.0)), np.int32(10)),
    "cond": (lambda p, x: lax.cond(p > 0, lambda x: x * 2, lambda x: x - 1, x), np.int32(3), X),
    "switch": (lambda p, x: lax.switch(p, [lambda x: x * 2, lambda x: x - 1, jnp.sin], x),
               np.int32(1), X),
    "vmap of cond": (jax.vmap(lambda x: lax.cond(x[0] > 0, lambda x: x * 2, jnp.sin, x)), X),
    "associative scan": (lambda x: lax.associative_scan(jnp.add, x), X),
    "training run": (train, X, f32(8, 16), W * 0.1),
    "lstm": (lstm, f32(5, 3, 4), f32(4, 16)),
    "transformer block": (block, X, W, W.T, W[::-1], W[:, ::-1]),
    "sort": (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0)), X),
    "top k": (lambda x: lax.top_k(x, 4), X),
    "approximate top k": (lambda x: lax.approx_max_k(x, 4), X),
    "median": (lambda x: jnp.median(x, 1), X),
    "unique": (lambda x: jnp.unique(jnp.round(x), size=5), X),
    "interp": (lambda x: jnp.interp(x, jnp.linspace(-3, 3, 10), jnp.arange(10.)), X),
    "cumsum": (lambda x: jnp.cumsum(x, 1), X),
    "segment sum": (lambda x, i: jax.ops.segment_sum(x, i, 9), X[:3], I3),
    "gather": (lambda x, i: x[i], X, I3),
    "along": (lambda x, i: jnp.take_along_axis(x, i, 1), X, np.argsort(X, 1).astype(np.int32)),
    "update": (lambda x, i: x.at[i].add(1.0).at[:, 2:4].set(0.0), X, I3),
    "dynamic slice": (lambda x, i: lax.dynamic_slice(x, (i, i), (2, 5)), X, np.int32(3)),
    "uniform": (lambda k: jax.random.uniform(key(k), (100,)), KEY),
    "bits": (lambda k: jax.random.randint(key(k), (50,), 0, 1000), KEY),
    "permutation": (lambda k: jax.random.permutation(key(k), 20), KEY),
    "categorical": (lambda k: jax.random.categorical(key(k), jnp.arange(5.), shape=(9,)), KEY),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(16)), W),
    "solve": (lambda a, b: jnp.linalg.solve(a + 5 * jnp.eye(16), b), W, f32(16, 3)),
    "triangular": (lambda a, b: linalg.solve_triangular(a + 9 * jnp.eye(16), b, lower=True), W,
                   f32(16, 3)),
    "eigenvalues": (lambda a: jnp.linalg.eigvalsh(a + a.T), W),
    "singular values": (lambda a: jnp.linalg.svd(a, compute_uv=False), W),
    "qr": (lambda a: jnp.abs(jnp.linalg.qr(a)[1]), W),
    "inverse": (lambda a: jnp.linalg.inv(a + 5 * jnp.eye(16)), W),
    "determinant": (lambda a: jnp.linalg.slogdet(a), W),
    "expm": (lambda a: linalg.expm(a * 0.1), W),
    "fft": (lambda x: jnp.abs(jnp.fft.rfft(x)), X),
    "complex": (lambda x: jnp.abs(jnp.exp(1j * x) * jnp.conj(x + 2j)), X),
    "complex arc tangent": (lambda x: jnp.abs(jnp.arctan(x + 0.5j)), X),
    "convolution": (norm, IMAGE),
    "convolution's gradients": (jax.grad(lambda x: (norm(x) ** 2).sum()), IMAGE),
    "transposed convolution": (lambda x, k: lax.conv_transpose(
        x, k, (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW")), f32(2, 3, 9, 9),
        f32(3, 3, 3, 3)),
    "pooling": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 2), "SAME"), X),
    "pooling's gradient": (jax.grad(lambda x: lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 2), (1, 2), "SAME").sum()), X),
    "erf": (special.erf, X),
    "normal": (lambda k: jax.random.normal(key(k), (100,)), KEY),
    "gamma": (lambda k: jax.random.gamma(key(k), 2.0, (50,)), KEY),
    "inverse erf": (lambda x: lax.erf_inv(jnp.tanh(x)), X),
    "erfc": (lax.erfc, X * 3),
    "log gamma": (lax.lgamma, X * 5),
    "digamma": (lax.digamma, jnp.abs(X) + 0.1),
    "polygamma": (lax.polygamma, np.float32([1, 2, 0, 3]), np.float32([0.5, 2, 7, 1])),
    "zeta": (lax.zeta, np.float32([1.5, 2, 7, 1, 3, 4]), np.float32([1, 2.5, 9, 2, -1, -2])),
    "bessel": (lambda x: (lax.bessel_i1e(x * 20), lax.bessel_i0e(x)), X),
    "next number": (lax.nextafter, np.float32([0, 1, -1, 2, 3]), np.float32([1, 2, -3, -2, 3])),
    "inverse trigonometry": (lambda x: (jnp.arcsin(jnp.tanh(x)), jnp.arctan(x), jnp.arcsinh(x)), X),
    "hyperbolic": (lambda x: (jnp.sinh(x), jnp.cosh(x), jnp.arctanh(jnp.tanh(x) * .9)), X),
    "tangent": (jnp.tan, X),
    "softmax": (jax.nn.softmax, X),
    "gelu": (jax.nn.gelu, X),
    "log sum exp": (lambda x: jax.nn.logsumexp(x, 1), X),
    "einsum": (lambda x, w: jnp.einsum("ij,jk->ki", x, w), X, W),
    "attention": (lambda q: jax.nn.dot_product_attention(q, q, q), f32(1, 8, 2, 4)),
    "integers": (lambda x: (x * 3 // 2 % 5) << 1, np.arange(10, dtype=np.int32)),
    "bf16": (lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32), X),
    "f16": (lambda x: (x.astype(jnp.float16) + 1).astype(jnp.float32), X),
    "sharding constraint": (lambda x: lax.with_sharding_constraint(x * 2, SHARDED) + 1, X),
    "collective": (jax.shard_map(lambda x: lax.psum(x, "d"), mesh=MESH, in_specs=PART("d"),
                                 out_specs=PART()), X),
    "nothing taken": (lambda: jnp.arange(5) * 2,),
    "constants": (lambda x: x @ BIG, f32(4, 64)),
    "constants in a loop": (lambda x: lax.scan(
        lambda c, _: (jnp.tanh(c @ BIG), c.sum()), x, None, length=5), f32(4, 64)),
}


def post(d, text):
    return d.json("POST", "/v1/executables", text.encode(), {"Content-Type": "text/x-mlir"})


def same(got, want):
    if got.shape != want.shape or got.dtype != want.dtype:
        return False, "%s%s for %s%s" % (got.dtype, got.shape, want.dtype, want.shape)
    if want.dtype.kind not in "fc":
        return np.array_equal(got, want), "integers"
    scale = max(float(np.abs(want[np.isfinite(want)]).max(initial=0)), 1e-30)
    ok = np.isfinite(want)
    err = float(np.abs(got[ok] - want[ok]).max(initial=0)) / scale
    return err < 2e-5 and np.array_equal(np.isnan(got), np.isnan(want)), "error %.1e" % err


def outputs(d, made, arrays):
    out, _ = d.run(made["sourceDigest"], arrays)
    return [out[o["name"]] for o in made["modelSignature"]["outputs"]]


def case(d, name, f, *args):
    lowered = jax.jit(f).lower(*args)
    made = post(d, lowered.as_text())
    kept = sorted(lowered._lowering.compile_args["kept_var_idx"])
    leaves = [np.asarray(x) for x in jax.tree.leaves(args)]
    names = [i["name"] for i in made["modelSignature"].get("inputs", [])]
    got = outputs(d, made, dict(zip(names, [leaves[k] for k in kept])))
    want = [np.asarray(x) for x in jax.tree.leaves(jax.jit(f)(*args))]
    all_ok = [same(g, w) for g, w in zip(got, want)]
    ok = len(got) == len(want) and all(x for x, _ in all_ok)
    return ok, ", ".join(t for _, t in all_ok)


def exported(d, f):
    """One export for all batches at three sizes; and the name of its digest."""
    n, = export.symbolic_shape("n", constraints=["n >= 2"])
    e = export.export(jax.jit(f))(jax.ShapeDtypeStruct((n, 16), np.float32))
    made = d.json("POST", "/v1/executables?shape=arg0=2x16", str(e.mlir_module()).encode(),
                  {"Content-Type": "text/x-mlir"})
    for size in (2, 5, 64):
        x = f32(size, 16)
        got = outputs(d, made, {made["modelSignature"]["inputs"][0]["name"]: x})
        for g, want in zip(got, jax.tree.leaves(e.call(x)), strict=True):
            ok, why = same(g, np.asarray(want))
            if not ok:
                return made, why
    return made, None


def symbolic(d):
    """Three sizes, and a size that the export's constraint refuses."""
    made, why = exported(d, lambda x: (x / x.shape[0]).sum(0) @ W)
    if why:
        return False, why
    try:
        d.run(made["sourceDigest"], {"arg0": f32(1, 16)})
        return False, "one row was taken"
    except daemon.Refused as err:
        return "n >= 2" in str(err), str(err)[:200]


def serialized(d):
    """What jax.export serializes: arguments and dimensions by the names that its tables say, one
    that is not used left out, for several platforms at once; and its bytecode by itself, which is
    the program that its text is."""
    n, = export.symbolic_shape("n")
    f = jax.jit(lambda p, x, *, scale: {"y": jnp.tanh(x @ p["w"] + p["b"]) * scale,
                                        "rows": x.shape[0] * jnp.ones(())})
    s = jax.ShapeDtypeStruct
    e = export.export(f, platforms=["cuda", "cpu"])(
        {"w": s((16, 4), np.float32), "b": s((4,), np.float32), "unused": s((2,), np.float32)},
        s((n, 16), np.float32), scale=s((), np.float32))
    made = d.json("POST", "/v1/executables?shape=arg1=2x16", bytes(e.serialize()))
    inputs = made["modelSignature"]["inputs"]
    names = [i["name"] for i in inputs]
    if not {"arg0.b", "arg0.w", "arg1", "scale"} <= set(names):
        return False, "inputs %s" % names
    for size in (1, 2, 7):
        p, x = {"w": f32(16, 4), "b": f32(4), "unused": f32(2)}, f32(size, 16)
        given = {"arg0.w": p["w"], "arg0.b": p["b"], "arg0.unused": p["unused"], "arg1": x,
                 "scale": np.float32(3)}
        want = jax.tree.leaves(e.call(p, x, scale=np.float32(3)))
        got = outputs(d, made, {k: given[k] for k in names})
        bad = [w for ok, w in (same(g, np.asarray(v)) for g, v in zip(got, want)) if not ok]
        if bad or len(got) != 2:
            return False, str(bad)
    e = export.export(f)({"w": s((16, 4), np.float32), "b": s((4,), np.float32)},
                         s((3, 16), np.float32), scale=s((), np.float32))
    forms = [made["executable"]["programDigest"] for made in (
        post(d, str(e.mlir_module())),
        d.json("POST", "/v1/executables", bytes(e.mlir_module_serialized)))]
    return forms[0] == forms[1], str(forms)


def shown(d):
    """What jax.debug shows is left out of HLO, in a branch and a loop too; what a callback gives
    ends the run that comes to its branch; StableHLO, which does not name calls, is refused."""
    def double(x):
        jax.debug.print("x {}", x)
        jax.debug.callback(lambda v: None, x + 1)
        return x * 2

    def half(x):
        return jax.pure_callback(lambda v: v / 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def loop(x):
        return lax.fori_loop(0, 3, lambda k, x: double(x), x)

    x = np.array([1, 6], np.float32)
    for f in (double, loop, lambda x: lax.cond(x[1] > 5, double, jnp.negative, x)):
        low = jax.jit(f).lower(x)
        for hlo in (low.as_text("hlo").encode(),
                    low.compiler_ir("hlo").as_serialized_hlo_module_proto()):
            ok, why = same(outputs(d, d.json("POST", "/v1/executables", hlo), {"x": x})[0], f(x))
            if not ok:
                return False, why
        try:
            post(d, low.as_text())
            return False, "StableHLO was taken"
        except daemon.Refused as e:
            if "calls back into the Python process" not in str(e.body):
                return False, str(e.body)[:300]
    for text in ("hlo", "stablehlo"):
        low = jax.jit(lambda x: lax.cond(x[0] > 5, half, jnp.negative, x)).lower(x)
        made = d.json("POST", "/v1/executables", low.as_text(text).encode())
        name = made["modelSignature"]["inputs"][0]["name"]
        ok, why = same(outputs(d, made, {name: x})[0], -x)
        if not ok:
            return False, why
        try:
            d.run(made["sourceDigest"], {name: x + 9})
            return False, "a run went on at half()"
        except daemon.Refused as e:
            if "the run came to a branch that cannot run here" not in str(e):
                return False, str(e)[:300]
    return True, "3 functions in 2 forms, 1 that ends"


def symbolic_calls(d):
    """Custom calls whose operands say their results' dimensions."""
    _, why = exported(d, lambda x: (lax.cumsum(x, 0), linalg.lu_factor(x)[0],
                                    lax.approx_max_k(x, 3), jnp.nonzero(x > 0, size=9)))
    return why is None, why or "three sizes"


def symbolic_loops(d):
    """Loops over steps whose rows have a symbolic dimension, backwards and batched."""
    def walk(x):
        steps = jnp.stack([x, x * 2, jnp.tanh(x)])
        _, y = lax.scan(lambda c, v: (jnp.tanh(c + v), c * v), x, steps, reverse=True)
        picked = jax.vmap(lambda v, k: lax.dynamic_slice(v, (k,), (3,)))(
            x, (x[:, 0] * 9).astype(jnp.int32))
        return jax.grad(lambda x: lax.scan(lambda c, v: (jnp.sin(c + v), None), x, steps)[0].sum())(
            x), y, picked
    _, why = exported(d, walk)
    return why is None, why or "three sizes"


def retrained(d):
    """Other constants, the same program: the executable is in the cache."""
    made = []
    for scale in (1.0, 2.0):
        w = BIG * scale
        made.append(post(d, jax.jit(lambda x, w=w: jnp.tanh(x @ w)).lower(f32(4, 64)).as_text()))
    hit = made[1].get("cacheHit") is True
    return hit, "second: %s" % ("cached" if hit else "COMPILED")


def expressions(d):
    """Dimensions that are expressions over others: they follow from those that are sent, and where
    an expression is all that is sent, its symbol follows from it."""
    s, sizes = jax.ShapeDtypeStruct, export.symbolic_shape(
        "b, c, 2*b, b + 1, floordiv(b, 2), mod(b, 3), max(b, 4), b*c - 1, b^2")
    b, c, *more = sizes
    f = jax.jit(lambda x, y, *z: (x.sum(), y * 2, *(t.sum(0) * t.shape[0] for t in z)))
    args = [s((b, 4), np.float32), s((c,), np.float32), *(s((n, 3), np.float32) for n in more)]
    made = d.json("POST", "/v1/executables?shape=arg0=2x4&shape=arg1=3",
                  bytes(export.export(f)(*args).serialize()))
    names = [i["name"] for i in made["modelSignature"]["inputs"]]
    said = [x.get("symbol") for i in made["modelSignature"]["inputs"] for x in i["dims"]]
    if "floordiv(b,2)" not in said or len(names) != 9:
        return False, str(said)

    def arrays(b, c):
        z = [2 * b, b + 1, b // 2, b % 3, max(b, 4), b * c - 1, b * b]
        return dict(zip(names, [f32(b, 4), f32(c), *(f32(n, 3) for n in z)]))
    for sizes in ((2, 3), (1, 2), (5, 1), (8, 7)):
        given = arrays(*sizes)
        got, want = outputs(d, made, given), [np.asarray(w) for w in f(*given.values())]
        bad = [why for ok, why in (same(g, w) for g, w in zip(got, want, strict=True)) if not ok]
        if bad:
            return False, "%s: %s" % (sizes, bad)
    try:
        d.run(made["sourceDigest"], {**arrays(2, 3), names[3]: f32(4, 3)})
        return False, "4 rows for b + 1 = 3 were taken"
    except daemon.Refused as err:
        if "'arg3', dimension 0 ('b+1'): expected 3, found 4" not in str(err):
            return False, str(err)[:300]

    f = jax.jit(lambda x: x.reshape(-1, 2).sum(1))
    e = export.export(f)(s((2 * b,), np.float32))
    for size in (2, 6, 64):
        made = d.json("POST", "/v1/executables?shape=arg0=%d" % size, bytes(e.serialize()))
        x = f32(size)
        ok, why = same(outputs(d, made, {"arg0": x})[0], np.asarray(f(x)))
        if not ok:
            return False, why
    try:
        d.run(made["sourceDigest"], {"arg0": f32(7)})
        return False, "7 for 2*b was taken"
    except daemon.Refused as err:
        return "'arg0', dimension 0 ('2*b'): no size 'b' gives 7" in str(err), str(err)[:300]


def in_place(d):
    """8 MB of constants in jax.export's file: weights by their places in it, so that the daemon
    keeps the file and a program without them; the retrained file is the same program. One value
    many times is none, and bits of a mask are unpacked."""
    def export_of(seed):
        r = np.random.RandomState(seed)
        w = [(r.randn(1024, 1024) / 32).astype(np.float32) for _ in range(2)]
        half, mask = jnp.asarray(w[0][:8], jnp.bfloat16), r.rand(8, 1024) < 0.5
        f = lambda x: jnp.where(mask, x @ w[0] @ w[1], half.astype(np.float32)) + np.full(
            (8, 1024), 3, np.float32)
        return export.export(jax.jit(f))(jax.ShapeDtypeStruct((8, 1024), np.float32))

    def kept(folder):
        return sum(os.path.getsize(os.path.join(at, n))
                   for at, _, names in os.walk(os.path.join(d.data, folder)) for n in names)
    x, sizes, hits, programs = f32(8, 1024), [], [], kept("programs")
    for seed in (1, 2):
        e, before = export_of(seed), kept("blobs")
        file = bytes(e.serialize())
        made = d.json("POST", "/v1/executables", file)
        got, = outputs(d, made, {made["modelSignature"]["inputs"][0]["name"]: x})
        ok, why = same(got, np.asarray(e.call(x)))
        if not ok:
            return False, why
        hits.append(made.get("cacheHit") is True)
        sizes.append(kept("blobs") - before - len(file))
    ok = hits == [False, True] and max(sizes) < 1 << 16 and kept("programs") - programs < 1 << 16
    return ok, "beside the file %s bytes, programs %d, cached %s" % (
        sizes, kept("programs") - programs, hits)


def main():
    build, names = sys.argv[1], sys.argv[2:]
    failures = 0
    with daemon.Daemon(build) as d:
        tests = {n: (lambda d, c=c, n=n: case(d, n, *c)) for n, c in CASES.items()}
        tests["symbolic batch"] = symbolic
        tests["symbolic calls"] = symbolic_calls
        tests["symbolic loops"] = symbolic_loops
        tests["retrained"] = retrained
        tests["shown"] = shown
        tests["serialized"] = serialized
        tests["expressions"] = expressions
        tests["weights in place"] = in_place
        for name, t in tests.items():
            if names and name not in names:
                continue
            try:
                ok, why = t(d)
            except (daemon.Refused, KeyError) as e:
                ok, why = False, str(e)[:300]
            failures += not ok
            print("%s %s: %s" % ("PASS" if ok else "FAIL", name, why), flush=True)
    print("from jax: %d programs, %d failures" % (len(tests), failures))
    return failures > 0


sys.exit(main())
