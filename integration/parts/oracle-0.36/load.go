package main

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
)

// newDecoder reads configuration files as kube-apiserver does: strictly, any registered version, into the internal one.
func newDecoder() runtime.Decoder {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
}

func (o *oracle) load(text string) (*apiserver.AuthenticationConfiguration, error) {
	if text == "" {
		return nil, errors.New("empty config data")
	}
	object, err := runtime.Decode(o.decoder, []byte(text))
	if err != nil {
		return nil, err
	}
	config, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("expected AuthenticationConfiguration, got %T", object)
	}
	return config, nil
}

func listed(list field.ErrorList) []validationError {
	errs := make([]validationError, 0, len(list))
	for _, err := range list {
		// The type's name of its own is "FieldValueInvalid" and so on; String() is for people.
		errs = append(errs, validationError{Field: err.Field, Type: string(err.Type), Text: err.Error()})
	}
	return errs
}
