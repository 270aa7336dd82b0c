"""`pytorchjob`: the index of all commands.

A command's module is imported when the command runs: the index alone starts in a tenth of a second.
"""

from importlib import import_module

import click

from pytorchjob import __version__

COMMANDS = {
    "plan": (
        "pytorchjob_operator.plan_command:plan_command",
        "Print the objects that the installed operator would create.",
    ),
    "run": ("pytorchjob.commands.run:run_command", "Run a job on this machine."),
    "validate": (
        "pytorchjob.commands.validate:validate_command",
        "Check the jobs of a file by the API server's rules.",
    ),
}
"""Each command: where it is, and its line in `--help`."""


class _Index(click.Group):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.group(cls=_Index, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="pytorchjob")
def main() -> None:
    """Run, submit, watch and understand kubeflow.org/v1 PyTorchJobs."""
