"""The recordings of a dataset, in the forms that users give them."""

from __future__ import annotations

import os
from typing import Any

from asof._fleet import Fleet, Found
from asof._recording import Recording


def several(places: Any) -> list[tuple[str, ...]]:
    """The places of each recording; a tuple is one recording from several places, a fleet all of its own."""
    if isinstance(places, Recording):
        return [tuple(places.places)]
    if isinstance(places, Fleet):
        places = places.find()
    if isinstance(places, Found):
        return [(place,) for place in places.places]
    if isinstance(places, (str, os.PathLike)):
        return [(os.fspath(places),)]
    if isinstance(places, tuple):
        return [tuple(part for place in places for one in several(place) for part in one)]
    return [one for place in places for one in several(place)]
