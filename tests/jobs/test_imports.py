"""Commands answer at once: nothing heavy is imported before it is needed."""

import subprocess
import sys

import pytest

HEAVY = ("ray", "vllm", "torch", "transformers", "tokenizers", "pyarrow", "numpy", "matplotlib")

SHOW_LOADED = f"import sys; print([name for name in {HEAVY!r} if name in sys.modules])"


@pytest.mark.parametrize(
    "statement",
    [
        "import jobs.answer",
        "import jobs.collect",
        "import jobs.cli; jobs.cli.main(['--help'])",
        "import jobs.cli; jobs.cli.main(['answer', '--no-such-knob'])",
    ],
)
def test_command_before_its_work_loads_nothing_heavy(statement: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-c", f"{statement}; {SHOW_LOADED}"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.splitlines()[-1] == "[]"
