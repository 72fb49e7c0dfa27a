"""`memagent evaluate`: makes suites, reads and scores them, and reports."""

import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from memagent_batch.cli.options import MODEL, read_yaml, readable
from memagent_batch.cli.settings import Command, JsonCommand, ReaderSettings, StorageCommand
from memagent_batch.config.job import RunConfig
from memagent_batch.config.problems import nearest_name
from memagent_batch.config.section import Count, Section, Text, merged
from memagent_batch.config.sources import SourceConfig
from memagent_batch.domain.scores import TEXT_METRICS, Metric
from memagent_batch.errors import SettingsError
from memagent_batch.masking import mask_url

if TYPE_CHECKING:
    from memagent_batch.evaluation.make import SuitePlan
    from memagent_batch.store.location import Location

_LENGTH = re.compile(r"([0-9]+|[0-9]+\.[0-9]+)([KM]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2}
EVERY_TASK = ("all",)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of variants, which name folders too."""
SET_BY_SUITE = frozenset({"output", *SourceConfig.model_fields})
"""Settings that are the same for all variants, or the evaluation's to set."""
log = logging.getLogger(__name__)


class Columns(Section):
    """Columns of the documents of `--from-questions`."""

    document_id_column: str = "document_id"
    """Column of the documents with their ids."""
    text_column: str = "text"
    """Column of the documents with their texts."""


class MakeSuite(StorageCommand):
    """Writes a suite of documents and questions: at any list of lengths, from a seed; or your own questions."""

    command = "memagent evaluate make"
    examples = (
        "memagent evaluate make --output suite/ --lengths 8K 128K 1M",
        "memagent evaluate make --output suite/ --from-questions gold.jsonl --documents lake/",
    )
    page = "docs/how-to/evaluation.md"

    output: Text
    """The suite's folder, or any fsspec URL."""
    model: Text = "tiny"
    """Lengths are counted in tokens of this model: `tiny`, a model folder or hub name."""
    tasks: tuple[str, ...] = EVERY_TASK
    """Names, or all (default)."""
    lengths: tuple[str, ...] = ()
    """Tokens of a document: 4096, 8K (x1,024), 3.5M."""
    samples: Count = 20
    """Documents of each task and length."""
    seed: int = 0
    """The same seed makes the same suite."""
    typed: bool = False
    """Ask for a number or a label if a task's answer is one."""
    essays: str | None = None
    """Folder of .txt or .md files to hide needles in; the project's own without it."""
    from_questions: str | None = None
    """Your own question list, each with references."""
    documents: tuple[str, ...] = ()
    """What these are asked of: files, folders, globs."""
    metric: Metric = Metric.SUB_EM
    """Metric of these, if they ask for no type."""
    input: Columns = Columns()
    """Columns of these documents."""

    def run(self) -> None:
        if self.from_questions:
            self._make_own(self.from_questions)
            return
        if self.documents:
            raise SettingsError("--documents: they belong to --from-questions, which is missing")
        from memagent_batch.evaluation.make import make_suite, read_suite_inputs

        plan = self._plan()
        inputs = read_suite_inputs(model=self.model, essays=self.essays, storage_options=self.storage_options)
        output = self.locate(self.output)
        is_new = make_suite(plan, inputs, output, say=partial(print, flush=True))
        self._print_next(output, is_new=is_new)

    def _make_own(self, questions: str) -> None:
        for name in ("lengths", "essays", "typed", "tasks"):
            if name in self.model_fields_set:
                raise SettingsError(f"--{name}: it does not belong to --from-questions; leave it out")
        if not self.documents:
            raise SettingsError("--documents: missing; name what the questions of --from-questions are asked of")
        if self.metric not in TEXT_METRICS:
            raise SettingsError(f"--metric: choose one of {', '.join(TEXT_METRICS)}")
        from memagent_batch.config.sources import InputConfig
        from memagent_batch.evaluation.own import OwnSuite, make_own_suite

        own = OwnSuite(
            documents=tuple(map(self.locate, self.documents)),
            questions=self.locate(questions),
            settings=InputConfig(**self.input.model_dump()),
            metric=self.metric,
        )
        output = self.locate(self.output)
        self._print_next(output, is_new=make_own_suite(own, output, say=partial(print, flush=True)))

    def _print_next(self, output: "Location", *, is_new: bool) -> None:
        if is_new:
            print(f"read it with: memagent evaluate run --suite {output} --output FOLDER --model {self.model}")
        else:
            print(f"{output} holds this suite already; nothing to do")

    def _plan(self) -> "SuitePlan":
        from memagent_batch.evaluation.make import SuitePlan
        from memagent_batch.evaluation.tasks import TASKS

        tasks = tuple(dict.fromkeys(self.tasks))
        if self.tasks == EVERY_TASK:
            tasks = tuple(TASKS)
        _require_tasks(tasks, TASKS)
        if not self.lengths:
            raise SettingsError(f"--lengths: missing; {tasks[0]} needs at least one")
        return SuitePlan(
            tasks=tasks,
            lengths=tuple(sorted({parse_length(text) for text in self.lengths})),
            samples=self.samples,
            seed=self.seed,
            typed=self.typed,
        )


def parse_length(text: str) -> int:
    """A length in tokens: a number, or one with K (1,024) or M (1,048,576)."""
    from memagent_batch.evaluation.haystacks import MIN_TOKENS

    match = _LENGTH.fullmatch(text)
    if match is None:
        raise SettingsError(f"--lengths: {text!r} is not a length in tokens; write it as 4096, 8K, 3.5M")
    length = round(float(match[1]) * _UNITS[match[2].upper()])
    if length < MIN_TOKENS:
        raise SettingsError(f"--lengths: {text!r} is too short; documents have {MIN_TOKENS} tokens or more")
    return length


class RunSuite(ReaderSettings, Command):
    """Reads a suite with one or several policies or models, and scores the answers."""

    command = "memagent evaluate run"
    common = ("suite", "output", "policies", "variants", *MODEL)
    unused = ("rollouts", "table_format", "adopt_output", "accepted_unread")
    examples = (
        "memagent evaluate run --suite suite/ --output eval/ --config job.yaml --policies overwrite truncate",
        "memagent evaluate run --suite suite/ --output eval/ --model my-model/ --variants variants.yaml",
    )
    page = "docs/how-to/evaluation.md"

    suite: Text
    """Folder of `evaluate make`."""
    policies: tuple[str, ...] = ()
    """One variant for each kind of policy."""
    variants: Path | None = None
    """YAML file: names, and below each its own settings."""

    def run(self) -> None:
        base = self.part(ReaderSettings)
        listed = read_variants(self.variants) if self.variants else {}
        changes = policy_variants(self.policies) | listed or policy_variants([base.policy.kind])
        settings = {name: vary(base, changed, name=name) for name, changed in changes.items()}
        from memagent_batch.evaluation.measures import score_table
        from memagent_batch.flows.evaluate import Variant, evaluate_suite, require_variants
        from memagent_batch.store.location import Location

        variants = [Variant(name=name, agent=each.agent, run=each.part(RunConfig)) for name, each in settings.items()]
        output = Location(uri=base.output, storage_options=base.storage_options)
        scores = evaluate_suite(
            variants,
            suite=Location(uri=self.suite, storage_options=base.storage_options),
            output=output,
        )
        print(score_table(scores))
        place = mask_url(base.output.rstrip("/"))
        print(f"\nevaluation {place}/evaluation.json, scores {place}/scores, runs {place}/runs")
        print(f"draw them with: memagent evaluate report {place}")
        require_variants(variants, output=output)


def read_variants(file: Path) -> dict[str, dict[str, object]]:
    """Settings by the name of the variant, from a YAML file: a name, and below it settings as in a job file."""
    variants = read_yaml(file, option="--variants")
    if not isinstance(variants, dict) or not variants:
        raise SettingsError(f"--variants: {file} holds no variants; write `name: {{policy: {{chunk_tokens: 1000}}}}`")
    for name, settings in variants.items():
        where = f"--variants: {file}, variant {name!r}"
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise SettingsError(f"{where}: a name has letters, digits, dots, underscores and hyphens; write another")
        if not isinstance(settings, dict | None):
            raise SettingsError(f"{where} holds no settings; write them below it as in a job file")
        if reserved := sorted(SET_BY_SUITE.intersection(settings or {})):
            raise SettingsError(f"{where} sets {reserved[0]}, which is the same for all variants; take it out")
    return {name: settings or {} for name, settings in variants.items()}


def policy_variants(kinds: Sequence[str]) -> dict[str, dict[str, object]]:
    """One variant for each kind of policy, named after it."""
    return {kind: {"policy": {"kind": kind}} for kind in kinds}


def vary(base: ReaderSettings, settings: Mapping[str, Any], *, name: str) -> ReaderSettings:
    """The base settings with a variant's settings over them, group by group."""
    try:
        return ReaderSettings(**merged(base.model_dump(exclude_unset=True), settings))
    except ValidationError as error:
        raise SettingsError(f"variant {name!r}: {readable(error, kind=ReaderSettings)}") from error
    except SettingsError as error:
        raise SettingsError(f"variant {name!r}: {error}") from error


class Score(StorageCommand, JsonCommand):
    """Scores any answers table against a suite."""

    command = "memagent evaluate score"
    examples = (
        "memagent evaluate score --answers eval/runs/overwrite/ --suite suite/",
        "memagent evaluate score --answers answers.parquet --suite suite/ --output scores.parquet --json",
    )
    page = "docs/how-to/evaluation.md"

    answers: Text
    """Output of a run, or Parquet or Arrow files with the columns document_id, question_id and answer."""
    suite: Text
    """Folder of `evaluate make`."""
    variant: str = "answers"
    """Name of what is scored."""
    output: str | None = None
    """File to write the scores to, one row for each reading, as Parquet."""

    def run(self) -> None:
        from memagent_batch.evaluation.measures import measure, score_table
        from memagent_batch.evaluation.scoring import score_run, summarise

        scored = score_run(
            self.locate(self.answers),
            suite=self.locate(self.suite),
            variant=self.variant,
        )
        if self.output:
            from memagent_batch.store.parquet import parquet_bytes

            self.locate(self.output).write_bytes(parquet_bytes(scored.scores))
        if self.as_json:
            cells = [asdict(cell) for cell in summarise(scored.scores)]
            measures = [asdict(each) for each in measure(scored.scores)]
            print(json.dumps({"cells": cells, "measures": measures}, indent=2, ensure_ascii=False))
        else:
            print(score_table(scored.scores))
        if scored.num_unmatched:
            log.warning(f"left out: {scored.num_unmatched} answers to questions that the suite does not ask")


class ReportEvaluation(StorageCommand):
    """Writes one page with scores, charts and every failure's memory trace; starts no engine."""

    command = "memagent evaluate report"
    examples = ("memagent evaluate report eval/", "memagent evaluate report eval/ --to report/")
    page = "docs/how-to/evaluation.md"
    words = ("output",)

    output: Text
    """The output of `evaluate run`: a folder or any fsspec URL."""
    to: str | None = None
    """Where report.html goes (default: OUTPUT/report)."""

    def run(self) -> None:
        from memagent_batch.evaluation.report.report import REPORT_FOLDER, write_report

        output = self.locate(self.output)
        target = self.locate(self.to) if self.to else output / REPORT_FOLDER
        print(json.dumps(write_report(output, target=target), indent=2, ensure_ascii=False))


def _require_tasks(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuses a task that is not there, with the nearest one."""
    known = list(known)
    for name in names:
        if name not in known:
            near = nearest_name(name, known)
            advice = f"did you mean {near}?" if near else f"choose from {', '.join(known)}, or all"
            raise SettingsError(f"--tasks: there is no task {name!r}; {advice}")
