#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What serving costs: hlod with a tiny MLP (784-128-10, one row, JSON of 7 KB over HTTP, raw over
gRPC) beside MLServer with ONNX Runtime and beside bare servers on the same libraries (bare_http.c,
bare_grpc.c), all over loopback by `hlo bench`; tensors of 1 and 8 MiB each way; the daemon's memory
over many requests. Rounds are interleaved, figures are medians over rounds. MLServer lives in
build/venv-mlserver, which only this makes; without it its columns stay empty.
Usage: serve.py --build DIR [--rounds N] [--duration 2s] [--requests 200000] [--no-mlserver]
[--mlserver-workers N] [--json FILE] [--strict]"""
import argparse, json, os, shutil, socket, statistics, subprocess, sys, time, urllib.request
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "models"))
sys.path.insert(0, os.path.join(HERE, ".."))
# its pool of workers does not start with a later uvloop
PACKAGES = ["mlserver==1.7.1", "onnxruntime==1.31.1", "uvloop==0.21.0"]
CONCURRENCY = (1, 8, 64)
ADD = """HloModule add

ENTRY main {{
  x = f32[{n}] parameter(0)
  one = f32[] constant(1)
  ones = f32[{n}] broadcast(one), dimensions={{}}
  ROOT y = f32[{n}] add(x, ones)
}}
"""

def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

def wait_for(url, seconds, process):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            if urllib.request.urlopen(url, timeout=1).status == 200:
                return True
        except OSError:
            time.sleep(0.1)
    return False

class Bare:
    def __init__(self, program, reply_bytes):
        self.port = free_port()
        self.p = subprocess.Popen([program, str(self.port), str(reply_bytes)],
                                  stdout=subprocess.PIPE)
        self.p.stdout.readline()
        self.addr = f"127.0.0.1:{self.port}"
    def stop(self):
        self.p.terminate()
        self.p.wait()

class MLServer:
    def __init__(self, build_root, work, model, workers):
        venv = os.path.abspath(os.path.join(build_root, "venv-mlserver"))
        if not os.path.exists(os.path.join(venv, "bin", "mlserver")):
            print("making build/venv-mlserver", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", venv], check=True)
            subprocess.run([venv + "/bin/pip", "install", "-q", "--disable-pip-version-check",
                            *PACKAGES], check=True)
        shutil.copytree(os.path.join(HERE, "mlserver"), work + "/mlserver")
        self.http, self.grpc, metrics = free_port(), free_port(), free_port()
        settings = json.load(open(work + "/mlserver/settings.json"))
        settings.update(http_port=self.http, grpc_port=self.grpc, metrics_port=metrics,
                        parallel_workers=workers)
        json.dump(settings, open(work + "/mlserver/settings.json", "w"))
        self.p = subprocess.Popen([venv + "/bin/mlserver", "start", "."], cwd=work + "/mlserver",
                                  stdout=open(work + "/mlserver.log", "w"),
                                  stderr=subprocess.STDOUT,
                                  env={**os.environ, "BENCH_MODEL": model, "PYTHONPATH": "."})
        if not wait_for(f"http://127.0.0.1:{self.http}/v2/models/mlp/ready", 60, self.p):
            raise SystemExit(
                "MLServer does not start:\n" + open(work + "/mlserver.log").read()[-2000:])
    def stop(self):
        self.p.terminate()
        try:
            self.p.wait(20)
        except subprocess.TimeoutExpired:
            self.p.kill()

class Bench:
    def __init__(self, hlo, duration):
        self.hlo, self.duration, self.rows = hlo, duration, {}
    def run(self, key, addr, model, inputs, protocol, concurrency, body="binary", extra=()):
        where = ["--grpc", addr] if "grpc" in protocol else ["--addr", addr]
        p = subprocess.run([self.hlo, "bench", model, *where, "-i", inputs, "--protocol", protocol,
                            "--body", body, "--concurrency", str(concurrency), "--json",
                            *(extra or ("--duration", self.duration))], capture_output=True,
                           text=True)
        if p.returncode:
            raise SystemExit(f"{key}: {p.stderr}")
        r = json.loads(p.stdout)["runs"][0]
        self.rows.setdefault(key, []).append(r)
        return r
    def median(self, key, field):
        return statistics.median(r[field] for r in self.rows[key]) if key in self.rows else None
    def ratio(self, key, other, field):
        """Median of the rounds' ratios: the two were measured one after the other."""
        if key not in self.rows or other not in self.rows:
            return None
        return statistics.median(a[field] / b[field]
                                 for a, b in zip(self.rows[key], self.rows[other]))

def rss_kb(pid):
    return int(next(l for l in open(f"/proc/{pid}/status") if l.startswith("VmRSS")).split()[1])

def number(x, form="{:.0f}"):
    return "-" if x is None else form.format(x)

def main():
    a = argparse.ArgumentParser()
    a.add_argument("--build", required=True)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--duration", default="2s")
    a.add_argument("--requests", type=int, default=200000)
    a.add_argument("--no-mlserver", action="store_true")
    a.add_argument("--mlserver-workers", type=int, default=1,
                   help="its parallel_workers: 1 is its default; 0 = in the server's own process")
    a.add_argument("--json")
    a.add_argument("--strict", action="store_true", help="status 1 when a target is missed")
    o = a.parse_args()
    import numpy as np
    import zoo
    from harness import Daemon
    model = os.path.abspath(zoo.ensure("build/models", "mlp"))
    d = Daemon(o.build + "/hlod", o.build + "/hlod-worker")
    hlo, servers, missed = o.build + "/hlo", [], []
    addr = "%s:%d" % d.addr
    b = Bench(hlo, o.duration)
    def hlo_ok(*words):
        subprocess.run([hlo, "--addr", addr, *words], check=True, stdout=subprocess.DEVNULL)
    def target(name, ok):
        print(f"{'met   ' if ok else 'MISSED'} {name}")
        missed.extend([] if ok else [name])
    try:
        x = os.path.join(d.dir, "x.npy")
        np.save(x, (np.random.default_rng(1).integers(0, 10**6, (1, 784)) / 1e6).astype(np.float32))
        hlo_ok("models", "set", "mlp", model, "--shape", "x=1x784")
        http, grpc = Bare(o.build + "/bench/bare_http",
                          300), Bare(o.build + "/bench/bare_grpc", 100)
        servers += [http, grpc]
        ml = None if o.no_mlserver else MLServer("build", d.dir, model, o.mlserver_workers)
        if ml:
            servers.append(ml)
        plan = [("hlod http", addr, "oip"), ("mlserver http", ml and f"127.0.0.1:{ml.http}", "oip"),
                ("bare http", http.addr, "oip"), ("hlod grpc", d.grpc, "oip-grpc"),
                ("mlserver grpc", ml and f"127.0.0.1:{ml.grpc}", "oip-grpc"),
                ("bare grpc", grpc.addr, "oip-grpc")]
        for n in range(o.rounds):
            for c in CONCURRENCY:
                for name, at, protocol in plan:
                    if at:
                        b.run((name, c), at, "mlp", f"x=@{x}", protocol, c, "json")
        print(f"\n| in flight | transport | hlod req/s, p50, p99 ms | MLServer req/s, p50, p99 | "
              "bare req/s, p50, p99 | hlod / MLServer | p50 over bare, us |\n"
              "|---|---|---|---|---|---|---|")
        for t in "http", "grpc":
            for c in CONCURRENCY:
                cell = lambda s: ", ".join(
                    number(b.median((f"{s} {t}", c), f), form)
                    for f, form in (("requestsPerS", "{:.0f}"), ("p50Ms", "{:.3f}"),
                                    ("p99Ms", "{:.3f}")))
                times = b.ratio((f"hlod {t}", c), (f"mlserver {t}", c), "requestsPerS")
                over = statistics.median(
                    (h["p50Ms"] - g["p50Ms"]) * 1000
                    for h, g in zip(b.rows[(f"hlod {t}", c)], b.rows[(f"bare {t}", c)]))
                print(f"| {c} | {t} | {cell('hlod')} | {cell('mlserver')} | {cell('bare')} | "
                      f"{number(times, '{:.1f}')} | {over:.0f} |")
        print()
        for t in "http", "grpc":
            for c in CONCURRENCY if ml else ():
                target(f"{t}, {c} in flight: 10 times MLServer",
                       b.ratio((f"hlod {t}", c), (f"mlserver {t}", c), "requestsPerS") >= 10)
            target(
                f"{t}, one in flight: p50 within 150 us of the bare server",
                b.median((f"hlod {t}", 1), "p50Ms") - b.median((f"bare {t}", 1), "p50Ms") <= 0.150)
        if ml:
            servers.remove(ml)
            ml.stop()

        print("\n| tensor each way | in flight | transport | hlod MB/s | bare MB/s | hlod / bare "
              "|\n|---|---|---|---|---|---|")
        for mib in 1, 8:
            n = mib << 18
            open(d.dir + "/add.hlo", "w").write(ADD.format(n=n))
            open(d.dir + "/zeros", "wb").write(bytes(4 * n))
            hlo_ok("models", "set", f"add{mib}", d.dir + "/add.hlo")
            big = {"http": Bare(o.build + "/bench/bare_http", 4 * n),
                   "grpc": Bare(o.build + "/bench/bare_grpc", 4 * n)}
            servers += big.values()
            for _ in range(o.rounds):
                for c in 1, 4:
                    for t in "http", "grpc":
                        for name, at in ("hlod",
                                         d.grpc if t == "grpc" else addr), ("bare", big[t].addr):
                            b.run((name, t, mib, c), at, f"add{mib}", f"x={n}xf32=@{d.dir}/zeros",
                                  "oip-grpc" if t == "grpc" else "oip", c)
            for c in 1, 4:
                for t in "http", "grpc":
                    ours, bare, unit = ("hlod", t, mib, c), ("bare", t, mib, c), "megabytesPerS"
                    print(f"| {mib} MiB | {c} | {t} | {number(b.median(ours, unit))} | "
                          f"{number(b.median(bare, unit))} | {b.ratio(ours, bare, unit):.2f} |")
        print()
        for t in "http", "grpc":
            target(f"{t}, 8 MiB tensors, one in flight: 0.6 of the bare server's rate",
                   b.ratio(("hlod", t, 8, 1), ("bare", t, 8, 1), "megabytesPerS") >= 0.6)

        workers = [int(p) for p in open(f"/proc/{d.p.pid}/task/{d.p.pid}/children").read().split()]
        def many(count):
            b.run(("rss", count), addr, "mlp", f"x=@{x}", "oip", 64, "json",
                  ("--requests", str(count)))
            b.run(("rss grpc", count), d.grpc, "mlp", f"x=@{x}", "oip-grpc", 64, "json",
                  ("--requests", str(count)))
            return [rss_kb(p) for p in [d.p.pid, *workers]]
        before = many(max(1, o.requests // 20))
        after = many(o.requests // 2)
        print(f"\nresident after {o.requests // 10} and {o.requests // 10 + o.requests} requests, "
              f"kB: daemon {before[0]}, {after[0]}; workers {before[1:]}, {after[1:]}")
        target("the daemon's memory stays within 2 MB", after[0] - before[0] <= 2048)
        if o.json:
            json.dump({str(k): v for k, v in b.rows.items()}, open(o.json, "w"), indent=1)
    finally:
        for s in servers:
            s.stop()
        d.stop()
    return 1 if missed and o.strict else 0

if __name__ == "__main__":
    sys.exit(main())
