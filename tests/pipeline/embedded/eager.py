"""The broker with retention, compaction and vacuum every 10 ms instead of every second.

So that a kill hits them. Otherwise it is `python -m pipeline.embedded`.
"""

import sys

from pipeline.embedded import upkeep
from pipeline.embedded.__main__ import main

upkeep._INTERVAL = 0.01
upkeep._FREE_LEAST = 16
upkeep._FREE_MOST = 0.0

if __name__ == "__main__":
    sys.exit(main())
