"""Options that `review plan` and `review make` share: which readings, and how many labels."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from memagent_batch.cli.command import OutputCommand
from memagent_batch.config.section import Text
from memagent_batch.errors import SettingsError

if TYPE_CHECKING:
    from memagent_batch.flows.review import Asked


class AskedCommand(OutputCommand):
    """A command on the readings of a question."""

    page = "docs/how-to/review.md"

    question: Text
    """The question_id of the question that is reviewed."""
    flagged: str | None = None
    """What the scan found, as in "value_bool = true" (the default), "value_label in ('red', 'amber')" or
    "answer ~ '(?i)^yes'"."""
    by: str | None = None
    """Review each value of a column apart, as of value_label."""
    unsure: Annotated[float, Field(gt=0, le=1)] | None = None
    """Confidence below which what was not flagged is a stratum of its own."""
    labels: str = "750"
    """Labels in all, or of each stratum as in flagged=150,not_flagged=600."""
    seed: int = 0
    """Seed of the draw."""

    def asked(self, **others: Any) -> "Asked":
        """What is asked for.

        Raises:
            SettingsError: the options don't fit each other.
        """
        if self.by and (self.flagged or self.unsure is not None):
            raise SettingsError("--by: it divides by values; take out --flagged and --unsure")
        from memagent_batch.flows.review import Asked
        from memagent_batch.review.sample.record import rule_of

        condition = None if self.by else self.flagged or "value_bool = true"
        rule = rule_of(condition, by=self.by, unsure_below=self.unsure)
        return Asked(question_id=self.question, rule=rule, labels=self.labels, seed=self.seed, **others)
