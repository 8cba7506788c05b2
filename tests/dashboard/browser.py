# SPDX-License-Identifier: Apache-2.0
"""Headless Chromium by WebDriver, for tests of pages. Needs chromium-driver (sh deploy/setup.sh
dashboard)."""
import base64, http.client, json, socket, subprocess, tempfile, time

# Chromium's own CPU stands in for a GPU, for WebGPU.
WEBGPU = ("--use-angle=vulkan", "--enable-features=Vulkan", "--use-vulkan=swiftshader",
          "--enable-unsafe-swiftshader", "--enable-unsafe-webgpu",
          "--use-webgpu-adapter=swiftshader")
# For WebGL.
WEBGL = ("--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader")

class Browser:
    """The few WebDriver commands that are needed."""
    def __init__(self, dark=False, size=(1400, 1000), flags=("--disable-gpu",)):
        with socket.create_server(("127.0.0.1", 0)) as s:
            self.port = s.getsockname()[1]
        self.profile = tempfile.mkdtemp(prefix="hlod-chromium-")
        self.p = subprocess.Popen(["chromedriver", f"--port={self.port}"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        options = {"args": ["--headless=new", "--no-sandbox", *flags, "--hide-scrollbars",
                            f"--user-data-dir={self.profile}", f"--window-size={size[0]},{size[1]}",
                            f"--blink-settings=preferredColorScheme={0 if dark else 1}"]}
        try:
            self.session = self.begin(options)
        except BaseException:
            self.p.terminate()
            self.p.wait()
            raise
    def begin(self, options):
        end = time.monotonic() + 30
        while True:
            try:
                return self.send(
                    "POST", "/session",
                    {"capabilities": {"alwaysMatch": {"browserName": "chrome",
                                                      "goog:chromeOptions": options,
                                                      "goog:loggingPrefs": {"browser": "ALL"}}}},
                    session="", timeout=240)["sessionId"]
            except ConnectionError:
                if time.monotonic() > end:
                    raise SystemExit("chromedriver does not start")
                time.sleep(0.1)
    def send(self, verb, path, body=None, session=None, timeout=60):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        c.request(verb, (f"/session/{self.session}" if session is None else session) + path,
                  json.dumps(body if body is not None else {}) if verb == "POST" else None)
        got = json.loads(c.getresponse().read())["value"]
        if isinstance(got, dict) and "error" in got:
            raise RuntimeError(got["message"])
        return got
    def go(self, url):
        self.send("POST", "/url", {"url": url})
    def js(self, code, *args):
        return self.send("POST", "/execute/sync", {"script": code, "args": list(args)})
    def page(self, hash):
        """Goes to a page of the dashboard and waits until it has been drawn."""
        self.js("document.getElementById('main').dataset.ready = ''; if (location.hash === "
                "arguments[0]) route(); else location.hash = arguments[0];", hash)
        self.wait("return document.getElementById('main').dataset.ready === arguments[0]", hash)
    def wait(self, code, *args, seconds=20):
        end = time.monotonic() + seconds
        while not (got := self.js(code, *args)):
            if time.monotonic() > end:
                raise SystemExit("waited in vain for: " + code + "\n" + self.js(
                                     "return document.body.innerText")[:800])
            time.sleep(0.05)
        return got
    def keys(self, text):
        self.send("POST", "/actions",
                  {"actions": [{"type": "key", "id": "keyboard",
                                "actions": [a for c in text
                                            for a in ({"type": "keyDown", "value": c},
                                                      {"type": "keyUp", "value": c})]}]})
    def shot(self, name):
        with open(name + ".png", "wb") as f:
            f.write(base64.b64decode(self.send("GET", "/screenshot")))
    def log(self):
        return [x["message"] for x in self.send("POST", "/se/log", {"type": "browser"})
                if x["level"] in ("SEVERE", "WARNING")]
    def resize(self, w, h):
        self.send("POST", "/window/rect", {"width": w, "height": h})
    def stop(self):
        try:
            self.send("DELETE", "")
        finally:
            self.p.terminate()
            self.p.wait()
