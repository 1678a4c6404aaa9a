"""Runs schemathesis against a running Keyferry, with the settings of a JSON file."""

import json
import os
import subprocess
import sys
import tempfile

import requests

CONFIG = """
tls-verify = {ca}

[auth.openapi.callerToken]
bearer = {caller}

[auth.openapi.inputBearer]
bearer = {token}

[auth.openapi.inputBasic]
username = {name}
password = {token}

# A form that fits the schema can still hold a token that is none: RFC 8693 section 2.2.2 says 400.
[[operations]]
include-path = "/v1/token"
checks = {{ positive_data_acceptance = {{ enabled = false }} }}
"""

# Names that exist, so that the answers with content are compared too.
EXISTING = """
[[operations]]
include-path-regex = "^/api/v2/flux/clusters/"
parameters = {{ dns = {dns} }}

[[operations]]
include-path-regex = "^/api/v2/flux/namespaces/"
parameters = {{ namespace = {namespace} }}
"""


def run(settings: dict, config: str, seed: int) -> int:
    program = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "schemathesis.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(config)
        # From a file, because the path that a document is loaded from is left out of a run.
        document = os.path.join(folder, "openapi.json")
        with open(document, "wb") as file:
            address = settings["url"] + "/openapi.json"
            file.write(requests.get(address, verify=settings["certificateAuthority"]).content)
        command = [
            program, "--config-file", path, "run", document,
            "--url", settings["url"], "--max-examples", "40", "--workers", "2",
            "--seed", str(seed), "--no-color",
        ]
        return subprocess.run(command, check=False, cwd=folder).returncode


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    # A JSON string is a TOML string.
    values = {
        "ca": "certificateAuthority", "caller": "callerToken", "name": "credential",
        "token": "credentialToken", "dns": "clusterDNS", "namespace": "namespace",
    }
    values = {name: json.dumps(settings[key]) for name, key in values.items()}
    made_up = CONFIG.format(**values)
    existing = made_up + EXISTING.format(**values)
    return run(settings, made_up, 1) or run(settings, existing, 2)


if __name__ == "__main__":
    sys.exit(main())
