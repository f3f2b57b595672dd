"""What a run lacks for the answer on one transfer, and how to measure it."""

import shlex
from typing import TYPE_CHECKING, NoReturn

from linkscope.errors import NOT_HERE, UserError
from linkscope.flow import kind_of
from linkscope.units import format_bytes

if TYPE_CHECKING:
    from linkscope.advise.question import Question
    from linkscope.runfile import Run


def refuse_with_run(asked: "Question", run: "Run", *, has_model: bool) -> NoReturn:
    """Raises UserError with the reason why the run has no method for the transfer."""
    from linkscope.advise import kinds
    from linkscope.advise.methods import FRESH
    from linkscope.model.curves import Path
    from linkscope.model.text import paths_text
    from linkscope.plan import check_written

    src, dst, memory = asked.src, asked.dst, asked.memory
    for option, place in (("--src", src), ("--dst", dst)):
        check_written(option, place)
    measured = [point for point in run.points if point.median_s and point.bytes]
    here = f"{run.path} has no transfer from {src} to {dst}"
    if (src, dst) not in {(point.src, point.dst) for point in measured}:
        there = paths_text(sorted({Path(point.src, point.dst) for point in measured}))
        places = run.header.machine.get("places") or [src, dst]
        if missing := [place for place in (src, dst) if place not in places]:
            cure = f"; measure it: {_cure_of_disk(src, dst)}" if kind_of(missing[0]) == "disk" else ""
            raise UserError(f"{here}: its machine has no {missing[0]}; it has {', '.join(places)}{cure}", NOT_HERE)
        cure = f"linkscope run --suite full --only '*/{src}.*->{dst}.*'"
        if "disk" in (kind_of(src), kind_of(dst)):
            cure = _cure_of_disk(src, dst)
        raise UserError(f"{here}; it has {there}; measure it: {cure}", NOT_HERE)
    known = kinds(measured, src, dst)
    if memory and memory not in known:
        known_text = f"; it has {', '.join(known)}" if known else ": neither end is on the host"
        raise UserError(f"{here} with {memory} memory{known_text}", NOT_HERE)
    fresh = {(point.src, point.dst) for point in measured if point.benchmark in FRESH}
    if asked.untouched and (src, dst) not in fresh:
        raise UserError(f"{here} to untouched memory; measure it: linkscope run {' '.join(FRESH)}", NOT_HERE)
    if asked.others:
        _refuse_together(asked, run, has_model=has_model)
    if asked.piece:
        _refuse_pieces(asked, run)
    _refuse_size(asked, run)


def _cure_of_disk(src: str, dst: str) -> str:
    """The command that measures the directory of disk:/data; of disk:0 no directory is known."""
    path = next(place.partition(":")[2] for place in (src, dst) if kind_of(place) == "disk")
    return f"linkscope run file_copies --directory {shlex.quote(path) if '/' in path else 'DIR'}"


def _refuse_together(asked: "Question", run: "Run", *, has_model: bool) -> NoReturn:
    from linkscope.flow import text_of, wrong

    places = run.header.machine.get("places")
    for other in asked.others:
        for part, place in (("src", other.src), ("dst", other.dst)):
            if places and place not in places:
                raise wrong(other, part, f"the machine of the run has {', '.join(places)}", NOT_HERE)
    what = f"{asked.src} -> {asked.dst} of {format_bytes(asked.bytes)} beside {text_of(asked.others)}"
    if has_model:
        raise UserError(f"{run.path} did not measure {what}, and the model cannot run them at once", NOT_HERE)
    paths = ",".join(f"{one.src}->{one.dst}" for one in asked.others)
    raise UserError(
        f"{run.path} did not measure {what}; fit a model and add it: linkscope model {run.path} -o mine.toml, then "
        f"--machine mine.toml; or measure them: linkscope run --only 'concurrent/ce/{asked.src}.*->{asked.dst}.*/"
        f"{asked.bytes}?with={paths}'", NOT_HERE,
    )  # fmt: skip


def _refuse_pieces(asked: "Question", run: "Run") -> NoReturn:
    from linkscope.advise.pieces import SIZE_PARAM, is_of_pieces

    assert asked.piece
    here = [point for point in run.points if (point.src, point.dst) == (asked.src, asked.dst) and is_of_pieces(point)]
    cure = f"measure them: linkscope run pieces strided --src {asked.src} --dst {asked.dst}"
    what = f"{run.path} has no scattered pieces from {asked.src} to {asked.dst}"
    if not here:
        raise UserError(f"{what}; {cure}", NOT_HERE)
    known = sorted({int(point.params[SIZE_PARAM[point.benchmark]]) for point in here})
    counts = sorted({point.bytes // int(point.params[SIZE_PARAM[point.benchmark]]) for point in here})
    near = f"near {asked.pieces} pieces of {format_bytes(asked.piece)}"
    there = f"{counts[0]} to {counts[-1]} pieces of {', '.join(map(format_bytes, known))}"
    raise UserError(f"{what} {near}; it has {there}; {cure}", NOT_HERE)


def _refuse_size(asked: "Question", run: "Run") -> NoReturn:
    from linkscope.advise import sizes

    here = f"{run.path} has no transfer from {asked.src} to {asked.dst}"
    found = sizes(run.points, asked.src, asked.dst, alone=asked.alone)
    mode = "single" if asked.alone else "batched"
    words = [f"{asked.src} -> {asked.dst} {asked.bytes}", asked.memory, "" if asked.alone else "batched"]
    cure = f"write '{' '.join(filter(None, words))}' to a file and measure it: linkscope run --trace FILE"
    if not found:
        raise UserError(f"{here} ({mode}); {cure}", NOT_HERE)
    there = f"{format_bytes(found[0])} to {format_bytes(found[-1])}"
    here += f" of {format_bytes(asked.bytes)} ({mode}), and no neighbouring sizes"
    raise UserError(f"{here}; it has {there}; {cure}", NOT_HERE)
