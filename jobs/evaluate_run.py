"""`memagent evaluate run`: reads a suite with one or several policies or models, and scores the answers."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jobs.arguments import parse_settings, run_command
from jobs.knobs import Manual
from jobs.manuals import EVALUATE_UNUSED, MODEL
from jobs.options import OptionParser, wants_help
from jobs.variants import policy_variants, read_variants, vary
from memagent_batch.errors import SettingsError
from memagent_batch.masking import shown

COMMAND = "memagent evaluate run"
DESCRIPTION = "Reads a suite with one or several policies or models, and scores the answers."
EXAMPLE = "memagent evaluate run --suite suite/ --output eval/ --config job.yaml --policies overwrite truncate"
PAGE = "docs/how-to/evaluation.md"
SET_BY_SUITE = ("documents", "questions", "ask")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the variants and prints their scores; returns the exit code."""
    return run_command(partial(_run, sys.argv[1:] if arguments is None else arguments))


def _run(arguments: Sequence[str]) -> None:
    own = _options()
    known, _ = own.parse_known_args(arguments)
    for name in SET_BY_SUITE:
        if any(argument.split("=")[0] == f"--{name}" for argument in arguments):
            raise SettingsError(f"--{name}: the suite brings documents and questions; leave it out")
    if known.suite is None and not wants_help(arguments):
        raise SettingsError(f"--suite: missing; see {COMMAND} --help")
    by_suite = [] if known.suite is None else ["--documents", known.suite, "--questions", known.suite]
    manual = Manual(common=("output", *MODEL), unused=EVALUATE_UNUSED, own=own, example=EXAMPLE, page=PAGE)
    base = parse_settings([*arguments, *by_suite], command=COMMAND, description=DESCRIPTION, manual=manual)
    listed = read_variants(known.variants) if known.variants else {}
    knobs = policy_variants(known.policies) | listed or policy_variants([base.policy.kind])
    settings = {name: vary(base, changed, name=name) for name, changed in knobs.items()}
    from memagent_batch.domain.scores import ScoreOn
    from memagent_batch.evaluation.score_table import score_table
    from memagent_batch.evaluation.suites.foreign import ForeignFormat
    from memagent_batch.files.location import Location
    from pipelines.evaluate import Variant, evaluate, require_variants

    variants = [Variant(name=name, knobs=knobs[name], settings=settings[name]) for name in knobs]
    output = Location(uri=base.output, storage_options=base.storage_options)
    scores = evaluate(
        variants,
        suite=Location(uri=known.suite, storage_options=base.storage_options),
        foreign_format=ForeignFormat(known.format) if known.format else None,
        output=output,
        score_on=ScoreOn(known.score_on),
    )
    print(score_table(scores))
    place = shown(base.output.rstrip("/"))
    print(f"\nevaluation {place}/evaluation.json, scores {place}/scores, runs {place}/runs")
    print(f"draw them with: memagent evaluate report {place}")
    require_variants(variants, output=output)


def _options() -> OptionParser:
    from memagent_batch.domain.scores import ScoreOn
    from memagent_batch.evaluation.suites.foreign import ForeignFormat

    options = OptionParser(prog=COMMAND, add_help=False)
    options.add_argument(
        "--suite", metavar="PATH", help="(required) Folder of `evaluate make`, or files of a foreign suite"
    )
    options.add_argument("--format", choices=[*ForeignFormat], help="whose suite it is (default: told by its records)")
    options.add_argument(
        "--score-on",
        choices=[*ScoreOn],
        default=ScoreOn.METRIC,
        help="score the whole response, the answer taken out of it, or what each metric's authors score: the response "
        "by `all` and `any` (RULER), the answer by the others (default: metric)",
    )
    options.add_argument(
        "--policies", nargs="+", metavar="KIND", default=[], help="one variant for each kind of policy"
    )
    options.add_argument(
        "--variants",
        type=Path,
        metavar="FILE",
        help="YAML file: names, and below each its own knobs",
    )
    return options


if __name__ == "__main__":
    sys.exit(main())
