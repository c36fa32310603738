"""What a killed sweep left behind on its nodes: ended by its own leases on the next start, whatever that sweeps.

Beside the lease lies a list of the places where ranks were launched. It is written before the first launch and removed
after the last verified release.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from backend.engines.rank import ANSWER_S, Place, ask, open_keeper
from backend.errors import NodeError, RunFailed
from backend.spec_nodes import Node


def places_path(lease_path: Path) -> Path:
    """Where the list lies."""
    return lease_path.with_name(f"{lease_path.stem}-nodes.json")


def remember(lease_path: Path, places: Sequence[Place]) -> None:
    """Write the list, whole or not at all."""
    path = places_path(lease_path)
    rows = [
        {"node": place.node.model_dump(mode="json"), "folder": place.folder, "lease": place.lease} for place in places
    ]
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(rows))
    temporary.replace(path)


def forget(lease_path: Path) -> None:
    """Everything was verified to be released."""
    places_path(lease_path).unlink(missing_ok=True)


def recall(lease_path: Path) -> list[Place]:
    """The list in rank order; empty without one, or with one that another version wrote."""
    try:
        rows = json.loads(places_path(lease_path).read_text())
        return [Place(Node.model_validate(row["node"]), row["folder"], row["lease"]) for row in rows]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return []


def end_on_nodes(lease_path: Path, stop_timeout_s: float, release_timeout_s: float) -> list[str]:
    """End what lives on of a killed sweep's ranks, head first; what was ended, as sentences.

    Raises RunFailed(kind="wont_stop") for a node that is out of reach or does not let go.
    """
    said = []
    for place in recall(lease_path):
        try:
            channel = open_keeper(place)
        except NodeError as error:
            raise RunFailed(
                f"a killed sweep had a server on {place.node.name}, which cannot be looked at: {error}",
                kind="wont_stop",
                where=place.node.name,
                fix=f"bring the node back, or remove {places_path(lease_path)} if you know it to be clean",
            ) from None
        try:
            patience_s = stop_timeout_s + 2 * release_timeout_s + ANSWER_S
            request = {"stop_timeout_s": stop_timeout_s, "release_timeout_s": release_timeout_s}
            ended = ask(channel, patience_s, op="stop", **request)["ended"]
        except NodeError as error:
            raise RunFailed(str(error), kind="wont_stop", where=place.node.name) from None
        finally:
            channel.close()
        said += [f"ended the server (process {pid} on {place.node.name}) that a killed sweep left" for pid in ended]
    forget(lease_path)
    return said
