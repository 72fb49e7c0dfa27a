"""Reading as a stage of a program's own Ray Data pipeline: a lazy dataset in, a lazy dataset of answers out."""

import asyncio
from collections.abc import Sequence
from functools import cached_property, partial
from os import PathLike

import pyarrow as pa
import ray
from ray.data import Dataset

from memagent_batch.apps.api.inputs import GivenQuestions, question_table
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.job import LogConfig, PoolConfig, RunConfig
from memagent_batch.config.problems import checked_section
from memagent_batch.config.sources import InputConfig
from memagent_batch.config.storage import Options, StorageOptions
from memagent_batch.data.documents.document_index import CARRY_PREFIX, require_carry_columns
from memagent_batch.data.documents.questions import asked_types, most_questions
from memagent_batch.data.store.location import absolute
from memagent_batch.data.store.turn_log.index import last_run_id, scan_turn_files
from memagent_batch.data.store.turn_log.question_list import AskedQuestion, with_hashes
from memagent_batch.data.store.turn_log.rows import ClosedRow, OutcomeRow
from memagent_batch.data.store.turn_log.writer import new_run_id
from memagent_batch.errors import InputError
from memagent_batch.run.budgets import fit_budgets_to_window, require_questions_fit
from memagent_batch.run.claim import require_log_place
from memagent_batch.run.executors.ray.board import start_board
from memagent_batch.run.executors.ray.executor import mapped, read_calls
from memagent_batch.run.executors.ray.session import with_long_loops
from memagent_batch.run.executors.reader import Reader, ReaderProcess, ReaderTask
from memagent_batch.run.executors.tokenise import RowColumns, tokenise_rows
from memagent_batch.run.projection import Origin, PartDocument, answer_row, answers_table, carried_columns
from memagent_batch.run.reading.documents import PlannedDocument, planned_documents
from memagent_batch.run.reading.follow_ups import checked_follow_ups, require_compiled
from memagent_batch.run.results import with_doubts, with_votes
from memagent_batch.run.tables import ANSWERS, AnswerRow
from memagent_batch.run.wiring import (
    files_of,
    identify_reader,
    make_engine,
    make_output,
    model_name,
    with_prompt_order,
)


def read(
    dataset: Dataset,
    agent: AgentConfig,
    *,
    questions: GivenQuestions,
    text: str = "text",
    document_id: str = "document_id",
    carry: str | Sequence[str] = (),
    log: str | PathLike[str] | None = None,
    storage_options: Options | None = None,
    follow_ups: FollowUpConfig = FollowUpConfig(),  # noqa: B008 - a frozen value
    pool: PoolConfig = PoolConfig(),  # noqa: B008
) -> Dataset:
    """Reads the text of each row for its questions, when the result is consumed.

    What goes wrong later is raised where the dataset is consumed, as with an id that is twice in a block (`InputError`)
    or an engine that can't start (`EngineStartError`). A text that is null or unreadable gives `failed` rows.

    Args:
        dataset: Rows with an id and a text each. It is not changed.
        agent: What reads.
        questions: Texts, `Question`s, mappings of the same fields, or the path of a question list.
        text: Column of the text.
        document_id: Column of the unique id.
        carry: Columns to carry into the answers, with their types.
        log: Where turns are kept, a path or URI, such as the output of a scan. What it holds now is not asked again.
        storage_options: Arguments of the file system of the log, and of a question list.
        follow_ups: What is asked after each answer.
        pool: The actors, with an engine each.

    Returns:
        One row for each reading, with the columns of the table `answers`, without those of a source, and those to
        carry. Each document is a block.

    Raises:
        SettingsError: the settings don't fit each other or the model, or a question is too long.
        InputError: a question can't be used, or the dataset is known to lack a column.
        OutputError: `log` is a place with files of something else, or can't be reached.
    """
    columns = RowColumns(document_id=document_id, text=text, carry=(carry,) if isinstance(carry, str) else tuple(carry))
    _require_columns(dataset, columns)
    options = StorageOptions(storage_options)
    task = _checked_task(agent, questions, log=log, options=options, follow_ups=follow_ups, pool=pool)
    asked: dict[str | None, list[int]] = {}  # rows of the question list by the document that they are bound to, if any
    for row, bound_to in enumerate(task.load_questions()["document_id"].to_pylist()):
        asked.setdefault(bound_to, []).append(row)
    tokenise = partial(
        tokenise_rows,
        agent=task.agent,
        columns=columns,
        asked=asked,
        samples=agent.sampling.samples,
        splits=follow_ups.evidence,
        tokenizer_sha256=files_of(task.agent, fingerprint=task.fingerprint).tokenizer.sha256,
    )
    return read_calls(mapped(with_long_loops(dataset), tokenise), AnswerReader, task=task)


def _checked_task(
    agent: AgentConfig,
    questions: GivenQuestions,
    *,
    log: str | PathLike[str] | None,
    options: StorageOptions,
    follow_ups: FollowUpConfig,
    pool: PoolConfig,
) -> ReaderTask:
    """What each actor is given. Agent, questions and log are looked at here: nothing may start that can't be used."""
    listed = question_table(questions, storage_options=options)
    make_engine(agent)
    agent = fit_budgets_to_window(with_prompt_order(agent, num_questions=most_questions(listed)))
    require_questions_fit(listed, agent)
    fingerprint = identify_reader(agent).fingerprint
    types = asked_types(listed)
    closes = checked_follow_ups(follow_ups, agent, types=types, fingerprint=fingerprint)
    require_compiled(types, agent)
    asked = with_hashes(listed)
    place = None if log is None else checked_section(RunConfig, output=absolute(log), storage_options=options)
    before, turn_files = "", {}
    if place is not None:
        output = require_log_place(make_output(place))
        before = last_run_id(output)
        turn_files = scan_turn_files(output, fingerprints=[fingerprint, *(closes.of_turns(types) if closes else ())])
    return ReaderTask(
        agent=agent,
        pool=pool,
        run_id=new_run_id(after=before),
        fingerprint=fingerprint,
        board=start_board(),
        place=place,
        log=LogConfig(),
        is_planned=False,
        load_turn_files=partial(ray.get, ray.put(turn_files)),
        load_questions=partial(_same, asked),
        follow_ups=None if closes is None else follow_ups,
    )


def _require_columns(dataset: Dataset, columns: RowColumns) -> None:
    """Checks what is known of the dataset before it runs."""
    names = checked_section(
        InputConfig,
        document_id_column=columns.document_id,
        text_column=columns.text,
        carry_columns=tuple(columns.carry),
    )
    require_carry_columns(names, reserved=ANSWERS.names)
    schema = dataset.schema(fetch_if_missing=False)
    if schema is None:
        return
    for name in (columns.document_id, columns.text, *columns.carry):
        if name not in schema.names:
            there = ", ".join(map(repr, schema.names)) or "none"
            raise InputError(
                f"the dataset has no column {name!r}; its columns: {there}; name the right ones with text=, "
                "document_id= and carry="
            )


def _same(questions: pa.Table) -> pa.Table:
    return questions


class AnswerReader(Reader):
    """A `Reader` whose readings become rows of `answers` at once; turns that the log holds are replayed."""

    def __init__(self, task: ReaderTask, process: ReaderProcess) -> None:
        super().__init__(task, process)
        self._origin = Origin(
            run_id=task.run_id,
            fingerprint=task.fingerprint,
            model=model_name(task.agent),
            extraction=task.agent.extraction,
        )

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """Reads a document for all its questions; in: a row of `CALL`, out: rows of `ANSWERS` and the carried columns.

        Never raises for what concerns a reading alone.
        """
        documents = planned_documents(batch)
        answers = await asyncio.gather(*map(self._answers, documents))
        fields = list(batch.schema.field("documents").type.value_type)
        schema = pa.schema([field for field in fields if field.name.startswith(CARRY_PREFIX)])
        carried = [document.carried for document, rows in zip(documents, answers, strict=True) for _ in rows]
        return answers_table(
            [row for rows in answers for row in rows],
            carried=carried_columns(pa.Table.from_pylist(carried, schema=schema)),
        )

    async def _answers(self, document: PlannedDocument) -> list[AnswerRow]:
        """The rows of a document; one without a text is read for no question."""
        has_text = bool(document.document_hash)
        described: PartDocument = {
            "document_id": document.document_id,
            "document_hash": document.document_hash or None,
            "error": None if has_text else str(document.document.error),
            "error_type": None,
            "readings": [],
        }
        readings: list[tuple[int, int, OutcomeRow | None, ClosedRow | None]] = [
            (question, sample, None, None) for question, sample in document.readings
        ]
        if has_text:
            ended = await self.read([document])
            readings = [(each.question, each.outcome["sample"], each.outcome, each.closed) for each in ended]
        rows = [
            answer_row(described, self._asked[question], outcome, sample=sample, origin=self._origin, closed=closed)
            for question, sample, outcome, closed in readings
        ]
        return with_doubts(with_votes(rows), [self._asked[question] for question, *_ in readings])

    @cached_property
    def _asked(self) -> list[AskedQuestion]:
        rows: list[AskedQuestion] = self.task.load_questions().to_pylist()
        return rows
