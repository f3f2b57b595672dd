"""The files of one run: its points, its table, its map, its summary and itself; and its report."""

import csv
import gzip
import hashlib
import io
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from markupsafe import Markup, escape

from linkscope.errors import UserError
from linkscope.model.curves import natural, rate_of, share_of, time_of
from linkscope.report.export import COLUMNS, cell_text, rows
from linkscope.report.family_words import OPERATIONS, operation_text
from linkscope.report.html import page, template_text
from linkscope.report.machine_map import machine_svg
from linkscope.report.outcome import STATUS_WORDS
from linkscope.report.trust import reason_text, sign_of
from linkscope.report.wires import wires
from linkscope.runfile import Point, Run, is_too_short, read_run
from linkscope.site.entry import Entry, Summary, anchor, entry_of
from linkscope.site.kinds import cells_of
from linkscope.site.pages import ASSETS, asset, render
from linkscope.site.sources import hash_of_text, is_compressed
from linkscope.units import format_fraction, format_rate_interval, format_seconds_interval, with_signs

ADDED = ("machine", "run", "started", "suite", "rule", "address")  # columns before those of `export`
KILLED = "the system killed the process that wrote it, as it does when memory runs out"
_BAR = re.compile(r"<!-- site -->.*?<!-- /site -->", re.DOTALL)


@dataclass(frozen=True)
class Made:
    """The entry of a run file and its files by address; or why the file is not shown."""

    entry: Entry | None
    files: dict[str, bytes]
    refused: str = ""


def make(path: Path, name: str, content: str) -> Made:
    """Makes the files of a run file except its report. `name`: how the site names the file; `content`: SHA-256 of its
    text.
    """
    return _made(path, name, content, lambda run: _files(run, path, content))


def report(path: Path, name: str, entry: Entry) -> Made:
    """Makes the report of the run file of an entry, with the styles and scripts that it needs."""
    return _made(path, name, entry.content, lambda run: _report(run, entry))


def _made(path: Path, name: str, content: str, files: Callable[[Run], Made]) -> Made:
    try:
        run = read_run(path, rounds=False)
    except UserError as error:
        return Made(None, {}, str(error).replace(str(path), name))
    warnings = [text.replace(str(path), name) for text in run.warnings]
    try:
        made = files(replace(run, path=Path(name), warnings=warnings))
        if hash_of_text(path) != content:  # its pages and its download would differ
            return Made(None, {}, f"{name} changed while the site was made. Call `linkscope site` again")
        return made
    except Exception as error:  # an error of linkscope, and thousands of other files have pages
        what = f"{name}: linkscope cannot make its page ({type(error).__name__}: {error})"
        return Made(None, {}, f"{what}. `linkscope report` of the file shows where; please report the error")


def _files(run: Run, path: Path, content: str) -> Made:
    entry = entry_of(run, content)
    summary = Summary(entry.machine, entry.slug, entry.modelled, entry.started, cells_of(run))
    folder = entry.folder
    files = {
        f"{folder}/points.html": points_page(run, entry).encode("utf-8"),
        f"{folder}/points.csv": _table(run, entry).encode("utf-8"),
        f"{folder}/summary.json": msgspec.json.encode(summary),
        entry.download: _compressed(path),
    }
    if picture := map_file(run):
        files[f"{folder}/map.svg"] = picture.encode("utf-8")
    return Made(entry, files)


def _compressed(path: Path) -> bytes:
    """The text of a run file as it is, compressed."""
    if is_compressed(path):
        return path.read_bytes()
    written = io.BytesIO()
    with open(path, "rb") as text, gzip.GzipFile("", "wb", 6, written, mtime=0) as out:
        shutil.copyfileobj(text, out)
    return written.getvalue()


def _report(run: Run, entry: Entry) -> Made:
    text, assets = _shared(page(run), "../../../")
    files = {address: asset_text.encode("utf-8") for address, asset_text in assets.items()}
    files[entry.page] = _with_bar(text, _run_bar(entry)).encode("utf-8")
    return Made(msgspec.structs.replace(entry, report=True), files)


def machine_page(text: str, listed: list[Entry]) -> str:
    """The page of a machine: the report of its newest run, `text`, with links to the runs that have reports."""
    moved = text.replace(f"../../../{ASSETS}/", f"../../{ASSETS}/")
    return _BAR.sub(lambda _: _machine_bar(listed), moved, count=1)


def points_page(run: Run, entry: Entry) -> str:
    """All points of a run, each with an anchor: a table for each operation. `_order` sorts the rows of a table."""
    tables: dict[str, list[dict[str, object]]] = {}
    for point in sorted(run.points, key=_order):
        tables.setdefault(point.benchmark, []).append(_point_row(point))
    parts = [
        {"anchor": f"operation-{name}", "title": operation_text(name), "points": shown}
        for name, shown in sorted(tables.items(), key=lambda table: _operation_order(table[0]))
    ]
    return render("points.html", "../../../", title=f"Points of {entry.title or entry.name}", entry=entry, parts=parts)


def map_file(run: Run) -> str:
    """The map of the machine as an SVG file with its own colours, light and dark; '' without a known link."""
    drawn = machine_svg(wires(run), run.modelled)
    if not drawn:
        return ""
    opened = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" ', 1)
    start = opened.index(">") + 1
    return f"{opened[:start]}<style>{template_text('figure.css')}</style>{opened[start:]}\n"


def _order(point: Point) -> tuple[object, ...]:
    """Sorts by engine, path, parameters and size, with numbers by their value. Points without a value come last."""
    ends = natural(point.src), point.src_memory, natural(point.dst), point.dst_memory
    chosen = [(name, natural(value)) for name, value in sorted(point.params.items())]
    return point.median_s is None, point.engine, ends, chosen, point.bytes


def _operation_order(name: str) -> tuple[int, str]:
    """Sorts the operations that have a name of their own first, in the order of reports."""
    return (list(OPERATIONS).index(name) if name in OPERATIONS else len(OPERATIONS), operation_text(name))


def _point_row(point: Point) -> dict[str, object]:
    time, rate = time_of(point), rate_of(point)
    share = share_of(point)
    sign = sign_of([point])
    return {
        "anchor": anchor(point.id),
        "id": point.id,
        "time": with_signs(sign + format_seconds_interval(time.value, time.low, time.high)) if time else "",
        "rate": sign + format_rate_interval(rate.value, rate.low, rate.high) if rate else "",
        "share": format_fraction(share) if share is not None else "",
        "values": [
            f"{one:.6g}" if one is not None else "" for one in (time and time.value, rate and rate.value, share)
        ],
        "rounds": len(point.flows[0].round_medians_s) if point.flows else 0,
        "status": with_signs(_status(point)),
    }


def _status(point: Point) -> str:
    """'missed precision: after 6 rounds …'; a point that was too short has only its reason, which says so."""
    reason = reason_text(point.reason) if point.reason else ""
    return reason if is_too_short(point) else ": ".join(filter(None, (STATUS_WORDS[point.status], reason)))


def _table(run: Run, entry: Entry) -> str:
    """The CSV of `export`, with the columns ADDED before it."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*ADDED, *(name for name, _, _, _ in COLUMNS)])
    for row in rows(run):
        address = f"{entry.folder}/points.html#{anchor(row[0])}"
        added = (entry.machine, entry.slug, entry.started, entry.suite, entry.rule, address)
        writer.writerow([*added, *map(cell_text, row)])
    return stream.getvalue()


def _shared(text: str, root: str) -> tuple[str, dict[str, str]]:
    """The report with its styles and scripts as files that all pages of the site share."""
    assets: dict[str, str] = {}

    def link(kind: str, part: str) -> str:
        digest = hashlib.sha256(part.encode()).hexdigest()[:12]
        assets[address := f"{ASSETS}/{digest}.{kind}"] = part
        return root + address

    head, body = text.split("</head>", 1)
    style = asset("site.css")
    assets[style[0]] = style[1]
    head = re.sub(
        r"<style>(.*?)</style>", lambda m: f'<link rel="stylesheet" href="{link("css", m[1])}">', head, flags=re.DOTALL
    )
    head += f'<link rel="stylesheet" href="{root}{style[0]}">\n'
    body = re.sub(
        r"<script>(.*?)</script>", lambda m: f'<script src="{link("js", m[1])}"></script>', body, flags=re.DOTALL
    )
    return f"{head}</head>{body}", assets


def _with_bar(text: str, bar: str) -> str:
    return re.sub(r"<body[^>]*>", lambda match: f"{match[0]}\n{bar}", text, count=1)


def _run_bar(entry: Entry) -> Markup:
    """Links from the report of a run to the rest of the site."""
    file = entry.download.rpartition("/")[2]
    return Markup(
        '<!-- site --><div class="site-bar"><p><a href="../../../index.html">All machines</a> · '
        '<a href="../index.html">{name}</a> · this page: run of {heading} · <a href="points.html">{count} points</a> '
        '· <a href="points.csv">CSV</a> · <a href="{file}">run file</a></p></div><!-- /site -->'
    ).format(name=entry.title or entry.name, heading=entry.heading, count=entry.points, file=file)


def _machine_bar(listed: list[Entry]) -> str:
    """Links from the page of a machine to its runs with reports, the newest first, and to the list of all."""
    newest = listed[0]
    reports = [entry for entry in listed if entry.report]
    items = "".join(_run_items(reports))
    what = f"All runs ({len(listed)})" if len(reports) == len(listed) else f"The newest {len(reports)} runs"
    more = "" if len(reports) == len(listed) else f' · <a href="runs.html">all {len(listed)} runs</a>'
    return (
        '<!-- site --><div class="site-bar"><p><a href="../../index.html">All machines</a> · '
        f"{escape(newest.title or newest.name)} · this page: the newest run, {escape(newest.heading)}{more}</p>"
        f"<details><summary>{what}, the newest first</summary><ul>{items}</ul></details>"
        "</div><!-- /site -->"
    )


def _run_items(listed: list[Entry]) -> Iterator[str]:
    for entry in listed:
        doubts = f"; not compared: {', '.join(entry.doubts)}" if entry.doubts else ""
        yield Markup(
            '<li><a href="{run}/index.html">{heading}</a>: <a href="{run}/points.html">{count} points</a>{doubts}</li>'
        ).format(run=entry.slug, heading=entry.heading, count=entry.points, doubts=doubts)
