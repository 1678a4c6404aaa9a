package main

import (
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// A release holds what differs between the releases of k8s.io/apiserver. Since 0.32 a compiler of expressions is made once and passed in.
type release struct {
	compiler authenticationcel.Compiler
}

func newRelease() release {
	return release{compiler: authenticationcel.NewDefaultCompiler()}
}

func (r release) validate(config *apiserver.AuthenticationConfiguration, disallowedIssuers []string) field.ErrorList {
	return validation.ValidateAuthenticationConfiguration(r.compiler, config, disallowedIssuers)
}

func (r release) complete(options *oidc.Options) {
	options.Compiler = r.compiler
}
