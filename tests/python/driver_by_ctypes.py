"""A CUDA driver called through ctypes: calls by name and version, a GPU with its context, linkscope's gate."""

import ctypes
import time
from collections.abc import Callable
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

CONTEXT_IS_DESTROYED = 709
INVALID_VALUE, OUT_OF_MEMORY, INVALID_IMAGE, INVALID_CONTEXT, NO_BINARY, INVALID_HANDLE = 1, 2, 200, 201, 209, 400
NOT_FOUND, NOT_READY, PEER_ALREADY_ENABLED, PEER_NOT_ENABLED = 500, 600, 704, 705
ALREADY_REGISTERED, NOT_REGISTERED = 712, 713
NON_BLOCKING = 1
PORTABLE_AND_MAPPED = 3
MIB = 1 << 20

# The version of each call that linkscope requests (core/gpu/driver.hpp).
VERSIONS = {
    "cuDeviceGetCount": 2000, "cuDeviceGetAttribute": 2000, "cuDeviceGetPCIBusId": 4010,
    "cuDevicePrimaryCtxRetain": 7000, "cuDevicePrimaryCtxRelease": 11000,
    "cuCtxSetCurrent": 4000, "cuCtxEnablePeerAccess": 4000,
    "cuCtxDisablePeerAccess": 4000, "cuMemGetInfo": 3020, "cuMemAlloc": 3020, "cuMemFree": 3020,
    "cuMemHostAlloc": 2020, "cuMemFreeHost": 2000, "cuMemHostRegister": 6050, "cuMemHostUnregister": 4000,
    "cuMemHostGetDevicePointer": 3020, "cuMemcpyAsync": 4000, "cuMemcpyHtoDAsync": 3020, "cuMemcpyDtoHAsync": 3020,
    "cuMemcpyDtoDAsync": 3020, "cuMemcpyPeerAsync": 4000, "cuMemcpyHtoD": 3020, "cuMemcpyDtoH": 3020,
    "cuMemsetD8Async": 3020, "cuStreamCreate": 2000, "cuStreamDestroy": 4000, "cuStreamSynchronize": 2000,
    "cuStreamQuery": 2000, "cuStreamWaitEvent": 3020, "cuStreamWaitValue32": 11070, "cuEventCreate": 2000,
    "cuEventRecord": 2000, "cuEventQuery": 2000, "cuEventSynchronize": 2000, "cuEventElapsedTime": 2000,
    "cuModuleLoadData": 2000, "cuModuleGetFunction": 2000, "cuFuncSetAttribute": 9000, "cuLaunchKernel": 4000,
    "cuMemAllocManaged": 6000, "cuMemPrefetchAsync": 12020, "cuMemAdvise": 12020, "cuMemPrefetchBatchAsync": 13000,
    "cuMemDiscardBatchAsync": 13000, "cuMemDiscardAndPrefetchBatchAsync": 13000,
    "cuMemcpy2DAsync": 3020, "cuMemcpy3DAsync": 3020,
    "cuMemcpyBatchAsync": 13000, "cuCtxSynchronize": 2000, "cuGraphCreate": 10000, "cuGraphAddMemcpyNode": 10000,
    "cuGraphAddKernelNode": 12000, "cuGraphInstantiateWithFlags": 11040, "cuGraphUpload": 11010,
    "cuGraphLaunch": 10000, "cuGraphExecMemcpyNodeSetParams": 10020, "cuGraphExecDestroy": 10000,
    "cuGraphDestroy": 10000, "cuStreamBeginCapture": 10010, "cuStreamEndCapture": 10000,
    "cuMemAllocAsync": 11020, "cuMemFreeAsync": 11020, "cuDeviceGetDefaultMemPool": 11020,
    "cuMemPoolSetAttribute": 11020, "cuMemPoolSetAccess": 11020, "cuMemPoolTrimTo": 11020,
    "cuMemGetAllocationGranularity": 10020, "cuMemCreate": 10020, "cuMemRelease": 10020, "cuMemAddressReserve": 10020,
    "cuMemAddressFree": 10020, "cuMemMap": 10020, "cuMemUnmap": 10020, "cuMemSetAccess": 10020,
    "cuPointerGetAttributes": 7000,
    "cuMemExportToShareableHandle": 10020, "cuMemImportFromShareableHandle": 10020, "cuIpcGetMemHandle": 4010,
    "cuIpcOpenMemHandle": 11000, "cuIpcCloseMemHandle": 4010,
}  # fmt: skip


class Driver:
    """Calls by name. `driver.cuMemAlloc(...)` returns the status; `driver.ok("cuMemAlloc", ...)` asserts success."""

    def __init__(self) -> None:
        library = ctypes.CDLL("libcuda.so.1")
        self.get_proc_address = library.cuGetProcAddress_v2
        self.get_proc_address.argtypes = [c_void_p, c_void_p, c_int, c_uint64, c_void_p]
        self.version = c_int()
        library.cuDriverGetVersion(byref(self.version))
        assert library.cuInit(0) == 0

    def find(self, symbol: str, version: int) -> tuple[int, int | None, int]:
        """Status, address and the search's own status."""
        address, result = c_void_p(), c_int(-1)
        status = self.get_proc_address(symbol.encode(), byref(address), version, 0, byref(result))
        return status, address.value, result.value

    def __getattr__(self, symbol: str) -> Callable[..., int]:
        _, address, _ = self.find(symbol, VERSIONS[symbol])
        assert address, f"{symbol} is missing"
        return ctypes.CFUNCTYPE(c_int)(address)

    def ok(self, symbol: str, *arguments: object) -> None:
        status = getattr(self, symbol)(*arguments)
        assert status == 0, f"{symbol}: {status}"


def ordinals(driver: Driver) -> list[int]:
    """The driver's numbers of the GPUs in PCI bus order, by which the library counts them."""
    count, names = c_int(), []
    driver.ok("cuDeviceGetCount", byref(count))
    for ordinal in range(count.value):
        name = ctypes.create_string_buffer(64)
        driver.ok("cuDeviceGetPCIBusId", name, c_int(64), c_int(ordinal))
        names.append((name.value, ordinal))
    return [ordinal for _, ordinal in sorted(names)]


class Gpu:
    """A device with its current context, and the objects that the checks create on it."""

    def __init__(self, driver: Driver, code: Path, ordinal: int = 0) -> None:
        self.driver, self.context = driver, c_void_p()
        driver.ok("cuDevicePrimaryCtxRetain", byref(self.context), c_int(ordinal))
        self.use()
        self.ordinal, self.code = ordinal, code
        self.arch = self.attribute(75) * 10 + self.attribute(76)

    def use(self) -> None:
        self.driver.ok("cuCtxSetCurrent", self.context)

    def attribute(self, number: int) -> int:
        value = c_int()
        self.driver.ok("cuDeviceGetAttribute", byref(value), c_int(number), c_int(self.ordinal))
        return value.value

    def stream(self) -> c_void_p:
        stream = c_void_p()
        self.driver.ok("cuStreamCreate", byref(stream), c_uint(NON_BLOCKING))
        return stream

    def event(self) -> c_void_p:
        event = c_void_p()
        self.driver.ok("cuEventCreate", byref(event), c_uint(0))
        return event

    def memory(self, size: int) -> c_uint64:
        pointer = c_uint64()
        self.driver.ok("cuMemAlloc", byref(pointer), c_size_t(size))
        return pointer

    def pinned(self, size: int) -> "ctypes.Array[c_char]":
        address = c_void_p()
        self.driver.ok("cuMemHostAlloc", byref(address), c_size_t(size), c_uint(PORTABLE_AND_MAPPED))
        return (c_char * size).from_address(address.value or 0)

    def image(self, module: str) -> bytes:
        """Machine code for this GPU, or PTX where the build has none."""
        machine_code = self.code / f"{module}.sm_{self.arch}"
        if machine_code.exists():
            return machine_code.read_bytes()
        return (self.code / f"{module}.compute_90").read_bytes() + b"\0"

    def function(self, module: str, name: str) -> c_void_p:
        handle, function = c_void_p(), c_void_p()
        self.driver.ok("cuModuleLoadData", byref(handle), self.image(module))
        self.driver.ok("cuModuleGetFunction", byref(function), handle, name.encode())
        return function

    def launch(self, function: c_void_p, stream: c_void_p, *arguments: object) -> int:
        addresses = (c_void_p * max(1, len(arguments)))(*(ctypes.addressof(a) for a in arguments))  # type: ignore[arg-type]
        shape = [c_uint(1)] * 3 + [c_uint(32), c_uint(1), c_uint(1), c_uint(0)]
        return self.driver.cuLaunchKernel(function, *shape, stream, addresses, None)


class Gate:
    """linkscope's gate kernel, closed until `open`."""

    def __init__(self, gpu: Gpu) -> None:
        self.page, self.gpu = gpu.pinned(4096), gpu
        self.kernel = gpu.function("gate", "linkscope_gate")
        # The first launch of a kernel may wait for the device, so the gate is not closed yet.
        stream = gpu.stream()
        self.open()
        self.close_on(stream, 1.0)
        gpu.driver.ok("cuStreamSynchronize", stream)

    def close_on(self, stream: c_void_p, timeout_s: float) -> None:
        word, flag = c_uint64(ctypes.addressof(self.page)), c_uint64(ctypes.addressof(self.page) + 256)
        assert self.gpu.launch(self.kernel, stream, word, c_uint64(int(timeout_s * 1e9)), flag) == 0

    def close(self) -> None:
        ctypes.memset(self.page, 0, 512)

    def open(self) -> None:
        self.page[0] = b"\x01"

    @property
    def timed_out(self) -> bool:
        return self.page[256] != b"\x00"


def seconds(call: Callable[[], None]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = [("type", c_int), ("id", c_int)]
