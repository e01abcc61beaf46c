"""All modules of both packages as HTML, by pdoc, with guides and the named pages."""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import sys
import types
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pdoc.doc
import pdoc.render
from jinja2 import pass_context
from jinja2.runtime import Context
from markupsafe import Markup
from pdoc.render_helpers import link, relative_link

import ata_gym
import ata_policies
from ata_policies.registry import env_ids
from docs.site import guides, pages, search
from docs.site.links import faults

TEMPLATES = Path(__file__).parent / "templates"


class Built(NamedTuple):
    """What a build left."""

    pages: int
    """How many HTML files."""
    left_out: dict[str, str]
    """Modules that cannot be imported here, each with the reason."""
    faults: list[str]
    """Warnings of pdoc and links that lead nowhere; empty if all is well."""


def build(folder: Path, without: Collection[str] = ()) -> Built:
    """Build the reference into a folder, in place of what an earlier build left there.

    ``without`` names modules to leave out, with all below them. ValueError if the folder holds
    anything else.
    """
    _make_room(folder)
    left_out = dict.fromkeys(without, "not asked for")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries, when they are imported
        # as ``_found`` does in all others: pdoc looks for names in the module itself
        for name in ata_gym.__all__:
            setattr(ata_gym, name, getattr(ata_gym, name))
        names = [*_found(ata_gym, left_out), *_found(ata_policies, left_out)]
    pdoc.render.configure(
        docformat="google",
        include_undocumented=False,
        show_source=False,
        template_directory=TEMPLATES,
        footer_text=f"ata-gym {ata_gym.__version__}",
    )
    pdoc.render.env.globals["relative"] = relative_link
    pdoc.render.env.filters |= {
        "link": _link,
        "has_constructor": _has_constructor,
        "parts_of": lambda modules, name: [
            one for one in modules if one.rpartition(".")[0] == name
        ],
        "passed_on": _passed_on,
        "address": lambda name: _address(name, names),
        "first_sentence": lambda text: " ".join(text.split("\n\n")[0].split()),
    }
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        modules = {name: _resolve(importlib.import_module(name)) for name in names}
        texts = {
            f"{name.replace('.', '/')}.html": pdoc.render.html_module(it, modules)
            for name, it in modules.items()
        }
        sources = [
            source for titles in guides.GROUPS.values() for source in titles
        ] + guides.notebooks()
        written, pictures = guides.every([] if "docs.site.guides" in left_out else sources)
        of_modules: Any = pdoc.render.env.get_template("module.html.jinja2").make_module(
            _context(modules),
        )
        named = pages.every(names, written, left_out)
        for page in named:
            shown = pdoc.render.env.get_template(page.template)
            texts[page.file] = shown.render(
                page=page,
                is_public=of_modules.is_public,
                **_context(modules),
            )
        found = [(page.file, page.title, page.about) for page in named[1:]]
        texts["search.js"] = search.index(modules, of_modules.is_public, found)
    pictures |= {pages.picture_file(env_id): pages.env_picture(env_id) for env_id in env_ids()}
    for file, content in {**texts, **pictures}.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content.encode() if isinstance(content, str) else content)
    wrong = [*sorted({str(one.message) for one in told}), *faults(texts, pictures)]
    return Built(sum(name.endswith(".html") for name in texts), left_out, wrong)


def _context(modules: dict[str, pdoc.doc.Module]) -> dict[str, Any]:  # of pages that are no module
    return {"module": pdoc.doc.Module(types.ModuleType("index")), "all_modules": modules}


def _make_room(folder: Path) -> None:
    """Remove an earlier build."""
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / "search.js").is_file():
            raise ValueError(
                f"{folder} holds files that are not of an API reference: name another folder",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)


def _found(package: types.ModuleType, left_out: dict[str, str]) -> Iterator[str]:
    """The names of a package and its public modules; ``left_out`` gets what fails to import."""
    yield package.__name__
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if found.name in left_out or found.name.rpartition(".")[2].startswith("_"):
            continue
        try:
            module = importlib.import_module(found.name)
            # what it loads on first use may need an extra, too
            for name in getattr(
                module,
                "__all__",
                (),
            ):
                setattr(module, name, getattr(module, name))
        except ImportError as error:  # it needs an extra
            left_out[found.name] = str(error)
            continue
        if found.ispkg:
            yield from _found(module, left_out)
        else:
            yield found.name


def _resolve(module: types.ModuleType) -> pdoc.doc.Module:
    """A module as pdoc sees it, once it has the types of inherited fields."""
    for kind in [
        one for one in vars(module).values() if is_dataclass(one) and isinstance(one, type)
    ]:
        for base in kind.__mro__[1:-1]:
            held = vars(sys.modules[base.__module__]).items()
            vars(module).update(
                {
                    name: it
                    for name, it in held
                    if isinstance(it, type) and name not in vars(module)
                },
            )
    return pdoc.doc.Module(module)


def _has_constructor(one: pdoc.doc.Doc[Any]) -> bool:
    """Whether a class takes arguments in its own way: a NamedTuple takes its fields."""
    return getattr(one.obj, "__name__", "") == "__init__" and isinstance(
        one.obj,
        types.FunctionType,
    )


def _passed_on(
    module: pdoc.doc.Module,
    modules: Mapping[str, pdoc.doc.Module],
) -> list[tuple[str, str, str]]:
    """Name, address and docstring of what a package passes on that is defined in another module."""
    found = []
    listed = getattr(module.obj, "__all__", ())
    for one in module.own_members:
        where, name = one.taken_from
        if (
            one.kind != "module"
            and where != module.modulename
            and where in modules
            and one.name in listed
        ):
            found.append(
                (one.name, f"{relative_link(module.modulename, where)}#{name}", one.docstring),
            )
    return found


@pass_context
def _link(context: Context, to: tuple[str, str], text: str | None = None) -> Markup:
    """A link to what is shown, as pdoc makes it; plain text for private bases and the like."""
    (name, path), modules = to, context["all_modules"]
    if path:
        parts = path.split(".")
    else:
        parts = []
    shown = name in modules
    for end in range(1, len(parts) + 1):
        if shown:
            one = modules[name].get(".".join(parts[:end]))
        else:
            one = None
        shown = one is not None and bool(context["is_public"](one).strip())
    if shown:
        return link(context, to, text)
    return Markup.escape(text or f"{name}.{path}".strip("."))


def _address(name: str, modules: Iterable[str]) -> str:
    """Where a class is shown, as seen from a page at the top; empty if it is not."""
    module, _, attribute = name.rpartition(".")
    if module in modules:
        return f"{module.replace('.', '/')}.html#{attribute}"
    return ""
