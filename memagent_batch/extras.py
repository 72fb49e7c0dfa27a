"""Packages that only an extra installs."""

from importlib.util import find_spec

from memagent_batch.errors import SettingsError


def require_extra(extra: str, *, package: str) -> None:
    """Refuses to go on without a package.

    Raises:
        SettingsError: the package is not installed; names the extra that installs it.
    """
    if find_spec(package) is None:
        raise SettingsError(f"the package {package} is not installed: pip install 'memagent-batch[{extra}]'")
