"""What turns the log of a run into rows of its tables: who read, how answers are taken, where texts stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from memagent_batch.config.job import JobConfig, TableFormat
from memagent_batch.config.sources import InputConfig
from memagent_batch.domain.answers import Extraction
from memagent_batch.files.location import Location
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.tables.results import ResultQuestion, result_questions
from memagent_batch.wiring import ReaderIdentity, make_prompt_set, make_prompt_tokens, make_texts_place


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a row of `answers` says of who made it, and how."""

    run_id: str
    """The run, for rows of readings that no run has read."""
    reader_fingerprint: str
    """The reader."""
    model: str
    """Name of the model, for rows of readings that never reached it."""
    extraction: Extraction
    """How answers are taken out of responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What turns a part of the plan into rows."""

    output: Location
    """The run's location."""
    run_id: str
    """The run; rows of older readings keep the id of the run that read them."""
    reader_fingerprint: str
    """The reader that turns and outcomes are of."""
    model: str
    """Name of the model, for rows of readings that never reached it."""
    first_memory: str
    """The memory before the first chunk."""
    keep_word: str
    """What the model writes to keep its memory; empty where it always writes a new one."""
    extraction: Extraction
    """How answers are taken out of responses."""
    table_format: TableFormat
    """File format."""
    opens_thought: bool = False
    """Whether each prompt ended inside a thought."""
    closings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Fingerprints of closing turns, by that under which the log keeps what they brought together."""
    has_evidence: bool = False
    """Whether there is a table `evidence`."""
    results: Mapping[str, ResultQuestion] = field(default_factory=dict)
    """Questions of the table `results` by question_id; without one there is no such table."""
    documents: Location | None = None
    """The documents, where texts are fetched from for evidence and locators."""
    input: InputConfig = InputConfig()  # noqa: RUF009 - a frozen value
    """Where texts stand in them."""

    @property
    def origin(self) -> Origin:
        """What each row of `answers` says of the run."""
        return Origin(
            run_id=self.run_id,
            reader_fingerprint=self.reader_fingerprint,
            model=self.model,
            extraction=self.extraction,
        )


def make_projection(output: Location, job: JobConfig, *, run_id: str, reader: ReaderIdentity, plan: Plan) -> Projection:
    """How rows are made of what one reader logged of a plan."""
    prompts = make_prompt_set(job.agent)
    return Projection(
        output=output,
        run_id=run_id,
        reader_fingerprint=reader.fingerprint,
        model=job.agent.model,
        first_memory=prompts.first_memory,
        keep_word=prompts.keep_word,
        extraction=job.agent.extraction,
        table_format=job.table_format,
        opens_thought=make_prompt_tokens(job.agent).opens_thought,
        closings=plan.asked.turns_of_closings(),
        has_evidence=plan.asked.closing is not None and plan.asked.closing.config.evidence,
        results=result_questions(plan.asked.table) if plan.asked.closing is not None else {},
        documents=make_texts_place(plan.pinned(job)),
        input=job.input,
    )
