"""Opens every page of a site in headless Chromium, and follows every address in them.

Usage: .venv/bin/python tools/site_pages.py SITE [--passes 1]

Prints the number of pages, the slowest ones, and each error, outside request and address that leads nowhere. A page is
ready at the first frame after all its scripts ran, in its fastest pass: other work on the machine slows single ones.
The CPU time of its main thread until then shows what it takes on a free core. Exits 1 if something is wrong or a page
takes more than 2 s.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from browser import CHROMIUM, Browser

LIMIT_S = 2.0
_SLOWEST = 5  # pages that are printed


class Links(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value or "")
            if name == "id":
                self.anchors.add(value or "")


def check_links(site: Path) -> tuple[int, list[str]]:
    """The number of addresses in the pages; those that lead to no file or anchor of the site, and pages without one."""
    root = site.resolve()
    pages = {path.resolve(): Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    reached, wrong = {root / "index.html"}, []
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if link.startswith(("data:", "#explore?")):  # the explorer reads its state from the address
                continue
            if parts.scheme or root not in target.parents or not target.is_file():
                wrong.append(f"{page.relative_to(root)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{page.relative_to(root)}: {link} has no such anchor")
            reached.add(target)
    wrong += [f"{page.relative_to(root)}: no page leads here" for page in pages.keys() - reached]
    return sum(len(found.links) for found in pages.values()), wrong


def open_pages(browser: Browser, site: Path) -> tuple[dict[str, tuple[float, float]], list[str]]:
    """Seconds until each page is ready, with its CPU time, and the errors and outside requests of all."""
    root, seconds, wrong = site.resolve(), {}, []
    for page in sorted(root.rglob("*.html")):
        browser.open(page)
        name = str(page.relative_to(root))
        seconds[name] = browser.ready(), browser.cpu_s()
        wrong += [f"{name}: {error}" for error in browser.errors]
        outside = [address for address in browser.requests if not address.startswith(root.as_uri())]
        wrong += [f"{name}: request of {address}" for address in outside]
    return seconds, wrong


def main(words: Sequence[str] | None = None) -> int:
    """Prints what was found; returns an exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--passes", type=int, default=1, help="times that every page is opened (default: 1)")
    given = parser.parse_args(words)
    if not (given.site / "index.html").is_file():
        sys.exit(f"{given.site} has no index.html: make the site with `linkscope site DIR -o {given.site}`")
    if CHROMIUM is None:
        sys.exit("no Chromium on this machine")
    links, wrong = check_links(given.site)
    fastest: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as profile, Browser(Path(profile)) as browser:
        for _ in range(given.passes):
            seconds, errors = open_pages(browser, given.site)
            wrong += errors
            fastest = {name: min(taken, fastest.get(name, taken)) for name, taken in seconds.items()}
    slow = sorted(fastest, key=lambda name: fastest[name], reverse=True)
    late = [name for name in slow if fastest[name][0] > LIMIT_S]
    print(f"{len(fastest)} pages; {links} addresses; {len(late)} pages beyond {LIMIT_S:g} s; {len(wrong)} errors")
    for name in slow[:_SLOWEST]:
        print(f"{fastest[name][0]:.2f} s, {fastest[name][1]:.2f} s of CPU time: {name}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong or late else 0


if __name__ == "__main__":
    raise SystemExit(main())
