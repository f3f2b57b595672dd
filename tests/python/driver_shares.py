"""A second process for driver_checks_memory.py: shares 2 MiB of its first GPU by IPC handle until its input ends.

Usage: python driver_shares.py      (prints the handle in hexadecimal, and at the end the first word of that memory)
"""

import ctypes
import sys
from ctypes import byref, c_size_t, c_uint64
from pathlib import Path

from driver_by_ctypes import MIB, Driver, Gpu


class IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


def main() -> None:
    driver, handle, word = Driver(), IpcHandle(), c_uint64()
    pointer = Gpu(driver, Path()).memory(2 * MIB)
    driver.ok("cuIpcGetMemHandle", byref(handle), pointer)
    print(bytes(handle).hex(), flush=True)
    sys.stdin.read()
    driver.ok("cuMemcpyDtoH", byref(word), pointer, c_size_t(8))
    print(word.value, flush=True)


if __name__ == "__main__":
    main()
