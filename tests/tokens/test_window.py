import json
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.loop.tokens.pretrained import model_window


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({"max_position_embeddings": 32768}, 32768),
        ({"n_positions": 1024}, 1024),
        ({"text_config": {"max_position_embeddings": 2048}, "vision_config": {}}, 2048),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}, 4096),
        ({"max_position_embeddings": 4096, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, None),
        ({"max_position_embeddings": "many"}, None),
        ({}, None),
        ([], None),
    ],
)
def test_model_window_is_what_the_config_says_unless_a_factor_stretches_it(
    config: Any, window: int | None, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert model_window(str(tmp_path)) == window


def test_model_window_of_a_folder_without_a_config_or_with_a_broken_one_is_unknown(tmp_path: Path) -> None:
    assert model_window(str(tmp_path)) is None
    (tmp_path / "config.json").write_text("{")
    assert model_window(str(tmp_path)) is None
