"""What a job sees of the script: arguments, environment, folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import argparse, json, os, signal, sys
from pathlib import Path
import torch
from torch import nn
import codedgrad as cg
from codedgrad.engines import Local

def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("folder", type=os.fsencode)
    return parser.parse_args()

def job():
    args = arguments()
    seen = {
        "argv": [os.fsencode(a).hex() for a in sys.argv],
        "colour": os.environ.get("COLOUR"),
        "set": os.environ.get("SET_BY_THE_SCRIPT"),
        "folder": os.getcwd(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
    path = Path(os.fsdecode(args.folder), str(os.getpid()))
    path.write_text(json.dumps(seen))
    x = torch.ones(8, 1)
    net = nn.Sequential(nn.Linear(1, args.hidden), nn.Linear(args.hidden, 1))
    return cg.torch.Job(net, nn.MSELoss(), (x, x))

os.environ["SET_BY_THE_SCRIPT"] = "before"
engine = Local()
with cg.torch.train(job, workers=2, scheme="uncoded", engine=engine) as coded:
    coded.backward()
    os.environ["SET_BY_THE_SCRIPT"] = "after"
    nursery = engine.nursery
    os.kill(nursery, signal.SIGKILL)
    folder = arguments().folder
    while engine.nursery == nursery or len(os.listdir(folder)) < 5:
        coded.backward()  # until the root has heard of it, and has workers again
print(os.getpid())
"""


@pytest.mark.long  # PyTorch is imported three times
def test_argparse_in_a_job_reads_the_arguments_of_the_script(tmp_path: Path) -> None:
    script, odd = tmp_path / "train.py", os.fsencode(tmp_path) + b"/seen-\xff"
    script.write_text(SCRIPT)
    os.mkdir(odd)
    command = [sys.executable, "train.py", "--hidden", "5", odd]
    environment = {**os.environ, "COLOUR": "red", "OMP_NUM_THREADS": "3"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    root = int(done.stdout)
    seen = {
        int(name): json.loads(Path(os.fsdecode(odd), os.fsdecode(name)).read_text())
        for name in os.listdir(odd)
    }
    assert len(seen) >= 5  # the root, two workers, and two after the nursery's death
    wanted = {
        "argv": [part.hex() for part in (b"train.py", b"--hidden", b"5", odd)],
        "colour": "red",
        "set": "before",  # when `train` was called, for those who came later too
        "folder": str(tmp_path),
    }
    for pid, found in seen.items():
        assert found.pop("threads") == ("3" if pid == root else "1")
        assert found == wanted
