"""tools/replay.py: what was inherited is measured as the point that it had its value from."""

import replay as tool

from fakes import flow, header, plan, point
from linkscope.runfile import Run

PAIR = "d2d/ce/gpu:{}.device->gpu:{}.device/8?bidirectional=false&initiator=src&mode=batched&peer=on"
MEASURED, INHERITED = PAIR.format(0, 1), PAIR.format(1, 0)


def run() -> Run:
    seconds = [1e-6, 1.001e-6, 0.999e-6]
    told = point(MEASURED, flows=[flow(seconds)], status="ok", median_s=1e-6, ci95_s=(0.99e-6, 1.01e-6), device_s=3.0)
    other = point(INHERITED, status="inherited", inherited_from=MEASURED, flows=[], median_s=1e-6)
    return Run(None, header(), [told, other], {}, [], None, [], 0, False)  # type: ignore[arg-type]


def test_what_was_inherited_costs_as_much_as_what_it_is_like() -> None:
    replay = tool.Replay(run(), plan(MEASURED, INHERITED, budget_s=100.0), 0.0)
    assert replay.measured == {MEASURED}
    found = replay.carry_out()
    assert {id: of.status for id, of in found.items()} == {MEASURED: "ok", INHERITED: "ok"}
    rounds = {id: len(of.flows[0].round_medians_s) for id, of in found.items()}
    assert rounds[MEASURED] == rounds[INHERITED] and replay.left_s == 100.0 - sum(rounds.values()) * 1.0
