"""`python -m bringup`: the phase scripts call it so, because no console script needs to be on the PATH of a node."""

import sys

from bringup.cli import main

sys.exit(main())
