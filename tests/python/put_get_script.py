"""The C interface of puts and gets by ctypes, for scripts that tests start."""

import ctypes
from ctypes import (
    Structure,
    byref,
    c_char_p,
    c_double,
    c_int32,
    c_size_t,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

library = ctypes.CDLL(str(Path(__file__).parents[2] / "src" / "linkscope" / "_native" / "liblinkscope.so"))
TEXTS = ("ls_last_error", "ls_region_handle", "ls_region_serve", "ls_region_card_handle", "ls_channel_transport")
for _name in TEXTS:
    getattr(library, _name).restype = c_char_p
library.ls_region_start.restype = c_void_p
ANY, DIRECT, KERNEL, PROXY, VERBS = range(5)
PUT, GET, SIGNAL, ADD, PUT_SIGNAL, AWAIT, QUIET = range(1, 8)


class Options(Structure):
    _fields_ = [
        ("gpu", c_int32),
        ("transport", c_uint32),
        ("server_gpu", c_uint32),
        ("slots", c_uint32),
        ("descriptor_bytes", c_uint32),
        ("timeout_s", c_double),
        ("ring_gpu", c_int32),
        ("tma", c_uint32),
        ("proxy", c_uint32),
        ("pair", c_void_p),
    ]


class Step(Structure):
    _fields_ = [(name, c_uint64) for name in ("verb", "local", "remote", "bytes", "word", "value")]


def ok(status: int) -> None:
    assert status == 0, library.ls_last_error().decode()


def error(status: int) -> str:
    assert status != 0
    return library.ls_last_error().decode()


class Region:
    def __init__(self, start: int = 0, size: int = 0, handle: str = "", gpu: int = 0, new: bool = False) -> None:
        self.pointer = c_void_p()
        if new:
            ok(library.ls_region_create_on_gpu(byref(self.pointer), c_size_t(size), c_uint32(gpu)))
            return
        if handle:
            ok(library.ls_region_import(byref(self.pointer), handle.encode(), c_uint32(gpu)))
        elif start:
            ok(library.ls_region_open(byref(self.pointer), c_void_p(start), c_size_t(size)))
        else:
            ok(library.ls_region_create(byref(self.pointer), c_size_t(size)))

    def handle(self) -> str:
        text = library.ls_region_handle(self.pointer)
        assert text, library.ls_last_error().decode()
        return text.decode()

    def serve(self, address: str) -> str:
        text = library.ls_region_serve(self.pointer, address.encode(), c_uint16(0))
        assert text, library.ls_last_error().decode()
        return text.decode()

    def card_handle(self, key: int) -> str:
        text = library.ls_region_card_handle(self.pointer, c_uint64(self.start()), c_uint32(key))
        assert text, library.ls_last_error().decode()
        return text.decode()

    def start(self) -> int:
        return library.ls_region_start(self.pointer) or 0

    def bytes(self, offset: int, count: int) -> bytes:
        return ctypes.string_at(self.start() + offset, count)

    def write(self, offset: int, data: bytes) -> None:
        ctypes.memmove(self.start() + offset, data, len(data))

    def close(self) -> int:
        return library.ls_region_close(self.pointer)


class Channel:
    def __init__(self, local: Region, remote: Region, **options: float) -> None:
        self.pointer = c_void_p()
        chosen = {"gpu": -1, "transport": ANY, "server_gpu": 0, "slots": 64, "descriptor_bytes": 32, "timeout_s": 10.0}
        chosen |= {"ring_gpu": -1, "tma": 0, "proxy": 0}
        made = Options(**(chosen | options))
        ok(library.ls_channel_open(byref(self.pointer), local.pointer, remote.pointer, byref(made)))

    def transport(self) -> str:
        return library.ls_channel_transport(self.pointer).decode()

    def call(self, name: str, *numbers: int) -> int:
        return getattr(library, name)(self.pointer, *map(c_uint64, numbers))

    def run(self, threads: int, *steps: tuple[int, ...], blocks: int = 1) -> None:
        made = (Step * len(steps))(*(Step(*step) for step in steps))
        shape = c_uint32(blocks), c_uint32(threads)
        ok(library.ls_run_steps_by_blocks(self.pointer, made, c_size_t(len(steps)), *shape, c_void_p()))
        ok(library.ls_finish_steps(self.pointer))

    def close(self) -> None:
        library.ls_channel_close(self.pointer)


__all__ = ["Channel", "Region", "error", "library", "ok"]
