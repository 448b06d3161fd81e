"""The rules of the caching allocator once more, as plain as can be: lists that are searched from end to end."""

from itertools import pairwise

MIB = 2**20


class SlowAllocator:
    """Blocks are ``[address, size, pool, free]``, in lists: one a segment, in order of address."""

    def __init__(self, limit_bytes):
        self.limit_bytes, self.segments, self.end = limit_bytes, [], 0

    def allocate(self, size_bytes, stream):
        """The block, or None where there is no room."""
        size = (size_bytes + 511) // 512 * 512
        small = size <= MIB
        free = [b for segment in self.segments for b in segment if b[3] and b[2] == (stream, small) and b[1] >= size]
        if not free:
            free = self._segment(2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB)
            if not free:
                return None
            free[0][2] = (stream, small)
        block = min(free, key=lambda b: (b[1], b[0]))
        rest = block[1] - size
        if rest >= 512 if small else rest > MIB:
            segment = next(s for s in self.segments if block in s)
            block[1] = size
            segment.insert(segment.index(block) + 1, [block[0] + size, rest, block[2], True])
        block[3] = False
        return block

    def _segment(self, size):
        if self.reserved + size > self.limit_bytes:
            self.segments = [s for s in self.segments if len(s) > 1 or not s[0][3]]
        if self.reserved + size > self.limit_bytes:
            return []
        self.segments.append([[self.end, size, None, True]])
        self.end += size
        return self.segments[-1]

    def give_back(self, block):
        block[3] = True
        for segment in self.segments:
            for left, right in reversed(list(pairwise(segment))):
                if left[3] and right[3]:
                    left[1] += right[1]
                    segment.remove(right)

    @property
    def reserved(self):
        return sum(block[1] for segment in self.segments for block in segment)

    @property
    def allocated(self):
        return sum(block[1] for segment in self.segments for block in segment if not block[3])
