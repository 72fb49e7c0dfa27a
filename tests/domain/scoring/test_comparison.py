import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.scoring.comparison import holm, paired, sign_test


@pytest.mark.parametrize(
    ("more", "less", "chance"), [(0, 0, 1.0), (5, 5, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (8, 2, 2 * 56 / 1024)]
)
def test_sign_test_is_exact(more: int, less: int, chance: float) -> None:
    assert sign_test(more, less) == pytest.approx(chance)


def test_paired_counts_only_what_both_have() -> None:
    found = paired({"a": 1.0, "b": 0.5, "c": 0.0, "own": 1.0}, {"a": 0.0, "b": 0.5, "c": 1.0, "other": 1.0})
    assert (found.num_better, found.num_worse, found.num_equal, found.p) == (1, 1, 1, 1.0)


def test_holm_worked_case_is_as_computed_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_a_chance_and_keeps_their_order(chances: list[float]) -> None:
    corrected = holm(chances)
    assert all(before <= after <= 1 for before, after in zip(chances, corrected, strict=True))
    ordered = [after for _, after in sorted(zip(chances, corrected, strict=True))]
    assert ordered == sorted(ordered)
