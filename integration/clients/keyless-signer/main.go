// Command keyless-signer is a private Sigstore for one run: a Fulcio CA, a log of certificates, a Rekor log and a timestamp authority.
//
//	keyless-signer < REQUESTS
//
// REQUESTS is a JSON list of {"digest": "sha256:…", "issuer": "…", "subject": "…"}. It prints {"trustedRoot": …, "bundles": […]}: the trusted root of
// this run, and for each request the bundle that `cosign sign` attaches to the artifact. Every run has new keys, so two runs do not trust each other.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

type request struct {
	Digest  string `json:"digest"`
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
}

type answer struct {
	TrustedRoot json.RawMessage   `json:"trustedRoot"`
	Bundles     []json.RawMessage `json:"bundles"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "keyless-signer:", err)
		os.Exit(1)
	}
}

func run() error {
	var requests []request
	input := json.NewDecoder(os.Stdin)
	input.DisallowUnknownFields()
	if err := input.Decode(&requests); err != nil {
		return fmt.Errorf("the requests: %w", err)
	}
	sigstore, err := newSigstore()
	if err != nil {
		return err
	}
	var out answer
	if out.TrustedRoot, err = sigstore.trustedRoot(); err != nil {
		return fmt.Errorf("the trusted root: %w", err)
	}
	for _, one := range requests {
		hex, found := strings.CutPrefix(one.Digest, "sha256:")
		if !found || len(hex) != 64 {
			return fmt.Errorf("digest %q is not sha256: and 64 digits", one.Digest)
		}
		bundle, err := sigstore.sign(hex, one.Issuer, one.Subject)
		if err != nil {
			return fmt.Errorf("the signature of %s: %w", one.Digest, err)
		}
		out.Bundles = append(out.Bundles, bundle)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}
