"""Makes samples: stories, read by the oracle through the product's own policies, turn by turn. See README.md."""

import argparse
import asyncio
import json
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import Question
from memagent_batch.domain.texts.sentences import split_sentences
from memagent_batch.reading.agent import make_agent
from memagent_batch.reading.follow_ups import Tracer, close_reading, make_follow_ups
from memagent_batch.reading.read import read
from memagent_batch.reading.turns import ReadingTurns
from memagent_batch.wiring import make_prompt_set, make_tokenizer
from pipelines.recipes.reader.facts import Fact, FactMaker
from pipelines.recipes.reader.oracle import Oracle, Written
from pipelines.recipes.reader.papers import Papers
from pipelines.recipes.reader.tasks import Tasks
from pipelines.recipes.reader.texts import Story, name_words, source_texts, story

POLICIES = {
    ("gated", None): 35,
    ("heads", None): 12,
    ("overwrite", "default"): 8,
    ("overwrite", "section-first"): 15,
    ("parallel", None): 20,
    ("retrieve", None): 5,
    ("truncate", None): 5,
}
"""How often documents are read by each policy and prompt set."""
PAPER_SHARE, PAPER_CHARS = 0.5, (1500, 2000, 3000, 4500, 6000, 9000, 14_000)
"""Share of documents that are whole papers, and their lengths, characters."""
TASK_SHARE, TASKS = 0.4, {"changelog": 1, "copyright": 1, "licence": 4}
"""Share of the others that are real files with a truth of their own, and their sorts; facts are put into the rest."""
CHUNK_TOKENS, FIRST_CHUNK_TOKENS = (256, 384, 512, 512), (96, 128, 192)
"""Sizes of chunks, and those of the first stage: it reads with one policy, and has no real files."""
PAPER_CHUNK_TOKENS = (96, 128, 192, 256, 512)
"""Sizes of chunks of whole papers: of short ones, as many tokens hold more turns that must choose a clause."""
CHARS_A_TOKEN = 3
NUM_HEADS, NOTE_TOKENS = (2, 4), 128
"""Notes of a memory of several; tokens of one: two sentences of facts with long names."""
FOLLOW_UPS = FollowUpConfig(evidence=True, support=True)
LEARNT = {"answer": 0.9, "evidence": 0.9, "support": 0.2}
"""Shares of the turns of a kind that are learnt; all of the others."""
LEARNT_WITHOUT_NEWS = {"update": 0.4, "read": 0.3, "answer": 0.6, "direct": 1.0}
"""The same of turns without news; in place of the above."""
LEARNT_IF_TEMPTING = 0.9
"""The same of turns without news that show a value of the sort that is asked for."""
NUM_ASKED, NUM_ABSENT = 10, (2, 3)
"""Questions about a document that has the answer, and that has not: they share what is read."""
STRAY, WRONG_ANSWER, WRONG_EVIDENCE = 0.12, 0.06, 0.08
"""Shares of readings in which something is wrong that later turns must cope with."""


def agent_config(model: str, kind: str, prompt_set: str | None, chunk_tokens: int, *, heads: int = 4) -> AgentConfig:
    """A policy with chunks of this size, on the model's tokeniser."""
    policy = PolicyConfig(
        kind=kind,
        chunk_tokens=chunk_tokens,
        memory_tokens=NOTE_TOKENS * heads if kind == "heads" else 256,
        heads=heads,
        answer_tokens=64,
        question_tokens=128,
        passage_tokens=64,
    )
    return AgentConfig(model=model, policy=policy, prompt_set=prompt_set, engine="simulated")


async def written(told: Story, fact: Fact, config: AgentConfig, *, rng: random.Random) -> list[Written]:
    """The turns of one reading as they should be, follow-up questions included."""
    agent, tokenizer, prompts = make_agent(config), make_tokenizer(config), make_prompt_set(config)
    values = [mention.value.text for mention in fact.rivals if mention.value is not None]
    is_named = fact.who.casefold() in fact.question.casefold()  # else a note of a rival looks like one of the fact
    oracle = Oracle(
        story=told,
        fact=fact,
        tokenizer=tokenizer,
        first_memory=prompts.first_memory,
        keep_word=prompts.keep_word,
        num_heads=config.policy.heads if config.policy.kind == "heads" else 0,
        stray=rng.choice(fact.rivals) if fact.rivals and is_named and rng.random() < STRAY else None,
        wrong_answer=rng.choice(values) if values and rng.random() < WRONG_ANSWER else None,
        wrong_evidence=rng.random() < WRONG_EVIDENCE,
    )
    tracer = Tracer(agent.prompts)
    address = ReadingAddress(document_hash="", question_hash="", sample=0, fingerprint="")
    turns = ReadingTurns(engine=oracle, address=address, seed=0, observe=tracer)
    document = tokenizer.document(told.text)
    reading = await read(document, Question(question_id="", text=fact.question), agent=agent, turns=turns)
    if reading.error is not None:
        raise reading.error
    await close_reading(
        reading,
        fact.value_type,
        question=fact.question,
        document=document,
        sentences=split_sentences(told.text),
        trace=tracer.trace,
        follow_ups=make_follow_ups(FOLLOW_UPS, config, fingerprint=""),
        turns=turns,
    )
    return oracle.written


def groups(told: Story, config: AgentConfig, *, rng: random.Random) -> Iterator[list[Written]]:
    """The turns of all questions about a story, those that share the start of their prompts together."""
    by_start: dict[tuple[int, ...], list[Written]] = defaultdict(list)
    for fact in told.facts:
        for turn in asyncio.run(written(told, fact, config, rng=rng)):
            shares = LEARNT if turn.says_news else LEARNT | LEARNT_WITHOUT_NEWS
            share = LEARNT_IF_TEMPTING if turn.is_tempting else shares.get(turn.kind, 1.0)
            if rng.random() < share:
                by_start[tuple(turn.prompt[:150])].append(turn)
    singles = [turn for turns in by_start.values() if len(turns) == 1 for turn in turns]
    yield from (turns for turns in by_start.values() if len(turns) > 1)
    if singles:
        yield singles


def stories(tasks: Tasks, *, first: bool) -> Iterator[tuple[Story, int]]:
    """Stories without end, each with the size of its chunks, tokens."""
    maker, rng = tasks.maker, tasks.maker.rng
    papers = Papers(maker, tasks.texts)
    while True:
        chunk_tokens = rng.choice(FIRST_CHUNK_TOKENS if first else CHUNK_TOKENS)
        num_chars = int(chunk_tokens * CHARS_A_TOKEN * rng.choice([0.5, 1, 1.5] if first else [0.8, 2, 3, 4, 6]))
        asked = {"num_asked": NUM_ASKED, "num_absent": rng.choice(NUM_ABSENT)}
        if not first and rng.random() < PAPER_SHARE:
            yield papers.story(num_chars=rng.choice(PAPER_CHARS), **asked), rng.choice(PAPER_CHUNK_TOKENS)
            continue
        if not first and tasks.names and rng.random() < TASK_SHARE:
            task = rng.choices(tasks.names, [TASKS[name] for name in tasks.names])[0]
            yield tasks.story(task, num_chars=num_chars), chunk_tokens
            continue
        num_facts = rng.randint(4, 6 + num_chars // 200)
        yield story(maker, tasks.texts, num_chars=num_chars, num_facts=num_facts, **asked), chunk_tokens


def sample_lines(model: str, tasks: Tasks, *, num_samples: int, first: bool = False) -> Iterator[str]:
    """Groups of samples as JSON lines, until so many samples are there."""
    rng = tasks.maker.rng
    for told, chunk_tokens in stories(tasks, first=first):
        ways = {("gated", None): 1} if first else POLICIES
        kind, prompt_set = rng.choices(list(ways), list(ways.values()))[0]
        config = agent_config(model, kind, prompt_set, chunk_tokens, heads=rng.choice(NUM_HEADS))
        for group in groups(told, config, rng=rng):
            turns = [
                {"kind": turn.kind, "prompt": list(turn.prompt), "completion": list(turn.completion)} for turn in group
            ]
            yield json.dumps({"policy": kind, "turns": turns})
            num_samples -= len(group)
        if num_samples <= 0:
            return


def main() -> None:
    """Writes files of samples, in the order of training: groups, a line each, in random order."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="folder of files of samples, JSON lines")
    parser.add_argument("--model", required=True, help="folder of the base model")
    parser.add_argument("--first-files", type=int, default=10, help="files of the first stage")
    parser.add_argument("--files", type=int, default=20, help="files after it")
    parser.add_argument("--samples", type=int, default=500, help="samples of a file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--licences", type=Path, help="the wheel of licensedcode-data, for questions about licences")
    arguments = parser.parse_args()
    rng = random.Random()
    texts = source_texts(apart=False)
    tasks = Tasks(FactMaker(rng, apart=False, words=name_words(texts)), texts, licences=arguments.licences)
    arguments.output.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.first_files + arguments.files):
        rng.seed(f"{arguments.seed}/{number}")
        first = number < arguments.first_files
        lines = list(sample_lines(arguments.model, tasks, num_samples=arguments.samples, first=first))
        rng.shuffle(lines)
        file = arguments.output / f"seed{arguments.seed:03}-{number:03}.jsonl"
        part = file.with_suffix(".part")
        part.write_text("\n".join(lines) + "\n")
        part.rename(file)
        print(f"{file.name}: {len(lines)} groups", flush=True)


if __name__ == "__main__":
    main()
