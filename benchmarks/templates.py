"""What contracts from few templates save since turns of other documents with the same prompt are not asked again.

`parallel` reads every chunk of a document apart from the others, so two contracts whose chunks have the same text send
the same prompts in the first round of reads. Later rounds show what the first one found, which differs. Each template
is sentences of prose in random order; a contract fills it in one of these ways:

- form: parties, a date and an amount on the first page and above the signatures, and nowhere else
- names: the parties also by name in one of eight sentences
- negotiated: as names, and one sentence in thirty is deleted, or another one is put behind it

`first_round` is the share of first reads whose prompt another document has sent before; `all` that of all prompt tokens
of reads, where a reading takes `rounds` rounds. No engine runs.
"""

import argparse
from collections.abc import Iterator
from random import Random
from typing import Any

from memagent_batch.apps.evaluation.haystacks import prose
from memagent_batch.config.agent import AgentConfig, BreakAt, PolicyConfig
from memagent_batch.run.reading.documents import with_breaks
from memagent_batch.run.wiring import make_tokenizer

FIRST_NAMES = ("Acme", "Quiet Harbour", "North", "Blue River", "Stone & Field", "Ada", "Golden Gate Marine", "Orion")
LAST_NAMES = ("Holdings Limited", "Inc.", "Partners LLP", "Logistics GmbH", "Foods", "Software Company", "plc")
KINDS = ("form", "names", "negotiated")
NAMED_SHARE = 1 / 8
CHANGED_SHARE = 1 / 30


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="(default: all)")
    parser.add_argument("--templates", type=int, default=5, help="(default: 5)")
    parser.add_argument("--contracts", type=int, default=100, help="of each kind (default: 100)")
    parser.add_argument("--sentences", type=int, default=600, help="of each template (default: 600)")
    parser.add_argument("--chunk-tokens", nargs="+", type=int, default=[512, 2048, 5000])
    parser.add_argument("--rounds", type=int, default=2, help="rounds of reads in a usual reading (default: 2)")
    parser.add_argument("--model", default="tiny", help="whose tokeniser counts (default: tiny)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    tokenizer = make_tokenizer(AgentConfig(model=arguments.model))
    for kind in arguments.kinds:
        texts = {text: tokenizer.document(text) for text in contracts(kind, arguments)}
        for chunk_tokens in arguments.chunk_tokens:
            policy = PolicyConfig(kind="parallel", chunk_tokens=chunk_tokens, break_at=BreakAt.SENTENCES)
            agent = AgentConfig(model=arguments.model, policy=policy)
            seen = set[tuple[int, ...]]()
            num_reads = num_seen = num_tokens = tokens_seen = 0
            for text, document in texts.items():
                cut = with_breaks(document, text, agent=agent).chunks(chunk_tokens)
                chunks = [tuple(chunk.token_ids) for chunk in cut]
                known = [chunk for chunk in chunks if chunk in seen]
                num_reads += len(chunks)
                num_seen += len(known)
                num_tokens += sum(map(len, chunks))
                tokens_seen += sum(map(len, known))
                seen.update(chunks)
            yield {
                "kind": kind,
                "chunk_tokens": chunk_tokens,
                "contracts": arguments.contracts,
                "templates": arguments.templates,
                "tokens_of_a_contract": num_tokens // len(texts),
                "reads": num_reads,
                "first_round": round(num_seen / num_reads, 3),
                "all": round(tokens_seen / num_tokens / arguments.rounds, 3),
            }


def contracts(kind: str, arguments: argparse.Namespace) -> Iterator[str]:
    """The texts of all contracts."""
    sentences = [sentence for paragraph in prose() for sentence in paragraph]
    templates = [
        Random(f"template {number}").choices(sentences, k=arguments.sentences) for number in range(arguments.templates)
    ]
    named = [[Random(f"named {number}").random() < NAMED_SHARE for number in range(arguments.sentences)]] * len(
        templates
    )
    for number in range(arguments.contracts):
        rng = Random(f"{kind} {number}")
        template = number % len(templates)
        yield "\n".join(fill(templates[template], named[template], kind=kind, rng=rng))


def fill(template: list[str], named: list[bool], *, kind: str, rng: Random) -> Iterator[str]:
    """The lines of one contract."""
    supplier, customer = (f"{rng.choice(FIRST_NAMES)} {rng.choice(LAST_NAMES)}" for _ in range(2))
    when = f"{rng.randint(1, 28)} {rng.choice(('May', 'September', 'February'))} {rng.randint(1998, 2026)}"
    yield f"This agreement of {when} is made between {supplier} and {customer}."
    yield f"The price is EUR {rng.randint(1_000, 9_000_000):,}."
    for sentence, is_named in zip(template, named, strict=True):
        if kind == "negotiated" and rng.random() < CHANGED_SHARE:
            if rng.random() < 0.5:
                continue
            yield f"{sentence} In this case {rng.randint(2, 90)} days apply, notwithstanding the above."
        elif is_named and kind != "form":
            yield f"{sentence} {supplier} tells {customer} so in writing."
        else:
            yield sentence
    yield f"Signed on {when} for {supplier} and for {customer}."
