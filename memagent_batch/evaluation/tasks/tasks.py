"""All tasks of a suite by name: what each asks, how it is scored, and which file it needs."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from memagent_batch.domain.closing.answer_types import Label, Number, ValueType
from memagent_batch.domain.scoring.scores import Metric
from memagent_batch.errors import SettingsError
from memagent_batch.evaluation.tasks.changed import make_latest
from memagent_batch.evaluation.tasks.claims import (
    make_absent_near,
    make_conflict,
    make_stated,
    make_status,
)
from memagent_batch.evaluation.tasks.corpora import Corpus
from memagent_batch.evaluation.tasks.linked import Order, make_linked, make_pair
from memagent_batch.evaluation.tasks.niah import FORMS, make_banded, make_near, make_niah
from memagent_batch.evaluation.tasks.questions import make_hqa, make_qa
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample
from memagent_batch.evaluation.tasks.tracking import make_chain
from memagent_batch.evaluation.tasks.wordings import STATUSES
from memagent_batch.evaluation.tasks.words import make_frequent

Make = Callable[[SampleRequest, Materials], SuiteSample]
"""Makes one sample."""


class QuestionSource(StrEnum):
    """A file that a task takes its questions from."""

    HOTPOTQA = "hotpotqa"
    """A HotpotQA file."""
    SQUAD = "squad"
    """A SQuAD file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTask:
    """One kind of test."""

    make: Make
    """Makes a sample."""
    metric: Metric
    """The task's own metric."""
    source: QuestionSource | None = None
    """File that it needs, if any."""
    value_type: ValueType | None = None
    """Type of its answers, which the questions of a typed suite ask for; None where they have none."""
    by_documents: bool = False
    """Whether its length is a number of paragraphs, and not of tokens."""


def corpus_of(materials: Materials, source: QuestionSource) -> Corpus:
    """The corpus that was read from the file.

    Raises:
        SettingsError: no such file was given.
    """
    corpus = materials.hotpotqa if source is QuestionSource.HOTPOTQA else materials.squad
    if corpus is None:
        raise SettingsError(f"--{source}: missing; give the file, or leave out the tasks that need it")
    return corpus


def _make_qa(request: SampleRequest, materials: Materials, *, task: str, source: QuestionSource) -> SuiteSample:
    return make_qa(request, materials, task=task, corpus=corpus_of(materials, source))


def _make_hqa(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    return make_hqa(request, materials, task=task, corpus=corpus_of(materials, QuestionSource.HOTPOTQA))


_one_number = partial(SuiteTask, metric=Metric.EM, value_type=Number())

TASKS: dict[str, SuiteTask] = {
    **{
        name: SuiteTask(
            make=partial(make_niah, task=name, form=form),
            metric=Metric.RULER_ALL,
            value_type=Number() if form.has_one_number else None,
        )
        for name, form in FORMS.items()
    },
    "niah_near": SuiteTask(make=partial(make_near, task="niah_near"), metric=Metric.RULER_ALL, value_type=Number()),
    "niah_bands": SuiteTask(make=partial(make_banded, task="niah_bands"), metric=Metric.RULER_ALL, value_type=Number()),
    "vt": SuiteTask(make=partial(make_chain, task="vt"), metric=Metric.RULER_ALL),
    **{
        f"vt_{order}": SuiteTask(make=partial(make_chain, task=f"vt_{order}", order=order), metric=Metric.RULER_ALL)
        for order in (Order.REVERSED, Order.ANY)
    },
    **{f"chain_{order}": _one_number(make=partial(make_linked, task=f"chain_{order}", order=order)) for order in Order},
    "pair": _one_number(make=partial(make_pair, task="pair")),
    "latest": _one_number(make=partial(make_latest, task="latest")),
    "fwe": SuiteTask(make=partial(make_frequent, task="fwe"), metric=Metric.RULER_ALL),
    "conflict": _one_number(make=partial(make_conflict, task="conflict")),
    "status": SuiteTask(make=partial(make_status, task="status"), metric=Metric.EM, value_type=Label(*STATUSES)),
    "stated": _one_number(make=partial(make_stated, task="stated", is_stated=True)),
    "absent": _one_number(make=partial(make_stated, task="absent", is_stated=False)),
    "absent_near": _one_number(make=partial(make_absent_near, task="absent_near")),
    "qa_squad": SuiteTask(
        make=partial(_make_qa, task="qa_squad", source=QuestionSource.SQUAD),
        metric=Metric.RULER_ANY,
        source=QuestionSource.SQUAD,
    ),
    "qa_hotpot": SuiteTask(
        make=partial(_make_qa, task="qa_hotpot", source=QuestionSource.HOTPOTQA),
        metric=Metric.RULER_ANY,
        source=QuestionSource.HOTPOTQA,
    ),
    "ruler_hqa": SuiteTask(
        make=partial(_make_hqa, task="ruler_hqa"),
        metric=Metric.SUB_EM,
        source=QuestionSource.HOTPOTQA,
        by_documents=True,
    ),
}
"""Every task, in the order in which a suite holds them."""
