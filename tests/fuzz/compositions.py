"""Random compositions of parts: each is refused with a sentence, or trains, saves, loads and means what it says.

Of a recipe that `check` accepts: three steps with finite losses; a saved model gives the same again; gradients reach
every parameter; a text gives the same alone, beside longer ones and packed; no token knows one that it may not see; a
step gives the same gradient however it is cut, under dropout too; what is exported gives the same when read back.
"""

import atexit
import contextlib
import functools
import itertools
import json
import math
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clozeworks.core import spec
from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError, RecipeError
from clozeworks.core.token_info import PADDING
from clozeworks.data.batches.rows import Epoch, Row, collate
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.exchange import huggingface
from clozeworks.exchange.bundle import Bundle, read_bundle, write_bundle
from clozeworks.inference.text_encoder import TextEncoder
from clozeworks.model import Model
from clozeworks.nn.mixers.lsh import LSH
from clozeworks.objectives.segments import Pairs
from clozeworks.optim import parameter_groups
from clozeworks.recipe import Recipe, build
from clozeworks.recipes import recipe as named_recipe
from clozeworks.train.loop import Policy, accumulate, fit, make_dropout_keys
from clozeworks.train.pretrain import fit_to_data, open_data
from clozeworks.train.pretraining_batches import PretrainingBatches, make_epoch
from clozeworks.train.teacher import Teacher, check_teacher, make_teacher
from tests.fuzz.draw import draw_recipe
from tests.test_golden import shrink, write_text

NAME = "compositions"
STEPS = 3
ATTEMPTS = 4
NEAR = 2e-4  # of the largest number, what sums in another order may be off
# What a part gives a text depends on where the text stands in its row: why.
BY_ROW = {
    "LSH": "all tokens of a row are sorted together, and neighbours in that order are near",
    "LocalAttention": "chunks are cut from the beginning of the row",
}
# Parameters that no gradient reaches: the end of a name, and why.
UNREACHED = {
    "key.bias": "the same for all keys of a query, which the softmax takes away",
    "_global.weight": "tokens that see and are seen from afar are marked by a task",
    "_global.bias": "so are they here",
}
# Losses that read less of a model than its last states.
PARTIAL = {
    "HiddenStates": "states are compared before the norm that follows the stack",
    "AttentionScores": "scores come before the values of the last block",
    "Relations": "scores and values come before what follows them in the last block",
    "SpanBoundary": "there may be no span between two tokens in three small steps",
}


class BrokenError(Exception):
    """A promise that a composition did not keep."""


def run_case(seed: int) -> str | None:
    """What went wrong with recipes of this seed, and the recipe; None: nothing. Up to the first that is accepted."""
    torch.set_num_threads(1)
    for attempt in range(ATTEMPTS):
        recipe = draw_recipe(seed, attempt)
        try:
            _try(recipe)
        except InputError as error:
            if (wrong := poor_refusal(error)) is not None:
                return _described(wrong, recipe)
        except BrokenError as error:
            return _described(str(error), recipe)
        except Exception:
            return _described(traceback.format_exc(), recipe)
        else:
            return None
    return None


def _described(wrong: str, recipe: Recipe) -> str:
    return f"{wrong}\n{json.dumps(spec.to_dict(recipe))}"


def poor_refusal(error: InputError) -> str | None:
    """What is missing from a refusal: where, what was given, what is needed, what to do."""
    parts = {"where": error.where, "given": error.given, "needed": error.needed, "todo": error.todo}
    missing = [name for name, part in parts.items() if not part.strip() or " object at 0x" in part]
    return f"refused without {', '.join(missing)}: {error}" if missing else None


@functools.cache
def _data() -> dict[str, Path]:
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    return write_text(folder)


@functools.cache
def _opened(kind: str) -> tuple[list[tuple[Corpus, float]], Tokenizer]:
    return open_data([(_data()[kind], 1.0)])


def _try(recipe: Recipe) -> None:
    """Everything that is promised of an accepted recipe."""
    try:
        spec.check(recipe, recipe.name)
    except RecipeError:
        raise
    except InputError as error:
        raise BrokenError(f"refused by another error than RecipeError: {error!r}") from None
    corpora, tokenizer = _opened("sides" if isinstance(recipe.objective.segments, Pairs) else "documents")
    recipe = fit_to_data(recipe, tokenizer)
    if spec.from_dict(json.loads(json.dumps(spec.to_dict(recipe)))) != recipe:
        raise BrokenError("the recipe is another one when it is read from its JSON")
    model, teacher = build(recipe), _teacher(recipe, tokenizer)
    with contextlib.closing(_steps(recipe, corpora, tokenizer)) as steps:
        first = next(steps)
        _trains(recipe, model, itertools.chain([first], steps), teacher)
    epoch = make_epoch(recipe, corpora[0][0], tokenizer, 0, 0)
    _cut_otherwise(recipe, model, corpora, tokenizer, teacher)
    model.eval()
    _alone(recipe, model, epoch)
    _hides(recipe, model, epoch)
    _saved(Bundle(model, tokenizer, recipe), epoch)
    _as_texts(recipe, model)
    _exported(Bundle(model, tokenizer, recipe))


def _steps(recipe: Recipe, corpora: list[tuple[Corpus, float]], tokenizer: Tokenizer) -> Iterator[list[Batch]]:
    recipe.train.steps = STEPS + 1
    return iter(PretrainingBatches(recipe, corpora, tokenizer.vocabulary()))


def _teacher(recipe: Recipe, tokenizer: Tokenizer) -> Teacher | None:
    if not recipe.taught:
        return None
    other = shrink(named_recipe("bert_mini"))
    other.encoder.vocab, other.encoder.stack.depth, other.train.seed = recipe.encoder.vocab, 4, 1
    teacher = Bundle(build(other), tokenizer, other)
    check_teacher(recipe, tokenizer, teacher)
    return make_teacher(teacher, recipe, tokenizer, "cpu")


def _trains(recipe: Recipe, model: Model, steps: Iterator[list[Batch]], teacher: Teacher | None) -> None:
    """Finite losses, and a gradient for every parameter."""
    optimizer = parameter_groups.build_optimizer(model, recipe.train.optimizer, 1e-3)
    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    reached: set[str] = set()
    policy = Policy(clip=recipe.train.clip, teacher=teacher, seed=recipe.train.seed)
    seen: list[int] = []
    for step in fit(model, _note_widths(steps, seen), optimizer, lambda _: 1e-3, steps=STEPS, policy=policy):
        if not math.isfinite(step.loss) or step.skipped:
            raise BrokenError(f"step {step.number}: loss {step.loss}, gradient {step.grad_norm} {step.reason or ''}")
        reached |= {name for name, each in trained.items() if each.grad is not None and bool(each.grad.any())}
    whole = any(loss.weight and type(loss).__name__ not in PARTIAL for loss in recipe.objective.losses)
    silent = tuple(f"heads.{loss.name}." for loss in recipe.objective.losses if not loss.weight)
    lost = [name for name in trained if name not in reached and not name.endswith(tuple(UNREACHED))]
    lost = [name for name in lost if not name.startswith(silent)]
    narrow = _narrow(recipe, max(seen))
    lost = [name for name in lost if trained[name].shape[-1] > 1 and not (narrow and ".mixer." in name)]
    if lost and whole:
        raise BrokenError(f"no gradient reaches {', '.join(lost)}")


def _note_widths(steps: Iterator[list[Batch]], seen: list[int]) -> Iterator[list[Batch]]:
    for batches in steps:
        seen.extend(batch.tokens.shape[1] for batch in batches)
        yield batches


def _narrow(recipe: Recipe, row: int) -> bool:
    """Whether some attention is to one key, or some kernel has one tap: a softmax of one number is 1 whatever it is.

    A window whose next key stands a whole row away is one of those, and hashing with one token near but itself.
    """
    least = {"reach": 3, "limit": 3, "left": 1, "kernel": 2}
    parts = [part for _, part in spec.walk(recipe)]
    far = any(np.max(getattr(part, "dilation", 1)) >= row for part in parts)
    sizes = ((getattr(part, name, None), few) for part in parts for name, few in least.items())
    hashed = [part for part in parts if isinstance(part, LSH)]
    far |= any(part.rounds * (part.chunk * (1 + part.before + part.after) - 1) < 2 for part in hashed)
    return far or any(size is not None and size < few for size, few in sizes)


def _cut_otherwise(
    recipe: Recipe, model: Model, corpora: list[tuple[Corpus, float]], tokenizer: Tokenizer, teacher: Teacher | None
) -> None:
    """The gradients of a step in one piece and in several, with dropout."""
    gradients: list[list[Tensor]] = []
    for micro_tokens in (None, recipe.longest()):
        recipe.train.micro_tokens = micro_tokens
        with contextlib.closing(_steps(recipe, corpora, tokenizer)) as steps:
            micro = next(steps)
        model.zero_grad(set_to_none=True)
        accumulate(model, micro, make_dropout_keys(micro, 0, 1), Policy(teacher=teacher))
        gradients.append([torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()])
    recipe.train.micro_tokens = None
    names = [name for name, _ in model.named_parameters()]
    most = max(float(each.abs().max()) for each in gradients[0] if each.is_floating_point())
    for name, whole, cut in zip(names, *gradients, strict=True):
        if whole.is_floating_point():
            _near(f"the gradient of {name}, a step cut otherwise", cut, whole, most)


def _near(what: str, one: Tensor, two: Tensor, scale: float | None = None) -> None:
    scale = max(float(two.abs().max()) if two.numel() else 0.0, 1e-3) if scale is None else max(scale, 1e-3)
    gap = float((one - two).abs().max()) if two.numel() else 0.0
    if not gap <= NEAR * scale:
        raise BrokenError(f"{what}: {gap:.2g} apart, where numbers are up to {scale:.2g}")


def _states(model: Model, batch: Batch) -> list[Tensor]:
    """The vectors of each example, [n, D], and those that a second stream asks for, [T, D]."""
    with torch.no_grad():
        hidden = model.read(batch, ())
    document = batch.token_info.document
    own = [hidden.last[document == number] for number in document[document != PADDING].unique().tolist()]
    return own if hidden.query_stream is None else [*own, hidden.query_stream]


def _depends_on_row(recipe: Recipe) -> bool:
    stacks = [recipe.encoder.stack, recipe.top]
    return any(type(part).__name__ in BY_ROW for stack in stacks for _, part in spec.walk(stack))


def _alone(recipe: Recipe, model: Model, epoch: Epoch) -> None:
    """The same states alone, padded and packed."""
    if _depends_on_row(recipe):
        return
    lengths = epoch.sizes(np.arange(len(epoch.plan))).sum(1)
    order = np.argsort(lengths, kind="stable")
    chosen = order[np.linspace(0, min(len(order), 40) - 1, 3).astype(int)]
    rows = [Row(epoch, chosen[at : at + 1]) for at in range(3)]
    single = [_states(model, collate([row])) for row in rows]
    alone = [each for parts in zip(*single, strict=True) for each in parts]
    layouts = {"beside longer ones": rows}
    if not epoch.plan.in_order:
        layouts["packed"] = [Row(epoch, chosen)]
    for layout, those in layouts.items():
        states = _states(model, collate(those))
        if len(states) > 3:
            states = [*states[:3], *states[3].split([len(each[-1]) for each in single])]
        for number, (one, two) in enumerate(zip(states, alone, strict=True)):
            _near(f"states of text {number % 3} {layout}", one, two)


def _hides(recipe: Recipe, model: Model, epoch: Epoch) -> None:
    """By gradient: whom no token may know, it does not know."""
    kind = epoch.source.kind
    if kind not in ("causal", "order") or "LSH" in {type(part).__name__ for _, part in spec.walk(recipe.top)}:
        return
    batch, kept = collate([Row(epoch, np.array([0]))]), []
    hook = model.top.embed.register_forward_hook(lambda module, args, out: kept.append(_leaf(out)) or kept[-1])
    try:
        hidden = model.read(batch, ())
    finally:
        hook.remove()
    states = hidden.last[0] if hidden.query_stream is None else hidden.query_stream
    info, length = batch.token_info, batch.tokens.shape[1]
    places = torch.arange(length) if hidden.query_stream is None else batch.targets
    assert places is not None
    for at in sorted({0, len(places) // 2, len(places) - 1}):
        (seen,) = torch.autograd.grad((states[at] * torch.arange(1.0, states.shape[-1] + 1)).sum(), kept[-1],
                                      retain_graph=True, allow_unused=True)  # fmt: skip
        own = info.appears[0, places[at]]
        hidden_from = info.appears[0] > own if hidden.query_stream is None else info.appears[0] >= own
        if seen is not None and bool(seen[0][hidden_from].any()):
            raise BrokenError(f"token {int(places[at])} knows tokens that it may not see")


def _leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_()


def _saved(bundle: Bundle, epoch: Epoch) -> None:
    """Equal outputs and an equal recipe from the model's own directory."""
    with tempfile.TemporaryDirectory() as folder:
        write_bundle(bundle, Path(folder) / "model")
        again = read_bundle(Path(folder) / "model")
    if spec.to_dict(again.recipe) != spec.to_dict(bundle.recipe):
        raise BrokenError(f"the recipe is another one when loaded: {spec.diff(bundle.recipe, again.recipe)}")
    batch = collate([Row(epoch, np.array([0]))])
    for one, two in zip(_states(again.model.eval(), batch), _states(bundle.model, batch), strict=True):
        if not torch.equal(one, two):
            raise BrokenError("a loaded model gives other vectors than the one that was saved")


def _ids(recipe: Recipe) -> tuple[Tensor, Tensor]:
    """Two texts, of which the first is padded, and their mask."""
    ids = torch.randint(5, recipe.encoder.vocab, (2, 11), generator=torch.Generator().manual_seed(0))
    return ids, torch.tensor([[1] * 5 + [0] * 6, [1] * 11])


def _as_texts(recipe: Recipe, model: Model) -> None:
    """`TextEncoder` gives a padded text what it gives it alone."""
    if recipe.decoder is not None or _depends_on_row(recipe):
        return
    encoder, (ids, mask) = TextEncoder(model, None, recipe), _ids(recipe)
    both, alone = (encoder(*each).last_hidden_state[0, :5] for each in ((ids, mask), (ids[:1, :5],)))
    _near("a text that TextEncoder reads beside a longer one", both, alone)


def _exported(bundle: Bundle) -> None:
    """What Hugging Face has a class for gives the same from its directory, by us and by `transformers`."""
    recipe = bundle.recipe
    if recipe.decoder is not None or not huggingface.fits(recipe):
        return
    ids, mask = _ids(recipe)
    ours = TextEncoder(bundle.model, bundle.tokenizer, recipe)(ids, mask).last_hidden_state
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "hf"
        write_bundle(bundle, place, "hf")
        again = read_bundle(place)
        read: Callable[[], Tensor] | None = _theirs(place, ids, mask)
        back = TextEncoder(again.model.eval(), again.tokenizer, again.recipe)(ids, mask).last_hidden_state
        _near("what is read back from a Hugging Face directory", back[mask.bool()], ours[mask.bool()])
        if read is not None and not _depends_on_row(recipe):
            _near("what transformers reads", read()[mask.bool()], ours[mask.bool()])


def _theirs(place: Path, ids: Tensor, mask: Tensor) -> Callable[[], Tensor] | None:
    """The same by the published class; None where `transformers` has it no more."""
    from transformers import AutoConfig, AutoModel

    try:
        AutoConfig.from_pretrained(place)
    except (KeyError, ValueError):
        return None

    def read() -> Tensor:
        with torch.no_grad():
            return AutoModel.from_pretrained(place).eval()(input_ids=ids, attention_mask=mask).last_hidden_state

    return read
