package main

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"runtime"
	"strings"
	"time"
	"unsafe"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

const initializedWithin = 10 * time.Second

type oracle struct {
	decoder k8sruntime.Decoder
	release release
}

func newOracle() *oracle {
	return &oracle{decoder: newDecoder(), release: newRelease()}
}

func (o *oracle) answer(c question) (result answer) {
	result.ID = c.ID
	defer func() {
		if cause := recover(); cause != nil {
			result = answer{ID: c.ID, Failure: fmt.Sprintf("panic: %v", cause)}
		}
	}()
	if c.Observed != nil {
		result.Observations = o.observe(*c.Observed)
		return result
	}
	config, err := o.load(c.Config)
	if err != nil {
		text := err.Error()
		result.LoadError = &text
		return result
	}
	if errs := o.release.validate(config, c.DisallowedIssuers); len(errs) > 0 {
		result.ValidationErrors = listed(errs)
		return result
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o.authenticate(ctx, c, config, &result)
	return result
}

func (o *oracle) authenticate(ctx context.Context, c question, config *apiserver.AuthenticationConfiguration, result *answer) {
	authenticators := make([]authenticator.Token, 0, len(config.JWT))
	for _, entry := range config.JWT {
		built, state := o.build(ctx, c, entry)
		result.Authenticators = append(result.Authenticators, state)
		authenticators = append(authenticators, built)
	}
	for _, token := range c.Tokens {
		verdicts := make([]verdict, 0, len(authenticators))
		for _, built := range authenticators {
			verdicts = append(verdicts, judge(ctx, built, token))
		}
		result.Tokens = append(result.Tokens, verdicts)
	}
}

// build returns an authenticator that has tried its discovery document once.
func (o *oracle) build(ctx context.Context, c question, entry apiserver.JWTAuthenticator) (authenticator.Token, authenticatorState) {
	options := oidc.Options{
		JWTAuthenticator:     entry,
		Client:               &http.Client{Transport: documents(c.HTTP)},
		SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
		DisallowedIssuers:    c.DisallowedIssuers,
	}
	o.release.complete(&options)
	setClock(&options, time.Unix(c.Now, 0))
	built, err := oidc.New(ctx, options)
	if err != nil {
		return nil, authenticatorState{NewError: err.Error()}
	}
	if err := firstHealth(built); err != nil {
		return built, authenticatorState{NotReady: err.Error()}
	}
	return built, authenticatorState{}
}

// setClock sets the clock of the options, which is unexported because only its own tests needed it.
func setClock(options *oidc.Options, now time.Time) {
	field := reflect.ValueOf(options).Elem().FieldByName("now")
	clock := func() time.Time { return now }
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(clock))
}

// firstHealth waits until the state is no longer the one that the constructor sets.
func firstHealth(built oidc.AuthenticatorTokenWithHealthCheck) error {
	deadline := time.Now().Add(initializedWithin)
	for {
		err := built.HealthCheck()
		if err == nil || !(strings.HasPrefix(err.Error(), "oidc: authenticator for issuer ") && strings.HasSuffix(err.Error(), " is not initialized")) {
			return err
		}
		if time.Now().After(deadline) {
			panic("no discovery was tried in time")
		}
		runtime.Gosched()
	}
}

func judge(ctx context.Context, built authenticator.Token, token string) verdict {
	if built == nil {
		return verdict{Error: "no authenticator"}
	}
	response, ok, err := built.AuthenticateToken(ctx, token)
	if err != nil {
		return verdict{Error: err.Error()}
	}
	if !ok {
		return verdict{Skipped: true}
	}
	return verdict{User: &user{
		Name:   response.User.GetName(),
		UID:    response.User.GetUID(),
		Groups: response.User.GetGroups(),
		Extra:  response.User.GetExtra(),
	}}
}
