"""All files of one call, or none of them: prepared beside their places, then put there under a journal, or by one rename."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from meshwright.errors import InputError, Message, fault
from meshwright.outputs import disk
from meshwright.outputs.checks import Target, faults, target_of
from meshwright.outputs.journal import Entry, How, Journal, end_journal, home_of, make_stage, sweep, write_journal
from meshwright.outputs.locks import locked
from meshwright.outputs.places import unwritable
from meshwright.outputs.recovery import left_undone, recover, undo
from meshwright.outputs.stage import may, stage_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from meshwright.outputs.output import Output


def write(
    outputs: Sequence[Output], *, force: bool = False, inputs: Iterable[str] = (), wait_s: float | None = None
) -> list[str]:
    """Write files, all or none, and return their paths as they were named.

    ``force``: also over files of other content that the program did not seal. ``inputs``: files that the command has read.
    ``wait_s``: for another writer in the same folder; None: a few seconds.
    Errors:  InputError with all that is in the way, where a disk is full, or another process writes there; then nothing is changed.
    """
    with writing(outputs, force=force, inputs=inputs, wait_s=wait_s) as paths:
        return paths


@contextmanager
def writing(
    outputs: Sequence[Output], *, force: bool = False, inputs: Iterable[str] = (), wait_s: float | None = None
) -> Iterator[list[str]]:
    """``write`` in two steps: the body runs when all is on the disk and nothing is changed yet; if it fails, nothing will be."""
    with ExitStack() as held:
        targets = _locked(held, outputs, wait_s)
        found = faults(targets, inputs=inputs, force=force)
        if found:
            raise InputError(found)
        change = Change([target for target in targets if not target.is_done])
        held.callback(change.end)
        change.prepare()
        yield [output.path for output in outputs]
        change.land()


def _locked(held: ExitStack, outputs: Sequence[Output], wait_s: float | None) -> list[Target]:
    """The places of outputs, in folders that are this writer's alone and hold nothing unfinished, until ``held`` is closed."""
    while True:
        bases = {target.place.base for target in _targets(outputs)}
        changed = [message for message in recover(bases) if message.id != "file.undone"]
        if changed:
            raise InputError(changed)
        with ExitStack() as mine, _said(outputs):
            mine.enter_context(locked(bases, wait_s))
            for base in bases:
                sweep(base)
            targets = _targets(outputs)
            if {target.place.base for target in targets} == bases and not any(map(home_of, bases)):
                held.push(mine.pop_all())
                return targets


def _targets(outputs: Sequence[Output]) -> list[Target]:
    """The place and content of every output; all that is wrong with them at once."""
    targets: list[Target] = []
    found: list[Message] = []
    for output in outputs:
        try:
            targets.append(target_of(output))
        except InputError as error:
            found += error.messages
    if found:
        raise InputError({str(message): message for message in found}.values())
    return targets


@contextmanager
def _said(outputs: Sequence[Output]) -> Iterator[None]:
    """What the system refuses, as a fault of the first output."""
    try:
        yield
    except OSError as error:
        raise unwritable(outputs[0].path, error) from None


class Change:
    """One change of some files, in folders that are locked."""

    def __init__(self, targets: Sequence[Target]) -> None:
        """Nothing is done yet."""
        self._targets = targets
        self._bases = sorted({target.place.base for target in targets})
        self._made = tuple(sorted({folder for target in targets for folder in target.place.missing}, key=len))
        self._entries: list[Entry] = []
        self._at = ""

    def prepare(self) -> None:
        """Write everything beside where it will stand; on the disk when this returns.

        Errors:  InputError where there is no room, or no permission.
        """
        with self._faults():
            if self._is_tree():
                self._prepare_tree()
            else:
                for base in self._bases:
                    self._at = stage_of(base)
                    make_stage(base, self._bases[0])
                for number, target in enumerate(self._targets):
                    self._at = target.output.path
                    self._entries.append(self._prepared(number, target))
            for base in self._bases:
                disk.sync_folder(stage_of(base))
                disk.sync_folder(base)

    def land(self) -> None:
        """Put everything into its place.

        Errors:  InputError where something else stands there now, or the system refuses; then all is as it was before.
        """
        with self._faults():
            if self._is_tree():
                self._check_unchanged(self._targets[0])
                os.rename(stage_of(self._bases[0]), self._made[0])
            elif len(self._entries) == 1 and self._entries[0].how != "overwrite":
                self._land(self._entries[0], self._targets[0])
            elif self._entries:
                self._land_all()
                return
        with suppress(OSError):  # it is done; the disk will know it when it knows anything
            for base in self._bases:
                disk.sync_folder(base)

    def end(self) -> None:
        """Leave nothing behind; what is needed to put files back stays for the next start."""
        with suppress(OSError):
            for base in self._bases:
                sweep(base)

    def _is_tree(self) -> bool:
        """Whether all files are below one folder that is not there: its stage becomes the folder, by one rename."""
        tops = {target.place.missing[:1] for target in self._targets}
        return len(tops) == 1 and tops != {()}

    def _prepare_tree(self) -> None:
        top, stage = self._made[0], stage_of(self._bases[0])
        self._at = self._targets[0].output.folder
        for folder in self._made:
            os.mkdir(stage + folder.removeprefix(top))
        for target in self._targets:
            self._at = target.output.path
            place = stage + target.place.real.removeprefix(top)
            disk.create(place, target.content, executable=target.output.executable)
            if target.output.like:
                disk.dress(place, target.output.like)
        for folder in reversed(self._made):
            disk.sync_folder(stage + folder.removeprefix(top))

    def _prepared(self, number: int, target: Target) -> Entry:
        """The new content of a file, and of the old one what it takes to have it again."""
        place, output = target.place, target.output
        how: How = "create" if place.before is None else "replace"
        entry = Entry(number=number, base=place.base, place=place.real, how=how, digest=disk.digest(target.content))
        disk.create(entry.new, target.content, executable=output.executable)
        if place.before is None:
            if output.like:
                disk.dress(entry.new, output.like)
            return entry
        if disk.dress(entry.new, output.like or place.real) and place.before.st_nlink == 1:
            if len(self._targets) > 1:
                disk.keep(place.real, entry.old)
            return entry
        if not may(place.real, os.W_OK):
            raise fault("file.foreign", "belongs to somebody else and cannot be written to", path=output.path)
        disk.create(entry.old, disk.read(place.real))  # several names, or an owner that only the file itself can keep
        return Entry(number=number, base=place.base, place=place.real, how="overwrite", digest=entry.digest)

    def _land_all(self) -> None:
        """Under a journal: what stops here is undone here, and what is killed here by the next start."""
        journal = Journal(home=self._bases[0], bases=tuple(self._bases), made=self._made, entries=tuple(self._entries))
        try:
            write_journal(journal)
            for folder in self._made:
                os.mkdir(folder)
            for entry, target in zip(self._entries, self._targets, strict=True):
                self._land(entry, target)
            changed = (*self._made, *(entry.place for entry in self._entries))
            for folder in {*self._bases, *map(os.path.dirname, changed)}:
                disk.sync_folder(folder)
            end_journal(journal)
        except BaseException:
            try:
                undo(journal.home)
            except OSError as error:
                raise left_undone(journal.home, error) from None
            raise

    def _land(self, entry: Entry, target: Target) -> None:
        self._at = target.output.path
        self._check_unchanged(target)
        if entry.how == "overwrite":
            disk.overwrite(entry.place, target.content)
        else:
            os.rename(entry.new, entry.place)

    def _check_unchanged(self, target: Target) -> None:
        if not target.place.unchanged():
            raise fault("file.meanwhile", "has changed meanwhile: nothing is changed", path=target.output.path)

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """What the system refuses, as a fault of the file that it was about."""
        try:
            yield
        except OSError as error:
            raise unwritable(self._at, error) from None
