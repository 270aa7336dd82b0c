"""The page with the output of README's local section."""

from pathlib import Path

from tests.shell.transcript import page


def test_a_page_names_no_folder_of_the_machine_and_has_the_last_state_of_each_line() -> None:
    text = page("make run\nin /tmp/x/clone/out  \n10 %\r100 %\n", Path("/tmp/x/clone"), "abc1234", 2, "2026-01-02")
    assert "```text\nmake run\nin CLONE/out\n100 %\n```\n" in text
    assert "on 2026-01-02, at commit abc1234. The machine has 2 cores." in text
