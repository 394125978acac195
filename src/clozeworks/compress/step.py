"""What every step of compression is: a spec from one bundle to a smaller one whose own recipe rebuilds it."""

import dataclasses
import typing
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeVar

import torch
from torch import Tensor

from clozeworks.compress.data import Data
from clozeworks.core import spec
from clozeworks.core.errors import InputError, RecipeError, suggest
from clozeworks.core.spec import Spec
from clozeworks.exchange import files
from clozeworks.exchange.bundle import Bundle
from clozeworks.recipe import Recipe

B = TypeVar("B", bound=Bundle)
MEASURED = ("heldout",)  # facts of a card that are about the model before


@dataclass(slots=True)
class Step(Spec):
    """Base of the steps: `apply` gives a new bundle and leaves the old one as it is.

    `name` is the word of `--apply`, and `main` the field that the value behind its `=` sets.
    """

    name: ClassVar[str]
    main: ClassVar[str | None] = None
    structural: ClassVar[bool] = True  # what is left is the model as it was, but for parts that are gone
    fitted: ClassVar[bool] = False  # to the layers as they are: a search takes it behind all that cuts
    saves: ClassVar[bool] = True  # it makes a model smaller or faster; others give quality back
    teachable: ClassVar[bool] = (
        True  # what is left can learn from the original: it has weights in fp32 for the same tokens
    )

    @abstractmethod
    def apply(self, bundle: B, data: Data) -> B:
        """The smaller model; `RecipeError` or `InputError` says why it cannot be one."""

    @classmethod
    def parse(cls, value: str | None = None) -> Self:
        """The step that `--apply name=value` asks for, every field that the value does not set as usual.

        The value is that of `main`; words of the other fields may follow it: `0.3:layer:magnitude`.
        """
        step = cls()
        words = {word: field for field, hint in spec.fields_of(cls).items() for word in _words(hint)}
        for piece in value.split(":") if value is not None else ():
            field = cls.main if words.get(piece, cls.main) == cls.main else words[piece]
            if field is None:
                raise InputError(f"--apply {cls.name}", piece, "this step has no number", f"write {cls.name}")
            try:
                spec.set_path(step, field, piece)
            except RecipeError as error:
                todo = suggest(piece, words) if words and not _is_number(piece) else error.todo
                raise InputError(f"--apply {cls.name}", piece or "nothing", error.needed, todo) from None
        spec.check(step, f"--apply {cls.name}")
        return step

    def spell(self) -> str:
        """What `--apply` would say for it: `parse` gives it back."""
        usual = type(self)()
        set_to = None if self.main is None else getattr(self, self.main)
        main = [] if set_to is None else [str(set_to)]
        fields = [name for name in spec.fields_of(type(self)) if name != self.main]
        words = [str(getattr(self, name)) for name in fields if getattr(self, name) != getattr(usual, name)]
        return self.name + (f"={':'.join(main + words)}" if main + words else "")


def list_steps() -> dict[str, type[Step]]:
    """Every step by its name."""
    kinds = (part for part in spec.known_parts().values() if issubclass(part, Step))
    return dict(sorted((kind.name, kind) for kind in kinds))


def parse_steps(text: str) -> tuple[Step, ...]:
    """The steps that `--apply heads=0.3,ffn=0.5,vocab` names, in their order."""
    steps, kinds = [], list_steps()
    for piece in text.split(","):
        name, equals, value = piece.strip().partition("=")
        if name not in kinds:
            raise InputError("--apply", name or "nothing", "a step is needed", suggest(name, kinds))
        steps.append(kinds[name].parse(value if equals else None))
    return tuple(steps)


def rebuild(bundle: B, recipe: Recipe, weights: dict[str, Tensor], **changes: Any) -> B:
    """A bundle with another recipe and these weights; what was measured of the old model is not said of the new one.

    A recipe that its own parts refuse is refused here, before anything is built.
    """
    spec.check(recipe, recipe.name)
    with torch.random.fork_rng():
        model = files.build(recipe, weights, recipe.name)
    learns = {name: each.requires_grad for name, each in bundle.model.named_parameters(remove_duplicate=False)}
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(learns.get(name, parameter.requires_grad))
    model.frozen = bundle.model.frozen
    model.to(next(bundle.model.parameters()).device).train(bundle.model.training)
    facts = {name: value for name, value in bundle.facts.items() if name not in MEASURED}
    fields = {"model": model, "recipe": recipe, "facts": facts, "unused": [], **changes}
    return dataclasses.replace(bundle, **fields)


def _words(hint: Any) -> list[str]:
    """The words that a field may be."""
    if typing.get_origin(hint) is Literal:
        return [word for word in typing.get_args(hint) if isinstance(word, str)]
    return [word for option in typing.get_args(hint) for word in _words(option)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
