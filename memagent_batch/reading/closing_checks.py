"""What is asked after the answers of a run, refused here where it can't be, before an engine starts."""

import json
from collections.abc import Collection, Iterable, Mapping

from memagent_batch.budgets import require_closing_window
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.closing import ClosingConfig
from memagent_batch.domain.closing.answer_types import AnswerType, ValueType
from memagent_batch.domain.closing.values import guide_of
from memagent_batch.errors import SettingsError, ValueTypeError
from memagent_batch.plugins import engine_settings
from memagent_batch.reading.closed import Closing, make_closing
from memagent_batch.wiring import make_engine


def checked_closing(
    config: ClosingConfig, agent: AgentConfig, *, types: Iterable[ValueType | None], reader_fingerprint: str
) -> Closing | None:
    """What closes the readings of a run; None where nothing is asked after its answers.

    Args:
        config: What is asked of every reading.
        agent: What reads; its budgets fit its window.
        types: Types that the questions ask for.
        reader_fingerprint: The reader.

    Raises:
        SettingsError: a closing turn can't fit the window, or samples can't vote.
        EngineStartError: the engine takes no guides.
    """
    asked = {each for each in types if each is not None}
    closing = make_closing(config, agent, reader_fingerprint=reader_fingerprint)
    plan = closing.turns.plan
    if not asked and not plan.kinds():
        return None
    _require_votes(agent, types=asked)
    require_closing_window(plan, agent, types=asked)
    make_engine(agent).check_guides(plan.guide_kinds(asked))
    return closing


def _require_votes(agent: AgentConfig, *, types: Collection[ValueType]) -> None:
    """Several samples of a greedy agent are the same one: their votes would say nothing.

    Raises:
        SettingsError: this is so, and a question asks for a type.
    """
    sampling = agent.sampling
    if types and sampling.samples > 1 and sampling.temperature == 0:
        raise SettingsError(
            f"sampling.samples: {sampling.samples} greedy samples are all the same, so that their votes on a value "
            "say nothing; set sampling.temperature above 0, or sampling.samples to 1"
        )


def require_compiled(types: Mapping[ValueType, str], agent: AgentConfig) -> None:
    """Compiles the schemas as vLLM does: one that it can't compile would kill its engine in the first turn.

    An endpoint compiles by itself, with a compiler that is not known here: what it refuses is the `closing_error` of a
    reading. Choices and expressions are made by the project and hold nothing of a question list.

    Args:
        types: Types that questions ask for, each with the place of a question that does.
        agent: What reads.

    Raises:
        ValueTypeError: one can't be compiled; names the place and says what xgrammar says.
    """
    asked = [(place, guide_of(each)) for each, place in types.items() if each.type is AnswerType.JSON]
    if not asked or not engine_settings(agent).has_weights:
        return
    try:
        import xgrammar  # here, since it loads torch
    except ImportError:
        return  # no vLLM here; the actors' own start says what is missing
    for place, guide in asked:
        if guide is None:
            continue
        try:
            xgrammar.Grammar.from_json_schema(json.dumps(guide.sent_json_schema()), any_whitespace=False)
        except RuntimeError as error:
            raise ValueTypeError(
                f"{place}: schema: xgrammar can't compile it ({' '.join(str(error).split())}): {guide.json_schema}"
            ) from error
