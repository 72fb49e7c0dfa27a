from pathlib import Path

import pytest

from jobs.answer import MANUAL
from jobs.cli import parse_settings
from jobs.settings import JobSettings
from memagent_batch.wiring import make_prompt_tokens, require_window

CONFIGS = Path(__file__).parents[2] / "jobs" / "configs"
WHOLE = {"bucket", "smoke"}
"""Job files that say everything; the others leave documents, question and output to the command line."""
GIVEN = ["--documents=docs", "--ask=Who?", "--output=run"]


@pytest.mark.parametrize("config", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_job_file_is_read_as_settings(config: Path) -> None:
    given = [] if config.stem in WHOLE else GIVEN
    settings = parse_settings(JobSettings, MANUAL, ["--config", str(config), *given])
    assert settings.output


def test_smoke_job_file_needs_no_model_and_fits_its_window() -> None:
    agent = parse_settings(JobSettings, MANUAL, ["--config", str(CONFIGS / "smoke.yaml")]).agent
    assert agent.engine == "simulated"
    require_window(agent, prompts=make_prompt_tokens(agent))
