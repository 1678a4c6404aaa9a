// Asks the API server that a kubeconfig leads to who the caller is, by client-go, and prints the answer's userInfo as JSON.
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
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: client-go KUBECONFIG"))
	}
	user, err := whoami(os.Args[1])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(user); err != nil {
		fail(err)
	}
}

func whoami(kubeconfig string) (*authenticationv1.UserInfo, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
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
