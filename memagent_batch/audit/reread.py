"""Asks an engine again for turns of a run, and compares the tokens with those of the log."""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.budgets import fit_budgets_to_window
from memagent_batch.config.job import JobConfig
from memagent_batch.documents.questions import asked_types
from memagent_batch.domain.addresses import ReadingAddress, permanent_number
from memagent_batch.domain.readings import Status
from memagent_batch.domain.texts.sentences import Sentences, split_sentences
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.errors import DocumentError, NotReadError, ReadingError, SettingsError
from memagent_batch.logs import quiet_libraries
from memagent_batch.prompts.built_in import BUILT_IN_PROMPTS
from memagent_batch.reading.agent import Questions, make_agent
from memagent_batch.reading.documents import unreadable, with_breaks
from memagent_batch.reading.follow_ups import Tracer, checked_follow_ups, close_reading, require_compiled
from memagent_batch.reading.read import read
from memagent_batch.reading.turns import ReadingTurns, ReplayOnly
from memagent_batch.runs.document_texts import DocumentText, DocumentTexts
from memagent_batch.runs.history import PastRun
from memagent_batch.runs.reading_state import with_log_files
from memagent_batch.store.turn_log.index import reading_key, scan_log
from memagent_batch.store.turn_log.turns import read_turns
from memagent_batch.wiring import identify_reader, make_engine, make_tokenizer

IN_FLIGHT = 64
"""Turns that the engine is asked at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnReading:
    """A reading of the run; some of its turns are asked again."""

    document_id: str
    question: int
    address: ReadingAddress

    def number(self, seed: int, *, path: str = "") -> str:
        """Its permanent random number, or that of one of its turns."""
        at = self.address
        return permanent_number(str(seed), at.document_hash, at.question_hash, str(at.sample), at.fingerprint, path)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LoggedTurn:
    """A turn of the log with its prompt."""

    reading: DrawnReading
    prompt: Prompt
    completion: Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentTurn:
    """A turn that the engine answers with other tokens than the log has."""

    document_id: str
    question_id: str
    sample: int
    path: str
    first_difference: int
    """Position of the first token that is other, from 0."""


@dataclass(slots=True, kw_only=True)
class Reread:
    """What became of the turns that were drawn. Mutable: the turns end one after another."""

    num_drawn: int = 0
    """Turns that were drawn, those of follow-up questions among them."""
    num_asked: int = 0
    """Turns that the engine was asked again."""
    different: list[DifferentTurn] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)


def reread(past: PastRun, job: JobConfig, *, texts: DocumentTexts, log: Sequence[str], num: int, seed: int) -> Reread:
    """Draws turns of a run and asks the engine of the job for them again.

    Raises:
        SettingsError: the agent of the job is not the one that read.
        EngineStartError: the engine can't start.
        MemagentError: the engine is gone.
    """
    replay, result = Replay(past, job_of_run(past, job), texts=texts, log=log), Reread()
    asyncio.run(_ask_drawn(replay, result, num=num, seed=seed))
    return result


def job_of_run(past: PastRun, job: JobConfig) -> JobConfig:
    """The job as the run read with it: a built-in prompt set may have been chosen by the run.

    Raises:
        SettingsError: its agent is another one; names what differs.
    """
    agent, recorded = job.agent, past.manifest["settings"]["prompt_set"]
    if agent.prompt_set is None and recorded in BUILT_IN_PROMPTS:
        agent = agent.model_copy(update={"prompt_set": recorded})
    job = job.with_agent(fit_budgets_to_window(agent))
    identity, then = identify_reader(job.agent), past.manifest["reader"]
    if identity.fingerprint == past.manifest["fingerprint"]:
        return job
    other = sorted(name for name in {*identity.parts, *then} if identity.parts.get(name) != then.get(name))
    raise SettingsError(
        f"--reread: this is not the reader that the run was made by: {', '.join(other) or 'its name'} differ; put the "
        "same model, tokeniser and prompt set here, or pass the job file of the run"
    )


async def _ask_drawn(replay: "Replay", result: Reread, *, num: int, seed: int) -> None:
    drawn = await replay.draw_turns(num, seed=seed, not_asked=result.not_asked)
    result.num_drawn = len(drawn) + len(result.not_asked)
    if not drawn:
        return
    engine = make_engine(replay.job.agent)
    with quiet_libraries():
        await engine.start()
    try:
        if kinds := {turn.prompt.guide.kind for turn in drawn if turn.prompt.guide is not None}:
            await engine.require_guides(kinds)
        places = asyncio.Semaphore(IN_FLIGHT)
        await asyncio.gather(*(_compare_turn(engine, turn, replay, places, result) for turn in drawn))
    finally:
        await engine.stop()


async def _compare_turn(
    engine: Engine, turn: _LoggedTurn, replay: "Replay", places: asyncio.Semaphore, result: Reread
) -> None:
    reading, path = turn.reading, turn.prompt.path
    address = replace(reading.address, fingerprint=turn.prompt.fingerprint or reading.address.fingerprint)
    seed = address.turn_seed(path, seed=replay.job.agent.sampling.seed)
    async with places:
        try:
            completion = await engine.complete(turn.prompt, seed=seed)
        except (ReadingError, NotReadError) as error:
            result.not_asked.append(f"{path} of document {reading.document_id!r}: {error}")
            return
    result.num_asked += 1
    logged, now = list(turn.completion.token_ids), list(completion.token_ids)
    if logged == now:
        return
    pairs = zip(logged, now, strict=False)
    result.different.append(
        DifferentTurn(
            document_id=reading.document_id,
            question_id=replay.questions[reading.question].question_id,
            sample=reading.address.sample,
            path=path,
            first_difference=next(
                (place for place, (one, other) in enumerate(pairs) if one != other), min(len(logged), len(now))
            ),
        )
    )


class Replay:
    """Reads documents of a run again from its log alone, to have the prompts of its turns."""

    def __init__(self, past: PastRun, job: JobConfig, *, texts: DocumentTexts, log: Sequence[str]) -> None:
        self.job = job
        self._past, self._texts = past, texts
        self._fingerprint = past.manifest["fingerprint"]
        self.questions = Questions(past.questions, fingerprint=self._fingerprint)
        types = self.questions.types
        require_compiled(asked_types(past.questions), job.agent)
        self._follow_ups = checked_follow_ups(job.follow_ups, job.agent, types=types, fingerprint=self._fingerprint)
        self._agent, self._tokenizer = make_agent(job.agent), make_tokenizer(job.agent)
        follow_ups = sorted(self._follow_ups.of_turns(types)) if self._follow_ups else []
        self._fingerprints = [self._fingerprint, *follow_ups]
        among = {(past.output / name).path for name in log}
        self._index = scan_log(past.output, fingerprint=self._fingerprint, follow_up_turns=follow_ups, among=among)

    async def draw_turns(self, num: int, *, seed: int, not_asked: list[str]) -> list[_LoggedTurn]:
        """So many turns, the same at every draw: one of each reading, further ones only if there are too few readings.

        Another seed draws other ones. Readings that can't be replayed are added to `not_asked`.
        """
        by_document: dict[str, list[DrawnReading]] = defaultdict(list)
        drawn = heapq.nsmallest(num, self._readings(), key=lambda each: each.number(seed))
        for reading in drawn:
            by_document[reading.document_id].append(reading)
        plan = self._past.plan
        plan = plan.filter(pc.is_in(plan["document_id"], pa.array(list(by_document), plan["document_id"].type)))
        planned = with_log_files(plan, self._past.questions, self._index)
        files = dict(zip(planned["document_id"].to_pylist(), planned["turn_files"].to_pylist(), strict=True))
        ranked: list[tuple[int, str, _LoggedTurn]] = []
        for fetched in self._texts.fetch(list(by_document)):
            for reading in by_document.pop(fetched.document_id):
                turns = {
                    reading.number(seed, path=turn.prompt.path): turn
                    for turn in await self._turns(reading, fetched, files[fetched.document_id])
                }
                new = [(rank, number, turns[number]) for rank, number in enumerate(sorted(turns))]
                ranked = heapq.nsmallest(num, [*ranked, *new], key=itemgetter(0, 1))
                if not turns:
                    name = self.questions[reading.question].question_id
                    why = "no turn of it was asked, or its prompts can't be made again"
                    not_asked.append(f"question {name!r} of document {reading.document_id!r}: {why}")
        for name, readings in by_document.items():
            not_asked += [f"the text of document {name!r} is gone or has changed"] * len(readings)
        return [turn for _, _, turn in ranked]

    def _readings(self) -> Iterator[DrawnReading]:
        plan = self._past.plan.select(["document_id", "document_hash", "readings"])
        for document in (row for batch in plan.to_batches() for row in batch.to_pylist() if row["document_hash"]):
            for reading in document["readings"]:
                address = self.questions.address(
                    reading["question"], document_hash=document["document_hash"], sample=reading["sample"]
                )
                yield DrawnReading(document_id=document["document_id"], question=reading["question"], address=address)

    async def _turns(self, drawn: DrawnReading, fetched: DocumentText, files: Sequence[str]) -> list[_LoggedTurn]:
        """The turns of a reading with their prompts."""
        address, found = drawn.address, list[_LoggedTurn]()
        logged = read_turns(
            self._past.output, files, fingerprints=self._fingerprints, document_hashes=[address.document_hash]
        )
        key = reading_key(address)
        from_log = {fingerprint: turns[key] for fingerprint, turns in logged.items() if key in turns}
        tracer = Tracer(self._agent.prompts)

        def observe(prompt: Prompt, completion: Completion) -> None:
            tracer(prompt, completion)
            found.append(_LoggedTurn(reading=drawn, prompt=prompt, completion=completion))

        turns = ReadingTurns(
            engine=ReplayOnly(),
            address=address,
            seed=self.job.agent.sampling.seed,
            from_log=from_log,
            observe=observe,
        )
        await self._read(drawn, fetched, turns=turns, tracer=tracer)
        return found

    async def _read(self, drawn: DrawnReading, fetched: DocumentText, *, turns: ReadingTurns, tracer: Tracer) -> None:
        text, question = fetched.text, self.questions[drawn.question]
        try:
            document = self._tokenizer.document(text)
            document = with_breaks(document, text, agent=self.job.agent, rows=fetched.rows)
        except DocumentError as error:
            document = unreadable(error)
        reading = await read(document, question, agent=self._agent, turns=turns)
        if self._follow_ups is not None and reading.status is Status.OK:
            await close_reading(
                reading,
                self.questions.types[drawn.question],
                question=question.text,
                document=document,
                sentences=split_sentences(text) if self._follow_ups.config.evidence else Sentences(),
                trace=tracer.trace,
                follow_ups=self._follow_ups,
                turns=turns,
            )
