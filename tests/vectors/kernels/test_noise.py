import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.vectors.kernels import noise

COUNTS = np.array(sorted(np.random.default_rng(0).zipf(1.3, 3000).clip(1, 10**6), reverse=True))


@pytest.fixture(scope="module")
def theirs():
    gensim = pytest.importorskip("gensim.models")
    model = gensim.Word2Vec(negative=5, min_count=1, sample=1e-3, vector_size=2, sorted_vocab=0)
    model.build_vocab_from_freq({f"w{n}": int(count) for n, count in enumerate(COUNTS)})
    return model


def test_the_noise_table_is_that_of_gensim(theirs):
    assert np.array_equal(noise.cumulative(COUNTS), theirs.cum_table)


def test_keep_thresholds_are_those_of_gensim(theirs):
    assert np.array_equal(noise.keep_thresholds(COUNTS, 1e-3), theirs.wv.expandos["sample_int"])


def test_noise_is_the_count_to_the_three_quarters():
    table = noise.cumulative(COUNTS)
    assert table[-1] == noise.DOMAIN
    shares = np.diff(table.astype(float), prepend=0) / noise.DOMAIN
    assert np.allclose(shares, COUNTS**0.75 / (COUNTS**0.75).sum(), atol=1e-9)


def test_a_word_is_kept_as_its_formula_says():
    counts = np.array([9000, 900, 90, 10])
    share = noise.keep_thresholds(counts, 1e-2) / 2**32
    border = 1e-2 * 10_000
    assert share == pytest.approx([min(1, ((c / border) ** 0.5 + 1) * border / c) for c in counts], abs=1e-9)
    assert (noise.keep_thresholds(counts, 0) == 2**32 - 1).all()
    for wrong in (-1.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="sample"):
            noise.keep_thresholds(counts, wrong)


@pytest.mark.parametrize("counts", [COUNTS, np.array([1, 1]), np.array([10**9, 1, 1]), np.arange(1, 8)])
def test_the_alias_table_draws_the_shares_of_the_noise_table(counts):
    table = noise.cumulative(counts)
    thresholds, aliases = noise.alias_of(table)
    own = (thresholds.astype(float) + 1) / 2**32
    drawn = own.copy()
    np.add.at(drawn, aliases, 1 - own)
    assert np.allclose(drawn / len(counts), np.diff(table.astype(float), prepend=0) / noise.DOMAIN, atol=1e-9)
