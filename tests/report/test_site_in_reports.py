"""Every report names the site file in one line, and says where the run was not as the file says."""

from pathlib import Path

from bringup.records import Run, SiteUsed
from bringup.report import document, page, text, view
from factory import a_run, a_verdict, gathered, judged_of

SITE = SiteUsed(
    name="lab",
    says={"partition": "gpu", "srun": ["--mpi=pmix"], "environment": {"NCCL_IB_HCA": "mlx5_0"}},
    otherwise={"partition": "main"},
)
WORDS = "lab: partition gpu; srun --mpi=pmix; environment NCCL_IB_HCA=mlx5_0; not as its file says: partition main"


def run_at(site: SiteUsed | None) -> Run:
    return a_run(plan={}).model_copy(update={"site": site})


def test_the_screen_the_report_and_the_page_name_it_in_one_line():
    judged = judged_of(a_verdict(), run=run_at(SITE))
    screen = view.screen(Path("/x"), judged.run, judged.verdicts).splitlines()
    assert "  site: lab; not as its file says: partition main" in screen
    [line] = [line for line in document.run(judged).splitlines() if line.startswith("| site ")]
    assert line.endswith(f" | {text.escaped(WORDS)} |")
    shown = page.render(gathered(judged))
    assert f"<tr><th>site</th><td>{WORDS}</td></tr>" in shown
    assert "<dt>site file</dt><dd>lab</dd>" in shown

    assert f"; site {text.escaped(WORDS)};" in document.playbook(gathered(judged))


def test_without_one_no_report_speaks_of_a_site():
    judged = judged_of(a_verdict(), run=run_at(None))
    screen, collection = view.screen(Path("/x"), judged.run, judged.verdicts), gathered(judged)
    assert (
        "site" not in f"{screen}{document.run(judged)}{page.render(collection)}{document.playbook(collection)}".lower()
    )


def test_markup_in_a_site_file_is_text():
    bad = SITE.model_copy(update={"name": "<b>|x\x1b[31m", "says": {"partition": "<script>"}})
    judged = judged_of(a_verdict(), run=run_at(bad))
    assert "\x1b" not in view.screen(Path("/x"), judged.run, judged.verdicts)
    assert "<script>" not in document.run(judged)
    assert page.render(gathered(judged)).count("<script>") == 1  # our search
