"""The sample of a review: the same on any machine and in any order, and growing without a redraw."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from memagent_batch.errors import InputError, SettingsError
from memagent_batch.review.labels import Purpose, canonical_about
from memagent_batch.review.plan import plan_rows
from memagent_batch.review.population import Unit, draw, number_of, seed_text, shuffled, strata_of
from memagent_batch.review.record import rule_of
from memagent_batch.review.strata import Stratum, allocate, parse_labels

UNITS = [
    Unit(document_id=f"d{place}", document_hash=f"{place:064x}", question_hash="q" * 64, stratum="ab"[place % 3 == 0])
    for place in range(300)
]
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


def test_permanent_number_is_the_hash_that_is_documented() -> None:
    unit = Unit(document_id="d", document_hash="aa", question_hash="bb", stratum="flagged")
    # printf '7|aa|bb' | sha256sum
    assert number_of(unit, seed="7") == "22badceffbffc772f8addc291aaba3f5f585649b1824a01a127b662b3460d548"


def test_draw_is_the_same_in_any_order() -> None:
    mixed = random.Random(4).sample(UNITS, len(UNITS))
    sizes = {"a": 20, "b": 10}
    first, second = (draw(units, sizes, seed="0", second_share=0.1) for units in (UNITS, mixed))
    assert first == second
    assert shuffled(first, seed="0") == shuffled(second[::-1], seed="0")
    assert Counter(each.unit.stratum for each in first) == sizes
    assert Counter(each.unit.stratum for each in first if each.is_second) == {"a": 2, "b": 1}


def test_draw_grows_without_a_redraw_and_survives_changes_of_the_population() -> None:
    few = {each.unit.document_id for each in draw(UNITS, {"a": 20, "b": 10}, seed="0", second_share=0.0)}
    more = {each.unit.document_id for each in draw(UNITS, {"a": 60, "b": 40}, seed="0", second_share=0.0)}
    assert few < more
    tonight = {each.unit.document_id for each in draw(UNITS[30:], {"a": 20, "b": 10}, seed="0", second_share=0.0)}
    assert len(few & tonight) >= len(few) - 6
    other = {each.unit.document_id for each in draw(UNITS, {"a": 20, "b": 10}, seed="1", second_share=0.0)}
    assert other != few


def test_development_has_another_sample() -> None:
    seeds = [seed_text(0, purpose) for purpose in Purpose]
    drawn = [{each.unit.document_id for each in draw(UNITS, {"a": 30}, seed=seed, second_share=0.0)} for seed in seeds]
    assert drawn[0] != drawn[1]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("value_number >= 1000.0", "value_number >= 1000"),
        ("value_number>=0.50", "value_number >= 0.5"),
        ("value_bool=TRUE", "value_bool = true"),
        ("value_label in ('b','a')", "value_label = 'a' or value_label = 'b'"),
        ("value_label in ('a', 'b')", "value_label = 'a' or value_label = 'b'"),
        ("answer ~ '^it''s' and (x = 1 or y is null)", "(x = 1 or y is null) and answer ~ '^it''s'"),
        ('"an answer" = 1', '"an answer" = 1'),
        ("value_label", "value_label"),
    ],
)
def test_condition_is_one_decision_however_it_is_written(text: str, same: str) -> None:
    assert canonical_about(text) == same == canonical_about(same)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("value_bool", "wanted: =, !="),
        ("answer ~ '('", "wanted: a regular expression"),
        ("value_boool = true", "no column 'value_boool'; columns: .*value_bool"),
        ("value_bool = 'red'", "column 'value_bool' holds bool"),
    ],
)
def test_condition_that_does_not_fit_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^--flagged: .*{message}"):
        strata_of(ANSWERS, rule=rule_of(text, by=None, unsure_below=None))


def test_strata_follow_from_the_output() -> None:
    by_condition = rule_of("value_bool = true", by=None, unsure_below=0.8)
    expected = ["flagged", "not_flagged", "unsure", "failed", "unsure", "invalid"]
    assert strata_of(ANSWERS, rule=by_condition) == expected
    by_answer = rule_of("answer ~ '(?i)yes'", by=None, unsure_below=None)
    bare = ANSWERS.select(["status", "answer"])
    assert strata_of(bare, rule=by_answer) == ["flagged", "not_flagged", "not_flagged", "failed", "invalid", "flagged"]
    by_two = rule_of("value_label = 'red' or value_number >= 2", by=None, unsure_below=None)
    assert strata_of(ANSWERS, rule=by_two) == ["flagged", "not_flagged", "flagged", "failed", "not_flagged", "invalid"]
    by_value = rule_of(None, by="value_label", unsure_below=None)
    assert strata_of(ANSWERS, rule=by_value)[:3] == ["value: red", "value: green", "value: am'ber"]
    assert strata_of(ANSWERS, rule=by_value)[3:] == ["failed", "not_flagged", "invalid"]


def test_allocation_reads_most_of_what_was_not_flagged() -> None:
    sizes = {Stratum.FLAGGED.value: 500, Stratum.NOT_FLAGGED.value: 9400, Stratum.FAILED.value: 100}
    drawn = allocate(750, sizes)
    assert drawn[Stratum.FLAGGED] == 150
    assert 5 <= drawn[Stratum.FAILED] <= 10
    assert sum(drawn.values()) == 750
    assert allocate(750, {"flagged": 3, "not_flagged": 10}) == {"flagged": 3, "not_flagged": 10}


def test_stratum_that_is_not_named_gets_the_fewest_labels_that_say_something_of_it() -> None:
    sizes = {"flagged": 500, "not_flagged": 9400, "failed": 100, "invalid": 3}
    named = parse_labels("flagged=150,not_flagged=1500", sizes)
    assert named == {"flagged": 150, "not_flagged": 1500, "failed": 5, "invalid": 3}
    assert parse_labels("flagged=9,not_flagged=99,failed=0", sizes)["failed"] == 0


@pytest.mark.parametrize("text", ["0", "-1", "many", "flagged", "other=5", "flagged=x"])
def test_labels_that_are_no_number_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="--labels"):
        parse_labels(text, {"flagged": 10, "not_flagged": 20})


def test_plan_says_where_no_sample_helps() -> None:
    sizes = {"flagged": 200, "not_flagged": 49_800}
    rows = list(plan_rows(sizes, allocate(750, sizes), values=[], precision=0.7, width=0.2))
    rare = rows[1]
    assert rare.richness < 0.01
    assert rare.recall.width > 0.4
    assert not rare.helps
    rich = {"flagged": 4000, "not_flagged": 6000}
    assert all(row.helps for row in plan_rows(rich, allocate(750, rich), values=[], precision=0.9, width=0.2))
