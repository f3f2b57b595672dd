"""Write the report of a run file: one HTML file without external resources, or a part of it.

linkscope report run.jsonl -o run.html
linkscope report a.jsonl b.jsonl -o history.html                  several runs over time
linkscope report run.jsonl --summary                              the summary that `run` ends with
linkscope report run.jsonl --summary=full                         all tables
linkscope report run.jsonl --markdown run.md                      for a pull request
linkscope report run.jsonl --against fitted.toml                  with predictions for concurrent flows
linkscope report run.jsonl --nvbandwidth                          the tables that nvbandwidth prints
linkscope report run.jsonl --comm-scope                           means and standard deviations (run --rule comm-scope)
linkscope report run.jsonl --break-even                           memory costs and break-even
linkscope report run.jsonl --shared [--json]                      shared links, from concurrent flows
linkscope report run.jsonl --list-figures                         the names of all figures
linkscope report run.jsonl --figure machine -o machine.svg        one figure, .svg or .png
linkscope report a.jsonl b.jsonl --plots FILE.yaml -o plots       figures that the file declares
"""

import argparse
import contextlib
import difflib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from linkscope.cli.predictions import with_predictions
from linkscope.cli.runs import read
from linkscope.cli.target import STANDARD_OUTPUT, add_force, check_writable, name_output, write
from linkscope.errors import FINE, NOT_HERE, UserError

SUMMARY = "write the report of a run file"
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_PNG_WAIT_S = 60
_PNG_SCALE, _PNG_MARGIN = 2, 200  # pixels for one of the figure; pixels below the figure
_PRINTING = ("summary", "nvbandwidth", "comm_scope", "break_even", "shared", "list_figures")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `report`."""
    parser.add_argument("run", metavar="RUN.jsonl", nargs="+", help="the run file (.jsonl or .jsonl.gz)")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: the run file's name with .html")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--summary", nargs="?", const="short", choices=("short", "full"),
        help="print the summary that `run` ends with; `full`: all tables",
    )  # fmt: skip
    what.add_argument(
        "--markdown", metavar="FILE.md", help="write best rates, anomalies and points to check as Markdown"
    )
    what.add_argument("--figure", metavar="NAME", help="write one figure to -o FILE.svg or FILE.png")
    what.add_argument(
        "--nvbandwidth", action="store_true", help="print the tables of nvbandwidth 0.8 (suite nvbandwidth)"
    )
    what.add_argument(
        "--comm-scope",
        action="store_true",
        help="print means and standard deviations (of a run with --rule comm-scope)",
    )
    what.add_argument("--break-even", action="store_true", help="print memory costs and break-even")
    what.add_argument("--shared", action="store_true", help="print shared links (docs/method/shared-links.md)")
    what.add_argument(
        "--plots",
        metavar="FILE.yaml|NAME",
        help="draw figures of one or several runs into folder -o DIR; NAME: figures of a paper, such as comm-scope",
    )
    what.add_argument("--list-figures", action="store_true", help="print the names of all figures")
    parser.add_argument(
        "--against",
        metavar="NAME|FILE",
        help="the model that predicts concurrent flows (default: the simulated one, or that of the run's GPUs)",
    )
    parser.add_argument("--json", action="store_true", help="with --shared: print JSON, including each pair")
    parser.add_argument("--open", action="store_true", help="open the page")
    add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """Runs `linkscope report`."""
    if arguments.plots:
        return _draw_plots(arguments)
    if len(arguments.run) > 1:
        return _write_history(arguments)
    source = Path(arguments.run[0])
    if arguments.json and not arguments.shared:
        raise UserError("--json needs --shared; `linkscope export` writes all numbers of a run")
    printing = [name for name in _PRINTING if getattr(arguments, name)]
    if printing and arguments.output:
        option = printing[0].replace("_", "-")
        raise UserError(f"-o {arguments.output}: --{option} prints to standard output: use > {arguments.output}")
    if arguments.against and (set(printing) - {"summary"} or arguments.summary == "short" or arguments.figure):
        raise UserError(f"--against {arguments.against}: only the page, --markdown and --summary=full show predictions")
    if arguments.shared:
        return _print_shared(source, as_json=arguments.json)
    if arguments.summary:
        return _print_summary(source, arguments.summary == "full", arguments.against)
    if arguments.nvbandwidth:
        return _print_tables(source)
    if arguments.comm_scope:
        return _print_means(source)
    if arguments.break_even:
        return _print_break_even(source)
    if arguments.list_figures:
        return _list_figures(source)
    if arguments.markdown:
        if arguments.output:
            raise UserError("--markdown FILE.md and -o FILE name two outputs: give one of them")
        return _write_markdown(source, Path(arguments.markdown), arguments)
    if arguments.figure:
        return _write_figure(source, arguments)
    target = Path(arguments.output) if arguments.output else source.parent / (source.name.split(".jsonl")[0] + ".html")
    write_page(source, target, "-o", force=arguments.force, against=arguments.against)
    name_output("report", target)
    if arguments.open:
        _open(target)
    return FINE


def _write_history(arguments: argparse.Namespace) -> int:
    """The page of several runs over time."""
    from linkscope.compare.history_page import history_page

    asked = [name for name in (*_PRINTING, "markdown", "figure", "against", "json") if getattr(arguments, name)]
    if asked:
        option = asked[0].replace("_", "-")
        raise UserError(f"--{option} takes one run file, not {len(arguments.run)}: call it once for each")
    sources = [Path(run) for run in arguments.run]
    target = Path(arguments.output) if arguments.output else sources[0].parent / "history.html"
    check_writable(target, sources, force=arguments.force)
    write(target, history_page([read(source) for source in sources]))
    name_output("history", target)
    if arguments.open:
        _open(target)
    return FINE


def _open(target: Path) -> None:
    """Opens a page in the browser; says where the page is if there is no display."""
    import webbrowser

    if target == STANDARD_OUTPUT:
        raise UserError("--open needs a file: give -o FILE.html")
    has_display = sys.platform != "linux" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    if not has_display or not webbrowser.open(target.resolve().as_uri()):
        print(f"no browser can be opened here; the page is {target.resolve()}")


def write_page(run: Path, target: Path, option: str, *, force: bool = False, against: str | None = None) -> None:
    """Writes the page of a run file to the target of `option`."""
    from linkscope.report.html import page

    check_writable(target, [run], option, force=force)
    write(target, page(with_predictions(read(run), against)), option)


def _print_summary(source: Path, full: bool, against: str | None) -> int:
    from linkscope.report.details import details
    from linkscope.report.summary import summary
    from linkscope.runfile import read_run

    run = read_run(source, rounds=False)
    print(details(with_predictions(run, against)) if full else summary(run))
    return FINE


def _print_tables(source: Path) -> int:
    from linkscope.report.nvbandwidth import text

    run = read(source)
    tables = text(run)
    if not tables:
        raise UserError(
            f"{source} has no point of nvbandwidth's tables: `run --suite nvbandwidth` measures them", NOT_HERE
        )
    print(("MODELLED\n\n" if run.header.modelled else "") + tables)
    return FINE


def _print_means(source: Path) -> int:
    from linkscope.report.comm_scope import text

    run = read(source)
    table = text(run)
    if not table:
        raise UserError(
            f"{source} was not measured by Comm|Scope's rule: measure with `run --rule comm-scope`", NOT_HERE
        )
    print(("MODELLED\n\n" if run.header.modelled else "") + table)
    return FINE


def _print_break_even(source: Path) -> int:
    from linkscope.report.plain import break_even_to_text

    text = break_even_to_text(read(source))
    if not text:
        needed = "points of `allocation` and of h2d or d2h by ce are needed; `run --suite full` measures them"
        raise UserError(f"{source} has no memory costs or no copy rates: {needed}", NOT_HERE)
    print(text, end="")
    return FINE


def _print_shared(source: Path, *, as_json: bool) -> int:
    import json

    from linkscope.report.shared import shares, to_json

    run = read(source)
    found = shares(run.points)
    if found is None:
        needed = "points of `concurrent` and of the same paths alone are needed; `run --suite standard` measures them"
        if (run.header.plan or {}).get("suite") in ("standard", "full"):
            needed = "shared links need two paths without a common GPU; a host with one GPU has none"
        raise UserError(f"{source} has no concurrent flows: {needed}", NOT_HERE)
    if as_json:
        print(json.dumps({"modelled": run.modelled, **to_json(run.points)}))
        return FINE
    lines = ["MODELLED", ""] if run.modelled else []
    sentences = [f"- {text}" for text in found.sentences] or ["No shared link: no path slowed another."]
    print("\n".join([*lines, f"{found.summary}.", *sentences]))
    return FINE


def _list_figures(source: Path) -> int:
    from linkscope.report.figures import figures

    for name in figures(read(source)):
        print(name)
    return FINE


def _write_markdown(source: Path, target: Path, arguments: argparse.Namespace) -> int:
    from linkscope.report.markdown import to_markdown

    check_writable(target, [source], "--markdown", force=arguments.force)
    write(target, to_markdown(with_predictions(read(source), arguments.against)), "--markdown")
    name_output("report", target)
    return FINE


def _draw_plots(arguments: argparse.Namespace) -> int:
    from linkscope.report.plot_spec import read_specification
    from linkscope.report.plots import draw

    specification = read_specification(arguments.plots)
    folder = Path(arguments.output or "plots")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"-o {folder}: --plots writes several files, so it needs a folder")
    for path, drawn in draw([read(run) for run in arguments.run], specification, folder):
        print(f"{path}" if drawn else f"{path} (unchanged)")
    return FINE


def _write_figure(source: Path, arguments: argparse.Namespace) -> int:
    from linkscope.report.figures import figures, standalone

    name, output = arguments.figure, arguments.output
    target = Path(output or "")
    if target != STANDARD_OUTPUT and target.suffix not in (".svg", ".png"):
        raise UserError("--figure needs -o FILE.svg or -o FILE.png; -o - prints SVG")
    check_writable(target, [source], force=arguments.force)
    known = figures(read(source))
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0.3)
        hint = f"; similar names: {', '.join(near)}" if near else ""
        raise UserError(f"--figure {name}: this run has no such figure{hint}; `--list-figures` names all", NOT_HERE)
    svg = standalone(known[name])
    if target.suffix == ".png":
        _write_png(target, svg)
    else:
        write(target, svg)
    name_output("figure", target)
    return FINE


def _write_png(target: Path, svg: str) -> None:
    """Renders the figure with a browser in a higher window: on a busy machine a browser leaves its lower part empty."""
    from linkscope.report.figures import size_of
    from linkscope.report.png import cropped

    browser = next((found for one in _BROWSERS if (found := shutil.which(one))), None)
    if browser is None:
        raise UserError("PNG needs Chromium or Chrome, and neither was found: write -o FILE.svg instead", NOT_HERE)
    width, height = size_of(svg)
    with tempfile.TemporaryDirectory() as folder:
        page, made = Path(folder, "figure.html"), Path(folder, "figure.png")
        page.write_text(f'<!DOCTYPE html><body style="margin:0">{svg}', encoding="utf-8")
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--force-device-scale-factor={_PNG_SCALE}", f"--user-data-dir={folder}/profile",
            f"--window-size={max(width, 500)},{height + _PNG_MARGIN}", f"--screenshot={made}",
            page.as_uri(),
        ]  # fmt: skip
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # a missing figure is reported below
            subprocess.run(command, capture_output=True, timeout=_PNG_WAIT_S, check=False)
        if not made.exists():
            raise UserError(f"{browser} wrote no figure: write -o FILE.svg instead", NOT_HERE)
        try:
            target.write_bytes(cropped(made.read_bytes(), _PNG_SCALE * width, _PNG_SCALE * height))
        except ValueError as error:
            raise UserError(f"{browser} wrote {error}: write -o FILE.svg instead", NOT_HERE) from None
        except OSError as error:
            raise UserError(f"-o {target}: cannot be written: {error.strerror}; choose another path") from None
