// Runs Kueue's controllers of MultiKueue on the hub for the Secrets of one namespace, until the MultiKueueCluster of the given name is active or not,
// and prints that condition as JSON. Kueue says that a cluster is active when it watches the Workloads there.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/admissionchecks/multikueue"
)

func main() {
	if len(os.Args) != 4 {
		fail(fmt.Errorf("usage: multikueue KUBECONFIG-OF-HUB NAMESPACE MULTIKUEUECLUSTER"))
	}
	ctrl.SetLogger(logr.Discard())
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Second)
	defer cancel()
	condition, err := follow(ctx, os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(condition); err != nil {
		fail(err)
	}
}

func follow(ctx context.Context, kubeconfig, namespace, name string) (*metav1.Condition, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return nil, err
	}
	if err := kueue.AddToScheme(scheme); err != nil {
		return nil, err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{Scheme: scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return nil, err
	}
	if err := multikueue.SetupIndexer(ctx, manager.GetFieldIndexer(), namespace); err != nil {
		return nil, err
	}
	if err := multikueue.SetupControllers(manager, namespace); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	var cluster kueue.MultiKueueCluster
	for {
		select {
		case err := <-ended:
			return nil, fmt.Errorf("Kueue's manager ended: %w", err)
		case <-ctx.Done():
			return nil, fmt.Errorf("no condition in time")
		case <-time.After(200 * time.Millisecond):
		}
		// Not through the manager's cache, which has to be filled first.
		if err := manager.GetAPIReader().Get(ctx, client.ObjectKey{Name: name}, &cluster); err != nil {
			return nil, err
		}
		if condition := meta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive); condition != nil {
			return condition, nil
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
