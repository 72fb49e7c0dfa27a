"""`memagent evaluate run`: reads a suite with one or several policies or models, and scores the answers."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memagent_batch.cli.command import Command
from memagent_batch.cli.evaluate.suite import SuiteOptions
from memagent_batch.cli.options import MODEL
from memagent_batch.cli.settings import ReaderSettings
from memagent_batch.cli.sources import read_yaml, readable
from memagent_batch.config.job import RunConfig
from memagent_batch.config.section import merged
from memagent_batch.config.sources import SourceConfig
from memagent_batch.errors import SettingsError
from memagent_batch.masking import shown

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of variants, which name folders too."""

SET_BY_SUITE = frozenset({"output", *SourceConfig.model_fields})
"""Knobs that are the same for all variants, or the evaluation's to set."""


class Run(ReaderSettings, SuiteOptions, Command):
    """Reads a suite with one or several policies or models, and scores the answers."""

    command = "memagent evaluate run"
    common = ("suite", "output", "policies", "variants", *MODEL, "format", "score_on")
    unused = ("rollouts", "table_format", "adopt_output")
    examples = (
        "memagent evaluate run --suite suite/ --output eval/ --config job.yaml --policies overwrite truncate",
        "memagent evaluate run --suite suite/ --output eval/ --model my-model/ --variants variants.yaml",
    )
    page = "docs/how-to/evaluation.md"

    policies: tuple[str, ...] = ()
    """One variant for each kind of policy."""
    variants: Path | None = None
    """YAML file: names, and below each its own settings."""

    def run(self) -> None:
        """Runs the variants and prints their scores."""
        base = self.part(ReaderSettings)
        listed = read_variants(self.variants) if self.variants else {}
        knobs = policy_variants(self.policies) | listed or policy_variants([base.policy.kind])
        settings = {name: vary(base, changed, name=name) for name, changed in knobs.items()}
        from memagent_batch.evaluation.measures import score_table
        from memagent_batch.files.location import Location
        from memagent_batch.flows.evaluate import Variant, evaluate, require_variants

        variants = [
            Variant(name=name, knobs=knobs[name], agent=each.agent, run=each.part(RunConfig))
            for name, each in settings.items()
        ]
        output = Location(uri=base.output, storage_options=base.storage_options)
        scores = evaluate(
            variants,
            suite=Location(uri=self.suite, storage_options=base.storage_options),
            foreign_format=self.format,
            output=output,
            score_on=self.score_on,
        )
        print(score_table(scores))
        place = shown(base.output.rstrip("/"))
        print(f"\nevaluation {place}/evaluation.json, scores {place}/scores, runs {place}/runs")
        print(f"draw them with: memagent evaluate report {place}")
        require_variants(variants, output=output)


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
            raise SettingsError(f"{where} holds no settings; write them below it as in a job file")
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
