from pathlib import Path
from typing import Any

import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

CLUSTER = Path(__file__).parents[2] / "infra" / "aws.yaml"


def test_cluster_file_passes_rays_own_check_and_has_spot_workers_an_on_demand_head_and_a_token() -> None:
    config: dict[str, Any] = prepare_config(yaml.safe_load(CLUSTER.read_text()))  # with Ray's own defaults
    validate_config(config)
    types = config["available_node_types"]
    assert types["gpu-spot"]["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in types[config["head_node_type"]]["node_config"]
    assert "--env RAY_AUTH_MODE=token" in config["docker"]["run_options"]
    assert any(path.endswith("/.ray/auth_token") for path in config["file_mounts"])
