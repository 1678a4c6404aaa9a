package main

import (
	"context"
	"encoding/json"
	_ "unsafe" // For go:linkname.

	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	authenticated "k8s.io/apiserver/pkg/authentication/user"
	_ "k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// The authenticator makes the variables of expressions with these. Up to 0.33 all claims are decoded at once.

//go:linkname convertObjectToUnstructured k8s.io/apiserver/plugin/pkg/authenticator/token/oidc.convertObjectToUnstructured
func convertObjectToUnstructured(object interface{}) (*unstructured.Unstructured, error)

//go:linkname convertUserInfoToUnstructured k8s.io/apiserver/plugin/pkg/authenticator/token/oidc.convertUserInfoToUnstructured
func convertUserInfoToUnstructured(info authenticated.Info) (*unstructured.Unstructured, error)

func evaluateClaims(compiled authenticationcel.CompilationResult, claims map[string]json.RawMessage) (ref.Val, error) {
	input, err := convertObjectToUnstructured(&claims)
	if err != nil {
		return nil, err
	}
	mapper := authenticationcel.NewClaimsMapper([]authenticationcel.CompilationResult{compiled})
	result, err := mapper.EvalClaimMapping(context.Background(), input)
	return result.EvalResult, err
}

func evaluateUser(compiled authenticationcel.CompilationResult, info authenticated.DefaultInfo) (ref.Val, error) {
	input, err := convertUserInfoToUnstructured(&info)
	if err != nil {
		return nil, err
	}
	mapper := authenticationcel.NewUserMapper([]authenticationcel.CompilationResult{compiled})
	results, err := mapper.EvalUser(context.Background(), input)
	if err != nil {
		return nil, err
	}
	return results[0].EvalResult, nil
}
