"""Which of the running sequences are in their generator, where one of them may kill it."""

from tests.unit.workers.generation.made import sequence
from workers.engines.generator import GeneratorDied
from workers.generation.isolation import SUSPECT, Isolation, accuse

CRASH, KILL = GeneratorDied("crashed"), GeneratorDied("killed", outside=True)


def test_all_come_at_once_until_two_deaths_then_one_at_a_time_until_it_has_a_token() -> None:
    isolation, all_three = Isolation(resumes=True), tuple(sequence() for _ in range(3))
    for deaths in range(2):
        for one in all_three:
            isolation.put(one)
        assert isolation.changes([]) == ((), all_three), deaths
        assert accuse(CRASH, all_three) is None
    for one in all_three:
        isolation.put(one)
    for one in all_three:
        assert isolation.changes([]) == ((), (one,))
        assert isolation.changes([one]) == ((), ())  # until it has a token
        one.suspicion = 0
        isolation.leave(one)
    assert isolation.changes([]) == ((), ())


def test_who_dies_alone_after_two_deaths_is_the_reason() -> None:
    one, other = sequence(), sequence()
    for _ in range(3):
        assert accuse(CRASH, [one, other]) is None
    assert accuse(CRASH, [one]) is one
    lonely = sequence()
    assert [accuse(CRASH, [lonely]) for _ in range(3)] == [None, None, lonely]


def test_sixteen_kills_from_outside_accuse_nobody() -> None:
    one = sequence()
    assert [accuse(KILL, [one]) for _ in range(17)] == [None] * 16 + [one]


def test_those_in_a_generator_leave_for_a_suspect_only_where_they_can_go_on() -> None:
    begun, suspect = sequence(), sequence()
    suspect.suspicion = SUSPECT
    for resumes, changes in ((True, ((begun,), (suspect,))), (False, ((), ()))):
        isolation = Isolation(resumes=resumes)
        isolation.put(suspect)
        assert isolation.changes([begun]) == changes
    assert isolation.changes([]) == ((), (suspect,))  # once those have ended
