"""SQL of a file as a part of other SQL. Knows only text."""


def bracketed(sql: str) -> str:
    """The expression in brackets. The closing one is on a line of its own, since SQL may end in a comment (`-- why`),
    which would take it along.

    >>> bracketed("body IS NULL -- nothing was said")
    '(\\nbody IS NULL -- nothing was said\\n)'
    """
    return f"(\n{sql}\n)"
