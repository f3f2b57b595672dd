"""`python -m linkscope` is the `linkscope` command."""

import sys

from linkscope.cli.main import main

sys.exit(main())
