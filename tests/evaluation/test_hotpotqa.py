import json
import re
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.errors import InputError, SettingsError
from memagent_batch.evaluation.haystacks import Materials, SuiteSample, TokenMeter
from memagent_batch.evaluation.hotpotqa import HotpotQA, read_hotpotqa
from memagent_batch.evaluation.make import SuitePlan, cells_of, sample_requests
from memagent_batch.evaluation.tasks import TASKS
from memagent_batch.store.location import Location
from memagent_batch.tokens.tokenizer import Tokenizer

BLOCK = re.compile(r"Document (\d+):\n(.*?)(?:\n\n|\Z)", re.DOTALL)
NUM_RECORDS = 40


def hotpot_record(number: int) -> dict[str, Any]:
    """A question whose two answering paragraphs stand among eight others."""
    context = [[f"T{number}-{each}", [f"Fact {each} of {number}. ", "It is told here. " * 4]] for each in range(10)]
    return {
        "_id": str(number),
        "question": f"What is fact {number}?",
        "answer": f"Fact 3 of {number}",
        "supporting_facts": [[f"T{number}-3", 0], [f"T{number}-7", 1], [f"T{number}-3", 1]],
        "context": context,
    }


def write(path: Path, value: object) -> Location:
    path.write_text(json.dumps(value))
    return Location(uri=str(path))


@pytest.fixture(scope="module")
def materials(tiny_tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Materials:
    folder = tmp_path_factory.mktemp("corpora")
    hotpot = write(folder / "hotpot.json", [hotpot_record(number) for number in range(NUM_RECORDS)])
    return Materials(meter=TokenMeter(tiny_tokenizer), texts=(), hotpotqa=read_hotpotqa(hotpot))


def make_cell(materials: Materials, *, length: int, samples: int = 8) -> list[SuiteSample]:
    plan = SuitePlan(tasks=("ruler_hqa",), lengths=(), num_documents=(length,), samples=samples, seed=0)
    (cell,) = cells_of(plan)
    return [TASKS["ruler_hqa"].make(request, materials) for request in sample_requests(cell, plan)]


def corpus_question(corpus: HotpotQA | None, question: str) -> tuple[list[str], list[str]]:
    """Answering and related paragraphs of a question."""
    assert corpus is not None
    (found,) = (asked for asked in corpus.questions if asked.question == question)
    gold, related = ([corpus.paragraphs[number] for number in numbers] for numbers in (found.gold, found.related))
    return gold, related


def test_hqa_gold_is_where_the_file_says_that_the_answer_stands(materials: Materials) -> None:
    for sample in make_cell(materials, length=30):
        gold = [sample.document[start:end] for start, end in sample.gold]
        number = re.search(r"\d+", sample.question)[0]  # type: ignore[index]
        facts = sorted(text for text in gold if text.startswith("Fact"))
        assert facts == [f"Fact 3 of {number}."]
        assert len(gold) == 3
        assert all(text == ("It is told here. " * 4).strip() for text in gold if text not in facts)


def test_hotpotqa_fact_that_its_paragraph_does_not_have_is_the_whole_paragraph(tmp_path: Path) -> None:
    record = hotpot_record(0) | {"supporting_facts": [["T0-3", 7]]}
    corpus = read_hotpotqa(write(tmp_path / "hotpot.json", [record]))
    ((number, spans),) = corpus.questions[0].gold.items()
    paragraph = corpus.paragraphs[number]
    assert [paragraph[start:end] for start, end in spans] == [paragraph.partition("\n")[2]]


def test_hqa_has_so_many_documents_with_gold_ones_at_places_of_each_sample(materials: Materials) -> None:
    samples = make_cell(materials, length=100, samples=20)

    places = []
    for sample in samples:
        gold, related = corpus_question(materials.hotpotqa, sample.question)
        blocks = BLOCK.findall(sample.document)
        texts = [text.strip() for _, text in blocks]
        assert [int(number) for number, _ in blocks] == list(range(1, 101))
        assert sample.references[0] in sample.document
        assert len(texts) == len(set(texts)) == 100
        places += [texts.index(paragraph.strip()) for paragraph in gold]
        assert sum(text not in {p.strip() for p in (*gold, *related)} for text in texts) == 90
    assert len(set(places)) > 20 == len({sample.question for sample in samples})
    assert all(any(fifth * 20 <= place < fifth * 20 + 20 for place in places) for fifth in range(5))


def test_hqa_of_more_documents_than_the_file_has_is_refused(materials: Materials) -> None:
    with pytest.raises(SettingsError, match=r"--num-documents: 401 can't be had .*hotpot\.json holds 400 paragraphs"):
        make_cell(materials, length=401)


def test_hotpotqa_in_lines_and_columns_reads_the_same(tmp_path: Path) -> None:
    records = [hotpot_record(number) for number in range(3)]
    columns = [
        record
        | {
            "context": {
                "title": [title for title, _ in record["context"]],
                "sentences": [sentences for _, sentences in record["context"]],
            },
            "supporting_facts": {
                "title": [title for title, _ in record["supporting_facts"]],
                "sent_id": [number for _, number in record["supporting_facts"]],
            },
        }
        for record in records
    ]
    (tmp_path / "lines.jsonl").write_text("\n".join(json.dumps(record) for record in columns))

    lines = read_hotpotqa(Location(uri=str(tmp_path / "lines.jsonl")))

    assert lines.questions == read_hotpotqa(write(tmp_path / "list.json", records)).questions


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"context": None}, r"bad\.json, record 2:"),
        ({"context": []}, "record 2.*: 'context' has no paragraph"),
        ({"answer": " "}, "record 2.*: expected a text, found ' '"),
        ({"question": 5}, "record 2.*: expected a text, found 5"),
        ({"supporting_facts": [["Gone", 0]]}, "record 2.*: 'supporting_facts' name .*Gone"),
        ({"question": "\ud800"}, "record 2.*surrogates"),
    ],
)
def test_hotpotqa_malformed_record_is_refused_by_number(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    place = write(tmp_path / "bad.json", [hotpot_record(0), hotpot_record(1) | change])
    with pytest.raises(InputError, match=message):
        read_hotpotqa(place)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "holds no question"),
        ("[{]", "is not JSON"),
        ('{"question": "a"}\n{', r"line 2 is not JSON"),
        ('[{"question": "a"}]', "record 1.*: there is no 'context'"),
    ],
)
def test_hotpotqa_malformed_file_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputError, match=message):
        read_hotpotqa(Location(uri=str(tmp_path / "bad.json")))
