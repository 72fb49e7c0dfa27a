"""`memagent verify`: checks that the tables of an output are as its last run wrote them."""

import json
from dataclasses import asdict

from memagent_batch.cli.settings import JsonCommand, OutputsCommand
from memagent_batch.errors import NotVerifiedError
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.masking import mask_url, printable


class Verify(OutputsCommand, JsonCommand):
    """Checks the tables of the last finished run, and prints its digest."""

    command = "memagent verify"
    examples = ("memagent verify out/", "memagent verify s3://bucket/scan/ --json")
    pages = ("docs/how-to/verify.md",)

    def run(self) -> None:
        from memagent_batch.run.flows.verify import verify

        results = {mask_url(output): verify(self.locate(output)) for output in self.output}
        num_problems = sum(len(result.problems) for result in results.values())
        if self.as_json:
            shown = [asdict(result) for result in results.values()]
            print(json.dumps(shown if len(shown) > 1 else shown[0], indent=2, ensure_ascii=False))
        else:
            for output, result in results.items():
                for problem in result.problems:
                    print(printable(f"{output}: {problem.where}: {problem.what}"))
                num_wrong = quantity(len(result.problems), "problem")
                print(printable(f"{output}: run {result.run_id}, {quantity(result.num_files, 'file')}, {num_wrong}"))
                print(f"digest: {result.digest}")
        if num_problems:
            raise NotVerifiedError(f"{quantity(num_problems, 'problem')} found; see docs/how-to/verify.md")
