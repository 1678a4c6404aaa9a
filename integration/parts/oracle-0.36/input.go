package main

import (
	"context"
	"encoding/json"
	_ "unsafe" // For go:linkname.

	"github.com/google/cel-go/common/types/ref"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	authenticated "k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/cel/lazy"
	_ "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// The authenticator makes the variables of expressions with these. Since 0.34 each claim is decoded when it is used.

//go:linkname newClaimsValue k8s.io/apiserver/plugin/pkg/authenticator/token/oidc.newClaimsValue
func newClaimsValue(claims map[string]json.RawMessage) *lazy.MapValue

//go:linkname newUserInfoValue k8s.io/apiserver/plugin/pkg/authenticator/token/oidc.newUserInfoValue
func newUserInfoValue(info authenticated.Info) *lazy.MapValue

func evaluateClaims(compiled authenticationcel.CompilationResult, claims map[string]json.RawMessage) (ref.Val, error) {
	mapper := authenticationcel.NewClaimsMapper([]authenticationcel.CompilationResult{compiled})
	result, err := mapper.EvalClaimMapping(context.Background(), newClaimsValue(claims))
	return result.EvalResult, err
}

func evaluateUser(compiled authenticationcel.CompilationResult, info authenticated.DefaultInfo) (ref.Val, error) {
	mapper := authenticationcel.NewUserMapper([]authenticationcel.CompilationResult{compiled})
	results, err := mapper.EvalUser(context.Background(), newUserInfoValue(&info))
	if err != nil {
		return nil, err
	}
	return results[0].EvalResult, nil
}
