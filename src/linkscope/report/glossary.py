"""The terms of the report and their meanings."""

import re

WORDS = (
    ("ce", "a copy engine of a GPU, which copies without using its SMs"),
    ("sm", "threads on the multiprocessors (SMs) of a GPU, which load and store the data"),
    ("tma", "the Tensor Memory Accelerator of an SM, which moves whole blocks at the request of a thread"),
    ("batch", "copy engines, with all copies of a batch handed over in one driver call"),
    ("graph", "copy engines, with all copies of a batch handed over in one graph launch, one after the other"),
    ("cpu", "the cores of the host"),
    ("fault", "pages of managed memory migrate singly or in small groups when they are accessed"),
    ("prefetch", "pages of managed memory migrate in bulk before they are accessed"),
    ("after kernel", "a single copy on a stream that has just run a kernel"),
    ("after wait", "a single copy on a stream that has waited without running a kernel"),
    ("clock host", "the time by the host's clock, which includes the calls"),
    ("blocks sms", "a kernel with one block for each SM of the GPU"),
    ("initiator src, dst", "the GPU whose stream or threads copy: that of the source or of the destination"),
    ("peer on, off", "whether the GPUs access each other's memory directly; without it the driver copies through host "
     "memory, and the host link is the bottleneck"),
    ("pinned", "host memory that cudaMallocHost allocated page-locked; the GPU accesses it directly"),
    ("registered", "ordinary host memory that cudaHostRegister page-locked later"),
    ("wc", "pinned memory without CPU caching (write-combining): CPU writes are combined, CPU reads are slow"),
    ("mapped", "pinned memory that threads of a GPU read and write in place"),
    ("hugepage, registered_hugepage", "host memory in pages of 2 MiB or 1 GiB, pageable or page-locked later"),
    ("pool", "GPU memory from the driver's stream-ordered pool"),
    ("vmm", "memory of a GPU from the virtual memory management calls, mapped and shared in parts"),
    ("ipc", "memory of a GPU that another process allocated, opened by its IPC handle"),
    ("posix_fd", "memory of a GPU that another process allocated and sent as a POSIX file descriptor"),
    ("shm", "POSIX shared memory of the host, created by another process, mapped by both and page-locked later"),
    ("managed", "memory with one address on the host and all GPUs; its pages migrate on access"),
    ("system", "memory of the operating system that GPUs access directly (HMM, ATS); its pages migrate on access"),
    ("pageable", "ordinary host memory; the driver copies through its own pinned buffer (staging)"),
    ("batched", "the time of one operation among many that follow each other"),
    ("single", "the time of one operation by itself"),
    ("unidirectional, bidirectional", "traffic in one direction, or in both at the same time; bidirectional rates are "
     "totals"),
    ("gate+slope", "copies wait behind a closed gate, then run back to back; the extra time of a longer batch, divided "
     "by its extra copies, is the time of one copy"),
    ("two modes", "the samples lie in two groups whose distance exceeds the target precision"),
    ("point", "one number to measure: operation, engine, source, destination, memory kinds, size and parameters"),
    ("round", "one measurement of each point, in fresh processes with fresh memory and in a new random order"),
    ("class", "paths that the machine description expects to perform alike"),
    ("inherited", "a value from another path of the class, not measured"),
    ("missed precision", "an interval wider than the target, or no interval"),
    ("plain copy", "one contiguous buffer, copied by an ordinary call such as cudaMemcpyAsync"),
    ("half rate", "the smallest measured size that reaches half of the best rate"),
    ("Jain's index", "1 if all clients get the same rate, 1/n if one of n clients gets everything"),
    ("peak", "the limit of the hardware without the cost of protocols"),
)  # fmt: skip


def terms_in(text: str) -> list[tuple[str, str]]:
    """The terms that occur in a text, with their meanings. 'peer on, off' stands for 'peer on' and 'peer off'."""
    found = []
    for term, meaning in WORDS:
        first, *others = term.split(", ")
        start = first.rpartition(" ")[0]
        forms = [first, *(f"{start} {other}".strip() for other in others)]
        if any(re.search(rf"(?<![\w-]){re.escape(form)}(?![\w-])", text) for form in forms):
            found.append((term, meaning))
    return found
