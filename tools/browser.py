"""A headless Chromium controlled over a pipe: keys, window widths and print output, as for a person.

Tests and tools/page_check.py use it.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
_LAUNCH = """import fcntl, os, sys
pipes = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]  # out of the way of 3 and 4
for pipe, known in zip(pipes, (3, 4)):  # where the browser reads and writes
    os.dup2(pipe, known)
os.execv(sys.argv[3], sys.argv[3:])
"""
_READY = """addEventListener("load", () => requestAnimationFrame(() => setTimeout(() => {
  window.readyAfter = performance.now();
})))"""
_WAIT = """new Promise((done) => {
  const look = () => { if (window.readyAfter) done(window.readyAfter); else setTimeout(look, 20); };
  look();
})"""
_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Space": (32, " ")}


class Browser:
    """One page at a time. Raises RuntimeError with the browser's message on an error."""

    def __init__(self, profile: Path) -> None:
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        command = [
            sys.executable, "-c", _LAUNCH, str(read), str(write), str(CHROMIUM), "--headless", "--no-sandbox",
            "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}", "--remote-debugging-pipe",
        ]  # fmt: skip
        silent = subprocess.DEVNULL
        self._process = subprocess.Popen(command, pass_fds=(read, write), stdout=silent, stderr=silent)
        os.close(read)
        os.close(write)
        self._number, self._rest, self._session = 0, b"", ""
        self.errors: list[str] = []  # of the page that is open: uncaught, on the console, and refused requests
        self.requests: list[str] = []  # addresses that it loaded from outside
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")
        self._call("Performance.enable", timeDomain="threadTicks")
        self._call("Page.addScriptToEvaluateOnNewDocument", source=_READY)

    def open(
        self, file: Path, *, width: int = 1280, height: int = 900, dark: bool = False, scripts: bool = True
    ) -> None:
        """Loads a file in a window of this size and waits for it."""
        self._call("Emulation.setScriptExecutionDisabled", value=not scripts)
        self.resize(width, height)
        self.media("", dark=dark)
        self.errors, self.requests = [], []
        self._call("Page.navigate", url=file.as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def resize(self, width: int, height: int) -> None:
        """The size of the window in pixels; a narrow one is a phone's."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def media(self, name: str, *, dark: bool = False) -> None:
        """Shows the page for `print` or `screen` media; '' is the default."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=name, features=[scheme])

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression. Promises are awaited."""
        found = self._call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def ready(self) -> float:
        """Seconds from the start of loading to the first frame after all scripts ran."""
        return float(self.ask(_WAIT)) / 1e3

    def cpu_s(self) -> float:
        """Seconds of CPU time of the page's main thread since the start of loading."""
        found = {one["name"]: one["value"] for one in self._call("Performance.getMetrics")["metrics"]}
        return float(found["ThreadTime"])

    def press(self, key: str) -> None:
        """Presses and releases a key."""
        code, text = _KEYS[key]
        known = {"key": text if key == "Space" else key, "code": key, "windowsVirtualKeyCode": code}
        self._call("Input.dispatchKeyEvent", type="keyDown", text=text, **known)
        self._call("Input.dispatchKeyEvent", type="keyUp", **known)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Drags the mouse between two positions of the window, in pixels."""
        middle = ((start[0] + end[0]) / 2, (start[1] + end[1]) / 2)
        steps = (("mouseMoved", 0, start), ("mousePressed", 1, start), ("mouseMoved", 1, middle),
                 ("mouseMoved", 1, end), ("mouseReleased", 0, end))  # fmt: skip
        for kind, buttons, (x, y) in steps:
            button = "none" if kind == "mouseMoved" and not buttons else "left"
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=buttons, clickCount=1)

    def write(self, text: str) -> None:
        """Types into the focused element."""
        self._call("Input.insertText", text=text)

    def picture(self, *, whole: bool = False) -> bytes:
        """The window as PNG, or the whole page."""
        return base64.b64decode(
            self._call("Page.captureScreenshot", captureBeyondViewport=whole, **self._clip(whole))["data"]
        )

    def _clip(self, whole: bool) -> dict[str, Any]:
        if not whole:
            return {}
        size = self._call("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}

    def pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self._call("Page.printToPDF", preferCSSPageSize=True)["data"])

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=20)
        os.close(self._to)
        os.close(self._from)

    def _call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        sent = {"id": self._number, "method": method, "params": params}
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(sent | session).encode() + b"\0")
        while (found := self._read()).get("id") != self._number:
            pass
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']['message']}")
        answer: dict[str, Any] = found["result"]
        return answer

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._from, 1 << 20)
            if not read:
                raise RuntimeError("the browser ended")
            self._rest += read
        line, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        self._note(answer.get("method", ""), answer.get("params", {}))
        return answer

    def _note(self, event: str, about: dict[str, Any]) -> None:
        """Keeps what an event says about errors and requests."""
        if event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(one.get("value", one.get("description"))) for one in about["args"]))
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.errors.append(about["entry"]["text"])
        elif event == "Network.requestWillBeSent" and about["type"] != "Document":
            address = about["request"]["url"]
            self.requests += [] if address.startswith(("data:", "blob:")) else [address]
