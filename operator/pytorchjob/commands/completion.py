"""`completion`: what a shell has to run to complete commands, options and names of jobs."""

import click
from click.shell_completion import ShellComplete, get_completion_class

from pytorchjob_operator.terminal import say

_VARIABLE = "_PYTORCHJOB_COMPLETE"
_SHELLS = ("bash", "zsh", "fish")
_NO_FILES = ":4"
"""kubectl reads the last line as a directive; 4: complete no file names."""
_FILES = ":0"


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def completion_command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash: source <(pytorchjob completion bash)
    zsh:  source <(pytorchjob completion zsh)
    fish: pytorchjob completion fish | source

    kubectl completes `kubectl pytorch` by itself, through the program kubectl_complete-pytorch.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(click.get_current_context().find_root().command, {}, "pytorchjob", _VARIABLE).source())


def candidates(main: click.Command, words: list[str]) -> list[str]:
    """Return the lines that kubectl expects for these words of a command line, the last of which is incomplete."""
    *done, incomplete = words or [""]
    found = ShellComplete(main, {}, "kubectl pytorch", _VARIABLE).get_completions(done, incomplete)
    plain = [item for item in found if item.type == "plain"]
    lines = [f"{item.value}\t{item.help}" if item.help else str(item.value) for item in plain]
    return [*lines, _FILES if len(plain) < len(found) else _NO_FILES]
