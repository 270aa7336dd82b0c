"""Whose turn it is: a queue in which every namespace, job or address waits for one turn of each other one. Pure."""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Items in groups, and groups in groups. The groups take turns; within a group the oldest item is first."""

    def __init__(self) -> None:
        """Start empty."""
        self._items: deque[Item] = deque()
        self._groups: dict[str, FairQueue[Item]] = {}
        """The group whose turn is next is the first one."""

    def __bool__(self) -> bool:
        """Return whether there are items."""
        return bool(self._items or self._groups)

    def add(self, item: Item, *path: str) -> None:
        """Add an item to the group with this path, such as a namespace and a job."""
        if not path:
            self._items.append(item)
            return
        name, *rest = path
        if name not in self._groups:
            self._groups[name] = FairQueue()
        self._groups[name].add(item, *rest)

    def take(self) -> Item:
        """Remove and return the next item. Raises IndexError if there is none."""
        if self._items or not self._groups:
            return self._items.popleft()
        name = next(iter(self._groups))
        turn = self._groups.pop(name)
        item = turn.take()
        if turn:
            self._groups[name] = turn
        return item
