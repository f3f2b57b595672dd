"""The one grammar of flows (docs/reference/flows.md): transfers and work that run at once, as one line of text.

    numa:0.pinned -> gpu:0 64MiB x2 by ce; gpu:1 -> gpu:2 peer=off; gemm gpu:0 bf16 8192

This module checks the form: words, places, memory kinds and contradictions within a flow. The caller decides whether a
machine has a place, which memory and size are the default, and which kernels exist; `wrong` points at a word for it.
`read_path`, `read_paths` and `write_paths` are the short form in ids of points, `numa:0->gpu:1,gpu:2->numa:0`.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from linkscope.errors import WRONG_USAGE, TextError, suggestion
from linkscope.units import MOST_BYTES, exact_bytes, parse_bytes, parse_whole, size_problem

ENGINES = ("ce", "sm", "tma", "batch", "graph", "cpu", "prefetch", "fault", "file", "nic", "mpi", "nccl", "ucx", "nixl")
# The memory kinds that a place of each kind can have. The default comes first.
MEMORIES: Mapping[str, tuple[str, ...]] = {
    "numa": (
        "pinned", "pageable", "registered", "wc", "mapped", "managed", "system", "hugepage", "registered_hugepage",
        "shm",
    ),
    "gpu": ("device", "managed", "system", "pool", "vmm", "ipc", "posix_fd"),
    "nic": (),
    "disk": ("file",),
}  # fmt: skip
MOST_TIMES = 10**12  # repetitions of a flow
MOST_THREADS = 1 << 20
_HOST_ONLY = tuple(kind for kind in MEMORIES["numa"] if kind not in MEMORIES["gpu"])
_OPTIONS: Mapping[str, tuple[str, ...]] = {"peer": ("on", "off"), "mode": ("batched", "single"), "threads": ()}
_MODES = _OPTIONS["mode"]  # also words of their own: `batched` is `mode=batched`
_ARROWS = ("->", "→")
_NOT_ARROWS = r"<-+>?|<=+>?|-{2,}>|=+>|[←↔⇒⟶➔]"
_TOKEN = re.compile(rf"(?:{_NOT_ARROWS})|->|→|;|(?:(?!{_NOT_ARROWS}|->|→)[^\s;])+")
_PLACE = re.compile(r"(?:host:\d+/)?(?:(?:numa|gpu|nic):\d+|gpu:all|disk:.+)", re.ASCII)
_NAME = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_OTHER_NAMES = {"cpu": "numa", "host": "numa", "node": "numa", "cuda": "gpu", "device": "gpu", "ssd": "disk"}
_EXAMPLE = "numa:0 -> gpu:0 64MiB"


@dataclass(frozen=True)
class Written:
    """Where the parts of a flow stand in the line that it was read from. `where` names the line in a message."""

    line: str
    where: str
    spans: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Transfer:
    """Bytes that move. None: not written, so the caller chooses. `times`: the same transfer runs `times` times at once.

    `options`: sorted pairs of `peer`, `mode` and `threads` with their values.
    """

    src: str
    src_memory: str | None
    dst: str
    dst_memory: str | None
    bytes: int | None = None
    times: int = 1
    engine: str | None = None
    options: tuple[tuple[str, str], ...] = ()
    written: Written | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        size = [] if self.bytes is None else [exact_bytes(self.bytes)]
        ends = [_end_text(self.src, self.src_memory), "->", _end_text(self.dst, self.dst_memory)]
        return " ".join([*ends, *size, *_options_text(self.times, self.engine, self.options)])

    @property
    def kinds(self) -> tuple[str, str]:
        """The kinds of both places: ('numa', 'gpu')."""
        return kind_of(self.src), kind_of(self.dst)

    def option(self, name: str) -> str | None:
        """The value of an option; None if the text lacks it."""
        return dict(self.options).get(name)


@dataclass(frozen=True)
class Work:
    """A kernel that runs at a place and moves nothing between places. `words` and `options` belong to the kernel."""

    name: str
    place: str
    words: tuple[str, ...] = ()
    times: int = 1
    options: tuple[tuple[str, str], ...] = ()
    written: Written | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        place = _end_text(self.place, None)
        return " ".join([self.name, place, *self.words, *_options_text(self.times, None, self.options)])


Flow = Transfer | Work


def parse_flows(text: str, where: str = "flows") -> tuple[Flow, ...]:
    """The flows of a text; semicolons and line ends separate them. Raises TextError; `where` begins its message."""
    lines = text.splitlines()
    found: list[Flow] = []
    for number, line in enumerate(lines, 1):
        at = f"{where}, line {number}" if len(lines) > 1 else where
        found += [_Parser(line, at, words).flow() for words in _flows_in(line)]
    if not found:
        raise TextError(lines[0] if lines else "", (0, 0), f"there is no flow here; write it like {_EXAMPLE}", where)
    return tuple(found)


def text_of(flows: Iterable[Flow]) -> str:
    """The flows as one line, which `parse_flows` reads back."""
    return "; ".join(map(str, flows))


def without_comment(line: str) -> str:
    """The line without its comment and the spaces around it."""
    return line.partition("#")[0].strip()


def wrong(flow: Flow, part: str, problem: str, exit_code: int = WRONG_USAGE) -> TextError:
    """The error that points at a part of a flow: `flow`, a field such as `dst`, an option such as `peer=`, or `word 0`,
    the first word of work."""
    written = flow.written or parse_flows(str(flow))[0].written
    assert written is not None  # every parsed flow has it
    span = written.spans.get(part, written.spans["flow"])
    return TextError(written.line, span, problem, written.where, exit_code)


def is_place(text: str) -> bool:
    """Whether the text is written as a place, whatever the machine is."""
    return _PLACE.fullmatch(text) is not None


def kind_of(place: str) -> str:
    """The kind of a place: 'host:0/gpu:1' -> 'gpu'."""
    return (place.partition("/")[2] if place.startswith("host:") else place).partition(":")[0]


def read_path(text: str) -> tuple[str, str]:
    """Source and destination of 'numa:0->gpu:1'. Raises ValueError with the problem."""
    ends = text.split("->")
    if len(ends) != 2 or not all(ends):
        raise ValueError(f"'{text}' is not a path; write numa:0->gpu:1")
    return ends[0], ends[1]


def read_paths(text: str) -> list[tuple[str, str]]:
    """Sources and destinations of 'numa:0->gpu:1,gpu:2->numa:0'; '' has none. Raises ValueError with the problem."""
    try:
        return [read_path(path) for path in text.split(",")] if text else []
    except ValueError as problem:
        raise ValueError(f"{problem}, and a comma between paths") from None


def write_paths(paths: Iterable[tuple[str, str]]) -> str:
    """The text of paths that `read_paths` reads back."""
    return ",".join(f"{src}->{dst}" for src, dst in paths)


@dataclass(frozen=True)
class _Word:
    text: str
    start: int

    @property
    def span(self) -> tuple[int, int]:
        return self.start, self.start + len(self.text)


def _flows_in(line: str) -> Iterator[list[_Word]]:
    """Yields the words of every flow of a line."""
    words: list[_Word] = []
    for match in _TOKEN.finditer(line.partition("#")[0]):
        if match[0] != ";":
            words.append(_Word(match[0], match.start()))
        elif words:
            yield words
            words = []
    if words:
        yield words


class _Parser:
    """Reads one flow from its words. `_spans` has the place in the line of every part that was read."""

    def __init__(self, line: str, where: str, words: Sequence[_Word]) -> None:
        self._line, self._where, self._words = line, where, words
        self._spans = {"flow": (words[0].start, words[-1].span[1])}
        self._written = Written(line, where, self._spans)

    def flow(self) -> Flow:
        for word in self._words:
            if re.fullmatch(_NOT_ARROWS, word.text):
                raise self._fail(word, "not an arrow; write -> from the source to the destination")
        has_arrow = any(word.text in _ARROWS for word in self._words)
        return self._transfer() if has_arrow else self._work()

    def _fail(self, at: _Word | tuple[int, int], problem: str) -> TextError:
        return TextError(self._line, at.span if isinstance(at, _Word) else at, problem, self._where)

    def _refuse_commas(self, words: Iterable[_Word]) -> None:
        for word in words:
            if "," in word.text and "=" not in word.text:
                at = word.start + word.text.index(",")
                raise self._fail((at, at + 1), "no comma here; spaces separate words, a semicolon separates flows")

    def _once(self, part: str, word: _Word, name: str) -> None:
        if part in self._spans:
            start, end = self._spans[part]
            raise self._fail(word, f"{name} is given twice; the first is {self._line[start:end]}")
        self._spans[part] = word.span

    def _transfer(self) -> Transfer:
        first, *rest = self._words
        if first.text in _ARROWS:
            raise self._fail(first, f"the source is missing before the arrow; write it like {_EXAMPLE}")
        found: dict[str, Any] = {"options": {}}
        found["src"], found["src_memory"] = self._end("src", first)
        arrow, *rest = rest
        if arrow.text not in _ARROWS:
            raise self._fail(arrow, "the arrow belongs here; options follow the destination")
        if not rest:
            raise self._fail(arrow, f"the destination is missing after the arrow; write it like {_EXAMPLE}")
        second = next((word for word in rest if word.text in _ARROWS), None)
        if second is not None:
            raise self._fail(second, "a second arrow; a flow has one, and a semicolon separates flows")
        self._refuse_commas(rest)
        found["dst"], found["dst_memory"] = self._end("dst", rest[0])
        words = deque(rest[1:])
        while words:
            self._transfer_option(words, found)
        found["options"] = tuple(sorted(found["options"].items()))
        transfer = Transfer(**found, written=self._written)
        _refuse_contradictions(transfer)
        return transfer

    def _end(self, part: str, word: _Word) -> tuple[str, str | None]:
        """The place and the memory kind of 'numa:0.pinned'."""
        text, dot, memory = _split_end(word.text)
        place = unquote(text) if kind_of(text) == "disk" else text
        if not is_place(place):
            raise self._fail((word.start, word.start + len(text)), _place_problem(text))
        self._spans[part] = (word.start, word.start + len(text))
        if not dot:
            return place, None
        span = (word.start + len(text) + 1, word.span[1])
        kinds = MEMORIES[kind_of(place)]
        if memory not in kinds:
            known = [kind for of_place in MEMORIES.values() for kind in of_place]
            what = "no memory of this place" if memory in known else f"not a kind of memory{suggestion(memory, known)}"
            cure = f"; {place} has {', '.join(kinds)}" if kinds else ""
            raise self._fail(span if memory else word, what + cure)
        self._spans[f"{part}_memory"] = span
        return place, memory

    def _transfer_option(self, words: deque[_Word], found: dict[str, Any]) -> None:
        """Reads the next option; it removes the words of the option."""
        word = words.popleft()
        name, equals, _ = word.text.partition("=")
        if self._is_times(word, words):
            found["times"] = self._times(word, words)
        elif re.match(r"[+-]?\.?[0-9]", word.text):
            self._once("bytes", word, "the size")
            found["bytes"] = self._size(word)
        elif word.text == "by":
            self._once("engine", word, "the engine")
            found["engine"] = self._engine(word, words)
        elif word.text in _HOST_ONLY:
            found[self._host_end(word, (kind_of(found["src"]), kind_of(found["dst"])))] = word.text
        elif word.text in _MODES:
            self._once("mode=", word, "the mode")
            found["options"]["mode"] = word.text
        elif equals:
            found["options"][name] = self._value(word)
            self._once(f"{name}=", word, name)
        else:
            raise self._fail(word, _unknown_option(word.text))

    def _is_times(self, word: _Word, following: Sequence[_Word]) -> bool:
        """Whether this is 'x2', 'x 2', or an attempt at them."""
        alone = word.text == "x" and (not following or bool(re.match(r"[0-9+-]", following[0].text)))
        return alone or bool(re.fullmatch(r"[xX×][0-9+.-][^=]*|[0-9]+[xX×]", word.text))

    def _times(self, word: _Word, following: deque[_Word]) -> int:
        if word.text == "x" and following:
            number = following.popleft()
            word = _Word(self._line[word.start : number.span[1]], word.start)
        self._once("times", word, "the count")
        count = re.fullmatch(r"x\s*(.+)", word.text)
        digits = re.search(r"[0-9]+", word.text)
        times = parse_whole(count[1], 0, MOST_TIMES) if count else None
        if times == 0:
            raise self._fail(word, "a flow occurs at least once; write x1, or leave the flow out")
        if times is None:
            more = digits is not None and int(digits[0][:20]) > MOST_TIMES
            cure = f"the largest is x{MOST_TIMES}" if more else f"write x{digits[0] if digits else 2}"
            raise self._fail(word, f"not a count; {cure}")
        return times

    def _size(self, word: _Word) -> int:
        bits = re.fullmatch(r".*[KMGT]i?b", word.text)  # 64Mb are megabits
        size = None if bits else parse_bytes(word.text)
        if size is None:
            raise self._fail(word, size_problem(word.text))
        if not 0 < size <= MOST_BYTES:
            raise self._fail(word, "a transfer has 1 byte to 1 TiB")
        return size

    def _engine(self, by: _Word, following: deque[_Word]) -> str:
        if not following:
            raise self._fail(by, "the engine is missing; write by ce or by sm")
        word = following.popleft()
        if word.text not in ENGINES:
            raise self._fail(word, f"not an engine{suggestion(word.text, ENGINES)}; engines are {', '.join(ENGINES)}")
        self._spans["engine"] = word.span
        return word.text

    def _host_end(self, word: _Word, kinds: tuple[str, str]) -> str:
        """The field of a memory kind without a place: that of the only end in host memory."""
        if kinds.count("numa") != 1:
            if "numa" not in kinds:
                raise self._fail(word, f"no end is host memory; leave out {word.text}")
            raise self._fail(word, f"both ends are host memory; write it at its place, as in numa:0.{word.text}")
        part = "src_memory" if kinds[0] == "numa" else "dst_memory"
        self._once(part, word, "the host memory")
        return part

    def _value(self, word: _Word) -> str:
        name, _, value = word.text.partition("=")
        if name not in _OPTIONS:
            raise self._fail(
                (word.start, word.start + len(name) if name else word.span[1]),
                f"not an option{suggestion(name, _OPTIONS)}; options are {', '.join(f'{one}=' for one in _OPTIONS)}",
            )
        span = (word.start + len(name) + 1, word.span[1]) if value else word.span
        if name == "threads" and parse_whole(value, 1, MOST_THREADS) is None:
            raise self._fail(span, f"threads is a whole number from 1 to {MOST_THREADS}")
        if name != "threads" and value not in _OPTIONS[name]:
            raise self._fail(span, f"{name} is {' or '.join(_OPTIONS[name])}{suggestion(value, _OPTIONS[name])}")
        return str(int(value)) if name == "threads" else value

    def _work(self) -> Work:
        name, *rest = self._words
        if is_place(_split_end(name.text)[0]):
            after = rest[0] if rest else (name.span[1], name.span[1] + 1)
            raise self._fail(after, f"the arrow is missing; write it like {_EXAMPLE}")
        if not _NAME.fullmatch(name.text) or kind_of(name.text).rstrip("0123456789") in MEMORIES:
            raise self._fail(name, _place_problem(name.text))
        if not rest:
            raise self._fail((name.span[1], name.span[1] + 1), f"the place is missing; write {name.text} gpu:0")
        self._refuse_commas(rest)
        place, memory = self._end("place", rest[0])
        if memory is not None:
            raise self._fail(self._spans["place_memory"], f"work has no memory kind; write {name.text} {place}")
        self._spans["name"] = name.span
        times, plain, options = 1, list[str](), dict[str, str]()
        words = deque(rest[1:])
        while words:
            word = words.popleft()
            if self._is_times(word, words):
                times = self._times(word, words)
            elif "=" in word.text:
                key, value = self._free_option(word)
                options[key] = value
            elif word.text == "by" or is_place(word.text):
                raise self._fail(word, "work has one place and no engine; a semicolon separates flows")
            else:
                self._spans[f"word {len(plain)}"] = word.span
                plain.append(word.text)
        return Work(name.text, place, tuple(plain), times, tuple(sorted(options.items())), self._written)

    def _free_option(self, word: _Word) -> tuple[str, str]:
        name, _, value = word.text.partition("=")
        if not _NAME.fullmatch(name) or not value:
            raise self._fail(word, "not an option; write name=value without spaces")
        self._once(f"{name}=", word, name)
        return name, value


def _options_text(times: int, engine: str | None, options: Iterable[tuple[str, str]]) -> list[str]:
    words = [f"x{times}"] * (times != 1) + [f"by {engine}"] * (engine is not None)
    return words + [f"{name}={value}" for name, value in options]


def _refuse_contradictions(transfer: Transfer) -> None:
    engine, kinds = transfer.engine, transfer.kinds
    if transfer.option("peer") and (kinds != ("gpu", "gpu") or transfer.src == transfer.dst):
        raise wrong(transfer, "peer=", "peer applies only to transfers between two GPUs")
    if transfer.option("peer") == "off" and engine in ("sm", "tma"):
        raise wrong(transfer, "peer=", f"by {engine} needs peer access; write by ce, or leave out peer=off")
    if transfer.option("threads") and (kinds != ("numa", "numa") or engine not in (None, "cpu")):
        raise wrong(transfer, "threads=", "threads applies only to copies between host memories by cpu")
    if engine in ("prefetch", "fault"):
        for part, memory in (("src_memory", transfer.src_memory), ("dst_memory", transfer.dst_memory)):
            if memory not in (None, "managed", "system"):
                raise wrong(transfer, part, f"by {engine} moves managed or system memory; leave out {memory}")


def _split_end(text: str) -> tuple[str, str, str]:
    """'numa:0.pinned' as place, dot and memory. A path of a disk may have dots; `file` is the only memory of a disk."""
    if kind_of(text) != "disk":
        return text.partition(".")
    place, dot, memory = text.rpartition(".")
    return (place, dot, memory) if memory in MEMORIES["disk"] else (text, "", "")


def _end_text(place: str, memory: str | None) -> str:
    if kind_of(place) == "disk":
        place = quote(place, "/:")
        if memory is None and _split_end(place)[1]:
            place = "%2E".join(place.rsplit(".", 1))  # a path that ends like a memory kind
    return place if memory is None else f"{place}.{memory}"


def _place_problem(text: str) -> str:
    """The problem with a word where a place belongs."""
    if not re.fullmatch(r"[\w:/.%~-]+", text):
        return f"this is not a transfer: write it like {_EXAMPLE}"
    kind, _, number = re.sub(r"^host:\d+/", "", text).partition(":")
    letters = re.sub(r"[0-9]+$", "", kind).lower()
    name, digits = _OTHER_NAMES.get(letters, letters), re.search(r"[0-9]+", number or kind)
    if kind in MEMORIES:
        return f"not a place; write {'disk:PATH' if kind == 'disk' else f'{kind}:{digits[0] if digits else 0}'}"
    if name in MEMORIES and name != "disk":
        return f"not a place (did you mean {name}:{digits[0] if digits else 0}?)"
    cure = f"write {kind} {number}" if is_place(number) else "write numa:0 for host memory, gpu:0 for a GPU"
    return f"not a place{suggestion(name, MEMORIES)}; {cure}"


def _unknown_option(text: str) -> str:
    """The problem with a word after the ends of a transfer."""
    if is_place(_split_end(text)[0]):
        return "a transfer has one destination; a semicolon separates flows"
    if parse_bytes(f"1{text}") is not None:
        return f"write a size as one word, such as 64{text}"
    if text in _OPTIONS:
        return f"write {text}={(_OPTIONS[text] or ('4',))[0]} as one word"
    if text in ENGINES:
        return f"write by {text}"
    if text in MEMORIES["gpu"]:
        return f"write the memory at its place, as in gpu:0.{text}"
    known = [*_HOST_ONLY, *_MODES, *ENGINES, *_OPTIONS]
    return f"not known here{suggestion(text, known)}; write a size, x2, by ENGINE, a host memory or NAME=VALUE"
