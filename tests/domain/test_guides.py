"""Guides: what they allow, and probabilities over their choices."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.engines.openai.api import PROBES, GuideForm, guide_fields
from memagent_batch.loop.guides import (
    Guide,
    choice_guide,
    json_guide,
    menu_logprobs,
    num_candidates,
    number_regex,
    regex_guide,
)
from memagent_batch.testing import GUIDES


@given(st.integers(1, 12_000), st.integers(0, 20_000))
def test_number_regex_matches_the_numbers_up_to_the_largest_and_no_others(largest: int, number: int) -> None:
    regex = re.compile(number_regex(largest))
    for each in (number, largest, largest + 1, largest - 1, 1):
        assert bool(regex.fullmatch(str(each))) == (1 <= each <= largest)
    assert not regex.fullmatch(f"0{number}")


@given(st.lists(st.floats(-2000, 0), min_size=2, max_size=9))
def test_menu_logprobs_are_a_distribution_in_the_order_of_the_choices(logprobs: list[float]) -> None:
    guide = choice_guide(*(str(number) for number in range(1, len(logprobs) + 1)))
    found = [*zip(guide.choices, logprobs, strict=True), ("other", -0.1)]
    menu = menu_logprobs(guide, reversed(found))
    assert menu is not None
    assert math.fsum(map(math.exp, menu)) == pytest.approx(1)
    differences = [logprob - logprobs[0] for logprob in logprobs]
    assert [logprob - menu[0] for logprob in menu] == pytest.approx(differences, abs=1e-9)


def test_menu_logprobs_add_up_two_tokens_of_one_text_and_are_none_where_a_choice_is_no_token() -> None:
    menu = menu_logprobs(choice_guide("1", "2"), [("1", math.log(0.1)), ("1", math.log(0.2)), ("2", math.log(0.1))])
    assert menu is not None
    assert math.exp(menu[0]) == pytest.approx(0.75)
    assert menu_logprobs(choice_guide("1", "12"), [("1", -1.0), ("2", -1.0)]) is None
    assert menu_logprobs(regex_guide("1", example="1"), [("1", -1.0)]) is None
    assert menu_logprobs(None, []) is None


def test_num_candidates_are_asked_for_choices_even_where_no_log_probabilities_are_kept() -> None:
    assert num_candidates(choice_guide("1", "2"), logprobs=False) == 4
    assert num_candidates(choice_guide(*map(str, range(10, 99))), logprobs=True) == 20
    assert num_candidates(regex_guide("a", example="a"), logprobs=True) == 0
    assert num_candidates(None, logprobs=False) is None


@pytest.mark.parametrize("guide", [*GUIDES, *PROBES.values()])
def test_example_of_a_guide_is_allowed_by_it_and_other_texts_are_not(guide: Guide) -> None:
    assert guide.allows(guide.example)
    assert not guide.allows("")
    assert not guide.allows(guide.example + "x")
    assert guide.identity()["kind"] == guide.kind


def test_guide_fields_name_what_may_be_written() -> None:
    schema, form = {"type": "boolean"}, GuideForm.STRUCTURED_OUTPUTS
    assert guide_fields(choice_guide("a", "b"), form) == {"structured_outputs": {"choice": ["a", "b"]}}
    assert guide_fields(regex_guide("a*", example="a"), form) == {"structured_outputs": {"regex": "a*"}}
    assert guide_fields(json_guide(schema), form) == {"structured_outputs": {"json": schema}}
