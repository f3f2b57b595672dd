"""Section: plain copies of every path in one table, and the other operations in folded tables."""

from collections.abc import Callable, Iterable, Sequence

from linkscope.model.curves import Estimate, Path, has_gap, path_of
from linkscope.model.text import paths_text, range_share, rate_text, sizes_text
from linkscope.report.anchors import explorer_link, path_anchor
from linkscope.report.family_words import ENGINES
from linkscope.report.headline import COPIES
from linkscope.report.long_tables import without_empty_columns
from linkscope.report.overview import FamilyRows, Row
from linkscope.report.path_rows import PathRow, importance, open_rows
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    Block,
    Column,
    Fold,
    Group,
    Listing,
    Paragraph,
    Section,
    SortedRow,
    SortedTable,
    Table,
    more,
)
from linkscope.report.section import Row as TableRow
from linkscope.report.trust import signed
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_fraction, format_rate, unresolved_text, with_interval

MOST, FEW = 36, 20  # rows that the page shows at first; where not every path fits, it shows few
_NOTE = (
    "First the slowest path of each method, then the fastest if it differs. Copies without an engine are by copy "
    "engine. Bidirectional rates are totals. Half from: copies of about this size reach half the best rate. Latency: "
    "of the smallest copy. No status: ok."
)
_ROWS = "A row holds paths that perform alike: the median, and the range from the lowest to the highest interval end."
_COLUMNS = (
    Column("Path"), Column("Method"), Column("Best, GB/s", right=True, strong=True, label="Best, GB/s"),
    Column("At", right=True, label="at"), Column("% of peak", right=True, label="% of peak"),
    Column("Half from", right=True, label="Half from"), Column("Latency, µs", right=True, label="Latency, µs"),
    Column("Status"),
)  # fmt: skip
_FAMILY_COLUMNS = (
    Column("Path"), Column("Method", wraps=True), Column("Best [interval]", strong=True, wraps=True),
    *(Column(name, right=True, label=name) for name in ("% of peak", "Half rate from", "Small operations")),
)  # fmt: skip
# The title of each folded table, and its operations. The last one has all others.
_FOLDS: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("Copies by method", COPIES.__contains__),
    ("Latencies", lambda kind: kind == "ping_pong" or "latency" in kind),
    ("Atomics", lambda kind: kind.startswith("atomic")),
    ("Allocation", lambda kind: kind == "allocation"),
    ("Strided copies and halos", ("strided", "halo").__contains__),
    ("Copies in pieces", ("pieces",).__contains__),
    ("Reads and writes by kernels", ("read", "write").__contains__),
    ("Managed memory", ("demand", "prefetch").__contains__),
    ("Other operations", lambda kind: True),
)


def section(view: RunView) -> Section | None:
    """The table of plain copies, and folded tables of everything else. None if all values are of several transfers."""
    blocks: list[Block] = []
    if view.path_rows:
        most = open_rows(view.path_rows, MOST, FEW)
        table = SortedTable("Plain copies", _COLUMNS, _rows(view.path_rows, view.has_curves), most)
        blocks = [Paragraph(_NOTE, note=True), table]
    elif not any(point.median_s is not None for point in view.run.points):
        blocks = [Paragraph("No point has a value.")]
    blocks += [*_folds(view), *_peaks(view.run.points)]
    return Section("paths", "Paths", tuple(blocks)) if blocks else None


def _rows(rows: Sequence[PathRow], linked: bool) -> tuple[SortedRow, ...]:
    """The rows; the most important row of a path has its anchor. `linked`: the page has an explorer."""
    main: dict[str, PathRow] = {}
    for row in sorted(rows, key=importance):
        main.setdefault(path_anchor(row.kind, row.path.src, row.path.dst), row)
    made = []
    for row in rows:
        anchor = path_anchor(row.kind, row.path.src, row.path.dst)
        link = explorer_link(row.kind, row.path.src, row.path.dst, row.method) if linked else ""
        made.append(SortedRow(anchor if main[anchor] is row else "", link, _cells(row), _values(row)))
    return tuple(made)


def _cells(row: PathRow) -> tuple[str, ...]:
    name = f"within {row.path.src}" if row.path.src == row.path.dst else f"{row.path.src} → {row.path.dst}"
    rate = signed(rate_text(row.rate).replace(" GB/s", ""), [row.point]) if row.rate else ""
    time = ""
    if row.latency and row.smallest:
        time = signed(_microseconds(row.latency), [row.smallest])
    return (
        name, _method_text(row), rate, format_bytes(row.point.bytes) if row.rate else "",
        format_fraction(row.share).removesuffix(" %") if row.share is not None else "",
        _half_text(row), time, "" if row.status_text == "ok" else row.status_text,
    )  # fmt: skip


def _method_text(row: PathRow) -> str:
    """'pinned', 'pageable, bidirectional'; 'copy engine' only where nothing else is named."""
    return row.method_text.removeprefix(f"{ENGINES['ce']}, ")


def _microseconds(time: Estimate) -> str:
    """'2.29 [2.16, 2.38]'."""
    unresolved = unresolved_text(time.low, time.high)
    ends = (None if end is None else end * 1e6 for end in (time.low, time.high))
    return unresolved or " ".join(filter(None, with_interval(time.value * 1e6, *ends)))


def _values(row: PathRow) -> tuple[float | None, ...]:
    rate, latency = (of.value if of else None for of in (row.rate, row.latency))
    return None, None, rate, row.point.bytes, row.share, row.half_rate_bytes, latency, None


def _half_text(row: PathRow) -> str:
    """'256 KiB'; '1-16 MiB' where no size between these was measured."""
    if not row.half_rate_bytes:
        return ""
    if row.below_half is None or not has_gap(row.below_half, row.half_rate_bytes):
        return format_bytes(row.half_rate_bytes)
    return sizes_text((row.below_half, row.half_rate_bytes)).removeprefix(" at ").replace(" to ", "-")


def _folds(view: RunView) -> list[Block]:
    """A folded table for each kind of operation that the run has."""
    folds: list[Block] = []
    left = list(view.families)
    for title, belongs in _FOLDS:
        found = [family for family in left if belongs(family.family.benchmark)]
        left = [family for family in left if family not in found]
        if found:
            count = sum(len(family.rows) for family in found)
            table = without_empty_columns(Table(title, _FAMILY_COLUMNS, tuple(map(_group, found)), stacks=True))
            note = Paragraph(f"{_ROWS} {view.sign_means}.", note=True)
            folds.append(Fold(f"{title}: {count}", (note, table), role="more"))
    return folds


def _peaks(points: Iterable[Point]) -> list[Block]:
    """A folded list of all peaks, each with its derivation and the paths that have it."""
    paths: dict[tuple[float, str], set[Path]] = {}
    for point in points:
        if point.limit_gbps is not None:
            key = (point.limit_gbps, point.limit_source or "no derivation given")
            paths.setdefault(key, set()).add(path_of(point))
    lines = tuple(
        f"{_arrow(paths_text(sorted(of)))}: {format_rate(value)}, {source}"
        for (value, source), of in sorted(paths.items(), key=lambda pair: (sorted(pair[1]), pair[0]))
    )
    return [more(f"Peaks and their derivation: {len(lines)}", Listing(lines, aligned=True))] if lines else []


def _group(family: FamilyRows) -> Group:
    parts = [family.minor_params_text] if family.minor_params else []
    parts += [f"unless given: {family.usual}"] if family.usual else []
    parts += [f"peak: {family.limits}"] if family.limits else []
    rows = tuple(TableRow(_family_cells(row)) for row in family.rows)
    return Group(rows, _arrow(str(family.family)), family.sweep, "; ".join(parts))


def _family_cells(row: Row) -> tuple[str, ...]:
    best = f"{row.best_text} ({row.missed_text})" if row.missed_text else row.best_text
    small = [f"{text} {name}" for text, name in ((row.batched_text, "batched"), (row.single_text, "single")) if text]
    return (
        _arrow(row.paths) + (f", {row.path_count} paths" if row.path_count > 1 else ""),
        "; ".join(filter(None, (row.params, row.note))), f"{best} at {row.at_text}" if row.at_text else best,
        range_share(row.share), row.half_text,
        f"{row.smallest_text}: {', '.join(small)}" if row.smallest_text and row.rate else "",
    )  # fmt: skip


def _arrow(text: str) -> str:
    return text.replace("->", "→")
