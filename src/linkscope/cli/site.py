"""Turn run files into static pages that compare machines. A later call writes only pages that change.

linkscope site DIR -o site
linkscope site --check run.jsonl      check a contribution
"""

import argparse
import sys
from pathlib import Path

from linkscope.errors import FINE, SOMETHING_FAILED, WRONG_USAGE, UserError

SUMMARY = "turn run files into a site that compares machines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `site`."""
    parser.add_argument("inputs", metavar="DIR|RUN.jsonl", nargs="+", help="run files or folders")
    parser.add_argument("-o", "--output", metavar="DIR", default="site", help="default: site")
    parser.add_argument("--url", default="", help="address of the site, for its feed")
    parser.add_argument(
        "--reports", metavar="N", type=int, default=20, help="newest runs of a machine that have a report (default: 20)"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check a run file and write nothing: schema, methods, map, values and personal data",
    )
    parser.add_argument("--json", action="store_true", help="with --check: print JSON")


def main(arguments: argparse.Namespace) -> int:
    """Runs `linkscope site`."""
    inputs = [Path(name) for name in arguments.inputs]
    if arguments.check:
        return _check(inputs, as_json=arguments.json)
    if arguments.json:
        raise UserError("--json needs --check; the site itself has index.json")
    from linkscope.model.text import count_text
    from linkscope.site.build import build

    if arguments.reports < 1:
        raise UserError(f"--reports {arguments.reports}: give 1 or more; the page of a machine is a report")
    built = build(inputs, Path(arguments.output), arguments.url, arguments.reports)
    folder = built.folder
    files = f"{folder.written} written, {folder.unchanged} unchanged, {folder.removed} removed"
    print(f"{count_text(built.runs, 'run')} of {count_text(built.machines, 'machine')}; files: {files}")
    if built.refused:
        print(f"{len(built.refused)} not shown: {folder.root / 'not-shown.html'} has the reasons")
    print(f"site: {folder.root / 'index.html'}")
    for name, why in built.missing.items():
        cure = "the other files are complete. Call `linkscope site` again to write it"
        print(f"linkscope: {folder.root / name} was not written ({why}); {cure}", file=sys.stderr)
    return SOMETHING_FAILED if built.missing else FINE


def _check(inputs: list[Path], *, as_json: bool) -> int:
    from linkscope.site.check import Problem, check
    from linkscope.site.sources import run_files

    unreadable: list[tuple[str, str]] = []
    results = [(str(path), *check(path)) for _, path in run_files(inputs, unreadable)]
    results += [(name, [Problem(why, "give yourself permission to read it")], False) for name, why in unreadable]
    if as_json:
        import json

        listed = [
            {"run": name, "problems": [{"what": one.what, "cure": one.cure} for one in found]}
            for name, found, _ in results
        ]
        print(json.dumps(listed))
    else:
        for name, found, _ in results:
            print(f"{name}: {'fine' if not found else ''}".rstrip())
            for one in found:
                print(f"  {one.what}\n    cure: {one.cure}")
    if not all(readable for _, _, readable in results):
        return WRONG_USAGE
    return SOMETHING_FAILED if any(found for _, found, _ in results) else FINE
