package main

import (
	"context"
	"errors"
	"net/http"

	oidcv2 "github.com/coreos/go-oidc"
	oidcv3 "github.com/coreos/go-oidc/v3/oidc"
	"github.com/lestrrat-go/jwx/v3/jwk"
	"github.com/lestrrat-go/jwx/v3/jwt"
)

var libraries = []library{
	{"go-jose v2", "gopkg.in/go-jose/go-jose.v2", goJoseV2},
	{"go-jose v3", "github.com/go-jose/go-jose/v3", goJoseV3},
	{"go-jose v4", "github.com/go-jose/go-jose/v4", goJoseV4},
	{"go-oidc v2", "github.com/coreos/go-oidc", goOIDCv2},
	{"go-oidc v3", "github.com/coreos/go-oidc/v3", goOIDCv3},
	{"jwx v3", "github.com/lestrrat-go/jwx/v3", jwxV3},
}

var algorithms = []string{"RS256", "ES256", "ES384"}

// As kube-apiserver uses it up to 1.37: the keys come from the document's jwks_uri, the issuer is the token's.
func goOIDCv2(_ context.Context, asked *question, client *http.Client) (verifier, error) {
	url, err := keysURL(client, asked)
	if err != nil {
		return nil, err
	}
	// The key set fetches for as long as this context lives.
	ctx := oidcv2.ClientContext(context.Background(), client)
	config := &oidcv2.Config{ClientID: asked.Audience, SupportedSigningAlgs: algorithms}
	checks := oidcv2.NewVerifier(asked.Issuer, oidcv2.NewRemoteKeySet(ctx, url), config)
	return func(token string) (string, error) {
		verified, err := checks.Verify(ctx, token)
		if err != nil {
			return "", err
		}
		return verified.Subject, nil
	}, nil
}

// The stand-in for kube-apiservers after 1.37. Its algorithms are those that the discovery document states.
func goOIDCv3(_ context.Context, asked *question, client *http.Client) (verifier, error) {
	ctx := oidcv3.ClientContext(context.Background(), client)
	provider, err := oidcv3.NewProvider(oidcv3.InsecureIssuerURLContext(ctx, asked.Issuer), asked.Origin)
	if err != nil {
		return nil, err
	}
	checks := provider.Verifier(&oidcv3.Config{ClientID: asked.Audience})
	return func(token string) (string, error) {
		verified, err := checks.Verify(ctx, token)
		if err != nil {
			return "", err
		}
		return verified.Subject, nil
	}, nil
}

func jwxV3(ctx context.Context, asked *question, client *http.Client) (verifier, error) {
	url, err := keysURL(client, asked)
	if err != nil {
		return nil, err
	}
	keys, err := jwk.Fetch(ctx, url, jwk.WithHTTPClient(client))
	if err != nil {
		return nil, err
	}
	return func(token string) (string, error) {
		verified, err := jwt.ParseString(token, jwt.WithKeySet(keys), jwt.WithIssuer(asked.Issuer), jwt.WithAudience(asked.Audience))
		if err != nil {
			return "", err
		}
		subject, ok := verified.Subject()
		if !ok {
			return "", errors.New("no subject")
		}
		return subject, nil
	}, nil
}
