#!/usr/bin/env python3
"""A stand-in for `nv-fabricmanager --version`.

Keys of the state file:
    manager.version=570.86.15   where it is not the driver's
"""

import sys

from tools import known_keys

known = known_keys()
version = known.get("manager.version") or known.get("driver")
if version is None:
    sys.exit("request to query NVSwitch device information from NVSwitch driver failed")
print(f"Fabric Manager version is : {version}")
