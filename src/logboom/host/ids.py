"""The Ids port on the operating system's random numbers."""

import secrets
from uuid import UUID, uuid4


class SystemIds:
    """Random values of this machine, fit for secrets."""

    __slots__ = ()

    def uuid(self) -> UUID:
        return uuid4()

    def below(self, bound: int) -> int:
        return secrets.randbelow(bound)
