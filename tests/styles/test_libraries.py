"""Scripts of libraries: all ranks start from the same whole save, or the style is refused."""

from pathlib import Path

from .cases import cases, check


@cases("libraries")
def test_all_ranks_start_from_one_whole_save(style: str, kills: int, tmp_path: Path) -> None:
    check(style, kills, tmp_path)
