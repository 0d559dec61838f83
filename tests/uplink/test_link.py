"""A link that all workers share, as drivers are told of it."""

import pytest

from codedgrad.errors import InvalidOptions
from codedgrad.uplink import Link
from codedgrad.uplink.rivals import POLICIES


def test_rates_are_messages_in_a_slot() -> None:
    assert Link("fair", slot=0.5, seconds=2.0).rates(3) == (0.25, 0.25, 0.25)
    assert Link("fair", seconds=(1.0, 4.0)).rates(2) == (1.0, 0.25)  # no seconds pass


@pytest.mark.parametrize("policy", POLICIES)
def test_whatever_is_offered_is_delivered_once_by_every_policy(policy: str) -> None:
    link = Link(policy, slot=0.1, seconds=(0.8, 0.4, 0.2, 0.1))
    credits, rates = link.credits(4), link.rates(4)
    for key in range(12):
        credits.offer(key % 4, key, size=1.0)
    delivered: list[int] = []
    for _ in range(1000):
        delivered += credits.advance(rates)
    assert sorted(delivered) == list(range(12))
    assert credits.is_idle


def test_seconds_may_be_a_list() -> None:
    assert Link(seconds=[1.0, 2.0]) == Link(seconds=(1.0, 2.0))  # type: ignore[arg-type]
    assert hash(Link(seconds=[1.0])) == hash(Link(seconds=(1.0,)))  # type: ignore[arg-type]


def test_one_message_of_a_slow_worker_arrives_however_busy_the_others_are() -> None:
    link = Link("fair", slot=1.0, seconds=(2.0, 1.0, 1.0))
    credits, rates, key = link.credits(3), link.rates(3), 0
    credits.offer(0, key, size=1.0)
    for _ in range(2 * (3 * 50 + 3)):  # two slots of its own, each after 50 turns
        for worker in (1, 2):
            while len(credits.waiting(worker)) < 3:
                key += 1
                credits.offer(worker, key, size=1.0)
        credits.advance(rates)
    assert credits.waiting(0) == ()


def test_what_waits_in_a_queue_stays_below_about_one_message() -> None:
    credits = Link("fair", slot=0.1, seconds=1.0).credits(4)
    policy = credits._policy
    assert policy.most_queue == pytest.approx(1.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": "fare"}, "there is no policy 'fare'"),
        ({"slot": -1.0}, "a slot takes -1.0 seconds"),
        ({"seconds": 0.0}, "a message takes 0.0 seconds"),
        ({"seconds": ()}, "a message takes () seconds"),
        ({"seconds": (1.0, float("inf"))}, "a message takes"),
        ({"seconds": []}, "a message takes () seconds"),
        ({"seconds": [1.0, "a"]}, "a message takes (1.0, 'a') seconds"),
        ({"seconds": None}, "a message takes None seconds"),
        ({"seconds": True}, "a message takes True seconds"),
        ({"slot": "a"}, "a slot takes 'a' seconds"),
        ({"slot": None}, "a slot takes None seconds"),
        ({"slot": [1.0]}, "a slot takes [1.0] seconds"),
        ({"slot": float("nan")}, "a slot takes nan seconds"),
        ({"policy": ["fair"]}, "there is no policy ['fair']"),
        ({"V": 0.0}, "V is 0.0"),
        ({"V": "a"}, "V is 'a'"),
        ({"beta": 0}, "beta is 0"),
        ({"beta": -1.0}, "beta is -1.0"),
        ({"beta": float("nan")}, "beta is nan"),
    ],
)
def test_a_link_that_cannot_be_is_refused(
    options: dict[str, object], said: str
) -> None:
    with pytest.raises(InvalidOptions) as caught:
        Link(**options)  # type: ignore[arg-type]
    assert f"link: {said}" in str(caught.value)
    assert "; try " in str(caught.value)


def test_seconds_must_be_for_as_many_workers_as_there_are() -> None:
    with pytest.raises(InvalidOptions, match="has seconds for 2 workers"):
        Link(seconds=(1.0, 2.0)).rates(3)
