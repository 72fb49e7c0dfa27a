"""Trains a model on the rollouts that it drew: one epoch of Multi-Conv DAPO in plain PyTorch, on one device.

    python pipelines/train_policy.py rollouts-1/ --model my-model/ --output my-model-2/

Reads the output of `memagent collect` and writes a model folder that every engine opens. All turns of a rollout share
its advantage, which `collect` has computed. Needs torch, which the extras `cpu`, `gpu` and `reader` install.
How to collect and train in a loop: docs/how-to/training.md. The loss: docs/explanation/learning.md.
"""

import argparse
import json
import math
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from memagent_batch.apps.training.rollouts_table import ROLLOUTS, read_groups, read_rollouts_record
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, OutputError, SettingsError
from memagent_batch.loop.models.weights import WEIGHT_ENDINGS, model_sha256, weights_version
from memagent_batch.run.wiring import resolve_model

TOKEN_COLUMNS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_mask")
COLUMNS = ("group_id", "sample", "reward", "advantage", "weights_version", *TOKEN_COLUMNS)
KL_LIMIT_NATS = 10.0
"""Largest divergence of one token from the reference that counts."""
OPTIMIZER_FILE = "optimizer.state"
"""AdamW's averages, 8 bytes a weight; the name is not one that engines take for weights."""
TRAINING_FILE = "training.json"


def setting(default: Any, help_text: str) -> Any:
    """Makes a field that is also an option of the command line."""
    return field(default=default, metadata={"help": help_text})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings:
    """Settings of the optimiser and of the loss; the defaults are the published ones where there are any."""

    learning_rate: float = setting(1e-6, "learning rate after the warm-up")
    warmup_steps: int = setting(20, "steps in which the learning rate rises to its full height")
    weight_decay: float = setting(0.01, "weight decay of AdamW")
    clip_norm: float = setting(1.0, "largest norm of the gradient of a step")
    groups_per_step: int = setting(8, "questions whose samples make one step, at most")
    clip_low: float = setting(0.2, "how far below 1 the ratio of a token's probabilities counts")
    clip_high: float = setting(0.2, "how far above 1 it counts; DAPO's clip-higher is 0.28")
    dual_clip: float = setting(3.0, "largest ratio that counts where the advantage is negative")
    kl_weight: float = setting(0.001, "weight of the divergence from the reference; 0 loads no reference")
    batch_tokens: int = setting(16384, "tokens in the network at once, padding included; bounds the memory")
    device: str = setting("cuda" if torch.cuda.is_available() else "cpu", "cpu or cuda")
    dtype: str = setting("float32", "float32 or bfloat16, to compute in; the weights stay in float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of a rollout. `sources`, `targets` and `drawn_logprobs` have the shape [num_learnt_tokens]."""

    text: Tensor
    """Token ids of prompt and response, without the last one, which is only predicted."""
    sources: Tensor
    """Places in the text of the tokens from which the targets are predicted."""
    targets: Tensor
    """Token ids of the response that are learnt from."""
    drawn_logprobs: Tensor
    """Their log-probabilities when they were sampled, nats."""
    advantage: float


def train(
    rollouts: str,
    *,
    model: str,
    output: str,
    reference: str | None = None,
    settings: TrainSettings | None = None,
    allow_other_weights: bool = False,
) -> list[dict[str, float]]:
    """Trains for one epoch, writes the new model, and returns the figures of each step."""
    settings = settings or TrainSettings()
    source, target = Path(resolve_model(model)), Path(output)
    if not (source / "config.json").is_file():
        raise SettingsError(f"model: {source} is not a model folder (no config.json); download the model into a folder")
    if target.exists():
        raise OutputError(f"output: {output} exists already; choose a new folder, or remove it")
    place = Location(uri=rollouts)
    read_rollouts_record(place)  # refuses what is no rollouts table
    batches = read_groups(place, columns=COLUMNS)
    table = pa.concat_tables([ROLLOUTS.empty_table().select(COLUMNS), *batches])
    version = weights_version(model_sha256(str(source)))
    if not allow_other_weights and (others := {*table["weights_version"].to_pylist()} - {version}):
        weights = f"drawn with weights {', '.join(sorted(others))}, and {model} has {version}"
        raise InputError(f"{rollouts}: {weights}; collect with this model, or pass --allow-other-weights")
    groups = group_turns(table)
    if not any(turn.advantage for group in groups for turn in group):
        raise InputError(f"{rollouts}: the rewards of every group are equal; collect more samples of each question")
    network = load_network(source, device=settings.device)
    frozen = None
    if settings.kl_weight:
        frozen = load_network(resolve_model(reference or model), device=settings.device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    if (source / OPTIMIZER_FILE).exists():
        optimizer.load_state_dict(torch.load(source / OPTIMIZER_FILE, map_location="cpu", weights_only=True))
    figures: list[dict[str, float]] = []
    num_steps = math.ceil(len(groups) / settings.groups_per_step)
    num_turns = sum(map(len, groups))
    sizes = f"steps: {num_steps}, groups: {len(groups)}, turns: {num_turns}, device: {settings.device}"
    print(f"{sizes}; a line of figures follows after each step", file=sys.stderr, flush=True)
    for number in range(num_steps):  # of about equal size: a step of one group moves the weights as far as one of many
        lot = groups[len(groups) * number // num_steps : len(groups) * (number + 1) // num_steps]
        turns = [turn for group in lot for turn in group]
        figures.append(take_step(network, optimizer, turns, reference=frozen, settings=settings))
        print(json.dumps({"step": number + 1, "steps": num_steps, **figures[-1]}), flush=True)
    drawn = {"model": model, "weights_version": version, "rollouts": rollouts}
    record = {**drawn, "settings": asdict(settings), "steps": figures}
    write_model(network, optimizer, target, like=source, record=record)
    return figures


def load_network(folder: str | Path, *, device: str) -> Any:
    """Loads a model with weights in float32, as small steps need, and without dropout, as it was sampled."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(device).eval()


def group_turns(rollouts: pa.Table) -> list[list[Turn]]:
    """Returns the turns that can be learnt from, by group: those with an advantage and a response."""
    groups: dict[str, list[Turn]] = {}
    for batch in rollouts.to_batches(max_chunksize=256):
        for row in batch.to_pylist():
            if row["advantage"] is None or not any(row["response_mask"]):
                continue
            prompt, response, logprobs, mask = (row[name] or [] for name in TOKEN_COLUMNS)
            if len(logprobs) != len(response) or not all(map(math.isfinite, logprobs)):
                where = f"group {row['group_id']}, sample {row['sample']}"
                raise InputError(f"{where}: a token has no log-probability; collect with an engine that returns them")
            learnt = torch.tensor(mask).nonzero().flatten()
            turn = Turn(
                text=torch.tensor([*prompt, *response[:-1]]),
                sources=learnt + len(prompt) - 1,
                targets=torch.tensor(response)[learnt],
                drawn_logprobs=torch.tensor(logprobs)[learnt],
                advantage=row["advantage"],
            )
            groups.setdefault(row["group_id"], []).append(turn)
    return list(groups.values())


def take_step(
    network: Any, optimizer: Any, turns: Sequence[Turn], *, reference: Any, settings: TrainSettings
) -> dict[str, float]:
    """Takes one step of the optimiser for whole groups; returns means over the tokens that are learnt from."""
    began, num_learnt = time.monotonic(), sum(len(turn.targets) for turn in turns)
    means: dict[str, float] = {}
    for batch in batch_turns(turns, batch_tokens=settings.batch_tokens):
        sums = loss_sums(network, batch, reference=reference, settings=settings)
        (sums["loss"] / num_learnt).backward()  # by the tokens of the step, so that batches change no gradient
        for name, value in sums.items():
            means[name] = means.get(name, 0.0) + float(value.detach()) / num_learnt
    norm = float(torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm))
    if not math.isfinite(norm):
        raise InputError(f"the gradient is not finite (loss {means['loss']}); lower --learning-rate, or use float32")
    num_steps = max((int(state["step"]) for state in optimizer.state.values()), default=0)
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * min(1.0, (num_steps + 1) / (settings.warmup_steps + 1))
    optimizer.step()
    optimizer.zero_grad()
    return {**means, "gradient_norm": norm, "learnt_tokens": num_learnt, "seconds": time.monotonic() - began}


def batch_turns(turns: Sequence[Turn], *, batch_tokens: int) -> Iterator[Sequence[Turn]]:
    """Cuts turns into batches of like length, the longest first, so that what does not fit the memory fails at once."""
    turns, start = sorted(turns, key=lambda turn: -len(turn.text)), 0
    while start < len(turns):
        size = max(batch_tokens // len(turns[start].text), 1)
        yield turns[start : start + size]
        start += size


def loss_sums(network: Any, turns: Sequence[Turn], *, reference: Any, settings: TrainSettings) -> dict[str, Tensor]:
    """Computes the loss of some turns and the figures that explain it, as sums over the tokens that are learnt from."""
    with torch.autocast(network.device.type, dtype=torch.bfloat16, enabled=settings.dtype == "bfloat16"):
        logprobs = response_logprobs(network, turns)
        with torch.no_grad():
            reference_logprobs = logprobs if reference is None else response_logprobs(reference, turns)
    advantages = torch.cat([torch.full_like(turn.drawn_logprobs, turn.advantage) for turn in turns]).to(logprobs.device)
    drawn = torch.cat([turn.drawn_logprobs for turn in turns]).to(logprobs.device)
    ratio = (logprobs - drawn).exp()
    clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    gain = torch.minimum(ratio * advantages, clipped * advantages)
    gain = torch.where(advantages < 0, torch.maximum(gain, settings.dual_clip * advantages), gain)
    gap = reference_logprobs - logprobs
    kl = (gap.exp() - gap - 1).clamp(max=KL_LIMIT_NATS)  # never below 0, and right in the mean
    is_clipped = (gain != ratio * advantages).float()
    loss = (settings.kl_weight * kl - gain).sum()
    return {"loss": loss, "kl": kl.sum(), "ratio": ratio.sum(), "clipped": is_clipped.sum(), "nll": -logprobs.sum()}


def response_logprobs(network: Any, turns: Sequence[Turn]) -> Tensor:
    """Computes the log-probabilities of the targets of some turns, nats; shape [num_learnt_tokens]."""
    tokens = pad_sequence([turn.text for turn in turns], batch_first=True)  # on the right: a causal model looks left
    starts = range(0, tokens.numel(), tokens.shape[1])
    sources = torch.cat([turn.sources + start for turn, start in zip(turns, starts, strict=True)]).to(network.device)
    targets = torch.cat([turn.targets for turn in turns]).to(network.device)

    def select(_: Any, inputs: tuple[Tensor]) -> tuple[Tensor]:  # logits of a whole text would fill the memory
        return (inputs[0].flatten(0, 1)[sources][None],)

    with network.get_output_embeddings().register_forward_pre_hook(select):
        logits = network(input_ids=tokens.to(network.device), use_cache=False).logits[0].float()
    return torch.log_softmax(logits, -1).gather(-1, targets[:, None]).squeeze(-1)


def write_model(network: Any, optimizer: Any, folder: Path, *, like: Path, record: dict[str, Any]) -> None:
    """Writes a model folder, whole or not at all: new weights, and the other files of the model `like`.

    Weights are in float32, so that the next small step is not lost; engines compute in the `dtype` of `config.json`.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    network.save_pretrained(partial)
    for path in like.iterdir():
        is_other = path.suffix in {*WEIGHT_ENDINGS, ".md"} or path.name.endswith(".index.json")
        if path.is_file() and not is_other and path.name not in {OPTIMIZER_FILE, TRAINING_FILE}:
            shutil.copyfile(path, partial / path.name)
    torch.save(optimizer.state_dict(), partial / OPTIMIZER_FILE)
    (partial / TRAINING_FILE).write_text(json.dumps(record, indent=1), encoding="utf-8")
    partial.rename(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rollouts", help="the output of `memagent collect`: a folder or URI")
    parser.add_argument("--model", required=True, help="the model that was sampled: a folder, or tiny")
    parser.add_argument("--output", required=True, help="a new folder for the trained model")
    parser.add_argument("--reference", help="the model to stay near; by default the one that was sampled")
    parser.add_argument("--allow-other-weights", action="store_true", help="train on rollouts of other weights")
    for each in fields(TrainSettings):
        text = f"{each.metadata['help']} (default: {each.default})"
        option = f"--{each.name.replace('_', '-')}"
        parser.add_argument(option, type=type(each.default), default=each.default, help=text)
    arguments = vars(parser.parse_args())
    settings = TrainSettings(**{each.name: arguments.pop(each.name) for each in fields(TrainSettings)})
    train(arguments.pop("rollouts"), settings=settings, **arguments)
