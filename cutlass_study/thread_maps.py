"""How CUTLASS 2.x shares a tile among the threads of a CTA, and whether it leaves nothing out.

CUTLASS divides with truncation and asserts only that something remains. A tile that does not divide
compiles, and then loads or stores a part of itself: silently wrong, so it is refused here (and by
instantiations/sm80_coverage.hpp, which says the same to the compiler).
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
VECTOR = 8  # FP16 elements of the 16-byte access in which thread maps count
SWIZZLED_COLUMNS = 64  # row-major B: columns that the congruous layout swizzles together
TENSOR_OP_ROWS = 8  # rows that one epilogue step takes from every row of warps
PREFERRED_ACCESS_BYTES = 256  # of a row, by one warp
MAX_PREDICATES = 64  # four 32-bit words, one predicate in every two bits


@dataclass(frozen=True, slots=True)
class LoadMap:
    """`PitchLinearWarpRakedThreadMap` of transform/pitch_linear_thread_map.h.

    A tile of `vectors` x `rows` is loaded by `warps` warps, each `access_vectors` wide at a time.
    """

    vectors: int
    rows: int
    access_vectors: int
    warps: int

    @property
    def access_rows(self) -> int:
        """Rows that one warp loads at a time."""
        return WARP // self.access_vectors

    @property
    def _accesses(self) -> tuple[int, int]:
        return self.vectors // self.access_vectors, self.rows // self.access_rows

    @property
    def _warps_along(self) -> tuple[int, int]:
        """Warps along a row and down the rows; rows are shared out first."""
        down = min(self.warps, self._accesses[1])
        return (self.warps // down if down else 0), down

    @property
    def iterations(self) -> int:
        """Accesses of each thread; 0 if some warps find nothing to load."""
        (along, down), (accesses, access_rows) = self._warps_along, self._accesses
        return (accesses // along) * (access_rows // down) if along and down else 0

    @property
    def covers(self) -> bool:
        """Whether every vector is loaded, and by one thread only."""
        along, down = self._warps_along
        divides = self.vectors % self.access_vectors == 0 and self.rows % self.access_rows == 0
        loaded = self.iterations * self.warps
        return divides and loaded * WARP == self.vectors * self.rows and along * down == self.warps

    def predicates(self, alignment: int) -> int:
        """Predicates of each thread if a vector is loaded `alignment` elements at a time."""
        return self.iterations * VECTOR // alignment


def store_map_covers(columns: int, warps: int, width: int, output_bytes: int) -> bool:
    """Whether `warps` warps store 8 rows of `columns` elements completely, `width` at a time.

    `OutputTileOptimalThreadMap` and its `RowArrangement` (output_tile_thread_map.h in
    epilogue/threadblock): eight warps take a row each; fewer share the rows evenly and cover as
    many at a time as leaves 256 bytes of each.
    """
    if columns % width:
        return False
    vectors = columns // width
    if warps >= TENSOR_OP_ROWS:
        return warps == TENSOR_OP_ROWS and vectors % WARP == 0
    if TENSOR_OP_ROWS % warps:
        return False
    rows = TENSOR_OP_ROWS // warps
    preferred = PREFERRED_ACCESS_BYTES // (width * output_bytes)
    if WARP // preferred > rows:
        access_vectors, access_rows = WARP // rows, rows
    else:
        access_vectors = min(vectors, WARP, preferred)
        access_rows = min(TENSOR_OP_ROWS, WARP // access_vectors)
    return (
        access_vectors * access_rows == WARP
        and rows % access_rows == 0
        and vectors % access_vectors == 0
    )
