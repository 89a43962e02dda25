"""Images: timm's model around our attention, augmented batches, and runs of real images."""

import os
import signal
from importlib.util import find_spec
from itertools import product
from multiprocessing import active_children
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from harness.batches import AugmentedImages
from harness.data import restore
from harness.model import build_model
from harness.optimisers import parameter_groups
from harness.questions import spec_of
from harness.records.spec import RunSpec
from tasks.contract import Batch
from tasks.data.images import transform_of
from tests.harness.conftest import requested
from zoo.registry import UserError

pytestmark = pytest.mark.skipif(
    find_spec("timm") is None, reason="images need the extra 'vision': timm"
)


@pytest.fixture
def image_folder(tmp_path) -> Path:
    pixels, root = np.random.default_rng(0), tmp_path / "images"
    for name, (part, count) in product(("ant", "bee", "cow"), (("train", 4), ("val", 2))):
        folder = root / part / name
        folder.mkdir(parents=True)
        for number in range(count):
            squares = pixels.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            image = squares.repeat(4, axis=0).repeat(4, axis=1)
            Image.fromarray(image).save(folder / f"{number}.JPEG")
    return root


@pytest.fixture
def images(image_folder):
    def make(attention: str = "softmax", **fields) -> RunSpec:
        settings = {"image-folder": {"path": str(image_folder)}, "model": {}, "train": {}}
        for path, value in fields.items():
            owner, _, name = path.partition(".")
            settings[owner][name] = value
        positions = settings["model"].pop("positions", "learned")
        return requested(attention, "image-folder", positions, **settings)

    return make


def first_image(spec: RunSpec, split: str) -> Path:
    files = restore(spec).splits[split].files
    return Path(files.root, files.names[0].decode())


RECIPE = {
    "train.augment.transform": "deit", "train.augment.mixup": 0.8, "train.augment.cutmix": 1.0,
    "train.label_smoothing": 0.1,
    "train.schedule": "cosine", "train.decay": "matrices", "train.weight_decay": 0.05,
    "model.drop_path": 0.3, "model.dropout": 0.1,
}  # fmt: skip


def model_of(spec: RunSpec):
    torch.manual_seed(0)
    return build_model(spec, restore(spec).task)


@pytest.mark.slow
def test_with_the_weights_of_timm_it_gives_timms_outputs(images, timm):
    spec = images(**{"model.depth": 2, "model.dropout": 0.0, "model.drop_path": 0.5})
    theirs = timm.create_model(
        "deit_small_patch16_224", num_classes=3, mlp_ratio=2, img_size=16, patch_size=8,
        embed_dim=64, depth=2, num_heads=2, drop_path_rate=0.5,
    ).double()  # fmt: skip
    # All norms start with the same weights: to exchange two would change nothing.
    for parameter in theirs.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    ours = model_of(spec).double()
    state = {f"transformer.{name}": value for name, value in theirs.state_dict().items()}
    for i in range(2):
        at = f"transformer.blocks.{i}.attn."
        for kind in ("weight", "bias"):
            q, k, v = state.pop(f"{at}qkv.{kind}").chunk(3)
            state[f"{at}query.{kind}"], state[f"{at}context.{kind}"] = q, torch.cat([k, v])
            state[f"{at}out.{kind}"] = state.pop(f"{at}proj.{kind}")
    ours.load_state_dict(state)
    images, results = torch.randn(8, 3, 16, 16, dtype=torch.float64), []
    batch = Batch(images, None, torch.zeros(8, dtype=torch.int64))
    for logits_of, inner in ((lambda: ours(batch)[0], ours.transformer),
                             (lambda: theirs(images), theirs)):  # fmt: skip
        # In training mode: both leave out the same blocks.
        torch.manual_seed(1)
        logits = logits_of()
        results.append([logits, *torch.autograd.grad(logits.square().sum(), inner.cls_token)])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def test_the_paper_budget_is_deit_small_of_16_with_rank_96_in_the_last_block(image_folder, timm):
    settings = {"image-folder": {"path": str(image_folder)}, "train": {"batch": 2}}
    spec = requested("softmax+primal", "image-folder", recipe="paper", **settings)
    with torch.device("meta"):
        theirs = timm.create_model("deit_small_patch16_224", num_classes=3, drop_path_rate=0.1)
        ours = build_model(spec_of(spec.question, "softmax"), restore(spec).task)
    total = [sum(p.numel() for p in network.parameters()) for network in (ours, theirs)]
    assert total[0] == total[1] == 21_666_819
    assert repr(ours.transformer.blocks[11].mlp) == repr(theirs.blocks[11].mlp)
    assert ours.transformer.blocks[11].drop_path1.drop_prob == pytest.approx(0.1)
    assert spec.options["primal"].items() >= {("rank", 96), ("eta", 0.05)}


def read(spec: RunSpec, seed: int = 0) -> AugmentedImages:
    return AugmentedImages(restore(spec).splits["train"], spec.train, seed)


def test_a_batch_depends_on_the_seed_and_its_number_alone(images):
    spec = images(**RECIPE)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    first, second = read(spec), read(spec)
    batches = [first(number) for number in range(4)]
    again = [second(number) for number in (3, 0)]
    for batch, same in zip((batches[3], batches[0]), again, strict=True):
        assert torch.equal(batch.tokens, same.tokens) and torch.equal(batch.targets, same.targets)
    assert first(3) is batches[3]
    assert not torch.equal(read(spec, seed=1)(0).tokens, batches[0].tokens)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


def test_each_image_of_each_batch_and_seed_is_augmented_and_mixed_in_another_way(images):
    spec = images(**{"train.augment.mixup": 0.8, "train.augment.cutmix": 1.0})
    colours, shares = [], []
    for seed in (0, 1):
        batches = read(spec, seed)
        batches.decoded.transform = lambda image: torch.rand(3, 16, 16)
        colours += [batches.decoded[number][:, 0, 0, 0] for number in range(4)]
        targets = torch.stack([batches(number).targets for number in (0, 1)])
        shares.append({*targets.unique().tolist()})
    assert len(np.unique(np.concatenate(colours))) == 32
    assert shares[0] & shares[1] <= {0.0, 1.0} and len(shares[0] | shares[1]) > 4


GEOMETRIC = ["RandomResizedCropAndInterpolation", "RandomHorizontalFlip"]
PIXELS = ["MaybeToTensor", "Normalize"]


@pytest.mark.parametrize(("augment", "expected"), [
    ("none", ["Resize", "CenterCrop", *PIXELS]), ("crop", [*GEOMETRIC, *PIXELS]),
    ("deit", [*GEOMETRIC, "RandAugment", *PIXELS, "RandomErasing"]),
])  # fmt: skip
def test_the_transform_is_that_of_the_recipe(images, augment, expected):
    transform = read(images(**{"train.augment": augment})).decoded.transform
    assert transform is transform_of(augment, 16)
    assert [type(part).__name__ for part in transform.transforms] == expected
    assert augment != "deit" or transform.transforms[-1].probability == 0.25


def test_processes_that_decode_ahead_give_the_same_batches(images, monkeypatch):
    spec = images(**RECIPE)
    expected = [read(spec)(number) for number in (1, 2, 3)]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    state = torch.get_rng_state()
    ahead = read(spec)
    for number, batch in zip((1, 2, 3), expected, strict=True):
        assert torch.equal(ahead(number).tokens, batch.tokens)
        # As a scheduler does before it ends a job: the step is still completed.
        for child in active_children():
            os.kill(child.pid, signal.SIGTERM)
    assert ahead._ahead is not None and torch.equal(torch.get_rng_state(), state)


def test_mixed_images_have_mixed_targets_and_others_their_own(images):
    recipes = ({}, {"train.augment.mixup": 0.8}, {"train.augment.cutmix": 1.0})
    plain, mixed, cut = (read(images(**recipe))(0) for recipe in recipes)
    train, examples = restore(images()).splits["train"], read(images()).decoded.order.batch(0)
    assert torch.equal(plain.tokens, train.gather(examples).tokens)
    assert torch.equal(plain.targets, train.targets[examples])
    torch.testing.assert_close(mixed.targets.sum(1), torch.ones(4))
    share = mixed.targets.gather(1, plain.targets[:, None]).min()
    expected = share * plain.tokens + (1 - share) * plain.tokens.flip(0)
    torch.testing.assert_close(mixed.tokens, expected)
    exchanged = (cut.tokens != plain.tokens).any(1)
    assert torch.equal(cut.tokens.flip(0).movedim(1, -1)[exchanged],
                       plain.tokens.movedim(1, -1)[exchanged])  # fmt: skip
    share = 1 - exchanged.double().mean((1, 2)).max()
    assert cut.targets.gather(1, plain.targets[:, None]).min() == pytest.approx(share.item())


def test_evaluation_resizes_the_shorter_side_and_crops_the_centre(images):
    image = Image.fromarray(torch.randint(256, (40, 60, 3), dtype=torch.uint8).numpy())
    image.save(first_image(images(), "test"), "PNG")
    ours = restore(images()).splits["test"].gather(torch.tensor([0])).tokens[0]
    # 16 / 0.875 = 18 pixels; the 16 in the centre stay.
    resized = np.array(image.resize((27, 18), Image.Resampling.BICUBIC))[1:17, 6:22] / 255
    expected = (resized - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    torch.testing.assert_close(ours, torch.from_numpy(expected).float().permute(2, 0, 1))


def test_a_damaged_image_is_the_reason_of_a_failed_run(images, reported, run_here):
    path = first_image(spec := images(), "train")
    path.write_bytes(path.read_bytes()[:300])
    record = run_here(spec)
    assert record.status == "failed" and not reported["trace"]
    assert record.reason.startswith(f"{path} cannot be read (")


@pytest.mark.parametrize(("fields", "named"), [
    ({"model.positions": "rotary"}, "positions=rotary"),
    ({"model.recompute": "layer"}, "model.recompute"), ({"model.norm": "post"}, "model.norm"),
    ({"model.pooling": "flatten"}, "model.pooling"),
    ({"train.bucket_by_length": True}, "train.bucket_by_length"),
    ({"model.depth": 1}, "depth=1 is less than the 2 variants of softmax.primal; raise depth"),
    ({"train.augment.mixup": 0.8, "train.batch": 3}, "batch=3 is odd; mixup and cutmix pair"),
])  # fmt: skip
def test_options_that_images_cannot_have_are_rejected(images, fields, named):
    with pytest.raises(UserError, match=named + ("" if " " in named else " has no meaning")):
        model_of(images("softmax+primal", **fields))


def test_vectors_positions_and_the_class_token_do_not_decay(images):
    model = model_of(spec := images(**{"train.decay": "matrices"}))
    decayed = {id(parameter) for parameter in parameter_groups(model, spec.train)[0]["params"]}
    for name, parameter in model.named_parameters():
        is_vector = name.endswith(("bias", "pos_embed", "cls_token")) or "norm" in name
        assert (id(parameter) in decayed) != is_vector, name
