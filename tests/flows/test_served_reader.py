"""`reader-135m` behind vLLM's server: the same answers through completions, chats and batches."""

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

import memagent_batch as ma
from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.loop.models.packaged import install_model
from pipelines.licence_scan import POLICY, QUESTIONS, packages
from tests.conftest import served
from tests.engines.batch_server import BatchServer, Ending, serve_batches

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PACKAGES = ("attrs", "filelock", "regex", "click", "idna", "packaging")
WAYS = {
    "completions": ("openai", EndpointApi.COMPLETIONS),
    "chat": ("openai", EndpointApi.CHAT),
    "batches of completions": ("openai-batch", EndpointApi.COMPLETIONS),
    "batches of chats": ("openai-batch", EndpointApi.CHAT),
}
MOST_DIFFERENT = 0.05
"""Share of answers that may differ: requests that are computed beside others round otherwise, which decides between two
tokens that are almost as likely."""


class VllmBatchServer(BatchServer):
    """Batches in front of vLLM's server, which has none: their requests go there one by one, as all others do."""

    upstream: str = ""

    def application(self) -> web.Application:
        app = super().application()
        batch_routes = [
            route for route in app.router.routes() if "files" in str(route.resource) or "batches" in str(route.resource)
        ]
        forwarding = web.Application(client_max_size=1 << 30)
        for route in batch_routes:
            if route.method != "HEAD" and route.resource is not None:
                forwarding.router.add_route(route.method, route.resource.canonical, route.handler)
        forwarding.router.add_route("*", "/{path:.*}", self._forward)
        return forwarding

    async def _forward(self, request: web.Request) -> web.Response:
        async with (
            aiohttp.ClientSession() as session,
            session.request(
                request.method,
                f"{self.upstream}{request.rel_url}",
                data=await request.read(),
                headers={"Content-Type": "application/json"},
            ) as answer,
        ):
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)

    def _answers(
        self, ending: Ending, requests: dict[str, Any], answer: Callable[[dict[str, Any]], tuple[int, Any]]
    ) -> Iterator[tuple[str, int, Any]]:
        with ThreadPoolExecutor(32) as pool:
            answers = pool.map(self._ask, requests.values())
        for custom_id, (status, body) in zip(requests, answers, strict=True):
            yield custom_id, status, body

    def _ask(self, body: dict[str, Any]) -> tuple[int, Any]:
        path = "chat/completions" if "messages" in body else "completions"
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.upstream}/v1/{path}", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


@pytest.fixture
def reader_server(tmp_path: Path) -> Iterator[str]:
    """URL of vLLM's server of the reader, named `reader`."""
    model = install_model("reader-135m")
    arguments = f"--model {model} --served-model-name reader --host 127.0.0.1 --max-model-len 2048 --dtype float32"
    flags = "--enforce-eager --disable-log-stats --generation-config vllm"
    executor = "--distributed-executor-backend vllm.v1.executor.uniproc_executor.UniProcExecutor"
    settings = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "TORCHDYNAMO_DISABLE": "1"}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *f"{arguments} {flags} {executor}".split()]
    with served(command, env=os.environ | settings, log_path=tmp_path / "server.txt") as url:
        yield url


@pytest.mark.timeout(1800)
def test_completions_chats_and_batches_give_the_same_answers(reader_server: str, tmp_path: Path) -> None:
    documents = packages(PACKAGES)
    answers: dict[str, dict[tuple[str, str], Any]] = {}
    batch_server = VllmBatchServer()
    batch_server.upstream = reader_server
    with serve_batches(batch_server):
        for way, (engine, api) in WAYS.items():
            agent = ma.Agent(
                model="reader",
                tokenizer=str(install_model("reader-135m")),
                engine=engine,
                openai=OpenAIConfig(api=api, base_url=batch_server.base_url),
                window_tokens=2048,
                policy=POLICY,
            )
            run = ma.answer(documents=documents, questions=QUESTIONS, output=str(tmp_path / way), agent=agent)
            answers[way] = {
                (row["document_id"], row["question_id"]): (row["status"], row["answer"])
                for row in run.answers().to_pylist()
            }
    assert batch_server.sizes, "nothing was asked in batches"
    expected = answers["completions"]
    assert len(expected) == documents.num_rows * len(QUESTIONS)
    assert {status for status, _ in expected.values()} == {"ok"}
    for way, given in answers.items():
        different = {key: (expected[key], answer) for key, answer in given.items() if answer != expected[key]}
        print(
            f"{way}: {len(given) - len(different)} of {len(given)} answers as by completions",
            *different.items(),
            sep="\n  ",
        )
        assert given.keys() == expected.keys()
        assert len(different) <= MOST_DIFFERENT * len(given)
