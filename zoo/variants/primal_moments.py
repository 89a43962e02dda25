"""Primal-Attention by moments: projections made of all tokens, or of those so far.

A form that was not published of Chen, Tao, Tonin, Suykens, "Primal-Attention: Self-attention
through Asymmetric Kernel SVD in Primal Representation", NeurIPS 2023, arXiv 2305.19798. By the KKT
conditions of asymmetric kernel SVD, W_e = Phi_k^T H_r and W_r = Phi_q^T H_e, where H has the dual
variables of each token, which at a solution are the singular vectors. Here these are linear in the
tokens, H_r = X W_e / n and H_e = X W_r / n with parameters W_e and W_r (p, s):

    W_e|X = 1/n sum_i phi(k_i) x_i^T W_e        e = K X W_e / n
    W_r|X = 1/n sum_i phi(q_i) x_i^T W_r        r = K^T X W_r / n

so that all tokens mix, and not the sampled ones alone. In the causal form the sums run over i <= n:
token n has weights of its own, made of no later token, and the state of a step is the two sums,
(f, s) each. The objective of a prefix is a mean over its tokens; J has, of each prefix, the term of
its last token, and Tr(W_e|X(n)^T W_r|X(n)) of `trace=data` is a mean over n.

Scores, loss and output are those of Primal-Attention. Time O(n p s), memory O(n (p + s)) per head;
a step O(p s).
"""

from typing import Annotated, Literal

from pydantic import Field

from zoo.contract import Count, Size
from zoo.feature_maps import FeatureMapName
from zoo.ksvd import KsvdMean, LambdaForm
from zoo.ksvd_attention import Initialisation
from zoo.variants import variants
from zoo.variants.primal import Primal


@variants.register("primal-moments")
class PrimalMoments(Primal):
    """Primal-Attention with the moments of all tokens, or of the past, as projections."""

    by_moments = True

    def __init__(
        self,
        size: Size,
        *,
        rank: Count = 30,
        eta: Annotated[float, Field(ge=0)] = 0.1,
        trace: Literal["weights", "data"] = "weights",
        ksvd_mean: KsvdMean = "batch",
        backend: Literal["auto", "folded", "triton", "literal"] = "auto",
        feature_map: FeatureMapName = "cosine",
        sides: Literal["both", "right", "left"] = "both",
        lambda_form: LambdaForm = "squared",
        initialisation: Initialisation = "published",
        initial_scale: Annotated[float, Field(gt=0)] = 1.0,
    ) -> None:
        """Make the parameters.

        Args:
            size: see `Size`.
            rank: s, the number of singular directions.
            eta: weight of the KSVD loss.
            trace: `weights` for Tr(W_e^T W_r); `data` for Tr(W_e|X^T W_r|X).
            ksvd_mean: see `primal`, as the options below.
            backend: `folded`, `triton` (bidirectional), `literal`, or `auto`.
            feature_map: phi, a name of `zoo.feature_maps`.
            sides: the scores in the output: `both`, `right` for e alone, `left` for r alone.
            lambda_form: how Lambda is made of its parameters.
            initialisation: of W_e and W_r.
            initial_scale: factor of the initial W_e and W_r.
        """
        super().__init__(
            size,
            rank=rank,
            eta=eta,
            trace=trace,
            ksvd_mean=ksvd_mean,
            backend=backend,
            feature_map=feature_map,
            sides=sides,
            lambda_form=lambda_form,
            initialisation=initialisation,
            initial_scale=initial_scale,
        )
