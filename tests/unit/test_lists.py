"""Tasks that make their steps in turn."""

from __future__ import annotations

from dlperf_runner.core.lists import Steps, in_turn


def test_tasks_make_their_steps_in_turn() -> None:
    made: list[str] = []

    def task(name: str, steps: int) -> Steps[str]:
        for number in range(steps):
            made.append(f"{name}{number}")
            yield
        return name

    tasks = [task("a", 3), task("b", 1), task("c", 0), task("d", 2), task("e", 1)]
    assert in_turn(tasks, 3) == ["a", "b", "c", "d", "e"]
    assert made == ["a0", "b0", "a1", "a2", "d0", "e0", "d1"]
    assert in_turn([], 3) == []
