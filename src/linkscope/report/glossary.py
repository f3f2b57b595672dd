"""What the words of the report mean."""

WORDS = (
    ("ce", "a GPU's copy engine: the copies that a call of the driver asks for"),
    ("sm", "a GPU's own threads, on its multiprocessors, that load and store the data"),
    ("tma", "a GPU's bulk copies: its threads ask for whole blocks, a unit of the multiprocessor moves them"),
    ("batch", "copy engines, told of all copies of a batch by one call of the driver"),
    ("graph", "copy engines, told of all copies of a batch by the launch of one graph, each after the one before"),
    ("cpu", "the host's own cores"),
    ("fault", "pages of managed memory come one by one, or in small batches, as somebody touches them"),
    ("prefetch", "pages of managed memory are sent in bulk, before anybody touches them"),
    ("after kernel", "a copy alone whose stream ran a kernel just before"),
    ("after wait", "a copy alone whose stream waited, and had run none"),
    ("initiator src, dst", "whose GPU's stream the copy is queued on, or whose threads copy: that of the source or of "
     "the destination"),
    ("peer on, off", "whether the GPUs reach each other's memory; without it the driver copies through the host's "
     "memory, and the host link is the limit"),
    ("pinned", "host memory that cannot move, allocated by the driver; the GPU reads and writes it by itself"),
    ("registered", "ordinary host memory that was pinned afterwards"),
    ("wc", "pinned memory that no CPU cache holds: writes are combined, and reads by a CPU are slow"),
    ("mapped", "pinned memory that a GPU's threads read and write in place"),
    ("hugepage, registered_hugepage", "host memory in pages of 2 MiB or 1 GiB, pageable or pinned afterwards"),
    ("pool", "memory of a GPU from its stream-ordered pool"),
    ("vmm", "memory of a GPU made, mapped and shared in parts (virtual memory management)"),
    ("managed", "memory whose pages move to whoever touches them, by one address on the host and on every GPU"),
    ("system", "memory of the operating system that GPUs reach as it is (HMM, ATS); its pages move as managed ones do"),
    ("pageable", "ordinary host memory: the driver copies through a pinned buffer of its own"),
    ("batched", "the time of one operation among many that follow each other"),
    ("single, alone", "the time of one operation by itself"),
    ("both ways", "the opposite direction runs at the same time; a rate is the total of both"),
    ("gate+slope", "copies are queued behind a closed gate, then run back to back; what twice as many take longer is "
     "the time of one"),
    ("two modes", "samples lie in two groups with a gap between them, further apart than the precision asked for"),
    ("point", "one number that was asked for: operation, engine, from, to, memories, size and parameters"),
    ("round", "every point once, in fresh processes, with fresh memory and in a new random order"),
    ("limit", "what the hardware allows before any cost of a protocol"),
)  # fmt: skip
