"""What the depth effect on acceptance comes to, in sentences for the command line and the page."""

from __future__ import annotations

from collections.abc import Sequence

from backend.analysis.depth_effect import REMAINDER, DepthEffect, PositionEffect


def effect_words(effects: Sequence[DepthEffect], position: int = 0) -> list[str]:
    """A sentence a depth at one draft position; depths that cannot be compared are told once, with the reason."""
    said = []
    for effect in effects:
        if effect.reason is not None:
            said.append(f"Starts cannot be compared: {effect.reason}.")
        elif position < len(effect.positions):
            said.append(_sentence(effect, effect.positions[position]))
        if effect.diverged_prompts:
            said.append(
                f"The outputs of {effect.diverged_prompts} prompts differ between K={effect.k}, K={effect.against} and "
                "their runs: these prompts are matched up to the first differing token."
            )
    return list(dict.fromkeys(said))


def _sentence(effect: DepthEffect, at: PositionEffect) -> str:
    pair = f"K={effect.k} against K={effect.against}, position {at.position}"
    where = "forced starts" if effect.phase == "forced" else "shared starts"
    if at.difference.value is None:
        return f"{pair}: {at.difference.reason}."
    if at.verdict == "agree":
        bound = (
            "" if at.difference.high is None else f" More than {at.difference.high:.3f} either way is excluded at 95%."
        )
        text = f"{pair}: all {at.shared_starts} {where} of {at.difference.n} prompts agree.{bound}"
    else:
        difference = f"{at.difference.text(3)} on {at.shared_starts} {where} ({at.discordant_starts} differ)"
        deeper = max(effect.k, effect.against)
        meaning = {
            "poisoning": f"drafting K={deeper} deep poisons this position",
            "gain": f"this position is accepted more often at K={deeper}",
            "not shown": "an effect is not shown",
        }[at.verdict]
        p = "" if at.p_holm is None else f" (p = {at.p_holm:.2g}, Holm)"
        text = f"{pair}: {difference}; {meaning}{p}."
    if effect.phase == "forced" or at.raw.value is None:
        return text
    return f"{text} Raw: {at.raw.text(3)}, of which {at.remainder.text(3)} is {REMAINDER}."
