"""The collection of `python -m benchmarks.answers.collection`, and its figures, without a model."""

from typing import Any

from benchmarks.answers.collection import Asked, figures, make_collection

PLACES = ("0001.pdf, page 1", "0007.pdf, page 2")


def answer(question: str, text: str | None, *, status: str = "ok") -> dict[str, Any]:
    counts = {"num_document_tokens": 10, "num_chunks": 2, "num_turns": 3, "num_prompt_tokens": 5}
    return {"question_id": f"id of {question}", "question": question, "answer": text, "status": status, **counts}


def cited(question: str, *locators: str | None, how: str = "chosen") -> list[dict[str, Any]]:
    return [{"question_id": f"id of {question}", "how": how, "locator": locator} for locator in locators]


def test_facts_of_a_collection_stand_in_two_files_at_the_places_that_are_said() -> None:
    made = make_collection(documents=12, num_tokens=12_000, questions=5, seed=3, length_of=lambda text: len(text) // 4)
    pages = {f"{row['file']}, page {row['page']}": row["text"] for row in made.rows}
    assert len(pages) == len(made.rows) == 12 * 3
    assert {row["case_id"] for row in made.rows} == {"case"}
    assert len({each.question for each in made.asked}) == 5
    whole = "\n".join(pages.values())
    assert 0.8 < len(whole) / 4 / 12_000 < 1.3
    for each in made.asked:
        link, stated = (pages[place] for place in each.places)
        assert len({place.split(",")[0] for place in each.places}) == 2
        assert each.reference in stated
        assert each.reference not in link
        assert whole.count(each.reference) == 1
    again = make_collection(documents=12, num_tokens=12_000, questions=5, seed=3, length_of=lambda text: len(text) // 4)
    assert again == made


def test_figures_say_what_is_right_and_what_is_cited() -> None:
    asked = [Asked(question=name, reference="41", places=PLACES) for name in ("both", "one", "none", "failed")]
    answers = [
        answer("both", "41"),
        answer("one", "410"),
        answer("none", None),
        answer("failed", None, status="failed"),
    ]
    evidence = [
        *cited("both", *PLACES, "0009.pdf, page 1"),
        *cited("one", PLACES[0], PLACES[0]),
        *cited("one", PLACES[1], how="aligned"),
        *cited("none", None),
    ]
    *lines, sums = figures(asked, answers, evidence)
    assert [line["right"] for line in lines] == [True, False, False, False]
    assert [line["places_cited"] for line in lines] == [2, 1, 0, 0]
    assert (sums["questions"], sums["right"], sums["failed"]) == (4, 1, 1)
    assert (sums["with_both_places_cited"], sums["with_one_place_cited"]) == (1, 2)
    assert (sums["citations"], sums["citations_right"]) == (5, 4)
    assert sums["low"] < 0.25 < sums["high"]
