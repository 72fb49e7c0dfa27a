"""Makes kuberay.schema.json from KubeRay's own resource definitions: `python -m tests.infra.kuberay_schema CRDS`.

CRDS is `helm-chart/kuberay-operator/crds` of a checkout of KubeRay, at the tag `VERSION`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

VERSION = "v1.6.2"
"""The latest of the oldest minor version that the manifests ask for."""
KINDS = ("RayCluster", "RayJob", "RayCronJob")
UNCHECKED = (
    *("env", "envFrom", "resources", "securityContext", "submitterPodTemplate", "volumeMounts"),  # parts of pods
    *("deletionStrategy", "gcsFaultToleranceOptions", "headService"),  # large, and no manifest has them
)
"""Fields of which the type alone is checked, as of the `spec` of a pod's template, for which Kubernetes has schemas."""
SCHEMA = Path(__file__).with_name("kuberay.schema.json")
COMMENT = (
    f"Made by tests/infra/kuberay_schema.py from the resource definitions of KubeRay {VERSION} "
    "(https://github.com/ray-project/kuberay, Apache-2.0), changed: without what is in pods, defaults and status, and "
    "with unknown fields refused, as the API server's strict validation does."
)


def make_schema(crds: Path) -> dict[str, Any]:
    """A JSON schema of the three kinds of resources."""
    specs = {kind: _spec(crds / f"ray.io_{kind.lower()}s.yaml") for kind in KINDS}
    cases = [
        {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"spec": spec}}}
        for kind, spec in specs.items()
    ]
    named = {"type": "object", "anyOf": [{"required": ["name"]}, {"required": ["generateName"]}]}
    head = {"apiVersion": {"const": "ray.io/v1"}, "kind": {"enum": [*KINDS]}, "metadata": named, "spec": {}}
    return {
        "$comment": COMMENT,
        "type": "object",
        "properties": head,
        "required": [*head],
        "additionalProperties": False,
        "allOf": cases,
    }


def _spec(path: Path) -> dict[str, Any]:
    definition = yaml.safe_load(path.read_text())
    (version,) = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
    spec: dict[str, Any] = _strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"])
    return spec


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if name not in ("default", "format", "description")}
    if "properties" in schema:
        kept["properties"] = {name: _field(name, value) for name, value in schema["properties"].items()}
        kept["additionalProperties"] = False
    if "items" in schema:
        kept["items"] = _strict(schema["items"])
    return kept


def _field(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if name in UNCHECKED:
        return {"type": schema["type"]}
    if name == "template":
        pod = schema["properties"]
        return _strict({**schema, "properties": {**pod, "spec": {"type": "object"}}})
    return _strict(schema)


if __name__ == "__main__":
    SCHEMA.write_text(json.dumps(make_schema(Path(sys.argv[1])), indent=1) + "\n")
