#!/usr/bin/env python3
"""A stand-in for `nvidia-imex-ctl -N`: what it prints of a domain of two nodes.

Keys of the state file:
    imex.state=DEGRADED   the state of the domain; without it the daemon does not answer
    imex.away=n2          a node that is not ready
"""

import sys

from tools import known_keys

known = known_keys()
if "imex.state" not in known:
    sys.exit("Connection to nvidia-imex command service failed")
away = known.get("imex.away")
print("Connectivity Table Legend:\nC - Connected - Ready for operation\n\n3/25/2026 10:39:43.659\nNodes:")
print("Node #0   - n0   - READY")
print(f"Node #1   - {away or 'n1'}   - {'UNAVAILABLE' if away else 'READY'}\n\nDomain State: {known['imex.state']}")
