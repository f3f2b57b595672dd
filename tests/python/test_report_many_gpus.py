"""What a page of many GPUs and of every chapter shows at first: findings, with their tables folded."""

import pytest

from invented import flow, point, run
from linkscope.report.path_rows import open_rows, path_rows
from linkscope.report.run_view import RunView
from linkscope.report.section import Fold, Items, Output, Paragraph, Section, SortedTable, Table, plain
from linkscope.report.sections import collectives, computations, paths, sharing
from linkscope.report.sections.paths import FEW, MOST
from linkscope.runfile import Point


def copies(gpus: int) -> list[Point]:
    """Copies between all GPUs and from the host, pinned and pageable; GPU 1 is the slowest source."""
    made = [
        point(f"d2d/ce/gpu:{src}.device->gpu:{dst}.device/1048576?mode=batched", 2e-5 if src == 1 else 1e-5)
        for src in range(gpus)
        for dst in range(gpus)
        if src != dst
    ]
    for memory, seconds in (("pinned", 1e-4), ("pageable", 2e-4)):
        for gpu in range(gpus):
            id = f"h2d/ce/numa:0.{memory}->gpu:{gpu}.device/1048576?mode=batched"
            made.append(point(id, seconds * (1 + 0.1 * gpu)))
    return made


def open_on_page(section: Section | None) -> str:
    """The text that the page shows without a click."""
    assert section is not None
    texts = []
    for block in section.only(Output.PAGE):
        if isinstance(block, Items):
            texts += [plain(item.text) for item in block.items]
        elif isinstance(block, Paragraph):
            texts.append(plain(block.text))
        assert not isinstance(block, Table)
    return "\n".join(texts)


@pytest.mark.parametrize("gpus, shown", [(4, MOST), (8, FEW)])
def test_a_machine_with_more_paths_than_fit_shows_few_rows(gpus: int, shown: int) -> None:
    section = paths.section(RunView(run(copies(gpus))))
    (table,) = (block for block in section.blocks if isinstance(block, SortedTable))
    assert table.most == shown and len(table.rows) == len(copies(gpus))
    first = [row.cells[:2] for row in table.rows[:6]]
    assert [name for name, _ in first if name.startswith("gpu:1 →")]  # the slowest pair
    assert {method for name, method in first if name.startswith("numa:0")} == {"pinned", "pageable"}


def test_the_few_rows_have_room_for_the_ends_of_every_method() -> None:
    rows = path_rows(copies(8))
    assert open_rows(rows, MOST, 1) == 6  # three methods, the slowest and the fastest path of each
    assert open_rows(rows, 5, 1) == 5


def of_clients(work: str, way: str, clients: int, seconds: float, **fields: object) -> Point:
    id = f"shared_{work}/ce/numa:0.pinned->gpu:0.device/1000000?clients={clients}&way={way}"
    flows = [flow("numa:0", "gpu:0", ("pinned", "device"), 1_000_000, seconds) for _ in range(clients)]
    return point(id, seconds, **{"flows": flows, **fields})


def test_sharing_says_what_all_clients_get_by_each_way_the_best_first() -> None:
    points = [
        of_clients("h2d", "threads", 1, 2e-5),
        of_clients("h2d", "processes", 4, 1.6e-4, status="missed_precision"),
        of_clients("h2d", "threads", 2, 4e-5),
        of_clients("h2d", "threads", 4, 8e-5),
        of_clients("d2h", "threads", 1, 4e-5),
    ]
    section = sharing.section(RunView(run(points)))  # copies to the host had one client only, which shares nothing
    assert open_on_page(section).splitlines() == [
        "copies to the GPU, 4 clients: threads of one process 50 GB/s (×1 of one alone), processes in turn ~25 GB/s.",
    ]
    assert section is not None and any(isinstance(block, Table) for block in section.only(Output.TERMINAL))


def test_sharing_has_no_finding_from_a_value_with_a_warning() -> None:
    points = [
        of_clients("h2d", "threads", 1, 1e-5, guards={"above_limit": "100 GB/s"}),
        of_clients("h2d", "threads", 2, 4e-5),
    ]
    assert open_on_page(sharing.section(RunView(run(points)))) == (
        "copies to the GPU, 2 clients: threads of one process 50 GB/s."
    )


def test_clients_are_compared_with_one_client_in_the_same_way() -> None:
    points = [
        of_clients("h2d", "threads", 1, 2e-5), of_clients("h2d", "mps", 1, 3e-5), of_clients("h2d", "mps", 2, 4e-5),
    ]  # fmt: skip
    assert "processes under MPS 50 GB/s (×1.5 of one alone)" in open_on_page(sharing.section(RunView(run(points))))


def of_computation(name: str, alone: float, near: float, beside: str = "", **fields: object) -> list[Point]:
    id = f"compute_{name}/sm/numa:0.pinned->gpu:0.device/0?size=small{beside}"
    flows = [flow("numa:0", "gpu:0", ("pinned", "device"), 1_000_000, near)]
    flows[0].operations = 1e6
    return [
        point(f"compute_{name}/sm/gpu:0.device->gpu:0.device/0?size=small", alone),
        point(id, near, **{"flows": flows, **fields}),
    ]


def test_computations_name_what_their_transfers_lengthen_least_and_most() -> None:
    points = [
        *of_computation("md", 1e-5, 1.5e-5), *of_computation("sort", 1e-6, 2e-5), *of_computation("fft", 1e-6, 5e-6),
        *of_computation("scan", 1e-6, 9e-5, guards={"throttled": "power"}),
    ]  # fmt: skip
    points += of_computation("gemm", 1e-6, 8e-5, "&beside=same")[1:] + of_computation("gemm", 1e-6, 4e-6)
    section = computations.section(RunView(run(points)))
    assert open_on_page(section) == (
        "Transfers lengthen iterations by ×1.5 (md, pinned) to ×20 (sort, pinned), against computations alone.\n"
        "Beside copies to the same GPU, iterations take ×20 (gemm, pinned) as long as undisturbed."
    )
    assert section is not None
    (fold,) = (block for block in section.only(Output.PAGE) if isinstance(block, Fold))
    assert fold.title == "All 6 computations as a table"


def of_ranks(name: str, ranks: int, size: int, seconds: float, params: str = "", **fields: object) -> Point:
    id = f"{name}/nccl/gpu:0.device->gpu:all.device/{size}?ranks={ranks}{params}"
    flows = [flow(f"gpu:{rank}", "gpu:all", ("device", "device"), size, seconds) for rank in range(ranks)]
    return point(id, seconds, **{"flows": flows, **fields})


def test_collectives_say_the_bus_bandwidth_of_the_most_ranks_at_the_largest_size() -> None:
    points = [
        of_ranks("all_reduce", 4, 1_000_000, 1e-5), of_ranks("all_reduce", 8, 1 << 20, 1e-5),
        of_ranks("all_reduce", 8, 1 << 24, 1e-4, "&place=in"), of_ranks("all_reduce", 8, 1 << 24, 8e-5),
        of_ranks("broadcast", 8, 1 << 24, 1e-4, status="missed_precision"),
        of_ranks("reduce", 8, 1 << 24, 1e-5, guards={"above_limit": "too fast"}),
    ]  # fmt: skip
    assert open_on_page(collectives.section(RunView(run(points)))) == (
        "Bus bandwidth by NCCL, 8 ranks, at 16 MiB: all_reduce 367 GB/s, broadcast ~167.8 GB/s."
    )


def test_collectives_of_few_ranks_do_not_choose_the_size_for_the_most_ranks() -> None:
    points = [of_ranks("all_reduce", 4, 1 << 26, 1e-4), of_ranks("all_reduce", 8, 1 << 24, 8e-5)]
    assert open_on_page(collectives.section(RunView(run(points)))) == (
        "Bus bandwidth by NCCL, 8 ranks, at 16 MiB: all_reduce 367 GB/s."
    )
