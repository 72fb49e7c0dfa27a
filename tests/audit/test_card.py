"""The card of a run: what it says, and what it never says."""

import json
import re
from pathlib import Path
from typing import Any

from memagent_batch.audit.card import card
from memagent_batch.cli.settings import job_of
from memagent_batch.config.agent import AgentConfig
from memagent_batch.review.estimate_files import EstimatedShare, ReviewEstimates
from memagent_batch.store.location import Location
from tests.runs.recorded_nights import FAILS, Nights

HOSTILE = "</p><script>alert(1)</script> | `code` [link](http://x) \u202e\n# Heading"


SECRET = "hunter2-hunter2"


def card_of(nights: Nights) -> str:
    return card(nights.last(), estimates=[])


def test_share_is_certain_only_where_it_is() -> None:
    assert str(EstimatedShare(value=0.9996, low=0.9912, high=1.0)) == "99.96 % (99.12 to 100)"
    assert str(EstimatedShare(value=None, low=0.0, high=0.00001)) == "not known (0 to 0.01)"


def test_card_says_what_was_asked_and_what_came_out(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one", "b": FAILS, "none": None}, {"q": "Who signed?"})
    text = card_of(nights)
    titles = re.findall(r"^## (.*)$", text, flags=re.MULTILINE)
    assert titles == [
        "What was asked",
        "Of what",
        "By what",
        "What came out",
        "How good it is",
        "Where it fails",
        "Limits",
        "How to repeat it",
    ]
    assert "- q: Who signed?" in text
    assert "| 3 | 1 | 2 | 0 |" in text
    assert "Readings that failed: 2 (1 E: the engine refused it; 1 DocumentError: p: the text is null)" in text
    assert "Documents that can't be read or are not there: 1" in text
    assert "There is no estimate of it here" in text


def test_card_of_hostile_texts_has_no_markup_of_theirs(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    settings: dict[str, Any] = {
        "weights_version": HOSTILE,
        "storage_options": {"secret": SECRET},
        "openai": {"api_key": SECRET},
    }
    manifest = nights.run({HOSTILE: "one"}, {HOSTILE: HOSTILE}, **settings)
    text = card_of(nights)
    shown, _, job = text.partition("```yaml")
    assert SECRET not in text
    assert "\u202e" not in text
    assert not re.search(r"(?<!\\)[<>`|\[\]]", shown.replace("| asked | ok", "").split("## What came out")[0])
    assert re.findall(r"^# .*$", text, flags=re.MULTILINE) == [f"# Scan {manifest['run_id']}"]
    assert job.count("```") == 1


def test_card_repeats_the_run_by_a_job_file(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    settings: dict[str, Any] = {
        "policy": {"kind": "gated", "chunk_tokens": 77},
        "weights_version": "may",
        "sampling": {"seed": 3},
    }
    nights.run({"a": "one"}, {"q": "Why?"}, **settings)
    text = card_of(nights)
    job = json.loads(text.partition("```yaml")[2].partition("```")[0])
    assert job["policy"] == settings["policy"]
    again = job_of(**job)
    assert again.agent == AgentConfig(**settings)
    assert (again.output, again.documents) == (nights.output.uri, ("docs",))


def test_card_has_the_latest_estimates_first(tmp_path: Path) -> None:
    nights = Nights(Location(uri=str(tmp_path / "run")))
    nights.run({"a": "one"}, {"q": "Why?"})
    share = EstimatedShare(value=0.93, low=0.88, high=0.97)
    told = ReviewEstimates(
        review_id="q-1",
        run_id="x",
        question_id="q",
        looked_for="value_bool = true",
        num_labels=750,
        shares={"recall": share, "evidence": None},
        remarks=["80 readings of the sample are not labelled"],
    )
    text = card(nights.last(), estimates=[told])
    assert "- q, value\\_bool = true, of run x, 750 labels: recall 93.0 % (88.0 to 97.0)\n" in text
    assert "  - 80 readings of the sample are not labelled\n" in text
