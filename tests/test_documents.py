"""What the documents show is run, and what they point at exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted(p for p in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(path, marks=pytest.mark.long) if path.name == "torch.md" else path
        for path in DOCUMENTS
    ],
    ids=lambda path: path.name,
)
def test_python_in_a_document_runs(
    document: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """What it prints is in a comment behind `print`, or in the text block below.

    A block whose first line is `# NAME.py` is that file, for later blocks to import.
    """
    monkeypatch.chdir(tmp_path)  # where it may write
    monkeypatch.syspath_prepend(tmp_path)
    shape = r"```python\n(.*?)```(?:\n+```text\n(.*?)```)?"
    for block, below in re.findall(shape, document.read_text(), re.DOTALL):
        if file := re.match(r"# (\w+\.py)\n", block):
            Path(file[1]).write_text(block)
        exec(compile(block, document.name, "exec"), {})
        promised = re.findall(r"^print\(.*#\s*(.*)$", block, re.MULTILINE)
        printed = capsys.readouterr().out.splitlines()
        assert printed == promised + below.splitlines()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_of_a_document_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target
