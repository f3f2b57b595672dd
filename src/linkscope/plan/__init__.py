"""Machine, benchmark table, suite and wishes in; a plan as plain data out, and what to measure next."""

from linkscope.plan.cases import case_of, estimated_seconds, footprint, pages_move
from linkscope.plan.facts import MachineFacts
from linkscope.plan.next import Work, in_order, next_work, rounds_wanted
from linkscope.plan.plan import RULES, Plan, Rule, make_plan, precision_target
from linkscope.plan.suites import SUITES, Suite
from linkscope.plan.table import Benchmark, Param

__all__ = [
    "RULES", "SUITES", "Benchmark", "MachineFacts", "Param", "Plan", "Rule", "Suite", "Work", "case_of",
    "estimated_seconds",
    "footprint", "in_order", "make_plan", "next_work", "pages_move", "precision_target", "rounds_wanted",
]  # fmt: skip
