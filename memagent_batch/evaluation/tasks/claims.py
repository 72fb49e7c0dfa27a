"""Our own tasks, on what a memory does with facts: a later one replaces it, or there is none."""

import random
from collections.abc import Iterable

from memagent_batch.evaluation.needles.facts import WORDINGS
from memagent_batch.evaluation.tasks.haystacks import Hidden, hidden_sample, hide_in_text
from memagent_batch.evaluation.tasks.niah import Wordform, ask, different_keys, make_rivals, make_value, tell
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample
from memagent_batch.evaluation.tasks.wordings import ASKED, NOT_STATED, OR_NOT, STATED, STATUS_ATTRIBUTE, STATUSES

NUM_OTHERS = 3
"""Keys beside the asked one in `conflict`, `status`, `stated`, `absent` and `absent_near`."""

NUM_CORRECTED = 2
"""Keys of `conflict` with a corrected number, the one in the question among them."""

_CORRECTED = "Correction: from now on, the special magic number for {key} is: {value}."


def make_conflict(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """Two keys are stated and later corrected, two are stated once; the question is about a corrected one."""
    rng = request.rng
    keys = different_keys(rng, NUM_OTHERS + 1)
    old, new = ([_random_number(rng) for _ in keys] for _ in range(2))
    depths = [sorted((rng.random(), rng.random())) for _ in keys]
    hidden = [
        Hidden(sentence=WORDINGS[1].sentence.format(attribute="number", key=key, value=value), depth=depth[0])
        for key, value, depth in zip(keys, old, depths, strict=True)
    ]
    hidden += [
        Hidden(sentence=_CORRECTED.format(key=key, value=value), depth=depth[1])
        for key, value, depth in list(zip(keys, new, depths, strict=True))[:NUM_CORRECTED]
    ]
    return _hidden_sample(
        request,
        materials,
        hidden,
        task=task,
        question=ask(keys[:1], Wordform.NUMBER, alone=True),
        answer=new[0],
        gold=[len(keys)],
    )


def make_stated(request: SampleRequest, materials: Materials, *, task: str, is_stated: bool) -> SuiteSample:
    """The document states some keys, the one in the question among them or not; the question allows for both."""
    rng = request.rng
    asked, *others = different_keys(rng, NUM_OTHERS + 1)
    value = _random_number(rng)
    hidden = [Hidden(sentence=tell(key, _random_number(rng), Wordform.NUMBER), depth=rng.random()) for key in others]
    if is_stated:
        hidden.append(Hidden(sentence=tell(asked, value, Wordform.NUMBER), depth=request.depth))
    return _hidden_sample(
        request,
        materials,
        hidden,
        task=task,
        question=ask([asked], Wordform.NUMBER, alone=True) + OR_NOT,
        answer=value if is_stated else NOT_STATED,
        gold=[NUM_OTHERS] if is_stated else (),
    )


def make_status(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """Several keys have a status out of a few; the question is about one of them."""
    rng = request.rng
    keys = different_keys(rng, NUM_OTHERS + 1)
    values = [rng.choice(STATUSES) for _ in keys]
    depths = [request.depth, *(rng.random() for _ in range(NUM_OTHERS))]
    hidden = [
        Hidden(sentence=STATED.format(attribute=STATUS_ATTRIBUTE, key=key, value=value), depth=depth)
        for key, value, depth in zip(keys, values, depths, strict=True)
    ]
    question = ASKED.format(attribute=STATUS_ATTRIBUTE, key=keys[0])
    return _hidden_sample(request, materials, hidden, task=task, question=question, answer=values[0], gold=[0])


def make_absent_near(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """As `absent`, but every key that is there shares a word with the asked one, or is it, with another attribute."""
    needle, rivals = make_rivals(request.rng, num=NUM_OTHERS)
    hidden = [Hidden(sentence=rival.sentence, depth=request.rng.random()) for rival in rivals]
    question = ask([needle.key], Wordform.NUMBER, alone=True) + OR_NOT
    return _hidden_sample(request, materials, hidden, task=task, question=question, answer=NOT_STATED, gold=())


def _hidden_sample(
    request: SampleRequest,
    materials: Materials,
    hidden: list[Hidden],
    *,
    task: str,
    question: str,
    answer: str,
    gold: Iterable[int],
) -> SuiteSample:
    fitted = hide_in_text(hidden, request, materials, task=task)
    return hidden_sample(fitted, hidden, question=question, references=[answer], gold=gold)


def _random_number(rng: random.Random) -> str:
    return make_value(rng, Wordform.NUMBER)
