"""Measures pages of the report in headless Chromium, and checks them against their limits.

Usage: .venv/bin/python tools/page_check.py [--pictures DIR] RUN.jsonl|PAGE.html...

Each line names a quantity, its value, and its limit where it has one. Exits 1 if a page is beyond a limit. axe-core
checks the rules of WCAG 2.1 AA, contrast and keyboard among them. --pictures writes the page as seen at 1440x900 and
390x844, in the dark, in print, and in each font below.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from browser import Browser

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

WIDE, PHONE = (1440, 900), (390, 844)
FONTS = ("DejaVu Sans", "Liberation Sans", "Open Sans")
LIMITS = {
    "elements": 15_000, "screens": 8.0, "words and figures": 2_500, "MB": 5.0, "seconds until interactive": 2.0,
    "wider than a window": 0, "overlapping labels": 0, "console errors": 0, "outside requests": 0, "axe violations": 0,
}  # fmt: skip
# A word has a letter. Figures, signs and intervals such as "[53.6," count only among the words and figures.
_MEASURE = """(() => {
  const scrolledOut = (one) => {
    const list = one.closest(".list"), box = one.getBoundingClientRect(), seen = list?.getBoundingClientRect();
    return list && (box.top >= seen.bottom || box.bottom <= seen.top);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let words = 0, all = 0;
  while (walker.nextNode()) {
    const holder = walker.currentNode.parentElement;
    if (holder.closest("svg, script, style, option") || !holder.checkVisibility() || scrolledOut(holder)) continue;
    const parts = walker.currentNode.data.split(/\\s+/).filter(Boolean);
    all += parts.length;
    words += parts.filter((part) => /\\p{L}/u.test(part)).length;
  }
  const page = document.documentElement;
  return { words, all, elements: document.querySelectorAll("*").length, height: page.scrollHeight };
})()"""
# The explorer draws when it comes near the window, so a picture of the whole page needs a look at it first.
_DRAWN = """new Promise((done) => {
  const box = document.querySelector(".chart-box"), start = performance.now();
  box?.scrollIntoView();
  const wait = () => {
    if (box && !box.querySelector("canvas") && performance.now() - start < 5000) return requestAnimationFrame(wait);
    scrollTo(0, 0);
    return requestAnimationFrame(() => requestAnimationFrame(() => done(true)));
  };
  wait();
})"""
_TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth > 1"
# Two labels overlap if their boxes share more than a pixel in both directions: the boxes have the height of a line.
_OVERLAPS = """[...document.querySelectorAll("svg")].filter((one) => one.checkVisibility()).flatMap((svg) => {
  const labels = [...svg.querySelectorAll("text")].filter((one) => !one.closest(".modelled") && one.checkVisibility());
  const boxes = labels.map((one) => one.getBoundingClientRect());
  return labels.flatMap((one, first) => boxes.slice(first + 1).flatMap((box, after) => {
    const other = boxes[first], across = Math.min(box.right, other.right) - Math.max(box.left, other.left);
    const down = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
    return across > 1 && down > 0.3 * Math.min(box.height, other.height)
      ? [`${one.textContent} / ${labels[first + 1 + after].textContent}`] : [];
  }));
})"""
_FONT = """(() => {
  const style = document.createElement("style");
  style.id = "font"; style.textContent = `* { font-family: "FONT" !important; }`;
  document.getElementById("font")?.remove(); document.head.append(style);
})()"""
_AXE = """axe.run(document, {resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
.then((found) => found.violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.target.join(" ")}`)))"""


@dataclass(frozen=True)
class Found:
    """The quantities of a page by name, and its faults as texts. Those without a limit are not in `LIMITS`."""

    values: dict[str, float]
    faults: list[str]

    @property
    def beyond(self) -> list[str]:
        """The quantities beyond their limit."""
        return [name for name, most in LIMITS.items() if self.values[name] > most]


def check(browser: Browser, page: Path, *, fonts: tuple[str, ...] = ()) -> Found:
    """Measures one page; labels that overlap are looked for in the page's own font and in these."""
    browser.open(page, width=WIDE[0], height=WIDE[1])
    ready = browser.ready()
    browser.ask(_DRAWN)
    measured = browser.ask(_MEASURE)
    overlaps, wide = list(browser.ask(_OVERLAPS)), bool(browser.ask(_TOO_WIDE))
    for font in fonts:
        browser.ask(_FONT.replace("FONT", font))
        overlaps += [f"{text} ({font})" for text in browser.ask(_OVERLAPS)]
    browser.ask('document.getElementById("font")?.remove()')
    violations = accessibility(browser)
    browser.resize(*PHONE)
    tall, narrow = browser.ask("document.documentElement.scrollHeight"), bool(browser.ask(_TOO_WIDE))
    values = {
        "elements": measured["elements"], "screens": measured["height"] / WIDE[1],
        "screens on a phone": tall / PHONE[1], "words": measured["words"], "words and figures": measured["all"],
        "MB": page.stat().st_size / 1e6,
        "seconds until interactive": ready, "wider than a window": wide + narrow, "overlapping labels": len(overlaps),
        "console errors": len(browser.errors), "outside requests": len(browser.requests),
        "axe violations": len(violations),
    }  # fmt: skip
    return Found(values, [*browser.errors, *browser.requests, *violations, *(f"overlap: {one}" for one in overlaps)])


def accessibility(browser: Browser) -> list[str]:
    """The violations that axe-core finds on the open page: the rule and the element."""
    spec = importlib.util.find_spec("axe_core_python")
    assert spec is not None and spec.origin is not None, "axe-core-python is needed: tools/bootstrap.py build test"
    browser.ask(Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8") + "; 0")
    return list(browser.ask(_AXE))


def take_pictures(browser: Browser, page: Path, folder: Path) -> list[Path]:
    """Pictures of a page in all its forms; returns the files."""
    name, made = page.stem, []

    def keep(what: str, content: bytes, suffix: str = "png") -> None:
        made.append(folder / f"{name}-{what}.{suffix}")
        made[-1].write_bytes(content)

    folder.mkdir(parents=True, exist_ok=True)
    for what, (width, height), dark in (("wide", WIDE, False), ("phone", PHONE, False), ("dark", WIDE, True)):
        browser.open(page, width=width, height=height, dark=dark)
        browser.ask(_DRAWN)
        keep(what, browser.picture(whole=True))
    browser.open(page, width=WIDE[0], height=WIDE[1])
    keep("print", browser.pdf(), "pdf")
    browser.ask(_DRAWN)
    for font in _installed():
        browser.ask(_FONT.replace("FONT", font))
        keep(font.split()[0].lower(), browser.picture(whole=True))
    return made


def _installed() -> list[str]:
    """Those of `FONTS` that this machine has; a browser would show another one without a word."""
    listed = subprocess.run(["fc-list", ":", "family"], capture_output=True, text=True, check=False).stdout
    return [font for font in FONTS if font in listed]


def _page_of(source: Path, folder: Path) -> Path:
    """The page of a run file, or the page itself."""
    from linkscope.report.html import render

    if source.suffix == ".html":
        return source.resolve()
    made = folder / f"{source.name.split('.jsonl')[0]}.html"
    made.write_text(render(source), encoding="utf-8")
    return made


def _print(name: str, found: Found) -> None:
    print(name)
    for quantity, value in found.values.items():
        most: Any = LIMITS.get(quantity)
        limit = f"  (at most {most:g}{'; BEYOND' if value > most else ''})" if most is not None else ""
        print(f"  {quantity:26} {value:10.4g}{limit}")
    for fault in found.faults[:40]:
        print(f"  - {fault[:300]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", nargs="+", type=Path)
    parser.add_argument("--pictures", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    beyond = False
    # Processes of the browser may still write while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Browser(Path(folder, "profile")) as browser:
        for source in arguments.source:
            page = _page_of(source, Path(folder))
            found = check(browser, page, fonts=tuple(_installed()))
            _print(source.name, found)
            beyond = beyond or bool(found.beyond)
            if arguments.pictures:
                print(*take_pictures(browser, page, arguments.pictures), sep="\n")
    return int(beyond)


if __name__ == "__main__":
    sys.exit(main())
