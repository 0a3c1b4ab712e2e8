"""How far a group is behind, asked of the broker; it costs two or three questions, however many
partitions."""

from collections.abc import Iterable

from .log import Admin, Commit, TopicPartition
from .tracker import read_notes


async def lag(admin: Admin, group: str, at: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Records of each partition that the group has not completed. Raises LogUnavailable.

    The commit first, then the end: so what is completed meanwhile is counted too much, never too little.
    """
    return (await lag_and_ends(admin, group, at))[0]


async def lag_and_ends(
    admin: Admin, group: str, at: Iterable[TopicPartition], beside: Iterable[TopicPartition] = ()
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The lag, and the ends by which it was counted, with those of `beside` in the same question.

    Raises LogUnavailable.
    """
    places = list(at)
    commits = await admin.committed(group, places)
    unknown = [each for each in places if commits[each] is None]
    starts = await admin.start_offsets(unknown) if unknown else {}
    ends = await admin.end_offsets([*places, *beside])
    found = {each: behind(ends[each], commits[each], starts.get(each, 0)) for each in places}
    return found, ends


def behind(end: int, commit: Commit | None, start: int) -> int:
    """Records from the commit (none: from `start`) to the end, without those that the commit's notes
    call completed: out-of-order completion must not look like a queue."""
    if commit is None:
        return end - start
    return max(0, end - commit.offset - len(read_notes(commit).done))
