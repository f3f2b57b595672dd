"""nvbandwidth's tables of a run in which each flow has a unique number, so that a cell identifies its source.

The digits of a rate in GB/s: engine (1 ce, 2 sm), two for the operation (`KINDS`), source GPU, destination GPU; 9 is
the host and 8 all other GPUs. A latency of 5012 ns is a pointer chase by GPU 2 in the memory of GPU 1.
"""

import fnmatch
import gzip
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import side_by_side

from fakes import round_record
from invented import flow, point, run
from linkscope.report.nvbandwidth import Table, tables, text
from linkscope.runfile import Flow, Point, RoundFlow, Run

SIZE = 512 << 20
GPUS = range(4)
HOST, ALL = 9, 8
ENGINES = {"ce": 10000, "sm": 20000}
KINDS = {
    "h2d": 100, "d2h": 200, "h2d both": 300, "exchange": 400, "d2d by src": 500, "d2d by dst": 600,
    "d2d both by src": 700, "d2d both by dst": 800, "host_to_all": 900, "all_to_host": 1000, "host_to_all both": 1100,
    "exchange_all": 1200, "one_to_all by src": 1300, "one_to_all by dst": 1400, "all_to_one by src": 1500,
    "all_to_one by dst": 1600, "local": 1700,
}  # fmt: skip
NA = None

# Written from the tests of nvbandwidth 0.8, in the order of its output. `matrix` and `row` add the digits of the GPUs
# to the number of the point. `of` is "from-to", with r for the GPU of the row and c for the GPU of the column.
Cells = list[list[float | None]]


def row(base: int, of: str) -> Cells:
    return [[base + _digits(of, NA, column) for column in GPUS]]


def matrix(base: int, of: str) -> Cells:
    return [[NA if r == c else base + _digits(of, r, c) for c in GPUS] for r in GPUS]


def _digits(of: str, r: int | None, c: int) -> int:
    known = {"r": r, "c": c, "host": HOST, "all": ALL}
    src, dst = (known[end] for end in of.split("-"))
    assert src is not None and dst is not None
    return 10 * src + dst


EXPECTED: dict[str, Cells] = {
    "host_to_device_memcpy_ce": [[10190, 10191, 10192, 10193]],
    "device_to_host_memcpy_ce": [[10209, 10219, 10229, 10239]],
    "host_to_device_bidirectional_memcpy_ce": [[10390, 10391, 10392, 10393]],
    "device_to_host_bidirectional_memcpy_ce": [[10309, 10319, 10329, 10339]],
    # The GPU in the row queues a read; it is the destination: initiator dst, from the column to the row.
    "device_to_device_memcpy_read_ce": [
        [NA, 10610, 10620, 10630], [10601, NA, 10621, 10631], [10602, 10612, NA, 10632], [10603, 10613, 10623, NA],
    ],
    # The GPU in the row queues a write; it is the source: initiator src, from the row to the column.
    "device_to_device_memcpy_write_ce": [
        [NA, 10501, 10502, 10503], [10510, NA, 10512, 10513], [10520, 10521, NA, 10523], [10530, 10531, 10532, NA],
    ],
    # Bidirectional: the first copy goes from the column to the row in reads and in writes; only the initiator differs.
    "device_to_device_bidirectional_memcpy_read_ce_read1": matrix(10800, "c-r"),
    "device_to_device_bidirectional_memcpy_read_ce_read2": matrix(10800, "r-c"),
    "device_to_device_bidirectional_memcpy_read_ce_total": [
        [NA, 21611, 21622, 21633], [21611, NA, 21633, 21644], [21622, 21633, NA, 21655], [21633, 21644, 21655, NA],
    ],
    "device_to_device_bidirectional_memcpy_write_ce_write1": matrix(10700, "c-r"),
    "device_to_device_bidirectional_memcpy_write_ce_write2": matrix(10700, "r-c"),
    "device_to_device_bidirectional_memcpy_write_ce_total": [
        [NA, 21411, 21422, 21433], [21411, NA, 21433, 21444], [21422, 21433, NA, 21455], [21433, 21444, 21455, NA],
    ],
    # Between the host and all GPUs, a cell has the rate of the flow of its own GPU.
    "all_to_host_memcpy_ce": [[11009, 11019, 11029, 11039]],
    "all_to_host_bidirectional_memcpy_ce": [[11109, 11119, 11129, 11139]],
    "host_to_all_memcpy_ce": [[10990, 10991, 10992, 10993]],
    "host_to_all_bidirectional_memcpy_ce": [[11190, 11191, 11192, 11193]],
    # Between one GPU and all others, a cell has the total. The names of reads swap the ends: report/nvbandwidth.py.
    "all_to_one_write_ce": [[11580, 11581, 11582, 11583]],
    "all_to_one_read_ce": [[11408, 11418, 11428, 11438]],
    "one_to_all_write_ce": [[11308, 11318, 11328, 11338]],
    "one_to_all_read_ce": [[11680, 11681, 11682, 11683]],
    "host_to_device_memcpy_sm": [[20190, 20191, 20192, 20193]],
    "device_to_host_memcpy_sm": [[20209, 20219, 20229, 20239]],
    # By SM, one kernel copies in both directions.
    "host_to_device_bidirectional_memcpy_sm": [[20490, 20491, 20492, 20493]],
    "device_to_host_bidirectional_memcpy_sm": [[20409, 20419, 20429, 20439]],
    "device_to_device_memcpy_read_sm": matrix(20600, "c-r"),
    "device_to_device_memcpy_write_sm": matrix(20500, "r-c"),
    "device_to_device_bidirectional_memcpy_read_sm_read1": matrix(20800, "c-r"),
    "device_to_device_bidirectional_memcpy_read_sm_read2": matrix(20800, "r-c"),
    "device_to_device_bidirectional_memcpy_read_sm_total": [
        [NA, 41611, 41622, 41633], [41611, NA, 41633, 41644], [41622, 41633, NA, 41655], [41633, 41644, 41655, NA],
    ],
    "device_to_device_bidirectional_memcpy_write_sm_write1": matrix(20700, "c-r"),
    "device_to_device_bidirectional_memcpy_write_sm_write2": matrix(20700, "r-c"),
    "device_to_device_bidirectional_memcpy_write_sm_total": [
        [NA, 41411, 41422, 41433], [41411, NA, 41433, 41444], [41422, 41433, NA, 41455], [41433, 41444, 41455, NA],
    ],
    "all_to_host_memcpy_sm": row(21000, "c-host"),
    "all_to_host_bidirectional_memcpy_sm": row(21200, "c-host"),
    "host_to_all_memcpy_sm": row(20900, "host-c"),
    "host_to_all_bidirectional_memcpy_sm": row(21200, "host-c"),
    # By SM, the source also pushes in reads, which therefore have the numbers of the writes.
    "all_to_one_write_sm": row(21500, "all-c"),
    "all_to_one_read_sm": row(21300, "c-all"),
    "one_to_all_write_sm": row(21300, "c-all"),
    "one_to_all_read_sm": row(21500, "all-c"),
    "host_device_latency_sm": [[5090, 5091, 5092, 5093]],
    # The GPU in the row chases pointers in the memory of the GPU in the column.
    "device_to_device_latency_sm": [
        [NA, 5010, 5020, 5030], [5001, NA, 5021, 5031], [5002, 5012, NA, 5032], [5003, 5013, 5023, NA],
    ],
    "device_local_copy": [[11700, 11711, 11722, 11733]],
}  # fmt: skip


def name(end: int) -> str:
    return {HOST: "numa:0", ALL: "gpu:all"}.get(end, f"gpu:{end}")


def memory(end: int) -> str:
    return "pinned" if end == HOST else "device"


def one_flow(base: float, src: int, dst: int) -> Flow:
    rate = base + 10 * src + dst
    made = flow(name(src), name(dst), (memory(src), memory(dst)), SIZE, SIZE / rate / 1e9)
    made.gbps = rate
    return made


def made(
    benchmark: str, engine: str, ends: tuple[int, int], params: str, kind: str, flows: list[tuple[int, int]]
) -> list[Point]:
    """The point, and one of a smaller size with other numbers, which must appear in no table."""
    src, dst = ends
    found = []
    for size, more in ((SIZE, 0.0), (SIZE // 2, 50000.0)):
        id = f"{benchmark}/{engine}/{name(src)}.{memory(src)}->{name(dst)}.{memory(dst)}/{size}" + (
            f"?{params}" if params else ""
        )
        base = ENGINES[engine] + KINDS[kind] + more
        of_point = [one_flow(base, *path) for path in flows]
        first = of_point[0]
        total = base + 10 * src + dst if ALL in ends else sum(one.gbps or 0.0 for one in of_point)
        found.append(point(id, first.median_s, flows=of_point, gbps=first.gbps, total_gbps=total))
    return found


def latency(src: int, dst: int) -> list[Point]:
    ids = {
        cache: f"latency/sm/{name(src)}.{memory(src)}->{name(dst)}.device/0?cache={cache}&range=2MiB"
        for cache in ("cold", "hot")
    }
    return [point(ids[cache], (base + 10 * src + dst) * 1e-9) for cache, base in (("cold", 5000), ("hot", 6000))]


def points() -> list[Point]:
    """All points of suite `nvbandwidth` on four GPUs, and local copies by SM, which belong to no table."""
    found: list[Point] = []
    there, back = [(HOST, gpu) for gpu in GPUS], [(gpu, HOST) for gpu in GPUS]
    for engine in ENGINES:
        mode = "bidirectional={}&mode=batched"
        for gpu in GPUS:
            out, home = there[gpu], back[gpu]
            found += made("h2d", engine, out, mode.format("false"), "h2d", [out])
            found += made("d2h", engine, home, "mode=batched", "d2h", [home])
            found += made("h2d", engine, out, mode.format("true"), "h2d both", [out, home])
            found += made("local", engine, (gpu, gpu), "mode=batched", "local", [(gpu, gpu)])
            others = [other for other in GPUS if other != gpu]
            for who in ("src", "dst"):
                by = f"initiator={who}"
                from_one, to_one = [(gpu, other) for other in others], [(other, gpu) for other in others]
                found += made("one_to_all", engine, (gpu, ALL), by, f"one_to_all by {who}", from_one)
                found += made("all_to_one", engine, (ALL, gpu), by, f"all_to_one by {who}", to_one)
                for other in others:
                    path, against = (gpu, other), (other, gpu)
                    unidirectional, both = (f"bidirectional={which}&{by}&mode=batched" for which in ("false", "true"))
                    found += made("d2d", engine, path, unidirectional, f"d2d by {who}", [path])
                    if gpu < other:  # each pair is measured once
                        found += made("d2d", engine, path, both, f"d2d both by {who}", [path, against])
        found += made("host_to_all", engine, (HOST, ALL), "bidirectional=false", "host_to_all", there)
        found += made("all_to_host", engine, (ALL, HOST), "", "all_to_host", back)
        found += made("host_to_all", engine, (HOST, ALL), "bidirectional=true", "host_to_all both", there + back)
    for gpu in GPUS:
        found += made("exchange", "sm", there[gpu], "threads=512", "exchange", [there[gpu], back[gpu]])
        found += latency(HOST, gpu)
        for other in GPUS:
            found += latency(gpu, other)
    each = [path for pair in zip(there, back, strict=True) for path in pair]
    found += made("exchange_all", "sm", (HOST, ALL), "threads=512", "exchange_all", each)
    return found


def shown(of: list[Point], **plan: str) -> dict[str, Table]:
    return {table.key: table for table in tables(made_run(of, **plan))}


def made_run(of: list[Point], **plan: str) -> Run:
    tables_of_everything = run(of)
    tables_of_everything.header.plan.update(plan)
    return tables_of_everything


def rounded(cells: Cells) -> Cells:
    return [[None if value is None else round(value, 6) for value in row] for row in cells]


@pytest.fixture(scope="module")
def everything() -> list[Point]:
    return points()


@pytest.fixture(scope="module")
def tables_of_everything(everything: list[Point]) -> dict[str, Table]:
    return shown(everything)


@pytest.mark.parametrize("key", EXPECTED)
def test_each_cell_shows_the_flow_of_its_nvbandwidth_test(key: str, tables_of_everything: dict[str, Table]) -> None:
    assert rounded(tables_of_everything[key].cells) == EXPECTED[key]
    assert tables_of_everything[key].sum == pytest.approx(
        sum(cell for row in EXPECTED[key] for cell in row if cell is not None)
    )


def test_numbers_repeat_only_where_nvbandwidth_measures_twice() -> None:
    """Every other cell has a unique number; the test above relies on this."""
    twice = {
        f"device_to_device_bidirectional_memcpy_{word}_{engine}_{which}"
        for word in ("read", "write")
        for engine in ENGINES
        for which in (f"{word}2", "total")
    } | {"all_to_one_read_sm", "one_to_all_read_sm"}
    cells = [c for key, table in EXPECTED.items() if key not in twice for row in table for c in row if c is not None]
    assert len(cells) == len(set(cells)) == 204
    for key in twice:
        for row in EXPECTED[key]:
            filled = [cell for cell in row if cell is not None]
            assert len(set(filled)) == len(filled)


def test_keys_titles_and_shapes_match_the_output_of_nvbandwidth(everything: list[Point]) -> None:
    """The output of nvbandwidth for four H200s: the number of values in each line, without the values."""
    printed = Path(__file__).parents[2] / "results" / "h200x4-nvbandwidth-a.txt.gz"
    theirs = gzip.decompress(printed.read_bytes()).decode()
    theirs = "".join(line for line in theirs[theirs.index("memcpy CE CPU") :].splitlines(True) if line[:7] != "Running")
    assert _without_values(text(made_run(everything))) == _without_values(theirs)


def _without_values(printed: str) -> list[str]:
    lines = (re.sub(r"\d+\.\d\d", "#", line) for line in printed.splitlines())
    kept = [re.sub(" +", " ", line) for line in lines if line]
    return kept[: max(number for number, line in enumerate(kept) if line.startswith("SUM")) + 1]


def test_the_text_has_the_cells_of_the_tables(everything: list[Point]) -> None:
    lines = text(made_run(everything)).splitlines()
    at = lines.index("SUM device_to_device_memcpy_read_ce 127398.00")
    assert lines[at - 7 : at] == [
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
        "           0         1         2         3",
        " 0       N/A  10610.00  10620.00  10630.00",
        " 1  10601.00       N/A  10621.00  10631.00",
        " 2  10602.00  10612.00       N/A  10632.00",
        " 3  10603.00  10613.00  10623.00       N/A",
        "",
    ]
    assert " 0  11408.00  11418.00  11428.00  11438.00" in lines
    assert "SUM device_local_copy 46866.00" in lines


def test_only_pointer_chases_between_gpus_stay_in_cache_by_nvbandwidths_rule(everything: list[Point]) -> None:
    ruled = shown(everything, rule="nvbandwidth")
    hot: Cells = [[NA if value is None else value + 1000 for value in row] for row in EXPECTED[LATENCY]]
    assert rounded(ruled[LATENCY].cells) == hot
    for key in ("host_device_latency_sm", "device_to_device_memcpy_read_ce", "all_to_one_read_ce"):
        assert rounded(ruled[key].cells) == EXPECTED[key]


LATENCY = "device_to_device_latency_sm"


def test_pointer_chases_of_a_chosen_sm_are_in_no_table(everything: list[Point]) -> None:
    ids = [one.id for one in everything if one.benchmark == "latency"]
    on_one = [point(f"{id}&sm=0", 1e-9) for id in ids]
    assert len(on_one) > 8 and shown([*everything, *on_one])[LATENCY].cells == shown(everything)[LATENCY].cells
    host = "host_device_latency_sm"
    assert shown([*everything, *on_one])[host].cells == shown(everything)[host].cells


def test_gpus_are_sorted_by_number() -> None:
    id = "d2h/ce/gpu:{}.device->numa:0.pinned/8?mode=batched"
    made = [point(id.format(gpu), 8 / (100 + gpu) / 1e9) for gpu in (10, 2, 0, 11, 1, 9)]
    (table,) = tables(run(made))
    assert rounded(table.cells) == [[100, 101, 102, 109, 110, 111]]


# The missing points, and the cells that are empty without them.
READ, WRITE = (f"device_to_device_bidirectional_memcpy_{word}_ce" for word in ("read", "write"))
MISSING = {
    "d2d/ce/gpu:1.device->gpu:2.device/*bidirectional=false&initiator=dst*": {
        "device_to_device_memcpy_read_ce": [(2, 1)]
    },
    "d2d/ce/gpu:1.device->gpu:2.device/*bidirectional=false&initiator=src*": {
        "device_to_device_memcpy_write_ce": [(1, 2)]
    },
    "d2d/ce/gpu:1.device->gpu:2.device/*bidirectional=true&initiator=dst*": {
        f"{READ}_{which}": [(1, 2), (2, 1)] for which in ("read1", "read2", "total")
    },
    "d2d/ce/gpu:1.device->gpu:2.device/*bidirectional=true&initiator=src*": {
        f"{WRITE}_{which}": [(1, 2), (2, 1)] for which in ("write1", "write2", "total")
    },
    "h2d/ce/*gpu:3.device/*bidirectional=true*": {
        "host_to_device_bidirectional_memcpy_ce": [(0, 3)], "device_to_host_bidirectional_memcpy_ce": [(0, 3)],
    },
    "exchange/*gpu:3.device/*": {
        "host_to_device_bidirectional_memcpy_sm": [(0, 3)], "device_to_host_bidirectional_memcpy_sm": [(0, 3)],
    },
    "one_to_all/sm/gpu:2.*initiator=src*": {"all_to_one_read_sm": [(0, 2)], "one_to_all_write_sm": [(0, 2)]},
    "one_to_all/sm/gpu:2.*initiator=dst*": {},
    "all_to_one/ce/*gpu:2.*initiator=dst*": {"one_to_all_read_ce": [(0, 2)]},
    "latency/*numa:0*gpu:1*cold*": {"host_device_latency_sm": [(0, 1)]},
    "latency/*gpu:3.device->gpu:0*cold*": {LATENCY: [(0, 3)]},
    "latency/*hot*": {},
    "local/sm/*": {},
    "h2d/sm/*bidirectional=true*": {},  # bidirectional by SM is one kernel: `exchange`
}  # fmt: skip


@pytest.mark.parametrize("how", ["not in the run", "failed"])
@pytest.mark.parametrize("pattern", MISSING)
def test_missing_cells_are_not_available_and_have_no_sum(pattern: str, how: str) -> None:
    left: list[Point] = []
    gone = 0
    for one in points():
        if not fnmatch.fnmatchcase(one.id, pattern):
            left.append(one)
            continue
        gone += 1
        if how == "failed":
            flows = [msgspec.structs.replace(of, median_s=None, gbps=None) for of in one.flows]
            left.append(point(one.id, None, status="failed", reason="the test says so", flows=flows))
    assert gone
    found = shown(left)
    for key, expected in EXPECTED.items():
        empty = MISSING[pattern].get(key, [])
        cells: Cells = [
            [None if (r, c) in empty else value for c, value in enumerate(row)] for r, row in enumerate(expected)
        ]
        assert rounded(found[key].cells) == cells, key
        assert (found[key].sum is None) == bool(empty)


def test_a_missing_flow_leaves_no_total() -> None:
    """Here the rate of one direction is unknown; the cell of the other direction stays."""
    left = points()
    id = f"d2d/ce/gpu:0.device->gpu:1.device/{SIZE}?bidirectional=true&initiator=dst&mode=batched"
    (both,) = [one for one in left if one.id == id]
    both.flows[1].gbps = None
    found = shown(left)
    cells = {which: found[f"{READ}_{which}"].cells for which in ("read1", "read2", "total")}
    pair = {which: (of_table[0][1], of_table[1][0]) for which, of_table in cells.items()}
    assert pair == {"read1": (None, 10801), "read2": (10801, None), "total": (None, None)}


def test_a_table_without_values_is_left_out() -> None:
    found = [one for one in points() if not one.benchmark.startswith(("latency", "exchange")) and one.engine == "ce"]
    assert list(shown(found)) == [key for key in EXPECTED if key.endswith("ce") or "_ce_" in key or "local" in key]


def test_the_fastest_numa_node_is_shown() -> None:
    """nvbandwidth uses the node of the GPU."""
    made = []
    for node, gpu, there, back in ((0, 0, 50, 33), (1, 0, 40, 44), (0, 1, 20, 22), (1, 1, 30, 11)):
        id = f"h2d/ce/numa:{node}.pinned->gpu:{gpu}.device/8?bidirectional=true&mode=batched"
        one = point(id, 8 / there / 1e9)
        one.flows[1].gbps = back
        made.append(one)
        made.append(point(f"d2h/ce/gpu:{gpu}.device->numa:{node}.pinned/8?mode=batched", 8 / back / 1e9))
    cells = {key: rounded(table.cells) for key, table in shown(made).items()}
    assert cells == {
        "device_to_host_memcpy_ce": [[44, 22]],
        "host_to_device_bidirectional_memcpy_ce": [[50, 30]],
        "device_to_host_bidirectional_memcpy_ce": [[33, 11]],  # both of the same point, not the best of each direction
    }


@pytest.mark.parametrize(
    ("longer", "each_s", "batches"), [(8, 1e-3, 9), (2, 9e-3, 3), (1, 1e-3, 1), (None, 1e-3, 3), (None, 9e-3, 1)]
)
def test_timed_seconds_include_both_batches(longer: int | None, each_s: float, batches: int) -> None:
    """The slower of two flows counts. Rounds of older versions lack the length of the other batch."""
    flows = [RoundFlow("gpu:0", "gpu:1", "device", "device", 8, "measured", [each_s * part] * 3) for part in (1, 1.5)]
    record = round_record("two flows", 0)
    record.flows, record.batch, record.longer = flows, [4, 2], longer
    measured = replace(run([]), rounds={"two flows": [record]})
    assert side_by_side.timed_s(measured) == pytest.approx(3 * batches * 4 * each_s)


def run_with_inherited(status: str) -> Run:
    """Copies from the host to four GPUs: one path measured at all sizes, the others up to 256 MiB only."""
    made = [point(f"h2d/ce/numa:0.pinned->gpu:0.device/{1 << 30}?mode=batched", (1 << 30) / 55e9)]
    for gpu in range(4):
        one = point(f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/{1 << 28}?mode=batched", (1 << 28) / 50e9)
        one.status = status if gpu else "ok"
        made.append(one)
    return made_run(made)


def test_inherited_values_have_their_cell_and_are_counted() -> None:
    (table,) = tables(run_with_inherited("inherited"))
    assert rounded(table.cells) == [[50.0] * 4] and table.inherited == 3
    printed = text(run_with_inherited("inherited"))
    assert "SUM host_to_device_memcpy_ce 200.00\n3 of 4 values were inherited, not measured" in printed
    assert "N/A" not in printed and "inherited" not in text(run_with_inherited("ok"))


def test_a_table_with_an_empty_cell_has_no_sum() -> None:
    made = made_run([of for of in run_with_inherited("ok").points if of.dst != "gpu:3" or of.bytes == 1 << 30])
    made.points.append(point(f"d2h/ce/gpu:3.device->numa:0.pinned/{1 << 28}?mode=batched", 1.0))
    assert "SUM host_to_device_memcpy_ce N/A: 1 of 4 cells have no value" in text(made)
