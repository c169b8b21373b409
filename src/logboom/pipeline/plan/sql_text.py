"""Inserts SQL of a file in other SQL. Knows only text."""


def bracketed(sql: str) -> str:
    """The expression in brackets. The closing bracket is on its own line, because the SQL may end in a comment (`--
    why`), which would include it.

    >>> bracketed("body IS NULL -- nothing was said")
    '(\\nbody IS NULL -- nothing was said\\n)'
    """
    return f"(\n{sql}\n)"
