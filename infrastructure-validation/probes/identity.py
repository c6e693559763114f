"""Who this task is on this node, by the node's own table of users (files, LDAP, sssd), and is the user's home here?"""

import hashlib
import os
import pwd
from pathlib import Path

from patience import NoAnswer, within
from software import mount_of

ANSWER_S = 20.0  # a directory service or a file server that is away would keep us for ever
MOST_GROUPS = 20  # more do not fit into one line of a fact
ACROSS = (
    "nfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "wekafs",
    "fuse",
    "9p",
    "panfs",
    "orangefs",
)  # kinds of shared ones


def identity(facts):
    uid = os.getuid()
    try:
        entry = within(ANSWER_S, lambda: pwd.getpwuid(uid))
    except (KeyError, NoAnswer) as error:
        why = error if isinstance(error, NoAnswer) else "its table of users has no such number"
        facts.saw("discovery.user.home", False, "flag", remark=f"user {uid}: {why}")
        facts.saw("inventory.user", [f"name of user {uid}=absent"], "text")
        return
    problem = at_home(entry.pw_dir)
    facts.saw("discovery.user.home", problem is None, "flag", remark=problem or entry.pw_dir)
    facts.saw("inventory.user", who(uid, entry, problem), "text")


def who(uid, entry, problem):
    try:
        groups = joined(within(ANSWER_S, lambda: os.getgrouplist(entry.pw_name, entry.pw_gid)))
    except (OSError, NoAnswer) as error:
        groups = str(error)
    values = {
        f"name of user {uid}": entry.pw_name,
        "groups that the node knows": groups,
        "groups of the task": joined({os.getgid(), *os.getgroups()}),
        "home": entry.pw_dir,
        "home lies on": kept_on(entry.pw_dir) if problem is None else "nothing",
    }
    return [f"{name}={value}" for name, value in values.items()]


def joined(groups):
    several = sorted(set(groups))
    text = "+".join(map(str, several))
    return (
        text
        if len(several) <= MOST_GROUPS
        else f"{len(several)}, hash {hashlib.sha256(text.encode()).hexdigest()[:12]}"
    )


def at_home(folder):
    """None, or why a program that goes there would fail."""
    try:
        is_there = within(ANSWER_S, lambda: Path(folder).is_dir() and os.access(folder, os.R_OK | os.X_OK))
    except (OSError, NoAnswer) as error:
        return f"{folder}: {getattr(error, 'strerror', None) or error}"
    return None if is_there else f"{folder} is not there, or the user may not read it"


def kept_on(folder):
    """Kind and export of a shared filesystem, without its server: nodes may mount it from several addresses of one. Of
    the node's own the kind alone: its disk may have another name."""
    kind, source = mount_of(Path(folder)).split(" ")[:2]
    is_shared = kind.startswith(ACROSS) or ":" in source
    return f"{kind} {source.rpartition(':')[2]}" if is_shared else f"the node's own {kind}"
