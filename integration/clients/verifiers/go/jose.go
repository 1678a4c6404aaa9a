package main

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	josev3 "github.com/go-jose/go-jose/v3"
	jwtv3 "github.com/go-jose/go-jose/v3/jwt"
	josev4 "github.com/go-jose/go-jose/v4"
	jwtv4 "github.com/go-jose/go-jose/v4/jwt"
	josev2 "gopkg.in/go-jose/go-jose.v2"
	jwtv2 "gopkg.in/go-jose/go-jose.v2/jwt"
)

func goJoseV2(_ context.Context, asked *question, client *http.Client) (verifier, error) {
	var keys josev2.JSONWebKeySet
	if err := readKeys(client, asked, &keys); err != nil {
		return nil, err
	}
	return func(token string) (string, error) {
		parsed, err := jwtv2.ParseSigned(token)
		if err != nil {
			return "", err
		}
		var claims jwtv2.Claims
		if err := parsed.Claims(keys, &claims); err != nil {
			return "", err
		}
		expected := jwtv2.Expected{Issuer: asked.Issuer, Audience: jwtv2.Audience{asked.Audience}, Time: time.Now()}
		return claims.Subject, claims.ValidateWithLeeway(expected, 0)
	}, nil
}

func goJoseV3(_ context.Context, asked *question, client *http.Client) (verifier, error) {
	var keys josev3.JSONWebKeySet
	if err := readKeys(client, asked, &keys); err != nil {
		return nil, err
	}
	return func(token string) (string, error) {
		parsed, err := jwtv3.ParseSigned(token)
		if err != nil {
			return "", err
		}
		var claims jwtv3.Claims
		if err := parsed.Claims(keys, &claims); err != nil {
			return "", err
		}
		expected := jwtv3.Expected{Issuer: asked.Issuer, Audience: jwtv3.Audience{asked.Audience}, Time: time.Now()}
		return claims.Subject, claims.ValidateWithLeeway(expected, 0)
	}, nil
}

func goJoseV4(_ context.Context, asked *question, client *http.Client) (verifier, error) {
	var keys josev4.JSONWebKeySet
	if err := readKeys(client, asked, &keys); err != nil {
		return nil, err
	}
	return func(token string) (string, error) {
		parsed, err := jwtv4.ParseSigned(token, []josev4.SignatureAlgorithm{josev4.RS256, josev4.ES256, josev4.ES384})
		if err != nil {
			return "", err
		}
		var claims jwtv4.Claims
		if err := parsed.Claims(keys, &claims); err != nil {
			return "", err
		}
		expected := jwtv4.Expected{Issuer: asked.Issuer, AnyAudience: jwtv4.Audience{asked.Audience}, Time: time.Now()}
		return claims.Subject, claims.ValidateWithLeeway(expected, 0)
	}, nil
}

func readKeys(client *http.Client, asked *question, into any) error {
	body, err := keySet(client, asked)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}
