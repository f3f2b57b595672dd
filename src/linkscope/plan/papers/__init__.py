"""Maps papers and tools to linkscope's operations. A new operation changes one row of one of these files.

The presets form the suite `comm-scope`. `linkscope list --source NAME` and docs/notes/papers.md list the rows.
"""

from linkscope.plan.papers.comm_scope import COMM_SCOPE
from linkscope.plan.papers.entry import Entry, Source
from linkscope.plan.papers.jorda import JORDA
from linkscope.plan.papers.klenk import KLENK
from linkscope.plan.papers.microbench import MICROBENCH
from linkscope.plan.papers.nvbandwidth import NVBANDWIDTH
from linkscope.plan.papers.spafford import SPAFFORD

SOURCES: dict[str, Source] = {
    source.name: source for source in (COMM_SCOPE, NVBANDWIDTH, MICROBENCH, SPAFFORD, JORDA, KLENK)
}

__all__ = ["COMM_SCOPE", "SOURCES", "Entry", "Source"]
