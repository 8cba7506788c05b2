#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cache in an object store: moto's server, which checks each request's signature with botocore
(AWS Signature Version 4) and what its user may do; credentials from the environment, a profile and
files that change. Scripted workers. SKIP without build/fleet (deploy/setup.sh fleet).
Usage: build/fleet/bin/python s3.py --hlod BIN --worker BIN [NAME...]"""
import json, os, shutil, subprocess, sys, tempfile
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from common import Site, compile, compiles, free_ports, model, secret, stats
from harness import Results, chosen, options, until
try:
    import boto3
except ImportError:
    print("SKIP the cache in an object store: no moto here (deploy/setup.sh fleet)")
    sys.exit(0)

BUCKET = "executables"

class Store:
    """moto's server with a bucket, and users: one that may do all in it, one that may read"""
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="hlod-s3-")
        port, = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self.log = open(os.path.join(self.folder, "moto.log"), "w")
        self.p = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)],
                                  stdout=self.log, stderr=self.log)
        try:
            self.fill()
        except BaseException:
            self.close()
            raise
    def fill(self):
        self.root = dict(endpoint_url=self.url, region_name="us-east-1", aws_access_key_id="x",
                         aws_secret_access_key="y")
        def ready():
            assert self.p.poll() is None, open(self.log.name).read()
            try:
                boto3.client("s3", **self.root).list_buckets()
                return True
            except Exception:
                return False
        until("moto serves", 60, ready)
        boto3.client("s3", **self.root).create_bucket(Bucket=BUCKET)
        iam = boto3.client("iam", **self.root)
        self.user, self.reader = (self.make_user(iam, n, a) for n, a in
                                  (("writer", ["s3:*"]), ("reader", ["s3:GetObject"])))
        self.s3 = boto3.client("s3", endpoint_url=self.url, region_name="us-east-1",
                               aws_access_key_id=self.user[0], aws_secret_access_key=self.user[1])
        import urllib.request
        urllib.request.urlopen(urllib.request.Request(self.url + "/moto-api/reset-auth",
                                                      data=b"0", method="POST",
                                                      headers={"Content-Type": "text/plain"}))
    def make_user(self, iam, name, actions):
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=json.dumps(
            {"Version": "2012-10-17",
             "Statement": [{"Effect": "Allow", "Action": actions,
                            "Resource": [f"arn:aws:s3:::{BUCKET}/*", f"arn:aws:s3:::{BUCKET}"]}]}))
        k = iam.create_access_key(UserName=name)["AccessKey"]
        return k["AccessKeyId"], k["SecretAccessKey"]
    def objects(self):
        return {o["Key"]: o["Size"]
                for o in self.s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])}
    def env(self, user=None, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        user = user or self.user
        return {**env, "HOME": self.folder, "AWS_ACCESS_KEY_ID": user[0],
                "AWS_SECRET_ACCESS_KEY": user[1], "AWS_ENDPOINT_URL": self.url, **more}
    def close(self):
        self.p.terminate()
        self.p.wait()
        self.log.close()
        shutil.rmtree(self.folder)

class Bucket(Site):
    def __init__(self, o, store):
        super().__init__(o, "s3")
        self.store = store
    def daemon(self, prefix, *args, env=None, data=None):
        return self.start("--cache-key", secret(self.store.folder), "--cache-remote",
                          f"s3://{BUCKET}/{prefix}", *args, env=env or self.store.env(), data=data)
    def judge(self, log):
        for _, secret_key in (self.store.user, self.store.reader):
            assert secret_key not in log, "a secret is in the log"

def round_trip(o, store):
    """put with a signature that holds, found by another daemon; with and without a prefix"""
    for prefix in "fleet/v1", "":
        with Bucket(o, store) as site:
            a, b = site.daemon(prefix), site.daemon(prefix)
            body = model("s3" + prefix)
            status, r = compile(a, body)
            assert status == 200 and r["executable"]["remotes"][0]["outcome"] == "miss", r
            key = r["digest"]
            name = f"{prefix}/executables/{key[:2]}/{key}".lstrip("/")
            until("it is put", 5, lambda: name in store.objects())
            status, r = compile(b, body)
            assert r["remote"] == f"s3://{BUCKET}/{prefix}" and compiles(b) == 0, r
            assert stats(b)["bytesIn"] == store.objects()[name], stats(b)
            assert stats(a).get("putErrors", 0) == 0 and stats(a)["kind"] == "s3"

def session(o, store):
    """a session token is sent and signed: a store that knows none refuses it, and says so"""
    with Bucket(o, store) as site:
        d = site.daemon("s", env=store.env(AWS_SESSION_TOKEN="made-up/token+1="))
        status, r = compile(d, model("session"))
        said = r["executable"]["remotes"][0]
        assert said["outcome"] in ("miss", "error"), said
        assert "made-up" not in d.logs() and "made-up" not in json.dumps(r)

def wrong_secret(o, store):
    """refused for its signature: an error that opens the circuit at once; the compile goes on"""
    with Bucket(o, store) as site:
        d = site.daemon("w", env=store.env((store.user[0], "not-" + store.user[1])))
        status, r = compile(d, model("wrong"))
        said = r["executable"]["remotes"][0]
        assert said["outcome"] == "error" and "SignatureDoesNotMatch" in said["why"], said
        status, r = compile(d, model("wrong2"))
        assert r["executable"]["remotes"][0]["outcome"] == "skipped", r
        assert stats(d)["state"] == "down"

def may_not_write(o, store):
    """a user that may read: what is there is taken, what cannot be put is counted"""
    with Bucket(o, store) as site:
        writer = site.daemon("ro")
        compile(writer, model("there"))
        until("it is put", 5, lambda: stats(writer).get("puts") == 1)
        d = site.daemon("ro", env=store.env(store.reader))
        assert compile(d, model("there"))[1]["remote"]
        n = len(store.objects())
        assert compile(d, model("not there"))[0] == 200
        until("it is counted", 5, lambda: stats(d).get("putErrors", 0) == 1)
        assert len(store.objects()) == n

def of_files(o, store):
    """a profile of the usual files; when they change, the new ones are used"""
    with Bucket(o, store) as site:
        path = os.path.join(store.folder, "creds")
        def write(user):
            with open(path + ".new", "w") as f:
                f.write(f"[default]\naws_access_key_id = no\naws_secret_access_key = no\n"
                        f"[fleet]\naws_access_key_id = {user[0]}\n"
                        f"aws_secret_access_key = {user[1]}\n")
            os.rename(path + ".new", path)
        write(("AKIAUNKNOWN", "nothing"))
        config = os.path.join(store.folder, "config")
        with open(config, "w") as f:
            f.write(f"[profile fleet]\nregion = eu-west-1\nendpoint_url = {store.url}\n")
        env = {k: v for k, v in store.env().items() if not k.startswith("AWS_")}
        env.update(AWS_PROFILE="fleet", AWS_SHARED_CREDENTIALS_FILE=path, AWS_CONFIG_FILE=config)
        d = site.daemon("f", "--secrets-s", "1", env=env)
        status, r = compile(d, model("files"))
        assert r["executable"]["remotes"][0]["outcome"] == "error", r
        write(store.user)
        until("they are read", 5, lambda: "ev=server.reload what=remotes" in d.logs())
        until("it is well again", 10, lambda: stats(d)["state"] == "up")
        status, r = compile(d, model("files2"))
        assert r["executable"]["remotes"][0]["outcome"] == "miss", r
        until("it is put", 5, lambda: stats(d).get("puts", 0) >= 1)

def workers_have_none(o, store):
    """the workers, which read what strangers send, do not have the credentials"""
    with Bucket(o, store) as site:
        d = site.daemon("e", env=store.env(AWS_SESSION_TOKEN="tok"))
        kids = subprocess.run(["ps", "-o", "pid=", "--ppid", str(d.p.pid)], capture_output=True,
                              text=True).stdout.split()
        assert len(kids) >= 2
        for k in kids:
            text = open(f"/proc/{k}/environ").read()
            assert store.user[1] not in text and "AWS_SESSION" not in text, text

def main():
    o, results = options("hlod", "worker"), Results()
    store = Store()
    try:
        for s in chosen(o, [round_trip, session, wrong_secret, may_not_write, of_files,
                            workers_have_none]):
            results.case(s.__name__, s, o, store)
    finally:
        store.close()
    return results.code()

if __name__ == "__main__":
    sys.exit(main())
