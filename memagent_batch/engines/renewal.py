"""New weights for a running vLLM, inside its workers: what vLLM's own reload leaves of the old ones is renewed too."""

from typing import Any


class WeightRenewal:
    """Extends vLLM's worker (`worker_extension_cls`) by one method."""

    def renew_weights(self, model: str) -> None:
        """Takes the weights of a folder in place.

        An output layer that shares the embedding's weights is in no checkpoint, so vLLM's reload passes it by; on CPU
        it multiplies by a packed copy of them, which would stay that of the old weights.
        """
        from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
        from vllm.platforms import current_platform

        worker: Any = self
        worker.reload_weights(weights_path=model)
        if current_platform.is_cpu():
            for layer in worker.model_runner.get_model().modules():
                if isinstance(layer, ParallelLMHead):
                    layer.quant_method.process_weights_after_loading(layer)
