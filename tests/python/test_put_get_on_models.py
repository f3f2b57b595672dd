"""What a post and a poll cost, and the relations of Klenk et al. on models (docs/notes/put-get-on-models.md)."""

import instructions
import put_get_page as tool
import pytest
from put_get_page import KIB, System

from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

DISASSEMBLER = instructions.nvdisasm()
needs_disassembler = pytest.mark.skipif(DISASSEMBLER is None, reason="nvdisasm is not installed")
PAPERS_POST, PAPERS_POLL = 442, 283  # instructions, KL-6

LISTING = """
.text.early:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 BRA `(.L_x_1) ;
        /*0020*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0030*/                   MEMBAR.ALL.SYS ;
        /*0040*/                   STG.E.64.STRONG.SYS desc[UR4][R2.64], R4 ;
        /*0050*/               @P1 EXIT ;
        /*0060*/                   LDG.E R3, desc[UR4][R2.64] ;
        /*0070*/                   BRA `(.L_x_2) ;
.L_x_1:
        /*0080*/                   EXIT ;
.L_x_2:
        /*0090*/                   EXIT ;
.L_x_3:
        /*00a0*/                   BRA `(.L_x_3);
"""


def test_the_longest_path_that_reaches_the_other_device_is_counted() -> None:
    (code,) = instructions.kernels(LISTING).values()
    assert instructions.longest(code) == instructions.Counts(9, loads=1, stores=2, fences=1)


def test_a_loop_is_refused() -> None:
    loop = LISTING.replace("@P1 EXIT ;", "@P1 BRA `(.L_x_0) ;").replace(".text.early:", ".text.early:\n.L_x_0:")
    (code,) = instructions.kernels(loop).values()
    with pytest.raises(ValueError, match="jumps back: a loop has no longest path"):
        instructions.longest(code)


@needs_disassembler
@pytest.mark.parametrize("architecture", instructions.ARCHITECTURES)
def test_a_post_and_a_poll_take_few_instructions_and_write_what_they_must_kl_6(architecture: str) -> None:
    found = instructions.kernels(instructions.machine_code(architecture, DISASSEMBLER))
    counts = {name: instructions.longest(found[name]) for name in instructions.NAMES}
    assert counts["post_put"].instructions < PAPERS_POST / 5
    assert counts["poll_completion"].instructions < PAPERS_POLL / 3.5
    assert (counts["post_put"].fences, counts["poll_completion"].fences, counts["poll_word"].fences) == (2, 1, 0)
    stores = [one.name for one in found["post_put"] if one.name.startswith("ST")]
    assert sum(name.endswith(".128") for name in stores) == 3  # the segments of the element
    assert sum(".STRONG.SYS" in name for name in stores) == 2  # record and doorbell
    assert counts["post_word"].stores == 1


@needs_disassembler
def test_the_page_is_what_its_command_writes() -> None:
    assert tool.PAGE.read_text() == tool.page(DISASSEMBLER), "run .venv/bin/python tools/put_get_page.py"


def test_words_in_gpu_memory_keep_the_host_link_free_kl_8() -> None:
    system = System("h200x2")
    direct, notified = (tool.accesses(system.program(mode, KIB)) for mode in ("direct", "notified"))
    assert not [key for key in direct if key[1] == "host"]
    assert direct["word", "own", "read"] == direct["word", "peer", "write"] == 2  # one of each GPU
    assert notified["word", "host", "read"] == notified["word", "host", "write"] == 2
    for found in (direct, notified):
        assert found["payload", "own", "read"] == found["payload", "peer", "write"] == 2 * KIB // tool.SECTOR


@pytest.mark.parametrize("name", list(tool.PATHS))
def test_a_gpu_that_drives_small_messages_is_faster_than_the_host_without_a_card_kl_10(name: str) -> None:
    doubles, *_, slower, flat = tool.relations(System(name))
    assert doubles.ratio == pytest.approx(0.24, abs=0.02)
    assert not (doubles.holds or slower.holds)
    assert flat.holds  # four connections keep the copy engine busy


def test_the_host_that_helps_and_words_in_host_memory_cost_time_between_gpus_kl_10() -> None:
    _, helped, polled, *_ = tool.relations(System("h200x2"))
    assert helped.holds and polled.holds
