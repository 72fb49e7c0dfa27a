import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.evaluation.suite import SUITE_DOCUMENTS, SUITE_FORMAT, SUITE_QUESTIONS
from memagent_batch.cli import main as cli
from memagent_batch.cli.evaluate import parse_length
from memagent_batch.errors import SettingsError

Refused = Callable[..., str]


def make(output: Path | str, *arguments: str, tasks: str = "niah_multikey_1 vt", lengths: str = "512 1K") -> int:
    base = ["evaluate", "make", "--output", str(output), "--samples", "3"]
    return cli.main([*base, "--tasks", *tasks.split(), "--lengths", *lengths.split(), *arguments])


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """Runs the command, and returns the one line with which it is refused; nothing is left behind."""

    def run(*arguments: str, output: Path = tmp_path / "suite", **lists: str) -> str:
        before = contents(output)
        assert make(output, *arguments, **lists) == 2
        assert contents(output) == before
        said = capsys.readouterr().err.strip()
        assert said.startswith("error: ")
        assert "\n" not in said
        return said

    return run


@pytest.mark.parametrize(
    ("text", "tokens"), [("4096", 4096), ("8K", 8192), ("8k", 8192), ("1M", 1_048_576), ("3.5M", 3_670_016)]
)
def test_length_with_and_without_unit_is_tokens(text: str, tokens: int) -> None:
    assert parse_length(text) == tokens


@pytest.mark.parametrize("text", ["", "K", "8G", "-8K", "eight", "1e6", "511", "0", "nan", "1_000", "١٠٢٤"])
def test_length_that_makes_no_sense_is_refused_by_name(text: str) -> None:
    with pytest.raises(SettingsError, match="--lengths"):
        parse_length(text)


def test_make_suite_has_a_row_group_for_each_document_a_question_of_it_and_a_record_and_is_made_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make(tmp_path / "suite", "--seed", "7") == 0
    questions = pq.read_table(tmp_path / "suite" / "questions.parquet")
    files = sorted((tmp_path / "suite" / "documents").iterdir())
    documents = [pq.ParquetFile(file) for file in files]
    names = [f"{task}-{n}.parquet" for task in ("niah_multikey_1", "vt") for n in (1024, 512)]
    assert [file.name for file in files] == names
    assert questions.schema.equals(SUITE_QUESTIONS)
    assert all(file.schema_arrow.equals(SUITE_DOCUMENTS) and file.num_row_groups == 3 for file in documents)
    documents_asked = [name for file in documents for name in file.read()["document_id"].to_pylist()]
    assert sorted(documents_asked) == sorted(questions["document_id"].to_pylist())

    record = json.loads((tmp_path / "suite" / "suite.json").read_text())
    assert record["format"] == SUITE_FORMAT
    assert record["asked"]["seed"] == 7
    assert record["asked"]["lengths_tokens"] == [512, 1024]
    assert record["inputs"]["tokenizer"]["name"] == "tiny"
    assert len(record["inputs"]["tokenizer"]["sha256"]) == 64
    assert [cell["task"] for cell in record["cells"]] == ["niah_multikey_1", "niah_multikey_1", "vt", "vt"]

    written = (tmp_path / "suite" / "questions.parquet").stat().st_mtime_ns
    assert make(tmp_path / "suite", "--seed", "7") == 0
    assert "holds this suite already" in capsys.readouterr().out
    assert (tmp_path / "suite" / "questions.parquet").stat().st_mtime_ns == written


def test_make_same_seed_twice_is_the_same_bytes_and_another_seed_is_not(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        assert make(tmp_path / name, "--seed", seed) == 0

    first, again, other = (contents(tmp_path / name) for name in "abc")
    assert first == again
    assert all(other[name] != data for name, data in first.items())


def test_make_over_another_suite_or_half_of_one_is_refused_with_what_differs(tmp_path: Path, refused: Refused) -> None:
    make(tmp_path / "suite")
    assert "made with other lengths_tokens, seed" in refused("--seed", "1", lengths="2K")
    (tmp_path / "suite" / "suite.json").unlink()
    assert "not finished, or choose an empty folder" in refused()
