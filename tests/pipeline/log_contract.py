"""What every log promises. Each adapter's tests inherit this class and give it a `log`."""

from tests.pipeline.contract.groups import Groups
from tests.pipeline.contract.questions import Questions
from tests.pipeline.contract.records import Records
from tests.pipeline.contract.refusals import Refusals


class LogContract(Records, Refusals, Questions, Groups):
    """A fixture `log` gives a connection to an empty place or to one shared with other tests."""
