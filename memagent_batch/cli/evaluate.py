"""`memagent evaluate`: makes suites, reads and scores them, and reports."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import ValidationError
from pydantic_settings import NoDecode

from memagent_batch.cli.options import MODEL, read_yaml, readable
from memagent_batch.cli.settings import ReaderSettings, StorageCommand
from memagent_batch.config.job import RunConfig
from memagent_batch.config.problems import remedy
from memagent_batch.config.section import Count, Text, TextOrTexts, merged
from memagent_batch.config.sources import InputConfig, SourceConfig
from memagent_batch.errors import SettingsError
from memagent_batch.loop.scores import TEXT_METRICS, Metric
from memagent_batch.loop.texts.escapes import unescaped
from memagent_batch.masking import mask_url, printable

if TYPE_CHECKING:
    from memagent_batch.apps.evaluation.suite import Suite, SuitePlan

_LENGTH = re.compile(r"([0-9]+|[0-9]+\.[0-9]+)([KM]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2}
EVERY_TASK = ("all",)
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names of variants, which name folders too."""
SET_BY_SUITE = frozenset({"output", *SourceConfig.model_fields})
"""Settings that are the same for all variants, or the evaluation's to set."""


class MakeSuite(StorageCommand):
    """Writes a suite of documents and questions at any list of lengths, from a seed."""

    command = "memagent evaluate make"
    examples = (
        "memagent evaluate make --output suite/ --lengths 8K 128K 1M",
        "memagent evaluate make --output suite/ --lengths 8K --tasks niah_single_1 absent --typed",
    )
    pages = ("docs/how-to/evaluation.md",)

    output: Text
    """The suite's folder or fsspec URL."""
    model: Text = "tiny"
    """Model whose tokens count the lengths: `tiny`, a model folder or hub name."""
    tasks: tuple[str, ...] = EVERY_TASK
    """Names of tasks, or all."""
    lengths: tuple[str, ...] = ()
    """Tokens of a document: 4096, 8K (x1,024), 3.5M."""
    samples: Count = 20
    """Documents of each task and length."""
    seed: int = 0
    """The same seed makes the same suite."""
    typed: bool = False
    """Ask for a number if a task's answer is one."""

    def run(self) -> None:
        from memagent_batch.apps.evaluation.suite import make_suite

        output = self.locate(self.output)
        if make_suite(self._plan(), self.model, output, say=partial(print, flush=True)):
            print(f"read it with: memagent evaluate run --suite {output} --output FOLDER --model {self.model}")
        else:
            print(f"{output} holds this suite already; nothing to do")

    def _plan(self) -> "SuitePlan":
        from memagent_batch.apps.evaluation.suite import SuitePlan
        from memagent_batch.apps.evaluation.tasks import TASKS

        tasks = tuple(dict.fromkeys(self.tasks))
        if self.tasks == EVERY_TASK:
            tasks = tuple(TASKS)
        for name in tasks:
            if name not in TASKS:
                near = remedy(name, TASKS, see="docs/reference/tasks-and-metrics.md")
                raise SettingsError(f"--tasks: {name!r} is not a task; {near}")
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
    from memagent_batch.apps.evaluation.haystacks import MIN_TOKENS

    match = _LENGTH.fullmatch(text)
    if match is None:
        raise SettingsError(f"--lengths: {text!r} is not a length in tokens; write it as 4096, 8K, 3.5M")
    length = round(float(match[1]) * _UNITS[match[2].upper()])
    if length < MIN_TOKENS:
        raise SettingsError(f"--lengths: {text!r} is too short; documents have {MIN_TOKENS} tokens or more")
    return length


class RunSuite(ReaderSettings, StorageCommand):
    """Reads a suite, or your own questions with references, with one or several policies or models, and scores the
    answers.
    """

    command = "memagent evaluate run"
    common = ("suite", "documents", "questions", "metric", "output", "policies", "variants", *MODEL)
    replaces: ClassVar[Mapping[str, tuple[str, ...]]] = {"suite": ("documents", "questions", "input")}
    unused = ("rollouts", "adopt_output", "accepted_unread")
    examples = (
        "memagent evaluate run --suite suite/ --output eval/ --config job.yaml --policies overwrite truncate",
        "memagent evaluate run --documents lake/ --questions gold.jsonl --output eval/ --variants variants.yaml",
    )
    pages = ("docs/how-to/evaluation.md",)

    suite: Text | None = None
    """Folder of `evaluate make`."""
    questions: str | None = None
    """Your own question list in place of a suite, each with references."""
    metric: Metric = Metric.SUB_EM
    """Metric of these questions, if they ask for no type."""
    documents: Annotated[TextOrTexts, NoDecode] = ()
    """What your own questions are asked of: files, folders, globs."""
    input: InputConfig = InputConfig()
    """Where texts stand in these documents."""
    policies: tuple[str, ...] = ()
    """One variant for each kind of policy."""
    variants: Path | None = None
    """YAML file with a name for each variant, and its settings."""

    def run(self) -> None:
        base = self.part(ReaderSettings)
        listed = read_variants(self.variants) if self.variants else {}
        changes = policy_variants(self.policies) | listed or policy_variants([base.policy.kind])
        settings = {name: vary(base, changed, name=name) for name, changed in changes.items()}
        from memagent_batch.apps.evaluation.evaluate import Variant, evaluate_suite, require_variants

        suite = self._suite()
        variants = [Variant(name=name, agent=each.agent, run=each.part(RunConfig)) for name, each in settings.items()]
        output = self.locate(self.output)
        report = evaluate_suite(variants, suite=suite, sources=self._sources(), output=output)
        print(terminal_text(report))
        place = mask_url(self.output.rstrip("/"))
        print(f"\nscores {place}/scores; what went wrong, with each memory: memagent page {place}/runs/NAME")
        require_variants(variants, output=output)

    def _suite(self) -> "Suite":
        """The suite, or the questions as one; one of them is named."""
        from memagent_batch.apps.evaluation.suite import open_suite, own_suite

        if self.suite is not None:
            if self.questions or self.documents or "metric" in self.model_fields_set:
                raise SettingsError("--suite: it has its own documents, questions and metrics; leave yours out, or it")
            return open_suite(self.locate(self.suite))
        if self.questions is None:
            raise SettingsError("--suite: missing; name a suite, or your own --questions with references")
        if self.metric not in TEXT_METRICS:
            raise SettingsError(f"--metric: choose one of {', '.join(TEXT_METRICS)}")
        return own_suite(self.locate(self.questions), documents=self.documents, metric=self.metric)

    def _sources(self) -> dict[str, Any]:
        if self.suite is None:
            return {"documents": self.documents, "questions": self.questions, "input": self.input}
        from memagent_batch.apps.evaluation.suite import DOCUMENTS_FOLDER, QUESTIONS_FILE

        folder = self.suite.rstrip("/")
        return {"documents": (f"{folder}/{DOCUMENTS_FOLDER}",), "questions": f"{folder}/{QUESTIONS_FILE}"}


def terminal_text(report: str) -> str:
    """A report in Markdown as a terminal shows it, without control characters."""
    return "\n".join(map(printable, unescaped(report).splitlines()))


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
