"""Types of answers, and values of them."""

import json
import math
import re
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from memagent_batch.errors import ValueTypeError
from memagent_batch.loop.follow_ups.answer_types import (
    AnswerType,
    Bool,
    Date,
    Json,
    Label,
    Labels,
    Number,
    ValueType,
    parse_value_type,
)
from memagent_batch.loop.follow_ups.values import (
    TypedValue,
    ValueStatus,
    answered_value,
    completion_budget,
    confidence,
    format_instructions,
    guide_for,
    menu,
    parse_value,
    stated,
    text_value,
    values_equal,
    vote,
    written_value,
)
from memagent_batch.loop.guides import GuideKind, menu_logprobs
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion, FinishReason
from tests.conftest import save_tokenizer


class Party(BaseModel):
    name: str
    share: float | None = None
    reason: str


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
TYPES = [
    ValueType(),
    Bool(),
    Bool(not_stated=False),
    Label("a", "b"),
    Label(*(f"label {n}" for n in range(60))),
    Label(*(f"label {n}" for n in range(500))),
    Labels("a", "b", "c"),
    Labels(*(f"label {n}" for n in range(500))),
    Number(unit="EUR"),
    Date(),
    Json(SCHEMA),
    Json(SCHEMA, not_stated=False),
]
FULL = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "format": "date"},
        "id": {"type": "string", "format": "uuid"},
        "share": {"type": "number", "minimum": -1.5, "maximum": 3},
        "count": {"type": "integer", "minimum": 2},
        "note": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"enum": ["x", 1, None, True]}},
    },
    "required": ["day", "id", "share"],
}
"""A schema with all that may be asked for."""
TWICE = [{"type": "object", "properties": {side: {"$ref": f"#/$defs/d{n + 1}"} for side in "lr"}} for n in range(18)]
DOUBLING = {"$ref": "#/$defs/d0", "$defs": {f"d{n}": part for n, part in enumerate([*TWICE, {"type": "integer"}])}}
"""A small schema that is a quarter of a million integers."""
GUIDED_TYPES = [*TYPES, Json(FULL), Labels(*map(str, range(30)))]


def written(text: str, **fields: Any) -> Completion:
    return Completion(token_ids=(1,), text=text, finish_reason=FinishReason.STOP, **fields)


def value(text: str, value_type: ValueType, *, answer: str | None = "the answer") -> TypedValue:
    return parse_value(written(text), value_type, answer=answer)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: parse_value_type("colour"), r"answer_type: 'colour' is not one of text, bool"),
        (lambda: parse_value_type(None, unit="EUR"), r"unit: the question has no answer_type"),
        (lambda: parse_value_type("label"), r"labels: there is none; name those"),
        (lambda: Label("a", " "), r"labels: label 2 is empty"),
        (lambda: Labels("a", "b", "a "), r"labels: label 3 is the same as label 1"),
        (lambda: Label(*map(str, range(501))), r"labels: there are 501, and 500 are the most"),
        (lambda: Label("a\nb"), r"labels: label 1 .* more than one line"),
        (lambda: parse_value_type("bool", labels=["a"]), r"labels: they belong to the types label and labels"),
        (lambda: parse_value_type("number", is_unit_asked=True), r"unit: the list has units, and this number none"),
        (lambda: parse_value_type("date", unit="days"), r"unit: 'days' belongs to the type number"),
        (lambda: parse_value_type("json"), r"schema: .* give the JSON Schema"),
        (lambda: parse_value_type("bool", schema=SCHEMA), r"schema: .* take it out"),
        (lambda: Json("{"), r"schema: it is not JSON"),
        (lambda: Json("[]"), r"schema: it is not a JSON object"),
        (lambda: Json(3), r"schema: give a JSON Schema"),
        (lambda: Json({"type": "objekt"}), r"schema at /type: 'objekt' is not valid"),
        (lambda: Json({"type": "object"}), r"an object needs properties"),
        (lambda: Json({"type": "array"}), r"an array needs items"),
        (
            lambda: Json({"type": "object", "properties": {"a/b": {"type": "string", "pattern": "x"}}}),
            r"schema at /properties/a~1b/pattern: this keyword is not taken",
        ),
        (lambda: Json({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}), r"#/\$defs/A holds itself"),
        (lambda: Json({"$ref": "#/$defs/A"}), r"there is no #/\$defs/A"),
        (lambda: Json({"type": "object", "properties": {"a": True}}), r"schema at /properties/a: write out"),
        (lambda: Json({**SCHEMA, "additionalProperties": True}), r"additionalProperties can only be false"),
        (lambda: Json({**SCHEMA, "required": ["m"]}), r"requires 'm', which is not one of its properties"),
        (lambda: Json({"type": "string", "format": "iban"}), r"format 'iban' is not one of date"),
        (lambda: Json({"type": "string", "minLength": 9, "maxLength": 3}), r"minLength 9 is above maxLength 3"),
        (lambda: Json({"type": "integer", "minimum": 3, "maximum": 2}), r"minimum 3 is above maximum 2"),
        (lambda: Json({"type": "integer", "minimum": 1.5}), r"schema at /minimum: 1.5 is not a whole number.*round it"),
        (lambda: Json({"type": "integer", "maximum": 2**64}), r"schema at /maximum: .* beyond what engines know"),
        (lambda: Json('{"type": "number", "maximum": 1e999}'), r"schema at /maximum: it is beyond all numbers"),
        (lambda: Json('{"type": "number", "maximum": NaN}'), r"schema: it is not JSON: NaN"),
        (lambda: Json({"enum": []}), r"schema at /enum: it has no values"),
        (lambda: Json({"type": "string", "enum": ["a", 1]}), r"schema at /enum/1: 1 is not of the type string"),
        (lambda: Json({"type": "integer", "const": "a"}), r"schema at /const: 'a' is not of the type integer"),
        (lambda: Json({"const": "\ud800"}), r"schema: it holds half of a surrogate pair"),
        (lambda: Json(DOUBLING), r"more than 1000 parts with its references"),
        (lambda: Label("yes", "Not stated "), r"labels: label 2 is 'Not stated ', which may be answered anyway"),
        (lambda: Label("\udc00"), r"labels: label 1 holds half of a surrogate pair"),
    ],
)
def test_type_that_can_not_be_asked_for_is_refused_with_its_place(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueTypeError, match=message):
        make()


def test_schema_that_is_sent_is_bounded_closed_ordered_and_has_reasons_first() -> None:
    sent = Json(
        {
            "type": "object",
            "title": "T",
            "properties": {
                "tags": {"type": "array", "items": {"type": "string"}},
                "rating": {"enum": [1, 2]},
                "note": {"type": ["string", "null"], "maxLength": 9},
                "reason": {"type": "string"},
            },
            "required": ["tags", "reason"],
        }
    ).sent_schema()
    assert list(sent["properties"]) == sent["required"] == ["reason", "tags", "rating", "note"]
    assert sent["additionalProperties"] is False
    assert sent["properties"]["tags"]["maxItems"] == 20
    assert sent["properties"]["tags"]["items"] == {"type": "string"}
    assert sent["properties"]["rating"] == {"anyOf": [{"enum": [1, 2]}, {"type": "null"}]}
    assert sent["properties"]["note"]["anyOf"][0]["maxLength"] == 9
    assert Json({"type": "number"}).sent_schema() == {"type": "number", "minimum": -(10**15), "maximum": 10**15}


def test_pydantic_model_is_a_schema() -> None:
    class Row(BaseModel):
        parties: list[Party]

    value_type = Json(Row)
    good = '{"parties":[{"reason":"r","name":"n","share":null}]}'
    assert value(good, value_type) == TypedValue(status=ValueStatus.OK, value=good)
    bad = value('{"parties":[{"reason":"r","name":3,"share":null}]}', value_type)
    assert bad.status is ValueStatus.INVALID
    assert "/parties/0/name" in str(bad.problem)


@pytest.mark.parametrize("value_type", TYPES)
def test_what_a_guide_allows_is_a_value_and_what_it_does_not_is_invalid(value_type: ValueType) -> None:
    guide = guide_for(value_type)
    assert guide is not None
    assert value(guide.example, value_type).status is ValueStatus.OK
    for text in ("", " ", "0.", "1,2", "nonsense", "not  stated", "{}", "01"):
        assert value(text, value_type).status is ValueStatus.INVALID or guide.allows(text)
    cut = Completion(token_ids=(1,), text=guide.example, finish_reason=FinishReason.LENGTH)
    assert parse_value(cut, value_type, answer="a").status is ValueStatus.INVALID
    longest = max(map(len, guide.choices or [guide.example]))
    assert longest < completion_budget(value_type, json_tokens=99)
    assert re.search(r"\bor\b|=|JSON", format_instructions(value_type))


@pytest.mark.parametrize("value_type", [each for each in TYPES if each.not_stated])
def test_not_stated_is_a_value_of_every_type(value_type: ValueType) -> None:
    guide = guide_for(value_type)
    assert guide is not None
    texts = {GuideKind.CHOICE: guide.choices[-1:], GuideKind.REGEX: ["not stated"], GuideKind.JSON: ["null"]}
    for text in texts[guide.kind]:
        assert guide.allows(text)
        assert value(text, value_type) == TypedValue(status=ValueStatus.NOT_STATED)


def test_values_have_their_type() -> None:
    assert value("1", Bool()) == TypedValue(status=ValueStatus.OK, value="true", boolean=True)
    assert value("2", Bool()) == TypedValue(status=ValueStatus.OK, value="false", boolean=False)
    assert value("2", Label("é", "b\u200c")) == TypedValue(status=ValueStatus.OK, value='"b\u200c"', label="b\u200c")
    assert value("1, 3", Labels("a", "b", "c")).value == '["a", "c"]'
    assert value("none", Labels("a", "b")).value == "[]"
    assert value("-12.50", Number()) == TypedValue(status=ValueStatus.OK, value="-12.50", number=-12.5)
    assert value("2024-02-29", Date()).value == '"2024-02-29"'
    assert value("2023-02-29", Date()).status is ValueStatus.INVALID
    assert value("1", ValueType(), answer="Smith").value == '"Smith"'
    assert value("1", ValueType(), answer=None).status is ValueStatus.INVALID
    assert text_value(None).status is ValueStatus.INVALID


def test_labels_of_many_are_invalid_where_one_stands_twice_or_more_may_follow_and_few_can_not_be_written_so() -> None:
    many = Labels(*map(str, range(60)))
    guide = guide_for(many)
    assert guide is not None
    assert value("7, 7", many).status is ValueStatus.INVALID
    for number, status in ((30, ValueStatus.OK), (31, ValueStatus.INVALID)):
        text = ", ".join(map(str, range(1, number + 1)))
        assert guide.allows(text)
        assert value(text, many).status is status
    assert not guide.allows(", ".join(map(str, range(1, 33))))
    few = guide_for(Labels("a", "b", "c", not_stated=False))
    assert few is not None
    allowed = {", ".join(chosen) for size in (1, 2, 3) for chosen in combinations("123", size)} | {"none"}
    assert {text for text in allowed if few.allows(text)} == allowed
    assert not few.allows("1, 1")
    assert not few.allows("2, 1")


@pytest.mark.parametrize(
    ("num_labels", "first", "last"), [(8, "1", "9"), (9, "10", "19"), (89, "10", "99"), (500, "100", "600")]
)
def test_menu_numbers_have_as_many_digits_so_that_none_begins_another(num_labels: int, first: str, last: str) -> None:
    numbers = list(menu(Label(*map(str, range(num_labels)))))
    assert (numbers[0], numbers[-1], len({len(number) for number in numbers})) == (first, last, 1)


def test_digits_of_a_small_menu_are_one_token_in_tokenisers_that_split_numbers_in_different_ways(
    tiny_tokenizer: Tokenizer, tmp_path: Any
) -> None:
    save_tokenizer(tmp_path, texts=["10 11 12 100 200 the and"], num_tokens=300)
    for tokenizer in (tiny_tokenizer, Tokenizer(str(tmp_path))):
        assert {len(tokenizer.encode(number)) for number in menu(Label(*"abcdefgh"))} == {1}
    assert len(tiny_tokenizer.encode("17")) == 1  # two digits by two
    assert len(Tokenizer(str(tmp_path)).encode("17")) == 2  # digit by digit


def test_labels_budget_holds_the_longest_list() -> None:
    labels = [f"label {n}" for n in range(30)]
    longest = ", ".join(str(n) for n in range(1, 31))
    assert value(longest, Labels(*labels)).status is ValueStatus.OK
    assert len(longest) < completion_budget(Labels(*labels), json_tokens=1)
    assert completion_budget(Json(SCHEMA), json_tokens=77) == 77


def test_confidence_is_the_probability_of_the_choice() -> None:
    guide = guide_for(Bool())
    assert guide is not None
    menu_logprobs = [math.log(each) for each in (0.7, 0.2, 0.1)]
    assert confidence(written("1", menu_logprobs=menu_logprobs), guide) == pytest.approx(0.7)
    assert confidence(written("2", logprobs=[math.log(0.5), math.log(0.5), 0.0]), guide) == pytest.approx(0.25)
    assert confidence(written("7"), guide) is None
    assert confidence(written("1"), guide) is None


@pytest.mark.parametrize(
    ("answer", "value_type", "value"),
    [
        ("Yes", Bool(), "true"),
        ("yes, if asked", Bool(), None),
        ("High, or more", Label("low", "high, or more"), '"high, or more"'),
        ("b, a", Labels("a", "b"), '["a", "b"]'),
        ("a, d", Labels("a", "b"), None),
        ("71", Number(unit="EUR"), None),
        ("a", ValueType(), None),
        (None, Bool(), None),
        ("[" * 2000, Labels("a", "b"), None),
    ],
)
def test_answer_is_its_own_value_only_if_it_is_a_choice_word_for_word(
    answer: str | None, value_type: ValueType, value: str | None
) -> None:
    found = answered_value(answer, value_type)
    assert (found and found.value) == value


def test_answer_that_says_not_stated_is_so_unless_an_answer_is_forced() -> None:
    assert answered_value("Not stated.", Number()) == TypedValue(status=ValueStatus.NOT_STATED)
    assert answered_value("not stated", Label("a", "b", not_stated=False)) is None


@pytest.mark.parametrize(
    ("status", "coverage", "unread", "expected"),
    [
        ("not_stated", 1.0, None, "not_stated"),
        ("not_stated", None, None, "not_stated"),
        ("not_stated", 1 - 1e-9, None, "not_read"),
        ("not_stated", 0.0, None, "not_read"),
        ("not_stated", 1.0, "page 2", "not_read"),
        ("ok", 0.1, "page 2", "ok"),
        ("invalid", 0.1, None, "invalid"),
        (None, 0.1, None, None),
    ],
)
def test_nothing_is_not_stated_unless_all_was_read_and_shown(
    status: str | None, coverage: float | None, unread: str | None, expected: str | None
) -> None:
    assert stated(status, coverage=coverage, unread=unread) == expected


@given(st.lists(st.sampled_from(["1", "1.0", "2", "not stated", "x"]), min_size=1, max_size=12), st.randoms())
def test_vote_is_the_most_frequent_value_whatever_the_order(texts: list[str], random: Any) -> None:
    values = [value(text, Number()) for text in texts]
    outcome = vote(values)
    shuffled = list(values)
    random.shuffle(shuffled)
    assert values_equal(vote(shuffled), outcome)
    counts = {"one": texts.count("1") + texts.count("1.0"), "two": texts.count("2"), "no": texts.count("not stated")}
    top = max(counts.values())
    if top == 0:
        assert outcome.status is ValueStatus.INVALID
    elif list(counts.values()).count(top) > 1:
        assert outcome.status is ValueStatus.NOT_STATED
    else:
        assert outcome.number == {"one": 1.0, "two": 2.0, "no": None}[max(counts, key=lambda name: counts[name])]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('"Ａbc  D"', '"abc d"', True),
        ('{"a": 1, "b": [2.0]}', '{"b": [2], "a": 1.0}', True),
        ("true", "1", False),
        ('["a"]', '["b"]', False),
    ],
)
def test_typed_equality(one: str, other: str, *, same: bool) -> None:
    values = [TypedValue(status=ValueStatus.OK, value=each) for each in (one, other)]
    assert values_equal(*values) is same


def test_identity_differs_with_all_that_is_asked() -> None:
    identities = [json.dumps(value_type.identity()) for value_type in TYPES]
    assert len(set(identities)) == len(identities)
    assert parse_value_type(None) is None
    assert parse_value_type("number", unit=" EUR ") == Number(unit="EUR")
    assert parse_value_type("json", schema=SCHEMA, not_stated=False) == Json(SCHEMA, not_stated=False)
    assert set(AnswerType) == {each.type for each in TYPES}


@pytest.mark.parametrize(
    ("text", "problem"),
    [('"\\ud800"', "half of a surrogate pair"), ("[" * 100_000, "nested too deep"), ("NaN", "NaN is not JSON")],
)
def test_json_that_no_table_can_keep_is_invalid(text: str, problem: str) -> None:
    schema = {"anyOf": [{"type": "string"}, {"type": "number"}]}
    found = value(text, Json(schema))
    assert (found.status, found.value) == (ValueStatus.INVALID, None)
    assert problem in (found.problem or "")
    assert value('"\\ud83d\\ude00"', Json(schema)).value == '"\U0001f600"'


def test_confidence_of_two_digits_is_that_of_the_path_where_they_are_one_token_too() -> None:
    guide = guide_for(Label(*(f"label {n}" for n in range(11))))
    assert guide is not None
    found = [("1", math.log(0.88)), *((choice, math.log(0.01)) for choice in guide.choices)]
    assert menu_logprobs(guide, found) is None
    completion = written("14", logprobs=[math.log(0.88), math.log(0.9)], menu_logprobs=menu_logprobs(guide, found))
    assert confidence(completion, guide) == pytest.approx(0.88 * 0.9)


def test_form_of_json_shows_the_descriptions_of_its_fields_and_the_guide_leaves_them_out() -> None:
    class Cap(BaseModel):
        """What the parties agreed on."""

        amount: float = Field(title="Haftungsgrenze für alle Fälle", description="Liability cap in EUR, net of VAT")

    form, guide = format_instructions(Json(Cap)), guide_for(Json(Cap))
    assert guide is not None
    sent = json.dumps(guide.sent_json_schema(), ensure_ascii=False)
    for text in ("Liability cap in EUR, net of VAT", "Haftungsgrenze für alle Fälle", "What the parties agreed on."):
        assert text in form
        assert text not in sent
    assert str(10**15) in sent
    assert str(10**15) not in form


@pytest.mark.parametrize(
    ("text", "value_type", "value", "problem"),
    [
        ("Yes", Bool(), "true", ""),
        ("false", Bool(), "false", ""),
        ("B ", Label("a", "b"), '"b"', ""),
        ("c|A", Labels("a", "b", "c"), '["a", "c"]', ""),
        ('["b"]', Labels("a", "b", "c"), '["b"]', ""),
        ("None", Labels("a", "b"), "[]", ""),
        ("-1200", Number(unit="EUR"), "-1200", ""),
        ("2.50", Number(), "2.50", ""),
        ("2026-11-23", Date(), '"2026-11-23"', ""),
        ('{"n": 3}', Json(SCHEMA), '{"n":3}', ""),
        ("Ada", ValueType(), '"Ada"', ""),
        (" Not  stated.", Number(), None, ""),
        ("perhaps", Bool(), None, "'perhaps' is not one of yes, no"),
        ("true", Label("a", "b"), None, "'true' is not one of a, b"),
        ("a|c", Labels("a", "b"), None, "'c' is not one of a, b"),
        ('["a"', Labels("a", "b"), None, "it is not a JSON list"),
        ("1,200", Number(), None, "'1,200' is not a number"),
        ("nan", Number(), None, "'nan' is not a number"),
        ("23.11.2026", Date(), None, "'23.11.2026' is not a date"),
        ('{"n": "3"}', Json(SCHEMA), None, "n"),
        ("{", Json(SCHEMA), None, "it is not JSON"),
        ("not stated", Number(not_stated=False), None, "'not stated' is not a number"),
    ],
)
def test_written_value_has_its_type_or_says_why_it_is_invalid(
    text: str, value_type: ValueType, value: str | None, problem: str
) -> None:
    written = written_value(text, value_type)
    stated = ValueStatus.NOT_STATED if value is None else ValueStatus.OK
    assert (written.status, written.value) == (ValueStatus.INVALID if problem else stated, value)
    assert problem in (written.problem or "")
