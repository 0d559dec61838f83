"""A model as vectors: which of its tensors lies where.

```text
published   trainable | frozen: bytes | buffers and modes: bytes | notes | revisions
gradient    trainable
scalars     sum of losses, count, samples | metrics: (sum, count) | parameters used |
            changes of buffers
```

One vector is published a step, one comes back. Tied parameters are in it once.
Trainable numbers of a narrower type go into a wider one, and back, without a change of
a bit; whatever is not trained is of any type, and goes as bytes.

The published vector is cut into **stretches**. The trainable parameters are the first
one, and every step has new ones. The root digests the memory of all stretches, and
counts in `revisions` how often each has changed. Engines move only what has changed,
and workers load only what they do not have. The digest of the first stretch is not
needed for that: it tells later whether the model is still what was published.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from codedgrad.errors import InvalidJob
from codedgrad.torch.model.attributes import ROOM, Notes
from codedgrad.torch.model.seal import CHUNK, Piece, Seal, digest, digest_of
from codedgrad.torch.model.state import ModelState

_WIDE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_ALIGNED = 16  # bytes: the longest number, complex128
_ANY_FROZEN = -1  # in the place of a stretch: any of the frozen parameters'


class Span:
    """Some tensors, one after the other, in a stretch of a vector.

    Attributes:
        tensors: In order.
        start: Where the first one begins.
        size: Numbers in all of them.
    """

    def __init__(self, tensors: Sequence[Tensor], start: int) -> None:
        self.tensors = tensors
        self.start = start
        self.size = sum(tensor.numel() for tensor in tensors)
        self._places: list[Tensor] = []

    @property
    def end(self) -> int:
        """Where the last one ends."""
        return self.start + self.size

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the stretch of a vector of each tensor, in its shape."""
        found, at = [], self.start
        for tensor in self.tensors:
            stretch = vector[at : at + tensor.numel()]
            found.append(stretch.view(tensor.shape))
            at += tensor.numel()
        return found

    def move(self, vector: Tensor) -> None:
        """Let the tensors live in a vector from now on, where their types allow it."""
        self._places = self.views(vector)
        for tensor, place in self.pairs:
            place.copy_(tensor.detach())
            if tensor.dtype == place.dtype and tensor.device == place.device:
                tensor.data = place

    def gather(self) -> None:
        """Write into the vector what the tensors are, where they do not live there."""
        for tensor, place in self.pairs:
            if tensor.data_ptr() != place.data_ptr():
                place.copy_(tensor.detach())

    def scatter(self) -> None:
        """Set the tensors to what is in the vector, where they do not live there."""
        for tensor, place in self.pairs:
            if tensor.data_ptr() != place.data_ptr():
                tensor.detach().copy_(place)

    @property
    def abroad(self) -> list[Tensor]:
        """Tensors that do not live in the vector, because of type or device."""
        return [t for t, place in self.pairs if t.data_ptr() != place.data_ptr()]

    @property
    def pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Every tensor with its place in the vector."""
        return zip(self.tensors, self._places, strict=True)


class Frozen(Span):
    """Some tensors as bytes, one after the other, each in its own type.

    Attributes:
        start: The byte where the first one begins.
        size: Bytes of all of them, with the gaps that let every number be aligned.
    """

    def __init__(self, tensors: Sequence[Tensor], start: int) -> None:
        super().__init__(tensors, start)
        self.size = sum(_aligned(t.numel() * t.itemsize) for t in tensors)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the bytes of a vector of each tensor, in its type and shape."""
        found, at, raw = [], self.start, vector.view(torch.uint8)
        for tensor in self.tensors:
            length = tensor.numel() * tensor.itemsize
            found.append(raw[at : at + length].view(tensor.dtype).view(tensor.shape))
            at += _aligned(length)
        return found


class Flat:
    """The vectors of a model, which lives in one of them from now on.

    Args:
        model: Whose parameters and buffers.
        rules: What becomes of buffers that a forward pass changes; see `state`.

    Attributes:
        trainable: Parameters that have a gradient.
        frozen: Parameters that have none.
        state: Buffers and training modes.
        notes: Plain attributes of modules, and knobs.
        dtype: Of the published vector, of gradients and of messages: float64 if any
            trainable parameter is, else float32.
        vector: What is published, (numbers,).

    Example:
        >>> flat = Flat(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)))
        >>> flat.trainable.size, flat.state.carried  # mean, variance, and a count
        (12, 8)
    """

    def __init__(
        self, model: nn.Module, rules: Mapping[str, str] | None = None
    ) -> None:
        refuse(model)
        named = dict(model.named_parameters())
        self._names = {id(parameter): name for name, parameter in named.items()}
        trainable = [p for p in named.values() if p.requires_grad]
        frozen = [p for p in named.values() if not p.requires_grad]
        self.dtype = _wide(trainable)
        item = self.dtype.itemsize
        self.trainable = Span(trainable, 0)
        self.frozen = Frozen(frozen, _aligned(self.trainable.end * item))
        self.state = ModelState(model, self.frozen.end, self.trainable.size, rules)
        self.notes = Notes(model)
        notes = self.state.end, self.state.end + ROOM
        chunks = _cut(self.frozen.start, self.frozen.end)
        buffers = self.state.stretches
        self._bounds = [(0, self.frozen.start), *chunks, *buffers, notes]
        self._buffers = range(1 + len(chunks), 1 + len(chunks) + len(buffers))
        self._table = slice(notes[1], notes[1] + 8 * len(self._bounds))
        self.vector = torch.zeros(-(-self._table.stop // item), dtype=self.dtype)
        raw = self.vector.view(torch.uint8)
        self._raw: NDArray[np.uint8] = raw.numpy()
        self._notes = raw[slice(*notes)]
        self._digests: list[int | None] = [None] * len(self._bounds)
        self._is_gathered = False
        self._loaded = np.full(len(self._bounds), -1)  # revisions
        self.trainable.move(self.vector)
        self.frozen.move(self.vector)
        self.state.settle(self.vector)
        self._seal = self._make_seal()

    # -- at the root -----------------------------------------------------------------

    def gather(self) -> list[tuple[int, int]]:
        """Write into the vector what the model is now.

        Returns:
            The (first, last + 1) numbers of stretches that may differ from what they
            were after the call before, ascending; the first time, of everything.
        """
        try:
            return self._gather()
        except BaseException:
            # Some digests may be noted already, of what was not published: without
            # this, what they are digests of would be taken for published.
            self.lose_track()
            raise

    def _gather(self) -> list[tuple[int, int]]:
        self.trainable.gather()
        self.frozen.gather()
        changed = {0, *(self._buffers[number] for number in self.state.gather())}
        self.notes.gather(self._notes)
        for number, (start, end) in enumerate(self._bounds):
            if number in self._buffers[1:]:
                continue  # digested where it lives
            now = digest(self._raw[start:end])
            if now != self._digests[number]:
                self._digests[number] = now
                changed.add(number)
        self._revisions(self._raw)[sorted(changed)] += 1
        if not self._is_gathered:
            self._is_gathered = True
            return [(0, len(self.vector))]
        found = [self._bounds[number] for number in sorted(changed)]
        found.append((self._table.start, self._raw.size))
        item = self.dtype.itemsize
        return [(start // item, end // item) for start, end in _joined(found)]

    def has_changed(self) -> bool:
        """Whether a parameter is not what was published, whatever has changed it."""
        for span in (self.trainable, self.frozen):
            for tensor, place in span.pairs:
                is_abroad = tensor.data_ptr() != place.data_ptr()
                if is_abroad and not torch.equal(tensor.detach().to(place), place):
                    return True
        bounds = self._bounds[: self._buffers.start]
        now = [digest(self._raw[start:end]) for start, end in bounds]
        return now != self._digests[: self._buffers.start]

    def lose_track(self) -> None:
        """Let `gather` return everything the next time: publishing has failed."""
        self._is_gathered = False
        self._digests = [None] * len(self._bounds)
        self.state.lose_track()

    def _revisions(self, raw: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return how often each stretch of a published vector has changed."""
        return raw[self._table].view(np.int64)

    # -- in a worker -----------------------------------------------------------------

    def load(self, published: NDArray[Any]) -> None:
        """Let the model be what was published; what it has already is not read.

        Copied, not viewed: through a view, a forward pass that writes to a parameter
        would write to every worker's, or crash where the memory is mapped to read.

        Args:
            published: (numbers,); must stay as it is until the next call.
        """
        theirs = published.view(np.uint8)
        revisions = self._revisions(theirs)
        stale = np.flatnonzero(revisions != self._loaded).tolist()
        for number in stale:
            stretch = slice(*self._bounds[number])
            np.copyto(self._raw[stretch], theirs[stretch])
        self.trainable.scatter()
        if any(0 < number < self._buffers.start for number in stale):
            self.frozen.scatter()
            stale.append(_ANY_FROZEN)
        self.state.scatter({n - self._buffers.start for n in stale})
        if self._buffers.stop in stale:
            self.notes.scatter(self._notes)
        self._loaded[:] = revisions
        self._theirs = theirs
        self._seal.close({piece for n in stale for piece in self._pieces.get(n, ())})

    def forget(self) -> None:
        """Load everything the next time: a part has failed halfway."""
        self._loaded[:] = -1

    def check(self, seconds: float, is_first: bool) -> None:
        """Raise if a forward or backward pass has changed what must stay as it is.

        Args:
            seconds: What the part took; how much is looked at depends on it.
            is_first: Whether it was the first one since `load`.
        """
        error = self._seal.check(seconds)
        is_moved = is_first and self._abroad_ids() != self._known_abroad
        if error is None and is_moved:
            error = self._changed(0, self._raw.size)
        if error is not None:
            raise error

    def put_back(self) -> None:
        """Undo what a forward pass changed: every part starts from the root's."""
        self.state.put_back()
        self.notes.put_back()

    def _abroad_ids(self) -> list[int]:
        return [id(t) for span in (self.trainable, self.frozen) for t in span.abroad]

    def _make_seal(self) -> Seal:
        """Seal all that workers compute with, and note which stretch it comes from."""
        self._known_abroad = self._abroad_ids()
        pieces: list[Piece] = []
        self._pieces: dict[int, list[int]] = {}  # by stretch

        def add(stretch: int, piece: Piece) -> None:
            self._pieces.setdefault(stretch, []).append(len(pieces))
            pieces.append(piece)

        for number, bounds in enumerate(self._bounds[: self._buffers.start]):
            for start, end in _cut(*bounds):
                memory = self._raw[start:end]
                error = partial(self._changed, start, end)
                add(number, Piece(error, partial(digest, memory), end - start))
        for tensor in (*self.trainable.abroad, *self.frozen.abroad):
            error = partial(_refused, self._names[id(tensor)])
            size = tensor.numel() * tensor.itemsize
            piece = Piece(error, partial(digest_of, tensor), size)
            add(0 if tensor.requires_grad else _ANY_FROZEN, piece)
        for number, piece in self.state.pieces():
            add(self._buffers[number], piece)
        return Seal(pieces)

    def _changed(self, start: int, end: int) -> InvalidJob:
        """Name the parameter that is not what was published, among some bytes."""
        raw, item = self._raw.ctypes.data, self.dtype.itemsize
        for span, each in ((self.trainable, item), (self.frozen, 0)):
            for tensor, place in span.pairs:
                first = place.data_ptr() - raw
                last = first + tensor.numel() * (each or tensor.itemsize)
                if first < end and last > start:
                    there = self._theirs[first:last]
                    same = digest(self._raw[first:last]) == digest(there)
                    if not same or tensor.data_ptr() != place.data_ptr():
                        return _refused(self._names[id(tensor)])
        return _refused("of the model")  # set back in the meantime


def _refused(name: str) -> InvalidJob:
    problem = f"changes the parameter {name}, as nn.Embedding(max_norm=...) does"
    advice = "to do that at the root, after optimizer.step()"
    return InvalidJob("the forward pass", problem, advice)


def _aligned(byte: int) -> int:
    return -(-byte // _ALIGNED) * _ALIGNED


def _cut(start: int, end: int) -> list[tuple[int, int]]:
    """Cut a stretch of bytes into chunks."""
    return [(at, min(at + CHUNK, end)) for at in range(start, end, CHUNK)]


def _joined(stretches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Make one stretch of those that follow each other without a gap."""
    found: list[tuple[int, int]] = []
    for start, end in stretches:
        if found and found[-1][1] == start:
            start = found.pop()[0]
        found.append((start, end))
    return found


def _wide(tensors: Sequence[Tensor]) -> torch.dtype:
    has_double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if has_double else torch.float32


def refuse(model: nn.Module) -> None:
    """Raise if there is something in a model that cannot be published or sent."""
    if not any(p.requires_grad for p in model.parameters()):
        problem = "has no parameter with requires_grad"
        raise InvalidJob("the model", problem, "one to train")
    for name, parameter in model.named_parameters():
        _refuse_lazy(f"the parameter {name}", parameter)
        if parameter.dtype not in _WIDE:
            problem = f"is of type {parameter.dtype}"
            advice = "real parameters of 16, 32 or 64 bits"
            raise InvalidJob(f"the parameter {name}", problem, advice)
    for name, buffer in model.named_buffers():
        _refuse_lazy(f"the buffer {name}", buffer)
        if buffer.requires_grad:
            advice = "an nn.Parameter, if it is to be trained"
            raise InvalidJob(f"the buffer {name}", "has requires_grad", advice)
    for name, module in model.named_modules():
        _refuse_sparse(f"the layer {name or 'that is the model'}", module)
    _refuse_overlaps(model)


def _refuse_lazy(name: str, tensor: Tensor) -> None:
    if nn.parameter.is_lazy(tensor):
        advice = "a forward pass in the job, after which it has a shape"
        raise InvalidJob(name, "is lazy: it has no shape yet", advice)


def _refuse_sparse(name: str, module: nn.Module) -> None:
    if getattr(module, "sparse", False) is True:
        problem = f"({type(module).__name__}) makes sparse gradients"
        raise InvalidJob(name, problem, "sparse=False; messages are dense")


def _refuse_overlaps(model: nn.Module) -> None:
    """Refuse tensors in one memory: parameters would be separate from now on."""
    found = []
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.numel():
            reach = sum(
                (n - 1) * step
                for n, step in zip(tensor.shape, tensor.stride(), strict=True)
            )
            first = tensor.data_ptr()
            last = first + (reach + 1) * tensor.itemsize
            found.append((tensor.device, first, last, name, tensor))
    found.sort(key=lambda place: (str(place[0]), place[1], place[2]))
    for before, after in pairwise(found):
        same = before[0] == after[0] and after[1] < before[2]
        if same and any(isinstance(p[4], nn.Parameter) for p in (before, after)):
            problem = f"shares the memory of {before[3]}, and is not the same tensor"
            advice = "one nn.Parameter in both places"
            raise InvalidJob(f"the tensor {after[3]}", problem, advice)
