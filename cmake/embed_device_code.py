"""Compiles a .cu file by NVRTC, for each of its architectures of at least sm_60, or writes one .cpp file for several.

That file holds machine code for each architecture and PTX for compute_90. Later drivers compile the PTX for GPUs that
this compiler does not know. NVRTC comes from the build requirements (12.9). Without them, NVRTC of the loader's path or
of $CUDA_HOME is used, with its architectures.
"""

import argparse
import ctypes
import hashlib
import os
import pathlib
import re
import sys
from collections.abc import Sequence

LOWEST_ARCH = 60
PTX_ARCH = 90
OPTIONS = ["--std=c++17", "--fmad=true", "-default-device"]


def find_nvrtc() -> ctypes.CDLL:
    """The first NVRTC that loads; the builtins library beside it has to be loaded first."""
    folders = [
        pathlib.Path(root, sub) for root in sys.path if root for sub in ("nvidia/cuda_nvrtc/lib", "nvidia/cu13/lib")
    ]
    folders += [pathlib.Path(home, "lib64") for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda") if home]
    for folder in folders:
        for library in sorted(folder.glob("libnvrtc.so.1[23]")):
            for builtins in folder.glob("libnvrtc-builtins.so.*"):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(str(library))
    for name in ("libnvrtc.so.12", "libnvrtc.so.13"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    sys.exit("NVRTC was not found: install nvidia-cuda-nvrtc-cu12==12.9.* for the Python that builds, or set CUDA_HOME")


class Nvrtc:
    """The handful of NVRTC calls that are needed here; each failure ends the build with the compiler's own words."""

    def __init__(self) -> None:
        self.lib = find_nvrtc()
        self.lib.nvrtcGetErrorString.restype = ctypes.c_char_p

    def check(self, status: int, what: str) -> None:
        if status:
            sys.exit(f"{what}: {self.lib.nvrtcGetErrorString(status).decode()}")

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.check(self.lib.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
        return f"{major.value}.{minor.value}"

    def archs(self) -> list[int]:
        count = ctypes.c_int()
        self.check(self.lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
        archs = (ctypes.c_int * count.value)()
        self.check(self.lib.nvrtcGetSupportedArchs(archs), "nvrtcGetSupportedArchs")
        return sorted(arch for arch in archs if arch >= LOWEST_ARCH)

    def compile(self, source: pathlib.Path, include: Sequence[str], arch: str) -> bytes:
        """Machine code where arch is sm_NN, PTX where it is compute_NN."""
        (code,) = self.compile_to(["CUBIN" if arch.startswith("sm_") else "PTX"], source, include, arch)
        return code

    def compile_to(self, kinds: Sequence[str], source: pathlib.Path, include: Sequence[str], arch: str) -> list[bytes]:
        """CUBIN and PTX of one compilation: machine code is made from PTX. Code from headers in <> has no line numbers,
        which would more than double it.
        """
        program = ctypes.c_void_p()
        text = source.read_bytes()
        name = source.name.encode()
        self.check(self.lib.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None), "create")
        options = [f"--gpu-architecture={arch}", *(f"--include-path={folder}" for folder in include), *OPTIONS]
        options += [] if b"#include <" in text else ["-lineinfo"]
        array = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        status = self.lib.nvrtcCompileProgram(program, len(options), array)
        if status:
            size = ctypes.c_size_t()
            self.lib.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            self.lib.nvrtcGetProgramLog(program, log)
            sys.exit(f"{source} for {arch}:\n{log.value.decode()}")
        results = []
        for kind in kinds:
            size = ctypes.c_size_t()
            self.check(getattr(self.lib, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)), "size")
            code = ctypes.create_string_buffer(size.value)
            self.check(getattr(self.lib, f"nvrtcGet{kind}")(program, code), "code")
            results.append(code.raw)
        self.lib.nvrtcDestroyProgram(ctypes.byref(program))
        return results


def targets(nvrtc: Nvrtc, first_only: bool) -> list[tuple[str, int, bool]]:
    """Names of architectures, their numbers, and whether they are PTX. `first_only`, for short builds of tests: later
    GPUs of a generation run the code of its first, and those after PTX_ARCH the PTX."""
    archs = nvrtc.archs()
    if first_only:
        firsts = {min(other for other in archs if other // 10 == arch // 10) for arch in archs}
        archs = sorted(arch for arch in firsts if arch <= PTX_ARCH)
    return [(f"sm_{arch}", arch, False) for arch in archs] + [(f"compute_{PTX_ARCH}", PTX_ARCH, True)]


def headers_of(text: str, core: pathlib.Path) -> set[pathlib.Path]:
    """The headers of core that a text includes, also through others."""
    found: set[pathlib.Path] = set()
    for name in re.findall(r'^#include "(.+)"$', text, flags=re.M):
        found |= {core / name} | headers_of((core / name).read_text(), core)
    return found


def compile_kernels(args: argparse.Namespace) -> None:
    """Writes a file of code for each architecture, the headers as a depfile, and a stamp."""
    stem, nvrtc = args.out / args.kernels[0].stem, Nvrtc()
    args.out.mkdir(parents=True, exist_ok=True)
    for stale in [*args.out.glob(f"{stem.name}.sm_*"), *args.out.glob(f"{stem.name}.compute_*")]:
        stale.unlink()
    for name, arch, is_ptx in targets(nvrtc, args.first_only):
        if is_ptx:
            continue  # comes with the machine code of the same architecture
        kinds = {"CUBIN": name, "PTX": f"compute_{arch}"} if arch == PTX_ARCH else {"CUBIN": name}
        for file, code in zip(
            kinds.values(), nvrtc.compile_to(list(kinds), args.kernels[0], args.include, name), strict=True
        ):
            stem.with_suffix(f".{file}").write_bytes(code)
    stamp = stem.with_suffix(".compiled")
    headers = sorted(headers_of(args.kernels[0].read_text(), pathlib.Path(args.include[0])))
    stem.with_suffix(".d").write_text(f"{stamp}: {' '.join(map(str, headers))}\n")
    stamp.touch()


def embed(args: argparse.Namespace) -> None:
    """Writes device_code.cpp, which holds the files of all kernels."""
    nvrtc, digest = Nvrtc(), hashlib.sha256()
    blobs, rows = [], []
    for source in sorted(args.kernels):
        for name, arch, is_ptx in targets(nvrtc, args.first_only):
            file = args.out / f"{source.stem}.{name}"
            digest.update(file.read_bytes())
            symbol = f"linkscope_code_{source.stem}_{name}"
            # .byte 0 ends PTX, which the driver reads as a C string.
            blobs.append(
                f'asm(".section .rodata\\n.balign 64\\n{symbol}: .incbin \\"{file}\\"\\n"\n'
                f'    "{symbol}_end: .byte 0\\n.previous\\n");\n'
                f'extern "C" const unsigned char {symbol}[], {symbol}_end[];'
            )
            rows.append(f'    {{"{source.stem}", {arch}, {str(is_ptx).lower()}, {symbol}, {symbol}_end}},')
    (args.out / "device_code.cpp").write_text(
        "// Written by cmake/embed_device_code.py\n"
        f'#include "{args.header}"\n\n'
        + "\n".join(blobs)
        + "\n\nnamespace linkscope {\nnamespace {\nconst DeviceCode codes[] = {\n"
        + "\n".join(rows)
        + "\n};\n}  // namespace\n\n"
        f"std::span<const DeviceCode> {args.prefix}device_codes() {{ return codes; }}\n"
        f'const char* {args.prefix}device_code_compiler() {{ return "NVRTC {nvrtc.version()}"; }}\n'
        f'const char* {args.prefix}device_code_hash() {{ return "{digest.hexdigest()[:16]}"; }}\n'
        "}  // namespace linkscope\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=("compile", "embed"))
    parser.add_argument("kernels", nargs="+", type=pathlib.Path, help="one file to compile, or all to embed")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--include", nargs="+", help="folders of headers, that of core first")
    parser.add_argument("--header", help="the header that declares the functions of the written file")
    parser.add_argument("--prefix", default="", help="what the names of these functions begin with")
    parser.add_argument(
        "--first-only", action="store_true", help="of each generation up to that of the PTX, the first architecture"
    )
    args = parser.parse_args()
    {"compile": compile_kernels, "embed": embed}[args.step](args)


if __name__ == "__main__":
    main()
