"""What a person has to know about the gates of the shared filesystem. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_PAGE = "02-infrastructure-validation"
_MOUNTS = (
    "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1 "
    'findmnt --target "$PWD" --output SOURCE,FSTYPE,OPTIONS'
)

SHARED_FOLDER = Guide(
    title="Shared folder",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "The folder of the run itself, on each node. The steps follow each other; each one waits until the step "
        "before has ended on all nodes.\n"
        "\n"
        "1. The node looks for a file that does not exist yet. A client may now keep the answer that the name is "
        "missing. This is `looked`.\n"
        "2. The submit host writes a random token to two files: the one that the nodes looked for, and one that no "
        "node has looked for.\n"
        "3. The node reads the second file. It has 5 s to find the same token. This is `reads_submit_host`.\n"
        "4. The node waits until it sees the first file, for 65 s at most. The seconds are `late_lookup`. The "
        "verdict names the mount and the options of its caches.\n"
        "5. The node writes a file of its own. The submit host reads it. This is `seen_by_submit_host`.\n"
        "6. The node writes the files of the next section, each with `fsync`. `writes` is the error of the first "
        "file that it could not write, or `none`."
    ),
    why=(
        "Every result, log and checkpoint goes through this folder. A node with another folder under the same path "
        "trains, and its files are lost. A name that appears late delays every rank that waits for that file."
    ),
    usually_means=(
        "On one node: the path is not mounted there, or something else is mounted over it. On all nodes: the "
        "checkout is not on the shared filesystem. `writes`: read the error; the mount is read-only, a quota is "
        "used up, or the folder is missing. `late_lookup` above its limit: the mount caches for longer than a stock "
        "NFS client, which keeps a missing name for 30 s (`acdirmin`) and for 60 s at most (`acdirmax`). Nothing "
        "else is wrong then; mount options `acdirmin=3` or `lookupcache=positive` shorten it. Incomplete: the node "
        "ran no step, or it does not see what the submit host writes."
    ),
    next=(
        "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1 "
        "stat --file-system --format='%T %i' \"$PWD\"",
        _MOUNTS,
        "cat {run}/raw/fs-*.err",
        "grep -h smoke.fs.writes {run}/raw/coherence-write.jsonl",
    ),
)

COHERENCE = Guide(
    title="File coherence",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "What a node sees of files that another node changes. The subject is the ordered pair, writer->reader. In "
        "round *s* each node writes for the *s*-th node behind it in the node list. Up to 16 nodes all rounds run, "
        "so that every ordered pair is seen. Above 16 nodes about 256 pairs are seen, first those at distances 1, "
        "2, 4, …: a wrong mount fails with any partner.\n\n"
        "There are four job steps: write, read, change, see. Each waits for the one before. In a step a node looks "
        "at the files of all its partners together. It waits 5 s for new content, because opening a file looks it "
        "up again. It waits 65 s for a name that a client may have cached (`unlink`, `late_lookup`).\n\n"
        "- `same_type`: both nodes name the type of the filesystem under the results folder.\n"
        "- `write`: the reader reads what the writer wrote. The time is in `smoke.fs.pair.write_s`.\n"
        "- `attributes`: size and time of change, to 1 ms, are those that the writer saw.\n"
        "- `append`: the reader has read the file, the writer appends, the reader reads all of it.\n"
        "- `rename`: the reader has read the file, the writer renames another file over it, the reader reads the "
        "new one.\n"
        "- `unlink`: the reader has seen the file, the writer removes it, the reader no longer sees it.\n"
        "- `exclusive`: both nodes create one name with `O_EXCL`. Exactly one must succeed.\n"
        "- `lock_refused`: the writer holds `flock` on its file, the reader is refused (`EWOULDBLOCK`). Only a "
        "warning: training takes no lock.\n"
        "- `late_lookup`: the reader looks for a name, the writer makes it. The value is the seconds until the "
        "reader sees it. Only a warning."
    ),
    why=(
        "A checkpoint is written as a part file and then renamed. Ranks wait for files that other ranks make. On a "
        "filesystem that shows old content or old names, a run loads the wrong checkpoint or waits for ever. "
        "Caches of data sets and of compiled kernels rely on locks."
    ),
    usually_means=(
        "All cases of the pairs of one node: the folder is not shared there. The screen names the node that the "
        "failed pairs have in common. With two nodes both pairs contain the bad node; `smoke.fs.reads_submit_host` "
        "names it. Only the changes (`rename`, `unlink`, `late_lookup`) of the pairs in which one node reads: that "
        "node caches old lookups. `exclusive` 2: lock files do not lock. `lock_refused` no: locks are local to a "
        "node (NFS with `local_lock`, Lustre with `-o localflock`), or there are none (Lustre without `-o flock`). "
        "Incomplete: one of the two nodes ran no step, or could not write."
    ),
    next=("grep -h smoke.fs.pair {run}/raw/coherence-*.jsonl", _MOUNTS),
)

STORAGE = Guide(
    title="Storage speed",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "The speed of the results folder. Each node writes one file and syncs it, drops it from its own cache and "
        "reads it back. First one node does this alone (`write`, `read`), then all nodes at the same time "
        "(`write_together`). `files`: each node makes, looks up and removes a hundred files. The size of the file "
        "is `BRINGUP_STORAGE_MIB` (64 MiB); set 4096 or more to measure a parallel filesystem. Where `fio` is on "
        "the node's `PATH` it writes and reads (blocks of 1 MiB, `psync`, 60 s at most), and its JSON is kept in "
        "`raw/storage`. Without fio a plain loop does it. The verdict says which: `0.9321 GB/s (64 MiB from n0 by "
        "fio-3.33, 99 of 100 blocks within 4.42 ms)`. Not measured: many clients per node, direct I/O, a "
        "filesystem that is nearly full, and the caches of the servers, which may answer the read."
    ),
    why=(
        "While a checkpoint is written, most trainings wait. While files are opened slowly, every start of Python "
        "waits. All nodes do both at the same time."
    ),
    usually_means=(
        "Slow alone: NFS with synchronous writes, or a wrong network path. Slow only together: the limit of the "
        "servers. Save sharded checkpoints then, and less often. Few files per second: keep the environment in a "
        "container or on local disks. Incomplete with a message of fio: fio is installed and cannot run; the plain "
        "loop does not replace it. Incomplete without one: the profile declares no number."
    ),
    next=(
        "cat {run}/raw/storage-*.jsonl",
        _MOUNTS,
        'srun --nodes=1 --ntasks=1 fio --name=w --directory="$PWD" --unlink=1 --rw=write --bs=1M --size=4G '
        "--direct=1 --end_fsync=1",
    ),
    by_hand="The last command needs fio on the node.",
)

FOLDERS = Guide(
    title="Folders that jobs write to",
    page="01-environment",
    action=Action.CONFIGURE,
    observes=(
        "On every node, in the results folder and in `scratch` and `checkpoints` of the site file: a file of 4 KiB is "
        "written, synced, read back and removed (`writes`). `space` and `files` are what a user without root may still "
        "write and make there. Where `quota` (on Lustre `lfs`) is installed and knows a quota of the user that ends "
        "before the filesystem does, that counts, and the verdict says `by quota`. The worst folder counts, and the "
        "verdict names it. A folder that gives no answer for 20 s fails, and the probe goes on."
    ),
    why=(
        "All phases write there. So this is tested first: a folder that is full or cannot be written would end each "
        "phase with a different error."
    ),
    usually_means=(
        "*No such file* on one node: the folder is not mounted there. *Permission denied*: the folder belongs to "
        "another user, or root has no rights there (`root_squash`). *Read-only*: the mount says so, or the server "
        "refuses. *Little room*: checkpoints of earlier runs. A quota that no tool on the node reports is not seen "
        "here. The smoke phase finds it when it writes more. *Incomplete*: the node did not answer, or reported "
        "nothing about a folder of the site file."
    ),
    next=(
        "grep -h inventory.folder {run}/raw/inventory.jsonl",
        "srun --nodes=1 --nodelist={node} bash -c 'df -h .; df -i .; findmnt -T .'",
    ),
)
