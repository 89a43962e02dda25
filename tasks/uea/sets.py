"""The ten sets of the UEA archive in Table 1 of Chen et al. (2023), each a task.

Sizes are those of the archive (Bagnall et al., 2018, arXiv 1811.00075). `max_len` is the length of
the longest series of TRAIN, four fifths of which are the train split.
"""

from dataclasses import dataclass

from tasks.registry import tasks
from tasks.uea.series import SeriesTask


@tasks.register("uea-ethanol-concentration")
@dataclass(frozen=True, kw_only=True)
class EthanolConcentration(SeriesTask):
    """The share of alcohol in a bottle, from its spectrum."""

    name = "uea-ethanol-concentration"
    version = 1
    archive_name = "EthanolConcentration"
    classes = 4
    channels = 3

    max_len: int = 1751
    train: int = 209
    dev: int = 52
    test: int = 263


@tasks.register("uea-face-detection")
@dataclass(frozen=True, kw_only=True)
class FaceDetection(SeriesTask):
    """Whether a face or a scrambled image was seen, from a magnetoencephalogram."""

    name = "uea-face-detection"
    version = 1
    archive_name = "FaceDetection"
    classes = 2
    channels = 144

    max_len: int = 62
    train: int = 4_712
    dev: int = 1_178
    test: int = 3_524


@tasks.register("uea-handwriting")
@dataclass(frozen=True, kw_only=True)
class Handwriting(SeriesTask):
    """The letter that is written, from the accelerations of a watch."""

    name = "uea-handwriting"
    version = 1
    archive_name = "Handwriting"
    classes = 26
    channels = 3

    max_len: int = 152
    train: int = 120
    dev: int = 30
    test: int = 850


@tasks.register("uea-heartbeat")
@dataclass(frozen=True, kw_only=True)
class Heartbeat(SeriesTask):
    """Whether a heart is healthy, from the spectrogram of its sound."""

    name = "uea-heartbeat"
    version = 1
    archive_name = "Heartbeat"
    classes = 2
    channels = 61

    max_len: int = 405
    train: int = 164
    dev: int = 40
    test: int = 205


@tasks.register("uea-japanese-vowels")
@dataclass(frozen=True, kw_only=True)
class JapaneseVowels(SeriesTask):
    """Which of nine men speaks two vowels; lengths differ."""

    name = "uea-japanese-vowels"
    version = 1
    archive_name = "JapaneseVowels"
    classes = 9
    channels = 12

    max_len: int = 26
    train: int = 216
    dev: int = 54
    test: int = 370


@tasks.register("uea-pems-sf")
@dataclass(frozen=True, kw_only=True)
class PemsSf(SeriesTask):
    """The day of the week, from the occupancy of lanes of freeways."""

    name = "uea-pems-sf"
    version = 1
    archive_name = "PEMS-SF"
    classes = 7
    channels = 963

    max_len: int = 144
    train: int = 214
    dev: int = 53
    test: int = 173


@tasks.register("uea-self-regulation-scp1")
@dataclass(frozen=True, kw_only=True)
class SelfRegulationSCP1(SeriesTask):
    """Whether a cursor is moved up or down, from cortical potentials of a healthy man."""

    name = "uea-self-regulation-scp1"
    version = 1
    archive_name = "SelfRegulationSCP1"
    classes = 2
    channels = 6

    max_len: int = 896
    train: int = 215
    dev: int = 53
    test: int = 293


@tasks.register("uea-self-regulation-scp2")
@dataclass(frozen=True, kw_only=True)
class SelfRegulationSCP2(SeriesTask):
    """Whether a cursor is moved up or down, from cortical potentials of a patient."""

    name = "uea-self-regulation-scp2"
    version = 1
    archive_name = "SelfRegulationSCP2"
    classes = 2
    channels = 7

    max_len: int = 1152
    train: int = 160
    dev: int = 40
    test: int = 180


@tasks.register("uea-spoken-arabic-digits")
@dataclass(frozen=True, kw_only=True)
class SpokenArabicDigits(SeriesTask):
    """The digit that is spoken; lengths differ."""

    name = "uea-spoken-arabic-digits"
    version = 1
    archive_name = "SpokenArabicDigits"
    classes = 10
    channels = 13

    max_len: int = 93
    train: int = 5_280
    dev: int = 1_319
    test: int = 2_199


@tasks.register("uea-uwave-gesture-library")
@dataclass(frozen=True, kw_only=True)
class UWaveGestureLibrary(SeriesTask):
    """The gesture that is made, from accelerations."""

    name = "uea-uwave-gesture-library"
    version = 1
    archive_name = "UWaveGestureLibrary"
    classes = 8
    channels = 3

    max_len: int = 315
    train: int = 96
    dev: int = 24
    test: int = 320
