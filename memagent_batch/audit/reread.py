"""Asks an engine again for turns of a run, and compares the tokens with those of the log."""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

import pyarrow.compute as pc

from memagent_batch.budgets import fit_budgets_to_window
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.documents.questions import asked_types
from memagent_batch.domain.addresses import ReadingAddress, token_hash
from memagent_batch.domain.readings import Status
from memagent_batch.domain.texts.sentences import Sentences, split_sentences
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.errors import DocumentError, NotReadError, ReadingError, SettingsError
from memagent_batch.logs import quiet_libraries
from memagent_batch.prompts.built_in import BUILT_IN_PROMPTS
from memagent_batch.reading.agent import LoadedAgent, Questions, make_agent
from memagent_batch.reading.documents import unreadable, with_breaks
from memagent_batch.reading.follow_ups import FollowUps, Tracer, checked_follow_ups, close_reading, require_compiled
from memagent_batch.reading.read import read
from memagent_batch.reading.turns import NO_ROWS, LoggedTurns, ReadingTurns, ReplayOnly
from memagent_batch.runs.document_texts import DocumentText, DocumentTexts
from memagent_batch.runs.history import PastRun
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import TurnIndex, read_log, scan_log
from memagent_batch.store.turn_log.rows import TurnRow
from memagent_batch.store.turn_log.turns import read_turns_of
from memagent_batch.store.turn_log.writer import TURNS_FOLDER
from memagent_batch.wiring import identify_reader, make_engine, make_tokenizer

REREAD_COLUMNS = ["document_hash", "question_hash", "sample", "fingerprint", "path"]
"""What names a turn."""
IN_FLIGHT = 64


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class DrawnTurn:
    """A turn of the log, asked of the engine by some run."""

    document_hash: str
    question_hash: str
    sample: int
    fingerprint: str
    path: str

    @property
    def address(self) -> ReadingAddress:
        """Where the log keeps it."""
        return ReadingAddress(
            document_hash=self.document_hash,
            question_hash=self.question_hash,
            sample=self.sample,
            fingerprint=self.fingerprint,
        )

    def number(self, seed: int) -> str:
        """Its permanent random number, hex."""
        address = [self.document_hash, self.question_hash, str(self.sample), self.fingerprint, self.path]
        return sha256("|".join([str(seed), *address]).encode()).hexdigest()


def draw_turns(
    output: Location,
    names: Iterable[str],
    *,
    num: int,
    seed: int,
    document_hashes: Collection[str],
    fingerprints: Collection[str],
) -> Sequence[DrawnTurn]:
    """The turns with the smallest numbers; holds no more than these and one file's names."""
    drawn: dict[DrawnTurn, str] = {}
    columns, among = [*REREAD_COLUMNS, "reused_from"], {(output / name).path for name in names}
    for _, table in read_log(output / TURNS_FOLDER, columns=columns, fingerprints=fingerprints, among=among):
        asked = table.filter(pc.is_null(table["reused_from"])).select(
            REREAD_COLUMNS
        )  # not taken from an earlier version
        turns = [DrawnTurn(**row) for row in asked.to_pylist() if row["document_hash"] in document_hashes]
        drawn |= {turn: turn.number(seed) for turn in turns}
        drawn = dict(heapq.nsmallest(num, drawn.items(), key=lambda item: item[1]))
    return list(drawn)


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

    num_drawn: int
    """Turns that were drawn: of the reader of all readings, and of what is asked after its answers."""
    num_asked: int = 0
    """Turns that the engine was asked again."""
    different: list[DifferentTurn] = field(default_factory=list)
    """Of these, turns with other tokens."""
    not_asked: list[str] = field(default_factory=list)
    """Why turns could not be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Replayed:
    """A turn of the log with its prompt."""

    drawn: DrawnTurn
    prompt: Prompt
    seed: int
    row: TurnRow
    document_id: str
    question_id: str


def reread(past: PastRun, job: JobConfig, *, texts: DocumentTexts, log: Sequence[str], num: int, seed: int) -> Reread:
    """Draws turns of a run and asks the engine of the job for them again.

    Raises:
        SettingsError: the agent of the job is not the one that read.
        EngineStartError: the engine can't start.
        MemagentError: the engine is gone.
    """
    job = job.with_agent(fit_budgets_to_window(_with_recorded_set(job.agent, past)))
    identity = identify_reader(job.agent)
    if identity.fingerprint != past.manifest["fingerprint"]:
        raise SettingsError(_other_reader(identity.parts, past.manifest["reader"]))
    replay = _Replay(past, job, texts=texts, log=log)
    drawn = draw_turns(
        past.output, log, num=num, seed=seed, document_hashes=replay.document_hashes, fingerprints=replay.fingerprints
    )
    result = Reread(num_drawn=len(drawn))
    asyncio.run(_ask_again(replay, drawn, result))
    return result


def _with_recorded_set(agent: AgentConfig, past: PastRun) -> AgentConfig:
    """The agent with the built-in prompt set that the run read with, if none is named: the run may have chosen it."""
    recorded = past.manifest["settings"]["prompt_set"]
    if agent.prompt_set is not None or recorded not in BUILT_IN_PROMPTS:
        return agent
    return agent.model_copy(update={"prompt_set": recorded})


def _other_reader(here: Mapping[str, object], then: Mapping[str, object]) -> str:
    other = sorted(name for name in {*here, *then} if here.get(name) != then.get(name))
    return (
        f"--reread: this is not the reader that the run was made by: {', '.join(other) or 'its name'} differ; put the "
        "same model, tokeniser and prompt set here, or give the job file with --job"
    )


async def _ask_again(replay: "_Replay", drawn: Sequence[DrawnTurn], result: Reread) -> None:
    replayed = await replay.turns(drawn, result)
    if not replayed:
        return
    engine = make_engine(replay.job.agent)
    with quiet_libraries():
        await engine.start()
    try:
        if kinds := {each.prompt.guide.kind for each in replayed if each.prompt.guide is not None}:
            await engine.require_guides(kinds)
        places = asyncio.Semaphore(IN_FLIGHT)
        await asyncio.gather(*(_compare(engine, each, places, result) for each in replayed))
    finally:
        await engine.stop()


async def _compare(engine: Engine, turn: _Replayed, places: asyncio.Semaphore, result: Reread) -> None:
    async with places:
        try:
            completion = await engine.complete(turn.prompt, seed=turn.seed)
        except (ReadingError, NotReadError) as error:
            result.not_asked.append(f"{turn.drawn.path} of document {turn.document_id!r}: {error}")
            return
    result.num_asked += 1
    logged, now = list(turn.row["token_ids"]), list(completion.token_ids)
    if logged == now:
        return
    pairs = zip(logged, now, strict=False)
    first = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(logged), len(now)))
    result.different.append(
        DifferentTurn(
            document_id=turn.document_id,
            question_id=turn.question_id,
            sample=turn.drawn.sample,
            path=turn.drawn.path,
            first_difference=first,
        )
    )


class _Replay:
    """Reads documents of a run again from its log alone, to have the prompts of its turns."""

    def __init__(self, past: PastRun, job: JobConfig, *, texts: DocumentTexts, log: Sequence[str]) -> None:
        self.past, self.job, self._texts, self._log = past, job, texts, log
        self._fingerprint = past.manifest["fingerprint"]
        self._questions = Questions(past.questions, fingerprint=self._fingerprint)
        types = self._questions.types
        require_compiled(asked_types(past.questions), job.agent)
        self._follow_ups: FollowUps | None = checked_follow_ups(
            job.follow_ups, job.agent, types=types, fingerprint=self._fingerprint
        )
        self.fingerprints = {self._fingerprint, *(self._follow_ups.of_turns(types) if self._follow_ups else ())}
        self._agent: LoadedAgent = make_agent(job.agent)
        self._tokenizer = make_tokenizer(job.agent)
        hashes = past.plan["document_hash"].to_pylist()
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, document_hash in enumerate(hashes):
            if document_hash is not None:
                self._places[document_hash].append(place)
        self.document_hashes = self._places.keys()
        self._names: list[str] = past.plan["document_id"].to_pylist()

    async def turns(self, drawn: Sequence[DrawnTurn], result: Reread) -> list[_Replayed]:
        """The drawn turns with their prompts; notes those that have none."""
        by_document: dict[str, list[DrawnTurn]] = defaultdict(list)
        for turn in drawn:
            by_document[turn.document_hash].append(turn)
        hashes = {self._names[place]: each for each in by_document for place in self._places[each]}
        among = {(self.past.output / name).path for name in self._log}
        fingerprints = sorted(self.fingerprints - {self._fingerprint})
        index = scan_log(self.past.output, fingerprint=self._fingerprint, follow_up_turns=fingerprints, among=among)
        found: list[_Replayed] = []
        for fetched in self._texts.fetch(list(hashes)):
            if of_text := by_document.pop(hashes[fetched.document_id], []):  # else one of the same text came before
                found += await self._of_document(fetched, of_text, index, result)
        for document_hash, of_text in by_document.items():
            named = self._names[self._places[document_hash][0]]
            result.not_asked += [f"the text of document {named!r} is gone or has changed"] * len(of_text)
        return found

    async def _of_document(
        self, fetched: DocumentText, drawn: Sequence[DrawnTurn], index: TurnIndex, result: Reread
    ) -> list[_Replayed]:
        document_hash = drawn[0].document_hash
        from_log = read_turns_of(
            self.past.output,
            sorted({file for key in index.turn_files if key[0] == document_hash for file in index.files_of(key)}),
            fingerprints=sorted(self.fingerprints),
            document_hashes=[document_hash],
        )
        prompts: dict[tuple[int, int], dict[tuple[str, str], Prompt]] = {}
        replayed = []
        for turn in drawn:
            asked = self._rows_of(turn)
            rows = list(asked)
            for row in rows:
                if (row, turn.sample) not in prompts:
                    prompts[row, turn.sample] = await self._prompts(row, turn, fetched, from_log)
            address = (turn.fingerprint, turn.path)
            of_rows = [(row, found) for row in rows if (found := prompts[row, turn.sample].get(address))]
            logged = from_log[turn.fingerprint].get((document_hash, turn.question_hash, turn.sample), NO_ROWS)
            row, prompt = of_rows[0] if of_rows else (0, None)
            known = logged.get(turn.path)
            document_id = asked.get(row) or self._names[self._places[document_hash][0]]
            if prompt is None or known is None or known["prompt_hash"] != token_hash(prompt.token_ids):
                why = "its prompt can't be made again: by a run that was stopped, of other questions, or by other rules"
                result.not_asked.append(f"{turn.path} of document {document_id!r}: {why}")
                continue
            replayed.append(
                _Replayed(
                    drawn=turn,
                    prompt=prompt,
                    seed=turn.address.turn_seed(turn.path, seed=self.job.agent.sampling.seed),
                    row=known,
                    document_id=document_id,
                    question_id=self._questions[row].question_id,
                )
            )
        return replayed

    def _rows_of(self, turn: DrawnTurn) -> dict[int, str]:
        """Rows of the question list that a turn may belong to, with a document of which it was asked."""
        found: dict[int, str] = {}
        for place in self._places[turn.document_hash]:
            for reading in self.past.plan["readings"][place].as_py():
                row: int = reading["question"]
                address = self._questions.address(row, document_hash=turn.document_hash, sample=turn.sample)
                if turn.question_hash == address.question_hash:
                    found.setdefault(row, self._names[place])
        return found

    async def _prompts(
        self, row: int, turn: DrawnTurn, fetched: DocumentText, from_log: Mapping[str, LoggedTurns]
    ) -> dict[tuple[str, str], Prompt]:
        """The prompts of a reading and of what closes it, by fingerprint and path, as far as the log answers them."""
        prompts: dict[tuple[str, str], Prompt] = {}
        tracer = Tracer(self._agent.prompts)

        def observe(prompt: Prompt, completion: Completion) -> None:
            tracer(prompt, completion)
            prompts[prompt.fingerprint or self._fingerprint, prompt.path] = prompt

        text = fetched.text
        try:
            document = self._tokenizer.document(text)
            document = with_breaks(document, text, agent=self.job.agent, rows=fetched.rows)
        except DocumentError as error:
            document = unreadable(error)
        turns = ReadingTurns(
            engine=ReplayOnly(),
            address=self._questions.address(row, document_hash=turn.document_hash, sample=turn.sample),
            seed=self.job.agent.sampling.seed,
            from_log=from_log[self._fingerprint],
            logged_follow_ups=from_log,
            observe=observe,
        )
        reading = await read(document, self._questions[row], agent=self._agent, turns=turns)
        if self._follow_ups is not None and reading.status is Status.OK:
            await close_reading(
                reading,
                self._questions.types[row],
                question=self._questions[row].text,
                document=document,
                sentences=split_sentences(text) if self._follow_ups.config.evidence else Sentences(),
                trace=tracer.trace,
                follow_ups=self._follow_ups,
                turns=turns,
            )
        return prompts
