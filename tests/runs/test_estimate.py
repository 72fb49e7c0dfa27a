import pytest

from memagent_batch.cli.main import main
from memagent_batch.runs.bounds import Rates, estimate

PLAN = {
    "prompt_tokens_at_least": 7_200_000,
    "prompt_tokens_at_most": 9_000_000,
    "completion_tokens_at_most": 700_000,
    "closing_prompt_tokens_at_most": 1_000_000,
    "closing_completion_tokens_at_most": 100_000,
}


def test_estimate_divides_tokens_by_speed_and_multiplies_hours_by_price() -> None:
    told = estimate(PLAN, Rates(tokens_per_second=1000, price_per_hour=2.5), replicas=2)
    assert told == {
        "replicas": 2,
        "tokens_per_second": 1000,
        "hours_at_least": 1.0,
        "hours_at_most": 1.5,
        "cost_at_least": 5.0,
        "cost_at_most": 7.5,
    }


def test_estimate_cost_does_not_depend_on_replicas_and_is_left_out_without_a_price() -> None:
    rates = Rates(tokens_per_second=1000, price_per_hour=1)
    costs = {estimate(PLAN, rates, replicas=replicas)["cost_at_most"] for replicas in (1, 2, 8)}
    assert costs == {3.0}
    assert "cost_at_most" not in estimate(PLAN, Rates(tokens_per_second=1000), replicas=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tokens-per-second", "0"], "--tokens-per-second: 0 is not above 0.0"),
        (["--tokens-per-second", "many"], "--tokens-per-second: 'many' is not a number"),
        (["--tokens-per-second", "10", "--price-per-hour", "nan"], "price_per_hour: 'nan' is not a number"),
    ],
)
def test_plan_rate_that_is_no_rate_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--documents=docs", "--ask=Who?", "--output=run", *arguments]) == 2
    assert said in capsys.readouterr().err
