package main

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// A release holds what differs between the releases of k8s.io/apiserver. Up to 0.31 each validation makes its own compiler of expressions.
type release struct{}

func newRelease() release {
	return release{}
}

func (release) validate(config *apiserver.AuthenticationConfiguration, disallowedIssuers []string) field.ErrorList {
	return validation.ValidateAuthenticationConfiguration(config, disallowedIssuers)
}

func (release) complete(*oidc.Options) {}
