"""`linkscope VERB …`: runs the module of the verb, and turns errors into one sentence and an exit code.

A verb is imported when it is used, so that `--help` does not wait for modules that only measuring needs.
"""

import argparse
import contextlib
import gc
import importlib
import io
import itertools
import os
import re
import sys
from collections.abc import Sequence
from types import ModuleType

import linkscope
from linkscope.errors import FINE, STOPPED_EARLY, WRONG_USAGE, UserError, suggestion
from linkscope.units import ASCII_SIGNS

# Verb: the module linkscope.cli.<verb> with SUMMARY, add_arguments(parser) and main(arguments) -> exit code.
# TOO_MANY, where a module has it, is the cure for more words than the command takes.
VERBS = (
    "run",
    "check",
    "list",
    "machine",
    "predict",
    "flow",
    "doctor",
    "selftest",
    "report",
    "compare",
    "model",
    "advise",
    "tune",
    "explain",
    "export",
    "merge",
    "site",
)
ALIASES = {"topo": "machine"}

# New objects before the garbage collector looks for cycles. A run is hundreds of thousands of objects without cycles.
# With Python's own 700, the collector takes an eighth of the time of reading a run.
_OBJECTS_BEFORE_COLLECTION = 50_000


class _Parser(argparse.ArgumentParser):
    """Reports an error in one sentence, with a suggestion for a mistyped option, instead of the usage.

    `too_many`: what to do if the command gets more words than it takes.
    """

    too_many = ""

    def error(self, message: str) -> None:  # type: ignore[override]
        if self.too_many and (more := re.search(r"unrecognized arguments: ([^-].*)", message)):
            raise UserError(f"{more[1]}: {self.too_many}")
        wrong = re.search(r"unrecognized arguments: (-[\w-]+)", message)
        meant = suggestion(wrong[1], self._option_string_actions) if wrong else ""
        raise UserError(f"{message}{meant}; `{self.prog} --help` lists the options")


def main(arguments: Sequence[str] | None = None) -> int:
    """The `linkscope` command. Returns its exit code."""
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    words = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=ASCII_SIGNS)
    try:
        status = _carry_out(words)
        sys.stdout.flush()  # here, where a full disk can still be reported
        return status
    except UserError as mistake:
        print(f"linkscope: {mistake}", file=sys.stderr)
        return mistake.exit_code
    except KeyboardInterrupt:
        print("linkscope: stopped", file=sys.stderr)
        return STOPPED_EARLY
    except BrokenPipeError:  # `linkscope list | head` closes the pipe, which is not an error
        _drop_output()
        return FINE
    except OSError as error:
        _drop_output()
        what = error.filename or "the output cannot be written"
        print(f"linkscope: {what}: {error.strerror or error}; choose another path", file=sys.stderr)
        return WRONG_USAGE


def _drop_output() -> None:
    with contextlib.suppress(OSError):  # streams of tests have no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _carry_out(words: list[str]) -> int:
    if words[:1] == ["help"] and len(words) > 1:
        words = [words[1], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        print(_overview())
        return FINE if words else WRONG_USAGE
    if words[0] in ("-V", "--version"):
        print(f"linkscope {linkscope.__version__}")
        return FINE
    verb = ALIASES.get(words[0], words[0])
    if verb not in VERBS:
        meant = suggestion(words[0], [*VERBS, *ALIASES])
        raise UserError(f"unknown command '{words[0]}'{meant}; commands: {', '.join(VERBS)}")
    _refuse_empty(words)
    module = _module(verb)
    parser = _Parser(
        prog=f"linkscope {verb}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.too_many = getattr(module, "TOO_MANY", "")
    module.add_arguments(parser)
    parser.usage = _short_usage(parser)
    status: int = module.main(parser.parse_args(_with_negatives(words[1:])))
    return status


def _short_usage(parser: argparse.ArgumentParser) -> str:
    """The usage with `[OPTION ...]` for all options, which the help lists one by one below it."""
    usage = " ".join(parser.format_usage().removeprefix("usage:").split())
    words = re.sub(r" \[-[^][]*(\[[^][]*\])?[^][]*\]", "", usage).removeprefix(parser.prog)
    return f"%(prog)s [OPTION ...]{words}"


def _refuse_empty(words: list[str]) -> None:
    """Refuses empty values: `--machine "$MACHINE"` with an empty variable must not measure another machine."""
    for before, word in itertools.pairwise(words):
        option = word.removesuffix("=") if re.fullmatch(r"--[a-z-]+=", word) else before
        if not word or option != before:
            what = f"{option} has an empty value" if option.startswith("-") else f"{words[0]}: an argument is empty"
            raise UserError(f"{what}: give it one, or leave it out")


def _with_negatives(words: list[str]) -> list[str]:
    """Joins `--precision -3%` to `--precision=-3%`, since argparse would take the value for an option."""
    joined: list[str] = []
    for word in words:
        if re.match(r"-\d", word) and joined and re.fullmatch(r"--[a-z-]+", joined[-1]):
            joined[-1] += "=" + word
        else:
            joined.append(word)
    return joined


def _module(verb: str) -> ModuleType:
    return importlib.import_module(f"linkscope.cli.{verb}")


def _overview() -> str:
    lines = [f"linkscope {linkscope.__version__}: {linkscope.__doc__.strip()}" if linkscope.__doc__ else "", ""]
    lines += [f"  linkscope {verb:<8} {_module(verb).SUMMARY}" for verb in VERBS]
    lines += [f"  linkscope {alias:<8} the same as {verb}" for alias, verb in ALIASES.items()]
    lines += ["", "`linkscope help VERB` explains a command. To begin: linkscope run --suite quick"]
    return "\n".join(lines)
