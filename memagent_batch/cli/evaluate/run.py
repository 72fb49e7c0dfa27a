"""`memagent evaluate run`: reads a suite with one or several policies or models, and scores the answers."""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memagent_batch.cli.evaluate.suite_options import add_suite_options
from memagent_batch.cli.main import parse_options, run_command, settings_from
from memagent_batch.cli.options import INPUT, MODEL, Manual, OptionParser
from memagent_batch.cli.settings import ReaderSettings, read_yaml, readable
from memagent_batch.config.job import RunConfig
from memagent_batch.config.section import merged
from memagent_batch.config.sources import SourceConfig
from memagent_batch.errors import SettingsError
from memagent_batch.masking import shown

MANUAL = Manual(
    command="memagent evaluate run",
    about="Reads a suite with one or several policies or models, and scores the answers.",
    knobs=ReaderSettings,
    common=("output", *MODEL),
    unused=("rollouts", "table_format", "adopt_output"),
    examples=(
        "memagent evaluate run --suite suite/ --output eval/ --config job.yaml --policies overwrite truncate",
        "memagent evaluate run --suite suite/ --output eval/ --model my-model/ --variants variants.yaml",
    ),
    page="docs/how-to/evaluation.md",
)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of variants, which name folders too."""

SET_BY_SUITE = frozenset({"output", *SourceConfig.model_fields})
"""Knobs that are the same for all variants, or the evaluation's to set."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the variants and prints their scores; returns the exit code."""
    return run_command(partial(_run_variants, sys.argv[1:] if arguments is None else arguments))


def read_variants(file: Path) -> dict[str, dict[str, object]]:
    """Knobs by the name of the variant, from a YAML file: a name, and below it knobs as in a job file.

    Raises:
        SettingsError: the file can't be read, a name is no name, or a knob is not a variant's to set.
    """
    variants = read_yaml(file, option="--variants")
    if not isinstance(variants, dict) or not variants:
        raise SettingsError(f"--variants: {file} holds no variants; write `name: {{policy: {{chunk_tokens: 1000}}}}`")
    for name, knobs in variants.items():
        where = f"--variants: {file}, variant {name!r}"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise SettingsError(f"{where}: a name has letters, digits, dots, underscores and hyphens; write another")
        if not isinstance(knobs, dict | None):
            raise SettingsError(f"{where} holds no knobs; write them below it as in a job file")
        if reserved := sorted(SET_BY_SUITE.intersection(knobs or {})):
            raise SettingsError(f"{where} sets {reserved[0]}, which is the same for all variants; take it out")
    return {name: knobs or {} for name, knobs in variants.items()}


def policy_variants(kinds: Sequence[str]) -> dict[str, dict[str, object]]:
    """One variant for each kind of policy, named after it."""
    return {kind: {"policy": {"kind": kind}} for kind in kinds}


def vary(base: ReaderSettings, knobs: Mapping[str, Any], *, name: str) -> ReaderSettings:
    """The base settings with a variant's knobs over them, group by group.

    Raises:
        SettingsError: a knob is unknown or wrong; names variant and knob.
    """
    try:
        return ReaderSettings(**merged(base.model_dump(exclude_unset=True), knobs))
    except ValidationError as error:
        raise SettingsError(f"variant {name!r}: {readable(error, kind=ReaderSettings)}") from error
    except SettingsError as error:
        raise SettingsError(f"variant {name!r}: {error}") from error


def _run_variants(arguments: Sequence[str]) -> None:
    for name in INPUT:
        if any(argument.split("=")[0] == f"--{name}" for argument in arguments):
            raise SettingsError(f"--{name}: the suite brings documents and questions; leave it out")
    options = parse_options(_run_parser(), arguments)
    base = settings_from(ReaderSettings, options)
    listed = read_variants(options.variants) if options.variants else {}
    knobs = policy_variants(options.policies) | listed or policy_variants([base.policy.kind])
    settings = {name: vary(base, changed, name=name) for name, changed in knobs.items()}
    from memagent_batch.domain.scoring.scores import ScoreOn
    from memagent_batch.evaluation.score_table import score_table
    from memagent_batch.evaluation.suites.foreign import ForeignFormat
    from memagent_batch.files.location import Location
    from memagent_batch.flows.evaluate import Variant, evaluate, require_variants

    variants = [
        Variant(name=name, knobs=knobs[name], agent=each.agent, run=each.part(RunConfig))
        for name, each in settings.items()
    ]
    output = Location(uri=base.output, storage_options=base.storage_options)
    scores = evaluate(
        variants,
        suite=Location(uri=options.suite, storage_options=base.storage_options),
        foreign_format=ForeignFormat(options.format) if options.format else None,
        output=output,
        score_on=ScoreOn(options.score_on),
    )
    print(score_table(scores))
    place = shown(base.output.rstrip("/"))
    print(f"\nevaluation {place}/evaluation.json, scores {place}/scores, runs {place}/runs")
    print(f"draw them with: memagent evaluate report {place}")
    require_variants(variants, output=output)


def _run_parser() -> OptionParser:
    parser = OptionParser(MANUAL)
    add_suite_options(parser)
    parser.add_argument("--policies", nargs="+", metavar="KIND", default=[], help="one variant for each kind of policy")
    parser.add_argument("--variants", type=Path, metavar="FILE", help="YAML file: names, and below each its own knobs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
