"""`memagent evaluate run`: reads a suite with one or several policies or models, and scores the answers."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from jobs.arguments import parse_settings, run_command
from jobs.variants import policy_variants, read_variants, vary
from memagent_batch.errors import SettingsError
from memagent_batch.masking import shown

COMMAND = "memagent evaluate run"
DESCRIPTION = "Reads a suite with one or several policies or models, and scores the answers."
SET_BY_SUITE = ("documents", "questions", "ask")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the variants and prints their scores; returns the exit code."""
    return run_command(partial(_run, sys.argv[1:] if arguments is None else arguments))


def _run(arguments: Sequence[str]) -> None:
    options = _options()
    if {"-h", "--help"}.intersection(arguments):
        print(f"{options.format_help()}\nEvery knob of `memagent answer` can be given as well:\n")
        parse_settings(["--help"], command=COMMAND, description=DESCRIPTION)
    try:
        known, rest = options.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise SettingsError(str(error)) from error
    for name in SET_BY_SUITE:
        if any(argument.split("=")[0] == f"--{name}" for argument in rest):
            raise SettingsError(f"--{name}: the suite brings documents and questions; leave it out")
    base = parse_settings(
        [*rest, "--documents", known.suite, "--questions", known.suite], command=COMMAND, description=DESCRIPTION
    )
    listed = read_variants(known.variants) if known.variants else {}
    knobs = policy_variants(known.policies) | listed or policy_variants([base.policy.kind])
    settings = {name: vary(base, changed, name=name) for name, changed in knobs.items()}
    from jobs.score_table import score_table
    from memagent_batch.domain.scores import ScoreOn
    from memagent_batch.storage.foreign_suites import ForeignFormat
    from memagent_batch.storage.location import Location
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
    place = shown(base.output)
    print(f"\nevaluation {place}/evaluation.json, scores {place}/scores, runs {place}/runs")
    require_variants(variants, output=output)


def _options() -> argparse.ArgumentParser:
    from memagent_batch.domain.scores import ScoreOn
    from memagent_batch.storage.foreign_suites import ForeignFormat

    options = argparse.ArgumentParser(
        prog=COMMAND, description=DESCRIPTION, add_help=False, allow_abbrev=False, exit_on_error=False
    )
    options.add_argument("--suite", required=True, help="folder of `evaluate make`, or files of a foreign suite")
    options.add_argument("--format", choices=[*ForeignFormat], help="whose suite it is (default: told by its records)")
    options.add_argument(
        "--score-on",
        choices=[*ScoreOn],
        default=ScoreOn.METRIC,
        help="score the whole response, the answer taken out of it, or what each metric's authors score: the response "
        "by `all` and `any` (RULER), the answer by the others (default: metric)",
    )
    options.add_argument("--policies", nargs="+", default=[], help="one variant for each of these kinds of policy")
    options.add_argument(
        "--variants", type=Path, help="YAML file: names, and below each the knobs that set the variant apart"
    )
    return options


if __name__ == "__main__":
    sys.exit(main())
