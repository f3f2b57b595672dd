"""The image: recipes that install the same, and an OCI layout whose digests are right."""

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import image
import pytest

CONTAINERS = image.ROOT / "containers"


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    root = tmp_path / "rootfs"
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "hostname").write_text("linkscope\n")
    (root / "proc" / "1").mkdir(parents=True)
    (root / "opt").symlink_to("etc")
    return root


def blobs(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        return {entry.name: archive.extractfile(entry).read() for entry in archive}  # type: ignore[union-attr]


def test_every_digest_and_size_of_the_layout_is_that_of_its_blob(rootfs: Path, tmp_path: Path) -> None:
    out = tmp_path / "image.tar"
    digest = image.write_image(rootfs, out)
    found = blobs(out)
    assert json.loads(found["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (named,) = json.loads(found["index.json"])["manifests"]
    assert named["digest"] == f"sha256:{digest}"
    manifest = json.loads(found[f"blobs/sha256/{digest}"])
    for of in (named, manifest["config"], *manifest["layers"]):
        blob = found["blobs/" + of["digest"].replace(":", "/")]
        assert hashlib.sha256(blob).hexdigest() == of["digest"][7:] and len(blob) == of["size"]
    (layer,) = manifest["layers"]
    plain = gzip.decompress(found["blobs/" + layer["digest"].replace(":", "/")])
    config = json.loads(found["blobs/" + manifest["config"]["digest"].replace(":", "/")])
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(plain).hexdigest()}"]
    with tarfile.open(fileobj=io.BytesIO(plain)) as tree:
        assert sorted(tree.getnames()) == [".", "./etc", "./etc/hostname", "./opt", "./proc"]


def test_the_same_tree_gives_the_same_image(rootfs: Path, tmp_path: Path) -> None:
    first = image.write_image(rootfs, tmp_path / "one.tar")
    (rootfs / "etc" / "hostname").touch()
    assert image.write_image(rootfs, tmp_path / "two.tar") == first


def test_the_recipes_install_by_the_same_script_and_start_the_same_program() -> None:
    container, apptainer = ((CONTAINERS / name).read_text() for name in ("Containerfile", "linkscope.def"))
    script = (CONTAINERS / "install.sh").read_text()
    assert "install.sh" in container and "install.sh" in apptainer
    assert f'ENTRYPOINT ["{image.CONFIG["Entrypoint"][0]}"]' in container
    assert "exec /opt/linkscope/bin/linkscope" in apptainer and "/opt/linkscope" in script
    for setting in image.CONFIG["Env"][:2]:
        assert setting in container
    subprocess.run(["sh", "-n", str(CONTAINERS / "install.sh")], check=True)
    copied = apptainer.split("%files")[1].split("%post")[0]
    assert "install.sh" in copied and "/tmp" not in copied, "Apptainer mounts the host's /tmp over that of the image"


def test_python_packages_of_the_host_do_not_replace_those_of_an_apptainer_image() -> None:
    """Apptainer mounts the host's home, and passes on its variables."""
    script = (CONTAINERS / "linkscope.def").read_text().split("%environment")[1].split("%runscript")[0]
    asks = f"{sys.executable} -c 'import os, site; print(site.ENABLE_USER_SITE, os.environ.get(\"PYTHONPATH\"))'"
    host = {**os.environ, "PYTHONPATH": "/host/packages"}
    said = subprocess.run(["sh", "-c", script + asks], check=True, env=host, capture_output=True, text=True)
    assert said.stdout.split() == ["False"]


def test_the_test_of_the_apptainer_recipe_passes_twice_and_leaves_no_file(tmp_path: Path) -> None:
    """Apptainer mounts the host's /tmp in %test as well, where the first test may have left its run file."""
    script = (CONTAINERS / "linkscope.def").read_text().split("%test")[1]
    script = script.replace("/opt/linkscope/bin/linkscope", f"{sys.executable} -m linkscope")
    for _ in range(2):
        subprocess.run(["sh", "-c", script], check=True, env=os.environ | {"TMPDIR": str(tmp_path)}, timeout=120)
    assert list(tmp_path.iterdir()) == []


def test_the_packages_of_the_image_are_the_dependencies_of_the_wheel() -> None:
    wanted = re.search(r"^dependencies = \[(.*)\]", (image.ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert wanted is not None
    names = set(re.findall(r'"([\w-]+)', wanted[1]))
    script = (CONTAINERS / "install.sh").read_text()
    of_debian = {name for name in names if f"python3-{name}" in script}
    assert names - of_debian == {"nvidia-ml-py"}  # which the recipes download as a wheel
    assert "nvidia-ml-py" in (CONTAINERS / "Containerfile").read_text()


def test_without_a_wheel_or_mmdebstrap_the_tool_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "ROOT", tmp_path)
    monkeypatch.setattr("sys.argv", ["image.py", "-o", str(tmp_path / "out.tar")])
    with pytest.raises(SystemExit, match="make wheel"):
        image.main()
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(SystemExit, match="apt-get install mmdebstrap"):
        image.make_rootfs(tmp_path / "rootfs")
