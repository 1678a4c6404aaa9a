// Reads a cluster Secret as Argo CD reads it, asks the cluster with the resulting rest.Config who the caller is, and prints what Argo CD
// understood and the answer's userInfo as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/argoproj/argo-cd/v3/util/db"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

type understood struct {
	Name       string                    `json:"name"`
	Server     string                    `json:"server"`
	Project    string                    `json:"project"`
	Namespaces []string                  `json:"namespaces"`
	Exec       bool                      `json:"exec"`
	User       authenticationv1.UserInfo `json:"user"`
}

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: argocd SECRET.json"))
	}
	answer, err := ask(os.Args[1])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}

func ask(file string) (*understood, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var secret corev1.Secret
	if err := json.Unmarshal(text, &secret); err != nil {
		return nil, fmt.Errorf("%s is no Secret", file)
	}
	cluster, err := db.SecretToCluster(&secret)
	if err != nil {
		return nil, err
	}
	config, err := cluster.RESTConfig()
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
	return &understood{
		Name:       cluster.Name,
		Server:     cluster.Server,
		Project:    cluster.Project,
		Namespaces: cluster.Namespaces,
		Exec:       cluster.Config.ExecProviderConfig != nil,
		User:       review.Status.UserInfo,
	}, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
