"""`memagent review calibrate`: how sure a "no" must be, by labels, to need no second look."""

import json
from typing import Annotated

from pydantic import Field

from memagent_batch.cli.command import OutputCommand

Share = Annotated[float, Field(gt=0, lt=1)]


class Calibrate(OutputCommand):
    """Learns from the labels of a review (--purpose develop) how sure a no must be, so that what is answered by
    yes or looked at again holds the wanted share of what is looked for. A run with escalate.target uses it.
    """

    command = "memagent review calibrate"
    examples = (
        "memagent review calibrate out/",
        "memagent review calibrate out/ --review clause-1a2b3c4d5e --recall 0.9",
    )
    page = "docs/how-to/escalation.md"

    review: str | None = None
    """ID of the review (default: the only one)."""
    recall: Share = 0.95
    """Share to be found, at least."""
    delta: Share = 0.05
    """How often it may be missed."""

    def run(self) -> None:
        """Prints what was learnt."""
        from memagent_batch.flows.calibrate import calibrate
        from memagent_batch.review.calibration.threshold import Target

        learnt = calibrate(self.location, self.review, target=Target(recall=self.recall, delta=self.delta))
        print(json.dumps(learnt, indent=2, ensure_ascii=False))
