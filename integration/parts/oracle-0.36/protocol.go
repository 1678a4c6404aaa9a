package main

import (
	"encoding/json"

	authenticated "k8s.io/apiserver/pkg/authentication/user"
)

// A question is one configuration file and tokens for it.
type question struct {
	ID     uint64 `json:"id"`
	Config string `json:"config"`
	// The issuers of the target itself, as its --service-account-issuer flags name them.
	DisallowedIssuers []string `json:"disallowed_issuers"`
	// Seconds since 1970; no other clock is read for a verdict.
	Now int64 `json:"now"`
	// What a GET of a URL answers. Every other URL refuses the connection.
	HTTP   map[string]document `json:"http"`
	Tokens []string            `json:"tokens"`
	// If set, only these expressions are evaluated.
	Observed *observed `json:"observed"`
}

// An observed holds expressions and the values of their variables.
type observed struct {
	Claims      map[string]json.RawMessage `json:"claims"`
	User        authenticated.DefaultInfo  `json:"user"`
	Expressions []expression               `json:"expressions"`
}

// An expression is one over claims, or over a user.
type expression struct {
	Scope string `json:"scope"`
	Text  string `json:"text"`
}

// A document is one HTTP answer.
type document struct {
	Status      int    `json:"status"`
	ContentType string `json:"content_type"`
	Body        string `json:"body"`
}

// An answer holds the first of load error, validation errors and tokens that there is.
type answer struct {
	ID               uint64            `json:"id"`
	LoadError        *string           `json:"load_error,omitempty"`
	ValidationErrors []validationError `json:"validation_errors,omitempty"`
	// One for each jwt entry.
	Authenticators []authenticatorState `json:"authenticators,omitempty"`
	// For each token one verdict of each jwt entry.
	Tokens [][]verdict `json:"tokens,omitempty"`
	// One for each expression.
	Observations []string `json:"observations,omitempty"`
	// The authenticator panicked, or the oracle could not do its work.
	Failure string `json:"failure,omitempty"`
}

type validationError struct {
	Field string `json:"field"`
	Type  string `json:"type"`
	Text  string `json:"text"`
}

// An authenticatorState is empty for an authenticator that is ready.
type authenticatorState struct {
	NewError string `json:"new_error,omitempty"`
	NotReady string `json:"not_ready,omitempty"`
}

// A verdict holds exactly one of its fields.
type verdict struct {
	// The token is of another issuer: the next authenticator is asked.
	Skipped bool   `json:"skipped,omitempty"`
	Error   string `json:"error,omitempty"`
	User    *user  `json:"user,omitempty"`
}

// A user is what the authenticator says, before groups such as system:authenticated are added.
type user struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}
