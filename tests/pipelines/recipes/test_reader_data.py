"""The samples that the reader is trained on: what is stated, where it stands, and what a perfect agent writes."""

import asyncio
import json
import random
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.main import main
from memagent_batch.domain.follow_ups.answer_types import AnswerType, ValueType
from memagent_batch.evaluation.suite import QUESTIONS_FILE
from memagent_batch.tokens.tokenizer import load_tokenizer
from memagent_batch.wiring import resolve_model
from pipelines import licence_scan
from pipelines.recipes.reader.facts import Fact, FactMaker, Kind, Mention, Value
from pipelines.recipes.reader.oracle import Written
from pipelines.recipes.reader.samples import agent_config, sample_lines, written
from pipelines.recipes.reader.suite import PAPERS, Cell, write_suite
from pipelines.recipes.reader.tasks import LICENCES, Tasks, granting, telling
from pipelines.recipes.reader.texts import Story, name_words, story

README = Path(__file__).parents[3] / "pipelines" / "recipes" / "reader" / "README.md"
FILLER = "The quick pump was oiled. Nobody saw the grey barn. A list of parts follows below.\n"
RENT = Kind(noun="rent", value="money", of=["site"], says=["{who} costs {value}."], asks=["What does {who} cost?"])
RENT_TYPE = ValueType(type=AnswerType.NUMBER, unit="EUR")
WAYS = [("gated", None), ("heads", None), ("overwrite", "default"), ("overwrite", "section-first"), ("parallel", None)]


class Steady(random.Random):
    def random(self) -> float:
        return 0.999


def test_words_of_names_are_written_small_nowhere() -> None:
    assert name_words(["May we ask Ada Byron? She may.", "she rode to Ulm"]) == ["Ada", "Byron", "Ulm"]


def test_first_samples_are_short_turns_of_one_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Tasks(FactMaker(random.Random(1), apart=False, words=["Ada"]), [FILLER * 200], licences=None)
    lines = [json.loads(line) for line in sample_lines("tiny", tasks, num_samples=40, first=True)]
    assert {line["policy"] for line in lines} == {"gated"}
    turns = [turn for line in lines for turn in line["turns"] if turn["kind"] == "update"]
    assert {len(turn["prompt"]) < 600 for turn in turns} == {True}


def _story(*said: tuple[str, str, Value | None], aliased: Sequence[int] = ()) -> Story:
    """A document with these mentions in the order given, between filler; each is text, name, value."""
    text, mentions = FILLER * 8, []
    for number, (sentence, name, value) in enumerate(said):
        mentions.append(Mention(text=sentence, name=name, value=value, aliased=number in aliased, char_start=len(text)))
        text += sentence + " " + FILLER * 8
    asked, told = "What does Zwork Mill cost?", tuple(mentions)
    fact = Fact(kind=RENT, who="Zwork Mill", mentions=told, question=asked, value_type=RENT_TYPE)
    return Story(text=text, facts=(fact,))


def _euros(number: str) -> Value:
    return Value(text=f"{number} euros", typed=number, unit="EUR")


def _turns(told: Story, kind: str, prompt_set: str | None, *, heads: int = 4) -> list[tuple[str, str]]:
    """Kind and text of the turns of its one question, as they should be."""
    config = agent_config("tiny", kind, prompt_set, chunk_tokens=300, heads=heads)
    turns: list[Written] = asyncio.run(written(told, told.facts[0], config, rng=Steady()))
    tokenizer = load_tokenizer(resolve_model("tiny"))
    return [(turn.kind, tokenizer.decode(turn.completion)) for turn in turns]


def test_halves_share_no_kind_no_wording_and_no_name() -> None:
    halves = [FactMaker(random.Random(7), apart=apart) for apart in (False, True)]
    nouns = [{kind.noun for kind in maker.kinds} for maker in halves]
    assert not nouns[0] & nouns[1]
    names = [{maker.entity("place") for _ in range(2000)} for maker in halves]
    assert not names[0] & names[1]
    assert len(names[0]) > 1500
    assert len(nouns[0]) >= 40


def test_story_places_every_mention_and_keeps_their_order() -> None:
    maker = FactMaker(random.Random(3), apart=False)
    for _ in range(30):
        told = story(maker, [FILLER * 60], num_chars=3000, num_facts=9, num_asked=6, num_absent=2)
        for fact in told.facts:
            places = [mention.char_start for mention in fact.mentions]
            assert places == sorted(places)
            for mention in fact.mentions:
                assert told.text[mention.char_start : mention.char_end] == mention.text
                start, end = mention.value_span
                if mention.value is not None and fact.kind.value != "bool":
                    assert told.text[start:end] == mention.value.text
        assert [len(fact.mentions) for fact in told.facts].count(0) == 2


@pytest.mark.parametrize(("kind", "prompt_set"), WAYS)
def test_oracle_notes_the_fact_and_answers_with_its_value(kind: str, prompt_set: str | None) -> None:
    turns = _turns(_story(("Zwork Mill costs 430 euros.", "Zwork Mill", _euros("430"))), kind, prompt_set)
    assert ("answer", "\\boxed{430 euros}") in turns
    assert ("value", "430") in turns
    texts = [text for turn, text in turns if turn in ("update", "read", "merge")]
    assert "What does Zwork Mill cost? 430 euros" in texts
    assert set(texts) <= {"What does Zwork Mill cost? 430 euros", "keep", "none", "Nothing noted yet."}
    assert [text for turn, text in turns if turn == "support"] == ["1"]


@pytest.mark.parametrize(("kind", "prompt_set"), WAYS)
def test_oracle_says_not_stated_of_an_absent_fact(kind: str, prompt_set: str | None) -> None:
    turns = _turns(_story(), kind, prompt_set)
    assert ("answer", "\\boxed{not stated}") in turns
    assert "value" not in dict(turns)
    assert not [text for turn, text in turns if turn == "merge"]


@pytest.mark.parametrize(("kind", "prompt_set"), WAYS)
def test_oracle_answers_with_the_correction(kind: str, prompt_set: str | None) -> None:
    first = ("Zwork Mill costs 430 euros.", "Zwork Mill", _euros("430"))
    later = ("Correction: the rent of Zwork Mill is 510 euros.", "Zwork Mill", _euros("510"))
    turns = _turns(_story(first, later), kind, prompt_set)
    assert ("answer", "\\boxed{510 euros}") in turns
    texts = [text for turn, text in turns if turn in ("update", "read", "merge")]
    if kind == "heads":
        noted = [f"What does Zwork Mill cost? {rent} euros" for rent in (430, 510)]
        assert [text for text in texts if text != "keep"] == noted
    assert "What does Zwork Mill cost? 510 euros" in texts


def test_oracle_repeats_in_a_new_note_what_goes_with_the_oldest() -> None:
    named = ("Zwork Mill is called Q4 below.", "Zwork Mill", None)
    rents = [(f"The rent of Q4 is {rent} euros.", "Q4", _euros(rent)) for rent in ("430", "510")]
    told = _story(named, rents[0], named, rents[1], aliased=[1, 3])
    notes = [text for turn, text in _turns(told, "heads", None, heads=1) if turn == "update" and text != "keep"]
    assert notes[0] == "About Zwork Mill: called Q4"
    assert notes[-1] == "What does Zwork Mill cost? 510 euros"


def test_oracle_needs_the_other_name_before_it_notes_what_is_said_under_it() -> None:
    named = ("Zwork Mill is called Q4 below.", "Zwork Mill", None)
    said = ("Q4 costs 430 euros.", "Q4", _euros("430"))
    turns = _turns(_story(named, said, aliased=[1]), "gated", None)
    assert {("update", "About Zwork Mill: called Q4"), ("update", "What does Zwork Mill cost? 430 euros")} <= set(turns)
    assert ("answer", "\\boxed{430 euros}") in turns
    assert ("answer", "\\boxed{not stated}") in _turns(_story(said, aliased=[0]), "gated", None)


def test_oracle_teaches_no_evidence_that_stands_in_two_places() -> None:
    terms = Value(text="GPL-2 or later", typed="2")
    once = _story(("Files: a.c\nCopyright: 2001, Kvist\nLicense: GPL-2 or later.", "Files: a.c", terms))
    twice = replace(once, text=f"{once.text}\nLicense: GPL-2 or later.\n")
    kinds = [{kind for kind, _ in _turns(told, "gated", None)} for told in (once, twice)]
    assert kinds[0] - kinds[1] == {"evidence"}


CHANGELOG = """stove ({0}-1) unstable; urgency=low

  * The valve of {0} is
    closed at night.

 -- Mia Rød {0} <mia@example.org>  Sat, 0{0} May 2021 17:18:50 +0200

"""
STANZA = (
    "Files: src/{0}.c\nCopyright: 201{0}, Kvist {0} Ltd <a@example.org>, All rights reserved.\nLicense: GPL-{0}\n\n"
)
GRANT = "Permission is hereby granted, free of charge, to any person obtaining\n a copy of this software, as it is."
SUBJECT = f"{GRANT[:-1]}, and to permit persons to whom it is furnished to do so, subject to these conditions."
NOTICE = "Under the terms of the GNU General\n# Public License, either version 2 of the License, or any later one."


def _tasks(wheel: Path, *, apart: bool) -> Tasks:
    """Tasks over one changelog, one copyright file, filler, and a wheel with two licences in many files."""
    with zipfile.ZipFile(wheel, "w") as files:
        licences = [("mit", "MIT", SUBJECT), ("gpl-2.0-plus", "GPL-2.0-or-later", NOTICE), ("x", "MIT", "?")]
        for key, name, text in licences:
            files.writestr(f"data/licenses/{key}.LICENSE", f"---\nkey: {key}\nspdx_license_key: {name}\n---\n{text}\n")
            for number in range(20):
                head = f"license_expression: {key}\nis_license_notice: yes"
                files.writestr(f"data/rules/{key}_{number}.RULE", f"---\n{head}\n---\n\n{{{{No. {number}}}}}: {text}\n")
    texts = ["".join(each.format(number) for number in range(1, 9)) for each in (CHANGELOG, STANZA)]
    return Tasks(FactMaker(random.Random(4), apart=apart), [*texts, FILLER * 60], licences=wheel)


@pytest.mark.parametrize("task", ["changelog", "copyright", "licence"])
def test_task_asks_for_what_the_file_says_and_points_at_the_place(task: str, tmp_path: Path) -> None:
    tasks = _tasks(tmp_path / "wheel.zip", apart=False)
    assert tasks.names == ["changelog", "copyright", "licence"]
    seen: dict[str, set[str]] = {}
    for _ in range(40):
        told = tasks.story(task, num_chars=400)
        assert any(fact.mentions for fact in told.facts) or task == "licence"
        for fact in told.facts:
            assert fact.mentions or fact.who not in told.text
            for mention in fact.mentions:
                assert told.text[mention.char_start : mention.char_end] == mention.text
            if fact.mentions and (value := fact.mentions[-1].value):
                seen.setdefault(fact.kind.noun, set()).add(value.typed or value.text)
    expected = {
        "changelog": {
            "change": {f"The valve of {number} is closed at night." for number in range(1, 9)},
            "distribution": {"unstable"},
            "upload date": {f"2021-05-0{number}" for number in range(1, 9)},
            "uploader": {f"Mia Rød {number}" for number in range(1, 9)},
        },
        "copyright": {
            "copyright holder": {f"Kvist {number} Ltd" for number in range(1, 9)},
            "copyright years": {f"201{number}" for number in range(1, 9)},
            "stated licence": {f"GPL-{number}" for number in range(1, 9)},
        },
        "licence": {
            "licence": {"MIT", "GPL-2.0-or-later"},
            "list of licences": {"MIT", "GPL-2.0-or-later"},
            "patents": {"no"},
        },
    }
    if task == "licence":
        assert len(seen.pop("copyright holder")) > 5  # made up, in a notice above the licence
    assert seen.keys() == expected[task].keys()
    assert all(values <= expected[task][noun] for noun, values in seen.items())


def test_halves_of_licences_share_no_file(tmp_path: Path) -> None:
    halves = [_tasks(tmp_path / "wheel.zip", apart=apart)._licences for apart in (False, True)]
    texts = [{text for each in half.values() for text in each} for half in halves]
    assert all(texts)
    assert not texts[0] & texts[1] - {SUBJECT, NOTICE}
    assert all(set(half) <= set(LICENCES) for half in halves)


def test_oracle_names_all_licences_of_a_text_and_what_they_grant() -> None:
    said = [_licence("MIT License", "MIT"), _licence("Apache License, Version 2.0", "Apache-2.0")]
    told = _story(*((text, "", value) for text, value in said))
    labels = ValueType(type=AnswerType.LABELS, labels=("ISC", "Apache-2.0", "MIT"))
    turns = _turns(Story(text=told.text, facts=(replace(told.facts[0], value_type=labels),)), "gated", None)
    assert ("answer", "\\boxed{MIT, Apache-2.0}") in turns
    assert "value" not in dict(turns)
    assert ("support", "1") in turns
    nothing = replace(told.facts[0], value_type=labels, mentions=())
    turns = _turns(Story(text=FILLER * 20, facts=(nothing,)), "gated", None)
    assert ("answer", "\\boxed{not stated}") in turns


def _licence(text: str, name: str) -> tuple[str, Value]:
    return f"This is under the {text}.", Value(text=name, typed=name)


def test_grant_of_patents_follows_from_the_licence(tmp_path: Path) -> None:
    assert [mention.value for mention in telling(f"{SUBJECT}\nMIT License")][-1] == Value(text="MIT", typed="MIT")
    assert [mention.value for mention in telling(GRANT)][-1] == Value(text="MIT-0", typed="MIT-0")
    for said, name in {"granted.": "0BSD", "granted, provided that": "ISC"}.items():
        grant = "to use, copy, modify, and/or distribute this software for any purpose with or without fee"
        text = f"Permission {grant} is hereby {said}"
        assert [mention.value for mention in telling(text)] == [Value(text=name, typed=name)]
    for text, grants in ((SUBJECT, "no"), ("Licensed under the Apache License, Version 2.0", "yes")):
        (last,) = telling(text)[-1:]
        assert granting(last).value == Value(text=grants, typed=grants)


def test_licences_of_the_scan_are_taught() -> None:
    assert set(licence_scan.LICENCES) <= set(LICENCES)


def test_suite_is_read_and_scored_by_the_products_own_command(tmp_path: Path) -> None:
    tasks = _tasks(tmp_path / "wheel.zip", apart=True)
    names = [*tasks.names, PAPERS]
    cells = [Cell(num_chunks=1, num_documents=30), *(Cell(name=name, num_chunks=1, num_documents=4) for name in names)]
    suite = tmp_path / "suite"
    write_suite(tasks, suite, cells=cells, seed=1)
    texts = {row["document_id"]: row["text"] for row in pq.read_table(tmp_path / "suite" / "documents").to_pylist()}
    rows = pq.read_table(tmp_path / "suite" / QUESTIONS_FILE).to_pylist()
    assert {"plain", "absent", "licence", "list of licences", "patents", PAPERS} <= {row["task"] for row in rows}
    for row in rows:
        spans = row["gold_spans"]
        assert bool(spans) != row["is_absent"]
        if row["answer_type"] in ("number", "date"):
            span = texts[row["document_id"]][spans[0]["char_start"] : spans[0]["char_end"]] if spans else None
            assert span in (row["written"], None)
    command = ["evaluate", "run", "--suite", str(suite), "--output", str(tmp_path / "out"), "--engine", "simulated"]
    assert main([*command, "--executor", "local", "--policies", "gated"]) == 0
    scores = pq.read_table(tmp_path / "out" / "scores" / "gated.parquet")
    assert scores.num_rows == len(rows)
    assert not scores["score"].null_count
    query = README.read_text().split("SELECT variant")[1].split("\n\n")[0]
    query = query.replace("EVAL/", f"{tmp_path}/out/").replace("SUITE/", f"{suite}/")
    counted = duckdb.execute(f"SELECT variant {query}").fetchall()
    assert sum(cell[2] for cell in counted) == len(rows)
