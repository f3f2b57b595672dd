"""The verdict of a comparison in a few sentences."""

from collections.abc import Sequence

from linkscope.compare.groups import Group
from linkscope.compare.history import Change
from linkscope.compare.verdict import CHANGED, JUDGED, WORSE, Comparison
from linkscope.model.curves import MODE
from linkscope.model.text import count_text, point_text
from linkscope.runfile import SIZE_CLASSES
from linkscope.stats import median
from linkscope.units import format_bytes, format_fraction

_MOST_NAMED = 2  # failed points that are named
_CONFIRM = "Measure a second pair of runs before you act: a change is real if that pair shows it too."


def headline(comparison: Comparison, *, noisy: bool = False, history: Sequence[Change] | None = None) -> str:
    """'Nothing got worse. The smallest detectable change is 0.7 % (pinned) and 1.5 % (peer) from 1 MiB.'

    `history`: the changes over three runs or more, of which the comparison is that of the first and the last.
    """
    said = [_few(comparison, noisy), *_worse(comparison, noisy)]
    if history is not None:
        said += _between(comparison, history, noisy)
    said += _reach(comparison, noisy)
    if any(pair.verdict in WORSE for pair in comparison.pairs):
        said.append(_CONFIRM)
    return " ".join(filter(None, said))


def _few(comparison: Comparison, noisy: bool) -> str:
    """How few points could be compared, and why; why there is no verdict."""
    ends = "" if comparison.worse(noisy=noisy) else ": no verdict"
    if comparison.few:
        before, after = comparison.measured
        why = f" ({'; '.join(comparison.unlike)})" if comparison.unlike else ""
        points = count_text(len(comparison.pairs), "point")
        return f"Only {points} could be compared, of {before} measured before and {after} after{why}{ends}."
    if ends and comparison.undecided(noisy=noisy):
        return f"No verdict: none of {count_text(len(comparison.pairs), 'compared point')} can be judged."
    return ""


def _worse(comparison: Comparison, noisy: bool) -> list[str]:
    """The points that failed, got slower, or are slower and not judged; then those that got better."""
    worse = comparison.worse(noisy=noisy)
    broken = [pair for pair in worse if pair.verdict == "broken"]
    slower = [pair for pair in worse if pair.verdict == "slower"]
    unjudged = [pair for pair in comparison.worse(noisy=True) if not (noisy or pair.judged)]
    said = []
    if broken:
        names = "; ".join(point_text(pair.before) for pair in broken[:_MOST_NAMED])
        more = f"; and {len(broken) - _MOST_NAMED} more" if len(broken) > _MOST_NAMED else ""
        said.append(f"{count_text(len(broken), 'point')} failed that worked before: {names}{more}.")
    if slower:
        paths = {(pair.path, pair.method, pair.before.params.get(MODE, "")) for pair in slower}
        said.append(f"{count_text(len(paths), 'path')} got slower, at {count_text(len(slower), 'size')}.")
    if not worse and not comparison.undecided(noisy=noisy):
        said.append("Nothing judged got worse." if unjudged else "Nothing got worse.")
    if unjudged:
        memories = _and(sorted({pair.group.name for pair in unjudged}))
        isare = "is" if len(unjudged) == 1 else "are"
        said.append(
            f"{count_text(len(unjudged), 'point')} ({memories}) {isare} slower, but not judged: noise hides a change "
            f"of {format_fraction(JUDGED)} (--noisy judges such points)."
        )
    if better := [pair for pair in comparison.changed(noisy=noisy) if pair.verdict not in WORSE]:
        said.append(f"{count_text(len(better), 'point')} got better.")
    return said


def _between(comparison: Comparison, history: Sequence[Change], noisy: bool) -> list[str]:
    """The points that changed within the history, and of which the first and the last run show no change."""
    shown = {pair.id for pair in comparison.pairs if pair.verdict in CHANGED}
    ids = {one.point.id for one in history if (noisy or one.judged) and one.point.id not in shown}
    said = [f"{count_text(len(ids), 'more point')} changed within the history, listed below."] if ids else []
    return ["This compares the first run with the last.", *said]


def _reach(comparison: Comparison, noisy: bool) -> list[str]:
    """The smallest changes that the comparison detects."""
    seen, unseen = _seen_by_group(comparison, noisy)
    said = []
    if seen:
        said.append(f"The smallest detectable change is {_listed(seen)}.")
    if unseen:
        listed = _listed(unseen, name_first=True)
        said.append(f"Too noisy to judge (smallest detectable change in brackets): {listed}.")
    return said


def _listed(changes: dict[Group, float], *, name_first: bool = False) -> str:
    """'1.3 % (pinned) and 3.2 % (peer) from 1 MiB, and 6 % (latency)': groups of one size class stand together."""
    by_class: dict[int, list[str]] = {}
    for group, change in changes.items():
        value = format_fraction(change)
        text = f"{group.name} ({value})" if name_first else f"{value} ({group.name})"
        by_class.setdefault(group.size_class, []).append(text)
    parts = [f"{_and(texts)}{_SIZES[size_class]}" for size_class, texts in sorted(by_class.items(), reverse=True)]
    return ", and ".join(parts)


_SMALL, _LARGE = map(format_bytes, SIZE_CLASSES)
_SIZES = {2: f" from {_LARGE}", 1: f" from {_SMALL} to {_LARGE}", 0: f" below {_SMALL}", -1: ""}


def _seen_by_group(comparison: Comparison, noisy: bool) -> tuple[dict[Group, float], dict[Group, float]]:
    """The median detectable change of the largest sizes of each group: of groups that are judged, and of others."""
    largest: dict[str, Group] = {}
    for pair in comparison.pairs:
        largest[pair.group.name] = max(pair.group, largest.get(pair.group.name, pair.group))
    seen: dict[Group, float] = {}
    unseen: dict[Group, float] = {}
    for group in largest.values():
        known = [p.detectable for p in comparison.pairs if p.group == group and p.detectable is not None]
        if known:
            change = median(known)
            (seen if noisy or change <= JUDGED else unseen)[group] = change
    return seen, unseen


def _and(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
