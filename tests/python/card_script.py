"""A network card of the mlx5 kind in a thread of this process, for scripts that tests start: it reads elements from
memory that the CPU reaches, moves their data, and writes completions. tests/core/mock_card.cpp checks every bit."""

import ctypes
import struct
import threading

BLOCK = 64
IDLE = 2**64 - 1
WRITE, READ, FETCH_ADD = 0x08, 0x10, 0x12
REMOTE_ACCESS = 0x13


class QueuePair(ctypes.Structure):
    """ls_queue_pair."""

    _fields_ = [
        ("number", ctypes.c_uint32),
        *((name, ctypes.c_void_p) for name in ("send", "completions")),
        *((name, ctypes.c_uint64) for name in ("send_bytes", "completions_bytes")),
        *((name, ctypes.c_void_p) for name in ("send_record", "completions_record", "doorbell")),
        *((name, ctypes.c_uint64) for name in ("local", "old_value")),
        *((name, ctypes.c_uint32) for name in ("local_key", "old_value_key")),
    ]


class Card:
    """One queue pair, whose memory begins at `start`: blocks, completions, the records, the doorbell, an old value.

    `regions`: the address and the size of each key. They are 1, 2, … in their order, and 99 that of the old value.
    """

    def __init__(self, start: int, blocks: int, regions: list[tuple[int, int]]) -> None:
        self.blocks, self.send, self.entries = blocks, start, start + blocks * BLOCK
        words = self.entries + blocks * BLOCK
        self.send_record, self.read_record, self.doorbell, old = (words + 64 * i for i in range(4))
        ctypes.memset(words, 0, 256)
        ctypes.c_uint64.from_address(self.doorbell).value = IDLE
        self.regions = dict(enumerate(regions, 1)) | {99: (old, 8)}
        self.pair = QueuePair(
            7, self.send, self.entries, blocks * BLOCK, blocks * BLOCK, self.send_record, self.read_record,
            self.doorbell, regions[0][0], old, 1, 99,
        )  # fmt: skip
        self.executed = self.written = 0
        self.failed = self.stops = False
        self.problems: list[str] = []
        self.thread = threading.Thread(target=self._run)

    @staticmethod
    def size(blocks: int) -> int:
        """Bytes of memory of a queue pair."""
        return 2 * blocks * BLOCK + 256

    def __enter__(self) -> "Card":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stops = True
        self.thread.join()

    def _run(self) -> None:
        doorbell = ctypes.c_uint64.from_address(self.doorbell)
        while not self.stops:
            if doorbell.value == IDLE:
                continue
            doorbell.value = IDLE
            posted = struct.unpack(">I", ctypes.string_at(self.send_record, 4))[0]
            while self.executed != posted:
                self._execute()

    def _execute(self) -> None:
        element = ctypes.string_at(self.send + self.executed % self.blocks * BLOCK, BLOCK)
        opcode, index, queue, segments = element[3], *struct.unpack(">H", element[1:3]), element[4:7], element[7] & 63
        if (index, queue) != (self.executed, b"\0\0\7") or segments > 4:
            self.problems.append(f"element {self.executed} is {element[:16].hex()}")
        error = 0 if not self.failed else 5
        if not error:
            error = self._perform(opcode, element)
        self.failed = self.failed or error != 0
        if error or element[11] & 8:
            self._complete(opcode, index, error)
        self.executed = (self.executed + 1) % (1 << 16)

    def _at(self, key: int, address: int, count: int) -> int | None:
        start, size = self.regions.get(key, (0, 0))
        return address if start <= address and address + count <= start + size else None

    def _perform(self, opcode: int, element: bytes) -> int:
        address, key = struct.unpack(">QI", element[16:28])
        if opcode == WRITE and element[32] & 0x80:  # the element carries its payload
            count = struct.unpack(">I", element[32:36])[0] & 0x7FFFFFFF
            return self._store(self._at(key, address, count), element[36 : 36 + count])
        at = 48 if opcode == FETCH_ADD else 32
        count, local_key, local = struct.unpack(">IIQ", element[at : at + 16])
        here, there = self._at(local_key, local, count), self._at(key, address, count)
        if here is None:
            return 4
        if there is None:
            return REMOTE_ACCESS
        if opcode == WRITE:
            return self._store(there, ctypes.string_at(here, count))
        self._store(here, ctypes.string_at(there, count))
        if opcode == FETCH_ADD:
            ctypes.c_uint64.from_address(there).value += struct.unpack(">Q", element[32:40])[0]
        return 0

    @staticmethod
    def _store(at: int | None, data: bytes) -> int:
        if at is None:
            return REMOTE_ACCESS
        if len(data) == 8 and at % 8 == 0:
            ctypes.c_uint64.from_address(at).value = int.from_bytes(data, "little")
        else:
            ctypes.memmove(at, data, len(data))
        return 0

    def _complete(self, opcode: int, index: int, error: int) -> None:
        entry = self.entries + self.written % self.blocks * BLOCK
        owner = self.written // self.blocks & 1
        ctypes.memset(entry, 0, 56)
        ctypes.c_uint8.from_address(entry + 55).value = error
        last = struct.pack(">BBBBHBB", opcode, 0, 0, 7, index, 0, (0xD0 if error else 0) | owner)
        ctypes.c_uint64.from_address(entry + 56).value = int.from_bytes(last, "little")  # the owner bit comes last
        self.written += 1
