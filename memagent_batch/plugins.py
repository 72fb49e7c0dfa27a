"""The door for policies, engines, rewards and converters: a kind to what it names. Only here are concrete ones named.

A kind is a built-in name, the name of an entry point of an installed package, or `package.module:Class`.
"""

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import entry_points
from types import CodeType, ModuleType
from typing import Any, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.engines import ENDPOINT_ENGINES
from memagent_batch.config.problems import explanation, suggestion
from memagent_batch.errors import SettingsError
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.scores import Metric
from memagent_batch.types import Policy

INSIDE = frozenset({"memagent_batch", "pydantic", *sys.stdlib_module_names})
"""Top-level packages whose code is not a plug-in's own."""

CUTS = ("overlap_tokens", "break_at")
"""Shared settings of how documents are cut, which a policy from outside must not ignore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRegistry:
    """A place that takes plug-ins."""

    setting: str
    group: str
    built_in: Mapping[str, str]
    """Import paths of the built-in ones by name; empty where a name needs none."""
    extra: str = ""
    """The extra that installs what the built-in ones import."""

    def require(self, kind: str, *, allows_code: bool) -> None:
        """Checks the name of a kind without importing anything.

        Raises:
            SettingsError: there is no such kind, or it is an import path and code of the user's is not allowed.
        """
        if ":" not in kind:
            self.path(kind)
        elif not allows_code:
            raise SettingsError(f"{self.setting}: {kind!r} is code of yours; pass --allow-code to run it")

    def path(self, kind: str) -> str:
        """The import path of a kind.

        Raises:
            SettingsError: there is no such kind; names the nearest one.
        """
        if ":" in kind:
            return kind
        if kind in self.built_in:
            return self.built_in[kind]
        installed = {entry.name: entry.value for entry in entry_points(group=self.group)}
        if kind in installed:
            return installed[kind]
        names = [*self.built_in, *sorted(installed)]
        *others, last = map(repr, names)
        raise SettingsError(
            f"{self.setting}: {kind!r} is not one of {', '.join(others)} or {last}{suggestion(kind, names)}"
        )

    def find(self, kind: str) -> Any:
        """What a kind names, imported.

        Raises:
            SettingsError: there is no such kind, or it can't be imported.
        """
        module, _, name = self.path(kind).partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            if self.extra and kind in self.built_in and isinstance(error, ModuleNotFoundError):
                raise SettingsError(
                    f"{self.setting}: {error.name} is not installed; `pip install 'memagent-batch[{self.extra}]'` "
                    "installs it, on every node"
                ) from error
            raise SettingsError(
                f"{self.setting}: {kind!r} can't be imported: {type(error).__name__}: {error}; where its module is not "
                "found, put its folder on PYTHONPATH, on every node"
            ) from error


POLICIES = PluginRegistry(
    setting="policy.kind",
    group="memagent_batch.policies",
    built_in={
        "overwrite": "memagent_batch.loop.policies.overwrite:OverwritePolicy",
        "gated": "memagent_batch.loop.policies.overwrite:GatedPolicy",
        "parallel": "memagent_batch.loop.policies.parallel:ParallelPolicy",
        "truncate": "memagent_batch.loop.policies.direct:TruncatePolicy",
        "retrieve": "memagent_batch.loop.policies.direct:RetrievePolicy",
    },
)
ENGINES = PluginRegistry(
    setting="engine",
    group="memagent_batch.engines",
    built_in={
        "vllm": "memagent_batch.loop.engines.vllm.engine:VllmEngine",
        "openai": "memagent_batch.loop.engines.openai.engine:OpenAIEngine",
        "openai-batch": "memagent_batch.loop.engines.openai.batch_engine:OpenAIBatchEngine",
        "simulated": "memagent_batch.loop.engines.simulated:SimulatedEngine",
    },
)
BOXED = "boxed"
r"""1 where the text of the last `\boxed{...}` is a reference except for case, spaces and a little LaTeX, else 0.

The reward of MemAgent's published training (its `hotpotqa` verifier). Articles and punctuation count."""
BOXED_NORMALISED = "boxed_normalised"
r"""1 where the text of the last complete `\boxed{...}` equals a reference, both normalised as in `em`, else 0."""
REWARDS = PluginRegistry(
    setting="rollouts.reward",
    group="memagent_batch.rewards",
    built_in=dict.fromkeys((BOXED, BOXED_NORMALISED, *map(str, (Metric.EM, Metric.F1, Metric.HOTPOTQA_F1))), ""),
)
"""Built in are rewards that need no code; those of metrics score the extracted answer.

Metrics of containment are not among them: a policy would earn them by listing candidates instead of reading."""

CONVERTERS = PluginRegistry(
    setting="ingest.converter",
    group="memagent_batch.converters",
    extra="convert",
    built_in={
        "pdf": "memagent_batch.data.ingest.readers.pdf:PdfConverter",
        "html": "memagent_batch.data.ingest.readers.html:HtmlConverter",
        "docx": "memagent_batch.data.ingest.readers.docx:DocxConverter",
        "email": "memagent_batch.data.ingest.readers.mail:MailConverter",
        "markdown": "memagent_batch.data.ingest.readers.text:MarkdownConverter",
        "text": "memagent_batch.data.ingest.readers.text:TextConverter",
        "zip": "memagent_batch.data.ingest.readers.archive:ZipConverter",
        "archive": "memagent_batch.data.ingest.readers.archive:ArchiveConverter",
        "epub": "memagent_batch.data.ingest.readers.epub:EpubConverter",
        "outlook": "memagent_batch.data.ingest.readers.outlook:OutlookConverter",
        "tnef": "memagent_batch.data.ingest.readers.outlook_files:TnefConverter",
        "pst": "memagent_batch.data.ingest.readers.outlook_files:PstConverter",
        "image": "memagent_batch.data.ingest.readers.ocr:PictureConverter",
        "rtf": "memagent_batch.data.ingest.readers.rtf:RtfConverter",
        "old_office": "memagent_batch.data.ingest.readers.old_office:OldOfficeConverter",
        "rapidocr": "memagent_batch.data.ingest.readers.ocr:OcrConverter",
        "slides": "memagent_batch.data.ingest.readers.slides:SlidesConverter",
        "sheets": "memagent_batch.data.ingest.readers.sheets:SheetsConverter",
        "opendocument": "memagent_batch.data.ingest.readers.opendocument:OpenDocumentConverter",
    },
)


def policy_class(kind: str) -> type[Policy]:
    """The class of a policy; its fields are its settings.

    Raises:
        SettingsError: there is none.
    """
    plugin = cast(type[Policy], POLICIES.find(kind))
    _keep_sources(plugin)
    return plugin


def source_sha256(plugin: type, *, setting: str, is_current: bool = True) -> str | None:
    """Hash of the modules that define a plug-in and its bases; None if they are all of this package or of Python.

    It is that of the code that this process runs. If it must be current, the files are compared with that.

    Raises:
        SettingsError: a module has no source, or its source is no longer what this process has imported.
    """
    names = dict.fromkeys(base.__module__ for base in plugin.__mro__)
    outside = [name for name in names if name.partition(".")[0] not in INSIDE]
    try:
        modules = map(importlib.import_module, outside)
        sources = [_imported_source(module, setting=setting, is_current=is_current) for module in modules]
    except (OSError, TypeError) as error:
        raise SettingsError(
            f"{setting}: {plugin.__module__}:{plugin.__name__} has no source file ({error}), and its code decides "
            "which answers are kept; put it into a module"
        ) from error
    return sha256("\0".join(sources).encode()).hexdigest() if sources else None


def _keep_sources(plugin: type) -> None:
    """Notes the source of a plug-in that is used for the first time, before anybody edits it."""
    modules = {base.__module__ for base in plugin.__mro__ if base.__module__.partition(".")[0] not in INSIDE}
    for module in map(importlib.import_module, modules - _IMPORTED_SOURCES.keys()):
        with suppress(OSError, TypeError):  # without a source, which `source_sha256` refuses
            source = inspect.getsource(module)
            if _has_code_of(module, source):
                _IMPORTED_SOURCES[module.__name__] = module.__spec__, source


_IMPORTED_SOURCES: dict[str, tuple[ModuleSpec | None, str]] = {}
"""The source of each plug-in's module when it was first used, and the spec of that import; a reload has another."""


def _imported_source(module: ModuleType, *, setting: str, is_current: bool) -> str:
    """The source of a module as it was imported: answers are kept under its hash."""
    spec = module.__spec__
    known_spec, known_source = _IMPORTED_SOURCES.get(module.__name__, (None, None))
    if known_source is not None and known_spec is spec and not is_current:
        return known_source
    source = inspect.getsource(module)
    if known_source is None or known_spec is not spec:
        known_source = source if _has_code_of(module, source) else None
    if source != known_source:
        raise SettingsError(
            f"{setting}: {module.__file__} was changed after this process imported it, so that the old code would run "
            f"under the name of the new one; start a new process, or call importlib.reload on {module.__name__}"
        )
    _IMPORTED_SOURCES[module.__name__] = spec, source
    return source


def _has_code_of(module: ModuleType, source: str) -> bool:
    """Whether all functions of a module are those of this source, where Python's own loader compiled it."""
    if type(module.__loader__) is not SourceFileLoader:
        return True
    compiled = set(_code_objects(compile(source, str(module.__file__), "exec", dont_inherit=True)))
    classes = [value for value in vars(module).values() if isinstance(value, type)]
    members = [member for owner in (module, *classes) for member in vars(owner).values()]
    functions = [getattr(member, "__func__", getattr(member, "fget", member)) for member in members]
    codes = [function.__code__ for function in functions if inspect.isfunction(function)]
    return all(code in compiled for code in codes if code.co_filename == module.__file__)


def _code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code_objects(constant)


def setting_names(plugin: type) -> frozenset[str]:
    """The settings of a plug-in."""
    if issubclass(plugin, BaseModel):
        return frozenset(plugin.model_fields)
    return frozenset(field.name for field in fields(plugin)) if is_dataclass(plugin) else frozenset()


def make_policy(agent: AgentConfig) -> Policy:
    """The policy of an agent; see `built_policy`."""
    return built_policy(agent.policy)


def built_policy(config: PolicyConfig) -> Policy:
    """The policy with its settings: those of `policy` that it has, and those of `policy.settings`.

    Raises:
        SettingsError: there is no such policy, or a setting is unknown or wrong; names policy and setting.
    """
    kind = config.kind
    plugin = policy_class(kind)
    ignored = [name for name in CUTS if getattr(config, name) and name not in setting_names(plugin)]
    if ignored and kind not in POLICIES.built_in:
        raise SettingsError(f"policy.{ignored[0]}: the policy {kind!r} does not take it; leave it out")
    shared = {name: getattr(config, name) for name in setting_names(plugin) & type(config).model_fields.keys()}
    policy: Policy = _built(plugin, {**shared, **config.settings}, owner=f"policy {kind!r}", setting="policy")
    return policy


def engine_settings(agent: AgentConfig) -> Engine:
    """The engine with its settings, not opened: those of its own section, or of `engine_options`.

    Raises:
        SettingsError: there is no such engine, or a setting is unknown or wrong; names engine and setting.
    """
    kind = agent.engine
    name = "openai" if kind in ENDPOINT_ENGINES else kind
    section = getattr(agent, name) if kind in ENGINES.built_in else None
    settings = agent.engine_options if section is None else dict(section)
    plugin = ENGINES.find(kind)
    _keep_sources(plugin)
    engine: Engine = _built(plugin, settings, owner=f"engine {kind!r}", setting="engine_options")
    return engine


def _built(plugin: type, settings: Mapping[str, Any], *, owner: str, setting: str) -> Any:
    names = setting_names(plugin)
    for name in settings:
        if name not in names:
            raise SettingsError(
                f"{setting}.{name}: the {owner} has no such setting; it has {', '.join(sorted(names))}"
                f"{suggestion(name, names)}"
            )
    try:
        return TypeAdapter(plugin).validate_python(settings)
    except ValidationError as error:
        problems = [_setting_problem(problem, setting=setting) for problem in error.errors(include_input=False)]
        raise SettingsError("; ".join(problems)) from None  # its text shows values, which may be secrets


def _setting_problem(problem: Any, *, setting: str) -> str:
    place = ".".join([setting, *map(str, problem["loc"])])
    message = explanation(problem)
    return message if message.startswith(f"{setting}.") else f"{place}: {message}"
