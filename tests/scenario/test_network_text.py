"""Networks in words, and the link of slots in a simulation."""

import json

import numpy as np
import pytest

from codedgrad.delays import Times
from codedgrad.errors import InvalidScenario
from codedgrad.network import Network
from codedgrad.scenario.network_text import network_of, network_table
from codedgrad.scenario.scenario import Flags, read_scenario, scenario_from_flags
from codedgrad.schemes import fractional, uncoded
from codedgrad.sim import Machine, run_events
from codedgrad.uplink import Link


def test_a_network_is_written_as_keys_and_seconds() -> None:
    found = network_of(network_table("port=0.5, latency=0.25, down=1"))
    assert found == Network(port=0.5, latency=0.25, down=1.0)
    shared = network_of(network_table("uplink=max_rate, slot=0.5, seconds=[1, 2]"))
    assert shared.link == Link("max_rate", slot=0.5, seconds=(1.0, 2.0))


@pytest.mark.parametrize(
    "text",
    [
        "", "port", "port=1, port=2", "port=a", "width=3", "slot=0.5",
        "uplink=fair", "uplink=fare, slot=1", "latency=[1, 2]", "port=-1", "port=[]",
        "uplink=fair, slot=1, seconds=[]", "uplink=fair, slot=1, V=0",
        "uplink=fair, slot=0.00001", "uplink=[fair], slot=1",
    ],
)  # fmt: skip
def test_what_is_no_network_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(InvalidScenario) as caught:
        network_of(network_table(text))
    assert len(str(caught.value).splitlines()) == 1


def test_a_scenario_has_a_network_from_its_file_and_a_flag_wins(tmp_path) -> None:
    path = tmp_path / "one.toml"
    law = '[[schemes]]\nname = "uncoded"\n[[delays]]\nkind = "shifted-exponential"\n'
    path.write_text(f"workers = 4\n{law}[machine]\nnetwork = {{port = 0.5}}\n")
    assert read_scenario(path).machine.network == Network(port=0.5)
    flags = Flags(network="latency=0.5")
    assert scenario_from_flags(flags, path).machine.network == Network(latency=0.5)
    path.write_text(f"workers = 4\n{law}[machine]\nnetwork = 3\n")
    with pytest.raises(InvalidScenario, match=r"machine\.network"):
        read_scenario(path)


def each(policy: str, scheme, sends: tuple[float, ...], **network) -> list[float]:
    """Return the seconds of two steps in which a part of each takes a second."""
    link = Link(policy, slot=0.125, seconds=sends)
    machine = Machine(drain=False, network=Network(link=link, **network))
    unit = np.full((2, scheme.workers), 1.0)
    times = Times(fixed=np.zeros_like(unit), unit=unit)
    return run_events(scheme, times, machine).seconds.tolist()


def seconds(policy: str, scheme, sends: tuple[float, ...]) -> float:
    """Of a step in which all have finished after a second."""
    return each(policy, scheme, sends)[0]


def test_messages_to_the_root_take_their_turn_in_slots() -> None:
    sends = (1.0, 1.0, 1.0, 1.0)
    for policy in ("fair", "round_robin", "max_weight"):
        took = seconds(policy, uncoded(4), sends)
        assert 5.0 <= took <= 5.5  # 1 s of work, 4 messages of 1 s, some slots' edges


def test_who_is_not_needed_need_not_have_sent() -> None:
    sends = (4.0, 0.5, 4.0, 0.5)  # one of every pair is quick
    assert seconds("max_rate", fractional(4, 1), sends) < 4.0  # 2 of work, 1 of sending
    assert seconds("max_rate", uncoded(4), sends) >= 10.0


def test_what_waits_when_a_step_ends_does_not_go_on_in_the_next() -> None:
    first, second = each("max_rate", fractional(2, 1), (2.0, 2.0))
    assert first == second
    first, second = each("max_rate", fractional(4, 1), (4.0, 0.5, 4.0, 0.5))
    assert first == second


def test_messages_are_under_way_before_they_take_their_turn() -> None:
    args = "fair", uncoded(4), (1.0, 1.0, 1.0, 1.0)
    soon, late = each(*args), each(*args, latency=0.75)
    assert late == [took + 0.75 for took in soon]


def test_the_command_line_takes_a_network_and_says_so() -> None:
    from typer.testing import CliRunner

    from codedgrad.cli import app

    schemes = ["--scheme", "uncoded", "--scheme", "coded_reduce(3, 1)"]
    words = ["simulate", *schemes, "--workers", "12"]
    words += ["--steps", "5", "--no-drain", "--network", "port=0.25, latency=0.125"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "a message keeps a port busy for 0.25 s, latency 0.125 s" in shown.output
    machine = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert machine["scenario"]["machine"]["network"]["port"] == 0.25
    wrong = CliRunner().invoke(app, [*words[:-1], "port=x"])
    assert isinstance(wrong.exception, InvalidScenario)  # which `main` says, with a 2
