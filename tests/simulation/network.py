"""Links that carry bytes: late, stalled, cut, or with every line twice."""

from typing import TYPE_CHECKING

from pytorchjob_operator.coordinator.limits import Bucket

from .clock import Clock

if TYPE_CHECKING:
    from pytorchjob_agent.contract.messages import Message, Refused

    from .agent import Agent
    from .leader import Leader


class Link:
    """One TCP connection between an agent and a leader: in order until it is cut, then silent.

    Each side learns of the end in its own time. What was sent before may still arrive, or be lost.
    """

    def __init__(self, clock: Clock, number: int, agent: "Agent", leader: "Leader") -> None:
        self.clock, self.agent, self.leader = clock, agent, leader
        self.number = number
        self.silent = False
        """Whether nothing gets through any more."""
        self.broken = False
        """Whether it was cut: each side notices in its own time."""
        self.twice = 0.0
        """How likely a line arrives twice; TCP does not do so, and it must do no harm either."""
        self._up = self._down = 0.0
        self.peer = Peer(self)

    def to_leader(self, data: bytes) -> None:
        """Carry the agent's bytes."""
        self._up = at = self._arrival(self._up)
        self.clock.after(at - self.clock.now, lambda: self.silent or self.leader.receive(self, data))

    def to_agent(self, data: bytes) -> None:
        """Carry the leader's bytes."""
        self._down = at = self._arrival(self._down)
        self.clock.after(at - self.clock.now, lambda: self.silent or self.agent.receive(self, data))

    def close_by_agent(self) -> None:
        """Let the leader know that the agent has closed it, after what was sent before."""
        self._up = at = self._arrival(self._up)
        self.clock.after(at - self.clock.now, lambda: self.silent or self.leader.closed(self))

    def close_by_leader(self) -> None:
        """Let the agent know that the leader has closed it, after what was sent before."""
        self._down = at = self._arrival(self._down)
        self.clock.after(at - self.clock.now, lambda: self.silent or self.agent.disconnected(self))

    def stall(self, seconds: float) -> None:
        """Let nothing through for a while; nothing is lost."""
        self._up = self._down = self.clock.now + seconds

    def cut(self, late: bool = False) -> None:
        """Break it: bytes under way are lost, or arrive late; each side notices in its own time."""
        if self.silent:
            return
        self.silent, self.broken = not late, True
        self.clock.soon(0.0, 1.0, lambda: self.leader.closed(self))
        self.clock.soon(0.0, 1.0, lambda: self.agent.disconnected(self))

    def _arrival(self, last: float) -> float:
        return max(last, self.clock.now + 0.001 + self.leader.world.delay * self.clock.random.random())


class Peer:
    """The leader's end of a link, as the real server knows a connection."""

    def __init__(self, link: Link) -> None:
        self.connection = link
        self.number = link.number
        self.job = ""
        self.index = -1
        self.bucket: Bucket | None = None
        self.address = ""
        self.open = True

    def send(self, message: "Message") -> None:
        """Encode and send."""
        link = self.connection
        if self.open:
            try:
                link.leader.world.checks.sent(link.agent, message)
            except AssertionError as error:  # the server would survive it
                link.leader.world.checks.problem = str(error)
            link.to_agent(message.to_line())
            if link.twice and link.clock.random.random() < link.twice:
                link.to_agent(message.to_line())

    def refuse(self, refused: "Refused") -> None:
        """Refuse, and close."""
        self.send(refused)
        self.hang_up()

    def hang_up(self) -> None:
        """Close after what was sent."""
        if self.open:
            self.open = False
            self.connection.close_by_leader()
            self.connection.leader.hung_up(self.connection)

    def stop_timer(self) -> None:
        """Do nothing: the simulation has no timer for a late hello."""
