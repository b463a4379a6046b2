"""Where the peers' programs are found, and how to get those that no package brings.

    python -m bench.served.places            what is here, and how to get the rest
    python -m bench.served.places kafka      Kafka's jars, from Maven by name
    python -m bench.served.places nats       NATS's server, from Go's module proxy

They go to $VIRTA_BENCH_PEERS, by default ~/.cache/virta-bench. Nothing is fetched unasked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench.harness import Unavailable

KAFKA_VERSION = "4.1.0"
NATS_MODULE = "github.com/nats-io/nats-server/v2@v2.15.2"
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>virta.bench</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies><dependency>
    <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version>
  </dependency></dependencies>
</project>
"""


def home() -> Path:
    return Path(os.environ.get("VIRTA_BENCH_PEERS") or Path.home() / ".cache" / "virta-bench")


def program(name: str, hint: str) -> str:
    """A program's path; Unavailable, with how to get it, where there is none."""
    found = shutil.which(name) or shutil.which(name, path=str(home() / "bin"))
    if found is None:
        raise Unavailable(f"{name} is not installed: {hint}")
    return found


def nats() -> str:
    return program("nats-server", "apt install nats-server, or python -m bench.served.places nats (needs go)")


def redis() -> str:
    return program("redis-server", "apt install redis-server")


def kafka() -> tuple[str, str]:
    """Java, and the class path of Kafka."""
    java = program("java", "apt install default-jre-headless (17 or newer)")
    jars = home() / "kafka" / KAFKA_VERSION
    if not any(jars.glob("kafka_2.13-*.jar")):
        raise Unavailable(f"Kafka's jars are not in {jars}: python -m bench.served.places kafka (needs mvn)")
    return java, f"{jars}/*"


def fetch_kafka() -> None:
    """Kafka and everything it depends on, through this machine's Maven."""
    maven = program("mvn", "apt install maven")
    jars = home() / "kafka" / KAFKA_VERSION
    jars.mkdir(parents=True, exist_ok=True)
    (jars / "pom.xml").write_text(POM)
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    subprocess.run(command, cwd=jars, check=True)


def fetch_nats() -> None:
    """NATS's server, built by this machine's Go."""
    go = program("go", "apt install golang-go, or a newer one from go.dev")
    target = home() / "bin"
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run([go, "install", NATS_MODULE], env={**os.environ, "GOBIN": str(target)}, check=True)


def main(wanted: list[str]) -> None:
    fetchers = {"kafka": fetch_kafka, "nats": fetch_nats}
    for name in wanted:
        if name not in fetchers:
            sys.exit(f"there is {' and '.join(fetchers)} to fetch, not {name!r}")
        fetchers[name]()
    for name, find in {"redis": redis, "nats": nats, "kafka": kafka}.items():
        try:
            found = find()
        except Unavailable as missing:
            print(f"{name}: {missing}")
        else:
            print(f"{name}: {found if isinstance(found, str) else found[1]}")


if __name__ == "__main__":
    main(sys.argv[1:])
