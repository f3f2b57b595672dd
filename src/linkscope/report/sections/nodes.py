"""Section: messages between nodes, and the links that pairs of nodes share."""

from collections.abc import Mapping
from statistics import median

from linkscope.report.nodes import Between, Pair, Together, hosts_of, pairs_of, together_of
from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Block, Column, Items, Paragraph, Section, table
from linkscope.units import format_fraction, format_rate, format_seconds

_TITLE = "Nodes"
_NOTE = (
    "One rank of each node exchanges messages with those of other nodes. Pairs that run at once in a round share no "
    "node. Latency is half of a round trip of 8 B. Pairs at once share a link if together they reach less than 90 % of "
    "the sum of their rates alone. "
)
_COLUMNS = (
    Column("From", strong=True), Column("To", strong=True), Column("Latency", right=True, label="Latency"),
    Column("Rate", right=True, label="Rate"),
)  # fmt: skip
_MOST_ROWS = 40


def section(view: RunView) -> Section | None:
    """Shared links first, then the pairs, the slowest first where they are many. None for a run without pairs."""
    points = [point for point in view.run.points if point.benchmark in ("node_rate", "node_ping_pong")]
    hosts = hosts_of(view.run.header.machine)
    pairs = pairs_of(points)
    if not pairs:
        return None
    blocks: list[Block] = [Paragraph((_NOTE, METHOD), note=True)]
    answers = [sentence(one, hosts) for one in together_of(points)]
    if answers:
        blocks.append(Items.of(answers))
    rates = {pair: of.gbps for pair, of in pairs.items() if of.gbps}
    if len(rates) > 1:
        slow = min(rates, key=lambda pair: rates[pair])
        answers.append(
            f"Rates of {len(rates)} pairs: median {format_rate(median(rates.values()))}, lowest "
            f"{format_rate(rates[slow])} ({hosts[slow[0]]} → {hosts[slow[1]]})."
        )
        blocks.append(Paragraph(answers[-1]))
    rows = [_row(pair, of, hosts) for pair, of in _slowest(pairs)]
    title = "Pairs of nodes" if len(rows) == len(pairs) else f"The {len(rows)} slowest of {len(pairs)} pairs of nodes"
    blocks.append(table(title, _COLUMNS, rows))
    return Section("nodes", _TITLE, tuple(blocks), label="Nodes", answers=tuple(answers))


def sentence(one: Together, hosts: Mapping[str, str]) -> str:
    """What pairs at once reach, and what they share."""
    count = len(one.pairs)
    bounds = f" [{one.interval[0]:.3g}, {one.interval[1]:.3g}]" if one.interval else ""
    reach = f"{format_rate(one.gbps)}{bounds} together"
    alone = f"alone {format_rate(one.alone_gbps / count)} each"
    share = format_fraction(one.gbps / one.alone_gbps)
    if one.to:
        who = f"{count} nodes that send to {hosts[one.to]}"
        what = f"they share the link of {hosts[one.to]}"
    else:
        ends = ", ".join(f"{hosts[src]} → {hosts[dst]}" for src, dst in one.pairs[:4]) + (", …" if count > 4 else "")
        who = f"{count} pairs at once ({ends})"
        what = f"{_members(one)} a link between nodes"
    if one.shares:
        return f"{who} reach {reach}, {share} of the sum of their rates ({alone}): {what}"
    return f"{who} reach {reach}, {share} of the sum of their rates ({alone}): no shared link is seen"


def _members(one: Together) -> str:
    return "all share" if len(one.slowed) == len(one.pairs) else f"{len(one.slowed)} of them are slowed, and share"


def _slowest(pairs: Mapping[Pair, Between]) -> list[tuple[Pair, Between]]:
    found = list(pairs.items())
    if len(found) <= _MOST_ROWS:
        return found
    return sorted(found, key=lambda item: item[1].gbps or 0.0)[:_MOST_ROWS]


def _row(pair: Pair, of: Between, hosts: Mapping[str, str]) -> tuple[str, ...]:
    latency = format_seconds(of.latency_s) if of.latency_s else "-"
    return hosts[pair[0]], hosts[pair[1]], latency, format_rate(of.gbps) if of.gbps else "-"
