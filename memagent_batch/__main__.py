"""The entry point of `memagent` and `python -m memagent_batch`: runs the command line that belongs to this library."""

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

OWN_ROOT = Path(__file__).resolve().parents[1]
"""The folder that this library was installed into, or the checkout."""
OWN_PACKAGES = ("pipelines", "jobs")
"""Packages beside this one. Their names are common, so a user's project may have some of its own."""


def main() -> int:
    """Runs the command that the arguments name; returns the exit code."""
    import_own_packages()
    from jobs.cli import main as run

    return run()


def import_own_packages() -> None:
    """Imports the packages beside this one from their own folder, and not from the current folder or PYTHONPATH.

    `sys.path` stays as it is: moving the installed packages to its front would let them shadow the standard library,
    and modules of the user's, such as rewards, must still be found.
    """
    for name in OWN_PACKAGES:
        spec = PathFinder.find_spec(name, [str(OWN_ROOT)])
        if spec is None or spec.loader is None:
            raise ModuleNotFoundError(f"{name} is not installed beside memagent_batch in {OWN_ROOT}; install it again")
        package = importlib.util.module_from_spec(spec)
        sys.modules[name] = package
        spec.loader.exec_module(package)


if __name__ == "__main__":
    sys.exit(main())
