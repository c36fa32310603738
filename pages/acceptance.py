"""Acceptance: how many drafts survive at which position, and whether depth itself changes that."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from backend.analysis.depth_effect import REMAINDER, DepthEffect
from backend.analysis.depth_words import effect_words
from backend.charts import Axis
from backend.charts import acceptance as drawn
from pages.parts import frame, link, show, terms
from pages.parts.once import once

RATES = {  # attribute of PositionRates -> (axis, what it is)
    "survival": (Axis("Survival", "1", 3), "Drafts accepted at the position, over the steps that carried a draft."),
    "conditional": (Axis("Conditional acceptance", "1", 3), "Survival over the survival of the position before."),
    "per_drafted": (Axis("Acceptance where drafted", "1", 3), "Accepted over the steps that drafted the position."),
}
LENGTH = Axis("Acceptance length", "tokens", 3)
SHARE = Axis("Share of drafted steps", "1", 3)
EFFECT = Axis("Difference of survival", "1", 3)
ON_SHARED, RAW, ON_FORCED = "on shared starts", "raw, over all steps", "on forced starts"
NO_STEPS = (
    "What each step drafted and accepted is not stored for this cell, so depths cannot be compared on equal starts."
)

view = frame.open_page("Acceptance")
frame.source_badge(view.sweep)
cell_id = frame.choose_cell(view)
if cell_id is None:
    frame.no_figures(view)
these = (view.snapshot, "acceptance", view.name, cell_id)
depths = {found.k: found for found in view.snapshot.accepted(view.name, cell_id)}
if not depths:
    st.info(
        "No acceptance by draft position is known here: no depth above 0 was measured, or the engine did not report "
        "what its steps accepted."
    )
    st.stop()

left, right = st.columns(2)
with left:
    rate = link.one("rate", "Rate", list(RATES), "survival", words=lambda name: RATES[name][0].label)
with right:
    names = [str(k) for k in depths]
    chosen = link.some("k", "Depths K", names, names)
axis, meaning = RATES[rate]


def rates() -> dict[str, Any]:
    """The chosen rate by position as lines and as a map; why there is none."""
    points = pd.DataFrame(
        [
            terms.estimate_row(getattr(position, rate), k=k, position=position.position)
            for k, found in depths.items()
            for position in found.positions
        ]
    )
    shown = points[points["k"].astype(str).isin(chosen)]
    if shown["value"].isna().all():
        return {"missing": "" if shown.empty else str(shown["reason"].iloc[0])}
    first = shown[(shown["position"] == 0) & shown["value"].notna()]
    told = "; ".join(f"K={int(p['k'])}: {axis.words(p['value'], p['low'], p['high'])}" for _, p in first.iterrows())
    lines = f"{axis.label} by draft position. At position 0: {told or 'not known'}. The table has every figure."
    heat = f"{axis.label} by depth K and draft position, the figures of the table as a map."
    return {
        "lines": show.Chart(drawn.position_lines(shown, axis), lines),
        "heat": show.Chart(drawn.rate_heat_map(shown, axis), heat),
    }


def every_rate() -> show.Table:
    """All rates, whatever is chosen."""
    rows = [
        {
            "K": k,
            "Position": position.position,
            **{shape.label: terms.figure(getattr(position, name), shape) for name, (shape, _) in RATES.items()},
            "n": "" if position.survival.n is None else f"{position.survival.n:g}",
            "Why no interval": position.survival.reason or "",
        }
        for k, found in depths.items()
        for position in found.positions
    ]
    return show.Table(pd.DataFrame(rows), "Survival, conditional and per-drafted rates of every depth and position")


st.caption(f"{axis.label}: {meaning} Positions count from 0.")
by_position = once(*these, "rates", rate, tuple(chosen), build=rates)
if "missing" in by_position:
    why = by_position["missing"]
    st.info(f"{axis.label} is not known: {terms.outside(why)}." if why else "Choose at least one depth.")
else:
    for place, name in zip(st.columns([3, 2], gap="medium"), ("lines", "heat"), strict=True):
        with place:
            show.chart(by_position[name], key=name)

more = link.more("rates", "Every rate as a table")
if more.open:
    with more:
        show.table(once(*these, "every rate", build=every_rate))
        st.caption(
            "95% intervals in brackets, over prompts (n): greedy repeats of a prompt are copies, not observations."
        )

counted = {k: found for k, found in depths.items() if found.lengths}
st.header("How many drafts a step accepts", anchor=False)


def lengths() -> show.Chart:
    """How many drafts the steps of one depth accept."""
    rows = pd.DataFrame([terms.estimate_row(share, k=deep, accepted=j) for j, share in enumerate(found.lengths)])
    shares = "; ".join(f"{j}: {SHARE.words(share.value)}" for j, share in enumerate(found.lengths))
    return show.Chart(drawn.length_histogram(rows, SHARE), f"Share of steps by accepted drafts at K={deep}. {shares}")


if counted:
    deep = int(link.one("length", "Depth", [str(k) for k in counted], str(max(counted)), words=lambda k: f"K={k}"))
    found = counted[deep]
    show.chart(once(*these, "lengths", deep, build=lengths), key="hist")
    length = found.acceptance_length
    st.caption(
        f"Acceptance length {LENGTH.words(length.value, length.low, length.high)}: 1 + accepted drafts per drafted "
        f"step, over {terms.plural(found.drafted_steps, 'step')} of {terms.plural(length.n, 'prompt')}."
    )
else:
    told = "; ".join(
        f"K={k}: {LENGTH.words(found.acceptance_length.value)}"
        for k, found in depths.items()
        if found.acceptance_length.value is not None
    )
    st.info(f"Only rates were reported, not steps. Acceptance length: {told or 'not known'}.")

st.header("Does depth itself change acceptance?", anchor=False)
st.markdown(
    "A deeper draft takes longer strides, so its steps start at other places, and rates over all steps compare "
    "different starts. Only on **shared starts** (the same prompt, the same tokens emitted before) is a difference an "
    "effect of depth; what is left of the raw difference is " + REMAINDER + "."
)
measured = view.snapshot.matchable_depths(view.name, cell_id)
if len(measured) < 2:
    known = {
        k: f.positions[0].survival.value for k, f in depths.items() if f.positions and f.positions[0].position == 0
    }
    shallow, deep = min(known, default=0), max(known, default=0)
    if not measured and shallow < deep and known[shallow] is not None and known[deep] is not None:
        st.markdown(
            f"The raw difference at position 0 is {known[deep] - known[shallow]:+.3f} (K={deep} less K={shallow}, no "
            "interval). It may be an effect of depth or composition; these figures cannot tell which."
        )
    st.info(NO_STEPS if not measured else f"Only K={measured[0]} drafted here: there is no second depth to compare.")
    st.stop()
left, right = st.columns(2)
with left:
    base = int(
        link.one("against", "Compared with", [str(k) for k in measured], str(measured[0]), words=lambda k: f"K={k}")
    )
with right:
    places = [str(i) for i in range(min(base, max(k for k in measured if k != base)))]
    at = int(link.one("position", "Draft position", places, "0"))
effects = view.snapshot.depth_effects(view.name, cell_id, base, "measure")
forced = view.snapshot.depth_effects(view.name, cell_id, base, "forced")


def series(name: str, which: str, found: list[DepthEffect]) -> list[dict[str, object]]:
    """One difference of every depth that drafts the position."""
    return [
        terms.estimate_row(getattr(effect.positions[at], which), k=effect.k, series=name)
        for effect in found
        if at < len(effect.positions)
    ]


def effect_chart(words: list[str]) -> show.Chart | None:
    """Differences on shared, forced and all starts; None where none is known."""
    marks = pd.DataFrame(
        series(ON_SHARED, "difference", effects) + series(ON_FORCED, "difference", forced) + series(RAW, "raw", effects)
    ).dropna(subset=["value"])
    alt = f"Survival at position {at} less that of K={base}, on shared starts and over all steps. {' '.join(words[:1])}"
    if marks.empty:
        return None
    return show.Chart(drawn.depth_effects(marks, EFFECT, [ON_SHARED, ON_FORCED, RAW]), alt)


def on_shared_starts() -> show.Table:
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


def on_forced_starts() -> show.Table:
    """The same where every start is shared."""
    rows = [
        {
            "K": effect.k,
            "Forced starts": place.shared_starts,
            "of them differ": place.discordant_starts,
            f"Survival at K={base}": ""
            if place.survival_shared_against is None
            else f"{place.survival_shared_against:.3f}",
            "Survival at K": "" if place.survival_shared is None else f"{place.survival_shared:.3f}",
            "Difference": terms.figure(place.difference, EFFECT),
            "n": "" if place.difference.n is None else f"{place.difference.n:g}",
        }
        for effect in forced
        for place in effect.positions[at : at + 1]
    ]
    return show.Table(pd.DataFrame(rows), f"Difference of survival at position {at} against K={base} on forced starts")


def compared() -> dict[str, Any]:
    """All that is told of one position against one depth."""
    words = effect_words(effects, at)
    return {
        "words": words,
        "chart": effect_chart(words),
        "shared": on_shared_starts(),
        "forced": on_forced_starts() if forced else None,
        "forced words": effect_words(forced, at) if forced else [],
    }


told = once(*these, "effects", base, at, build=compared)
if told["chart"] is not None:
    show.chart(told["chart"], key="effect")
st.markdown("\n".join(f"- {sentence}" for sentence in told["words"]))
show.table(told["shared"])
st.caption(
    f"Remainder: {REMAINDER}. A start counts once, whatever its repeats. Where no shared start differs, the interval "
    "is what that many prompts (n) can exclude at 95%. Words follow a sign-flip test over prompts, adjusted for all "
    "depths and positions (Holm)."
)

st.subheader("Forced starts", anchor=False)
if told["forced"] is None:
    st.caption(
        "This sweep has none. With `[forced]` in its specification, prefixes of recorded outputs are replayed at every "
        "depth after the measurement, so that every start is shared."
    )
else:
    st.caption(
        "Prefixes of recorded outputs, replayed at every depth: every start is shared, so nothing is composition."
    )
    st.markdown("\n".join(f"- {sentence}" for sentence in told["forced words"]))
    show.table(told["forced"])
