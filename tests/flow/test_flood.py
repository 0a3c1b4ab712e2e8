"""What nobody can read is kept byte for byte with a reason, ends what it owes, and delays nobody."""

import pytest

from tests.flow.flood import flood
from tests.flow.installation import Installation
from tests.flow.malformed import TOPICS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_bad_record_is_kept_and_every_good_one_is_answered(
    fleet: Installation, topic: str
) -> None:
    wrong = flood(fleet, topic, 50)
    assert not wrong, "\n".join(wrong[:20])
