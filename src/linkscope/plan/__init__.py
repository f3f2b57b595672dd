"""Makes a plan (plain data) from machine, benchmark table, suite and options, and decides what to measure next."""

from linkscope.plan.answers import patterns, presets, sizes_text, source_named
from linkscope.plan.cases import case_of, estimated_seconds, footprint, most_memory, moved_bytes, once_only, pages_move
from linkscope.plan.classes import ClassCurve, PathClass, class_curves
from linkscope.plan.cost import budget_of_its_own, check_budget, expected_s, rounded_up
from linkscope.plan.durations import DURATION_S, INTERVAL_S, computes, lasts, time_of
from linkscope.plan.facts import MachineFacts
from linkscope.plan.next import in_order, next_work, rounds_wanted
from linkscope.plan.papers import SOURCES, Entry, Source
from linkscope.plan.plan import Plan, make_plan, precision_target
from linkscope.plan.rules import RULES, RuleName
from linkscope.plan.selection import Selection, check_written
from linkscope.plan.shares import affordable, foreseen_rounds, share_s
from linkscope.plan.stages import Inheritance, expected_ids, inheritances, left_over, representatives, staged_work
from linkscope.plan.suite_rules import Suite
from linkscope.plan.suites import SUITES
from linkscope.plan.table import Benchmark, Param
from linkscope.plan.work import Underway, Work

__all__ = [
    "DURATION_S",
    "INTERVAL_S",
    "RULES",
    "SOURCES",
    "SUITES",
    "Benchmark",
    "ClassCurve",
    "Entry",
    "Inheritance",
    "MachineFacts",
    "Param",
    "PathClass",
    "Plan",
    "RuleName",
    "Selection",
    "Source",
    "Suite",
    "Underway",
    "Work",
    "affordable",
    "budget_of_its_own",
    "case_of",
    "check_budget",
    "check_written",
    "class_curves",
    "computes",
    "estimated_seconds",
    "expected_ids",
    "expected_s",
    "footprint",
    "foreseen_rounds",
    "in_order",
    "inheritances",
    "lasts",
    "left_over",
    "make_plan",
    "most_memory",
    "moved_bytes",
    "next_work",
    "once_only",
    "pages_move",
    "patterns",
    "precision_target",
    "presets",
    "representatives",
    "rounded_up",
    "rounds_wanted",
    "share_s",
    "sizes_text",
    "source_named",
    "staged_work",
    "time_of",
]  # fmt: skip
