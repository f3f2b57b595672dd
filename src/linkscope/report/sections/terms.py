"""Section: the terms of the report."""

from linkscope.report.glossary import WORDS
from linkscope.report.run_view import RunView
from linkscope.report.section import Section, Terms


def section(view: RunView) -> Section:
    """All terms and their meanings, for every run."""
    return Section("words", "Terms", (Terms(WORDS),))
