// Runs istiod's controller of remote clusters for one namespace of the hub, as istiod does with its own. When a cluster of the given name is synced,
// it prints the namespaces that Istio's informers read there, and who Istio's client is there, as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"istio.io/istio/pkg/cluster"
	"istio.io/istio/pkg/config/mesh/meshwatcher"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/multicluster"
	"istio.io/istio/pkg/log"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
)

type understood struct {
	Secret     string                    `json:"secret"`
	Namespaces []string                  `json:"namespaces"`
	User       authenticationv1.UserInfo `json:"user"`
}

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: istio KUBECONFIG-OF-HUB NAMESPACE CLUSTER"))
	}
	// Standard output is for the answer alone.
	options := log.DefaultOptions()
	options.OutputPaths = []string{"stderr"}
	if err := log.Configure(options); err != nil {
		fail(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	answer, err := follow(ctx, os.Args[1], os.Args[2], cluster.ID(os.Args[3]))
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fail(err)
	}
}

func follow(ctx context.Context, kubeconfig, namespace string, name cluster.ID) (*understood, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kube.NewClient(kube.NewClientConfigForRestConfig(config), "hub")
	if err != nil {
		return nil, err
	}
	hub := kube.EnableCrdWatcher(client)
	controller := multicluster.NewController(multicluster.ControllerOptions{
		Client:          hub,
		ClusterID:       "hub",
		SystemNamespace: namespace,
		MeshConfig:      meshwatcher.NewTestWatcher(nil),
	})
	hub.RunAndWait(ctx.Done())
	if err := controller.Run(ctx.Done()); err != nil {
		return nil, err
	}
	remote := controller.ClusterStore()
	for {
		if found := remote.GetByID(name); found != nil && found.SyncStatus() == multicluster.SyncStatusSynced {
			return ask(ctx, found)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("cluster %s is not synced; istiod knows %+v", name, controller.ListRemoteClusters())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func ask(ctx context.Context, remote *multicluster.Cluster) (*understood, error) {
	answer := &understood{Secret: remote.SourceSecret.String()}
	for _, namespace := range remote.Namespaces().List() {
		answer.Namespaces = append(answer.Namespaces, namespace.Name)
	}
	reviews := remote.Client.Kube().AuthenticationV1().SelfSubjectReviews()
	review, err := reviews.Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	answer.User = review.Status.UserInfo
	return answer, nil
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
