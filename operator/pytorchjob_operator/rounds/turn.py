"""One decision in the making: the state as it changes, and what is said on the way. Used inside `decide` only."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pytorchjob_agent.contract.messages import ToAgent
from pytorchjob_operator.rounds.state import Hangup, JobState, Member, News, Order, Tell, Word


class Turn:
    """Collects what one event leads to."""

    def __init__(self, state: JobState, now: float) -> None:
        """Begin with the state as it was."""
        self.state = state
        self.now = now
        self.orders: list[Order] = []
        self.news: list[News] = []
        self.reason = "nothing to do"

    def set(self, **changes: Any) -> None:
        """Change fields of the state."""
        self.state = replace(self.state, **changes)

    def put(self, member: Member, **changes: Any) -> Member:
        """Keep a member, with changes."""
        member = replace(member, **changes) if changes else member
        self.set(members={**self.state.members, member.index: member})
        return member

    def drop(self, index: int) -> None:
        """Forget a member."""
        self.set(members={one: member for one, member in self.state.members.items() if one != index})

    def tell(self, member: Member, message: ToAgent) -> None:
        """Say something to a member, if it can hear."""
        if member.link is not None:
            self.orders.append(Tell(member.link, message))

    def hang_up(self, link: int) -> None:
        """Close a connection."""
        self.orders.append(Hangup(link))

    def say(self, reason: Word, message: str, *, warning: bool = False) -> None:
        """Tell people."""
        self.news.append(News(reason, message, warning))

    def problem(self, reason: Word, message: str | None) -> None:
        """Note what is wrong, and tell it when it is new; None: it is over."""
        known = self.state.problems.get(reason)
        if message is None:
            if known is not None:
                self.set(problems={word: text for word, text in self.state.problems.items() if word != reason})
            return
        if known is None:
            self.say(reason, message, warning=True)
        if known != message:
            self.set(problems={**self.state.problems, reason: message})

    def in_round(self, *, last_first: bool = False) -> Iterator[Member]:
        """The members of the present round that are known, by rank."""
        if self.state.round is None:
            return
        ranks = self.state.round.ranks
        for index in reversed(ranks) if last_first else ranks:
            member = None if index is None else self.state.members.get(index)
            if member is not None:
                yield member

    def name(self, index: int) -> str:
        """The pod of a replica, for people."""
        member, seat = self.state.members.get(index), self.state.seats.get(index)
        return member.pod if member else seat.pod if seat else f"replica {index}"
