"""What an API of an endpoint is: prompts to request bodies, responses to completions. Knows no network."""

from typing import ClassVar, Protocol

from pydantic import JsonValue

from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.openai.guides import GuideForm
from memagent_batch.engines.openai.protocol import Response

ADDRESS_REMEDY = "check model and openai.base_url (up to /v1)"


class Api(Protocol):
    """One of the APIs of an OpenAI-compatible endpoint."""

    path: ClassVar[str]
    """Where requests go, below the base URL."""
    probe_tokens: ClassVar[int]
    """Budget of a request that only asks whether the endpoint answers."""
    forms: ClassVar[tuple[GuideForm, ...]]
    """How guides may be sent, in the order in which they are tried."""

    def body(self, prompt: Prompt, *, seed: int, form: GuideForm | None) -> dict[str, JsonValue] | None:
        """The body of a request; None where the form can't say the prompt's guide."""

    def adapt(self, response: Response) -> list[str]:
        """Leaves out of all further requests what this response to a probe shows to be unknown there; its names."""

    def remedy(self, response: Response) -> str:
        """What to do where this response refuses every request."""

    def completion(self, response: Response, *, prompt: Prompt, turn: str, form: GuideForm | None = None) -> Completion:
        """The response as a completion of the prompt, whose guide was sent in this form.

        Args:
            response: of status 200.
            prompt: what was asked.
            turn: the turn and the endpoint, for messages.
            form: how the guide was sent; None where there was none.

        Raises:
            EngineRequestError: there is no completion, or none that can be right.
        """
