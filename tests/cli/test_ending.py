"""What a person sees at the end of a command, and that a program gets nothing but JSON."""

import json
import os
import sys
from pathlib import Path

import pytest

from memagent_batch.cli.main import EXIT_TOO_MANY_FAILED, main
from memagent_batch.cli.screen import ending
from memagent_batch.config.job import TableFormat
from memagent_batch.store.location import Location
from tests.jobs import small_arguments
from tests.runs.recorded_nights import FAILS, Nights


@pytest.mark.parametrize("table_format", [*TableFormat])
def test_ending_shows_three_answers_where_tables_are_and_what_to_do_next(
    tmp_path: Path, table_format: TableFormat
) -> None:
    output = Location(uri=f"{tmp_path}/run/")
    night = Nights(output)
    documents = {"a": "Ann\x1b[2J\nSmith", "b": FAILS, "c": None, "d": "never shown"}
    manifest = night.run(documents, {"q": "Who signed?"}, table_format=table_format)
    said = ending(output, manifest, num_columns=110)
    assert said.startswith("4 readings: 2 ok, 2 failed; ")
    assert "  a  Who signed?  " in said
    assert max(map(len, ending(output, manifest, num_columns=40).split("\n")[2:5])) == 40
    assert "Ann [2J Smith" in said
    assert "failed: p: the text is null" in said
    assert "never shown" not in said
    assert f"{tmp_path}/run/answers/   4 rows" in said
    assert f"memagent status {tmp_path}/run\n" in f"{said}\n"
    assert "memagent diff" not in said
    assert f'table_files("{tmp_path}/run", "answers")' in said
    again = night.run(documents, {"q": "Who signed?"}, table_format=table_format)
    assert f"memagent diff {tmp_path}/run " in ending(output, again, num_columns=110)


def test_answer_on_a_terminal_ends_for_a_person_and_elsewhere_with_json_and_the_exit_code_is_the_same(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("some text")
    (tmp_path / "in" / "b.txt").write_bytes(b"\xff")
    arguments = small_arguments(tmp_path, text_model, ask="Who?", max_failed_share=0.4)
    assert main(["answer", *arguments]) == EXIT_TOO_MANY_FAILED
    assert json.loads(capsys.readouterr().out)["ok"] == 1
    reader, writer = os.openpty()
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert main(["answer", *arguments]) == EXIT_TOO_MANY_FAILED
        terminal.flush()
        shown = os.read(reader, 100_000).decode()
    os.close(reader)
    assert "2 readings: 1 ok, 1 failed" in shown
    assert f"{tmp_path}/run/answers/   2 rows" in shown
