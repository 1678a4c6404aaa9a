"""Verifies tokens with Python libraries over a key set that an HTTPS server gives out.

Reads one question from standard input and writes one JSON line for each library and token, as the Go program beside it does.
"""

import importlib.metadata
import json
import ssl
import sys
import urllib.request

import jwt as pyjwt
from authlib.jose import JsonWebKey, JsonWebToken
from joserfc import jwk as joserfc_jwk
from joserfc import jwt as joserfc_jwt

ALGORITHMS = ["RS256", "ES256", "ES384"]


def keys_url(asked, context):
    """The jwks_uri of the discovery document, once it names the issuer that was asked for."""
    document = get(asked["origin"] + "/.well-known/openid-configuration", context)
    if document["issuer"] != asked["issuer"]:
        raise ValueError("the document is of issuer " + document["issuer"])
    return document["jwks_uri"]


def get(url, context):
    with urllib.request.urlopen(url, context=context, timeout=15) as answer:
        return json.load(answer)


def prepare_pyjwt(asked, context):
    """The library's own client fetches the keys."""
    client = pyjwt.PyJWKClient(keys_url(asked, context), ssl_context=context, timeout=15)
    client.get_signing_keys()

    def verify(token):
        key = client.get_signing_key_from_jwt(token)
        claims = pyjwt.decode(token, key, algorithms=ALGORITHMS, issuer=asked["issuer"], audience=asked["audience"])
        return claims["sub"]

    return verify


def prepare_authlib(asked, context):
    keys = JsonWebKey.import_key_set(get(keys_url(asked, context), context))
    reader = JsonWebToken(ALGORITHMS)
    wanted = {"iss": {"essential": True, "value": asked["issuer"]}, "aud": {"essential": True, "value": asked["audience"]}}

    def verify(token):
        claims = reader.decode(token, keys, claims_options=wanted)
        claims.validate()
        return claims["sub"]

    return verify


def prepare_joserfc(asked, context):
    keys = joserfc_jwk.KeySet.import_key_set(get(keys_url(asked, context), context))
    rules = joserfc_jwt.JWTClaimsRegistry(
        iss={"essential": True, "value": asked["issuer"]}, aud={"essential": True, "value": asked["audience"]}
    )

    def verify(token):
        verified = joserfc_jwt.decode(token, keys, algorithms=ALGORITHMS)
        rules.validate(verified.claims)
        return verified.claims["sub"]

    return verify


LIBRARIES = [
    ("PyJWT", "pyjwt", prepare_pyjwt),
    ("authlib", "authlib", prepare_authlib),
    ("joserfc", "joserfc", prepare_joserfc),
]


def answers(asked, context, prepare):
    """For each token, the subject or the refusal."""
    try:
        verify = prepare(asked, context)
    except Exception as error:  # whatever a library raises is its refusal
        return [{"refused": f"key set: {type(error).__name__}: {error}"} for _ in asked["tokens"]]
    said = []
    for token in asked["tokens"]:
        try:
            said.append({"subject": verify(token)})
        except Exception as error:
            said.append({"refused": f"{type(error).__name__}: {error}"})
    return said


def main():
    if sys.argv[1:] == ["--version"]:
        for name, package, _ in LIBRARIES:
            print(name, importlib.metadata.version(package))
        return
    asked = json.load(sys.stdin)
    context = ssl.create_default_context(cafile=asked["caFile"])
    for name, package, prepare in LIBRARIES:
        for index, answer in enumerate(answers(asked, context, prepare)):
            print(json.dumps({"verifier": name, "version": importlib.metadata.version(package), "token": index, **answer}))


main()
