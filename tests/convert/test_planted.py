"""Nothing unread looks read: of each planted fact it is known where it stands, or that its file was not read."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest

from memagent_batch.config.convert import ConvertJob
from memagent_batch.config.job import ExecutorKind
from memagent_batch.flows.convert import convert
from memagent_batch.store.location import Location
from tests.convert.planted import MAKERS

HUGE_BYTES = 9 << 20
UNREAD = ("needs_ocr", "needs_review", "failed", "skipped", "not_read")
LACKING = ("left out", "not read", "U+FFFD", "taken for")
"""What the reason of a text says if something of the file is not in it."""


@pytest.mark.slow
def test_planted_fact_is_found_or_its_file_says_what_was_not_read(tmp_path: Path) -> None:
    facts = write_planted(tmp_path / "in")
    outcomes = converted_outcomes(tmp_path, facts)
    table = Counter((name.partition("/")[0], outcome) for name, outcome in outcomes.items())
    assert len(outcomes) >= 300
    assert not [name for name, outcome in outcomes.items() if outcome == "silent"], table


def converted_outcomes(folder: Path, facts: dict[str, str]) -> dict[str, str]:
    """What became of each fact: found, said to be unread, or silent."""
    job = ConvertJob(
        documents=(str(folder / "in"),),
        output=str(folder / "out"),
        file_mib=HUGE_BYTES >> 20,
        executor=ExecutorKind.LOCAL,
    )
    manifest = convert(job)
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in facts}
    for file in manifest["files"]["documents"]:
        for row in pq.read_table(Location(uri=str(folder / "out" / file)).uri).to_pylist():
            rows[row["source"]].append(row)
    return {name: outcome_of(rows[name], fact) for name, fact in facts.items()}


def outcome_of(rows: Sequence[dict[str, Any]], fact: str) -> str:
    if any(fact in (row["text"] or "") for row in rows):
        return "found"
    is_said = any(
        row["reason"] and (row["status"] in UNREAD or any(lacking in row["reason"] for lacking in LACKING))
        for row in rows
    )
    return "said" if is_said else "silent"


def write_planted(folder: Path, *, copies: int = 2, seed: int = 0) -> dict[str, str]:
    """Writes each kind of file so many times; returns the fact of each, by the path of its file."""
    random, facts = Random(seed), dict[str, str]()
    for name, make in sorted({**MAKERS, "text-huge.txt": huge}.items()):
        for copy in range(copies):
            fact = f"K{random.randrange(10**6, 10**7)}"
            stem, _, ending = name.partition(".")
            place = folder / stem.partition("-")[0] / f"{stem}-{copy}{'.' + ending if ending else ''}"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(make(fact))
            facts[str(place.relative_to(folder))] = fact
    return facts


def huge(fact: str) -> bytes:
    """A file above the limit, with the fact at its end."""
    return b"x" * HUGE_BYTES + fact.encode()
