"""`python -m tests.planted [WORD ...]`: plants the defects whose names have these words, or all."""

import sys
from collections.abc import Sequence

from tests.planted import judge
from tests.planted.table import DEFECTS


def main(words: Sequence[str]) -> int:
    """Print what became of each defect; return 1 if one survives."""
    survivors = 0
    for defect in DEFECTS:
        if all(word in defect.name for word in words):
            verdict = judge([defect], defect.tests)
            survivors += not verdict.noticed
            print(f"{'noticed' if verdict.noticed else 'SURVIVES'}: {defect.name}\n    {verdict.by}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
