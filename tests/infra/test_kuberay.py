"""The Kubernetes manifests, against the schemas of KubeRay and Kubernetes, and the project's own settings."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from memagent_batch.cli.answer import Answer
from memagent_batch.cli.main import read_command

ROOT = Path(__file__).parents[2]
KUBERNETES = "1.34"
KUBERAY = json.loads(Path(__file__).with_name("kuberay.schema.json").read_text())
MANIFESTS = sorted((ROOT / "infra" / "kuberay").glob("*.yaml"))
RAYCLUSTER, RAYCRONJOB, RAYJOB = MANIFESTS
each_manifest = pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
each_job = pytest.mark.parametrize("path", [RAYCRONJOB, RAYJOB], ids=lambda path: path.stem)


def resource(path: Path) -> dict[str, Any]:
    """The one resource of a manifest: a second one, such as a ConfigMap, could be left over from another `create`."""
    ray: dict[str, Any] = yaml.safe_load(path.read_text())
    return ray


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


@each_manifest
def test_manifest_is_valid_and_runs_the_pinned_ray_with_token_authentication(path: Path) -> None:
    ray = resource(path)
    jsonschema.validate(ray, KUBERAY)
    for template in pod_templates(ray):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": ray["metadata"], "template": template}
        kubernetes_validate.validate(pod, KUBERNETES, strict=True)
        (container,) = template["spec"]["containers"]
        mounted = [mount["name"] for mount in container["volumeMounts"]]
        assert [volume["name"] for volume in template["spec"]["volumes"]] == mounted
    cluster = cluster_spec(ray)
    assert f"\nray=={cluster['rayVersion']} " in (ROOT / "requirements" / "gpu.txt").read_text()
    assert cluster["authOptions"] == {"mode": "token"}


@each_job
def test_manifest_job_file_is_read_as_settings_that_fit_the_cluster(path: Path, tmp_path: Path) -> None:
    ray = resource(path)
    head, _ = pod_templates(ray)
    (tmp_path / "job.yaml").write_text(head["metadata"]["annotations"]["memagent-job"])
    settings = read_command(Answer, ["--config", str(tmp_path / "job.yaml")])
    (workers,) = cluster_spec(ray)["workerGroupSpecs"]
    limits = workers["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert settings.pool.max_replicas == workers["maxReplicas"]
    assert settings.pool.cpus_per_replica + 0.5 <= float(limits["cpu"])
    assert limits["nvidia.com/gpu"] == "1"


@each_job
def test_manifest_entrypoint_reads_the_job_file_of_its_own_resource(path: Path) -> None:
    """A RayJob that is created again, under its own name, can't read the job file of another one.

    Its script alone repeats it: KubeRay would repeat any failure, a bound that costs money included.
    """
    ray = resource(path)
    assert (job_spec(ray)["backoffLimit"], job_spec(ray)["shutdownAfterJobFinishes"]) == (0, True)
    head, _ = pod_templates(ray)
    command = "python -m memagent_batch answer --config /etc/memagent/job.yaml"
    assert job_spec(ray)["entrypoint"] == f"bash /app/jobs/again.sh {command}"
    mounts = head["spec"]["containers"][0]["volumeMounts"]
    (mounted,) = [mount["name"] for mount in mounts if "etc" in mount["mountPath"]]
    (volume,) = [volume for volume in head["spec"]["volumes"] if volume["name"] == mounted]
    (item,) = volume["downwardAPI"]["items"]
    (annotation,) = head["metadata"]["annotations"]
    assert item == {"path": "job.yaml", "fieldRef": {"fieldPath": f"metadata.annotations['{annotation}']"}}
