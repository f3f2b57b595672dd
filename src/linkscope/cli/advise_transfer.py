"""`linkscope advise --src --dst --bytes`: the methods of one transfer, from a run, from a model, or from both."""

import argparse
import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from linkscope.cli import options
from linkscope.cli.runs import read, refuse_without_values
from linkscope.errors import FINE, NOT_HERE, UserError, suggestion
from linkscope.flow import MEMORIES
from linkscope.units import format_bytes

if TYPE_CHECKING:
    from linkscope.advise.answer import Answer
    from linkscope.advise.methods import TransferMethod
    from linkscope.advise.question import Question
    from linkscope.advise.ranking import Candidate, Ranked
    from linkscope.machine.model import Model
    from linkscope.runfile import Point, PointId, Run

_MOST_COPIES = 10**9
_MOST_MISSING = 3  # costs that a message names
_CALLS_UNKNOWN = (
    "the time of the host's calls is not known, and short batched copies take at least that; "
    "linkscope run --suite full measures them"
)
_LIBRARY_FROM = 1 << 20  # bytes of pageable memory that linkscope.copy moves through its ring


def modelled(name: str) -> "Model":
    """The model of --machine. Raises UserError for a machine that is none."""
    from linkscope.machine.choose import model_named

    return model_named("--machine", name, "advise needs a model. Measure a machine first: linkscope run -o RUN.jsonl")


def one_transfer(arguments: argparse.Namespace) -> int:
    """Answers and prints."""
    from linkscope.cli import advise_transfer_json, advise_transfer_text

    asked = _question(arguments)
    run = read(arguments.run) if arguments.run else None
    model = modelled(arguments.machine) if arguments.machine else None
    if run is not None:
        refuse_without_values(run)
        if asked.others and model is None:
            model = _model_in(run)
    found = _answer(asked, run, model)
    if arguments.json:
        print(json.dumps(advise_transfer_json.as_json(found, arguments.run)))
    else:
        advise_transfer_text.print_answer(found, arguments.run, everything=arguments.all)
    return FINE


def _question(arguments: argparse.Namespace) -> "Question":
    from linkscope.advise.question import UNTOUCHED, Question
    from linkscope.cli.predict import other_transfers

    size = options.size("--bytes", arguments.bytes)
    reuse = None
    if arguments.reuse is not None:
        reuse = options.whole("--reuse", arguments.reuse, least=1, most=_MOST_COPIES)
    piece = options.size("--pieces", arguments.pieces) if arguments.pieces is not None else None
    known = (*MEMORIES["numa"], UNTOUCHED)
    if arguments.memory and arguments.memory not in known:
        meant = suggestion(arguments.memory, known)
        raise UserError(f"--memory {arguments.memory}: this is not host memory{meant}. Write {', '.join(known)}")
    if piece and piece > size:
        raise UserError(f"--pieces {arguments.pieces} is larger than --bytes {arguments.bytes}: name a smaller piece")
    if piece and size % piece:
        raise UserError(
            f"--bytes {arguments.bytes} is not a whole number of pieces of {arguments.pieces}: "
            f"name --bytes {size // piece * piece} or --bytes {-(-size // piece) * piece}"
        )
    if piece == size:
        raise UserError(f"--pieces {arguments.pieces}: one piece is an ordinary copy. Leave out --pieces")
    others = tuple(itertools.chain(*map(other_transfers, arguments.others)))
    untouched = arguments.memory == UNTOUCHED
    memory = "pageable" if untouched else arguments.memory
    asked = Question(arguments.src, arguments.dst, size, memory, arguments.alone, reuse, piece, others, untouched)
    _refuse_untouched(asked)
    return asked


def _refuse_untouched(asked: "Question") -> None:
    """Raises UserError for questions about untouched memory that no operation answers."""
    if not asked.untouched:
        return
    if _kinds(asked) != ("gpu", "numa"):
        raise UserError("--memory untouched: a copy from a GPU to host memory. Write --src gpu:0 --dst numa:0")
    if asked.reuse or asked.piece or asked.others:
        option = "--reuse" if asked.reuse else "--pieces" if asked.piece else "--with"
        raise UserError(f"--memory untouched: each copy has one range of new memory, alone. Leave out {option}")


def _model_in(run: "Run") -> "Model | None":
    """The model that a simulated run was measured on; None for other runs."""
    import msgspec

    from linkscope.machine.model import Model

    content = run.header.machine.get("model")
    if not run.modelled or content is None:
        return None
    try:
        return msgspec.convert(content, Model)
    except msgspec.ValidationError as error:
        raise UserError(f"{run.path}: the model in its first line is damaged ({error})") from None


def _answer(asked: "Question", run: "Run | None", model: "Model | None") -> "Answer":
    from linkscope.advise.answer import Answer
    from linkscope.advise.host_calls import HostCalls, without_calls
    from linkscope.advise.once import OnceCosts
    from linkscope.advise.ranking import candidates, present, ranked
    from linkscope.advise.transfer_text import unlisted

    raw = _methods(run.points, asked, beside=True) if run is not None else []
    measured, without = _counted(raw, run.points if run is not None else [], asked)
    foretold = _foretold(asked, model, raw) if model is not None else _Foretold([], [], [])
    listed = candidates(measured, foretold.methods)
    if not listed:
        if run is not None and without:
            raise UserError(f"{run.path}: {without[0][1]}", NOT_HERE)
        _refuse(asked, run, model, foretold.unlisted)
    _refuse_absent_memory(asked, run, listed)
    costs = OnceCosts([run.points if run is not None else [], foretold.once])
    now = present(listed, asked.memory)
    found = ranked(listed, now, asked, costs)
    if asked.reuse and all(one.total is None for one in found):
        _refuse_without_costs(asked, run, found)
    missing = unlisted(run.points, asked.src, asked.dst, asked.bytes) if run is not None and asked.alone else []
    notes = _notes(asked, run, model, found, now)
    if run is not None and not (asked.alone or asked.piece) and without_calls(measured, HostCalls(run.points)):
        notes.append("the run did not measure the host's calls (suite full does): times are those of the GPU alone")
    levels = {point.ci_level for one in foretold.methods for point in one.points if point.ci95_s}
    if model is not None and foretold.accuracy and levels - {None}:
        name = model.machine.name
        notes.append(f"{name} states no accuracy: intervals are the errors of {foretold.accuracy}, by operation")
    return Answer(asked, run, model, found, now, [*missing, *without, *foretold.unlisted], notes)


def _methods(points: "Sequence[Point]", asked: "Question", *, beside: bool) -> "list[TransferMethod]":
    """The methods in points. `beside`: the times beside other transfers are those of points of several flows."""
    from linkscope.advise import transfer_methods
    from linkscope.advise.methods import in_state
    from linkscope.advise.pieces import piece_methods
    from linkscope.advise.together import methods_together

    points = in_state(points, untouched=asked.untouched)
    if asked.others and beside:
        return methods_together(points, asked)
    if asked.piece:
        return piece_methods(points, asked.src, asked.dst, asked.bytes, asked.piece)
    return transfer_methods(points, asked.src, asked.dst, asked.bytes, alone=asked.alone)


def _counted(
    found: "list[TransferMethod]", points: "Sequence[Point]", asked: "Question"
) -> "tuple[list[TransferMethod], list[tuple[int, str]]]":
    """The methods with the time of the host's calls from the points, and the number of methods that are left out, with
    the reason. The times of single copies and of pieces contain the calls."""
    from linkscope.advise.host_calls import HostCalls, with_calls

    if asked.alone or asked.piece:
        return found, []
    kept, left_out = with_calls(found, HostCalls(points), asked.bytes)
    return kept, [(left_out, _CALLS_UNKNOWN)] if left_out else []


@dataclass(frozen=True)
class _Foretold:
    """What a model says: methods, points of what is paid once, the methods that it cannot say, and whose errors its
    intervals are: '' for its own."""

    methods: "list[TransferMethod]"
    once: "list[Point]"
    unlisted: list[tuple[int, str]]
    accuracy: str = ""


def _foretold(asked: "Question", model: "Model", measured: "Sequence[TransferMethod]") -> _Foretold:
    """What the model says of its usual methods and of the measured ones."""
    from linkscope.advise.predicted import is_predictable, predicted_points, with_accuracy
    from linkscope.cli.predict import refuse_unknown
    from linkscope.plan import check_written
    from linkscope.run.foretell import Foretelling

    for option, place in (("--src", asked.src), ("--dst", asked.dst)):
        check_written(option, place)
    refuse_unknown(model, [(asked.src, asked.dst), *((one.src, one.dst) for one in asked.others)])
    (content, accuracy), others = with_accuracy(model.to_json()), _points_of_others(asked, model)
    foretelling = Foretelling(model, asked.src, asked.dst)
    points = foretelling.of_pieces(asked.pieces, asked.piece) if asked.piece else foretelling.methods(asked.bytes)
    if not asked.piece and not asked.others:
        points = list(dict.fromkeys([*points, *(_id_at(one, asked.bytes) for one in measured)]))
    wanted = [point for point in points if _has_mode(point, alone=asked.alone)]
    known = [point for point in wanted if is_predictable(content, point)]
    found = foretelling.seconds_beside(known, others) if others else foretelling.seconds(known)
    once = foretelling.seconds(point for point in foretelling.once() if is_predictable(content, point))
    methods = _methods(predicted_points(content, found, others), asked, beside=False)
    calls = [] if asked.alone or asked.piece else foretelling.calls(asked.bytes)
    of_calls = foretelling.seconds(point for point in calls if is_predictable(content, point))
    methods, without = _counted(methods, predicted_points(content, of_calls), asked)
    reasons = Counter(str(reason) for reason in found.values() if isinstance(reason, str))
    reasons[f"{model.machine.name} was fitted without such measurements"] = len(wanted) - len(known)
    unlisted = [*without, *((count, reason) for reason, count in reasons.most_common() if count)]
    return _Foretold(methods, predicted_points(content, once), unlisted, accuracy)


def _id_at(one: "TransferMethod", size: int) -> "PointId":
    from linkscope.runfile import PointId

    return dataclasses.replace(PointId.parse(one.points[0].id), bytes=size)


def _points_of_others(asked: "Question", model: "Model") -> "list[PointId]":
    from linkscope.cli.predict import points_of_transfer, refuse_unmeasured

    usual = argparse.Namespace(memory="pinned", engine="ce", peer="on", threads="1", helpers=None)
    found = [point for one in asked.others for point in points_of_transfer(usual, model, one, asked.bytes)]
    refuse_unmeasured(model, model.machine.name, found)
    return found


def _has_mode(point: "PointId", *, alone: bool) -> bool:
    from linkscope.advise.methods import IN_PLACE

    if alone:
        return point.param("mode") != "batched" and point.benchmark not in IN_PLACE
    return point.param("mode") != "single"


def _notes(
    asked: "Question", run: "Run | None", model: "Model | None", found: "list[Ranked]", now: "Candidate | None"
) -> list[str]:
    from linkscope.advise.methods import STAGED, STAGED_FRESH

    notes = []
    predicted = sum(one.candidate.measured is None for one in found)
    if asked.others and run is not None and predicted:
        assert model is not None  # it predicted a method
        what = f"{len(found) - predicted} of {len(found)} methods" if predicted < len(found) else "no method"
        notes.append(f"{run.path} measured {what} beside these transfers: {model.machine.name} predicts the others")
    if now is None:
        what = "a call for each piece" if asked.piece else "a plain copy"
        what += f" of {asked.stated_memory} memory" if asked.memory else ""
        what = "one read or write of the whole file" if "disk" in _kinds(asked) else what
        notes.append(f"no gains: {what}, the present method, is not among the methods")
    if run is not None and now is not None and len(found) == 1:
        cure = (
            "linkscope run pieces strided --src {0} --dst {1}"
            if asked.piece
            else "linkscope run --suite full --only '*/{0}.*->{1}.*'"
        )
        notes.append(f"{run.path} has no other method; measure them: {cure.format(asked.src, asked.dst)}")
    if now is not None and not asked.memory and "pinned" in now.host_kinds:
        notes.append("present: a copy of pinned memory, since none of pageable memory is known here (--memory)")
    is_staged = any(one.candidate.method.family.benchmark in (STAGED, STAGED_FRESH) for one in found)
    in_pageable = not is_staged and now is not None and "pageable" in now.host_kinds and asked.piece is None
    if in_pageable and asked.bytes >= _LIBRARY_FROM and {"gpu", "numa"} == set(_kinds(asked)):
        notes.append(
            "linkscope.copy(dst, src) moves pageable memory through a pinned ring that CPU threads fill; no time of "
            "that method is known here"
        )
    return notes


def _kinds(asked: "Question") -> tuple[str, str]:
    from linkscope.flow import kind_of

    return kind_of(asked.src), kind_of(asked.dst)


def _refuse_absent_memory(asked: "Question", run: "Run | None", listed: "Sequence[Candidate]") -> None:
    """Raises UserError if neither the run nor the model has the memory on this path."""
    from linkscope.advise import kinds

    of_run = kinds(run.points, asked.src, asked.dst) if run is not None else []
    known = sorted({*of_run, *(kind for one in listed for kind in one.host_kinds)})
    if asked.memory and asked.memory not in known:
        known_text = f"; it has {', '.join(known)}" if known else ": neither end is on the host"
        where = str(run.path) if run is not None else "the model"
        path = f"{where} has no transfer from {asked.src} to {asked.dst}"
        raise UserError(f"{path} with {asked.memory} memory{known_text}", NOT_HERE)


def _refuse_without_costs(asked: "Question", run: "Run | None", found: "list[Ranked]") -> NoReturn:
    missing = list(dict.fromkeys(one.once.missing for one in found))
    named = ", ".join(missing[:_MOST_MISSING]) + (
        f" and {more} more" if (more := len(missing) - _MOST_MISSING) > 0 else ""
    )
    if run is None:
        raise UserError(f"--reuse {asked.reuse}: the model lacks {named}. Leave out --reuse", NOT_HERE)
    cure = "Measure it, with the methods, by linkscope run --suite full, or leave out --reuse"
    raise UserError(f"--reuse {asked.reuse}: {run.path} lacks {named}. {cure}", NOT_HERE)


def _refuse(asked: "Question", run: "Run | None", model: "Model | None", reasons: list[tuple[int, str]]) -> NoReturn:
    """Raises UserError: what the run or the model lacks, and how to measure it."""
    from linkscope.cli.advise_missing import refuse_with_run

    if run is not None:
        refuse_with_run(asked, run, has_model=model is not None)
    assert model is not None
    what = f"pieces of {format_bytes(asked.piece)}" if asked.piece else "transfers"
    why = f": {reasons[0][1]}" if reasons else ""
    raise UserError(f"{model.machine.name} knows no {what} from {asked.src} to {asked.dst}{why}", NOT_HERE)
