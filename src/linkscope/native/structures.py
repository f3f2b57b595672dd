"""Structures of the C interface (linkscope.h)."""

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_int32, c_uint32, c_uint64, c_void_p
from typing import Any, ClassVar


class Knobs(ctypes.Structure):
    """How a method divides copies of one size class (ls_knobs in linkscope.h)."""

    _fields_: ClassVar[Sequence[Any]] = [
        ("plain", c_uint32),
        ("threads", c_uint32),
        ("chunk", c_uint64),
        ("depth", c_uint32),
        ("chunks_each", c_uint32),
        ("piece", c_uint64),
        ("sm_blocks", c_uint32),
        ("sm_chunk", c_uint64),
        ("links", c_uint32),
        ("cufile", c_uint32),
        ("tma", c_uint32),
        ("uring", c_uint32),
        ("mapped", c_uint32),
    ]


class Piece(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [("offset", c_uint64), ("bytes", c_uint64), ("dst", c_void_p)]


class ReadCounts(ctypes.Structure):
    """Bytes of a file by the way they were read (ls_read_counts in linkscope.h)."""

    _fields_: ClassVar[Sequence[Any]] = [
        ("cached", c_uint64),
        ("direct", c_uint64),
        ("buffered", c_uint64),
        ("uring", c_uint64),
        ("cufile", c_uint64),
        ("mapped", c_uint64),
        ("uring_refused", c_int32),
    ]


Report = ctypes.CFUNCTYPE(c_int, c_uint64, c_void_p)


class Watch(ctypes.Structure):
    """What the caller of ls_read_file wants to know (ls_watch in linkscope.h)."""

    _fields_: ClassVar[Sequence[Any]] = [("report", Report), ("user", c_void_p), ("counts", ReadCounts)]


class Source(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [("src", c_void_p), ("bytes", c_uint64), ("stream", c_void_p)]


class WriteCounts(ctypes.Structure):
    """Bytes of a file by the way they were written (ls_write_counts in linkscope.h)."""

    _fields_: ClassVar[Sequence[Any]] = [
        ("direct", c_uint64),
        ("buffered", c_uint64),
        ("cufile", c_uint64),
        ("uring", c_uint64),
        ("uring_refused", c_int32),
    ]


class Saving(ctypes.Structure):
    """What the caller of ls_save_file wants (ls_saving in linkscope.h)."""

    _fields_: ClassVar[Sequence[Any]] = [
        ("report", Report),
        ("user", c_void_p),
        ("durable", c_int),
        ("counts", WriteCounts),
    ]
