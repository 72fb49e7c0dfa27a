"""Two contestants over the same questions."""

import pytest

from benchmarks.paired import sign_test


@pytest.mark.parametrize(
    ("more", "less", "chance"), [(0, 0, 1.0), (5, 5, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (8, 2, 2 * 56 / 1024)]
)
def test_sign_test_is_exact(more: int, less: int, chance: float) -> None:
    assert sign_test(more, less) == pytest.approx(chance)
