"""Makes an OCI image of linkscope without a registry: a root file system of Debian packages, and the wheel.

Usage: make wheel && sudo .venv/bin/python tools/image.py -o linkscope.oci.tar [--rootfs DIR]

`mmdebstrap` (a Debian package) makes the root file system, unless --rootfs names one. Then containers/install.sh runs
there, as in containers/Containerfile. `podman load -i linkscope.oci.tar`, `skopeo` and `umoci` read the result.
"""

import argparse
import gzip
import hashlib
import io
import json
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUITE = "trixie"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le"}
CONFIG = {
    "Env": [
        "NVIDIA_VISIBLE_DEVICES=all",
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        "PATH=/opt/linkscope/bin:/usr/bin:/bin",
    ],
    "Entrypoint": ["/opt/linkscope/bin/linkscope"],
    "Cmd": ["doctor"],
    "WorkingDir": "/data",
}
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def make_rootfs(folder: Path) -> None:
    """A minimal Debian. Raises SystemExit without mmdebstrap."""
    if not shutil.which("mmdebstrap"):
        raise SystemExit("mmdebstrap is not here: apt-get install mmdebstrap, or name a root file system (--rootfs)")
    subprocess.run(["mmdebstrap", "--variant=minbase", SUITE, str(folder)], check=True)


def install(rootfs: Path, wheels: Path) -> None:
    """Runs containers/install.sh in the root file system, with these wheels."""
    there = rootfs / "tmp" / "linkscope"
    there.mkdir(parents=True)
    for wheel in wheels.glob("*.whl"):
        shutil.copy(wheel, there)
    shutil.copy(ROOT / "containers" / "install.sh", there)
    shutil.copy("/etc/resolv.conf", rootfs / "etc" / "resolv.conf")
    subprocess.run(["chroot", str(rootfs), "sh", "/tmp/linkscope/install.sh", "/tmp/linkscope"], check=True)
    shutil.rmtree(there)
    for name in ("resolv.conf", "hostname"):  # of this host
        (rootfs / "etc" / name).unlink(missing_ok=True)


def write_image(rootfs: Path, out: Path) -> str:
    """Writes the tree as an image of one layer in an OCI layout (image-spec 1.1); returns the manifest's digest."""
    with tempfile.TemporaryFile() as packed:
        plain = hashlib.sha256()
        with (
            gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as zipped,
            tarfile.open(fileobj=_Digesting(zipped, plain), mode="w|") as layer,
        ):
            layer.add(rootfs, arcname=".", filter=_in_layer)
        packed.seek(0)
        digest = hashlib.file_digest(packed, "sha256").hexdigest()
        size = packed.tell()
        config = _json({
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()), "os": "linux", "config": CONFIG,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{plain.hexdigest()}"]},
        })  # fmt: skip
        manifest = _json({
            "schemaVersion": 2, "mediaType": _MANIFEST, "config": _described(_CONFIG, config),
            "layers": [{"mediaType": _LAYER, "digest": f"sha256:{digest}", "size": size}],
        })  # fmt: skip
        named = _described(_MANIFEST, manifest) | {"annotations": {"org.opencontainers.image.ref.name": "linkscope"}}
        with tarfile.open(out, "w") as archive:
            _add(archive, "oci-layout", _json({"imageLayoutVersion": "1.0.0"}))
            _add(archive, "index.json", _json({"schemaVersion": 2, "manifests": [named]}))
            for blob in (config, manifest):
                _add(archive, f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}", blob)
            packed.seek(0)
            entry = tarfile.TarInfo(f"blobs/sha256/{digest}")
            entry.size = size
            archive.addfile(entry, packed)
    return hashlib.sha256(manifest).hexdigest()


class _Digesting(io.RawIOBase):
    """Writes to `into` and adds to a digest."""

    def __init__(self, into: gzip.GzipFile, digest: "hashlib._Hash") -> None:
        super().__init__()
        self._into, self._digest = into, digest

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        self._digest.update(data)
        return self._into.write(data)


def _in_layer(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leaves out devices, sockets and what a container mounts; the same tree gives the same layer."""
    top = entry.name.removeprefix("./").partition("/")
    if entry.isdev() or (top[0] in ("proc", "sys", "dev", "run") and top[2]):
        return None
    entry.mtime = 0
    return entry


def _json(content: object) -> bytes:
    return json.dumps(content, sort_keys=True).encode()


def _described(kind: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


def main() -> None:
    """Makes the image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--rootfs", type=Path, help="a root file system that is changed; default: a new Debian")
    arguments = parser.parse_args()
    wheels = ROOT / "build" / "wheel"
    if not any(wheels.glob("linkscope-*.whl")):
        raise SystemExit("no wheel in build/wheel: make wheel")
    with tempfile.TemporaryDirectory() as own:
        rootfs = arguments.rootfs or Path(own) / "rootfs"
        if not arguments.rootfs:
            make_rootfs(rootfs)
        install(rootfs, wheels)
        digest = write_image(rootfs, arguments.output)
    print(f"wrote {arguments.output}: sha256:{digest}", file=sys.stderr)


if __name__ == "__main__":
    main()
