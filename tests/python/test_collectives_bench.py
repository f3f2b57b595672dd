"""tools/collectives_bench.py: on a model, and with a program that prints what nccl-tests print."""

from pathlib import Path

import collectives_bench as tool
import pytest

from fake_driver import LIBRARIES, environment, needs_fake, needs_worker, too_short
from linkscope.runfile import read_run

pytestmark = [needs_worker]

HEAD = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
TEXT = f"""# nThread 4 nGpus 1 minBytes 256 maxBytes 1024 step: 4(factor) warmup iters: 20 iters: 100
{HEAD}
         256            64     float     sum      -1    11.52    0.02    0.03       0    11.40    0.02    0.03       0
        1024           256     float     sum      -1    12.00    0.09    0.13       0    11.95    0.09    0.13     N/A
# Avg bus bandwidth    : 0.08
"""


def with_fakes(folder: Path, monkeypatch) -> None:
    """Two GPUs, NCCL, and a program of nccl-tests in the folder, which takes 10 us more with buffers of 1033 B."""
    for name, value in environment(CUDA_GPUS=2).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LINKSCOPE_NCCL", str(LIBRARIES / "nccl" / "libnccl.so.2"))
    slower = TEXT.replace("11.52", "21.52").replace("12.00", "22.00")
    program = folder / "all_reduce_perf"
    program.write_text(f"""#!/bin/sh
test "$NCCL_NVLS_ENABLE" = 0 || exit 1
if test "$2 $4" = "256 1033"; then cat <<'END'
{slower}END
else cat <<'END'
{TEXT}END
fi
""")
    program.chmod(0o755)


def test_the_times_of_nccl_tests_out_of_place_are_read() -> None:
    assert tool.parse_nccl_tests(TEXT) == pytest.approx({256: 11.52e-6, 1024: 12.0e-6})


def test_small_times_may_differ_by_half_a_microsecond_and_large_ones_by_two_percent() -> None:
    assert tool._is_near(8, 10.5e-6, 10.0e-6) and not tool._is_near(8, 10.6e-6, 10.0e-6)
    assert tool._is_near(1 << 20, 1.019e-3, 1e-3) and not tool._is_near(1 << 20, 1.021e-3, 1e-3)


def test_ranks_that_write_no_run_file_say_what_their_launcher_said(tmp_path: Path, monkeypatch, capsys) -> None:
    with_fakes(tmp_path, monkeypatch)
    launcher = tmp_path / "mpiexec"
    launcher.write_text("#!/bin/sh\necho 'there are not enough slots' >&2\necho ------ >&2\nexit 1\n")
    launcher.chmod(0o755)
    assert tool.main([str(tmp_path), "--sections", "mpi", "--mpiexec", str(launcher)]) == 0
    assert "- mpi: there are not enough slots" in capsys.readouterr().out


def test_a_model_has_tables_of_one_process_and_says_what_needs_hardware(tmp_path: Path, monkeypatch) -> None:
    of_suite = tool.Bench.run_file
    few = ("--only", "all_reduce/*/1048576[?]mode=batched&ranks=2", "--rounds", "2", "--precision", "99%")
    monkeypatch.setattr(tool.Bench, "run_file", lambda self, name, *words, ranks=0: of_suite(self, name, *words, *few))
    assert tool.main([str(tmp_path), "--machine", "h200x2"]) == 0
    text = (tmp_path / "collectives.md").read_text()
    assert text.startswith("# Collectives on MODELLED") and "reduce by NCCL" in text
    assert "- beside: give the folder of nccl-tests" in text and "- ranks: ranks of a launcher have no model" in text
    with pytest.raises(SystemExit):
        tool.main([str(tmp_path), "--sections", "nosuch"])


@needs_fake
def test_linkscope_stands_between_two_runs_of_nccl_tests(tmp_path: Path, monkeypatch) -> None:
    with_fakes(tmp_path, monkeypatch)
    monkeypatch.setattr(tool, "_PROGRAMS", {"all_to_all": "alltoall_perf", "all_reduce": "all_reduce_perf"})
    monkeypatch.setattr(
        tool,
        "_only",
        lambda name, ranks: [
            f"--only={name}/nccl/gpu:0*/256[?]mode=batched&ranks={ranks}",
            "--rounds",
            "2",
            "--precision",
            "99%",
        ],
    )
    out = tmp_path / "out"
    assert tool.main([str(out), "--nccl-tests", str(tmp_path), "--sections", "beside", "--budget", "300"]) == 0
    text = (out / "collectives.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| all_reduce | 256 B")]
    (point,) = read_run(out / "beside-all_reduce.jsonl").points
    assert [row.count("11.52 us") for row in rows] == ([] if too_short(point) else [2]), text
    assert f"| all_to_all | alltoall_perf is not in {tmp_path} |" in text
    assert "Below 1 MiB, " in text and (out / "all_reduce_perf.txt").read_text().count("nThread") == 2


@needs_fake
def test_sums_with_other_buffers_stand_beside_those_of_nccl_tests(tmp_path: Path, monkeypatch) -> None:
    with_fakes(tmp_path, monkeypatch)
    monkeypatch.setattr(tool, "_SUMS", ("all_reduce",))
    monkeypatch.setattr(tool, "_SUM_SIZES", (256, 1024, 4))
    monkeypatch.setattr(tool, "_APART", 9)
    out = tmp_path / "out"
    assert tool.main([str(out), "--nccl-tests", str(tmp_path), "--sections", "buffers", "--budget", "120"]) == 0
    text = (out / "collectives.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| all_reduce | ")]
    assert [row[2:4] for row in rows] == [["11.52 us", "21.52 us"], ["12 us", "22 us"]], text
    kinds = {point.params.get("buffers", "driver") for point in read_run(out / "buffers-all_reduce.jsonl").points}
    assert kinds == {"driver", "vmm"}
