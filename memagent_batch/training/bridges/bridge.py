"""What every bridge to a trainer has: how a sample's turns, a group's prompt and the settings look to that trainer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypedDict

import pyarrow as pa

from memagent_batch.domain.scoring.advantages import Advantage

OVERRIDES_FILE = "overrides.txt"
"""Settings of a trainer that is started from a command line."""


class Locator(TypedDict):
    """Where a replay finds the samples of a group."""

    index: int
    group_id: str
    file: str
    first_row_group: int
    num_samples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The exported samples of a document and question."""

    index: int
    """Which exported group it is, from 0."""
    first_row: Mapping[str, Any]
    """The first row of its first sample, as in `ROLLOUTS`, without the tokens."""
    num_samples: int
    """Samples that were exported, at least 1."""
    file: str
    """The file below the export that holds its turns."""
    first_row_group: int
    """Row group of its first sample in that file; the others follow."""

    @property
    def message(self) -> str:
        """What stands for the prompt in the trainer's data set; no model is shown it."""
        return f"replay of document {self.first_row['document_id']}, question {self.first_row['question_id']}"

    @property
    def locator(self) -> Locator:
        """Where a replay finds the samples."""
        return Locator(
            index=self.index,
            group_id=self.first_row["group_id"],
            file=self.file,
            first_row_group=self.first_row_group,
            num_samples=self.num_samples,
        )


LOCATOR = pa.struct(
    [
        pa.field("index", pa.int64()),
        pa.field("group_id", pa.string()),
        pa.field("file", pa.string()),
        pa.field("first_row_group", pa.int64()),
        pa.field("num_samples", pa.int64()),
    ]
)
"""Arrow's type of a `Locator`."""

MESSAGES = pa.list_(pa.struct([pa.field("role", pa.string()), pa.field("content", pa.string())]))
"""Type of a chat, as data sets of trainers hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was exported, as settings for the trainer need it."""

    uri: str
    """Where the export lies."""
    advantage: Advantage
    """How the table's rewards became advantages."""
    group_size: int
    """Samples of the largest group."""
    longest_prompt_tokens: int
    """Tokens of the longest prompt."""
    longest_response_tokens: int
    """Tokens of the longest response."""


class Bridge(Protocol):
    """The way from the rollouts table to one trainer."""

    turns: pa.Schema
    """Schema of the exported turns."""
    prompts: pa.Schema
    """Schema of the data set: a row for each group."""

    def turn_rows(self, rows: pa.Table, *, group: int, sample: int) -> pa.Table:
        """The learnable turns of a sample as rows of `turns`; both numbers count exported ones, from 0."""
        ...

    def prompt_row(self, group: Group) -> dict[str, object]:
        """The row of `prompts` for a group."""
        ...

    def settings(self, exported: Exported) -> dict[str, str]:
        """Texts of the settings files by name.

        Raises:
            SettingsError: the trainer can't make these advantages.
        """
        ...


def user_message(group: Group) -> list[dict[str, str]]:
    """A chat of one message that stands for the group's prompt."""
    return [{"role": "user", "content": group.message}]


def override_lines(overrides: Mapping[str, object]) -> str:
    """Settings for a command line of Hydra's or OmegaConf's kind, one on each line."""
    return "".join(f"{name}={value}\n" for name, value in overrides.items())
