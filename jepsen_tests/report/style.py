"""How a report looks: on light and dark screens, on narrow ones, and on paper."""

from __future__ import annotations

from typing import Final

__all__ = ["SCRIPT", "STYLE"]

STYLE: Final = """
:root { color-scheme: light dark;
  --back: #fbfbfa; --card: #ffffff; --ink: #1d2327; --soft: #5d6770; --line: #e2e5e8;
  --ok: #2a78c2; --fail: #d9860b; --info: #8a5fbf; --band: #c0392b; --good: #1f8a4c;
  --bad: #c0392b; --unsure: #b7791f;
  --n0: #4e79a7; --n1: #e0872f; --n2: #59a14f; --n3: #b07aa1; --n4: #d4a72c; --n5: #3aa6a0;
  --n6: #e15759; --n7: #9c755f; }
@media (prefers-color-scheme: dark) { :root {
  --back: #14181b; --card: #1c2226; --ink: #e7eaec; --soft: #9aa5ad; --line: #303a41;
  --ok: #5aa5ea; --fail: #eda83c; --info: #b18ae0; --band: #e8685c; --good: #45b878;
  --bad: #ee6f62; --unsure: #e0ac4f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1280px; margin: 0 auto; padding: 24px 20px 64px; }
h1 { font-size: 24px; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 16px; margin: 32px 0 8px; }
p { margin: 4px 0 12px; color: var(--soft); max-width: 78ch; }
header { display: flex; flex-wrap: wrap; gap: 8px 16px; align-items: baseline; }
.verdict { font-weight: 650; padding: 2px 12px; border-radius: 999px; border: 1.5px solid; }
.verdict.valid { color: var(--good); } .verdict.invalid { color: var(--bad); }
.verdict.inconclusive, .verdict.error { color: var(--unsure); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 10px;
  margin: 20px 0; }
.tile, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.tile { padding: 10px 14px; } .tile b { display: block; font-size: 21px; font-weight: 600;
  font-variant-numeric: tabular-nums; } .tile span { color: var(--soft); font-size: 13px; }
.card { padding: 10px 12px; overflow-x: auto; }
.repeat { display: flex; gap: 10px; align-items: center; }
code, pre { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.repeat code { flex: 1; overflow-wrap: anywhere; }
button { font: inherit; font-size: 13px; color: inherit; background: none; cursor: pointer;
  border: 1px solid var(--line); border-radius: 6px; padding: 2px 10px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: 6px 0; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 5px 12px 5px 0;
  border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; } tr:last-child td { border-bottom: 0; }
td.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
summary { cursor: pointer; } .soft { color: var(--soft); }
.tag { font-size: 12px; font-weight: 600; padding: 0 8px; border-radius: 999px;
  border: 1px solid currentColor; white-space: nowrap; }
.tag.bad { color: var(--bad); } .tag.allowed { color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 16px; font-size: 13px; color: var(--soft); }
.legend i { display: inline-block; width: 11px; height: 11px; border-radius: 2px;
  margin-right: 6px; vertical-align: -1px; }
svg { display: block; width: 100%; min-width: 720px; height: auto; }
svg text { font-size: 12px; fill: var(--soft); } svg .end { text-anchor: end; }
svg .middle { text-anchor: middle; } svg .inside { fill: #fff; font-size: 11px; }
svg .grid { stroke: var(--line); stroke-width: 1; } svg .band { fill: var(--band); opacity: .09; }
.ok { fill: var(--ok); background: var(--ok); } .fail { fill: var(--fail);
  background: var(--fail); } .info { fill: var(--info); background: var(--info); }
.fault { fill: var(--band); } .missed { fill: none; stroke: var(--soft); stroke-dasharray: 3 3; }
.gap { fill: var(--fail); } .shrunk { fill: var(--bad); } .leaderless { fill: var(--soft); }
.line { fill: none; stroke-width: 1.8; } .unseen { stroke: var(--ok); }
.lag { stroke: var(--info); } svg .lag-text { fill: var(--info); }
.node0 { fill: var(--n0); background: var(--n0); } .node1 { fill: var(--n1);
  background: var(--n1); } .node2 { fill: var(--n2); background: var(--n2); }
.node3 { fill: var(--n3); background: var(--n3); } .node4 { fill: var(--n4);
  background: var(--n4); } .node5 { fill: var(--n5); background: var(--n5); }
.node6 { fill: var(--n6); background: var(--n6); } .node7 { fill: var(--n7);
  background: var(--n7); }
.orders td { font: 12px ui-monospace, Menlo, Consolas, monospace; padding: 1px 6px;
  border: 1px solid var(--line); white-space: nowrap; }
.orders td.conflict { background: var(--bad); color: #fff; }
@media print { :root { color-scheme: light; --back: #fff; --card: #fff; --ink: #000;
  --soft: #444; --line: #ccc; --ok: #2a78c2; --fail: #d9860b; --info: #8a5fbf; }
  body { font-size: 11px; } main { max-width: none; padding: 0; } button { display: none; }
  * { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  .card, tr { break-inside: avoid; } svg { min-width: 0; } }
"""

SCRIPT: Final = """
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "copied";
  });
}
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
});
"""
