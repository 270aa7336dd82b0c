"""Reads values that another process wrote: environment variables and JSON objects, each with its check. Pure.

Every error is a `ContractError` with the field, the value and what is expected. The wire messages between agent and
coordinator have their own checks, in `fields`.
"""

import json
from collections.abc import Mapping
from typing import Any, Self

_MAX_INT = 2**31 - 1
_LONGEST_PATH = 1024
_SHOWN = 80  # characters of a wrong value that an error repeats


class ContractError(ValueError):
    """A variable or a message that the other side never writes; names the field and what is expected."""


def whole_number(name: str, text: str, form: str = "a number", *, least: int = 0, most: int = _MAX_INT) -> int:
    """Return a whole number of plain digits within bounds; `form` is what the variable should be."""
    if text.isascii() and text.isdigit() and len(text) <= 10 and least <= int(text) <= most:
        return int(text)
    raise ContractError(f"{name}: {text[:_SHOWN]!r} is not {form}: expected a whole number from {least} to {most}")


def optional_number(env: Mapping[str, str], name: str) -> int | None:
    """Return the variable's whole number; None if it is unset or empty."""
    return whole_number(name, env[name]) if env.get(name) else None


def seconds(env: Mapping[str, str], name: str, default: float) -> float:
    """Return the variable's whole number of seconds, or the default."""
    return float(whole_number(name, env[name], "a time in seconds")) if env.get(name) else default


def switch(env: Mapping[str, str], name: str) -> bool:
    """Return True for 1; False for 0, an empty and an unset variable."""
    text = env.get(name) or "0"
    if text not in {"0", "1"}:
        raise ContractError(f"{name}: {text[:_SHOWN]!r} is not a switch: expected 1 or 0")
    return text == "1"


def host_and_port(name: str, text: str) -> tuple[str, int]:
    """Return the parts of host:port; an IPv6 address loses its brackets."""
    host, _, port = text.rpartition(":")
    if not host:
        raise ContractError(f"{name}: {text[:_SHOWN]!r} is not host:port: expected an address and a port")
    return host.strip("[]"), whole_number(name, port, "host:port", least=1, most=65535)


class ObjectReader:
    """Reads the fields of one JSON object; null counts as unset, and unknown fields of a newer writer are ignored."""

    def __init__(self, where: str, data: object) -> None:
        """Take the decoded object; `where` names it in errors."""
        if not isinstance(data, dict):
            raise ContractError(f"{where}: {str(data)[:_SHOWN]!r} is not an object: expected {{...}}")
        self._where = where
        self._data: dict[str, Any] = {name: value for name, value in data.items() if value is not None}

    @classmethod
    def parse(cls, where: str, text: str) -> Self:
        """Decode the JSON text of an object."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ContractError(f"{where}: {text[:_SHOWN]!r} is not JSON: {error}") from None
        return cls(where, data)

    def __contains__(self, name: str) -> bool:
        """Return whether the field is set."""
        return name in self._data

    def wrong(self, name: str, value: object, expected: str) -> ContractError:
        """Return the error for a field's value."""
        return ContractError(f"{self._where}: {name}: {str(value)[:_SHOWN]!r} is wrong: expected {expected}")

    def value(self, name: str) -> object:
        """Return a field as it is; None if it is unset."""
        return self._data.get(name)

    def directory(self, name: str) -> str:
        """Return an absolute path other than the root."""
        found = self.short_text(name, _LONGEST_PATH)
        if found is None or not found.startswith("/") or not found.strip("/"):
            raise ContractError(f"{self._where}: {name}: expected an absolute path other than /")
        return found

    def number(self, name: str, least: float, most: float, expected: str) -> float | None:
        """Return a number within bounds."""
        value = self._data.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(name, value, expected)
        return float(value)

    def whole(self, name: str) -> int | None:
        """Return a whole number of any size."""
        value = self._data.get(name)
        if value is not None and not isinstance(value, int):
            raise self.wrong(name, value, "a whole number")
        return value

    def whole_numbers(self, name: str) -> tuple[int, ...]:
        """Return a list of whole numbers; empty if it is unset."""
        values = self.items(name)
        if not all(isinstance(value, int) for value in values):
            raise self.wrong(name, values, "a list of whole numbers")
        return tuple(values)

    def items(self, name: str, most: int | None = None) -> list[Any]:
        """Return a list of any values; empty if it is unset."""
        values = self._data.get(name, [])
        if not isinstance(values, list) or (most is not None and len(values) > most):
            raise self.wrong(name, values, "a list" if most is None else f"a list of at most {most} entries")
        return values

    def text(self, name: str) -> str:
        """Return a text of any length; empty if it is unset."""
        value = self._data.get(name, "")
        if not isinstance(value, str):
            raise self.wrong(name, value, "a text")
        return value

    def short_text(self, name: str, longest: int) -> str | None:
        """Return a text that is not empty and has at most `longest` characters."""
        value = self._data.get(name)
        if value is not None and not (isinstance(value, str) and 0 < len(value) <= longest):
            raise self.wrong(name, value, f"a text of 1 to {longest} characters")
        return value

    def switch(self, name: str) -> bool:
        """Return true or false; False if it is unset."""
        value = self._data.get(name, False)
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value
