"""The ledger against a plain recount, after any sequence of moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedgrad.core import Ledger

pytestmark = pytest.mark.hypothesis
PARTS = 5


class Copy:
    """A segment as the ledger sees it."""

    def __init__(self, parts: list[int]) -> None:
        self.parts, self.done, self.closed, self.gone = parts, 0, False, False


def recount(copies: list[Copy], covered: list[list[int]]) -> dict[str, object]:
    live = [c for c in copies if not c.gone]

    def count(part: int, which: str) -> int:
        if which == "in_hand":
            return sum(part in c.parts[c.done :] for c in live if not c.closed)
        closed = which == "closed"
        return sum(part in c.parts[: c.done] for c in live if c.closed == closed)

    table = {
        name: [count(part, name) for part in range(PARTS)]
        for name in ("in_hand", "open", "closed")
    }
    table["covered"] = [sum(p in m for m in covered) for p in range(PARTS)]
    finished = [
        table["open"][p] + table["closed"][p] + table["covered"][p]
        for p in range(PARTS)
    ]
    return table | {
        "missing": sum(f == 0 for f in finished),
        "uncovered": sum(c == 0 for c in table["covered"]),
    }


@given(st.data())
def test_the_counts_are_those_of_a_recount_after_any_moves(data: st.DataObject) -> None:
    ledger, copies, covered = Ledger(PARTS), [], []
    for _ in range(data.draw(st.integers(0, 25))):
        move = data.draw(
            st.sampled_from(["assign", "finish", "close", "cover", "lose"])
        )
        live = [c for c in copies if not c.gone]
        open_ = [c for c in live if not c.closed]
        closed = [c for c in live if c.closed]
        if move == "assign":
            parts = data.draw(
                st.lists(st.integers(0, PARTS - 1), unique=True, min_size=1)
            )
            copies.append(Copy(parts))
            ledger.assign(parts)
        elif move == "finish" and any(c.done < len(c.parts) for c in open_):
            c = data.draw(st.sampled_from([c for c in open_ if c.done < len(c.parts)]))
            ledger.finish(c.parts[c.done])
            c.done += 1
        elif move == "close" and open_:
            c = data.draw(st.sampled_from(open_))
            ledger.close(c.parts[: c.done], c.parts[c.done :])
            c.closed = True
        elif move == "cover" and closed:
            c = data.draw(st.sampled_from(closed))
            ledger.cover(c.parts[: c.done])
            covered.append(c.parts[: c.done])
        elif move == "lose" and live:
            c = data.draw(st.sampled_from(live))
            ledger.lose(c.parts[: c.done], c.parts[c.done :], c.closed)
            c.gone = True
        for name, value in recount(copies, covered).items():
            assert getattr(ledger, name) == value, (name, move)
