"""Synthetic look-alikes of the data sets, made by arithmetic: no file, no network, the same bytes on every machine.

The idea: each template becomes a map of distances ("how far is this point from the shape's edge?"), computed once. An
image is that map looked up through a randomly bent plane: every pixel asks where it comes from, reads the distance
there, and is ink if it lies inside. Bending the question instead of the shape makes one lookup out of thousands of
brush strokes.

To give the same bytes everywhere, only operations that IEEE arithmetic rounds exactly are used on the pixels (+ - * /
floor, no sine, no matrix product), and random numbers come straight from the PCG64 bit stream, which NumPy promises
never to change.
"""

from collections.abc import Iterator

import numpy as np

from torchcourse.data import synthetic_shapes as shapes

COUNTS = {"train": 12_000, "test": 2_000}
_SEEDS = {"mnist": 28_001, "fashion_mnist": 28_002, "cifar10": 32_003}

_GRID, _REACH = 128, 1.6  # a distance map: 128 x 128 points over [-1.6, 1.6] in both directions
_CHUNK = 256  # images painted at a time: small enough for the processor's cache


class _Dice:
    """Uniform random numbers as float32 arrays, from the raw bits of PCG64."""

    def __init__(self, seed: int):
        self._bits = np.random.PCG64(seed)

    def uniform(self, low: float, high: float, *shape: int) -> np.ndarray:
        raw = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(40)
        return (raw.astype(np.float32) * np.float32((high - low) / 2**24) + np.float32(low)).reshape(shape)

    def integers(self, stop: int, *shape: int) -> np.ndarray:
        return (self._bits.random_raw(int(np.prod(shape))) % np.uint64(stop)).astype(np.int64).reshape(shape)

    def noise(self, *shape: int) -> np.ndarray:
        """Coarse noise from -1 to 1, eight values from each 64 random bits."""
        count = int(np.prod(shape))
        raw = self._bits.random_raw(-(-count // 8)).astype("<u8").view(np.uint8)[:count]
        return ((raw.astype(np.float32) - np.float32(127.5)) * np.float32(1 / 127.5)).reshape(shape)


def draw(name: str, split: str, count: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Draws one split of a look-alike.

    Returns uint8 images [N, C, H, W] and int64 labels [N]; N is `COUNTS[split]` unless `count` says otherwise.
    """
    count = COUNTS[split] if count is None else count
    dice = _Dice(_SEEDS[name] * 10 + (split == "test"))
    templates, paint, channels, size = {
        "mnist": (shapes.DIGITS, _paint_digits, 1, 28),
        "fashion_mnist": (shapes.GARMENTS, _paint_garments, 1, 28),
        "cifar10": (shapes.SCENES, _paint_scenes, 3, 32),
    }[name]
    labels = dice.integers(len(templates), count)
    versions = dice.integers(720720, count)  # divisible by every number of templates that a class may have
    images = np.empty((count, channels, size, size), np.uint8)
    for label, variants in enumerate(templates):
        for version, template in enumerate(variants):
            maps = np.stack([_distance_map(parts) for _, parts in template])
            slots = [slot for slot, _ in template]
            rows = np.flatnonzero((labels == label) & (versions % len(variants) == version))
            for chunk in _chunks(rows):
                images[chunk] = paint(dice, slots, maps, len(chunk)).reshape(len(chunk), channels, size, size)
    return images, labels


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), _CHUNK):
        yield rows[start : start + _CHUNK]


def _distance_map(parts: list[shapes.Part]) -> np.ndarray:
    """Distance of each grid point to the union of the parts, negative inside: float32 [GRID * GRID]."""
    axis = ((np.arange(_GRID, dtype=np.float32) + 0.5) / _GRID * 2 - 1) * _REACH
    x, y = (a.ravel() for a in np.meshgrid(axis, axis, indexing="xy"))
    nearest = np.full(_GRID * _GRID, 9, np.float32)
    for width, filled, points in parts:
        corners = np.array(points, np.float32)
        ends = np.roll(corners, -1, axis=0) if filled else corners[1:]
        squared = np.full_like(nearest, 99)
        inside = np.zeros(len(nearest), bool)
        for (ax, ay), (bx, by) in zip(corners, ends, strict=False):
            dx, dy = bx - ax, by - ay
            along = ((x - ax) * dx + (y - ay) * dy) / max(dx * dx + dy * dy, np.float32(1e-9))
            along = np.clip(along, 0, 1)
            ox, oy = x - ax - along * dx, y - ay - along * dy
            squared = np.minimum(squared, ox * ox + oy * oy)
            if filled and ay != by:  # a ray to the right crosses this edge: in becomes out, out becomes in
                inside ^= ((ay > y) != (by > y)) & (x < dx * (y - ay) / dy + ax)
        distance = np.sqrt(squared) - np.float32(width)
        nearest = np.minimum(nearest, np.where(inside, -distance, distance))
    return nearest


def _look_up(
    dice: _Dice,
    maps: np.ndarray,
    n: int,
    size: int,
    *,
    view: float,
    turn: float,
    shear: float,
    zoom: tuple[float, float],
    shift: float,
    bend: float,
    flip: bool = False,
) -> np.ndarray:
    """Distances at every pixel of `n` images, through `n` random bends of the plane.

    maps: float32 [layers, GRID * GRID]; view: how far the image sees from the center; turn, shear, shift, bend: the
    largest of each, either way; zoom: smallest and largest; flip: mirror half of them.
    returns: float32 [layers, n, size * size]
    """

    def one(low: float, high: float) -> np.ndarray:
        return dice.uniform(low, high, n, 1)

    axis = ((np.arange(size, dtype=np.float32) + 0.5) / size * 2 - 1) * np.float32(view)
    x, y = (a.reshape(1, -1) for a in np.meshgrid(axis, axis, indexing="xy"))
    x, y = x - one(-shift, shift), y - one(-shift, shift)
    half = one(-turn, turn)  # rotation without sine: half is tan(angle / 2)
    cos, sin = (1 - half * half) / (1 + half * half), 2 * half / (1 + half * half)
    zoom_x, zoom_y, slant = 1 / one(*zoom), 1 / one(*zoom), one(-shear, shear)
    if flip:
        zoom_x = np.where(one(0, 1) < 0.5, -zoom_x, zoom_x)
    u, v = (cos * x + sin * y) * zoom_x, (cos * y - sin * x) * zoom_y
    u = u + slant * v
    uu, uv, vv = u * u, u * v, v * v
    tx = u + one(-bend, bend) * uu + one(-bend, bend) * uv + one(-bend, bend) * vv + one(-bend, bend) * vv * v
    ty = v + one(-bend, bend) * uu + one(-bend, bend) * uv + one(-bend, bend) * vv + one(-bend, bend) * uu * u

    def cell(t: np.ndarray) -> np.ndarray:
        return np.clip((t + np.float32(_REACH)) * np.float32(_GRID / 2 / _REACH), 0, _GRID - 1).astype(np.int64)

    return maps[:, cell(ty) * _GRID + cell(tx)]


def _cover(distance: np.ndarray, soft: float | np.ndarray) -> np.ndarray:
    """How much of a pixel is inside, 0 to 1; `soft` is the width of a pixel, so that edges are smooth."""
    return np.clip(np.float32(0.5) - distance / soft, 0, 1)


def _spot(dice: _Dice, n: int, size: int, largest: float) -> np.ndarray:
    """A round spot in each image: 1 inside, 0 outside, float32 [n, size * size]. `largest` is a part of the width."""
    axis = np.arange(size, dtype=np.float32)
    x, y = (a.reshape(1, -1) for a in np.meshgrid(axis, axis, indexing="xy"))
    x, y = x - dice.uniform(0.2, 0.8, n, 1) * np.float32(size), y - dice.uniform(0.2, 0.8, n, 1) * np.float32(size)
    return _cover(np.sqrt(x * x + y * y) - dice.uniform(0, largest, n, 1) * np.float32(size), 1)


def _to_bytes(value: np.ndarray) -> np.ndarray:
    return (np.clip(value, 0, 1) * np.float32(255) + np.float32(0.5)).astype(np.uint8)


def _paint_digits(dice: _Dice, slots: list[str], maps: np.ndarray, n: int) -> np.ndarray:
    distance = _look_up(dice, maps, n, 28, view=1.2, turn=0.13, shear=0.3, zoom=(0.7, 1.04), shift=0.2, bend=0.17)[0]
    ink = _cover(distance - dice.uniform(0.05, 0.17, n, 1), soft=0.12)
    ink = ink * (1 - _spot(dice, n, 28, 0.14))  # the pen skips: some digits lose the stroke that makes them clear
    return _to_bytes(ink * (dice.uniform(0.75, 1.05, n, 1) + dice.noise(n, 28 * 28) * np.float32(0.15)))


def _paint_garments(dice: _Dice, slots: list[str], maps: np.ndarray, n: int) -> np.ndarray:
    body, seam = _look_up(dice, maps, n, 28, view=1.08, turn=0.08, shear=0.14, zoom=(0.7, 1.05), shift=0.1, bend=0.14)
    axis = np.arange(28, dtype=np.float32)
    x, y = (a.reshape(1, -1) for a in np.meshgrid(axis, axis, indexing="xy"))
    # Patterns belong to no class: stripes across or along, checks, or a plain cloth with light from one side.
    period = np.floor(dice.uniform(2, 6, n, 1))
    across, along = (np.floor(axis / period) % 2 * 2 - 1 for axis in (y, x))
    kind = dice.uniform(0, 1, n, 1)
    stripes = np.where(kind < 0.12, across, np.where(kind < 0.2, along, np.where(kind < 0.27, across * along, 0)))
    light = dice.uniform(-0.012, 0.012, n, 1) * (x - 14) + dice.uniform(-0.008, 0.008, n, 1) * (y - 14)
    cloth = dice.uniform(0.3, 0.95, n, 1) + stripes * dice.uniform(0.06, 0.25, n, 1) + light
    cloth = cloth + dice.noise(n, 28 * 28) * dice.uniform(0.02, 0.12, n, 1)
    line = dice.uniform(0.1, 0.4, n, 1) * np.where(dice.uniform(0, 1, n, 1) < 0.7, np.float32(-1), np.float32(1))
    cloth = cloth + _spot(dice, n, 28, 0.25) * dice.uniform(-0.5, 0.5, n, 1)  # a print, or a shadow
    return _to_bytes(_cover(body, 0.08) * (cloth + _cover(seam, 0.09) * line))


def _paint_scenes(dice: _Dice, slots: list[str], maps: np.ndarray, n: int) -> np.ndarray:
    distances = _look_up(
        dice, maps, n, 32, view=1.12, turn=0.12, shear=0.15, zoom=(0.62, 1.0), shift=0.25, bend=0.08, flip=True
    )

    def color(low: float, high: float) -> np.ndarray:  # [n, 3, 1]: a grey level and some color around it
        return dice.uniform(low, high, n, 1, 1) + dice.uniform(-0.25, 0.25, n, 3, 1)

    # Sky and ground, or wall and floor: any two colors, in every class. Then the thing itself, darker or lighter than
    # they are.
    y = np.repeat(np.arange(32, dtype=np.float32), 32).reshape(1, 1, -1)
    above, below = color(0.3, 0.75), color(0.25, 0.7)
    horizon = _cover(dice.uniform(4, 36, n, 1, 1) - y, dice.uniform(1, 16, n, 1, 1))
    picture = above + (below - above) * horizon
    side = np.where(dice.uniform(0, 1, n, 1, 1) < 0.5, np.float32(-0.32), np.float32(0.32))
    main = (above + below) * np.float32(0.5) + side + dice.uniform(-0.25, 0.25, n, 3, 1)
    paints = {
        "main": main,
        "second": main + dice.uniform(-0.35, 0.35, n, 3, 1),
        "dark": dice.uniform(0, 0.15, n, 1, 1) + dice.uniform(0, 0.08, n, 3, 1),
        "light": dice.uniform(0.8, 1, n, 1, 1) - dice.uniform(0, 0.1, n, 3, 1),
    }
    for slot, distance in zip(slots, distances, strict=True):
        picture = picture + (paints[slot] - picture) * _cover(distance, 0.09)[:, None]
    shade = dice.uniform(-0.008, 0.008, n, 1, 1) * (y - 16)
    grain = dice.noise(n, 3, 32 * 32) * dice.uniform(0.02, 0.12, n, 1, 1)
    return _to_bytes(picture + shade + grain)
