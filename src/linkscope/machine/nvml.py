"""Asks NVML through nvidia-ml-py, loaded at first use, and records every refusal.

A hung GPU can block NVML for ever, so a reading gives up after a time-out.
"""

import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

Reading = TypeVar("Reading")

# Driver start-up on eight GPUs without persistence mode takes several seconds.
_PATIENCE_S = 30.0


class Unavailable(Exception):
    """NVML is not available; the text is the reason."""


class Ask:
    """Asks about one thing (the system, a GPU). A refused value is None, and its reason is in `errors`."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.errors: dict[str, str] = {}
        self.lost = False

    def __call__(self, fact: str, function: str, *arguments: Any) -> Any:
        """Calls `function` of nvidia-ml-py; `arguments` may name its constants."""
        try:
            call = getattr(self.nvml, function)
            return call(*(self.constant(each) if isinstance(each, str) else each for each in arguments))
        except AttributeError as error:
            self.errors[fact] = f"this nvidia-ml-py does not know it ({error})"
        except self.nvml.NVMLError as error:
            self._note(fact, error)
        except getattr(self.nvml, "NVMLLibraryMismatchError", ()) as error:
            self.errors[fact] = f"this driver does not know it ({error})"
        return None

    def text(self, fact: str, function: str, *arguments: Any) -> str | None:
        """A text; old versions of nvidia-ml-py return bytes."""
        answer = self(fact, function, *arguments)
        return answer.decode(errors="replace") if isinstance(answer, bytes) else answer

    def field(self, fact: str, handle: Any, constant: str, scope: int = 0) -> int | float | None:
        """A field value; `scope` is the NVLink for fields that have one for each."""
        if not hasattr(self.nvml, constant):
            self.errors[fact] = f"this nvidia-ml-py does not know {constant}"
            return None
        values = self(fact, "nvmlDeviceGetFieldValues", handle, [(self.constant(constant), scope)])
        if values is None:
            return None
        if values[0].nvmlReturn:
            self._note(fact, self.nvml.NVMLError(values[0].nvmlReturn))
            return None
        return _value(values[0])

    def constant(self, name: str) -> Any:
        """A constant of NVML by name."""
        return getattr(self.nvml, name)

    def _note(self, fact: str, error: Any) -> None:
        self.errors[fact] = str(error)
        self.lost |= error.value == self.nvml.NVML_ERROR_GPU_IS_LOST


def within_patience(read: Callable[[Any], Reading]) -> Reading:
    """The result of `read(pynvml)` between init and shutdown. Raises Unavailable, also if NVML does not answer in
    time."""
    answer: list[Reading] = []
    why: list[str] = []

    def ask() -> None:
        try:
            with _session() as nvml:
                answer.append(read(nvml))
        except Unavailable as error:
            why.append(str(error))
        except Exception as error:  # a faulty library is a reason, not a traceback
            why.append(f"NVML failed: {type(error).__name__}: {error}")

    # A daemon thread, since a call that hangs in the driver cannot be ended and must not block the exit.
    thread = threading.Thread(target=ask, name="nvml probe", daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    if answer:
        return answer[0]
    raise Unavailable(why[0] if why else f"NVML did not answer within {_PATIENCE_S:g} s: the driver or a GPU hangs")


@contextmanager
def _session() -> Iterator[Any]:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError as error:
        raise Unavailable(f"nvidia-ml-py is not installed ({error})") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise Unavailable(_why_not(nvml, error)) from None
    try:
        yield nvml
    finally:
        # The reading itself reports a driver that disappeared.
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _why_not(nvml: Any, error: Any) -> str:
    if error.value == nvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "there is no NVML here (libnvidia-ml.so.1 cannot be loaded)"
    if error.value == nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return (
            "NVML and the kernel's driver are of different versions: the driver was updated and not reloaded; "
            "reboot, or unload and load the nvidia modules"
        )
    if error.value == nvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the nvidia kernel module is not loaded"
    return f"NVML does not start: {error}"


def _value(field: Any) -> int | float:
    # NVML_VALUE_TYPE_*: the member of the union that was filled in.
    members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    number: int | float = getattr(field.value, members[field.valueType])
    return number
