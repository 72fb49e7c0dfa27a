"""Fixtures that several parts of the tests use."""

import copy
import functools
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import hypothesis
import psutil
import pytest
import pytest_asyncio
from xdist.scheduler import LoadScopeScheduling

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.data.store.location import Location
from memagent_batch.logs import end_log
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.engines.openai.engine import OpenAIEngine
from memagent_batch.loop.engines.vllm.engine import VllmEngine
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from tests.durations import recorded
from tests.engine_context import context_of
from tests.faults.loopback.cluster import free_port
from tests.faults.loopback.proxy import FaultProxy
from tests.job_process import START_TRIES

if TYPE_CHECKING:
    from selenium import webdriver
    from tokenizers import Tokenizer as BackendTokenizer

# A time limit for each example tells how busy the machine is, not whether the code is right.
hypothesis.settings.register_profile("ci", deadline=None, max_examples=25)
hypothesis.settings.register_profile("all", deadline=None, max_examples=200)  # `make test-all`
hypothesis.settings.load_profile("ci")

# A machine on which documents are read has no C++ compiler: nothing that a test starts may need one.
os.environ["CXX"] = "no-compiler-for-c++"

WINDOW_TOKENS = 1024
CHECKOUT = Path(__file__).parents[1]
LICENCE = CHECKOUT / "LICENSE"
"""A text that does not change: tests count on the tokens of a tokeniser that is trained on it."""
GREEDY = SamplingConfig(logprobs=True)
SAMPLED = SamplingConfig(temperature=2.0, logprobs=True)
"""Hot, so that seeds differ even where the policy is sure of itself."""


GROUPS = {
    "ray_here": "ray",
    "cluster:": "cluster",
    "mark.ray": None,
    "mark.vllm": "vllm",
    "vllm_s": "vllm",
    "browser:": "browser",
}
"""Words in files of tests that need the session's Ray, the loopback cluster, an engine or a browser: such files run in
one process, so that each is started once. A file that starts its own Ray is a group by itself."""


@functools.cache
def group_of(file: Path) -> str:
    """Tests of one group run in one process: those that share what is expensive to start, and those of a file."""
    text = file.read_text(encoding="utf-8")
    return next((group for word, group in GROUPS.items() if word in text), None) or str(file)


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """Hands whole groups to processes, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(CHECKOUT / nodeid.partition("::")[0])


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    return GroupScheduling(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--most-seconds", type=float, help="leave out tests that took longer, by tests/durations.json")


@pytest.hookimpl(trylast=True)  # after `-m` and `-k` have chosen
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Runs those groups first that take longest, so that both processes end at the same time."""
    record = recorded()
    took = {item: sum(by_test.get(item.nodeid, 0) for by_test in record.values()) for item in items}
    if (most := config.getoption("--most-seconds")) is not None:
        config.hook.pytest_deselected(items=[item for item in items if took[item] > most])
        items[:] = [item for item in items if took[item] <= most]
    seconds: dict[str, float] = defaultdict(float)
    for item in items:
        seconds[group_of(item.path)] += took[item]
    items.sort(key=lambda item: (-seconds[group_of(item.path)], group_of(item.path)))


@pytest.fixture(autouse=True)
def fresh_log() -> Iterator[None]:
    """No test sees the log lines' form that another one chose."""
    yield
    end_log()


@pytest.fixture(scope="session", autouse=True)
def lake_catalog(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Names an Iceberg catalog `lake` in a SQLite file, as users do; pyiceberg and Ray's workers look once."""
    folder = tmp_path_factory.mktemp("lake")
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    for name, value in properties.items():
        os.environ[f"PYICEBERG_CATALOG__LAKE__{name.upper()}"] = value


@pytest.fixture(scope="session")
def s3_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An S3 API in a process of its own: a client that holds Python's lock while it waits would wait for ever."""
    log_path = tmp_path_factory.mktemp("s3") / "log.txt"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1"]
    with served(command, env={**os.environ}, log_path=log_path, health="/moto-api/data.json") as url:
        yield url


@pytest.fixture
def s3_bucket(s3_endpoint: str) -> Location:
    """An empty bucket of its own, with the options that reach it."""
    options = {"key": "test", "secret": "test", "client_kwargs": {"endpoint_url": s3_endpoint}}
    bucket = Location(uri=f"s3://bucket-{uuid.uuid4().hex}", storage_options=options)
    bucket.fs.mkdir(bucket.path)
    return bucket


@pytest.fixture
def proxy(s3_endpoint: str) -> Iterator[FaultProxy]:
    """Stands before the S3 API, and fails as a test asks for."""
    with FaultProxy(upstream=s3_endpoint) as proxy:
        yield proxy


@pytest.fixture(scope="session")
def tiny_model() -> str:
    return str(TINY_MODEL)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_model: str) -> Tokenizer:
    return Tokenizer(tiny_model)


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model folder with a tokeniser and a chat template but no weights; all that the simulated engine needs."""
    folder = tmp_path_factory.mktemp("text_model")
    save_tokenizer(folder, texts=[LICENCE.read_text(encoding="utf-8")], num_tokens=600)
    return str(folder)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Torch computes in one thread: in networks this small, threads mostly wait for each other."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """One Ray on this machine for all tests that run pipelines in this process."""
    import ray

    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("RAY_worker_niceness", "0")  # as the product sets it; else actors wait for all else here
    for left in reversed(range(START_TRIES)):
        try:
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
            break
        except Exception:  # Ray gives its own processes 30 s, and raises what it has at hand
            ray.shutdown()
            if not left:
                raise
    yield
    ray.shutdown()


@pytest.fixture(scope="session")
def vllm_server(tiny_model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL, up to /v1, of a real vLLM server of the shipped policy, named `tiny` there; window 1,024 tokens.

    Its tokeniser lies apart from config.json: beside it, `transformers` takes the model family's own pre-tokeniser.
    """
    tokenizer = tmp_path_factory.mktemp("tokenizer")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(Path(tiny_model) / name, tokenizer)
    model = f"--model {tiny_model} --tokenizer {tokenizer} --served-model-name tiny"
    arguments = f"{model} --host 127.0.0.1 --max-model-len 1024"
    flags = "--dtype float32 --enforce-eager --enable-prompt-tokens-details --disable-log-stats"
    guides = ["--structured-outputs-config", json.dumps({"backend": "xgrammar", "disable_any_whitespace": True})]
    executor = "--distributed-executor-backend vllm.v1.executor.uniproc_executor.UniProcExecutor"
    log_path = tmp_path_factory.mktemp("server") / "log.txt"
    settings = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_WAIT_POLICY": "PASSIVE", "VLLM_CPU_KVCACHE_SPACE": "1"}
    settings["TORCHDYNAMO_DISABLE"] = "1"  # else it compiles at the first log-probabilities
    module = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command = [*module, *guides, *f"{arguments} {flags} {executor}".split()]
    with served(command, env=os.environ | settings, log_path=log_path) as url:
        yield f"{url}/v1"


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_sampled(tiny_model: str) -> AsyncIterator[VllmEngine]:
    """vLLM in this process, drawing tokens."""
    settings = VllmEngine(enforce_eager=True, dtype="float32", cpu_kv_cache_gib=1, max_num_seqs=64)
    engine = settings.open(context_of(tiny_model, window_tokens=WINDOW_TOKENS, sampling=SAMPLED))
    await engine.start()
    yield engine
    await engine.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def vllm_greedy(vllm_sampled: VllmEngine) -> VllmEngine:
    greedy = copy.copy(vllm_sampled)
    greedy._context = replace(vllm_sampled._context, sampling=GREEDY)
    return greedy


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def openai_greedy(vllm_server: str, tiny_tokenizer: Tokenizer) -> AsyncIterator[Engine]:
    async for engine in started_client(vllm_server, tokenizer=tiny_tokenizer, sampling=GREEDY):
        yield engine


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def openai_sampled(vllm_server: str, tiny_tokenizer: Tokenizer) -> AsyncIterator[Engine]:
    async for engine in started_client(vllm_server, tokenizer=tiny_tokenizer, sampling=SAMPLED):
        yield engine


@pytest.fixture(scope="session")
def browser() -> "Iterator[webdriver.Chrome]":
    driver = start_browser()
    yield driver
    driver.quit()


def start_browser() -> "webdriver.Chrome":
    """A headless Chromium, which keeps what a page logs."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    chromium, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver_program is None:
        pytest.fail("chromium and chromedriver are not on the PATH; run `make tools`, or install them")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    flags = "--headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=1200,1000"
    quiet = "--disable-background-networking --disable-component-update --disable-sync"
    for argument in f"{flags} {quiet}".split():
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver_program))


async def started_client(base_url: str, *, tokenizer: Tokenizer, sampling: SamplingConfig) -> AsyncIterator[Engine]:
    context = context_of("tiny", tokenizer=tokenizer, window_tokens=WINDOW_TOKENS, sampling=sampling)
    engine = OpenAIEngine(base_url=base_url).open(context)
    await engine.start()
    yield engine
    await engine.stop()


@contextmanager
def served(command: list[str], *, env: dict[str, str], log_path: Path, health: str = "/health") -> Iterator[str]:
    """URL of a server while the block lasts, at a free port; at another one where it ends before it serves.

    It binds the port long after it was found to be free.
    """
    for is_last in (False, True):
        url = f"http://127.0.0.1:{(port := free_port())}"
        with log_path.open("wb") as log:
            process = subprocess.Popen([*command, "--port", str(port)], stdout=log, stderr=log, env=env)
        try:
            if is_served(f"{url}{health}", process=process):
                yield url
                return
            if is_last or process.poll() is None:
                pytest.fail(f"the server did not come up:\n{log_path.read_text(errors='replace')[-5000:]}")
        finally:
            end_with_children(process)


def is_served(url: str, *, process: "subprocess.Popen[bytes]") -> bool:
    """True as soon as the URL answers 200; False when the process ends first, or after 300 s."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url, trust_env=False).status_code == 200:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    return False


def end_with_children(process: "subprocess.Popen[bytes]") -> None:
    children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
    for child in children:
        if child.is_running():
            child.kill()
    process.wait()


def trained_backend(texts: list[str], *, num_tokens: int, normalizer: Any = None) -> "BackendTokenizer":
    """A byte-level tokeniser of `num_tokens` tokens that is learnt from the texts, with digits apart."""
    from tokenizers import Tokenizer as BackendTokenizer
    from tokenizers import decoders, models, pre_tokenizers, trainers

    backend = BackendTokenizer(models.BPE())
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=num_tokens, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(texts, trainer)
    return backend


def save_tokenizer(folder: Path, *, texts: list[str], num_tokens: int) -> "BackendTokenizer":
    """Writes such a tokeniser, with three tokens that steer the model."""
    from transformers import PreTrainedTokenizerFast

    backend = trained_backend(texts, num_tokens=num_tokens)
    backend.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    tokenizer.save_pretrained(folder)
    return backend
