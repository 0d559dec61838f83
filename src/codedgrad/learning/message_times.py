"""How long the messages of a step took, from when they could leave until heard."""

from __future__ import annotations

from codedgrad.core.history import Record


def message_times(record: Record) -> dict[int, tuple[float, bool]]:
    """Return by worker the seconds of its slowest message, and whether it took more.

    A message can leave when it is asked for and its sums are closed. Where the engine
    does not report closings nothing is known of that, and nothing is returned.
    """
    state = record.state
    found: dict[int, tuple[float, bool]] = {}
    if not state.capabilities.progress:
        return found
    for message in state.messages.values():
        segments = [state.segments[id_] for id_ in message.segments]
        closed = [
            known.marks[-1][1] for known in segments if known.closed and known.marks
        ]
        if len(closed) < len(segments) or not message.finite:
            continue
        ready = max(message.asked, *closed)
        ended = min(
            (known.ended_at for known in segments if known.gone), default=state.now
        )
        heard = message.arrived
        seconds = max(0.0, (ended if heard is None else heard) - ready)
        longest = found.get(message.worker, (-1.0, False))
        found[message.worker] = max(longest, (seconds, heard is None))
    return found
