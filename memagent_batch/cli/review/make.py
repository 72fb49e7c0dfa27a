"""`memagent review make`: draws the sample, and writes what people label on."""

import json
from typing import Annotated

from pydantic import Field

from memagent_batch.cli.review.asked import AskedCommand
from memagent_batch.review.labels.label import Purpose


class Make(AskedCommand):
    """Draws a sample of the last finished run, and writes a page and a sheet to label it on: OUTPUT/review/ID/.
    Labels that are there already count. After an import, run it again: it writes what a second person should read.
    """

    command = "memagent review make"
    examples = (
        "memagent review make out/ --question clause --labels 750",
        "memagent review make out/ --question risk --by value_label --labels 1000",
    )

    purpose: Purpose = Purpose.VALIDATE
    """Validate: to measure the scan; develop: to improve it by, on another sample."""
    second: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share that a second person reads too."""
    without_page: bool = False
    """Write labels.csv alone: no page, and no text of a document."""

    def run(self) -> None:
        """Makes the review."""
        from memagent_batch.flows.review import make_review

        asked = self.asked(purpose=self.purpose, second_share=self.second, with_page=not self.without_page)
        print(json.dumps(make_review(self.location, asked), indent=2, ensure_ascii=False))
