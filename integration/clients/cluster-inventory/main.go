// Turns a ClusterProfile into a rest.Config by the inventory's own library and a provider file, asks the cluster with it who the caller is,
// and prints the answer's userInfo as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
)

func main() {
	if len(os.Args) != 3 {
		fail(fmt.Errorf("usage: cluster-inventory CLUSTERPROFILE.json PROVIDERS.json"))
	}
	user, err := whoami(os.Args[1], os.Args[2])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(user); err != nil {
		fail(err)
	}
}

func whoami(profileFile, providerFile string) (*authenticationv1.UserInfo, error) {
	text, err := os.ReadFile(profileFile)
	if err != nil {
		return nil, err
	}
	var profile v1alpha1.ClusterProfile
	if err := json.Unmarshal(text, &profile); err != nil {
		return nil, fmt.Errorf("%s is no ClusterProfile: %w", profileFile, err)
	}
	providers, err := access.NewFromFile(providerFile)
	if err != nil {
		return nil, err
	}
	config, err := providers.BuildConfigFromCP(&profile)
	if err != nil {
		return nil, err
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	review, err := clients.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &review.Status.UserInfo, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
