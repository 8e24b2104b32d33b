"""Prints how large the package's modules and functions are: python benchmarks/code_figures.py [a folder `turnlog`]."""

import ast
import sys
from collections import Counter
from pathlib import Path
from statistics import median, quantiles


def figures(root: Path) -> dict[str, object]:
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    lines = [source.count("\n") for source in sources.values()]
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    functions = [
        (node.end_lineno or 0) - node.lineno + 1
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    others = [path for path in root.rglob("*") if path.suffix in (".sql", ".js", ".css", ".html") and path.is_file()]
    return {
        "modules": len(sources),
        "modules in the root": sum(path.parent == root for path in sources),
        "lines of Python": sum(lines),
        "lines of SQL, JavaScript, CSS and HTML": sum(path.read_text(encoding="utf-8").count("\n") for path in others),
        "lines of a module (median, 90 %, largest)": _spread(lines),
        "functions": len(functions),
        "lines of a function (median, 90 %, largest)": _spread(functions),
        "names of public classes that occur twice": sum(count > 1 for count in classes.values()),
    }


def _spread(sizes: list[int]) -> str:
    return f"{median(sizes):g}, {quantiles(sizes, n=10)[-1]:g}, {max(sizes)}"


if __name__ == "__main__":
    given = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "src" / "turnlog"
    for name, value in figures(given).items():
        print(f"{name:45} {value}")
