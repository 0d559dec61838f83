"""Which Ray cluster is meant, what to try where it lets nobody in, and signals."""

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import SimpleNamespace

import pytest

from codedgrad.engines.ask_process import Answer
from codedgrad.engines.ray import cluster as ray_cluster
from codedgrad.engines.ray.address import is_refused, to_try
from codedgrad.engines.ray.cluster import Cluster

LOST = "ConnectionError: Failed to connect to Ray cluster at head:6379"
WRONG = "RPC error: InvalidAuthToken: Authentication token is missing or incorrect"
NONE = (
    "ray.exceptions.AuthenticationError: Token authentication is enabled but no "
    "authentication token was found."
)
TOKEN = (
    "RAY_AUTH_MODE=token, and the token of its head in ~/.ray/auth_token, "
    "or RAY_AUTH_TOKEN_PATH set to it"
)


# -- which cluster ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "variable", "meant"),
    [
        (None, "", "local"),
        (None, "head:6379", "head:6379"),
        ("local", "head:6379", "local"),
        ("auto", "", "auto"),
        ("other:6379", "head:6379", "other:6379"),
    ],
)
def test_ray_address_is_for_whom_no_address_is_given(
    address: str | None, variable: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    client = SimpleNamespace(ray=SimpleNamespace(is_connected=lambda: False))
    ray = SimpleNamespace(
        is_initialized=lambda: False, util=SimpleNamespace(client=client)
    )
    monkeypatch.setattr(ray_cluster, "extra", lambda name: ray)
    monkeypatch.setattr(Cluster, "_start", lambda *_: asked.append("local"))
    monkeypatch.setattr(Cluster, "_join", lambda _, where, env: asked.append(where))
    monkeypatch.setenv("RAY_ADDRESS", variable)
    Cluster(address, 1.0, None)
    assert asked == [meant]


# -- what to try -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["", "token"])
@pytest.mark.parametrize("said", [f"{WRONG}\n{LOST}", NONE], ids=["wrong", "none"])
def test_who_is_not_let_in_is_told_of_the_token(
    said: str, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    answer = Answer(1, "", said)
    assert is_refused(answer)
    assert to_try("ray status", answer) == TOKEN


@pytest.mark.parametrize("code", [1, None], ids=["failed", "silent"])
@pytest.mark.parametrize(
    ("mode", "advice"),
    [("", "ray status"), ("token", f"ray status; if its token is another: {TOKEN}")],
)
def test_it_may_be_the_token_where_there_is_one(
    code: int | None, mode: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    answer = Answer(code, "", LOST)
    assert not is_refused(answer)
    assert to_try("ray status", answer) == advice


# -- signals ---------------------------------------------------------------------------


def test_signals_that_ray_takes_are_given_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with suppress(OSError), ray_cluster._signals_as_they_are():
        signal.signal(signal.SIGTERM, lambda number, frame: None)
        raise OSError("no room")
    assert signal.getsignal(signal.SIGTERM) is before


def test_signals_are_left_alone_in_another_thread() -> None:
    def start() -> bool:
        with ray_cluster._signals_as_they_are():
            return True

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(start).result()
