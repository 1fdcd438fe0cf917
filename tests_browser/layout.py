"""What a page looks like to a reader's eye, measured in the browser: where every word, line and bar is, and its colours."""

from __future__ import annotations

from typing import Any

from selenium import webdriver

TEXTS = """
const seen = element => element.checkVisibility({contentVisibilityAuto: true, visibilityProperty: true, opacityProperty: true});
const texts = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  const parent = node.parentElement;
  if (!node.data.trim() || parent.closest('title, desc, style') || !seen(parent)) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  const boxes = parent instanceof SVGElement ? [parent.getBoundingClientRect()] : Array.from(range.getClientRects());
  for (const box of boxes) if (box.width > 0.5 && box.height > 0.5) texts.push({node, parent, box, text: node.data.trim().slice(0, 60)});
}
"""
# Boxes of two words that meet; those of one line may touch, so a pixel does not count.
WORDS_ON_WORDS = """
const met = [];
const rows = texts.slice().sort((a, b) => a.box.top - b.box.top);
for (let i = 0; i < rows.length; i++) {
  for (let j = i + 1; j < rows.length && rows[j].box.top < rows[i].box.bottom - 1; j++) {
    const [a, b] = [rows[i].box, rows[j].box];
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - b.top > 1)
      met.push([rows[i].text, rows[j].text]);
  }
}
return met;
"""
# Words that a drawn line, bar, curve, dot or band runs through: points along each of them, half its stroke on both sides.
WORDS_ON_DRAWINGS = """
const met = [];
for (const shape of document.querySelectorAll('svg line, svg path, svg circle, svg rect, svg polyline')) {
  if (!seen(shape)) continue;
  const style = getComputedStyle(shape), matrix = shape.getScreenCTM();
  const half = style.stroke === 'none' ? 0 : parseFloat(style.strokeWidth) / 2;
  const around = shape.getBoundingClientRect();
  const near = texts.filter(t => t.box.left < around.right + half && t.box.right > around.left - half
    && t.box.top < around.bottom + half && t.box.bottom > around.top - half);
  if (!near.length) continue;
  const length = shape.getTotalLength(), count = Math.max(2, Math.min(3000, Math.ceil(Math.max(around.width, around.height))));
  const points = Array.from({length: count + 1}, (_, i) => shape.getPointAtLength(length * i / count).matrixTransform(matrix));
  const back = matrix.inverse();
  for (const {box, text} of near) {
    const crossed = points.some(p => p.x > box.left - half && p.x < box.right + half && p.y > box.top - half && p.y < box.bottom + half);
    const corners = [[box.left, box.top], [box.right, box.top], [box.left, box.bottom], [box.right, box.bottom],
      [(box.left + box.right) / 2, (box.top + box.bottom) / 2]];
    const filled = style.fill !== 'none' && corners.some(([x, y]) => shape.isPointInFill(new DOMPoint(x, y).matrixTransform(back)));
    if (crossed || filled) met.push([text, shape.tagName + '.' + shape.getAttribute('class')]);
  }
}
return met;
"""
# Words that a border of a table, a card or a heading runs through.
WORDS_ON_BORDERS = """
const met = [];
const edges = [];
for (const element of document.body.querySelectorAll('*')) {
  if (element instanceof SVGElement || !seen(element)) continue;
  const style = getComputedStyle(element), box = element.getBoundingClientRect();
  const wide = side => style['border' + side + 'Style'] === 'none' ? 0 : parseFloat(style['border' + side + 'Width']);
  if (wide('Top')) edges.push([box.left, box.right, box.top, box.top + wide('Top'), element]);
  if (wide('Bottom')) edges.push([box.left, box.right, box.bottom - wide('Bottom'), box.bottom, element]);
  if (wide('Left')) edges.push([box.left, box.left + wide('Left'), box.top, box.bottom, element]);
  if (wide('Right')) edges.push([box.right - wide('Right'), box.right, box.top, box.bottom, element]);
}
for (const {box, text} of texts)
  for (const [left, right, top, bottom, element] of edges)
    if (box.left < right && box.right > left && box.top < bottom && box.bottom > top) met.push([text, element.tagName]);
return met;
"""
# Words whose colour differs too little from what is behind them.
FAINT = """
const parts = colour => { const [r, g, b, a = 1] = colour.match(/[0-9.]+/g).map(Number); return [r, g, b, a]; };
const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3])).concat(1);
const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
const behind = element => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) layers.push(parts(getComputedStyle(at).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
};
const faint = [];
for (const {parent, text} of texts) {
  const style = getComputedStyle(parent), ground = behind(parent);
  const ink = over(parts(parent instanceof SVGElement ? style.fill : style.color), ground);
  const [a, b] = [light(ink), light(ground)].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) faint.push([text, ratio]);
}
return faint;
"""
SIDEWAYS = """
const wide = [document.documentElement, ...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth + 1);
return wide.map(e => e.tagName + ' ' + e.scrollWidth + ' > ' + e.clientWidth);
"""
BEYOND = """
const wide = document.documentElement.clientWidth;
return texts.filter(t => t.box.left < -0.5 || t.box.right > wide + 0.5).map(t => t.text);
"""
SAID = "return texts.map(t => t.node.data).join(' ');"


def measured(browser: webdriver.Chrome, question: str) -> list[Any]:
    """The answer of the page that is shown to one of the questions above."""
    found = browser.execute_script(TEXTS + question)
    assert isinstance(found, list)
    return found


def said(browser: webdriver.Chrome) -> str:
    """All words that can be seen."""
    return str(browser.execute_script(TEXTS + SAID))


def opened(browser: webdriver.Chrome) -> None:
    """Open everything that is folded."""
    browser.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true; });")
