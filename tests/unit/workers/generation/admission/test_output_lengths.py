"""Expected lengths of outputs."""

from workers.generation.admission.output_lengths import OutputLengths


def test_a_quantile_of_the_latest_is_expected_and_corrected_as_a_sequence_grows() -> None:
    lengths = OutputLengths()
    for tokens in range(1, 101):
        lengths.add(tokens)
    assert 75 <= lengths.expected(0, 1000) <= 85
    assert 90 <= lengths.expected(80, 1000) <= 100
    assert lengths.expected(200, 1000) == 300


def test_no_more_is_expected_than_a_sequence_may_have() -> None:
    lengths = OutputLengths()
    assert lengths.expected(0, 20) == 20
    lengths.add(500)
    assert lengths.expected(0, 20) == 20


def test_a_first_sequence_that_goes_on_is_expected_to_go_on_for_a_while() -> None:
    assert OutputLengths().expected(600, 8000) == 900
