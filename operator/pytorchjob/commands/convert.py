"""`convert`: a PyTorchJob as a TrainJob of Kubeflow Trainer v2, and a TrainJob as a PyTorchJob."""

from typing import Any

import click

from pytorchjob.commands.outcome import INVALID, fail
from pytorchjob.view import trainjob
from pytorchjob_operator import names
from pytorchjob_operator.terminal import say, visible_yaml


@click.command("convert")
@click.argument("file", type=click.File("r"), metavar="FILE")
@click.option(
    "--runtime",
    default=trainjob.RUNTIME,
    show_default=True,
    metavar="NAME",
    help="The ClusterTrainingRuntime of a new TrainJob.",
)
def convert_command(file: Any, runtime: str) -> None:
    """Print each PyTorchJob of a file as a TrainJob of Kubeflow Trainer v2, and each TrainJob as a PyTorchJob.

    Other objects stay as they are. FILE - is standard input. Each field that has no place in the new object is named on
    stderr: the runtime of a TrainJob has most of what a pod template says. No cluster is needed.
    """
    import yaml

    try:
        objects = [body for body in yaml.safe_load_all(file) if body is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        fail(f"{file.name} is no YAML: {' '.join(str(error).split())}", "correct it", INVALID)
    converted = [_converted(body, runtime) for body in objects]
    if not any(converted):
        fail(f"{file.name} contains neither a {names.KIND} nor a {trainjob.TRAIN_KIND}", "choose another", INVALID)
    for body, new in zip(objects, converted, strict=True):
        if new is None:
            continue
        name = (body.get("metadata") or {}).get("name")
        for path in new.lost:
            say(f"lost: {name}: {path}", err=True)
        for what in new.missing:
            say(f"missing: {name}: {what}", err=True)
    found = [new.body if new else body for body, new in zip(objects, converted, strict=True)]
    say(visible_yaml(lambda all_: str(yaml.safe_dump_all(found, sort_keys=False, allow_unicode=all_))), nl=False)


def _converted(body: Any, runtime: str) -> trainjob.Converted | None:
    if not isinstance(body, dict):
        return None
    kind, version = body.get("kind"), str(body.get("apiVersion"))
    try:
        if (version, kind) == (names.API_VERSION, names.KIND):
            return trainjob.to_train_job(body, runtime)
        if (version.partition("/")[0], kind) == (trainjob.TRAIN_GROUP, trainjob.TRAIN_KIND):
            return trainjob.to_pytorch_job(body)
    except (AttributeError, TypeError, ValueError):
        fail(f"the {kind} {body.get('metadata')} is not formed as its kind", "`pytorchjob validate` checks it", INVALID)
    return None
