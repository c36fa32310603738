"""The answer in words, for the Overview page. Each clause follows an Estimate; without an interval it says so."""

from __future__ import annotations

from backend.analysis.comparison import Comparison, DepthLoss

_OPENING = {"published": "As published, ", "imported": "As imported, ", "simulated": "Simulated: "}


def answer_sentence(comparison: Comparison, *, source: str = "measured", margin_percent: float = 1.0) -> str:
    """A few plain sentences: the recommended depth, how sure, what K=0 and the named depths lose, break-even."""
    if comparison.recommendation is None:
        return f"No answer yet: {comparison.reason}."
    by_k = {d.k: d for d in comparison.depths}
    best = by_k[comparison.recommendation.k]
    parts = [_headline(comparison, best, _OPENING.get(source, ""), margin_percent)]
    if 0 in by_k and best.k != 0:
        gain = next(p.change_percent for p in comparison.pairs if {p.k, p.against} == {best.k, 0})
        interval = f" [{gain.low:+.1f}, {gain.high:+.1f}]" if gain.low is not None and gain.high is not None else ""
        parts.append(f"That is {gain.value:+.1f}%{interval} against no speculation ({by_k[0].decode_tok_s:.2f} tok/s).")
    named = [r for r in comparison.regrets if r.k != best.k]
    same = [r.name for r in comparison.regrets if r.k == best.k]
    if same:
        parts.append(f"It is the {' and the '.join(same)} depth.")
    for regret in named:
        loss = regret.loss_percent
        if loss.value is None:
            parts.append(f"The {regret.name} depth K={regret.k} has no throughput to compare.")
        else:
            interval = f" [{loss.low:.1f}, {loss.high:.1f}]" if loss.low is not None and loss.high is not None else ""
            parts.append(f"The {regret.name} depth K={regret.k} costs {loss.value:.1f}%{interval} of the best.")
    parts.append(_break_even(comparison))
    return " ".join(part for part in parts if part)


def _headline(comparison: Comparison, best: DepthLoss, opening: str, margin_percent: float) -> str:
    advice = comparison.recommendation
    rate = f"K={best.k} at {best.decode_tok_s:.2f} tok/s"
    runs = f"{comparison.n_runs} runs" + (f" in {comparison.blocks} blocks" if comparison.blocks else "")
    if advice is None:
        return ""
    if advice.resolved:
        others = [d.k for d in comparison.depths if d.verdict == "within" and d.k != best.k]
        tie = f"; so {_do(others)}, and the smallest is advised" if others else ""
        told = best.p_best is not None and not others
        sure = f" (probability of being best {_probability(best.p_best or 0.0)})" if told else ""
        verb = "do not speculate" if best.k == 0 else f"speculate {best.k} deep"
        most = best.loss_percent.high or 0.0
        place = f"loses at most {most:.1f}% against the best depth" if most > 0 else "is the best depth"
        text = f"{verb}: {rate} {place}{sure}{tie} ({runs})."
        return opening + text if opening else text[0].upper() + text[1:]
    start = f"{opening}the best depth is {rate}" if opening else f"The best measured depth is {rate}"
    if not best.loss_percent.has_interval:
        return f"{start}; no interval: {advice.reason} ({runs})."
    sure = "" if best.p_best is None else f" with probability {_probability(best.p_best)} of being best"
    more = f" About {advice.blocks_needed} blocks would tell." if advice.blocks_needed else ""
    return f"{start}{sure}, not resolved: {advice.reason} ({runs}).{more}"


def _probability(p: float) -> str:
    """Two digits; never the certainty that a number of draws cannot give."""
    return "over 0.99" if p > 0.99 else f"{p:.2f}"


def _do(depths: list[int]) -> str:
    return f"{'do' if len(depths) > 1 else 'does'} {', '.join(f'K={k}' for k in depths)}"


def _break_even(comparison: Comparison) -> str:
    even = comparison.break_even
    if even is None or even.estimate.value is None:
        return ""
    if even.k is None:
        return "No measured depth beats K=0."
    beyond = f"; K={even.next_loss} loses to it" if even.next_loss is not None else ""
    low, high = even.estimate.low, even.estimate.high
    if low is None or high is None:
        return f"In these runs speculation beats K=0 up to K={even.k}{beyond}."
    if low == 0:
        return f"That speculation beats K=0 at all is not shown (point estimate: up to K={even.k})."
    return f"Speculation beats K=0 up to K={even.k} [{low:.0f}, {high:.0f}]{beyond}."
