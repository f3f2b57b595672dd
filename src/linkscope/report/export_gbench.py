"""A run as JSON of Google Benchmark. The repetitions are the rounds, or the samples under Comm|Scope's rule."""

import json
import statistics
from collections.abc import Iterator
from typing import Any

from linkscope.runfile import Flow, Point, Run

_WITHOUT_VALUE = ("unsupported", "failed", "skipped")
_NS = 1e9  # ns in a second, and bytes per second in one GB/s


def to_gbench(run: Run) -> str:
    """One benchmark for each flow with a value, one error for each point without a value."""
    benchmarks: list[dict[str, Any]] = []
    family = 0  # readers sort by this number, so the order of the run file stays
    for point in run.points:
        for rows in _benchmarks(point, run.modelled):
            benchmarks += [{"name": row.pop("name"), "family_index": family, **row} for row in rows]
            family += 1
    return json.dumps({"context": _context(run), "benchmarks": benchmarks}, indent=2) + "\n"


def _context(run: Run) -> dict[str, Any]:
    machine = run.header.machine
    threads = (machine.get("cpu") or {}).get("threads")
    return {
        "date": run.header.started,
        "host_name": machine.get("name", ""),
        "executable": "linkscope",
        **({"num_cpus": threads} if threads else {}),
        "json_schema_version": 1,
        "linkscope_version": run.header.tool.get("version", ""),
        "modelled": run.modelled,
    }


def _benchmarks(point: Point, modelled: bool) -> Iterator[list[dict[str, Any]]]:
    """The rows of a point without a value: one error. Otherwise one group of rows for each flow; the first has the
    id of the point.
    """
    worked = [flow for flow in point.flows if flow.median_s is not None]
    if point.status in _WITHOUT_VALUE or not worked:
        yield [_error(point, modelled)]
        return
    for number, flow in enumerate(point.flows):
        if flow.median_s is not None:
            name = f"{point.id}/flow:{number}" if number else point.id
            common = _common(name, len(_times_of(flow)), _label(point, flow, modelled))
            yield [*_repetitions(point, flow, common), *_aggregates(flow, common)]


def _common(name: str, repetitions: int, label: str) -> dict[str, Any]:
    label_of = {"label": label} if label else {}
    return {
        "name": name, "per_family_instance_index": 0, "run_name": name, "repetitions": repetitions, "threads": 1,
        **label_of, "time_unit": "ns",
    }  # fmt: skip


def _times_of(flow: Flow) -> list[float]:
    """The times of the repetitions: the samples under Comm|Scope's rule, otherwise the round medians. An inherited
    point has only its value.
    """
    if flow.mean_s is not None:
        return [time for of_round in flow.samples_s for time in of_round]
    return flow.round_medians_s or [time for time in [flow.median_s] if time is not None]


def _repetitions(point: Point, flow: Flow, common: dict[str, Any]) -> Iterator[dict[str, Any]]:
    rates = _rates(flow)
    for number, time in enumerate(_times_of(flow)):
        if flow.mean_s is not None:
            iterations = (point.batch or [1])[0]
        else:
            iterations = len(flow.samples_s[number]) if flow.samples_s else 0  # an inherited point has none
        numbers = {"run_type": "iteration", "repetition_index": number, "iterations": iterations}
        yield {**common, **numbers, **_times(time, rates[number] if rates else None)}


def _aggregates(flow: Flow, common: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The aggregates of Google Benchmark. A single repetition has none. Rates are aggregated as rates."""
    times, rates = _times_of(flow), _rates(flow)
    if len(times) < 2:
        return
    for what, unit, compute in (
        ("mean", "time", statistics.fmean),
        ("median", "time", statistics.median),
        ("stddev", "time", statistics.stdev),
        ("cv", "percentage", _variation),
    ):
        time, rate = compute(times), compute(rates) if rates else None
        if what == "median":  # the median of linkscope, so that both tools show one number
            time, rate = flow.median_s or time, flow.gbps * _NS if flow.gbps else None
        yield {
            **common, "name": f"{common['name']}_{what}", "run_type": "aggregate", "aggregate_name": what,
            "aggregate_unit": unit, "iterations": len(times), **_times(time, rate, _NS if unit == "time" else 1.0),
        }  # fmt: skip


def _rates(flow: Flow) -> list[float] | None:
    """Bytes per second of each repetition. None without bytes, or where a repetition was too short for the clock."""
    if not flow.bytes or min(_times_of(flow)) <= 0:
        return None
    return [flow.bytes / time for time in _times_of(flow)]


def _variation(values: list[float]) -> float:
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if mean else 0.0


def _times(time: float, rate: float | None, scale: float = _NS) -> dict[str, Any]:
    """Readers require a CPU time, which is not measured: the wall time stands in for it."""
    rates = {"bytes_per_second": rate} if rate is not None else {}
    return {"real_time": time * scale, "cpu_time": time * scale, **rates}


def _error(point: Point, modelled: bool) -> dict[str, Any]:
    """An error row. Its times are 0, as in Google Benchmark, whose tools fail on rows without times."""
    message = f"{point.status}: {point.reason}" if point.reason else point.status
    return {
        **_common(point.id, 1, "modelled" if modelled else ""), "run_type": "iteration", "repetition_index": 0,
        "error_occurred": True, "error_message": message, "iterations": 0, "real_time": 0.0, "cpu_time": 0.0,
    }  # fmt: skip


def _label(point: Point, flow: Flow, modelled: bool) -> str:
    """The label of a row: modelled, inherited, missed precision."""
    words = [point.status if point.status != "ok" else "", "background" if flow.role == "background" else ""]
    return ", ".join(filter(None, [*words, "modelled" if modelled else ""]))
