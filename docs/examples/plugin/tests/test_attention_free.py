from attention_free import AttentionFree

from zoo.conformance import parametrize, run


@parametrize(AttentionFree)
def test_the_claims_hold(configuration, check):
    result = run(check, configuration)
    assert result.passed, result.detail
