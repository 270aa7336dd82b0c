"""Writes the command reference into a page: `python -m pytorchjob.reference docs/cli.md`. `make generate` calls it.

The page keeps its text; what stands between the two markers is replaced by what each command describes.
"""

import inspect
from collections.abc import Iterator

import click

from pytorchjob.cli import COMMANDS, main
from pytorchjob.commands.options import with_connect
from pytorchjob_operator.generated import insert_between, rewrite

MARKS = "<!-- commands: begin (make generate) -->", "<!-- commands: end -->"


def _nothing(**given: object) -> None:
    """Stands for a command that has the shared options and no others."""


SHARED = click.command("shared")(with_connect(_nothing))


def reference() -> str:
    """Return a section for each command: usage, description, options."""
    ctx = click.Context(main, info_name="pytorchjob")
    sections = ("\n".join(_section(name, ctx)).strip() for name in sorted(COMMANDS))
    return "\n\n".join(sections).replace("\n\n\n", "\n\n")


def shared_options() -> str:
    """Return the table of the options that choose a cluster."""
    return "\n".join(_table(SHARED.params))


def insert(text: str) -> str:
    """Return the page with the present reference. Raises ValueError without the markers."""
    shared = f"### Options of all commands that need a cluster\n\n{shared_options()}"
    return insert_between(text, MARKS, f"{shared}\n\n{reference()}")


def _section(name: str, parent: click.Context) -> Iterator[str]:
    command = main.get_command(parent, name)
    assert command is not None
    ctx = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])
    shared = {parameter.name for parameter in SHARED.params}
    needs_cluster = shared <= {parameter.name for parameter in command.params}
    yield from (f"### {name}", "", "```text", usage, "```", "", *_text(command.help or ""))
    own = [parameter for parameter in command.params if not (needs_cluster and parameter.name in shared)]
    if any(isinstance(parameter, click.Option) for parameter in own):
        yield from _table(own)
    if needs_cluster:
        yield from ("", "Also the options of all commands that need a cluster.")


def _text(help_text: str) -> Iterator[str]:
    """Yield the paragraphs; what click must not wrap becomes a block."""
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        if paragraph.startswith("\b"):
            yield from ("```text", *paragraph.splitlines()[1:], "```", "")
        else:
            yield from (" ".join(paragraph.split()), "")


def _table(parameters: list[click.Parameter]) -> Iterator[str]:
    yield from ("| option | meaning |", "| --- | --- |")
    for option in (parameter for parameter in parameters if isinstance(parameter, click.Option)):
        names = ", ".join([*option.opts, *option.secondary_opts])
        value = "" if option.is_flag else f" {option.metavar or _choices(option)}"
        yield f"| `{names}{value}` | {(option.help or '').replace('|', chr(92) + '|')} |"


def _choices(option: click.Option) -> str:
    return (
        "/".join(map(str, option.type.choices)) if isinstance(option.type, click.Choice) else option.type.name.upper()
    )


if __name__ == "__main__":
    rewrite(insert)
