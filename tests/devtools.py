# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over its DevTools pipe with nothing but the standard library.

    with devtools.Browser() as browser:
        page = browser.open("/path/to/page.html")
        page.run("document.title")

Everything that a page complains about, and every request that it makes, is in page.complaints and
page.requests. PROGRAMS lists the names that Debian and others give the browser."""
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")
DEADLINE = 120  # seconds until something that never comes is given up


def program():
    """The browser's path, or None."""
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


def pipe():
    """A pipe whose ends are not among the low numbers that the browser expects its own at."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return high


class Navigated(AssertionError):
    """The page went to another address before it had answered."""


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="browser-")
        to_browser, self.writer = pipe()
        self.reader, from_browser = pipe()

        def place_pipes():  # in the child: the browser reads from 3 and writes to 4
            os.dup2(to_browser, 3)
            os.dup2(from_browser, 4)

        command = [program(), "--headless=new", "--remote-debugging-pipe", "--disable-gpu",
                   # Tests run as root in containers, where Chromium's sandbox cannot be made.
                   "--no-sandbox", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update",
                   "--disable-extensions", "--mute-audio", "--user-data-dir=" + self.folder,
                   # What a page's successor would have of it, and a process in store for it, cost each page a fifth.
                   "--disable-features=BackForwardCache,SpareRendererForSitePerProcess,RenderDocument",
                   "about:blank"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
        self.process = subprocess.Popen(
            command, preexec_fn=place_pipes, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(env, HOME=self.folder))
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.pages = b"", 0, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(timeout=20)
        except Exception:  # it is to be gone, however
            self.process.kill()
            self.process.wait()
        os.close(self.reader)
        os.close(self.writer)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self, seconds):
        """The next message, or None when none comes in time."""
        end = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready = select.select([self.reader], [], [], max(0, end - time.monotonic()))[0]
            more = os.read(self.reader, 1 << 20) if ready else b""
            if not ready:
                return None
            assert more, "the browser ended with status %r" % self.process.poll()
            self.buffer += more
        text, _, self.buffer = self.buffer.partition(b"\0")
        message = json.loads(text)
        if "method" in message and message.get("sessionId") in self.pages:
            self.pages[message["sessionId"]].event(message["method"], message["params"])
        return message

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.message(DEADLINE)
            assert answer is not None, "no answer to %s" % method
            if answer.get("id") == self.number:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise Navigated(method)
                assert "error" not in answer, "%s: %r" % (method, answer["error"])
                return answer["result"]

    def open(self, path, width=1280, height=900, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.pages[session] = page = Page(self, session)
        page.show(path, width, height, dark)
        return page

    def close_pages(self):
        for page in self.pages.values():
            page.call("Page.close")
        self.pages = {}


class Page:
    def __init__(self, browser, session):
        self.browser, self.session = browser, session
        self.complaints, self.requests, self.loaded, self.visits = [], [], False, 0
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def event(self, method, params):
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method in ("Runtime.exceptionThrown", "Audits.issueAdded") or \
                (method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning")) or \
                (method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning")):
            self.complaints.append(json.dumps(params)[:1000])

    def show(self, path, width, height, dark):
        self.resize(width, height, dark)
        self.go(path if "://" in path else "file://" + path)

    def resize(self, width, height, dark):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def go(self, url):
        self.loaded = False
        self.call("Page.navigate", url=url)
        self.wait(lambda: self.loaded, "the page to load")

    def show_anew(self, path, width=1280, height=900, dark=False):
        """Another page, of which nothing knows what was shown and set before: no address is met twice."""
        self.call("Emulation.setScriptExecutionDisabled", value=False)
        self.call("Emulation.setEmulatedMedia", media="")
        self.complaints, self.requests = [], []
        self.visits += 1
        self.show("%s?%d" % (path, self.visits), width, height, dark)

    def wait(self, condition, what):
        end = time.monotonic() + DEADLINE
        while True:
            try:
                if condition():
                    return
            except Navigated:  # the page that was asked is gone; the next one will be asked
                pass
            assert time.monotonic() < end, "waited in vain for %s" % what
            self.browser.message(0.2)

    def run(self, expression):
        """The value of a JavaScript expression."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                         awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def key(self, name, code=0, text=None):
        for kind in ("keyDown", "keyUp"):
            params = {"type": kind, "key": name, "code": name, "windowsVirtualKeyCode": code}
            if text and kind == "keyDown":
                params["text"] = text
            self.call("Input.dispatchKeyEvent", **params)

    def settle(self):
        """Until what was asked for has been drawn."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(1))))")
