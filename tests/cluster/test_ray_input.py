"""What cannot be is said in one sentence, and leaves nothing behind.

Every case is a script of its own, a few of them at a time. Those that are to find the
cluster of the tests look for it on the loopback, where Ray otherwise does not.
"""

import os
import re
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from codedgrad.engines.ray.cluster import Cluster

HANG = 200.0  # seconds; only a hang takes so long
EXAMPLE = str(Path(__file__).parents[2] / "examples" / "anywhere.py")
WITHOUT_RAY = f"""
import runpy, sys
sys.modules["ray"] = None  # as if it were not installed
sys.argv = ["anywhere.py", "--engine", "ray"]
runpy.run_path({EXAMPLE!r}, run_name="__main__")
"""
REFUSED = ("nowhere", "h:1:2", "127.0.0.1:999999", "ray://127.0.0.1:10001")
ADDRESSES = """
import sys
import numpy as np
from codedgrad.engines import Ray, train
from codedgrad.errors import EngineFailed
from codedgrad.schemes import uncoded
for address in sys.argv[1:]:
    try:
        train(None, np.zeros(3), uncoded(2), steps=1, engine=Ray(address))
    except EngineFailed as error:
        print(error)
"""
JOINS = """
import sys
import numpy as np
import ray
from codedgrad.engines import Ray, train
from codedgrad.schemes import uncoded

def gradient(x, part, step):
    return 0.0, 1.0, x - part

engine = Ray(*sys.argv[1:])
run = train(gradient, np.zeros(2), uncoded(2), steps=2, rate=0.5, engine=engine)
print(*run.parameters, ray.is_initialized())
"""

pytestmark = pytest.mark.timeout(600)  # where the machine is busy otherwise


@dataclass(frozen=True)
class Said:
    """How a script went.

    Attributes:
        code: Its exit code.
        out: What it printed.
        err: What it printed on standard error.
        left: Processes that it has left behind.
    """

    code: int
    out: str
    err: str
    left: list[str]


def run(words: list[str], variables: dict[str, str]) -> Said:
    mark = f"CODEDGRAD_TEST={secrets.token_hex(8)}"
    name, _, value = mark.partition("=")
    done = subprocess.run(
        [sys.executable, *words],
        env={**os.environ, **variables, name: value},
        capture_output=True,
        text=True,
        timeout=HANG,
    )
    return Said(done.returncode, done.stdout, done.stderr, marked(mark))


def marked(mark: str) -> list[str]:
    """Return the commands of processes that were started with a variable."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text(errors="replace"))
        except OSError:
            continue  # it has ended
    return found


@pytest.fixture(scope="module")
def scripts(
    together: Callable[..., list[Any]], ray_cluster: Cluster
) -> dict[str, Said]:
    there = str(ray_cluster.ray.get_runtime_context().gcs_address)
    inside = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"127.0.0.1:{server.getsockname()[1]}"
    example = [EXAMPLE, "--engine", "ray", "--address"]
    calls = {
        "without Ray": (["-c", WITHOUT_RAY], {}),
        "nobody there": ([*example, closed], {}),
        "no address": (["-c", ADDRESSES, *REFUSED], {}),
        "wrong token": ([*example, there], {**inside, "RAY_AUTH_TOKEN": "0" * 64}),
        "too many": ([*example, there, "--workers", "50"], inside),
        "joins": (["-c", JOINS, there], inside),
        "told where": (["-c", JOINS], {**inside, "RAY_ADDRESS": there}),
    }
    runs = [lambda words=words, v=v: run(words, v) for words, v in calls.values()]
    return dict(zip(calls, together(runs, at_once=3), strict=True))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "without Ray",
            'engine="ray" needs Ray, which is not installed; '
            r"try pip install 'codedgrad\[ray\]'",
        ),
        (
            "nobody there",
            r"there is no Ray cluster at 127\.0\.0\.1:\d+: Connection refused; "
            "try `ray status` on the cluster's head, or `ray start --head` to start it",
        ),
        (
            "wrong token",
            r"the Ray cluster at 127\.0\.0\.1:\d+ wants a token, and got none "
            "or another; try RAY_AUTH_MODE=token, and the token of its head in "
            "~/.ray/auth_token, or RAY_AUTH_TOKEN_PATH set to it",
        ),
        (
            "too many",
            "50 workers with 1 CPU each are wanted, the cluster has room for 6 "
            r'\(hosts: 1, all in all {"CPU": 6.0}\); '
            "try fewer workers, or less resources_per_worker",
        ),
    ],
)
def test_a_script_ends_with_one_sentence_and_code_2(
    scripts: dict[str, Said], name: str, said: str
) -> None:
    found = scripts[name]
    assert re.fullmatch(f"error: {said}\n", found.err), found.err
    assert found.code == 2


def test_what_is_no_address_is_said_to_be_none(scripts: dict[str, Said]) -> None:
    found = scripts["no address"]
    *three, client = found.out.splitlines()
    assert [line.partition(";")[0] for line in three] == [
        f"there is no Ray cluster at {address}: an address is HOST:PORT, auto or local"
        for address in REFUSED[:3]
    ]
    assert client.startswith("workers cannot be reached over a Ray client (ray://); ")
    assert (found.code, found.err) == (0, "")


@pytest.mark.parametrize("name", ["joins", "told where"])
def test_a_cluster_that_is_there_is_joined_and_left(
    scripts: dict[str, Said], ray_cluster: Cluster, name: str
) -> None:
    found = scripts[name]
    assert found.out.split() == ["0.375", "0.375", "False"], found.err
    assert found.code == 0
    assert ray_cluster.ray.is_initialized()


@pytest.mark.parametrize(
    "name",
    ["without Ray", "nobody there", "no address", "wrong token", "too many", "joins"],
)
def test_nothing_is_left_running(scripts: dict[str, Said], name: str) -> None:
    assert scripts[name].left == []
