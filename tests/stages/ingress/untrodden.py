"""A trail on which nobody has walked: no id was ever used."""

from pipeline.log import Record
from stages.ingress.trail import Trail


class Untrodden(Trail):
    def __init__(self) -> None:
        """There is no log behind it."""

    async def find(self, request_id: str) -> Record | None:
        return None
