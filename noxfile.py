"""The sessions of the project: conformance, tests, vectors, lint, types, package and others."""

import re
import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
# pip, not uv, because pip finds the CPU build of the pinned PyTorch.
nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["lint", "types", "tests", "package"]

ROOT = Path(__file__).parent
RESULTS = ROOT / "results"
FOLDERS = ("spec", "reference", "backends", "conformance", "tests", "tools", "examples", "site", "noxfile.py")
#: What is known of each library: its pinned releases, its backends, and the session that judges them.
TABLE = nox.project.load_toml(ROOT / "backends" / "libraries.toml")
#: The array libraries that each session of `conformance` judges. Their names are also those of extras.
LIBRARIES: dict[str, list[str]] = {}
for _name, _library in TABLE.items():
    if "package" in _library:
        LIBRARIES.setdefault(_library.get("session", _name), []).append(_name)
#: The releases of array libraries that our own runs pin.
PINNED = {name: TABLE[name]["requires"][0] for name in LIBRARIES if "requires" in TABLE[name]}
#: Other libraries, each with the requirements of its backends, which have the same name or begin with it.
SEPARATE = {
    name: [
        *library.get("requires", ()),
        *(requirement for other in library.get("beside", ()) for requirement in TABLE[other]["requires"]),
    ]
    for name, library in TABLE.items()
    if "backends" in library and "package" not in library
}
#: Options of pytest that use all cores.
PARALLEL = ("-n", "auto", "--dist", "worksteal")
#: The results of this run, in the order of the sessions. The table leaves out results of earlier runs.
WRITTEN: list[Path] = []
#: The most octets of the wheel.
MOST_OCTETS = 5_000_000
GROUPS = nox.project.load_toml(ROOT / "pyproject.toml")


def group(name: str) -> list[str]:
    """Return the requirements of a dependency group."""
    return nox.project.dependency_groups(GROUPS, name)


def pinned(*libraries: str) -> list[str]:
    """Return the requirements that pin some of the libraries."""
    return [PINNED[library] for library in libraries if library in PINNED]


@nox.session(venv_backend="none")
def conformance(session: nox.Session) -> None:
    """Judge the backends of each library in a separate environment, and print one table.

    `-- --backend module:function` judges a function, in the environment of the library
    that it imports or that `--array` names. `-- --program COMMAND` judges a program.
    """
    own, rest = _own_backends(session.posargs)
    # The module is searched in the folder from which nox was called.
    needed = [_library_of(own, rest, Path(session.invoked_from))] if own else [*LIBRARIES]
    if not set(needed) <= set(LIBRARIES):
        session.error(f"--array: expected one of {', '.join(LIBRARIES)}, got {needed[0] or 'nothing'}")
    # nox empties the environment of every session that it runs, so that others are not even begun.
    for library in needed:
        session.notify(f"judge({library})", session.posargs)


@nox.session
@nox.parametrize("library", [nox.param(name, id=name) for name in LIBRARIES])
def judge(session: nox.Session, library: str) -> None:
    """Judge in the environment of one library: the part of `conformance` that is about it."""
    own, rest = _own_backends(session.posargs)
    extras = ",".join(dict.fromkeys([library, *(LIBRARIES[library] if not own else ())]))
    session.install("--editable", f"{ROOT}[{extras}]", *pinned(library))
    results = RESULTS / f"{'own' if own else library}.jsonl"
    results.unlink(missing_ok=True)
    if not own:
        WRITTEN.append(results)
        # One table at the end, for all libraries of this run.
        session.notify("table")
    session.chdir(session.invoked_from)
    if not any(word.startswith("-n") for word in rest):
        rest = ["-n", "auto", *rest]
    session.run("attnspec", "check", *(own or LIBRARIES[library]), "--results", str(results), *rest)


@nox.session
@nox.parametrize("library", [nox.param(name, id=name) for name in SEPARATE])
def libraries(session: nox.Session, library: str) -> None:
    """Judge the backends of other libraries, each in a separate environment, and print one table.

    `-s "libraries(onnx)"` judges those of one library. Options after `--` are those of `attnspec check`.
    """
    if TABLE[library].get("gpu") and not shutil.which("nvidia-smi"):
        session.skip(f"{library} needs a GPU of NVIDIA")
    session.install("--editable", str(ROOT), *SEPARATE[library])
    results = RESULTS / f"{library}.jsonl"
    results.unlink(missing_ok=True)
    WRITTEN.append(results)
    session.notify("table")
    if packages := TABLE[library].get("npm"):
        session.chdir(session.create_tmp())
        session.run("npm", "install", "--no-save", *packages, external=True)
    session.run("attnspec", "check", library, "-n", "auto", "--results", str(results), *session.posargs)


@nox.session
def table(session: nox.Session) -> None:
    """Print the levels of the conformance runs and where they depart from `core`."""
    session.install(str(ROOT))
    files = [path for path in WRITTEN or sorted(RESULTS.glob("*.jsonl")) if path.exists()]
    # The status of the run is that of the table, which is printed whether or not the pages can be written.
    pages = ("--html", str(RESULTS / "html"))
    session.run("attnspec", "report", *map(str, files), *pages, success_codes=[0, 2])
    session.run("attnspec", "table", "--rest", str(RESULTS / "table.txt"), *map(str, files))


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests of this project, with every library, but those that are exhaustive."""
    _install_for_tests(session)
    # The tests use the installed package, as users do. From this folder its sources would be found first.
    session.run("pytest", *PARALLEL, "tests", *session.posargs)
    # Adapters of libraries that have an environment of their own cannot be imported here.
    doctests = ("--doctest-modules", "--doctest-ignore-import-errors", "--ignore-glob=*/conformance/test_*")
    session.run("pytest", "-q", *doctests, "--pyargs", "attnspec")
    session.run("pytest", "-q", "--doctest-glob=*.md", "spec", "README.md", "CONTRIBUTING.md")


@nox.session
def exhaustive(session: nox.Session) -> None:
    """Run every test, with those that are exhaustive."""
    _install_for_tests(session)
    session.run("pytest", *PARALLEL, "-m", "", "tests", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Run the tests with coverage, which takes twice the time because it traces every process."""
    _install_for_tests(session)
    session.run("coverage", "run", "-m", "pytest", *PARALLEL, "tests", *session.posargs)
    session.run("coverage", "combine", "--quiet")
    session.run("coverage", "report", "--skip-covered")


@nox.session
def browser(session: nox.Session) -> None:
    """Test the pages of results in Chromium, which must be installed."""
    session.install(str(ROOT), *group("tests"), *group("browser"), *group("site"))
    session.run("pytest", "-rs", "tests/browser", *session.posargs)


@nox.session
def vectors(session: nox.Session) -> None:
    """Rewrite the golden vectors and the expected values. `-- --check` fails if bytes would change."""
    session.install("--editable", f"{ROOT}[vectors]")
    session.run("attnspec", "vectors", "write", str(ROOT / "spec" / "vectors"), *session.posargs)
    session.run("attnspec", "vectors", "lint", str(ROOT / "spec" / "vectors"))
    if "--only" not in session.posargs:
        session.run("attnspec", "vectors", "expected", str(ROOT / "conformance" / "suite"), *session.posargs)


@nox.session
def gallery(session: nox.Session) -> None:
    """Judge the suite: it must fail every wrong implementation of the gallery, and no correct one.

    `-- --quick` uses the quick part of the suite. `-- NAME` uses one implementation.
    """
    session.install("--editable", str(ROOT))
    session.run("python", "-m", "tools.gallery", *session.posargs)


@nox.session
def evidence(session: nox.Session) -> None:
    """Print which algorithms and faults the error budget accepts: the tables of spec/evidence.md."""
    session.install(f"{ROOT}[torch,jax,vectors]", *PINNED.values())
    session.run("python", "-m", "tools.evidence", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def rivals(session: nox.Session) -> None:
    """Judge the gallery by the rules of other projects. `-- --write` writes conformance/acceptance.md."""
    session.install(str(ROOT), *group("tests"))
    session.run("python", "-m", "tools.rivals", *session.posargs)


@nox.session
def dialects(session: nox.Session) -> None:
    """Print the tables of spec/dialects.md from the declared deviations. `-- --write` writes them."""
    session.install(f"{ROOT}[torch,jax]", *PINNED.values())
    session.run("python", "-m", "tools.dialects", *session.posargs)


@nox.session
def findings(session: nox.Session) -> None:
    """Run the scripts of backends/findings on PyTorch and JAX, and write their pages into build/findings."""
    session.install(f"{ROOT}[torch,jax]", *PINNED.values())
    session.run("python", "-m", "tools.findings", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Time the reference, the judge and the suite on each backend: the times of RESULTS.md."""
    session.install(f"{ROOT}[numpy,strict,dask,torch,jax]", *group("bench"), *PINNED.values())
    session.run("python", "-m", "tools.benchmark", *session.posargs)


@nox.session
def site(session: nox.Session) -> None:
    """Build the site in build/site/html, from this clone. Options after `--` are those of site/build.py."""
    session.install(str(ROOT), *group("site"))
    session.run("python", str(ROOT / "site" / "build.py"), *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and formatting. `-- --fix` corrects what can be corrected automatically."""
    session.install(*group("lint"))
    fix = "--fix" in session.posargs
    session.run("ruff", "check", *(["--fix"] if fix else []), *FOLDERS)
    session.run("ruff", "format", *([] if fix else ["--check"]), *FOLDERS)


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of the installed package."""
    session.install(f"{ROOT}", *group("types"))
    session.run("mypy", "-p", "attnspec")


@nox.session
def package(session: nox.Session) -> None:
    """Build sdist and wheel, and test the wheel and an editable install from another folder."""
    session.install(*group("package"))
    elsewhere = Path(session.create_tmp())
    shutil.rmtree(elsewhere / "dist", ignore_errors=True)
    session.run("python", "-m", "build", "--outdir", str(elsewhere / "dist"), str(ROOT))
    (wheel,) = (elsewhere / "dist").glob("*.whl")
    if (octets := wheel.stat().st_size) > MOST_OCTETS:
        session.error(f"{wheel.name}: expected at most {MOST_OCTETS} octets, got {octets}")
    suite = ("pytest", "-q", "--pyargs", "attnspec.conformance", "--backend", "numpy", "--quick")
    # A wheel computes most expected values, here of some forms. The tests compare all with their digests.
    forms = ("MASK-6", "ERR-1", "GRAD-19", "LATENT-1", "PAGE-1", "QUANT-4")
    for source, rules in (([str(wheel)], forms), (["--editable", str(ROOT)], forms[:1])):
        part = [word for rule in rules for word in ("--rule", rule)]
        session.run("python", "-m", "pip", "uninstall", "--yes", "attnspec")
        session.install(*source)
        with session.chdir(elsewhere):
            session.run(*suite, *part)
            session.run("attnspec", "explain", "MASK-6")
            session.run("attnspec", "smoke", "numpy-portable")


def _install_for_tests(session: nox.Session) -> None:
    """Install this project with the libraries of its tests."""
    extras = f"{ROOT}[numpy,strict,dask,torch,jax,vectors]"
    session.install("--editable", extras, *group("tests"), *group("site"), *PINNED.values())


def _own_backends(words: list[str]) -> tuple[list[str], list[str]]:
    """Split the words after `--` into requested backends and the rest."""
    own: list[str] = []
    rest: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word == "--backend":
            own.append(next(remaining, ""))
        elif word.startswith("--backend="):
            own.append(word.removeprefix("--backend="))
        elif word == "--program":
            own.append(f"program:{next(remaining, '')}")
        elif word.startswith("--program="):
            own.append(f"program:{word.removeprefix('--program=')}")
        elif word == "--array":
            rest.append(f"--array={next(remaining, '')}")
        else:
            rest.append(word)
    return own, rest


def _library_of(own: list[str], rest: list[str], here: Path) -> str:
    """Return the library that the given backends need: the named one, or the one that they import."""
    for word in rest:
        if word.startswith("--array="):
            return word.removeprefix("--array=")
    for name in own:
        module = name.partition(":")[0]
        if (here / name / "attnspec.toml").exists():
            backend = nox.project.load_toml(here / name / "attnspec.toml").get("backend", {})
            module = backend.get("array") or str(backend.get("function", "")).partition(":")[0]
            here /= name
        if module.partition("-")[0] in LIBRARIES:
            return module.partition("-")[0]
        source = here.joinpath(*module.split("."))
        for path in (source.with_suffix(".py"), source / "__init__.py"):
            found = (
                re.search(rf"^\s*(?:import|from)\s+({'|'.join(PINNED)})\b", path.read_text(), re.MULTILINE)
                if path.exists()
                else None
            )
            if found:
                return found[1]
    return "numpy"
