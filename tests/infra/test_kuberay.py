"""The Kubernetes manifests, against the schemas of Kubernetes, KubeRay's fields, and the project's own settings."""

import copy
import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from memagent_batch.cli.answer import MANUAL
from memagent_batch.cli.main import parse_settings
from memagent_batch.cli.settings import JobSettings

ROOT = Path(__file__).parents[2]
KUBERNETES = "1.34"
KUBERAY = json.loads(Path(__file__).with_name("kuberay.schema.json").read_text())
MANIFESTS = sorted((ROOT / "infra" / "kuberay").glob("*.yaml"))
each_manifest = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)


def resources(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap with the job file, and KubeRay's resource."""
    config, ray = yaml.safe_load_all(path.read_text())
    return config, ray


def job_spec(ray: dict[str, Any]) -> dict[str, Any]:
    """The job, or an empty one around a cluster that stays."""
    spec: dict[str, Any] = {"rayClusterSpec": ray["spec"]} if ray["kind"] == "RayCluster" else ray["spec"]
    template: dict[str, Any] = spec.get("jobTemplate", spec)
    return template


def cluster_spec(ray: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = job_spec(ray)["rayClusterSpec"]
    return spec


def pod_templates(ray: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = cluster_spec(ray)
    return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def require_valid(config: dict[str, Any], ray: dict[str, Any]) -> None:
    """Raises ValidationError where a field is unknown, missing or of a wrong type."""
    kubernetes_validate.validate(config, KUBERNETES, strict=True)
    jsonschema.validate(ray, KUBERAY)
    for template in pod_templates(ray):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": template}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)


@each_manifest
def test_manifest_fields_are_those_of_kubernetes_and_kuberay(path: Path) -> None:
    require_valid(*resources(path))


def misspell_data(config: dict[str, Any], ray: dict[str, Any]) -> None:
    config["dat"] = config.pop("data")


def misspell_schedule(config: dict[str, Any], ray: dict[str, Any]) -> None:
    ray["spec"]["scedule"] = ray["spec"].pop("schedule")


def misspell_auth(config: dict[str, Any], ray: dict[str, Any]) -> None:
    cluster_spec(ray)["authOption"] = cluster_spec(ray).pop("authOptions")


def misspell_resources(config: dict[str, Any], ray: dict[str, Any]) -> None:
    container = pod_templates(ray)[1]["spec"]["containers"][0]
    container["resource"] = container.pop("resources")


@pytest.mark.parametrize("spoil", [misspell_data, misspell_schedule, misspell_auth, misspell_resources])
def test_manifest_with_a_misspelled_field_is_refused(
    spoil: Callable[[dict[str, Any], dict[str, Any]], None],
) -> None:
    config, ray = copy.deepcopy(resources(ROOT / "infra" / "kuberay" / "raycronjob.yaml"))
    spoil(config, ray)
    with pytest.raises(jsonschema.ValidationError):
        require_valid(config, ray)


@each_manifest
def test_manifest_runs_the_pinned_ray_with_token_authentication(path: Path) -> None:
    cluster = cluster_spec(resources(path)[1])
    (pinned,) = [
        requirement.rsplit("==")[1]
        for requirement in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
        if requirement.startswith("ray[")
    ]
    assert cluster["rayVersion"] == pinned
    assert cluster["authOptions"] == {"mode": "token"}


@each_manifest
def test_manifest_job_file_is_read_as_settings_that_fit_the_cluster(path: Path, tmp_path: Path) -> None:
    config, ray = resources(path)
    (tmp_path / "job.yaml").write_text(config["data"]["job.yaml"])
    settings = parse_settings(JobSettings, MANUAL, ["--config", str(tmp_path / "job.yaml")])
    (workers,) = cluster_spec(ray)["workerGroupSpecs"]
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert settings.pool.max_replicas == workers["maxReplicas"]
    assert settings.pool.cpus_per_replica + 0.5 <= float(limits["cpu"])
    assert limits["nvidia.com/gpu"] == "1"


@each_manifest
def test_manifest_entrypoint_and_volumes_name_what_is_there(path: Path) -> None:
    config, ray = resources(path)
    if entrypoint := job_spec(ray).get("entrypoint"):
        assert entrypoint == "python -m memagent_batch answer --config /etc/memagent/job.yaml"
    for template in pod_templates(ray):
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in template["spec"]["containers"][0]["volumeMounts"]}
        assert set(mounts.values()) == set(volumes)
        assert volumes[mounts["/etc/memagent"]]["configMap"]["name"] == config["metadata"]["name"]


def test_manifests_describe_one_and_the_same_cluster() -> None:
    first, *others = [cluster_spec(resources(path)[1]) for path in MANIFESTS]
    assert all(other == first for other in others)
    assert re.search(r":\d+\.\d+\.\d+-gpu$", first["headGroupSpec"]["template"]["spec"]["containers"][0]["image"])


@pytest.mark.parametrize("name", ["rayjob", "raycronjob"])
def test_manifest_job_that_failed_is_tried_again(name: str) -> None:
    spec = job_spec(resources(ROOT / "infra" / "kuberay" / f"{name}.yaml")[1])
    assert spec["backoffLimit"] == 2
    assert spec["shutdownAfterJobFinishes"]
