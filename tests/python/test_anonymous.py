"""`linkscope export --anonymous`: no personal word stays, all numbers do, and every command still reads the file."""

import gzip
import json
from pathlib import Path

import pytest

from invented import point, run
from linkscope.cli import main as command_line
from linkscope.runfile import read_run
from linkscope.runfile.anonymous import anonymous, personal_data
from site_runs import GPU, NODE, copies, text_of

DISK = "disk:/home/alice/scratch a"
QUOTED = DISK.replace(" ", "%20")
RANK = {"rank": 0, "host": "node17", "process": 7, "gpu_uuid": GPU["uuid"]}
FACTS = {
    "gpus": [GPU | {"serial": "1652923005432"}], "numa": [NODE], "hostname": "node17.cluster.local",
    "mpi": {"ranks": [RANK, RANK | {"host": "lager-3"}], "path": "/usr/lib/libmpi.so", "launcher": "/opt/alice/mpirun"},
}  # fmt: skip
ENVIRONMENT = {
    "process": {"variables": {"CUDA_HOME": "/home/alice/cuda:/usr/local/cuda", "UCX_NET": "10.11.12.13"}},
    "contact": "alice.smith@example.org", "mac": "aa:bb:cc:dd:ee:ff", "driver_version": "13.20.30.40",
}  # fmt: skip
WORDS = (
    "node17", "lager-3", "alice", "1652923005432", "ef120a50", "scratch", "10.11.12.13", "example.org",
    "aa:bb:cc", "cluster.local",
)  # fmt: skip


def written(path: Path, **machine: object) -> Path:
    file = f"d2h/ce/gpu:0.device->{QUOTED}.file/4096?mode=batched"
    made = [*copies(50.0), point(file, 1e-5, reason="node17 was slow: /home/alice/scratch a", guards={DISK: "full"})]
    made.append(point("h2d/ce/numa:0.pinned->gpu:0.device/8?mode=batched&with=numa:0->" + QUOTED, 1e-6))
    path.write_bytes(text_of(run(made, modelled=False, name="alpha", **(FACTS | machine)), environment=ENVIRONMENT))
    return path


def numbers(value: object) -> list[float]:
    if isinstance(value, dict):
        return [number for inner in value.values() for number in numbers(inner)]
    if isinstance(value, list):
        return [number for inner in value for number in numbers(inner)]
    return [value] if isinstance(value, int | float) else []


def test_no_personal_word_stays_and_all_numbers_do(tmp_path: Path) -> None:
    source, target = written(tmp_path / "a.jsonl"), tmp_path / "b.jsonl"
    before = source.read_text()
    assert not [word for word in WORDS if word not in before], "the test must begin with these words"
    assert command_line.main(["export", "--anonymous", str(source), "-o", str(target)]) == 0
    after = target.read_text()
    assert not [word for word in WORDS if word in after.lower()]
    assert "/usr/lib/libmpi.so" in after and "/usr/local/cuda" in after and "13.20.30.40" in after
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    assert all(numbers(json.loads(one)) == numbers(json.loads(other)) for one, other in pairs)
    assert personal_data(target).words == {}


def test_a_word_has_one_placeholder_in_the_whole_file(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in anonymous(written(tmp_path / "a.jsonl"))[0].splitlines()]
    machine = lines[0]["machine"]
    assert [rank["host"] for rank in machine["mpi"]["ranks"]] == ["host-2", "host-3"]
    assert machine["mpi"]["ranks"][0]["gpu_uuid"] == machine["gpus"][0]["uuid"]
    disk = lines[3]
    place = disk["dst"]
    assert place.startswith("disk:/path-") and place in disk["id"] and list(disk["guards"]) == [place]
    assert place in lines[4]["params"]["with"] and "host-2 was slow" in disk["reason"]


def test_every_reader_accepts_an_anonymous_file(tmp_path: Path) -> None:
    source, target = written(tmp_path / "a.jsonl"), tmp_path / "b.jsonl.gz"
    assert command_line.main(["export", "--anonymous", str(source), "-o", str(target)]) == 0
    assert target.read_bytes()[:2] == b"\x1f\x8b"
    assert len(read_run(target).points) == len(read_run(source).points)
    for words in (["report", "-o", str(tmp_path / "b.html")], ["export", "-o", str(tmp_path / "b.csv")]):
        assert command_line.main([words[0], str(target), *words[1:]]) == 0
    assert command_line.main(["compare", str(source), str(target)]) in (0, 1)


def test_names_that_are_words_of_the_format_do_not_break_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = [RANK | {"host": name} for name in ("gpu", "points", "measured", "devic")]
    source, target = written(tmp_path / "a.jsonl", mpi={"ranks": ranks}), tmp_path / "b.jsonl"
    assert command_line.main(["export", "--anonymous", str(source), "-o", str(target)]) == 0
    found = read_run(target)
    hosts = [rank["host"] for rank in found.header.machine["mpi"]["ranks"]]
    assert len(set(hosts)) == 4 and all(host.startswith("host-") for host in hosts)
    assert found.points[0].flows[0].role == "measured" and found.points[0].dst_memory == "device"
    assert "gpu" in capsys.readouterr().err


def test_a_file_without_personal_data_stays_as_it_is(tmp_path: Path) -> None:
    source = tmp_path / "a.jsonl"
    source.write_bytes(text_of(run(copies(50.0), name="alpha")))
    assert anonymous(source) == (source.read_bytes(), [])


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    source = written(tmp_path / "a.jsonl")
    text = source.read_bytes()
    source.write_bytes(gzip.compress(text + b'{"record":"point","id":"node17'))
    assert b"node17" not in anonymous(source)[0] and anonymous(source)[0].count(b"\n") == text.count(b"\n")


def test_the_command_refuses_a_format_and_standard_output_together_with_anonymous(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(written(tmp_path / "a.jsonl"))
    assert command_line.main(["export", "--anonymous", source, "--format", "csv"]) == 2
    assert "--anonymous" in capsys.readouterr().err
    assert command_line.main(["export", "--anonymous", source, "-o", str(tmp_path / "b.csv")]) == 2
    assert ".jsonl" in capsys.readouterr().err


def test_globs_of_only_are_no_paths(tmp_path: Path) -> None:
    plan = {"suite": "quick", "only": ["*/ce/numa:0*", f"*->{QUOTED}*"]}
    path = tmp_path / "a.jsonl"
    path.write_bytes(text_of(run(copies(50.0), modelled=False, name="alpha"), plan=plan))
    assert json.loads(anonymous(path)[0].splitlines()[0])["plan"]["only"] == ["*/ce/numa:0*", "*->disk:/path-1*"]
    path.write_bytes(text_of(run(copies(50.0), modelled=False, name="alpha"), plan=plan | {"only": ["*/ce/numa:0*"]}))
    assert personal_data(path).words == {}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("[Errno 2] No such file or directory: '/data/my runs/mia.txt'", ("data", "mia")),
        ("connection to fe80::5054:ff:fe12:3456 lost", ("5054", "3456")),
        ("address 2001:db8:85a3:0:0:8a2e:370::7334 is in use", ("2001", "7334")),
        ("port GUID 506b:4b03:00cb:9a1c is down", ("506b", "9a1c")),
        ("MAC AA-BB-CC-DD-EE-FF is unknown", ("AA-BB", "EE-FF")),
        ("mount of filer.physik.uni-example.de:/export failed", ("filer", "physik", "uni-example", "export")),
        ("node7.cluster.uni-example.de does not answer", ("node7", "uni-example")),
    ],
)
def test_addresses_and_names_in_error_texts_are_replaced(tmp_path: Path, text: str, left: tuple[str, ...]) -> None:
    path = tmp_path / "a.jsonl"
    failed = point("h2d/ce/numa:0.pinned->gpu:0.device/8?mode=batched", status="failed", reason=text)
    path.write_bytes(text_of(run([failed], modelled=False, name="alpha")))
    reason = json.loads(anonymous(path)[0].splitlines()[1])["reason"]
    assert not [word for word in left if word in reason], reason


def test_words_that_look_like_addresses_or_hosts_stay(tmp_path: Path) -> None:
    text = "std::bad_alloc at 0000:3b:00.0, 10:20:30; kernels.cu, a.b.so, x.y.py, host:0/gpu:1, 12.9.1, cuda::abc::def"
    path = tmp_path / "a.jsonl"
    failed = point("h2d/ce/numa:0.pinned->gpu:0.device/8?mode=batched", status="failed", reason=text)
    path.write_bytes(text_of(run([failed], modelled=False, name="alpha")))
    assert json.loads(anonymous(path)[0].splitlines()[1])["reason"] == text


def test_hosts_in_variables_and_in_lists_are_replaced(tmp_path: Path) -> None:
    variables = {"NCCL_HOSTID": "gpunode42", "NCCL_COMM_ID": "gpunode41:5000", "UCX_NET_DEVICES": "mlx5_0:1"}
    facts = {"hostname": ["gpunode43", "gpunode44"]}
    path = tmp_path / "a.jsonl"
    one = run(copies(50.0), modelled=False, name="alpha", **facts)
    path.write_bytes(text_of(one, environment={"process": {"variables": variables}}))
    text = anonymous(path)[0].decode()
    assert "gpunode" not in text and "mlx5_0:1" in text
