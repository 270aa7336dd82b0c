"""`pytorchjob`: the index of all commands.

A command's module is imported when the command runs: the index alone starts in a tenth of a second.
"""

import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NoReturn

try:
    import click

    from pytorchjob import __version__
    from pytorchjob.commands.outcome import FAILED, INTERRUPTED, INVALID, explain, fail_unexpected
    from pytorchjob_operator.terminal import say
except ModuleNotFoundError as error:
    if (error.name or "").startswith("pytorchjob"):
        raise
    # `pip install pytorchjob` alone is the agent of a training image: it brings no other package.
    sys.exit(f"error: the package {error.name} is missing\nnext: pip install 'pytorchjob[cli]'")
except KeyboardInterrupt:  # in the first tenth of a second nothing else could catch it
    sys.exit(130)

COMMANDS = {
    "completion": (
        "pytorchjob.commands.completion:completion_command",
        "Print the completion script of a shell.",
    ),
    "convert": (
        "pytorchjob.commands.convert:convert_command",
        "Print PyTorchJobs as TrainJobs of Kubeflow Trainer v2, and back.",
    ),
    "debug": ("pytorchjob.commands.exec:debug_command", "Start a container with a shell inside a pod that runs."),
    "delete": ("pytorchjob.commands.delete:delete_command", "Delete jobs with their pods."),
    "doctor": ("pytorchjob.commands.doctor:doctor_command", "Name the cause of a problem, and the remedy."),
    "events": ("pytorchjob.commands.events:events_command", "Show the events of a job and of its pods."),
    "exec": ("pytorchjob.commands.exec:exec_command", "Run a command in the pod of a rank."),
    "init": ("pytorchjob.commands.init:init_command", "Write the file of a new job, and a Dockerfile."),
    "list": ("pytorchjob.commands.list:list_command", "List the jobs of a namespace."),
    "logs": ("pytorchjob.commands.logs:logs_command", "Print what all ranks of a job print, merged."),
    "plan": (
        "pytorchjob.commands.plan:plan_command",
        "Print the objects that the installed operator would create.",
    ),
    "port-forward": (
        "pytorchjob.commands.exec:port_forward_command",
        "Connect ports of this machine to the pod of a rank.",
    ),
    "profile": (
        "pytorchjob.commands.profile:profile_command",
        "Write where a rank spends its time into a file.",
    ),
    "progress": ("pytorchjob.commands.progress:progress_command", "Show how far the training of a job is, live."),
    "report": (
        "pytorchjob.commands.report:report_command",
        "Write an archive about a job for an issue, without known shapes of secrets.",
    ),
    "restart": ("pytorchjob.commands.change:restart_command", "Start all pods of a job again, or one of them."),
    "resume": ("pytorchjob.commands.change:resume_command", "Start a suspended job again."),
    "run": ("pytorchjob.commands.run:run_command", "Run a job on this machine."),
    "scale": ("pytorchjob.commands.change:scale_command", "Change the number of workers of a job."),
    "shell": ("pytorchjob.commands.exec:shell_command", "Open a shell in the pod of a rank."),
    "status": ("pytorchjob.commands.status:status_command", "Show one screen about a job."),
    "submit": ("pytorchjob.commands.submit:submit_command", "Create the jobs of files in the cluster."),
    "suspend": ("pytorchjob.commands.change:suspend_command", "Delete the pods of a job and keep the job."),
    "top": ("pytorchjob.commands.top:top_command", "Show what the pods of jobs use: CPU, memory, step rate."),
    "validate": (
        "pytorchjob.commands.validate:validate_command",
        "Check the jobs of a file by the API server's rules.",
    ),
    "version": ("pytorchjob.commands.version:version_command", "Print the versions of all parts."),
}
"""Each command: where it is, and its line in `--help`."""

_NAME = "pytorchjob"
_PLUGIN = "kubectl pytorch"
_PLAIN = (
    (r"is not a valid integer(?: range)?\.", "is not an integer."),
    (r"is not a valid float(?: range)?\.", "is not a number."),
    (r"is not in the range x>=(-?\d+)\.", r"is less than \1."),
)
"""Words of click, and plain ones."""


class _Index(click.Group):
    """Lists commands without importing them, and explains a wrong command line as every command explains a failure."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        command.short_help = COMMANDS[cmd_name][1]  # for shells, which show it beside the name
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of a command line; raises UsageError with the name that was meant."""
        if args and not args[0].startswith("-") and args[0] not in COMMANDS and not ctx.resilient_parsing:
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> Any:  # type: ignore[override]
        """Run a command; a wrong command line becomes two lines and exit status 2, a fault of ours two lines and 1."""
        if not extra.pop("standalone_mode", True):
            return super().main(args, prog_name, standalone_mode=False, **extra)
        try:
            status = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            say(error.format_message(), err=True)
            sys.exit(INVALID)
        except click.UsageError as error:
            _refuse(error)
        except click.ClickException as error:
            explain(error.format_message())
            sys.exit(FAILED)
        except (click.Abort, KeyboardInterrupt):
            sys.exit(INTERRUPTED)
        except Exception as error:
            fail_unexpected(error)
        sys.exit(status if isinstance(status, int) else 0)


def _refuse(error: click.UsageError) -> NoReturn:
    path = error.ctx.command_path if error.ctx else _NAME
    message = " ".join(error.format_message().split())  # click spreads a list of choices over lines
    for words, plain in _PLAIN:
        message = re.sub(words, plain, message)
    explain(message, f"`{path} --help` shows what is possible")
    sys.exit(INVALID)


@click.group(_NAME, cls=_Index, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=_NAME)
def main() -> None:
    """Run, submit, watch and understand kubeflow.org/v1 PyTorchJobs."""


def kubectl_main() -> None:
    """Run as kubectl's plugin: the program kubectl-pytorch."""
    main(prog_name=_PLUGIN)


def kubectl_complete() -> None:
    """Complete a command line for kubectl: the program kubectl_complete-pytorch."""
    from pytorchjob.commands.completion import candidates

    say("\n".join(candidates(main, sys.argv[1:])))
