"""Settings of the property tests."""

from hypothesis import settings

# A time limit for each example tells how busy the machine is, not whether the code is right.
settings.register_profile("without_deadline", deadline=None)
settings.load_profile("without_deadline")
