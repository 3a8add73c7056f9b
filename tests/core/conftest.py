"""Settings for property tests: no deadline, which two cores shared with others could not keep."""

from hypothesis import settings

settings.register_profile("vitscope", deadline=None)
settings.load_profile("vitscope")
