"""What ends a sleep in `select`."""

import select
import threading

from pytorchjob_agent.system.alarm import Alarm


def rings(alarm: Alarm, seconds: float = 0.0) -> bool:
    return bool(select.select([alarm], [], [], seconds)[0])


def test_another_thread_ends_the_sleep() -> None:
    alarm = Alarm()
    threading.Timer(0.1, alarm.ring).start()
    assert rings(alarm, 60)
    alarm.close()


def test_however_often_it_rang_it_is_hushed_once() -> None:
    alarm = Alarm()
    for _ in range(100):
        alarm.ring()
    assert rings(alarm)
    alarm.hush()
    assert not rings(alarm)
    alarm.close()


def test_nobody_waits_for_a_reader_that_sleeps_on() -> None:
    alarm = Alarm()
    for _ in range(100_000):  # more than a pipe takes
        alarm.ring()
    assert rings(alarm)
    alarm.close()


def test_ringing_after_the_end_does_no_harm() -> None:
    alarm = Alarm()
    alarm.close()
    alarm.ring()
