"""tools/measured_page.py counts points with a value, and lists the reasons of the others."""

import measured_page as tool

from fakes import point
from linkscope.plan import Entry
from linkscope.runfile import Point

COPY, READ = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?mode=batched", "read/sm/numa:0.hugepage->gpu:0.device/8?pages=1GiB"
ENTRY = Entry(("XX-1",), "their copy", ())


def measured(pattern: str, **runs: list[Point]) -> str:
    reasons = {of.id: of.reason or "" for points in runs.values() for of in points if of.status == "unsupported"}
    valued = {name: [of for of in points if of.status in tool.VALUED] for name, points in runs.items()}
    return tool.measured([pattern], ENTRY, valued, reasons)


def test_points_of_several_runs_are_counted_once_and_the_largest_run_is_named() -> None:
    few = [point(COPY.format(0, 8), status="ok"), point(COPY.format(0, 64), status="inherited")]
    many = [point(COPY.format(gpu, 8), status="missed_precision") for gpu in range(3)]
    assert measured("h2d/ce/*?mode=batched", a=few, b=many) == "3 points in `b`"
    assert (
        measured("h2d/ce/*", a=[*few, point(COPY.format(0, 4096), status="ok")], b=many) == "4 points, 3 of them in `b`"
    )
    assert measured("h2d/ce/*gpu:0*", a=few, b=many) == "1 point in `a`"
    assert measured("d2h/*", a=few, b=many) == "not yet"


def test_operations_that_no_machine_could_measure_have_a_reason() -> None:
    refused = point(READ, status="unsupported", reason="no huge pages of 1 GiB are reserved")
    assert measured("read/sm/*hugepage*", a=[refused]) == "unsupported: no huge pages of 1 GiB are reserved"


def test_the_committed_page_lists_every_operation_with_points() -> None:
    text = tool.PAGE.read_text()
    assert "| CS-9 | unified memory on demand: GPU to GPU | " in text and text.count("## ") >= 3
