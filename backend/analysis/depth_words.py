"""What the depth effect on acceptance comes to, in sentences for the command line and the page."""

from __future__ import annotations

from collections.abc import Sequence

from backend.analysis.depth_effect import REMAINDER, DepthEffect, PositionEffect


def effect_words(effects: Sequence[DepthEffect], position: int = 0) -> list[str]:
    """Sentences on one draft position of one cell: depths that agree together, the others one by one, and why not."""
    pairs = [(e, e.positions[position]) for e in effects if e.reason is None and position < len(e.positions)]
    agree = [(effect, at) for effect, at in pairs if at.verdict == "agree"]
    said = [f"Starts cannot be compared: {effect.reason}." for effect in effects if effect.reason is not None]
    if agree:
        said.append(_agreement(agree))
    said += [_difference(effect, at) for effect, at in pairs if at.verdict != "agree"]
    said += [
        f"The outputs of {effect.diverged_prompts} prompts differ between K={effect.k}, K={effect.against} and their "
        "runs: these prompts are matched up to the first differing token."
        for effect in effects
        if effect.diverged_prompts
    ]
    return list(dict.fromkeys(said))


def _kind(effect: DepthEffect) -> str:
    return "forced starts" if effect.phase == "forced" else "shared starts"


def _range(values: Sequence[float], digits: int = 0) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _agreement(pairs: Sequence[tuple[DepthEffect, PositionEffect]]) -> str:
    """All depths without a discordant start in one sentence."""
    first, at = pairs[0]
    depths = [str(effect.k) for effect, _ in pairs]
    named = depths[0] if len(depths) == 1 else f"{', '.join(depths[:-1])} and {depths[-1]}"
    starts = _range([place.shared_starts for _, place in pairs])
    bounds = [place.difference.high for _, place in pairs if place.difference.high is not None]
    raws = [place.raw.value for _, place in pairs if place.raw.value is not None]
    text = (
        f"Position {at.position}: K={named} and K={first.against} agree on all {_kind(first)} "
        f"({starts} starts of {_range([place.difference.n or 0 for _, place in pairs])} prompts)."
    )
    if bounds:
        text += f" An effect of more than {_range(bounds, 3)} either way is excluded at 95%."
    if first.phase != "forced" and raws:
        text += f" The raw difference ({_range(raws, 3)}) is {REMAINDER}."
    return text


def _difference(effect: DepthEffect, at: PositionEffect) -> str:
    pair = f"Position {at.position}: K={effect.k} less K={effect.against}"
    if at.difference.value is None:
        return f"{pair}: {at.difference.reason}."
    deeper = max(effect.k, effect.against)
    meaning = {
        "poisoning": f"drafting {deeper} deep poisons this position",
        "gain": f"this position is accepted more often when {deeper} are drafted",
    }.get(at.verdict, "an effect is not shown")
    p = "" if at.p_holm is None else f" (p = {at.p_holm:.2g}, Holm)"
    text = (
        f"{pair} is {at.difference.text(3)} on {at.shared_starts} {_kind(effect)}, of which {at.discordant_starts} "
        f"differ: {meaning}{p}."
    )
    if effect.phase == "forced" or at.raw.value is None:
        return text
    return f"{text} The raw difference is {at.raw.text(3)}; {at.remainder.text(3)} of it is {REMAINDER}."
