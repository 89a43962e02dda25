"""The parameters and the options of Primal-Attention: see `zoo.variants.primal`."""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import feature_maps, ksvd
from zoo.contract import Attention, Count, Mask, Positions, Size, Tokens, Unsupported
from zoo.feature_maps import FeatureMapName
from zoo.kernels import cosine_map, moments, sampled_tokens
from zoo.kernels.precision import full_precision, without_autocast
from zoo.kernels.real_tokens import running_mean, token_ranks
from zoo.ksvd import KsvdMean, LambdaForm, Weights
from zoo.projection import Projection
from zoo.registry import UserError

OutputMap = Float[Tensor, "#b cd d"]
Bias = Float[Tensor, " d"]
Features = Float[Tensor, "b n ch p"]
Initialisation = Literal["published", "orthonormal"]

NO_KERNEL = (
    "computes neither the causal form, nor a feature map other than cosine, nor rotary position "
    "embeddings, nor a short convolution"
)


class KsvdAttention(Attention):
    """The parameters of Primal-Attention, and what is computed from them for all its forms.

    Axis letters beyond the contract's: `p` features, `c` the two sides (query, key), `a` sampled
    tokens, `s` rank.

    Attributes:
        by_moments: whether the cross moments of features and tokens are multiplied into W_e and
            W_r, in place of sampled tokens; see `zoo.variants.primal_moments`.
    """

    by_moments: ClassVar[bool] = False

    def __init__(
        self,
        size: Size,
        *,
        rank: Count = 30,
        rank_multi: Count = 10,
        eta: Annotated[float, Field(ge=0)] = 0.1,
        projections: Literal["auto", "dependent", "independent"] = "auto",
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
            rank_multi: sampled tokens per direction: a = min(max_len, rank * rank_multi).
            eta: weight of the KSVD loss.
            projections: `dependent` multiplies the sampled tokens into W_e and W_r; `independent`
                uses them as they are, and then does not mix tokens unless causal; `auto` is
                `dependent`, and in the causal form `independent`, both as published. Without
                meaning in a variant `by_moments`.
            trace: `weights` for Tr(W_e^T W_r), as in all published runs; `data` for
                Tr(W_e|X^T W_r|X).
            ksvd_mean: `batch` averages over batch, heads and tokens, then squares (the published
                LRA and vision runs); `sample` averages over heads and tokens of each sample,
                squares, then averages over samples (the published time-series runs).
            backend: `folded` for Gram matrices instead of scores, by PyTorch; `triton` for the same
                in kernels for CUDA, of the cosine map, neither causal nor rotary; `literal` for the
                published order of computation; `auto` for triton where a trial of it succeeds, and
                folded elsewhere.
            feature_map: phi, a name of `zoo.feature_maps`.
            sides: the scores in the output: `both`, `right` for e alone, or `left` for r alone. The
                loss has both in any case.
            lambda_form: how Lambda is made of its parameters; see `zoo.ksvd.LambdaForm`.
            initialisation: of W_e and W_r: `published` for Frobenius norm 1 per head, `orthonormal`
                for orthonormal columns of each head.
            initial_scale: factor of the initial W_e and W_r.

        Raises:
            UserError: a causal layer has dependent projections, or the feature map does not give a
                vector for each vector.
            Unsupported: `backend` is triton, and triton is missing or has no kernel for the form.
        """
        super().__init__(size)
        if size.causal and projections == "dependent":
            raise UserError(
                "primal.projections=dependent uses future tokens; use independent or auto, or the "
                "variant primal-moments"
            )
        usual = "independent" if size.causal else "dependent"
        chosen = usual if projections == "auto" else projections
        self.projections = "moments" if self.by_moments else chosen
        self.eta, self.trace, self.backend = eta, trace, backend
        self.ksvd_mean: KsvdMean = ksvd_mean
        self.feature_map, self.sides = feature_map, sides
        self.lambda_form: LambdaForm = lambda_form
        self.phi = feature_maps.feature_maps.find(feature_map)
        if backend == "triton":
            self._require_kernel()
        self.features = feature_maps.width(feature_map, size.head_dim)
        rows = {
            "dependent": min(size.max_len, rank * rank_multi),
            "independent": self.features,
            "moments": size.head_dim,
        }[self.projections]
        self.query_key = Projection(size, 2 * size.dim)
        self.directions = nn.Parameter(torch.empty(2, size.heads, rows, rank))
        self.scales = ksvd.initial_scales(size.heads, rank, lambda_form)
        self.merge = nn.Linear((2 if sides == "both" else 1) * rank, size.head_dim)
        self.out = nn.Linear(size.dim, size.dim)
        ksvd.initialise(self.directions.data, initialisation == "orthonormal", initial_scale)

    @property
    def dependent(self) -> bool:
        """Whether sampled tokens are multiplied into the projections."""
        return self.projections == "dependent"

    @property
    def has_kernel(self) -> bool:
        """Whether the form has the kernels of `zoo.kernels.cosine_map`."""
        size = self.size
        return self.feature_map == "cosine" and not (size.causal or size.rotary or size.short_conv)

    @property
    def shown(self) -> slice:
        """The sides that the output has, of (e, r)."""
        return {"both": slice(0, 2), "right": slice(0, 1), "left": slice(1, 2)}[self.sides]

    def roots(self) -> ksvd.Scales:
        """The square roots of the diagonal of Lambda."""
        return ksvd.roots(self.scales, self.lambda_form)

    def problem(self, x: Tokens) -> tuple[Float[Tensor, "b c h n f"], Weights]:
        """Features and weights of which J is the objective, at tokens without padding.

        J = energy of features @ weights / n - Tr(W_e^T W_r). With `trace=weights` these are W_e and
        W_r, and the features are multiplied by what makes W_e|X and W_r|X of them: statement 15 of
        `docs/primal.md`.

        Raises:
            Unsupported: each token has weights of its own.
        """
        if self.size.causal and self.projections == "moments":
            raise Unsupported(f"causal {self.name()} has weights for each token")
        phi = self._by_side(self._features(x, None))
        if self.trace == "data":
            return phi, self._weights(x, None, sampled_tokens.plain)[1]
        rows = torch.eye(self.directions.shape[2], dtype=x.dtype, device=x.device)
        rows = rows.expand(2, self.size.heads, -1, -1)
        maps = self._weights(x, None, sampled_tokens.plain, rows)[1]
        return phi @ maps, self.directions[None]

    def _require_kernel(self) -> None:
        if not self.has_kernel:
            raise Unsupported(f"primal.backend=triton {NO_KERNEL}; give backend=auto")
        if reason := cosine_map.missing_for_triton():
            raise Unsupported(f"primal.backend=triton cannot run: {reason}; give backend=auto")

    def _heads(self, x: Tokens) -> Float[Tensor, "b h n width"]:
        """Tokens, split in heads."""
        return x.unflatten(-1, (self.size.heads, -1)).transpose(1, 2)

    def _by_side(self, phi: Features) -> Float[Tensor, "b c h n p"]:
        """The features of queries, and those of keys."""
        return phi.unflatten(2, (-1, self.size.heads)).permute(0, 2, 3, 1, 4)

    def _queries_and_keys(self, x: Tokens, mask: Mask | None) -> Float[Tensor, "b n ch width"]:
        """Queries and keys: of each token, or the means so far in the published causal form."""
        u = self._rotated(self.query_key(x, mask), None if mask is None else token_ranks(mask))
        if not self.size.causal or self.projections == "moments":
            return u
        return running_mean(u.flatten(2), mask).view_as(u)

    def _features(self, x: Tokens, mask: Mask | None) -> Features:
        """Phi of `_queries_and_keys`, zero at padded tokens."""
        return self._map_features(self._queries_and_keys(x, mask), mask)

    def _map_features(self, u: Float[Tensor, "b n ch width"], mask: Mask | None) -> Features:
        if self.feature_map == "cosine":
            return cosine_map.unit(u, mask)
        phi = feature_maps.apply(self.phi, u)
        return phi if mask is None else phi.masked_fill(~mask[:, :, None, None], 0.0)

    def _rotated(
        self, projected: Tokens, positions: Positions | None = None
    ) -> Float[Tensor, "b n ch width"]:
        """Queries and keys, or one of the two, head by head, rotated if `size.rotary`."""
        u = projected.unflatten(-1, (-1, self.size.head_dim))
        return self.apply_rotary(u.transpose(1, 2), positions).transpose(1, 2)

    def _weights(
        self,
        x: Tokens,
        mask: Mask | None,
        take: Callable[..., tuple[Tensor, Tensor]],
        directions: Float[Tensor, "c h a s"] | None = None,
        phi: Features | None = None,
    ) -> tuple[Tokens, Weights]:
        """x, and W_e|X and W_r|X, or W_e and W_r where they do not depend on the data.

        `take` is a function of `zoo.kernels.sampled_tokens`; `directions` replace W_e and W_r;
        `phi` are the features of x, if they are known already.
        """
        directions = self.directions if directions is None else directions
        if self.projections == "independent":
            return x, directions[None]
        if self.projections == "moments":
            # W_e is in the span of the features of keys, W_r in that of queries.
            phi = self._features(x, mask) if phi is None else phi
            return x, self._moments(self._by_side(phi).flip(1), x, mask, directions)
        return self._sampled(x, mask, take, directions)

    def _sampled(
        self,
        x: Tokens,
        mask: Mask | None,
        take: Callable[..., tuple[Tensor, Tensor]],
        directions: Float[Tensor, "c h a s"],
    ) -> tuple[Tokens, Weights]:
        """x, and sampled tokens of it multiplied into `directions`."""
        positions = sampled_tokens.sampled_positions(directions.shape[-2], x, mask)
        x, sample = take(x, positions)
        if mask is not None:
            # A sample without real tokens: what is sampled there is padding.
            sample = sample.masked_fill(~mask.any(1)[:, None, None], 0.0)
        sample = sample.unflatten(-1, (self.size.heads, self.size.head_dim))
        if self.features != self.size.head_dim:
            sample = feature_maps.apply(self.phi, sample)
        with without_autocast(x):
            sample = sample.to(directions.dtype)
            return x, torch.einsum("bahp,chas->bchps", sample, directions)

    def _moments(
        self,
        phi: Float[Tensor, "b c h n p"],
        x: Tokens,
        mask: Mask | None,
        directions: Float[Tensor, "c h width s"],
    ) -> Weights:
        """The mean of phi x^T over real tokens, multiplied into `directions`."""
        count = x.new_full((x.shape[0],), x.shape[1]) if mask is None else mask.sum(1)
        with full_precision(phi, self._heads(x)) as (phi, heads):
            return moments.of_all(phi, heads, count).to(directions.dtype) @ directions

    def _output_map(self, weights: Weights, sides: slice = slice(0, 2)) -> tuple[OutputMap, Bias]:
        """The map from features to output tokens: weights, then C, then the output projection.

        `weights` are those of `sides`, of (e, r).
        """
        heads, width = self.size.heads, self.size.head_dim
        out = self.out.weight.unflatten(1, (heads, width))
        merge = self.merge.weight.unflatten(1, (-1, self.scales.shape[-1]))
        if self.sides != "both":
            left = self.sides == "left"
            merge = F.pad(merge, (0, 0, int(left), int(not left)))
        # One small matrix per sample, by which all tokens are multiplied: fp32 takes little time.
        with without_autocast(weights):
            merge_and_project = torch.einsum("dhp,pcs->chsd", out, merge[:, sides])
            bias = torch.einsum("dhp,p->d", out, self.merge.bias) + self.out.bias
            return (weights @ merge_and_project).flatten(1, 3), bias
