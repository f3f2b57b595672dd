"""The RSS feed of changes: runs that were added, replaced or removed."""

import datetime
import email.utils
import re
import uuid
from collections.abc import Sequence
from xml.sax.saxutils import escape

import msgspec

MOST = 100  # entries of the feed
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # XML 1.0, 2.2
_SPACE = uuid.UUID("6f1c0a52-6f0b-5d0b-9d7e-4c1f8f2b6a11")


class Change(msgspec.Struct):
    """One change. `when`: UTC, ISO 8601; `what`: added, replaced or removed; `address`: '' for a run that is gone."""

    when: str
    what: str
    run: str
    title: str
    address: str


def feed(changes: Sequence[Change], url: str) -> str:
    """The feed in RSS 2.0, the newest change first. `url`: where the site is; '' leaves addresses relative."""
    base = url.rstrip("/") + "/" if url else ""
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<rss version="2.0"><channel>',
        "<title>linkscope: changes of runs</title>",
        f"<link>{escape(base)}index.html</link>",
        "<description>Runs that were added, replaced or removed</description>",
    ]
    parts += [f"<lastBuildDate>{_date(one.when)}</lastBuildDate>" for one in changes[:1]]
    for change in changes:
        key = f"{change.when} {change.what} {change.run}"
        parts.append(
            f"<item><title>{escape(change.what)}: {escape(_NOT_XML.sub('?', change.title))}</title>"
            f"<link>{escape(base + (change.address or 'index.html'))}</link>"
            f'<guid isPermaLink="false">urn:uuid:{uuid.uuid5(_SPACE, key)}</guid>'
            f"<pubDate>{_date(change.when)}</pubDate></item>"
        )
    return "\n".join([*parts, "</channel></rss>", ""])


def _date(when: str) -> str:
    """A time in ISO 8601 as RSS wants it (RFC 822)."""
    return email.utils.format_datetime(datetime.datetime.fromisoformat(when))
