import os
import subprocess
import sys

import pytest

from memagent_batch.ray_data.notice import LEVEL_VARIABLE, NOTICE, STDERR, without_notice


def test_without_notice_all_other_lines_of_this_process_and_of_its_children_pass(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with without_notice():
        os.write(STDERR, b"[I] " + NOTICE + b" to 3\nthe core's own words\n")
        subprocess.run([sys.executable, "-c", "import os; os.write(2, b'a child')"], check=True)
    os.write(STDERR, b", and afterwards\n")
    assert capfd.readouterr().err == "the core's own words\na child, and afterwards\n"


@pytest.mark.ray
def test_ray_session_shows_its_step_and_nothing_of_rays() -> None:
    code = "from memagent_batch.ray_data.session import ray_session\nwith ray_session(): pass"
    variables = {name: value for name, value in os.environ.items() if name != LEVEL_VARIABLE} | {
        "PYTHONWARNINGS": "ignore"
    }
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "starting Ray\n")
