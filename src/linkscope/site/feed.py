"""The Atom feed of changes: runs that were added, replaced or removed."""

import uuid
from collections.abc import Sequence
from xml.sax.saxutils import escape, quoteattr

import msgspec

MOST = 100  # entries of the feed
_SPACE = uuid.UUID("6f1c0a52-6f0b-5d0b-9d7e-4c1f8f2b6a11")


class Change(msgspec.Struct):
    """One change. `when`: UTC, ISO 8601; `what`: added, replaced or removed; `address`: '' for a removed run."""

    when: str
    what: str
    run: str
    title: str
    address: str


def feed(changes: Sequence[Change], url: str) -> str:
    """The feed, the newest change first. `url`: where the site is; '' leaves addresses relative to the feed."""
    base = url.rstrip("/") + "/" if url else ""
    updated = changes[0].when if changes else "1970-01-01T00:00:00+00:00"
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        "<title>linkscope: changes of runs</title>",
        f"<id>urn:uuid:{uuid.uuid5(_SPACE, base or 'site')}</id>",
        f"<updated>{updated}</updated>",
        "<author><name>linkscope</name></author>",
        f'<link rel="self" href={quoteattr(base + "changes.xml")}/>',
    ]
    for change in changes:
        key = f"{change.when} {change.what} {change.run}"
        address = change.address or "index.html"
        parts.append(
            f"<entry><id>urn:uuid:{uuid.uuid5(_SPACE, key)}</id><title>{escape(change.what)}: {escape(change.title)}"
            f"</title><updated>{change.when}</updated><link href={quoteattr(base + address)}/></entry>"
        )
    return "\n".join([*parts, "</feed>", ""])
