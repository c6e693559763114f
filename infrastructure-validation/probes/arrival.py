"""The start of a process group: ranks wait for the late ones, and say who they are.

Ranks may start minutes apart: 256 of them that import torch from a cold NFS do. So the start has a patience of its own,
BRINGUP_START_S, apart from the time after which a collective counts as hung.

Each rank writes its host into the store under a key of its own. The first rank that gives up looks which keys are
missing, and leaves the answer in the store: all ranks that waited end with the same words. torch.distributed is
handed in.

Each rank writes its GPU beside its host. Where two of a host have one, all end with the same words: NCCL would refuse
them in a traceback of every rank ("Duplicate GPU detected").

The store has no authentication. So each rank adds a mark to what it writes there, made with the secret of the run, and
a rank with a wrong mark ends the meeting before data is exchanged. Without the folder of a run (RUN_DIR) there is no
secret, and no mark.
"""

import datetime
import hmac
import os
import re
import subprocess
import time
from pathlib import Path

from patience import whole_seconds
from tools import ran

DEFAULT_S = 600
ANSWER_S = 60  # for the list of who is missing: one question for each rank
# of the others: the launcher ends all ranks with the first, and one of them has to write down who was late
PAUSE_S = 1.0
LINGER_S = 3.0  # of the rank that serves the store: the others read there who was late
MOST_NAMED = 8
HERE, COUNT, OUTCOME, GIVEN_UP = "bringup/here/{}", "bringup/count", "bringup/outcome", "bringup/given-up"
HAVE_READ = "bringup/have-read"
COMPLETE = "complete"
SHARED = re.compile(r"\d+ ranks, (\d+) different GPU")
SECRET = "private/secret"  # in the folder of the run: `bringup open` makes it, and only its owner can read it  # noqa: S105
NO_MARK = "does not know this run's secret: a stranger, or a rank with another RUN_DIR; close the network to strangers"


class Late(RuntimeError):
    """Ranks did not arrive in time, or a stranger came in their place.

    `late`: [(rank, its host or None)] on the one rank that looked, else empty.
    """

    def __init__(self, words, late=()):
        super().__init__(words)
        self.late = list(late)


class Shared(Late):
    """Two ranks of a host have one GPU. `gpus`: how many different ones all ranks have."""

    def __init__(self, words, gpus):
        super().__init__(words)
        self.gpus = gpus


def patience_s():
    """Seconds that ranks wait for one another at the start. Raises ValueError."""
    return whole_seconds("BRINGUP_START_S", DEFAULT_S)


def connected(dist, listens, patience):
    """The store of this rank, where nobody has met so far. Raises Late. listens: this rank serves it."""
    address, port, seconds = os.environ["MASTER_ADDR"], _port(), datetime.timedelta(seconds=patience)
    try:  # without waiting: torch would count who is missing, and not name them
        return dist.TCPStore(address, port, is_master=listens, timeout=seconds, wait_for_workers=False)
    except dist.DistNetworkError as error:
        if listens:
            raise
        words = "{}; BRINGUP_START_S sets how long to wait".format(str(error).split("\n")[0])
        raise Late(f"nobody answered within {patience} s at {address}:{port}, the node of rank 0: {words}") from None


def _port():
    return int(os.environ["MASTER_PORT"])


def meet(dist, rank, world, per_host, host, listens, patience, gpu=None, store=None):
    """The store of these ranks, when all of them are there. Raises Late. listens: this rank serves the store; gpu: UUID
    of the GPU that it computes on; store: one in which only these ranks meet, where there is a connection already."""
    begun, seconds = time.monotonic(), datetime.timedelta(seconds=patience)
    marks, keys = Marks(secret(), (_port(), world)), [HERE.format(each) for each in range(world)]
    if store is None:
        store = connected(dist, listens, patience)
    store.set(keys[rank], marks.write(keys[rank], f"{host} {gpu}" if gpu else host))
    if store.add(COUNT, 1) >= world and store.check(keys):
        words = strangers(store, marks, keys) or sharing(store, keys) or COMPLETE
        store.compare_set(OUTCOME, "", marks.write(OUTCOME, words))
    try:
        store.wait([OUTCOME], max(datetime.timedelta(seconds=1), seconds - _since(begun)))
    except dist.DistStoreError:
        if store.add(GIVEN_UP, 1) == 1:
            late = missing(store, world, per_host)
            words = strangers(store, marks, keys) or (say(late, world, patience) if late else COMPLETE)
            marked = marks.write(OUTCOME, words)
            if words != COMPLETE and store.compare_set(OUTCOME, "", marked).decode() == marked:
                raise Late(words, late) from None
        store.wait([OUTCOME], datetime.timedelta(seconds=ANSWER_S))
    outcome = marks.read(OUTCOME, store.get(OUTCOME))
    if outcome is None:
        raise Late(strangers(store, marks, keys) or "whoever said that all ranks are here " + NO_MARK)
    if outcome == COMPLETE:
        return store
    shared = SHARED.match(outcome)
    if shared:  # at once: each rank tells the same
        _until_all_have_read(store, world, listens)
        raise Shared(outcome, int(shared[1]))
    time.sleep(PAUSE_S)
    if _since(begun) < seconds and f"rank {rank} (" in outcome:
        raise Late(f"rank {rank} on {host} came when the others had given up: they had waited {patience} s for it")
    raise Late(outcome)


def _until_all_have_read(store, world, listens):
    """The store ends with the rank that serves it: that one waits for the others."""
    store.add(HAVE_READ, 1)
    until = time.monotonic() + LINGER_S
    while listens and store.add(HAVE_READ, 0) < world and time.monotonic() < until:
        time.sleep(0.02)


def _since(begun):
    return datetime.timedelta(seconds=time.monotonic() - begun)


def secret():
    """The secret of this run; None without the folder of a run."""
    folder = os.environ.get("RUN_DIR")
    path = Path(folder or "", SECRET)
    try:
        return path.read_bytes() if folder else None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Late(f"{path}: the secret of this run cannot be read: {error.strerror}") from None


class Marks:
    """Words, and behind a tab what only who knows the secret can have written; without a secret the words alone.

    about: of which meeting, so that a mark of another one does not count: port, ranks.
    """

    def __init__(self, secret, about):
        self.secret, self.about = secret, about

    def write(self, place, words):
        if self.secret is None:
            return words
        content = repr((self.about, place, words)).encode()
        return f"{words}\t{hmac.new(self.secret, content, 'sha256').hexdigest()}"

    def read(self, place, marked):
        """The words; None: their writer does not know the secret. marked: bytes."""
        words = name_of(marked)
        return words if hmac.compare_digest(marked, self.write(place, words).encode()) else None


def name_of(marked):
    return marked.decode(errors="replace").partition("\t")[0]


def strangers(store, marks, keys):
    """Who of those that have come does not know the secret of the run: one line; None: all do."""
    here = keys if store.check(keys) else [key for key in keys if store.check([key])]
    for key, marked in zip(here, store.multi_get(here)):  # strict= came with Python 3.10
        if marks.read(key, marked) is None:
            return "rank {}, which calls itself {}, {}".format(
                key.rpartition("/")[2], ascii(name_of(marked)[:60]), NO_MARK
            )
    return None


def sharing(store, keys):
    """Which ranks have one GPU together: one line; None: each has its own, or none. All ranks are there."""
    ranks = {}
    for rank, marked in enumerate(store.multi_get(keys)):
        host, _, gpu = name_of(marked).partition(" ")
        if gpu:
            ranks.setdefault((host, gpu), []).append(rank)
    for (host, gpu), several in ranks.items():
        if len(several) > 1:
            named = ", ".join(map(str, several[:MOST_NAMED]))
            return (
                f"{len(keys)} ranks, {len(ranks)} different GPU(s): {gpu} of {host} is that of ranks {named}; start no "
                "more ranks than GPUs, each with a LOCAL_RANK of its own"
            )
    return None


def missing(store, world, per_host):
    """[(rank, host or None)] of those that have not come. The host is that of ranks beside it, else Slurm says it."""
    here = [store.check([HERE.format(rank)]) for rank in range(world)]
    late = [rank for rank in range(world) if not here[rank]]
    hosts = {rank // per_host: rank for rank in range(world) if here[rank]}
    names = {place: name_of(store.get(HERE.format(rank))).partition(" ")[0] for place, rank in hosts.items()}
    if any(rank // per_host not in names for rank in late):
        names = {**dict(enumerate(nodes_of_the_step())), **names}
    return [(rank, names.get(rank // per_host)) for rank in late]


def nodes_of_the_step():
    """In the order in which Slurm numbers them; empty outside of Slurm."""
    listed = os.environ.get("SLURM_STEP_NODELIST")
    if not listed:
        return []
    command = ("scontrol", "show", "hostnames", listed)
    try:
        return ran(command, check=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return []


def say(late, world, patience):
    named = ", ".join("rank {} ({})".format(rank, host or "host unknown") for rank, host in late[:MOST_NAMED])
    more = f" and {len(late) - MOST_NAMED} more" if len(late) > MOST_NAMED else ""
    return (
        f"{len(late)} of {world} ranks did not arrive within {patience} s: {named}{more}; "
        "BRINGUP_START_S sets how long to wait"
    )
