import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.runs.planning.question_lists import AskedDocument, QuestionLists, WayCost, compare_ways

AGENT = AgentConfig(engine="simulated", window_tokens=8192, policy=PolicyConfig(chunk_tokens=5000, memory_tokens=512))
LIST = AskedDocument(num_tokens=100_000, questions=[30] * 16, num_lists=1)


def way_of(lists: QuestionLists | None, policy: str, prompt_set: str = "") -> WayCost:
    assert lists is not None
    return next(way for way in lists["ways"] if way["policy"] == policy and prompt_set in ("", way["prompt_set"]))


def test_ways_of_a_list_count_its_passes() -> None:
    lists = compare_ways([LIST], AGENT)
    assert way_of(lists, "overwrite")["turns"] == 16 * (20 + 1)
    assert way_of(lists, "shared")["turns"] == 20 + 16
    assert way_of(lists, "parallel")["turns"] == 16 * (2 * 21 + 1)
    assert way_of(lists, "shared-parallel")["turns"] == 2 * 21 + 16


@pytest.mark.parametrize(
    ("policy", "prompt_set"), [("overwrite", "section-first"), ("gated", "gated"), ("parallel", "parallel")]
)
def test_ways_whose_section_comes_first_compute_a_fraction_and_the_published_order_everything(
    policy: str, prompt_set: str
) -> None:
    lists = compare_ways([LIST], AGENT)
    published, first = way_of(lists, "overwrite", "default"), way_of(lists, policy, prompt_set)
    assert published["computed_prompt_tokens"] == published["prompt_tokens"]
    assert first["computed_prompt_tokens"] < 0.2 * first["prompt_tokens"]


def test_ways_of_two_lists_and_samples_share_a_pass_within_each() -> None:
    two = AskedDocument(num_tokens=100_000, questions=[30] * 16, num_lists=2)
    assert way_of(compare_ways([two], AGENT), "shared")["turns"] == 2 * 20 + 16


def test_advice_names_the_cheapest_way_and_the_cheapest_with_a_memory_for_each_question() -> None:
    lists = compare_ways([LIST], AGENT)
    assert lists is not None
    assert lists["advice"].startswith("policy shared is the cheapest")
    assert "With a memory for each question: policy gated" in lists["advice"]


def test_ways_that_do_not_fit_are_left_out() -> None:
    short = AGENT.model_copy(update={"policy": AGENT.policy.model_copy(update={"question_tokens": 100})})
    lists = compare_ways([LIST], short)
    assert lists is not None
    assert {way["policy"] for way in lists["ways"]} == {"overwrite", "gated", "parallel"}
    narrow = AGENT.model_copy(update={"window_tokens": 64})
    none = compare_ways([LIST], narrow)
    assert none is not None
    assert (none["ways"], none["advice"]) == ([], "no built-in way fits the window with this list")


def test_single_questions_have_no_ways_to_compare() -> None:
    assert compare_ways([AskedDocument(num_tokens=10, questions=[3], num_lists=1)], AGENT) is None
    assert compare_ways([], AGENT) is None
