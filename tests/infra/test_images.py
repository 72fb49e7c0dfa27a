import re
import subprocess
import sys
from pathlib import Path

import pytest
from docker.utils.build import exclude_paths
from ray._private.runtime_env.packaging import create_package

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "infra").glob("Dockerfile.*"))
MAX_UPLOAD_BYTES = 8 * 1024 * 1024
MAX_CONTEXT_BYTES = MAX_UPLOAD_BYTES + 20_000_000
"""With the adapter of the reader."""


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.suffix)
def test_dockerfile_has_nothing_that_hadolint_minds(dockerfile: Path) -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, dockerfile], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.suffix)
def test_docker_context_is_small_and_holds_all_that_is_copied(dockerfile: Path) -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    context = exclude_paths(str(ROOT), [line for line in lines if line and not line.startswith("#")])
    files = {name for name in context if (ROOT / name).is_file()}
    assert sum((ROOT / name).stat().st_size for name in files) < MAX_CONTEXT_BYTES
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile.read_text(), re.MULTILINE)
    for source in [name for names in copied for name in names.split()]:
        assert any(name == source or name.startswith(f"{source}/") for name in files), source
    assert not [name for name in files if name.startswith((".git", ".venv", "tests", "docs"))]


def test_job_submission_uploads_what_a_job_needs_and_little_else(tmp_path: Path) -> None:
    package = tmp_path / "package.zip"
    create_package(str(ROOT), package, include_gitignore=True)
    assert package.stat().st_size < MAX_UPLOAD_BYTES
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "--list", package], capture_output=True, text=True, check=True
    )
    names = [line.split()[0] for line in listed.stdout.splitlines()[1:]]
    needed = {
        "memagent_batch/cli/answer.py",
        "jobs/smoke.yaml",
        "memagent_batch/run/flows/answer.py",
        "memagent_batch/run/wiring.py",
    }
    assert needed < set(names)
    assert "memagent_batch/loop/models/tiny/model.safetensors" in names
    left_behind = (".git/", ".venv", "tests", "docs", "infra", "benchmarks", "requirements")
    assert not [name for name in names if name.startswith(left_behind)]
