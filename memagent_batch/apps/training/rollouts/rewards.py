"""Rewards of a sample from its last response: what Multi-Conv DAPO learns from."""

import statistics
from collections.abc import Callable, Sequence

from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import Advantage
from memagent_batch.loop.completions import closed_text, extract_answer
from memagent_batch.loop.scores import Metric, score
from memagent_batch.plugins import BOXED, BOXED_NORMALISED, REWARDS

Reward = Callable[[str, Sequence[str]], float]
"""From the whole response of the answer turn and the references to a number. A user's own has this signature."""

BOXED_WITHIN = 300
"""Characters at the end of a response in which `boxed` looks for the box."""

_BOX_WITH_SPACE, _BOX_WITH_BRACE = "\\boxed ", "\\boxed{"

_LATEX_RULES = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
    ("\\%", ""),
    (" .", " 0."),
    ("{.", "{0."),
    (" ", ""),
)
"""Replacements that `boxed` makes before it compares, in this order: line feeds and thin spaces, doubled backslashes,
forms of fractions, sizes of brackets, degrees, escaped dollar and per cent signs, decimals without a 0, spaces."""


EPSILON = 1e-6
"""Added to the standard deviation before it divides, as trainers do."""


def built_in_reward(name: str, *, extraction: Extraction) -> Reward:
    """The reward of this name, for answers that are taken out of responses in this way.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in REWARDS.built_in:
        raise ValueError(f"{name!r} is not a built-in reward")
    if name == BOXED:
        return boxed_reward
    metric = Metric.EM if name == BOXED_NORMALISED else Metric(name)
    form = Extraction.BOXED if name == BOXED_NORMALISED else extraction

    def reward(response: str, references: Sequence[str]) -> float:
        return score(metric, extract_answer(response, extraction=form), references)

    return reward


def boxed_reward(response: str, references: Sequence[str]) -> float:
    """The reward `boxed`: 1.0 or 0.0."""
    boxed = _boxed_text(response[-BOXED_WITHIN:].lower())
    if boxed is None:
        return 0.0
    return float(any(_without_latex(boxed) == _without_latex(reference.lower()) for reference in references))


def _boxed_text(ending: str) -> str | None:
    r"""The text of the last box; None where it does not close. `\boxed x$` counts as a box up to the dollar sign."""
    if _BOX_WITH_SPACE in ending:
        return ending.rpartition(_BOX_WITH_SPACE)[2].partition("$")[0]
    start = ending.rfind("\\boxed")
    if start < 0 or not ending.startswith(_BOX_WITH_BRACE, start):
        return None
    return closed_text(ending, start + len(_BOX_WITH_BRACE))


def _without_latex(text: str) -> str:
    for written, replacement in _LATEX_RULES:
        text = text.replace(written, replacement)
    return text


def group_advantages(rewards_G: Sequence[float | None], *, kind: Advantage) -> list[float | None]:
    """The advantages of a group, shape [G]; those of `centred` and `leave_one_out` sum to zero.

    A member without a reward (its reading failed, or its reward did) has no advantage, and the others are compared
    among themselves. If all rewards are equal, or there is only one, all advantages are exactly zero. (The official
    code gives the only member its reward: an update without a baseline.)
    """
    known = [reward for reward in rewards_G if reward is not None]
    if len(set(known)) <= 1:
        return [None if reward is None else 0.0 for reward in rewards_G]
    mean = statistics.fmean(known)
    scale = _scale(known, kind=kind)
    return [None if reward is None else (reward - mean) * scale for reward in rewards_G]


def rewards_are_equal(rewards_G: Sequence[float | None]) -> bool:
    """Whether a group teaches nothing: fewer than two rewards, or all the same."""
    return len({reward for reward in rewards_G if reward is not None}) <= 1


def _scale(known: Sequence[float], *, kind: Advantage) -> float:
    match kind:
        case Advantage.CENTRED:
            return 1.0
        case Advantage.STANDARDISED:
            return 1.0 / (statistics.stdev(known) + EPSILON)
        case Advantage.LEAVE_ONE_OUT:
            return len(known) / (len(known) - 1)
