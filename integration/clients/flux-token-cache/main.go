// Command flux-token-cache gets a token for another cluster as kustomize-controller does for a Kustomization with
// spec.kubeConfig.configMapRef and the provider generic: it reads the ConfigMap, and takes the token from Flux's own cache, which asks
// the hub by TokenRequest.
//
//	flux-token-cache KUBECONFIG NAMESPACE CONFIGMAP RUNS
//
// It prints as JSON the milliseconds of each run with an empty cache, and of each with the token in the cache.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/fluxcd/pkg/auth"
	"github.com/fluxcd/pkg/auth/generic"
	"github.com/fluxcd/pkg/cache"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// The controller's own default of --token-cache-max-size is 100.
const cacheSize = 100

type figures struct {
	Cold []float64 `json:"cold"`
	Warm []float64 `json:"warm"`
}

func main() {
	if len(os.Args) != 5 {
		fail(fmt.Errorf("usage: flux-token-cache KUBECONFIG NAMESPACE CONFIGMAP RUNS"))
	}
	runs, err := strconv.Atoi(os.Args[4])
	if err != nil {
		fail(err)
	}
	key := client.ObjectKey{Namespace: os.Args[2], Name: os.Args[3]}
	measured, err := measure(os.Args[1], key, runs)
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(measured); err != nil {
		fail(err)
	}
}

func measure(kubeconfig string, key client.ObjectKey, runs int) (*figures, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	hub, err := connect(ctx, kubeconfig)
	if err != nil {
		return nil, err
	}
	auth.EnableObjectLevelWorkloadIdentity()
	// The informer of ServiceAccounts starts with the first read.
	if _, err := timed(ctx, hub, key, nil); err != nil {
		return nil, err
	}
	var measured figures
	var tokens *cache.TokenCache
	for range runs {
		if tokens, err = cache.NewTokenCache(cacheSize); err != nil {
			return nil, err
		}
		took, err := timed(ctx, hub, key, tokens)
		if err != nil {
			return nil, err
		}
		measured.Cold = append(measured.Cold, took)
	}
	for range runs {
		took, err := timed(ctx, hub, key, tokens)
		if err != nil {
			return nil, err
		}
		measured.Warm = append(measured.Warm, took)
	}
	return &measured, nil
}

// The client of the controller's manager: objects come from informers, except Secrets and ConfigMaps.
func connect(ctx context.Context, kubeconfig string) (client.Client, error) {
	log.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 500, 1000
	hub, err := cluster.New(config, func(options *cluster.Options) {
		options.Client.Cache = &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}, &corev1.ConfigMap{}}}
	})
	if err != nil {
		return nil, err
	}
	go func() {
		if err := hub.Start(ctx); err != nil {
			fail(err)
		}
	}()
	if !hub.GetCache().WaitForCacheSync(ctx) {
		return nil, fmt.Errorf("the informers did not start")
	}
	return hub.GetClient(), nil
}

func timed(ctx context.Context, hub client.Client, key client.ObjectKey, tokens *cache.TokenCache) (float64, error) {
	begin := time.Now()
	var reference corev1.ConfigMap
	if err := hub.Get(ctx, key, &reference); err != nil {
		return 0, err
	}
	if provider := reference.Data["provider"]; provider != generic.ProviderName {
		return 0, fmt.Errorf("the provider of the ConfigMap is %q", provider)
	}
	options := []auth.Option{
		auth.WithClient(hub),
		auth.WithServiceAccountNamespace(key.Namespace),
		auth.WithServiceAccountName(reference.Data["serviceAccountName"]),
		auth.WithClusterAddress(reference.Data["address"]),
		auth.WithCAData(reference.Data["ca.crt"]),
		auth.WithAudiences(strings.Fields(reference.Data["audiences"])...),
	}
	if tokens != nil {
		options = append(options, auth.WithCache(*tokens, cache.InvolvedObject{
			Kind: "Kustomization", Name: key.Name, Namespace: key.Namespace, Operation: cache.OperationReconcile,
		}))
	}
	config, err := auth.GetRESTConfig(ctx, generic.Provider{}, options...)
	if err != nil {
		return 0, err
	}
	if config.BearerToken == "" {
		return 0, fmt.Errorf("there is no token")
	}
	return float64(time.Since(begin).Microseconds()) / 1000, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
