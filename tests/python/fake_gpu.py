"""Arrays on GPUs of the fake driver, for scripts that tests start: the application's side of a copy."""

from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

from driver_by_ctypes import NON_BLOCKING, Driver

driver, _context = Driver(), c_void_p()
driver.ok("cuDevicePrimaryCtxRetain", byref(_context), c_int(0))
driver.ok("cuCtxSetCurrent", _context)
_stream = c_void_p()
driver.ok("cuStreamCreate", byref(_stream), c_uint(NON_BLOCKING))
STREAM = _stream.value or 0


class Array:
    """Bytes on the GPU, with `__cuda_array_interface__`."""

    def __init__(self, size: int, address: int = 0, gpu: int = 0) -> None:
        self.size, pointer = size, c_uint64(address)
        if not address:
            there = _context if gpu == 0 else c_void_p()
            if gpu:  # for as long as the process runs
                driver.ok("cuDevicePrimaryCtxRetain", byref(there), c_int(gpu))
            driver.ok("cuCtxSetCurrent", there)
            driver.ok("cuMemAlloc", byref(pointer), c_size_t(size))
            driver.ok("cuCtxSetCurrent", _context)
        self.address = pointer.value
        self.__cuda_array_interface__ = {
            "shape": (size,), "typestr": "|u1", "data": (self.address, False), "strides": None, "version": 3,
        }  # fmt: skip

    def __getitem__(self, part: slice) -> "Array":
        first, end, _ = part.indices(self.size)
        return Array(end - first, self.address + first)


def forget(*arrays: Array) -> None:
    """Frees the arrays and the application's stream and context."""
    for one in arrays:
        driver.ok("cuMemFree", c_uint64(one.address))
    driver.ok("cuStreamDestroy", _stream)
    driver.ok("cuDevicePrimaryCtxRelease", c_int(0))
