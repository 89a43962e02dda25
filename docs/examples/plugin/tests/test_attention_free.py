from attention_free import AttentionFree

from zoo.conformance import parametrize, run


@parametrize(AttentionFree)
def test_it_is_what_it_claims(subject, check):
    result = run(check, subject)
    assert result.passed, result.finding.figure
