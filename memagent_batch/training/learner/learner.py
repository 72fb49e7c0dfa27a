"""The learner: a network, its reference and its optimiser; one step of the optimiser for some groups of samples.

The objective is that of Multi-Conv DAPO (MemAgent, arXiv 2507.02259). With r the ratio of a token's probability now to
that when it was drawn, A its sample's advantage, and p_ref its probability under a frozen reference, over the T tokens
of a step that are learnt from:

    L = 1/T sum( -g + w min(p_ref/p - log(p_ref/p) - 1, limit) )
    g = min(r A, clip(r, 1 - low, 1 + high) A), and at least c A where A is negative (dual clip)

`token_sums` takes the sums of a batch; the learner divides by T, which all parts of a step share.
"""

import copy
import math
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypedDict

import torch
from torch import Tensor

from memagent_batch.config.training import LearnerConfig
from memagent_batch.errors import LearningError, SettingsError
from memagent_batch.models.weights import WEIGHT_ENDINGS, model_sha256, weights_version
from memagent_batch.store.json_files import write_json
from memagent_batch.store.location import Location
from memagent_batch.training.learner.batches import Conversation, ConversationBatch, batches

LEARNT_BYTES = 16
"""Memory of each weight that is learnt, bytes: the weight, its gradient and AdamW's two averages in float32."""
REFERENCE_BYTES = 4
CGROUP_MEMORY_FILE = Path("/sys/fs/cgroup/memory.max")
"""Memory that the container may use, bytes, or `max` (cgroup v2)."""
TRAINING_FILE = "training.json"
"""Where weights come from: in every model folder that is written here."""
OPTIMISER_FILE = "optimiser.state"
"""What `Learner.state` gives, beside the weights that it belongs to; its ending is not one of weights."""
TREE_MODELS = frozenset({"llama", "qwen2", "qwen3"})
"""Types of models that compute a start which texts share once. Others, that may have windows or states, are trained
text by text."""
NOT_COPIED = frozenset({".md", ".jsonl", ".index", TRAINING_FILE, OPTIMISER_FILE})
"""Endings, and names, of files that describe the weights before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFigures:
    """What one step of the optimiser was like. Means are over the tokens that were learnt from."""

    loss: float
    kl: float | None
    """Estimated divergence from the reference, nats a token; None without a reference."""
    clip_fraction: float
    """Share of tokens with a clipped ratio, which have no gradient."""
    mean_ratio: float
    """Mean ratio of probabilities, now to when drawn; 1 except for rounding where nothing was learnt since."""
    max_logprob_change: float
    """Largest change of a token's log-probability since it was drawn, nats."""
    entropy: float
    """Mean of minus the log-probability of the drawn tokens, nats: an estimate of the entropy."""
    gradient_norm: float
    learning_rate: float
    num_conversations: int
    num_learnt_tokens: int
    num_nonzero_advantage: int
    """Conversations with another advantage than 0: without one, the rewards of every question were equal."""
    num_tokens: int
    """Tokens that went through the network, prompts included."""
    seconds: float
    tokens_per_second: float
    """`num_tokens` through the network and back in a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSums:
    """Sums over the tokens that are learnt from; scalars. All but `loss` are figures without a gradient."""

    loss: Tensor
    kl: Tensor
    """Its estimate of the divergence from the reference, nats; 0 without one."""
    clipped: Tensor
    """Tokens whose ratio is clipped, on either side or by the dual clip: they have no gradient."""
    ratio: Tensor
    """Ratios of probabilities, now to when drawn."""
    nll: Tensor
    """Minus the log-probabilities now, nats."""
    max_logprob_change: Tensor
    """Largest distance of two log-probabilities, now and when drawn, nats: not a sum."""


class LearnerState(TypedDict):
    """What a learner goes on from, as torch saves it."""

    network: Mapping[str, torch.Tensor]
    optimiser: Mapping[str, object]
    num_steps: int


class Learner:
    """Updates the weights of one network."""

    def __init__(self, network: Any, *, reference: Any | None, settings: LearnerConfig) -> None:
        """Takes the network to update, and the frozen one that it must not stray from."""
        self.network = network
        self.num_steps = 0
        self._reference = reference
        self._settings = settings
        self._device = next(network.parameters()).device
        self._optimiser = torch.optim.AdamW(
            network.parameters(),
            lr=settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
        )

    def step(self, items: Sequence[Conversation]) -> StepFigures | None:
        """One step of the optimiser for some whole groups; None where they hold no token to learn from.

        Raises:
            LearningError: loss or gradient is not finite, and the weights are as they were; or the GPU's memory ran
                out, and this learner is of no further use.
        """
        if not any(item.num_learnt_tokens for item in items):
            return None
        began = time.monotonic()
        try:
            sums, norm = self._update(items)
        except torch.OutOfMemoryError as error:
            raise LearningError(
                f"step {self.num_steps + 1}: {error}; lower learner.batch_tokens, or vllm.gpu_memory_utilization where "
                "an engine runs beside"
            ) from error
        self.num_steps += 1
        return self._figures(sums, items, norm=norm, seconds=time.monotonic() - began)

    def _update(self, items: Sequence[Conversation]) -> tuple[dict[str, float], float]:
        """Moves the weights; returns what `accumulate` does, and the gradient's norm."""
        sums = self.accumulate(items)
        norm = float(torch.nn.utils.clip_grad_norm_(self.network.parameters(), self._settings.clip_norm))
        if not (math.isfinite(norm) and math.isfinite(sums["loss"])):
            self._optimiser.zero_grad()
            raise LearningError(
                f"step {self.num_steps + 1}: loss {sums['loss']}, norm of the gradient {norm}; lower "
                "learner.learning_rate, or leave out learner.bf16"
            )
        rate = self._settings.learning_rate * min(1.0, (self.num_steps + 1) / (self._settings.warmup_steps + 1))
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        self._optimiser.step()
        self._optimiser.zero_grad()
        return sums, norm

    def accumulate(self, items: Sequence[Conversation]) -> dict[str, float]:
        """Adds the gradient of the objective over all conversations, and returns its sums divided by their tokens.

        However the conversations are cut into batches, each token weighs the same: all are divided by one number.
        """
        num_learnt = sum(item.num_learnt_tokens for item in items)
        totals = {field.name: 0.0 for field in fields(TokenSums)}
        in_trees = takes_trees(self.network)
        for batch in batches(items, batch_tokens=self._settings.batch_tokens, in_trees=in_trees):
            sums = self._sums(batch.to(self._device))
            (sums.loss / num_learnt).backward()
            for name in totals.keys() - {"max_logprob_change"}:
                totals[name] += float(getattr(sums, name).detach()) / num_learnt
            totals["max_logprob_change"] = max(totals["max_logprob_change"], float(sums.max_logprob_change))
        return totals

    def state(self) -> LearnerState:
        """All that another process needs to go on just so: weights in full, the optimiser's averages, its steps."""
        return LearnerState(
            network=self.network.state_dict(),
            optimiser=self._optimiser.state_dict(),
            num_steps=self.num_steps,
        )

    def load_state(self, state: LearnerState) -> None:
        """Goes on from what `state` gave."""
        self.network.load_state_dict(state["network"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.num_steps = state["num_steps"]

    def _sums(self, batch: ConversationBatch) -> TokenSums:
        with torch.autocast(self._device.type, dtype=torch.bfloat16, enabled=self._settings.bf16):
            logprobs = response_logprobs(self.network, batch)
            reference = None
            if self._reference is not None:
                with torch.no_grad():
                    reference = response_logprobs(self._reference, batch)
        return token_sums(
            logprobs,
            drawn_logprobs=batch.logprobs.to(logprobs.dtype),
            advantages=batch.advantages.to(logprobs.dtype),
            mask=batch.mask,
            reference_logprobs=reference,
            settings=self._settings,
        )

    def _figures(
        self, sums: dict[str, float], items: Sequence[Conversation], *, norm: float, seconds: float
    ) -> StepFigures:
        num_tokens = sum(item.num_tokens for item in items)
        return StepFigures(
            loss=sums["loss"],
            kl=sums["kl"] if self._reference is not None else None,
            clip_fraction=sums["clipped"],
            mean_ratio=sums["ratio"],
            max_logprob_change=sums["max_logprob_change"],
            entropy=sums["nll"],
            gradient_norm=norm,
            learning_rate=self._optimiser.param_groups[0]["lr"],
            num_conversations=len(items),
            num_learnt_tokens=sum(item.num_learnt_tokens for item in items),
            num_nonzero_advantage=sum(item.advantage != 0 for item in items),
            num_tokens=num_tokens,
            seconds=seconds,
            tokens_per_second=num_tokens / seconds,
        )


def load_learner(model: Path, *, reference: Path, settings: LearnerConfig) -> Learner:
    """A learner of the model in a folder; the reference is loaded where it has a weight.

    Raises:
        SettingsError: there is no such device.
    """
    device = choose_device(settings.device)
    network = load_network(model, device=device)
    frozen = None
    if settings.kl_weight > 0:
        frozen = copy.deepcopy(network) if reference == model else load_network(reference, device=device)
        frozen.requires_grad_(requires_grad=False)
    return Learner(network, reference=frozen, settings=settings)


def require_memory(model: Path, *, settings: LearnerConfig) -> None:
    """Refuses a model that can't be trained here, before anything is read.

    Raises:
        SettingsError: its weights, gradients and averages take more memory than the device has; or there is no such
            device.
    """
    device = choose_device(settings.device)
    num, there = num_weights(model), _memory_bytes(device)
    needed = num * (LEARNT_BYTES + (REFERENCE_BYTES if settings.kl_weight > 0 else 0))
    if needed > there:
        reference = f" and {REFERENCE_BYTES} for the reference (none with --learner.kl-weight 0)"
        raise SettingsError(
            f"model: {model} has {num / 1e9:.1f} billion weights; training takes {LEARNT_BYTES} bytes for each"
            f"{reference if settings.kl_weight > 0 else ''}: {needed / 1e9:.0f} GB before activations, and "
            f"{'the GPU' if device.type == 'cuda' else 'this machine'} has {there / 1e9:.0f} GB; train a smaller "
            "model, or hand the rollouts to a trainer that shards (memagent export)"
        )


def _memory_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = CGROUP_MEMORY_FILE.read_text().strip() if CGROUP_MEMORY_FILE.is_file() else "max"
    return machine if limit == "max" else min(machine, int(limit))


def choose_device(name: str) -> torch.device:
    """The device of a name, or a GPU if there is one.

    Raises:
        SettingsError: there is no GPU here.
    """
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise SettingsError("learner.device: torch sees no GPU here; set cpu or auto")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


def load_network(folder: Path, *, device: torch.device) -> Any:
    """The model of a folder with weights in float32, as small steps need; without dropout, as it was sampled."""
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()


def num_weights(folder: Path) -> int:
    """Weights of the model of a folder, by its configuration; loads none."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        network = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    return sum(parameter.numel() for parameter in network.parameters())


def response_logprobs(network: Any, batch: ConversationBatch) -> Tensor:
    """Log-probabilities of the responses' tokens, nats; shape [batch, width]. Logits are made for their sources alone.

    Rows are padded on the right and a causal model looks left, so only trees need an attention mask.
    """

    def choose(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0].flatten(0, 1)[batch.sources][None],)

    seen = {"position_ids": batch.positions, "attention_mask": sees} if (sees := batch.sees) is not None else {}
    with network.get_output_embeddings().register_forward_pre_hook(choose):
        logits = network(input_ids=batch.tokens, use_cache=False, **seen).logits[0]
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    chosen = precise.gather(-1, batch.targets[:, None]).squeeze(-1)
    return (chosen - precise.logsumexp(-1))[batch.places]


def takes_trees(network: Any) -> bool:
    """Whether each layer of a network sees by the mask that it is given, and by nothing else."""
    config = network.config
    is_known = config.model_type in TREE_MODELS and config._attn_implementation == "sdpa"
    return is_known and set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}


def write_model(network: Any, folder: Path, *, like: Path, record: Mapping[str, Any]) -> str:
    """Writes a whole model folder: weights in the number format of `like`, and all other files; gives its version.

    What is in the folder must be part of the same model. The record says where the weights come from: `training.json`.
    """
    from transformers import AutoConfig

    dtype = AutoConfig.from_pretrained(like).dtype or torch.float32
    folder.mkdir(parents=True, exist_ok=True)
    rounded = network if dtype == network.dtype else copy.deepcopy(network).to(dtype)
    rounded.save_pretrained(folder)
    for path in sorted(like.iterdir()):
        is_copied = not path.name.endswith((*WEIGHT_ENDINGS, *NOT_COPIED, ".index.json"))
        if is_copied and path.is_file() and not (folder / path.name).exists():
            shutil.copyfile(path, folder / path.name)
    version = weights_version(model_sha256(str(folder)))
    write_json(Location(uri=str(folder / TRAINING_FILE)), {"weights_version": version, **record})
    for path in folder.iterdir():
        shutil.copymode(like / "config.json", path)  # `save_pretrained` leaves weights to their owner alone
        sync(path)
    return version


def sync(path: Path) -> None:
    """Has what was written reach the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def token_sums(
    logprobs: Tensor,
    *,
    drawn_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    reference_logprobs: Tensor | None,
    settings: LearnerConfig,
) -> TokenSums:
    """The objective over a batch of conversations.

    Args:
        logprobs: log-probabilities of the drawn tokens now, nats; shape [batch, length].
        drawn_logprobs: the same when they were drawn; NaN for those that were not drawn.
        advantages: of each token's sample.
        mask: true where a token is learnt from; what stands elsewhere counts for nothing.
        reference_logprobs: log-probabilities under the reference; without them there is no such term.
        settings: clipping, and the weight of the divergence.
    """
    drawn_logprobs = torch.where(drawn_logprobs.isnan(), logprobs.detach(), drawn_logprobs)
    change = (logprobs - drawn_logprobs).masked_fill(~mask, 0.0)
    ratio = change.exp()
    free = ratio * advantages
    clipped = ratio.clamp(1.0 - settings.clip_low, 1.0 + settings.clip_high) * advantages
    gain = torch.minimum(free, clipped)
    if settings.dual_clip is not None:
        gain = torch.where(advantages < 0, torch.maximum(gain, settings.dual_clip * advantages), gain)
    loss = -gain.masked_fill(~mask, 0.0).sum()
    kl = logprobs.new_zeros(())
    if reference_logprobs is not None:
        gap = (reference_logprobs - logprobs).masked_fill(~mask, 0.0)
        estimates = gap.exp() - gap - 1.0
        kl = (estimates if settings.kl_limit is None else estimates.clamp(max=settings.kl_limit)).sum()
    return TokenSums(
        loss=loss + settings.kl_weight * kl,
        kl=kl.detach(),
        clipped=((gain != free) & mask).sum(),
        ratio=ratio.detach().masked_fill(~mask, 0.0).sum(),
        nll=-logprobs.detach().masked_fill(~mask, 0.0).sum(),
        max_logprob_change=change.detach().abs().max(),
    )
