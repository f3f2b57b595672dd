"""Operations, engines and memory kinds in words, as the page shows them, and recommendations that name their call."""

import pytest

from invented import point, run
from linkscope.advise import advice
from linkscope.advise.text import how_text
from linkscope.model.curves import Family
from linkscope.model.text import size_text
from linkscope.report.family_words import family_text, memory_text, operation_text
from linkscope.report.html import page
from linkscope.report.sections.advice import by_use
from linkscope.units import digits4

MIB = 1 << 20
DEMAND = "demand/fault/numa:0.managed->gpu:0.managed/{}?access=write{}"


@pytest.mark.parametrize(("family", "text"), [
    (("h2d", "ce", "pageable", "device"), "host → GPU, copy engine, pageable"),
    (("d2d", "tma", "device", "device"), "GPU → GPU, TMA"),
    (("prefetch", "prefetch", "managed", "managed"), "prefetch, managed"),
    (("demand", "fault", "managed", "managed"), "pages on demand, managed"),
    (("h2h", "cpu", "wc", "pageable"), "host → host, CPU, write-combined → pageable"),
    (("put_ping_pong", "sm", "device", "pinned"), "put ping pong, GPU threads, pinned"),
])  # fmt: skip
def test_a_family_in_words(family: tuple[str, ...], text: str) -> None:
    assert family_text(Family(*family)) == text


def test_names_without_words_of_their_own_lose_their_underscores() -> None:
    assert operation_text("all_to_host") == "all GPUs → host" and operation_text("new_thing") == "new thing"
    assert memory_text("registered_hugepage") == "registered huge pages" and memory_text("some_kind") == "some kind"


def test_numbers_beside_each_other_have_four_digits() -> None:
    assert [digits4(value) for value in (397.0, 396.84, 9.6, 2113.4)] == ["397.0", "396.8", "9.600", "2113"]


def test_the_size_of_a_copy_of_pieces_is_their_number_and_size() -> None:
    pieces = "pieces/ce/numa:0.pinned->gpu:0.device/{}?mode=batched&piece={}"
    assert size_text(point(pieces.format(4096000, 4096), 1e-3)) == "1000 × 4 KiB"
    assert size_text(point(pieces.format(64001, 64), 1e-3)) == "62.5 KiB"
    assert size_text(point(DEMAND.format(MIB, ""), 1e-3)) == "1 MiB"


@pytest.mark.parametrize(("value", "constant"), [
    ("read_mostly", "cudaMemAdviseSetReadMostly"), ("preferred_src", "cudaMemAdviseSetPreferredLocation"),
    ("preferred_dst", "cudaMemAdviseSetPreferredLocation"), ("accessed_by", "cudaMemAdviseSetAccessedBy"),
])  # fmt: skip
def test_advice_on_managed_memory_names_its_constant(value: str, constant: str) -> None:
    found = advice([point(DEMAND.format(MIB, ""), 1e-3), point(DEMAND.format(MIB, f"&advice={value}"), 1e-4)])
    (one,) = (one for one in found if one.recommendation.name == "advice")
    assert constant in how_text(one)


def test_a_gain_at_one_size_does_not_come_before_gains_at_many() -> None:
    h2d = "h2d/ce/numa:0.{}->gpu:0.device/{}?bidirectional=false&mode=batched"
    pinned = [
        point(h2d.format(kind, size), size / rate / 1e9)
        for kind, rate in (("pinned", 50), ("pageable", 10)) for size in (MIB, 16 * MIB)
    ]  # fmt: skip
    advised = [point(DEMAND.format(MIB, ""), 1e-3), point(DEMAND.format(MIB, "&advice=accessed_by"), 1e-5)]
    found = {one.recommendation.name: one for one in advice([*pinned, *advised])}
    assert found["advice"].typical_gain > found["pin"].typical_gain
    assert [one.recommendation.name for one in by_use([found["advice"], found["pin"]])] == ["pin", "advice"]
    summary = page(run([*pinned, *advised])).split('<section id="summary">')[1].split("</section>")[0]
    assert summary.index("Pin host memory") < summary.index("cudaMemAdviseSetAccessedBy")
