"""A test by betting that most of what is looked for is found, whatever the sample's size and however often one looks.

Someone bets, draw by draw, against the claim that at most `share` of all are found. Under the claim nobody can expect
to win, so that capital passes 1 / delta with probability delta at most (Ville's inequality), at any time and at all
times together. The bets are those of someone who believes the share of the draws so far: a draw that is found
multiplies the capital by belief / share, and one that is missed by (1 - belief) / (1 - share).
"""

from collections.abc import Iterable

HALF = 0.5
"""By so many draws the first belief is above the claim."""


def capital(found: Iterable[bool], *, share: float) -> float:
    """The highest capital of who bets against "at most `share` of all are found"; begins with 1.

    Bets only while the draws so far have at least `share` found. What is left of a population that has at most `share`
    in all then has at most `share` too, so that draws without replacement need no correction, and no size of it.

    Args:
        found: The draws in their order, which must not follow from what was found.
        share: What is claimed at most, above 0 and below 1.
    """
    weight = 1 / min(share, 1 - share)  # draws that the first belief weighs: in as many, one is found or missed
    believed = weight * share + HALF
    money = highest = 1.0
    num_found = 0
    for number, is_found in enumerate(found):
        if num_found >= share * number:
            belief = (believed + num_found) / (weight + number)
            if belief > share:
                money *= belief / share if is_found else (1 - belief) / (1 - share)
        highest = max(highest, money)
        num_found += is_found
    return highest


def fewest_draws(*, share: float, delta: float) -> int:
    """Draws after which the claim is refuted where each one is found: with fewer, no sample refutes it."""
    number = 1
    while capital([True] * number, share=share) < 1 / delta:
        number += 1
    return number
