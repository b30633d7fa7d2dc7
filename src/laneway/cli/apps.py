"""APP on the command line: which file or module it names, and the `Laneway` in it.

What goes wrong in the user's own code is said with the exception and the last line of theirs that ran, since a
traceback would be mostly Laneway's and the import machinery's.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from laneway.cli.frames import own_line
from laneway.errors import ConfigurationError

if TYPE_CHECKING:
    from laneway.app import Laneway

__all__ = ["AppTarget", "load_app"]

_FORMS = "APP is file.py, file.py:name or module:name"


@dataclass(frozen=True)
class AppTarget:
    """What APP names.

    Attributes:
        text: as it was given.
        path: the file; None where a module was named.
        module: the name to import it by: dotted where the file belongs to a package.
        root: the folder to import it from.
        name: the variable that holds the application; None for the only one there is.
    """

    text: str
    path: Path | None
    module: str
    root: Path
    name: str | None

    @classmethod
    def parse(cls, text: str) -> AppTarget:
        """Read an APP argument. A file must exist; nothing is imported.

        Raises:
            ConfigurationError: it names no file, or cannot be an APP at all.
        """
        place, colon, name = text.rpartition(":") if ":" in text else (text, "", "")
        if colon and not all(part.isidentifier() for part in name.split(".")):
            raise ConfigurationError(f"{name!r} in APP {text!r} is no name of a variable; {_FORMS}")
        if place.endswith(".py") or "/" in place:
            path = Path(place).expanduser()
            if not path.is_file():
                what = "is a folder" if path.is_dir() else "does not exist"
                raise ConfigurationError(f"APP {text!r}: the file {place} {what}; {_FORMS}")
            module, root = _module_of(path.absolute())
            return cls(text, path.absolute(), module, root, name or None)
        if not place or not all(part.isidentifier() for part in place.split(".")):
            raise ConfigurationError(f"APP {text!r} is neither a file nor a module; {_FORMS}")
        return cls(text, None, place, Path.cwd(), name or None)

    @property
    def folder(self) -> Path:
        """The folder whose code the application is made of, as far as can be told without importing it."""
        if self.path is not None:
            return self.path.parent
        top = self.root / self.module.partition(".")[0]
        return top if top.is_dir() else self.root

    @property
    def label(self) -> str:
        """The file or module, for messages."""
        return self.text if self.name is None else self.text.rpartition(":")[0]


def load_app(target: AppTarget) -> Laneway:
    """Import an application.

    Raises:
        ConfigurationError: it does not import, or holds no `Laneway`, or several without saying which.
    """
    module = _import(target)
    from laneway.app import Laneway

    if target.name is not None:
        value: object = module
        for part in target.name.split("."):
            if not hasattr(value, part):
                raise ConfigurationError(f"{target.label} has no {target.name!r}; {_advice(target, _found(module))}")
            value = getattr(value, part)
        if not isinstance(value, Laneway):
            raise ConfigurationError(
                f"{target.name!r} in {target.label} is a {type(value).__name__}, not a Laneway; "
                f"{_advice(target, _found(module))}"
            )
        return value
    found = _found(module)
    if not found:
        raise ConfigurationError(f"{target.label} holds no Laneway; {_advice(target, found)}")
    if len(found) > 1:
        raise ConfigurationError(
            f"{target.label} holds several Laneways ({', '.join(found)}); {_advice(target, found)}"
        )
    return next(iter(found.values()))


def _found(module: ModuleType) -> dict[str, Laneway]:
    """The applications of a module, each under the first of its names."""
    from laneway.app import Laneway

    found: dict[str, Laneway] = {}
    for name, value in vars(module).items():
        if isinstance(value, Laneway) and all(value is not other for other in found.values()):
            found[name] = value
    return found


def _advice(target: AppTarget, found: dict[str, Laneway]) -> str:
    if not found:
        return "write app = Laneway(agents={'name': PydanticAdapter(agent)}) at its top level"
    return f"say {' or '.join(f'{target.label}:{name}' for name in found)}"


def _import(target: AppTarget) -> ModuleType:
    # As for a script: what stands beside the file is found first.
    if str(target.root) not in sys.path:
        sys.path.insert(0, str(target.root))
    try:
        if target.path is None or "." in target.module:
            return importlib.import_module(target.module)
        return _import_file(target.path, target.module)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and target.path is None and _is_part(error.name, target.module):
            raise ConfigurationError(
                f"APP {target.text!r}: there is no module {error.name!r} here; {_FORMS}"
            ) from error
        raise ConfigurationError(_explain(target, error)) from error


def _import_file(path: Path, name: str) -> ModuleType:
    if name in sys.modules:
        # A file called, say, `redis.py` must not take the place of a module that is in use.
        name = f"laneway_app_{name}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_of(path: Path) -> tuple[str, Path]:
    """The name of a file's module, and the folder that it is imported from: packages are imported whole."""
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.parent
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts) or path.stem, folder


def _is_part(missing: str | None, module: str) -> bool:
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def _explain(target: AppTarget, error: BaseException) -> str:
    what = "ended the process" if isinstance(error, SystemExit) else "does not import"
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    said = f"{type(error).__name__}: {message}".removesuffix(": ")
    line = own_line(error)
    return f"{target.label} {what}: {said}{f' ({line})' if line else ''}; correct it and try again"
