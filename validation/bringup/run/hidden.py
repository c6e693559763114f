"""Which variables of an environment look like secrets. They go into no record, and to no program that writes them down.

Standard library only: scripts read it on every node.
"""

import re

NOT_RECORDED = "another value, not recorded: it looks like a secret"

_NAME = re.compile(r"TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL|JWT", re.IGNORECASE)
_NO_SECRETS = {"NCCL_IB_PKEY", "UCX_IB_PKEY"}  # the number of a partition of the fabric
_PASSWORD = re.compile(r"//[^/@\s]*:[^/@\s]*@|https?://[^/\s]*@")  # an index takes a token as the user


def is_secret_name(name: str) -> bool:
    return _NAME.search(name) is not None and name.upper() not in _NO_SECRETS


def holds_password(text: str) -> bool:
    """Say whether a URL in it says who logs in."""
    return _PASSWORD.search(text) is not None


def looks_secret(name: str, value: str) -> bool:
    is_proxy = name.lower().endswith("_proxy")  # they may do without http://
    return is_secret_name(name) or holds_password(value) or (is_proxy and "@" in value)
