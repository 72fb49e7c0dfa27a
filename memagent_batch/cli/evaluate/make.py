"""`memagent evaluate make`: writes a suite of documents and questions, from a seed, or of a user's own questions."""

import re
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from memagent_batch.cli.command import StorageCommand
from memagent_batch.cli.options import nearest_name
from memagent_batch.config.section import Count, Section, Text
from memagent_batch.domain.scores import TEXT_METRICS, Metric
from memagent_batch.errors import SettingsError

if TYPE_CHECKING:
    from memagent_batch.evaluation.make import SuitePlan
    from memagent_batch.files.location import Location

_LENGTH = re.compile(r"([0-9]+|[0-9]+\.[0-9]+)([KM]?)", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2}
ALL = ("all",)


class Columns(Section):
    """Columns of the documents of `--from-questions`."""

    document_id_column: str = "document_id"
    """Column of the documents with their ids."""
    text_column: str = "text"
    """Column of the documents with their texts."""


class Make(StorageCommand):
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
    tasks: tuple[str, ...] = ALL
    """Names, or all that have their file (default)."""
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
    hotpotqa: str | None = None
    """HotpotQA file, JSON; for qa_hotpot and ruler_hqa."""
    squad: str | None = None
    """SQuAD file, JSON; for qa_squad."""
    num_documents: tuple[Count, ...] = ()
    """Lengths for ruler_hqa: 50 to 25600."""
    from_questions: str | None = None
    """Your own question list, each with references."""
    documents: tuple[str, ...] = ()
    """What these are asked of: files, folders, globs."""
    metric: Metric = Metric.SUB_EM
    """Metric of these, if they ask for no type."""
    input: Columns = Columns()
    """Columns of these documents."""

    def run(self) -> None:
        """Makes the suite."""
        if self.from_questions:
            self._make_own(self.from_questions)
            return
        if self.documents:
            raise SettingsError("--documents: they belong to --from-questions, which is missing")
        from memagent_batch.evaluation.make import make_suite, read_suite_inputs

        plan = self._plan()
        inputs = read_suite_inputs(
            model=self.model,
            essays=self.essays,
            hotpotqa=self.hotpotqa,
            squad=self.squad,
            storage_options=self.storage_options,
        )
        output = self.locate(self.output)
        is_new = make_suite(plan, inputs.materials, output, inputs=inputs.record, say=partial(print, flush=True))
        self._print_next(output, is_new=is_new)

    def _make_own(self, questions: str) -> None:
        for name in ("lengths", "num_documents", "essays", "hotpotqa", "squad", "typed", "tasks"):
            if name in self.model_fields_set:
                raise SettingsError(f"--{name.replace('_', '-')}: it does not belong to --from-questions; leave it out")
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
        from memagent_batch.evaluation.make import SuitePlan, all_tasks
        from memagent_batch.evaluation.tasks import TASKS

        tasks = tuple(dict.fromkeys(self.tasks))
        if self.tasks == ALL:
            tasks = all_tasks(given=[name for name in ("hotpotqa", "squad") if getattr(self, name)])
            tasks = tuple(name for name in tasks if self.num_documents or not TASKS[name].by_documents)
        _require_tasks(tasks, TASKS)
        for by_documents, option in ((False, "lengths"), (True, "num_documents")):
            needing = [name for name in tasks if TASKS[name].by_documents is by_documents]
            if needing and not getattr(self, option):
                raise SettingsError(f"--{option.replace('_', '-')}: missing; {needing[0]} needs at least one")
        return SuitePlan(
            tasks=tasks,
            lengths=tuple(sorted({parse_length(text) for text in self.lengths})),
            num_documents=tuple(sorted(set(self.num_documents))),
            samples=self.samples,
            seed=self.seed,
            typed=self.typed,
        )


def parse_length(text: str) -> int:
    """A length in tokens: a number, or one with K (1,024) or M (1,048,576).

    Raises:
        SettingsError: it is no such number, or too small for a suite.
    """
    from memagent_batch.evaluation.haystacks import SHORTEST_TOKENS

    match = _LENGTH.fullmatch(text)
    if match is None:
        raise SettingsError(f"--lengths: {text!r} is not a length in tokens; write it as 4096, 8K, 3.5M")
    length = round(float(match[1]) * _UNITS[match[2].upper()])
    if length < SHORTEST_TOKENS:
        raise SettingsError(f"--lengths: {text!r} is too short; documents have {SHORTEST_TOKENS} tokens or more")
    return length


def _require_tasks(names: Iterable[str], known: Iterable[str]) -> None:
    """Refuses a task that is not there, with the nearest one."""
    known = list(known)
    for name in names:
        if name not in known:
            near = nearest_name(name, known)
            advice = f"did you mean {near}?" if near else f"choose from {', '.join(known)}, or all"
            raise SettingsError(f"--tasks: there is no task {name!r}; {advice}")
