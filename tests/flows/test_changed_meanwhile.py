"""Inputs that change while a run reads: each row is of the version that was planned, and of no other."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from memagent_batch.config.job import JobConfig
from memagent_batch.loop.addresses import text_hash
from memagent_batch.run.flows.answer import answer, answer_plan
from memagent_batch.run.flows.check import check
from memagent_batch.run.flows.plan import ingest_sources, make_plan
from tests.jobs import put_texts, small_job
from tests.tables import table_rows


def answer_changed(job: JobConfig, change: Callable[[], object]) -> None:
    """A run whose inputs change once it is planned."""
    checked = check(job)
    with checked.executor.session(job):
        plan = make_plan(checked, ingest_sources(checked))
        change()
        answer_plan(plan, checked)


def rows(job: JobConfig) -> dict[str, tuple[str, str]]:
    found = table_rows(job.output, "answers")
    by_document = {row["document_id"]: (row["status"], row["document_hash"]) for row in found}
    assert len(by_document) == len(found)
    return by_document


def test_files_that_are_overwritten_or_removed_in_mid_run_are_read_as_they_were_planned(
    tmp_path: Path, text_model: str
) -> None:
    folder = put_texts(tmp_path / "in", {f"{name}.txt": f"text of {name}" for name in "abc"})
    job = small_job(tmp_path, text_model, ask=("Who?",))

    def overwrite() -> None:
        (folder / "b.txt").write_text("newer text of b")
        (folder / "c.txt").unlink()

    answer_changed(job, overwrite)
    planned = {f"{name}.txt": text_hash(f"text of {name}") for name in "abc"}
    assert rows(job) == {name: ("ok", value) for name, value in planned.items()}
    changes = answer(job)["changes"]
    assert (changes["readings"]["read"], changes["readings"]["kept"], changes["documents"]["removed"]) == (1, 1, 1)
    assert rows(job) == {"a.txt": ("ok", planned["a.txt"]), "b.txt": ("ok", text_hash("newer text of b"))}


def test_table_that_is_optimised_and_overwritten_in_mid_run_is_read_as_it_was_planned(
    tmp_path: Path, text_model: str
) -> None:
    from deltalake import DeltaTable, write_deltalake

    place = f"{tmp_path}/table"

    def table(texts: dict[str, str]) -> pa.Table:
        return pa.table({"document_id": [*texts], "text": [*texts.values()]})

    for name in "abc":
        write_deltalake(place, table({name: f"text of {name}"}), mode="append")

    def optimise() -> None:
        DeltaTable(place).optimize.compact()
        write_deltalake(place, table({"a": "text of a", "b": "newer text of b"}), mode="overwrite")

    job = small_job(tmp_path, text_model, documents=f"delta://{place}", ask=("Who?",))
    answer_changed(job, optimise)
    assert rows(job) == {name: ("ok", text_hash(f"text of {name}")) for name in "abc"}
    changes = answer(job)["changes"]
    assert (changes["readings"]["read"], changes["readings"]["kept"], changes["documents"]["removed"]) == (1, 1, 1)
    assert rows(job) == {"a": ("ok", text_hash("text of a")), "b": ("ok", text_hash("newer text of b"))}
