"""The sample of a review: the same on any machine and in any order, and growing without a redraw."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from memagent_batch.apps.review.labels import Purpose
from memagent_batch.apps.review.population import Stratum, allocate, draw, parse_labels, seed_text, strata_of
from memagent_batch.data.documents.where import parse_where
from memagent_batch.errors import InputError, SettingsError

READINGS = pa.table(
    {
        "document_id": [f"d{place:03}" for place in range(300)],
        "document_hash": [f"{place:064x}" for place in range(300)],
        "question_hash": ["q" * 64] * 300,
        "question": ["Who?"] * 300,
        "stratum": ["ab"[place % 3 == 0] for place in range(300)],
        "confidence": pa.nulls(300, pa.float64()),
        **dict.fromkeys(("source", "source_unread"), pa.nulls(300, pa.string())),
    }
)
ANSWERS = pa.table(
    {
        "status": ["ok", "ok", "ok", "failed", "ok", "ok"],
        "answer": ["Yes.", "No.", "no", None, None, "yes"],
        "value_bool": [True, False, False, None, None, None],
        "value_label": ["red", "green", "am'ber", None, None, None],
        "value_number": [3.0, 1.0, 2.0, None, None, None],
        "value_status": ["ok", "ok", "ok", None, "not_stated", "invalid"],
        "confidence": [0.6, 0.9, 0.6, None, 0.7, 0.9],
    }
)


def drawn_ids(sizes: dict[str, int], *, readings: pa.Table = READINGS, seed: str = "0") -> set[str]:
    return set(draw(readings, sizes, seed=seed, second_share=0.0)["document_id"].to_pylist())


def test_permanent_number_is_the_hash_that_is_documented() -> None:
    reading = READINGS.slice(0, 1).set_column(1, "document_hash", [["aa"]]).set_column(2, "question_hash", [["bb"]])
    (number,) = draw(reading, {"b": 1}, seed="7", second_share=0.0)["number"].to_pylist()
    # printf '7|aa|bb' | sha256sum
    assert number == "22badceffbffc772f8addc291aaba3f5f585649b1824a01a127b662b3460d548"


def test_draw_is_the_same_in_any_order() -> None:
    mixed = READINGS.take(random.Random(4).sample(range(300), 300))
    sizes = {"a": 20, "b": 10}
    first, second = (draw(readings, sizes, seed="0", second_share=0.1) for readings in (READINGS, mixed))
    assert first == second
    rows = first.to_pylist()
    assert Counter(row["stratum"] for row in rows) == sizes
    assert Counter(row["stratum"] for row in rows if row["is_second"]) == {"a": 2, "b": 1}


def test_draw_grows_without_a_redraw_and_survives_changes_of_the_population() -> None:
    few, more = drawn_ids({"a": 20, "b": 10}), drawn_ids({"a": 60, "b": 40})
    assert few < more
    tonight = drawn_ids({"a": 20, "b": 10}, readings=READINGS.slice(30))
    assert len(few & tonight) >= len(few) - 6
    assert drawn_ids({"a": 20, "b": 10}, seed="1") != few
    develop, validate = (drawn_ids({"a": 30}, seed=seed_text(0, purpose)) for purpose in Purpose)
    assert develop != validate


def test_documents_of_the_same_text_are_drawn_each_on_its_own() -> None:
    same = READINGS.set_column(1, "document_hash", [["a" * 64] * 300])
    sample = draw(same, {"a": 200, "b": 100}, seed="0", second_share=0.0)
    assert len(sample["number"].unique()) == 300
    assert drawn_ids({"b": 10}, readings=same) != set(READINGS["document_id"].to_pylist()[:30:3])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("value_bool =", "syntax error"),
        ("answer ~ '('", r"missing \)"),
        ("value_boool = true", '"value_boool" not found.*; columns: .*value_bool'),
        ("value_bool = 'red'", r"columns: .*value_bool \(bool\)"),
    ],
)
def test_condition_that_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^--flagged: .*{message}"):
        strata_of(ANSWERS, flagged=parse_where(text, option="--flagged"))


@pytest.mark.parametrize(
    ("flagged", "strata"),
    [
        ("value_bool = true", ["flagged", *["not_flagged"] * 2, "failed", "not_flagged", "invalid"]),
        ("answer ~ '(?i)yes'", ["flagged", *["not_flagged"] * 2, "failed", "not_flagged", "invalid"]),
        (
            "value_label = 'red' or value_number >= 2",
            ["flagged", "not_flagged", "flagged", "failed", "not_flagged", "invalid"],
        ),
    ],
)
def test_strata_follow_from_the_output(flagged: str, strata: list[str]) -> None:
    assert strata_of(ANSWERS, flagged=parse_where(flagged)).to_pylist() == strata


def test_strata_of_answers_that_have_no_type_or_were_not_read() -> None:
    nothing = {name: pa.nulls(6, ANSWERS.schema.field(name).type) for name in ("value_status", "confidence")}
    bare = pa.table({"status": ANSWERS["status"], "answer": ANSWERS["answer"], **nothing})
    strata = ["flagged", "not_flagged", "not_flagged", "failed", "invalid", "flagged"]
    assert strata_of(bare, flagged=parse_where("answer ~ '(?i)yes'")).to_pylist() == strata
    values = {"status": ["ok"] * 3, "value_bool": pa.nulls(3, pa.bool_()), "value_status": ["not_read"] * 3}
    flagged = parse_where("value_bool = true")
    assert strata_of(pa.table(values), flagged=flagged).to_pylist() == ["not_flagged"] * 3
    of_files = pa.table({**values, "source_unread": ["needs_ocr: a scan (page 2)", None, None]})
    assert strata_of(of_files, flagged=flagged).to_pylist() == ["invalid", "not_flagged", "not_flagged"]


def test_allocation_reads_most_of_what_was_not_flagged() -> None:
    sizes = {Stratum.FLAGGED.value: 500, Stratum.NOT_FLAGGED.value: 9400, Stratum.FAILED.value: 100}
    drawn = allocate(750, sizes)
    assert drawn[Stratum.FLAGGED] == 150
    assert 5 <= drawn[Stratum.FAILED] <= 10
    assert sum(drawn.values()) == 750
    assert allocate(750, {"flagged": 3, "not_flagged": 10}) == {"flagged": 3, "not_flagged": 10}
    assert allocate(100, {"flagged": 70, "not_flagged": 40, "failed": 30}) == {
        "flagged": 50,
        "not_flagged": 40,
        "failed": 10,
    }


def test_labels_of_each_stratum_may_be_named_and_others_get_the_fewest_that_say_something() -> None:
    sizes = {"flagged": 500, "not_flagged": 9400, "failed": 100, "invalid": 3}
    named = parse_labels("flagged=150,not_flagged=1500", sizes)
    assert named == {"flagged": 150, "not_flagged": 1500, "failed": 5, "invalid": 3}
    assert parse_labels("flagged=9,not_flagged=99,failed=0", sizes)["failed"] == 0


@pytest.mark.parametrize("text", ["0", "-1", "many", "flagged", "other=5", "flagged=x"])
def test_labels_that_are_no_number_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--labels"):
        parse_labels(text, {"flagged": 10, "not_flagged": 20})
