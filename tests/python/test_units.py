"""Units: known texts, signs, and formatted values that can be parsed."""

import io
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscope.units import (
    encodable,
    exact_bytes,
    format_bytes,
    format_fraction,
    format_rate,
    format_rate_interval,
    format_seconds,
    format_seconds_interval,
    parse_bytes,
    parse_duration,
    parse_percent,
    size_problem,
    time_unit,
    with_interval,
    with_signs,
)


@pytest.mark.parametrize(
    "count, text",
    [(0, "0 B"), (8, "8 B"), (1023, "1023 B"), (1024, "1 KiB"), (1 << 20, "1 MiB"), (3 << 29, "1.5 GiB")],
)
def test_bytes_are_formatted(count: int, text: str) -> None:
    assert format_bytes(count) == text and parse_bytes(text) == count


@pytest.mark.parametrize(
    "text, count",
    [("64MiB", 64 << 20), ("64 MiB", 64 << 20), ("8", 8), ("1.5 KiB", 1536), ("8 B", 8), ("2gib", 2 << 30)],
)
def test_sizes_are_parsed(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "count, text",
    [(0, "0B"), (8, "8B"), (1 << 10, "1KiB"), (3 << 29, "1536MiB"), (10**6, "1000000B"), (1 << 40, "1TiB")],
)
def test_sizes_are_written_exactly(count: int, text: str) -> None:
    assert exact_bytes(count) == text and parse_bytes(text) == count


def test_the_problem_with_a_size_names_the_nearest_sizes() -> None:
    assert size_problem("64M") == size_problem("64Mb") == "not a size; write 64MB or 64MiB"
    assert size_problem("1.3B") == size_problem("much") == "not a size in whole bytes; write 4096, 64KiB or 4MiB"


@pytest.mark.parametrize("text", ["", "MiB", "-1", "8 MX", "1.3 B", "8 8", "nan", "0x10", "8 MiBs"])
def test_a_text_that_is_no_size_is_refused(text: str) -> None:
    assert parse_bytes(text) is None


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0.0, "0 ns"), (5e-9, "5 ns"), (2.22e-6, "2.22 us"), (999.9999e-6, "1 ms"), (0.305, "305 ms"), (1.0, "1 s"),
        (119.0, "119 s"), (120.0, "2 min"), (5400.0, "1.5 h"), (-2e-6, "-2 us"),
    ],
)  # fmt: skip
def test_seconds_are_formatted(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize("text, seconds", [("120s", 120), ("2m", 120), ("2min", 120), ("90", 90), ("1.5h", 5400)])
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3s", "3 days", "1s2", "inf"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize("text, value", [("1%", 0.01), (" 5 % ", 0.05), ("-3%", -0.03)])
def test_a_percentage_is_read_as_a_fraction(text: str, value: float) -> None:
    assert parse_percent(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "%", "fine", "1%%", "1 percent", "0.01"])
def test_text_without_a_percent_sign_is_no_percentage(text: str) -> None:
    assert parse_percent(text) is None


@pytest.mark.parametrize("value, text", [(None, "-"), (0.88, "88 %"), (0.0123, "1.2 %"), (1.0, "100 %")])
def test_fractions_are_formatted(value: float | None, text: str) -> None:
    assert format_fraction(value) == text


def test_rates_and_intervals_are_formatted() -> None:
    assert format_rate(None) == "-" and format_rate(55.43) == "55.43 GB/s"
    assert format_rate_interval(55.42, 55.31, 55.52) == "55.4 GB/s [55.3, 55.5]"
    assert format_rate_interval(55.42, None, None) == "55.42 GB/s"
    assert format_seconds_interval(2.221e-6, 2.21e-6, 2.25e-6) == "2.22 us [2.21, 2.25]"
    assert format_seconds_interval(357e-9, -816e-9, 1528e-9) == "unresolved, at most 1.5 us"
    assert with_interval(55.0, 55.0, 55.0) == ("55.000", "[55.000, 55.000]")
    assert with_interval(0.0, 0.0, 0.0)[0] == "0.0000"


@given(st.integers(0, 1 << 45).map(lambda count: 1 << count.bit_length()))
def test_powers_of_two_survive_a_round_trip(count: int) -> None:
    assert parse_bytes(format_bytes(count)) == count


@given(st.integers(0, 1 << 50))
def test_any_size_survives_a_round_trip_approximately(count: int) -> None:
    text = format_bytes(count)
    value, unit = text.split(" ")
    back = float(value) * {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[unit]
    assert math.isclose(back, count, rel_tol=1e-3)


@given(st.floats(1e-9, 1e5))
def test_durations_survive_a_round_trip(seconds: float) -> None:
    back = parse_duration(format_seconds(seconds))
    assert back is not None and math.isclose(back, seconds, rel_tol=6e-3)


@given(st.floats(1e-9, 100))
def test_times_have_one_to_four_digits_before_the_decimal_point(seconds: float) -> None:
    unit, size = time_unit(seconds)
    assert unit == "ns" or 0.9999 <= seconds / size < 1000.1


@given(st.floats(1e-3, 1e4), st.floats(0, 0.2), st.floats(0, 0.2))
def test_a_rounded_value_stays_in_its_interval(value: float, below: float, above: float) -> None:
    number, interval = with_interval(value, value * (1 - below), value * (1 + above))
    low, high = map(float, re.findall(r"[\d.]+", interval))
    assert low <= float(number) <= high


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("numa:0 -> gpu:0 in 2.5 us [2.4, 2.6]", "numa:0 → gpu:0 in 2.5 µs [2.4, 2.6]"),
        ("+-5 %, and +-0.1 us", "±5 %, and ±0.1 µs"),
        ("h2d/ce/numa:0.pinned->gpu:0.device/8?mode=single", "h2d/ce/numa:0.pinned->gpu:0.device/8?mode=single"),
        ("numa:0->gpu:0, 3 used, ask us, a +- b", "numa:0->gpu:0, 3 used, ask us, a +- b"),
    ],
)
def test_text_for_people_has_signs_and_ids_and_words_stay(text: str, shown: str) -> None:
    assert with_signs(text) == shown and with_signs(shown) == shown


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("utf-8", "a → b ×2 ±1 3 µs 語"), ("latin-1", "a -> b ×2 ±1 3 µs ?"), ("ascii", "a -> b x2 +-1 3 us ?")],
)
def test_only_signs_that_a_stream_lacks_become_ascii(encoding: str, shown: str) -> None:
    assert encodable("a → b ×2 ±1 3 µs 語", io.TextIOWrapper(io.BytesIO(), encoding)) == shown
