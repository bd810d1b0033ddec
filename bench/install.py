"""Installs what only the benchmark needs. A contender that cannot be installed is skipped with a reason."""

import os
import subprocess


class Unavailable(Exception):
    """Why a contender is skipped."""


def run(command, **options):
    """Runs a command of an installation; its failure is a reason."""
    name = os.path.basename(command[0])
    try:
        return subprocess.run(command, check=True, capture_output=True, **options).stdout
    except OSError as error:
        raise Unavailable(f"{name} cannot be started: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        lines = error.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise Unavailable(f"{name} {command[1]} failed: {lines[-1].strip()}") from error


def virtual_environment(python, packages, cache, environment):
    """The interpreter of an environment with these packages, which is created once."""
    place = os.path.join(cache, "-".join(["venv", os.path.basename(python), *packages]).replace("==", "-"))
    interpreter = os.path.join(place, "bin", "python")
    if not os.path.exists(os.path.join(place, "complete")):
        # As the product does: use the certificate authorities of the system.
        environment = {**environment, "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt"}
        run(["uv", "venv", "--quiet", "--clear", "--python", python, place], env=environment)
        run(
            ["uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", interpreter, *packages],
            env=environment,
        )
        open(os.path.join(place, "complete"), "w").close()
    return interpreter
