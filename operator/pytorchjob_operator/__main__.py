"""`python -m pytorchjob_operator`: start the operator, or print the decisions that it has recorded."""

import asyncio
import os
import sys
from dataclasses import replace

try:
    import click

    from pytorchjob_operator import __version__
    from pytorchjob_operator.errors import OperatorError
    from pytorchjob_operator.replay import rounds_command
except ModuleNotFoundError as error:
    if (error.name or "").startswith("pytorchjob"):
        raise
    # `pip install pytorchjob` alone is the agent of a training image: it brings no other package.
    sys.exit(f"error: the package {error.name} is missing\nnext: pip install 'pytorchjob[operator]'")


@click.group(invoke_without_command=True)
@click.option("--namespace", "-n", multiple=True, help="Serve only this namespace. May be repeated. Default: all.")
@click.option("--leader-elect/--no-leader-elect", default=None, help="Become the leader before any write.")
@click.version_option(__version__)
@click.pass_context
def cli(context: click.Context, namespace: tuple[str, ...], leader_elect: bool | None) -> None:
    """Run the operator for kubeflow.org/v1 PyTorchJob.

    It connects to the cluster of KUBECONFIG or of the pod's service account. Environment variables that begin with
    PYTORCHJOB_ set everything else.
    """
    if context.invoked_subcommand is None:
        _start(namespace, leader_elect)


def _start(namespaces: tuple[str, ...], leader_elect: bool | None) -> None:
    # Imported here because `rounds` needs none of it.
    from pytorchjob_operator.app import log_format
    from pytorchjob_operator.app.process import OperatorProcess
    from pytorchjob_operator.kube import config
    from pytorchjob_operator.kube.lease import LeaseLostError
    from pytorchjob_operator.settings import Settings

    async def life() -> None:
        await OperatorProcess(settings, config.load()).run()

    try:
        settings = Settings.from_env(os.environ)
        settings = replace(settings, namespaces=namespaces or settings.namespaces)
        if leader_elect is not None:
            settings = replace(settings, leader_elect=leader_elect)
        log_format.configure(settings.log_level, settings.log_format)
        asyncio.run(life())
    except LeaseLostError as error:
        sys.exit(f"pytorchjob-operator: {error}")
    except OperatorError as error:
        raise click.ClickException(str(error)) from error


cli.add_command(rounds_command)


def main() -> None:
    """Entry point of `pytorchjob-operator`."""
    cli(prog_name="pytorchjob-operator")


if __name__ == "__main__":
    main()
