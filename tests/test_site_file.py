"""The site file: what is accepted, and what a mistake is called."""

import socket

import pytest
from bringup.kernel.errors import FileError
from bringup.kernel.plan import profile
from bringup.run import site_file as site
from loops import case_for_each, for_each

GOOD = "schema_version: 1\nname: lab\n"


def test_the_example_says_every_key_once():
    loaded = site.load(site.find("example"))
    assert loaded.name == "example"
    assert loaded.model_fields_set == set(site.Site.model_fields), "a key has no example"
    assert site.parse(site.dump(loaded), "site.yaml") == loaded  # as it is written into a run
    assert "example.site" not in profile.names()


@for_each(
    ("partitoin: gpu", "partitoin: there is no such key; did you mean partition?"),
    ("partition: a b", "partition: 'a b' is not understood; write one word"),
    ("partition: {smok: debug}", "partition.smok: there is no such phase; did you mean smoke?"),
    ("partition: {smoke: a b}", "partition.smoke: 'a b' is not understood; write one word"),
    ("partition: {smoke: 1}", "partition.smoke: YAML reads it as 1; put it in quotes"),
    ("qos: a b", "qos: 'a b' is not understood; write one word"),
    ("time_limits: {run_1gup: '10'}", "time_limits.run_1gup: there is no such phase; did you mean run_1gpu?"),
    ("time_limits: {default: 90}", "time_limits.default: YAML reads it as 90; put it in quotes"),
    ("time_limits: {default: 1:30:00}", "time_limits.default: YAML reads it as 5400; put it in quotes"),
    ("time_limits: {default: soon}", "time_limits.default: 'soon' is not understood; write it as Slurm does"),
    ("gpu_request: --gpus=8", "gpu_request: '--gpus=8' is not understood; write none, --gpus-per-node=8 or "),
    ("gpu_request: --gres=gpu:h100", "gpu_request: '--gres=gpu:h100' is not understood; write none"),
    ("srun: [--partition=gpu]", "srun.0: --partition=gpu: remove it here; the key partition says it"),
    ("sbatch: [--time=10]", "sbatch.0: --time=10: remove it here; the key time_limits says it"),
    ("srun: [--export=NONE]", "srun.0: --export=NONE: remove it; the scripts set --export themselves"),
    ("srun: ['--mpi pmix']", "srun.0: '--mpi pmix' is not an option; write each as one text"),
    ("scratch: tmp", "scratch: 'tmp' is not understood; write a whole path"),
    ("container: {image: i}", "container.runtime: is missing"),
    ("container: {runtime: docker, image: i}", "container.runtime: Input should be 'pyxis' or 'apptainer'"),
    ("container: {runtime: pyxis, image: i, mount: []}", "container.mount: there is no such key; did you mean mounts?"),
    (
        "container: {runtime: pyxis, image: i, mounts: [data]}",
        "container.mounts.0: 'data' is not understood; write /SOURCE",
    ),
    ("container: {runtime: apptainer, image: --help}", "container.image: '--help' is not understood"),
    ("environment: {NCCL_IB_TC: 106}", "environment.NCCL_IB_TC: YAML reads it as 106; put it in quotes"),
    ("environment: {NCCL_IB_DISABLE: yes}", "environment.NCCL_IB_DISABLE: YAML reads it as True; put it in quotes"),
    ('environment: {A: "a\\nb"}', "environment.A: 'a\\nb' is not understood; write one line of text"),
    ("environment: {A-B: x}", "environment.A-B: is not the name of a variable"),
    ("environment: {SBATCH_QOS: x}", "environment.SBATCH_QOS: is read by Slurm; say it with partition"),
    ("environment: {CUDA_VISIBLE_DEVICES: '0'}", "environment.CUDA_VISIBLE_DEVICES: is set by the scripts, or by you"),
)
def test_a_mistake_is_one_line_with_the_key_and_what_was_meant(line, says):
    with pytest.raises(FileError) as error:
        site.parse(f"{GOOD}{line}\n", "x.yaml")
    assert str(error.value).startswith(f"x.yaml:3: {says}")


@for_each(
    ("", ": the file is empty; a site file begins with schema_version and name"),
    ("- a", ": the file is a list; a site file is `key: value`, one a line"),
    (GOOD + "name: other", ":3: name is given twice, first in line 2; keep one"),
    (GOOD.replace("1", "2"), ":1: schema_version: 2 is unknown to this version of bringup, which knows 1"),
    # a value of the wrong kind hid `partiton` behind it, in the words of pydantic, without a line
    (f"{GOOD}modules: gcc\npartiton: main\n", ":4: partiton: there is no such key; did you mean partition?"),
    (f"{GOOD}modules: gcc\n", ":3: modules: write a list, [gcc]"),
    ("name: lab\n", ":1: schema_version: is missing; add the line `schema_version: 1`"),
)
def test_a_text_that_is_no_site_file_is_one_line(text, says):
    with pytest.raises(FileError) as error:
        site.parse(text, "x.yaml")
    assert str(error.value) == f"x.yaml{says}"


SECRETS = ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS", "DB_PASSWORD", "hf_token", "MyApiKey")


@for_each(
    *((f"environment: {{{name}: hunter2}}", f"environment.{name}: looks like a secret, and") for name in SECRETS),
    ("environment: {HTTPS_PROXY: 'http://me:hunter2@proxy:3128'}", "holds a password"),
    ("container: {runtime: pyxis, image: 'https://me:hunter2@registry/image'}", "holds a password"),
    ("srun: ['--comment=http://me:hunter2@x']", "holds a password"),
)
def test_a_secret_is_refused_and_not_repeated(line, says):
    with pytest.raises(FileError, match=f"{says}.* every report shows this file|{says}; every report") as error:
        site.parse(f"{GOOD}{line}\n", "x.yaml")
    assert "hunter2" not in str(error.value)


def test_the_partition_key_of_infiniband_is_no_secret():
    assert site.parse(GOOD + "environment: {NCCL_IB_PKEY: '1'}\n", "x").environment == {"NCCL_IB_PKEY": "1"}


@case_for_each(
    ("exmpl", "BRINGUP_SITE: no site file named 'exmpl'; did you mean example?; or give the path of a .yaml file"),
    ("/nowhere/x.yaml", "BRINGUP_SITE: site file /nowhere/x.yaml: no such file, seen from {host}"),
    ("", "no site file is used; name one: export BRINGUP_SITE=NAME, or the path of a .yaml file"),
)
def test_a_site_that_is_not_there_is_one_line_and_exit_code_2(monkeypatch, refused, named, says):
    monkeypatch.setenv("BRINGUP_SITE", named)
    assert refused("site") == f"bringup: {says.format(host=socket.gethostname())}\n"


def test_the_verb_shows_the_file_and_what_the_environment_changes(monkeypatch, shown, tmp_path):
    (tmp_path / "lab.yaml").write_text(GOOD + "partition: gpu\nenvironment: {NCCL_IB_HCA: mlx5_0}\n")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("BRINGUP_SITE", str(tmp_path / "lab.yaml"))
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_7")
    rows = [line.split() for line in shown(0, "site").splitlines()]
    assert ["partition", "gpu"] in rows
    assert ["environment", "NCCL_IB_HCA=mlx5_0"] in rows
    assert ["NCCL_IB_HCA", "mlx5_7"] in rows
