"""Copies arrays with linkscope. Without a GPU it copies between two host arrays.

Usage: python examples/copy_arrays.py [MIB]
"""

import sys
import time

import numpy as np

import linkscope
from linkscope import native


def main() -> int:
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    source = np.random.default_rng(0).integers(0, 255, mib << 20, dtype=np.uint8)
    try:
        import torch

        destination = torch.empty(source.size, dtype=torch.uint8, device="cuda" if torch.cuda.is_available() else "cpu")
    except ImportError:
        destination = np.empty_like(source)
    if reason := native.why_no_gpu():
        print(f"No GPU here: {reason}.")
    for _ in range(3):
        begin = time.perf_counter()
        linkscope.copy(destination, source)
        back = np.asarray(linkscope.to_cpu(destination))
        seconds = time.perf_counter() - begin
        assert np.array_equal(back, source)
        print(f"{mib} MiB there and back: {2 * source.nbytes / seconds / 1e9:.1f} GB/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
