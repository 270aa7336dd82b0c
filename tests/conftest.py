"""What holds for all tests."""

from hypothesis import settings

# No test asserts a time: on a busy machine any example takes long at times.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
