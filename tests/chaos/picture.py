"""The samples of a soak as SVG: a panel each for memory, descriptors, control groups and disk, over time."""

from xml.sax.saxutils import escape

from samples import MIB, Sample

WIDTH, LEFT, RIGHT, PANEL, GAP, TOP = 860, 70, 130, 110, 34, 40
NAMED = 40  # the least width of a phase whose name is shown
STYLE = "text { font: 12px sans-serif; fill: #222 } .small { fill: #666; font-size: 11px }"
PANELS = (
    ("memory, MiB", (("server", "server_memory", MIB, "#1f7a4d"), ("keeper", "keeper_memory", MIB, "#5bb98b"))),
    ("descriptors", (("server", "server_descriptors", 1, "#1f7a4d"), ("keeper", "keeper_descriptors", 1, "#5bb98b"))),
    ("control groups", (("cells", "groups", 1, "#c98a3a"),)),
    ("disk, MiB", (("data", "disk", MIB, "#8a8f98"),)),
)


def draw(samples: list[Sample], title: str) -> str:
    end = max((sample.at for sample in samples), default=1.0) or 1.0
    scale = (WIDTH - LEFT - RIGHT) / end
    body: list[str] = []
    y = TOP
    for name, series in PANELS:
        most = max((getattr(sample, field) / unit for sample in samples for _, field, unit, _ in series), default=1.0) or 1.0
        bottom = y + PANEL
        body.append(f'<text class="small" x="{LEFT}" y="{y - 6}">{escape(name)}</text>')
        body.append(f'<path d="M{LEFT} {y}V{bottom}H{WIDTH - RIGHT}" stroke="#bbb" fill="none"/>')
        body.append(f'<text class="small" x="{LEFT - 6}" y="{y + 8}" text-anchor="end">{most:.0f}</text>')
        body.append(f'<text class="small" x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>')
        for label, field, unit, colour in series:
            points = [(LEFT + s.at * scale, bottom - getattr(s, field) / unit / most * PANEL) for s in samples]
            path = " ".join(f"{x:.1f},{place:.1f}" for x, place in points)
            body.append(f'<polyline points="{path}" stroke="{colour}" fill="none" stroke-width="1.5"/>')
            if points:
                body.append(f'<text class="small" x="{WIDTH - RIGHT + 6}" y="{points[-1][1] + 4:.1f}">{escape(label)}</text>')
        y = bottom + GAP
    starts = [sample for sample, before in zip(samples, [None, *samples]) if before is None or sample.phase != before.phase]
    for sample, next_one in zip(starts, [*starts[1:], None]):
        x = LEFT + sample.at * scale
        body.append(f'<path d="M{x:.1f} {TOP}V{y - GAP}" stroke="#ddd"/>')
        if next_one is None or (next_one.at - sample.at) * scale > NAMED:
            body.append(f'<text class="small" x="{x + 3:.1f}" y="{y - GAP + 14}">{escape(sample.phase)}</text>')
    body.append(f'<text class="small" x="{WIDTH - RIGHT}" y="{y - GAP + 28}" text-anchor="end">{end:.0f} s</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 4}" width="{WIDTH}" height="{y + 4}" role="img">'
    return "\n".join(
        [
            head,
            f"<style>{STYLE}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            f'<text x="8" y="18">{escape(title)}</text>',
            *body,
            "</svg>",
            "",
        ]
    )
