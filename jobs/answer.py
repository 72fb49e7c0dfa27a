"""`memagent answer`, and `python -m jobs.answer` for `ray job submit`: settings in, pipeline called."""

import json
import sys
from collections.abc import Sequence
from functools import partial
from shutil import get_terminal_size

from jobs.arguments import parse_settings, run_command
from jobs.manuals import ANSWER
from memagent_batch.logs import step
from memagent_batch.masking import shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Answers the questions over the documents; returns the exit code."""
    return run_command(partial(_answer, sys.argv[1:] if arguments is None else arguments))


def _answer(arguments: Sequence[str]) -> None:
    settings = parse_settings(
        arguments,
        command="memagent answer",
        description="Answers questions over documents of any length.",
        manual=ANSWER,
    )
    with step("checking inputs and model"):
        from pipelines.check import check  # here, so that --help needs neither ray nor an engine

        checked = check(settings)
        from pipelines.answer import answer_checked  # after the check, since Ray's import takes a second
    from memagent_batch.runs.verdict import require_success
    from memagent_batch.wiring import make_output

    manifest = answer_checked(checked)
    if sys.stdout.isatty():
        from jobs.ending import ending

        print(f"\n{ending(make_output(settings), manifest, num_columns=get_terminal_size().columns)}")
    else:
        said = {**manifest["counts"], "seconds": manifest["seconds"], "changes": manifest["changes"]}
        print(json.dumps({"output": shown(settings.output), **said}))
    require_success(manifest, max_failed_share=settings.max_failed_share)


if __name__ == "__main__":
    sys.exit(main())
