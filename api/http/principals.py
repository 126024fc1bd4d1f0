"""Who sends a request: what the caller may do, and what it sees."""

from dataclasses import dataclass, field
from typing import Self

from api.http.problems import forbidden
from api.settings import Settings
from api.storage.keys import SCOPES, Key


@dataclass(frozen=True)
class Principal:
    """The caller of a request."""

    owner: str  # id of the key, which owns what the caller submits; "" without keys
    scopes: frozenset[str]  # implied ones included
    roots: frozenset[str] | None = None  # that it may use; None for all
    name: str = ""  # of the key
    digest: str = field(default="", repr=False)  # of the secret that it has shown

    @classmethod
    def of(cls, key: Key, digest: str) -> Self:
        """The caller that has shown a secret of a key."""
        scopes = frozenset(name for name in SCOPES if key.allows(name))
        return cls(key.id, scopes, key.roots, key.name, digest)

    @property
    def sees_all(self) -> bool:
        """Whether the caller sees the jobs of all keys."""
        return "read-all" in self.scopes

    def may_use(self, root: str | None) -> bool:
        """Whether the caller may use a root; None is an upload, which is of none."""
        return self.roots is None or root is None or root in self.roots

    def within(self, settings: Settings) -> Settings:
        """The settings with only the roots that the caller may use."""
        if self.roots is None:
            return settings
        roots = {name: place for name, place in settings.roots.items() if self.may_use(name)}
        return settings.model_copy(update={"roots": roots})

    def manages(self, owner: str) -> bool:
        """Whether the caller may cancel and delete the jobs of an owner."""
        return "admin" in self.scopes or ("write" in self.scopes and owner == self.owner)

    def oversees(self, owner: str) -> bool:
        """Whether the caller sees what others decided about the jobs of an owner."""
        return self.sees_all or owner == self.owner

    def require(self, scope: str) -> None:
        """Refuses a caller who lacks a scope."""
        if scope not in self.scopes:
            raise forbidden(
                f"the key has the scopes {', '.join(sorted(self.scopes))}, this needs {scope}",
                f"use a key made with `--scopes {scope}`",
            )


ANONYMOUS = Principal("", frozenset(SCOPES))  # the caller where there are no keys
