"""Error counters that rose during a run, and CPU time that a hypervisor took."""

from linkscope.model.curves import natural
from linkscope.model.text import places_text
from linkscope.report.finding import Finding
from linkscope.report.uniformity import between_gpus
from linkscope.runfile import Run
from linkscope.units import format_fraction

_STEAL = 0.01  # of the CPU time; less is not reported
_EVEN = 2.0  # counts that differ by at most this factor do not single out a GPU
_SUSPECT, _MANY = 8.0, 50  # a GPU with more errors, and this multiple of the least, is suspect even at good rates
_LOST = frozenset({"ecc_uncorrected", "nvlink_recovery"})  # data or a link was lost; other errors were repaired
_NAMES = {
    "nvlink_crc_data": "NVLink CRC errors",
    "nvlink_crc_flit": "NVLink CRC errors of control packets",
    "nvlink_replay": "NVLink replays",
    "nvlink_recovery": "NVLink recoveries",
    "pcie_replays": "PCIe replays",
    "ecc_uncorrected": "uncorrected ECC errors",
    "ecc_corrected": "corrected ECC errors",
}
# By the first word of a counter: the part at fault if one GPU has most errors, and what to do.
_CURES = {
    "nvlink": ("links", "reseat or replace them (nvidia-smi nvlink -e)"),
    "pcie": ("PCIe slot", "reseat the GPU"),
    "ecc": ("memory", "have the GPU replaced"),
}

_LOST_PACKETS = 1e-3  # of the segments of a host


def counter_findings(run: Run) -> list[Finding]:
    """One finding for each counter that rose, lost data first; then one for stolen CPU time."""
    gained, steal = run.gained()
    by_counter: dict[str, dict[str, int]] = {}
    for gpu, counts in sorted(gained.items(), key=lambda item: natural(item[0])):
        for name, count in counts.items():
            by_counter.setdefault(name, {})[gpu] = count
    gpus = sum("gpu:" in place for place in run.header.machine.get("places", []))
    pairs = _pairs_text(run) if by_counter else ""
    order = sorted(by_counter, key=lambda name: (name not in _LOST, name))
    found = [_finding(name, by_counter[name], gpus, pairs) for name in order]
    found += [Finding("lost packets", text, ()) for text in _lost_packets(run)]
    if steal > _STEAL:
        text = f"The hypervisor took {format_fraction(steal)} of the CPU time. CPU rates may be too low."
        found.append(Finding("steal", text, ()))
    return found


def _lost_packets(run: Run) -> list[str]:
    shares = {host: of["sent_again"] / of["sent"] for host, of in run.tcp().items() if of["sent"]}
    worst = max(shares, key=lambda host: shares[host], default="")
    if not worst or shares[worst] < _LOST_PACKETS:
        return []
    return [
        f"TCP sent {format_fraction(shares[worst])} of the segments of {worst} again: the network loses packets. "
        "Messages between the hosts wait for them, so their times scatter."
    ]


def _finding(name: str, counts: dict[str, int], gpus: int, pairs: str) -> Finding:
    """`pairs`: what repeated packets of NVLink cost."""
    low, high = min(counts.values()), max(counts.values())
    everywhere = "both GPUs" if gpus == 2 else f"all {gpus} GPUs"
    where = everywhere if len(counts) == gpus > 1 else places_text(counts)
    numbers = f"{low} to {high} a GPU" if low != high else f"{low} a GPU" if len(counts) > 1 else str(low)
    text = f"{_NAMES.get(name, name)} rose on {where} (by {numbers})."
    if name in _LOST:
        return Finding("errors", f"{text} Data or links were lost: check the GPUs before you use this run.", ())
    gpus = max(gpus, len(counts))
    least = low if len(counts) == gpus else 0  # a GPU whose count did not rise is not among them
    suspect = gpus > 1 and high > _MANY and high > _SUSPECT * least
    if gpus > 1:
        text += f" {_uneven(name, counts, least, suspect)}"
    if name.startswith("nvlink") and not suspect:
        text += f" The links sent these packets again{pairs}"
    return Finding("repeats", text, ())


def _uneven(name: str, counts: dict[str, int], least: int, suspect: bool) -> str:
    """Whether one GPU has more errors than the others, and what to do then."""
    most = max(counts, key=lambda gpu: counts[gpu])
    high = counts[most]
    part, cure = _CURES.get(name.partition("_")[0], ("hardware", "have the GPU checked"))
    if high <= _EVEN * least:
        return f"The counts are even, so no {'GPU' if part == 'memory' else 'link'} is suspect."
    more = (
        f"{most} has {high / least:.2g} times the lowest count" if least else f"{most} has {high}, and another GPU none"
    )
    if not suspect:
        return f"{more}: if its count is again the highest in the next run, check its {part}."
    numbers = f" ({high} against {least})" if least else ""
    return f"{more}{numbers}. Suspect its {part}: run again, and if its count is again the highest, {cure}."


def _pairs_text(run: Run) -> str:
    """What repeated packets cost: the end of a sentence, and what to do."""
    if (between := between_gpus(run)) is None:
        return "."
    if between.differs:
        return ", which can slow a pair: compare the counts of the slow pair (nvidia-smi nvlink -e)."
    if between.interval is None:
        return ". Too few rounds show whether a pair is slow: measure the pairs again with more --rounds."
    if not between.is_uniform:
        return ", which can slow a pair, and GPU pairs may differ: measure them again with more --rounds."
    return ", and all GPU pairs are uniform: nothing to do now (later counts: nvidia-smi nvlink -e)."
