"""LSH attention against loops over its definition, dense attention, and the published package."""

import pytest
import torch

from tests.zoo.oracle import HEADS, PADDED, WIDTH, agree, qkv, ragged, valid
from zoo.contract import Size
from zoo.variants.reformer import Reformer


def reformer(max_len: int = 1000, dropout: float = 0.0, **options) -> Reformer:
    size = Size(dim=HEADS * WIDTH, heads=HEADS, max_len=max_len, causal=False, dropout=dropout)
    return Reformer(size, **options).double().eval()


def dense(qk, v, allowed):
    """Shared-QK softmax over `allowed`, (..., n, n); to itself only without other keys."""
    scores = qk @ (qk / qk.norm(dim=-1, keepdim=True)).mT / qk.shape[-1] ** 0.5
    own = torch.eye(qk.shape[-2], dtype=torch.bool)
    single = allowed.sum(-1, keepdim=True) == 1
    visible = torch.where(single, allowed, allowed & ~own)
    return scores.masked_fill(~visible, -torch.inf).softmax(-1) @ v


def everything(n, mask):
    return torch.ones(2, HEADS, n, n, dtype=torch.bool) & (
        True if mask is None else mask[:, None, None, :]
    )


def neighbours(layer, qk, mask):
    """The tokens that each attends to, (b, h, n, n): the union over rounds, chunk by chunk."""
    allowed = torch.eye(qk.shape[2], dtype=torch.bool).repeat(2, HEADS, 1, 1)
    for b in range(2):
        real = range(qk.shape[2]) if mask is None else mask[b].nonzero()[:, 0].tolist()
        for h in range(HEADS):
            for rotation in layer.rotations:
                projected = (qk[b, h] @ rotation).tolist()
                signed = [row + [-x for x in row] for row in projected]
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
@pytest.mark.parametrize("n", [15, 16, 17, 33, 100])
def test_every_token_attends_to_the_union_of_its_rounds(n, hashes, padded):
    (q, _, v), mask = qkv(n), ragged(n) if padded else None
    layer = reformer(bucket=16, hashes=hashes)
    expected = dense(q, v, neighbours(layer, q, mask))
    agree(valid(layer.attend(q, q, v, mask), mask), valid(expected, mask), q, v)


@pytest.mark.parametrize("hashes", [1, 3])
def test_in_buckets_of_one_the_first_token_attends_to_itself(hashes):
    (q, _, v), layer = qkv(12), reformer(bucket=1, hashes=hashes)
    allowed = neighbours(layer, q, None)
    if hashes == 1:
        assert (allowed.sum(-1) == 1).any()
    agree(layer.attend(q, q, v, None), dense(q, v, allowed), q, v)


def test_more_hashes_are_closer_to_dense_attention_on_clustered_inputs():
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


def test_training_draws_new_rotations_and_keeps_those_of_evaluation():
    (q, _, v), layer = qkv(100), reformer(bucket=8)
    before, expected = layer.rotations.clone(), layer.attend(q, q, v, None)
    assert not torch.equal(layer.train().attend(q, q, v, None), expected)
    assert torch.equal(layer.rotations, before)


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


def test_the_published_package_agrees_where_two_chunks_contain_all_tokens():
    package = pytest.importorskip("reformer_pytorch")
    theirs = package.LSHAttention(bucket_size=32, n_hashes=1, causal=False)
    q, _, v = qkv(64)
    expected, *_ = theirs(q.flatten(0, 1).float(), v.flatten(0, 1).float())
    out = reformer(bucket=64).attend(q, q, v, None).flatten(0, 1)
    torch.testing.assert_close(out.float(), expected, rtol=0, atol=2e-6)
