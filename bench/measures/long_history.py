"""A turn on a history of 10,000 messages: with the history in the worker's memory, and without."""

from __future__ import annotations

from bench.arms.base import LANEWAY
from bench.measures.setting import Setting, new_lane
from bench.report import Section, Table, Target, median, median_ms, milliseconds

__all__ = ["long_history"]


async def long_history(setting: Setting) -> Section:
    sizes = setting.sizes
    count = f"{sizes.long_messages:,}"
    section = Section("long_history", f"{count} messages of history")
    short, long = new_lane(), new_lane()
    grown = await setting.ask(
        LANEWAY, "grow", lane=long, messages=sizes.long_messages, size_bytes=sizes.long_bytes, within=240
    )
    if LANEWAY not in setting.crew:
        return section
    del grown
    await setting.ask(LANEWAY, "turns", lane=short, count=3)
    await setting.ask(LANEWAY, "turns", lane=long, count=2)
    pairs = await setting.ask(
        LANEWAY, "beside_framework", lanes=[short, short, short, long], count=sizes.long_pairs, within=400
    )
    decode = [await setting.ask(LANEWAY, "decode", lane=long) for _ in range(3)]
    cold = [await setting.ask(LANEWAY, "cold_turn", lane=long) for _ in range(sizes.long_pairs + 1)][1:]
    if None in (pairs, *decode, *cold):
        return section
    empty, warm = [*pairs[0], *pairs[1], *pairs[2]], pairs[3]
    ours = {name: [turn - alone for turn, alone in pairs] for name, pairs in (("empty", empty), ("warm", warm))}
    warm_turn = median([turn for turn, _ in warm])
    reading = median([one["seconds"] for one in cold]) - warm_turn
    reads = max(one["reads"] for one in cold)
    section.raw = {"empty": empty, "warm": warm, "cold": cold, "decode": decode}
    rows = [
        ["no history", median_ms([turn for turn, _ in empty]), median_ms([alone for _, alone in empty]),
         median_ms(ours["empty"])],
        ["warm", milliseconds(warm_turn), median_ms([alone for _, alone in warm]), median_ms(ours["warm"])],
        ["cold", median_ms([one["seconds"] for one in cold]), "", ""],
        ["decoding alone", median_ms(decode), "", ""],
    ]  # fmt: skip
    note = (
        f"{sizes.long_bytes / 1e6:g} MB. Alone is `agent.run` with the same list and without Laneway, in turn with the "
        "turns; the last column is the median of the pairs' differences. The cold worker keeps no histories."
    )
    section.tables.append(Table("A turn", ["", "turn, ms", "alone, ms", "difference, ms"], rows, note))
    ratio = median(ours["warm"]) / median(ours["empty"])
    section.targets += [
        Target.at_most(f"step with {count} messages, warm, against none, without the framework's own time", 1.5, ratio),
        Target.at_most(
            "the same, cold: what reading adds, against decoding alone", 3, reading / median(decode),
            f"{reading / median(decode):.2f} ({reading * 1000:.0f} ms, decoding {median(decode) * 1000:.0f} ms)",
        ),
        Target("the same, cold: reads of the list", "1", f"{reads}", reads == 1),
    ]  # fmt: skip
    return section
