import sys

import pytest

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.lake.table import LakeKind, TableName, table_name
from memagent_batch.data.documents.lake.tables import documents_place
from memagent_batch.errors import InputError
from tests.documents.lake.forms import source_names


@pytest.mark.parametrize(
    ("uri", "kind", "place", "version"),
    [
        ("delta:///lake/t", LakeKind.DELTA, "/lake/t", None),
        ("delta:///lake/t@12", LakeKind.DELTA, "/lake/t", "12"),
        ("delta:///lake/me@home/t", LakeKind.DELTA, "/lake/me@home/t", None),
        ("delta://s3://bucket/t@3", LakeKind.DELTA, "s3://bucket/t", "3"),
        ("iceberg://prod/db.t", LakeKind.ICEBERG, "prod/db.t", None),
        ("iceberg://prod/a.b.t@main", LakeKind.ICEBERG, "prod/a.b.t", "main"),
    ],
)
def test_table_name_of_a_uri_has_place_and_version(uri: str, kind: LakeKind, place: str, version: str | None) -> None:
    name = table_name(uri)
    assert name == TableName(kind=kind, place=place, version=version)
    assert name.full_uri == uri


@pytest.mark.parametrize("uri", ["/lake/t@12", "s3://bucket/delta", "lake/*.parquet"])
def test_table_name_of_files_is_none(uri: str) -> None:
    assert table_name(uri) is None


@pytest.mark.parametrize("uri", ["iceberg://prod", "iceberg://prod/table", "iceberg://prod/db.t/x"])
def test_table_name_of_a_malformed_uri_is_refused_with_its_form(uri: str) -> None:
    with pytest.raises(InputError, match="write iceberg://CATALOG/DATABASE"):
        table_name(uri)


@pytest.mark.parametrize(
    ("uri", "package"), [("delta:///t", "deltalake"), ("iceberg://prod/db.t", "pyiceberg.catalog")]
)
def test_list_table_without_its_package_is_refused_with_what_to_install(
    uri: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    name = package.split(".")[0]
    with pytest.raises(InputError, match=rf"the package {name} is not installed; pip install 'memagent-batch\[lake\]'"):
        source_names(documents_place(uri, {}), settings=InputConfig())
