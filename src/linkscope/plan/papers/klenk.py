"""Klenk, Oden, Froning: put and get driven from the GPU."""

from linkscope.plan.papers.entry import Source, row

KLENK = Source(
    "klenk",
    "Analyzing Put/Get APIs for Thread-collaborative Processors (Klenk, Oden, Froning)",
    "words of 8 B; put and get are not available yet",
    (),
    (
        row(
            "KL-1",
            "ping-pong of a word, without a network",
            "ping_pong/cpu/numa.pinned->gpu.pinned",
            "ping_pong/sm/gpu.device->gpu.device?word=*",
        ),
        row(
            "KL-1 KL-2",
            "ping-pong and streaming by control mode: direct, polling on the GPU, assisted, host-controlled",
        ),
        row("KL-3", "message rate, 1 to 32 connections"),
        row("KL-4", "time to poll, time to post"),
        row("KL-5 KL-6 KL-8 KL-9", "counters and instructions of a post and a poll"),
        row("KL-7 KL-10 KL-12", "put and get, notifications, and findings"),
        row(
            "KL-11",
            "two nodes with EXTOLL, two with InfiniBand",
            instead="machines/klenk-extoll.toml and machines/klenk-ib.toml",
        ),
    ),
)
