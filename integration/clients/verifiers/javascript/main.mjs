// Verifies tokens with JavaScript libraries over a key set that an HTTPS server gives out.
//
// Reads one question from standard input and writes one JSON line for each library and token, as the Go program beside it does.
// The CA comes by NODE_EXTRA_CA_CERTS, which is read when the process starts.

import { readFileSync } from "node:fs";

import { createRemoteJWKSet, jwtVerify } from "jose";
import jsonwebtoken from "jsonwebtoken";
import jwksRsa from "jwks-rsa";

const algorithms = ["RS256", "ES256", "ES384"];

/** The jwks_uri of the discovery document, once it names the issuer that was asked for. */
async function keysUrl(asked) {
  const answer = await fetch(`${asked.origin}/.well-known/openid-configuration`);
  const document = await answer.json();
  if (document.issuer !== asked.issuer) throw new Error(`the document is of issuer ${document.issuer}`);
  return document.jwks_uri;
}

async function prepareJose(asked) {
  const keys = createRemoteJWKSet(new URL(await keysUrl(asked)));
  return async (token) => {
    const { payload } = await jwtVerify(token, keys, { algorithms, issuer: asked.issuer, audience: asked.audience });
    return payload.sub;
  };
}

/** The pair that most Express servers use. */
async function prepareJsonwebtoken(asked) {
  const client = jwksRsa({ jwksUri: await keysUrl(asked), timeout: 15000 });
  await client.getSigningKeys();
  const keyOf = (header, done) =>
    client.getSigningKey(header.kid).then((key) => done(null, key.getPublicKey()), done);
  return (token) =>
    new Promise((resolve, reject) => {
      const rules = { algorithms, issuer: asked.issuer, audience: asked.audience };
      jsonwebtoken.verify(token, keyOf, rules, (error, claims) => (error ? reject(error) : resolve(claims.sub)));
    });
}

const libraries = [
  ["jose", "jose", prepareJose],
  ["jsonwebtoken with jwks-rsa", "jwks-rsa", prepareJsonwebtoken],
];

/** For each token, the subject or the refusal. */
async function answers(asked, prepare) {
  let verify;
  try {
    verify = await prepare(asked);
  } catch (error) {
    return asked.tokens.map(() => ({ refused: `key set: ${error}` }));
  }
  const said = [];
  for (const token of asked.tokens) {
    try {
      said.push({ subject: await verify(token) });
    } catch (error) {
      said.push({ refused: String(error) });
    }
  }
  return said;
}

/** The version that is installed, not the one that somebody meant. */
function versionOf(name) {
  return JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
}

if (process.argv[2] === "--version") {
  for (const [name, module] of libraries) console.log(name, versionOf(module));
} else {
  const asked = JSON.parse(readFileSync(0, "utf8"));
  for (const [name, module, prepare] of libraries) {
    (await answers(asked, prepare)).forEach((answer, token) => {
      console.log(JSON.stringify({ verifier: name, version: versionOf(module), token, ...answer }));
    });
  }
}
