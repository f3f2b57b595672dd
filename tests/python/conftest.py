"""Commands that tests start in other folders find the tree's own linkscope; tests of tools/ import these."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, [str(Path(__file__).parents[2] / "src"), os.environ.get("PYTHONPATH", "")])
)
