"""Variable tracking as RULER defines it: a chain of assignments, hidden in noise, in its order or in another one."""

import random
import string

from memagent_batch.evaluation.tasks.haystacks import Hidden, hidden_sample, hide, noise
from memagent_batch.evaluation.tasks.linked import Order, ordered
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample

NUM_HOPS = 4
"""Assignments from a variable to the next one; the chain has one variable more."""

_NAME_LETTERS = 5
_FIVE_DIGITS = (10_000, 99_999)
_ASKED = (
    "Memorize and track the chain(s) of variable assignment hidden in the text. "
    "Find all variables that are assigned the value {value} in the text above."
)


def make_chain(request: SampleRequest, materials: Materials, *, task: str, order: Order = Order.FORWARD) -> SuiteSample:
    """One chain; as RULER has it, every assignment stands after the one that it follows from."""
    rng = request.rng
    names = _variable_names(rng, NUM_HOPS + 1)
    value = str(rng.randrange(*_FIVE_DIGITS))
    sentences = [
        f"VAR {name} = {origin}" for name, origin in zip(names, [value, *(f"VAR {n}" for n in names)], strict=False)
    ]
    depths = ordered(sorted(rng.random() for _ in sentences), order=order, rng=rng)
    hidden = [Hidden(sentence=sentence, depth=depth) for sentence, depth in zip(sentences, depths, strict=True)]
    fitted = hide(
        hidden,
        noise(),
        length_tokens=request.length,
        meter=materials.meter,
        task=task,
    )
    question = _ASKED.format(value=value)
    return hidden_sample(fitted, hidden, question=question, references=names, gold=range(len(hidden)))


def _variable_names(rng: random.Random, num: int) -> list[str]:
    names: dict[str, None] = {}
    while len(names) < num:
        names["".join(rng.choices(string.ascii_uppercase, k=_NAME_LETTERS))] = None
    return list(names)
