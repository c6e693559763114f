"""`cluster up` runs programs from its state folder, as root too: a folder of somebody else is never taken for it.

Others can predict the name of the default folder, in /tmp. A stub of mkdir, first in PATH, stands for them: it
does what they can do between the look at the folder and its making.
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Cluster, state_folder
from loops import case_for_each
from programs import program

pytestmark = pytest.mark.cluster
NOBODY = 65534

# Programs that the cluster starts by name: each notes that it was run instead.
PLANTED = r"""
mkdir -m 755 "$STATE/bin" && for name in unshare bash env mount hostname stat; do
  printf '#!/bin/sh\necho "$0" >>%s\n' "$RAN" >"$STATE/bin/$name" && chmod 755 "$STATE/bin/$name"
done"""
TRAPS = {
    "writable by others": 'mkdir -m 777 "$STATE"' + PLANTED,
    "writable by the group": 'mkdir -m 770 "$STATE"' + PLANTED,
    "of another user": f'mkdir -m 755 "$STATE"{PLANTED}; chown -R {NOBODY}:{NOBODY} "$STATE"',
    "a link": 'mkdir -m 700 "$STATE.elsewhere"; ln -s "$STATE.elsewhere" "$STATE"',
    "a link to another user's": f'mkdir "$STATE.elsewhere"; chown {NOBODY} "$_"; ln -s "$STATE.elsewhere" "$STATE"',
    "a pipe": 'mkfifo "$STATE"',
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with state_folder() as folder:
        yield Cluster(folder)


def up(cluster: Cluster, tmp_path: Path, between: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """`cluster up` where somebody does `between` just before the state folder is made; what ran of theirs."""
    guard = 'PATH=${PATH#*:}; case $* in "-p $STATE" | "-p -- $STATE") [ -e "$STATE" ] || {'
    stub = program(tmp_path / "bin/mkdir", f'{guard} {between}\n}};; esac\nexec mkdir "$@"')
    ran = tmp_path / "ran"
    variables = {"PATH": f"{stub.parent}:{os.environ['PATH']}", "STATE": str(cluster.state), "RAN": str(ran)}
    done = cluster.run("up", "--nodes", "1", "--gpus", "1", env=variables)
    return done, ran.read_text().splitlines() if ran.exists() else []


@pytest.mark.parametrize("between", TRAPS.values(), ids=TRAPS)
def test_a_folder_that_somebody_made_meanwhile_is_refused(cluster: Cluster, tmp_path: Path, between: str) -> None:
    if "chown" in between and os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    done, ran = up(cluster, tmp_path, between)
    try:
        assert ran == []
        assert done.returncode == 2, done.stdout
        why = r"can be written by others \(mode 77[07], |belongs to another user|is a link|cannot be made"
        assert re.search(rf"cluster: \S+ ({why})", done.stderr), done.stderr
        left = cluster.state if not cluster.state.is_symlink() else cluster.state.with_name("state.elsewhere")
        assert left.is_fifo() or {path.name for path in left.iterdir()} <= {"bin"}
    finally:
        if cluster.state.is_symlink() or cluster.state.is_fifo():
            cluster.state.unlink()
        subprocess.run(["rm", "-rf", cluster.state, f"{cluster.state}.elsewhere"], check=True)


def test_without_somebody_it_starts(cluster: Cluster, tmp_path: Path) -> None:
    try:
        done, _ = up(cluster, tmp_path, ":")
        assert done.returncode == 0, done.stderr
        assert cluster.state.stat().st_mode & 0o777 == 0o700
    finally:
        cluster.down()


@case_for_each((0o777, "can be written by others"), (0o1777, None), (0o775, "can be written"))
def test_a_folder_above_in_which_others_can_replace_it_is_refused(cluster, mode, words):
    cluster.state.parent.chmod(mode)
    done = cluster.run("up", "--nodes", "1", "--gpus", "1")
    try:
        assert done.returncode == (0 if words is None else 2), done.stderr
        if words is not None:
            assert f"{cluster.state.parent}, above the state folder, {words}" in done.stderr
    finally:
        cluster.state.parent.chmod(0o700)
        cluster.down()


@pytest.mark.parametrize("verb", [("sh", "true"), ("status",), ("on", "n0", "true")])
def test_a_folder_that_appears_after_the_look_is_no_cluster(cluster: Cluster, tmp_path, verb: tuple[str, ...]) -> None:
    """Its record names a process of somebody else: root would enter its namespaces and run programs of the folder."""
    bystander = subprocess.Popen(["sleep", "100"])
    began = Path(f"/proc/{bystander.pid}/stat").read_text().rpartition(")")[2].split()[19]
    appears = tmp_path / "appears.sh"  # bash reads it first; it acts when the verb begins, after the look
    appears.write_text(f"""set -T
trap 'case $BASH_COMMAND in "login "* | status | "node_verb on "*)
  mkdir -p -m 777 "$STATE/run" "$STATE/bin"; echo 1 1 unconfined placeholder >"$STATE/shape"
  echo {bystander.pid} {began} >"$STATE/run/ctl"; : >"$STATE/run/ready" ;; esac' DEBUG
""")
    try:
        done = cluster.run(*verb, env={"BASH_ENV": str(appears)})
        assert (cluster.state / "run/ready").exists()
        assert done.returncode in (1, 2), done.stdout
        assert re.fullmatch("cluster: (no cluster is up; run 'cluster up'|nothing is up)\n", done.stdout + done.stderr)
    finally:
        bystander.kill()
        bystander.wait()


def test_a_host_that_ended_before_it_was_recorded_does_not_count_as_alive(cluster: Cluster) -> None:
    """Its record has no start time; the number may be another process's by then, and must not be killed."""
    bystander = subprocess.Popen(["sleep", "100"])
    try:
        for number in (bystander.pid, 4194305):  # above any process number of Linux
            (cluster.state / "run").mkdir(mode=0o700, parents=True)
            cluster.state.chmod(0o700)
            (cluster.state / ".bringup-cluster").touch()
            for name in ("ctl", "ctl.outer"):
                (cluster.state / "run" / name).write_text(f"{number} \n")
            done = cluster.run("down")  # an error where it waits for a host that does not end
            assert (done.returncode, done.stdout) == (0, "cluster: down\n"), done.stderr
            assert not cluster.state.exists()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
