"""What is asked after the answers, refused where it can't be before an engine starts."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from memagent_batch.config.agent import AgentConfig
from memagent_batch.data.documents.questions import asked_types, read_questions, type_fields
from memagent_batch.errors import ValueTypeError
from memagent_batch.loop.follow_ups.answer_types import Bool, Json
from memagent_batch.run.reading.follow_ups import require_compiled

PRICE, NAME = (
    Json({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}) for name in ("price", "name")
)
QUESTIONS: list[dict[str, Any]] = [
    {"question_id": "free", "question": "Who?"},
    {"question_id": "is", "question": "Is it?", **type_fields(Bool())},
    {"question_id": "price", "question": "How much?", **type_fields(PRICE)},
    {"question_id": "other-price", "question": "How much else?", **type_fields(PRICE)},
    {"question_id": "name", "question": "Which name?", **type_fields(NAME)},
]


@pytest.fixture
def agent(text_model: str) -> AgentConfig:
    return AgentConfig(model=text_model, engine="vllm")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The schemas that a compiler is given, which can't compile a name."""
    found: list[str] = []

    def compile_schema(schema: str, **_: Any) -> None:
        found.append(schema)
        if "name" in schema:
            raise RuntimeError("Unsupported\n keyword")

    stand_in = SimpleNamespace(Grammar=SimpleNamespace(from_json_schema=compile_schema))
    monkeypatch.setitem(sys.modules, "xgrammar", stand_in)
    return found


def test_types_of_a_list_have_the_first_question_that_asks_for_them() -> None:
    assert asked_types(read_questions(None, ask=QUESTIONS)) == {
        Bool(): "question 'is'",
        PRICE: "question 'price'",
        NAME: "question 'name'",
    }


def test_schema_that_cannot_be_compiled_is_refused_with_its_question(compiled: list[str], agent: AgentConfig) -> None:
    with pytest.raises(ValueTypeError, match=r"^question 'name': schema: .*\(Unsupported keyword\): \{.*\"name\""):
        require_compiled(asked_types(read_questions(None, ask=QUESTIONS)), agent)
    assert len(compiled) == 2


def test_schemas_that_an_endpoint_is_sent_are_its_own_to_compile(compiled: list[str], agent: AgentConfig) -> None:
    endpoint = agent.model_copy(update={"engine": "openai"})
    require_compiled(asked_types(read_questions(None, ask=QUESTIONS)), endpoint)
    assert compiled == []
