"""What depth itself does to acceptance, as a part of the page Acceptance: depths compared on the starts they share."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import streamlit as st

from backend.analysis.acceptance import DepthAcceptance
from backend.analysis.depth_effect import REMAINDER, DepthEffect
from backend.analysis.depth_words import effect_words
from backend.charts import Axis
from backend.charts import acceptance as drawn
from pages.parts import link, show, terms
from pages.parts.frame import View
from pages.parts.once import once

SHARE = Axis("Share of drafted steps", "1", 3)
EFFECT = Axis("Difference of survival", "1", 3)
ON_SHARED, RAW, ON_FORCED = "on shared starts", "raw, over all steps", "on forced starts"
NO_STEPS = (
    "What each step drafted and accepted is not stored for this cell, so depths cannot be compared on equal starts."
)


def draw(view: View, cell_id: str, depths: dict[int, DepthAcceptance]) -> None:
    """The question, against which depth and at which position, and the answer in words, marks and rows."""
    st.markdown(
        "A deeper draft takes longer strides, so its steps start at other places, and rates over all steps compare "
        "different starts. Only on **shared starts** (the same prompt, the same tokens emitted before) is a difference "
        "an effect of depth; what is left of the raw difference is " + REMAINDER + "."
    )
    measured = view.snapshot.matchable_depths(view.name, cell_id)
    if len(measured) < 2:
        _not_comparable(measured, depths)
        return
    left, right = st.columns(2)
    with left:
        names = [str(k) for k in measured]
        base = int(link.one("against", "Compared with", names, names[0], words=lambda k: f"K={k}"))
    with right:
        places = [str(i) for i in range(min(base, max(k for k in measured if k != base)))]
        at = int(link.one("position", "Draft position", places, "0"))
    told = once(
        view.snapshot, "depth effects", view.name, cell_id, base, at, build=lambda: _told(view, cell_id, base, at)
    )
    if told.chart is not None:
        show.chart(told.chart, key="depth-effect")
    st.markdown("\n".join(f"- {sentence}" for sentence in told.words))
    show.table(told.shared)
    st.caption(
        f"Remainder: {REMAINDER}. A start counts once, whatever its repeats. Where no shared start differs, the "
        "interval is what that many prompts (n) can exclude at 95%. Words follow a sign-flip test over prompts, "
        "adjusted for all depths and positions (Holm)."
    )
    st.subheader("Forced starts", anchor=False)
    if told.forced is None:
        st.caption(
            "This sweep has none. With `[forced]` in its specification, prefixes of recorded outputs are replayed at "
            "every depth after the measurement, so that every start is shared."
        )
        return
    st.caption(
        "Prefixes of recorded outputs, replayed at every depth: every start is shared, so nothing is composition."
    )
    st.markdown("\n".join(f"- {sentence}" for sentence in told.forced_words))
    show.table(told.forced)


def _not_comparable(measured: list[int], depths: dict[int, DepthAcceptance]) -> None:
    """Why no two depths can be compared on equal starts, with the raw difference where that is all there is."""
    if measured:
        st.info(f"Only K={measured[0]} drafted here: there is no second depth to compare.")
        return
    first = {
        k: f.positions[0].survival.value for k, f in depths.items() if f.positions and f.positions[0].position == 0
    }
    known = {k: value for k, value in first.items() if value is not None}
    if len(known) > 1:
        shallow, deep = min(known), max(known)
        st.markdown(
            f"The raw difference at position 0 is {known[deep] - known[shallow]:+.3f} (K={deep} less K={shallow}, no "
            "interval). It may be an effect of depth or composition; these figures cannot tell which."
        )
    st.info(NO_STEPS)


@dataclass(frozen=True, slots=True)
class _Told:
    """All that is told of one position against one depth; None where nothing is known."""

    words: list[str]
    chart: show.Chart | None
    shared: show.Table
    forced_words: list[str]
    forced: show.Table | None


def _told(view: View, cell_id: str, base: int, at: int) -> _Told:
    effects = view.snapshot.depth_effects(view.name, cell_id, base, "measure")
    forced = view.snapshot.depth_effects(view.name, cell_id, base, "forced")
    words = effect_words(effects, at)
    marks = pd.DataFrame(
        _marks(ON_SHARED, "difference", effects, at, cell_id)
        + _marks(ON_FORCED, "difference", forced, at, cell_id)
        + _marks(RAW, "raw", effects, at, cell_id)
    ).dropna(subset=["value"])
    alt = f"Survival at position {at} less that of K={base}, on shared starts and over all steps. {' '.join(words[:1])}"
    chart = drawn.depth_effects(marks, EFFECT, [ON_SHARED, ON_FORCED, RAW]) if len(marks) else None
    return _Told(
        words,
        None if chart is None else show.Chart(chart, alt),
        _on_shared_starts(effects, base, at),
        effect_words(forced, at) if forced else [],
        _on_forced_starts(forced, base, at) if forced else None,
    )


def _marks(name: str, which: str, found: list[DepthEffect], at: int, cell_id: str) -> list[dict[str, object]]:
    """One difference of every depth that drafts the position."""
    return [
        terms.estimate_row(getattr(effect.positions[at], which), k=effect.k, series=name, about=cell_id)
        for effect in found
        if at < len(effect.positions)
    ]


def _on_shared_starts(effects: list[DepthEffect], base: int, at: int) -> show.Table:
    """The difference of every depth, with its parts."""
    rows = [
        {
            "K": effect.k,
            "Shared starts": place.shared_starts,
            "of them differ": place.discordant_starts,
            "Difference on them": terms.figure(place.difference, EFFECT),
            "Raw difference": terms.figure(place.raw, EFFECT),
            "Remainder": terms.figure(place.remainder, EFFECT),
            "Shared, of K's starts": terms.figure(effect.shared_share, SHARE),
            f"Shared, of K={base}'s": terms.figure(effect.shared_share_against, SHARE),
            "n": "" if place.difference.n is None else f"{place.difference.n:g}",
        }
        for effect in effects
        for place in effect.positions[at : at + 1]
    ]
    return show.Table(pd.DataFrame(rows), f"Difference of survival at position {at} against K={base}, with its parts")


def _on_forced_starts(forced: list[DepthEffect], base: int, at: int) -> show.Table:
    """The same where every start is shared."""
    rows = [
        {
            "K": effect.k,
            "Forced starts": place.shared_starts,
            "of them differ": place.discordant_starts,
            f"Survival at K={base}": _survival(place.survival_shared_against),
            "Survival at K": _survival(place.survival_shared),
            "Difference": terms.figure(place.difference, EFFECT),
            "n": "" if place.difference.n is None else f"{place.difference.n:g}",
        }
        for effect in forced
        for place in effect.positions[at : at + 1]
    ]
    return show.Table(pd.DataFrame(rows), f"Difference of survival at position {at} against K={base} on forced starts")


def _survival(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.3f}"
