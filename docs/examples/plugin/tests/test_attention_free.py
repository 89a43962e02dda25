from attention_free import AttentionFree

from zoo.conformance import parametrize, run


@parametrize(AttentionFree)
def test_the_claims_hold(subject, check):
    result = run(check, subject)
    assert result.passed, result.finding.figure
