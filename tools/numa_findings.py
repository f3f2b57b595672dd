"""Writes docs/notes/numa-findings.md: which findings of Spafford, Meredith and Vetter (GPGPU 2011) hold today.

Usage: .venv/bin/python tools/numa_findings.py     (reads results/, simulates machines/sl390.toml without noise)

An effect holds where it exceeds the drift of its run, or where the intervals of the compared rates do not overlap.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from computations_page import APPLICATIONS, FAR, NEAR, PUBLISHED, TRAFFIC, Keeneland
from findings import below

from linkscope.machine import model as models
from linkscope.model.curves import Estimate, rate_of, total_of
from linkscope.report.task_sets import Compared, task_sets
from linkscope.run.simulate import quiet, simulation
from linkscope.runfile import Flow, Point, PointId, Run, read_run

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "notes" / "numa-findings.md"
HOLDS, NOT, OPEN, UNTESTED = "holds", "does not hold", "undecided", "cannot be tested here"
ONE_NODE = "every machine of results/ shows one NUMA node"
PATHS, ALL_GPUS = "h200x4-standard-a", "h200x4-suite-nvbandwidth-b"
SP_9, SP_10, SP_11 = "h100x1-sp-9", "h100x1-sp-10", "h100x1-sp-11"
_ALIKE = 0.1  # shares of a link that differ by less are equal
_SAME_RATE = 0.02
LARGE, LARGEST = 64 << 20, 512 << 20
H2D = "h2d/ce/numa:0.pinned->gpu:{gpu}.device/{size}?after=kernel&bidirectional=false&mode=batched"
D2H = "d2h/ce/gpu:{gpu}.device->numa:0.pinned/{size}?after=kernel&mode=batched"
TO_ALL = "host_to_all/ce/numa:0.pinned->gpu:all.device/{size}?bidirectional=false"
TASKS = "tasks/ce/numa:0.pinned->gpu:0.device/67108864?{params}"
SCENARIOS = tuple((message, messages) for message in ("8B", "64KiB") for messages in ("each", "cores"))


@dataclass(frozen=True)
class Answer:
    """A verdict with its numbers; `run` names the run file, if a run was read."""

    verdict: str
    numbers: str
    run: str = ""

    def __str__(self) -> str:
        return f"**{self.verdict}**: {self.numbers}"


@dataclass(frozen=True)
class Finding:
    """What the paper found, and whether it holds on today's machines and on the model of its own machine."""

    item: str
    text: str
    today: Callable[[], Answer]
    modelled: Callable[[], Answer]


@cache
def run_of(name: str) -> Run:
    return read_run(ROOT / "results" / f"{name}.jsonl.gz", rounds=False)


def point_of(name: str, id: str) -> Point:
    return next(point for point in run_of(name).points if point.id == id)


def verdict(held: bool | None) -> str:
    return OPEN if held is None else HOLDS if held else NOT


def percent(fraction: float) -> str:
    return f"{round(100 * fraction, 1) + 0.0:.1f} %"  # + 0.0: no minus before a zero


class Model:
    """Seconds of one operation of each flow on the model of Keeneland."""

    @cached_property
    def computations(self) -> Keeneland:
        return Keeneland()

    @cache  # noqa: B019 (one model for the whole program)
    def flows(self, id: str) -> list[float]:
        with simulation() as simulated:
            (found,) = simulated.seconds(quiet(models.load("sl390").to_json()), [PointId.parse(id)])
        assert not isinstance(found, str), f"{id}: {found}"
        return found

    def rate(self, benchmark: str, node: str) -> float:
        """GB/s of a pinned copy of 64 MiB."""
        return 1e-9 / self.computations.per_byte(benchmark, node)


MODEL = Model()

# --- paths (SP-1, SP-2, SP-12) ---


def untested(why: str) -> Callable[[], Answer]:
    return lambda: Answer(UNTESTED, why)


def wrong_node() -> Answer:
    to, back = (1 - MODEL.rate(of, FAR) / MODEL.rate(of, NEAR) for of in ("h2d", "d2h"))
    return Answer(verdict(back > to > 0), f"{percent(to)} to the GPU, {percent(back)} from it")


def faster_from_the_gpu() -> Answer:
    to, back = (rate_of(point_of(PATHS, form.format(gpu=0, size=LARGE))) for form in (H2D, D2H))
    assert to and back
    return Answer(verdict(below(to, back)), f"{to.value:.1f} GB/s to the GPU, {back.value:.1f} from it", PATHS)


def faster_from_the_gpu_modelled() -> Answer:
    to, back = (MODEL.rate(of, NEAR) for of in ("h2d", "d2h"))
    return Answer(verdict(to < back), f"{to:.2f} GB/s to the GPU, {back:.2f} from it")


def all_at_once() -> Answer:
    each = [rate_of(point_of(ALL_GPUS, H2D.format(gpu=gpu, size=LARGEST))) for gpu in range(4)]
    total = total_of(point_of(ALL_GPUS, TO_ALL.format(size=LARGEST)))
    assert total and all(each)
    alone = Estimate(*(sum(getattr(one, end) for one in each) for end in ("value", "low", "high")))
    less = percent(1 - total.value / alone.value)
    text = f"{total.value:.0f} GB/s to four H200s, {alone.value:.0f} as a sum: {less} less"
    return Answer(verdict(below(total, alone)), text, ALL_GPUS)


def all_at_once_modelled() -> Answer:
    total = sum(LARGE / seconds for seconds in MODEL.flows(TO_ALL.format(size=LARGE)))
    alone = sum(LARGE / MODEL.flows(H2D.format(gpu=gpu, size=LARGE))[0] for gpu in range(3))
    return Answer(verdict(total < alone), f"{percent(1 - total / alone)} less to three GPUs from one node")


# --- computations and applications (SP-5, SP-7, SP-13) ---


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's, of values without ties."""
    ranks = [[sorted(values).index(value) for value in values] for values in zip(*pairs, strict=True)]
    squares = sum((one - other) ** 2 for one, other in zip(*ranks, strict=True))
    return 1 - 6 * squares / (len(pairs) * (len(pairs) ** 2 - 1))


def operations_per_byte() -> Answer:
    pairs = []
    for name, (there, back, operations) in TRAFFIC.items():
        pairs.append((operations / (there + back), MODEL.computations.found(name).over_good))
    correlation = rank_correlation(pairs)
    counted = [MODEL.computations.scan_as_counted() if name == "scan" else MODEL.computations.found(name)
               for name in PUBLISHED]  # fmt: skip
    mean = sum(found.over_good for found in counted) / len(counted)
    text = (
        f"rank correlation {correlation:.2f} over {len(pairs)} computations; mean of the published six {percent(mean)}"
    )
    return Answer(verdict(correlation < -0.5), text)


def lu_gap(gpus: str) -> float:
    """The time from the worst node over that from the best, minus 1, over all sets of so many GPUs."""
    form = "lu_gpus/sm/gpu:0.device->gpu:0.device/0?ahead=1&by={by}&gpus={gpus}&n=8192&node={node}&threads_on=near"
    found = [MODEL.flows(form.format(by="peer" if len(gpus) == 1 else "host", gpus=of, node=node))[0]
             for of in ({"0": "0", "01": "01 02 12", "012": "012"}[gpus]).split() for node in (0, 1)]  # fmt: skip
    return max(found) / min(found) - 1


def pinning() -> Answer:
    one, two, three = (lu_gap(gpus) for gpus in ("0", "01", "012"))
    text = f"the worst placement of an LU of order 8192 takes {percent(one)} longer on one GPU, {percent(two)} on two, "
    return Answer(verdict(max(two, three) > 2 * one), f"{text}{percent(three)} on three")


def stand_ins() -> Answer:
    found = [MODEL.computations.tasks(name, 1) for name in APPLICATIONS]
    text = f"stand-ins without CPU work lose {percent(min(found))} to {percent(max(found))}"
    return Answer(verdict(max(found) < 0.05), text)


def two_tasks() -> Answer:
    more = [MODEL.computations.tasks(name, 2) / MODEL.computations.tasks(name, 1) for name in APPLICATIONS]
    return Answer(verdict(min(more) > 1.02), f"two stand-ins lose {min(more):.2f} to {max(more):.2f} × what one loses")


# --- transfers beside messages (SP-9, SP-11) ---

Penalties = dict[tuple[str, str], float]  # over the good value, by size of messages and number of their tasks


def compared(run: str, name: str) -> dict[tuple[str, str], Compared]:
    return {
        (of.point.params["message"], of.point.params["messages"]): one
        for of in task_sets(run_of(run))
        for one in of.compared
        if one.name == name
    }


def modelled_penalties(name: str) -> Penalties:
    """Of the mean over tasks: of the rate of transfers, or of the time of messages."""
    found = {}
    for message, messages in SCENARIOS:
        shown = f"message={message}&messages={messages}&sets=all"
        both = MODEL.flows(TASKS.format(params=f"at=both&{shown}"))
        transfers = MODEL.flows(TASKS.format(params=f"at=transfers&{shown}"))
        if name == "transfers":
            pairs = list(zip(transfers, both[: len(transfers)], strict=True))
            found[message, messages] = sum(1 - alone / beside for alone, beside in pairs) / len(pairs)
        else:
            alone_s = MODEL.flows(TASKS.format(params=f"at=messages&{shown}"))
            pairs = list(zip(alone_s, both[len(transfers) :], strict=True))
            found[message, messages] = sum(beside / alone - 1 for alone, beside in pairs) / len(pairs)
    return found


def listed(penalties: Penalties) -> str:
    return ", ".join(f"{percent(penalties[key])} ({key[0]}, {key[1]})" for key in SCENARIOS)


def slowed(name: str) -> Answer:
    found = compared(SP_9, name)
    penalties = {key: one.over_good.mean for key, one in found.items()}
    drift = {key: abs(one.drift or 0.0) for key, one in found.items()}
    held = any(penalties[key] > drift[key] for key in found)
    return Answer(verdict(held), f"{listed(penalties)}; drift up to {percent(max(drift.values()))}", SP_9)


def slowed_modelled(name: str) -> Answer:
    penalties = modelled_penalties(name)
    return Answer(verdict(max(penalties.values()) > 0.005), listed(penalties))


def all_or_none(answers: Sequence[bool]) -> bool | None:
    return True if all(answers) else None if any(answers) else False


def more_tasks(penalties: Penalties) -> str:
    return verdict(all_or_none([penalties[of, "cores"] > penalties[of, "each"] for of in ("8B", "64KiB")]))


def small_least(penalties: Penalties) -> str:
    return verdict(all_or_none([penalties["8B", of] < penalties["64KiB", of] for of in ("each", "cores")]))


def of_messages(judge: Callable[[Penalties], str]) -> tuple[Callable[[], Answer], Callable[[], Answer]]:
    """The answers of a run and of the model, from the penalties of messages."""

    def today() -> Answer:
        penalties = {key: one.over_good.mean for key, one in compared(SP_9, "messages, median").items()}
        return Answer(judge(penalties), "see above", SP_9)

    return today, lambda: Answer(judge(modelled_penalties("messages")), "see above")


def threads_cost() -> Answer:
    """Microseconds that messages take longer by one thread than by two."""
    text, over_drift = [], False
    for message in ("8B", "64KiB"):
        one, two = (point_of(SP_11, TASKS.format(params=f"at=both&message={message}&messages=each&sets=1{threads}"))
                    for threads in ("&threads=one", ""))  # fmt: skip
        slow, fast = one.flows[1].p50_s, two.flows[1].p50_s
        assert slow and fast
        text.append(f"{1e6 * (slow - fast):.2f} µs for {message} ({1e6 * fast:.2f} µs by two)")
        drift = next(of.drift for key, of in compared(SP_11, "messages, median").items() if key[0] == message)
        over_drift = slow / fast - 1 > abs(drift or 0.0)  # of the large messages, which come last
    return Answer(verdict(over_drift), ", ".join(text), SP_11)


def _sets(threads: str) -> list[float]:
    return MODEL.flows(TASKS.format(params=f"at=both&message=64KiB&messages=each&sets=1{threads}"))


def threads_cost_modelled() -> Answer:
    more = _sets("&threads=one")[1] - _sets("")[1]
    return Answer(verdict(more > 1e-6), f"{1e6 * more:.1f} µs for 64KiB")


def same_bandwidth() -> Answer:
    ids = [TASKS.format(params=f"at=both&message=64KiB&messages=each&sets=1{of}") for of in ("&threads=one", "")]
    one, two = (point_of(SP_11, id).flows[0].gbps or 0.0 for id in ids)
    return Answer(verdict(abs(one / two - 1) < _SAME_RATE), f"{one:.1f} GB/s by one thread, {two:.1f} by two", SP_11)


def same_bandwidth_modelled() -> Answer:
    one, two = (LARGE / 1e9 / _sets(threads)[0] for threads in ("&threads=one", ""))
    return Answer(verdict(abs(one / two - 1) < _SAME_RATE), f"{one:.2f} GB/s by one thread, {two:.2f} by two")


# --- tasks that share a GPU (SP-10) ---


def _slowest(count: int) -> tuple[Flow, float]:
    """The slowest of tasks that copy to one GPU, and the rate of one task in GB/s."""
    to_gpu = TO_ALL.format(size=LARGE)
    alone, shared = point_of(SP_10, to_gpu), point_of(SP_10, f"{to_gpu}&tasks={count}")
    return min(shared.flows, key=lambda flow: flow.gbps or 0.0), alone.flows[0].gbps or 1.0


def of_slowest(count: int) -> float:
    """The rate of the slowest of tasks that copy to one GPU, over that of one task."""
    slowest, alone = _slowest(count)
    return (slowest.gbps or 0.0) / alone


def range_of_slowest(count: int) -> tuple[float, float]:
    """The 95 % interval of that share, for the measured rate of one task. [0, inf] without one."""
    slowest, alone = _slowest(count)
    if slowest.ci95_s is None:
        return 0.0, math.inf
    low_s, high_s = slowest.ci95_s
    return LARGE / high_s / 1e9 / alone, LARGE / low_s / 1e9 / alone


def of_slowest_modelled(count: int) -> float:
    to_all = TO_ALL.format(size=LARGE)
    return max(MODEL.flows(to_all)) / max(MODEL.flows(f"{to_all}&tasks={count}"))


def _shown(interval: tuple[float, float] | None) -> str:
    return f" [{interval[0]:.2f}, {interval[1]:.2f}]" if interval else ""


def equal_shares(
    of: Callable[[int], float],
    counts: Sequence[int],
    run: str = "",
    interval_of: Callable[[int], tuple[float, float]] | None = None,
) -> Answer:
    """Undecided if the interval of each share that is not equal contains the equal share."""
    found = {count: of(count) for count in counts}
    far = [count for count, share in found.items() if abs(share * count - 1) >= _ALIKE]
    ranges = {count: interval_of(count) for count in far} if interval_of else {}
    held = verdict(not far)
    if far and all(count in ranges and ranges[count][0] <= 1 / count <= ranges[count][1] for count in far):
        held = OPEN
    text = ", ".join(
        f"{share:.2f}{_shown(ranges.get(count))} of the rate with {count} tasks" for count, share in found.items()
    )
    return Answer(held, text, run)


def collapse(of: Callable[[int], float], counts: Sequence[int], run: str = "") -> Answer:
    found = {count: of(count) for count in counts}
    text = ", ".join(f"the slowest of {count} gets {share:.3f} of the rate" for count, share in found.items())
    return Answer(verdict(any(share < 0.5 / count for count, share in found.items())), text, run)


_MORE, _MORE_MODELLED = of_messages(more_tasks)
_SMALL, _SMALL_MODELLED = of_messages(small_least)
FINDINGS = (
    Finding("SP-1, SP-2", "copies from and to the wrong NUMA node are 13 % and 31 % slower", untested(ONE_NODE),
            wrong_node),
    Finding("SP-2", "from the right node, copies from a GPU are slightly faster than copies to it",
            faster_from_the_gpu, faster_from_the_gpu_modelled),
    Finding("SP-3, SP-4", "messages of MPI between nodes take 12 to 26 % longer from the wrong NUMA node",
            untested("no run has two nodes"), untested("the model is one node")),
    Finding("SP-5", "the penalty of the wrong node falls as operations per byte rise; the mean is 13.5 %",
            untested(ONE_NODE), operations_per_byte),
    Finding("SP-7", "HPL is up to 21 % slower with the worst pinning on 64 nodes; pinning has no effect on one task",
            untested(ONE_NODE), pinning),
    Finding("SP-9", "messages at the same time slow transfers", lambda: slowed("transfers"),
            lambda: slowed_modelled("transfers")),
    Finding("SP-9", "transfers at the same time slow messages", lambda: slowed("messages, median"),
            lambda: slowed_modelled("messages")),
    Finding("SP-9", "messages on all other cores are slowed more than one message task a GPU", _MORE, _MORE_MODELLED),
    Finding("SP-9", "small messages suffer least", _SMALL, _SMALL_MODELLED),
    Finding("SP-10", "two and three tasks a GPU get a half and a third of the rate",
            lambda: equal_shares(of_slowest, (2, 3), SP_10, range_of_slowest),
            lambda: equal_shares(of_slowest_modelled, (2, 3))),
    Finding("SP-10", "with four tasks a GPU the slowest collapses, to 0.07 GB/s",
            lambda: collapse(of_slowest, (4, 8, 16), SP_10), lambda: collapse(of_slowest_modelled, (4,))),
    Finding("SP-11", "one thread for transfers and messages adds about 5 µs to large messages", threads_cost,
            threads_cost_modelled),
    Finding("SP-11", "with one set, the bandwidth of one thread is that of two", same_bandwidth,
            same_bandwidth_modelled),
    Finding("SP-12", "all GPUs at once get less than each alone, up to 30 % less", all_at_once, all_at_once_modelled),
    Finding("SP-13", "applications lose 0.5 to 4 % on the wrong node", untested(ONE_NODE), stand_ins),
    Finding("SP-13", "two tasks on exchanged nodes lose more than one task", untested(ONE_NODE), two_tasks),
)  # fmt: skip


def page() -> str:
    """The whole page."""
    rows = [(finding, finding.today(), finding.modelled()) for finding in FINDINGS]
    today = [answer.verdict for _, answer, _ in rows]
    modelled = [answer.verdict for _, _, answer in rows]

    def counted(verdicts: Sequence[str]) -> str:
        words = {HOLDS: "hold", NOT: "do not hold", OPEN: "undecided", UNTESTED: "cannot be tested"}
        return ", ".join(f"{verdicts.count(one)} {text}" for one, text in words.items() if one in verdicts)

    lines = [
        "# Findings of Spafford, Meredith and Vetter today\n",
        "<!-- Made by tools/numa_findings.py: change that. -->\n",
        "**Question.** Which findings of the paper of 2011, made on Keeneland, hold on H100s and H200s?\n",
        f"**Answer.** Of {len(rows)} findings, on machines of 2026: {counted(today)}. On the model of Keeneland, "
        f"MODELLED: {counted(modelled)}.\n",
        "**Command.** `.venv/bin/python tools/numa_findings.py` reads the runs in results/ and simulates "
        "machines/sl390.toml without noise.\n",
        "An effect holds where it exceeds the drift of its run, or where the intervals of the compared rates do not "
        "overlap. Penalties are over the good value. `each`: one message task for each transfer; `cores`: message "
        "tasks on all other cores. SP-6 (sizes), SP-8 (the method) and SP-14 (the machines) are not findings. The run "
        "of SP-10 has one GPU; the paper copied to three. The model is fitted "
        "to the 13 % of SP-2, so only its other answers are predictions.\n",
        "| item | the paper found | today | run | on the model of Keeneland, MODELLED |\n|---|---|---|---|---|",
    ]
    for finding, now, then in rows:
        lines.append(f"| {finding.item} | {finding.text} | {now} | {f'`{now.run}`' if now.run else ''} | {then} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
