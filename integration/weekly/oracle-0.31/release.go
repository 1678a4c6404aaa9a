package main

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// A release holds what differs between the releases of k8s.io/apiserver. Up to 0.31 each validation makes its own compiler of expressions.
type release struct {
	// As each validation makes it.
	compiler authenticationcel.Compiler
}

func newRelease() release {
	return release{compiler: authenticationcel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion(), true))}
}

func (release) validate(config *apiserver.AuthenticationConfiguration, disallowedIssuers []string) field.ErrorList {
	return validation.ValidateAuthenticationConfiguration(config, disallowedIssuers)
}

func (release) complete(*oidc.Options) {}
