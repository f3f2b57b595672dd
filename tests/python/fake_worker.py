"""A worker in Python with exactly known costs and faults on request. Protocol: docs/reference/worker.md.

`fake` in the `machine` of the open request sets the behaviour (all keys are optional):
  start_s, alone_s, each_s, rate       seconds of the stamps, of a single copy, of a batched copy; bytes per second
  rates                                {"src->dst": bytes per second}, instead of `rate`
  noise                                relative spread of a round, drawn from the key
  flawed                               {"hang|die|garbage|wrong|fail|lost|unsupported|memory|slow": glob of keys}
  last_words                           what a worker that dies prints on standard error
  once                                 a file: the fault happens only while it is missing, and creates it
"""

import fnmatch
import json
import os
import random
import signal
import struct
import sys
import time

MODE = {"name": "mode", "values": ["batched", "single"], "help": ""}
BIDIRECTIONAL = {"name": "bidirectional", "values": ["false", "true"], "help": ""}
INITIATOR = {"name": "initiator", "values": ["src", "dst"], "help": ""}
PEER = {"name": "peer", "values": ["on", "off"], "help": ""}


def row(name, engine, src, dst, relation, memories, params):
    return {
        "name": name, "summary": f"copy {name}", "source": "a paper", "engine": engine, "src": src, "dst": dst,
        "relation": relation, "memories": memories, "params": params, "taken": "unasked",
    }  # fmt: skip


HOST = ["pageable", "pinned", "registered"]
TABLE = [
    row("h2h", "cpu", "numa", "numa", "any", [["pageable", "pinned"], ["pinned", "pageable"]], [MODE, INITIATOR]),
    row("h2d", "ce", "numa", "gpu", "any", [[kind, "device"] for kind in HOST], [MODE, BIDIRECTIONAL]),
    row("d2h", "ce", "gpu", "numa", "any", [["device", kind] for kind in HOST], [MODE]),
    row("d2d", "ce", "gpu", "gpu", "different", [["device", "device"]], [MODE, PEER, INITIATOR, BIDIRECTIONAL]),
    row("local", "ce", "gpu", "gpu", "same", [["device", "device"]], [MODE]),
]


class Failure(Exception):
    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class FakeWorker:
    def __init__(self):
        self.machine, self.case, self.key, self.flows = {}, None, "", []

    def answer(self, request):
        return getattr(self, request["op"])(request)

    def hello(self, request):
        return {"version": "0", "compiler": "none", "kernels": {}}, b""

    def benchmarks(self, request):
        return {"benchmarks": TABLE}, b""

    def check(self, request):
        return {}, b""

    def open(self, request):
        self.machine = request.get("machine", {}).get("fake", {})
        if self.machine.get("closed"):
            raise Failure("failed", self.machine["closed"])
        return {}, b""

    def prepare(self, request):
        self.case, self.key = request["case"], request["key"]
        if self.flawed("unsupported"):
            return {"supported": False, "reason": "not here, because the test says so"}, b""
        case = self.case
        self.flows = [self.flow(0, case["src"], case["dst"], case["src_memory"], case["dst_memory"])]
        if case["params"].get("bidirectional") == "true":
            self.flows.append(self.flow(1, case["dst"], case["src"], case["dst_memory"], case["src_memory"]))
        return {"supported": True, "actors": len(self.flows), "flows": self.flows, "slices": 1, "program": "copy"}, b""

    def flow(self, actor, src, dst, src_memory, dst_memory):
        return {
            "actor": actor, "src": src, "dst": dst, "src_memory": src_memory, "dst_memory": dst_memory,
            "bytes": self.case["bytes"], "role": "measured",
        }  # fmt: skip

    def run(self, request):
        self.misbehave()
        batches = request["batches"]
        stamps = []
        for _ in range(request["samples"]):
            for batch in batches:
                for flow, count in zip(self.flows, batch, strict=True):
                    stamps += [1.0, 1.0 + self.seconds(flow, count)]
        verdict = None
        if request["verify"]:
            first = "region 1" if self.flawed("wrong") else ""
            verdict = {"ok": not first, "checked_bytes": 8, "wrong_bytes": int(bool(first)), "first_wrong": first}
        head = {
            "doubles": len(stamps), "samples": request["samples"], "batches": len(batches), "actors": len(self.flows),
            "timing": self.machine.get("timing", "virtual"), "links": [], "verdict": verdict, "notes": {},
        }  # fmt: skip
        return head, struct.pack(f"<{len(stamps)}d", *stamps)

    def release(self, request):
        return {}, b""

    def seconds(self, flow, count):
        machine = self.machine
        rate = machine.get("rates", {}).get(f"{flow['src']}->{flow['dst']}", machine.get("rate", 50e9))
        each = machine.get("each_s", 2e-6) + flow["bytes"] / rate
        noise = random.Random(self.key).gauss(1.0, machine.get("noise", 0.0))
        alone = machine.get("alone_s", 6e-6) if count == 1 and self.case["params"].get("mode") == "single" else 0.0
        return machine.get("start_s", 1.25e-6) + noise * each * count + alone

    def flawed(self, flaw):
        pattern = self.machine.get("flawed", {}).get(flaw)
        if pattern is None or not fnmatch.fnmatchcase(self.key, pattern):
            return False
        once = self.machine.get("once")
        if once:
            if os.path.exists(once):
                return False
            open(once, "w").close()
        return True

    def misbehave(self):
        if self.flawed("hang"):
            time.sleep(3600)
        if self.flawed("die"):
            print(self.machine.get("last_words", "the driver said: Xid 79"), file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if self.flawed("garbage"):
            sys.stdout.buffer.write(b"NVRM: oops\n")
            sys.stdout.buffer.flush()
        if self.flawed("slow"):
            time.sleep(5)
        for kind in ("fail", "lost", "memory"):
            if self.flawed(kind):
                raise Failure("failed" if kind == "fail" else kind, f"{kind}: the test says so")


def main():
    worker = FakeWorker()
    for line in sys.stdin:
        try:
            head, doubles = worker.answer(json.loads(line))
            head["ok"] = True
        except Failure as failure:
            head, doubles = {"ok": False, "error": {"kind": failure.kind, "message": str(failure)}}, b""
        sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + doubles)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
