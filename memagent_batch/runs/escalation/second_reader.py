"""The second reader of a run: refused here where it can't work, before an engine starts; and what it may read."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pydantic import ValidationError

from memagent_batch.budgets import fitted
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.closing import ClosingConfig
from memagent_batch.config.escalation import EscalateConfig, TargetConfig
from memagent_batch.domain.closing.answer_types import AnswerType, ValueType
from memagent_batch.domain.escalation import Doubt, Doubts
from memagent_batch.errors import SettingsError
from memagent_batch.files.location import Location
from memagent_batch.plugins import make_policy, problem_message
from memagent_batch.reading.closing import Closing, checked_closing
from memagent_batch.reading.question_lengths import require_questions_fit
from memagent_batch.runs.escalation.thresholds import Thresholds, read_thresholds
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.wiring import ReaderIdentity, identify_reader, make_engine

OF_VALUES = (Doubt.INVALID, Doubt.NOT_STATED, Doubt.LOW_CONFIDENCE, Doubt.TARGET)
"""Reasons that a value gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondReader:
    """What reads doubtful readings again."""

    agent: AgentConfig
    """What reads, with window and budgets that fit its model."""
    identity: ReaderIdentity
    """Its identity."""
    closing: Closing | None
    """What is asked after its answers, as after those of the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escalation:
    """Which readings of a run are looked at again, and by whom."""

    doubts: Doubts
    """What makes an answer doubtful."""
    reader: SecondReader | None
    """What reads them again; None where a person looks."""
    thresholds: Thresholds | None = None
    """What labels have taught for the target; None where there is no target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondPlan:
    """The readings of a run as its second reader takes them."""

    reader: SecondReader
    """The reader."""
    plan: Plan
    """All readings; it reads those that are doubtful."""
    closings: Mapping[str, str]
    """Fingerprints of what closes its readings, by those of the same questions in the first reader's plan."""


def plan_again(plan: Plan, escalation: Escalation | None) -> SecondPlan | None:
    """The plan of the second reader; None where there is none."""
    reader = escalation.reader if escalation else None
    if reader is None:
        return None
    second = plan.for_second_reader(reader.closing)
    return SecondPlan(reader=reader, plan=second, closings=second.asked.closings_of(plan.asked))


def checked_escalation(
    config: EscalateConfig,
    base: AgentConfig,
    *,
    first: ReaderIdentity,
    closing: ClosingConfig,
    first_closing: Closing | None,
    types: Collection[ValueType | None],
    output: Location,
) -> Escalation | None:
    """Which readings of a run are looked at again, and by whom; None where none is.

    Args:
        config: The knobs.
        base: The first reader, before its budgets were fitted.
        first: Its identity.
        closing: What is asked after each answer.
        first_closing: The same, as the first reader is asked it.
        types: Types that the questions ask for.
        output: The run's location, with the thresholds that were learnt.

    Raises:
        SettingsError: a knob is wrong, a reason needs what is not asked for, or the second reader equals the first.
        EngineStartError: model or knobs of the second reader can't work.
    """
    if not config.reasons:
        return None
    _require_asked(config, base, closing=closing, types=types)
    reader = _checked_reader(config, base, closing=closing, types=types) if config.to else None
    if reader is not None and reader.identity.fingerprint == first.fingerprint:
        raise SettingsError(
            "escalate.to: the second reader equals the first, so that it would answer the same; give another policy, "
            "other knobs of it, another model or other prompts"
        )
    closings = {each: first_closing.of_type(each) for each in types if each} if first_closing else {}
    thresholds = _thresholds(config.target, output, first=first, closings=closings)
    doubts = Doubts(
        when=config.reasons,
        confidence_below=config.confidence_below or 0.0,
        answers=config.answers,
        thresholds=thresholds.up_to if thresholds else {},
    )
    return Escalation(doubts=doubts, reader=reader, thresholds=thresholds)


def _thresholds(
    target: TargetConfig | None, output: Location, *, first: ReaderIdentity, closings: Mapping[ValueType, str | None]
) -> Thresholds | None:
    """What was learnt for a target by this output's reviews; None without a target."""
    if target is None:
        return None
    return read_thresholds(
        output, recall=target.recall, delta=target.delta, reader_fingerprint=first.fingerprint, closings=closings
    )


def second_fingerprint(config: EscalateConfig, base: AgentConfig) -> str | None:
    """The fingerprint of the second reader; None where there is none. See `checked_escalation`."""
    return identify_reader(fitted(_second_agent(config, base))).fingerprint if config.to else None


def require_second_looks(questions: pa.Table, escalation: Escalation | None) -> None:
    """Checks that each question can be looked at again: by a threshold for its target, in prompts that have room.

    Raises:
        SettingsError: names the question, and its length in tokens or what is wrong with its threshold.
    """
    if escalation is None:
        return
    if escalation.thresholds is not None:
        escalation.thresholds.require(questions)
    if escalation.reader is not None:
        try:
            require_questions_fit(questions, escalation.reader.agent)
        except SettingsError as error:
            raise SettingsError(f"escalate.to: {error}") from error


def _checked_reader(
    config: EscalateConfig, base: AgentConfig, *, closing: ClosingConfig, types: Collection[ValueType | None]
) -> SecondReader:
    agent = _second_agent(config, base)
    try:
        if make_policy(agent).reads_lists:
            raise SettingsError("policy.kind: 'shared' reads whole question lists, and a second look single questions")
        make_engine(agent)
        agent = fitted(agent)
        identity = identify_reader(agent)
        closes = checked_closing(closing, agent, types=types, reader_fingerprint=identity.fingerprint)
    except SettingsError as error:
        raise SettingsError(f"escalate.to: {error}") from error
    return SecondReader(agent=agent, identity=identity, closing=closes)


def _second_agent(config: EscalateConfig, base: AgentConfig) -> AgentConfig:
    """The agent of the second reader.

    Raises:
        SettingsError: a knob is unknown or wrong, or says how many samples there are.
    """
    try:
        agent = base.with_knobs(config.to)
    except ValidationError as error:
        problems = [_problem(".".join(map(str, each["loc"])), problem_message(each)) for each in error.errors()]
        raise SettingsError("; ".join(problems)) from None
    if agent.sampling.samples != base.sampling.samples:
        raise SettingsError(
            f"escalate.to.sampling.samples is {agent.sampling.samples}, sampling.samples is {base.sampling.samples}: "
            "each sample is read again by itself; leave the first out"
        )
    return agent


def _problem(place: str, message: str) -> str:
    text = (
        "there is no such knob of an agent; see docs/reference/settings.md" if message.startswith("Extra") else message
    )
    return f"escalate.to.{place}: {text}" if place else f"escalate.to: {text}"


def _require_asked(
    config: EscalateConfig, base: AgentConfig, *, closing: ClosingConfig, types: Collection[ValueType | None]
) -> None:
    """Refuses reasons that nothing would ever give.

    Raises:
        SettingsError: names the reason, and what it needs.
    """
    if Doubt.WEAK_SUPPORT in config.when and not closing.support:
        raise SettingsError(
            "escalate.when: weak_support needs closing.evidence and closing.support; set both, or leave it out"
        )
    if config.target is not None and make_policy(base).reads_lists:
        raise SettingsError("escalate.target: the policy 'shared' answers whole lists; a threshold is of one question")
    if config.target is not None and not any(each is not None and each.type is AnswerType.BOOL for each in types):
        raise SettingsError("escalate.target: no question is of answer_type bool, and a threshold is of a yes or no")
    untyped = [each for each in OF_VALUES if each in config.reasons]
    if untyped and not any(types):
        raise SettingsError(
            f"escalate.when: {untyped[0]} is said of a value, and no question has an answer_type; give the question "
            "list one, or leave it out (`answer` goes by the text of an answer)"
        )
