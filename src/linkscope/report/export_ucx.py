"""A run as a configuration of UCX (ucx.conf), whose estimates of rates choose UCX's protocols.

UCX counts a megabyte as 2**20 bytes. UCX reads the file from its own etc/ucx or from UCX_CONFIG_DIR.
"""

from linkscope.report.system_values import Path, SystemValues, comment
from linkscope.runfile import Run

_CURE = "linkscope run h2d d2h h2h local d2d --suite standard -o RUN.jsonl"
# UCX's own values of UCX_CUDA_COPY_BW (1.22). UCX refuses a list that lacks a key and has no value without one.
_DEFAULTS = {"": "10000MBps", "h2d": "8300MBps", "d2h": "11660MBps", "d2d": "320GBps"}


def to_ucx(run: Run) -> str:
    """The text of ucx.conf: values, each after the point that it is from. Raises UserError where the run has none."""
    values = SystemValues(run)
    places = [str(place) for place in values.machine.get("places", []) if "/" not in str(place)]
    numa = [place for place in places if place.startswith("numa:")]
    gpus = [place for place in places if place.startswith("gpu:")]
    lines = [f"# {values.source()}", "# Directory of this file: UCX_CONFIG_DIR. Rates are in units of 2**20 B/s."]
    found = [
        *_copy_lines(values, numa, gpus),
        *_ipc_lines(values, gpus),
        *_host_lines(values, numa),
        *_distance_lines(values, numa, gpus),
    ]
    if not any(not line.startswith("#") for line in found):
        values.need({"copies that UCX has a setting for": None}, _CURE)
    return "\n".join([*lines, *found, ""])


def _mb(gbps: float) -> str:
    return f"{gbps * 1e9 / 2**20:.1f}MBps"


def _slowest(rates: "list[Path | None]") -> Path | None:
    """The slowest of the paths: a setting holds for all of them."""
    known = [rate for rate in rates if rate]
    return min(known, key=lambda rate: rate.value) if known else None


def _copy_lines(values: SystemValues, numa: list[str], gpus: list[str]) -> list[str]:
    def near(benchmark: str, gpu: str) -> Path | None:
        ends = [(node, gpu) if benchmark == "h2d" else (gpu, node) for node in numa]
        rates = [rate for pair in ends if (rate := values.rate(benchmark, *pair))]
        return max(rates, key=lambda rate: rate.value, default=None)

    parts = {
        "h2d": _slowest([near("h2d", gpu) for gpu in gpus]),
        "d2h": _slowest([near("d2h", gpu) for gpu in gpus]),
        "d2d": _slowest([values.rate("local", gpu, gpu) for gpu in gpus]),
    }
    known = {name: rate for name, rate in parts.items() if rate}
    if not known:
        return []
    lines = [f"# {name}: {comment(rate.id)}" for name, rate in known.items()]
    lines += [f"# {name}: not measured, so UCX's default" for name in parts if name not in known]
    texts = [f"{name}:{_mb(known[name].value) if name in known else _DEFAULTS[name]}" for name in parts]
    return [*lines, "UCX_CUDA_COPY_BW=" + ",".join([_DEFAULTS[""], *texts])]


def _ipc_lines(values: SystemValues, gpus: list[str]) -> list[str]:
    """Peer copies, which UCX makes between processes by CUDA IPC."""
    pairs = [(src, dst) for src in gpus for dst in gpus if src != dst]
    if not pairs:
        return []
    rate = _slowest([values.rate("d2d", *pair) for pair in pairs])
    if rate is None:
        return ["# Between GPUs no copy with peer access was measured, so UCX's defaults for CUDA IPC stay."]
    lines = [f"# {comment(rate.id)}", f"UCX_CUDA_IPC_BW={_mb(rate.value)}"]
    times = [time for pair in pairs if (time := values.seconds("d2d", *pair))]
    if times:
        slowest = max(times, key=lambda time: time.value)
        lines += [f"# {comment(slowest.id)}", f"UCX_CUDA_IPC_LAT={slowest.value * 1e6:.2f}us"]
    return lines


def _host_lines(values: SystemValues, numa: list[str]) -> list[str]:
    """The rate of a thread that copies host memory, in shared memory and into buffers."""
    rate = _slowest([values.rate("h2h", node, node) for node in numa])
    if rate is None:
        return []
    return [f"# {comment(rate.id)}", *(f"UCX_{name}_BW={_mb(rate.value)}" for name in ("BCOPY", "POSIX", "SYSV"))]


def _distance_lines(values: SystemValues, numa: list[str], gpus: list[str]) -> list[str]:
    """The rate of GPUs to memory of another NUMA node: UCX's distance `sys`."""
    ends = [(node, gpu) for gpu in gpus for node in numa]
    rates = {pair: rate for pair in ends if (rate := values.rate("h2d", *pair))}
    far = []
    for gpu in gpus:
        of_gpu = sorted((rate.value, pair) for pair, rate in rates.items() if pair[1] == gpu)
        far += [rates[pair] for _, pair in of_gpu[:-1]]
    slowest = _slowest(list(far))
    return [] if slowest is None else [f"# {comment(slowest.id)}", f"UCX_DISTANCE_BW=auto,sys:{_mb(slowest.value)}"]
