"""Policies by kind: the plug-in seam. Adding one is one file and one name here."""

from memagent_batch.domain.policies.overwrite import OverwritePolicy

POLICIES = {OverwritePolicy.kind: OverwritePolicy}
"""Policy classes by their `kind`."""
