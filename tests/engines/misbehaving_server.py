"""A chat server with an honest stub of a model, which answers from the text that it is shown, and the ways in which
real servers misbehave.

A fault is a function: from the body of a request and the stub's honest text to a reply.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from tests.engines.scripted_server import Reply, Script, scripted_server

CHARS_A_TOKEN = 4
"""Of the server's tokeniser, which is none that the user has."""
WINDOW_CHARS = 1600
"""What is left of a prompt by a server that cuts; the prompts of the jobs have up to twice as many."""

Fault = Callable[[dict[str, Any], str], Reply]


@contextmanager
def misbehaving_server(fault: Fault) -> Iterator[Script]:
    """Serves the stub, with this fault in every reply that the fault is for."""
    with scripted_server() as script:
        script.answer, script.answers_probes = lambda body: fault(body, honest_text(body)), True
        yield script


def shown(body: dict[str, Any]) -> str:
    """The message of a request."""
    return str(body["messages"][0]["content"])


def is_of_reading(body: dict[str, Any]) -> bool:
    """Whether a request is a turn of a reading, and not a probe of the start."""
    return "<question>" in shown(body) and "Are you there?" not in shown(body)


def honest_text(body: dict[str, Any], *, text: str | None = None) -> str:
    """What the stub writes; `text` is what the server shows it of the prompt, where it cuts."""
    text = shown(body) if text is None else text
    if "response_format" in body:
        return _value(body["response_format"]["json_schema"]["schema"], text)
    if words := re.findall(r"code word is (\w+)", text):
        return ", ".join(words)
    key = re.search(r"What is the ([a-z ]+)\?", text)
    if key is None:
        return "Yes."
    values = re.findall(rf"The {key[1]} is (\d+)", re.sub(r"<question>.*?</question>", "", text, flags=re.DOTALL))
    if "<section>" in text or "</section>" in text:
        return f"The {key[1]} is {values[0]}." if values else "Nothing about it so far."
    return f"\\boxed{{{values[0]}}}" if values else "\\boxed{not stated}"


def _value(schema: dict[str, Any], text: str) -> str:
    """The object that a schema asks for, with the value of the answer that the prompt shows."""
    value = schema["properties"].get("value")
    if value is None:
        return '{"zq":[733,733]}'
    answer = re.search(r"<answer>\s*(?:\\boxed\{)?(\d+)", text)
    candidates = [answer[1] if answer else "", "zq733", "not stated", *value.get("enum", ())]
    pattern = value.get("pattern") or "|".join(map(re.escape, value["enum"]))
    return json.dumps({"value": next(each for each in candidates if re.fullmatch(pattern, each))})


def completion(text: str | None, body: dict[str, Any], *, prompt: str | None = None, **choice: Any) -> Reply:
    """A reply; `prompt` is what its usage counts."""
    if "structured_outputs" in body:
        return Reply(status=400, body=b'{"error": {"message": "unknown field structured_outputs"}}')
    message = {"role": "assistant", "content": text, **choice.pop("message", {})}
    usage = choice.pop("usage", None)
    if usage is None:
        prompt_tokens = len(shown(body) if prompt is None else prompt) // CHARS_A_TOKEN
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": len(text or "") // CHARS_A_TOKEN}
    reply = {"model": body["model"], "choices": [{"message": message, "finish_reason": "stop", **choice}]}
    return Reply(body=json.dumps(reply | ({"usage": usage} if usage else {})).encode())


def well(body: dict[str, Any], text: str) -> Reply:
    return completion(text, body)


def cutting(keep: Callable[[str], str], *, usage: str = "honest") -> Fault:
    """Cuts prompts; its usage counts what was read (`honest`), what was sent (`dishonest`), or is left out (`none`)."""

    def reply(body: dict[str, Any], text: str) -> Reply:
        kept = keep(shown(body))
        said = honest_text(body, text=kept)
        if usage == "none":
            return completion(said, body, usage={})
        return completion(said, body, prompt=kept if usage == "honest" else None)

    return reply


def keep_end(text: str) -> str:
    return text[-WINDOW_CHARS:]


def keep_beginning(text: str) -> str:
    return text[:WINDOW_CHARS]


def keep_both_ends(text: str) -> str:
    return text if len(text) <= WINDOW_CHARS else text[: WINDOW_CHARS // 2] + text[-WINDOW_CHARS // 2 :]


def thinking_in_secret(num_tokens: int) -> Fault:
    """Spends so many hidden tokens before it writes anything, and takes no other name of the budget."""

    def reply(body: dict[str, Any], text: str) -> Reply:
        if "max_tokens" in body:
            return Reply(status=400, body=b'{"error": {"message": "max_tokens is not supported with this model"}}')
        budget = body["max_completion_tokens"]
        usage = {"prompt_tokens": len(shown(body)) // CHARS_A_TOKEN, "completion_tokens": min(budget, num_tokens + 5)}
        if budget <= num_tokens + len(text) // CHARS_A_TOKEN:
            return completion("", body, finish_reason="length", usage=usage)
        return completion(text, body, usage=usage)

    return reply


def of_readings(choice: Callable[[str], dict[str, Any]], *, where: str = "") -> Fault:
    """Other fields of a choice, in turns of readings whose prompt holds `where`; `content` is the text."""

    def reply(body: dict[str, Any], text: str) -> Reply:
        if not is_of_reading(body) or where not in shown(body):
            return completion(text, body)
        fields = choice(text)
        return completion(fields.pop("content", text), body, **fields)

    return reply


def every(number: int, other: Callable[[dict[str, Any], str], Reply], *, limit: int | None = None) -> Fault:
    """Another reply to each of so many prompts of readings, `limit` times at most, the first time that it is sent."""
    prompts: list[str] = []
    lock = threading.Lock()

    def reply(body: dict[str, Any], text: str) -> Reply:
        if not is_of_reading(body):
            return completion(text, body)
        with lock:
            is_first = shown(body) not in prompts
            prompts.append(shown(body))
            place = len(set(prompts))
        is_other = is_first and place % number == 0 and (limit is None or place // number <= limit)
        return other(body, text) if is_other else completion(text, body)

    return reply


def limited(number: int, *, seconds: float) -> Fault:
    """Takes so many requests in that time, and turns the others away without saying until when."""
    taken: list[float] = []
    lock = threading.Lock()

    def reply(body: dict[str, Any], text: str) -> Reply:
        with lock:
            now = time.monotonic()
            taken[:] = [moment for moment in taken if moment > now - seconds]
            if len(taken) >= number:
                return Reply(status=429, body=b'{"error": {"message": "limit of requests a minute"}}')
            taken.append(now)
        return completion(text, body)

    return reply


def always(reply: Reply) -> Fault:
    return lambda body, text: reply


def after(number: int, fault: Fault, *, guided: bool = False) -> Fault:
    """Behaves well for so many requests, of guided ones alone if these are meant, then in this way."""
    requests, lock = count(), threading.Lock()

    def reply(body: dict[str, Any], text: str) -> Reply:
        if guided and "response_format" not in body:
            return completion(text, body)
        with lock:
            is_over = next(requests) >= number
        return fault(body, text) if is_over else completion(text, body)

    return reply
