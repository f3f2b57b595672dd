"""What TCP sent, and sent again because it was lost, on the hosts of ranks."""

from collections.abc import Mapping
from typing import Any

from linkscope.run.monitor import Tally
from linkscope.run.ranks import RankWorker


class RankTally(Tally):
    """The tally of a run with ranks: also the segments of TCP on each host."""

    def __init__(self, gpus: Mapping[str, str], ranks: RankWorker) -> None:
        super().__init__(gpus)
        self._ranks = ranks
        self._before = ranks.tcp_counts()

    def gained(self) -> dict[str, Any]:
        """Returns also `tcp`: by host the segments that were `sent`, and `sent_again`. Without hosts that are gone."""
        after = self._ranks.tcp_counts()
        grown = {
            host: {name: after[host][name] - count for name, count in before.items()}
            for host, before in self._before.items()
            if host in after
        }
        return super().gained() | ({"tcp": grown} if grown else {})
