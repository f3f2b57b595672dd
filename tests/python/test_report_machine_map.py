"""The map of a machine: every link with its rates, no text over another, for machines of all shapes."""

import re

import msgspec
import pytest
from browser import CHROMIUM, Browser

from campaign import only_long
from invented import point, run
from linkscope.machine.model import bundled, load
from linkscope.report.html import template_text
from linkscope.report.machine_map import GRADE_TEXTS, grade, machine_svg
from linkscope.report.wires import Wire, wires

SIZE = 1 << 28
COPY = "{}/ce/{}.{}->{}.{}/{}?mode=batched"


def copy(kind: str, src: str, dst: str, gbps: float, **fields):
    memories = ["device" if "gpu" in place else "pinned" for place in (src, dst)]
    return point(COPY.format(kind, src, memories[0], dst, memories[1], SIZE), SIZE / gbps / 1e9, **fields)


def switched(gpus: int) -> list[Wire]:
    """GPUs below one host and above one switch."""
    found = []
    for gpu in range(gpus):
        place = f"gpu:{gpu}"
        host = copy("h2d", "numa:0", place, 55.5, limit_gbps=58.4), copy("d2h", place, "numa:0", 48.0, limit_gbps=57.6)
        peer = copy("d2d", place, "gpu:9", 397.0, status="missed_precision"), copy("d2d", "gpu:9", place, 397.0)
        found.append(Wire("numa:0", place, "PCIe 5.0 x16", 58.4, host, 57.6))
        found.append(Wire(place, "NVSwitch", "NVLink x18", 478.1, peer))
    return found


def test_a_link_has_its_rates_its_share_and_links_to_its_paths() -> None:
    picture = machine_svg(switched(2), False)
    assert re.findall(r'<a href="#h2d-numa0-gpu1"><text[^>]*>55.5</text>', picture)
    assert '<a href="#d2h-gpu1-numa0"' in picture and ">95/83</text>" in picture and ">~397</text>" in picture
    assert (
        "numa:0 to gpu:1, PCIe 5.0 x16: 55.5 GB/s there at 256 MiB, 48 GB/s back at 256 MiB, 83-95 % of peak" in picture
    )


def test_a_faster_link_is_wider_and_a_share_of_the_peak_has_its_colour() -> None:
    found = re.findall(r'class="wire (g\d)" d="[^"]+" stroke-width="([\d.]+)"', machine_svg(switched(1), False))
    (down, width), (up, _), (peer, peer_width), _ = found
    assert (down, up, peer) == ("g0", "g1", "g1") and float(peer_width) > 2 * float(width)
    assert [grade(share) for share in (1.0, 0.85, 0.6, 0.2, None)] == ["g0", "g1", "g2", "g3", ""]
    assert len(GRADE_TEXTS) == 4


def test_inherited_rates_are_dashed_and_links_without_a_rate_are_dotted() -> None:
    known = Wire("numa:0", "gpu:0", "PCIe", None, (copy("h2d", "numa:0", "gpu:0", 50.0, status="inherited"), None))
    picture = machine_svg([known], False)
    assert 'stroke-dasharray="5 3"' in picture and ">^50</text>" in picture and 'class="wire unmeasured"' in picture
    assert "peak" not in picture.split("<title>")[2]


def of_model(name: str) -> list[Wire]:
    """The links of a bundled machine; nothing was measured."""
    return wires(run([], model=msgspec.to_builtins(load(name))))


TEXTS = """(() => {
  const svg = document.querySelector("svg").getBoundingClientRect(), found = [];
  const texts = [...document.querySelectorAll("svg text:not(.modelled)")].filter((one) => one.lastChild);
  const boxes = texts.map((one) => [one.lastChild.textContent, one.getBoundingClientRect()]);
  boxes.forEach(([text, a], at) => {
    if (a.left < svg.left - 1 || a.right > svg.right + 1) found.push(`${text} is outside`);
    boxes.slice(0, at).forEach(([other, b]) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4)
        found.push(`${other} meets ${text}`);
    });
  });
  return found;
})()"""


@only_long
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_no_text_of_a_map_meets_another_with_any_font(tmp_path) -> None:
    maps = {name: of_model(name) for name in bundled()} | {f"{count} GPUs": switched(count) for count in (1, 8, 16)}
    with Browser(tmp_path / "profile") as browser:
        for name, found in maps.items():
            file = tmp_path / "map.html"
            style = template_text("figure.css") + ".chart { font-family: FONT; width: auto; }"
            for font in ("DejaVu Sans", "Liberation Sans", "Open Sans"):
                text = f"<style>{style.replace('FONT', font)}</style>{machine_svg(found, False)}"
                file.write_text(text, encoding="utf-8")
                browser.open(file)
                assert browser.ask(TEXTS) == [], (name, font)


def test_every_place_and_link_of_every_machine_is_drawn() -> None:
    for name in bundled():
        found = of_model(name)
        picture = machine_svg(found, True)
        places = {place for wire in found for place in (wire.one, wire.other)}
        assert picture.count('class="box"') == len(places) and "MODELLED" in picture
        assert all(f"{wire.one} to {wire.other}, " in picture for wire in found), name
