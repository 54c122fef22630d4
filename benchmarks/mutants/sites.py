"""Places where one line can be wrong in a plausible way, read off the syntax tree so that nothing else changes."""

from __future__ import annotations

import ast
from dataclasses import dataclass

SWAPPED = {
    ast.Add: ("+", "-", "sign"), ast.Sub: ("-", "+", "sign"), ast.Mult: ("*", "/", "factor"), ast.Div: ("/", "*", "factor"),
    ast.FloorDiv: ("//", "*", "factor"), ast.BitAnd: ("&", "|", "condition"), ast.BitOr: ("|", "&", "condition"),
}
COMPARED = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"), ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
}
EXTREMES = {
    "min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum", "argmin": "argmax", "argmax": "argmin", "ceil": "floor",
    "floor": "ceil", "any": "all", "all": "any",
}


@dataclass(frozen=True, slots=True)
class Site:
    """One edit: columns ``begin`` to ``end`` of a line become ``after``."""

    kind: str
    line: int
    begin: int
    end: int
    after: str


def sites(text: str) -> list[Site]:
    """Every site of a source, in its order.

    Errors:  ``SyntaxError`` where the text is no Python.
    """
    walker = _Walker(text)
    walker.visit(ast.parse(text))
    return sorted(set(walker.found), key=lambda site: (site.line, site.begin, site.after))


def mutated(text: str, site: Site) -> str:
    """The source with one line changed."""
    lines = text.splitlines(keepends=True)
    line = lines[site.line - 1].encode()
    lines[site.line - 1] = (line[: site.begin] + site.after.encode() + line[site.end :]).decode()
    return "".join(lines)


class _Walker(ast.NodeVisitor):
    """Collects sites; annotations, imports for types, messages and doc strings are no formulas."""

    def __init__(self, text: str) -> None:
        self.lines = [line.encode() for line in text.splitlines()]
        self.found: list[Site] = []

    def visit_If(self, node: ast.If) -> None:
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self._negated(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negated(node.test)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        alias = isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
        if node.value is not None and not alias:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)):
            self.visit(default)
        for each in node.body:
            self.visit(each)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in SWAPPED and not (isinstance(node.op, ast.Add) and _texts(node)):
            before, after, kind = SWAPPED[type(node.op)]
            self._between(node.left, node.right, before, after, kind)
        for each in (node.left, node.right):
            if isinstance(each, ast.Constant) and type(each.value) in (int, float) and not isinstance(node.op, ast.Pow):
                self._place("factor" if isinstance(node.op, ast.Mult | ast.Div) else "one more", each, _more(each.value))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._place("condition", node, f"bool({self._of(node.operand)})" if self._of(node.operand) else None)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, before, after, "condition")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, op, right in zip((node.left, *node.comparators), node.ops, node.comparators, strict=False):
            if type(op) in COMPARED:
                self._between(left, right, *COMPARED[type(op)], "comparison")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        index = node.slice
        if isinstance(index, ast.Constant) and type(index.value) is int:
            self._place("index", index, str(index.value + 1))
        if isinstance(index, ast.UnaryOp) and isinstance(index.operand, ast.Constant) and index.operand.value == 1:
            self._place("index", index, "0")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func
        word = name.id if isinstance(name, ast.Name) else name.attr if isinstance(name, ast.Attribute) else ""
        if word in EXTREMES and name.end_lineno == name.lineno:
            end = name.end_col_offset or 0
            self.found.append(Site("extreme", name.lineno, end - len(word), end, EXTREMES[word]))
        if word == "range" and len(node.args) == 1:
            self._place("one more", node.args[0], f"{self._of(node.args[0])} + 1")
        if word in ("fault", "Message", "finding"):
            return
        for keyword in node.keywords:
            if keyword.arg == "axis" and isinstance(keyword.value, ast.Constant) and keyword.value.value in (0, 1):
                self._place("index", keyword.value, str(1 - int(keyword.value.value)))
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Columns inside of f-strings are not told by every Python."""

    def _of(self, node: ast.expr) -> str | None:
        """The text of an expression on one line."""
        if node.end_lineno != node.lineno:
            return None
        return self.lines[node.lineno - 1][node.col_offset : node.end_col_offset].decode()

    def _place(self, kind: str, node: ast.expr, after: str | None) -> None:
        if after is not None and node.end_lineno == node.lineno:
            self.found.append(Site(kind, node.lineno, node.col_offset, node.end_col_offset or 0, after))

    def _negated(self, test: ast.expr) -> None:
        plain = not isinstance(test, ast.Compare | ast.BoolOp | ast.NamedExpr)
        if plain and self._of(test) and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
            self._place("condition", test, f"(not {self._of(test)})")

    def _between(self, left: ast.expr, right: ast.expr, before: str, after: str, kind: str) -> None:
        """The operator between two operands, where both ends of the gap stand on one line."""
        if left.end_lineno != right.lineno or left.end_col_offset is None:
            return
        gap = self.lines[right.lineno - 1][left.end_col_offset : right.col_offset].decode()
        if gap.count(before) == 1:
            begin = left.end_col_offset + len(gap[: gap.index(before)].encode())
            self.found.append(Site(kind, right.lineno, begin, begin + len(before), after))


def _texts(node: ast.BinOp) -> bool:
    """Whether words are joined rather than numbers added."""
    return any(isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
               for each in (node.left, node.right))


def _more(value: float) -> str:
    """One more of a count; one and a half of a factor that is no count."""
    return str(value + 1) if isinstance(value, int) else repr(value * 1.5)


