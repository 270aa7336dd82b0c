"""Runs a function in every worker: pickles it for the workers, calls it there, returns the values to the caller.

It unpickles only files in a folder that belongs to this run and this user.
"""

import importlib
import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from pytorchjob_agent.contract.environment import RANK
from pytorchjob_agent.contract.reading import ContractError

_PICKLERS = ("cloudpickle", "pyspark.cloudpickle")
_CALL, _CODE = "call.json", "call.pickle"
_VALUE = "value-"


def save(function: Callable[..., Any], args: Sequence[Any], directory: Path) -> None:
    """Write the call for the workers; raises ContractError if it cannot be pickled."""
    pickler = _pickler()
    code = _pickled(function, args, pickler)
    path = [entry or os.getcwd() for entry in sys.path]
    (directory / _CALL).write_text(json.dumps({"pickler": pickler.__name__, "path": path}))
    (directory / _CODE).write_bytes(code)


def values(directory: Path) -> dict[int, Any]:
    """Return the function's values by rank; a rank that called sys.exit(0) has no value."""
    files = {int(file.name.removeprefix(_VALUE)): file for file in directory.glob(f"{_VALUE}*")}
    return {rank: pickle.loads(files[rank].read_bytes()) for rank in sorted(files)}  # noqa: S301


def _pickler() -> ModuleType:
    """Return cloudpickle, which also pickles closures and functions of __main__, or else pickle."""
    for name in _PICKLERS:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return pickle


def _pickled(function: Callable[..., Any], args: Sequence[Any], pickler: ModuleType) -> bytes:
    try:
        code: bytes = pickler.dumps((function, tuple(args)))
    except Exception as error:  # picklers run code of the objects that they find
        words = f"{_name(function)} and its args cannot be pickled for the workers: {error}{_advice(pickler)}"
        raise ContractError(words) from error
    if pickler is pickle and b"__main__" in code:  # the workers have another __main__
        raise ContractError(f"{_name(function)} or one of its args is defined in __main__{_advice(pickler)}")
    return code


def _name(function: Callable[..., Any]) -> str:
    return f"what: {getattr(function, '__qualname__', repr(function))}"


def _advice(pickler: ModuleType) -> str:
    return ": install cloudpickle, or define it at the top level of a module" if pickler is pickle else ""


def main(directory: Path) -> None:
    """Run in a worker: call the function and write its value; torch's recorder keeps the traceback of a failure."""
    call = json.loads((directory / _CALL).read_text())
    sys.path[:] = call["path"]  # the modules that the caller can import
    from torch.distributed.elastic.multiprocessing.errors import record

    record(_call)(directory, importlib.import_module(call["pickler"]))


def _call(directory: Path, pickler: ModuleType) -> None:
    function, args = pickle.loads((directory / _CODE).read_bytes())  # noqa: S301
    value = function(*args)
    _leave()
    rank = os.environ[RANK]
    try:
        code = pickler.dumps(value)
    except Exception as error:
        raise TypeError(f"the value that rank {rank} returned cannot be pickled for the caller: {error}") from error
    (directory / f"{_VALUE}{rank}").write_bytes(code)


def _leave() -> None:
    """Close the function's process group: Python may abort at its end while torch's threads still talk to a peer."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
