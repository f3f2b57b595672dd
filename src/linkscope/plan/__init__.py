"""Machine, benchmark table, suite and wishes in; a plan as plain data out, and what to measure next."""

from linkscope.plan.answers import patterns, presets, sizes_text, source_named
from linkscope.plan.cases import case_of, estimated_seconds, footprint, pages_move
from linkscope.plan.facts import MachineFacts
from linkscope.plan.next import Work, in_order, next_work, rounds_wanted
from linkscope.plan.papers import SOURCES, Entry, Source
from linkscope.plan.plan import Plan, make_plan, precision_target
from linkscope.plan.rules import RULES, RuleName
from linkscope.plan.suites import SUITES, Suite
from linkscope.plan.table import Benchmark, Param

__all__ = [
    "RULES", "SOURCES", "SUITES", "Benchmark", "Entry", "MachineFacts", "Param", "Plan", "RuleName", "Source", "Suite",
    "Work", "case_of", "estimated_seconds", "footprint", "in_order", "make_plan", "next_work", "pages_move", "patterns",
    "precision_target", "presets", "rounds_wanted", "sizes_text", "source_named",
]  # fmt: skip
