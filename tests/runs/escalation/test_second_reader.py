"""What a second reader must be able to do, before a run."""

import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.escalation import EscalateConfig
from memagent_batch.config.policy import PolicyConfig
from memagent_batch.domain.escalation import Doubts
from memagent_batch.errors import SettingsError
from memagent_batch.inputs.questions import given_questions
from memagent_batch.reading.question_lengths import require_questions_fit
from memagent_batch.runs.escalation.second_reader import (
    Escalation,
    SecondReader,
    require_second_looks,
    second_fingerprint,
)
from memagent_batch.wiring import identify_reader


@pytest.fixture
def agent(text_model: str) -> AgentConfig:
    policy = PolicyConfig(chunk_tokens=60, question_tokens=60, memory_tokens=40, answer_tokens=40)
    return AgentConfig(model=text_model, engine="simulated", window_tokens=1500, policy=policy)


def test_question_that_fits_the_first_reader_alone_is_refused(agent: AgentConfig) -> None:
    questions = given_questions([{"question_id": "long", "question": "Who signed it? " * 40}])
    second = agent.with_knobs({"window_tokens": 450})
    reader = SecondReader(agent=second, identity=identify_reader(second), closing=None)
    require_questions_fit(questions, agent)
    require_second_looks(questions, Escalation(doubts=Doubts(when=()), reader=None))
    with pytest.raises(SettingsError, match=r"escalate.to: question 'long' has [\d,]+ tokens"):
        require_second_looks(questions, Escalation(doubts=Doubts(when=()), reader=reader))


def test_question_that_fits_no_window_is_refused_with_the_parts_of_the_largest_turn(agent: AgentConfig) -> None:
    questions = given_questions([{"question_id": "long", "question": "Who signed it? " * 400}])
    with pytest.raises(
        SettingsError, match=r"the update turn needs question [\d,]+ \+ memory .*: shorten the question"
    ):
        require_questions_fit(questions, agent)


def test_fingerprint_of_the_second_reader_follows_its_knobs(agent: AgentConfig) -> None:
    wide, wider = ({"when": ["failed"], "to": {"policy": {"answer_tokens": tokens}}} for tokens in (50, 60))
    first, second = (second_fingerprint(EscalateConfig(**each), agent) for each in (wide, wider))
    assert len({first, second, identify_reader(agent).fingerprint}) == 3
    assert second_fingerprint(EscalateConfig(), agent) is None
