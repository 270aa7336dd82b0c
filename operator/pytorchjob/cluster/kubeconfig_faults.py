"""Why a kubeconfig could not be read: the file, the place and the words; files are checked only after it failed."""

from collections.abc import Iterable
from pathlib import Path

import yaml

from pytorchjob.cluster.errors import NoCluster
from pytorchjob_operator import yaml_errors

_OTHER = "name another with --kubeconfig or KUBECONFIG"


def find(paths: Iterable[str]) -> NoCluster | None:
    """Return the error of the first file that is no kubeconfig; None if all have the form of one."""
    return next(filter(None, map(_fault, paths)), None)


def _fault(path: str) -> NoCluster | None:
    try:
        text = Path(path).expanduser().read_bytes().decode()
        body = yaml.safe_load(text)
    except OSError as error:
        return NoCluster(f"the kubeconfig {path} cannot be read: {error.strerror or error}", _OTHER)
    except UnicodeDecodeError:
        return NoCluster(f"the kubeconfig {path} is a binary file", _OTHER)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        fault = yaml_errors.explain(error, text)
        return NoCluster(f"the kubeconfig {fault.at(path)} is not valid YAML: {fault.words}", "correct the file")
    if body is None:
        return NoCluster(f"the kubeconfig {path} is empty", _OTHER)
    if not isinstance(body, dict):
        return NoCluster(f"the kubeconfig {path} is not a kubeconfig: it has no fields", _OTHER)
    return None
