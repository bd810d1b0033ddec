"""A plot of the figures, as SVG: the time of each contender in each case, on a logarithmic scale."""

import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, ROW, GAP, TOP = 860, 150, 90, 20, 34, 46
COLOURS = {"bare": "#8a8f98", "sandbox-server": "#1f7a4d", "sandbox-run": "#5bb98b"}
OTHER = "#c98a3a"
STYLE = "text { font: 12px sans-serif; fill: #222 } .case { font-weight: bold } .small { fill: #666; font-size: 11px }"


def draw(result):
    cases = list(result["cases"].values())
    values = [figures[share] for case in cases for figures in case["contenders"].values() for share in ("p50", "p95")]
    if not values:
        return '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>\n'
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    scale = (WIDTH - LEFT - RIGHT) / (high - low)

    def x(value):
        return LEFT + (math.log10(value) - low) * scale

    body, y = [], TOP
    for case in cases:
        body.append(f'<text class="case" x="8" y="{y + 4}">{escape(case["title"])}</text>')
        y += 12
        for name, figures in sorted(case["contenders"].items(), key=lambda item: item[1]["p50"]):
            middle = y + ROW / 2
            end, tail = x(figures["p50"]), x(max(figures["p95"], figures["p50"]))
            body.append(f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(name)}</text>')
            body.append(
                f'<rect x="{LEFT}" y="{y + 3}" width="{end - LEFT:.1f}" height="{ROW - 6}" '
                f'fill="{COLOURS.get(name, OTHER)}"/>'
            )
            body.append(f'<path d="M{end:.1f} {middle}H{tail:.1f}" stroke="#444"/>')
            body.append(
                f'<text class="small" x="{tail + 5:.1f}" y="{middle + 4}">{milliseconds(figures["p50"])}</text>'
            )
            y += ROW
        y += GAP
    bottom = y - GAP + 4
    grid = []
    for power in range(low, high + 1):
        place = x(10**power)
        grid.append(f'<path d="M{place:.1f} {TOP - 12}V{bottom}" stroke="#ddd"/>')
        grid.append(
            f'<text class="small" x="{place:.1f}" y="{bottom + 16}" text-anchor="middle">{10.0**power:g} ms</text>'
        )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 28}" width="{WIDTH}" '
        f'height="{bottom + 28}" role="img">'
    )
    title = '<text x="8" y="20">From start to end, median; the line reaches to the 95th percentile. Logarithmic.</text>'
    return "\n".join(
        [
            head,
            f"<style>{STYLE}</style>",
            '<rect width="100%" height="100%" fill="#fff"/>',
            title,
            *grid,
            *body,
            "</svg>",
            "",
        ]
    )


def milliseconds(value):
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms" if value < 100 else f"{value:.0f} ms"
