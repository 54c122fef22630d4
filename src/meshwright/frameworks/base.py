"""What a framework is to Meshwright: what it can express, what it refuses, and how its files are written, read and judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from meshwright.documents.quoting import require_text
from meshwright.documents.source import File, Source
from meshwright.domain.kernels import running
from meshwright.domain.layout import Mixed, NoRecompute, overlapping
from meshwright.errors import InputError, Message, fault
from meshwright.frameworks.actions import actions_of
from meshwright.frameworks.facts import PLAIN, Facts
from meshwright.frameworks.launching import SILENT, Told, read_launch, told_of
from meshwright.frameworks.parts import lacking
from meshwright.frameworks.resume import SHARDED, Meaning
from meshwright.frameworks.settings import NOTHING_GIVEN, TASK_VARIABLE, Finding, Given, Reading, Said, Severity
from meshwright.frameworks.surface import Surface
from meshwright.value import Value

if TYPE_CHECKING:
    from meshwright.domain.case import Case
    from meshwright.domain.estimate import Estimate
    from meshwright.domain.features import Features
    from meshwright.domain.layout import Layout, Overlap
    from meshwright.domain.model import Model

__all__ = ["DEFAULTS", "Check", "File", "Framework", "Limit", "Noticed", "Options", "Values"]

Noticed = Literal["parse", "start", "step", "never"]
"""When the framework itself notices: reading its arguments, building its groups, in the first step, or not at all."""
Values = Mapping[str, object]


class Options(Struct, frozen=True, kw_only=True):
    """What an export may add to a layout; the layout alone is enough."""

    estimate: Estimate | None = None
    """Predicted figures, quoted in the files."""
    label: str = ""
    """Name of the plan, for comments and job names."""
    train_iters: int | None = None
    """Optimizer steps; None: what the tokens of the training ask for, or a short run."""
    is_probe: bool = False
    """Whether it is the smaller run beside another plan: it explains no further probe and keeps nothing."""
    launch: Told = SILENT
    """How the files say the settings of the launch; ``Framework.write`` fills it in."""


DEFAULTS = Options()


class Limit(Struct, frozen=True, kw_only=True):
    """One validity rule of a framework: an identifier, its own words, and the values where it is broken.

    ``words`` is the framework's message with its values in braces; ``broken`` gives those values, or None where the
    rule holds.
    """

    id: str
    words: str
    noticed: Noticed
    broken: Callable[[Case, Layout], Values | None]
    path: str = "layout"
    """What the message is about: layout, model, training or cluster."""

    def check(self, case: Case, layout: Layout) -> Message | None:
        """The message that the framework would give, or None."""
        values = self.broken(case, layout)
        return None if values is None else Message(self.id, self.words, values, path=self.path)


class Check(Struct, frozen=True, kw_only=True):
    """A rule about files: what a framework takes although it is wrong, what the launch lacks, what contradicts itself.

    ``find`` gives the values of the words for each place where the rule is broken; ``value`` and ``expected`` among them
    become those of the finding, ``path`` its place.
    """

    id: str
    words: str
    severity: Severity
    source: str
    find: Callable[[Reading, Case | None], Iterable[Values]]

    def findings(self, reading: Reading, case: Case | None) -> Iterator[Finding]:
        """The rule's findings for files, and for the case that they are to train where it is known."""
        for values in self.find(reading, case):
            message = Message(self.id, self.words, values, path=str(values.get("path", "")))
            yield Finding(
                message=message, severity=self.severity, value=values.get("value"), expected=values.get("expected"),
                source=self.source,
            )


_FLAG = re.compile(r"--[a-z0-9-]+")


def _refuses_unknown(key: str) -> tuple[Severity, str] | None:
    """A framework that stops at a key that it does not know."""
    return "error", "unknown key {key}"


def _adds_nothing(source: Source) -> str:
    """A framework whose keys are all in its table."""
    return ""


def _lacks_nothing(source: Source) -> Message | None:
    """A framework whose programs decide nothing that its files leave open."""
    return None


def _having(word: str, value: object) -> tuple[str, ...]:
    """Frameworks whose files can choose a kernel."""
    from meshwright.frameworks import framework, frameworks

    known = {name: framework(name).features for name in frameworks()}
    return tuple(name for name, each in known.items() if (each.compiles if word == "compile" else value in each.attentions))


def _never_stays(reading: Reading, layout: Layout, key: str) -> bool:
    return False


def _as_it_is(case: Case, layout: Layout) -> Layout:
    """A framework that can say everything."""
    return layout


class Framework(Value, frozen=True, kw_only=True):
    """A training framework at one of its releases: what it can run, what it refuses, how it is written and read."""

    name: str
    title: str
    features: Features
    implementation: str
    """Name of the implementation in the catalogue whose kernels and buffers it runs with."""
    aliases: tuple[str, ...] = ()
    version: str = ""
    """The release that features, limits and files are for."""
    releases: tuple[str, ...] = ()
    """Releases with a surface of their own, oldest first; other spellings go through ``spellings``."""
    spellings: Callable[[str], str | None] | None = None
    """A release from what users write (``0.16.1`` -> ``0.16``); None: the longest release that the text begins with."""
    variant: Callable[[str], Framework] | None = None
    """This framework at another release."""
    narrowed: Callable[[Case], Features] | None = None
    """The features that are left for a case, where a model can only be trained in some of the framework's ways."""
    limits: tuple[Limit, ...] = ()
    writer: Callable[[Case, Layout, str, Options], tuple[File, ...]] | None = None
    """Launch files of a layout at a release."""
    surface: Callable[[], Surface] | None = None
    decide: Callable[[Case, Layout, str], Values] | None = None
    """Key -> value of all settings that express a layout at a release; what is off is absent. The inverse of ``interpreter``."""
    opener: Callable[[Sequence[File]], Source] | None = None
    """Files as a source, where they need more than their own language; None: ``documents.opening.open_source``."""
    chosen: Callable[[str, Model | None], str | None] | None = None
    """The release that words of a layout and a model ask for, where the user names none: back ends that are releases."""
    detect: Callable[[Source], str | None] | None = None
    """The release that files are written for, where they show it."""
    interpreter: Callable[[Source, Given, str], Reading] | None = None
    logged: Callable[[Mapping[str, str], str], tuple[File, ...]] | None = None
    """A log's own dump of its arguments, and the name of the log, as files of the framework; none where the dump is of another
    program."""
    checks: tuple[Check, ...] = ()
    unknown_keys: Callable[[str], tuple[Severity, str] | None] = _refuses_unknown
    """What the framework does with a key that it does not know: severity and its words, None where extra keys are its own."""
    forks: Callable[[], Mapping[str, str]] = dict
    """Keys that the framework does not know -> whose fork of it does."""
    adds_keys: Callable[[Source], str] = _adds_nothing
    """The program or module of the files that may add keys of its own to the framework's; empty where none does."""
    config_keys: tuple[str, ...] = ()
    """Keys and options of a launcher that name the file in which the layout stands: without it there is none."""
    lacks_program: Callable[[Source], Message | None] = _lacks_nothing
    """What to give, where a launch starts a program that is not there and holds what its words leave open: recipe and task."""
    normal: Callable[[Case, Layout], Layout] = _as_it_is
    """The layout that ``read(write(layout))`` gives: what no key says takes the value that the framework always has."""
    unspoken: tuple[str, ...] = ()
    """What has no key and is therefore lost between writing and reading, in words."""
    alternatives: tuple[frozenset[str], ...] = ()
    """Keys that say the same thing: setting one takes the others out."""
    stays: Callable[[Reading, Layout, str], bool] = _never_stays
    """Whether the files' own value of a key says another layout as well: it is not what would be written, and need not change."""
    followers: frozenset[str] = frozenset()
    """Keys that follow another one where the user's file makes them its alias, and are to change with it."""
    resume: Mapping[str, Meaning] = field(default_factory=lambda: SHARDED)
    """What changing a knob means for a run that resumes."""
    facts: Facts = PLAIN
    """What else is known of it: ranks, allocator, remedies, guides, packing."""

    @property
    def actions(self) -> Mapping[str, str]:
        """Action that helps a slow run -> this framework's keys for it; an empty text where it has no way to do it.

        Flags that its surface does not have are those of a framework that it is like, and left out.
        """
        known = self.surface().keys if self.surface is not None else {}
        said = self.facts.actions or actions_of(self.name)
        return {action: keys for action, keys in said.items() if not known or all(flag in known for flag in _FLAG.findall(keys))}

    def release(self, version: str | None) -> str:
        """One of ``releases`` from what a user wrote; None is this one's.

        Errors: ``InputError`` for a version that is not known.
        """
        if version is None or version == self.version:
            return self.version
        wanted = version.strip()
        if not wanted:
            raise fault("framework.no-version", "no release of {title} stands behind the @; known: {known}", title=self.title,
                        known=self.releases or (self.version,))
        if self.spellings is not None:
            found = self.spellings(wanted)
        else:
            starts = [release for release in self.releases if wanted.lower().removeprefix("v").startswith(release.lower())]
            found = max(starts, key=len, default=None)
        if found is None:
            raise fault(
                "framework.version", "{title} {version!r} is unknown; known: {known}",
                title=self.title, version=version, known=self.releases or (self.version,),
            )
        return found

    def at(self, version: str | None) -> Framework:
        """The framework at a release; None is this one."""
        release = self.release(version)
        if release == self.version:
            return self
        return self.variant(release) if self.variant is not None else replace(self, version=release)

    def asked_for(self, words: str, model: Model | None) -> Framework:
        """The framework at the release that words of a layout and a model ask for; this one where they ask for none."""
        return self if self.chosen is None else self.at(self.chosen(words, model))

    def for_case(self, case: Case) -> Framework:
        """The framework with the features that are left for a case."""
        return self if self.narrowed is None else replace(self, features=self.narrowed(case))

    def overlap(self, case: Case, layout: Layout) -> Overlap:
        """What runs beside compute: the framework's word where a layout has something to overlap, else the layout's own."""
        said, heard = self.normal(case, layout).overlap, overlapping(layout, experts=case.model.is_moe)
        return replace(layout.overlap, **{name: getattr(said, name) for name in heard})

    def check(self, case: Case, layout: Layout) -> tuple[Message, ...]:
        """Every rule of the framework that the layout breaks, in the order of ``limits``."""
        if (without := lacking(self.name, self.title, self.version, self.releases, case.model)) is not None:
            return (without,)
        if (lacks := self.lacks_kernel(layout)) is not None:
            return (lacks,)
        case = running(case, layout)
        able = self.features.recompute_mixed or self.features.recompute_mixed_first
        if isinstance(layout.recompute, Mixed) and not able:
            said = Message(f"{self.name}.recompute-mixed", "{title} has no key for layers of one pipeline that are recomputed "
                           "in different ways", {"title": self.title}, path="layout")
            return (said, *self.check(case, replace(layout, recompute=NoRecompute())))
        return tuple(message for limit in self.limits if (message := limit.check(case, layout)) is not None)

    def lacks_kernel(self, layout: Layout) -> Message | None:
        """That the files cannot choose a kernel that the layout names."""
        asked: tuple[tuple[str, object, Collection[object], bool], ...] = (
            ("attention", layout.attention, self.features.attentions, layout.context_parallel > 1 and layout.attention == "math"),
            ("compile", layout.compiled, (True, False) if self.features.compiles else (), False),
        )
        for word, value, able, apart in asked:
            if value is not None and apart:
                return Message(f"{self.name}.attention-context", "context parallelism passes blocks between fused kernels: "
                               "attention=math needs cp1", {}, path="layout")
            if value is not None and value not in able:
                said = value if word == "attention" else "on" if value else "off"
                others = _having(word, value)
                return Message(f"{self.name}.{word}", "{title} has no key for {word}={said}" + "; {others} has one" * bool(others),
                               {"title": self.title, "word": word, "said": said, "others": " or ".join(others)}, path="layout")
        return None

    def settings(self, case: Case, layout: Layout) -> Values:
        """Key -> value of all settings that express a layout, with the kernels that it names."""
        assert self.decide is not None, "a framework that writes decides"
        return self.decide(running(case, layout), layout, self.version)

    def told(self, case: Case) -> Told:
        """How the files say the launch of a case: keys, variables, and in words what they do not carry."""
        return told_of(case, framework=self.name, title=self.title, release=self.version, releases=self.releases)

    def write(self, case: Case, layout: Layout, *, version: str | None = None, options: Options = DEFAULTS) -> tuple[File, ...]:
        """Launch files of this layout; an ``InputError`` names everything that the framework cannot run."""
        there = self.at(version)
        if there.writer is None:
            raise fault("framework.no-writer", "{title} has no writer: its plugin only plans", title=self.title)
        if broken := there.check(case, layout):
            raise InputError(broken)
        case = running(case, layout)
        files = there.writer(case, layout, there.version, replace(options, launch=there.told(case)))
        for file in files:
            require_text(file.text, file.path)
        return files

    def read(self, files: Sequence[File], *, version: str | None = None, given: Given = NOTHING_GIVEN) -> Reading:
        """What a user's files mean to the framework, without running any of them.

        The version decides, then what the files show, then the default.
        Errors: ``InputError`` for what is no file of this framework, or not even its language.
        """
        from meshwright.documents.naming import missing_file, open_to_the_run
        from meshwright.documents.opening import open_source

        if self.interpreter is None:
            raise fault("framework.no-reader", "{title} has no reader: its plugin only plans", title=self.title)
        source = (self.opener or open_source)(files)
        source = open_to_the_run(source, self.surface().knobs() if self.surface is not None else ())
        release = self.release(version) if version or self.detect is None else self.detect(source) or self.version
        there = self.at(release)
        assert there.interpreter is not None, "a variant reads what its framework reads"
        missing = missing_file(source, there.config_keys)
        lacking = there.lacks_program(source) if missing is None else None
        if lacking is not None and (given.task is not None or TASK_VARIABLE in source.environment):
            reading = there._interpreted(source, given)
            return replace(reading, messages=(lacking, *reading.messages))
        missing = missing or lacking
        if missing is not None:
            return Reading(
                framework=there.name, version=there.version, source=source, said=Said(devices=source.devices),
                messages=(missing, *(each for each in source.remarks if each.id != "shell.unknown")),
            )
        return there._interpreted(source, given)

    def _interpreted(self, source: Source, given: Given) -> Reading:
        """Files as the framework understands them, with the task and the launch that no adapter reads by itself."""
        assert self.interpreter is not None, "a variant reads what its framework reads"
        reading = self.interpreter(source, given, self.version).with_task
        launch = read_launch(
            reading.source, reading.said.launch, framework=self.name, release=self.version, releases=self.releases,
        )
        return replace(reading, said=replace(reading.said, launch=launch))
