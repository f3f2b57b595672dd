"""The grammar of flows: known answers, the round trip, and a pointer at the wrong word of every kind of bad input."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_driver import needs_worker
from linkscope import flow
from linkscope.errors import NOT_HERE, TextError
from linkscope.flow import ENGINES, MEMORIES, Transfer, Work, parse_flows, read_paths, text_of, write_paths, wrong
from linkscope.run.table import temporary_worker
from linkscope.run.worker import RequestFailed

MIB = 1 << 20


def test_a_text_has_transfers_and_work() -> None:
    text = "numa:0.pinned -> gpu:0 64MiB x2 by ce; gpu:1 -> gpu:2 peer=off; gemm gpu:0 bf16 8192"
    assert parse_flows(text) == (
        Transfer("numa:0", "pinned", "gpu:0", None, 64 * MIB, 2, "ce"),
        Transfer("gpu:1", None, "gpu:2", None, options=(("peer", "off"),)),
        Work("gemm", "gpu:0", ("bf16", "8192")),
    )
    assert text_of(parse_flows(text)) == text


ONE = Transfer("numa:0", "pageable", "gpu:1", "device", 3 * MIB, 4, "ce", (("mode", "batched"),))
SAME = [
    "numa:0.pageable -> gpu:1.device 3MiB x4 by ce mode=batched",
    "numa:0.pageable->gpu:1.device mode=batched by ce x4 3MiB",
    "numa:0.pageable→gpu:1.device batched by ce x 4 3145728",
    "  numa:0 -> gpu:1.device pageable x4 batched 3072KiB\tby ce  # a comment; gpu:0 -> gpu:1",
    "# first\n\n; numa:0 -> gpu:1.device pageable x4 batched 3145728B by ce ;;\n# last",
]


@pytest.mark.parametrize("text", SAME)
def test_options_have_any_order_and_spaces_around_the_arrow_are_optional(text: str) -> None:
    assert parse_flows(text) == (ONE,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host:0/gpu:1 -> host:1/gpu:10", Transfer("host:0/gpu:1", None, "host:1/gpu:10", None)),
        ("nic:0 -> gpu:all", Transfer("nic:0", None, "gpu:all", None)),
        ("gpu:0 -> numa:1 wc 1e6", Transfer("gpu:0", None, "numa:1", "wc", 10**6)),
        (
            "numa:0 -> numa:1 threads=08 by cpu",
            Transfer("numa:0", None, "numa:1", None, engine="cpu", options=(("threads", "8"),)),
        ),
        ("disk:/data/model.bin -> gpu:0", Transfer("disk:/data/model.bin", None, "gpu:0", None)),
        ("disk:/data/a.file -> gpu:0 by file", Transfer("disk:/data/a", "file", "gpu:0", None, engine="file")),
        ("disk:/a%20b%3B%23-%3Ec -> gpu:0", Transfer("disk:/a b;#->c", None, "gpu:0", None)),
        ("numa:0.managed -> gpu:0.managed by fault", Transfer("numa:0", "managed", "gpu:0", "managed", engine="fault")),
        ("triad host:1/gpu:0 x3 64MiB type=f32", Work("triad", "host:1/gpu:0", ("64MiB",), 3, (("type", "f32"),))),
        ("gemm gpu:0 name=a flow=c", Work("gemm", "gpu:0", options=(("flow", "c"), ("name", "a")))),
    ],
)  # fmt: skip
def test_known_answers(text: str, expected: flow.Flow) -> None:
    assert parse_flows(text) == (expected,)
    assert parse_flows(text_of([expected])) == (expected,)


def test_lines_separate_flows_as_semicolons_do() -> None:
    lines = "numa:0 -> gpu:0   # the first\ngemm gpu:0\n"
    assert parse_flows(lines) == parse_flows("numa:0 -> gpu:0; gemm gpu:0")


def test_a_transfer_states_the_kinds_of_its_places_and_its_options() -> None:
    (one,) = parse_flows("host:1/gpu:1 -> host:1/gpu:2 peer=on")
    assert isinstance(one, Transfer)
    assert (one.kinds, one.option("peer"), one.option("mode")) == (("gpu", "gpu"), "on", None)


def known_to_the_worker(field: str) -> set[str]:
    """The words that the worker lists when it refuses another one in this field of a case."""
    case = {"benchmark": "h2d", "engine": "ce", "src": "numa:0", "dst": "gpu:0", "src_memory": "pinned",
            "dst_memory": "device", "bytes": 8, "params": {}, "footprint_bytes": 8}  # fmt: skip
    with temporary_worker(None) as worker, pytest.raises(RequestFailed, match="there are ") as refused:
        worker.check(case | {field: "nosuch"})
    return set(str(refused.value).partition("there are ")[2].split(", "))


@needs_worker
def test_the_words_are_those_of_the_core() -> None:
    assert set(ENGINES) == known_to_the_worker("engine")
    assert {kind for kinds in MEMORIES.values() for kind in kinds} == known_to_the_worker("src_memory")


# --- the round trip ---

_disks = st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1).map("disk:{}".format)
_numbers = st.integers(0, 99)
_hosts = st.sampled_from(["", "host:0/", "host:12/"])


@st.composite
def _ends(draw: st.DrawFn) -> tuple[str, str | None]:
    kind = draw(st.sampled_from(sorted(MEMORIES)))
    place = draw(_disks) if kind == "disk" else f"{kind}:{draw(_numbers)}"
    kinds: tuple[str | None, ...] = (None, *MEMORIES[kind])
    return draw(_hosts) + place, draw(st.sampled_from(kinds))


@st.composite
def _transfers(draw: st.DrawFn) -> Transfer:
    (src, src_memory), (dst, dst_memory) = draw(_ends()), draw(_ends())
    kinds = (flow.kind_of(src), flow.kind_of(dst))
    engine = draw(st.sampled_from([None, *ENGINES]))
    options = {"mode": draw(st.sampled_from([None, "batched", "single"]))}
    if kinds == ("gpu", "gpu") and src != dst:
        options["peer"] = draw(st.sampled_from([None, "on"] if engine in ("sm", "tma") else [None, "on", "off"]))
    if kinds == ("numa", "numa") and engine in (None, "cpu"):
        options["threads"] = draw(st.sampled_from([None, "1", "64"]))
    if engine in ("prefetch", "fault"):
        src_memory = dst_memory = None
    size = draw(st.none() | st.integers(1, 1 << 40))
    given_options = tuple(sorted((name, value) for name, value in options.items() if value))
    times = draw(st.integers(1, flow.MOST_TIMES))
    return Transfer(src, src_memory, dst, dst_memory, size, times, engine, given_options)


_names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
_kernels = _names.filter(lambda name: name.rstrip("0123456789") not in MEMORIES)
_plain = st.sampled_from(["bf16", "8192", "64MiB", "4096x128", "nt", "x", "fp8_e4m3", "-1"])
_work = st.builds(
    Work,
    _kernels,
    st.sampled_from(["gpu:0", "host:1/gpu:3", "numa:1", "disk:/a.file"]),
    st.lists(_plain.filter(lambda word: word != "x"), max_size=4).map(tuple),
    st.integers(1, 9),
    st.dictionaries(_names, st.from_regex(r"[a-z0-9.:,/+-]{1,8}", fullmatch=True), max_size=3)
    .map(lambda options: tuple(sorted(options.items()))),
)  # fmt: skip


@given(st.lists(_transfers() | _work, min_size=1, max_size=5))
def test_the_text_of_flows_is_read_as_the_same_flows(flows: list[flow.Flow]) -> None:
    text = text_of(flows)
    assert parse_flows(text) == tuple(flows)
    assert parse_flows(text.replace("; ", "\n").replace(" -> ", "→")) == tuple(flows)
    assert text_of(parse_flows(text)) == text


@given(st.text("numagp:01.->;x24KMiB=#,by ce\n\t→<", max_size=60) | st.text(max_size=30))
def test_every_text_is_read_or_refused_with_a_pointer(text: str) -> None:
    try:
        assert parse_flows(text_of(parse_flows(text))) == parse_flows(text)
    except TextError as error:
        where, line, pointer = str(error).split("\n")
        assert re.fullmatch(r"flows(, line \d+)?:", where) and line.startswith("    ")
        assert re.fullmatch(r" {4,}\^+ \S.*", pointer)


# --- bad input ---

# A text with the wrong part in brackets, and words of the message.
BAD = [
    ("numa:0.pinned -> gpu:0 [64Mb] x2", "not a size; write 64MB or 64MiB"),
    ("numa:0 -> gpu:0 [64M]", "not a size; write 64MB or 64MiB"),
    ("numa:0 -> gpu:0 [1.5k]", "not a size; write 1.5KB or 1.5KiB"),
    ("numa:0 -> gpu:0 [7q]", "not a size in whole bytes; write 4096, 64KiB or 4MiB"),
    ("numa:0 -> gpu:0 [0.3KiB]", "not a size in whole bytes"),
    ("numa:0 -> gpu:0 [-5]", "not a size"),
    ("numa:0 -> gpu:0 [0]", "a transfer has 1 byte to 1 TiB"),
    ("numa:0 -> gpu:0 [2TiB]", "a transfer has 1 byte to 1 TiB"),
    ("numa:0 -> gpu:0 64 [MiB]", "write a size as one word, such as 64MiB"),
    ("numa:0 -> gpu:0 8 [16]", "the size is given twice; the first is 8"),
    ("numa:0 -> gpu:0 x2 [x3]", "the count is given twice; the first is x2"),
    ("numa:0 -> gpu:0 [x0]", "a flow occurs at least once"),
    ("numa:0 -> gpu:0 [x2.5]", "not a count; write x2"),
    ("numa:0 -> gpu:0 [x -3] by ce", "not a count; write x3"),
    ("numa:0 -> gpu:0 [x]", "not a count; write x2"),
    ("numa:0 -> gpu:0 [3x]", "not a count; write x3"),
    ("numa:0 -> gpu:0 [×2]", "not a count; write x2"),
    ("numa:0 -> gpu:0 [x99999999999999]", "not a count; the largest is x1000000000000"),
    ("numa:0 -> gpu:0 [by]", "the engine is missing; write by ce or by sm"),
    ("numa:0 -> gpu:0 by [cee] x2", "not an engine (did you mean ce?); engines are ce, sm"),
    ("numa:0 -> gpu:0 by ce [by] sm", "the engine is given twice; the first is"),
    ("numa:0 -> gpu:0 [sm]", "write by sm"),
    ("numa:0 [gpu:0] 64MiB", "the arrow is missing"),
    ("gpu:1[ ]", "the arrow is missing; write it like numa:0 -> gpu:0 64MiB"),
    ("[->] gpu:0", "the source is missing before the arrow"),
    ("numa:0 [->]", "the destination is missing after the arrow"),
    ("numa:0 [=>] gpu:0", "not an arrow; write ->"),
    ("gpu:0[<->]gpu:1", "not an arrow; write -> from the source to the destination"),
    ("gpu:0 [-->] gpu:1", "not an arrow"),
    ("gpu:0->gpu:1[->]gpu:2", "a second arrow"),
    ("numa:0 [64MiB] -> gpu:0", "the arrow belongs here; options follow the destination"),
    ("numa:0 -> gpu:0[,] 64MiB", "no comma here; spaces separate words"),
    ("numa:0 -> gpu:0 64MiB[,]x2", "no comma here"),
    ("numa:0 -> gpu:0 [gpu:1]", "a transfer has one destination; a semicolon separates flows"),
    ("[gpu0] -> numa:0", "not a place (did you mean gpu:0?)"),
    ("[cuda:3] -> numa:0", "not a place (did you mean gpu:3?)"),
    ("[cpu:1].pinned -> gpu:0", "not a place (did you mean numa:1?)"),
    ("numa:0 -> [GPU:2]", "not a place (did you mean gpu:2?)"),
    ("numa:0 -> [gpu]", "not a place; write gpu:0"),
    ("numa:0 -> [gpu:x]", "not a place; write gpu:0"),
    ("numa:0 -> [disk:]", "not a place; write disk:PATH"),
    ("numa:0 -> [nuna:4]", "not a place (did you mean numa?)"),
    ("[copy] -> gpu:0", "not a place; write numa:0 for host memory, gpu:0 for a GPU"),
    ("numa:0.[pined] -> gpu:0", "not a kind of memory (did you mean pinned?); numa:0 has pinned, pageable"),
    ("numa:0.[device] -> gpu:0", "no memory of this place; numa:0 has pinned, pageable"),
    ("numa:0 -> gpu:0.[pinned] 8", "no memory of this place; gpu:0 has device, managed"),
    ("nic:0.[pinned] -> gpu:0", "no memory of this place"),
    ("[numa:0.] -> gpu:0", "not a kind of memory"),
    ("numa:0.pinned -> gpu:0 [pageable]", "the host memory is given twice; the first is pinned"),
    ("gpu:0 -> gpu:1 [pinned]", "no end is host memory; leave out pinned"),
    ("numa:0 -> numa:1 [pinned]", "both ends are host memory; write it at its place, as in numa:0.pinned"),
    ("numa:0 -> gpu:0 [device]", "write the memory at its place, as in gpu:0.device"),
    ("gpu:0 -> gpu:1 peer=[of]", "peer is on or off (did you mean off?)"),
    ("gpu:0 -> gpu:1 [peer=]", "peer is on or off"),
    ("gpu:0 -> gpu:1 [peer] = off", "write peer=on as one word"),
    ("gpu:0 -> gpu:1 [per]=off", "not an option (did you mean peer?); options are peer=, mode=, threads="),
    ("gpu:0 -> gpu:1 [src]=off", "not an option"),
    ("gpu:0 -> gpu:1 [=off]", "not an option"),
    ("gpu:0 -> gpu:1 peer=off [peer=on]", "peer is given twice; the first is peer=off"),
    ("gpu:0 -> gpu:1 mode=single [batched]", "the mode is given twice; the first is mode=single"),
    ("numa:0 -> numa:1 threads=[0]", "threads is a whole number from 1 to"),
    ("numa:0 -> gpu:0 [peer=off] 8", "peer applies only to transfers between two GPUs"),
    ("gpu:0 -> gpu:0 [peer=on]", "peer applies only to transfers between two GPUs"),
    ("gpu:0 -> gpu:1 [peer=off] by sm", "by sm needs peer access"),
    ("numa:0 -> gpu:0 [threads=4]", "threads applies only to copies between host memories by cpu"),
    ("numa:0.[pinned] -> gpu:0 by fault", "by fault moves managed or system memory; leave out pinned"),
    ("numa:0 -> gpu:0 [pagable]", "not known here (did you mean pageable?); write a size, x2, by ENGINE"),
    ("numa:0 -> gpu:0 [!]", "not known here; write a size"),
    ("gemm[ ]", "the place is missing; write gemm gpu:0"),
    ("gemm [8192] gpu:0", "not a place"),
    ("gemm gpu:0.[device]", "work has no memory kind; write gemm gpu:0"),
    ("gemm gpu:0 bf16 [by] sm", "work has one place and no engine"),
    ("gemm gpu:0 [gpu:1]", "work has one place and no engine; a semicolon separates flows"),
    ("gemm gpu:0 [type=]", "not an option; write name=value without spaces"),
    ("gemm gpu:0 type=a [type=b]", "type is given twice; the first is type=a"),
    ("gemm gpu:0 x2 [x2]", "the count is given twice"),
    ("[gpu] 0", "not a place; write gpu:0"),
    ("[gpu0] numa:0", "not a place (did you mean gpu:0?)"),
    ('[{"record":"run"}]', "this is not a transfer: write it like numa:0 -> gpu:0 64MiB"),
    ("[ ]", "there is no flow here; write it like numa:0 -> gpu:0 64MiB"),
    ("[;] ;", "there is no flow here"),
]
BAD = [
    ("numa:0 [gpu:0] 64MiB", problem) if text == "numa:0 [gpu:0] 64MiB" else (text, problem) for text, problem in BAD
]


@pytest.mark.parametrize(("marked", "problem"), BAD, ids=[text for text, _ in BAD])
def test_the_wrong_word_is_pointed_at(marked: str, problem: str) -> None:
    start, end = marked.index("["), marked.rindex("]") - 1
    text = marked.replace("[", "").replace("]", "")
    with pytest.raises(TextError) as refused:
        parse_flows(text, "--with")
    where, line, pointer = str(refused.value).split("\n")
    assert (where, line) == ("--with:", "    " + text.rstrip())
    assert pointer.startswith(f"    {' ' * start}{'^' * (end - start)} {problem}")
    assert refused.value.problem in pointer and refused.value.exit_code == 2


def test_the_line_of_a_file_is_named() -> None:
    with pytest.raises(TextError) as refused:
        parse_flows("# two flows\nnuma:0 -> gpu:0\n   gpu:0 -> gpu\n", "flows.txt")
    assert str(refused.value).split("\n") == [
        "flows.txt, line 3:", "    gpu:0 -> gpu", "             ^^^ not a place; write gpu:0",
    ]  # fmt: skip


def test_a_long_line_is_shortened_around_the_word() -> None:
    text = "; ".join(["numa:0 -> gpu:0"] * 30 + ["numa:0 -> gpu:0 fast"] + ["numa:0 -> gpu:0"] * 30)
    with pytest.raises(TextError) as refused:
        parse_flows(text)
    _, line, pointer = str(refused.value).split("\n")
    assert line.startswith("    …") and line.endswith("…") and len(line) <= 106
    assert line[pointer.index("^") : pointer.rindex("^") + 1] == "fast"


def test_the_pointer_counts_columns_and_shows_no_control_characters() -> None:
    with pytest.raises(TextError) as refused:
        parse_flows("disk:/\u6570\u636e\x1b ->\tgpu:0 fast")  # two characters of two columns each
    _, line, pointer = str(refused.value).split("\n")
    assert line == "    disk:/\u6570\u636e? -> gpu:0 fast"
    assert pointer.index("^") == line.index("fast") + 2


def test_a_caller_points_at_a_part_of_a_flow() -> None:
    (one,) = parse_flows("gpu:0 -> gpu:9 peer=on", "--with")
    error = wrong(one, "dst", "h200x4 has no gpu:9", NOT_HERE)
    assert str(error) == "--with:\n    gpu:0 -> gpu:9 peer=on\n             ^^^^^ h200x4 has no gpu:9"
    assert error.exit_code == NOT_HERE
    assert str(wrong(one, "peer=", "no")).endswith("\n                   ^^^^^^^ no")
    assert str(wrong(one, "bytes", "no")).endswith("\n    ^^^^^^^^^^^^^^^^^^^^^^ no")  # not written: the whole flow
    built = Work("gemm", "gpu:3", ("bf16",))
    assert str(wrong(built, "place", "no")) == "flows:\n    gemm gpu:3 bf16\n         ^^^^^ no"


# --- paths in ids ---


def test_paths_of_an_id_are_read_and_written() -> None:
    text = "numa:0->gpu:1,host:1/gpu:2->host:1/numa:0"
    paths = [("numa:0", "gpu:1"), ("host:1/gpu:2", "host:1/numa:0")]
    assert read_paths(text) == paths and write_paths(paths) == text and read_paths("") == []


@pytest.mark.parametrize("text", ["numa:0", "numa:0->", "->gpu:1", "numa:0->gpu:1,", "gpu:0->gpu:1->gpu:2"])
def test_an_invalid_path_of_an_id_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a path; write numa:0->gpu:1, and a comma between paths"):
        read_paths(text)
