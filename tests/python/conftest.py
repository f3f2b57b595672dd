"""Commands that tests start in other folders find the tree's own linkscope."""

import os
from pathlib import Path

os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
)
