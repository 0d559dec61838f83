"""Ray on nine hosts, as they come and go where hosts are cheap: is a step ever lost?

Eight workers train, each in a host of its own that has room for no second one. The
link of one is cut for a moment. Then a host is killed, with all that runs in it, and
another is cut off for so long that it is given up. Both come back in the end.

Either of two workers can stand in for the other, and those that are hit stand in for
others than each other. So every step can be finished, and every sum has to be right.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from driver_lines import DriverLines, Line
from hosts import Host, Lab, LabFailed
from ray_hosts import Cluster, ray_cluster
from writing import Table, figure, save, table

DRIVER = Path(__file__).with_name("training.py")
PATIENCE = 200.0  # seconds for anything that is waited for
LONGEST = 5.0  # seconds of a step: less than it takes to notice a cut
OFF = 1e-9  # of a sum, relative to it
MOMENT = "cut for a moment"  # so short that nobody need be lost


@dataclass(frozen=True)
class Setting:
    """How large a lab, and when what happens in it.

    Attributes:
        hosts: One of them has the root, the others a worker each.
        steps: Between one event and the next.
        moment: Seconds of the first cut.
        away: Seconds of the second one before the killed host is started again.
    """

    hosts: int = 9
    rate: str = "100mbit"
    steps: int = 50
    moment: float = 10.0
    away: float = 20.0


@dataclass
class Fault:
    """Something that was done to a host; all times on the clock of `monotonic`.

    Attributes:
        worker: Who was there.
        at: When it was done.
        fired: Whether it can be seen that it was.
        lost: When the root was told that the worker is gone.
        back: When it was undone.
        heard: When the worker was first heard after that; if lost, as another process.
        where: In which host.
        sent: Bytes that had come from the host when it was cut off.
    """

    name: str
    host: Host
    worker: int
    at: float = 0.0
    fired: bool = False
    lost: float | None = None
    back: float | None = None
    heard: float | None = None
    where: str = ""
    sent: int = 0


@dataclass
class Story:
    """What was done, and what the driver said.

    Attributes:
        marks: Beginnings of stretches of time, in order; the last is the end.
        code: The driver's exit code.
        last: What it said about errors, at the end.
    """

    said: DriverLines
    faults: list[Fault] = field(default_factory=list)
    marks: list[tuple[float, str]] = field(default_factory=list)
    code: int | None = None
    last: str = ""

    def mark(self, name: str) -> float:
        now = time.monotonic()
        self.marks.append((now, name))
        return now


def measure(setting: Setting) -> Story:
    """Build the lab, let it train, and do all that to it."""
    with (
        Lab(setting.hosts, setting.rate) as lab,
        ray_cluster(lab, head_cpus=0) as cluster,
    ):
        errors = lab.folder / "driver.txt"
        words = [sys.executable, str(DRIVER), "--engine", "ray"]
        words += ["--workers", str(setting.hosts - 1)]
        with errors.open("w") as file:
            driver = cluster.popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
            )
        story = Story(DriverLines(driver.stdout, PATIENCE))
        try:
            happen(story, cluster, setting)
            with contextlib.suppress(BrokenPipeError):  # it has ended already
                driver.stdin.write("end\n")
                driver.stdin.close()
            story.said.wait(lambda line: line["what"] == "ended")
            story.code = driver.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pass  # it has no exit code, then
        finally:
            driver.kill()
            driver.wait()
            story.last = errors.read_text()
    return story


def happen(story: Story, cluster: Cluster, setting: Setting) -> None:
    """Do everything, in turn."""
    said, lab = story.said, cluster.lab
    started = said.wait(lambda line: line["what"] == "started")
    said.go_on(setting.steps)
    if started is None or not said.steps():
        return
    where, parts = said.steps()[-1]["where"], started["parts"]
    one = 0
    other = max(w for w, mine in enumerate(parts) if not set(mine) & set(parts[one]))
    if len(set(where)) < len(where) or "h0" in where:
        raise LabFailed(f"workers are in {where}", "look why Ray has put them there")
    story.marks.append((started["at"], "all are there"))

    blink = Fault(MOMENT, lab[where[other]], other)
    cut_off(story, blink)
    time.sleep(setting.moment)
    mend(story, blink)
    said.go_on(setting.steps)

    killed = Fault("killed", lab[where[one]], one)
    kill(story, killed)
    said.wait(is_lost(killed), killed.at)
    said.go_on(setting.steps)

    cut = Fault("cut off", lab[where[other]], other)
    cut_off(story, cut)
    time.sleep(setting.away)
    killed.back = story.mark(f"{killed.host.name} started")
    cluster.start(killed.host)
    said.wait(is_heard(killed, said), killed.back)
    story.mark("heard again")
    said.wait(is_lost(cut), cut.at)
    said.go_on(setting.steps)

    mend(story, cut)
    cluster.start(cut.host)
    said.wait(is_heard(cut, said), cut.back)
    story.mark("all are there again")
    said.go_on(setting.steps)
    story.mark("")


def kill(story: Story, fault: Fault) -> None:
    """End all processes of a host."""
    before = fault.host.pids()
    fault.at = story.mark(f"{fault.host.name} killed")
    fault.host.kill_all()
    fault.fired = bool(before) and not fault.host.pids()
    story.faults.append(fault)


def cut_off(story: Story, fault: Fault) -> None:
    """Let nothing come from a host any more."""
    fault.at = story.mark(f"{fault.host.name} {fault.name}")
    fault.host.cut()
    fault.sent = fault.host.sent_bytes()
    story.faults.append(fault)


def mend(story: Story, fault: Fault) -> None:
    """See that nothing has come from a host, and let it come."""
    fault.fired = 0 < fault.host.sent_bytes() == fault.sent
    fault.back = story.mark(f"{fault.host.name} mended")
    fault.host.mend()


def is_lost(fault: Fault) -> Callable[[Line], bool]:
    return lambda line: line["what"] == "lost" and fault.worker in line["workers"]


def is_heard(fault: Fault, said: DriverLines) -> Callable[[Line], bool]:
    """Return what tells whether a worker is heard as another process than before."""
    lives = said.steps(until=fault.at)[-1]["lives"][fault.worker]

    def is_so(line: Line) -> bool:
        if line["what"] != "step" or fault.worker not in line["heard"]:
            return False
        return bool(line["lives"][fault.worker] > lives)

    return is_so


def main(quick: bool, out: Path) -> list[str]:
    """Measure, print, write; return what was missed."""
    setting = Setting(hosts=5, steps=20, moment=5.0, away=5.0) if quick else Setting()
    print(f"{setting.hosts - 1} workers on Ray, a host each, {setting.rate}")
    story = measure(setting)
    for fault in story.faults:
        find(story.said, fault)
    stretches = list(zip(story.marks, story.marks[1:], strict=False))
    print(table(shown_faults(story.faults)))
    print()
    print(table(shown_stretches(story.said, stretches)))
    missed = [*judged_faults(story), *judged_steps(story, stretches)]
    if story.said.steps():
        draw(out / "lab-spot", story)
    return missed


def find(said: DriverLines, fault: Fault) -> None:
    """Find in what was said what became of a fault."""
    over = fault.back if fault.name == MOMENT else None
    until = float("inf") if over is None else over
    lost = [x for x in said.lines if is_lost(fault)(x) and fault.at < x["at"] < until]
    fault.lost = lost[0]["at"] if lost else None
    again = is_heard(fault, said) if lost else lambda x: fault.worker in x["heard"]
    heard = [x for x in said.steps(fault.back or fault.at) if again(x)]
    if heard:
        fault.heard = heard[0]["at"]
        fault.where = heard[0]["where"][fault.worker]


def shown_faults(faults: list[Fault]) -> Table:
    head = (
        "what",
        "host",
        "worker",
        "noticed [s]",
        "away [s]",
        "heard again [s]",
        "in",
    )
    shown = Table(head, [])
    for fault in faults:
        shown.rows.append(
            (fault.name, fault.host.name, str(fault.worker),
             apart(fault.at, fault.lost), apart(fault.at, fault.back),
             apart(fault.back, fault.heard), fault.where or "-")
        )  # fmt: skip
    return shown


def apart(since: float | None, until: float | None) -> str:
    return "-" if since is None or until is None else f"{until - since:.1f}"


Stretches = list[tuple[tuple[float, str], tuple[float, str]]]


def shown_stretches(said: DriverLines, stretches: Stretches) -> Table:
    head = ("from", "seconds", "steps", "a second", "median [s]", "longest [s]")
    shown = Table(head, [])
    for (since, name), (until, _) in stretches:
        steps = said.steps(since, until)
        took = [step["seconds"] for step in steps] or [float("nan")]
        each = len(steps) / (until - since)
        shown.rows.append(
            (name, f"{until - since:.1f}", str(len(steps)), f"{each:.1f}",
             f"{median(took):.3f}", f"{max(took):.3f}")
        )  # fmt: skip
    return shown


def judged_faults(story: Story) -> list[str]:
    """Return what went wrong with faults."""
    missed = []
    if len(story.faults) < 3:
        missed.append(f"only {len(story.faults)} of 3 faults were done")
    for fault in story.faults:
        named = f"{fault.host.name} {fault.name}"
        if not fault.fired:
            missed.append(f"{named}: it cannot be seen that it was")
        if fault.lost is None and fault.name != MOMENT:
            missed.append(f"{named}: nobody noticed")
        if fault.heard is None:
            missed.append(f"{named}: worker {fault.worker} is not heard again")
    return missed


def judged_steps(story: Story, stretches: Stretches) -> list[str]:
    """Return what went wrong with steps."""
    missed, said = [], story.said
    steps = said.steps()
    if [step["step"] for step in steps] != list(range(len(steps))):
        missed.append("steps are missing")
    for (since, name), (until, _) in stretches:
        if not said.steps(since, until):
            missed.append(f"no step was done from: {name}")
    longest = max((step["seconds"] for step in steps), default=0.0)
    if longest > LONGEST:
        missed.append(f"a step took {longest:.1f} s")
    ended = [line for line in said.lines if line["what"] == "ended"]
    if not ended or story.code != 0:
        last = " ".join(story.last.split()[-60:])
        return [*missed, f"the driver has not ended well ({story.code}): {last}"]
    end = ended[0]
    print(
        f"\n{end['steps']} steps, the longest {longest:.2f} s; worst sum off by "
        f"{end['worst']:.0e}, parameters by {end['apart']:.0e}"
    )
    if end["steps"] != len(steps) or max(end["worst"], end["apart"]) > OFF:
        missed.append("sums are wrong")
    return missed


def draw(path: Path, story: Story) -> None:
    """Write a row for every step, and a figure of how long they took."""
    steps = story.said.steps()
    begun = steps[0]["at"]
    rows = []
    for step in steps:
        row = {"at": round(step["at"] - begun, 3), "step": step["step"]}
        row |= {"seconds": step["seconds"], "heard": " ".join(map(str, step["heard"]))}
        rows.append(row | {"there": sum(bool(host) for host in step["where"])})
    save(path.with_suffix(".csv"), rows)
    _, fig, axes = figure(8.0, 3.6)
    axes.plot([r["at"] for r in rows], [r["seconds"] for r in rows], ".", ms=3)
    top = 1.6 * max(row["seconds"] for row in rows)  # room for what is written there
    axes.set_ylim(0.0, top)
    for at, name in story.marks[1:-1]:
        axes.axvline(at - begun, color="#999999", lw=0.8)
        axes.text(at - begun, top, f" {name}", rotation=90, va="top", fontsize=7)
    axes.set_xlabel("seconds")
    axes.set_ylabel("seconds of a step")
    fig.savefig(path.with_suffix(".png"), dpi=120)
