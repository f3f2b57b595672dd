"""Section: who should drive a message, a GPU or the host."""

from collections.abc import Sequence
from dataclasses import replace

from linkscope.report.put_get import (
    MODES,
    TOGETHER,
    Compared,
    Connections,
    Message,
    Queued,
    Series,
    all_series,
    at_once,
    blocks_of,
    bystanders,
    connections,
    mode_of,
    queued,
    relaunched,
    seconds_of,
)
from linkscope.report.put_get_claims import Claim, claims
from linkscope.report.put_get_singles import singles
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Group,
    Items,
    Output,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    Text,
    folded,
    more,
    table,
)
from linkscope.report.trust import signed
from linkscope.runfile import Point
from linkscope.stats import Interval
from linkscope.units import format_bytes, format_fraction, format_rate, format_seconds, format_seconds_interval

_TITLE = "Put and get: who should drive"
_TITLES = {Output.PAGE: "Put/get: who should drive"}
_NOTE = (
    "A GPU drives a message if its threads move the payload; the words that end it lie in GPU memory (direct) or in "
    "host memory (notified). The host drives it by a copy engine, alone (host) or when a GPU asks (assisted). The "
    "faster mode of each counts, with the fastest number of threads and kind of word. Between hosts the driver posts "
    "to a network card, whose notifications it takes; in mode direct a GPU polls the last word of the payload. "
    "Either: the 95 % interval of the ratio of their times contains 1. Not known: too few rounds for an interval. "
)
_SHORT = (
    "A GPU drives a message if its threads move the payload; the host drives it by a copy engine. Between hosts the "
    "driver posts it to a network card. Either: the interval of the ratio of their times contains 1. Not known: it has "
    "no interval."
)
_OF_CONNECTIONS = (
    "Messages a second over a number of connections, and the share of the time that all of them ran together. A rate "
    f"is left out below {format_fraction(TOGETHER)}."
)
_OF_QUEUES = (
    "Round trips of puts that a GPU posts as descriptors to a ring, which a kernel, a thread of the host or a network "
    "card carries out. Posting: the share of the time in which the GPU posts, by posts alone to a ring in the same "
    "memory. It polls in the rest."
)
_OF_RELAUNCHES = (
    "A kernel for each message, which the host launches and waits for, against one that stays. Its words lie in host "
    "memory, where the host polls."
)
_OF_BYSTANDERS = "Products of bf16 matrices beside blocks of one thread that post to host memory, or poll there."
_OF_SINGLES = (
    "Single messages, in a batch of their own. A block stamps the end of each by the clock of its SM, a CPU thread by "
    "the host's clock. A stream's time is that between two messages. Brackets: 95 % intervals over the rounds. A "
    "stamp: the mean of stamped messages less that of others, with the noise of both. Bare word: the median over that "
    "of a word there and back on the same path."
)
_CLAIMS = "Conclusions of Klenk, Oden and Froning, on this machine:"
_NAMES = {
    "put_ping_pong": "Round trip, written by the sender", "get_ping_pong": "Round trip, fetched by the receiver",
    "put": "Stream of messages, written by the sender", "get": "Stream of messages, fetched by the receiver",
}  # fmt: skip
_SHORT_NAMES = {
    "put_ping_pong": "round trips written", "get_ping_pong": "round trips fetched", "put": "streams written",
    "get": "streams fetched",
}  # fmt: skip
_COLUMNS = (
    Column("Size", strong=True), *(Column(mode, right=True, label=mode) for mode in MODES),
    Column("Drive by", label="Drive by"), Column("Host over GPU", right=True, label="Host over GPU"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """The advice of each path, the times behind it, rates by connections and claims. None without such messages."""
    every = all_series(view.run)
    series = [one for one in every if one.advice]
    through = queued(view.run)
    others = [*_others(view), *_single_messages(view)]
    beside = _most_slowed(view)
    if not (series or through or others):
        return None
    if not series:
        polls = [_claim(one) for one in claims(view.run) if one.tested]
        held_here = (Paragraph(_CLAIMS), Items.of(polls)) if polls else ()
        by_queues = (Paragraph(_OF_QUEUES), _queues(through)) if through else ()
        times = tuple(map(_fastest, every))
        listed = (Items.of(times),) if times else ()
        parts = (*listed, *others, *by_queues, *held_here)
        return Section("put-get", _TITLE, parts, _TITLES, label="Messages", answers=(*times, *beside))
    advice = [(Span(f"{_name(one)}: ", "strong"), f"{one.advice}.") for one in series]
    answers = (*_by_advice(series), *beside)
    blocks: list[Block] = [
        Paragraph(_SHORT, on=Output.PAGE),
        Paragraph(_NOTE.strip(), on=Output.TERMINAL | Output.MARKDOWN),
        Items.of(advice, on=Output.TERMINAL | Output.MARKDOWN),
        Items.of(answers, on=Output.PAGE),
    ]
    whole = Table("Times of messages", _COLUMNS, tuple(map(_group, series)), stacks=True)
    count = sum(len(one.messages) for one in series)
    note = Paragraph((_NOTE, METHOD), note=True)
    blocks.append(more(f"Times of all {count} messages, and what the modes are", note, whole))
    blocks.append(replace(whole, on=Output.MARKDOWN))
    if rates := connections(view.run):
        blocks += folded(f"Rates by connections: {len(rates)}", Paragraph(_OF_CONNECTIONS), _rates(rates))
    if others:
        blocks += folded("Kernels for each message, bystanders of kernels that stay, and single messages", *others)
    if through:
        blocks += folded(f"Puts through descriptors: {len(through)}", Paragraph(_OF_QUEUES), _queues(through))
    held = claims(view.run)
    of_claims = Items.of([_claim(one) for one in held])
    blocks += folded(f"{len(held)} conclusions of a paper, on this machine", Paragraph(_CLAIMS), of_claims)
    return Section("put-get", _TITLE, tuple(blocks), _TITLES, label="Drive by", answers=answers)


def _fastest(series: Series) -> Text:
    """The time of the smallest message, or the best rate of a stream, by the fastest mode that was measured."""
    points = [min(message.modes.values(), key=seconds_of) for message in series.messages if message.modes]
    if series.is_stream:
        best = max(points, key=lambda point: point.bytes / seconds_of(point))
        value = signed(format_rate(best.bytes / seconds_of(best) / 1e9), [best])
    else:
        best = points[0]
        value = signed(format_seconds(seconds_of(best)), [best])
    named = f"{_SHORT_NAMES[series.benchmark]}, {_path(series)}"
    return f"{named}: {format_bytes(best.bytes)} {value} ({mode_of(best)})."


def _most_slowed(view: RunView) -> list[Text]:
    """How much longer products take beside the blocks that slow them most. Nothing without such points."""
    found = bystanders(view.run)
    if not found:
        return []
    worst = max(found, key=lambda one: one.ratio)
    point, count = worst.point, blocks_of(worst.point)
    blocks = f"{count} blocks that {point.params['beside']}" if count > 1 else f"a block that {point.params['beside']}s"
    value = signed(f"×{_with_ends(worst.ratio, worst.interval)}", [point, worst.before])
    return [f"products of matrices are slowed most by {blocks}, {point.src} → {point.dst}: {value} of the time alone."]


def _by_advice(series: Sequence[Series]) -> list[Text]:
    """The advice of all messages, each once, with the messages that it concerns."""
    alike: dict[str, list[Series]] = {}
    for one in series:
        alike.setdefault(one.advice, []).append(one)
    messages: dict[str, set[str]] = {}  # the benchmarks of each path
    for one in series:
        messages.setdefault(_path(one), set()).add(one.benchmark)
    texts: list[Text] = []
    for advice, of in alike.items():
        by_path: dict[str, set[str]] = {}
        for one in of:
            by_path.setdefault(_path(one), set()).add(one.benchmark)
        named = (
            f"{path} ({', '.join(_SHORT_NAMES[name] for name in sorted(found)) if found < messages[path] else 'all'})"
            for path, found in by_path.items()
        )
        texts.append((Span(f"{advice}: ", "strong"), f"{'; '.join(named)}."))
    return texts


def _path(series: Series) -> str:
    return f"{series.src} → {series.dst}"


def _name(series: Series) -> str:
    return f"{_NAMES[series.benchmark]}, {series.src} -> {series.dst}"


def _group(series: Series) -> Group:
    return Group(tuple(_row(message) for message in series.messages if message.driver), head=_name(series))


def _row(message: Message) -> Row:
    ratio = "-" if message.ratio is None else _with_ends(message.ratio, message.interval)
    times = (_time(message.modes.get(mode)) for mode in MODES)
    return Row((format_bytes(message.bytes), *times, (Span(message.driver, "strong"),), ratio))


def _with_ends(ratio: float, ends: Interval | None) -> str:
    return f"{ratio:.3g}" + (f" [{ends.low:.3g}, {ends.high:.3g}]" if ends else "")


def _time(point: Point | None) -> Text:
    if point is None or point.median_s is None:
        return "-"
    low, high = (end / at_once(point) for end in point.ci95_s) if point.ci95_s else (None, None)
    text = format_seconds_interval(seconds_of(point), low, high)
    return f"{text} ~" if point.status == "missed_precision" else text


def _rates(rates: Sequence[Connections]) -> Table:
    """A row for each path and mode, a column for each number of connections."""
    counts = sorted({one.count for one in rates})
    found: dict[tuple[str, str], dict[int, Connections]] = {}
    for one in rates:
        point = one.point
        name = f"{format_bytes(point.bytes)} {point.benchmark} {point.src} -> {point.dst}"
        found.setdefault((name, one.form), {})[one.count] = one
    columns = [Column("Messages", strong=True), Column("Mode", label="Mode")]
    columns += [Column(str(count), right=True, label=f"{count} connections") for count in counts]
    rows = [(*key, *(_rate(of.get(count)) for count in counts)) for key, of in found.items()]
    return table("Rates by connections", columns, rows)


def _queues(of: Sequence[Queued]) -> Table:
    columns = [
        Column("Path", strong=True),
        Column("Carried out by", label="Carried out by"),
        Column("Ring", label="Ring"),
    ]
    names = ("Descriptor", "Size", "Round trip", "Posting")
    columns += [Column(name, right=True, label=name) for name in names]
    rows = [
        (
            f"{one.point.src} -> {one.point.dst}",
            one.server,
            one.ring,
            format_bytes(one.descriptor),
            format_bytes(one.point.bytes),
            _time(one.point),
            "-" if one.posting is None else format_fraction(one.posting),
        )
        for one in of
    ]
    return table("Puts through descriptors", columns, rows)


def _others(view: RunView) -> list[Block]:
    """Relaunched kernels, and what others lose beside those that stay."""
    blocks: list[Block] = []
    if kernels := relaunched(view.run):
        names = [f"{one.point.benchmark} {one.point.src} -> {one.point.dst}" for one in kernels]
        sizes = [format_bytes(one.point.bytes) for one in kernels]
        heads = ("Messages", "Size", "Stays", "Relaunched", "Ratio")
        blocks += [Paragraph(_OF_RELAUNCHES), _compared("Relaunched kernels", heads, names, sizes, kernels)]
    if beside := bystanders(view.run):
        names = [f"{one.point.src}, {one.point.params['beside']}" for one in beside]
        counts = [str(blocks_of(one.point)) for one in beside]
        heads = ("Beside", "Blocks", "Alone", "Product", "Slowdown")
        blocks += [Paragraph(_OF_BYSTANDERS), _compared("Bystanders", heads, names, counts, beside)]
    return blocks


def _single_messages(view: RunView) -> list[Block]:
    found = singles(view.run)
    if not found:
        return []
    names = ("Size", "p50", "p99", "A stamp", "Over bare word")
    columns = [Column("Messages", strong=True), Column("Form", label="Form")]
    columns += [Column(name, right=True, label=name) for name in names]
    rows = [
        (
            f"{one.point.benchmark} {one.point.src} -> {one.point.dst}",
            one.form,
            format_bytes(one.point.bytes) if one.point.bytes else "a word",
            format_seconds_interval(one.flow.p50_s or 0.0, *(one.flow.p50_ci95_s or (None, None))),
            format_seconds_interval(one.flow.p99_s or 0.0, *(one.flow.p99_ci95_s or (None, None))),
            f"{one.point.guards['stamp_cost_s'] * 1e9:.0f} ns",
            f"{one.over_word:.3g}" if one.over_word else "-",
        )
        for one in found
    ]
    return [Paragraph(_OF_SINGLES), table("Single messages", columns, rows)]


def _compared(
    title: str, heads: Sequence[str], names: Sequence[str], what: Sequence[str], of: Sequence[Compared]
) -> Table:
    columns = [Column(heads[0], strong=True), *(Column(name, right=True, label=name) for name in heads[1:])]
    rows = [
        (name, which, _time(one.before), _time(one.point), _with_ends(one.ratio, one.interval))
        for name, which, one in zip(names, what, of, strict=True)
    ]
    return table(title, columns, rows)


def _rate(one: Connections | None) -> str:
    if one is None:
        return "-"
    return f"{f'{one.per_s / 1e6:.3g} M/s' if one.counts else '-'}, {format_fraction(one.together)}"


def _claim(claim: Claim) -> Text:
    return (f"{claim.item}. {claim.text}: ", Span(claim.answer, "strong"), f" ({claim.evidence}).")
