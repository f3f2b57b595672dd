"""Names the part of a node that explains slow paths: a GPU, a link, the host, or single paths."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

Ends = tuple[str, str]  # source and destination of a path


@dataclass(frozen=True)
class Part:
    """A part at fault, and the slow paths that it explains."""

    name: str
    paths: tuple[Ends, ...]

    @property
    def text(self) -> str:
        """'the link between gpu:0 and gpu:1 (gpu:0 → gpu:1, gpu:1 → gpu:0)'."""
        return f"{self.name} ({', '.join(f'{src} → {dst}' for src, dst in self.paths)})"


def parts_at_fault(slow: Iterable[Ends], measured: Iterable[Ends]) -> list[Part]:
    """The parts that explain the slow paths, the most specific explanation that fits.

    A GPU is at fault if all its paths are slow and it has paths to two other places or more. The host side is at fault
    if all paths between the host and every GPU are slow, of two GPUs or more. One GPU cannot show which end of its
    link is at fault. A link is at fault if both of its directions are slow.
    """
    left, known = list(dict.fromkeys(slow)), set(measured)
    found: list[Part] = []

    def explain(name: str, paths: Iterable[Ends]) -> None:
        of_part = tuple(path for path in left if path in set(paths))
        if of_part:
            found.append(Part(name, of_part))
            left[:] = [path for path in left if path not in of_part]

    of_host = {path for path in known if any("numa:" in end for end in path)}
    gpus = {end for path in of_host for end in path if "gpu:" in end}
    if len(gpus) > 1 and of_host and of_host <= set(left):
        explain("the host side", of_host)
    touching: dict[str, set[Ends]] = defaultdict(set)
    for path in known:
        for end in path:
            if "gpu:" in end:
                touching[end].add(path)
    for gpu, paths in sorted(touching.items()):
        others = {end for path in paths for end in path} - {gpu}
        if len(others) > 1 and paths <= set(left):
            explain(gpu, paths)
    for src, dst in list(left):
        if (src, dst) in left and src != dst:
            one_gpu = len(gpus) == 1 and any("numa:" in end for end in (src, dst))
            ends = sorted((src, dst), key=lambda end: ("numa:" not in end, end))
            name = f"the link between {ends[0]} and {ends[1]}" + (", or the host" if one_gpu else "")
            if (dst, src) in known and (dst, src) not in left:
                name += f", in the direction to {dst}"
            explain(name, [(src, dst), (dst, src)])
    for path in list(left):
        explain(f"the memory of {path[0]}", [path])
    return found
