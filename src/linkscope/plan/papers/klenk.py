"""Klenk, Oden, Froning: put and get driven from the GPU."""

from linkscope.plan.papers.entry import Source, powers, row

_QUEUED = ("queued_put", "queued_put_ping_pong")
_MESSAGES = ("put", "get", "put_ping_pong", "get_ping_pong")

KLENK = Source(
    "klenk",
    "Analyzing Put/Get APIs for Thread-collaborative Processors (Klenk, Oden, Froning)",
    "4 B to 64 MiB (its figures); here from 8 B",
    powers(3, 26),
    (
        row(
            "KL-1",
            "ping-pong of a word, without a network",
            "ping_pong/cpu/numa.pinned->gpu.pinned",
            "ping_pong/sm/gpu.device->gpu.device?word=*",
        ),
        row(
            "KL-1",
            "words and messages between two kernels of one GPU, of one process or of two",
            "ping_pong/sm/gpu.device->same.device",
            "ping_pong/sm/gpu.ipc->same.ipc?way=*",
            "put_ping_pong/sm/gpu.device->same.device?word=*",
            "put_ping_pong/sm/gpu.ipc->same.ipc?way=*",
            "put/sm/gpu.device->same.device?connections=*",
            "put_ping_pong/sm/gpu.ipc->other.ipc?word=*",
            note="each message is stamped, so that a row has its median and p99",
        ),
        row(
            "KL-1 KL-2",
            "ping-pong and streaming by control mode: direct, polling on the GPU, assisted, host-controlled",
            *(
                f"{name}/{engine}/gpu.device->other.device?control=*"
                for name in _MESSAGES
                for engine in ("sm", "tma", "ce")
            ),
            note="`run --suite putget`; over mapped and peer memory, without network cards and their queues",
        ),
        row(
            "KL-1 KL-2",
            "the same between two kernels of one GPU",
            *(f"{name}/{engine}/gpu.device->same.device?control=*" for name in _MESSAGES for engine in ("sm", "ce")),
            note="`run --suite putget`, on a machine with one GPU",
        ),
        row(
            "KL-1 KL-2 KL-3 KL-4",
            "the same between hosts by network cards, puts and gets, on models",
            instead="docs/notes/put-get-on-models.md; `run --machine klenk-ib --suite putget`",
        ),
        row(
            "KL-3",
            "message rate, 1 to 32 connections",
            *(
                f"{way}/{engine}/gpu.device->other.device?connections=*"
                for way in ("put", "get")
                for engine in ("sm", "tma", "ce")
            ),
            note="each connection has its own kernel, or its own CPU thread",
        ),
        row(
            "KL-2 KL-4",
            "queues in host memory or on a GPU, which a kernel or a thread of the host serves",
            *(f"{name}/sm/gpu.device->other.device?queue=*" for name in _QUEUED),
            *(f"{name}/ce/gpu.device->other.device" for name in _QUEUED),
            *(f"{name}/cpu/numa.pinned->numa.pinned" for name in _QUEUED),
            note="`run --suite putget-queues`",
        ),
        row(
            "KL-4",
            "time to poll, time to post",
            *(f"post/sm/gpu.device->{ring}?descriptor=*" for ring in ("same.device", "other.device", "numa.pinned")),
            note="a round trip through the ring without its post is polling",
        ),
        row(
            "KL-1",
            "kernels that stay, or one for each message",
            *(f"{name}/sm/gpu.device->other.device?kernel=*" for name in _MESSAGES),
        ),
        row(
            "KL-3",
            "1 to 8 threads of the host serve the rings of 1 to 64 connections",
            "queued_put/ce/gpu.device->other.device?connections=*&proxies=*",
            "queued_put/cpu/numa.pinned->numa.pinned?connections=*&proxies=*",
        ),
        row(
            "KL-12",
            "what others lose beside blocks that post or poll",
            "bystander/sm/gpu.device->numa.pinned?beside=*&blocks=*",
        ),
        row("KL-5", "counters of 100 iterations", instead="tools/put_get_counters.py, between a GPU and host memory"),
        row(
            "KL-6 KL-8 KL-9",
            "instructions and accesses of a post and a poll",
            instead="docs/notes/put-get-on-models.md",
        ),
        row(
            "KL-7",
            "queues of a network card",
            instead="a transport of core/putget (verbs.hpp), with a card in tests/core/mock_card.hpp",
        ),
        row(
            "KL-10 KL-12",
            "findings",
            instead="tools/put_get_claims.py; docs/notes/put-get-on-models.md and network-on-models.md",
        ),
        row(
            "KL-11",
            "two nodes with EXTOLL, two with InfiniBand",
            instead="machines/klenk-extoll.toml and machines/klenk-ib.toml",
        ),
    ),
)
