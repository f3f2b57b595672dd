"""Other outputs of `report`: the drawing of the machine, Markdown, single figures."""

import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ET
import zlib
from pathlib import Path

import pytest
from browser import CHROMIUM

from invented import point, run, small_run
from linkscope.cli.main import main
from linkscope.report.details import details
from linkscope.report.figures import figures, size_of, standalone
from linkscope.report.html import page
from linkscope.report.machine_map import machine_svg
from linkscope.report.markdown import to_markdown
from linkscope.report.png import cropped
from linkscope.report.summary import summary
from linkscope.report.wires import wires
from linkscope.runfile import RunWriter, read_run

EVIL = "<script>alert(1)</script>|`x`"
LINK = {"active": True, "remote": "switch", "remote_gpu": None}
PROBED = {
    "numa": [{"index": 0}],
    "gpus": [{"index": n, "numa": None, "pcie": {"max_generation": 5, "width": 16}, "nvlinks": [LINK] * 18,
              "nvlink_gbps": 478.1} for n in range(4)],
}  # fmt: skip
MODEL = {
    "link": [
        {"kind": "nvlink", "lanes": 3, "gbps": {"v": 75.0}, "between": [["numa:0", "gpu:0"], ["gpu:0", "gpu:1"]]},
        {"kind": "smp", "gbps": {"v": 64.0}, "between": [["numa:0", "numa:1"]]},
    ]
}


def written(tmp_path, made) -> str:
    path = tmp_path / "made.jsonl"
    with RunWriter.create(path, made.header) as writer:
        for one in made.points:
            writer.write(one)
    return str(path)


def test_links_of_a_probed_machine_show_their_best_rates() -> None:
    found = {(wire.one, wire.other): wire for wire in wires(run(small_run().points, **PROBED))}
    host, nvlink = found["numa:0", "gpu:0"], found["gpu:2", "NVSwitch"]
    assert len(found) == 8 and host.kind == "PCIe 5.0 x16" and host.limit == 63.0 and host.back is None
    assert 55 < host.there < 56 and host.shares() == [pytest.approx(host.there / 63.0)]
    assert nvlink.kind == "NVLink x18" and nvlink.limit == 478.1 and 380 < nvlink.there < 390


def test_links_of_a_model_count_all_paths_over_them() -> None:
    id = "h2d/ce/numa:1.pinned->gpu:0.device/1048576?mode=batched"
    hops = "smp numa:1->numa:0, nvlink numa:0->gpu:0"
    found = wires(run([point(id, 1e6 / 40e9, guards={"route a0": hops})], model=MODEL))
    reached = {(wire.one, wire.other): (wire.there, wire.back) for wire in found}
    assert reached["numa:0", "gpu:0"][0] == reached["numa:0", "numa:1"][1] == pytest.approx(41.94, abs=0.01)
    assert reached["gpu:0", "gpu:1"] == (None, None)


@pytest.mark.parametrize("facts", [{}, {"model": {}}, {"model": 3}, {"gpus": [7]}, {"gpus": None}, {"numa": [{}]}])
def test_an_unknown_machine_description_is_not_drawn(facts) -> None:
    made = run(small_run().points, **facts)
    assert wires(made) == [] and machine_svg([], False) == "" and "The machine and its links" not in page(made)


def test_markdown_has_rates_anomalies_and_checks_and_escapes_markup() -> None:
    text = to_markdown(small_run())
    assert "## MODELLED: invented" in text and "**MODELLED**" in text
    assert "| d2d by ce, device → device |" in text and "gpu:2 → gpu:3" in text and "2 points failed" in text
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in text.splitlines() if line.startswith("|")}
    assert widths == {11}
    evil = to_markdown(run([point("h2d/ce/a.b->c.d/8?mode=batched", 1e-6, src=EVIL)], name=EVIL))
    assert "<script" not in evil and "`x`" not in evil.replace("\\`", "")
    assert "No point has a value" in to_markdown(run([], modelled=False)) and "MODELLED" not in to_markdown(
        run([], modelled=False)
    )


def test_each_figure_is_a_standalone_file() -> None:
    found = figures(run(small_run().points, **PROBED))
    assert "machine" in found and "curves-h2d" in found and len(set(found)) == len(found)
    for svg in found.values():
        text = standalone(svg)
        assert ET.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
        assert "var(" not in text and "MODELLED" in text and 'width="' in text.partition(">")[0]


def test_the_command_writes_figures(tmp_path, capsys) -> None:
    source = written(tmp_path, small_run())
    assert main(["report", source, "--list-figures"]) == 0
    name = capsys.readouterr().out.split()[0]
    assert main(["report", source, "--figure", name, "-o", str(tmp_path / "x.svg")]) == 0
    assert (tmp_path / "x.svg").read_text().startswith("<svg")
    assert main(["report", source, "--markdown", str(tmp_path / "x.md")]) == 0
    assert "Best rates" in (tmp_path / "x.md").read_text()


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--figure", "no-such-thing", "-o", "x.svg"], 3, "no such figure"),
        (["--figure", "machine"], 2, "-o FILE.svg"),
        (["--figure", "machine", "-o", "x.pdf"], 2, "-o FILE.svg"),
        (["--markdown", "a.md", "-o", "b.md"], 2, "two outputs"),
        (["--markdown", "made.jsonl"], 2, "run file"),
        (["--summary", "-o", "x.txt"], 2, "--summary prints"),
        (["--list-figures", "-o", "x.txt"], 2, "--list-figures prints"),
        (["--shared"], 3, "`run --suite standard` measures them"),
    ],
)
def test_mistakes_get_one_sentence(tmp_path, capsys, monkeypatch, options, code, message) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", written(tmp_path, small_run()), *options]) == code
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_summary_of_two_runs_is_refused(capsys) -> None:
    assert main(["report", "a.jsonl", "b.jsonl", "--summary"]) == 2
    assert "takes one run file, not 2" in capsys.readouterr().err


def test_without_a_browser_a_png_is_refused(tmp_path, capsys, monkeypatch) -> None:
    source = written(tmp_path, small_run())
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert main(["report", source, "--figure", "curves-h2d", "-o", str(tmp_path / "x.png")]) == 3
    assert "Chromium" in capsys.readouterr().err and not (tmp_path / "x.png").exists()


def pixels(png: bytes) -> tuple[int, int, bytes]:
    """Width, height, and the rows, each behind the number of its filter."""
    width, height = struct.unpack_from(">II", png, 16)
    return width, height, zlib.decompress(png[png.index(b"IDAT") + 4 :])


@pytest.mark.parametrize("colour, channels", [(2, 3), (6, 4)])
def test_the_upper_left_part_of_a_png_keeps_its_rows(colour: int, channels: int) -> None:
    rows = [bytes([1]) + bytes(range(10 * y, 10 * y + 5 * channels)) for y in range(4)]

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    whole = zlib.compress(b"".join(rows))
    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 5, 4, 8, colour, 0, 0, 0))
    png += chunk(b"IDAT", whole[:9]) + chunk(b"IDAT", whole[9:]) + chunk(b"IEND", b"")
    kept = b"".join(row[: 1 + 3 * channels] for row in rows[:2])
    assert pixels(cropped(png, 3, 2)) == (3, 2, kept)
    assert pixels(cropped(png, 9, 9)) == (5, 4, b"".join(rows))
    with pytest.raises(ValueError, match="16 bits"):
        cropped(png.replace(struct.pack(">BB", 8, colour), struct.pack(">BB", 16, colour), 1), 3, 2)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_png_has_the_size_of_its_figure_also_where_that_is_narrower_than_a_window(tmp_path, monkeypatch) -> None:
    """Chromium paints a smaller part than its window at first, and under load writes that: the window is higher."""
    commands, run_command = [], subprocess.run

    def recorded(command, **options):
        commands.append(command)
        return run_command(command, **options)

    monkeypatch.setattr(subprocess, "run", recorded)
    source = str(Path(__file__).parents[1] / "golden" / "run-h200x1.jsonl")
    for end in ("svg", "png"):
        assert main(["report", source, "--figure", "machine", "-o", str(tmp_path / f"x.{end}")]) == 0
    size = size_of((tmp_path / "x.svg").read_text())
    width, height, rows = pixels((tmp_path / "x.png").read_bytes())
    assert size[0] < 500 and (width, height) == (2 * size[0], 2 * size[1]) and len(rows) % height == 0
    (window,) = [word for word in commands[-1] if word.startswith("--window-size=")]
    assert int(window.split(",")[1]) > size[1] + 100


def test_the_command_prints_the_summary_or_all_tables(tmp_path, capsys) -> None:
    source = written(tmp_path, small_run())
    assert main(["report", source, "--summary"]) == 0
    assert capsys.readouterr().out == summary(read_run(source)) + "\n"
    assert main(["report", source, "--summary=full"]) == 0
    assert capsys.readouterr().out == details(read_run(source)) + "\n"


def test_tables_of_measured_runs_mention_doctor(tmp_path) -> None:
    assert "linkscope doctor" not in details(run(small_run().points))
    assert "linkscope doctor" in details(run(small_run().points, modelled=False))


@pytest.mark.parametrize("options", [[], ["--summary"], ["--summary=full"], ["--nvbandwidth"], ["--markdown", "a.md"]])
@pytest.mark.parametrize("folder", [".", ".."])
def test_a_directory_is_no_run_file(tmp_path, capsys, monkeypatch, folder, options) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", folder, *options]) == 2
    assert "is a directory. Name the .jsonl file in it" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
