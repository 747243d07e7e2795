# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over a pipe (the DevTools protocol), for tests of pages."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

import towtest as t


class Browser:
    """One page of a Chromium of its own. Use with `with`."""

    def __init__(self, width=1100, height=900):
        self.program = next((found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None)
        if not self.program:
            raise t.Skip("there is no Chromium (apt install chromium)")
        self.size = (width, height)
        self.number, self.data, self.session = 0, b"", None
        self.complaints = []  # of the page's console, of its policy, of errors that nobody caught

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="towline-browser-")
        its_in, self.out = os.pipe()
        self.into, its_out = os.pipe()
        words = [self.program, "--headless=new", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-dev-shm-usage",
                 "--disable-background-networking", "--no-sandbox", f"--user-data-dir={self.folder}", "--remote-debugging-pipe",
                 f"--window-size={self.size[0]},{self.size[1]}", "about:blank"]
        # The protocol's descriptors are 3 and 4.
        shell = f'exec "$@" 3<&{its_in} 4>&{its_out}'
        self.process = subprocess.Popen(["bash", "-c", shell, "bash", *words], pass_fds=(its_in, its_out), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=self.folder))
        os.close(its_in)
        os.close(its_out)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.resize(*self.size)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _message(self, deadline):
        while b"\0" not in self.data:
            ready = select.select([self.into], [], [], max(0, deadline - time.monotonic()))[0]
            more = os.read(self.into, 1 << 16) if ready else b""
            t.check(more, "Chromium says nothing" if ready else "Chromium does not answer in time")
            self.data += more
        message, _, self.data = self.data.partition(b"\0")
        return json.loads(message)

    def call(self, method, **parameters):
        self.number += 1
        order = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            order["sessionId"] = self.session
        os.write(self.out, json.dumps(order).encode() + b"\0")
        deadline = time.monotonic() + 60 * t.SLOW
        while True:
            message = self._message(deadline)
            if message.get("id") == self.number:
                t.check("error" not in message, f"{method}: {message.get('error')}")
                return message["result"]
            if message.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(message["params"]["exceptionDetails"])[:500])
            if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
                self.complaints.append(message["params"]["entry"]["text"])

    def open(self, address):
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'", "the page is there")

    def ask(self, expression):
        """The value of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        t.check("exceptionDetails" not in answer, f"{expression}: {answer.get('exceptionDetails')}")
        return answer["result"].get("value")

    def wait(self, expression, what, seconds=30):
        try:
            return t.wait_until(lambda: self.ask(expression), seconds, what)
        except AssertionError as error:
            raise AssertionError(f"{error}; the page says:\n{self.ask('document.body && document.body.innerText')}") from None

    def text(self, selector):
        return self.ask(f"(document.querySelector({json.dumps(selector)}) || {{}}).innerText")

    def texts(self, selector):
        return self.ask(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.innerText)")

    def press(self, key, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def resize(self, width, height, phone=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)

    def dark(self, wanted=True):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}])

    def picture(self, path):
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
