"""The families of attention variants, and the colour of each in every figure."""

from collections.abc import Mapping

CUSTOM = "custom"  # The family of a variant that declares none

# Colours on white by family, told apart with any colour vision: exact softmax; Primal-Attention;
# features of a kernel; recurrences whose state decays; recurrences that correct their state; few
# landmarks or projections; windows, buckets and hashes; convolutions and nothing; plug-ins.
FAMILIES: Mapping[str, str] = {
    "softmax": "#0173b2",
    "primal": "#d55e00",
    "kernel": "#029e73",
    "decay": "#8446a3",
    "delta rule": "#e377c2",
    "low rank": "#de8f05",
    "sparse": "#56b4e9",
    "no attention": "#8c6d4f",
    CUSTOM: "#202020",
}
