"""Variable tracking as RULER defines it: a chain of assignments, hidden in noise in its order."""

import random
import string

from memagent_batch.evaluation.tasks.haystacks import Hidden, hide, noise
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample

NUM_HOPS = 4
"""Assignments from a variable to the next one; the chain has one variable more."""

_NAME_LETTERS = 5
_FIVE_DIGITS = (10_000, 99_999)
_ASKED = (
    "Memorize and track the chain(s) of variable assignment hidden in the text. "
    "Find all variables that are assigned the value {value} in the text above."
)


def make_chain(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """One chain; every assignment stands after the one that it follows from."""
    rng = request.rng
    names = _variable_names(rng, NUM_HOPS + 1)
    value = str(rng.randrange(*_FIVE_DIGITS))
    sentences = [
        f"VAR {name} = {origin}" for name, origin in zip(names, [value, *(f"VAR {n}" for n in names)], strict=False)
    ]
    depths = sorted(rng.random() for _ in sentences)
    fitted = hide(
        [Hidden(sentence=sentence, depth=depth) for sentence, depth in zip(sentences, depths, strict=True)],
        noise(),
        length_tokens=request.length,
        meter=materials.meter,
        task=task,
    )
    return SuiteSample(
        document=fitted.draft.text,
        question=_ASKED.format(value=value),
        references=tuple(names),
        num_tokens=fitted.num_tokens,
    )


def _variable_names(rng: random.Random, num: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < num:
        names["".join(rng.choices(string.ascii_uppercase, k=_NAME_LETTERS))] = None
    return list(names)
