"""One phase through its own script: started, waited for, and judged, also when it never opened a run."""

from __future__ import annotations

import contextlib
from pathlib import Path

from bringup import results as runs
from bringup.errors import SlurmError
from bringup.judge import Judged
from bringup.plan.phases import Phase
from bringup.plan.profile import Profile
from bringup.records import files, write_text
from bringup.report import write
from bringup.results import REPOSITORY
from bringup.run import open as opening
from bringup.run import site as at_site
from bringup.run import slurm
from bringup.run.launch import Tell, bash_and_wait, last_words, screen_of, submit_and_wait
from bringup.run.resume import newest_attempt
from bringup.run.waiting import only_one, wait_for_smoke, wait_until_free

SMOKE_LOCK = REPOSITORY / "validation/results/smoke.lock"


def run_phase(
    phase: Phase,
    nodes: list[str],
    gpus: int,
    environment: dict[str, str],
    profile: Profile,
    site: at_site.AtSite | None,
    *,
    name: str,
    folder: Path,
    tell: Tell,
) -> Judged:
    """Run a phase; return its newest attempt, judged. Slurm's refusal is in the run's folder, made here if need be.

    environment: of the script, without the site. name: of the run. folder: of the playbook or sweep, for notes.
    """
    environment = at_site.for_submission(site, phase.stem, environment)
    why_not = None
    try:
        if phase.whole_nodes:
            wait_for_smoke(tell)
        if phase.submit:
            options = () if site is None else site.site.sbatch
            submit_and_wait(phase, nodes, environment, folder, tell, options)
        else:
            alone = contextlib.nullcontext() if phase.whole_nodes else only_one(SMOKE_LOCK, tell)
            with alone:
                wait_until_free(nodes, phase.whole_nodes, tell)  # its steps do not wait long in the queue
                bash_and_wait(phase, nodes, environment, folder, tell)
    except SlurmError as error:
        why_not = str(error)
    run_folder = newest_attempt(phase, name)
    if run_folder is None:  # the script never came to open its run: plan it here, so that it is judged as incomplete
        run_folder = opening.open_run(
            phase,
            nodes=nodes,
            gpus_per_node=gpus,
            profile=profile,
            argv=["bringup", "run", phase.stem],
            name=name,
            site=site,
        )
        why_not = why_not or f"{phase.script} ended before it opened a run: {last_words(phase, folder)}"
    if not runs.is_there(run_folder, runs.CLOSED):
        _keep_screen(run_folder, screen_of(phase, folder))
        _keep_node_states(run_folder)
        _keep_job(run_folder)
        if why_not is not None:
            write_text(run_folder / runs.NOT_OPENED, f"{why_not}\n")
    return write.judge_and_save(run_folder)


def _keep_node_states(run_folder: Path) -> None:
    path = run_folder / "raw/scontrol-node.txt"
    if not path.exists():
        try:
            write_text(path, slurm.show_nodes())
        except SlurmError as error:
            write_text(run_folder / "raw/scontrol-node.unavailable.txt", f"{error}\n")


def _keep_screen(run_folder: Path, screen: Path | None) -> None:
    """Keep what the script printed, of a run that it did not close: `run_end` does it otherwise."""
    target = run_folder / runs.BATCH_LOG
    if screen is not None and not target.exists():
        content = files.read(screen)
        rest = f"\n{content.left_out} more bytes were not kept\n" if content.left_out else ""
        files.write(target, content.data + rest.encode())


def _keep_job(run_folder: Path) -> None:
    """How Slurm says that a job ended whose script did not finish."""
    job_id = runs.load(run_folder).slurm_job_id
    if job_id is not None and not (run_folder / runs.JOB_AFTER).exists():
        with contextlib.suppress(SlurmError):  # forgotten by now: not known
            write_text(run_folder / runs.JOB_AFTER, slurm.ask("scontrol", "--oneliner", "show", "job", job_id))
