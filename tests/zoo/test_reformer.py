"""LSH attention against loops over its definition, dense attention, and the published package."""

import pytest
import torch

from tests.zoo.oracle import HEADS, PADDED, WIDTH, agree, gradients, qkv, ragged, valid
from zoo.contract import Size
from zoo.registry import UserError
from zoo.variants.reformer import Reformer


def reformer(max_len: int = 1000, dropout: float = 0.0, **options) -> Reformer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=max_len, causal=False, dropout=dropout)
    return Reformer(size, **options).double().eval()


def dense(qk, v, allowed):
    """Shared-QK softmax over `allowed`, (..., n, n); a token sees itself only if nothing else."""
    scores = qk @ (qk / qk.norm(dim=-1, keepdim=True)).mT / qk.shape[-1] ** 0.5
    own = torch.eye(qk.shape[-2], dtype=torch.bool)
    alone = allowed.sum(-1, keepdim=True) == 1
    seen = torch.where(alone, allowed, allowed & ~own)
    return scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v


def everything(n, mask):
    return torch.ones(2, HEADS, n, n, dtype=torch.bool) & (
        True if mask is None else mask[:, None, None, :]
    )


def neighbours(layer, qk, mask):
    """Whom each token sees, (b, h, n, n): the union over rounds, one chunk at a time."""
    allowed = torch.eye(qk.shape[2], dtype=torch.bool).repeat(2, HEADS, 1, 1)
    for b in range(2):
        real = range(qk.shape[2]) if mask is None else mask[b].nonzero()[:, 0].tolist()
        for h in range(HEADS):
            for rotation in layer.rotations:
                near = (qk[b, h] @ rotation).tolist()
                signed = [row + [-x for x in row] for row in near]
                order = sorted(real, key=lambda i, s=signed: (s[i].index(max(s[i])), i))
                starts = range(0, len(order), layer.bucket)
                chunks = [order[start : start + layer.bucket] for start in starts]
                for before, chunk in zip([[], *chunks], chunks, strict=False):
                    for i in chunk:
                        allowed[b, h, i, before + chunk] = True
    return allowed


@PADDED
@pytest.mark.parametrize("hashes", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2, 63, 100])
def test_one_bucket_for_all_is_dense_attention_with_shared_qk(n, hashes, padded):
    (q, _, v), mask = qkv(n), ragged(n) if padded and n > 2 else None
    for bucket in (n, n + 37):
        out = reformer(bucket=bucket, hashes=hashes).attend(q, q, v, mask)
        expected = dense(q, v, everything(n, mask))
        agree(valid(out, mask), valid(expected, mask), q, v)


@PADDED
@pytest.mark.parametrize("hashes", [1, 2, 4])
@pytest.mark.parametrize("n", [15, 16, 17, 33, 63, 100, 1000])
def test_every_token_sees_the_union_of_its_rounds(n, hashes, padded):
    (q, _, v), mask = qkv(n), ragged(n) if padded else None
    layer = reformer(bucket=16, hashes=hashes)
    expected = dense(q, v, neighbours(layer, q, mask))
    agree(valid(layer.attend(q, q, v, mask), mask), valid(expected, mask), q, v)


@pytest.mark.parametrize("hashes", [1, 3])
def test_buckets_of_one_leave_the_first_in_line_to_itself(hashes):
    (q, _, v), layer = qkv(12), reformer(bucket=1, hashes=hashes)
    allowed = neighbours(layer, q, None)
    if hashes == 1:
        assert (allowed.sum(-1) == 1).any()
    agree(layer.attend(q, q, v, None), dense(q, v, allowed), q, v)


def test_more_hashes_come_nearer_to_dense_attention_on_clustered_inputs():
    centres = 6 * torch.nn.functional.normalize(torch.randn(2, HEADS, 8, WIDTH), dim=-1)
    qk = centres.repeat(1, 1, 32, 1).double()
    qk = qk + 0.1 * torch.randn_like(qk)
    v = torch.randn_like(qk)
    exact = dense(qk, v, everything(256, None))

    def error(hashes: int) -> float:
        layers = [reformer(256, bucket=16, hashes=hashes) for _ in range(5)]
        misses = [(x.attend(qk, qk, v, None) - exact).norm() / exact.norm() for x in layers]
        return float(torch.stack(misses).mean())

    errors = [error(hashes) for hashes in (1, 2, 8)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.5 * errors[0]


@pytest.mark.parametrize("real", [1, 15, 16, 17, 47, 90])
def test_padding_at_the_end_changes_nothing(real):
    (q, _, v), layer = qkv(100), reformer(bucket=16)
    mask = (torch.arange(100) < real).expand(2, -1)
    padded = layer.attend(q, q, v, mask)[:, :, :real]
    short = layer.attend(q[:, :, :real], q[:, :, :real], v[:, :, :real], None)
    torch.testing.assert_close(padded, short, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("n", [63, 100, 128])
def test_padded_content_does_not_matter(n):
    (q, _, v), layer, mask = qkv(n), reformer(bucket=16), ragged(n)
    other = [torch.where(mask[:, None, :, None], part, 1e4 * part) for part in (q, v)]
    before = layer.attend(q, q, v, mask)
    after = layer.attend(other[0], other[0], other[1], mask)
    torch.testing.assert_close(valid(before, mask), valid(after, mask), rtol=1e-12, atol=1e-14)


def test_a_sample_without_real_tokens_stays_finite_with_finite_gradients():
    (q, _, v), layer, mask = qkv(40), reformer(bucket=16), ragged(40)
    expected = layer.attend(q, q, v, mask)
    mask[0] = False
    out = layer.attend(q, q, v, mask)
    assert out.isfinite().all()
    assert torch.equal(out[1], expected[1])
    assert all(gradient.isfinite().all() for gradient in gradients(out, q, v))


def test_evaluation_repeats_to_the_bit_and_training_hashes_anew():
    (q, _, v), layer = qkv(100), reformer(bucket=8)
    kept = layer.rotations.clone()
    assert torch.equal(layer.attend(q, q, v, None), layer.attend(q, q, v, None))
    layer.train()
    assert not torch.equal(layer.attend(q, q, v, None), layer.attend(q, q, v, None))
    assert torch.equal(layer.rotations, kept)


def test_the_rotations_are_saved_with_the_weights():
    saved, other = reformer(), reformer()
    other.load_state_dict(saved.state_dict())
    assert torch.equal(saved.rotations, other.rotations)


def test_there_are_as_many_hashes_as_chunks_rounded_up_to_even():
    pairs = {64: 1, 65: 1, 128: 1, 129: 2, 1000: 8, 4096: 32}
    assert {n: reformer(n).rotations.shape[-1] for n in pairs} == pairs


def test_dropout_drops_weights_in_training_and_keeps_their_mean():
    layer = reformer(dropout=0.25, bucket=200).train()
    q, v = torch.ones(1, HEADS, 200, WIDTH), torch.ones(1, HEADS, 200, WIDTH)
    out = layer.attend(q, q, v, None)
    # 199 weights of 1/199, each 0 or 4/3 as large: deviation sqrt(1/3 / 199) = 0.04 a token.
    assert out.mean() == pytest.approx(1.0, abs=0.01)
    assert out[..., 0].std() == pytest.approx((1 / 3 / 199) ** 0.5, rel=0.2)
    torch.testing.assert_close(layer.eval().attend(q, q, v, None), v)


def test_bf16_autocast_hashes_and_sums_in_fp32():
    layer, mask = reformer(bucket=16).float(), ragged(200)
    q, v = torch.randn(2, 2, HEADS, 200, WIDTH).bfloat16()
    exact = layer.attend(q.float(), q.float(), v.float(), mask)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        near = layer.mix(q, q, v, mask)
    assert near.dtype == torch.bfloat16
    torch.testing.assert_close(near, exact.bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("options", [{"bucket": 0}, {"hashes": 0}])
def test_sizes_below_one_are_refused(options):
    ((name, value),) = options.items()
    with pytest.raises(UserError, match=f"^reformer.{name}={value} must be at least 1; raise it$"):
        reformer(**options)


def test_the_published_package_agrees_where_two_chunks_hold_everything():
    package = pytest.importorskip("reformer_pytorch")
    theirs = package.LSHAttention(bucket_size=32, n_hashes=1, causal=False)
    q, _, v = qkv(64)
    expected, *_ = theirs(q.flatten(0, 1).float(), v.flatten(0, 1).float())
    out = reformer(bucket=64).attend(q, q, v, None).flatten(0, 1)
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=2e-6)
