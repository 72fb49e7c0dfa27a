"""What a suite is made from: the tokeniser and the files that the user names, read once, with their hashes."""

from dataclasses import dataclass
from typing import TypedDict

from memagent_batch.evaluation.tasks.corpora import Corpus, read_hotpotqa, read_squad
from memagent_batch.evaluation.tasks.essays import own_texts, read_essays, texts_sha256
from memagent_batch.evaluation.tasks.lengths import TokenMeter
from memagent_batch.evaluation.tasks.sample import Materials
from memagent_batch.files.location import Location
from memagent_batch.files.options import Options
from memagent_batch.masking import shown
from memagent_batch.tokens.tokenizer import load_tokenizer
from memagent_batch.wiring import resolve_model

OWN = "own"
"""Name of the essays that come with the project."""


class InputRecord(TypedDict):
    """An input, as `suite.json` names it."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteInputs:
    """What documents are made of, and what `suite.json` says of it."""

    materials: Materials
    """What documents are made of."""
    record: dict[str, InputRecord]
    """Name and hash of each input."""


def read_suite_inputs(
    *, model: str, essays: str | None, hotpotqa: str | None, squad: str | None, storage_options: Options
) -> SuiteInputs:
    """Loads the tokeniser and reads the files.

    Args:
        model: `tiny`, a model folder or a hub name; only its tokeniser is loaded.
        essays: folder of text files; the project's own prose without it.
        hotpotqa: HotpotQA file.
        squad: SQuAD file.
        storage_options: arguments of the file system of the three.

    Raises:
        InputError: a file can't be read; names it, and the record.
        SettingsError: the model has no tokeniser.
    """
    tokenizer = load_tokenizer(resolve_model(model))
    places = {
        name: Location(uri=uri, storage_options=storage_options)
        for name, uri in (("essays", essays), ("hotpotqa", hotpotqa), ("squad", squad))
        if uri
    }
    texts = read_essays(places["essays"]) if essays else own_texts()
    hotpot = read_hotpotqa(places["hotpotqa"]) if hotpotqa else None
    stanford = read_squad(places["squad"]) if squad else None
    record = {
        "tokenizer": InputRecord(name=model, sha256=tokenizer.sha256),
        "essays": InputRecord(name=shown(essays) if essays else OWN, sha256=texts_sha256(texts)),
        **{name: _input_record(corpus) for name, corpus in (("hotpotqa", hotpot), ("squad", stanford)) if corpus},
    }
    materials = Materials(meter=TokenMeter(tokenizer), texts=texts, hotpotqa=hotpot, squad=stanford)
    return SuiteInputs(materials=materials, record=record)


def _input_record(corpus: Corpus) -> InputRecord:
    return InputRecord(name=shown(corpus.name), sha256=corpus.sha256)
