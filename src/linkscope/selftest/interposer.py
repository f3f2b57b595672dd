"""Stands between linkscope and its worker and plants disturbances that a machine file cannot describe. The protocol is
that of docs/reference/worker.md.

Started as `python interposer.py JSON WORKER…`. JSON is a list of objects with `match`, a glob of keys
(POINT_ID#ROUND), and
  first_s N     the first operation after `prepare` takes N seconds more
  factor F      every time is multiplied by F
  two_modes F   every other sample is multiplied by F
  hot S         a load of a chase over lines that were not flushed takes S seconds (for which the simulation has no
                caches: it is asked for the chase with flushes)
  blocks [2,3]  only in the second and third `prepare`, over all processes that count in the file `count`
  error TEXT    `prepare` fails with these words
Uses the standard library alone, without site packages: it starts in the time of a bare interpreter.
"""

import array
import fnmatch
import json
import subprocess
import sys
from typing import Any


class Interposer:
    """The state of one pipe: the prepared key and the number of its samples."""

    def __init__(self, plants: list[dict[str, Any]]) -> None:
        self.plants = plants
        self.key, self.block = "", 0
        self.samples, self.first, self.hot = 0, True, False

    def planted(self, what: str) -> Any:
        """The planted value for this key, or None."""
        for plant in self.plants:
            here = self.block in plant.get("blocks", (self.block,))
            if what in plant and here and fnmatch.fnmatchcase(self.key, plant.get("match", "*")):
                return plant[what]
        return None

    def asked(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """An answer of its own, or None if the worker answers. May change the request."""
        if request["op"] != "prepare":
            return None
        self.key, self.samples, self.first = request["key"], 0, True
        self.block = self.counted()
        if error := self.planted("error"):
            return {"ok": False, "error": {"kind": "failed", "message": error}}
        params = request["case"]["params"]
        self.hot = bool(self.planted("hot")) and params.get("cache") == "hot"
        if self.hot:
            params["cache"] = "cold"
        return None

    def counted(self) -> int:
        """The number of this `prepare` over all processes, if the plant has a file to count in."""
        for plant in self.plants:
            if "count" in plant:
                with open(plant["count"], "ab") as file:
                    file.write(b".")
                    return file.tell()
        return 0

    def answered(self, request: dict[str, Any], head: dict[str, Any], stamps: "array.array[float]") -> None:
        """Changes the answer to a `run`."""
        if request["op"] != "run" or not head["ok"]:
            return
        batches, actors = request["batches"], head["actors"]
        for at in range(0, len(stamps), 2):
            block, actor = divmod(at // 2, actors)
            count = batches[block % len(batches)][actor]
            stamps[at + 1] = stamps[at] + self.seconds(stamps[at + 1] - stamps[at], count)
            if actor == actors - 1 and block % len(batches) == len(batches) - 1:
                self.samples += 1

    def seconds(self, took: float, count: int) -> float:
        """The changed time of a batch, from its true time."""
        if self.hot:
            return count * float(self.planted("hot"))
        took *= self.planted("factor") or 1.0
        if self.samples % 2:
            took *= self.planted("two_modes") or 1.0
        if self.first and count:
            self.first = False
            took += self.planted("first_s") or 0.0
        return took


def main() -> None:
    """Runs until the input ends."""
    interposer = Interposer(json.loads(sys.argv[1]))
    worker = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert worker.stdin is not None and worker.stdout is not None
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        request = json.loads(line)
        head, stamps = interposer.asked(request), array.array("d")
        if head is None:
            worker.stdin.write(json.dumps(request).encode() + b"\n")
            worker.stdin.flush()
            head = json.loads(worker.stdout.readline())
            stamps.frombytes(worker.stdout.read(8 * head.get("doubles", 0)))
            interposer.answered(request, head, stamps)
        out.write(json.dumps(head).encode() + b"\n" + stamps.tobytes())
        out.flush()
    worker.stdin.close()


if __name__ == "__main__":
    main()
