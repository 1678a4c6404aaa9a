// Makes a client from a ProviderConfig that names a Secret of the hub, by the code of Crossplane's provider-kubernetes, and prints who that client
// is at its cluster, as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/crossplane-contrib/provider-kubernetes/pkg/kube/client"
	"github.com/crossplane-contrib/provider-kubernetes/pkg/kube/config"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	runtime "sigs.k8s.io/controller-runtime/pkg/client"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: provider-kubernetes KUBECONFIG-OF-HUB PROVIDERCONFIG-SPEC.json"))
	}
	user, err := whoami(os.Args[1], os.Args[2])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(user); err != nil {
		fail(err)
	}
}

func whoami(kubeconfig, specFile string) (*authenticationv1.UserInfo, error) {
	text, err := os.ReadFile(specFile)
	if err != nil {
		return nil, err
	}
	var spec config.ProviderConfigSpec
	if err := json.Unmarshal(text, &spec); err != nil {
		return nil, fmt.Errorf("%s is no spec of a ProviderConfig: %w", specFile, err)
	}
	hubConfig, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	hub, err := runtime.New(hubConfig, runtime.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	target, _, err := client.NewIdentityAwareBuilder(hub).KubeForProviderConfig(ctx, spec)
	if err != nil {
		return nil, err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := target.Create(ctx, review); err != nil {
		return nil, err
	}
	return &review.Status.UserInfo, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
