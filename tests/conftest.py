"""What holds for all tests."""

import os
import tempfile

from hypothesis import settings

# No test asserts a time: on a busy machine any example takes long at times.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

collect_ignore = [] if os.environ.get("TEST_GPU") else ["gpu"]
"""`make test-gpu` runs these, on a machine of their own."""

# Local runs record themselves below this folder: not in that of the person who runs the tests.
_STATE = tempfile.TemporaryDirectory(prefix="pytorchjob-tests-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name
