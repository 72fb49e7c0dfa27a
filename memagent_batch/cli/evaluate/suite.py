"""The options that `memagent evaluate run` and `memagent evaluate score` share."""

from typing import Literal

from memagent_batch.config.section import Section, Text
from memagent_batch.domain.scores import ScoreOn
from memagent_batch.evaluation.foreign import ForeignFormat


class SuiteOptions(Section):
    """The suite, its format, and which text is scored."""

    suite: Text
    """Folder of `evaluate make`, or files of a foreign suite."""
    format: ForeignFormat | None = None
    """Format of a foreign suite (default: by its records)."""
    score_on: Literal[ScoreOn.METRIC, ScoreOn.RESPONSE, ScoreOn.ANSWER] = ScoreOn.METRIC
    """Score the whole response, the answer taken out of it, or what each metric's authors score: the response by `all`
    and `any` (RULER), the answer by the others."""
