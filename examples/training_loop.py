"""A small training loop with the usual transfer mistakes, and the same loop without them.

    python examples/training_loop.py --trace slow.json.gz             # pageable input, a loss that is read every step
    linkscope explain slow.json.gz                                    # what each mistake is worth
    python examples/training_loop.py --mended --trace fast.json.gz    # the gain, measured
    python examples/training_loop.py --both --trace slow.json.gz      # both loops, and the time saved

Needs PyTorch and a GPU. The step time is that of 30 steps without the profiler.
"""

import argparse
import time

import torch

BATCH, WIDTH, STEPS = 8192, 4096, 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--mended", action="store_true", help="pin and prefetch the input, read the loss once at the end"
    )
    parser.add_argument("--both", action="store_true", help="run both loops; --trace records the one as written")
    parser.add_argument("--trace", metavar="FILE", help="record five more steps for `linkscope explain`")
    arguments = parser.parse_args()
    if not arguments.both:
        train(arguments.mended, arguments.trace)
        return
    slow, fast = train(False, arguments.trace), train(True, None)
    print(f"saved: {(slow - fast) * 1e3:.2f} ms a step")


def train(mended: bool, trace: str | None) -> float:
    """Runs one loop, prints and returns the seconds of a step, and records five more steps if `trace` names a file."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(),
        torch.nn.Linear(WIDTH, 1),
    ).cuda().bfloat16()  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    loader = Loader(mended)
    losses: list[torch.Tensor] = []

    def step() -> None:
        batch = loader.next()
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if not mended:
            losses[-1].item()  # waits for the GPU

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - start) / STEPS
    print(f"{'mended' if mended else 'as written'}: {seconds * 1e3:.2f} ms a step")
    if trace:
        record(step, trace)
    return seconds


class Loader:
    """Batches from host memory. Mended: pinned, and copied on a stream of its own one step ahead."""

    def __init__(self, mended: bool) -> None:
        self.mended = mended
        data = [torch.randn(BATCH, WIDTH).bfloat16() for _ in range(4)]
        self.data = [one.pin_memory() for one in data] if mended else data
        self.count = 0
        self.stream = torch.cuda.Stream()
        self.ahead = self._copy() if mended else None

    def next(self) -> torch.Tensor:
        if not self.mended:
            self.count += 1
            return self.data[self.count % 4].cuda()
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.ahead
        batch.record_stream(torch.cuda.current_stream())
        self.ahead = self._copy()
        return batch

    def _copy(self) -> torch.Tensor:
        self.count += 1
        with torch.cuda.stream(self.stream):
            return self.data[self.count % 4].cuda(non_blocking=True)


def record(step, path: str) -> None:
    from torch.profiler import ProfilerActivity, profile, schedule

    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], schedule=schedule(wait=0, warmup=2, active=5),
        on_trace_ready=lambda done: done.export_chrome_trace(path),
    ) as running:  # fmt: skip
        for _ in range(7):
            step()
            running.step()
    print(f"trace: {path}")


if __name__ == "__main__":
    main()
